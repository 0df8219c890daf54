#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod files;

use std::sync::atomic::{AtomicU32, Ordering};

use tempfile::TempDir;

use super::*;
use crate::contract::{self, complete_turn, message, record, turn_commit};

/// A temporary folder.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }
    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join("made").join(name)
    }
    fn open(&self, name: &str) -> SqliteStore {
        SqliteStore::open(&self.path(name), false).unwrap()
    }
    /// A second store that writes to the same file, as if the lock failed.
    fn open_unlocked(&self, name: &str) -> SqliteStore {
        SqliteStore::open_locked(&self.path(name), false, None).unwrap()
    }
    /// Changes rows through another connection.
    fn execute(&self, name: &str, sql: &str) {
        assert!(Connection::open(self.path(name)).unwrap().execute(sql, []).unwrap() > 0, "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fulfils_the_store_contract() {
    let files = Files::new();
    let number = AtomicU32::new(0);
    contract::check(|| {
        let name = format!("{}.db", number.fetch_add(1, Ordering::Relaxed));
        Arc::new(SqliteStore::open(&files.path(&name), name == "0.db").unwrap())
    })
    .await;
}

#[tokio::test]
async fn data_survives_reopening() {
    let files = Files::new();
    let store = files.open("a.db");
    complete_turn(&store, "c", "m1", 1).await;
    store.accept(message("c", "m2", 2)).await.unwrap();
    store.append_journal(&"c".into(), TurnNumber(2), vec![record("a", None)]).await.unwrap();
    drop(store);
    let store = files.open("a.db");
    let id = ConversationId::from("c");
    assert_eq!(store.load(&id).await.unwrap().tail, turn_commit(&message("c", "m1", 1), TurnNumber(1)).events);
    assert_eq!(store.conversations_with_work().await.unwrap(), ["c"]);
    assert_eq!(store.unfinished_turns(&id).await.unwrap()[0].journal, [record("a", None)]);
    assert_eq!(store.pending_replies(&id).await.unwrap().len(), 1);
    assert_eq!(store.accept(message("c", "m2", 2)).await.unwrap(), AcceptOutcome::Running(TurnNumber(2)));
    assert!(matches!(store.accept(message("c", "m1", 2)).await.unwrap(), AcceptOutcome::Answered(..)));
}

#[tokio::test]
async fn two_handles_on_one_file_see_each_others_writes() {
    let files = Files::new();
    let (one, two) = (files.open("a.db"), files.open_unlocked("a.db"));
    for n in 1..=6 {
        let (here, there) = if n % 2 == 0 { (&one, &two) } else { (&two, &one) };
        assert_eq!(complete_turn(here, "c", &format!("m{n}"), n).await, TurnNumber(n as u64));
        assert!(matches!(there.accept(message("c", &format!("m{n}"), n)).await.unwrap(), AcceptOutcome::Answered(..)));
    }
    let inbound = message("c", "m7", 7);
    let AcceptOutcome::New(turn) = one.accept(inbound.clone()).await.unwrap() else { panic!() };
    let id = ConversationId::from("c");
    let (first, second) = tokio::join!(
        one.append(&id, Version(6), turn_commit(&inbound, turn)),
        two.append(&id, Version(6), turn_commit(&inbound, turn)),
    );
    assert!(first.is_ok() != second.is_ok(), "{first:?} {second:?}");
    let error = first.and(second).unwrap_err();
    assert!(matches!(error, StoreError::Conflict { found: Version(7), .. }), "{error}");
}

#[tokio::test]
async fn corrupt_rows_affect_only_their_conversation() {
    let files = Files::new();
    let store = files.open("a.db");
    for id in ["bit", "type", "gap", "swap", "fine"] {
        for n in 1..=2 {
            complete_turn(&store, id, &format!("m{n}"), n).await;
        }
    }
    drop(store);
    let of =
        |id: &str| format!("WHERE conversation = (SELECT number FROM conversations WHERE id = '{id}') AND version = 1");
    let flip = "substr(events, 1, 40) || '~' || substr(events, 42)";
    files.execute("a.db", &format!("UPDATE batches SET events = {flip} {}", of("bit")));
    files.execute("a.db", &format!("UPDATE batches SET events = x'00' {}", of("type")));
    files.execute("a.db", &format!("DELETE FROM batches {}", of("gap")));
    files.execute(
        "a.db",
        &format!(
            "UPDATE batches SET (events, replies, checksum) = (SELECT events, replies, checksum FROM batches {}) {}",
            of("fine"),
            of("swap")
        ),
    );
    let store = files.open("a.db");
    let changed = "table batches, version 1: the checksum does not match";
    let cases = [
        ("bit", changed),
        ("type", "name: events"),
        ("gap", "table batches, version 1: the row is missing"),
        ("swap", changed),
    ];
    for (id, expected) in cases {
        let error = store.load(&id.into()).await.unwrap_err();
        let StoreError::Corrupt { conversation, reason } = &error else { panic!("{id}: {error}") };
        assert_eq!(conversation, id);
        assert!(reason.contains(expected), "{id}: {reason}");
    }
    assert_eq!(store.load(&"fine".into()).await.unwrap().tail.len(), 4);
    complete_turn(&store, "fine", "m3", 3).await;
}

#[tokio::test]
async fn a_corrupt_snapshot_falls_back_to_events() {
    let files = Files::new();
    let store = files.open("a.db");
    let inbound = message("c", "m1", 1);
    store.accept(inbound.clone()).await.unwrap();
    let mut first = turn_commit(&inbound, TurnNumber(1));
    let id = ConversationId::from("c");
    first.snapshot = Some(segue_engine::conversation::Conversation::fold(id.clone(), &first.events));
    store.append(&id, Version(0), first.clone()).await.unwrap();
    files.execute("a.db", "UPDATE snapshots SET snapshot = '{}'");
    let stored = store.load(&id).await.unwrap();
    assert_eq!((stored.snapshot, stored.tail), (None, first.events));
}

#[tokio::test]
async fn a_corrupt_head_fails_only_its_conversation() {
    let files = Files::new();
    let store = files.open("a.db");
    complete_turn(&store, "c", "m1", 1).await;
    files.execute("a.db", "UPDATE conversations SET open = 'x'");
    let (corrupt, fine) = tokio::join!(store.accept(message("c", "m2", 2)), store.accept(message("d", "m1", 2)));
    assert_eq!(corrupt.unwrap_err().code(), "S0102");
    assert_eq!(fine.unwrap(), AcceptOutcome::New(TurnNumber(1)));
}

#[test]
fn files_of_newer_versions_and_other_programs_are_refused() {
    let files = Files::new();
    drop(files.open("a.db"));
    Connection::open(files.path("a.db")).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let refused = SqliteStore::open(&files.path("a.db"), false).err().unwrap();
    assert!(matches!(refused, StoreError::SchemaTooNew { found: 99, known: 10 }), "{refused}");
    Connection::open(files.path("b.db")).unwrap().execute_batch("CREATE TABLE events (id INTEGER)").unwrap();
    let refused = SqliteStore::open(&files.path("b.db"), false).err().unwrap();
    assert!(matches!(refused, StoreError::Unsupported { .. }), "{refused}");
    std::fs::write(files.path("c.db"), "this is not a database".repeat(40)).unwrap();
    assert!(SqliteStore::open(&files.path("c.db"), false).is_err());
}

/// As shown by the `sqlite3` shell.
#[tokio::test]
async fn rows_are_readable_json() {
    let files = Files::new();
    let (store, id, inbound) = (files.open("a.db"), ConversationId::from("c"), message("c", "m1", 1));
    store.accept(inbound.clone()).await.unwrap();
    store.append_journal(&id, TurnNumber(1), vec![record("a", Some("{\"b\":2}"))]).await.unwrap();
    let turn = contract::turn_with_two_replies(&inbound, TurnNumber(1));
    let snapshot = Some(segue_engine::conversation::Conversation::fold(id.clone(), &turn.events));
    store.append(&id, Version(0), TurnCommit { snapshot, ..turn }).await.unwrap();
    let other = Connection::open(files.path("a.db")).unwrap();
    for (sql, expected) in [
        ("SELECT message ->> '$.message.text' FROM inbox", "hello \u{1f600}"),
        ("SELECT message ->> '$.message.message_id' FROM inbox", "m1"),
        ("SELECT events ->> '$[1].text' FROM batches", "one"),
        ("SELECT replies ->> '$[1].reply.text' FROM batches", "two"),
        ("SELECT step || kind || (outcome ->> '$.b') FROM journal", "atool2"),
        ("SELECT snapshot ->> '$.id' FROM snapshots", "c"),
    ] {
        let found: String = other.query_row(sql, [], |row| row.get(0)).unwrap();
        assert_eq!(found, expected, "{sql}");
    }
    let blobs = "SELECT count(*) FROM batches, inbox, snapshots, journal
                 WHERE 'blob' IN (typeof(events), typeof(replies), typeof(message), typeof(snapshot), typeof(outcome))";
    assert_eq!(other.query_row(blobs, [], |row| row.get(0)), Ok(0));
}

#[tokio::test]
async fn corrupt_replies_are_not_returned() {
    let files = Files::new();
    let (store, id, inbound) = (files.open("a.db"), ConversationId::from("c"), message("c", "m1", 1));
    store.accept(inbound.clone()).await.unwrap();
    store.append(&id, Version(0), contract::turn_with_two_replies(&inbound, TurnNumber(1))).await.unwrap();
    files.execute("a.db", "UPDATE batches SET replies = replace(replies, 'one', 'uno')");
    assert_eq!(store.replies_to_message(&id, &"m1".into()).await.unwrap_err().code(), "S0102");
    assert_eq!(store.pending_replies(&id).await.unwrap_err().code(), "S0102");
}

#[tokio::test]
async fn a_checksum_mismatch_names_table_and_key() {
    let files = Files::new();
    let store = files.open("a.db");
    for id in ["message", "step", "fine"] {
        complete_turn(&store, id, "m1", 1).await;
        store.accept(message(id, "m2", 2)).await.unwrap();
        store.append_journal(&id.into(), TurnNumber(2), vec![record("a", Some("1"))]).await.unwrap();
    }
    let of = |id: &str| format!("turn = 2 AND conversation = (SELECT number FROM conversations WHERE id = '{id}')");
    files.execute("a.db", &format!("UPDATE inbox SET message = replace(message, 'm2', 'm3') WHERE {}", of("message")));
    files.execute("a.db", &format!("UPDATE journal SET outcome = '2' WHERE {}", of("step")));
    for (id, row) in [("message", "table inbox, turn 2"), ("step", "table journal, turn 2, step a")] {
        let error = store.unfinished_turns(&id.into()).await.unwrap_err().to_string();
        let expected = format!("the stored data of conversation {id} is corrupt: {row}: the checksum does not match");
        assert_eq!(error, expected);
    }
    assert_eq!(store.unfinished_turns(&"fine".into()).await.unwrap().len(), 1);
    complete_turn(&store, "fine", "m3", 3).await;
}

/// Surviving a power failure is the guarantee of SQLite; this checks that the setting is passed to it.
#[test]
fn the_synchronous_setting_reaches_sqlite() {
    let files = Files::new();
    drop(files.open("a.db"));
    let path = files.path("a.db").display().to_string();
    for (option, expected) in [("", 2), ("?synchronous=full", 2), ("?synchronous=normal", 1)] {
        let location = crate::StoreLocation::parse(&format!("sqlite:{path}{option}")).unwrap();
        let crate::StoreLocation::Sqlite { path, synchronous_full } = location else { panic!("{option}") };
        let connection = schema::open_writer(&path, synchronous_full).unwrap();
        let setting: i64 = connection.query_row("PRAGMA synchronous", [], |row| row.get(0)).unwrap();
        assert_eq!(setting, expected, "{option}");
    }
}

#[tokio::test]
async fn a_corrupt_journal_of_an_open_turn_is_an_error() {
    let files = Files::new();
    let store = files.open("a.db");
    let id = ConversationId::from("c");
    for n in 1..=2 {
        store.accept(message("c", &format!("m{n}"), n)).await.unwrap();
        store.append_journal(&id, TurnNumber(n.unsigned_abs()), vec![record("a", Some("1"))]).await.unwrap();
    }
    // The journal of another turn does not matter.
    for change in ["outcome = x'0102'", "outcome = '2'", "outcome = NULL", "turn = 1"] {
        files.execute("a.db", &format!("UPDATE journal SET {change} WHERE turn = 2"));
        assert_eq!(store.unfinished_turns(&id).await.unwrap_err().code(), "S0102", "{change}");
    }
}

#[tokio::test]
async fn delivery_marks_are_visible_to_later_reads_and_durable() {
    let files = Files::new();
    let store = files.open("a.db");
    complete_turn(&store, "c", "m1", 1).await;
    store.mark_delivered(&"c".into(), vec!["c-1".into()]).await.unwrap();
    assert!(store.conversations_with_work().await.unwrap().is_empty());
    complete_turn(&store, "c", "m2", 2).await;
    store.mark_delivered(&"c".into(), vec!["c-2".into()]).await.unwrap();
    drop(store);
    let other = Connection::open(files.path("a.db")).unwrap();
    assert_eq!(other.query_row("SELECT pending FROM conversations", [], |row| row.get(0)), Ok(String::new()));
}

#[tokio::test]
async fn the_events_view_has_the_rasa_layout() {
    let files = Files::new();
    let store = files.open("a.db");
    complete_turn(&store, "c", "m1", 1).await;
    complete_turn(&store, "d", "m1", 2).await;
    let reader = Connection::open(files.path("a.db")).unwrap();
    let sql =
        "SELECT sender_id, type_name, timestamp, intent_name, action_name, data ->> '$.text' FROM events ORDER BY id";
    let mut statement = reader.prepare(sql).unwrap();
    type DuplicateCheck = (String, String, f64, Option<String>, Option<String>, Option<String>);
    let rows =
        statement.query_map([], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?, r.get(3)?, r.get(4)?, r.get(5)?))).unwrap();
    let found: Vec<DuplicateCheck> = rows.map(Result::unwrap).collect();
    let text = Some("hello \u{1f600}".to_owned());
    let slot = Some("count".to_owned());
    assert_eq!(
        found,
        [
            ("c".into(), "user".into(), 1.0, None, None, text.clone()),
            ("c".into(), "slot".into(), 1.0, None, slot.clone(), None),
            ("d".into(), "user".into(), 2.0, None, None, text),
            ("d".into(), "slot".into(), 2.0, None, slot, None),
        ]
    );
}

/// Includes rows that were replaced or expired before the conversation was erased.
#[tokio::test]
async fn erased_data_is_not_left_in_the_files() {
    let files = Files::new();
    let (store, id) = (files.open("a.db"), ConversationId::from("c"));
    let secret: Arc<str> = "my secret is xyzzyxyzzy".repeat(300).into();
    for n in 1..=2 {
        let mut inbound = message("c", &format!("m{n}"), n);
        inbound.message.text = secret.clone();
        let turn = TurnNumber(n.unsigned_abs());
        store.accept(inbound.clone()).await.unwrap();
        store.append_journal(&id, turn, vec![record("a", Some(&secret))]).await.unwrap();
        let whole = turn_commit(&inbound, turn);
        let whole = TurnCommit {
            snapshot: Some(segue_engine::conversation::Conversation::fold(id.clone(), &whole.events)),
            trace: Some(secret.to_string()),
            texts: vec![crate::StoredText { hash: "h".into(), text: secret.clone() }],
            ..whole
        };
        store.append(&id, Version(turn.0 - 1), whole).await.unwrap();
        store.set_private_text(&id, "p", Some(secret.to_string()), inbound.at).await.unwrap();
    }
    store.purge_expired(Timestamp::from_micros(10_000_000_000_000)).await.unwrap();
    complete_turn(&store, "d", "m1", 1).await;
    store.erase(&id).await.unwrap();
    for file in std::fs::read_dir(files.path("")).unwrap() {
        let path = file.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        assert!(!bytes.windows(10).any(|part| part == b"xyzzyxyzzy"), "{}", path.display());
    }
    assert_eq!(store.load(&"d".into()).await.unwrap().tail.len(), 2);
}

/// A turn that was running when its conversation was erased must not find another one under its number.
#[tokio::test]
async fn conversation_numbers_are_not_reused() {
    let files = Files::new();
    let store = files.open("a.db");
    complete_turn(&store, "c", "m1", 1).await;
    store.erase(&"c".into()).await.unwrap();
    drop(store);
    complete_turn(&files.open("a.db"), "d", "m1", 2).await;
    let other = Connection::open(files.path("a.db")).unwrap();
    assert_eq!(other.query_row("SELECT number FROM conversations", [], |row| row.get(0)), Ok(2));
}

#[tokio::test]
async fn a_write_completes_after_its_future_is_dropped() {
    let files = Files::new();
    let store = files.open("a.db");
    let inbound = message("c", "m1", 1);
    store.accept(inbound.clone()).await.unwrap();
    let id = ConversationId::from("c");
    let mut append = store.append(&id, Version(0), turn_commit(&inbound, TurnNumber(1)));
    // One poll sends it to the writer, which may even complete it within the poll.
    let _ = futures::poll!(&mut append);
    drop(append);
    drop(store);
    assert_eq!(files.open("a.db").load(&id).await.unwrap().version, Version(1));
}

/// Another process may lock the file for a moment. Here the wait is short, to see the final error.
#[tokio::test]
async fn a_locked_file_is_reported_after_the_busy_timeout() {
    let files = Files::new();
    let store = files.open("a.db");
    let path = files.path("a.db");
    let writer = schema::open_writer(&path, false).unwrap();
    for connection in [&writer, &schema::open_reader(&path).unwrap()] {
        let wait: i64 = connection.query_row("PRAGMA busy_timeout", [], |row| row.get(0)).unwrap();
        assert_eq!(u128::try_from(wait).unwrap(), limits::STORE_BUSY.as_millis());
    }
    writer.busy_timeout(std::time::Duration::from_millis(100)).unwrap();
    let (requests, mut waiting) = mpsc::channel(1);
    let thread = std::thread::spawn(move || writer::run(&writer, &FileState::default(), &mut waiting));
    let hurried = SqliteStore {
        requests: Some(requests),
        writer: Some(thread),
        readers: store.readers.clone(),
        _file_lock: None,
    };
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = hurried.accept(message("c", "m", 1)).await.unwrap_err();
    assert!(matches!(&error, StoreError::Unavailable(why) if why.contains("locked")), "{error}");
    other.execute_batch("COMMIT").unwrap();
    assert_eq!(hurried.accept(message("c", "m", 1)).await.unwrap(), AcceptOutcome::New(TurnNumber(1)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_beyond_the_queue_wait_and_complete() {
    let files = Files::new();
    let store = Arc::new(files.open("a.db"));
    // While another connection locks the file, the writer holds one group and the queue fills.
    let other = Connection::open(files.path("a.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let count = limits::STORE_QUEUE + 2 * limits::GROUP_COMMIT_MAX;
    let writes: Vec<_> = (0..count)
        .map(|n| {
            let store = store.clone();
            tokio::spawn(async move { store.accept(message(&format!("c{n}"), "m", 1)).await })
        })
        .collect();
    while store.requests.as_ref().unwrap().capacity() > 0 && !writes.iter().any(|write| write.is_finished()) {
        tokio::task::yield_now().await;
    }
    assert!(writes.iter().all(|write| !write.is_finished()));
    other.execute_batch("COMMIT").unwrap();
    for write in writes {
        assert_eq!(write.await.unwrap().unwrap(), AcceptOutcome::New(TurnNumber(1)));
    }
    assert_eq!(store.conversations(count).await.unwrap().len(), count);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conversations_beyond_the_head_cache_work() {
    let files = Files::new();
    let store = files.open("a.db");
    let write = |n: usize, id: &'static str| store.accept(message(&format!("c{n}"), id, 1));
    for (id, turn) in [("m1", 1), ("m2", 2)] {
        let all = futures::future::join_all((0..=limits::STORE_HEADS).map(|n| write(n, id))).await;
        assert!(all.into_iter().all(|accepted| accepted.unwrap() == AcceptOutcome::New(TurnNumber(turn))));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_reads_share_pooled_connections() {
    let files = Files::new();
    let store = files.open("a.db");
    complete_turn(&store, "c", "m", 1).await;
    let id = ConversationId::from("c");
    let read = futures::future::join_all((0..20 * limits::STORE_READERS).map(|_| store.load(&id))).await;
    assert!(read.into_iter().all(|stored| stored.unwrap().tail.len() == 2));
    assert_eq!(store.readers.permits.available_permits(), limits::STORE_READERS);
    assert!((1..=limits::STORE_READERS).contains(&store.readers.lock().len()));
}

#[tokio::test]
async fn the_list_of_conversations_is_bounded() {
    let files = Files::new();
    let store = files.open("a.db");
    let many = format!(
        "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n <= {})
         INSERT INTO conversations (number, id, version, turns, open, pending, updated_at)
         SELECT n, 'c' || n, 1, 1, '[]', '[]', n FROM n",
        limits::CONVERSATIONS_LISTED
    );
    files.execute("a.db", &many);
    assert_eq!(store.conversations(usize::MAX).await.unwrap().len(), limits::CONVERSATIONS_LISTED);
}
