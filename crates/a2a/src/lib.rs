//! The words that agents of different houses speak with one another: A2A, in both generations that are in use.
//!
//! *For*: reading and writing the protocol's objects, and asking a remote agent. *Entries*: [`Remote`] is one remote agent,
//! reached as its card says; [`A2aWireFormat`] is a way of writing, and `reading` and `writing` turn JSON into the objects of
//! [`model`] and back, for the side that asks and for the side that answers. *Never*: this room decides what an answer means
//! for a conversation, repeats a message by itself, or fetches an address that stands in an answer.

mod card;
mod dialect;
mod events;
mod fault;
mod follow;
#[cfg(feature = "grpc")]
mod grpc;
pub mod model;
pub mod reading;
mod remote;
mod wire;
pub mod writing;

use futures::future::BoxFuture;
use segue_base::context::CallContext;
use serde::{Deserialize, Serialize};

use self::model::{Message, Task, Update};
pub use self::{
    card::{AgentCard, AgentInterface, ProtocolBinding, WELL_KNOWN},
    dialect::{A2aVersion, A2aWireFormat, Operation, codes},
    events::{StreamItem, TaskEventStream},
    fault::{A2aError, A2aErrorKind},
    remote::{A2aEnvironment, Access, CardLocation, Remote},
};
pub use segue_base::health::Health;

/// What is asked of a remote agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SendRequest {
    /// The message; its id is the key by which the other side may recognise a repetition.
    pub message: Message,
    /// Where the other side may report on a task that outlasts the turn.
    pub report_to: Option<String>,
}

/// The path of our server under which an agent reports on tasks of a conversation.
pub fn report_path(agent: &str, conversation: &str) -> String {
    format!("{REPORTS}/{}/{}", wire::path_part(agent), wire::path_part(conversation))
}

/// The beginning of such paths.
pub const REPORTS: &str = "/a2a-reports";

/// The first answer to a message: from here on the task is known by its id, or there is none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FirstResponse {
    /// A message: nothing is under way.
    Message(Message),
    /// A task, as it stood when it was told.
    Task(Task),
}

/// A first answer, and the stream that goes on after it where there is one.
pub struct SendReceipt {
    /// The first answer.
    pub first: FirstResponse,
    /// What follows on the same stream. Lost with the process; the task is then asked for.
    pub live: Option<TaskEventStream>,
}

impl std::fmt::Debug for SendReceipt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Accepted").field("first", &self.first).field("live", &self.live.is_some()).finish()
    }
}

/// Hears what a task says while it works.
pub trait TaskListener: Send {
    /// A text that came with a state that is not the last. *Cancellation*: the text may be lost.
    fn said<'a>(&'a mut self, text: &'a str) -> BoxFuture<'a, ()>;
}

/// A remote agent that can be given work. Ours is [`Remote`]; the runtime puts a recording one before it.
pub trait A2aClient: Send + Sync {
    /// Sends a message; ends with the first answer. *Cancellation*: whether the other side took it is not known.
    ///
    /// # Errors
    /// [`A2aError`]; [`A2aError::arrival`] tells whether the message may have been taken.
    fn send<'a>(
        &'a self,
        outgoing: &'a SendRequest,
        cx: &'a CallContext,
    ) -> BoxFuture<'a, Result<SendReceipt, A2aError>>;
    /// Follows a task until it ends or waits for somebody. *Cancellation*: the task goes on at the other side.
    ///
    /// # Errors
    /// [`A2aError`] when it cannot be followed, or did not end in time.
    fn follow<'a>(
        &'a self,
        accepted: SendReceipt,
        listener: &'a mut dyn TaskListener,
        cx: &'a CallContext,
    ) -> BoxFuture<'a, Result<Task, A2aError>>;
    /// Asks to stop a task. What comes of it is not waited for.
    fn cancel<'a>(&'a self, task: &'a str, cx: &'a CallContext) -> BoxFuture<'a, Result<(), A2aError>>;
}

impl FirstResponse {
    /// What came first, of the answer to a message without a stream or of the first event of one.
    pub fn of(update: Update) -> Option<Self> {
        match update {
            Update::Message(message) => Some(Self::Message(message)),
            Update::Task(task) => Some(Self::Task(task)),
            Update::Status(status) => Some(Self::Task(Task::begun(status))),
            Update::Artifact(change) => {
                let mut task = Task::named(&change.task_id, &change.context_id);
                task.take(Update::Artifact(change));
                Some(Self::Task(task))
            }
        }
    }
}

#[cfg(test)]
mod tests;
