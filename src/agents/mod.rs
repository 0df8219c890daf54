//! Executors of agents: one invocation of an agent for one user message.
//!
//! There are three kinds: `ReactAgent::run` is the built-in loop, [`Agent::run`] an agent written in Rust, and `remote::run` an agent
//! over A2A. Models and tools are called through the handles of the `AgentRequest`; these are recorded, so that a run can be
//! replayed. This module never changes the stack, stores nothing and does not depend on channels: a run returns its events in an
//! `AgentOutcome`.

mod completion;
mod confirmation;
mod credentials;
mod custom;
mod dialogue;
mod filler;
mod grounding;
mod hook_decorator;
mod hook_run;
pub mod hooks;
mod lead;
mod own_prompt;
mod policy;
mod profile;
mod progress;
mod prompt_cache;
mod react_agent;
pub(crate) mod remote;
mod skills;
mod slot_tools;
mod slots;
#[cfg(test)]
mod tests;
mod tool_events;
mod transcript;

use std::{collections::HashSet, fmt, sync::Arc};

use futures::future::BoxFuture;
use segue_engine::{
    conversation::{AgentCall, Conversation},
    project::{AgentDef, AgentRules, Project},
};
use serde_json::{Map, Value as Json};

pub use self::{
    credentials::credentials,
    custom::{Agent, AgentEnd, AgentError, AgentResult, AgentRun},
    hooks::AgentHooks,
};
pub(crate) use self::{
    custom::run as run_custom, lead::file_prompt_variables, policy::ToolPolicy, react_agent::ReactAgent,
};
use crate::{
    context::CallContext,
    delegation::LeadPrompt,
    effect::EffectClass,
    llm::Llm,
    react::ToolNarrowing,
    tools::{ToolInfo, tool_set::ToolSet},
};

/// The input of one invocation of an agent.
#[derive(Clone)]
pub(crate) struct AgentRequest<'a> {
    /// The project.
    pub(crate) project: &'a Arc<Project>,
    /// The conversation, which contains the newest user message.
    pub(crate) conversation: &'a Conversation,
    /// The calling flow and step, and the state of the task.
    pub(crate) call: &'a AgentCall,
    /// Its `config.yml`.
    pub(crate) definition: &'a Arc<AgentDef>,
    /// Its model; every response is recorded.
    pub(crate) llm: Arc<dyn Llm>,
    /// Its tools after the filters of the configuration, in the order in which the model sees them; every call is recorded.
    pub(crate) tools: ToolSet,
    /// Data of the conversation and of the backend for tools; it is never sent to a model.
    pub(crate) metadata: Arc<Map<String, Json>>,
    /// `_meta` for MCP calls by server name.
    pub(crate) mcp_meta: Arc<Map<String, Json>>,
    /// The hooks registered for it, if any.
    pub(crate) hooks: Option<Arc<dyn AgentHooks>>,
    /// Whether a hook changed the user's message: `call.user_message` then replaces the one in the conversation.
    pub(crate) user_message_changed: bool,
    /// The slots after a hook changed them, `None` if none did. A slot that is missing here does not exist for this run.
    pub(crate) slots: Option<Arc<Map<String, Json>>>,
    /// The part of its prompt about sub-agents, if it may start some.
    pub(crate) delegation: Option<Arc<LeadPrompt>>,
    /// Which of its tools loaded skills leave; shared with its sub-agents.
    pub(crate) narrowing: ToolNarrowing,
    /// The services besides models and tools.
    pub(crate) host: &'a dyn AgentHost,
}

/// Services that a run needs besides models and tools.
pub(crate) trait AgentHost: Send + Sync {
    /// Does work whose result depends on chance or on the clock, and records the result, so that the same turn gets the same result
    /// when it runs again. Returns the result that an earlier attempt recorded at this step; `work` is then not polled. `None`
    /// means that the work was done now, or that it cannot be recorded.
    fn once<'a>(&'a self, cx: &'a CallContext, work: BoxFuture<'a, Json>) -> BoxFuture<'a, Option<Json>>;
    /// The text of a response of the project for this conversation, with these values for its placeholders. `seed` chooses one
    /// of its variations.
    fn render_response(&self, response: &str, values: &Map<String, Json>, seed: u64) -> Option<Arc<str>>;
    /// Reports to operators a problem that did not stop the run: a code that `segue explain` knows, and the message.
    fn report_warning(&self, code: &'static str, message: String);
}

/// A host that records nothing and has no responses.
#[cfg(test)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NoHost;

#[cfg(test)]
impl AgentHost for NoHost {
    fn once<'a>(&'a self, _: &'a CallContext, work: BoxFuture<'a, Json>) -> BoxFuture<'a, Option<Json>> {
        Box::pin(async move {
            work.await;
            None
        })
    }
    fn render_response(&self, _: &str, _: &Map<String, Json>, _: u64) -> Option<Arc<str>> {
        None
    }
    fn report_warning(&self, _: &'static str, _: String) {}
}

impl fmt::Debug for AgentRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentRequest").field("call", &self.call).finish_non_exhaustive()
    }
}

/// Those of an agent's tools that its sub-agents may inherit, in a conversation and in a mission. A tool that needs a confirmation, that has a
/// condition, whose calls are limited or reported to the user stays with the agent itself: a sub-agent cannot ask or report, a condition
/// holds at the time of a call, and the rules count the calls of the agent.
pub(crate) fn inheritable_tools(rules: &AgentRules, tools: ToolSet) -> ToolSet {
    let stays = |info: &ToolInfo| {
        let rule = rules.tool(&info.name);
        rules.must_confirm(&info.name, info.effect != EffectClass::Read)
            || rule.is_some_and(|rule| {
                let reports = rule.on_success.is_some() || rule.on_failure.is_some();
                reports || rule.max_calls.is_some() || rule.requires.is_some()
            })
    };
    let own: HashSet<Arc<str>> = tools.infos().filter(|info| stays(info)).map(|info| info.name.clone()).collect();
    tools.only(|name| !own.contains(name))
}

/// Names that tools of servers may not have in this run: those of the built-in tools of the profile.
pub(crate) fn reserved_names(project: &Project, call: &AgentCall) -> Vec<String> {
    profile::reserved_names(project, call)
}
