//! An action server of a few lines, that outlives the process under test: it remembers what it was asked.

use std::sync::{Arc, Mutex};

use axum::{
    Router,
    body::Bytes,
    http::{HeaderMap, StatusCode},
    routing::get,
};
use serde_json::{Value as Json, json};

/// One call.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) body: Json,
    /// The header `Idempotency-Key`.
    pub(crate) key: String,
}

/// What is answered to a call: a status and a body; `None` keeps the caller waiting.
type Answers = dyn Fn(&Call, usize) -> Option<(u16, Json)> + Send + Sync;

pub(crate) struct ActionServer {
    pub(crate) address: String,
    calls: Arc<Mutex<Vec<Call>>>,
}

impl ActionServer {
    /// `answers` gets each call with its number, from 1. It runs until the test process ends.
    pub(crate) fn start(answers: impl Fn(&Call, usize) -> Option<(u16, Json)> + Send + Sync + 'static) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let calls = Arc::<Mutex<Vec<Call>>>::default();
        let router = router(calls.clone(), Arc::new(answers));
        std::thread::spawn(move || {
            tokio::runtime::Runtime::new().unwrap().block_on(async {
                axum::serve(tokio::net::TcpListener::from_std(listener).unwrap(), router).await.unwrap();
            });
        });
        Self { address, calls }
    }

    pub(crate) fn calls(&self) -> Vec<Call> {
        self.calls.lock().unwrap().clone()
    }

    /// The calls of one action.
    pub(crate) fn calls_of(&self, action: &str) -> Vec<Call> {
        self.calls().into_iter().filter(|call| call.body["next_action"] == action).collect()
    }
}

/// An answer that sets one slot.
pub(crate) fn sets(slot: &str, value: &str) -> Option<(u16, Json)> {
    let event = json!({"event": "slot", "timestamp": null, "name": slot, "value": value});
    Some((200, json!({"events": [event], "responses": []})))
}

/// A start asks how the server is and what it has.
fn router(calls: Arc<Mutex<Vec<Call>>>, answers: Arc<Answers>) -> Router {
    let call = async move |headers: HeaderMap, body: Bytes| {
        let key = headers.get("idempotency-key").map_or("", |key| key.to_str().unwrap()).to_owned();
        let call = Call { body: serde_json::from_slice(&body).unwrap_or_default(), key };
        let number = {
            let mut calls = calls.lock().unwrap();
            calls.push(call.clone());
            calls.len()
        };
        // An answer may wait for something, and must not keep other callers waiting.
        match tokio::task::spawn_blocking(move || answers(&call, number)).await.unwrap() {
            Some((status, body)) => (StatusCode::from_u16(status).unwrap(), axum::Json(body)),
            // The caller hangs up, or dies.
            None => std::future::pending().await,
        }
    };
    Router::new()
        .route("/health", get(async || axum::Json(json!({"status": "ok"}))))
        .route("/actions", get(async || axum::Json(json!([{"name": "action_book"}]))))
        .fallback(call)
}
