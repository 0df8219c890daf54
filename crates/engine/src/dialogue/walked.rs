//! What the steps that a flow has walked have used: when such a value changes, what they looked up, decided or showed does not
//! hold any more, and the flow goes back to the first of them.
//!
//! | a step | has used |
//! | --- | --- |
//! | that calls a tool | the slots of `mapping.input` |
//! | that runs a custom action | the slots that the domain names as its `inputs`; none where it names none |
//! | with branches | the slots of their conditions |
//! | that asks and is always asked, to decide what follows | the slots that its question shows, and the texts said just before it |
//! | that calls a flow | what the steps of that flow use |
//!
//! A call that stands behind such a question is not gone back to itself, but to the question: nothing is done with a value that was
//! not shown. Values that a flow's own steps, actions and agents set lead nowhere back: their order is the author's.

use std::ops::Range;

use super::{
    collect,
    ending::{each_step, each_whole_step},
    interrupt,
    patterns::{self, COLLECT_INFORMATION},
    rerun,
    turn::Turn,
};
use crate::{
    conversation::{Frame, FrameKind, PatternFrame, Position},
    ids::{SlotName, StepId},
    project::{ActionReference, Call, Collect, NextStep, Project, SlotType, Step, StepKind},
};

/// Slots that have changed.
#[derive(Clone, Copy)]
pub(super) struct Changed<'a> {
    /// All of them.
    pub(super) slots: &'a [SlotName],
    /// Those of them that are empty now.
    pub(super) emptied: &'a [SlotName],
    /// Whether another flow changed them: then a call whose outputs were overwritten runs again, if it only reads.
    pub(super) elsewhere: bool,
}

/// Whether a step belongs to the trail of its frame.
pub(super) fn matters(step: &Step) -> bool {
    matches!(step.kind, StepKind::Collect(_) | StepKind::Call(_) | StepKind::Action(_))
        || matches!(step.next, NextStep::Branch { .. })
}

/// The first step of the chain on that base that asks for, or has used, what changed; `answered` is a slot for which it is enough
/// to be asked for. The frame's place on the stack, and the step.
pub(super) fn first_concerned(
    turn: &Turn<'_>,
    base: usize,
    changed: Changed<'_>,
    answered: Option<&SlotName>,
) -> Option<(usize, StepId)> {
    let project = turn.project;
    let mut shown = None;
    let mut confirmed = None;
    for at in interrupt::chain(&turn.stack, base) {
        let Some(frame) = turn.stack.get(at).filter(|frame| walks(frame)) else { continue };
        let Some(flow) = project.flow(frame.flow_id.as_str()) else { continue };
        for id in &frame.trail {
            let Some(step) = flow.step(id.as_str()) else { continue };
            let here = || Some((at, id.clone()));
            let inside = frame.at == Position::At(id.clone());
            if asks(project, step, inside, changed, answered) {
                return here();
            }
            match used(project, step, inside, changed) {
                Some(Used::Decided) => return here(),
                Some(Used::Called) => return confirmed.or_else(here),
                Some(Used::Shown) => shown = shown.or_else(here),
                None => {}
            }
            if let StepKind::Collect(collect) = &step.kind {
                let confirms = confirms(project, step, collect);
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

fn walks(frame: &Frame) -> bool {
    frame.is_flow() && frame.at != Position::End
}

/// What a step has done with a slot.
enum Used {
    /// It chose a way by it, or had the user decide about it.
    Decided,
    /// It handed it to something outside.
    Called,
    /// It said it.
    Shown,
}

/// Whether a step asks for something that changed. `inside` says that the flow stands at it: a call that is under way knows its
/// own steps better.
fn asks(project: &Project, step: &Step, inside: bool, changed: Changed<'_>, answered: Option<&SlotName>) -> bool {
    let among = |slot: &SlotName| changed.slots.contains(slot) || answered == Some(slot);
    match &step.kind {
        StepKind::Collect(collect) => among(&collect.slot),
        StepKind::Call(Call::Tool { server, .. }) => {
            changed.slots.iter().chain(answered).any(|slot| project.may_ask(server, slot))
        }
        StepKind::Call(Call::Flow(child)) if !inside => project.flow(child.as_str()).is_some_and(|child| {
            let mut found = false;
            each_step(project, child, &mut Vec::new(), &mut |kind| {
                found |= matches!(kind, StepKind::Collect(collect) if among(&collect.slot));
            });
            found
        }),
        // An agent can be asked for what is missing, not for what somebody else said.
        StepKind::Call(Call::Agent { exit_if, .. }) if !inside => exit_if
            .iter()
            .flat_map(|condition| condition.slots())
            .any(|name| changed.emptied.iter().any(|slot| *slot == *name)),
        _ => false,
    }
}

fn used(project: &Project, step: &Step, inside: bool, changed: Changed<'_>) -> Option<Used> {
    let among = |name: &str| changed.slots.iter().any(|slot| *slot == *name);
    let branches = match &step.next {
        NextStep::Branch { branches, .. } => branches.as_slice(),
        NextStep::Go(_) => &[],
    };
    let called = match &step.kind {
        StepKind::Call(Call::Tool { server, tool, input, output }) => {
            let overwritten = || {
                let class = project.endpoints.mcp_servers.get(server).and_then(|def| def.effects.get(tool.as_str()));
                let repeats = class.is_some_and(|class| class == "read" || class == "idempotent");
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
            each_whole_step(project, child, &mut Vec::new(), &mut |step| {
                let by_itself = matches!(step.kind, StepKind::Call(Call::Flow(_)));
                found |=
                    !by_itself && matches!(used(project, step, false, changed), Some(Used::Called | Used::Decided));
            });
            found
        }),
        _ => false,
    };
    if called {
        return Some(Used::Called);
    }
    // A flow that still stands at a step has not taken a way from it.
    let chose = !inside && branches.iter().flat_map(|branch| branch.condition.slots()).any(among);
    let confirmed = match &step.kind {
        StepKind::Collect(collect) => {
            confirms(project, step, collect) && says(project, collect.utter.as_str(), changed.slots)
        }
        _ => false,
    };
    match &step.kind {
        _ if chose || confirmed => Some(Used::Decided),
        StepKind::Action(ActionReference::Plain(name)) if says(project, name.as_str(), changed.slots) => {
            Some(Used::Shown)
        }
        _ => None,
    }
}

/// Whether a question is always asked and its answer decides what follows: a yes to what was shown before.
fn confirms(project: &Project, step: &Step, collect: &Collect) -> bool {
    let is_bool = || project.slot(collect.slot.as_str()).is_some_and(|slot| matches!(slot.kind, SlotType::Bool));
    let decides = || match &step.next {
        NextStep::Branch { branches, .. } => {
            branches.iter().flat_map(|branch| branch.condition.slots()).any(|name| collect.slot == *name)
        }
        NextStep::Go(_) => false,
    };
    collect.ask_before_filling && (is_bool() || decides())
}

fn says(project: &Project, response: &str, slots: &[SlotName]) -> bool {
    project.response(response).is_some_and(|response| slots.iter().any(|slot| response.shows(slot.as_str())))
}

/// Whether the open question asks for a yes, and it or the texts just before it show one of the slots: then a message that
/// changes the slot does not also say yes to it.
pub(super) fn is_confirmed_now(turn: &Turn<'_>, slots: &[SlotName]) -> bool {
    let Some((below, step, collect)) =
        open_question(turn).filter(|(_, step, collect)| asks_for_a_yes(turn.project, step, collect))
    else {
        return false;
    };
    let Some(flow) = turn.project.flow(below.flow_id.as_str()) else { return false };
    let before = below.trail.iter().rev().filter(|id| **id != step.id).filter_map(|id| flow.step(id.as_str()));
    let mut texts = before.take_while(|step| !matches!(step.kind, StepKind::Collect(_)));
    says(turn.project, collect.utter.as_str(), slots)
        || texts.any(|step| {
            matches!(&step.kind, StepKind::Action(ActionReference::Plain(name)) if says(turn.project, name.as_str(), slots))
        })
}

/// Whether the open question asks for a yes.
pub(super) fn asks_now_for_a_yes(turn: &Turn<'_>) -> bool {
    open_question(turn).is_some_and(|(_, step, collect)| asks_for_a_yes(turn.project, step, collect))
}

fn asks_for_a_yes(project: &Project, step: &Step, collect: &Collect) -> bool {
    let is_bool = project.slot(collect.slot.as_str()).is_some_and(|slot| matches!(slot.kind, SlotType::Bool));
    is_bool || confirms(project, step, collect)
}

fn open_question<'t, 'p>(turn: &'t Turn<'p>) -> Option<(&'t Frame, &'p Step, &'p Collect)> {
    let [.., below, top] = turn.stack.as_slice() else { return None };
    let PatternFrame::CollectInformation { step_id, .. } = top.pattern()? else { return None };
    let project = turn.project;
    let step = project.flow(below.flow_id.as_str())?.step(step_id.as_str())?;
    match &step.kind {
        StepKind::Collect(collect) => Some((below, step, collect)),
        _ => None,
    }
}

/// Those of the emptied slots that a step of the chain has used before anything asks for them.
pub(super) fn used_before_asked(turn: &Turn<'_>, base: usize, emptied: &[SlotName]) -> Vec<SlotName> {
    let unasked = |slot: &&SlotName| {
        let one = std::slice::from_ref(*slot);
        let one = Changed { slots: one, emptied: one, elsewhere: false };
        first_concerned(turn, base, one, None).is_some_and(|(at, id)| {
            let flow = turn.stack.get(at).and_then(|frame| turn.project.flow(frame.flow_id.as_str()));
            flow.and_then(|flow| flow.step(id.as_str())).is_some_and(|step| !asks(turn.project, step, false, one, None))
        })
    };
    emptied.iter().filter(unasked).cloned().collect()
}

/// Asks for slots that are empty before the frame at that place goes on: what comes next uses them.
pub(super) fn ask_first(turn: &mut Turn<'_>, at: usize, slots: &[SlotName]) {
    let project = turn.project;
    let Some(flow) = turn.stack.get(at).and_then(|frame| project.flow(frame.flow_id.as_str())) else { return };
    for slot in slots {
        let mut asking: Option<(&StepId, &Collect)> = None;
        each_whole_step(project, flow, &mut Vec::new(), &mut |step| {
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
        // Directly above the flow: the same message may have put another one on it.
        if turn.push_pattern(COLLECT_INFORMATION, context)
            && let Some(question) = turn.stack.pop()
        {
            turn.stack.insert(at + 1, question);
        }
    }
}

/// Another flow comes in between: what the steps of this chain have used is noted down, unless it is since an earlier time.
/// Whether it was.
pub(super) fn set_aside(turn: &mut Turn<'_>, base: usize) -> bool {
    if turn.stack.get(base).is_none_or(|frame| !frame.aside.is_empty()) {
        return false;
    }
    let slots = turn.project.domain.slots.values().filter(|slot| !slot.builtin).map(|slot| &slot.name);
    let concerns = |slot: &&SlotName| {
        let one = std::slice::from_ref(*slot);
        first_concerned(turn, base, Changed { slots: one, emptied: one, elsewhere: true }, None).is_some()
    };
    let aside: Vec<(SlotName, u32)> =
        slots.filter(concerns).map(|slot| (slot.clone(), rerun::hash(turn.slot(slot.as_str())))).collect();
    if let Some(frame) = turn.stack.get_mut(base) {
        frame.aside = aside;
    }
    true
}

/// No other flow has come in between after all.
pub(super) fn is_not_aside(turn: &mut Turn<'_>, base: usize) {
    if interrupt::top_base(&turn.stack) == Some(base)
        && let Some(frame) = turn.stack.get_mut(base)
    {
        frame.aside.clear();
    }
}

/// The user answered the question of the chain on that base, and the same message has put another flow on it: that is no change by
/// the other flow.
pub(super) fn is_answered(turn: &mut Turn<'_>, base: usize, slot: &SlotName) {
    let hash = rerun::hash(turn.slot(slot.as_str()));
    let aside = turn.stack.get(base).map(|frame| &frame.aside);
    let Some(known) = aside.and_then(|aside| aside.iter().position(|(name, _)| name == slot)) else { return };
    if let Some((_, was)) = turn.stack.get_mut(base).and_then(|frame| frame.aside.get_mut(known)) {
        *was = hash;
    }
}

/// The chain on top goes on after something came in between: if that changed what its steps have used, it goes back as after a
/// correction. Whether it did.
pub(super) fn comes_back(turn: &mut Turn<'_>) -> bool {
    let Some(base) = interrupt::top_base(&turn.stack) else { return false };
    let chain = interrupt::chain(&turn.stack, base);
    if turn.stack.get(base).is_none_or(|frame| frame.aside.is_empty() || frame.at == Position::End)
        || !goes_on(turn, chain)
    {
        return false;
    }
    let aside = turn.stack.get_mut(base).map(|frame| std::mem::take(&mut frame.aside)).unwrap_or_default();
    let differs = |(slot, was): (SlotName, u32)| (rerun::hash(turn.slot(slot.as_str())) != was).then_some(slot);
    let slots: Vec<SlotName> = aside.into_iter().filter_map(differs).collect();
    if slots.is_empty() {
        return false;
    }
    let emptied: Vec<SlotName> = slots.iter().filter(|slot| turn.slot(slot.as_str()).is_null()).cloned().collect();
    let changed = Changed { slots: &slots, emptied: &emptied, elsewhere: true };
    let Some((at, step)) = first_concerned(turn, base, changed, None) else { return false };
    let names: Vec<&str> = slots.iter().map(SlotName::as_str).collect();
    turn.note(format!("while another flow ran, `{}` changed: the flow goes back to `{step}`", names.join("`, `")));
    let unasked = used_before_asked(turn, base, &emptied);
    patterns::back_to(turn, at, step, "another flow changed a value that it had used");
    forget_overwritten(turn, at, changed);
    ask_first(turn, at, &unasked);
    true
}

/// Whether the chain itself is about to go on, and nothing that was put on it speaks first.
fn goes_on(turn: &Turn<'_>, chain: Range<usize>) -> bool {
    turn.stack.get(chain).unwrap_or_default().iter().all(|frame| match &frame.kind {
        FrameKind::Flow { .. } | FrameKind::Agent(_) => true,
        FrameKind::Pattern { context } => {
            matches!(context, PatternFrame::CollectInformation { .. } | PatternFrame::ValidateSlot { .. })
        }
    })
}

/// Calls whose outputs another flow has overwritten run again though their inputs are the same.
fn forget_overwritten(turn: &mut Turn<'_>, at: usize, changed: Changed<'_>) {
    let project = turn.project;
    let Some(frame) = turn.stack.get_mut(at) else { return };
    frame.ran.retain(|ran| {
        let step = project.flow(ran.flow.as_str()).and_then(|flow| flow.step(ran.step.as_str()));
        step.is_none_or(|step| !matches!(used(project, step, false, changed), Some(Used::Called)))
    });
}
