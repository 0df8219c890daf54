//! The calls of one answer: ordinary tools together, results in call order; slot tools after them; the finishing tool last.
//!
//! Order and danger (docs/internals/tool-call.md): every call id gets exactly one result, whatever happens, because a
//! model wire refuses a transcript with an open call.

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
    completion::{Ledger, TASK_COMPLETED},
    gate::{self, Verdict},
    hooks::ToolRecord,
    news::News,
    run::Run,
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
const TOGETHER: usize = 8;
/// Characters of a result that its event keeps.
const SUMMARY: usize = 400;

/// What the calls of one answer came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Tally {
    /// Calls that worked.
    pub(super) done: u32,
    /// Calls that did not.
    pub(super) failed: u32,
    /// Calls that the author's rules stopped.
    pub(super) refused: u32,
    /// Whether calls wait for the user's yes.
    pub(super) held: bool,
    /// Whether the finishing tool was called.
    pub(super) completed: bool,
    /// A failure that must end the run: the tool and why.
    pub(super) fatal: Option<(String, String)>,
    /// The ordinary calls and what came of them, for hooks.
    pub(super) records: Vec<ToolRecord>,
}

/// How the calls of one answer came about.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Manner {
    /// The user was shown these very calls and said yes.
    pub(super) confirmed: bool,
    /// The agent said something itself, so nobody needs to fill the silence.
    pub(super) spoke: bool,
}

impl Run<'_> {
    /// Runs the calls of one answer and answers each in the session.
    pub(super) async fn run_calls(
        &mut self,
        calls: &[ToolCall],
        manner: Manner,
        out: &mut dyn ReplySink,
        cx: &CallContext,
    ) -> Tally {
        let (task, prompts, profile) = (self.task, self.prompts, self.profile);
        let mut tally = Tally::default();
        let (control, ordinary): (Vec<_>, Vec<_>) =
            calls.iter().enumerate().partition(|(_, call)| self.is_control(call));
        // A call that changes something never runs beside another: the order the model wrote is the order of effects.
        let together = if ordinary.iter().all(|(_, call)| harmless(call, task)) { TOGETHER } else { 1 };
        // Progress of one of several parallel calls is not shown.
        let news = Some(self.fillers.listen()).filter(|_| ordinary.len() == 1);
        let mut waiting: Vec<BoxFuture<'_, Came>> = Vec::with_capacity(ordinary.len());
        for (at, call) in &ordinary {
            // What reaches no tool is not counted, and nobody is asked about a call that cannot run.
            let checked = match checked(call, task) {
                Ok(checked) => checked,
                Err(outcome) => {
                    waiting.push(Box::pin(ready(Came::Back(outcome))));
                    continue;
                }
            };
            waiting.push(match self.gate.judge(call, checked.class(), manner.confirmed, &self.slots, prompts) {
                Verdict::Pass => {
                    let context = tool_context(*at, call, task, news.clone(), cx);
                    Box::pin(async move { Came::Back(checked.send(&context, profile.tool_timeout).await) })
                }
                Verdict::Refused(why) => Box::pin(ready(Came::Refused(why))),
                Verdict::Held => Box::pin(ready(Came::Held(words(prompts, "held")))),
                Verdict::Behind => Box::pin(ready(Came::Refused(words(prompts, "behind")))),
            });
        }
        let quiet = manner.spoke || waiting.is_empty() || self.gate.holds();
        let work = stream::iter(waiting).buffered(together).collect();
        let came: Vec<Came> = self.fillers.beside(work, quiet, &mut self.ledger, out, cx).await;
        let mut results: Vec<(usize, Arc<str>)> = Vec::with_capacity(calls.len());
        for ((at, call), came) in ordinary.iter().zip(came) {
            results.push((*at, self.taken(call, came, &mut tally, cx).into()));
        }
        tally.held = self.gate.holds();
        for (at, call) in control {
            results.push((at, self.run_control(call, &mut tally).into()));
        }
        results.sort_by_key(|(at, _)| *at);
        for ((_, text), call) in results.into_iter().zip(calls) {
            self.session.answer(call, text);
        }
        tally
    }

    /// One call of a tool that belongs to the profile; what the model is told.
    fn run_control(&mut self, call: &ToolCall, tally: &mut Tally) -> String {
        let prompts = self.prompts;
        if &*call.name != TASK_COMPLETED {
            let before = tally.done;
            let text = set_slot(call, self.task, &mut self.slots, prompts, tally);
            if tally.done > before {
                // A value that was recorded is a thing that was done.
                self.gate.worked(&call.name, EffectClass::Idempotent);
            }
            text
        } else if tally.held {
            words(prompts, "behind")
        } else if tally.failed + tally.refused > 0 {
            // The model wrote this before it knew: it has to see first what did not work.
            result_words(prompts, "not_completed", context! { outcome => "not_completed" })
        } else {
            tally.completed = true;
            result_words(prompts, "completed", context! { outcome => "completed" })
        }
    }

    /// Takes what came of a call into the events and counts; what the model is told.
    fn taken(&mut self, call: &ToolCall, came: Came, tally: &mut Tally, cx: &CallContext) -> String {
        let task = self.task;
        let (mut outcome, text) = match came {
            Came::Held(text) => return text,
            Came::Refused(text) => {
                tally.refused += 1;
                self.ledger.event(executed(call, task, "refused", &text, BTreeMap::new()), cx);
                return text;
            }
            Came::Back(outcome) => {
                let text = told(call, &outcome, &self.offered, self.prompts);
                (outcome, text)
            }
        };
        let effect = task.tools.get(&call.name).map(|entry| entry.spec.effect);
        let (status, result) = note(call, &mut outcome, &text, task.hooks.is_some(), &mut self.ledger, tally);
        if let (ToolOutcome::Done(_), Some(effect)) = (&outcome, effect) {
            self.gate.worked(&call.name, effect);
        }
        let changes = effect.is_some_and(|effect| effect != EffectClass::Read);
        let origins = match call.arguments.as_json().filter(|_| changes) {
            Some(arguments) => gate::origins(arguments, self.session.seen()),
            None => BTreeMap::new(),
        };
        self.ledger.event(executed(call, task, status, &text, origins), cx);
        if task.hooks.is_some() {
            tally.records.push(ToolRecord {
                call_id: call.id.clone(),
                tool: call.name.clone(),
                arguments: call.arguments.as_json().cloned().unwrap_or(Json::Null),
                status: status.into(),
                result,
            });
        }
        text
    }

    /// Whether a call is one of a tool that belongs to the profile, and that the model was offered.
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

/// What came of an ordinary call.
enum Came {
    /// It ran, or there was nothing to run.
    Back(ToolOutcome),
    /// The author's rules stopped it; what the model is told.
    Refused(String),
    /// It waits for the user; what the model is told.
    Held(String),
}

fn slot_of(call: &ToolCall) -> Option<&str> {
    call.name.strip_prefix(slot_tools::PREFIX)
}

fn harmless(call: &ToolCall, task: &AgentRequest<'_>) -> bool {
    task.tools.get(&call.name).is_none_or(|entry| entry.spec.effect == EffectClass::Read)
}

/// An ordinary call with its tool.
#[expect(clippy::result_large_err, reason = "the error is the outcome itself, and one call has one")]
fn checked(call: &ToolCall, task: &AgentRequest<'_>) -> Result<CheckedCall, ToolOutcome> {
    match &call.arguments {
        ToolArguments::Json(arguments) => CheckedCall::find(&task.tools, &call.name, arguments.as_ref().clone()),
        ToolArguments::Malformed { .. } if task.tools.get(&call.name).is_none() => {
            Err(ToolOutcome::failed(FailureKind::UnknownTool, ""))
        }
        ToolArguments::Malformed { .. } => Err(ToolOutcome::failed(FailureKind::BadArguments, "")),
    }
}

/// What the tool of a call may know of it.
pub(super) fn tool_context(
    at: usize,
    call: &ToolCall,
    task: &AgentRequest<'_>,
    news: Option<News>,
    cx: &CallContext,
) -> ToolCallContext {
    let cx = cx.step(format!("tool.{at}"));
    let source = task.tools.get(&call.name).map(|entry| entry.spec.source.clone()).unwrap_or_default();
    let meta = task.meta.get(&*source).and_then(Json::as_object).cloned().unwrap_or_default();
    ToolCallContext {
        idempotency_key: invoke::idempotency_key(task.conversation.id.as_str(), task.conversation.turns, &cx),
        cx,
        metadata: task.metadata.clone(),
        caller: ToolCaller {
            conversation: task.conversation.id.as_str().into(),
            agent: Some(task.call.agent.as_str().into()),
            flow: Some(task.call.flow_id.as_str().into()),
        },
        meta: Arc::new(meta),
        progress: news.map(|news| news.listen(source)),
        inquired: None,
        effect: None,
    }
}

/// What the model is told of a call.
fn told(call: &ToolCall, outcome: &ToolOutcome, offered: &ToolList, prompts: &PromptSet) -> String {
    match (outcome, &call.arguments) {
        (_, ToolArguments::Malformed { error, .. }) => result_words(
            prompts,
            "arguments_not_json",
            context! { outcome => "arguments_not_json", reason => &**error },
        ),
        (ToolOutcome::Failed(failure), _) if failure.kind == FailureKind::UnknownTool => unknown_tool(offered, prompts),
        _ => outcome.for_model(),
    }
}

/// Counts an outcome, and takes its result; its name, and the result as programs see it, where hooks ask for it.
fn note(
    call: &ToolCall,
    outcome: &mut ToolOutcome,
    text: &str,
    hooked: bool,
    ledger: &mut Ledger<'_>,
    tally: &mut Tally,
) -> (&'static str, Json) {
    let told = || if hooked { Json::from(text) } else { Json::Null };
    match outcome {
        ToolOutcome::Done(output) => {
            tally.done += 1;
            let result = output.structured.take().unwrap_or_else(|| Json::from(text));
            let wanted = if hooked { result.clone() } else { Json::Null };
            ledger.result(&call.name, result);
            ("done", wanted)
        }
        ToolOutcome::Failed(failure) => {
            tally.failed += 1;
            if failure.fatal && tally.fatal.is_none() {
                tally.fatal = Some((call.name.to_string(), failure.message.clone()));
            }
            ("failed", told())
        }
        ToolOutcome::Unknown(_) => {
            tally.failed += 1;
            ("unknown", told())
        }
        ToolOutcome::Pending(_) => ("pending", told()),
    }
}

pub(super) fn executed(
    call: &ToolCall,
    task: &AgentRequest<'_>,
    status: &str,
    text: &str,
    origins: BTreeMap<String, String>,
) -> EventKind {
    EventKind::ToolExecuted {
        server: None,
        tool_name: ToolName::new(call.name.clone()),
        agent_id: Some(task.call.agent.clone()),
        arguments: call.arguments.as_json().cloned().unwrap_or(Json::Null),
        status: status.into(),
        summary: Some(truncate(text, TextLimit::Chars(SUMMARY), ELLIPSIS).into_owned()),
        origins,
    }
}

fn set_slot(
    call: &ToolCall,
    task: &AgentRequest<'_>,
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
        ToolArguments::Json(arguments) => match arguments.get(slot_tools::PARAMETER) {
            Some(written) => written.clone(),
            None => return refused(tally, format!("the argument `{}` is missing", slot_tools::PARAMETER)),
        },
        ToolArguments::Malformed { error, .. } => {
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

fn words(prompts: &PromptSet, outcome: &str) -> String {
    gate::words(prompts, context! { outcome })
}

fn result_words(prompts: &PromptSet, outcome: &str, variables: minijinja::Value) -> String {
    prompts
        .render(&prompts.agent_tool_results, variables)
        .map_or_else(|_| format!("error: {outcome}"), |t| t.trim().to_owned())
}

fn unknown_tool(offered: &ToolList, prompts: &PromptSet) -> String {
    let names: Vec<String> = offered.iter().map(|tool| tool.name.to_string()).collect();
    result_words(prompts, "unknown_tool", context! { outcome => "unknown_tool", names })
}
