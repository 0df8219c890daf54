//! Segue.

pub mod agents;
pub mod channels;
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
pub mod server;
pub mod store;
#[cfg(any(debug_assertions, feature = "testing"))]
pub mod testing;
pub mod tools;
pub mod understanding;

pub use segue_engine::{dialogue, ids};
