//! One process at a time writes to a store; others look at it, and copy it.

use crate::{
    program::run_in,
    project,
    run::{client, started},
};

/// Sends one message and gives what is said, on lines. A reply whose delivery is not known may come once more before it.
async fn say(address: &str, text: &str) -> String {
    let body = serde_json::json!({"sender": "u1", "message": text}).to_string();
    let answer = client().post(format!("{address}/webhooks/rest/webhook")).body(body).send().await.unwrap();
    let said: serde_json::Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
    said.as_array().unwrap().iter().filter_map(|reply| reply["text"].as_str()).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn a_second_process_that_would_write_is_refused_and_those_that_read_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let courier = project("courier");
    let (mut server, address) = started(folder.path(), &["--store", "sqlite:talks.db"]);
    assert!(say(&address, "track it").await.contains("Which parcel?"));
    let pid = server.0.id().to_string();
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
        let ran = run_in(folder.path(), &arguments, "track it\n");
        assert_eq!(ran.code, 3, "{command:?}: {}", ran.err);
        for said in [format!("(pid {pid})").as_str(), "S0107", "talks.db", "stop that process"] {
            assert!(ran.err.contains(said), "{command:?}: {}", ran.err);
        }
    }
    for command in [&["trace", "u1"][..], &["replay", "u1"], &["doctor", "list"], &["backup", "copy.db"]] {
        let arguments = [command, &[&*courier, "--store", "sqlite:talks.db"]].concat();
        let ran = run_in(folder.path(), &arguments, "");
        assert_eq!(ran.code, 0, "{command:?}: {}", ran.err);
    }
    assert!(say(&address, "number X7").await.contains("Parcel X7 is under way."));

    // However it ends, the file is free at once.
    server.0.kill().unwrap();
    server.0.wait().unwrap();
    let (_server, address) = started(folder.path(), &["--store", "sqlite:talks.db"]);
    assert!(say(&address, "track it").await.contains("Which parcel?"));

    // The copy has what there was then, and goes on from there.
    let replay = run_in(folder.path(), &["replay", "u1", &courier, "--store", "copy.db"], "");
    assert!(replay.code == 0 && replay.out.starts_with("replay matches"), "{}{}", replay.out, replay.err);
    let chat = ["chat", &courier, "--store", "copy.db", "--conversation", "u1"];
    let talk = run_in(folder.path(), &chat, "number X9\n");
    assert!(talk.lines().contains(&"bot: Parcel X9 is under way."), "{}{}", talk.out, talk.err);
}

#[cfg(unix)]
#[tokio::test]
async fn files_are_private_and_a_clean_end_leaves_one() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let (mut server, address) = started(folder.path(), &["--store", "sqlite:talks.db"]);
    say(&address, "track it").await;
    let files = || std::fs::read_dir(folder.path()).unwrap().map(Result::unwrap);
    let ours = || files().filter(|file| file.file_name().to_string_lossy().starts_with("talks.db"));
    for file in ours() {
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{:?}", file.path());
    }
    assert!(ours().count() >= 4);
    crate::run::end(&mut server.0);
    let log = std::fs::metadata(folder.path().join("talks.db-wal")).map_or(0, |log| log.len());
    assert_eq!(log, 0, "everything is in the one file");
}

#[test]
fn doctor_lists_what_is_stuck_and_ends_it() {
    let folder = tempfile::tempdir().unwrap();
    let courier = project("courier");
    let store = ["--store", "sqlite:talks.db"];
    let talk = ["chat", &courier, "--conversation", "u1"];
    let ran = run_in(folder.path(), &[&talk[..], &store].concat(), "track it\n");
    assert_eq!(ran.code, 0, "{}", ran.err);
    let list = |more: &[&str]| run_in(folder.path(), &[&["doctor", "list", &courier][..], &store, more].concat(), "");
    let ran = list(&[]);
    assert_eq!((ran.code, ran.lines()), (0, vec!["no conversation has open turns, undelivered replies or damage"]));
    let open =
        "UPDATE conversations SET open = '[[1,1000000]]'; DELETE FROM batches; UPDATE conversations SET version = 0";
    rusqlite::Connection::open(folder.path().join("talks.db")).unwrap().execute_batch(open).unwrap();
    let ran = list(&[]);
    assert!(ran.out.starts_with("u1\n  turn 1: open since 1970-01-01 00:00:01 UTC"), "{}", ran.out);
    let json: serde_json::Value = serde_json::from_str(&list(&["--format", "json"]).out).unwrap();
    let found = &json["conversations"][0];
    assert_eq!((&found["conversation"], &found["open"][0]["turn"]), (&"u1".into(), &1.into()));
    assert_eq!(found["open"][0]["attempts"], 1);
    let doctor = |what: &[&str]| run_in(folder.path(), &[&["doctor"][..], what, &[&*courier], &store].concat(), "");
    let other = doctor(&["close", "u1", "--turn", "7"]);
    assert!(other.code == 2 && other.err.contains("no open turn 7"), "{}", other.err);
    let closed = doctor(&["close", "u1"]);
    assert_eq!(closed.code, 0, "{}", closed.err);
    assert!(closed.out.starts_with("turn 1 is closed; the user receives: "), "{}", closed.out);
    assert_eq!(list(&[]).lines(), ["u1", "  1 replies are not delivered"]);
    // The conversation goes on.
    let ran = run_in(folder.path(), &[&talk[..], &store].concat(), "track it\n");
    assert!(ran.code == 0 && ran.out.contains("Which parcel?"), "{}{}", ran.out, ran.err);
    let erased = doctor(&["erase", "u1"]);
    assert_eq!((erased.code, erased.out.as_str()), (0, "conversation u1 was deleted\n"), "{}", erased.err);
    assert_eq!(doctor(&["erase", "u1"]).code, 2);
    assert!(list(&[]).out.starts_with("no conversation"));
    let nowhere = run_in(folder.path(), &["doctor", "list", &courier, "--store", "none.db"], "");
    assert!(nowhere.code == 3 && nowhere.err.contains("--store"), "{}", nowhere.err);
}
