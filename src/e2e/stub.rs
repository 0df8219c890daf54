//! What stands in for the world: actions, tools and agents that answer as the case says.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use futures::future::BoxFuture;
use segue_engine::{
    conversation::{
        ActionAnswer, ActionOutcome, AgentOutcome, AgentStatus, BotKind, BotMessage, Conversation, Event, EventKind,
        EventPlace, FilledBy, Reply, StepError,
    },
    ids::{AgentName, SlotName},
    project::{
        Project,
        cases::{Stub, StubAction, StubAgent, StubEnd, StubTool},
    },
};
use serde_json::{Map, Value as Json, json};

use super::plan::Planned;
use crate::{
    agents::{Agent, AgentCard, AgentTask},
    conversation::ReplySink,
    cx::Cx,
    effect::Effect,
    runtime::{Action, AssistantBuilder},
    tools::{FailureKind, Tool, ToolFailure, ToolOutcome, ToolOutput, ToolSpec, Toolbox, registry::FunctionTool},
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
        let tools =
            of_server.filter_map(|(key, tool)| tool_stub(server, tool, planned.stub(&shared.tools, key)?.clone()));
        builder = builder.source(Arc::new(Toolbox::new(server, tools.collect::<Vec<_>>())));
    }
    for name in planned.stubbed(&shared.agents) {
        if let Some(runs) = planned.stub(&shared.agents, name) {
            builder = builder.agent(name, Arc::new(AgentStub::new(name, runs.clone())));
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
    fn run<'a>(&'a self, _: &'a Conversation, _: &'a Cx) -> BoxFuture<'a, ActionOutcome> {
        Box::pin(std::future::ready(self.answer()))
    }
}

impl ActionStub {
    /// What an action server would send; the brain reads it as it reads that.
    fn answer(&self) -> ActionOutcome {
        let Some(answer) = &self.answer else {
            let reason = format!("the action `{}` is reached and not stubbed, while others are", self.name);
            note(&self.problems, "E0501", reason.clone());
            return ActionOutcome::Failed(StepError::new("not_stubbed", reason));
        };
        let maps = |items: &[Json]| items.iter().filter_map(|item| item.as_object().cloned()).collect();
        ActionOutcome::Answered(ActionAnswer { responses: maps(&answer.responses), events: maps(&answer.events) })
    }
}

/// Counts runs: answers are given in order, the last again and again.
fn turn_of<'a, T>(answers: &'a [T], count: &AtomicUsize) -> Option<&'a T> {
    answers.get(count.fetch_add(1, Ordering::SeqCst)).or_else(|| answers.last())
}

fn tool_stub(server: &str, tool: &str, stub: Stub<StubTool>) -> Option<Arc<dyn Tool>> {
    let spec = ToolSpec {
        name: tool.into(),
        description: format!("`{tool}` of `{server}`, as the test says.").into(),
        parameters: Arc::new(json!({"type": "object", "properties": {}})),
        strict: false,
        effect: Effect::Read,
        source: server.into(),
    };
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
    FunctionTool::new(spec, run).ok().map(|tool| Arc::new(tool) as Arc<dyn Tool>)
}

struct AgentStub {
    card: AgentCard,
    runs: Stub<StubAgent>,
    count: AtomicUsize,
}

impl AgentStub {
    fn new(name: &str, runs: Stub<StubAgent>) -> Self {
        let card = AgentCard { name: name.into(), description: "as the test says".into() };
        Self { card, runs, count: AtomicUsize::new(0) }
    }

    fn outcome(&self, cx: &Cx) -> AgentOutcome {
        let at = cx.clock.now();
        let event = |kind| Event { at, kind, place: EventPlace::default() };
        let run = turn_of(&self.runs.answers, &self.count);
        let ends = run.map_or(StubEnd::Failed, |run| run.ends);
        let mut events = Vec::new();
        for (name, value) in run.iter().flat_map(|run| &run.slots) {
            let name = SlotName::from(name.as_str());
            events.push(event(EventKind::Slot {
                name,
                value: value.clone(),
                filled_by: Some(FilledBy::Agent),
                reset: false,
            }));
        }
        let kind = if ends == StubEnd::AwaitingUser { BotKind::InputRequired } else { BotKind::FinalResponse };
        for text in run.iter().flat_map(|run| &run.says) {
            let agent = Some(AgentName::from(&*self.card.name));
            let reply = Reply::text(text.clone());
            events.push(event(EventKind::bot(BotMessage { reply, kind, agent, ..BotMessage::default() })));
        }
        let status = match ends {
            StubEnd::AwaitingUser => AgentStatus::AwaitingUser,
            StubEnd::Finished => AgentStatus::Finished,
            StubEnd::Failed => {
                AgentStatus::Failed { code: "E0504".into(), reason: "the stub of the test says so".into() }
            }
        };
        AgentOutcome { status, events, data: Json::Null, metadata: Map::new() }
    }
}

impl Agent for AgentStub {
    fn card(&self) -> &AgentCard {
        &self.card
    }
    fn run<'a>(&'a self, _: AgentTask<'a>, _: &'a mut dyn ReplySink, cx: &'a Cx) -> BoxFuture<'a, AgentOutcome> {
        Box::pin(std::future::ready(self.outcome(cx)))
    }
}
