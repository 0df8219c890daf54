//! Corrections: going back. Where to is in `walked`.

use serde_json::Value as Json;

use crate::{
    conversation::{EventKind, FilledBy, Frame, FrameKind, PatternFrame, Position},
    dialogue::{commands, interrupt, rerun, turn::Turn, walked},
    ids::{FlowId, SlotName, StepId},
};

/// `action_correct_flow_slot`: the flow goes back, then the slots get their new values, then those with checks are checked.
pub(in crate::dialogue) fn run(turn: &mut Turn<'_>) {
    let top = turn.stack.top().and_then(Frame::pattern);
    let Some(PatternFrame::Correction { corrected_slots, reset_flow_id, reset_step_id, filled_by, .. }) = top else {
        return turn.note("`action_correct_flow_slot` has nothing to correct here");
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
    // What was emptied is asked for where the flow asks for it.
    names.retain(|name| !turn.slot(name.as_str()).is_null());
    // Below the correction: it says what it changed first, then what does not hold is asked for again.
    let correction = turn.stack.pop();
    if let Some((at, unasked)) = back {
        walked::ask_first(turn, at, &unasked);
    }
    commands::push_validations(turn, &names);
    turn.stack.extend(correction);
}

/// The slots that are being checked: going back takes the checks down, and what they have not let through stays unchecked else.
fn open_checks(turn: &Turn<'_>) -> Vec<SlotName> {
    let checked = turn.stack.iter().filter_map(|frame| match frame.pattern()? {
        PatternFrame::ValidateSlot { validate, .. } => Some(validate.clone()),
        _ => None,
    });
    checked.collect()
}

/// The flow goes back to that step. Where it stands on the stack, and the emptied slots that are used there before they are asked
/// for.
fn go_back(turn: &mut Turn<'_>, flow: &FlowId, step: StepId, emptied: &[SlotName]) -> Option<(usize, Vec<SlotName>)> {
    let correction = turn.stack.pop()?;
    let walks = |frame: &Frame| frame.flow_id == *flow && frame.is_flow() && frame.at != Position::End;
    let at = turn.stack.iter().rposition(walks);
    let back = at.map(|at| {
        let base = turn.stack.iter().take(at + 1).rposition(interrupt::is_base).unwrap_or(at);
        let unasked = walked::used_before_asked(turn, base, emptied);
        back_to(turn, at, step, "the user corrected an earlier answer");
        (at, unasked)
    });
    if back.is_none() {
        turn.note(format!("`{flow}` is not under way any more, so it does not go back"));
    }
    turn.stack.push(correction);
    back
}

/// Puts the flow at that place of the stack before that step. What it has on the stack above is taken down: the questions, the
/// agents, and the flows it called, which begin anew if the flow comes there again. Flows that the user turned to meanwhile stay.
pub(in crate::dialogue) fn back_to(turn: &mut Turn<'_>, at: usize, step: StepId, reason: &str) {
    let base = turn.stack.iter().take(at + 1).rposition(interrupt::is_base).unwrap_or(at);
    let end = interrupt::chain(&turn.stack, base).end;
    // What went wrong has yet to be told, whatever the user changes.
    let (untold, above): (Vec<Frame>, Vec<Frame>) = turn.stack.drain(at + 1..end).partition(interrupt::is_untold);
    for frame in above.iter().rev() {
        match &frame.kind {
            FrameKind::Flow { .. } if frame.at != Position::Start => {
                let (flow_id, step_id) = (frame.flow_id.clone(), crate::dialogue::turn::step_or_end(frame));
                turn.emit_at(frame, EventKind::FlowCompleted { flow_id, step_id });
            }
            _ => turn.take_down(frame, reason),
        }
    }
    let flow = turn.stack.get(at).and_then(|frame| turn.project.flow(frame.flow_id.as_str()));
    let reach = flow.and_then(|flow| flow.step(step.as_str())).map(|step| step.continuation_hash);
    if let Some(frame) = turn.stack.get_mut(at) {
        if let Some(visited) = frame.trail.iter().position(|one| *one == step) {
            rerun::went_back(frame, visited, &above);
            frame.trail.truncate(visited);
        }
        frame.at = Position::Before(step);
        frame.reach = reach.unwrap_or(0);
    }
    let rest = turn.stack.split_off(at + 1);
    turn.stack.extend(untold.into_iter().chain(rest));
}

/// The facts of a correction's frame.
pub(in crate::dialogue) fn new_values(corrected: &[(SlotName, Json)]) -> (serde_json::Map<String, Json>, Vec<Json>) {
    let map = corrected.iter().map(|(name, value)| (name.to_string(), value.clone())).collect();
    (map, corrected.iter().map(|(_, value)| value.clone()).collect())
}
