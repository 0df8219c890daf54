//! Steps that are put together wrongly.

use super::{Plant, kind};
use crate::{
    world::{Kind, World, act, described, ending, named, ways},
    yaml::{Y, list, map, plain, text},
};

pub const KINDS: [Plant; 22] = [
    kind("next names a step that is not there", next_unknown),
    kind("two steps have one id", id_twice),
    kind("branches without else", no_else),
    kind("the last step of a branch does not say how it goes on", no_way_on),
    kind("else stands twice", two_elses),
    kind("a noop without next", noop_alone),
    kind("a branch with an empty list", empty_branch),
    kind("a step with two actions", two_kinds),
    kind("a step that does nothing", no_kind),
    kind("the id of a step is reserved", reserved),
    kind("a misspelt key of a step", step_key),
    kind("a key of another kind of step", foreign_key),
    kind("a step after a link", after_link),
    kind("a link with next", link_next),
    kind("a step after the end", after_end),
    kind("a step that everything jumps over", jumped_over),
    kind("if and else in one item", if_and_else),
    kind("a branch without then", no_then),
    kind("a key twice in one step", key_twice),
    kind("a quote that is never closed", open_quote),
    kind("yes instead of true", yes_for_true),
    kind("one slot persisted in two ways", persisted_twice),
];

fn line(world: &mut World) -> Y {
    let name = world.says("Let us see.");
    act(&name)
}

fn next_unknown(world: &mut World) {
    let step = line(world).with("next", text("the_step_that_moved").marked());
    let name = world.says("Not there.");
    world.insert(vec![step, named("the_step_was_here", act(&name))]);
}

fn id_twice(world: &mut World) {
    let (a, b) = (line(world), line(world));
    world.insert(vec![named("same_id", a), named("same_id", b).marked()]);
}

fn no_else(world: &mut World) {
    let slot = world.slot("colour", Kind::Choice);
    let branch = map([("if", text(format!("slots.{slot} is \"basic\""))), ("then", text("END"))]);
    world.insert(vec![described(&slot).with("next", list([branch]).marked())]);
}

fn no_way_on(world: &mut World) {
    let slot = world.slot("extra", Kind::Bool);
    let inner = line(world).marked();
    world.insert(vec![
        described(&slot).with("next", ways(vec![(text(format!("slots.{slot}")), list([inner]))], text("END"))),
    ]);
}

fn two_elses(world: &mut World) {
    let slot = world.slot("extra", Kind::Bool);
    let a = line(world);
    let Y::List(mut items) = ways(vec![(text(format!("slots.{slot}")), text("END"))], ending(vec![a])) else { return };
    items.push(map([("else", text("END"))]).marked());
    world.insert(vec![described(&slot).with("next", list(items))]);
}

fn noop_alone(world: &mut World) {
    world.insert(vec![map([("noop", plain(true))]).marked()]);
}

fn empty_branch(world: &mut World) {
    let slot = world.slot("extra", Kind::Bool);
    let item = map([("if", text(format!("slots.{slot}"))), ("then", list([]).marked())]);
    world.insert(vec![described(&slot).with("next", list([item, map([("else", text("END"))])]))]);
}

fn two_kinds(world: &mut World) {
    let slot = world.slot("colour", Kind::Text);
    let step = line(world).with("collect", text(slot));
    world.insert(vec![step.marked()]);
}

fn no_kind(world: &mut World) {
    world.insert(vec![map([("id", text("just_an_id")), ("description", text("to be written"))]).marked()]);
}

fn reserved(world: &mut World) {
    let step = line(world);
    world.insert(vec![named("START", step).marked()]);
}

fn step_key(world: &mut World) {
    let slot = world.slot("colour", Kind::Text);
    let wrong = *world.chance.pick(&[&"ask_before_fillin", &"descripton", &"rejection", &"uter", &"nxt"]);
    let value = match wrong {
        "ask_before_fillin" => plain(true).marked(),
        "rejection" => list([]).marked(),
        _ => text("what it is").marked(),
    };
    world.insert(vec![described(&slot).with(wrong, value)]);
}

fn foreign_key(world: &mut World) {
    let step = line(world).with("ask_before_filling", plain(true).marked());
    world.insert(vec![step]);
}

fn other_flow(world: &mut World, not: usize) -> String {
    let at = (0..world.flows.len()).find(|at| *at != not && !world.flows[*at].id.starts_with("pattern_")).unwrap();
    world.flows[at].id.clone()
}

fn after_link(world: &mut World) {
    let flow = world.flow("farewell_words", "The user says goodbye to everybody.", Vec::new());
    let target = other_flow(world, flow);
    let after = line(world);
    // Either of the two is the place: the link that is too early, or what follows it.
    world.flows[flow].steps = vec![map([("link", text(target))]).marked(), after.marked()];
}

fn link_next(world: &mut World) {
    let flow = world.flow("farewell_words", "The user says goodbye to everybody.", Vec::new());
    let target = other_flow(world, flow);
    world.flows[flow].steps = vec![map([("link", text(target)), ("next", text("END"))]).marked()];
}

fn after_end(world: &mut World) {
    let (a, b) = (line(world), line(world));
    let flow = world.flow("farewell_words", "The user says goodbye to everybody.", Vec::new());
    world.flows[flow].steps = vec![a.with("next", text("END")), b.marked()];
}

fn jumped_over(world: &mut World) {
    let (a, b, c) = (line(world), line(world), line(world));
    world.insert(vec![a.with("next", text("landing")), b.marked(), named("landing", c)]);
}

fn if_and_else(world: &mut World) {
    let slot = world.slot("extra", Kind::Bool);
    let item = map([("if", text(format!("slots.{slot}"))), ("then", text("END")), ("else", text("END"))]);
    world.insert(vec![described(&slot).with("next", list([item.marked()]))]);
}

fn no_then(world: &mut World) {
    let slot = world.slot("extra", Kind::Bool);
    let item = map([("if", text(format!("slots.{slot}")))]).marked();
    world.insert(vec![described(&slot).with("next", list([item, map([("else", text("END"))])]))]);
}

fn key_twice(world: &mut World) {
    let Y::Map(mut pairs) = line(world) else { return };
    let first = pairs[0].clone();
    pairs.push((first.0, first.1.marked()));
    world.insert(vec![Y::Map(pairs)]);
}

fn open_quote(world: &mut World) {
    // The parser notices at the next line that cannot belong to the quote, or at the end of the file.
    let file =
        "flows:\n  late_news:\n    description: \"The user asks for news.\n    steps:\n      - action: action_listen\n";
    world.raw.push(("data/late.yml".into(), file.into(), 4));
}

fn yes_for_true(world: &mut World) {
    let slot = world.slot("colour", Kind::Text);
    world.insert(vec![described(&slot).with("ask_before_filling", plain("yes").marked())]);
}

fn persisted_twice(world: &mut World) {
    let slot = world.slot("colour", Kind::Text);
    let step = described(&slot).with("reset_after_flow_ends", plain(false)).marked();
    let shown = world.prints([&slot]);
    let flow = world.flow("paint_it", "The user wants something painted.", vec![step, act(&shown)]);
    world.flows[flow].keys.push(("persisted_slots".into(), list([text(slot)])));
    world.flows[flow].marked = true;
}
