//! Flows as wholes: descriptions and names that cannot be told apart, flows that nothing starts, patterns that miss their part.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{
    super::{
        ActionReference, Call, Flow, StepKind,
        builtin::{self, pattern},
    },
    survey::Survey,
};
use crate::finding::Findings;

pub(super) fn check(survey: &Survey<'_>, findings: &mut Findings) {
    let flows: Vec<&Flow> = survey.own_flows().filter(|flow| !flow.is_pattern()).collect();
    descriptions(&flows, findings);
    names(&flows, findings);
    starts(survey, &flows, findings);
    for flow in survey.own_flows().filter(|flow| flow.is_pattern()) {
        contract(survey, flow, findings);
    }
}

/// Whether a command may start the flow.
fn is_offered(flow: &Flow) -> bool {
    flow.guard.as_ref().and_then(|guard| guard.as_constant()) != Some(false)
}

/// Words that say nothing about what a flow does.
const EMPTY_WORDS: [&str; 33] = [
    "a", "an", "the", "to", "of", "for", "in", "on", "with", "and", "or", "is", "are", "be", "their", "his", "her",
    "my", "your", "this", "that", "user", "users", "customer", "wants", "want", "would", "like", "flow", "when", "if",
    "should", "it",
];
/// Descriptions that were left for later.
const LEFT_FOR_LATER: [&str; 8] =
    [concat!("to", "do"), concat!("fix", "me"), "tbd", "description", "xxx", "placeholder", "add description", ""];

/// What is left of a description when what does not count is taken out: its words in order of the alphabet.
fn gist(description: &str) -> Vec<String> {
    let words =
        description.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_lowercase);
    let mut words: Vec<String> = words
        .filter(|word| !EMPTY_WORDS.contains(&word.as_str()))
        .map(|word| word.strip_suffix('s').filter(|stem| stem.len() > 2).map_or(word.clone(), str::to_owned))
        .collect();
    words.sort();
    words.dedup();
    words
}

fn descriptions(flows: &[&Flow], findings: &mut Findings) {
    let mut first: HashMap<Vec<String>, &Flow> = HashMap::new();
    for flow in flows.iter().filter(|flow| is_offered(flow)) {
        let plain: Vec<&str> =
            flow.description.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
        if LEFT_FOR_LATER.contains(&plain.join(" ").to_lowercase().as_str()) {
            let message = format!("the description of `{}` says nothing: the model chooses flows by it", flow.id);
            findings.warning("F0251", &flow.place, message, "Say what the user gets from it, in a sentence.");
            continue;
        }
        let gist = gist(&flow.description);
        if gist.len() < 2 {
            continue;
        }
        match first.get(&gist) {
            Some(other) if are_apart(other, flow) => {}
            Some(other) => {
                let place = &other.place;
                let message = format!(
                    "the model cannot tell `{}` from `{}` ({}:{}): their descriptions say the same",
                    flow.id, other.id, place.file, place.line
                );
                let help = "Say in each what the other is not for, or give them guards that exclude each other.";
                findings.warning("F0249", &flow.place, message, help);
            }
            None => _ = first.insert(gist, flow),
        }
    }
}

/// Whether guards keep two flows apart; two different guards are taken for it.
fn are_apart(a: &Flow, b: &Flow) -> bool {
    match (&a.guard, &b.guard) {
        (Some(a), Some(b)) => a != b,
        _ => false,
    }
}

fn names(flows: &[&Flow], findings: &mut Findings) {
    let mut first: BTreeMap<String, &Flow> = BTreeMap::new();
    for flow in flows.iter().filter(|flow| is_offered(flow)) {
        match first.get(&flow.name.to_lowercase()) {
            Some(other) if !are_apart(other, flow) => {
                let message = format!("`{}` and `{}` have one name, `{}`", other.id, flow.id, flow.name);
                let help = "Name them apart: users hear the name when they are asked which one they mean.";
                findings.warning("F0250", &flow.place, message, help);
            }
            Some(_) => {}
            None => _ = first.insert(flow.name.to_lowercase(), flow),
        }
    }
}

fn starts(survey: &Survey<'_>, flows: &[&Flow], findings: &mut Findings) {
    let mut started: HashSet<&str> = HashSet::new();
    for step in survey.project.flows.values().flat_map(|flow| &flow.steps) {
        match &step.kind {
            StepKind::Link(flow) | StepKind::Call(Call::Flow(flow)) => _ = started.insert(flow.as_str()),
            _ => {}
        }
    }
    for flow in flows {
        if !is_offered(flow) && flow.nlu_triggers.is_empty() && !started.contains(flow.id.as_str()) {
            let message = format!("nothing starts `{}`: its guard is false, and no flow calls or links to it", flow.id);
            findings.warning("F0248", &flow.place, message, "Call it, give it a guard that can hold, or remove it.");
        }
    }
}

/// What a pattern of the project's own must run, or the runtime waits in vain: the pattern, its action, what is lost without it.
const CONTRACTS: [(&str, &str, &str); 6] = [
    (pattern::CANCEL_FLOW, builtin::CANCEL_FLOW, "the flow that was cancelled goes on"),
    (pattern::CORRECTION, builtin::CORRECT_FLOW_SLOT, "the corrected slot keeps its old value"),
    (pattern::COLLECT_INFORMATION, builtin::LISTEN, "nobody ever waits for an answer"),
    (pattern::VALIDATE_SLOT, builtin::RUN_SLOT_REJECTIONS, "no value is ever refused"),
    (pattern::CODE_CHANGE, builtin::CLEAN_STACK, "the flow that was changed goes on"),
    (pattern::RESTART, builtin::RESTART, "nothing is forgotten"),
];

fn contract(survey: &Survey<'_>, flow: &Flow, findings: &mut Findings) {
    let Some((_, action, loss)) = CONTRACTS.iter().find(|(pattern, ..)| flow.id == *pattern) else { return };
    let does = |name: &ActionReference| match name {
        // Code of the project's own may do the same.
        ActionReference::Plain(name) => *name == **action || survey.is_own_code(&ActionReference::Plain(name.clone())),
        ActionReference::Template(_) => false,
    };
    let is_kept = flow.steps.iter().any(|step| match &step.kind {
        StepKind::Action(name) => does(name),
        StepKind::Link(_) | StepKind::Call(_) => true,
        _ => false,
    });
    if !is_kept {
        let message = format!("this `{}` does not run `{action}`, so {loss}", flow.id);
        findings.warning("F0252", &flow.place, message, format!("Add the step `- action: {action}`."));
    }
}
