//! Admission: which messages are accepted, and how the others are rejected.

use segue::{
    ConversationId, limits,
    runtime::{Admission, OverloadLimit},
};

use super::*;

/// An assistant with this action, these limits and a manual clock.
fn limited_assistant(work: &Arc<BlockingAction>, admission: Admission) -> (Assistant, ManualClock) {
    let clock = ManualClock::new();
    let builder = builder("").action("action_work", work.clone()).clock(Arc::new(clock.clone()));
    (builder.admission(admission).build().unwrap(), clock)
}

/// Sends a message of an authenticated caller.
fn say_as(
    caller: &str,
    assistant: &Assistant,
    conversation: &str,
) -> BoxFuture<'static, Result<TurnReport, ReceiveError>> {
    let (assistant, caller) = (assistant.clone(), caller.to_owned());
    let incoming = IncomingMessage::new(conversation, "work").input_channel("test");
    Box::pin(async move { assistant.receive_for(Some(&caller), incoming, Box::new(DiscardReplies)).await })
}

fn overload(error: ReceiveError) -> (OverloadLimit, u64) {
    match error {
        ReceiveError::Overloaded(overload) => (overload.limit, overload.retry_after.as_secs()),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn message_beyond_the_open_turns_is_rejected_before_it_is_stored() {
    let work = BlockingAction::new(0);
    let (assistant, _) = limited_assistant(&work, Admission { open_turns: 3, ..Admission::default() });
    let open: Vec<_> = (0..3).map(|n| tokio::spawn(say(&assistant, &format!("c{n}"), "work"))).collect();
    work.wait_until_started(3).await;
    let error = say(&assistant, "late", "work").await.unwrap_err();
    assert_eq!(
        (error.code(), error.to_string().as_str()),
        ("R0106", "the message was not accepted: too many turns are open; try again in 1 s")
    );
    assert_eq!(overload(error), (OverloadLimit::OpenTurns, 1));
    assert!(assistant.store().unfinished_turns(&"late".into()).await.unwrap().is_empty());
    assert!(!assistant.store().conversations(9).await.unwrap().contains(&ConversationId::from("late")));
    work.permits.add_permits(4);
    for turn in open {
        assert_eq!(texts(&turn.await.unwrap().unwrap())[0], "Done.");
    }
    assert_eq!(texts(&say(&assistant, "late", "work").await.unwrap())[0], "Done.", "a message is accepted again");
}

#[tokio::test]
async fn default_limit_of_open_turns() {
    let work = BlockingAction::new(0);
    let (assistant, _) = assistant_with_manual_clock(&work);
    let open: Vec<_> =
        (0..limits::OPEN_TURNS).map(|n| tokio::spawn(say(&assistant, &format!("c{n}"), "work"))).collect();
    work.wait_until_started(limits::OPEN_TURNS).await;
    assert_eq!(overload(say(&assistant, "late", "work").await.unwrap_err()).0, OverloadLimit::OpenTurns);
    work.permits.add_permits(limits::OPEN_TURNS);
    for turn in open {
        turn.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn open_turns_per_caller_are_limited() {
    let work = BlockingAction::new(0);
    let (assistant, _) = limited_assistant(&work, Admission::default());
    let open: Vec<_> =
        (0..limits::TURNS_PER_CALLER).map(|n| tokio::spawn(say_as("ada", &assistant, &format!("a{n}")))).collect();
    work.wait_until_started(limits::TURNS_PER_CALLER).await;
    let error = say_as("ada", &assistant, "one more").await.unwrap_err();
    assert!(matches!(&error, ReceiveError::Overloaded(overload) if overload.is_caller_limit()));
    assert_eq!(overload(error).0, OverloadLimit::Caller);
    assert!(assistant.check_admission(Some("ada"), &"one more".into()).is_err());
    assert!(assistant.check_admission(Some("bob"), &"b".into()).is_ok(), "the check reserves nothing");
    let other = tokio::spawn(say_as("bob", &assistant, "b"));
    work.wait_until_started(limits::TURNS_PER_CALLER + 1).await;
    work.permits.add_permits(limits::TURNS_PER_CALLER + 2);
    other.await.unwrap().unwrap();
    for turn in open {
        turn.await.unwrap().unwrap();
    }
    say_as("ada", &assistant, "one more").await.unwrap();
}

/// Runs a turn that takes so long.
async fn run_turn_of(seconds: u64, (assistant, clock, work): (&Assistant, &ManualClock, &BlockingAction)) {
    let started = work.started();
    let turn = tokio::spawn(say(assistant, "slow", "work"));
    work.wait_until_started(started + 1).await;
    clock.advance(Duration::from_secs(seconds));
    work.permits.add_permits(1);
    turn.await.unwrap().unwrap();
}

#[tokio::test]
async fn message_with_too_long_an_expected_wait_is_rejected() {
    let work = BlockingAction::new(0);
    let (assistant, clock) = limited_assistant(&work, Admission::default());
    let wait = limits::EXPECTED_WAIT.as_secs();
    run_turn_of(wait - 10, (&assistant, &clock, &work)).await;
    // A second turn of the same conversation would wait too long; a turn of another conversation would not.
    let first = tokio::spawn(say(&assistant, "u", "work"));
    work.wait_until_started(2).await;
    let error = say(&assistant, "u", "work").await.unwrap_err();
    assert_eq!(overload(error), (OverloadLimit::Conversation, wait - 10));
    let other = tokio::spawn(say(&assistant, "v", "work"));
    work.wait_until_started(3).await;
    work.permits.add_permits(2);
    first.await.unwrap().unwrap();
    other.await.unwrap().unwrap();
    assert_eq!(assistant.store().turns(&"u".into()).await.unwrap().len(), 1, "the rejected message is not stored");
}

#[tokio::test]
async fn slow_assistant_admits_fewer_messages_but_always_some() {
    let work = BlockingAction::new(0);
    let (assistant, clock) =
        limited_assistant(&work, Admission { expected_wait: Duration::from_secs(30), ..Admission::default() });
    run_turn_of(40, (&assistant, &clock, &work)).await;
    let open: Vec<_> =
        (0..limits::ADMITTED_MIN).map(|n| tokio::spawn(say(&assistant, &format!("c{n}"), "work"))).collect();
    work.wait_until_started(limits::ADMITTED_MIN + 1).await;
    assert_eq!(overload(say(&assistant, "late", "work").await.unwrap_err()), (OverloadLimit::ExpectedWait, 40));
    work.permits.add_permits(limits::ADMITTED_MIN);
    for turn in open {
        turn.await.unwrap().unwrap();
    }
    // These turns were quick: the expected wait follows the recent turns.
    let open: Vec<_> =
        (0..limits::ADMITTED_MIN + 1).map(|n| tokio::spawn(say(&assistant, &format!("d{n}"), "work"))).collect();
    work.wait_until_started(2 * limits::ADMITTED_MIN + 2).await;
    work.permits.add_permits(open.len());
    for turn in open {
        turn.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn abandoned_turn_continues_and_frees_its_place() {
    let work = BlockingAction::new(0);
    let one = Admission { open_turns: 1, running_turns: 1, ..Admission::default() };
    let (assistant, _) = limited_assistant(&work, one);
    for n in 0..limits::TURNS_ABANDONED {
        let turn = tokio::spawn(say(&assistant, &format!("abandoned{n}"), "work"));
        work.wait_until_started(n + 1).await;
        turn.abort();
        assert!(turn.await.unwrap_err().is_cancelled());
    }
    let last = tokio::spawn(say(&assistant, "last", "work"));
    work.wait_until_started(limits::TURNS_ABANDONED + 1).await;
    // One more abandoned turn keeps its place: there are too many of them.
    last.abort();
    assert!(last.await.unwrap_err().is_cancelled());
    assert_eq!(overload(say(&assistant, "late", "work").await.unwrap_err()).0, OverloadLimit::OpenTurns);
    work.permits.add_permits(limits::TURNS_ABANDONED + 1);
    assistant.close(Duration::from_secs(1)).await;
    for n in 0..limits::TURNS_ABANDONED {
        let turns = assistant.store().turns(&format!("abandoned{n}").as_str().into()).await.unwrap();
        assert!(!turns[0].replies.is_empty(), "abandoned{n}");
    }
}

#[tokio::test]
async fn abandoned_turn_that_has_not_started_runs_after_others() {
    let work = BlockingAction::new(0);
    let (assistant, _) = limited_assistant(&work, Admission { running_turns: 1, ..Admission::default() });
    let first = tokio::spawn(say(&assistant, "first", "work"));
    work.wait_until_started(1).await;
    let abandoned: Vec<_> = (0..limits::RECOVERY_AT_ONCE + 1)
        .map(|n| tokio::spawn(say(&assistant, &format!("abandoned{n}"), "work")))
        .collect();
    run_other_tasks().await;
    assert_eq!(work.started(), 1);
    let waiting = tokio::spawn(say(&assistant, "waiting", "work"));
    run_other_tasks().await;
    for turn in &abandoned {
        turn.abort();
    }
    // Abandoned turns run in the background, a few at once.
    work.wait_until_started(1 + limits::RECOVERY_AT_ONCE).await;
    run_other_tasks().await;
    assert_eq!(work.started(), 1 + limits::RECOVERY_AT_ONCE);
    // After the first turn, the turn of a waiting caller is next, although the others arrived earlier.
    work.permits.add_permits(100);
    assert_eq!(texts(&waiting.await.unwrap().unwrap())[0], "Done.");
    first.await.unwrap().unwrap();
}
