//! A question of a run, and what a reply does to it.

use std::sync::Arc;

use segue_engine::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::{QuestionKey, QuestionReply, QuestionStatus, ReplyOutcome, RunStatus, StoredQuestion};

/// A question as stored, without its key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct QuestionBody {
    pub(crate) unit: Arc<str>,
    question: Arc<str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    answer: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    answered_by: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    closed: bool,
    asked_at: Timestamp,
    updated_at: Timestamp,
}

impl QuestionBody {
    pub(crate) fn new(unit: Arc<str>, question: Arc<str>, at: Timestamp) -> Self {
        Self { unit, question, answer: None, answered_by: None, closed: false, asked_at: at, updated_at: at }
    }

    /// Whether it waits for an answer while its run has not ended.
    pub(crate) fn is_open(&self) -> bool {
        self.answered_by.is_none() && !self.closed
    }

    /// Takes the same question again, from a unit that will be woken by the answer. Returns whether it needs none any more.
    pub(crate) fn ask_again(&mut self, unit: &Arc<str>) -> bool {
        self.unit = unit.clone();
        !self.is_open()
    }

    pub(crate) fn close(&mut self, at: Timestamp) {
        if self.is_open() {
            (self.closed, self.updated_at) = (true, at);
        }
    }

    /// Takes an answer. The second value says whether it has changed the question.
    pub(crate) fn reply(&mut self, reply: &QuestionReply, run: RunStatus) -> (ReplyOutcome, bool) {
        if let (Some(answer), Some(event_id)) = (&self.answer, &self.answered_by) {
            let is_repeated = *event_id == reply.event_id && !event_id.is_empty();
            let already = ReplyOutcome::Already { answer: answer.clone(), event_id: event_id.clone() };
            return (if is_repeated { ReplyOutcome::Answered } else { already }, false);
        }
        if self.closed || run.is_ended() {
            return (ReplyOutcome::Closed, false);
        }
        (self.answer, self.answered_by) = (Some(reply.text.clone()), Some(reply.event_id.clone()));
        self.updated_at = reply.at;
        (ReplyOutcome::Answered, true)
    }

    /// The question of a run of this status.
    pub(crate) fn stored(&self, key: QuestionKey, run: RunStatus) -> StoredQuestion {
        let status = match self.answered_by {
            Some(_) => QuestionStatus::Answered,
            None if self.closed || run.is_ended() => QuestionStatus::Closed,
            None => QuestionStatus::Open,
        };
        StoredQuestion {
            key,
            unit: self.unit.clone(),
            question: self.question.clone(),
            status,
            answer: self.answer.clone(),
            answered_by: self.answered_by.clone(),
            asked_at: self.asked_at,
            updated_at: self.updated_at,
        }
    }
}
