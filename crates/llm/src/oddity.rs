//! What was strange about an answer that stands all the same: told in the log and kept with the answer, so that a trace shows it.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use reqwest::header::HeaderMap;
use serde::{Deserialize, Serialize};

use super::message::ChatResponse;

/// Something strange about an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ResponseWarning {
    /// Something came after its end, or a second end; it was left out.
    AfterEnd,
    /// Bytes that are no text were replaced.
    Repaired,
    /// The vendor answers with another model than the last time, under the same name.
    OtherModel {
        /// The model of the last time.
        before: Arc<str>,
    },
    /// The vendor says that the model, or the way to it, will go.
    Deprecated {
        /// In its words.
        said: Arc<str>,
    },
}

impl fmt::Display for ResponseWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AfterEnd => f.write_str("something came after the end of the answer and was left out"),
            Self::Repaired => f.write_str("bytes of the answer that are no text were replaced"),
            Self::OtherModel { before } => write!(f, "before, `{before}` answered under this name"),
            Self::Deprecated { said } => write!(f, "the vendor announces an end: {said}"),
        }
    }
}

/// What is known of one model from its earlier answers.
#[derive(Debug, Default)]
pub(super) struct Acquaintance {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// Who answered last, as the vendor names it.
    model: Option<Arc<str>>,
    /// The announcement that was told last: it comes with every answer.
    announced: Option<Arc<str>>,
}

impl Acquaintance {
    /// Adds what earlier answers and this one's headers tell, and warns of everything new. `asked` is the model's name in its entry.
    pub(super) fn judge(
        &self,
        asked: &str,
        announced: Option<&Arc<str>>,
        answer: Arc<ChatResponse>,
    ) -> Arc<ChatResponse> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut new = Vec::new();
        if !answer.model.is_empty() && known.model.as_ref() != Some(&answer.model) {
            new.extend(known.model.replace(answer.model.clone()).map(|before| ResponseWarning::OtherModel { before }));
        }
        let deprecated = announced.map(|said| ResponseWarning::Deprecated { said: said.clone() });
        let is_news = announced.is_some() && known.announced.as_ref() != announced;
        if is_news {
            known.announced = announced.cloned();
        }
        drop(known);
        for oddity in answer.oddities.iter().chain(&new).chain(deprecated.as_ref().filter(|_| is_news)) {
            tracing::warn!(asked, answered = &*answer.model, "{oddity}");
        }
        if new.is_empty() && deprecated.is_none() {
            return answer;
        }
        let mut answer = Arc::unwrap_or_clone(answer);
        answer.oddities.extend(new.into_iter().chain(deprecated));
        Arc::new(answer)
    }
}

/// What the headers of an answer announce (RFC 9745, RFC 8594).
pub(super) fn announced(headers: &HeaderMap) -> Option<Arc<str>> {
    let mut said = String::new();
    for name in ["deprecation", "sunset"] {
        let Some(value) = headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim) else { continue };
        // `false` is how some servers say that nothing is announced.
        if !value.is_empty() && !value.eq_ignore_ascii_case("false") {
            let end = value.floor_char_boundary(LONGEST);
            said.push_str(if said.is_empty() { "" } else { ", " });
            said.push_str(&format!("{name}: {}", value.get(..end).unwrap_or_default()));
        }
    }
    (!said.is_empty()).then(|| said.into())
}

/// Bytes of one header that are kept.
const LONGEST: usize = 100;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn answered(by: &str) -> Arc<ChatResponse> {
        Arc::new(ChatResponse { model: by.into(), ..ChatResponse::text("Hello.") })
    }

    #[test]
    fn another_model_under_the_same_name_is_told_once() {
        let known = Acquaintance::default();
        let odd = |by: &str| known.judge("gpt-4o", None, answered(by)).oddities.clone();
        assert_eq!(odd("gpt-4o-2024-08-06"), [], "a name may stand for another from the beginning");
        assert_eq!(odd("gpt-4o-2024-08-06"), []);
        assert_eq!(odd(""), [], "a vendor that does not say");
        assert_eq!(odd("gpt-4o-2024-11-20"), [ResponseWarning::OtherModel { before: "gpt-4o-2024-08-06".into() }]);
        assert_eq!(odd("gpt-4o-2024-11-20"), []);
    }

    #[test]
    fn announcements_stand_with_every_answer() {
        let headers: HeaderMap = [("deprecation", "@1767225600"), ("sunset", "Thu, 01 Jan 2026 00:00:00 GMT")]
            .into_iter()
            .map(|(name, value)| (reqwest::header::HeaderName::from_static(name), value.parse().unwrap()))
            .collect();
        let said = announced(&headers);
        assert_eq!(said.as_deref(), Some("deprecation: @1767225600, sunset: Thu, 01 Jan 2026 00:00:00 GMT"));
        let known = Acquaintance::default();
        for _ in 0..2 {
            let answer = known.judge("old", said.as_ref(), answered("old"));
            assert_eq!(answer.oddities, [ResponseWarning::Deprecated { said: said.clone().unwrap() }]);
        }
        let silent: HeaderMap =
            [(reqwest::header::HeaderName::from_static("deprecation"), "false".parse().unwrap())].into_iter().collect();
        assert_eq!(announced(&silent), None);
    }
}
