//! `task_complete`.

use std::sync::Arc;

use serde_json::{Map, Value as Json, json};

use super::{Then, ToolAnswer, ToolContext, ToolError, people, text};
use crate::{
    limits::MISSION_CHAIN,
    mission::{
        event::{ChosenBy, ChosenTarget, NewEvent, RunEventKind},
        inputs::{self, NewRunOptions},
        rounds::{self, RoundEnd},
        routes, scheduler,
        state::TaskStatus,
    },
    project::missions::{RouteDef, RouteTarget},
};

/// The code of a task whose commander reports that it failed.
const CODE_REPORTED: &str = "task.reported";

pub(super) fn call(arguments: &Map<String, Json>, cx: &ToolContext<'_>) -> Result<ToolAnswer, ToolError> {
    if arguments.get("succeed") == Some(&Json::Bool(false)) {
        return fail(arguments, cx);
    }
    check_subtasks(cx)?;
    check_output(cx)?;
    let summary = text(arguments, "summary").unwrap_or_default().trim();
    // The summary of parallel iterations is that of the whole task, which no commander writes.
    let has_readers = cx.unit.has_descendants() || cx.unit.task.repeat.is_some();
    if summary.is_empty() && cx.unit.id.iteration.is_none() && has_readers {
        let message = match &cx.unit.task.repeat {
            Some(_) => "A summary is required, because the next round works with it.",
            None => "A summary is required, because other tasks work with it.",
        };
        let hint = "Call again with a `summary` of the findings and results.";
        return Err(ToolError::new("complete.summary_missing", message, hint));
    }
    let mut events = end_of_items(cx);
    if cx.unit.id.iteration.is_none() {
        match end_of_round(summary, cx)? {
            RoundEnd::Complete(issue) => events.extend(issue.map(|issue| cx.event(issue))),
            RoundEnd::Next(ended) => return Ok(next_round(ended, events, cx)),
            RoundEnd::Failed { code, error } => {
                events.push(scheduler::failed(cx.unit.id, code, &error));
                let result = json!({"status": "ok", "succeed": false, "reason": error});
                return Ok(ToolAnswer { result, events, then: Then::Failed });
            }
        }
    }
    let (route, routed) = choose(arguments, summary, cx)?;
    events.extend(route);
    events.extend(
        match cx.unit.id.iteration {
            Some(_) => None,
            None => Some(scheduler::send_to_events(cx.unit.task, |kind| cx.event(kind))),
        }
        .into_iter()
        .flatten(),
    );
    let summary: Arc<str> = summary.into();
    events.push(cx.event(match cx.unit.id.iteration {
        Some(_) => RunEventKind::IterationCompleted { summary, learnings: cx.learnings.clone() },
        None => RunEventKind::TaskCompleted { summary },
    }));
    let mut result = json!({"status": "ok"});
    if let Some(object) = result.as_object_mut() {
        object.extend(routed);
    }
    Ok(ToolAnswer { result, events, then: Then::Completed })
}

fn fail(arguments: &Map<String, Json>, cx: &ToolContext<'_>) -> Result<ToolAnswer, ToolError> {
    let Some(reason) = text(arguments, "reason").map(str::trim).filter(|reason| !reason.is_empty()) else {
        let message = "A task that does not succeed needs a reason.";
        return Err(ToolError::new("complete.reason_missing", message, "Call again with `reason`."));
    };
    let questions: Vec<&str> = arguments
        .get("questions")
        .and_then(Json::as_array)
        .map_or(&[][..], Vec::as_slice)
        .iter()
        .filter_map(Json::as_str)
        .map(str::trim)
        .filter(|question| !question.is_empty())
        .collect();
    if questions.is_empty() {
        let events = vec![scheduler::failed(cx.unit.id, CODE_REPORTED, reason)];
        let result = json!({"status": "ok", "succeed": false});
        return Ok(ToolAnswer { result, events, then: Then::Failed });
    }
    let (ids, mut events) = people::questions(&questions, cx);
    events.push(cx.event(RunEventKind::TaskBlocked { reason: reason.into(), questions: ids.clone() }));
    let result = json!({"status": "ok", "succeed": false, "blocked": true, "questions": ids.len()});
    Ok(ToolAnswer { result, events, then: Then::Blocked { questions: ids } })
}

/// What follows if the task is repeated.
fn end_of_round(summary: &str, cx: &ToolContext<'_>) -> Result<RoundEnd, ToolError> {
    let (unit, learnings) = (&cx.unit, cx.learnings.as_ref());
    rounds::after(unit.task, unit.run, &routes::output(unit), summary, learnings, cx.templates).map_err(|error| {
        let message = format!("The condition that ends the repetition cannot be evaluated: {error}.");
        ToolError::new(rounds::CODE_CONDITION, message, "Submit an output with the fields that it reads.")
    })
}

fn next_round(ended: RunEventKind, mut events: Vec<NewEvent>, cx: &ToolContext<'_>) -> ToolAnswer {
    let until: Arc<str> = match &ended {
        RunEventKind::TaskRoundCompleted { until, .. } => until.clone(),
        _ => "".into(),
    };
    events.push(cx.event(ended));
    let result = json!({"status": "ok", "repeated": true, "round": cx.unit.id.round, "until": &*until});
    ToolAnswer { result, events, then: Then::Completed }
}

fn check_subtasks(cx: &ToolContext<'_>) -> Result<(), ToolError> {
    match &cx.unit.state.plan {
        Some(plan) if plan.open() > 0 => {
            let (open, total) = (plan.open(), plan.total());
            let message = format!("{open} of {total} subtasks are open.");
            let hint = "Complete them with `complete_subtask`, or report the failure with `succeed: false`.";
            let error = ToolError::new("complete.subtasks_open", message, hint);
            Err(error.with("open", json!(open)).with("total", json!(total)))
        }
        _ => Ok(()),
    }
}

fn check_output(cx: &ToolContext<'_>) -> Result<(), ToolError> {
    let unit = &cx.unit;
    let missing = |message: String| {
        Err(ToolError::new("complete.output_missing", message, "Call `submit_output` with a valid output first."))
    };
    if unit.sequential().is_some() {
        let (next, total) = (unit.next_index(), unit.dataset_items().len());
        if let (Some(current), false) = (unit.state.current, unit.task.output.is_empty() || unit.has_output()) {
            return missing(format!("No output was submitted for item {current}."));
        }
        let done = usize::try_from(next).unwrap_or(usize::MAX);
        if done < total {
            let message = format!("{} of {total} items were not fetched yet.", total.saturating_sub(done));
            let hint = "Fetch them with `dataset_next`, or report the failure with `succeed: false`.";
            return Err(ToolError::new("complete.dataset_open", message, hint)
                .with("fetched", json!(done))
                .with("total", json!(total)));
        }
    } else if unit.task.output.values().any(|field| field.required) && !unit.has_output() {
        return missing("No output was submitted.".into());
    }
    Ok(())
}

/// The end of the last item of a sequential iteration, and of the iteration.
fn end_of_items(cx: &ToolContext<'_>) -> Vec<NewEvent> {
    if cx.unit.sequential().is_none() {
        return Vec::new();
    }
    let mut events: Vec<NewEvent> = super::datasets::end_of_item(cx).into_iter().collect();
    let before = cx.unit.task_state.count(TaskStatus::Completed);
    let completed_count = before.saturating_add(u32::try_from(events.len()).unwrap_or(0));
    events.push(cx.event(RunEventKind::TaskIterationCompleted { completed_count }));
    events
}

type Chosen = (Option<NewEvent>, Map<String, Json>);

/// What follows: a route that data decides, otherwise the one that the commander names.
fn choose(arguments: &Map<String, Json>, summary: &str, cx: &ToolContext<'_>) -> Result<Chosen, ToolError> {
    let task = cx.unit.task;
    if routes::routes(task).is_empty() {
        return Ok((None, Map::new()));
    }
    let by_data = routes::by_data(&cx.unit, summary, cx.templates).map_err(|error| {
        let message = format!("The condition of a route cannot be evaluated: {error}.");
        ToolError::new("route.condition", message, "Submit an output with the fields that the routes read.")
    })?;
    if let Some((route, values)) = by_data {
        return take(route, ChosenBy::Data, values, arguments, cx);
    }
    let mut keys: Vec<String> = routes::offered(task).map(|route| routes::key(task, &route.target)).collect();
    if let (true, Some(route)) = (keys.is_empty(), routes::otherwise(task)) {
        return take(route, ChosenBy::Data, Json::Null, arguments, cx);
    }
    if keys.is_empty() {
        return Ok(none(ChosenBy::Data, cx)); // no condition holds, and there is nothing to choose from
    }
    keys.push(routes::NONE.into());
    let Some(named) = text(arguments, "route") else {
        let message = "This task has routes; name the one to take.";
        let hint = "Call again with `route`; `none` takes no route.";
        return Err(ToolError::new("route.required", message, hint).with("allowed", json!(keys)));
    };
    if named == routes::NONE {
        return Ok(none(ChosenBy::Words, cx));
    }
    let Some(route) = routes::find(task, named) else {
        let message = format!("There is no route `{named}`.");
        return Err(
            ToolError::new("route.unknown", message, "Use one of the routes listed.").with("allowed", json!(keys))
        );
    };
    take(route, ChosenBy::Words, Json::Null, arguments, cx)
}

fn none(by: ChosenBy, cx: &ToolContext<'_>) -> Chosen {
    let (target, condition) = (ChosenTarget::None, routes::NONE.into());
    (Some(cx.event(RunEventKind::RouteChosen { target, by, condition, values: Json::Null })), Map::new())
}

fn take(
    route: &RouteDef,
    by: ChosenBy,
    values: Json,
    arguments: &Map<String, Json>,
    cx: &ToolContext<'_>,
) -> Result<Chosen, ToolError> {
    let condition = match (&route.condition, &route.when) {
        (Some(condition), _) => condition.source().text().into(),
        (None, when) => when.clone().unwrap_or_default(),
    };
    let mut routed = Map::new();
    let target = match &route.target {
        RouteTarget::Task(name) => {
            routed.insert("routed_to".into(), json!(&**name));
            ChosenTarget::Task(name.clone())
        }
        RouteTarget::Mission(name, entry) => {
            routed.insert("routed_to_mission".into(), json!(&**name));
            let next = cx.unit.run.next_run(cx.unit.id.task.clone(), entry.clone(), route.hand_over);
            let inputs = mission_inputs(name, next, arguments, cx)?;
            ChosenTarget::Mission { name: name.clone(), entry: entry.clone(), inputs, hand_over: route.hand_over }
        }
    };
    Ok((Some(cx.event(RunEventKind::RouteChosen { target, by, condition, values })), routed))
}

/// The inputs of the mission that follows. What would keep its run from starting is told here, where the commander can correct it: once the
/// task is completed, nobody can.
fn mission_inputs(
    mission: &str,
    next: NewRunOptions,
    arguments: &Map<String, Json>,
    cx: &ToolContext<'_>,
) -> Result<Map<String, Json>, ToolError> {
    if cx.unit.run.chain.saturating_add(1) >= MISSION_CHAIN {
        let message = format!("This chain has {MISSION_CHAIN} runs; no other mission can follow.");
        return Err(ToolError::new("route.chain_limit", message, "Take another route, or `none`."));
    }
    let Some(def) = cx.missions.mission(mission) else {
        let message = format!("The mission `{mission}` is not available.");
        return Err(ToolError::new("route.mission_unknown", message, "Take another route, or `none`."));
    };
    let given = arguments.get("mission_inputs").and_then(Json::as_object).cloned().unwrap_or_default();
    let checked = inputs::parse(&def.inputs, &given).and_then(|parsed| {
        inputs::start(def, &cx.unit.run.run, &parsed, next)?;
        Ok(parsed)
    });
    checked.map_err(|problems| {
        let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
        let message = format!("The inputs of the mission `{mission}` are not valid: {}.", texts.join("; "));
        let details: Vec<Json> =
            problems.iter().map(|found| json!({"input": &*found.input, "problem": found.problem})).collect();
        let hint = "Call again with `mission_inputs`.";
        ToolError::new("route.inputs_missing", message, hint).with("missing", json!(details))
    })
}
