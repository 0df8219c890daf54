//! `action_cancel_flow`: the frames that the user gave up end.

use crate::{
    conversation::{EventKind, Frame, FrameKind, PatternFrame, Position},
    dialogue::turn::{Turn, step_or_end},
};

/// Ends the frames that the pattern's frame names; agents among them go at once.
pub(super) fn run(turn: &mut Turn<'_>) {
    let Some(Frame { kind: FrameKind::Pattern { context: PatternFrame::CancelFlow { canceled_frames, .. } }, .. }) =
        turn.stack.last()
    else {
        return turn.note("`action_cancel_flow` has nothing to cancel here");
    };
    let canceled = canceled_frames.clone();
    let (gone, kept): (Vec<Frame>, Vec<Frame>) = std::mem::take(&mut turn.stack)
        .into_iter()
        .partition(|frame| matches!(frame.kind, FrameKind::Agent(_)) && canceled.contains(&frame.frame_id));
    turn.stack = kept;
    for frame in &gone {
        turn.take_down(frame, "the user cancelled the flow");
    }
    let mut cancelled = Vec::new();
    for frame in turn.stack.iter_mut().filter(|frame| canceled.contains(&frame.frame_id)) {
        if matches!(frame.kind, FrameKind::Flow { .. }) && frame.at != Position::End {
            cancelled.push((frame.flow_id.clone(), step_or_end(frame)));
        }
        frame.at = Position::End;
    }
    for (flow_id, step_id) in cancelled.into_iter().rev() {
        turn.emit_here(EventKind::FlowCancelled { flow_id, step_id });
    }
}
