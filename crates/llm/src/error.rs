//! Errors of model calls. The kind decides what happens next: a retry, a fallback to the next model, or the end of the turn.

use std::{fmt, sync::Arc, time::Duration};

use segue_base::context::WaitError;
use serde::{Deserialize, Serialize};

/// A failed model call. Its `Display` is a fixed text that is safe to log; the provider's message is in [`LlmError::detail`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{kind}")]
pub struct LlmError {
    /// What happened.
    pub kind: LlmErrorKind,
    /// The provider's message, for the trace and for operators: shortened, keys masked. Never shown to users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<Arc<str>>,
}

/// What happened to a model call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LlmErrorKind {
    /// Too many requests (HTTP 429).
    #[error("the model's provider limits the rate of requests")]
    RateLimited {
        /// The provider's `Retry-After`: a retry waits at least this long.
        after: Option<Duration>,
    },
    /// The account has no credit or quota left (HTTP 429 or 402 with such a code): waiting does not help.
    #[error("the account at the model's provider has no quota left; raise its limit or use another key")]
    #[serde(rename = "quota")]
    QuotaExhausted,
    /// The provider fails or is overloaded (HTTP 408, 409, 425, 5xx).
    #[error("the model's provider is overloaded or failing")]
    Overloaded {
        /// The provider's `Retry-After`: a retry waits at least this long.
        after: Option<Duration>,
    },
    /// The request is longer than the model's context window.
    #[error("the request is longer than the model's context window")]
    #[serde(rename = "too_long")]
    ContextLengthExceeded,
    /// The provider rejects the request as invalid (HTTP 400, 422).
    #[error("the model's provider rejected the request as invalid; see its message in the trace")]
    BadRequest,
    /// The API key is missing, wrong or lacks permission (HTTP 401, 403).
    #[error("the model's provider rejected the API key; check `api_key` of the model group")]
    Unauthorised,
    /// No such model or path (HTTP 404 or a redirect, which is not followed).
    #[error("no such model or path; check `model` and `api_base` of the model group")]
    NotFound,
    /// No connection: name resolution, routing, TLS, or connection refused.
    #[error("no connection to the model's provider; check `api_base` and the network")]
    Unreachable,
    /// The provider accepted the connection, but the first event did not come in time.
    #[error("the model did not begin to answer in time")]
    FirstTokenTimeout,
    /// The time between two events of the response was too long.
    #[error("the model paused for too long within its response")]
    #[serde(rename = "idle")]
    IdleTimeout,
    /// The caller's deadline passed, or the time budget of its turn is used up. No other model is called.
    #[serde(rename = "total")]
    #[error("there was no time left for the model call")]
    DeadlineExceeded,
    /// The turn has used up its model calls ([`segue_base::limits::TURN_MODEL_CALLS`]). No other model is called.
    #[error("the turn has no model calls left")]
    CallLimit,
    /// The whole call took longer than `timeout` of the model's entry; the caller has time left.
    #[error("the model call took longer than its entry allows; see `timeout` of the model")]
    CallTimeout,
    /// The stream ended before the model's finish reason. Nothing of the response may be acted on.
    #[error("the model's response ended before its finish reason")]
    #[serde(rename = "cut_short")]
    Truncated,
    /// The response violates the provider's API.
    #[error("the model's response is invalid: {0}")]
    #[serde(rename = "bad_answer")]
    InvalidResponse(InvalidResponse),
    /// The provider's content filter stopped the request or the response.
    #[error("the provider's content filter stopped the call")]
    ContentFilter,
    /// The caller cancelled the call.
    #[error("the model call was cancelled")]
    Cancelled,
    /// A scripted model or a cassette has no response for the request.
    #[error("the script or cassette has no response for this request")]
    #[serde(rename = "unscripted")]
    NotInScript,
}

/// How a response violates the provider's API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum InvalidResponse {
    /// Neither an event stream nor the JSON expected: an HTML page, plain text, or vectors that do not fit the texts.
    #[error("neither an event stream nor the JSON expected")]
    #[serde(rename = "not_an_answer")]
    UnexpectedFormat,
    /// An event is not JSON of the expected shape.
    #[error("an event is not JSON of the expected shape")]
    NotJson,
    /// The stream ended properly without any choice.
    #[error("it has no choices")]
    #[serde(rename = "empty")]
    NoChoices,
    /// One line is longer than [`segue_base::limits::MODEL_LINE`].
    #[error("a line is too long")]
    LineTooLong,
    /// The text is longer than [`segue_base::limits::MODEL_ANSWER`].
    #[error("the text is too long")]
    TextTooLong,
    /// The arguments of a tool call are too long. Only stored responses of earlier versions have it: see
    /// [`DropReason`](crate::message::DropReason).
    #[error("the arguments of a tool call are too long")]
    ArgumentsTooLong,
    /// Too many tool calls. Only stored responses of earlier versions have it.
    #[error("too many tool calls")]
    TooManyCalls,
    /// A tool call has no name. Only stored responses of earlier versions have it.
    #[serde(rename = "nameless_call")]
    #[error("a tool call has no name")]
    MissingToolName,
}

impl LlmError {
    /// An error without detail.
    pub fn new(kind: LlmErrorKind) -> Self {
        Self { kind, detail: None }
    }

    /// Sets the detail: the first 500 characters, with control characters replaced by spaces.
    #[must_use]
    pub fn with_detail(mut self, detail: impl fmt::Display) -> Self {
        let text = detail.to_string();
        let clean: String = text.chars().take(500).map(|c| if c.is_control() { ' ' } else { c }).collect();
        self.detail = Some(clean.trim().into());
        self
    }

    /// Whether the same request may be sent to the same model again, as long as no text was streamed to the user.
    pub fn retryable(&self) -> bool {
        use LlmErrorKind as K;
        match &self.kind {
            K::RateLimited { .. } | K::Overloaded { .. } | K::Unreachable | K::Truncated => true,
            K::InvalidResponse(response) => {
                matches!(
                    response,
                    InvalidResponse::UnexpectedFormat | InvalidResponse::NotJson | InvalidResponse::NoChoices
                )
            }
            // A timeout: another model is more likely to answer than the same one (`docs/reference/failure-handling.md`).
            K::FirstTokenTimeout | K::IdleTimeout | K::CallTimeout => false,
            K::QuotaExhausted | K::ContextLengthExceeded | K::BadRequest | K::Unauthorised | K::NotFound => false,
            K::DeadlineExceeded | K::CallLimit | K::ContentFilter | K::Cancelled | K::NotInScript => false,
        }
    }

    /// Whether another model of the group may be called, as long as no text was streamed to the user.
    ///
    /// False for errors that only the caller can fix (a request too long for the context window is shortened first) and for
    /// content filters, which a fallback must not bypass.
    pub fn allows_fallback(&self) -> bool {
        use LlmErrorKind as K;
        !matches!(
            &self.kind,
            K::Cancelled
                | K::DeadlineExceeded
                | K::CallLimit
                | K::NotInScript
                | K::BadRequest
                | K::ContextLengthExceeded
                | K::ContentFilter
        )
    }

    /// How long the provider asks to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        match &self.kind {
            LlmErrorKind::RateLimited { after } | LlmErrorKind::Overloaded { after } => *after,
            _ => None,
        }
    }

    /// A short, stable code for traces and metrics.
    pub fn code(&self) -> &'static str {
        use LlmErrorKind as K;
        match &self.kind {
            K::RateLimited { .. } => "rate_limited",
            K::QuotaExhausted => "quota",
            K::Overloaded { .. } => "overloaded",
            K::ContextLengthExceeded => "too_long",
            K::BadRequest => "bad_request",
            K::Unauthorised => "unauthorised",
            K::NotFound => "not_found",
            K::Unreachable => "unreachable",
            K::FirstTokenTimeout => "first_token_timeout",
            K::IdleTimeout => "idle",
            K::DeadlineExceeded => "total",
            K::CallLimit => "call_limit",
            K::CallTimeout => "call_timeout",
            K::Truncated => "cut_short",
            K::InvalidResponse(_) => "bad_answer",
            K::ContentFilter => "content_filter",
            K::Cancelled => "cancelled",
            K::NotInScript => "unscripted",
        }
    }
}

impl From<LlmErrorKind> for LlmError {
    fn from(kind: LlmErrorKind) -> Self {
        Self::new(kind)
    }
}
impl From<InvalidResponse> for LlmError {
    fn from(response: InvalidResponse) -> Self {
        Self::new(LlmErrorKind::InvalidResponse(response))
    }
}
/// A wait that was cancelled or reached its deadline. Callers that know which deadline it was use a more precise kind.
impl From<WaitError> for LlmError {
    fn from(error: WaitError) -> Self {
        Self::new(match error {
            WaitError::Cancelled => LlmErrorKind::Cancelled,
            WaitError::DeadlinePassed => LlmErrorKind::DeadlineExceeded,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_never_contains_the_providers_message() {
        let error = LlmError::new(LlmErrorKind::BadRequest).with_detail("secret vendor\u{7} words");
        assert!(!error.to_string().contains("vendor words"));
        assert_eq!(error.detail.as_deref(), Some("secret vendor  words"));
    }

    #[test]
    fn long_details_are_shortened() {
        let error = LlmError::new(LlmErrorKind::BadRequest).with_detail("ü".repeat(2000));
        assert_eq!(error.detail.map(|d| d.chars().count()), Some(500));
    }

    /// Journals and cassettes store these names.
    #[test]
    fn stored_names_of_kinds_are_their_codes() {
        use LlmErrorKind as K;
        for kind in [
            K::RateLimited { after: None },
            K::QuotaExhausted,
            K::Overloaded { after: None },
            K::ContextLengthExceeded,
            K::BadRequest,
            K::Unauthorised,
            K::NotFound,
            K::Unreachable,
            K::FirstTokenTimeout,
            K::IdleTimeout,
            K::DeadlineExceeded,
            K::CallTimeout,
            K::Truncated,
            K::InvalidResponse(InvalidResponse::NotJson),
            K::ContentFilter,
            K::Cancelled,
            K::NotInScript,
        ] {
            let text = serde_json::to_string(&kind).unwrap_or_default();
            let code = LlmError::new(kind).code();
            assert!(text == format!("\"{code}\"") || text.starts_with(&format!("{{\"{code}\":")), "{text} {code}");
        }
        use InvalidResponse as I;
        let invalid = [I::UnexpectedFormat, I::NoChoices, I::MissingToolName];
        assert_eq!(serde_json::to_string(&invalid).unwrap_or_default(), r#"["not_an_answer","empty","nameless_call"]"#);
    }

    #[test]
    fn errors_round_trip_through_json() {
        for kind in [
            LlmErrorKind::RateLimited { after: Some(Duration::from_millis(1500)) },
            LlmErrorKind::InvalidResponse(InvalidResponse::NotJson),
            LlmErrorKind::Cancelled,
        ] {
            let error = LlmError::new(kind).with_detail("x");
            let text = serde_json::to_string(&error).unwrap_or_default();
            assert_eq!(serde_json::from_str::<LlmError>(&text).ok(), Some(error), "{text}");
        }
    }
}
