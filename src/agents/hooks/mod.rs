//! What others may change about an agent of ours, without writing a loop of their own.
//!
//! Entry: [`AgentHooks`], one trait of which every method has a default; registered by name, and named by `module` in the
//! agent's `config.yml`. An address in its place is a hook server ([`http`]). A hook never sees the stack, and what it wants
//! said or recorded goes through what it returns or through its [`HookCx`]: nothing happens beside the record of the turn.

pub mod http;
mod types;
mod wire;

use std::sync::Arc;

use futures::future::{BoxFuture, ready};
use segue_engine::project::SlotDef;

pub use self::types::{AgentInput, AgentOutput, HookCx, HookError, HookEvent, OutputChange, ToolBatch, ToolRecord};
use crate::{
    llm::{ChatMessage, ToolSpec},
    tools::Tool,
};

/// What others may change about an agent. Every method has a default that changes nothing.
///
/// The methods that may wait are recorded: a turn that runs again from its record gets what they gave the first time. After a
/// crash one may be called again for the same step; [`HookCx::id`] is then the same. The others must be pure.
///
/// An error of a hook ends the run (A0521): an agent must not go on without what its author relies on.
pub trait AgentHooks: Send + Sync {
    /// Looks at what the agent is given, before its first model call or, where it works elsewhere, before anything leaves: takes slots away or changes them for this run, adds
    /// metadata for tools, writes the user's message in other words. A slot of `exit_if` that is gone has no tool.
    fn process_input<'a>(&'a self, input: AgentInput, cx: &'a HookCx) -> BoxFuture<'a, Result<AgentInput, HookError>> {
        let _ = cx;
        Box::pin(ready(Ok(input)))
    }
    /// Looks at the results of the calls of one answer, before the agent sees them; what it returns is recorded, and counts
    /// when the end of the task is decided. Control tools are not among the calls.
    fn process_tool_output<'a>(
        &'a self,
        batch: &'a ToolBatch,
        cx: &'a HookCx,
    ) -> BoxFuture<'a, Result<Vec<HookEvent>, HookError>> {
        let _ = (batch, cx);
        Box::pin(ready(Ok(Vec::new())))
    }
    /// Looks at what a run came to, before anybody else does: the form of 3.15 and earlier, for agents of both kinds.
    fn process_output<'a>(
        &'a self,
        output: &'a AgentOutput,
        cx: &'a HookCx,
    ) -> BoxFuture<'a, Result<OutputChange, HookError>> {
        let _ = (output, cx);
        Box::pin(ready(Ok(OutputChange::default())))
    }
    /// The same for agents that work elsewhere: the form of 3.16. Comes before [`process_output`](Self::process_output).
    fn process_agent_output<'a>(
        &'a self,
        output: &'a AgentOutput,
        cx: &'a HookCx,
    ) -> BoxFuture<'a, Result<OutputChange, HookError>> {
        let _ = (output, cx);
        Box::pin(ready(Ok(OutputChange::default())))
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
    /// The tool of one slot as the model sees it. The name stays, whatever is returned.
    fn slot_tool(&self, slot: &SlotDef, usual: ToolSpec) -> ToolSpec {
        let _ = slot;
        usual
    }
    /// The tools that the model is offered: leave some out, or describe them otherwise. What is not returned cannot be called
    /// in this run; what is not among the usual ones is left out.
    fn tools(&self, usual: Vec<ToolSpec>, input: &AgentInput) -> Vec<ToolSpec> {
        let _ = input;
        usual
    }
    /// The messages of one model call, the prompt first. Every call among them must keep its result.
    fn messages(&self, usual: Vec<Arc<ChatMessage>>, input: &AgentInput) -> Vec<Arc<ChatMessage>> {
        let _ = input;
        usual
    }
    /// The prompt, rendered.
    fn prompt(&self, usual: String, input: &AgentInput) -> String {
        let _ = input;
        usual
    }
    /// As [`slot_tool`](Self::slot_tool), after it, for hooks that have to wait; `None`: nobody has to. An answer of `None`
    /// leaves it as it was; any other is recorded.
    fn slot_tool_later<'a>(&'a self, slot: &'a SlotDef, usual: &'a ToolSpec, cx: &'a HookCx) -> Later<'a, ToolSpec> {
        let _ = (slot, usual, cx);
        None
    }
    /// As [`tools`](Self::tools), after it, for hooks that have to wait.
    fn tools_later<'a>(
        &'a self,
        usual: &'a [ToolSpec],
        input: &'a AgentInput,
        cx: &'a HookCx,
    ) -> Later<'a, Vec<ToolSpec>> {
        let _ = (usual, input, cx);
        None
    }
    /// As [`messages`](Self::messages), after it, for hooks that have to wait.
    fn messages_later<'a>(
        &'a self,
        usual: &'a [Arc<ChatMessage>],
        input: &'a AgentInput,
        cx: &'a HookCx,
    ) -> Later<'a, Vec<Arc<ChatMessage>>> {
        let _ = (usual, input, cx);
        None
    }
    /// As [`prompt`](Self::prompt), after it, for hooks that have to wait.
    fn prompt_later<'a>(&'a self, usual: &'a str, input: &'a AgentInput, cx: &'a HookCx) -> Later<'a, String> {
        let _ = (usual, input, cx);
        None
    }
}

/// What a hook gives that has to wait for it, where it has to; inside: what it changes, where it changes anything.
pub type Later<'a, T> = Option<BoxFuture<'a, Result<Option<T>, HookError>>>;
