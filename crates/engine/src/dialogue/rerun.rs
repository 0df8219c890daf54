//! Actions and tool calls that need not run again after a correction.
//!
//! A correction goes back to an earlier step and walks from there. What ran on the way has been done: it is passed over,
//! and what it set stands, unless something it may read has changed. What an action may read:
//!
//! * a tool call: the slots of its `mapping.input`;
//! * a custom action: the slots that the domain lists as its `inputs`, else every slot that the flow and those it calls
//!   collect or set.
//!
//! So without `inputs` nearly every correction runs the actions behind it again: the corrected slot is one of the flow's.
//! `compat: {rerun_actions: true}` runs everything again. A failed action is not remembered and always runs again.

use serde_json::Value as Json;

use super::{
    ending::each_step,
    interrupt,
    turn::{Turn, step_of},
};
use crate::{
    conversation::{CompletedStep, Frame},
    ids::{FlowId, SlotName, StepId},
    limits,
    project::{Call, StepKind},
    stable_hash::StableHash,
};

/// Whether the step that the frame on top has come to need not run again.
pub(super) fn passes(turn: &mut Turn<'_>) -> bool {
    let Some((flow, step)) = here(turn) else { return false };
    let is_it = |ran: &CompletedStep| ran.passed && ran.flow == flow && ran.step == step;
    let Some(known) = turn.stack.last().and_then(|top| top.ran.iter().position(is_it)) else { return false };
    let inputs = inputs(turn, &flow, &step);
    let Some(ran) = turn.stack.last_mut().and_then(|top| top.ran.get_mut(known)) else { return false };
    // Once: a flow that comes here again by itself means it.
    ran.passed = false;
    if ran.inputs != inputs {
        return false;
    }
    turn.note(format!("step `{step}` of `{flow}` ran before the correction, and nothing it reads has changed"));
    true
}

/// Remembers that the step of the frame on top has run.
pub(super) fn remember(turn: &mut Turn<'_>) {
    let Some((flow, step)) = here(turn) else { return };
    let inputs = inputs(turn, &flow, &step);
    let Some(top) = turn.stack.last_mut() else { return };
    top.ran.retain(|ran| ran.flow != flow || ran.step != step);
    if top.ran.len() >= limits::RAN_STEPS {
        // One that is yet to be passed is worth more than this one.
        let Some(oldest) = top.ran.iter().position(|ran| !ran.passed) else { return };
        top.ran.remove(oldest);
    }
    let after = u32::try_from(top.trail.len()).unwrap_or(u32::MAX);
    top.ran.push(CompletedStep { flow, step, inputs, after, passed: false });
}

/// A flow has come by its own way to a step of its trail again, and only so many steps of it are left: what ran behind them runs
/// again.
pub(super) fn came_round(frame: &mut Frame) {
    let left = u32::try_from(frame.trail.len()).unwrap_or(u32::MAX);
    frame.ran.retain(|ran| ran.after <= left);
}

/// A flow went back to the step of its trail at `visited`; `above` was taken down. What ran since is passed once.
pub(super) fn went_back(frame: &mut Frame, visited: usize, above: &[Frame]) {
    let after = u32::try_from(frame.trail.len()).unwrap_or(u32::MAX);
    above.iter().for_each(|child| take_over(frame, child, after));
    let visited = u32::try_from(visited).unwrap_or(u32::MAX);
    for ran in &mut frame.ran {
        ran.passed |= ran.after > visited;
    }
}

/// A flow that is called gets what ran in it before the correction.
pub(super) fn hand_down(parent: Option<&mut Frame>, child: &mut Frame) {
    let Some(parent) = parent else { return };
    let own = parent.flow_id.clone();
    let (down, stays) = std::mem::take(&mut parent.ran).into_iter().partition(|ran| ran.passed && ran.flow != own);
    parent.ran = stays;
    child.ran = down;
}

/// A called flow ended: what ran in it is the caller's now.
pub(super) fn hand_up(parent: Option<&mut Frame>, child: &Frame) {
    let Some(parent) = parent else { return };
    let after = u32::try_from(parent.trail.len()).unwrap_or(u32::MAX);
    take_over(parent, child, after);
}

fn take_over(frame: &mut Frame, child: &Frame, after: u32) {
    if !child.is_flow() {
        return;
    }
    for ran in &child.ran {
        frame.ran.retain(|one| one.flow != ran.flow || one.step != ran.step);
        frame.ran.push(CompletedStep { after, ..ran.clone() });
    }
    let beyond = frame.ran.len().saturating_sub(limits::RAN_STEPS);
    frame.ran.drain(..beyond);
}

/// Where the frame on top stands, if that is a step of the author's flow and the project wants it known.
fn here(turn: &Turn<'_>) -> Option<(FlowId, StepId)> {
    let top = turn.stack.last().filter(|frame| frame.is_flow())?;
    let step = step_of(top).filter(|_| !turn.project.config.compat.rerun_actions)?;
    Some((top.flow_id.clone(), step.clone()))
}

/// A hash over what the step may read, as it is now.
fn inputs(turn: &Turn<'_>, flow: &FlowId, step: &StepId) -> u32 {
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
                None => of_chain(turn, &mut add),
            }
        }
        _ => of_chain(turn, &mut add),
    }
    hash.value()
}

/// Every slot that the flows under way on top collect or set.
fn of_chain(turn: &Turn<'_>, add: &mut dyn FnMut(&SlotName)) {
    let project = turn.project;
    let base = interrupt::top_base(&turn.stack).and_then(|at| turn.stack.get(at));
    let Some(flow) = base.and_then(|frame| project.flow(frame.flow_id.as_str())) else { return };
    each_step(project, flow, &mut Vec::new(), &mut |kind| match kind {
        StepKind::Collect(collect) => add(&collect.slot),
        StepKind::SetSlots(values) => values.iter().for_each(|(slot, _)| add(slot)),
        _ => {}
    });
}

/// A hash of one value.
pub(super) fn hash(value: &Json) -> u32 {
    StableHash::new().json(value).value()
}
