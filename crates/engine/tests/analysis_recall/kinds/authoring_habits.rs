//! Mistakes from habits of other languages, and from unfinished copies.

use super::{Mistake, kind, without_custom_actions};
use crate::{
    project_builder::{Kind, ProjectBuilder, act, described, ending, fill, named, ways},
    yaml::{Yaml, list, map, plain, text},
};

pub const KINDS: [Mistake; 24] = [
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
    without_custom_actions("a guard that waits for its own flow", guard_of_itself),
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

fn asked(project: &mut ProjectBuilder, kind: Kind, condition: &str) {
    let slot = project.slot("depth", kind);
    let words = project.says("This way.");
    let on = format!("onward_{slot}");
    let condition = text(condition.replace('#', &slot)).marked();
    project.insert(vec![
        described(&slot).with("next", ways(vec![(condition, ending(vec![act(&words)]))], text(on.clone()))),
        named(&on, act("utter_can_do_something_else")),
    ]);
}

fn small_end(project: &mut ProjectBuilder) {
    let words = project.says("Enough.");
    project.flow("say_enough", "The user has enough of it.", vec![act(&words).with("next", text("end").marked())]);
}

fn step_elsewhere(project: &mut ProjectBuilder) {
    let (a, b) = (project.says("Here."), project.says("There."));
    project.flow("say_here", "The user asks what is here.", vec![named("say_it_here", act(&a))]);
    project.flow("say_there", "The user asks what is there.", vec![act(&b).with("next", text("say_it_here").marked())]);
}

fn python_in(project: &mut ProjectBuilder) {
    asked(project, Kind::Choice, "slots.# in [\"basic\", \"premium\"]");
}

fn ampersands(project: &mut ProjectBuilder) {
    asked(project, Kind::Float, "slots.# > 5 && slots.# < 9");
}

fn python_none(project: &mut ProjectBuilder) {
    asked(project, Kind::Text, "slots.# == None");
}

fn slot_singular(project: &mut ProjectBuilder) {
    asked(project, Kind::Float, "slot.# > 5");
}

/// A text with the slot, after its question.
fn printing(project: &mut ProjectBuilder, words: &str, jinja: bool) {
    let slot = project.slot("depth", Kind::Float);
    let name = project.says("Words.");
    let mut variation = map([("text", text(words.replace('#', &slot)).marked())]);
    if jinja {
        variation.set("metadata", map([("template", text("jinja"))]));
    }
    *project.response(&name) = list([variation]);
    project.insert(vec![described(&slot), act(&name)]);
}

fn dotted_braces(project: &mut ProjectBuilder) {
    printing(project, "It is {slots.#} deep.", false);
}

fn double_braces(project: &mut ProjectBuilder) {
    let words = *project.rng.pick(&[&"It is {{ slots.# }} deep.", &"It is {{#}} deep."]);
    printing(project, words, false);
}

fn single_braces(project: &mut ProjectBuilder) {
    printing(project, "It is {#} deep.", true);
}

fn flow_as_action(project: &mut ProjectBuilder) {
    let id = project.flows[0].id.clone();
    project.insert(vec![map([("action", text(id).marked())])]);
}

fn agent_as_link(project: &mut ProjectBuilder) {
    let agent = map([
        ("agent", map([("name", text("diver")), ("description", text("Knows the sea"))])),
        ("connections", map([("mcp_servers", list([map([("name", text("depot"))])]))])),
    ]);
    project.agents.push(("diver".to_owned(), agent));
    project.insert(vec![map([("call", text("diver"))])]);
    project.flow("go_diving", "The user wants to dive.", vec![map([("link", text("diver").marked())])]);
}

fn tool(project: &mut ProjectBuilder, input: Vec<Yaml>, output: Vec<Yaml>) {
    let call = map([("call", text("measure_depth")), ("mcp_server", text("depot"))]);
    project.insert(vec![call.with("mapping", map([("input", list(input)), ("output", list(output))])).marked()]);
}

fn given(param: &str, slot: &str) -> Yaml {
    map([("param", text(param)), ("slot", text(slot))])
}

fn taken(slot: &str, value: &str) -> Yaml {
    map([("slot", text(slot)), ("value", text(value))])
}

fn parameter_twice(project: &mut ProjectBuilder) {
    let (a, b) = (project.slot("depth", Kind::Text), project.slot("width", Kind::Text));
    project.flow("measure_it", "The user measures something.", vec![described(&a), described(&b)]);
    let call = map([("call", text("measure_depth")), ("mcp_server", text("depot"))]);
    let input = vec![given("where", &a), given("where", &b)];
    let call = call.with("mapping", map([("input", list(input))])).marked();
    let at = project.flows.len() - 1;
    project.flows[at].steps.push(call);
}

fn output_twice(project: &mut ProjectBuilder) {
    let slot = project.held("depth", "any");
    let output = vec![taken(&slot, "result.structuredContent.a"), taken(&slot, "result.structuredContent.b")];
    tool(project, Vec::new(), output);
}

fn output_root(project: &mut ProjectBuilder) {
    let slot = project.held("depth", "any");
    let path = *project.rng.pick(&[&"results.structuredContent.depth", &"structuredContent.depth", &"response.depth"]);
    tool(project, Vec::new(), vec![taken(&slot, path)]);
}

fn guard_of_itself(project: &mut ProjectBuilder) {
    let slot = project.held("dived", "bool");
    let words = project.says("Splash.");
    let steps = vec![act(&words), fill(&slot, plain(true))];
    let flow = project.flow("dive_again", "The user wants to dive again.", steps);
    project.flows[flow].keys.push(("persisted_slots".into(), list([text(slot.clone())])));
    project.flows[flow].keys.push(("if".into(), text(format!("slots.{slot}")).marked()));
}

fn set_then_asked(project: &mut ProjectBuilder) {
    let slot = project.slot("depth", Kind::Float);
    let shown = project.prints([&slot]);
    project.insert(vec![fill(&slot, plain(10)), described(&slot).marked(), act(&shown)]);
}

fn initial_hides(project: &mut ProjectBuilder) {
    let slot = project.slot("depth", Kind::Bool);
    project.slot_keys(&slot).set("initial_value", plain(false));
    let shown = project.prints([&slot]);
    project.insert(vec![described(&slot).marked(), act(&shown)]);
}

fn buttons(project: &mut ProjectBuilder, slot: &str, buttons: Vec<Yaml>) {
    let variation = map([("text", text("Which?")), ("buttons", list(buttons).marked())]);
    *project.response(&format!("utter_ask_{slot}")) = list([variation]);
}

fn button(title: &str, slot: &str, value: &str) -> Yaml {
    map([("title", text(title)), ("payload", text(format!("/SetSlots({slot}={value})")))])
}

fn twin_buttons(project: &mut ProjectBuilder) {
    let slot = project.slot("depth", Kind::Choice);
    buttons(project, &slot, vec![button("The usual", &slot, "basic"), button("The usual", &slot, "premium")]);
    project.insert(vec![described(&slot)]);
}

fn foreign_buttons(project: &mut ProjectBuilder) {
    let (slot, other) = (project.slot("depth", Kind::Choice), project.slot("width", Kind::Choice));
    buttons(project, &slot, vec![button("Basic", &other, "basic"), button("Premium", &other, "premium")]);
    project.insert(vec![described(&slot), described(&other)]);
}

fn mapped_elsewhere(project: &mut ProjectBuilder) {
    let slot = project.slot("depth", Kind::Text);
    let other = project.flows[0].id.clone();
    let condition = map([("active_flow", text(other))]);
    let mapping = map([("type", text("from_llm")), ("conditions", list([condition]))]);
    project.slot_keys(&slot).set("mappings", list([mapping]));
    let shown = project.prints([&slot]);
    project.flow("sound_the_depth", "The user sounds the depth.", vec![described(&slot).marked(), act(&shown)]);
}

fn nested_else_key(project: &mut ProjectBuilder) {
    let slot = project.slot("depth", Kind::Choice);
    let first = map([("if", text(format!("slots.{slot} is \"basic\""))), ("then", text("END"))]);
    let second = map([("else", text(format!("slots.{slot} is \"premium\"")).marked())]);
    project.insert(vec![described(&slot).with("next", list([first, second]))]);
}

fn then_outside(project: &mut ProjectBuilder) {
    let slot = project.slot("depth", Kind::Bool);
    let first = map([("if", text(format!("slots.{slot}")))]);
    let next = list([first.marked(), map([("then", text("END"))]).marked(), map([("else", text("END"))])]);
    project.insert(vec![described(&slot).with("next", next)]);
}

fn response_map(project: &mut ProjectBuilder) {
    let name = project.says("Words.");
    *project.response(&name) = map([("txt", text("Words without a dash.")).to_owned()]).marked();
    project.insert(vec![act(&name)]);
}

fn intent_repeated(project: &mut ProjectBuilder) {
    project.intents.push(text("dive_in"));
    let words = project.says("Splash.");
    let flow = project.flow("dive_in_now", "The user dives in.", vec![act(&words)]);
    let trigger = || map([("intent", text("dive_in"))]);
    project.flows[flow].keys.push(("nlu_trigger".into(), list([trigger(), trigger().marked()])));
}
