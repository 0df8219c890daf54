//! How a turn leaves the stack.

use segue_engine::{
    conversation::{AgentState, FlowFrameType, Frame, FrameKind, PatternFrame, Position},
    dialogue::InputKind,
    limits,
};

use super::{Ledger, Turn, Verdict};

/// The frames of the topmost flow that was started or linked, with all that lies on it.
pub(super) fn top_chain(frames: &[Frame]) -> &[Frame] {
    let base = frames.iter().rposition(is_base).unwrap_or(0);
    &frames[base..]
}

/// Whether a flow was started or linked, not called.
pub(super) fn is_base(frame: &Frame) -> bool {
    matches!(frame.kind, FrameKind::Flow { frame_type } if frame_type != FlowFrameType::Call)
}

pub(super) fn shown(frames: &[Frame]) -> String {
    let one = |frame: &Frame| match &frame.kind {
        FrameKind::Agent(agent) => format!("agent {} {:?}", agent.agent_id, agent.state),
        _ => format!("{}@{:?}", frame.flow_id, frame.at),
    };
    frames.iter().map(one).collect::<Vec<_>>().join(" | ")
}

/// A user waits for the end of every turn: whatever flows do, the assistant listens again within the limits.
pub(super) fn the_turn_ends(_: &mut Ledger, turn: &Turn<'_>) -> Verdict {
    // What runs before the message is understood, the model, and as many effects as a turn may have.
    let most = limits::TURN_ACTS as usize + 16;
    if turn.taken.len() > most {
        return Err(format!("the turn took {} inputs and would go on with {:?}", turn.taken.len(), turn.driver.next));
    }
    // The breaker trips at most twice, and no step makes more than a few events.
    let most = 2 * 4 * limits::FLOW_STEPS;
    if let Some(taken) = turn.taken.iter().find(|taken| taken.events.len() > most) {
        return Err(format!("one input led to {} events", taken.events.len()));
    }
    let begins = |kind: &InputKind| matches!(kind, InputKind::Message(_) | InputKind::Trigger(_));
    let inputs = turn.taken.iter().filter(|taken| begins(&taken.input.kind)).count();
    if inputs == 1 { Ok(()) } else { Err(format!("{inputs} messages in one turn")) }
}

/// Frames are named by their ids in events and by the pattern that cancels: an id that comes twice would end the wrong one.
pub(super) fn frame_ids_are_never_used_twice(ledger: &mut Ledger, turn: &Turn<'_>) -> Verdict {
    let mut newest = ledger.frames;
    let stacks = turn.taken.iter().map(|taken| taken.before.as_slice()).chain([turn.rest()]);
    for (at, frames) in stacks.enumerate() {
        let known = |id: &Frame| {
            at > 0 && turn.taken.iter().take(at).any(|t| t.before.iter().any(|f| f.frame_id == id.frame_id))
        };
        for (place, frame) in frames.iter().enumerate() {
            if frames.iter().skip(place + 1).any(|other| other.frame_id == frame.frame_id) {
                return Err(format!("frame {} stands twice on the stack: {}", frame.frame_id, shown(frames)));
            }
            let number: u64 = frame.frame_id.as_str().parse().map_err(|_| format!("frame id {}", frame.frame_id))?;
            if at > 0 && !known(frame) && number <= ledger.frames {
                return Err(format!("frame id {number} was given before: {}", shown(frames)));
            }
            newest = newest.max(number);
        }
    }
    ledger.frames = newest.max(turn.driver.conversation.next_frame);
    Ok(())
}

/// A frame that has ended and lies on the stack would end a second time, with its events and its resets; and a stack that
/// grows from turn to turn ends in an error one day.
pub(super) fn nothing_that_is_over_stays(_: &mut Ledger, turn: &Turn<'_>) -> Verdict {
    if turn.rest().len() > limits::STACK_FRAMES + limits::STACK_HEADROOM {
        return Err(format!("{} frames", turn.rest().len()));
    }
    if !turn.listens() || turn.is_exhausted() || turn.driver.conversation.paused {
        return Ok(());
    }
    match turn.rest().iter().find(|frame| frame.at == Position::End) {
        Some(frame) => Err(format!("frame {} is over and stays: {}", frame.frame_id, shown(turn.rest()))),
        None => Ok(()),
    }
}

/// When the assistant listens and something is under way, the user must be able to bring it further: on top lies a question or
/// an agent that waits.
pub(super) fn somebody_is_waited_for(_: &mut Ledger, turn: &Turn<'_>) -> Verdict {
    let stopped = turn.is_exhausted() || turn.cuts() || left_alone(turn);
    if !turn.listens() || stopped || turn.driver.conversation.paused {
        return Ok(());
    }
    let Some(top) = turn.rest().last() else { return Ok(()) };
    let waits = match &top.kind {
        FrameKind::Pattern { context: PatternFrame::CollectInformation { .. } | PatternFrame::ValidateSlot { .. } } => {
            true
        }
        FrameKind::Agent(agent) => agent.state == AgentState::WaitingForInput,
        // A step of the author's that listens.
        FrameKind::Pattern { .. } | FrameKind::Flow { .. } => super::speech::stands_at_listen(turn.project(), top),
    };
    if waits { Ok(()) } else { Err(format!("nobody can answer this: {}", shown(turn.rest()))) }
}

/// Whether the turn was told to stop where it was: an action listens for itself, or an agent's run was stopped from outside.
pub(super) fn left_alone(turn: &Turn<'_>) -> bool {
    turn.taken.iter().any(|taken| match &taken.input.kind {
        InputKind::Acted(outcome) => serde_json::to_string(outcome).is_ok_and(|text| text.contains("action_listen")),
        InputKind::Agent(outcome) => {
            matches!(outcome.status, segue_engine::conversation::AgentStatus::Cancelled { .. })
        }
        _ => false,
    })
}

/// With nothing under way the next message begins afresh: nothing may lie in wait for it.
pub(super) fn nothing_waits_when_the_stack_is_empty(_: &mut Ledger, turn: &Turn<'_>) -> Verdict {
    let conversation = &turn.driver.conversation;
    if !turn.listens() || !conversation.stack.is_empty() && !turn.is_exhausted() {
        return Ok(());
    }
    match &conversation.followup {
        Some(action) => Err(format!("`{action}` waits to run")),
        None => Ok(()),
    }
}

/// Two corrections on one flow would go back twice, the second to a place that the first has left: the newer takes in the older.
/// And a slot has one check at a time: a stack that grows with every wrong answer is full one day.
pub(super) fn one_correction_at_a_time(_: &mut Ledger, turn: &Turn<'_>) -> Verdict {
    let is_correction =
        |frame: &&Frame| matches!(frame.kind, FrameKind::Pattern { context: PatternFrame::Correction { .. } });
    let mut rest = turn.rest();
    while !rest.is_empty() {
        let chain = top_chain(rest);
        let checks: Vec<_> = chain
            .iter()
            .filter_map(|frame| match &frame.kind {
                FrameKind::Pattern { context: PatternFrame::ValidateSlot { validate, .. } } => Some(validate),
                _ => None,
            })
            .collect();
        if checks.iter().enumerate().any(|(at, slot)| checks[..at].contains(slot)) {
            return Err(format!("one slot is checked twice: {}", shown(turn.rest())));
        }
        if chain.iter().filter(is_correction).count() > 1 {
            return Err(format!("two corrections: {}", shown(turn.rest())));
        }
        rest = &rest[..rest.len() - chain.len()];
    }
    Ok(())
}
