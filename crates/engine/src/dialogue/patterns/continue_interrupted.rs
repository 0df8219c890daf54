//! `pattern_continue_interrupted`: continues one of the interrupted flows, or cancels them.

use std::ops::Range;

use serde_json::Value as Json;

use crate::{
    conversation::{EventKind, FilledBy, Frame, PatternFrame, Position, Writes},
    dialogue::{
        advance_context::{AdvanceContext, step_or_end},
        chains, patterns, writes,
    },
    ids::{FlowId, SlotName},
    project::builtin::FLOW_TO_CONTINUE,
};

/// `action_continue_interrupted_flow`: the pattern ends first, then the flow resumes. A name that is not among the
/// options is asked for again.
pub(in crate::dialogue) fn continue_chosen_flow(turn: &mut AdvanceContext<'_>) {
    let Some(options) = options(turn) else {
        return turn.add_note("`action_continue_interrupted_flow` has nothing to continue here");
    };
    let chosen = match options.as_slice() {
        [(only, _)] => Some(only.clone()),
        several => chosen_flow(turn, several),
    };
    let Some(flow) = chosen else {
        turn.add_note("the named flow is not one of the interrupted flows: the question is asked again");
        turn.set_slot(&SlotName::from(FLOW_TO_CONTINUE), Json::Null, FilledBy::Flow);
        let project = turn.project;
        if let Some(top) = turn.stack.last_mut() {
            // The pattern has started and must not start twice.
            let first = project.flow(top.flow_id.as_str()).and_then(|flow| flow.first());
            top.at = first.map_or(Position::End, |step| Position::Before(step.id.clone()));
        }
        return;
    };
    if let Some(pattern) = turn.stack.pop() {
        turn.close_frame(&pattern, "the user continued a flow");
    }
    match chains::chain_of(&turn.stack, &flow) {
        Some(chain) => chains::resume(turn, chain),
        None => turn.add_note(format!("`{flow}` is no longer active")),
    }
}

/// `action_cancel_interrupted_flows`: all of them end.
pub(in crate::dialogue) fn cancel_interrupted_flows(turn: &mut AdvanceContext<'_>) {
    let Some(options) = options(turn) else {
        return turn.add_note("`action_cancel_interrupted_flows` has nothing to cancel here");
    };
    let silent = ends_without_message(turn);
    let names: Vec<String> = options.iter().map(|(_, name)| name.clone()).collect();
    let mut changed = Writes::default();
    for (flow, _) in options {
        // A link may have pushed a flow that was on the stack already.
        while let Some(chain) = chains::chain_of(&turn.stack, &flow) {
            changed.merge(&cancel_chain(turn, chain));
        }
    }
    writes::tell_cancelled(turn, &changed);
    let (canceled_name, canceled_frames) = (chains::enumerate_names(turn, &names), Vec::new());
    if silent
        && turn.push_pattern(patterns::CANCEL_FLOW, PatternFrame::CancelFlow { canceled_name, canceled_frames })
        && let [.., question, cancel] = turn.stack.as_mut_slice()
    {
        // The cancel pattern runs after the question has ended.
        std::mem::swap(question, cancel);
    }
}

/// Whether the last active flow sets `run_pattern_completed: false`: then nothing would report the end.
fn ends_without_message(turn: &AdvanceContext<'_>) -> bool {
    let project = turn.project;
    let last = turn.stack.iter().find(|frame| chains::is_base(frame) && frame.at != Position::End);
    last.and_then(|frame| project.flow(frame.flow_id.as_str())).is_some_and(|flow| !flow.run_pattern_completed)
}

/// Ends the frames of a chain. Returns what they have changed.
fn cancel_chain(turn: &mut AdvanceContext<'_>, chain: Range<usize>) -> Writes {
    // The pattern itself is above the last chain and continues.
    let end = turn.stack.len().saturating_sub(1).min(chain.end);
    let frames: Vec<Frame> = turn.stack.get(chain.start..end).unwrap_or_default().to_vec();
    for frame in &frames {
        if frame.is_flow() && !matches!(frame.at, Position::Start | Position::End) {
            let (flow_id, step_id) = (frame.flow_id.clone(), step_or_end(frame));
            turn.emit_in_top_frame(EventKind::FlowCancelled { flow_id, step_id });
        } else if frame.is_agent() {
            turn.close_frame(frame, "the user did not continue the flow");
        }
    }
    let gone = |frame: &Frame| frames.iter().any(|one| one.frame_id == frame.frame_id);
    turn.stack.retain(|frame| !(frame.is_agent() && gone(frame)));
    turn.end_frames(gone);
    writes::of_all(&frames)
}

fn options(turn: &AdvanceContext<'_>) -> Option<Vec<(FlowId, String)>> {
    let PatternFrame::ContinueInterrupted { interrupted_flow_ids, interrupted_flow_names, .. } =
        turn.stack.top()?.pattern()?
    else {
        return None;
    };
    Some(interrupted_flow_ids.iter().cloned().zip(interrupted_flow_names.iter().cloned()).collect())
}

fn chosen_flow(turn: &AdvanceContext<'_>, options: &[(FlowId, String)]) -> Option<FlowId> {
    let answer = turn.slot(FLOW_TO_CONTINUE).as_str()?.trim().to_lowercase();
    let named =
        options.iter().find(|(flow, name)| flow.as_str().to_lowercase() == answer || name.to_lowercase() == answer);
    named.map(|(flow, _)| flow.clone())
}
