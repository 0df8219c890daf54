//! What stands in for the world: actions, tools and agents that answer as the case says.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use async_trait::async_trait;
use futures::future::BoxFuture;
use segue_engine::{
    conversation::{ActionOutcome, ActionServerResponse, Conversation, StepError},
    project::{
        Project,
        test_cases::{Stub, StubAction, StubAgent, StubStatus, StubTool},
    },
};
use serde_json::Value as Json;

use super::plan::Planned;
use crate::{
    agents::{Agent, AgentError, AgentResult, AgentRun},
    context::CallContext,
    effect::EffectClass,
    runtime::{Action, AssistantBuilder},
    tools::{FailureKind, Tool, ToolFailure, ToolInfo, ToolOutcome, ToolOutput, Toolbox},
};

/// What went wrong beside the expectations of a case; whoever notices adds a line.
pub(super) type Problems = Arc<Mutex<Vec<(&'static str, String)>>>;

/// Puts every stub of the case in the place of what it stands for.
pub(super) fn install(
    mut builder: AssistantBuilder,
    planned: &Planned,
    project: &Arc<Project>,
    problems: &Problems,
) -> AssistantBuilder {
    let shared = &planned.shared;
    if !shared.actions.is_empty() {
        // Where one action is stubbed, none may reach a real server: half a stubbed world is no world.
        let listed = project.domain.actions.keys().map(|name| name.as_str());
        for name in listed.chain(planned.stubbed(&shared.actions)) {
            let action = ActionStub {
                name: name.into(),
                answer: planned.stub(&shared.actions, name).cloned(),
                problems: problems.clone(),
            };
            builder = builder.action(name, Arc::new(action));
        }
    }
    let stubbed = planned.stubbed(&shared.tools);
    let mut servers: Vec<&str> = stubbed.iter().filter_map(|name| Some(name.split_once('.')?.0)).collect();
    servers.dedup();
    for server in servers {
        let of_server = stubbed.iter().filter_map(|name| Some((*name, name.strip_prefix(server)?.strip_prefix('.')?)));
        let tools = of_server
            .filter_map(|(key, tool)| Some(tool_stub(server, tool, planned.stub(&shared.tools, key)?.clone())));
        builder = builder.source(Arc::new(Toolbox::new(server, tools.collect::<Vec<_>>())));
    }
    for name in planned.stubbed(&shared.agents) {
        if let Some(runs) = planned.stub(&shared.agents, name) {
            builder = builder.agent(name, Arc::new(AgentStub { runs: runs.clone(), count: AtomicUsize::new(0) }));
        }
    }
    builder
}

/// Adds a line to the problems.
pub(super) fn note(problems: &Problems, code: &'static str, text: String) {
    problems.lock().unwrap_or_else(PoisonError::into_inner).push((code, text));
}

/// Takes the problems out.
pub(super) fn take(problems: &Problems) -> Vec<(&'static str, String)> {
    std::mem::take(&mut *problems.lock().unwrap_or_else(PoisonError::into_inner))
}

struct ActionStub {
    name: Arc<str>,
    answer: Option<StubAction>,
    problems: Problems,
}

impl Action for ActionStub {
    fn run<'a>(&'a self, _: &'a Conversation, _: &'a CallContext) -> BoxFuture<'a, ActionOutcome> {
        Box::pin(std::future::ready(self.answer()))
    }
}

impl ActionStub {
    /// What an action server would send; the dialogue engine reads it as it reads that.
    fn answer(&self) -> ActionOutcome {
        let Some(answer) = &self.answer else {
            let reason = format!("the action `{}` is reached and not stubbed, while others are", self.name);
            note(&self.problems, "E0501", reason.clone());
            return ActionOutcome::Failed(StepError::new("not_stubbed", reason));
        };
        let maps = |items: &[Json]| items.iter().filter_map(|item| item.as_object().cloned()).collect();
        ActionOutcome::ServerResponse(ActionServerResponse {
            responses: maps(&answer.responses),
            events: maps(&answer.events),
        })
    }
}

/// Counts runs: answers are given in order, the last again and again.
fn turn_of<'a, T>(answers: &'a [T], count: &AtomicUsize) -> Option<&'a T> {
    answers.get(count.fetch_add(1, Ordering::SeqCst)).or_else(|| answers.last())
}

fn tool_stub(server: &str, tool: &str, stub: Stub<StubTool>) -> Tool {
    let info = ToolInfo::new(tool, format!("`{tool}` of `{server}`, as the test says."));
    let info = info.effect(EffectClass::Read).source(server);
    let count = Arc::new(AtomicUsize::new(0));
    let run = move |_: Json, _| {
        let outcome = match turn_of(&stub.answers, &count) {
            Some(StubTool::Result(Json::String(text))) => ToolOutcome::Done(ToolOutput::text(text.as_str())),
            Some(StubTool::Result(value @ Json::Object(_))) => {
                let text = ToolOutput::text(value.to_string());
                ToolOutcome::Done(ToolOutput { structured: Some(value.clone()), ..text })
            }
            Some(StubTool::Result(value)) => ToolOutcome::Done(ToolOutput::text(value.to_string())),
            Some(StubTool::Error(words)) => ToolOutcome::Failed(ToolFailure::new(FailureKind::ToolError, &**words)),
            None => ToolOutcome::Failed(ToolFailure::new(FailureKind::UnknownTool, "the stub says nothing")),
        };
        std::future::ready(outcome)
    };
    Tool::from_fn(info, run)
}

struct AgentStub {
    runs: Stub<StubAgent>,
    count: AtomicUsize,
}

#[async_trait]
impl Agent for AgentStub {
    async fn run(&self, run: &mut AgentRun<'_>) -> AgentResult {
        let answer = turn_of(&self.runs.answers, &self.count);
        let ends = answer.map_or(StubStatus::Failed, |answer| answer.ends);
        for (name, value) in answer.iter().flat_map(|answer| &answer.slots) {
            run.set_slot(name, value.clone());
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
                Err(AgentError::new("the stub of the test says so").code("E0504"))
            }
        }
    }
}
