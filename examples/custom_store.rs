//! A custom store in Rust. This one wraps another store and records each commit in an audit log. The tests of
//! `segue::store::contract` (feature `testing`) check whether a store keeps the guarantees of `Store`.
//!
//! `cargo run --example custom_store`

use std::{
    error::Error,
    sync::{Arc, Mutex},
};

use segue::{
    BoxFuture, ConversationId, MemoryStore, Store, StoreError, Timestamp,
    ids::MessageId,
    prelude::*,
    store::{
        AcceptOutcome, InboxMessage, JournalRecord, StoredConversation, StoredReply, StoredTurn, TurnCommit,
        TurnNumber, UnfinishedTurn, Version,
    },
};

type StoreFuture<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// A store with an audit log.
#[derive(Default)]
struct AuditedStore {
    inner: MemoryStore,
    log: Mutex<Vec<String>>,
}

impl Store for AuditedStore {
    /// One transaction per turn: it stores all of the batch or nothing, and only if the conversation still has the version `after`.
    fn append<'a>(&'a self, id: &'a ConversationId, after: Version, batch: TurnCommit) -> StoreFuture<'a, Version> {
        Box::pin(async move {
            let line =
                format!("{id}: turn {}, {} events, {} replies", batch.turn.0, batch.events.len(), batch.replies.len());
            let version = self.inner.append(id, after, batch).await?;
            self.log.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(line);
            Ok(version)
        })
    }
    fn accept(&self, inbound: InboxMessage) -> StoreFuture<'_, AcceptOutcome> {
        self.inner.accept(inbound)
    }
    fn load<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, StoredConversation> {
        self.inner.load(id)
    }
    fn append_journal<'a>(
        &'a self,
        id: &'a ConversationId,
        turn: TurnNumber,
        records: Vec<JournalRecord>,
    ) -> StoreFuture<'a, ()> {
        self.inner.append_journal(id, turn, records)
    }
    fn unfinished_turns<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<UnfinishedTurn>> {
        self.inner.unfinished_turns(id)
    }
    fn conversations_with_work(&self) -> StoreFuture<'_, Vec<ConversationId>> {
        self.inner.conversations_with_work()
    }
    fn next_reminders(&self, limit: usize) -> StoreFuture<'_, Vec<(ConversationId, Timestamp)>> {
        self.inner.next_reminders(limit)
    }
    fn pending_replies<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<StoredReply>> {
        self.inner.pending_replies(id)
    }
    fn mark_delivered<'a>(&'a self, id: &'a ConversationId, replies: Vec<Arc<str>>) -> StoreFuture<'a, ()> {
        self.inner.mark_delivered(id, replies)
    }
    fn turns<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<StoredTurn>> {
        self.inner.turns(id)
    }
    fn conversations(&self, limit: usize) -> StoreFuture<'_, Vec<ConversationId>> {
        self.inner.conversations(limit)
    }
    fn erase<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, ()> {
        self.inner.erase(id)
    }
    fn purge_expired(&self, now: Timestamp) -> StoreFuture<'_, u64> {
        self.inner.purge_expired(now)
    }
    fn replies_to_message<'a>(
        &'a self,
        id: &'a ConversationId,
        message: &'a MessageId,
    ) -> StoreFuture<'a, Option<Vec<StoredReply>>> {
        self.inner.replies_to_message(id, message)
    }
    fn text_by_hash<'a>(&'a self, id: &'a ConversationId, hash: &'a str) -> StoreFuture<'a, Option<Arc<str>>> {
        self.inner.text_by_hash(id, hash)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/projects/rust_examples");
    let store = Arc::new(AuditedStore::default());
    let assistant = Assistant::builder(folder)?.store(store.clone()).build()?;

    for message in ["hello", "I am Ada"] {
        assistant.say("ada", message).await?;
    }
    // The conversation is complete: a replay gives the same events.
    assert!(assistant.replay(&"ada".into()).await?.is_none());
    let log = store.log.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    assert_eq!(log.len(), 2);
    assert!(log.first().is_some_and(|line| line.starts_with("ada: turn 1, ")), "{log:?}");
    Ok(())
}
