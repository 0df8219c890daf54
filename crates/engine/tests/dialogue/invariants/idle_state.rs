//! Invariants of the stack at the end of a turn.

use segue_engine::{
    conversation::{AgentState, FlowFrameType, Frame, FrameKind, PatternFrame, Position},
    dialogue::InputKind,
    limits,
};

use super::{CheckResult, InvariantChecker, TurnRecord};

/// The topmost chain: a started or linked flow with everything above it.
pub(super) fn top_chain(frames: &[Frame]) -> &[Frame] {
    let base = frames.iter().rposition(is_base).unwrap_or(0);
    &frames[base..]
}

/// Whether a frame is a started or linked flow, not a called one.
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

/// Every turn ends within the limits.
pub(super) fn turn_ends_within_limits(_: &mut InvariantChecker, turn: &TurnRecord<'_>) -> CheckResult {
    // Early actions, the command generator, and as many effects as a turn may have.
    let most = limits::ENGINE_TURN_EFFECTS as usize + 16;
    if turn.inputs.len() > most {
        return Err(format!("the turn took {} inputs and requests {:?}", turn.inputs.len(), turn.driver.next));
    }
    // The step limit is exceeded at most twice, and each step causes only a few events.
    let most = 2 * 4 * limits::FLOW_STEPS;
    if let Some(record) = turn.inputs.iter().find(|record| record.events.len() > most) {
        return Err(format!("one input led to {} events", record.events.len()));
    }
    let begins = |kind: &InputKind| matches!(kind, InputKind::Message(_) | InputKind::Trigger(_));
    let inputs = turn.inputs.iter().filter(|record| begins(&record.input.kind)).count();
    if inputs == 1 { Ok(()) } else { Err(format!("{inputs} messages in one turn")) }
}

/// Frame ids are unique: events and the cancel pattern refer to frames by id.
pub(super) fn frame_ids_are_unique(checker: &mut InvariantChecker, turn: &TurnRecord<'_>) -> CheckResult {
    let mut newest = checker.frames;
    let stacks = turn.inputs.iter().map(|record| record.before.as_slice()).chain([turn.rest()]);
    for (at, frames) in stacks.enumerate() {
        let known = |id: &Frame| {
            at > 0 && turn.inputs.iter().take(at).any(|t| t.before.iter().any(|f| f.frame_id == id.frame_id))
        };
        for (place, frame) in frames.iter().enumerate() {
            if frames.iter().skip(place + 1).any(|other| other.frame_id == frame.frame_id) {
                return Err(format!("frame {} is twice on the stack: {}", frame.frame_id, shown(frames)));
            }
            let number: u64 = frame.frame_id.as_str().parse().map_err(|_| format!("frame id {}", frame.frame_id))?;
            if at > 0 && !known(frame) && number <= checker.frames {
                return Err(format!("frame id {number} was used before: {}", shown(frames)));
            }
            newest = newest.max(number);
        }
    }
    checker.frames = newest.max(turn.driver.conversation.next_frame);
    Ok(())
}

/// Ended frames are removed: they would end a second time, and the stack would grow from turn to turn.
pub(super) fn ended_frames_are_removed(_: &mut InvariantChecker, turn: &TurnRecord<'_>) -> CheckResult {
    if turn.rest().len() > limits::STACK_FRAMES + limits::STACK_HEADROOM {
        return Err(format!("{} frames", turn.rest().len()));
    }
    if !turn.listens() || turn.is_exhausted() || turn.driver.conversation.paused {
        return Ok(());
    }
    match turn.rest().iter().find(|frame| frame.at == Position::End) {
        Some(frame) => Err(format!("frame {} has ended and stays: {}", frame.frame_id, shown(turn.rest()))),
        None => Ok(()),
    }
}

/// When the assistant listens and the stack is not empty, a question or a waiting agent is on top, so that the user can
/// continue.
pub(super) fn open_stack_waits_for_the_user(_: &mut InvariantChecker, turn: &TurnRecord<'_>) -> CheckResult {
    let stopped = turn.is_exhausted() || turn.interrupts_turn() || stopped_from_outside(turn);
    if !turn.listens() || stopped || turn.driver.conversation.paused {
        return Ok(());
    }
    let Some(top) = turn.rest().last() else { return Ok(()) };
    let waits = match &top.kind {
        FrameKind::Pattern { context: PatternFrame::CollectInformation { .. } | PatternFrame::ValidateSlot { .. } } => {
            true
        }
        FrameKind::Agent(agent) => agent.state == AgentState::WaitingForInput,
        // A step of the project that listens.
        FrameKind::Pattern { .. } | FrameKind::Flow { .. } => super::responses::is_at_listen_step(turn.project(), top),
    };
    if waits { Ok(()) } else { Err(format!("the conversation waits for nothing: {}", shown(turn.rest()))) }
}

/// Whether the turn was stopped from outside: an action listened itself, or an agent run was cancelled.
pub(super) fn stopped_from_outside(turn: &TurnRecord<'_>) -> bool {
    turn.inputs.iter().any(|record| match &record.input.kind {
        InputKind::ActionOutcome(outcome) => {
            serde_json::to_string(outcome).is_ok_and(|text| text.contains("action_listen"))
        }
        InputKind::Agent(outcome) => {
            matches!(outcome.status, segue_engine::conversation::AgentStatus::Cancelled { .. })
        }
        _ => false,
    })
}

/// With an empty stack nothing is pending for the next message.
pub(super) fn nothing_is_pending_on_an_empty_stack(_: &mut InvariantChecker, turn: &TurnRecord<'_>) -> CheckResult {
    let conversation = &turn.driver.conversation;
    if !turn.listens() || !conversation.stack.is_empty() && !turn.is_exhausted() {
        return Ok(());
    }
    match &conversation.followup {
        Some(action) => Err(format!("`{action}` waits to run")),
        None => Ok(()),
    }
}

/// A flow has one correction at a time, because a second one would go back to an outdated position; and a slot has one
/// validation at a time, because the stack would grow with every invalid answer.
pub(super) fn one_correction_and_validation_at_a_time(_: &mut InvariantChecker, turn: &TurnRecord<'_>) -> CheckResult {
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
            return Err(format!("one slot is validated twice: {}", shown(turn.rest())));
        }
        if chain.iter().filter(is_correction).count() > 1 {
            return Err(format!("two corrections: {}", shown(turn.rest())));
        }
        rest = &rest[..rest.len() - chain.len()];
    }
    Ok(())
}
