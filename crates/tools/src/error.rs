//! Why a call of a tool failed, as the code of a tool says it.

use std::{error::Error, fmt};

use super::{
    FailureKind, ToolFailure, ToolOutcome,
    words::{Word, say},
};
use segue_base::context::WaitError;

/// Why a call failed: a text for the model, and what only operators read.
///
/// Any error becomes one by `?`: the model is told that the call failed, and operators find the error with its causes in the log
/// and in the trace. Errors may hold addresses and secrets, so a model reads only what [`ToolError::new`] is given.
///
/// An error says that nothing was done. Where that is not certain, such as a payment whose answer was lost, say so by
/// [`ToolError::may_have_happened`]: the call is then never repeated blindly, and the model is told that nobody knows.
#[derive(Debug)]
pub struct ToolError {
    failure: ToolFailure,
    may_have_happened: bool,
}

impl ToolError {
    /// A failure; the text is for the model: no secrets, no addresses.
    pub fn new(text: impl Into<String>) -> Self {
        Self { failure: ToolFailure::new(FailureKind::ToolError, text), may_have_happened: false }
    }
    /// Nobody knows whether it was done; the text is for the model.
    pub fn may_have_happened(text: impl Into<String>) -> Self {
        Self { failure: ToolFailure::new(FailureKind::Unavailable, text), may_have_happened: true }
    }
    /// The kind of the failure.
    #[must_use]
    pub fn kind(mut self, kind: FailureKind) -> Self {
        self.failure.kind = kind;
        self
    }
    /// A code for operators.
    #[must_use]
    pub fn code(mut self, code: impl Into<String>) -> Self {
        self.failure.code = Some(code.into());
        self
    }
    /// The cause, for operators.
    #[must_use]
    pub fn detail(mut self, detail: impl fmt::Display) -> Self {
        self.failure.detail = Some(detail.to_string());
        self
    }
    /// The whole run of the agent must end.
    #[must_use]
    pub fn fatal(mut self) -> Self {
        self.failure.fatal = true;
        self
    }
    /// Slots that must be asked for before the tool can do its work: a `call` step of a flow asks for them and calls again.
    #[must_use]
    pub fn needs(mut self, slots: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.failure.wants = slots.into_iter().map(Into::into).collect();
        self
    }

    /// What came of a call of this tool; what operators must know of it is logged.
    pub(super) fn into_outcome(self, tool: &str) -> ToolOutcome {
        let failure = self.failure;
        if failure.detail.is_some() || failure.code.is_some() {
            let (code, detail) = (failure.code.as_deref(), failure.detail.as_deref());
            tracing::warn!(tool, code, detail, "a tool failed: {}", failure.message);
        }
        if self.may_have_happened { ToolOutcome::Unknown(failure) } else { ToolOutcome::Failed(failure) }
    }
}

impl<E: Error + 'static> From<E> for ToolError {
    fn from(error: E) -> Self {
        let kind = match (&error as &dyn Error).downcast_ref::<WaitError>() {
            Some(WaitError::DeadlinePassed) => FailureKind::Timeout,
            Some(WaitError::Cancelled) => FailureKind::Cancelled,
            None => FailureKind::ToolError,
        };
        Self::new(say(Word::Internal, &[])).kind(kind).detail(with_causes(&error))
    }
}

/// An error and what caused it, in one line.
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
