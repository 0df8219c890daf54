//! The pure part of Segue.
//!
//! Three floors, lowest first; a room imports only from below itself or from inside:
//!
//! | floor | rooms | what they hold |
//! | --- | --- | --- |
//! | 0 ground | [`ids`], [`time`], [`limits`], [`text`], [`finding`], [`pattern`], [`payload`], [`condition`], [`template`] | words everybody uses |
//! | 1 vocabulary | [`project`], [`conversation`] | what the author wrote, checked; what happened |
//! | 2 brain | [`dialogue`] | [`dialogue::advance`]: what to do next |
//!
//! Nothing here waits, reads a clock, draws a random number, opens a file or speaks to a network: the manifest has no
//! dependency that could. Time and seed are arguments; effects are values ([`dialogue::Next`]) that somebody else performs.

pub use segue_lang::{condition, finding, regex_dialect, template, text, time};

pub mod conversation;
pub mod dialogue;
pub mod ids;
pub mod limits;
pub mod payload;
pub mod project;
mod stable_hash;
