//! `action_cancel_flow`: the frames that the user gave up end.

use crate::{
    conversation::{EventKind, Frame, PatternFrame, Position},
    dialogue::{
        interrupt,
        turn::{Turn, step_or_end},
    },
};

/// Ends the frames that the pattern's frame names. Directly below the pattern they are walked to their end, as at any other
/// end; under a flow that the same message started they go at once, so that their slots do not outlive them. So does a flow
/// that has not begun: it has no end, but what it interrupted is offered all the same.
pub(in crate::dialogue) fn run(turn: &mut Turn<'_>) {
    let Some(PatternFrame::CancelFlow { canceled_frames, .. }) = turn.stack.top().and_then(Frame::pattern) else {
        return turn.note("`action_cancel_flow` has nothing to cancel here");
    };
    let canceled = canceled_frames.clone();
    let below = turn.stack.len().checked_sub(2).and_then(|at| turn.stack.get(at));
    let is_below = below.is_some_and(|frame| canceled.contains(&frame.frame_id));
    let base = turn.stack.iter().find(|frame| canceled.contains(&frame.frame_id));
    let unbegun = is_below && base.is_some_and(|frame| frame.at == Position::Start);
    let is_below = is_below && !unbegun;
    let goes = |frame: &Frame| canceled.contains(&frame.frame_id) && (!is_below || frame.is_agent());
    let (gone, kept): (Vec<Frame>, Vec<Frame>) =
        std::mem::take(&mut turn.stack).into_frames().into_iter().partition(goes);
    turn.stack = kept.into();
    for frame in gone.iter().rev() {
        turn.take_down(frame, "the user cancelled the flow");
    }
    if unbegun && let Some(pattern) = turn.stack.pop() {
        interrupt::offer_to_continue(turn);
        turn.stack.push(pattern);
    }
    let mut cancelled = Vec::new();
    for frame in turn.stack.iter().filter(|frame| canceled.contains(&frame.frame_id)) {
        if frame.is_flow() && !matches!(frame.at, Position::Start | Position::End) {
            cancelled.push((frame.flow_id.clone(), step_or_end(frame)));
        }
    }
    turn.let_end(|frame| canceled.contains(&frame.frame_id));
    for (flow_id, step_id) in cancelled.into_iter().rev() {
        turn.emit_here(EventKind::FlowCancelled { flow_id, step_id });
    }
}
