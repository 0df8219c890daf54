//! Questions to copies of sessions: of an agent, and of the commander of a completed task. The session itself stays as it is.

use std::sync::Arc;

use async_trait::async_trait;
use indexmap::IndexMap;
use segue_engine::{
    conversation::{AgentStatus, BotKind},
    ids::{AgentName, RunId},
    mission::{
        event::{AssignmentOutcome, CommanderAnswer},
        state::RunState,
        tools::{self as mission_tools, Caller, MissionTool, Then, ToolAnswer, agents, commanders},
        unit::UnitId,
    },
    project::missions::ContextLimits,
};

use super::{
    agent::{self, call_model},
    budgets::AfterResponse,
    checkpoint::{AgentSession, SessionStart, UnitCheckpoint},
    commander::CommanderHost,
    journal::CLONE_PART,
    results::with_result_tools,
    slice::UnitRun,
};
use crate::{
    context::CallContext,
    journal::JournaledModel,
    llm::{ChatMessage, ChatRequest, Llm, Purpose, ToolCall, ToolList},
    react::{
        BareText, BatchSummary, CallFate, Cap, ControlEffect, ControlResult, LoopHost, LoopProfile, LoopServices,
        LoopState, Messages, ModelTurn, ReactLoop, tool_spec,
    },
    store::runs::UnitKey,
    tools::{ToolCallContext, tool_set::ToolSet},
};

/// Model calls for one answer: the pages of long results that it reads, and the answer.
const MOST_MODEL_CALLS: u32 = 12;
/// Consecutive responses whose calls may all fail.
const MOST_FAILED_ANSWERS: u32 = 3;

/// Why there is no answer if the session is gone.
const NOT_STORED: &str = "its session is not stored";

/// A session to copy.
struct Copied {
    model: Arc<dyn Llm>,
    purpose: Purpose,
    start: SessionStart,
    state: LoopState,
    limits: ContextLimits,
    /// The run that it is from, if it was taken over.
    source: Option<RunId>,
    /// Of a commander: its unit and its agents, which the copy may ask.
    agents: Option<(UnitId, IndexMap<AgentName, AgentSession>)>,
}

impl CommanderHost<'_> {
    pub(super) async fn ask_agent(
        &mut self,
        name: &AgentName,
        other: Option<&UnitId>,
        question: &str,
        cx: &CallContext,
    ) -> Option<ToolAnswer> {
        let unit = self.unit;
        let session = match other {
            None => self.agents.get(name).cloned(),
            Some(other) => unit.stored_checkpoint(other).await.and_then(|mut stored| stored.agents.shift_remove(name)),
        };
        let source = unit.source_of(other.unwrap_or(&unit.id)).await;
        let (outcome, text) = match unit.ask_agent_copy(name, (session, source), question, cx).await? {
            Ok(text) => (AssignmentOutcome::Answered, text),
            Err(reason) => (AssignmentOutcome::Failed, reason),
        };
        // A copy leaves no trace in the state of the agent.
        let answer =
            |_: &RunState| ToolAnswer { events: Vec::new(), ..agents::finished(&unit.id, name, outcome, &text, None) };
        unit.journal.control(&cx.step("done").key, answer).await
    }

    pub(super) async fn ask_commander(
        &mut self,
        question_id: &Arc<str>,
        other: &UnitId,
        question: &str,
        cx: &CallContext,
    ) -> Option<ToolAnswer> {
        let unit = self.unit;
        let text = match (unit.stored_checkpoint(other).await, unit.model()) {
            (Some(stored), Some(model)) => {
                let (start, mut state) = (stored.commander.start, stored.commander.state);
                // A later question follows the earlier ones of this commander.
                let earlier = self.questions.entry(other.to_string().into()).or_default();
                state.messages.extend(earlier.iter().cloned());
                let limits = unit.def.commander.context.clone();
                let agents = Some((other.clone(), stored.agents));
                let source = unit.source_of(other).await;
                let copied = Copied { model, purpose: Purpose::COMMANDER, start, state, limits, source, agents };
                let (text, added) = unit.ask_copy(copied, question, cx).await?;
                if text.is_ok() {
                    earlier.extend(added);
                }
                text
            }
            _ => Err(NOT_STORED.to_owned()),
        };
        let answer = match text {
            Ok(text) => CommanderAnswer::Answer(text.into()),
            Err(reason) => CommanderAnswer::Error(reason.into()),
        };
        let answered = |_: &RunState| commanders::answered(&unit.id, question_id, answer.clone());
        unit.journal.control(&cx.step("done").key, answered).await
    }
}

impl UnitRun {
    /// What a unit that has ended keeps.
    async fn stored_checkpoint(&self, unit: &UnitId) -> Option<UnitCheckpoint> {
        let run = self.source_of(unit).await.unwrap_or_else(|| self.run.clone());
        let key = UnitKey::new(run, unit.to_string());
        let content = self.parts.runs.unit(&key).await.ok()??;
        serde_json::from_str(&content.checkpoint?).ok()
    }

    /// The run with the sessions of a unit and their long results, if its task was taken over.
    async fn source_of(&self, unit: &UnitId) -> Option<RunId> {
        let state = self.view.latest().await.ok()?;
        state.tasks.get(&unit.task).and_then(|task| task.copied_from.clone()).map(RunId::new)
    }

    /// Asks a copy of the session of an agent, which may be that of another run. Returns the answer, or why there is none. `None`: the unit
    /// has stopped.
    async fn ask_agent_copy(
        &self,
        name: &AgentName,
        (session, source): (Option<AgentSession>, Option<RunId>),
        question: &str,
        cx: &CallContext,
    ) -> Option<Result<String, String>> {
        let agent = self.parts.agent(&self.def, name);
        let model = agent.and_then(|agent| Some((agent.model?, agent.context)));
        let (Some(session), Some((model, limits))) = (session, model) else { return Some(Err(NOT_STORED.to_owned())) };
        let (start, state) = (session.start, session.state);
        let copied = Copied { model, purpose: Purpose::AGENT, start, state, limits, source, agents: None };
        Some(self.ask_copy(copied, question, cx).await?.0)
    }

    /// Asks a copy of a session. It can read the long results of the session, and a copy of a commander can ask its agents. Returns the
    /// answer, or why there is none, and the messages of the exchange. `None`: the unit has stopped.
    async fn ask_copy(
        &self,
        copied: Copied,
        question: &str,
        cx: &CallContext,
    ) -> Option<(Result<String, String>, Messages)> {
        let Copied { model, purpose, start, mut state, limits, source, agents } = copied;
        let results = self.results_with(state.results.clone(), &limits, source);
        let tools = match state.results.is_empty() {
            true => ToolSet::default(),
            false => with_result_tools(ToolSet::default(), &results),
        };
        let ask = match &agents {
            Some((other, _)) => {
                let run = self.view.latest().await.ok()?;
                let other = self.tool_context_of(&run, other, Caller::Commander, "");
                other.map(|other| self.specs_of(mission_tools::offered_to_clone(&other), &other)).unwrap_or_default()
            }
            None => Vec::new(),
        };
        let envelope = match (ask.is_empty(), state.results.is_empty()) {
            (true, true) => "question",
            (true, false) => "question_with_results",
            (false, _) => "question_with_agents",
        };
        // The session may end within a response.
        state.heal(&self.parts.prompts, &|_| CallFate::Interrupted);
        let before = state.messages.len();
        state.begin_run(ChatMessage::user(self.envelope(envelope, question)));
        let profile = LoopProfile {
            purpose,
            bare_text: BareText::Final,
            closing_message: false,
            max_model_calls: MOST_MODEL_CALLS,
            max_failed_answers: MOST_FAILED_ANSWERS,
            fails_on_tool_error: false,
            tool_timeout: None,
            text_beside_calls: BotKind::Intermediate,
        };
        let offered: ToolList = tools.infos().map(tool_spec).chain(ask).collect();
        let model = self.journaled(model);
        let mut host = CopyHost { unit: self, model, start: &start, agents, has_stopped: false };
        let mut react = ReactLoop {
            services: LoopServices { results: Some(results), ..LoopServices::default() },
            profile: &profile,
            prompts: &self.parts.prompts,
            offered,
            tools: &tools,
            host: &mut host,
            state,
        };
        let cx = cx.step(CLONE_PART);
        let end = loop {
            if let Some(end) = react.advance(&cx).await {
                break end;
            }
            match self.after_response(react.state.model_calls, &cx).await? {
                AfterResponse::GoOn => {}
                AfterResponse::Finish => react.close(Cap::Tokens),
                // A copy cannot wait: the commander reads this when it goes on.
                AfterResponse::Stop => return Some((Err("the budget is used up".to_owned()), Vec::new())),
            }
        };
        let mut added = react.state.messages.split_off(before);
        if host.has_stopped || cx.cancel.is_cancelled() || self.journal.halt().is_some() {
            return None;
        }
        let text = match (end.status, end.last) {
            (AgentStatus::Finished, Some((streamed, _))) => Ok(agent::answer(&streamed.text).to_owned()),
            (AgentStatus::Failed { reason, .. }, _) => Err(reason),
            _ => Err("the answer was empty".to_owned()),
        };
        if let Ok(text) = &text {
            added.push(ChatMessage::assistant(text.as_str()));
        }
        Some((text, added))
    }
}

/// The host of the loop of a copy.
struct CopyHost<'a> {
    unit: &'a UnitRun,
    model: JournaledModel,
    start: &'a SessionStart,
    agents: Option<(UnitId, IndexMap<AgentName, AgentSession>)>,
    /// The unit has stopped while an agent was asked.
    has_stopped: bool,
}

impl CopyHost<'_> {
    /// Asks an agent of the commander. `None`: the unit has stopped.
    async fn ask_agent(&self, call: &ToolCall, cx: &CallContext) -> Option<(String, ControlEffect)> {
        let (unit, (other, sessions)) = (self.unit, self.agents.as_ref()?);
        let answer = {
            let run = unit.view.latest().await.ok()?;
            let context = unit.tool_context_of(&run, other, Caller::Commander, cx.key.as_str())?;
            mission_tools::call_of_clone(&call.name, agent::arguments(call), &context)
        };
        let Then::AskAgent { agent: name, unit: of, question } = &answer.then else {
            return Some((answer.text(), ControlEffect::Failed));
        };
        let session = match of {
            None => sessions.get(name).cloned(),
            Some(of) => unit.stored_checkpoint(of).await.and_then(|mut stored| stored.agents.shift_remove(name)),
        };
        let source = unit.source_of(of.as_ref().unwrap_or(other)).await;
        let (outcome, effect, text) = match unit.ask_agent_copy(name, (session, source), question, cx).await? {
            Ok(text) => (AssignmentOutcome::Answered, ControlEffect::Succeeded, text),
            Err(reason) => (AssignmentOutcome::Failed, ControlEffect::Failed, reason),
        };
        Some((agents::finished(other, name, outcome, &text, None).text(), effect))
    }
}

#[async_trait]
impl LoopHost for CopyHost<'_> {
    async fn messages(&mut self, state: &LoopState, _: &CallContext) -> Result<Messages, AgentStatus> {
        Ok(self.start.messages.iter().chain(&state.messages).cloned().collect())
    }
    async fn call_model(&mut self, request: ChatRequest, cx: &CallContext) -> ModelTurn {
        let request = if self.agents.is_some() { self.unit.with_reasoning(request) } else { request };
        self.unit.limit.count_call();
        call_model(&self.model, CLONE_PART, request, cx).await
    }
    fn is_control(&self, call: &ToolCall) -> bool {
        MissionTool::from_name(&call.name).is_some()
    }
    async fn control(&mut self, call: &ToolCall, _: &BatchSummary, cx: &CallContext) -> ControlResult {
        match self.ask_agent(call, cx).await {
            Some((text, effect)) => ControlResult { text, effect },
            None => {
                self.has_stopped = true;
                ControlResult { text: String::new(), effect: ControlEffect::Completed }
            }
        }
    }
    fn is_done(&self) -> bool {
        self.has_stopped
    }
    fn tool_context(&self, at: usize, _: &ToolCall, cx: &CallContext) -> ToolCallContext {
        self.unit.outgoing("", CLONE_PART, &cx.step(format!("tool.{at}")))
    }
}
