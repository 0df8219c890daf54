//! Commands and options of Rasa that `segue` accepts, and the migration of conversations from Rasa.

use crate::{
    program::{run, run_in},
    project,
};

#[test]
fn train_and_data_validate_check_the_project() {
    let valid = project("generations/3.15");
    let run_with_secret = |arguments: &[&str]| {
        let folder = tempfile::tempdir().unwrap();
        let mut command = crate::program::command();
        let output = command.env("LIBRARY_SECRET", "s").current_dir(folder.path()).args(arguments).output().unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, log) =
        run_with_secret(&["train", &valid, "--fixed-model-name", "x", "--out", "models", "--debug", "-vv"]);
    assert_eq!(code, 0, "{log}");
    assert!(log.contains("no training is needed") && log.contains("LOG_LEVEL"), "{log}");
    assert_eq!(run_with_secret(&["train", &valid, "--fail-on-validation-warnings"]).0, 1);
    assert_eq!(run_with_secret(&["data", "validate", &valid]).0, 0);
    assert_eq!(run(&["train", &project("broken")], "").code, 1);
    assert_eq!(run(&["data", "validate", &project("broken")], "").code, 1);
    // `data validate flows` checks the whole project.
    let flows = run_in(std::path::Path::new(&project("broken")), &["data", "validate", "flows"], "");
    assert_eq!(flows.code, 1, "{}", flows.err);
}

#[test]
fn shell_chats_and_reports_ignored_options() {
    let output = run(&["shell", &project("courier"), "-m", "models/x.tar.gz", "--debug"], "track it\n");
    assert_eq!(
        (output.code, output.lines()),
        (0, vec!["bot: Which parcel?", "bot: The number stands on your receipt."]),
        "{}",
        output.err
    );
    assert!(output.err.contains("there are no trained models") && output.err.contains("LOG_LEVEL"), "{}", output.err);
}

#[test]
fn unsupported_connectors_and_commands_are_explained() {
    let output = run(&["run", &project("courier"), "--connector", "slack", "-i", "127.0.0.1", "--port", "0"], "");
    assert_eq!(output.code, 2, "{}", output.err);
    assert!(output.err.contains("`--connector slack`"), "{}", output.err);
    for (arguments, message) in [
        (vec!["run", "actions"], "rasa run actions"),
        (vec!["visualize"], "segue graph"),
        (vec!["studio", "upload"], "not part of Segue"),
        (vec!["data", "split", "nlu"], "`data split` is for NLU data"),
        (vec!["data", "migrate"], "`segue check`"),
        (vec!["train", "nlu"], "no NLU or Core model to train"),
        (vec!["chekc"], "did you mean `segue check`?"),
        (vec!["quite-strange"], "unknown command"),
    ] {
        let output = run(&arguments, "");
        assert_eq!(output.code, 2, "{arguments:?}: {}", output.err);
        assert!(output.err.contains(message), "{arguments:?}: {}", output.err);
    }
}

#[cfg(feature = "sqlite")]
#[test]
fn rasa_tracker_store_is_not_changed_and_a_file_beside_it_is_used() {
    let folder = tempfile::tempdir().unwrap();
    crate::folder::copy_folder(project("courier").as_ref(), folder.path());
    let endpoints = folder.path().join("endpoints.yml");
    let text = std::fs::read_to_string(&endpoints).unwrap();
    std::fs::write(&endpoints, text + "\ntracker_store: {type: SQL, dialect: sqlite, db: rasa.db}\n").unwrap();
    let database = folder.path().join("rasa.db");
    let connection = rusqlite::Connection::open(&database).unwrap();
    let table =
        "CREATE TABLE events (id INTEGER PRIMARY KEY, sender_id TEXT, type_name TEXT, timestamp FLOAT, data TEXT);
        INSERT INTO events VALUES (1, 'ada', 'user', 1.0, '{\"event\": \"user\", \"text\": \"hi\"}');";
    connection.execute_batch(table).unwrap();
    drop(connection);
    let before = std::fs::read(&database).unwrap();
    let check = run_in(folder.path(), &["check"], "");
    assert_eq!(check.code, 0, "{}", check.out);
    assert!(check.out.contains("note[S0106]") && check.out.contains("rasa.segue.db"), "{}", check.out);
    // The store is opened before the tool servers are started, so the run fails with the missing tool server.
    let text = std::fs::read_to_string(&endpoints).unwrap().replace("command: segue", "command: no-such-program");
    std::fs::write(&endpoints, text).unwrap();
    let output = run_in(folder.path(), &["run", "--port", "0", "--strict"], "");
    assert!(output.code == 3 && output.err.contains("MCP server depot"), "{}", output.err);
    assert!(output.err.contains("rasa.segue.db") && output.err.contains("segue import"), "{}", output.err);
    let import = run_in(folder.path(), &["import", "--from", "sqlite:///rasa.db"], "");
    assert_eq!(import.code, 0, "{}", import.err);
    let replay = run_in(folder.path(), &["replay", "ada"], "");
    assert!(!replay.err.contains("R0201"), "the conversation is imported: {}", replay.err);
    assert_eq!(std::fs::read(&database).unwrap(), before);
}

#[test]
fn imported_conversations_continue() {
    let folder = tempfile::tempdir().unwrap();
    let events = [
        r#"{"sender_id": "u1", "event": "user", "text": "track it", "timestamp": 1.0}"#,
        r#"{"sender_id": "u1", "event": "bot", "text": "Which parcel?", "timestamp": 2.0}"#,
        r#"{"sender_id": "u1", "event": "strange", "timestamp": 3.0}"#,
        "nonsense",
    ];
    std::fs::write(folder.path().join("events.jsonl"), events.join("\n")).unwrap();
    let courier = project("courier");
    let import = ["import", &courier, "--from", "events.jsonl", "--store", "sqlite:talks.db"];
    let output = run_in(folder.path(), &import, "");
    assert_eq!(output.code, 0, "{}", output.err);
    assert!(output.out.contains("1 conversations with 3 events") && output.out.contains("strange 1"), "{}", output.out);
    assert!(output.out.contains("line 4"), "{}", output.out);
    let again = run_in(folder.path(), &[&import[..], &["--format", "json"]].concat(), "");
    let report: serde_json::Value = serde_json::from_str(&again.out).unwrap();
    assert_eq!((&report["conversations"], &report["already_there"][0]), (&0.into(), &"u1".into()));
    let chat = ["chat", &courier, "--store", "sqlite:talks.db", "--conversation", "u1"];
    let chat_output = run_in(folder.path(), &chat, "track it\n");
    assert_eq!(chat_output.lines()[0], "bot: Which parcel?", "{}", chat_output.err);
    let unknown =
        run_in(folder.path(), &["import", &courier, "--from", "postgresql://x/y", "--store", "sqlite:t.db"], "");
    assert_eq!(unknown.code, 3);
    assert!(unknown.err.contains("unknown source"), "{}", unknown.err);
}
