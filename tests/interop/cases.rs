//! The end-to-end cases of the starter against a model server nobody here wrote, recorded there, and played again when the
//! server is gone.

use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
};

use serde_json::{Value as Json, json};

use crate::parts::{Part, aimock_with, get};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// What the mock answers. The generator and the judge quote texts as JSON, so rules with a quotation mark are theirs; those of
/// agents come last.
fn fixtures() -> Json {
    let call = |name: &str, arguments: Json| json!({"name": name, "arguments": arguments});
    let say = |asked: &str, answer: &str| json!({"match": {"userMessage": asked}, "response": {"content": answer}});
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

/// Runs the cases with these endpoints.
fn test(endpoints: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_segue"));
    for name in ["OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_API_BASE", "LOG_LEVEL", "RUST_LOG"] {
        command.env_remove(name);
    }
    command.current_dir(ROOT).arg("test").arg("--endpoints").arg(endpoints).args(arguments);
    command.env("FOREIGN_KEY", "sk-foreign").stdin(Stdio::null()).output().unwrap()
}

fn asked(port: u16) -> Vec<Json> {
    let answer = get(port, "/__aimock/journal");
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

#[test]
fn the_cases_recorded_against_a_foreign_model_server_hold_again_when_it_is_gone() {
    let scratch = tempfile::tempdir().unwrap();
    let at = |name: &str| scratch.path().join(name);
    let rules = at("rules.json");
    fs::write(&rules, fixtures().to_string()).unwrap();
    let mut mock = Part::start(&mut aimock_with(&rules));
    let port = mock.port();
    // The endpoints of the cases, with another model in place of the scripted ones and nothing else changed.
    let written = fs::read_to_string(Path::new(ROOT).join("flows/ferries/tests/endpoints.yml")).unwrap();
    let theirs = format!(
        "    models: [{{ provider: openai, model: gpt-4o, api_base: \"http://127.0.0.1:{port}/v1\", api_key: \"${{FOREIGN_KEY}}\" }}]"
    );
    let line = |line: &str| if line.contains("provider: scripted") { theirs.clone() } else { line.to_owned() };
    fs::write(at("endpoints.yml"), written.lines().map(line).collect::<Vec<_>>().join("\n")).unwrap();
    let shown = |name: &str| at(name).display().to_string();

    let live = test(&at("endpoints.yml"), &["--record", &shown("tape"), &format!("-o={}", shown("live.yml"))]);
    let told = String::from_utf8_lossy(&live.stdout).into_owned() + &String::from_utf8_lossy(&live.stderr);
    let journal = asked(port);
    assert_eq!(live.status.code(), Some(0), "{told}\n{journal:#?}");
    let cases = told.lines().filter(|line| line.starts_with("ok    flows/ferries/tests/")).count();
    assert!(cases >= 12, "{told}");
    assert!(journal.len() >= 20, "commands, agents and the judge ask the server: {}", journal.len());

    // The server is gone, and its port with it.
    drop(mock);
    let again = test(&at("endpoints.yml"), &["--replay", &shown("tape"), &format!("-o={}", shown("again.yml"))]);
    let told = String::from_utf8_lossy(&again.stdout).into_owned() + &String::from_utf8_lossy(&again.stderr);
    assert_eq!(again.status.code(), Some(0), "{told}");
    assert_eq!(again.stdout, live.stdout, "{told}");
    let read = |name: &str| fs::read(at(name)).unwrap();
    assert!(read("again.yml") == read("live.yml"), "the result files are the same, byte for byte");

    // Without the recording the same cases cannot do without the server.
    let alone = test(&at("endpoints.yml"), &["flows/ferries/tests/questions.yml::hello"]);
    assert_eq!(alone.status.code(), Some(1), "{}", String::from_utf8_lossy(&alone.stdout));
}
