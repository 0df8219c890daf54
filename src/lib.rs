//! Segue.

pub mod agents;
pub mod clock;
pub mod conversation;
pub mod cx;
pub mod http;
pub mod limits;
pub mod llm;
pub mod prompts;
pub mod secret;
pub mod store;
pub mod tools;
pub mod understanding;
