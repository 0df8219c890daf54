//! The order of the tasks of a mission in a run. The rules of the graph itself are those of the project:
//! [`mission_graph`](crate::project::mission_graph).

use std::{collections::HashSet, sync::Arc};

use super::state::RunState;
use crate::project::missions::MissionDef;

pub use crate::project::mission_graph::active_tasks;

/// The tasks before a task: those that it depends on, directly or not, and for a dynamic task the one that activated it first with the
/// tasks before that; for a task that always runs at the end, all others that were started. A task comes after all tasks that it waited for; otherwise the order is that of declaration.
pub fn ancestors(def: &MissionDef, state: &RunState, task: &str) -> Vec<Arc<str>> {
    if def.tasks.get(task).is_some_and(|task| task.always) {
        let others = def.tasks.values().filter(|other| !other.always && state.tasks.contains_key(&other.name));
        return others.map(|other| other.name.clone()).collect();
    }
    let before = |name: &str| -> Vec<Arc<str>> {
        let depends_on = def.tasks.get(name).map(|task| task.depends_on.clone()).unwrap_or_default();
        let activated_by = state.tasks.get(name).and_then(|task| task.activated_by.clone());
        depends_on.into_iter().chain(activated_by).collect()
    };
    let mut set: HashSet<Arc<str>> = HashSet::new();
    let mut open = before(task);
    while let Some(name) = open.pop() {
        if &*name != task && def.tasks.contains_key(&name) && set.insert(name.clone()) {
            open.extend(before(&name));
        }
    }
    let mut rest: Vec<Arc<str>> = def.tasks.keys().filter(|name| set.contains(*name)).cloned().collect();
    let mut ordered = Vec::with_capacity(rest.len());
    while !rest.is_empty() {
        let is_next = |name: &Arc<str>| !before(name).iter().any(|earlier| rest.contains(earlier));
        // In a cycle, which the loader refuses, the order is that of declaration.
        let at = rest.iter().position(is_next).unwrap_or(0);
        ordered.push(rest.remove(at));
    }
    ordered
}
