//! `set slot`: an answer, or a correction of an earlier one.

use serde_json::Value as Json;

use super::{CommandContext, CommandDecision, command_context::may_fill};
use crate::{
    conversation::{Command, FilledBy},
    dialogue::{slots, turn::Turn, walked},
    ids::SlotName,
    project::FillPolicy,
};

/// Whether the slot takes the value, and whether that corrects an earlier one.
pub(super) fn clean(
    turn: &mut Turn<'_>,
    ctx: &CommandContext,
    kept: &[Command],
    all: &[Command],
    name: &SlotName,
    value: &Json,
    by: FilledBy,
) -> CommandDecision {
    let cannot = |rule: &'static str| {
        CommandDecision::Replace(Command::CannotHandle { reason: format!("{rule}: {name}") }, rule)
    };
    let Some(slot) = turn.project.slot(name.as_str()) else { return cannot("there is no such slot") };
    let set_before = |command: &Command| matches!(command, Command::SetSlot { name: other, .. } if other == name);
    let is_set = kept.iter().any(set_before);
    if !may_fill(turn, ctx, name, by, all) {
        let rule = "the slot's mappings do not let this source fill it";
        return if is_set { CommandDecision::Drop(rule) } else { cannot(rule) };
    }
    if is_set {
        return CommandDecision::Drop("the message fills the slot once");
    }
    let filled_by = turn.conversation().slots.state(name.as_str()).and_then(|state| state.filled_by);
    if filled_by == Some(FilledBy::Nlu) && by == FilledBy::Llm && !slots::allows_correction_of_nlu(slot) {
        return CommandDecision::Drop("an intent message filled the slot, and the model may not change that");
    }
    let is_asked = ctx.asked.as_ref() == Some(name);
    let eligible = turn.conversation().slots.has_been_set(name.as_str()) && !turn.slot(name.as_str()).is_null();
    let corrects = eligible && !is_asked && ctx.collects(turn.project, &ctx.active, name, false);
    if by == FilledBy::Llm && !is_asked {
        match slot.fill {
            FillPolicy::WhenAsked if !corrects => {
                return CommandDecision::Drop("the slot takes a value only when it is asked for (`fill: when_asked`)");
            }
            FillPolicy::Once if is_taken(ctx, kept, all, name, value) => {
                return CommandDecision::Drop("the message gives this value to another slot (`fill: once`)");
            }
            _ => {}
        }
    }
    if !corrects {
        return CommandDecision::Keep;
    }
    let value = slots::coerced(&slot.kind, value.clone());
    if slots::same(&value, turn.slot(name.as_str())) {
        return CommandDecision::Drop("the slot has this value already");
    }
    let corrected = kept.iter().any(|command| {
        matches!(command, Command::CorrectSlots { corrected_slots, .. } if corrected_slots.iter().any(|(one, _)| one == name))
    });
    if corrected {
        return CommandDecision::Drop("the slot is corrected already");
    }
    let corrected_slots = vec![(name.clone(), value)];
    CommandDecision::Replace(
        Command::CorrectSlots { corrected_slots, extractor: by },
        "the slot was filled before: this is a correction",
    )
}

/// Whether another slot takes the same value out of the same message: one that is asked for, or one that was named before.
fn is_taken(ctx: &CommandContext, kept: &[Command], all: &[Command], name: &SlotName, value: &Json) -> bool {
    let alike = |other: &Json| match (other, value) {
        (Json::String(other), Json::String(value)) => other.trim().to_lowercase() == value.trim().to_lowercase(),
        _ => slots::same(other, value),
    };
    let takes = |command: &Command| match command {
        Command::SetSlot { name: other, value, .. } => other != name && alike(value),
        Command::CorrectSlots { corrected_slots, .. } => {
            corrected_slots.iter().any(|(other, value)| other != name && alike(value))
        }
        _ => false,
    };
    let answers =
        |command: &&Command| matches!(command, Command::SetSlot { name, .. } if ctx.asked.as_ref() == Some(name));
    !value.is_null() && (kept.iter().any(takes) || all.iter().filter(answers).any(takes))
}

/// Sets the slot, if somebody asks for it.
pub(super) fn run(
    turn: &mut Turn<'_>,
    ctx: &CommandContext,
    name: SlotName,
    value: Json,
    by: FilledBy,
    validated: &mut Vec<SlotName>,
) {
    let Some(slot) = turn.project.slot(name.as_str()) else { return };
    let value = slots::coerced(&slot.kind, value);
    let command = |value: &Json| Command::SetSlot { name: name.clone(), value: value.clone(), extractor: by };
    if slots::same(&value, turn.slot(name.as_str())) {
        let command = command(&value);
        return turn.dropped(command, "the slot has this value already");
    }
    let asked_for = ctx.asked.as_ref() == Some(&name)
        || ctx.collects(turn.project, &ctx.active, &name, true)
        || ctx.collects(turn.project, &ctx.started, &name, true);
    if !asked_for {
        let command = command(&value);
        return turn.dropped(command, "no flow under way asks for the slot now");
    }
    turn.set_slot(&name, value, by);
    if ctx.asked.as_ref() == Some(&name)
        && let Some(base) = ctx.base_in(turn)
    {
        walked::is_answered(turn, base, &name);
    }
    validated.push(name);
}
