//! `action_run_slot_rejections`: whether the value of the slot that is asked for may stay.

use serde_json::{Map, Value as Json};

use super::{
    Reason, collect, reply,
    slots::{coerced, is_valid, same},
    turn::Turn,
};
use crate::{
    conversation::{EventKind, FilledBy, Frame, PatternFrame},
    ids::{ActionName, ResponseName, SlotName},
    project::{Rejection, SlotType, builtin::RUN_SLOT_REJECTIONS},
};

/// What models write for a value they do not know; the case counts, `none` may well be an answer.
const NOTHING: [&str; 5] = ["None", "null", "undefined", "[missing]", "[missing information]"];

/// What the check came to.
enum Verdict<'a> {
    Fine(Json),
    /// A rejection held, or could not be evaluated.
    Rejected(&'a ResponseName, String),
    /// The value does not fit the type.
    Misfit(&'static str, String),
}

/// Checks the value; a refused one is emptied and the user is told why.
pub(super) fn run(turn: &mut Turn<'_>) {
    let Some((slot, rejections)) = subject(turn) else {
        return turn.note("there is no question whose answer could be checked");
    };
    // Before the first assignment there is nothing to check, and after it the question is not the first.
    if !turn.conversation().slots.has_been_set(slot.as_str()) {
        return;
    }
    let stored = turn.slot(slot.as_str()).clone();
    let project = turn.project;
    let kind = project.slot(slot.as_str()).map_or(&SlotType::Any, |slot| &slot.kind);
    let value = match &stored {
        Json::String(text) if NOTHING.contains(&text.as_str()) && !is_declared(kind, text) => Json::Null,
        _ => coerced(kind, stored.clone()),
    };
    if value.is_null() {
        if !stored.is_null() {
            change(turn, &slot, Json::Null);
        }
        return;
    }
    match judge(turn, kind, value, rejections) {
        Verdict::Fine(value) if same(&value, &stored) && value.is_string() == stored.is_string() => {}
        Verdict::Fine(value) => change(turn, &slot, value),
        Verdict::Rejected(response, because) => {
            refuse(turn, &slot, because);
            turn.utter(response.as_str(), &Map::from_iter([("value".to_owned(), stored)]));
        }
        Verdict::Misfit(response, because) => {
            refuse(turn, &slot, because);
            turn.utter(response, &Map::from_iter([("value".to_owned(), stored)]));
        }
    }
}

/// A check goes with its flow before it was made: what it would have refused does not stay, also where the slot persists.
pub(super) fn leave(turn: &mut Turn<'_>, frame: &Frame) {
    let project = turn.project;
    let Some(PatternFrame::ValidateSlot { validate, .. }) = frame.pattern() else { return };
    let Some(slot) = project.slot(validate.as_str()) else { return };
    let value = turn.slot(validate.as_str()).clone();
    let rejections = slot.validation.as_ref().map_or(&[][..], |validation| validation.rejections.as_slice());
    if value.is_null() || matches!(judge(turn, &slot.kind, coerced(&slot.kind, value), rejections), Verdict::Fine(_)) {
        return;
    }
    turn.note(format!("`{validate}` would have been refused: it is emptied"));
    let (name, filled_by) = (validate.clone(), Some(FilledBy::Flow));
    turn.emit_at(frame, EventKind::Slot { name, value: Json::Null, filled_by, reset: false });
}

/// The slot in question and what is refused for it. The rejections of a question stand in the step that asks.
fn subject<'a>(turn: &Turn<'a>) -> Option<(SlotName, &'a [Rejection])> {
    let project = turn.project;
    match turn.stack.top()?.pattern()? {
        PatternFrame::CollectInformation { collect, .. } => {
            let step = collect::asking_step(turn);
            Some((collect.clone(), step.map_or(&[], |collect| collect.rejections.as_slice())))
        }
        PatternFrame::ValidateSlot { validate, .. } => {
            let validation = project.slot(validate.as_str()).and_then(|slot| slot.validation.as_ref());
            Some((validate.clone(), validation.map_or(&[], |validation| validation.rejections.as_slice())))
        }
        _ => None,
    }
}

fn judge<'a>(turn: &mut Turn<'_>, kind: &SlotType, value: Json, rejections: &'a [Rejection]) -> Verdict<'a> {
    if !is_valid(kind, &value)
        && let Some(response) = reply::rejection_of(kind)
    {
        return Verdict::Misfit(response, format!("a {} slot takes no such value", kind.name()));
    }
    for rejection in rejections {
        let outcome = turn.view().eval(&rejection.condition);
        if let Some(trouble) = outcome.error {
            // A check that cannot be made lets nothing through, and the trace tells the author.
            turn.because(Reason::Condition { condition: rejection.condition.text().to_owned(), trouble });
            return Verdict::Misfit(
                reply::INTERNAL_ERROR,
                format!("{} cannot be evaluated", rejection.condition.text()),
            );
        }
        if outcome.holds {
            return Verdict::Rejected(&rejection.utter, rejection.condition.text().to_owned());
        }
    }
    Verdict::Fine(value)
}

/// Whether the word is a value that the author declared, `none` for instance.
fn is_declared(kind: &SlotType, word: &str) -> bool {
    matches!(kind, SlotType::Categorical(_)) && is_valid(kind, &Json::String(word.to_owned()))
}

fn refuse(turn: &mut Turn<'_>, slot: &SlotName, because: String) {
    turn.because(Reason::Rejected { slot: slot.clone(), because });
    change(turn, slot, Json::Null);
}

fn change(turn: &mut Turn<'_>, slot: &SlotName, value: Json) {
    turn.emit_here(EventKind::Action { name: ActionName::from(RUN_SLOT_REJECTIONS) });
    turn.set_slot(slot, value, FilledBy::Flow);
}
