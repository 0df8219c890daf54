#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod files;

use std::sync::atomic::{AtomicU32, Ordering};

use tempfile::TempDir;

use super::*;
use crate::contract::{self, batch, message, record, talk};

/// A folder with files that go away with it.
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
    /// A second store that writes to the same file, as if the lock did not hold.
    fn open_unlocked(&self, name: &str) -> SqliteStore {
        SqliteStore::opened(&self.path(name), false, None).unwrap()
    }
    /// Does something to a file behind the store's back.
    fn spoil(&self, name: &str, sql: &str) {
        assert!(Connection::open(self.path(name)).unwrap().execute(sql, []).unwrap() > 0, "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_contract() {
    let files = Files::new();
    let number = AtomicU32::new(0);
    contract::check(|| {
        let name = format!("{}.db", number.fetch_add(1, Ordering::Relaxed));
        Arc::new(SqliteStore::open(&files.path(&name), name == "0.db").unwrap())
    })
    .await;
}

#[tokio::test]
async fn everything_is_there_after_reopening() {
    let files = Files::new();
    let store = files.open("a.db");
    talk(&store, "c", "m1", 1).await;
    store.accept(message("c", "m2", 2)).await.unwrap();
    store.journal(&"c".into(), TurnNumber(2), vec![record("a", None)]).await.unwrap();
    drop(store);
    let store = files.open("a.db");
    let id = ConversationId::from("c");
    assert_eq!(store.load(&id).await.unwrap().tail, batch(&message("c", "m1", 1), TurnNumber(1)).events);
    assert_eq!(store.waiting().await.unwrap(), ["c"]);
    assert_eq!(store.unfinished(&id).await.unwrap()[0].journal, [record("a", None)]);
    assert_eq!(store.undelivered(&id).await.unwrap().len(), 1);
    assert_eq!(store.accept(message("c", "m2", 2)).await.unwrap(), AcceptOutcome::Running(TurnNumber(2)));
    assert!(matches!(store.accept(message("c", "m1", 2)).await.unwrap(), AcceptOutcome::Answered(..)));
}

#[tokio::test]
async fn two_handles_on_one_file_see_each_other() {
    let files = Files::new();
    let (one, two) = (files.open("a.db"), files.open_unlocked("a.db"));
    for n in 1..=6 {
        let (here, there) = if n % 2 == 0 { (&one, &two) } else { (&two, &one) };
        assert_eq!(talk(here, "c", &format!("m{n}"), n).await, TurnNumber(n as u64));
        assert!(matches!(there.accept(message("c", &format!("m{n}"), n)).await.unwrap(), AcceptOutcome::Answered(..)));
    }
    let inbound = message("c", "m7", 7);
    let AcceptOutcome::New(turn) = one.accept(inbound.clone()).await.unwrap() else { panic!() };
    let id = ConversationId::from("c");
    let (first, second) = tokio::join!(
        one.append(&id, Version(6), batch(&inbound, turn)),
        two.append(&id, Version(6), batch(&inbound, turn)),
    );
    assert!(first.is_ok() != second.is_ok(), "{first:?} {second:?}");
    let error = first.and(second).unwrap_err();
    assert!(matches!(error, StoreError::Conflict { found: Version(7), .. }), "{error}");
}

#[tokio::test]
async fn damage_hurts_one_conversation() {
    let files = Files::new();
    let store = files.open("a.db");
    for id in ["bit", "type", "gap", "swap", "fine"] {
        for n in 1..=2 {
            talk(&store, id, &format!("m{n}"), n).await;
        }
    }
    drop(store);
    let of =
        |id: &str| format!("WHERE conversation = (SELECT number FROM conversations WHERE id = '{id}') AND version = 1");
    let flip = "substr(events, 1, 40) || '~' || substr(events, 42)";
    files.spoil("a.db", &format!("UPDATE batches SET events = {flip} {}", of("bit")));
    files.spoil("a.db", &format!("UPDATE batches SET events = x'00' {}", of("type")));
    files.spoil("a.db", &format!("DELETE FROM batches {}", of("gap")));
    files.spoil(
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
        let StoreError::Damaged { conversation, reason } = &error else { panic!("{id}: {error}") };
        assert_eq!(conversation, id);
        assert!(reason.contains(expected), "{id}: {reason}");
    }
    assert_eq!(store.load(&"fine".into()).await.unwrap().tail.len(), 4);
    talk(&store, "fine", "m3", 3).await;
}

#[tokio::test]
async fn a_damaged_snapshot_costs_only_time() {
    let files = Files::new();
    let store = files.open("a.db");
    let inbound = message("c", "m1", 1);
    store.accept(inbound.clone()).await.unwrap();
    let mut first = batch(&inbound, TurnNumber(1));
    let id = ConversationId::from("c");
    first.snapshot = Some(segue_engine::conversation::Conversation::fold(id.clone(), &first.events));
    store.append(&id, Version(0), first.clone()).await.unwrap();
    files.spoil("a.db", "UPDATE snapshots SET snapshot = '{}'");
    let stored = store.load(&id).await.unwrap();
    assert_eq!((stored.snapshot, stored.tail), (None, first.events));
}

#[tokio::test]
async fn a_damaged_head_is_told_and_nobody_else_is_hurt() {
    let files = Files::new();
    let store = files.open("a.db");
    talk(&store, "c", "m1", 1).await;
    files.spoil("a.db", "UPDATE conversations SET open = 'x'");
    let (damaged, fine) = tokio::join!(store.accept(message("c", "m2", 2)), store.accept(message("d", "m1", 2)));
    assert_eq!(damaged.unwrap_err().code(), "S0102");
    assert_eq!(fine.unwrap(), AcceptOutcome::New(TurnNumber(1)));
}

#[test]
fn a_newer_or_foreign_file_is_left_alone() {
    let files = Files::new();
    drop(files.open("a.db"));
    Connection::open(files.path("a.db")).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let refused = SqliteStore::open(&files.path("a.db"), false).err().unwrap();
    assert!(matches!(refused, StoreError::TooNew { found: 99, known: 9 }), "{refused}");
    Connection::open(files.path("b.db")).unwrap().execute_batch("CREATE TABLE events (id INTEGER)").unwrap();
    let refused = SqliteStore::open(&files.path("b.db"), false).err().unwrap();
    assert!(matches!(refused, StoreError::Unsupported { .. }), "{refused}");
    std::fs::write(files.path("c.db"), "this is no database, however long it goes on about it".repeat(40)).unwrap();
    assert!(SqliteStore::open(&files.path("c.db"), false).is_err());
}

/// What `sqlite3` shows of a store.
#[tokio::test]
async fn rows_are_json_that_a_person_reads() {
    let files = Files::new();
    let (store, id, inbound) = (files.open("a.db"), ConversationId::from("c"), message("c", "m1", 1));
    store.accept(inbound.clone()).await.unwrap();
    store.journal(&id, TurnNumber(1), vec![record("a", Some("{\"b\":2}"))]).await.unwrap();
    let told = contract::told(&inbound, TurnNumber(1));
    let snapshot = Some(segue_engine::conversation::Conversation::fold(id.clone(), &told.events));
    store.append(&id, Version(0), TurnCommit { snapshot, ..told }).await.unwrap();
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
async fn damaged_replies_are_not_given_to_anybody() {
    let files = Files::new();
    let (store, id, inbound) = (files.open("a.db"), ConversationId::from("c"), message("c", "m1", 1));
    store.accept(inbound.clone()).await.unwrap();
    store.append(&id, Version(0), contract::told(&inbound, TurnNumber(1))).await.unwrap();
    files.spoil("a.db", "UPDATE batches SET replies = replace(replies, 'one', 'uno')");
    assert_eq!(store.answered(&id, &"m1".into()).await.unwrap_err().code(), "S0102");
    assert_eq!(store.undelivered(&id).await.unwrap_err().code(), "S0102");
}

#[tokio::test]
async fn a_row_whose_checksum_does_not_match_is_named_with_table_and_key() {
    let files = Files::new();
    let store = files.open("a.db");
    for id in ["message", "step", "fine"] {
        talk(&store, id, "m1", 1).await;
        store.accept(message(id, "m2", 2)).await.unwrap();
        store.journal(&id.into(), TurnNumber(2), vec![record("a", Some("1"))]).await.unwrap();
    }
    let of = |id: &str| format!("turn = 2 AND conversation = (SELECT number FROM conversations WHERE id = '{id}')");
    files.spoil("a.db", &format!("UPDATE inbox SET message = replace(message, 'm2', 'm3') WHERE {}", of("message")));
    files.spoil("a.db", &format!("UPDATE journal SET outcome = '2' WHERE {}", of("step")));
    for (id, row) in [("message", "table inbox, turn 2"), ("step", "table journal, turn 2, step a")] {
        let error = store.unfinished(&id.into()).await.unwrap_err().to_string();
        let expected = format!("the record of conversation {id} is damaged: {row}: the checksum does not match");
        assert_eq!(error, expected);
    }
    assert_eq!(store.unfinished(&"fine".into()).await.unwrap().len(), 1);
    talk(&store, "fine", "m3", 3).await;
}

/// What survives a loss of power is SQLite's promise; this shows that it is asked for it.
#[test]
fn commits_are_forced_to_the_disk_unless_the_setting_says_otherwise() {
    let files = Files::new();
    drop(files.open("a.db"));
    let path = files.path("a.db").display().to_string();
    for (option, expected) in [("", 2), ("?synchronous=full", 2), ("?synchronous=normal", 1)] {
        let location = crate::Location::parse(&format!("sqlite:{path}{option}")).unwrap();
        let crate::Location::Sqlite { path, full } = location else { panic!("{option}") };
        let connection = schema::open_writer(&path, full).unwrap();
        let setting: i64 = connection.query_row("PRAGMA synchronous", [], |row| row.get(0)).unwrap();
        assert_eq!(setting, expected, "{option}");
    }
}

#[tokio::test]
async fn a_damaged_journal_of_a_running_turn_is_told() {
    let files = Files::new();
    let store = files.open("a.db");
    let id = ConversationId::from("c");
    for n in 1..=2 {
        store.accept(message("c", &format!("m{n}"), n)).await.unwrap();
        store.journal(&id, TurnNumber(n.unsigned_abs()), vec![record("a", Some("1"))]).await.unwrap();
    }
    // That of another turn is none of this one, whatever is in it.
    for change in ["outcome = x'0102'", "outcome = '2'", "outcome = NULL", "turn = 1"] {
        files.spoil("a.db", &format!("UPDATE journal SET {change} WHERE turn = 2"));
        assert_eq!(store.unfinished(&id).await.unwrap_err().code(), "S0102", "{change}");
    }
}

#[tokio::test]
async fn a_receipt_is_stored_and_what_is_looked_up_later_knows_it() {
    let files = Files::new();
    let store = files.open("a.db");
    talk(&store, "c", "m1", 1).await;
    store.delivered(&"c".into(), vec!["c-1".into()]).await.unwrap();
    assert!(store.waiting().await.unwrap().is_empty());
    talk(&store, "c", "m2", 2).await;
    store.delivered(&"c".into(), vec!["c-2".into()]).await.unwrap();
    drop(store);
    let other = Connection::open(files.path("a.db")).unwrap();
    assert_eq!(other.query_row("SELECT pending FROM conversations", [], |row| row.get(0)), Ok(String::new()));
}

#[tokio::test]
async fn other_tools_find_events_in_their_layout() {
    let files = Files::new();
    let store = files.open("a.db");
    talk(&store, "c", "m1", 1).await;
    talk(&store, "d", "m1", 2).await;
    let reader = Connection::open(files.path("a.db")).unwrap();
    let sql =
        "SELECT sender_id, type_name, timestamp, intent_name, action_name, data ->> '$.text' FROM events ORDER BY id";
    let mut statement = reader.prepare(sql).unwrap();
    type Found = (String, String, f64, Option<String>, Option<String>, Option<String>);
    let rows =
        statement.query_map([], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?, r.get(3)?, r.get(4)?, r.get(5)?))).unwrap();
    let found: Vec<Found> = rows.map(Result::unwrap).collect();
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

/// Whatever held it: rows that were replaced or expired before it was erased, too.
#[tokio::test]
async fn nothing_of_an_erased_conversation_is_left_in_the_files() {
    let files = Files::new();
    let (store, id) = (files.open("a.db"), ConversationId::from("c"));
    let secret: Arc<str> = "my secret is xyzzyxyzzy".repeat(300).into();
    for n in 1..=2 {
        let mut inbound = message("c", &format!("m{n}"), n);
        inbound.message.text = secret.clone();
        let turn = TurnNumber(n.unsigned_abs());
        store.accept(inbound.clone()).await.unwrap();
        store.journal(&id, turn, vec![record("a", Some(&secret))]).await.unwrap();
        let whole = batch(&inbound, turn);
        let whole = TurnCommit {
            snapshot: Some(segue_engine::conversation::Conversation::fold(id.clone(), &whole.events)),
            trace: Some(secret.to_string()),
            bodies: vec![crate::StoredText { hash: "h".into(), text: secret.clone() }],
            ..whole
        };
        store.append(&id, Version(turn.0 - 1), whole).await.unwrap();
        store.keep_private(&id, "p", Some(secret.to_string()), inbound.at).await.unwrap();
    }
    store.expire(Timestamp::from_micros(10_000_000_000_000)).await.unwrap();
    talk(&store, "d", "m1", 1).await;
    store.erase(&id).await.unwrap();
    for file in std::fs::read_dir(files.path("")).unwrap() {
        let path = file.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        assert!(!bytes.windows(10).any(|part| part == b"xyzzyxyzzy"), "{}", path.display());
    }
    assert_eq!(store.load(&"d".into()).await.unwrap().tail.len(), 2);
}

/// A turn that was under way when its conversation was erased must not find another one under its number.
#[tokio::test]
async fn the_number_of_an_erased_conversation_is_not_given_away() {
    let files = Files::new();
    let store = files.open("a.db");
    talk(&store, "c", "m1", 1).await;
    store.erase(&"c".into()).await.unwrap();
    drop(store);
    talk(&files.open("a.db"), "d", "m1", 2).await;
    let other = Connection::open(files.path("a.db")).unwrap();
    assert_eq!(other.query_row("SELECT number FROM conversations", [], |row| row.get(0)), Ok(2));
}

#[tokio::test]
async fn a_write_that_nobody_waits_for_is_done() {
    let files = Files::new();
    let store = files.open("a.db");
    let inbound = message("c", "m1", 1);
    store.accept(inbound.clone()).await.unwrap();
    let id = ConversationId::from("c");
    let mut append = store.append(&id, Version(0), batch(&inbound, TurnNumber(1)));
    // One poll hands it over; the writer may even be done within it.
    let _ = futures::poll!(&mut append);
    drop(append);
    drop(store);
    assert_eq!(files.open("a.db").load(&id).await.unwrap().version, Version(1));
}

/// Somebody else may hold the file for a moment. Here nobody waits, to see what is said in the end.
#[tokio::test]
async fn a_file_that_somebody_holds_for_too_long_is_told() {
    let files = Files::new();
    let store = files.open("a.db");
    let path = files.path("a.db");
    let writer = schema::open_writer(&path, false).unwrap();
    for connection in [&writer, &schema::open_reader(&path).unwrap()] {
        let wait: i64 = connection.query_row("PRAGMA busy_timeout", [], |row| row.get(0)).unwrap();
        assert_eq!(u128::try_from(wait).unwrap(), limits::STORE_BUSY.as_millis());
    }
    writer.busy_timeout(std::time::Duration::from_millis(100)).unwrap();
    let (jobs, mut waiting) = mpsc::channel(1);
    let thread = std::thread::spawn(move || writer::run(&writer, &mut waiting));
    let hurried = SqliteStore { jobs: Some(jobs), writer: Some(thread), readers: store.readers.clone(), owner: None };
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = hurried.accept(message("c", "m", 1)).await.unwrap_err();
    assert!(matches!(&error, StoreError::Unavailable(why) if why.contains("locked")), "{error}");
    other.execute_batch("COMMIT").unwrap();
    assert_eq!(hurried.accept(message("c", "m", 1)).await.unwrap(), AcceptOutcome::New(TurnNumber(1)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_writes_than_the_queue_holds_wait_outside_and_are_done() {
    let files = Files::new();
    let store = Arc::new(files.open("a.db"));
    // While somebody else holds the file, the writer has one group in its hands and the queue fills behind it.
    let other = Connection::open(files.path("a.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let count = limits::STORE_QUEUE + 2 * limits::GROUP_COMMIT_MAX;
    let writes: Vec<_> = (0..count)
        .map(|n| {
            let store = store.clone();
            tokio::spawn(async move { store.accept(message(&format!("c{n}"), "m", 1)).await })
        })
        .collect();
    while store.jobs.as_ref().unwrap().capacity() > 0 && !writes.iter().any(|write| write.is_finished()) {
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
async fn more_conversations_than_the_writer_remembers_go_on() {
    let files = Files::new();
    let store = files.open("a.db");
    let write = |n: usize, id: &'static str| store.accept(message(&format!("c{n}"), id, 1));
    for (id, turn) in [("m1", 1), ("m2", 2)] {
        let all = futures::future::join_all((0..=limits::STORE_HEADS).map(|n| write(n, id))).await;
        assert!(all.into_iter().all(|accepted| accepted.unwrap() == AcceptOutcome::New(TurnNumber(turn))));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_readers_share_few_connections() {
    let files = Files::new();
    let store = files.open("a.db");
    talk(&store, "c", "m", 1).await;
    let id = ConversationId::from("c");
    let read = futures::future::join_all((0..20 * limits::STORE_READERS).map(|_| store.load(&id))).await;
    assert!(read.into_iter().all(|stored| stored.unwrap().tail.len() == 2));
    assert_eq!(store.readers.places.available_permits(), limits::STORE_READERS);
    assert!((1..=limits::STORE_READERS).contains(&store.readers.lock().len()));
}

#[tokio::test]
async fn a_list_of_conversations_has_an_end() {
    let files = Files::new();
    let store = files.open("a.db");
    let many = format!(
        "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n <= {})
         INSERT INTO conversations (number, id, version, turns, open, pending, updated_at)
         SELECT n, 'c' || n, 1, 1, '[]', '[]', n FROM n",
        limits::CONVERSATIONS_LISTED
    );
    files.spoil("a.db", &many);
    assert_eq!(store.conversations(usize::MAX).await.unwrap().len(), limits::CONVERSATIONS_LISTED);
}
