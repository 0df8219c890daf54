//! Mistakes in whole flows: descriptions, names, guards, patterns.

use super::{Mistake, kind};
use crate::{
    project_builder::{Kind, ProjectBuilder, act, described},
    yaml::{list, map, plain, text},
};

pub const KINDS: [Mistake; 16] = [
    kind("a flow without a description", no_description),
    kind("an empty description", empty_description),
    kind("a flow without steps", no_steps),
    kind("a misspelt key of a flow", flow_key),
    kind("two flows with one description", same_description),
    kind("two flows with nearly one description", near_description),
    kind("two flows with one name", same_name),
    kind("a flow that nothing starts", never_started),
    kind("cancelling without the action that cancels", pattern_cancel),
    kind("correcting without the action that corrects", pattern_correct),
    kind("collecting without listening", pattern_collect),
    kind("a restart that forgets nothing", pattern_restart),
    kind("a pattern that calls a flow", pattern_calls),
    kind("an invalid id", bad_id),
    kind("a description that says nothing", placeholder),
    kind("sessions whose rules contradict each other", sessions),
];

fn lone(project: &mut ProjectBuilder, id: &str, description: &str) -> usize {
    let words = project.says("Well, well.");
    project.flow(id, description, vec![act(&words)])
}

fn no_description(project: &mut ProjectBuilder) {
    let flow = lone(project, "star_talk", "x");
    project.flows[flow].keys.clear();
    project.flows[flow].marked = true;
}

fn empty_description(project: &mut ProjectBuilder) {
    let flow = lone(project, "star_talk", "");
    project.flows[flow].marked = true;
}

fn no_steps(project: &mut ProjectBuilder) {
    let flow = project.flow("star_talk", "The user talks about the stars.", Vec::new());
    project.flows[flow].marked = true;
}

fn flow_key(project: &mut ProjectBuilder) {
    let flow = lone(project, "star_talk", "The user talks about the stars.");
    let (key, value) = match project.rng.below(3) {
        0 => ("persisted_slot", list([])),
        1 => ("run_patern_completed", plain(false)),
        _ => ("always_include", plain(true)),
    };
    project.flows[flow].keys.push((key.into(), value.marked()));
}

/// Two flows; the description of each is the mistake.
fn twins(project: &mut ProjectBuilder, a: &str, b: &str) {
    for (id, description) in [("star_talk", a), ("heaven_talk", b)] {
        let flow = lone(project, id, description);
        project.flows[flow].marked = true;
    }
}

fn same_description(project: &mut ProjectBuilder) {
    twins(project, "The user talks about the stars.", "The user talks about the stars.");
}

fn near_description(project: &mut ProjectBuilder) {
    twins(project, "The user talks about the stars.", "User wants to talk about stars");
}

fn same_name(project: &mut ProjectBuilder) {
    twins(project, "The user talks about the stars.", "The user asks for the way to heaven.");
    let count = project.flows.len();
    for flow in &mut project.flows[count - 2..] {
        flow.keys.push(("name".into(), text("above us")));
    }
}

fn never_started(project: &mut ProjectBuilder) {
    let flow = lone(project, "star_talk", "The user talks about the stars.");
    project.flows[flow].keys.push(("if".into(), plain("false")));
    project.flows[flow].marked = true;
}

/// A custom pattern; the whole pattern is the mistake.
fn pattern(project: &mut ProjectBuilder, id: &str) {
    project.flows.retain(|flow| flow.id != id);
    let flow = lone(project, id, "in our own words");
    project.flows[flow].marked = true;
}

fn pattern_cancel(project: &mut ProjectBuilder) {
    pattern(project, "pattern_cancel_flow");
}

fn pattern_correct(project: &mut ProjectBuilder) {
    pattern(project, "pattern_correction");
}

fn pattern_collect(project: &mut ProjectBuilder) {
    project.flows.retain(|flow| flow.id != "pattern_collect_information");
    let flow = project.flow(
        "pattern_collect_information",
        "asks in our own way",
        vec![act("action_run_slot_rejections"), map([("action", text("{{context.utter}}"))])],
    );
    project.flows[flow].marked = true;
}

fn pattern_restart(project: &mut ProjectBuilder) {
    pattern(project, "pattern_restart");
}

fn pattern_calls(project: &mut ProjectBuilder) {
    let slot = project.slot("mood", Kind::Text);
    project.flow("ask_the_mood", "The user tells their mood.", vec![described(&slot)]);
    let call = map([("call", text("ask_the_mood").marked())]);
    project.flow("pattern_skip_question", "skipping in our own way", vec![act("utter_skip_question_answer"), call]);
}

fn bad_id(project: &mut ProjectBuilder) {
    let flow = lone(project, "star talk!", "The user talks about the stars.");
    project.flows[flow].marked = true;
}

fn placeholder(project: &mut ProjectBuilder) {
    let words = *project.rng.pick(&[&concat!("TO", "DO"), &"description", &"...", &"tbd"]);
    let flow = lone(project, "star_talk", words);
    project.flows[flow].marked = true;
}

fn sessions(project: &mut ProjectBuilder) {
    let config =
        map([("start_session_after_expiry", plain(false)), ("carry_over_slots_to_new_session", plain(true).marked())]);
    project.more_domain.push(("session_config".into(), config));
}
