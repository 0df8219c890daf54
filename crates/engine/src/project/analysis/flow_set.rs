//! Checks that compare whole flows: equivalent descriptions, duplicate names, flows that nothing starts, and custom patterns
//! without a required action.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{
    super::{
        ActionReference, Call, Flow, StepKind,
        builtin::{self, pattern},
    },
    project_index::ProjectIndex,
};
use crate::finding::Findings;

pub(super) fn check(index: &ProjectIndex<'_>, findings: &mut Findings) {
    let flows: Vec<&Flow> = index.own_flows().filter(|flow| !flow.is_pattern()).collect();
    descriptions(&flows, findings);
    names(&flows, findings);
    starts(index, &flows, findings);
    for flow in index.own_flows().filter(|flow| flow.is_pattern()) {
        required_action(index, flow, findings);
    }
}

/// Whether a command may start the flow.
fn is_offered(flow: &Flow) -> bool {
    flow.guard.as_ref().and_then(|guard| guard.as_constant()) != Some(false)
}

/// Stop words, which do not describe what a flow does.
const STOP_WORDS: [&str; 33] = [
    "a", "an", "the", "to", "of", "for", "in", "on", "with", "and", "or", "is", "are", "be", "their", "his", "her",
    "my", "your", "this", "that", "user", "users", "customer", "wants", "want", "would", "like", "flow", "when", "if",
    "should", "it",
];
/// Placeholder descriptions.
const PLACEHOLDERS: [&str; 8] =
    [concat!("to", "do"), concat!("fix", "me"), "tbd", "description", "xxx", "placeholder", "add description", ""];

/// The sorted words of a description without stop words and plural endings, to compare descriptions.
fn keywords(description: &str) -> Vec<String> {
    let words =
        description.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_lowercase);
    let mut words: Vec<String> = words
        .filter(|word| !STOP_WORDS.contains(&word.as_str()))
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
        if PLACEHOLDERS.contains(&plain.join(" ").to_lowercase().as_str()) {
            let message =
                format!("the description of `{}` is a placeholder, but the model chooses flows by it", flow.id);
            findings.warning("F0251", &flow.place, message, "Write in one sentence what the flow does.");
            continue;
        }
        let keywords = keywords(&flow.description);
        if keywords.len() < 2 {
            continue;
        }
        match first.get(&keywords) {
            Some(other) if are_apart(other, flow) => {}
            Some(other) => {
                let place = &other.place;
                let message = format!(
                    "the model cannot distinguish `{}` from `{}` ({}:{}): their descriptions are equivalent",
                    flow.id, other.id, place.file, place.line
                );
                let help = "Write the difference into the descriptions, or add guards that exclude each other.";
                findings.warning("F0249", &flow.place, message, help);
            }
            None => _ = first.insert(keywords, flow),
        }
    }
}

/// Whether guards distinguish two flows. Two different guards are assumed to exclude each other.
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
                let message = format!("`{}` and `{}` have the same name, `{}`", other.id, flow.id, flow.name);
                let help = "Rename one: users see the names in clarification questions.";
                findings.warning("F0250", &flow.place, message, help);
            }
            Some(_) => {}
            None => _ = first.insert(flow.name.to_lowercase(), flow),
        }
    }
}

fn starts(index: &ProjectIndex<'_>, flows: &[&Flow], findings: &mut Findings) {
    let mut started: HashSet<&str> = HashSet::new();
    for step in index.project.flows.values().flat_map(|flow| &flow.steps) {
        match &step.kind {
            StepKind::Link(flow) | StepKind::Call(Call::Flow(flow)) => _ = started.insert(flow.as_str()),
            _ => {}
        }
    }
    for flow in flows {
        if !is_offered(flow) && flow.nlu_triggers.is_empty() && !started.contains(flow.id.as_str()) {
            let message =
                format!("nothing starts `{}`: its guard is false, and no flow calls it or links to it", flow.id);
            findings.warning("F0248", &flow.place, message, "Call it, change its guard, or remove it.");
        }
    }
}

/// Patterns that must run an action if a project replaces them: the pattern, the action, and the effect of its absence.
const REQUIRED_ACTIONS: [(&str, &str, &str); 6] = [
    (pattern::CANCEL_FLOW, builtin::CANCEL_FLOW, "the cancelled flow continues"),
    (pattern::CORRECTION, builtin::CORRECT_FLOW_SLOT, "the corrected slot keeps its old value"),
    (pattern::COLLECT_INFORMATION, builtin::LISTEN, "the turn does not wait for an answer"),
    (pattern::VALIDATE_SLOT, builtin::RUN_SLOT_REJECTIONS, "no value is ever rejected"),
    (pattern::CODE_CHANGE, builtin::CLEAN_STACK, "the changed flow continues"),
    (pattern::RESTART, builtin::RESTART, "the conversation is not reset"),
];

fn required_action(index: &ProjectIndex<'_>, flow: &Flow, findings: &mut Findings) {
    let Some((_, action, loss)) = REQUIRED_ACTIONS.iter().find(|(pattern, ..)| flow.id == *pattern) else { return };
    let does = |name: &ActionReference| match name {
        // A custom action may do the same.
        ActionReference::Plain(name) => *name == **action || index.is_own_code(&ActionReference::Plain(name.clone())),
        ActionReference::Template(_) => false,
    };
    let is_run = flow.steps.iter().any(|step| match &step.kind {
        StepKind::Action(name) => does(name),
        StepKind::Link(_) | StepKind::Call(_) => true,
        _ => false,
    });
    if !is_run {
        let message = format!("`{}` does not run `{action}`, so {loss}", flow.id);
        findings.warning("F0252", &flow.place, message, format!("Add the step `- action: {action}`."));
    }
}
