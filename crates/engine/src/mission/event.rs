//! The events of a run: the only record of what happened in it. [`super::state::RunState`] is computed from them.

use std::sync::Arc;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::{learnings::Learnings, unit::UnitId};
use crate::project::missions::HandOver;
use crate::usage::Usage;
use crate::{ids::AgentName, time::Timestamp};

/// A stored event of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunEvent {
    /// Its number in the run, from 1, without gaps.
    pub sequence: u64,
    /// When it was recorded: seconds since 1970-01-01 00:00 UTC, with a fraction.
    pub at: Timestamp,
    /// What happened, and where.
    #[serde(flatten)]
    pub event: NewEvent,
}

/// An event without number and time, as tools and the scheduler produce it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NewEvent {
    /// The task, unless it concerns the whole run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<Arc<str>>,
    /// The round of a repeated task after the first, for events of a unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round: Option<u32>,
    /// The index of the item, for iterations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iteration: Option<u32>,
    /// The attempt, for events of a unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// What happened.
    #[serde(flatten)]
    pub kind: RunEventKind,
}

impl NewEvent {
    /// An event of the whole run.
    pub fn of_run(kind: RunEventKind) -> Self {
        Self { task: None, round: None, iteration: None, attempt: None, kind }
    }
    /// An event of a task.
    pub fn of_task(task: &Arc<str>, kind: RunEventKind) -> Self {
        Self { task: Some(task.clone()), ..Self::of_run(kind) }
    }
    /// An event of a unit.
    pub fn of_unit(unit: &UnitId, kind: RunEventKind) -> Self {
        Self {
            task: Some(unit.task.clone()),
            round: (unit.round > 1).then_some(unit.round),
            iteration: unit.iteration,
            attempt: Some(unit.attempt),
            kind,
        }
    }
    /// An event of the item of a sequential iteration.
    pub fn of_item(unit: &UnitId, index: u32, kind: RunEventKind) -> Self {
        Self { iteration: Some(index), ..Self::of_unit(unit, kind) }
    }
    /// The event with its number and time.
    pub fn at(self, sequence: u64, at: Timestamp) -> RunEvent {
        RunEvent { sequence, at, event: self }
    }
}

/// Who or what started a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreviousRun {
    /// The run whose router chose this mission.
    pub run: Arc<str>,
    /// The task that chose it.
    pub task: Arc<str>,
}

/// How an agent's run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AssignmentOutcome {
    /// It gave an answer.
    Answered,
    /// It asked the commander a question.
    Asked,
    /// It ended without an answer.
    NoResult,
    /// It failed.
    Failed,
    /// It reached a limit.
    Capped,
    /// It was cancelled.
    Cancelled,
}

/// How serious a recorded problem is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IssueSeverity {
    /// The run goes on.
    Warning,
    /// A call or an attempt failed.
    Error,
    /// The run fails.
    Fatal,
}

/// What was chosen by a router or by `send_to`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChosenTarget {
    /// Nothing: the model chose `none`.
    None,
    /// A task of this run.
    Task(Arc<str>),
    /// A new run of a mission, after this one.
    Mission {
        /// The mission.
        name: Arc<str>,
        /// The task to enter; the first ones if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        entry: Option<Arc<str>>,
        /// Its inputs.
        #[serde(default, skip_serializing_if = "Map::is_empty")]
        inputs: Map<String, Json>,
        /// What it may read of this run.
        #[serde(default, skip_serializing_if = "HandOver::is_empty")]
        hand_over: HandOver,
    },
}

/// How a target was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChosenBy {
    /// The commander chose it.
    Words,
    /// A condition over the data held.
    Data,
    /// The task has `send_to`.
    SendTo,
    /// A question of the task got no answer in time.
    NoAnswer,
}

/// A question to a person.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PersonQuestion {
    /// The question.
    pub question: Arc<str>,
    /// The agent that asks; absent if the commander does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentName>,
    /// A short form of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub short_summary: Option<Arc<str>>,
    /// Further details, in Markdown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub additional_context: Option<Arc<str>>,
    /// The answers to choose from; any text if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<Arc<str>>,
    /// Whether several choices may be taken.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub multi_select: bool,
    /// Seconds after which the question is closed without an answer; it stays open if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u64>,
    /// The answer that counts if nobody answers in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Arc<str>>,
    /// Whether the model that asks chose that answer; otherwise the mission declares it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub default_of_asker: bool,
    /// The tool whose call a person is to confirm; absent for questions of models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirms: Option<Arc<str>>,
}

/// How the answer of a commander was produced.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommanderAnswer {
    /// The answer.
    Answer(Arc<str>),
    /// Why there is none.
    Error(Arc<str>),
}

/// What happened. The names are those of the public mission systems where they have one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum RunEventKind {
    // ---- the run ----
    /// The run was created.
    MissionStarted {
        /// The mission.
        mission: Arc<str>,
        /// The id of the run.
        run: Arc<str>,
        /// How many tasks it has.
        task_count: u32,
        /// The inputs without the protected ones.
        #[serde(default, skip_serializing_if = "Map::is_empty")]
        inputs: Map<String, Json>,
        /// The items of the datasets that are filled from the start.
        #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
        datasets: IndexMap<Arc<str>, Vec<Json>>,
        /// The task to enter; the first ones if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        entry: Option<Arc<str>>,
        /// The run before this one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        previous: Option<PreviousRun>,
        /// How many runs come before it in its chain.
        #[serde(default, skip_serializing_if = "is_zero")]
        chain: u32,
        /// The id of its chain: that of the first run; absent in that one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        chain_id: Option<Arc<str>>,
        /// What it may read of the run before.
        #[serde(default, skip_serializing_if = "HandOver::is_empty")]
        hand_over: HandOver,
        /// The run whose mission and inputs it repeats.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rerun_of: Option<Arc<str>>,
        /// Whether tools that write are refused.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        dry_run: bool,
    },
    /// All tasks are completed.
    MissionCompleted {},
    /// The run failed.
    MissionFailed {
        /// The code of the reason, such as `task.reported` or `budget.exceeded`.
        code: Arc<str>,
        /// Why.
        error: Arc<str>,
    },
    /// Somebody asked to stop the run: nothing more is started.
    MissionStopping {
        /// Why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<Arc<str>>,
    },
    /// The run is stopped; it can be resumed.
    MissionStopped {},
    /// The run goes on after it was stopped or failed.
    MissionResumed {},
    /// A problem was recorded.
    MissionIssue {
        /// How serious it is.
        severity: IssueSeverity,
        /// What kind: `budget_warning`, `budget_exceeded`, `repeat_exhausted`, `provider_error`, `tool_error`, `output_invalid`, `run_size`.
        category: Arc<str>,
        /// The problem in one sentence.
        message: Arc<str>,
        /// Further details.
        #[serde(default, skip_serializing_if = "Json::is_null")]
        details: Json,
    },
    /// A completed task, or a part of its items, was taken over from the run that this one repeats.
    TaskCopied {
        /// That run.
        run: Arc<str>,
        /// The state of the task, as `TaskState`. Its items may be in several events.
        state: Json,
        /// The dataset over which it iterated.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        dataset: Option<Arc<str>>,
    },
    /// A chosen mission was started as a new run.
    FollowUpStarted {
        /// The id of the new run.
        run: Arc<str>,
        /// Its mission.
        mission: Arc<str>,
    },
    // ---- tasks ----
    /// A task was started.
    TaskStarted {
        /// Its objective; absent for parallel iterations, whose items have their own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        objective: Option<Arc<str>>,
        /// Whether it runs at the end of every run.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        always: bool,
    },
    /// A task is completed.
    TaskCompleted {
        /// What its commander reports to the tasks that follow.
        summary: Arc<str>,
    },
    /// A task failed.
    TaskFailed {
        /// The code of the reason.
        code: Arc<str>,
        /// Why.
        error: Arc<str>,
    },
    /// A task was cancelled because another one failed.
    TaskCancelled {},
    /// The commander cannot go on without answers of people.
    TaskBlocked {
        /// Why.
        reason: Arc<str>,
        /// The ids of the questions.
        questions: Vec<Arc<str>>,
    },
    /// A round of a repeated task ended, and its condition does not hold: the next round follows.
    TaskRoundCompleted {
        /// What its commander reports.
        summary: Arc<str>,
        /// The condition that does not hold.
        until: Arc<str>,
        /// The values that the condition read.
        values: Json,
        /// What was learned.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        learnings: Option<Learnings>,
    },
    /// A router or `send_to` chose what follows.
    RouteChosen {
        /// What was chosen.
        target: ChosenTarget,
        /// How.
        by: ChosenBy,
        /// The condition, in words or as an expression; `send_to` for that.
        condition: Arc<str>,
        /// The values that a condition over data read.
        #[serde(default, skip_serializing_if = "Json::is_null")]
        values: Json,
    },
    // ---- iterations ----
    /// The iteration over a dataset began. The dataset cannot change any more.
    TaskIterationStarted {
        /// The dataset.
        dataset: Arc<str>,
        /// How many items it has.
        total_items: u32,
        /// Whether each item has a commander of its own.
        parallel: bool,
    },
    /// The iteration over a dataset ended.
    TaskIterationCompleted {
        /// How many items succeeded.
        completed_count: u32,
    },
    /// The work on an item was started: the unit of a parallel iteration, or the next item of a sequential one.
    IterationStarted {
        /// The id of the item.
        item_id: Arc<str>,
        /// Its objective, for parallel iterations.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        objective: Option<Arc<str>>,
    },
    /// An item is done.
    IterationCompleted {
        /// What its commander reports; empty for sequential iterations.
        #[serde(default, skip_serializing_if = "str::is_empty")]
        summary: Arc<str>,
        /// What was learned.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        learnings: Option<Learnings>,
    },
    /// An attempt of an item failed.
    IterationFailed {
        /// The code of the reason.
        code: Arc<str>,
        /// Why.
        error: Arc<str>,
    },
    /// A failed item gets a new attempt, the one of this event.
    IterationRetrying {
        /// How many attempts there may be after the first.
        max_retries: u32,
        /// Why the attempt before failed.
        error: Arc<str>,
    },
    /// The unit of an item was cancelled because another part of the run failed.
    IterationCancelled {},
    // ---- the tools of commanders ----
    /// The subtasks were planned.
    SubtasksSet {
        /// Their titles.
        subtasks: Vec<Arc<str>>,
    },
    /// The current subtask is done.
    SubtaskCompleted {
        /// Its index.
        index: u32,
    },
    /// A valid output was submitted; it replaces an earlier one of the same unit or item.
    OutputSubmitted {
        /// The output.
        output: Json,
    },
    /// The items of a dataset were set or appended.
    DatasetItemsSet {
        /// The dataset.
        dataset: Arc<str>,
        /// The items.
        items: Vec<Json>,
        /// Whether they are added to those that are there.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        append: bool,
    },
    /// A question was put to the commander of a completed task.
    CommanderQuestionAsked {
        /// The id of the question in the run.
        question_id: Arc<str>,
        /// The task whose commander is asked.
        target: Arc<str>,
        /// The item, for iterations.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        index: Option<u32>,
        /// The question.
        question: Arc<str>,
    },
    /// The question to a commander was answered.
    CommanderQuestionAnswered {
        /// The id of the question.
        question_id: Arc<str>,
        /// The answer.
        answer: CommanderAnswer,
    },
    // ---- people ----
    /// A question to a person was asked.
    HumanInputRequested {
        /// The id of the question: derived from the run, the unit and the call.
        question_id: Arc<str>,
        /// The question.
        #[serde(flatten)]
        question: PersonQuestion,
    },
    /// A question was answered or closed.
    HumanInputResolved {
        /// The id of the question.
        question_id: Arc<str>,
        /// The answer; absent if there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        answer: Option<Arc<str>>,
        /// Whether its time limit ended it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        timed_out: bool,
        /// Who answered.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        responder: Option<Arc<str>>,
    },
    // ---- agents ----
    /// An agent began an assignment or went on with one.
    AgentStarted {
        /// The agent.
        agent: AgentName,
        /// The assignment, or the answer to its question.
        instruction: Arc<str>,
    },
    /// The run of an agent ended. Each `agent_started` has one.
    AgentCompleted {
        /// The agent.
        agent: AgentName,
        /// How.
        outcome: AssignmentOutcome,
        /// The question, for [`AssignmentOutcome::Asked`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        question: Option<Arc<str>>,
    },
    // ---- observation ----
    /// A model call was answered.
    SessionTurn {
        /// `commander`, the name of the agent, or `clone` of a commander.
        entity: Arc<str>,
        /// The model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<Arc<str>>,
        /// Its usage.
        usage: Usage,
        /// How long it took, in milliseconds.
        #[serde(default, skip_serializing_if = "is_zero_u64")]
        duration_ms: u64,
    },
    /// Older messages of a session were replaced by a summary.
    Compaction {
        /// `commander` or the name of the agent.
        entity: Arc<str>,
        /// Input tokens before.
        input_tokens: u64,
        /// The limit.
        token_limit: u64,
        /// Messages that were replaced.
        messages_compacted: u64,
        /// Turns that stayed.
        turn_retention: u32,
    },
    /// A commander or an agent called a tool. Arguments are those before secrets are inserted. A call that was refused before it reached
    /// the tool has this event too, and one `tool_completed` with `failed`. Calls of the tools of the mission have both only if they are refused;
    /// the others have events of their own.
    ToolCalled {
        /// `commander` or the name of the agent.
        entity: Arc<str>,
        /// The id of the call.
        call: Arc<str>,
        /// The tool.
        tool: Arc<str>,
        /// Its arguments.
        #[serde(default, skip_serializing_if = "Json::is_null")]
        input: Json,
        /// `write` or `idempotent`, for a call that is sent and changes something itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        effect: Option<Arc<str>>,
    },
    /// A tool call ended.
    ToolCompleted {
        /// `commander` or the name of the agent.
        entity: Arc<str>,
        /// The id of the call.
        call: Arc<str>,
        /// The tool.
        tool: Arc<str>,
        /// Whether it failed, or its outcome is not known.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        failed: bool,
        /// Whether it may have been carried out although it has no result.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        unknown: bool,
        /// The beginning of its result.
        #[serde(default, skip_serializing_if = "str::is_empty")]
        result: Arc<str>,
    },
    /// A commander or agent gave a text.
    Answered {
        /// `commander` or the name of the agent.
        entity: Arc<str>,
        /// The text.
        text: Arc<str>,
    },
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

fn is_zero_u64(n: &u64) -> bool {
    *n == 0
}
