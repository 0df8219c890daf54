//! The plan of a run that was not started: its objectives, and how many sessions and model calls it may need.

use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value as Json};

use super::{dataset, inputs, objective, sizes, state::RunState};
use crate::{
    project::{
        mission_graph,
        missions::{BudgetDef, MissionDef, TaskDef},
    },
    time::Timestamp,
};

/// A task of a plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlannedTask {
    /// The task.
    pub task: Arc<str>,
    /// The objective with the inputs, and for parallel iterations with the first item. `None` without inputs or items.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objective: Option<String>,
    /// How many items it iterates over, if that is known before the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub items: Option<u64>,
    /// The maximum number of rounds.
    pub rounds: u32,
    /// Sessions of commanders at most: one, or one for each item and attempt, in each round. `None` if the number of items is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sessions: Option<u64>,
    /// Model calls of its commanders at most. Agents are not among them: their number depends on the assignments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commander_calls: Option<u64>,
    /// Tokens at most, if it has such a budget.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Cost at most, if it has such a budget.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// Whether it runs only if another task chooses it.
    pub optional: bool,
}

/// A plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// The tasks, in the order of their declaration.
    pub tasks: Vec<PlannedTask>,
    /// Model calls of all commanders at most; `None` if a number of items is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commander_calls: Option<u64>,
    /// Tokens of the whole run at most, if it has such a budget.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Cost of the whole run at most, if it has such a budget.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// That it may need more units than a run can have, with all attempts and rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

/// Plans a run. `given`: its inputs; without them they are not checked, and objectives are not rendered.
///
/// # Errors
/// The problems of the inputs, and objectives that cannot be rendered with them.
pub fn plan(
    def: &MissionDef,
    given: Option<&Map<String, Json>>,
    entry: Option<Arc<str>>,
) -> Result<Plan, Vec<inputs::InputProblem>> {
    let options = inputs::NewRunOptions { entry: entry.clone(), ..Default::default() };
    let state = match given {
        Some(given) => {
            let started = inputs::start(def, &"plan".into(), given, options)?;
            Some(RunState::from_events([&started.event.at(1, Timestamp::from_micros(0))]))
        }
        None => None,
    };
    let active = super::graph::active_tasks(def, entry.as_deref());
    let (mut tasks, mut problems) = (Vec::new(), Vec::new());
    for task in def.tasks.values().filter(|task| task.always || active.contains(&task.name)) {
        match planned(def, task, state.as_ref()) {
            Ok(planned) => tasks.push(planned),
            Err(problem) => {
                problems.push(inputs::InputProblem { input: format!("objective of {}", task.name).into(), problem });
            }
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let calls: Option<Vec<u64>> = tasks.iter().map(|task| task.commander_calls).collect();
    let items = |dataset: &str| known_items(def, state.as_ref(), dataset);
    Ok(Plan {
        warning: sizes::may_exceed(def, entry.as_deref(), items).map(|found| found.problem),
        commander_calls: calls.map(|calls| calls.into_iter().fold(0, u64::saturating_add)),
        tokens: def.budget.and_then(|budget: BudgetDef| budget.limits.tokens),
        cost: def.budget.and_then(|budget| budget.limits.cost),
        tasks,
    })
}

fn planned(def: &MissionDef, task: &TaskDef, state: Option<&RunState>) -> Result<PlannedTask, String> {
    let items = task.iterator.as_ref().map(|iterator| known_items(def, state, &iterator.dataset));
    let parallel = task.iterator.as_ref().filter(|iterator| iterator.parallel);
    let objective = match (state, parallel) {
        (None, _) => None,
        (Some(state), None) => Some(objective::render(task, &state.inputs, None)),
        (Some(state), Some(iterator)) => items.flatten().filter(|items| *items > 0).map(|_| {
            let first = dataset::item_with_all_fields(def, state, &iterator.dataset, 0);
            objective::render(task, &state.inputs, Some(&first))
        }),
    };
    let rounds = task.repeat.as_ref().map_or(1, |repeat| repeat.max);
    let sessions = sizes::most(task, items.flatten());
    Ok(PlannedTask {
        task: task.name.clone(),
        objective: objective.transpose().map_err(|error| error.to_string())?,
        items: items.flatten(),
        rounds,
        sessions,
        commander_calls: sessions.map(|sessions| sessions.saturating_mul(u64::from(def.commander.max_turns))),
        tokens: task.budget.and_then(|budget| budget.limits.tokens),
        cost: task.budget.and_then(|budget| budget.limits.cost),
        optional: mission_graph::activator(def, &task.name).is_some(),
    })
}

/// How many items a dataset has at the start of the run; `None` if tasks fill it, or an input that is not given.
fn known_items(def: &MissionDef, state: Option<&RunState>, dataset: &str) -> Option<u64> {
    let count = |items: usize| u64::try_from(items).unwrap_or(u64::MAX);
    let declared = def.datasets.get(dataset)?;
    match (&declared.items, &declared.bind_to, state) {
        (Some(items), ..) => Some(count(items.len())),
        (None, Some(_), Some(state)) => Some(count(dataset::items(state, dataset).len())),
        _ => None,
    }
}
