//! An action server somewhere: whoever runs it, we only ask.

use futures::future::{BoxFuture, ready};
use segue_engine::{conversation::ActionOutcome, project::TrackerEvents};

use super::{ActionRequest, ActionServer, Health, wire::Wire};
use crate::context::CallContext;

/// A server at an address.
pub(super) struct HttpServer {
    url: String,
    wire: Wire,
}

impl HttpServer {
    pub(super) fn new(url: &str, wire: Wire) -> Self {
        Self { url: url.to_owned(), wire }
    }
}

impl ActionServer for HttpServer {
    fn run<'a>(&'a self, request: ActionRequest<'a>, cx: &'a CallContext) -> BoxFuture<'a, ActionOutcome> {
        Box::pin(self.wire.run(&self.url, request, cx))
    }
    fn wants(&self) -> TrackerEvents {
        self.wire.wants
    }
    fn names<'a>(&'a self, cx: &'a CallContext) -> BoxFuture<'a, Result<Vec<String>, String>> {
        Box::pin(self.wire.names(&self.url, cx))
    }
    fn status(&self) -> Health {
        self.wire.status()
    }
    fn close<'a>(&'a self, _: &'a CallContext) -> BoxFuture<'a, ()> {
        Box::pin(ready(()))
    }
}
