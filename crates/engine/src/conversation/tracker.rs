//! The Rasa tracker format: the form in which action servers receive a conversation and return events
//! (<https://rasa.com/docs/action-server/sdk-events>).
//!
//! Writing never fails and omits only what the format has no event for. Parsing accepts any event: one that only the
//! dialogue engine may write becomes [`EventKind::Reported`], an unknown one [`EventKind::Unknown`].

mod state;

use serde_json::{Map, Value as Json, json};

pub use self::state::{latest_message, state};
use super::{BotMessage, Button, Event, EventKind, FlowLocation, Reply};
use crate::{
    ids::{ActionName, SlotName},
    project::Project,
};

/// Events that only the dialogue engine may write, because they determine its own state.
const ENGINE_ONLY_EVENTS: [&str; 22] = [
    "user",
    "action",
    "action_failed",
    "action_execution_rejected",
    "external",
    "stack",
    "flow_started",
    "flow_completed",
    "flow_cancelled",
    "flow_interrupted",
    "flow_resumed",
    "agent_started",
    "agent_completed",
    "agent_interrupted",
    "agent_resumed",
    "agent_cancelled",
    "agent_exchanges",
    "tool_executed",
    "understood",
    "reply_interrupted",
    "models_used",
    "reported",
];

/// A string of a map; `None` when it is absent, empty or of another type.
pub(crate) fn text<'m>(map: &'m Map<String, Json>, key: &str) -> Option<&'m str> {
    map.get(key)?.as_str().filter(|text| !text.is_empty())
}

/// Parses an event that the action `by` returned; `None` when it has no `event` or lacks a required name.
pub fn parse_event(mut fields: Map<String, Json>, by: &ActionName) -> Option<EventKind> {
    let name = text(&fields, "event")?.to_owned();
    fields.shift_remove("timestamp");
    if ENGINE_ONLY_EVENTS.contains(&name.as_str()) {
        return Some(EventKind::Reported { by: by.clone(), reported: fields });
    }
    let given = |key: &str| text(&fields, key).map(str::to_owned);
    Some(match name.as_str() {
        "bot" => EventKind::bot(parse_bot_message(&fields)),
        "slot" => EventKind::Slot {
            name: SlotName::from(given("name")?),
            value: fields.shift_remove("value").unwrap_or_default(),
            filled_by: None,
            reset: false,
        },
        "session_ended" => {
            let metadata = fields.get("metadata").and_then(Json::as_object);
            let reason = metadata.and_then(|metadata| text(metadata, "_reason")).map(str::to_owned);
            EventKind::SessionEnded { reason: reason.or_else(|| given("reason")) }
        }
        "followup" => EventKind::Followup { name: given("name").map(ActionName::from) },
        // `form` is the name in older versions of the format.
        "active_loop" | "form" => EventKind::ActiveLoop { name: given("name") },
        _ => match serde_json::from_value(Json::Object(fields.clone())) {
            Ok(EventKind::Unknown(_)) | Err(_) => EventKind::unknown(fields),
            Ok(kind) => kind,
        },
    })
}

fn parse_bot_message(fields: &Map<String, Json>) -> BotMessage {
    let mut content = fields.get("data").and_then(Json::as_object).cloned().unwrap_or_default();
    content.insert("text".into(), fields.get("text").cloned().unwrap_or_default());
    let metadata = fields.get("metadata").and_then(Json::as_object);
    let utter_action = metadata.and_then(|metadata| text(metadata, "utter_action")).map(Into::into);
    BotMessage { reply: parse_reply(&content), utter_action, ..BotMessage::default() }
}

/// Parses a message from a map with `text`, `buttons`, `image` and so on; empty values count as absent.
pub fn parse_reply(content: &Map<String, Json>) -> Reply {
    let full = |key: &str| content.get(key).filter(|value| !is_empty(value)).cloned();
    let list = |key: &str| match full(key) {
        Some(Json::Array(items)) => items,
        _ => Vec::new(),
    };
    Reply {
        text: text(content, "text").map(Into::into),
        buttons: list("buttons").into_iter().filter_map(parse_button).collect(),
        image: text(content, "image").map(str::to_owned),
        attachment: full("attachment"),
        custom: full("custom"),
        elements: list("elements"),
        quick_replies: list("quick_replies"),
    }
}

fn is_empty(value: &Json) -> bool {
    match value {
        Json::Null => true,
        Json::String(text) => text.is_empty(),
        Json::Array(items) => items.is_empty(),
        Json::Object(map) => map.is_empty(),
        Json::Bool(_) | Json::Number(_) => false,
    }
}

fn parse_button(value: Json) -> Option<Button> {
    let Json::Object(mut extra) = value else { return None };
    let mut take = |key: &str| extra.shift_remove(key).and_then(|value| Some(value.as_str()?.to_owned()));
    let (title, payload) = (take("title")?, take("payload"));
    let payload = payload.filter(|payload| !payload.is_empty()).unwrap_or_else(|| title.clone());
    Some(Button { title: title.into(), payload: payload.into(), extra })
}

/// Events in the tracker format, oldest first. The commands of a message are part of its `parse_data`.
pub fn events_json<'e>(project: &Project, events: impl IntoIterator<Item = &'e Event>) -> Vec<Json> {
    let model_id = format!("{:016x}", project.hash);
    let mut lines: Vec<Json> = Vec::new();
    let mut user_line: Option<usize> = None;
    for event in events {
        if let EventKind::Understood { commands, .. } = &event.kind {
            let parsed = user_line.and_then(|at| lines.get_mut(at)?.get_mut("parse_data")?.as_object_mut());
            if let (Some(parsed), Ok(commands)) = (parsed, serde_json::to_value(commands)) {
                parsed.insert("commands".into(), commands);
            }
            continue;
        }
        let Some(mut line) = event_json(&event.kind) else { continue };
        if matches!(event.kind, EventKind::User(_)) {
            user_line = Some(lines.len());
        }
        line.insert("timestamp".into(), event.at.as_seconds().into());
        let metadata = line.entry("metadata").or_insert_with(|| json!({}));
        if let Json::Object(metadata) = metadata {
            insert_location(&event.location, metadata);
            metadata.insert("assistant_id".into(), (*project.config.assistant_id).into());
            metadata.insert("model_id".into(), model_id.as_str().into());
        }
        lines.push(Json::Object(line));
    }
    lines
}

fn insert_location(location: &FlowLocation, metadata: &mut Map<String, Json>) {
    if let Some(flow) = &location.active_flow {
        metadata.insert("active_flow".into(), flow.as_str().into());
    }
    if let Some(step) = &location.step_id {
        metadata.insert("step_id".into(), step.as_str().into());
    }
}

/// Whether the format has an event for this kind. The commands of a message are part of the `user` event.
pub fn is_exported(kind: &EventKind) -> bool {
    !matches!(
        kind,
        EventKind::Understood { .. }
            | EventKind::AgentExchanges { .. }
            | EventKind::ReplyInterrupted { .. }
            | EventKind::ModelsUsed(_)
    )
}

/// An event without time and location; `None` when the format has no event for it.
fn event_json(kind: &EventKind) -> Option<Map<String, Json>> {
    let line = match kind {
        kind if !is_exported(kind) => return None,
        EventKind::Reported { reported, .. } => return Some(reported.clone()),
        EventKind::User(message) => json!({
            "event": "user",
            "text": message.text,
            "parse_data": state::parse_data(message),
            "input_channel": message.input_channel,
            "message_id": message.message_id.as_str(),
            "metadata": message.metadata,
        }),
        EventKind::Bot(bot) => bot_event(bot),
        EventKind::Action { name } => json!({
            "event": "action",
            "name": name.as_str(),
            "policy": "FlowPolicy",
            "confidence": 1.0,
            "action_text": null,
            "hide_rule_turn": false,
        }),
        EventKind::ActionExecutionRejected { name } => json!({
            "event": "action_execution_rejected",
            "name": name.as_str(),
            "policy": "FlowPolicy",
            "confidence": 1.0,
        }),
        EventKind::Slot { name, value, filled_by, reset } => {
            let mut line = json!({"event": "slot", "name": name.as_str(), "value": value});
            if let (Some(by), Json::Object(line)) = (filled_by, &mut line) {
                line.insert("filled_by".into(), serde_json::to_value(by).unwrap_or_default());
            }
            if let (true, Json::Object(line)) = (*reset, &mut line) {
                line.insert("metadata".into(), json!({"reset": true}));
            }
            line
        }
        EventKind::SessionEnded { reason } => json!({"event": "session_ended", "metadata": {"_reason": reason}}),
        EventKind::Stack { frames, .. } => {
            let frames = frames.iter().map(state::frame).collect();
            let patch = json!([{"op": "replace", "path": "", "value": Json::Array(frames)}]);
            json!({"event": "stack", "update": patch.to_string()})
        }
        EventKind::FlowStarted { flow_id, context, .. } => {
            let mut line = json!({"event": "flow_started", "flow_id": flow_id.as_str()});
            if let (Json::Object(_), Json::Object(line)) = (context, &mut line) {
                line.insert("metadata".into(), context.clone());
            }
            line
        }
        other => serde_json::to_value(other).unwrap_or_default(),
    };
    match line {
        Json::Object(line) => Some(line),
        _ => None,
    }
}

fn bot_event(bot: &BotMessage) -> Json {
    let reply = &bot.reply;
    let list = |items: &[Json]| if items.is_empty() { Json::Null } else { Json::Array(items.to_vec()) };
    let buttons = reply.buttons.iter().filter_map(|button| serde_json::to_value(button).ok()).collect::<Vec<_>>();
    let mut metadata = Map::new();
    if let Some(response) = &bot.utter_action {
        metadata.insert("utter_action".into(), (**response).into());
    }
    if let Some(agent) = &bot.agent {
        metadata.insert("agent_id".into(), agent.as_str().into());
    }
    json!({
        "event": "bot",
        "text": reply.text,
        "data": {
            "elements": list(&reply.elements),
            "quick_replies": list(&reply.quick_replies),
            "buttons": list(&buttons),
            "attachment": reply.attachment,
            "image": reply.image,
            "custom": reply.custom,
        },
        "metadata": metadata,
    })
}

#[cfg(test)]
mod tests;
