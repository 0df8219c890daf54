//! The journal of a durable job: a claimed unit of a run, in a [`RunStore`]. Events that a step causes are stored in one transaction with
//! its outcome. [`hold`] renews the lease of the unit while its owner works.

use std::{
    convert::Infallible,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::future::{BoxFuture, Either};
use segue_engine::time::Timestamp;
use tokio_util::sync::CancellationToken;

use super::{BegunStep, Journal, Step, StepRecords, StepStart, StepStatus};
use crate::{
    clock::Clock,
    context::StepKey,
    failpoint,
    store::{
        JournalRecord, StoreError,
        runs::{RunStore, RunStoreError, Signals, StopRequest, UnitBatch, UnitKey},
    },
};

/// How long a unit is held unless the lease is renewed.
pub(crate) const LEASE: Duration = Duration::from_secs(60);
/// How often a lease is renewed.
const RENEWAL: Duration = Duration::from_secs(20);

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
        let state = Mutex::new(State { steps, events: Vec::new(), halt: None });
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
    /// After [`RunStoreError::Conflict`] the call may be repeated; after any other error the job has halted.
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
        match self.store.append(batch).await {
            Ok(_) => {
                if is_checkpoint {
                    self.lock().steps.clear();
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

/// A time after another.
pub(crate) fn later(at: Timestamp, by: Duration) -> Timestamp {
    Timestamp::from_micros(at.as_micros().saturating_add(i64::try_from(by.as_micros()).unwrap_or(i64::MAX)))
}

#[cfg(test)]
mod tests;
