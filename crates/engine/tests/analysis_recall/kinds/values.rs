//! Invalid values, wrong rejections, and mistakes in buttons.

use super::{Mistake, kind};
use crate::{
    project_builder::{CHOICES, Kind, ProjectBuilder, act, described, fill, rule},
    yaml::{Yaml, list, map, plain, text},
};

pub const KINDS: [Mistake; 18] = [
    kind("a rejection with and in place of or", rejection_never),
    kind("rejections that refuse everything", rejection_always),
    kind("a rejection that refuses all values of a choice", rejection_of_all_choices),
    kind("a rejection on another slot", rejection_elsewhere),
    kind("a slot is set to a value it cannot have", impossible_value),
    kind("a number slot is set to a word", word_for_number),
    kind("a button fills a slot that does not exist", button_slot),
    kind("a button fills a value the slot cannot have", button_value),
    kind("a button fills a number with a word", button_number),
    kind("a button sends an intent that does not exist", button_intent),
    kind("a payload that is never closed", button_open),
    kind("a payload with a small s", button_case),
    kind("an initial value of another type", initial_type),
    kind("an initial value that is not a choice", initial_choice),
    kind("two choices that differ in case", twin_choices),
    kind("a choice without choices", no_choices),
    kind("a validation that refuses everything", validation_always),
    kind("bounds on a text", bounds_on_text),
];

fn rejecting(project: &mut ProjectBuilder, kind: Kind, conditions: &[&str]) {
    let slot = project.slot("weight", kind);
    let rejections: Vec<Yaml> = conditions
        .iter()
        .map(|condition| {
            let words = project.says("That will not do.");
            rule(&condition.replace('#', &format!("slots.{slot}")), &words)
        })
        .collect();
    project.insert(vec![described(&slot).with("rejections", list(rejections).marked())]);
}

fn rejection_never(project: &mut ProjectBuilder) {
    rejecting(project, Kind::Float, &["# < 1 and # > 9"]);
}

fn rejection_always(project: &mut ProjectBuilder) {
    if project.rng.percent(50) {
        rejecting(project, Kind::Float, &["# < 10 or # > 9"]);
    } else {
        rejecting(project, Kind::Float, &["# > 5", "# <= 5"]);
    }
}

fn rejection_of_all_choices(project: &mut ProjectBuilder) {
    rejecting(project, Kind::Choice, &["# != \"Basic\""]);
}

fn rejection_elsewhere(project: &mut ProjectBuilder) {
    let other = project.slot("height", Kind::Float);
    project.insert(vec![described(&other)]);
    rejecting(project, Kind::Float, &[&format!("slots.{other} < 1")]);
}

fn impossible_value(project: &mut ProjectBuilder) {
    let slot = project.held("stage", "categorical");
    let shown = project.prints([&slot]);
    let pair = map([(slot.clone(), text("finished").marked())]);
    project.insert(vec![map([("set_slots", list([pair]))]), act(&shown)]);
}

fn word_for_number(project: &mut ProjectBuilder) {
    let slot = project.held("level", "float");
    let shown = project.prints([&slot]);
    let pair = map([(slot.clone(), text("plenty").marked())]);
    project.insert(vec![map([("set_slots", list([pair]))]), act(&shown)]);
}

/// A response with one button.
fn button(project: &mut ProjectBuilder, payload: &str) {
    let name = project.says("Press it.");
    let button = map([("title", text("This one")), ("payload", text(payload).marked())]);
    let variation = map([("text", text("Press it.")), ("buttons", list([button]))]);
    *project.response(&name) = list([variation]);
    project.insert(vec![act(&name)]);
}

fn button_slot(project: &mut ProjectBuilder) {
    button(project, "/SetSlots(slot_of_old=1)");
}

fn button_value(project: &mut ProjectBuilder) {
    let slot = project.slot("weight", Kind::Choice);
    project.insert(vec![described(&slot)]);
    button(project, &format!("/SetSlots({slot}=enormous)"));
}

fn button_number(project: &mut ProjectBuilder) {
    let slot = project.slot("weight", Kind::Float);
    project.insert(vec![described(&slot)]);
    button(project, &format!("/SetSlots({slot}=many)"));
}

fn button_intent(project: &mut ProjectBuilder) {
    project.intents.push(text("say_hello"));
    let words = project.says("Hello.");
    let flow = project.flow("greet_them", "The user says hello.", vec![act(&words)]);
    project.flows[flow].keys.push(("nlu_trigger".into(), list([map([("intent", text("say_hello"))])])));
    button(project, "/say_helo");
}

fn button_open(project: &mut ProjectBuilder) {
    let slot = project.slot("weight", Kind::Text);
    project.insert(vec![described(&slot)]);
    button(project, &format!("/SetSlots({slot}=one"));
}

fn button_case(project: &mut ProjectBuilder) {
    let slot = project.slot("weight", Kind::Text);
    project.insert(vec![described(&slot)]);
    button(project, &format!("/setSlots({slot}=one)"));
}

/// A slot with these keys that is set and printed.
fn keyed(project: &mut ProjectBuilder, keys: Vec<(&'static str, Yaml)>) {
    let slot = project.held("rank", "text");
    *project.slot_keys(&slot) = map(keys).with("mappings", list([map([("type", text("controlled"))])]));
    let shown = project.prints([&slot]);
    project.insert(vec![fill(&slot, plain("null")), act(&shown)]);
}

fn initial_type(project: &mut ProjectBuilder) {
    keyed(project, vec![("type", text("float")), ("initial_value", text("ten").marked())]);
}

fn initial_choice(project: &mut ProjectBuilder) {
    let values = list(CHOICES.map(text));
    keyed(
        project,
        vec![("type", text("categorical")), ("values", values), ("initial_value", text("gigantic").marked())],
    );
}

fn twin_choices(project: &mut ProjectBuilder) {
    let values = list([text("small"), text("large"), text("Small").marked()]);
    keyed(project, vec![("type", text("categorical")), ("values", values)]);
}

fn no_choices(project: &mut ProjectBuilder) {
    let slot = project.held("rank", "text");
    *project.slot_keys(&slot) = map([("type", text("categorical"))]).marked();
    let shown = project.prints([&slot]);
    project.insert(vec![fill(&slot, plain("null")), act(&shown)]);
}

fn validation_always(project: &mut ProjectBuilder) {
    let slot = project.slot("weight", Kind::Float);
    let words = project.says("That will not do.");
    let rejection = rule(&format!("slots.{slot} > 0 or slots.{slot} <= 0"), &words).marked();
    project.slot_keys(&slot).set("validation", map([("rejections", list([rejection]))]));
    project.insert(vec![described(&slot)]);
}

fn bounds_on_text(project: &mut ProjectBuilder) {
    keyed(project, vec![("type", text("text")), ("max_value", plain(10).marked())]);
}
