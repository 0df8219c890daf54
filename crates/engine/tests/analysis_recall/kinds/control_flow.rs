//! Paths that loop or lead nowhere, and slots that are read before they can be set.

use super::{Mistake, kind, without_custom_actions};
use crate::{
    project_builder::{Kind, ProjectBuilder, act, described, ending, fill, going, named, ways},
    yaml::{Yaml, list, map, plain, text},
};

pub const KINDS: [Mistake; 20] = [
    kind("a loop of steps without a question", silent_circle),
    kind("a retry that never asks again", filled_circle),
    kind("a tool is retried for ever", tool_circle),
    kind("a tool that fails is retried for ever", error_circle),
    kind("questions without a way out", no_exit),
    kind("flows that link in a cycle without a question", link_circle),
    kind("a slot is asked for twice in a row", asked_twice),
    kind("a branch before the question", branch_before),
    kind("a text prints what is asked for later", printed_before),
    kind("a tool gets what is asked for later", sent_before),
    without_custom_actions("a branch on a slot that nothing fills", never_filled),
    without_custom_actions("a guard on a slot that nothing fills", guard_never_filled),
    without_custom_actions("a tool gets a slot that nothing fills", sent_never_filled),
    without_custom_actions("a slot is gone when its flow ends", forgotten),
    without_custom_actions("a guard on a slot that is gone when its flow ends", guard_forgotten),
    kind("only actions fill it, and it is asked for", controlled_question),
    kind("a list is asked for", list_question),
    kind("two things ask for one slot", two_questions),
    kind("a slot is persisted that the flow does not ask for", persisted_stranger),
    without_custom_actions("a slot is asked for and never used", asked_for_nothing),
];

fn silent_circle(project: &mut ProjectBuilder) {
    let slot = project.slot("gauge", Kind::Choice);
    let (a, b) = (project.says("Let me see."), project.says("Not yet."));
    let again = going(vec![act(&b)], "look_again");
    let look = act(&a).with("next", ways(vec![(text(format!("slots.{slot} is \"basic\"")), text("look_done"))], again));
    project.insert(vec![
        described(&slot),
        named("look_again", look).marked(),
        named("look_done", act("utter_can_do_something_else")),
    ]);
}

fn filled_circle(project: &mut ProjectBuilder) {
    let slot = project.slot("gauge", Kind::Float);
    let sorry = project.says("That is too much, try again.");
    // The slot keeps its value, so the question is never asked a second time.
    let retry = (text(format!("slots.{slot} > 100")), going(vec![act(&sorry)], "ask_gauge"));
    let step = named("ask_gauge", described(&slot)).with("next", ways(vec![retry], text("gauge_done")));
    project.insert(vec![step.marked(), named("gauge_done", act("utter_can_do_something_else"))]);
}

fn tool_circle(project: &mut ProjectBuilder) {
    let (key, done) = (project.slot("gauge", Kind::Text), project.held("rung", "bool"));
    let input = map([("param", text("x")), ("slot", text(key.clone()))]);
    let output = map([("slot", text(done.clone())), ("value", text("result.structuredContent.done"))]);
    let call = map([("call", text("ring_the_bell")), ("mcp_server", text("depot"))])
        .with("mapping", map([("input", list([input])), ("output", list([output]))]))
        .with("next", ways(vec![(text(format!("slots.{done}")), text("bell_done"))], text("ring_again")));
    project.insert(vec![
        described(&key),
        named("ring_again", call).marked(),
        named("bell_done", act("utter_can_do_something_else")),
    ]);
}

fn error_circle(project: &mut ProjectBuilder) {
    let sorry = project.says("One moment, I try again.");
    let call =
        map([("call", text("ring_the_bell")), ("mcp_server", text("depot")), ("mapping", map([("input", list([]))]))]);
    let again = list([act(&sorry).with("next", text("ring_once_more"))]);
    project.insert(vec![named("ring_once_more", call).with("on_error", again).marked()]);
}

fn no_exit(project: &mut ProjectBuilder) {
    let (a, b) = (project.slot("gauge", Kind::Text), project.slot("label", Kind::Text));
    let steps = vec![
        named("first_question", described(&a)).with("ask_before_filling", plain(true)).marked(),
        described(&b).with("ask_before_filling", plain(true)).with("next", text("first_question")).marked(),
    ];
    let shown = project.prints(&[a, b]);
    let words = act(&shown);
    let mut steps = steps;
    steps.insert(1, words);
    project.flow("count_forever", "The user counts and counts.", steps);
}

fn link_circle(project: &mut ProjectBuilder) {
    for (id, other) in [("tick_talk", "tock_talk"), ("tock_talk", "tick_talk")] {
        let words = project.says("On and on.");
        let steps = vec![act(&words), map([("link", text(other))]).marked()];
        project.flow(id, &format!("The user listens to the {id} of the clock."), steps);
    }
}

fn asked_twice(project: &mut ProjectBuilder) {
    let slot = project.slot("gauge", Kind::Text);
    let words = project.says("And once more.");
    let shown = project.prints([&slot]);
    project.insert(vec![described(&slot), act(&words), described(&slot).marked(), act(&shown)]);
}

fn branch_before(project: &mut ProjectBuilder) {
    let slot = project.slot("gauge", Kind::Float);
    let (a, b) = (project.says("A lot."), project.says("Now then."));
    let branch = (text(format!("slots.{slot} > 10")).marked(), ending(vec![act(&a)]));
    let first = act(&b).with("next", ways(vec![branch], text("gauge_question")));
    project.flow("read_the_gauge", "The user reads the gauge.", vec![first, named("gauge_question", described(&slot))]);
}

fn printed_before(project: &mut ProjectBuilder) {
    let slot = project.slot("gauge", Kind::Text);
    let shown = project.prints([&slot]);
    project.flow("read_the_gauge", "The user reads the gauge.", vec![act(&shown).marked(), described(&slot)]);
}

fn tool(input: &str) -> Yaml {
    let input = map([("param", text("x")), ("slot", text(input).marked())]);
    map([("call", text("ring_the_bell")), ("mcp_server", text("depot"))])
        .with("mapping", map([("input", list([input]))]))
}

fn sent_before(project: &mut ProjectBuilder) {
    let slot = project.slot("gauge", Kind::Text);
    project.flow("read_the_gauge", "The user reads the gauge.", vec![tool(&slot).marked(), described(&slot)]);
}

fn never_filled(project: &mut ProjectBuilder) {
    let slot = project.held("weather", "text");
    let words = project.says("It rains.");
    let branch = (text(format!("slots.{slot} is \"rain\"")).marked(), ending(vec![act(&words)]));
    let look = project.says("Looking outside.");
    project.insert(vec![
        act(&look).with("next", ways(vec![branch], text("after_rain"))),
        named("after_rain", act("utter_can_do_something_else")),
    ]);
}

fn guard_never_filled(project: &mut ProjectBuilder) {
    let slot = project.held("allowed", "bool");
    let (flow, _) = project.place();
    project.flows[flow].keys.retain(|(key, _)| key != "if");
    project.flows[flow].keys.push(("if".into(), text(format!("slots.{slot}")).marked()));
}

fn sent_never_filled(project: &mut ProjectBuilder) {
    let slot = project.held("weather", "text");
    project.insert(vec![tool(&slot).marked()]);
}

fn forgotten(project: &mut ProjectBuilder) {
    let slot = project.slot("nickname", Kind::Text);
    let (thanks, words) = (project.says("Thank you."), project.says("Hello, boss."));
    project.flow("tell_nickname", "The user tells their nickname.", vec![described(&slot), act(&thanks)]);
    let branch = (text(format!("slots.{slot} is \"boss\"")).marked(), ending(vec![act(&words)]));
    let on = act("utter_can_do_something_else");
    let first = act(&thanks).with("next", ways(vec![branch], text("no_boss")));
    project.flow("greet_by_nickname", "The user wants to be greeted.", vec![first, named("no_boss", on)]);
}

fn guard_forgotten(project: &mut ProjectBuilder) {
    let pin = project.slot("secret", Kind::Text);
    let inside = project.held("verified", "bool");
    let words = project.says("Here it is.");
    // `persisted_slots: [verified]` is missing.
    project.flow("verify_them", "The user verifies their identity.", vec![described(&pin), fill(&inside, plain(true))]);
    let flow = project.flow("see_the_vault", "The user wants to see what is in the vault.", vec![act(&words)]);
    project.flows[flow].keys.push(("if".into(), text(format!("slots.{inside}")).marked()));
}

fn controlled_question(project: &mut ProjectBuilder) {
    let slot = project.slot("gauge", Kind::Text);
    project.slot_keys(&slot).set("mappings", list([map([("type", text("controlled"))])]));
    project.insert(vec![described(&slot).marked()]);
}

fn list_question(project: &mut ProjectBuilder) {
    let slot = project.slot("gauge", Kind::Text);
    project.slot_keys(&slot).set("type", text("list"));
    project.insert(vec![described(&slot).marked()]);
}

fn two_questions(project: &mut ProjectBuilder) {
    let slot = project.slot("gauge", Kind::Text);
    project.actions.push(text(format!("action_ask_{slot}")));
    project.insert(vec![described(&slot).marked()]);
}

fn persisted_stranger(project: &mut ProjectBuilder) {
    let slot = project.slot("gauge", Kind::Text);
    let words = project.says("Stays for ever.");
    project.insert(vec![described(&slot)]);
    let flow = project.flow("keep_the_gauge", "The user wants the gauge kept.", vec![act(&words)]);
    project.flows[flow].keys.push(("persisted_slots".into(), list([text(slot)])));
    project.flows[flow].marked = true;
}

fn asked_for_nothing(project: &mut ProjectBuilder) {
    let slot = project.slot("shoe_size", Kind::Float);
    project.insert(vec![described(&slot).marked()]);
}
