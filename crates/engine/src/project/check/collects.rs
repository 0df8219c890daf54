//! Checks collect steps (something asks for the slot, and the answer can fill it) and `persisted_slots`.

use std::collections::HashSet;

use super::{
    super::{Call, Collect, Flow, Mapping, Project, SlotDef, SlotType, Step, StepKind},
    calls::with_called,
};
use crate::{condition::Condition, finding::Findings};

pub(super) fn check(project: &Project, findings: &mut Findings) {
    for flow in project.flows.values() {
        for (step, collect) in flow.collects() {
            collect_step(project, step, collect, findings);
        }
        for step in &flow.steps {
            agent_slots(project, step, findings);
        }
        persisted(project, flow, findings);
    }
}

/// A task agent that would have to fill a slot that no agent may fill.
fn agent_slots(project: &Project, step: &Step, findings: &mut Findings) {
    let StepKind::Call(Call::Agent { agent, exit_if, .. }) = &step.kind else { return };
    let names = exit_if.iter().flat_map(Condition::slots);
    for name in names.filter(|name| project.slot(name).is_some_and(|slot| slot.write_once)) {
        let message = format!("`{name}` is `write_once`, so the agent `{agent}` never fills it");
        let help = "Fill it before this step with an action, a tool or `set_slots`, or remove it from `exit_if`.";
        findings.error("F0232", &step.place, message, help);
    }
}

fn collect_step(project: &Project, step: &Step, collect: &Collect, findings: &mut Findings) {
    let Some(slot) = project.slot(collect.slot.as_str()) else { return };
    let name = &collect.slot;
    if slot.kind == SlotType::List {
        let help = "Collect single values and combine them in an action, or use an agent.";
        findings.error("F0223", &step.place, format!("`{name}` is a list, which cannot be collected"), help);
    }
    let has_text = project.response(collect.utter.as_str()).is_some();
    let has_action = project.lists_action(collect.action.as_str());
    match (has_text, has_action) {
        (true, true) => {
            let message = format!("both `{}` and `{}` would ask for `{name}`", collect.utter, collect.action);
            findings.error("F0224", &step.place, message, "Remove one of the two.");
        }
        (false, false) if slot.initial.is_null() => {
            let message = format!(
                "nothing asks for `{name}`: there is neither a response `{}` nor an action `{}`",
                collect.utter, collect.action
            );
            let help = format!("Add the response `{}` to the domain.", collect.utter);
            findings.error("F0225", &step.place, message, help);
        }
        _ => {}
    }
    if is_controlled(slot) && !has_action && slot.initial.is_null() {
        let message = format!("only actions fill `{name}`, so the answer of the user never fills it");
        let help = format!("Add `type: from_llm` to its mappings, or list the action `{}`.", collect.action);
        findings.error("F0232", &step.place, message, help);
    }
}

fn is_controlled(slot: &SlotDef) -> bool {
    let by_hand = |mapping: &Mapping| matches!(mapping, Mapping::Controlled { run_action_every_turn: None });
    slot.write_once || !slot.mappings.is_empty() && slot.mappings.iter().all(by_hand) && !slot.builtin
}

fn persisted(project: &Project, flow: &Flow, findings: &mut Findings) {
    if flow.persisted_slots.is_empty() {
        return;
    }
    let mut used: HashSet<&str> = HashSet::new();
    for step in with_called(project, flow).into_iter().flat_map(|flow| &flow.steps) {
        match &step.kind {
            StepKind::Collect(collect) => _ = used.insert(collect.slot.as_str()),
            StepKind::SetSlots(pairs) => used.extend(pairs.iter().map(|(slot, _)| slot.as_str())),
            _ => {}
        }
    }
    for slot in flow.persisted_slots.iter().filter(|slot| !used.contains(slot.as_str())) {
        let message = format!("`{}` persists `{slot}`, but none of its steps collects or sets that slot", flow.id);
        let help = "Remove it from `persisted_slots`, or collect it in this flow.";
        findings.error("F0226", &flow.place, message, help);
    }
    if let Some((step, _)) = flow.collects().find(|(_, collect)| !collect.reset_after_flow_ends) {
        let message = "`persisted_slots` and `reset_after_flow_ends: false` cannot be combined in a flow";
        let help = "Remove `reset_after_flow_ends` and list the slot under `persisted_slots`.";
        findings.error("F0226", &step.place, message, help);
    }
}
