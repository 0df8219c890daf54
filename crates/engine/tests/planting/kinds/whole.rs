//! Flows as wholes: descriptions, names, guards, patterns.

use super::{Plant, kind};
use crate::{
    world::{Kind, World, act, described},
    yaml::{list, map, plain, text},
};

pub const KINDS: [Plant; 16] = [
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
    kind("an id that cannot be one", bad_id),
    kind("a description that says nothing", placeholder),
    kind("sessions whose rules contradict each other", sessions),
];

fn lone(world: &mut World, id: &str, description: &str) -> usize {
    let words = world.says("Well, well.");
    world.flow(id, description, vec![act(&words)])
}

fn no_description(world: &mut World) {
    let flow = lone(world, "star_talk", "x");
    world.flows[flow].keys.clear();
    world.flows[flow].marked = true;
}

fn empty_description(world: &mut World) {
    let flow = lone(world, "star_talk", "");
    world.flows[flow].marked = true;
}

fn no_steps(world: &mut World) {
    let flow = world.flow("star_talk", "The user talks about the stars.", Vec::new());
    world.flows[flow].marked = true;
}

fn flow_key(world: &mut World) {
    let flow = lone(world, "star_talk", "The user talks about the stars.");
    let (key, value) = match world.chance.below(3) {
        0 => ("persisted_slot", list([])),
        1 => ("run_patern_completed", plain(false)),
        _ => ("always_include", plain(true)),
    };
    world.flows[flow].keys.push((key.into(), value.marked()));
}

/// Two flows; each description is a place of the defect.
fn twins(world: &mut World, a: &str, b: &str) {
    for (id, description) in [("star_talk", a), ("heaven_talk", b)] {
        let flow = lone(world, id, description);
        world.flows[flow].marked = true;
    }
}

fn same_description(world: &mut World) {
    twins(world, "The user talks about the stars.", "The user talks about the stars.");
}

fn near_description(world: &mut World) {
    twins(world, "The user talks about the stars.", "User wants to talk about stars");
}

fn same_name(world: &mut World) {
    twins(world, "The user talks about the stars.", "The user asks for the way to heaven.");
    let count = world.flows.len();
    for flow in &mut world.flows[count - 2..] {
        flow.keys.push(("name".into(), text("above us")));
    }
}

fn never_started(world: &mut World) {
    let flow = lone(world, "star_talk", "The user talks about the stars.");
    world.flows[flow].keys.push(("if".into(), plain("false")));
    world.flows[flow].marked = true;
}

/// A pattern of the project's own; the pattern as a whole is the place.
fn pattern(world: &mut World, id: &str) {
    world.flows.retain(|flow| flow.id != id);
    let flow = lone(world, id, "in our own words");
    world.flows[flow].marked = true;
}

fn pattern_cancel(world: &mut World) {
    pattern(world, "pattern_cancel_flow");
}

fn pattern_correct(world: &mut World) {
    pattern(world, "pattern_correction");
}

fn pattern_collect(world: &mut World) {
    world.flows.retain(|flow| flow.id != "pattern_collect_information");
    let flow = world.flow(
        "pattern_collect_information",
        "asks in our own way",
        vec![act("action_run_slot_rejections"), map([("action", text("{{context.utter}}"))])],
    );
    world.flows[flow].marked = true;
}

fn pattern_restart(world: &mut World) {
    pattern(world, "pattern_restart");
}

fn pattern_calls(world: &mut World) {
    let slot = world.slot("mood", Kind::Text);
    world.flow("ask_the_mood", "The user tells their mood.", vec![described(&slot)]);
    let call = map([("call", text("ask_the_mood").marked())]);
    world.flow("pattern_skip_question", "skipping in our own way", vec![act("utter_skip_question_answer"), call]);
}

fn bad_id(world: &mut World) {
    let flow = lone(world, "star talk!", "The user talks about the stars.");
    world.flows[flow].marked = true;
}

fn placeholder(world: &mut World) {
    let words = *world.chance.pick(&[&concat!("TO", "DO"), &"description", &"...", &"tbd"]);
    let flow = lone(world, "star_talk", words);
    world.flows[flow].marked = true;
}

fn sessions(world: &mut World) {
    let config =
        map([("start_session_after_expiry", plain(false)), ("carry_over_slots_to_new_session", plain(true).marked())]);
    world.more_domain.push(("session_config".into(), config));
}
