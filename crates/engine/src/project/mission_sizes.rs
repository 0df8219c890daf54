//! How many units a run needs: each unit is a session of its own, and a run has at most [`RUN_UNITS`].
//!
//! What cannot fit even if nothing fails is rejected before it begins. Attempts and rounds are only reserved for what needs them: a run
//! that may need more is warned about, and fails when it has used them up, before the tasks that must still run lose their places.

use std::sync::Arc;

use super::{
    mission_graph,
    missions::{MissionDef, TaskDef},
};
use crate::limits::RUN_UNITS;

/// The code of a task or run that needs more than a run may have.
pub const CODE_TOO_LARGE: &str = "run.too_large";

/// A task that needs more units than a run can have, alone or together with the other tasks: the one that needs most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TooManyUnits {
    /// The task.
    pub task: Arc<str>,
    /// The dataset over whose items it iterates.
    pub dataset: Option<Arc<str>>,
    /// What is too much, as a sentence without its end.
    pub problem: String,
}

/// Units of a task if nothing fails: one, or one for each item of a parallel iteration.
pub(crate) fn least(task: &TaskDef, items: u64) -> u64 {
    if is_parallel(task) { items } else { 1 }
}

/// Units of a task at most: as many for each attempt and in each round. `None` if the number of items is not known.
pub fn most(task: &TaskDef, items: Option<u64>) -> Option<u64> {
    let rounds = task.repeat.as_ref().map_or(1, |repeat| u64::from(repeat.max));
    let sessions = match task.iterator.as_ref().filter(|iterator| iterator.parallel) {
        None => 1,
        Some(iterator) => items?.saturating_mul(u64::from(iterator.max_retries).saturating_add(1)),
    };
    Some(sessions.saturating_mul(rounds))
}

pub(crate) fn is_parallel(task: &TaskDef) -> bool {
    task.iterator.as_ref().is_some_and(|iterator| iterator.parallel)
}

/// Whether a run that enters at `entry` can fit. `items`: how many items a dataset has; one that is not known yet counts as empty.
///
/// # Errors
/// It needs more units than a run can have, even if each item and each round succeeds at once and no optional task is chosen.
pub fn check(
    def: &MissionDef,
    entry: Option<&str>,
    items: impl Fn(&str) -> Option<u64>,
) -> Result<(), Box<TooManyUnits>> {
    let is_sure = |task: &TaskDef| entry == Some(&*task.name) || mission_graph::activator(def, &task.name).is_none();
    let found = largest(def, entry, is_sure, |task| least(task, count(task, &items)));
    let Some((task, units, total)) = found else { return Ok(()) };
    let mut problem = format!(
        "the run needs {total} units of work, more than {RUN_UNITS} (`RUN_UNITS`): the task `{}` needs {units}",
        task.name
    );
    describe_items(task, count(task, &items), &mut problem);
    Err(Box::new(TooManyUnits { problem, ..of_task(task) }))
}

/// What a run may meet that [`check`] allows: with all attempts, rounds and optional tasks it may need more units than a run can have.
pub fn may_exceed(
    def: &MissionDef,
    entry: Option<&str>,
    items: impl Fn(&str) -> Option<u64>,
) -> Option<Box<TooManyUnits>> {
    let (task, units, total) =
        largest(def, entry, |_| true, |task| most(task, Some(count(task, &items))).unwrap_or(0))?;
    let mut problem = format!(
        "with all attempts and rounds the run may need {total} units of work, more than {RUN_UNITS} (`RUN_UNITS`): the task `{}` up to {units}",
        task.name
    );
    describe_items(task, count(task, &items), &mut problem);
    if let Some(iterator) = task.iterator.as_ref().filter(|iterator| iterator.parallel && iterator.max_retries > 0) {
        problem.push_str(&format!(" with up to {} attempts each", iterator.max_retries.saturating_add(1)));
    }
    if let Some(repeat) = &task.repeat {
        problem.push_str(&format!(", in up to {} rounds", repeat.max));
    }
    problem.push_str(&format!("; if they are used up, the run fails with `{CODE_TOO_LARGE}`"));
    Some(Box::new(TooManyUnits { problem, ..of_task(task) }))
}

/// The task that needs most, its units and those of all, if they are more than a run can have.
fn largest<'d>(
    def: &'d MissionDef,
    entry: Option<&str>,
    counts: impl Fn(&TaskDef) -> bool,
    units: impl Fn(&TaskDef) -> u64,
) -> Option<(&'d TaskDef, u64, u64)> {
    let active = mission_graph::active_tasks(def, entry);
    let tasks = def.tasks.values().filter(|task| task.always || active.contains(&task.name) && counts(task));
    let all: Vec<(&TaskDef, u64)> = tasks.map(|task| (task, units(task))).collect();
    let total = all.iter().map(|(_, units)| *units).fold(0, u64::saturating_add);
    // The first one of several.
    let (task, units) = all.into_iter().rev().max_by_key(|(_, units)| *units)?;
    (total > limit()).then_some((task, units, total))
}

fn count(task: &TaskDef, items: impl Fn(&str) -> Option<u64>) -> u64 {
    task.iterator.as_ref().and_then(|iterator| items(&iterator.dataset)).unwrap_or(0)
}

fn of_task(task: &TaskDef) -> TooManyUnits {
    let dataset = task.iterator.as_ref().map(|iterator| iterator.dataset.clone());
    TooManyUnits { task: task.name.clone(), dataset, problem: String::new() }
}

/// `, for 10000 items of the dataset `pages``.
fn describe_items(task: &TaskDef, items: u64, text: &mut String) {
    if let Some(iterator) = task.iterator.as_ref().filter(|iterator| iterator.parallel) {
        text.push_str(&format!(", for {items} items of the dataset `{}`", iterator.dataset));
    }
}

/// Units of a run, as a number like those of items.
pub(crate) fn limit() -> u64 {
    u64::try_from(RUN_UNITS).unwrap_or(u64::MAX)
}
