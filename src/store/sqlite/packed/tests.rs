#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use proptest::prelude::*;
use rusqlite::Connection;
use serde_json::{Value, json};

use super::*;
use crate::store::{
    Store, TurnNumber, Version,
    contract::{batch, message, record},
    sqlite::SqliteStore,
};

fn any_record() -> impl Strategy<Value = JournalRecord> {
    let texts = (".{0,12}", ".{0,6}", ".{0,12}", proptest::option::of(".{0,24}"));
    (texts, 0..4_000_000_000_000_000_i64, 0..3_u64).prop_map(|((key, kind, request, outcome), at, build)| {
        JournalRecord {
            key: StepKey::new(key),
            kind: kind.into(),
            request: request.into(),
            outcome: outcome.map(Into::into),
            at: Timestamp::from_micros(at),
            build: u64::MAX - build,
        }
    })
}

/// Lists in lists, as runs of records are, and objects, as in earlier versions; none of them has a whole record.
fn any_body() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![Just(json!(null)), Just(json!(7)), Just(json!("a")), Just(json!({"key": "a"}))];
    leaf.prop_recursive(3, 12, 4, |inner| proptest::collection::vec(inner, 0..5).prop_map(Value::from))
}

proptest! {
    #[test]
    fn what_is_packed_comes_out(records in proptest::collection::vec(any_record(), 1..8), number in 1..9_u64) {
        let id = ConversationId::from("c");
        let row = pack(&id, number, &records).unwrap();
        prop_assert_eq!(unpack(&id, number, &row).unwrap(), records);
        prop_assert_eq!(unpack(&id, number + 1, &row), Err(CodecError::Checksum), "the row of another batch");
    }

    #[test]
    fn a_body_of_another_shape_is_refused(body in any_body()) {
        let id = ConversationId::from("c");
        let row = codec::seal(id.as_str(), 1, &body, 0).unwrap();
        let nothing = |run: &Value| run[0].is_u64() && *run == json!([run[0], []]);
        let empty = body.as_array().is_some_and(|runs| runs.iter().all(nothing));
        prop_assert_eq!(unpack(&id, 1, &row).is_ok(), empty, "{}", body);
    }
}

#[test]
fn names_and_the_build_are_not_repeated() {
    let records = [record("a/0", None), record("b/0", Some("1"))];
    let row = pack(&"c".into(), 1, &records).unwrap();
    let body = String::from_utf8_lossy(&row[codec::HEAD..]);
    assert_eq!(body.matches(&records[0].build.to_string()).count(), 1, "{body}");
    assert!(!body.contains("outcome"), "{body}");
}

#[tokio::test]
async fn the_journal_of_an_earlier_file_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let (file, id, inbound) = (folder.path().join("a.db"), ConversationId::from("c"), message("c", "m1", 1));
    let store = SqliteStore::open(&file, false).unwrap();
    store.accept(inbound.clone()).await.unwrap();
    let mut first = batch(&inbound, TurnNumber(1));
    first.journal = vec![record("a/0", None), record("b/0", Some("1"))];
    store.append(&id, Version(0), first.clone()).await.unwrap();
    drop(store);
    let earlier = codec::seal("c", 1, &first.journal, 0).unwrap();
    let by_hand = Connection::open(&file).unwrap();
    by_hand.execute("UPDATE batches SET journal = ?1", [earlier]).unwrap();
    by_hand.execute_batch("PRAGMA user_version = 5").unwrap();
    let store = SqliteStore::open(&file, false).unwrap();
    assert_eq!(store.turns(&id).await.unwrap()[0].journal, first.journal);
    by_hand.execute("UPDATE batches SET journal = x'0102'", []).unwrap();
    assert_eq!(store.turns(&id).await.unwrap_err().code(), "S0102");
}
