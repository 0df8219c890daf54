//! Encoding of replies: as the JSON messages of Rasa's REST channel, as plain texts for channels without buttons and images, and as
//! the events of a stream.

use std::{borrow::Cow, fmt::Write as _};

use segue_engine::conversation::{BotKind, Button, Reply};
use serde::Serialize;
use serde_json::{Value as Json, json};

use super::Capabilities;
use crate::{
    conversation::{ReplyKind, TurnEvent},
    store::TurnNumber,
};

/// One message to the user in the JSON format of Rasa's REST channel. Absent fields are omitted.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct JsonMessage<'a> {
    /// The id of the user: the `sender` of the request.
    pub recipient_id: &'a str,
    /// The text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<Cow<'a, str>>,
    /// The buttons, or the quick replies: the format has one field for both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buttons: Option<Json>,
    /// The custom payload of the response in the domain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub custom: Option<&'a Json>,
    /// The URL of an image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<&'a str>,
    /// The attachment of the response in the domain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attachment: Option<&'a Json>,
    /// True for a filler: a text that is only sent to bridge the wait for the answer.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub filler: bool,
}

/// Encodes a reply as messages. A text without buttons is split at blank lines into one message per paragraph; custom payload, image,
/// attachment and each element follow as messages of their own.
pub fn messages<'a>(recipient: &'a str, reply: &'a Reply, kind: BotKind) -> Vec<JsonMessage<'a>> {
    let empty = || JsonMessage { recipient_id: recipient, filler: kind == BotKind::Filler, ..JsonMessage::default() };
    let mut out = Vec::with_capacity(1);
    let text = reply.text.as_deref().map(str::trim).filter(|text| !text.is_empty());
    match (buttons_of(reply), text) {
        (Some(buttons), text) => {
            out.push(JsonMessage { text: text.map(Cow::Borrowed), buttons: Some(buttons), ..empty() });
        }
        (None, Some(text)) => {
            out.extend(paragraphs(text).map(|text| JsonMessage { text: Some(Cow::Borrowed(text)), ..empty() }));
        }
        (None, None) => {}
    }
    out.extend(reply.custom.as_ref().map(|custom| JsonMessage { custom: Some(custom), ..empty() }));
    out.extend(reply.image.as_deref().map(|image| JsonMessage { image: Some(image), ..empty() }));
    out.extend(reply.attachment.as_ref().map(|attachment| JsonMessage { attachment: Some(attachment), ..empty() }));
    for element in &reply.elements {
        let buttons = element.get("buttons").filter(|b| b.as_array().is_some_and(|b| !b.is_empty())).cloned();
        out.push(JsonMessage { text: Some(Cow::Owned(element_text(element))), buttons, ..empty() });
    }
    out
}

/// Encodes a reply as one JSON message, without splitting it: the authoritative content at the end of a stream.
pub fn message_json<'a>(recipient: &'a str, reply: &'a Reply) -> Json {
    let mut out = json!({ "recipient_id": recipient });
    if let (Json::Object(out), Ok(Json::Object(fields))) = (&mut out, serde_json::to_value(reply)) {
        out.extend(fields);
    }
    out
}

/// Encodes a reply as texts, for a channel that displays nothing else: the paragraphs of its text, then everything else as text. The
/// caller adds the buttons, see [`button_text`].
pub fn plain_texts(reply: &Reply) -> Vec<String> {
    let mut out: Vec<String> = reply.text.as_deref().map(paragraphs).into_iter().flatten().map(str::to_owned).collect();
    out.extend(reply.custom.as_ref().map(Json::to_string));
    out.extend(reply.image.as_ref().map(|image| format!("Image: {image}")));
    out.extend(reply.attachment.as_ref().map(|attachment| match attachment.as_str() {
        Some(text) => format!("Attachment: {text}"),
        None => format!("Attachment: {attachment}"),
    }));
    out.extend(reply.elements.iter().map(element_text));
    out
}

/// Turns what a channel cannot display into text, and splits what is too long: surplus buttons become a numbered list, whose numbers the
/// dialogue engine understands as answers, and an image becomes its URL. Custom payload, attachment and elements stay as they are.
pub fn fit(reply: &Reply, capabilities: Capabilities) -> Vec<Reply> {
    let mut fitted = reply.clone();
    let mut text = reply.text.as_deref().unwrap_or_default().trim_end().to_owned();
    if reply.buttons.len() + reply.quick_replies.len() > capabilities.buttons {
        let of_quick_replies = reply.quick_replies.iter().filter_map(|one| one.get("title").and_then(Json::as_str));
        let titles = reply.buttons.iter().map(|button| &*button.title).chain(of_quick_replies);
        for (number, title) in (1..).zip(titles) {
            let _ = write!(text, "{}{number}. {title}", if text.is_empty() { "" } else { "\n" });
        }
        fitted.buttons.clear();
        fitted.quick_replies.clear();
    }
    if let (Some(image), false) = (&reply.image, capabilities.images) {
        let _ = write!(text, "{}Image: {image}", if text.is_empty() { "" } else { "\n" });
        fitted.image = None;
    }
    let mut parts = split(&text, capabilities.text.unwrap_or(usize::MAX));
    // Buttons and everything else belong to the end of the text.
    fitted.text = parts.pop().map(Into::into);
    let mut out: Vec<Reply> = parts.into_iter().map(Reply::text).collect();
    if fitted != Reply::default() {
        out.push(fitted);
    }
    out
}

/// Splits a text into parts of at most `most` characters: where a paragraph ends, or else a line, a sentence, a word.
fn split(text: &str, most: usize) -> Vec<&str> {
    let most = most.max(1);
    let (mut parts, mut rest) = (Vec::new(), text.trim());
    while let Some((end, _)) = rest.char_indices().nth(most) {
        let head = rest.get(..end).unwrap_or_default();
        let at = ["\n\n", "\n", ". ", "! ", "? ", " "].iter().find_map(|mark| {
            let at = head.rfind(mark)?;
            // With the punctuation of the sentence.
            Some(at + mark.trim_end().len()).filter(|at| *at > 0)
        });
        let (part, after) = rest.split_at_checked(at.unwrap_or(end)).unwrap_or((rest, ""));
        parts.push(part.trim_end());
        rest = after.trim_start();
    }
    if !rest.is_empty() {
        parts.push(rest);
    }
    parts
}

/// One button as text: its number, title, payload, and its other keys as JSON.
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

/// A text at its blank lines: the paragraphs, trimmed, without empty ones. Chat channels show each as a message of its own.
pub fn paragraphs(text: &str) -> impl Iterator<Item = &str> {
    text.split("\n\n").map(str::trim).filter(|paragraph| !paragraph.is_empty())
}

/// Encodes one [`TurnEvent`] as an event of a stream: its name, and its JSON text. `docs/reference/turn-events.md` lists them.
pub fn event(recipient: &str, event: &TurnEvent) -> (&'static str, String) {
    let (name, json) = match event {
        // The most frequent event: serialised without an intermediate `Value`.
        TurnEvent::MessageDelta { id, text } => {
            return ("message_delta", json_text(&Delta { r#type: "message_delta", id, text }));
        }
        TurnEvent::Started { turn: _, at } => {
            ("turn_started", json!({"type": "turn_started", "sender_id": recipient, "ts": at.as_seconds()}))
        }
        TurnEvent::UserMessage { turn, message_id, text } => {
            let turn_id = turn_id(*turn);
            let event = json!({"type": "user_message", "turn_id": turn_id, "message_id": message_id, "text": text});
            ("user_message", event)
        }
        TurnEvent::MessageStart { id, source, kind } => {
            let filler = matches!(kind, ReplyKind::Known(BotKind::Filler));
            let event = json!({"type": "message_start", "id": id, "source": source, "kind": kind, "filler": filler});
            ("message_start", event)
        }
        TurnEvent::MessageEnd { id, message, kind, interrupted } => {
            let event = json!({
                "type": "message_end", "id": id, "message": message_json(recipient, message), "kind": kind,
                "filler": *kind == BotKind::Filler, "interrupted": interrupted,
            });
            ("message_end", event)
        }
        TurnEvent::Message { id, message, kind } => {
            let event = json!({
                "type": "message", "id": id, "message": message_json(recipient, message), "kind": kind,
                "filler": *kind == BotKind::Filler,
            });
            ("message", event)
        }
        TurnEvent::Flow { flow, phase } => ("flow", json!({"type": "flow", "flow": flow, "phase": phase})),
        TurnEvent::Agent { agent, phase } => ("agent", json!({"type": "agent", "agent": agent, "phase": phase})),
        TurnEvent::Tool { id, tool, agent, phase } => {
            ("tool", json!({"type": "tool", "id": id, "tool": tool, "agent": agent, "phase": phase}))
        }
        TurnEvent::Slots { values } => ("slots", json!({"type": "slots", "values": values})),
        TurnEvent::Question { kind, slot, schema } => {
            ("question", json!({"type": "question", "kind": kind, "slot": slot, "schema": schema}))
        }
        TurnEvent::Error { code, message } => ("error", json!({"type": "error", "code": code, "message": message})),
        TurnEvent::Finished { turn, session_ended } => {
            let event = json!({
                "type": "turn_finished", "turn_id": turn_id(*turn), "listening": !session_ended,
                "session_ended": session_ended,
            });
            ("turn_finished", event)
        }
    };
    (name, json.to_string())
}

/// A turn as callers see it.
pub(super) fn turn_id(turn: TurnNumber) -> String {
    format!("t_{}", turn.0)
}

#[derive(Serialize)]
struct Delta<'a> {
    r#type: &'static str,
    id: &'a str,
    text: &'a str,
}

/// A value as JSON text on one line; an empty text if it cannot be serialised.
pub(super) fn json_text(value: &impl Serialize) -> String {
    // Serialisation fails only for a map whose keys are not strings; no caller passes one.
    serde_json::to_string(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

    use std::sync::Arc;

    use super::*;
    use crate::conversation::{AgentPhase, FlowPhase, QuestionKind, ToolPhase};

    fn reply(json: Json) -> Reply {
        serde_json::from_value(json).unwrap()
    }

    fn sent(json: Json) -> Json {
        serde_json::to_value(messages("u1", &reply(json), BotKind::Response)).unwrap()
    }

    #[test]
    fn text_is_split_at_blank_lines_unless_it_has_buttons() {
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
    fn custom_image_attachment_and_elements_follow_as_messages_of_their_own() {
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
    fn plain_texts_contain_everything_but_buttons() {
        let reply = reply(json!({
            "text": "a\n\nb", "custom": {"k": 1}, "image": "u", "attachment": "f.pdf",
            "elements": [{"title": "T", "subtitle": "S"}],
        }));
        assert_eq!(plain_texts(&reply), ["a", "b", "{\"k\":1}", "Image: u", "Attachment: f.pdf", "T : S"]);
        let button = Button { title: "Yes".into(), payload: "/y".into(), extra: serde_json::Map::new() };
        assert_eq!(button_text(1, &button), "1: Yes (/y)");
    }

    #[test]
    fn stream_events_have_a_name_and_json() {
        let delta = TurnEvent::MessageDelta { id: "m1".into(), text: "He\"l".into() };
        assert_eq!(event("u", &delta).1, r#"{"type":"message_delta","id":"m1","text":"He\"l"}"#);
        let end = TurnEvent::MessageEnd {
            id: "m1".into(),
            message: Box::new(Reply::text("Hello\n\nyou")),
            kind: BotKind::Filler,
            interrupted: false,
        };
        let (name, json) = event("u", &end);
        let json: Json = serde_json::from_str(&json).unwrap();
        assert_eq!((name, &json["filler"]), ("message_end", &json!(true)));
        assert_eq!(json["message"], json!({"recipient_id": "u", "text": "Hello\n\nyou"}));
        let start = TurnEvent::MessageStart { id: "m1".into(), source: "agent:x".into(), kind: ReplyKind::Pending };
        assert!(event("u", &start).1.contains(r#""kind":"pending""#));
    }

    /// Compares the table of the documentation with the events that are sent.
    #[test]
    fn every_event_is_in_the_documentation_with_its_fields() {
        let (id, turn): (Arc<str>, _) = ("m1".into(), TurnNumber(1));
        let (message, kind) = (Box::new(Reply::text("Hi")), BotKind::Response);
        let events = [
            TurnEvent::Started { turn, at: Default::default() },
            TurnEvent::UserMessage { turn, message_id: "u".into(), text: "hi".into() },
            TurnEvent::MessageStart { id: id.clone(), source: "agent:x".into(), kind: ReplyKind::Pending },
            TurnEvent::MessageDelta { id: id.clone(), text: "H".into() },
            TurnEvent::MessageEnd { id: id.clone(), message: message.clone(), kind, interrupted: false },
            TurnEvent::Message { id, message, kind },
            TurnEvent::Flow { flow: "book".into(), phase: FlowPhase::Started },
            TurnEvent::Agent { agent: "clerk".into(), phase: AgentPhase::Started },
            TurnEvent::Tool { id: "1/2".into(), tool: "pay".into(), agent: None, phase: ToolPhase::Done },
            TurnEvent::Slots { values: Default::default() },
            TurnEvent::Question { kind: QuestionKind::Text, slot: None, schema: json!({}) },
            TurnEvent::Error { code: "X".into(), message: "failed".into() },
            TurnEvent::Finished { turn, session_ended: false },
        ];
        let sent: Vec<(String, Vec<String>)> = events
            .iter()
            .map(|one| {
                let (name, json) = event("u", one);
                let Ok(Json::Object(fields)) = serde_json::from_str(&json) else { panic!("{json}") };
                assert_eq!(fields["type"], name);
                (name.to_owned(), fields.keys().filter(|key| *key != "type").cloned().collect())
            })
            .collect();
        let page = include_str!("../../docs/reference/turn-events.md");
        let names = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
        let documented: Vec<(String, Vec<String>)> = page
            .lines()
            .filter_map(|line| {
                let mut cells = line.strip_prefix("| `").filter(|row| !row.starts_with("type`"))?.split(" | ");
                Some((cells.next()?.trim_end_matches('`').to_owned(), names(cells.next()?)))
            })
            .collect();
        assert_eq!(sent, documented);
    }

    #[test]
    fn what_a_channel_cannot_display_becomes_text() {
        let buttons = json!([{"title": "Yes", "payload": "/y"}, {"title": "No", "payload": "/n"}]);
        let asked = reply(json!({"text": "Shall we?", "buttons": buttons, "image": "https://x/y.png"}));
        let fitted = |capabilities| serde_json::to_value(fit(&asked, capabilities)).unwrap();
        let (plain, custom) = (Capabilities::default(), reply(json!({"custom": {"a": 1}})));
        assert_eq!(fitted(plain), json!([{"text": "Shall we?\n1. Yes\n2. No\nImage: https://x/y.png"}]));
        let all = Capabilities { buttons: 2, images: true, ..plain };
        assert_eq!(fit(&asked, all), vec![asked.clone()]);
        assert_eq!(fitted(Capabilities { buttons: 1, ..all })[0]["text"], "Shall we?\n1. Yes\n2. No");
        assert_eq!(fit(&custom, plain), vec![custom.clone()]);
    }

    #[test]
    fn nothing_of_a_long_text_is_dropped() {
        let text = "One is here. Two is there!\nThree\n\nFour goes on for quite a while without any mark";
        for most in 1..text.len() + 1 {
            let parts = split(text, most);
            assert!(parts.iter().all(|part| part.chars().count() <= most && !part.is_empty()), "{most}: {parts:?}");
            let letters = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
            assert_eq!(letters(&parts.concat()), letters(text), "{most}");
        }
        assert_eq!(
            split(text, 40),
            ["One is here. Two is there!\nThree", "Four goes on for quite a while without", "any mark"]
        );
        assert_eq!(split("äöü", 2), ["äö", "ü"]);
        let limited = Capabilities { text: Some(9), buttons: 9, ..Capabilities::default() };
        let parts =
            fit(&reply(json!({"text": "Pick one of them", "buttons": [{"title": "A", "payload": "/a"}]})), limited);
        let shown: Vec<_> = parts.iter().map(|part| (part.text.as_deref(), part.buttons.len())).collect();
        assert_eq!(shown, [(Some("Pick one"), 0), (Some("of them"), 1)]);
    }

    #[test]
    fn paragraphs_are_split_at_blank_lines_and_not_at_single_line_breaks() {
        let cases: [(&str, &[&str]); 5] = [
            ("one", &["one"]),
            ("  one\ntwo \n\nthree\n", &["one\ntwo", "three"]),
            ("a\n\n\n\nb", &["a", "b"]),
            (" \n\n ", &[]),
            ("a\n\n- b\n- c", &["a", "- b\n- c"]),
        ];
        for (text, expected) in cases {
            assert_eq!(paragraphs(text).collect::<Vec<_>>(), expected, "{text:?}");
        }
    }
}
