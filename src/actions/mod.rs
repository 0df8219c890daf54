//! The client of action servers, which run custom actions over HTTP or gRPC. It can also serve a Python module of actions itself.
//!
//! [`open`] creates the client, [`ActionServer::run`] runs an action. The client does not retry; the journal decides what may be
//! repeated. A failure is never treated as success. Events of the server are passed to the dialogue engine unchanged.

#[cfg(feature = "grpc")]
mod grpc;
mod http;
mod http_server;
mod python;
mod response;
mod webhook_body;

use std::{path::PathBuf, sync::Arc};

use async_trait::async_trait;
use segue_engine::{
    conversation::ActionOutcome,
    ids::{ActionName, ConversationId},
    project::{ActionEndpointDef, Project, TrackerEvents},
};
use serde_json::Value as Json;

pub use self::python::check_python;
use self::{http::ActionEndpoint, http_server::HttpActionServer, python::PythonActionServer};
pub use crate::health::Health;
use crate::{clock::Clock, context::CallContext, http::HttpClients};

/// One action to run.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ActionRequest<'a> {
    /// Its name.
    pub action: &'a ActionName,
    /// The conversation.
    pub conversation: &'a ConversationId,
    /// The state of the conversation in the tracker format.
    pub tracker: &'a Json,
    /// The idempotency key: the same when the same step is tried again.
    pub idempotency_key: &'a str,
}

impl<'a> ActionRequest<'a> {
    /// A request to run an action once.
    pub fn new(
        action: &'a ActionName,
        conversation: &'a ConversationId,
        tracker: &'a Json,
        idempotency_key: &'a str,
    ) -> Self {
        Self { action, conversation, tracker, idempotency_key }
    }
}

/// Runs custom actions.
#[async_trait]
pub trait ActionServer: Send + Sync {
    /// Runs one action. A failure is an [`ActionOutcome`], because the flow handles it. *Cancellation*: dropping the future abandons the
    /// call; whether the action ran is then not known, and the journal reports that for a `write`.
    async fn run(&self, request: ActionRequest<'_>, cx: &CallContext) -> ActionOutcome;
    /// Which events of the conversation the server gets.
    fn tracker_events(&self) -> TrackerEvents {
        TrackerEvents::All
    }
    /// Requests the names of the server's actions.
    ///
    /// # Errors
    /// The server does not respond; the text is for operators.
    async fn list_actions(&self, cx: &CallContext) -> Result<Vec<String>, String>;
    /// Whether the server is reachable, for `/health`.
    fn status(&self) -> Health;
    /// Closes the client; waits at most until the deadline of `cx`.
    async fn close(&self, cx: &CallContext);
}

/// The services and settings of the process that the client uses.
#[derive(Clone)]
pub struct ActionEnvironment {
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The pooled HTTP client.
    pub http: HttpClients,
    /// The folder of the project: modules and certificates are found there.
    pub directory: PathBuf,
    /// The environment variables of this process; a Python module of actions gets all of them.
    pub environment: Arc<[(String, String)]>,
}

/// The server of `action_endpoint`. It is contacted or started at the first use.
pub fn open(def: &ActionEndpointDef, project: &Project, process: ActionEnvironment) -> Arc<dyn ActionServer> {
    let endpoint = ActionEndpoint::new(def, project, &process);
    match (&def.url, &def.module) {
        (None, Some(module)) => Arc::new(PythonActionServer::new(module, endpoint, process)),
        (url, _) => Arc::new(HttpActionServer::new(url.as_deref().unwrap_or_default(), endpoint)),
    }
}

#[cfg(test)]
mod tests;
