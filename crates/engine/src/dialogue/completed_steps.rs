//! Completed actions and tool calls that need not run again after a correction.
//!
//! A correction goes back to an earlier step and executes from there. Steps that ran already are skipped, and the
//! values they set are kept, unless one of their inputs has changed. The inputs are:
//!
//! * of a tool call: the slots of its `mapping.input`;
//! * of a custom action: the slots that the domain lists as its `inputs`, otherwise every slot that the flow and the flows it calls collect or set.
//!
//! Without `inputs`, nearly every correction runs the later actions again, because the corrected slot is one of the
//! flow's. `compat: {rerun_actions: true}` runs everything again. A failed action is not remembered and always runs
//! again.

use serde_json::Value as Json;

use super::{
    advance_context::{AdvanceContext, step_of},
    chains,
    frame_end::for_each_step_kind,
};
use crate::{
    conversation::{CompletedStep, Frame},
    ids::{FlowId, SlotName, StepId},
    limits,
    project::{Call, StepKind},
    stable_hash::StableHash,
};

/// Whether the step of the frame on top can be skipped; it is skipped at most once.
pub(super) fn can_skip(turn: &mut AdvanceContext<'_>) -> bool {
    let Some((flow, step)) = current_step(turn) else { return false };
    let is_it = |ran: &CompletedStep| ran.skippable && ran.flow == flow && ran.step == step;
    let Some(index) = turn.stack.last().and_then(|top| top.completed_steps.iter().position(is_it)) else {
        return false;
    };
    let inputs = input_hash(turn, &flow, &step);
    let Some(ran) = turn.stack.last_mut().and_then(|top| top.completed_steps.get_mut(index)) else { return false };
    // Only once: a flow that loops back runs the step again.
    ran.skippable = false;
    if ran.input_hash != inputs {
        return false;
    }
    turn.add_note(format!("step `{step}` of `{flow}` ran before the correction, and nothing it reads has changed"));
    true
}

/// Records that the step of the frame on top has run.
pub(super) fn record_completed(turn: &mut AdvanceContext<'_>) {
    let Some((flow, step)) = current_step(turn) else { return };
    let inputs = input_hash(turn, &flow, &step);
    let Some(top) = turn.stack.last_mut() else { return };
    top.completed_steps.retain(|ran| ran.flow != flow || ran.step != step);
    if top.completed_steps.len() >= limits::COMPLETED_STEPS {
        // A step that may still be skipped is more useful than this one.
        let Some(oldest) = top.completed_steps.iter().position(|ran| !ran.skippable) else { return };
        top.completed_steps.remove(oldest);
    }
    let visited_count = u32::try_from(top.visited_steps.len()).unwrap_or(u32::MAX);
    top.completed_steps.push(CompletedStep { flow, step, input_hash: inputs, visited_count, skippable: false });
}

/// A flow has looped back to a visited step: forgets the completed steps after it, so that they run again.
pub(super) fn forget_after_loop(frame: &mut Frame) {
    let left = u32::try_from(frame.visited_steps.len()).unwrap_or(u32::MAX);
    frame.completed_steps.retain(|ran| ran.visited_count <= left);
}

/// A flow went back to the visited step at index `visited`, and the frames `above` were closed: marks the completed
/// steps since then as skippable.
pub(super) fn mark_skippable(frame: &mut Frame, visited: usize, above: &[Frame]) {
    let visited_count = u32::try_from(frame.visited_steps.len()).unwrap_or(u32::MAX);
    above.iter().for_each(|child| merge_completed(frame, child, visited_count));
    let visited = u32::try_from(visited).unwrap_or(u32::MAX);
    for ran in &mut frame.completed_steps {
        ran.skippable |= ran.visited_count > visited;
    }
}

/// Moves the completed steps of a called flow from the caller's frame to its own.
pub(super) fn move_to_callee(parent: Option<&mut Frame>, child: &mut Frame) {
    let Some(parent) = parent else { return };
    let own = parent.flow_id.clone();
    let (down, stays) =
        std::mem::take(&mut parent.completed_steps).into_iter().partition(|ran| ran.skippable && ran.flow != own);
    parent.completed_steps = stays;
    child.completed_steps = down;
}

/// Moves the completed steps of a called flow that ended to the caller's frame.
pub(super) fn move_to_caller(parent: Option<&mut Frame>, child: &Frame) {
    let Some(parent) = parent else { return };
    let visited_count = u32::try_from(parent.visited_steps.len()).unwrap_or(u32::MAX);
    merge_completed(parent, child, visited_count);
}

fn merge_completed(frame: &mut Frame, child: &Frame, visited_count: u32) {
    if !child.is_flow() {
        return;
    }
    for ran in &child.completed_steps {
        frame.completed_steps.retain(|one| one.flow != ran.flow || one.step != ran.step);
        frame.completed_steps.push(CompletedStep { visited_count, ..ran.clone() });
    }
    let beyond = frame.completed_steps.len().saturating_sub(limits::COMPLETED_STEPS);
    frame.completed_steps.drain(..beyond);
}

/// The flow and step of the frame on top, if it is a project flow and completed steps are recorded.
fn current_step(turn: &AdvanceContext<'_>) -> Option<(FlowId, StepId)> {
    let top = turn.stack.last().filter(|frame| frame.is_flow())?;
    let step = step_of(top).filter(|_| !turn.project.config.compat.rerun_actions)?;
    Some((top.flow_id.clone(), step.clone()))
}

/// The hash of the current inputs of a step.
fn input_hash(turn: &AdvanceContext<'_>, flow: &FlowId, step: &StepId) -> u32 {
    let project = turn.project;
    let kind = project.flow(flow.as_str()).and_then(|flow| flow.step(step.as_str())).map(|step| &step.kind);
    let mut hash = StableHash::new();
    let mut add = |slot: &SlotName| hash = hash.json(turn.slot(slot.as_str()));
    match kind {
        Some(StepKind::Call(Call::Tool { input, .. })) => input.iter().for_each(|(_, slot)| add(slot)),
        Some(StepKind::Action(name)) => {
            let listed = super::actions::resolve(turn, name).ok();
            let listed = listed.and_then(|name| project.domain.actions.get(name.as_str())?.inputs.as_ref());
            match listed {
                Some(slots) => slots.iter().for_each(add),
                None => for_each_chain_slot(turn, &mut add),
            }
        }
        _ => for_each_chain_slot(turn, &mut add),
    }
    hash.value()
}

/// Visits every slot that the flows of the top chain collect or set.
fn for_each_chain_slot(turn: &AdvanceContext<'_>, add: &mut dyn FnMut(&SlotName)) {
    let project = turn.project;
    let base = chains::top_base(&turn.stack).and_then(|at| turn.stack.get(at));
    let Some(flow) = base.and_then(|frame| project.flow(frame.flow_id.as_str())) else { return };
    for_each_step_kind(project, flow, &mut Vec::new(), &mut |kind| match kind {
        StepKind::Collect(collect) => add(&collect.slot),
        StepKind::SetSlots(values) => values.iter().for_each(|(slot, _)| add(slot)),
        _ => {}
    });
}

/// The hash of one value.
pub(super) fn value_hash(value: &Json) -> u32 {
    StableHash::new().json(value).value()
}
