//! The three answers about health. `GET /livez`: the process serves requests; a supervisor restarts one that does not answer.
//! `GET /readyz`: messages can be answered; a load balancer sends none to one that says no. `GET /health`: the second answer with
//! details: which tool sources answer, whether the action server does. None says causes: those are in the log.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::{
    Json, Router,
    extract::State,
    http::{StatusCode, header::RETRY_AFTER},
    response::{IntoResponse, Response},
    routing::get,
};
use serde_json::{Value, json};

use crate::{context::CallContext, health::Health, limits, runtime::Assistant};

/// What is known about the store, for all who ask.
#[derive(Clone)]
struct Readiness {
    assistant: Assistant,
    /// When the store was asked last, and whether it answered. Locked while it is asked, so that many who ask cost one question.
    last: Arc<tokio::sync::Mutex<Option<(Duration, bool)>>>,
}

impl Readiness {
    /// Whether the store answers; a good answer is kept for [`limits::READY_CACHE`].
    async fn store_is_up(&self) -> bool {
        let clock = self.assistant.clock();
        let mut last = self.last.lock().await;
        if let Some((at, true)) = *last
            && clock.elapsed().saturating_sub(at) < limits::READY_CACHE
        {
            return true;
        }
        let cx = CallContext::new(clock.clone(), limits::HEALTH_TIMEOUT);
        let is_up = matches!(cx.wait(self.assistant.store().ping()).await, Ok(Ok(())));
        *last = Some((clock.elapsed(), is_up));
        is_up
    }
}

/// The routes of all three.
pub(super) fn routes(assistant: &Assistant) -> Router {
    let readiness = Readiness { assistant: assistant.clone(), last: Arc::default() };
    let alive = || async { Json(json!({"status": "alive"})) };
    Router::new()
        .route("/livez", get(alive))
        .route("/readyz", get(ready))
        .route("/health", get(details))
        .with_state(readiness)
}

/// 200 while messages can be answered; 503 when the store does not answer, or the server is shutting down.
async fn ready(State(readiness): State<Readiness>) -> Response {
    let status = if readiness.assistant.is_shutting_down() {
        "closing"
    } else if readiness.store_is_up().await {
        return Json(json!({"status": "ready"})).into_response();
    } else {
        "store down"
    };
    unavailable(json!({"status": status}))
}

fn unavailable(body: Value) -> Response {
    let retry = [(RETRY_AFTER, limits::READY_CACHE.as_secs().to_string())];
    (StatusCode::SERVICE_UNAVAILABLE, retry, Json(body)).into_response()
}

/// The same, with details.
async fn details(State(readiness): State<Readiness>) -> Response {
    let store_is_up = readiness.store_is_up().await;
    let assistant = readiness.assistant;
    let is_ready = store_is_up && !assistant.is_shutting_down();
    let words = |all: BTreeMap<String, Health>| -> BTreeMap<String, &'static str> {
        all.into_iter().map(|(name, health)| (name, health.as_str())).collect()
    };
    let sources = words(assistant.tool_source_status());
    let actions = assistant.action_server_status().map(|health| health.as_str());
    let agents = words(assistant.remote_agent_status());
    let all = sources.values().chain(&actions).chain(agents.values());
    let is_whole = store_is_up && all.into_iter().all(|status| *status != "down");
    let mut body = json!({
        "status": if !is_ready { "down" } else if is_whole { "ok" } else { "degraded" },
        "version": env!("CARGO_PKG_VERSION"),
        "store": if store_is_up { "up" } else { "down" },
        "recovering": assistant.recovering(),
        "sources": sources,
    });
    if let (Some(actions), Some(body)) = (actions, body.as_object_mut()) {
        body.insert("actions".into(), actions.into());
    }
    if let (false, Some(body)) = (agents.is_empty(), body.as_object_mut()) {
        body.insert("agents".into(), json!(agents));
    }
    if is_ready { Json(body).into_response() } else { unavailable(body) }
}
