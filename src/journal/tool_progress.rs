//! The progress that a running tool call reported: kept with its outcome, as one record, so that a trace shows it and a replay
//! needs nothing else. No event holds it: nothing is decided by it.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{
    clock::Clock,
    limits,
    tools::{Progress, ToolOutcome},
};

/// What is recorded of a call. Without news it is the plain outcome, as older records have it.
#[derive(Serialize, Deserialize)]
pub struct RecordedToolCall {
    /// What came of it.
    #[serde(flatten)]
    pub outcome: ToolOutcome,
    /// What it reported while it ran.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub news: Vec<TraceProgress>,
}

/// One piece of news of a running call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TraceProgress {
    /// Milliseconds after the call.
    pub after: u64,
    /// How far it was.
    pub done: f64,
    /// Of how much, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<f64>,
    /// In words: those of whoever does the work, cut and free of hidden characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Listens to one call; keeps the newest pieces.
pub(super) struct ProgressRecorder {
    clock: Arc<dyn Clock>,
    began: Duration,
    heard: Mutex<VecDeque<TraceProgress>>,
}

impl ProgressRecorder {
    /// From now on.
    pub(super) fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        let began = clock.elapsed();
        Arc::new(Self { clock, began, heard: Mutex::default() })
    }
    /// Hears one piece. What is no number cannot be written down.
    pub(super) fn hear(&self, news: &Progress) {
        if !news.done.is_finite() {
            return;
        }
        let after = self.clock.elapsed().saturating_sub(self.began).as_millis();
        let piece = TraceProgress {
            after: u64::try_from(after).unwrap_or(u64::MAX),
            done: news.done,
            total: news.total.filter(|total| total.is_finite()),
            message: news.line(),
        };
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        if heard.len() >= limits::TOOL_PROGRESS_ENTRIES {
            heard.pop_front();
        }
        heard.push_back(piece);
    }
    /// What was heard.
    pub(super) fn news(&self) -> Vec<TraceProgress> {
        std::mem::take(&mut *self.heard.lock().unwrap_or_else(PoisonError::into_inner)).into()
    }
}

/// The progress in the record of a tool call, for a trace.
pub fn progress_of(outcome: Option<&str>) -> Vec<TraceProgress> {
    let call = outcome.and_then(|text| serde_json::from_str::<RecordedToolCall>(text).ok());
    call.map(|call| call.news).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;
    use crate::{testing::ManualClock, tools::ToolOutput};

    #[test]
    fn a_call_without_news_is_recorded_as_ever_and_one_with_news_reads_back() {
        let outcome = ToolOutcome::Done(ToolOutput::structured(json!({"n": 1.5, "deep": [null, {"a": -3}]})));
        let plain = serde_json::to_string(&RecordedToolCall { outcome: outcome.clone(), news: Vec::new() }).unwrap();
        assert_eq!(plain, serde_json::to_string(&outcome).unwrap());
        let news = vec![TraceProgress { after: 7, done: 0.5, total: None, message: Some("half".into()) }];
        for news in [Vec::new(), news] {
            let text =
                serde_json::to_string(&RecordedToolCall { outcome: outcome.clone(), news: news.clone() }).unwrap();
            let read: RecordedToolCall = serde_json::from_str(&text).unwrap();
            assert_eq!((read.outcome, read.news), (outcome.clone(), news));
        }
    }

    #[test]
    fn a_flood_leaves_its_newest_pieces_and_long_words_are_cut() {
        let clock = ManualClock::new();
        let recorder = ProgressRecorder::new(Arc::new(clock.clone()));
        for n in 0..100 {
            clock.advance(Duration::from_millis(10));
            let message = Some(format!("{n}\n\u{202e}{}", "x".repeat(1_000)));
            recorder.hear(&Progress { done: f64::from(n), total: Some(f64::INFINITY), message });
        }
        recorder.hear(&Progress { done: f64::NAN, total: None, message: None });
        let news = recorder.news();
        assert_eq!(news.len(), limits::TOOL_PROGRESS_ENTRIES);
        let last = news.last().unwrap();
        assert_eq!((last.after, last.done, last.total), (1_000, 99.0, None));
        let message = last.message.clone().unwrap();
        assert!(message.starts_with("99 xxx") && message.chars().count() <= limits::TOOL_PROGRESS_TEXT, "{message}");
    }
}
