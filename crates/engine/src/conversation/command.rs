//! Commands: what the understander decided the user wants.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::FilledBy;
use crate::ids::{AgentName, FlowId, SlotName};

/// One command. The JSON names follow the CALM format.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum Command {
    /// Begin or resume a flow.
    #[serde(rename = "start flow")]
    StartFlow {
        /// Which one.
        flow: FlowId,
    },
    /// Fill a slot.
    #[serde(rename = "set slot")]
    SetSlot {
        /// Which one.
        name: SlotName,
        /// With what; null empties it.
        value: Json,
        /// Who says so.
        extractor: FilledBy,
    },
    /// Change slots that were filled before; made by cleaning, never by a model.
    #[serde(rename = "correct slot")]
    CorrectSlots {
        /// The new values.
        corrected_slots: Vec<(SlotName, Json)>,
        /// Who says so.
        #[serde(default = "model")]
        extractor: FilledBy,
    },
    /// Stop the flow under way.
    #[serde(rename = "cancel flow")]
    CancelFlow,
    /// Ask which of several flows is meant.
    #[serde(rename = "clarify")]
    Clarify {
        /// The candidates.
        options: Vec<FlowId>,
    },
    /// Go on with the agent that waits.
    #[serde(rename = "continue agent")]
    ContinueAgent,
    /// Let an agent that completed begin anew.
    #[serde(rename = "restart agent")]
    RestartAgent {
        /// Which one.
        agent_id: AgentName,
    },
    /// Answer from knowledge.
    #[serde(rename = "knowledge")]
    Search,
    /// Small talk.
    #[serde(rename = "chitchat")]
    ChitChat,
    /// The user does not want to answer.
    #[serde(rename = "skip question")]
    SkipQuestion,
    /// Say it again.
    #[serde(rename = "repeat bot messages")]
    RepeatBotMessages,
    /// A human, please.
    #[serde(rename = "human handoff")]
    HumanHandoff,
    /// Nothing of it was understood.
    #[serde(rename = "cannot handle")]
    CannotHandle {
        /// Why: one of the reasons of the CALM format, or a text from cleaning.
        reason: String,
    },
    /// Something is wrong on our side, or the message itself is refused.
    #[serde(rename = "error")]
    Error {
        /// The kind: `rasa_internal_error_…`.
        error_type: String,
        /// Facts for the response.
        #[serde(default)]
        info: Map<String, Json>,
    },
    /// A flow on the stack changed under the user's feet.
    #[serde(rename = "handle code change")]
    CodeChange,
    /// A pattern started by a structured message, such as `/session_start` or `/restart`.
    #[serde(rename = "start pattern")]
    StartPattern {
        /// The pattern's flow id.
        flow: FlowId,
    },
    /// Nothing to do.
    #[serde(rename = "noop")]
    Noop,
}

fn model() -> FilledBy {
    FilledBy::Llm
}
