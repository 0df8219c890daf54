//! When guards warn and stop.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use std::collections::BTreeMap;

use segue_engine::project::BudgetLimits;
use serde_json::{Value as Json, json};

use super::{BudgetGuard, Cap, GuardSignal, Guards, RepeatGuard, RepeatLimits, ToolGuard, Warning, hash_of_calls};
use crate::{
    llm::{ToolCall, Usage},
    react::{
        Budget, GuardDecision,
        healer::tests::{PROMPTS, call},
    },
    tools::EffectClass,
};

fn find(port: &str) -> ToolCall {
    call("c", "find", json!({"port": port}))
}

/// The numbers of the responses after which the guard warned, and after which it stopped.
fn observed(guard: &mut RepeatGuard, responses: impl IntoIterator<Item = Vec<ToolCall>>) -> (Vec<usize>, Vec<usize>) {
    let (mut warned, mut stopped) = (Vec::new(), Vec::new());
    for (at, calls) in responses.into_iter().enumerate() {
        match guard.calls_requested(&calls) {
            GuardSignal::Continue => {}
            GuardSignal::Warn(_) => warned.push(at + 1),
            GuardSignal::Stop(stop) => {
                assert_eq!(stop, Cap::Loop);
                stopped.push(at + 1);
            }
        }
    }
    (warned, stopped)
}

fn guard() -> RepeatGuard {
    RepeatGuard::new(RepeatLimits::default())
}

#[test]
fn identical_calls_warn_at_three_and_stop_at_five() {
    assert_eq!(observed(&mut guard(), vec![vec![find("a")]; 6]), (vec![3], vec![5, 6]));
    let ports = |at: usize| vec![find(&format!("port {at}"))];
    assert_eq!(observed(&mut guard(), (0..29).map(ports)), (vec![], vec![]), "different arguments");
}

#[test]
fn the_order_of_calls_and_of_keys_makes_no_difference() {
    let one = [call("1", "find", json!({"a": 1, "b": {"c": [1, 2], "d": 2}})), call("2", "pay", json!({}))];
    let other = [call("8", "pay", json!({})), call("9", "find", json!({"b": {"d": 2, "c": [1, 2]}, "a": 1}))];
    assert_eq!(hash_of_calls(&one), hash_of_calls(&other));
    for different in [
        vec![one[0].clone()],
        vec![one[0].clone(), one[1].clone(), one[1].clone()],
        vec![call("1", "find", json!({"a": 1, "b": {"c": [2, 1], "d": 2}})), one[1].clone()],
    ] {
        assert_ne!(hash_of_calls(&one), hash_of_calls(&different));
    }
}

#[test]
fn calls_outside_the_window_are_forgotten() {
    let limits = RepeatLimits { window: 4, ..RepeatLimits::default() };
    let pattern = ["a", "b", "c", "d"].map(|port| vec![find(port)]);
    let responses = pattern.iter().cycle().take(28).cloned();
    assert_eq!(observed(&mut RepeatGuard::new(limits), responses), (vec![], vec![]), "each is once in the window");
    let responses = pattern.iter().cycle().take(17).cloned();
    assert_eq!(observed(&mut guard(), responses), (vec![9, 10, 11, 12], vec![17]));
}

#[test]
fn any_number_of_different_calls_of_one_tool_is_work() {
    let ports = |at: usize| vec![find(&format!("port {at}"))];
    assert_eq!(observed(&mut guard(), (0..500).map(ports)), (vec![], vec![]));
    let twelve = |at: usize| (0..12).map(|part| find(&format!("{at} {part}"))).collect();
    assert_eq!(observed(&mut guard(), (0..50).map(twelve)), (vec![], vec![]));
}

#[test]
fn a_stored_guard_continues_its_count() {
    let mut first = guard();
    observed(&mut first, vec![vec![find("a")]; 4]);
    let mut second = guard();
    second.load(&first.save());
    assert_eq!(observed(&mut second, vec![vec![find("a")]]), (vec![], vec![1]));
    let mut third = guard();
    third.load(&json!("not a state"));
    assert_eq!(observed(&mut third, vec![vec![find("a")]]), (vec![], vec![]));
    assert_eq!(guard().save(), Json::Null, "an unused guard stores nothing");
}

fn tokens(limit: u64, warn_at: f64) -> BudgetLimits {
    BudgetLimits { warn_at: Some(warn_at), ..BudgetLimits::of_tokens(limit) }
}

fn used(input: u64) -> Usage {
    Usage { input, ..Usage::default() }
}

#[test]
fn a_budget_warns_once_at_its_share_and_stops_when_it_is_spent() {
    let budget = Budget::new(tokens(1_000, 0.8));
    let mut guard = BudgetGuard::new(budget.clone());
    assert_eq!(guard.response_received(&used(799)), GuardSignal::Continue);
    assert_eq!(guard.response_received(&used(1)), GuardSignal::Warn(Warning::Budget { percent: 80 }));
    assert_eq!(guard.response_received(&used(199)), GuardSignal::Continue);
    assert_eq!(guard.exhausted(), None);
    assert_eq!(guard.response_received(&used(1)), GuardSignal::Stop(Cap::Tokens));
    assert_eq!(guard.exhausted(), Some(Cap::Tokens));
}

#[test]
fn a_child_stops_when_the_budget_of_its_parent_is_spent_by_others() {
    let parent = Budget::new(tokens(1_000, 0.8));
    let child = BudgetGuard::new(parent.slice(tokens(500, 0.8)));
    let mut sibling = BudgetGuard::new(parent.slice(BudgetLimits::default()));
    assert_eq!(child.exhausted(), None);
    assert!(matches!(sibling.response_received(&used(1_000)), GuardSignal::Stop(_)));
    assert_eq!(child.exhausted(), Some(Cap::Tokens));
}

#[test]
fn a_stored_budget_continues_its_count() {
    let open = || BudgetGuard::new(Budget::new(tokens(1_000, 0.5)));
    let mut first = open();
    first.response_received(&used(600));
    let mut second = open();
    second.load(&first.save());
    assert_eq!(second.response_received(&used(300)), GuardSignal::Continue, "it has warned already");
    assert!(matches!(second.response_received(&used(100)), GuardSignal::Stop(_)));
}

/// A guard that refuses one tool and counts the calls of others.
struct Refusing(u64);

impl ToolGuard for Refusing {
    fn name(&self) -> &'static str {
        "refusing"
    }
    fn check(&mut self, call: &ToolCall, _: EffectClass) -> GuardDecision {
        match &*call.name {
            "pay" => GuardDecision::Refuse("not today".into()),
            _ => GuardDecision::Allow,
        }
    }
    fn finished(&mut self, _: &ToolCall, _: &crate::tools::ToolOutcome) {
        self.0 += 1;
    }
    fn save(&self) -> Json {
        self.0.into()
    }
    fn load(&mut self, state: &Json) {
        self.0 = state.as_u64().unwrap_or_default();
    }
}

#[test]
fn guards_are_asked_in_order_and_keep_their_states_by_name() {
    let mut guards = Guards::default().with(Refusing(0));
    guards.load(&BTreeMap::from([("refusing".to_owned(), json!(7))]));
    guards.load(&BTreeMap::from([("refusing".to_owned(), json!(9))]));
    assert_eq!(guards.check(&find("a"), EffectClass::Read), GuardDecision::Allow);
    assert_eq!(
        guards.check(&call("p", "pay", json!({})), EffectClass::Write),
        GuardDecision::Refuse("not today".into())
    );
    guards.finished(&find("a"), &crate::tools::ToolOutcome::Done(crate::tools::ToolOutput::text("found")));
    assert_eq!(guards.save(), BTreeMap::from([("refusing".to_owned(), json!(8))]));
}

#[test]
fn every_warning_and_stop_has_a_text() {
    let warnings = [
        Warning::RepeatedCalls { times: 3, most: 5, tools: vec!["find".into(), "pay".into()] },
        Warning::Budget { percent: 80 },
    ];
    let texts = warnings.map(|warning| warning.text(&PROMPTS));
    assert!(texts[0].starts_with("You have made the same calls 3 times (find, pay)."), "{}", texts[0]);
    assert!(texts[1].starts_with("80 % of the budget"), "{}", texts[1]);
    for cap in [Cap::Tokens, Cap::Turns, Cap::Loop] {
        assert!(cap.refusal(&PROMPTS).starts_with("error: refused: ") && !cap.answer_request(&PROMPTS).is_empty());
        assert_eq!(serde_json::to_value(cap).unwrap(), cap.label());
    }
}

#[test]
fn calls_before_the_work_moved_on_do_not_count_as_repeated() {
    let mut guard = guard();
    for _ in 0..20 {
        assert_eq!(observed(&mut guard, vec![vec![find("a")]; 2]), (vec![], vec![]));
        guard.moved_on();
    }
    assert_eq!(observed(&mut guard, vec![vec![find("a")]; 5]), (vec![3], vec![5]));
}
