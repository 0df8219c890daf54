//! Reads the fields of responses whose types providers get wrong.
//!
//! A field of a wrong type must not spoil the response: what is meant is taken if it is clear (`"1"` is the number 1, 7 is the id "7"),
//! and the field is ignored otherwise.

use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// A field that should be a text.
pub(crate) fn text<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    Value::deserialize(from).map(|value| text_of(&value))
}

/// A field that should be a number without sign and fraction.
pub(crate) fn number<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    Value::deserialize(from).map(|value| number_of(&value))
}

/// A text, or a number as text.
pub(crate) fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// A number without sign and fraction, or a text that contains one.
pub(crate) fn number_of(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => {
            let whole = number.as_f64().filter(|number| number.fract() == 0.0 && (0.0..9e15).contains(number));
            number.as_u64().or(whole.map(|number| number as u64))
        }
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

/// The elements of a field that should be a list. A single element may come without its list.
pub(crate) fn list_of(value: Option<Value>) -> Vec<Value> {
    match value {
        None | Some(Value::Null | Value::Bool(false)) => Vec::new(),
        Some(Value::Array(list)) => list,
        Some(Value::Object(map)) if map.is_empty() => Vec::new(),
        Some(Value::String(text)) if text.is_empty() => Vec::new(),
        Some(single) => vec![single],
    }
}

/// The text of arguments: JSON as a text by the API, or the JSON itself.
pub(crate) fn arguments_of(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}
