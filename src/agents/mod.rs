//! Loops with a goal.
//!
//! Entries: `ReactAgent::run`, our own loop; [`Agent::run`], the code of somebody else; `remote::run`, an agent over A2A. Each is one
//! invocation for one user message. What it asks of models and tools goes through the handles of its `AgentRequest`; these are
//! recorded, so a run can be replayed. This module never touches the stack, stores nothing and knows no channel: what happened comes
//! back as the events of an `AgentOutcome`.

mod answers;
mod calls;
mod claims;
mod completion;
mod credentials;
mod custom;
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
pub(crate) mod remote;
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
    conversation::{AgentCall, Conversation},
    project::{AgentDef, Project},
};
use serde_json::{Map, Value as Json};

pub use self::{
    credentials::credentials,
    custom::{Agent, AgentEnd, AgentError, AgentResult, AgentRun},
    hooks::AgentHooks,
};
pub(crate) use self::{custom::run as run_custom, react::ReactAgent};
use crate::{context::CallContext, llm::Llm, tools::registry::ToolSet};

/// What an agent is given for one invocation.
#[derive(Clone)]
pub(crate) struct AgentRequest<'a> {
    /// The project.
    pub(crate) project: &'a Arc<Project>,
    /// The conversation as it stands; the newest user message is in it.
    pub(crate) conversation: &'a Conversation,
    /// Why and where it was called.
    pub(crate) call: &'a AgentCall,
    /// Its `config.yml`.
    pub(crate) definition: &'a Arc<AgentDef>,
    /// Its model; every answer is recorded.
    pub(crate) llm: Arc<dyn Llm>,
    /// Its tools after filters, in the order in which the model sees them; every call is recorded.
    pub(crate) tools: ToolSet,
    /// Facts of the conversation and of the backend for tools; no model sees them.
    pub(crate) metadata: Arc<Map<String, Json>>,
    /// `_meta` for MCP calls by server name.
    pub(crate) meta: Arc<Map<String, Json>>,
    /// What others change about it, where somebody does.
    pub(crate) hooks: Option<Arc<dyn AgentHooks>>,
    /// Whether a hook wrote the user's message in other words: `call.user_message` stands for the one in the conversation.
    pub(crate) rewritten: bool,
    /// The slots as a hook left them, where one changed any: what is not among them is not there for this run.
    pub(crate) slots: Option<Arc<Map<String, Json>>>,
    /// What it asks of its surroundings beside models and tools.
    pub(crate) desk: &'a dyn Desk,
}

/// What a run asks of its surroundings beside models and tools.
pub(crate) trait Desk: Send + Sync {
    /// Does work that chance or a clock decides, and notes what it gives, so that the same turn, run again, decides it the same
    /// way. What an earlier try noted at this step comes back instead, and the work is not polled. `None`: the work was done
    /// now, or cannot be noted.
    fn once<'a>(&'a self, cx: &'a CallContext, work: BoxFuture<'a, Json>) -> BoxFuture<'a, Option<Json>>;
    /// The text of a response of the project as the conversation stands, with these values for its placeholders; `lot`
    /// chooses among its variations.
    fn words(&self, response: &str, values: &Map<String, Json>, lot: u64) -> Option<Arc<str>>;
    /// Tells operators of something that did not stop the run: a code that `segue explain` knows, and the matter.
    fn warn(&self, code: &'static str, matter: String);
}

/// A desk that keeps nothing and has no words.
#[cfg(test)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NoDesk;

#[cfg(test)]
impl Desk for NoDesk {
    fn once<'a>(&'a self, _: &'a CallContext, work: BoxFuture<'a, Json>) -> BoxFuture<'a, Option<Json>> {
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

impl fmt::Debug for AgentRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentTask").field("call", &self.call).finish_non_exhaustive()
    }
}

/// Names that tools of servers may not have in this run: those of the profile's own tools.
pub(crate) fn reserved_names(project: &Project, call: &AgentCall) -> Vec<String> {
    profile::reserved_names(project, call)
}
