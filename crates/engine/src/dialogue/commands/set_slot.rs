//! `set slot`: an answer, or a correction of an earlier one.

use serde_json::Value as Json;

use super::{CommandContext, CommandDecision, command_context::may_fill};
use crate::{
    conversation::{Command, FilledBy},
    dialogue::{advance_context::AdvanceContext, slot_dependencies, slots},
    ids::SlotName,
    project::FillPolicy,
};

/// Decides whether the slot accepts the value, and whether it corrects an earlier one.
pub(super) fn clean(
    turn: &mut AdvanceContext<'_>,
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
    let owner = ctx.started_owner(turn.project, kept, all, name);
    let set_before = |(at, command): (usize, &Command)| {
        matches!(command, Command::SetSlot { name: other, .. } if other == name)
            && ctx.started_owner(turn.project, kept.get(..at).unwrap_or_default(), all, name) == owner
    };
    let is_set = kept.iter().enumerate().any(set_before);
    if !may_fill(turn, ctx, name, by, all) {
        let rule = "the slot's mappings do not let this source fill it";
        return if is_set { CommandDecision::Drop(rule) } else { cannot(rule) };
    }
    if is_set {
        return CommandDecision::Drop("the message sets the slot once");
    }
    let filled_by = turn.conversation().slots.state(name.as_str()).and_then(|state| state.filled_by);
    if filled_by == Some(FilledBy::Nlu) && by == FilledBy::Llm && !slots::allows_correction_of_nlu(slot) {
        return CommandDecision::Drop(
            "an intent message set the slot, and the model may not correct it (allow_nlu_correction)",
        );
    }
    let is_asked = ctx.asked_slot.as_ref() == Some(name);
    if is_asked && owner.is_none() && turn.is_before_question() {
        return CommandDecision::Drop("the message was written before its sender got the question");
    }
    let eligible = turn.conversation().slots.has_been_set(name.as_str()) && !turn.slot(name.as_str()).is_null();
    let corrects = eligible && owner.is_none() && !is_asked && ctx.collects(turn.project, &ctx.active, name, false);
    if by == FilledBy::Llm && !is_asked {
        match slot.fill {
            FillPolicy::WhenAsked if !corrects => {
                return CommandDecision::Drop(
                    "the slot accepts a value only when it is asked for (`fill: when_asked`)",
                );
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
    let value = slots::coerce(&slot.kind, value.clone());
    if slots::same_value(&value, turn.slot(name.as_str())) {
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

/// Whether another slot gets the same value from the message: the slot that is being asked for, or one of an earlier
/// command.
fn is_taken(ctx: &CommandContext, kept: &[Command], all: &[Command], name: &SlotName, value: &Json) -> bool {
    let alike = |other: &Json| match (other, value) {
        (Json::String(other), Json::String(value)) => other.trim().to_lowercase() == value.trim().to_lowercase(),
        _ => slots::same_value(other, value),
    };
    let takes = |command: &Command| match command {
        Command::SetSlot { name: other, value, .. } => other != name && alike(value),
        Command::CorrectSlots { corrected_slots, .. } => {
            corrected_slots.iter().any(|(other, value)| other != name && alike(value))
        }
        _ => false,
    };
    let answers =
        |command: &&Command| matches!(command, Command::SetSlot { name, .. } if ctx.asked_slot.as_ref() == Some(name));
    !value.is_null() && (kept.iter().any(takes) || all.iter().filter(answers).any(takes))
}

/// Sets the slot if an active or started flow asks for it.
pub(super) fn run(
    turn: &mut AdvanceContext<'_>,
    ctx: &CommandContext,
    name: SlotName,
    value: Json,
    by: FilledBy,
    validated: &mut Vec<SlotName>,
) {
    let Some(slot) = turn.project.slot(name.as_str()) else { return };
    let value = slots::coerce(&slot.kind, value);
    let command = |value: &Json| Command::SetSlot { name: name.clone(), value: value.clone(), extractor: by };
    if slots::same_value(&value, turn.slot(name.as_str())) {
        let command = command(&value);
        return turn.add_dropped(command, "the slot has this value already");
    }
    let asked_for = ctx.asked_slot.as_ref() == Some(&name)
        || ctx.collects(turn.project, &ctx.active, &name, true)
        || ctx.collects(turn.project, &ctx.started, &name, true);
    if !asked_for {
        let command = command(&value);
        return turn.add_dropped(command, "no active flow asks for the slot now");
    }
    turn.set_slot(&name, value, by);
    if ctx.asked_slot.as_ref() == Some(&name)
        && let Some(base) = ctx.base_in(turn)
    {
        slot_dependencies::update_snapshot(turn, base, &name);
    }
    validated.push(name);
}
