//! The effect journal: what must happen at most once is recorded here, and what is recorded is not done again.
//!
//! Entry: [`EffectJournal::once`], one step with its work. The rules, which every caller relies on:
//!
//! * A `read` leaves at once. Its outcome is kept pending and is written with the next commit that must happen anyway.
//! * An `idempotent` or a `write` leaves only after its intent **and everything pending** are durable: the answer of a model
//!   is stored before the first effect it decided.
//! * The outcome of such an effect is durable when [`EffectJournal::once`] returns.
//! * What has a recorded outcome never leaves again. A `write` whose intent has no outcome never leaves again either: it is
//!   [`Once::Unknown`]. An `idempotent` one leaves again, with the same key.
//! * A `composite` only contains steps of its own. It has no intent and is never unknown: without an outcome it is entered
//!   again, and its inner steps replay. An outcome that it comes to after one of them was stopped is not recorded.
//! * A request that changed is an error, never a silent second run.
//! * All tries of a turn in one process share one journal: an outcome that could not be stored is known to the next one, and is
//!   stored before anything else.
//!
//! [`JournaledModel`] and [`JournaledTool`] put models and tools behind it: whoever calls them does not know that they are
//! recorded. This module never decides what is done, only whether; and it stores nothing but records.

mod clock;
mod model;
mod replay;
mod tool;
mod tool_progress;
mod turn;

use std::sync::Arc;

use futures::future::BoxFuture;
use segue_engine::time::Timestamp;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value as Json;

pub use self::{
    clock::TurnClock,
    model::JournaledModel,
    replay::ReplayJournal,
    tool::JournaledTool,
    tool_progress::{RecordedToolCall, TraceProgress, progress_of},
    turn::TurnJournal,
};
use crate::{
    context::StepKey,
    effect::EffectClass,
    llm::{ChatRequest, ChatResponse, LlmError},
    store::{JournalRecord, StoreError},
    tools::ToolInfo,
};

/// The kind of a list of tools that a model is offered. It matters once an answer to the offer is recorded, and travels with that.
pub const TOOL_LIST: &str = "tools";

/// One effect, as the journal knows it.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// Its address within the turn.
    pub key: &'a StepKey,
    /// What it is: one of the kinds of [`JournalRecord`].
    pub kind: &'a str,
    /// What may be repeated.
    pub class: EffectClass,
    /// What is asked for, or its hash: the same step with another request is an error.
    pub request: &'a str,
}

/// What the journal says before an effect.
#[derive(Clone, Debug, PartialEq)]
pub enum StepStart {
    /// Nothing is recorded that forbids it: perform it, then call [`Journal::finish`].
    Run,
    /// It was performed before, with this outcome. Do not perform it.
    Replay {
        /// The outcome as JSON text.
        outcome: Arc<str>,
        /// When it came.
        at: Timestamp,
    },
    /// A `write` that may have happened: do not perform it, tell the caller. [`Journal::finish`] may record what was told.
    Unknown,
    /// Another build recorded this step: nothing may be replayed. The runtime turns what is recorded into events.
    OtherBuild,
}

/// What is known of a step before it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepStatus {
    /// It has an outcome.
    Done,
    /// It has none.
    Open,
    /// It has none, and never gets one: nothing leaves here.
    ReplayOnly,
}

/// The records behind an [`EffectJournal`]: of a turn that runs, of one that is replayed, or of a recording.
pub trait Journal: Send + Sync {
    /// Asks whether the effect may leave. *Cancellation*: an intent may be stored; a later begin then sees it.
    ///
    /// # Errors
    /// [`StoreError::RequestChanged`]; those of [`Store::append_journal`](crate::store::Store::append_journal) when something had to be written.
    fn begin<'a>(&'a self, step: Step<'a>) -> BoxFuture<'a, Result<StepStart, StoreError>>;

    /// What is known of an effect, without beginning it: whoever may find that there is nothing to be done asks this first.
    fn status(&self, step: Step<'_>) -> StepStatus {
        let _ = step;
        StepStatus::Open
    }

    /// What is recorded of the step at `key`, whatever it asked for: its outcome, or the intent of a step that may have happened.
    /// Whoever would need a server to know what to ask for looks here first: after a crash the server may be away.
    fn recorded(&self, key: &StepKey) -> Option<JournalRecord> {
        let _ = key;
        None
    }

    /// Records the outcome, JSON text, of an effect that began. *Cancellation*: the outcome may be lost; the step is then as
    /// after a crash.
    ///
    /// # Errors
    /// [`StoreError::NotRecorded`] for a step that did not begin; those of [`Store::append_journal`](crate::store::Store::append_journal).
    fn finish<'a>(
        &'a self,
        key: &'a StepKey,
        outcome: Arc<str>,
        at: Timestamp,
    ) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Marks that pieces of this reply are about to be shown, before the first of them is; durable when it returns.
    ///
    /// # Errors
    /// Those of [`Store::append_journal`](crate::store::Store::append_journal).
    fn speaking<'a>(&'a self, reply_id: &'a str) -> BoxFuture<'a, Result<(), StoreError>>;
}

/// Sees what passes the journal; budgets, usage and traces are made of it. Every method has a default that does nothing.
pub trait JournalObserver: Send + Sync {
    /// A model is about to be asked, or its recorded answer to be read.
    ///
    /// # Errors
    /// [`LlmError`] when it must not be: a budget is spent.
    fn model_called(&self, key: &StepKey, request: &ChatRequest) -> Result<(), LlmError> {
        let _ = (key, request);
        Ok(())
    }
    /// A model answered, or its recorded answer was read.
    fn model_answered(&self, key: &StepKey, answer: Result<&ChatResponse, &LlmError>) {
        let _ = (key, answer);
    }
    /// A tool is about to be called.
    fn tool_called(&self, key: &StepKey, tool: &ToolInfo, arguments: &Json) {
        let _ = (key, tool, arguments);
    }
    /// The store failed, or the record does not fit: the turn cannot go on.
    fn store_failed(&self, error: &StoreError) {
        let _ = error;
    }
}

/// An observer that sees nothing.
pub struct NoObserver;

impl JournalObserver for NoObserver {}

/// The journal of one turn. Cheap to clone; clones are the same journal.
#[derive(Clone)]
pub struct EffectJournal {
    records: Arc<dyn Journal>,
    clock: Arc<TurnClock>,
    observer: Arc<dyn JournalObserver>,
}

/// What became of a step.
#[derive(Clone, Debug, PartialEq)]
pub enum Once<T> {
    /// The work ran now, and this is recorded.
    Performed(T),
    /// It ran before, and this was recorded; the work was not polled.
    Replayed(T),
    /// It may have happened before, and nobody knows what came of it; the work was not polled. The caller says what that means
    /// by [`EffectJournal::settle`].
    Unknown,
}

impl<T> Once<T> {
    /// The outcome, for steps that are never unknown while a turn runs.
    ///
    /// # Errors
    /// [`JournalError::OutcomeUnknown`].
    pub fn known(self) -> Result<T, JournalError> {
        match self {
            Self::Performed(outcome) | Self::Replayed(outcome) => Ok(outcome),
            Self::Unknown => Err(JournalError::OutcomeUnknown),
        }
    }
}

/// Why a step has no outcome.
#[derive(Clone, Debug, thiserror::Error)]
pub enum JournalError {
    /// The store failed, or the record does not fit: the turn must stop here and be tried again from what is stored.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The step was recorded by another build: nothing of it may be replayed.
    #[error("the turn was begun by another version of the program or the project")]
    OtherBuild,
    /// It may have happened; nobody knows.
    #[error("whether this happened is not known")]
    OutcomeUnknown,
}

/// How a step starts, with its outcome read.
enum Started<T> {
    Run,
    Replay(T),
    Unknown,
}

impl EffectJournal {
    /// A journal over these records.
    pub fn new(records: Arc<dyn Journal>, clock: Arc<TurnClock>, observer: Arc<dyn JournalObserver>) -> Self {
        Self { records, clock, observer }
    }

    /// The clock that its outcomes move.
    pub fn clock(&self) -> &Arc<TurnClock> {
        &self.clock
    }

    /// Begins a step, does its work, and records what came of it; or gives what is recorded. `work` is not polled when an
    /// outcome is known, or may have been.
    ///
    /// # Errors
    /// [`JournalError`]: the turn must not go on.
    pub async fn once<T>(&self, step: Step<'_>, work: impl Future<Output = T>) -> Result<Once<T>, JournalError>
    where
        T: Serialize + DeserializeOwned,
    {
        match self.start(step).await? {
            Started::Replay(outcome) => Ok(Once::Replayed(outcome)),
            Started::Unknown => Ok(Once::Unknown),
            Started::Run => {
                let outcome = work.await;
                self.settle(step.key, &outcome).await?;
                Ok(Once::Performed(outcome))
            }
        }
    }

    /// As [`once`](Self::once), for work that may come to nothing worth a record: an `Err` is handed on and leaves none, so that
    /// the step is done anew should the turn run again.
    ///
    /// # Errors
    /// [`JournalError`]; inside, what the work gave.
    pub async fn once_if_ok<T, E>(
        &self,
        step: Step<'_>,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<Result<Once<T>, E>, JournalError>
    where
        T: Serialize + DeserializeOwned,
    {
        match self.start(step).await? {
            Started::Replay(outcome) => Ok(Ok(Once::Replayed(outcome))),
            Started::Unknown => Ok(Ok(Once::Unknown)),
            Started::Run => match work.await {
                Ok(outcome) => {
                    self.settle(step.key, &outcome).await?;
                    Ok(Ok(Once::Performed(outcome)))
                }
                Err(error) => Ok(Err(error)),
            },
        }
    }

    /// Records the outcome of a step that began: after [`Once::Unknown`], what the caller tells instead.
    ///
    /// # Errors
    /// [`JournalError::Store`].
    pub async fn settle<T: Serialize>(&self, key: &StepKey, told: &T) -> Result<(), JournalError> {
        let text = serde_json::to_string(told).unwrap_or_else(|_| "null".into());
        let at = self.clock.real_now();
        let done = self.records.finish(key, text.into(), at).await;
        self.clock.advance(at);
        done.map_err(|error| self.failed(error))
    }

    /// The recorded outcome of a step, if there is one, for a caller that does not perform it.
    pub async fn recall<T: DeserializeOwned>(&self, step: Step<'_>) -> Option<T> {
        match self.start(step).await {
            Ok(Started::Replay(outcome)) => Some(outcome),
            Ok(Started::Run | Started::Unknown) | Err(_) => None,
        }
    }

    /// What is recorded of the step at `key`, whatever it asked for, as [`Journal::recorded`] says.
    pub fn recorded(&self, key: &StepKey) -> Option<JournalRecord> {
        self.records.recorded(key)
    }

    /// What is known of a step before it begins.
    pub fn status(&self, step: Step<'_>) -> StepStatus {
        self.records.status(step)
    }

    async fn start<T: DeserializeOwned>(&self, step: Step<'_>) -> Result<Started<T>, JournalError> {
        match self.records.begin(step).await {
            Ok(StepStart::Run) => Ok(Started::Run),
            Ok(StepStart::Replay { outcome, at }) => {
                self.clock.advance(at);
                serde_json::from_str(&outcome).map(Started::Replay).map_err(|_| JournalError::OtherBuild)
            }
            Ok(StepStart::Unknown) => Ok(Started::Unknown),
            Ok(StepStart::OtherBuild) => Err(JournalError::OtherBuild),
            Err(error) => Err(self.failed(error)),
        }
    }

    fn failed(&self, error: StoreError) -> JournalError {
        self.observer.store_failed(&error);
        error.into()
    }
}

/// The first 16 hexadecimal digits of the SHA-256 of a text: how a request is told from another.
pub fn request_hash(text: &str) -> String {
    use sha2::{Digest, Sha256};
    Sha256::digest(text.as_bytes()).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
