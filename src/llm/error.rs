//! How a model call fails. The kinds are decisions: what may be repeated, what goes to the next model, what ends the turn.

use std::{fmt, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use crate::cx::Stopped;

/// A failed model call. Its `Display` is in our own words and safe to log; the vendor's words are in [`LlmError::detail`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{kind}")]
pub struct LlmError {
    /// What happened, as a decision.
    pub kind: LlmErrorKind,
    /// What the vendor said, for the trace and for operators: cut short, keys masked. Never shown to users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<Arc<str>>,
}

/// What happened to a model call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LlmErrorKind {
    /// Too many requests for now (429).
    RateLimited {
        /// The vendor asks to wait this long; a floor.
        after: Option<Duration>,
    },
    /// The account has no money or quota left (429 or 402 with such a code): waiting does not help.
    Quota,
    /// The vendor is in trouble (5xx, 529, 408).
    Overloaded {
        /// The vendor asks to wait this long; a floor.
        after: Option<Duration>,
    },
    /// The request does not fit into the model's window.
    TooLong,
    /// The vendor refuses the request as wrong (400, 422).
    BadRequest,
    /// The key is missing, wrong or not allowed (401, 403).
    Unauthorised,
    /// No such model or path (404).
    NotFound,
    /// No connection: name, route, TLS, or refused.
    Unreachable,
    /// The connection stood, but no event came in time.
    FirstTokenTimeout,
    /// The answer paused for too long.
    Idle,
    /// The caller's own time is over: its deadline, or the budget of its turn. Nobody else is asked.
    Total,
    /// The whole call took longer than the model's entry allows (`timeout`); the caller has time left.
    CallTimeout,
    /// The stream ended before the model's terminal mark. Nothing of it may be acted on.
    CutShort,
    /// The answer breaks the wire's rules.
    BadAnswer(Fault),
    /// The vendor's filter stopped the request or the answer.
    ContentFilter,
    /// Nobody wants the answer any more.
    Cancelled,
    /// A scripted model or a cassette was asked something it does not hold.
    Unscripted,
}

/// How an answer breaks the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Fault {
    /// Not a stream of events and not a JSON answer: a page, or plain text.
    NotAnAnswer,
    /// An event is no JSON of the expected shape.
    NotJson,
    /// The stream ended properly but held no choice.
    Empty,
    /// One line is over [`crate::limits::MODEL_LINE`].
    LineTooLong,
    /// The text is over [`crate::limits::MODEL_ANSWER`].
    TextTooLong,
    /// The arguments of a call are over [`crate::limits::MODEL_ARGUMENTS`].
    ArgumentsTooLong,
    /// More calls than [`crate::limits::MODEL_CALLS`].
    TooManyCalls,
    /// A tool call without a name.
    NamelessCall,
}

impl LlmError {
    /// An error without words from outside.
    pub fn new(kind: LlmErrorKind) -> Self {
        Self { kind, detail: None }
    }

    /// Adds words for operators: the first 500 characters, control characters replaced.
    #[must_use]
    pub fn because(mut self, detail: impl fmt::Display) -> Self {
        let text = detail.to_string();
        let clean: String = text.chars().take(500).map(|c| if c.is_control() { ' ' } else { c }).collect();
        self.detail = Some(clean.trim().into());
        self
    }

    /// Whether the same request may be sent to the same model again, when nothing of an answer was shown.
    pub fn retryable(&self) -> bool {
        use LlmErrorKind as K;
        match &self.kind {
            K::RateLimited { .. } | K::Overloaded { .. } | K::Unreachable | K::CutShort => true,
            K::BadAnswer(fault) => {
                matches!(fault, Fault::NotAnAnswer | Fault::NotJson | Fault::Empty | Fault::NamelessCall)
            }
            // Silence: the next model is the better bet than the same one (reliability.md L7, L8).
            K::FirstTokenTimeout | K::Idle | K::CallTimeout => false,
            K::Quota | K::TooLong | K::BadRequest | K::Unauthorised | K::NotFound => false,
            K::Total | K::ContentFilter | K::Cancelled | K::Unscripted => false,
        }
    }

    /// Whether another model of the group may be asked, when nothing of an answer was shown.
    ///
    /// Not for what the caller must mend (a window too long is shrunk first) and not to get round a vendor's filter.
    pub fn next_model_may_help(&self) -> bool {
        use LlmErrorKind as K;
        !matches!(&self.kind, K::Cancelled | K::Total | K::Unscripted | K::BadRequest | K::TooLong | K::ContentFilter)
    }

    /// How long the vendor asks to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        match &self.kind {
            LlmErrorKind::RateLimited { after } | LlmErrorKind::Overloaded { after } => *after,
            _ => None,
        }
    }

    /// A short, stable word for traces and metrics.
    pub fn code(&self) -> &'static str {
        use LlmErrorKind as K;
        match &self.kind {
            K::RateLimited { .. } => "rate_limited",
            K::Quota => "quota",
            K::Overloaded { .. } => "overloaded",
            K::TooLong => "too_long",
            K::BadRequest => "bad_request",
            K::Unauthorised => "unauthorised",
            K::NotFound => "not_found",
            K::Unreachable => "unreachable",
            K::FirstTokenTimeout => "first_token_timeout",
            K::Idle => "idle",
            K::Total => "total",
            K::CallTimeout => "call_timeout",
            K::CutShort => "cut_short",
            K::BadAnswer(_) => "bad_answer",
            K::ContentFilter => "content_filter",
            K::Cancelled => "cancelled",
            K::Unscripted => "unscripted",
        }
    }
}

impl fmt::Display for LlmErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RateLimited { .. } => "the model's provider limits the rate of requests",
            Self::Quota => "the account at the model's provider has no quota left; raise its limit or use another key",
            Self::Overloaded { .. } => "the model's provider is overloaded or failing",
            Self::TooLong => "the request is longer than the model's window",
            Self::BadRequest => "the model's provider refused the request as malformed; see the trace for its words",
            Self::Unauthorised => "the model's provider refused the key; check `api_key` of the model group",
            Self::NotFound => "no such model or path; check `model` and `api_base` of the model group",
            Self::Unreachable => "no connection to the model's provider; check `api_base` and the network",
            Self::FirstTokenTimeout => "the model sent nothing in time",
            Self::Idle => "the model paused for too long within its answer",
            Self::Total => "there was no time left for the model call",
            Self::CallTimeout => "the model call took longer than its entry allows; see `timeout` of the model",
            Self::CutShort => "the model's answer ended before its terminal mark",
            Self::BadAnswer(fault) => return write!(f, "the model's answer breaks the wire's rules: {fault}"),
            Self::ContentFilter => "the provider's content filter stopped the call",
            Self::Cancelled => "the model call was cancelled",
            Self::Unscripted => "the script or cassette holds no answer to this request",
        })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotAnAnswer => "neither a stream of events nor a JSON answer",
            Self::NotJson => "an event is not the JSON expected",
            Self::Empty => "it holds no choice",
            Self::LineTooLong => "a line is too long",
            Self::TextTooLong => "the text is too long",
            Self::ArgumentsTooLong => "the arguments of a tool call are too long",
            Self::TooManyCalls => "too many tool calls",
            Self::NamelessCall => "a tool call has no name",
        })
    }
}

impl From<LlmErrorKind> for LlmError {
    fn from(kind: LlmErrorKind) -> Self {
        Self::new(kind)
    }
}
impl From<Fault> for LlmError {
    fn from(fault: Fault) -> Self {
        Self::new(LlmErrorKind::BadAnswer(fault))
    }
}
/// A wait that ended by itself; callers that know which deadline it was say so with a finer kind.
impl From<Stopped> for LlmError {
    fn from(stopped: Stopped) -> Self {
        Self::new(match stopped {
            Stopped::Cancelled => LlmErrorKind::Cancelled,
            Stopped::DeadlinePassed => LlmErrorKind::Total,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_never_carries_the_vendors_words() {
        let error = LlmError::new(LlmErrorKind::BadRequest).because("secret vendor\u{7} words");
        assert!(!error.to_string().contains("vendor words"));
        assert_eq!(error.detail.as_deref(), Some("secret vendor  words"));
    }

    #[test]
    fn details_are_cut() {
        let error = LlmError::new(LlmErrorKind::BadRequest).because("ü".repeat(2000));
        assert_eq!(error.detail.map(|d| d.chars().count()), Some(500));
    }

    #[test]
    fn errors_survive_storage() {
        for kind in [
            LlmErrorKind::RateLimited { after: Some(Duration::from_millis(1500)) },
            LlmErrorKind::BadAnswer(Fault::NotJson),
            LlmErrorKind::Cancelled,
        ] {
            let error = LlmError::new(kind).because("x");
            let text = serde_json::to_string(&error).unwrap_or_default();
            assert_eq!(serde_json::from_str::<LlmError>(&text).ok(), Some(error), "{text}");
        }
    }
}
