//! Errors of calls to a remote agent.

use segue_base::effect::{Arrival, EffectClass};
use serde::{Deserialize, Serialize};

use super::version::codes;

/// A failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct A2aError {
    /// The kind.
    pub kind: A2aErrorKind,
    /// The message for operators; it contains no secret.
    pub message: String,
}

/// The kinds of errors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum A2aErrorKind {
    /// The agent card cannot be fetched or used: nothing was sent.
    Card,
    /// No credentials could be obtained: nothing was sent.
    #[serde(rename = "identity")]
    Authentication,
    /// No connection was established: nothing was sent.
    Unreachable,
    /// The connection was lost, or the response was truncated.
    #[serde(rename = "broken")]
    ConnectionLost,
    /// The deadline passed.
    #[serde(rename = "late")]
    TimedOut,
    /// The call was cancelled.
    Cancelled,
    /// The agent responded with this HTTP status.
    Status(u16),
    /// The agent responded with this error code of the protocol.
    Protocol(i64),
    /// The response cannot be decoded.
    #[serde(rename = "unreadable")]
    InvalidResponse,
    /// The response is larger than the limit.
    TooLarge,
    /// The message may have arrived before an interruption; this is unknown.
    #[serde(rename = "unknown")]
    OutcomeUnknown,
    /// The journal of the turn refused the call: the turn stops here.
    #[serde(rename = "shut")]
    JournalClosed,
}

impl A2aError {
    /// A failure.
    pub fn new(kind: A2aErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
    /// Whether the message may have arrived nevertheless.
    pub fn arrival(&self) -> Arrival {
        match self.kind {
            A2aErrorKind::Card
            | A2aErrorKind::Authentication
            | A2aErrorKind::Unreachable
            | A2aErrorKind::Protocol(_) => Arrival::Impossible,
            // A 4xx status is an answer of the agent; a 5xx status may come from a gateway after the message arrived.
            A2aErrorKind::Status(status) if status < 500 => Arrival::Impossible,
            A2aErrorKind::Status(_) => Arrival::Possible,
            A2aErrorKind::ConnectionLost
            | A2aErrorKind::TimedOut
            | A2aErrorKind::Cancelled
            | A2aErrorKind::InvalidResponse
            | A2aErrorKind::TooLarge
            | A2aErrorKind::OutcomeUnknown
            | A2aErrorKind::JournalClosed => Arrival::Possible,
        }
    }
    /// Whether the message may be sent again at once, as a new message: the agent reported that it failed. A status of
    /// 500 or more does not count, because it may come from a gateway after the message arrived.
    pub fn can_resend(&self) -> bool {
        matches!(
            self.kind,
            A2aErrorKind::Protocol(codes::INTERNAL_ERROR | codes::INVALID_AGENT_RESPONSE)
                | A2aErrorKind::Unreachable
                | A2aErrorKind::Status(429)
        )
    }
    /// Whether a read-only call may succeed later.
    pub fn is_transient(&self) -> bool {
        match self.kind {
            A2aErrorKind::Unreachable | A2aErrorKind::ConnectionLost | A2aErrorKind::TimedOut => true,
            A2aErrorKind::Status(status) => status == 429 || status >= 500,
            _ => false,
        }
    }
    /// Converts the error of a sent message: if the connection was lost, it becomes [`A2aErrorKind::OutcomeUnknown`],
    /// because the message may have arrived.
    #[must_use]
    pub fn into_send_error(self) -> Self {
        let is_open =
            matches!(self.kind, A2aErrorKind::ConnectionLost | A2aErrorKind::TimedOut | A2aErrorKind::Status(_));
        if !is_open || !EffectClass::Write.in_doubt(self.arrival()) {
            return self;
        }
        Self::new(A2aErrorKind::OutcomeUnknown, format!("{}; it is unknown whether the message arrived", self.message))
    }
}
