//! The client of an action server at a URL.

use async_trait::async_trait;
use segue_engine::{conversation::ActionOutcome, project::TrackerEvents};

use super::{ActionRequest, ActionServer, Health, http::ActionEndpoint};
use crate::context::CallContext;

/// An action server at a URL.
pub(super) struct HttpActionServer {
    url: String,
    endpoint: ActionEndpoint,
}

impl HttpActionServer {
    pub(super) fn new(url: &str, endpoint: ActionEndpoint) -> Self {
        Self { url: url.to_owned(), endpoint }
    }
}

#[async_trait]
impl ActionServer for HttpActionServer {
    async fn run(&self, request: ActionRequest<'_>, cx: &CallContext) -> ActionOutcome {
        self.endpoint.run(&self.url, request, cx).await
    }
    fn tracker_events(&self) -> TrackerEvents {
        self.endpoint.tracker_events
    }
    async fn list_actions(&self, cx: &CallContext) -> Result<Vec<String>, String> {
        self.endpoint.list_actions(&self.url, cx).await
    }
    fn status(&self) -> Health {
        self.endpoint.status()
    }
    async fn close(&self, _: &CallContext) {}
}
