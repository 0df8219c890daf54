//! Messages that are written for machines: `/SetSlots(a=1)`, `/intent{"entity": "value"}`, `/restart`. Buttons send them, and
//! no model is needed to read them.

use std::sync::Arc;

use serde_json::{Map, Value as Json};

use super::{commands::Source, slots, turn::Turn};
use crate::{
    conversation::{Command, FilledBy},
    ids::{FlowId, SlotName},
    limits,
    project::Mapping,
};

/// What a message turned out to be.
pub(super) enum Parsed {
    /// Free text.
    Text,
    /// These commands.
    Commands(Vec<Command>, Source),
    /// The channel ends the session.
    EndSession,
    /// A payload that is refused as a whole; `why` says which rule.
    Ignored,
}

/// The name of an intent message, without its entities.
pub(super) fn intent_name(text: &str) -> Option<&str> {
    let rest = text.strip_prefix('/')?;
    let name = rest.split_once('{').map_or(rest, |(name, _)| name).trim_end();
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "_-+/.".contains(c));
    (is_name && !rest.starts_with("SetSlots(")).then_some(name)
}

/// Reads a message that begins with a slash.
pub(super) fn parse(turn: &mut Turn<'_>, text: &str) -> Parsed {
    if let Some(payload) = text.strip_prefix("/SetSlots(") {
        return set_slots(turn, payload);
    }
    match intent_name(text) {
        Some("session_end") => Parsed::EndSession,
        Some(name) => Parsed::Commands(intent(turn, name, text), Source::Intent),
        None => Parsed::Text,
    }
}

/// The commands of a `/SetSlots(…)` message, from what follows the parenthesis.
pub(super) fn set_slots(turn: &mut Turn<'_>, payload: &str) -> Parsed {
    let payload = payload.trim_end().strip_suffix(')').unwrap_or(payload);
    if payload.matches('=').count() > limits::PAYLOAD_PAIRS {
        turn.note(format!("a `/SetSlots` message with more than {} pairs is ignored", limits::PAYLOAD_PAIRS));
        return Parsed::Ignored;
    }
    let mut commands = Vec::new();
    for (name, value) in pairs(payload) {
        if turn.project.slot(name).is_none() {
            turn.note(format!("a `/SetSlots` message names `{name}`, which is no slot: the whole message is ignored"));
            return Parsed::Ignored;
        }
        let value = if slots::is_null_word(value) { Json::Null } else { literal(value) };
        commands.push(Command::SetSlot { name: SlotName::from(name), value, extractor: FilledBy::Payload });
    }
    if commands.is_empty() {
        turn.note("a `/SetSlots` message without a `name=value` pair is ignored");
        return Parsed::Ignored;
    }
    Parsed::Commands(commands, Source::Payload)
}

/// A list is kept whole; everything else is text, which the slot's type reads.
fn literal(value: &str) -> Json {
    if value.starts_with('[')
        && let Ok(list @ Json::Array(_)) = serde_json::from_str(value)
    {
        return list;
    }
    Json::from(value)
}

/// `name=value` pairs; commas inside brackets belong to the value.
fn pairs(payload: &str) -> Vec<(&str, &str)> {
    let (mut found, mut depth, mut from) = (Vec::new(), 0_i32, 0);
    let cut = |from: usize, to: usize| payload.get(from..to).and_then(|pair| pair.split_once('='));
    for (at, c) in payload.char_indices() {
        match c {
            '[' | '{' => depth += 1,
            ']' | '}' => depth -= 1,
            ',' if depth <= 0 => {
                found.extend(cut(from, at));
                from = at + 1;
            }
            _ => {}
        }
    }
    found.extend(cut(from, payload.len()));
    found.into_iter().map(|(name, value)| (name.trim(), value.trim())).filter(|(name, _)| !name.is_empty()).collect()
}

/// What an intent message means; one that means nothing is told.
fn intent(turn: &mut Turn<'_>, name: &str, text: &str) -> Vec<Command> {
    let mut commands = meaning(turn, name, text, &entities(text));
    if commands.is_empty() {
        commands.push(Command::CannotHandle { reason: "cannot_handle_invalid_intent".to_owned() });
    }
    commands
}

/// What an intent means: the flow or pattern that it triggers, and the slots whose mappings it feeds.
pub(super) fn meaning(turn: &mut Turn<'_>, name: &str, text: &str, entities: &Map<String, Json>) -> Vec<Command> {
    let project = turn.project;
    let mut commands = Vec::new();
    let triggered = project.flows.values().find(|flow| {
        flow.nlu_triggers.iter().any(|trigger| *trigger.intent == *name && trigger.confidence_threshold <= 1.0)
    });
    if let Some(flow) = triggered {
        commands.push(command_for(&flow.id, flow.is_pattern()));
    }
    for slot in project.domain.slots.values() {
        if let Some(value) = slot.mappings.iter().find_map(|mapping| mapped(mapping, name, text, entities)) {
            commands.push(Command::SetSlot { name: slot.name.clone(), value, extractor: FilledBy::Nlu });
        }
    }
    if commands.is_empty() && !project.domain.intents.iter().any(|known| **known == *name) {
        turn.note(format!("`/{name}` is no intent of this project"));
    }
    commands
}

/// The answer to the question on top where a mapping takes any text as one (`from_text`), so that no model is needed. A mapping
/// that wants intents is for intent messages alone: no text has one here.
pub(super) fn whole_text(turn: &Turn<'_>, text: &str) -> Option<Command> {
    let asked = super::collect::asked(turn)?;
    let slot = turn.project.slot(asked.as_str())?;
    let by_model = slot.mappings.iter().any(|mapping| matches!(mapping, Mapping::FromLlm { .. }));
    if by_model && !turn.project.config.nlu_adapter {
        return None;
    }
    let takes = slot.mappings.iter().any(|mapping| match mapping {
        Mapping::FromText { intents, active_flows, .. } => {
            let active = || turn.stack.iter().any(|frame| active_flows.contains(&frame.flow_id));
            intents.is_empty() && (active_flows.is_empty() || active())
        }
        _ => false,
    });
    takes.then(|| Command::SetSlot { name: asked.clone(), value: Json::from(text.trim()), extractor: FilledBy::Nlu })
}

fn command_for(flow: &FlowId, is_pattern: bool) -> Command {
    let flow = flow.clone();
    if is_pattern { Command::StartPattern { flow } } else { Command::StartFlow { flow } }
}

fn entities(text: &str) -> Map<String, Json> {
    let json = text.find('{').and_then(|at| text.get(at..)).and_then(|json| serde_json::from_str(json).ok());
    json.unwrap_or_default()
}

fn mapped(mapping: &Mapping, intent: &str, text: &str, entities: &Map<String, Json>) -> Option<Json> {
    let fits = |intents: &[Arc<str>], not: &[Arc<str>]| {
        (intents.is_empty() || intents.iter().any(|one| **one == *intent)) && !not.iter().any(|one| **one == *intent)
    };
    match mapping {
        // Roles and groups need a trained extractor; a message that names an entity gives its value.
        Mapping::FromEntity { entity, role: None, group: None, intents, not_intents, .. } => {
            entities.get(&**entity).filter(|_| fits(intents, not_intents)).cloned()
        }
        Mapping::FromIntent { value, intents, not_intents, .. } => fits(intents, not_intents).then(|| value.clone()),
        Mapping::FromText { intents, not_intents, .. } if !intents.is_empty() => {
            fits(intents, not_intents).then(|| Json::from(text))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_are_read_pair_by_pair() {
        assert_eq!(pairs("a=1, b=two words ,c = "), [("a", "1"), ("b", "two words"), ("c", "")]);
        assert_eq!(pairs(r#"to=["Oslo", "Bergen"],x=1"#), [("to", r#"["Oslo", "Bergen"]"#), ("x", "1")]);
        assert_eq!(pairs("nothing"), []);
    }

    #[test]
    fn intents_are_names_and_nothing_else() {
        assert_eq!(intent_name("/greet"), Some("greet"));
        assert_eq!(intent_name(r#"/inform{"a": "b"}"#), Some("inform"));
        assert_eq!(intent_name("/help me please"), None);
        assert_eq!(intent_name("/SetSlots(a=1)"), None);
        assert_eq!(intent_name("greet"), None);
    }
}
