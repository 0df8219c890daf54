//! `tests/stores/schema-8.sqlite` was written by the last version with schema 8: `anna`, `bert` and `carl` by a server
//! on the project `tests/projects/kills`, which was killed while it answered `carl`; the others through the methods of
//! the store.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::fs;

use tempfile::TempDir;

use super::*;
use crate::{
    AcceptOutcome, Store, StoredTurn, Version, announced_replies,
    contract::{complete_turn, message, record, turn_with_two_replies},
    runs::{self, RunCounts},
    sqlite::SqliteStore,
};

/// A copy of the file in a folder of its own.
struct OldStore(TempDir);

impl OldStore {
    fn new() -> Self {
        let old = Self(tempfile::tempdir().unwrap());
        let from = format!("{}/tests/stores/schema-8.sqlite", env!("CARGO_MANIFEST_DIR"));
        fs::copy(&from, old.path()).unwrap();
        fs::copy(format!("{from}-speaking"), announcements_path(&old.path())).unwrap();
        old
    }
    fn path(&self) -> PathBuf {
        self.0.path().join("a.db")
    }
    fn by_hand(&self, sql: &str) {
        Connection::open(self.path()).unwrap().execute_batch(sql).unwrap();
    }
    fn open(&self) -> SqliteStore {
        SqliteStore::open(&self.path(), false).unwrap()
    }
    fn files(&self) -> Vec<String> {
        let names = fs::read_dir(self.0.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }
}

fn announced(journal: &[JournalRecord]) -> Vec<&str> {
    announced_replies(journal).map(|id| &**id).collect()
}

/// The journal of a turn by step and outcome, sorted.
fn steps(turn: &StoredTurn) -> Vec<(&str, Option<&str>)> {
    let mut steps: Vec<_> =
        turn.journal.iter().map(|record| (record.key.as_str(), record.outcome.as_deref())).collect();
    steps.sort_unstable();
    steps
}

/// Checks the conversations that were written through the methods of the store.
async fn assert_dora_and_emil(store: &SqliteStore) {
    let id = ConversationId::from("dora");
    let turns = store.turns(&id).await.unwrap();
    for (n, turn) in (1..).zip(&turns) {
        let inbound = message("dora", &format!("m{n}"), 1_790_000_000 + n);
        assert_eq!(turn.inbound, inbound);
        assert_eq!(steps(turn), [("a", Some("1")), ("b", Some("{\"b\":2}")), ("c", Some("3")), ("d", Some("4"))]);
        assert_eq!(turn.trace.as_deref(), Some(&*format!("{{\"turn\":{n}}}")));
    }
    let third = message("dora", "m3", 1_790_000_003);
    let third = turn_with_two_replies(&third, TurnNumber(3));
    assert_eq!((turns.len(), &turns[2].events, &turns[2].replies), (3, &third.events, &third.replies));
    assert_eq!(&*turns[1].replies[0].id, "dora-2");
    let stored = store.load(&id).await.unwrap();
    assert_eq!((stored.version, &stored.tail), (Version(3), &third.events), "the snapshot is there");
    assert_eq!(stored.snapshot.unwrap().id, id);
    let waiting: Vec<_> = store.pending_replies(&id).await.unwrap().into_iter().map(|reply| reply.id).collect();
    assert_eq!(waiting.iter().map(|id| &**id).collect::<Vec<_>>(), ["dora-2", "3/r1"]);
    assert_eq!(store.private_text(&id, "token").await.unwrap().as_deref(), Some("a private text"));
    assert_eq!(store.text_by_hash(&id, "h").await.unwrap().as_deref(), Some("a prompt"));
    assert_eq!(store.next_reminders(9).await.unwrap(), [(id.clone(), Timestamp::from_micros(1_990_000_000_000_000))]);
    let again = store.accept(message("dora", "m2", 1_790_000_500)).await.unwrap();
    assert!(matches!(again, AcceptOutcome::Answered(TurnNumber(2), _)), "{again:?}");

    let id = ConversationId::from("emil");
    assert_eq!(store.load(&id).await.unwrap().version, Version(1));
    let open = store.unfinished_turns(&id).await.unwrap();
    assert_eq!(open.iter().map(|open| open.turn.0).collect::<Vec<_>>(), [2, 3]);
    assert_eq!(open[0].inbound.message.metadata["k"]["v"][0], 1);
    assert_eq!((&*open[0].inbound.tenant, &*open[0].inbound.account), ("t", "acc"));
    let steps = open[0].journal.iter().filter(|record| *record.kind == *"tool");
    assert_eq!(steps.cloned().collect::<Vec<_>>(), [record("a", Some("1")), record("b", None)]);
    assert_eq!(open[1].journal, []);
    let begun = store.append_journal(&id, TurnNumber(2), vec![record("b", None)]).await.unwrap_err();
    assert_eq!(begun.code(), "S0108", "the intent is known");
}

#[tokio::test]
async fn a_file_of_schema_8_is_migrated() {
    let old = OldStore::new();
    let store = old.open();
    assert_dora_and_emil(&store).await;
    let open = store.unfinished_turns(&"emil".into()).await.unwrap();
    assert_eq!(announced(&open[0].journal), ["2/r0", "2/r1"]);
    let open = store.unfinished_turns(&"carl".into()).await.unwrap();
    assert_eq!((open.len(), announced(&open[0].journal).len()), (1, 1), "the server died after the first words");
    for (id, turns) in [("anna", 2), ("bert", 2), ("carl", 1)] {
        let stored = store.turns(&id.into()).await.unwrap();
        assert_eq!(stored.len(), turns, "{id}");
        assert!(stored[0].journal.iter().all(|record| record.outcome.is_some()), "{id}");
        complete_turn(&store, id, "m9", 1_890_000_000).await;
    }
    assert!(store.conversations(99).await.unwrap().iter().all(|id| *id != "fred"), "it was erased");
    complete_turn(&store, "gina", "m1", 1_890_000_001).await;
    drop(store);
    assert_eq!(old.files(), ["a.db", "a.db.lock", "a.db.schema-8", "a.db.schema-8-speaking"]);
    let file = Connection::open(old.path()).unwrap();
    let left = "SELECT count(*) FROM sqlite_schema WHERE name LIKE 'old%'";
    assert_eq!(file.query_row(left, [], |row| row.get(0)), Ok(0));
    // The copy has the old content: it can be migrated itself.
    assert_dora_and_emil(&SqliteStore::open(&old.0.path().join("a.db.schema-8"), false).unwrap()).await;
}

/// As after a process that was killed between two transactions.
#[tokio::test]
async fn an_interrupted_migration_resumes() {
    for done in 0..8 {
        let old = OldStore::new();
        let mut file = Connection::open(old.path()).unwrap();
        copy_before_migration(&file, &old.path(), 8, |_| Ok(u64::MAX)).unwrap();
        let transaction = file.transaction().unwrap();
        start_migration(&transaction, 8, &announcements_path(&old.path())).unwrap();
        transaction.commit().unwrap();
        let tables: [(&str, &str, MoveRow); 2] = [("old_journal", "id", put_records), ("old_inbox", "id", put_message)];
        for (table, key, put) in tables.iter().cycle().take(done) {
            move_part(&mut file, table, key, *put).unwrap();
        }
        assert_eq!(schema::version(&file), Ok(SCHEMA_VERSION), "an earlier version refuses it already");
        assert!(!schema::is_current(&file, &old.path()).unwrap());
        drop(file);
        // A reader completes the migration first.
        let view = SqliteStore::open_read_only(&old.path()).unwrap();
        assert_eq!(view.conversations(99).await.unwrap().len(), 5, "{done}");
        assert_dora_and_emil(&old.open()).await;
    }
}

#[tokio::test]
async fn only_the_lock_holder_migrates() {
    let old = OldStore::new();
    let _owner = file_lock::FileLock::take(&old.path()).unwrap();
    assert_eq!(SqliteStore::open_read_only(&old.path()).err().unwrap().code(), "S0107");
    assert_eq!(schema::version(&Connection::open(old.path()).unwrap()), Ok(8));
}

#[tokio::test]
async fn too_little_disk_space_prevents_the_migration() {
    let old = OldStore::new();
    let (before, held) = (old.files(), fs::read(old.path()).unwrap());
    let mut file = Connection::open(old.path()).unwrap();
    // Less than the reserve of 32 MiB plus twice the size of the file.
    let error = migrate_with(&mut file, &old.path(), |_| Ok(32 << 20)).unwrap_err();
    assert!(error.to_string().contains("needs 33 MiB") && error.to_string().contains("there are 32 MiB"), "{error}");
    drop(file);
    assert_eq!(old.files(), before, "no copy is begun");
    assert!(fs::read(old.path()).unwrap() == held, "the file is as it was");
    // With enough space it is migrated.
    assert_dora_and_emil(&old.open()).await;
}

#[test]
fn required_disk_space_grows_with_the_file() {
    let error = check_free_space(Path::new("a.db"), 100 << 20, 231 << 20).unwrap_err();
    assert!(error.to_string().contains("232 MiB") && error.to_string().contains("231 MiB"), "{error}");
    check_free_space(Path::new("a.db"), 100 << 20, 232 << 20).unwrap();
}

#[tokio::test]
async fn corrupt_rows_stay_corrupt_after_the_migration() {
    let old = OldStore::new();
    let of = |id: &str| format!("WHERE conversation = (SELECT number FROM conversations WHERE id = '{id}')");
    let flip =
        |column: &str| format!("{column} = CAST(substr({column}, 1, 40) || x'7e' || substr({column}, 42) AS BLOB)");
    old.by_hand(&format!("UPDATE batches SET {} {} AND version = 1", flip("events"), of("anna")));
    old.by_hand(&format!("UPDATE batches SET replies = x'0102' {} AND version = 2", of("bert")));
    old.by_hand(&format!("UPDATE inbox SET packed = x'5b' {} AND turn = 2", of("carl")));
    old.by_hand(&format!("UPDATE journal SET {} {} AND turn = 2", flip("outcome"), of("emil")));
    old.by_hand(&format!("UPDATE snapshots SET snapshot = x'0102' {}", of("dora")));
    let store = old.open();
    let assert_corrupt = |error: StoreError| assert_eq!(error.code(), "S0102", "{error}");
    assert_corrupt(store.load(&"anna".into()).await.unwrap_err());
    assert_corrupt(store.load(&"bert".into()).await.unwrap_err());
    assert_corrupt(store.unfinished_turns(&"carl".into()).await.unwrap_err());
    assert_corrupt(store.unfinished_turns(&"emil".into()).await.unwrap_err());
    assert_eq!(store.load(&"carl".into()).await.unwrap().version, Version(1));
    let dora = store.load(&"dora".into()).await.unwrap();
    assert_eq!((dora.snapshot.is_none(), dora.tail.len()), (true, 8), "a snapshot is no loss");
    // The rest of the text is readable, and other tools read the other rows.
    let file = Connection::open(old.path()).unwrap();
    let text: String = file.query_row("SELECT events FROM batches WHERE id = 1", [], |row| row.get(0)).unwrap();
    assert!(text.contains("book directly"), "{text}");
    let events: i64 =
        file.query_row("SELECT count(*) FROM events WHERE sender_id = 'dora'", [], |row| row.get(0)).unwrap();
    assert_eq!(events, 8);
}

/// An old row: version byte, checksum, JSON.
fn sealed(id: &str, number: u64, body: &str) -> Vec<u8> {
    let sum = Checksum::new(id).number(number).bytes(body.as_bytes()).finish();
    [&[1], &sum.to_le_bytes()[..], body.as_bytes()].concat()
}

#[tokio::test]
async fn a_file_of_schema_1_is_migrated() {
    let old = OldStore::new();
    let columns = "conversation, turn, step, kind, request, outcome, at, build";
    let emil = "(SELECT number FROM conversations WHERE id = 'emil')";
    old.by_hand(&format!(
        "DROP TABLE journal;
         CREATE TABLE journal (
             conversation INTEGER NOT NULL, turn INTEGER NOT NULL, step TEXT NOT NULL, kind TEXT NOT NULL,
             request TEXT NOT NULL, outcome TEXT, at INTEGER NOT NULL, build INTEGER NOT NULL,
             PRIMARY KEY (conversation, turn, step)
         ) WITHOUT ROWID;
         INSERT INTO journal ({columns})
         VALUES ({emil}, 2, 'a', 'tool', 'hash', '1', 1, -1), ({emil}, 2, 'b', 'tool', 'hash', NULL, 1, -1);
         DROP TABLE timers; DROP TABLE private; PRAGMA user_version = 1"
    ));
    fs::remove_file(announcements_path(&old.path())).unwrap();
    let journal = serde_json::to_string(&[record("a", Some("1")), record("b", None)]).unwrap();
    let file = Connection::open(old.path()).unwrap();
    let dora = "(SELECT number FROM conversations WHERE id = 'dora')";
    let sql = format!("UPDATE batches SET journal = ?1 WHERE conversation = {dora} AND version = 1");
    file.execute(&sql, [sealed("dora", 1, &journal)]).unwrap();
    drop(file);

    let store = old.open();
    let open = store.unfinished_turns(&"emil".into()).await.unwrap();
    assert_eq!(open[0].journal, [record("a", Some("1")), record("b", None)]);
    assert_eq!(store.turns(&"dora".into()).await.unwrap()[0].journal, [record("a", Some("1")), record("b", None)]);
    let (inbound, due) = (message("dora", "m9", 1_890_000_000), Timestamp::from_micros(5));
    assert_eq!(store.accept(inbound.clone()).await.unwrap(), AcceptOutcome::New(TurnNumber(4)));
    let timed = crate::TurnCommit { next_reminder: Some(Some(due)), ..turn_with_two_replies(&inbound, TurnNumber(4)) };
    store.append(&"dora".into(), Version(3), timed).await.unwrap();
    assert_eq!(store.next_reminders(9).await.unwrap(), [("dora".into(), due)]);
    assert!(old.files().contains(&"a.db.schema-1".to_owned()));
}

/// `tests/stores/schema-9.sqlite` is the file of schema 8 after its migration by the last version with schema 9, and a
/// conversation `hans`.
struct Store9(OldStore);

impl Store9 {
    fn new() -> Self {
        let old = Self(OldStore(tempfile::tempdir().unwrap()));
        fs::copy(format!("{}/tests/stores/schema-9.sqlite", env!("CARGO_MANIFEST_DIR")), old.0.path()).unwrap();
        old
    }
}

/// Checks that runs can be stored.
async fn assert_runs(store: &dyn runs::RunStore) {
    store.start_run(runs::contract::new_run("r", &["a"])).await.unwrap();
    assert_eq!(runs::contract::claim_one(store, 2).await.epoch, 1);
}

/// Checks that conversations are complete and that runs can be stored.
async fn assert_conversations_and_runs(store: &SqliteStore) {
    assert_dora_and_emil(store).await;
    assert_eq!(store.load(&"hans".into()).await.unwrap().tail.len(), 2);
    let runs: &dyn runs::RunStore = store;
    assert_eq!(runs.counts(Timestamp::default()).await.unwrap(), RunCounts::default());
    assert_runs(runs).await;
}

#[tokio::test]
async fn a_file_of_schema_9_gets_the_tables_of_runs() {
    let Store9(old) = Store9::new();
    let before = Connection::open(old.path()).unwrap();
    let count = |file: &Connection| -> i64 {
        let sql =
            "SELECT (SELECT count(*) FROM inbox) + (SELECT count(*) FROM batches) + (SELECT count(*) FROM journal)";
        file.query_row(sql, [], |row| row.get(0)).unwrap()
    };
    let rows = count(&before);
    drop(before);
    let store = old.open();
    assert_conversations_and_runs(&store).await;
    complete_turn(&store, "hans", "m2", 1_890_000_001).await;
    drop(store);
    assert_eq!(old.files(), ["a.db", "a.db.lock", "a.db.schema-9"]);
    let copy = Connection::open(old.0.path().join("a.db.schema-9")).unwrap();
    assert_eq!((schema::version(&copy), count(&copy)), (Ok(9), rows), "the copy has the old content");
    let file = Connection::open(old.path()).unwrap();
    assert_eq!(schema::version(&file), Ok(SCHEMA_VERSION));
    assert!(schema::is_current(&file, &old.path()).unwrap());
    // The tables are those of a new file.
    let tables = |file: &Connection| -> Vec<String> {
        let sql = "SELECT type || ' ' || name || ': ' || coalesce(sql, '') FROM sqlite_schema ORDER BY type, name";
        file.prepare(sql).unwrap().query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    let new = old.0.path().join("new.db");
    drop(SqliteStore::open(&new, false).unwrap());
    assert_eq!(tables(&file), tables(&Connection::open(new).unwrap()));
}

/// As after a process that was killed at each step.
#[tokio::test]
async fn an_interrupted_migration_of_schema_9_is_repeated() {
    for step in 0..4 {
        let Store9(old) = Store9::new();
        let mut file = Connection::open(old.path()).unwrap();
        file.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(())).unwrap();
        match step {
            // An incomplete copy.
            0 => fs::write(old.0.path().join("a.db.schema-9.part"), "SQLite").unwrap(),
            _ => drop(copy_before_migration(&file, &old.path(), 9, |_| Ok(u64::MAX)).unwrap()),
        }
        if step >= 2 {
            let transaction = file.transaction().unwrap();
            add_tables(&transaction, 9, &announcements_path(&old.path())).unwrap();
            if step == 2 { transaction.rollback() } else { transaction.commit() }.unwrap();
        }
        assert_eq!(schema::version(&file), Ok(if step == 3 { 10 } else { 9 }));
        drop(file);
        let view = SqliteStore::open_read_only(&old.path()).unwrap();
        assert_eq!(view.conversations(99).await.unwrap().len(), 6, "{step}");
        assert_conversations_and_runs(&old.open()).await;
        assert!(!old.files().contains(&"a.db.schema-9.part".to_owned()), "{step}: {:?}", old.files());
    }
}

/// A file of schema 8 whose migration the last version with schema 9 had begun.
#[tokio::test]
async fn a_migration_that_an_earlier_version_began_is_completed() {
    for done in 0..5 {
        let old = OldStore::new();
        let mut file = Connection::open(old.path()).unwrap();
        let transaction = file.transaction().unwrap();
        start_migration(&transaction, 8, &announcements_path(&old.path())).unwrap();
        for table in ["runs", "run_units", "run_events", "run_checkpoints", "run_journal", "run_blobs", "run_questions"]
        {
            transaction.execute_batch(&format!("DROP TABLE {table}")).unwrap();
        }
        transaction.execute_batch("DROP TABLE run_messages; PRAGMA user_version = 9").unwrap();
        transaction.commit().unwrap();
        for _ in 0..done {
            move_part(&mut file, "old_journal", "id", put_records).unwrap();
        }
        drop(file);
        let store = old.open();
        assert_dora_and_emil(&store).await;
        assert_runs(&store).await;
    }
}

#[tokio::test]
async fn too_little_disk_space_prevents_the_migration_of_schema_9() {
    let Store9(old) = Store9::new();
    let held = fs::read(old.path()).unwrap();
    let mut file = Connection::open(old.path()).unwrap();
    assert_eq!(migrate_with(&mut file, &old.path(), |_| Ok(1 << 20)).unwrap_err().code(), "S0103");
    drop(file);
    assert!(fs::read(old.path()).unwrap() == held, "the file is as it was");
    assert_conversations_and_runs(&old.open()).await;
}
