//! The two profiles of a conversation: open and task agents in the [loop](crate::react). The host of a run builds its messages from the
//! conversation, runs the control tools, applies the tool policy, and records what happens as events of the turn.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use futures::future::BoxFuture;
use minijinja::context;
use segue_engine::conversation::{AgentKind, AgentOutcome, AgentStatus, BotKind, Reply};
use serde_json::Value as Json;

use super::{
    AgentRequest,
    completion::{RunRecorder, TASK_COMPLETED},
    filler::Fillers,
    grounding::GroundingCheck,
    hook_decorator::HookDecorator,
    hook_run::{CODE_HOOK_FAILED, HookRun},
    hooks::ToolRecord,
    lead,
    policy::{self, ToolPolicy},
    profile::Profile,
    progress::ProgressFeed,
    skills, slot_tools,
    slots::RunSlots,
    tool_events,
    transcript::RunTranscript,
};
use crate::{
    context::CallContext,
    conversation::{ReplySink, ToolPhase},
    delegation::{self, Ledger},
    llm::{ChatRequest, ToolCall},
    prompts::PromptSet,
    react::{
        self, BatchSummary, CODE_PROMPT, CallResult, ControlEffect, ControlResult, FinishedCall, GuardDecision,
        LoopEnd, LoopHost, LoopState, Messages, ModelTurn, SentenceFilter, StreamedText,
    },
    tools::{EffectClass, ToolCallContext, ToolOutcome, workspace::Clarification},
};

/// One run of an agent for a message of the user.
pub(super) struct DialogueHost<'a> {
    pub(super) request: &'a AgentRequest<'a>,
    pub(super) prompts: &'a PromptSet,
    pub(super) profile: &'a Profile,
    pub(super) hooks: Option<Box<HookRun<'a>>>,
    pub(super) slots: RunSlots<'a>,
    pub(super) transcript: RunTranscript,
    pub(super) recorder: RunRecorder<'a>,
    pub(super) policy: ToolPolicy<'a>,
    pub(super) fillers: Fillers<'a>,
    pub(super) grounding: Option<GroundingCheck<'a>>,
    pub(super) out: &'a mut dyn ReplySink,
    /// The results of the current batch, for hooks.
    pub(super) records: Vec<ToolRecord>,
    /// The sub-agents of this agent, if it may start some.
    pub(super) ledger: Option<Ledger>,
    /// The responses that tell the user how calls of the current batch ended.
    pub(super) receipts: Vec<Arc<str>>,
    /// The question of `ask_clarification`, with which the run ends.
    pub(super) question: Option<Clarification>,
    /// Receives the progress of the only call of the current batch; the progress of parallel calls is not shown.
    pub(super) progress: Option<ProgressFeed>,
}

impl DialogueHost<'_> {
    /// Builds the outcome.
    pub(super) fn close(mut self, end: LoopEnd, state: &LoopState, cx: &CallContext) -> AgentOutcome {
        // Metadata is kept whatever the status: a cancelled run may be resumed, and a hook may keep a finished one open. Effects and
        // counted calls remain valid.
        let is_own = |key: &str| {
            ToolPolicy::is_own_key(key)
                || (self.ledger.is_some() && Ledger::is_own_key(key))
                || (self.request.definition.skills.is_some() && key == skills::LOADED)
        };
        let kept = self.request.call.metadata.iter().filter(|(key, _)| !is_own(key));
        self.recorder.metadata = kept.map(|(key, value)| (key.clone(), value.clone())).collect();
        self.recorder.metadata.extend(self.policy.metadata());
        skills::write(&state.skills, &mut self.recorder.metadata);
        if let Some(ledger) = &self.ledger {
            ledger.write(&mut self.recorder.metadata);
        }
        self.recorder.question = self.question.as_ref().map(|question| lead::message(question).0);
        let last = end.last.as_ref().map(|(streamed, kind)| (streamed, *kind));
        let status = react::unless_stopped(end.status, cx);
        self.recorder.close(status, self.profile, &self.slots, &state.messages, last, cx)
    }

    /// The name under which texts of this agent are streamed.
    pub(super) fn source(&self) -> Arc<str> {
        format!("agent:{}", self.request.call.agent).into()
    }

    /// The response of the project that tells the user how a call ended, if the rules of the agent name one. An outcome that is not known
    /// has none: neither text would be true.
    fn receipt(&self, call: &ToolCall, outcome: &ToolOutcome) -> Option<Arc<str>> {
        let rule = self.request.definition.rules.tool(&call.name)?;
        let mut values = call.arguments.as_json().and_then(Json::as_object).cloned().unwrap_or_default();
        let response = match outcome {
            ToolOutcome::Done(output) => {
                values.extend(output.structured.as_ref().and_then(Json::as_object).cloned().unwrap_or_default());
                rule.on_success.as_deref()?
            }
            ToolOutcome::Failed(_) => rule.on_failure.as_deref()?,
            ToolOutcome::Unknown(_) | ToolOutcome::Pending(_) => return None,
        };
        let text = self.request.host.render_response(response, &values, self.request.conversation.events)?;
        (!text.trim().is_empty()).then_some(text)
    }

    fn policy_text(&self, outcome: &str) -> String {
        policy::text_for_model(self.prompts, context! { outcome })
    }
}

#[async_trait]
impl LoopHost for DialogueHost<'_> {
    async fn messages(&mut self, state: &LoopState, cx: &CallContext) -> Result<Messages, AgentStatus> {
        let messages = self.transcript.messages(self.request, self.profile, &self.slots, self.prompts, &state.messages);
        let messages = messages.map_err(|reason| react::failed_status(CODE_PROMPT, reason))?;
        let (hooks, recorder) = (self.hooks.as_deref(), &mut self.recorder);
        let mut decorator = HookDecorator { request: self.request, hooks, recorder, out: &mut *self.out, cx };
        let changed = decorator.messages(messages).await;
        changed.map_err(|error| react::failed_status(CODE_HOOK_FAILED, error.to_string()))
    }

    async fn call_model(&mut self, mut request: ChatRequest, cx: &CallContext) -> ModelTurn {
        request.streamed_to_user = self.out.wants_deltas();
        let (check, effects) = (self.grounding, self.policy.effects());
        let is_grounded = |sentence: &str| check.is_none_or(|check| check.is_grounded(sentence, effects));
        let filter: Option<SentenceFilter<'_>> = check.filter(|check| check.repairs()).map(|_| &is_grounded as _);
        let source = self.source();
        react::stream_answer(&*self.request.llm, &source, request, filter, &mut *self.out, cx).await
    }

    async fn review_answer(&mut self, turn: ModelTurn, state: &mut LoopState, cx: &CallContext) -> Option<ModelTurn> {
        self.enforce_grounding(turn, state, cx).await
    }

    async fn show_text(&mut self, text: &StreamedText, kind: BotKind, in_exchange: bool, cx: &CallContext) {
        text.send_end(kind, &mut *self.out, cx).await;
        self.recorder.record_text(text, kind, in_exchange, cx);
    }
    async fn end_text(&mut self, text: &StreamedText, kind: BotKind, cx: &CallContext) {
        text.send_end(kind, &mut *self.out, cx).await;
    }
    fn text_sent(&mut self, text: &str) {
        self.report_ungrounded(text);
    }
    fn closing_request(&self, default: String) -> String {
        match &self.hooks {
            Some(hook_run) => hook_run.hooks.empty_closing_message(default),
            None => default,
        }
    }

    fn skill_called(&mut self, call: &ToolCall, text: &str, is_done: bool, cx: &CallContext) {
        let status = if is_done { "done" } else { "failed" };
        self.recorder.record(tool_events::tool_executed(call, self.request, status, text, BTreeMap::new()), cx);
    }

    fn is_control(&self, call: &ToolCall) -> bool {
        match self.profile.kind {
            AgentKind::Open => &*call.name == TASK_COMPLETED,
            AgentKind::Task => {
                slot_tools::slot_of(call).is_some_and(|slot| self.profile.exit_slots.iter().any(|name| **name == *slot))
            }
        }
    }
    fn completes(&self, call: &ToolCall) -> bool {
        self.profile.kind == AgentKind::Open && &*call.name == TASK_COMPLETED
    }
    async fn control(&mut self, call: &ToolCall, batch: &BatchSummary, _: &CallContext) -> ControlResult {
        if &*call.name != TASK_COMPLETED {
            let (text, is_set) = slot_tools::set_slot(call, self.request, &mut self.slots, self.prompts);
            if is_set {
                // A recorded value is an effect that the agent may mention.
                self.policy.record_effect(&call.name, EffectClass::Idempotent);
            }
            return ControlResult {
                text,
                effect: if is_set { ControlEffect::Succeeded } else { ControlEffect::Failed },
            };
        }
        if batch.awaiting_confirmation {
            return ControlResult { text: self.policy_text("behind"), effect: ControlEffect::None };
        }
        // The model called `task_completed` before it saw a failure; it must see the failure first.
        let (outcome, effect) = match batch.failed + batch.refused {
            0 => ("completed", ControlEffect::Completed),
            _ => ("not_completed", ControlEffect::None),
        };
        ControlResult { text: react::result_text(self.prompts, outcome, context! { outcome }), effect }
    }
    fn is_done(&self) -> bool {
        self.profile.kind == AgentKind::Task && self.slots.all_true(&self.profile.exit_if)
    }

    fn begin_batch(&mut self, count: usize) {
        let feed = self.fillers.listen();
        self.progress = (count == 1).then_some(feed);
    }
    async fn check_call(
        &mut self,
        call: &ToolCall,
        class: EffectClass,
        confirmed: bool,
        _: &CallContext,
    ) -> GuardDecision {
        self.policy.decide(call, class, confirmed, &self.slots, self.prompts)
    }
    fn awaits_confirmation(&self) -> bool {
        self.policy.awaits_confirmation() || self.question.is_some()
    }
    fn tool_context(&self, at: usize, call: &ToolCall, cx: &CallContext) -> ToolCallContext {
        tool_events::tool_context(at, call, self.request, self.progress.clone(), cx)
    }
    async fn call_begins(&mut self, call: &ToolCall, cx: &CallContext) {
        tool_events::show(call, self.request, ToolPhase::Started, &mut *self.out, cx).await;
    }
    async fn call_is_over(&mut self, call: &ToolCall, outcome: Option<&ToolOutcome>, cx: &CallContext) {
        let phase = outcome.map_or(ToolPhase::Failed, tool_events::phase_of);
        tool_events::show(call, self.request, phase, &mut *self.out, cx).await;
    }
    async fn run_batch(
        &mut self,
        work: BoxFuture<'_, Vec<CallResult>>,
        quiet: bool,
        cx: &CallContext,
    ) -> Vec<CallResult> {
        self.fillers.run_with_fillers(work, quiet, &mut self.recorder, &mut *self.out, cx).await
    }
    fn result_text(&mut self, call: &ToolCall, outcome: &ToolOutcome) -> Option<String> {
        if let Some(question) = lead::question(call, outcome, &self.request.tools) {
            // The user answers one question at a time.
            let is_free = self.question.is_none() && !self.policy.awaits_confirmation();
            let outcome = if is_free { "asked" } else { "not_asked" };
            if is_free {
                self.question = Some(question);
            }
            return Some(react::result_text(self.prompts, outcome, context! { outcome }));
        }
        if let Some(text) = self.receipt(call, outcome) {
            let note = react::result_text(self.prompts, "told", context! { outcome => "told", text => &*text });
            self.receipts.push(text);
            return Some(format!("{}\n{note}", outcome.for_model()));
        }
        delegation::replacement_text(outcome)
    }
    fn call_refused(&mut self, call: &ToolCall, text: &str, cx: &CallContext) {
        self.recorder.record(tool_events::tool_executed(call, self.request, "refused", text, BTreeMap::new()), cx);
    }
    fn call_finished(&mut self, finished: FinishedCall<'_>, state: &LoopState, cx: &CallContext) {
        let FinishedCall { call, mut outcome, text } = finished;
        if let Some(ledger) = &mut self.ledger {
            ledger.record(&call.name, call.arguments.as_json(), &outcome, cx.clock.now());
        }
        if let Some(files) = lead::presented(call, &outcome, &self.request.tools) {
            self.recorder.record_message(files, BotKind::Intermediate, cx);
        }
        let has_hooks = self.request.hooks.is_some();
        let effect = self.request.tools.get(&call.name).map(|entry| entry.info.effect);
        let result = match &mut outcome {
            ToolOutcome::Done(output) => {
                let result = output.structured.take().unwrap_or_else(|| Json::from(text));
                let wanted = if has_hooks { result.clone() } else { Json::Null };
                self.recorder.record_result(&call.name, result);
                wanted
            }
            _ if has_hooks => Json::from(text),
            _ => Json::Null,
        };
        match (&outcome, effect) {
            // Only what its steps changed supports a claim.
            (_, Some(EffectClass::Composite)) => {
                for write in delegation::writes_of(&outcome).done {
                    self.policy.record_effect(&write.tool, EffectClass::Write);
                }
            }
            (ToolOutcome::Done(_), Some(effect)) => self.policy.record_effect(&call.name, effect),
            _ => {}
        }
        let changes = effect.is_some_and(|effect| effect != EffectClass::Read);
        let origins = match call.arguments.as_json().filter(|_| changes) {
            Some(arguments) => {
                let untrusted = skills::untrusted_messages(self.request.definition.skills.as_ref(), &state.skills);
                policy::origins(arguments, self.transcript.visible_messages(&state.messages).chain(&untrusted))
            }
            None => BTreeMap::new(),
        };
        self.recorder.record(tool_events::tool_ended(call, self.request, &outcome, text, origins), cx);
        if has_hooks {
            self.records.push(ToolRecord {
                call_id: call.id.clone(),
                tool: call.name.clone(),
                arguments: call.arguments.as_json().cloned().unwrap_or(Json::Null),
                status: outcome.status().into(),
                result,
            });
        }
    }
    async fn batch_finished(&mut self, cx: &CallContext) -> Result<(), AgentStatus> {
        for (at, text) in std::mem::take(&mut self.receipts).into_iter().enumerate() {
            let cx = cx.step(format!("receipt.{at}"));
            self.recorder.send(Reply::text(text), BotKind::Intermediate, &mut *self.out, &cx).await;
        }
        let Some(hooks) = &mut self.hooks else { return Ok(()) };
        let records = std::mem::take(&mut self.records);
        let done =
            hooks.process_results(records, self.request, &mut self.slots, &mut self.recorder, &mut *self.out, cx).await;
        done.map_err(|error| react::failed_status(CODE_HOOK_FAILED, error.to_string()))
    }
}
