//! Conditions outside `next`: guards, rejections, `exit_if`, responses; slots of two types against each other; `context`.

use super::{
    super::{
        Call, Flow, Rejection, SlotType, StepKind,
        uses::{ConditionUse, Role},
    },
    branches::decided,
    cells::{Ground, NULL},
    survey::Survey,
};
use crate::{
    condition::{Condition, Operator},
    finding::{Findings, SourceLocation, did_you_mean},
    ids::SlotName,
};

/// Every key that some frame shows as `context.…`.
const CONTEXT: [&str; 34] = [
    "collect",
    "utter",
    "collect_action",
    "rejections",
    "validate",
    "refill_utter",
    "refill_action",
    "is_reset_only",
    "corrected_slots",
    "reset_flow_id",
    "reset_step_id",
    "new_slot_values",
    "canceled_name",
    "canceled_frames",
    "names",
    "clarification_options",
    "options",
    "previous_flow_name",
    "interrupted_flow_names",
    "interrupted_flow_ids",
    "interrupted_flow_options",
    "multiple_flows_interrupted",
    "error_type",
    "info",
    "reason",
    "flow_id",
    "step_id",
    "frame_id",
    "frame_type",
    "type",
    "agent_id",
    "state",
    "metadata",
    "error",
];

pub(super) fn check(survey: &Survey<'_>, findings: &mut Findings) {
    for used in survey.conditions.iter().filter(|used| !used.builtin) {
        types(survey, used, findings);
        context(used, findings);
        let is_alone =
            matches!(used.role, Role::Guard | Role::Rejection(_) | Role::ExitIf | Role::Response | Role::Tool);
        if is_alone && used.condition.as_constant().is_none() && !survey.is_told(&used.condition) {
            alone(survey, used, findings);
        }
    }
    for slot in survey.project.domain.slots.values() {
        if let Some(validation) = slot.validation.as_ref().filter(|_| !slot.builtin) {
            refuses_all(survey, &slot.name, &validation.rejections, findings);
        }
    }
    for flow in survey.own_flows() {
        for (_, collect) in flow.collects() {
            refuses_all(survey, &collect.slot, &collect.rejections, findings);
        }
        exits(survey, flow, findings);
    }
}

fn ground<'c>(survey: &Survey<'_>, conditions: impl Iterator<Item = &'c Condition>) -> Ground {
    Ground::of(survey.project, conditions, std::iter::empty(), std::iter::empty())
}

/// A condition that never or always holds by itself.
fn alone(survey: &Survey<'_>, used: &ConditionUse, findings: &mut Findings) {
    let condition = &used.condition;
    let ground = ground(survey, std::iter::once(condition));
    let Some(always) = decided(&ground, condition, &ground.everything()) else { return };
    let place = used.at.place(&used.file);
    let what = match (&used.role, always) {
        (Role::Guard, false) => "so the flow never starts by what a user says",
        (Role::Guard, true) => "so it keeps nobody out",
        (Role::Rejection(_), false) => "so nothing is ever refused",
        // Told for all rejections of a question together.
        (Role::Rejection(_), true) => return,
        (Role::ExitIf, false) => "so the agent is never done",
        (Role::ExitIf, true) => "so the agent is done before it begins",
        (Role::Tool, false) => "so the tool is never called",
        (Role::Tool, true) => "so it stops nothing",
        (_, false) => "so this variation is never said",
        (_, true) => "so it says nothing about when",
    };
    let (code, verb) = if always { ("F0411", "always holds") } else { ("F0410", "can never hold") };
    let help = if always {
        "Correct the condition; an `or` between two `!=` is always true, `and` may be meant."
    } else {
        "Correct the condition; `or` may be meant in place of `and`."
    };
    findings.warning(code, &place, format!("this {verb}, {what}: `{condition}`"), help);
}

/// Rejections that together refuse every value.
fn refuses_all(survey: &Survey<'_>, slot: &SlotName, rejections: &[Rejection], findings: &mut Findings) {
    let conditions = || rejections.iter().map(|rejection| &rejection.condition);
    let Some(first) = conditions().next() else { return };
    if conditions().any(|condition| survey.is_told(condition) || condition.as_constant().is_some()) {
        return;
    }
    let ground = ground(survey, conditions());
    let Some(at) = ground.at(slot.as_str()) else { return };
    let mut masks = ground.everything();
    if let Some(mask) = masks.get_mut(at) {
        *mask &= !NULL;
    }
    let mut passes = false;
    let mut cases = 0;
    ground.each_case(conditions(), &masks, &mut |case| {
        cases += 1;
        passes |= case.of(at).is_none() || conditions().all(|condition| condition.possible_results(case).fails);
    });
    if cases > 0 && !passes {
        let Some(place) = first.place() else { return };
        let message = format!("every value of `{slot}` is refused, so the question never ends");
        let help =
            "Correct the conditions: a rejection says which values are wrong, and `and` may be meant in place of `or`.";
        findings.warning("F0416", place, message, help);
    }
}

/// `exit_if`: all conditions together, and before the agent has done anything.
fn exits(survey: &Survey<'_>, flow: &Flow, findings: &mut Findings) {
    for step in &flow.steps {
        let StepKind::Call(Call::Agent { agent, exit_if }) = &step.kind else { continue };
        let Some(first) = exit_if.first() else { continue };
        let ground = ground(survey, exit_if.iter());
        let alone = |condition: &Condition| {
            survey.is_told(condition) || decided(&ground, condition, &ground.everything()).is_some()
        };
        if exit_if.iter().any(alone) {
            continue;
        }
        let place = first.place().unwrap_or(&step.place);
        let mut together = false;
        ground.each_case(exit_if.iter(), &ground.everything(), &mut |case| {
            together |= exit_if.iter().all(|condition| condition.possible_results(case).holds);
        });
        if !together {
            let message = format!("these conditions exclude one another, so `{agent}` is never done");
            findings.warning("F0520", place, message, "All conditions of `exit_if` must hold at once; correct them.");
            continue;
        }
        let nothing: Vec<_> = ground.slots.iter().map(|_| NULL).collect();
        let mut at_once = true;
        ground.each_case(exit_if.iter(), &nothing, &mut |case| {
            at_once &= exit_if.iter().all(|condition| !condition.possible_results(case).fails);
        });
        if at_once {
            let message = format!("this holds while the slots are still empty, so `{agent}` is done before it begins");
            let help = "Say what must be filled when the task is done, such as `slots.appointment is not null`.";
            findings.warning("F0521", place, message, help);
        }
    }
}

/// Slots whose types are never equal and have no order.
fn types(survey: &Survey<'_>, used: &ConditionUse, findings: &mut Findings) {
    for (left, operator, right) in used.condition.slot_pairs() {
        let kind = |slot: &str| survey.project.slot(slot).map(|slot| &slot.kind);
        let (Some(a), Some(b)) = (kind(left), kind(right)) else { continue };
        let is_clash = match (a, b) {
            (SlotType::Any, _) | (_, SlotType::Any) => false,
            (a, b) if family(a) == family(b) => operator.is_order() && family(a) == 2,
            _ => true,
        };
        if is_clash && operator != Operator::NotEqual {
            let place = used.at.place(&used.file);
            let message =
                format!("this can never hold: `{left}` is a `{}` slot and `{right}` a `{}` slot", a.name(), b.name());
            findings.warning(
                "F0417",
                &place,
                message,
                "Compare slots of one type, or give both the same type in the domain.",
            );
        }
    }
}

/// Types that can be compared with one another.
fn family(kind: &SlotType) -> u8 {
    match kind {
        SlotType::Text | SlotType::Categorical(_) => 0,
        SlotType::Float { .. } | SlotType::Bool => 1,
        SlotType::List | SlotType::Any => 2,
    }
}

fn context(used: &ConditionUse, findings: &mut Findings) {
    if used.role == Role::Response {
        return;
    }
    for name in used.condition.context_properties().filter(|name| !CONTEXT.contains(name)) {
        let place: SourceLocation = used.at.place(&used.file);
        let message = format!("`context.{name}` is never there, so it counts as undefined");
        match did_you_mean(name, CONTEXT) {
            Some(near) => findings.warning("F0415", &place, message, format!("Did you mean `context.{near}`?")),
            None => {
                findings.note("F0415", &place, message, "Values of your own belong in slots: write `slots.<name>`.")
            }
        }
    }
}
