//! Corrections: going back in a flow. The target is determined in `slot_dependencies`.

use serde_json::Value as Json;

use crate::{
    conversation::{EventKind, FilledBy, Frame, FrameKind, PatternFrame, Position},
    dialogue::{advance_context::AdvanceContext, chains, commands, completed_steps, slot_dependencies},
    ids::{FlowId, SlotName, StepId},
};

/// `action_correct_flow_slot`: the flow goes back, the slots get their new values, and those with a validation are
/// validated.
pub(in crate::dialogue) fn run(turn: &mut AdvanceContext<'_>) {
    let top = turn.stack.top().and_then(Frame::pattern);
    let Some(PatternFrame::Correction { corrected_slots, reset_flow_id, reset_step_id, filled_by, .. }) = top else {
        return turn.add_note("`action_correct_flow_slot` has nothing to correct here");
    };
    let (corrected, by) = (corrected_slots.clone(), filled_by.unwrap_or(FilledBy::Llm));
    let mut names = open_checks(turn);
    let emptied: Vec<SlotName> =
        corrected.iter().filter(|(_, value)| value.is_null()).map(|(name, _)| SlotName::from(name.as_str())).collect();
    let mut back = None;
    if let (Some(flow), Some(step)) = (reset_flow_id.clone(), reset_step_id.clone()) {
        back = go_back(turn, &flow, step, &emptied);
    }
    for (name, value) in corrected {
        let name = SlotName::from(name);
        turn.set_slot(&name, value, by);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    // Emptied slots are asked for by their collect steps.
    names.retain(|name| !turn.slot(name.as_str()).is_null());
    // Below the correction pattern, which first reports the change; then invalid values are asked for again.
    let correction = turn.stack.pop();
    if let Some((at, unasked)) = back {
        slot_dependencies::ask_before_resuming(turn, at, &unasked);
    }
    commands::push_validations(turn, &names);
    turn.stack.extend(correction);
}

/// The slots that are being validated: going back closes their validations, which must be pushed again.
fn open_checks(turn: &AdvanceContext<'_>) -> Vec<SlotName> {
    let checked = turn.stack.iter().filter_map(|frame| match frame.pattern()? {
        PatternFrame::ValidateSlot { validate, .. } => Some(validate.clone()),
        _ => None,
    });
    checked.collect()
}

/// Moves the flow back to the step. Returns its index on the stack, and the emptied slots that are used from there on
/// before they are asked for.
fn go_back(
    turn: &mut AdvanceContext<'_>,
    flow: &FlowId,
    step: StepId,
    emptied: &[SlotName],
) -> Option<(usize, Vec<SlotName>)> {
    let correction = turn.stack.pop()?;
    let runs = |frame: &Frame| frame.flow_id == *flow && frame.is_flow() && frame.at != Position::End;
    let at = turn.stack.iter().rposition(runs);
    let back = at.map(|at| {
        let base = turn.stack.iter().take(at + 1).rposition(chains::is_base).unwrap_or(at);
        let unasked = slot_dependencies::used_before_asked(turn, base, emptied);
        back_to(turn, at, step, "the user corrected an earlier answer");
        (at, unasked)
    });
    if back.is_none() {
        turn.add_note(format!("`{flow}` is no longer active, so it does not go back"));
    }
    turn.stack.push(correction);
    back
}

/// Sets the frame at index `at` before the step. The frames above it in its chain are closed: questions, agents, and
/// called flows, which start again if the flow reaches them again. Flows that interrupted it stay.
pub(in crate::dialogue) fn back_to(turn: &mut AdvanceContext<'_>, at: usize, step: StepId, reason: &str) {
    let base = turn.stack.iter().take(at + 1).rposition(chains::is_base).unwrap_or(at);
    let end = chains::chain(&turn.stack, base).end;
    // Pending error messages are kept, whatever the user changes.
    let (pending_errors, above): (Vec<Frame>, Vec<Frame>) =
        turn.stack.drain(at + 1..end).partition(chains::is_pending_error);
    for frame in above.iter().rev() {
        match &frame.kind {
            FrameKind::Flow { .. } if frame.at != Position::Start => {
                let (flow_id, step_id) = (frame.flow_id.clone(), crate::dialogue::advance_context::step_or_end(frame));
                turn.emit_at(frame, EventKind::FlowCompleted { flow_id, step_id });
            }
            _ => turn.close_frame(frame, reason),
        }
    }
    let flow = turn.stack.get(at).and_then(|frame| turn.project.flow(frame.flow_id.as_str()));
    let reach = flow.and_then(|flow| flow.step(step.as_str())).map(|step| step.continuation_hash);
    if let Some(frame) = turn.stack.get_mut(at) {
        // A step that is not on the way was passed by: the steps that follow it in the flow are walked again.
        let position = |id: &StepId| flow.and_then(|flow| flow.index.get(id));
        let is_step_or_later = |one: &StepId| *one == step || position(one) >= position(&step);
        let exact = frame.visited_steps.iter().position(|one| *one == step);
        if let Some(visited) = exact.or_else(|| frame.visited_steps.iter().position(is_step_or_later)) {
            completed_steps::mark_skippable(frame, visited, &above);
            frame.visited_steps.truncate(visited);
        }
        frame.at = Position::Before(step);
        frame.continuation_hash = reach.unwrap_or(0);
    }
    let rest = turn.stack.split_off(at + 1);
    turn.stack.extend(pending_errors.into_iter().chain(rest));
}

/// The corrected values for the context of the correction pattern: as a map, and as a list.
pub(in crate::dialogue) fn new_values(corrected: &[(SlotName, Json)]) -> (serde_json::Map<String, Json>, Vec<Json>) {
    let map = corrected.iter().map(|(name, value)| (name.to_string(), value.clone())).collect();
    (map, corrected.iter().map(|(_, value)| value.clone()).collect())
}
