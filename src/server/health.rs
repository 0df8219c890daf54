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

use crate::{clock::Clock, context::CallContext, health::Health, limits, runtime::Assistant};

/// The readiness of the assistant. Clones share the last check of the store.
#[derive(Clone)]
struct Readiness {
    assistant: Assistant,
    store_check: Arc<StoreCheck>,
}

impl Readiness {
    async fn is_store_up(&self) -> bool {
        let clock = self.assistant.clock();
        let ping = async {
            let cx = CallContext::new(clock.clone(), limits::HEALTH_TIMEOUT);
            matches!(cx.wait(self.assistant.store().ping()).await, Ok(Ok(())))
        };
        self.store_check.is_up(clock, ping).await
    }
}

/// The time and result of the last check of the store. Locked during a check.
#[derive(Default)]
struct StoreCheck(tokio::sync::Mutex<Option<(Duration, bool)>>);

impl StoreCheck {
    /// Whether the store responds, by `ping` or an earlier check. A positive result is cached for [`limits::READY_CACHE`]. A negative one
    /// counts only for requests that waited for it: they would otherwise wait for a timeout each, one after the other.
    async fn is_up(&self, clock: &Arc<dyn Clock>, ping: impl Future<Output = bool>) -> bool {
        let requested_at = clock.elapsed();
        let mut last = self.0.lock().await;
        if let Some((checked_at, is_up)) = *last {
            let is_cached = is_up && clock.elapsed().saturating_sub(checked_at) < limits::READY_CACHE;
            if is_cached || checked_at > requested_at {
                return is_up;
            }
        }
        let is_up = ping.await;
        *last = Some((clock.elapsed(), is_up));
        is_up
    }
}

/// The three routes.
pub(super) fn routes(assistant: &Assistant) -> Router {
    let readiness = Readiness { assistant: assistant.clone(), store_check: Arc::default() };
    let alive = || async { Json(json!({"status": "alive"})) };
    Router::new()
        .route("/livez", get(alive))
        .route("/readyz", get(ready))
        .route("/health", get(details))
        .with_state(readiness)
}

/// `/readyz`: status 200; 503 when the store does not respond or the server is shutting down.
async fn ready(State(readiness): State<Readiness>) -> Response {
    let status = if readiness.assistant.is_shutting_down() {
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
    let is_ready = is_store_up && !assistant.is_shutting_down();
    let names = |all: BTreeMap<String, Health>| -> BTreeMap<String, &'static str> {
        all.into_iter().map(|(name, health)| (name, health.as_str())).collect()
    };
    let sources = names(assistant.tool_source_status());
    let actions = assistant.action_server_status().map(|health| health.as_str());
    let agents = names(assistant.remote_agent_status());
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::testing::ManualClock;

    #[tokio::test]
    async fn requests_that_wait_for_a_failing_check_share_its_result() {
        let (check, manual) = (StoreCheck::default(), ManualClock::new());
        let clock: Arc<dyn Clock> = Arc::new(manual.clone());
        let pings = AtomicUsize::new(0);
        let request = || {
            check.is_up(&clock, async {
                pings.fetch_add(1, Ordering::SeqCst);
                clock.sleep(clock.deadline(limits::HEALTH_TIMEOUT)).await;
                false
            })
        };
        let timeout = async { manual.advance(limits::HEALTH_TIMEOUT) };
        assert_eq!(tokio::join!(request(), request(), timeout), (false, false, ()));
        assert_eq!(pings.load(Ordering::SeqCst), 1);
        assert_eq!(tokio::join!(request(), async { manual.advance(limits::HEALTH_TIMEOUT) }), (false, ()));
        assert_eq!(pings.load(Ordering::SeqCst), 2, "a later request checks again");
    }
}
