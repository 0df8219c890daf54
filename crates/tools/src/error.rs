//! The error type of tool code.

use std::{error::Error, fmt};

use super::{
    FailureKind, ToolFailure, ToolOutcome,
    messages::{ToolMessage, render_message},
};
use segue_base::context::WaitError;

/// An error of a tool call: a text for the model, and details for operators.
///
/// Any error converts into it by `?`: the model sees that the call failed, and operators find the error with its causes
/// in the log and in the trace. Errors may contain addresses and secrets, so a model sees only the text given to
/// [`ToolError::new`].
///
/// An error means that the call had no effect. If that is uncertain, such as for a payment whose response was lost, use
/// [`ToolError::may_have_happened`]: the call is then never repeated automatically, and the model sees that the outcome
/// is unknown.
#[derive(Debug)]
pub struct ToolError {
    failure: ToolFailure,
    may_have_happened: bool,
}

impl ToolError {
    /// An error with a text for the model: no secrets, no addresses.
    pub fn new(text: impl Into<String>) -> Self {
        Self { failure: ToolFailure::new(FailureKind::ToolError, text), may_have_happened: false }
    }
    /// An unknown outcome, with a text for the model.
    pub fn may_have_happened(text: impl Into<String>) -> Self {
        Self { failure: ToolFailure::new(FailureKind::Unavailable, text), may_have_happened: true }
    }
    /// Sets the kind.
    #[must_use]
    pub fn kind(mut self, kind: FailureKind) -> Self {
        self.failure.kind = kind;
        self
    }
    /// Sets the error code for operators.
    #[must_use]
    pub fn code(mut self, code: impl Into<String>) -> Self {
        self.failure.code = Some(code.into());
        self
    }
    /// Sets the cause for operators.
    #[must_use]
    pub fn detail(mut self, detail: impl fmt::Display) -> Self {
        self.failure.detail = Some(detail.to_string());
        self
    }
    /// Ends the whole agent run.
    #[must_use]
    pub fn fatal(mut self) -> Self {
        self.failure.fatal = true;
        self
    }
    /// Sets the slots that must be collected before the tool can run. A `call` step of a flow collects them and calls the tool
    /// again.
    #[must_use]
    pub fn needs(mut self, slots: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.failure.missing_fields = slots.into_iter().map(Into::into).collect();
        self
    }

    /// The outcome of the call; details for operators are logged.
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
        Self::new(render_message(ToolMessage::InternalError, &[])).kind(kind).detail(with_causes(&error))
    }
}

/// An error with its causes, in one line.
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
