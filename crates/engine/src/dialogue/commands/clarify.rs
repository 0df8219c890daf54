//! `clarify`: asks which of several flows is meant.

use super::{CommandContext, CommandDecision, Source, start_flow};
use crate::{
    conversation::{Command, PatternFrame},
    dialogue::{interrupt, patterns, turn::Turn},
    ids::FlowId,
};

/// Only alone, only known flows; a single one is started.
pub(super) fn clean(
    turn: &mut Turn<'_>,
    ctx: &CommandContext,
    kept: &[Command],
    all: &[Command],
    options: &[FlowId],
    source: Source,
) -> CommandDecision {
    if !all.iter().all(|command| matches!(command, Command::Clarify { .. })) {
        return CommandDecision::Drop("other commands say what is wanted");
    }
    if !kept.is_empty() {
        return CommandDecision::Drop("one question at a time");
    }
    match known(turn, options).as_slice() {
        [] if !options.is_empty() => CommandDecision::Drop("none of the options is a flow"),
        // As if the flow had been named, with all that speaks against starting it.
        [only] => match start_flow::clean(turn, ctx, kept, only, source) {
            CommandDecision::Drop(rule) => CommandDecision::Drop(rule),
            _ => CommandDecision::Replace(Command::StartFlow { flow: only.clone() }, "there is only one option"),
        },
        _ => CommandDecision::Keep,
    }
}

/// Puts the question on top. An agent that waits goes on waiting.
pub(super) fn run(turn: &mut Turn<'_>, options: Vec<FlowId>) {
    interrupt::leave_questions(turn);
    let options = known(turn, &options);
    let names = options.iter().map(|flow| turn.flow_name(flow)).collect();
    let context = PatternFrame::Clarification { names, options, clarification_options: String::new() };
    turn.push_pattern(patterns::CLARIFICATION, context);
}

fn known(turn: &Turn<'_>, options: &[FlowId]) -> Vec<FlowId> {
    let mut known: Vec<FlowId> = Vec::new();
    for flow in options {
        let is_flow = turn.project.flow(flow.as_str()).is_some_and(|flow| !flow.is_pattern());
        if is_flow && !known.contains(flow) {
            known.push(flow.clone());
        }
    }
    known
}
