//! Custom actions that run elsewhere: the client of action servers.
//!
//! *For*: handing an action step to a server over HTTP or gRPC, or to Python code that this program serves itself. *Entry*: [`open`],
//! then [`ActionServer::run`]. *Never*: nothing is tried twice here (the journal knows what may be repeated), a failure is never
//! taken for success, and no event is applied or rendered: what the server says goes to the dialogue engine as it came.

mod answer;
mod body;
mod client;
#[cfg(feature = "grpc")]
mod grpc;
mod module;
mod wire;

use std::{path::PathBuf, sync::Arc};

use futures::future::BoxFuture;
use segue_engine::{
    conversation::ActionOutcome,
    ids::{ActionName, ConversationId},
    project::{ActionEndpointDef, Project, TrackerEvents},
};
use serde_json::Value as Json;

pub use self::module::python_trouble;
use self::{client::HttpServer, module::ModuleServer, wire::Wire};
pub use crate::health::Health;
use crate::{clock::Clock, context::CallContext, http::HttpClients};

/// One action to run.
#[derive(Clone, Copy, Debug)]
pub struct ActionRequest<'a> {
    /// Its name.
    pub action: &'a ActionName,
    /// The conversation.
    pub conversation: &'a ConversationId,
    /// The state of the conversation in the tracker format.
    pub tracker: &'a Json,
    /// A key that is the same when the same step is tried again.
    pub idempotency_key: &'a str,
}

/// Somebody who runs custom actions.
pub trait ActionServer: Send + Sync {
    /// Runs one. Never an error: the flow must be told. *Cancellation*: dropping the future gives the call up; whether it ran is
    /// then unknown, and the journal says so for a `write`.
    fn run<'a>(&'a self, request: ActionRequest<'a>, cx: &'a CallContext) -> BoxFuture<'a, ActionOutcome>;
    /// How much of a conversation it wants to see.
    fn wants(&self) -> TrackerEvents {
        TrackerEvents::All
    }
    /// The actions it has, asked now.
    ///
    /// # Errors
    /// It does not answer; the text is for operators.
    fn names<'a>(&'a self, cx: &'a CallContext) -> BoxFuture<'a, Result<Vec<String>, String>>;
    /// Whether it answers, for `/health`.
    fn status(&self) -> Health;
    /// Closes it; waits at most as long as the context allows.
    fn close<'a>(&'a self, cx: &'a CallContext) -> BoxFuture<'a, ()>;
}

/// What an action server needs of the process around it.
#[derive(Clone)]
pub struct ActionEnvironment {
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
    /// The pooled HTTP client.
    pub http: HttpClients,
    /// The project's folder: modules are looked for there, and certificates.
    pub directory: PathBuf,
    /// The environment of this process; a module of actions gets all of it.
    pub environment: Arc<[(String, String)]>,
}

/// The server that `action_endpoint` names. Nothing is asked or started before somebody needs it.
pub fn open(def: &ActionEndpointDef, project: &Project, around: ActionEnvironment) -> Arc<dyn ActionServer> {
    let wire = Wire::new(def, project, &around);
    match (&def.url, &def.module) {
        (None, Some(module)) => Arc::new(ModuleServer::new(module, wire, around)),
        (url, _) => Arc::new(HttpServer::new(url.as_deref().unwrap_or_default(), wire)),
    }
}

#[cfg(test)]
mod tests;
