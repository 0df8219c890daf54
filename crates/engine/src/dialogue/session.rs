//! The start of a turn: the session, the message, and the actions that run before the message is understood.

use serde_json::{Map, Value as Json};

use super::{
    Next, advance_context::AdvanceContext, agent_frame, code_change, commands, commands::CommandSource,
    late_confirmations, message_payload, message_payload::ParsedMessage, pending, shortcuts,
};
use crate::{
    conversation::{ActionOrigin, Command, Event, EventKind, FilledBy, FlowLocation, Frame, UserMessage},
    ids::{ActionName, SlotName},
    project::{
        Mapping,
        builtin::{LISTEN, SESSION_METADATA, SESSION_START, SILENCES},
    },
};

/// Handles a user message.
pub(super) fn on_user_message(turn: &mut AdvanceContext<'_>, message: UserMessage) -> Next {
    let intent = message_payload::intent_name(&message.text);
    if is_session_needed(turn) || intent == Some("session_start") {
        begin_session(turn, &message.metadata);
    }
    let (restarts, speaks) = (intent == Some("restart"), intent != Some("silence_timeout"));
    turn.record(Event { at: turn.at, kind: EventKind::User(message), location: FlowLocation::default() });
    pending::abandon_pending_effect(turn);
    late_confirmations::on_turn_start(turn);
    if turn.conversation().paused && !restarts {
        turn.add_note("the conversation is paused: the message is recorded and not answered");
        return Next::Listen;
    }
    if speaks {
        reset_silence_count(turn);
    }
    before_understanding(turn)
}

/// The user wrote: resets the counter of `pattern_user_silence`.
fn reset_silence_count(turn: &mut AdvanceContext<'_>) {
    if turn.conversation().set_value(SILENCES).is_none() {
        return;
    }
    let initial = turn.project.slot(SILENCES).map_or(Json::Null, |slot| slot.initial.clone());
    if *turn.slot(SILENCES) != initial {
        turn.emit(EventKind::Slot { name: SlotName::from(SILENCES), value: initial, filled_by: None, reset: true });
    }
}

/// Runs the pending early actions one after the other, then processes the message.
pub(super) fn before_understanding(turn: &mut AdvanceContext<'_>) -> Next {
    match next_pre_understanding_action(turn) {
        Some(name) => turn.request_action(name, ActionOrigin::TurnStart),
        None => understand(turn),
    }
}

/// The next action that runs before the message is understood: the project's `action_session_start` for a new session,
/// then those with `run_action_every_turn`. The conversation counts how many have run.
pub(super) fn next_pre_understanding_action(turn: &AdvanceContext<'_>) -> Option<ActionName> {
    let skip = turn.conversation().turn.effects as usize;
    let every_turn =
        turn.project.domain.slots.values().flat_map(|slot| &slot.mappings).filter_map(|mapping| match mapping {
            Mapping::Controlled { run_action_every_turn: Some(action) } => Some(action.as_str()),
            _ => None,
        });
    let mut names: Vec<&str> = Vec::new();
    let intent = turn.conversation().latest_message.as_ref().map(|message| message_payload::intent_name(&message.text));
    // The pattern of `/session_start` runs the action itself.
    if turn.conversation().turn.first && intent != Some(Some("session_start")) {
        names.push(SESSION_START);
    }
    for name in every_turn {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.into_iter().filter(|name| turn.project.lists_action(name)).nth(skip).map(ActionName::from)
}

fn understand(turn: &mut AdvanceContext<'_>) -> Next {
    let Some(message) = &turn.conversation().latest_message else { return Next::Listen };
    let text = message.text.clone();
    // Checked first: stored messages are truncated at this limit, and half a payload must not be parsed.
    if is_longer(&text, crate::limits::MESSAGE_TEXT) {
        return commands::execute(turn, vec![too_long(crate::limits::MESSAGE_TEXT)], CommandSource::Check);
    }
    if names_skill_of_waiting_agent(turn, &text) {
        return commands::execute(turn, vec![Command::ContinueAgent], CommandSource::Check);
    }
    match message_payload::parse(turn, &text) {
        ParsedMessage::Commands(commands, source) => return commands::execute(turn, commands, source),
        ParsedMessage::EndSession => {
            turn.emit(EventKind::SessionEnded { reason: Some("the channel ended it".to_owned()) });
            return Next::EndSession;
        }
        ParsedMessage::Ignored => return commands::execute_none(turn, CommandSource::Payload),
        ParsedMessage::Text => {}
    }
    if code_change::changed_flow(turn).is_some() {
        // The message was meant for another version of the flow: no model is called.
        return commands::execute(turn, Vec::new(), CommandSource::Check);
    }
    let command = match refusal(turn, &text) {
        Some(error) => error,
        None => {
            if let Some((commands, source)) = shortcuts::parse(turn, &text) {
                return commands::execute(turn, commands, source);
            }
            if let Some(answer) = message_payload::answer_by_text_mapping(turn, &text) {
                return commands::execute(turn, vec![answer], CommandSource::Mapping);
            }
            if turn.project.config.generator.is_some() {
                return Next::Understand;
            }
            // Without a command generator only a waiting agent can process the message.
            if agent_frame::is_top_agent_waiting(&turn.stack) {
                Command::ContinueAgent
            } else {
                Command::CannotHandle { reason: "cannot_handle_not_supported".to_owned() }
            }
        }
    };
    commands::execute(turn, vec![command], CommandSource::Check)
}

/// Whether the message begins with `/` and the name of a skill that the user of the waiting agent may load.
fn names_skill_of_waiting_agent(turn: &AdvanceContext<'_>, text: &str) -> bool {
    let Some(name) = text.trim_start().strip_prefix('/').and_then(|rest| rest.split_whitespace().next()) else {
        return false;
    };
    let agent = turn.stack.last().and_then(Frame::agent).filter(|_| agent_frame::is_top_agent_waiting(&turn.stack));
    let skills = agent.and_then(|agent| turn.project.agent(agent.agent_id.as_str())?.skills.as_ref());
    skills.is_some_and(|skills| skills.by_user && skills.get(name).is_some())
}

/// Refuses an empty message, or one longer than the command generator accepts.
fn refusal(turn: &AdvanceContext<'_>, text: &str) -> Option<Command> {
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

/// Whether a session must start first.
pub(super) fn is_session_needed(turn: &AdvanceContext<'_>) -> bool {
    let (session, rules) = (&turn.conversation().session, &turn.project.domain.session);
    let silent = turn.at.since(session.last_user_at) as f64 / 60e6;
    let expired = rules.start_after_expiry && rules.expiration_minutes > 0.0 && silent > rules.expiration_minutes;
    !session.started || session.ended || (session.turns > 0 && expired)
}

/// Starts a session: carries slots over if the domain says so, and stores the metadata of the channel.
pub(super) fn begin_session(turn: &mut AdvanceContext<'_>, metadata: &Map<String, Json>) {
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

/// `action_session_start` as a step. At the first message of a session it does nothing.
pub(super) fn run_session_start(turn: &mut AdvanceContext<'_>) {
    if turn.conversation().session.started && turn.conversation().session.turns <= 1 {
        return;
    }
    let pattern = turn.stack.pop();
    begin_session(turn, &Map::new());
    turn.stack.extend(pattern);
}
