//! The result of a task after a turn: its state and message, derived from the stack of the conversation and the events of the turn.

use segue_engine::{
    conversation::{BotKind, Conversation, Event, EventKind, FrameKind, Reply},
    project::Project,
};
use serde_json::{Map, Value as Json, json};

use crate::a2a::model::{FileData, Part, TaskState};

/// The result of a task after a turn.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TaskResult {
    /// The state of the task.
    pub(super) state: TaskState,
    /// The replies of the turn as message parts.
    pub(super) parts: Vec<Part>,
    /// State, flows and slots as JSON, for programs.
    pub(super) data: Json,
}

/// The result of a task after a turn with these events. `conversation` is the conversation after the turn. `include_repair` is the setting
/// `include_conversation_repair`: whether the caller can answer questions of repair patterns.
pub(super) fn task_result(
    project: &Project,
    conversation: &Conversation,
    events: &[Event],
    include_repair: bool,
) -> TaskResult {
    // Replies at the start of a session precede the message and do not answer it.
    let start = events.iter().rposition(|event| matches!(event.kind, EventKind::User(_))).unwrap_or_default();
    let events = events.get(start..).unwrap_or_default();
    let state = state(project, conversation, events, include_repair);
    TaskResult { state, parts: reply_parts(events, state), data: data(project, conversation, events, state) }
}

/// The replies of a turn as message parts. `state` is the state of the task after the turn.
pub(super) fn reply_parts(events: &[Event], state: TaskState) -> Vec<Part> {
    let parts = events.iter().filter_map(|event| match &event.kind {
        // The question of this pattern whether there is anything else is for people: programs read the state of the task.
        EventKind::Bot(_) if state == TaskState::Completed && is_in_flow(event, "pattern_completed") => None,
        // Fillers are published in the stream only.
        EventKind::Bot(bot) if matches!(bot.kind, BotKind::Filler | BotKind::Intermediate) => None,
        EventKind::Bot(bot) => Some(parts_of_reply(&bot.reply)),
        _ => None,
    });
    parts.flatten().collect()
}

fn is_in_flow(event: &Event, flow: &str) -> bool {
    event.location.active_flow.as_ref().is_some_and(|active| active.as_str() == flow)
}

/// The state of the task after a turn.
fn state(project: &Project, conversation: &Conversation, events: &[Event], include_repair: bool) -> TaskState {
    let has_started = |name: &str| {
        events
            .iter()
            .any(|event| matches!(&event.kind, EventKind::FlowStarted { flow_id, .. } if flow_id.as_str() == name))
    };
    let is_project_flow = |id: &str| project.flow(id).is_some_and(|flow| !flow.is_pattern());
    let (completed, cancelled) = ended_flows(events);
    let completed = completed.into_iter().any(is_project_flow);
    let cancelled = cancelled.into_iter().any(is_project_flow);
    let frames = conversation.stack.frames();
    let waits_for_flow = frames.iter().any(|frame| !matches!(frame.kind, FrameKind::Pattern { .. }));
    let no_flow_ended = !completed && !cancelled;
    // The first rule that applies determines the state.
    match () {
        () if conversation.session.ended => TaskState::Completed,
        () if waits_for_flow => TaskState::InputRequired,
        () if has_started("pattern_internal_error") || has_started("pattern_outcome_unknown") => TaskState::Failed,
        () if cancelled && !completed => TaskState::Canceled,
        () if !frames.is_empty() && no_flow_ended && include_repair => TaskState::InputRequired,
        () if has_started("pattern_cannot_handle") && no_flow_ended => {
            if include_repair {
                TaskState::InputRequired
            } else {
                TaskState::Rejected
            }
        }
        () => TaskState::Completed,
    }
}

/// A reply as message parts.
pub(super) fn parts_of_reply(reply: &Reply) -> Vec<Part> {
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

/// The data part of the result. A flow appears in `completed_flows` or `cancelled_flows` if it ended in this turn; patterns are omitted.
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
    let (completed, cancelled) = ended_flows(events);
    let project_flows = |flows: Vec<&str>| {
        let flows: Vec<Json> = flows.into_iter().filter(|id| !id.starts_with("pattern_")).map(Json::from).collect();
        (!flows.is_empty()).then_some(Json::Array(flows))
    };
    let (completed, cancelled) = (project_flows(completed), project_flows(cancelled));
    data.extend(completed.map(|flows| ("completed_flows".to_owned(), flows)));
    data.extend(cancelled.map(|flows| ("cancelled_flows".to_owned(), flows)));
    Json::Object(data)
}

/// The flows that were completed, and those that were cancelled. A flow with events of both kinds counts as cancelled.
fn ended_flows(events: &[Event]) -> (Vec<&str>, Vec<&str>) {
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
