//! The ways through a flow: a step per node, what may follow it, and the shortest way to a step.

use petgraph::{
    algo::{astar, kosaraju_scc},
    graph::{DiGraph, NodeIndex},
    visit::{Dfs, IntoNeighbors, Reversed, Visitable},
};

use super::super::{ActionReference, Call, Flow, NextStep, Step, StepKind, Target};
use crate::{condition::Condition, limits::PATH_STEPS};

/// Why a way is taken.
#[derive(Clone, Copy, Debug)]
pub(super) enum Label<'p> {
    /// Nothing else follows.
    On,
    /// This branch holds.
    If(&'p Condition),
    /// No branch holds.
    Else,
}

/// One way out of a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way<'p> {
    /// The step it leads to; `None`: the end.
    pub(super) to: Option<usize>,
    /// Why.
    pub(super) label: Label<'p>,
    /// Whether it is taken when the step fails.
    pub(super) on_error: bool,
}

/// A flow as a graph.
pub(super) struct Graph<'p> {
    pub(super) flow: &'p Flow,
    /// The ways out of each step, in the order in which they are tried.
    pub(super) ways: Vec<Vec<Way<'p>>>,
}

impl<'p> Graph<'p> {
    pub(super) fn of(flow: &'p Flow) -> Self {
        let ways = flow.steps.iter().map(|step| ways(flow, step)).collect();
        Self { flow, ways }
    }

    pub(super) fn step(&self, at: usize) -> Option<&'p Step> {
        self.flow.steps.get(at)
    }

    pub(super) fn ways_of(&self, at: usize) -> &[Way<'p>] {
        self.ways.get(at).map_or(&[], Vec::as_slice)
    }

    /// The ways that `is_open` allows: node `n` is step `n`, and an edge carries the position of its way.
    fn open(&self, is_open: &dyn Fn(usize, usize) -> bool) -> DiGraph<(), usize, usize> {
        let mut graph = DiGraph::default();
        self.ways.iter().for_each(|_| _ = graph.add_node(()));
        for (at, ways) in self.ways.iter().enumerate() {
            let open = ways.iter().enumerate().filter(|(nth, _)| is_open(at, *nth));
            graph.extend_with_edges(open.filter_map(|(nth, way)| Some((at, way.to?, nth))));
        }
        graph
    }

    /// Steps reached from any of `from` over ways that `is_open` allows; those themselves only if a way leads back.
    pub(super) fn reached(&self, from: &[usize], is_open: &dyn Fn(usize, usize) -> bool) -> Vec<bool> {
        behind(&self.open(is_open), from, self.ways.len())
    }

    /// Steps from which a way leads to any of `to`; those themselves only if a way leads back.
    pub(super) fn leading(&self, to: &[usize], is_open: &dyn Fn(usize, usize) -> bool) -> Vec<bool> {
        behind(Reversed(&self.open(is_open)), to, self.ways.len())
    }

    /// The shortest way from the start to a step, for people: `start → ask_amount → [slots.amount > 10] → x`. `by` is added as
    /// the last mark in brackets. `None` where no way leads.
    pub(super) fn path(&self, to: usize, is_open: &dyn Fn(usize, usize) -> bool, by: Option<&str>) -> Option<String> {
        if to >= self.ways.len() {
            return None;
        }
        let graph = self.open(is_open);
        let (_, steps) = astar(&graph, NodeIndex::new(0), |node| node.index() == to, |_| 1, |_| 0)?;
        let mut parts = vec!["start".to_owned(), self.name(0)];
        for pair in steps.windows(2) {
            let [from, to] = pair else { continue };
            let way = graph.edges_connecting(*from, *to).map(|edge| *edge.weight()).min();
            parts.extend(way.and_then(|nth| said(self.ways_of(from.index()).get(nth)?)));
            parts.push(self.name(to.index()));
        }
        parts.extend(by.map(|by| format!("[{by}]")));
        if parts.len() > PATH_STEPS {
            let half = PATH_STEPS / 2;
            parts.splice(half..parts.len() - half, ["…".to_owned()]);
        }
        Some(parts.join(" → "))
    }

    /// The step as people know it: its id, or what it does.
    pub(super) fn name(&self, at: usize) -> String {
        self.step(at).map_or_else(String::new, |step| step_name(self.flow, step, at))
    }
}

/// Nodes that an edge leads to, directly or over others, from any of `from`.
fn behind<G>(graph: G, from: &[usize], count: usize) -> Vec<bool>
where
    G: IntoNeighbors<NodeId = NodeIndex<usize>> + Visitable<NodeId = NodeIndex<usize>>,
{
    let mut search = Dfs::empty(graph);
    search.stack.extend(from.iter().flat_map(|at| graph.neighbors(NodeIndex::new(*at))));
    let mut found = vec![false; count];
    while let Some(node) = search.next(graph) {
        if let Some(found) = found.get_mut(node.index()) {
            *found = true;
        }
    }
    found
}

/// Groups of nodes that lead round to one another, each in order.
pub(super) fn circles(edges: impl IntoIterator<Item = (usize, usize)>) -> Vec<Vec<usize>> {
    let graph = DiGraph::<(), (), usize>::from_edges(edges);
    let is_circle = |group: &Vec<NodeIndex<usize>>| match group.as_slice() {
        [only] => graph.contains_edge(*only, *only),
        _ => true,
    };
    let mut circles: Vec<Vec<usize>> = kosaraju_scc(&graph)
        .into_iter()
        .filter(is_circle)
        .map(|group| {
            let mut group: Vec<usize> = group.into_iter().map(NodeIndex::index).collect();
            group.sort_unstable();
            group
        })
        .collect();
    circles.sort();
    circles
}

/// The step as people know it: the id they gave it, or what it does.
pub(in super::super) fn step_name(flow: &Flow, step: &Step, at: usize) -> String {
    if !step.id.as_str().starts_with(&format!("{}_{at}_", flow.id)) {
        return step.id.to_string();
    }
    match &step.kind {
        StepKind::Collect(collect) => format!("collect {}", collect.slot),
        StepKind::Action(ActionReference::Plain(name)) => name.to_string(),
        StepKind::Action(ActionReference::Template(_)) => "action".to_owned(),
        StepKind::SetSlots(pairs) => {
            format!("set {}", pairs.iter().map(|(slot, _)| slot.as_str()).collect::<Vec<_>>().join(", "))
        }
        StepKind::Call(Call::Flow(flow)) => format!("call {flow}"),
        StepKind::Call(Call::Agent { agent, .. }) => format!("call {agent}"),
        StepKind::Call(Call::Tool { tool, .. }) => format!("call {tool}"),
        StepKind::Link(flow) => format!("link {flow}"),
        StepKind::Noop => "noop".to_owned(),
    }
}

fn said(way: &Way<'_>) -> Option<String> {
    let said = match way.label {
        Label::On if way.on_error => return Some("[on error]".to_owned()),
        Label::On => return None,
        Label::If(condition) => condition.to_string(),
        Label::Else => "else".to_owned(),
    };
    Some(if way.on_error { format!("[on error: {said}]") } else { format!("[{said}]") })
}

/// The ways by `next`, then those by `on_error`.
fn ways<'p>(flow: &'p Flow, step: &'p Step) -> Vec<Way<'p>> {
    if matches!(step.kind, StepKind::Link(_)) {
        return Vec::new();
    }
    let failing = step.on_error.iter().flat_map(|next| ways_by(flow, next, true));
    ways_by(flow, &step.next, false).into_iter().chain(failing).collect()
}

fn ways_by<'p>(flow: &'p Flow, next: &'p NextStep, on_error: bool) -> Vec<Way<'p>> {
    let to = |target: &Target| match target {
        Target::Step(id) => flow.index.get(id).copied(),
        Target::End => None,
    };
    let way = |target: &Target, label: Label<'p>| Way { to: to(target), label, on_error };
    match next {
        NextStep::Go(target) => vec![way(target, Label::On)],
        NextStep::Branch { branches, otherwise } => {
            let branches = branches.iter().map(|one| way(&one.target, Label::If(&one.condition)));
            branches.chain(otherwise.as_ref().map(|otherwise| way(&otherwise.target, Label::Else))).collect()
        }
    }
}
