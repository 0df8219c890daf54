//! A store written in Rust. This one wraps another store and writes each commit to an audit log. A store that does not wrap another one
//! implements `Store`; the contract suite `segue::store::contract` (feature `testing`) checks any store.
//!
//! `cargo run --example custom_store`

use std::{
    error::Error,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use segue::{
    ConversationId, MemoryStore, Store, StoreError,
    prelude::*,
    store::{ForwardingStore, TurnCommit, Version},
};

/// Forwards all calls to a store in memory, and writes a line for each commit that succeeds.
#[derive(Default)]
struct AuditedStore {
    inner: MemoryStore,
    log: Mutex<Vec<String>>,
}

#[async_trait]
impl ForwardingStore for AuditedStore {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }
    async fn append(&self, id: &ConversationId, after: Version, batch: TurnCommit) -> Result<Version, StoreError> {
        let line =
            format!("{id}: turn {}, {} events, {} replies", batch.turn.0, batch.events.len(), batch.replies.len());
        let version = self.inner.append(id, after, batch).await?;
        self.log.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(line);
        Ok(version)
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
    // The stored conversation is complete: a replay gives the same events.
    assert!(assistant.replay(&"ada".into()).await?.is_none());
    let log = store.log.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    assert_eq!(log.len(), 2);
    assert!(log.first().is_some_and(|line| line.starts_with("ada: turn 1, ")), "{log:?}");
    Ok(())
}
