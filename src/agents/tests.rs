//! Runs of an agent with a scripted model, tools in this process, and a clock whose waits end at once.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod grounding;
mod harness;
mod hooks;
mod open;
mod prompts;
mod rules;
mod skills;
mod task;
