//! Calls of agents. Adjacent calls of different agents run at the same time, and a call that takes longer than a slice goes on in the next
//! one: the sessions of the calls of a response are part of the checkpoint until the response is done.

use std::{collections::HashSet, sync::Arc};

use futures::{StreamExt, future::BoxFuture, stream};
use segue_engine::{
    ids::AgentName,
    mission::{
        event::AssignmentOutcome,
        learnings::Learnings,
        state::RunState,
        tools::{AgentInput, Caller, MissionTool, Then, ToolAnswer, agents},
    },
};
use serde::{Deserialize, Serialize};

use super::{
    agent::{self, AssignmentEnd, Progress},
    checkpoint::AgentSession,
    commander::CommanderHost,
    journal::AGENT_PART,
    results::NamedResult,
    slice::UnitRun,
};
use crate::{context::CallContext, llm::ToolCall, prompts::WritesOf, react::ControlResult};

/// A call of an agent in the response that the commander's loop works on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct OpenCall {
    pub(super) agent: AgentName,
    /// The session of the agent, as far as it is.
    pub(super) session: AgentSession,
    /// How the call ended; absent while the agent works.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) end: Option<AssignmentEnd>,
    /// Whether the agent waits for a person: its session is that before the response that asked, whose records are kept.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) waits: bool,
}

/// How far a call got.
pub(super) enum CallProgress {
    /// It has its result. Without an [`OpenCall`] no agent ran.
    Done(ToolAnswer, Option<OpenCall>),
    /// The slice is over; the call goes on in the next one.
    Yielded(OpenCall),
    /// The agent waits for the answer to this question to a person.
    Waits(OpenCall, Arc<str>),
    /// The unit has stopped.
    Stopped,
}

/// The agent that a call names.
fn agent_of(call: &ToolCall) -> Option<&str> {
    let name = call.arguments.as_json()?.get("name")?.as_str()?;
    (&*call.name == MissionTool::CallAgent.name()).then_some(name)
}

/// How many of these calls run at the same time: the first ones that call different agents.
pub(super) fn together(calls: &[&ToolCall]) -> usize {
    let mut names = HashSet::new();
    for call in calls {
        match agent_of(call) {
            Some(name) if names.insert(name) => {}
            _ => break,
        }
    }
    names.len().max(1)
}

/// The prefix of the keys of the steps that the agent of a call made.
pub(super) fn steps_of(key: &str, call: &OpenCall) -> String {
    format!("{key}/{AGENT_PART}{}/", call.agent)
}

impl CommanderHost<'_> {
    /// Runs calls of different agents at the same time, at most as many as the commander may; the others begin when one has ended.
    pub(super) async fn call_agents(&mut self, calls: &[(&ToolCall, CallContext)]) -> Vec<ControlResult> {
        let unit = self.unit;
        let most = usize::try_from(unit.def.commander.max_parallel_agents).unwrap_or(1).max(1);
        let mut running: Vec<BoxFuture<'_, CallProgress>> = Vec::with_capacity(calls.len());
        for (call, cx) in calls {
            let (call, cx) = (*call, cx.clone());
            let open = self.calls.get(cx.key.as_str()).cloned();
            let session = agent_of(call).and_then(|name| self.agents.get(name)).cloned().unwrap_or_default();
            let named = NamedResult::none();
            running.push(Box::pin(async move {
                let compute = |state: &RunState| unit.call_tool(state, Caller::Commander, call, &cx.key, None, &named);
                match unit.journal.control_call(call, &cx, compute).await {
                    None => CallProgress::Stopped,
                    Some(ToolAnswer { then: Then::CallAgent { agent, input }, .. }) => {
                        unit.call_agent(&agent, &input, open, session, &cx).await
                    }
                    Some(answer) => CallProgress::Done(answer, None),
                }
            }));
        }
        let ran: Vec<CallProgress> = stream::iter(running).buffered(most).collect().await;
        let settled: Vec<Option<ToolAnswer>> =
            calls.iter().zip(ran).map(|((_, cx), progress)| self.settle(cx, progress)).collect();
        self.wait_for_people().await;
        let mut results = Vec::with_capacity(calls.len());
        for answer in settled {
            results.push(self.result(answer.map(|answer| (answer.text(), super::commander::effect_of(&answer)))));
        }
        results
    }

    /// Runs one call of an agent. `None`: the slice is over, or the unit has stopped.
    pub(super) async fn call_agent(
        &mut self,
        name: &AgentName,
        input: &AgentInput,
        cx: &CallContext,
    ) -> Option<ToolAnswer> {
        let open = self.calls.get(cx.key.as_str()).cloned();
        let session = self.agents.get(name).cloned().unwrap_or_default();
        let progress = self.unit.call_agent(name, input, open, session, cx).await;
        let answer = self.settle(cx, progress);
        self.wait_for_people().await;
        answer
    }

    /// Lets the unit wait if agents wait for people and none of the calls can go on. Looked at when no agent works any more: the time of
    /// a question may be over, which can end the task.
    async fn wait_for_people(&mut self) {
        let questions = std::mem::take(&mut self.waits_for);
        if questions.is_empty() || self.yielded {
            return;
        }
        // If one was answered or closed meanwhile, its agent goes on in the next slice.
        match self.are_open(&questions).await {
            Some(true) => {}
            Some(false) => self.yielded = self.end.is_none(),
            None => self.stopped = true,
        }
    }

    /// Takes over what a call did, in the order of the calls.
    fn settle(&mut self, cx: &CallContext, progress: CallProgress) -> Option<ToolAnswer> {
        let (answer, call) = match progress {
            CallProgress::Done(answer, call) => (Some(answer), call),
            CallProgress::Yielded(call) => {
                self.yielded = true;
                (None, Some(call))
            }
            CallProgress::Waits(call, question) => {
                self.waits_for.push(question);
                (None, Some(call))
            }
            CallProgress::Stopped => (None, None),
        };
        if let Some(call) = call {
            if let Some(end) = &call.end {
                self.agents.insert(call.agent.clone(), call.session.clone());
                if self.unit.learns() {
                    self.learn(&end.text);
                }
            }
            self.calls.insert(cx.key.as_str().into(), call);
        }
        answer
    }
}

impl UnitRun {
    /// Runs the agent of a call until it ends, or until the slice is over. `open`: what an earlier slice did; `session`: the agent's
    /// session before a new call.
    async fn call_agent(
        &self,
        name: &AgentName,
        input: &AgentInput,
        open: Option<OpenCall>,
        session: AgentSession,
        cx: &CallContext,
    ) -> CallProgress {
        let input = open.is_none().then_some(input);
        let mut call = open.unwrap_or_else(|| OpenCall { agent: name.clone(), session, end: None, waits: false });
        call.waits = false;
        let end = match call.end.clone() {
            Some(end) => end,
            None => {
                let inner = cx.step(format!("{AGENT_PART}{name}"));
                match agent::run(self, name, &mut call.session, input, &inner).await {
                    None => return CallProgress::Stopped,
                    Some(Progress::Yielded) => return CallProgress::Yielded(call),
                    Some(Progress::Waits(question)) => {
                        call.waits = true;
                        return CallProgress::Waits(call, question);
                    }
                    Some(Progress::Ended(end)) => end,
                }
            }
        };
        let text = match end.outcome {
            AssignmentOutcome::Answered => Learnings::strip(agent::answer(&end.text)),
            _ => end.text.to_string(),
        };
        let finished = |state: &RunState| {
            let changes = self.changes(state, name, end.outcome);
            agents::finished(&self.id, name, end.outcome, &text, changes.as_deref())
        };
        let Some(answer) = self.journal.control(&cx.step("done").key, finished).await else {
            return CallProgress::Stopped;
        };
        call.end = Some(end);
        CallProgress::Done(answer, Some(call))
    }

    /// What the commander is told of the changes of an agent whose run ended: all if it gave no answer, otherwise those in doubt.
    fn changes(&self, state: &RunState, agent: &AgentName, outcome: AssignmentOutcome) -> Option<String> {
        let writes = state.tasks.get(&self.id.task)?.unit(&self.id)?.all_writes();
        let mut writes = writes.only(|write| write.by.as_deref() == Some(agent.as_str()));
        if matches!(outcome, AssignmentOutcome::Answered | AssignmentOutcome::Asked) {
            writes.done.clear();
        }
        self.parts.prompts.writes_text(&writes, WritesOf::EndedWork)
    }
}
