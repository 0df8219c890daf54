//! Habits brought along from other languages, and copies that were not finished.

use super::{Plant, kind, quiet};
use crate::{
    world::{Kind, World, act, described, ending, fill, named, ways},
    yaml::{Y, list, map, plain, text},
};

pub const KINDS: [Plant; 24] = [
    kind("end in small letters", small_end),
    kind("next names a step of another flow", step_elsewhere),
    kind("a list as in Python", python_in),
    kind("two ampersands", ampersands),
    kind("None as in Python", python_none),
    kind("slot without its s", slot_singular),
    kind("slots. in the braces of a plain text", dotted_braces),
    kind("double braces in a plain text", double_braces),
    kind("single braces in a template", single_braces),
    kind("a flow as an action", flow_as_action),
    kind("an agent as a link", agent_as_link),
    kind("one parameter of a tool twice", parameter_twice),
    kind("two answers of a tool fill one slot", output_twice),
    kind("the answer of a tool under another name", output_root),
    quiet("a guard that waits for its own flow", guard_of_itself),
    kind("a slot is set and then asked for", set_then_asked),
    kind("an initial value that hides the question", initial_hides),
    kind("two buttons with one title", twin_buttons),
    kind("the buttons of a question fill another slot", foreign_buttons),
    kind("the model may fill the slot in another flow only", mapped_elsewhere),
    kind("else in the place of a further if", nested_else_key),
    kind("then beside the list", then_outside),
    kind("a response without dashes", response_map),
    kind("the same intent twice in one flow", intent_repeated),
];

fn asked(world: &mut World, kind: Kind, condition: &str) {
    let slot = world.slot("depth", kind);
    let words = world.says("This way.");
    let on = format!("onward_{slot}");
    let condition = text(condition.replace('#', &slot)).marked();
    world.insert(vec![
        described(&slot).with("next", ways(vec![(condition, ending(vec![act(&words)]))], text(on.clone()))),
        named(&on, act("utter_can_do_something_else")),
    ]);
}

fn small_end(world: &mut World) {
    let words = world.says("Enough.");
    world.flow("say_enough", "The user has enough of it.", vec![act(&words).with("next", text("end").marked())]);
}

fn step_elsewhere(world: &mut World) {
    let (a, b) = (world.says("Here."), world.says("There."));
    world.flow("say_here", "The user asks what is here.", vec![named("say_it_here", act(&a))]);
    world.flow("say_there", "The user asks what is there.", vec![act(&b).with("next", text("say_it_here").marked())]);
}

fn python_in(world: &mut World) {
    asked(world, Kind::Choice, "slots.# in [\"basic\", \"premium\"]");
}

fn ampersands(world: &mut World) {
    asked(world, Kind::Float, "slots.# > 5 && slots.# < 9");
}

fn python_none(world: &mut World) {
    asked(world, Kind::Text, "slots.# == None");
}

fn slot_singular(world: &mut World) {
    asked(world, Kind::Float, "slot.# > 5");
}

/// A text with the slot, behind its question.
fn printing(world: &mut World, words: &str, jinja: bool) {
    let slot = world.slot("depth", Kind::Float);
    let name = world.says("Words.");
    let mut variation = map([("text", text(words.replace('#', &slot)).marked())]);
    if jinja {
        variation.set("metadata", map([("template", text("jinja"))]));
    }
    *world.response(&name) = list([variation]);
    world.insert(vec![described(&slot), act(&name)]);
}

fn dotted_braces(world: &mut World) {
    printing(world, "It is {slots.#} deep.", false);
}

fn double_braces(world: &mut World) {
    let words = *world.chance.pick(&[&"It is {{ slots.# }} deep.", &"It is {{#}} deep."]);
    printing(world, words, false);
}

fn single_braces(world: &mut World) {
    printing(world, "It is {#} deep.", true);
}

fn flow_as_action(world: &mut World) {
    let id = world.flows[0].id.clone();
    world.insert(vec![map([("action", text(id).marked())])]);
}

fn agent_as_link(world: &mut World) {
    let agent = map([
        ("agent", map([("name", text("diver")), ("description", text("Knows the sea"))])),
        ("connections", map([("mcp_servers", list([map([("name", text("depot"))])]))])),
    ]);
    world.agents.push(("diver".to_owned(), agent));
    world.insert(vec![map([("call", text("diver"))])]);
    world.flow("go_diving", "The user wants to dive.", vec![map([("link", text("diver").marked())])]);
}

fn tool(world: &mut World, input: Vec<Y>, output: Vec<Y>) {
    let call = map([("call", text("measure_depth")), ("mcp_server", text("depot"))]);
    world.insert(vec![call.with("mapping", map([("input", list(input)), ("output", list(output))])).marked()]);
}

fn given(param: &str, slot: &str) -> Y {
    map([("param", text(param)), ("slot", text(slot))])
}

fn taken(slot: &str, value: &str) -> Y {
    map([("slot", text(slot)), ("value", text(value))])
}

fn parameter_twice(world: &mut World) {
    let (a, b) = (world.slot("depth", Kind::Text), world.slot("width", Kind::Text));
    world.flow("measure_it", "The user measures something.", vec![described(&a), described(&b)]);
    let call = map([("call", text("measure_depth")), ("mcp_server", text("depot"))]);
    let input = vec![given("where", &a), given("where", &b)];
    let call = call.with("mapping", map([("input", list(input))])).marked();
    let at = world.flows.len() - 1;
    world.flows[at].steps.push(call);
}

fn output_twice(world: &mut World) {
    let slot = world.held("depth", "any");
    let output = vec![taken(&slot, "result.structuredContent.a"), taken(&slot, "result.structuredContent.b")];
    tool(world, Vec::new(), output);
}

fn output_root(world: &mut World) {
    let slot = world.held("depth", "any");
    let path = *world.chance.pick(&[&"results.structuredContent.depth", &"structuredContent.depth", &"response.depth"]);
    tool(world, Vec::new(), vec![taken(&slot, path)]);
}

fn guard_of_itself(world: &mut World) {
    let slot = world.held("dived", "bool");
    let words = world.says("Splash.");
    let steps = vec![act(&words), fill(&slot, plain(true))];
    let flow = world.flow("dive_again", "The user wants to dive again.", steps);
    world.flows[flow].keys.push(("persisted_slots".into(), list([text(slot.clone())])));
    world.flows[flow].keys.push(("if".into(), text(format!("slots.{slot}")).marked()));
}

fn set_then_asked(world: &mut World) {
    let slot = world.slot("depth", Kind::Float);
    let shown = world.prints([&slot]);
    world.insert(vec![fill(&slot, plain(10)), described(&slot).marked(), act(&shown)]);
}

fn initial_hides(world: &mut World) {
    let slot = world.slot("depth", Kind::Bool);
    world.slot_keys(&slot).set("initial_value", plain(false));
    let shown = world.prints([&slot]);
    world.insert(vec![described(&slot).marked(), act(&shown)]);
}

fn buttons(world: &mut World, slot: &str, buttons: Vec<Y>) {
    let variation = map([("text", text("Which?")), ("buttons", list(buttons).marked())]);
    *world.response(&format!("utter_ask_{slot}")) = list([variation]);
}

fn button(title: &str, slot: &str, value: &str) -> Y {
    map([("title", text(title)), ("payload", text(format!("/SetSlots({slot}={value})")))])
}

fn twin_buttons(world: &mut World) {
    let slot = world.slot("depth", Kind::Choice);
    buttons(world, &slot, vec![button("The usual", &slot, "basic"), button("The usual", &slot, "premium")]);
    world.insert(vec![described(&slot)]);
}

fn foreign_buttons(world: &mut World) {
    let (slot, other) = (world.slot("depth", Kind::Choice), world.slot("width", Kind::Choice));
    buttons(world, &slot, vec![button("Basic", &other, "basic"), button("Premium", &other, "premium")]);
    world.insert(vec![described(&slot), described(&other)]);
}

fn mapped_elsewhere(world: &mut World) {
    let slot = world.slot("depth", Kind::Text);
    let other = world.flows[0].id.clone();
    let condition = map([("active_flow", text(other))]);
    let mapping = map([("type", text("from_llm")), ("conditions", list([condition]))]);
    world.slot_keys(&slot).set("mappings", list([mapping]));
    let shown = world.prints([&slot]);
    world.flow("sound_the_depth", "The user sounds the depth.", vec![described(&slot).marked(), act(&shown)]);
}

fn nested_else_key(world: &mut World) {
    let slot = world.slot("depth", Kind::Choice);
    let first = map([("if", text(format!("slots.{slot} is \"basic\""))), ("then", text("END"))]);
    let second = map([("else", text(format!("slots.{slot} is \"premium\"")).marked())]);
    world.insert(vec![described(&slot).with("next", list([first, second]))]);
}

fn then_outside(world: &mut World) {
    let slot = world.slot("depth", Kind::Bool);
    let first = map([("if", text(format!("slots.{slot}")))]);
    let next = list([first.marked(), map([("then", text("END"))]).marked(), map([("else", text("END"))])]);
    world.insert(vec![described(&slot).with("next", next)]);
}

fn response_map(world: &mut World) {
    let name = world.says("Words.");
    *world.response(&name) = map([("txt", text("Words without a dash.")).to_owned()]).marked();
    world.insert(vec![act(&name)]);
}

fn intent_repeated(world: &mut World) {
    world.intents.push(text("dive_in"));
    let words = world.says("Splash.");
    let flow = world.flow("dive_in_now", "The user dives in.", vec![act(&words)]);
    let trigger = || map([("intent", text("dive_in"))]);
    world.flows[flow].keys.push(("nlu_trigger".into(), list([trigger(), trigger().marked()])));
}
