//! Slot types: coercing and validating values.

use serde_json::{Value as Json, json};

use crate::{
    conversation::FilledBy,
    ids::SlotName,
    project::{Mapping, Project, SlotDef, SlotType},
};

/// Coerces a value from a command, a button or an agent to the type of the slot. A value that cannot be coerced is
/// returned unchanged; the rejections of the collect step report it.
pub fn coerce(kind: &SlotType, value: Json) -> Json {
    match kind {
        SlotType::Bool => as_bool(&value).map_or(value, Json::Bool),
        SlotType::Float { .. } => as_float(&value).map_or(value, |number| json!(number)),
        _ => normalize(kind, value),
    }
}

/// Normalises a value, whatever its source: the casing of declared values, and single values in lists.
pub(super) fn normalize(kind: &SlotType, value: Json) -> Json {
    match kind {
        SlotType::Categorical(values) => category(values, &value).map_or(value, Json::String),
        SlotType::List if !value.is_array() && !value.is_null() && value != "" => Json::Array(vec![value]),
        _ => value,
    }
}

/// Whether a value fits the type; null always does.
pub(super) fn is_valid(kind: &SlotType, value: &Json) -> bool {
    value.is_null()
        || match kind {
            SlotType::Bool => as_bool(value).is_some(),
            SlotType::Float { .. } => as_float(value).is_some(),
            SlotType::Categorical(values) => category(values, value).is_some(),
            _ => true,
        }
}

/// Whether a word of a payload means null; case-insensitive.
pub(super) fn is_null_word(text: &str) -> bool {
    ["none", "null", "undefined"].iter().any(|word| text.eq_ignore_ascii_case(word))
}

/// Whether two values are equal for a user: `50` and `50.0` are.
pub(super) fn same_value(a: &Json, b: &Json) -> bool {
    a == b || matches!((a.as_f64(), b.as_f64()), (Some(a), Some(b)) if a == b)
}

/// Whether the mappings of a slot allow this source; `active` are the active flows.
pub(super) fn may_fill(slot: &SlotDef, by: FilledBy, active: &[&str]) -> bool {
    let among = |flows: &[crate::ids::FlowId]| flows.is_empty() || flows.iter().any(|f| active.contains(&f.as_str()));
    match by {
        FilledBy::Llm | FilledBy::Shortcut => {
            slot.mappings.is_empty()
                || slot.mappings.iter().any(|mapping| match mapping {
                    Mapping::FromLlm { active_flows, .. } => among(active_flows),
                    _ => false,
                })
        }
        FilledBy::Nlu => slot.mappings.iter().any(|mapping| match mapping {
            Mapping::FromEntity { active_flows, .. }
            | Mapping::FromIntent { active_flows, .. }
            | Mapping::FromText { active_flows, .. } => among(active_flows),
            _ => false,
        }),
        _ => true,
    }
}

/// Whether the model may correct a value that an intent message set (`allow_nlu_correction`).
pub(super) fn allows_correction_of_nlu(slot: &SlotDef) -> bool {
    slot.mappings.iter().any(|mapping| matches!(mapping, Mapping::FromLlm { allow_nlu_correction: true, .. }))
}

/// Normalises a value for a slot of the project; values of unknown slots are unchanged.
pub(super) fn normalize_for(project: &Project, name: &SlotName, value: Json) -> Json {
    match project.slot(name.as_str()) {
        Some(slot) => normalize(&slot.kind, value),
        None => value,
    }
}

fn as_bool(value: &Json) -> Option<bool> {
    match value {
        Json::Bool(b) => Some(*b),
        Json::Number(n) => Some(n.as_f64() == Some(1.0)),
        Json::String(text) => match text.trim() {
            t if t.eq_ignore_ascii_case("true") || t.eq_ignore_ascii_case("yes") => Some(true),
            t if t.eq_ignore_ascii_case("false") || t.eq_ignore_ascii_case("no") => Some(false),
            t => finite(t).map(|number| number == 1.0),
        },
        _ => None,
    }
}

fn as_float(value: &Json) -> Option<f64> {
    match value {
        Json::Number(n) => n.as_f64(),
        Json::Bool(b) => Some(f64::from(u8::from(*b))),
        Json::String(text) => finite(text.trim()),
        _ => None,
    }
}

/// Infinity and NaN are not valid: JSON cannot represent them.
fn finite(text: &str) -> Option<f64> {
    text.parse::<f64>().ok().filter(|number| number.is_finite())
}

fn category(values: &[std::sync::Arc<str>], value: &Json) -> Option<String> {
    let text = match value {
        Json::String(text) => text.trim().to_owned(),
        Json::Number(n) => n.to_string(),
        Json::Bool(b) => b.to_string(),
        _ => return None,
    };
    let lower = text.to_lowercase();
    values
        .iter()
        .find(|known| ***known == *text)
        .or_else(|| values.iter().find(|known| known.to_lowercase() == lower))
        .map(|known| known.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn float() -> SlotType {
        SlotType::Float { min: None, max: None }
    }
    fn sizes() -> SlotType {
        SlotType::Categorical(vec!["Small".into(), "36".into()])
    }

    #[test]
    fn values_are_coerced_to_the_slot_type() {
        for (kind, given, want) in [
            (SlotType::Bool, json!("Yes"), json!(true)),
            (SlotType::Bool, json!(" no "), json!(false)),
            (SlotType::Bool, json!("1"), json!(true)),
            (SlotType::Bool, json!(2), json!(false)),
            (SlotType::Bool, json!("maybe"), json!("maybe")),
            (float(), json!("50"), json!(50.0)),
            (float(), json!("1e400"), json!("1e400")),
            (float(), json!("many"), json!("many")),
            (sizes(), json!("small"), json!("Small")),
            (sizes(), json!(36), json!("36")),
            (sizes(), json!("huge"), json!("huge")),
            (SlotType::List, json!("a"), json!(["a"])),
            (SlotType::List, json!(null), json!(null)),
            (SlotType::Text, json!(5), json!(5)),
        ] {
            assert_eq!(coerce(&kind, given.clone()), want, "{} from {given}", kind.name());
        }
    }

    #[test]
    fn values_of_another_type_are_invalid() {
        assert!(!is_valid(&SlotType::Bool, &json!("maybe")));
        assert!(!is_valid(&float(), &json!("nan")));
        assert!(!is_valid(&sizes(), &json!("huge")));
        assert!(is_valid(&sizes(), &json!(null)));
        assert!(is_valid(&SlotType::Text, &json!([1])));
    }

    #[test]
    fn numbers_are_compared_by_value() {
        assert!(same_value(&json!(50), &json!(50.0)));
        assert!(!same_value(&json!("50"), &json!(50.0)));
    }
}
