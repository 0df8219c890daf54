//! The runtime of missions: it stores and performs what the [mission core](segue_engine::mission) decides.
//!
//! | module | content |
//! | --- | --- |
//! | [`engine`] | [`RunEngine`]: starts runs, drives and resumes them |
//! | [`codes`] | the codes of errors and failures |
//! | [`control`] | [`RunControl`]: lists, shows and follows runs, answers their questions, stops them |
//! | `slice` | one slice of a unit: claim, work, checkpoint |
//! | `commander`, `agent` | the hosts of the loops of commanders and of agents |
//! | `calls` | calls of agents: together, and over several slices |
//! | `copies` | questions to copies of sessions |
//! | `results`, `compaction` | long results, and summaries of long histories |
//! | `patience` | the wait for a provider that limits the rate |
//! | `delegation`, `remote` | sub-agents of agents, and agents over A2A |
//! | [`files`] | [`RunFiles`]: the files that a run has produced |
//! | `journal` | the journal of a unit in a run store |
//! | `view` | the state of a run, kept up to date from its events |
//! | `checkpoint` | what a unit keeps between slices |
//! | `files` | the files of inputs, copied into the folder of a run |
//! | `scratchpads` | removes the scratchpads of old runs |
//! | [`problems`] | the runs that an operator has to look at |
//! | [`retention`] | [`RunRetention`]: deletes runs that ended long ago, and those of a conversation |
//! | `secrets` | protected inputs: replaced in arguments of tools that leave the program, masked in results |
//!
//! A run is its events, and a unit can be continued by any process: every effect of a unit is a step of its journal, and events are
//! stored in one transaction with the outcome of the step that caused them.

mod agent;
mod budgets;
mod call_rules;
mod calls;
mod checkpoint;
pub mod codes;
mod commander;
mod compaction;
pub mod control;
mod copies;
mod delegation;
pub mod engine;
pub mod files;
mod input_files;
mod journal;
mod parts;
mod patience;
pub mod problems;
mod remote;
mod reruns;
mod results;
pub mod retention;
mod scratchpads;
mod secrets;
mod skills;
mod slice;
mod view;

pub use self::{
    control::{FollowEnd, RunControl, RunHolder, RunReport, question_number},
    engine::{RunEnd, RunEngine, StartRun},
    files::{RunFile, RunFiles},
    input_files::input_files,
    parts::{LocalTools, MissionError, MissionParts},
    problems::{RunProblem, RunProblemKind, RunsReport},
    retention::RunRetention,
};
