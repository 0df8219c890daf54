//! Segue.

pub mod agents;
pub mod clock;
pub mod conversation;
pub mod cx;
#[cfg(feature = "mcp")]
pub mod demo;
pub mod effect;
pub mod environment;
pub mod failpoint;
pub mod http;
pub mod limits;
pub mod llm;
pub mod project;
pub mod prompts;
pub mod runtime;
pub mod secret;
pub mod store;
pub mod tools;
pub mod understanding;
