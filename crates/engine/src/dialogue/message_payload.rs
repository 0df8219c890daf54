//! Structured messages: the commands of `/SetSlots(a=1)`, `/intent{"entity": "value"}` and `/restart`.

use std::sync::Arc;

use serde_json::{Map, Value as Json};

use super::{advance_context::AdvanceContext, commands::CommandSource, slots};
use crate::{
    conversation::{Command, FilledBy},
    ids::{FlowId, SlotName},
    limits,
    payload::{self, IntentMessage, Payload, SlotPair},
    project::Mapping,
};

/// A parsed message.
pub(super) enum ParsedMessage {
    /// Free text.
    Text,
    /// A structured message with these commands.
    Commands(Vec<Command>, CommandSource),
    /// The channel ends the session.
    EndSession,
    /// A payload that is ignored as a whole; a reason names the rule.
    Ignored,
}

/// The name of an intent message, without its entities.
pub(super) fn intent_name(text: &str) -> Option<&str> {
    payload::intent(text).map(|message| message.name)
}

/// Parses a message.
pub(super) fn parse(turn: &mut AdvanceContext<'_>, text: &str) -> ParsedMessage {
    match payload::parse(text) {
        Some(Payload::SetSlots(pairs)) => set_slots(turn, text, &pairs),
        Some(Payload::Intent(message)) if message.name == "session_end" => ParsedMessage::EndSession,
        Some(Payload::Intent(message)) => ParsedMessage::Commands(intent(turn, message, text), CommandSource::Intent),
        None => ParsedMessage::Text,
    }
}

/// The commands of a `/SetSlots(…)` message.
fn set_slots(turn: &mut AdvanceContext<'_>, text: &str, pairs: &[SlotPair<'_>]) -> ParsedMessage {
    if text.matches('=').count() > limits::PAYLOAD_PAIRS {
        turn.add_note(format!("a `/SetSlots` message with more than {} pairs is ignored", limits::PAYLOAD_PAIRS));
        return ParsedMessage::Ignored;
    }
    if pairs.is_empty() {
        turn.add_note("a `/SetSlots` message without a `name=value` pair is ignored");
        return ParsedMessage::Ignored;
    }
    let mut commands = Vec::new();
    for SlotPair { name, value, .. } in pairs {
        if turn.project.slot(name).is_none() {
            turn.add_note(format!(
                "a `/SetSlots` message names `{name}`, which is not a slot: the whole message is ignored"
            ));
            return ParsedMessage::Ignored;
        }
        let value = if slots::is_null_word(value) { Json::Null } else { literal(value) };
        commands.push(Command::SetSlot { name: SlotName::from(*name), value, extractor: FilledBy::Payload });
    }
    ParsedMessage::Commands(commands, CommandSource::Payload)
}

/// Parses a list as JSON; everything else is text, which the slot type coerces.
fn literal(value: &str) -> Json {
    if value.starts_with('[')
        && let Ok(list @ Json::Array(_)) = serde_json::from_str(value)
    {
        return list;
    }
    Json::from(value)
}

/// The commands of an intent message; `cannot handle` if it leads to none.
fn intent(turn: &mut AdvanceContext<'_>, message: IntentMessage<'_>, text: &str) -> Vec<Command> {
    let mut commands = commands_of_intent(turn, message.name, text, &message.entities());
    if commands.is_empty() {
        commands.push(Command::CannotHandle { reason: "cannot_handle_invalid_intent".to_owned() });
    }
    commands
}

/// The commands of an intent: the flow or pattern that it triggers, and the slots whose mappings match it.
pub(super) fn commands_of_intent(
    turn: &mut AdvanceContext<'_>,
    name: &str,
    text: &str,
    entities: &Map<String, Json>,
) -> Vec<Command> {
    let project = turn.project;
    let mut commands = Vec::new();
    let triggered = project.flows.values().find(|flow| {
        flow.nlu_triggers.iter().any(|trigger| *trigger.intent == *name && trigger.confidence_threshold <= 1.0)
    });
    if let Some(flow) = triggered {
        commands.push(command_for(&flow.id, flow.is_pattern()));
    }
    for slot in project.domain.slots.values() {
        if let Some(value) = slot.mappings.iter().find_map(|mapping| mapped_value(mapping, name, text, entities)) {
            commands.push(Command::SetSlot { name: slot.name.clone(), value, extractor: FilledBy::Nlu });
        }
    }
    if commands.is_empty() && !project.domain.intents.iter().any(|known| **known == *name) {
        turn.add_note(format!("`/{name}` is not an intent of this project"));
    }
    commands
}

/// The answer to the open question if a `from_text` mapping accepts any text, so that no model is needed. Mappings with
/// `intents` apply to intent messages only.
pub(super) fn answer_by_text_mapping(turn: &AdvanceContext<'_>, text: &str) -> Option<Command> {
    let asked = super::collect::asked_slot(turn)?;
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

fn mapped_value(mapping: &Mapping, intent: &str, text: &str, entities: &Map<String, Json>) -> Option<Json> {
    let fits = |intents: &[Arc<str>], not: &[Arc<str>]| {
        (intents.is_empty() || intents.iter().any(|one| **one == *intent)) && !not.iter().any(|one| **one == *intent)
    };
    match mapping {
        // Roles and groups need a trained extractor, which does not exist here; entities come from the message itself.
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
