//! The map: a node per flow, agent and tool server, an edge per way from one to another.

use std::collections::BTreeMap;

use indexmap::{IndexMap, IndexSet};

use super::{
    super::{Call, Flow, Project, StepKind},
    Edge, Line, Node, Part, Shape,
    words::wrap,
};

/// Flows that the project itself defines.
pub(super) fn own_flows(project: &Project) -> impl Iterator<Item = &Flow> {
    project.flows.values().map(|flow| &**flow).filter(|flow| !flow.builtin)
}

pub(super) fn part(project: &Project) -> Part {
    let mut map = Map { project, nodes: IndexMap::new(), edges: BTreeMap::new() };
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
        Edge {
            from,
            to,
            lines: wrap(&names.join(", ")),
            line: [Line::Call, Line::Link].get(line).copied().unwrap_or(Line::Next),
        }
    });
    let edges = edges.collect();
    Part { title: "all flows".to_owned(), notes: Vec::new(), nodes: map.nodes.into_values().collect(), edges }
}

struct Map<'p> {
    project: &'p Project,
    /// By a key that keeps kinds apart.
    nodes: IndexMap<String, Node>,
    /// From, to, kind: what is called on this way.
    edges: BTreeMap<(usize, usize, usize), IndexSet<String>>,
}

impl Map<'_> {
    fn place(&mut self, key: String, node: impl FnOnce() -> Node) -> usize {
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
            Node { shape: if is_pattern { Shape::Pattern } else { Shape::Flow }, lines }
        })
    }

    fn ways(&mut self, flow: &Flow) {
        let from = self.flow(flow.id.as_str());
        for step in &flow.steps {
            let (to, line, name) = match &step.kind {
                StepKind::Link(target) => (self.flow(target.as_str()), 1, "link".to_owned()),
                StepKind::Call(Call::Flow(target)) => (self.flow(target.as_str()), 0, "call".to_owned()),
                StepKind::Call(Call::Agent { agent, .. }) => {
                    let node = || Node { shape: Shape::Agent, lines: vec![format!("agent {agent}")] };
                    (self.place(format!("agent {agent}"), node), 0, String::new())
                }
                StepKind::Call(Call::Tool { server, tool, .. }) => {
                    let node = || Node { shape: Shape::Tool, lines: vec![format!("server {server}")] };
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
