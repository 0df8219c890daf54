//! Tests of the client against a loopback server whose behaviour is selected by the request message.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{sync::Arc, time::Duration};

use axum::Router;
use serde_json::{Value as Json, json};
use tonic::Status;

use super::{
    well_known::{Kind, Value},
    *,
};
use crate::{http::HttpClients, manual_clock::ManualClock};

#[test]
fn an_address_without_a_scheme_uses_tls_except_for_loopback() {
    for (written, url) in [
        ("grpc://h:1", "http://h:1"),
        ("grpcs://h:1", "https://h:1"),
        ("http://h:1/a", "http://h:1/a"),
        ("h:50051", "https://h:50051"),
        ("localhost:50051", "http://localhost:50051"),
        ("localhost.evil.example:1", "https://localhost.evil.example:1"),
        ("127.0.0.1:1", "http://127.0.0.1:1"),
        ("[::1]:1", "http://[::1]:1"),
        ("127.0.0.1.evil.example:1", "https://127.0.0.1.evil.example:1"),
    ] {
        assert_eq!(parse_address(written), url);
    }
}

#[test]
fn an_address_with_a_query_is_refused() {
    let client = |address| GrpcClient::new(HttpClients::new().http2().unwrap().clone(), address).map(|_| ());
    assert_eq!((client("http://h:1"), client("http://h:1/under")), (Ok(()), Ok(())));
    for address in ["http://h:1?token=x", "http://h:1/?token=x"] {
        let error = client(address).unwrap_err();
        assert!(error.contains("query") && !error.contains("token"), "{error}");
    }
}

/// Echoes the message together with the header `x-key`; a few messages select another behaviour.
async fn answer(request: tonic::Request<Value>) -> Result<tonic::Response<Value>, Status> {
    let key = request.metadata().get("x-key").and_then(|key| key.to_str().ok()).map(str::to_owned);
    let has_timeout = request.metadata().get("grpc-timeout").is_some();
    match request.into_inner().kind {
        Some(Kind::Text(text)) if text == "large" => Ok(tonic::Response::new((&json!("x".repeat(2_000))).into())),
        Some(Kind::Text(text)) if text == "refuse" => {
            let details = error::details(Code::NotFound, "gone", "TASK_NOT_FOUND", "a2a-protocol.org");
            Err(Status::with_details(Code::NotFound, "gone", details.into()))
        }
        Some(Kind::Text(text)) if text == "wait" => std::future::pending().await,
        other => {
            let echo = Json::from(Value { kind: other });
            Ok(tonic::Response::new((&json!({"echo": echo, "key": key, "has_timeout": has_timeout})).into()))
        }
    }
}

async fn take(request: axum::extract::Request) -> Response<tonic::body::Body> {
    let codec = ProstCodec::<Value, Value>::default();
    let mut server = tonic::server::Grpc::new(codec);
    // Compresses responses, if the path of the client's URL requests it.
    if request.uri().path().starts_with("/small") {
        server = server.send_compressed(CompressionEncoding::Gzip);
    }
    server.unary(tower::service_fn(answer), request).await
}

async fn client(prefix: &str) -> GrpcClient {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}{prefix}", listener.local_addr().unwrap());
    let router = Router::new().fallback(|request| async move { take(request).await.map(axum::body::Body::new) });
    tokio::spawn(async move { axum::serve(listener, router).await });
    GrpcClient::new(HttpClients::new().http2().unwrap().clone(), &url).unwrap()
}

async fn ask(client: &GrpcClient, text: &str, cx: &CallContext) -> Result<Json, GrpcError> {
    client.unary("/test.Echo/Say", Value::from(&json!(text)), 1_000, cx).await.map(|value: Value| value.into())
}

#[tokio::test]
async fn requests_carry_headers_and_timeout() {
    let clock = Arc::new(ManualClock::default());
    let cx = CallContext::new(clock, Duration::from_secs(30));
    for prefix in ["", "/small"] {
        let client = client(prefix).await.with_header("X-Key", &Secret::new("k1")).unwrap();
        let answer = ask(&client, "hi", &cx).await.unwrap();
        assert_eq!(answer, json!({"echo": "hi", "key": "k1", "has_timeout": true}), "{prefix}");
        // Two thousand equal letters are small when compressed and larger than the limit when decompressed.
        assert_eq!(ask(&client, "large", &cx).await, Err(GrpcError::TooLarge), "{prefix}");
    }
    let client = client("").await;
    assert!(client.clone().with_header("no good", &Secret::new("x")).is_err());
    let error = client.with_header("x-other", &Secret::new("a\nb")).unwrap_err();
    assert!(error.contains("x-other") && !error.contains('\n'), "{error}");
}

#[tokio::test]
async fn failures_have_distinct_errors() {
    let clock = Arc::new(ManualClock::default());
    let cx = CallContext::new(clock.clone(), Duration::from_secs(30));
    let client = client("").await;
    let refused = GrpcError::Refused {
        code: Code::NotFound,
        message: "gone".to_owned(),
        reason: Some("TASK_NOT_FOUND".to_owned()),
    };
    assert_eq!(ask(&client, "refuse", &cx).await, Err(refused));
    let mut waiting = std::pin::pin!(ask(&client, "wait", &cx));
    assert!(futures::poll!(&mut waiting).is_pending());
    clock.advance(Duration::from_secs(30));
    assert_eq!(waiting.await, Err(GrpcError::DeadlineExceeded));
    // Bound and never listening: no other process gets the port, and nothing responds there.
    let closed = tokio::net::TcpSocket::new_v4().unwrap();
    closed.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let url = format!("http://{}", closed.local_addr().unwrap());
    let unreachable = GrpcClient::new(HttpClients::new().http2().unwrap().clone(), &url).unwrap();
    let cx = CallContext::new(clock, Duration::from_secs(30));
    assert!(matches!(ask(&unreachable, "hi", &cx).await, Err(GrpcError::Unreachable(_))));
}

#[tokio::test]
async fn a_server_that_closes_without_a_response_is_a_broken_connection() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            drop(stream)
        }
    });
    let client = GrpcClient::new(HttpClients::new().http2().unwrap().clone(), &url).unwrap();
    let cx = CallContext::new(Arc::new(ManualClock::default()), Duration::from_secs(30));
    let error = ask(&client, "hi", &cx).await.unwrap_err();
    assert!(matches!(error, GrpcError::Broken(_) | GrpcError::Unreachable(_)), "{error:?}");
}
