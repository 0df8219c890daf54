//! Writes diagrams as Mermaid flowcharts (<https://mermaid.js.org/syntax/flowchart.html>).

use std::fmt::Write as _;

use super::{COLOURS, DiagramNode, EdgeKind, NodeKind, Subgraph};

pub(super) fn write(parts: &[Subgraph]) -> String {
    let mut out = "flowchart TD\n".to_owned();
    for (at, part) in parts.iter().enumerate() {
        write_part(&mut out, part, at);
    }
    for (shape, fill, stroke) in COLOURS {
        let _ = writeln!(out, "  classDef {} fill:{fill},stroke:{stroke},color:#1f2430", class(shape));
    }
    out
}

// Writing into a String cannot fail.
fn write_part(out: &mut String, part: &Subgraph, at: usize) {
    let title = std::iter::once(&part.title).chain(&part.notes).map(|line| escaped(line)).collect::<Vec<_>>();
    let _ = writeln!(out, "  subgraph part{at}[\"{}\"]", title.join("<br/>"));
    for (number, node) in part.nodes.iter().enumerate() {
        let _ = writeln!(out, "    {}{}:::{}", id(at, number), shaped(node), class(node.shape));
    }
    for edge in &part.edges {
        let arrow = match edge.line {
            EdgeKind::Next => "-->",
            EdgeKind::Call | EdgeKind::Error => "-.->",
            EdgeKind::Link => "==>",
        };
        let label = if edge.lines.is_empty() { String::new() } else { format!("|\"{}\"|", joined(&edge.lines)) };
        let _ = writeln!(out, "    {} {arrow}{label} {}", id(at, edge.from), id(at, edge.to));
    }
    out.push_str("  end\n");
}

fn id(part: usize, node: usize) -> String {
    format!("p{part}n{node}")
}

fn shaped(node: &DiagramNode) -> String {
    let text = joined(&node.lines);
    match node.shape {
        NodeKind::Start => format!("([\"{text}\"])"),
        NodeKind::End => format!("((\"{text}\"))"),
        NodeKind::Ask => format!("[/\"{text}\"/]"),
        NodeKind::Fork => format!("{{\"{text}\"}}"),
        NodeKind::Call => format!("[[\"{text}\"]]"),
        NodeKind::Agent => format!("{{{{\"{text}\"}}}}"),
        NodeKind::Tool => format!("[(\"{text}\")]"),
        NodeKind::Link => format!(">\"{text}\"]"),
        NodeKind::Set | NodeKind::Flow | NodeKind::Pattern => format!("(\"{text}\")"),
        NodeKind::Say | NodeKind::Run => format!("[\"{text}\"]"),
    }
}

/// The CSS class of a kind of node, with a prefix because some words are reserved in Mermaid.
fn class(shape: NodeKind) -> &'static str {
    match shape {
        NodeKind::Start => "kStart",
        NodeKind::End => "kEnd",
        NodeKind::Ask => "kAsk",
        NodeKind::Say => "kSay",
        NodeKind::Run => "kRun",
        NodeKind::Set => "kSet",
        NodeKind::Fork => "kFork",
        NodeKind::Call => "kCall",
        NodeKind::Agent => "kAgent",
        NodeKind::Tool => "kTool",
        NodeKind::Link => "kLink",
        NodeKind::Flow => "kFlow",
        NodeKind::Pattern => "kPattern",
    }
}

fn joined(lines: &[String]) -> String {
    lines.iter().map(|line| escaped(line)).collect::<Vec<_>>().join("<br/>")
}

/// Escapes characters with a meaning in Mermaid or HTML as numeric entity codes. A backtick would start Markdown.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' | '#' | '&' | '<' | '>' | '`' => {
                let _ = write!(out, "#{};", u32::from(c));
            }
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}
