//! The pending effect of a turn that was stopped, when the next turn starts.
//!
//! [`AdvanceContext::pending`](super::advance_context::AdvanceContext) identifies the request that an outcome belongs
//! to. It is set when an effect is requested, cleared by the handler of its outcome, and recorded with the stack.

use super::{
    Next, actions,
    advance_context::{AdvanceContext, step_of},
    agent_frame, chains, code_change, collect, late_confirmations, search, tool_call,
};
use crate::{
    conversation::{ActionOrigin, EventKind, PendingEffect, Position},
    project::{Call, Step, StepKind},
};

/// At the start of a turn: resolves the pending effect of a previous turn that was stopped. Steps that have new ids in
/// the project are relocated first.
pub(super) fn abandon_pending_effect(turn: &mut AdvanceContext<'_>) {
    code_change::relocate_frames(turn);
    match turn.pending.take().or_else(|| pending_effect_of_older_release(turn)) {
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
    agent_frame::wait_for_user_again(turn);
    search::abandon_search(turn);
    collect::recheck_answer(turn);
}

/// The turn was interrupted before its pending effect began. The step of the effect runs when the flow goes on. A yes counts in the
/// turn in which it is given, so the flow first returns to the question that led to the step, without a message of the user between.
pub(super) fn on_interruption(turn: &mut AdvanceContext<'_>) -> Next {
    turn.add_note("the turn was interrupted before its effect began");
    let has_asked = turn.stack.top().is_some_and(collect::is_asking);
    match turn.pending.take() {
        Some(PendingEffect::Action { asked_by: ActionOrigin::Step, .. } | PendingEffect::Tool { .. }) if !has_asked => {
            if let Some(top) = turn.stack.last_mut()
                && let Position::At(step) = &top.at
            {
                top.at = Position::Before(step.clone());
            }
        }
        Some(PendingEffect::Action { .. } | PendingEffect::Tool { .. }) | None => {}
        // They end when the next message arrives.
        pending @ Some(PendingEffect::Agent { .. } | PendingEffect::Search) => {
            turn.pending = pending;
            return Next::Listen;
        }
    }
    if let Some(base) = chains::top_base(&turn.stack) {
        let before = turn.conversation().events;
        late_confirmations::empty_unused(turn, base);
        if turn.conversation().events > before {
            return turn.run_until_effect();
        }
    }
    turn.listen()
}

/// The pending effect of a conversation that an older release stopped; it is determined from the frame on top, because
/// it was not recorded.
fn pending_effect_of_older_release(turn: &AdvanceContext<'_>) -> Option<PendingEffect> {
    let top = turn.stack.top().filter(|top| top.is_flow())?;
    let (flow_id, step_id) = (top.flow_id.clone(), step_of(top)?.clone());
    match called_by_top(turn)? {
        Call::Agent { agent, .. } => Some(PendingEffect::Agent { flow_id, step_id, agent_id: agent.clone() }),
        Call::Tool { .. } => Some(PendingEffect::Tool { flow_id, step_id }),
        Call::Flow(_) => None,
    }
}

/// The step of the frame on top, if the project still has it.
pub(super) fn step_of_top<'a>(turn: &AdvanceContext<'a>) -> Option<&'a Step> {
    let project = turn.project;
    let top = turn.stack.top()?;
    let Position::At(step) = &top.at else { return None };
    project.flow(top.flow_id.as_str())?.step(step.as_str())
}

/// The call of the step of the frame on top.
pub(super) fn called_by_top<'a>(turn: &AdvanceContext<'a>) -> Option<&'a Call> {
    match &step_of_top(turn)?.kind {
        StepKind::Call(call) => Some(call),
        _ => None,
    }
}
