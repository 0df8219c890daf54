//! Corrections, made by cleaning out of `set slot`: the flow goes back to the earliest question concerned.

use serde_json::Value as Json;

use crate::{
    conversation::{Command, FrameKind, PatternFrame},
    dialogue::{ending::each_step, interrupt, patterns, slots::same, turn::Turn},
    ids::SlotName,
    project::StepKind,
};

/// Puts the correction on top; one that is already there is over.
pub(super) fn run(turn: &mut Turn<'_>, mut corrected: Vec<(SlotName, Json)>) {
    corrected.retain(|(name, value)| !same(value, turn.slot(name.as_str())));
    if corrected.is_empty() || interrupt::top_base(&turn.stack).is_none() {
        let command = Command::CorrectSlots { corrected_slots: corrected };
        return turn.dropped(command, "there is nothing to correct");
    }
    leave_correction(turn);
    let names: Vec<SlotName> = corrected.iter().map(|(name, _)| name.clone()).collect();
    let (reset_flow_id, reset_step_id) = patterns::reset_point(turn, &names).unzip();
    let (corrected_slots, new_slot_values) = patterns::new_values(&corrected);
    let context = PatternFrame::Correction {
        is_reset_only: is_reset_only(turn, &names),
        corrected_slots,
        reset_flow_id,
        reset_step_id,
        new_slot_values,
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

fn leave_correction(turn: &mut Turn<'_>) {
    let is_correction = |frame: &crate::conversation::Frame| {
        matches!(frame.kind, FrameKind::Pattern { context: PatternFrame::Correction { .. } })
    };
    let bottom = interrupt::top_base(&turn.stack).map_or(0, |base| base + 1);
    let Some(at) = turn.stack.iter().skip(bottom).position(is_correction) else { return };
    while turn.stack.len() > bottom + at {
        let Some(frame) = turn.stack.pop() else { return };
        turn.take_down(&frame, "a newer correction took its place");
    }
}
