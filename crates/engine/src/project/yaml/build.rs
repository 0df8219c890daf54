//! Builds the tree from the events of the parser.

use std::collections::{HashMap, HashSet};

use granit_parser::{Event, Parser, ScalarStyle, Span, Tag};
use serde_json::Number;

use super::{Entry, Node, Style, Value};
use crate::{
    finding::{Findings, SourceLocation},
    limits::{YAML_ALIAS_NODES, YAML_ALIASES, YAML_DEPTH, YAML_NODES},
    project::SourceFile,
};

/// A list or map whose end event has not been read yet.
struct OpenCollection {
    node: Node,
    anchor: usize,
    /// A key whose value has not been read yet.
    key: Option<Node>,
    /// The keys read so far, with their lines.
    seen: HashMap<String, u32>,
    /// The values of `<<`. They are merged at the end of the map, because its own keys take precedence.
    merged: Vec<Node>,
    size: usize,
    height: usize,
}

/// A value with an anchor, which aliases can refer to.
struct AnchoredValue {
    node: Node,
    size: usize,
    height: usize,
}

/// Builds the tree with an explicit stack, so that nesting in the file cannot overflow the call stack.
pub(super) struct Builder<'a> {
    file: &'a SourceFile,
    findings: &'a mut Findings,
    open: Vec<OpenCollection>,
    anchors: HashMap<usize, AnchoredValue>,
    root: Option<Node>,
    nodes: usize,
    aliases: usize,
    repeated: usize,
}

/// Reading was aborted; the reason is in the findings.
struct Aborted;

impl<'a> Builder<'a> {
    pub(super) fn new(file: &'a SourceFile, findings: &'a mut Findings) -> Self {
        let (open, anchors) = (Vec::new(), HashMap::new());
        Self { file, findings, open, anchors, root: None, nodes: 0, aliases: 0, repeated: 0 }
    }

    /// A builder that has already read this number of values.
    #[cfg(test)]
    pub(super) fn after(self, nodes: usize) -> Self {
        Self { nodes, ..self }
    }

    /// Reads the whole file.
    pub(super) fn read(mut self) -> Option<Node> {
        let file = self.file;
        let mut documents = 0;
        for event in Parser::new_from_str(&file.text) {
            let (event, span) = match event {
                Ok(event) => event,
                Err(error) => {
                    let message = format!("this is not valid YAML: {}", error.info());
                    let help = "Check the indentation, the quotes and the colons of this line and of the line above.";
                    let marker = error.marker();
                    self.findings.error("F0102", &self.place_of(marker.line(), marker.col()), message, help);
                    return None;
                }
            };
            if matches!(event, Event::DocumentStart(..)) {
                documents += 1;
                if documents > 1 {
                    let message = "a second YAML document starts here; a file may contain only one";
                    let help = "Remove the `---` line, or move the second document to another file.";
                    self.findings.error("F0102", &self.place_of(span.start.line(), span.start.col()), message, help);
                    return None;
                }
            }
            self.event(event, &span).ok()?;
        }
        Some(self.root.unwrap_or_else(|| Node::at(Value::Null, 1, 1, 1, Style::Plain)))
    }

    fn event(&mut self, event: Event<'_>, span: &Span) -> Result<(), Aborted> {
        let (node, anchor, tag) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                (self.scalar(text.into_owned(), style, span, tag.as_deref()), anchor, tag)
            }
            Event::SequenceStart(_, anchor, tag) => {
                (self.node(Value::List(Vec::new()), span, Style::Collection), anchor, tag)
            }
            Event::MappingStart(_, anchor, tag) => {
                (self.node(Value::Map(Vec::new()), span, Style::Collection), anchor, tag)
            }
            Event::SequenceEnd | Event::MappingEnd => return self.close(),
            Event::Alias(anchor) => return self.alias(anchor, span),
            _ => return Ok(()),
        };
        if tag.as_deref().is_some_and(|tag| tag.core_suffix().is_none()) {
            let message = "this YAML tag is not supported";
            let help = "Remove the tag.";
            self.findings.error("F0105", &node.place(&self.file.path), message, help);
        }
        self.nodes += 1;
        if self.nodes > YAML_NODES {
            return Err(self.too_much(&node, &format!("more than {YAML_NODES} values")));
        }
        if node.style != Style::Collection {
            return self.attach(node, anchor, 1, 0);
        }
        if self.open.len() >= YAML_DEPTH {
            return Err(self.too_much(&node, &format!("more than {YAML_DEPTH} levels of nesting")));
        }
        let (seen, merged) = (HashMap::new(), Vec::new());
        self.open.push(OpenCollection { node, anchor, key: None, seen, merged, size: 1, height: 0 });
        Ok(())
    }

    fn close(&mut self) -> Result<(), Aborted> {
        let Some(mut open) = self.open.pop() else { return Ok(()) };
        for node in std::mem::take(&mut open.merged) {
            self.merge(node, &mut open.node);
        }
        if let Value::Map(entries) = &open.node.value {
            // A finding about a map underlines its first key.
            let first =
                entries.first().filter(|entry| (entry.at.line, entry.at.column) == (open.node.line, open.node.column));
            open.node.width = first.map_or(1, |entry| entry.at.width);
        }
        self.attach(open.node, open.anchor, open.size, open.height + 1)
    }

    fn alias(&mut self, anchor: usize, span: &Span) -> Result<(), Aborted> {
        let here = self.node(Value::Null, span, Style::Plain);
        self.aliases += 1;
        let Some(AnchoredValue { node, size, height }) = self.anchors.get(&anchor) else {
            let message = "this alias is part of the value that it refers to";
            self.findings.error(
                "F0102",
                &here.place(&self.file.path),
                message,
                "Write the value instead of the alias.",
            );
            return Err(Aborted);
        };
        let (size, height) = (*size, *height);
        self.repeated += size;
        if self.aliases > YAML_ALIASES || self.repeated > YAML_ALIAS_NODES {
            return Err(self
                .too_much(&here, &format!("more than {YAML_ALIASES} aliases or {YAML_ALIAS_NODES} repeated values")));
        }
        if self.open.len() + height > YAML_DEPTH {
            return Err(self.too_much(&here, &format!("more than {YAML_DEPTH} levels of nesting")));
        }
        let node = node.clone();
        self.attach(node, 0, size, height)
    }

    /// Adds a complete value to the open list or map.
    fn attach(&mut self, node: Node, anchor: usize, size: usize, height: usize) -> Result<(), Aborted> {
        if anchor != 0 {
            self.repeated += size;
            if self.repeated > YAML_ALIAS_NODES {
                return Err(self.too_much(&node, &format!("more than {YAML_ALIAS_NODES} values with anchors")));
            }
            self.anchors.insert(anchor, AnchoredValue { node: node.clone(), size, height });
        }
        let Some(open) = self.open.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        open.size += size;
        open.height = open.height.max(height);
        match (&mut open.node.value, open.key.take()) {
            (Value::List(items), _) => items.push(node),
            (Value::Map(_), None) => open.key = Some(node),
            (Value::Map(_), Some(key)) => self.pair(key, node),
            _ => {}
        }
        Ok(())
    }

    fn pair(&mut self, at: Node, node: Node) {
        let file = &self.file.path;
        let Some(open) = self.open.last_mut() else { return };
        let Some(name) = at.text().map(str::to_owned).or_else(|| at.is_null().then(|| "null".to_owned())) else {
            let message = format!("a key must be a string, but this is {}", at.kind());
            self.findings.error("F0108", &at.place(file), message, "Write a string as the key.");
            return;
        };
        if name == "<<" && at.style == Style::Plain {
            open.merged.push(node);
        } else if let Some(first) = open.seen.get(&name) {
            let message = format!("duplicate key `{name}`, first on line {first}");
            let same = |entry: &Entry| entry.key == name && entry.node.json() == node.json();
            if matches!(&open.node.value, Value::Map(entries) if entries.iter().any(same)) {
                let message = format!("{message}, with the same value");
                self.findings.warning("F0104", &at.place(file), message, "Remove one of the two.");
            } else {
                let help = "Remove one of the two.";
                self.findings.error("F0104", &at.place(file), message, help);
            }
        } else if let Value::Map(entries) = &mut open.node.value {
            open.seen.insert(name.clone(), at.line);
            entries.push(Entry { key: name, at, node });
        }
    }

    /// `<<: *other` adds the keys that the map does not have itself; of several maps the first takes precedence.
    fn merge(&mut self, from: Node, into: &mut Node) {
        let sources = match from.value {
            Value::List(items) => items,
            _ => vec![from],
        };
        let Value::Map(entries) = &mut into.value else { return };
        for source in sources {
            let place = source.place(&self.file.path);
            let Value::Map(added) = source.value else {
                let message = "`<<` needs a map to merge, but this is something else";
                self.findings.error("F0108", &place, message, "Write `<<: *name_of_a_map`.");
                continue;
            };
            let own: HashSet<String> = entries.iter().map(|entry| entry.key.clone()).collect();
            entries.extend(added.into_iter().filter(|entry| !own.contains(&entry.key)));
        }
    }

    fn scalar(&self, text: String, style: ScalarStyle, span: &Span, tag: Option<&Tag>) -> Node {
        let is_text = tag.and_then(Tag::core_suffix) == Some("str");
        let style = match style {
            ScalarStyle::Plain => Style::Plain,
            ScalarStyle::SingleQuoted | ScalarStyle::DoubleQuoted => Style::Quoted,
            ScalarStyle::Literal | ScalarStyle::Folded => Style::Block,
        };
        if style != Style::Plain || is_text {
            return self.node(Value::Text(text), span, style);
        }
        let value = plain(&text);
        let raw = if matches!(value, Value::Text(_)) { None } else { Some(text.into_boxed_str()) };
        Node { raw, ..self.node(value, span, style) }
    }

    fn node(&self, value: Value, span: &Span, style: Style) -> Node {
        let source = span.byte_range().and_then(|range| self.file.text.get(range)).unwrap_or_default();
        let first = source.lines().next().map_or(0, |line| line.trim_end().chars().count());
        let width = if style == Style::Collection { 1 } else { number(first).max(1) };
        Node::at(value, number(span.start.line()).max(1), number(span.start.col()) + 1, width, style)
    }

    fn place_of(&self, line: usize, column: usize) -> SourceLocation {
        SourceLocation { file: self.file.path.clone(), line: number(line).max(1), column: number(column) + 1, width: 1 }
    }

    fn too_much(&mut self, node: &Node, what: &str) -> Aborted {
        let message = format!("the file has {what}, which exceeds the limit");
        self.findings.error(
            "F0103",
            &node.place(&self.file.path),
            message,
            "Split the file, or write values instead of nested aliases.",
        );
        Aborted
    }
}

fn number(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX - 1)
}

/// A scalar without quotes by the core schema of YAML 1.2. Numbers that would not be printed as written stay strings.
fn plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return Value::Bool(true),
        "false" | "False" | "FALSE" => return Value::Bool(false),
        _ => {}
    }
    numeral(text).map_or_else(|| Value::Text(text.to_owned()), Value::Number)
}

fn numeral(text: &str) -> Option<Number> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if let Some(hex) = digits.strip_prefix("0x").filter(|_| digits.len() == text.len()) {
        return u64::from_str_radix(hex, 16).ok().map(Number::from);
    }
    if let Some(octal) = digits.strip_prefix("0o").filter(|_| digits.len() == text.len()) {
        return u64::from_str_radix(octal, 8).ok().map(Number::from);
    }
    let starts_well = digits.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    let has_digit = digits.contains(|c: char| c.is_ascii_digit());
    let padded = digits.len() > 1 && digits.starts_with('0') && !digits.starts_with("0.") && !digits.starts_with("0e");
    if !starts_well || !has_digit || padded || !digits.chars().all(|c| c.is_ascii_digit() || "+-.eE".contains(c)) {
        return None;
    }
    if digits.chars().all(|c| c.is_ascii_digit()) {
        let text = text.strip_prefix('+').unwrap_or(text);
        return text.parse::<i64>().map(Number::from).or_else(|_| text.parse::<u64>().map(Number::from)).ok();
    }
    text.parse::<f64>().ok().and_then(Number::from_f64)
}
