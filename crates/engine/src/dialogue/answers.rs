//! What an action server answered: its messages, then its events.

use serde_json::{Map, Value as Json};

use super::{actions, turn::Turn};
use crate::{
    conversation::{ActionAnswer, BotKind, BotMessage, EventKind, FilledBy, tracker},
    ids::ActionName,
    project::builtin::{LISTEN, SESSION_START},
};

/// Keys of a message that say what it shows; all others are values for the texts of a response.
const CONTENT: [&str; 7] = ["text", "buttons", "elements", "quick_replies", "image", "attachment", "custom"];

/// Takes the answer of the action `name` in.
pub(super) fn take(turn: &mut Turn<'_>, name: &ActionName, answer: ActionAnswer) {
    for response in answer.responses {
        say(turn, response);
    }
    let opens_session = *name == *SESSION_START;
    for fields in answer.events {
        let Some(kind) = tracker::read(fields, name) else {
            turn.note(format!("`{name}` returned an event that does not say what it is"));
            continue;
        };
        match &kind {
            // The session has begun already, and the turn goes on: an action that greets says so once more.
            EventKind::SessionStarted if opens_session => {}
            EventKind::Reported { reported, .. } if opens_session && is_listen(reported) => {}
            _ => actions::accept_kind(turn, kind, FilledBy::Custom),
        }
    }
}

fn is_listen(event: &Map<String, Json>) -> bool {
    tracker::text(event, "event") == Some("action") && tracker::text(event, "name") == Some(LISTEN)
}

/// Says one message: a response of the domain with what is given on top of it, or what is given alone.
fn say(turn: &mut Turn<'_>, mut given: Map<String, Json>) {
    let mut named = |key: &str| given.shift_remove(key).and_then(|name| Some(name.as_str()?.to_owned()));
    // `template` is the older name; the library sends both.
    let (response, template) = (named("response"), named("template"));
    let response = response.or(template).filter(|name| !name.is_empty());
    let (content, arguments): (Map<_, _>, Map<_, _>) =
        given.into_iter().partition(|(key, _)| CONTENT.contains(&key.as_str()));
    let mut message = BotMessage { kind: BotKind::Response, ..BotMessage::default() };
    if let Some(name) = &response {
        match turn.compose(name, &arguments) {
            Some(drafted) => message = drafted,
            None => turn.note(format!("an action says `{name}`, which is no response of this project")),
        }
    }
    overlay(&mut message, &content);
    if message.reply.is_empty() {
        turn.note("an action says nothing: the message is empty");
    } else {
        turn.emit_here(EventKind::bot(message));
    }
}

/// Buttons are added to those of the response; everything else that is given stands in place of the response's.
fn overlay(message: &mut BotMessage, content: &Map<String, Json>) {
    let given = tracker::reply(content);
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
