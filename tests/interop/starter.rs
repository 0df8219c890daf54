//! The starter with a mock model server: the project with another model in `endpoints.yml`. Over the APIs of OpenAI and Anthropic; with
//! streamed responses, with whole responses, and with a server that environment variables name.

use std::{
    fs,
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::{Value as Json, json};

use crate::processes::{ChildProcess, aimock_journal, aimock_with};

const ORDER: &str = "I want to book the early boat from Arnvik to Skelby for two";
const CONFIRMATION: &str = "go ahead, book it";

/// The answers of the mock: commands for the command generator, tool calls for the agent. The generator's prompt quotes the newest
/// message, so rules with a quotation mark match only that prompt.
fn fixtures(day: &str) -> Json {
    let crossing = format!("ARN-SKE-{}-0740", day.replace('-', ""));
    let call = |name: &str, arguments: Json| json!({"name": name, "arguments": arguments});
    json!({"fixtures": [
        {"match": {"userMessage": format!("\"{ORDER}")}, "response": {"content": "start flow book_a_crossing"}},
        {"match": {"userMessage": format!("\"{CONFIRMATION}")}, "response": {"content": "set slot booking_confirmed yes"}},
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

/// Copies the starter to a temporary folder, with this model entry.
fn starter(entry: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    fs::copy(root.join("config.yml"), folder.path().join("config.yml")).unwrap();
    crate::folder::copy_folder(&root.join("flows/ferries"), &folder.path().join("flows/ferries"));
    let endpoints = fs::read_to_string(root.join("endpoints.yml")).unwrap();
    let scripted = endpoints.lines().find(|line| line.trim_start().starts_with("models: [{ provider: scripted"));
    let mock = format!("    models: [{{ {entry} }}]");
    fs::write(folder.path().join("endpoints.yml"), endpoints.replace(scripted.unwrap(), &mock)).unwrap();
    folder
}

fn in_a_week() -> String {
    use segue::clock::{Clock, SystemClock};
    let now = SystemClock.now().to_utc();
    (now + chrono::TimeDelta::days(7)).format("%Y-%m-%d").to_string()
}

/// The properties of each request that the mock must receive.
struct ExpectedRequest {
    path: &'static str,
    model: &'static str,
    is_streamed: bool,
}

/// OpenAI's chat completions.
const COMPLETIONS: ExpectedRequest =
    ExpectedRequest { path: "/v1/chat/completions", model: "gpt-4o", is_streamed: true };
/// Anthropic's messages.
const MESSAGES: ExpectedRequest =
    ExpectedRequest { path: "/v1/messages", model: "claude-haiku-4-5", is_streamed: true };

/// Books a crossing with `segue chat`. Checks the booking that is stored and the requests that the mock has received.
fn check_booking(
    expected: ExpectedRequest,
    entry: impl Fn(u16) -> String,
    environment: impl Fn(u16) -> Vec<(&'static str, String)>,
) {
    // The answers of the mock are fixed, so they contain the date.
    let day = in_a_week();
    let rules = tempfile::NamedTempFile::with_suffix(".json").unwrap();
    fs::write(rules.path(), fixtures(&day).to_string()).unwrap();
    let mut mock = ChildProcess::start(&mut aimock_with(rules.path()));
    let port = mock.port();
    let folder = starter(&entry(port));
    let mut command = Command::new(env!("CARGO_BIN_EXE_segue"));
    for name in ["OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_API_BASE", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"] {
        command.env_remove(name);
    }
    command.arg("chat").arg(folder.path()).envs(environment(port)).env("MODEL_KEY", "sk-test");
    let mut chat = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    chat.stdin.take().unwrap().write_all(format!("{ORDER}\n{CONFIRMATION}\n").as_bytes()).unwrap();
    let output = chat.wait_with_output().unwrap();
    let replies = String::from_utf8_lossy(&output.stdout).into_owned();
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(replies.contains("filler: I will see which boats go."), "{replies}\n{log}");
    let stored = fs::read_to_string(folder.path().join(".segue/ferries.json")).unwrap();
    let stored: Json = serde_json::from_str(&stored).unwrap();
    let booking = &stored["bookings"][0];
    assert_eq!(booking["passengers"], json!(2), "{stored}");
    assert_eq!(booking["crossing_id"], json!(format!("ARN-SKE-{}-0740", day.replace('-', ""))), "{stored}");
    assert!(replies.contains(booking["reference"].as_str().unwrap()), "the user gets the stored reference: {replies}");
    let requests = aimock_journal(port);
    assert_eq!(requests.len(), 4, "two of the command generator, two of the agent: {requests:#?}");
    for request in &requests {
        assert_eq!(request["path"], json!(expected.path));
        let (model, stream) = (&request["body"]["model"], &request["body"]["stream"]);
        assert_eq!((model, stream), (&json!(expected.model), &json!(expected.is_streamed)), "{request:#}");
    }
}

/// A model entry for OpenAI's API.
fn openai_entry(port: u16, more: &str) -> String {
    format!(
        "provider: openai, model: gpt-4o, api_base: \"http://127.0.0.1:{port}/v1\", api_key: \"${{MODEL_KEY}}\"{more}"
    )
}

#[test]
fn starter_books_with_streamed_chat_completions() {
    check_booking(COMPLETIONS, |port| openai_entry(port, ""), |_| Vec::new());
}

#[test]
fn starter_books_with_whole_chat_completions() {
    let expected = ExpectedRequest { is_streamed: false, ..COMPLETIONS };
    check_booking(expected, |port| openai_entry(port, ", stream: false"), |_| Vec::new());
}

#[test]
fn starter_books_with_openai_environment_variables() {
    let entry = |_| "provider: openai, model: gpt-4o".to_owned();
    check_booking(COMPLETIONS, entry, |port| {
        vec![("OPENAI_BASE_URL", format!("http://127.0.0.1:{port}/v1")), ("OPENAI_API_KEY", "sk-test".to_owned())]
    });
}

/// A model entry for Anthropic's API.
fn anthropic_entry(port: u16, more: &str) -> String {
    let base = format!("http://127.0.0.1:{port}");
    format!("provider: anthropic, model: claude-haiku-4-5, api_base: \"{base}\", api_key: \"${{MODEL_KEY}}\"{more}")
}

#[test]
fn starter_books_with_streamed_anthropic_messages() {
    check_booking(MESSAGES, |port| anthropic_entry(port, ""), |_| Vec::new());
}

#[test]
fn starter_books_with_whole_anthropic_messages() {
    let expected = ExpectedRequest { is_streamed: false, ..MESSAGES };
    check_booking(expected, |port| anthropic_entry(port, ", stream: false"), |_| Vec::new());
}

#[test]
fn starter_books_with_anthropic_environment_variables() {
    let entry = |_| "provider: anthropic, model: claude-haiku-4-5".to_owned();
    check_booking(MESSAGES, entry, |port| {
        vec![("ANTHROPIC_BASE_URL", format!("http://127.0.0.1:{port}")), ("ANTHROPIC_API_KEY", "sk-test".to_owned())]
    });
}
