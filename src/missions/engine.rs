//! Runs of missions: start, drive, answer, stop, resume.

use std::{collections::HashMap, sync::Arc, time::Duration};

use segue_engine::{
    ids::RunId,
    mission::{
        event::{NewEvent, RunEvent, RunEventKind},
        inputs::{self, InputProblem, NewRunOptions, RunStart},
        rerun::TakenOver,
        scheduler::{self, Action, Decision},
        sizes,
        state::{FollowUp, MissionStatus, RunState},
    },
    project::missions::{MissionDef, OnOverflow},
    time::Timestamp,
};
use serde_json::{Map, Value as Json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{
    control::{POLL, RunControl, RunReport, end_of},
    input_files::FileSource,
    parts::{MissionError, MissionParts},
    scratchpads,
    slice::{self, UnitInput, UnitStop},
    view::{RunView, event_text},
};
use crate::{
    journal::{LEASE, RENEWAL, StorePatience, ended_owners},
    store::runs::{
        ClaimRequest, NewRun, NewUnit, Overflow, RunAdmission, RunBatch, RunFilter, RunLimits, RunStatus,
        RunStoreError, RunSummary, Signal, SignalOutcome, StartOutcome, StopRequest, UnitStatus,
    },
};

/// The code of a run whose tasks are completed, and after which another mission was to run that cannot be started.
const CODE_FOLLOW_UP: &str = "follow_up.failed";
/// The code of a run of which something is stored that cannot be read.
const CODE_UNREADABLE: &str = "run.unreadable";
/// Units of one run that work at the same time.
const MOST_UNITS: usize = 64;
/// How long units are waited for when the store fails for good.
const GIVE_UP: Duration = Duration::from_secs(10);

/// A run to start.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct StartRun {
    /// The mission.
    pub mission: Arc<str>,
    /// Its inputs: JSON of the declared types, or texts with the same content.
    pub inputs: Map<String, Json>,
    /// A later start of the same mission with this key and the same inputs returns the first run.
    pub idempotency_key: Option<Arc<str>>,
    /// Whether tools that change something are refused.
    pub dry_run: bool,
    /// The task to enter; the first ones if absent.
    pub entry: Option<Arc<str>>,
}

impl StartRun {
    /// A run of a mission without inputs.
    pub fn new(mission: impl Into<Arc<str>>) -> Self {
        Self { mission: mission.into(), ..Self::default() }
    }
    /// Sets its inputs.
    #[must_use]
    pub fn inputs(mut self, inputs: Map<String, Json>) -> Self {
        self.inputs = inputs;
        self
    }
    /// Sets the key by which a later start of the same run is recognised.
    #[must_use]
    pub fn idempotency_key(mut self, key: impl Into<Arc<str>>) -> Self {
        self.idempotency_key = Some(key.into());
        self
    }
    /// Sets whether tools that change something are rejected.
    #[must_use]
    pub fn dry_run(mut self, dry_run: bool) -> Self {
        self.dry_run = dry_run;
        self
    }
    /// Sets the task to enter.
    #[must_use]
    pub fn entry(mut self, task: impl Into<Arc<str>>) -> Self {
        self.entry = Some(task.into());
        self
    }
}

/// How a run is started.
pub(super) struct NewStart<'a> {
    mission: &'a str,
    inputs: &'a Map<String, Json>,
    idempotency_key: Option<Arc<str>>,
    options: NewRunOptions,
    /// Whether it is queued instead of refused when a limit is reached.
    queues: bool,
    /// What it takes over from another run.
    pub(super) taken: TakenOver,
    /// Where the files of its inputs are.
    pub(super) files: FileSource,
}

impl<'a> NewStart<'a> {
    pub(super) fn new(mission: &'a str, inputs: &'a Map<String, Json>, options: NewRunOptions) -> Self {
        Self {
            mission,
            inputs,
            idempotency_key: None,
            options,
            queues: false,
            taken: TakenOver::default(),
            files: FileSource::Refused,
        }
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

/// Runs missions. Cheap to clone.
#[derive(Clone)]
pub struct RunEngine {
    pub(super) parts: Arc<MissionParts>,
    pub(super) control: RunControl,
}

impl RunEngine {
    /// An engine with these parts.
    pub fn new(parts: MissionParts) -> Self {
        Self { control: RunControl::new(parts.runs.clone(), parts.clock.clone()), parts: Arc::new(parts) }
    }

    /// What can be done with runs without working on them.
    pub fn control(&self) -> &RunControl {
        &self.control
    }

    /// As [`RunControl::status`].
    ///
    /// # Errors
    /// As [`RunControl::status`].
    pub async fn status(&self, run: &RunId) -> Result<RunReport, MissionError> {
        self.control.status(run).await
    }

    /// As [`RunControl::stop`].
    ///
    /// # Errors
    /// As [`RunControl::stop`].
    pub async fn stop(&self, run: &RunId, request: StopRequest) -> Result<SignalOutcome, MissionError> {
        self.control.stop(run, request).await
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
        let (idempotency_key, files) = (idempotency_key.clone(), FileSource::Host);
        let new = NewStart { idempotency_key, files, ..NewStart::new(mission, inputs, options) };
        self.start_as(id, new).await
    }

    pub(super) async fn start_as(&self, id: RunId, new: NewStart<'_>) -> Result<RunId, MissionError> {
        let NewStart { mission, inputs: given, idempotency_key, options, queues, taken, files } = new;
        let def = self.parts.mission(mission)?;
        let read = self.parts.read_files(&def, given, &files).await;
        if let (Err(_), Some(key)) = (&read, &idempotency_key)
            && let Some(existing) = self.started_with(mission, key).await?
        {
            // A repeated start returns the run with its copies, although the files are gone.
            return Ok(existing);
        }
        let (given, files) = read.map_err(MissionError::Inputs)?;
        let has_files = !files.is_empty();
        let options = NewRunOptions { datasets: taken.datasets, ..options };
        let RunStart { event: started, key } =
            inputs::start(&def, &id.as_str().into(), &given, options).map_err(MissionError::Inputs)?;
        let run = NewRun {
            inputs: Json::Object(given).to_string().into(),
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
        // The copies come first: a run that is stored has them, wherever the process ends.
        if let Err(problem) = self.parts.copy_files(&id, files).await {
            self.parts.remove_files(&id).await;
            return Err(MissionError::Inputs(vec![InputProblem { input: "files".into(), problem }]));
        }
        let given = run.inputs.clone();
        let outcome = self.parts.runs.start_run(run).await;
        if has_files && !matches!(outcome, Ok(StartOutcome::New | StartOutcome::Queued(_))) {
            self.parts.remove_files(&id).await;
        }
        match outcome? {
            StartOutcome::New | StartOutcome::Queued(_) => Ok(id),
            StartOutcome::Existing(existing) if existing == id => Ok(existing),
            StartOutcome::Existing(existing) => match self.is_same_start(&existing, &def, &started, &given).await? {
                true => Ok(existing),
                false => {
                    let problem = format!(
                        "run {existing} was started with this key and with other inputs; use another key, or the same inputs"
                    );
                    Err(MissionError::Inputs(vec![InputProblem { input: "idempotency_key".into(), problem }]))
                }
            },
            StartOutcome::Full(reached) => Err(MissionError::Full(mission.into(), reached, key)),
        }
    }

    /// Whether a run was started with these inputs, and in the same way. `given` is what [`NewRun::inputs`] holds, with protected inputs.
    async fn is_same_start(
        &self,
        run: &RunId,
        def: &MissionDef,
        started: &NewEvent,
        given: &str,
    ) -> Result<bool, MissionError> {
        let how = |kind: &RunEventKind| match kind {
            RunEventKind::MissionStarted { inputs, entry, dry_run, .. } => {
                Some((inputs.clone(), entry.clone(), *dry_run))
            }
            _ => None,
        };
        let protected = |text: &str| {
            let all: Map<String, Json> = serde_json::from_str(text).unwrap_or_default();
            let is_protected = |name: &str| def.inputs.get(name).is_some_and(|input| input.protected);
            all.into_iter().filter(|(name, _)| is_protected(name)).collect::<Map<_, _>>()
        };
        let stored = self.control.stored(run).await?;
        let first = self.control.events(run, 0).await?.into_iter().next();
        let is_same = first.is_some_and(|event| how(&event.event.kind) == how(&started.kind));
        Ok(is_same && protected(&stored.inputs) == protected(given))
    }

    /// The run of a mission that was started with this key.
    async fn started_with(&self, mission: &str, key: &str) -> Result<Option<RunId>, MissionError> {
        let filter = RunFilter::default().mission(mission).idempotency_key(key);
        Ok(self.control.runs(filter, 1).await?.pop().map(|run| run.id))
    }

    /// Continues a run that was stopped or that failed. What is completed stays. It goes on with [`drive`](Self::drive). A run that was
    /// asked to stop and whose process has ended without stopping it is stopped first.
    ///
    /// # Errors
    /// [`MissionError::Store`] for a run that has not ended, that is completed, or that was cancelled; [`MissionError::WithoutMission`].
    pub async fn resume(&self, run: &RunId) -> Result<(), MissionError> {
        if let Some(request) = self.control.summary(run).await?.stop
            && !self.control.is_worked_on(run).await?
        {
            self.control.end_stopped(run, request).await?;
        }
        let report = self.status(run).await?;
        // Before it counts as resumed: without its mission nothing could work on it.
        let def = self.mission_of(&report.stored.summary)?;
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
        self.parts.runs.admit(run, limits_of(&def), self.parts.clock.now()).await?;
        Ok(())
    }

    /// The mission of a run that is to go on.
    fn mission_of(&self, run: &RunSummary) -> Result<Arc<MissionDef>, MissionError> {
        let missing = |_| MissionError::WithoutMission(run.id.clone(), run.mission.clone());
        self.parts.mission(&run.mission).map_err(missing)
    }

    /// Works on a run until it ends or waits for people. `on_event` gets every event from the first on, in order. `stop` is read between
    /// model calls: when it is cancelled, the run is stopped and can be resumed.
    ///
    /// Several processes may drive one run: each unit has one owner at a time. Cancellation: the units are released when their leases
    /// are over.
    ///
    /// # Errors
    /// [`MissionError::WithoutMission`]: the run stays as it is, until the project has its mission again. [`MissionError::Unreadable`]: the
    /// run has failed by it. Other errors of the store: the run can be driven again.
    pub async fn drive(
        &self,
        run: &RunId,
        stop: &CancellationToken,
        on_event: &mut (dyn FnMut(&RunEvent) + Send),
    ) -> Result<RunEnd, MissionError> {
        let def = self.mission_of(&self.control.summary(run).await?)?;
        scratchpads::sweep(&*self.parts.runs, &*self.parts.clock, self.parts.workspaces.folder()).await;
        let mut drive = Drive {
            engine: self,
            run,
            def,
            view: Arc::new(RunView::new(self.parts.runs.clone(), run.clone())),
            units: JoinSet::new(),
            stopping: CancellationToken::new(),
            cancels: HashMap::new(),
            shown: 0,
            patience: StorePatience::new(self.parts.clock.clone()),
            has_failed_unit: false,
            renewed: None,
        };
        let end = loop {
            let error = match drive.run(stop, on_event).await {
                Err(error) if is_unreadable(&error) => {
                    // It would be so again whenever the run is continued.
                    let failed = drive.fail(CODE_UNREADABLE, &error.to_string(), None).await;
                    break failed.and(Err(error));
                }
                Err(MissionError::Store(error)) => error,
                end => break end,
            };
            tokio::select! {
                is_again = drive.patience.wait(&error) => if is_again { continue },
                // A request to stop cannot be stored now: the run goes on when it is resumed.
                () = stop.cancelled() => {}
            }
            break Err(error.into());
        };
        if end.is_err() {
            drive.give_up().await;
        }
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
    /// Stops the units that work in this process: they go on when the run is resumed.
    stopping: CancellationToken,
    /// Cancels units that work in this process, by name.
    cancels: HashMap<Arc<str>, CancellationToken>,
    /// The last event that was shown.
    shown: u64,
    /// A store that fails for a while does not end the work on a run.
    patience: StorePatience,
    /// Whether the last unit that ended failed by the store.
    has_failed_unit: bool,
    /// When it was last stored that this process waits for a queued run.
    renewed: Option<Duration>,
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
            let summary = self.engine.control.summary(self.run).await?;
            if let Some(end) = end_of(summary.status) {
                while let Some(done) = self.units.join_next().await {
                    self.ended(done)?;
                }
                self.show(on_event).await?;
                return Ok(end);
            }
            match summary.stop {
                Some(request) => {
                    self.stopping.cancel();
                    if self.units.is_empty() && !self.engine.control.is_worked_on(self.run).await? {
                        self.engine.control.end_stopped(self.run, request).await?;
                        continue;
                    }
                }
                None if self.is_admitted(summary.status).await? => {
                    self.schedule().await?;
                    if self.claim().await? && summary.status == RunStatus::Waiting {
                        self.set_status(RunStatus::Running).await?;
                    }
                }
                None => self.wait_in_queue().await?,
            }
            self.show(on_event).await?;
            if !self.has_failed_unit {
                self.patience.reset();
            }
            let mut pause = POLL;
            let is_queued = summary.status == RunStatus::Queued;
            if summary.stop.is_none() && !is_queued {
                // An item that waits for its time starts then, and not when the run is read next.
                pause = self.next_start().await?.map_or(pause, |wait| pause.min(wait));
            }
            if self.units.is_empty() && summary.stop.is_none() && !is_queued {
                if self.engine.control.summary(self.run).await?.status.is_ended() {
                    continue;
                }
                match self.next_work().await? {
                    NextWork::After(wait) => pause = pause.min(wait),
                    NextWork::Answer => {
                        self.set_status(RunStatus::Waiting).await?;
                        self.show(on_event).await?;
                        return Ok(RunEnd::Waiting);
                    }
                    NextWork::Never { after } => {
                        self.fail_stuck(after).await?;
                        continue;
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
        Ok(parts.runs.admit(self.run, limits_of(&self.def), parts.clock.now()).await? == RunAdmission::Admitted)
    }

    fn ended(
        &mut self,
        done: Result<(Arc<str>, Result<(), MissionError>), tokio::task::JoinError>,
    ) -> Result<(), MissionError> {
        match done {
            Ok((unit, result)) => {
                self.cancels.remove(&unit);
                self.has_failed_unit = result.is_err();
                result
            }
            Err(error) if error.is_cancelled() => Ok(()),
            Err(error) => {
                Err(MissionError::Unreadable { run: self.run.clone(), reason: format!("a unit panicked: {error}") })
            }
        }
    }

    async fn show(&mut self, on_event: &mut (dyn FnMut(&RunEvent) + Send)) -> Result<(), MissionError> {
        self.shown = self.engine.control.show(self.run, self.shown, on_event).await?;
        Ok(())
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
                // The runs that follow are started with the end of this one, below.
                if matches!(action, Action::Launch { .. }) {
                    batch.status = Some(RunStatus::Completed);
                    continue;
                }
                events.extend(caused);
                match action {
                    Action::Record | Action::Launch { .. } => {}
                    Action::Start { unit, objective } => {
                        let name = unit.to_string();
                        let input = serde_json::to_string(&UnitInput { unit, objective }).unwrap_or_default();
                        batch.new_units.push(NewUnit::new(name, input));
                    }
                    Action::Cancel { unit } => {
                        let name: Arc<str> = unit.to_string().into();
                        if let Some(cancel) = self.cancels.get(&name) {
                            cancel.cancel();
                        }
                        events.extend(scheduler::cancelled(&state, &unit));
                        batch.cancel_units.push(name);
                    }
                    Action::Finish { status } => {
                        batch.status = Some(match status {
                            MissionStatus::Completed => RunStatus::Completed,
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
                    let Action::Launch { follow_up } = action else { continue };
                    match self.launch(&after, &follow_up).await {
                        Ok(()) => events.extend(caused),
                        Err(error) if may_pass(&error) => return Err(error),
                        Err(error) => {
                            let mission = &follow_up.mission;
                            let error = format!("the mission `{mission}` that follows cannot be started: {error}");
                            events.retain(|event| !matches!(event.kind, RunEventKind::MissionCompleted {}));
                            events.push(failed(CODE_FOLLOW_UP, error));
                            batch.status = Some(RunStatus::Failed);
                            break;
                        }
                    }
                }
            }
            batch.events = events.iter().map(event_text).collect();
            match parts.runs.append_run(batch).await {
                Ok(_) | Err(RunStoreError::Conflict { .. }) => {}
                Err(RunStoreError::WrongStatus { .. }) => return Ok(()),
                Err(error @ RunStoreError::TooLarge { .. }) => {
                    return self.fail(sizes::CODE_TOO_LARGE, &error.to_string(), None).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Ends the run with all that is open in it, because it cannot go on, now or later. `after`: only if this is still its last event.
    async fn fail(&self, code: &str, error: &str, after: Option<u64>) -> Result<(), MissionError> {
        self.stopping.cancel();
        // What cannot be read has no ends.
        let mut events = match self.view.latest().await {
            Ok(state) => scheduler::all_cancelled(&state),
            Err(_) => Vec::new(),
        };
        events.push(failed(code, error.to_owned()));
        let batch = RunBatch {
            after,
            status: Some(RunStatus::Failed),
            events: events.iter().map(event_text).collect(),
            ..RunBatch::new(self.run.clone(), self.engine.parts.clock.now())
        };
        self.change(batch).await
    }

    /// Fails a task that is open although nothing works on it, or ever will: the mission no longer has it as it was started. Then the run
    /// ends as after any failure. `after`: only if this is still the last event.
    async fn fail_stuck(&self, after: u64) -> Result<(), MissionError> {
        let error =
            format!("nothing works on it: the mission `{}` was changed after the run was started", self.def.name);
        let open = self
            .view
            .latest()
            .await?
            .tasks
            .iter()
            .find(|(_, task)| task.status.is_open())
            .map(|(name, _)| name.clone());
        let Some(open) = open else { return self.fail(scheduler::CODE_STUCK, &error, Some(after)).await };
        let kind = RunEventKind::TaskFailed { code: scheduler::CODE_STUCK.into(), error: error.into() };
        let batch = RunBatch {
            after: Some(after),
            events: vec![event_text(&NewEvent::of_task(&open, kind))],
            ..RunBatch::new(self.run.clone(), self.engine.parts.clock.now())
        };
        self.change(batch).await
    }

    async fn launch(&self, state: &RunState, follow_up: &FollowUp) -> Result<(), MissionError> {
        let options = state.next_run(follow_up.task.clone(), follow_up.entry.clone(), follow_up.hand_over);
        let id = RunId::new(follow_up.run.clone());
        // This run has not ended and may count for the limits of the next one, which therefore waits instead of being lost.
        let FollowUp { mission, inputs, .. } = follow_up;
        let new = NewStart { queues: true, ..NewStart::new(mission, inputs, options) };
        self.engine.start_as(id, new).await?;
        Ok(())
    }

    /// Claims units and works on them. Returns whether there were any.
    async fn claim(&mut self) -> Result<bool, MissionError> {
        let parts = &self.engine.parts;
        let free = MOST_UNITS.saturating_sub(self.units.len());
        if free == 0 {
            return Ok(false);
        }
        // As long as this process has work, it does not look at the others.
        let gone = match self.units.is_empty() {
            true => ended_owners(&parts.runs.units(self.run).await?),
            false => Vec::new(),
        };
        let request = ClaimRequest {
            run: Some(self.run.clone()),
            owner: parts.owner.clone(),
            now: parts.clock.now(),
            lease: LEASE,
            limit: free,
            gone,
        };
        let claimed = parts.runs.claim(request).await?;
        let is_any = !claimed.is_empty();
        for claimed in claimed {
            let (name, end) = (claimed.key.unit.clone(), UnitStop::new(&self.stopping));
            self.cancels.insert(name.clone(), end.cancel.clone());
            let work = slice::run(parts.clone(), self.def.clone(), self.view.clone(), claimed, end);
            self.units.spawn(async move { (name, work.await) });
        }
        Ok(is_any)
    }

    /// How long it takes until the scheduler starts an item that waits for its time.
    async fn next_start(&self) -> Result<Option<Duration>, MissionError> {
        let parts = &self.engine.parts;
        let (state, now) = (self.view.latest().await?, parts.clock.now());
        let at = scheduler::next_wake(&self.def, &state, &parts.project.templates, now);
        Ok(at.map(|at| until(now, at)))
    }

    /// When a unit can be claimed or started.
    async fn next_work(&self) -> Result<NextWork, MissionError> {
        let parts = &self.engine.parts;
        let next_start = self.next_start().await?;
        let (after, is_waiting, asks) = {
            let state = self.view.latest().await?;
            let asks = state.human_inputs.values().any(|input| input.open);
            (state.sequence, next_start.is_none() && state.is_waiting(), asks)
        };
        let now = parts.clock.now();
        let units = parts.runs.units(self.run).await?;
        // A unit that waits for a person may have agents that work meanwhile, in another process.
        if is_waiting && !units.iter().any(|unit| matches!(unit.status, UnitStatus::Claimed | UnitStatus::Ready)) {
            return Ok(NextWork::Answer);
        }
        let wakes = units.iter().filter_map(|unit| match unit.status {
            UnitStatus::Ready => Some(unit.wake_at.unwrap_or(now)),
            UnitStatus::Claimed => Some(unit.lease_until.unwrap_or(now)),
            UnitStatus::Waiting => unit.wake_at,
            UnitStatus::Completed | UnitStatus::Failed | UnitStatus::Cancelled => None,
        });
        Ok(match (wakes.map(|at| until(now, at)).chain(next_start).min(), asks) {
            (Some(wait), _) => NextWork::After(wait),
            (None, true) => NextWork::Answer,
            (None, false) => NextWork::Never { after },
        })
    }

    /// Stores a status of a run that goes on.
    async fn set_status(&self, status: RunStatus) -> Result<(), MissionError> {
        let batch = RunBatch { status: Some(status), ..RunBatch::new(self.run.clone(), self.engine.parts.clock.now()) };
        self.change(batch).await
    }

    /// Stores from time to time that a process waits for the run to be admitted: nobody holds a unit of it.
    async fn wait_in_queue(&mut self) -> Result<(), MissionError> {
        let clock = &self.engine.parts.clock;
        let (elapsed, now) = (clock.elapsed(), clock.now());
        if self.renewed.is_none_or(|renewed| elapsed.saturating_sub(renewed) >= RENEWAL) {
            self.change(RunBatch::new(self.run.clone(), now)).await?;
            self.renewed = Some(elapsed);
        }
        Ok(())
    }

    /// Changes a run that may have ended, or that another process may have changed, in the meantime.
    async fn change(&self, batch: RunBatch) -> Result<(), MissionError> {
        match self.engine.parts.runs.append_run(batch).await {
            Ok(_) | Err(RunStoreError::WrongStatus { .. } | RunStoreError::Conflict { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Ends the work of this process and gives its units back, as far as the store lets it: nobody waits for their leases then.
    async fn give_up(&mut self) {
        self.stopping.cancel();
        let clock = &self.engine.parts.clock;
        tokio::select! {
            () = async { while self.units.join_next().await.is_some() {} } => {}
            () = clock.sleep(clock.deadline(GIVE_UP)) => {}
        }
    }
}

/// When a run goes on.
enum NextWork {
    /// After this time a unit can be claimed or started.
    After(Duration),
    /// When a person has answered.
    Answer,
    /// Nothing works on what is open after this event, and nothing ever will.
    Never { after: u64 },
}

/// How long it takes until a time.
fn until(now: Timestamp, at: Timestamp) -> Duration {
    Duration::from_micros(u64::try_from(at.as_micros().saturating_sub(now.as_micros())).unwrap_or(0))
}

/// The end of a run that cannot go on.
fn failed(code: &str, error: String) -> NewEvent {
    NewEvent::of_run(RunEventKind::MissionFailed { code: code.into(), error: error.into() })
}

/// Whether a start may succeed later, because only the store failed.
fn may_pass(error: &MissionError) -> bool {
    matches!(error, MissionError::Store(error) if !matches!(error, RunStoreError::TooLarge { .. }))
}

/// Whether what is stored of the run cannot be understood, now or later.
fn is_unreadable(error: &MissionError) -> bool {
    matches!(error, MissionError::Unreadable { .. } | MissionError::Store(RunStoreError::Corrupt { .. }))
}

/// How many runs the mission allows at the same time.
fn limits_of(def: &MissionDef) -> RunLimits {
    let concurrency = &def.concurrency;
    RunLimits { mission: Some(concurrency.max_parallel), group: concurrency.key.is_some().then_some(concurrency.limit) }
}
