//! Doubles for tests, ours and yours: time by hand, a channel that keeps what it is given, and a world around an assistant
//! in which nothing is left to chance.
//!
//! Entry: [`World`]. This room may see every other one and nothing sees it; behind the feature `testing`.

mod clock;
mod sink;
mod world;

pub use self::{
    clock::ManualClock,
    sink::{Collected, CollectingSink},
    world::{CHANNEL, World},
};
pub use crate::llm::scripted::{ScriptedLlm, Step, StrictLlm};
