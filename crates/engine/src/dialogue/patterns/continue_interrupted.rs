//! What the user wants with flows that were interrupted: go on with one, or give them up.

use std::ops::Range;

use serde_json::Value as Json;

use crate::{
    conversation::{EventKind, FilledBy, Frame, PatternFrame, Position},
    dialogue::{
        interrupt, patterns,
        turn::{Turn, step_or_end},
    },
    ids::{FlowId, SlotName},
    project::builtin::FLOW_TO_CONTINUE,
};

/// `action_continue_interrupted_flow`: the pattern ends first, then the flow is resumed. A name that is none of the options is
/// asked again.
pub(in crate::dialogue) fn go_on(turn: &mut Turn<'_>) {
    let Some(options) = options(turn) else {
        return turn.note("`action_continue_interrupted_flow` has nothing to continue here");
    };
    let chosen = match options.as_slice() {
        [(only, _)] => Some(only.clone()),
        several => chosen(turn, several),
    };
    let Some(flow) = chosen else {
        turn.note("the flow that was named is none of those that were interrupted: the question is asked again");
        turn.set_slot(&SlotName::from(FLOW_TO_CONTINUE), Json::Null, FilledBy::Flow);
        let project = turn.project;
        if let Some(top) = turn.stack.last_mut() {
            // It has started; it does not start twice.
            let first = project.flow(top.flow_id.as_str()).and_then(|flow| flow.first());
            top.at = first.map_or(Position::End, |step| Position::Before(step.id.clone()));
        }
        return;
    };
    if let Some(pattern) = turn.stack.pop() {
        turn.take_down(&pattern, "the user went on");
    }
    match interrupt::chain_of(&turn.stack, &flow) {
        Some(chain) => interrupt::resume(turn, chain),
        None => turn.note(format!("`{flow}` is not under way any more")),
    }
}

/// `action_cancel_interrupted_flows`: all of them end.
pub(in crate::dialogue) fn give_up(turn: &mut Turn<'_>) {
    let Some(options) = options(turn) else {
        return turn.note("`action_cancel_interrupted_flows` has nothing to cancel here");
    };
    let silent = ends_in_silence(turn);
    let names: Vec<String> = options.iter().map(|(_, name)| name.clone()).collect();
    for (flow, _) in options {
        // A link may have brought a flow onto the stack that lay there already.
        while let Some(chain) = interrupt::chain_of(&turn.stack, &flow) {
            give_up_chain(turn, chain);
        }
    }
    let (canceled_name, canceled_frames) = (interrupt::enumerated(&names), Vec::new());
    if silent
        && turn.push_pattern(patterns::CANCEL_FLOW, PatternFrame::CancelFlow { canceled_name, canceled_frames })
        && let [.., asking, told] = turn.stack.as_mut_slice()
    {
        // It comes when the question itself is over.
        std::mem::swap(asking, told);
    }
}

/// Whether the last of the flows under way wants no `pattern_completed`: then nothing would be said of their end.
fn ends_in_silence(turn: &Turn<'_>) -> bool {
    let project = turn.project;
    let last = turn.stack.iter().find(|frame| interrupt::is_base(frame) && frame.at != Position::End);
    last.and_then(|frame| project.flow(frame.flow_id.as_str())).is_some_and(|flow| !flow.run_pattern_completed)
}

fn give_up_chain(turn: &mut Turn<'_>, chain: Range<usize>) {
    // The pattern itself lies above the last chain and goes on.
    let end = turn.stack.len().saturating_sub(1).min(chain.end);
    let frames: Vec<Frame> = turn.stack.get(chain.start..end).unwrap_or_default().to_vec();
    for frame in &frames {
        if frame.is_flow() && !matches!(frame.at, Position::Start | Position::End) {
            let (flow_id, step_id) = (frame.flow_id.clone(), step_or_end(frame));
            turn.emit_here(EventKind::FlowCancelled { flow_id, step_id });
        } else if frame.is_agent() {
            turn.take_down(frame, "the user did not go on with the flow");
        }
    }
    let gone = |frame: &Frame| frames.iter().any(|one| one.frame_id == frame.frame_id);
    turn.stack.retain(|frame| !(frame.is_agent() && gone(frame)));
    turn.let_end(gone);
}

fn options(turn: &Turn<'_>) -> Option<Vec<(FlowId, String)>> {
    let PatternFrame::ContinueInterrupted { interrupted_flow_ids, interrupted_flow_names, .. } =
        turn.stack.top()?.pattern()?
    else {
        return None;
    };
    Some(interrupted_flow_ids.iter().cloned().zip(interrupted_flow_names.iter().cloned()).collect())
}

fn chosen(turn: &Turn<'_>, options: &[(FlowId, String)]) -> Option<FlowId> {
    let said = turn.slot(FLOW_TO_CONTINUE).as_str()?.trim().to_lowercase();
    let named = options.iter().find(|(flow, name)| flow.as_str().to_lowercase() == said || name.to_lowercase() == said);
    named.map(|(flow, _)| flow.clone())
}
