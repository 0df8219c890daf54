//! `cancel flow`: cancels the active flow, with the flows that called it.

use super::{CommandContext, CommandDecision};
use crate::{
    conversation::{Command, PatternFrame},
    dialogue::{advance_context::AdvanceContext, chains, patterns},
};

/// Kept once, and only while a flow is active.
pub(super) fn clean(ctx: &CommandContext, kept: &[Command]) -> CommandDecision {
    if kept.contains(&Command::CancelFlow) {
        CommandDecision::Drop("a flow is cancelled once")
    } else if ctx.base.is_none() {
        CommandDecision::Drop("no flow is active")
    } else {
        CommandDecision::Keep
    }
}

/// Pushes the pattern with the frames that end: the chain that was on top when the user wrote. Flows that this message
/// started stay.
pub(super) fn run(turn: &mut AdvanceContext<'_>, ctx: &CommandContext) {
    let Some(base) = ctx.base_in(turn) else { return };
    let frames = turn.stack.get(chains::chain(&turn.stack, base)).unwrap_or_default();
    // Pending error messages are still sent.
    let canceled = frames.iter().filter(|frame| !chains::is_pending_error(frame));
    let canceled_frames = canceled.map(|frame| frame.frame_id.clone()).collect();
    let flow = frames.first().map(|frame| frame.flow_id.clone());
    let canceled_name = flow.map(|flow| turn.flow_name(&flow)).unwrap_or_default();
    turn.push_pattern(patterns::CANCEL_FLOW, PatternFrame::CancelFlow { canceled_name, canceled_frames });
}
