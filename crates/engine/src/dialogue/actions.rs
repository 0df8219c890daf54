//! Actions: what a name means, the built-in ones, and custom ones on their way out and back.

use serde_json::Map;

use super::{
    Next, flow, patterns, rejections, search, session,
    slots::settled_for,
    turn::{Turn, Walk},
};
use crate::{
    conversation::{ActionCall, ActionOutcome, Event, EventKind, FilledBy, PatternFrame},
    ids::ActionName,
    project::{NameText, StepKind},
};

/// Runs an action step. A templated name that means nothing is how optional actions stay optional, so it is passed over.
pub(super) fn step(turn: &mut Turn<'_>, name: &NameText) -> Walk {
    match resolve(turn, name) {
        Ok(name) => perform(turn, &name),
        Err(trouble) => {
            turn.note(format!("the name of an action could not be made: {trouble}"));
            Walk::On
        }
    }
}

fn resolve(turn: &Turn<'_>, name: &NameText) -> Result<ActionName, String> {
    match name {
        NameText::Plain(name) => Ok(name.clone()),
        NameText::Template(template) => turn.view().name(template).map(ActionName::from),
    }
}

/// Runs the action of a `followup` event before anything else.
pub(super) fn followup(turn: &mut Turn<'_>) -> Option<Walk> {
    let name = turn.conversation().followup.clone()?;
    if turn.project.lists_action(name.as_str())
        && turn.floor.is_none()
        && turn.project.response(name.as_str()).is_none()
    {
        // Taken back when the answer comes, so that it is known what was asked for.
        return Some(Walk::Stop(Next::Act(ActionCall { name })));
    }
    turn.emit(EventKind::Followup { name: None });
    Some(perform(turn, &name))
}

/// Does what a name means: a response, a custom action, or one of ours.
fn perform(turn: &mut Turn<'_>, name: &ActionName) -> Walk {
    if name.as_str() == flow::LISTEN {
        return Walk::Stop(turn.listen());
    }
    if turn.project.response(name.as_str()).is_some() {
        turn.say(name.as_str(), &Map::new());
        return Walk::On;
    }
    if turn.project.lists_action(name.as_str()) {
        if turn.floor.is_some() {
            turn.note(format!("`{name}` is not run any more: the turn's budget is spent"));
            return Walk::On;
        }
        return Walk::Stop(Next::Act(ActionCall { name: name.clone() }));
    }
    if name.as_str() == rejections::NAME {
        rejections::run(turn);
        return Walk::On;
    }
    if !built_in(turn, name) {
        turn.note(format!("there is no action `{name}`: it is passed over"));
    }
    Walk::On
}

fn built_in(turn: &mut Turn<'_>, name: &ActionName) -> bool {
    let at = turn.conversation().events;
    match name.as_str() {
        "action_session_start" => session::action(turn),
        "action_restart" => restart(turn),
        "action_hangup" => turn.emit_here(EventKind::SessionEnded { reason: Some("hangup".to_owned()) }),
        search::TRIGGER => search::trigger(turn),
        "action_trigger_chitchat" => {
            let reason = "cannot_handle_not_supported".to_owned();
            turn.push_pattern(patterns::CANNOT_HANDLE, PatternFrame::CannotHandle { reason });
        }
        "action_handoff_metric" | "action_reset_routing" | "action_extract_slots" | "action_validate_slot_mappings" => {
        }
        other => {
            if !patterns::run(turn, other) {
                return false;
            }
        }
    }
    // A restart or a new session has already said what happened.
    if turn.conversation().events == at || !matches!(name.as_str(), "action_session_start" | "action_restart") {
        turn.emit_here(EventKind::Action { name: name.clone() });
    }
    true
}

/// Everything is forgotten but the pattern that runs.
fn restart(turn: &mut Turn<'_>) {
    turn.emit(EventKind::Restart);
    let pattern = turn.stack.pop();
    turn.stack.clear();
    turn.stack.extend(pattern);
    if turn.project.response("utter_restart").is_some() {
        turn.utter("utter_restart", &Map::new());
    }
}

/// A custom action came back.
pub(super) fn acted(turn: &mut Turn<'_>, outcome: ActionOutcome) -> Next {
    let early = !turn.conversation().turn.understood;
    let name = if early {
        session::early_action(turn)
    } else {
        match &turn.conversation().followup {
            Some(name) => Some(name.clone()),
            None => pending(turn),
        }
    };
    let Some(name) = name else {
        turn.note("an action came back that nobody waits for");
        return Next::Listen;
    };
    if !early && turn.conversation().followup.is_some() {
        turn.emit(EventKind::Followup { name: None });
    }
    turn.emit_here(EventKind::Action { name: name.clone() });
    match outcome {
        ActionOutcome::Done { events } => {
            let opens_session = name == *"action_session_start";
            for event in events {
                // The session has begun already; an action that greets says so once more.
                if !(opens_session && matches!(event.kind, EventKind::SessionStarted)) {
                    accept(turn, event, FilledBy::Custom);
                }
            }
        }
        // As in the CALM format the flow goes on; what it needs from the action, it must check (dialogue.md 5.10).
        ActionOutcome::Failed { reason } => turn.note(format!("`{name}` failed, the flow goes on: {reason}")),
    }
    if turn.conversation().session.ended {
        return Next::EndSession;
    }
    if early { session::before_understanding(turn) } else { turn.walk() }
}

/// The custom action that the frame on top waits for.
fn pending(turn: &Turn<'_>) -> Option<ActionName> {
    let top = turn.stack.last()?;
    let step = super::turn::step_of(top)?;
    match &turn.project.flow(top.flow_id.as_str())?.step(step.as_str())?.kind {
        StepKind::Action(name) => resolve(turn, name).ok().filter(|name| turn.project.lists_action(name.as_str())),
        _ => None,
    }
}

/// Takes in an event from outside. What would break the brain's own books is left out: the stack, and what is counted here.
pub(super) fn accept(turn: &mut Turn<'_>, mut event: Event, by: FilledBy) {
    match &mut event.kind {
        EventKind::Stack { .. }
        | EventKind::Action { .. }
        | EventKind::User(_)
        | EventKind::Understood { .. }
        | EventKind::AgentStarted { .. }
        | EventKind::AgentCompleted { .. }
        | EventKind::FlowStarted { .. } => {
            return turn.note("an event from outside that only the brain may write is left out");
        }
        EventKind::Slot { name, value, filled_by, .. } => {
            if turn.project.slot(name.as_str()).is_none() {
                let name = name.clone();
                return turn.note(format!("a value for `{name}` came from outside, but there is no such slot"));
            }
            *value = settled_for(turn.project, name, std::mem::take(value));
            filled_by.get_or_insert(by);
        }
        EventKind::SessionStarted | EventKind::Restart => turn.stack.clear(),
        _ => {}
    }
    if event.place == crate::conversation::EventPlace::default()
        && let Some(top) = turn.stack.last()
    {
        event.place = super::turn::place_of(top);
    }
    turn.record(event);
}
