//! Malformed steps.

use super::{Mistake, kind};
use crate::{
    project_builder::{Kind, ProjectBuilder, act, described, ending, named, ways},
    yaml::{Yaml, list, map, plain, text},
};

pub const KINDS: [Mistake; 22] = [
    kind("next names a step that does not exist", next_unknown),
    kind("two steps have one id", id_twice),
    kind("branches without else", no_else),
    kind("the last step of a branch has no next", no_way_on),
    kind("two else entries", two_elses),
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

fn line(project: &mut ProjectBuilder) -> Yaml {
    let name = project.says("Let us see.");
    act(&name)
}

fn next_unknown(project: &mut ProjectBuilder) {
    let step = line(project).with("next", text("the_step_that_moved").marked());
    let name = project.says("Not there.");
    project.insert(vec![step, named("the_step_was_here", act(&name))]);
}

fn id_twice(project: &mut ProjectBuilder) {
    let (a, b) = (line(project), line(project));
    project.insert(vec![named("same_id", a), named("same_id", b).marked()]);
}

fn no_else(project: &mut ProjectBuilder) {
    let slot = project.slot("colour", Kind::Choice);
    let branch = map([("if", text(format!("slots.{slot} is \"basic\""))), ("then", text("END"))]);
    project.insert(vec![described(&slot).with("next", list([branch]).marked())]);
}

fn no_way_on(project: &mut ProjectBuilder) {
    let slot = project.slot("extra", Kind::Bool);
    let inner = line(project).marked();
    project.insert(vec![
        described(&slot).with("next", ways(vec![(text(format!("slots.{slot}")), list([inner]))], text("END"))),
    ]);
}

fn two_elses(project: &mut ProjectBuilder) {
    let slot = project.slot("extra", Kind::Bool);
    let a = line(project);
    let Yaml::List(mut items) = ways(vec![(text(format!("slots.{slot}")), text("END"))], ending(vec![a])) else {
        return;
    };
    items.push(map([("else", text("END"))]).marked());
    project.insert(vec![described(&slot).with("next", list(items))]);
}

fn noop_alone(project: &mut ProjectBuilder) {
    project.insert(vec![map([("noop", plain(true))]).marked()]);
}

fn empty_branch(project: &mut ProjectBuilder) {
    let slot = project.slot("extra", Kind::Bool);
    let item = map([("if", text(format!("slots.{slot}"))), ("then", list([]).marked())]);
    project.insert(vec![described(&slot).with("next", list([item, map([("else", text("END"))])]))]);
}

fn two_kinds(project: &mut ProjectBuilder) {
    let slot = project.slot("colour", Kind::Text);
    let step = line(project).with("collect", text(slot));
    project.insert(vec![step.marked()]);
}

fn no_kind(project: &mut ProjectBuilder) {
    project.insert(vec![map([("id", text("just_an_id")), ("description", text("to be written"))]).marked()]);
}

fn reserved(project: &mut ProjectBuilder) {
    let step = line(project);
    project.insert(vec![named("START", step).marked()]);
}

fn step_key(project: &mut ProjectBuilder) {
    let slot = project.slot("colour", Kind::Text);
    let wrong = *project.rng.pick(&[&"ask_before_fillin", &"descripton", &"rejection", &"uter", &"nxt"]);
    let value = match wrong {
        "ask_before_fillin" => plain(true).marked(),
        "rejection" => list([]).marked(),
        _ => text("what it is").marked(),
    };
    project.insert(vec![described(&slot).with(wrong, value)]);
}

fn foreign_key(project: &mut ProjectBuilder) {
    let step = line(project).with("ask_before_filling", plain(true).marked());
    project.insert(vec![step]);
}

fn other_flow(project: &mut ProjectBuilder, not: usize) -> String {
    let at = (0..project.flows.len()).find(|at| *at != not && !project.flows[*at].id.starts_with("pattern_")).unwrap();
    project.flows[at].id.clone()
}

fn after_link(project: &mut ProjectBuilder) {
    let flow = project.flow("farewell_words", "The user says goodbye to everybody.", Vec::new());
    let target = other_flow(project, flow);
    let after = line(project);
    // Both places are correct: the link that is too early, or the step after it.
    project.flows[flow].steps = vec![map([("link", text(target))]).marked(), after.marked()];
}

fn link_next(project: &mut ProjectBuilder) {
    let flow = project.flow("farewell_words", "The user says goodbye to everybody.", Vec::new());
    let target = other_flow(project, flow);
    project.flows[flow].steps = vec![map([("link", text(target)), ("next", text("END"))]).marked()];
}

fn after_end(project: &mut ProjectBuilder) {
    let (a, b) = (line(project), line(project));
    let flow = project.flow("farewell_words", "The user says goodbye to everybody.", Vec::new());
    project.flows[flow].steps = vec![a.with("next", text("END")), b.marked()];
}

fn jumped_over(project: &mut ProjectBuilder) {
    let (a, b, c) = (line(project), line(project), line(project));
    project.insert(vec![a.with("next", text("landing")), b.marked(), named("landing", c)]);
}

fn if_and_else(project: &mut ProjectBuilder) {
    let slot = project.slot("extra", Kind::Bool);
    let item = map([("if", text(format!("slots.{slot}"))), ("then", text("END")), ("else", text("END"))]);
    project.insert(vec![described(&slot).with("next", list([item.marked()]))]);
}

fn no_then(project: &mut ProjectBuilder) {
    let slot = project.slot("extra", Kind::Bool);
    let item = map([("if", text(format!("slots.{slot}")))]).marked();
    project.insert(vec![described(&slot).with("next", list([item, map([("else", text("END"))])]))]);
}

fn key_twice(project: &mut ProjectBuilder) {
    let Yaml::Map(mut pairs) = line(project) else { return };
    let first = pairs[0].clone();
    pairs.push((first.0, first.1.marked()));
    project.insert(vec![Yaml::Map(pairs)]);
}

fn open_quote(project: &mut ProjectBuilder) {
    // The parser reports the next line that cannot belong to the string, or the end of the file.
    let file =
        "flows:\n  late_news:\n    description: \"The user asks for news.\n    steps:\n      - action: action_listen\n";
    project.raw.push(("data/late.yml".into(), file.into(), 4));
}

fn yes_for_true(project: &mut ProjectBuilder) {
    let slot = project.slot("colour", Kind::Text);
    project.insert(vec![described(&slot).with("ask_before_filling", plain("yes").marked())]);
}

fn persisted_twice(project: &mut ProjectBuilder) {
    let slot = project.slot("colour", Kind::Text);
    let step = described(&slot).with("reset_after_flow_ends", plain(false)).marked();
    let shown = project.prints([&slot]);
    let flow = project.flow("paint_it", "The user wants something painted.", vec![step, act(&shown)]);
    project.flows[flow].keys.push(("persisted_slots".into(), list([text(slot)])));
    project.flows[flow].marked = true;
}
