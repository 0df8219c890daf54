//! `action_run_slot_rejections`: checks the value of the slot that is being asked for.

use serde_json::{Map, Value as Json};

use super::{
    Reason,
    advance_context::AdvanceContext,
    collect, response,
    slots::{coerce, is_valid, same_value},
};
use crate::{
    conversation::{EventKind, FilledBy, Frame, PatternFrame},
    ids::{ActionName, ResponseName, SlotName},
    project::{Rejection, SlotType, builtin::RUN_SLOT_REJECTIONS},
};

/// The strings that models write for an unknown value. Case-sensitive, because `none` may be a valid answer.
const NULL_WORDS: [&str; 5] = ["None", "null", "undefined", "[missing]", "[missing information]"];

/// The result of a check.
enum SlotCheckResult<'a> {
    Valid(Json),
    /// A rejection applies.
    Rejected(&'a ResponseName, String),
    /// The value does not fit the type of the slot, or a rejection cannot be evaluated.
    TypeMismatch(&'static str, String),
}

/// Checks the value. A rejected value is cleared and the user is notified.
pub(super) fn run(turn: &mut AdvanceContext<'_>) {
    let Some((slot, rejections)) = checked_slot(turn) else {
        return turn.add_note("no slot is being asked for, so there is no value to check");
    };
    // Before the first assignment there is nothing to check.
    if !turn.conversation().slots.has_been_set(slot.as_str()) {
        return;
    }
    let stored = turn.slot(slot.as_str()).clone();
    let project = turn.project;
    let kind = project.slot(slot.as_str()).map_or(&SlotType::Any, |slot| &slot.kind);
    let value = match &stored {
        Json::String(text) if NULL_WORDS.contains(&text.as_str()) && !is_declared(kind, text) => Json::Null,
        _ => coerce(kind, stored.clone()),
    };
    if value.is_null() {
        if !stored.is_null() {
            change(turn, &slot, Json::Null);
        }
        return;
    }
    match check_value(turn, kind, value, rejections) {
        SlotCheckResult::Valid(value) if same_value(&value, &stored) && value.is_string() == stored.is_string() => {}
        SlotCheckResult::Valid(value) => change(turn, &slot, value),
        SlotCheckResult::Rejected(response, because) => {
            refuse(turn, &slot, because);
            turn.utter(response.as_str(), &Map::from_iter([("value".to_owned(), stored)]));
        }
        SlotCheckResult::TypeMismatch(response, because) => {
            refuse(turn, &slot, because);
            turn.utter(response, &Map::from_iter([("value".to_owned(), stored)]));
        }
    }
}

/// A flow ends before the validation of a slot ran: a value that it would have rejected is cleared, even if the slot is
/// persisted.
pub(super) fn empty_unchecked_slot(turn: &mut AdvanceContext<'_>, frame: &Frame) {
    let project = turn.project;
    let Some(PatternFrame::ValidateSlot { validate, .. }) = frame.pattern() else { return };
    let Some(slot) = project.slot(validate.as_str()) else { return };
    let value = turn.slot(validate.as_str()).clone();
    let rejections = slot.validation.as_ref().map_or(&[][..], |validation| validation.rejections.as_slice());
    if value.is_null()
        || matches!(check_value(turn, &slot.kind, coerce(&slot.kind, value), rejections), SlotCheckResult::Valid(_))
    {
        return;
    }
    turn.add_note(format!("the value of `{validate}` would have been rejected: the slot is cleared"));
    let (name, filled_by) = (validate.clone(), Some(FilledBy::Flow));
    turn.emit_at(frame, EventKind::Slot { name, value: Json::Null, filled_by, reset: false });
}

/// The slot to check and its rejections. Those of a question are defined in its collect step.
fn checked_slot<'a>(turn: &AdvanceContext<'a>) -> Option<(SlotName, &'a [Rejection])> {
    let project = turn.project;
    match turn.stack.top()?.pattern()? {
        PatternFrame::CollectInformation { collect, .. } => {
            let step = collect::open_collect_step(turn);
            Some((collect.clone(), step.map_or(&[], |collect| collect.rejections.as_slice())))
        }
        PatternFrame::ValidateSlot { validate, .. } => {
            let validation = project.slot(validate.as_str()).and_then(|slot| slot.validation.as_ref());
            Some((validate.clone(), validation.map_or(&[], |validation| validation.rejections.as_slice())))
        }
        _ => None,
    }
}

fn check_value<'a>(
    turn: &mut AdvanceContext<'_>,
    kind: &SlotType,
    value: Json,
    rejections: &'a [Rejection],
) -> SlotCheckResult<'a> {
    if !is_valid(kind, &value)
        && let Some(response) = response::type_rejection_response(kind)
    {
        return SlotCheckResult::TypeMismatch(
            response,
            format!("the value is not valid for a slot of type {}", kind.name()),
        );
    }
    for rejection in rejections {
        let outcome = turn.scope().eval(&rejection.condition);
        if let Some(error) = outcome.error {
            // A rejection that cannot be evaluated rejects every value; the trace reports it.
            turn.add_reason(Reason::Condition { condition: rejection.condition.text().to_owned(), error });
            return SlotCheckResult::TypeMismatch(
                response::INTERNAL_ERROR,
                format!("{} cannot be evaluated", rejection.condition.text()),
            );
        }
        if outcome.holds {
            return SlotCheckResult::Rejected(&rejection.utter, rejection.condition.text().to_owned());
        }
    }
    SlotCheckResult::Valid(value)
}

/// Whether the word is a declared value of a categorical slot, for example `none`.
fn is_declared(kind: &SlotType, word: &str) -> bool {
    matches!(kind, SlotType::Categorical(_)) && is_valid(kind, &Json::String(word.to_owned()))
}

fn refuse(turn: &mut AdvanceContext<'_>, slot: &SlotName, because: String) {
    turn.add_reason(Reason::Rejected { slot: slot.clone(), cause: because });
    change(turn, slot, Json::Null);
}

fn change(turn: &mut AdvanceContext<'_>, slot: &SlotName, value: Json) {
    turn.emit_in_top_frame(EventKind::Action { name: ActionName::from(RUN_SLOT_REJECTIONS) });
    turn.set_slot(slot, value, FilledBy::Flow);
}
