//! The tasks before a task, as the prompt of its commander shows them.

use std::sync::Arc;

use serde::Serialize;

use super::{graph, inputs, state::RunState, state::TaskStatus};
use crate::project::missions::MissionDef;

/// A completed task before a task, for the prompt of its commander.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AncestorContext {
    /// The task.
    pub task: Arc<str>,
    /// What its commander reports; empty if it reports nothing.
    pub summary: Arc<str>,
    /// The fields of its output; empty if it has none.
    pub fields: Vec<OutputField>,
    /// Whether it iterated over a dataset, so that its output is a row for each item.
    pub is_iterated: bool,
    /// Whether each item has a commander of its own, so that questions need an index.
    pub is_parallel: bool,
    /// How many items it had.
    pub total_items: u32,
}

/// A field of the output of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OutputField {
    /// Its name.
    pub name: Arc<str>,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Whether each output has it.
    pub required: bool,
    /// What it is.
    pub description: Arc<str>,
}

/// The completed tasks before a task, the earliest first.
pub fn ancestors(def: &MissionDef, state: &RunState, task: &str) -> Vec<AncestorContext> {
    graph::ancestors(def, state, task).iter().filter_map(|name| completed(def, state, name)).collect()
}

/// A completed task; `None` if it is not completed.
pub(super) fn completed(def: &MissionDef, state: &RunState, name: &str) -> Option<AncestorContext> {
    let task = def.tasks.get(name)?;
    let task_state = state.tasks.get(name).filter(|task| task.status == TaskStatus::Completed)?;
    let fields = task.output.iter().map(|(name, field)| OutputField {
        name: name.clone(),
        kind: inputs::kind_name(field.kind),
        required: field.required,
        description: field.description.clone(),
    });
    Some(AncestorContext {
        summary: task_state.summary.clone().unwrap_or_default(),
        fields: fields.collect(),
        is_iterated: task.iterator.is_some(),
        is_parallel: task.iterator.as_ref().is_some_and(|iterator| iterator.parallel),
        total_items: task_state.total_items.unwrap_or(0),
        task: task.name.clone(),
    })
}
