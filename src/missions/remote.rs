//! Remote agents of a mission, over A2A. The message is recorded like a write: it is sent once, and after a crash the agent is asked for
//! the task that it began.

use segue_engine::{
    conversation::AgentStatus,
    ids::AgentName,
    mission::{event::AssignmentOutcome, tools::AgentInput},
    project::RemoteDef,
};
use serde_json::Value as Json;

use super::{
    agent::{AssignmentEnd, failed_end},
    slice::UnitRun,
};
use crate::{
    agents::remote::{self, JournaledRemote, RemoteEnd, RemoteSession},
    context::CallContext,
    store::{TurnNumber, runs::StopRequest},
};

/// Runs a remote agent until it answers, asks or fails. `None`: the unit has stopped.
pub(super) async fn run(
    unit: &UnitRun,
    name: &AgentName,
    definition: &RemoteDef,
    session: &mut RemoteSession,
    input: &AgentInput,
    cx: &CallContext,
) -> Option<AssignmentEnd> {
    if unit.dry_run {
        return Some(failed_end(unit.envelope("dry_run", name.as_str())));
    }
    let client = JournaledRemote {
        inner: unit.parts.remote_agents.get(name.as_str()).cloned(),
        journal: unit.effects.clone(),
        conversation: unit.run.as_str().into(),
        number: TurnNumber(0),
        report_to: None,
    };
    let cx = cx.step("remote");
    let message = match input {
        AgentInput::Task(text) => {
            // A new assignment drops what the agent had in flight.
            remote::cancel(session, &client, &cx.step("earlier")).await;
            session.forget_task();
            text
        }
        AgentInput::Response(text) => text,
    };
    let end = remote::assign(message, session, name.as_str(), definition, &client, &cx).await;
    if cx.cancel.is_cancelled() || unit.journal.halt().is_some() {
        // A run that is stopped asks for the result later; one that is cancelled needs none.
        if is_cancelled_for_good(unit).await {
            remote::cancel(session, &client, &cx).await;
        }
        return None;
    }
    let text = text_of(&end);
    Some(match end.status {
        AgentStatus::AwaitingUser => AssignmentEnd { outcome: AssignmentOutcome::Asked, text: end.text.trim().into() },
        AgentStatus::Failed { code, reason } => failed_end(format!("{reason} [{code}]")),
        AgentStatus::Cancelled { reason } => {
            AssignmentEnd { outcome: AssignmentOutcome::Cancelled, text: reason.into() }
        }
        AgentStatus::Finished | AgentStatus::Yielded if text.is_empty() => {
            AssignmentEnd { outcome: AssignmentOutcome::NoResult, text: text.into() }
        }
        AgentStatus::Finished | AgentStatus::Yielded => {
            AssignmentEnd { outcome: AssignmentOutcome::Answered, text: text.into() }
        }
    })
}

/// The text of a result, with its structured part as JSON.
fn text_of(end: &RemoteEnd) -> String {
    match &end.data {
        Json::Array(data) if !data.is_empty() => format!("{}\n{}", end.text, end.data).trim().to_owned(),
        _ => end.text.trim().to_owned(),
    }
}

async fn is_cancelled_for_good(unit: &UnitRun) -> bool {
    let run = unit.parts.runs.run(&unit.run).await.ok().flatten();
    run.is_some_and(|run| run.summary.stop == Some(StopRequest::Cancel))
}
