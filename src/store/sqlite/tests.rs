#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod files;

use std::sync::atomic::{AtomicU32, Ordering};

use tempfile::TempDir;

use super::*;
use crate::store::contract::{self, batch, message, record, talk};

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
    assert_eq!(store.accept(message("c", "m2", 2)).await.unwrap(), Accepted::Running(TurnNumber(2)));
    assert!(matches!(store.accept(message("c", "m1", 2)).await.unwrap(), Accepted::Answered(..)));
}

#[tokio::test]
async fn two_handles_on_one_file_see_each_other() {
    let files = Files::new();
    let (one, two) = (files.open("a.db"), files.open_unlocked("a.db"));
    for n in 1..=6 {
        let (here, there) = if n % 2 == 0 { (&one, &two) } else { (&two, &one) };
        assert_eq!(talk(here, "c", &format!("m{n}"), n).await, TurnNumber(n as u64));
        assert!(matches!(there.accept(message("c", &format!("m{n}"), n)).await.unwrap(), Accepted::Answered(..)));
    }
    let inbound = message("c", "m7", 7);
    let Accepted::New(turn) = one.accept(inbound.clone()).await.unwrap() else { panic!() };
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
    let flip = "CAST(substr(events, 1, 40) || x'00' || substr(events, 42) AS BLOB)";
    files.spoil("a.db", &format!("UPDATE batches SET events = {flip} {}", of("bit")));
    files.spoil("a.db", &format!("UPDATE batches SET events = 'text' {}", of("type")));
    files.spoil("a.db", &format!("DELETE FROM batches {}", of("gap")));
    files.spoil(
        "a.db",
        &format!("UPDATE batches SET events = (SELECT events FROM batches {}) {}", of("fine"), of("swap")),
    );
    let store = files.open("a.db");
    for id in ["bit", "type", "gap", "swap"] {
        let error = store.load(&id.into()).await.unwrap_err();
        let StoreError::Damaged { conversation, .. } = &error else { panic!("{id}: {error}") };
        assert_eq!(conversation, id);
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
    files.spoil("a.db", "UPDATE snapshots SET snapshot = x'0100'");
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
    assert_eq!(fine.unwrap(), Accepted::New(TurnNumber(1)));
}

#[test]
fn a_newer_or_foreign_file_is_left_alone() {
    let files = Files::new();
    drop(files.open("a.db"));
    Connection::open(files.path("a.db")).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let refused = SqliteStore::open(&files.path("a.db"), false).err().unwrap();
    assert!(matches!(refused, StoreError::TooNew { found: 99, known: 8 }), "{refused}");
    Connection::open(files.path("b.db")).unwrap().execute_batch("CREATE TABLE events (id INTEGER)").unwrap();
    let refused = SqliteStore::open(&files.path("b.db"), false).err().unwrap();
    assert!(matches!(refused, StoreError::Unsupported { .. }), "{refused}");
    std::fs::write(files.path("c.db"), "this is no database, however long it goes on about it".repeat(40)).unwrap();
    assert!(SqliteStore::open(&files.path("c.db"), false).is_err());
}

#[tokio::test]
async fn replies_that_their_events_tell_are_stored_once() {
    let files = Files::new();
    let (store, id, inbound) = (files.open("a.db"), ConversationId::from("c"), message("c", "m1", 1));
    store.accept(inbound.clone()).await.unwrap();
    store.append(&id, Version(0), contract::told(&inbound, TurnNumber(1))).await.unwrap();
    talk(&store, "c", "m2", 2).await;
    let other = Connection::open(files.path("a.db")).unwrap();
    let sizes: Vec<i64> = other
        .prepare("SELECT length(replies) FROM batches ORDER BY id")
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(sizes[0], 0);
    assert!(sizes[1] > 0, "the events of this one say nothing of its reply");
    // What is read from damaged events is refused as they are.
    files.spoil("a.db", "UPDATE batches SET events = x'0102' WHERE version = 1");
    assert_eq!(store.answered(&id, &"m1".into()).await.unwrap_err().code(), "S0102");
    assert_eq!(store.undelivered(&id).await.unwrap_err().code(), "S0102");
}

#[tokio::test]
async fn a_file_of_the_first_version_is_brought_up_to_date() {
    let files = Files::new();
    let store = files.open("a.db");
    store.accept(message("c", "m1", 1)).await.unwrap();
    drop(store);
    let columns = "conversation, turn, step, kind, request, outcome, at, build";
    let back = format!(
        "ALTER TABLE journal RENAME TO newer;
         CREATE TABLE journal (
             conversation INTEGER NOT NULL, turn INTEGER NOT NULL, step TEXT NOT NULL, kind TEXT NOT NULL,
             request TEXT NOT NULL, outcome TEXT, at INTEGER NOT NULL, build INTEGER NOT NULL,
             PRIMARY KEY (conversation, turn, step)
         ) WITHOUT ROWID;
         INSERT INTO journal ({columns}) VALUES (1, 1, 'a', 'tool', 'hash', NULL, 1, -1), (1, 1, 'b', 'tool', 'hash', '1', 1, -1);
         DROP TABLE newer; DROP TABLE timers; PRAGMA user_version = 1"
    );
    Connection::open(files.path("a.db")).unwrap().execute_batch(&back).unwrap();
    let store = files.open("a.db");
    let id = ConversationId::from("c");
    assert_eq!(store.unfinished(&id).await.unwrap()[0].journal, [record("a", None), record("b", Some("1"))]);
    store.journal(&id, TurnNumber(1), vec![record("a", Some("2")), record("c", None)]).await.unwrap();
    let found = store.unfinished(&id).await.unwrap()[0].journal.clone();
    assert_eq!(found, [record("a", Some("2")), record("b", Some("1")), record("c", None)]);
    // The new ones share a row.
    let rows =
        Connection::open(files.path("a.db")).unwrap().query_row("SELECT count(*) FROM journal", [], |row| row.get(0));
    assert_eq!(rows, Ok(3));
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
    for journal in ["x'0102'", "(SELECT outcome FROM journal WHERE turn = 1)", "x''"] {
        files.spoil("a.db", &format!("UPDATE journal SET outcome = {journal} WHERE turn = 2"));
        assert_eq!(store.unfinished(&id).await.unwrap_err().code(), "S0102", "{journal}");
    }
}

#[tokio::test(start_paused = true)]
async fn receipts_are_stored_soon_even_when_nothing_else_is() {
    let files = Files::new();
    let store = files.open("a.db");
    talk(&store, "c", "m1", 1).await;
    let other = Connection::open(files.path("a.db")).unwrap();
    let pending =
        || other.query_row("SELECT pending <> '' FROM conversations", [], |row| row.get::<_, bool>(0)).unwrap();
    store.delivered(&"c".into(), vec!["c-1".into()]).await.unwrap();
    assert!(pending(), "nobody waits for a receipt");
    // Who sees to them begins to wait.
    tokio::task::yield_now().await;
    tokio::time::advance(limits::STORE_RECEIPTS).await;
    for _ in 0..1_000_000 {
        tokio::task::yield_now().await;
        if !pending() {
            return;
        }
    }
    panic!("the receipt was not stored");
}

#[tokio::test]
async fn a_file_of_the_first_version_learns_about_reminders() {
    let files = Files::new();
    let store = files.open("a.db");
    talk(&store, "c", "m1", 1).await;
    drop(store);
    let old = Connection::open(files.path("a.db")).unwrap();
    old.execute_batch("DROP TABLE timers; PRAGMA user_version = 1").unwrap();
    drop(old);
    let (store, due) = (files.open("a.db"), Timestamp::from_micros(5));
    let inbound = message("c", "m2", 2);
    store.accept(inbound.clone()).await.unwrap();
    let timed = Batch { timer: Some(Some(due)), ..batch(&inbound, TurnNumber(2)) };
    store.append(&"c".into(), Version(1), timed).await.unwrap();
    drop(store);
    assert_eq!(files.open("a.db").timers(9).await.unwrap(), [("c".into(), due)]);
    assert_eq!(files.open("a.db").turns(&"c".into()).await.unwrap().len(), 2);
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

#[tokio::test]
async fn nothing_of_an_erased_conversation_is_left_in_the_files() {
    let files = Files::new();
    let store = files.open("a.db");
    let mut inbound = message("c", "m1", 1);
    inbound.message.text = "my secret is xyzzyxyzzy".repeat(300).into();
    store.accept(inbound.clone()).await.unwrap();
    store.append(&"c".into(), Version(0), batch(&inbound, TurnNumber(1))).await.unwrap();
    talk(&store, "d", "m1", 1).await;
    store.erase(&"c".into()).await.unwrap();
    for file in std::fs::read_dir(files.path("")).unwrap() {
        let path = file.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        assert!(!bytes.windows(10).any(|part| part == b"xyzzyxyzzy"), "{}", path.display());
    }
    assert_eq!(store.load(&"d".into()).await.unwrap().tail.len(), 2);
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
    let receipts = Arc::<Receipts>::default();
    let theirs = receipts.clone();
    let thread = std::thread::spawn(move || writer::run(&writer, &mut waiting, &theirs));
    let hurried = SqliteStore {
        jobs: Some(jobs),
        writer: Some(thread),
        readers: store.readers.clone(),
        receipts,
        marks: None,
        marked: store.marked.clone(),
        owner: None,
    };
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = hurried.accept(message("c", "m", 1)).await.unwrap_err();
    assert!(matches!(&error, StoreError::Unavailable(why) if why.contains("locked")), "{error}");
    other.execute_batch("COMMIT").unwrap();
    assert_eq!(hurried.accept(message("c", "m", 1)).await.unwrap(), Accepted::New(TurnNumber(1)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_writes_than_the_queue_holds_wait_outside_and_are_done() {
    let files = Files::new();
    let store = Arc::new(files.open("a.db"));
    // While somebody else holds the file, the writer has one group in its hands and the queue fills behind it.
    let other = Connection::open(files.path("a.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let count = limits::STORE_QUEUE + 2 * limits::STORE_GROUP;
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
        assert_eq!(write.await.unwrap().unwrap(), Accepted::New(TurnNumber(1)));
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
        assert!(all.into_iter().all(|accepted| accepted.unwrap() == Accepted::New(TurnNumber(turn))));
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
         INSERT INTO conversations (number, id, version, turns, open, pending, touched)
         SELECT n, 'c' || n, 1, 1, '[]', '[]', n FROM n",
        limits::CONVERSATIONS_LISTED
    );
    files.spoil("a.db", &many);
    assert_eq!(store.conversations(usize::MAX).await.unwrap().len(), limits::CONVERSATIONS_LISTED);
}
