//! Invariants of flows: each started flow ends once.

use std::collections::BTreeMap;

use segue_engine::{
    conversation::{EventKind, FrameKind, Position},
    project::CalmVersion,
};

use super::{CheckResult, InvariantChecker, TurnRecord, idle_state::shown};

/// Numbers of flows, by name.
#[derive(Default)]
pub(super) struct Flows {
    open: BTreeMap<String, i64>,
    /// Cancelled, and not removed yet.
    cancelled: BTreeMap<String, i64>,
    interrupted: BTreeMap<String, i64>,
}

/// A flow starts before it ends, ends once, and is resumed only after an interruption; tests, dashboards and action
/// servers rely on that.
pub(super) fn flow_events_are_paired(checker: &mut InvariantChecker, turn: &TurnRecord<'_>) -> CheckResult {
    let state = &mut checker.flows;
    for event in turn.events {
        match &event.kind {
            EventKind::SessionStarted | EventKind::Restart => {
                // The pattern that did it continues to its end.
                let doers = ["pattern_restart", "pattern_session_start"];
                let open = std::mem::take(&mut state.open);
                let kept = open.into_iter().filter(|(flow, _)| doers.contains(&flow.as_str())).collect();
                *state = Flows { open: kept, ..Flows::default() };
            }
            EventKind::FlowStarted { flow_id, .. } => *state.open.entry(flow_id.to_string()).or_default() += 1,
            EventKind::FlowCompleted { flow_id, .. } => {
                let flow = flow_id.to_string();
                match state.cancelled.get_mut(&flow).filter(|count| **count > 0) {
                    Some(count) => *count -= 1,
                    None => close(state, &flow, "completed")?,
                }
            }
            EventKind::FlowCancelled { flow_id, .. } => {
                let flow = flow_id.to_string();
                // If a pattern cancels it, the flow completes afterwards; otherwise this event ends it.
                let by_pattern =
                    event.location.active_flow.as_ref().is_some_and(|place| place.as_str().starts_with("pattern_"));
                if by_pattern {
                    *state.cancelled.entry(flow.clone()).or_default() += 1;
                }
                close(state, &flow, "cancelled")?;
            }
            EventKind::FlowInterrupted { flow_id, .. } => {
                let flow = flow_id.to_string();
                if state.open.get(&flow).copied().unwrap_or(0) < 1 {
                    return Err(format!("`{flow}` is interrupted and was not active"));
                }
                *state.interrupted.entry(flow).or_default() += 1;
            }
            EventKind::FlowResumed { flow_id, .. } => {
                let flow = flow_id.to_string();
                let begun = state.open.get(&flow).copied().unwrap_or(0) > 0;
                let count = state.interrupted.entry(flow.clone()).or_default();
                // A flow that has not started was never interrupted.
                // From CALM 3.16 on, an answer from documents is followed by the same question, without an interruption
                // before it.
                let answered = turn.project().config.compat.patterns == CalmVersion::From3_16
                    && turn.has(|kind| matches!(kind, EventKind::FlowCompleted { flow_id, .. } if *flow_id == *"pattern_continue_interrupted"));
                if *count < 1 && begun && !answered {
                    return Err(format!("`{flow}` is resumed and was not interrupted"));
                }
                // A link to a flow that is below on the stack may push it twice.
                let twice = state.open.get(&flow).is_some_and(|open| *open > 1);
                *count = if twice { *count - 1 } else { 0 };
            }
            _ => {}
        }
    }
    if turn.is_over() && turn.has(|kind| matches!(kind, EventKind::SessionStarted | EventKind::Restart)) {
        let there = |flow: &str| turn.rest().iter().any(|frame| frame.flow_id == *flow);
        state.open.retain(|flow, _| !flow.starts_with("pattern_") || there(flow));
    }
    if turn.is_reverted() {
        *state = Flows::default();
        for frame in turn.rest().iter().filter(|frame| !matches!(frame.kind, FrameKind::Agent(_))) {
            if frame.at != Position::Start {
                *state.open.entry(frame.flow_id.to_string()).or_default() += 1;
                *state.interrupted.entry(frame.flow_id.to_string()).or_default() += 1;
            }
        }
    }
    if turn.listens() && !turn.is_exhausted() {
        let waiting = state.cancelled.iter().find(|(_, count)| **count != 0);
        if let Some((flow, count)) = waiting {
            return Err(format!("`{flow}` was cancelled and {count} times not removed"));
        }
    }
    Ok(())
}

fn close(state: &mut Flows, flow: &str, how: &str) -> CheckResult {
    let open = state.open.entry(flow.to_owned()).or_default();
    *open -= 1;
    if *open < 0 {
        return Err(format!("`{flow}` is {how} and was not active"));
    }
    if *open == 0 {
        state.interrupted.remove(flow);
    }
    Ok(())
}

/// A started flow is completed, cancelled, or still on the stack.
pub(super) fn started_flows_end_or_stay_on_the_stack(
    checker: &mut InvariantChecker,
    turn: &TurnRecord<'_>,
) -> CheckResult {
    if turn.driver.conversation.session.ended || (turn.is_exhausted() && !checker.flows.cancelled.is_empty()) {
        return Ok(());
    }
    let mut there: BTreeMap<String, i64> = BTreeMap::new();
    for frame in turn.rest() {
        let walks = !matches!(frame.kind, FrameKind::Agent(_));
        let begun = !matches!(frame.at, Position::Start);
        let told = checker.flows.cancelled.get(frame.flow_id.as_str()).is_some_and(|count| *count > 0);
        if walks && begun && !told {
            *there.entry(frame.flow_id.to_string()).or_default() += 1;
        }
    }
    for (flow, open) in &checker.flows.open {
        let frames = there.remove(flow).unwrap_or(0);
        if *open != frames {
            return Err(format!(
                "`{flow}` is {open} times open and {frames} times on the stack: {}",
                shown(turn.rest())
            ));
        }
    }
    match there.into_iter().next() {
        Some((flow, _)) => Err(format!("`{flow}` is on the stack and never started: {}", shown(turn.rest()))),
        None => Ok(()),
    }
}
