//! A caller against a server on loopback that answers as its message says.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{sync::Arc, time::Duration};

use axum::Router;
use serde_json::{Value as Json, json};
use tonic::Status;

use super::{
    dynamic::{Kind, Value},
    *,
};
use crate::{http::HttpClients, manual_clock::ManualClock};

#[test]
fn an_address_without_a_scheme_goes_by_tls_except_to_this_machine() {
    for (written, asked) in [
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
        assert_eq!(address(written), asked);
    }
}

#[test]
fn an_address_with_a_query_is_refused() {
    let caller = |address| GrpcClient::new(HttpClients::new().http2().unwrap().clone(), address).map(|_| ());
    assert_eq!((caller("http://h:1"), caller("http://h:1/under")), (Ok(()), Ok(())));
    for address in ["http://h:1?token=x", "http://h:1/?token=x"] {
        let error = caller(address).unwrap_err();
        assert!(error.contains("query") && !error.contains("token"), "{error}");
    }
}

/// What comes is answered as it came, with the header `x-key` beside, but for a few words.
async fn answer(request: tonic::Request<Value>) -> Result<tonic::Response<Value>, Status> {
    let key = request.metadata().get("x-key").and_then(|key| key.to_str().ok()).map(str::to_owned);
    let told = request.metadata().get("grpc-timeout").is_some();
    match request.into_inner().kind {
        Some(Kind::Text(text)) if text == "large" => Ok(tonic::Response::new((&json!("x".repeat(2_000))).into())),
        Some(Kind::Text(text)) if text == "refuse" => {
            let details = trouble::details(Code::NotFound, "gone", "TASK_NOT_FOUND", "a2a-protocol.org");
            Err(Status::with_details(Code::NotFound, "gone", details.into()))
        }
        Some(Kind::Text(text)) if text == "wait" => std::future::pending().await,
        other => {
            let said = Json::from(Value { kind: other });
            Ok(tonic::Response::new((&json!({"said": said, "key": key, "told": told})).into()))
        }
    }
}

async fn take(request: axum::extract::Request) -> Response<tonic::body::Body> {
    let codec = ProstCodec::<Value, Value>::default();
    let mut server = tonic::server::Grpc::new(codec);
    // As action servers do where the caller's address says so here.
    if request.uri().path().starts_with("/small") {
        server = server.send_compressed(CompressionEncoding::Gzip);
    }
    server.unary(tower::service_fn(answer), request).await
}

async fn caller(prefix: &str) -> GrpcClient {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}{prefix}", listener.local_addr().unwrap());
    let router = Router::new().fallback(|request| async move { take(request).await.map(axum::body::Body::new) });
    tokio::spawn(async move { axum::serve(listener, router).await });
    GrpcClient::new(HttpClients::new().http2().unwrap().clone(), &url).unwrap()
}

async fn ask(caller: &GrpcClient, text: &str, cx: &CallContext) -> Result<Json, GrpcError> {
    caller.ask("/test.Echo/Say", Value::from(&json!(text)), 1_000, cx).await.map(|value: Value| value.into())
}

#[tokio::test]
async fn an_answer_comes_with_who_we_are_and_how_long_we_wait() {
    let clock = Arc::new(ManualClock::default());
    let cx = CallContext::new(clock, Duration::from_secs(30));
    for prefix in ["", "/small"] {
        let caller = caller(prefix).await.with_header("X-Key", &Secret::new("k1")).unwrap();
        let answer = ask(&caller, "hi", &cx).await.unwrap();
        assert_eq!(answer, json!({"said": "hi", "key": "k1", "told": true}), "{prefix}");
        // Two thousand times the same letter is small on its way and large when it is read.
        assert_eq!(ask(&caller, "large", &cx).await, Err(GrpcError::TooLarge), "{prefix}");
    }
    let caller = caller("").await;
    assert!(caller.clone().with_header("no good", &Secret::new("x")).is_err());
    let error = caller.with_header("x-other", &Secret::new("a\nb")).unwrap_err();
    assert!(error.contains("x-other") && !error.contains('\n'), "{error}");
}

#[tokio::test]
async fn each_kind_of_failure_is_told_apart() {
    let clock = Arc::new(ManualClock::default());
    let cx = CallContext::new(clock.clone(), Duration::from_secs(30));
    let caller = caller("").await;
    let refused = GrpcError::Refused {
        code: Code::NotFound,
        message: "gone".to_owned(),
        reason: Some("TASK_NOT_FOUND".to_owned()),
    };
    assert_eq!(ask(&caller, "refuse", &cx).await, Err(refused));
    let mut waiting = std::pin::pin!(ask(&caller, "wait", &cx));
    assert!(futures::poll!(&mut waiting).is_pending());
    clock.advance(Duration::from_secs(30));
    assert_eq!(waiting.await, Err(GrpcError::Late));
    // Bound and never listening: closed else gets the port, and closed answers there.
    let closed = tokio::net::TcpSocket::new_v4().unwrap();
    closed.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let url = format!("http://{}", closed.local_addr().unwrap());
    let nobody = GrpcClient::new(HttpClients::new().http2().unwrap().clone(), &url).unwrap();
    let cx = CallContext::new(clock, Duration::from_secs(30));
    assert!(matches!(ask(&nobody, "hi", &cx).await, Err(GrpcError::Unreachable(_))));
}

#[tokio::test]
async fn a_server_that_closes_without_a_word_is_a_broken_connection() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            drop(stream)
        }
    });
    let caller = GrpcClient::new(HttpClients::new().http2().unwrap().clone(), &url).unwrap();
    let cx = CallContext::new(Arc::new(ManualClock::default()), Duration::from_secs(30));
    let trouble = ask(&caller, "hi", &cx).await.unwrap_err();
    assert!(matches!(trouble, GrpcError::Broken(_) | GrpcError::Unreachable(_)), "{trouble:?}");
}
