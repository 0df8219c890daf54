//! Which messages are taken, and what those that are not hear.

use segue::{
    ConversationId, limits,
    runtime::{Admission, OverloadLimit},
};

use super::*;

/// An assistant whose time stands still, with this work and these limits.
fn limited(work: &Arc<Work>, admission: Admission) -> (Assistant, ManualClock) {
    let clock = ManualClock::new();
    let builder = builder("").action("action_work", work.clone()).clock(Arc::new(clock.clone()));
    (builder.admission(admission).build().unwrap(), clock)
}

fn by(caller: &str, assistant: &Assistant, conversation: &str) -> BoxFuture<'static, Result<TurnReport, ReceiveError>> {
    let (assistant, caller) = (assistant.clone(), caller.to_owned());
    let incoming = IncomingMessage::text(conversation, "work", "test");
    Box::pin(async move { assistant.receive_for(Some(&caller), incoming, Box::new(DiscardReplies)).await })
}

fn overload(error: ReceiveError) -> (OverloadLimit, u64) {
    match error {
        ReceiveError::Overloaded(overload) => (overload.limit, overload.retry_after.as_secs()),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn what_is_beyond_the_open_turns_is_refused_before_anything_is_stored() {
    let work = Work::new(0);
    let (assistant, _) = limited(&work, Admission { open_turns: 3, ..Admission::default() });
    let open: Vec<_> = (0..3).map(|n| tokio::spawn(say(&assistant, &format!("c{n}"), "work"))).collect();
    work.until(3).await;
    let error = say(&assistant, "late", "work").await.unwrap_err();
    assert_eq!(
        (error.code(), error.to_string().as_str()),
        ("R0106", "the message was not accepted: too many turns are open; try again in 1 s")
    );
    assert_eq!(overload(error), (OverloadLimit::OpenTurns, 1));
    assert!(assistant.store().unfinished_turns(&"late".into()).await.unwrap().is_empty());
    assert!(!assistant.store().conversations(9).await.unwrap().contains(&ConversationId::from("late")));
    work.gate.add_permits(4);
    for turn in open {
        assert_eq!(texts(&turn.await.unwrap().unwrap())[0], "Done.");
    }
    assert_eq!(texts(&say(&assistant, "late", "work").await.unwrap())[0], "Done.", "there is room again");
}

#[tokio::test]
async fn without_settings_so_many_turns_may_be_open() {
    let work = Work::new(0);
    let (assistant, _) = still(&work);
    let open: Vec<_> =
        (0..limits::OPEN_TURNS).map(|n| tokio::spawn(say(&assistant, &format!("c{n}"), "work"))).collect();
    work.until(limits::OPEN_TURNS).await;
    assert_eq!(overload(say(&assistant, "late", "work").await.unwrap_err()).0, OverloadLimit::OpenTurns);
    work.gate.add_permits(limits::OPEN_TURNS);
    for turn in open {
        turn.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_caller_has_only_so_many_open_turns_and_others_are_answered() {
    let work = Work::new(0);
    let (assistant, _) = limited(&work, Admission::default());
    let open: Vec<_> =
        (0..limits::TURNS_PER_CALLER).map(|n| tokio::spawn(by("ada", &assistant, &format!("a{n}")))).collect();
    work.until(limits::TURNS_PER_CALLER).await;
    let error = by("ada", &assistant, "one more").await.unwrap_err();
    assert!(matches!(&error, ReceiveError::Overloaded(overload) if overload.is_caller_limit()));
    assert_eq!(overload(error).0, OverloadLimit::Caller);
    assert!(assistant.check_admission(Some("ada"), &"one more".into()).is_err());
    assert!(assistant.check_admission(Some("bob"), &"b".into()).is_ok(), "to look takes no place");
    let other = tokio::spawn(by("bob", &assistant, "b"));
    work.until(limits::TURNS_PER_CALLER + 1).await;
    work.gate.add_permits(limits::TURNS_PER_CALLER + 2);
    other.await.unwrap().unwrap();
    for turn in open {
        turn.await.unwrap().unwrap();
    }
    by("ada", &assistant, "one more").await.unwrap();
}

/// Lets one turn take so long.
async fn turn_of(seconds: u64, (assistant, clock, work): (&Assistant, &ManualClock, &Work)) {
    let begun = work.begun();
    let turn = tokio::spawn(say(assistant, "slow", "work"));
    work.until(begun + 1).await;
    clock.advance(Duration::from_secs(seconds));
    work.gate.add_permits(1);
    turn.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_message_whose_answer_would_take_too_long_is_refused() {
    let work = Work::new(0);
    let (assistant, clock) = limited(&work, Admission::default());
    let wait = limits::EXPECTED_WAIT.as_secs();
    turn_of(wait - 10, (&assistant, &clock, &work)).await;
    // Two turns of one conversation one after the other are too long, in another conversation one is not.
    let first = tokio::spawn(say(&assistant, "u", "work"));
    work.until(2).await;
    let error = say(&assistant, "u", "work").await.unwrap_err();
    assert_eq!(overload(error), (OverloadLimit::Conversation, wait - 10));
    let other = tokio::spawn(say(&assistant, "v", "work"));
    work.until(3).await;
    work.gate.add_permits(2);
    first.await.unwrap().unwrap();
    other.await.unwrap().unwrap();
    assert_eq!(assistant.store().turns(&"u".into()).await.unwrap().len(), 1, "what was refused is not stored");
}

#[tokio::test]
async fn an_assistant_that_has_become_slow_takes_fewer_messages_and_never_none() {
    let work = Work::new(0);
    let (assistant, clock) =
        limited(&work, Admission { expected_wait: Duration::from_secs(30), ..Admission::default() });
    turn_of(40, (&assistant, &clock, &work)).await;
    let open: Vec<_> =
        (0..limits::ADMITTED_MIN).map(|n| tokio::spawn(say(&assistant, &format!("c{n}"), "work"))).collect();
    work.until(limits::ADMITTED_MIN + 1).await;
    assert_eq!(overload(say(&assistant, "late", "work").await.unwrap_err()), (OverloadLimit::ExpectedWait, 40));
    work.gate.add_permits(limits::ADMITTED_MIN);
    for turn in open {
        turn.await.unwrap().unwrap();
    }
    // Those were quick: what turns take lately counts, not what they took once.
    let open: Vec<_> =
        (0..limits::ADMITTED_MIN + 1).map(|n| tokio::spawn(say(&assistant, &format!("d{n}"), "work"))).collect();
    work.until(2 * limits::ADMITTED_MIN + 2).await;
    work.gate.add_permits(open.len());
    for turn in open {
        turn.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_turn_whose_caller_has_left_goes_on_and_gives_its_place_to_others() {
    let work = Work::new(0);
    let one = Admission { open_turns: 1, running_turns: 1, ..Admission::default() };
    let (assistant, _) = limited(&work, one);
    for n in 0..limits::TURNS_ABANDONED {
        let turn = tokio::spawn(say(&assistant, &format!("left{n}"), "work"));
        work.until(n + 1).await;
        turn.abort();
        assert!(turn.await.unwrap_err().is_cancelled());
    }
    let stays = tokio::spawn(say(&assistant, "stays", "work"));
    work.until(limits::TURNS_ABANDONED + 1).await;
    // One more that leaves keeps its place: there are too many of them.
    stays.abort();
    assert!(stays.await.unwrap_err().is_cancelled());
    assert_eq!(overload(say(&assistant, "late", "work").await.unwrap_err()).0, OverloadLimit::OpenTurns);
    work.gate.add_permits(limits::TURNS_ABANDONED + 1);
    assistant.close(Duration::from_secs(1)).await;
    for n in 0..limits::TURNS_ABANDONED {
        let turns = assistant.store().turns(&format!("left{n}").as_str().into()).await.unwrap();
        assert!(!turns[0].replies.is_empty(), "left{n}");
    }
}

#[tokio::test]
async fn a_turn_that_has_not_begun_when_its_caller_leaves_does_not_stand_before_others() {
    let work = Work::new(0);
    let (assistant, _) = limited(&work, Admission { running_turns: 1, ..Admission::default() });
    let first = tokio::spawn(say(&assistant, "first", "work"));
    work.until(1).await;
    let left: Vec<_> =
        (0..limits::RECOVERY_AT_ONCE + 1).map(|n| tokio::spawn(say(&assistant, &format!("left{n}"), "work"))).collect();
    settle().await;
    assert_eq!(work.begun(), 1);
    let waits = tokio::spawn(say(&assistant, "waits", "work"));
    settle().await;
    for turn in &left {
        turn.abort();
    }
    // Those whose callers have left run in the background, a few at once.
    work.until(1 + limits::RECOVERY_AT_ONCE).await;
    settle().await;
    assert_eq!(work.begun(), 1 + limits::RECOVERY_AT_ONCE);
    // The first is through; whoever waits for an answer is next, though the others came before.
    work.gate.add_permits(100);
    assert_eq!(texts(&waits.await.unwrap().unwrap())[0], "Done.");
    first.await.unwrap().unwrap();
}
