//! SQLite stores on disk: one process writes at a time while others read and back up the file, and `segue doctor` repairs it.

use crate::{
    program::run_in,
    project,
    support::server_process::{client, start_courier},
};

/// Sends a message and returns the texts of the replies, one per line. A reply with an unknown delivery may be repeated before them.
async fn say(address: &str, text: &str) -> String {
    let body = serde_json::json!({"sender": "u1", "message": text}).to_string();
    let response = client().post(format!("{address}/webhooks/rest/webhook")).body(body).send().await.unwrap();
    let replies: serde_json::Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
    replies.as_array().unwrap().iter().filter_map(|reply| reply["text"].as_str()).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn second_writing_process_is_refused_and_readers_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let courier = project("courier");
    let (mut server, address) = start_courier(folder.path(), &["--store", "sqlite:talks.db"]);
    assert!(say(&address, "track it").await.contains("Which parcel?"));
    let pid = server.child.id().to_string();
    assert_eq!(std::fs::read_to_string(folder.path().join("talks.db.lock")).unwrap().trim(), pid);

    let event = r#"{"sender_id": "u2", "event": "user", "text": "hi", "timestamp": 1.0}"#;
    std::fs::write(folder.path().join("events.jsonl"), event).unwrap();
    for command in [
        &["run", "--port", "0"][..],
        &["chat", "--conversation", "u1"],
        &["import", "--from", "events.jsonl"],
        #[cfg(feature = "mcp")]
        &["mcp"],
    ] {
        let (name, more) = command.split_first().unwrap();
        let arguments = [&[*name, &*courier][..], more, &["--store", "sqlite:talks.db"]].concat();
        let output = run_in(folder.path(), &arguments, "track it\n");
        assert_eq!(output.code, 3, "{command:?}: {}", output.err);
        for expected in [format!("(pid {pid})").as_str(), "S0107", "talks.db", "stop that process"] {
            assert!(output.err.contains(expected), "{command:?}: {}", output.err);
        }
    }
    for command in [&["trace", "u1"][..], &["replay", "u1"], &["doctor", "list"], &["backup", "copy.db"]] {
        let arguments = [command, &[&*courier, "--store", "sqlite:talks.db"]].concat();
        let output = run_in(folder.path(), &arguments, "");
        assert_eq!(output.code, 0, "{command:?}: {}", output.err);
    }
    assert!(say(&address, "number X7").await.contains("Parcel X7 is under way."));

    // A crash releases the lock at once.
    server.kill();
    let (_server, address) = start_courier(folder.path(), &["--store", "sqlite:talks.db"]);
    assert!(say(&address, "track it").await.contains("Which parcel?"));

    // The backup has the conversation as it was, and the conversation can continue from it.
    let replay = run_in(folder.path(), &["replay", "u1", &courier, "--store", "copy.db"], "");
    assert!(replay.code == 0 && replay.out.starts_with("replay matches"), "{}{}", replay.out, replay.err);
    let chat = ["chat", &courier, "--store", "copy.db", "--conversation", "u1"];
    let chat_output = run_in(folder.path(), &chat, "number X9\n");
    assert!(chat_output.lines().contains(&"bot: Parcel X9 is under way."), "{}{}", chat_output.out, chat_output.err);
}

#[cfg(unix)]
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_second_process_is_refused_without_the_lock_file_and_under_another_name_of_the_database() {
    let folder = tempfile::tempdir().unwrap();
    let courier = project("courier");
    let (_server, address) = start_courier(folder.path(), &["--store", "sqlite:talks.db"]);
    assert!(say(&address, "track it").await.contains("Which parcel?"));
    std::fs::remove_file(folder.path().join("talks.db.lock")).unwrap();
    std::fs::hard_link(folder.path().join("talks.db"), folder.path().join("other.db")).unwrap();
    for store in ["sqlite:talks.db", "sqlite:other.db"] {
        let output = run_in(folder.path(), &["run", &courier, "--port", "0", "--store", store], "");
        assert_eq!((output.code, output.err.contains("S0107")), (3, true), "{store}: {}", output.err);
    }
    assert!(say(&address, "number X7").await.contains("Parcel X7 is under way."), "the first process works on");
    let created = run_in(folder.path(), &["init", "plan", "--template", "mission"], "");
    assert_eq!(created.code, 0, "{}", created.err);
    for (store, code) in [("sqlite:../talks.db", 3), ("sqlite:../other.db", 3)] {
        let output = run_in(&folder.path().join("plan"), &["mission", "cancel", "nothing", "--store", store], "");
        assert_eq!((output.code, output.err.contains("2 names")), (code, true), "{store}: {}", output.err);
    }
}

#[tokio::test]
async fn database_files_are_private_and_clean_shutdown_merges_the_write_ahead_log() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let (mut server, address) = start_courier(folder.path(), &["--store", "sqlite:talks.db"]);
    say(&address, "track it").await;
    let files = || std::fs::read_dir(folder.path()).unwrap().map(Result::unwrap);
    let database_files = || files().filter(|file| file.file_name().to_string_lossy().starts_with("talks.db"));
    for file in database_files() {
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{:?}", file.path());
    }
    assert!(database_files().count() >= 4);
    server.terminate();
    let wal_bytes = std::fs::metadata(folder.path().join("talks.db-wal")).map_or(0, |log| log.len());
    assert_eq!(wal_bytes, 0, "the write-ahead log is merged into the file");
}

#[test]
fn doctor_lists_and_closes_open_turns_and_erases_conversations() {
    let folder = tempfile::tempdir().unwrap();
    let courier = project("courier");
    let store = ["--store", "sqlite:talks.db"];
    let chat = ["chat", &courier, "--conversation", "u1"];
    let output = run_in(folder.path(), &[&chat[..], &store].concat(), "track it\n");
    assert_eq!(output.code, 0, "{}", output.err);
    let list = |more: &[&str]| run_in(folder.path(), &[&["doctor", "list", &courier][..], &store, more].concat(), "");
    let output = list(&[]);
    assert_eq!(
        (output.code, output.lines()),
        (0, vec!["no conversation has open turns, undelivered replies or damage"])
    );
    let open =
        "UPDATE conversations SET open = '[[1,1000000]]'; DELETE FROM batches; UPDATE conversations SET version = 0";
    rusqlite::Connection::open(folder.path().join("talks.db")).unwrap().execute_batch(open).unwrap();
    let output = list(&[]);
    assert!(output.out.starts_with("u1\n  turn 1: open since 1970-01-01 00:00:01 UTC"), "{}", output.out);
    assert!(output.out.contains(", tried once\n"), "{}", output.out);
    assert!(output.err.ends_with("1 conversation, with 1 open turn\n"), "{}", output.err);
    let trace = |more: &[&str]| run_in(folder.path(), &[&["trace", "u1", &courier][..], &store, more].concat(), "");
    let open = trace(&["--turn", "1"]);
    assert!(
        open.code == 0 && open.out.contains("turn 1 is open, not finished, tried once"),
        "{}{}",
        open.out,
        open.err
    );
    let open: serde_json::Value = serde_json::from_str(&trace(&["--format", "json"]).out).unwrap();
    assert_eq!((&open[0]["turn"], &open[0]["open"]), (&1.into(), &true.into()));
    assert_eq!(trace(&["--turn", "7"]).code, 2);
    let json: serde_json::Value = serde_json::from_str(&list(&["--format", "json"]).out).unwrap();
    let problem = &json["conversations"][0];
    assert_eq!((&problem["conversation"], &problem["open"][0]["turn"]), (&"u1".into(), &1.into()));
    assert_eq!(problem["open"][0]["attempts"], 1);
    let doctor =
        |command: &[&str]| run_in(folder.path(), &[&["doctor"][..], command, &[&*courier], &store].concat(), "");
    let other = doctor(&["close", "u1", "--turn", "7"]);
    assert!(other.code == 2 && other.err.contains("no open turn 7"), "{}", other.err);
    let closed = doctor(&["close", "u1"]);
    assert_eq!(closed.code, 0, "{}", closed.err);
    assert!(closed.out.starts_with("turn 1 is closed; the user receives: "), "{}", closed.out);
    assert_eq!(list(&[]).lines(), ["u1", "  1 replies are not delivered"]);
    // The conversation continues.
    let output = run_in(folder.path(), &[&chat[..], &store].concat(), "track it\n");
    assert!(output.code == 0 && output.out.contains("Which parcel?"), "{}{}", output.out, output.err);
    let erased = doctor(&["erase", "u1"]);
    assert_eq!((erased.code, erased.out.as_str()), (0, "conversation u1 was deleted\n"), "{}", erased.err);
    assert_eq!(doctor(&["erase", "u1"]).code, 2);
    assert!(list(&[]).out.starts_with("no conversation"));
    let missing = run_in(folder.path(), &["doctor", "list", &courier, "--store", "none.db"], "");
    assert!(missing.code == 3 && missing.err.contains("--store"), "{}", missing.err);
}
