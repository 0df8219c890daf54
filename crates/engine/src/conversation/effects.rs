//! Effects: what the dialogue engine requests from the runtime, and the outcomes that the effect journal records.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::{BotMessage, Event, Writes};
use crate::{
    ids::{ActionName, AgentName, FlowId, ServerName, SlotName, StepId, ToolName},
    time::Timestamp,
};

/// A request to run a custom action.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ActionCall {
    /// The action.
    pub name: ActionName,
}

/// The outcome of a custom action.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ActionOutcome {
    /// It completed. Bot messages come first, then the other events, as the runtime parsed them.
    Done {
        /// Events to apply, in order.
        events: Vec<Event>,
    },
    /// An action server ran it and responded in the tracker format.
    #[serde(rename = "Answered")]
    ServerResponse(ActionServerResponse),
    /// It rejected its execution; the flow continues.
    Rejected {
        /// The reason, for operators.
        reason: String,
    },
    /// It failed: the flow follows `on_error`, or ends.
    Failed(StepError),
}

impl ActionOutcome {
    /// A failure without a specific code and without side effects.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::Failed(StepError::new("failed", message))
    }
}

/// The unparsed response of an action server; the dialogue engine turns it into messages and events.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ActionServerResponse {
    /// Messages to the user, in order; they precede the events.
    #[serde(default)]
    pub responses: Vec<Map<String, Json>>,
    /// Events of the tracker format, in order.
    #[serde(default)]
    pub events: Vec<Map<String, Json>>,
}

/// The error of a step: `context.error` in later conditions and texts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepError {
    /// A short code for conditions: `timeout`, `unreachable`, `not_found`, `server_error`, `failed` and others.
    pub code: String,
    /// A description for operators.
    pub message: String,
    /// Whether the requested effect may have happened nevertheless.
    #[serde(default)]
    pub may_have_run: bool,
    /// Whether the failure is certain.
    #[serde(default)]
    pub kind: ErrorKind,
}

/// How certain a failure is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// It failed: the other side reported an error or was never reached.
    #[default]
    Failed,
    /// The outcome is not known; a retry may repeat the effect.
    Unknown,
    /// It failed after a part of its work was done; a retry repeats that part.
    PartlyDone,
}

impl StepError {
    /// An error of a step that certainly had no effect.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into(), may_have_run: false, kind: ErrorKind::Failed }
    }
    /// An error of a step that may have had an effect.
    pub fn in_doubt(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into(), may_have_run: true, kind: ErrorKind::Unknown }
    }
    /// An error reported by the other side; effects before it may have happened.
    pub fn reported(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Failed, ..Self::in_doubt(code, message) }
    }
    /// The same error of work that has changed this: it is unknown or partly done, unless nothing was changed.
    #[must_use]
    pub fn after(self, writes: &Writes) -> Self {
        let kind = match (writes.in_doubt.is_empty(), writes.done.is_empty()) {
            (false, _) => ErrorKind::Unknown,
            (true, false) if self.kind == ErrorKind::Failed => ErrorKind::PartlyDone,
            (true, _) => return self,
        };
        Self { may_have_run: true, kind, ..self }
    }
}

/// An effect that was requested and has not returned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "effect", rename_all = "snake_case")]
pub enum PendingEffect {
    /// A custom action.
    Action {
        /// The action.
        name: ActionName,
        /// The origin of the request.
        asked_by: ActionOrigin,
    },
    /// The tool of a call step.
    Tool {
        /// The flow.
        flow_id: FlowId,
        /// The step.
        step_id: StepId,
    },
    /// An agent run.
    Agent {
        /// The calling flow.
        flow_id: FlowId,
        /// The calling step.
        step_id: StepId,
        /// The agent.
        agent_id: AgentName,
    },
    /// A document search.
    Search,
}

/// The origin of a custom action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActionOrigin {
    /// A step of a flow.
    Step,
    /// A `followup` event.
    Followup,
    /// The start of a turn: it runs before the message is understood.
    TurnStart,
}

/// A request to call an MCP tool for a call step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlowToolCall {
    /// The server.
    pub server: ServerName,
    /// The tool.
    pub tool: ToolName,
    /// The arguments.
    pub arguments: Map<String, Json>,
    /// The calling flow.
    pub flow_id: FlowId,
    /// The calling step.
    pub step_id: StepId,
}

/// The result of an MCP tool call by a call step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolResult {
    /// It returned a result: the map `{content, structuredContent, isError, meta, text}` that output mappings see as
    /// `result`.
    Done {
        /// The result.
        result: Json,
        /// `write` or `idempotent`, if the tool changes something.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        effect: Option<Arc<str>>,
    },
    /// It failed or timed out.
    Failed {
        /// The reason, for operators; may start with a code and a colon, as in `timeout: …`.
        reason: String,
    },
    /// Whether it ran is not known.
    Unknown {
        /// The reason, for operators.
        reason: String,
    },
    /// It did nothing because it needs input from the user (MCP elicitation).
    #[serde(rename = "wants")]
    NeedsInput {
        /// The message of the tool, for operators.
        reason: String,
        /// The slots to collect, one after the other; then the tool is called again.
        slots: Vec<SlotName>,
    },
}

impl ToolResult {
    /// The result of a tool that changes nothing.
    pub fn done(result: Json) -> Self {
        Self::Done { result, effect: None }
    }
}

/// A request to answer the newest user message from documents; the search reads its query from the conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SearchCall {
    /// The flow that contains the search step.
    pub flow_id: FlowId,
    /// The time of the input that led to this call; shown as the date in prompts.
    pub at: Timestamp,
}

/// The outcome of a document search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SearchOutcome {
    /// Documents answer the question.
    Answered {
        /// The complete answer with its sources.
        message: Box<BotMessage>,
    },
    /// The documents do not contain an answer.
    NoAnswer {
        /// The reason, for operators.
        reason: String,
    },
    /// The search failed.
    Failed {
        /// The reason, for operators.
        reason: String,
        /// The part of an interrupted answer that the user was sent.
        #[serde(default, rename = "said", skip_serializing_if = "Option::is_none")]
        partial: Option<Box<BotMessage>>,
    },
}

/// The dialogue profile of an agent run; determined by the calling step, not by the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentKind {
    /// Runs until it calls `task_completed`.
    Open,
    /// Fills slots until one of the `exit_if` conditions holds.
    Task,
}

/// A request to run an agent for one user message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentCall {
    /// The agent.
    pub agent: AgentName,
    /// The profile of this run.
    pub kind: AgentKind,
    /// The calling flow.
    pub flow_id: FlowId,
    /// The calling step; its `exit_if` conditions are read from the project.
    pub step_id: StepId,
    /// The newest user message.
    pub user_message: Arc<str>,
    /// Whether the agent resumes after an interruption.
    pub resumed: bool,
    /// The agent's question before the interruption.
    pub resumed_last_request: Option<String>,
    /// Whether the agent had completed this task before.
    pub restarted: bool,
    /// The metadata of its frame.
    pub metadata: Map<String, Json>,
    /// The user's answer to the tool calls that need confirmation: yes, no, or something else (`None`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmed: Option<bool>,
    /// The time of the input that led to this call; shown as the date in prompts.
    pub at: Timestamp,
}

impl AgentCall {
    /// The metadata for the frame when the agent did not run for this message. Unconfirmed calls are kept, except after
    /// a no.
    pub fn metadata_if_not_run(&self) -> Map<String, Json> {
        let mut kept = self.metadata.clone();
        if self.confirmed == Some(false) {
            kept.shift_remove(UNCONFIRMED_CALLS_KEY);
        }
        kept
    }
}

/// The metadata key of an agent's unconfirmed tool calls: a list of [`UnconfirmedCall`].
pub const UNCONFIRMED_CALLS_KEY: &str = "held_calls";

/// A tool call that needs the user's confirmation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UnconfirmedCall {
    /// The tool.
    pub tool: Arc<str>,
    /// The arguments, exactly as they will be sent.
    pub arguments: Json,
}

impl UnconfirmedCall {
    /// The unconfirmed calls in the metadata of an agent.
    pub fn of(metadata: &Map<String, Json>) -> Vec<Self> {
        metadata
            .get(UNCONFIRMED_CALLS_KEY)
            .and_then(|held| serde_json::from_value(held.clone()).ok())
            .unwrap_or_default()
    }
}

/// How an agent run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentStatus {
    /// It asked the user a question.
    AwaitingUser,
    /// It completed its task.
    Finished,
    /// It ended without an end of its task, and runs again with the next message of the user: that message interrupted it, or
    /// a remote agent works on and reports its result later.
    Yielded,
    /// It failed.
    Failed {
        /// An error code, documented by `segue explain`.
        code: String,
        /// The reason, for operators.
        reason: String,
    },
    /// It was cancelled.
    Cancelled {
        /// The reason, for operators.
        reason: String,
    },
}

/// The outcome of an agent run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentOutcome {
    /// How it ended.
    pub status: AgentStatus,
    /// The events of the run, in order: messages, slots, tool calls, exchanges.
    pub events: Vec<Event>,
    /// The structured result.
    pub data: Json,
    /// State of the agent for its next turn; stored in its frame.
    pub metadata: Map<String, Json>,
}
