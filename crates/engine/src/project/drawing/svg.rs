//! SVG: one picture that any browser shows, without scripts, fonts or addresses of others.

use std::fmt::Write as _;

use super::{
    Line, Node, Part, Shape,
    layers::{Layout, Route, Spot, lay_out, text_width},
    mermaid::class,
};

/// Fill and stroke of each shape.
pub(super) const COLOURS: [(Shape, &str, &str); 13] = [
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

/// Fill and stroke of one shape.
pub(super) fn colours(shape: Shape) -> (&'static str, &'static str) {
    let found = COLOURS.iter().find(|(one, ..)| *one == shape);
    found.map_or(("#ffffff", "#8a93a5"), |(_, fill, stroke)| (fill, stroke))
}

/// Around each part, and above it for its title.
const MARGIN: f64 = 28.0;
const TITLE: f64 = 20.0;
const LINE: f64 = 17.0;

pub(super) fn write(parts: &[Part]) -> String {
    let laid: Vec<(&Part, Layout)> = parts.iter().map(|part| (part, lay_out(&part.nodes, &part.edges))).collect();
    #[allow(clippy::cast_precision_loss)]
    let head = |part: &Part| TITLE * (1.0 + part.notes.len() as f64) + 14.0;
    let titles =
        |part: &Part| std::iter::once(&part.title).chain(&part.notes).map(|line| text_width(line)).fold(0.0, f64::max);
    let width = laid.iter().map(|(part, layout)| layout.width.max(titles(part))).fold(0.0, f64::max) + 2.0 * MARGIN;
    let height: f64 = laid.iter().map(|(part, layout)| layout.height + head(part) + 2.0 * MARGIN).sum();
    let mut out = String::new();
    // Writing into a String cannot fail.
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" height=\"{height:.0}\" font-family=\"Helvetica, Arial, sans-serif\" font-size=\"13\">"
    );
    out.push_str(HEAD);
    let mut y = 0.0;
    for (part, layout) in &laid {
        write_part(&mut out, part, layout, (MARGIN, y + MARGIN + head(part)), y + MARGIN);
        y += layout.height + head(part) + 2.0 * MARGIN;
    }
    out.push_str("</svg>\n");
    out
}

const HEAD: &str = "<defs><marker id=\"tip\" viewBox=\"0 0 10 10\" refX=\"9\" refY=\"5\" markerWidth=\"7\" markerHeight=\"7\" orient=\"auto\"><path d=\"M0 0L10 5L0 10z\" fill=\"#5c6577\"/></marker></defs>
<style>.edge{fill:none;stroke:#5c6577;stroke-width:1.3}.call{stroke-dasharray:5 4}.link{stroke-width:2.6}.error{stroke:#c0392b;stroke-dasharray:5 4}.on{fill:#ffffff;fill-opacity:0.92}.small{font-size:12px;fill:#3c4455}.title{font-size:15px;font-weight:bold;fill:#1f2430}text{fill:#1f2430}</style>
<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>
";

fn write_part(out: &mut String, part: &Part, layout: &Layout, (x, y): (f64, f64), top: f64) {
    let _ = writeln!(out, "<text class=\"title\" x=\"{x:.1}\" y=\"{:.1}\">{}</text>", top + 4.0, escaped(&part.title));
    let mut at = top + 4.0;
    for note in &part.notes {
        at += TITLE;
        let _ = writeln!(out, "<text class=\"small\" x=\"{x:.1}\" y=\"{at:.1}\">{}</text>", escaped(note));
    }
    let _ = writeln!(out, "<g transform=\"translate({x:.1} {y:.1})\">");
    for (edge, route) in part.edges.iter().zip(&layout.routes) {
        line(out, route, edge.line);
    }
    for (edge, route) in part.edges.iter().zip(&layout.routes) {
        if let Some(spot) = route.label {
            let _ = writeln!(
                out,
                "<rect class=\"on\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\"/>",
                spot.x - spot.width / 2.0,
                spot.y - spot.height / 2.0,
                spot.width,
                spot.height
            );
            words(out, &edge.lines, spot, "small");
        }
    }
    for (node, spot) in part.nodes.iter().zip(&layout.nodes) {
        shape(out, node, *spot);
        words(out, &node.lines, *spot, "word");
    }
    out.push_str("</g>\n");
}

/// A soft line through the points, upright where it begins and ends.
fn line(out: &mut String, route: &Route, kind: Line) {
    let Some(((x, y), rest)) = route.points.split_first() else { return };
    let mut path = format!("M{x:.1} {y:.1}");
    let (mut x, mut y) = (*x, *y);
    for (to_x, to_y) in rest {
        let middle = f64::midpoint(y, *to_y);
        if (to_x - x).abs() < 0.05 || (to_y - y).abs() < 0.05 {
            let _ = write!(path, "L{to_x:.1} {to_y:.1}");
        } else {
            let _ = write!(path, "C{x:.1} {middle:.1} {to_x:.1} {middle:.1} {to_x:.1} {to_y:.1}");
        }
        (x, y) = (*to_x, *to_y);
    }
    let more = match kind {
        Line::Next => "",
        Line::Call => " call",
        Line::Link => " link",
        Line::Error => " error",
    };
    let _ = writeln!(out, "<path class=\"edge{more}\" d=\"{path}\" marker-end=\"url(#tip)\"/>");
}

fn shape(out: &mut String, node: &Node, spot: Spot) {
    let (fill, stroke) = colours(node.shape);
    let Spot { x, y, width, height } = spot;
    let (left, right, top, bottom) = (x - width / 2.0, x + width / 2.0, y - height / 2.0, y + height / 2.0);
    let name = class(node.shape);
    let look = format!("class=\"{name}\" fill=\"{fill}\" stroke=\"{stroke}\"");
    let boxed = |round: f64| {
        format!(
            "<rect {look} x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"{round:.1}\"/>"
        )
    };
    let poly = |points: &[(f64, f64)]| {
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        format!("<polygon {look} points=\"{}\"/>", points.join(" "))
    };
    let slant = 8.0;
    let drawn = match node.shape {
        Shape::Start | Shape::End => boxed(height / 2.0),
        Shape::Ask => poly(&[(left, bottom), (left + slant, top), (right, top), (right - slant, bottom)]),
        Shape::Fork => poly(&[(left, y), (x, top), (right, y), (x, bottom)]),
        Shape::Agent => poly(&[
            (left, y),
            (left + slant, top),
            (right - slant, top),
            (right, y),
            (right - slant, bottom),
            (left + slant, bottom),
        ]),
        Shape::Link => poly(&[(left, top), (right - slant, top), (right, y), (right - slant, bottom), (left, bottom)]),
        Shape::Call => {
            let inner = format!(
                "<path {look} d=\"M{:.1} {top:.1}V{bottom:.1}M{:.1} {top:.1}V{bottom:.1}\"/>",
                left + 6.0,
                right - 6.0
            );
            boxed(2.0) + &inner
        }
        Shape::Tool => boxed(2.0) + &format!("<path {look} d=\"M{left:.1} {:.1}H{right:.1}\"/>", top + 4.0),
        Shape::Say => boxed(9.0),
        Shape::Run | Shape::Set | Shape::Flow | Shape::Pattern => boxed(4.0),
    };
    let _ = writeln!(out, "{drawn}");
}

fn words(out: &mut String, lines: &[String], spot: Spot, class: &str) {
    #[allow(clippy::cast_precision_loss)]
    let first = spot.y - LINE * (lines.len() as f64 - 1.0) / 2.0 + 4.5;
    let mut y = first;
    for line in lines {
        let _ = writeln!(
            out,
            "<text class=\"{class}\" x=\"{:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{}</text>",
            spot.x,
            escaped(line)
        );
        y += LINE;
    }
}

/// Text as XML has it; characters that XML does not know become blanks.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push(' '),
            c => out.push(c),
        }
    }
    out
}
