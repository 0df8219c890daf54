//! Stubs: actions, tools and agents that return the results which the case defines.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;
use segue_engine::{
    conversation::{ActionOutcome, ActionServerResponse, Conversation, StepError},
    project::{
        Call, Project, StepKind,
        test_cases::{Stub, StubAction, StubAgent, StubStatus, StubTool},
    },
};
use serde_json::Value as Json;

use super::resolve::ResolvedCase;
use crate::{
    agents::{Agent, AgentError, AgentResult, AgentRun},
    context::CallContext,
    effect::EffectClass,
    runtime::{Action, AssistantBuilder},
    tools::{FailureKind, Tool, ToolFailure, ToolInfo, ToolOutcome, ToolOutput, Toolbox},
};

/// The errors of a case other than failed assertions, for example a missing stub, as code and message. Shared by the stubs and the
/// recording.
pub(super) type CaseErrors = Arc<Mutex<Vec<(&'static str, String)>>>;

/// Registers the stubs of the case. They replace the actions, tool servers and agents of the project.
pub(super) fn install_stubs(
    mut builder: AssistantBuilder,
    case: &ResolvedCase,
    project: &Arc<Project>,
    errors: &CaseErrors,
) -> AssistantBuilder {
    let shared = &case.shared;
    if !shared.actions.is_empty() {
        // As soon as one action has a stub, an action without one is an error: it must not call a real action server.
        let listed = project.domain.actions.keys().map(|name| name.as_str());
        for name in listed.chain(case.stubbed_names(&shared.actions)) {
            let action = ActionStub {
                name: name.into(),
                stub: case.stub(&shared.actions, name).cloned(),
                errors: errors.clone(),
            };
            builder = builder.action(name, Arc::new(action));
        }
    }
    let names = case.stubbed_names(&shared.tools);
    let mut servers: Vec<&str> = names.iter().filter_map(|name| Some(name.split_once('.')?.0)).collect();
    servers.dedup();
    for server in servers {
        let of_server = names.iter().filter_map(|name| Some((*name, name.strip_prefix(server)?.strip_prefix('.')?)));
        let tools =
            of_server.filter_map(|(key, tool)| Some(tool_stub(server, tool, case.stub(&shared.tools, key)?.clone())));
        let mut tools: Vec<Tool> = tools.collect();
        // A server with a stub is not started: its other tools are errors.
        let missing =
            named_tools(project, server).into_iter().filter(|tool| !names.contains(&&*format!("{server}.{tool}")));
        tools.extend(missing.map(|tool| missing_tool(server, tool, errors)));
        builder = builder.source(Arc::new(Toolbox::new(server, tools)));
    }
    for name in case.stubbed_names(&shared.agents) {
        if let Some(runs) = case.stub(&shared.agents, name) {
            builder = builder.agent(name, Arc::new(AgentStub { runs: runs.clone(), count: AtomicUsize::new(0) }));
        }
    }
    builder
}

/// Adds an error to the case.
pub(super) fn report_error(errors: &CaseErrors, code: &'static str, text: String) {
    errors.lock().unwrap_or_else(PoisonError::into_inner).push((code, text));
}

/// Takes all errors.
pub(super) fn take_errors(errors: &CaseErrors) -> Vec<(&'static str, String)> {
    std::mem::take(&mut *errors.lock().unwrap_or_else(PoisonError::into_inner))
}

struct ActionStub {
    name: Arc<str>,
    /// None for an action of the project that has no stub.
    stub: Option<StubAction>,
    errors: CaseErrors,
}

#[async_trait]
impl Action for ActionStub {
    async fn run(&self, _: &Conversation, _: &CallContext) -> ActionOutcome {
        self.outcome()
    }
}

impl ActionStub {
    /// The response of an action server; the dialogue engine parses it in the same way.
    fn outcome(&self) -> ActionOutcome {
        let Some(stub) = &self.stub else {
            let reason = format!("the action `{}` has no stub, but other actions have one", self.name);
            report_error(&self.errors, "E0501", reason.clone());
            return ActionOutcome::Failed(StepError::new("not_stubbed", reason));
        };
        let maps = |items: &[Json]| items.iter().filter_map(|item| item.as_object().cloned()).collect();
        ActionOutcome::ServerResponse(ActionServerResponse {
            responses: maps(&stub.responses),
            events: maps(&stub.events),
        })
    }
}

/// The result of the next call: the results in order, then the last one repeatedly.
fn next_answer<'a, T>(answers: &'a [T], count: &AtomicUsize) -> Option<&'a T> {
    answers.get(count.fetch_add(1, Ordering::SeqCst)).or_else(|| answers.last())
}

/// The tools of a server that the project names.
fn named_tools<'p>(project: &'p Project, server: &str) -> BTreeSet<&'p str> {
    let called = project.user_flows().flat_map(|flow| &flow.steps).filter_map(|step| match &step.kind {
        StepKind::Call(Call::Tool { server: of, tool, .. }) if *of == *server => Some(tool.as_str()),
        _ => None,
    });
    let connections = project.agents.values().flat_map(|agent| &agent.connections).filter(|one| one.server == *server);
    let included = connections.flat_map(|one| &one.include).map(|tool| tool.as_str());
    let declared = project.endpoints.mcp_servers.get(server).into_iter().flat_map(|def| def.effects.keys());
    called.chain(included).chain(declared.map(String::as_str)).collect()
}

/// A tool of a stubbed server that has no stub itself.
fn missing_tool(server: &str, tool: &str, errors: &CaseErrors) -> Tool {
    let info = ToolInfo::new(tool, format!("`{tool}` of `{server}`, without a stub."));
    let reason = format!("the tool `{server}.{tool}` has no stub, but other tools of this server have one");
    let errors = errors.clone();
    let call = move |_: Json, _| {
        report_error(&errors, "E0505", reason.clone());
        std::future::ready(ToolOutcome::Failed(ToolFailure::new(FailureKind::UnknownTool, reason.as_str())))
    };
    Tool::from_fn(info.effect(EffectClass::Read).source(server), call)
}

fn tool_stub(server: &str, tool: &str, stub: Stub<StubTool>) -> Tool {
    let info = ToolInfo::new(tool, format!("`{tool}` of `{server}`, as the test says."));
    // The outcome of a call that only reads is never unknown.
    let effect = if stub.answers.contains(&StubTool::Unknown) { EffectClass::Write } else { EffectClass::Read };
    let info = info.effect(effect).source(server);
    let count = Arc::new(AtomicUsize::new(0));
    let call = move |_: Json, _| {
        let outcome = match next_answer(&stub.answers, &count) {
            Some(StubTool::Result(Json::String(text))) => ToolOutcome::Done(ToolOutput::text(text.as_str())),
            Some(StubTool::Result(value @ Json::Object(_))) => {
                let text = ToolOutput::text(value.to_string());
                ToolOutcome::Done(text.with_structured(value.clone()))
            }
            Some(StubTool::Result(value)) => ToolOutcome::Done(ToolOutput::text(value.to_string())),
            Some(StubTool::Error(message)) => ToolOutcome::Failed(ToolFailure::new(FailureKind::ToolError, &**message)),
            Some(StubTool::Unknown) => {
                let message = "the stub says that the outcome is unknown";
                ToolOutcome::Unknown(ToolFailure::new(FailureKind::Timeout, message))
            }
            None => ToolOutcome::Failed(ToolFailure::new(FailureKind::UnknownTool, "the stub has no result")),
        };
        std::future::ready(outcome)
    };
    Tool::from_fn(info, call)
}

struct AgentStub {
    runs: Stub<StubAgent>,
    count: AtomicUsize,
}

#[async_trait]
impl Agent for AgentStub {
    async fn run(&self, run: &mut AgentRun<'_>) -> AgentResult {
        let answer = next_answer(&self.runs.answers, &self.count);
        let ends = answer.map_or(StubStatus::Failed, |answer| answer.ends);
        for (name, value) in answer.iter().flat_map(|answer| &answer.slots) {
            run.set_slot(name, value.clone())?;
        }
        let texts = answer.iter().flat_map(|answer| &answer.says);
        match ends {
            StubStatus::AwaitingUser => {
                for text in texts {
                    run.ask(text.clone()).await?;
                }
                run.wait()
            }
            StubStatus::Finished => {
                for text in texts {
                    run.finish(text.clone()).await?;
                }
                run.done()
            }
            StubStatus::Failed => {
                for text in texts {
                    run.say(text.clone()).await;
                }
                Err(AgentError::new("the stub of this agent has `status: failed`").code("E0504"))
            }
        }
    }
}
