//! Whether something that we call answers: a tool source, an action server, an agent of others.

use serde::Serialize;

/// What is known of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Health {
    /// Nobody asked yet.
    Unknown,
    /// It answers.
    Up,
    /// It does not.
    Down {
        /// Why, for operators.
        reason: String,
    },
}

impl Health {
    /// The word for it in `/health`.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Up => "up",
            Self::Down { .. } => "down",
        }
    }

    /// Why it does not answer.
    pub fn trouble(self) -> Option<String> {
        match self {
            Self::Down { reason } => Some(reason),
            Self::Unknown | Self::Up => None,
        }
    }
}
