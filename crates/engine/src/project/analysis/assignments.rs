//! Checks values that steps and buttons assign to slots: their types, and buttons that fill the wrong slot.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::{
    super::{SlotType, references::SlotAssignment},
    project_index::ProjectIndex,
};
use crate::finding::{Findings, did_you_mean};

/// Values in payloads that reset a slot.
const NULLS: [&str; 3] = ["none", "null", "undefined"];

pub(super) fn check(index: &ProjectIndex<'_>, findings: &mut Findings) {
    misdirected_buttons(index, findings);
    for fill in index.assignments.iter().filter(|fill| !fill.builtin) {
        let Some(slot) = index.project.slot(&fill.slot) else { continue };
        if fits(&slot.kind, fill) {
            continue;
        }
        let value = fill.value.as_str().map_or_else(|| fill.value.to_string(), str::to_owned);
        let help = match &slot.kind {
            SlotType::Categorical(values) => match did_you_mean(&value, values.iter().map(|value| &**value)) {
                Some(near) => format!("Did you mean `{near}`?"),
                None => format!("Its values are `{}`.", values.join("`, `")),
            },
            SlotType::Bool => "Write `true`, `false` or `null`.".to_owned(),
            SlotType::Float { .. } => "Write a number or `null`.".to_owned(),
            _ => "Write a value of its type.".to_owned(),
        };
        let kind = slot.kind.name();
        if fill.button_of.is_some() {
            let message =
                format!("the button sets `{}` to `{value}`, which is not a valid value of a `{kind}` slot", slot.name);
            findings.warning("F0321", &fill.place, message, help);
        } else {
            let message = format!("`{value}` is not a valid value of `{}`, a `{kind}` slot", slot.name);
            findings.warning("F0320", &fill.place, message, help);
        }
    }
}

/// Reports responses of collect steps whose buttons all fill other slots. A click on one does not answer the question.
fn misdirected_buttons(index: &ProjectIndex<'_>, findings: &mut Findings) {
    let mut questions: BTreeMap<&str, Vec<&SlotAssignment>> = BTreeMap::new();
    // A slot that does not exist is already reported (F0310).
    let known = |fill: &&SlotAssignment| !fill.builtin && index.project.slot(&fill.slot).is_some();
    for fill in index.assignments.iter().filter(known) {
        let asked = fill.button_of.as_deref().and_then(|response| response.strip_prefix("utter_ask_"));
        if let Some(slot) = asked.filter(|slot| index.collected.contains(slot)) {
            questions.entry(slot).or_default().push(fill);
        }
    }
    for (slot, fills) in questions {
        let elsewhere = |fill: &&SlotAssignment| &*fill.slot != slot;
        let Some(first) = fills.first().filter(|_| fills.iter().all(elsewhere)) else { continue };
        let message =
            format!("the buttons that ask for `{slot}` fill `{}`, so they do not answer the question", first.slot);
        findings.warning("F0327", &first.place, message, format!("Write `/SetSlots({slot}=…)`."));
    }
}

/// Whether the value is valid for the type of the slot, after the conversions at assignment.
fn fits(kind: &SlotType, fill: &SlotAssignment) -> bool {
    let value = &fill.value;
    let text = value.as_str().map(str::trim);
    // A placeholder in a payload is replaced when the button is shown.
    if value.is_null() || text.is_some_and(|text| text.contains(['{', '}'])) {
        return true;
    }
    if fill.button_of.is_some() && text.is_some_and(|text| NULLS.contains(&text.to_lowercase().as_str())) {
        return true;
    }
    match kind {
        SlotType::Text | SlotType::Any | SlotType::List => true,
        SlotType::Bool => match text {
            Some(text) => is_number(text) || ["true", "false", "yes", "no"].contains(&text.to_lowercase().as_str()),
            None => value.is_boolean() || value.is_number(),
        },
        SlotType::Float { .. } => text.map_or(value.is_number(), is_number),
        SlotType::Categorical(values) => {
            let text = text.map_or_else(|| value.to_string(), str::to_owned).to_lowercase();
            let is_whole = matches!(value, Json::Number(_)) && values.iter().any(|value| value.parse::<f64>().is_ok());
            values.iter().any(|value| value.to_lowercase() == text) || is_whole
        }
    }
}

fn is_number(text: &str) -> bool {
    text.parse::<f64>().is_ok()
}
