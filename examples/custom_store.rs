//! A store written in Rust. This one keeps everything where another store keeps it and writes down each commit, as an audit
//! would; a store of its own kind makes the same promises, and the suite `segue::store::contract` (feature `testing`) tells
//! whether it keeps them.
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

type Answer<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// Writes down what is committed, after it was.
#[derive(Default)]
struct Audited {
    inner: MemoryStore,
    book: Mutex<Vec<String>>,
}

impl Store for Audited {
    /// One transaction per turn: all of the batch or nothing, and only if nobody else appended.
    fn append<'a>(&'a self, id: &'a ConversationId, after: Version, batch: TurnCommit) -> Answer<'a, Version> {
        Box::pin(async move {
            let line =
                format!("{id}: turn {}, {} events, {} replies", batch.turn.0, batch.events.len(), batch.replies.len());
            let version = self.inner.append(id, after, batch).await?;
            self.book.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(line);
            Ok(version)
        })
    }
    fn accept(&self, inbound: InboxMessage) -> Answer<'_, AcceptOutcome> {
        self.inner.accept(inbound)
    }
    fn load<'a>(&'a self, id: &'a ConversationId) -> Answer<'a, StoredConversation> {
        self.inner.load(id)
    }
    fn append_journal<'a>(
        &'a self,
        id: &'a ConversationId,
        turn: TurnNumber,
        records: Vec<JournalRecord>,
    ) -> Answer<'a, ()> {
        self.inner.append_journal(id, turn, records)
    }
    fn unfinished_turns<'a>(&'a self, id: &'a ConversationId) -> Answer<'a, Vec<UnfinishedTurn>> {
        self.inner.unfinished_turns(id)
    }
    fn conversations_with_work(&self) -> Answer<'_, Vec<ConversationId>> {
        self.inner.conversations_with_work()
    }
    fn next_reminders(&self, limit: usize) -> Answer<'_, Vec<(ConversationId, Timestamp)>> {
        self.inner.next_reminders(limit)
    }
    fn pending_replies<'a>(&'a self, id: &'a ConversationId) -> Answer<'a, Vec<StoredReply>> {
        self.inner.pending_replies(id)
    }
    fn mark_delivered<'a>(&'a self, id: &'a ConversationId, replies: Vec<Arc<str>>) -> Answer<'a, ()> {
        self.inner.mark_delivered(id, replies)
    }
    fn turns<'a>(&'a self, id: &'a ConversationId) -> Answer<'a, Vec<StoredTurn>> {
        self.inner.turns(id)
    }
    fn conversations(&self, limit: usize) -> Answer<'_, Vec<ConversationId>> {
        self.inner.conversations(limit)
    }
    fn erase<'a>(&'a self, id: &'a ConversationId) -> Answer<'a, ()> {
        self.inner.erase(id)
    }
    fn purge_expired(&self, now: Timestamp) -> Answer<'_, u64> {
        self.inner.purge_expired(now)
    }
    fn replies_to_message<'a>(
        &'a self,
        id: &'a ConversationId,
        message: &'a MessageId,
    ) -> Answer<'a, Option<Vec<StoredReply>>> {
        self.inner.replies_to_message(id, message)
    }
    fn text_by_hash<'a>(&'a self, id: &'a ConversationId, hash: &'a str) -> Answer<'a, Option<Arc<str>>> {
        self.inner.text_by_hash(id, hash)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/projects/desk");
    let store = Arc::new(Audited::default());
    let assistant = Assistant::builder(folder)?.store(store.clone()).build()?;

    for message in ["hello", "I am Ada"] {
        assistant.say("ada", message).await?;
    }
    // The record is complete: the conversation can be walked again, and every event comes out the same.
    assert!(assistant.replay(&"ada".into()).await?.is_none());
    let book = store.book.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    assert_eq!(book.len(), 2);
    assert!(book.first().is_some_and(|line| line.starts_with("ada: turn 1, ")), "{book:?}");
    Ok(())
}
