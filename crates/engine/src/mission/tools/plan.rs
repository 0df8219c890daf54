//! `set_subtasks`, `get_subtasks`, `complete_subtask`.

use std::sync::Arc;

use serde_json::{Map, Value as Json, json};

use super::{ToolAnswer, ToolContext, ToolError};
use crate::mission::{event::RunEventKind, unit::Plan};

pub(super) fn set(arguments: &Map<String, Json>, cx: &ToolContext<'_>) -> Result<ToolAnswer, ToolError> {
    let titles = arguments.get("subtasks").and_then(Json::as_array).map_or(&[][..], Vec::as_slice);
    let subtasks: Vec<Arc<str>> = titles.iter().filter_map(Json::as_str).map(|title| title.trim().into()).collect();
    if subtasks.iter().any(|title| title.is_empty()) {
        return Err(ToolError::new("args.invalid", "A subtask has no title.", "Give each subtask a title."));
    }
    if cx.unit.state.plan.as_ref().is_some_and(|plan| plan.completed > 0) {
        let hint = match cx.unit.sequential() {
            Some(_) => {
                "Complete the remaining subtasks, then call `dataset_next`; for the next item you can plan again."
            }
            None => "Complete the remaining subtasks.",
        };
        return Err(ToolError::new("plan.locked", "The plan is locked: a subtask is completed already.", hint));
    }
    let plan = Plan { subtasks: subtasks.clone(), completed: 0 };
    let result = json!({"status": "ok", "count": plan.total(), "subtasks": list(&plan)});
    Ok(ToolAnswer { events: vec![cx.event(RunEventKind::SubtasksSet { subtasks })], ..ToolAnswer::of(result) })
}

pub(super) fn get(cx: &ToolContext<'_>) -> ToolAnswer {
    ToolAnswer::of(match &cx.unit.state.plan {
        Some(plan) => json!({"status": "ok", "subtasks": list(plan)}),
        None => json!({"status": "ok", "subtasks": [], "message": "No subtasks are planned yet."}),
    })
}

pub(super) fn complete(cx: &ToolContext<'_>) -> Result<ToolAnswer, ToolError> {
    let Some(plan) = cx.unit.state.plan.as_ref().filter(|plan| plan.open() > 0) else {
        return Err(ToolError::new("plan.empty", "No subtask is open.", "Plan subtasks, or end the task."));
    };
    let index = plan.completed;
    let after = Plan { completed: index.saturating_add(1), ..plan.clone() };
    let result = json!({"status": "ok", "subtasks": list(&after)});
    Ok(ToolAnswer { events: vec![cx.event(RunEventKind::SubtaskCompleted { index })], ..ToolAnswer::of(result) })
}

fn list(plan: &Plan) -> Vec<Json> {
    let entry =
        |(index, title): (u32, &Arc<str>)| json!({"index": index, "title": &**title, "status": plan.status(index)});
    (0..).zip(&plan.subtasks).map(entry).collect()
}
