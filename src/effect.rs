//! What may be repeated: the one fact about an effect that the journal must know.

use serde::{Deserialize, Serialize};

/// What may be repeated (decisions.md 3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    /// Changes nothing: free to repeat. A model call is one.
    Read,
    /// May be repeated with the same key.
    Idempotent,
    /// Never repeated. The default for everything whose class nobody stated.
    #[default]
    Write,
}

impl Effect {
    /// The class of this name, as project files write it.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "read" => Some(Self::Read),
            "idempotent" => Some(Self::Idempotent),
            "write" => Some(Self::Write),
            _ => None,
        }
    }
}
