//! Corrections, which command cleanup creates from `set slot`: the flow goes back to the earliest affected step.

use serde_json::Value as Json;

use super::CommandContext;
use crate::{
    conversation::{Command, FilledBy, Frame, PatternFrame},
    dialogue::{
        advance_context::AdvanceContext,
        chains,
        frame_end::for_each_step_kind,
        patterns,
        slot_dependencies::{self, ChangedSlots},
        slots::same_value,
    },
    ids::{FlowId, SlotName, StepId},
    project::StepKind,
};

/// Pushes the correction pattern and closes an open one. It concerns the flow that was active when the user wrote, even
/// if the same message started another one above it.
pub(super) fn run(
    turn: &mut AdvanceContext<'_>,
    ctx: &CommandContext,
    mut corrected: Vec<(SlotName, Json)>,
    by: FilledBy,
) {
    corrected.retain(|(name, value)| !same_value(value, turn.slot(name.as_str())));
    let Some(base) = ctx.base_in(turn).filter(|_| !corrected.is_empty()) else {
        let command = Command::CorrectSlots { corrected_slots: corrected, extractor: by };
        return turn.add_dropped(command, "there is nothing to correct");
    };
    close_open_correction(turn, base);
    let names: Vec<SlotName> = corrected.iter().map(|(name, _)| name.clone()).collect();
    // If the message answers the open question, its collect step counts too: going back past it would leave the answer
    // unchecked.
    let answered = ctx.asked_slot.as_ref().filter(|_| ctx.answered);
    let emptied: Vec<SlotName> =
        corrected.iter().filter(|(_, value)| value.is_null()).map(|(name, _)| name.clone()).collect();
    let changed = ChangedSlots { slots: &names, emptied: &emptied, elsewhere: false };
    let first = slot_dependencies::first_affected_step(turn, base, changed, answered);
    let flow_of = |(at, step): (usize, StepId)| Some((turn.stack.get(at)?.flow_id.clone(), step));
    let (reset_flow_id, reset_step_id): (Option<FlowId>, Option<StepId>) = first.and_then(flow_of).unzip();
    if let (Some(flow), Some(step)) = (&reset_flow_id, &reset_step_id) {
        let slots = names.iter().map(SlotName::as_str).collect::<Vec<_>>().join(", ");
        turn.add_note(format!("correction of {slots}: `{flow}` goes back to step `{step}`"));
    }
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

/// Whether every collect step for these slots always asks again.
fn is_reset_only(turn: &AdvanceContext<'_>, names: &[SlotName]) -> bool {
    let project = turn.project;
    let (mut any, mut all) = (false, true);
    for flow in turn.stack.iter().filter_map(|frame| project.flow(frame.flow_id.as_str())) {
        for_each_step_kind(project, flow, &mut Vec::new(), &mut |kind| {
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

fn close_open_correction(turn: &mut AdvanceContext<'_>, base: usize) {
    let is_correction = |frame: &Frame| matches!(frame.pattern(), Some(PatternFrame::Correction { .. }));
    let chain = chains::chain(&turn.stack, base);
    let frames = turn.stack.get(chain.clone()).unwrap_or_default();
    let Some(at) = frames.iter().position(is_correction) else { return };
    let gone: Vec<Frame> = turn.stack.drain(chain.start + at..chain.end).collect();
    for frame in gone.iter().rev() {
        turn.close_frame(frame, "a newer correction replaces it");
    }
}
