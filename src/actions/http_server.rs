//! The client of an action server at a URL.

use futures::future::{BoxFuture, ready};
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

impl ActionServer for HttpActionServer {
    fn run<'a>(&'a self, request: ActionRequest<'a>, cx: &'a CallContext) -> BoxFuture<'a, ActionOutcome> {
        Box::pin(self.endpoint.run(&self.url, request, cx))
    }
    fn tracker_events(&self) -> TrackerEvents {
        self.endpoint.tracker_events
    }
    fn list_actions<'a>(&'a self, cx: &'a CallContext) -> BoxFuture<'a, Result<Vec<String>, String>> {
        Box::pin(self.endpoint.list_actions(&self.url, cx))
    }
    fn status(&self) -> Health {
        self.endpoint.status()
    }
    fn close<'a>(&'a self, _: &'a CallContext) -> BoxFuture<'a, ()> {
        Box::pin(ready(()))
    }
}
