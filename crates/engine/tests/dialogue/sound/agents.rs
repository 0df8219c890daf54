//! The books of agents.

use std::collections::BTreeMap;

use segue_engine::{
    conversation::{AgentState, EventKind, FrameKind},
    dialogue::Next,
};

use super::{
    Ledger, Turn, Verdict,
    rest::{shown, top_chain},
};

/// Tasks that are open, by flow and agent: how many, and how many of them interrupted.
#[derive(Default)]
pub(super) struct Agents(BTreeMap<(String, String), (i64, i64)>);

/// An agent's task has one beginning and one end, and between them it is interrupted and resumed in turns; what counts its
/// cost or closes its remote context relies on that.
pub(super) fn agents_are_bracketed(ledger: &mut Ledger, turn: &Turn<'_>) -> Verdict {
    let books = &mut ledger.agents.0;
    for event in turn.events {
        let (flow, agent, what) = match &event.kind {
            EventKind::SessionStarted | EventKind::Restart => {
                books.clear();
                continue;
            }
            EventKind::AgentStarted { flow_id, agent_id, .. } => (flow_id, agent_id, "started"),
            EventKind::AgentCompleted { flow_id, agent_id, .. } => (flow_id, agent_id, "completed"),
            EventKind::AgentCancelled { flow_id, agent_id, .. } => (flow_id, agent_id, "cancelled"),
            EventKind::AgentInterrupted { flow_id, agent_id } => (flow_id, agent_id, "interrupted"),
            EventKind::AgentResumed { flow_id, agent_id } => (flow_id, agent_id, "resumed"),
            _ => continue,
        };
        let (open, interrupted) = books.entry((flow.to_string(), agent.to_string())).or_default();
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
    if turn.is_undone() {
        books.clear();
        for frame in turn.rest() {
            if let FrameKind::Agent(agent) = &frame.kind {
                let (open, interrupted) =
                    books.entry((frame.flow_id.to_string(), agent.agent_id.to_string())).or_default();
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
    for (key, (open, _)) in books.iter() {
        let frames = there.get(key).copied().unwrap_or(0);
        // One that was told to begin anew has not begun while something lies on it.
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

/// Who waits for the user is on top; below, agents are interrupted and know it, so that each goes on when its turn comes.
pub(super) fn agents_stand_as_the_stack_says(_: &mut Ledger, turn: &Turn<'_>) -> Verdict {
    if !turn.listens() || turn.is_exhausted() || super::rest::left_alone(turn) {
        return Ok(());
    }
    let frames = turn.rest();
    let top = frames.len() - top_chain(frames).len();
    for (at, frame) in frames.iter().enumerate() {
        let FrameKind::Agent(agent) = &frame.kind else { continue };
        let fits = match agent.state {
            AgentState::WaitingForInput => at >= top,
            AgentState::Interrupted => at + 1 < frames.len(),
            // Told to begin anew, or to go on, and something came on top before it could.
            AgentState::Restarting | AgentState::Continuing | AgentState::Resuming => at + 1 < frames.len(),
        };
        if !fits {
            return Err(format!("agent `{}` stands wrong: {}", agent.agent_id, shown(frames)));
        }
    }
    Ok(())
}
