//! Values that do not fit, rejections that refuse the wrong things, buttons.

use super::{Plant, kind};
use crate::{
    world::{CHOICES, Kind, World, act, described, fill, rule},
    yaml::{Y, list, map, plain, text},
};

pub const KINDS: [Plant; 18] = [
    kind("a rejection with and in place of or", rejection_never),
    kind("rejections that refuse everything", rejection_always),
    kind("a rejection that refuses all values of a choice", rejection_of_all_choices),
    kind("a rejection on another slot", rejection_elsewhere),
    kind("a slot is set to a value it cannot have", impossible_value),
    kind("a number slot is set to a word", word_for_number),
    kind("a button fills a slot that is not there", button_slot),
    kind("a button fills a value the slot cannot have", button_value),
    kind("a button fills a number with a word", button_number),
    kind("a button sends an intent that is not there", button_intent),
    kind("a payload that is never closed", button_open),
    kind("a payload with a small s", button_case),
    kind("an initial value of another type", initial_type),
    kind("an initial value that is not a choice", initial_choice),
    kind("two choices that differ in case", twin_choices),
    kind("a choice without choices", no_choices),
    kind("a validation that refuses everything", validation_always),
    kind("bounds on a text", bounds_on_text),
];

fn rejecting(world: &mut World, kind: Kind, conditions: &[&str]) {
    let slot = world.slot("weight", kind);
    let rejections: Vec<Y> = conditions
        .iter()
        .map(|condition| {
            let words = world.says("That will not do.");
            rule(&condition.replace('#', &format!("slots.{slot}")), &words)
        })
        .collect();
    world.insert(vec![described(&slot).with("rejections", list(rejections).marked())]);
}

fn rejection_never(world: &mut World) {
    rejecting(world, Kind::Float, &["# < 1 and # > 9"]);
}

fn rejection_always(world: &mut World) {
    if world.chance.often(50) {
        rejecting(world, Kind::Float, &["# < 10 or # > 9"]);
    } else {
        rejecting(world, Kind::Float, &["# > 5", "# <= 5"]);
    }
}

fn rejection_of_all_choices(world: &mut World) {
    rejecting(world, Kind::Choice, &["# != \"Basic\""]);
}

fn rejection_elsewhere(world: &mut World) {
    let other = world.slot("height", Kind::Float);
    world.insert(vec![described(&other)]);
    rejecting(world, Kind::Float, &[&format!("slots.{other} < 1")]);
}

fn impossible_value(world: &mut World) {
    let slot = world.held("stage", "categorical");
    let shown = world.prints([&slot]);
    let pair = map([(slot.clone(), text("finished").marked())]);
    world.insert(vec![map([("set_slots", list([pair]))]), act(&shown)]);
}

fn word_for_number(world: &mut World) {
    let slot = world.held("level", "float");
    let shown = world.prints([&slot]);
    let pair = map([(slot.clone(), text("plenty").marked())]);
    world.insert(vec![map([("set_slots", list([pair]))]), act(&shown)]);
}

/// A response with one button.
fn button(world: &mut World, payload: &str) {
    let name = world.says("Press it.");
    let button = map([("title", text("This one")), ("payload", text(payload).marked())]);
    let variation = map([("text", text("Press it.")), ("buttons", list([button]))]);
    *world.response(&name) = list([variation]);
    world.insert(vec![act(&name)]);
}

fn button_slot(world: &mut World) {
    button(world, "/SetSlots(slot_of_old=1)");
}

fn button_value(world: &mut World) {
    let slot = world.slot("weight", Kind::Choice);
    world.insert(vec![described(&slot)]);
    button(world, &format!("/SetSlots({slot}=enormous)"));
}

fn button_number(world: &mut World) {
    let slot = world.slot("weight", Kind::Float);
    world.insert(vec![described(&slot)]);
    button(world, &format!("/SetSlots({slot}=many)"));
}

fn button_intent(world: &mut World) {
    world.intents.push(text("say_hello"));
    let words = world.says("Hello.");
    let flow = world.flow("greet_them", "The user says hello.", vec![act(&words)]);
    world.flows[flow].keys.push(("nlu_trigger".into(), list([map([("intent", text("say_hello"))])])));
    button(world, "/say_helo");
}

fn button_open(world: &mut World) {
    let slot = world.slot("weight", Kind::Text);
    world.insert(vec![described(&slot)]);
    button(world, &format!("/SetSlots({slot}=one"));
}

fn button_case(world: &mut World) {
    let slot = world.slot("weight", Kind::Text);
    world.insert(vec![described(&slot)]);
    button(world, &format!("/setSlots({slot}=one)"));
}

/// A slot of these keys that is filled and printed.
fn keyed(world: &mut World, keys: Vec<(&'static str, Y)>) {
    let slot = world.held("rank", "text");
    *world.slot_keys(&slot) = map(keys).with("mappings", list([map([("type", text("controlled"))])]));
    let shown = world.prints([&slot]);
    world.insert(vec![fill(&slot, plain("null")), act(&shown)]);
}

fn initial_type(world: &mut World) {
    keyed(world, vec![("type", text("float")), ("initial_value", text("ten").marked())]);
}

fn initial_choice(world: &mut World) {
    let values = list(CHOICES.map(text));
    keyed(world, vec![("type", text("categorical")), ("values", values), ("initial_value", text("gigantic").marked())]);
}

fn twin_choices(world: &mut World) {
    let values = list([text("small"), text("large"), text("Small").marked()]);
    keyed(world, vec![("type", text("categorical")), ("values", values)]);
}

fn no_choices(world: &mut World) {
    let slot = world.held("rank", "text");
    *world.slot_keys(&slot) = map([("type", text("categorical"))]).marked();
    let shown = world.prints([&slot]);
    world.insert(vec![fill(&slot, plain("null")), act(&shown)]);
}

fn validation_always(world: &mut World) {
    let slot = world.slot("weight", Kind::Float);
    let words = world.says("That will not do.");
    let rejection = rule(&format!("slots.{slot} > 0 or slots.{slot} <= 0"), &words).marked();
    world.slot_keys(&slot).set("validation", map([("rejections", list([rejection]))]));
    world.insert(vec![described(&slot)]);
}

fn bounds_on_text(world: &mut World) {
    keyed(world, vec![("type", text("text")), ("max_value", plain(10).marked())]);
}
