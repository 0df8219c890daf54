//! YAML within budgets, as a tree in which every node knows its place and every plain scalar its text.
//!
//! Untyped YAML guesses: `010` may become ten and `yes` true. Here a plain scalar keeps the text it was written with, so
//! that the reader of a key decides what it is. Booleans are `true` and `false` alone (YAML 1.2, any case). A key that
//! stands twice in one map is a finding, and reading goes on; only broken syntax stops the file, never another file. The
//! tree is built from the parser's events, not by deserializing: that would nest as many calls as the file nests maps.

use std::collections::{HashMap, HashSet};

use granit_parser::{Event, Parser, ScalarStyle, Span, Tag};
use serde_json::{Map, Number, Value as Json};

use super::SourceFile;
use crate::{
    finding::{Findings, Place},
    limits::{YAML_ALIAS_NODES, YAML_ALIASES, YAML_DEPTH, YAML_FILE, YAML_NODES},
};

/// One value of a file, with its place.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// What it is.
    pub(crate) value: Value,
    /// Line, from 1.
    pub(crate) line: u32,
    /// Column in characters, from 1.
    pub(crate) column: u32,
    /// Characters that a caret underlines.
    pub(crate) width: u32,
    /// How a scalar was written.
    pub(crate) style: Style,
    /// Whether its text came out of `${NAME}`.
    pub(crate) expanded: bool,
    /// The text of a plain scalar that is no text: `010`, `True`, `~`.
    raw: Option<Box<str>>,
}

/// How a scalar was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// Without quotes.
    Plain,
    /// In `'…'` or `"…"`.
    Quoted,
    /// After `|` or `>`; its place is the first line of the text.
    Block,
    /// No scalar.
    Collection,
}

/// What a node is.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    /// `null`, `~` or nothing.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number.
    Number(Number),
    /// A text.
    Text(String),
    /// A list.
    List(Vec<Node>),
    /// A map, in the order of the file.
    Map(Vec<Entry>),
}

/// One pair of a map.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// The key as text.
    pub(crate) key: String,
    /// The key's own place.
    pub(crate) at: Node,
    /// Its value.
    pub(crate) node: Node,
}

impl Node {
    /// Its place in `file`.
    pub(crate) fn place(&self, file: &std::sync::Arc<str>) -> Place {
        Place { file: file.clone(), line: self.line, column: self.column, width: self.width }
    }

    /// The place of the `offset`-th character of its text where that stands on the node's first line; else the node's own.
    pub(crate) fn place_at(&self, file: &std::sync::Arc<str>, offset: usize, width: usize) -> Place {
        let mut place = self.place(file);
        let inner = self.text().and_then(|text| text.lines().next()).map_or(0, |line| line.chars().count());
        let quotes = u32::from(self.style == Style::Quoted);
        let as_written = u32::try_from(inner).is_ok_and(|inner| inner + 2 * quotes == self.width);
        if as_written && offset <= inner {
            place.column += quotes + u32::try_from(offset).unwrap_or(0);
            place.width = u32::try_from(width.clamp(1, inner.saturating_sub(offset).max(1))).unwrap_or(1);
        }
        place
    }

    /// The text of a scalar as it was written; none for null, lists and maps.
    pub(crate) fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            Value::Bool(_) | Value::Number(_) => self.raw.as_deref(),
            _ => None,
        }
    }

    /// The boolean, also one that came out of the environment.
    pub(crate) fn bool(&self) -> Option<bool> {
        match &self.value {
            Value::Bool(value) => Some(*value),
            Value::Text(text) if self.expanded => match text.to_ascii_lowercase().as_str() {
                "true" => Some(true),
                "false" => Some(false),
                _ => None,
            },
            _ => None,
        }
    }

    /// The number, also one that came out of the environment.
    pub(crate) fn number(&self) -> Option<Number> {
        match &self.value {
            Value::Number(value) => Some(value.clone()),
            Value::Text(text) if self.expanded => serde_json::from_str(text.trim()).ok(),
            _ => None,
        }
    }

    /// The items of a list.
    pub(crate) fn list(&self) -> Option<&[Self]> {
        match &self.value {
            Value::List(items) => Some(items),
            _ => None,
        }
    }

    /// The pairs of a map.
    pub(crate) fn map(&self) -> Option<&[Entry]> {
        match &self.value {
            Value::Map(entries) => Some(entries),
            _ => None,
        }
    }

    /// The value under `key`, if this is a map that has it.
    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        self.map()?.iter().find(|entry| entry.key == key).map(|entry| &entry.node)
    }

    /// Whether it is null.
    pub(crate) fn is_null(&self) -> bool {
        matches!(self.value, Value::Null)
    }

    /// What it is, for people.
    pub(crate) fn kind(&self) -> &'static str {
        match &self.value {
            Value::Null => "nothing",
            Value::Bool(_) => "true or false",
            Value::Number(_) => "a number",
            Value::Text(_) => "a text",
            Value::List(_) => "a list",
            Value::Map(_) => "a map",
        }
    }

    /// As JSON. A plain scalar such as `010`, which is no JSON number, stays a text.
    pub(crate) fn json(&self) -> Json {
        match &self.value {
            Value::Null => Json::Null,
            Value::Bool(value) => Json::Bool(*value),
            Value::Number(value) => Json::Number(value.clone()),
            Value::Text(text) => Json::String(text.clone()),
            Value::List(items) => Json::Array(items.iter().map(Self::json).collect()),
            Value::Map(_) => Json::Object(self.json_map()),
        }
    }

    /// A map as JSON; empty for anything else.
    pub(crate) fn json_map(&self) -> Map<String, Json> {
        self.map().unwrap_or_default().iter().map(|entry| (entry.key.clone(), entry.node.json())).collect()
    }
}

impl Node {
    /// A map without keys, standing where `like` stands: for a section that was left out.
    pub(crate) fn empty_map(like: &Self) -> Self {
        Self::at(Value::Map(Vec::new()), (like.line, like.column, like.width), Style::Collection)
    }

    fn at(value: Value, (line, column, width): (u32, u32, u32), style: Style) -> Self {
        Self { value, line, column, width, style, expanded: false, raw: None }
    }
}

/// Reads one file. What is wrong goes to `findings`; nothing is returned where no tree could be made.
pub(crate) fn read(file: &SourceFile, findings: &mut Findings) -> Option<Node> {
    if file.text.len() > YAML_FILE {
        let place = Place { file: file.path.clone(), line: 1, column: 1, width: 1 };
        let message = format!("the file has {} bytes; at most {YAML_FILE} are read", file.text.len());
        findings.error("F0103", &place, message, "Split the file.");
        return None;
    }
    Builder::new(file, findings).read()
}

/// A list or a map that is still open.
struct Open {
    node: Node,
    anchor: usize,
    /// The key that waits for its value.
    key: Option<Node>,
    /// Keys so far, with their lines.
    seen: HashMap<String, u32>,
    /// Values of `<<`, merged when the map is complete, since its own keys win.
    merged: Vec<Node>,
    size: usize,
    height: usize,
}

/// A value that aliases may repeat.
struct Anchored {
    node: Node,
    size: usize,
    height: usize,
}

/// Turns the parser's events into a tree with a stack of its own: nesting costs no call stack, whatever the file holds.
struct Builder<'a> {
    file: &'a SourceFile,
    findings: &'a mut Findings,
    open: Vec<Open>,
    anchors: HashMap<usize, Anchored>,
    root: Option<Node>,
    nodes: usize,
    aliases: usize,
    repeated: usize,
}

/// The file was given up; why is in the findings.
struct GivenUp;

impl<'a> Builder<'a> {
    fn new(file: &'a SourceFile, findings: &'a mut Findings) -> Self {
        let (open, anchors) = (Vec::new(), HashMap::new());
        Self { file, findings, open, anchors, root: None, nodes: 0, aliases: 0, repeated: 0 }
    }

    fn read(mut self) -> Option<Node> {
        let file = self.file;
        let mut documents = 0;
        for event in Parser::new_from_str(&file.text) {
            let (event, span) = match event {
                Ok(event) => event,
                Err(error) => {
                    let message = format!("this is not valid YAML: {}", error.info());
                    let help = "Look at the indentation, the quotes and the colons of this line and of the one above.";
                    let marker = error.marker();
                    self.findings.error("F0102", &self.place_of(marker.line(), marker.col()), message, help);
                    return None;
                }
            };
            if matches!(event, Event::DocumentStart(..)) {
                documents += 1;
                if documents > 1 {
                    let message = "a second YAML document begins here; one file holds one document";
                    let help = "Remove the `---` line or move what follows into a file of its own.";
                    self.findings.error("F0102", &self.place_of(span.start.line(), span.start.col()), message, help);
                    return None;
                }
            }
            self.event(event, &span).ok()?;
        }
        Some(self.root.unwrap_or_else(|| Node::at(Value::Null, (1, 1, 1), Style::Plain)))
    }

    fn event(&mut self, event: Event<'_>, span: &Span) -> Result<(), GivenUp> {
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
            let message = "a YAML tag stands here that is not read";
            let help = "Remove the tag; plain YAML values are enough here.";
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
        self.open.push(Open { node, anchor, key: None, seen, merged, size: 1, height: 0 });
        Ok(())
    }

    fn close(&mut self) -> Result<(), GivenUp> {
        let Some(mut open) = self.open.pop() else { return Ok(()) };
        for node in std::mem::take(&mut open.merged) {
            self.merge(node, &mut open.node);
        }
        if let Value::Map(entries) = &open.node.value {
            // The caret of a map underlines its first key.
            let first =
                entries.first().filter(|entry| (entry.at.line, entry.at.column) == (open.node.line, open.node.column));
            open.node.width = first.map_or(1, |entry| entry.at.width);
        }
        self.attach(open.node, open.anchor, open.size, open.height + 1)
    }

    fn alias(&mut self, anchor: usize, span: &Span) -> Result<(), GivenUp> {
        let here = self.node(Value::Null, span, Style::Plain);
        self.aliases += 1;
        let Some(Anchored { node, size, height }) = self.anchors.get(&anchor) else {
            let message = "this alias stands inside the value that it repeats";
            self.findings.error("F0102", &here.place(&self.file.path), message, "Write the value out.");
            return Err(GivenUp);
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

    /// Puts a complete value where it belongs.
    fn attach(&mut self, node: Node, anchor: usize, size: usize, height: usize) -> Result<(), GivenUp> {
        if anchor != 0 {
            self.repeated += size;
            if self.repeated > YAML_ALIAS_NODES {
                return Err(self.too_much(&node, &format!("more than {YAML_ALIAS_NODES} values with anchors")));
            }
            self.anchors.insert(anchor, Anchored { node: node.clone(), size, height });
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
            let message = format!("a key must be a text, but here stands {}", at.kind());
            self.findings.error("F0108", &at.place(file), message, "Write a plain word as the key.");
            return;
        };
        if name == "<<" && at.style == Style::Plain {
            open.merged.push(node);
        } else if let Some(first) = open.seen.get(&name) {
            let message = format!("the key `{name}` stands twice in this map, first on line {first}");
            self.findings.error("F0104", &at.place(file), message, "Keep one of the two; neither is chosen silently.");
        } else if let Value::Map(entries) = &mut open.node.value {
            open.seen.insert(name.clone(), at.line);
            entries.push(Entry { key: name, at, node });
        }
    }

    /// `<<: *other` adds what the map does not say itself; of several maps the first wins.
    fn merge(&mut self, from: Node, into: &mut Node) {
        let sources = match from.value {
            Value::List(items) => items,
            _ => vec![from],
        };
        let Value::Map(entries) = &mut into.value else { return };
        for source in sources {
            let place = source.place(&self.file.path);
            let Value::Map(added) = source.value else {
                let message = "`<<` merges maps, but here stands something else";
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
        Node::at(value, (number(span.start.line()).max(1), number(span.start.col()) + 1, width), style)
    }

    fn place_of(&self, line: usize, column: usize) -> Place {
        Place { file: self.file.path.clone(), line: number(line).max(1), column: number(column) + 1, width: 1 }
    }

    fn too_much(&mut self, node: &Node, what: &str) -> GivenUp {
        let message = format!("the file has {what}, which is not read");
        self.findings.error(
            "F0103",
            &node.place(&self.file.path),
            message,
            "Split the file, and write values out where aliases repeat aliases.",
        );
        GivenUp
    }
}

fn number(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX - 1)
}

/// A scalar without quotes, by the core rules of YAML 1.2; numbers that would not come back as they were written stay texts.
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

#[cfg(test)]
mod tests;
