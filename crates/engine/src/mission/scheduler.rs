//! The scheduler: what follows from the state of a run. It is pure and deterministic; the runtime performs its decisions.
//!
//! The runtime stores the events of a decision in one transaction with what the decision does (a new unit, the end of the run), applies
//! them to the state and calls [`next`] again, until it returns nothing that has events. A run can be continued from any state: what was
//! decided and not stored is decided again.

use std::{collections::HashSet, sync::Arc, time::Duration};

use serde_json::{Value as Json, json};

use super::{
    budget, dataset,
    event::{AssignmentOutcome, ChosenBy, ChosenTarget, IssueSeverity, NewEvent, RunEventKind},
    graph, objective,
    rounds::{self, RoundEnd},
    routes, sizes,
    state::{FollowUp, ItemState, MissionStatus, RunState, TaskState, TaskStatus},
    unit::UnitId,
};
use crate::{
    ids::AgentName,
    project::{
        mission_graph,
        missions::{IteratorDef, MissionDef, NextTasks, OnIterationError, TaskDef},
    },
    template::TemplateEngine,
    time::Timestamp,
};

/// The code of a task whose iterations failed.
pub const CODE_ITERATION_FAILED: &str = "iteration.failed";
/// The code of a task with an item that could be retried, had its failed attempt not changed something.
pub const CODE_NOT_RETRIED: &str = "iteration.not_retried";
/// The code of a task whose objective could not be rendered.
pub const CODE_OBJECTIVE: &str = "task.objective";
/// The code of a run in which nothing can start although tasks are left; the loader refuses such missions.
pub const CODE_STUCK: &str = "run.stuck";

/// What the runtime does.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Nothing but storing the events.
    Record,
    /// Create a unit and run it.
    Start {
        /// The unit.
        unit: UnitId,
        /// Its objective.
        objective: Arc<str>,
    },
    /// Stop a unit, and store the events of [`cancelled`] when it has stopped. Returned until that is stored.
    Cancel {
        /// The unit.
        unit: UnitId,
    },
    /// Start a run of another mission under the given id, and store `follow_up_started`. Returned until that is stored.
    Launch {
        /// The run to start.
        follow_up: FollowUp,
    },
    /// The run ends with these events.
    Finish {
        /// `Completed` or `Failed`.
        status: MissionStatus,
    },
}

/// A decision.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// What to do.
    pub action: Action,
    /// The events to store with it.
    pub events: Vec<NewEvent>,
}

impl Decision {
    fn record(events: Vec<NewEvent>) -> Self {
        Self { action: Action::Record, events }
    }
}

/// The events of a unit that was cancelled.
pub fn cancelled(state: &RunState, unit: &UnitId) -> Vec<NewEvent> {
    let mut events = agents_cancelled(state, unit);
    events.push(match unit.iteration {
        Some(_) => NewEvent::of_unit(unit, RunEventKind::IterationCancelled {}),
        None => NewEvent::of_unit(unit, ended_by_failure(state, &unit.task)),
    });
    events
}

/// The ends of everything that is open in a run that ends as it is.
pub fn all_cancelled(state: &RunState) -> Vec<NewEvent> {
    let units = state.open_units();
    let mut events: Vec<NewEvent> = units.iter().flat_map(|unit| cancelled(state, unit)).collect();
    let has_ended = |task: &Arc<str>| units.iter().any(|unit| unit.iteration.is_none() && unit.task == *task);
    let open = state.tasks.iter().filter(|(name, task)| task.status.is_open() && !has_ended(name));
    events.extend(open.map(|(name, _)| NewEvent::of_task(name, ended_by_failure(state, name))));
    events
}

/// How a task ends that works when the run fails: it is cancelled, unless its own budget is why the run fails.
fn ended_by_failure(state: &RunState, task: &str) -> RunEventKind {
    match state.budget_breach(task) {
        Some(error) => RunEventKind::TaskFailed { code: budget::CODE_EXCEEDED.into(), error: error.clone() },
        None => RunEventKind::TaskCancelled {},
    }
}

/// The ends of the agents that work for a unit, which ends before them.
pub fn agents_cancelled(state: &RunState, unit: &UnitId) -> Vec<NewEvent> {
    let Some(unit_state) = state.tasks.get(&unit.task).and_then(|task| task.unit(unit)) else { return Vec::new() };
    let running = unit_state.agents.iter().filter(|(_, agent)| agent.running);
    let ended = |(name, _): (&AgentName, _)| {
        let (agent, outcome) = (name.clone(), AssignmentOutcome::Cancelled);
        NewEvent::of_unit(unit, RunEventKind::AgentCompleted { agent, outcome, question: None })
    };
    running.map(ended).collect()
}

/// The event of a unit whose loop ended without an accepted `task_complete`: corrections used up, model failed, limit reached. What it
/// submitted before does not make it a success.
pub fn failed(unit: &UnitId, code: &str, error: &str) -> NewEvent {
    let (code, error) = (code.into(), error.into());
    match unit.iteration {
        Some(_) => NewEvent::of_unit(unit, RunEventKind::IterationFailed { code, error }),
        None => NewEvent::of_unit(unit, RunEventKind::TaskFailed { code, error }),
    }
}

/// The events of `send_to`, to be stored with the completion of a task.
pub fn send_to_events(task: &TaskDef, event: impl Fn(RunEventKind) -> NewEvent) -> Vec<NewEvent> {
    let NextTasks::SendTo(targets) = &task.next else { return Vec::new() };
    let chosen = |target: &Arc<str>| RunEventKind::RouteChosen {
        target: ChosenTarget::Task(target.clone()),
        by: ChosenBy::SendTo,
        condition: "send_to".into(),
        values: serde_json::Value::Null,
    };
    targets.iter().map(|target| event(chosen(target))).collect()
}

/// What follows from the state of a run. `engine` evaluates the conditions of repeated tasks. Items whose time has not come are started by a
/// later call: see [`next_wake`].
pub fn next(def: &MissionDef, state: &RunState, engine: &TemplateEngine, now: Timestamp) -> Vec<Decision> {
    let mut decisions = next_unlimited(def, state, engine, now);
    limit_units(def, state, &mut decisions);
    decisions
}

/// When [`next`] returns more although nothing has happened: the time of the next item that waits for its retry or for its delayed start.
/// `None` if no item waits that could start then.
pub fn next_wake(def: &MissionDef, state: &RunState, engine: &TemplateEngine, now: Timestamp) -> Option<Timestamp> {
    if state.status != MissionStatus::Running || state.failure.is_some() {
        return None;
    }
    let iterations = running_iterations(def, state);
    let wakes = iterations.filter_map(|(task, task_state)| {
        Iteration { def, run: state, task: task.0, iterator: task.1, state: task_state, engine, now }.next_wake()
    });
    wakes.min()
}

/// Replaces the first unit that a run cannot have any more by the failure of its task: another attempt must not take the place of what must
/// still run.
fn limit_units(def: &MissionDef, state: &RunState, decisions: &mut Vec<Decision>) {
    if !decisions.iter().any(|decision| matches!(decision.action, Action::Start { .. })) {
        return;
    }
    let mut units = state.units.saturating_add(needed(def, state));
    let is_too_much = |decision: &Decision| {
        let Action::Start { unit, .. } = &decision.action else { return false };
        let item = unit.iteration.and_then(|index| state.tasks.get(&unit.task)?.items.get(&index));
        units = units.saturating_add(u64::from(item.is_some_and(|item| item.status == TaskStatus::Failed)));
        units > sizes::limit() && def.tasks.get(&unit.task).is_none_or(|task| !task.always)
    };
    let Some(at) = decisions.iter().position(is_too_much) else { return };
    decisions.truncate(at.saturating_add(1));
    let Some(Decision { action: Action::Start { unit, .. }, mut events }) = decisions.pop() else { return };
    if unit.iteration.is_some() {
        events.clear(); // the item is not started
    }
    events.push(NewEvent::of_task(&unit.task, too_many_units(def, state, &unit.task)));
    decisions.push(Decision::record(events));
}

/// Units that a run still needs if nothing more fails.
fn needed(def: &MissionDef, state: &RunState) -> u64 {
    let last = last_tasks(def, state).map(|task| &*task.name);
    sizes::needed(def, state, left(def, state).into_iter().chain(last))
}

/// The failure of a task for which a run has no units left.
fn too_many_units(def: &MissionDef, state: &RunState, task: &Arc<str>) -> RunEventKind {
    let error = format!(
        "the run has started {} units of work, and with those{} and what must still run it would have more than {} (`RUN_UNITS`)",
        state.units,
        of_items(def, state, task).unwrap_or_else(|| " of this task".into()),
        sizes::limit()
    );
    RunEventKind::TaskFailed { code: sizes::CODE_TOO_LARGE.into(), error: error.into() }
}

/// ` for the 400 items of the dataset `pages``, if a task iterates in parallel.
fn of_items(def: &MissionDef, state: &RunState, task: &Arc<str>) -> Option<String> {
    let iterator = def.tasks.get(task)?.iterator.as_ref().filter(|iterator| iterator.parallel)?;
    let items = dataset::items(state, &iterator.dataset).len();
    Some(format!(" for the {items} items of the dataset `{}`", iterator.dataset))
}

/// The warning that the attempts of an iteration do not fit, if they may not. `open`: its items; `needed`: the units of the run without
/// other attempts.
fn may_exceed(iterator: &IteratorDef, open: u64, needed: u64) -> Option<RunEventKind> {
    let most = open.saturating_mul(u64::from(iterator.max_retries)).saturating_add(needed);
    if most <= sizes::limit() {
        return None;
    }
    let free = sizes::limit().saturating_sub(needed);
    let message = format!(
        "with all attempts for the {open} items of the dataset `{}` the run may need {most} units of work, more than {} (`RUN_UNITS`): \
         after {free} attempts that fail, it fails with `{}`",
        iterator.dataset,
        sizes::limit(),
        sizes::CODE_TOO_LARGE
    );
    Some(RunEventKind::MissionIssue {
        severity: IssueSeverity::Warning,
        category: "run_size".into(),
        message: message.into(),
        details: json!({"needed": needed, "most": most}),
    })
}

fn next_unlimited(def: &MissionDef, state: &RunState, engine: &TemplateEngine, now: Timestamp) -> Vec<Decision> {
    match state.status {
        MissionStatus::Running => {}
        MissionStatus::Completed => return launches(state),
        MissionStatus::Stopping | MissionStatus::Stopped | MissionStatus::Failed => return Vec::new(),
    }
    if state.sequence == 0 {
        return Vec::new();
    }
    if state.failure.is_some() {
        return after_failure(def, state, engine);
    }
    let mut decisions = Vec::new();
    for (task, task_state) in running_iterations(def, state) {
        let more = Iteration { def, run: state, task: task.0, iterator: task.1, state: task_state, engine, now }.next();
        let fails = more.iter().flat_map(|decision| &decision.events).any(is_task_failure);
        decisions.extend(more);
        if fails {
            return decisions; // nothing more is started; the siblings are cancelled when the failure is stored
        }
    }
    if state.must_finish_run() {
        return finish_early(def, state, engine, decisions);
    }
    let started = start_tasks(def, state, engine, &mut decisions);
    let is_idle = decisions.is_empty() && started == 0 && !state.tasks.values().any(|task| task.status.is_open());
    if is_idle {
        let can_end = left(def, state).is_empty();
        decisions.extend(last_tasks(def, state).filter(|_| can_end).map(|task| start_task(def, state, task, engine)));
        if decisions.is_empty() {
            decisions.push(end_of_run(def, state));
        }
    }
    decisions
}

fn is_task_failure(event: &NewEvent) -> bool {
    matches!(event.kind, RunEventKind::TaskFailed { .. })
}

impl RunState {
    /// Whether the budget of the run is used up and no further task starts.
    fn must_finish_run(&self) -> bool {
        self.budget_issues.iter().any(|issue| issue.is_breach && issue.finish_turn && issue.task.is_none())
    }
}

fn launches(state: &RunState) -> Vec<Decision> {
    let launch = |follow_up: &FollowUp| {
        let (run, mission) = (follow_up.run.clone(), follow_up.mission.clone());
        let started = NewEvent::of_run(RunEventKind::FollowUpStarted { run, mission });
        Decision { action: Action::Launch { follow_up: follow_up.clone() }, events: vec![started] }
    };
    state.follow_ups.iter().filter(|follow_up| !follow_up.started).map(launch).collect()
}

/// The tasks that run at the end and were not started since the run was started or resumed.
fn last_tasks<'a>(def: &'a MissionDef, state: &RunState) -> impl Iterator<Item = &'a TaskDef> {
    def.tasks.values().filter(|task| task.always && state.task_status(&task.name) == TaskStatus::Pending)
}

/// Cancels what runs, waits for it, runs the tasks that always run, and then ends the run.
fn after_failure(def: &MissionDef, state: &RunState, engine: &TemplateEngine) -> Vec<Decision> {
    let (last, open): (Vec<UnitId>, Vec<UnitId>) =
        state.open_units().into_iter().partition(|unit| def.tasks.get(&unit.task).is_some_and(|task| task.always));
    if !last.is_empty() {
        return Vec::new();
    }
    if !open.is_empty() {
        return open.into_iter().map(|unit| Decision { action: Action::Cancel { unit }, events: Vec::new() }).collect();
    }
    let last: Vec<Decision> = last_tasks(def, state).map(|task| start_task(def, state, task, engine)).collect();
    if !last.is_empty() {
        return last;
    }
    let mut events = all_cancelled(state);
    let failure = state.failure.clone();
    let (code, error) = failure.map(|failure| (failure.code, failure.error)).unwrap_or_default();
    events.push(NewEvent::of_run(RunEventKind::MissionFailed { code, error }));
    vec![Decision { action: Action::Finish { status: MissionStatus::Failed }, events }]
}

/// The budget of the run is used up: open units end their work, then the run fails unless nothing is left to do.
fn finish_early(
    def: &MissionDef,
    state: &RunState,
    engine: &TemplateEngine,
    mut decisions: Vec<Decision>,
) -> Vec<Decision> {
    if !decisions.is_empty() || state.tasks.values().any(|task| task.status.is_open()) {
        return decisions;
    }
    decisions.extend(last_tasks(def, state).map(|task| start_task(def, state, task, engine)));
    if !decisions.is_empty() {
        return decisions;
    }
    if left(def, state).is_empty() {
        return vec![end_of_run(def, state)];
    }
    let (code, error) = (budget::CODE_EXCEEDED.into(), "the budget of the run is used up".into());
    let events = vec![NewEvent::of_run(RunEventKind::MissionFailed { code, error })];
    vec![Decision { action: Action::Finish { status: MissionStatus::Failed }, events }]
}

fn running_iterations<'a>(
    def: &'a MissionDef,
    state: &'a RunState,
) -> impl Iterator<Item = ((&'a TaskDef, &'a IteratorDef), &'a TaskState)> {
    def.tasks.values().filter_map(|task| {
        let iterator = task.iterator.as_ref().filter(|iterator| iterator.parallel)?;
        // One that was started in another way, before the mission was changed, has a commander.
        let is_iteration =
            |task: &&TaskState| task.status.is_open() && task.total_items.is_some() && task.unit.is_none();
        let task_state = state.tasks.get(&task.name).filter(is_iteration)?;
        Some(((task, iterator), task_state))
    })
}

/// Whether a task that was not started may start now.
fn is_ready(def: &MissionDef, state: &RunState, active: &HashSet<&Arc<str>>, task: &TaskDef) -> bool {
    let task_state = state.tasks.get(&task.name);
    if task.always || task_state.is_some_and(|task| task.status != TaskStatus::Pending) {
        return false;
    }
    if state.entry.as_ref() == Some(&task.name) || task_state.is_some_and(|task| task.activated_by.is_some()) {
        return true;
    }
    // A run that enters in the middle has no results of the tasks before.
    let is_done = |name: &Arc<str>| !active.contains(name) || state.task_status(name) == TaskStatus::Completed;
    active.contains(&task.name)
        && state.entry.as_ref().is_none_or(|_| !task.depends_on.is_empty())
        && mission_graph::activator(def, &task.name).is_none()
        && task.depends_on.iter().all(is_done)
}

fn start_tasks(def: &MissionDef, state: &RunState, engine: &TemplateEngine, decisions: &mut Vec<Decision>) -> u32 {
    let active = graph::active_tasks(def, state.entry.as_deref());
    let open = state.tasks.values().filter(|task| task.status.is_open()).count();
    let free = usize::try_from(def.concurrency.max_tasks).unwrap_or(usize::MAX).saturating_sub(open);
    let mut started = 0;
    for task in def.tasks.values().filter(|task| is_ready(def, state, &active, task)).take(free) {
        decisions.push(start_task(def, state, task, engine));
        started += 1;
    }
    started
}

fn start_task(def: &MissionDef, state: &RunState, task: &TaskDef, engine: &TemplateEngine) -> Decision {
    let known = state.tasks.get(&task.name);
    let attempt = known.map_or(0, |task| task.attempts).saturating_add(1);
    let unit = UnitId::task(task.name.clone(), attempt).in_round(known.map_or(1, TaskState::round));
    let iterator = task.iterator.as_ref();
    let items = iterator.map_or(&[][..], |iterator| dataset::items(state, &iterator.dataset));
    let iteration_started = |iterator: &IteratorDef| {
        let total_items = u32::try_from(items.len()).unwrap_or(u32::MAX);
        let (dataset, parallel) = (iterator.dataset.clone(), iterator.parallel);
        NewEvent::of_unit(&unit, RunEventKind::TaskIterationStarted { dataset, total_items, parallel })
    };
    if let Some(iterator) = iterator.filter(|iterator| iterator.parallel) {
        let started = NewEvent::of_unit(&unit, RunEventKind::TaskStarted { objective: None, always: false });
        let mut events = vec![started, iteration_started(iterator)];
        // Before the first of them is worked on, and not after as many as fit.
        let needed = state.units.saturating_add(needed(def, state));
        let done = known.map_or(0, |task| task.count(TaskStatus::Completed));
        let open = u64::try_from(items.len()).unwrap_or(u64::MAX).saturating_sub(u64::from(done));
        let kind = match needed > sizes::limit() {
            true => Some(too_many_units(def, state, &task.name)),
            false => may_exceed(iterator, open, needed),
        };
        events.extend(kind.map(|kind| NewEvent::of_task(&task.name, kind)));
        return Decision::record(events);
    }
    let objective: Arc<str> = match objective::render(task, &state.inputs, None) {
        Ok(objective) => objective.into(),
        Err(error) => {
            let started =
                NewEvent::of_unit(&unit, RunEventKind::TaskStarted { objective: Some("".into()), always: task.always });
            return Decision::record(vec![started, failed(&unit, CODE_OBJECTIVE, &error.to_string())]);
        }
    };
    let started = RunEventKind::TaskStarted { objective: Some(objective.clone()), always: task.always };
    let mut events = vec![NewEvent::of_unit(&unit, started)];
    events.extend(iterator.map(iteration_started));
    // A router needs a commander even if there are no items: it decides what follows.
    let needs_commander = iterator.is_none() || !items.is_empty() || matches!(task.next, NextTasks::Router(_));
    if !needs_commander {
        events.push(NewEvent::of_unit(&unit, RunEventKind::TaskIterationCompleted { completed_count: 0 }));
        events.extend(completed(task, state, &Json::Array(Vec::new()), "0 of 0 items completed".into(), engine));
        return Decision::record(events);
    }
    Decision { action: Action::Start { unit, objective }, events }
}

/// The tasks that must still run.
fn left<'a>(def: &'a MissionDef, state: &RunState) -> Vec<&'a str> {
    let active = graph::active_tasks(def, state.entry.as_deref());
    let is_left = |task: &&TaskDef| {
        let may_stay = mission_graph::activator(def, &task.name).is_some()
            && state.entry.as_ref() != Some(&task.name)
            && state.tasks.get(&task.name).is_none_or(|task| task.activated_by.is_none());
        active.contains(&task.name)
            && !task.always
            && !may_stay
            && state.task_status(&task.name) != TaskStatus::Completed
    };
    def.tasks.values().filter(is_left).map(|task| &*task.name).collect()
}

fn end_of_run(def: &MissionDef, state: &RunState) -> Decision {
    let left = left(def, state);
    if left.is_empty() {
        let events = vec![NewEvent::of_run(RunEventKind::MissionCompleted {})];
        return Decision { action: Action::Finish { status: MissionStatus::Completed }, events };
    }
    let error = format!("these tasks can never start: {}", left.join(", ")).into();
    let events = vec![NewEvent::of_run(RunEventKind::MissionFailed { code: CODE_STUCK.into(), error })];
    Decision { action: Action::Finish { status: MissionStatus::Failed }, events }
}

/// A parallel iteration that runs.
struct Iteration<'a> {
    def: &'a MissionDef,
    run: &'a RunState,
    task: &'a TaskDef,
    iterator: &'a IteratorDef,
    state: &'a TaskState,
    engine: &'a TemplateEngine,
    now: Timestamp,
}

impl Iteration<'_> {
    fn next(&self) -> Vec<Decision> {
        let total = self.state.total_items.unwrap_or(0);
        if let Some(failed) = self.fatal_failure() {
            return vec![Decision::record(vec![self.task_failed(failed)])];
        }
        let mut decisions = Vec::new();
        let open = self.state.items.unfinished().filter(|(_, item)| item.status.is_open()).count();
        let free = self.limit().saturating_sub(open);
        if free > 0 {
            decisions.extend(self.startable(total).take(free).map(|index| self.start(index)));
        }
        // Items that a used-up budget keeps from starting count as failed.
        let is_cut = self.run.must_finish(&self.task.name);
        if decisions.is_empty() && open == 0 && (is_cut || self.all_are_over(total)) {
            decisions.push(Decision::record(self.end(total)));
        }
        decisions
    }

    /// Whether each item is completed or failed for the last time.
    fn all_are_over(&self, total: u32) -> bool {
        let items = &self.state.items;
        items.range(..total).count() == usize::try_from(total).unwrap_or(usize::MAX)
            && items.unfinished().filter(|(index, _)| *index < total).all(|(_, item)| self.is_final_failure(item))
    }

    fn is_final_failure(&self, item: &ItemState) -> bool {
        item.status == TaskStatus::Failed
            && (item.failures > self.iterator.max_retries || self.writes_forbid_retry(item))
    }

    /// Whether an attempt has changed something, or may have, and the mission does not say that it may be repeated all the same.
    fn writes_forbid_retry(&self, item: &ItemState) -> bool {
        !self.iterator.retry_after_writes && item.failures > 0 && item.earlier_writes.forbid_repetition()
    }

    /// The failure that ends the iteration while others still run.
    fn fatal_failure(&self) -> Option<u32> {
        let smoke = self.state.items.get(&0).filter(|_| self.iterator.smoke_test);
        if smoke.is_some_and(|item| self.is_final_failure(item)) {
            return Some(0);
        }
        (self.iterator.on_error == OnIterationError::FailFast).then(|| self.lowest_failure()).flatten()
    }

    fn lowest_failure(&self) -> Option<u32> {
        self.state.items.unfinished().find(|(_, item)| self.is_final_failure(item)).map(|(index, _)| index)
    }

    /// The items that may start now: retries first, then by index. An item whose time has not come holds no place; those after it in
    /// their order wait for it.
    fn startable(&self, total: u32) -> impl Iterator<Item = u32> {
        let retries = self.retries().filter(|index| self.start_at(*index).is_none());
        retries.chain(self.in_order(total).take_while(|index| self.start_at(*index).is_none()))
    }

    /// When the next item can start that waits for its time, if there is a place for it.
    fn next_wake(&self) -> Option<Timestamp> {
        let open = self.state.items.unfinished().filter(|(_, item)| item.status.is_open()).count();
        if self.fatal_failure().is_some() || self.limit() <= open {
            return None;
        }
        let total = self.state.total_items.unwrap_or(0);
        let in_order = self.in_order(total).find_map(|index| self.start_at(index));
        self.retries().filter_map(|index| self.start_at(index)).chain(in_order).min()
    }

    fn limit(&self) -> usize {
        usize::try_from(self.iterator.concurrency_limit.max(1)).unwrap_or(usize::MAX)
    }

    /// The items that get another attempt.
    fn retries(&self) -> impl Iterator<Item = u32> {
        let is_cut = self.run.must_finish(&self.task.name);
        let failed =
            self.state.items.unfinished().filter(move |(_, item)| !is_cut && item.status == TaskStatus::Failed);
        failed.filter(|(_, item)| !self.is_final_failure(item)).map(|(index, _)| index)
    }

    /// The items that were not started, or are to start again because the run was resumed, in their order.
    fn in_order(&self, total: u32) -> impl Iterator<Item = u32> {
        let items = &self.state.items;
        let smoke_passed =
            !self.iterator.smoke_test || items.get(&0).is_some_and(|item| item.status == TaskStatus::Completed);
        let last = match (self.run.must_finish(&self.task.name), smoke_passed) {
            (true, _) => 0,
            (false, true) => total,
            (false, false) => total.min(1),
        };
        let may_start = move |(index, item): &(u32, &ItemState)| {
            *index < last && matches!(item.status, TaskStatus::Pending | TaskStatus::Cancelled)
        };
        let resumed = items.unfinished().filter(may_start).map(|(index, _)| index);
        // Items start in their order, so that those without a state are the last ones.
        let first_new = items.last_key_value().map_or(0, |(index, _)| index.saturating_add(1));
        resumed.chain(first_new..last.max(first_new))
    }

    /// When an item can start, if not now.
    fn start_at(&self, index: u32) -> Option<Timestamp> {
        match self.state.items.get(&index).filter(|item| item.status == TaskStatus::Failed) {
            Some(item) => self.retry_at(item),
            None => self.delayed_start(index),
        }
    }

    fn start(&self, index: u32) -> Decision {
        let known = self.state.items.get(&index);
        let attempt = known.and_then(|item| item.unit.as_ref()).map_or(0, |unit| unit.attempt).saturating_add(1);
        let unit = UnitId::item(self.task.name.clone(), index, attempt).in_round(self.state.round());
        let failed_before = known.filter(|item| item.status == TaskStatus::Failed);
        let mut events = Vec::new();
        if let Some(item) = failed_before {
            let error = item.error.clone().unwrap_or_default();
            let max_retries = self.iterator.max_retries;
            events.push(NewEvent::of_unit(&unit, RunEventKind::IterationRetrying { max_retries, error }));
        }
        let item = dataset::item_with_all_fields(self.def, self.run, &self.iterator.dataset, index);
        let item_id = dataset::item_id(&item, index);
        let rendered = objective::render(self.task, &self.run.inputs, Some(&item));
        let objective: Arc<str> = rendered.as_deref().unwrap_or_default().into();
        let started = RunEventKind::IterationStarted { item_id, objective: Some(objective.clone()) };
        events.push(NewEvent::of_unit(&unit, started));
        if let Err(error) = rendered {
            events.push(failed(&unit, CODE_OBJECTIVE, &error.to_string()));
            return Decision::record(events);
        }
        Decision { action: Action::Start { unit, objective }, events }
    }

    /// `retry_delay` after the first failure, twice as long after the second, and so on.
    fn retry_at(&self, item: &ItemState) -> Option<Timestamp> {
        let factor = 1u32.checked_shl(item.failures.saturating_sub(1).min(31)).unwrap_or(u32::MAX);
        let delay = self.iterator.retry_delay.saturating_mul(factor);
        self.future(item.ended_at?, delay)
    }

    /// The first `concurrency_limit` items start one after the other, `start_delay` apart. After a smoke test the counting begins with its
    /// end.
    fn delayed_start(&self, index: u32) -> Option<Timestamp> {
        let smoke = u32::from(self.iterator.smoke_test);
        let position = index.checked_sub(smoke)?;
        let begin = match smoke {
            0 => self.state.started_at?,
            _ => self.state.items.get(&0).and_then(|item| item.ended_at)?,
        };
        let delay = self.iterator.start_delay.saturating_mul(position);
        let is_first_batch = position < self.iterator.concurrency_limit;
        is_first_batch.then(|| self.future(begin, delay)).flatten()
    }

    fn future(&self, from: Timestamp, delay: Duration) -> Option<Timestamp> {
        let micros = i64::try_from(delay.as_micros()).unwrap_or(i64::MAX);
        let at = Timestamp::from_micros(from.as_micros().saturating_add(micros));
        (at > self.now).then_some(at)
    }

    fn task_failed(&self, index: u32) -> NewEvent {
        let item = self.state.items.get(&index);
        let (mut error, mut code) = (self.failed_item(index), CODE_ITERATION_FAILED);
        if item.is_some_and(|item| item.failures <= self.iterator.max_retries) {
            code = CODE_NOT_RETRIED;
            error.push_str("; it is not retried after that");
        }
        let (code, error) = (code.into(), error.into());
        NewEvent::of_task(&self.task.name, RunEventKind::TaskFailed { code, error })
    }

    /// Which item failed, and why: `item 3 (k3) failed: bad page`.
    fn failed_item(&self, index: u32) -> String {
        let Some(item) = self.state.items.get(&index) else { return format!("item {index} was not started") };
        match &item.error {
            Some(error) => format!("item {index} ({}) failed: {error}", item.item_id),
            None => format!("item {index} ({}) was not completed", item.item_id),
        }
    }

    /// The summary of the iteration, which no commander writes. A failed item that has changed something says so.
    fn summary(&self, completed: u32, total: u32, failed: &[u32]) -> Arc<str> {
        let mut text = format!("{completed} of {total} items completed");
        let name = |index: &u32| match self.state.items.get(index).filter(|item| !item.earlier_writes.is_empty()) {
            Some(item) => format!("{index} ({})", item.earlier_writes.names_text()),
            None => index.to_string(),
        };
        if !failed.is_empty() {
            let shown: Vec<String> = failed.iter().take(20).map(name).collect();
            let more = failed.len().saturating_sub(shown.len());
            text.push_str(&format!("; failed: {}", shown.join(", ")));
            if more > 0 {
                text.push_str(&format!(" and {more} more"));
            }
        }
        text.into()
    }

    /// The events at the end of all iterations.
    fn end(&self, total: u32) -> Vec<NewEvent> {
        let completed = self.state.count(TaskStatus::Completed);
        let is_completed =
            |index: &u32| self.state.items.get(index).is_some_and(|item| item.status == TaskStatus::Completed);
        let failed: Vec<u32> = (0..total).filter(|index| !is_completed(index)).collect();
        let event = |kind| NewEvent::of_task(&self.task.name, kind);
        let share = if total == 0 { 1.0 } else { f64::from(completed) / f64::from(total) };
        let continues = self.iterator.on_error == OnIterationError::Continue && share >= self.iterator.min_success;
        if failed.is_empty() || continues {
            let mut events = vec![event(RunEventKind::TaskIterationCompleted { completed_count: completed })];
            let outputs = routes::outputs(self.state);
            events.extend(self::completed(
                self.task,
                self.run,
                &outputs,
                self.summary(completed, total, &failed),
                self.engine,
            ));
            return events;
        }
        if self.run.must_finish(&self.task.name) && self.lowest_failure().is_none() {
            let error = format!("the budget was used up when {completed} of {total} items were done").into();
            return vec![event(RunEventKind::TaskFailed { code: budget::CODE_EXCEEDED.into(), error })];
        }
        if self.iterator.on_error == OnIterationError::Continue {
            let (code, least) = (CODE_ITERATION_FAILED.into(), self.iterator.min_success);
            let first = self.failed_item(self.lowest_failure().or(failed.first().copied()).unwrap_or(0));
            let error =
                format!("only {completed} of {total} items succeeded; the least share is {least}; {first}").into();
            return vec![event(RunEventKind::TaskFailed { code, error })];
        }
        vec![self.task_failed(self.lowest_failure().unwrap_or(0))]
    }
}

/// The events at the end of a task that no commander ends: it is completed, or repeated if its condition does not hold.
fn completed(
    task: &TaskDef,
    run: &RunState,
    outputs: &Json,
    summary: Arc<str>,
    engine: &TemplateEngine,
) -> Vec<NewEvent> {
    let event = |kind| NewEvent::of_task(&task.name, kind);
    let failed = |code: &str, error: String| event(RunEventKind::TaskFailed { code: code.into(), error: error.into() });
    let issue = match rounds::after(task, run, outputs, &summary, None, engine) {
        Ok(RoundEnd::Complete(issue)) => issue,
        Ok(RoundEnd::Next(ended)) => return vec![event(ended)],
        Ok(RoundEnd::Failed { code, error }) => return vec![failed(code, error)],
        Err(error) => return vec![failed(rounds::CODE_CONDITION, error.to_string())],
    };
    let mut events: Vec<NewEvent> = issue.map(event).into_iter().collect();
    events.extend(send_to_events(task, event));
    events.push(event(RunEventKind::TaskCompleted { summary }));
    events
}
