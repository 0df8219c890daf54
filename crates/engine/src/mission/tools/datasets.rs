//! `dataset_next`, `set_dataset`, `dataset_sample`, `dataset_count`, `result_to_dataset`.

use serde_json::{Map, Value as Json, json};

use super::{ResultProblem, Then, ToolAnswer, ToolContext, ToolError, number, text};
use crate::{
    limits::{MISSION_DATASET_BYTES, MISSION_DATASET_ITEMS},
    mission::{
        dataset,
        event::{NewEvent, RunEventKind},
        sizes,
        state::TaskStatus,
    },
};

/// The end of the current item, if it is not recorded yet.
pub(super) fn end_of_item(cx: &ToolContext<'_>) -> Option<NewEvent> {
    let index = cx.unit.state.current?;
    let (_, item) = cx.unit.item()?;
    let learnings = cx.learnings.clone();
    let completed = RunEventKind::IterationCompleted { summary: "".into(), learnings };
    item.status.is_open().then(|| NewEvent::of_item(cx.unit.id, index, completed))
}

pub(super) fn next(cx: &ToolContext<'_>) -> Result<ToolAnswer, ToolError> {
    let unit = &cx.unit;
    if let Some(current) = unit.state.current {
        if !unit.task.output.is_empty() && !unit.has_output() {
            let message = format!("No output was submitted for item {current}.");
            return Err(ToolError::new("dataset.submit_first", message, "Call `submit_output` first."));
        }
        if let Some(plan) = unit.state.plan.as_ref().filter(|plan| plan.open() > 0) {
            let message = format!("{} of {} subtasks of item {current} are open.", plan.open(), plan.total());
            let hint = "Complete them with `complete_subtask` first.";
            return Err(ToolError::new("dataset.subtasks_open", message, hint));
        }
    }
    let mut events: Vec<NewEvent> = end_of_item(cx).into_iter().collect();
    let (index, items) = (unit.next_index(), unit.dataset_items());
    let Some(item) = usize::try_from(index).ok().and_then(|index| items.get(index)) else {
        let before = unit.task_state.count(TaskStatus::Completed);
        let completed = before.saturating_add(u32::try_from(events.len()).unwrap_or(0));
        let message = "All items are processed. Call `task_complete`.";
        let result = json!({"status": "exhausted", "message": message, "completed": completed});
        return Ok(ToolAnswer { events, ..ToolAnswer::of(result) });
    };
    let is_fresh =
        unit.sequential().is_some_and(|iterator| iterator.fresh_session) && !unit.task_state.items.is_empty();
    let started = RunEventKind::IterationStarted { item_id: dataset::item_id(item, index), objective: None };
    events.push(NewEvent::of_item(unit.id, index, started));
    let result = json!({"status": "ok", "index": index, "total": items.len(), "item": item});
    Ok(ToolAnswer { result, events, then: if is_fresh { Then::FreshSession } else { Then::Continue } })
}

fn known<'a>(name: &str, cx: &ToolContext<'a>) -> Result<&'a crate::project::missions::DatasetDef, ToolError> {
    cx.unit.def.datasets.get(name).ok_or_else(|| {
        let names: Vec<&str> = cx.unit.def.datasets.keys().map(|name| &**name).collect();
        let message = format!("There is no dataset `{name}`.");
        ToolError::new("dataset.unknown", message, "Use one of the datasets listed.").with("allowed", json!(names))
    })
}

pub(super) fn set(arguments: &Map<String, Json>, cx: &ToolContext<'_>) -> Result<ToolAnswer, ToolError> {
    let items = arguments.get("items").and_then(Json::as_array).cloned().unwrap_or_default();
    store(text(arguments, "name").unwrap_or_default(), items, arguments, cx)
}

pub(super) fn from_result(arguments: &Map<String, Json>, cx: &ToolContext<'_>) -> Result<ToolAnswer, ToolError> {
    let name = text(arguments, "dataset_name").unwrap_or_default();
    known(name, cx)?;
    let id = text(arguments, "id").unwrap_or_default();
    let items = cx.results.items(id).map_err(|problem| match problem {
        ResultProblem::Unknown => ToolError::new(
            "result.unknown",
            format!("There is no stored result `{id}`."),
            "Use the id that the tool result shows.",
        ),
        ResultProblem::NotAList => {
            let message = format!("The stored result `{id}` is not a list.");
            ToolError::new("result.type", message, "Only a list can become the items of a dataset.")
        }
    })?;
    store(name, items, arguments, cx)
}

fn store(
    name: &str,
    items: Vec<Json>,
    arguments: &Map<String, Json>,
    cx: &ToolContext<'_>,
) -> Result<ToolAnswer, ToolError> {
    let def = known(name, cx)?;
    let state = cx.unit.run.datasets.get(name);
    if state.is_some_and(|dataset| dataset.locked) {
        let message = format!("The dataset `{name}` is locked, because a task iterates over it.");
        return Err(ToolError::new("dataset.locked", message, "Go on with the items that it has."));
    }
    let append = arguments.get("append") == Some(&Json::Bool(true));
    let before = if append { state.map_or(0, |dataset| dataset.items.len()) } else { 0 };
    let count = before.saturating_add(items.len());
    if count > MISSION_DATASET_ITEMS {
        let message = format!("A dataset has at most {MISSION_DATASET_ITEMS} items; these would be {count}.");
        return Err(ToolError::new("dataset.too_large", message, "Store fewer items."));
    }
    check_units(name, count, cx)?;
    let bytes: usize = items.iter().map(|item| item.to_string().len()).sum();
    if bytes > MISSION_DATASET_BYTES {
        let message = format!("One call stores at most {MISSION_DATASET_BYTES} bytes; these items have {bytes}.");
        return Err(ToolError::new("dataset.too_large", message, "Store them in parts, with `append`."));
    }
    let violations = dataset::check_items(def, &items);
    if !violations.is_empty() {
        let details: Vec<String> =
            violations.iter().map(|found| format!("{}: {}", found.pointer, found.problem)).collect();
        let message = format!("The items do not fit the dataset `{name}`: {}.", details.join("; "));
        let error = ToolError::new("dataset.schema", message, "Nothing was stored. Correct the items and call again.");
        return Err(error.with("details", json!(violations)));
    }
    let added = items.len();
    let event = cx.event(RunEventKind::DatasetItemsSet { dataset: name.into(), items, append });
    let result = json!({"status": "ok", "dataset": name, "added": added, "count": count});
    Ok(ToolAnswer { events: vec![event], ..ToolAnswer::of(result) })
}

/// Items of which each gets a session of its own must fit the run, before any of them is worked on.
fn check_units(name: &str, count: usize, cx: &ToolContext<'_>) -> Result<(), ToolError> {
    let run = cx.unit.run;
    let items = |other: &str| match other == name {
        true => u64::try_from(count).ok(),
        false => run.datasets.get(other).and_then(|dataset| u64::try_from(dataset.items.len()).ok()),
    };
    sizes::check(cx.unit.def, run.entry.as_deref(), items).map_err(|found| {
        ToolError::new("dataset.too_large", format!("With these items {}.", found.problem), "Store fewer items.")
    })
}

pub(super) fn sample(arguments: &Map<String, Json>, cx: &ToolContext<'_>) -> Result<ToolAnswer, ToolError> {
    let name = text(arguments, "name").unwrap_or_default();
    known(name, cx)?;
    let count = number(arguments, "count").map_or(5, |count| usize::try_from(count).unwrap_or(usize::MAX));
    let seed = number(arguments, "seed").unwrap_or(cx.seed);
    Ok(ToolAnswer::of(json!(dataset::sample(dataset::items(cx.unit.run, name), count, seed))))
}

pub(super) fn count(arguments: &Map<String, Json>, cx: &ToolContext<'_>) -> Result<ToolAnswer, ToolError> {
    let name = text(arguments, "name").unwrap_or_default();
    known(name, cx)?;
    Ok(ToolAnswer::of(json!(dataset::items(cx.unit.run, name).len())))
}
