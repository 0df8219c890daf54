//! The beginning of a turn: the session, the message, and what runs before the message is understood.

use serde_json::{Map, Value as Json};

use super::{
    Next, agent_frame, code_change, commands, commands::Source, pending, shortcuts, structured, structured::Parsed,
    turn::Turn,
};
use crate::{
    conversation::{ActionOrigin, Command, Event, EventKind, FilledBy, FlowLocation, UserMessage},
    ids::{ActionName, SlotName},
    project::{
        Mapping,
        builtin::{LISTEN, SESSION_METADATA, SESSION_START, SILENCES},
    },
};

/// Takes a message of the user.
pub(super) fn receive(turn: &mut Turn<'_>, message: UserMessage) -> Next {
    let intent = structured::intent_name(&message.text);
    if is_needed(turn) || intent == Some("session_start") {
        begin(turn, &message.metadata);
    }
    let (restarts, speaks) = (intent == Some("restart"), intent != Some("silence_timeout"));
    turn.record(Event { at: turn.at, kind: EventKind::User(message), place: FlowLocation::default() });
    pending::abandon(turn);
    if turn.conversation().paused && !restarts {
        turn.note("the conversation is paused: the message is recorded and nothing is said");
        return Next::Listen;
    }
    if speaks {
        silence_is_over(turn);
    }
    before_understanding(turn)
}

/// The user spoke: `pattern_user_silence` begins to count anew.
fn silence_is_over(turn: &mut Turn<'_>) {
    if turn.conversation().set_value(SILENCES).is_none() {
        return;
    }
    let initial = turn.project.slot(SILENCES).map_or(Json::Null, |slot| slot.initial.clone());
    if *turn.slot(SILENCES) != initial {
        turn.emit(EventKind::Slot { name: SlotName::from(SILENCES), value: initial, filled_by: None, reset: true });
    }
}

/// Runs the actions that come first, one after the other, then turns to the message.
pub(super) fn before_understanding(turn: &mut Turn<'_>) -> Next {
    match early_action(turn) {
        Some(name) => turn.act(name, ActionOrigin::TurnStart),
        None => understand(turn),
    }
}

/// The next action that runs before the message is understood: a project's own greeting of a new session, then those that
/// run at every message. How many have run, the conversation counts.
pub(super) fn early_action(turn: &Turn<'_>) -> Option<ActionName> {
    let skip = turn.conversation().turn.acts as usize;
    let every_turn =
        turn.project.domain.slots.values().flat_map(|slot| &slot.mappings).filter_map(|mapping| match mapping {
            Mapping::Controlled { run_action_every_turn: Some(action) } => Some(action.as_str()),
            _ => None,
        });
    let mut names: Vec<&str> = Vec::new();
    let by_message = turn.conversation().latest_message.as_ref().map(|message| structured::intent_name(&message.text));
    // The pattern of `/session_start` runs it itself.
    if turn.conversation().turn.first && by_message != Some(Some("session_start")) {
        names.push(SESSION_START);
    }
    for name in every_turn {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.into_iter().filter(|name| turn.project.lists_action(name)).nth(skip).map(ActionName::from)
}

fn understand(turn: &mut Turn<'_>) -> Next {
    let Some(message) = &turn.conversation().latest_message else { return Next::Listen };
    let text = message.text.clone();
    // First of all: whoever stores messages cuts them after this limit, and half a payload must not be read.
    if is_longer(&text, crate::limits::MESSAGE_TEXT) {
        return commands::execute(turn, vec![too_long(crate::limits::MESSAGE_TEXT)], Source::Check);
    }
    match structured::parse(turn, &text) {
        Parsed::Commands(commands, source) => return commands::execute(turn, commands, source),
        Parsed::EndSession => {
            turn.emit(EventKind::SessionEnded { reason: Some("the channel ended it".to_owned()) });
            return Next::EndSession;
        }
        Parsed::Ignored => return commands::none(turn, Source::Payload),
        Parsed::Text => {}
    }
    if code_change::changed(turn).is_some() {
        // What was said was said to another version: no model is asked about it.
        return commands::execute(turn, Vec::new(), Source::Check);
    }
    let command = match refused(turn, &text) {
        Some(error) => error,
        None => {
            if let Some((commands, source)) = shortcuts::take(turn, &text) {
                return commands::execute(turn, commands, source);
            }
            if let Some(answer) = structured::whole_text(turn, &text) {
                return commands::execute(turn, vec![answer], Source::Mapping);
            }
            if turn.project.config.generator.is_some() {
                return Next::Understand;
            }
            // Without a command generator an agent that waits is the only one who can read it.
            if agent_frame::waits(&turn.stack) {
                Command::ContinueAgent
            } else {
                Command::CannotHandle { reason: "cannot_handle_not_supported".to_owned() }
            }
        }
    };
    commands::execute(turn, vec![command], Source::Check)
}

/// An empty message, or one longer than the command generator may see.
fn refused(turn: &Turn<'_>, text: &str) -> Option<Command> {
    if text.trim().is_empty() {
        let error_type = "rasa_internal_error_user_input_empty".to_owned();
        return Some(Command::Error { error_type, info: Map::new() });
    }
    let most = turn.project.config.generator.as_ref()?.max_characters?;
    is_longer(text, most).then(|| too_long(most))
}

fn is_longer(text: &str, most: usize) -> bool {
    text.len() > most && text.chars().count() > most
}

fn too_long(most: usize) -> Command {
    let info = Map::from_iter([("max_characters".to_owned(), Json::from(most))]);
    Command::Error { error_type: "rasa_internal_error_user_input_too_long".to_owned(), info }
}

/// Whether a session must begin before anything else happens.
pub(super) fn is_needed(turn: &Turn<'_>) -> bool {
    let (session, rules) = (&turn.conversation().session, &turn.project.domain.session);
    let silent = turn.at.since(session.last_user_at) as f64 / 60e6;
    let expired = rules.start_after_expiry && rules.expiration_minutes > 0.0 && silent > rules.expiration_minutes;
    !session.started || session.ended || (session.turns > 0 && expired)
}

/// Begins a session: slots are carried over as the domain says, and what the channel knows is kept.
pub(super) fn begin(turn: &mut Turn<'_>, metadata: &Map<String, Json>) {
    turn.stack.clear();
    turn.pending = None;
    turn.emit(EventKind::Action { name: ActionName::from(SESSION_START) });
    turn.emit(EventKind::SessionStarted);
    if turn.project.domain.session.carry_over_slots {
        let carried: Vec<(SlotName, Json)> = turn
            .conversation()
            .slots
            .iter()
            .filter(|(_, slot)| slot.has_been_set && !slot.value.is_null())
            .map(|(name, slot)| (name.clone(), slot.value.clone()))
            .collect();
        for (name, value) in carried {
            let filled_by = turn.conversation().slots.state(name.as_str()).and_then(|slot| slot.filled_by);
            turn.emit(EventKind::Slot { name, value, filled_by, reset: false });
        }
    } else if turn.conversation().slots.iter().next().is_some() {
        turn.emit(EventKind::ResetSlots);
    }
    if !metadata.is_empty() {
        turn.set_slot(&SlotName::from(SESSION_METADATA), Json::Object(metadata.clone()), FilledBy::Custom);
    }
    turn.emit(EventKind::Action { name: ActionName::from(LISTEN) });
}

/// `action_session_start` as a step. At the first message of a session there is nothing to do any more.
pub(super) fn action(turn: &mut Turn<'_>) {
    if turn.conversation().session.started && turn.conversation().session.turns <= 1 {
        return;
    }
    let pattern = turn.stack.pop();
    begin(turn, &Map::new());
    turn.stack.extend(pattern);
}
