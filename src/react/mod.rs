//! The ReAct loop: it calls a model, runs the tool calls of the response, and repeats until a rule or a limit ends the run.
//!
//! Every agent with a model runs in this loop. What differs between agents is data, the [`LoopProfile`], and the [`LoopHost`]: the
//! messages of a call, the control tools, the rules for tool calls, where texts go and what is recorded. All that a run must keep
//! while it waits is the [`LoopState`], one serialisable value: [`ReactLoop::advance`] makes one model call with its tool calls, so
//! that a turn can drive the loop to its end and a durable job can store the state in between.
//!
//! Services of the loop, the same for all agents ([`LoopServices`]): `guards` against repeated calls and spent budgets, `compaction` of
//! long histories, `interception` of long results with the `result_tools` that read them, the `healer` of damaged histories, and the `skills`
//! that the model may load.
//!
//! The loop knows models, tools and prompts. It does not know projects, conversations and channels.

mod answer_stream;
mod budget;
mod compaction;
mod decision;
mod guards;
mod healer;
mod host;
mod interception;
mod profile;
mod result_tools;
mod services;
mod skills;
mod state;
mod tool_calls;

use std::sync::Arc;

use segue_engine::conversation::{AgentStatus, BotKind, ModelUsage};

#[cfg(test)]
pub(crate) use self::decision::{CODE_EMPTY_ANSWER, CODE_MODEL_FAILED, CODE_TOOL_FAILURES};
use self::decision::{Decision, NextAction};
#[cfg(test)]
use self::guards::{BudgetGuard, Guards};
pub(crate) use self::{
    answer_stream::{ModelTurn, SentenceFilter, StreamedText, sentence_end, stream_answer},
    decision::{
        CODE_DEADLINE, CODE_ITERATION_LIMIT, CODE_PROMPT, CODE_REPEATED_CALLS, failed_status, stop_status,
        unless_stopped,
    },
    guards::Cap,
    host::{ControlEffect, ControlResult, FinishedCall, GuardDecision, LoopHost},
    profile::{BareText, LoopProfile},
    services::LoopServices,
    skills::{BroughtTools, LoadedSkills, SKILL_TOOLS, SkillSession, ToolNarrowing},
    state::LoopState,
    tool_calls::{BatchSummary, CallOrigin, CallResult, result_text},
};
pub(crate) use self::{
    budget::Budget,
    compaction::{CompactionReport, CompactionRules, KeptFacts},
    healer::CallFate,
    interception::{Blobs, ResultIndex, ResultStore, Threshold},
    result_tools::RESULT_TOOLS,
};
use crate::{
    context::CallContext,
    llm::{ChatMessage, ChatRequest, ChatResponse, LlmErrorKind, ToolCall, ToolList, ToolSpec},
    prompts::PromptSet,
    tools::{ToolInfo, tool_set::ToolSet},
};

/// A tool as a model sees it.
pub(crate) fn tool_spec(info: &ToolInfo) -> ToolSpec {
    ToolSpec {
        name: info.name.clone(),
        description: info.description.clone(),
        parameters: info.parameters.clone(),
        strict: info.strict,
    }
}

/// The loop of one run.
pub(crate) struct ReactLoop<'a> {
    pub(crate) profile: &'a LoopProfile,
    pub(crate) prompts: &'a PromptSet,
    /// The tools that the model is offered: ordinary ones and control tools.
    pub(crate) offered: ToolList,
    /// The ordinary tools.
    pub(crate) tools: &'a ToolSet,
    pub(crate) host: &'a mut dyn LoopHost,
    pub(crate) state: LoopState,
    pub(crate) services: LoopServices,
}

/// The end of a run and its final message.
pub(crate) struct LoopEnd {
    pub(crate) status: AgentStatus,
    pub(crate) last: Option<(StreamedText, BotKind)>,
    /// The limit that ended it early.
    pub(crate) cap: Option<Cap>,
}

impl From<AgentStatus> for LoopEnd {
    fn from(status: AgentStatus) -> Self {
        Self { status, last: None, cap: None }
    }
}

impl ReactLoop<'_> {
    /// Runs the loop to its end.
    ///
    /// *Cancellation*: when `cx` is cancelled or its deadline passes, it ends at the next safe point.
    pub(crate) async fn run(&mut self, cx: &CallContext) -> LoopEnd {
        loop {
            if let Some(end) = self.advance(cx).await {
                return end;
            }
        }
    }

    /// Makes one model call and the tool calls of its response. `None` means that the run continues.
    pub(crate) async fn advance(&mut self, cx: &CallContext) -> Option<LoopEnd> {
        self.services.guards.load(&self.state.guards);
        if let Some(skills) = &mut self.services.skills {
            skills.restore(&self.state.skills, self.prompts);
        }
        let end = self.step(cx).await;
        self.state.guards = self.services.guards.save();
        self.keep_skills();
        let capped = self.state.capped;
        end.map(|end| LoopEnd { cap: end.cap.or(capped), ..end })
    }

    async fn step(&mut self, cx: &CallContext) -> Option<LoopEnd> {
        let iteration = self.state.model_calls;
        if iteration >= self.profile.max_model_calls {
            let reason = format!(
                "the agent did not complete its task within {iteration} model calls; raise `max_iterations` or narrow the task"
            );
            return Some(LoopEnd { cap: Some(Cap::Turns), ..failed_status(CODE_ITERATION_LIMIT, reason).into() });
        }
        if let Some(status) = stop_status(cx) {
            return Some(status.into());
        }
        if self.state.capped.is_none()
            && let Some(cap) = self.services.guards.exhausted()
        {
            self.cap(cap);
        }
        self.compact(cx).await;
        self.state.model_calls += 1;
        let call_cx = cx.step(format!("llm.{iteration}"));
        let messages = match self.host.messages(&self.state, &call_cx).await {
            Ok(messages) => messages,
            Err(status) => return Some(status.into()),
        };
        let ends = self.state.closing || self.state.capped.is_some();
        let messages = match &self.services.skills {
            None => messages,
            Some(skills) => skills.insert(messages),
        };
        let offered = if ends { ToolList::default() } else { self.offered_now() };
        let mut request = ChatRequest::new(self.profile.purpose.clone(), messages).with_tools(offered);
        request.max_tokens = self.state.max_tokens;
        let turn = self.host.call_model(request, &call_cx).await;
        if let ModelTurn::Answer(answer, _) = &turn {
            self.state.usage += ModelUsage::single(answer.usage);
            self.state.last_input_tokens = answer.usage.input;
            self.services.guards.response_received(&answer.usage);
        }
        let turn = self.host.review_answer(turn, &mut self.state, &call_cx).await?;
        if let ModelTurn::Failed(error, _) = &turn
            && error.kind == LlmErrorKind::ContextLengthExceeded
            && compaction::shorten_results(&mut self.state, self.services.results.as_deref(), self.prompts).await
        {
            return None;
        }
        match self.state.decide(turn, self.profile, self.host.is_done()) {
            // Boxed, so that a response without calls does not carry the large future.
            Decision::CallTools(answer, streamed) => {
                Box::pin(self.run_response_calls(&answer, streamed, &cx.step(iteration))).await
            }
            Decision::Finish { status, streamed, kind } => {
                self.host.end_text(&streamed, kind, cx).await;
                Some(LoopEnd { last: Some((streamed, kind)), ..status.into() })
            }
            Decision::Retry { wait } => {
                self.push_system(self.prompts.render(&self.prompts.agent_retry_empty, minijinja::context! {}));
                if let Some(wait) = wait {
                    let until = cx.clock.deadline(wait);
                    let _ = cx.wait(cx.clock.sleep(until)).await;
                }
                None
            }
            Decision::Correct { answer, streamed } => {
                self.state.messages.push(answer.to_message());
                self.host.show_text(&streamed, self.profile.text_beside_calls, true, cx).await;
                let text = self.host.correction();
                self.state.messages.push(ChatMessage::user(text));
                None
            }
        }
    }

    /// Ends the run early, unless it is ending already: the model is called once more, without tools, for its answer.
    pub(crate) fn close(&mut self, cap: Cap) {
        if self.state.capped.is_none() && !self.state.closing {
            self.cap(cap);
        }
    }

    /// Marks the run as capped: the model is called once more, without tools, for its answer.
    fn cap(&mut self, cap: Cap) {
        self.state.capped = Some(cap);
        self.state.messages.push(ChatMessage::system(cap.answer_request(self.prompts)));
    }

    /// Replaces older messages by a summary, if the last response was too long for the limit.
    async fn compact(&mut self, cx: &CallContext) {
        let Some(rules) = self.services.compaction else { return };
        if !compaction::is_due(&self.state, rules) {
            return;
        }
        let mut facts = self.host.kept_facts(&self.state, &cx.step(format!("facts.{}", self.state.model_calls))).await;
        facts.skills.extend(self.services.skills.iter().flat_map(SkillSession::names));
        if let Some(report) = compaction::compact(&mut self.state, rules, facts, self.prompts) {
            self.host.compacted(&report, cx);
        }
    }

    /// Runs the tool calls of a response.
    async fn run_response_calls(
        &mut self,
        answer: &ChatResponse,
        streamed: StreamedText,
        cx: &CallContext,
    ) -> Option<LoopEnd> {
        let kind = self.profile.text_beside_calls;
        // The text of a response that also completes the task may be its closing message.
        let ends = self.profile.closing_message
            && !streamed.text.is_empty()
            && streamed.ungrounded.is_none()
            && answer.tool_calls.iter().any(|call| self.is_offered(call) && self.host.completes(call));
        self.state.messages.push(answer.to_message());
        if !ends {
            self.host.show_text(&streamed, kind, true, cx).await;
        }
        let origin = CallOrigin { confirmed: false, text_shown: !streamed.text.is_empty() };
        let after = match self.call_tools(&answer.tool_calls, origin, Some(&streamed), cx).await {
            Ok(after) => after,
            Err(status) => return Some(status.into()),
        };
        if streamed.ungrounded.is_none() {
            self.host.text_sent(&streamed.text);
        }
        if ends && streamed.has_started() && !matches!(after, NextAction::Finish(AgentStatus::Finished)) {
            // The closing message came too early: a call failed or waits for the user's confirmation.
            self.host.show_text(&streamed, kind, true, cx).await;
        }
        match after {
            NextAction::Continue => None,
            NextAction::RequestClosingMessage => {
                let text = self.prompts.render(&self.prompts.agent_closing, minijinja::context! {}).unwrap_or_default();
                let text = self.host.closing_request(text.trim().to_owned());
                self.state.messages.push(ChatMessage::system(text.trim()));
                None
            }
            NextAction::AwaitUser => Some(AgentStatus::AwaitingUser.into()),
            NextAction::Finish(status @ AgentStatus::Finished) if ends => {
                self.host.end_text(&streamed, BotKind::FinalResponse, cx).await;
                Some(LoopEnd { last: Some((streamed, BotKind::FinalResponse)), ..status.into() })
            }
            NextAction::Finish(status) => Some(status.into()),
        }
    }

    /// The tools that the model is offered now: loaded skills may take some away, or bring some.
    fn offered_now(&self) -> ToolList {
        let skills = self.services.skills.as_ref();
        skills.map_or_else(|| self.offered.clone(), |skills| skills.offered(&self.offered, self.tools))
    }

    /// Makes the loaded skills part of the state.
    fn keep_skills(&mut self) {
        if let Some(skills) = &self.services.skills {
            self.state.skills = skills.loaded().clone();
        }
    }

    /// Runs calls that the user confirmed exactly as they are, before the first model call. `None` means that the run continues.
    pub(crate) async fn run_confirmed(&mut self, calls: Vec<ToolCall>, cx: &CallContext) -> Option<LoopEnd> {
        let answer = ChatResponse { tool_calls: calls, ..ChatResponse::default() };
        if let Some(skills) = &mut self.services.skills {
            skills.restore(&self.state.skills, self.prompts);
        }
        self.state.messages.push(answer.to_message());
        let origin = CallOrigin { confirmed: true, text_shown: false };
        match self.call_tools(&answer.tool_calls, origin, None, cx).await {
            Ok(NextAction::Finish(status)) => Some(status.into()),
            Ok(NextAction::AwaitUser) => Some(AgentStatus::AwaitingUser.into()),
            Ok(NextAction::Continue | NextAction::RequestClosingMessage) => None,
            Err(status) => Some(status.into()),
        }
    }

    /// Runs calls and decides what follows. `streamed`: the text of their response.
    async fn call_tools(
        &mut self,
        calls: &[ToolCall],
        origin: CallOrigin,
        streamed: Option<&StreamedText>,
        cx: &CallContext,
    ) -> Result<NextAction, AgentStatus> {
        let cap = match origin.confirmed {
            true => None,
            false => self.services.guards.calls_requested(calls),
        };
        // A call that completes the task ends the run better than a request for an answer.
        let completes = calls.iter().any(|call| self.is_offered(call) && self.host.completes(call));
        let cap = cap.filter(|cap| *cap == Cap::Loop || !completes);
        if let Some(cap) = cap {
            self.refuse_calls(calls, &cap.refusal(self.prompts), cx);
            self.host.batch_finished(cx).await?;
            self.cap(cap);
            return Ok(NextAction::Continue);
        }
        let summary = self.run_calls(calls, origin, cx).await;
        for warning in self.services.guards.take_warnings(self.prompts) {
            self.state.messages.push(ChatMessage::system(warning));
        }
        if let Some(results) = &self.services.results {
            self.state.results = results.index();
        }
        self.host.batch_finished(cx).await?;
        let has_text = streamed.is_some_and(|text| !text.text.is_empty() && text.ungrounded.is_none());
        Ok(self.state.after_calls(summary, self.profile, self.host.is_done(), has_text))
    }

    /// Whether a call may be one of a tool that the model was offered; one that can never run is not.
    fn is_offered(&self, call: &ToolCall) -> bool {
        call.arguments.drop_reason().is_none() && self.offered.iter().any(|tool| tool.name == call.name)
    }

    fn push_system<E>(&mut self, text: Result<String, E>) {
        let text = text.unwrap_or_default();
        self.state.messages.push(ChatMessage::system(text.trim()));
    }
}

#[cfg(test)]
mod tests;

/// A message list without copies of its texts.
pub(crate) type Messages = Vec<Arc<ChatMessage>>;
