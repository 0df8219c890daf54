//! Checks conditions outside `next` (guards, rejections, `exit_if`, responses, tools), comparisons of slots with different types,
//! and keys of `context`.

use super::{
    super::{
        Call, Flow, Rejection, SlotType, StepKind,
        references::{ConditionReference, ConditionRole},
    },
    branches::decided,
    project_index::ProjectIndex,
    slot_domains::{NULL, SlotDomains},
};
use crate::{
    condition::{Condition, Operator},
    finding::{Findings, SourceLocation, did_you_mean},
    ids::SlotName,
};

/// All keys of `context` in any frame.
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

pub(super) fn check(index: &ProjectIndex<'_>, findings: &mut Findings) {
    for used in index.conditions.iter().filter(|used| !used.builtin) {
        types(index, used, findings);
        context(used, findings);
        let is_alone = matches!(
            used.role,
            ConditionRole::Guard
                | ConditionRole::Rejection(_)
                | ConditionRole::ExitIf
                | ConditionRole::Response
                | ConditionRole::Tool
        );
        if is_alone && used.condition.as_constant().is_none() && !index.is_reported(&used.condition) {
            check_alone(index, used, findings);
        }
    }
    for slot in index.project.domain.slots.values() {
        if let Some(validation) = slot.validation.as_ref().filter(|_| !slot.builtin) {
            rejects_every_value(index, &slot.name, &validation.rejections, findings);
        }
    }
    for flow in index.own_flows() {
        for (_, collect) in flow.collects() {
            rejects_every_value(index, &collect.slot, &collect.rejections, findings);
        }
        exits(index, flow, findings);
    }
}

fn domains<'c>(index: &ProjectIndex<'_>, conditions: impl Iterator<Item = &'c Condition>) -> SlotDomains {
    SlotDomains::of(index.project, conditions, std::iter::empty(), std::iter::empty())
}

/// Reports a condition that is always or never true by itself.
fn check_alone(index: &ProjectIndex<'_>, used: &ConditionReference, findings: &mut Findings) {
    let condition = &used.condition;
    let domains = domains(index, std::iter::once(condition));
    let Some(always) = decided(&domains, condition, &domains.everything()) else { return };
    let place = used.at.place(&used.file);
    let what = match (&used.role, always) {
        (ConditionRole::Guard, false) => "so no message starts the flow",
        (ConditionRole::Guard, true) => "so the guard has no effect",
        (ConditionRole::Rejection(_), false) => "so no value is rejected",
        // Reported for all rejections of a slot together.
        (ConditionRole::Rejection(_), true) => return,
        (ConditionRole::ExitIf, false) => "so the agent's task never ends",
        (ConditionRole::ExitIf, true) => "so the agent's task ends before it starts",
        (ConditionRole::Tool, false) => "so the tool is never called",
        (ConditionRole::Tool, true) => "so it has no effect",
        (_, false) => "so this variation is never used",
        (_, true) => "so it has no effect",
    };
    let (code, verb) = if always { ("F0411", "is always true") } else { ("F0410", "is never true") };
    let help = if always {
        "Correct the condition; an `or` of two `!=` is always true, use `and`."
    } else {
        "Correct the condition, such as `or` instead of `and`."
    };
    findings.warning(code, &place, format!("this {verb}, {what}: `{condition}`"), help);
}

/// Reports rejections that together reject every value.
fn rejects_every_value(index: &ProjectIndex<'_>, slot: &SlotName, rejections: &[Rejection], findings: &mut Findings) {
    let conditions = || rejections.iter().map(|rejection| &rejection.condition);
    let Some(first) = conditions().next() else { return };
    if conditions().any(|condition| index.is_reported(condition) || condition.as_constant().is_some()) {
        return;
    }
    let domains = domains(index, conditions());
    let Some(at) = domains.at(slot.as_str()) else { return };
    let mut sets = domains.everything();
    if let Some(set) = sets.get_mut(at) {
        *set &= !NULL;
    }
    let mut passes = false;
    let mut assignments = 0;
    domains.each_assignment(conditions(), &sets, &mut |assignment| {
        assignments += 1;
        passes |=
            assignment.of(at).is_none() || conditions().all(|condition| condition.possible_results(assignment).fails);
    });
    if assignments > 0 && !passes {
        let Some(place) = first.place() else { return };
        let message = format!("every value of `{slot}` is rejected, so the step asks forever");
        let help =
            "Correct the conditions (such as `and` instead of `or`): a rejection describes the values that are wrong.";
        findings.warning("F0416", place, message, help);
    }
}

/// Reports `exit_if` conditions that are never true together, or are true before the agent has run.
fn exits(index: &ProjectIndex<'_>, flow: &Flow, findings: &mut Findings) {
    for step in &flow.steps {
        let StepKind::Call(Call::Agent { agent, exit_if }) = &step.kind else { continue };
        let Some(first) = exit_if.first() else { continue };
        let domains = domains(index, exit_if.iter());
        let alone = |condition: &Condition| {
            index.is_reported(condition) || decided(&domains, condition, &domains.everything()).is_some()
        };
        if exit_if.iter().any(alone) {
            continue;
        }
        let place = first.place().unwrap_or(&step.place);
        let mut together = false;
        domains.each_assignment(exit_if.iter(), &domains.everything(), &mut |assignment| {
            together |= exit_if.iter().all(|condition| condition.possible_results(assignment).holds);
        });
        if !together {
            let message = format!("these conditions exclude one another, so the task of `{agent}` never ends");
            findings.warning(
                "F0520",
                place,
                message,
                "All conditions of `exit_if` must be true at the same time; correct them.",
            );
            continue;
        }
        let nothing: Vec<_> = domains.slots.iter().map(|_| NULL).collect();
        let mut at_once = true;
        domains.each_assignment(exit_if.iter(), &nothing, &mut |assignment| {
            at_once &= exit_if.iter().all(|condition| !condition.possible_results(assignment).fails);
        });
        if at_once {
            let message =
                format!("this is true while the slots are empty, so the task of `{agent}` ends before it starts");
            let help = "Write which slots are filled at the end of the task, such as `slots.appointment is not null`.";
            findings.warning("F0521", place, message, help);
        }
    }
}

/// Reports comparisons of slots whose types are never equal or have no order.
fn types(index: &ProjectIndex<'_>, used: &ConditionReference, findings: &mut Findings) {
    for (left, operator, right) in used.condition.slot_pairs() {
        let kind = |slot: &str| index.project.slot(slot).map(|slot| &slot.kind);
        let (Some(a), Some(b)) = (kind(left), kind(right)) else { continue };
        let is_clash = match (a, b) {
            (SlotType::Any, _) | (_, SlotType::Any) => false,
            (a, b) if family(a) == family(b) => operator.is_order() && family(a) == 2,
            _ => true,
        };
        if is_clash && operator != Operator::NotEqual {
            let place = used.at.place(&used.file);
            let message =
                format!("this is never true: `{left}` is a `{}` slot and `{right}` is a `{}` slot", a.name(), b.name());
            findings.warning(
                "F0417",
                &place,
                message,
                "Compare slots of the same type, or change the type of one in the domain.",
            );
        }
    }
}

/// The group of types that can be compared with each other.
fn family(kind: &SlotType) -> u8 {
    match kind {
        SlotType::Text | SlotType::Categorical(_) => 0,
        SlotType::Float { .. } | SlotType::Bool => 1,
        SlotType::List | SlotType::Any => 2,
    }
}

fn context(used: &ConditionReference, findings: &mut Findings) {
    if used.role == ConditionRole::Response {
        return;
    }
    for name in used.condition.context_properties().filter(|name| !CONTEXT.contains(name)) {
        let place: SourceLocation = used.at.place(&used.file);
        let message = format!("`context.{name}` does not exist, so it is undefined");
        match did_you_mean(name, CONTEXT) {
            Some(near) => findings.warning("F0415", &place, message, format!("Did you mean `context.{near}`?")),
            None => findings.note("F0415", &place, message, "For a slot write `slots.<name>`."),
        }
    }
}
