//! The rules of the graph of tasks in a mission.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use super::missions::{MissionDef, NextTasks, RouteDef, RouteTarget, TaskDef};

/// A violation of the rules of the graph.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GraphProblem {
    /// A task names a task that does not exist.
    #[error("task `{task}` names the task `{target}` in `{key}`, but the mission has no such task")]
    UnknownTask {
        /// The task.
        task: Arc<str>,
        /// The unknown name.
        target: Arc<str>,
        /// `depends_on`, `send_to`, `router` or `entry`.
        key: &'static str,
    },
    /// A task names itself.
    #[error("task `{task}` names itself in `{key}`")]
    SelfReference {
        /// The task.
        task: Arc<str>,
        /// Where.
        key: &'static str,
    },
    /// A name is listed twice.
    #[error("task `{task}` lists `{target}` twice in `{key}`")]
    DuplicateTarget {
        /// The task.
        task: Arc<str>,
        /// The name.
        target: Arc<str>,
        /// Where.
        key: &'static str,
    },
    /// Tasks wait for one another.
    #[error("the tasks form a cycle: {}", path.join(" → "))]
    Cycle {
        /// The tasks of the cycle; the first is also the last.
        path: Vec<Arc<str>>,
    },
    /// A task that a router or `send_to` activates has `depends_on`.
    #[error("task `{task}` is activated by `{by}` and must not have `depends_on`")]
    DynamicDepends {
        /// The task.
        task: Arc<str>,
        /// A task that activates it.
        by: Arc<str>,
    },
    /// A task depends on one that may never run.
    #[error("task `{task}` depends on `{target}`, which runs only if `{by}` activates it")]
    DependsOnDynamic {
        /// The task.
        task: Arc<str>,
        /// The dynamic task.
        target: Arc<str>,
        /// A task that activates it.
        by: Arc<str>,
    },
    /// A dependency is implied by another one.
    #[error("task `{task}` need not list `{target}` in `depends_on`: `{via}` depends on it already")]
    RedundantDependency {
        /// The task.
        task: Arc<str>,
        /// The dependency.
        target: Arc<str>,
        /// The listed dependency that implies it.
        via: Arc<str>,
    },
    /// No task can start.
    #[error("no task can start: each one has `depends_on` or is activated by another one")]
    NoStart,
    /// A parallel iteration has a router.
    #[error("task `{task}` iterates in parallel and cannot have a router; use `send_to`, or a task after it")]
    ParallelRouter {
        /// The task.
        task: Arc<str>,
    },
}

impl GraphProblem {
    /// A stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::UnknownTask { .. } => "mission.graph.unknown_task",
            Self::SelfReference { .. } => "mission.graph.self_reference",
            Self::DuplicateTarget { .. } => "mission.graph.duplicate",
            Self::Cycle { .. } => "mission.graph.cycle",
            Self::DynamicDepends { .. } => "mission.route.dynamic_depends",
            Self::DependsOnDynamic { .. } => "mission.graph.depends_on_dynamic",
            Self::RedundantDependency { .. } => "mission.graph.redundant",
            Self::NoStart => "mission.graph.no_start",
            Self::ParallelRouter { .. } => "mission.route.parallel",
        }
    }
    /// The task whose definition must change; `None` if it is the mission's.
    pub fn task(&self) -> Option<&Arc<str>> {
        match self {
            Self::UnknownTask { task, .. }
            | Self::SelfReference { task, .. }
            | Self::DuplicateTarget { task, .. }
            | Self::DynamicDepends { task, .. }
            | Self::DependsOnDynamic { task, .. }
            | Self::RedundantDependency { task, .. }
            | Self::ParallelRouter { task } => Some(task),
            Self::Cycle { path } => path.first(),
            Self::NoStart => None,
        }
    }
    /// What to do about it.
    pub fn help(&self) -> &'static str {
        match self {
            Self::UnknownTask { .. } => "write the name of a task of this mission",
            Self::SelfReference { .. } => "remove the name; a task runs at most once in a run",
            Self::DuplicateTarget { .. } => "list it once",
            Self::Cycle { .. } => "remove one of these edges; repeat work inside one task instead",
            Self::DynamicDepends { .. } => "remove `depends_on`, or the route to this task",
            Self::DependsOnDynamic { .. } => "activate this task with `send_to` of that task instead",
            Self::RedundantDependency { .. } => "list direct predecessors only",
            Self::NoStart => "remove `depends_on` from the task that shall run first",
            Self::ParallelRouter { .. } => "let a task that depends on this one have the router",
        }
    }
}

/// The names of the tasks that may follow a task, in their order. Other missions are not among them.
pub fn targets<'a>(task: &'a TaskDef) -> Vec<&'a Arc<str>> {
    match &task.next {
        NextTasks::None => Vec::new(),
        NextTasks::SendTo(targets) => targets.iter().collect(),
        NextTasks::Router(routes) => {
            let name = |route: &'a RouteDef| match &route.target {
                RouteTarget::Task(name) => Some(name),
                RouteTarget::Mission(..) => None,
            };
            routes.iter().filter_map(name).collect()
        }
    }
}

/// The routes of a task; empty if it has no router.
pub fn routes(task: &TaskDef) -> &[RouteDef] {
    match &task.next {
        NextTasks::Router(routes) => routes,
        NextTasks::None | NextTasks::SendTo(_) => &[],
    }
}

/// The first task that activates this one by a router or `send_to`, in the order of declaration; `None` for a static task.
pub fn activator<'a>(def: &'a MissionDef, task: &str) -> Option<&'a Arc<str>> {
    def.tasks.values().find(|other| targets(other).iter().any(|target| &***target == task)).map(|other| &other.name)
}

/// The tasks that can run in a run that enters at `entry`: that task and all that follow it. All tasks without an entry.
pub fn active_tasks<'a>(def: &'a MissionDef, entry: Option<&str>) -> HashSet<&'a Arc<str>> {
    let Some((entry, _)) = entry.and_then(|entry| def.tasks.get_key_value(entry)) else {
        return def.tasks.keys().collect();
    };
    let mut active = HashSet::from([entry]);
    let mut open = vec![entry];
    while let Some(name) = open.pop() {
        let depending = def.tasks.values().filter(|task| task.depends_on.contains(name)).map(|task| &task.name);
        let activated = def.tasks.get(name).map(targets).unwrap_or_default();
        for next in depending.chain(activated) {
            if let Some((next, _)) = def.tasks.get_key_value(next)
                && active.insert(next)
            {
                open.push(next);
            }
        }
    }
    active
}

/// The first activator of each dynamic task.
fn activators(def: &MissionDef) -> HashMap<&Arc<str>, &Arc<str>> {
    let mut found = HashMap::new();
    for task in def.tasks.values() {
        for target in targets(task) {
            found.entry(target).or_insert(&task.name);
        }
    }
    found
}

/// All violations of the rules, in the order of declaration.
pub fn problems(def: &MissionDef) -> Vec<GraphProblem> {
    let activators = activators(def);
    let mut found = Vec::new();
    for task in def.tasks.values() {
        references(def, task, &mut found);
        if let (Some(by), false) = (activators.get(&task.name), task.depends_on.is_empty()) {
            found.push(GraphProblem::DynamicDepends { task: task.name.clone(), by: Arc::clone(by) });
        }
        for target in &task.depends_on {
            if let Some(by) = activators.get(target) {
                let (task, target, by) = (task.name.clone(), target.clone(), Arc::clone(by));
                found.push(GraphProblem::DependsOnDynamic { task, target, by });
            }
        }
        let is_parallel = task.iterator.as_ref().is_some_and(|iterator| iterator.parallel);
        if is_parallel && matches!(task.next, NextTasks::Router(_)) {
            found.push(GraphProblem::ParallelRouter { task: task.name.clone() });
        }
    }
    let cycles = cycles(def);
    if cycles.is_empty() {
        redundant(def, &mut found); // "implied by" has no meaning in a cycle
    }
    found.extend(cycles.into_iter().map(|path| GraphProblem::Cycle { path }));
    let starts = |task: &TaskDef| task.depends_on.is_empty() && !activators.contains_key(&task.name);
    if !def.tasks.is_empty() && !def.tasks.values().any(starts) {
        found.push(GraphProblem::NoStart);
    }
    found
}

fn references(def: &MissionDef, task: &TaskDef, found: &mut Vec<GraphProblem>) {
    let next = if matches!(task.next, NextTasks::Router(_)) { "router" } else { "send_to" };
    let lists = [("depends_on", task.depends_on.iter().collect()), (next, targets(task))];
    for (key, names) in lists {
        let mut seen = HashSet::new();
        for target in names {
            let task = task.name.clone();
            if !seen.insert(target) {
                found.push(GraphProblem::DuplicateTarget { task, target: target.clone(), key });
            } else if *target == task {
                found.push(GraphProblem::SelfReference { task, key });
            } else if !def.tasks.contains_key(target) {
                found.push(GraphProblem::UnknownTask { task, target: target.clone(), key });
            }
        }
    }
    // Two routes to one mission are a duplicate too, but a mission and a task may have the same name.
    if let NextTasks::Router(routes) = &task.next {
        let mut seen = HashSet::new();
        for route in routes {
            if let RouteTarget::Mission(name, _) = &route.target
                && !seen.insert(&route.target)
            {
                let (task, target) = (task.name.clone(), format!("mission:{name}").into());
                found.push(GraphProblem::DuplicateTarget { task, target, key: "router" });
            }
        }
    }
}

/// One path for each group of tasks that wait for one another.
fn cycles(def: &MissionDef) -> Vec<Vec<Arc<str>>> {
    let successors = |name: &Arc<str>| -> Vec<Arc<str>> {
        let depending = def.tasks.values().filter(|task| task.depends_on.contains(name)).map(|task| task.name.clone());
        let activated = def.tasks.get(name).map(targets).unwrap_or_default();
        let activated = activated.into_iter().filter(|target| def.tasks.contains_key(*target)).cloned();
        depending.chain(activated).filter(|target| target != name).collect()
    };
    let (mut done, mut found) = (HashSet::new(), Vec::new());
    for start in def.tasks.keys() {
        let mut path: Vec<(Arc<str>, Vec<Arc<str>>)> = Vec::new();
        if done.insert(start.clone()) {
            path.push((start.clone(), successors(start)));
        }
        while let Some((_, open)) = path.last_mut() {
            let Some(next) = open.pop() else {
                path.pop();
                continue;
            };
            if let Some(at) = path.iter().position(|(name, _)| *name == next) {
                let mut cycle: Vec<Arc<str>> = path.iter().skip(at).map(|(name, _)| name.clone()).collect();
                cycle.push(next);
                found.push(cycle);
            } else if done.insert(next.clone()) {
                let successors = successors(&next);
                path.push((next, successors));
            }
        }
    }
    found
}

fn redundant(def: &MissionDef, found: &mut Vec<GraphProblem>) {
    for task in def.tasks.values().filter(|task| task.depends_on.len() > 1) {
        let implied: Vec<BTreeSet<&Arc<str>>> = task.depends_on.iter().map(|via| dependencies(def, via)).collect();
        for target in &task.depends_on {
            let mut vias = task.depends_on.iter().zip(&implied);
            if let Some((via, _)) = vias.find(|(via, implied)| *via != target && implied.contains(target)) {
                let (task, target, via) = (task.name.clone(), target.clone(), via.clone());
                found.push(GraphProblem::RedundantDependency { task, target, via });
            }
        }
    }
}

/// All tasks that a task depends on, directly or not.
fn dependencies<'a>(def: &'a MissionDef, task: &'a Arc<str>) -> BTreeSet<&'a Arc<str>> {
    let mut found = BTreeSet::new();
    let mut open = vec![task];
    while let Some(name) = open.pop() {
        let before = def.tasks.get(name).map(|task| task.depends_on.as_slice()).unwrap_or_default();
        open.extend(before.iter().filter(|target| found.insert(*target)));
    }
    found
}
