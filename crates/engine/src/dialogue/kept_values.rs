//! Values that a message gives for a flow which does not run first: each value belongs to the flow that it was said for.
//! They are kept with the flow and set when it begins or resumes, so that no flow before it uses them.

use super::{advance_context::AdvanceContext, chains, commands, slot_dependencies::resuming_base, slots::same_value};
use crate::{
    conversation::{Command, KeptValue},
    ids::{FlowId, SlotName},
};

/// Keeps a value for a flow on the stack.
pub(super) fn keep(turn: &mut AdvanceContext<'_>, flow: &FlowId, value: KeptValue) {
    let base = chains::chain_of(&turn.stack, flow).map(|chain| chain.start);
    let Some(frame) = base.and_then(|base| turn.stack.get_mut(base)) else {
        let KeptValue { slot: name, value, filled_by: extractor } = value;
        return turn
            .add_dropped(Command::SetSlot { name, value, extractor }, "the flow that asks for it has not started");
    };
    frame.kept_values.retain(|kept| kept.slot != value.slot);
    let note = format!("`{}` is kept for `{flow}`", value.slot);
    frame.kept_values.push(value);
    turn.add_note(note);
}

/// The chain on top begins or resumes: sets the values that are kept for it. Returns whether there were any.
pub(super) fn set(turn: &mut AdvanceContext<'_>) -> bool {
    let Some(base) = resuming_base(turn, |frame| !frame.kept_values.is_empty()) else { return false };
    let values = turn.stack.get_mut(base).map(|frame| std::mem::take(&mut frame.kept_values)).unwrap_or_default();
    let mut names: Vec<SlotName> = Vec::new();
    for KeptValue { slot, value, filled_by } in values {
        if !same_value(&value, turn.slot(slot.as_str())) {
            turn.set_slot(&slot, value, filled_by);
        }
        names.push(slot);
    }
    commands::push_validations(turn, &names);
    true
}
