//! Segue.

pub mod clock;
pub mod conversation;
pub mod cx;
pub mod effect;
pub mod environment;
pub mod failpoint;
pub mod limits;
pub mod secret;
pub mod store;
pub mod tools;
