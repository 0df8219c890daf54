//! How much is read from the store when somebody asks for a task.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::BoxFuture;
use segue_engine::{conversation::Event, ids::MessageId, time::Timestamp};

use super::*;
use crate::store::{
    AcceptOutcome, InboxMessage, JournalRecord, MemoryStore, Store, StoreError, StoredConversation, StoredReply,
    StoredTurn, TurnCommit, TurnEvents, TurnNumber, UnfinishedTurn, Version,
};

type Told<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// A store that counts the events it gives away.
#[derive(Default)]
struct Counting {
    inner: MemoryStore,
    events: AtomicUsize,
}

impl Counting {
    fn counted<'a, T: Send + 'a>(&'a self, read: Told<'a, T>, size: fn(&T) -> usize) -> Told<'a, T> {
        Box::pin(async move {
            let read = read.await?;
            self.events.fetch_add(size(&read), Ordering::SeqCst);
            Ok(read)
        })
    }
}

impl Store for Counting {
    fn load<'a>(&'a self, id: &'a ConversationId) -> Told<'a, StoredConversation> {
        self.counted(self.inner.load(id), |stored| stored.tail.len())
    }
    fn turns<'a>(&'a self, id: &'a ConversationId) -> Told<'a, Vec<StoredTurn>> {
        self.counted(self.inner.turns(id), |turns| turns.iter().map(|turn| turn.events.len()).sum())
    }
    fn latest_turns<'a>(
        &'a self,
        id: &'a ConversationId,
        before: Option<Version>,
        most: usize,
    ) -> Told<'a, Vec<TurnEvents>> {
        let read = self.inner.latest_turns(id, before, most);
        self.counted(read, |turns| turns.iter().map(|turn| turn.events.len()).sum())
    }
    fn latest_events<'a>(&'a self, id: &'a ConversationId, most: usize) -> Told<'a, Vec<Event>> {
        self.counted(self.inner.latest_events(id, most), Vec::len)
    }
    fn accept(&self, inbound: InboxMessage) -> Told<'_, AcceptOutcome> {
        self.inner.accept(inbound)
    }
    fn conversations(&self, limit: usize) -> Told<'_, Vec<ConversationId>> {
        self.inner.conversations(limit)
    }
    fn append<'a>(&'a self, id: &'a ConversationId, after: Version, batch: TurnCommit) -> Told<'a, Version> {
        self.inner.append(id, after, batch)
    }
    fn append_journal<'a>(
        &'a self,
        id: &'a ConversationId,
        turn: TurnNumber,
        records: Vec<JournalRecord>,
    ) -> Told<'a, ()> {
        self.inner.append_journal(id, turn, records)
    }
    fn unfinished_turns<'a>(&'a self, id: &'a ConversationId) -> Told<'a, Vec<UnfinishedTurn>> {
        self.inner.unfinished_turns(id)
    }
    fn conversations_with_work(&self) -> Told<'_, Vec<ConversationId>> {
        self.inner.conversations_with_work()
    }
    fn next_reminders(&self, limit: usize) -> Told<'_, Vec<(ConversationId, Timestamp)>> {
        self.inner.next_reminders(limit)
    }
    fn pending_replies<'a>(&'a self, id: &'a ConversationId) -> Told<'a, Vec<StoredReply>> {
        self.inner.pending_replies(id)
    }
    fn mark_delivered<'a>(&'a self, id: &'a ConversationId, replies: Vec<Arc<str>>) -> Told<'a, ()> {
        self.inner.mark_delivered(id, replies)
    }
    fn erase<'a>(&'a self, id: &'a ConversationId) -> Told<'a, ()> {
        self.inner.erase(id)
    }
    fn purge_expired(&self, now: Timestamp) -> Told<'_, u64> {
        self.inner.purge_expired(now)
    }
    fn replies_to_message<'a>(
        &'a self,
        id: &'a ConversationId,
        message: &'a MessageId,
    ) -> Told<'a, Option<Vec<StoredReply>>> {
        self.inner.replies_to_message(id, message)
    }
    fn text_by_hash<'a>(&'a self, id: &'a ConversationId, hash: &'a str) -> Told<'a, Option<Arc<str>>> {
        self.inner.text_by_hash(id, hash)
    }
}

/// An agent whose context has seen so many tasks, the newest of them, an earlier one, and what its store gave away.
async fn after(earlier: usize) -> (A2aServer, Json, Json, Arc<Counting>) {
    let store = Arc::new(Counting::default());
    let lines: Vec<&str> = (0..=earlier).flat_map(|_| ["start flow greet", "set slot name Ada"]).collect();
    let model = Arc::new(ScriptedLlm::strict(lines));
    let builder = Assistant::builder_from_texts(FILES).unwrap().model(model).store(store.clone());
    let agent = agent_of(&builder.clock(Arc::new(ManualClock::new())).build().unwrap());
    let mut tasks = Vec::new();
    for number in 0..=earlier {
        let mut hello = message(&format!("m{number}"), "hi");
        hello["message"]["contextId"] = json!("c");
        let task = call(&agent, "SendMessage", hello).await["result"]["task"].clone();
        if number < earlier {
            let mut name = message(&format!("n{number}"), "Ada");
            name["message"]["taskId"] = task["id"].clone();
            let done = call(&agent, "SendMessage", name).await;
            assert_eq!(done["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{done}");
        }
        tasks.push(task);
    }
    (agent, tasks.pop().unwrap(), tasks.remove(0), store)
}

#[tokio::test]
async fn a_task_that_is_asked_for_costs_no_more_in_a_long_conversation() {
    for earlier in [10, 60] {
        let (agent, newest, oldest, store) = after(earlier).await;
        let read = || store.events.swap(0, Ordering::SeqCst);
        let all = store.inner.turns(&agent.conversation_of("c")).await.unwrap();
        // What came since the latest snapshot, then the task's own turn and the one before it.
        let longest = all.iter().map(|turn| turn.events.len()).max().unwrap();
        let most = longest * (limits::SNAPSHOT_EVERY as usize + 2);
        let all: usize = all.iter().map(|turn| turn.events.len()).sum();
        read();
        let asked = call(&agent, "GetTask", json!({"id": newest["id"]})).await["result"].clone();
        let got = read();
        assert_eq!(asked["status"]["state"], "TASK_STATE_INPUT_REQUIRED");
        assert_eq!(asked["history"].as_array().map(Vec::len), Some(1), "{asked}");
        let body = json!({"jsonrpc": "2.0", "id": 2, "method": "SubscribeToTask", "params": {"id": newest["id"]}});
        let (_, stream) = ask(&agent, "POST", "/a2a", &[], &body.to_string()).await;
        assert!(stream.contains("INPUT_REQUIRED"), "{stream}");
        let resubscribed = read();
        // What came in between does not change how an early one is told.
        let early = call(&agent, "GetTask", json!({"id": oldest["id"]})).await["result"].clone();
        assert_eq!(
            (&early["status"]["state"], early["history"].as_array().map(Vec::len)),
            (&json!("TASK_STATE_COMPLETED"), Some(3))
        );
        assert!(read() >= all);
        assert!(got <= most && got < all / 3, "{got} of {all} events, at most {most}");
        assert_eq!(got, resubscribed);
    }
}
