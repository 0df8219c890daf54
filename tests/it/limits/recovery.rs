//! Recovery of the open turns of an earlier process: while the server runs, a few at once, the most recently active conversations first.

use segue::{
    MemoryStore, Store,
    ids::{ConversationId, MessageId},
    limits,
    store::{AcceptOutcome, InboxMessage},
};
use segue_engine::{conversation::UserMessage, time::Timestamp};

use super::*;

/// A stored message without a reply.
fn open_message(conversation: &str, second: i64) -> InboxMessage {
    InboxMessage {
        tenant: "".into(),
        account: "".into(),
        conversation: conversation.into(),
        message: UserMessage {
            via: "".into(),
            holds_writes: false,
            before_question: false,
            text: "work".into(),
            message_id: MessageId::from(format!("{conversation}-m")),
            input_channel: "test".into(),
            metadata: Default::default(),
        },
        at: Timestamp::from_micros(second * 1_000_000),
        seed: 1,
    }
}

/// Stores an open turn in each of so many conversations. `c0` is the oldest.
pub(super) async fn store_with_open_turns(store: &dyn Store, count: usize) {
    for n in 0..count {
        let accepted = store.accept(open_message(&format!("c{n}"), n as i64 + 1)).await.unwrap();
        assert!(matches!(accepted, AcceptOutcome::New(_)));
    }
}

fn assistant(store: Arc<dyn Store>, work: &Arc<BlockingAction>) -> Assistant {
    let builder = builder("").action("action_work", work.clone()).store(store);
    builder.clock(Arc::new(ManualClock::new())).build().unwrap()
}

async fn is_answered(store: &MemoryStore, n: usize) -> bool {
    store.unfinished_turns(&ConversationId::from(format!("c{n}"))).await.unwrap().is_empty()
}

#[tokio::test]
async fn recovery_runs_a_few_turns_at_once_the_latest_conversations_first() {
    let (store, work) = (Arc::new(MemoryStore::new()), BlockingAction::new(0));
    let count = 3 * limits::RECOVERY_AT_ONCE;
    store_with_open_turns(&*store, count).await;
    let assistant = assistant(store.clone(), &work);
    let recovering = tokio::spawn({
        let assistant = assistant.clone();
        async move { assistant.recover().await.unwrap() }
    });
    work.wait_until_started(limits::RECOVERY_AT_ONCE).await;
    run_other_tasks().await;
    assert_eq!(work.started(), limits::RECOVERY_AT_ONCE);
    assert_eq!(assistant.recovering(), count);
    work.permits.add_permits(1);
    work.wait_until_started(limits::RECOVERY_AT_ONCE + 1).await;
    run_other_tasks().await;
    assert!(is_answered(&store, count - 1).await, "the most recently active conversation is first");
    assert!(!is_answered(&store, 0).await);
    work.permits.add_permits(count);
    assert_eq!(recovering.await.unwrap(), count);
    assert_eq!(assistant.recovering(), 0);
}

#[tokio::test]
async fn message_recovers_the_open_turn_of_its_conversation_at_once() {
    let (store, work) = (Arc::new(MemoryStore::new()), BlockingAction::new(0));
    store_with_open_turns(&*store, limits::RECOVERY_AT_ONCE + 1).await;
    let assistant = assistant(store.clone(), &work);
    let recovering = tokio::spawn({
        let assistant = assistant.clone();
        async move { assistant.recover().await.unwrap() }
    });
    // The oldest conversation still waits for its recovery; a new message does not wait for it.
    work.wait_until_started(limits::RECOVERY_AT_ONCE).await;
    let reply = tokio::spawn(say(&assistant, "c0", "work"));
    work.wait_until_started(limits::RECOVERY_AT_ONCE + 1).await;
    work.permits.add_permits(2 * limits::RECOVERY_AT_ONCE + 2);
    assert_eq!(texts(&reply.await.unwrap().unwrap())[0], "Done.");
    recovering.await.unwrap();
    assert_eq!(work.started(), limits::RECOVERY_AT_ONCE + 2, "each turn ran once");
}

#[tokio::test]
async fn message_during_the_recovery_of_its_conversation_runs_once() {
    let (store, work) = (Arc::new(MemoryStore::new()), BlockingAction::new(0));
    store_with_open_turns(&*store, 1).await;
    let assistant = assistant(store.clone(), &work);
    let recovering = tokio::spawn({
        let assistant = assistant.clone();
        async move { assistant.recover().await.unwrap() }
    });
    work.wait_until_started(1).await;
    let reply = tokio::spawn(say(&assistant, "c0", "work"));
    run_other_tasks().await;
    work.permits.add_permits(3);
    assert_eq!(recovering.await.unwrap(), 1);
    let report = reply.await.unwrap().unwrap();
    assert_eq!((texts(&report)[0], report.turn.0, report.is_duplicate), ("Done.", 2, false));
    assert_eq!(work.started(), 2, "each turn ran once");
    assert!(assistant.replay(&"c0".into()).await.unwrap().is_none());
}

#[tokio::test]
async fn stopped_recovery_finishes_its_running_turns() {
    let (store, work) = (Arc::new(MemoryStore::new()), BlockingAction::new(0));
    store_with_open_turns(&*store, limits::RECOVERY_AT_ONCE + 1).await;
    let assistant = assistant(store.clone(), &work);
    let recovering = tokio::spawn({
        let assistant = assistant.clone();
        async move { assistant.recover().await.unwrap() }
    });
    work.wait_until_started(limits::RECOVERY_AT_ONCE).await;
    recovering.abort();
    let closing = tokio::spawn(async move { assistant.close(Duration::from_secs(30)).await });
    run_other_tasks().await;
    assert!(!closing.is_finished());
    work.permits.add_permits(limits::RECOVERY_AT_ONCE);
    closing.await.unwrap();
    for n in 0..=limits::RECOVERY_AT_ONCE {
        assert_eq!(is_answered(&store, n).await, n > 0, "c{n}");
    }
}
