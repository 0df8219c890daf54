//! Hooks: code that changes the input, prompt, tools and output of an agent without replacing its loop.
//!
//! [`AgentHooks`] is a trait whose methods all have defaults. Implementations are registered by name, and `module` in the agent's
//! `config.yml` names one; a URL there is a hook server ([`http`]). A hook does not see the stack. Its messages and events pass through
//! its return value or its [`HookContext`], so that they are part of the record of the turn.

pub mod http;
mod json_types;
mod types;

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

/// Hooks of an agent. Every method has a default that changes nothing.
///
/// The results of the asynchronous methods are recorded: a turn that runs again from its record gets the same results. After a
/// crash a method may be called again for the same step; [`HookContext::id`] is then the same. The other methods must be pure.
///
/// An error of a hook ends the run (A0521), because the agent may depend on the change.
#[async_trait]
pub trait AgentHooks: Send + Sync {
    /// Called first in every run: what it [says](HookContext::say) is sent before all messages of the agent.
    async fn before_run(&self, context: &HookContext) -> HookResult {
        let _ = context;
        Ok(())
    }
    /// Called last in every run: what it [says](HookContext::say) is sent after all messages of the agent.
    async fn after_run(&self, context: &HookContext) -> HookResult {
        let _ = context;
        Ok(())
    }
    /// Called with the input of the agent before its first model call or, for a remote agent, before anything is sent. It may remove
    /// or change slots for this run, add metadata for tools, and rewrite the user's message. A removed slot of `exit_if` has no tool.
    async fn process_input(&self, input: &mut AgentInput, context: &HookContext) -> HookResult {
        let _ = (input, context);
        Ok(())
    }
    /// Called with the results of the tool calls of one model response, before the agent decides whether its task is complete. The
    /// returned events are recorded; slots among them count for `exit_if`. Calls of built-in tools are not included.
    async fn process_tool_output(&self, batch: &ToolBatch, context: &HookContext) -> HookResult<Vec<HookEvent>> {
        let _ = (batch, context);
        Ok(Vec::new())
    }
    /// Called with the outcome of a run, for built-in and remote agents: the interface of Rasa 3.15 and earlier.
    async fn process_output(&self, output: &AgentOutput, context: &HookContext) -> HookResult<OutputChange> {
        let _ = (output, context);
        Ok(OutputChange::default())
    }
    /// Called with the outcome of a remote agent, before [`process_output`](Self::process_output): the interface of Rasa 3.16.
    async fn process_agent_output(&self, output: &AgentOutput, context: &HookContext) -> HookResult<OutputChange> {
        let _ = (output, context);
        Ok(OutputChange::default())
    }
    /// Additional tools. They keep their names: a server's tool of the same name gets a prefix. Names of built-in tools are
    /// rejected.
    fn custom_tools(&self) -> Vec<Tool> {
        Vec::new()
    }
    /// The tool `task_completed` of an open agent as the model sees it. Its name cannot be changed.
    fn task_completed_tool(&self, default: ToolSpec) -> ToolSpec {
        default
    }
    /// The instruction for the model to write a closing message, used when it completed the task without text.
    fn empty_closing_message(&self, default: String) -> String {
        default
    }
    /// The tool of one slot as the model sees it. `None` changes nothing. Its name cannot be changed.
    async fn slot_tool(
        &self,
        slot: &SlotDef,
        default: &ToolSpec,
        context: &HookContext,
    ) -> HookResult<Option<ToolSpec>> {
        let _ = (slot, default, context);
        Ok(None)
    }
    /// The tools that the model is offered: exclude some, or change their descriptions. `None` changes nothing. A tool that is not
    /// returned cannot be called in this run; a tool that is not in `default` is ignored.
    async fn tools(
        &self,
        default: &[ToolSpec],
        input: &AgentInput,
        context: &HookContext,
    ) -> HookResult<Option<Vec<ToolSpec>>> {
        let _ = (default, input, context);
        Ok(None)
    }
    /// The messages of one model call, the prompt first. `None` changes nothing. Every tool call among them must keep its result.
    async fn messages(
        &self,
        default: &[Arc<ChatMessage>],
        input: &AgentInput,
        context: &HookContext,
    ) -> HookResult<Option<Vec<Arc<ChatMessage>>>> {
        let _ = (default, input, context);
        Ok(None)
    }
    /// The rendered prompt. `None` changes nothing.
    async fn prompt(&self, default: &str, input: &AgentInput, context: &HookContext) -> HookResult<Option<String>> {
        let _ = (default, input, context);
        Ok(None)
    }
}
