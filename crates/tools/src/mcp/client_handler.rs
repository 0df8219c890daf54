//! The client handler of a session: it handles notifications (list changes, progress) and requests of the server.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rmcp::{
    ClientHandler, ErrorData, RoleClient,
    model::{
        ClientCapabilities, ClientConfig, CustomRequest, CustomResult, ElicitRequestParams, ElicitResult,
        ElicitationCreateRequestMethod, ErrorCode, Implementation, ProgressNotificationParam, ProgressToken,
        ProtocolVersion,
    },
    service::{NotificationContext, RequestContext},
};
use tokio::sync::watch;

use super::elicitation::{AllowedRequests, CallsInWork};
use crate::Progress;
use segue_base::{clock::Clock, limits};

/// Receives the progress of a call.
type ProgressSink = Arc<dyn Fn(Progress) + Send + Sync>;

/// Per call: the receiver of its progress, and the time of the last notification that was forwarded.
type ProgressSinks = HashMap<ProgressToken, (ProgressSink, Option<Duration>)>;

/// The receivers of progress of running calls.
#[derive(Clone, Default)]
pub(super) struct ProgressRegistry(Arc<Mutex<ProgressSinks>>);

impl ProgressRegistry {
    /// Forwards the progress of one call to `sink` until the returned guard is dropped.
    pub(super) fn register(&self, token: ProgressToken, sink: ProgressSink) -> ProgressGuard {
        self.lock().insert(token.clone(), (sink, None));
        ProgressGuard { registry: self.clone(), token }
    }

    fn lock(&self) -> MutexGuard<'_, ProgressSinks> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The receiver for this call; `None` if the call ended, or if less than [`limits::MCP_PROGRESS`] passed since the last
    /// forwarded notification.
    fn sink_for(&self, token: &ProgressToken, now: Duration) -> Option<ProgressSink> {
        let mut sinks = self.lock();
        let (sink, last_sent) = sinks.get_mut(token)?;
        if last_sent.is_some_and(|last_sent| now.saturating_sub(last_sent) < limits::MCP_PROGRESS) {
            return None;
        }
        *last_sent = Some(now);
        Some(sink.clone())
    }
}

/// Ends the forwarding of progress of one call when dropped.
pub(super) struct ProgressGuard {
    registry: ProgressRegistry,
    token: ProgressToken,
}

impl Drop for ProgressGuard {
    fn drop(&mut self) {
        self.registry.lock().remove(&self.token);
    }
}

/// The client handler of one session; the sessions of one server share everything but the calls.
#[derive(Clone)]
pub(super) struct McpClientHandler {
    /// The server's name.
    pub(super) server: Arc<str>,
    /// The version of the tool list, increased when the server reports a change.
    pub(super) version: watch::Sender<u64>,
    pub(super) progress: ProgressRegistry,
    /// The calls of this session that the server may be working on.
    pub(super) calls: CallsInWork,
    pub(super) allowed: AllowedRequests,
    pub(super) clock: Arc<dyn Clock>,
}

impl McpClientHandler {
    /// The handler of a new session.
    pub(super) fn for_session(&self) -> Self {
        Self { calls: CallsInWork::default(), ..self.clone() }
    }

    /// Marks the tool list as changed.
    pub(super) fn list_changed(&self) {
        self.version.send_modify(|version| *version += 1);
    }
}

impl ClientHandler for McpClientHandler {
    fn get_info(&self) -> ClientConfig {
        // Capabilities that the entry of the server does not allow are not declared; roots never are.
        let mut capabilities = ClientCapabilities::default();
        if self.allowed.elicitation {
            let forms = serde_json::json!({"form": {}});
            capabilities.elicitation = serde_json::from_value(forms).ok();
        }
        if self.allowed.sampling {
            capabilities.sampling = serde_json::from_value(serde_json::json!({})).ok();
        }
        ClientConfig::new(capabilities, Implementation::new("segue", env!("CARGO_PKG_VERSION")))
            // The newest protocol version with the `initialize` handshake; servers without it are sent `server/discover`.
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    // The library returns an empty list by default; here an undeclared capability is an error.
    #[allow(deprecated)] // the newest protocol version deprecates roots; servers still request them
    async fn list_roots(&self, _: RequestContext<RoleClient>) -> Result<rmcp::model::ListRootsResult, ErrorData> {
        Err(ErrorData::method_not_found::<rmcp::model::ListRootsRequestMethod>())
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        if !self.allowed.elicitation {
            return Err(ErrorData::method_not_found::<ElicitationCreateRequestMethod>());
        }
        let params = serde_json::to_value(request).unwrap_or_default();
        let result = self.calls.elicit(&self.server, &params);
        serde_json::from_value(result).map_err(|error| ErrorData::internal_error(error.to_string(), None))
    }

    #[allow(deprecated)] // the newest protocol version deprecates sampling; servers still request it
    async fn create_message(
        &self,
        params: rmcp::model::CreateMessageRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<rmcp::model::CreateMessageResult, ErrorData> {
        if !self.allowed.sampling {
            return Err(ErrorData::method_not_found::<rmcp::model::CreateMessageRequestMethod>());
        }
        let params = serde_json::to_value(params).unwrap_or_default();
        let result = self.calls.sample(&self.server, params).await?;
        serde_json::from_value(result).map_err(|error| ErrorData::internal_error(error.to_string(), None))
    }

    // Requests of these methods that do not have the form that the library knows, such as a form with an unusual schema.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _: RequestContext<RoleClient>,
    ) -> Result<CustomResult, ErrorData> {
        let CustomRequest { method, params, .. } = request;
        match method.as_str() {
            "elicitation/create" if self.allowed.elicitation => {
                Ok(CustomResult(self.calls.elicit(&self.server, &params.unwrap_or_default())))
            }
            "sampling/createMessage" if self.allowed.sampling => {
                Ok(CustomResult(self.calls.sample(&self.server, params.unwrap_or_default()).await?))
            }
            _ => Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method, None)),
        }
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.list_changed();
    }

    async fn on_progress(&self, notification: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        if let Some(sink) = self.progress.sink_for(&notification.progress_token, self.clock.elapsed()) {
            sink(Progress { current: notification.progress, total: notification.total, message: notification.message });
        }
    }
}
