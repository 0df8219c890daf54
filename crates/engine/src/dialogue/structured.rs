//! Commands of messages that need no model: `/SetSlots(a=1)`, `/intent{"entity": "value"}`, `/restart`.

use std::sync::Arc;

use serde_json::{Map, Value as Json};

use super::{commands::Source, slots, turn::Turn};
use crate::{
    conversation::{Command, FilledBy},
    ids::{FlowId, SlotName},
    limits,
    payload::{self, IntentMessage, Payload, SlotPair},
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
    payload::intent(text).map(|message| message.name)
}

/// Reads a message that begins with a slash.
pub(super) fn parse(turn: &mut Turn<'_>, text: &str) -> Parsed {
    match payload::parse(text) {
        Some(Payload::SetSlots(pairs)) => set_slots(turn, text, &pairs),
        Some(Payload::Intent(message)) if message.name == "session_end" => Parsed::EndSession,
        Some(Payload::Intent(message)) => Parsed::Commands(intent(turn, message, text), Source::Intent),
        None => Parsed::Text,
    }
}

/// The commands of a `/SetSlots(…)` message.
fn set_slots(turn: &mut Turn<'_>, text: &str, pairs: &[SlotPair<'_>]) -> Parsed {
    if text.matches('=').count() > limits::PAYLOAD_PAIRS {
        turn.note(format!("a `/SetSlots` message with more than {} pairs is ignored", limits::PAYLOAD_PAIRS));
        return Parsed::Ignored;
    }
    if pairs.is_empty() {
        turn.note("a `/SetSlots` message without a `name=value` pair is ignored");
        return Parsed::Ignored;
    }
    let mut commands = Vec::new();
    for SlotPair { name, value, .. } in pairs {
        if turn.project.slot(name).is_none() {
            turn.note(format!("a `/SetSlots` message names `{name}`, which is no slot: the whole message is ignored"));
            return Parsed::Ignored;
        }
        let value = if slots::is_null_word(value) { Json::Null } else { literal(value) };
        commands.push(Command::SetSlot { name: SlotName::from(*name), value, extractor: FilledBy::Payload });
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

/// What an intent message means; one that means nothing is told.
fn intent(turn: &mut Turn<'_>, message: IntentMessage<'_>, text: &str) -> Vec<Command> {
    let mut commands = meaning(turn, message.name, text, &message.entities());
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
