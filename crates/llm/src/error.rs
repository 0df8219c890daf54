//! How a model call fails. The kinds are decisions: what may be repeated, what goes to the next model, what ends the turn.

use std::{fmt, sync::Arc, time::Duration};

use segue_base::context::WaitError;
use serde::{Deserialize, Serialize};

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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LlmErrorKind {
    /// Too many requests for now (429).
    #[error("the model's provider limits the rate of requests")]
    RateLimited {
        /// The vendor asks to wait this long; a floor.
        after: Option<Duration>,
    },
    /// The account has no money or quota left (429 or 402 with such a code): waiting does not help.
    #[error("the account at the model's provider has no quota left; raise its limit or use another key")]
    Quota,
    /// The vendor is in trouble (5xx, 529, 408).
    #[error("the model's provider is overloaded or failing")]
    Overloaded {
        /// The vendor asks to wait this long; a floor.
        after: Option<Duration>,
    },
    /// The request does not fit into the model's window.
    #[error("the request is longer than the model's window")]
    TooLong,
    /// The vendor refuses the request as wrong (400, 422).
    #[error("the model's provider refused the request as malformed; see the trace for its words")]
    BadRequest,
    /// The key is missing, wrong or not allowed (401, 403).
    #[error("the model's provider refused the key; check `api_key` of the model group")]
    Unauthorised,
    /// No such model or path (404).
    #[error("no such model or path; check `model` and `api_base` of the model group")]
    NotFound,
    /// No connection: name, route, TLS, or refused.
    #[error("no connection to the model's provider; check `api_base` and the network")]
    Unreachable,
    /// The connection stood, but no event came in time.
    #[error("the model sent nothing in time")]
    FirstTokenTimeout,
    /// The answer paused for too long.
    #[error("the model paused for too long within its answer")]
    Idle,
    /// The caller's own time is over: its deadline, or the budget of its turn. Nobody else is asked.
    #[error("there was no time left for the model call")]
    Total,
    /// The whole call took longer than the model's entry allows (`timeout`); the caller has time left.
    #[error("the model call took longer than its entry allows; see `timeout` of the model")]
    CallTimeout,
    /// The stream ended before the model's terminal mark. Nothing of it may be acted on.
    #[error("the model's answer ended before its terminal mark")]
    CutShort,
    /// The answer breaks the wire's rules.
    #[error("the model's answer breaks the wire's rules: {0}")]
    BadAnswer(InvalidResponse),
    /// The vendor's filter stopped the request or the answer.
    #[error("the provider's content filter stopped the call")]
    ContentFilter,
    /// Nobody wants the answer any more.
    #[error("the model call was cancelled")]
    Cancelled,
    /// A scripted model or a cassette was asked something it does not hold.
    #[error("the script or cassette holds no answer to this request")]
    Unscripted,
}

/// How an answer breaks the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum InvalidResponse {
    /// Not a stream of events and not a JSON answer: a page, or plain text.
    #[error("neither a stream of events nor a JSON answer")]
    NotAnAnswer,
    /// An event is no JSON of the expected shape.
    #[error("an event is not the JSON expected")]
    NotJson,
    /// The stream ended properly but held no choice.
    #[error("it holds no choice")]
    Empty,
    /// One line is over [`segue_base::limits::MODEL_LINE`].
    #[error("a line is too long")]
    LineTooLong,
    /// The text is over [`segue_base::limits::MODEL_ANSWER`].
    #[error("the text is too long")]
    TextTooLong,
    /// The arguments of a call are over [`segue_base::limits::MODEL_ARGUMENTS`].
    #[error("the arguments of a tool call are too long")]
    ArgumentsTooLong,
    /// More calls than [`segue_base::limits::MODEL_CALLS`].
    #[error("too many tool calls")]
    TooManyCalls,
    /// A tool call without a name.
    #[error("a tool call has no name")]
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
                matches!(
                    fault,
                    InvalidResponse::NotAnAnswer
                        | InvalidResponse::NotJson
                        | InvalidResponse::Empty
                        | InvalidResponse::NamelessCall
                )
            }
            // Silence: the next model is the better bet than the same one (`docs/faults.md` L7, L8).
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

impl From<LlmErrorKind> for LlmError {
    fn from(kind: LlmErrorKind) -> Self {
        Self::new(kind)
    }
}
impl From<InvalidResponse> for LlmError {
    fn from(fault: InvalidResponse) -> Self {
        Self::new(LlmErrorKind::BadAnswer(fault))
    }
}
/// A wait that ended by itself; callers that know which deadline it was say so with a finer kind.
impl From<WaitError> for LlmError {
    fn from(stopped: WaitError) -> Self {
        Self::new(match stopped {
            WaitError::Cancelled => LlmErrorKind::Cancelled,
            WaitError::DeadlinePassed => LlmErrorKind::Total,
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
            LlmErrorKind::BadAnswer(InvalidResponse::NotJson),
            LlmErrorKind::Cancelled,
        ] {
            let error = LlmError::new(kind).because("x");
            let text = serde_json::to_string(&error).unwrap_or_default();
            assert_eq!(serde_json::from_str::<LlmError>(&text).ok(), Some(error), "{text}");
        }
    }
}
