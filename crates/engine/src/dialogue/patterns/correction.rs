//! Corrections: where a flow goes back to, and going back.

use serde_json::Value as Json;

use crate::{
    conversation::{EventKind, FilledBy, Frame, FrameKind, PatternFrame, Position},
    dialogue::{commands, ending::each_step, interrupt, rerun, turn::Turn},
    ids::{FlowId, SlotName, StepId},
    project::{Call, Project, StepKind},
};

/// The earliest step visited in the chain on that base that asks for one of the slots, itself or through the flow it calls.
pub(in crate::dialogue) fn reset_point(turn: &Turn<'_>, base: usize, slots: &[SlotName]) -> Option<(FlowId, StepId)> {
    let chain = turn.stack.get(interrupt::chain(&turn.stack, base))?;
    let flows = chain.iter().filter(|frame| matches!(frame.kind, FrameKind::Flow { .. }));
    flows.filter(|frame| frame.at != Position::End).find_map(|frame| {
        let step = frame.trail.iter().find(|step| asks_for(turn.project, frame, step, slots))?;
        Some((frame.flow_id.clone(), step.clone()))
    })
}

fn asks_for(project: &Project, frame: &Frame, step: &StepId, slots: &[SlotName]) -> bool {
    let Some(step) = project.flow(frame.flow_id.as_str()).and_then(|flow| flow.step(step.as_str())) else {
        return false;
    };
    match &step.kind {
        StepKind::Collect(collect) => slots.contains(&collect.slot),
        StepKind::Call(Call::Tool { server, .. }) => slots.iter().any(|slot| project.may_ask(server, slot)),
        // The call under way knows its own steps better.
        StepKind::Call(Call::Flow(child)) if frame.at != Position::At(step.id.clone()) => {
            project.flow(child.as_str()).is_some_and(|child| {
                let mut found = false;
                each_step(project, child, &mut Vec::new(), &mut |kind| {
                    found |= matches!(kind, StepKind::Collect(collect) if slots.contains(&collect.slot));
                });
                found
            })
        }
        _ => false,
    }
}

/// `action_correct_flow_slot`: the flow goes back, then the slots get their new values, then those with checks are checked.
pub(super) fn run(turn: &mut Turn<'_>) {
    let Some(Frame {
        kind:
            FrameKind::Pattern { context: PatternFrame::Correction { corrected_slots, reset_flow_id, reset_step_id, .. } },
        ..
    }) = turn.stack.last()
    else {
        return turn.note("`action_correct_flow_slot` has nothing to correct here");
    };
    let corrected = corrected_slots.clone();
    let mut names = open_checks(turn);
    if let (Some(flow), Some(step)) = (reset_flow_id.clone(), reset_step_id.clone()) {
        go_back(turn, &flow, step);
    }
    for (name, value) in corrected {
        let name = SlotName::from(name);
        turn.set_slot(&name, value, FilledBy::Llm);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    // What was emptied is asked for where the flow asks for it.
    names.retain(|name| !turn.slot(name.as_str()).is_null());
    // Below the correction: it says what it changed first, then what does not hold is asked for again.
    let correction = turn.stack.pop();
    commands::push_validations(turn, &names);
    turn.stack.extend(correction);
}

/// The slots that are being checked: going back takes the checks down, and what they have not let through stays unchecked else.
fn open_checks(turn: &Turn<'_>) -> Vec<SlotName> {
    let checked = turn.stack.iter().filter_map(|frame| match &frame.kind {
        FrameKind::Pattern { context: PatternFrame::ValidateSlot { validate, .. } } => Some(validate.clone()),
        _ => None,
    });
    checked.collect()
}

/// Puts the flow before that step. What it has on the stack above is taken down: the questions, and the flows it called, which
/// begin anew if the flow comes there again. Flows that the user turned to meanwhile stay, and so does the correction itself.
fn go_back(turn: &mut Turn<'_>, flow: &FlowId, step: StepId) {
    let Some(correction) = turn.stack.pop() else { return };
    let walks = |frame: &Frame| {
        frame.flow_id == *flow && matches!(frame.kind, FrameKind::Flow { .. }) && frame.at != Position::End
    };
    if let Some(at) = turn.stack.iter().rposition(walks) {
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
                _ => turn.take_down(frame, "the user corrected an earlier answer"),
            }
        }
        let reach = turn.project.flow(flow.as_str()).and_then(|flow| flow.step(step.as_str())).map(|step| step.reach);
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
    } else {
        turn.note(format!("`{flow}` is not under way any more, so it does not go back"));
    }
    turn.stack.push(correction);
}

/// The facts of a correction's frame.
pub(in crate::dialogue) fn new_values(corrected: &[(SlotName, Json)]) -> (serde_json::Map<String, Json>, Vec<Json>) {
    let map = corrected.iter().map(|(name, value)| (name.to_string(), value.clone())).collect();
    (map, corrected.iter().map(|(_, value)| value.clone()).collect())
}
