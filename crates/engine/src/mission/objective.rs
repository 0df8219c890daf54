//! The objectives of tasks: strict templates over the inputs and the item.

use std::sync::Arc;

use minijinja::Value;
use serde_json::{Map, Value as Json};

use crate::{
    project::missions::{MissionDef, TaskDef},
    template::{TemplateEngine, TemplateError, from_json},
};

/// A name in an objective that has no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ObjectiveProblem {
    /// Neither `inputs` nor `item`.
    #[error("task `{task}`: the objective reads `{name}`, but only `inputs` and `item` exist")]
    UnknownName {
        /// The task.
        task: Arc<str>,
        /// The name.
        name: String,
    },
    /// An input that the mission does not declare.
    #[error("task `{task}`: the objective reads the input `{input}`, which the mission does not declare")]
    UndeclaredInput {
        /// The task.
        task: Arc<str>,
        /// The name of the input.
        input: String,
    },
    /// A protected input.
    #[error("task `{task}`: the objective reads the protected input `{input}`, which no model may see")]
    ProtectedInput {
        /// The task.
        task: Arc<str>,
        /// The name of the input.
        input: String,
    },
    /// `item` outside a parallel iteration.
    #[error("task `{task}`: the objective reads `item`, which exists only in parallel iterations")]
    NoItem {
        /// The task.
        task: Arc<str>,
    },
    /// A field of the item that the dataset does not declare.
    #[error("task `{task}`: the objective reads `item.{field}`, which the dataset `{dataset}` does not declare")]
    UndeclaredField {
        /// The task.
        task: Arc<str>,
        /// The dataset.
        dataset: Arc<str>,
        /// The field.
        field: String,
    },
}

impl ObjectiveProblem {
    /// A stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::UnknownName { .. } => "mission.objective.unknown_name",
            Self::UndeclaredInput { .. } => "mission.objective.undeclared_input",
            Self::ProtectedInput { .. } => "mission.objective.protected_input",
            Self::NoItem { .. } => "mission.objective.no_item",
            Self::UndeclaredField { .. } => "mission.objective.undeclared_field",
        }
    }
}

/// All names that the objective of a task reads and that have no value.
pub fn problems(def: &MissionDef, task: &TaskDef, engine: &TemplateEngine) -> Vec<ObjectiveProblem> {
    let mut found = Vec::new();
    for name in engine.variables(&task.objective) {
        let mut parts = name.split('.');
        let (root, field) = (parts.next().unwrap_or_default(), parts.next());
        let problem = match (root, field) {
            ("inputs", None) => None,
            ("inputs", Some(input)) => input_problem(def, task, input),
            ("item", field) => item_problem(def, task, field),
            _ => Some(ObjectiveProblem::UnknownName { task: task.name.clone(), name: name.clone() }),
        };
        if let Some(problem) = problem
            && !found.contains(&problem)
        {
            found.push(problem);
        }
    }
    found
}

fn input_problem(def: &MissionDef, task: &TaskDef, input: &str) -> Option<ObjectiveProblem> {
    let (task, name) = (task.name.clone(), input.to_owned());
    match def.inputs.get(input) {
        None => Some(ObjectiveProblem::UndeclaredInput { task, input: name }),
        Some(input) if input.protected => Some(ObjectiveProblem::ProtectedInput { task, input: name }),
        Some(_) => None,
    }
}

fn item_problem(def: &MissionDef, task: &TaskDef, field: Option<&str>) -> Option<ObjectiveProblem> {
    let name = task.name.clone();
    let Some(iterator) = task.iterator.as_ref().filter(|iterator| iterator.parallel) else {
        return Some(ObjectiveProblem::NoItem { task: name });
    };
    let schema = &def.datasets.get(&iterator.dataset)?.schema;
    let field = field.filter(|field| !schema.is_empty() && !schema.contains_key(*field))?;
    Some(ObjectiveProblem::UndeclaredField { task: name, dataset: iterator.dataset.clone(), field: field.to_owned() })
}

/// Renders the objective of a task. `inputs` are those of the run, without the protected ones.
///
/// # Errors
/// The template reads a name that has no value, or exceeds a limit.
pub fn render(task: &TaskDef, inputs: &Map<String, Json>, item: Option<&Json>) -> Result<String, TemplateError> {
    // An input may be a list of thousands of items, and each of them has an objective: inputs that the text does not name are not converted.
    let names = task.objective.source().text().split("inputs").skip(1);
    let reads_all = names.into_iter().any(|rest| !rest.starts_with('.'));
    let read = inputs.iter().filter(|(name, _)| reads_all || task.objective.may_read(name));
    let inputs = Value::from_pairs(read.map(|(name, value)| (name.as_str(), from_json(value))));
    let mut pairs = vec![("inputs", inputs)];
    pairs.extend(item.map(|item| ("item", from_json(item))));
    task.objective.render(Value::from_pairs(pairs))
}
