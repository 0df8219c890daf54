//! The tools of commanders, and those that the agents of a mission have beside their own, as pure functions.
//!
//! [`call`] checks the arguments and the state of the run, and returns what the model reads, the events to store, and what the runtime
//! does next. A refused call stores nothing. What needs a model or a person is a request ([`Then`]); the runtime performs it and asks
//! [`agents`], [`commanders`] or [`people`] for the result.
//!
//! Results are JSON objects with `status`, except where the result is a text or a list. Errors have the form
//! `{"status":"error","code":…,"message":…,"hint":…}`.

pub mod agents;
pub mod commanders;
mod complete;
mod datasets;
mod error;
mod output;
pub mod people;
mod plan;
pub mod schemas;

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json, json};

pub use self::{error::ToolError, schemas::schema};
use super::{
    event::{NewEvent, RunEventKind},
    graph,
    handed_over::SourceRun,
    learnings::Learnings,
    query::{self, QueryError},
    routes::MissionLookup,
    state::{TaskState, TaskStatus},
    unit::{UnitId, UnitView},
};
use crate::{
    ids::AgentName,
    project::{field_values, missions::TaskDef},
    template::TemplateEngine,
};

/// A tool of a mission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MissionTool {
    /// Plans the subtasks.
    SetSubtasks,
    /// Lists the subtasks.
    GetSubtasks,
    /// Completes the current subtask.
    CompleteSubtask,
    /// Ends the task.
    TaskComplete,
    /// Submits the output of the task or item.
    SubmitOutput,
    /// Gives an agent an assignment, or answers its question.
    CallAgent,
    /// Asks an agent that has completed an assignment.
    AskAgent,
    /// Reads the output of a completed task.
    QueryTaskOutput,
    /// Commander: asks the commander of a completed task. Agent: asks the commander that called it.
    AskCommander,
    /// Lists the questions that were put to a commander.
    ListCommanderQuestions,
    /// Reads the answer to one of them.
    GetCommanderAnswer,
    /// Fetches the next item.
    DatasetNext,
    /// Sets or appends items.
    SetDataset,
    /// Draws items.
    DatasetSample,
    /// Counts items.
    DatasetCount,
    /// Makes a large result the items of a dataset.
    ResultToDataset,
    /// Asks a person.
    Ask,
}

impl MissionTool {
    /// All tools.
    pub const ALL: [Self; 17] = [
        Self::SetSubtasks,
        Self::GetSubtasks,
        Self::CompleteSubtask,
        Self::TaskComplete,
        Self::SubmitOutput,
        Self::CallAgent,
        Self::AskAgent,
        Self::QueryTaskOutput,
        Self::AskCommander,
        Self::ListCommanderQuestions,
        Self::GetCommanderAnswer,
        Self::DatasetNext,
        Self::SetDataset,
        Self::DatasetSample,
        Self::DatasetCount,
        Self::ResultToDataset,
        Self::Ask,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::SetSubtasks => "set_subtasks",
            Self::GetSubtasks => "get_subtasks",
            Self::CompleteSubtask => "complete_subtask",
            Self::TaskComplete => "task_complete",
            Self::SubmitOutput => "submit_output",
            Self::CallAgent => "call_agent",
            Self::AskAgent => "ask_agent",
            Self::QueryTaskOutput => "query_task_output",
            Self::AskCommander => "ask_commander",
            Self::ListCommanderQuestions => "list_commander_questions",
            Self::GetCommanderAnswer => "get_commander_answer",
            Self::DatasetNext => "dataset_next",
            Self::SetDataset => "set_dataset",
            Self::DatasetSample => "dataset_sample",
            Self::DatasetCount => "dataset_count",
            Self::ResultToDataset => "result_to_dataset",
            Self::Ask => "ask",
        }
    }

    /// The tool with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    /// Whether a call changes nothing, so that it may run again after a crash.
    pub fn is_read(self) -> bool {
        matches!(
            self,
            Self::GetSubtasks
                | Self::QueryTaskOutput
                | Self::ListCommanderQuestions
                | Self::GetCommanderAnswer
                | Self::DatasetSample
                | Self::DatasetCount
        )
    }
}

/// Who calls a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// The commander of the unit.
    Commander,
    /// An agent that the commander called.
    Agent(AgentName),
}

/// The arguments of a call as the model wrote them.
#[derive(Clone, Copy, Debug)]
pub enum Arguments<'a> {
    /// JSON.
    Json(&'a Json),
    /// Not JSON; the reason. An empty one means that there are no arguments.
    Malformed(&'a str),
}

/// Why a stored result cannot be a dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultProblem {
    /// There is none with this id.
    Unknown,
    /// It is not a list.
    NotAList,
}

/// Finds large results that were stored instead of being shown to the model.
pub trait ResultLookup {
    /// The elements of a stored list.
    ///
    /// # Errors
    /// There is no such result, or it is not a list.
    fn items(&self, id: &str) -> Result<Vec<Json>, ResultProblem>;
}

/// No stored results.
#[derive(Clone, Copy, Debug)]
pub struct NoResults;

impl ResultLookup for NoResults {
    fn items(&self, _: &str) -> Result<Vec<Json>, ResultProblem> {
        Err(ResultProblem::Unknown)
    }
}

/// What a call may read.
#[derive(Clone)]
pub struct ToolContext<'a> {
    /// The unit.
    pub unit: UnitView<'a>,
    /// Who calls.
    pub caller: Caller,
    /// The id of the call, unique within the unit and the same when the call runs again after a crash.
    pub call: &'a str,
    /// The engine that evaluates the conditions of routes.
    pub templates: &'a TemplateEngine,
    /// The other missions of the project.
    pub missions: &'a dyn MissionLookup,
    /// The stored results of the caller.
    pub results: &'a dyn ResultLookup,
    /// The agents of this commander that work at this moment.
    pub busy: &'a [AgentName],
    /// What the commander and its agents wrote about the current item in `<LEARNINGS>` blocks.
    pub learnings: Option<Learnings>,
    /// The run before, if it handed something over.
    pub source: Option<SourceRun<'a>>,
    /// The seed of `dataset_sample` if the call sets none.
    pub seed: u64,
}

impl fmt::Debug for ToolContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolContext").field("unit", self.unit.id).field("call", &self.call).finish_non_exhaustive()
    }
}

impl ToolContext<'_> {
    fn event(&self, kind: RunEventKind) -> NewEvent {
        NewEvent::of_unit(self.unit.id, kind)
    }
    /// An id for something that this call creates.
    fn id(&self) -> Arc<str> {
        format!("{}/{}/{}", self.unit.run.run, self.unit.id, self.call).into()
    }
    /// The tasks of the run before that can be queried.
    fn handed_over(&self) -> Vec<(Arc<str>, &TaskDef, &TaskState)> {
        self.source.map(|source| source.outputs(self.unit.run.hand_over)).unwrap_or_default()
    }
    fn is_commander(&self) -> bool {
        self.caller == Caller::Commander
    }
    /// Whether the caller may ask people. Commanders always may; agents that the task names may.
    pub fn may_ask_people(&self) -> bool {
        match &self.caller {
            Caller::Commander => true,
            Caller::Agent(name) => self.unit.task.questions.agents.contains(name),
        }
    }
}

/// What an agent is given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentInput {
    /// A new assignment; what the agent had in flight is dropped.
    Task(Arc<str>),
    /// The answer to its question; it goes on.
    Response(Arc<str>),
}

/// What the runtime does after a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Then {
    /// The loop goes on with the result.
    Continue,
    /// The loop goes on with the next item in a fresh session that has only the learnings of the items before.
    FreshSession,
    /// The unit is completed; later calls of the same response are not executed.
    Completed,
    /// The unit failed.
    Failed,
    /// The unit waits until these questions are answered.
    Blocked {
        /// Their ids.
        questions: Vec<Arc<str>>,
    },
    /// Run an agent; the result of the call is [`agents::finished`].
    CallAgent {
        /// The agent.
        agent: AgentName,
        /// What it is given.
        input: AgentInput,
    },
    /// Ask a copy of an agent's session; the answer is the result of the call.
    AskAgent {
        /// The agent.
        agent: AgentName,
        /// The unit of the task before this one whose agent it is; `None` for an agent of this commander.
        unit: Option<UnitId>,
        /// The question.
        question: Arc<str>,
    },
    /// Ask a clone of the commander of a completed task; the result of the call is [`commanders::answered`].
    AskCommander {
        /// The id of the question.
        question_id: Arc<str>,
        /// The unit of the commander.
        unit: UnitId,
        /// The question.
        question: Arc<str>,
    },
    /// Wait for the answer to a question that another unit asked; the result of the call is [`commanders::answer_text`].
    AwaitCommanderAnswer {
        /// The id of the question.
        question_id: Arc<str>,
    },
    /// End the agent's run: its question is the result of the commander's `call_agent`.
    AskOwnCommander {
        /// The question.
        question: Arc<str>,
    },
    /// Wait for a person; the result of the call is [`people::answer`].
    AskPerson {
        /// The id of the question.
        question_id: Arc<str>,
    },
}

/// What a call leads to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolAnswer {
    /// What the model reads: a text as it is, other JSON printed. Null if the result comes later.
    pub result: Json,
    /// The events to store with it.
    pub events: Vec<NewEvent>,
    /// What the runtime does next.
    pub then: Then,
}

impl ToolAnswer {
    /// A result without events.
    pub fn of(result: Json) -> Self {
        Self { result, events: Vec::new(), then: Then::Continue }
    }
    fn later(then: Then, events: Vec<NewEvent>) -> Self {
        Self { result: Json::Null, events, then }
    }
    /// The result as the model reads it.
    pub fn text(&self) -> String {
        match &self.result {
            Json::String(text) => text.clone(),
            Json::Null => String::new(),
            other => other.to_string(),
        }
    }
    /// Whether the call was refused.
    pub fn is_error(&self) -> bool {
        self.result.get("status").and_then(Json::as_str) == Some("error")
    }
}

/// The tools that a caller is offered in this unit, in a fixed order.
pub fn offered(cx: &ToolContext<'_>) -> Vec<MissionTool> {
    let fills = |tool: &MissionTool| matches!(tool, MissionTool::SetDataset | MissionTool::ResultToDataset);
    let is_locked = |name: &Arc<str>| cx.unit.run.datasets.get(name).is_some_and(|dataset| dataset.locked);
    let can_fill = !cx.unit.def.datasets.keys().all(is_locked);
    MissionTool::ALL.into_iter().filter(|tool| is_offered(*tool, cx) && (can_fill || !fills(tool))).collect()
}

fn is_offered(tool: MissionTool, cx: &ToolContext<'_>) -> bool {
    let unit = &cx.unit;
    match tool {
        MissionTool::AskCommander if !cx.is_commander() => true,
        MissionTool::Ask => cx.may_ask_people(),
        MissionTool::SetDataset
        | MissionTool::DatasetSample
        | MissionTool::DatasetCount
        | MissionTool::ResultToDataset => !unit.def.datasets.is_empty(),
        _ if !cx.is_commander() => false,
        MissionTool::SubmitOutput => !unit.task.output.is_empty(),
        MissionTool::CallAgent | MissionTool::AskAgent => !agents::allowed(unit).is_empty(),
        MissionTool::QueryTaskOutput => !commanders::ancestors(unit).is_empty() || !cx.handed_over().is_empty(),
        MissionTool::AskCommander | MissionTool::ListCommanderQuestions | MissionTool::GetCommanderAnswer => {
            !commanders::ancestors(unit).is_empty()
        }
        MissionTool::DatasetNext => unit.sequential().is_some(),
        _ => true,
    }
}

/// Runs a call by the name of its tool.
pub fn call(name: &str, arguments: Arguments<'_>, cx: &ToolContext<'_>) -> ToolAnswer {
    match checked_call(name, arguments, cx) {
        Ok(answer) => answer,
        Err(error) => ToolAnswer::of(error.json(MissionTool::from_name(name))),
    }
}

/// The tools of a clone of a commander that answers questions about its completed task.
pub fn offered_to_clone(cx: &ToolContext<'_>) -> Vec<MissionTool> {
    let can_ask = !agents::known(&cx.unit).is_empty();
    if can_ask { vec![MissionTool::AskAgent] } else { Vec::new() }
}

/// Runs a call of a clone of a commander. It changes nothing.
pub fn call_of_clone(name: &str, arguments: Arguments<'_>, cx: &ToolContext<'_>) -> ToolAnswer {
    let tools = offered_to_clone(cx);
    let done = match MissionTool::from_name(name).filter(|tool| tools.contains(tool)) {
        Some(tool) => parse(tool, arguments, cx).and_then(|arguments| agents::ask(&arguments, cx)),
        None => Err(unknown_tool(name, &tools)),
    };
    done.unwrap_or_else(|error| ToolAnswer::of(error.json(None)))
}

fn unknown_tool(name: &str, tools: &[MissionTool]) -> ToolError {
    let names: Vec<&str> = tools.iter().map(|tool| tool.name()).collect();
    let error = ToolError::new("tool.unknown", format!("There is no tool `{name}`."), "Use one of the tools listed.");
    error.with("allowed", json!(names))
}

fn checked_call(name: &str, arguments: Arguments<'_>, cx: &ToolContext<'_>) -> Result<ToolAnswer, ToolError> {
    let tool = MissionTool::from_name(name).filter(|tool| is_offered(*tool, cx));
    let Some(tool) = tool else { return Err(unknown_tool(name, &offered(cx))) };
    if !cx.unit.state.status.is_open() {
        let message = "The task has ended; this call was not executed.";
        return Err(ToolError::new("tool.queued", message, "Make no further calls."));
    }
    let arguments = parse(tool, arguments, cx)?;
    if needs_plan(tool, &arguments, cx) {
        let message = "The subtasks are not planned yet; nothing was executed.";
        return Err(ToolError::new("plan.required", message, "Call `set_subtasks` first."));
    }
    match tool {
        MissionTool::SetSubtasks => plan::set(&arguments, cx),
        MissionTool::GetSubtasks => Ok(plan::get(cx)),
        MissionTool::CompleteSubtask => plan::complete(cx),
        MissionTool::TaskComplete => complete::call(&arguments, cx),
        MissionTool::SubmitOutput => output::submit(&arguments, cx),
        MissionTool::CallAgent => agents::call(&arguments, cx),
        MissionTool::AskAgent => agents::ask(&arguments, cx),
        MissionTool::QueryTaskOutput => query_output(&arguments, cx),
        MissionTool::AskCommander if !cx.is_commander() => agents::ask_commander(&arguments),
        MissionTool::AskCommander => commanders::ask(&arguments, cx),
        MissionTool::ListCommanderQuestions => commanders::list(&arguments, cx),
        MissionTool::GetCommanderAnswer => commanders::get(&arguments, cx),
        MissionTool::DatasetNext => datasets::next(cx),
        MissionTool::SetDataset => datasets::set(&arguments, cx),
        MissionTool::DatasetSample => datasets::sample(&arguments, cx),
        MissionTool::DatasetCount => datasets::count(&arguments, cx),
        MissionTool::ResultToDataset => datasets::from_result(&arguments, cx),
        MissionTool::Ask => people::ask(&arguments, cx),
    }
}

/// The arguments as an object without nulls, checked against the schema of the tool.
fn parse(tool: MissionTool, arguments: Arguments<'_>, cx: &ToolContext<'_>) -> Result<Map<String, Json>, ToolError> {
    let invalid = |problem: String| {
        ToolError::new("args.invalid", problem, "Nothing was executed. Call the tool again with a JSON object.")
    };
    let mut object = match arguments {
        Arguments::Json(Json::Object(object)) => object.clone(),
        Arguments::Json(other) => {
            return Err(invalid(format!("The arguments must be a JSON object, not {}.", field_values::kind(other))));
        }
        Arguments::Malformed("") => Map::new(),
        Arguments::Malformed(reason) => return Err(invalid(format!("The arguments are not valid JSON: {reason}."))),
    };
    object.retain(|_, value| !value.is_null());
    let violations = field_values::check(&schemas::unrestricted(tool, cx), &Json::Object(object.clone()));
    if violations.is_empty() {
        return Ok(object);
    }
    let details: Vec<String> = violations.iter().map(|found| format!("{}: {}", found.pointer, found.problem)).collect();
    let message = format!("The arguments are not valid: {}.", details.join("; "));
    let error = ToolError::new("args.invalid", message, "Nothing was executed. Correct the arguments and call again.");
    Err(error.with("details", json!(violations)))
}

/// Whether the call must wait for a plan.
fn needs_plan(tool: MissionTool, arguments: &Map<String, Json>, cx: &ToolContext<'_>) -> bool {
    let is_exempt = match tool {
        MissionTool::SetSubtasks | MissionTool::GetSubtasks | MissionTool::DatasetNext => true,
        MissionTool::TaskComplete => {
            let has_no_items = cx.unit.sequential().is_some() && cx.unit.dataset_items().is_empty();
            has_no_items || arguments.get("succeed") == Some(&Json::Bool(false))
        }
        _ => false,
    };
    cx.is_commander() && cx.unit.def.commander.plan_required && !cx.unit.state.planned && !is_exempt
}

fn text<'a>(arguments: &'a Map<String, Json>, name: &str) -> Option<&'a str> {
    arguments.get(name).and_then(Json::as_str)
}

/// A whole number. A fraction of zero is accepted.
fn number(arguments: &Map<String, Json>, name: &str) -> Option<u64> {
    let value = arguments.get(name)?;
    value.as_u64().or_else(|| value.as_f64().filter(|number| *number >= 0.0).map(|number| number as u64))
}

fn query_output(arguments: &Map<String, Json>, cx: &ToolContext<'_>) -> Result<ToolAnswer, ToolError> {
    let name = text(arguments, "task").unwrap_or_default();
    let ancestors = graph::ancestors(cx.unit.def, cx.unit.run, &cx.unit.id.task);
    let found = ancestors.iter().find(|task| &***task == name);
    let handed_over = cx.handed_over();
    let from_source = handed_over.iter().find(|(task, ..)| &**task == name);
    let (def, state) = match (found.and_then(|name| cx.unit.def.tasks.get(name)), from_source) {
        (Some(def), _) => (def, cx.unit.run.tasks.get(name).filter(|task| task.status == TaskStatus::Completed)),
        (None, Some((_, def, state))) => (*def, Some(*state)),
        (None, None) => {
            let message = format!("`{name}` is not a task before this one.");
            let names: Vec<&str> =
                ancestors.iter().chain(handed_over.iter().map(|(name, ..)| name)).map(|name| &**name).collect();
            return Err(ToolError::new("query.task_unknown", message, "Use one of the tasks listed.")
                .with("allowed", json!(names)));
        }
    };
    let Some(state) = state else {
        let message = format!("The task `{name}` has no result in this run.");
        return Err(ToolError::new("query.not_ready", message, "Go on without its output."));
    };
    let query: query::Query = serde_json::from_value(Json::Object(arguments.clone())).map_err(|error| {
        ToolError::new("args.invalid", format!("The query is not valid: {error}."), "Correct it and call again.")
    })?;
    match query::run(name, def, state, &query) {
        Ok(result) => Ok(ToolAnswer::of(result)),
        Err(QueryError::NotIterated) => {
            let message = format!("The task `{name}` does not iterate over a dataset, so nothing can be aggregated.");
            let hint = "Call the tool without `aggregate` to read the whole output.";
            Err(ToolError::new("query.not_iterated", message, hint))
        }
        Err(QueryError::TooLarge) => {
            let message = "The filters have too many or too long values for this many items.";
            Err(ToolError::new("query.too_large", message, "Use fewer or shorter values, or several queries."))
        }
        Err(QueryError::ArgumentMissing(argument)) => {
            let message = format!("The aggregate needs `{argument}`.");
            Err(ToolError::new("args.invalid", message, "Add it and call again."))
        }
    }
}
