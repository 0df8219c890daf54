//! The test kit, for this repository and for users: a deterministic assistant, a manual clock, a scripted model and a sink that records
//! replies.
//!
//! Entry: [`TestAssistant`]. This module may import every other module; none imports it.

mod assistant;
mod sink;

pub use self::{
    assistant::{CHANNEL, TestAssistant},
    sink::{CollectedReplies, CollectingSink},
};
pub use segue_base::manual_clock::ManualClock;

pub use crate::llm::scripted::{ScriptedCall, ScriptedLlm, StrictLlm};
