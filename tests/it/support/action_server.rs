//! A small action server that outlives the process under test and records the calls that it receives.

use std::sync::{Arc, Mutex};

use axum::{
    Router,
    body::Bytes,
    http::{HeaderMap, StatusCode},
    routing::get,
};
use serde_json::{Value as Json, json};

/// A recorded call.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// The body of the request.
    pub(crate) body: Json,
    /// The header `Idempotency-Key`.
    pub(crate) key: String,
}

/// The response to a call: a status and a body. `None` sends no response: the caller waits.
type RespondFn = dyn Fn(&Call, usize) -> Option<(u16, Json)> + Send + Sync;

/// A running action server. It runs until the test process ends.
pub(crate) struct ActionServer {
    pub(crate) address: String,
    calls: Arc<Mutex<Vec<Call>>>,
}

impl ActionServer {
    /// Starts a server. `respond` gets each call and its number, from 1.
    pub(crate) fn start(respond: impl Fn(&Call, usize) -> Option<(u16, Json)> + Send + Sync + 'static) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let calls = Arc::<Mutex<Vec<Call>>>::default();
        let router = router(calls.clone(), Arc::new(respond));
        std::thread::spawn(move || {
            tokio::runtime::Runtime::new().unwrap().block_on(async {
                axum::serve(tokio::net::TcpListener::from_std(listener).unwrap(), router).await.unwrap();
            });
        });
        Self { address, calls }
    }

    /// The recorded calls, oldest first.
    pub(crate) fn calls(&self) -> Vec<Call> {
        self.calls.lock().unwrap().clone()
    }

    /// The calls of one action.
    pub(crate) fn calls_of(&self, action: &str) -> Vec<Call> {
        self.calls().into_iter().filter(|call| call.body["next_action"] == action).collect()
    }
}

/// A response that sets one slot.
pub(crate) fn set_slot(slot: &str, value: &str) -> Option<(u16, Json)> {
    let event = json!({"event": "slot", "timestamp": null, "name": slot, "value": value});
    Some((200, json!({"events": [event], "responses": []})))
}

/// The routes: Segue checks `/health` and `/actions` when it starts; everything else is a call.
fn router(calls: Arc<Mutex<Vec<Call>>>, respond: Arc<RespondFn>) -> Router {
    let call = async move |headers: HeaderMap, body: Bytes| {
        let key = headers.get("idempotency-key").map_or("", |key| key.to_str().unwrap()).to_owned();
        let call = Call { body: serde_json::from_slice(&body).unwrap_or_default(), key };
        let number = {
            let mut calls = calls.lock().unwrap();
            calls.push(call.clone());
            calls.len()
        };
        // The response may block; other callers must not wait for it.
        match tokio::task::spawn_blocking(move || respond(&call, number)).await.unwrap() {
            Some((status, body)) => (StatusCode::from_u16(status).unwrap(), axum::Json(body)),
            // Pending until the caller closes the connection or crashes.
            None => std::future::pending().await,
        }
    };
    Router::new()
        .route("/health", get(async || axum::Json(json!({"status": "ok"}))))
        .route("/actions", get(async || axum::Json(json!([{"name": "action_book"}]))))
        .fallback(call)
}
