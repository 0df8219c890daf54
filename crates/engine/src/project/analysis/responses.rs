//! Finds responses without a variation for some channel or slot value.

use std::collections::BTreeSet;

use serde_json::Value as Json;

use super::{
    super::{ResponseDef, Variation},
    project_index::ProjectIndex,
    slot_domains::{Assignment, NULL, SlotDomains},
};
use crate::{
    condition::{Condition, PartialScope},
    finding::Findings,
};

pub(super) fn check(index: &ProjectIndex<'_>, findings: &mut Findings) {
    for response in index.project.domain.responses.values().filter(|response| !response.builtin) {
        let open: Vec<&Variation> = response.variations.iter().filter(|one| one.channel.is_none()).collect();
        if open.is_empty() {
            missing_channels(response, findings);
        } else if open.iter().all(|one| is_conditional(one)) {
            uncovered_values(index, response, &open, findings);
        }
    }
}

fn is_conditional(variation: &Variation) -> bool {
    variation.condition.is_some() || !variation.slot_conditions.is_empty()
}

fn missing_channels(response: &ResponseDef, findings: &mut Findings) {
    let channels: BTreeSet<&str> = response.variations.iter().filter_map(|one| one.channel.as_deref()).collect();
    let channels: Vec<&str> = channels.into_iter().collect();
    let message = format!("`{}` has variations only for `{}`", response.name, channels.join("`, `"));
    let help = "Add a variation without `channel`; on other channels users get the internal error response.";
    findings.warning("F0323", &response.place, message, help);
}

/// Reports a response whose variations all have conditions, if for some values none of them is true.
fn uncovered_values(index: &ProjectIndex<'_>, response: &ResponseDef, open: &[&Variation], findings: &mut Findings) {
    let conditions: Vec<&Condition> = open.iter().filter_map(|one| one.condition.as_ref()).collect();
    if conditions.iter().any(|condition| index.is_reported(condition)) {
        return;
    }
    let older = || open.iter().flat_map(|one| &one.slot_conditions);
    let asked = older().map(|(slot, _)| slot.as_str());
    let constants = older().map(|(slot, value)| (slot.as_str(), value));
    let domains = SlotDomains::of(index.project, conditions.iter().copied(), constants, asked);
    // Null is excluded: a response that depends on a slot is usually sent when the slot has a value.
    let sets: Vec<_> = domains.slots.iter().map(|domain| domain.all() & !NULL).collect();
    let older_as_conditions = slots_as_conditions(older().map(|(slot, _)| slot.as_str()));
    let all = conditions.iter().copied().chain(older_as_conditions.iter());
    let mut missing: Option<String> = None;
    domains.each_assignment(all, &sets, &mut |assignment| {
        if missing.is_none() && !open.iter().any(|one| may_be_used(one, assignment)) {
            missing = Some(describe(&domains, assignment));
        }
    });
    if let Some(missing) = missing {
        let message = format!("`{}` has no variation when {missing}", response.name);
        let help = "Add a variation without a condition; otherwise users get the internal error response.";
        findings.warning("F0323", &response.place, message, help);
    }
}

/// Conditions that only read these slots, so that their values are enumerated.
fn slots_as_conditions<'s>(slots: impl Iterator<Item = &'s str>) -> Vec<Condition> {
    slots.filter_map(|slot| Condition::parse(&format!("slots.{slot}")).ok()).collect()
}

fn may_be_used(variation: &Variation, assignment: &Assignment<'_>) -> bool {
    let equals = |(slot, value): &(crate::ids::SlotName, Json)| {
        assignment.slot(slot.as_str()).is_none_or(|supposed| {
            let is_same = match (supposed.value, value) {
                (Json::Number(a), Json::Number(b)) => a.as_f64() == b.as_f64(),
                (a, b) => a == b,
            };
            is_same || (!supposed.exact && !supposed.value.is_number() && !supposed.value.is_string())
        })
    };
    variation.slot_conditions.iter().all(equals)
        && variation.condition.as_ref().is_none_or(|condition| condition.possible_results(assignment).holds)
}

fn describe(domains: &SlotDomains, assignment: &Assignment<'_>) -> String {
    let parts = domains.slots.iter().enumerate().filter_map(|(at, domain)| {
        let set = assignment.of(at)?;
        Some(format!("`{}` is {}", domain.slot, domain.describe(set)))
    });
    parts.collect::<Vec<_>>().join(" and ")
}
