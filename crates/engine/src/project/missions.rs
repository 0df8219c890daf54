//! Checked missions: `missions/*.yml`. A mission is a graph of tasks; a commander drives each task and sends work to agents.

use std::{fmt, sync::Arc, time::Duration};

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::{AgentSkills, BudgetLimits, BuiltinTools, WorkspaceAccess};
use crate::{
    finding::SourceLocation,
    ids::AgentName,
    template::{Expression, Template},
};

/// A mission.
#[derive(Debug)]
pub struct MissionDef {
    /// Its id: `a-z`, `0-9` and `_`, not starting with a digit.
    pub name: Arc<str>,
    /// Its name for people, if it is another one.
    pub title: Option<Arc<str>>,
    /// What it does; shown to people and to the command generator.
    pub description: Arc<str>,
    /// A rule for all commanders, part of their prompts; may be empty.
    pub directive: Arc<str>,
    /// The settings of the commanders.
    pub commander: CommanderDef,
    /// The agents that tasks without `agents` may call.
    pub agents: Vec<AgentName>,
    /// Agents that exist only in this mission, by name.
    pub local_agents: IndexMap<AgentName, Arc<MissionAgentDef>>,
    /// The inputs of a run, by name.
    pub inputs: IndexMap<Arc<str>, InputDef>,
    /// The datasets, by name.
    pub datasets: IndexMap<Arc<str>, DatasetDef>,
    /// Folders that the file tools of a run may use.
    pub storage: StorageDef,
    /// The budget of a run.
    pub budget: Option<BudgetDef>,
    /// How many runs and tasks may run at the same time.
    pub concurrency: ConcurrencyDef,
    /// The tasks, in the order of their declaration.
    pub tasks: IndexMap<Arc<str>, TaskDef>,
    /// Its location in the project files.
    pub place: SourceLocation,
}

/// The settings of the commanders of a mission.
#[derive(Clone)]
pub struct CommanderDef {
    /// The model group, if set.
    pub model_group: Option<Arc<str>>,
    /// The settings of an own model; empty if it uses a group.
    pub llm: Map<String, Json>,
    /// The reasoning effort (`low`, `medium`, `high`), if set. It replaces that of the model.
    pub reasoning: Option<Arc<str>>,
    /// Whether a commander must plan its subtasks before any other tool.
    pub plan_required: bool,
    /// Model calls of one commander session.
    pub max_turns: u32,
    /// Corrections in a row before the task fails.
    pub corrections: u32,
    /// Agents that work at the same time when a response calls several in a row.
    pub max_parallel_agents: u32,
    /// Interception of large results and compaction of long histories.
    pub context: ContextLimits,
}

/// Limits of the context of a loop.
#[derive(Clone, Debug, PartialEq)]
pub struct ContextLimits {
    /// A tool result above this number of tokens (4 bytes each) is stored, and the model gets a preview.
    pub tool_response_tokens: u32,
    /// Input tokens above which older messages are replaced by a summary, if set.
    pub compact_above: Option<u32>,
    /// Turns that stay as they are when a history is compacted.
    pub turn_retention: u32,
}

impl Default for CommanderDef {
    fn default() -> Self {
        Self {
            model_group: None,
            llm: Map::new(),
            reasoning: None,
            plan_required: true,
            max_turns: 60,
            corrections: 3,
            max_parallel_agents: 3,
            context: ContextLimits::default(),
        }
    }
}

/// Without the settings of its model, which may contain a key.
impl fmt::Debug for CommanderDef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommanderDef")
            .field("model_group", &self.model_group)
            .field("max_turns", &self.max_turns)
            .field("context", &self.context)
            .finish_non_exhaustive()
    }
}

impl Default for ContextLimits {
    fn default() -> Self {
        Self { tool_response_tokens: 16_000, compact_above: None, turn_retention: 10 }
    }
}

impl Default for ConcurrencyDef {
    fn default() -> Self {
        Self { max_parallel: 3, max_tasks: 8, key: None, limit: 1, overflow: OnOverflow::Skip }
    }
}

/// An agent that exists only in one mission.
pub struct MissionAgentDef {
    /// Its name.
    pub name: AgentName,
    /// Its name for people, if it is another one.
    pub title: Option<Arc<str>>,
    /// What it is good at; commanders choose by it, and it is its own instruction.
    pub description: Arc<str>,
    /// The model group, if set.
    pub model_group: Option<Arc<str>>,
    /// The settings of an own model; empty if it uses a group.
    pub llm: Map<String, Json>,
    /// The tools: `server` for all tools of an MCP server, `server.tool` for one.
    pub tools: Vec<Arc<str>>,
    /// Interception of large results and compaction of long histories.
    pub context: ContextLimits,
    /// The Agent Skills that it may load; `None`: none.
    pub skills: Option<Arc<AgentSkills>>,
    /// Its tools for the folder of the run.
    pub workspace: WorkspaceAccess,
    /// `builtin_tools`: the time, a wait, HTTP requests.
    pub builtin_tools: BuiltinTools,
    /// Its location in the project files.
    pub place: SourceLocation,
}

/// Without the settings of its model, which may contain a key.
impl fmt::Debug for MissionAgentDef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MissionAgentDef")
            .field("name", &self.name)
            .field("model_group", &self.model_group)
            .field("tools", &self.tools)
            .finish_non_exhaustive()
    }
}

/// The type of a value of an input, an output field or a dataset field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// A text.
    String,
    /// Any number.
    Number,
    /// A whole number.
    Integer,
    /// `true` or `false`.
    Boolean,
    /// A list.
    List,
    /// An object with named fields.
    Object,
    /// An object with values of one type.
    Map,
    /// Any value.
    Any,
    /// Of an input only: a file. A run gets a copy; its value is the path by which agents read it.
    File,
}

/// One field of a schema.
#[derive(Clone, Debug)]
pub struct FieldDef {
    /// Its type.
    pub kind: ValueKind,
    /// What it is; shown to models.
    pub description: Arc<str>,
    /// Whether it must be present and not null.
    pub required: bool,
    /// The JSON Schema of its values, with `enum`, `pattern`, `minimum`, `maximum`, `items` and `properties`.
    pub schema: Arc<Json>,
}

/// An input of a mission.
#[derive(Clone)]
pub struct InputDef {
    /// Its type and description. It is required unless it has a default.
    pub field: FieldDef,
    /// The value of a run that does not set it.
    pub default: Option<Json>,
    /// Whether it is a secret: no model and no template sees it, and tools get it by `${secrets.<name>}`.
    pub protected: bool,
    /// The value of a protected input.
    pub secret: Option<Arc<str>>,
    /// The tools that get a protected input: servers, `server.tool`, and tools for HTTP requests. `None`: all tools of these kinds.
    pub secret_tools: Option<Vec<Arc<str>>>,
}

/// Without the secret.
impl fmt::Debug for InputDef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InputDef")
            .field("field", &self.field)
            .field("protected", &self.protected)
            .finish_non_exhaustive()
    }
}

/// A dataset: a list of objects.
#[derive(Clone, Debug)]
pub struct DatasetDef {
    /// What it holds.
    pub description: Arc<str>,
    /// The fields of its items; empty if any object fits.
    pub schema: IndexMap<Arc<str>, FieldDef>,
    /// Its items, if they are part of the configuration.
    pub items: Option<Vec<Json>>,
    /// The input of type `list` that fills it, if any.
    pub bind_to: Option<Arc<str>>,
    /// Its location in the project files.
    pub place: SourceLocation,
}

/// Folders for the file tools of a run.
#[derive(Clone, Debug, Default)]
pub struct StorageDef {
    /// The description of the folder `memory`, which lasts from run to run; `None`: there is none.
    pub memory: Option<Arc<str>>,
    /// Whether each run has a folder `scratchpad`.
    pub scratchpad: bool,
    /// Folders that last and that all missions with the name share: their descriptions by name.
    pub shared: IndexMap<Arc<str>, Arc<str>>,
    /// Folders of the project that runs can read, by name.
    pub packets: IndexMap<Arc<str>, PacketDef>,
}

impl StorageDef {
    /// Whether there are no folders.
    pub fn is_empty(&self) -> bool {
        self.memory.is_none() && !self.scratchpad && self.shared.is_empty() && self.packets.is_empty()
    }
}

/// A folder of the project that runs can read.
#[derive(Clone, Debug)]
pub struct PacketDef {
    /// Its path, relative to the project: names divided by `/`.
    pub path: Arc<str>,
    /// What it holds; may be empty.
    pub description: Arc<str>,
    /// Its location in the project files.
    pub place: SourceLocation,
}

/// The budget of a mission or of a task.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BudgetDef {
    /// Its limits, at least one, and the share at which a warning is recorded.
    pub limits: BudgetLimits,
    /// What happens when it is used up.
    pub on_breach: OnBreach,
}

/// What happens when a budget is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnBreach {
    /// The run fails at once.
    Fail,
    /// Every loop gets one more turn without ordinary tools to end its task.
    FinishTurn,
    /// A person is asked whether the run goes on with a higher budget; otherwise it fails.
    Ask,
}

/// How many runs and tasks may run at the same time.
#[derive(Clone, Debug)]
pub struct ConcurrencyDef {
    /// Runs of this mission.
    pub max_parallel: u32,
    /// Tasks of one run.
    pub max_tasks: u32,
    /// A template over `inputs`: runs with the same key, whatever their mission, are limited by `limit`.
    pub key: Option<Template>,
    /// Runs with the same key.
    pub limit: u32,
    /// What happens to a run above a limit.
    pub overflow: OnOverflow,
}

/// What happens to a run above the limits of its mission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnOverflow {
    /// It is refused.
    Skip,
    /// It waits until another one has ended.
    Queue,
}

/// A task.
#[derive(Debug)]
pub struct TaskDef {
    /// Its id.
    pub name: Arc<str>,
    /// Its name for people, if it is another one.
    pub title: Option<Arc<str>>,
    /// Whether it runs at the end of every run that succeeds or fails, when nothing else runs.
    pub always: bool,
    /// Its objective: a template with `inputs` and, for parallel iterations, `item`.
    pub objective: Template,
    /// The agents that it may call; empty: those of the mission.
    pub agents: Vec<AgentName>,
    /// The tasks that must be completed before.
    pub depends_on: Vec<Arc<str>>,
    /// What follows when it is completed.
    pub next: NextTasks,
    /// The iteration over a dataset, if any.
    pub iterator: Option<IteratorDef>,
    /// What holds for its questions to people, unless a question says otherwise.
    pub questions: QuestionsDef,
    /// The rounds in which it is repeated until a condition holds, if it is.
    pub repeat: Option<RepeatDef>,
    /// The fields of its output; empty: it has no structured output.
    pub output: IndexMap<Arc<str>, FieldDef>,
    /// The budget of this task with all its iterations.
    pub budget: Option<BudgetDef>,
    /// Its location in the project files.
    pub place: SourceLocation,
}

/// What follows a completed task, beside the tasks that depend on it.
#[derive(Debug, Default)]
pub enum NextTasks {
    /// Nothing.
    #[default]
    None,
    /// All of these tasks.
    SendTo(Vec<Arc<str>>),
    /// One of these.
    Router(Vec<RouteDef>),
}

/// One route of a router.
#[derive(Debug)]
pub struct RouteDef {
    /// Where it leads.
    pub target: RouteTarget,
    /// When the model should choose it, in words; `None` for a route that code decides.
    pub when: Option<Arc<str>>,
    /// The condition over `output`, `inputs` and `summary` that code decides before the model is asked. The first that holds is taken.
    pub condition: Option<Expression>,
    /// Whether it is taken if a question of the task gets no answer in time. Nobody else takes it.
    pub no_answer: bool,
    /// What the mission that it leads to may read of this run.
    pub hand_over: HandOver,
    /// Its location in the project files.
    pub place: SourceLocation,
}

impl RouteDef {
    /// Whether it is taken if no other one is.
    pub fn is_otherwise(&self) -> bool {
        self.when.is_none() && self.condition.is_none() && !self.no_answer
    }
}

/// What a mission may read of the run before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandOver {
    /// The summaries of the completed tasks.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub summaries: bool,
    /// The outputs of the completed tasks, by queries.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub outputs: bool,
}

impl HandOver {
    /// Whether nothing is handed over.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What holds for the questions of a task to people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuestionsDef {
    /// Seconds after which a question is closed without an answer; it stays open if absent.
    pub timeout_seconds: Option<u64>,
    /// The answer that counts if nobody answers in time.
    pub default: Option<Arc<str>>,
    /// The agents that may ask people themselves. Commanders always may.
    pub agents: Vec<AgentName>,
}

/// The target of a route.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RouteTarget {
    /// A task of this mission.
    Task(Arc<str>),
    /// A new run of another mission, after this one; the second is the task to enter, if not the first ones.
    Mission(Arc<str>, Option<Arc<str>>),
}

impl RouteTarget {
    /// The name of the task or of the mission.
    pub fn name(&self) -> &Arc<str> {
        match self {
            Self::Task(name) | Self::Mission(name, _) => name,
        }
    }
}

/// The repetition of a task: rounds with sessions of their own, until a condition holds.
#[derive(Clone, Debug)]
pub struct RepeatDef {
    /// The condition over `output`, `inputs` and `summary` that ends the repetition.
    pub until: Expression,
    /// The maximum number of rounds.
    pub max: u32,
    /// What happens when it does not hold after the last round.
    pub on_exhausted: OnExhausted,
}

/// What happens to a task whose condition does not hold after the last round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnExhausted {
    /// It fails.
    Fail,
    /// It is completed with the result of the last round, and the run records a warning.
    Continue,
}

/// The iteration of a task over a dataset.
#[derive(Clone, Debug)]
pub struct IteratorDef {
    /// The dataset.
    pub dataset: Arc<str>,
    /// Whether each item has a commander of its own. Otherwise one commander works through all items in their order.
    pub parallel: bool,
    /// Parallel: iterations at the same time.
    pub concurrency_limit: u32,
    /// Parallel: the pause between the starts of the first `concurrency_limit` iterations.
    pub start_delay: Duration,
    /// Parallel: whether the first item must succeed before the others start.
    pub smoke_test: bool,
    /// Parallel: attempts after the first.
    pub max_retries: u32,
    /// Parallel: the pause before a retry; it doubles with each.
    pub retry_delay: Duration,
    /// Parallel: whether an item is also retried after an attempt that has changed something, or may have.
    pub retry_after_writes: bool,
    /// What the failure of an iteration means for the others.
    pub on_error: OnIterationError,
    /// With `continue`: the share of iterations that must succeed, from 0 to 1.
    pub min_success: f64,
    /// Sequential: whether each item has a fresh session with the learnings so far, or all share one.
    pub fresh_session: bool,
    /// Parallel: whether items that start later are told what earlier ones learned.
    pub share_learnings: bool,
}

/// What the failure of a parallel iteration means for the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnIterationError {
    /// The others are cancelled, and the task fails.
    FailFast,
    /// The others run to their end, then the task fails.
    FinishThenFail,
    /// The failed item is recorded, and the task succeeds if enough others do.
    Continue,
}
