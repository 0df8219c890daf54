//! The `{slot}` form of responses: one pass, values as they were typed.

use std::borrow::Cow;

use serde_json::Value as Json;

use super::python::python_text;
use crate::limits::RESPONSE_DEPTH;

/// Named values that a text may ask for.
pub trait ValueLookup {
    /// The value of a name; null for a slot that is not set, `None` for a name that does not exist.
    fn value(&self, name: &str) -> Option<Cow<'_, Json>>;
}

impl ValueLookup for serde_json::Map<String, Json> {
    fn value(&self, name: &str) -> Option<Cow<'_, Json>> {
        self.get(name).map(Cow::Borrowed)
    }
}

/// Two layers of values: the first wins. Keyword arguments of an action server stand over slots.
#[derive(Clone, Copy)]
pub struct Over<'a> {
    /// Asked first.
    pub first: &'a dyn ValueLookup,
    /// Asked where the first has no such name.
    pub then: &'a dyn ValueLookup,
}

impl std::fmt::Debug for Over<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Over")
    }
}

impl ValueLookup for Over<'_> {
    fn value(&self, name: &str) -> Option<Cow<'_, Json>> {
        self.first.value(name).or_else(|| self.then.value(name))
    }
}

/// A filled text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interpolated<T> {
    /// The result.
    pub content: T,
    /// Names nobody knows, in order, each once. A text that asks for one stands unfilled in the result.
    pub unknown: Vec<String>,
}

/// Fills the `{name}` places of a text.
///
/// A value prints as Python's `str` does (an unset slot as `None`); braces inside it mean nothing. `{{` and `}}` stand for
/// one brace. Any characters but line breaks and braces make a name. If one name is unknown, the text comes back as it was.
pub fn fill<'a>(text: &'a str, values: &dyn ValueLookup) -> Interpolated<Cow<'a, str>> {
    let mut unknown = Vec::new();
    let content = fill_text(text, values, &mut unknown);
    Interpolated { content, unknown }
}

/// Fills every text inside a JSON value (`custom`, `buttons`, `elements`); keys stay as they are.
///
/// Each text stands for itself: one with an unknown name stays unfilled, the others are filled.
pub fn fill_json(value: &Json, values: &dyn ValueLookup) -> Interpolated<Json> {
    let mut unknown = Vec::new();
    let content = fill_value(value, values, RESPONSE_DEPTH, &mut unknown);
    Interpolated { content, unknown }
}

fn fill_value(value: &Json, values: &dyn ValueLookup, depth: usize, unknown: &mut Vec<String>) -> Json {
    let Some(inner) = depth.checked_sub(1) else { return value.clone() };
    match value {
        Json::String(text) => Json::String(fill_text(text, values, unknown).into_owned()),
        Json::Array(items) => items.iter().map(|item| fill_value(item, values, inner, unknown)).collect(),
        Json::Object(map) => {
            map.iter().map(|(key, item)| (key.clone(), fill_value(item, values, inner, unknown))).collect()
        }
        simple => simple.clone(),
    }
}

fn fill_text<'a>(text: &'a str, values: &dyn ValueLookup, unknown: &mut Vec<String>) -> Cow<'a, str> {
    if !text.contains(['{', '}']) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 32);
    let mut all_known = true;
    for piece in pieces(text) {
        match piece {
            Piece::Text(plain) => out.push_str(plain),
            Piece::Name(_, name) => match values.value(name) {
                Some(value) => out.push_str(&python_text(&value)),
                None => {
                    all_known = false;
                    if !unknown.iter().any(|known| known == name) {
                        unknown.push(name.to_owned());
                    }
                }
            },
        }
    }
    if all_known { Cow::Owned(out) } else { Cow::Borrowed(text) }
}

/// The names that a text asks for, with their byte offsets.
pub fn placeholders(text: &str) -> impl Iterator<Item = (usize, &str)> {
    pieces(text).filter_map(|piece| match piece {
        Piece::Name(offset, name) => Some((offset, name)),
        Piece::Text(_) => None,
    })
}

enum Piece<'a> {
    /// Text that stands for itself.
    Text(&'a str),
    /// A name between braces, and its byte offset in the text.
    Name(usize, &'a str),
}

/// Cuts a text into plain text and names.
fn pieces(text: &str) -> impl Iterator<Item = Piece<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let offset = text.len() - rest.len();
        let (piece, length) = next_piece(rest, offset)?;
        rest = rest.get(length..).unwrap_or_default();
        Some(piece)
    })
}

/// The first piece of a text that begins at `offset`, and how many bytes it takes.
fn next_piece(rest: &str, offset: usize) -> Option<(Piece<'_>, usize)> {
    let plain = rest.find(['{', '}']).unwrap_or(rest.len());
    if plain > 0 {
        return Some((Piece::Text(rest.get(..plain)?), plain));
    }
    if rest.starts_with("{{") || rest.starts_with("}}") {
        return Some((Piece::Text(rest.get(..1)?), 2));
    }
    // A brace that opens no name is a brace: JSON in a text is no reason to fail.
    let name = rest.strip_prefix('{').and_then(|inside| {
        let (name, after) = inside.split_at(inside.find(['{', '}', '\n'])?);
        (!name.is_empty() && after.starts_with('}')).then_some(name)
    });
    match name {
        Some(name) => Some((Piece::Name(offset + 1, name), name.len() + 2)),
        None => Some((Piece::Text(rest.get(..1)?), 1)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn values() -> serde_json::Map<String, Json> {
        let json =
            json!({"city": "Bergen", "price": 50.0, "unset": null, "ok": true, "list": ["a", 1], "odd name?": 3});
        json.as_object().unwrap().clone()
    }

    fn filled(text: &str) -> String {
        fill(text, &values()).content.into_owned()
    }

    #[test]
    fn places_are_filled_as_python_prints() {
        assert_eq!(filled("To {city} for {price}, {unset}, {ok}, {list}"), "To Bergen for 50.0, None, True, ['a', 1]");
        assert_eq!(filled("{odd name?}{city}"), "3Bergen");
        assert!(matches!(fill("nothing to do", &values()).content, Cow::Borrowed(_)));
    }

    #[test]
    fn doubled_braces_stand_for_one() {
        assert_eq!(filled(r#"/inform{{"to":"{city}"}}"#), r#"/inform{"to":"Bergen"}"#);
        assert_eq!(filled("{{city}} {{{city}}}"), "{city} {Bergen}");
    }

    #[test]
    fn a_lone_brace_is_a_brace() {
        assert_eq!(filled("{ and } and {} and {a\nb} and {"), "{ and } and {} and {a\nb} and {");
    }

    #[test]
    fn an_unknown_name_leaves_the_text_and_is_reported_once() {
        let result = fill("{city} {nope} {nope} {{x}}", &values());
        assert_eq!(result.content, "{city} {nope} {nope} {{x}}");
        assert_eq!(result.unknown, ["nope"]);
    }

    #[test]
    fn nested_values_are_filled_each_for_itself() {
        let custom = json!({"{city}": ["to {city}", {"x": "{nope}"}], "n": 1});
        let result = fill_json(&custom, &values());
        assert_eq!(result.content, json!({"{city}": ["to Bergen", {"x": "{nope}"}], "n": 1}));
        assert_eq!(result.unknown, ["nope"]);
    }

    #[test]
    fn what_is_nested_too_deeply_stays_as_it_was_written() {
        let nested = |text: &str, levels| (0..levels).fold(json!(text), |inner, _| json!([inner]));
        let filled = |levels| fill_json(&nested("{city}", levels), &values()).content;
        assert_eq!(filled(RESPONSE_DEPTH - 1), nested("Bergen", RESPONSE_DEPTH - 1));
        assert_eq!(filled(RESPONSE_DEPTH), nested("{city}", RESPONSE_DEPTH));
    }

    #[test]
    fn arguments_stand_over_slots() {
        let arguments = json!({"city": "Oslo"}).as_object().unwrap().clone();
        let both = Over { first: &arguments, then: &values() };
        assert_eq!(fill("{city} {price}", &both).content, "Oslo 50.0");
    }

    #[test]
    fn placeholders_have_places() {
        let found = |text| placeholders(text).collect::<Vec<_>>();
        assert_eq!(found("a {b} c {{d}} {e"), [(3, "b")]);
        assert_eq!(found("/x{{\"a\":\"b\"}} {longer name}"), [(15, "longer name")]);
        assert_eq!(found("{}{a{é}{{{f}}}"), [(5, "é"), (11, "f")]);
    }

    proptest! {
        #[test]
        fn a_value_is_never_looked_at_again(value in "[{}a-z%\n ]{0,30}") {
            let slots = json!({"x": value, "a": "WRONG"}).as_object().unwrap().clone();
            let result = fill("<{x}>", &slots);
            prop_assert_eq!(result.content, format!("<{value}>"));
        }

        #[test]
        fn any_text_is_taken(text in "[{}a\n]{0,40}") {
            let _ = fill(&text, &values());
            let doubled = text.replace('{', "{{").replace('}', "}}");
            prop_assert_eq!(fill(&doubled, &values()).content, text.as_str());
        }
    }
}
