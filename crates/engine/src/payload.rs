//! Structured messages that need no model: `/SetSlots(slot=value, other=value)` and `/intent{"entity": "value"}`.
//!
//! Buttons of the project and channels send them. This is the only parser of both forms: the loader checks buttons with
//! it, the dialogue engine executes the result, and the tracker state for action servers uses it too.

use serde_json::{Map, Value as Json};

/// The prefix of a message that sets slots.
pub const SET_SLOTS: &str = "/SetSlots(";

/// A structured message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload<'a> {
    /// `/SetSlots(…)`: the pairs, in order.
    SetSlots(Vec<SlotPair<'a>>),
    /// `/intent`, with or without entities.
    Intent(IntentMessage<'a>),
}

/// A `name=value` pair of a `/SetSlots` message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotPair<'a> {
    /// The name of the slot.
    pub name: &'a str,
    /// Its value as written.
    pub value: &'a str,
    /// Byte offset of the name in the message.
    pub offset: usize,
}

/// The parts of an intent message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntentMessage<'a> {
    /// The name of the intent.
    pub name: &'a str,
    /// The text after the name, from its opening brace on: JSON, or empty.
    pub rest: &'a str,
}

impl IntentMessage<'_> {
    /// The entities by name; empty when [`Self::rest`] is not a JSON object.
    pub fn entities(&self) -> Map<String, Json> {
        serde_json::from_str(self.rest).unwrap_or_default()
    }
}

/// Parses a message; `None` for free text.
pub fn parse(text: &str) -> Option<Payload<'_>> {
    match text.strip_prefix(SET_SLOTS) {
        Some(inside) => Some(Payload::SetSlots(pairs(inside))),
        None => intent(text).map(Payload::Intent),
    }
}

/// Parses an intent message: a slash, a name of letters, digits and `_-+/.`, then optional entities. `None` for
/// anything else.
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
    fn set_slots_messages_are_parsed_into_pairs() {
        let text = "/SetSlots(a=1, b = two words,c = , list=[x, y])";
        assert_eq!(slots(text), [("a", 10, "1"), ("b", 15, "two words"), ("c", 29, ""), ("list", 35, "[x, y]")]);
        assert_eq!(slots("/SetSlots(a=f(x))"), [("a", 10, "f(x)")]);
        assert_eq!(slots("/SetSlots(a=[1, 2"), [("a", 10, "[1, 2")], "an unclosed bracket includes the rest");
        assert_eq!(slots("/SetSlots(nothing, =1)"), []);
        assert_eq!(slots("/greet"), []);
    }

    #[test]
    fn intent_messages_have_a_valid_intent_name() {
        let name = |text| intent(text).map(|message| message.name);
        assert_eq!(name("/greet"), Some("greet"));
        assert_eq!(name("/faq/ask"), Some("faq/ask"));
        assert_eq!(name(r#"/inform {"a": "b"}"#), Some("inform"));
        for text in ["/help me please", "/SetSlots(a=1)", "/{kind}", "/", "greet"] {
            assert_eq!(name(text), None, "{text}");
        }
    }

    #[test]
    fn entities_must_be_a_json_object() {
        let entities = |text| intent(text).map(|message| Json::Object(message.entities()).to_string());
        assert_eq!(entities(r#"/inform{"a": "b"}"#).as_deref(), Some(r#"{"a":"b"}"#));
        assert_eq!(entities("/inform{broken").as_deref(), Some("{}"));
        assert_eq!(entities("/inform").as_deref(), Some("{}"));
    }
}
