//! Responses that have nothing to say on some channel or for some value.

use std::collections::BTreeSet;

use serde_json::Value as Json;

use super::{
    super::{ResponseDef, Variation},
    cells::{Case, Ground, NULL},
    survey::Survey,
};
use crate::{
    condition::{Condition, PartialScope},
    finding::Findings,
};

pub(super) fn check(survey: &Survey<'_>, findings: &mut Findings) {
    for response in survey.project.domain.responses.values().filter(|response| !response.builtin) {
        let open: Vec<&Variation> = response.variations.iter().filter(|one| one.channel.is_none()).collect();
        if open.is_empty() {
            one_channel(response, findings);
        } else if open.iter().all(|one| is_conditional(one)) {
            left_over(survey, response, &open, findings);
        }
    }
}

fn is_conditional(variation: &Variation) -> bool {
    variation.condition.is_some() || !variation.slot_conditions.is_empty()
}

fn one_channel(response: &ResponseDef, findings: &mut Findings) {
    let channels: BTreeSet<&str> = response.variations.iter().filter_map(|one| one.channel.as_deref()).collect();
    let channels: Vec<&str> = channels.into_iter().collect();
    let message = format!("`{}` says something on `{}` only", response.name, channels.join("`, `"));
    let help = "Add a variation without `channel`; on every other channel users hear the words for internal errors.";
    findings.warning("F0323", &response.place, message, help);
}

/// All variations have conditions: is there a case in which none holds?
fn left_over(survey: &Survey<'_>, response: &ResponseDef, open: &[&Variation], findings: &mut Findings) {
    let conditions: Vec<&Condition> = open.iter().filter_map(|one| one.condition.as_ref()).collect();
    if conditions.iter().any(|condition| survey.is_told(condition)) {
        return;
    }
    let older = || open.iter().flat_map(|one| &one.slot_conditions);
    let asked = older().map(|(slot, _)| slot.as_str());
    let constants = older().map(|(slot, value)| (slot.as_str(), value));
    let ground = Ground::of(survey.project, conditions.iter().copied(), constants, asked);
    // An empty slot is left out: a response about a slot is said when it is filled.
    let masks: Vec<_> = ground.slots.iter().map(|cells| cells.all() & !NULL).collect();
    let older_as_conditions = slots_as_conditions(older().map(|(slot, _)| slot.as_str()));
    let all = conditions.iter().copied().chain(older_as_conditions.iter());
    let mut missing: Option<String> = None;
    ground.each_case(all, &masks, &mut |case| {
        if missing.is_none() && !open.iter().any(|one| may_be_said(one, case)) {
            missing = Some(said(&ground, case));
        }
    });
    if let Some(missing) = missing {
        let message = format!("`{}` has nothing to say when {missing}", response.name);
        let help = "Add a variation without a condition; else users hear the words for internal errors.";
        findings.warning("F0323", &response.place, message, help);
    }
}

/// Conditions that only name slots, so that their cases are gone through.
fn slots_as_conditions<'s>(slots: impl Iterator<Item = &'s str>) -> Vec<Condition> {
    slots.filter_map(|slot| Condition::parse(&format!("slots.{slot}")).ok()).collect()
}

fn may_be_said(variation: &Variation, case: &Case<'_>) -> bool {
    let equals = |(slot, value): &(crate::ids::SlotName, Json)| {
        case.slot(slot.as_str()).is_none_or(|supposed| {
            let is_same = match (supposed.value, value) {
                (Json::Number(a), Json::Number(b)) => a.as_f64() == b.as_f64(),
                (a, b) => a == b,
            };
            is_same || (!supposed.exact && !supposed.value.is_number() && !supposed.value.is_string())
        })
    };
    variation.slot_conditions.iter().all(equals)
        && variation.condition.as_ref().is_none_or(|condition| condition.possible_results(case).holds)
}

fn said(ground: &Ground, case: &Case<'_>) -> String {
    let parts = ground.slots.iter().enumerate().filter_map(|(at, cells)| {
        let mask = case.of(at)?;
        Some(format!("`{}` is {}", cells.slot, cells.said(mask)))
    });
    parts.collect::<Vec<_>>().join(" and ")
}
