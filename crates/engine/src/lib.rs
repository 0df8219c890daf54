//! The pure part of Segue: the project model and the dialogue engine, without input and output.
//!
//! Three layers, lowest first. A module imports only from lower layers or from inside itself.
//!
//! | layer | modules | contents |
//! | --- | --- | --- |
//! | foundation | [`ids`], [`time`], [`limits`], [`text`], [`finding`], [`regex_dialect`], [`payload`], [`condition`], [`template`] | types that all layers use |
//! | domain model | [`project`], [`conversation`] | the loaded and checked project; the state of a conversation |
//! | dialogue engine | [`dialogue`] | [`dialogue::advance`]: decides what to do next |
//! | mission core | [`mission`] | [`mission::scheduler::next`]: decides what a run of a mission does next |
//!
//! Nothing here waits, reads a clock, draws a random number, opens a file or uses a network: the manifest has no
//! dependency that could. Time and seed are arguments. Effects are values ([`dialogue::Next`]) that the runtime
//! performs.

pub use segue_lang::{condition, finding, regex_dialect, template, text, time, usage};

pub mod conversation;
pub mod dialogue;
pub mod ids;
pub mod limits;
pub mod mission;
pub mod payload;
pub mod project;
mod stable_hash;
