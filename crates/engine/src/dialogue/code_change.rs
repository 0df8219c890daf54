//! Flows that changed while a conversation was in them: a new version of the project was deployed.
//!
//! A frame remembers what its flow could still do from where it stands. While that is the same, whatever else changed, the
//! conversation goes on; a step that only got another id is found again. Otherwise the flow ends, the user is told, and
//! what was answered so far is kept for the next beginning.

use std::sync::Arc;

use super::{
    interrupt, patterns,
    turn::{Turn, place_of, step_or_end},
};
use crate::{
    conversation::{Event, EventKind, Frame, FrameKind, PatternFrame, Position},
    ids::{FlowId, StepId},
    project::Flow,
};

/// Puts frames whose steps have other ids now to where the same steps stand.
pub(super) fn settle(turn: &mut Turn<'_>) {
    for at in 0..turn.stack.len() {
        let Some((old, new)) = turn.stack.get(at).and_then(|frame| moved(turn, frame)) else { continue };
        turn.note(format!("step `{old}` is called `{new}` now"));
        let walks = Frame::is_flow;
        for (above, frame) in turn.stack.iter_mut().skip(at).enumerate() {
            if above > 0 && walks(frame) {
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
    frame.trail.iter_mut().filter(|step| *step == old).for_each(|step| *step = new.clone());
}

/// The old and the new id of the step where a frame stands, if they differ.
fn moved(turn: &Turn<'_>, frame: &Frame) -> Option<(StepId, StepId)> {
    let (flow, step) = suspect(turn, frame)?;
    let flow = flow?;
    if frame.reach == 0 || flow.step(step.as_str()).is_some_and(|step| step.continuation_hash == frame.reach) {
        return None;
    }
    let same = flow.steps.iter().find(|step| step.continuation_hash == frame.reach)?;
    Some((step.clone(), same.id.clone()))
}

/// A frame in the middle of a flow that is not the one that was started; without the flow when that is gone.
fn suspect<'a, 'f>(turn: &Turn<'a>, frame: &'f Frame) -> Option<(Option<&'a Flow>, &'f StepId)> {
    let FrameKind::Flow { .. } = frame.kind else { return None };
    let (Position::At(step) | Position::Before(step)) = &frame.at else { return None };
    let project = turn.project;
    let flow = project.flow(frame.flow_id.as_str()).map(|flow| &**flow);
    let known = turn.conversation().flow_hashes.get(&frame.flow_id);
    match flow {
        Some(flow) if known.is_none_or(|hash| *hash == flow.fingerprint) => None,
        flow => Some((flow, step)),
    }
}

fn is_changed(turn: &Turn<'_>, frame: &Frame) -> bool {
    if let (FrameKind::Flow { .. }, None) = (&frame.kind, turn.project.flow(frame.flow_id.as_str())) {
        return frame.at != Position::End;
    }
    match suspect(turn, frame) {
        None => false,
        Some((None, _)) => true,
        // A frame of an older program does not know what it could do.
        Some((Some(flow), step)) => flow.step(step.as_str()).is_none_or(|step| step.continuation_hash != frame.reach),
    }
}

/// The topmost flow under way that a change of the project concerns. Built-in patterns do not count: they may differ from
/// release to release and are made to go on.
pub(super) fn changed(turn: &Turn<'_>) -> Option<Arc<str>> {
    let frame = turn.stack.iter().rev().find(|frame| is_changed(turn, frame))?;
    Some(Arc::from(frame.flow_id.as_str()))
}

/// `action_clean_stack`: what a change concerns goes, with its slots kept; the rest lives on. When nothing changed, somebody
/// wants all to end: then every frame does, and slots are reset as they do.
pub(super) fn clean_stack(turn: &mut Turn<'_>) {
    if changed(turn).is_none() {
        turn.let_end(|_| true);
        return;
    }
    let Some(pattern) = turn.stack.pop() else { return };
    let top = interrupt::top_base(&turn.stack);
    let (mut topmost_went, mut last) = (false, None);
    while let Some(at) = turn.stack.iter().rposition(|frame| is_changed(turn, frame)) {
        let below = turn.stack.get(..=at).unwrap_or_default();
        let base = interrupt::top_base(below).unwrap_or(at);
        topmost_went |= Some(base) == top;
        let range = interrupt::chain(&turn.stack, base);
        let gone: Vec<Frame> = turn.stack.drain(range).collect();
        gone.iter().rev().for_each(|frame| leave(turn, frame));
        last = gone.into_iter().next().map(|frame| frame.flow_id);
    }
    let project = turn.project;
    let offers = |flow: &FlowId| project.flow(flow.as_str()).is_none_or(|flow| flow.run_pattern_completed);
    match last.filter(|_| turn.stack.is_empty()) {
        // As at any other end of the last flow.
        Some(flow) if offers(&flow) => {
            let previous_flow_name = turn.flow_name(&flow);
            turn.push_pattern(patterns::COMPLETED, PatternFrame::Completed { previous_flow_name });
        }
        None if topmost_went => interrupt::offer_to_continue(turn),
        _ => {}
    }
    turn.stack.push(pattern);
}

/// A frame goes without a reset of what its flow collected.
fn leave(turn: &mut Turn<'_>, frame: &Frame) {
    match &frame.kind {
        FrameKind::Flow { .. } if frame.at != Position::Start => {
            let kind = EventKind::FlowCancelled { flow_id: frame.flow_id.clone(), step_id: step_or_end(frame) };
            turn.record(Event { at: turn.at, kind, place: place_of(frame) });
        }
        FrameKind::Flow { .. } => {}
        _ => turn.take_down(frame, "the flow changed"),
    }
}
