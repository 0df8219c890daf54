//! The health routes. `GET /livez`: the process serves requests; a supervisor restarts a process that does not respond. `GET /readyz`:
//! the assistant can answer messages; a load balancer sends none while the status is 503. `GET /health`: readiness with details: the
//! state of tool sources, remote agents and the action server. The responses contain no causes; those are in the log.

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

/// The readiness of the assistant. Clones share the last result.
#[derive(Clone)]
struct Readiness {
    assistant: Assistant,
    /// The time and result of the last check of the store. Locked during a check, so that concurrent requests cause only one.
    last_check: Arc<tokio::sync::Mutex<Option<(Duration, bool)>>>,
}

impl Readiness {
    /// Whether the store responds. A positive result is cached for [`limits::READY_CACHE`].
    async fn is_store_up(&self) -> bool {
        let clock = self.assistant.clock();
        let mut last_check = self.last_check.lock().await;
        if let Some((checked_at, true)) = *last_check
            && clock.elapsed().saturating_sub(checked_at) < limits::READY_CACHE
        {
            return true;
        }
        let cx = CallContext::new(clock.clone(), limits::HEALTH_TIMEOUT);
        let is_up = matches!(cx.wait(self.assistant.store().ping()).await, Ok(Ok(())));
        *last_check = Some((clock.elapsed(), is_up));
        is_up
    }
}

/// The three routes.
pub(super) fn routes(assistant: &Assistant) -> Router {
    let readiness = Readiness { assistant: assistant.clone(), last_check: Arc::default() };
    let alive = || async { Json(json!({"status": "alive"})) };
    Router::new()
        .route("/livez", get(alive))
        .route("/readyz", get(ready))
        .route("/health", get(details))
        .with_state(readiness)
}

/// `/readyz`: status 200; 503 when the store does not respond or the server is shutting down.
async fn ready(State(readiness): State<Readiness>) -> Response {
    let status = if readiness.assistant.is_closing() {
        "closing"
    } else if readiness.is_store_up().await {
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

/// `/health`: as `/readyz`, with details. Its `status` is `degraded` when the store is up but another service is down.
async fn details(State(readiness): State<Readiness>) -> Response {
    let is_store_up = readiness.is_store_up().await;
    let assistant = readiness.assistant;
    let is_ready = is_store_up && !assistant.is_closing();
    let names = |all: BTreeMap<String, Health>| -> BTreeMap<String, &'static str> {
        all.into_iter().map(|(name, health)| (name, health.as_str())).collect()
    };
    let sources = names(assistant.sources());
    let actions = assistant.action_server().map(|health| health.as_str());
    let agents = names(assistant.remote_agents());
    let all = sources.values().chain(&actions).chain(agents.values());
    let is_complete = is_store_up && all.into_iter().all(|status| *status != "down");
    let mut body = json!({
        "status": if !is_ready { "down" } else if is_complete { "ok" } else { "degraded" },
        "version": env!("CARGO_PKG_VERSION"),
        "store": if is_store_up { "up" } else { "down" },
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
