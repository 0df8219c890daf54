//! Tests against parts of other people. `cargo xtask interop` installs the parts and runs these; without the feature
//! `interop` this binary is empty. How each part is started stands in `tests/interop/README.md`.
#![cfg(feature = "interop")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
// The figures of the suites of others are told with the closing lines.
#![allow(clippy::print_stdout)]

mod a2a;
mod a2a_auth;
mod a2a_server;
mod actions;
mod cases;
mod conformance;
#[path = "../support/folder.rs"]
mod folder;
mod hooks;
mod mcp;
mod mcp_server;
mod oauth;
mod parts;
mod program;
mod progress;
mod starter;
mod vectors;

use parts::{Part, aimock, everything, fastmcp, pypred};

/// What a part answers to the first message of MCP over stdio.
fn greeting(part: &mut Part) -> String {
    part.say(
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"segue","version":"0"}}}"#,
    );
    part.line_with("\"id\":1")
}

#[test]
fn the_everything_server_answers() {
    let answer = greeting(&mut Part::start(&mut everything()));
    assert!(answer.contains("mcp-servers/everything"), "{answer}");
}

#[test]
fn the_fastmcp_server_answers_and_announces_list_changes() {
    let answer = greeting(&mut Part::start(&mut fastmcp()));
    assert!(answer.contains("foreign-fastmcp") && answer.contains(r#""tools":{"listChanged":true}"#), "{answer}");
}

#[test]
fn the_mock_model_streams() {
    let mut part = Part::start(&mut aimock());
    let request = r#"{"model":"any","stream":true,"messages":[{"role":"user","content":"hello"}]}"#;
    let answer = parts::post(part.port(), "/v1/chat/completions", request);
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("data: [DONE]"), "{answer}");
}

#[test]
fn the_oracle_for_conditions_answers() {
    assert!(pypred("not a = 1 and b", r#"{"a": 1, "b": true}"#).is_some_and(|holds| !holds));
    assert_eq!(pypred("a = = 1", "{}"), None);
}
