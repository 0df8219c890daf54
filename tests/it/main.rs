//! Segue from outside: the runtime, the program in a scratch folder, the server over a socket of this machine. One binary,
//! one file per subject. Models are scripted, nothing leaves the machine.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod action_kills;
mod action_server;
mod actions;
mod agents;
mod cli;
mod confirm_kills;
mod conversations;
mod cuts;
mod e2e;
mod far_agents;
mod faults;
#[path = "../support/folder.rs"]
mod folder;
mod generations;
mod kills;
mod knowledge;
mod limits;
mod mcp;
mod outbox;
mod owner;
mod pages;
mod program;
mod rasa;
mod reminders;
mod rest;
mod retries;
mod run;
mod rust_api;
mod schema;
mod tool_recovery;
mod trials;
mod tutorial;

/// The channels of a `credentials.yml` with this content.
fn channels(credentials: &serde_json::Value) -> Vec<std::sync::Arc<dyn segue::Channel>> {
    let text = credentials.to_string();
    let project = segue::project::from_texts([("credentials.yml", text.as_str())]).project.unwrap();
    let (channels, errors) = segue::channels::open(&project, &segue::channels::ChannelOptions::new());
    assert!(errors.is_empty(), "{errors:?}");
    channels
}

/// A project of `tests/projects`.
fn project(name: &str) -> String {
    format!("{}/tests/projects/{name}", env!("CARGO_MANIFEST_DIR"))
}
