//! Agent runs: an agent runs until it waits for the user, ends or fails.

use std::{borrow::Cow, sync::Arc};

use segue_engine::{
    conversation::{AgentCall, AgentOutcome, AgentStatus},
    dialogue::InputKind,
    project::AgentDef,
};
use serde_json::Value as Json;

use super::{
    EffectHandler, EffectOutput,
    agent_host::TurnAgentHost,
    delegation, hooks, remote_agent,
    tool_list::{self, RunTools},
};
use crate::{
    agents::{self, Agent, AgentHooks, AgentRequest, ReactAgent},
    context::CallContext,
    delegation::PARENT_TOOLS,
    effect::EffectClass,
    journal::{Step, StepResult},
    react::SKILL_TOOLS,
    runtime::{
        project_runtime::ProjectRuntime,
        turn::{TurnContext, TurnSink},
    },
    tools::{ToolHandler, tool_set::ToolSet},
};

/// How an agent runs; decided when the assistant is built.
#[derive(Clone)]
pub(in crate::runtime) enum AgentExecutor {
    /// By the built-in agent loop.
    Loop(Arc<ReactAgent>),
    /// As a remote agent, over A2A.
    Remote,
    /// By a custom agent in Rust.
    Custom(Arc<dyn Agent>),
}

/// Handles [`Next::Agent`](segue_engine::dialogue::Next::Agent).
pub(super) struct RunAgent;

impl EffectHandler for RunAgent {
    type Effect = AgentCall;
    const INTERRUPTIBLE: bool = true;

    async fn perform(
        call: AgentCall,
        turn: &TurnContext<'_>,
        out: &mut EffectOutput<'_, '_>,
        cx: &CallContext,
    ) -> InputKind {
        let host = TurnAgentHost::new(turn);
        let outcome = run_agent(&call, turn, &host, out.sink, cx).await;
        out.failures.extend(host.warnings());
        if let AgentStatus::Failed { code, reason } = &outcome.status {
            out.failures.push((code.clone(), format!("agent {}: {reason}", call.agent)));
        }
        InputKind::Agent(outcome)
    }
}

async fn run_agent(
    call: &AgentCall,
    turn: &TurnContext<'_>,
    host: &TurnAgentHost<'_>,
    sink: &mut TurnSink<'_>,
    cx: &CallContext,
) -> AgentOutcome {
    let TurnContext { runtime, record, .. } = *turn;
    let name = call.agent.as_str();
    let (Some(definition), Some(executor)) = (runtime.project.agent(name), runtime.executors.get(name)) else {
        return failed_outcome(call, "A0507", format!("there is no agent {}", call.agent));
    };
    let hooks = match runtime.hooks.get(name) {
        None => None,
        // Boxed like remote agents: few runs have hooks, and the future is large.
        Some(source) => {
            match Box::pin(hooks::open(source, runtime.offline, &record.journal, &cx.step("hooks"))).await {
                Ok(hooks) => hooks,
                Err(error) => return failed_outcome(call, "A0521", error.to_string()),
            }
        }
    };
    let task = AgentRequest { hooks, ..turn.agent_task(call, definition, host) };
    match executor {
        AgentExecutor::Remote => Box::pin(remote_agent::run(task, turn, sink, cx)).await,
        AgentExecutor::Loop(agent) => match with_tools(task, turn, cx).await {
            Ok(task) => agent.run(task, sink, cx).await,
            Err(reason) => failed_outcome(call, "A0509", reason),
        },
        AgentExecutor::Custom(agent) => match with_tools(task, turn, cx).await {
            Ok(task) => run_custom(&**agent, &task, turn, sink, cx).await,
            Err(reason) => failed_outcome(call, "A0509", reason),
        },
    }
}

/// Adds the tools to the request of an agent that runs in this process. `Err` if it cannot run because its servers are unavailable.
async fn with_tools<'a>(
    task: AgentRequest<'a>,
    turn: &TurnContext<'_>,
    cx: &CallContext,
) -> Result<AgentRequest<'a>, String> {
    let RunTools { recorded, unrecorded } = tools_of(task.call, task.definition, task.hooks.as_deref(), turn, cx).await;
    if let Some(reason) = no_tools_reason(task.definition, &recorded, turn.runtime) {
        return Err(reason);
    }
    let meta = Arc::new(turn.runtime.meta(turn.conversation));
    let task = AgentRequest { tools: recorded, mcp_meta: meta, ..task };
    match turn.runtime.delegation.get(task.call.agent.as_str()) {
        Some(own) => delegation::enable(task, unrecorded, own, turn, cx).await,
        None => Ok(task),
    }
}

/// Runs a custom agent. Its model and tool calls are recorded, and its outcome as a whole.
async fn run_custom(
    agent: &dyn Agent,
    task: &AgentRequest<'_>,
    turn: &TurnContext<'_>,
    sink: &mut TurnSink<'_>,
    cx: &CallContext,
) -> AgentOutcome {
    let (call, limit) = (task.call, task.definition.timeout);
    let outcome_key = cx.step("outcome").key;
    let step = Step { key: &outcome_key, kind: "agent", class: EffectClass::Composite, request: call.agent.as_str() };
    let work = async {
        let cx = limit.map_or_else(|| cx.clone(), |limit| cx.with_timeout(limit));
        agents::run_custom(agent, task, sink, &cx).await
    };
    let outcome = turn.record.journal.once(step, work).await.and_then(StepResult::into_outcome);
    outcome.unwrap_or_else(|error| failed_outcome(call, "A0510", error.to_string()))
}

/// The tools that the agent may call in this run.
async fn tools_of(
    call: &AgentCall,
    definition: &AgentDef,
    hooks: Option<&dyn AgentHooks>,
    turn: &TurnContext<'_>,
    cx: &CallContext,
) -> RunTools {
    let runtime = turn.runtime;
    let mut reserved = agents::reserved_names(&runtime.project, call);
    if runtime.delegation.contains_key(call.agent.as_str()) {
        reserved.extend(PARENT_TOOLS.map(str::to_owned));
    }
    if definition.skills.is_some() {
        reserved.extend(SKILL_TOOLS.map(str::to_owned));
    }
    let mut own = Cow::Borrowed(runtime.custom_tools(call.agent.as_str()));
    if let Some(hooks) = hooks {
        let custom = hooks.custom_tools().into_iter().map(|tool| Arc::new(tool) as Arc<dyn ToolHandler>);
        own.to_mut().extend(custom);
    }
    let model = runtime.model_of(definition);
    tool_list::tools(definition, &own, &reserved, turn, &model, &cx.step("tools")).await
}

/// Why an agent cannot run: it has no tool, because its servers are unavailable.
fn no_tools_reason(definition: &AgentDef, tools: &ToolSet, runtime: &ProjectRuntime) -> Option<String> {
    if !tools.entries().is_empty() || runtime.offline {
        return None;
    }
    let down: Vec<String> =
        definition.connections.iter().filter_map(|connection| runtime.unavailable_reason(&connection.server)).collect();
    (!down.is_empty()).then(|| format!("none of its MCP servers answers: {}", down.join("; ")))
}

/// The outcome of an agent that did not run.
pub(in crate::runtime) fn failed_outcome(call: &AgentCall, code: &str, reason: String) -> AgentOutcome {
    AgentOutcome {
        status: AgentStatus::Failed { code: code.into(), reason },
        events: Vec::new(),
        data: Json::Null,
        metadata: call.metadata_if_not_run(),
    }
}
