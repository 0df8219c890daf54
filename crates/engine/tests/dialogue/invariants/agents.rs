//! Invariants of agents.

use std::collections::BTreeMap;

use segue_engine::{
    conversation::{AgentState, EventKind, FrameKind},
    dialogue::Next,
};

use super::{
    CheckResult, InvariantChecker, TurnRecord,
    idle_state::{shown, top_chain},
};

/// Open tasks by flow and agent: their number, and how many of them are interrupted.
#[derive(Default)]
pub(super) struct Agents(BTreeMap<(String, String), (i64, i64)>);

/// An agent's task starts and ends once, and in between it is interrupted and resumed alternately; cost reports and the
/// remote contexts rely on that.
pub(super) fn agent_events_are_paired(checker: &mut InvariantChecker, turn: &TurnRecord<'_>) -> CheckResult {
    let state = &mut checker.agents.0;
    for event in turn.events {
        let (flow, agent, what) = match &event.kind {
            EventKind::SessionStarted | EventKind::Restart => {
                state.clear();
                continue;
            }
            EventKind::AgentStarted { flow_id, agent_id, .. } => (flow_id, agent_id, "started"),
            EventKind::AgentCompleted { flow_id, agent_id, .. } => (flow_id, agent_id, "completed"),
            EventKind::AgentCancelled { flow_id, agent_id, .. } => (flow_id, agent_id, "cancelled"),
            EventKind::AgentInterrupted { flow_id, agent_id } => (flow_id, agent_id, "interrupted"),
            EventKind::AgentResumed { flow_id, agent_id } => (flow_id, agent_id, "resumed"),
            _ => continue,
        };
        let (open, interrupted) = state.entry((flow.to_string(), agent.to_string())).or_default();
        match what {
            "started" => *open += 1,
            "interrupted" => *interrupted += 1,
            "resumed" => *interrupted -= 1,
            _ => {
                *open -= 1;
                *interrupted = (*interrupted).min(*open);
            }
        }
        if *open < 0 || *interrupted < 0 || *interrupted > *open {
            return Err(format!("agent `{agent}` of `{flow}` is {what}: {open} open, {interrupted} interrupted"));
        }
    }
    if turn.is_reverted() {
        state.clear();
        for frame in turn.rest() {
            if let FrameKind::Agent(agent) = &frame.kind {
                let (open, interrupted) =
                    state.entry((frame.flow_id.to_string(), agent.agent_id.to_string())).or_default();
                *open += 1;
                *interrupted += i64::from(agent.state == AgentState::Interrupted);
            }
        }
    }
    if turn.driver.conversation.session.ended || matches!(turn.driver.next, Next::Agent(_)) {
        return Ok(());
    }
    let mut there: BTreeMap<(String, String), i64> = BTreeMap::new();
    for frame in turn.rest() {
        if let FrameKind::Agent(agent) = &frame.kind {
            *there.entry((frame.flow_id.to_string(), agent.agent_id.to_string())).or_default() += 1;
        }
    }
    for (key, (open, _)) in state.iter() {
        let frames = there.get(key).copied().unwrap_or(0);
        // A restarting agent has not started while a frame is above it.
        let waiting = turn.rest().iter().filter(|frame| {
            matches!(&frame.kind, FrameKind::Agent(agent) if agent.state == AgentState::Restarting && agent.agent_id == key.1.as_str())
        });
        if *open > frames || *open < frames - waiting.count() as i64 {
            return Err(format!(
                "{key:?} is {open} times open and {frames} times on the stack: {}",
                shown(turn.rest())
            ));
        }
    }
    Ok(())
}

/// A waiting agent is on top; agents below are interrupted, so that each resumes later.
pub(super) fn agent_states_match_the_stack(_: &mut InvariantChecker, turn: &TurnRecord<'_>) -> CheckResult {
    if !turn.listens() || turn.is_exhausted() || super::idle_state::stopped_from_outside(turn) {
        return Ok(());
    }
    let frames = turn.rest();
    let top = frames.len() - top_chain(frames).len();
    for (at, frame) in frames.iter().enumerate() {
        let FrameKind::Agent(agent) = &frame.kind else { continue };
        let fits = match agent.state {
            AgentState::WaitingForInput => at >= top,
            AgentState::Interrupted => at + 1 < frames.len(),
            // About to restart or to continue, and a frame was pushed before it could.
            AgentState::Restarting | AgentState::Continuing | AgentState::Resuming => at + 1 < frames.len(),
        };
        if !fits {
            return Err(format!("agent `{}` is in the wrong state: {}", agent.agent_id, shown(frames)));
        }
    }
    Ok(())
}
