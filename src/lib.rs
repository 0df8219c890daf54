//! Segue.

pub mod clock;
pub mod conversation;
pub mod cx;
pub mod limits;
pub mod secret;
pub mod store;
pub mod tools;
