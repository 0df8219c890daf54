//! Frame chains: which frames belong together, and how flows are started, interrupted, resumed and removed.
//!
//! A *chain* is a started or linked flow with everything above it that belongs to it: flows that it calls, collect
//! steps, patterns, agents. Its lowest frame is its base. Linked flows are treated like started ones.

use std::ops::Range;

use super::{
    advance_context::{AdvanceContext, step_or_end},
    late_confirmations, patterns, rejections,
    shortcuts::base_language,
    slot_dependencies,
};
use crate::{
    conversation::{AgentState, EventKind, FlowFrameType, Frame, FrameKind, PatternFrame, Position},
    ids::FlowId,
    limits,
    project::LANGUAGE,
};

/// Whether a frame is the base of a chain.
pub(super) fn is_base(frame: &Frame) -> bool {
    matches!(&frame.kind, FrameKind::Flow { frame_type } if *frame_type != FlowFrameType::Call)
}

/// The base of the topmost chain.
pub(super) fn top_base(frames: &[Frame]) -> Option<usize> {
    frames.iter().rposition(is_base)
}

/// The range of the chain with this base.
pub(super) fn chain(frames: &[Frame], base: usize) -> Range<usize> {
    let above = frames.iter().enumerate().skip(base + 1).find(|(_, frame)| is_base(frame));
    base..above.map_or(frames.len(), |(at, _)| at)
}

/// The chain that runs this flow, as its base or by a call, unless it has ended.
pub(super) fn chain_of(frames: &[Frame], flow: &FlowId) -> Option<Range<usize>> {
    let runs = |frame: &Frame| frame.flow_id == *flow && frame.is_flow() && frame.at != Position::End;
    let at = frames.iter().rposition(runs)?;
    let base = frames.get(..=at)?.iter().rposition(is_base)?;
    Some(chain(frames, base))
}

/// Starts a flow. One that is active below is resumed instead; `interrupts` says that another one was active when the
/// user wrote.
pub(super) fn start(turn: &mut AdvanceContext<'_>, flow: &FlowId, interrupts: bool) {
    drop_follow_up_questions(turn);
    // Pending error messages are sent before the new flow starts.
    let pending_errors = take_pending_errors(turn);
    start_below_pending_errors(turn, flow, interrupts);
    turn.stack.extend(pending_errors);
}

/// Starts a flow above the chain that runs it, because that is cancelled.
pub(super) fn start_anew(turn: &mut AdvanceContext<'_>, flow: &FlowId) {
    drop_follow_up_questions(turn);
    let pending_errors = take_pending_errors(turn);
    push_flow(turn, flow, true);
    turn.stack.extend(pending_errors);
}

fn start_below_pending_errors(turn: &mut AdvanceContext<'_>, flow: &FlowId, interrupts: bool) {
    if let Some(chain) = chain_of(&turn.stack, flow) {
        if chain.end < turn.stack.len() {
            resume(turn, chain);
        } else {
            turn.add_note(format!("`{flow}` is on top already"));
        }
        return;
    }
    push_flow(turn, flow, interrupts);
}

fn push_flow(turn: &mut AdvanceContext<'_>, flow: &FlowId, interrupts: bool) {
    if !has_space(turn, flow) {
        return;
    }
    if interrupts {
        interrupt_top_chain(turn);
    }
    let frame_type = if interrupts { FlowFrameType::Interrupt } else { FlowFrameType::Regular };
    let frame = turn.frame(flow, FrameKind::Flow { frame_type });
    turn.push(frame);
}

/// Places a flow directly below the chain at `base`: it starts without a question when that chain has ended. One that
/// is active below stays where it is.
pub(super) fn start_after(turn: &mut AdvanceContext<'_>, base: usize, flow: &FlowId) {
    if chain_of(&turn.stack, flow).is_some() {
        turn.add_note(format!("`{flow}` is active already: the user is asked about it when the active flow has ended"));
    } else if has_space(turn, flow) {
        let is_lowest = !turn.stack.iter().take(base).any(is_base);
        let frame_type = if is_lowest { FlowFrameType::Regular } else { FlowFrameType::Interrupt };
        let frame = turn.frame(flow, FrameKind::Flow { frame_type });
        turn.stack.insert(base, frame);
    }
}

/// Whether the stack has space for another flow; otherwise the user is notified.
fn has_space(turn: &mut AdvanceContext<'_>, flow: &FlowId) -> bool {
    let fits = turn.stack.len() < limits::STACK_FRAMES;
    if !fits {
        turn.add_note(format!("the stack already has {} frames, so `{flow}` does not start", turn.stack.len()));
        let reason = "cannot_handle_not_supported".to_owned();
        turn.push_pattern(patterns::CANNOT_HANDLE, PatternFrame::CannotHandle { reason });
    }
    fits
}

/// Whether a frame is an error pattern that has not run yet.
pub(super) fn is_pending_error(frame: &Frame) -> bool {
    frame.at == Position::Start && matches!(frame.pattern(), Some(PatternFrame::InternalError { .. }))
}

/// Removes the pending error patterns from the top; in the order of the stack.
pub(super) fn take_pending_errors(turn: &mut AdvanceContext<'_>) -> Vec<Frame> {
    let kept = turn.stack.iter().rposition(|frame| !is_pending_error(frame)).map_or(0, |at| at + 1);
    turn.stack.split_off(kept)
}

/// Moves a chain to the top and resumes its agent.
pub(super) fn resume(turn: &mut AdvanceContext<'_>, chain: Range<usize>) {
    let mut moved: Vec<Frame> = turn.stack.drain(chain).collect();
    let below = turn.stack.iter().any(is_base);
    interrupt_top_chain(turn);
    let Some(base) = moved.first_mut() else { return };
    if let (true, FrameKind::Flow { frame_type }) = (below, &mut base.kind) {
        *frame_type = FlowFrameType::Interrupt;
    }
    let (flow_id, step_id) = (base.flow_id.clone(), step_or_end(base));
    // Only the agent on top of the chain resumes; one below it waits until that one has ended.
    if let Some(agent) = moved.last_mut().and_then(Frame::agent_mut)
        && agent.state == AgentState::Interrupted
    {
        agent.state = AgentState::Resuming;
    }
    turn.stack.append(&mut moved);
    turn.emit(EventKind::FlowResumed { flow_id, step_id });
}

/// Interrupts the topmost chain: its flow, and an agent that waits. A flow that has not started or has ended is not
/// interrupted, nor is one that is interrupted already.
pub(super) fn interrupt_top_chain(turn: &mut AdvanceContext<'_>) {
    let Some(base) = top_base(&turn.stack) else { return };
    let Some(frame) = turn.stack.get(base) else { return };
    if !matches!(frame.at, Position::Start | Position::End) {
        let (flow_id, step_id) = (frame.flow_id.clone(), step_or_end(frame));
        turn.emit(EventKind::FlowInterrupted { flow_id, step_id });
        slot_dependencies::snapshot_used_slots(turn, base);
        late_confirmations::empty_unused(turn, base);
    }
    let range = chain(&turn.stack, base);
    interrupt_agents(turn, range);
}

/// Interrupts every agent in the range. An agent that was about to resume or restart is set back without an event.
pub(super) fn interrupt_agents(turn: &mut AdvanceContext<'_>, range: Range<usize>) {
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

/// Removes the patterns that only ask what to do next from the top: the user has just answered that.
pub(super) fn drop_follow_up_questions(turn: &mut AdvanceContext<'_>) {
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
    let (pending_errors, gone): (Vec<Frame>, Vec<Frame>) =
        turn.stack.split_off(at).into_iter().partition(is_pending_error);
    for frame in gone.iter().rev() {
        turn.close_frame(frame, "the user continued with something else");
    }
    turn.stack.extend(pending_errors);
}

/// Removes the topmost chain, or the whole stack when no flow is active. Interrupted flows below are offered again.
pub(super) fn remove_chain(turn: &mut AdvanceContext<'_>, reason: &str) {
    let base = top_base(&turn.stack).unwrap_or(0);
    let offers = turn.stack.get(base).is_some_and(|frame| {
        matches!(frame.kind, FrameKind::Flow { frame_type: FlowFrameType::Interrupt | FlowFrameType::Link })
    });
    let frames: Vec<Frame> = turn.stack.drain(base..).collect();
    for frame in frames.iter().rev() {
        turn.close_frame(frame, reason);
    }
    frames.iter().for_each(|frame| rejections::empty_unchecked_slot(turn, frame));
    if offers {
        offer_to_continue(turn);
    }
}

/// After an interrupting flow: asks whether to continue the interrupted flows. A flow that has not started starts
/// without a question.
pub(super) fn offer_to_continue(turn: &mut AdvanceContext<'_>) {
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
        interrupted_flow_options: enumerate_names(turn, &names),
        multiple_flows_interrupted: names.len() > 1,
        previous_flow_name: names.first().cloned().unwrap_or_default(),
        interrupted_flow_names: names,
        interrupted_flow_ids,
    };
    // A pattern that the flow linked to belongs to what has just ended: it runs before the question.
    let linked = take_linked_patterns(turn);
    turn.push_pattern(patterns::CONTINUE_INTERRUPTED, context);
    turn.stack.extend(linked);
}

/// Removes the patterns from the top that a flow linked to and that have not started; in the order of the stack.
fn take_linked_patterns(turn: &mut AdvanceContext<'_>) -> Vec<Frame> {
    let is_linked = |frame: &Frame| frame.at == Position::Start && matches!(frame.pattern(), Some(PatternFrame::Plain));
    let kept = turn.stack.iter().rposition(|frame| !is_linked(frame)).map_or(0, |at| at + 1);
    turn.stack.split_off(kept)
}

/// The word between the last two of several choices, by language. Other languages have a comma there too.
const OR_WORDS: &[(&str, &str)] = &[
    ("en", "or"),
    ("de", "oder"),
    ("fr", "ou"),
    ("es", "o"),
    ("it", "o"),
    ("nl", "of"),
    ("nb", "eller"),
    ("nn", "eller"),
    ("no", "eller"),
    ("sv", "eller"),
    ("da", "eller"),
    ("pt", "ou"),
    ("pl", "lub"),
    ("cs", "nebo"),
    ("fi", "tai"),
];

/// Joins names to an enumeration in the language of the conversation: `a`, `a or b`, `a, b or c`.
pub(super) fn enumerate_names(turn: &AdvanceContext<'_>, names: &[String]) -> String {
    join_names(turn.slot(LANGUAGE).as_str().unwrap_or(&turn.project.config.language), names)
}

fn join_names(language: &str, names: &[String]) -> String {
    let [first @ .., last] = names else { return String::new() };
    let or = OR_WORDS.iter().find(|(of, _)| *of == base_language(language)).map(|(_, or)| or);
    match (first, or) {
        ([], _) => last.clone(),
        (first, Some(or)) => format!("{} {or} {last}", first.join(", ")),
        (_, None) => names.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::join_names;

    #[test]
    fn names_are_enumerated() {
        let names: Vec<String> = ["a", "b", "c"].map(Into::into).into();
        assert_eq!(join_names("en", &names), "a, b or c");
        assert_eq!(join_names("de-AT", &names), "a, b oder c");
        assert_eq!(join_names("ja", &names), "a, b, c");
        assert_eq!(join_names("en", names.get(..1).unwrap_or_default()), "a");
        assert_eq!(join_names("en", &[]), "");
    }
}
