//! Agents of a mission: their sessions, and the host of their loop.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use futures::future::BoxFuture;
use minijinja::{Value, context};
use segue_engine::{
    conversation::{AgentStatus, BotKind, Writes, request_hash},
    ids::AgentName,
    mission::{
        dataset,
        event::AssignmentOutcome,
        learnings::Learnings,
        state::RunState,
        tools::{self as mission_tools, AgentInput, Caller, MissionTool, Then, ToolAnswer, people},
        unit::UnitView,
    },
    project::{
        AgentRules, OnToolError,
        field_values::{self, Extra},
    },
};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::{
    budgets::AfterResponse,
    checkpoint::{AgentSession, SessionStart},
    compaction::compaction_rules,
    delegation,
    parts::MissionAgent,
    remote,
    results::{NamedResult, with_result_tools},
    skills,
    slice::UnitRun,
};
use crate::{
    agents::{ToolPolicy, file_prompt_variables},
    context::CallContext,
    conversation::DiscardReplies,
    delegation::{delegates_only, replacement_text},
    effect::EffectClass,
    journal::{JournaledModel, JournaledTool, ListedTool},
    limits,
    llm::{ChatMessage, ChatRequest, Llm, Purpose, ToolCall},
    react::{
        BareText, BatchSummary, CODE_ITERATION_LIMIT, CallFate, Cap, CompactionReport, ControlEffect, ControlResult,
        GuardDecision, KeptFacts, LoopHost, LoopProfile, LoopServices, LoopState, Messages, ModelTurn, RESULT_TOOLS,
        ReactLoop, ResultStore, ToolNarrowing, stream_answer, tool_spec,
    },
    tools::{
        ToolCallContext, ToolCaller, ToolHandler, ToolInfo, ToolOutcome, invoke,
        tool_set::{ToolSet, ToolSetBuilder},
    },
};

/// Model calls of one assignment, unless the agent sets its own limit.
const MOST_MODEL_CALLS: u32 = 40;
/// Consecutive responses whose calls may all fail.
const MOST_FAILED_ANSWERS: u32 = 3;

/// How an agent's run ended, and its text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct AssignmentEnd {
    pub(super) outcome: AssignmentOutcome,
    pub(super) text: Arc<str>,
}

/// How far an agent's run got.
pub(super) enum Progress {
    /// It has ended.
    Ended(AssignmentEnd),
    /// The slice is over; its session has what it did.
    Yielded,
    /// It waits for the answer to this question to a person. Its session is that before the response that asked: the response is replayed.
    Waits(Arc<str>),
}

fn failed(text: impl Into<Arc<str>>) -> Progress {
    Progress::Ended(failed_end(text))
}

pub(super) fn failed_end(text: impl Into<Arc<str>>) -> AssignmentEnd {
    AssignmentEnd { outcome: AssignmentOutcome::Failed, text: text.into() }
}

/// Runs an agent until it answers, asks or fails, or until the slice is over. Without `input` it goes on with what its session has.
/// `None`: the unit has stopped.
pub(super) fn run<'a>(
    unit: &'a UnitRun,
    name: &'a AgentName,
    session: &'a mut AgentSession,
    input: Option<&'a AgentInput>,
    cx: &'a CallContext,
) -> BoxFuture<'a, Option<Progress>> {
    Box::pin(async move {
        let Some(agent) = unit.parts.agent(&unit.def, name) else {
            return Some(failed("the project has no such agent"));
        };
        if let Some(remote) = agent.definition.as_ref().and_then(|definition| definition.remote.as_ref()) {
            let Some(input) = input else { return Some(failed("a remote agent cannot go on without a message")) };
            return remote::run(unit, name, remote, &mut session.remote, input, cx).await.map(Progress::Ended);
        }
        let Some(model) = agent.model.clone() else { return Some(failed("it has no model")) };
        let delegation = delegation::open(unit, name);
        let live = live_tools(unit, name, &agent, cx).await;
        if session.start.messages.is_empty() {
            let start = unit.journal.once(&cx.step("start").key, start(unit, name, &agent, &live)).await?;
            session.start = start;
        }
        match input {
            Some(AgentInput::Task(task)) => {
                session.assignment = Some(task.clone());
                session.worked_ms = 0;
                session.state.begin_run(ChatMessage::user(unit.envelope("task", task)));
            }
            Some(AgentInput::Response(response)) => {
                session.state.begin_run(ChatMessage::user(unit.envelope("response", response)));
            }
            None => {}
        }
        let results = unit.results(session.state.results.clone(), &agent.context);
        let mut tools = journaled(unit, &session.start.tools, &live);
        let narrowing = ToolNarrowing::default();
        if let Some(delegation) = &delegation {
            tools = delegation.with_task(unit, &agent, &model, tools, &narrowing);
        }
        let tools = with_result_tools(tools, &results);
        let skills = match skills::session(&agent, &tools, narrowing, &unit.parts.prompts) {
            Ok(skills) => skills,
            Err(reason) => return Some(failed(reason)),
        };
        let control = session.start.control.iter();
        let offered = control.cloned().chain(tools.infos().map(tool_spec)).collect();
        let profile = LoopProfile {
            purpose: Purpose::AGENT,
            bare_text: BareText::Final,
            closing_message: false,
            max_model_calls: agent
                .definition
                .as_ref()
                .and_then(|definition| definition.max_iterations)
                .unwrap_or(MOST_MODEL_CALLS),
            max_failed_answers: MOST_FAILED_ANSWERS,
            fails_on_tool_error: agent
                .definition
                .as_ref()
                .is_some_and(|definition| definition.on_tool_error == OnToolError::Fail),
            tool_timeout: agent.definition.as_ref().and_then(|definition| definition.tool_timeout),
            text_beside_calls: BotKind::Intermediate,
        };
        let no_rules = AgentRules::default();
        let rules = agent.definition.as_ref().map_or(&no_rules, |definition| &definition.rules);
        let cx = &match agent.definition.as_ref().and_then(|definition| definition.timeout) {
            Some(limit) => cx.with_timeout(limit.saturating_sub(Duration::from_millis(session.worked_ms))),
            None => cx.clone(),
        };
        let began = cx.clock.elapsed();
        let mut policy = ToolPolicy::new(rules, &session.policy);
        if session.policy.is_empty() {
            let Writes { done, in_doubt, .. } = &unit.earlier_writes;
            let own = done.iter().chain(in_doubt).filter(|write| write.by.as_deref() == Some(name.as_str()));
            policy.count_earlier(own.map(|write| &write.tool));
        }
        let mut host = MissionAgentHost {
            unit,
            name,
            model: unit.journaled(model),
            start: &session.start,
            assignment: session.assignment.clone(),
            tools: &tools,
            results: &results,
            policy,
            asked: None,
            waits_for: None,
            stopped: false,
            is_repeated: false,
        };
        let mut services = LoopServices {
            compaction: compaction_rules(&agent.context),
            results: Some(results.clone()),
            skills,
            ..LoopServices::default()
        };
        if let Some(delegation) = &delegation {
            services = services.with_budget(delegation.budget.clone());
        }
        let mut run = ReactLoop {
            services,
            profile: &profile,
            prompts: &unit.parts.prompts,
            offered,
            tools: &tools,
            host: &mut host,
            state: std::mem::take(&mut session.state),
        };
        let (before, end) = loop {
            let before = run.state.clone();
            if let Some(end) = run.advance(cx).await {
                break (before, Some(end));
            }
            match unit.after_response(run.state.model_calls, cx).await? {
                AfterResponse::GoOn => {}
                AfterResponse::Finish => run.close(Cap::Tokens),
                AfterResponse::Stop => break (before, None),
            }
            if unit.limit.is_spent() {
                break (before, None);
            }
        };
        session.state = run.state;
        let (asked, waits_for, stopped, policy) = (host.asked, host.waits_for, host.stopped, host.policy.metadata());
        if stopped || cx.cancel.is_cancelled() || unit.journal.halt().is_some() {
            return None;
        }
        if let Some(question) = waits_for {
            session.state = before;
            return Some(Progress::Waits(question));
        }
        session.policy = policy;
        let worked = cx.clock.elapsed().saturating_sub(began).as_millis();
        session.worked_ms = session.worked_ms.saturating_add(u64::try_from(worked).unwrap_or(u64::MAX));
        let Some(end) = end else { return Some(Progress::Yielded) };
        let text: Arc<str> = end.last.map(|(streamed, _)| streamed.text).unwrap_or_default();
        if !text.is_empty() {
            session.state.messages.push(ChatMessage::assistant(text.clone()));
        }
        let (outcome, text) = match (asked, end.status) {
            (Some(question), _) => (AssignmentOutcome::Asked, question),
            (None, AgentStatus::Failed { code, .. }) if code == CODE_ITERATION_LIMIT => {
                (AssignmentOutcome::Capped, session.state.last_text().unwrap_or_default().into())
            }
            (None, AgentStatus::Failed { reason, .. }) => (AssignmentOutcome::Failed, reason.into()),
            (None, AgentStatus::Cancelled { .. }) => (AssignmentOutcome::Cancelled, text),
            (None, _) if text.is_empty() => (AssignmentOutcome::NoResult, text),
            (None, _) => (AssignmentOutcome::Answered, text),
        };
        Some(Progress::Ended(AssignmentEnd { outcome, text }))
    })
}

/// The text inside the last `<ANSWER>` tags; the whole text without them.
pub(super) fn answer(text: &str) -> &str {
    let inner = text.rsplit_once("<ANSWER>").map(|(_, rest)| rest.split("</ANSWER>").next().unwrap_or(rest));
    inner.unwrap_or(text).trim()
}

/// The tools that can be called now.
async fn live_tools(unit: &UnitRun, name: &AgentName, agent: &MissionAgent, cx: &CallContext) -> ToolSet {
    let cx = cx.with_timeout(limits::MCP_INITIALISE);
    let servers = skills::servers(&unit.def, name, agent);
    let listing = servers.iter().map(|(server, _, _)| {
        let (source, cx) = (unit.parts.sources.get(server), cx.clone());
        async move { cx.wait(source?.list(&cx)).await.ok()?.ok() }
    });
    let catalogs = futures::future::join_all(listing).await;
    let reserved = MissionTool::ALL.into_iter().map(MissionTool::name).chain(RESULT_TOOLS);
    let reserved = reserved.chain(delegation::reserved(unit, name).iter().copied());
    let mut set = reserved.fold(ToolSet::builder(), ToolSetBuilder::reserve);
    set = skills::SKILL_TOOLS.into_iter().filter(|_| agent.skills.is_some()).fold(set, |set, name| set.reserve(name));
    for tool in unit.parts.own_tools(&unit.def, name) {
        set = set.tool(tool.clone());
    }
    for ((server, include, exclude), catalog) in servers.iter().zip(&catalogs) {
        if let Some(catalog) = catalog {
            set = set.server(server.as_str(), catalog, include, exclude);
        }
    }
    let tools = set.build();
    for (tool, reason) in tools.excluded() {
        tracing::warn!(agent = %name, tool = %tool, code = "T0604", "the agent does not get a tool: {reason}");
    }
    tools.with_effects(|tool| agent.effect(tool))
}

/// The listed tools, with the journal of the unit around those that can be called.
pub(super) fn journaled(unit: &UnitRun, listed: &[ListedTool], live: &ToolSet) -> ToolSet {
    let mut set = ToolSet::builder();
    for listed in listed {
        let spec = ToolInfo::from(listed);
        let inner = live.get(&spec.name).map(|entry| unit.rules.secrets.wrap(live.tool(entry)));
        let tool: Arc<dyn ToolHandler> = Arc::new(JournaledTool { spec, inner, journal: unit.effects.clone() });
        set = set.tool(tool);
    }
    set.build()
}

/// How the session of an agent begins.
async fn start(unit: &UnitRun, name: &AgentName, agent: &MissionAgent, live: &ToolSet) -> Option<SessionStart> {
    let state = unit.view.latest().await.ok()?;
    let cx = unit.tool_context(&state, Caller::Agent(name.clone()), "")?;
    let control = unit.tool_specs(&cx, "agent");
    let datasets = unit.def.datasets.iter().map(|(dataset, def)| {
        let fields =
            (!def.schema.is_empty()).then(|| field_values::object_schema(&def.schema, Extra::Refused).to_string());
        context! {
            name => &**dataset,
            description => &*def.description,
            items => dataset::items(&state, dataset).len(),
            schema => fields.unwrap_or_default(),
        }
    });
    let secrets = unit.def.inputs.iter().filter(|(_, input)| input.protected);
    let secrets = secrets.map(|(name, input)| context! { name => &**name, description => &*input.field.description });
    let prompt = unit.render(
        &unit.parts.prompts.mission_agent,
        context! {
            name => name.as_str(),
            description => &*agent.description,
            datasets => datasets.collect::<Vec<Value>>(),
            secrets => secrets.collect::<Vec<Value>>(),
            sequential => cx.unit.sequential().is_some(),
            asks_people => cx.may_ask_people(),
            dry_run => state.dry_run,
        },
    );
    let policy = delegation::policy(unit, name);
    let only_delegates = delegates_only(live);
    let own_tools = live.clone().only(|name| !only_delegates.contains(name));
    let own_files =
        file_prompt_variables(&own_tools).map(|variables| unit.render(&unit.parts.prompts.agent_workspace, variables));
    let folders = unit.folders(own_files.is_some(), Vec::new());
    let texts = [Some(prompt), own_files, folders, unit.earlier_changes()].into_iter().flatten().map(Into::into);
    let messages = texts.chain(policy).map(ChatMessage::system);
    Some(SessionStart { messages: messages.collect(), control, tools: live.infos().map(ListedTool::from).collect() })
}

/// The host of an agent's loop.
struct MissionAgentHost<'a> {
    unit: &'a UnitRun,
    name: &'a AgentName,
    model: JournaledModel,
    start: &'a SessionStart,
    assignment: Option<Arc<str>>,
    tools: &'a ToolSet,
    results: &'a ResultStore,
    policy: ToolPolicy<'a>,
    asked: Option<Arc<str>>,
    /// The question to a person that is not answered yet. Nothing of its response counts.
    waits_for: Option<Arc<str>>,
    stopped: bool,
    /// Whether the latest compaction was recorded before.
    is_repeated: bool,
}

#[async_trait]
impl LoopHost for MissionAgentHost<'_> {
    async fn messages(&mut self, state: &LoopState, _: &CallContext) -> Result<Messages, AgentStatus> {
        Ok(self.start.messages.iter().chain(&state.messages).cloned().collect())
    }
    async fn kept_facts(&mut self, _: &LoopState, cx: &CallContext) -> KeptFacts {
        let facts = KeptFacts { assignment: self.assignment.clone(), ..KeptFacts::default() };
        let (facts, is_repeated) = self.unit.recorded_facts(cx, async { Some(facts) }).await;
        self.is_repeated = is_repeated;
        facts.unwrap_or_default()
    }
    fn compacted(&mut self, report: &CompactionReport, _: &CallContext) {
        if !self.is_repeated {
            self.unit.note_compaction(self.name.as_str(), report);
        }
    }
    async fn call_model(&mut self, request: ChatRequest, cx: &CallContext) -> ModelTurn {
        self.unit.limit.count_call();
        call_model(&self.model, self.name.as_str(), request, cx).await
    }
    fn is_control(&self, call: &ToolCall) -> bool {
        MissionTool::from_name(&call.name).is_some()
    }
    async fn control(&mut self, call: &ToolCall, _: &BatchSummary, cx: &CallContext) -> ControlResult {
        if self.is_done() || cx.cancel.is_cancelled() {
            let text = CallFate::Queued.result(call, &self.unit.parts.prompts).text().to_owned();
            return ControlResult { text, effect: ControlEffect::None };
        }
        let caller = Caller::Agent(self.name.clone());
        let unit = self.unit;
        let named = NamedResult::of(call, self.results).await;
        let compute = |state: &RunState| unit.call_tool(state, caller.clone(), call, &cx.key, None, &named);
        let Some(answer) = unit.journal.control_call(call, cx, compute).await else {
            self.stopped = true;
            return ControlResult { text: String::new(), effect: ControlEffect::Completed };
        };
        if let Then::AskOwnCommander { question } = &answer.then {
            self.asked = Some(question.clone());
            let text = unit.envelope("asked", "");
            return ControlResult { text, effect: ControlEffect::Completed };
        }
        let answer = match answer.then {
            Then::AskPerson { question_id } => match unit.answer_of(&question_id).await {
                Some(PersonAnswer::Is(answer)) => ToolAnswer::of(answer),
                Some(PersonAnswer::Open) => {
                    self.waits_for = Some(question_id);
                    return ControlResult { text: String::new(), effect: ControlEffect::Completed };
                }
                None => {
                    self.stopped = true;
                    return ControlResult { text: String::new(), effect: ControlEffect::Completed };
                }
            },
            _ => answer,
        };
        let effect = if answer.is_error() { ControlEffect::Failed } else { ControlEffect::Succeeded };
        ControlResult { text: answer.text(), effect }
    }
    fn is_done(&self) -> bool {
        self.stopped || self.asked.is_some() || self.waits_for.is_some()
    }
    async fn check_call(&mut self, call: &ToolCall, class: EffectClass, _: bool, cx: &CallContext) -> GuardDecision {
        let unit = self.unit;
        if let GuardDecision::Refuse(text) = unit.check_call(call, class) {
            return GuardDecision::Refuse(text);
        }
        if self.is_done() {
            // Nothing of this response counts: it is replayed when the person has answered.
            return GuardDecision::Refuse(String::new());
        }
        // No mission has slots: an agent with a condition over them is an error at load.
        if let Some(rejection) = self.policy.rejection(&call.name, |_| false) {
            return GuardDecision::Refuse(rejection.text(&unit.parts.prompts));
        }
        if self.policy.must_confirm(&call.name, class) {
            match unit.confirmation(self.name, call, cx).await {
                Some(Confirmation::Given) => {}
                Some(Confirmation::Open(question_id)) => {
                    self.waits_for = Some(question_id);
                    return GuardDecision::Refuse(String::new());
                }
                Some(Confirmation::Declined(text)) => return GuardDecision::Refuse(unit.envelope(text, "")),
                None => {
                    self.stopped = true;
                    return GuardDecision::Refuse(String::new());
                }
            }
        }
        self.policy.count(&call.name);
        GuardDecision::Allow
    }
    fn call_not_sent(&mut self, call: &ToolCall, text: &str, cx: &CallContext) {
        if self.is_done() {
            return;
        }
        self.unit.journal.note_not_sent(call, text, cx);
    }
    fn result_text(&mut self, _: &ToolCall, outcome: &ToolOutcome) -> Option<String> {
        replacement_text(outcome)
    }
    fn tool_context(&self, at: usize, call: &ToolCall, cx: &CallContext) -> ToolCallContext {
        let source = self.tools.get(&call.name).map(|entry| entry.info.source.clone()).unwrap_or_default();
        self.unit.outgoing(&source, self.name.as_str(), &cx.step(format!("tool.{at}")))
    }
}

/// Calls a model whose text nobody sees as it comes.
pub(super) async fn call_model(model: &dyn Llm, source: &str, request: ChatRequest, cx: &CallContext) -> ModelTurn {
    stream_answer(model, &source.into(), request, None, &mut DiscardReplies, cx).await
}

/// The arguments of a call of a tool of the mission.
pub(super) fn arguments(call: &ToolCall) -> mission_tools::Arguments<'_> {
    match &call.arguments {
        crate::llm::ToolArguments::Json(json) => mission_tools::Arguments::Json(json),
        crate::llm::ToolArguments::Malformed { text, .. } if text.trim().is_empty() => {
            mission_tools::Arguments::Malformed("")
        }
        crate::llm::ToolArguments::Malformed { error, .. } => mission_tools::Arguments::Malformed(error),
        // The loop never hands such a call on.
        crate::llm::ToolArguments::Dropped { .. } => mission_tools::Arguments::Malformed("they were not kept"),
    }
}

/// What a person says to a call.
enum Confirmation {
    /// Nothing yet: the question is open.
    Open(Arc<str>),
    /// Yes, to exactly this call.
    Given,
    /// Not yes; the name of the text for the model.
    Declined(&'static str),
}

/// What is known about the answer of a person.
enum PersonAnswer {
    /// The question is open.
    Open,
    /// What the model reads: the answer, or why there is none.
    Is(Json),
}

impl UnitRun {
    /// The answer to a question. It is not recorded as a step: the stored events have it. `None`: the state cannot be read.
    async fn answer_of(&self, question_id: &Arc<str>) -> Option<PersonAnswer> {
        let state = self.view.latest().await.ok()?;
        Some(match state.human_inputs.get(question_id) {
            None => PersonAnswer::Is(people::unavailable()),
            Some(input) if input.open => PersonAnswer::Open,
            Some(input) => PersonAnswer::Is(people::answer(input)),
        })
    }
    /// Decides on a call by the rules of the run.
    pub(super) fn check_call(&self, call: &ToolCall, class: EffectClass) -> GuardDecision {
        match self.rules.rejection(&call.name, call.arguments.as_json(), class) {
            Some(text) => GuardDecision::Refuse(text),
            None => GuardDecision::Allow,
        }
    }
    /// Asks a person whether an agent may make a call, or reads the answer. A question is for one call with its arguments: when the response
    /// is replayed, it finds its answer by its key. `None`: the unit has halted.
    async fn confirmation(&self, agent: &AgentName, call: &ToolCall, cx: &CallContext) -> Option<Confirmation> {
        let arguments = call.arguments.as_json().cloned().unwrap_or_default();
        let key = cx.step(format!("confirm.{:08x}", request_hash(&call.name, &arguments))).key;
        let caller = Caller::Agent(agent.clone());
        let ask = |state: &RunState| match self.tool_context(state, caller.clone(), key.as_str()) {
            Some(cx) => people::confirm(&call.name, &arguments, &cx),
            None => ToolAnswer::of(Json::Null),
        };
        let Then::AskPerson { question_id } = self.journal.control(&key, ask).await?.then else {
            return Some(Confirmation::Declined("confirm_closed"));
        };
        self.close_overdue(&question_id, |state| {
            Some(people::timed_out(&UnitView::new(&self.def, state, &self.id)?, &question_id))
        })
        .await?;
        let state = self.view.latest().await.ok()?;
        Some(match state.human_inputs.get(&question_id) {
            Some(input) if input.open => Confirmation::Open(question_id),
            Some(input) if people::is_consent(input) => Confirmation::Given,
            Some(input) if input.timed_out => Confirmation::Declined("confirm_unanswered"),
            Some(input) if input.answer.is_some() => Confirmation::Declined("confirm_declined"),
            Some(_) | None => Confirmation::Declined("confirm_closed"),
        })
    }
    /// The context of a call that leaves the process.
    pub(super) fn outgoing(&self, server: &str, agent: &str, cx: &CallContext) -> ToolCallContext {
        let servers = &self.parts.project.endpoints.mcp_servers;
        let meta = servers.get(server).map(|server| server.meta_static.clone()).unwrap_or_default();
        let run = self.run.as_str();
        ToolCallContext::new(cx.clone(), run, invoke::idempotency_key(run, 0, cx))
            .with_caller(ToolCaller::new(run).agent(agent).session(self.id.to_string()))
            .with_metadata(Arc::new([("run".to_owned(), Json::from(run))].into_iter().collect()))
            .with_meta(meta)
    }
    /// Calls a tool of the mission.
    pub(super) fn call_tool(
        &self,
        state: &RunState,
        caller: Caller,
        call: &ToolCall,
        key: &crate::context::StepKey,
        learnings: Option<Learnings>,
        results: &NamedResult,
    ) -> mission_tools::ToolAnswer {
        match self.tool_context(state, caller, key.as_str()) {
            Some(cx) => mission_tools::call(
                &call.name,
                arguments(call),
                &mission_tools::ToolContext { learnings, results, ..cx },
            ),
            None => mission_tools::ToolAnswer::of(Json::Null),
        }
    }
}
