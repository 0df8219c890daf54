//! `start flow`: begins a flow, or resumes one that lies below.

use super::{CommandContext, CommandDecision, Source};
use crate::{
    conversation::Command,
    dialogue::{interrupt, turn::Turn},
    ids::FlowId,
};

/// Only known flows of the author whose guard holds; not the one on top, unless the user is asked what to go on with.
pub(super) fn clean(
    turn: &mut Turn<'_>,
    ctx: &CommandContext,
    kept: &[Command],
    flow: &FlowId,
    source: Source,
) -> CommandDecision {
    let project = turn.project;
    let Some(definition) = project.flow(flow.as_str()) else { return CommandDecision::Drop("there is no such flow") };
    if definition.is_pattern() {
        return CommandDecision::Drop("patterns are not started by name");
    }
    if kept.iter().any(|command| matches!(command, Command::StartFlow { flow: other } if other == flow)) {
        return CommandDecision::Drop("the flow is started once");
    }
    if ctx.active.contains(flow) && !ctx.asks_to_continue {
        return CommandDecision::Drop("the flow is under way already");
    }
    // An intent message starts a flow whatever its guard says.
    match &definition.guard {
        Some(guard) if !matches!(source, Source::Intent | Source::External) && !turn.holds(guard) => {
            CommandDecision::Drop("the flow's guard does not hold")
        }
        _ => CommandDecision::Keep,
    }
}

/// Puts it on top.
pub(super) fn run(turn: &mut Turn<'_>, ctx: &CommandContext, flow: &FlowId) {
    interrupt::start(turn, flow, ctx.base.is_some());
}
