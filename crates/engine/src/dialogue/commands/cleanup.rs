//! Which commands of a message survive, and why the others do not. Every drop and every replacement is a line in `why`.

use serde_json::Value as Json;

use super::{
    CommandContext, CommandDecision, Source, agent, cancel_flow, cannot_handle, clarify, free_form, set_slot,
    start_flow, started,
};
use crate::{
    conversation::Command,
    dialogue::{Reason, code_change, collect, slots, turn::Turn, walked},
    ids::{FlowId, SlotName},
};

/// The commands of one message that survive.
pub(super) fn clean(turn: &mut Turn<'_>, ctx: &CommandContext, commands: Vec<Command>, source: Source) -> Vec<Command> {
    let by_name = commands.iter().any(|command| matches!(command, Command::StartPattern { .. }));
    if let Some(flow) = code_change::changed(turn).filter(|_| !by_name) {
        for command in commands {
            let rule = format!("`{flow}` has changed since it was started");
            turn.because(Reason::Replaced { command, by: Command::CodeChange, rule });
        }
        turn.note(format!("`{flow}` has changed since it was started"));
        return vec![Command::CodeChange];
    }
    let commands = forced(turn, commands, source);
    let mut kept: Vec<Command> = Vec::with_capacity(commands.len());
    let all: Vec<Command> = if commands.len() > 1 { commands.clone() } else { Vec::new() };
    for command in commands {
        match judge(turn, ctx, &kept, &all, command.clone(), source) {
            CommandDecision::Keep => kept.push(command),
            CommandDecision::Front => kept.insert(0, command),
            CommandDecision::Drop(rule) => turn.dropped(command, rule),
            CommandDecision::Replace(by, rule) => {
                turn.because(Reason::Replaced { command, by: by.clone(), rule: rule.to_owned() });
                merge(&mut kept, by);
            }
        }
    }
    let kept = asked_which(turn, ctx, kept);
    let mut kept = with_agent(turn, ctx, kept, source);
    if kept.len() > 1 {
        drop_where(turn, &mut kept, "other commands can be handled", |command| {
            matches!(command, Command::CannotHandle { .. })
        });
    }
    if kept.contains(&Command::CancelFlow) {
        forget_answers(turn, ctx, &mut kept);
    }
    not_yet_shown(turn, ctx, &mut kept);
    kept
}

/// A yes is a yes to what was shown: a message that changes it, or lets an agent look anew, does not answer the question as well.
fn not_yet_shown(turn: &mut Turn<'_>, ctx: &CommandContext, kept: &mut Vec<Command>) {
    let Some(asked) = &ctx.asked else { return };
    let answers = |command: &Command| matches!(command, Command::SetSlot { name, .. } if name == asked);
    if kept.len() < 2 || !kept.iter().any(answers) {
        return;
    }
    let mut changed: Vec<SlotName> = Vec::new();
    for command in kept.iter().filter(|command| !answers(command)) {
        match command {
            Command::SetSlot { name, value, .. } if !has_already(turn, name, value) => changed.push(name.clone()),
            Command::CorrectSlots { corrected_slots, .. } => {
                changed.extend(corrected_slots.iter().map(|(name, _)| name.clone()));
            }
            _ => {}
        }
    }
    let begins_anew = kept.iter().any(|command| matches!(command, Command::RestartAgent { .. }));
    if begins_anew && walked::asks_now_for_a_yes(turn) || walked::is_confirmed_now(turn, &changed) {
        drop_where(turn, kept, "the message changes what the question shows, so it does not answer it", answers);
    }
}

/// While a question takes nothing but its answer, everything else is dropped.
fn forced(turn: &mut Turn<'_>, commands: Vec<Command>, source: Source) -> Vec<Command> {
    let forced = collect::asking_step(turn).filter(|collect| collect.force_slot_filling);
    let Some(collect) = forced.filter(|_| source == Source::Model) else { return commands };
    let (mut kept, mut dropped) = (Vec::new(), Vec::new());
    for command in commands {
        let answers = matches!(&command, Command::SetSlot { name, .. } if *name == collect.slot);
        if answers { kept.push(command) } else { dropped.push(command) }
    }
    for command in dropped {
        turn.dropped(command, "the question takes nothing but its answer (force_slot_filling)");
    }
    if kept.is_empty() {
        kept.push(Command::CannotHandle { reason: "cannot_handle_default".to_owned() });
    }
    kept
}

/// Corrections become one command; a second of its kind is dropped, as is a second "cannot handle".
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

/// Where the project wants it: several flows while none is under way become the question which of them is meant.
fn asked_which(turn: &mut Turn<'_>, ctx: &CommandContext, kept: Vec<Command>) -> Vec<Command> {
    let options: Vec<FlowId> = kept.iter().filter_map(started).collect();
    let wanted = turn.project.config.compat.clarify_on_multiple_start_flows;
    if !wanted || options.len() < 2 || ctx.base.is_some() {
        return kept;
    }
    let by = Command::Clarify { options };
    let mut others = vec![by.clone()];
    for command in kept {
        if started(&command).is_some() {
            let rule = "several flows were named (clarify_on_multiple_start_flows)".to_owned();
            turn.because(Reason::Replaced { command, by: by.clone(), rule });
        } else if !matches!(command, Command::SetSlot { .. }) {
            others.push(command);
        } else {
            turn.dropped(command, "no flow is started before it is known which");
        }
    }
    others
}

/// While an agent waits, what nobody can handle is for the agent, and so is a message that only fills slots.
fn with_agent(turn: &mut Turn<'_>, ctx: &CommandContext, mut kept: Vec<Command>, source: Source) -> Vec<Command> {
    if !ctx.agent_waits || source == Source::External {
        return kept;
    }
    let is_unhandled = |command: &Command| {
        matches!(command, Command::CannotHandle { reason } if reason != "cannot_handle_chitchat")
            && source != Source::Check
    };
    for at in 0..kept.len() {
        if let Some(command) = kept.get_mut(at).filter(|command| is_unhandled(command)) {
            let command = std::mem::replace(command, Command::ContinueAgent);
            let rule = "an agent waits for the user".to_owned();
            turn.because(Reason::Replaced { command, by: Command::ContinueAgent, rule });
        }
    }
    let only_fills = |command: &Command| matches!(command, Command::SetSlot { .. } | Command::CorrectSlots { .. });
    if kept.iter().all(only_fills) {
        turn.note("an agent waits for the user, and no command speaks against it: it goes on");
        kept.push(Command::ContinueAgent);
    }
    let mut seen = false;
    kept.retain(|command| !matches!(command, Command::ContinueAgent) || !std::mem::replace(&mut seen, true));
    kept
}

/// What was said to the flow that is given up is of no use any more, but for what a flow asks for that begins with this message.
fn forget_answers(turn: &mut Turn<'_>, ctx: &CommandContext, kept: &mut Vec<Command>) {
    let project = turn.project;
    let starts: Vec<FlowId> = kept.iter().filter_map(started).collect();
    drop_where(turn, kept, "the flow that asks for it is cancelled", |command| match command {
        Command::CorrectSlots { .. } => true,
        Command::SetSlot { name, .. } => !ctx.collects(project, &starts, name, false),
        _ => false,
    });
}

fn has_already(turn: &Turn<'_>, name: &SlotName, value: &Json) -> bool {
    let value = turn.project.slot(name.as_str()).map(|slot| slots::coerced(&slot.kind, value.clone()));
    value.is_some_and(|value| slots::same(&value, turn.slot(name.as_str())))
}

fn drop_where(turn: &mut Turn<'_>, kept: &mut Vec<Command>, rule: &str, goes: impl Fn(&Command) -> bool) {
    let all = std::mem::take(kept);
    for command in all {
        if goes(&command) { turn.dropped(command, rule) } else { kept.push(command) }
    }
}

/// What the command's own rule says. `kept` are those that survived so far, `all` the whole message when it has several.
fn judge(
    turn: &mut Turn<'_>,
    ctx: &CommandContext,
    kept: &[Command],
    all: &[Command],
    command: Command,
    source: Source,
) -> CommandDecision {
    match &command {
        Command::StartFlow { flow } => start_flow::clean(turn, ctx, kept, flow, source),
        Command::SetSlot { name, value, extractor } => set_slot::clean(turn, ctx, kept, all, name, value, *extractor),
        Command::CorrectSlots { .. } => {
            CommandDecision::Drop("corrections are made by cleaning, nobody may ask for them")
        }
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
        Command::CodeChange => CommandDecision::Drop("the engine itself sees whether a flow changed"),
        Command::Error { .. } | Command::Noop => CommandDecision::Keep,
        Command::StartPattern { flow } => match turn.project.flow(flow.as_str()) {
            Some(_) => CommandDecision::Keep,
            None => CommandDecision::Drop("there is no such pattern"),
        },
    }
}
