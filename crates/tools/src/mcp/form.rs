//! The forms of elicitation: which of them can be answered.
//!
//! The protocol allows flat objects of primitive fields
//! (<https://modelcontextprotocol.io/specification/2025-11-25/client/elicitation#requested-schema>). A form with anything else is declined
//! before anybody is asked: a question for such a field could be repeated without end, because no answer would fit.

use serde_json::{Map, Value as Json};

use crate::{
    FormField,
    messages::{ToolMessage, render_message},
};

/// Keywords that refer to other schemas, combine schemas or describe objects. `anyOf` and `oneOf` are none of them: they are
/// used for choices with titles and for optional values.
const UNSUPPORTED: [&str; 16] = [
    "$ref",
    "$dynamicRef",
    "$recursiveRef",
    "allOf",
    "not",
    "if",
    "then",
    "else",
    "properties",
    "patternProperties",
    "propertyNames",
    "dependentSchemas",
    "dependentRequired",
    "dependencies",
    "prefixItems",
    "contains",
];

/// The first field that keeps the form from being answered, with the cause; `None` if the form can be answered. Optional fields
/// which are not `filled` are not looked at: they are left out of the answer.
pub(super) fn problem(form: &Json, is_filled: impl Fn(&str) -> bool) -> Option<FormField> {
    let whole = |problem| Some(FormField { name: String::new(), problem: Some(problem) });
    let Json::Object(map) = form else { return whole(unsupported_type(form)) };
    let combination = ["anyOf", "oneOf"].into_iter().find(|keyword| map.contains_key(*keyword));
    if let Some(keyword) = combination.or_else(|| unsupported_keyword(map).filter(|keyword| *keyword != "properties")) {
        return whole(render_message(ToolMessage::FormKeyword, &[("keyword", &keyword)]));
    }
    if let Some(other) = map.get("type").filter(|kind| *kind != "object") {
        return whole(unsupported_type(other));
    }
    let none = Map::new();
    let properties = match map.get("properties") {
        None => &none,
        Some(Json::Object(properties)) => properties,
        Some(other) => return whole(unsupported_type(other)),
    };
    let required = required(form);
    let absent = required.iter().find(|name| !properties.contains_key(**name));
    if let Some(name) = absent {
        return Some(FormField::new(*name, render_message(ToolMessage::FormNoProperty, &[])));
    }
    let mut asked = properties.iter().filter(|(name, _)| required.contains(&name.as_str()) || is_filled(name));
    asked.find_map(|(name, schema)| field_problem(schema).map(|problem| FormField::new(name, problem)))
}

/// The names of the required fields.
fn required(form: &Json) -> Vec<&str> {
    let list = form.get("required").and_then(Json::as_array);
    list.into_iter().flatten().filter_map(Json::as_str).collect()
}

/// Why no answer can be given to a field with this schema.
fn field_problem(schema: &Json) -> Option<String> {
    let Json::Object(map) = schema else { return Some(unsupported_type(schema)) };
    if let Some(keyword) = unsupported_keyword(map) {
        return Some(render_message(ToolMessage::FormKeyword, &[("keyword", &keyword)]));
    }
    if let Some(kind) = map.get("type") {
        let kinds = match kind {
            Json::Array(kinds) => kinds.as_slice(),
            kind => std::slice::from_ref(kind),
        };
        let known = |kind: &&Json| matches!(kind.as_str(), Some("string" | "number" | "integer" | "boolean" | "array"));
        if !kinds.iter().any(|kind| known(&kind)) {
            return Some(unsupported_type(kind));
        }
    }
    if let Some(items) = map.get("items")
        && let Some(problem) = field_problem(items)
    {
        return Some(problem);
    }
    // Each branch must be readable; one of them must be a value that can be given.
    for keyword in ["anyOf", "oneOf"] {
        let branches = map.get(keyword).and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
        let problems: Vec<_> = branches.iter().map(field_problem).collect();
        let refers = branches.iter().zip(&problems).find(|(branch, _)| branch.as_object().is_some_and(refers));
        if let Some((_, problem)) = refers {
            return problem.clone();
        }
        if !branches.is_empty() && problems.iter().all(Option::is_some) {
            return problems.into_iter().flatten().next();
        }
    }
    None
}

fn refers(schema: &Map<String, Json>) -> bool {
    schema.keys().any(|key| key.ends_with("Ref") || key == "$ref")
}

fn unsupported_keyword(schema: &Map<String, Json>) -> Option<&'static str> {
    UNSUPPORTED.into_iter().find(|keyword| schema.contains_key(*keyword))
}

/// The text for a type that is no type of a field, or for something in the place of a schema.
fn unsupported_type(kind: &Json) -> String {
    let mut kind = kind.to_string();
    kind.truncate(kind.floor_char_boundary(SHOWN_TYPE));
    render_message(ToolMessage::FormType, &[("type", &kind)])
}

/// Bytes of a type that are shown.
const SHOWN_TYPE: usize = 64;
