//! The A2A protocol (<https://a2a-protocol.org>) in the versions 0.3 and 1.0: its objects, their JSON, and a client.
//!
//! [`RemoteAgent`] is a client for one remote agent, reached as its agent card says. [`A2aWireFormat`] names the JSON
//! form of a message; [`decode`] and [`encode`] convert between JSON and the objects of [`model`], for clients and
//! servers. This package does not interpret answers for a conversation, never resends a message by itself, and never
//! fetches an address from an answer.

mod card;
mod error;
mod events;
mod version;

mod client;
pub mod decode;
pub mod encode;
mod follow;
#[cfg(feature = "grpc")]
mod grpc;
pub mod model;
mod transport;

use futures::future::BoxFuture;
use segue_base::context::CallContext;
use serde::{Deserialize, Serialize};

use self::model::{Message, Task, Update};
pub use self::{
    card::{AgentCard, AgentInterface, ProtocolBinding, WELL_KNOWN},
    client::{A2aEnvironment, CardLocation, RemoteAgent, RemoteAgentConfig},
    error::{A2aError, A2aErrorKind},
    events::{StreamItem, TaskEventStream},
    version::{A2aVersion, A2aWireFormat, Operation, codes},
};
pub use segue_base::health::Health;

/// A message to send to a remote agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SendRequest {
    /// The message. Its id lets the other side recognise a repetition.
    pub message: Message,
    /// The address for push notifications about a task that outlasts the turn.
    pub report_to: Option<String>,
}

/// The path of the server under which a remote agent sends push notifications about tasks of a conversation.
pub fn report_path(agent: &str, conversation: &str) -> String {
    format!("{REPORT_PATH_PREFIX}/{}/{}", transport::percent_encode(agent), transport::percent_encode(conversation))
}

/// The prefix of such paths.
pub const REPORT_PATH_PREFIX: &str = "/a2a-reports";

/// The first response to a message: a task with an id, or a message without a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FirstResponse {
    /// A message: the agent did not start a task.
    Message(Message),
    /// A task in its current state.
    Task(Task),
}

/// The first response to a message, and the rest of its stream, if any.
pub struct SendReceipt {
    /// The first response.
    pub first: FirstResponse,
    /// The rest of the stream. It ends with the process; after that the task is polled.
    pub live: Option<TaskEventStream>,
}

impl std::fmt::Debug for SendReceipt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SendReceipt").field("first", &self.first).field("live", &self.live.is_some()).finish()
    }
}

/// Receives status texts of a running task.
pub trait TaskListener: Send {
    /// Called with the text of a non-terminal state. Cancellation: the text may be lost.
    fn on_status_text<'a>(&'a mut self, text: &'a str) -> BoxFuture<'a, ()>;
}

/// A client for one remote agent: [`RemoteAgent`], or a wrapper that records its calls.
pub trait A2aClient: Send + Sync {
    /// Sends a message and returns the first response. Cancellation: it is unknown whether the message arrived.
    ///
    /// # Errors
    /// [`A2aError`]; [`A2aError::arrival`] says whether the message may have arrived.
    fn send<'a>(
        &'a self,
        outgoing: &'a SendRequest,
        cx: &'a CallContext,
    ) -> BoxFuture<'a, Result<SendReceipt, A2aError>>;
    /// Follows a task until it reaches a terminal or interrupted state. Cancellation: the task continues at the remote
    /// agent.
    ///
    /// # Errors
    /// [`A2aError`] if the task cannot be followed, or did not end in time.
    fn follow<'a>(
        &'a self,
        accepted: SendReceipt,
        listener: &'a mut dyn TaskListener,
        cx: &'a CallContext,
    ) -> BoxFuture<'a, Result<Task, A2aError>>;
    /// Requests the cancellation of a task, without waiting for its new state.
    ///
    /// # Errors
    /// [`A2aError`].
    fn cancel<'a>(&'a self, task: &'a str, cx: &'a CallContext) -> BoxFuture<'a, Result<(), A2aError>>;
}

impl FirstResponse {
    /// The first response in the answer to a message, or in the first event of its stream.
    pub fn from_update(update: Update) -> Option<Self> {
        match update {
            Update::Message(message) => Some(Self::Message(message)),
            Update::Task(task) => Some(Self::Task(task)),
            Update::Status(status) => Some(Self::Task(Task::from_status_update(status))),
            Update::Artifact(change) => {
                let mut task = Task::new(&change.task_id, &change.context_id);
                task.take(Update::Artifact(change));
                Some(Self::Task(task))
            }
        }
    }
}

#[cfg(test)]
mod tests;
