//! Late confirmations: a yes counts in the turn in which it is given, for the values that its question showed.
//!
//! If the flow is interrupted after the yes and before the step behind the question has run, the slot is emptied. As
//! after any change of a slot that the flow has used, the flow then returns to the question when it goes on
//! ([`slot_dependencies`](super::slot_dependencies)). The step behind a question is the first one after it that may
//! change something outside the conversation: a tool that is not declared as `read`, a custom action that is not, or an
//! agent. An answer that leads to no such step is kept.

use serde_json::Value as Json;

use super::{
    advance_context::AdvanceContext,
    chains,
    collect::open_questions,
    frame_end::for_each_step,
    slot_dependencies::{is_active_flow, is_confirmation, snapshot_used_slots},
};
use crate::{
    conversation::{FilledBy, Position},
    ids::{SlotName, StepId},
    project::{ActionReference, Call, Flow, NextStep, Project, Step, StepKind, Target},
};

/// The chain at `base` is interrupted: empties the slots of its confirmations behind which no step has run yet.
pub(super) fn empty_unused(turn: &mut AdvanceContext<'_>, base: usize) {
    let unused = unused(turn, base);
    if unused.is_empty() {
        return;
    }
    // The flow goes back when a slot differs from its value at the interruption.
    snapshot_used_slots(turn, base);
    for slot in unused {
        turn.add_note(format!(
            "the flow is interrupted before the step that `{slot}` confirms: the slot is emptied, and the question is asked again"
        ));
        turn.set_slot(&slot, Json::Null, FilledBy::Flow);
    }
}

/// A turn starts: an open confirmation that already has an answer got it in an earlier turn, which ended before the
/// flow went on, for example because a pattern asked something. While the conversation is paused, all of the flow's
/// confirmations become late.
pub(super) fn on_turn_start(turn: &mut AdvanceContext<'_>) {
    let late = |(at, collect): (usize, &crate::project::Collect)| {
        let answered = is_confirmation(turn.project, collect) && !turn.slot(collect.slot.as_str()).is_null();
        answered.then(|| chains::top_base(turn.stack.get(..=at)?)).flatten()
    };
    let bases: Vec<usize> = open_questions(turn).filter_map(late).collect();
    for base in bases {
        empty_unused(turn, base);
    }
    on_pause(turn);
}

/// If the conversation is paused, the active flow is interrupted.
pub(super) fn on_pause(turn: &mut AdvanceContext<'_>) {
    if turn.conversation().paused
        && let Some(base) = chains::top_base(&turn.stack)
    {
        empty_unused(turn, base);
    }
}

/// The filled slots of the confirmations since which no step that may write has run, if the flow can still reach one.
fn unused(turn: &AdvanceContext<'_>, base: usize) -> Vec<SlotName> {
    let project = turn.project;
    let chain = chains::chain(&turn.stack, base);
    let frames = || {
        let frames = turn.stack.get(chain.clone()).unwrap_or_default().iter().filter(|frame| is_active_flow(frame));
        frames.filter_map(|frame| Some((frame, &**project.flow(frame.flow_id.as_str())?)))
    };
    let mut found: Vec<SlotName> = Vec::new();
    for (frame, flow) in frames() {
        for step in frame.visited_steps.iter().filter_map(|id| flow.step(id.as_str())) {
            // A called flow that has not ended has a frame of its own.
            let is_inside =
                matches!(step.kind, StepKind::Call(Call::Flow(_))) && frame.at == Position::At(step.id.clone());
            let will_run = frame.at == Position::Before(step.id.clone());
            if is_inside || will_run {
                continue;
            }
            if may_write(project, step) {
                found.clear();
            } else {
                for_each_confirmed_slot(project, step, &mut |slot| {
                    if !found.contains(slot) {
                        found.push(slot.clone());
                    }
                });
            }
        }
    }
    found.retain(|slot| !turn.slot(slot.as_str()).is_null());
    let can_write = !found.is_empty() && frames().any(|(frame, flow)| can_write(turn, flow, &frame.at, &found));
    if can_write { found } else { Vec::new() }
}

/// Visits the slot of a confirmation, and those of the confirmations of a called flow.
fn for_each_confirmed_slot(project: &Project, step: &Step, visit: &mut dyn FnMut(&SlotName)) {
    let mut visit_one = |step: &Step| match &step.kind {
        StepKind::Collect(collect) if is_confirmation(project, collect) => visit(&collect.slot),
        _ => {}
    };
    match &step.kind {
        StepKind::Call(Call::Flow(child)) => {
            if let Some(child) = project.flow(child.as_str()) {
                for_each_step(project, child, &mut Vec::new(), &mut visit_one);
            }
        }
        _ => visit_one(step),
    }
}

/// Whether a step may change something outside the conversation.
fn may_write(project: &Project, step: &Step) -> bool {
    let endpoints = &project.endpoints;
    match &step.kind {
        StepKind::Call(Call::Tool { server, tool, .. }) => endpoints.tool_effect(server, tool) != Some("read"),
        StepKind::Call(Call::Agent { .. }) | StepKind::Link(_) => true,
        StepKind::Call(Call::Flow(child)) => project.flow(child.as_str()).is_some_and(|child| {
            let mut writes = false;
            for_each_step(project, child, &mut Vec::new(), &mut |step| {
                writes |= !matches!(step.kind, StepKind::Call(Call::Flow(_))) && may_write(project, step);
            });
            writes
        }),
        StepKind::Action(ActionReference::Plain(name)) => {
            let class = endpoints.action_endpoint.as_ref().and_then(|def| def.effects.get(name.as_str()));
            project.lists_action(name.as_str())
                && project.response(name.as_str()).is_none()
                && class.is_none_or(|class| class != "read")
        }
        StepKind::Action(ActionReference::Template(_))
        | StepKind::Collect(_)
        | StepKind::SetSlots(_)
        | StepKind::Noop => false,
    }
}

/// Whether a step that may write can follow a position of a flow. Branches on the `answered` slots alone are decided by
/// their values, so that a no leads where it leads.
fn can_write(turn: &AdvanceContext<'_>, flow: &Flow, from: &Position, answered: &[SlotName]) -> bool {
    let mut seen: Vec<&StepId> = Vec::new();
    let mut open: Vec<&Step> = match from {
        Position::Start => flow.first().into_iter().collect(),
        Position::Before(id) => flow.step(id.as_str()).into_iter().collect(),
        Position::At(id) => {
            let Some(step) = flow.step(id.as_str()) else { return false };
            targets(turn, flow, step, answered)
        }
        Position::End => Vec::new(),
    };
    while let Some(step) = open.pop() {
        if may_write(turn.project, step) {
            return true;
        }
        if !seen.contains(&&step.id) {
            seen.push(&step.id);
            open.extend(targets(turn, flow, step, answered));
        }
    }
    false
}

/// The steps that can follow a step.
fn targets<'f>(turn: &AdvanceContext<'_>, flow: &'f Flow, step: &'f Step, answered: &[SlotName]) -> Vec<&'f Step> {
    let of = |target: &Target| match target {
        Target::Step(id) => flow.step(id.as_str()),
        Target::End => None,
    };
    if let NextStep::Branch { branches, otherwise } = &step.next {
        let mut slots = branches.iter().flat_map(|branch| branch.condition.slots());
        if slots.all(|name| answered.iter().any(|slot| *slot == *name)) {
            let scope = turn.scope();
            let taken = branches.iter().find(|branch| scope.eval(&branch.condition).holds);
            let target = taken.map(|branch| &branch.target).or(otherwise.as_ref().map(|otherwise| &otherwise.target));
            return target.and_then(of).into_iter().collect();
        }
    }
    step.exits().filter_map(of).collect()
}
