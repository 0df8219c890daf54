//! What clients see of a turn beside its messages: flows, agents, the values of public slots, and the question that is open.
//!
//! These functions only translate the events of the dialogue engine, so that a running turn and one that is read from the store show
//! the same.

use segue_engine::{
    conversation::{Conversation, Event, EventKind, FrameKind, PatternFrame, UnconfirmedCall},
    ids::{AgentName, FlowId},
    project::Project,
};
use serde_json::{Map, Value as Json, json};

use crate::conversation::{AgentPhase, FlowPhase, QuestionKind, TurnEvent};

/// Something that clients see.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Visible {
    /// The next reply of the turn.
    Reply,
    /// Anything else.
    Activity(TurnEvent),
}

/// What clients see of these events, in order.
pub(super) fn visible(project: &Project, events: &[Event]) -> Vec<Visible> {
    let mut out = Vec::new();
    // Values that are set one after the other become one event.
    let mut values = Map::new();
    for event in events {
        let seen = match &event.kind {
            EventKind::Slot { name, value, .. } => {
                if project.slot(name.as_str()).is_some_and(|slot| slot.public) {
                    values.insert(name.to_string(), value.clone());
                }
                continue;
            }
            EventKind::ResetSlots | EventKind::Restart => {
                let public = project.domain.slots.values().filter(|slot| slot.public);
                values.extend(public.map(|slot| (slot.name.to_string(), slot.initial.clone())));
                continue;
            }
            EventKind::Bot(_) => Some(Visible::Reply),
            kind => activity(project, kind).map(Visible::Activity),
        };
        if let Some(seen) = seen {
            out.extend(slots(&mut values));
            out.push(seen);
        }
    }
    out.extend(slots(&mut values));
    out
}

fn slots(values: &mut Map<String, Json>) -> Option<Visible> {
    (!values.is_empty()).then(|| Visible::Activity(TurnEvent::Slots { values: std::mem::take(values) }))
}

fn activity(project: &Project, kind: &EventKind) -> Option<TurnEvent> {
    let of_flow = |flow: &FlowId, phase| {
        let is_pattern = project.flow(flow.as_str()).is_some_and(|flow| flow.is_pattern());
        (!is_pattern).then(|| TurnEvent::Flow { flow: flow.clone(), phase })
    };
    let of_agent = |agent: &AgentName, phase| Some(TurnEvent::Agent { agent: agent.clone(), phase });
    match kind {
        EventKind::FlowStarted { flow_id, .. } => of_flow(flow_id, FlowPhase::Started),
        EventKind::FlowInterrupted { flow_id, .. } => of_flow(flow_id, FlowPhase::Interrupted),
        EventKind::FlowResumed { flow_id, .. } => of_flow(flow_id, FlowPhase::Resumed),
        EventKind::FlowCompleted { flow_id, .. } => of_flow(flow_id, FlowPhase::Completed),
        EventKind::FlowCancelled { flow_id, .. } => of_flow(flow_id, FlowPhase::Cancelled),
        EventKind::AgentStarted { agent_id, .. } => of_agent(agent_id, AgentPhase::Started),
        EventKind::AgentInterrupted { agent_id, .. } => of_agent(agent_id, AgentPhase::Interrupted),
        EventKind::AgentResumed { agent_id, .. } => of_agent(agent_id, AgentPhase::Resumed),
        EventKind::AgentCompleted { agent_id, .. } => of_agent(agent_id, AgentPhase::Completed),
        EventKind::AgentCancelled { agent_id, .. } => of_agent(agent_id, AgentPhase::Cancelled),
        _ => None,
    }
}

/// What the assistant waits for, if it waits for an answer.
pub(super) fn open_question(project: &Project, conversation: &Conversation) -> Option<TurnEvent> {
    if let Some(agent) = conversation.stack.waiting_agent() {
        let (kind, schema) = match UnconfirmedCall::of(&agent.metadata).is_empty() {
            true => (QuestionKind::Text, json!({"type": "string"})),
            false => (QuestionKind::Confirmation, json!({"type": "boolean"})),
        };
        return Some(TurnEvent::Question { kind, slot: None, schema });
    }
    let FrameKind::Pattern { context } = &conversation.stack.top()?.kind else { return None };
    let (PatternFrame::CollectInformation { collect: name, .. } | PatternFrame::ValidateSlot { validate: name, .. }) =
        context
    else {
        return None;
    };
    let slot = project.slot(name.as_str())?;
    Some(TurnEvent::Question { kind: QuestionKind::Slot, slot: Some(name.clone()), schema: slot.kind.json_schema() })
}
