//! The journal of a durable job: a claimed unit of a run, in a [`RunStore`]. Events that a step causes are stored in one transaction with
//! its outcome. [`hold`] renews the lease of the unit while its owner works.

use std::{
    convert::Infallible,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::future::{BoxFuture, Either};
use segue_base::process;
use segue_engine::time::Timestamp;
use tokio_util::sync::CancellationToken;

use super::{BegunStep, Journal, Step, StepRecords, StepStart, StepStatus};
use crate::{
    clock::Clock,
    context::StepKey,
    failpoint, limits,
    store::{
        JournalRecord, StoreError,
        runs::{RunStore, RunStoreError, Signals, StopRequest, StoredUnit, UnitBatch, UnitKey, UnitStatus},
    },
};

/// How long a unit is held unless the lease is renewed.
pub(crate) const LEASE: Duration = Duration::from_secs(60);
/// How often a lease is renewed.
pub(crate) const RENEWAL: Duration = Duration::from_secs(20);

/// The pauses before a store is tried again, from the first to the longest.
const STORE_PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));

/// Tries a store again while its failure may pass, as turns do, but longer: nobody waits for the answer of a job.
pub(crate) struct StorePatience {
    clock: Arc<dyn Clock>,
    /// When the first of the failures was, and the pause before the next attempt.
    failing: Option<(Duration, Duration)>,
}

impl StorePatience {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, failing: None }
    }

    /// The store has done what it was asked for.
    pub(crate) fn reset(&mut self) {
        self.failing = None;
    }

    /// Waits before another attempt. False: the error does not pass, or it has lasted for [`limits::JOB_STORE_WAIT`].
    pub(crate) async fn wait(&mut self, error: &RunStoreError) -> bool {
        let now = self.clock.elapsed();
        let (since, pause) = self.failing.unwrap_or((now, STORE_PAUSES.0));
        let is_over = now.saturating_sub(since) >= limits::JOB_STORE_WAIT;
        if !error.is_transient() || matches!(error, RunStoreError::Conflict { .. }) || is_over {
            return false;
        }
        tracing::warn!(code = error.code(), "the store of runs is tried again in {pause:?}: {error}");
        self.clock.sleep(self.clock.deadline(pause)).await;
        self.failing = Some((since, pause.saturating_mul(2).min(STORE_PAUSES.1)));
        true
    }
}

/// Why a job stops without a result: its owner lost it, or the store failed.
#[derive(Clone, Debug)]
pub(crate) enum Halt {
    /// The store refused a write.
    Store(RunStoreError),
    /// A recorded step does not fit: what the job does was changed while it ran.
    Changed(StoreError),
    /// What the job needs cannot be read.
    Unreadable(Arc<str>),
}

impl Halt {
    fn as_store_error(&self) -> StoreError {
        match self {
            Self::Store(error) => error.clone().into(),
            Self::Changed(error) => error.clone(),
            Self::Unreadable(reason) => StoreError::Unavailable(reason.to_string()),
        }
    }
}

/// The events of a kind of jobs.
pub(crate) trait JobEvents: Send + Sync {
    /// The event of a step that was performed in so many milliseconds.
    fn of_step(&self, record: &JournalRecord, duration_ms: u64) -> Option<Arc<str>> {
        let _ = (record, duration_ms);
        None
    }
    /// Whether the outcome of a step that may be repeated is stored at once, and not with the next write.
    fn stores_at_once(&self, record: &JournalRecord) -> bool {
        let _ = record;
        false
    }
    /// Called when events were stored.
    fn stored(&self) {}
}

/// A kind of jobs without events of its steps. Responses of models are stored at once: a job has no other writes while it only reads.
pub(crate) struct NoEvents;

impl JobEvents for NoEvents {
    fn stores_at_once(&self, record: &JournalRecord) -> bool {
        &*record.kind == "llm"
    }
}

/// The journal of a claimed unit.
pub(crate) struct JobJournal {
    store: Arc<dyn RunStore>,
    key: UnitKey,
    epoch: u64,
    clock: Arc<dyn Clock>,
    kind: Arc<dyn JobEvents>,
    /// Cancelled when the work is to stop and to go on later: then a composite step has no outcome, and goes on when the job is continued.
    stop: CancellationToken,
    /// Held while a batch is stored, so that nothing is stored twice: the store numbers every event that it gets.
    storing: tokio::sync::Mutex<()>,
    /// Never locked across an await point.
    state: Mutex<State>,
}

struct State {
    /// Records of other builds are replayed: a job may outlive the program that began it. Pending records are taken out for a write with
    /// the events that belong to them, and put back if it fails.
    steps: StepRecords,
    /// Events that are not stored yet, in order.
    events: Vec<Arc<str>>,
    /// Why no step begins any more.
    halt: Option<Halt>,
    /// The number of the last event of the run when the job has stored something; 0 before.
    last_seq: u64,
}

/// A claimed unit, and what its journal needs.
pub(crate) struct JobClaim {
    pub(crate) store: Arc<dyn RunStore>,
    pub(crate) key: UnitKey,
    pub(crate) epoch: u64,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) stop: CancellationToken,
}

impl JobJournal {
    /// The journal of a unit with these records of earlier owners. `build` is the hash of engine version and project.
    pub(crate) fn new(claim: JobClaim, build: u64, kind: Arc<dyn JobEvents>, records: Vec<JournalRecord>) -> Self {
        let steps = StepRecords::new(build, records).replaying_other_builds();
        let state = Mutex::new(State { steps, events: Vec::new(), halt: None, last_seq: 0 });
        let JobClaim { store, key, epoch, clock, stop } = claim;
        Self { store, key, epoch, clock, kind, stop, storing: Default::default(), state }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why the job cannot go on, if it cannot.
    pub(crate) fn halt(&self) -> Option<Halt> {
        self.lock().halt.clone()
    }

    /// Lets no further step begin.
    pub(crate) fn halt_with(&self, halt: Halt) {
        self.lock().halt.get_or_insert(halt);
    }

    /// Stores an event with the next write.
    pub(crate) fn note(&self, event: Arc<str>) {
        self.lock().events.push(event);
    }

    /// The recorded outcome of a step.
    pub(crate) fn outcome(&self, key: &StepKey) -> Option<Arc<str>> {
        self.lock().steps.outcome(key).cloned()
    }

    /// The records that a later owner of the unit needs, stored or not, in the order in which they were recorded.
    pub(crate) fn records(&self) -> Vec<JournalRecord> {
        self.lock().steps.needed_later()
    }

    /// A record of this build.
    pub(crate) fn record(&self, key: &StepKey, kind: &str) -> JournalRecord {
        self.lock().steps.record(key, kind, "", self.clock.now())
    }

    /// Adds a record with an outcome that is stored with the next write.
    pub(crate) fn add_pending(&self, record: JournalRecord) {
        self.lock().steps.add_pending(record);
    }

    /// Adds a record that is stored already.
    pub(crate) fn add_stored(&self, record: JournalRecord) {
        self.lock().steps.add_stored(record);
    }

    /// Stores what is pending, together with what `edit` adds.
    ///
    /// # Errors
    /// After [`RunStoreError::Conflict`] the call may be repeated; after any other error the job has halted. An error that may pass was
    /// waited for.
    pub(crate) async fn commit(&self, edit: impl FnOnce(&mut UnitBatch)) -> Result<(), RunStoreError> {
        let _storing = self.storing.lock().await;
        let (records, events) = {
            let mut state = self.lock();
            if let Some(Halt::Store(error)) = &state.halt {
                return Err(error.clone());
            }
            (std::mem::take(state.steps.pending()), std::mem::take(&mut state.events))
        };
        let mut batch = UnitBatch::new(self.key.clone(), self.epoch, self.clock.now());
        batch.records.clone_from(&records);
        batch.events.clone_from(&events);
        edit(&mut batch);
        let has_events = !batch.events.is_empty();
        let is_checkpoint = batch.checkpoint.is_some();
        match self.store_batch(batch).await {
            Ok(last_seq) => {
                {
                    let mut state = self.lock();
                    state.last_seq = last_seq.max(state.last_seq);
                    if is_checkpoint {
                        state.steps.clear();
                    }
                }
                if has_events {
                    self.kind.stored();
                }
                Ok(())
            }
            Err(error) => {
                let mut state = self.lock();
                state.steps.pending().splice(..0, records);
                state.events.splice(..0, events);
                if !matches!(error, RunStoreError::Conflict { .. }) {
                    state.halt.get_or_insert(Halt::Store(error.clone()));
                }
                Err(error)
            }
        }
    }

    /// Stores a batch, however often the store must be tried. Returns the number of the last event that is known.
    async fn store_batch(&self, batch: UnitBatch) -> Result<u64, RunStoreError> {
        let mut patience = StorePatience::new(self.clock.clone());
        loop {
            let mut error = match self.store.append(batch.clone()).await {
                Err(error) => error,
                stored => return stored,
            };
            // It may be stored although the store has failed.
            loop {
                if !patience.wait(&error).await {
                    return Err(error);
                }
                match self.find_stored(&batch).await {
                    Ok(Some(last_seq)) => return Ok(last_seq),
                    Ok(None) => break,
                    Err(failed) => error = failed,
                }
            }
        }
    }

    /// Whether a batch of this job is stored: the number of its last event, or of the last one before it if it has none.
    async fn find_stored(&self, batch: &UnitBatch) -> Result<Option<u64>, RunStoreError> {
        let mut after = self.lock().last_seq;
        let Some(last) = batch.events.last() else {
            let stored = self.store.unit(&batch.unit).await?.map(|content| content.records).unwrap_or_default();
            let is_stored = !batch.records.is_empty() && batch.records.iter().all(|record| stored.contains(record));
            return Ok(is_stored.then_some(after));
        };
        loop {
            let events = self.store.events(&batch.unit.run, after, limits::RUN_EVENTS_READ).await?;
            let is_own = |unit: &Option<Arc<str>>| unit.as_ref() == Some(&batch.unit.unit);
            let found = events.iter().find(|event| is_own(&event.unit) && event.at == batch.at && event.event == *last);
            if found.is_some() || events.len() < limits::RUN_EVENTS_READ {
                return Ok(found.map(|event| event.seq));
            }
            after = events.last().map_or(after, |event| event.seq);
        }
    }

    async fn begin_step(&self, step: Step<'_>) -> Result<StepStart, StoreError> {
        let begun = {
            let mut state = self.lock();
            if let Some(halt) = &state.halt {
                return Err(halt.as_store_error());
            }
            state.steps.begin(step, self.clock.now())?
        };
        let intent = match begun {
            BegunStep::Now(start) => return Ok(start),
            BegunStep::AfterWrite { intent } => intent,
        };
        let is_new = intent.is_some();
        if let Err(error) = self.commit(|batch| batch.records.extend(intent)).await {
            if is_new && !matches!(error, RunStoreError::StepAlreadyStarted { .. }) {
                self.lock().steps.intent_not_stored(step.key);
            }
            return Err(error.into());
        }
        failpoint::hit("C11");
        Ok(StepStart::Run)
    }

    async fn finish_step(&self, key: &StepKey, outcome: Arc<str>, at: Timestamp) -> Result<(), StoreError> {
        let (effect, stores) = {
            let mut state = self.lock();
            let stopped = || StoreError::Unavailable("the work was stopped and is continued later".into());
            let stopped =
                state.halt.as_ref().map(Halt::as_store_error).or_else(|| self.stop.is_cancelled().then(stopped));
            let began = state.steps.time_of(key).unwrap_or(at);
            let (effect, record) = state.steps.finish(key, outcome, at, stopped)?;
            let duration = at.as_micros().saturating_sub(began.as_micros()) / 1_000;
            state.events.extend(self.kind.of_step(&record, u64::try_from(duration).unwrap_or(0)));
            (effect, self.kind.stores_at_once(&record))
        };
        if effect.has_intent() {
            failpoint::hit("C14");
            self.commit(|_| {}).await?;
            failpoint::hit("C15");
        } else if stores {
            self.commit(|_| {}).await?;
        }
        Ok(())
    }
}

impl Journal for JobJournal {
    fn begin<'a>(&'a self, step: Step<'a>) -> BoxFuture<'a, Result<StepStart, StoreError>> {
        Box::pin(async move {
            let begun = self.begin_step(step).await;
            if let Err(error @ StoreError::RequestChanged { .. }) = &begun {
                self.halt_with(Halt::Changed(error.clone()));
            }
            begun
        })
    }

    fn status(&self, step: Step<'_>) -> StepStatus {
        self.lock().steps.status(step.key)
    }

    fn recorded(&self, key: &StepKey) -> Option<JournalRecord> {
        self.lock().steps.recorded(key)
    }

    fn finish<'a>(
        &'a self,
        key: &'a StepKey,
        outcome: Arc<str>,
        at: Timestamp,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        // An error of the store has halted the job in `commit`.
        Box::pin(self.finish_step(key, outcome, at))
    }

    fn is_stopped(&self) -> bool {
        self.stop.is_cancelled() || matches!(self.lock().halt, Some(Halt::Store(_)))
    }

    fn announce_reply<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        // A job shows nothing while it works.
        Box::pin(std::future::ready(Ok(())))
    }
}

/// Does the work of a claimed unit and renews its lease meanwhile. `stopped` is called when the run is to stop, or with `None` when another
/// owner has the unit.
pub(crate) async fn hold<T>(
    runs: &dyn RunStore,
    key: &UnitKey,
    epoch: u64,
    clock: &dyn Clock,
    stopped: impl Fn(Option<StopRequest>),
    work: impl Future<Output = T>,
) -> T {
    let renewals = renew(key, clock, || runs.renew(key, epoch, later(clock.now(), LEASE)), stopped);
    match futures::future::select(pin!(work), pin!(renewals)).await {
        Either::Left((done, _)) => done,
        Either::Right((never, _)) => match never {},
    }
}

/// Renews a lease again and again. If the store cannot confirm it, the work is stopped before another owner may take the unit.
async fn renew<F: Future<Output = Result<Signals, RunStoreError>>>(
    key: &UnitKey,
    clock: &dyn Clock,
    renewal: impl Fn() -> F,
    stopped: impl Fn(Option<StopRequest>),
) -> Infallible {
    let mut held_until = clock.deadline(LEASE);
    loop {
        clock.sleep(clock.deadline(RENEWAL)).await;
        match renewal().await {
            Ok(signals) => {
                held_until = clock.deadline(LEASE);
                if signals.stop.is_some() {
                    stopped(signals.stop);
                }
            }
            Err(RunStoreError::Fenced { .. }) => stopped(None),
            Err(error) => {
                tracing::warn!("the lease of {key} was not renewed: {error}");
                if clock.deadline(RENEWAL) >= held_until {
                    stopped(None);
                }
            }
        }
    }
}

/// The owners of claimed units that are known to have ended.
pub(crate) fn ended_owners(units: &[StoredUnit]) -> Vec<Arc<str>> {
    let owners = units.iter().filter(|unit| unit.status == UnitStatus::Claimed).filter_map(|unit| unit.owner.clone());
    let mut ended: Vec<_> = owners.filter(|owner| process::has_ended(owner)).collect();
    ended.dedup();
    ended
}

/// A time after another.
pub(crate) fn later(at: Timestamp, by: Duration) -> Timestamp {
    Timestamp::from_micros(at.as_micros().saturating_add(i64::try_from(by.as_micros()).unwrap_or(i64::MAX)))
}

#[cfg(test)]
mod tests;
