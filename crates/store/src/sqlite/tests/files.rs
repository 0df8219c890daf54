//! Tests of files: locking, permissions, removal, backup, and failures of the file.

use super::*;

#[tokio::test]
async fn one_store_writes_and_others_may_read() {
    let files = Files::new();
    let store = files.open("a.db");
    complete_turn(&store, "c", "m1", 1).await;
    let id = ConversationId::from("c");
    let refused = SqliteStore::open(&files.path("a.db"), false).err().unwrap();
    let own = std::process::id();
    assert!(matches!(&refused, StoreError::InUse { pid: Some(pid), .. } if *pid == own), "{refused}");
    assert!(refused.to_string().contains(&format!("(pid {own})")), "{refused}");
    let view = SqliteStore::open_read_only(&files.path("a.db")).unwrap();
    assert_eq!(view.load(&id).await.unwrap().tail.len(), 2);
    assert_eq!(view.pending_replies(&id).await.unwrap().len(), 1);
    // Later writes are visible, and the view cannot write.
    complete_turn(&store, "c", "m2", 2).await;
    assert_eq!(view.load(&id).await.unwrap().version, Version(2));
    assert_eq!(view.accept(message("c", "m3", 3)).await.unwrap_err().code(), "S0106");
    drop(store);
    let again = files.open("a.db");
    complete_turn(&again, "c", "m3", 3).await;
    assert_eq!(view.load(&id).await.unwrap().version, Version(3));
}

#[tokio::test]
async fn a_stale_lock_file_does_not_lock() {
    let files = Files::new();
    drop(files.open("a.db"));
    std::fs::write(files.path("a.db.lock"), "1\n").unwrap();
    complete_turn(&files.open("a.db"), "c", "m1", 1).await;
    std::fs::remove_file(files.path("a.db.lock")).unwrap();
    complete_turn(&files.open("a.db"), "c", "m2", 2).await;
}

#[cfg(unix)]
#[tokio::test]
async fn files_are_readable_by_their_user_only() {
    use std::os::unix::fs::PermissionsExt;
    let files = Files::new();
    let modes = || {
        let found = std::fs::read_dir(files.path("")).unwrap().map(Result::unwrap);
        let mode = |file: std::fs::DirEntry| {
            (file.file_name().into_string().unwrap(), file.metadata().unwrap().permissions().mode() & 0o777)
        };
        let mut modes: Vec<_> = found.map(mode).collect();
        modes.sort();
        modes
    };
    let all = ["a.db", "a.db-shm", "a.db-wal", "a.db.lock"].map(|name| (name.to_owned(), 0o600));
    let store = files.open("a.db");
    complete_turn(&store, "c", "m1", 1).await;
    assert_eq!(modes(), all);
    drop(store);
    // Files of an earlier version were readable by everybody.
    for (name, _) in modes() {
        std::fs::set_permissions(files.path(&name), std::fs::Permissions::from_mode(0o644)).unwrap();
    }
    let _store = files.open("a.db");
    assert_eq!(modes(), all);
}

#[tokio::test]
async fn close_merges_all_data_into_the_main_file() {
    let files = Files::new();
    let store = files.open("a.db");
    complete_turn(&store, "c", "m1", 1).await;
    store.mark_delivered(&"c".into(), vec!["c-1".into()]).await.unwrap();
    store.close().await.unwrap();
    assert_eq!(std::fs::metadata(files.path("a.db-wal")).unwrap().len(), 0);
    std::fs::copy(files.path("a.db"), files.path("b.db")).unwrap();
    let copy = files.open("b.db");
    assert_eq!(copy.load(&"c".into()).await.unwrap().version, Version(1));
    assert_eq!(copy.pending_replies(&"c".into()).await.unwrap(), [], "queued delivery marks are stored");
    complete_turn(&store, "c", "m2", 2).await;
    drop(store);
    assert!(!files.path("a.db-wal").exists());
}

/// Counts busy callbacks of a store while another connection locks the file.
static TRIED: AtomicU32 = AtomicU32::new(0);

#[test]
fn a_locked_file_is_tried_once_for_all_waiting_requests() {
    let files = Files::new();
    drop(files.open("a.db"));
    let mut writer = schema::open_writer(&files.path("a.db"), false).unwrap();
    writer
        .busy_handler(Some(|_| {
            TRIED.fetch_add(1, Ordering::SeqCst);
            false
        }))
        .unwrap();
    let other = Connection::open(files.path("a.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let count = 2 * limits::GROUP_COMMIT_MAX;
    let (requests, mut waiting) = mpsc::channel(count);
    let answers: Vec<_> = (0..count)
        .map(|n| {
            let (answer, answered) = oneshot::channel();
            requests
                .try_send(WriteRequest { work: accept_operation(&message(&format!("c{n}"), "m", 1)).unwrap(), answer })
                .ok()
                .unwrap();
            answered
        })
        .collect();
    drop(requests);
    writer::run(&writer, &FileState::default(), &mut waiting);
    for answer in answers {
        assert!(matches!(answer.blocking_recv().unwrap(), Err(StoreError::Unavailable(_))));
    }
    assert_eq!(TRIED.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn the_writer_restarts_after_a_panic() {
    let files = Files::new();
    let store = files.open("a.db");
    complete_turn(&store, "c", "m1", 1).await;
    let (broken, other) = tokio::join!(store.write(WriteOperation::Panic), store.ping());
    assert!(matches!(broken, Err(StoreError::Unavailable(_))));
    let _ = other;
    store.ping().await.unwrap();
    complete_turn(&store, "c", "m2", 2).await;
}

#[tokio::test]
async fn a_dropped_read_holds_its_permit_until_it_ends() {
    let files = Files::new();
    let store = files.open("a.db");
    let (finish, wait) = std::sync::mpsc::channel::<()>();
    let mut read = Box::pin(store.read(move |_| {
        let _ = wait.recv();
        Ok(())
    }));
    assert!(futures::poll!(&mut read).is_pending());
    drop(read);
    assert_eq!(store.readers.permits.available_permits(), limits::STORE_READERS - 1);
    finish.send(()).unwrap();
    let all = limits::STORE_READERS.try_into().unwrap();
    let _places = store.readers.permits.acquire_many(all).await.unwrap();
    assert_eq!(store.readers.lock().len(), 1);
}

#[cfg(unix)]
#[tokio::test]
async fn ping_detects_removed_or_replaced_files() {
    let files = Files::new();
    for (name, victim) in [("a.db", "a.db"), ("b.db", "b.db-wal")] {
        let store = files.open(name);
        store.ping().await.unwrap();
        let aside = files.path("aside");
        std::fs::rename(files.path(victim), &aside).unwrap();
        let error = store.ping().await.unwrap_err();
        assert!(matches!(&error, StoreError::Unavailable(why) if why.contains(victim)), "{error}");
        std::fs::copy(&aside, files.path(victim)).unwrap();
        store.ping().await.unwrap_err();
        std::fs::rename(&aside, files.path(victim)).unwrap();
        store.ping().await.unwrap();
    }
}

#[cfg(unix)]
#[tokio::test]
async fn nothing_counts_as_written_to_a_removed_file() {
    let files = Files::new();
    let (store, runs) = (files.open("a.db"), files.open("b.db"));
    drop(runs);
    let runs = SqliteStore::open_for_runs(&files.path("b.db"), true).unwrap();
    for file in std::fs::read_dir(files.path("")).unwrap() {
        std::fs::remove_file(file.unwrap().path()).unwrap();
    }
    assert_eq!(store.accept(message("c", "m1", 1)).await.unwrap_err().code(), "S0103");
    let started = crate::runs::RunStore::start_run(&runs, crate::runs::contract::new_run("r", &["a"])).await;
    assert_eq!(started.unwrap_err().code(), "S0103");
}

/// Performs an operation of a writer that has this state.
fn perform(connection: &Connection, state: &FileState, work: WriteOperation) -> Result<WriteResult, StoreError> {
    let (requests, mut waiting) = mpsc::channel(1);
    let (answer, answered) = oneshot::channel();
    requests.try_send(WriteRequest { work, answer }).ok().unwrap();
    drop(requests);
    writer::run(connection, state, &mut waiting);
    answered.blocking_recv().unwrap()
}

#[test]
fn a_store_that_failed_counts_as_down_until_a_write_of_the_size_of_a_turn_succeeds() {
    let files = Files::new();
    drop(files.open("a.db"));
    let (connection, state) = (schema::open_writer(&files.path("a.db"), false).unwrap(), FileState::default());
    perform(&connection, &state, WriteOperation::Ping).unwrap();
    let pages = |most: &str| {
        connection.query_row(&format!("PRAGMA max_page_count = {most}"), [], |row| row.get::<_, i64>(0)).unwrap()
    };
    let used: i64 = connection.query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap();
    pages(&used.to_string());
    let mut long = message("c", "m1", 1);
    long.message.text = "x".repeat(100_000).into();
    let accepted = perform(&connection, &state, accept_operation(&long).unwrap());
    assert_eq!(accepted.err().unwrap().code(), "S0103");
    for _ in 0..2 {
        assert_eq!(perform(&connection, &state, WriteOperation::Ping).err().unwrap().code(), "S0103");
    }
    pages("1000000");
    perform(&connection, &state, WriteOperation::Ping).unwrap();
    perform(&connection, &state, accept_operation(&long).unwrap()).unwrap();
}

#[test]
fn processes_that_create_a_file_at_the_same_time_all_get_it() {
    let files = Files::new();
    std::fs::create_dir_all(files.path("")).unwrap();
    for round in 0..5 {
        let path = files.path(&format!("{round}.db"));
        std::thread::scope(|scope| {
            let opened: Vec<_> =
                (0..4).map(|_| scope.spawn(|| SqliteStore::open_for_runs(&path, true).map(drop))).collect();
            for one in opened {
                one.join().unwrap().unwrap();
            }
        });
    }
}

#[tokio::test]
async fn intents_of_an_earlier_process_prevent_a_second_start() {
    let files = Files::new();
    let (id, turn) = (ConversationId::from("c"), TurnNumber(1));
    let store = files.open("a.db");
    store.accept(message("c", "m", 1)).await.unwrap();
    store.append_journal(&id, turn, vec![record("a", None)]).await.unwrap();
    drop(store);
    files.execute(
        "a.db",
        "INSERT INTO journal (conversation, turn, step, kind, request, outcome, at, build, checksum)
         VALUES (1, 1, 'old', 'tool', 'hash', NULL, 1, -1, 0)",
    );
    let (store, other) = (files.open("a.db"), files.open_unlocked("a.db"));
    for key in ["a", "old"] {
        assert_eq!(
            store.append_journal(&id, turn, vec![record(key, None)]).await.unwrap_err().code(),
            "S0108",
            "{key}"
        );
    }
    // Two processes may not start one step either, should both ever open the file.
    other.append_journal(&id, turn, vec![record("b", None)]).await.unwrap();
    assert_eq!(store.append_journal(&id, turn, vec![record("b", None)]).await.unwrap_err().code(), "S0108");
    store.append_journal(&id, turn, vec![record("c", None)]).await.unwrap();
    assert_eq!(other.append_journal(&id, turn, vec![record("c", None)]).await.unwrap_err().code(), "S0108");
}

#[tokio::test]
async fn a_backup_is_one_complete_file() {
    let files = Files::new();
    let store = files.open("a.db");
    let id = ConversationId::from("c");
    complete_turn(&store, "c", "m1", 1).await;
    store.accept(message("c", "m2", 2)).await.unwrap();
    let announce = |reply: &str| crate::announce_reply(reply, Timestamp::from_micros(5), 7);
    store.append_journal(&id, TurnNumber(2), vec![record("a", None)]).await.unwrap();
    store.append_journal(&id, TurnNumber(2), vec![announce("2/r0")]).await.unwrap();
    let copy = files.path("copy.db");
    SqliteStore::backup(&files.path("a.db"), &copy).unwrap();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o600);
    }
    let held = std::fs::read(&copy).unwrap();
    let refused = SqliteStore::backup(&files.path("a.db"), &copy).unwrap_err();
    assert_eq!(refused.code(), "S0106");
    assert!(std::fs::read(&copy).unwrap() == held, "nothing is overwritten");
    // The original stays usable, and the copy opens with the same content.
    complete_turn(&store, "d", "m1", 3).await;
    let other = files.open("copy.db");
    assert_eq!(other.conversations(9).await.unwrap(), ["c"]);
    assert_eq!(other.load(&id).await.unwrap().tail, store.load(&id).await.unwrap().tail);
    let open = other.unfinished_turns(&id).await.unwrap();
    let keys: Vec<_> = open[0].journal.iter().map(|record| record.key.as_str().to_owned()).collect();
    assert_eq!(keys, ["a", "speaking/2/r0"]);
    assert_eq!(other.accept(message("c", "m2", 2)).await.unwrap(), AcceptOutcome::Running(TurnNumber(2)));
}

#[tokio::test]
async fn a_failed_backup_leaves_no_file() {
    let files = Files::new();
    drop(files.open("a.db"));
    let nowhere = files.path("none").join("copy.db");
    assert_eq!(SqliteStore::backup(&files.path("a.db"), &nowhere).unwrap_err().code(), "S0103");
    std::fs::write(files.path("b.db"), "no database at all, however long it may be".repeat(100)).unwrap();
    assert!(SqliteStore::backup(&files.path("b.db"), &files.path("copy.db")).is_err());
    assert!(!files.path("copy.db").exists());
}

#[tokio::test]
async fn problems_include_corrupt_conversations() {
    let files = Files::new();
    let store = files.open("a.db");
    for id in ["bit", "head", "fine"] {
        complete_turn(&store, id, "m1", 1).await;
        store.mark_delivered(&id.into(), vec![format!("{id}-1").into()]).await.unwrap();
    }
    store.close().await.unwrap();
    let of = "(SELECT number FROM conversations WHERE id = 'bit')";
    files.execute("a.db", &format!("UPDATE batches SET events = x'00' WHERE conversation = {of}"));
    files.execute("a.db", "UPDATE conversations SET open = 'x' WHERE id = 'head'");
    let found = SqliteStore::open_read_only(&files.path("a.db")).unwrap().problems().await.unwrap();
    let ids: Vec<_> =
        found.iter().map(|problem| (problem.conversation.as_str(), problem.corruption.is_some())).collect();
    assert_eq!(ids, [("bit", true), ("head", true)]);
}

#[test]
fn control_characters_of_ids_are_escaped_in_messages() {
    let error = StoreError::corrupt(&"a\u{1b}[2J\nERROR b".into(), "gone");
    assert!(!error.to_string().contains(char::is_control), "{error:?}");
}
