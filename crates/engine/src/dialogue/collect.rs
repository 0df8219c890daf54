//! Asking for a slot: entering a collect step, and what is being asked now.

use serde_json::Value as Json;

use super::{
    patterns,
    turn::{Turn, Walk},
};
use crate::{
    conversation::{FilledBy, Frame, PatternFrame, Position},
    ids::SlotName,
    project::{
        ActionReference, Collect, Step, StepKind,
        builtin::{LISTEN, SILENCE_TIMEOUT},
    },
};

/// Enters a collect step: the pattern on top decides whether to ask.
pub(super) fn enter(turn: &mut Turn<'_>, step: &Step, collect: &Collect) -> Walk {
    turn.remember_step();
    if !can_ask(turn, collect) {
        return turn.fail(&format!(
            "slot `{}` cannot be asked for: there is neither `{}` nor `{}`",
            collect.slot, collect.utter, collect.action
        ));
    }
    silence(turn, collect);
    if collect.ask_before_filling {
        turn.set_slot(&collect.slot, Json::Null, FilledBy::Flow);
    }
    let context = PatternFrame::CollectInformation {
        collect: collect.slot.clone(),
        utter: collect.utter.clone(),
        collect_action: collect.action.clone(),
        step_id: step.id.clone(),
    };
    if turn.push_pattern(patterns::COLLECT_INFORMATION, context) {
        Walk::On
    } else {
        turn.fail("a question could not be put on the stack")
    }
}

/// Tells voice channels how long to wait for this answer, where that differs from the question before.
fn silence(turn: &mut Turn<'_>, collect: &Collect) {
    if collect.silence.is_empty() && turn.conversation().set_value(SILENCE_TIMEOUT).is_none() {
        return;
    }
    let channel = turn.conversation().latest_message.as_ref().map(|message| message.input_channel.clone());
    let own = collect.silence.iter().find(|(of, _)| of.is_none() || *of == channel).map(|(_, seconds)| *seconds);
    let usual = turn.project.slot(SILENCE_TIMEOUT).map_or(Json::Null, |slot| slot.initial.clone());
    let value = own.map_or(usual, Json::from);
    if *turn.slot(SILENCE_TIMEOUT) != value {
        turn.set_slot(&SlotName::from(SILENCE_TIMEOUT), value, FilledBy::Flow);
    }
}

/// Whether there is anything to ask with.
pub(super) fn can_ask(turn: &Turn<'_>, collect: &Collect) -> bool {
    turn.project.response(collect.utter.as_str()).is_some()
        || turn.project.lists_action(collect.action.as_str())
        || turn.project.slot(collect.slot.as_str()).is_some_and(|slot| !slot.initial.is_null())
}

/// A message came while the action that asks had not answered, or that action listened itself: the pattern looks at the answer
/// as it does at any other.
pub(super) fn look_again(turn: &mut Turn<'_>) {
    let project = turn.project;
    let Some(top) = turn.stack.last_mut().filter(|top| asks(top)) else { return };
    let Some(flow) = project.flow(top.flow_id.as_str()) else { return };
    let Position::At(step) = &top.at else { return };
    let listens = flow.step(step.as_str()).is_none_or(
        |step| matches!(&step.kind, StepKind::Action(ActionReference::Plain(name)) if name.as_str() == LISTEN),
    );
    if !listens && let Some(first) = flow.first() {
        top.at = Position::Before(first.id.clone());
    }
}

/// Whether this frame asks for a slot.
pub(super) fn asks(frame: &Frame) -> bool {
    matches!(frame.pattern(), Some(PatternFrame::CollectInformation { .. } | PatternFrame::ValidateSlot { .. }))
}

/// The slot that the frame on top asks for.
pub(super) fn asked<'t>(turn: &'t Turn<'_>) -> Option<&'t SlotName> {
    match turn.stack.top()?.pattern()? {
        PatternFrame::CollectInformation { collect, .. } => Some(collect),
        PatternFrame::ValidateSlot { validate, .. } => Some(validate),
        _ => None,
    }
}

/// The collect step behind the question on top, if it is one.
pub(super) fn asking_step<'a>(turn: &Turn<'a>) -> Option<&'a Collect> {
    let [.., below, top] = turn.stack.as_slice() else { return None };
    let PatternFrame::CollectInformation { step_id, .. } = top.pattern()? else { return None };
    let project = turn.project;
    match &project.flow(below.flow_id.as_str())?.step(step_id.as_str())?.kind {
        StepKind::Collect(collect) => Some(collect),
        _ => None,
    }
}
