//! The effect journal records the effects of a turn, so that each is performed at most once and a turn can run again after a crash.
//!
//! [`EffectJournal::once`] runs one step with its work. Guarantees:
//!
//! * A `read` is performed at once. Its outcome stays pending and is written with the next commit.
//! * An `idempotent` or a `write` is performed only after its intent **and all pending outcomes** are durable: the response of a model
//!   is stored before the first effect that depends on it.
//! * The outcome of such an effect is durable when [`EffectJournal::once`] returns.
//! * A step with a recorded outcome is never performed again. A `write` whose intent has no outcome is not performed again either: it is
//!   [`StepResult::Unknown`]. An `idempotent` step is performed again, with the same key.
//! * A `composite` only contains other steps. It has no intent and is never unknown: without an outcome it runs again, and its inner
//!   steps are replayed. Its outcome is not recorded if one of them was stopped.
//! * If the client may still take its request back ([`WriteGate`]), an `idempotent` or a `write` first waits until it counts as confirmed; if
//!   the client ends the request before, the step does not begin.
//! * A changed request for the same step is an error; the step is not performed.
//! * All attempts of a turn in one process share one journal: the next attempt uses an outcome that could not be stored, and stores it
//!   first.
//!
//! [`JournaledModel`] and [`JournaledTool`] record the calls of models and tools, transparently for the caller.

mod clock;
mod job;
mod model;
mod replay;
mod step_records;
mod tool;
mod tool_list;
mod tool_progress;
mod turn;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use futures::future::BoxFuture;
use segue_engine::time::Timestamp;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value as Json;
use tokio_util::sync::CancellationToken;

pub use self::{
    clock::TurnClock,
    model::JournaledModel,
    replay::ReplayJournal,
    tool::JournaledTool,
    tool_list::TOOL_LIST,
    tool_progress::{RecordedToolCall, TraceProgress, progress_of},
    turn::TurnJournal,
};
pub(crate) use self::{
    job::{Halt, JobClaim, JobEvents, JobJournal, LEASE, NoEvents, RENEWAL, StorePatience, ended_owners, hold, later},
    model::recorded_response,
    step_records::{BegunStep, StepRecords},
    tool_list::ListedTool,
};
use crate::{
    context::StepKey,
    conversation::WriteGate,
    effect::EffectClass,
    llm::{ChatRequest, ChatResponse, LlmError},
    store::{JournalRecord, StoreError, TurnNumber},
    tools::ToolInfo,
};

/// One step of a turn: the description of an effect.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// Its key within the turn.
    pub key: &'a StepKey,
    /// Its kind: one of the kinds of [`JournalRecord`].
    pub kind: &'a str,
    /// Its effect class: whether it may be repeated.
    pub class: EffectClass,
    /// The request or its hash: the same step with another request is an error.
    pub request: &'a str,
}

/// The decision of the journal before an effect.
#[derive(Clone, Debug, PartialEq)]
pub enum StepStart {
    /// Perform the effect, then call [`Journal::finish`].
    Run,
    /// It was performed before, with this outcome. Do not perform it.
    Replay {
        /// The outcome as JSON text.
        outcome: Arc<str>,
        /// The time of the outcome.
        at: Timestamp,
    },
    /// A `write` that may have happened: do not perform it. [`Journal::finish`] may record the outcome that the caller uses instead.
    Unknown,
    /// Another build recorded this step: nothing may be replayed. The runtime converts the records to events.
    OtherBuild,
}

/// The status of a step before it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepStatus {
    /// It has an outcome.
    Done,
    /// It has none.
    Open,
    /// It has none and will not get one: this journal only replays.
    ReplayOnly,
}

/// The records of an [`EffectJournal`]: those of a running turn, of a replayed turn, or of a recording.
pub trait Journal: Send + Sync {
    /// Decides whether the effect may be performed. *Cancellation*: the intent may have been stored; a later `begin` then sees it.
    ///
    /// # Errors
    /// [`StoreError::RequestChanged`]; those of [`Store::append_journal`](crate::store::Store::append_journal) if something had to be written.
    fn begin<'a>(&'a self, step: Step<'a>) -> BoxFuture<'a, Result<StepStart, StoreError>>;

    /// The status of a step, without beginning it.
    fn status(&self, step: Step<'_>) -> StepStatus {
        let _ = step;
        StepStatus::Open
    }

    /// The record of the step at `key`, whatever its request: its outcome, or the intent of a step that may have happened. For a step
    /// whose request depends on a server: after a crash the server may not be reachable.
    fn recorded(&self, key: &StepKey) -> Option<JournalRecord> {
        let _ = key;
        None
    }

    /// Records the outcome, as JSON text, of an effect that began. *Cancellation*: the outcome may be lost, as after a crash.
    ///
    /// # Errors
    /// [`StoreError::NotRecorded`] for a step that did not begin; those of [`Store::append_journal`](crate::store::Store::append_journal).
    fn finish<'a>(
        &'a self,
        key: &'a StepKey,
        outcome: Arc<str>,
        at: Timestamp,
    ) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Whether the work was stopped, and is continued later or by another process: then what runs now has no end yet.
    fn is_stopped(&self) -> bool {
        false
    }
    /// Records the announcement of a reply before its first delta is shown; durable when it returns.
    ///
    /// # Errors
    /// Those of [`Store::append_journal`](crate::store::Store::append_journal).
    fn announce_reply<'a>(&'a self, reply_id: &'a str) -> BoxFuture<'a, Result<(), StoreError>>;
}

/// Observes the calls of a turn, for budgets, usage and traces. Every method has a default that does nothing.
pub trait JournalObserver: Send + Sync {
    /// Called before a model call, performed or replayed.
    ///
    /// # Errors
    /// [`LlmError`] to prevent the call: a budget is exhausted.
    fn model_called(&self, key: &StepKey, request: &ChatRequest) -> Result<(), LlmError> {
        let _ = (key, request);
        Ok(())
    }
    /// Called after a model call, performed or replayed.
    fn model_answered(&self, key: &StepKey, answer: Result<&ChatResponse, &LlmError>) {
        let _ = (key, answer);
    }
    /// Called before a tool call with this effect class is performed, and before its intent is stored.
    fn tool_called(&self, key: &StepKey, tool: &ToolInfo, class: EffectClass, arguments: &Json) {
        let _ = (key, tool, class, arguments);
    }
    /// Called when the store failed or a record does not match: the turn cannot continue.
    fn store_failed(&self, error: &StoreError) {
        let _ = error;
    }
}

/// An observer that does nothing.
pub struct NoObserver;

impl JournalObserver for NoObserver {}

/// The journal of one turn. Cheap to clone; clones are the same journal.
#[derive(Clone)]
pub struct EffectJournal {
    records: Arc<dyn Journal>,
    clock: Arc<TurnClock>,
    observer: Arc<dyn JournalObserver>,
    held: Option<HeldWrites>,
}

/// The gate that holds the writes of a turn back.
#[derive(Clone)]
pub(crate) struct HeldWrites {
    gate: Arc<WriteGate>,
    /// Interrupts the turn.
    cancel: CancellationToken,
    /// Whether a write was reached when the gate was closed.
    has_rejected: Arc<AtomicBool>,
}

impl HeldWrites {
    /// Holds the writes of a turn back; a write at the closed gate cancels `cancel`.
    pub(crate) fn new(gate: Arc<WriteGate>, cancel: CancellationToken) -> Self {
        Self { gate, cancel, has_rejected: Arc::default() }
    }
    /// The step that records that the gate of a turn was open: its key, and its kind.
    pub(crate) fn open_step(turn: TurnNumber) -> StepKey {
        StepKey::new(turn.0.to_string()).child(STEP_GATE)
    }
}

/// The step that records that the writes of a turn may begin.
const STEP_GATE: &str = "write_gate";

/// The result of a step.
#[derive(Clone, Debug, PartialEq)]
pub enum StepResult<T> {
    /// The work ran now; its outcome is recorded.
    Performed(T),
    /// The outcome was recorded earlier; the work was not polled.
    Replayed(T),
    /// It may have happened earlier, and its outcome is not known; the work was not polled. The caller records an outcome with
    /// [`EffectJournal::record_outcome`].
    Unknown,
}

impl<T> StepResult<T> {
    /// The outcome, for steps whose class excludes [`StepResult::Unknown`].
    ///
    /// # Errors
    /// [`JournalError::OutcomeUnknown`].
    pub fn into_outcome(self) -> Result<T, JournalError> {
        match self {
            Self::Performed(outcome) | Self::Replayed(outcome) => Ok(outcome),
            Self::Unknown => Err(JournalError::OutcomeUnknown),
        }
    }
}

/// The reason why a step has no outcome.
#[derive(Clone, Debug, thiserror::Error)]
pub enum JournalError {
    /// The store failed, or a record does not match: the turn must stop and be retried from its stored records.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The step was recorded by another build and cannot be replayed.
    #[error("the turn was begun by another version of the program or the project")]
    OtherBuild,
    /// It may have happened.
    #[error("whether this happened is not known")]
    OutcomeUnknown,
    /// The client ended its request before this write began: the turn is interrupted.
    #[error("the turn was interrupted before this began")]
    Interrupted,
}

/// A [`StepStart`] with the outcome deserialised.
enum TypedStart<T> {
    Run,
    Replay(T),
    Unknown,
}

impl EffectJournal {
    /// A journal over these records.
    pub fn new(records: Arc<dyn Journal>, clock: Arc<TurnClock>, observer: Arc<dyn JournalObserver>) -> Self {
        Self { records, clock, observer, held: None }
    }

    /// Holds writes back.
    #[must_use]
    pub(crate) fn with_held_writes(mut self, held: Option<HeldWrites>) -> Self {
        self.held = held;
        self
    }

    /// Whether a write was reached after the client had ended its request, and has not begun.
    pub(crate) fn has_rejected_write(&self) -> bool {
        self.held.as_ref().is_some_and(|held| held.has_rejected.load(Ordering::SeqCst))
    }

    /// Whether the work was stopped, and is continued later or by another process.
    pub(crate) fn is_stopped(&self) -> bool {
        self.records.is_stopped()
    }

    /// The clock, which recorded outcomes advance.
    pub fn clock(&self) -> &Arc<TurnClock> {
        &self.clock
    }

    /// Runs a step: performs `work` and records its outcome, or returns the recorded one. `work` is not polled if there is an outcome
    /// or if the step may have happened.
    ///
    /// # Errors
    /// [`JournalError`]: the turn must not continue.
    pub async fn once<T>(&self, step: Step<'_>, work: impl Future<Output = T>) -> Result<StepResult<T>, JournalError>
    where
        T: Serialize + DeserializeOwned,
    {
        match self.start(step).await? {
            TypedStart::Replay(outcome) => Ok(StepResult::Replayed(outcome)),
            TypedStart::Unknown => Ok(StepResult::Unknown),
            TypedStart::Run => {
                let outcome = work.await;
                self.record_outcome(step.key, &outcome).await?;
                Ok(StepResult::Performed(outcome))
            }
        }
    }

    /// Like [`once`](Self::once), but an `Err` of the work is returned and not recorded, so that the step is performed again when the
    /// turn runs again.
    ///
    /// # Errors
    /// [`JournalError`]; the inner result is that of the work.
    pub async fn once_if_ok<T, E>(
        &self,
        step: Step<'_>,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<Result<StepResult<T>, E>, JournalError>
    where
        T: Serialize + DeserializeOwned,
    {
        match self.start(step).await? {
            TypedStart::Replay(outcome) => Ok(Ok(StepResult::Replayed(outcome))),
            TypedStart::Unknown => Ok(Ok(StepResult::Unknown)),
            TypedStart::Run => match work.await {
                Ok(outcome) => {
                    self.record_outcome(step.key, &outcome).await?;
                    Ok(Ok(StepResult::Performed(outcome)))
                }
                Err(error) => Ok(Err(error)),
            },
        }
    }

    /// Records the outcome of a step that began; after [`StepResult::Unknown`], the outcome that the caller uses instead.
    ///
    /// # Errors
    /// [`JournalError::Store`].
    pub async fn record_outcome<T: Serialize>(&self, key: &StepKey, outcome: &T) -> Result<(), JournalError> {
        let text = serde_json::to_string(outcome).unwrap_or_else(|_| "null".into());
        let at = self.clock.real_now();
        let done = self.records.finish(key, text.into(), at).await;
        self.clock.advance(at);
        done.map_err(|error| self.failed(error))
    }

    /// The recorded outcome of a step, if there is one, without performing the step.
    pub async fn recorded_outcome<T: DeserializeOwned>(&self, step: Step<'_>) -> Option<T> {
        match self.start(step).await {
            Ok(TypedStart::Replay(outcome)) => Some(outcome),
            Ok(TypedStart::Run | TypedStart::Unknown) | Err(_) => None,
        }
    }

    /// The record of the step at `key`; see [`Journal::recorded`].
    pub fn recorded(&self, key: &StepKey) -> Option<JournalRecord> {
        self.records.recorded(key)
    }

    /// The status of a step before it begins.
    pub fn status(&self, step: Step<'_>) -> StepStatus {
        self.records.status(step)
    }

    async fn start<T: DeserializeOwned>(&self, step: Step<'_>) -> Result<TypedStart<T>, JournalError> {
        if let Some(held) = self.held.as_ref().filter(|_| step.class.has_intent()) {
            self.pass(held, &step).await?;
        }
        self.begin(step).await
    }

    /// Waits until a write may begin. The record of it is durable with the intent of the write, so that a turn that is recovered knows that
    /// its writes may go on.
    async fn pass(&self, held: &HeldWrites, step: &Step<'_>) -> Result<(), JournalError> {
        if self.status(*step) != StepStatus::Open || self.recorded(step.key).is_some() {
            return Ok(());
        }
        if !held.gate.pass().await {
            held.has_rejected.store(true, Ordering::SeqCst);
            held.cancel.cancel();
            return Err(JournalError::Interrupted);
        }
        let turn = step.key.as_str().split('/').next().unwrap_or_default();
        let key = StepKey::new(turn).child(STEP_GATE);
        match self.begin(Step { key: &key, kind: STEP_GATE, class: EffectClass::Read, request: "" }).await? {
            TypedStart::Run => self.record_outcome(&key, &true).await,
            TypedStart::Replay(true | false) | TypedStart::Unknown => Ok(()),
        }
    }

    async fn begin<T: DeserializeOwned>(&self, step: Step<'_>) -> Result<TypedStart<T>, JournalError> {
        match self.records.begin(step).await {
            Ok(StepStart::Run) => Ok(TypedStart::Run),
            Ok(StepStart::Replay { outcome, at }) => {
                self.clock.advance(at);
                serde_json::from_str(&outcome).map(TypedStart::Replay).map_err(|_| JournalError::OtherBuild)
            }
            Ok(StepStart::Unknown) => Ok(TypedStart::Unknown),
            Ok(StepStart::OtherBuild) => Err(JournalError::OtherBuild),
            Err(error) => Err(self.failed(error)),
        }
    }

    fn failed(&self, error: StoreError) -> JournalError {
        self.observer.store_failed(&error);
        error.into()
    }
}

/// The first 16 hexadecimal digits of the SHA-256 of a text, to compare requests.
pub fn request_hash(text: &str) -> String {
    use sha2::{Digest, Sha256};
    Sha256::digest(text.as_bytes()).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
