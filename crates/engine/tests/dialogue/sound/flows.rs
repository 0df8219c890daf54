//! The books of flows: what began must end, once.

use std::collections::BTreeMap;

use segue_engine::{
    conversation::{EventKind, FrameKind, Position},
    project::CalmVersion,
};

use super::{Ledger, Turn, Verdict, rest::shown};

/// Flows that are open, by name.
#[derive(Default)]
pub(super) struct Flows {
    open: BTreeMap<String, i64>,
    /// Cancelled by name, and yet to be taken down.
    cancelled: BTreeMap<String, i64>,
    interrupted: BTreeMap<String, i64>,
}

/// Tests, dashboards and action servers count on it: a flow starts before it ends, ends once, and is resumed only after
/// it was interrupted.
pub(super) fn flows_are_bracketed(ledger: &mut Ledger, turn: &Turn<'_>) -> Verdict {
    let books = &mut ledger.flows;
    for event in turn.events {
        match &event.kind {
            EventKind::SessionStarted | EventKind::Restart => {
                // The pattern that did it goes on to its end.
                let doers = ["pattern_restart", "pattern_session_start"];
                let open = std::mem::take(&mut books.open);
                let kept = open.into_iter().filter(|(flow, _)| doers.contains(&flow.as_str())).collect();
                *books = Flows { open: kept, ..Flows::default() };
            }
            EventKind::FlowStarted { flow_id, .. } => *books.open.entry(flow_id.to_string()).or_default() += 1,
            EventKind::FlowCompleted { flow_id, .. } => {
                let flow = flow_id.to_string();
                match books.cancelled.get_mut(&flow).filter(|count| **count > 0) {
                    Some(count) => *count -= 1,
                    None => close(books, &flow, "completed")?,
                }
            }
            EventKind::FlowCancelled { flow_id, .. } => {
                let flow = flow_id.to_string();
                // Told by a pattern, the flow is walked to its end afterwards and completes there; else it is gone with this.
                let told = event.place.active_flow.as_ref().is_some_and(|place| place.as_str().starts_with("pattern_"));
                if told {
                    *books.cancelled.entry(flow.clone()).or_default() += 1;
                }
                close(books, &flow, "cancelled")?;
            }
            EventKind::FlowInterrupted { flow_id, .. } => {
                let flow = flow_id.to_string();
                if books.open.get(&flow).copied().unwrap_or(0) < 1 {
                    return Err(format!("`{flow}` is interrupted and was not under way"));
                }
                *books.interrupted.entry(flow).or_default() += 1;
            }
            EventKind::FlowResumed { flow_id, .. } => {
                let flow = flow_id.to_string();
                let begun = books.open.get(&flow).copied().unwrap_or(0) > 0;
                let count = books.interrupted.entry(flow.clone()).or_default();
                // One that waited for its beginning was never interrupted.
                // From 3.16 on an answer from documents is followed by the same question, without an interruption before it.
                let answered = turn.project().config.compat.patterns == CalmVersion::From3_16
                    && turn.has(|kind| matches!(kind, EventKind::FlowCompleted { flow_id, .. } if *flow_id == *"pattern_continue_interrupted"));
                if *count < 1 && begun && !answered {
                    return Err(format!("`{flow}` is resumed and was not interrupted"));
                }
                // Linked to while it lay below, a flow may lie there twice.
                let twice = books.open.get(&flow).is_some_and(|open| *open > 1);
                *count = if twice { *count - 1 } else { 0 };
            }
            _ => {}
        }
    }
    if turn.is_over() && turn.has(|kind| matches!(kind, EventKind::SessionStarted | EventKind::Restart)) {
        let there = |flow: &str| turn.rest().iter().any(|frame| frame.flow_id == *flow);
        books.open.retain(|flow, _| !flow.starts_with("pattern_") || there(flow));
    }
    if turn.is_undone() {
        *books = Flows::default();
        for frame in turn.rest().iter().filter(|frame| !matches!(frame.kind, FrameKind::Agent(_))) {
            if frame.at != Position::Start {
                *books.open.entry(frame.flow_id.to_string()).or_default() += 1;
                *books.interrupted.entry(frame.flow_id.to_string()).or_default() += 1;
            }
        }
    }
    if turn.listens() && !turn.is_exhausted() {
        let waiting = books.cancelled.iter().find(|(_, count)| **count != 0);
        if let Some((flow, count)) = waiting {
            return Err(format!("`{flow}` was cancelled and {count} times not taken down"));
        }
    }
    Ok(())
}

fn close(books: &mut Flows, flow: &str, how: &str) -> Verdict {
    let open = books.open.entry(flow.to_owned()).or_default();
    *open -= 1;
    if *open < 0 {
        return Err(format!("`{flow}` is {how} and was not under way"));
    }
    if *open == 0 {
        books.interrupted.remove(flow);
    }
    Ok(())
}

/// Whatever began is completed, cancelled, or still there for the user to come back to.
pub(super) fn no_flow_is_left_behind(ledger: &mut Ledger, turn: &Turn<'_>) -> Verdict {
    if turn.driver.conversation.session.ended || (turn.is_exhausted() && !ledger.flows.cancelled.is_empty()) {
        return Ok(());
    }
    let mut there: BTreeMap<String, i64> = BTreeMap::new();
    for frame in turn.rest() {
        let walks = !matches!(frame.kind, FrameKind::Agent(_));
        let begun = !matches!(frame.at, Position::Start);
        let told = ledger.flows.cancelled.get(frame.flow_id.as_str()).is_some_and(|count| *count > 0);
        if walks && begun && !told {
            *there.entry(frame.flow_id.to_string()).or_default() += 1;
        }
    }
    for (flow, open) in &ledger.flows.open {
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
