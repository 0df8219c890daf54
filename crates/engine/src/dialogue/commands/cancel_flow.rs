//! `cancel flow`: stops the flow under way, with the flows that called it.

use super::{CommandContext, CommandDecision};
use crate::{
    conversation::{Command, PatternFrame},
    dialogue::{interrupt, patterns, turn::Turn},
};

/// Once, and only while a flow is under way.
pub(super) fn clean(ctx: &CommandContext, kept: &[Command]) -> CommandDecision {
    if kept.contains(&Command::CancelFlow) {
        CommandDecision::Drop("a flow is cancelled once")
    } else if ctx.base.is_none() {
        CommandDecision::Drop("no flow is under way")
    } else {
        CommandDecision::Keep
    }
}

/// Names the frames that end: the chain that was on top when the user wrote. What this message started stays.
pub(super) fn run(turn: &mut Turn<'_>, ctx: &CommandContext) {
    let Some(base) = ctx.base_in(turn) else { return };
    let frames = turn.stack.get(interrupt::chain(&turn.stack, base)).unwrap_or_default();
    // What went wrong is still told.
    let canceled = frames.iter().filter(|frame| !interrupt::is_untold(frame));
    let canceled_frames = canceled.map(|frame| frame.frame_id.clone()).collect();
    let flow = frames.first().map(|frame| frame.flow_id.clone());
    let canceled_name = flow.map(|flow| turn.flow_name(&flow)).unwrap_or_default();
    turn.push_pattern(patterns::CANCEL_FLOW, PatternFrame::CancelFlow { canceled_name, canceled_frames });
}
