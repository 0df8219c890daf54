//! The state of a conversation in the tracker format, as action servers receive it.

use serde_json::{Map, Value as Json, json};

use super::{
    super::{Conversation, Event, EventKind, Frame, FrameKind, Position, UserMessage},
    events_json,
};
use crate::{payload, project::Project};

/// The state with the given events of the conversation; `events` may contain only the newest ones.
pub fn state<'e>(
    project: &Project,
    conversation: &Conversation,
    events: impl DoubleEndedIterator<Item = &'e Event> + Clone,
) -> Json {
    let latest_event_time = events.clone().next_back().map(|event| event.at.as_seconds());
    let latest_action = events.clone().rev().find_map(|event| match &event.kind {
        EventKind::Action { name } => Some(name.as_str()),
        _ => None,
    });
    let events = events_json(project, events);
    let slots: Map<String, Json> = project
        .domain
        .slots
        .values()
        .map(|slot| {
            let value = conversation.set_value(slot.name.as_str()).unwrap_or(&slot.initial);
            (slot.name.to_string(), value.clone())
        })
        .collect();
    json!({
        "sender_id": conversation.id.as_str(),
        "user_id": null,
        "slots": slots,
        "latest_message": latest_message(conversation, &events),
        "latest_event_time": latest_event_time,
        "followup_action": conversation.followup.as_ref().map(|name| name.as_str()),
        "paused": conversation.paused,
        "stack": conversation.stack.frames().iter().map(frame).collect::<Vec<_>>(),
        "latest_input_channel": conversation.latest_message.as_ref().map(|message| &*message.input_channel),
        "active_loop": conversation.active_loop.as_ref().map_or_else(|| json!({}), |name| json!({"name": name})),
        "latest_action": latest_action.map_or_else(|| json!({}), |name| json!({"action_name": name})),
        "latest_action_name": latest_action,
        "events": events,
    })
}

/// The newest user message; taken from `events`, which are in the tracker format, when they contain it.
pub fn latest_message(conversation: &Conversation, events: &[Json]) -> Json {
    let Some(message) = &conversation.latest_message else { return json!({}) };
    let line = events.iter().rev().find(|line| line.get("event").is_some_and(|event| event == "user"));
    let parsed = line.and_then(|line| line.get("parse_data")).cloned().unwrap_or_else(|| parse_data(message));
    let Json::Object(mut latest) = parsed else { return json!({}) };
    latest.insert("message_id".into(), message.message_id.as_str().into());
    latest.insert("metadata".into(), Json::Object(message.metadata.clone()));
    latest.entry("commands").or_insert_with(|| json!([]));
    Json::Object(latest)
}

/// The `parse_data` of a message, as an NLU pipeline would return it: an intent when the message names one, otherwise
/// none.
pub(super) fn parse_data(message: &UserMessage) -> Json {
    let Some(named) = payload::intent(&message.text) else {
        return json!({
            "text": message.text,
            "intent": {"name": null, "confidence": 0.0},
            "entities": [],
            "commands": [],
        });
    };
    let entities: Vec<Json> =
        named.entities().into_iter().map(|(entity, value)| json!({"entity": entity, "value": value})).collect();
    let intent = json!({"name": named.name, "confidence": 1.0});
    json!({
        "text": message.text,
        "intent": intent,
        "intent_ranking": [intent],
        "entities": entities,
        "commands": [],
    })
}

/// A stack frame in the tracker format.
pub(super) fn frame(frame: &Frame) -> Json {
    let mut fields = match &frame.kind {
        FrameKind::Flow { frame_type } => json!({"type": "flow", "frame_type": frame_type}),
        FrameKind::Agent(agent) => json!({
            "type": "agent",
            "agent_id": agent.agent_id.as_str(),
            "state": agent.state,
            "metadata": agent.metadata,
        }),
        FrameKind::Pattern { context } => {
            let mut fields = serde_json::to_value(context).unwrap_or_default();
            if let Json::Object(fields) = &mut fields {
                fields.shift_remove("pattern");
                fields.shift_remove("step_id"); // the position of the pattern itself is added below
                fields.insert("type".into(), frame.flow_id.as_str().into());
            }
            fields
        }
    };
    if let Json::Object(fields) = &mut fields {
        let step = match &frame.at {
            Position::Start => "START",
            Position::At(step) | Position::Before(step) => step.as_str(),
            Position::End => "END",
        };
        fields.insert("frame_id".into(), frame.frame_id.as_str().into());
        fields.insert("flow_id".into(), frame.flow_id.as_str().into());
        fields.insert("step_id".into(), step.into());
    }
    fields
}
