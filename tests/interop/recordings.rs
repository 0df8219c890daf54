//! The end-to-end test cases of the starter against a mock model server: recorded with the server, and replayed without it.

use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
};

use serde_json::{Value as Json, json};

use crate::processes::{ChildProcess, aimock_journal, aimock_with};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The answers of the mock. The prompts of the command generator and the judge quote the user's text as JSON, so rules with a quotation
/// mark match those; the rules for agents, without one, come last.
fn fixtures() -> Json {
    let call = |name: &str, arguments: Json| json!({"name": name, "arguments": arguments});
    let say = |prompt: &str, answer: &str| json!({"match": {"userMessage": prompt}, "response": {"content": answer}});
    let order = "I'd like two people on the early boat";
    let boats = "Which boats go from Arnvik";
    let search = json!([call("search_crossings", json!({"from": "Arnvik", "to": "Skelby", "date": "2026-11-22"}))]);
    json!({"fixtures": [
        say("separate statements of fact", "{\"statements\": [{\"statement\": \"three boats\", \"supported\": true}]}"),
        say("whether an answer is to the point", "{\"questions\": [{\"question\": \"Which boats?\", \"closeness\": 0.9}]}"),
        say(&format!("\"{order}"), "start flow book_a_crossing"),
        say(&format!("\"{boats}"), "start flow find_a_crossing"),
        say("\"can I bring my dog", "start flow pet_question"),
        say("\"I want to cancel my booking", "start flow refund_a_booking"),
        say("\"I want to change my booking", "start flow change_a_booking"),
        say("\"cancel\"", "cancel flow"),
        say("\"hello\"", "start flow greeting"),
        say("\"what happens if I cancel", "start flow rules_question"),
        say("\"and how much luggage", "start flow luggage_question"),
        say("\"which boats are there", "start flow find_a_crossing"),
        say("\"to Torsay", "continue agent"),
        say("\"flurble", "cannot handle"),
        {"match": {"userMessage": order, "hasToolResult": false},
         "response": {"content": "I will look up the boats of that day.", "toolCalls": search.clone()}},
        {"match": {"userMessage": order, "hasToolResult": true}, "response": {"toolCalls": [
            call("set_slot_crossing_id", json!({"slot_value": "ARN-SKE-20261122-0740"})),
            call("set_slot_passengers", json!({"slot_value": 2})),
        ]}},
        {"match": {"userMessage": boats, "hasToolResult": false}, "response": {"toolCalls": search}},
        {"match": {"userMessage": boats, "hasToolResult": true},
         "response": {"content": "There are three boats, the first at 07:40. Shall I book one?"}},
        say("can I bring my dog", "Back to your boats: shall I book one?"),
    ]})
}

/// Runs `segue test` with these endpoints.
fn test(endpoints: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_segue"));
    for name in ["OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_API_BASE", "LOG_LEVEL", "RUST_LOG"] {
        command.env_remove(name);
    }
    command.current_dir(ROOT).arg("test").arg("--endpoints").arg(endpoints).args(arguments);
    command.env("MODEL_KEY", "sk-test").stdin(Stdio::null()).output().unwrap()
}

#[test]
fn recorded_test_cases_replay_without_the_model_server() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let rules = at("rules.json");
    fs::write(&rules, fixtures().to_string()).unwrap();
    let mut mock = ChildProcess::start(&mut aimock_with(&rules));
    let port = mock.port();
    // The endpoints of the test cases, with the mock instead of the scripted models.
    let original = fs::read_to_string(Path::new(ROOT).join("flows/ferries/tests/endpoints.yml")).unwrap();
    let mock_entry = format!(
        "    models: [{{ provider: openai, model: gpt-4o, api_base: \"http://127.0.0.1:{port}/v1\", api_key: \"${{MODEL_KEY}}\" }}]"
    );
    let line = |line: &str| if line.contains("provider: scripted") { mock_entry.clone() } else { line.to_owned() };
    fs::write(at("endpoints.yml"), original.lines().map(line).collect::<Vec<_>>().join("\n")).unwrap();
    let path = |name: &str| at(name).display().to_string();

    let live = test(&at("endpoints.yml"), &["--record", &path("recording"), &format!("-o={}", path("live.yml"))]);
    let output = String::from_utf8_lossy(&live.stdout).into_owned() + &String::from_utf8_lossy(&live.stderr);
    let journal = aimock_journal(port);
    assert_eq!(live.status.code(), Some(0), "{output}\n{journal:#?}");
    let cases = output.lines().filter(|line| line.starts_with("ok    flows/ferries/tests/")).count();
    assert!(cases >= 12, "{output}");
    assert!(journal.len() >= 20, "requests of the generator, the agents and the judge: {}", journal.len());

    drop(mock);
    let replayed =
        test(&at("endpoints.yml"), &["--replay", &path("recording"), &format!("-o={}", path("replayed.yml"))]);
    let output = String::from_utf8_lossy(&replayed.stdout).into_owned() + &String::from_utf8_lossy(&replayed.stderr);
    assert_eq!(replayed.status.code(), Some(0), "{output}");
    assert_eq!(replayed.stdout, live.stdout, "{output}");
    let read = |name: &str| fs::read(at(name)).unwrap();
    assert!(read("replayed.yml") == read("live.yml"), "the result files are the same, byte for byte");

    // Without the recording and without the server a test case fails.
    let failed = test(&at("endpoints.yml"), &["flows/ferries/tests/questions.yml::hello"]);
    assert_eq!(failed.status.code(), Some(1), "{}", String::from_utf8_lossy(&failed.stdout));
}
