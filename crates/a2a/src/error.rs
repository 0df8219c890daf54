//! What can go wrong between two agents.

use segue_base::effect::{Arrival, EffectClass};
use serde::{Deserialize, Serialize};

use super::dialect::codes;

/// A failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct A2aError {
    /// The kind.
    pub kind: A2aErrorKind,
    /// In words, for operators; holds no secret.
    pub message: String,
}

/// The kinds of failures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum A2aErrorKind {
    /// The card cannot be had or not be used: nothing was sent.
    Card,
    /// We cannot say who we are: nothing was sent.
    Identity,
    /// No connection came about: nothing was sent.
    Unreachable,
    /// The connection broke, or the answer was cut short.
    Broken,
    /// It took too long.
    Late,
    /// Nobody wants it any more.
    Cancelled,
    /// The other side answers with this status of HTTP.
    Status(u16),
    /// The other side answers with this error of the protocol.
    Protocol(i64),
    /// The answer cannot be read.
    Unreadable,
    /// What came is larger than we take.
    TooLarge,
    /// It may have been taken before an interruption of ours; nobody knows.
    Unknown,
    /// The record of the turn lets nothing through: the turn stops here.
    Shut,
}

impl A2aError {
    /// A failure.
    pub fn new(kind: A2aErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
    /// Whether a message may have been taken nevertheless.
    pub fn arrival(&self) -> Arrival {
        match self.kind {
            A2aErrorKind::Card | A2aErrorKind::Identity | A2aErrorKind::Unreachable | A2aErrorKind::Protocol(_) => {
                Arrival::Impossible
            }
            // A refusal is an answer; an error of a server or a gateway is none.
            A2aErrorKind::Status(status) if status < 500 => Arrival::Impossible,
            A2aErrorKind::Status(_) => Arrival::Possible,
            A2aErrorKind::Broken
            | A2aErrorKind::Late
            | A2aErrorKind::Cancelled
            | A2aErrorKind::Unreadable
            | A2aErrorKind::TooLarge
            | A2aErrorKind::Unknown
            | A2aErrorKind::Shut => Arrival::Possible,
        }
    }
    /// Whether the same may be asked again at once, as a new message: the other side says that it failed by itself. A status of
    /// 500 or more may come from a gateway after the message was taken.
    pub fn may_be_repeated(&self) -> bool {
        matches!(
            self.kind,
            A2aErrorKind::Protocol(codes::INTERNAL | codes::BAD_ANSWER)
                | A2aErrorKind::Unreachable
                | A2aErrorKind::Status(429)
        )
    }
    /// Whether a question that changes nothing may be asked again: another answer may be had by then.
    pub fn may_pass(&self) -> bool {
        match self.kind {
            A2aErrorKind::Unreachable | A2aErrorKind::Broken | A2aErrorKind::Late => true,
            A2aErrorKind::Status(status) => status == 429 || status >= 500,
            _ => false,
        }
    }
    /// What the fault of a message that was sent says about it: where it broke on the way, whether it was taken is not known.
    #[must_use]
    pub fn of_sending(self) -> Self {
        let is_open = matches!(self.kind, A2aErrorKind::Broken | A2aErrorKind::Late | A2aErrorKind::Status(_));
        if !is_open || !EffectClass::Write.in_doubt(self.arrival()) {
            return self;
        }
        Self::new(A2aErrorKind::Unknown, format!("{}; whether the message was taken is not known", self.message))
    }
}
