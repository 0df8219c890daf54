//! Segue as an MCP server: clients built with the Python SDK book a crossing over stdio and HTTP, and the official conformance suite runs
//! against the server.
//!
//! The suite expects certain tools by name. The project `mcp_fixture` has flows with these names, as far as flows can do what the suite
//! expects. `conformance-failures-server-*.yml` lists the scenarios that fail, with the reasons. A failure that is not on the list fails
//! the test, and so does a scenario on the list that passes.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use serde_json::Value as Json;

use crate::processes::{self, ChildProcess, test_dir};

fn segue() -> Command {
    Command::new(env!("CARGO_BIN_EXE_segue"))
}

/// Starts `segue run` with the MCP server. Returns the process and its port.
fn start_server(project: &Path, options: &[&str]) -> (ChildProcess, u16) {
    let mut command = segue();
    command.arg("run").arg(project).args(["--mcp", "--port", "0", "--store", "memory"]).args(options);
    let mut process = ChildProcess::start(&mut command);
    let port = process.port();
    (process, port)
}

/// Creates the starter in the subfolder `ferries` of a temporary folder.
fn starter() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let init = segue().args(["init", "--template", "ferries"]).arg(folder.path().join("ferries")).output().unwrap();
    assert!(init.status.success(), "{}", String::from_utf8_lossy(&init.stderr));
    folder
}

/// Runs a Python client of this folder. Returns the JSON that it prints.
fn run_client(script: &str, arguments: &[&str]) -> Json {
    let mut client = processes::python();
    client.arg(test_dir().join(script)).args(arguments).stdin(Stdio::null());
    let output = client.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {errors}"))
}

/// Checks the output of `mcp_client.py`.
fn assert_booked(output: &Json) {
    let names: Vec<&str> =
        output["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert!(names.starts_with(&["converse", "book_a_crossing"]), "{names:?}");
    let turns = output["turns"].as_array().unwrap();
    let last = turns.last().unwrap();
    assert!(last["texts"][0].as_str().unwrap().starts_with("Booked! Your reference is NW-"), "{last}");
    assert!(turns.iter().all(|turn| turn["error"] == false), "{turns:?}");
    assert!(turns[0]["data"]["waiting_for_input"] == true && last["data"]["waiting_for_input"] == false);
    let progress = turns[0]["progress"].as_array().unwrap();
    assert_eq!(progress[0], "I will look up the boats of that day.", "a filler is sent as a progress notification");
    assert_eq!(turns[0]["data"]["replies"][0]["kind"], "filler");
    let transcript = output["transcript"].as_str().unwrap();
    assert!(transcript.contains("\nuser: yes\nassistant: Booked!"), "{transcript}");
    assert!(output["pets"][0].as_str().unwrap().starts_with("Pets are welcome"), "{}", output["pets"]);
}

#[test]
fn python_sdk_books_a_crossing_over_stdio() {
    let folder = starter();
    let project = folder.path().join("ferries");
    let (program, project) = (env!("CARGO_BIN_EXE_segue"), project.to_str().unwrap());
    let output = run_client("mcp_client.py", &["stdio", program, "mcp", project]);
    assert_booked(&output);
    assert!(output["asked"].as_array().unwrap().is_empty(), "without `--elicit` there are no elicitation requests");
}

#[test]
fn python_sdk_books_a_crossing_with_elicitation() {
    let folder = starter();
    let project = folder.path().join("ferries");
    let (program, project) = (env!("CARGO_BIN_EXE_segue"), project.to_str().unwrap());
    let output = run_client("mcp_client.py", &["stdio", program, "mcp", project, "--elicit"]);
    let last = output["turns"].as_array().unwrap().last().unwrap();
    assert!(last["texts"].to_string().contains("Booked!"), "{last}");
    let asked = output["asked"].as_array().unwrap();
    assert_eq!(asked.len(), 2, "the agent's question and the confirmation: {asked:?}");
    assert_eq!(asked[0]["schema"]["required"], serde_json::json!(["message"]));
    assert!(asked[1]["message"].as_str().unwrap().ends_with("Shall I book it?"));
}

#[test]
fn one_tool_call_with_elicitation_runs_a_flow_to_a_stored_booking() {
    let folder = starter();
    let project = folder.path().join("ferries");
    let arguments = [env!("CARGO_BIN_EXE_segue"), "mcp", project.to_str().unwrap(), "--elicit"];
    let output = run_client("mcp_booking.py", &arguments);
    let asked = output["asked"].as_array().unwrap();
    let fields: Vec<&str> = asked.iter().map(|request| request["schema"]["required"][0].as_str().unwrap()).collect();
    assert_eq!(fields, ["message", "message", "booking_confirmed"], "{output}");
    assert!(asked[0]["message"].as_str().unwrap().starts_with("Gladly. From which port"), "{output}");
    let texts = output["texts"].to_string();
    let reference =
        texts.split("Your reference is ").nth(1).and_then(|rest| rest.split('.').next()).expect("a reference");
    assert!(output["error"] == false, "{output}");
    let stored: Json = serde_json::from_slice(&std::fs::read(project.join(".segue/ferries.json")).unwrap()).unwrap();
    let bookings = stored["bookings"].as_array().unwrap();
    let booking =
        bookings.iter().find(|booking| booking["reference"] == reference).unwrap_or_else(|| panic!("{stored}"));
    assert_eq!(booking["passengers"], 2, "{booking}");
    assert!(booking["crossing_id"].as_str().unwrap().starts_with("ARN-SKE-"), "{booking}");
}

#[test]
fn python_sdk_books_a_crossing_over_http_with_a_token() {
    let folder = starter();
    let token = "a-token-for-this-test";
    let (_server, port) = start_server(&folder.path().join("ferries"), &["--auth-token", token]);
    let url = format!("http://127.0.0.1:{port}/mcp");
    assert_booked(&run_client("mcp_client.py", &["http", &url, token]));
}

/// Runs the conformance suite for servers with a revision of the protocol. Returns its summary.
fn run_suite(revision: &str) -> String {
    let (_server, port) = start_server(&test_dir().join("mcp_fixture"), &[]);
    let results = tempfile::tempdir().unwrap();
    let mut suite = processes::conformance();
    suite.args(["server", "--url", &format!("http://127.0.0.1:{port}/mcp"), "--requirements", revision]);
    suite.arg("--expected-failures").arg(test_dir().join(format!("conformance-failures-server-{revision}.yml")));
    suite.arg("--output-dir").arg(results.path()).current_dir(results.path()).stdin(Stdio::null());
    let output = suite.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    text.split("=== SUMMARY ===").last().unwrap_or_default().to_owned()
}

#[test]
fn mcp_server_conformance_revision_2025_11_25() {
    println!("{}", run_suite("2025-11-25"));
}

#[test]
fn mcp_server_conformance_revision_2026_07_28() {
    println!("{}", run_suite("2026-07-28"));
}
