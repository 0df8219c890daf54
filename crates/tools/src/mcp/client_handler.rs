//! The client side of a session: it handles notifications (list changes, progress) and requests of the server.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rmcp::{
    ClientHandler, ErrorData, RoleClient,
    model::{
        ClientCapabilities, ClientConfig, ElicitRequestParams, ElicitResult, ElicitationCreateRequestMethod,
        Implementation, ProgressNotificationParam, ProgressToken, ProtocolVersion,
    },
    service::{NotificationContext, RequestContext},
};
use tokio::sync::watch;

use super::elicitation::{AllowedRequests, InteractiveCalls};
use crate::Progress;
use segue_base::{clock::Clock, limits};

type Report = Arc<dyn Fn(Progress) + Send + Sync>;

/// The receiver of progress per call, and the time of its last notification.
type Reports = HashMap<ProgressToken, (Report, Option<Duration>)>;

/// The receivers of progress of running calls.
#[derive(Clone, Default)]
pub(super) struct ProgressRegistry(Arc<Mutex<Reports>>);

impl ProgressRegistry {
    /// Sends the progress of one call to `report` until the returned guard is dropped.
    pub(super) fn watch(&self, token: ProgressToken, report: Report) -> Watching {
        self.lock().insert(token.clone(), (report, None));
        Watching { watchers: self.clone(), token }
    }

    fn lock(&self) -> MutexGuard<'_, Reports> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The receiver for this call; `None` if the call ended or was notified a moment ago.
    fn due(&self, token: &ProgressToken, now: Duration) -> Option<Report> {
        let mut watchers = self.lock();
        let (report, last) = watchers.get_mut(token)?;
        if last.is_some_and(|last| now.saturating_sub(last) < limits::MCP_PROGRESS) {
            return None;
        }
        *last = Some(now);
        Some(report.clone())
    }
}

/// Ends the progress reports of one call when dropped.
pub(super) struct Watching {
    watchers: ProgressRegistry,
    token: ProgressToken,
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.watchers.lock().remove(&self.token);
    }
}

/// The client handler of a session.
#[derive(Clone)]
pub(super) struct McpClientHandler {
    /// The server's name.
    pub(super) server: Arc<str>,
    /// The version of the tool list, increased when the server reports a change.
    pub(super) version: watch::Sender<u64>,
    pub(super) watchers: ProgressRegistry,
    /// The running calls that accept requests of the server.
    pub(super) askable: InteractiveCalls,
    pub(super) allowed: AllowedRequests,
    pub(super) clock: Arc<dyn Clock>,
}

impl McpClientHandler {
    /// The list may have changed.
    pub(super) fn changed(&self) {
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
            // The newest protocol version with the handshake; servers without it are asked for their versions instead.
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    // The library returns an empty list by default; here an undeclared capability is an error.
    #[allow(deprecated)] // the standard retires roots; servers still ask
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
        let answer = self.askable.form(&self.server, &params);
        serde_json::from_value(answer).map_err(|error| ErrorData::internal_error(error.to_string(), None))
    }

    #[allow(deprecated)] // the standard retires sampling; servers still ask
    async fn create_message(
        &self,
        params: rmcp::model::CreateMessageRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<rmcp::model::CreateMessageResult, ErrorData> {
        if !self.allowed.sampling {
            return Err(ErrorData::method_not_found::<rmcp::model::CreateMessageRequestMethod>());
        }
        let params = serde_json::to_value(params).unwrap_or_default();
        let answer = self.askable.sample(&self.server, params).await?;
        serde_json::from_value(answer).map_err(|error| ErrorData::internal_error(error.to_string(), None))
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changed();
    }

    async fn on_progress(&self, news: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        if let Some(report) = self.watchers.due(&news.progress_token, self.clock.elapsed()) {
            report(Progress { done: news.progress, total: news.total, message: news.message });
        }
    }
}
