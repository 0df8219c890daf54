//! What hosts are told besides answers: that a transcript they watch has grown, and, where they ask for it, what a turn did.

// Log messages are on their way out of the protocol; hosts of today ask for them.
#![allow(deprecated)]

use std::{collections::HashMap, sync::Mutex};

use rmcp::{
    ErrorData, Peer, RoleServer,
    model::{
        LoggingLevel, LoggingMessageNotificationParam, ResourceUpdatedNotificationParam, ServerCapabilities,
        SetLevelRequestParams,
    },
    service::RequestContext,
};
use segue_engine::{conversation::EventKind, ids::ConversationId};
use serde_json::{Value as Json, json};
use uuid::Uuid;

use super::{
    form::of_last_turn,
    session::{Session, is_newer},
    transcript,
};
use crate::{context::CallContext, limits};

/// From which level on a host is told.
pub(super) type Level = LoggingLevel;
/// How a host says so.
pub(super) type SetLevel = SetLevelRequestParams;

/// These, and that hosts are told what happens.
pub(super) fn with_logging(mut capabilities: ServerCapabilities) -> ServerCapabilities {
    capabilities.logging = Some(serde_json::Map::new());
    capabilities
}

/// Who watches what, by address.
#[derive(Default)]
pub(super) struct Watchers(Mutex<HashMap<String, Vec<Watcher>>>);

/// A session, and the way to it.
type Watcher = (Uuid, Peer<RoleServer>);

impl Watchers {
    /// Takes one more, or says that a session watches enough.
    fn add(&self, address: &str, session: Uuid, peer: &Peer<RoleServer>) -> Result<(), ErrorData> {
        let mut all = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mine = all.values().flatten().filter(|(watches, _)| *watches == session).count();
        if mine >= limits::MCP_SERVED_CONVERSATIONS {
            let problem = format!("this session watches {} resources already", limits::MCP_SERVED_CONVERSATIONS);
            return Err(ErrorData::invalid_request(problem, None));
        }
        let who = all.entry(address.to_owned()).or_default();
        if !who.iter().any(|(watches, _)| *watches == session) {
            who.push((session, peer.clone()));
        }
        Ok(())
    }

    /// Forgets a session, for one address or all of them.
    pub(super) fn forget(&self, session: Uuid, address: Option<&str>) {
        let mut all = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        all.retain(|watched, who| {
            who.retain(|(watches, _)| *watches != session || address.is_some_and(|address| address != watched));
            !who.is_empty()
        });
    }

    fn of(&self, address: &str) -> Vec<Peer<RoleServer>> {
        let all = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        all.get(address).into_iter().flatten().map(|(_, peer)| peer.clone()).collect()
    }
}

impl Session {
    /// Watches a resource that this session may read.
    pub(super) fn watch(&self, address: &str, context: &RequestContext<RoleServer>) -> Result<(), ErrorData> {
        if !self.may_read(address) {
            return Err(super::handler::no_resource(address));
        }
        self.shared.watchers.add(address, self.scope, &context.peer)
    }

    /// Remembers from which level on a host is told.
    pub(super) fn heed(&self, request: &SetLevel) {
        self.set_level(request.level);
    }

    /// After a turn: who watches the talk is told, and whoever calls, if it asked for what happened.
    pub(super) async fn tell(&self, talk: &ConversationId, context: &RequestContext<RoleServer>) {
        let cx = CallContext::new(self.shared.assistant.clock().clone(), limits::CHANNEL_SEND_TIMEOUT);
        let address = transcript::address(talk);
        for peer in self.shared.watchers.of(&address) {
            let news = ResourceUpdatedNotificationParam::new(&*address);
            let _ = cx.wait(peer.notify_resource_updated(news)).await;
        }
        let level = if is_newer(context) { context.meta.log_level() } else { self.level() };
        let Some(least) = level else { return };
        let Ok(events) = self.shared.assistant.store().latest_events(talk, limits::MCP_SERVED_EVENTS).await else {
            return;
        };
        for event in of_last_turn(&events) {
            let Some((level, mut data)) = happened(&event.kind).filter(|(level, _)| rank(*level) >= rank(least)) else {
                continue;
            };
            if let Some(data) = data.as_object_mut() {
                data.insert("conversation_id".to_owned(), talk.as_str().into());
            }
            let news = LoggingMessageNotificationParam::new(level, data).with_logger("segue");
            if !matches!(cx.wait(context.peer.notify_logging_message(news)).await, Ok(Ok(()))) {
                return;
            }
        }
    }
}

/// What of an event a host is told: names, never values, words or causes.
fn happened(event: &EventKind) -> Option<(LoggingLevel, Json)> {
    let (level, what, of) = match event {
        EventKind::FlowStarted { flow_id, .. } => (LoggingLevel::Info, "flow started", flow_id.as_str()),
        EventKind::FlowCompleted { flow_id, .. } => (LoggingLevel::Info, "flow completed", flow_id.as_str()),
        EventKind::FlowCancelled { flow_id, .. } => (LoggingLevel::Info, "flow cancelled", flow_id.as_str()),
        EventKind::FlowInterrupted { flow_id, .. } => (LoggingLevel::Info, "flow interrupted", flow_id.as_str()),
        EventKind::FlowResumed { flow_id, .. } => (LoggingLevel::Info, "flow resumed", flow_id.as_str()),
        EventKind::Slot { name, .. } => (LoggingLevel::Debug, "slot set", name.as_str()),
        EventKind::Action { name } => (LoggingLevel::Debug, "action run", name.as_str()),
        EventKind::ToolExecuted { .. } => (LoggingLevel::Debug, "tool called", ""),
        EventKind::ActionFailed { .. } => (LoggingLevel::Error, "action failed", ""),
        _ => return None,
    };
    Some((level, json!({"event": what, "name": of})))
}

/// The order of levels.
fn rank(level: LoggingLevel) -> u8 {
    match level {
        LoggingLevel::Debug => 0,
        LoggingLevel::Info => 1,
        LoggingLevel::Notice => 2,
        LoggingLevel::Warning => 3,
        LoggingLevel::Error => 4,
        LoggingLevel::Critical => 5,
        LoggingLevel::Alert => 6,
        LoggingLevel::Emergency => 7,
    }
}
