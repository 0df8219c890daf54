//! YAML within budgets, as a tree in which every node knows its place and every plain scalar its text.
//!
//! Untyped YAML guesses: `010` may become ten and `yes` true. Here a plain scalar keeps the text it was written with, so
//! that the reader of a key decides what it is. Booleans are `true` and `false` alone (YAML 1.2, any case). A key that
//! stands twice in one map is a finding, and reading goes on; only broken syntax stops the file, never another file. The
//! tree is built from the parser's events, not by deserializing: that would nest as many calls as the file nests maps.

mod build;

use serde_json::{Map, Number, Value as Json};

use self::build::Builder;
use super::SourceFile;
use crate::{
    finding::{Findings, SourceLocation},
    limits::YAML_FILE,
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
    /// Whether a variable of its text is not set, so that nothing can be said about the value.
    pub(crate) unset: bool,
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
    pub(crate) fn place(&self, file: &std::sync::Arc<str>) -> SourceLocation {
        SourceLocation { file: file.clone(), line: self.line, column: self.column, width: self.width }
    }

    /// The place of the `offset`-th character of its text where that stands on the node's first line; else the node's own.
    pub(crate) fn place_at(&self, file: &std::sync::Arc<str>, offset: usize, width: usize) -> SourceLocation {
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
        Self::at(Value::Map(Vec::new()), like.line, like.column, like.width, Style::Collection)
    }

    pub(super) fn at(value: Value, line: u32, column: u32, width: u32, style: Style) -> Self {
        Self { value, line, column, width, style, expanded: false, unset: false, raw: None }
    }
}

/// Reads one file. What is wrong goes to `findings`; nothing is returned where no tree could be made.
pub(crate) fn read(file: &SourceFile, findings: &mut Findings) -> Option<Node> {
    if file.text.len() > YAML_FILE {
        let place = SourceLocation { file: file.path.clone(), line: 1, column: 1, width: 1 };
        let message = format!("the file has {} bytes; at most {YAML_FILE} are read", file.text.len());
        findings.error("F0103", &place, message, "Split the file.");
        return None;
    }
    Builder::new(file, findings).read()
}

#[cfg(test)]
mod tests;
