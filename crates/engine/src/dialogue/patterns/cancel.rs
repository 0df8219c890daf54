//! `action_cancel_flow`: ends the frames of the cancelled flow.

use crate::{
    conversation::{EventKind, Frame, PatternFrame, Position},
    dialogue::{
        advance_context::{AdvanceContext, step_or_end},
        chains, writes,
    },
};

/// Ends the frames that the pattern's context lists. Directly below the pattern they complete as at any other end.
/// Below a flow that the same message started they are removed at once, so that their slots do not outlive them. A flow
/// that has not started is removed too, but what it interrupted is still offered.
pub(in crate::dialogue) fn run(turn: &mut AdvanceContext<'_>) {
    let Some(PatternFrame::CancelFlow { canceled_frames, .. }) = turn.stack.top().and_then(Frame::pattern) else {
        return turn.add_note("`action_cancel_flow` has nothing to cancel here");
    };
    let canceled = canceled_frames.clone();
    let ending = turn.stack.iter().filter(|frame| canceled.contains(&frame.frame_id));
    let changed = writes::of_all(ending);
    let below = turn.stack.len().checked_sub(2).and_then(|at| turn.stack.get(at));
    let is_below = below.is_some_and(|frame| canceled.contains(&frame.frame_id));
    let base = turn.stack.iter().find(|frame| canceled.contains(&frame.frame_id));
    let not_started = is_below && base.is_some_and(|frame| frame.at == Position::Start);
    let is_below = is_below && !not_started;
    let is_removed = |frame: &Frame| canceled.contains(&frame.frame_id) && (!is_below || frame.is_agent());
    let (gone, kept): (Vec<Frame>, Vec<Frame>) =
        std::mem::take(&mut turn.stack).into_frames().into_iter().partition(is_removed);
    turn.stack = kept.into();
    for frame in gone.iter().rev() {
        turn.close_frame(frame, "the user cancelled the flow");
    }
    if not_started && let Some(pattern) = turn.stack.pop() {
        chains::offer_to_continue(turn);
        turn.stack.push(pattern);
    }
    let mut cancelled = Vec::new();
    for frame in turn.stack.iter().filter(|frame| canceled.contains(&frame.frame_id)) {
        if frame.is_flow() && !matches!(frame.at, Position::Start | Position::End) {
            cancelled.push((frame.flow_id.clone(), step_or_end(frame)));
        }
    }
    turn.end_frames(|frame| canceled.contains(&frame.frame_id));
    for (flow_id, step_id) in cancelled.into_iter().rev() {
        turn.emit_in_top_frame(EventKind::FlowCancelled { flow_id, step_id });
    }
    writes::tell_cancelled(turn, &changed);
}
