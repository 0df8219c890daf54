//! Runs of missions: start, drive, answer, stop, resume.

use std::{collections::HashMap, sync::Arc, time::Duration};

use segue_engine::{
    ids::RunId,
    mission::{
        event::{NewEvent, PreviousRun, RunEvent, RunEventKind},
        inputs::{self, NewRunOptions},
        rerun::{self, RerunFrom, TakenOver},
        scheduler::{self, Action, Decision},
        state::{FollowUp, RunState, RunStatus as StateStatus},
        tools::people,
    },
    project::missions::{MissionDef, OnOverflow},
};
use serde_json::{Map, Value as Json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{
    parts::{MissionError, MissionParts},
    scratchpads,
    slice::{self, LEASE, UnitInput},
    view::{RunView, event_text, read_event},
};
use crate::{
    limits,
    store::runs::{
        Admission, ClaimRequest, NewRun, NewUnit, Overflow, QuestionFilter, QuestionKey, QuestionReply, ReplyOutcome,
        RunBatch, RunFilter, RunLimits, RunStatus, RunStoreError, RunSummary, Signal, SignalOutcome, StartOutcome,
        StopRequest, StoredQuestion, StoredRun, UnitStatus,
    },
};

/// Units of one run that work at the same time.
const MOST_UNITS: usize = 64;
/// How often a run looks for what other processes did: answers, signals, ended leases.
const POLL: Duration = Duration::from_millis(500);

/// A run to start.
#[derive(Clone, Debug, Default)]
pub struct StartRun {
    /// The mission.
    pub mission: Arc<str>,
    /// Its inputs: JSON of the declared types, or texts with the same content.
    pub inputs: Map<String, Json>,
    /// A later start of the same mission with this key returns the first run.
    pub idempotency_key: Option<Arc<str>>,
    /// Whether tools that change something are refused.
    pub dry_run: bool,
    /// The task to enter; the first ones if absent.
    pub entry: Option<Arc<str>>,
}

/// How a run is started.
struct NewStart<'a> {
    mission: &'a str,
    inputs: &'a Map<String, Json>,
    idempotency_key: Option<Arc<str>>,
    options: NewRunOptions,
    /// Whether it is queued instead of refused when a limit is reached.
    queues: bool,
    /// What it takes over from another run.
    taken: TakenOver,
}

impl<'a> NewStart<'a> {
    fn new(mission: &'a str, inputs: &'a Map<String, Json>, options: NewRunOptions) -> Self {
        Self { mission, inputs, idempotency_key: None, options, queues: false, taken: TakenOver::default() }
    }
}

/// How far a run got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// All tasks are completed.
    Completed,
    /// It failed.
    Failed,
    /// It was stopped and can be resumed.
    Stopped,
    /// It was cancelled.
    Cancelled,
    /// It waits for answers of people.
    Waiting,
}

/// A run with its state.
#[derive(Clone, Debug)]
pub struct RunReport {
    /// The stored run.
    pub stored: StoredRun,
    /// Its state.
    pub state: RunState,
}

/// Runs missions. Cheap to clone.
#[derive(Clone)]
pub struct RunEngine {
    parts: Arc<MissionParts>,
}

impl RunEngine {
    /// An engine with these parts.
    pub fn new(parts: MissionParts) -> Self {
        Self { parts: Arc::new(parts) }
    }

    /// Starts a run. Nothing of it happens before [`drive`](Self::drive).
    ///
    /// If a limit of `concurrency` is reached, the run is queued or refused. A queued run begins when it is driven and another one has ended.
    ///
    /// # Errors
    /// [`MissionError::UnknownMission`], [`MissionError::Inputs`], [`MissionError::Full`], [`MissionError::Store`].
    pub async fn start(&self, start: StartRun) -> Result<RunId, MissionError> {
        let id = RunId::new(uuid::Uuid::new_v4().simple().to_string());
        let options = NewRunOptions { entry: start.entry.clone(), dry_run: start.dry_run, ..Default::default() };
        let StartRun { mission, inputs, idempotency_key, .. } = &start;
        let new = NewStart { idempotency_key: idempotency_key.clone(), ..NewStart::new(mission, inputs, options) };
        self.start_as(id, new).await
    }

    async fn start_as(&self, id: RunId, new: NewStart<'_>) -> Result<RunId, MissionError> {
        let NewStart { mission, inputs: given, idempotency_key, options, queues, taken } = new;
        let def = self.parts.mission(mission)?;
        let mut started =
            inputs::mission_started(&def, &id.as_str().into(), given, options).map_err(MissionError::Inputs)?;
        if let RunEventKind::MissionStarted { datasets, .. } = &mut started.kind {
            datasets.extend(taken.datasets);
        }
        let key = inputs::concurrency_key(&def, &started).map_err(MissionError::Inputs)?;
        let run = NewRun {
            inputs: Json::Object(given.clone()).to_string().into(),
            idempotency_key,
            group: key.clone(),
            limits: limits_of(&def),
            overflow: match queues || def.concurrency.overflow == OnOverflow::Queue {
                true => Overflow::Queue,
                false => Overflow::Refuse,
            },
            events: std::iter::once(&started).chain(&taken.events).map(event_text).collect(),
            ..NewRun::new(id.clone(), Arc::<str>::from(mission), self.parts.clock.now())
        };
        match self.parts.runs.start_run(run).await? {
            StartOutcome::New | StartOutcome::Queued(_) => Ok(id),
            StartOutcome::Existing(existing) => Ok(existing),
            StartOutcome::Full(reached) => Err(MissionError::Full(mission.into(), reached, key)),
        }
    }

    /// A run with its state.
    ///
    /// # Errors
    /// [`MissionError::UnknownRun`], [`MissionError::Unreadable`], [`MissionError::Store`].
    pub async fn status(&self, run: &RunId) -> Result<RunReport, MissionError> {
        let stored = self.stored(run).await?;
        let view = RunView::new(self.parts.runs.clone(), run.clone());
        let state = view.latest().await?.clone();
        Ok(RunReport { stored, state })
    }

    async fn stored(&self, run: &RunId) -> Result<StoredRun, MissionError> {
        self.parts.runs.run(run).await?.ok_or_else(|| MissionError::UnknownRun(run.clone()))
    }

    /// The runs, newest first.
    ///
    /// # Errors
    /// [`MissionError::Store`].
    pub async fn runs(&self, filter: RunFilter, limit: usize) -> Result<Vec<RunSummary>, MissionError> {
        Ok(self.parts.runs.runs(filter, limit).await?)
    }

    /// The events of a run after a sequence number, in order; at most [`limits::RUN_EVENTS_READ`].
    ///
    /// # Errors
    /// [`MissionError::Unreadable`], [`MissionError::Store`].
    pub async fn events(&self, run: &RunId, after: u64) -> Result<Vec<RunEvent>, MissionError> {
        let stored = self.parts.runs.events(run, after, limits::RUN_EVENTS_READ).await?;
        stored.iter().map(|event| read_event(run, event)).collect()
    }

    /// The open questions, of one run or of all.
    ///
    /// # Errors
    /// [`MissionError::Store`].
    pub async fn questions(&self, run: Option<RunId>) -> Result<Vec<StoredQuestion>, MissionError> {
        Ok(self.parts.runs.questions(QuestionFilter { run, open: true }, limits::RUNS_LISTED).await?)
    }

    /// Answers a question. The same `event_id` has the same result however often it is repeated. Returns the answer as the model reads it.
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
        let unknown = || MissionError::Question(format!("run {run} has no question {question}"));
        let asked = report.state.human_inputs.get(question).ok_or_else(unknown)?;
        let answer = people::check_answer(&asked.question, text).map_err(MissionError::Question)?;
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
            question: QuestionKey::new(run.clone(), question),
            generation: None,
            text: answer.clone(),
            event_id: event_id.into(),
            events: vec![event_text(&event)],
            at: self.parts.clock.now(),
        };
        match self.parts.runs.answer(reply).await? {
            ReplyOutcome::Answered | ReplyOutcome::Refined { .. } => Ok(answer),
            ReplyOutcome::Already { answer, .. } => {
                Err(MissionError::Question(format!("the question was answered before, with: {answer}")))
            }
            ReplyOutcome::Outdated { .. } | ReplyOutcome::Closed => {
                Err(MissionError::Question("the question is closed".into()))
            }
        }
    }

    /// Asks a run to end: to be resumed later, or for good. The process that drives it ends it; if no unit is worked on, it ends at once.
    ///
    /// # Errors
    /// [`MissionError::Store`], also for an unknown run.
    pub async fn stop(&self, run: &RunId, request: StopRequest) -> Result<SignalOutcome, MissionError> {
        let signal = match request {
            StopRequest::Stop => Signal::Stop,
            StopRequest::Cancel => Signal::Cancel,
        };
        let outcome = self.parts.runs.signal(run, signal, self.parts.clock.now()).await?;
        if outcome == SignalOutcome::Accepted && !self.is_worked_on(run).await? {
            self.end_stopped(run, request).await?;
        }
        Ok(outcome)
    }

    async fn is_worked_on(&self, run: &RunId) -> Result<bool, MissionError> {
        let (units, now) = (self.parts.runs.units(run).await?, self.parts.clock.now());
        let is_held = |lease: Option<segue_engine::time::Timestamp>| lease.is_some_and(|until| until > now);
        Ok(units.iter().any(|unit| unit.status == UnitStatus::Claimed && is_held(unit.lease_until)))
    }

    async fn end_stopped(&self, run: &RunId, request: StopRequest) -> Result<(), MissionError> {
        let status = match request {
            StopRequest::Stop => RunStatus::Stopped,
            StopRequest::Cancel => RunStatus::Cancelled,
        };
        let reason = Some(request.name().into());
        let events = [RunEventKind::MissionStopping { reason }, RunEventKind::MissionStopped {}];
        let batch = RunBatch {
            events: events.map(|kind| event_text(&NewEvent::of_run(kind))).into(),
            status: Some(status),
            ..RunBatch::new(run.clone(), self.parts.clock.now())
        };
        match self.parts.runs.append_run(batch).await {
            // Another process has ended it.
            Ok(_) | Err(RunStoreError::WrongStatus { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Continues a run that was stopped or cancelled, or that failed. What is completed stays. It goes on with [`drive`](Self::drive).
    ///
    /// # Errors
    /// [`MissionError::Store`] for a run that has not ended or is completed.
    pub async fn resume(&self, run: &RunId) -> Result<(), MissionError> {
        let report = self.status(run).await?;
        let open = report.state.open_units();
        let batch = RunBatch {
            resume: true,
            // It is queued until it is admitted: other runs may have begun meanwhile.
            status: Some(RunStatus::Queued),
            after: Some(report.state.sequence),
            events: vec![event_text(&NewEvent::of_run(RunEventKind::MissionResumed {}))],
            wake_units: open.iter().map(|unit| unit.to_string().into()).collect(),
            ..RunBatch::new(run.clone(), self.parts.clock.now())
        };
        self.parts.runs.append_run(batch).await?;
        if let Ok(def) = self.parts.mission(&report.stored.summary.mission) {
            self.parts.runs.admit(run, limits_of(&def), self.parts.clock.now()).await?;
        }
        Ok(())
    }

    /// Starts a new run with the mission and the inputs of another: from the beginning, or from a task. Then the new run takes over what is
    /// completed and does not hang on that task.
    ///
    /// # Errors
    /// As [`start`](Self::start) and [`status`](Self::status); [`MissionError::Rerun`].
    pub async fn rerun(&self, run: &RunId, from: Option<&RerunFrom>) -> Result<RunId, MissionError> {
        let stored = self.stored(run).await?;
        let inputs: Json = serde_json::from_str(&stored.inputs)
            .map_err(|error| MissionError::Unreadable { run: run.clone(), reason: error.to_string() })?;
        let inputs = inputs.as_object().cloned().unwrap_or_default();
        let mission = stored.summary.mission;
        let mut options = NewRunOptions { rerun_of: Some(run.as_str().into()), ..NewRunOptions::default() };
        let taken = match from {
            None => TakenOver::default(),
            Some(from) => {
                let def = self.parts.mission(&mission)?;
                let mut events = Vec::new();
                loop {
                    let after = events.last().map_or(0, |event: &RunEvent| event.sequence);
                    let more = self.events(run, after).await?;
                    let is_last = more.len() < limits::RUN_EVENTS_READ;
                    events.extend(more);
                    if is_last {
                        break;
                    }
                }
                options.entry = RunState::from_events(&events).entry;
                rerun::taken_over(&def, &events, from).map_err(MissionError::Rerun)?
            }
        };
        let id = RunId::new(uuid::Uuid::new_v4().simple().to_string());
        let new = NewStart { taken, ..NewStart::new(&mission, &inputs, options) };
        self.start_as(id, new).await
    }

    /// Works on a run until it ends or waits for people. `on_event` gets every event from the first on, in order. `stop` is read between
    /// model calls: when it is cancelled, the run is stopped and can be resumed.
    ///
    /// Several processes may drive one run: each unit has one owner at a time. Cancellation: the units are given back when their leases
    /// are over.
    ///
    /// # Errors
    /// [`MissionError`] of the store or of unreadable data; the run can be driven again.
    pub async fn drive(
        &self,
        run: &RunId,
        stop: &CancellationToken,
        on_event: &mut (dyn FnMut(&RunEvent) + Send),
    ) -> Result<RunEnd, MissionError> {
        let def = self.parts.mission(&self.stored(run).await?.summary.mission)?;
        scratchpads::sweep(&*self.parts.runs, &*self.parts.clock, &self.parts.runs_folder).await;
        let mut drive = Drive {
            engine: self,
            run,
            def,
            view: Arc::new(RunView::new(self.parts.runs.clone(), run.clone())),
            units: JoinSet::new(),
            cancels: HashMap::new(),
            shown: 0,
        };
        let end = drive.run(stop, on_event).await;
        drive.units.abort_all();
        end
    }
}

/// A run that is driven.
struct Drive<'a> {
    engine: &'a RunEngine,
    run: &'a RunId,
    def: Arc<MissionDef>,
    view: Arc<RunView>,
    units: JoinSet<(Arc<str>, Result<(), MissionError>)>,
    /// Cancels units that work in this process, by name.
    cancels: HashMap<Arc<str>, CancellationToken>,
    /// The last event that was shown.
    shown: u64,
}

impl Drive<'_> {
    async fn run(
        &mut self,
        stop: &CancellationToken,
        on_event: &mut (dyn FnMut(&RunEvent) + Send),
    ) -> Result<RunEnd, MissionError> {
        let parts = &self.engine.parts;
        let mut is_stop_sent = false;
        loop {
            if stop.is_cancelled() && !is_stop_sent {
                is_stop_sent = true;
                parts.runs.signal(self.run, Signal::Stop, parts.clock.now()).await?;
            }
            let summary = self.engine.stored(self.run).await?.summary;
            if let Some(end) = end_of(summary.status) {
                while let Some(done) = self.units.join_next().await {
                    self.ended(done)?;
                }
                self.show(on_event).await?;
                return Ok(end);
            }
            match summary.stop {
                Some(request) => {
                    self.cancels.values().for_each(CancellationToken::cancel);
                    if self.units.is_empty() && !self.engine.is_worked_on(self.run).await? {
                        self.engine.end_stopped(self.run, request).await?;
                        continue;
                    }
                }
                None if self.is_admitted(summary.status).await? => {
                    self.schedule().await?;
                    self.claim().await?;
                }
                None => {}
            }
            self.show(on_event).await?;
            let mut pause = POLL;
            let is_queued = summary.status == RunStatus::Queued;
            if self.units.is_empty() && summary.stop.is_none() && !is_queued {
                if self.engine.stored(self.run).await?.summary.status.is_ended() {
                    continue;
                }
                match self.next_wake().await? {
                    Some(wait) => pause = pause.min(wait),
                    None => {
                        self.set_waiting(summary.status).await?;
                        self.show(on_event).await?;
                        return Ok(RunEnd::Waiting);
                    }
                }
            }
            let clock = &parts.clock;
            tokio::select! {
                Some(done) = self.units.join_next() => self.ended(done)?,
                () = self.view.changed.notified() => {}
                () = stop.cancelled(), if !is_stop_sent => {}
                () = clock.sleep(clock.deadline(pause)) => {}
            }
        }
    }

    /// Whether the run may begin; a queued one begins when others have ended.
    async fn is_admitted(&self, status: RunStatus) -> Result<bool, MissionError> {
        if status != RunStatus::Queued {
            return Ok(true);
        }
        let parts = &self.engine.parts;
        Ok(parts.runs.admit(self.run, limits_of(&self.def), parts.clock.now()).await? == Admission::Admitted)
    }

    fn ended(
        &mut self,
        done: Result<(Arc<str>, Result<(), MissionError>), tokio::task::JoinError>,
    ) -> Result<(), MissionError> {
        match done {
            Ok((unit, result)) => {
                self.cancels.remove(&unit);
                result
            }
            Err(error) if error.is_cancelled() => Ok(()),
            Err(error) => {
                Err(MissionError::Unreadable { run: self.run.clone(), reason: format!("a unit panicked: {error}") })
            }
        }
    }

    async fn show(&mut self, on_event: &mut (dyn FnMut(&RunEvent) + Send)) -> Result<(), MissionError> {
        loop {
            let events = self.engine.events(self.run, self.shown).await?;
            for event in &events {
                self.shown = event.sequence;
                on_event(event);
            }
            if events.len() < limits::RUN_EVENTS_READ {
                return Ok(());
            }
        }
    }

    /// Stores what the scheduler decides, until it decides nothing more.
    async fn schedule(&mut self) -> Result<(), MissionError> {
        let parts = &self.engine.parts;
        loop {
            let state = self.view.latest().await?;
            let now = parts.clock.now();
            let decisions = scheduler::next(&self.def, &state, &parts.project.templates, now);
            if decisions.is_empty() {
                return Ok(());
            }
            let mut batch = RunBatch::new(self.run.clone(), now);
            batch.after = Some(state.sequence);
            let mut events = Vec::new();
            for Decision { action, events: caused } in decisions {
                events.extend(caused);
                match action {
                    Action::Record => {}
                    Action::Start { unit, objective, wake_at } => {
                        let name = unit.to_string();
                        let input = serde_json::to_string(&UnitInput { unit, objective }).unwrap_or_default();
                        batch.new_units.push(NewUnit { wake_at, ..NewUnit::new(name, input) });
                    }
                    Action::Cancel { unit } => {
                        let name: Arc<str> = unit.to_string().into();
                        if let Some(cancel) = self.cancels.get(&name) {
                            cancel.cancel();
                        }
                        events.push(scheduler::cancelled(&unit));
                        batch.cancel_units.push(name);
                    }
                    Action::Launch { follow_up } => self.launch(&state, &follow_up).await?,
                    Action::Finish { status } => {
                        batch.status = Some(match status {
                            StateStatus::Completed => RunStatus::Completed,
                            _ => RunStatus::Failed,
                        });
                    }
                }
            }
            if batch.status == Some(RunStatus::Completed) {
                // A run that has ended cannot be changed: the runs after it are started first.
                let mut after = state.clone();
                for event in &events {
                    let sequence = after.sequence + 1;
                    after.apply(&event.clone().at(sequence, now));
                }
                for Decision { action, events: caused } in
                    scheduler::next(&self.def, &after, &parts.project.templates, now)
                {
                    if let Action::Launch { follow_up } = action {
                        self.launch(&after, &follow_up).await?;
                        events.extend(caused);
                    }
                }
            }
            batch.events = events.iter().map(event_text).collect();
            match parts.runs.append_run(batch).await {
                Ok(_) | Err(RunStoreError::Conflict { .. }) => {}
                Err(RunStoreError::WrongStatus { .. }) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn launch(&self, state: &RunState, follow_up: &FollowUp) -> Result<(), MissionError> {
        let options = NewRunOptions {
            entry: follow_up.entry.clone(),
            previous: Some(PreviousRun { run: state.run.clone(), task: follow_up.task.clone() }),
            chain: state.chain.saturating_add(1),
            chain_id: Some(state.chain_id.clone()),
            hand_over: follow_up.hand_over,
            rerun_of: None,
            dry_run: state.dry_run,
        };
        let id = RunId::new(follow_up.run.clone());
        // This run has not ended and may count for the limits of the next one, which therefore waits instead of being lost.
        let FollowUp { mission, inputs, .. } = follow_up;
        let new = NewStart { queues: true, ..NewStart::new(mission, inputs, options) };
        self.engine.start_as(id, new).await?;
        Ok(())
    }

    /// Claims units and works on them.
    async fn claim(&mut self) -> Result<(), MissionError> {
        let parts = &self.engine.parts;
        let free = MOST_UNITS.saturating_sub(self.units.len());
        if free == 0 {
            return Ok(());
        }
        let request = ClaimRequest {
            run: Some(self.run.clone()),
            owner: parts.owner.clone(),
            now: parts.clock.now(),
            lease: LEASE,
            limit: free,
        };
        for claimed in parts.runs.claim(request).await? {
            let (name, cancel) = (claimed.key.unit.clone(), CancellationToken::new());
            self.cancels.insert(name.clone(), cancel.clone());
            let work = slice::run(parts.clone(), self.def.clone(), self.view.clone(), claimed, cancel);
            self.units.spawn(async move { (name, work.await) });
        }
        Ok(())
    }

    /// How long it takes until a unit can be claimed; `None` if only an answer or a signal can make one ready.
    async fn next_wake(&self) -> Result<Option<Duration>, MissionError> {
        let parts = &self.engine.parts;
        if self.view.latest().await?.is_waiting() {
            return Ok(None);
        }
        let now = parts.clock.now();
        let units = parts.runs.units(self.run).await?;
        let wakes = units.iter().filter_map(|unit| match unit.status {
            UnitStatus::Ready => Some(unit.wake_at.unwrap_or(now)),
            UnitStatus::Claimed => Some(unit.lease_until.unwrap_or(now)),
            UnitStatus::Waiting => unit.wake_at,
            UnitStatus::Completed | UnitStatus::Failed | UnitStatus::Cancelled => None,
        });
        let wait = |at: segue_engine::time::Timestamp| {
            Duration::from_micros(u64::try_from(at.as_micros().saturating_sub(now.as_micros())).unwrap_or(0))
        };
        Ok(wakes.min().map(wait))
    }

    async fn set_waiting(&self, status: RunStatus) -> Result<(), MissionError> {
        if status == RunStatus::Waiting {
            return Ok(());
        }
        let batch = RunBatch {
            status: Some(RunStatus::Waiting),
            ..RunBatch::new(self.run.clone(), self.engine.parts.clock.now())
        };
        match self.engine.parts.runs.append_run(batch).await {
            Ok(_) | Err(RunStoreError::WrongStatus { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// How many runs the mission allows at the same time.
fn limits_of(def: &MissionDef) -> RunLimits {
    let concurrency = &def.concurrency;
    RunLimits { mission: Some(concurrency.max_parallel), group: concurrency.key.is_some().then_some(concurrency.limit) }
}

pub(super) fn end_of(status: RunStatus) -> Option<RunEnd> {
    match status {
        RunStatus::Completed => Some(RunEnd::Completed),
        RunStatus::Failed => Some(RunEnd::Failed),
        RunStatus::Stopped => Some(RunEnd::Stopped),
        RunStatus::Cancelled => Some(RunEnd::Cancelled),
        RunStatus::Queued | RunStatus::Running | RunStatus::Waiting => None,
    }
}
