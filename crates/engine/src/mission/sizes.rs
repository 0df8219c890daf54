//! How many units a run still needs. What a mission needs at least and at most is in
//! [`mission_sizes`](crate::project::mission_sizes).

pub use crate::project::mission_sizes::{CODE_TOO_LARGE, TooManyUnits, check, may_exceed, most};
pub(super) use crate::project::mission_sizes::{is_parallel, least, limit};

use super::{
    dataset,
    state::{RunState, TaskState, TaskStatus},
};
use crate::project::missions::{MissionDef, TaskDef};

/// Units that a run still needs if nothing more fails, for what is started and for what must still run. `must_run`: those tasks.
pub(super) fn needed<'a>(def: &MissionDef, state: &RunState, must_run: impl IntoIterator<Item = &'a str>) -> u64 {
    let of_task = |task: &TaskDef| {
        let items = || {
            let items = task.iterator.as_ref().map_or(0, |iterator| dataset::items(state, &iterator.dataset).len());
            u64::try_from(items).unwrap_or(u64::MAX)
        };
        let Some(known) = state.tasks.get(&task.name) else { return least(task, items()) };
        match (is_parallel(task), known.status.is_open()) {
            (false, is_open) => u64::from(!is_open),
            (true, true) => unstarted(known),
            (true, false) => items().saturating_sub(u64::from(known.count(TaskStatus::Completed))),
        }
    };
    let tasks = must_run.into_iter().filter_map(|name| def.tasks.get(name));
    tasks.map(of_task).fold(0, u64::saturating_add)
}

/// Items of an iteration that were not started since the run was started or resumed.
fn unstarted(task: &TaskState) -> u64 {
    let total = u64::from(task.total_items.unwrap_or(0));
    let known = u64::try_from(task.items.len()).unwrap_or(u64::MAX);
    let again = task.count(TaskStatus::Pending).saturating_add(task.count(TaskStatus::Cancelled));
    total.saturating_sub(known).saturating_add(u64::from(again))
}
