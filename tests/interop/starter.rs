//! The starter against a model server nobody here wrote: the same project, another model entry in `endpoints.yml`, and nothing
//! else. Once streamed, once in whole answers, once found through the environment.

use std::{
    fs,
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::{Value as Json, json};

use crate::parts::{Part, aimock_with, get};

const ORDER: &str = "I want to book the early boat from Arnvik to Skelby for two";
const AGREED: &str = "go ahead, book it";

/// What the mock answers: commands to the generator, calls to the agent. The generator quotes the newest message.
fn fixtures(day: &str) -> Json {
    let crossing = format!("ARN-SKE-{}-0740", day.replace('-', ""));
    let call = |name: &str, arguments: Json| json!({"name": name, "arguments": arguments});
    json!({"fixtures": [
        {"match": {"userMessage": format!("\"{ORDER}")}, "response": {"content": "start flow book_a_crossing"}},
        {"match": {"userMessage": format!("\"{AGREED}")}, "response": {"content": "set slot booking_confirmed yes"}},
        {"match": {"userMessage": ORDER, "hasToolResult": false}, "response": {
            "content": "I will see which boats go.",
            "toolCalls": [call("search_crossings", json!({"from": "Arnvik", "to": "Skelby", "date": day}))],
        }},
        {"match": {"userMessage": ORDER, "hasToolResult": true}, "response": {"toolCalls": [
            call("set_slot_crossing_id", json!({"slot_value": crossing})),
            call("set_slot_passengers", json!({"slot_value": 2})),
        ]}},
    ]})
}

/// The starter in a folder of its own, with this model entry.
fn starter(entry: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    fs::copy(root.join("config.yml"), folder.path().join("config.yml")).unwrap();
    crate::folder::copy_folder(&root.join("flows/ferries"), &folder.path().join("flows/ferries"));
    let endpoints = fs::read_to_string(root.join("endpoints.yml")).unwrap();
    let ours = endpoints.lines().find(|line| line.trim_start().starts_with("models: [{ provider: scripted")).unwrap();
    let theirs = format!("    models: [{{ {entry} }}]");
    fs::write(folder.path().join("endpoints.yml"), endpoints.replace(ours, &theirs)).unwrap();
    folder
}

fn in_a_week() -> String {
    use segue::clock::{Clock, SystemClock};
    let now = SystemClock.now().to_utc();
    (now + chrono::TimeDelta::days(7)).format("%Y-%m-%d").to_string()
}

/// What the mock is asked: where, for which model, and whether in pieces.
struct Asked {
    path: &'static str,
    model: &'static str,
    is_streamed: bool,
}

const COMPLETIONS: Asked = Asked { path: "/v1/chat/completions", model: "gpt-4o", is_streamed: true };
const MESSAGES: Asked = Asked { path: "/v1/messages", model: "claude-haiku-4-5", is_streamed: true };

/// The conversation, and what the mock says it was asked; what the models used stands in the trace.
fn books(wire: Asked, entry: impl Fn(u16) -> String, environment: impl Fn(u16) -> Vec<(&'static str, String)>) {
    // The mock knows no dates: the day is put into its answers.
    let day = in_a_week();
    let rules = tempfile::NamedTempFile::with_suffix(".json").unwrap();
    fs::write(rules.path(), fixtures(&day).to_string()).unwrap();
    let mut mock = Part::start(&mut aimock_with(rules.path()));
    let port = mock.port();
    let folder = starter(&entry(port));
    let mut command = Command::new(env!("CARGO_BIN_EXE_segue"));
    for name in ["OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_API_BASE", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"] {
        command.env_remove(name);
    }
    command.arg("chat").arg(folder.path()).envs(environment(port)).env("FOREIGN_KEY", "sk-foreign");
    let mut chat = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    chat.stdin.take().unwrap().write_all(format!("{ORDER}\n{AGREED}\n").as_bytes()).unwrap();
    let output = chat.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("filler: I will see which boats go."), "{said}\n{log}");
    let stored = fs::read_to_string(folder.path().join(".segue/ferries.json")).unwrap();
    let stored: Json = serde_json::from_str(&stored).unwrap();
    let booking = &stored["bookings"][0];
    assert_eq!(booking["passengers"], json!(2), "{stored}");
    assert_eq!(booking["crossing_id"], json!(format!("ARN-SKE-{}-0740", day.replace('-', ""))), "{stored}");
    assert!(said.contains(booking["reference"].as_str().unwrap()), "the stored reference is told: {said}");
    let asked = get(port, "/__aimock/journal");
    let asked: Json = serde_json::from_str(asked.split_once("\r\n\r\n").unwrap().1).unwrap();
    let asked = asked.as_array().unwrap();
    assert_eq!(asked.len(), 4, "two messages for the generator, two passes of the agent: {asked:#?}");
    for request in asked {
        assert_eq!(request["path"], json!(wire.path));
        let (model, streams) = (&request["body"]["model"], &request["body"]["stream"]);
        assert_eq!((model, streams), (&json!(wire.model), &json!(wire.is_streamed)), "{request:#}");
    }
}

fn at(port: u16, more: &str) -> String {
    format!(
        "provider: openai, model: gpt-4o, api_base: \"http://127.0.0.1:{port}/v1\", api_key: \"${{FOREIGN_KEY}}\"{more}"
    )
}

#[test]
fn the_starter_books_with_a_foreign_model_server_that_streams() {
    books(COMPLETIONS, |port| at(port, ""), |_| Vec::new());
}

#[test]
fn the_starter_books_with_a_foreign_model_server_that_answers_whole() {
    let whole = Asked { is_streamed: false, ..COMPLETIONS };
    books(whole, |port| at(port, ", stream: false"), |_| Vec::new());
}

#[test]
fn the_starter_finds_a_foreign_model_server_through_the_environment() {
    let entry = |_| "provider: openai, model: gpt-4o".to_owned();
    books(COMPLETIONS, entry, |port| {
        vec![("OPENAI_BASE_URL", format!("http://127.0.0.1:{port}/v1")), ("OPENAI_API_KEY", "sk-foreign".to_owned())]
    });
}

fn claude_at(port: u16, more: &str) -> String {
    let base = format!("http://127.0.0.1:{port}");
    format!("provider: anthropic, model: claude-haiku-4-5, api_base: \"{base}\", api_key: \"${{FOREIGN_KEY}}\"{more}")
}

#[test]
fn the_starter_books_over_the_messages_wire_that_streams() {
    books(MESSAGES, |port| claude_at(port, ""), |_| Vec::new());
}

#[test]
fn the_starter_books_over_the_messages_wire_that_answers_whole() {
    let whole = Asked { is_streamed: false, ..MESSAGES };
    books(whole, |port| claude_at(port, ", stream: false"), |_| Vec::new());
}

#[test]
fn the_starter_finds_a_foreign_messages_server_through_the_environment() {
    let entry = |_| "provider: anthropic, model: claude-haiku-4-5".to_owned();
    books(MESSAGES, entry, |port| {
        vec![("ANTHROPIC_BASE_URL", format!("http://127.0.0.1:{port}")), ("ANTHROPIC_API_KEY", "sk-foreign".to_owned())]
    });
}
