//! Runs of open agents.

use std::time::Duration;

use segue_engine::conversation::{AgentStatus, BotKind};
use serde_json::json;

use super::harness::{Harness, calls, code, malformed, said, text};
use crate::{conversation::TurnEvent, limits, react};

#[tokio::test]
async fn text_alone_waits_for_the_user_and_is_sent_once() {
    let mut harness = Harness::new("search", "", "hello", vec![text("Where from?")]);
    let outcome = harness.run().await;
    assert_eq!(outcome.status, AgentStatus::AwaitingUser);
    assert_eq!(said(&outcome), [(BotKind::InputRequired, "Where from?".into())]);
    let ends = harness
        .sink
        .events
        .iter()
        .filter(|event| matches!(event, TurnEvent::MessageEnd { .. } | TurnEvent::Message { .. }));
    assert_eq!(ends.count(), 1);
}

#[tokio::test]
async fn filler_is_recorded_before_its_tool_and_the_result_reaches_the_model() {
    let steps = vec![calls("Let me look.", &[("find", json!({"port": "Arnvik"}))]), text("There is NW-1. Take it?")];
    let mut harness = Harness::new("search", "", "from Arnvik", steps);
    let outcome = harness.run().await;
    assert_eq!(outcome.status, AgentStatus::AwaitingUser);
    assert_eq!(
        said(&outcome),
        [(BotKind::Filler, "Let me look.".into()), (BotKind::InputRequired, "There is NW-1. Take it?".into())]
    );
    let kinds: Vec<String> = outcome
        .events
        .iter()
        .map(|event| serde_json::to_value(event).unwrap()["event"].as_str().unwrap().into())
        .collect();
    assert_eq!(kinds, ["bot", "tool_executed", "agent_exchanges", "bot"]);
    assert_eq!(harness.request(1).last().unwrap(), &("tool".into(), r#"{"crossings":["NW-1"]}"#.into()));
}

#[tokio::test]
async fn text_with_task_completed_is_the_closing_message() {
    let mut harness =
        Harness::new("search", "", "thanks", vec![calls("Have a good trip!", &[("task_completed", json!({}))])]);
    let outcome = harness.run().await;
    assert_eq!(outcome.status, AgentStatus::Finished);
    assert_eq!(said(&outcome), [(BotKind::FinalResponse, "Have a good trip!".into())]);
}

#[tokio::test]
async fn task_completed_without_text_requests_a_closing_message_without_tools() {
    let steps = vec![calls("", &[("task_completed", json!({})), ("find", json!({}))]), text("Goodbye.")];
    let mut harness = Harness::new("search", "", "thanks", steps);
    let outcome = harness.run().await;
    assert_eq!(outcome.status, AgentStatus::Finished);
    assert_eq!(said(&outcome), [(BotKind::FinalResponse, "Goodbye.".into())]);
    let requests = harness.model.requests();
    assert_eq!((requests[0].tools.len(), requests[1].tools.len()), (4, 0));
    assert_eq!(harness.tool_calls.lock().unwrap().len(), 1, "the other call of the response ran");
}

#[tokio::test]
async fn empty_closing_message_completes_silently() {
    let steps = vec![calls("", &[("task_completed", json!({}))]), text("  ")];
    let mut harness = Harness::new("search", "", "thanks", steps);
    let outcome = harness.run().await;
    assert_eq!((outcome.status.clone(), said(&outcome).len()), (AgentStatus::Finished, 0));
}

#[tokio::test]
async fn tool_beside_task_completed_runs_in_both_orders() {
    for order in [["find", "task_completed"], ["task_completed", "find"]] {
        let both = calls("Done.", &[(order[0], json!({})), (order[1], json!({}))]);
        let mut harness = Harness::new("search", "", "thanks", vec![both]);
        let outcome = harness.run().await;
        assert_eq!(outcome.status, AgentStatus::Finished, "{order:?}");
        assert_eq!(harness.tool_calls.lock().unwrap().len(), 1, "{order:?}");
        assert_eq!(outcome.data, json!([{"name": "find", "result": {"crossings": ["NW-1"]}}]), "{order:?}");
        assert_eq!(said(&outcome), [(BotKind::FinalResponse, "Done.".into())]);
    }
}

#[tokio::test]
async fn unknown_tool_is_reported_to_the_model_or_ends_the_run() {
    let mut harness =
        Harness::new("search", "", "hi", vec![calls("", &[("fnd", json!({}))]), text("Sorry, where from?")]);
    assert_eq!(harness.run().await.status, AgentStatus::AwaitingUser);
    let result = harness.request(1).last().unwrap().1.clone();
    assert!(
        result.starts_with("error: unknown_tool") && result.contains("fail, find, other, task_completed"),
        "{result}"
    );

    let strict = "configuration:\n  on_tool_error: fail\n";
    let mut harness = Harness::new("search", strict, "hi", vec![calls("", &[("fnd", json!({}))])]);
    assert_eq!(code(&harness.run().await), react::CODE_TOOL_FAILURES);
}

#[tokio::test]
async fn malformed_arguments_are_corrected_once() {
    let steps = vec![malformed("find"), text("Where from?")];
    let mut harness = Harness::new("search", "", "hi", steps);
    assert_eq!(harness.run().await.status, AgentStatus::AwaitingUser);
    assert_eq!(harness.model.requests().len(), 2);
    let result = harness.request(1).last().unwrap().clone();
    assert_eq!(result.0, "tool");
    assert!(result.1.contains("not valid JSON (EOF while parsing at column 9)"), "{}", result.1);
    assert!(harness.tool_calls.lock().unwrap().is_empty());
}

#[tokio::test]
async fn three_empty_responses_with_pauses_of_one_and_two_seconds_fail() {
    let mut harness = Harness::new("search", "", "hi", vec![text(""), text(" "), text("\n")]);
    let outcome = harness.run().await;
    assert_eq!(code(&outcome), react::CODE_EMPTY_ANSWER);
    let slept: Vec<Duration> =
        harness.clock.slept().iter().copied().filter(|wait| *wait <= Duration::from_secs(5)).collect();
    assert_eq!(slept, [Duration::from_secs(1), Duration::from_secs(2)]);
    assert!(said(&outcome).is_empty() && harness.sink.events.is_empty(), "no empty message is sent");
}

#[tokio::test]
async fn endless_calls_fail_at_the_iteration_limit() {
    let calls_without_end = (0..limits::AGENT_ITERATIONS).map(|_| calls("", &[("find", json!({}))])).collect();
    let mut harness = Harness::new("search", "", "hi", calls_without_end);
    let outcome = harness.run().await;
    assert_eq!(code(&outcome), react::CODE_ITERATION_LIMIT);
    assert_eq!(harness.model.requests().len(), limits::AGENT_ITERATIONS as usize);
}

#[tokio::test]
async fn configured_iterations_cannot_exceed_the_loop_limit() {
    let most = segue_engine::limits::AGENT_MODEL_CALLS;
    assert_eq!(most, limits::TURN_MODEL_CALLS);
    let calls_without_end = (0..most).map(|at| calls("", &[("find", json!({"at": at}))])).collect();
    let mut harness = Harness::new("search", "configuration:\n  max_iterations: 99\n", "hi", calls_without_end);
    assert_eq!(code(&harness.run().await), react::CODE_ITERATION_LIMIT);
    assert_eq!(harness.model.requests().len(), most as usize);
}

#[tokio::test]
async fn consecutive_failures_end_the_run_and_a_success_resets_the_count() {
    let fail = || calls("", &[("fail", json!({}))]);
    let mut harness = Harness::new("search", "", "hi", (0..=limits::AGENT_FAILURES).map(|_| fail()).collect());
    assert_eq!(code(&harness.run().await), react::CODE_TOOL_FAILURES);

    let steps = vec![fail(), fail(), fail(), calls("", &[("find", json!({}))]), fail(), text("It does not work.")];
    let mut harness = Harness::new("search", "", "hi", steps);
    assert_eq!(harness.run().await.status, AgentStatus::AwaitingUser);
}

#[tokio::test]
async fn results_of_the_task_are_in_its_next_turn_and_the_filler_only_once() {
    let steps = vec![calls("Let me look.", &[("find", json!({}))]), text("NW-1 or none?"), text("Fine.")];
    let mut harness = Harness::new("search", "", "from Arnvik", steps);
    assert_eq!(harness.run_without_verify().await.status, AgentStatus::AwaitingUser);
    harness.user("that one");
    harness.run().await;
    let request = harness.request(2);
    assert_eq!(request.iter().filter(|(_, text)| text == "Let me look.").count(), 1, "{request:?}");
    assert!(request.iter().any(|(role, text)| role == "tool" && text.contains("NW-1")), "{request:?}");
}

#[tokio::test]
async fn channel_without_streaming_gets_whole_messages() {
    let mut harness =
        Harness::new("search", "", "hi", vec![calls("One moment.", &[("find", json!({}))]), text("Here.")]);
    harness.sink.without_streaming = true;
    harness.run().await;
    assert!(harness.sink.events.iter().all(|event| matches!(event, TurnEvent::Message { .. })));
    assert_eq!(harness.sink.events.len(), 2);
}

#[tokio::test]
async fn task_is_not_completed_beside_a_failed_call_and_the_model_gets_the_reason() {
    let refused = "configuration:\n  tools:\n    find: { requires: slots.vehicle }\n";
    for (rules, tool, lost, expected) in [
        ("", "fail", false, "error[tool_error]: no such port"),
        ("", "nothing_such", false, "error: unknown_tool"),
        ("", "fail", true, "unknown[unavailable]"),
        (refused, "find", false, "error: refused"),
    ] {
        for without_streaming in [true, false] {
            let both = calls("All booked!", &[("task_completed", json!({})), (tool, json!({"lost": lost}))]);
            let mut harness = Harness::new("search", rules, "book it", vec![both, text("That did not work. Again?")]);
            harness.sink.without_streaming = without_streaming;
            let outcome = harness.run().await;
            assert_eq!(outcome.status, AgentStatus::AwaitingUser, "{tool}");
            let messages = said(&outcome);
            assert_eq!(
                messages.last().unwrap(),
                &(BotKind::InputRequired, "That did not work. Again?".into()),
                "{tool}"
            );
            assert!(!messages.iter().any(|(kind, _)| *kind == BotKind::FinalResponse), "{tool}: {messages:?}");
            assert!(
                !without_streaming || messages.len() == 1,
                "text that was not streamed yet is not sent: {messages:?}"
            );
            let request = harness.request(1);
            assert!(
                request.iter().any(|(role, text)| role == "tool" && text.starts_with(expected)),
                "{tool}: {request:?}"
            );
            assert!(request.iter().any(|(_, text)| text.contains("the task is not completed")), "{tool}: {request:?}");
        }
    }
}

#[tokio::test]
async fn response_whose_calls_all_fail_counts_once() {
    let four = || calls("", &[("fail", json!({})), ("fail", json!({})), ("fail", json!({})), ("fail", json!({}))]);
    let mut harness = Harness::new("search", "", "hi", vec![four(), four(), four(), text("It does not work.")]);
    assert_eq!(harness.run().await.status, AgentStatus::AwaitingUser);
    let mut harness = Harness::new("search", "", "hi", (0..=limits::AGENT_FAILURES).map(|_| four()).collect());
    assert_eq!(code(&harness.run().await), react::CODE_TOOL_FAILURES);
}
