//! What can be done with runs without their project: list, show and follow them, answer their questions, stop them.

use std::{sync::Arc, time::Duration};

use segue_base::process;
use segue_engine::{
    conversation::Writes,
    ids::RunId,
    mission::{
        event::{NewEvent, RunEvent, RunEventKind},
        state::{self, RunState},
        tools::people,
    },
    time::Timestamp,
};
use tokio_util::sync::CancellationToken;

use super::{
    engine::RunEnd,
    parts::MissionError,
    view::{RunView, event_text, read_event},
};
use crate::{
    clock::Clock,
    journal::{LEASE, later},
    limits,
    store::runs::{
        QuestionFilter, QuestionKey, QuestionReply, ReplyOutcome, RunBatch, RunFilter, RunStatus, RunStore,
        RunStoreError, RunSummary, Signal, SignalOutcome, StopRequest, StoredQuestion, StoredRun, StoredUnit,
        UnitStatus, lease_holds,
    },
};

/// How often a run is read for what other processes did: events, answers, signals, ended leases.
pub(super) const POLL: Duration = Duration::from_millis(500);

/// How long a run that is passed from one unit to the next may seem to be worked on by nobody.
const HANDOVER: Duration = Duration::from_secs(5);

/// A run with its state.
#[derive(Clone, Debug)]
pub struct RunReport {
    /// The stored run.
    pub stored: StoredRun,
    /// Its state.
    pub state: RunState,
}

/// The process that works on a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunHolder {
    /// Its name, such as `process 4711`.
    pub owner: Arc<str>,
    /// When its lease is over, unless it renews it.
    pub until: Timestamp,
}

/// Why [`RunControl::follow`] has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowEnd {
    /// The run has ended, or waits for people.
    Run(RunEnd),
    /// No process works on the run.
    Free,
    /// The caller has stopped following it.
    Left,
}

/// Lists, shows, follows, answers and stops runs. It needs their store only, so it works beside the process that drives them. Cheap to
/// clone.
#[derive(Clone)]
pub struct RunControl {
    pub(super) runs: Arc<dyn RunStore>,
    pub(super) clock: Arc<dyn Clock>,
}

impl RunControl {
    /// Over the runs of this store.
    pub fn new(runs: Arc<dyn RunStore>, clock: Arc<dyn Clock>) -> Self {
        Self { runs, clock }
    }

    /// A run with its state.
    ///
    /// # Errors
    /// [`MissionError::UnknownRun`], [`MissionError::Unreadable`], [`MissionError::Store`].
    pub async fn status(&self, run: &RunId) -> Result<RunReport, MissionError> {
        let stored = self.stored(run).await?;
        let view = RunView::new(self.runs.clone(), run.clone());
        let state = view.latest().await?.clone();
        Ok(RunReport { stored, state })
    }

    /// The run with this id, or the only one whose id begins with it. The runs that a run has led to do not count beside it.
    ///
    /// # Errors
    /// [`MissionError::UnknownRun`], [`MissionError::AmbiguousRun`], [`MissionError::Store`].
    pub async fn find(&self, id: &str) -> Result<RunId, MissionError> {
        let exact = RunId::new(id);
        if self.runs.summary(&exact).await?.is_some() {
            return Ok(exact);
        }
        if id.is_empty() {
            return Err(MissionError::UnknownRun(exact));
        }
        let filter = RunFilter::default().id_prefix(id).without_jobs();
        let found: Vec<RunId> =
            self.runs.runs(filter, limits::RUN_IDS_NAMED).await?.into_iter().map(|run| run.id).collect();
        let Some(first) = found.iter().min_by_key(|run| run.as_str().len()) else {
            return Err(MissionError::UnknownRun(exact));
        };
        let led_to = format!("{first}/");
        let is_only = found.iter().all(|run| run == first || run.as_str().starts_with(&led_to));
        // A list of this length may have been cut.
        match is_only && found.len() < limits::RUN_IDS_NAMED {
            true => Ok(first.clone()),
            false => Err(MissionError::AmbiguousRun(id.into(), found)),
        }
    }

    pub(super) async fn stored(&self, run: &RunId) -> Result<StoredRun, MissionError> {
        let stored = self.runs.run(run).await?.filter(|stored| !stored.summary.is_job());
        stored.ok_or_else(|| MissionError::UnknownRun(run.clone()))
    }

    /// A run in short. Its events are not read, so that a damaged run has one too.
    ///
    /// # Errors
    /// [`MissionError::UnknownRun`], [`MissionError::Store`].
    pub async fn summary(&self, run: &RunId) -> Result<RunSummary, MissionError> {
        let summary = self.runs.summary(run).await?.filter(|summary| !summary.is_job());
        summary.ok_or_else(|| MissionError::UnknownRun(run.clone()))
    }

    /// The runs, newest first. Jobs of conversations are no runs of missions.
    ///
    /// # Errors
    /// [`MissionError::Store`].
    pub async fn runs(&self, filter: RunFilter, limit: usize) -> Result<Vec<RunSummary>, MissionError> {
        Ok(self.runs.runs(filter.without_jobs(), limit).await?)
    }

    /// The events of a run after a sequence number, in order; at most [`limits::RUN_EVENTS_READ`].
    ///
    /// # Errors
    /// [`MissionError::Unreadable`], [`MissionError::Store`].
    pub async fn events(&self, run: &RunId, after: u64) -> Result<Vec<RunEvent>, MissionError> {
        let stored = self.runs.events(run, after, limits::RUN_EVENTS_READ).await?;
        stored.iter().map(|event| read_event(run, event)).collect()
    }

    /// The calls of a run that changed something, and those of which nobody knows.
    ///
    /// # Errors
    /// As [`events`](Self::events).
    pub async fn writes(&self, run: &RunId) -> Result<Writes, MissionError> {
        Ok(state::writes(&self.all_events(run).await?))
    }

    pub(super) async fn all_events(&self, run: &RunId) -> Result<Vec<RunEvent>, MissionError> {
        let mut events = Vec::new();
        let mut keep = |event: &RunEvent| events.push(event.clone());
        self.show(run, 0, &mut keep).await?;
        Ok(events)
    }

    /// The open questions, of one run or of all.
    ///
    /// # Errors
    /// [`MissionError::Store`].
    pub async fn questions(&self, run: Option<RunId>) -> Result<Vec<StoredQuestion>, MissionError> {
        let mut filter = QuestionFilter::default().open();
        filter.run = run;
        Ok(self.runs.questions(filter, limits::RUNS_LISTED).await?)
    }

    /// The question that an event has answered, if there is one: for callers that send an answer again.
    ///
    /// # Errors
    /// [`MissionError::Store`].
    pub async fn answered_by(&self, run: &RunId, event_id: &str) -> Result<Option<StoredQuestion>, MissionError> {
        let filter = QuestionFilter::default().run(run.clone());
        let questions = self.runs.questions(filter, limits::RUNS_LISTED).await?;
        Ok(questions.into_iter().find(|question| question.answered_by.as_deref() == Some(event_id)))
    }

    /// Answers a question, which is named by its id, the beginning or the end of it, or its [number](question_number). The same `event_id`
    /// has the same result however often it is repeated. Returns the answer as the model reads it.
    ///
    /// # Errors
    /// [`MissionError::Question`]: the question is unknown or closed, or the text is no answer to it.
    pub async fn answer(
        &self,
        run: &RunId,
        question: &str,
        text: &str,
        event_id: &str,
        responder: Option<Arc<str>>,
    ) -> Result<Arc<str>, MissionError> {
        let report = self.status(run).await?;
        let question = find_question(&report.state, question)?;
        let unknown = || MissionError::Question(format!("run {run} has no question {question}"));
        let asked = report.state.human_inputs.get(question).ok_or_else(unknown)?;
        let answer = people::check_answer(&asked.question, text).map_err(MissionError::Question)?;
        let key = QuestionKey::new(run.clone(), question);
        // No process need run for the time of a question to be over: a late yes is none.
        if let (Some(seconds), Some(stored)) = (asked.question.timeout_seconds, self.runs.question(&key).await?)
            && stored.answered_by.is_none()
            && self.clock.now().since(stored.asked_at)
                >= i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1_000_000)
        {
            let message = "the time of the question is over; continue the run with `segue mission resume`";
            return Err(MissionError::Question(message.into()));
        }
        let event = NewEvent::of_unit(
            &asked.unit,
            RunEventKind::HumanInputResolved {
                question_id: question.into(),
                answer: Some(answer.clone()),
                timed_out: false,
                responder,
            },
        );
        let reply = QuestionReply {
            question: key,
            text: answer.clone(),
            event_id: event_id.into(),
            events: vec![event_text(&event)],
            at: self.clock.now(),
        };
        match self.runs.answer(reply).await? {
            ReplyOutcome::Answered => Ok(answer),
            ReplyOutcome::Already { answer, .. } => {
                Err(MissionError::Question(format!("the question was answered before, with: {answer}")))
            }
            ReplyOutcome::Closed => Err(MissionError::Question("the question is closed".into())),
        }
    }

    /// Asks a run to end: to be resumed later, or for good. The process that drives it ends it; if no unit is worked on, it ends at once.
    /// A run that has failed or was stopped can still be cancelled; a cancelled run is never resumed.
    /// The events of the run are not read, so that a damaged run can be ended.
    ///
    /// # Errors
    /// [`MissionError::UnknownRun`], [`MissionError::Store`].
    pub async fn stop(&self, run: &RunId, request: StopRequest) -> Result<SignalOutcome, MissionError> {
        let signal = match request {
            StopRequest::Stop => Signal::Stop,
            StopRequest::Cancel => Signal::Cancel,
        };
        if self.runs.summary(run).await.is_ok_and(|summary| summary.is_some_and(|summary| summary.is_job())) {
            return Err(MissionError::UnknownRun(run.clone()));
        }
        let outcome = match self.runs.signal(run, signal, self.clock.now()).await {
            Err(RunStoreError::UnknownRun(run)) => return Err(MissionError::UnknownRun(run)),
            outcome => outcome?,
        };
        match outcome {
            SignalOutcome::Accepted if !self.is_worked_on(run).await? => self.end_stopped(run, request).await?,
            // It could be resumed.
            SignalOutcome::Ended(status) if status.is_resumable() && request == StopRequest::Cancel => {
                self.end_stopped(run, request).await?;
                return Ok(SignalOutcome::Accepted);
            }
            _ => {}
        }
        Ok(outcome)
    }

    pub(super) async fn is_worked_on(&self, run: &RunId) -> Result<bool, MissionError> {
        Ok(self.holder(run).await?.is_some())
    }

    /// The process that works on a run, if there is one: the one that holds a unit. After a crash it is shown until its lease is over,
    /// unless it is known to have ended: that can be known of processes on this machine.
    ///
    /// # Errors
    /// [`MissionError::Store`].
    pub async fn holder(&self, run: &RunId) -> Result<Option<RunHolder>, MissionError> {
        let (units, now) = (self.runs.units(run).await?, self.clock.now());
        let held = units.iter().filter_map(|unit| holder_of(unit, now));
        Ok(held.max_by_key(|holder| holder.until))
    }

    /// Whether a run that has not ended should be worked on, and no process does: it was interrupted.
    ///
    /// # Errors
    /// [`MissionError::Store`].
    pub async fn is_interrupted(&self, run: &RunSummary) -> Result<bool, MissionError> {
        let now = self.clock.now();
        match run.status {
            // The process that waits stores it from time to time.
            RunStatus::Queued => Ok(!lease_holds(later(run.updated_at, LEASE), now, LEASE)),
            RunStatus::Running => {
                let units = self.runs.units(&run.id).await?;
                let is_left = units.iter().any(|unit| unit.status == UnitStatus::Claimed);
                let is_held = units.iter().any(|unit| holder_of(unit, now).is_some());
                Ok(!is_held && (is_left || !lease_holds(later(run.updated_at, HANDOVER), now, HANDOVER)))
            }
            RunStatus::Waiting
            | RunStatus::Completed
            | RunStatus::Failed
            | RunStatus::Stopped
            | RunStatus::Cancelled => Ok(false),
        }
    }

    /// Follows a run that another process works on: `on_event` gets the events after the number `after`, in order. Ends when the run
    /// has ended or waits for people, when no process works on it, or when `stop` is cancelled, which leaves the run as it is.
    ///
    /// # Errors
    /// [`MissionError::UnknownRun`], [`MissionError::Unreadable`], [`MissionError::Store`].
    pub async fn follow(
        &self,
        run: &RunId,
        mut after: u64,
        stop: &CancellationToken,
        on_event: &mut (dyn FnMut(&RunEvent) + Send),
    ) -> Result<FollowEnd, MissionError> {
        let mut was_held = false;
        loop {
            let summary = self.summary(run).await?;
            let is_held = self.is_worked_on(run).await?;
            after = self.show(run, after, on_event).await?;
            if let Some(end) = end_of(summary.status) {
                return Ok(FollowEnd::Run(end));
            }
            if !is_held && summary.status == RunStatus::Waiting {
                // Answered, and the process that went on with it has ended: nobody needs to wait.
                let has_question = self.status(run).await?.state.human_inputs.values().any(|input| input.open);
                return Ok(if has_question { FollowEnd::Run(RunEnd::Waiting) } else { FollowEnd::Free });
            }
            // Between two units nobody holds one for a moment.
            if !is_held && !was_held {
                return Ok(FollowEnd::Free);
            }
            was_held = is_held;
            tokio::select! {
                () = stop.cancelled() => return Ok(FollowEnd::Left),
                () = self.clock.sleep(self.clock.deadline(POLL)) => {}
            }
        }
    }

    /// Waits until a run has ended, at most so long. `None`: it has not.
    ///
    /// # Errors
    /// [`MissionError::UnknownRun`], [`MissionError::Store`].
    pub async fn wait_for_end(&self, run: &RunId, patience: Duration) -> Result<Option<RunStatus>, MissionError> {
        let deadline = self.clock.deadline(patience);
        loop {
            let status = self.summary(run).await?.status;
            if status.is_ended() {
                return Ok(Some(status));
            }
            if self.clock.elapsed() >= deadline.0 {
                return Ok(None);
            }
            self.clock.sleep(self.clock.deadline(POLL)).await;
        }
    }

    /// Passes the events after a number to `on_event`; returns the number of the last one.
    pub(super) async fn show(
        &self,
        run: &RunId,
        mut after: u64,
        on_event: &mut (dyn FnMut(&RunEvent) + Send),
    ) -> Result<u64, MissionError> {
        loop {
            let events = self.events(run, after).await?;
            for event in &events {
                after = event.sequence;
                on_event(event);
            }
            if events.len() < limits::RUN_EVENTS_READ {
                return Ok(after);
            }
        }
    }

    pub(super) async fn end_stopped(&self, run: &RunId, request: StopRequest) -> Result<(), MissionError> {
        let status = match request {
            StopRequest::Stop => RunStatus::Stopped,
            StopRequest::Cancel => RunStatus::Cancelled,
        };
        let reason = Some(request.name().into());
        let events = [RunEventKind::MissionStopping { reason }, RunEventKind::MissionStopped {}];
        let batch = RunBatch {
            events: events.map(|kind| event_text(&NewEvent::of_run(kind))).into(),
            status: Some(status),
            ..RunBatch::new(run.clone(), self.clock.now())
        };
        match self.runs.append_run(batch).await {
            // Another process has ended it.
            Ok(_) | Err(RunStoreError::WrongStatus { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// The number of a question within its run, from 1 in the order of asking. It stays when questions are answered.
pub fn question_number(state: &RunState, id: &str) -> Option<usize> {
    state.human_inputs.get_index_of(id).map(|place| place + 1)
}

/// The id of the question that a person has named.
fn find_question<'s>(state: &'s RunState, named: &str) -> Result<&'s str, MissionError> {
    let run = &state.run;
    let all = &state.human_inputs;
    if let Some((id, _)) = all.get_key_value(named) {
        return Ok(id);
    }
    let numbered = named.parse::<usize>().ok().and_then(|number| all.get_index(number.checked_sub(1)?));
    if let Some((id, _)) = numbered {
        return Ok(id);
    }
    let is_part = |id: &str| !named.is_empty() && (id.starts_with(named) || id.ends_with(named));
    let mut found = all.keys().filter(|id| is_part(id));
    match (found.next(), found.next()) {
        (Some(id), None) => Ok(id),
        (Some(_), Some(_)) => Err(MissionError::Question(format!("several questions of run {run} fit {named}"))),
        (None, _) => Err(MissionError::Question(format!(
            "run {run} has no question {named}; `segue mission show {run}` shows its questions with their numbers"
        ))),
    }
}

/// The process that holds a unit now.
fn holder_of(unit: &StoredUnit, now: Timestamp) -> Option<RunHolder> {
    let (owner, until) = (unit.owner.as_deref()?, unit.lease_until?);
    let is_held = unit.status == UnitStatus::Claimed && lease_holds(until, now, LEASE) && !process::has_ended(owner);
    is_held.then(|| RunHolder { owner: process::short_name(owner).into(), until })
}

/// How a run of this status has ended.
pub(super) fn end_of(status: RunStatus) -> Option<RunEnd> {
    match status {
        RunStatus::Completed => Some(RunEnd::Completed),
        RunStatus::Failed => Some(RunEnd::Failed),
        RunStatus::Stopped => Some(RunEnd::Stopped),
        RunStatus::Cancelled => Some(RunEnd::Cancelled),
        RunStatus::Queued | RunStatus::Running | RunStatus::Waiting => None,
    }
}
