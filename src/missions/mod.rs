//! The runtime of missions: it stores and performs what the [mission core](segue_engine::mission) decides.
//!
//! | module | content |
//! | --- | --- |
//! | [`engine`] | [`RunEngine`]: starts runs, drives them, answers questions, stops and resumes |
//! | `slice` | one slice of a unit: claim, work, checkpoint |
//! | `commander`, `agent` | the hosts of the loops of commanders and of agents |
//! | `calls` | calls of agents: together, and over several slices |
//! | `copies` | questions to copies of sessions |
//! | `results`, `compaction` | long results, and summaries of long histories |
//! | `patience` | the wait for a provider that limits the rate |
//! | `journal` | the journal of a unit in a run store |
//! | `view` | the state of a run, kept up to date from its events |
//! | `checkpoint` | what a unit keeps between slices |
//! | `scratchpads` | removes the scratchpads of old runs |
//! | `secrets` | protected inputs: replaced in arguments, masked in results |
//!
//! A run is its events, and a unit can be continued by any process: every effect of a unit is a step of its journal, and events are
//! stored in one transaction with the outcome of the step that caused them.

mod agent;
mod calls;
mod checkpoint;
mod commander;
mod compaction;
mod copies;
pub mod engine;
mod journal;
mod parts;
mod patience;
mod results;
mod scratchpads;
mod secrets;
mod slice;
mod view;

pub use self::{
    engine::{RunEnd, RunEngine, RunReport, StartRun},
    parts::{LocalTools, MissionError, MissionParts},
};
