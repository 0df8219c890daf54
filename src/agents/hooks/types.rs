//! What hooks are given and what they return. As JSON the same values are the contract of hook servers (docs/how-to/hooks-in-python.md).

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use segue_engine::conversation::AgentKind;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use tokio::sync::mpsc;

use crate::{context::CallContext, limits, tools::with_causes};

/// A hook failed, and the run ends. Any error becomes one by `?`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookError(pub(crate) String);

/// What a hook gives: nothing unless it says otherwise.
pub type HookResult<T = ()> = Result<T, HookError>;

impl HookError {
    /// The reason is for operators.
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

/// What an agent is given for one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
    /// Facts of the conversation and of the backend for tools; no model sees them.
    pub metadata: Map<String, Json>,
    /// Whether it goes on after an interruption.
    #[serde(default)]
    pub resumed: bool,
    /// Whether it had completed this task before.
    #[serde(default)]
    pub restarted: bool,
}

/// The results of the calls of one answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolBatch {
    /// Those of this answer, in the order of the calls.
    pub current: Vec<ToolRecord>,
    /// Those of the whole run so far, these included.
    pub cumulative: Vec<ToolRecord>,
}

/// One call and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolRecord {
    /// The id of the call.
    pub call_id: Arc<str>,
    /// The tool.
    pub tool: Arc<str>,
    /// Its arguments.
    pub arguments: Json,
    /// `done`, `failed`, `unknown` or `pending`.
    pub status: Arc<str>,
    /// What it gave: its structured content, else its text.
    pub result: Json,
}

/// What a run came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentOutput {
    /// The agent.
    pub agent: Arc<str>,
    /// `input_required`, `completed`, `failed` or `cancelled`.
    pub status: Arc<str>,
    /// The last text of the run; the user has it already.
    pub message: Option<Arc<str>>,
    /// What happened, in order, as stored events.
    pub events: Vec<Json>,
    /// Results of tools, for programs.
    pub structured_results: Json,
    /// What is kept for the next run of this task.
    pub metadata: Map<String, Json>,
}

/// What a hook wants changed about an outcome.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OutputChange {
    /// `completed` ends the task, `input_required` keeps it open; nothing else can be said, and a failure stays one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Arc<str>>,
    /// What happens beside it, after all that happened.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<HookEvent>,
    /// Added to what is kept for the next run of this task.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Json>,
}

/// What a hook can make happen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum HookEvent {
    /// A slot gets a value, typed by the slot; null empties it.
    Slot {
        /// Which.
        name: Arc<str>,
        /// The value.
        value: Json,
    },
    /// The user is told something.
    Bot {
        /// The text.
        text: Arc<str>,
    },
}

/// What a hook may know of the run, and how it speaks meanwhile.
pub struct HookContext {
    /// Deadline and cancellation.
    pub cx: CallContext,
    /// The agent.
    pub agent: Arc<str>,
    /// The channel on which the user wrote.
    pub channel: Arc<str>,
    /// The name of this call; the same when the same step is tried again, for whoever must not do a thing twice.
    pub id: Arc<str>,
    said: Mutex<Vec<Arc<str>>>,
    speech: mpsc::Sender<Arc<str>>,
}

impl HookContext {
    /// For one call of a hook; what it says comes out of the other end.
    pub(in crate::agents) fn new(
        cx: CallContext,
        agent: Arc<str>,
        channel: Arc<str>,
        id: Arc<str>,
    ) -> (Self, mpsc::Receiver<Arc<str>>) {
        let (speech, heard) = mpsc::channel(limits::HOOK_MESSAGES);
        (Self { cx, agent, channel, id, said: Mutex::default(), speech }, heard)
    }
    /// For calling hooks in a test of your own; what they say is in [`HookContext::said`].
    pub fn alone(cx: CallContext, agent: impl Into<Arc<str>>, channel: impl Into<Arc<str>>) -> Self {
        let id = cx.key.as_str().into();
        Self::new(cx, agent.into(), channel.into(), id).0
    }
    /// Tells the user something now, while the hook goes on: a filler. At most [`limits::HOOK_MESSAGES`] in one call of a hook;
    /// what is too much is dropped, and so is a text without a visible character.
    pub fn say(&self, text: impl Into<Arc<str>>) {
        let text: Arc<str> = text.into();
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if text.trim().is_empty() || said.len() >= limits::HOOK_MESSAGES {
            return;
        }
        // A receiver that is gone is a test that does not listen.
        let _ = self.speech.try_send(text.clone());
        said.push(text);
    }
    /// What was said in this call so far.
    pub fn said(&self) -> Vec<Arc<str>> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl fmt::Debug for HookContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HookContext").field("agent", &self.agent).field("cx", &self.cx).finish_non_exhaustive()
    }
}
