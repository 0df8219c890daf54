//! Conditions that do not say what was meant.

use super::{Plant, kind};
use crate::{
    world::{Kind, World, act, described, ending, fill, going, named, ways},
    yaml::{Y, plain, text},
};

pub const KINDS: [Plant; 28] = [
    kind("a slot without slots. in front", bare),
    kind("and beside or without parentheses", mixed),
    kind("half a comparison", half),
    kind("a broken regular expression", broken_regex),
    kind("a condition reads a slot that is not there", unknown_slot),
    kind("a value that the slot does not have", foreign_value),
    kind("a value in the wrong case", wrong_case),
    kind("a number in quotes", quoted_number),
    kind("a text against a number", text_as_number),
    kind("a boolean in quotes", quoted_bool),
    kind("a range that is empty", empty_range),
    kind("unequal to one or to the other", always_unequal),
    kind("equal to one and to the other", both_values),
    kind("not equal to a value that the slot does not have", never_had),
    kind("the same branch twice", twin_branch),
    kind("a branch behind a wider one", behind_wider),
    kind("a branch within a branch that excludes it", excluded_within),
    kind("else after all values", exhausted_choice),
    kind("else after true and false", exhausted_bool),
    kind("a state is set and the opposite asked for", set_and_opposite),
    kind("null is asked for right after the question", null_after_question),
    kind("a limit that the rejections exclude", beyond_rejections),
    kind("a guard that contradicts itself", impossible_guard),
    kind("slots of two types are compared", two_types),
    kind("undefined instead of null", undefined),
    kind("a branch on a constant false", constant_false),
    kind("a property of the context that does not exist", unknown_context),
    kind("a wider branch hides two others together", hidden_by_two),
];

/// Asks for a new slot, then branches on `condition` (with `#` for the slot).
fn asked(world: &mut World, kind: Kind, condition: &str) {
    let slot = world.slot("gauge", kind);
    let words = world.says("This way.");
    let condition = text(condition.replace('#', &format!("slots.{slot}"))).marked();
    world.insert(fork(&slot, vec![(condition, ending(vec![act(&words)]))], None));
}

/// A question, branches, and a step where the flow goes on.
fn fork(slot: &str, branches: Vec<(Y, Y)>, otherwise: Option<Y>) -> Vec<Y> {
    let on = format!("onward_{slot}");
    vec![
        described(slot).with("next", ways(branches, otherwise.unwrap_or_else(|| text(on.clone())))),
        named(&on, act("utter_can_do_something_else")),
    ]
}

fn bare(world: &mut World) {
    let slot = world.slot("gauge", Kind::Float);
    let condition = text(format!("{slot} > 5")).marked();
    world.insert(fork(&slot, vec![(condition, text("END"))], None));
}

fn mixed(world: &mut World) {
    asked(world, Kind::Float, "# > 5 and # < 9 or # = 50");
}

fn half(world: &mut World) {
    asked(world, Kind::Float, "# >");
}

fn broken_regex(world: &mut World) {
    asked(world, Kind::Text, "# matches \"^[A-Z\"");
}

fn unknown_slot(world: &mut World) {
    asked(world, Kind::Float, "slots.slot_of_old > 5 and # > 1");
}

fn foreign_value(world: &mut World) {
    asked(world, Kind::Choice, "# is \"gigantic\"");
}

fn wrong_case(world: &mut World) {
    asked(world, Kind::Choice, "# = \"Premium\"");
}

fn quoted_number(world: &mut World) {
    asked(world, Kind::Float, "# > \"100\"");
}

fn text_as_number(world: &mut World) {
    asked(world, Kind::Text, "# = 100");
}

fn quoted_bool(world: &mut World) {
    asked(world, Kind::Bool, "# is \"true\"");
}

fn empty_range(world: &mut World) {
    asked(world, Kind::Float, "# > 10 and # < 5");
}

fn always_unequal(world: &mut World) {
    asked(world, Kind::Choice, "# != \"basic\" or # != \"premium\"");
}

fn both_values(world: &mut World) {
    let kind = if world.chance.often(50) { Kind::Choice } else { Kind::Text };
    asked(world, kind, "# is \"basic\" and # is \"premium\"");
}

fn never_had(world: &mut World) {
    asked(world, Kind::Choice, "# is not \"gold\"");
}

/// Two branches on one new slot; the second is the defect.
fn two(world: &mut World, kind: Kind, first: &str, second: &str) {
    let slot = world.slot("gauge", kind);
    let (a, b) = (world.says("This way."), world.says("That way."));
    let condition = |text_: &str| text(text_.replace('#', &format!("slots.{slot}")));
    let branches = vec![(condition(first), ending(vec![act(&a)])), (condition(second).marked(), ending(vec![act(&b)]))];
    world.insert(fork(&slot, branches, None));
}

fn twin_branch(world: &mut World) {
    match world.chance.below(3) {
        0 => two(world, Kind::Choice, "# is \"basic\"", "# is \"basic\""),
        1 => two(world, Kind::Text, "# matches \"^a\"", "# matches \"^a\""),
        _ => two(world, Kind::Bool, "#", "# is true"),
    }
}

fn behind_wider(world: &mut World) {
    two(world, Kind::Float, "# > 10", "# > 100");
}

fn excluded_within(world: &mut World) {
    let slot = world.slot("gauge", Kind::Float);
    let (a, b) = (world.says("Many."), world.says("Few."));
    let inner = ways(vec![(text(format!("slots.{slot} < 50")).marked(), ending(vec![act(&b)]))], text("END"));
    let outer = (text(format!("slots.{slot} > 100")), Y::List(vec![act(&a).with("next", inner)]));
    world.insert(fork(&slot, vec![outer], None));
}

fn exhausted(world: &mut World, kind: Kind, conditions: &[&str]) {
    let slot = world.slot("gauge", kind);
    let words = world.says("None of these.");
    let on = format!("onward_{slot}");
    let branches =
        conditions.iter().map(|one| (text(one.replace('#', &format!("slots.{slot}"))), text(on.clone()))).collect();
    let otherwise = Y::List(vec![act(&words).with("next", text("END")).marked()]);
    world.insert(fork(&slot, branches, Some(otherwise)));
}

fn exhausted_choice(world: &mut World) {
    exhausted(world, Kind::Choice, &["# is \"basic\"", "# is \"standard\"", "# is \"premium\""]);
}

fn exhausted_bool(world: &mut World) {
    exhausted(world, Kind::Bool, &["# is true", "not #"]);
}

fn set_and_opposite(world: &mut World) {
    let slot = world.held("stage", "categorical");
    let (a, b) = (world.says("Well."), world.says("Never."));
    let branch = (text(format!("slots.{slot} is \"premium\"")).marked(), ending(vec![act(&b)]));
    let on = format!("onward_{slot}");
    world.insert(vec![
        fill(&slot, text("basic")),
        act(&a).with("next", ways(vec![branch], text(on.clone()))),
        named(&on, act("utter_can_do_something_else")),
    ]);
}

fn null_after_question(world: &mut World) {
    let kind = if world.chance.often(50) { Kind::Text } else { Kind::Float };
    asked(world, kind, "# is null");
}

fn beyond_rejections(world: &mut World) {
    let slot = world.slot("gauge", Kind::Float);
    let (bad, words) = (world.says("Out of range."), world.says("That many."));
    let branch = (text(format!("slots.{slot} > 50")).marked(), ending(vec![act(&words)]));
    let mut steps = fork(&slot, vec![branch], None);
    let rejection = crate::world::rule(&format!("slots.{slot} < 1 or slots.{slot} > 9"), &bad);
    steps[0].set("rejections", Y::List(vec![rejection]));
    world.insert(steps);
}

fn impossible_guard(world: &mut World) {
    let slot = world.slot("gauge", Kind::Choice);
    let flow = world.insert(vec![described(&slot)]);
    let guard = text(format!("slots.{slot} is \"basic\" and slots.{slot} is \"premium\"")).marked();
    world.flows[flow].keys.retain(|(key, _)| key != "if");
    world.flows[flow].keys.push(("if".into(), guard));
}

fn two_types(world: &mut World) {
    let (a, b) = (world.slot("gauge", Kind::Float), world.slot("label", Kind::Text));
    let words = world.says("The same.");
    let sign = *world.chance.pick(&[&"=", &">"]);
    let condition = text(format!("slots.{a} {sign} slots.{b}")).marked();
    let mut steps = vec![described(&a)];
    steps.extend(fork(&b, vec![(condition, ending(vec![act(&words)]))], None));
    world.insert(steps);
}

fn undefined(world: &mut World) {
    asked(world, Kind::Text, "# is undefined");
}

fn constant_false(world: &mut World) {
    let slot = world.slot("gauge", Kind::Text);
    let words = world.says("Switched off.");
    let inner = act(&words).with("next", text("END"));
    world.insert(fork(&slot, vec![(plain("false").marked(), Y::List(vec![inner.marked()]))], None));
}

fn unknown_context(world: &mut World) {
    let (a, b) = (world.says("Chit."), world.says("Chat."));
    let on = "speak_on";
    let first = crate::yaml::map([("noop", plain(true))]).with(
        "next",
        ways(
            vec![(text("context.reasson is \"cannot_handle_chitchat\"").marked(), going(vec![act(&a)], on))],
            text(on),
        ),
    );
    world.flow("pattern_cannot_handle", "nothing could be done", vec![first, named(on, act(&b))]);
}

fn hidden_by_two(world: &mut World) {
    let slot = world.slot("gauge", Kind::Float);
    let (a, b, c) = (world.says("This way."), world.says("That way."), world.says("No way."));
    let condition = |words: &str| text(words.replace('#', &format!("slots.{slot}")));
    let branches = vec![
        (condition("# >= 10"), ending(vec![act(&a)])),
        (condition("# < 10"), ending(vec![act(&b)])),
        (condition("# > 3").marked(), ending(vec![act(&c)])),
    ];
    world.insert(fork(&slot, branches, None));
}
