//! The health of an external service: a tool source, an action server, a remote agent.

use serde::Serialize;

/// The health of an external service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Health {
    /// It was not called yet.
    Unknown,
    /// It responds.
    Up,
    /// It does not respond.
    Down {
        /// The reason, for operators.
        reason: String,
    },
}

impl Health {
    /// The status in the response of `/health`.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Up => "up",
            Self::Down { .. } => "down",
        }
    }

    /// The reason why it does not respond; `None` if it is not down.
    pub fn reason(self) -> Option<String> {
        match self {
            Self::Down { reason } => Some(reason),
            Self::Unknown | Self::Up => None,
        }
    }
}
