//! Performing what the dialogue engine asks for. Every effect passes the journal and comes back as the next input.

use std::{borrow::Cow, sync::Arc};

use segue_engine::{
    conversation::{AgentCall, AgentOutcome, AgentStatus, ToolCallStep, ToolResult},
    dialogue::{InputKind, Next},
    project::{AgentDef, Protocol},
};
use serde_json::Value as Json;

use super::{
    actions, catalogue,
    desk::RunDesk,
    journaled::{
        elicitation::{self, Inquiries},
        hooks, remote_agent,
    },
    knowledge,
    parts::Parts,
    replies::TurnSink,
    stop::Scene,
};
use crate::{
    agents::{Agent, AgentTask},
    cx::Cx,
    effect::Effect,
    journal::{EffectJournal, JournalError, JournaledModel, JournaledTool, Once, RecordedToolCall, Step, request_hash},
    llm::Llm,
    tools::{Caller, Tool, ToolCx, direct, invoke, registry::ToolSet},
    understanding::Choice,
};

/// What an operator should know: a code and a reason.
pub(super) type Failures = Vec<(String, String)>;

/// Performs one effect. Each kind is boxed: the largest of their futures would otherwise be part of that of every turn, and be
/// moved with it.
pub(super) async fn perform(
    next: Next,
    scene: &Scene<'_>,
    sink: &mut TurnSink<'_>,
    failures: &mut Failures,
    cx: &Cx,
) -> InputKind {
    match next {
        Next::Listen | Next::EndSession => InputKind::Understood(Vec::new()),
        Next::Understand => Box::pin(understand(scene, failures, cx)).await,
        Next::Act(call) => InputKind::Acted(Box::pin(actions::act(call, scene, failures, cx)).await),
        Next::Tool(call) => InputKind::Called(Box::pin(call_tool(*call, scene, failures, cx)).await),
        Next::Search(call) => InputKind::Searched(Box::pin(knowledge::search(&call, scene, sink, failures, cx)).await),
        Next::Agent(call) => {
            let desk = RunDesk::new(scene);
            let outcome = Box::pin(run_agent(&call, scene, &desk, sink, cx)).await;
            failures.extend(desk.warnings());
            if let AgentStatus::Failed { code, reason } = &outcome.status {
                failures.push((code.clone(), format!("agent {}: {reason}", call.agent)));
            }
            InputKind::Agent(outcome)
        }
    }
}

async fn understand(scene: &Scene<'_>, failures: &mut Failures, cx: &Cx) -> InputKind {
    let Scene { parts, conversation, record, .. } = *scene;
    if parts.project.config.generator.is_none() {
        // A pipeline without a generator understands structured messages alone; a waiting agent gets everything else.
        return InputKind::Understood(Vec::new());
    }
    let llm = scene.recorded(&parts.generator);
    let step = cx.step("flows");
    let choice = choose(scene, &step).await;
    if let Some(choice) = &choice {
        record
            .meter
            .chose(&step.key, choice, || parts.understander.flows_in_prompt(choice, &parts.project, conversation));
    }
    let at = cx.clock.now();
    let step = cx.step("understand");
    let understanding =
        parts.understander.understand_among(choice.as_ref(), &parts.project, conversation, at, &llm, &step).await;
    record.meter.read(&step.key, &understanding.notes);
    for trouble in understanding.failures {
        failures.push(("U0501".into(), trouble));
    }
    InputKind::Understood(understanding.commands)
}

/// The flows that fit the message, when there are more than the prompt may show. Recorded: a replay asks no service.
async fn choose(scene: &Scene<'_>, cx: &Cx) -> Option<Choice> {
    let Scene { parts, conversation, record, .. } = *scene;
    if !parts.understander.must_choose(&parts.project, conversation) {
        return None;
    }
    let step = Step { key: &cx.key, kind: "flows", class: Effect::Read, request: "" };
    let choose = parts.understander.choose(&parts.project, conversation, cx);
    // Where the journal fails, the call of the model that follows stops there too.
    record.journal.once(step, choose).await.and_then(Once::known).ok()
}

async fn call_tool(call: ToolCallStep, scene: &Scene<'_>, failures: &mut Failures, cx: &Cx) -> ToolResult {
    let Scene { parts, conversation, number, record, .. } = *scene;
    let journal = &record.journal;
    let Some(source) = parts.sources.get(&call.server) else {
        return ToolResult::Failed { reason: format!("there is no MCP server {}", call.server) };
    };
    let meta = parts.meta(conversation).get(call.server.as_str()).and_then(Json::as_object).cloned();
    let result_key = cx.step("result").key;
    let cx = cx.step("tool");
    let tool_cx = ToolCx {
        idempotency_key: invoke::idempotency_key(conversation.id.as_str(), number.0, &cx),
        cx,
        metadata: parts.metadata(conversation),
        caller: Caller {
            conversation: conversation.id.as_str().into(),
            agent: None,
            flow: Some(call.flow_id.as_str().into()),
        },
        meta: Arc::new(meta.unwrap_or_default()),
        progress: None,
        inquired: None,
        effect: None,
    };
    let inquiries = Inquiries::of(scene, &parts.generator);
    let wrap = |tool: Arc<dyn Tool>| {
        let spec = tool.spec().clone();
        inquiries.opened(Arc::new(JournaledTool { spec, inner: Some(tool), journal: journal.clone() }), record)
    };
    // The tool's own record says whether it ran; this one says what the flow was told, and needs no server to be read again.
    let arguments = serde_json::to_string(&call.arguments).unwrap_or_default();
    let request = format!("{}.{}:{}", call.server, call.tool, request_hash(&arguments));
    let step = Step { key: &result_key, kind: "result", class: Effect::Composite, request: &request };
    let work = async {
        // The record of the call itself goes before the server, which may be away, or list something else by now.
        let result = match earlier(&call, journal, &tool_cx.cx).await {
            Some(result) => {
                elicitation::settled(&call.server, scene, &tool_cx.cx).await;
                result
            }
            None => direct::call_step(&**source, &call, &tool_cx, None, &wrap).await,
        };
        let result = match result {
            ToolResult::Failed { reason } if is_in_doubt(journal, &tool_cx.cx) => ToolResult::Unknown { reason },
            other => other,
        };
        elicitation::slots(result, &call.server, parts)
    };
    let result = match journal.once(step, work).await {
        Ok(Once::Performed(result)) => result,
        Ok(Once::Replayed(result)) => {
            elicitation::settled(&call.server, scene, &tool_cx.cx).await;
            result
        }
        Ok(Once::Unknown) => ToolResult::Failed { reason: JournalError::OutcomeUnknown.to_string() },
        Err(error) => ToolResult::Failed { reason: error.to_string() },
    };
    match &result {
        ToolResult::Failed { reason } | ToolResult::Unknown { reason } => {
            failures.push(("T0502".into(), format!("{}.{}: {reason}", call.server, call.tool)));
        }
        ToolResult::Done { result } => {
            if let Some(why) = result.get("unusable").and_then(Json::as_str) {
                let reason =
                    format!("{}.{}: it was carried out, but its answer fills no slot: {why}", call.server, call.tool);
                failures.push(("T0502".into(), reason));
            }
        }
        ToolResult::Wants { .. } => {}
    }
    result
}

/// What an earlier try of this turn recorded of the call itself.
async fn earlier(call: &ToolCallStep, journal: &EffectJournal, cx: &Cx) -> Option<ToolResult> {
    let record = journal.recorded(&cx.key).filter(|record| record.outcome.is_some())?;
    // The request names the tool, then its arguments as the server's schema wants them.
    record.request.strip_prefix(call.tool.as_str())?.strip_prefix(':')?;
    let step = Step { key: &cx.key, kind: "tool", class: Effect::Write, request: &record.request };
    let recorded = journal.recall::<RecordedToolCall>(step).await?;
    Some(direct::result_of(recorded.outcome))
}

/// Whether an earlier try of this turn was about to make the call, and nothing tells what came of it.
fn is_in_doubt(journal: &EffectJournal, cx: &Cx) -> bool {
    journal.recorded(&cx.key).is_some_and(|record| record.outcome.is_none())
}

async fn run_agent(
    call: &AgentCall,
    scene: &Scene<'_>,
    desk: &RunDesk<'_>,
    sink: &mut TurnSink<'_>,
    cx: &Cx,
) -> AgentOutcome {
    let Scene { parts, record, .. } = *scene;
    let Some(definition) = parts.project.agent(call.agent.as_str()) else {
        return failed(call, "A0507", format!("there is no agent {}", call.agent));
    };
    let reserved = crate::agents::reserved_names(&parts.project, call);
    let hooks = match parts.hooks.get(definition.name.as_str()) {
        None => None,
        // Boxed, as the way to agents of others: few runs take it, and its future is large.
        Some(source) => match Box::pin(hooks::open(source, parts.offline, &record.journal, &cx.step("hooks"))).await {
            Ok(hooks) => hooks,
            Err(error) => return failed(call, "A0521", error.to_string()),
        },
    };
    if definition.protocol == Protocol::A2a && parts.custom_agent(definition).is_none() {
        let task = AgentTask { hooks, ..scene.task(call, definition, desk) };
        return Box::pin(remote_agent::run(task, scene, sink, cx)).await;
    }
    let mut own = Cow::Borrowed(parts.custom_tools(call.agent.as_str()));
    if let Some(hooks) = &hooks {
        own.to_mut().extend(hooks.custom_tools());
    }
    let model = parts.model_of(definition);
    let tools = catalogue::tools(definition, &own, &reserved, scene, &model, &cx.step("tools")).await;
    if let Some(reason) = nothing_to_work_with(definition, &tools, parts) {
        return failed(call, "A0509", reason);
    }
    let task = AgentTask {
        tools,
        hooks,
        meta: Arc::new(parts.meta(scene.conversation)),
        ..scene.task(call, definition, desk)
    };
    match parts.custom_agent(definition) {
        None => match parts.react(definition) {
            Some(agent) => agent.run(task, sink, cx).await,
            None => failed(call, "A0507", format!("there is no agent {}", call.agent)),
        },
        Some(agent) => {
            // Its model and its tools are recorded; its outcome is recorded as a whole besides.
            let outcome_key = cx.step("outcome").key;
            let request = call.agent.as_str();
            let step = Step { key: &outcome_key, kind: "agent", class: Effect::Composite, request };
            let work = async {
                let cx = definition.timeout.map_or_else(|| cx.clone(), |limit| cx.within(limit));
                // It may ignore the deadline that it is given: then it is dropped.
                let outcome = cx.wait(agent.run(task, sink, &cx)).await;
                outcome.unwrap_or_else(|stopped| failed(call, "A0505", stopped.to_string()))
            };
            let outcome = record.journal.once(step, work).await.and_then(Once::known);
            outcome.unwrap_or_else(|error| failed(call, "A0510", error.to_string()))
        }
    }
}

impl<'a> Scene<'a> {
    /// The model, with every call recorded.
    pub(super) fn recorded(&self, model: &Arc<dyn Llm>) -> Arc<dyn Llm> {
        Arc::new(JournaledModel::new(model.clone(), self.record.journal.clone()))
    }

    /// A run of an agent that has neither tools nor hooks yet.
    pub(super) fn task(
        &self,
        call: &'a AgentCall,
        definition: &'a Arc<AgentDef>,
        desk: &'a RunDesk<'_>,
    ) -> AgentTask<'a> {
        let Scene { parts, conversation, .. } = *self;
        AgentTask {
            project: &parts.project,
            conversation,
            call,
            definition,
            llm: self.recorded(&parts.model_of(definition)),
            tools: ToolSet::default(),
            metadata: parts.metadata(conversation),
            meta: Arc::default(),
            hooks: None,
            rewritten: false,
            slots: None,
            desk,
        }
    }
}

fn nothing_to_work_with(definition: &AgentDef, tools: &ToolSet, parts: &Parts) -> Option<String> {
    if !tools.entries().is_empty() || parts.offline {
        return None;
    }
    let down: Vec<String> =
        definition.connections.iter().filter_map(|connection| parts.why_down(&connection.server)).collect();
    (!down.is_empty()).then(|| format!("none of its MCP servers answers: {}", down.join("; ")))
}

pub(super) fn failed(call: &AgentCall, code: &str, reason: String) -> AgentOutcome {
    AgentOutcome {
        status: AgentStatus::Failed { code: code.into(), reason },
        events: Vec::new(),
        data: Json::Null,
        metadata: call.kept(),
    }
}
