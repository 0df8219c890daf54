//! The control flow graph of a flow: a node for each step, an edge for each possible next step, and shortest paths.

use petgraph::{
    algo::{astar, kosaraju_scc},
    graph::{DiGraph, NodeIndex},
    visit::{Dfs, IntoNeighbors, Reversed, Visitable},
};

use super::super::{ActionReference, Call, Flow, NextStep, Step, StepKind, Target};
use crate::{condition::Condition, limits::PATH_STEPS};

/// When an edge is taken.
#[derive(Clone, Copy, Debug)]
pub(super) enum EdgeLabel<'p> {
    /// Always.
    Always,
    /// If this is the first condition that is true.
    If(&'p Condition),
    /// If no condition is true.
    Else,
}

/// An edge from a step to its next step.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlowEdge<'p> {
    /// The position of the next step; `None`: the end.
    pub(super) to: Option<usize>,
    /// When it is taken.
    pub(super) label: EdgeLabel<'p>,
    /// Whether it is taken when the step fails.
    pub(super) on_error: bool,
}

/// The control flow graph of a flow.
pub(super) struct FlowGraph<'p> {
    pub(super) flow: &'p Flow,
    /// The edges of each step, in the order of evaluation.
    pub(super) edges: Vec<Vec<FlowEdge<'p>>>,
}

impl<'p> FlowGraph<'p> {
    pub(super) fn of(flow: &'p Flow) -> Self {
        let edges = flow.steps.iter().map(|step| edges(flow, step)).collect();
        Self { flow, edges }
    }

    pub(super) fn step(&self, at: usize) -> Option<&'p Step> {
        self.flow.steps.get(at)
    }

    pub(super) fn edges_of(&self, at: usize) -> &[FlowEdge<'p>] {
        self.edges.get(at).map_or(&[], Vec::as_slice)
    }

    /// The graph of the edges that `is_open` allows. Node `n` is step `n`; the weight of an edge is its position in the step.
    fn open(&self, is_open: &dyn Fn(usize, usize) -> bool) -> DiGraph<(), usize, usize> {
        let mut graph = DiGraph::default();
        self.edges.iter().for_each(|_| _ = graph.add_node(()));
        for (at, edges) in self.edges.iter().enumerate() {
            let open = edges.iter().enumerate().filter(|(nth, _)| is_open(at, *nth));
            graph.extend_with_edges(open.filter_map(|(nth, edge)| Some((at, edge.to?, nth))));
        }
        graph
    }

    /// The steps that are reachable from any of `from` over open edges. A step of `from` is included only if it is in a cycle.
    pub(super) fn reached(&self, from: &[usize], is_open: &dyn Fn(usize, usize) -> bool) -> Vec<bool> {
        reachable(&self.open(is_open), from, self.edges.len())
    }

    /// The steps from which any of `to` is reachable over open edges. A step of `to` is included only if it is in a cycle.
    pub(super) fn leading(&self, to: &[usize], is_open: &dyn Fn(usize, usize) -> bool) -> Vec<bool> {
        reachable(Reversed(&self.open(is_open)), to, self.edges.len())
    }

    /// The shortest path from the start to a step, for a message: `start → ask_amount → [slots.amount > 10] → x`. `by` is added
    /// in brackets at the end. `None` if the step is unreachable.
    pub(super) fn path(&self, to: usize, is_open: &dyn Fn(usize, usize) -> bool, by: Option<&str>) -> Option<String> {
        if to >= self.edges.len() {
            return None;
        }
        let graph = self.open(is_open);
        let (_, steps) = astar(&graph, NodeIndex::new(0), |node| node.index() == to, |_| 1, |_| 0)?;
        let mut parts = vec!["start".to_owned(), self.name(0)];
        for pair in steps.windows(2) {
            let [from, to] = pair else { continue };
            let edge = graph.edges_connecting(*from, *to).map(|edge| *edge.weight()).min();
            parts.extend(edge.and_then(|nth| label(self.edges_of(from.index()).get(nth)?)));
            parts.push(self.name(to.index()));
        }
        parts.extend(by.map(|by| format!("[{by}]")));
        if parts.len() > PATH_STEPS {
            let half = PATH_STEPS / 2;
            parts.splice(half..parts.len() - half, ["…".to_owned()]);
        }
        Some(parts.join(" → "))
    }

    /// The name of a step for messages: its id, or what it does.
    pub(super) fn name(&self, at: usize) -> String {
        self.step(at).map_or_else(String::new, |step| step_name(self.flow, step, at))
    }
}

/// The nodes that are reachable from any of `from` over at least one edge.
fn reachable<G>(graph: G, from: &[usize], count: usize) -> Vec<bool>
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

/// The strongly connected components with a cycle, each sorted.
pub(super) fn cyclic_components(edges: impl IntoIterator<Item = (usize, usize)>) -> Vec<Vec<usize>> {
    let graph = DiGraph::<(), (), usize>::from_edges(edges);
    let is_circle = |group: &Vec<NodeIndex<usize>>| match group.as_slice() {
        [only] => graph.contains_edge(*only, *only),
        _ => true,
    };
    let mut cycles: Vec<Vec<usize>> = kosaraju_scc(&graph)
        .into_iter()
        .filter(is_circle)
        .map(|group| {
            let mut group: Vec<usize> = group.into_iter().map(NodeIndex::index).collect();
            group.sort_unstable();
            group
        })
        .collect();
    cycles.sort();
    cycles
}

/// The name of a step for messages: the id from the file, or what the step does.
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

fn label(edge: &FlowEdge<'_>) -> Option<String> {
    let label = match edge.label {
        EdgeLabel::Always if edge.on_error => return Some("[on error]".to_owned()),
        EdgeLabel::Always => return None,
        EdgeLabel::If(condition) => condition.to_string(),
        EdgeLabel::Else => "else".to_owned(),
    };
    Some(if edge.on_error { format!("[on error: {label}]") } else { format!("[{label}]") })
}

/// The edges of `next`, then those of `on_error`.
fn edges<'p>(flow: &'p Flow, step: &'p Step) -> Vec<FlowEdge<'p>> {
    if matches!(step.kind, StepKind::Link(_)) {
        return Vec::new();
    }
    let failing = step.on_error.iter().flat_map(|next| ways_by(flow, next, true));
    ways_by(flow, &step.next, false).into_iter().chain(failing).collect()
}

fn ways_by<'p>(flow: &'p Flow, next: &'p NextStep, on_error: bool) -> Vec<FlowEdge<'p>> {
    let to = |target: &Target| match target {
        Target::Step(id) => flow.index.get(id).copied(),
        Target::End => None,
    };
    let edge = |target: &Target, label: EdgeLabel<'p>| FlowEdge { to: to(target), label, on_error };
    match next {
        NextStep::Go(target) => vec![edge(target, EdgeLabel::Always)],
        NextStep::Branch { branches, otherwise } => {
            let branches = branches.iter().map(|one| edge(&one.target, EdgeLabel::If(&one.condition)));
            branches.chain(otherwise.as_ref().map(|otherwise| edge(&otherwise.target, EdgeLabel::Else))).collect()
        }
    }
}
