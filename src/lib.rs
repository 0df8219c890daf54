//! Segue.

pub mod clock;
pub mod cx;
pub mod limits;
pub mod secret;
