//! Segue.

pub mod clock;
pub mod cx;
pub mod http;
pub mod limits;
pub mod llm;
pub mod secret;
