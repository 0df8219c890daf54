//! `cancel flow`: stops the flow under way, with the flows that called it.

use super::Verdict;
use crate::{
    conversation::{Command, PatternFrame},
    dialogue::{clean::Scene, interrupt, patterns, turn::Turn},
};

/// Once, and only while a flow is under way.
pub(super) fn clean(scene: &Scene, kept: &[Command]) -> Verdict {
    if kept.contains(&Command::CancelFlow) {
        Verdict::Drop("a flow is cancelled once")
    } else if scene.base.is_none() {
        Verdict::Drop("no flow is under way")
    } else {
        Verdict::Keep
    }
}

/// Names the frames that end: the chain that was on top when the user wrote. What this message started stays.
pub(super) fn run(turn: &mut Turn<'_>, scene: &Scene) {
    let Some(base) = scene.base_in(turn) else { return };
    let frames = turn.stack.get(interrupt::chain(&turn.stack, base)).unwrap_or_default();
    // What went wrong is still told.
    let canceled = frames.iter().filter(|frame| !interrupt::is_untold(frame));
    let canceled_frames = canceled.map(|frame| frame.frame_id.clone()).collect();
    let flow = frames.first().map(|frame| frame.flow_id.clone());
    let canceled_name = flow.map(|flow| turn.flow_name(&flow)).unwrap_or_default();
    turn.push_pattern(patterns::CANCEL_FLOW, PatternFrame::CancelFlow { canceled_name, canceled_frames });
}
