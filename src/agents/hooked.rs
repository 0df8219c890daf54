//! The hooks of one run: when each is asked, what it may change, and how what it says reaches the user.

use std::sync::Arc;

use futures::future::BoxFuture;
use segue_engine::{
    conversation::{AgentCall, AgentOutcome, AgentStatus, BotKind, Event, EventKind, FilledBy},
    ids::SlotName,
};
use tokio::sync::mpsc;

use super::{
    AgentRequest,
    completion::Ledger,
    gate::Gate,
    hooks::{
        AgentHooks, AgentInput, AgentOutput, HookContext, HookError, HookEvent, OutputChange, ToolBatch, ToolRecord,
    },
    profile::Profile,
    remote, slot_tools,
    slots::RunSlots,
    speech::Spoken,
    step,
};
use crate::{context::CallContext, conversation::ReplySink, tools::invoke};

/// The hooks of one run and what they were given.
pub(super) struct Hooked<'a> {
    pub(super) hooks: &'a dyn AgentHooks,
    pub(super) input: AgentInput,
    /// Whether it changed slots.
    is_changed: bool,
    records: Vec<ToolRecord>,
}

impl<'a> Hooked<'a> {
    /// Asks for the input.
    ///
    /// # Errors
    /// [`HookError`].
    pub(super) async fn open(
        hooks: &'a dyn AgentHooks,
        task: &AgentRequest<'_>,
        ledger: &mut Ledger<'_>,
        out: &mut dyn ReplySink,
        cx: &CallContext,
    ) -> Result<Self, HookError> {
        let mut asked = Asked::new(task, "before_run", cx);
        heard(hooks.before_run(&asked.given), &mut asked.speech, ledger, out, &asked.cx).await?;
        let mut input = input(task);
        let slots = input.slots.clone();
        let mut asked = Asked::new(task, "process_input", cx);
        let work = hooks.process_input(&mut input, &asked.given);
        heard(work, &mut asked.speech, ledger, out, &asked.cx).await?;
        let is_changed = input.slots != slots;
        Ok(Self { hooks, input, is_changed, records: Vec::new() })
    }

    /// The call with the user's message as the hook wrote it.
    pub(super) fn call(&self, task: &AgentRequest<'_>) -> AgentCall {
        AgentCall { user_message: self.input.user_message.clone(), ..task.call.clone() }
    }

    /// The task as the hook left it.
    pub(super) fn task<'t>(&self, task: &AgentRequest<'t>, call: &'t AgentCall) -> AgentRequest<'t> {
        AgentRequest {
            call,
            metadata: Arc::new(self.input.metadata.clone()),
            rewritten: call.user_message != task.call.user_message,
            slots: self.is_changed.then(|| Arc::new(self.input.slots.clone())),
            ..task.clone()
        }
    }

    /// The results of the calls of one answer; what the hook makes of them is recorded and counts at once.
    ///
    /// # Errors
    /// [`HookError`].
    pub(super) async fn results(
        &mut self,
        current: Vec<ToolRecord>,
        task: &AgentRequest<'_>,
        slots: &mut RunSlots<'_>,
        ledger: &mut Ledger<'_>,
        out: &mut dyn ReplySink,
        cx: &CallContext,
    ) -> Result<(), HookError> {
        if current.is_empty() {
            return Ok(());
        }
        self.records.extend(current.iter().cloned());
        let batch = ToolBatch { current, cumulative: self.records.clone() };
        let hooks = self.hooks;
        let mut asked = Asked::new(task, "process_tool_output", cx);
        let work = hooks.process_tool_output(&batch, &asked.given);
        let events = heard(work, &mut asked.speech, ledger, out, &asked.cx).await?;
        let cx = &asked.cx;
        for (at, event) in events.into_iter().enumerate() {
            match event {
                HookEvent::Slot { name, value } => {
                    let Some(definition) = slots.definition(&name) else {
                        task.desk.warn(step::HOOK, format!("a hook sets `{name}`, which is no slot of this project"));
                        continue;
                    };
                    let value = slot_tools::coerce(&definition.kind, &value).unwrap_or(value);
                    slots.record(&name, value.clone());
                    ledger.hooked.push(name.clone());
                    ledger.event(slot_event(&name, value), cx);
                }
                HookEvent::Bot { text } => {
                    let spoken = Spoken::whole(&cx.step(format!("bot.{at}")), text);
                    spoken.end(BotKind::Intermediate, out, cx).await;
                    ledger.said(&spoken, BotKind::Intermediate, false, cx);
                }
            }
        }
        Ok(())
    }
}

/// Asks the hooks what they make of an outcome, and changes it. `remote` is for agents that work elsewhere.
pub(super) async fn close(
    hooks: &dyn AgentHooks,
    task: &AgentRequest<'_>,
    remote: bool,
    mut outcome: AgentOutcome,
    out: &mut dyn ReplySink,
    cx: &CallContext,
) -> AgentOutcome {
    if remote {
        let (given, mut asked) = (output(task, &outcome), Asked::new(task, "process_agent_output", cx));
        let mut ledger = Ledger::new(task);
        let work = hooks.process_agent_output(&given, &asked.given);
        let change = heard(work, &mut asked.speech, &mut ledger, out, &asked.cx).await;
        match change {
            Ok(change) => apply(change, ledger, task, &mut outcome, out, &asked.cx).await,
            Err(error) => return broken_off(outcome, &error, &asked.cx),
        }
    }
    let (given, mut asked) = (output(task, &outcome), Asked::new(task, "process_output", cx));
    let mut ledger = Ledger::new(task);
    let work = hooks.process_output(&given, &asked.given);
    let change = heard(work, &mut asked.speech, &mut ledger, out, &asked.cx).await;
    match change {
        Ok(change) => apply(change, ledger, task, &mut outcome, out, &asked.cx).await,
        Err(error) => return broken_off(outcome, &error, &asked.cx),
    }
    let (mut asked, mut ledger) = (Asked::new(task, "after_run", cx), Ledger::new(task));
    let ended = heard(hooks.after_run(&asked.given), &mut asked.speech, &mut ledger, out, &asked.cx).await;
    outcome.events.extend(ledger.into_events());
    if let Err(error) = ended {
        return broken_off(outcome, &error, &asked.cx);
    }
    if outcome.status == AgentStatus::Finished {
        forget(&mut outcome);
    }
    outcome
}

/// The outcome of a run whose last hook failed. One that was stopped goes on later.
fn broken_off(outcome: AgentOutcome, error: &HookError, cx: &CallContext) -> AgentOutcome {
    let mut outcome = failed(outcome, error, cx);
    if matches!(outcome.status, AgentStatus::Failed { .. }) {
        forget(&mut outcome);
    }
    outcome
}

/// Drops the exchanges of a task that is over: they were kept in case that a hook keeps it open.
fn forget(outcome: &mut AgentOutcome) {
    outcome.events.retain(|event| !matches!(event.kind, EventKind::AgentExchanges { .. }));
}

async fn apply(
    change: OutputChange,
    mut ledger: Ledger<'_>,
    task: &AgentRequest<'_>,
    outcome: &mut AgentOutcome,
    out: &mut dyn ReplySink,
    cx: &CallContext,
) {
    for (at, event) in change.events.into_iter().enumerate() {
        match event {
            HookEvent::Slot { name, value } if task.project.slot(&name).is_some() => {
                ledger.event(slot_event(&name, value), cx);
            }
            HookEvent::Slot { name, .. } => {
                task.desk.warn(step::HOOK, format!("a hook sets `{name}`, which is no slot of this project"));
            }
            HookEvent::Bot { text } => {
                let spoken = Spoken::whole(&cx.step(format!("bot.{at}")), text);
                spoken.end(BotKind::Intermediate, out, cx).await;
                ledger.said(&spoken, BotKind::Intermediate, false, cx);
            }
        }
    }
    outcome.events.extend(ledger.into_events());
    // The gate's own memory is none of a hook's business, nor where a remote task stands: a yes cannot be forged there.
    let own = |key: &str| Gate::is_own(key) || task.definition.remote.is_some() && remote::is_own(key);
    outcome.metadata.extend(change.metadata.into_iter().filter(|(key, _)| !own(key)));
    let held = !segue_engine::conversation::UnconfirmedCall::of(&outcome.metadata).is_empty();
    match (change.status.as_deref(), &outcome.status) {
        (Some("completed"), AgentStatus::AwaitingUser) if !held => outcome.status = AgentStatus::Finished,
        (Some("input_required"), AgentStatus::Finished) => outcome.status = AgentStatus::AwaitingUser,
        (Some(other), _) if !["completed", "input_required"].contains(&other) => {
            task.desk.warn(step::HOOK, format!("a hook wants the status `{other}`, which it cannot set"));
        }
        _ => {}
    }
}

fn slot_event(name: &Arc<str>, value: serde_json::Value) -> EventKind {
    EventKind::Slot { name: SlotName::new(name.clone()), value, filled_by: Some(FilledBy::Agent), reset: false }
}

/// The outcome of a run whose hook failed: what happened stays. One that was stopped did not fail, however it had ended before;
/// but nothing goes on without what its author relies on, and no record tells a replay what the hook would have said.
pub(super) fn failed(mut outcome: AgentOutcome, error: &HookError, cx: &CallContext) -> AgentOutcome {
    outcome.status = step::unless_stopped(step::failed(step::HOOK, error.to_string()), cx);
    outcome
}

/// What an agent is given, before any hook.
fn input(task: &AgentRequest<'_>) -> AgentInput {
    let call = task.call;
    let always = Profile::of(task).exit_slots;
    let slots = RunSlots::new(task.project, task.conversation).snapshot(&always).to_map();
    let mut metadata = (*task.metadata).clone();
    let kept = call.metadata.iter().filter(|(key, _)| !Gate::is_own(key));
    metadata.extend(kept.map(|(key, value)| (key.clone(), value.clone())));
    AgentInput {
        agent: call.agent.as_str().into(),
        kind: call.kind,
        conversation: task.conversation.id.as_str().into(),
        flow: call.flow_id.as_str().into(),
        user_message: call.user_message.clone(),
        slots,
        metadata,
        resumed: call.resumed,
        restarted: call.restarted,
    }
}

fn output(task: &AgentRequest<'_>, outcome: &AgentOutcome) -> AgentOutput {
    let status = match &outcome.status {
        AgentStatus::AwaitingUser | AgentStatus::Yielded => "input_required",
        AgentStatus::Finished => "completed",
        AgentStatus::Failed { .. } => "failed",
        AgentStatus::Cancelled { .. } => "cancelled",
    };
    let message = outcome.events.iter().rev().find_map(|event| match &event.kind {
        EventKind::Bot(bot) => bot.reply.text.clone(),
        _ => None,
    });
    let json = |event: &Event| serde_json::to_value(event).unwrap_or_default();
    // The exchanges of a finished task are kept for one that stays open only.
    let over = outcome.status == AgentStatus::Finished;
    let told = |event: &&Event| !(over && matches!(event.kind, EventKind::AgentExchanges { .. }));
    AgentOutput {
        agent: task.call.agent.as_str().into(),
        status: status.into(),
        message: message.map(|text| text.to_string().into()),
        events: outcome.events.iter().filter(told).map(json).collect(),
        structured_results: outcome.data.clone(),
        metadata: outcome
            .metadata
            .iter()
            .filter(|(key, _)| !Gate::is_own(key))
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect(),
    }
}

/// One call of a hook: what it is given, and the other end of what it says.
pub(super) struct Asked {
    pub(super) given: HookContext,
    pub(super) speech: mpsc::Receiver<Arc<str>>,
    pub(super) cx: CallContext,
}

impl Asked {
    pub(super) fn new(task: &AgentRequest<'_>, name: &str, cx: &CallContext) -> Self {
        let cx = cx.step(name);
        let conversation = task.conversation;
        let channel = conversation.latest_message.as_ref().map_or("", |message| &*message.input_channel);
        let id = invoke::idempotency_key(conversation.id.as_str(), conversation.turns, &cx);
        let (given, speech) = HookContext::new(cx.clone(), task.call.agent.as_str().into(), channel.into(), id);
        Self { given, speech, cx }
    }
}

/// Waits for a hook and lets the user hear what it says meanwhile; into the events it comes once the hook is back, when the
/// record of the call has set the clock.
pub(super) async fn heard<T>(
    mut work: BoxFuture<'_, Result<T, HookError>>,
    speech: &mut mpsc::Receiver<Arc<str>>,
    ledger: &mut Ledger<'_>,
    out: &mut dyn ReplySink,
    cx: &CallContext,
) -> Result<T, HookError> {
    let mut said = Vec::new();
    let result = loop {
        tokio::select! {
            biased;
            text = speech.recv() => if let Some(text) = text { tell(text, &mut said, out, cx).await; },
            result = cx.wait(&mut work) => break result,
        }
    };
    drop(work);
    while let Ok(text) = speech.try_recv() {
        tell(text, &mut said, out, cx).await;
    }
    for spoken in &said {
        ledger.said(spoken, BotKind::Filler, false, cx);
    }
    result.unwrap_or_else(|stopped| Err(HookError(stopped.to_string())))
}

async fn tell(text: Arc<str>, said: &mut Vec<Spoken>, out: &mut dyn ReplySink, cx: &CallContext) {
    let spoken = Spoken::whole(&cx.step(format!("say.{}", said.len())), text.trim().into());
    spoken.end(BotKind::Filler, out, cx).await;
    said.push(spoken);
}
