//! Mermaid flowcharts.

use std::fmt::Write as _;

use super::{COLOURS, Line, Node, Part, Shape};

pub(super) fn write(parts: &[Part]) -> String {
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
fn write_part(out: &mut String, part: &Part, at: usize) {
    let title = std::iter::once(&part.title).chain(&part.notes).map(|line| escaped(line)).collect::<Vec<_>>();
    let _ = writeln!(out, "  subgraph part{at}[\"{}\"]", title.join("<br/>"));
    for (number, node) in part.nodes.iter().enumerate() {
        let _ = writeln!(out, "    {}{}:::{}", id(at, number), shaped(node), class(node.shape));
    }
    for edge in &part.edges {
        let arrow = match edge.line {
            Line::Next => "-->",
            Line::Call | Line::Error => "-.->",
            Line::Link => "==>",
        };
        let label = if edge.lines.is_empty() { String::new() } else { format!("|\"{}\"|", joined(&edge.lines)) };
        let _ = writeln!(out, "    {} {arrow}{label} {}", id(at, edge.from), id(at, edge.to));
    }
    out.push_str("  end\n");
}

fn id(part: usize, node: usize) -> String {
    format!("p{part}n{node}")
}

fn shaped(node: &Node) -> String {
    let text = joined(&node.lines);
    match node.shape {
        Shape::Start => format!("([\"{text}\"])"),
        Shape::End => format!("((\"{text}\"))"),
        Shape::Ask => format!("[/\"{text}\"/]"),
        Shape::Fork => format!("{{\"{text}\"}}"),
        Shape::Call => format!("[[\"{text}\"]]"),
        Shape::Agent => format!("{{{{\"{text}\"}}}}"),
        Shape::Tool => format!("[(\"{text}\")]"),
        Shape::Link => format!(">\"{text}\"]"),
        Shape::Set | Shape::Flow | Shape::Pattern => format!("(\"{text}\")"),
        Shape::Say | Shape::Run => format!("[\"{text}\"]"),
    }
}

/// A name for each shape; with a letter in front, since some words mean something to Mermaid.
fn class(shape: Shape) -> &'static str {
    match shape {
        Shape::Start => "kStart",
        Shape::End => "kEnd",
        Shape::Ask => "kAsk",
        Shape::Say => "kSay",
        Shape::Run => "kRun",
        Shape::Set => "kSet",
        Shape::Fork => "kFork",
        Shape::Call => "kCall",
        Shape::Agent => "kAgent",
        Shape::Tool => "kTool",
        Shape::Link => "kLink",
        Shape::Flow => "kFlow",
        Shape::Pattern => "kPattern",
    }
}

fn joined(lines: &[String]) -> String {
    lines.iter().map(|line| escaped(line)).collect::<Vec<_>>().join("<br/>")
}

/// Characters that mean something to Mermaid or to the page around it, as its entity codes; a number code needs no knowledge of
/// names. A backtick would begin Markdown.
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
