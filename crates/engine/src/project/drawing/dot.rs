//! DOT, the language of Graphviz.

use std::fmt::Write as _;

use super::{COLOURS, Line, Node, Part, Shape};

pub(super) fn write(parts: &[Part]) -> String {
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
fn write_part(out: &mut String, part: &Part, at: usize) {
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
            Line::Next => {}
            Line::Call => keys.push("style=dashed".to_owned()),
            Line::Error => keys.push("style=dashed, color=\"#c0392b\"".to_owned()),
            Line::Link => keys.push("style=bold".to_owned()),
        }
        let keys = if keys.is_empty() { String::new() } else { format!(" [{}]", keys.join(", ")) };
        let _ = writeln!(out, "{keys};");
    }
    out.push_str("  }\n");
}

/// Fill and stroke of one shape.
fn colours(shape: Shape) -> (&'static str, &'static str) {
    let found = COLOURS.iter().find(|(one, ..)| *one == shape);
    found.map_or(("#ffffff", "#8a93a5"), |(_, fill, stroke)| (fill, stroke))
}

fn shape(node: &Node) -> &'static str {
    match node.shape {
        Shape::Start => "oval",
        Shape::End => "doublecircle",
        Shape::Ask => "parallelogram",
        Shape::Fork => "diamond",
        Shape::Call => "box3d",
        Shape::Agent => "hexagon",
        Shape::Tool => "cylinder",
        Shape::Link => "cds",
        Shape::Flow => "note",
        Shape::Pattern => "tab",
        Shape::Say | Shape::Run | Shape::Set => "box",
    }
}

/// A quoted text: quotes and backslashes escaped, lines joined by `\n`.
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
