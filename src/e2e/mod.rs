//! End-to-end cases: what a user says, and what must come of it.
//!
//! *For*: `segue test`, and programs that run cases themselves. *Entry*: [`Selection::read`] finds and reads case files, a
//! [`Runner`] runs them, and the [`Results`] are written by [`report`]. *Never*: a case touches the stores of the project; two
//! cases share a conversation, a clock or a stub; a replay lets anything leave. This room judges what happened, it never
//! helps it along: a case goes through the same door as a user.
//!
//! | file | holds |
//! | --- | --- |
//! | `discover`, `plan` | which files there are, and what each case gets from its file and the `conftest.yml` above it |
//! | `run`, `talk`, `clock`, `stub`, `tape` | one case: its assistant, its conversation, its time, what stands in for the world, its recording |
//! | `look`, `seen`, `judge` | what was expected against what was seen; texts that a model judges |
//! | `coverage`, [`report`] | which steps were walked; results for people and programs |

mod clock;
mod coverage;
mod discover;
mod judge;
mod look;
mod plan;
pub mod report;
mod run;
mod seen;
mod stub;
mod talk;
mod tape;

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
    coverage::{Coverage, FlowCoverage},
    discover::Selection,
    run::{RunError, Runner},
};

/// How cases are run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Cases that run at the same time; at least one.
    pub jobs: usize,
    /// Whether nothing is begun after a failure.
    pub fail_fast: bool,
    /// What becomes of answers of the world.
    pub tape: RecordingMode,
    /// How often each case runs; at least once.
    pub repeat: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { jobs: crate::limits::TEST_JOBS, fail_fast: false, tape: RecordingMode::Live, repeat: 1 }
    }
}

/// What becomes of the answers of models, tools, actions and agents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RecordingMode {
    /// The world is asked, nothing is kept.
    #[default]
    Live,
    /// The world is asked, and its answers are written into this folder.
    Record(PathBuf),
    /// This folder answers; nothing is asked.
    Replay(PathBuf),
}

/// How a case ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Everything held.
    Passed,
    /// Something did not.
    Failed,
    /// It could not run: a model cannot be opened, a recording is not there.
    NotRun,
}

/// What came of one run of one case.
#[derive(Clone, Debug)]
pub struct CaseResult {
    /// The file, as it was named or found.
    pub file: String,
    /// The case.
    pub name: String,
    /// Where it stands.
    pub place: SourceLocation,
    /// Which run of it this is, from 1.
    pub round: usize,
    /// How it ended.
    pub outcome: Outcome,
    /// What did not hold, in order.
    pub misses: Vec<AssertionFailure>,
    /// What was said, turn by turn.
    pub turns: Vec<TurnTranscript>,
    /// Assertions by kind: how many held, how many did not. What was not reached is not counted.
    pub tally: BTreeMap<&'static str, Tally>,
    /// The steps that were entered.
    pub visited: BTreeSet<(FlowId, StepId)>,
    /// Commands by kind.
    pub commands: BTreeMap<String, u64>,
    /// How long it took.
    pub took: Duration,
    /// The case itself, for writing it again.
    pub case: Arc<plan::Planned>,
}

impl CaseResult {
    /// `file::case`, by which it can be run alone.
    pub fn address(&self) -> String {
        format!("{}::{}", self.file, self.name)
    }
    /// The case as it was read.
    pub fn written(&self) -> &TestCase {
        &self.case.case
    }
}

/// How often assertions of a kind held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// They held.
    pub held: u64,
    /// They did not.
    pub failed: u64,
}

/// One turn as people read it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TurnTranscript {
    /// What the user said.
    pub user: String,
    /// What happened, one line each.
    pub happened: Vec<String>,
}

/// Something that did not hold.
#[derive(Clone, Debug)]
pub struct AssertionFailure {
    /// Where it is demanded.
    pub place: SourceLocation,
    /// The turn, from 1; 0 before the first.
    pub turn: usize,
    /// What the user had said.
    pub user: String,
    /// The kind: the key of the assertion or step, or a code for what went wrong beside them.
    pub what: &'static str,
    /// What was expected.
    pub expected: Vec<String>,
    /// What was seen instead.
    pub seen: Vec<String>,
    /// Why the turn went as it did.
    pub why: Vec<Reason>,
    /// What went wrong on our side in this turn, for operators: code and reason.
    pub failures: Vec<(String, String)>,
}

/// Everything that came of a run, in the order of the files.
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// One for each run of each case that was begun.
    pub cases: Vec<CaseResult>,
    /// Runs of cases that were not begun, because an earlier one failed.
    pub skipped: Vec<Arc<plan::Planned>>,
}

impl Results {
    /// How many ended so.
    pub fn count(&self, outcome: Outcome) -> usize {
        self.cases.iter().filter(|case| case.outcome == outcome).count()
    }
    /// Whether everything held.
    pub fn is_fine(&self) -> bool {
        self.cases.iter().all(|case| case.outcome == Outcome::Passed)
    }
    /// Assertions by kind over all cases.
    pub fn tally(&self) -> BTreeMap<&'static str, Tally> {
        let mut sum: BTreeMap<&'static str, Tally> = BTreeMap::new();
        for (kind, tally) in self.cases.iter().flat_map(|case| &case.tally) {
            let entry = sum.entry(kind).or_default();
            entry.held += tally.held;
            entry.failed += tally.failed;
        }
        sum
    }
}
