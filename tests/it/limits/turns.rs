//! Limits of a turn, of a conversation's mailbox, and of turns that run at the same time.

use segue::{Agent, AgentResult, AgentRun, async_trait, limits, testing::TestAssistant};

use super::*;

#[tokio::test]
async fn effects_per_turn_are_limited() {
    let work = BlockingAction::new(1_000);
    let test = TestAssistant::build(builder("").action("action_work", work.clone())).unwrap();
    let (report, _) = test.send("u", "circle").await.unwrap();
    assert_eq!(texts(&report), ["Broken."]);
    assert_eq!(failures(&report), json!([["R0502", "the turn's budget is spent: 50 effects"]]));
    // The first effect is the request to the model.
    assert_eq!(work.started() as u32, limits::TURN_EFFECTS - 1);
    assert!(test.assistant.replay(&"u".into()).await.unwrap().is_none());
    let (report, _) = test.send("u", "work").await.unwrap();
    assert_eq!(texts(&report)[0], "Done.", "the next turn has a new budget");
}

#[tokio::test]
async fn turn_timeout_ends_a_hanging_action() {
    let work = BlockingAction::new(0);
    let test = TestAssistant::build(builder("").action("action_work", work.clone())).unwrap();
    let (report, _) = test.send("u", "circle").await.unwrap();
    assert_eq!(texts(&report), ["Broken."]);
    let failures = failures(&report);
    assert_eq!(failures[0][0], "R0501", "{failures}");
    assert!(failures[0][1].as_str().unwrap().contains("whether it did anything is not known"), "{failures}");
    assert_eq!(failures[1], json!(["R0502", "the turn's budget is spent: the time of the turn"]));
    assert_eq!(sleep_count(&test.clock, limits::TURN_TIMEOUT), 1);
}

/// A custom agent that never returns.
struct HangingAgent;

#[async_trait]
impl Agent for HangingAgent {
    async fn run(&self, _: &mut AgentRun<'_>) -> AgentResult {
        std::future::pending().await
    }
}

#[tokio::test]
async fn configured_timeouts_extend_the_turn_timeout_up_to_a_maximum() {
    for (timeout, expected) in [
        ("timeout: 30", Duration::from_secs(30)),
        ("timeout: 300", Duration::from_secs(300)),
        ("timeout: 86400", limits::TURN_TIMEOUT_MAX),
    ] {
        let test = TestAssistant::build(builder(timeout).agent("clerk", Arc::new(HangingAgent))).unwrap();
        let (report, _) = test.send("u", "ask").await.unwrap();
        assert_eq!(texts(&report), ["Broken."], "{timeout}");
        assert_eq!(failures(&report)[0][0], "A0505", "{timeout}");
        assert_eq!(sleep_count(&test.clock, expected), 1, "{timeout}: {:?}", test.clock.slept());
    }
}

#[tokio::test]
async fn model_calls_per_turn_are_limited() {
    let test = TestAssistant::build(builder("max_iterations: 12")).unwrap();
    let (report, _) = test.send("u", "ask_often").await.unwrap();
    let failures = failures(&report);
    assert_eq!(failures[0][0], "A0524", "{failures}");
    let expected = format!("the turn has no model calls left: at most {} are allowed", limits::TURN_MODEL_CALLS);
    assert!(failures[0][1].as_str().unwrap().contains(&expected), "{failures}");
    assert_eq!(texts(&report).last(), Some(&"Broken."), "{:?}", texts(&report));
}

#[tokio::test]
async fn too_long_message_is_rejected_and_stored_truncated() {
    let test = TestAssistant::build(builder("")).unwrap();
    let limit = segue_engine::limits::MESSAGE_TEXT;
    let (report, _) = test.send("u", &"é".repeat(10 * limit)).await.unwrap();
    assert!(texts(&report)[0].contains("4000"), "{:?}", texts(&report));
    let turns = test.assistant.store().turns(&"u".into()).await.unwrap();
    assert_eq!(turns[0].inbound.message.text.chars().count(), limit + 1);
    assert!(test.assistant.replay(&"u".into()).await.unwrap().is_none());
}

#[tokio::test]
async fn full_mailbox_rejects_messages() {
    let work = BlockingAction::new(0);
    let (assistant, _) = assistant_with_manual_clock(&work);
    let waiting: Vec<_> = (0..limits::MAILBOX).map(|_| tokio::spawn(say(&assistant, "u", "work"))).collect();
    work.wait_until_started(1).await;
    run_other_tasks().await;
    let error = say(&assistant, "u", "work").await.unwrap_err();
    assert_eq!(
        (error.code(), error.to_string().as_str()),
        ("R0101", "the conversation is busy: its mailbox is full; try again later",)
    );
    assert_eq!(work.started(), 1, "one turn at a time");
    work.permits.add_permits(limits::MAILBOX + 2);
    for turn in waiting {
        assert_eq!(texts(&turn.await.unwrap().unwrap())[0], "Done.");
    }
    say(&assistant, "u", "work").await.unwrap();
    assert_eq!(assistant.store().turns(&"u".into()).await.unwrap().len(), limits::MAILBOX + 1);
}

#[tokio::test]
async fn concurrent_turns_are_limited() {
    let work = BlockingAction::new(0);
    let clock = Arc::new(ManualClock::new());
    let builder = builder_with("", "server: {open_turns: 1000}").action("action_work", work.clone()).clock(clock);
    let assistant = builder.build().unwrap();
    let excess = 10;
    let turns: Vec<_> = (0..limits::TURNS_IN_FLIGHT + excess)
        .map(|n| tokio::spawn(say(&assistant, &format!("c{n}"), "work")))
        .collect();
    work.wait_until_started(limits::TURNS_IN_FLIGHT).await;
    run_other_tasks().await;
    assert_eq!(work.started(), limits::TURNS_IN_FLIGHT);
    work.permits.add_permits(1);
    work.wait_until_started(limits::TURNS_IN_FLIGHT + 1).await;
    work.permits.add_permits(turns.len());
    for turn in turns {
        assert_eq!(texts(&turn.await.unwrap().unwrap())[0], "Done.");
    }
}

#[tokio::test]
async fn snapshot_is_stored_at_its_interval() {
    let test = TestAssistant::build(builder("").action("action_work", BlockingAction::new(1_000))).unwrap();
    for turn in 1..=limits::SNAPSHOT_EVERY {
        assert!(test.assistant.store().load(&"u".into()).await.unwrap().snapshot.is_none(), "before turn {turn}");
        test.send("u", "work").await.unwrap();
    }
    let stored = test.assistant.store().load(&"u".into()).await.unwrap();
    assert!(stored.snapshot.is_some() && stored.tail.is_empty());
}
