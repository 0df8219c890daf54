//! What an agent adds to the loop: messages, control tools, rules for tool calls, and where texts and records go.

use async_trait::async_trait;
use futures::future::BoxFuture;
use segue_engine::conversation::{AgentStatus, BotKind};

use super::{
    Messages,
    answer_stream::{ModelTurn, StreamedText},
    compaction::{CompactionReport, KeptFacts},
    state::LoopState,
    tool_calls::{BatchSummary, CallResult},
};
use crate::{
    context::CallContext,
    llm::{ChatRequest, ToolCall},
    tools::{EffectClass, ToolCallContext, ToolOutcome},
};

/// The parts of an agent that the loop calls. Methods with a default belong to some agents only.
#[async_trait]
pub(crate) trait LoopHost: Send {
    /// The messages of the next model call; those of the state come last.
    ///
    /// # Errors
    /// The status that ends the run: a prompt cannot be rendered, or a hook failed.
    async fn messages(&mut self, state: &LoopState, cx: &CallContext) -> Result<Messages, AgentStatus>;
    /// Calls the model and shows its text as it comes, where the agent shows it.
    async fn call_model(&mut self, request: ChatRequest, cx: &CallContext) -> ModelTurn;
    /// Reviews a response before the loop decides what follows. `None` means that the model is called again.
    async fn review_answer(&mut self, turn: ModelTurn, state: &mut LoopState, cx: &CallContext) -> Option<ModelTurn> {
        let _ = (state, cx);
        Some(turn)
    }

    /// Sends and records a text that does not end the run. `in_exchange`: it is also in the messages of the run.
    async fn show_text(&mut self, text: &StreamedText, kind: BotKind, in_exchange: bool, cx: &CallContext) {
        let _ = (text, kind, in_exchange, cx);
    }
    /// Sends the text that ends the run; it is recorded with the end.
    async fn end_text(&mut self, text: &StreamedText, kind: BotKind, cx: &CallContext) {
        let _ = (text, kind, cx);
    }
    /// Called for a text beside tool calls after the calls ran.
    fn text_sent(&mut self, text: &str) {
        let _ = text;
    }
    /// The message that asks for the closing message of a completed task; `default` is the built-in one.
    fn closing_request(&self, default: String) -> String {
        default
    }
    /// The message after a response without the tool call that the profile demands.
    fn correction(&self) -> String {
        String::new()
    }

    /// What a summary of older messages must always contain. A run that can be repeated must return the same facts again.
    async fn kept_facts(&mut self, state: &LoopState, cx: &CallContext) -> KeptFacts {
        let _ = (state, cx);
        KeptFacts::default()
    }
    /// Called after older messages were replaced by a summary.
    fn compacted(&mut self, report: &CompactionReport, cx: &CallContext) {
        let _ = (report, cx);
    }

    /// Called after a call of a tool for skills.
    fn skill_called(&mut self, call: &ToolCall, text: &str, is_done: bool, cx: &CallContext) {
        let _ = (call, text, is_done, cx);
    }

    /// Whether a call is one of a control tool that the model was offered.
    fn is_control(&self, call: &ToolCall) -> bool {
        let _ = call;
        false
    }
    /// Whether a control call completes the task.
    fn completes(&self, call: &ToolCall) -> bool {
        let _ = call;
        false
    }
    /// Runs a control call, after the ordinary calls of the same response.
    async fn control(&mut self, call: &ToolCall, batch: &BatchSummary, cx: &CallContext) -> ControlResult {
        let _ = (call, batch, cx);
        ControlResult { text: String::new(), effect: ControlEffect::None }
    }
    /// How many of these control calls, which follow each other in the response, run at the same time: the first ones, at least one.
    fn together(&self, calls: &[&ToolCall]) -> usize {
        let _ = calls;
        1
    }
    /// Runs control calls at the same time, each in its own context. The results are in the order of the calls.
    async fn control_together(
        &mut self,
        calls: &[(&ToolCall, CallContext)],
        batch: &BatchSummary,
    ) -> Vec<ControlResult> {
        let mut results = Vec::with_capacity(calls.len());
        for (call, cx) in calls {
            results.push(self.control(call, batch, cx).await);
        }
        results
    }
    /// Whether the task is complete, as the conditions of the profile say.
    fn is_done(&self) -> bool {
        false
    }

    /// Called before the ordinary calls of a response are checked. `count`: how many there are.
    fn begin_batch(&mut self, count: usize) {
        let _ = count;
    }
    /// Decides whether a call with valid arguments may run, by the rules of the agent. `confirmed`: the user was shown exactly this call and
    /// confirmed it. `cx` is that of the call: a decision that depends on more than the call is recorded below it.
    async fn check_call(
        &mut self,
        call: &ToolCall,
        class: EffectClass,
        confirmed: bool,
        cx: &CallContext,
    ) -> GuardDecision {
        let _ = (call, class, confirmed, cx);
        GuardDecision::Allow
    }
    /// Whether calls wait for the user's confirmation.
    fn awaits_confirmation(&self) -> bool {
        false
    }
    /// The context of a call for its tool; `at` is the position of the call in its response.
    fn tool_context(&self, at: usize, call: &ToolCall, cx: &CallContext) -> ToolCallContext;
    /// Called before an ordinary call begins. `cx` is that of the call.
    async fn call_begins(&mut self, call: &ToolCall, cx: &CallContext) {
        let _ = (call, cx);
    }
    /// Called when a call that has begun is over. `outcome`: `None` if it has not reached its tool.
    async fn call_is_over(&mut self, call: &ToolCall, outcome: Option<&ToolOutcome>, cx: &CallContext) {
        let _ = (call, outcome, cx);
    }
    /// Waits for the calls of a response. `quiet`: no filler message may be sent meanwhile.
    async fn run_batch(
        &mut self,
        work: BoxFuture<'_, Vec<CallResult>>,
        quiet: bool,
        cx: &CallContext,
    ) -> Vec<CallResult> {
        let _ = (quiet, cx);
        work.await
    }
    /// The result of a call as text for the model, where the agent replaces the usual one.
    fn result_text(&mut self, call: &ToolCall, outcome: &ToolOutcome) -> Option<String> {
        let _ = (call, outcome);
        None
    }
    /// Records a call that the rules refused.
    fn call_refused(&mut self, call: &ToolCall, text: &str, cx: &CallContext) {
        let _ = (call, text, cx);
    }
    /// Records a call that did not reach a tool: rules refused it, or its name or arguments are wrong. `cx` is that of the call. It is
    /// called after [`call_refused`](Self::call_refused) or [`call_finished`](Self::call_finished).
    fn call_not_sent(&mut self, call: &ToolCall, text: &str, cx: &CallContext) {
        let _ = (call, text, cx);
    }
    /// Records a call that ran, or that no tool could take.
    fn call_finished(&mut self, finished: FinishedCall<'_>, state: &LoopState, cx: &CallContext) {
        let _ = (finished, state, cx);
    }
    /// Called after all calls of a response.
    ///
    /// # Errors
    /// The status that ends the run: a hook failed.
    async fn batch_finished(&mut self, cx: &CallContext) -> Result<(), AgentStatus> {
        let _ = cx;
        Ok(())
    }
}

/// An ordinary call with its outcome.
pub(crate) struct FinishedCall<'a> {
    /// The call.
    pub(crate) call: &'a ToolCall,
    /// What came of it.
    pub(crate) outcome: ToolOutcome,
    /// Its result as text for the model.
    pub(crate) text: &'a str,
}

/// The result of a control call.
pub(crate) struct ControlResult {
    /// The text for the model.
    pub(crate) text: String,
    /// How it counts.
    pub(crate) effect: ControlEffect,
}

/// How a control call counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ControlEffect {
    /// It neither succeeded nor failed.
    None,
    /// It succeeded.
    Succeeded,
    /// It succeeded, and the work moved on to another item or step: calls from before do not count as repeated.
    MovedOn,
    /// It failed.
    Failed,
    /// It completed the task; the loop ends, or asks for a closing message.
    Completed,
}

/// The decision on an ordinary call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GuardDecision {
    /// It may run.
    Allow,
    /// It may not run; the text for the model.
    Refuse(String),
    /// The user must confirm it first; the text for the model.
    AwaitConfirmation(String),
}
