//! Ways through flows that lead round in circles or nowhere, and slots that are read before they can be filled.

use super::{Plant, kind, quiet};
use crate::{
    world::{Kind, World, act, described, ending, fill, going, named, ways},
    yaml::{Y, list, map, plain, text},
};

pub const KINDS: [Plant; 20] = [
    kind("steps that go round without a question", silent_circle),
    kind("a retry that never asks again", filled_circle),
    kind("a tool is tried again for ever", tool_circle),
    kind("a tool that fails is tried again for ever", error_circle),
    kind("questions without a way out", no_exit),
    kind("flows that link in a silent circle", link_circle),
    kind("a slot is asked for twice in a row", asked_twice),
    kind("a branch before the question", branch_before),
    kind("a text prints what is asked for later", printed_before),
    kind("a tool gets what is asked for later", sent_before),
    quiet("a branch on a slot that nothing fills", never_filled),
    quiet("a guard on a slot that nothing fills", guard_never_filled),
    quiet("a tool gets a slot that nothing fills", sent_never_filled),
    quiet("a slot is gone when its flow ends", forgotten),
    quiet("a guard on a slot that is gone when its flow ends", guard_forgotten),
    kind("only actions fill it, and it is asked for", controlled_question),
    kind("a list is asked for", list_question),
    kind("two things ask for one slot", two_questions),
    kind("a slot is persisted that the flow does not ask for", persisted_stranger),
    quiet("a slot is asked for and never used", asked_for_nothing),
];

fn silent_circle(world: &mut World) {
    let slot = world.slot("gauge", Kind::Choice);
    let (a, b) = (world.says("Let me see."), world.says("Not yet."));
    let again = going(vec![act(&b)], "look_again");
    let look = act(&a).with("next", ways(vec![(text(format!("slots.{slot} is \"basic\"")), text("look_done"))], again));
    world.insert(vec![
        described(&slot),
        named("look_again", look).marked(),
        named("look_done", act("utter_can_do_something_else")),
    ]);
}

fn filled_circle(world: &mut World) {
    let slot = world.slot("gauge", Kind::Float);
    let sorry = world.says("That is too much, try again.");
    // The slot stays filled, so the question is never asked a second time.
    let retry = (text(format!("slots.{slot} > 100")), going(vec![act(&sorry)], "ask_gauge"));
    let step = named("ask_gauge", described(&slot)).with("next", ways(vec![retry], text("gauge_done")));
    world.insert(vec![step.marked(), named("gauge_done", act("utter_can_do_something_else"))]);
}

fn tool_circle(world: &mut World) {
    let (key, done) = (world.slot("gauge", Kind::Text), world.held("rung", "bool"));
    let input = map([("param", text("x")), ("slot", text(key.clone()))]);
    let output = map([("slot", text(done.clone())), ("value", text("result.structuredContent.done"))]);
    let call = map([("call", text("ring_the_bell")), ("mcp_server", text("depot"))])
        .with("mapping", map([("input", list([input])), ("output", list([output]))]))
        .with("next", ways(vec![(text(format!("slots.{done}")), text("bell_done"))], text("ring_again")));
    world.insert(vec![
        described(&key),
        named("ring_again", call).marked(),
        named("bell_done", act("utter_can_do_something_else")),
    ]);
}

fn error_circle(world: &mut World) {
    let sorry = world.says("One moment, I try again.");
    let call =
        map([("call", text("ring_the_bell")), ("mcp_server", text("depot")), ("mapping", map([("input", list([]))]))]);
    let again = list([act(&sorry).with("next", text("ring_once_more"))]);
    world.insert(vec![named("ring_once_more", call).with("on_error", again).marked()]);
}

fn no_exit(world: &mut World) {
    let (a, b) = (world.slot("gauge", Kind::Text), world.slot("label", Kind::Text));
    let steps = vec![
        named("first_question", described(&a)).with("ask_before_filling", plain(true)).marked(),
        described(&b).with("ask_before_filling", plain(true)).with("next", text("first_question")).marked(),
    ];
    let shown = world.prints(&[a, b]);
    let words = act(&shown);
    let mut steps = steps;
    steps.insert(1, words);
    world.flow("count_forever", "The user counts and counts.", steps);
}

fn link_circle(world: &mut World) {
    for (id, other) in [("tick_talk", "tock_talk"), ("tock_talk", "tick_talk")] {
        let words = world.says("On and on.");
        let steps = vec![act(&words), map([("link", text(other))]).marked()];
        world.flow(id, &format!("The user listens to the {id} of the clock."), steps);
    }
}

fn asked_twice(world: &mut World) {
    let slot = world.slot("gauge", Kind::Text);
    let words = world.says("And once more.");
    let shown = world.prints([&slot]);
    world.insert(vec![described(&slot), act(&words), described(&slot).marked(), act(&shown)]);
}

fn branch_before(world: &mut World) {
    let slot = world.slot("gauge", Kind::Float);
    let (a, b) = (world.says("A lot."), world.says("Now then."));
    let branch = (text(format!("slots.{slot} > 10")).marked(), ending(vec![act(&a)]));
    let first = act(&b).with("next", ways(vec![branch], text("gauge_question")));
    world.flow("read_the_gauge", "The user reads the gauge.", vec![first, named("gauge_question", described(&slot))]);
}

fn printed_before(world: &mut World) {
    let slot = world.slot("gauge", Kind::Text);
    let shown = world.prints([&slot]);
    world.flow("read_the_gauge", "The user reads the gauge.", vec![act(&shown).marked(), described(&slot)]);
}

fn tool(input: &str) -> Y {
    let input = map([("param", text("x")), ("slot", text(input).marked())]);
    map([("call", text("ring_the_bell")), ("mcp_server", text("depot"))])
        .with("mapping", map([("input", list([input]))]))
}

fn sent_before(world: &mut World) {
    let slot = world.slot("gauge", Kind::Text);
    world.flow("read_the_gauge", "The user reads the gauge.", vec![tool(&slot).marked(), described(&slot)]);
}

fn never_filled(world: &mut World) {
    let slot = world.held("weather", "text");
    let words = world.says("It rains.");
    let branch = (text(format!("slots.{slot} is \"rain\"")).marked(), ending(vec![act(&words)]));
    let look = world.says("Looking outside.");
    world.insert(vec![
        act(&look).with("next", ways(vec![branch], text("after_rain"))),
        named("after_rain", act("utter_can_do_something_else")),
    ]);
}

fn guard_never_filled(world: &mut World) {
    let slot = world.held("allowed", "bool");
    let (flow, _) = world.place();
    world.flows[flow].keys.retain(|(key, _)| key != "if");
    world.flows[flow].keys.push(("if".into(), text(format!("slots.{slot}")).marked()));
}

fn sent_never_filled(world: &mut World) {
    let slot = world.held("weather", "text");
    world.insert(vec![tool(&slot).marked()]);
}

fn forgotten(world: &mut World) {
    let slot = world.slot("nickname", Kind::Text);
    let (thanks, words) = (world.says("Thank you."), world.says("Hello, boss."));
    world.flow("tell_nickname", "The user tells their nickname.", vec![described(&slot), act(&thanks)]);
    let branch = (text(format!("slots.{slot} is \"boss\"")).marked(), ending(vec![act(&words)]));
    let on = act("utter_can_do_something_else");
    let first = act(&thanks).with("next", ways(vec![branch], text("no_boss")));
    world.flow("greet_by_nickname", "The user wants to be greeted.", vec![first, named("no_boss", on)]);
}

fn guard_forgotten(world: &mut World) {
    let pin = world.slot("secret", Kind::Text);
    let inside = world.held("verified", "bool");
    let words = world.says("Here it is.");
    // `persisted_slots: [verified]` was left out.
    world.flow("verify_them", "The user verifies their identity.", vec![described(&pin), fill(&inside, plain(true))]);
    let flow = world.flow("see_the_vault", "The user wants to see what is in the vault.", vec![act(&words)]);
    world.flows[flow].keys.push(("if".into(), text(format!("slots.{inside}")).marked()));
}

fn controlled_question(world: &mut World) {
    let slot = world.slot("gauge", Kind::Text);
    world.slot_keys(&slot).set("mappings", list([map([("type", text("controlled"))])]));
    world.insert(vec![described(&slot).marked()]);
}

fn list_question(world: &mut World) {
    let slot = world.slot("gauge", Kind::Text);
    world.slot_keys(&slot).set("type", text("list"));
    world.insert(vec![described(&slot).marked()]);
}

fn two_questions(world: &mut World) {
    let slot = world.slot("gauge", Kind::Text);
    world.actions.push(text(format!("action_ask_{slot}")));
    world.insert(vec![described(&slot).marked()]);
}

fn persisted_stranger(world: &mut World) {
    let slot = world.slot("gauge", Kind::Text);
    let words = world.says("Stays for ever.");
    world.insert(vec![described(&slot)]);
    let flow = world.flow("keep_the_gauge", "The user wants the gauge kept.", vec![act(&words)]);
    world.flows[flow].keys.push(("persisted_slots".into(), list([text(slot)])));
    world.flows[flow].marked = true;
}

fn asked_for_nothing(world: &mut World) {
    let slot = world.slot("shoe_size", Kind::Float);
    world.insert(vec![described(&slot).marked()]);
}
