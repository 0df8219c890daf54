//! Command cleanup: which commands of a message are kept. Every drop and every replacement is recorded as a [`Reason`].

use serde_json::Value as Json;

use super::{
    CommandContext, CommandDecision, CommandSource, agent, cancel_flow, cannot_handle, clarify, free_form, set_slot,
    start_flow, started,
};
use crate::{
    conversation::{Command, FilledBy, KeptValue},
    dialogue::{Reason, advance_context::AdvanceContext, code_change, collect, slot_dependencies, slots},
    ids::{FlowId, SlotName},
};

/// Returns the commands of one message that are kept, and the values for flows that it starts and that do not run first.
pub(super) fn clean(
    turn: &mut AdvanceContext<'_>,
    ctx: &CommandContext,
    commands: Vec<Command>,
    source: CommandSource,
) -> (Vec<Command>, Vec<(FlowId, KeptValue)>) {
    let by_name = commands.iter().any(|command| matches!(command, Command::StartPattern { .. }));
    if let Some(flow) = code_change::changed_flow(turn).filter(|_| !by_name) {
        for command in commands {
            let rule = format!("`{flow}` has changed since it was started");
            turn.add_reason(Reason::Replaced { command, by: Command::CodeChange, rule });
        }
        turn.add_note(format!("`{flow}` has changed since it was started"));
        return (vec![Command::CodeChange], Vec::new());
    }
    let commands = apply_force_slot_filling(turn, commands, source);
    let mut kept: Vec<Command> = Vec::with_capacity(commands.len());
    let all: Vec<Command> = if commands.len() > 1 { commands.clone() } else { Vec::new() };
    for command in commands {
        match decide(turn, ctx, &kept, &all, command.clone(), source) {
            CommandDecision::Keep => kept.push(command),
            CommandDecision::Front => kept.insert(0, command),
            CommandDecision::Drop(rule) => turn.add_dropped(command, rule),
            CommandDecision::Replace(by, rule) => {
                turn.add_reason(Reason::Replaced { command, by: by.clone(), rule: rule.to_owned() });
                merge(&mut kept, by);
            }
        }
    }
    let kept = clarify_multiple_starts(turn, ctx, kept);
    let mut kept = route_to_waiting_agent(turn, ctx, kept, source);
    if kept.len() > 1 {
        drop_where(turn, &mut kept, "other commands can be handled", |command| {
            matches!(command, Command::CannotHandle { .. })
        });
    }
    let later = take_values_for_later(turn, ctx, &mut kept);
    if kept.contains(&Command::CancelFlow) {
        drop_answers_to_cancelled_flow(turn, ctx, &mut kept);
    }
    drop_answer_to_changed_question(turn, ctx, &mut kept);
    (kept, later)
}

/// Takes out the values for started flows before which another flow runs, so that it does not use them. If the message
/// cancels a flow, these are the values for all started flows: the cancelled one resets its slots when it ends. A value for
/// the active flow waits too if the message gives the same slot to a flow that interrupts it.
fn take_values_for_later(
    turn: &mut AdvanceContext<'_>,
    ctx: &CommandContext,
    kept: &mut Vec<Command>,
) -> Vec<(FlowId, KeptValue)> {
    let project = turn.project;
    let first = kept.iter().find_map(started).filter(|_| !ctx.agent_first && !kept.contains(&Command::CancelFlow));
    let all = std::mem::take(kept);
    let owner = |at: usize, name: &SlotName| ctx.started_owner(project, all.get(..at).unwrap_or_default(), &all, name);
    let for_started: Vec<&SlotName> = all
        .iter()
        .enumerate()
        .filter_map(|(at, command)| match command {
            Command::SetSlot { name, .. } if owner(at, name).is_some() => Some(name),
            _ => None,
        })
        .collect();
    let active = ctx.active.first().filter(|_| ctx.base.is_some() && first.is_some());
    let keeps = |name: &SlotName, value: &Json, by: FilledBy| {
        let value =
            project.slot(name.as_str()).map_or_else(|| value.clone(), |slot| slots::coerce(&slot.kind, value.clone()));
        KeptValue { slot: name.clone(), value, filled_by: by }
    };
    let mut later = Vec::new();
    for (at, command) in all.iter().enumerate() {
        match (command, active) {
            (Command::SetSlot { name, value, extractor }, _) => match (owner(at, name), active) {
                (None, Some(active)) if for_started.contains(&name) => {
                    later.push((active.clone(), keeps(name, value, *extractor)));
                }
                (Some(flow), _) if first.as_ref() != Some(&flow) && project.slot(name.as_str()).is_some() => {
                    if ctx.collects(project, std::slice::from_ref(&flow), name, true) {
                        later.push((flow, keeps(name, value, *extractor)));
                    } else {
                        turn.add_dropped(command.clone(), "the flow asks for the slot itself");
                    }
                }
                _ => kept.push(command.clone()),
            },
            (Command::CorrectSlots { corrected_slots, extractor }, Some(active)) => {
                let (shared, own): (Vec<_>, Vec<_>) =
                    corrected_slots.iter().cloned().partition(|(name, _)| for_started.contains(&name));
                later.extend(shared.iter().map(|(name, value)| (active.clone(), keeps(name, value, *extractor))));
                if !own.is_empty() {
                    kept.push(Command::CorrectSlots { corrected_slots: own, extractor: *extractor });
                }
            }
            _ => kept.push(command.clone()),
        }
    }
    later
}

/// An answer confirms what was shown. If the message also changes what the question shows, or restarts an agent, the
/// answer to the question is dropped.
fn drop_answer_to_changed_question(turn: &mut AdvanceContext<'_>, ctx: &CommandContext, kept: &mut Vec<Command>) {
    let Some(asked) = &ctx.asked_slot else { return };
    let answers = |command: &Command| matches!(command, Command::SetSlot { name, .. } if name == asked);
    if kept.len() < 2 || !kept.iter().any(answers) {
        return;
    }
    let mut changed: Vec<SlotName> = Vec::new();
    for command in kept.iter().filter(|command| !answers(command)) {
        match command {
            Command::SetSlot { name, value, .. } if !has_value(turn, name, value) => changed.push(name.clone()),
            Command::CorrectSlots { corrected_slots, .. } => {
                changed.extend(corrected_slots.iter().map(|(name, _)| name.clone()));
            }
            _ => {}
        }
    }
    let restarts_agent = kept.iter().any(|command| matches!(command, Command::RestartAgent { .. }));
    if restarts_agent && slot_dependencies::open_question_is_yes_no(turn)
        || slot_dependencies::open_question_shows(turn, &changed)
    {
        drop_where(
            turn,
            kept,
            "the message changes what the question shows, so it does not answer the question",
            answers,
        );
    }
}

/// `force_slot_filling`: drops every command that is not the answer to the question.
fn apply_force_slot_filling(
    turn: &mut AdvanceContext<'_>,
    commands: Vec<Command>,
    source: CommandSource,
) -> Vec<Command> {
    let forced = collect::open_collect_step(turn).filter(|collect| collect.force_slot_filling);
    let Some(collect) = forced.filter(|_| source == CommandSource::Model) else { return commands };
    let (mut kept, mut dropped) = (Vec::new(), Vec::new());
    for command in commands {
        let answers = matches!(&command, Command::SetSlot { name, .. } if *name == collect.slot);
        if answers { kept.push(command) } else { dropped.push(command) }
    }
    for command in dropped {
        turn.add_dropped(command, "the question accepts only its answer (force_slot_filling)");
    }
    if kept.is_empty() {
        kept.push(Command::CannotHandle { reason: "cannot_handle_default".to_owned() });
    }
    kept
}

/// Adds a replacement: corrections are merged into one command; a second `cannot handle` or `start flow` of the same
/// flow is dropped.
fn merge(kept: &mut Vec<Command>, command: Command) {
    match command {
        Command::CorrectSlots { corrected_slots: more, extractor } => {
            let first = kept.iter_mut().find_map(|command| match command {
                Command::CorrectSlots { corrected_slots, .. } => Some(corrected_slots),
                _ => None,
            });
            match first {
                Some(corrected) => corrected.extend(more),
                None => kept.push(Command::CorrectSlots { corrected_slots: more, extractor }),
            }
        }
        Command::CannotHandle { .. } if kept.iter().any(|one| matches!(one, Command::CannotHandle { .. })) => {}
        Command::StartFlow { .. } if kept.contains(&command) => {}
        other => kept.push(other),
    }
}

/// `clarify_on_multiple_start_flows`: several started flows while none is active become one `clarify` command.
fn clarify_multiple_starts(turn: &mut AdvanceContext<'_>, ctx: &CommandContext, kept: Vec<Command>) -> Vec<Command> {
    let options: Vec<FlowId> = kept.iter().filter_map(started).collect();
    let wanted = turn.project.config.compat.clarify_on_multiple_start_flows;
    if !wanted || options.len() < 2 || ctx.base.is_some() {
        return kept;
    }
    let by = Command::Clarify { options };
    let mut others = vec![by.clone()];
    for command in kept {
        if started(&command).is_some() {
            let rule = "several flows are started (clarify_on_multiple_start_flows)".to_owned();
            turn.add_reason(Reason::Replaced { command, by: by.clone(), rule });
        } else if !matches!(command, Command::SetSlot { .. }) {
            others.push(command);
        } else {
            turn.add_dropped(command, "no flow is started before the user has chosen one");
        }
    }
    others
}

/// While an agent waits, a message that cannot be handled or that only sets slots is passed to the agent.
fn route_to_waiting_agent(
    turn: &mut AdvanceContext<'_>,
    ctx: &CommandContext,
    mut kept: Vec<Command>,
    source: CommandSource,
) -> Vec<Command> {
    if !ctx.agent_waits || source == CommandSource::External {
        return kept;
    }
    let is_unhandled = |command: &Command| {
        matches!(command, Command::CannotHandle { reason } if reason != "cannot_handle_chitchat")
            && source != CommandSource::Check
    };
    for at in 0..kept.len() {
        if let Some(command) = kept.get_mut(at).filter(|command| is_unhandled(command)) {
            let command = std::mem::replace(command, Command::ContinueAgent);
            let rule = "an agent waits for the user".to_owned();
            turn.add_reason(Reason::Replaced { command, by: Command::ContinueAgent, rule });
        }
    }
    let only_fills = |command: &Command| matches!(command, Command::SetSlot { .. } | Command::CorrectSlots { .. });
    if kept.iter().all(only_fills) {
        turn.add_note("an agent waits for the user and no command prevents it: the agent continues");
        kept.push(Command::ContinueAgent);
    }
    let mut seen = false;
    kept.retain(|command| !matches!(command, Command::ContinueAgent) || !std::mem::replace(&mut seen, true));
    kept
}

/// Drops values for a cancelled flow, except those that a flow started by this message collects.
fn drop_answers_to_cancelled_flow(turn: &mut AdvanceContext<'_>, ctx: &CommandContext, kept: &mut Vec<Command>) {
    let project = turn.project;
    let starts: Vec<FlowId> = kept.iter().filter_map(started).collect();
    drop_where(turn, kept, "the flow that asks for it is cancelled", |command| match command {
        Command::CorrectSlots { .. } => true,
        Command::SetSlot { name, .. } => !ctx.collects(project, &starts, name, false),
        _ => false,
    });
}

fn has_value(turn: &AdvanceContext<'_>, name: &SlotName, value: &Json) -> bool {
    let value = turn.project.slot(name.as_str()).map(|slot| slots::coerce(&slot.kind, value.clone()));
    value.is_some_and(|value| slots::same_value(&value, turn.slot(name.as_str())))
}

fn drop_where(turn: &mut AdvanceContext<'_>, kept: &mut Vec<Command>, rule: &str, drops: impl Fn(&Command) -> bool) {
    let all = std::mem::take(kept);
    for command in all {
        if drops(&command) { turn.add_dropped(command, rule) } else { kept.push(command) }
    }
}

/// Applies the command's own rule. `kept` are the commands kept so far; `all` is the whole message when it has several.
fn decide(
    turn: &mut AdvanceContext<'_>,
    ctx: &CommandContext,
    kept: &[Command],
    all: &[Command],
    command: Command,
    source: CommandSource,
) -> CommandDecision {
    match &command {
        Command::StartFlow { flow } => start_flow::clean(turn, ctx, kept, flow, source),
        Command::SetSlot { name, value, extractor } => set_slot::clean(turn, ctx, kept, all, name, value, *extractor),
        Command::CorrectSlots { .. } => CommandDecision::Drop("corrections are created by command cleanup only"),
        Command::CancelFlow => cancel_flow::clean(ctx, kept),
        Command::Clarify { options } => clarify::clean(turn, ctx, kept, all, options, source),
        Command::ContinueAgent => agent::clean_continue(ctx, kept),
        Command::RestartAgent { agent_id } => agent::clean_restart(turn, agent_id),
        Command::CannotHandle { .. } => cannot_handle::clean(kept),
        Command::ChitChat => free_form::clean_chitchat(turn, kept),
        Command::Search => free_form::clean_once(kept, &command, CommandDecision::Front),
        Command::RepeatBotMessages | Command::SkipQuestion | Command::HumanHandoff => {
            free_form::clean_once(kept, &command, CommandDecision::Keep)
        }
        Command::CodeChange => CommandDecision::Drop("the dialogue engine itself detects whether a flow changed"),
        Command::Error { .. } | Command::Noop => CommandDecision::Keep,
        Command::StartPattern { flow } => match turn.project.flow(flow.as_str()) {
            Some(_) => CommandDecision::Keep,
            None => CommandDecision::Drop("there is no such pattern"),
        },
    }
}
