//! Asking for a slot: entering a collect step, and what is being asked now.

use serde_json::Value as Json;

use super::{
    patterns,
    turn::{Turn, Walk},
};
use crate::{
    conversation::{FilledBy, FrameKind, PatternFrame},
    ids::SlotName,
    project::{Collect, Step, StepKind},
};

/// Enters a collect step (dialogue.md 2.4): the pattern on top decides whether to ask.
pub(super) fn enter(turn: &mut Turn<'_>, step: &Step, collect: &Collect) -> Walk {
    turn.remember_step();
    if !can_ask(turn, collect) {
        return turn.fail(&format!(
            "slot `{}` cannot be asked for: there is neither `{}` nor `{}`",
            collect.slot, collect.utter, collect.action
        ));
    }
    if collect.ask_before_filling {
        turn.set_slot(&collect.slot, Json::Null, FilledBy::Flow);
    }
    let context = PatternFrame::CollectInformation {
        collect: collect.slot.clone(),
        utter: collect.utter.clone(),
        collect_action: collect.action.clone(),
        step_id: step.id.clone(),
    };
    if turn.push_pattern(patterns::COLLECT_INFORMATION, context) {
        Walk::On
    } else {
        turn.fail("a question could not be put on the stack")
    }
}

fn can_ask(turn: &Turn<'_>, collect: &Collect) -> bool {
    turn.project.response(collect.utter.as_str()).is_some()
        || turn.project.lists_action(collect.action.as_str())
        || turn.project.slot(collect.slot.as_str()).is_some_and(|slot| !slot.initial.is_null())
}

/// The slot that the frame on top asks for.
pub(super) fn asked<'t>(turn: &'t Turn<'_>) -> Option<&'t SlotName> {
    match &turn.stack.last()?.kind {
        FrameKind::Pattern { context: PatternFrame::CollectInformation { collect, .. } } => Some(collect),
        FrameKind::Pattern { context: PatternFrame::ValidateSlot { validate, .. } } => Some(validate),
        _ => None,
    }
}

/// The collect step behind the question on top, if it is one.
pub(super) fn asking_step<'a>(turn: &Turn<'a>) -> Option<&'a Collect> {
    let [.., below, top] = turn.stack.as_slice() else { return None };
    let FrameKind::Pattern { context: PatternFrame::CollectInformation { step_id, .. } } = &top.kind else {
        return None;
    };
    let project = turn.project;
    match &project.flow(below.flow_id.as_str())?.step(step_id.as_str())?.kind {
        StepKind::Collect(collect) => Some(collect),
        _ => None,
    }
}
