//! The effect that a turn has asked for and that has not come back, when the next turn begins.
//!
//! [`Turn::pending`](super::turn::Turn) says what an answer is an answer to. It is set where an effect is asked for, taken by the
//! handler of its answer, and recorded with the stack.

use super::{
    actions, agent_frame, code_change, collect, search, tool_call,
    turn::{Turn, step_of},
};
use crate::{
    conversation::{EventKind, PendingEffect, Position},
    project::{Call, Step, StepKind},
};

/// A turn begins. If the one before was stopped at work, nothing that it had asked for comes back any more; where a new version
/// of the project calls a step by another name is looked up first.
pub(super) fn abandon(turn: &mut Turn<'_>) {
    code_change::settle(turn);
    match turn.pending.take().or_else(|| of_older_release(turn)) {
        Some(PendingEffect::Agent { flow_id, agent_id, .. }) => {
            agent_frame::park_running_agent(turn, flow_id, agent_id)
        }
        Some(PendingEffect::Tool { .. }) => tool_call::abandon_call(turn),
        Some(PendingEffect::Action { name, asked_by }) => actions::abandon_action(turn, &name, asked_by),
        Some(PendingEffect::Search) | None => {}
    }
    if turn.conversation().followup.is_some() {
        turn.emit(EventKind::Followup { name: None });
    }
    agent_frame::wait_again(turn);
    search::abandon_search(turn);
    collect::look_again(turn);
}

/// A conversation that an older release stopped at work does not say what was asked for: the frame on top tells.
fn of_older_release(turn: &Turn<'_>) -> Option<PendingEffect> {
    let top = turn.stack.top().filter(|top| top.is_flow())?;
    let (flow_id, step_id) = (top.flow_id.clone(), step_of(top)?.clone());
    match called_by_top(turn)? {
        Call::Agent { agent, .. } => Some(PendingEffect::Agent { flow_id, step_id, agent_id: agent.clone() }),
        Call::Tool { .. } => Some(PendingEffect::Tool { flow_id, step_id }),
        Call::Flow(_) => None,
    }
}

/// The step that the frame on top stands at, where the project still has it.
pub(super) fn step_of_top<'a>(turn: &Turn<'a>) -> Option<&'a Step> {
    let project = turn.project;
    let top = turn.stack.top()?;
    let Position::At(step) = &top.at else { return None };
    project.flow(top.flow_id.as_str())?.step(step.as_str())
}

/// The call of that step.
pub(super) fn called_by_top<'a>(turn: &Turn<'a>) -> Option<&'a Call> {
    match &step_of_top(turn)?.kind {
        StepKind::Call(call) => Some(call),
        _ => None,
    }
}
