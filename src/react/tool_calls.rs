//! The tool calls of one model response: ordinary tools first, in parallel where they only read, then control tools.
//!
//! Results are in the order of the calls. Every call id gets exactly one result, whatever happens, because the APIs of models reject
//! a transcript with a call that has no result (docs/internals/tool-call.md).

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use futures::{
    StreamExt,
    future::{BoxFuture, ready},
    stream,
};
use minijinja::context;

use super::{
    ReactLoop,
    host::{ControlEffect, ControlResult, FinishedCall, GuardDecision},
};
use crate::{
    context::CallContext,
    limits,
    llm::{ChatMessage, DropReason, ToolArguments, ToolCall, ToolList},
    prompts::PromptSet,
    tools::{EffectClass, FailureKind, ToolOutcome, invoke::CheckedCall, tool_set::ToolSet},
};

/// Ordinary calls that run at the same time.
const MAX_PARALLEL_CALLS: usize = 8;

/// The results of the calls of one model response.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct BatchSummary {
    /// Calls that succeeded.
    pub(crate) succeeded: u32,
    /// Calls that failed.
    pub(crate) failed: u32,
    /// Calls that rules refused.
    pub(crate) refused: u32,
    /// Whether calls wait for the user's confirmation.
    pub(crate) awaiting_confirmation: bool,
    /// Whether a control call completed the task.
    pub(crate) completed: bool,
    /// A failure that must end the run: the tool and the reason.
    pub(crate) fatal: Option<(String, String)>,
}

/// Where the calls come from.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CallOrigin {
    /// The user was shown exactly these calls and confirmed them.
    pub(crate) confirmed: bool,
    /// The agent sent a text with the calls, so that no filler is needed.
    pub(crate) text_shown: bool,
}

/// The result of an ordinary call.
pub(crate) enum CallResult {
    /// The outcome of the tool.
    Outcome(ToolOutcome),
    /// No tool could take it: its name or its arguments are wrong.
    NotSent(ToolOutcome),
    /// Rules refused it; the text for the model.
    Refused(String),
    /// It waits for the user's confirmation; the text for the model.
    AwaitsConfirmation(String),
}

impl ReactLoop<'_> {
    /// Runs the calls of one model response and adds the result of each to the messages.
    pub(super) async fn run_calls(&mut self, calls: &[ToolCall], origin: CallOrigin, cx: &CallContext) -> BatchSummary {
        let mut summary = BatchSummary::default();
        let (for_skills, others): (Vec<_>, Vec<_>) =
            calls.iter().enumerate().partition(|(_, call)| self.is_for_skills(call));
        let (control, ordinary): (Vec<_>, Vec<_>) =
            others.into_iter().partition(|(_, call)| self.is_offered(call) && self.host.is_control(call));
        // A call that changes something never runs in parallel: effects happen in the order in which the model wrote the calls.
        // A composite call has its own admission, so that all of them may begin.
        let parallel = match ordinary.iter().map(|(_, call)| class_of(call, self.tools)).max_by_key(|class| match class
        {
            EffectClass::Read => 0,
            EffectClass::Composite => 1,
            EffectClass::Idempotent | EffectClass::Write => 2,
        }) {
            None | Some(EffectClass::Read) => MAX_PARALLEL_CALLS,
            Some(EffectClass::Composite) => limits::MODEL_CALLS,
            Some(EffectClass::Idempotent | EffectClass::Write) => 1,
        };
        self.host.begin_batch(ordinary.len());
        let mut pending: Vec<BoxFuture<'static, CallResult>> = Vec::with_capacity(ordinary.len());
        let mut has_begun = Vec::with_capacity(ordinary.len());
        for (at, call) in &ordinary {
            let (work, begins) = match self.prepare_call(*at, call, origin, cx).await {
                Ok(work) => (work, true),
                Err(result) => (Box::pin(ready(result)) as BoxFuture<'static, CallResult>, false),
            };
            if begins {
                self.host.call_begins(call, &cx.step(format!("tool.{at}"))).await;
            }
            pending.push(work);
            has_begun.push(begins);
        }
        // With `on_tool_error: fail` nothing starts after a failure, so one call runs after the other.
        let fails = self.profile.fails_on_tool_error;
        let (parallel, not_started) = if fails { (1, self.not_started()) } else { (parallel, String::new()) };
        if fails {
            let has_failed = Arc::new(AtomicBool::new(false));
            let guarded = |work| unless_failed(work, has_failed.clone(), not_started.clone());
            pending = pending.into_iter().map(guarded).collect();
        }
        let quiet = origin.text_shown || pending.is_empty() || self.host.awaits_confirmation();
        let work = Box::pin(stream::iter(pending).buffered(parallel).collect());
        let call_results = self.host.run_batch(work, quiet, cx).await;
        let mut results: Vec<(usize, Arc<str>)> = Vec::with_capacity(calls.len());
        for (((at, call), result), begun) in ordinary.iter().zip(call_results).zip(has_begun) {
            if begun {
                let outcome = match &result {
                    CallResult::Outcome(outcome) => Some(outcome),
                    _ => None,
                };
                self.host.call_is_over(call, outcome, &cx.step(format!("tool.{at}"))).await;
            }
            let not_sent = !matches!(result, CallResult::Outcome(_) | CallResult::AwaitsConfirmation(_));
            let text = self.record_call(call, result, &mut summary, cx).await;
            if not_sent {
                self.host.call_not_sent(call, &text, &cx.step(format!("tool.{at}")));
            }
            results.push((*at, text.into()));
        }
        for (at, call) in for_skills {
            if fails && summary.failed > 0 {
                results.push((at, not_started.as_str().into()));
                continue;
            }
            let Some(skills) = &mut self.services.skills else { continue };
            let (text, is_done) = skills.call(call, self.prompts);
            let count = if is_done { &mut summary.succeeded } else { &mut summary.failed };
            *count += 1;
            self.host.skill_called(call, &text, is_done, &cx.step(format!("tool.{at}")));
            results.push((at, text.into()));
        }
        summary.awaiting_confirmation = self.host.awaits_confirmation();
        let mut control = control.as_slice();
        while !control.is_empty() {
            if fails && summary.failed > 0 {
                results.extend(control.iter().map(|(at, _)| (*at, Arc::from(not_started.as_str()))));
                break;
            }
            let (group, rest) = control.split_at(if fails { 1 } else { self.together(control) });
            control = rest;
            for (at, call, result) in self.run_control(group, &summary, cx).await {
                match result.effect {
                    ControlEffect::None => {}
                    ControlEffect::Succeeded => summary.succeeded += 1,
                    ControlEffect::MovedOn => {
                        summary.succeeded += 1;
                        self.services.guards.moved_on();
                    }
                    ControlEffect::Failed => summary.failed += 1,
                    ControlEffect::Completed => summary.completed = true,
                }
                let text = match &self.services.results {
                    Some(store) => store.intercept(&call.name, result.text).await,
                    None => result.text,
                };
                results.push((at, text.into()));
            }
        }
        results.sort_by_key(|(at, _)| *at);
        for ((_, text), call) in results.into_iter().zip(calls) {
            self.state.messages.push(ChatMessage::tool(call, text));
        }
        summary
    }

    /// The result of a call that did not start because another one had failed.
    fn not_started(&self) -> String {
        result_text(self.prompts, "not_started", context! { outcome => "not_started" })
    }

    /// How many of these control calls run at the same time: the first ones, at least one. Calls with others between them do not.
    fn together(&self, calls: &[(usize, &ToolCall)]) -> usize {
        let adjacent =
            calls.iter().zip(calls.iter().skip(1)).take_while(|((at, _), (next, _))| at + 1 == *next).count() + 1;
        let calls: Vec<&ToolCall> = calls.iter().take(adjacent).map(|(_, call)| *call).collect();
        self.host.together(&calls).clamp(1, adjacent)
    }

    /// Runs control calls at the same time. Long results are stored afterwards, so that their ids have the order of the calls.
    async fn run_control<'c>(
        &mut self,
        group: &[(usize, &'c ToolCall)],
        summary: &BatchSummary,
        cx: &CallContext,
    ) -> Vec<(usize, &'c ToolCall, ControlResult)> {
        let calls: Vec<_> = group.iter().map(|(at, call)| (*call, cx.step(format!("tool.{at}")))).collect();
        let results = match calls.as_slice() {
            [(call, cx)] => vec![self.host.control(call, summary, cx).await],
            calls => self.host.control_together(calls, summary).await,
        };
        group.iter().zip(results).map(|((at, call), result)| (*at, *call, result)).collect()
    }

    /// Checks an ordinary call and returns its work, or the result of one that may not run. A call that cannot run does not count for the
    /// rules, and the user is not asked to confirm it.
    async fn prepare_call(
        &mut self,
        at: usize,
        call: &ToolCall,
        origin: CallOrigin,
        cx: &CallContext,
    ) -> Result<BoxFuture<'static, CallResult>, CallResult> {
        let checked = match checked(call, self.tools) {
            Ok(checked) => checked,
            Err(outcome) => return Err(CallResult::NotSent(outcome)),
        };
        if let Some(text) = self.services.skills.as_ref().and_then(|skills| skills.refusal(&call.name, self.prompts)) {
            return Err(CallResult::Refused(text));
        }
        let guarded = match origin.confirmed {
            true => GuardDecision::Allow,
            false => self.services.guards.check(call, checked.effect()),
        };
        let decision = match guarded {
            GuardDecision::Allow => {
                let call_cx = cx.step(format!("tool.{at}"));
                self.host.check_call(call, checked.effect(), origin.confirmed, &call_cx).await
            }
            decided => decided,
        };
        match decision {
            GuardDecision::Allow => {
                let context = self.host.tool_context(at, call, cx);
                // The steps of a composite call have limits of their own.
                let timeout = self.profile.tool_timeout.filter(|_| checked.effect() != EffectClass::Composite);
                Ok(Box::pin(async move { CallResult::Outcome(checked.send(&context, timeout).await) }))
            }
            GuardDecision::Refuse(text) => Err(CallResult::Refused(text)),
            GuardDecision::AwaitConfirmation(text) => Err(CallResult::AwaitsConfirmation(text)),
        }
    }

    /// Whether a call is one of a tool for skills.
    fn is_for_skills(&self, call: &ToolCall) -> bool {
        call.arguments.drop_reason().is_none()
            && self.services.skills.as_ref().is_some_and(|skills| skills.is_own(&call.name))
    }

    /// Refuses all calls of a response.
    pub(super) fn refuse_calls(&mut self, calls: &[ToolCall], text: &str, cx: &CallContext) {
        for (at, call) in calls.iter().enumerate() {
            if !(self.is_for_skills(call) || self.is_offered(call) && self.host.is_control(call)) {
                self.host.call_refused(call, text, cx);
                self.host.call_not_sent(call, text, &cx.step(format!("tool.{at}")));
            }
            self.state.messages.push(ChatMessage::tool(call, text));
        }
    }

    /// The result of a call as text for the model. With a store, a long result becomes a preview; the results of its own tools do not.
    async fn text_of_outcome(&mut self, call: &ToolCall, outcome: &ToolOutcome) -> String {
        let replaced = self.host.result_text(call, outcome);
        // The text of a failure begins with `error[…]:`, in a preview too. A call that reached no tool has a text of the loop.
        let is_stored = match outcome {
            ToolOutcome::Done(_) | ToolOutcome::Unknown(_) => true,
            ToolOutcome::Failed(failure) => {
                !matches!(failure.kind, FailureKind::UnknownTool | FailureKind::BadArguments)
            }
            ToolOutcome::Pending(_) => false,
        };
        let store = self.services.results.as_ref().filter(|_| is_stored);
        let Some(store) = store else {
            return replaced.unwrap_or_else(|| text_for_model(call, outcome, &self.offered_now(), self.prompts));
        };
        let text = replaced.unwrap_or_else(|| outcome.full_text());
        match self.tools.get(&call.name).is_some_and(|entry| store.is_own(&entry.info)) {
            true => text,
            false => store.intercept(&call.name, text).await,
        }
    }

    /// Records the result of a call and counts it; returns the text for the model.
    async fn record_call(
        &mut self,
        call: &ToolCall,
        result: CallResult,
        summary: &mut BatchSummary,
        cx: &CallContext,
    ) -> String {
        let outcome = match result {
            CallResult::AwaitsConfirmation(text) => return text,
            CallResult::Refused(text) => {
                summary.refused += 1;
                self.host.call_refused(call, &text, cx);
                return text;
            }
            CallResult::Outcome(outcome) | CallResult::NotSent(outcome) => outcome,
        };
        self.services.guards.finished(call, &outcome);
        let text = self.text_of_outcome(call, &outcome).await;
        match &outcome {
            ToolOutcome::Done(_) => summary.succeeded += 1,
            ToolOutcome::Failed(failure) => {
                summary.failed += 1;
                if failure.fatal && summary.fatal.is_none() {
                    summary.fatal = Some((call.name.to_string(), failure.message.clone()));
                }
            }
            ToolOutcome::Unknown(_) => summary.failed += 1,
            ToolOutcome::Pending(_) => {}
        }
        self.host.call_finished(FinishedCall { call, outcome, text: &text }, &self.state, cx);
        text
    }
}

/// The work of a call; after a failed one it does not start, and `text` is its result.
fn unless_failed(
    work: BoxFuture<'static, CallResult>,
    has_failed: Arc<AtomicBool>,
    text: String,
) -> BoxFuture<'static, CallResult> {
    Box::pin(async move {
        if has_failed.load(Ordering::SeqCst) {
            return CallResult::Refused(text);
        }
        let result = work.await;
        if let CallResult::Outcome(ToolOutcome::Failed(_) | ToolOutcome::Unknown(_))
        | CallResult::NotSent(ToolOutcome::Failed(_) | ToolOutcome::Unknown(_)) = &result
        {
            has_failed.store(true, Ordering::SeqCst);
        }
        result
    })
}

/// The effect class of a call; `read` if no tool takes it, or it can never run.
fn class_of(call: &ToolCall, tools: &ToolSet) -> EffectClass {
    let tool = tools.get(&call.name).filter(|_| call.arguments.drop_reason().is_none());
    tool.map_or(EffectClass::Read, |entry| entry.info.effect)
}

/// Finds the tool of an ordinary call and checks the arguments.
#[expect(clippy::result_large_err, reason = "the error is the outcome itself, and one call has one")]
fn checked(call: &ToolCall, tools: &ToolSet) -> Result<CheckedCall, ToolOutcome> {
    match &call.arguments {
        ToolArguments::Json(arguments) => CheckedCall::find(tools, &call.name, arguments.as_ref().clone()),
        ToolArguments::Malformed { .. }
        | ToolArguments::Dropped { reason: DropReason::NoName | DropReason::OtherType | DropReason::Unreadable }
            if tools.get(&call.name).is_none() =>
        {
            Err(ToolOutcome::failed(FailureKind::UnknownTool, ""))
        }
        ToolArguments::Malformed { .. } | ToolArguments::Dropped { .. } => {
            Err(ToolOutcome::failed(FailureKind::BadArguments, ""))
        }
    }
}

/// The result of a call as text for the model.
fn text_for_model(call: &ToolCall, outcome: &ToolOutcome, offered: &ToolList, prompts: &PromptSet) -> String {
    match (outcome, &call.arguments) {
        (_, ToolArguments::Malformed { error, .. }) => {
            result_text(prompts, "arguments_not_json", context! { outcome => "arguments_not_json", reason => &**error })
        }
        (_, ToolArguments::Dropped { reason }) => dropped(*reason, prompts),
        (ToolOutcome::Failed(failure), _) if failure.kind == FailureKind::UnknownTool => unknown_tool(offered, prompts),
        _ => outcome.for_model(),
    }
}

/// A built-in text about a call that no tool answered.
pub(crate) fn result_text(prompts: &PromptSet, outcome: &str, variables: minijinja::Value) -> String {
    prompts
        .render(&prompts.agent_tool_results, variables)
        .map_or_else(|_| format!("error: {outcome}"), |t| t.trim().to_owned())
}

/// The result of a call that could never run.
fn dropped(reason: DropReason, prompts: &PromptSet) -> String {
    let outcome = match reason {
        DropReason::NoName => "call_without_name",
        DropReason::OtherType => "call_of_other_type",
        DropReason::Unreadable => "call_unreadable",
        DropReason::TooLong => "call_too_long",
        DropReason::TooMany => "too_many_calls",
    };
    let (calls, kib) = (limits::MODEL_CALLS, limits::MODEL_ARGUMENTS / 1024);
    result_text(prompts, outcome, context! { outcome, calls, kib })
}

fn unknown_tool(offered: &ToolList, prompts: &PromptSet) -> String {
    let names: Vec<String> = offered.iter().map(|tool| tool.name.to_string()).collect();
    result_text(prompts, "unknown_tool", context! { outcome => "unknown_tool", names })
}
