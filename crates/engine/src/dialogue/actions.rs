//! Actions: resolving names, running built-in actions, requesting custom actions and applying their outcomes.

use serde_json::{Map, Value as Json};

use super::{
    Next, action_response,
    advance_context::{AdvanceContext, StepResult},
    code_change, collect, completed_steps, patterns,
    pending::step_of_top,
    rejections, reminder, search, session,
    slots::normalize_for,
    writes,
};
use crate::{
    conversation::{
        ActionOrigin, ActionOutcome, Event, EventKind, FilledBy, FlowLocation, PatternFrame, PendingEffect, StepError,
        Write, WriteState, Writes,
    },
    ids::{ActionName, SlotName},
    project::{
        ActionReference,
        builtin::{self, BuiltinAction, SESSION_START},
    },
};

/// Runs an action step. A templated name that resolves to no action makes the step optional, so it is skipped.
pub(super) fn step(turn: &mut AdvanceContext<'_>, name: &ActionReference) -> StepResult {
    match resolve(turn, name) {
        Ok(resolved) if matches!(name, ActionReference::Template(_)) && !exists(turn, &resolved) => {
            StepResult::Continue
        }
        Ok(name) if is_custom(turn, &name) && completed_steps::can_skip(turn) => StepResult::Continue,
        Ok(name) => run_action(turn, &name, ActionOrigin::Step),
        Err(error) => {
            turn.add_note(format!("the name of an action cannot be rendered: {error}"));
            StepResult::Continue
        }
    }
}

/// Whether an action of this name exists.
fn exists(turn: &AdvanceContext<'_>, name: &ActionName) -> bool {
    let (project, name) = (turn.project, name.as_str());
    project.response(name).is_some() || project.lists_action(name) || builtin::action(name).is_some()
}

/// Whether the action is custom. A response of the same name has priority, a built-in action does not.
fn is_custom(turn: &AdvanceContext<'_>, name: &ActionName) -> bool {
    turn.project.lists_action(name.as_str()) && turn.project.response(name.as_str()).is_none()
}

pub(super) fn resolve(turn: &AdvanceContext<'_>, name: &ActionReference) -> Result<ActionName, String> {
    match name {
        ActionReference::Plain(name) => Ok(name.clone()),
        ActionReference::Template(template) => turn.scope().name(template).map(ActionName::from),
    }
}

/// Runs the action of a `followup` event before the next step.
pub(super) fn run_followup(turn: &mut AdvanceContext<'_>) -> Option<StepResult> {
    let name = turn.conversation().followup.clone()?;
    turn.emit(EventKind::Followup { name: None });
    Some(run_action(turn, &name, ActionOrigin::Followup))
}

/// Runs the action of this name: a response, a custom action, or a built-in one.
fn run_action(turn: &mut AdvanceContext<'_>, name: &ActionName, asked_by: ActionOrigin) -> StepResult {
    let built_in = builtin::action(name.as_str());
    if built_in == Some(BuiltinAction::Listen) {
        return StepResult::Return(turn.listen());
    }
    if turn.project.response(name.as_str()).is_some() {
        turn.say(name.as_str(), &Map::new());
        return StepResult::Continue;
    }
    if turn.project.lists_action(name.as_str()) {
        if turn.protected_frames.is_some() {
            turn.add_note(format!("`{name}` is not run: the budget of the turn is exhausted"));
            return StepResult::Continue;
        }
        return StepResult::Return(turn.request_action(name.clone(), asked_by));
    }
    match built_in {
        Some(action) => run_builtin(turn, name, action),
        None => turn.add_note(format!("there is no action `{name}`: the step is skipped")),
    }
    StepResult::Continue
}

fn run_builtin(turn: &mut AdvanceContext<'_>, name: &ActionName, action: BuiltinAction) {
    let before = turn.conversation().events;
    match action {
        // It records itself when it changes something.
        BuiltinAction::RunSlotRejections => return rejections::run(turn),
        BuiltinAction::SessionStart => session::run_session_start(turn),
        BuiltinAction::Restart => restart(turn),
        BuiltinAction::Hangup => turn.emit_in_top_frame(EventKind::SessionEnded { reason: Some("hangup".to_owned()) }),
        BuiltinAction::TriggerSearch => search::trigger(turn),
        BuiltinAction::TriggerChitchat => {
            let reason = "cannot_handle_not_supported".to_owned();
            turn.push_pattern(patterns::CANNOT_HANDLE, PatternFrame::CannotHandle { reason });
        }
        BuiltinAction::ResetRouting => reset_routing(turn),
        BuiltinAction::Back => rewind(turn, EventKind::Rewind),
        BuiltinAction::DefaultFallback => default_fallback(turn),
        BuiltinAction::CancelFlow => patterns::cancel::run(turn),
        BuiltinAction::ClarifyFlows => patterns::clarification::run(turn),
        BuiltinAction::CorrectFlowSlot => patterns::correction::run(turn),
        BuiltinAction::ContinueInterruptedFlow => patterns::continue_interrupted::continue_chosen_flow(turn),
        BuiltinAction::CancelInterruptedFlows => patterns::continue_interrupted::cancel_interrupted_flows(turn),
        BuiltinAction::RepeatBotMessages => patterns::repeat::run(turn),
        BuiltinAction::CleanStack => code_change::clean_stack(turn),
        BuiltinAction::Listen | BuiltinAction::Nothing => {}
    }
    // A restart and a new session record their own events.
    let records_itself = matches!(action, BuiltinAction::SessionStart | BuiltinAction::Restart);
    if !records_itself || turn.conversation().events == before {
        turn.emit_in_top_frame(EventKind::Action { name: name.clone() });
    }
}

/// Resets the slots that are not shared with the coexisting NLU assistant, which takes over.
fn reset_routing(turn: &mut AdvanceContext<'_>) {
    let project = turn.project;
    let own = |name: &&SlotName| project.slot(name.as_str()).is_none_or(|slot| !slot.shared);
    let names: Vec<SlotName> = turn.conversation().slots.iter().map(|(name, _)| name).filter(own).cloned().collect();
    for name in names {
        let value = project.slot(name.as_str()).map_or(Json::Null, |slot| slot.initial.clone());
        turn.emit_in_top_frame(EventKind::Slot { name, value, filled_by: None, reset: true });
    }
    turn.emit_in_top_frame(EventKind::RoutingSessionEnded);
}

/// Sends the fallback response and reverts the newest message.
fn default_fallback(turn: &mut AdvanceContext<'_>) {
    let response =
        if turn.project.response("utter_default").is_some() { "utter_default" } else { "utter_ask_rephrase" };
    turn.utter(response, &Map::new());
    rewind(turn, EventKind::Rewind);
}

/// Reverts everything since the newest message. The restored stack is not executed: the assistant was listening then
/// and listens again.
fn rewind(turn: &mut AdvanceContext<'_>, kind: EventKind) {
    if turn.conversation().undo.is_empty() {
        return turn.add_note("there is no user message to revert");
    }
    turn.emit(kind);
    turn.reload_stack();
    turn.rewound = true;
}

/// Resets the conversation and keeps only the running pattern.
fn restart(turn: &mut AdvanceContext<'_>) {
    turn.emit(EventKind::Restart);
    let pattern = turn.stack.pop();
    turn.stack.clear();
    turn.stack.extend(pattern);
    if turn.project.response("utter_restart").is_some() {
        turn.utter("utter_restart", &Map::new());
    }
}

/// Handles the outcome of a custom action.
pub(super) fn on_action_outcome(turn: &mut AdvanceContext<'_>, outcome: ActionOutcome) -> Next {
    let Some(PendingEffect::Action { name, asked_by }) = turn.pending.clone() else {
        turn.add_note("received the outcome of an action that is not pending");
        return Next::Listen;
    };
    if asked_by == ActionOrigin::Step && step_of_top(turn).is_none() {
        turn.add_note(format!("received the outcome of `{name}`, but the step that requested it no longer exists"));
        return Next::Listen;
    }
    turn.pending = None;
    let early = asked_by == ActionOrigin::TurnStart;
    match outcome {
        ActionOutcome::Done { events } => {
            turn.emit_in_top_frame(EventKind::Action { name: name.clone() });
            let opens_session = name == *SESSION_START;
            for event in events {
                // The session has started already; an action `action_session_start` reports it again.
                if !(opens_session && matches!(event.kind, EventKind::SessionStarted)) {
                    apply_external_event(turn, event, FilledBy::Custom);
                }
            }
            note_declared_write(turn, &name);
            record_completed_action(turn, asked_by);
        }
        ActionOutcome::ServerResponse(answer) => {
            note_declared_write(turn, &name);
            turn.emit_in_top_frame(EventKind::Action { name: name.clone() });
            action_response::apply_response(turn, &name, answer);
            record_completed_action(turn, asked_by);
        }
        // A rejection is not a failure: the flow must check the values that the action sets.
        ActionOutcome::Rejected { reason } => {
            turn.emit_in_top_frame(EventKind::ActionExecutionRejected { name: name.clone() });
            turn.add_note(format!("`{name}` rejected its execution, the flow continues: {reason}"));
        }
        ActionOutcome::Failed(error) => on_action_failed(turn, &name, error, early),
    }
    if turn.conversation().session.ended {
        return Next::EndSession;
    }
    if turn.rewound {
        return turn.listen();
    }
    if early { session::before_understanding(turn) } else { turn.run_until_effect() }
}

/// Remembers that an action has changed something, if the project declares so. Most actions of CALM projects declare nothing and only
/// read: none of them is reported as a change, although each counts as a `write` when its outcome is not known.
fn note_declared_write(turn: &mut AdvanceContext<'_>, name: &ActionName) {
    let effects = turn.project.endpoints.action_endpoint.as_ref().map(|endpoint| &endpoint.effects);
    let Some(effect) = effects.and_then(|effects| effects.get(name.as_str())).filter(|effect| *effect != "read") else {
        return;
    };
    let mut done = Writes::default();
    done.add(Write::new(name.as_str(), &Json::Null).with_effect(effect), WriteState::Done);
    writes::note(turn, Some(done));
}

/// Remembers an action that a step requested, so that a correction need not run it again.
fn record_completed_action(turn: &mut AdvanceContext<'_>, asked_by: ActionOrigin) {
    if asked_by == ActionOrigin::Step && !turn.rewound {
        completed_steps::record_completed(turn);
    }
}

/// A message arrived while an action was pending. Whether it ran is not known, so the flow must not continue as if it
/// had. If the action was to ask a question, the message may be the answer.
pub(super) fn abandon_action(turn: &mut AdvanceContext<'_>, name: &ActionName, asked_by: ActionOrigin) {
    let reason = format!("action `{name}` had not finished when the next message arrived");
    let asks = turn.stack.top().is_some_and(collect::is_asking);
    // A flow that has changed ends anyway, and the user is notified.
    let is_gone = step_of_top(turn).is_none();
    if asked_by != ActionOrigin::Step || asks || is_gone || turn.project.config.compat.failed_actions_continue {
        turn.add_note(reason);
    } else {
        turn.fail(&reason);
    }
}

/// Handles a failed custom action. An action that runs before the message is understood does not stop the message.
fn on_action_failed(turn: &mut AdvanceContext<'_>, name: &ActionName, error: StepError, early: bool) {
    turn.emit_in_top_frame(EventKind::ActionFailed { name: name.clone(), error: error.clone() });
    let because = format!("action `{name}` failed ({}): {}", error.code, error.message);
    if early {
        return turn.add_note(format!("{because}; the message is processed nevertheless"));
    }
    if turn.project.config.compat.failed_actions_continue {
        if !turn.handle_by_on_error(&error) {
            turn.add_note(format!("{because}; the flow continues because of `compat: failed_actions_continue`"));
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

/// Applies an external event with the current time.
pub(super) fn apply_external_kind(turn: &mut AdvanceContext<'_>, kind: EventKind, by: FilledBy) {
    apply_external_event(turn, Event { at: turn.at, kind, location: FlowLocation::default() }, by);
}

/// Applies an external event, of an action or an agent. Events that the dialogue engine alone may write are ignored:
/// those about the stack and about counted effects.
pub(super) fn apply_external_event(turn: &mut AdvanceContext<'_>, mut event: Event, by: FilledBy) {
    if turn.conversation().session.ended {
        return turn.add_note("an event after the end of the session is ignored");
    }
    match &mut event.kind {
        EventKind::Rewind => return rewind(turn, EventKind::Rewind),
        EventKind::Reminder { name, date_time, .. } => {
            if let Err(error) = reminder::complete_reminder(turn, name, date_time) {
                return turn.add_note(error);
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
            return turn.add_note("an external event that only the dialogue engine may write is ignored");
        }
        EventKind::Slot { name, value, filled_by, .. } => {
            if turn.project.slot(name.as_str()).is_none() {
                let name = name.clone();
                return turn.add_note(format!("an external event sets `{name}`, but there is no such slot"));
            }
            *value = normalize_for(turn.project, name, std::mem::take(value));
            filled_by.get_or_insert(by);
        }
        EventKind::SessionStarted | EventKind::Restart => turn.stack.clear(),
        _ => {}
    }
    if event.location == FlowLocation::default()
        && let Some(top) = turn.stack.last()
    {
        event.location = super::advance_context::location_of(top);
    }
    turn.record(event);
}
