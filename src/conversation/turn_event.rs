//! The events of a turn: the one vocabulary in which channels, readers of a conversation and tests see what happens.

use std::sync::Arc;

use segue_engine::{
    ids::{AgentName, FlowId, SlotName},
    time::Timestamp,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::{BotKind, Reply};
use crate::store::TurnNumber;

/// The kind of a streamed message, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplyKind {
    /// Not known before [`TurnEvent::MessageEnd`].
    Pending,
    /// The kind.
    #[serde(untagged)]
    Known(BotKind),
}

/// What a flow does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FlowPhase {
    /// It started.
    Started,
    /// Another flow interrupted it.
    Interrupted,
    /// It goes on after an interruption.
    Resumed,
    /// It came to its end.
    Completed,
    /// It was cancelled, or failed.
    Cancelled,
}

/// What an agent does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AgentPhase {
    /// It started a task.
    Started,
    /// The user changed the subject while it waited.
    Interrupted,
    /// It goes on after an interruption.
    Resumed,
    /// It completed its task.
    Completed,
    /// Its task ended without a result.
    Cancelled,
}

/// What a call of a tool does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ToolPhase {
    /// It begins.
    Started,
    /// It was carried out.
    Done,
    /// It was not carried out, or only in part.
    Failed,
    /// Whether it was carried out is not known.
    Unknown,
    /// It goes on elsewhere; its result comes later.
    Pending,
}

/// What the assistant waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum QuestionKind {
    /// The value of a slot.
    Slot,
    /// Whether an agent may make calls that change something.
    Confirmation,
    /// The answer to an agent, in any words.
    Text,
}

/// What happens in a turn, as channels and readers of a conversation see it: first [`Started`](Self::Started), then messages and what
/// flows, agents and tools do, then [`Error`](Self::Error)s and [`Finished`](Self::Finished).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum TurnEvent {
    /// The message was accepted. Readers of a conversation get it when the turn begins.
    Started {
        /// The number of the turn.
        turn: TurnNumber,
        /// The time of the event.
        at: Timestamp,
    },
    /// What the user wrote. Only readers of a conversation get it: the sink of the turn belongs to the sender of the message.
    UserMessage {
        /// The number of the turn.
        turn: TurnNumber,
        /// The channel's id of the message; may be empty.
        message_id: Arc<str>,
        /// The text, or the payload of a button.
        text: Arc<str>,
    },
    /// A streamed message begins.
    MessageStart {
        /// Its id; the events that follow name it.
        id: Arc<str>,
        /// Its source: `agent:<name>` or `response:<name>`.
        source: Arc<str>,
        /// Its kind, if known.
        kind: ReplyKind,
    },
    /// More text of a streamed message. Provisional until [`TurnEvent::MessageEnd`].
    MessageDelta {
        /// The id of the message.
        id: Arc<str>,
        /// The text to add.
        text: Arc<str>,
    },
    /// A streamed message is complete. `message` is authoritative; it may differ from the streamed text.
    MessageEnd {
        /// The id of the message.
        id: Arc<str>,
        /// The complete message. Boxed, so that the far more frequent deltas stay small.
        message: Box<Reply>,
        /// Its kind.
        kind: BotKind,
        /// Whether it was cut off, by an interruption or a failure.
        interrupted: bool,
    },
    /// A message that was not streamed.
    Message {
        /// Its id.
        id: Arc<str>,
        /// The complete message.
        message: Box<Reply>,
        /// Its kind.
        kind: BotKind,
    },
    /// What a flow of the project does. Patterns have no such events.
    Flow {
        /// The flow.
        flow: FlowId,
        /// What it does.
        phase: FlowPhase,
    },
    /// What an agent does.
    Agent {
        /// The agent.
        agent: AgentName,
        /// What it does.
        phase: AgentPhase,
    },
    /// What a call of a tool does, while the turn runs. Turns that are read from the store have no such events.
    Tool {
        /// Distinguishes the call from the others of the turn.
        id: Arc<str>,
        /// The tool.
        tool: Arc<str>,
        /// The agent that calls it; `None` for a step of a flow.
        agent: Option<AgentName>,
        /// What the call does.
        phase: ToolPhase,
    },
    /// New values of slots with `public: true`.
    Slots {
        /// The values by slot; null for a slot that has none.
        values: Map<String, Json>,
    },
    /// What the assistant waits for at the end of the turn. Turns that are read from the store have no such event.
    Question {
        /// What it waits for.
        kind: QuestionKind,
        /// The slot, if it waits for the value of one.
        slot: Option<SlotName>,
        /// The JSON schema of the answer.
        schema: Json,
    },
    /// A failure in the turn. It has no cause, which is for operators only.
    Error {
        /// The error code; `segue explain` shows its page.
        code: Arc<str>,
        /// What the caller may do.
        message: Arc<str>,
    },
    /// The turn is over. Nothing follows.
    Finished {
        /// The number of the turn.
        turn: TurnNumber,
        /// Whether the session has ended.
        session_ended: bool,
    },
}

impl TurnEvent {
    /// The id of the message that the event belongs to, if any.
    pub fn message_id(&self) -> Option<&Arc<str>> {
        match self {
            Self::MessageStart { id, .. }
            | Self::MessageDelta { id, .. }
            | Self::MessageEnd { id, .. }
            | Self::Message { id, .. } => Some(id),
            _ => None,
        }
    }
    /// The id and the content, if the event completes a message.
    pub fn complete_message(&self) -> Option<(&Arc<str>, &Reply)> {
        match self {
            Self::MessageEnd { id, message, .. } | Self::Message { id, message, .. } => Some((id, message)),
            _ => None,
        }
    }
}
