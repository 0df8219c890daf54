//! The response of an action server: its messages, then its events.

use serde_json::{Map, Value as Json};

use super::{actions, advance_context::AdvanceContext};
use crate::{
    conversation::{ActionServerResponse, BotKind, BotMessage, EventKind, FilledBy, tracker},
    ids::ActionName,
    project::builtin::{LISTEN, SESSION_START},
};

/// The keys of a message that are its content; all others are values for the response's texts.
const CONTENT_KEYS: [&str; 7] = ["text", "buttons", "elements", "quick_replies", "image", "attachment", "custom"];

/// Applies the response of the action `name`.
pub(super) fn apply_response(turn: &mut AdvanceContext<'_>, name: &ActionName, answer: ActionServerResponse) {
    for response in answer.responses {
        send_message(turn, response);
    }
    let opens_session = *name == *SESSION_START;
    for fields in answer.events {
        let Some(kind) = tracker::parse_event(fields, name) else {
            turn.add_note(format!("`{name}` returned an event without a valid `event` name"));
            continue;
        };
        match &kind {
            // The session has started already and the turn continues; an action `action_session_start` reports both
            // again.
            EventKind::SessionStarted if opens_session => {}
            EventKind::Reported { reported, .. } if opens_session && is_listen(reported) => {}
            _ => actions::apply_external_kind(turn, kind, FilledBy::Custom),
        }
    }
}

fn is_listen(event: &Map<String, Json>) -> bool {
    tracker::text(event, "event") == Some("action") && tracker::text(event, "name") == Some(LISTEN)
}

/// Sends one message: a response of the domain with the given content laid over it, or the given content alone.
fn send_message(turn: &mut AdvanceContext<'_>, mut given: Map<String, Json>) {
    let mut take_name = |key: &str| given.shift_remove(key).and_then(|name| Some(name.as_str()?.to_owned()));
    // `template` is the older key; the Rasa SDK sends both.
    let (response, template) = (take_name("response"), take_name("template"));
    let response = response.or(template).filter(|name| !name.is_empty());
    let (content, arguments): (Map<_, _>, Map<_, _>) =
        given.into_iter().partition(|(key, _)| CONTENT_KEYS.contains(&key.as_str()));
    let mut message = BotMessage { kind: BotKind::Response, ..BotMessage::default() };
    if let Some(name) = &response {
        match turn.compose(name, &arguments) {
            Some(rendered) => message = rendered,
            None => turn.add_note(format!("an action sends `{name}`, which is not a response of this project")),
        }
    }
    overlay(&mut message, &content);
    if message.reply.is_empty() {
        turn.add_note("an action sends an empty message: it is ignored");
    } else {
        turn.emit_in_top_frame(EventKind::bot(message));
    }
}

/// Adds buttons to those of the response; all other given content replaces that of the response.
fn overlay(message: &mut BotMessage, content: &Map<String, Json>) {
    let given = tracker::parse_reply(content);
    let reply = &mut message.reply;
    reply.buttons.extend(given.buttons);
    reply.text = given.text.or_else(|| reply.text.take());
    reply.image = given.image.or_else(|| reply.image.take());
    reply.attachment = given.attachment.or_else(|| reply.attachment.take());
    reply.custom = given.custom.or_else(|| reply.custom.take());
    if !given.elements.is_empty() {
        reply.elements = given.elements;
    }
    if !given.quick_replies.is_empty() {
        reply.quick_replies = given.quick_replies;
    }
}
