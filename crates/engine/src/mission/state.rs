//! The state of a run: the fold of its events. The same events always give the same state.

use std::sync::Arc;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::{
    budget::BudgetIssue,
    event::{
        AssignmentOutcome, ChosenBy, ChosenTarget, CommanderAnswer, IssueSeverity, NewEvent, PersonQuestion,
        PreviousRun, RunEvent, RunEventKind,
    },
    inputs::NewRunOptions,
    items::Items,
    learnings::Learnings,
    unit::{AttemptStatus, Plan, UnitId, UnitState},
};
use crate::conversation::{Write, WriteState, Writes};
use crate::project::missions::HandOver;
use crate::time::Timestamp;
use crate::usage::{ModelUsage, Usage};

/// The error of work that was cancelled after it had changed something.
const CANCELLED: &str = "cancelled";

/// The status of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MissionStatus {
    /// It runs, or waits for people; see [`RunState::is_waiting`].
    #[default]
    Running,
    /// It is being stopped: nothing more is started.
    Stopping,
    /// It is stopped and can be resumed.
    Stopped,
    /// All tasks are completed.
    Completed,
    /// It failed; it can be resumed.
    Failed,
}

impl MissionStatus {
    /// Whether nothing happens in the run until it is resumed.
    pub fn has_ended(self) -> bool {
        matches!(self, Self::Stopped | Self::Completed | Self::Failed)
    }
}

/// The status of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskStatus {
    /// It was not started.
    #[default]
    Pending,
    /// It runs.
    Running,
    /// Its commander waits for answers of people.
    Blocked,
    /// It is completed.
    Completed,
    /// It failed.
    Failed,
    /// It was cancelled because another task failed.
    Cancelled,
}

impl TaskStatus {
    /// Whether it was started and has not ended.
    pub fn is_open(self) -> bool {
        matches!(self, Self::Running | Self::Blocked)
    }
}

/// What was chosen after a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChosenRoute {
    /// What was chosen.
    pub target: ChosenTarget,
    /// How.
    pub by: ChosenBy,
    /// The condition, in words or as an expression.
    pub condition: Arc<str>,
}

/// An output that does not count, because its attempt failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RejectedAttempt {
    /// The attempt.
    pub attempt: u32,
    /// Why it failed.
    pub error: Arc<str>,
    /// The output that it had submitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Json>,
}

/// One item of an iteration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ItemState {
    /// The id of the item.
    pub item_id: Arc<str>,
    /// Its status.
    pub status: TaskStatus,
    /// The accepted output; while a sequential commander works on the item, the one that was submitted last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Json>,
    /// What its commander reports.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub summary: Arc<str>,
    /// Why the last attempt failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Arc<str>>,
    /// Attempts that failed since the run was started or resumed.
    #[serde(default)]
    pub failures: u32,
    /// The latest unit of a parallel iteration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<UnitState>,
    /// The attempts that failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rejected: Vec<RejectedAttempt>,
    /// What attempts changed that ended without success.
    #[serde(default, skip_serializing_if = "Writes::is_empty")]
    pub earlier_writes: Writes,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
}

/// A round of a repeated task that has ended and was followed by another one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RoundState {
    /// What its commander reports.
    pub summary: Arc<str>,
    /// The output of a task without iterator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Json>,
    /// The items, for iterations.
    #[serde(default, skip_serializing_if = "no_items")]
    pub items: Items,
    /// The condition that did not hold.
    pub until: Arc<str>,
    /// The values that the condition read.
    pub values: Json,
}

fn no_items(items: &Items) -> bool {
    items.is_empty()
}

/// The state of a task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TaskState {
    /// Its status.
    pub status: TaskStatus,
    /// The number of the latest attempt of this round; 0 before the first.
    pub attempts: u32,
    /// Whether it runs at the end of every run, and again after the run was resumed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub always: bool,
    /// The rounds before this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rounds: Vec<RoundState>,
    /// The run from which it was taken over. Its sessions are stored there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copied_from: Option<Arc<str>>,
    /// The task whose router or `send_to` activated it first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activated_by: Option<Arc<str>>,
    /// What was chosen to follow it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<ChosenRoute>,
    /// The latest unit, unless the task iterates in parallel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<UnitState>,
    /// The items, for iterations, by their index in the dataset.
    #[serde(default, skip_serializing_if = "no_items")]
    pub items: Items,
    /// How many items the dataset had when the iteration began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_items: Option<u32>,
    /// What its commander reports to the tasks that follow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<Arc<str>>,
    /// The accepted output of a task without iterator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Json>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Arc<str>>,
    /// What units of the task changed that ended without success; those of parallel iterations are in its items.
    #[serde(default, skip_serializing_if = "Writes::is_empty")]
    pub earlier_writes: Writes,
    /// What its iterations learned.
    #[serde(default, skip_serializing_if = "Learnings::is_empty")]
    pub learnings: Learnings,
    /// Model calls of all its commanders and agents.
    #[serde(default, skip_serializing_if = "ModelUsage::is_empty")]
    pub usage: ModelUsage,
    /// When its latest attempt started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
}

impl TaskState {
    /// The number of the present round, from 1.
    pub fn round(&self) -> u32 {
        u32::try_from(self.rounds.len()).unwrap_or(u32::MAX).saturating_add(1)
    }
    /// The state of a unit, if it is the latest attempt of this round.
    pub fn unit(&self, id: &UnitId) -> Option<&UnitState> {
        if id.round != self.round() {
            return None;
        }
        let unit = match id.iteration {
            Some(index) => self.items.get(&index)?.unit.as_ref(),
            None => self.unit.as_ref(),
        };
        unit.filter(|unit| unit.attempt == id.attempt)
    }
    /// The index of the item that a sequential iteration fetches next; the number of items if none is left.
    pub fn next_index(&self) -> u32 {
        if let Some(current) = self.unit.as_ref().and_then(|unit| unit.current) {
            return current.saturating_add(1);
        }
        let total = self.total_items.unwrap_or(0);
        let is_done = |index: &u32| self.items.get(index).is_some_and(|item| item.status == TaskStatus::Completed);
        (0..total).find(|index| !is_done(index)).unwrap_or(total)
    }
    /// How many items have this status.
    pub fn count(&self, status: TaskStatus) -> u32 {
        let count = match status {
            TaskStatus::Completed => self.items.len().saturating_sub(self.items.unfinished().count()),
            _ => self.items.unfinished().filter(|(_, item)| item.status == status).count(),
        };
        u32::try_from(count).unwrap_or(u32::MAX)
    }
    /// The agents that completed an assignment of this task.
    pub fn agents(&self) -> Vec<&crate::ids::AgentName> {
        let units = self.unit.iter().chain(self.items.values().filter_map(|item| item.unit.as_ref()));
        let mut names = Vec::new();
        for (name, agent) in units.flat_map(|unit| &unit.agents) {
            if agent.completed > 0 && !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }
    fn unit_mut(&mut self, iteration: Option<u32>, attempt: Option<u32>) -> Option<&mut UnitState> {
        // An event of a sequential item has an index too, but the unit is that of the task.
        let of_item = iteration.and_then(|index| self.items.unit_mut(index));
        let unit = of_item.or(self.unit.as_mut())?;
        (attempt.is_none_or(|attempt| attempt == unit.attempt)).then_some(unit)
    }
}

/// The items of a dataset.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DatasetState {
    /// The items.
    pub items: Vec<Json>,
    /// Whether an iteration over it has begun, so that it cannot change any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub locked: bool,
}

/// A question to the commander of a completed task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CommanderQuestion {
    /// Its id in the run.
    pub id: Arc<str>,
    /// The task whose commander is asked.
    pub target: Arc<str>,
    /// The item, for iterations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// The question.
    pub question: Arc<str>,
    /// The task that asks.
    pub asked_by: Arc<str>,
    /// The item that asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_by_item: Option<u32>,
    /// The round of the task that asks.
    pub asked_by_round: u32,
    /// The attempt that asks.
    pub asked_by_attempt: u32,
    /// The answer, or why there is none; absent while it is being produced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<CommanderAnswer>,
}

impl CommanderQuestion {
    /// The unit that asks.
    pub fn asker(&self) -> UnitId {
        UnitId {
            task: self.asked_by.clone(),
            round: self.asked_by_round,
            iteration: self.asked_by_item,
            attempt: self.asked_by_attempt,
        }
    }
}

/// A question to a person.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HumanInput {
    /// The unit that asks.
    pub unit: UnitId,
    /// The question.
    #[serde(flatten)]
    pub question: PersonQuestion,
    /// Whether it is open.
    pub open: bool,
    /// The answer; absent while the question is open, and if it was closed without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Arc<str>>,
    /// Whether its time limit closed it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub timed_out: bool,
    /// Who answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub responder: Option<Arc<str>>,
}

/// A run of another mission that a router of this run chose.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FollowUp {
    /// The id of the new run, computed from the id of this one: `<run>/next`, then `<run>/next-2`.
    pub run: Arc<str>,
    /// The task that chose it.
    pub task: Arc<str>,
    /// The mission.
    pub mission: Arc<str>,
    /// The task to enter; the first ones if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<Arc<str>>,
    /// The inputs.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub inputs: Map<String, Json>,
    /// What it may read of this run.
    #[serde(default, skip_serializing_if = "HandOver::is_empty")]
    pub hand_over: HandOver,
    /// Whether it was started.
    #[serde(default)]
    pub started: bool,
}

/// Why a run or a task ended without success.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The code of the reason.
    pub code: Arc<str>,
    /// Why.
    pub error: Arc<str>,
}

/// The state of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunState {
    /// The number of the last event.
    pub sequence: u64,
    /// The id of the run.
    pub run: Arc<str>,
    /// The mission.
    pub mission: Arc<str>,
    /// Its status.
    pub status: MissionStatus,
    /// The inputs without the protected ones.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub inputs: Map<String, Json>,
    /// The task that was entered; the first ones if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<Arc<str>>,
    /// The run before this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<PreviousRun>,
    /// How many runs come before it in its chain.
    #[serde(default)]
    pub chain: u32,
    /// How many tasks its mission has.
    #[serde(default)]
    pub task_count: u32,
    /// The id of its chain: that of the first run.
    #[serde(default)]
    pub chain_id: Arc<str>,
    /// What it may read of the run before.
    #[serde(default, skip_serializing_if = "HandOver::is_empty")]
    pub hand_over: HandOver,
    /// The run whose mission and inputs it repeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rerun_of: Option<Arc<str>>,
    /// Whether tools that write are refused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// The tasks that were started or activated, by name.
    pub tasks: IndexMap<Arc<str>, TaskState>,
    /// How many units were started.
    #[serde(default)]
    pub units: u64,
    /// The datasets with items, by name.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub datasets: IndexMap<Arc<str>, DatasetState>,
    /// The questions to commanders, in the order in which they were asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commander_questions: Vec<CommanderQuestion>,
    /// The questions to people, by id.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub human_inputs: IndexMap<Arc<str>, HumanInput>,
    /// The runs that follow this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub follow_ups: Vec<FollowUp>,
    /// Model calls of all commanders and agents.
    #[serde(default, skip_serializing_if = "ModelUsage::is_empty")]
    pub usage: ModelUsage,
    /// Budgets whose warning or breach is recorded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub budget_issues: Vec<BudgetIssue>,
    /// The first failure since the run was started or resumed. Nothing more is started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// When it started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
}

impl RunState {
    /// The state after these events.
    pub fn from_events<'a>(events: impl IntoIterator<Item = &'a RunEvent>) -> Self {
        let mut state = Self::default();
        for event in events {
            state.apply(event);
        }
        state
    }

    /// How a run of another mission is started after this one, which the task has chosen.
    pub fn next_run(&self, task: Arc<str>, entry: Option<Arc<str>>, hand_over: HandOver) -> NewRunOptions {
        NewRunOptions {
            entry,
            previous: Some(PreviousRun { run: self.run.clone(), task }),
            chain: self.chain.saturating_add(1),
            chain_id: Some(self.chain_id.clone()),
            hand_over,
            dry_run: self.dry_run,
            ..NewRunOptions::default()
        }
    }

    /// The state of a task; that of a task that was not started if nothing is known about it.
    pub fn task_status(&self, task: &str) -> TaskStatus {
        self.tasks.get(task).map_or(TaskStatus::Pending, |task| task.status)
    }

    /// The units that were started and have not ended.
    pub fn open_units(&self) -> Vec<UnitId> {
        let mut units = Vec::new();
        for (name, task) in &self.tasks {
            if let Some(unit) = task.unit.as_ref().filter(|unit| unit.status.is_open()) {
                units.push(UnitId::task(name.clone(), unit.attempt).in_round(task.round()));
            }
            for (index, item) in task.items.unfinished() {
                if let Some(unit) = item.unit.as_ref().filter(|unit| unit.status.is_open()) {
                    units.push(UnitId::item(name.clone(), index, unit.attempt).in_round(task.round()));
                }
            }
        }
        units
    }

    /// Whether the run goes on only when people have answered: questions are open, and every open unit waits for one.
    pub fn is_waiting(&self) -> bool {
        let units = self.open_units();
        let waits = |unit: &UnitId| {
            let own = self.human_inputs.values().any(|input| input.open && input.unit == *unit);
            own || self.budget_question(&unit.task).is_some()
        };
        self.status == MissionStatus::Running && !units.is_empty() && units.iter().all(waits)
    }

    /// Whether open loops of this task get one more turn to end their work, because a budget is used up.
    pub fn must_finish(&self, task: &str) -> bool {
        let concerns = |issue: &&BudgetIssue| issue.task.as_deref().is_none_or(|name| name == task);
        self.budget_issues.iter().filter(concerns).any(|issue| issue.is_breach && issue.finish_turn)
    }

    /// Applies the next event. An event that was applied already changes nothing.
    pub fn apply(&mut self, event: &RunEvent) {
        if event.sequence <= self.sequence {
            return;
        }
        self.sequence = event.sequence;
        let NewEvent { task, round, iteration, attempt, kind } = &event.event;
        // An item of a sequential iteration, and a parallel iteration as a whole, have no unit and no objective.
        if let RunEventKind::TaskStarted { objective: Some(_), .. }
        | RunEventKind::IterationStarted { objective: Some(_), .. } = kind
        {
            self.units = self.units.saturating_add(1);
        }
        match task {
            None => self.apply_to_run(kind, event.at),
            Some(name) => {
                let unit = UnitId {
                    task: name.clone(),
                    round: round.unwrap_or(1),
                    iteration: *iteration,
                    attempt: attempt.unwrap_or(1),
                };
                self.apply_to_shared(unit, kind);
                let task = self.tasks.entry(name.clone()).or_default();
                // A commander of an earlier round may report what it used after its round has ended.
                if attempt.is_some() && round.unwrap_or(1) != task.round() {
                    if let RunEventKind::SessionTurn { usage, .. } = kind {
                        task.add_usage(*usage);
                    }
                    return;
                }
                apply_to_task(task, *iteration, attempt.unwrap_or(1), kind, event.at);
                if let (RunEventKind::TaskFailed { code, .. }, Some(error)) = (kind, &task.error) {
                    let error: Arc<str> = format!("task {name} failed: {error}").into();
                    self.failure.get_or_insert_with(|| Failure { code: code.clone(), error });
                }
                if matches!(kind, RunEventKind::TaskCompleted { .. }) {
                    self.activate_targets(name);
                }
            }
        }
    }

    fn apply_to_run(&mut self, kind: &RunEventKind, at: Timestamp) {
        match kind {
            RunEventKind::MissionStarted {
                mission,
                run,
                task_count,
                inputs,
                datasets,
                entry,
                previous,
                chain,
                chain_id,
                hand_over,
                rerun_of,
                dry_run,
                ..
            } => {
                self.task_count = *task_count;
                self.run = run.clone();
                self.mission = mission.clone();
                self.inputs = inputs.clone();
                self.entry = entry.clone();
                self.previous = previous.clone();
                self.chain = *chain;
                self.chain_id = chain_id.clone().unwrap_or_else(|| run.clone());
                self.hand_over = *hand_over;
                self.rerun_of = rerun_of.clone();
                self.dry_run = *dry_run;
                self.started_at = Some(at);
                for (name, items) in datasets {
                    let dataset = DatasetState { items: items.clone(), locked: false };
                    self.datasets.insert(name.clone(), dataset);
                }
            }
            RunEventKind::MissionCompleted {} => self.end(MissionStatus::Completed, at),
            RunEventKind::MissionFailed { code, error } => {
                self.failure.get_or_insert_with(|| Failure { code: code.clone(), error: error.clone() });
                self.end(MissionStatus::Failed, at);
            }
            RunEventKind::MissionStopping { .. } => self.status = MissionStatus::Stopping,
            RunEventKind::MissionStopped {} => self.end(MissionStatus::Stopped, at),
            RunEventKind::MissionResumed {} => self.resume(),
            RunEventKind::FollowUpStarted { run, .. } => {
                if let Some(follow_up) = self.follow_ups.iter_mut().find(|follow_up| follow_up.run == *run) {
                    follow_up.started = true;
                }
            }
            RunEventKind::MissionIssue { .. } => self.apply_issue(kind),
            RunEventKind::HumanInputResolved { .. } => self.resolve(kind),
            RunEventKind::SessionTurn { usage, .. } => self.usage += ModelUsage::single(*usage),
            RunEventKind::DatasetItemsSet { dataset, items, append } => self.set_items(dataset, items, *append),
            RunEventKind::CommanderQuestionAnswered { question_id, answer } => {
                self.answer_commander(question_id, answer);
            }
            _ => {}
        }
    }

    /// What an event of a task changes outside the state of the task.
    fn apply_to_shared(&mut self, unit: UnitId, kind: &RunEventKind) {
        let (task, iteration) = (&unit.task, unit.iteration);
        match kind {
            RunEventKind::TaskCopied { run, state, dataset } => {
                // Parsed here, because serde cannot read maps with numbers as keys inside a tagged value.
                let Ok(state) = serde_json::from_value::<TaskState>(state.clone()) else { return };
                if let Some(dataset) = dataset {
                    self.datasets.entry(dataset.clone()).or_default().locked = true;
                }
                let known = self.tasks.entry(task.clone()).or_default();
                let status = state.status;
                if known.copied_from.is_some() {
                    known.items.extend(state.items);
                } else {
                    let activated_by = known.activated_by.take().or_else(|| state.activated_by.clone());
                    *known = TaskState { copied_from: Some(run.clone()), activated_by, ..state };
                }
                if status == TaskStatus::Completed {
                    self.activate_targets(&unit.task.clone());
                }
            }
            RunEventKind::MissionIssue { .. } => self.apply_issue(kind),
            RunEventKind::SessionTurn { usage, .. } => self.usage += ModelUsage::single(*usage),
            RunEventKind::DatasetItemsSet { dataset, items, append } => self.set_items(dataset, items, *append),
            RunEventKind::TaskIterationStarted { dataset, .. } => {
                self.datasets.entry(dataset.clone()).or_default().locked = true;
            }
            RunEventKind::CommanderQuestionAsked { question_id, target, index, question }
                if !self.commander_questions.iter().any(|known| known.id == *question_id) =>
            {
                self.commander_questions.push(CommanderQuestion {
                    id: question_id.clone(),
                    target: target.clone(),
                    index: *index,
                    question: question.clone(),
                    asked_by: task.clone(),
                    asked_by_item: iteration,
                    asked_by_round: unit.round,
                    asked_by_attempt: unit.attempt,
                    answer: None,
                });
            }
            RunEventKind::CommanderQuestionAnswered { question_id, answer } => {
                self.answer_commander(question_id, answer);
            }
            RunEventKind::HumanInputRequested { question_id, question } => {
                let input = HumanInput {
                    unit,
                    question: question.clone(),
                    open: true,
                    answer: None,
                    timed_out: false,
                    responder: None,
                };
                self.human_inputs.insert(question_id.clone(), input);
            }
            RunEventKind::HumanInputResolved { .. } => self.resolve(kind),
            _ => {}
        }
    }

    fn apply_issue(&mut self, kind: &RunEventKind) {
        let RunEventKind::MissionIssue { severity, category, message, details } = kind else { return };
        if let Some(issue) = BudgetIssue::from_details(category, details) {
            if issue.is_breach && *severity == IssueSeverity::Fatal {
                let failure = Failure { code: super::budget::CODE_EXCEEDED.into(), error: message.clone() };
                self.failure.get_or_insert(failure);
            }
            self.budget_issues.push(issue);
        }
    }

    fn set_items(&mut self, dataset: &Arc<str>, items: &[Json], append: bool) {
        let dataset = self.datasets.entry(dataset.clone()).or_default();
        if dataset.locked {
            return;
        }
        if !append {
            dataset.items.clear();
        }
        dataset.items.extend_from_slice(items);
    }

    fn answer_commander(&mut self, id: &str, answer: &CommanderAnswer) {
        if let Some(question) = self.commander_questions.iter_mut().find(|question| &*question.id == id) {
            question.answer.get_or_insert_with(|| answer.clone());
        }
    }

    fn resolve(&mut self, kind: &RunEventKind) {
        let RunEventKind::HumanInputResolved { question_id, answer, timed_out, responder } = kind else { return };
        let Some(input) = self.human_inputs.get_mut(question_id).filter(|input| input.open) else { return };
        input.open = false;
        input.answer = answer.clone();
        input.timed_out = *timed_out;
        input.responder = responder.clone();
        let unit = input.unit.clone();
        // A blocked unit goes on when its last question is answered.
        let Some(task) = self.tasks.get_mut(&unit.task) else { return };
        let is_present = unit.round == task.round();
        let Some(state) = task.unit_mut(unit.iteration, Some(unit.attempt)).filter(|_| is_present) else { return };
        if state.status != AttemptStatus::Blocked {
            return;
        }
        state.blocked_on.retain(|id| id != question_id);
        if state.blocked_on.is_empty() {
            state.status = AttemptStatus::Running;
            match unit.iteration.filter(|index| task.items.contains_key(index)) {
                Some(index) => task.items.change(index, |item| item.status = TaskStatus::Running),
                None => task.status = TaskStatus::Running,
            }
        }
    }

    fn end(&mut self, status: MissionStatus, at: Timestamp) {
        self.status = status;
        self.ended_at = Some(at);
        if status != MissionStatus::Stopped {
            for input in self.human_inputs.values_mut() {
                input.open = false;
            }
        }
    }

    fn resume(&mut self) {
        self.status = MissionStatus::Running;
        self.ended_at = None;
        self.failure = None;
        // A budget that is still used up is recorded again.
        self.budget_issues.retain(|issue| issue.outlasts_the_end(&self.human_inputs));
        for task in self.tasks.values_mut() {
            task.resume();
        }
    }

    /// The first activation of a task counts; the runs of other missions are collected.
    fn activate_targets(&mut self, name: &Arc<str>) {
        let routes = self.tasks.get(name).map(|task| task.routes.clone()).unwrap_or_default();
        for route in routes {
            match route.target {
                ChosenTarget::None => {}
                ChosenTarget::Task(target) => {
                    self.tasks.entry(target).or_default().activated_by.get_or_insert_with(|| name.clone());
                }
                ChosenTarget::Mission { name: mission, entry, inputs, hand_over } => {
                    let run = match self.follow_ups.len() {
                        0 => format!("{}/next", self.run),
                        others => format!("{}/next-{}", self.run, others + 1),
                    };
                    let (run, task) = (run.into(), name.clone());
                    self.follow_ups.push(FollowUp { run, task, mission, entry, inputs, hand_over, started: false });
                }
            }
        }
    }
}

impl RunState {
    /// What earlier attempts of the work of a unit changed that ended without success.
    pub fn earlier_writes(&self, unit: &UnitId) -> Option<&Writes> {
        let task = self.tasks.get(&unit.task)?;
        Some(match unit.iteration {
            Some(index) => &task.items.get(&index)?.earlier_writes,
            None => &task.earlier_writes,
        })
    }
}

impl TaskState {
    fn end(&mut self, status: TaskStatus, at: Timestamp) {
        self.status = status;
        self.ended_at = Some(at);
    }

    /// Ends it without success; what its unit has changed is kept for the next attempt.
    fn stop(&mut self, status: TaskStatus, at: Timestamp) {
        self.end(status, at);
        let ended = match status {
            TaskStatus::Failed => AttemptStatus::Failed,
            _ => AttemptStatus::Cancelled,
        };
        if let Some(unit) = &mut self.unit {
            self.earlier_writes.merge(&unit.end(ended));
        }
    }

    /// A failed or cancelled task can be started again; its completed items and submitted rows stay.
    fn resume(&mut self) {
        let ended_at_end = self.always && self.status == TaskStatus::Completed;
        if ended_at_end || matches!(self.status, TaskStatus::Failed | TaskStatus::Cancelled) {
            self.start_again();
        }
    }

    /// The task is to run again, without the items that are completed.
    pub(super) fn start_again(&mut self) {
        self.status = TaskStatus::Pending;
        (self.error, self.ended_at) = (None, None);
        let current = self.unit.as_ref().and_then(|unit| unit.current);
        let is_parallel = self.unit.is_none();
        self.items.change_unfinished(|index, item| {
            if !is_parallel && current == Some(index) && item.output.is_some() {
                item.status = TaskStatus::Completed; // its output was accepted; only the step to the next item is missing
                return;
            }
            item.status = TaskStatus::Pending;
            item.failures = 0;
            if is_parallel {
                item.output = None;
            }
        });
        if let Some(unit) = &mut self.unit {
            unit.current = None;
        }
    }
}

fn apply_to_task(task: &mut TaskState, iteration: Option<u32>, attempt: u32, kind: &RunEventKind, at: Timestamp) {
    match kind {
        RunEventKind::TaskStarted { objective, always } => {
            task.always = *always;
            task.attempts = attempt.max(task.attempts.saturating_add(1));
            task.status = TaskStatus::Running;
            task.started_at = Some(at);
            task.ended_at = None;
            task.routes.clear();
            // Parallel iterations have no objective of the whole task, and no unit of it.
            task.unit = objective.is_some().then(|| UnitState::new(task.attempts));
            task.total_items = None;
        }
        RunEventKind::TaskIterationStarted { total_items, .. } => task.total_items = Some(*total_items),
        RunEventKind::TaskCompleted { summary } => {
            task.summary = Some(summary.clone());
            task.end(TaskStatus::Completed, at);
            if let Some(unit) = &mut task.unit {
                unit.status = AttemptStatus::Completed;
                unit.current = None;
                task.output = unit.output.take();
            }
        }
        RunEventKind::TaskRoundCompleted { summary, until, values, learnings } => {
            if let Some(learnings) = learnings {
                task.learnings.merge(learnings);
            }
            task.rounds.push(RoundState {
                summary: summary.clone(),
                output: task.unit.take().and_then(|unit| unit.output),
                items: std::mem::take(&mut task.items),
                until: until.clone(),
                values: values.clone(),
            });
            task.status = TaskStatus::Pending;
            task.attempts = 0;
            task.total_items = None;
        }
        RunEventKind::TaskFailed { error, .. } => {
            task.stop(TaskStatus::Failed, at);
            task.error = Some(task.earlier_writes.after(error));
        }
        RunEventKind::TaskCancelled {} => {
            task.stop(TaskStatus::Cancelled, at);
            task.error = (!task.earlier_writes.is_empty()).then(|| task.earlier_writes.after(CANCELLED));
        }
        RunEventKind::RouteChosen { target, by, condition, .. } => {
            if *by != ChosenBy::SendTo {
                task.routes.clear();
            }
            let route = ChosenRoute { target: target.clone(), by: *by, condition: condition.clone() };
            if !task.routes.contains(&route) {
                task.routes.push(route);
            }
        }
        RunEventKind::SessionTurn { usage, .. } => task.add_usage(*usage),
        _ => apply_to_unit(task, iteration, attempt, kind, at),
    }
}

impl TaskState {
    fn add_usage(&mut self, usage: Usage) {
        self.usage += ModelUsage::single(usage);
    }
}

fn apply_to_unit(task: &mut TaskState, iteration: Option<u32>, attempt: u32, kind: &RunEventKind, at: Timestamp) {
    match (kind, iteration) {
        (RunEventKind::IterationStarted { item_id, .. }, Some(index)) => {
            task.items.change_or_add(index, |item| {
                item.item_id = item_id.clone();
                item.status = TaskStatus::Running;
                item.ended_at = None;
                match &mut task.unit {
                    None => item.unit = Some(UnitState::new(attempt)),
                    Some(unit) => {
                        unit.current = Some(index);
                        unit.plan = None;
                    }
                }
            });
        }
        (RunEventKind::IterationCompleted { summary, learnings }, Some(index)) => {
            task.items.change(index, |item| {
                item.status = TaskStatus::Completed;
                item.summary = summary.clone();
                item.error = None;
                item.ended_at = Some(at);
                if let Some(unit) = &mut item.unit {
                    unit.status = AttemptStatus::Completed;
                    item.output = unit.output.take();
                    unit.plan = None;
                }
            });
            if let Some(learnings) = learnings {
                task.learnings.merge(learnings);
            }
        }
        (RunEventKind::IterationFailed { error, .. }, Some(index)) => {
            task.items.change(index, |item| {
                item.status = TaskStatus::Failed;
                item.failures = item.failures.saturating_add(1);
                item.ended_at = Some(at);
                if let Some(unit) = &mut item.unit {
                    let output = unit.output.take();
                    item.earlier_writes.merge(&unit.end(AttemptStatus::Failed));
                    item.rejected.push(RejectedAttempt { attempt: unit.attempt, error: error.clone(), output });
                }
                item.error = Some(item.earlier_writes.after(error));
            });
        }
        (RunEventKind::IterationCancelled {}, Some(index)) => {
            task.items.change(index, |item| {
                item.status = TaskStatus::Cancelled;
                item.ended_at = Some(at);
                if let Some(unit) = &mut item.unit {
                    unit.output = None;
                    item.earlier_writes.merge(&unit.end(AttemptStatus::Cancelled));
                }
                item.error = (!item.earlier_writes.is_empty()).then(|| item.earlier_writes.after(CANCELLED));
            });
        }
        (RunEventKind::OutputSubmitted { output }, Some(index)) if task.unit.is_some() => {
            task.items.change(index, |item| {
                item.output = Some(output.clone());
            });
        }
        (RunEventKind::TaskBlocked { questions, .. }, _) => {
            if let Some(unit) = task.unit_mut(iteration, Some(attempt)) {
                unit.status = AttemptStatus::Blocked;
                unit.blocked_on.clone_from(questions);
                let has_unit = |index: &u32| task.items.get(index).is_some_and(|item| item.unit.is_some());
                match iteration.filter(has_unit) {
                    Some(index) => task.items.change(index, |item| item.status = TaskStatus::Blocked),
                    None => task.status = TaskStatus::Blocked,
                }
            }
        }
        _ => {
            if let Some(unit) = task.unit_mut(iteration, Some(attempt)) {
                apply_to_session(unit, kind);
            }
        }
    }
}

/// What an event changes in the state of one unit.
fn apply_to_session(unit: &mut UnitState, kind: &RunEventKind) {
    match kind {
        RunEventKind::SubtasksSet { subtasks } => {
            unit.plan = Some(Plan { subtasks: subtasks.clone(), completed: 0 });
            unit.planned = true;
        }
        RunEventKind::SubtaskCompleted { index } => {
            if let Some(plan) = &mut unit.plan {
                plan.completed = index.saturating_add(1).min(plan.total());
            }
        }
        RunEventKind::OutputSubmitted { output } => unit.output = Some(output.clone()),
        RunEventKind::AgentStarted { agent, .. } => {
            let state = unit.agents.entry(agent.clone()).or_default();
            (state.question, state.running) = (None, true);
        }
        RunEventKind::AgentCompleted { agent, outcome, question } => {
            let state = unit.agents.entry(agent.clone()).or_default();
            state.running = false;
            match outcome {
                AssignmentOutcome::Answered => state.completed = state.completed.saturating_add(1),
                AssignmentOutcome::Asked => state.question.clone_from(question),
                _ => {}
            }
        }
        kind => add_call(&mut unit.open_writes, &mut unit.writes, kind),
    }
}

/// The calls in these events that changed something, and those of which nobody knows, because they have no end.
pub fn writes<'e>(events: impl IntoIterator<Item = &'e RunEvent>) -> Writes {
    let (mut open, mut writes) = (IndexMap::new(), Writes::default());
    events.into_iter().for_each(|event| add_call(&mut open, &mut writes, &event.event.kind));
    open.into_values().for_each(|write| writes.add(write, WriteState::InDoubt));
    writes
}

/// Adds what the event of a call says: that a call which changes something has begun, or how one of those in `open` has ended.
fn add_call(open: &mut IndexMap<Arc<str>, Write>, writes: &mut Writes, kind: &RunEventKind) {
    match kind {
        RunEventKind::ToolCalled { entity, call, tool, input, effect: Some(effect) } => {
            let write = Write { by: Some(entity.clone()), ..Write::new(tool.clone(), input).with_effect(effect) };
            open.insert(call.clone(), write);
        }
        RunEventKind::ToolCompleted { call, failed, unknown, result, .. } => {
            let Some(write) = open.shift_remove(call) else { return };
            match (failed, unknown) {
                (_, true) => writes.add(write, WriteState::InDoubt),
                (false, false) => writes.add(write.with_result(result), WriteState::Done),
                (true, false) => {}
            }
        }
        _ => {}
    }
}
