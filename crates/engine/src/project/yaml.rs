//! YAML within budgets, as a tree in which every node knows its place and every plain scalar its text.
//!
//! Untyped YAML guesses: `010` may become ten and `yes` true. Here a plain scalar keeps the text it was written with, so
//! that the reader of a key decides what it is. Booleans are `true` and `false` alone (YAML 1.2, any case). A key that
//! stands twice in one map is a finding, and reading goes on; only broken syntax stops the file, never another file.

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value as Json};
use serde_yaml::{Budget, DuplicateKeyPolicy, Error, MergeKeyPolicy, MessageFormatter, Options, Spanned};

use super::SourceFile;
use crate::{
    finding::{Findings, Place},
    limits::{YAML_ALIAS_EVENTS, YAML_ALIASES, YAML_DEPTH, YAML_FILE, YAML_NODES},
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

/// Reads one file. What is wrong goes to `findings`; nothing is returned where no tree could be made.
pub(crate) fn read(file: &SourceFile, findings: &mut Findings) -> Option<Node> {
    let start = Place { file: file.path.clone(), line: 1, column: 1, width: 1 };
    if file.text.len() > YAML_FILE {
        let message = format!("the file has {} bytes; at most {YAML_FILE} are read", file.text.len());
        findings.error("F0103", &start, message, "Split the file.");
        return None;
    }
    if file.text.trim().is_empty() {
        return Some(Node::at(Value::Null, (1, 1, 1), Style::Plain));
    }
    match serde_yaml::from_str_with_options::<Spanned<Raw>>(&file.text, options()) {
        Ok(root) => Some(Builder { file, findings }.node(root)),
        Err(error) => {
            report(file, error.without_snippet(), findings);
            None
        }
    }
}

fn options() -> Options {
    let mut budget = Budget::default();
    budget.max_nodes = YAML_NODES;
    budget.max_events = YAML_NODES.saturating_mul(3);
    budget.max_depth = YAML_DEPTH;
    budget.max_aliases = YAML_ALIASES;
    budget.enforce_alias_anchor_ratio = false;
    budget.max_documents = 4;
    let mut options = Options::default();
    options.budget = Some(budget);
    options.alias_limits.max_total_replayed_events = YAML_ALIAS_EVENTS;
    options.duplicate_keys = DuplicateKeyPolicy::PassThrough;
    options.merge_keys = MergeKeyPolicy::AsOrdinary;
    options.strict_booleans = true;
    options.leading_zero_numbers_as_strings = true;
    options.underscored_numbers_as_strings = true;
    options.non_finite_float_policy = serde_yaml::NonFiniteFloatPolicy::AsString;
    options.reject_unsupported_tags = true;
    options.with_snippet = false;
    options
}

fn report(file: &SourceFile, error: &Error, findings: &mut Findings) {
    let location = error.location();
    let number = |n: Option<u64>| u32::try_from(n.unwrap_or(1)).unwrap_or(u32::MAX).max(1);
    let place = Place {
        file: file.path.clone(),
        line: number(location.as_ref().map(serde_yaml::Location::line)),
        column: number(location.as_ref().map(serde_yaml::Location::column)),
        width: 1,
    };
    let said = serde_yaml::DefaultMessageFormatter.format_message(error).into_owned();
    let mut cause = error;
    while let Error::AliasError { error: inner, .. } = cause {
        cause = inner;
    }
    match cause {
        Error::UnsupportedTag { .. } => findings.error(
            "F0105",
            &place,
            format!("a YAML tag stands here that is not read: {said}"),
            "Remove the tag; plain YAML values are enough here.",
        ),
        Error::Budget { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => findings.error(
            "F0103",
            &place,
            format!("the file is larger, deeper or repeats more than is allowed: {said}"),
            format!("Keep to {YAML_NODES} values, {YAML_DEPTH} levels and {YAML_ALIASES} aliases in one file."),
        ),
        Error::MultipleDocuments { .. } => findings.error(
            "F0102",
            &place,
            "a second YAML document begins here; one file holds one document",
            "Remove the `---` line or move what follows into a file of its own.",
        ),
        _ => findings.error(
            "F0102",
            &place,
            format!("this is not valid YAML: {said}"),
            "Look at the indentation, the quotes and the colons of this line and of the one above.",
        ),
    }
}

/// The tree as the library hands it over.
enum Raw {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Spanned<Raw>>),
    Map(Vec<(Spanned<Raw>, Spanned<Raw>)>),
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("any YAML value")
    }
    fn visit_unit<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }
    fn visit_none<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }
    fn visit_bool<E>(self, value: bool) -> Result<Raw, E> {
        Ok(Raw::Bool(value))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Raw, E> {
        Ok(Raw::Number(value.into()))
    }
    fn visit_u64<E>(self, value: u64) -> Result<Raw, E> {
        Ok(Raw::Number(value.into()))
    }
    fn visit_f64<E>(self, value: f64) -> Result<Raw, E> {
        Ok(Number::from_f64(value).map_or_else(|| Raw::Text(value.to_string()), Raw::Number))
    }
    fn visit_str<E>(self, value: &str) -> Result<Raw, E> {
        Ok(Raw::Text(value.to_owned()))
    }
    fn visit_string<E>(self, value: String) -> Result<Raw, E> {
        Ok(Raw::Text(value))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Raw, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        Ok(Raw::List(items))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Raw, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = access.next_entry()? {
            entries.push(entry);
        }
        Ok(Raw::Map(entries))
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

struct Builder<'a> {
    file: &'a SourceFile,
    findings: &'a mut Findings,
}

impl Builder<'_> {
    fn node(&mut self, spanned: Spanned<Raw>) -> Node {
        let location = spanned.defined;
        let number = |n: u64| u32::try_from(n).unwrap_or(u32::MAX).max(1);
        let at = (number(location.line()), number(location.column()), 1);
        let source = self.source(&location);
        let style = match source.chars().next() {
            _ if self.follows_block_mark(&location) => Style::Block,
            Some('"' | '\'') => Style::Quoted,
            _ => Style::Plain,
        };
        let width = source.lines().next().map_or(1, |line| number(line.trim_end().chars().count() as u64));
        let scalar = |value: Value| {
            let raw = match (&value, style) {
                (Value::Text(_), _) => None,
                (_, Style::Plain) => Some(source.trim().into()),
                _ => None,
            };
            Node { raw, ..Node::at(value, (at.0, at.1, width), style) }
        };
        match spanned.value {
            Raw::Null => scalar(Value::Null),
            Raw::Bool(value) => scalar(Value::Bool(value)),
            Raw::Number(value) => scalar(Value::Number(value)),
            Raw::Text(text) => scalar(Value::Text(text)),
            Raw::List(items) => {
                let items = items.into_iter().map(|item| self.node(item)).collect();
                Node::at(Value::List(items), at, Style::Collection)
            }
            Raw::Map(entries) => {
                let entries = self.entries(entries);
                let width =
                    entries.first().filter(|e| (e.at.line, e.at.column) == (at.0, at.1)).map_or(1, |e| e.at.width);
                Node::at(Value::Map(entries), (at.0, at.1, width), Style::Collection)
            }
        }
    }

    /// Whether the line before this place ends with `|` or `>`: the library points at a block text's first line, not its mark.
    fn follows_block_mark(&self, location: &serde_yaml::Location) -> bool {
        let start = location.span().byte_offset().and_then(|at| usize::try_from(at).ok());
        let Some(before) = start.and_then(|start| self.file.text.get(..start)) else { return false };
        let Some((earlier, this_line)) = before.rsplit_once('\n') else { return false };
        if !this_line.trim().is_empty() {
            return false;
        }
        let Some(line) = earlier.lines().rev().find(|line| !line.trim().is_empty()) else { return false };
        let line = line.split(" #").next().unwrap_or(line).trim_end();
        line.trim_end_matches(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+')).ends_with(['|', '>'])
    }

    fn source(&self, location: &serde_yaml::Location) -> &str {
        let span = location.span();
        let range = span.byte_offset().zip(span.byte_len()).and_then(|(start, len)| {
            let start = usize::try_from(start).ok()?;
            Some(start..start.checked_add(usize::try_from(len).ok()?)?)
        });
        range.and_then(|range| self.file.text.get(range)).unwrap_or_default()
    }

    fn entries(&mut self, raw: Vec<(Spanned<Raw>, Spanned<Raw>)>) -> Vec<Entry> {
        let mut entries: Vec<Entry> = Vec::with_capacity(raw.len());
        let mut seen: std::collections::HashMap<String, u32> = std::collections::HashMap::with_capacity(raw.len());
        let mut merged: Vec<Node> = Vec::new();
        for (key, value) in raw {
            let at = self.node(key);
            let node = self.node(value);
            let Some(name) = at.text().map(str::to_owned).or_else(|| at.is_null().then(|| "null".to_owned())) else {
                let message = format!("a key must be a text, but here stands {}", at.kind());
                self.findings.error("F0108", &at.place(&self.file.path), message, "Write a plain word as the key.");
                continue;
            };
            if name == "<<" && at.style == Style::Plain {
                merged.push(node);
                continue;
            }
            if let Some(first) = seen.get(&name) {
                let message = format!("the key `{name}` stands twice in this map, first on line {first}");
                let help = "Keep one of the two; neither is chosen silently.";
                self.findings.error("F0104", &at.place(&self.file.path), message, help);
                continue;
            }
            seen.insert(name.clone(), at.line);
            entries.push(Entry { key: name, at, node });
        }
        for node in merged {
            self.merge(node, &mut entries);
        }
        entries
    }

    /// `<<: *other` adds what the map does not say itself; of several maps the first wins.
    fn merge(&mut self, from: Node, into: &mut Vec<Entry>) {
        match from.value {
            Value::Map(entries) => {
                for entry in entries {
                    if !into.iter().any(|own| own.key == entry.key) {
                        into.push(entry);
                    }
                }
            }
            Value::List(items) => {
                for item in items {
                    self.merge(item, into);
                }
            }
            _ => {
                let message = format!("`<<` merges maps, but here stands {}", from.kind());
                self.findings.error("F0108", &from.place(&self.file.path), message, "Write `<<: *name_of_a_map`.");
            }
        }
    }
}

#[cfg(test)]
mod tests;
