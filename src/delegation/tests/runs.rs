//! Single delegates: what they see, what ends them, and what their parent reads.

use std::{sync::Arc, time::Duration};

use futures::{FutureExt, poll};
use segue_engine::project::BudgetLimits;
use serde_json::json;

use super::harness::{World, call, meta_of, say, task, text_of};
use crate::{
    delegation::{ReportStatus, report::key},
    llm::{ChatMessage, LlmErrorKind},
    tools::{FailureKind, ToolOutcome},
};

fn texts(request: &crate::llm::ChatRequest) -> Vec<(&'static str, String)> {
    let role = |message: &Arc<ChatMessage>| match &**message {
        ChatMessage::System { .. } => "system",
        ChatMessage::User { .. } => "user",
        ChatMessage::Assistant { .. } => "assistant",
        ChatMessage::Tool { .. } => "tool",
    };
    request.messages.iter().map(|message| (role(message), message.text().to_owned())).collect()
}

#[tokio::test]
async fn a_delegate_sees_its_prompt_alone_and_has_the_tools_of_its_parent_without_task() {
    let mut world = World::new([("delegate: a", vec![say("done")])]).await;
    world.kind().disallowed_tools = vec!["hang".into()];
    world.parent("c").await.task("t", task("a")).await;
    let request = &world.model.requests("delegate: a")[0];
    let messages = texts(request);
    assert_eq!(messages.iter().map(|(role, _)| *role).collect::<Vec<_>>(), ["system", "user"]);
    assert_eq!(messages[1].1, "a");
    assert!(messages[0].1.starts_with("You are a sub-agent.") && messages[0].1.contains("You cannot start sub-agents"));
    assert_eq!(request.tools.iter().map(|tool| &*tool.name).collect::<Vec<_>>(), ["boom", "find", "write"]);
}

#[tokio::test]
async fn max_turns_of_a_call_can_only_lower_the_limit_and_a_capped_delegate_reports_its_last_text() {
    let looks = || call("Still looking.", &[("find", json!({}))]);
    let scenes = [("delegate: a", vec![looks(), looks()]), ("delegate: b", vec![looks(), looks(), looks()])];
    let mut world = World::new(scenes).await;
    world.kind().max_turns = 3;
    let parent = world.parent("c").await;
    let mut lowered = task("a");
    lowered["max_turns"] = json!(2);
    let outcome = parent.task("t", lowered).await;
    assert_eq!(text_of(&outcome), "Task Succeeded (capped: turn budget). Result: Still looking.");
    assert_eq!(meta_of(&outcome)[key::STOP_REASON], "turn_capped");
    assert_eq!(meta_of(&outcome)[key::TURNS], 2);
    let mut raised = task("b");
    raised["max_turns"] = json!(100);
    assert_eq!(meta_of(&parent.task("u", raised).await)[key::TURNS], 3);
    let last = texts(&world.model.requests("delegate: b")[2]);
    let (role, text) = last.last().unwrap();
    assert!(*role == "system" && text.contains("This is the last one"), "{text}");
    assert_eq!(last[last.len() - 2].0, "tool", "the request to finish comes after the results");
}

#[tokio::test]
async fn turn_limit_without_any_text_is_a_failure() {
    let mut world = World::new([("delegate: a", vec![call("", &[("find", json!({}))])])]).await;
    world.kind().max_turns = 1;
    let outcome = world.parent("c").await.task("t", task("a")).await;
    assert_eq!(text_of(&outcome), "Task failed (capped: turn budget). Error: Reached max_turns=1");
}

#[tokio::test]
async fn a_spent_token_budget_drops_further_calls_and_ends_with_the_text() {
    let looks = |text| call(text, &[("find", json!({}))]);
    let mut world = World::new([("delegate: a", vec![looks("One."), looks("")])]).await;
    world.kind().token_budget = BudgetLimits { warn_at: Some(0.5), ..BudgetLimits::of_tokens(30) };
    let outcome = world.parent("c").await.task("t", task("a")).await;
    assert_eq!(text_of(&outcome), "Task Succeeded (capped: token budget). Result: One.");
    assert_eq!(*world.called.lock().unwrap(), ["find"], "the call beyond the budget did not run");
    let second = texts(&world.model.requests("delegate: a")[1]);
    assert!(second.last().unwrap().1.contains("about 15 tokens left"), "{second:?}");
}

#[tokio::test]
async fn a_delegate_that_repeats_its_calls_is_stopped_and_labelled() {
    let looks = || call("", &[("find", json!({}))]);
    let scenes = [
        ("delegate: a", (0..5).map(|_| looks()).chain([say("Nothing new.")]).collect()),
        ("delegate: b", (0..5).map(|_| looks()).chain([say("")]).collect::<Vec<_>>()),
    ];
    let world = World::new(scenes).await;
    let parent = world.parent("c").await;
    let outcome = parent.task("t", task("a")).await;
    assert_eq!(text_of(&outcome), "Task Succeeded (capped: repeated tool-call loop). Result: Nothing new.");
    assert_eq!(meta_of(&outcome)[key::STOP_REASON], "loop_capped");
    assert_eq!(world.called.lock().unwrap().len(), 4, "the fifth call of the same kind is refused");
}

#[tokio::test]
async fn an_empty_final_response_is_corrected_once_and_then_fails() {
    let world =
        World::new([("delegate: a", vec![say(""), say("Here it is.")]), ("delegate: b", vec![say(""), say(" ")])])
            .await;
    let parent = world.parent("c").await;
    assert_eq!(text_of(&parent.task("t", task("a")).await), "Task Succeeded. Result: Here it is.");
    let empty = parent.task("u", task("b")).await;
    assert_eq!(text_of(&empty), "Task failed. Error: The sub-agent gave no result");
    assert!(matches!(&empty, ToolOutcome::Failed(failure) if failure.code.as_deref() == Some("A0504")), "{empty:?}");
    assert_eq!(world.events.types().last().unwrap(), "task_failed");
}

#[tokio::test]
async fn an_output_schema_that_cannot_be_used_is_rejected_with_its_own_reason() {
    let long = "x".repeat(crate::limits::MCP_SCHEMA);
    for (schema, reason) in [
        (json!({"type": "object", "description": long}), None),
        (json!({"type": "array", "description": long}), None),
        (json!({"type": "object", "properties": 7}), Some("is invalid")),
        (json!({"type": "array", "items": {"type": "text"}}), Some("is invalid")),
    ] {
        let world = World::new([]).await;
        let parent = world.parent("c").await;
        let mut arguments = task("a");
        let bytes = schema.to_string().len();
        arguments["output_schema"] = schema;
        let text = text_of(&parent.task("t", arguments).await);
        let expected = reason.map_or_else(|| format!("its schema has {bytes} bytes; at most"), str::to_owned);
        assert!(text.contains("`output_schema` cannot be used") && text.contains(&expected), "{expected}: {text}");
    }
}

#[tokio::test]
async fn a_result_is_validated_against_its_schema_once_corrected_once_and_then_fails() {
    let submit = |value: serde_json::Value| call("", &[("submit_result", value)]);
    let world = World::new([
        ("delegate: a", vec![say("Text."), submit(json!({"n": "x"})), submit(json!({"n": 7}))]),
        ("delegate: b", vec![submit(json!({})), submit(json!({"n": []}))]),
        ("delegate: c", vec![say("Text."), say("Text again.")]),
        ("delegate: d", vec![submit(json!({"result": [1, 2]}))]),
    ])
    .await;
    let parent = world.parent("c").await;
    let with_schema = |prompt: &str, schema: serde_json::Value| {
        let mut arguments = task(prompt);
        arguments["output_schema"] = schema;
        arguments
    };
    let object = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    let outcome = parent.task("t", with_schema("a", object.clone())).await;
    assert_eq!(text_of(&outcome), r#"Task Succeeded. Result: {"n":7}"#);
    assert_eq!(meta_of(&outcome)[key::DATA], json!({"n": 7}));
    let tools = &world.model.requests("delegate: a")[0].tools;
    assert!(tools.iter().any(|tool| &*tool.name == "submit_result" && *tool.parameters == object));
    let outcome = parent.task("u", with_schema("b", object.clone())).await;
    assert!(text_of(&outcome).starts_with("Task failed. Error: The result does not match its schema."), "{outcome:?}");
    let outcome = parent.task("v", with_schema("c", object)).await;
    assert_eq!(text_of(&outcome), "Task failed. Error: The sub-agent did not submit a result");
    let outcome = parent.task("w", with_schema("d", json!({"type": "array"}))).await;
    assert_eq!(text_of(&outcome), "Task Succeeded. Result: [1,2]");
}

#[tokio::test]
async fn unknown_or_missing_types_list_the_types_and_start_nothing() {
    let world = World::new([]).await;
    let parent = world.parent("c").await;
    let mut arguments = task("a");
    arguments["subagent_type"] = json!("bash");
    let outcome = parent.task("t", arguments.clone()).await;
    assert_eq!(text_of(&outcome), "Task failed. Error: Unknown subagent type 'bash'. Available: general-purpose");
    assert_eq!(meta_of(&outcome)[key::STATUS], "failed");
    arguments.as_object_mut().unwrap().shift_remove("subagent_type");
    let outcome = parent.task("u", arguments).await;
    assert!(text_of(&outcome).contains("`subagent_type` is missing. Available: general-purpose"), "{outcome:?}");
    assert!(world.events.all().is_empty());
}

#[tokio::test]
async fn calls_beyond_the_total_are_answered_with_the_limit() {
    let mut world = World::new([("delegate: a", vec![say("1"), say("2")])]).await;
    world.settings.max_total = 2;
    let parent = world.parent("c").await;
    for key in ["t", "u"] {
        assert!(matches!(parent.task(key, task("a")).await, ToolOutcome::Done(_)));
    }
    let ToolOutcome::Failed(failure) = parent.task("v", task("a")).await else { panic!("refused") };
    assert_eq!(failure.kind, FailureKind::Refused);
    assert!(failure.message.starts_with("Task not started. Limit: at most 2 sub-agents in one turn."), "{failure:?}");
}

#[tokio::test]
async fn a_timed_out_delegate_keeps_its_partial_text_and_waiting_does_not_count() {
    let hangs = || vec![call("Found two so far.", &[("hang", json!({}))])];
    let mut world = World::new([("delegate: a", hangs()), ("delegate: b", hangs())]).await;
    (world.kind().timeout, world.settings.max_concurrent) = (Duration::from_secs(100), 1);
    let parent = world.parent("c").await;
    let both = futures::future::join(parent.task("t", task("a")), parent.task("u", task("b")));
    let (first, second) = world.driving(both).await;
    for outcome in [&first, &second] {
        let expected = "Task timed out. Error: Execution timed out after 100 seconds Partial result: Found two so far.";
        assert_eq!(text_of(outcome), expected);
        assert_eq!(meta_of(outcome)[key::PARTIAL], "Found two so far.");
    }
    let elapsed = crate::clock::Clock::elapsed(&world.clock);
    assert!(elapsed >= Duration::from_secs(200), "each has its whole time: {elapsed:?}");
}

#[tokio::test]
async fn one_delegate_is_cancelled_by_its_id_within_two_seconds() {
    let world =
        World::new([("delegate: a", vec![call("Partly.", &[("write", json!({})), ("hang", json!({}))])])]).await;
    let parent = world.parent("c").await;
    let mut call = parent.task("t", task("a")).boxed();
    while world.called.lock().unwrap().last().map(String::as_str) != Some("hang") {
        assert!(poll!(&mut call).is_pending());
        tokio::task::yield_now().await;
    }
    let running = world.delegations.running();
    assert_eq!((running.len(), running[0].status), (1, ReportStatus::Running));
    assert!(!world.delegations.cancel("another"));
    assert!(world.delegations.cancel(&running[0].id));
    let before = crate::clock::Clock::elapsed(&world.clock);
    let outcome = world.driving(call).await;
    assert!(crate::clock::Clock::elapsed(&world.clock) - before <= Duration::from_secs(2));
    let text = text_of(&outcome);
    let done = "Task cancelled by user. Partial result: Partly.\nThese calls were carried out and stay in effect:\n- `write` with {}.";
    assert!(text.starts_with(done) && !text.contains("Nobody knows"), "{text}");
    assert_eq!(meta_of(&outcome)[key::ERROR], "Cancelled by user");
    assert_eq!(world.events.types(), ["task_queued", "task_started", "task_cancelled"]);
    assert!(world.delegations.running().is_empty());
    assert_eq!(world.delegations.counts(), (0, 0));
}

#[tokio::test]
async fn a_cancelled_parent_leaves_one_terminal_event_for_each_delegate() {
    let mut world = World::new([("delegate: a", vec![call("", &[("hang", json!({}))])])]).await;
    world.settings.max_concurrent = 1;
    let parent = world.parent("c").await;
    let mut calls = futures::future::join(parent.task("t", task("a")), parent.task("u", task("b"))).boxed();
    while world.called.lock().unwrap().is_empty() {
        assert!(poll!(&mut calls).is_pending());
        tokio::task::yield_now().await;
    }
    parent.cx.cancel.cancel();
    world.driving(calls).await;
    let all = world.events.all();
    for started in all.iter().filter(|event| event["type"] == "task_queued") {
        let ends =
            all.iter().filter(|event| event["task_id"] == started["task_id"] && event["type"] == "task_cancelled");
        assert_eq!(ends.count(), 1);
    }
    assert_eq!(world.delegations.counts(), (0, 0));
}

#[tokio::test]
async fn a_failed_model_fails_the_delegate_without_its_details() {
    let world = World::new([("delegate: a", vec![Err(LlmErrorKind::Unreachable)])]).await;
    let outcome = world.parent("c").await.task("t", task("a")).await;
    assert_eq!(text_of(&outcome), "Task failed. Error: The model of the sub-agent failed");
    let ToolOutcome::Failed(failure) = &outcome else { panic!("{outcome:?}") };
    assert_eq!(failure.code.as_deref(), Some("A0503"));
}

#[tokio::test]
async fn a_panic_fails_its_delegate_alone() {
    let world =
        World::new([("delegate: a", vec![call("", &[("boom", json!({}))])]), ("delegate: b", vec![say("done")])]).await;
    let parent = world.parent("c").await;
    let (first, second) = futures::future::join(parent.task("t", task("a")), parent.task("u", task("b"))).await;
    assert_eq!(text_of(&first), "Task failed. Error: The sub-agent ended unexpectedly");
    assert_eq!(text_of(&second), "Task Succeeded. Result: done");
    assert_eq!(world.delegations.counts(), (0, 0));
}

#[tokio::test]
async fn a_report_names_the_tools_that_changed_something() {
    let calls = [("write", json!({})), ("find", json!({}))];
    let world = World::new([("delegate: a", vec![call("", &calls), say("done")])]).await;
    let outcome = world.parent("c").await.task("t", task("a")).await;
    let done = &meta_of(&outcome)[key::WRITES]["done"];
    assert_eq!((done.as_array().unwrap().len(), &done[0]["tool"]), (1, &json!("write")));
}

#[tokio::test]
async fn delegates_of_a_delegate_need_a_depth_of_two_and_count_their_tokens() {
    let scenes = || {
        [
            ("delegate: a", vec![call("", &[("task", task("inner"))]), say("outer")]),
            ("delegate: inner", vec![say("inner")]),
        ]
    };
    let mut world = World::new(scenes()).await;
    world.settings.depth = 2;
    let outcome = world.parent("c").await.task("t", task("a")).await;
    assert_eq!(text_of(&outcome), "Task Succeeded. Result: outer");
    assert_eq!(meta_of(&outcome)[key::USAGE]["answers"], 3);
    let request = &world.model.requests("delegate: inner")[0];
    assert!(!request.tools.iter().any(|tool| &*tool.name == "task"), "the depth is used up");
}

#[tokio::test]
async fn admission_is_fair_between_conversations() {
    let hang = || call("", &[("hang", json!({}))]);
    let scenes: Vec<(String, Vec<_>)> =
        ["a1", "a2", "a3", "b1"].iter().map(|name| (format!("delegate: {name}"), vec![hang(), say("done")])).collect();
    let mut world = World::new(scenes.iter().map(|(name, scene)| (name.as_str(), scene.clone()))).await;
    let admission = segue_engine::project::AdmissionDef {
        max_running: 1,
        max_queued: 8,
        queue_timeout: Duration::from_secs(100_000),
    };
    world.delegations = Arc::new(crate::delegation::Delegations::new(admission, world.events.clone()));
    (world.kind().timeout, world.settings.max_concurrent) = (Duration::from_secs(50), 8);
    let (one, other) = (world.parent("c").await, world.parent("other").await);
    let calls = futures::future::join4(
        one.task("a1", task("a1")),
        one.task("a2", task("a2")),
        one.task("a3", task("a3")),
        other.task("b1", task("b1")),
    );
    world.driving(calls).await;
    let started: Vec<String> = world
        .events
        .all()
        .iter()
        .filter(|event| event["type"] == "task_started")
        .map(|event| event["description"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(started, ["look at a1", "look at a2", "look at b1", "look at a3"]);
}
