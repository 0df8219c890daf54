//! Messages written for machines, which need no model: `/SetSlots(slot=value, other=value)` and `/intent{"entity": "value"}`.
//!
//! Buttons of the project send them, and so do channels. This is the only parser of both forms: the loader checks buttons with
//! it, the dialogue engine executes what it finds, and action servers are told of it.

use serde_json::{Map, Value as Json};

/// How a message that fills slots begins.
pub const SET_SLOTS: &str = "/SetSlots(";

/// A message that is no free text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload<'a> {
    /// `/SetSlots(…)`: its pairs, in order.
    SetSlots(Vec<SlotPair<'a>>),
    /// `/intent`, with or without entities.
    Intent(IntentMessage<'a>),
}

/// `name=value` of a `/SetSlots` message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotPair<'a> {
    /// The slot.
    pub name: &'a str,
    /// Its value as written.
    pub value: &'a str,
    /// Where the name stands in the message, in bytes.
    pub offset: usize,
}

/// The parts of an intent message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntentMessage<'a> {
    /// The intent.
    pub name: &'a str,
    /// What follows the name, with its opening brace: JSON, or nothing.
    pub rest: &'a str,
}

impl IntentMessage<'_> {
    /// The entities by name; none where the rest is no JSON object.
    pub fn entities(&self) -> Map<String, Json> {
        serde_json::from_str(self.rest).unwrap_or_default()
    }
}

/// Reads a message; `None` for free text.
pub fn parse(text: &str) -> Option<Payload<'_>> {
    match text.strip_prefix(SET_SLOTS) {
        Some(inside) => Some(Payload::SetSlots(pairs(inside))),
        None => intent(text).map(Payload::Intent),
    }
}

/// Reads a message that may name an intent: a slash, a name of letters, digits and `_-+/.`, and entities.
pub fn intent(text: &str) -> Option<IntentMessage<'_>> {
    let message = text.strip_prefix('/')?;
    let (name, rest) = message.split_at(message.find('{').unwrap_or(message.len()));
    let name = name.trim_end();
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "_-+/.".contains(c));
    is_name.then_some(IntentMessage { name, rest })
}

/// The pairs between the parentheses; the closing one may be missing. Commas inside brackets belong to the value.
fn pairs(inside: &str) -> Vec<SlotPair<'_>> {
    let inside = inside.trim_end();
    let inside = inside.strip_suffix(')').unwrap_or(inside);
    let (mut found, mut depth, mut start) = (Vec::new(), 0_i32, 0);
    for (at, c) in inside.char_indices().chain([(inside.len(), ',')]) {
        match c {
            '[' | '{' => depth += 1,
            ']' | '}' => depth -= 1,
            ',' if depth <= 0 || at == inside.len() => {
                found.extend(inside.get(start..at).and_then(|written| pair(written, SET_SLOTS.len() + start)));
                start = at + 1;
            }
            _ => {}
        }
    }
    found
}

fn pair(written: &str, offset: usize) -> Option<SlotPair<'_>> {
    let (name, value) = written.split_once('=')?;
    let offset = offset + name.len() - name.trim_start().len();
    let pair = SlotPair { name: name.trim(), value: value.trim(), offset };
    Some(pair).filter(|pair| !pair.name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(text: &str) -> Vec<(&str, usize, &str)> {
        match parse(text) {
            Some(Payload::SetSlots(pairs)) => pairs.iter().map(|pair| (pair.name, pair.offset, pair.value)).collect(),
            _ => Vec::new(),
        }
    }

    #[test]
    fn set_slots_messages_are_read_pair_by_pair() {
        let text = "/SetSlots(a=1, b = two words,c = , list=[x, y])";
        assert_eq!(slots(text), [("a", 10, "1"), ("b", 15, "two words"), ("c", 29, ""), ("list", 35, "[x, y]")]);
        assert_eq!(slots("/SetSlots(a=f(x))"), [("a", 10, "f(x)")]);
        assert_eq!(slots("/SetSlots(a=[1, 2"), [("a", 10, "[1, 2")], "an open bracket takes the rest");
        assert_eq!(slots("/SetSlots(nothing, =1)"), []);
        assert_eq!(slots("/greet"), []);
    }

    #[test]
    fn intents_are_names_and_nothing_else() {
        let name = |text| intent(text).map(|message| message.name);
        assert_eq!(name("/greet"), Some("greet"));
        assert_eq!(name("/faq/ask"), Some("faq/ask"));
        assert_eq!(name(r#"/inform {"a": "b"}"#), Some("inform"));
        for text in ["/help me please", "/SetSlots(a=1)", "/{kind}", "/", "greet"] {
            assert_eq!(name(text), None, "{text}");
        }
    }

    #[test]
    fn entities_are_a_json_object() {
        let entities = |text| intent(text).map(|message| Json::Object(message.entities()).to_string());
        assert_eq!(entities(r#"/inform{"a": "b"}"#).as_deref(), Some(r#"{"a":"b"}"#));
        assert_eq!(entities("/inform{broken").as_deref(), Some("{}"));
        assert_eq!(entities("/inform").as_deref(), Some("{}"));
    }
}
