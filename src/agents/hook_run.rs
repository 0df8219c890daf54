//! The hooks of one run: when each is called, what it may change, and how its messages are sent.

use std::sync::Arc;

use futures::future::BoxFuture;
use segue_engine::{
    conversation::{AgentCall, AgentOutcome, AgentStatus, BotKind, Event, EventKind, FilledBy},
    ids::SlotName,
};
use tokio::sync::mpsc;

use super::{
    AgentRequest,
    completion::RunRecorder,
    hooks::{
        AgentHooks, AgentInput, AgentOutput, HookContext, HookError, HookEvent, OutputChange, ToolBatch, ToolRecord,
    },
    policy::ToolPolicy,
    profile::Profile,
    remote, slot_tools,
    slots::RunSlots,
};
use crate::{
    context::CallContext,
    conversation::ReplySink,
    limits,
    react::{self, StreamedText},
    tools::invoke,
};

/// A hook failed.
pub(super) const CODE_HOOK_FAILED: &str = "A0521";

/// The hooks of one run and their input.
pub(super) struct HookRun<'a> {
    pub(super) hooks: &'a dyn AgentHooks,
    pub(super) input: AgentInput,
    /// Whether `process_input` changed slots.
    slots_changed: bool,
    records: Vec<ToolRecord>,
}

impl<'a> HookRun<'a> {
    /// Calls `before_run` and `process_input`.
    ///
    /// # Errors
    /// [`HookError`].
    pub(super) async fn start(
        hooks: &'a dyn AgentHooks,
        request: &AgentRequest<'_>,
        recorder: &mut RunRecorder<'_>,
        out: &mut dyn ReplySink,
        cx: &CallContext,
    ) -> Result<Self, HookError> {
        let mut hook_call = HookCall::new(request, "before_run", cx);
        await_hook(hooks.before_run(&hook_call.context), &mut hook_call.messages, recorder, out, &hook_call.cx).await?;
        let mut input = input(request);
        let slots = input.slots.clone();
        let mut hook_call = HookCall::new(request, "process_input", cx);
        let work = hooks.process_input(&mut input, &hook_call.context);
        await_hook(work, &mut hook_call.messages, recorder, out, &hook_call.cx).await?;
        let slots_changed = input.slots != slots;
        Ok(Self { hooks, input, slots_changed, records: Vec::new() })
    }

    /// The call with the user's message after `process_input`.
    pub(super) fn call(&self, request: &AgentRequest<'_>) -> AgentCall {
        AgentCall { user_message: self.input.user_message.clone(), ..request.call.clone() }
    }

    /// The request after `process_input`.
    pub(super) fn request<'t>(&self, request: &AgentRequest<'t>, call: &'t AgentCall) -> AgentRequest<'t> {
        AgentRequest {
            call,
            metadata: Arc::new(self.input.metadata.clone()),
            user_message_changed: call.user_message != request.call.user_message,
            slots: self.slots_changed.then(|| Arc::new(self.input.slots.clone())),
            ..request.clone()
        }
    }

    /// Calls `process_tool_output` with the results of the calls of one model response, and records the events it returns.
    ///
    /// # Errors
    /// [`HookError`].
    pub(super) async fn process_results(
        &mut self,
        current: Vec<ToolRecord>,
        request: &AgentRequest<'_>,
        slots: &mut RunSlots<'_>,
        recorder: &mut RunRecorder<'_>,
        out: &mut dyn ReplySink,
        cx: &CallContext,
    ) -> Result<(), HookError> {
        if current.is_empty() {
            return Ok(());
        }
        leave_out_old_results(&mut self.records);
        self.records.extend(current.iter().cloned());
        let batch = ToolBatch { current, cumulative: self.records.clone() };
        let hooks = self.hooks;
        let mut hook_call = HookCall::new(request, "process_tool_output", cx);
        let work = hooks.process_tool_output(&batch, &hook_call.context);
        let events = await_hook(work, &mut hook_call.messages, recorder, out, &hook_call.cx).await?;
        let cx = &hook_call.cx;
        for (at, event) in events.into_iter().enumerate() {
            match event {
                HookEvent::Slot { name, value } => {
                    let Some(definition) = slots.definition(&name) else {
                        request.host.report_warning(
                            CODE_HOOK_FAILED,
                            format!("a hook sets `{name}`, which is not a slot of this project"),
                        );
                        continue;
                    };
                    let value = slot_tools::coerce(&definition.kind, &value).unwrap_or(value);
                    slots.record(&name, value.clone());
                    recorder.slots_set_by_hooks.push(name.clone());
                    recorder.record(slot_event(&name, value), cx);
                }
                HookEvent::Bot { text } => {
                    let streamed = StreamedText::complete(&cx.step(format!("bot.{at}")), text);
                    streamed.send_end(BotKind::Intermediate, out, cx).await;
                    recorder.record_text(&streamed, BotKind::Intermediate, false, cx);
                }
            }
        }
        Ok(())
    }
}

/// Replaces the results of earlier calls beyond [`limits::HOOK_RESULTS`] bytes, the newest of which stay: with each response of
/// the model all of them are sent again.
fn leave_out_old_results(records: &mut [ToolRecord]) {
    let mut left = limits::HOOK_RESULTS;
    for record in records.iter_mut().rev() {
        let bytes = record.result.to_string().len();
        left = left.saturating_sub(bytes);
        if left == 0 && bytes > MARK.len() + 2 {
            record.result = MARK.into();
        }
    }
}

/// What stands in place of an earlier result that is left out.
const MARK: &str = "(an earlier result, left out)";

/// Calls `process_agent_output` (only for remote agents), `process_output` and `after_run`, and applies their changes.
pub(super) async fn finish(
    hooks: &dyn AgentHooks,
    request: &AgentRequest<'_>,
    remote: bool,
    mut outcome: AgentOutcome,
    out: &mut dyn ReplySink,
    cx: &CallContext,
) -> AgentOutcome {
    if remote {
        let (given, mut hook_call) = (output(request, &outcome), HookCall::new(request, "process_agent_output", cx));
        let mut recorder = RunRecorder::new(request);
        let work = hooks.process_agent_output(&given, &hook_call.context);
        let change = await_hook(work, &mut hook_call.messages, &mut recorder, out, &hook_call.cx).await;
        match change {
            Ok(change) => apply(change, recorder, request, &mut outcome, out, &hook_call.cx).await,
            Err(error) => return failed_or_stopped(outcome, &error, &hook_call.cx),
        }
    }
    let (given, mut hook_call) = (output(request, &outcome), HookCall::new(request, "process_output", cx));
    let mut recorder = RunRecorder::new(request);
    let work = hooks.process_output(&given, &hook_call.context);
    let change = await_hook(work, &mut hook_call.messages, &mut recorder, out, &hook_call.cx).await;
    match change {
        Ok(change) => apply(change, recorder, request, &mut outcome, out, &hook_call.cx).await,
        Err(error) => return failed_or_stopped(outcome, &error, &hook_call.cx),
    }
    let (mut hook_call, mut recorder) = (HookCall::new(request, "after_run", cx), RunRecorder::new(request));
    let ended =
        await_hook(hooks.after_run(&hook_call.context), &mut hook_call.messages, &mut recorder, out, &hook_call.cx)
            .await;
    outcome.events.extend(recorder.into_events());
    if let Err(error) = ended {
        return failed_or_stopped(outcome, &error, &hook_call.cx);
    }
    if outcome.status == AgentStatus::Finished {
        drop_exchanges(&mut outcome);
    }
    outcome
}

/// The outcome of a run whose last hook failed. A cancelled run keeps its exchanges, because it may be resumed.
fn failed_or_stopped(outcome: AgentOutcome, error: &HookError, cx: &CallContext) -> AgentOutcome {
    let mut outcome = fail_run(outcome, error, cx);
    if matches!(outcome.status, AgentStatus::Failed { .. }) {
        drop_exchanges(&mut outcome);
    }
    outcome
}

/// Drops the exchanges of a completed task: they are needed only if a hook keeps it open.
fn drop_exchanges(outcome: &mut AgentOutcome) {
    outcome.events.retain(|event| !matches!(event.kind, EventKind::AgentExchanges { .. }));
}

async fn apply(
    change: OutputChange,
    mut recorder: RunRecorder<'_>,
    request: &AgentRequest<'_>,
    outcome: &mut AgentOutcome,
    out: &mut dyn ReplySink,
    cx: &CallContext,
) {
    for (at, event) in change.events.into_iter().enumerate() {
        match event {
            HookEvent::Slot { name, value } if request.project.slot(&name).is_some() => {
                recorder.record(slot_event(&name, value), cx);
            }
            HookEvent::Slot { name, .. } => {
                request.host.report_warning(
                    CODE_HOOK_FAILED,
                    format!("a hook sets `{name}`, which is not a slot of this project"),
                );
            }
            HookEvent::Bot { text } => {
                let streamed = StreamedText::complete(&cx.step(format!("bot.{at}")), text);
                streamed.send_end(BotKind::Intermediate, out, cx).await;
                recorder.record_text(&streamed, BotKind::Intermediate, false, cx);
            }
        }
    }
    outcome.events.extend(recorder.into_events());
    // A hook cannot change the metadata of the tool policy or of a remote task; otherwise it could forge a confirmation.
    let own = |key: &str| ToolPolicy::is_own_key(key) || request.definition.remote.is_some() && remote::is_own_key(key);
    outcome.metadata.extend(change.metadata.into_iter().filter(|(key, _)| !own(key)));
    let awaits_confirmation = !segue_engine::conversation::UnconfirmedCall::of(&outcome.metadata).is_empty();
    match (change.status.as_deref(), &outcome.status) {
        (Some("completed"), AgentStatus::AwaitingUser) if !awaits_confirmation => {
            outcome.status = AgentStatus::Finished
        }
        (Some("input_required"), AgentStatus::Finished) => outcome.status = AgentStatus::AwaitingUser,
        (Some(other), _) if !["completed", "input_required"].contains(&other) => {
            request.host.report_warning(
                CODE_HOOK_FAILED,
                format!("a hook returned the status `{other}`; it may only return `completed` or `input_required`"),
            );
        }
        _ => {}
    }
}

fn slot_event(name: &Arc<str>, value: serde_json::Value) -> EventKind {
    EventKind::Slot { name: SlotName::new(name.clone()), value, filled_by: Some(FilledBy::Agent), reset: false }
}

/// The outcome of a run whose hook failed; its events are kept. A cancelled run becomes cancelled instead of failed, whatever its
/// status was: the result of the hook is missing and cannot be replayed.
pub(super) fn fail_run(mut outcome: AgentOutcome, error: &HookError, cx: &CallContext) -> AgentOutcome {
    outcome.status = react::unless_stopped(react::failed_status(CODE_HOOK_FAILED, error.to_string()), cx);
    outcome
}

/// The input of an agent before any hook.
fn input(request: &AgentRequest<'_>) -> AgentInput {
    let call = request.call;
    let always = Profile::new(request).exit_slots;
    let slots = RunSlots::new(request.project, request.conversation).snapshot(&always).to_map();
    let mut metadata = (*request.metadata).clone();
    let others = call.metadata.iter().filter(|(key, _)| !ToolPolicy::is_own_key(key));
    metadata.extend(others.map(|(key, value)| (key.clone(), value.clone())));
    AgentInput {
        agent: call.agent.as_str().into(),
        kind: call.kind,
        conversation: request.conversation.id.as_str().into(),
        flow: call.flow_id.as_str().into(),
        user_message: call.user_message.clone(),
        slots,
        metadata,
        resumed: call.resumed,
        restarted: call.restarted,
    }
}

fn output(request: &AgentRequest<'_>, outcome: &AgentOutcome) -> AgentOutput {
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
    // The exchanges of a finished task are needed only if a hook keeps it open.
    let over = outcome.status == AgentStatus::Finished;
    let is_visible = |event: &&Event| !(over && matches!(event.kind, EventKind::AgentExchanges { .. }));
    AgentOutput {
        agent: request.call.agent.as_str().into(),
        status: status.into(),
        message: message.map(|text| text.to_string().into()),
        events: outcome.events.iter().filter(is_visible).map(json).collect(),
        structured_results: outcome.data.clone(),
        metadata: outcome
            .metadata
            .iter()
            .filter(|(key, _)| !ToolPolicy::is_own_key(key))
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect(),
    }
}

/// One call of a hook: its context, and the receiver of its messages.
pub(super) struct HookCall {
    pub(super) context: HookContext,
    pub(super) messages: mpsc::Receiver<Arc<str>>,
    pub(super) cx: CallContext,
}

impl HookCall {
    pub(super) fn new(request: &AgentRequest<'_>, name: &str, cx: &CallContext) -> Self {
        let cx = cx.step(name);
        let conversation = request.conversation;
        let channel = conversation.latest_message.as_ref().map_or("", |message| &*message.input_channel);
        let id = invoke::idempotency_key(conversation.id.as_str(), conversation.turns, &cx);
        let (context, messages) = HookContext::new(cx.clone(), request.call.agent.as_str().into(), channel.into(), id);
        Self { context, messages, cx }
    }
}

/// Waits for a hook, and sends its messages while it runs. Their events are recorded after the hook returned, because the record of the
/// call sets the clock of the turn.
pub(super) async fn await_hook<T>(
    mut work: BoxFuture<'_, Result<T, HookError>>,
    messages: &mut mpsc::Receiver<Arc<str>>,
    recorder: &mut RunRecorder<'_>,
    out: &mut dyn ReplySink,
    cx: &CallContext,
) -> Result<T, HookError> {
    let mut sent = Vec::new();
    let result = loop {
        tokio::select! {
            biased;
            text = messages.recv() => if let Some(text) = text { send_filler(text, &mut sent, out, cx).await; },
            result = cx.wait(&mut work) => break result,
        }
    };
    drop(work);
    while let Ok(text) = messages.try_recv() {
        send_filler(text, &mut sent, out, cx).await;
    }
    for streamed in &sent {
        recorder.record_text(streamed, BotKind::Filler, false, cx);
    }
    result.unwrap_or_else(|stopped| Err(HookError(stopped.to_string())))
}

async fn send_filler(text: Arc<str>, sent: &mut Vec<StreamedText>, out: &mut dyn ReplySink, cx: &CallContext) {
    let streamed = StreamedText::complete(&cx.step(format!("say.{}", sent.len())), text.trim().into());
    streamed.send_end(BotKind::Filler, out, cx).await;
    sent.push(streamed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_results_are_left_out_when_hooks_get_them_again() {
        let record = |number: usize| ToolRecord {
            call_id: format!("c{number}").into(),
            tool: "find".into(),
            arguments: serde_json::json!({"n": number}),
            status: "done".into(),
            result: "x".repeat(limits::HOOK_RESULTS / 4).into(),
        };
        let mut records: Vec<ToolRecord> = (0..6).map(record).collect();
        for _ in 0..2 {
            leave_out_old_results(&mut records);
            let kept: Vec<bool> = records.iter().map(|record| record.result != MARK).collect();
            assert_eq!(kept, [false, false, false, true, true, true]);
        }
    }
}
