//! Fillers during slow tools, and the grounding check of claims.

use std::time::Duration;

use segue_engine::conversation::{AgentOutcome, AgentStatus, BotKind, Event, EventKind};
use serde_json::json;

use super::harness::{Harness, calls, code, said, text};
use crate::{
    agents::grounding::CODE_UNGROUNDED_CLAIM,
    conversation::TurnEvent,
    llm::{ChatResponse, FinishReason, scripted::ScriptedCall},
    react,
};

const SLOW: &str = "configuration:\n  filler_after: {default: 3, silent: false}\n";
const REPAIR: &str = "configuration:\n  grounded: repair\n  tools:\n    find: { effect: write }\n";

#[tokio::test]
async fn slow_tool_gets_alternating_fillers_with_growing_pauses() {
    let steps = vec![calls("", &[("slow", json!({"seconds": 60}))]), text("Here.")];
    let mut harness = Harness::new("search", &format!("{SLOW}  tool_timeout: 100\n"), "go", steps);
    let outcome = harness.run_slowly().await;
    let fillers: Vec<String> =
        said(&outcome).into_iter().filter(|(kind, _)| *kind == BotKind::Filler).map(|(_, text)| text).collect();
    assert_eq!(fillers.len(), 3, "{fillers:?}");
    assert!(fillers.windows(2).all(|two| two[0] != two[1]), "{fillers:?}");
    let slept = harness.clock.slept();
    for seconds in [3, 9, 27] {
        assert!(slept.contains(&Duration::from_secs(seconds)), "{slept:?}");
    }
    let recorded = harness.host.records.lock().unwrap().clone();
    assert_eq!(recorded.len(), 1, "{recorded:?}");
}

#[tokio::test]
async fn replayed_turn_sends_the_same_fillers_without_a_clock() {
    let steps = || vec![calls("", &[("slow", json!({"seconds": 20}))]), text("Here.")];
    let long_timeout = format!("{SLOW}  tool_timeout: 100\n");
    let mut first = Harness::new("search", &long_timeout, "go", steps());
    let messages = said(&first.run_slowly().await);
    assert_eq!(messages.len(), 3, "{messages:?}");
    let mut replay =
        Harness::new("search", SLOW, "go", vec![calls("", &[("slow", json!({"seconds": 0}))]), text("Here.")]);
    replay.host = first.host.clone();
    assert_eq!(said(&replay.run_slowly().await), messages);
}

fn fillers(outcome: &segue_engine::conversation::AgentOutcome) -> Vec<String> {
    said(outcome).into_iter().filter(|(kind, _)| *kind == BotKind::Filler).map(|(_, text)| text).collect()
}

#[tokio::test]
async fn progress_of_a_slow_tool_is_sent_at_the_pace_of_fillers_and_replayed() {
    let steps = || {
        let first = calls("", &[("slow", json!({"notifications": 5, "seconds": 30}))]);
        vec![first, calls("", &[("slow", json!({"notifications": 0, "seconds": 4}))]), text("Here.")]
    };
    let long_timeout = format!("{SLOW}  tool_timeout: 100\n");
    let mut first = Harness::new("search", &long_timeout, "go", steps());
    let sent = fillers(&first.run_slowly().await);
    assert!(sent[0].starts_with("utter_agent_progress ") && sent[0].ends_with("percent=30"), "{sent:?}");
    assert!(sent[1].starts_with("utter_agent_progress ") && sent[1].ends_with("percent=50"), "{sent:?}");
    assert!(sent[2].starts_with("utter_agent_filler"), "the next call reported no progress: {sent:?}");
    assert_eq!(sent.len(), 3);
    let quick = vec![calls("", &[("slow", json!({}))]), calls("", &[("slow", json!({}))]), text("Here.")];
    let mut replay = Harness::new("search", &long_timeout, "go", quick);
    replay.host = first.host.clone();
    assert_eq!(fillers(&replay.run_slowly().await), sent);
}

#[tokio::test]
async fn messages_of_a_server_are_sent_only_with_progress_messages() {
    for (words, allowed, expected) in [
        ("reading page", false, "percent=30"),
        ("reading page", true, "message=\"reading page 3\" server=\"ferries\""),
        ("look at https://example.org", true, "percent=30"),
        ("Your crossing has been booked,", true, "percent=30"),
    ] {
        let steps =
            vec![calls("", &[("slow", json!({"notifications": 3, "seconds": 5, "words": words}))]), text("Here.")];
        let mut harness = Harness::with_progress_messages(allowed, &format!("{SLOW}  tool_timeout: 100\n"), steps);
        let sent = fillers(&harness.run_slowly().await);
        assert_eq!(sent.len(), 1, "{sent:?}");
        assert!(expected.split(" server").all(|part| sent[0].contains(part)), "{words} {allowed}: {sent:?}");
    }
}

#[tokio::test]
async fn progress_of_parallel_calls_is_not_sent() {
    let slow = ("slow", json!({"notifications": 3, "seconds": 5}));
    let mut harness = Harness::new("search", SLOW, "go", vec![calls("", &[slow.clone(), slow]), text("Here.")]);
    let sent = fillers(&harness.run_slowly().await);
    assert!(!sent.is_empty() && sent.iter().all(|text| text.starts_with("utter_agent_filler")), "{sent:?}");
}

#[tokio::test]
async fn no_filler_for_a_quick_tool_after_text_or_on_a_channel_without_fillers() {
    for (words, seconds, channel) in [("", 0, "test"), ("Let me look.", 60, "test"), ("", 60, "silent")] {
        let steps = vec![calls(words, &[("slow", json!({"seconds": seconds}))]), text("Here.")];
        let mut harness = Harness::new("search", &format!("{SLOW}  tool_timeout: 100\n"), "go", steps);
        harness.conversation.latest_message.as_mut().unwrap().input_channel = channel.into();
        let fillers =
            said(&harness.run_slowly().await).iter().filter(|(_, text)| text.starts_with("utter_agent_filler")).count();
        assert_eq!(fillers, 0, "{words} {seconds} {channel}");
    }
}

#[tokio::test]
async fn cancelled_run_sends_no_more_fillers() {
    let steps = vec![calls("", &[("slow", json!({"seconds": 60, "cancel": true}))])];
    let mut harness = Harness::new("search", &format!("{SLOW}  tool_timeout: 100\n"), "go", steps);
    let outcome = harness.run_slowly().await;
    assert!(said(&outcome).is_empty(), "{:?}", said(&outcome));
    assert!(matches!(outcome.status, AgentStatus::Cancelled { .. }), "{:?}", outcome.status);
}

#[tokio::test]
async fn false_claim_is_sent_and_reported_by_default() {
    let mut harness = Harness::new("search", "", "book it", vec![text("I've booked NW-1 for you.")]);
    let outcome = harness.run().await;
    assert_eq!(said(&outcome), [(BotKind::InputRequired, "I've booked NW-1 for you.".into())]);
    let warnings = harness.host.warnings.lock().unwrap().clone();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert_eq!(warnings[0].0, CODE_UNGROUNDED_CLAIM);
}

#[tokio::test]
async fn repair_withholds_a_false_claim_and_calls_the_model_again() {
    let steps = vec![
        text("Good news. I've booked NW-1 for you. Have a nice trip."),
        text("I have not booked it yet. Shall I?"),
    ];
    let mut harness = Harness::new("search", REPAIR, "book it", steps);
    let outcome = harness.run().await;
    assert_eq!(
        said(&outcome),
        [
            (BotKind::Intermediate, "Good news.".into()),
            (BotKind::InputRequired, "I have not booked it yet. Shall I?".into())
        ]
    );
    let events = format!("{:?}", harness.sink.events);
    assert!(!events.contains("I've booked") && !events.contains("nice trip"), "{events}");
    assert!(harness.request(1).last().unwrap().1.contains("I've booked NW-1 for you."), "{:?}", harness.request(1));
}

#[tokio::test]
async fn repeated_false_claim_is_replaced_by_a_response() {
    let claim = || text("Done! It is booked.");
    let mut harness = Harness::new("search", REPAIR, "book it", vec![claim(), claim()]);
    let outcome = harness.run().await;
    assert_eq!(said(&outcome), [(BotKind::InputRequired, "utter_agent_unproven 0".into())]);
    let ends = harness.sink.events.iter().filter(|event| matches!(event, TurnEvent::MessageEnd { .. })).count();
    assert_eq!(ends, 1);
}

#[tokio::test]
async fn claim_of_a_recorded_effect_is_allowed_in_this_and_later_turns() {
    let steps = vec![
        calls("", &[("find", json!({}))]),
        text("I've booked NW-1. Anything else?"),
        text("As I said, I have booked NW-1."),
    ];
    let mut harness = Harness::new("search", REPAIR, "book it", steps);
    let outcome = harness.run_without_verify().await;
    assert_eq!(said(&outcome).last().unwrap().1, "I've booked NW-1. Anything else?");
    harness.user("sure?");
    harness.call.metadata = outcome.metadata.clone();
    let outcome = harness.run().await;
    assert_eq!(said(&outcome).last().unwrap().1, "As I said, I have booked NW-1.");
    assert!(harness.host.warnings.lock().unwrap().is_empty());
}

#[tokio::test]
async fn failed_effect_supports_no_claim_and_a_claim_before_its_call_is_withheld() {
    let rules = "configuration:\n  grounded: repair\n  tools:\n    fail: { effect: write }\n";
    let steps = vec![
        calls("I've cancelled it.", &[("fail", json!({})), ("task_completed", json!({}))]),
        text("It did not work."),
    ];
    let mut harness = Harness::new("search", rules, "cancel it", steps);
    let outcome = harness.run().await;
    assert_eq!(outcome.status, AgentStatus::AwaitingUser, "a task is not completed beside a failed call");
    assert_eq!(said(&outcome), [(BotKind::InputRequired, "It did not work.".into())]);
}

/// A response that was stopped before its end.
fn stopped(finish: FinishReason, text: &str) -> ScriptedCall {
    ScriptedCall::from(ChatResponse { finish, ..ChatResponse::text(text) })
}

/// The texts of an outcome, and whether each was truncated.
fn texts(outcome: &AgentOutcome) -> Vec<(String, bool)> {
    let bot = |event: &Event| match &event.kind {
        EventKind::Bot(bot) => Some((bot.reply.text.as_deref().unwrap_or_default().to_owned(), bot.truncated)),
        _ => None,
    };
    outcome.events.iter().filter_map(bot).collect()
}

#[tokio::test]
async fn content_filter_stop_is_final_for_a_withheld_claim() {
    for without_streaming in [false, true] {
        let steps = vec![stopped(FinishReason::ContentFilter, "One moment. I've booked NW-1.")];
        let mut harness = Harness::new("search", REPAIR, "book it", steps);
        harness.sink.without_streaming = without_streaming;
        let outcome = harness.run().await;
        assert_eq!(code(&outcome), react::CODE_MODEL_FAILED);
        let expected = if without_streaming { vec![] } else { vec![("One moment.".to_owned(), true)] };
        assert_eq!(texts(&outcome), expected);
    }
}

#[tokio::test]
async fn truncated_closing_message_is_marked_as_truncated() {
    for (without_streaming, finish, expected) in [
        (false, FinishReason::ContentFilter, vec![("All is do".to_owned(), true)]),
        (true, FinishReason::ContentFilter, vec![]),
        (false, FinishReason::Length, vec![("All is do".to_owned(), true)]),
        (true, FinishReason::Length, vec![("All is do".to_owned(), true)]),
    ] {
        let steps = vec![calls("", &[("task_completed", json!({}))]), stopped(finish, "All is do")];
        let mut harness = Harness::new("search", "", "go", steps);
        harness.sink.without_streaming = without_streaming;
        let outcome = harness.run().await;
        assert_eq!(
            (outcome.status.clone(), texts(&outcome)),
            (AgentStatus::Finished, expected),
            "{without_streaming} {finish:?}"
        );
    }
}

#[tokio::test]
async fn recorded_value_supports_only_claims_of_recording() {
    let set = || calls("", &[("set_slot_crossing", json!({"slot_value": "NW-1"}))]);
    let steps = vec![set(), text("I've booked NW-1 for you."), text("For how many?")];
    let mut harness = Harness::new("book", "configuration:\n  grounded: repair\n", "NW-1", steps);
    let outcome = harness.run().await;
    assert_eq!(said(&outcome), [(BotKind::InputRequired, "For how many?".into())]);

    let steps = vec![set(), text("I've saved NW-1. For how many?")];
    let mut harness = Harness::new("book", "configuration:\n  grounded: repair\n", "NW-1", steps);
    let outcome = harness.run().await;
    assert_eq!(said(&outcome), [(BotKind::InputRequired, "I've saved NW-1. For how many?".into())]);
}
