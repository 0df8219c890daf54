#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod agreement;

use std::{
    path::PathBuf,
    sync::atomic::{AtomicU32, Ordering},
};

use tempfile::TempDir;
use tokio::sync::{mpsc, oneshot};

use super::*;
use crate::{
    AcceptOutcome, StoreError, StoreLocation, open_stores, open_stores_read_only,
    runs::{
        NewQuestion, NewUnit, RunBlob, RunStatus, StartOutcome, UnitStatus, UnitTransition,
        contract::{self, at, batch, claim, claim_one, new_run, record, reply},
    },
    sqlite::{
        schema,
        writer::{self, FileState, WriteRequest},
    },
};

/// The tables of runs.
const TABLES: [&str; 8] =
    ["runs", "run_units", "run_events", "run_checkpoints", "run_journal", "run_blobs", "run_questions", "run_messages"];

/// A temporary folder.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }
    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
    fn open_for_runs(&self, name: &str) -> SqliteStore {
        SqliteStore::open_for_runs(&self.path(name), true).unwrap()
    }
    fn open(&self, name: &str) -> SqliteStore {
        SqliteStore::open(&self.path(name), false).unwrap()
    }
    /// Changes rows through another connection.
    fn execute(&self, name: &str, sql: &str) {
        assert!(Connection::open(self.path(name)).unwrap().execute(sql, []).unwrap() > 0, "{sql}");
    }
    fn count(&self, name: &str, table: &str) -> i64 {
        let sql = format!("SELECT count(*) FROM {table}");
        Connection::open(self.path(name)).unwrap().query_row(&sql, [], |row| row.get(0)).unwrap()
    }
}

/// A batch with something for every table.
fn full_batch(unit: &ClaimedUnit, text: &str, now: i64) -> UnitBatch {
    UnitBatch {
        events: vec![format!("{{\"event\":\"{text}\"}}").into()],
        records: vec![record(text, Some(&format!("{{\"text\":\"{text}\"}}")))],
        blobs: vec![RunBlob { id: "x".into(), text: format!("{{\"blob\":\"{text}\"}}").into() }],
        questions: vec![NewQuestion { id: "q".into(), question: format!("{{\"text\":\"{text}\"}}").into() }],
        ..batch(unit, now)
    }
}

/// Starts a run with one unit and stores something in every table.
async fn full_run(store: &dyn RunStore, id: &str) -> ClaimedUnit {
    store.start_run(NewRun { inputs: "{\"topic\":\"one\"}".into(), ..new_run(id, &["a"]) }).await.unwrap();
    let unit = claim_one(store, 2).await;
    store.append(UnitBatch { checkpoint: Some("{\"turn\":1}".into()), ..batch(&unit, 3) }).await.unwrap();
    store.append(full_batch(&unit, "first", 3)).await.unwrap();
    let message = Signal::Message { id: "m".into(), unit: None, text: "{\"say\":\"hello\"}".into() };
    store.signal(&id.into(), message, at(3)).await.unwrap();
    unit
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fulfils_the_run_store_contract() {
    let files = Files::new();
    let number = AtomicU32::new(0);
    contract::check(|| Arc::new(files.open(&format!("{}.db", number.fetch_add(1, Ordering::Relaxed))))).await;
}

#[tokio::test]
async fn conversations_and_runs_are_one_file_opened_once() {
    let files = Files::new();
    let location = StoreLocation::parse(files.path("a.db").to_str().unwrap()).unwrap();
    let stores = open_stores(&location).unwrap();
    full_run(&*stores.runs, "r").await;
    crate::contract::complete_turn(&*stores.conversations, "c", "m1", 1).await;
    assert_eq!(open_stores(&location).err().unwrap().code(), "S0107");
    let view = open_stores_read_only(&location).unwrap();
    assert_eq!(view.runs.run(&"r".into()).await.unwrap(), stores.runs.run(&"r".into()).await.unwrap());
    assert_eq!(view.conversations.conversations(9).await.unwrap(), ["c"]);
    assert_eq!(view.runs.start_run(new_run("s", &[])).await.unwrap_err().code(), "S0106");
    let memory = open_stores(&StoreLocation::Memory).unwrap();
    full_run(&*memory.runs, "r").await;
}

/// The files as they are while the store is open, which is what a killed process leaves.
#[tokio::test]
async fn runs_survive_a_crash() {
    let files = Files::new();
    let store = files.open("a.db");
    let unit = full_run(&store, "r").await;
    store.release(&unit.key, unit.epoch, at(4)).await.unwrap();
    let unit = claim_one(&store, 4).await;
    let waits = UnitBatch { transition: UnitTransition::Waiting { wake_at: None }, ..batch(&unit, 4) };
    store.append(waits).await.unwrap();
    store.start_run(NewRun { idempotency_key: Some("k".into()), ..new_run("s", &["b"]) }).await.unwrap();
    let held = claim(&store, "dead", 5, 9).await.into_iter().find(|unit| *unit.key.unit == *"b").unwrap();
    store.append(full_batch(&held, "held", 6)).await.unwrap();
    assert_eq!(store.answer(reply("r", "q", "yes", "e1", 7)).await.unwrap(), ReplyOutcome::Answered);
    for ending in ["", "-wal"] {
        std::fs::copy(files.path(&format!("a.db{ending}")), files.path(&format!("b.db{ending}"))).unwrap();
    }
    let after = files.open("b.db");
    let repeated = NewRun { idempotency_key: Some("k".into()), ..new_run("t", &[]) };
    assert_eq!(after.start_run(repeated).await.unwrap(), StartOutcome::Existing("s".into()));
    // The answer is accepted once, before and after the crash.
    assert_eq!(after.answer(reply("r", "q", "other", "e1", 8)).await.unwrap(), ReplyOutcome::Answered);
    let already = ReplyOutcome::Already { answer: "yes".into(), event_id: "e1".into() };
    assert_eq!(after.answer(reply("r", "q", "no", "e2", 8)).await.unwrap(), already);
    // What waits is claimed at once, what was held when its lease is over.
    let woken = claim(&after, "new", 8, 9).await;
    assert_eq!(woken.len(), 1, "{woken:?}");
    assert_eq!(woken[0].key, unit.key);
    let content = woken[0].content.as_ref().unwrap();
    assert_eq!((content.checkpoint.as_deref(), content.records.len()), (Some("{\"turn\":1}"), 1));
    assert_eq!(content.questions[0].answer.as_deref(), Some("yes"));
    assert_eq!(content.signals.messages.len(), 1);
    let taken = claim(&after, "new", 65, 9).await;
    let taken = taken.iter().find(|unit| unit.key == held.key).unwrap();
    assert_eq!((taken.epoch, taken.content.as_ref().unwrap().records.len()), (2, 1));
    assert_eq!(after.append(batch(&held, 66)).await.unwrap_err().code(), "S0203");
    let events = after.events(&"r".into(), 0, 99).await.unwrap();
    assert_eq!(events.iter().map(|event| event.seq).collect::<Vec<_>>(), [1, 2, 3]);
}

#[tokio::test]
async fn two_handles_on_one_file_exclude_each_other() {
    let files = Files::new();
    let one = files.open("a.db");
    let two = SqliteStore::open_locked(&files.path("a.db"), false, None).unwrap();
    one.start_run(new_run("r", &["a", "b"])).await.unwrap();
    let (first, second) = tokio::join!(claim(&one, "one", 2, 1), claim(&two, "two", 2, 1));
    assert_ne!(first[0].key, second[0].key);
    let taken = claim(&two, "two", 62, 9).await;
    assert_eq!(taken.len(), 2);
    assert_eq!(one.append(full_batch(&first[0], "late", 63)).await.unwrap_err().code(), "S0203");
    two.append(full_batch(&taken[0], "new", 63)).await.unwrap();
    assert_eq!(one.events(&"r".into(), 0, 9).await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_write_completes_after_its_future_is_dropped() {
    let files = Files::new();
    let store = files.open("a.db");
    let unit = full_run(&store, "r").await;
    let mut append = store.append(UnitBatch { events: vec!["last".into()], ..batch(&unit, 5) });
    let _ = futures::poll!(&mut append);
    drop(append);
    drop(store);
    let events = files.open("a.db").events(&"r".into(), 0, 9).await.unwrap();
    assert_eq!(&*events.last().unwrap().event, "last");
}

/// A disk that is full is imitated by a limit on the pages of the file.
#[tokio::test]
async fn a_full_disk_is_an_error_and_nothing_is_half_written() {
    let files = Files::new();
    let path = files.path("a.db");
    let store = files.open("a.db");
    let unit = full_run(&store, "r").await;
    let before = dump(&store, "r").await;
    let limited = |pages: i64| {
        let writer = schema::open_writer(&path, false).unwrap();
        let used: i64 = writer.query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap();
        writer.query_row(&format!("PRAGMA max_page_count = {}", used + pages), [], |_| Ok(())).unwrap();
        let (requests, mut waiting) = mpsc::channel(9);
        let thread = std::thread::spawn(move || writer::run(&writer, &FileState::default(), &mut waiting));
        SqliteStore { requests: Some(requests), writer: Some(thread), readers: store.readers.clone(), _file_lock: None }
    };
    let large: Arc<str> = "x".repeat(100_000).into();
    let work = || UnitBatch {
        events: vec![large.clone(), large.clone()],
        checkpoint: Some(large.clone()),
        new_units: vec![NewUnit::new("b", large.clone())],
        run_status: Some(RunStatus::Completed),
        ..full_batch(&unit, "second", 5)
    };
    // It fails at another place each time.
    for pages in [0, 3, 30, 60, 90] {
        let full = limited(pages);
        let error = full.append(work()).await.unwrap_err();
        assert_eq!(error.code(), "S0103", "{error}");
        assert!(error.to_string().contains("full") && error.is_transient(), "{error}");
        let error = full.start_run(NewRun { inputs: "x".repeat(500_000).into(), ..new_run("s", &["a"]) }).await;
        assert_eq!(error.unwrap_err().code(), "S0103");
        assert_eq!(dump(&store, "r").await, before, "{pages}");
        assert_eq!(store.run(&"s".into()).await.unwrap(), None);
    }
    assert_eq!(store.append(work()).await.unwrap(), 4);
}

/// All that is stored of a run.
async fn dump(store: &dyn RunStore, run: &str) -> String {
    let run: RunId = run.into();
    let units = store.units(&run).await.unwrap();
    let mut contents = Vec::new();
    for unit in &units {
        contents.push(store.unit(&unit.key).await.unwrap());
    }
    let filter = QuestionFilter { run: Some(run.clone()), open: false };
    format!(
        "{:?}\n{units:?}\n{contents:?}\n{:?}\n{:?}\n{:?}",
        store.run(&run).await.unwrap(),
        store.events(&run, 0, 9_999).await.unwrap(),
        store.questions(filter, 999).await.unwrap(),
        store.blob(&run, "x").await.unwrap(),
    )
}

#[tokio::test]
async fn a_refused_operation_does_not_affect_others_of_its_transaction() {
    let files = Files::new();
    let store = files.open("a.db");
    let unit = full_run(&store, "r").await;
    let writer = schema::open_writer(&files.path("a.db"), false).unwrap();
    let (requests, mut waiting) = mpsc::channel(9);
    let mut answers = Vec::new();
    let mut send = |work: WriteOperation| {
        let (answer, answered) = oneshot::channel();
        requests.try_send(WriteRequest { work, answer }).ok().unwrap();
        answers.push(answered);
    };
    let run = |work: RunOperation| WriteOperation::Run(Box::new(work));
    let append = |batch: UnitBatch| run(RunOperation::Append(batch));
    // Refused at its end: all its other parts are written by then.
    let many = (0..segue_engine::limits::RUN_UNITS).map(|n| NewUnit::new(format!("u{n}"), "")).collect();
    send(append(UnitBatch { new_units: many, ..full_batch(&unit, "refused", 5) }));
    send(append(full_batch(&unit, "accepted", 5)));
    send(append(UnitBatch { epoch: 7, ..full_batch(&unit, "fenced", 5) }));
    send(run(RunOperation::Start(new_run("s", &["b"]))));
    send(super::super::accept_operation(&crate::contract::message("c", "m1", 1)).unwrap());
    drop(requests);
    std::thread::spawn(move || writer::run(&writer, &FileState::default(), &mut waiting)).join().unwrap();
    let codes = answers.into_iter().map(|answer| match answer.blocking_recv_now() {
        Ok(WriteResult::Run(done)) => done.err().map(|error| error.code()),
        Ok(_) => None,
        Err(error) => Some(error.code()),
    });
    assert_eq!(codes.collect::<Vec<_>>(), [Some("S0208"), None, Some("S0203"), None, None]);
    let events = store.events(&"r".into(), 0, 9).await.unwrap();
    let events: Vec<&str> = events.iter().map(|event| &*event.event).collect();
    assert_eq!(events[1..], ["{\"event\":\"first\"}", "{\"event\":\"accepted\"}"]);
    assert_eq!(store.units(&"r".into()).await.unwrap().len(), 1);
    assert_eq!(store.units(&"s".into()).await.unwrap().len(), 1);
    let repeated = crate::Store::accept(&store, crate::contract::message("c", "m1", 1)).await.unwrap();
    assert!(matches!(repeated, AcceptOutcome::Running(_)));
}

/// The result of a writer that has ended.
trait Answered {
    fn blocking_recv_now(self) -> Result<WriteResult, StoreError>;
}

impl Answered for oneshot::Receiver<Result<WriteResult, StoreError>> {
    fn blocking_recv_now(mut self) -> Result<WriteResult, StoreError> {
        self.try_recv().unwrap()
    }
}

#[tokio::test]
async fn corrupt_rows_affect_only_their_run() {
    for (table, change) in [
        ("run_events", "event = '{}'"),
        ("run_events", "event = x'00'"),
        ("run_events", "at = 7"),
        ("run_events", "seq = seq + 9"),
        ("run_checkpoints", "checkpoint = '{\"turn\":2}'"),
        ("run_journal", "outcome = NULL"),
        ("run_journal", "build = 7"),
        ("run_units", "input = '{}'"),
        ("run_units", "status = 'asleep'"),
        ("run_units", "epoch = 'x'"),
        ("run_questions", "question = replace(question, 'first', 'other')"),
        ("run_questions", "question = '['"),
        ("run_messages", "text = '{}'"),
        ("run_messages", "at = 9"),
        ("run_blobs", "text = '{}'"),
        ("runs", "inputs = '{}'"),
        ("runs", "mission = 'other'"),
        ("runs", "status = 'gone'"),
        ("runs", "last_seq = 5"),
        ("runs", "started_at = 'x'"),
    ] {
        let files = Files::new();
        let store = files.open("a.db");
        full_run(&store, "bad").await;
        full_run(&store, "fine").await;
        let of = if table == "runs" { "id = 'bad'" } else { "run = (SELECT number FROM runs WHERE id = 'bad')" };
        files.execute("a.db", &format!("UPDATE {table} SET {change} WHERE {of}"));
        let bad = RunId::from("bad");
        let mut errors = Vec::new();
        errors.extend(store.run(&bad).await.err());
        errors.extend(store.events(&bad, 0, 9).await.err());
        errors.extend(store.units(&bad).await.err());
        errors.extend(store.unit(&UnitKey::new("bad", "a")).await.err());
        errors.extend(store.blob(&bad, "x").await.err());
        errors.extend(store.question(&QuestionKey::new("bad", "q")).await.err());
        assert!(!errors.is_empty(), "{table}: {change}");
        for error in errors {
            assert!(matches!(&error, RunStoreError::Corrupt { run, .. } if *run == bad), "{change}: {error}");
            assert_eq!(error.code(), "S0102");
            assert!(error.to_string().contains("table run"), "{change}: {error}");
        }
        // The other run is complete, and its unit can be claimed and written.
        let claimed = claim(&store, "o", 999, 9).await;
        let fine = claimed.iter().find(|unit| unit.key.run == *"fine").unwrap();
        assert_eq!(fine.content.as_ref().unwrap().records.len(), 1, "{change}");
        store.append(full_batch(fine, "more", 999)).await.unwrap();
        assert_eq!(store.events(&"fine".into(), 0, 9).await.unwrap().len(), 3);
        // A claimed unit that cannot be read is known as such.
        if let Some(unit) = claimed.iter().find(|unit| unit.key.run == bad) {
            let readable = store.unit(&unit.key).await.is_ok();
            assert_eq!(unit.content.is_ok(), readable, "{change}");
            assert_eq!(unit.epoch, 2);
        }
    }
}

#[tokio::test]
async fn a_missing_event_is_reported() {
    let files = Files::new();
    let store = files.open("a.db");
    store.start_run(NewRun { events: vec!["e".into(); 6], ..new_run("r", &[]) }).await.unwrap();
    files.execute("a.db", "DELETE FROM run_events WHERE seq IN (3, 6)");
    let run = RunId::from("r");
    assert_eq!(store.events(&run, 0, 2).await.unwrap().len(), 2);
    assert_eq!(store.events(&run, 3, 2).await.unwrap().len(), 2);
    for (after, missing) in [(0, 3), (2, 3), (3, 6), (5, 6)] {
        let error = store.events(&run, after, 9).await.unwrap_err().to_string();
        assert!(error.contains(&format!("event {missing}: the row is missing")), "{error}");
    }
}

/// As shown by the `sqlite3` shell.
#[tokio::test]
async fn rows_of_runs_are_readable_json() {
    let files = Files::new();
    let store = files.open("a.db");
    full_run(&store, "r").await;
    store.answer(reply("r", "q", "{\"yes\":true}", "e1", 7)).await.unwrap();
    let other = Connection::open(files.path("a.db")).unwrap();
    for (sql, expected) in [
        ("SELECT inputs ->> '$.topic' FROM runs WHERE id = 'r'", "one"),
        ("SELECT event ->> '$.event' FROM run_events WHERE seq = 2", "first"),
        ("SELECT input ->> '$.task' FROM run_units", "a"),
        ("SELECT checkpoint ->> '$.turn' || '' FROM run_checkpoints", "1"),
        ("SELECT step || (outcome ->> '$.text') FROM run_journal", "firstfirst"),
        ("SELECT text ->> '$.blob' FROM run_blobs", "first"),
        ("SELECT question ->> '$.answer' FROM run_questions", "{\"yes\":true}"),
        ("SELECT text ->> '$.say' FROM run_messages", "hello"),
        ("SELECT status FROM runs", "running"),
        ("SELECT status FROM run_units", "claimed"),
    ] {
        let found: String = other.query_row(sql, [], |row| row.get(0)).unwrap();
        assert_eq!(found, expected, "{sql}");
    }
}

#[tokio::test]
async fn an_interrupted_purge_is_completed_by_the_next() {
    let files = Files::new();
    let store = files.open("a.db");
    for id in ["r", "s"] {
        let unit = full_run(&store, id).await;
        store.append(UnitBatch { events: vec!["e".into(); 1_200], ..batch(&unit, 3) }).await.unwrap();
    }
    let end = RunBatch { status: Some(RunStatus::Failed), ..RunBatch::new("r".into(), at(9)) };
    store.append_run(end).await.unwrap();
    let before = Some(at(99));
    let RunResult::Purged { more: true, .. } = store.write_run(RunOperation::Purge { before }).await.unwrap() else {
        panic!("not all rows fit in one transaction")
    };
    drop(store);
    assert!((1_000..2_403).contains(&files.count("a.db", "run_events")), "some rows are deleted");
    let store = files.open("a.db");
    assert_eq!(store.run(&"r".into()).await.unwrap(), None);
    assert_eq!(store.start_run(new_run("r", &["a"])).await.unwrap(), StartOutcome::New, "the id is free");
    assert!(store.purge_runs(at(99), Duration::from_secs(1)).await.unwrap().is_empty(), "it was returned before");
    assert_eq!(files.count("a.db", "run_events"), 1_203);
    store.append_run(RunBatch { status: Some(RunStatus::Failed), ..RunBatch::new("r".into(), at(9)) }).await.unwrap();
    store.append_run(RunBatch { status: Some(RunStatus::Failed), ..RunBatch::new("s".into(), at(9)) }).await.unwrap();
    assert_eq!(store.purge_runs(at(99), Duration::from_secs(1)).await.unwrap().len(), 2);
    for table in TABLES {
        assert_eq!(files.count("a.db", table), 0, "{table}");
    }
}

#[tokio::test]
async fn erased_runs_are_not_left_in_the_files() {
    let files = Files::new();
    let store = files.open("a.db");
    let secret: Arc<str> = "my secret is xyzzyxyzzy".repeat(300).into();
    full_run(&store, "s").await;
    let run = NewRun { conversation: Some("c".into()), inputs: secret.clone(), ..new_run("r", &["a"]) };
    store.start_run(run).await.unwrap();
    let unit = claim_one(&store, 2).await;
    let work = UnitBatch {
        events: vec![secret.clone()],
        records: vec![record("s", Some(&secret))],
        blobs: vec![RunBlob { id: "x".into(), text: secret.clone() }],
        questions: vec![NewQuestion { id: "q".into(), question: secret.clone() }],
        new_units: vec![NewUnit::new("b", secret.clone())],
        ..batch(&unit, 3)
    };
    store.append(work).await.unwrap();
    store.append(UnitBatch { checkpoint: Some(secret.clone()), ..batch(&unit, 3) }).await.unwrap();
    store.answer(reply("r", "q", &secret, "e1", 4)).await.unwrap();
    store
        .signal(&"r".into(), Signal::Message { id: "m".into(), unit: None, text: secret.clone() }, at(4))
        .await
        .unwrap();
    assert_eq!(store.erase_runs(&"c".into()).await.unwrap().len(), 1);
    for file in std::fs::read_dir(files.path("")).unwrap() {
        let path = file.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        assert!(!bytes.windows(10).any(|part| part == b"xyzzyxyzzy"), "{}", path.display());
    }
    assert_eq!(store.units(&"s".into()).await.unwrap()[0].status, UnitStatus::Claimed);
}

/// The time of a claim does not grow with the units that cannot be claimed.
#[test]
fn claims_use_the_index_of_due_units() {
    let files = Files::new();
    let connection = schema::open_writer(&files.path("a.db"), false).unwrap();
    let plan = |sql: &str| {
        let mut explain = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let unbound = explain.parameter_count();
        let nothing: Vec<Option<i64>> = vec![Some(1); unbound];
        let lines = explain.query_map(rusqlite::params_from_iter(nothing), |row| row.get::<_, String>(3)).unwrap();
        lines.map(Result::unwrap).collect::<Vec<_>>().join("; ")
    };
    let all = plan(&write::claim_query(false));
    assert!(all.contains("INDEX run_units_due") && !all.contains("TEMP B-TREE"), "{all}");
    let wake = plan("SELECT min(due) FROM run_units WHERE due IS NOT NULL");
    assert!(wake.contains("COVERING INDEX run_units_due"), "{wake}");
}

#[tokio::test]
async fn processes_that_share_a_file_claim_each_unit_once_and_number_events_without_gaps() {
    let files = Files::new();
    // One has the conversations, too.
    let (server, first, second) =
        (files.open("shared.db"), files.open_for_runs("shared.db"), files.open_for_runs("shared.db"));
    assert_eq!(first.start_run(new_run("r", &["a", "b"])).await.unwrap(), StartOutcome::New);
    let a = claim(&server, "server", 2, 1).await.remove(0);
    let b = claim(&second, "second", 2, 9).await;
    assert_eq!((b.len(), &*a.key.unit), (1, "a"));
    assert!(claim(&first, "first", 2, 9).await.is_empty());
    let mut last = 1;
    for _ in 0..10 {
        for (store, unit) in [(&server, &a), (&second, &b[0])] {
            let batch = UnitBatch { events: vec!["{}".into()], ..UnitBatch::new(unit.key.clone(), unit.epoch, at(2)) };
            let seq = store.append(batch).await.unwrap();
            assert_eq!(seq, last + 1);
            last = seq;
        }
    }
    // The owner of one unit cannot write another one, whatever process it is in.
    let foreign = UnitBatch::new(a.key.clone(), a.epoch + 1, at(3));
    assert!(matches!(first.append(foreign).await, Err(RunStoreError::Fenced { .. })));
    assert!(matches!(SqliteStore::open(&files.path("shared.db"), true), Err(StoreError::InUse { .. })));
}
