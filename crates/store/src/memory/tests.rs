#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use super::*;
use crate::contract;

#[tokio::test]
async fn fulfils_the_store_contract() {
    contract::check(|| Arc::new(MemoryStore::new())).await;
}

#[tokio::test]
async fn a_corrupt_record_affects_only_its_conversation() {
    let store = MemoryStore::new();
    contract::complete_turn(&store, "a", "m", 1).await;
    contract::complete_turn(&store, "b", "m", 1).await;
    store.corrupt(&"a".into());
    let error = store.load(&"a".into()).await.unwrap_err();
    assert_eq!(error.code(), "S0102", "{error}");
    assert_eq!(store.load(&"b".into()).await.unwrap().tail.len(), 2);
}

#[tokio::test]
async fn only_the_latest_turns_keep_journals_and_traces() {
    let store = MemoryStore::new();
    for n in 0..=limits::MEMORY_JOURNALS {
        let id = format!("c{n}");
        let inbound = contract::message(&id, "m", 1);
        store.accept(inbound.clone()).await.unwrap();
        let batch = TurnCommit { trace: Some("{}".to_owned()), ..contract::turn_commit(&inbound, TurnNumber(1)) };
        store.append(&id.as_str().into(), Version(0), batch).await.unwrap();
    }
    assert_eq!(store.turns(&"c0".into()).await.unwrap()[0].trace, None);
    assert!(store.turns(&"c1".into()).await.unwrap()[0].trace.is_some());
}

#[tokio::test]
async fn the_list_of_conversations_is_bounded() {
    let store = MemoryStore::new();
    for n in 0..=limits::CONVERSATIONS_LISTED {
        store.accept(contract::message(&format!("c{n}"), "m", 1)).await.unwrap();
    }
    assert_eq!(store.conversations(usize::MAX).await.unwrap().len(), limits::CONVERSATIONS_LISTED);
}

#[tokio::test]
async fn the_oldest_idle_conversations_are_evicted_at_the_limit() {
    let store = MemoryStore::new();
    store.accept(contract::message("open", "m", 1)).await.unwrap();
    for n in 0..limits::MEMORY_CONVERSATIONS {
        store.append(&format!("c{n}").as_str().into(), Version(0), TurnCommit::default()).await.unwrap();
    }
    let version = async |id: &str| store.load(&id.into()).await.unwrap().version;
    assert_eq!(
        (version("c0").await, store.lock().conversations.len()),
        (Version(0), limits::MEMORY_CONVERSATIONS * 9 / 10 + 1)
    );
    assert_eq!(version(&format!("c{}", limits::MEMORY_CONVERSATIONS - 1)).await, Version(1));
    assert_eq!(store.unfinished_turns(&"open".into()).await.unwrap().len(), 1, "a turn that is open is not idle");
}
