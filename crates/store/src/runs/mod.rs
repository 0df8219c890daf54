//! Durable storage of runs: the jobs of missions and of delegated work, with events, leases, checkpoints and questions.
//!
//! A run consists of units. A unit is a durable job that one owner at a time works on: the owner claims it, appends its progress in
//! batches, and ends it, makes it wait, or releases it. Every claim raises the epoch of the unit, and a write with an earlier epoch is
//! refused, so that an owner that lost its lease can change nothing. A [`RunStore`] never interprets the texts it stores.

#[cfg(any(test, debug_assertions, feature = "testing"))]
pub mod contract;
mod error;
mod head;
mod limit;
mod memory;
mod question;
mod types;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use segue_engine::{
    ids::{ConversationId, RunId},
    time::Timestamp,
};

pub use self::{
    error::RunStoreError,
    head::lease_holds,
    memory::MemoryRunStore,
    types::{
        ClaimRequest, ClaimedUnit, LimitReached, LimitScope, NewQuestion, NewRun, NewUnit, Overflow, QuestionFilter,
        QuestionKey, QuestionReply, QuestionStatus, ReplyOutcome, RunAdmission, RunBatch, RunBlob, RunCounts,
        RunFilter, RunLimits, RunMessage, RunStatus, RunSummary, Signal, SignalOutcome, Signals, StartOutcome,
        StopRequest, StoredQuestion, StoredRun, StoredRunEvent, StoredUnit, UnitBatch, UnitContent, UnitKey,
        UnitStatus, UnitTransition,
    },
};
pub(crate) use self::{
    head::{Due, RunHead, UnitHead, lease_end, longest_lease},
    limit::{
        check_batch, check_message_count, check_reply, check_run, check_run_batch, check_signal, check_unit_count,
    },
    question::QuestionBody,
};
pub use crate::forwarding::ForwardingRunStore;

/// A durable store of runs. It is object-safe, and every method may be called concurrently.
///
/// A write is durable when it returns. It is one transaction: after an error nothing of it is stored, except that the result is unknown
/// after [`StoreError::Unavailable`](crate::StoreError::Unavailable), which every method may return.
///
/// Cancellation: a write continues when its future is dropped; a read ends. Read the events or the unit to learn the result of a write.
#[async_trait]
pub trait RunStore: Send + Sync {
    /// Starts a run. If there is a run of this id, or of this idempotency key and mission, nothing is stored and its id is returned.
    /// Otherwise, if one of its limits is reached, it is queued or refused.
    ///
    /// # Errors
    /// [`RunStoreError::TooLarge`].
    async fn start_run(&self, run: NewRun) -> Result<StartOutcome, RunStoreError>;
    /// Lets a queued run begin unless a limit is reached: it becomes [`RunStatus::Running`]. The process that works on a queued run calls
    /// this from time to time.
    ///
    /// # Errors
    /// [`RunStoreError::UnknownRun`].
    async fn admit(&self, run: &RunId, limits: RunLimits, at: Timestamp) -> Result<RunAdmission, RunStoreError>;
    /// The run of this id, if it is stored.
    ///
    /// # Errors
    /// [`RunStoreError::Corrupt`].
    async fn run(&self, run: &RunId) -> Result<Option<StoredRun>, RunStoreError>;
    /// The run of this id in short, without its inputs, which may be long.
    ///
    /// # Errors
    /// [`RunStoreError::Corrupt`].
    async fn summary(&self, run: &RunId) -> Result<Option<RunSummary>, RunStoreError>;
    /// The runs that a filter selects, newest first, at most `limit` and never more than
    /// [`limits::RUNS_LISTED`](segue_base::limits::RUNS_LISTED).
    ///
    /// # Errors
    /// [`RunStoreError::Corrupt`].
    async fn runs(&self, filter: RunFilter, limit: usize) -> Result<Vec<RunSummary>, RunStoreError>;
    /// The events of a run with a sequence number above `after`, in order, at most `limit` and never more than
    /// [`limits::RUN_EVENTS_READ`](segue_base::limits::RUN_EVENTS_READ). Empty if the run is not stored.
    ///
    /// # Errors
    /// [`RunStoreError::Corrupt`], also when an event is missing.
    async fn events(&self, run: &RunId, after: u64, limit: usize) -> Result<Vec<StoredRunEvent>, RunStoreError>;
    /// The units of a run in the order of their creation. Empty if the run is not stored.
    ///
    /// # Errors
    /// [`RunStoreError::Corrupt`].
    async fn units(&self, run: &RunId) -> Result<Vec<StoredUnit>, RunStoreError>;
    /// What is stored of a unit, with or without a holder, in progress or ended. `None` if it is not stored.
    ///
    /// # Errors
    /// [`RunStoreError::Corrupt`].
    async fn unit(&self, unit: &UnitKey) -> Result<Option<UnitContent>, RunStoreError>;
    /// Claims units that are ready, whose wake time has come, or whose lease is over or [does not hold](lease_holds), and those of
    /// [owners that have ended](ClaimRequest::gone), those that have waited longest first. Each gets
    /// the next epoch. Units of a queued run are claimed only if the run is to be stopped, and those of a run that has ended never.
    ///
    /// What is stored of a claimed unit may be unreadable; then [`ClaimedUnit::content`] is an error, and the caller can end the unit.
    ///
    /// Cancellation: units may be claimed for a caller that does not learn of it. They can be claimed again when their lease is over.
    ///
    /// # Errors
    /// Only those of every method.
    async fn claim(&self, request: ClaimRequest) -> Result<Vec<ClaimedUnit>, RunStoreError>;
    /// Stores the progress of a unit. Returns the sequence number of the last event of the run. The parts take effect in this order:
    /// events, records, checkpoint, blobs, questions, the transition of the unit, new units, units to wake, units to cancel, and the
    /// status of the run. A lease that is over is no reason to refuse a batch while nobody else has claimed the unit.
    ///
    /// # Errors
    /// [`RunStoreError::Fenced`] if the caller does not hold the unit, [`RunStoreError::Conflict`] if the run has events after
    /// [`UnitBatch::after`], [`RunStoreError::StepAlreadyStarted`] for a second intent of a step, [`RunStoreError::TooLarge`].
    async fn append(&self, batch: UnitBatch) -> Result<u64, RunStoreError>;
    /// Changes a run independently of its units: appends events, starts, wakes or cancels units, changes the status, or resumes a run that
    /// has ended. Returns the sequence number of its last event.
    ///
    /// # Errors
    /// [`RunStoreError::UnknownRun`]; [`RunStoreError::WrongStatus`] for a run that has ended, unless it is resumed, and for a run to resume
    /// that is completed or has not ended; [`RunStoreError::Conflict`]; [`RunStoreError::TooLarge`].
    async fn append_run(&self, batch: RunBatch) -> Result<u64, RunStoreError>;
    /// Extends the lease of a unit to `until`, and returns what the unit was sent.
    ///
    /// # Errors
    /// [`RunStoreError::Fenced`] if the caller does not hold the unit.
    async fn renew(&self, unit: &UnitKey, epoch: u64, until: Timestamp) -> Result<Signals, RunStoreError>;
    /// Gives a unit back, so that it can be claimed at once. What was appended stays.
    ///
    /// # Errors
    /// [`RunStoreError::Fenced`] if the caller does not hold the unit.
    async fn release(&self, unit: &UnitKey, epoch: u64, at: Timestamp) -> Result<(), RunStoreError>;
    /// A stored result of a run.
    ///
    /// # Errors
    /// [`RunStoreError::Corrupt`].
    async fn blob(&self, run: &RunId, id: &str) -> Result<Option<Arc<str>>, RunStoreError>;
    /// The questions that a filter selects, in the order of asking, at most `limit` and never more than
    /// [`limits::RUNS_LISTED`](segue_base::limits::RUNS_LISTED).
    ///
    /// # Errors
    /// [`RunStoreError::Corrupt`].
    async fn questions(&self, filter: QuestionFilter, limit: usize) -> Result<Vec<StoredQuestion>, RunStoreError>;
    /// One question, if it is stored.
    ///
    /// # Errors
    /// [`RunStoreError::Corrupt`].
    async fn question(&self, question: &QuestionKey) -> Result<Option<StoredQuestion>, RunStoreError>;
    /// Answers a question and wakes the unit that asked. A question is answered once; the same event has the same result however often it
    /// is repeated. An event with an empty id is never a repetition.
    ///
    /// # Errors
    /// [`RunStoreError::UnknownQuestion`], [`RunStoreError::TooLarge`], [`RunStoreError::Corrupt`].
    async fn answer(&self, reply: QuestionReply) -> Result<ReplyOutcome, RunStoreError>;
    /// Sends something to a run and wakes the units that it is for. They get it with the next claim or renewal. A unit that is claimed is
    /// ready at once when it would wait, also if it has read the signal already.
    ///
    /// # Errors
    /// [`RunStoreError::UnknownRun`]; [`RunStoreError::UnknownUnit`]; [`RunStoreError::TooLarge`] also after
    /// [`limits::RUN_MESSAGES`](segue_base::limits::RUN_MESSAGES) messages.
    async fn signal(&self, run: &RunId, signal: Signal, at: Timestamp) -> Result<SignalOutcome, RunStoreError>;
    /// The earliest time at which a unit can be claimed; it has passed if one can be claimed already. `None` if no unit waits for a time.
    ///
    /// # Errors
    /// Only those of every method.
    async fn next_wake(&self) -> Result<Option<Timestamp>, RunStoreError>;
    /// How many runs of missions and units of them there are. Jobs of conversations do not count.
    ///
    /// # Errors
    /// Only those of every method.
    async fn counts(&self, now: Timestamp) -> Result<RunCounts, RunStoreError>;
    /// Deletes the runs of missions that ended longer ago than `older_than`, with everything stored of them. Jobs stay until their
    /// conversation is erased. Returns the ids, by which the caller deletes what it keeps of them elsewhere. It works in parts: after an
    /// error some runs are deleted, and the next call deletes the others.
    ///
    /// # Errors
    /// Only those of every method.
    async fn purge_runs(&self, now: Timestamp, older_than: Duration) -> Result<Vec<RunId>, RunStoreError>;
    /// Deletes the runs of a conversation with everything stored of them, whatever their status. Returns their ids. Call it when the
    /// conversation is erased.
    ///
    /// # Errors
    /// As [`purge_runs`](Self::purge_runs).
    async fn erase_runs(&self, conversation: &ConversationId) -> Result<Vec<RunId>, RunStoreError>;
}

#[cfg(test)]
mod tests;
