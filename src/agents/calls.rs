//! The calls of one answer: ordinary tools together, results in call order; slot tools after them; the finishing tool last.
//!
//! Order and danger (docs/lifecycles/tool-call.md): every call id gets exactly one result, whatever happens, because a
//! model wire refuses a transcript with an open call.

use std::sync::Arc;

use futures::{StreamExt, future::BoxFuture, stream};
use minijinja::context;
use segue_engine::{
    conversation::{AgentKind, EventKind},
    ids::ToolName,
    text::{CUT_MARK, Keep, truncate},
};
use serde_json::Value as Json;

use super::{
    AgentTask,
    completion::{Ledger, TASK_COMPLETED},
    profile::Profile,
    session::Session,
    slot_tools,
    slots::RunSlots,
};
use crate::{
    cx::Cx,
    llm::{Arguments, ToolCall},
    prompts::PromptSet,
    tools::{Caller, Effect, FailureKind, ToolCx, ToolOutcome, invoke},
};

/// Ordinary calls that run at the same time.
const TOGETHER: usize = 8;
/// Characters of a result that its event keeps.
const SUMMARY: usize = 400;

/// What the calls of one answer came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// Calls that worked.
    pub(super) done: u32,
    /// Calls that did not.
    pub(super) failed: u32,
    /// Whether the finishing tool was called.
    pub(super) completed: bool,
    /// A failure that must end the run: the tool and why.
    pub(super) fatal: Option<(String, String)>,
}

/// What does not change during a run.
#[derive(Clone, Copy)]
pub(super) struct Setting<'a> {
    pub(super) task: &'a AgentTask<'a>,
    pub(super) profile: &'a Profile,
    pub(super) prompts: &'a PromptSet,
}

/// Runs the calls of one answer and answers each in the session.
pub(super) async fn run(
    calls: &[ToolCall],
    setting: Setting<'_>,
    slots: &mut RunSlots<'_>,
    session: &mut Session,
    ledger: &mut Ledger<'_>,
    cx: &Cx,
) -> Tally {
    let Setting { task, profile, prompts } = setting;
    let mut tally = Tally::default();
    let ordinary: Vec<(usize, &ToolCall)> =
        calls.iter().enumerate().filter(|(_, call)| !is_control(call, profile)).collect();
    // A call that changes something never runs beside another: the order the model wrote is the order of effects.
    let together = if ordinary.iter().all(|(_, call)| harmless(call, task)) { TOGETHER } else { 1 };
    let mut waiting: Vec<BoxFuture<'_, ToolOutcome>> = Vec::with_capacity(ordinary.len());
    for (at, call) in &ordinary {
        waiting.push(Box::pin(one(*at, call, task, profile, cx)));
    }
    let outcomes: Vec<ToolOutcome> = stream::iter(waiting).buffered(together).collect().await;
    let mut results: Vec<(usize, Arc<str>)> = Vec::with_capacity(calls.len());
    for ((at, call), outcome) in ordinary.iter().zip(outcomes) {
        let text = told(call, &outcome, task, profile, prompts);
        note(call, &outcome, &text, ledger, &mut tally, cx);
        results.push((*at, text.into()));
    }
    for (at, call) in calls.iter().enumerate().filter(|(_, call)| is_control(call, profile)) {
        let text = if &*call.name == TASK_COMPLETED {
            tally.completed = true;
            words(prompts, "completed", context! { outcome => "completed" })
        } else {
            set_slot(call, task, slots, prompts, &mut tally)
        };
        results.push((at, text.into()));
    }
    results.sort_by_key(|(at, _)| *at);
    for ((_, text), call) in results.into_iter().zip(calls) {
        session.answer(call, text);
    }
    tally
}

fn is_control(call: &ToolCall, profile: &Profile) -> bool {
    match profile.kind {
        AgentKind::Open => &*call.name == TASK_COMPLETED,
        AgentKind::Task => slot_of(call).is_some_and(|slot| profile.exit_slots.iter().any(|name| **name == *slot)),
    }
}

fn slot_of(call: &ToolCall) -> Option<&str> {
    call.name.strip_prefix(slot_tools::PREFIX)
}

fn harmless(call: &ToolCall, task: &AgentTask<'_>) -> bool {
    task.tools.get(&call.name).is_none_or(|entry| entry.spec.effect == Effect::Read)
}

/// One ordinary call.
async fn one(at: usize, call: &ToolCall, task: &AgentTask<'_>, profile: &Profile, cx: &Cx) -> ToolOutcome {
    let Some(entry) = task.tools.get(&call.name) else {
        return ToolOutcome::failed(FailureKind::UnknownTool, "");
    };
    let Arguments::Json(arguments) = &call.arguments else {
        return ToolOutcome::failed(FailureKind::BadArguments, "");
    };
    let cx = cx.step(format!("tool.{at}"));
    let meta = task.meta.get(&*entry.spec.source).and_then(Json::as_object).cloned().unwrap_or_default();
    let tool_cx = ToolCx {
        idempotency_key: invoke::idempotency_key(task.conversation.id.as_str(), task.conversation.turns, &cx.key),
        cx,
        metadata: task.metadata.clone(),
        caller: Caller {
            conversation: task.conversation.id.as_str().into(),
            agent: Some(task.call.agent.as_str().into()),
            flow: Some(task.call.flow_id.as_str().into()),
        },
        meta: Arc::new(meta),
        progress: None,
        inquired: None,
    };
    invoke::invoke(&task.tools, &call.name, arguments.as_ref().clone(), &tool_cx, profile.tool_timeout).await
}

/// What the model is told of a call.
fn told(
    call: &ToolCall,
    outcome: &ToolOutcome,
    task: &AgentTask<'_>,
    profile: &Profile,
    prompts: &PromptSet,
) -> String {
    match (outcome, &call.arguments) {
        (_, Arguments::Malformed { error, .. }) => {
            words(prompts, "arguments_not_json", context! { outcome => "arguments_not_json", reason => &**error })
        }
        (ToolOutcome::Failed(failure), _) if failure.kind == FailureKind::UnknownTool => {
            unknown_tool(task, profile, prompts)
        }
        _ => outcome.for_model(),
    }
}

fn note(call: &ToolCall, outcome: &ToolOutcome, text: &str, ledger: &mut Ledger<'_>, tally: &mut Tally, cx: &Cx) {
    let status = match outcome {
        ToolOutcome::Done(output) => {
            tally.done += 1;
            ledger.result(&call.name, output.structured.clone().unwrap_or_else(|| Json::from(text)));
            "done"
        }
        ToolOutcome::Failed(failure) => {
            tally.failed += 1;
            if failure.fatal && tally.fatal.is_none() {
                tally.fatal = Some((call.name.to_string(), failure.message.clone()));
            }
            "failed"
        }
        ToolOutcome::Unknown(_) => {
            tally.failed += 1;
            "unknown"
        }
        ToolOutcome::Pending(_) => "pending",
    };
    let executed = EventKind::ToolExecuted {
        server: None,
        tool_name: ToolName::new(call.name.clone()),
        agent_id: Some(ledger.agent().clone()),
        arguments: call.arguments.as_json().cloned().unwrap_or(Json::Null),
        status: status.into(),
        summary: Some(truncate(text, Keep::Chars(SUMMARY), CUT_MARK).into_owned()),
    };
    ledger.event(executed, cx);
}

fn set_slot(
    call: &ToolCall,
    task: &AgentTask<'_>,
    slots: &mut RunSlots<'_>,
    prompts: &PromptSet,
    tally: &mut Tally,
) -> String {
    let name = slot_of(call).unwrap_or_default();
    let refused = |tally: &mut Tally, reason: String| {
        tally.failed += 1;
        render_slot(prompts, context! { outcome => "refused", name, reason })
    };
    let written = match &call.arguments {
        Arguments::Json(arguments) => match arguments.get(slot_tools::PARAMETER) {
            Some(written) => written.clone(),
            None => return refused(tally, format!("the argument `{}` is missing", slot_tools::PARAMETER)),
        },
        Arguments::Malformed { error, .. } => {
            return refused(tally, format!("the arguments are not valid JSON ({error})"));
        }
    };
    let Some(definition) = slots.definition(name) else { return refused(tally, "there is no such value".into()) };
    let value = match slot_tools::coerce(&definition.kind, &written) {
        Ok(value) => value,
        Err(reason) => return refused(tally, reason),
    };
    let before = slots.value(name).clone();
    slots.record(name, value.clone());
    if !value.is_null()
        && let Err(reason) = slot_tools::validate(slots, task.project, name)
    {
        slots.record(name, before);
        return refused(tally, reason);
    }
    tally.done += 1;
    let outcome = if value.is_null() { "cleared" } else { "recorded" };
    render_slot(prompts, context! { outcome, name, value => segue_engine::template::from_json(&value) })
}

fn render_slot(prompts: &PromptSet, variables: minijinja::Value) -> String {
    prompts.render(&prompts.agent_slot_results, variables).unwrap_or_default().trim().to_owned()
}

fn words(prompts: &PromptSet, outcome: &str, variables: minijinja::Value) -> String {
    prompts
        .render(&prompts.agent_tool_results, variables)
        .map_or_else(|_| format!("error: {outcome}"), |t| t.trim().to_owned())
}

fn unknown_tool(task: &AgentTask<'_>, profile: &Profile, prompts: &PromptSet) -> String {
    let mut names: Vec<String> = task.tools.specs().map(|spec| spec.name.to_string()).collect();
    match profile.kind {
        AgentKind::Open => names.push(TASK_COMPLETED.into()),
        AgentKind::Task => names.extend(profile.exit_slots.iter().map(|name| format!("{}{name}", slot_tools::PREFIX))),
    }
    words(prompts, "unknown_tool", context! { outcome => "unknown_tool", names })
}
