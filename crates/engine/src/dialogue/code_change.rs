//! Flows that a new version of the project changed while a conversation was in them.
//!
//! A frame stores a hash of what can still happen in its flow. While the hash is the same, the conversation continues,
//! whatever else changed; a step that only has a new id is found again. Otherwise the flow ends, the user is notified,
//! and the collected slots are kept for the next start.

use std::sync::Arc;

use super::{
    advance_context::{AdvanceContext, location_of, step_or_end},
    chains, patterns, writes,
};
use crate::{
    conversation::{Event, EventKind, Frame, FrameKind, PatternFrame, Position, Writes},
    ids::{FlowId, StepId},
    project::Flow,
};

/// Moves frames whose steps have new ids to the same steps.
pub(super) fn relocate_frames(turn: &mut AdvanceContext<'_>) {
    for at in 0..turn.stack.len() {
        let Some((old, new)) = turn.stack.get(at).and_then(|frame| renamed_step(turn, frame)) else { continue };
        turn.add_note(format!("step `{old}` has the new id `{new}`"));
        for (above, frame) in turn.stack.iter_mut().skip(at).enumerate() {
            if above > 0 && frame.is_flow() {
                break;
            }
            rename(frame, &old, &new);
        }
    }
}

fn rename(frame: &mut Frame, old: &StepId, new: &StepId) {
    match (&mut frame.at, &mut frame.kind) {
        (_, FrameKind::Pattern { context: PatternFrame::CollectInformation { step_id, .. } }) if step_id == old => {
            *step_id = new.clone();
        }
        (_, FrameKind::Pattern { .. }) => {}
        (Position::At(step) | Position::Before(step), _) if step == old => *step = new.clone(),
        _ => {}
    }
    frame.visited_steps.iter_mut().filter(|step| *step == old).for_each(|step| *step = new.clone());
}

/// The old and the new id of the frame's step, if they differ.
fn renamed_step(turn: &AdvanceContext<'_>, frame: &Frame) -> Option<(StepId, StepId)> {
    let (flow, step) = step_in_changed_flow(turn, frame)?;
    let flow = flow?;
    if frame.continuation_hash == 0
        || flow.step(step.as_str()).is_some_and(|step| step.continuation_hash == frame.continuation_hash)
    {
        return None;
    }
    let same = flow.steps.iter().find(|step| step.continuation_hash == frame.continuation_hash)?;
    Some((step.clone(), same.id.clone()))
}

/// The step of a frame whose flow has changed since it started, with the flow; without the flow when that was removed.
fn step_in_changed_flow<'a, 'f>(turn: &AdvanceContext<'a>, frame: &'f Frame) -> Option<(Option<&'a Flow>, &'f StepId)> {
    let FrameKind::Flow { .. } = frame.kind else { return None };
    let (Position::At(step) | Position::Before(step)) = &frame.at else { return None };
    let project = turn.project;
    let flow = project.flow(frame.flow_id.as_str()).map(|flow| &**flow);
    let known = turn.conversation().flow_fingerprints.get(&frame.flow_id);
    match flow {
        Some(flow) if known.is_none_or(|hash| *hash == flow.fingerprint) => None,
        flow => Some((flow, step)),
    }
}

fn is_changed(turn: &AdvanceContext<'_>, frame: &Frame) -> bool {
    if let (FrameKind::Flow { .. }, None) = (&frame.kind, turn.project.flow(frame.flow_id.as_str())) {
        return frame.at != Position::End;
    }
    match step_in_changed_flow(turn, frame) {
        None => false,
        Some((None, _)) => true,
        // Frames of older releases have no hash.
        Some((Some(flow), step)) => {
            flow.step(step.as_str()).is_none_or(|step| step.continuation_hash != frame.continuation_hash)
        }
    }
}

/// The topmost active flow that a change of the project concerns. Built-in patterns do not count: they may change
/// between releases and are compatible.
pub(super) fn changed_flow(turn: &AdvanceContext<'_>) -> Option<Arc<str>> {
    let frame = turn.stack.iter().rev().find(|frame| is_changed(turn, frame))?;
    Some(Arc::from(frame.flow_id.as_str()))
}

/// `action_clean_stack`: closes the flows that a change concerns and keeps their slots; the others continue. When
/// nothing changed, every frame ends and the slots are reset.
pub(super) fn clean_stack(turn: &mut AdvanceContext<'_>) {
    if changed_flow(turn).is_none() {
        let changed = writes::of_all(turn.stack.iter());
        turn.end_frames(|_| true);
        return writes::tell_cancelled(turn, &changed);
    }
    let Some(pattern) = turn.stack.pop() else { return };
    let top = chains::top_base(&turn.stack);
    let (mut topmost_closed, mut last, mut changed) = (false, None, Writes::default());
    while let Some(at) = turn.stack.iter().rposition(|frame| is_changed(turn, frame)) {
        let below = turn.stack.get(..=at).unwrap_or_default();
        let base = chains::top_base(below).unwrap_or(at);
        topmost_closed |= Some(base) == top;
        let range = chains::chain(&turn.stack, base);
        let gone: Vec<Frame> = turn.stack.drain(range).collect();
        changed.merge(&writes::of_all(&gone));
        gone.iter().rev().for_each(|frame| close_without_reset(turn, frame));
        last = gone.into_iter().next().map(|frame| frame.flow_id);
    }
    let project = turn.project;
    let offers = |flow: &FlowId| project.flow(flow.as_str()).is_none_or(|flow| flow.run_pattern_completed);
    match last.filter(|_| turn.stack.is_empty()) {
        // The same as at any other end of the last flow.
        Some(flow) if offers(&flow) => {
            let previous_flow_name = turn.flow_name(&flow);
            turn.push_pattern(patterns::COMPLETED, PatternFrame::Completed { previous_flow_name });
        }
        None if topmost_closed => chains::offer_to_continue(turn),
        _ => {}
    }
    turn.stack.push(pattern);
    writes::tell_cancelled(turn, &changed);
}

/// Closes a frame without resetting the slots that its flow collected.
fn close_without_reset(turn: &mut AdvanceContext<'_>, frame: &Frame) {
    match &frame.kind {
        FrameKind::Flow { .. } if frame.at != Position::Start => {
            let kind = EventKind::FlowCancelled { flow_id: frame.flow_id.clone(), step_id: step_or_end(frame) };
            turn.record(Event { at: turn.at, kind, location: location_of(frame) });
        }
        FrameKind::Flow { .. } => {}
        _ => turn.close_frame(frame, "the flow changed"),
    }
}
