//! `start flow`: starts a flow, or resumes one that is below on the stack.

use super::{CommandContext, CommandDecision, CommandSource};
use crate::{
    conversation::Command,
    dialogue::{advance_context::AdvanceContext, chains},
    ids::FlowId,
};

/// Kept for flows of the project whose guard holds. The flow on top is not started again, unless the message cancels it or the
/// user is being asked which flow to continue.
pub(super) fn clean(
    turn: &mut AdvanceContext<'_>,
    ctx: &CommandContext,
    kept: &[Command],
    flow: &FlowId,
    source: CommandSource,
) -> CommandDecision {
    let project = turn.project;
    let Some(definition) = project.flow(flow.as_str()) else { return CommandDecision::Drop("there is no such flow") };
    if definition.is_pattern() {
        return CommandDecision::Drop("patterns are not started by name");
    }
    if kept.iter().any(|command| matches!(command, Command::StartFlow { flow: other } if other == flow)) {
        return CommandDecision::Drop("the flow is started once");
    }
    if ctx.goes_on(flow) && !ctx.asks_to_continue {
        return CommandDecision::Drop("the flow is active already");
    }
    // Intent messages and triggers ignore the guard.
    match &definition.guard {
        Some(guard) if !matches!(source, CommandSource::Intent | CommandSource::External) && !turn.holds(guard) => {
            CommandDecision::Drop("the flow's guard does not hold")
        }
        _ => CommandDecision::Keep,
    }
}

/// Pushes the flow, or places it below the active one if the message is for the waiting agent first.
pub(super) fn run(turn: &mut AdvanceContext<'_>, ctx: &CommandContext, flow: &FlowId) {
    match ctx.base_in(turn).filter(|_| ctx.agent_first) {
        Some(base) => chains::start_after(turn, base, flow),
        None if ctx.cancels && ctx.active.contains(flow) => chains::start_anew(turn, flow),
        None => chains::start(turn, flow, ctx.base.is_some()),
    }
}
