//! One budget over a run and its delegates.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use proptest::prelude::*;
use segue_engine::project::{AdmissionDef, BudgetLimits};
use serde_json::{Value as Json, json};

use super::harness::{World, call, meta_of, say, task, text_of};
use crate::{
    delegation::{Delegations, report::key},
    llm::{ChatResponse, LlmErrorKind, Usage},
    tools::ToolOutcome,
};

type Response = Result<ChatResponse, LlmErrorKind>;

fn tokens(limit: u64) -> BudgetLimits {
    BudgetLimits { warn_at: Some(0.8), ..BudgetLimits::of_tokens(limit) }
}

fn using(tokens: u64, response: Response) -> Response {
    response.map(|answer| ChatResponse { usage: Usage { input: tokens, ..Usage::default() }, ..answer })
}

#[tokio::test]
async fn delegates_spend_from_the_budget_of_their_run_and_none_starts_when_it_is_spent() {
    let looks = |text| call(text, &[("find", json!({}))]);
    let scenes = [("delegate: a", vec![looks("One."), looks("Two."), say("Three.")]), ("delegate: b", vec![say("B.")])];
    let mut world = World::new(scenes).await;
    world.settings.budget = tokens(30);
    let parent = world.parent("c").await;
    let outcome = parent.task("t", task("a")).await;
    assert_eq!(text_of(&outcome), "Task Succeeded (capped: token budget). Result: Two.");
    assert_eq!(*world.called.lock().unwrap(), ["find"], "the calls of the response that spent it do not run");
    let outcome = parent.task("u", task("b")).await;
    assert_eq!(
        text_of(&outcome),
        "Task failed (capped: token budget). Error: The budget of this turn is spent. Start no more sub-agents; finish with the results that you have"
    );
    assert!(matches!(&outcome, ToolOutcome::Failed(failure) if failure.code.as_deref() == Some("A0534")));
    assert!(world.model.requests("delegate: b").is_empty());
    assert_eq!(world.events.types(), ["task_queued", "task_started", "task_completed", "task_queued", "task_failed"]);
}

#[tokio::test]
async fn money_is_a_limit_too_and_a_spent_budget_without_a_result_is_a_failure() {
    let paid = |response: Response| {
        response.map(|answer| ChatResponse { usage: Usage { input: 1, cost: Some(0.6), ..Usage::default() }, ..answer })
    };
    let looks = || paid(call("", &[("find", json!({}))]));
    let mut world = World::new([("delegate: a", vec![looks(), looks(), looks()])]).await;
    world.settings.budget = BudgetLimits { tokens: None, cost: Some(1.0), warn_at: Some(0.5) };
    let outcome = world.parent("c").await.task("t", task("a")).await;
    assert!(text_of(&outcome).starts_with("Task failed (capped: token budget). Error: The budget of this turn"));
    let second = &world.model.requests("delegate: a")[1];
    assert!(second.messages.last().unwrap().text().contains("Finish what you are doing"), "{second:?}");
}

#[tokio::test]
async fn corrections_draw_on_the_budget_and_stop_with_it() {
    let scenes = [("delegate: a", vec![call("", &[("submit_result", json!({}))]), say("not reached")])];
    let mut world = World::new(scenes).await;
    world.settings.budget = tokens(10);
    let mut arguments = task("a");
    arguments["output_schema"] = json!({"type": "object", "required": ["n"]});
    let outcome = world.parent("c").await.task("t", arguments).await;
    assert!(text_of(&outcome).starts_with("Task failed (capped: token budget). Error: The budget of this turn"));
    assert_eq!(world.model.requests("delegate: a").len(), 1, "there is no budget for the correction");
}

#[tokio::test]
async fn what_replayed_delegates_used_is_spent_again_after_a_crash() {
    let mut world = World::new([("delegate: a", vec![say("A.")]), ("delegate: b", vec![say("B.")])]).await;
    world.settings.budget = tokens(15);
    world.parent("c").await.task("t", task("a")).await;
    let second = world.parent("c").await;
    assert_eq!(text_of(&second.task("t", task("a")).await), "Task Succeeded. Result: A.");
    assert_eq!(meta_of(&second.task("u", task("b")).await)[key::STOP_REASON], "token_capped");
}

/// A delegate: the tokens of its responses, and whether it starts another one in the middle.
#[derive(Clone, Debug)]
struct Child {
    responses: Vec<u64>,
    nested: Option<Vec<u64>>,
}

fn children() -> impl Strategy<Value = Vec<Child>> {
    let responses = || prop::collection::vec(1_u64..100, 1..6);
    let child =
        (responses(), prop::option::of(responses())).prop_map(|(responses, nested)| Child { responses, nested });
    prop::collection::vec(child, 1..7)
}

/// The responses of a delegate: calls, and a text at the end. The second one starts the nested delegate.
fn script(name: &str, child: &Child) -> Vec<Response> {
    let last = child.responses.len() - 1;
    let response = |(at, tokens): (usize, &u64)| {
        let response = match (at == last, &child.nested) {
            (true, _) => say("done"),
            (false, Some(_)) if at == 0 => call("so far", &[("task", task(&format!("{name} nested")))]),
            (false, _) => call("so far", &[("find", json!({"at": at}))]),
        };
        using(*tokens, response)
    };
    child.responses.iter().enumerate().map(response).collect()
}

/// The largest number of delegates that worked at the same time.
fn most_at_once(events: &[Json]) -> u64 {
    let (mut now, mut most) = (BTreeMap::new(), 0);
    for event in events {
        let id = event["task_id"].as_str().unwrap().to_owned();
        match event["type"].as_str().unwrap() {
            "task_started" => drop(now.insert(id, ())),
            "task_running" | "task_queued" => {}
            _ => drop(now.remove(&id)),
        }
        most = most.max(now.len() as u64);
    }
    most
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// The sum over a tree of delegates is at most the budget, and one response more for each delegate that works.
    #[test]
    fn a_tree_never_spends_more_than_its_budget_and_one_response_for_each_delegate(
        children in children(),
        limit in 1_u64..600,
        own in prop::option::of(1_u64..300),
        at_once in 1_u32..4,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut world = World::new([]).await;
            (world.settings.budget, world.settings.max_concurrent) = (tokens(limit), at_once);
            (world.settings.max_total, world.settings.depth) = (50, 2);
            world.kind().token_budget = own.map(BudgetLimits::of_tokens).unwrap_or_default();
            let admission = AdmissionDef { max_running: 16, max_queued: 64, queue_timeout: Duration::from_secs(600) };
            world.delegations = Arc::new(Delegations::new(admission, world.events.clone()));
            for (at, child) in children.iter().enumerate() {
                let name = format!("child {at}");
                world.model.add(&format!("delegate: {name}"), script(&name, child));
                if let Some(nested) = &child.nested {
                    let nested = Child { responses: nested.clone(), nested: None };
                    let name = format!("{name} nested");
                    world.model.add(&format!("delegate: {name}"), script(&name, &nested));
                }
            }
            let parent = world.parent("c").await;
            let calls = (0..children.len()).map(|at| {
                let (parent, name) = (parent.clone(), format!("child {at}"));
                async move { parent.task(&format!("t{at}"), task(&name)).await }
            });
            let outcomes = world.driving(futures::future::join_all(calls)).await;
            let spent: u64 = outcomes.iter().map(|outcome| meta_of(outcome)[key::TOKENS]["total_tokens"].as_u64().unwrap_or(0)).sum();
            let longest = children.iter().flat_map(|child| child.responses.iter().chain(child.nested.iter().flatten())).max().copied().unwrap_or(0);
            let most = most_at_once(&world.events.all());
            assert!(spent <= limit + most * longest, "{spent} of {limit}, {most} at once, {longest}");
            let asked = world.model.requests.lock().unwrap().len() as u64;
            assert!(asked > 0);
        });
    }
}
