//! Loops with a goal.
//!
//! Entry: [`Agent::run`], one invocation for one user message. What it asks of models and tools goes through the handles of
//! its [`AgentTask`]; these are recorded, so a run can be replayed. This room never touches the stack, stores nothing and
//! knows no channel: what happened comes back as the events of an [`AgentOutcome`].

mod answers;
mod calls;
mod claims;
mod completion;
mod credentials;
mod filler;
mod gate;
mod hooked;
pub mod hooks;
mod news;
mod offer;
mod own_prompt;
mod profile;
mod prompt_cache;
mod react;
pub mod remote;
mod run;
mod session;
mod slot_tools;
mod slots;
mod speech;
mod step;
#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc};

use futures::future::BoxFuture;
use segue_engine::{
    conversation::{AgentCall, AgentOutcome, Conversation},
    project::{AgentDef, Project},
};
use serde_json::{Map, Value as Json};

pub use self::{credentials::credentials, hooks::AgentHooks, react::ReactAgent};
use crate::{conversation::ReplySink, cx::Cx, llm::Llm, tools::registry::ToolSet};

/// Who an agent is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentCard {
    /// Its name; flows call it by this.
    pub name: Arc<str>,
    /// What it does.
    pub description: Arc<str>,
}

/// What an agent is given for one invocation.
#[derive(Clone)]
pub struct AgentTask<'a> {
    /// The project.
    pub project: &'a Arc<Project>,
    /// The conversation as it stands; the newest user message is in it.
    pub conversation: &'a Conversation,
    /// Why and where it was called.
    pub call: &'a AgentCall,
    /// Its `config.yml`.
    pub definition: &'a Arc<AgentDef>,
    /// Its model; every answer is recorded.
    pub llm: Arc<dyn Llm>,
    /// Its tools after filters, in the order in which the model sees them; every call is recorded.
    pub tools: ToolSet,
    /// Facts of the conversation and of the backend for tools; no model sees them.
    pub metadata: Arc<Map<String, Json>>,
    /// `_meta` for MCP calls by server name.
    pub meta: Arc<Map<String, Json>>,
    /// What others change about it, where somebody does.
    pub hooks: Option<Arc<dyn AgentHooks>>,
    /// Whether a hook wrote the user's message in other words: `call.user_message` stands for the one in the conversation.
    pub rewritten: bool,
    /// The slots as a hook left them, where one changed any: what is not among them is not there for this run.
    pub slots: Option<Arc<Map<String, Json>>>,
    /// What it asks of its surroundings beside models and tools.
    pub desk: &'a dyn Desk,
}

/// What a run asks of its surroundings beside models and tools.
pub trait Desk: Send + Sync {
    /// Does work that chance or a clock decides, and notes what it gives, so that the same turn, run again, decides it the same
    /// way. What an earlier try noted at this step comes back instead, and the work is not polled. `None`: the work was done
    /// now, or cannot be noted.
    fn once<'a>(&'a self, cx: &'a Cx, work: BoxFuture<'a, Json>) -> BoxFuture<'a, Option<Json>>;
    /// The text of a response of the project as the conversation stands, with these values for its placeholders; `lot`
    /// chooses among its variations.
    fn words(&self, response: &str, values: &Map<String, Json>, lot: u64) -> Option<Arc<str>>;
    /// Tells operators of something that did not stop the run: a code that `segue explain` knows, and the matter.
    fn warn(&self, code: &'static str, matter: String);
}

/// A desk that keeps nothing and has no words, for agents that run outside an assistant.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoDesk;

impl Desk for NoDesk {
    fn once<'a>(&'a self, _: &'a Cx, work: BoxFuture<'a, Json>) -> BoxFuture<'a, Option<Json>> {
        Box::pin(async move {
            work.await;
            None
        })
    }
    fn words(&self, _: &str, _: &Map<String, Json>, _: u64) -> Option<Arc<str>> {
        None
    }
    fn warn(&self, _: &'static str, _: String) {}
}

impl fmt::Debug for AgentTask<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentTask").field("call", &self.call).finish_non_exhaustive()
    }
}

/// A loop with a goal. Ours is `ReactAgent`; anybody may write another and register it by name.
pub trait Agent: Send + Sync {
    /// Who it is.
    fn card(&self) -> &AgentCard;
    /// Works on one user message. Never fails by `Err`: the outcome says how it ended. Text may be sent to `out` as it comes;
    /// each such text must also stand in the outcome as a `bot` event with the same reply id. The time of events is
    /// `cx.clock.now()`, which is recorded.
    ///
    /// Calls of the task's model and tools are recorded one by one; after a crash it runs again, and they answer from the record.
    /// Whatever else it does is done again.
    ///
    /// *Cancellation*: when `cx` is cancelled or its deadline passes, it ends at the next safe point with what has happened.
    fn run<'a>(&'a self, task: AgentTask<'a>, out: &'a mut dyn ReplySink, cx: &'a Cx) -> BoxFuture<'a, AgentOutcome>;
}

/// Names that tools of servers may not have in this run: those of the profile's own tools.
pub fn reserved_names(project: &Project, call: &AgentCall) -> Vec<String> {
    profile::reserved_names(project, call)
}
