//! `continue agent` and `restart agent`.

use super::{CommandContext, CommandDecision};
use crate::{
    conversation::Command,
    dialogue::{advance_context::AdvanceContext, agent_frame, chains},
    ids::AgentName,
};

/// Kept once, and only while an agent waits.
pub(super) fn clean_continue(ctx: &CommandContext, kept: &[Command]) -> CommandDecision {
    if !ctx.agent_waits {
        CommandDecision::Drop("no agent waits for the user")
    } else if kept.contains(&Command::ContinueAgent) {
        CommandDecision::Drop("the agent is continued once")
    } else {
        CommandDecision::Keep
    }
}

/// Kept only for an agent that completed its task for a flow that is still active; otherwise the request cannot be
/// handled.
pub(super) fn clean_restart(turn: &AdvanceContext<'_>, agent: &AgentName) -> CommandDecision {
    let cannot =
        |rule| CommandDecision::Replace(Command::CannotHandle { reason: "cannot_handle_default".to_owned() }, rule);
    if turn.project.agent(agent.as_str()).is_none() {
        return cannot("there is no such agent");
    }
    let record = turn.conversation().agents.get(agent);
    let Some(record) = record.filter(|record| record.completed > 0) else {
        return cannot("the agent has not completed a task yet");
    };
    let point = chains::top_base(&turn.stack).and_then(|base| agent_frame::restart_point(turn, base, agent));
    let flow = point.and_then(|(at, _)| turn.stack.get(at)).map(|frame| &frame.flow_id);
    match flow {
        Some(flow) if record.has_completed_in(flow) => CommandDecision::Keep,
        Some(_) => cannot("the agent has not completed a task in this flow yet"),
        None => cannot("no active flow has called this agent"),
    }
}

/// Passes the message to the agent.
pub(super) fn run_continue(turn: &mut AdvanceContext<'_>) {
    agent_frame::continue_waiting_agent(turn);
}

/// Restarts the agent in the flow that was active when the user wrote.
pub(super) fn run_restart(turn: &mut AdvanceContext<'_>, ctx: &CommandContext, agent: &AgentName) {
    if let Some(base) = ctx.base_in(turn) {
        agent_frame::restart(turn, base, agent);
    }
}
