//! A unit of work of a run, and the view of it that tools and the scheduler use.

use std::{fmt, sync::Arc};

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::state::{ItemState, RunState, TaskState};
use crate::{
    conversation::{Write, WriteState, Writes},
    ids::AgentName,
    project::missions::{IteratorDef, MissionDef, TaskDef},
};

/// One unit of work: what one commander does. A task without iterator and a sequential iteration are one unit; a parallel iteration has
/// one unit for each item. Each round of a repeated task and each attempt is a unit of its own, with a session of its own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct UnitId {
    /// The task.
    pub task: Arc<str>,
    /// The round of a repeated task, from 1.
    #[serde(default = "first", skip_serializing_if = "is_first")]
    pub round: u32,
    /// The index of the item, for parallel iterations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iteration: Option<u32>,
    /// The number of the attempt, from 1.
    pub attempt: u32,
}

fn first() -> u32 {
    1
}

fn is_first(round: &u32) -> bool {
    *round == 1
}

impl UnitId {
    /// A unit of a task without parallel iterations, in its first round.
    pub fn task(task: impl Into<Arc<str>>, attempt: u32) -> Self {
        Self { task: task.into(), round: 1, iteration: None, attempt }
    }
    /// A unit of one item of a parallel iteration, in the first round.
    pub fn item(task: impl Into<Arc<str>>, index: u32, attempt: u32) -> Self {
        Self { iteration: Some(index), ..Self::task(task, attempt) }
    }
    /// The same unit in another round.
    pub fn in_round(self, round: u32) -> Self {
        Self { round, ..self }
    }
}

/// `write`, `read[3]`; with the number of a later round `write(2)`, of a later attempt `read[3].2`, of both `write(2).3`.
impl fmt::Display for UnitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.task)?;
        if self.round > 1 {
            write!(f, "({})", self.round)?;
        }
        if let Some(index) = self.iteration {
            write!(f, "[{index}]")?;
        }
        if self.attempt > 1 {
            write!(f, ".{}", self.attempt)?;
        }
        Ok(())
    }
}

/// The state of one unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptStatus {
    /// It was started and has not ended.
    #[default]
    Running,
    /// Its commander cannot go on until people have answered questions.
    Blocked,
    /// It ended with success.
    Completed,
    /// It ended without success.
    Failed,
    /// It was cancelled because another part of the run failed.
    Cancelled,
}

impl AttemptStatus {
    /// Whether the unit has not ended.
    pub fn is_open(self) -> bool {
        matches!(self, Self::Running | Self::Blocked)
    }
}

/// What a commander has done so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UnitState {
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// Its status.
    pub status: AttemptStatus,
    /// Whether subtasks were planned, at least for one item.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub planned: bool,
    /// The plan: of the whole unit, or of the current item of a sequential iteration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<Plan>,
    /// The item that a sequential iteration works on: its index in the dataset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<u32>,
    /// The output that was submitted last; for a sequential iteration the outputs are in [`TaskState::items`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Json>,
    /// The agents that were called, in the order of their first call.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub agents: IndexMap<AgentName, AgentState>,
    /// The questions that must be answered before a blocked unit goes on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocked_on: Vec<Arc<str>>,
    /// What its calls that ended have changed.
    #[serde(default, skip_serializing_if = "Writes::is_empty")]
    pub writes: Writes,
    /// Calls in progress that change something, by their ids.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub open_writes: IndexMap<Arc<str>, Write>,
}

impl UnitState {
    /// The state of a new unit.
    pub fn new(attempt: u32) -> Self {
        Self { attempt, ..Self::default() }
    }
    /// Ends it without success. Returns what it has changed.
    pub(super) fn end(&mut self, status: AttemptStatus) -> Writes {
        self.status = status;
        let writes = self.all_writes();
        (self.writes, self.open_writes) = Default::default();
        writes
    }
    /// What it has changed; calls in progress are in doubt.
    pub fn all_writes(&self) -> Writes {
        let mut writes = self.writes.clone();
        self.open_writes.values().for_each(|write| writes.add(write.clone(), WriteState::InDoubt));
        writes
    }
}

/// What is known about an agent of one commander.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentState {
    /// How many of its assignments are completed.
    pub completed: u32,
    /// The question that it put to the commander and that is not answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<Arc<str>>,
    /// Whether it works on an assignment.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub running: bool,
}

/// The subtasks of a commander.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The titles, in their order.
    pub subtasks: Vec<Arc<str>>,
    /// How many of them are completed, from the first on.
    pub completed: u32,
}

impl Plan {
    /// How many subtasks there are.
    pub fn total(&self) -> u32 {
        u32::try_from(self.subtasks.len()).unwrap_or(u32::MAX)
    }
    /// How many are not completed.
    pub fn open(&self) -> u32 {
        self.total().saturating_sub(self.completed)
    }
    /// The status of the subtask with this index.
    pub fn status(&self, index: u32) -> &'static str {
        match index.cmp(&self.completed) {
            std::cmp::Ordering::Less => "completed",
            std::cmp::Ordering::Equal => "in_progress",
            std::cmp::Ordering::Greater => "pending",
        }
    }
}

/// One unit with the definitions and states it belongs to.
#[derive(Clone, Copy, Debug)]
pub struct UnitView<'a> {
    /// The mission.
    pub def: &'a MissionDef,
    /// The definition of the task.
    pub task: &'a TaskDef,
    /// The run.
    pub run: &'a RunState,
    /// The state of the task.
    pub task_state: &'a TaskState,
    /// The id.
    pub id: &'a UnitId,
    /// The state of the unit.
    pub state: &'a UnitState,
}

impl<'a> UnitView<'a> {
    /// The view of a unit; `None` if the run has no such unit, or if a later attempt has replaced it.
    pub fn new(def: &'a MissionDef, run: &'a RunState, id: &'a UnitId) -> Option<Self> {
        let (task, task_state) = (def.tasks.get(&id.task)?, run.tasks.get(&id.task)?);
        let state = task_state.unit(id)?;
        Some(Self { def, task, run, task_state, id, state })
    }
    /// The iterator, if this unit works through a dataset item by item.
    pub fn sequential(&self) -> Option<&'a IteratorDef> {
        self.task.iterator.as_ref().filter(|iterator| !iterator.parallel)
    }
    /// The items of the dataset of a sequential iteration.
    pub fn dataset_items(&self) -> &'a [Json] {
        let dataset = self.sequential().and_then(|iterator| self.run.datasets.get(&iterator.dataset));
        dataset.map_or(&[], |dataset| &dataset.items)
    }
    /// The item that this unit works on: that of a parallel iteration, or the current one of a sequential one.
    pub fn item(&self) -> Option<(u32, &'a ItemState)> {
        let index = self.id.iteration.or(self.state.current)?;
        Some((index, self.task_state.items.get(&index)?))
    }
    /// The index of the item that `dataset_next` returns; the number of items if none is left.
    pub fn next_index(&self) -> u32 {
        self.task_state.next_index()
    }
    /// Whether an output was submitted for the task, or for the current item of a sequential iteration.
    pub fn has_output(&self) -> bool {
        match self.sequential() {
            Some(_) => self.item().is_some_and(|(_, item)| item.output.is_some()),
            None => self.state.output.is_some(),
        }
    }
    /// Whether other tasks may read the summary: one depends on this task, or follows it.
    pub fn has_descendants(&self) -> bool {
        let follows = !crate::project::mission_graph::targets(self.task).is_empty();
        follows || self.def.tasks.values().any(|task| task.depends_on.contains(&self.id.task))
    }
}
