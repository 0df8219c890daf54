//! What others may change about an agent of ours, without writing a loop of their own.
//!
//! Entry: [`AgentHooks`], one trait of which every method has a default; registered by name, and named by `module` in the
//! agent's `config.yml`. An address in its place is a hook server ([`http`]). A hook never sees the stack, and what it wants
//! said or recorded goes through what it returns or through its [`HookContext`]: nothing happens beside the record of the turn.

pub mod http;
mod types;
mod wire;

use std::sync::Arc;

use async_trait::async_trait;
use segue_engine::project::SlotDef;

pub use self::types::{
    AgentInput, AgentOutput, HookContext, HookError, HookEvent, HookResult, OutputChange, ToolBatch, ToolRecord,
};
use crate::{
    llm::{ChatMessage, ToolSpec},
    tools::Tool,
};

/// What others may change about an agent. Every method has a default that changes nothing.
///
/// The asynchronous methods are recorded: a turn that runs again from its record gets what they gave the first time. After a
/// crash one may be called again for the same step; [`HookContext::id`] is then the same. The others must be pure.
///
/// An error of a hook ends the run (A0521): an agent must not go on without what its author relies on.
#[async_trait]
pub trait AgentHooks: Send + Sync {
    /// Comes first in every run: what it [says](HookContext::say) is heard before anything of the agent.
    async fn before_run(&self, context: &HookContext) -> HookResult {
        let _ = context;
        Ok(())
    }
    /// Comes last in every run: what it [says](HookContext::say) is heard after everything of the agent.
    async fn after_run(&self, context: &HookContext) -> HookResult {
        let _ = context;
        Ok(())
    }
    /// Looks at what the agent is given, before its first model call or, where it works elsewhere, before anything leaves: takes
    /// slots away or changes them for this run, adds metadata for tools, writes the user's message in other words. A slot of
    /// `exit_if` that is gone has no tool.
    async fn process_input(&self, input: &mut AgentInput, context: &HookContext) -> HookResult {
        let _ = (input, context);
        Ok(())
    }
    /// Looks at the results of the calls of one answer, before the agent sees them; what it returns is recorded, and counts
    /// when the end of the task is decided. Control tools are not among the calls.
    async fn process_tool_output(&self, batch: &ToolBatch, context: &HookContext) -> HookResult<Vec<HookEvent>> {
        let _ = (batch, context);
        Ok(Vec::new())
    }
    /// Looks at what a run came to, before anybody else does: the form of 3.15 and earlier, for agents of both kinds.
    async fn process_output(&self, output: &AgentOutput, context: &HookContext) -> HookResult<OutputChange> {
        let _ = (output, context);
        Ok(OutputChange::default())
    }
    /// The same for agents that work elsewhere: the form of 3.16. Comes before [`process_output`](Self::process_output).
    async fn process_agent_output(&self, output: &AgentOutput, context: &HookContext) -> HookResult<OutputChange> {
        let _ = (output, context);
        Ok(OutputChange::default())
    }
    /// Tools of its own, beside those of servers. They keep their names: a server's tool of the same name gets a prefix. The
    /// names of built-in tools are refused.
    fn custom_tools(&self) -> Vec<Tool> {
        Vec::new()
    }
    /// The finishing tool of an open agent as the model sees it. The name stays, whatever is returned.
    fn task_completed_tool(&self, default: ToolSpec) -> ToolSpec {
        default
    }
    /// What the model is told when it finished without a word, so that it writes the closing line.
    fn empty_closing_message(&self, default: String) -> String {
        default
    }
    /// The tool of one slot as the model sees it. `None` leaves it as it is. The name stays, whatever is returned.
    async fn slot_tool(
        &self,
        slot: &SlotDef,
        default: &ToolSpec,
        context: &HookContext,
    ) -> HookResult<Option<ToolSpec>> {
        let _ = (slot, default, context);
        Ok(None)
    }
    /// The tools that the model is offered: leave some out, or describe them otherwise. `None` leaves them as they are. What is
    /// not returned cannot be called in this run; what is not among the default ones is left out.
    async fn tools(
        &self,
        default: &[ToolSpec],
        input: &AgentInput,
        context: &HookContext,
    ) -> HookResult<Option<Vec<ToolSpec>>> {
        let _ = (default, input, context);
        Ok(None)
    }
    /// The messages of one model call, the prompt first. `None` leaves them as they are. Every call among them must keep its
    /// result.
    async fn messages(
        &self,
        default: &[Arc<ChatMessage>],
        input: &AgentInput,
        context: &HookContext,
    ) -> HookResult<Option<Vec<Arc<ChatMessage>>>> {
        let _ = (default, input, context);
        Ok(None)
    }
    /// The prompt, rendered. `None` leaves it as it is.
    async fn prompt(&self, default: &str, input: &AgentInput, context: &HookContext) -> HookResult<Option<String>> {
        let _ = (default, input, context);
        Ok(None)
    }
}
