//! Flow diagrams in Mermaid and DOT: the steps of flows, and the connections between flows. Mermaid and Graphviz compute the layout.
//!
//! The output depends only on the project, so the same project always produces the same bytes. Every format escapes all texts,
//! so that a text in the project cannot change the structure of the diagram.

mod dot;
mod labels;
mod map;
mod mermaid;
mod steps;
#[cfg(test)]
mod tests;

use super::Project;
use crate::ids::FlowId;

/// The output format of a diagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiagramFormat {
    /// A Mermaid flowchart.
    Mermaid,
    /// DOT, the language of Graphviz.
    Dot,
}

/// The kind of a node, which determines its shape and colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeKind {
    /// The start of a flow.
    Start,
    /// The end of a flow.
    End,
    /// A collect step.
    Ask,
    /// A response.
    Say,
    /// An action.
    Run,
    /// A `set_slots` step.
    Set,
    /// A step with only branches.
    Fork,
    /// A call of a flow.
    Call,
    /// An agent.
    Agent,
    /// A tool, or a tool server in the overview.
    Tool,
    /// A link to a flow.
    Link,
    /// In the overview: a flow.
    Flow,
    /// A pattern.
    Pattern,
}

/// The fill and stroke colour of each kind of node.
const COLOURS: [(NodeKind, &str, &str); 13] = [
    (NodeKind::Start, "#dfe7fd", "#5b7bd5"),
    (NodeKind::End, "#eceff4", "#8a93a5"),
    (NodeKind::Ask, "#fff3d6", "#d59f2a"),
    (NodeKind::Say, "#e6f6ea", "#4fa76a"),
    (NodeKind::Run, "#f3e8fb", "#9361c4"),
    (NodeKind::Set, "#eef1f6", "#8a93a5"),
    (NodeKind::Fork, "#ffffff", "#8a93a5"),
    (NodeKind::Call, "#dff3f7", "#3a98ab"),
    (NodeKind::Agent, "#ffe5dc", "#d96b43"),
    (NodeKind::Tool, "#fde7f1", "#c65490"),
    (NodeKind::Link, "#dfe7fd", "#5b7bd5"),
    (NodeKind::Flow, "#dfe7fd", "#5b7bd5"),
    (NodeKind::Pattern, "#eef1f6", "#8a93a5"),
];

/// The kind of an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EdgeKind {
    /// The next step.
    Next,
    /// A call, which returns.
    Call,
    /// A link, which does not return.
    Link,
    /// The next step after a failure.
    Error,
}

/// A node.
#[derive(Clone, Debug)]
pub(super) struct DiagramNode {
    pub(super) shape: NodeKind,
    /// The lines of its label.
    pub(super) lines: Vec<String>,
}

/// An edge between nodes of a subgraph.
#[derive(Clone, Debug)]
pub(super) struct DiagramEdge {
    pub(super) from: usize,
    pub(super) to: usize,
    /// The lines of its label; empty: no label.
    pub(super) lines: Vec<String>,
    pub(super) line: EdgeKind,
}

/// A flow, or the overview of all flows.
#[derive(Clone, Debug, Default)]
pub(super) struct Subgraph {
    pub(super) title: String,
    /// Further lines below the title, such as the guard.
    pub(super) notes: Vec<String>,
    pub(super) nodes: Vec<DiagramNode>,
    pub(super) edges: Vec<DiagramEdge>,
}

/// A flow diagram, independent of the output format.
#[derive(Clone, Debug)]
pub struct Diagram {
    parts: Vec<Subgraph>,
}

impl Diagram {
    /// The steps of a flow; `None` if the flow does not exist.
    pub fn of_flow(project: &Project, flow: &FlowId) -> Option<Self> {
        Some(Self { parts: vec![steps::part(project, project.flow(flow.as_str())?)] })
    }

    /// The steps of every flow of the project, patterns last.
    pub fn of_all(project: &Project) -> Self {
        let own = || map::own_flows(project);
        let flows = own().filter(|flow| !flow.is_pattern()).chain(own().filter(|flow| flow.is_pattern()));
        Self { parts: flows.map(|flow| steps::part(project, flow)).collect() }
    }

    /// The overview: all flows with their calls, links, agents and tool servers.
    pub fn map(project: &Project) -> Self {
        Self { parts: vec![map::part(project)] }
    }

    /// The diagram as text, with a line break at the end.
    pub fn write(&self, format: DiagramFormat) -> String {
        match format {
            DiagramFormat::Mermaid => mermaid::write(&self.parts),
            DiagramFormat::Dot => dot::write(&self.parts),
        }
    }
}
