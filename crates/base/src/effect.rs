//! Effect classes: whether an effect may be repeated. The effect journal decides by them what it does after a crash.

use serde::{Deserialize, Serialize};

/// Whether an effect may be repeated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EffectClass {
    /// Has no side effects and may be repeated freely, such as a model call.
    Read,
    /// May be repeated with the same idempotency key.
    Idempotent,
    /// Is never repeated. The default for an effect without a declared class.
    #[default]
    Write,
    /// Consists only of steps that are recorded individually, such as the run of a custom agent. Without a recorded outcome it runs again
    /// and its steps replay; it is never in doubt as a whole. Project files cannot declare it.
    Composite,
}

impl EffectClass {
    /// The class with this name in project files: `read`, `idempotent` or `write`.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "read" => Some(Self::Read),
            "idempotent" => Some(Self::Idempotent),
            "write" => Some(Self::Write),
            _ => None,
        }
    }
    /// Whether an effect of this class may be sent only after its intent is stored.
    pub fn has_intent(self) -> bool {
        matches!(self, Self::Idempotent | Self::Write)
    }
    /// The name of a class that changes something by itself: `write` or `idempotent`.
    pub fn changes(self) -> Option<&'static str> {
        match self {
            Self::Write => Some("write"),
            Self::Idempotent => Some("idempotent"),
            Self::Read | Self::Composite => None,
        }
    }
    /// Whether it is unknown if an effect of this class happened, after its request got no response. Effects that may be repeated are
    /// never in doubt.
    pub fn in_doubt(self, arrival: Arrival) -> bool {
        self == Self::Write && arrival == Arrival::Possible
    }
}

/// Whether a request without a response may have reached the server. Every client reports it; [`EffectClass::in_doubt`] interprets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It certainly did not arrive, or was refused unread: it had no effect.
    Impossible,
    /// It may have arrived, so its effect may have happened.
    Possible,
}

impl Arrival {
    /// The arrival of a failed HTTP request: without a connection it cannot have arrived.
    pub fn from_http_error(error: &reqwest::Error) -> Self {
        if error.is_connect() || error.is_builder() { Self::Impossible } else { Self::Possible }
    }
}
