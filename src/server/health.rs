//! `GET /health`: whether the store answers, which tool sources do, and whether the action server does. Says no causes: those stand in the log.

use std::collections::BTreeMap;

use axum::{Json, extract::State, http::StatusCode};
use serde_json::{Value, json};

use crate::{a2a, actions::Health, cx::Cx, limits, runtime::Assistant, tools::SourceStatus};

/// 200 while messages can be answered, 503 when the store is down.
pub(super) async fn answer(State(assistant): State<Assistant>) -> (StatusCode, Json<Value>) {
    let cx = Cx::new(assistant.clock().clone(), limits::HEALTH);
    let store_is_up = matches!(cx.wait(assistant.store().conversations(1)).await, Ok(Ok(_)));
    let sources: BTreeMap<String, &str> = assistant
        .sources()
        .into_iter()
        .map(|(name, status)| {
            let status = match status {
                SourceStatus::Unknown => "unknown",
                SourceStatus::Up => "up",
                SourceStatus::Down { .. } => "down",
            };
            (name, status)
        })
        .collect();
    let actions = assistant.action_server().map(|health| match health {
        Health::Unknown => "unknown",
        Health::Up => "up",
        Health::Down { .. } => "down",
    });
    let agents: BTreeMap<String, &str> = assistant
        .remote_agents()
        .into_iter()
        .map(|(name, health)| {
            let health = match health {
                a2a::Health::Unknown => "unknown",
                a2a::Health::Up => "up",
                a2a::Health::Down { .. } => "down",
            };
            (name, health)
        })
        .collect();
    let all = sources.values().chain(&actions).chain(agents.values());
    let is_whole = store_is_up && all.into_iter().all(|status| *status != "down");
    let mut body = json!({
        "status": if !store_is_up { "down" } else if is_whole { "ok" } else { "degraded" },
        "version": env!("CARGO_PKG_VERSION"),
        "store": if store_is_up { "up" } else { "down" },
        "sources": sources,
    });
    if let (Some(actions), Some(body)) = (actions, body.as_object_mut()) {
        body.insert("actions".into(), actions.into());
    }
    if let (false, Some(body)) = (agents.is_empty(), body.as_object_mut()) {
        body.insert("agents".into(), json!(agents));
    }
    (if store_is_up { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, Json(body))
}
