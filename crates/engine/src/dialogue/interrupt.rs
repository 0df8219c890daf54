//! Which frames belong together, and how flows are interrupted, resumed and removed.
//!
//! A *chain* is a flow that was started or linked, with everything it brought onto the stack: flows it calls, questions,
//! patterns, agents. Its lowest frame is its base. Linked flows count like started ones.

use std::ops::Range;

use super::{
    patterns, rejections,
    turn::{Turn, step_or_end},
    walked,
};
use crate::{
    conversation::{AgentState, EventKind, FlowFrameType, Frame, FrameKind, PatternFrame, Position},
    ids::FlowId,
    limits,
};

/// Whether a frame is the base of a chain.
pub(super) fn is_base(frame: &Frame) -> bool {
    matches!(&frame.kind, FrameKind::Flow { frame_type } if *frame_type != FlowFrameType::Call)
}

/// The base of the topmost chain.
pub(super) fn top_base(frames: &[Frame]) -> Option<usize> {
    frames.iter().rposition(is_base)
}

/// The frames of the chain whose base stands there.
pub(super) fn chain(frames: &[Frame], base: usize) -> Range<usize> {
    let above = frames.iter().enumerate().skip(base + 1).find(|(_, frame)| is_base(frame));
    base..above.map_or(frames.len(), |(at, _)| at)
}

/// The chain that runs this flow, as its base or by a call, unless it is over.
pub(super) fn chain_of(frames: &[Frame], flow: &FlowId) -> Option<Range<usize>> {
    let walks = |frame: &Frame| frame.flow_id == *flow && frame.is_flow() && frame.at != Position::End;
    let at = frames.iter().rposition(walks)?;
    let base = frames.get(..=at)?.iter().rposition(is_base)?;
    Some(chain(frames, base))
}

/// Begins a flow. One that is under way below is resumed instead; `interrupts` says that another was under way when the
/// user wrote.
pub(super) fn start(turn: &mut Turn<'_>, flow: &FlowId, interrupts: bool) {
    leave_questions(turn);
    // What went wrong before is told before anything new begins.
    let untold = take_untold(turn);
    start_below(turn, flow, interrupts);
    turn.stack.extend(untold);
}

fn start_below(turn: &mut Turn<'_>, flow: &FlowId, interrupts: bool) {
    if let Some(chain) = chain_of(&turn.stack, flow) {
        if chain.end < turn.stack.len() {
            resume(turn, chain);
        } else {
            turn.note(format!("`{flow}` is on top already"));
        }
        return;
    }
    if turn.stack.len() >= limits::STACK_FRAMES {
        turn.note(format!("the stack holds {} frames already, so `{flow}` does not begin", turn.stack.len()));
        let reason = "cannot_handle_not_supported".to_owned();
        turn.push_pattern(patterns::CANNOT_HANDLE, PatternFrame::CannotHandle { reason });
        return;
    }
    if interrupts {
        step_aside(turn);
    }
    let frame_type = if interrupts { FlowFrameType::Interrupt } else { FlowFrameType::Regular };
    let frame = turn.frame(flow, FrameKind::Flow { frame_type });
    turn.push(frame);
}

/// Whether a frame has yet to tell the user that something went wrong.
pub(super) fn is_untold(frame: &Frame) -> bool {
    frame.at == Position::Start && matches!(frame.pattern(), Some(PatternFrame::InternalError { .. }))
}

/// Takes off the top what has yet to be told; in the order of the stack.
pub(super) fn take_untold(turn: &mut Turn<'_>) -> Vec<Frame> {
    let told = turn.stack.iter().rposition(|frame| !is_untold(frame)).map_or(0, |at| at + 1);
    turn.stack.split_off(told)
}

/// Moves a chain to the top; an agent in it goes on.
pub(super) fn resume(turn: &mut Turn<'_>, chain: Range<usize>) {
    let mut moved: Vec<Frame> = turn.stack.drain(chain).collect();
    let below = turn.stack.iter().any(is_base);
    step_aside(turn);
    let Some(base) = moved.first_mut() else { return };
    if let (true, FrameKind::Flow { frame_type }) = (below, &mut base.kind) {
        *frame_type = FlowFrameType::Interrupt;
    }
    let (flow_id, step_id) = (base.flow_id.clone(), step_or_end(base));
    // Only the agent on top of the chain goes on; one below it waits until that has ended.
    if let Some(agent) = moved.last_mut().and_then(Frame::agent_mut)
        && agent.state == AgentState::Interrupted
    {
        agent.state = AgentState::Resuming;
    }
    turn.stack.append(&mut moved);
    turn.emit(EventKind::FlowResumed { flow_id, step_id });
}

/// The topmost chain makes way: its flow is interrupted, and so is an agent that waits. A flow that has not begun, or that is
/// over, has nothing to interrupt, nor has one that made way before.
pub(super) fn step_aside(turn: &mut Turn<'_>) {
    let Some(base) = top_base(&turn.stack) else { return };
    let Some(frame) = turn.stack.get(base) else { return };
    if !matches!(frame.at, Position::Start | Position::End) {
        let (flow_id, step_id) = (frame.flow_id.clone(), step_or_end(frame));
        turn.emit(EventKind::FlowInterrupted { flow_id, step_id });
        walked::set_aside(turn, base);
    }
    let range = chain(&turn.stack, base);
    interrupt_agents(turn, range);
}

/// Interrupts every agent among those frames. One that was about to go on, or to begin anew, has not done so yet: it waits
/// again, and nothing happened to it.
pub(super) fn interrupt_agents(turn: &mut Turn<'_>, range: Range<usize>) {
    let mut interrupted = Vec::new();
    for frame in turn.stack.get_mut(range).unwrap_or_default() {
        let flow_id = frame.flow_id.clone();
        let Some(agent) = frame.agent_mut() else { continue };
        match agent.state {
            AgentState::Interrupted | AgentState::Restarting => {}
            AgentState::Resuming => agent.state = AgentState::Interrupted,
            AgentState::WaitingForInput | AgentState::Continuing => {
                agent.state = AgentState::Interrupted;
                interrupted.push((flow_id, agent.agent_id.clone()));
            }
        }
    }
    for (flow_id, agent_id) in interrupted {
        turn.emit(EventKind::AgentInterrupted { flow_id, agent_id });
    }
}

/// Takes patterns that only ask what to do next off the top: the user has just said it.
pub(super) fn leave_questions(turn: &mut Turn<'_>) {
    let asks = |frame: &Frame| {
        frame.flow_id == *patterns::CUSTOMER_SATISFACTION
            || matches!(
                frame.pattern(),
                Some(
                    PatternFrame::ContinueInterrupted { .. }
                        | PatternFrame::Completed { .. }
                        | PatternFrame::Clarification { .. }
                )
            )
    };
    let bottom = top_base(&turn.stack).map_or(0, |base| base + 1);
    let Some(at) = turn.stack.iter().enumerate().skip(bottom).find(|(_, frame)| asks(frame)).map(|(at, _)| at) else {
        return;
    };
    let (untold, gone): (Vec<Frame>, Vec<Frame>) = turn.stack.split_off(at).into_iter().partition(is_untold);
    for frame in gone.iter().rev() {
        turn.take_down(frame, "the user went on");
    }
    turn.stack.extend(untold);
}

/// Removes the topmost chain, or, when no flow is under way, everything. Flows below are offered again.
pub(super) fn remove_chain(turn: &mut Turn<'_>, reason: &str) {
    let base = top_base(&turn.stack).unwrap_or(0);
    let offers = turn.stack.get(base).is_some_and(|frame| {
        matches!(frame.kind, FrameKind::Flow { frame_type: FlowFrameType::Interrupt | FlowFrameType::Link })
    });
    let frames: Vec<Frame> = turn.stack.drain(base..).collect();
    for frame in frames.iter().rev() {
        turn.take_down(frame, reason);
    }
    frames.iter().for_each(|frame| rejections::leave(turn, frame));
    if offers {
        offer_to_continue(turn);
    }
}

/// After an interrupting flow: asks whether to go on with what was interrupted. A flow that has not begun begins without
/// asking.
pub(super) fn offer_to_continue(turn: &mut Turn<'_>) {
    let open = |frame: &&Frame| is_base(frame) && frame.at != Position::End;
    match turn.stack.iter().rev().find(open) {
        None => return,
        Some(next) if next.at == Position::Start => return,
        Some(_) => {}
    }
    let mut interrupted_flow_ids: Vec<FlowId> = Vec::new();
    for frame in turn.stack.iter().rev().filter(open) {
        if !interrupted_flow_ids.contains(&frame.flow_id) {
            interrupted_flow_ids.push(frame.flow_id.clone());
        }
    }
    let names: Vec<String> = interrupted_flow_ids.iter().map(|flow| turn.flow_name(flow)).collect();
    let context = PatternFrame::ContinueInterrupted {
        interrupted_flow_options: enumerated(&names),
        multiple_flows_interrupted: names.len() > 1,
        previous_flow_name: names.first().cloned().unwrap_or_default(),
        interrupted_flow_names: names,
        interrupted_flow_ids,
    };
    turn.push_pattern(patterns::CONTINUE_INTERRUPTED, context);
}

/// Names as people list them: `a`, `a or b`, `a, b or c`.
pub(super) fn enumerated(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::enumerated;

    #[test]
    fn names_are_listed_as_people_do() {
        let names: Vec<String> = ["a", "b", "c"].map(Into::into).into();
        assert_eq!(enumerated(&names), "a, b or c");
        assert_eq!(enumerated(names.get(..1).unwrap_or_default()), "a");
        assert_eq!(enumerated(&[]), "");
    }
}
