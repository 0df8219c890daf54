//! Converts an event of the Rasa tracker format. Conversion never fails: an unsupported event is stored unchanged.

use segue_engine::{
    conversation::{BotMessage, Event, EventKind, FilledBy, FlowLocation, Reply, UserMessage},
    time::Timestamp,
};
use serde_json::{Map, Value as Json};

use super::TrackerEvent;

/// A converted event.
pub(super) struct ConvertedEvent {
    pub(super) event: Event,
    /// Whether a flow is in progress after the event; `None` when the event does not tell.
    pub(super) in_progress: Option<bool>,
}

/// Converts one event.
pub(super) fn convert(tracker_event: TrackerEvent) -> ConvertedEvent {
    let at = Timestamp::from_micros((tracker_event.timestamp * 1e6).clamp(0.0, 9e18) as i64);
    let data = tracker_event.data;
    let in_progress = in_progress(&data);
    // The name `imported` has no effect. Under its own name, a `pause` for example would act when the event is loaded again.
    let unsupported = |data| {
        EventKind::Unknown(
            [("event".into(), "imported".into()), ("was".into(), Json::Object(data))].into_iter().collect(),
        )
    };
    let kind = kind(&data).unwrap_or_else(|| unsupported(data));
    ConvertedEvent { event: Event { at, kind, location: FlowLocation::default() }, in_progress }
}

/// Whether a flow is in progress after the event, as far as its kind tells.
fn in_progress(data: &Map<String, Json>) -> Option<bool> {
    match text(data, "event")? {
        "flow_started" | "flow_resumed" => Some(true),
        "flow_completed" | "flow_cancelled" | "restart" | "session_ended" => Some(false),
        _ => None,
    }
}

fn kind(data: &Map<String, Json>) -> Option<EventKind> {
    match text(data, "event")? {
        "user" => Some(EventKind::User(user(data))),
        "bot" => Some(EventKind::bot(bot(data))),
        "slot" => Some(slot(data)?),
        "session_ended" => {
            let reason = metadata(data).and_then(|metadata| text(metadata, "_reason")).map(str::to_owned);
            Some(EventKind::SessionEnded { reason })
        }
        "action" => Some(EventKind::Action { name: text(data, "name")?.into() }),
        // These events have the same names and fields in Segue. `followup` and `pause` are excluded, because they would act on
        // the next message.
        "session_started" | "restart" | "reset_slots" | "flow_started" | "flow_completed" | "flow_cancelled"
        | "flow_interrupted" | "flow_resumed" | "agent_started" | "agent_completed" | "agent_interrupted"
        | "agent_resumed" | "agent_cancelled" => {
            let mut own = data.clone();
            own.retain(|key, _| !["timestamp", "metadata"].contains(&key.as_str()));
            match serde_json::from_value(Json::Object(own)) {
                Ok(EventKind::Unknown(_)) | Err(_) => None,
                Ok(kind) => Some(kind),
            }
        }
        _ => None,
    }
}

fn user(data: &Map<String, Json>) -> UserMessage {
    let parsed = data.get("parse_data").and_then(Json::as_object).and_then(|parsed| text(parsed, "text"));
    UserMessage {
        via: "".into(),
        holds_writes: false,
        before_question: false,
        text: text(data, "text").or(parsed).unwrap_or_default().trim().into(),
        message_id: text(data, "message_id").unwrap_or_default().into(),
        input_channel: text(data, "input_channel").unwrap_or_default().into(),
        metadata: metadata(data).cloned().unwrap_or_default(),
    }
}

fn bot(data: &Map<String, Json>) -> BotMessage {
    let inner = data.get("data").and_then(Json::as_object);
    let field = |key: &str| inner.and_then(|inner| inner.get(key)).filter(|value| !value.is_null()).cloned();
    let list = |key: &str| match field(key) {
        Some(Json::Array(items)) => items,
        _ => Vec::new(),
    };
    let buttons = list("buttons").into_iter().filter_map(|button| serde_json::from_value(button).ok()).collect();
    let from_metadata = |key: &str| metadata(data).and_then(|metadata| text(metadata, key)).map(Into::into);
    BotMessage {
        reply: Reply {
            text: text(data, "text").map(Into::into),
            buttons,
            image: field("image").and_then(|image| image.as_str().map(str::to_owned)),
            attachment: field("attachment"),
            custom: field("custom"),
            elements: list("elements"),
            quick_replies: list("quick_replies"),
        },
        utter_action: from_metadata("utter_action"),
        utter_source: from_metadata("utter_source"),
        ..BotMessage::default()
    }
}

fn slot(data: &Map<String, Json>) -> Option<EventKind> {
    let by = data.get("filled_by").or_else(|| metadata(data)?.get("filled_by")).cloned();
    let reset = metadata(data).and_then(|metadata| metadata.get("reset")).and_then(Json::as_bool);
    Some(EventKind::Slot {
        name: text(data, "name")?.into(),
        value: data.get("value").cloned().unwrap_or(Json::Null),
        filled_by: by.and_then(|by| serde_json::from_value::<FilledBy>(by).ok()),
        reset: reset.unwrap_or(false),
    })
}

fn metadata(data: &Map<String, Json>) -> Option<&Map<String, Json>> {
    data.get("metadata").and_then(Json::as_object)
}

fn text<'a>(data: &'a Map<String, Json>, key: &str) -> Option<&'a str> {
    data.get(key).and_then(Json::as_str)
}
