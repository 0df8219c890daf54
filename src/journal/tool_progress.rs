//! The progress of a tool call, recorded together with its outcome, so that a trace can show it. Events do not contain it, because
//! nothing depends on it.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::{
    clock::Clock,
    effect::EffectClass,
    limits,
    tools::{Progress, ToolOutcome},
};

/// The record of a call. The outcome alone is the record of a call in older releases.
#[derive(Serialize, Deserialize)]
pub struct RecordedToolCall {
    /// Its outcome.
    #[serde(flatten)]
    pub outcome: ToolOutcome,
    /// Its effect class; absent in records of older releases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<EffectClass>,
    /// Its arguments; a text that ends with an ellipsis if they are long. Absent in records of older releases.
    #[serde(default, skip_serializing_if = "Json::is_null")]
    pub arguments: Json,
    /// The agent that called it; absent for a step of a flow, and in records of older releases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Arc<str>>,
    /// The progress that it reported.
    #[serde(rename = "news", default, skip_serializing_if = "Vec::is_empty")]
    pub progress: Vec<TraceProgress>,
}

/// One progress notification of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TraceProgress {
    /// Milliseconds since the start of the call.
    pub after: u64,
    /// The amount that was done.
    pub done: f64,
    /// The total amount, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<f64>,
    /// The message of the tool, shortened and without hidden characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Records the newest progress notifications of one call.
pub(super) struct ProgressRecorder {
    clock: Arc<dyn Clock>,
    began: Duration,
    newest: Mutex<VecDeque<TraceProgress>>,
}

impl ProgressRecorder {
    /// A recorder for a call that starts now.
    pub(super) fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        let began = clock.elapsed();
        Arc::new(Self { clock, began, newest: Mutex::default() })
    }
    /// Records a notification. Numbers that are not finite are dropped, because JSON cannot represent them.
    pub(super) fn record(&self, reported: &Progress) {
        if !reported.current.is_finite() {
            return;
        }
        let after = self.clock.elapsed().saturating_sub(self.began).as_millis();
        let progress = TraceProgress {
            after: u64::try_from(after).unwrap_or(u64::MAX),
            done: reported.current,
            total: reported.total.filter(|total| total.is_finite()),
            message: reported.message_line(),
        };
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        if newest.len() >= limits::TOOL_PROGRESS_ENTRIES {
            newest.pop_front();
        }
        newest.push_back(progress);
    }
    /// Takes the recorded notifications.
    pub(super) fn take(&self) -> Vec<TraceProgress> {
        std::mem::take(&mut *self.newest.lock().unwrap_or_else(PoisonError::into_inner)).into()
    }
}

/// The progress in the record of a tool call, for a trace.
pub fn progress_of(outcome: Option<&str>) -> Vec<TraceProgress> {
    let call = outcome.and_then(|text| serde_json::from_str::<RecordedToolCall>(text).ok());
    call.map(|call| call.progress).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;
    use crate::{testing::ManualClock, tools::ToolOutput};

    #[test]
    fn record_without_progress_is_the_plain_outcome_and_progress_reads_back() {
        let outcome = ToolOutcome::Done(ToolOutput::structured(json!({"n": 1.5, "deep": [null, {"a": -3}]})));
        let record = |progress| RecordedToolCall {
            outcome: outcome.clone(),
            effect: None,
            arguments: Json::Null,
            agent: None,
            progress,
        };
        let plain = serde_json::to_string(&record(Vec::new())).unwrap();
        assert_eq!(plain, serde_json::to_string(&outcome).unwrap());
        let reported = vec![TraceProgress { after: 7, done: 0.5, total: None, message: Some("half".into()) }];
        for reported in [Vec::new(), reported] {
            let text = serde_json::to_string(&record(reported.clone())).unwrap();
            let read: RecordedToolCall = serde_json::from_str(&text).unwrap();
            assert_eq!((read.outcome, read.progress), (outcome.clone(), reported));
        }
    }

    #[test]
    fn only_the_newest_notifications_are_kept_and_long_messages_are_shortened() {
        let clock = ManualClock::new();
        let recorder = ProgressRecorder::new(Arc::new(clock.clone()));
        for n in 0..100 {
            clock.advance(Duration::from_millis(10));
            let message = Some(format!("{n}\n\u{202e}{}", "x".repeat(1_000)));
            let mut progress = Progress::new(f64::from(n)).total(f64::INFINITY);
            progress.message = message;
            recorder.record(&progress);
        }
        recorder.record(&Progress::new(f64::NAN));
        let reported = recorder.take();
        assert_eq!(reported.len(), limits::TOOL_PROGRESS_ENTRIES);
        let last = reported.last().unwrap();
        assert_eq!((last.after, last.done, last.total), (1_000, 99.0, None));
        let message = last.message.clone().unwrap();
        assert!(message.starts_with("99 xxx") && message.chars().count() <= limits::TOOL_PROGRESS_TEXT, "{message}");
    }
}
