//! What may be repeated: the one fact about an effect that the journal must know.

use serde::{Deserialize, Serialize};

/// What may be repeated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EffectClass {
    /// Changes nothing: free to repeat. A model call is one.
    Read,
    /// May be repeated with the same key.
    Idempotent,
    /// Never repeated. The default for everything whose class nobody stated.
    #[default]
    Write,
    /// Only contains steps that are recorded by themselves, such as the run of a custom agent: without an outcome it is entered
    /// again, and they replay. Never in doubt as a whole. No author can state it.
    Composite,
}

impl EffectClass {
    /// The class of this name, as project files write it.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "read" => Some(Self::Read),
            "idempotent" => Some(Self::Idempotent),
            "write" => Some(Self::Write),
            _ => None,
        }
    }
    /// Whether an effect of this class may leave only after the intent to let it leave is stored.
    pub fn has_intent(self) -> bool {
        matches!(self, Self::Idempotent | Self::Write)
    }
    /// Whether nobody knows if an effect of this class happened whose request got no answer. What may be repeated is not in doubt.
    pub fn in_doubt(self, arrival: Arrival) -> bool {
        self == Self::Write && arrival == Arrival::Possible
    }
}

/// How far a request came that got no answer. Every wire tells this; what it means is decided by [`EffectClass::in_doubt`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It certainly did not arrive, or was refused unread: nothing happened.
    Impossible,
    /// It may have arrived: what it asks for may have happened.
    Possible,
}

impl Arrival {
    /// What a failed HTTP request tells: without a connection nothing arrived.
    pub fn of_http(error: &reqwest::Error) -> Self {
        if error.is_connect() || error.is_builder() { Self::Impossible } else { Self::Possible }
    }
}
