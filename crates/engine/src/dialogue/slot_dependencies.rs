//! Slot dependencies: which slots the visited steps of a flow have used. When such a slot changes, what the step looked
//! up, decided or showed is outdated, and the flow goes back to the first of these steps.
//!
//! | step | slots it has used |
//! | --- | --- |
//! | tool call | the slots of `mapping.input` |
//! | custom action | the slots that the domain lists as its `inputs`; none without `inputs` |
//! | branches | the slots of their conditions |
//! | confirmation (a collect step that always asks and decides what follows) | the slots that its question and the responses directly before it show |
//! | call of a flow | those of the steps of that flow |
//!
//! For a call that follows a confirmation, the flow goes back to the confirmation: no effect happens with a value that
//! was not shown. Values that the flow's own steps, actions and agents set never lead back, because the author
//! determines their order.

use std::ops::Range;

use super::{
    advance_context::AdvanceContext,
    chains, collect, completed_steps,
    frame_end::{for_each_step, for_each_step_kind},
    patterns::{self, COLLECT_INFORMATION},
};
use crate::{
    conversation::{Frame, FrameKind, PatternFrame, Position},
    ids::{SlotName, StepId},
    project::{ActionReference, Call, Collect, NextStep, Project, SlotType, Step, StepKind},
};

/// A set of changed slots.
#[derive(Clone, Copy)]
pub(super) struct ChangedSlots<'a> {
    /// All changed slots.
    pub(super) slots: &'a [SlotName],
    /// Those that are empty now.
    pub(super) emptied: &'a [SlotName],
    /// Whether another flow changed them: then a read-only or idempotent call whose outputs were overwritten runs
    /// again.
    pub(super) elsewhere: bool,
}

/// Whether a step is recorded in the visited steps of its frame.
pub(super) fn is_recorded(step: &Step) -> bool {
    matches!(step.kind, StepKind::Collect(_) | StepKind::Call(_) | StepKind::Action(_))
        || matches!(step.next, NextStep::Branch { .. })
}

/// The first step of the chain at `base` that asks for or has used a changed slot, as frame index and step. The slot
/// `answered` counts only for steps that ask for it.
pub(super) fn first_affected_step(
    turn: &AdvanceContext<'_>,
    base: usize,
    changed: ChangedSlots<'_>,
    answered: Option<&SlotName>,
) -> Option<(usize, StepId)> {
    let project = turn.project;
    let mut shown = None;
    let mut confirmed = None;
    for at in chains::chain(&turn.stack, base) {
        let Some(frame) = turn.stack.get(at).filter(|frame| is_active_flow(frame)) else { continue };
        let Some(flow) = project.flow(frame.flow_id.as_str()) else { continue };
        for id in &frame.visited_steps {
            let Some(step) = flow.step(id.as_str()) else { continue };
            let here = || Some((at, id.clone()));
            let inside = frame.at == Position::At(id.clone());
            if asks_for_changed(project, step, inside, changed, answered) {
                return here();
            }
            match slot_use(project, step, inside, changed) {
                Some(SlotUse::Decided) => return here(),
                Some(SlotUse::Called) => return confirmed.or_else(here),
                Some(SlotUse::Shown) => shown = shown.or_else(here),
                None => {}
            }
            if let StepKind::Collect(collect) = &step.kind {
                let confirms = is_confirmation(project, collect);
                if confirms && shown.is_some() {
                    return shown;
                }
                shown = None;
                confirmed = confirmed.filter(|_| !confirms).or_else(|| here().filter(|_| confirms));
            }
        }
    }
    None
}

pub(super) fn is_active_flow(frame: &Frame) -> bool {
    frame.is_flow() && frame.at != Position::End
}

/// How a step has used a slot.
enum SlotUse {
    /// It chose a branch by it, or let the user confirm it.
    Decided,
    /// It passed it to an effect.
    Called,
    /// It showed it to the user.
    Shown,
}

/// Whether a step asks for a changed slot. `inside` means that the flow is currently at the step: the steps of a
/// running call are checked by its own frame.
fn asks_for_changed(
    project: &Project,
    step: &Step,
    inside: bool,
    changed: ChangedSlots<'_>,
    answered: Option<&SlotName>,
) -> bool {
    let among = |slot: &SlotName| changed.slots.contains(slot) || answered == Some(slot);
    match &step.kind {
        StepKind::Collect(collect) => among(&collect.slot),
        StepKind::Call(Call::Tool { server, .. }) => {
            changed.slots.iter().chain(answered).any(|slot| project.may_ask(server, slot))
        }
        StepKind::Call(Call::Flow(child)) if !inside => project.flow(child.as_str()).is_some_and(|child| {
            let mut found = false;
            for_each_step_kind(project, child, &mut Vec::new(), &mut |kind| {
                found |= matches!(kind, StepKind::Collect(collect) if among(&collect.slot));
            });
            found
        }),
        // An agent can collect missing values, but it does not ask for values that were set elsewhere.
        StepKind::Call(Call::Agent { exit_if, .. }) if !inside => exit_if
            .iter()
            .flat_map(|condition| condition.slots())
            .any(|name| changed.emptied.iter().any(|slot| *slot == *name)),
        _ => false,
    }
}

fn slot_use(project: &Project, step: &Step, inside: bool, changed: ChangedSlots<'_>) -> Option<SlotUse> {
    let among = |name: &str| changed.slots.iter().any(|slot| *slot == *name);
    let branches = match &step.next {
        NextStep::Branch { branches, .. } => branches.as_slice(),
        NextStep::Go(_) => &[],
    };
    let called = match &step.kind {
        StepKind::Call(Call::Tool { server, tool, input, output }) => {
            let overwritten = || {
                let repeats = matches!(project.endpoints.tool_effect(server, tool), Some("read" | "idempotent"));
                changed.elsewhere && repeats && output.iter().any(|(slot, _)| among(slot.as_str()))
            };
            input.iter().any(|(_, slot)| among(slot.as_str())) || overwritten()
        }
        StepKind::Action(ActionReference::Plain(name)) if project.response(name.as_str()).is_none() => {
            let listed = project.domain.actions.get(name.as_str()).and_then(|action| action.inputs.as_ref());
            listed.is_some_and(|slots| slots.iter().any(|slot| among(slot.as_str())))
        }
        StepKind::Call(Call::Flow(child)) if !inside => project.flow(child.as_str()).is_some_and(|child| {
            let mut found = false;
            for_each_step(project, child, &mut Vec::new(), &mut |step| {
                let by_itself = matches!(step.kind, StepKind::Call(Call::Flow(_)));
                found |= !by_itself
                    && matches!(slot_use(project, step, false, changed), Some(SlotUse::Called | SlotUse::Decided));
            });
            found
        }),
        _ => false,
    };
    if called {
        return Some(SlotUse::Called);
    }
    // A flow that is still at the step has not taken a branch yet.
    let chose = !inside && branches.iter().flat_map(|branch| branch.condition.slots()).any(among);
    let confirmed = match &step.kind {
        StepKind::Collect(collect) => {
            is_confirmation(project, collect) && shows(project, collect.utter.as_str(), changed.slots)
        }
        _ => false,
    };
    match &step.kind {
        _ if chose || confirmed => Some(SlotUse::Decided),
        StepKind::Action(ActionReference::Plain(name)) if shows(project, name.as_str(), changed.slots) => {
            Some(SlotUse::Shown)
        }
        _ => None,
    }
}

/// Whether a collect step is a confirmation: it always asks, and its answer decides what follows.
pub(super) fn is_confirmation(project: &Project, collect: &Collect) -> bool {
    let is_bool = || project.slot(collect.slot.as_str()).is_some_and(|slot| matches!(slot.kind, SlotType::Bool));
    collect.ask_before_filling && (collect.decides || is_bool())
}

fn shows(project: &Project, response: &str, slots: &[SlotName]) -> bool {
    project.response(response).is_some_and(|response| slots.iter().any(|slot| response.shows(slot.as_str())))
}

/// Whether the open question is a yes-no question and it, or a response directly before it, shows one of the slots. A
/// message that changes such a slot does not confirm it at the same time.
pub(super) fn open_question_shows(turn: &AdvanceContext<'_>, slots: &[SlotName]) -> bool {
    let Some((below, step, collect)) =
        open_question(turn).filter(|(_, _, collect)| is_yes_no_question(turn.project, collect))
    else {
        return false;
    };
    let Some(flow) = turn.project.flow(below.flow_id.as_str()) else { return false };
    let before = below.visited_steps.iter().rev().filter(|id| **id != step.id).filter_map(|id| flow.step(id.as_str()));
    let mut texts = before.take_while(|step| !matches!(step.kind, StepKind::Collect(_)));
    shows(turn.project, collect.utter.as_str(), slots)
        || texts.any(|step| {
            matches!(&step.kind, StepKind::Action(ActionReference::Plain(name)) if shows(turn.project, name.as_str(), slots))
        })
}

/// Whether the open question is a yes-no question.
pub(super) fn open_question_is_yes_no(turn: &AdvanceContext<'_>) -> bool {
    open_question(turn).is_some_and(|(_, _, collect)| is_yes_no_question(turn.project, collect))
}

fn is_yes_no_question(project: &Project, collect: &Collect) -> bool {
    let is_bool = project.slot(collect.slot.as_str()).is_some_and(|slot| matches!(slot.kind, SlotType::Bool));
    is_bool || is_confirmation(project, collect)
}

fn open_question<'t, 'p>(turn: &'t AdvanceContext<'p>) -> Option<(&'t Frame, &'p Step, &'p Collect)> {
    let [.., below, top] = turn.stack.as_slice() else { return None };
    let PatternFrame::CollectInformation { step_id, .. } = top.pattern()? else { return None };
    let project = turn.project;
    let step = project.flow(below.flow_id.as_str())?.step(step_id.as_str())?;
    match &step.kind {
        StepKind::Collect(collect) => Some((below, step, collect)),
        _ => None,
    }
}

/// The emptied slots that a step of the chain has used before a step asks for them.
pub(super) fn used_before_asked(turn: &AdvanceContext<'_>, base: usize, emptied: &[SlotName]) -> Vec<SlotName> {
    let unasked = |slot: &&SlotName| {
        let one = std::slice::from_ref(*slot);
        let one = ChangedSlots { slots: one, emptied: one, elsewhere: false };
        first_affected_step(turn, base, one, None).is_some_and(|(at, id)| {
            let flow = turn.stack.get(at).and_then(|frame| turn.project.flow(frame.flow_id.as_str()));
            flow.and_then(|flow| flow.step(id.as_str()))
                .is_some_and(|step| !asks_for_changed(turn.project, step, false, one, None))
        })
    };
    emptied.iter().filter(unasked).cloned().collect()
}

/// Asks for empty slots before the frame at index `at` continues, because its next steps use them.
pub(super) fn ask_before_resuming(turn: &mut AdvanceContext<'_>, at: usize, slots: &[SlotName]) {
    let project = turn.project;
    let Some(flow) = turn.stack.get(at).and_then(|frame| project.flow(frame.flow_id.as_str())) else { return };
    for slot in slots {
        let mut asking: Option<(&StepId, &Collect)> = None;
        for_each_step(project, flow, &mut Vec::new(), &mut |step| {
            if let StepKind::Collect(collect) = &step.kind
                && collect.slot == *slot
            {
                asking.get_or_insert((&step.id, &**collect));
            }
        });
        let Some((id, collect)) = asking.filter(|(_, collect)| collect::can_ask(turn, collect)) else { continue };
        let context = PatternFrame::CollectInformation {
            collect: collect.slot.clone(),
            utter: collect.utter.clone(),
            collect_action: collect.action.clone(),
            step_id: id.clone(),
        };
        // Inserted directly above the flow: the same message may have pushed another flow.
        if turn.push_pattern(COLLECT_INFORMATION, context)
            && let Some(question) = turn.stack.pop()
        {
            turn.stack.insert(at + 1, question);
        }
    }
}

/// Another flow interrupts the chain: records hashes of the slots that its steps have used, unless an earlier
/// interruption did. Returns whether it recorded them.
pub(super) fn snapshot_used_slots(turn: &mut AdvanceContext<'_>, base: usize) -> bool {
    if turn.stack.get(base).is_none_or(|frame| !frame.used_slot_hashes.is_empty()) {
        return false;
    }
    let slots = turn.project.domain.slots.values().filter(|slot| !slot.builtin).map(|slot| &slot.name);
    let concerns = |slot: &&SlotName| {
        let one = std::slice::from_ref(*slot);
        first_affected_step(turn, base, ChangedSlots { slots: one, emptied: one, elsewhere: true }, None).is_some()
    };
    let hashes: Vec<(SlotName, u32)> = slots
        .filter(concerns)
        .map(|slot| (slot.clone(), completed_steps::value_hash(turn.slot(slot.as_str()))))
        .collect();
    if let Some(frame) = turn.stack.get_mut(base) {
        frame.used_slot_hashes = hashes;
    }
    true
}

/// Clears the hashes if no other flow interrupted the chain after all.
pub(super) fn clear_snapshot(turn: &mut AdvanceContext<'_>, base: usize) {
    if chains::top_base(&turn.stack) == Some(base)
        && let Some(frame) = turn.stack.get_mut(base)
    {
        frame.used_slot_hashes.clear();
    }
}

/// The user answered the open question of the chain, and the same message started another flow: updates the hash, since
/// the other flow did not change the slot.
pub(super) fn update_snapshot(turn: &mut AdvanceContext<'_>, base: usize, slot: &SlotName) {
    let hash = completed_steps::value_hash(turn.slot(slot.as_str()));
    let aside = turn.stack.get(base).map(|frame| &frame.used_slot_hashes);
    let Some(known) = aside.and_then(|aside| aside.iter().position(|(name, _)| name == slot)) else { return };
    if let Some((_, was)) = turn.stack.get_mut(base).and_then(|frame| frame.used_slot_hashes.get_mut(known)) {
        *was = hash;
    }
}

/// The chain on top resumes after an interruption: if a slot that its steps have used has changed, it goes back as
/// after a correction. Returns whether it did.
pub(super) fn go_back_if_changed(turn: &mut AdvanceContext<'_>) -> bool {
    let Some(base) = resuming_base(turn, |frame| !frame.used_slot_hashes.is_empty()) else { return false };
    let aside = turn.stack.get_mut(base).map(|frame| std::mem::take(&mut frame.used_slot_hashes)).unwrap_or_default();
    let differs =
        |(slot, was): (SlotName, u32)| (completed_steps::value_hash(turn.slot(slot.as_str())) != was).then_some(slot);
    let slots: Vec<SlotName> = aside.into_iter().filter_map(differs).collect();
    if slots.is_empty() {
        return false;
    }
    let emptied: Vec<SlotName> = slots.iter().filter(|slot| turn.slot(slot.as_str()).is_null()).cloned().collect();
    let changed = ChangedSlots { slots: &slots, emptied: &emptied, elsewhere: true };
    let Some((at, step)) = first_affected_step(turn, base, changed, None) else { return false };
    let names: Vec<&str> = slots.iter().map(SlotName::as_str).collect();
    turn.add_note(format!("while another flow ran, `{}` changed: the flow goes back to `{step}`", names.join("`, `")));
    let unasked = used_before_asked(turn, base, &emptied);
    patterns::back_to(turn, at, step, "another flow changed a value that it had used");
    forget_overwritten(turn, at, changed);
    ask_before_resuming(turn, at, &unasked);
    true
}

/// The base of the chain on top if that is about to resume, has not ended, and its base is `wanted`.
pub(super) fn resuming_base(turn: &AdvanceContext<'_>, wanted: impl Fn(&Frame) -> bool) -> Option<usize> {
    let base = chains::top_base(&turn.stack)?;
    let frame = turn.stack.get(base)?;
    let goes_on = frame.at != Position::End && wanted(frame);
    (goes_on && is_about_to_resume(turn, chains::chain(&turn.stack, base))).then_some(base)
}

/// Whether the chain itself is about to resume, and no pattern above it runs first.
fn is_about_to_resume(turn: &AdvanceContext<'_>, chain: Range<usize>) -> bool {
    turn.stack.get(chain).unwrap_or_default().iter().all(|frame| match &frame.kind {
        FrameKind::Flow { .. } | FrameKind::Agent(_) => true,
        FrameKind::Pattern { context } => {
            matches!(context, PatternFrame::CollectInformation { .. } | PatternFrame::ValidateSlot { .. })
        }
    })
}

/// Forgets completed calls whose outputs another flow has overwritten, so that they run again with the same inputs.
fn forget_overwritten(turn: &mut AdvanceContext<'_>, at: usize, changed: ChangedSlots<'_>) {
    let project = turn.project;
    let Some(frame) = turn.stack.get_mut(at) else { return };
    frame.completed_steps.retain(|ran| {
        let step = project.flow(ran.flow.as_str()).and_then(|flow| flow.step(ran.step.as_str()));
        step.is_none_or(|step| !matches!(slot_use(project, step, false, changed), Some(SlotUse::Called)))
    });
}
