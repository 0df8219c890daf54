//! Checks of one mission: the rules of its graph, and the sources of its datasets.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::super::{
    mission_graph::{self, GraphProblem},
    mission_sizes,
    missions::{MissionDef, TaskDef},
};
use crate::finding::{Findings, SourceLocation, did_you_mean};

/// The locations of names of tasks in other tasks.
#[derive(Debug, Default)]
pub(crate) struct TaskPlaces(HashMap<(String, &'static str, String), Vec<SourceLocation>>);

impl TaskPlaces {
    /// Records that a task names another one in `depends_on` or `send_to`.
    pub(crate) fn add(&mut self, task: &str, key: &'static str, target: &str, place: SourceLocation) {
        self.0.entry((task.to_owned(), key, target.to_owned())).or_default().push(place);
    }

    /// The location of a name: the first one, or the second of a duplicate.
    fn of(&self, mission: &MissionDef, task: &str, key: &'static str, target: &str, second: bool) -> SourceLocation {
        if let Some(places) = self.0.get(&(task.to_owned(), key, target.to_owned())) {
            let place = if second { places.get(1).or(places.first()) } else { places.first() };
            return place.cloned().unwrap_or_default();
        }
        let Some(task) = mission.tasks.get(task) else { return mission.place.clone() };
        let is_target = |name: &str| name == target || target.strip_prefix("mission:") == Some(name);
        let mut routes = mission_graph::routes(task).iter().filter(|route| is_target(route.target.name()));
        let route = if second { routes.nth(1) } else { routes.next() };
        route.map_or(&task.place, |route| &route.place).clone()
    }
}

/// Runs the checks of one mission. References to other missions are checked when all are loaded.
pub(crate) fn check(mission: &MissionDef, places: &TaskPlaces, findings: &mut Findings) {
    let problems = mission_graph::problems(mission);
    let cycles: Vec<&[Arc<str>]> = problems.iter().filter_map(cycle_of).collect();
    let on_one_cycle = |tasks: &[&Arc<str>]| cycles.iter().any(|path| tasks.iter().all(|task| path.contains(task)));
    // What only follows from a cycle is not reported beside it.
    let is_cause = |problem: &&GraphProblem| match problem {
        // Each task waits for one that does not start: there is a cycle, or a wrong name.
        GraphProblem::NoStart => false,
        GraphProblem::DependsOnDynamic { task, target, .. } => !on_one_cycle(&[task, target]),
        _ => true,
    };
    for problem in problems.iter().filter(is_cause) {
        graph_problem(mission, places, problem, findings);
    }
    always(mission, findings);
    too_large(mission, findings);
    unreachable(mission, |task| on_one_cycle(&[task]), findings);
    for task in mission.tasks.values() {
        dataset_without_source(mission, task, findings);
    }
}

/// The tasks of a cycle.
fn cycle_of(problem: &GraphProblem) -> Option<&[Arc<str>]> {
    match problem {
        GraphProblem::Cycle { path } => Some(path),
        _ => None,
    }
}

fn graph_problem(mission: &MissionDef, places: &TaskPlaces, problem: &GraphProblem, findings: &mut Findings) {
    let own = |task: &str| mission.tasks.get(task).map_or(&mission.place, |task| &task.place).clone();
    match problem {
        GraphProblem::UnknownTask { task, target, key } => {
            let help = match did_you_mean(target, mission.tasks.keys().map(|name| &**name)) {
                Some(near) => format!("Did you mean `{near}`?"),
                None => format!("Add the task `{target}`, or write `mission:{target}` for another mission."),
            };
            let place = places.of(mission, task, key, target, false);
            findings.error("F0830", &place, format!("there is no task `{target}`"), help);
        }
        GraphProblem::SelfReference { task, key } => {
            let place = places.of(mission, task, key, task, false);
            let message = format!("the task `{task}` names itself in `{key}`");
            let help = "Remove it: a task runs at most once in a run.";
            findings.error("F0831", &place, message, help);
        }
        GraphProblem::DuplicateTarget { task, target, key } => {
            let place = places.of(mission, task, key, target, true);
            findings.error("F0832", &place, format!("`{target}` is in `{key}` twice"), "List it once.");
        }
        GraphProblem::Cycle { path } => {
            let place = path.first().map_or_else(|| mission.place.clone(), |task| own(task));
            let message = format!("these tasks form a cycle: `{}`", path.join("` → `"));
            let help = "Remove one of these edges; repeat work inside one task instead.";
            findings.error("F0833", &place, message, help);
        }
        GraphProblem::DynamicDepends { task, by } => {
            let message = format!("`{task}` starts when `{by}` chooses it, so it cannot have `depends_on`");
            let help = format!("Remove `depends_on`, or the way from `{by}` to `{task}`.");
            findings.error("F0834", &own(task), message, help);
        }
        GraphProblem::DependsOnDynamic { task, target, by } => {
            let place = places.of(mission, task, "depends_on", target, false);
            let message = format!("`{task}` would wait for `{target}`, which runs only if `{by}` chooses it");
            let help = format!("Write `send_to: [{task}]` in `{target}`, and remove it from `depends_on`.");
            findings.error("F0835", &place, message, help);
        }
        GraphProblem::RedundantDependency { task, target, via } => {
            let place = places.of(mission, task, "depends_on", target, false);
            let message = format!("`{target}` need not be listed, because `{via}` depends on it already");
            findings.warning("F0836", &place, message, "Remove it.");
        }
        GraphProblem::NoStart => {}
        GraphProblem::ParallelRouter { task } => {
            let message = format!("`{task}` iterates in parallel, so it cannot have a router");
            let help = "Write the router in a task that depends on this one, or use `send_to`.";
            findings.error("F0838", &own(task), message, help);
        }
    }
}

/// A mission whose runs cannot fit, or may not, whatever their inputs are.
fn too_large(mission: &MissionDef, findings: &mut Findings) {
    let declared = |name: &str| {
        let dataset = mission.datasets.get(name).filter(|dataset| dataset.bind_to.is_none());
        dataset.and_then(|dataset| u64::try_from(dataset.items.as_ref()?.len()).ok())
    };
    let place = |task: &str| mission.tasks.get(task).map_or(&mission.place, |task| &task.place);
    if let Err(found) = mission_sizes::check(mission, None, declared) {
        let help = "Use fewer items, or let one commander work through all items, without `parallel`.";
        findings.error("F0860", place(&found.task), found.problem, help);
    } else if let Some(found) = mission_sizes::may_exceed(mission, None, declared) {
        let help = "Use fewer items, `max_retries` or rounds if attempts may fail often.";
        findings.warning("F0861", place(&found.task), found.problem, help);
    }
}

/// Tasks that others name although they run at the end whatever happens.
fn always(mission: &MissionDef, findings: &mut Findings) {
    for task in mission.tasks.values() {
        let named = task.depends_on.iter().chain(mission_graph::targets(task));
        for other in named.filter(|name| mission.tasks.get(*name).is_some_and(|other| other.always)) {
            let message = format!("`{}` names `{other}`, which runs at the end of every run", task.name);
            findings.error("F0848", &task.place, message, format!("Remove `{other}` here, or `always` there."));
        }
    }
    if !mission.tasks.is_empty() && mission.tasks.values().all(|task| task.always) {
        let message = "all tasks have `always`, so that the mission has no work";
        findings.error("F0848", &mission.place, message, "Remove `always` from the tasks that do the work.");
    }
}

/// Tasks that no run reaches, because what leads to them is part of a cycle, or waits for such a task. Those of the cycle itself are left
/// out: it is reported.
fn unreachable(mission: &MissionDef, is_on_cycle: impl Fn(&Arc<str>) -> bool, findings: &mut Findings) {
    let dynamic: HashSet<&Arc<str>> = mission.tasks.values().flat_map(mission_graph::targets).collect();
    let mut waiting: HashMap<&Arc<str>, usize> = HashMap::new();
    let mut dependents: HashMap<&Arc<str>, Vec<&Arc<str>>> = HashMap::new();
    let mut open: Vec<&TaskDef> = Vec::new();
    for task in mission.tasks.values().filter(|task| !dynamic.contains(&task.name)) {
        // Unknown names and the task's own name are reported as such.
        let is_known = |name: &&Arc<str>| **name != task.name && mission.tasks.contains_key(*name);
        let before: HashSet<&Arc<str>> = task.depends_on.iter().filter(is_known).collect();
        waiting.insert(&task.name, before.len());
        if before.is_empty() {
            open.push(task);
        }
        for name in before {
            dependents.entry(name).or_default().push(&task.name);
        }
    }
    let mut reached: HashSet<&Arc<str>> = open.iter().map(|task| &task.name).collect();
    while let Some(task) = open.pop() {
        let mut next = mission_graph::targets(task);
        for name in dependents.get(&task.name).into_iter().flatten() {
            if let Some(count) = waiting.get_mut(*name) {
                *count = count.saturating_sub(1);
                next.extend((*count == 0).then_some(*name));
            }
        }
        open.extend(next.into_iter().filter(|name| reached.insert(*name)).filter_map(|name| mission.tasks.get(name)));
    }
    if reached.is_empty() {
        return; // no task can start; the reason is reported
    }
    for task in mission.tasks.values().filter(|task| !reached.contains(&task.name) && !is_on_cycle(&task.name)) {
        let message = format!("no run reaches the task `{}`", task.name);
        let help = "Correct the tasks that lead to it, or remove it.";
        findings.warning("F0840", &task.place, message, help);
    }
}

/// A dataset that nothing fills before the task: no items, no input, no task before it.
fn dataset_without_source(mission: &MissionDef, task: &TaskDef, findings: &mut Findings) {
    let Some(iterator) = &task.iterator else { return };
    let Some(dataset) = mission.datasets.get(&iterator.dataset) else { return };
    let is_first = task.depends_on.is_empty() && mission_graph::activator(mission, &task.name).is_none();
    if is_first && dataset.items.is_none() && dataset.bind_to.is_none() {
        let message = format!(
            "nothing fills the dataset `{}` before the task `{}`, so the task has no items",
            iterator.dataset, task.name
        );
        let help = "Add `items` or `bind_to` to the dataset, or a task before this one that fills it.";
        findings.error("F0828", &task.place, message, help);
    }
}
