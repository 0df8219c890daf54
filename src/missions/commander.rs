//! Commanders: the host of their loop. Their tools are those of the mission, and what needs a model or a person is performed here.

use std::sync::Arc;

use async_trait::async_trait;
use indexmap::IndexMap;
use minijinja::{Value, context};
use segue_engine::{
    conversation::AgentStatus,
    ids::{AgentName, QuestionId},
    mission::{
        context as mission_context,
        event::{NewEvent, RunEventKind},
        learnings::Learnings,
        rounds, routes,
        state::RunState,
        tools::{Caller, MissionTool, Then, ToolAnswer, ToolContext, agents, commanders, offered, people, schemas},
        unit::{AttemptStatus, UnitView},
    },
    project::field_values::{self, Extra},
    template::from_json,
    time::Timestamp,
};
use serde_json::{Value as Json, json};

use super::{
    agent::call_model,
    calls::{self, OpenCall},
    checkpoint::{AgentSession, SessionStart},
    results::NamedResult,
    slice::UnitRun,
};
use crate::{
    context::CallContext,
    journal::{JournaledModel, ListedTool},
    llm::{ChatMessage, ChatRequest, ToolCall},
    react::{
        BatchSummary, CompactionReport, ControlEffect, ControlResult, GuardDecision, KeptFacts, LoopHost, LoopState,
        Messages, ModelTurn, ResultStore,
    },
    tools::{EffectClass, ToolCallContext, tool_set::ToolSet},
};

/// The name of commanders in events, and as callers of tools.
pub(super) const COMMANDER: &str = "commander";
/// How often a unit looks whether a question of another one was answered.
pub(super) const ANSWER_POLL: i64 = 1_000_000;

/// How the work of a unit ended in a control call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnitEnd {
    Completed,
    Failed,
}

/// Why a unit waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parked {
    /// When it goes on in any case.
    pub(super) wake_at: Option<Timestamp>,
}

/// The host of a commander's loop.
pub(super) struct CommanderHost<'a> {
    pub(super) unit: &'a UnitRun,
    pub(super) model: JournaledModel,
    pub(super) start: &'a SessionStart,
    /// The tools that read long results, and those for the folders of the mission.
    pub(super) tools: &'a ToolSet,
    pub(super) results: &'a ResultStore,
    pub(super) agents: &'a mut IndexMap<AgentName, AgentSession>,
    /// The calls of agents of the current response, by their keys.
    pub(super) calls: &'a mut IndexMap<Arc<str>, OpenCall>,
    pub(super) questions: &'a mut IndexMap<Arc<str>, Vec<Arc<ChatMessage>>>,
    pub(super) learnings: &'a mut Option<Learnings>,
    /// The questions to people for which agents of the current calls wait.
    pub(super) waits_for: Vec<Arc<str>>,
    pub(super) end: Option<UnitEnd>,
    pub(super) parked: Option<Parked>,
    /// The slice is over within a call.
    pub(super) yielded: bool,
    /// The unit was cancelled or has halted.
    pub(super) stopped: bool,
    /// The next item begins in a fresh session.
    pub(super) fresh: bool,
    /// A call of this response began the next item.
    pub(super) next_item: bool,
    /// Whether the latest compaction was recorded before.
    pub(super) is_repeated: bool,
}

#[async_trait]
impl LoopHost for CommanderHost<'_> {
    async fn messages(&mut self, state: &LoopState, _: &CallContext) -> Result<Messages, AgentStatus> {
        if self.stopped {
            return Err(AgentStatus::Cancelled { reason: "the unit has stopped".into() });
        }
        Ok(self.start.messages.iter().chain(&state.messages).cloned().collect())
    }
    async fn call_model(&mut self, request: ChatRequest, cx: &CallContext) -> ModelTurn {
        let request = self.unit.with_reasoning(request);
        self.unit.limit.count_call();
        let turn = call_model(&self.model, COMMANDER, request, cx).await;
        if let ModelTurn::Answer(_, text) = &turn {
            self.learn(&text.text);
        }
        turn
    }
    fn correction(&self) -> String {
        self.unit.render(&self.unit.parts.prompts.mission_correction, context! {})
    }
    async fn kept_facts(&mut self, _: &LoopState, cx: &CallContext) -> KeptFacts {
        let (unit, learnings) = (self.unit, self.learnings.as_ref());
        let facts = async {
            let state = unit.view.latest().await.ok()?;
            unit.commander_facts(&state, learnings)
        };
        let (facts, is_repeated) = unit.recorded_facts(cx, facts).await;
        self.is_repeated = is_repeated;
        self.stopped |= facts.is_none();
        facts.unwrap_or_default()
    }
    fn compacted(&mut self, report: &CompactionReport, _: &CallContext) {
        if !self.is_repeated {
            self.unit.note_compaction(COMMANDER, report);
        }
    }
    fn is_control(&self, call: &ToolCall) -> bool {
        self.tools.get(&call.name).is_none()
    }
    async fn check_call(&mut self, call: &ToolCall, class: EffectClass, _: bool, _: &CallContext) -> GuardDecision {
        self.unit.check_call(call, class)
    }
    async fn control(&mut self, call: &ToolCall, _: &BatchSummary, cx: &CallContext) -> ControlResult {
        let performed = self.perform(call, cx).await;
        self.result(performed)
    }
    fn together(&self, calls: &[&ToolCall]) -> usize {
        calls::together(calls)
    }
    async fn control_together(
        &mut self,
        calls: &[(&ToolCall, CallContext)],
        batch: &BatchSummary,
    ) -> Vec<ControlResult> {
        let is_cancelled = calls.first().is_some_and(|(_, cx)| cx.cancel.is_cancelled());
        if !is_cancelled && !self.is_done() {
            return self.call_agents(calls).await;
        }
        let mut results = Vec::with_capacity(calls.len());
        for (call, cx) in calls {
            results.push(self.control(call, batch, cx).await);
        }
        results
    }
    fn is_done(&self) -> bool {
        self.end.is_some() || self.parked.is_some() || self.yielded || self.stopped
    }
    fn call_not_sent(&mut self, call: &ToolCall, text: &str, cx: &CallContext) {
        self.unit.journal.note_not_sent(call, text, cx);
    }
    fn tool_context(&self, at: usize, _: &ToolCall, cx: &CallContext) -> ToolCallContext {
        self.unit.outgoing("", COMMANDER, &cx.step(format!("tool.{at}")))
    }
}

impl CommanderHost<'_> {
    /// The result of a call for the loop. `None`: the unit waits, goes on in the next slice, or has stopped.
    pub(super) fn result(&mut self, performed: Option<(String, ControlEffect)>) -> ControlResult {
        match performed {
            Some((text, effect)) => ControlResult { text, effect },
            None => {
                // Nothing of this response counts: the unit stops here, and it begins again at its checkpoint.
                self.stopped |= self.parked.is_none() && !self.yielded && self.end.is_none();
                ControlResult { text: String::new(), effect: ControlEffect::None }
            }
        }
    }

    pub(super) fn learn(&mut self, text: &str) {
        if let Some(learned) = Learnings::parse(text) {
            self.learnings.get_or_insert_default().merge(&learned);
        }
    }

    /// Runs a call. `None`: the unit waits or has stopped.
    async fn perform(&mut self, call: &ToolCall, cx: &CallContext) -> Option<(String, ControlEffect)> {
        if self.parked.is_some() || self.yielded || self.stopped || cx.cancel.is_cancelled() {
            return None;
        }
        let unit = self.unit;
        let learnings = self.learnings.clone();
        let named = NamedResult::of(call, self.results).await;
        let compute =
            |state: &RunState| unit.call_tool(state, Caller::Commander, call, &cx.key, learnings.clone(), &named);
        if self.end.is_some() {
            let state = unit.view.latest().await.ok()?;
            return Some((compute(&state).text(), ControlEffect::None));
        }
        let answer = unit.journal.control_call(call, cx, compute).await?;
        self.follow(answer, cx).await
    }

    async fn follow(&mut self, answer: ToolAnswer, cx: &CallContext) -> Option<(String, ControlEffect)> {
        let done = match &answer.then {
            Then::Continue => answer,
            Then::FreshSession => {
                (self.fresh, *self.learnings) = (true, None);
                answer
            }
            Then::Completed => {
                self.end = Some(UnitEnd::Completed);
                return Some((answer.text(), ControlEffect::Completed));
            }
            Then::Failed => {
                self.end = Some(UnitEnd::Failed);
                return Some((answer.text(), ControlEffect::Completed));
            }
            Then::CallAgent { agent, input } => self.call_agent(agent, input, cx).await?,
            Then::AskAgent { agent, unit, question } => self.ask_agent(agent, unit.as_ref(), question, cx).await?,
            Then::AskCommander { question_id, unit, question } => {
                self.ask_commander(question_id, unit, question, cx).await?
            }
            Then::AwaitCommanderAnswer { question_id } => self.await_commander(question_id, cx).await?,
            Then::AskOwnCommander { .. } => ToolAnswer::of(Json::Null),
            Then::AskPerson { question_id } => {
                let input = self.answers(std::slice::from_ref(question_id)).await?.pop()?;
                ToolAnswer::of(input)
            }
            Then::Blocked { questions } => {
                let answers = self.answers(questions).await?;
                ToolAnswer::of(json!({"status": "ok", "answers": answers}))
            }
        };
        self.next_item |= done.events.iter().any(|event| matches!(event.kind, RunEventKind::IterationStarted { .. }));
        Some((done.text(), effect_of(&done)))
    }

    /// The answers of people. If one is missing, the unit waits. An answer is not recorded: the stored events have it.
    async fn answers(&mut self, questions: &[Arc<str>]) -> Option<Vec<Json>> {
        let unit = self.unit;
        self.close_overdue(questions).await?;
        let state = unit.view.latest().await.ok()?;
        if self.left_without_answer(&state)? {
            return None;
        }
        let mut answers = Vec::new();
        for id in questions {
            let Some(input) = state.human_inputs.get(id) else {
                answers.push(people::unavailable());
                continue;
            };
            if input.open {
                self.parked = Some(unit.parked(&state, questions));
                return None;
            }
            answers.push(people::answer(input));
        }
        Some(answers)
    }

    /// Whether all of these questions of agents are open: then the unit waits. A question whose time is over may end the task.
    pub(super) async fn are_open(&mut self, questions: &[Arc<str>]) -> Option<bool> {
        let unit = self.unit;
        self.close_overdue(questions).await?;
        let state = unit.view.latest().await.ok()?;
        let is_open = |id: &Arc<str>| state.human_inputs.get(id).is_some_and(|input| input.open);
        let all_open = !self.left_without_answer(&state)? && questions.iter().all(is_open);
        if all_open {
            self.parked = Some(unit.parked(&state, questions));
        }
        Some(all_open)
    }

    /// Whether the task has ended by its route for a question without an answer.
    fn left_without_answer(&mut self, state: &RunState) -> Option<bool> {
        let unit = self.unit;
        let has_ended = UnitView::new(&unit.def, state, &unit.id)?.state.status == AttemptStatus::Completed;
        if has_ended {
            self.end = Some(UnitEnd::Completed);
        }
        Some(has_ended)
    }

    /// Closes the questions whose time is over.
    async fn close_overdue(&self, questions: &[Arc<str>]) -> Option<()> {
        let unit = self.unit;
        for id in questions {
            let events = |state: &RunState| Some(people::timed_out(&UnitView::new(&unit.def, state, &unit.id)?, id));
            unit.close_overdue(id, events).await?;
        }
        Some(())
    }

    async fn await_commander(&mut self, question_id: &Arc<str>, cx: &CallContext) -> Option<ToolAnswer> {
        let state = self.unit.view.latest().await.ok()?;
        let known = state.commander_questions.iter().find(|known| known.id == *question_id);
        let answer = known.and_then(|known| known.answer.clone().or_else(|| commanders::lost(&state, known)));
        let Some(answer) = answer else {
            drop(state);
            let at = self.unit.parts.clock.now().as_micros().saturating_add(ANSWER_POLL);
            self.parked = Some(Parked { wake_at: Some(Timestamp::from_micros(at)) });
            return None;
        };
        drop(state);
        let answer = |_: &RunState| ToolAnswer::of(commanders::answer_text(&answer));
        self.unit.journal.control(&cx.step("done").key, answer).await
    }
}

/// The question that an event closes.
fn closed_question(event: &NewEvent) -> Option<QuestionId> {
    let RunEventKind::HumanInputResolved { question_id, .. } = &event.kind else { return None };
    Some(QuestionId::new(question_id.clone()))
}

/// How the result of a call counts.
pub(super) fn effect_of(answer: &ToolAnswer) -> ControlEffect {
    match answer.is_error() {
        true => ControlEffect::Failed,
        false if answer.events.iter().any(moves_on) => ControlEffect::MovedOn,
        false => ControlEffect::Succeeded,
    }
}

/// Whether an event is the begin of the next item, or the end of a subtask.
fn moves_on(event: &NewEvent) -> bool {
    matches!(event.kind, RunEventKind::IterationStarted { .. } | RunEventKind::SubtaskCompleted { .. })
}

impl UnitRun {
    /// Waits for the answers to these questions, until the time of the first one is over.
    fn parked(&self, state: &RunState, questions: &[Arc<str>]) -> Parked {
        Parked { wake_at: questions.iter().filter_map(|id| self.deadlines.get(state, id)).min() }
    }

    /// Closes a question with these events, if its time is over. `None`: the unit has halted.
    pub(super) async fn close_overdue(
        &self,
        id: &Arc<str>,
        events: impl Fn(&RunState) -> Option<Vec<NewEvent>>,
    ) -> Option<()> {
        self.deadlines.load(&self.parts.runs, &self.run, id).await;
        let state = self.view.latest().await.ok()?;
        let is_open = state.human_inputs.get(id).is_some_and(|input| input.open);
        let now = self.parts.clock.now();
        if !is_open || self.deadlines.get(&state, id).is_none_or(|end| end > now) {
            return Some(());
        }
        let events = events(&state)?;
        let closed = self.journal.commit(|batch| {
            batch.after = Some(state.sequence);
            batch.events.extend(events.iter().map(super::view::event_text));
            batch.close_questions.extend(events.iter().filter_map(closed_question));
        });
        // After a conflict an answer may have come; the caller reads the state.
        if closed.await.is_err() && self.journal.halt().is_some() {
            return None;
        }
        Some(())
    }

    /// Whether the unit works through a dataset item by item.
    pub(super) fn sequential(&self) -> bool {
        let iterator = self.def.tasks.get(&self.id.task).and_then(|task| task.iterator.as_ref());
        iterator.is_some_and(|iterator| !iterator.parallel)
    }

    /// Whether what its agents learn is for other items or rounds.
    pub(super) fn learns(&self) -> bool {
        let task = self.def.tasks.get(&self.id.task);
        let shares = task.and_then(|task| task.iterator.as_ref()).is_some_and(|iterator| iterator.share_learnings);
        shares || self.sequential() || task.is_some_and(|task| task.repeat.is_some())
    }

    /// How the session of a commander begins.
    pub(super) async fn commander_start(&self, objective: &str) -> Option<SessionStart> {
        let state = self.view.latest().await.ok()?;
        let cx = self.tool_context(&state, Caller::Commander, "")?;
        let unit = &cx.unit;
        let agents = agents::allowed(unit).iter();
        let agents = agents.map(|name| {
            context! { name => name.as_str(), description => &*self.parts.description(&self.def, name) }
        });
        let output = (!unit.task.output.is_empty())
            .then(|| field_values::object_schema(&unit.task.output, Extra::Refused).to_string());
        let routes = routes::options(unit.task, &self.parts.project.missions).into_iter().map(|route| {
            let inputs = route.inputs.iter().map(|input| {
                context! { name => &*input.name, type => input.kind, required => input.required,
                description => &*input.description }
            });
            context! { key => route.key, when => &*route.when, is_mission => route.is_mission,
            summaries => route.hand_over.summaries, outputs => route.hand_over.outputs,
            inputs => inputs.collect::<Vec<Value>>() }
        });
        let ancestors = mission_context::ancestors(&self.def, &state, &self.id.task);
        let handed_over = self.source().map(|source| source.context(state.hand_over)).unwrap_or_default();
        let shares = unit.task.iterator.as_ref().is_some_and(|iterator| iterator.parallel && iterator.share_learnings);
        let learned = if shares { rounds::learned(&unit.task_state.learnings) } else { Vec::new() };
        let failure = state.failure.as_ref().map(|failure| &*failure.error).unwrap_or_default();
        let round = rounds::context(unit.task, &state, self.id.iteration);
        let sequential = self.sequential();
        let system = self.render(
            &self.parts.prompts.mission_commander,
            context! {
                mission => &*self.def.name,
                description => &*self.def.description,
                directive => &*self.def.directive,
                plan_required => self.def.commander.plan_required,
                sequential,
                parallel => self.id.iteration.is_some(),
                task => &*self.id.task,
                agents => agents.collect::<Vec<Value>>(),
                ancestors => from_json(&serde_json::to_value(&ancestors).unwrap_or_default()),
                output => output.unwrap_or_default(),
                routes => routes.collect::<Vec<Value>>(),
                earlier_failure => unit.item().and_then(|(_, item)| item.rejected.last()).map(|failed| &*failed.error),
                earlier_writes => self.earlier_changes(),
                shares,
                learned,
                always => unit.task.always,
                failure,
                handed_over => from_json(&serde_json::to_value(&handed_over).unwrap_or_default()),
                round => from_json(&serde_json::to_value(&round).unwrap_or_default()),
                dry_run => state.dry_run,
            },
        );
        let objective = self.render(
            &self.parts.prompts.mission_objective,
            context! { objective, sequential, items => unit.dataset_items().len() },
        );
        let has_files = |name: &&AgentName| self.parts.has_files(&self.def, name);
        let with_files = agents::allowed(unit).iter().filter(has_files).map(|name| name.as_str().into()).collect();
        let folders = self.folders(false, with_files).map(ChatMessage::system);
        let messages = [Some(ChatMessage::system(system)), folders, Some(ChatMessage::user(objective))];
        Some(SessionStart {
            messages: messages.into_iter().flatten().collect(),
            control: self.tool_specs(&cx, COMMANDER),
            tools: self.parts.file_tools(&self.def).iter().map(|tool| ListedTool::from(tool.info())).collect(),
        })
    }

    /// Which tools reach which files. `own_files`: whether the reader has a workspace; `agents`: those of its agents that have one.
    pub(super) fn folders(&self, own_files: bool, agents: Vec<Arc<str>>) -> Option<String> {
        let slots = !self.parts.file_tools(&self.def).is_empty();
        let text = self.render(&self.parts.prompts.mission_folders, context! { slots, own_files, agents });
        (!text.is_empty()).then_some(text)
    }

    /// The tools of the mission as models see them. `caller`: whose prompt they are part of.
    pub(super) fn tool_specs(&self, cx: &ToolContext<'_>, caller: &str) -> Vec<crate::llm::ToolSpec> {
        offered(cx).into_iter().map(|tool| self.tool_spec(tool, cx, caller)).collect()
    }

    /// A request of a commander, with the reasoning effort that the mission sets.
    pub(super) fn with_reasoning(&self, mut request: ChatRequest) -> ChatRequest {
        let effort = self.def.commander.reasoning.as_deref().map(Json::from);
        if let Some(effort) = effort.and_then(|effort| serde_json::from_value(effort).ok()) {
            request.reasoning_effort = Some(effort);
        }
        request
    }

    /// Some of the tools of commanders.
    pub(super) fn specs_of(&self, tools: Vec<MissionTool>, cx: &ToolContext<'_>) -> Vec<crate::llm::ToolSpec> {
        tools.into_iter().map(|tool| self.tool_spec(tool, cx, COMMANDER)).collect()
    }

    fn tool_spec(&self, tool: MissionTool, cx: &ToolContext<'_>, caller: &str) -> crate::llm::ToolSpec {
        let text = self.render(&self.parts.prompts.mission_tools, context! { tool => tool.name(), caller });
        crate::llm::ToolSpec {
            name: tool.name().into(),
            description: text.into(),
            parameters: Arc::new(schemas::schema(tool, cx)),
            strict: false,
        }
    }
}
