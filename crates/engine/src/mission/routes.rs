//! What follows a completed task: routes that data decides, and routes that the commander chooses.

use std::sync::Arc;

use minijinja::Value;
use serde::Serialize;
use serde_json::{Map, Value as Json};

use super::{
    inputs,
    state::{RunState, TaskState},
    unit::UnitView,
};
use crate::{
    project::missions::{HandOver, InputDef, MissionDef, NextTasks, RouteDef, RouteTarget, TaskDef},
    template::{Expression, TemplateEngine, TemplateError, from_json},
};

/// The answer of a commander that takes no route.
pub const NONE: &str = "none";

/// The routes of a task; empty if it has no router.
pub fn routes(task: &TaskDef) -> &[RouteDef] {
    match &task.next {
        NextTasks::Router(routes) => routes,
        NextTasks::None | NextTasks::SendTo(_) => &[],
    }
}

/// The routes that the commander chooses among: those in words, with the one for all other cases. Without any in words, code takes that
/// one ([`otherwise`]).
pub fn offered(task: &TaskDef) -> impl Iterator<Item = &RouteDef> {
    let has_words = routes(task).iter().any(|route| route.when.is_some());
    routes(task).iter().filter(move |route| has_words && route.condition.is_none() && !route.no_answer)
}

/// The route that code takes if no condition holds: that for all other cases, unless the commander chooses.
pub fn otherwise(task: &TaskDef) -> Option<&RouteDef> {
    let has_words = routes(task).iter().any(|route| route.when.is_some());
    routes(task).iter().find(|route| !has_words && route.is_otherwise())
}

/// The route of a task whose question got no answer in time.
pub fn without_answer(task: &TaskDef) -> Option<&RouteDef> {
    routes(task).iter().find(|route| route.no_answer)
}

/// The word with which a commander names a route: the name of the task or mission, with `mission:` in front if both exist.
pub fn key(task: &TaskDef, target: &RouteTarget) -> String {
    match target {
        RouteTarget::Task(name) => name.to_string(),
        RouteTarget::Mission(name, entry) => {
            let is_other = |route: &RouteDef| match &route.target {
                RouteTarget::Task(other) => other == name,
                RouteTarget::Mission(other, _) => other == name && route.target != *target,
            };
            match (entry, routes(task).iter().any(is_other)) {
                (_, false) => name.to_string(),
                (None, true) => format!("mission:{name}"),
                (Some(entry), true) => format!("mission:{name}#{entry}"),
            }
        }
    }
}

/// The route that a commander named; `mission:x` and `mission:x#task` are understood too.
pub fn find<'a>(task: &'a TaskDef, named: &str) -> Option<&'a RouteDef> {
    let matches = |route: &&RouteDef| {
        let full = match &route.target {
            RouteTarget::Task(name) => format!("task:{name}"),
            RouteTarget::Mission(name, None) => format!("mission:{name}"),
            RouteTarget::Mission(name, Some(entry)) => format!("mission:{name}#{entry}"),
        };
        key(task, &route.target) == named || full == named
    };
    offered(task).find(matches)
}

/// A route as the prompt of a commander shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RouteOption {
    /// The word with which the commander names it.
    pub key: String,
    /// When to take it.
    pub when: Arc<str>,
    /// Whether it leads to another mission, which gets its inputs, and reads of this run what is handed over.
    pub is_mission: bool,
    /// What is handed over to that mission.
    #[serde(skip_serializing_if = "HandOver::is_empty")]
    pub hand_over: HandOver,
    /// The inputs of that mission, without the protected ones.
    pub inputs: Vec<RouteInput>,
}

/// An input of a mission that a route leads to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RouteInput {
    /// Its name.
    pub name: Arc<str>,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Whether it must be set.
    pub required: bool,
    /// What it is.
    pub description: Arc<str>,
}

/// The routes that a commander chooses among, for its prompt. [`NONE`] comes last and is not listed.
pub fn options(task: &TaskDef, missions: &dyn MissionLookup) -> Vec<RouteOption> {
    let input = |(name, input): (&Arc<str>, &InputDef)| RouteInput {
        name: name.clone(),
        kind: inputs::kind_name(input.field.kind),
        required: inputs::is_required(input),
        description: input.field.description.clone(),
    };
    let option = |route: &RouteDef| {
        let mission = match &route.target {
            RouteTarget::Task(_) => None,
            RouteTarget::Mission(name, _) => Some(missions.mission(name)),
        };
        let of_mission = mission.flatten().map(|mission| &mission.inputs).into_iter().flatten();
        RouteOption {
            key: key(task, &route.target),
            when: route.when.clone().unwrap_or_else(|| "in all other cases".into()),
            is_mission: mission.is_some(),
            hand_over: route.hand_over,
            inputs: of_mission.filter(|(_, input)| !input.protected).map(input).collect(),
        }
    };
    offered(task).map(option).collect()
}

/// The output that a condition reads: that of the task, or for a sequential iteration the list of the items' outputs.
pub fn output(unit: &UnitView<'_>) -> Json {
    match unit.sequential() {
        Some(_) => outputs(unit.task_state),
        None => unit.state.output.clone().unwrap_or_default(),
    }
}

/// The outputs of the items of an iteration, in their order.
pub(super) fn outputs(task: &TaskState) -> Json {
    task.items.values().map(|item| item.output.clone().unwrap_or_default()).collect()
}

/// The output of a completed task, for tasks and flows after it: a list for iterations, null for what has none.
pub fn task_output(state: &RunState, task: &str) -> Json {
    match state.tasks.get(task) {
        Some(task) if task.total_items.is_some() => outputs(task),
        Some(task) => task.output.clone().unwrap_or_default(),
        None => Json::Null,
    }
}

/// The first route whose condition over data holds, with the values that the condition read.
///
/// # Errors
/// A condition cannot be evaluated.
pub fn by_data<'a>(
    unit: &UnitView<'a>,
    summary: &str,
    engine: &TemplateEngine,
) -> Result<Option<(&'a RouteDef, Json)>, TemplateError> {
    let output = output(unit);
    for route in routes(unit.task) {
        let Some(condition) = &route.condition else { continue };
        if let (true, values) = evaluate(condition, &output, &unit.run.inputs, summary, engine)? {
            return Ok(Some((route, values)));
        }
    }
    Ok(None)
}

/// Whether a condition over the result of a task holds, with the values that it read.
///
/// # Errors
/// The condition cannot be evaluated.
pub fn evaluate(
    condition: &Expression,
    output: &Json,
    inputs: &Map<String, Json>,
    summary: &str,
    engine: &TemplateEngine,
) -> Result<(bool, Json), TemplateError> {
    let named = inputs.iter().map(|(name, value)| (name.as_str(), from_json(value)));
    let context = Value::from_pairs([
        ("output", from_json(output)),
        ("inputs", Value::from_pairs(named)),
        ("summary", Value::from(summary)),
    ]);
    let holds = is_true(&engine.eval_expression(condition, context)?);
    let read = |name: String| {
        let value = read(&name, output, inputs, summary);
        (name, value)
    };
    let values = engine.expression_variables(condition).into_iter().map(read).collect();
    Ok((holds, Json::Object(values)))
}

/// The truth of a value as in templates: empty texts, lists and objects, zero and null are false.
fn is_true(value: &Json) -> bool {
    match value {
        Json::Null => false,
        Json::Bool(value) => *value,
        Json::Number(number) => number.as_f64() != Some(0.0),
        Json::String(text) => !text.is_empty(),
        Json::Array(items) => !items.is_empty(),
        Json::Object(fields) => !fields.is_empty(),
    }
}

fn read(name: &str, output: &Json, inputs: &Map<String, Json>, summary: &str) -> Json {
    let mut parts = name.split('.');
    let mut at = match parts.next() {
        Some("output") => output.clone(),
        Some("inputs") => Json::Object(inputs.clone()),
        Some("summary") => return Json::String(summary.to_owned()),
        _ => return Json::Null,
    };
    for part in parts {
        at = at.get(part).cloned().unwrap_or_default();
    }
    at
}

/// Finds other missions of the project, whose inputs a router must set.
pub trait MissionLookup {
    /// The mission with this name.
    fn mission(&self, name: &str) -> Option<&MissionDef>;
}

/// No other missions.
#[derive(Clone, Copy, Debug)]
pub struct NoMissions;

impl MissionLookup for NoMissions {
    fn mission(&self, _: &str) -> Option<&MissionDef> {
        None
    }
}

impl MissionLookup for indexmap::IndexMap<Arc<str>, Arc<MissionDef>> {
    fn mission(&self, name: &str) -> Option<&MissionDef> {
        self.get(name).map(|mission| &**mission)
    }
}
