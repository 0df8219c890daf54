//! Collect steps: entering one, and the slot that is being asked for.

use serde_json::Value as Json;

use super::{
    advance_context::{AdvanceContext, StepResult},
    patterns,
};
use crate::{
    conversation::{FilledBy, Frame, PatternFrame, Position},
    ids::SlotName,
    project::{
        ActionReference, Collect, Step, StepKind,
        builtin::{LISTEN, SILENCE_TIMEOUT},
    },
};

/// Enters a collect step: pushes the pattern that decides whether to ask.
pub(super) fn enter(turn: &mut AdvanceContext<'_>, step: &Step, collect: &Collect) -> StepResult {
    turn.record_visit();
    if !can_ask(turn, collect) {
        return turn.fail(&format!(
            "slot `{}` cannot be asked for: there is neither `{}` nor `{}`",
            collect.slot, collect.utter, collect.action
        ));
    }
    set_silence_timeout(turn, collect);
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
        StepResult::Continue
    } else {
        turn.fail("the pattern that asks for a slot cannot be pushed on the stack")
    }
}

/// Sets the silence timeout of voice channels for this answer, if it differs from the previous one.
fn set_silence_timeout(turn: &mut AdvanceContext<'_>, collect: &Collect) {
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

/// Whether there is a response or an action that asks for the slot, or the slot has an initial value.
pub(super) fn can_ask(turn: &AdvanceContext<'_>, collect: &Collect) -> bool {
    turn.project.response(collect.utter.as_str()).is_some()
        || turn.project.lists_action(collect.action.as_str())
        || turn.project.slot(collect.slot.as_str()).is_some_and(|slot| !slot.initial.is_null())
}

/// A message arrived while the action that asks was pending, or that action listened itself: the pattern checks the
/// answer again, as for any other question.
pub(super) fn recheck_answer(turn: &mut AdvanceContext<'_>) {
    let project = turn.project;
    let Some(top) = turn.stack.last_mut().filter(|top| is_asking(top)) else { return };
    let Some(flow) = project.flow(top.flow_id.as_str()) else { return };
    let Position::At(step) = &top.at else { return };
    let listens = flow.step(step.as_str()).is_none_or(
        |step| matches!(&step.kind, StepKind::Action(ActionReference::Plain(name)) if name.as_str() == LISTEN),
    );
    if !listens && let Some(first) = flow.first() {
        top.at = Position::Before(first.id.clone());
    }
}

/// Whether this frame is asking for a slot.
pub(super) fn is_asking(frame: &Frame) -> bool {
    matches!(frame.pattern(), Some(PatternFrame::CollectInformation { .. } | PatternFrame::ValidateSlot { .. }))
}

/// The slot that the frame on top is asking for.
pub(super) fn asked_slot<'t>(turn: &'t AdvanceContext<'_>) -> Option<&'t SlotName> {
    match turn.stack.top()?.pattern()? {
        PatternFrame::CollectInformation { collect, .. } => Some(collect),
        PatternFrame::ValidateSlot { validate, .. } => Some(validate),
        _ => None,
    }
}

/// The collect step of the pattern on top, if it is asking for a slot.
pub(super) fn open_collect_step<'a>(turn: &AdvanceContext<'a>) -> Option<&'a Collect> {
    collect_step_of(turn, turn.stack.len().checked_sub(1)?)
}

/// The collect steps that are asking for a slot, each with the index of its pattern on the stack.
pub(super) fn open_questions<'t, 'a: 't>(
    turn: &'t AdvanceContext<'a>,
) -> impl Iterator<Item = (usize, &'a Collect)> + use<'t, 'a> {
    (0..turn.stack.len()).filter_map(|at| Some((at, collect_step_of(turn, at)?)))
}

fn collect_step_of<'a>(turn: &AdvanceContext<'a>, at: usize) -> Option<&'a Collect> {
    let (below, top) = (turn.stack.get(at.checked_sub(1)?)?, turn.stack.get(at)?);
    let PatternFrame::CollectInformation { step_id, .. } = top.pattern()? else { return None };
    let project = turn.project;
    match &project.flow(below.flow_id.as_str())?.step(step_id.as_str())?.kind {
        StepKind::Collect(collect) => Some(collect),
        _ => None,
    }
}
