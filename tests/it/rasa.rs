//! The command line as hands know it from Rasa, and the way over.

use crate::{
    program::{run, run_in},
    project,
};

#[test]
fn train_and_data_validate_check_and_say_so() {
    let fine = project("generations/3.15");
    let with_key = |arguments: &[&str]| {
        let folder = tempfile::tempdir().unwrap();
        let mut command = crate::program::command();
        let done = command.env("LIBRARY_SECRET", "s").current_dir(folder.path()).args(arguments).output().unwrap();
        (done.status.code().unwrap(), String::from_utf8(done.stderr).unwrap())
    };
    let (code, said) = with_key(&["train", &fine, "--fixed-model-name", "x", "--out", "models", "--debug", "-vv"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("no training is needed") && said.contains("LOG_LEVEL"), "{said}");
    assert_eq!(with_key(&["train", &fine, "--fail-on-validation-warnings"]).0, 1);
    assert_eq!(with_key(&["data", "validate", &fine]).0, 0);
    assert_eq!(run(&["train", &project("broken")], "").code, 1);
    assert_eq!(run(&["data", "validate", &project("broken")], "").code, 1);
    // `data validate flows` names a part.
    let here = run_in(std::path::Path::new(&project("broken")), &["data", "validate", "flows"], "");
    assert_eq!(here.code, 1, "{}", here.err);
}

#[test]
fn shell_talks_and_options_without_a_meaning_are_noted() {
    let ran = run(&["shell", &project("courier"), "-m", "models/x.tar.gz", "--debug"], "track it\n");
    assert_eq!(
        (ran.code, ran.lines()),
        (0, vec!["bot: Which parcel?", "bot: The number stands on your receipt."]),
        "{}",
        ran.err
    );
    assert!(ran.err.contains("there are no trained models") && ran.err.contains("LOG_LEVEL"), "{}", ran.err);
}

#[test]
fn a_connector_that_is_not_spoken_and_commands_of_others_are_answered() {
    let ran = run(&["run", &project("courier"), "--connector", "slack", "-i", "127.0.0.1", "--port", "0"], "");
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(ran.err.contains("`--connector slack`"), "{}", ran.err);
    for (arguments, said) in [
        (vec!["run", "actions"], "rasa run actions"),
        (vec!["visualize"], "segue graph"),
        (vec!["studio", "upload"], "not part of Segue"),
        (vec!["chekc"], "did you mean `segue check`?"),
        (vec!["quite-strange"], "unknown command"),
    ] {
        let ran = run(&arguments, "");
        assert_eq!(ran.code, 2, "{arguments:?}: {}", ran.err);
        assert!(ran.err.contains(said), "{arguments:?}: {}", ran.err);
    }
}

#[cfg(feature = "sqlite")]
#[test]
fn the_database_of_another_program_is_left_as_it_is_and_a_file_beside_it_is_used() {
    let folder = tempfile::tempdir().unwrap();
    crate::folder::copy_folder(project("courier").as_ref(), folder.path());
    let endpoints = folder.path().join("endpoints.yml");
    let text = std::fs::read_to_string(&endpoints).unwrap();
    std::fs::write(&endpoints, text + "\ntracker_store: {type: SQL, dialect: sqlite, db: rasa.db}\n").unwrap();
    let theirs = folder.path().join("rasa.db");
    let connection = rusqlite::Connection::open(&theirs).unwrap();
    let table =
        "CREATE TABLE events (id INTEGER PRIMARY KEY, sender_id TEXT, type_name TEXT, timestamp FLOAT, data TEXT);
        INSERT INTO events VALUES (1, 'ada', 'user', 1.0, '{\"event\": \"user\", \"text\": \"hi\"}');";
    connection.execute_batch(table).unwrap();
    drop(connection);
    let before = std::fs::read(&theirs).unwrap();
    let check = run_in(folder.path(), &["check"], "");
    assert_eq!(check.code, 0, "{}", check.out);
    assert!(check.out.contains("note[S0106]") && check.out.contains("rasa.segue.db"), "{}", check.out);
    // The store is opened before the servers are asked, so this ends with the one that is missing.
    let text = std::fs::read_to_string(&endpoints).unwrap().replace("command: segue", "command: no-such-program");
    std::fs::write(&endpoints, text).unwrap();
    let ran = run_in(folder.path(), &["run", "--port", "0", "--strict"], "");
    assert!(ran.code == 3 && ran.err.contains("MCP server depot"), "{}", ran.err);
    assert!(ran.err.contains("rasa.segue.db") && ran.err.contains("segue import"), "{}", ran.err);
    let import = run_in(folder.path(), &["import", "--from", "sqlite:///rasa.db"], "");
    assert_eq!(import.code, 0, "{}", import.err);
    let trace = run_in(folder.path(), &["replay", "ada"], "");
    assert!(!trace.err.contains("R0201"), "it is there: {}", trace.err);
    assert_eq!(std::fs::read(&theirs).unwrap(), before);
}

#[test]
fn conversations_come_over_and_go_on() {
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
    let ran = run_in(folder.path(), &import, "");
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.contains("1 conversations with 3 events") && ran.out.contains("strange 1"), "{}", ran.out);
    assert!(ran.out.contains("line 4"), "{}", ran.out);
    let again = run_in(folder.path(), &[&import[..], &["--format", "json"]].concat(), "");
    let report: serde_json::Value = serde_json::from_str(&again.out).unwrap();
    assert_eq!((&report["conversations"], &report["already_there"][0]), (&0.into(), &"u1".into()));
    let chat = ["chat", &courier, "--store", "sqlite:talks.db", "--conversation", "u1"];
    let talk = run_in(folder.path(), &chat, "track it\n");
    assert_eq!(talk.lines()[0], "bot: Which parcel?", "{}", talk.err);
    let none = run_in(folder.path(), &["import", &courier, "--from", "postgresql://x/y", "--store", "sqlite:t.db"], "");
    assert_eq!(none.code, 3);
    assert!(none.err.contains("unknown source"), "{}", none.err);
}
