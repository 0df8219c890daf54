//! Reruns from a task: what a new run takes over from another one.

use std::{collections::HashSet, sync::Arc};

use super::{
    event::{NewEvent, RunEvent, RunEventKind},
    state::{RunState, TaskState, TaskStatus},
};
use crate::{conversation::Writes, project::missions::MissionDef, usage::ModelUsage};

/// Items in one event.
const ITEMS: usize = 500;

/// From where a run is repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RerunFrom {
    /// The task that runs again. What hangs on it runs again too; other completed tasks are taken over.
    pub task: Arc<str>,
    /// Whether only its failed items run again.
    pub failed_items: bool,
}

/// Why a run cannot be repeated from a task.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RerunProblem {
    /// The mission has no such task.
    #[error("the mission has no task `{task}`; it has {known}")]
    UnknownTask {
        /// The task.
        task: Arc<str>,
        /// The tasks that it has.
        known: String,
    },
    /// The run has not ended.
    #[error("the run has not ended; stop or cancel it first")]
    NotEnded,
    /// The task was not started in that run, so nothing of it can run again.
    #[error("the task `{0}` was not started in that run; leave out `--task` to run the whole mission again")]
    NotStarted(Arc<str>),
    /// The task has no items of its own.
    #[error("the task `{0}` does not iterate in parallel, so it has no failed items; leave out `--failed-items`")]
    NotParallel(Arc<str>),
    /// None of its items failed.
    #[error("no item of the task `{0}` failed or is missing")]
    NothingFailed(Arc<str>),
}

/// The tasks that run again if `task` does: those that depend on it or that it activated, directly or not, and the task itself.
pub fn stale(def: &MissionDef, state: &RunState, task: &str) -> HashSet<Arc<str>> {
    let mut stale: HashSet<Arc<str>> = HashSet::from([task.into()]);
    loop {
        let hangs_on = |name: &Arc<str>| stale.contains(name);
        let next = def.tasks.values().find(|task| {
            let activated_by = state.tasks.get(&task.name).and_then(|task| task.activated_by.as_ref());
            !stale.contains(&task.name) && (task.depends_on.iter().any(hangs_on) || activated_by.is_some_and(hangs_on))
        });
        let Some(next) = next else { return stale };
        stale.insert(next.name.clone());
    }
}

/// What a rerun takes over: the events that follow the first event of the new run, and the items of its datasets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TakenOver {
    /// The events.
    pub events: Vec<NewEvent>,
    /// The items of the datasets, as the tasks that are taken over left them.
    pub datasets: indexmap::IndexMap<Arc<str>, Vec<serde_json::Value>>,
}

/// What a rerun takes over from a run with these events.
///
/// # Errors
/// [`RerunProblem`].
pub fn taken_over(def: &MissionDef, events: &[RunEvent], from: &RerunFrom) -> Result<TakenOver, RerunProblem> {
    let state = RunState::from_events(events);
    let Some(task) = def.tasks.get(&from.task) else {
        let known: Vec<&str> = def.tasks.keys().map(|name| &**name).collect();
        return Err(RerunProblem::UnknownTask { task: from.task.clone(), known: known.join(", ") });
    };
    if !state.status.has_ended() {
        return Err(RerunProblem::NotEnded);
    }
    if state.tasks.get(&from.task).is_none_or(|task| task.status == TaskStatus::Pending) {
        return Err(RerunProblem::NotStarted(from.task.clone()));
    }
    if from.failed_items && !task.iterator.as_ref().is_some_and(|iterator| iterator.parallel) {
        return Err(RerunProblem::NotParallel(from.task.clone()));
    }
    let stale = stale(def, &state, &from.task);
    // The datasets without what the stale tasks put into them.
    let keeps = |event: &&RunEvent| event.event.task.as_ref().is_none_or(|task| !stale.contains(task));
    let kept = RunState::from_events(events.iter().filter(keeps));
    let mut taken = TakenOver::default();
    for (name, dataset) in &kept.datasets {
        taken.datasets.insert(name.clone(), dataset.items.clone());
    }
    let is_taken = |name: &Arc<str>| !stale.contains(name) && def.tasks.get(name).is_some_and(|task| !task.always);
    for (name, task) in state.tasks.iter().filter(|(name, task)| is_taken(name) && task.status == TaskStatus::Completed)
    {
        copy(def, &state.run, name, task.clone(), &mut taken.events);
    }
    if from.failed_items {
        let mut again = state.tasks.get(&from.task).cloned().unwrap_or_default();
        let total = again.total_items.unwrap_or(0);
        if total == 0 || again.count(TaskStatus::Completed) == total {
            return Err(RerunProblem::NothingFailed(from.task.clone()));
        }
        again.start_again();
        // A rerun is a new run: what it repeats is named before it starts.
        again.items.change_unfinished(|_, item| item.earlier_writes = Writes::default());
        copy(def, &state.run, &from.task, again, &mut taken.events);
    }
    Ok(taken)
}

/// Whether the work of which an event tells is taken over by a rerun of a run in this state. Everything else may be done again.
pub fn taken<'a>(
    def: &'a MissionDef,
    state: &'a RunState,
    from: Option<&'a RerunFrom>,
) -> impl Fn(&RunEvent) -> bool + use<'a> {
    let stale = from.map(|from| stale(def, state, &from.task));
    move |event| {
        let task = event.event.task.as_ref().and_then(|name| Some((name, state.tasks.get(name)?)));
        let (Some(from), Some(stale), Some((name, task))) = (from, &stale, task) else { return false };
        if from.failed_items && *name == from.task {
            let item = event.event.iteration.and_then(|index| task.items.get(&index));
            return item.is_some_and(|item| item.status == TaskStatus::Completed);
        }
        let is_always = def.tasks.get(name).is_some_and(|task| task.always);
        !stale.contains(name) && !is_always && task.status == TaskStatus::Completed
    }
}

fn copy(def: &MissionDef, run: &Arc<str>, name: &Arc<str>, mut task: TaskState, events: &mut Vec<NewEvent>) {
    // What the other run used does not count for this one.
    task.usage = ModelUsage::default();
    let dataset = def.tasks.get(name).and_then(|task| task.iterator.as_ref()).map(|iterator| iterator.dataset.clone());
    let mut items = std::mem::take(&mut task.items).into_iter().peekable();
    let run = task.copied_from.take().unwrap_or_else(|| run.clone());
    loop {
        let state = TaskState { items: items.by_ref().take(ITEMS).collect(), ..task.clone() };
        let state = serde_json::to_value(state).unwrap_or_default();
        let copied = RunEventKind::TaskCopied { run: run.clone(), state, dataset: dataset.clone() };
        events.push(NewEvent::of_task(name, copied));
        if items.peek().is_none() {
            return;
        }
    }
}
