//! The number of events that are read from the store to answer a request for a task.

use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use segue_engine::conversation::Event;

use super::*;
use crate::store::{
    ForwardingStore, MemoryStore, Store, StoreError, StoredConversation, StoredTurn, TurnEvents, Version,
};

/// A store that counts the events that are read from it.
#[derive(Default)]
struct CountingStore {
    inner: MemoryStore,
    events_read: AtomicUsize,
}

impl CountingStore {
    fn counted<T>(&self, read: Result<T, StoreError>, size: fn(&T) -> usize) -> Result<T, StoreError> {
        let read = read?;
        self.events_read.fetch_add(size(&read), Ordering::SeqCst);
        Ok(read)
    }
}

#[async_trait]
impl ForwardingStore for CountingStore {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }
    async fn load(&self, id: &ConversationId) -> Result<StoredConversation, StoreError> {
        self.counted(self.inner.load(id).await, |stored| stored.tail.len())
    }
    async fn turns(&self, id: &ConversationId) -> Result<Vec<StoredTurn>, StoreError> {
        self.counted(self.inner.turns(id).await, |turns| turns.iter().map(|turn| turn.events.len()).sum())
    }
    async fn latest_turns(
        &self,
        id: &ConversationId,
        before: Option<Version>,
        max: usize,
    ) -> Result<Vec<TurnEvents>, StoreError> {
        let read = self.inner.latest_turns(id, before, max).await;
        self.counted(read, |turns| turns.iter().map(|turn| turn.events.len()).sum())
    }
    async fn latest_events(&self, id: &ConversationId, max: usize) -> Result<Vec<Event>, StoreError> {
        self.counted(self.inner.latest_events(id, max).await, Vec::len)
    }
}

/// A server with a context in which one task waits after `earlier` completed ones: the server, the newest and the oldest task, and the
/// store.
async fn server_with_tasks(earlier: usize) -> (A2aServer, Json, Json, Arc<CountingStore>) {
    let store = Arc::new(CountingStore::default());
    let replies: Vec<&str> = (0..=earlier).flat_map(|_| ["start flow greet", "set slot name Ada"]).collect();
    let model = Arc::new(ScriptedLlm::strict(replies));
    let builder = Assistant::builder_from_texts(FILES).unwrap().model(model).store(store.clone());
    let server = server_of(&builder.clock(Arc::new(ManualClock::new())).build().unwrap());
    let mut tasks = Vec::new();
    for number in 0..=earlier {
        let mut hello = message(&format!("m{number}"), "hi");
        hello["message"]["contextId"] = json!("c");
        let task = call(&server, "SendMessage", hello).await["result"]["task"].clone();
        if number < earlier {
            let mut name = message(&format!("n{number}"), "Ada");
            name["message"]["taskId"] = task["id"].clone();
            let done = call(&server, "SendMessage", name).await;
            assert_eq!(done["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{done}");
        }
        tasks.push(task);
    }
    (server, tasks.pop().unwrap(), tasks.remove(0), store)
}

#[tokio::test]
async fn reading_the_newest_task_does_not_cost_more_in_a_long_conversation() {
    for earlier in [10, 60] {
        let (server, newest, oldest, store) = server_with_tasks(earlier).await;
        let take_count = || store.events_read.swap(0, Ordering::SeqCst);
        let all = store.inner.turns(&server.conversation_id("c")).await.unwrap();
        // The events since the latest snapshot, then the task's own turn and the one before it.
        let longest = all.iter().map(|turn| turn.events.len()).max().unwrap();
        let max = longest * (limits::SNAPSHOT_EVERY as usize + 2);
        let all: usize = all.iter().map(|turn| turn.events.len()).sum();
        take_count();
        let task = call(&server, "GetTask", json!({"id": newest["id"]})).await["result"].clone();
        let count = take_count();
        assert_eq!(task["status"]["state"], "TASK_STATE_INPUT_REQUIRED");
        assert_eq!(task["history"].as_array().map(Vec::len), Some(1), "{task}");
        let body = json!({"jsonrpc": "2.0", "id": 2, "method": "SubscribeToTask", "params": {"id": newest["id"]}});
        let (_, stream) = request(&server, "POST", "/a2a", &[], &body.to_string()).await;
        assert!(stream.contains("INPUT_REQUIRED"), "{stream}");
        let count_of_subscription = take_count();
        // The tasks in between do not change the oldest one.
        let first = call(&server, "GetTask", json!({"id": oldest["id"]})).await["result"].clone();
        assert_eq!(
            (&first["status"]["state"], first["history"].as_array().map(Vec::len)),
            (&json!("TASK_STATE_COMPLETED"), Some(3))
        );
        assert!(take_count() >= all);
        assert!(count <= max && count < all / 3, "{count} of {all} events, at most {max}");
        assert_eq!(count, count_of_subscription);
    }
}
