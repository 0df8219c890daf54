//! Limits of one turn, and of the turns beside it.

use segue::{Agent, AgentResult, AgentRun, async_trait, limits, testing::TestAssistant};

use super::*;

#[tokio::test]
async fn a_turn_performs_only_so_many_effects() {
    let work = Work::new(1_000);
    let world = TestAssistant::build(builder("").action("action_work", work.clone())).unwrap();
    let (report, _) = world.send("u", "circle").await.unwrap();
    assert_eq!(texts(&report), ["Broken."]);
    assert_eq!(failures(&report), json!([["R0502", "the turn's budget is spent: 50 effects"]]));
    // The first effect is asking the model.
    assert_eq!(work.begun() as u32, limits::TURN_EFFECTS - 1);
    assert!(world.assistant.replay(&"u".into()).await.unwrap().is_none());
    let (report, _) = world.send("u", "work").await.unwrap();
    assert_eq!(texts(&report)[0], "Done.", "the next turn begins anew");
}

#[tokio::test]
async fn a_turn_lasts_only_so_long_whatever_an_action_does() {
    let work = Work::new(0);
    let world = TestAssistant::build(builder("").action("action_work", work.clone())).unwrap();
    let (report, _) = world.send("u", "circle").await.unwrap();
    assert_eq!(texts(&report), ["Broken."]);
    let told = failures(&report);
    assert_eq!(told[0][0], "R0501", "{told}");
    assert!(told[0][1].as_str().unwrap().contains("whether it did anything is not known"), "{told}");
    assert_eq!(told[1], json!(["R0502", "the turn's budget is spent: the time of the turn"]));
    assert_eq!(waits(&world.clock, limits::TURN_TIMEOUT), 1);
}

/// An agent of others that never comes back.
struct Lost;

#[async_trait]
impl Agent for Lost {
    async fn run(&self, _: &mut AgentRun<'_>) -> AgentResult {
        std::future::pending().await
    }
}

#[tokio::test]
async fn configured_timeouts_raise_the_time_of_a_turn_only_so_far() {
    for (timeout, expected) in [
        ("timeout: 30", Duration::from_secs(30)),
        ("timeout: 300", Duration::from_secs(300)),
        ("timeout: 86400", limits::TURN_TIMEOUT_MAX),
    ] {
        let world = TestAssistant::build(builder(timeout).agent("clerk", Arc::new(Lost))).unwrap();
        let (report, _) = world.send("u", "ask").await.unwrap();
        assert_eq!(texts(&report), ["Broken."], "{timeout}");
        assert_eq!(failures(&report)[0][0], "A0505", "{timeout}");
        assert_eq!(waits(&world.clock, expected), 1, "{timeout}: {:?}", world.clock.slept());
    }
}

#[tokio::test]
async fn a_turn_asks_models_only_so_often() {
    let world = TestAssistant::build(builder("max_iterations: 12")).unwrap();
    let (report, _) = world.send("u", "ask_often").await.unwrap();
    let told = failures(&report);
    assert_eq!(told[0][0], "A0524", "{told}");
    let expected = format!("the turn has no model calls left: at most {} are allowed", limits::TURN_MODEL_CALLS);
    assert!(told[0][1].as_str().unwrap().contains(&expected), "{told}");
    assert_eq!(texts(&report).last(), Some(&"Broken."), "{:?}", texts(&report));
}

#[tokio::test]
async fn a_message_that_is_too_long_is_answered_so_and_stored_in_part() {
    let world = TestAssistant::build(builder("")).unwrap();
    let most = segue_engine::limits::MESSAGE_TEXT;
    let (report, _) = world.send("u", &"é".repeat(10 * most)).await.unwrap();
    assert!(texts(&report)[0].contains("4000"), "{:?}", texts(&report));
    let turns = world.assistant.store().turns(&"u".into()).await.unwrap();
    assert_eq!(turns[0].inbound.message.text.chars().count(), most + 1);
    assert!(world.assistant.replay(&"u".into()).await.unwrap().is_none());
}

#[tokio::test]
async fn a_full_mailbox_takes_no_more() {
    let work = Work::new(0);
    let (assistant, _) = still(&work);
    let waiting: Vec<_> = (0..limits::MAILBOX).map(|_| tokio::spawn(say(&assistant, "u", "work"))).collect();
    work.until(1).await;
    settle().await;
    let error = say(&assistant, "u", "work").await.unwrap_err();
    assert_eq!(
        (error.code(), error.to_string().as_str()),
        ("R0101", "the conversation is busy: its mailbox is full; try again later",)
    );
    assert_eq!(work.begun(), 1, "one turn at a time");
    work.gate.add_permits(limits::MAILBOX + 2);
    for turn in waiting {
        assert_eq!(texts(&turn.await.unwrap().unwrap())[0], "Done.");
    }
    say(&assistant, "u", "work").await.unwrap();
    assert_eq!(assistant.store().turns(&"u".into()).await.unwrap().len(), limits::MAILBOX + 1);
}

#[tokio::test]
async fn only_so_many_turns_run_at_once() {
    let work = Work::new(0);
    let clock = Arc::new(ManualClock::new());
    let builder = builder_with("", "server: {open_turns: 1000}").action("action_work", work.clone()).clock(clock);
    let assistant = builder.build().unwrap();
    let more = 10;
    let turns: Vec<_> =
        (0..limits::TURNS_IN_FLIGHT + more).map(|n| tokio::spawn(say(&assistant, &format!("c{n}"), "work"))).collect();
    work.until(limits::TURNS_IN_FLIGHT).await;
    settle().await;
    assert_eq!(work.begun(), limits::TURNS_IN_FLIGHT);
    work.gate.add_permits(1);
    work.until(limits::TURNS_IN_FLIGHT + 1).await;
    work.gate.add_permits(turns.len());
    for turn in turns {
        assert_eq!(texts(&turn.await.unwrap().unwrap())[0], "Done.");
    }
}

#[tokio::test]
async fn a_snapshot_is_stored_every_so_often() {
    let world = TestAssistant::build(builder("").action("action_work", Work::new(1_000))).unwrap();
    for turn in 1..=limits::SNAPSHOT_EVERY {
        assert!(world.assistant.store().load(&"u".into()).await.unwrap().snapshot.is_none(), "before turn {turn}");
        world.send("u", "work").await.unwrap();
    }
    let stored = world.assistant.store().load(&"u".into()).await.unwrap();
    assert!(stored.snapshot.is_some() && stored.tail.is_empty());
}
