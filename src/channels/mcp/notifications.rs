//! Notifications to hosts: updates of resources that they subscribed to, and log messages about a turn, if they set a log level.

// rmcp marks logging as deprecated, as newer revisions of MCP do. Hosts still use it.
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
    form::events_of_last_turn,
    session::{Session, is_sessionless_revision},
    transcript,
};
use crate::{context::CallContext, limits};

/// The lowest level of log messages that a host wants. An alias, so that only this file uses deprecated names.
pub(super) type LogLevel = LoggingLevel;
/// The parameters of `logging/setLevel`.
pub(super) type SetLogLevel = SetLevelRequestParams;

/// The level of a `logging/setLevel` request.
pub(super) fn requested_level(request: &SetLogLevel) -> LogLevel {
    request.level
}

/// These capabilities, and logging.
pub(super) fn with_logging(mut capabilities: ServerCapabilities) -> ServerCapabilities {
    capabilities.logging = Some(serde_json::Map::new());
    capabilities
}

/// The subscriptions of all sessions, by URI.
#[derive(Default)]
pub(super) struct Subscriptions(Mutex<HashMap<String, Vec<Subscriber>>>);

/// The id of a session, and its connection.
type Subscriber = (Uuid, Peer<RoleServer>);

impl Subscriptions {
    /// Adds a subscription.
    ///
    /// # Errors
    /// The session has [`limits::MCP_SERVED_CONVERSATIONS`] subscriptions.
    fn add(&self, uri: &str, session: Uuid, peer: &Peer<RoleServer>) -> Result<(), ErrorData> {
        let mut all = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let count = all.values().flatten().filter(|(subscriber, _)| *subscriber == session).count();
        if count >= limits::MCP_SERVED_CONVERSATIONS {
            let problem =
                format!("this session has subscribed to {} resources already", limits::MCP_SERVED_CONVERSATIONS);
            return Err(ErrorData::invalid_request(problem, None));
        }
        let subscribers = all.entry(uri.to_owned()).or_default();
        if !subscribers.iter().any(|(subscriber, _)| *subscriber == session) {
            subscribers.push((session, peer.clone()));
        }
        Ok(())
    }

    /// Removes the subscription of a session to one URI; all its subscriptions for `None`.
    pub(super) fn remove(&self, session: Uuid, uri: Option<&str>) {
        let mut all = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        all.retain(|subscribed, subscribers| {
            subscribers.retain(|(subscriber, _)| *subscriber != session || uri.is_some_and(|uri| uri != subscribed));
            !subscribers.is_empty()
        });
    }

    fn subscribers(&self, uri: &str) -> Vec<Peer<RoleServer>> {
        let all = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        all.get(uri).into_iter().flatten().map(|(_, peer)| peer.clone()).collect()
    }
}

impl Session {
    /// Subscribes to a resource.
    ///
    /// # Errors
    /// This session may not read it, or has too many subscriptions.
    pub(super) fn subscribe_to(&self, uri: &str, context: &RequestContext<RoleServer>) -> Result<(), ErrorData> {
        if !self.may_read(uri) {
            return Err(super::handler::resource_not_found(uri));
        }
        self.shared.subscriptions.add(uri, self.id, &context.peer)
    }

    /// Notifies after a turn: subscribers of the transcript that it has changed, and the caller of its events, from the log level on that
    /// the caller set. Notifications that cannot be sent are dropped.
    pub(super) async fn notify_after_turn(&self, conversation: &ConversationId, context: &RequestContext<RoleServer>) {
        let cx = CallContext::new(self.shared.assistant.clock().clone(), limits::CHANNEL_SEND_TIMEOUT);
        let uri = transcript::uri(conversation);
        for peer in self.shared.subscriptions.subscribers(&uri) {
            let update = ResourceUpdatedNotificationParam::new(&*uri);
            let _ = cx.wait(peer.notify_resource_updated(update)).await;
        }
        let wanted = if is_sessionless_revision(context) { context.meta.log_level() } else { self.log_level() };
        let Some(lowest) = wanted else { return };
        let store = self.shared.assistant.store();
        let Ok(events) = store.latest_events(conversation, limits::MCP_SERVED_EVENTS).await else {
            return;
        };
        for event in events_of_last_turn(&events) {
            let entry = log_entry(&event.kind).filter(|(level, _)| severity(*level) >= severity(lowest));
            let Some((level, mut data)) = entry else {
                continue;
            };
            if let Some(data) = data.as_object_mut() {
                data.insert("conversation_id".to_owned(), conversation.as_str().into());
            }
            let message = LoggingMessageNotificationParam::new(level, data).with_logger("segue");
            if !matches!(cx.wait(context.peer.notify_logging_message(message)).await, Ok(Ok(()))) {
                return;
            }
        }
    }
}

/// The log message about an event. It contains names only: no values, no texts, no causes.
fn log_entry(event: &EventKind) -> Option<(LoggingLevel, Json)> {
    let (level, event, name) = match event {
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
    Some((level, json!({"event": event, "name": name})))
}

/// The order of levels (RFC 5424), lowest first.
fn severity(level: LoggingLevel) -> u8 {
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
