//! Flows as pictures: Mermaid for pages, DOT for Graphviz, which lay them out.
//!
//! * What for: to see at a glance how flows run and how they hang together.
//! * Entry: [`Diagram::of_flow`], [`Diagram::of_all`] and [`Diagram::map`], then [`Diagram::write`].
//! * Must never: depend on anything but the project, so that the same project always gives the same bytes; or let a text of the
//!   author break out of its place: every format escapes what it is given (`tests.rs`).

mod dot;
mod map;
mod mermaid;
mod steps;
#[cfg(test)]
mod tests;
mod words;

use super::Project;
use crate::ids::FlowId;

/// How a picture is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiagramFormat {
    /// Mermaid flowchart, as Markdown pages show it.
    Mermaid,
    /// DOT, as Graphviz reads it.
    Dot,
}

/// What a node is, which decides its shape and colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// Where a flow begins.
    Start,
    /// Where it ends.
    End,
    /// A question.
    Ask,
    /// A response.
    Say,
    /// An action.
    Run,
    /// Slots are set.
    Set,
    /// Only branches.
    Fork,
    /// Another flow, and back.
    Call,
    /// An agent.
    Agent,
    /// A tool of a server.
    Tool,
    /// Another flow, and not back.
    Link,
    /// A whole flow.
    Flow,
    /// A pattern.
    Pattern,
}

/// Fill and stroke of each shape.
const COLOURS: [(Shape, &str, &str); 13] = [
    (Shape::Start, "#dfe7fd", "#5b7bd5"),
    (Shape::End, "#eceff4", "#8a93a5"),
    (Shape::Ask, "#fff3d6", "#d59f2a"),
    (Shape::Say, "#e6f6ea", "#4fa76a"),
    (Shape::Run, "#f3e8fb", "#9361c4"),
    (Shape::Set, "#eef1f6", "#8a93a5"),
    (Shape::Fork, "#ffffff", "#8a93a5"),
    (Shape::Call, "#dff3f7", "#3a98ab"),
    (Shape::Agent, "#ffe5dc", "#d96b43"),
    (Shape::Tool, "#fde7f1", "#c65490"),
    (Shape::Link, "#dfe7fd", "#5b7bd5"),
    (Shape::Flow, "#dfe7fd", "#5b7bd5"),
    (Shape::Pattern, "#eef1f6", "#8a93a5"),
];

/// What an edge means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// What follows.
    Next,
    /// There and back.
    Call,
    /// There and not back.
    Link,
    /// What follows a failure.
    Error,
}

/// A node.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) shape: Shape,
    /// Its text, line by line.
    pub(super) lines: Vec<String>,
}

/// An edge between nodes of one part.
#[derive(Clone, Debug)]
pub(super) struct Edge {
    pub(super) from: usize,
    pub(super) to: usize,
    /// Its text, line by line; empty for none.
    pub(super) lines: Vec<String>,
    pub(super) line: Line,
}

/// Nodes that belong together: one flow, or the map of all.
#[derive(Clone, Debug, Default)]
pub(super) struct Part {
    pub(super) title: String,
    /// What else there is to know, such as the guard.
    pub(super) notes: Vec<String>,
    pub(super) nodes: Vec<Node>,
    pub(super) edges: Vec<Edge>,
}

/// A picture before it is written.
#[derive(Clone, Debug)]
pub struct Diagram {
    parts: Vec<Part>,
}

impl Diagram {
    /// The steps of one flow; `None` if there is none of this id.
    pub fn of_flow(project: &Project, flow: &FlowId) -> Option<Self> {
        Some(Self { parts: vec![steps::part(project, project.flow(flow.as_str())?)] })
    }

    /// The steps of every flow of the author, patterns last.
    pub fn of_all(project: &Project) -> Self {
        let own = || map::own_flows(project);
        let flows = own().filter(|flow| !flow.is_pattern()).chain(own().filter(|flow| flow.is_pattern()));
        Self { parts: flows.map(|flow| steps::part(project, flow)).collect() }
    }

    /// All flows and how they hang together: calls, links, agents, tool servers.
    pub fn map(project: &Project) -> Self {
        Self { parts: vec![map::part(project)] }
    }

    /// The picture as text, with a line break at its end.
    pub fn write(&self, format: DiagramFormat) -> String {
        match format {
            DiagramFormat::Mermaid => mermaid::write(&self.parts),
            DiagramFormat::Dot => dot::write(&self.parts),
        }
    }
}
