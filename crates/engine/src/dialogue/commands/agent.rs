//! `continue agent` and `restart agent`.

use super::{CommandContext, CommandDecision};
use crate::{
    conversation::Command,
    dialogue::{agent_frame, interrupt, turn::Turn},
    ids::AgentName,
};

/// Once, and only while an agent waits.
pub(super) fn clean_continue(ctx: &CommandContext, kept: &[Command]) -> CommandDecision {
    if !ctx.agent_waits {
        CommandDecision::Drop("no agent waits for the user")
    } else if kept.contains(&Command::ContinueAgent) {
        CommandDecision::Drop("the agent goes on once")
    } else {
        CommandDecision::Keep
    }
}

/// Only an agent that completed its task for a flow that is still under way; else the wish is not clear.
pub(super) fn clean_restart(turn: &Turn<'_>, agent: &AgentName) -> CommandDecision {
    let cannot =
        |rule| CommandDecision::Replace(Command::CannotHandle { reason: "cannot_handle_default".to_owned() }, rule);
    if turn.project.agent(agent.as_str()).is_none() {
        return cannot("there is no such agent");
    }
    let record = turn.conversation().agents.get(agent);
    let Some(record) = record.filter(|record| record.completed > 0) else {
        return cannot("the agent has completed nothing yet");
    };
    let point = interrupt::top_base(&turn.stack).and_then(|base| agent_frame::restart_point(turn, base, agent));
    let flow = point.and_then(|(at, _)| turn.stack.get(at)).map(|frame| &frame.flow_id);
    match flow {
        Some(flow) if record.has_completed_in(flow) => CommandDecision::Keep,
        Some(_) => cannot("the agent has completed nothing in this flow yet"),
        None => cannot("no flow under way has called this agent"),
    }
}

/// The agent gets the message.
pub(super) fn run_continue(turn: &mut Turn<'_>) {
    agent_frame::go_on(turn);
}

/// The agent begins anew, in the flow that was under way when the user wrote.
pub(super) fn run_restart(turn: &mut Turn<'_>, ctx: &CommandContext, agent: &AgentName) {
    if let Some(base) = ctx.base_in(turn) {
        agent_frame::restart(turn, base, agent);
    }
}
