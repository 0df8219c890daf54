//! Where a task stands: from the stack after a turn, and from what happened in it.

use segue_engine::{
    conversation::{BotKind, Conversation, Event, EventKind, FrameKind, Reply},
    project::Project,
};
use serde_json::{Map, Value as Json, json};

use crate::a2a::model::{FileData, Part, TaskState};

/// What a turn came to, for the caller.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Standing {
    /// The state.
    pub(super) state: TaskState,
    /// What was said, as parts: texts, and what is no text.
    pub(super) said: Vec<Part>,
    /// Flow, slots and reasons, for programs.
    pub(super) data: Json,
}

/// Looks at a conversation after a turn whose events these are.
pub(super) fn look(project: &Project, conversation: &Conversation, events: &[Event], include_repair: bool) -> Standing {
    // What a session begins with comes before the message, and is no answer to it.
    let from = events.iter().rposition(|event| matches!(event.kind, EventKind::User(_))).unwrap_or_default();
    let events = events.get(from..).unwrap_or_default();
    let state = state(project, conversation, events, include_repair);
    Standing { state, said: said(events, state), data: data(project, conversation, events, state) }
}

/// What was said in a turn after which the task stood so.
pub(super) fn said(events: &[Event], state: TaskState) -> Vec<Part> {
    let said = events.iter().filter_map(|event| match &event.kind {
        // That a flow is over and what else there might be is for people; a program sees the state.
        EventKind::Bot(_) if state == TaskState::Completed && within(event, "pattern_completed") => None,
        // Said to fill the time: whoever hears the stream has heard it, and nobody else needs it.
        EventKind::Bot(bot) if matches!(bot.kind, BotKind::Filler | BotKind::Intermediate) => None,
        EventKind::Bot(bot) => Some(parts(&bot.reply)),
        _ => None,
    });
    said.flatten().collect()
}

fn within(event: &Event, flow: &str) -> bool {
    event.location.active_flow.as_ref().is_some_and(|active| active.as_str() == flow)
}

fn state(project: &Project, conversation: &Conversation, events: &[Event], include_repair: bool) -> TaskState {
    let begun = |name: &str| {
        events
            .iter()
            .any(|event| matches!(&event.kind, EventKind::FlowStarted { flow_id, .. } if flow_id.as_str() == name))
    };
    let of_author = |id: &str| project.flow(id).is_some_and(|flow| !flow.is_pattern());
    let (completed, cancelled) = over(events);
    let completed = completed.into_iter().any(of_author);
    let cancelled = cancelled.into_iter().any(of_author);
    let frames = conversation.stack.frames();
    let waits_for_flow = frames.iter().any(|frame| !matches!(frame.kind, FrameKind::Pattern { .. }));
    let nothing = !completed && !cancelled;
    match () {
        () if conversation.session.ended => TaskState::Completed,
        () if waits_for_flow => TaskState::InputRequired,
        () if begun("pattern_internal_error") || begun("pattern_outcome_unknown") => TaskState::Failed,
        () if cancelled && !completed => TaskState::Canceled,
        () if !frames.is_empty() && nothing && include_repair => TaskState::InputRequired,
        () if begun("pattern_cannot_handle") && nothing => {
            if include_repair {
                TaskState::InputRequired
            } else {
                TaskState::Rejected
            }
        }
        () => TaskState::Completed,
    }
}

/// A reply as parts.
pub(super) fn parts(reply: &Reply) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    parts.extend(reply.text.as_deref().filter(|text| !text.trim().is_empty()).map(|text| Part::Text(text.to_owned())));
    if !reply.buttons.is_empty() {
        parts.push(Part::Data(json!({"buttons": reply.buttons})));
    }
    parts.extend(reply.custom.clone().map(|custom| Part::Data(json!({"custom": custom}))));
    let image = reply.image.clone().map(|uri| FileData { uri: Some(uri), ..FileData::default() });
    parts.extend(image.map(Part::File));
    parts
}

fn data(project: &Project, conversation: &Conversation, events: &[Event], state: TaskState) -> Json {
    let top = conversation.stack.top_user_frame();
    let active = top.map(|frame| frame.flow_id.as_str());
    let slots = project.domain.slots.iter().filter(|(_, slot)| !slot.builtin).filter_map(|(name, slot)| {
        let value = conversation.slots.get(name.as_str()).unwrap_or(&slot.initial);
        (!value.is_null()).then(|| (name.to_string(), value.clone()))
    });
    let mut data = Map::from_iter([
        ("state".to_owned(), Json::from(state.name().replace('-', "_"))),
        ("active_flow".to_owned(), Json::from(active)),
        ("slots".to_owned(), Json::Object(slots.collect())),
    ]);
    let (completed, cancelled) = over(events);
    let named = |flows: Vec<&str>| {
        let flows: Vec<Json> = flows.into_iter().filter(|id| !id.starts_with("pattern_")).map(Json::from).collect();
        (!flows.is_empty()).then_some(Json::Array(flows))
    };
    let (completed, cancelled) = (named(completed), named(cancelled));
    data.extend(completed.map(|flows| ("completed_flows".to_owned(), flows)));
    data.extend(cancelled.map(|flows| ("cancelled_flows".to_owned(), flows)));
    Json::Object(data)
}

/// The flows that were completed, and those that were stopped: the events tell of the end of both kinds.
fn over(events: &[Event]) -> (Vec<&str>, Vec<&str>) {
    let (mut completed, mut cancelled) = (Vec::new(), Vec::new());
    for event in events {
        match &event.kind {
            EventKind::FlowCompleted { flow_id, .. } => completed.push(flow_id.as_str()),
            EventKind::FlowCancelled { flow_id, .. } => cancelled.push(flow_id.as_str()),
            _ => {}
        }
    }
    completed.retain(|id| !cancelled.contains(id));
    (completed, cancelled)
}
