//! Inputs and results of hooks. As JSON the same types are the protocol of hook servers (docs/how-to/hooks-in-python.md).

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use segue_engine::conversation::AgentKind;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use tokio::sync::mpsc;

use crate::{context::CallContext, limits, tools::with_causes};

/// The failure of a hook, which ends the run. `?` converts any error to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookError(pub(crate) String);

/// The result of a hook.
pub type HookResult<T = ()> = Result<T, HookError>;

impl HookError {
    /// An error; the reason is for operators.
    pub fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

impl fmt::Display for HookError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<E: std::error::Error> From<E> for HookError {
    fn from(error: E) -> Self {
        Self(with_causes(&error))
    }
}

/// The input of an agent for one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AgentInput {
    /// The agent.
    pub agent: Arc<str>,
    /// Open or task.
    pub kind: AgentKind,
    /// The conversation.
    pub conversation: Arc<str>,
    /// The calling flow.
    pub flow: Arc<str>,
    /// The newest message of the user.
    pub user_message: Arc<str>,
    /// Slots that have a value, and those of `exit_if`, in the order of the domain.
    pub slots: Map<String, Json>,
    /// Data of the conversation and of the backend for tools; it is never sent to a model.
    pub metadata: Map<String, Json>,
    /// Whether it resumes after an interruption.
    #[serde(default)]
    pub resumed: bool,
    /// Whether it completed this task earlier and starts it again.
    #[serde(default)]
    pub restarted: bool,
}

impl AgentInput {
    /// The input of an open agent, with nothing in it: for tests of hooks.
    pub fn new(
        agent: impl Into<Arc<str>>,
        conversation: impl Into<Arc<str>>,
        user_message: impl Into<Arc<str>>,
    ) -> Self {
        Self {
            agent: agent.into(),
            kind: AgentKind::Open,
            conversation: conversation.into(),
            flow: "".into(),
            user_message: user_message.into(),
            slots: Map::new(),
            metadata: Map::new(),
            resumed: false,
            restarted: false,
        }
    }
}

/// The results of the tool calls of one model response.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolBatch {
    /// Those of this response, in the order of the calls.
    pub current: Vec<ToolRecord>,
    /// Those of the whole run so far, including `current`. Of the results of earlier responses the newest 256 KiB are kept; in
    /// place of each older one is a short text.
    pub cumulative: Vec<ToolRecord>,
}

/// One tool call and its result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolRecord {
    /// The id of the call.
    pub call_id: Arc<str>,
    /// The tool.
    pub tool: Arc<str>,
    /// Its arguments.
    pub arguments: Json,
    /// `done`, `failed`, `unknown` or `pending`.
    pub status: Arc<str>,
    /// Its structured content, else its text.
    pub result: Json,
}

/// The outcome of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AgentOutput {
    /// The agent.
    pub agent: Arc<str>,
    /// `input_required`, `completed`, `failed` or `cancelled`.
    pub status: Arc<str>,
    /// The last text of the run; it has already been sent.
    pub message: Option<Arc<str>>,
    /// The events of the run, in order, in their stored form.
    pub events: Vec<Json>,
    /// Structured results of tools.
    pub structured_results: Json,
    /// Metadata for the next run of this task.
    pub metadata: Map<String, Json>,
}

impl ToolRecord {
    /// A call that is done.
    pub fn new(call_id: impl Into<Arc<str>>, tool: impl Into<Arc<str>>, arguments: Json, result: Json) -> Self {
        Self { call_id: call_id.into(), tool: tool.into(), arguments, status: "done".into(), result }
    }
}

impl AgentOutput {
    /// An outcome with a status and without a message: for tests of hooks.
    pub fn new(agent: impl Into<Arc<str>>, status: impl Into<Arc<str>>) -> Self {
        Self {
            agent: agent.into(),
            status: status.into(),
            message: None,
            events: Vec::new(),
            structured_results: Json::Null,
            metadata: Map::new(),
        }
    }
}

/// Changes of a hook to an outcome.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct OutputChange {
    /// `completed` completes the task, `input_required` keeps it open. Other values are rejected, and a failed run stays failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Arc<str>>,
    /// Additional events, after those of the run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<HookEvent>,
    /// Additional metadata for the next run of this task.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Json>,
}

impl OutputChange {
    /// Sets the status: `completed` or `input_required`.
    #[must_use]
    pub fn status(mut self, status: impl Into<Arc<str>>) -> Self {
        self.status = Some(status.into());
        self
    }
    /// Adds an event.
    #[must_use]
    pub fn event(mut self, event: HookEvent) -> Self {
        self.events.push(event);
        self
    }
    /// Adds metadata for the next run.
    #[must_use]
    pub fn metadata(mut self, key: impl Into<String>, value: impl Into<Json>) -> Self {
        self.metadata.insert(key.into(), value.into());
        self
    }
}

/// An event that a hook can add.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum HookEvent {
    /// Sets a slot to a value of its type; null clears it.
    Slot {
        /// The slot.
        name: Arc<str>,
        /// The value.
        value: Json,
    },
    /// Sends a message to the user.
    Bot {
        /// The text.
        text: Arc<str>,
    },
}

/// The context of one call of a hook, with which it can also send messages.
pub struct HookContext {
    /// Deadline and cancellation.
    pub cx: CallContext,
    /// The agent.
    pub agent: Arc<str>,
    /// The channel on which the user wrote.
    pub channel: Arc<str>,
    /// The idempotency key of this call: the same when the same step is tried again.
    pub id: Arc<str>,
    sent: Mutex<Vec<Arc<str>>>,
    outgoing: mpsc::Sender<Arc<str>>,
}

impl HookContext {
    /// A context for one call of a hook, and the receiver of its messages.
    pub(in crate::agents) fn new(
        cx: CallContext,
        agent: Arc<str>,
        channel: Arc<str>,
        id: Arc<str>,
    ) -> (Self, mpsc::Receiver<Arc<str>>) {
        let (outgoing, receiver) = mpsc::channel(limits::HOOK_MESSAGES);
        (Self { cx, agent, channel, id, sent: Mutex::default(), outgoing }, receiver)
    }
    /// A context for tests of hooks; their messages are in [`HookContext::messages`].
    pub fn for_tests(cx: CallContext, agent: impl Into<Arc<str>>, channel: impl Into<Arc<str>>) -> Self {
        let id = cx.key.as_str().into();
        Self::new(cx, agent.into(), channel.into(), id).0
    }
    /// Sends a message to the user now, as a filler, while the hook continues. At most [`limits::HOOK_MESSAGES`] messages in one call of
    /// a hook; further ones are dropped, and so is a text without a visible character.
    pub fn say(&self, text: impl Into<Arc<str>>) {
        let text: Arc<str> = text.into();
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        if text.trim().is_empty() || sent.len() >= limits::HOOK_MESSAGES {
            return;
        }
        // The receiver is missing in a test that uses `for_tests`.
        let _ = self.outgoing.try_send(text.clone());
        sent.push(text);
    }
    /// The messages of this call so far.
    pub fn messages(&self) -> Vec<Arc<str>> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl fmt::Debug for HookContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HookContext").field("agent", &self.agent).field("cx", &self.cx).finish_non_exhaustive()
    }
}
