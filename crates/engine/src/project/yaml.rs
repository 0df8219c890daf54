//! A YAML reader with size limits. Every node of the tree has a source location, and every plain scalar its original text.
//!
//! Plain scalars keep their text because implicit typing loses information: `010` would become 10 and `yes` true. The code
//! that reads a key decides on the type. Only `true` and `false` are booleans (YAML 1.2 core schema, any case). A duplicate
//! key is a finding and reading continues; a syntax error ends the file, but not other files. The tree is built from parser
//! events instead of by deserializing, because that would recurse as deeply as the file is nested.

mod build;

use serde_json::{Map, Number, Value as Json};

use self::build::Builder;
use super::SourceFile;
use crate::{
    finding::{Findings, SourceLocation},
    limits::YAML_FILE,
};

/// A value of a file with its location.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// What it is.
    pub(crate) value: Value,
    /// Line, from 1.
    pub(crate) line: u32,
    /// Column in characters, from 1.
    pub(crate) column: u32,
    /// The width in characters that a finding underlines.
    pub(crate) width: u32,
    /// How a scalar was written.
    pub(crate) style: Style,
    /// Whether its text contains the value of an environment variable (`${NAME}`).
    pub(crate) expanded: bool,
    /// Whether an environment variable in its text is not set, so that the value is unknown.
    pub(crate) unset: bool,
    /// The original text of a plain scalar that is not a string: `010`, `True`, `~`.
    raw: Option<Box<str>>,
}

/// How a scalar was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// Without quotes.
    Plain,
    /// In `'…'` or `"…"`.
    Quoted,
    /// After `|` or `>`. Its location is the first line of the text.
    Block,
    /// Not a scalar.
    Collection,
}

/// The value of a node.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    /// `null`, `~` or an empty value.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number.
    Number(Number),
    /// A string.
    Text(String),
    /// A list.
    List(Vec<Node>),
    /// A map, in the order of the file.
    Map(Vec<Entry>),
}

/// A key of a map with its value.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// The key as text.
    pub(crate) key: String,
    /// The key as a node, with its location.
    pub(crate) at: Node,
    /// Its value.
    pub(crate) node: Node,
}

impl Node {
    /// Its location in `file`.
    pub(crate) fn place(&self, file: &std::sync::Arc<str>) -> SourceLocation {
        SourceLocation { file: file.clone(), line: self.line, column: self.column, width: self.width }
    }

    /// The location of the character at `offset` of its text, if that is on the first line of the node; else that of the node.
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

    /// The original text of a scalar; `None` for null, lists and maps.
    pub(crate) fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            Value::Bool(_) | Value::Number(_) => self.raw.as_deref(),
            _ => None,
        }
    }

    /// The boolean value. A string from the environment is parsed.
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

    /// The numeric value. A string from the environment is parsed.
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

    /// The entries of a map.
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

    /// Its type for messages, with an article: `a string`.
    pub(crate) fn kind(&self) -> &'static str {
        match &self.value {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Number(_) => "a number",
            Value::Text(_) => "a string",
            Value::List(_) => "a list",
            Value::Map(_) => "a map",
        }
    }

    /// The value as JSON. A plain scalar such as `010`, which is not a JSON number, stays a string.
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

    /// A map as JSON; empty for any other value.
    pub(crate) fn json_map(&self) -> Map<String, Json> {
        self.map().unwrap_or_default().iter().map(|entry| (entry.key.clone(), entry.node.json())).collect()
    }
}

impl Node {
    /// An empty map with the location of `like`, for a section that is missing.
    pub(crate) fn empty_map(like: &Self) -> Self {
        Self::at(Value::Map(Vec::new()), like.line, like.column, like.width, Style::Collection)
    }

    pub(super) fn at(value: Value, line: u32, column: u32, width: u32, style: Style) -> Self {
        Self { value, line, column, width, style, expanded: false, unset: false, raw: None }
    }
}

/// Reads a file. Errors are added to `findings`; `None` if the syntax is invalid or a limit is exceeded.
pub(crate) fn read(file: &SourceFile, findings: &mut Findings) -> Option<Node> {
    if file.text.len() > YAML_FILE {
        let place = SourceLocation { file: file.path.clone(), line: 1, column: 1, width: 1 };
        let message = format!("the file has {} bytes; the limit is {YAML_FILE}", file.text.len());
        findings.error("F0103", &place, message, "Split the file.");
        return None;
    }
    Builder::new(file, findings).read()
}

#[cfg(test)]
mod tests;
