//! Actions: what a name means, the built-in ones, and custom ones on their way out and back.

use serde_json::{Map, Value as Json};

use super::{
    Next, answers, code_change, collect, patterns,
    pending::step_of_top,
    rejections, reminder, rerun, search, session,
    slots::settled_for,
    turn::{Turn, Walk},
};
use crate::{
    conversation::{
        ActionOrigin, ActionOutcome, Event, EventKind, FilledBy, FlowLocation, PatternFrame, PendingEffect, StepError,
    },
    ids::{ActionName, SlotName},
    project::{
        ActionReference,
        builtin::{self, BuiltinAction, SESSION_START},
    },
};

/// Runs an action step. A templated name that means nothing is how optional actions stay optional, so it is passed over.
pub(super) fn step(turn: &mut Turn<'_>, name: &ActionReference) -> Walk {
    match resolve(turn, name) {
        Ok(resolved) if matches!(name, ActionReference::Template(_)) && !exists(turn, &resolved) => Walk::On,
        Ok(name) if is_custom(turn, &name) && rerun::passes(turn) => Walk::On,
        Ok(name) => perform(turn, &name, ActionOrigin::Step),
        Err(trouble) => {
            turn.note(format!("the name of an action could not be made: {trouble}"));
            Walk::On
        }
    }
}

/// Whether anything is done for an action of this name.
fn exists(turn: &Turn<'_>, name: &ActionName) -> bool {
    let (project, name) = (turn.project, name.as_str());
    project.response(name).is_some() || project.lists_action(name) || builtin::action(name).is_some()
}

/// Whether somebody outside runs the action: a response of the name goes first, a built-in action does not.
fn is_custom(turn: &Turn<'_>, name: &ActionName) -> bool {
    turn.project.lists_action(name.as_str()) && turn.project.response(name.as_str()).is_none()
}

pub(super) fn resolve(turn: &Turn<'_>, name: &ActionReference) -> Result<ActionName, String> {
    match name {
        ActionReference::Plain(name) => Ok(name.clone()),
        ActionReference::Template(template) => turn.view().name(template).map(ActionName::from),
    }
}

/// Runs the action of a `followup` event before anything else.
pub(super) fn followup(turn: &mut Turn<'_>) -> Option<Walk> {
    let name = turn.conversation().followup.clone()?;
    turn.emit(EventKind::Followup { name: None });
    Some(perform(turn, &name, ActionOrigin::Followup))
}

/// Does what a name means: a response, a custom action, or one of ours.
fn perform(turn: &mut Turn<'_>, name: &ActionName, asked_by: ActionOrigin) -> Walk {
    let built_in = builtin::action(name.as_str());
    if built_in == Some(BuiltinAction::Listen) {
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
        return Walk::Stop(turn.act(name.clone(), asked_by));
    }
    match built_in {
        Some(action) => run_builtin(turn, name, action),
        None => turn.note(format!("there is no action `{name}`: it is passed over")),
    }
    Walk::On
}

fn run_builtin(turn: &mut Turn<'_>, name: &ActionName, action: BuiltinAction) {
    let before = turn.conversation().events;
    match action {
        // It records itself, where it changes something.
        BuiltinAction::RunSlotRejections => return rejections::run(turn),
        BuiltinAction::SessionStart => session::action(turn),
        BuiltinAction::Restart => restart(turn),
        BuiltinAction::Hangup => turn.emit_here(EventKind::SessionEnded { reason: Some("hangup".to_owned()) }),
        BuiltinAction::TriggerSearch => search::trigger(turn),
        BuiltinAction::TriggerChitchat => {
            let reason = "cannot_handle_not_supported".to_owned();
            turn.push_pattern(patterns::CANNOT_HANDLE, PatternFrame::CannotHandle { reason });
        }
        BuiltinAction::ResetRouting => reset_routing(turn),
        BuiltinAction::Back => rewind(turn, EventKind::Rewind),
        BuiltinAction::DefaultFallback => fall_back(turn),
        BuiltinAction::CancelFlow => patterns::cancel::run(turn),
        BuiltinAction::ClarifyFlows => patterns::clarification::run(turn),
        BuiltinAction::CorrectFlowSlot => patterns::correction::run(turn),
        BuiltinAction::ContinueInterruptedFlow => patterns::continue_interrupted::go_on(turn),
        BuiltinAction::CancelInterruptedFlows => patterns::continue_interrupted::give_up(turn),
        BuiltinAction::RepeatBotMessages => patterns::repeat::run(turn),
        BuiltinAction::CleanStack => code_change::clean_stack(turn),
        BuiltinAction::Listen | BuiltinAction::Nothing => {}
    }
    // A restart or a new session has already said what happened.
    let says_itself = matches!(action, BuiltinAction::SessionStart | BuiltinAction::Restart);
    if !says_itself || turn.conversation().events == before {
        turn.emit_here(EventKind::Action { name: name.clone() });
    }
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

/// Says that nothing was understood, and takes the newest message back.
fn fall_back(turn: &mut Turn<'_>) {
    let response =
        if turn.project.response("utter_default").is_some() { "utter_default" } else { "utter_ask_rephrase" };
    turn.utter(response, &Map::new());
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
    let Some(PendingEffect::Action { name, asked_by }) = turn.pending.clone() else {
        turn.note("an action came back that nobody waits for");
        return Next::Listen;
    };
    if asked_by == ActionOrigin::Step && step_of_top(turn).is_none() {
        turn.note(format!("`{name}` came back, but the step that asked for it is gone"));
        return Next::Listen;
    }
    turn.pending = None;
    let early = asked_by == ActionOrigin::TurnStart;
    match outcome {
        ActionOutcome::Done { events } => {
            turn.emit_here(EventKind::Action { name: name.clone() });
            let opens_session = name == *SESSION_START;
            for event in events {
                // The session has begun already; an action that greets says so once more.
                if !(opens_session && matches!(event.kind, EventKind::SessionStarted)) {
                    accept(turn, event, FilledBy::Custom);
                }
            }
            ran(turn, asked_by);
        }
        ActionOutcome::Answered(answer) => {
            turn.emit_here(EventKind::Action { name: name.clone() });
            answers::take(turn, &name, answer);
            ran(turn, asked_by);
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
fn ran(turn: &mut Turn<'_>, asked_by: ActionOrigin) {
    if asked_by == ActionOrigin::Step && !turn.rewound {
        rerun::remember(turn);
    }
}

/// A message came while an action had not answered. Whether it ran is not known, so the flow must not go on as if it had; where
/// it was to ask a question, the message may be the answer.
pub(super) fn abandon_action(turn: &mut Turn<'_>, name: &ActionName, asked_by: ActionOrigin) {
    let reason = format!("action `{name}` had not answered when the next message came");
    let asks = turn.stack.top().is_some_and(collect::asks);
    // A flow that has changed ends anyway, and the user hears why.
    let is_gone = step_of_top(turn).is_none();
    if asked_by != ActionOrigin::Step || asks || is_gone || turn.project.config.compat.failed_actions_continue {
        turn.note(reason);
    } else {
        turn.fail(&reason);
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

/// Takes in an event from outside that happens now.
pub(super) fn accept_kind(turn: &mut Turn<'_>, kind: EventKind, by: FilledBy) {
    accept(turn, Event { at: turn.at, kind, place: FlowLocation::default() }, by);
}

/// Takes in an event from outside. What would break the dialogue engine's own books is left out: the stack, and what is counted here.
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
            return turn.note("an event from outside that only the dialogue engine may write is left out");
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
    if event.place == FlowLocation::default()
        && let Some(top) = turn.stack.last()
    {
        event.place = super::turn::place_of(top);
    }
    turn.record(event);
}
