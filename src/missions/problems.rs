//! What an operator has to look at: runs that nobody works on, that wait for people, or that cannot be read.

use std::sync::Arc;

use segue_base::process;
use segue_engine::ids::RunId;

use super::{control::RunControl, parts::MissionError};
use crate::{
    limits,
    store::runs::{RunCounts, RunFilter, RunStatus, RunStoreError, RunSummary, UnitStatus},
};

/// The runs of a store, for operators.
#[derive(Clone, Debug, Default)]
pub struct RunsReport {
    /// How many there are.
    pub counts: RunCounts,
    /// Those to look at, the newest first.
    pub problems: Vec<RunProblem>,
}

/// A run to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunProblem {
    /// The run.
    pub run: RunId,
    /// Its mission, if that can be read.
    pub mission: Option<Arc<str>>,
    /// Why.
    pub kind: RunProblemKind,
}

/// Why a run is to be looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunProblemKind {
    /// It is running, or queued, and no process works on it or waits for it.
    Unattended {
        /// The process that worked on it and did not renew its lease in time, if there is one.
        lost: Option<Arc<str>>,
    },
    /// It waits for answers to so many questions.
    Questions(usize),
    /// All its questions are answered, and no process continues it.
    Answered,
    /// Its stored data cannot be read.
    Unreadable(String),
}

impl RunProblemKind {
    /// What it is, in one word.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Unattended { .. } => "unattended",
            Self::Questions(_) => "questions",
            Self::Answered => "answered",
            Self::Unreadable(_) => "unreadable",
        }
    }
}

impl RunControl {
    /// The runs to look at, of the newest [`limits::RUNS_LISTED`] that have not ended.
    ///
    /// # Errors
    /// [`MissionError::Store`] if the store fails. Damage of a run is no error.
    pub async fn problems(&self) -> Result<RunsReport, MissionError> {
        let open = [RunStatus::Queued, RunStatus::Running, RunStatus::Waiting];
        let mut report = RunsReport { counts: self.runs.counts(self.clock.now()).await?, problems: Vec::new() };
        let filter = RunFilter::default().statuses(open).without_jobs();
        let runs = match self.runs.runs(filter, limits::RUNS_LISTED).await {
            Ok(runs) => runs,
            // The damaged run hides the others.
            Err(RunStoreError::Corrupt { run, reason }) => {
                report.problems.push(RunProblem { run, mission: None, kind: RunProblemKind::Unreadable(reason) });
                return Ok(report);
            }
            Err(error) => return Err(error.into()),
        };
        for run in runs {
            let kind = match self.problem(&run).await {
                Ok(kind) => kind,
                Err(MissionError::Unreadable { reason, .. })
                | Err(MissionError::Store(RunStoreError::Corrupt { reason, .. })) => {
                    Some(RunProblemKind::Unreadable(reason))
                }
                // It was deleted in the meantime.
                Err(MissionError::UnknownRun(_)) => None,
                Err(error) => return Err(error),
            };
            report.problems.extend(kind.map(|kind| RunProblem { run: run.id, mission: Some(run.mission), kind }));
        }
        Ok(report)
    }

    async fn problem(&self, summary: &RunSummary) -> Result<Option<RunProblemKind>, MissionError> {
        let (run, status) = (&summary.id, summary.status);
        let state = self.status(run).await?.state;
        if self.is_worked_on(run).await? {
            return Ok(None);
        }
        if status == RunStatus::Queued && !self.is_interrupted(summary).await? {
            return Ok(None);
        }
        let questions = state.human_inputs.values().filter(|input| input.open).count();
        if questions > 0 {
            return Ok(Some(RunProblemKind::Questions(questions)));
        }
        if status == RunStatus::Waiting {
            return Ok(Some(RunProblemKind::Answered));
        }
        let units = self.runs.units(run).await?;
        let lost = units.into_iter().find(|unit| unit.status == UnitStatus::Claimed).and_then(|unit| unit.owner);
        let lost = lost.map(|owner| process::short_name(&owner).into());
        Ok(Some(RunProblemKind::Unattended { lost }))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::{
        clock::Clock,
        missions::{FollowEnd, RunEnd},
        store::runs::{MemoryRunStore, NewRun, NewUnit, RunBatch, RunStore, StopRequest},
        testing::ManualClock,
    };

    #[tokio::test]
    async fn a_queued_run_is_listed_when_no_process_says_that_it_waits_for_it() {
        let (store, clock) = (Arc::new(MemoryRunStore::new()), ManualClock::new());
        store.start_run(NewRun { queued: true, ..NewRun::new("r", "m", clock.now()) }).await.unwrap();
        let event = r#"{"event":"mission_started","mission":"m","run":"r","task_count":0}"#;
        let control = RunControl::new(store.clone(), Arc::new(clock.clone()));
        let mark = || RunBatch { events: vec![event.into()], ..RunBatch::new("r".into(), clock.now()) };
        for (passes, expected) in [(10, 0), (110, 1)] {
            clock.advance(std::time::Duration::from_secs(passes));
            assert_eq!(control.problems().await.unwrap().problems.len(), expected);
        }
        store.append_run(mark()).await.unwrap();
        assert!(control.problems().await.unwrap().problems.is_empty());
    }

    #[tokio::test]
    async fn a_run_whose_question_is_answered_waits_for_nobody() {
        let (store, clock) = (Arc::new(MemoryRunStore::new()), ManualClock::new());
        store.start_run(NewRun::new("r", "m", clock.now())).await.unwrap();
        let control = RunControl::new(store.clone(), Arc::new(clock.clone()));
        let run = RunId::from("r");
        let asked = [
            r#"{"event":"mission_started","mission":"m","run":"r","task_count":0}"#,
            r#"{"event":"task_started","task":"t","attempt":1,"objective":"asks"}"#,
            r#"{"event":"human_input_requested","task":"t","attempt":1,"question_id":"q","question":"May I?"}"#,
        ];
        let answered = [r#"{"event":"human_input_resolved","task":"t","attempt":1,"question_id":"q","answer":"yes"}"#];
        let cases = [(&asked[..], FollowEnd::Run(RunEnd::Waiting)), (&answered[..], FollowEnd::Free)];
        for (events, expected) in cases {
            let events = events.iter().map(|event| (*event).into()).collect();
            let status = Some(RunStatus::Waiting);
            store.append_run(RunBatch { events, status, ..RunBatch::new("r".into(), clock.now()) }).await.unwrap();
            let end = control.follow(&run, 0, &CancellationToken::new(), &mut |_| {}).await.unwrap();
            assert_eq!(end, expected);
        }
    }

    #[tokio::test]
    async fn sub_agents_of_conversations_are_no_runs_of_missions() {
        let (store, clock) = (Arc::new(MemoryRunStore::new()), ManualClock::new());
        let job = NewRun { units: vec![NewUnit::new("task", "{}")], ..NewRun::new("task-1", "@task", clock.now()) };
        store.start_run(job).await.unwrap();
        let control = RunControl::new(store.clone(), Arc::new(clock));
        let run = RunId::from("task-1");
        assert!(control.runs(RunFilter::default(), 9).await.unwrap().is_empty());
        let report = control.problems().await.unwrap();
        assert!(report.problems.is_empty() && report.counts.runs.is_empty(), "{report:?}");
        assert!(matches!(control.status(&run).await, Err(MissionError::UnknownRun(_))));
        assert!(matches!(control.stop(&run, StopRequest::Cancel).await, Err(MissionError::UnknownRun(_))));
        assert_eq!(store.summary(&run).await.unwrap().unwrap().stop, None);
    }
}
