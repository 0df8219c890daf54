//! The overview: a node for each flow, agent and tool server, and an edge for each kind of connection between two of them.

use std::collections::BTreeMap;

use indexmap::{IndexMap, IndexSet};

use super::{
    super::{Call, Flow, Project, StepKind},
    DiagramEdge, DiagramNode, EdgeKind, NodeKind, Subgraph,
    labels::wrap,
};

/// Flows that the project itself defines.
pub(super) fn own_flows(project: &Project) -> impl Iterator<Item = &Flow> {
    project.flows.values().map(|flow| &**flow).filter(|flow| !flow.builtin)
}

pub(super) fn part(project: &Project) -> Subgraph {
    let mut map = OverviewBuilder { project, nodes: IndexMap::new(), edges: BTreeMap::new() };
    for flow in
        own_flows(project).filter(|flow| !flow.is_pattern()).chain(own_flows(project).filter(|f| f.is_pattern()))
    {
        map.flow(flow.id.as_str());
    }
    for flow in own_flows(project) {
        map.ways(flow);
    }
    let edges = map.edges.into_iter().map(|((from, to, line), names)| {
        let names: Vec<String> = names.into_iter().collect();
        DiagramEdge {
            from,
            to,
            lines: wrap(&names.join(", ")),
            line: [EdgeKind::Call, EdgeKind::Link].get(line).copied().unwrap_or(EdgeKind::Next),
        }
    });
    let edges = edges.collect();
    Subgraph { title: "all flows".to_owned(), notes: Vec::new(), nodes: map.nodes.into_values().collect(), edges }
}

struct OverviewBuilder<'p> {
    project: &'p Project,
    /// Nodes by a key of kind and name.
    nodes: IndexMap<String, DiagramNode>,
    /// The labels of the edges, by source, target and kind.
    edges: BTreeMap<(usize, usize, usize), IndexSet<String>>,
}

impl OverviewBuilder<'_> {
    fn place(&mut self, key: String, node: impl FnOnce() -> DiagramNode) -> usize {
        let entry = self.nodes.entry(key);
        let at = entry.index();
        entry.or_insert_with(node);
        at
    }

    fn flow(&mut self, id: &str) -> usize {
        let flow = self.project.flow(id);
        let is_pattern = id.starts_with("pattern_");
        self.place(format!("flow {id}"), || {
            let mut lines = vec![id.to_owned()];
            if let Some(guard) = flow.and_then(|flow| flow.guard.as_ref()) {
                lines.extend(match guard.as_constant() {
                    Some(false) => vec!["part of others".to_owned()],
                    _ => wrap(&format!("if {guard}")),
                });
            }
            for trigger in flow.iter().flat_map(|flow| &flow.nlu_triggers) {
                lines.push(format!("/{}", trigger.intent));
            }
            DiagramNode { shape: if is_pattern { NodeKind::Pattern } else { NodeKind::Flow }, lines }
        })
    }

    fn ways(&mut self, flow: &Flow) {
        let from = self.flow(flow.id.as_str());
        for step in &flow.steps {
            let (to, line, name) = match &step.kind {
                StepKind::Link(target) => (self.flow(target.as_str()), 1, "link".to_owned()),
                StepKind::Call(Call::Flow(target)) => (self.flow(target.as_str()), 0, "call".to_owned()),
                StepKind::Call(Call::Agent { agent, .. }) => {
                    let node = || DiagramNode { shape: NodeKind::Agent, lines: vec![format!("agent {agent}")] };
                    (self.place(format!("agent {agent}"), node), 0, String::new())
                }
                StepKind::Call(Call::Tool { server, tool, .. }) => {
                    let node = || DiagramNode { shape: NodeKind::Tool, lines: vec![format!("server {server}")] };
                    (self.place(format!("server {server}"), node), 0, tool.to_string())
                }
                _ => continue,
            };
            let names = self.edges.entry((from, to, line)).or_default();
            if !name.is_empty() {
                names.insert(name);
            }
        }
    }
}
