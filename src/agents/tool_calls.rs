//! The tool calls of one model response: ordinary tools first, in parallel where they only read, then slot tools and `task_completed`.
//!
//! Results are in the order of the calls. Every call id gets exactly one result, whatever happens, because the APIs of models reject
//! a transcript with a call that has no result (docs/internals/tool-call.md).

use std::{collections::BTreeMap, sync::Arc};

use futures::{
    StreamExt,
    future::{BoxFuture, ready},
    stream,
};
use minijinja::context;
use segue_engine::{
    conversation::{AgentKind, EventKind},
    ids::ToolName,
    text::{ELLIPSIS, TextLimit, truncate},
};
use serde_json::Value as Json;

use super::{
    AgentRequest,
    agent_loop::AgentLoop,
    completion::{RunRecorder, TASK_COMPLETED},
    hooks::ToolRecord,
    policy::{self, PolicyDecision},
    progress::ProgressFeed,
    slot_tools,
    slots::RunSlots,
};
use crate::{
    context::CallContext,
    conversation::ReplySink,
    llm::{ToolArguments, ToolCall, ToolList},
    prompts::PromptSet,
    tools::{
        EffectClass, FailureKind, ToolCallContext, ToolCaller, ToolOutcome,
        invoke::{self, CheckedCall},
    },
};

/// Ordinary calls that run at the same time.
const MAX_PARALLEL_CALLS: usize = 8;
/// Characters of a result that are stored in its event.
const MAX_SUMMARY_CHARS: usize = 400;

/// The results of the calls of one model response.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct BatchSummary {
    /// Calls that succeeded.
    pub(super) succeeded: u32,
    /// Calls that failed.
    pub(super) failed: u32,
    /// Calls that the rules of the agent's configuration refused.
    pub(super) refused: u32,
    /// Whether calls wait for the user's confirmation.
    pub(super) awaiting_confirmation: bool,
    /// Whether `task_completed` was called.
    pub(super) completed: bool,
    /// A failure that must end the run: the tool and the reason.
    pub(super) fatal: Option<(String, String)>,
    /// The ordinary calls and their results, for hooks.
    pub(super) records: Vec<ToolRecord>,
}

/// Where the calls come from.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CallOrigin {
    /// The user was shown exactly these calls and confirmed them.
    pub(super) confirmed: bool,
    /// The agent sent a text with the calls, so that no filler is needed.
    pub(super) text_shown: bool,
}

impl AgentLoop<'_> {
    /// Runs the calls of one model response and adds the result of each to the transcript.
    pub(super) async fn run_calls(
        &mut self,
        calls: &[ToolCall],
        origin: CallOrigin,
        out: &mut dyn ReplySink,
        cx: &CallContext,
    ) -> BatchSummary {
        let (request, prompts, profile) = (self.request, self.prompts, self.profile);
        let mut summary = BatchSummary::default();
        let (control, ordinary): (Vec<_>, Vec<_>) =
            calls.iter().enumerate().partition(|(_, call)| self.is_control(call));
        // A call that changes something never runs in parallel: effects happen in the order in which the model wrote the calls.
        let parallel =
            if ordinary.iter().all(|(_, call)| is_read_only(call, request)) { MAX_PARALLEL_CALLS } else { 1 };
        // Progress of one of several parallel calls is not shown.
        let progress = Some(self.fillers.listen()).filter(|_| ordinary.len() == 1);
        let mut pending: Vec<BoxFuture<'_, CallResult>> = Vec::with_capacity(ordinary.len());
        for (at, call) in &ordinary {
            // A call that cannot run does not count towards `max_calls`, and the user is not asked to confirm it.
            let checked = match check_call(call, request) {
                Ok(checked) => checked,
                Err(outcome) => {
                    pending.push(Box::pin(ready(CallResult::Outcome(outcome))));
                    continue;
                }
            };
            pending.push(match self.policy.decide(call, checked.effect(), origin.confirmed, &self.slots, prompts) {
                PolicyDecision::Allow => {
                    let context = tool_context(*at, call, request, progress.clone(), cx);
                    Box::pin(async move { CallResult::Outcome(checked.send(&context, profile.tool_timeout).await) })
                }
                PolicyDecision::Refuse(why) => Box::pin(ready(CallResult::Refused(why))),
                PolicyDecision::NeedsConfirmation => {
                    Box::pin(ready(CallResult::AwaitsConfirmation(policy_text(prompts, "held"))))
                }
                PolicyDecision::BlockedByConfirmation => {
                    Box::pin(ready(CallResult::Refused(policy_text(prompts, "behind"))))
                }
            });
        }
        let quiet = origin.text_shown || pending.is_empty() || self.policy.awaits_confirmation();
        let work = stream::iter(pending).buffered(parallel).collect();
        let call_results: Vec<CallResult> =
            self.fillers.run_with_fillers(work, quiet, &mut self.recorder, out, cx).await;
        let mut results: Vec<(usize, Arc<str>)> = Vec::with_capacity(calls.len());
        for ((at, call), result) in ordinary.iter().zip(call_results) {
            results.push((*at, self.record_call(call, result, &mut summary, cx).into()));
        }
        summary.awaiting_confirmation = self.policy.awaits_confirmation();
        for (at, call) in control {
            results.push((at, self.run_control(call, &mut summary).into()));
        }
        results.sort_by_key(|(at, _)| *at);
        for ((_, text), call) in results.into_iter().zip(calls) {
            self.transcript.push_result(call, text);
        }
        summary
    }

    /// Runs one call of a built-in tool; returns the result for the model.
    fn run_control(&mut self, call: &ToolCall, summary: &mut BatchSummary) -> String {
        let prompts = self.prompts;
        if &*call.name != TASK_COMPLETED {
            let before = summary.succeeded;
            let text = set_slot(call, self.request, &mut self.slots, prompts, summary);
            if summary.succeeded > before {
                // A recorded value is an effect that the agent may mention.
                self.policy.record_effect(&call.name, EffectClass::Idempotent);
            }
            text
        } else if summary.awaiting_confirmation {
            policy_text(prompts, "behind")
        } else if summary.failed + summary.refused > 0 {
            // The model called `task_completed` before it saw the failure; it must see the failure first.
            result_text(prompts, "not_completed", context! { outcome => "not_completed" })
        } else {
            summary.completed = true;
            result_text(prompts, "completed", context! { outcome => "completed" })
        }
    }

    /// Records the result of a call as an event and in the counts; returns the text for the model.
    fn record_call(
        &mut self,
        call: &ToolCall,
        result: CallResult,
        summary: &mut BatchSummary,
        cx: &CallContext,
    ) -> String {
        let request = self.request;
        let (mut outcome, text) = match result {
            CallResult::AwaitsConfirmation(text) => return text,
            CallResult::Refused(text) => {
                summary.refused += 1;
                self.recorder.record(tool_executed(call, request, "refused", &text, BTreeMap::new()), cx);
                return text;
            }
            CallResult::Outcome(outcome) => {
                let text = text_for_model(call, &outcome, &self.offered, self.prompts);
                (outcome, text)
            }
        };
        let effect = request.tools.get(&call.name).map(|entry| entry.info.effect);
        let (status, result) =
            count_outcome(call, &mut outcome, &text, request.hooks.is_some(), &mut self.recorder, summary);
        if let (ToolOutcome::Done(_), Some(effect)) = (&outcome, effect) {
            self.policy.record_effect(&call.name, effect);
        }
        let changes = effect.is_some_and(|effect| effect != EffectClass::Read);
        let origins = match call.arguments.as_json().filter(|_| changes) {
            Some(arguments) => policy::origins(arguments, self.transcript.visible_messages()),
            None => BTreeMap::new(),
        };
        self.recorder.record(tool_executed(call, request, status, &text, origins), cx);
        if request.hooks.is_some() {
            summary.records.push(ToolRecord {
                call_id: call.id.clone(),
                tool: call.name.clone(),
                arguments: call.arguments.as_json().cloned().unwrap_or(Json::Null),
                status: status.into(),
                result,
            });
        }
        text
    }

    /// Whether a call is one of a built-in tool that the model was offered.
    fn is_control(&self, call: &ToolCall) -> bool {
        if !self.offered.iter().any(|tool| tool.name == call.name) {
            return false;
        }
        match self.profile.kind {
            AgentKind::Open => &*call.name == TASK_COMPLETED,
            AgentKind::Task => {
                slot_of(call).is_some_and(|slot| self.profile.exit_slots.iter().any(|name| **name == *slot))
            }
        }
    }
}

/// The result of an ordinary call.
enum CallResult {
    /// The outcome of the tool, or of a call that no tool could take.
    Outcome(ToolOutcome),
    /// The rules of the agent's configuration refused it; the text for the model.
    Refused(String),
    /// It waits for the user's confirmation; the text for the model.
    AwaitsConfirmation(String),
}

fn slot_of(call: &ToolCall) -> Option<&str> {
    call.name.strip_prefix(slot_tools::PREFIX)
}

fn is_read_only(call: &ToolCall, request: &AgentRequest<'_>) -> bool {
    request.tools.get(&call.name).is_none_or(|entry| entry.info.effect == EffectClass::Read)
}

/// Finds the tool of an ordinary call and checks the arguments.
#[expect(clippy::result_large_err, reason = "the error is the outcome itself, and one call has one")]
fn check_call(call: &ToolCall, request: &AgentRequest<'_>) -> Result<CheckedCall, ToolOutcome> {
    match &call.arguments {
        ToolArguments::Json(arguments) => CheckedCall::find(&request.tools, &call.name, arguments.as_ref().clone()),
        ToolArguments::Malformed { .. } if request.tools.get(&call.name).is_none() => {
            Err(ToolOutcome::failed(FailureKind::UnknownTool, ""))
        }
        ToolArguments::Malformed { .. } => Err(ToolOutcome::failed(FailureKind::BadArguments, "")),
    }
}

/// The context of a call for its tool.
pub(super) fn tool_context(
    at: usize,
    call: &ToolCall,
    request: &AgentRequest<'_>,
    progress: Option<ProgressFeed>,
    cx: &CallContext,
) -> ToolCallContext {
    let cx = cx.step(format!("tool.{at}"));
    let source = request.tools.get(&call.name).map(|entry| entry.info.source.clone()).unwrap_or_default();
    let meta = request.mcp_meta.get(&*source).and_then(Json::as_object).cloned().unwrap_or_default();
    ToolCallContext {
        idempotency_key: invoke::idempotency_key(request.conversation.id.as_str(), request.conversation.turns, &cx),
        cx,
        metadata: request.metadata.clone(),
        caller: ToolCaller {
            conversation: request.conversation.id.as_str().into(),
            agent: Some(request.call.agent.as_str().into()),
            flow: Some(request.call.flow_id.as_str().into()),
        },
        meta: Arc::new(meta),
        progress: progress.map(|progress| progress.listen(source)),
        client_requests: None,
        effect: None,
    }
}

/// The result of a call as text for the model.
fn text_for_model(call: &ToolCall, outcome: &ToolOutcome, offered: &ToolList, prompts: &PromptSet) -> String {
    match (outcome, &call.arguments) {
        (_, ToolArguments::Malformed { error, .. }) => {
            result_text(prompts, "arguments_not_json", context! { outcome => "arguments_not_json", reason => &**error })
        }
        (ToolOutcome::Failed(failure), _) if failure.kind == FailureKind::UnknownTool => unknown_tool(offered, prompts),
        _ => outcome.for_model(),
    }
}

/// Counts an outcome and records its result. Returns the name of the outcome and, if there are hooks, the structured result.
fn count_outcome(
    call: &ToolCall,
    outcome: &mut ToolOutcome,
    text: &str,
    has_hooks: bool,
    recorder: &mut RunRecorder<'_>,
    summary: &mut BatchSummary,
) -> (&'static str, Json) {
    let text_for_hooks = || if has_hooks { Json::from(text) } else { Json::Null };
    match outcome {
        ToolOutcome::Done(output) => {
            summary.succeeded += 1;
            let result = output.structured.take().unwrap_or_else(|| Json::from(text));
            let wanted = if has_hooks { result.clone() } else { Json::Null };
            recorder.record_result(&call.name, result);
            ("done", wanted)
        }
        ToolOutcome::Failed(failure) => {
            summary.failed += 1;
            if failure.fatal && summary.fatal.is_none() {
                summary.fatal = Some((call.name.to_string(), failure.message.clone()));
            }
            ("failed", text_for_hooks())
        }
        ToolOutcome::Unknown(_) => {
            summary.failed += 1;
            ("unknown", text_for_hooks())
        }
        ToolOutcome::Pending(_) => ("pending", text_for_hooks()),
    }
}

pub(super) fn tool_executed(
    call: &ToolCall,
    request: &AgentRequest<'_>,
    status: &str,
    text: &str,
    origins: BTreeMap<String, String>,
) -> EventKind {
    EventKind::ToolExecuted {
        server: None,
        tool_name: ToolName::new(call.name.clone()),
        agent_id: Some(request.call.agent.clone()),
        arguments: call.arguments.as_json().cloned().unwrap_or(Json::Null),
        status: status.into(),
        summary: Some(truncate(text, TextLimit::Chars(MAX_SUMMARY_CHARS), ELLIPSIS).into_owned()),
        origins,
    }
}

fn set_slot(
    call: &ToolCall,
    request: &AgentRequest<'_>,
    slots: &mut RunSlots<'_>,
    prompts: &PromptSet,
    summary: &mut BatchSummary,
) -> String {
    let name = slot_of(call).unwrap_or_default();
    let refused = |summary: &mut BatchSummary, reason: String| {
        summary.failed += 1;
        render_slot(prompts, context! { outcome => "refused", name, reason })
    };
    let written = match &call.arguments {
        ToolArguments::Json(arguments) => match arguments.get(slot_tools::PARAMETER) {
            Some(written) => written.clone(),
            None => return refused(summary, format!("the argument `{}` is missing", slot_tools::PARAMETER)),
        },
        ToolArguments::Malformed { error, .. } => {
            return refused(summary, format!("the arguments are not valid JSON ({error})"));
        }
    };
    let Some(definition) = slots.definition(name) else { return refused(summary, "there is no such value".into()) };
    let value = match slot_tools::coerce(&definition.kind, &written) {
        Ok(value) => value,
        Err(reason) => return refused(summary, reason),
    };
    let before = slots.value(name).clone();
    slots.record(name, value.clone());
    if !value.is_null()
        && let Err(reason) = slot_tools::validate(slots, request.project, name)
    {
        slots.record(name, before);
        return refused(summary, reason);
    }
    summary.succeeded += 1;
    let outcome = if value.is_null() { "cleared" } else { "recorded" };
    render_slot(prompts, context! { outcome, name, value => segue_engine::template::from_json(&value) })
}

fn render_slot(prompts: &PromptSet, variables: minijinja::Value) -> String {
    prompts.render(&prompts.agent_slot_results, variables).unwrap_or_default().trim().to_owned()
}

fn policy_text(prompts: &PromptSet, outcome: &str) -> String {
    policy::text_for_model(prompts, context! { outcome })
}

fn result_text(prompts: &PromptSet, outcome: &str, variables: minijinja::Value) -> String {
    prompts
        .render(&prompts.agent_tool_results, variables)
        .map_or_else(|_| format!("error: {outcome}"), |t| t.trim().to_owned())
}

fn unknown_tool(offered: &ToolList, prompts: &PromptSet) -> String {
    let names: Vec<String> = offered.iter().map(|tool| tool.name.to_string()).collect();
    result_text(prompts, "unknown_tool", context! { outcome => "unknown_tool", names })
}
