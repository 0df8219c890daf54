//! Agents of a mission: their sessions, and the host of their loop.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use futures::future::BoxFuture;
use minijinja::{Value, context};
use segue_engine::{
    conversation::{AgentStatus, BotKind},
    ids::AgentName,
    mission::{
        dataset,
        event::AgentOutcome,
        learnings::Learnings,
        state::RunState,
        tools::{self as mission_tools, Caller, MissionTool, Then},
    },
    project::field_values::{self, Extra},
};
use serde_json::Value as Json;

use super::{
    checkpoint::{AgentSession, SessionStart},
    parts::MissionAgent,
    slice::UnitRun,
};
use crate::{
    context::CallContext,
    conversation::DiscardReplies,
    effect::EffectClass,
    journal::{JournaledModel, JournaledTool, ListedTool},
    limits,
    llm::{ChatMessage, ChatRequest, Llm, Purpose, ToolCall},
    react::{
        BareText, BatchSummary, CODE_ITERATION_LIMIT, ControlEffect, ControlResult, GuardDecision, LoopHost,
        LoopProfile, LoopServices, LoopState, Messages, ModelTurn, ReactLoop, stream_answer,
    },
    tools::{ToolCallContext, ToolCaller, ToolHandler, ToolInfo, invoke, tool_set::ToolSet},
};

/// Model calls of one assignment, unless the agent sets its own limit.
const MOST_MODEL_CALLS: u32 = 40;
/// Consecutive responses whose calls may all fail.
const MOST_FAILED_ANSWERS: u32 = 3;

/// How an agent's run ended, and its text.
pub(super) struct AgentEnd {
    pub(super) outcome: AgentOutcome,
    pub(super) text: Arc<str>,
}

fn failed(text: impl Into<Arc<str>>) -> AgentEnd {
    AgentEnd { outcome: AgentOutcome::Failed, text: text.into() }
}

/// Runs an agent until it answers, asks or fails. `None`: the unit has stopped.
pub(super) fn run<'a>(
    unit: &'a UnitRun,
    name: &'a AgentName,
    session: &'a mut AgentSession,
    message: String,
    cx: &'a CallContext,
) -> BoxFuture<'a, Option<AgentEnd>> {
    Box::pin(async move {
        let Some(agent) = unit.parts.agent(&unit.def, name) else {
            return Some(failed("the project has no such agent"));
        };
        if let Some(reason) = agent.unsupported() {
            return Some(failed(reason));
        }
        let Some(model) = agent.model.clone() else { return Some(failed("it has no model")) };
        let live = live_tools(unit, name, &agent, cx).await;
        if session.start.messages.is_empty() {
            let start = unit.journal.once(&cx.step("start").key, start(unit, name, &agent, &live)).await?;
            session.start = start;
        }
        let tools = journaled(unit, &session.start.tools, &live);
        let control = session.start.control.iter();
        let offered = control.cloned().chain(tools.infos().map(spec)).collect();
        session.messages.push(ChatMessage::user(message));
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
            fails_on_tool_error: false,
            tool_timeout: agent.definition.as_ref().and_then(|definition| definition.tool_timeout),
            text_beside_calls: BotKind::Intermediate,
        };
        let mut host = AgentHost {
            unit,
            name,
            model: JournaledModel::new(model, unit.effects.clone()),
            session: &*session,
            tools: &tools,
            asked: None,
            stopped: false,
        };
        let mut run = ReactLoop {
            services: LoopServices::default(),
            profile: &profile,
            prompts: &unit.parts.prompts,
            offered,
            tools: &tools,
            host: &mut host,
            state: LoopState::default(),
        };
        let end = run.run(cx).await;
        let state = run.state;
        let (asked, stopped) = (host.asked, host.stopped);
        if stopped || cx.cancel.is_cancelled() || unit.journal.halt().is_some() {
            return None;
        }
        let text: Arc<str> = end.last.map(|(streamed, _)| streamed.text).unwrap_or_default();
        session.messages.extend(state.messages);
        if !text.is_empty() {
            session.messages.push(ChatMessage::assistant(text.clone()));
        }
        Some(match (asked, end.status) {
            (Some(question), _) => AgentEnd { outcome: AgentOutcome::Asked, text: question },
            (None, AgentStatus::Failed { code, .. }) if code == CODE_ITERATION_LIMIT => {
                AgentEnd { outcome: AgentOutcome::Capped, text }
            }
            (None, AgentStatus::Failed { reason, .. }) => failed(reason),
            (None, AgentStatus::Cancelled { .. }) => AgentEnd { outcome: AgentOutcome::Cancelled, text },
            (None, _) if text.is_empty() => AgentEnd { outcome: AgentOutcome::NoResult, text },
            (None, _) => AgentEnd { outcome: AgentOutcome::Answered, text },
        })
    })
}

/// The text inside the last `<ANSWER>` tags; the whole text without them.
pub(super) fn answer(text: &str) -> &str {
    let inner = text.rsplit_once("<ANSWER>").map(|(_, rest)| rest.split("</ANSWER>").next().unwrap_or(rest));
    inner.unwrap_or(text).trim()
}

/// A tool as a model sees it.
fn spec(info: &ToolInfo) -> crate::llm::ToolSpec {
    crate::llm::ToolSpec {
        name: info.name.clone(),
        description: info.description.clone(),
        parameters: info.parameters.clone(),
        strict: info.strict,
    }
}

/// The tools that can be called now.
async fn live_tools(unit: &UnitRun, name: &AgentName, agent: &MissionAgent, cx: &CallContext) -> ToolSet {
    let cx = cx.with_timeout(limits::MCP_INITIALISE);
    let listing = agent.servers.iter().map(|(server, _, _)| {
        let (source, cx) = (unit.parts.sources.get(server), cx.clone());
        async move { cx.wait(source?.list(&cx)).await.ok()?.ok() }
    });
    let catalogs = futures::future::join_all(listing).await;
    let mut set = MissionTool::ALL.into_iter().fold(ToolSet::builder(), |set, tool| set.reserve(tool.name()));
    for tool in unit.parts.tools.get(name.as_str()).map(Vec::as_slice).unwrap_or_default() {
        set = set.tool(tool.clone());
    }
    for ((server, include, exclude), catalog) in agent.servers.iter().zip(&catalogs) {
        if let Some(catalog) = catalog {
            set = set.server(server.as_str(), catalog, include, exclude);
        }
    }
    set.build().with_effects(|tool| agent.effect(tool))
}

/// The listed tools, with the journal of the unit around those that can be called.
fn journaled(unit: &UnitRun, listed: &[ListedTool], live: &ToolSet) -> ToolSet {
    let mut set = ToolSet::builder();
    for listed in listed {
        let spec = ToolInfo::from(listed);
        let inner = live.get(&spec.name).map(|entry| unit.secrets.wrap(live.tool(entry)));
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
            dry_run => state.dry_run,
        },
    );
    Some(SessionStart {
        messages: vec![ChatMessage::system(prompt)],
        control,
        tools: live.infos().map(ListedTool::from).collect(),
    })
}

/// The host of an agent's loop.
struct AgentHost<'a> {
    unit: &'a UnitRun,
    name: &'a AgentName,
    model: JournaledModel,
    session: &'a AgentSession,
    tools: &'a ToolSet,
    asked: Option<Arc<str>>,
    stopped: bool,
}

#[async_trait]
impl LoopHost for AgentHost<'_> {
    async fn messages(&mut self, state: &LoopState, _: &CallContext) -> Result<Messages, AgentStatus> {
        let messages = self.session.start.messages.iter().chain(&self.session.messages).chain(&state.messages);
        Ok(messages.cloned().collect())
    }
    async fn call_model(&mut self, request: ChatRequest, cx: &CallContext) -> ModelTurn {
        call_model(&self.model, self.name.as_str(), request, cx).await
    }
    fn is_control(&self, call: &ToolCall) -> bool {
        MissionTool::from_name(&call.name).is_some()
    }
    async fn control(&mut self, call: &ToolCall, _: &BatchSummary, cx: &CallContext) -> ControlResult {
        if self.stopped || self.asked.is_some() || cx.cancel.is_cancelled() {
            return ControlResult { text: String::new(), effect: ControlEffect::None };
        }
        let caller = Caller::Agent(self.name.clone());
        let unit = self.unit;
        let compute = |state: &RunState| unit.call_tool(state, caller.clone(), call, &cx.key, None);
        let Some(answer) = unit.journal.control(&cx.key, compute).await else {
            self.stopped = true;
            return ControlResult { text: String::new(), effect: ControlEffect::Completed };
        };
        if let Then::AskOwnCommander { question } = &answer.then {
            self.asked = Some(question.clone());
            let text = unit.envelope("asked", "");
            return ControlResult { text, effect: ControlEffect::Completed };
        }
        let effect = if answer.is_error() { ControlEffect::Failed } else { ControlEffect::Succeeded };
        ControlResult { text: answer.text(), effect }
    }
    fn is_done(&self) -> bool {
        self.stopped || self.asked.is_some()
    }
    fn check_call(&mut self, call: &ToolCall, class: EffectClass, _: bool) -> GuardDecision {
        if self.unit.dry_run && matches!(class, EffectClass::Write | EffectClass::Idempotent) {
            return GuardDecision::Refuse(self.unit.envelope("dry_run", &call.name));
        }
        GuardDecision::Allow
    }
    fn tool_context(&self, at: usize, call: &ToolCall, cx: &CallContext) -> ToolCallContext {
        let source = self.tools.get(&call.name).map(|entry| entry.info.source.clone()).unwrap_or_default();
        self.unit.outgoing(&source, self.name.as_str(), &cx.step(format!("tool.{at}")))
    }
}

/// Calls a model whose text nobody sees as it comes.
pub(super) async fn call_model(model: &dyn Llm, source: &str, request: ChatRequest, cx: &CallContext) -> ModelTurn {
    let cx = cx.with_timeout(MODEL_TIMEOUT);
    stream_answer(model, &source.into(), request, None, &mut DiscardReplies, &cx).await
}

/// The longest time of one model call.
const MODEL_TIMEOUT: Duration = Duration::from_secs(600);

impl UnitRun {
    /// The context of a call that leaves the process.
    pub(super) fn outgoing(&self, server: &str, agent: &str, cx: &CallContext) -> ToolCallContext {
        let servers = &self.parts.project.endpoints.mcp_servers;
        let meta = servers.get(server).map(|server| server.meta_static.clone()).unwrap_or_default();
        ToolCallContext {
            idempotency_key: invoke::idempotency_key(self.run.as_str(), 0, cx),
            cx: cx.clone(),
            metadata: Arc::new([("run".to_owned(), Json::from(self.run.as_str()))].into_iter().collect()),
            caller: ToolCaller { conversation: self.run.as_str().into(), agent: Some(agent.into()), flow: None },
            meta: Arc::new(meta),
            progress: None,
            client_requests: None,
            effect: None,
        }
    }
    /// Calls a tool of the mission.
    pub(super) fn call_tool(
        &self,
        state: &RunState,
        caller: Caller,
        call: &ToolCall,
        key: &crate::context::StepKey,
        learnings: Option<Learnings>,
    ) -> mission_tools::ToolAnswer {
        let arguments = match &call.arguments {
            crate::llm::ToolArguments::Json(json) => mission_tools::Arguments::Json(json),
            crate::llm::ToolArguments::Malformed { text, .. } if text.trim().is_empty() => {
                mission_tools::Arguments::Malformed("")
            }
            crate::llm::ToolArguments::Malformed { error, .. } => mission_tools::Arguments::Malformed(error),
        };
        match self.tool_context(state, caller, key.as_str()) {
            Some(cx) => mission_tools::call(&call.name, arguments, &mission_tools::ToolContext { learnings, ..cx }),
            None => mission_tools::ToolAnswer::of(Json::Null),
        }
    }
}
