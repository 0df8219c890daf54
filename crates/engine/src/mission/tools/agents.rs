//! `call_agent`, `ask_agent`, and the agents' `ask_commander`.

use std::sync::Arc;

use serde_json::{Map, Value as Json, json};

use super::{AgentInput, Then, ToolAnswer, ToolContext, ToolError, commanders, text};
use crate::{
    ids::AgentName,
    mission::{
        event::{AssignmentOutcome, NewEvent, RunEventKind},
        state::TaskState,
        unit::{UnitId, UnitState, UnitView},
    },
};

/// What a commander does about an agent that failed after it had changed something.
const CHANGED_HINT: &str =
    "What is listed in `changes` stays as it is: have none of it done again. Go on from there, or report the failure.";

/// The agents that the commander of a unit may call, in the order of declaration.
pub fn allowed<'a>(unit: &UnitView<'a>) -> &'a [AgentName] {
    if unit.task.agents.is_empty() { &unit.def.agents } else { &unit.task.agents }
}

pub(super) fn call(arguments: &Map<String, Json>, cx: &ToolContext<'_>) -> Result<ToolAnswer, ToolError> {
    let named = text(arguments, "name").unwrap_or_default();
    let input = match (text(arguments, "task"), text(arguments, "response")) {
        (Some(task), None) => AgentInput::Task(task.into()),
        (None, Some(response)) => AgentInput::Response(response.into()),
        (task, _) => {
            let message = match task {
                Some(_) => "`task` and `response` exclude each other.",
                None => "Either `task` or `response` is required.",
            };
            let hint = "Use `task` for a new assignment and `response` for the answer to the agent's question.";
            return Err(ToolError::new("args.invalid", message, hint));
        }
    };
    let Some(agent) = allowed(&cx.unit).iter().find(|agent| agent.as_str() == named) else {
        return Err(unknown(named, allowed(&cx.unit).iter().map(AgentName::as_str).collect()));
    };
    if cx.busy.contains(agent) {
        let message = format!("The agent `{named}` is working on another call.");
        return Err(ToolError::new("agent.busy", message, "Call it again when that call has ended."));
    }
    let has_question = cx.unit.state.agents.get(agent).is_some_and(|state| state.question.is_some());
    if matches!(input, AgentInput::Response(_)) && !has_question {
        let message = format!("The agent `{named}` has not asked a question.");
        return Err(ToolError::new("agent.no_question", message, "Give it an assignment with `task`."));
    }
    let (AgentInput::Task(instruction) | AgentInput::Response(instruction)) = &input;
    let started = RunEventKind::AgentStarted { agent: agent.clone(), instruction: instruction.clone() };
    let events = vec![cx.event(started)];
    Ok(ToolAnswer::later(Then::CallAgent { agent: agent.clone(), input }, events))
}

/// The result of `call_agent` when the agent's run has ended. `text` is its answer, its question, or for a failure the reason; for a run
/// that reached a limit it is what the agent had written. `changes` says what it has changed, or may have, if its answer does not.
pub fn finished(
    unit: &UnitId,
    agent: &AgentName,
    outcome: AssignmentOutcome,
    text: &str,
    changes: Option<&str>,
) -> ToolAnswer {
    let question = (outcome == AssignmentOutcome::Asked).then(|| text.into());
    let event = RunEventKind::AgentCompleted { agent: agent.clone(), outcome, question };
    let problem = |code, message: String, hint: &str| match changes {
        Some(changes) => ToolError::new(code, message, CHANGED_HINT).with("changes", json!(changes)),
        None => ToolError::new(code, message, hint),
    };
    let error = |code, message, hint| problem(code, message, hint).json(None);
    let result = match outcome {
        AssignmentOutcome::Answered | AssignmentOutcome::Asked => {
            let changes = changes.map(|changes| format!("\n\n{changes}")).unwrap_or_default();
            Json::String(format!("{text}{changes}"))
        }
        AssignmentOutcome::NoResult => error(
            "agent.no_result",
            format!("The agent `{agent}` ended its turn without an answer."),
            "Call it again with a clearer assignment.",
        ),
        AssignmentOutcome::Failed => error(
            "agent.failed",
            format!("The agent `{agent}` failed: {text}"),
            "Find the cause, then try it in another way or report the failure.",
        ),
        AssignmentOutcome::Capped => problem(
            "agent.capped",
            format!("The agent `{agent}` reached its limit before it had finished."),
            "Use the partial text, or give it a smaller assignment.",
        )
        .with("partial", json!(text))
        .json(None),
        AssignmentOutcome::Cancelled => {
            error("agent.cancelled", format!("The agent `{agent}` was cancelled."), "Go on without its result.")
        }
    };
    ToolAnswer { events: vec![NewEvent::of_unit(unit, event)], ..ToolAnswer::of(result) }
}

pub(super) fn ask(arguments: &Map<String, Json>, cx: &ToolContext<'_>) -> Result<ToolAnswer, ToolError> {
    let named = text(arguments, "agent_id").unwrap_or_default();
    let question: Arc<str> = text(arguments, "question").unwrap_or_default().trim().into();
    if question.is_empty() {
        return Err(ToolError::new("args.invalid", "The question is empty.", "Write a question."));
    }
    let own = cx.unit.state.agents.get_key_value(named).filter(|(_, state)| state.completed > 0);
    if let Some((agent, _)) = own {
        if cx.busy.contains(agent) {
            let message = format!("The agent `{named}` is working on another call.");
            return Err(ToolError::new("agent.busy", message, "Ask it when that call has ended."));
        }
        return Ok(ToolAnswer::later(Then::AskAgent { agent: agent.clone(), unit: None, question }, Vec::new()));
    }
    // The latest task before this one whose agents include it.
    let ancestors = commanders::ancestors(&cx.unit);
    for task in ancestors.iter().rev() {
        let found = cx.unit.run.tasks.get(task).and_then(|state| agent_of(task, state, named));
        if let Some((agent, unit)) = found {
            return Ok(ToolAnswer::later(Then::AskAgent { agent, unit: Some(unit), question }, Vec::new()));
        }
    }
    Err(unknown(named, known(&cx.unit).iter().map(|agent| agent.as_str()).collect()))
}

/// The agents that can be asked: those of this commander and of the tasks before that completed an assignment.
pub fn known(unit: &UnitView<'_>) -> Vec<AgentName> {
    let own = unit.state.agents.iter().filter(|(_, state)| state.completed > 0).map(|(name, _)| name.clone());
    let mut names: Vec<AgentName> = own.collect();
    for task in commanders::ancestors(unit).iter().filter_map(|task| unit.run.tasks.get(task)) {
        for name in task.agents() {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
    }
    names
}

fn agent_of(task: &Arc<str>, state: &TaskState, named: &str) -> Option<(AgentName, UnitId)> {
    let find = |unit: &UnitState| {
        let (name, _) = unit.agents.get_key_value(named).filter(|(_, state)| state.completed > 0)?;
        Some((name.clone(), unit.attempt))
    };
    if let Some((name, attempt)) = state.unit.as_ref().and_then(find) {
        return Some((name, UnitId::task(task.clone(), attempt).in_round(state.round())));
    }
    state.items.iter().find_map(|(index, item)| {
        let (name, attempt) = item.unit.as_ref().and_then(find)?;
        Some((name, UnitId::item(task.clone(), *index, attempt).in_round(state.round())))
    })
}

fn unknown(named: &str, allowed: Vec<&str>) -> ToolError {
    let message = format!("There is no agent `{named}` here.");
    ToolError::new("agent.unknown", message, "Use one of the agents listed.").with("allowed", json!(allowed))
}

pub(super) fn ask_commander(arguments: &Map<String, Json>) -> Result<ToolAnswer, ToolError> {
    let question: Arc<str> = text(arguments, "question").unwrap_or_default().trim().into();
    if question.is_empty() {
        return Err(ToolError::new("args.invalid", "The question is empty.", "Write a question."));
    }
    Ok(ToolAnswer::later(Then::AskOwnCommander { question }, Vec::new()))
}
