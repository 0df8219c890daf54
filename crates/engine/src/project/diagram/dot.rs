//! Writes diagrams in DOT, the language of Graphviz (<https://graphviz.org/doc/info/lang.html>).

use std::fmt::Write as _;

use super::{COLOURS, DiagramNode, EdgeKind, NodeKind, Subgraph};

pub(super) fn write(parts: &[Subgraph]) -> String {
    let mut out = String::from(
        "digraph flows {\n  graph [fontname=\"Helvetica\", fontsize=12, rankdir=TB];\n  node [fontname=\"Helvetica\", fontsize=11, style=filled];\n  edge [fontname=\"Helvetica\", fontsize=10];\n",
    );
    for (at, part) in parts.iter().enumerate() {
        write_part(&mut out, part, at);
    }
    out.push_str("}\n");
    out
}

// Writing into a String cannot fail.
fn write_part(out: &mut String, part: &Subgraph, at: usize) {
    let title: Vec<&String> = std::iter::once(&part.title).chain(&part.notes).collect();
    let _ =
        writeln!(out, "  subgraph cluster_{at} {{\n    label={};\n    color=\"#c7ccd6\";", quoted(title.into_iter()));
    for (number, node) in part.nodes.iter().enumerate() {
        let (fill, stroke) = colours(node.shape);
        let _ = writeln!(
            out,
            "    p{at}n{number} [label={}, shape={}, fillcolor=\"{fill}\", color=\"{stroke}\"];",
            quoted(node.lines.iter()),
            shape(node)
        );
    }
    for edge in &part.edges {
        let _ = write!(out, "    p{at}n{} -> p{at}n{}", edge.from, edge.to);
        let mut keys = Vec::new();
        if !edge.lines.is_empty() {
            keys.push(format!("label={}", quoted(edge.lines.iter())));
        }
        match edge.line {
            EdgeKind::Next => {}
            EdgeKind::Call => keys.push("style=dashed".to_owned()),
            EdgeKind::Error => keys.push("style=dashed, color=\"#c0392b\"".to_owned()),
            EdgeKind::Link => keys.push("style=bold".to_owned()),
        }
        let keys = if keys.is_empty() { String::new() } else { format!(" [{}]", keys.join(", ")) };
        let _ = writeln!(out, "{keys};");
    }
    out.push_str("  }\n");
}

/// The fill and stroke colour of a kind of node.
fn colours(shape: NodeKind) -> (&'static str, &'static str) {
    let found = COLOURS.iter().find(|(one, ..)| *one == shape);
    found.map_or(("#ffffff", "#8a93a5"), |(_, fill, stroke)| (fill, stroke))
}

fn shape(node: &DiagramNode) -> &'static str {
    match node.shape {
        NodeKind::Start => "oval",
        NodeKind::End => "doublecircle",
        NodeKind::Ask => "parallelogram",
        NodeKind::Fork => "diamond",
        NodeKind::Call => "box3d",
        NodeKind::Agent => "hexagon",
        NodeKind::Tool => "cylinder",
        NodeKind::Link => "cds",
        NodeKind::Flow => "note",
        NodeKind::Pattern => "tab",
        NodeKind::Say | NodeKind::Run | NodeKind::Set => "box",
    }
}

/// A quoted string: quotes and backslashes escaped, lines joined by `\n`.
fn quoted<'a>(lines: impl Iterator<Item = &'a String>) -> String {
    let escaped = |line: &String| -> String {
        line.chars()
            .map(|c| match c {
                '"' => "\\\"".to_owned(),
                '\\' => "\\\\".to_owned(),
                c if c.is_control() => " ".to_owned(),
                c => c.to_string(),
            })
            .collect()
    };
    format!("\"{}\"", lines.map(escaped).collect::<Vec<_>>().join("\\n"))
}
