//! Open turns that an earlier process left: finished beside serving, a few at once, the latest conversations first.

use segue::{
    MemoryStore, Store,
    ids::{ConversationId, MessageId},
    limits,
    store::{AcceptOutcome, InboxMessage},
};
use segue_engine::{conversation::UserMessage, time::Timestamp};

use super::*;

fn left(conversation: &str, second: i64) -> InboxMessage {
    InboxMessage {
        tenant: "".into(),
        account: "".into(),
        conversation: conversation.into(),
        message: UserMessage {
            text: "work".into(),
            message_id: MessageId::from(format!("{conversation}-m")),
            input_channel: "test".into(),
            metadata: Default::default(),
        },
        at: Timestamp::from_micros(second * 1_000_000),
        seed: 1,
    }
}

/// A store in which so many conversations have an open turn, `c0` the oldest.
pub(super) async fn store_with_open_turns(store: &dyn Store, count: usize) {
    for n in 0..count {
        let accepted = store.accept(left(&format!("c{n}"), n as i64 + 1)).await.unwrap();
        assert!(matches!(accepted, AcceptOutcome::New(_)));
    }
}

fn assistant(store: Arc<dyn Store>, work: &Arc<Work>) -> Assistant {
    let builder = builder("").action("action_work", work.clone()).store(store);
    builder.clock(Arc::new(ManualClock::new())).build().unwrap()
}

async fn is_answered(store: &MemoryStore, n: usize) -> bool {
    store.unfinished_turns(&ConversationId::from(format!("c{n}"))).await.unwrap().is_empty()
}

#[tokio::test]
async fn open_turns_are_finished_a_few_at_once_and_the_latest_conversations_first() {
    let (store, work) = (Arc::new(MemoryStore::new()), Work::new(0));
    let count = 3 * limits::RECOVERY_AT_ONCE;
    store_with_open_turns(&*store, count).await;
    let assistant = assistant(store.clone(), &work);
    let recovering = tokio::spawn({
        let assistant = assistant.clone();
        async move { assistant.recover().await.unwrap() }
    });
    work.until(limits::RECOVERY_AT_ONCE).await;
    settle().await;
    assert_eq!(work.begun(), limits::RECOVERY_AT_ONCE);
    assert_eq!(assistant.recovering(), count);
    work.gate.add_permits(1);
    work.until(limits::RECOVERY_AT_ONCE + 1).await;
    settle().await;
    assert!(is_answered(&store, count - 1).await, "the conversation that was active last comes first");
    assert!(!is_answered(&store, 0).await);
    work.gate.add_permits(count);
    assert_eq!(recovering.await.unwrap(), count);
    assert_eq!(assistant.recovering(), 0);
}

#[tokio::test]
async fn a_message_finishes_the_open_turn_of_its_conversation_at_once() {
    let (store, work) = (Arc::new(MemoryStore::new()), Work::new(0));
    store_with_open_turns(&*store, limits::RECOVERY_AT_ONCE + 1).await;
    let assistant = assistant(store.clone(), &work);
    let recovering = tokio::spawn({
        let assistant = assistant.clone();
        async move { assistant.recover().await.unwrap() }
    });
    // The oldest conversation waits for a place in the recovery; its user does not.
    work.until(limits::RECOVERY_AT_ONCE).await;
    let said = tokio::spawn(say(&assistant, "c0", "work"));
    work.until(limits::RECOVERY_AT_ONCE + 1).await;
    work.gate.add_permits(2 * limits::RECOVERY_AT_ONCE + 2);
    assert_eq!(texts(&said.await.unwrap().unwrap())[0], "Done.");
    recovering.await.unwrap();
    assert_eq!(work.begun(), limits::RECOVERY_AT_ONCE + 2, "each turn ran once");
}

#[tokio::test]
async fn a_message_that_comes_while_its_conversation_is_recovered_runs_once() {
    let (store, work) = (Arc::new(MemoryStore::new()), Work::new(0));
    store_with_open_turns(&*store, 1).await;
    let assistant = assistant(store.clone(), &work);
    let recovering = tokio::spawn({
        let assistant = assistant.clone();
        async move { assistant.recover().await.unwrap() }
    });
    work.until(1).await;
    let said = tokio::spawn(say(&assistant, "c0", "work"));
    settle().await;
    work.gate.add_permits(3);
    assert_eq!(recovering.await.unwrap(), 1);
    let report = said.await.unwrap().unwrap();
    assert_eq!((texts(&report)[0], report.turn.0, report.is_duplicate), ("Done.", 2, false));
    assert_eq!(work.begun(), 2, "each turn ran once");
    assert!(assistant.replay(&"c0".into()).await.unwrap().is_none());
}

#[tokio::test]
async fn recovery_that_is_stopped_lets_the_turns_that_run_end() {
    let (store, work) = (Arc::new(MemoryStore::new()), Work::new(0));
    store_with_open_turns(&*store, limits::RECOVERY_AT_ONCE + 1).await;
    let assistant = assistant(store.clone(), &work);
    let recovering = tokio::spawn({
        let assistant = assistant.clone();
        async move { assistant.recover().await.unwrap() }
    });
    work.until(limits::RECOVERY_AT_ONCE).await;
    recovering.abort();
    let closing = tokio::spawn(async move { assistant.close(Duration::from_secs(30)).await });
    settle().await;
    assert!(!closing.is_finished());
    work.gate.add_permits(limits::RECOVERY_AT_ONCE);
    closing.await.unwrap();
    for n in 0..=limits::RECOVERY_AT_ONCE {
        assert_eq!(is_answered(&store, n).await, n > 0, "c{n}");
    }
}
