//! Tests of Segue through its public boundaries: the Rust API, the program in a temporary folder, the server on a loopback socket. One
//! module per subject. Models are scripted or recorded; nothing uses a network.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod actions;
mod agents;
mod cli;
mod conversations;
mod crash_recovery;
#[path = "../support/folder.rs"]
mod folder;
mod interruption;
mod knowledge;
mod limits;
mod mcp;
mod mission_agents;
mod missions;
mod model_failures;
mod outbox;
mod pages;
mod prompt_evaluation;
mod rasa_commands;
mod rasa_versions;
mod readers;
mod reminders;
mod remote_agents;
mod rest;
mod retries;
mod rust_api;
mod schema;
mod segue_run;
mod segue_test;
mod skills;
mod sqlite_store;
mod support;
mod tutorial;
mod write_gate;
mod writes;

use support::{
    action_server, program,
    project_files::{channels, project},
};
