//! Interpolation of `{slot}` placeholders in responses, in one pass; inserted values are not parsed again.

use std::borrow::Cow;

use serde_json::Value as Json;

use super::python::python_text;
use crate::limits::RESPONSE_DEPTH;

/// Lookup of a value by name.
pub trait ValueLookup {
    /// The value of a name: null for a slot that is not set, `None` for a name that does not exist.
    fn value(&self, name: &str) -> Option<Cow<'_, Json>>;
}

impl ValueLookup for serde_json::Map<String, Json> {
    fn value(&self, name: &str) -> Option<Cow<'_, Json>> {
        self.get(name).map(Cow::Borrowed)
    }
}

/// Two layers of values, such as the keyword arguments of an action server over the slots.
#[derive(Clone, Copy)]
pub struct LayeredValues<'a> {
    /// The layer that takes precedence.
    pub first: &'a dyn ValueLookup,
    /// The layer for names that the first does not have.
    pub fallback: &'a dyn ValueLookup,
}

impl std::fmt::Debug for LayeredValues<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LayeredValues")
    }
}

impl ValueLookup for LayeredValues<'_> {
    fn value(&self, name: &str) -> Option<Cow<'_, Json>> {
        self.first.value(name).or_else(|| self.fallback.value(name))
    }
}

/// The result of an interpolation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interpolated<T> {
    /// The text or JSON value.
    pub content: T,
    /// Names that do not exist, in order, each once. A string with such a placeholder is unchanged in `content`.
    pub unknown: Vec<String>,
}

/// Replaces the `{name}` placeholders of a text.
///
/// A value prints as with Python's `str` (a slot that is not set as `None`); braces in it have no meaning. `{{` and `}}` mean one
/// literal brace. A name may contain any character except line breaks and braces. If any name does not exist, the whole text is
/// returned unchanged.
pub fn interpolate_text<'a>(text: &'a str, values: &dyn ValueLookup) -> Interpolated<Cow<'a, str>> {
    let mut unknown = Vec::new();
    let content = interpolate_str(text, values, &mut unknown);
    Interpolated { content, unknown }
}

/// Replaces the placeholders in every string of a JSON value (`custom`, `buttons`, `elements` of a response); keys are unchanged.
///
/// Each string is independent: one with a name that does not exist is unchanged, the others are interpolated. Strings nested deeper
/// than [`RESPONSE_DEPTH`] are unchanged.
pub fn interpolate_json(value: &Json, values: &dyn ValueLookup) -> Interpolated<Json> {
    let mut unknown = Vec::new();
    let content = interpolate_value(value, values, RESPONSE_DEPTH, &mut unknown);
    Interpolated { content, unknown }
}

fn interpolate_value(value: &Json, values: &dyn ValueLookup, depth: usize, unknown: &mut Vec<String>) -> Json {
    let Some(inner) = depth.checked_sub(1) else { return value.clone() };
    match value {
        Json::String(text) => Json::String(interpolate_str(text, values, unknown).into_owned()),
        Json::Array(items) => items.iter().map(|item| interpolate_value(item, values, inner, unknown)).collect(),
        Json::Object(map) => {
            map.iter().map(|(key, item)| (key.clone(), interpolate_value(item, values, inner, unknown))).collect()
        }
        simple => simple.clone(),
    }
}

fn interpolate_str<'a>(text: &'a str, values: &dyn ValueLookup, unknown: &mut Vec<String>) -> Cow<'a, str> {
    if !text.contains(['{', '}']) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 32);
    let mut all_known = true;
    for segment in segments(text) {
        match segment {
            Segment::Text(plain) => out.push_str(plain),
            Segment::Name(_, name) => match values.value(name) {
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

/// The names of the placeholders in a text, with the byte offsets of the names.
pub fn placeholders(text: &str) -> impl Iterator<Item = (usize, &str)> {
    segments(text).filter_map(|segment| match segment {
        Segment::Name(offset, name) => Some((offset, name)),
        Segment::Text(_) => None,
    })
}

enum Segment<'a> {
    /// Literal text.
    Text(&'a str),
    /// A placeholder: the byte offset of its name, and the name.
    Name(usize, &'a str),
}

/// Splits a text into literal text and placeholders.
fn segments(text: &str) -> impl Iterator<Item = Segment<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let offset = text.len() - rest.len();
        let (segment, length) = next_segment(rest, offset)?;
        rest = rest.get(length..).unwrap_or_default();
        Some(segment)
    })
}

/// The first segment of `rest`, which begins at byte `offset` of the whole text, and its length in bytes.
fn next_segment(rest: &str, offset: usize) -> Option<(Segment<'_>, usize)> {
    let plain = rest.find(['{', '}']).unwrap_or(rest.len());
    if plain > 0 {
        return Some((Segment::Text(rest.get(..plain)?), plain));
    }
    if rest.starts_with("{{") || rest.starts_with("}}") {
        return Some((Segment::Text(rest.get(..1)?), 2));
    }
    // A brace without a name is a literal brace, so that JSON in a text is not an error.
    let name = rest.strip_prefix('{').and_then(|inside| {
        let (name, after) = inside.split_at(inside.find(['{', '}', '\n'])?);
        (!name.is_empty() && after.starts_with('}')).then_some(name)
    });
    match name {
        Some(name) => Some((Segment::Name(offset + 1, name), name.len() + 2)),
        None => Some((Segment::Text(rest.get(..1)?), 1)),
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

    fn interpolated(text: &str) -> String {
        interpolate_text(text, &values()).content.into_owned()
    }

    #[test]
    fn values_print_as_in_python() {
        assert_eq!(
            interpolated("To {city} for {price}, {unset}, {ok}, {list}"),
            "To Bergen for 50.0, None, True, ['a', 1]"
        );
        assert_eq!(interpolated("{odd name?}{city}"), "3Bergen");
        assert!(matches!(interpolate_text("nothing to do", &values()).content, Cow::Borrowed(_)));
    }

    #[test]
    fn doubled_braces_are_literal() {
        assert_eq!(interpolated(r#"/inform{{"to":"{city}"}}"#), r#"/inform{"to":"Bergen"}"#);
        assert_eq!(interpolated("{{city}} {{{city}}}"), "{city} {Bergen}");
    }

    #[test]
    fn a_brace_without_a_name_is_literal() {
        assert_eq!(interpolated("{ and } and {} and {a\nb} and {"), "{ and } and {} and {a\nb} and {");
    }

    #[test]
    fn an_unknown_name_leaves_the_text_and_is_reported_once() {
        let result = interpolate_text("{city} {nope} {nope} {{x}}", &values());
        assert_eq!(result.content, "{city} {nope} {nope} {{x}}");
        assert_eq!(result.unknown, ["nope"]);
    }

    #[test]
    fn strings_of_a_json_value_are_interpolated_independently() {
        let custom = json!({"{city}": ["to {city}", {"x": "{nope}"}], "n": 1});
        let result = interpolate_json(&custom, &values());
        assert_eq!(result.content, json!({"{city}": ["to Bergen", {"x": "{nope}"}], "n": 1}));
        assert_eq!(result.unknown, ["nope"]);
    }

    #[test]
    fn strings_nested_too_deeply_are_unchanged() {
        let nested = |text: &str, levels| (0..levels).fold(json!(text), |inner, _| json!([inner]));
        let interpolated = |levels| interpolate_json(&nested("{city}", levels), &values()).content;
        assert_eq!(interpolated(RESPONSE_DEPTH - 1), nested("Bergen", RESPONSE_DEPTH - 1));
        assert_eq!(interpolated(RESPONSE_DEPTH), nested("{city}", RESPONSE_DEPTH));
    }

    #[test]
    fn the_first_layer_takes_precedence() {
        let arguments = json!({"city": "Oslo"}).as_object().unwrap().clone();
        let both = LayeredValues { first: &arguments, fallback: &values() };
        assert_eq!(interpolate_text("{city} {price}", &both).content, "Oslo 50.0");
    }

    #[test]
    fn placeholders_have_byte_offsets() {
        let found = |text| placeholders(text).collect::<Vec<_>>();
        assert_eq!(found("a {b} c {{d}} {e"), [(3, "b")]);
        assert_eq!(found("/x{{\"a\":\"b\"}} {longer name}"), [(15, "longer name")]);
        assert_eq!(found("{}{a{é}{{{f}}}"), [(5, "é"), (11, "f")]);
    }

    proptest! {
        #[test]
        fn inserted_values_are_not_parsed(value in "[{}a-z%\n ]{0,30}") {
            let slots = json!({"x": value, "a": "WRONG"}).as_object().unwrap().clone();
            let result = interpolate_text("<{x}>", &slots);
            prop_assert_eq!(result.content, format!("<{value}>"));
        }

        #[test]
        fn arbitrary_text_never_panics(text in "[{}a\n]{0,40}") {
            let _ = interpolate_text(&text, &values());
            let doubled = text.replace('{', "{{").replace('}', "}}");
            prop_assert_eq!(interpolate_text(&doubled, &values()).content, text.as_str());
        }
    }
}
