//! Mistakes in conditions.

use super::{Mistake, kind};
use crate::{
    project_builder::{Kind, ProjectBuilder, act, described, ending, fill, going, named, ways},
    yaml::{Yaml, plain, text},
};

pub const KINDS: [Mistake; 28] = [
    kind("a slot without slots. in front", bare),
    kind("and beside or without parentheses", mixed),
    kind("half a comparison", half),
    kind("a broken regular expression", broken_regex),
    kind("a condition reads a slot that does not exist", unknown_slot),
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
fn asked(project: &mut ProjectBuilder, kind: Kind, condition: &str) {
    let slot = project.slot("gauge", kind);
    let words = project.says("This way.");
    let condition = text(condition.replace('#', &format!("slots.{slot}"))).marked();
    project.insert(fork(&slot, vec![(condition, ending(vec![act(&words)]))], None));
}

/// A question, branches, and a step where the flow continues.
fn fork(slot: &str, branches: Vec<(Yaml, Yaml)>, otherwise: Option<Yaml>) -> Vec<Yaml> {
    let on = format!("onward_{slot}");
    vec![
        described(slot).with("next", ways(branches, otherwise.unwrap_or_else(|| text(on.clone())))),
        named(&on, act("utter_can_do_something_else")),
    ]
}

fn bare(project: &mut ProjectBuilder) {
    let slot = project.slot("gauge", Kind::Float);
    let condition = text(format!("{slot} > 5")).marked();
    project.insert(fork(&slot, vec![(condition, text("END"))], None));
}

fn mixed(project: &mut ProjectBuilder) {
    asked(project, Kind::Float, "# > 5 and # < 9 or # = 50");
}

fn half(project: &mut ProjectBuilder) {
    asked(project, Kind::Float, "# >");
}

fn broken_regex(project: &mut ProjectBuilder) {
    asked(project, Kind::Text, "# matches \"^[A-Z\"");
}

fn unknown_slot(project: &mut ProjectBuilder) {
    asked(project, Kind::Float, "slots.slot_of_old > 5 and # > 1");
}

fn foreign_value(project: &mut ProjectBuilder) {
    asked(project, Kind::Choice, "# is \"gigantic\"");
}

fn wrong_case(project: &mut ProjectBuilder) {
    asked(project, Kind::Choice, "# = \"Premium\"");
}

fn quoted_number(project: &mut ProjectBuilder) {
    asked(project, Kind::Float, "# > \"100\"");
}

fn text_as_number(project: &mut ProjectBuilder) {
    asked(project, Kind::Text, "# = 100");
}

fn quoted_bool(project: &mut ProjectBuilder) {
    asked(project, Kind::Bool, "# is \"true\"");
}

fn empty_range(project: &mut ProjectBuilder) {
    asked(project, Kind::Float, "# > 10 and # < 5");
}

fn always_unequal(project: &mut ProjectBuilder) {
    asked(project, Kind::Choice, "# != \"basic\" or # != \"premium\"");
}

fn both_values(project: &mut ProjectBuilder) {
    let kind = if project.rng.percent(50) { Kind::Choice } else { Kind::Text };
    asked(project, kind, "# is \"basic\" and # is \"premium\"");
}

fn never_had(project: &mut ProjectBuilder) {
    asked(project, Kind::Choice, "# is not \"gold\"");
}

/// Two branches on one new slot; the second is the mistake.
fn two(project: &mut ProjectBuilder, kind: Kind, first: &str, second: &str) {
    let slot = project.slot("gauge", kind);
    let (a, b) = (project.says("This way."), project.says("That way."));
    let condition = |text_: &str| text(text_.replace('#', &format!("slots.{slot}")));
    let branches = vec![(condition(first), ending(vec![act(&a)])), (condition(second).marked(), ending(vec![act(&b)]))];
    project.insert(fork(&slot, branches, None));
}

fn twin_branch(project: &mut ProjectBuilder) {
    match project.rng.below(3) {
        0 => two(project, Kind::Choice, "# is \"basic\"", "# is \"basic\""),
        1 => two(project, Kind::Text, "# matches \"^a\"", "# matches \"^a\""),
        _ => two(project, Kind::Bool, "#", "# is true"),
    }
}

fn behind_wider(project: &mut ProjectBuilder) {
    two(project, Kind::Float, "# > 10", "# > 100");
}

fn excluded_within(project: &mut ProjectBuilder) {
    let slot = project.slot("gauge", Kind::Float);
    let (a, b) = (project.says("Many."), project.says("Few."));
    let inner = ways(vec![(text(format!("slots.{slot} < 50")).marked(), ending(vec![act(&b)]))], text("END"));
    let outer = (text(format!("slots.{slot} > 100")), Yaml::List(vec![act(&a).with("next", inner)]));
    project.insert(fork(&slot, vec![outer], None));
}

fn exhausted(project: &mut ProjectBuilder, kind: Kind, conditions: &[&str]) {
    let slot = project.slot("gauge", kind);
    let words = project.says("None of these.");
    let on = format!("onward_{slot}");
    let branches =
        conditions.iter().map(|one| (text(one.replace('#', &format!("slots.{slot}"))), text(on.clone()))).collect();
    let otherwise = Yaml::List(vec![act(&words).with("next", text("END")).marked()]);
    project.insert(fork(&slot, branches, Some(otherwise)));
}

fn exhausted_choice(project: &mut ProjectBuilder) {
    exhausted(project, Kind::Choice, &["# is \"basic\"", "# is \"standard\"", "# is \"premium\""]);
}

fn exhausted_bool(project: &mut ProjectBuilder) {
    exhausted(project, Kind::Bool, &["# is true", "not #"]);
}

fn set_and_opposite(project: &mut ProjectBuilder) {
    let slot = project.held("stage", "categorical");
    let (a, b) = (project.says("Well."), project.says("Never."));
    let branch = (text(format!("slots.{slot} is \"premium\"")).marked(), ending(vec![act(&b)]));
    let on = format!("onward_{slot}");
    project.insert(vec![
        fill(&slot, text("basic")),
        act(&a).with("next", ways(vec![branch], text(on.clone()))),
        named(&on, act("utter_can_do_something_else")),
    ]);
}

fn null_after_question(project: &mut ProjectBuilder) {
    let kind = if project.rng.percent(50) { Kind::Text } else { Kind::Float };
    asked(project, kind, "# is null");
}

fn beyond_rejections(project: &mut ProjectBuilder) {
    let slot = project.slot("gauge", Kind::Float);
    let (bad, words) = (project.says("Out of range."), project.says("That many."));
    let branch = (text(format!("slots.{slot} > 50")).marked(), ending(vec![act(&words)]));
    let mut steps = fork(&slot, vec![branch], None);
    let rejection = crate::project_builder::rule(&format!("slots.{slot} < 1 or slots.{slot} > 9"), &bad);
    steps[0].set("rejections", Yaml::List(vec![rejection]));
    project.insert(steps);
}

fn impossible_guard(project: &mut ProjectBuilder) {
    let slot = project.slot("gauge", Kind::Choice);
    let flow = project.insert(vec![described(&slot)]);
    let guard = text(format!("slots.{slot} is \"basic\" and slots.{slot} is \"premium\"")).marked();
    project.flows[flow].keys.retain(|(key, _)| key != "if");
    project.flows[flow].keys.push(("if".into(), guard));
}

fn two_types(project: &mut ProjectBuilder) {
    let (a, b) = (project.slot("gauge", Kind::Float), project.slot("label", Kind::Text));
    let words = project.says("The same.");
    let sign = *project.rng.pick(&[&"=", &">"]);
    let condition = text(format!("slots.{a} {sign} slots.{b}")).marked();
    let mut steps = vec![described(&a)];
    steps.extend(fork(&b, vec![(condition, ending(vec![act(&words)]))], None));
    project.insert(steps);
}

fn undefined(project: &mut ProjectBuilder) {
    asked(project, Kind::Text, "# is undefined");
}

fn constant_false(project: &mut ProjectBuilder) {
    let slot = project.slot("gauge", Kind::Text);
    let words = project.says("Switched off.");
    let inner = act(&words).with("next", text("END"));
    project.insert(fork(&slot, vec![(plain("false").marked(), Yaml::List(vec![inner.marked()]))], None));
}

fn unknown_context(project: &mut ProjectBuilder) {
    let (a, b) = (project.says("Chit."), project.says("Chat."));
    let on = "speak_on";
    let first = crate::yaml::map([("noop", plain(true))]).with(
        "next",
        ways(
            vec![(text("context.reasson is \"cannot_handle_chitchat\"").marked(), going(vec![act(&a)], on))],
            text(on),
        ),
    );
    project.flow("pattern_cannot_handle", "nothing could be done", vec![first, named(on, act(&b))]);
}

fn hidden_by_two(project: &mut ProjectBuilder) {
    let slot = project.slot("gauge", Kind::Float);
    let (a, b, c) = (project.says("This way."), project.says("That way."), project.says("No way."));
    let condition = |words: &str| text(words.replace('#', &format!("slots.{slot}")));
    let branches = vec![
        (condition("# >= 10"), ending(vec![act(&a)])),
        (condition("# < 10"), ending(vec![act(&b)])),
        (condition("# > 3").marked(), ending(vec![act(&c)])),
    ];
    project.insert(fork(&slot, branches, None));
}
