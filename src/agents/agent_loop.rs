//! The loop of one run: model calls and their tool calls, until the task, the policy or a limit ends it.

use segue_engine::conversation::{AgentKind, AgentOutcome, AgentStatus, BotKind};

use super::{
    AgentRequest,
    answer_stream::{self, StreamedText},
    completion::{self, RunRecorder},
    decision::{self, Decision, LoopState, NextAction},
    filler::Fillers,
    grounding::GroundingCheck,
    hook_decorator::HookDecorator,
    hook_run::HookRun,
    hooks::HookError,
    policy::ToolPolicy,
    profile::Profile,
    slots::RunSlots,
    tool_calls::CallOrigin,
    transcript::RunTranscript,
};
use crate::{
    context::CallContext,
    conversation::ReplySink,
    llm::{ChatRequest, ChatResponse, Purpose, ToolCall, ToolList},
    prompts::PromptSet,
};

/// The state of the loop while an agent works on one message.
pub(super) struct AgentLoop<'a> {
    pub(super) request: &'a AgentRequest<'a>,
    pub(super) prompts: &'a PromptSet,
    pub(super) profile: &'a Profile,
    pub(super) hooks: Option<Box<HookRun<'a>>>,
    pub(super) offered: ToolList,
    pub(super) slots: RunSlots<'a>,
    pub(super) transcript: RunTranscript,
    pub(super) recorder: RunRecorder<'a>,
    pub(super) policy: ToolPolicy<'a>,
    pub(super) fillers: Fillers<'a>,
    pub(super) grounding: Option<GroundingCheck<'a>>,
    pub(super) state: LoopState,
}

/// The end of a run and its final message.
pub(super) struct RunEnd {
    pub(super) status: AgentStatus,
    pub(super) last: Option<(StreamedText, BotKind)>,
}

impl From<AgentStatus> for RunEnd {
    fn from(status: AgentStatus) -> Self {
        Self { status, last: None }
    }
}

impl<'a> AgentLoop<'a> {
    /// Runs the loop to its end.
    pub(super) async fn work(&mut self, out: &mut dyn ReplySink, cx: &CallContext) -> RunEnd {
        if let Some(end) = self.resume_confirmed_calls(out, cx).await {
            return end;
        }
        for iteration in 0..self.profile.max_iterations {
            if let Some(status) = decision::stop_status(cx) {
                return status.into();
            }
            if let Some(end) = self.model_turn(iteration, out, cx).await {
                return end;
            }
        }
        let reason = format!(
            "the agent did not complete its task within {} model calls; raise `max_iterations` or narrow the task",
            self.profile.max_iterations
        );
        decision::failed_status(decision::CODE_ITERATION_LIMIT, reason).into()
    }

    /// Builds the outcome.
    pub(super) fn close(mut self, end: RunEnd, cx: &CallContext) -> AgentOutcome {
        // Metadata is kept whatever the status: a cancelled run may be resumed, and a hook may keep a finished one open. Effects and
        // counted calls remain valid.
        let kept = self.request.call.metadata.iter().filter(|(key, _)| !ToolPolicy::is_own_key(key));
        self.recorder.metadata = kept.map(|(key, value)| (key.clone(), value.clone())).collect();
        self.recorder.metadata.extend(self.policy.metadata());
        let last = end.last.as_ref().map(|(streamed, kind)| (streamed, *kind));
        let status = decision::unless_stopped(end.status, cx);
        self.recorder.close(status, self.profile, &self.slots, &self.transcript, last, cx)
    }

    /// One model call and the tool calls of its response. `None` means that the loop continues.
    async fn model_turn(&mut self, iteration: u32, out: &mut dyn ReplySink, cx: &CallContext) -> Option<RunEnd> {
        let asking = cx.step(format!("llm.{iteration}"));
        let messages = match self.transcript.messages(self.request, self.profile, &self.slots, self.prompts) {
            Ok(messages) => messages,
            Err(reason) => return Some(decision::failed_status(decision::CODE_PROMPT, reason).into()),
        };
        let (hooks, recorder) = (self.hooks.as_deref(), &mut self.recorder);
        let mut decorator = HookDecorator { request: self.request, hooks, recorder, out: &mut *out, cx: &asking };
        let messages = match decorator.messages(messages).await {
            Ok(messages) => messages,
            Err(error) => return Some(decision::failed_status(decision::CODE_HOOK_FAILED, error.to_string()).into()),
        };
        let offered = if self.state.closing { ToolList::default() } else { self.offered.clone() };
        let mut chat_request = ChatRequest::new(Purpose::AGENT, messages).with_tools(offered);
        chat_request.max_tokens = self.state.max_tokens;
        chat_request.streamed_to_user = out.wants_deltas();
        let turn = {
            let (check, effects) = (self.grounding, self.policy.effects());
            let is_grounded = |sentence: &str| check.is_none_or(|check| check.is_grounded(sentence, effects));
            let filter: Option<answer_stream::SentenceFilter<'_>> =
                check.filter(|check| check.repairs()).map(|_| &is_grounded as _);
            answer_stream::stream_answer(self.request, chat_request, filter, out, &asking).await
        };
        let turn = self.enforce_grounding(turn, out, &asking).await?;
        match self.state.decide(turn, self.profile, &self.slots) {
            // Boxed, so that a response without calls does not carry the large future.
            Decision::CallTools(answer, streamed) => {
                Box::pin(self.run_tool_calls(&answer, streamed, out, &cx.step(iteration))).await
            }
            Decision::Finish { status, streamed, kind } => {
                streamed.send_end(kind, out, cx).await;
                Some(RunEnd { status, last: Some((streamed, kind)) })
            }
            Decision::Retry { wait } => {
                decision::push_empty_answer_hint(&mut self.transcript, self.prompts);
                if let Some(wait) = wait {
                    let until = cx.clock.deadline(wait);
                    let _ = cx.wait(cx.clock.sleep(until)).await;
                }
                None
            }
        }
    }

    /// Runs the tool calls of a response.
    async fn run_tool_calls(
        &mut self,
        answer: &ChatResponse,
        streamed: StreamedText,
        out: &mut dyn ReplySink,
        cx: &CallContext,
    ) -> Option<RunEnd> {
        let kind = if self.profile.fillers { BotKind::Filler } else { BotKind::Intermediate };
        let offered = self.offered.iter().any(|tool| &*tool.name == completion::TASK_COMPLETED);
        let ends = answer.tool_calls.iter().any(|call| &*call.name == completion::TASK_COMPLETED)
            && offered
            && self.profile.kind == AgentKind::Open
            && !streamed.text.is_empty()
            && streamed.ungrounded.is_none();
        self.transcript.push(answer.to_message());
        if !ends {
            streamed.send_end(kind, out, cx).await;
            self.recorder.record_text(&streamed, kind, true, cx);
        }
        let origin = CallOrigin { confirmed: false, text_shown: !streamed.text.is_empty() };
        let after = match self.call_tools(&answer.tool_calls, origin, &streamed, out, cx).await {
            Ok(after) => after,
            Err(error) => return Some(decision::failed_status(decision::CODE_HOOK_FAILED, error.to_string()).into()),
        };
        if streamed.ungrounded.is_none() {
            self.report_ungrounded(&streamed.text);
        }
        if ends && streamed.has_started() && !matches!(after, NextAction::Finish(AgentStatus::Finished)) {
            // The closing message came too early: a call failed or waits for the user's confirmation.
            streamed.send_end(kind, out, cx).await;
            self.recorder.record_text(&streamed, kind, true, cx);
        }
        match after {
            NextAction::Continue => None,
            NextAction::RequestClosingMessage => {
                let hooks = self.hooks.as_ref().map(|hook_run| hook_run.hooks);
                decision::push_closing_request(&mut self.transcript, self.prompts, hooks);
                None
            }
            NextAction::AwaitConfirmation => Some(AgentStatus::AwaitingUser.into()),
            NextAction::Finish(status @ AgentStatus::Finished) if ends => {
                streamed.send_end(BotKind::FinalResponse, out, cx).await;
                Some(RunEnd { status, last: Some((streamed, BotKind::FinalResponse)) })
            }
            NextAction::Finish(status) => Some(status.into()),
        }
    }

    /// Runs calls and passes their results to the hooks.
    pub(super) async fn call_tools(
        &mut self,
        calls: &[ToolCall],
        origin: CallOrigin,
        streamed: &StreamedText,
        out: &mut dyn ReplySink,
        cx: &CallContext,
    ) -> Result<NextAction, HookError> {
        let mut summary = self.run_calls(calls, origin, out, cx).await;
        if let Some(hooks) = &mut self.hooks {
            let records = std::mem::take(&mut summary.records);
            hooks.process_results(records, self.request, &mut self.slots, &mut self.recorder, out, cx).await?;
        }
        Ok(self.state.after_calls(summary, self.profile, &self.slots, streamed))
    }
}
