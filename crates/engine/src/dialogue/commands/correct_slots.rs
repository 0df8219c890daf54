//! Corrections, made by cleaning out of `set slot`: the flow goes back to the earliest step concerned.

use serde_json::Value as Json;

use super::CommandContext;
use crate::{
    conversation::{Command, FilledBy, Frame, PatternFrame},
    dialogue::{
        ending::each_step,
        interrupt, patterns,
        slots::same,
        turn::Turn,
        walked::{self, Changed},
    },
    ids::{SlotName, StepId},
    project::StepKind,
};

/// Puts the correction on top; one that is already on the flow is over. It concerns the flow that was under way when the user
/// wrote, also when the same message has put another one above it.
pub(super) fn run(turn: &mut Turn<'_>, ctx: &CommandContext, mut corrected: Vec<(SlotName, Json)>, by: FilledBy) {
    corrected.retain(|(name, value)| !same(value, turn.slot(name.as_str())));
    let Some(base) = ctx.base_in(turn).filter(|_| !corrected.is_empty()) else {
        let command = Command::CorrectSlots { corrected_slots: corrected, extractor: by };
        return turn.dropped(command, "there is nothing to correct");
    };
    leave_correction(turn, base);
    let names: Vec<SlotName> = corrected.iter().map(|(name, _)| name.clone()).collect();
    // The step that is asked now counts too if the message answers it: going back past it would leave the answer unchecked.
    let answered = ctx.asked.as_ref().filter(|_| ctx.answered);
    let emptied: Vec<SlotName> =
        corrected.iter().filter(|(_, value)| value.is_null()).map(|(name, _)| name.clone()).collect();
    let changed = Changed { slots: &names, emptied: &emptied, elsewhere: false };
    let first = walked::first_concerned(turn, base, changed, answered);
    let flow_of = |(at, step): (usize, StepId)| Some((turn.stack.get(at)?.flow_id.clone(), step));
    let (reset_flow_id, reset_step_id) = first.and_then(flow_of).unzip();
    let (corrected_slots, new_slot_values) = patterns::new_values(&corrected);
    let context = PatternFrame::Correction {
        is_reset_only: is_reset_only(turn, &names),
        corrected_slots,
        reset_flow_id,
        reset_step_id,
        new_slot_values,
        filled_by: Some(by),
    };
    turn.push_pattern(patterns::CORRECTION, context);
}

/// Whether every question for these slots is asked anew anyway.
fn is_reset_only(turn: &Turn<'_>, names: &[SlotName]) -> bool {
    let project = turn.project;
    let (mut any, mut all) = (false, true);
    for flow in turn.stack.iter().filter_map(|frame| project.flow(frame.flow_id.as_str())) {
        each_step(project, flow, &mut Vec::new(), &mut |kind| {
            if let StepKind::Collect(collect) = kind
                && names.contains(&collect.slot)
            {
                any = true;
                all &= collect.ask_before_filling;
            }
        });
    }
    any && all
}

fn leave_correction(turn: &mut Turn<'_>, base: usize) {
    let is_correction = |frame: &Frame| matches!(frame.pattern(), Some(PatternFrame::Correction { .. }));
    let chain = interrupt::chain(&turn.stack, base);
    let frames = turn.stack.get(chain.clone()).unwrap_or_default();
    let Some(at) = frames.iter().position(is_correction) else { return };
    let gone: Vec<Frame> = turn.stack.drain(chain.start + at..chain.end).collect();
    for frame in gone.iter().rev() {
        turn.take_down(frame, "a newer correction took its place");
    }
}
