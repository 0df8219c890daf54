#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use axum::{Router, extract::State, http::HeaderMap, routing::post};
use serde_json::Value as Json;
use tokio::sync::mpsc;

use super::{
    super::websocket::tests::{SECRET, TestServer},
    *,
};

type Received = (HeaderMap, String);

/// A server that receives replies; the first `failures` requests are answered with 503.
async fn receiver(failures: usize) -> (String, mpsc::UnboundedReceiver<Received>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let left = Arc::new(std::sync::atomic::AtomicUsize::new(failures));
    let handler =
        |State((sender, left)): State<(mpsc::UnboundedSender<Received>, Arc<std::sync::atomic::AtomicUsize>)>,
         headers: HeaderMap,
         body: String| async move {
            use std::sync::atomic::Ordering::SeqCst;
            if left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok() {
                return StatusCode::SERVICE_UNAVAILABLE;
            }
            sender.send((headers, body)).unwrap();
            StatusCode::OK
        };
    let router = Router::new().route("/replies", post(handler)).with_state((sender, left));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/replies", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (url, receiver)
}

/// Sends a message; returns the status and the text of the response.
async fn say(server: &TestServer, body: Json) -> (StatusCode, String) {
    let client = crate::http::HttpClients::new();
    let url = format!("http://{}/webhooks/callback/webhook", server.address);
    let response = client.client().unwrap().post(url).body(body.to_string()).send().await.unwrap();
    (response.status(), response.text().await.unwrap())
}

#[tokio::test]
async fn a_message_is_answered_at_once_and_its_replies_are_posted_with_a_signature() {
    let (url, mut received) = receiver(0).await;
    let server = TestServer::start(&format!("callback: {{url: '{url}', signing_secret: '${{SECRET}}'}}\n")).await;
    let message = json!({"sender": "ada", "message": "hi", "message_id": "m1"});
    for _ in 0..2 {
        assert_eq!(say(&server, message.clone()).await, (StatusCode::OK, "success".to_owned()));
    }
    let (headers, body) = received.recv().await.unwrap();
    let json: Json = serde_json::from_str(&body).unwrap();
    assert_eq!((&json["recipient_id"], &json["text"]), (&json!("ada"), &json!("Hello!")));
    assert!(json["buttons"].is_array() && headers.contains_key(MESSAGE_ID), "{json} {headers:?}");
    assert_eq!(headers[SIGNATURE], signature(&hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes()), &body));
    // A turn that the user has not begun, such as a reminder. The repeated message was answered once.
    server.say_unheard("ada", NAME).await;
    received.recv().await.unwrap();
    assert!(received.try_recv().is_err());
    let (status, text) = say(&server, json!({"mesage": "hi"})).await;
    assert!(status == StatusCode::BAD_REQUEST && text.contains("did you mean"), "{text}");
}

#[tokio::test]
async fn a_reply_that_the_url_does_not_take_is_sent_again() {
    let (url, mut received) = receiver(1).await;
    let server = TestServer::start(&format!("callback: {{url: '{url}', batch: true}}\n")).await;
    say(&server, json!({"sender": "ada", "message": "hi"})).await;
    let (_, body) = received.recv().await.unwrap();
    let json: Json = serde_json::from_str(&body).unwrap();
    assert_eq!(json[0]["text"], "Hello!", "{json}");
}

#[test]
fn a_signature_is_that_of_the_body() {
    // RFC 4231, test case 2.
    let key = hmac::Key::new(hmac::HMAC_SHA256, b"Jefe");
    let expected = "sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
    assert_eq!(signature(&key, "what do ya want for nothing?"), expected);
}
