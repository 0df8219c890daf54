//! What others may change about an agent of ours, without writing a loop of their own.
//!
//! Entry: [`AgentHooks`], one trait of which every method has a default; registered by name, and named by `module` in the
//! agent's `config.yml`. An address in its place is a hook server ([`http`]). A hook never sees the stack, and what it wants
//! said or recorded goes through what it returns or through its [`HookCx`]: nothing happens beside the record of the turn.

pub mod http;
mod types;
mod wire;

use std::sync::Arc;

use async_trait::async_trait;
use segue_engine::project::SlotDef;

pub use self::types::{AgentInput, AgentOutput, HookCx, HookError, HookEvent, OutputChange, ToolBatch, ToolRecord};
use crate::{
    llm::{ChatMessage, ToolSpec},
    tools::Tool,
};

/// What others may change about an agent. Every method has a default that changes nothing.
///
/// The asynchronous methods are recorded: a turn that runs again from its record gets what they gave the first time. After a
/// crash one may be called again for the same step; [`HookCx::id`] is then the same. The others must be pure.
///
/// An error of a hook ends the run (A0521): an agent must not go on without what its author relies on.
#[async_trait]
pub trait AgentHooks: Send + Sync {
    /// Looks at what the agent is given, before its first model call or, where it works elsewhere, before anything leaves: takes
    /// slots away or changes them for this run, adds metadata for tools, writes the user's message in other words. A slot of
    /// `exit_if` that is gone has no tool.
    async fn process_input(&self, input: AgentInput, cx: &HookCx) -> Result<AgentInput, HookError> {
        let _ = cx;
        Ok(input)
    }
    /// Looks at the results of the calls of one answer, before the agent sees them; what it returns is recorded, and counts
    /// when the end of the task is decided. Control tools are not among the calls.
    async fn process_tool_output(&self, batch: &ToolBatch, cx: &HookCx) -> Result<Vec<HookEvent>, HookError> {
        let _ = (batch, cx);
        Ok(Vec::new())
    }
    /// Looks at what a run came to, before anybody else does: the form of 3.15 and earlier, for agents of both kinds.
    async fn process_output(&self, output: &AgentOutput, cx: &HookCx) -> Result<OutputChange, HookError> {
        let _ = (output, cx);
        Ok(OutputChange::default())
    }
    /// The same for agents that work elsewhere: the form of 3.16. Comes before [`process_output`](Self::process_output).
    async fn process_agent_output(&self, output: &AgentOutput, cx: &HookCx) -> Result<OutputChange, HookError> {
        let _ = (output, cx);
        Ok(OutputChange::default())
    }
    /// Tools of its own, beside those of servers. They keep their names: a server's tool of the same name gets a prefix. The
    /// names of built-in tools are refused.
    fn custom_tools(&self) -> Vec<Arc<dyn Tool>> {
        Vec::new()
    }
    /// The finishing tool of an open agent as the model sees it. The name stays, whatever is returned.
    fn task_completed_tool(&self, usual: ToolSpec) -> ToolSpec {
        usual
    }
    /// What the model is told when it finished without a word, so that it writes the closing line.
    fn empty_closing_message(&self, usual: String) -> String {
        usual
    }
    /// The tool of one slot as the model sees it. `None` leaves it as it is. The name stays, whatever is returned.
    async fn slot_tool(&self, slot: &SlotDef, usual: &ToolSpec, cx: &HookCx) -> Result<Option<ToolSpec>, HookError> {
        let _ = (slot, usual, cx);
        Ok(None)
    }
    /// The tools that the model is offered: leave some out, or describe them otherwise. `None` leaves them as they are. What is
    /// not returned cannot be called in this run; what is not among the usual ones is left out.
    async fn tools(
        &self,
        usual: &[ToolSpec],
        input: &AgentInput,
        cx: &HookCx,
    ) -> Result<Option<Vec<ToolSpec>>, HookError> {
        let _ = (usual, input, cx);
        Ok(None)
    }
    /// The messages of one model call, the prompt first. `None` leaves them as they are. Every call among them must keep its
    /// result.
    async fn messages(
        &self,
        usual: &[Arc<ChatMessage>],
        input: &AgentInput,
        cx: &HookCx,
    ) -> Result<Option<Vec<Arc<ChatMessage>>>, HookError> {
        let _ = (usual, input, cx);
        Ok(None)
    }
    /// The prompt, rendered. `None` leaves it as it is.
    async fn prompt(&self, usual: &str, input: &AgentInput, cx: &HookCx) -> Result<Option<String>, HookError> {
        let _ = (usual, input, cx);
        Ok(None)
    }
}
