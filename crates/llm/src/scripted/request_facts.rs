//! The facts of a request that rules can use.

use std::{cell::OnceCell, collections::BTreeMap};

use serde_json::{Map, Value};

use super::{
    pattern::{Pattern, Tables},
    script::{RawFactSource, Script},
};
use crate::{ChatMessage, ChatRequest};

/// A request and the facts that are read from it.
pub(super) struct RequestFacts<'a> {
    pub(super) script: &'a Script,
    pub(super) request: &'a ChatRequest,
    /// The user's text: the fact `user`, else the last user message.
    pub(super) user: String,
    /// All system messages.
    pub(super) system: String,
    /// The text of the last assistant message.
    pub(super) assistant: &'a str,
    /// Tool results after the last user or assistant message, in order.
    pub(super) new_results: Vec<ToolResult<'a>>,
    /// The facts of `read`, each computed on first use.
    read: BTreeMap<&'a str, OnceCell<Option<String>>>,
    prompt: OnceCell<String>,
    state: OnceCell<Value>,
    /// The values of `let`, which do not depend on the rule.
    pub(super) named: OnceCell<Vec<(&'a str, minijinja::Value)>>,
}

/// The result of a tool call.
pub(super) struct ToolResult<'a> {
    pub(super) name: &'a str,
    pub(super) text: &'a str,
}

impl ToolResult<'_> {
    /// The result as JSON; as a string if it is not JSON.
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(self.text).unwrap_or_else(|_| Value::String(self.text.into()))
    }
}

/// Reads a fact from a request.
pub(super) struct FactReader {
    purposes: Vec<String>,
    pattern: Option<Pattern>,
    state: Option<String>,
    conversation: Option<Pattern>,
    since: Option<Pattern>,
}

impl FactReader {
    pub(super) fn new(raw: RawFactSource, tables: &Tables) -> Result<Self, String> {
        let sources = [raw.pattern.is_some(), raw.state.is_some(), raw.talk.is_some()];
        if sources.into_iter().filter(|given| *given).count() != 1 || (raw.since.is_some() && raw.talk.is_none()) {
            return Err("expected one of `match`, `state` and `talk`; `since` belongs to `talk`".into());
        }
        let compiled = |pattern: Option<String>| pattern.map(|pattern| Pattern::new(&pattern, tables)).transpose();
        let purposes = raw.purpose.map(|purposes| purposes.into_vec()).unwrap_or_default();
        let (pattern, conversation, since) = (compiled(raw.pattern)?, compiled(raw.talk)?, compiled(raw.since)?);
        Ok(Self { purposes, pattern, state: raw.state, conversation, since })
    }

    fn applies_to(&self, request: &ChatRequest) -> bool {
        self.purposes.is_empty() || self.purposes.iter().any(|purpose| purpose == request.purpose.as_str())
    }

    fn read(&self, facts: &RequestFacts<'_>) -> Option<String> {
        if !self.applies_to(facts.request) {
            return None;
        }
        if let Some(path) = &self.state {
            return match at(facts.state(), path)? {
                Value::Null => None,
                Value::String(text) => Some(text.clone()),
                other => Some(other.to_string()),
            };
        }
        if let Some(pattern) = &self.conversation {
            return pattern.last(&transcript(facts.request, self.since.as_ref()));
        }
        let prompt = facts.prompt.get_or_init(|| [facts.system.as_str(), last_user(facts.request)].join("\n"));
        self.pattern.as_ref()?.last(prompt)
    }
}

impl<'a> RequestFacts<'a> {
    pub(super) fn new(script: &'a Script, request: &'a ChatRequest) -> Self {
        let mut facts = Self {
            script,
            request,
            user: normalise_text(last_user(request)),
            system: String::new(),
            assistant: "",
            new_results: Vec::new(),
            read: script.readers.keys().map(|name| (name.as_str(), OnceCell::new())).collect(),
            prompt: OnceCell::new(),
            state: OnceCell::new(),
            named: OnceCell::new(),
        };
        for message in &request.messages {
            match &**message {
                ChatMessage::System { text } => {
                    facts.system.push_str(text);
                    facts.system.push('\n');
                }
                ChatMessage::User { .. } => facts.new_results.clear(),
                ChatMessage::Assistant { text, .. } => {
                    facts.assistant = text;
                    facts.new_results.clear();
                }
                ChatMessage::Tool { name, text, .. } => facts.new_results.push(ToolResult { name, text }),
            }
        }
        if let Some(user) = facts.read("user").map(normalise_text) {
            facts.user = user;
        }
        facts
    }

    /// Whether the script reads the user's words from requests of this purpose, and nothing matched.
    pub(super) fn misses_user(&self) -> bool {
        let applies = |reader: &FactReader| reader.applies_to(self.request) && reader.state.is_none();
        self.script.readers.get("user").is_some_and(|readers| readers.iter().any(applies))
            && self.read("user").is_none()
    }

    /// A fact of `read`.
    pub(super) fn read(&self, name: &str) -> Option<&str> {
        let readers = self.script.readers.get(name)?;
        self.read.get(name)?.get_or_init(|| readers.iter().find_map(|reader| reader.read(self))).as_deref()
    }

    /// All facts of `read` that have a value.
    pub(super) fn all_read(&self) -> BTreeMap<&str, &str> {
        self.read.keys().filter_map(|name| Some((*name, self.read(name)?))).collect()
    }

    /// The number of user messages.
    pub(super) fn turns(&self) -> u64 {
        self.request.messages.iter().filter(|message| matches!(***message, ChatMessage::User { .. })).count() as u64
    }

    /// The JSON objects in the system messages and in the last user message, merged; later keys override earlier ones.
    pub(super) fn state(&self) -> &Value {
        self.state.get_or_init(|| {
            let mut state = Map::new();
            collect(&self.system, &mut state);
            collect(last_user(self.request), &mut state);
            Value::Object(state)
        })
    }

    /// The last result of each tool in the whole request.
    pub(super) fn results(&self) -> Value {
        let mut results = Map::new();
        for message in &self.request.messages {
            if let ChatMessage::Tool { name, text, .. } = &**message {
                results.insert(name.to_string(), ToolResult { name, text }.json());
            }
        }
        Value::Object(results)
    }
}

/// Maximum of `{` at which an object is parsed; limits the cost of texts full of braces.
const MAX_OBJECT_STARTS: usize = 200;

fn collect(text: &str, state: &mut Map<String, Value>) {
    let mut rest = text;
    for _ in 0..MAX_OBJECT_STARTS {
        let Some(at) = rest.find('{') else { return };
        let Some(tail) = rest.get(at..) else { return };
        let mut parser = serde_json::Deserializer::from_str(tail).into_iter::<Map<String, Value>>();
        let taken = match parser.next() {
            Some(Ok(object)) => {
                state.extend(object);
                parser.byte_offset()
            }
            _ => 1,
        };
        rest = tail.get(taken.max(1)..).unwrap_or_default();
    }
}

fn last_user(request: &ChatRequest) -> &str {
    let user = request.messages.iter().rev().find(|message| matches!(***message, ChatMessage::User { .. }));
    user.map_or("", |message| message.text())
}

/// The user and assistant messages, one per line, after the last message that matches `since`.
fn transcript(request: &ChatRequest, since: Option<&Pattern>) -> String {
    let mut lines: Vec<String> = Vec::new();
    for message in &request.messages {
        let text = message.text();
        if since.is_some_and(|since| since.find(text).is_some()) {
            lines.clear();
            continue;
        }
        match &**message {
            ChatMessage::User { .. } => lines.push(format!("USER: {}", normalise_text(text))),
            ChatMessage::Assistant { .. } if !text.trim().is_empty() => {
                lines.push(format!("AI: {}", normalise_text(text)))
            }
            _ => {}
        }
    }
    lines.join("\n")
}

/// The text on one line, with single spaces and straight quotes.
fn normalise_text(text: &str) -> String {
    text.split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .replace(['\u{2019}', '\u{2018}'], "'")
        .replace(['\u{201C}', '\u{201D}'], "\"")
}

/// The value at a path such as `crossings.0.id`, `$.crossings[0].id`.
pub(super) fn at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    let path = path.trim_start_matches('$').replace('[', ".").replace(']', "");
    path.split('.').filter(|part| !part.is_empty()).try_fold(value, |value, part| match value {
        Value::Array(list) => list.get(part.parse::<usize>().ok()?),
        other => other.get(part),
    })
}
