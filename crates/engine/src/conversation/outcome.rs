//! What the dialogue engine asks to be done, and what came of it: the values that the journal records.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::{BotMessage, Event};
use crate::{
    ids::{ActionName, AgentName, FlowId, ServerName, SlotName, StepId, ToolName},
    time::Timestamp,
};

/// Run a custom action.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ActionCall {
    /// Its name.
    pub name: ActionName,
}

/// What an action did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ActionOutcome {
    /// It ran: bot messages first, then its events, as the runtime read them.
    Done {
        /// Events to apply, in order.
        events: Vec<Event>,
    },
    /// An action server ran it and answered in the tracker format.
    Answered(ActionAnswer),
    /// It refuses to run now; the flow goes on.
    Rejected {
        /// Why, for operators.
        reason: String,
    },
    /// It failed: the flow branches by `on_error`, or ends.
    Failed(StepError),
}

impl ActionOutcome {
    /// It failed, for reasons that have no code of their own, and did nothing.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::Failed(StepError::new("failed", message))
    }
}

/// What an action server answers, as it came: the dialogue engine makes messages and events of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ActionAnswer {
    /// Messages to the user, in order; they come before the events.
    #[serde(default)]
    pub responses: Vec<Map<String, Json>>,
    /// Events of the tracker format, in order.
    #[serde(default)]
    pub events: Vec<Map<String, Json>>,
}

/// Why a step failed: `context.error` in the conditions and texts that follow it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepError {
    /// Short and for branching: `timeout`, `unreachable`, `not_found`, `server_error`, `failed` and others.
    pub code: String,
    /// In words, for operators.
    pub message: String,
    /// Whether what the step asks for may have happened nevertheless.
    #[serde(default)]
    pub may_have_run: bool,
    /// Whether it is known that it failed.
    #[serde(default)]
    pub kind: ErrorKind,
}

/// What is known of a step that failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// It failed: the other side says so, or was never reached.
    #[default]
    Failed,
    /// Nobody knows what came of it: to try it again may do it twice.
    Unknown,
}

impl StepError {
    /// An error after which it is certain that nothing happened.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into(), may_have_run: false, kind: ErrorKind::Failed }
    }
    /// An error after which it is not known whether anything happened.
    pub fn in_doubt(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into(), may_have_run: true, kind: ErrorKind::Unknown }
    }
    /// An error that the other side reported; what had been done by then is done.
    pub fn reported(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Failed, ..Self::in_doubt(code, message) }
    }
}

/// An effect that the dialogue engine has asked for and that has not come back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "effect", rename_all = "snake_case")]
pub enum PendingEffect {
    /// A custom action.
    Action {
        /// Which.
        name: ActionName,
        /// What asked for it.
        asked_by: ActionOrigin,
    },
    /// The tool of a call step.
    Tool {
        /// The flow.
        flow_id: FlowId,
        /// The step.
        step_id: StepId,
    },
    /// An agent.
    Agent {
        /// The flow that called it.
        flow_id: FlowId,
        /// The step that called it.
        step_id: StepId,
        /// Which.
        agent_id: AgentName,
    },
    /// An answer from documents.
    Search,
}

/// What asked for a custom action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActionOrigin {
    /// A step of a flow.
    Step,
    /// A `followup` event.
    Followup,
    /// The beginning of a turn: it runs before the message is understood.
    TurnStart,
}

/// Call one MCP tool for a call step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlowToolCall {
    /// The server.
    pub server: ServerName,
    /// The tool.
    pub tool: ToolName,
    /// Its arguments.
    pub arguments: Map<String, Json>,
    /// The calling flow.
    pub flow_id: FlowId,
    /// The calling step.
    pub step_id: StepId,
}

/// What a tool of a call step gave.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolResult {
    /// It answered; the map `{content, structuredContent, isError, meta, text}` that output mappings see as `result`.
    Done {
        /// The result.
        result: Json,
    },
    /// It failed, or did not answer in time.
    Failed {
        /// Why, for operators; may begin with a code and a colon, as in `timeout: …`.
        reason: String,
    },
    /// It may have run; nobody knows.
    Unknown {
        /// Why, for operators.
        reason: String,
    },
    /// It did nothing, for it needs to know something of the user first.
    Wants {
        /// What it says, for operators.
        reason: String,
        /// The slots that answer it: asked for one after the other, then it is called again.
        slots: Vec<SlotName>,
    },
}

/// Answer the newest question from documents; what it is asked with is read from the conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SearchCall {
    /// The flow whose step asked.
    pub flow_id: FlowId,
    /// The time of the input that led here; dates in prompts show it.
    pub at: Timestamp,
}

/// What came of a search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SearchOutcome {
    /// Documents answer the question.
    Answered {
        /// The answer, complete, with where it comes from.
        message: Box<BotMessage>,
    },
    /// Nothing that was found answers it.
    NoAnswer {
        /// Why, for operators.
        reason: String,
    },
    /// The search failed.
    Failed {
        /// Why, for operators.
        reason: String,
        /// What the user saw of an answer that broke off.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        said: Option<Box<BotMessage>>,
    },
}

/// The two dialogue profiles of an agent; the step decides, not the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentKind {
    /// Works until it calls `task_completed`.
    Open,
    /// Fills slots until `exit_if` holds.
    Task,
}

/// Run an agent for one user message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentCall {
    /// The agent.
    pub agent: AgentName,
    /// Its profile here.
    pub kind: AgentKind,
    /// The calling flow.
    pub flow_id: FlowId,
    /// The calling step; its `exit_if` conditions are read from the project.
    pub step_id: StepId,
    /// The newest user message.
    pub user_message: Arc<str>,
    /// It goes on after an interruption.
    pub resumed: bool,
    /// What it had asked before the interruption.
    pub resumed_last_request: Option<String>,
    /// It had completed this task before.
    pub restarted: bool,
    /// What it left in its frame.
    pub metadata: Map<String, Json>,
    /// What the user said to the calls that were shown to them: yes, no, or something else (`None`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmed: Option<bool>,
    /// The time of the input that led here; dates in prompts show it.
    pub at: Timestamp,
}

impl AgentCall {
    /// What stays in the frame when nothing was done for this message. A call that waits goes on waiting, but not after a no.
    pub fn kept(&self) -> Map<String, Json> {
        let mut kept = self.metadata.clone();
        if self.confirmed == Some(false) {
            kept.shift_remove(HELD);
        }
        kept
    }
}

/// The key of an agent's metadata under which the calls stand that wait for the user's yes: a list of [`UnconfirmedCall`].
pub const HELD: &str = "held_calls";

/// A call that waits for the user's yes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UnconfirmedCall {
    /// The tool.
    pub tool: Arc<str>,
    /// Its arguments, exactly as they will be sent.
    pub arguments: Json,
}

impl UnconfirmedCall {
    /// The calls that wait in an agent's metadata.
    pub fn of(metadata: &Map<String, Json>) -> Vec<Self> {
        metadata.get(HELD).and_then(|held| serde_json::from_value(held.clone()).ok()).unwrap_or_default()
    }
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentStatus {
    /// It asked the user something.
    AwaitingUser,
    /// Its task is done.
    Finished,
    /// It gave the turn back and goes on by itself.
    Yielded,
    /// It gave up.
    Failed {
        /// A code that `segue explain` knows.
        code: String,
        /// Why, for operators.
        reason: String,
    },
    /// Somebody stopped it.
    Cancelled {
        /// Why, for operators.
        reason: String,
    },
}

/// What a run left behind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentOutcome {
    /// How it ended.
    pub status: AgentStatus,
    /// What happened meanwhile, in order: texts the user saw, slots, tool calls, exchanges.
    pub events: Vec<Event>,
    /// Results for programs.
    pub data: Json,
    /// What the agent wants to find again at its next turn; kept in its frame.
    pub metadata: Map<String, Json>,
}
