//! Commands: the interpretation of a user message, as the command generator or a rule produced it.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::FilledBy;
use crate::ids::{AgentName, FlowId, SlotName};

/// A command. The JSON names follow the CALM format.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum Command {
    /// Start or resume a flow.
    #[serde(rename = "start flow")]
    StartFlow {
        /// The flow.
        flow: FlowId,
    },
    /// Set a slot.
    #[serde(rename = "set slot")]
    SetSlot {
        /// The slot.
        name: SlotName,
        /// The value; null empties the slot.
        value: Json,
        /// The source of the value.
        extractor: FilledBy,
    },
    /// Change slots that were filled before. Only command cleanup creates it, never a model.
    #[serde(rename = "correct slot")]
    CorrectSlots {
        /// The new values by slot.
        corrected_slots: Vec<(SlotName, Json)>,
        /// The source of the values.
        #[serde(default = "model")]
        extractor: FilledBy,
    },
    /// Cancel the active flow.
    #[serde(rename = "cancel flow")]
    CancelFlow,
    /// Ask which of several flows is meant.
    #[serde(rename = "clarify")]
    Clarify {
        /// The candidate flows.
        options: Vec<FlowId>,
    },
    /// Pass the message to the agent that waits for the user.
    #[serde(rename = "continue agent")]
    ContinueAgent,
    /// Run an agent again whose task has completed.
    #[serde(rename = "restart agent")]
    RestartAgent {
        /// The agent.
        agent_id: AgentName,
    },
    /// Answer from documents (enterprise search).
    #[serde(rename = "knowledge")]
    Search,
    /// Small talk.
    #[serde(rename = "chitchat")]
    ChitChat,
    /// The user does not want to answer.
    #[serde(rename = "skip question")]
    SkipQuestion,
    /// Repeat the last bot messages.
    #[serde(rename = "repeat bot messages")]
    RepeatBotMessages,
    /// Hand the conversation over to a human.
    #[serde(rename = "human handoff")]
    HumanHandoff,
    /// The message cannot be handled.
    #[serde(rename = "cannot handle")]
    CannotHandle {
        /// One of the reasons of the CALM format, or a text from command cleanup.
        reason: String,
    },
    /// An internal error, or a message that is refused.
    #[serde(rename = "error")]
    Error {
        /// The error type: `rasa_internal_error_…`.
        error_type: String,
        /// Values for the response.
        #[serde(default)]
        info: Map<String, Json>,
    },
    /// A flow on the stack was changed by a new version of the project.
    #[serde(rename = "handle code change")]
    CodeChange,
    /// Start a pattern; sent by structured messages such as `/session_start` or `/restart`.
    #[serde(rename = "start pattern")]
    StartPattern {
        /// The flow id of the pattern.
        flow: FlowId,
    },
    /// Do nothing.
    #[serde(rename = "noop")]
    Noop,
}

fn model() -> FilledBy {
    FilledBy::Llm
}
