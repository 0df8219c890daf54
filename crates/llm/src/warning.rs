//! Warnings about responses that are used nevertheless. They are logged and stored with the response, so that a trace shows them.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use reqwest::header::HeaderMap;
use serde::{Deserialize, Serialize};

use super::message::ChatResponse;

/// A deviation in a response that does not make it invalid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ResponseWarning {
    /// Data or a second finish reason came after the finish reason; it was ignored.
    #[serde(rename = "after_end")]
    DataAfterEnd,
    /// Invalid UTF-8, or half of a surrogate pair, was replaced by U+FFFD.
    #[serde(rename = "repaired")]
    InvalidUnicodeReplaced,
    /// Tool calls beyond [`segue_base::limits::MODEL_CALLS_KEPT`] were ignored.
    #[serde(rename = "calls_ignored")]
    CallsIgnored,
    /// Parts of the content that are neither text nor reasoning were skipped.
    #[serde(rename = "parts_skipped")]
    PartsSkipped,
    /// The provider answers with another model than before, under the same configured name.
    #[serde(rename = "other_model")]
    ModelChanged {
        /// The model of the previous response.
        before: Arc<str>,
    },
    /// The provider announces that the model or its API will be removed.
    Deprecated {
        /// The announcement, as its HTTP headers have it.
        #[serde(rename = "said")]
        notice: Arc<str>,
    },
}

impl fmt::Display for ResponseWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DataAfterEnd => f.write_str("data after the end of the response was ignored"),
            Self::InvalidUnicodeReplaced => f.write_str("invalid Unicode in the response was replaced"),
            Self::CallsIgnored => f.write_str("the response has far too many tool calls; the last ones were ignored"),
            Self::PartsSkipped => f.write_str("parts of the response that are no text were skipped"),
            Self::ModelChanged { before } => write!(f, "the answering model changed; it was `{before}` before"),
            Self::Deprecated { notice } => write!(f, "the provider announces a deprecation: {notice}"),
        }
    }
}

/// Remembers the model name and the deprecation notice of a model's earlier responses, to warn of changes once.
#[derive(Debug, Default)]
pub(super) struct ResponseMonitor {
    state: Mutex<MonitorState>,
}

#[derive(Debug, Default)]
struct MonitorState {
    /// The model that answered last, as the provider names it.
    model: Option<Arc<str>>,
    /// The deprecation notice that was logged last. Every response repeats it.
    deprecation_notice: Option<Arc<str>>,
}

impl ResponseMonitor {
    /// Adds warnings that follow from earlier responses and from this one's headers, and logs each new one. `configured` is the
    /// model's name in its entry.
    pub(super) fn check(
        &self,
        configured: &str,
        deprecation_notice: Option<&Arc<str>>,
        answer: Arc<ChatResponse>,
    ) -> Arc<ChatResponse> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut new = Vec::new();
        if !answer.model.is_empty() && state.model.as_ref() != Some(&answer.model) {
            new.extend(
                state.model.replace(answer.model.clone()).map(|before| ResponseWarning::ModelChanged { before }),
            );
        }
        let deprecated = deprecation_notice.map(|notice| ResponseWarning::Deprecated { notice: notice.clone() });
        let is_new_notice = deprecation_notice.is_some() && state.deprecation_notice.as_ref() != deprecation_notice;
        if is_new_notice {
            state.deprecation_notice = deprecation_notice.cloned();
        }
        drop(state);
        for warning in answer.warnings.iter().chain(&new).chain(deprecated.as_ref().filter(|_| is_new_notice)) {
            tracing::warn!(model = configured, answered = &*answer.model, "{warning}");
        }
        if new.is_empty() && deprecated.is_none() {
            return answer;
        }
        let mut answer = Arc::unwrap_or_clone(answer);
        answer.warnings.extend(new.into_iter().chain(deprecated));
        Arc::new(answer)
    }
}

/// The deprecation notice in the headers of a response: `Deprecation` (RFC 9745) and `Sunset` (RFC 8594).
pub(super) fn deprecation_notice(headers: &HeaderMap) -> Option<Arc<str>> {
    let mut notice = String::new();
    for name in ["deprecation", "sunset"] {
        let Some(value) = headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim) else { continue };
        // Some servers send `false` when nothing is deprecated.
        if !value.is_empty() && !value.eq_ignore_ascii_case("false") {
            let end = value.floor_char_boundary(MAX_HEADER_BYTES);
            notice.push_str(if notice.is_empty() { "" } else { ", " });
            notice.push_str(&format!("{name}: {}", value.get(..end).unwrap_or_default()));
        }
    }
    (!notice.is_empty()).then(|| notice.into())
}

/// Bytes of one header value that are kept.
const MAX_HEADER_BYTES: usize = 100;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn answered(by: &str) -> Arc<ChatResponse> {
        Arc::new(ChatResponse { model: by.into(), ..ChatResponse::text("Hello.") })
    }

    #[test]
    fn a_changed_model_is_reported_once() {
        let monitor = ResponseMonitor::default();
        let warnings = |by: &str| monitor.check("gpt-4o", None, answered(by)).warnings.clone();
        assert_eq!(warnings("gpt-4o-2024-08-06"), [], "a configured name may be an alias from the start");
        assert_eq!(warnings("gpt-4o-2024-08-06"), []);
        assert_eq!(warnings(""), [], "a provider that does not name its model");
        assert_eq!(
            warnings("gpt-4o-2024-11-20"),
            [ResponseWarning::ModelChanged { before: "gpt-4o-2024-08-06".into() }]
        );
        assert_eq!(warnings("gpt-4o-2024-11-20"), []);
    }

    #[test]
    fn every_response_has_the_deprecation_notice() {
        let headers: HeaderMap = [("deprecation", "@1767225600"), ("sunset", "Thu, 01 Jan 2026 00:00:00 GMT")]
            .into_iter()
            .map(|(name, value)| (reqwest::header::HeaderName::from_static(name), value.parse().unwrap()))
            .collect();
        let notice = deprecation_notice(&headers);
        assert_eq!(notice.as_deref(), Some("deprecation: @1767225600, sunset: Thu, 01 Jan 2026 00:00:00 GMT"));
        let monitor = ResponseMonitor::default();
        for _ in 0..2 {
            let answer = monitor.check("old", notice.as_ref(), answered("old"));
            assert_eq!(answer.warnings, [ResponseWarning::Deprecated { notice: notice.clone().unwrap() }]);
        }
        let silent: HeaderMap =
            [(reqwest::header::HeaderName::from_static("deprecation"), "false".parse().unwrap())].into_iter().collect();
        assert_eq!(deprecation_notice(&silent), None);
    }
}
