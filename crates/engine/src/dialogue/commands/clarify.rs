//! `clarify`: asks which of several flows the user means.

use super::{CommandContext, CommandDecision, CommandSource, start_flow};
use crate::{
    conversation::{Command, PatternFrame},
    dialogue::{advance_context::AdvanceContext, chains, patterns},
    ids::FlowId,
};

/// Kept only without other commands and with existing flows; a single option is started instead.
pub(super) fn clean(
    turn: &mut AdvanceContext<'_>,
    ctx: &CommandContext,
    kept: &[Command],
    all: &[Command],
    options: &[FlowId],
    source: CommandSource,
) -> CommandDecision {
    if !all.iter().all(|command| matches!(command, Command::Clarify { .. })) {
        return CommandDecision::Drop("other commands say what the user wants");
    }
    if !kept.is_empty() {
        return CommandDecision::Drop("one question at a time");
    }
    match existing_flows(turn, options).as_slice() {
        [] if !options.is_empty() => CommandDecision::Drop("none of the options is a flow"),
        // Treated as `start flow`, with all its rules.
        [only] => match start_flow::clean(turn, ctx, kept, only, source) {
            CommandDecision::Drop(rule) => CommandDecision::Drop(rule),
            _ => CommandDecision::Replace(Command::StartFlow { flow: only.clone() }, "there is only one option"),
        },
        _ => CommandDecision::Keep,
    }
}

/// Pushes the question. An agent that waits for the user continues to wait.
pub(super) fn run(turn: &mut AdvanceContext<'_>, options: Vec<FlowId>) {
    chains::drop_follow_up_questions(turn);
    let options = existing_flows(turn, &options);
    let names = options.iter().map(|flow| turn.flow_name(flow)).collect();
    let context = PatternFrame::Clarification { names, options, clarification_options: String::new() };
    turn.push_pattern(patterns::CLARIFICATION, context);
}

fn existing_flows(turn: &AdvanceContext<'_>, options: &[FlowId]) -> Vec<FlowId> {
    let mut existing: Vec<FlowId> = Vec::new();
    for flow in options {
        let is_flow = turn.project.flow(flow.as_str()).is_some_and(|flow| !flow.is_pattern());
        if is_flow && !existing.contains(flow) {
            existing.push(flow.clone());
        }
    }
    existing
}
