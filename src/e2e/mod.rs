//! End-to-end test cases: the messages of a user and the expectations about the assistant.
//!
//! `segue test` is built on this module; a program can run cases itself. [`Selection::read`] finds and reads the files, a [`Runner`]
//! runs the cases, and [`report`] formats the [`Results`].
//!
//! Each case has its own assistant, conversation, store in memory, clock and stubs; it never uses the stores of the project. A
//! message of a case is processed like a message of a channel. A replay of a recording calls no model, tool,
//! action or agent.
//!
//! | file | contains |
//! | --- | --- |
//! | `discover`, `resolve` | finding the files; merging a case with the fixtures, metadata and stubs of its file and of the `conftest.yml` files above it |
//! | `run`, `conversation` | running one case: its assistant, and its conversation turn by turn |
//! | `clock`, `stub`, `recording` | the clock, the stubs and the recording of a case |
//! | `observed`, `assertions`, `judge` | the events of a turn; checking assertions against them; texts that a model judges |
//! | `coverage`, [`report`] | which steps of the flows were executed; the results for people and for programs |

mod assertions;
mod clock;
mod conversation;
mod coverage;
mod discover;
mod judge;
mod observed;
mod recording;
pub mod report;
mod resolve;
mod run;
mod stub;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use segue_engine::{
    dialogue::Reason,
    finding::SourceLocation,
    ids::{FlowId, StepId},
    project::test_cases::TestCase,
};

pub use self::{
    coverage::{Coverage, CoverageSummary, FlowCoverage, UncoveredStep},
    discover::Selection,
    resolve::ResolvedCase,
    run::{Runner, TestRunError},
};

/// Options of a run.
#[derive(Clone, Debug)]
pub struct TestOptions {
    /// The number of cases that run at the same time. It is clamped to 1 ..= [`TEST_JOBS_MAX`](crate::limits::TEST_JOBS_MAX).
    pub jobs: usize,
    /// Whether the run stops after the first case that does not pass.
    pub fail_fast: bool,
    /// Whether responses are recorded or replayed.
    pub recording: RecordingMode,
    /// How often each case runs. 0 means 1.
    pub repeat: usize,
}

impl Default for TestOptions {
    fn default() -> Self {
        Self { jobs: crate::limits::TEST_JOBS, fail_fast: false, recording: RecordingMode::Live, repeat: 1 }
    }
}

/// Whether the responses of models, tools, actions and agents are recorded or replayed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RecordingMode {
    /// Call them, without a recording.
    #[default]
    Live,
    /// Call them, and write their responses into this folder.
    Record(PathBuf),
    /// Use the responses in this folder; call nothing.
    Replay(PathBuf),
}

/// The outcome of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaseOutcome {
    /// All expectations are met.
    Passed,
    /// An expectation is not met, or a turn has an error: for example, a stub is missing.
    Failed,
    /// The case could not run: for example, a model cannot be opened or the recording is missing.
    Error,
}

/// The result of one run of a case.
#[derive(Clone, Debug)]
pub struct CaseResult {
    /// The path of the file, as passed by the caller or found in a folder.
    pub file: String,
    /// The name of the case.
    pub name: String,
    /// The location of the case in the file.
    pub place: SourceLocation,
    /// The number of this run of the case, from 1.
    pub run: usize,
    /// The outcome.
    pub outcome: CaseOutcome,
    /// The expectations that are not met, in order. The conversation ends after the first turn that has one.
    pub failures: Vec<AssertionFailure>,
    /// The conversation, turn by turn.
    pub turns: Vec<TurnTranscript>,
    /// How many assertions of each kind passed, failed, or were not reached.
    pub assertion_counts: BTreeMap<&'static str, AssertionCounts>,
    /// Tools of servers without stubs that were called and may have changed something, as `server.tool`.
    pub real_tools: BTreeSet<String>,
    /// The executed steps; of turns that passed only if coverage is collected.
    pub executed_steps: BTreeSet<(FlowId, StepId)>,
    /// The number of commands of each kind.
    pub commands: BTreeMap<String, u64>,
    /// The duration of the run.
    pub duration: Duration,
    /// The case with its fixtures and stubs, for [`report::failed_files`].
    pub case: Arc<ResolvedCase>,
}

impl CaseResult {
    /// `file::case`: the argument of `segue test` that runs this case alone.
    pub fn address(&self) -> String {
        format!("{}::{}", self.file, self.name)
    }
    /// The case as defined in its file.
    pub fn definition(&self) -> &TestCase {
        &self.case.case
    }
}

/// The numbers of assertions of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AssertionCounts {
    /// Assertions that passed.
    pub passed: u64,
    /// Assertions that failed.
    pub failed: u64,
    /// Assertions of turns that did not run, because an earlier turn failed.
    pub not_reached: u64,
}

/// One turn as text, for reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TurnTranscript {
    /// The message of the user.
    pub user: String,
    /// The events of the turn, one line each.
    pub events: Vec<String>,
}

/// An expectation that is not met, or an error of the case.
#[derive(Clone, Debug)]
pub struct AssertionFailure {
    /// The location of the assertion, step or case.
    pub place: SourceLocation,
    /// The number of the turn, from 1; 0 if no turn ran.
    pub turn: usize,
    /// The message of the user in this turn.
    pub user: String,
    /// The key of the assertion or step; for an error its code.
    pub kind: &'static str,
    /// The expectation, one line for each part.
    pub expected: Vec<String>,
    /// The events of the same kind that were observed, one line each; for an error its message.
    pub actual: Vec<String>,
    /// The reasons for the decisions in this turn, as in a trace.
    pub reasons: Vec<Reason>,
    /// The errors that the assistant handled in this turn: code and message.
    pub errors: Vec<(String, String)>,
}

/// The results of a run, in the order of the files.
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// One result for each run of a case.
    pub cases: Vec<CaseResult>,
    /// Runs of cases that were skipped because an earlier one did not pass; see [`TestOptions::fail_fast`].
    pub skipped: Vec<Arc<ResolvedCase>>,
}

impl Results {
    /// The number of results with this outcome.
    pub fn count(&self, outcome: CaseOutcome) -> usize {
        self.cases.iter().filter(|case| case.outcome == outcome).count()
    }
    /// Whether all cases that ran passed.
    pub fn all_passed(&self) -> bool {
        self.cases.iter().all(|case| case.outcome == CaseOutcome::Passed)
    }
    /// How many assertions of each kind passed, failed or were not reached, over all cases.
    pub fn assertion_counts(&self) -> BTreeMap<&'static str, AssertionCounts> {
        let mut sums: BTreeMap<&'static str, AssertionCounts> = BTreeMap::new();
        for (kind, counts) in self.cases.iter().flat_map(|case| &case.assertion_counts) {
            let sum = sums.entry(kind).or_default();
            sum.passed += counts.passed;
            sum.failed += counts.failed;
            sum.not_reached += counts.not_reached;
        }
        sums
    }
}
