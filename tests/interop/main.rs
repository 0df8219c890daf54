//! Tests against third-party implementations of the protocols that Segue speaks. `cargo xtask interop` installs the implementations and
//! runs these tests; without the feature `interop` this binary is empty. `tests/interop/README.md` lists the implementations.
#![cfg(feature = "interop")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
// The conformance tests print the number of passed and failed scenarios.
#![allow(clippy::print_stdout)]

mod a2a;
mod a2a_auth;
mod a2a_server;
mod actions;
mod chat_page;
mod conformance;
mod embeddings;
#[path = "../support/folder.rs"]
mod folder;
mod hooks;
mod mcp;
mod mcp_server;
mod oauth;
mod openai;
mod processes;
mod program;
mod progress;
mod recordings;
mod sockets;
mod starter;
mod wires;

use processes::{ChildProcess, aimock, everything, fastmcp, pypred};

/// The response of an MCP server on stdio to `initialize`.
fn initialize(server: &mut ChildProcess) -> String {
    server.write_line(
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"segue","version":"0"}}}"#,
    );
    server.wait_for_line("\"id\":1")
}

#[test]
fn everything_server_answers_initialize() {
    let answer = initialize(&mut ChildProcess::start(&mut everything()));
    assert!(answer.contains("mcp-servers/everything"), "{answer}");
}

#[test]
fn fastmcp_server_answers_initialize_and_announces_list_changes() {
    let answer = initialize(&mut ChildProcess::start(&mut fastmcp()));
    assert!(answer.contains("interop-fastmcp") && answer.contains(r#""tools":{"listChanged":true}"#), "{answer}");
}

#[test]
fn mock_model_server_streams() {
    let mut mock = ChildProcess::start(&mut aimock());
    let request = r#"{"model":"any","stream":true,"messages":[{"role":"user","content":"hello"}]}"#;
    let answer = processes::post(mock.port(), "/v1/chat/completions", request);
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("data: [DONE]"), "{answer}");
}

#[test]
fn pypred_evaluates_conditions() {
    assert!(pypred("not a = 1 and b", r#"{"a": 1, "b": true}"#).is_some_and(|holds| !holds));
    assert_eq!(pypred("a = = 1", "{}"), None);
}
