//! The runtime of missions: it stores and performs what the [mission core](segue_engine::mission) decides.
//!
//! | module | content |
//! | --- | --- |
//! | [`engine`] | [`RunEngine`]: starts runs, drives them, answers questions, stops and resumes |
//! | `slice` | one slice of a unit: claim, work, checkpoint |
//! | `commander`, `agent` | the hosts of the loops of commanders and of agents |
//! | `journal` | the journal of a unit in a run store |
//! | `view` | the state of a run, kept up to date from its events |
//! | `checkpoint` | what a unit keeps between slices |
//! | `secrets` | protected inputs: replaced in arguments, masked in results |
//!
//! A run is its events, and a unit can be continued by any process: every effect of a unit is a step of its journal, and events are
//! stored in one transaction with the outcome of the step that caused them.

mod agent;
mod checkpoint;
mod commander;
pub mod engine;
mod journal;
mod parts;
mod secrets;
mod slice;
mod view;

pub use self::{
    engine::{RunEnd, RunEngine, RunReport, StartRun},
    parts::{MissionError, MissionParts},
};
