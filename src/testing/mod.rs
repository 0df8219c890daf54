//! The test kit, for our tests and yours: an assistant in which nothing is left to chance, time by hand, and a channel that keeps what
//! it is given.
//!
//! Entry: [`TestAssistant`]. This module may see every other one, and no other sees it.

mod assistant;
mod sink;

pub use self::{
    assistant::{CHANNEL, TestAssistant},
    sink::{Collected, CollectingSink},
};
pub use segue_base::manual_clock::ManualClock;

pub use crate::llm::scripted::{ScriptedCall, ScriptedLlm, StrictLlm};
