//! The words that agents of different houses speak with one another: A2A, in both generations that are in use.
//!
//! *For*: reading and writing the protocol's objects, and asking a remote agent. *Entries*: [`Remote`] is one remote agent,
//! reached as its card says; [`Dialect`] is a way of writing, and `reading` and `writing` turn JSON into the objects of
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
use segue_base::cx::Cx;
use serde::{Deserialize, Serialize};

use self::model::{Message, Task, Update};
pub use self::{
    card::{Binding, Card, Interface, WELL_KNOWN},
    dialect::{Dialect, Generation, Operation, codes},
    events::{EventReader, Line},
    fault::{Fault, FaultKind},
    remote::{Access, CardPlace, Remote, Surroundings},
};
pub use segue_base::health::Health;

/// What is asked of a remote agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outgoing {
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
pub enum First {
    /// A message: nothing is under way.
    Message(Message),
    /// A task, as it stood when it was told.
    Task(Task),
}

/// A first answer, and the stream that goes on after it where there is one.
pub struct Accepted {
    /// The first answer.
    pub first: First,
    /// What follows on the same stream. Lost with the process; the task is then asked for.
    pub live: Option<EventReader>,
}

impl std::fmt::Debug for Accepted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Accepted").field("first", &self.first).field("live", &self.live.is_some()).finish()
    }
}

/// Hears what a task says while it works.
pub trait Listener: Send {
    /// A text that came with a state that is not the last. *Cancellation*: the text may be lost.
    fn said<'a>(&'a mut self, text: &'a str) -> BoxFuture<'a, ()>;
}

/// A remote agent that can be given work. Ours is [`Remote`]; the runtime puts a recording one before it.
pub trait Peer: Send + Sync {
    /// Sends a message; ends with the first answer. *Cancellation*: whether the other side took it is not known.
    ///
    /// # Errors
    /// [`Fault`]; [`Fault::arrival`] tells whether the message may have been taken.
    fn send<'a>(&'a self, outgoing: &'a Outgoing, cx: &'a Cx) -> BoxFuture<'a, Result<Accepted, Fault>>;
    /// Follows a task until it ends or waits for somebody. *Cancellation*: the task goes on at the other side.
    ///
    /// # Errors
    /// [`Fault`] when it cannot be followed, or did not end in time.
    fn follow<'a>(
        &'a self,
        accepted: Accepted,
        listener: &'a mut dyn Listener,
        cx: &'a Cx,
    ) -> BoxFuture<'a, Result<Task, Fault>>;
    /// Asks to stop a task. What comes of it is not waited for.
    fn cancel<'a>(&'a self, task: &'a str, cx: &'a Cx) -> BoxFuture<'a, Result<(), Fault>>;
}

impl First {
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
