//! The brain: deterministic, without a wait, a clock or a file.
//!
//! Entry: [`advance`]. It takes the project, the conversation and one input, changes the conversation only by applying the
//! events that it also returns, and says in [`Next`] what the runtime must do now. The same arguments give the same answer,
//! byte for byte; so a stored conversation can be walked again from its inputs.

use serde::{Deserialize, Serialize};

use crate::{
    conversation::{
        ActionCall, ActionOutcome, AgentCall, AgentOutcome, Command, Event, ToolCallStep, ToolResult, UserMessage,
    },
    time::Timestamp,
};

/// One input of the brain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Input {
    /// When it came; recorded, and the time of every event that it causes.
    pub at: Timestamp,
    /// For choices among equals, such as variations of a response; recorded.
    pub seed: u64,
    /// What came.
    pub kind: InputKind,
}

/// What can come in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InputKind {
    /// A user wrote: a turn begins.
    Message(UserMessage),
    /// The answer to [`Next::Understand`].
    Understood(Vec<Command>),
    /// The answer to [`Next::Act`].
    Acted(ActionOutcome),
    /// The answer to [`Next::Tool`].
    Called(ToolResult),
    /// The answer to [`Next::Agent`].
    Agent(AgentOutcome),
    /// The turn's budget is spent: end it with one honest message.
    Exhausted {
        /// Which budget, for operators.
        budget: String,
    },
}

/// What the runtime must do now. Every answer comes back as the next [`Input`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Next {
    /// The turn is over; wait for the user.
    Listen,
    /// The turn is over and so is the session.
    EndSession,
    /// Find the commands in the newest user message.
    Understand,
    /// Run a custom action.
    Act(ActionCall),
    /// Call a tool.
    Tool(ToolCallStep),
    /// Run an agent.
    Agent(AgentCall),
}

/// What the brain answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Advance {
    /// What happened; already applied to the conversation.
    pub events: Vec<Event>,
    /// What to do now.
    pub next: Next,
    /// Why: every dropped command, every branch taken.
    pub why: Vec<Reason>,
}

/// One line of the record of why a turn went as it did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Reason {
    /// A command was dropped by cleaning.
    Dropped {
        /// The command.
        command: Command,
        /// The rule.
        rule: String,
    },
    /// A command was replaced by cleaning.
    Replaced {
        /// The command.
        command: Command,
        /// By what.
        by: Command,
        /// The rule.
        rule: String,
    },
    /// A branch was taken.
    Branch {
        /// The flow.
        flow: String,
        /// The step.
        step: String,
        /// The condition that held, `else`, or `none`.
        taken: String,
    },
    /// A condition could not be evaluated and counts as false.
    Condition {
        /// Its text.
        condition: String,
        /// What was the matter.
        trouble: String,
    },
    /// Anything else worth knowing.
    Note {
        /// In words.
        text: String,
    },
}

/// Stub.
pub fn advance(_: &crate::project::Project, _: &mut crate::conversation::Conversation, _: Input) -> Advance {
    Advance { events: vec![], next: Next::Listen, why: vec![] }
}
