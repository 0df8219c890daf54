//! Replies in the words of wires: the record that most JSON wires share, what a wire without buttons or pictures shows
//! instead, and the events of a stream.

use std::{borrow::Cow, fmt::Write as _};

use segue_engine::conversation::{BotKind, Button, Reply};
use serde::Serialize;
use serde_json::{Value as Json, json};

use super::splitting::parts;
use crate::conversation::{ReplyEvent, ReplyKind};

/// One message to the user as JSON wires carry it: what is absent is left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Message<'a> {
    /// To whom.
    pub recipient_id: &'a str,
    /// The text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<Cow<'a, str>>,
    /// Buttons; quick replies too, since these wires have one kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buttons: Option<Json>,
    /// A payload of the author.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub custom: Option<&'a Json>,
    /// Address of an image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<&'a str>,
    /// An attachment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attachment: Option<&'a Json>,
    /// True when it was said only to fill the time until the answer.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub filler: bool,
}

/// A reply as messages: text between blank lines is split unless it has buttons; everything else follows on its own.
pub fn messages<'a>(recipient: &'a str, reply: &'a Reply, kind: BotKind) -> Vec<Message<'a>> {
    let empty = || Message { recipient_id: recipient, filler: kind == BotKind::Filler, ..Message::default() };
    let mut out = Vec::with_capacity(1);
    let text = reply.text.as_deref().map(str::trim).filter(|text| !text.is_empty());
    match (buttons_of(reply), text) {
        (Some(buttons), text) => {
            out.push(Message { text: text.map(Cow::Borrowed), buttons: Some(buttons), ..empty() });
        }
        (None, Some(text)) => {
            out.extend(parts(text).map(|part| Message { text: Some(Cow::Borrowed(part)), ..empty() }));
        }
        (None, None) => {}
    }
    out.extend(reply.custom.as_ref().map(|custom| Message { custom: Some(custom), ..empty() }));
    out.extend(reply.image.as_deref().map(|image| Message { image: Some(image), ..empty() }));
    out.extend(reply.attachment.as_ref().map(|attachment| Message { attachment: Some(attachment), ..empty() }));
    for element in &reply.elements {
        let buttons = element.get("buttons").filter(|b| b.as_array().is_some_and(|b| !b.is_empty())).cloned();
        out.push(Message { text: Some(Cow::Owned(element_text(element))), buttons, ..empty() });
    }
    out
}

/// A reply as one message that nothing is split from: what counts at the end of a stream.
pub fn whole<'a>(recipient: &'a str, reply: &'a Reply) -> Json {
    let mut out = json!({ "recipient_id": recipient });
    if let (Json::Object(out), Ok(Json::Object(fields))) = (&mut out, serde_json::to_value(reply)) {
        out.extend(fields);
    }
    out
}

/// What a wire that knows nothing but text shows: the text, and everything else in words. Buttons are left to the caller.
pub fn texts(reply: &Reply) -> Vec<String> {
    let mut out: Vec<String> = reply.text.as_deref().map(parts).into_iter().flatten().map(str::to_owned).collect();
    out.extend(reply.custom.as_ref().map(Json::to_string));
    out.extend(reply.image.as_ref().map(|image| format!("Image: {image}")));
    out.extend(reply.attachment.as_ref().map(|attachment| match attachment.as_str() {
        Some(text) => format!("Attachment: {text}"),
        None => format!("Attachment: {attachment}"),
    }));
    out.extend(reply.elements.iter().map(element_text));
    out
}

/// One button as text: number, title, payload, and the author's further keys.
pub fn button_text(number: usize, button: &Button) -> String {
    let mut out = format!("{number}: {} ({})", button.title, button.payload);
    if !button.extra.is_empty() {
        let _ = write!(out, " - {}", Json::Object(button.extra.clone()));
    }
    out
}

fn buttons_of(reply: &Reply) -> Option<Json> {
    if !reply.quick_replies.is_empty() {
        return Some(Json::Array(reply.quick_replies.clone()));
    }
    if reply.buttons.is_empty() { None } else { serde_json::to_value(&reply.buttons).ok() }
}

fn element_text(element: &Json) -> String {
    let text = |key: &str| element.get(key).and_then(Json::as_str).unwrap_or_default();
    format!("{} : {}", text("title"), text("subtitle"))
}

/// A piece of a reply as an event of a stream: its name, and its JSON text.
pub fn event(recipient: &str, piece: &ReplyEvent) -> (&'static str, String) {
    match piece {
        // By far the most frequent one: written without a tree.
        ReplyEvent::Delta { id, text } => ("message_delta", line(&Delta { r#type: "message_delta", id, text })),
        ReplyEvent::Start { id, source, kind } => {
            let filler = matches!(kind, ReplyKind::Known(BotKind::Filler));
            let event = json!({"type": "message_start", "id": id, "source": source, "kind": kind, "filler": filler});
            ("message_start", event.to_string())
        }
        ReplyEvent::End { id, message, kind, interrupted } => {
            let event = json!({
                "type": "message_end", "id": id, "message": whole(recipient, message), "kind": kind,
                "filler": *kind == BotKind::Filler, "interrupted": interrupted,
            });
            ("message_end", event.to_string())
        }
        ReplyEvent::Message { id, message, kind } => {
            let event = json!({
                "type": "message", "id": id, "message": whole(recipient, message), "kind": kind,
                "filler": *kind == BotKind::Filler,
            });
            ("message", event.to_string())
        }
        ReplyEvent::Activity { .. } => ("activity", line(piece)),
    }
}

#[derive(Serialize)]
struct Delta<'a> {
    r#type: &'static str,
    id: &'a str,
    text: &'a str,
}

/// A value as JSON text on one line.
pub(super) fn line(value: &impl Serialize) -> String {
    // Our own types always serialise: their keys are texts and their numbers finite.
    serde_json::to_string(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

    use super::*;

    fn reply(json: Json) -> Reply {
        serde_json::from_value(json).unwrap()
    }

    fn sent(json: Json) -> Json {
        serde_json::to_value(messages("u1", &reply(json), BotKind::Response)).unwrap()
    }

    #[test]
    fn text_is_split_on_blank_lines_unless_it_has_buttons() {
        assert_eq!(
            sent(json!({"text": "Hello\n\nthere"})),
            json!([{"recipient_id": "u1", "text": "Hello"}, {"recipient_id": "u1", "text": "there"}])
        );
        let button = json!({"title": "Yes", "payload": "/SetSlots(confirm=True)", "type": "postback"});
        assert_eq!(
            sent(json!({"text": "Pick\n\none", "buttons": [button]})),
            json!([{"recipient_id": "u1", "text": "Pick\n\none", "buttons": [button]}])
        );
    }

    #[test]
    fn everything_else_follows_in_its_own_message() {
        let sent = sent(json!({
            "text": "Look", "custom": {"type": "rating"}, "image": "https://x/y.png", "attachment": {"type": "file"},
            "elements": [{"title": "A", "subtitle": "B", "buttons": [{"title": "Go", "payload": "/go"}]}],
        }));
        assert_eq!(
            sent,
            json!([
                {"recipient_id": "u1", "text": "Look"},
                {"recipient_id": "u1", "custom": {"type": "rating"}},
                {"recipient_id": "u1", "image": "https://x/y.png"},
                {"recipient_id": "u1", "attachment": {"type": "file"}},
                {"recipient_id": "u1", "text": "A : B", "buttons": [{"title": "Go", "payload": "/go"}]},
            ])
        );
        assert_eq!(
            super::messages("u1", &reply(json!({"quick_replies": [{"title": "Q"}]})), BotKind::Response)[0].buttons,
            Some(json!([{"title": "Q"}]))
        );
    }

    #[test]
    fn what_a_text_wire_shows_instead() {
        let reply = reply(json!({
            "text": "a\n\nb", "custom": {"k": 1}, "image": "u", "attachment": "f.pdf",
            "elements": [{"title": "T", "subtitle": "S"}],
        }));
        assert_eq!(texts(&reply), ["a", "b", "{\"k\":1}", "Image: u", "Attachment: f.pdf", "T : S"]);
        let button = Button { title: "Yes".into(), payload: "/y".into(), extra: serde_json::Map::new() };
        assert_eq!(button_text(1, &button), "1: Yes (/y)");
    }

    #[test]
    fn events_of_a_stream() {
        let delta = ReplyEvent::Delta { id: "m1".into(), text: "He\"l".into() };
        assert_eq!(event("u", &delta).1, r#"{"type":"message_delta","id":"m1","text":"He\"l"}"#);
        let end = ReplyEvent::End {
            id: "m1".into(),
            message: Box::new(Reply::text("Hello\n\nyou")),
            kind: BotKind::Filler,
            interrupted: false,
        };
        let (name, json) = event("u", &end);
        let json: Json = serde_json::from_str(&json).unwrap();
        assert_eq!((name, &json["filler"]), ("message_end", &json!(true)));
        assert_eq!(json["message"], json!({"recipient_id": "u", "text": "Hello\n\nyou"}));
        let start = ReplyEvent::Start { id: "m1".into(), source: "agent:x".into(), kind: ReplyKind::Pending };
        assert!(event("u", &start).1.contains(r#""kind":"pending""#));
    }
}
