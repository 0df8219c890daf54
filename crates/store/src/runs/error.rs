//! Why an operation on runs failed.

use std::fmt::Display;

use segue_base::context::StepKey;
use segue_engine::ids::{QuestionId, RunId};

use super::{RunStatus, UnitKey};
use crate::{StoreError, escape_controls};

/// Why an operation of a [`RunStore`](super::RunStore) failed. Unless the error is [`RunStoreError::Store`], nothing was written.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RunStoreError {
    /// Another owner has claimed the unit, or it was released or cancelled, or its run has ended or is no longer stored. The caller
    /// must stop its work on the unit.
    #[error(
        "{unit} is no longer held with epoch {epoch}: another owner has claimed it, it was released or cancelled, or its run has ended"
    )]
    Fenced {
        /// The unit.
        unit: UnitKey,
        /// The epoch of the caller.
        epoch: u64,
    },
    /// There is no such run.
    #[error("run {} is not stored", escape_controls(_0.as_str()))]
    UnknownRun(RunId),
    /// The run has no such unit.
    #[error("{_0} is not stored")]
    UnknownUnit(UnitKey),
    /// There is no such question.
    #[error("run {} has no question {}", escape_controls(run.as_str()), escape_controls(question.as_str()))]
    UnknownQuestion {
        /// The run.
        run: RunId,
        /// The question.
        question: QuestionId,
    },
    /// The operation does not fit the status of the run: it has ended, or it should be resumed and cannot.
    #[error("run {} is {status}: {reason}", escape_controls(run.as_str()))]
    WrongStatus {
        /// The run.
        run: RunId,
        /// Its status.
        status: RunStatus,
        /// Why the operation does not fit.
        reason: &'static str,
    },
    /// Another writer has appended events in the meantime.
    #[error("another writer has changed run {}: expected event {expected} to be the last, found {found}", escape_controls(run.as_str()))]
    Conflict {
        /// The run.
        run: RunId,
        /// The sequence number of the last event that the caller expected.
        expected: u64,
        /// The sequence number of the last event.
        found: u64,
    },
    /// The intent of the step is stored already.
    #[error("step `{key}` of {unit} has started already: it is not performed a second time")]
    StepAlreadyStarted {
        /// The unit.
        unit: UnitKey,
        /// The step.
        key: StepKey,
    },
    /// Something is larger than its limit.
    #[error("{what} of run {}: {size}, and the limit is {limit}", escape_controls(run.as_str()))]
    TooLarge {
        /// The run.
        run: RunId,
        /// What is too large.
        what: &'static str,
        /// Its size.
        size: usize,
        /// The limit.
        limit: usize,
    },
    /// Stored data of the run cannot be read. Other runs are not affected.
    #[error("the stored data of run {} is corrupt: {reason}", escape_controls(run.as_str()))]
    Corrupt {
        /// The run.
        run: RunId,
        /// What is wrong.
        reason: String,
    },
    /// The store itself failed. Whether a write happened is unknown after [`StoreError::Unavailable`].
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<RunStoreError> for StoreError {
    fn from(error: RunStoreError) -> Self {
        match error {
            RunStoreError::Store(error) => error,
            other => Self::Unavailable(other.to_string()),
        }
    }
}

impl RunStoreError {
    /// The error code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Fenced { .. } => "S0203",
            Self::UnknownRun(_) | Self::UnknownUnit(_) => "S0204",
            Self::UnknownQuestion { .. } => "S0205",
            Self::WrongStatus { .. } => "S0206",
            Self::Conflict { .. } => "S0207",
            Self::TooLarge { .. } => "S0208",
            Self::StepAlreadyStarted { .. } => "S0108",
            Self::Corrupt { .. } => "S0102",
            Self::Store(error) => error.code(),
        }
    }

    /// Whether the same operation may succeed later without any change.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Store(error) => error.is_transient(),
            Self::Conflict { .. } => true,
            _ => false,
        }
    }

    /// A [`RunStoreError::Corrupt`].
    pub fn corrupt(run: &RunId, reason: impl Display) -> Self {
        Self::Corrupt { run: run.clone(), reason: reason.to_string() }
    }
}
