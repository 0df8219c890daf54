//! Actions: what a name means, the built-in ones, and custom ones on their way out and back.

use serde_json::{Map, Value as Json};

use super::{
    Next, answers, flow, patterns, rejections, reminder, rerun, search, session,
    slots::settled_for,
    turn::{Turn, Walk},
};
use crate::{
    conversation::{ActionCall, ActionOutcome, Event, EventKind, EventPlace, FilledBy, PatternFrame, StepError},
    ids::{ActionName, SlotName},
    project::{NameText, StepKind},
};

/// Ends the turn like `action_listen`, for agents of others.
const REQUEST_INPUT: &str = "action_agent_request_user_input";

/// Actions of the older dialogue engine, and marks. They do nothing here; a custom action of the name takes their place.
const IDLE: [&str; 10] = [
    "action_handoff_metric",
    "action_extract_slots",
    "action_validate_slot_mappings",
    "action_send_text",
    "action_deactivate_loop",
    "action_revert_fallback_events",
    "action_default_ask_affirmation",
    "action_default_ask_rephrase",
    "action_two_stage_fallback",
    "action_unlikely_intent",
];

/// Runs an action step. A templated name that means nothing is how optional actions stay optional, so it is passed over.
pub(super) fn step(turn: &mut Turn<'_>, name: &NameText) -> Walk {
    match resolve(turn, name) {
        Ok(name) if is_custom(turn, &name) && rerun::passes(turn) => Walk::On,
        Ok(name) => perform(turn, &name),
        Err(trouble) => {
            turn.note(format!("the name of an action could not be made: {trouble}"));
            Walk::On
        }
    }
}

/// Whether somebody outside runs the action: a response of the name goes first, a built-in action does not.
fn is_custom(turn: &Turn<'_>, name: &ActionName) -> bool {
    turn.project.lists_action(name.as_str()) && turn.project.response(name.as_str()).is_none()
}

pub(super) fn resolve(turn: &Turn<'_>, name: &NameText) -> Result<ActionName, String> {
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
    if [flow::LISTEN, REQUEST_INPUT].contains(&name.as_str()) {
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
        "action_reset_routing" => reset_routing(turn),
        "action_back" | "action_default_fallback" => take_back(turn, name),
        idle if IDLE.contains(&idle) => {}
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

/// What only this assistant knows is forgotten, so that the coexisting one goes on from the shared slots.
fn reset_routing(turn: &mut Turn<'_>) {
    let project = turn.project;
    let own = |name: &&SlotName| project.slot(name.as_str()).is_none_or(|slot| !slot.shared);
    let names: Vec<SlotName> = turn.conversation().slots.iter().map(|(name, _)| name).filter(own).cloned().collect();
    for name in names {
        let value = project.slot(name.as_str()).map_or(Json::Null, |slot| slot.initial.clone());
        turn.emit_here(EventKind::Slot { name, value, filled_by: None, reset: true });
    }
    turn.emit_here(EventKind::RoutingSessionEnded);
}

/// The newest message is taken back; the fallback says so first.
fn take_back(turn: &mut Turn<'_>, name: &ActionName) {
    if name.as_str() == "action_default_fallback" {
        let response =
            if turn.project.response("utter_default").is_some() { "utter_default" } else { "utter_ask_rephrase" };
        turn.utter(response, &Map::new());
    }
    rewind(turn, EventKind::Rewind);
}

/// Back to before the newest message. The stack of before is not walked on: it listened then, and does again.
fn rewind(turn: &mut Turn<'_>, kind: EventKind) {
    if turn.conversation().undo.is_empty() {
        return turn.note("there is no message of the user to take back");
    }
    turn.emit(kind);
    turn.reload_stack();
    turn.rewound = true;
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
    let by_followup = !early && turn.conversation().followup.is_some();
    if by_followup {
        turn.emit(EventKind::Followup { name: None });
    }
    let waits = !early && !by_followup;
    match outcome {
        ActionOutcome::Done { events } => {
            turn.emit_here(EventKind::Action { name: name.clone() });
            let opens_session = name == *"action_session_start";
            for event in events {
                // The session has begun already; an action that greets says so once more.
                if !(opens_session && matches!(event.kind, EventKind::SessionStarted)) {
                    accept(turn, event, FilledBy::Custom);
                }
            }
            ran(turn, &name, waits);
        }
        ActionOutcome::Answered(answer) => {
            turn.emit_here(EventKind::Action { name: name.clone() });
            answers::take(turn, &name, answer);
            ran(turn, &name, waits);
        }
        // An action that does not want to run is no failure: whoever needs what it does must look.
        ActionOutcome::Rejected { reason } => {
            turn.emit_here(EventKind::ActionExecutionRejected { name: name.clone() });
            turn.note(format!("`{name}` refused to run, the flow goes on: {reason}"));
        }
        ActionOutcome::Failed(error) => failed(turn, &name, error, early),
    }
    if turn.conversation().session.ended {
        return Next::EndSession;
    }
    if turn.rewound {
        return turn.listen();
    }
    if early { session::before_understanding(turn) } else { turn.walk() }
}

/// An action that a step asked for has run: a correction need not run it again.
fn ran(turn: &mut Turn<'_>, name: &ActionName, waits: bool) {
    if waits && pending(turn).as_ref() == Some(name) {
        rerun::remember(turn);
    }
}

/// A custom action failed. Never taken for success, but where no flow asked for it: what runs before a message is understood
/// stops no message.
fn failed(turn: &mut Turn<'_>, name: &ActionName, error: StepError, early: bool) {
    turn.emit_here(EventKind::ActionFailed { name: name.clone(), error: error.clone() });
    let because = format!("action `{name}` failed ({}): {}", error.code, error.message);
    if early {
        return turn.note(format!("{because}; the message is read nevertheless"));
    }
    if turn.project.config.compat.failed_actions_continue {
        if !turn.caught(&error) {
            turn.note(format!("{because}; the flow goes on, as `compat` says"));
        }
        return;
    }
    let info = [
        ("error_source", Json::from("action")),
        ("action_name", Json::from(name.as_str())),
        ("error_message", Json::from(error.message.as_str())),
    ];
    turn.step_failed(&because, error, info.into_iter().map(|(key, value)| (key.to_owned(), value)).collect());
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

/// Takes in an event from outside that happens now.
pub(super) fn accept_kind(turn: &mut Turn<'_>, kind: EventKind, by: FilledBy) {
    accept(turn, Event { at: turn.at, kind, place: EventPlace::default() }, by);
}

/// Takes in an event from outside. What would break the brain's own books is left out: the stack, and what is counted here.
pub(super) fn accept(turn: &mut Turn<'_>, mut event: Event, by: FilledBy) {
    if turn.conversation().session.ended {
        return turn.note("an event that comes after the end of the session is left out");
    }
    match &mut event.kind {
        EventKind::Rewind => return rewind(turn, EventKind::Rewind),
        EventKind::Reminder { name, date_time, .. } => {
            if let Err(trouble) = reminder::settle(turn, name, date_time) {
                return turn.note(trouble);
            }
        }
        EventKind::Stack { .. }
        | EventKind::Action { .. }
        | EventKind::User(_)
        | EventKind::Understood { .. }
        | EventKind::AgentStarted { .. }
        | EventKind::AgentCompleted { .. }
        | EventKind::External { .. }
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
    if event.place == EventPlace::default()
        && let Some(top) = turn.stack.last()
    {
        event.place = super::turn::place_of(top);
    }
    turn.record(event);
}
