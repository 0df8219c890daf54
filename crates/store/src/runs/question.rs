//! A question of a run, and what a reply does to it.

use std::sync::Arc;

use segue_base::limits;
use segue_engine::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::{QuestionKey, QuestionReply, QuestionStatus, ReplyOutcome, RunStatus, RunStoreError, StoredQuestion};

/// What a reply is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplyKind {
    /// The answer.
    Answer,
    /// No answer: the question is asked again.
    Refinement,
}

/// A question as stored, without its key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct QuestionBody {
    pub(crate) unit: Arc<str>,
    question: Arc<str>,
    generation: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    answer: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    answered_by: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    closed: bool,
    /// Accepted replies: the event, and the generation after it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    replies: Vec<(Arc<str>, u32)>,
    asked_at: Timestamp,
    updated_at: Timestamp,
}

impl QuestionBody {
    pub(crate) fn new(unit: Arc<str>, question: Arc<str>, at: Timestamp) -> Self {
        Self {
            unit,
            question,
            generation: 1,
            answer: None,
            answered_by: None,
            closed: false,
            replies: Vec::new(),
            asked_at: at,
            updated_at: at,
        }
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

    /// Takes a reply. The second value says whether it has changed the question.
    pub(crate) fn reply(
        &mut self,
        kind: ReplyKind,
        reply: &QuestionReply,
        run: RunStatus,
    ) -> Result<(ReplyOutcome, bool), RunStoreError> {
        let repeated = self.replies.iter().find(|(event, _)| *event == reply.event_id && !event.is_empty());
        if let Some((event, generation)) = repeated {
            let answered = self.answered_by.as_ref() == Some(event);
            let refined = ReplyOutcome::Refined { generation: *generation };
            return Ok((if answered { ReplyOutcome::Answered } else { refined }, false));
        }
        if let (Some(answer), Some(event_id)) = (&self.answer, &self.answered_by) {
            return Ok((ReplyOutcome::Already { answer: answer.clone(), event_id: event_id.clone() }, false));
        }
        if self.closed || run.is_ended() {
            return Ok((ReplyOutcome::Closed, false));
        }
        if reply.generation.is_some_and(|generation| generation != self.generation) {
            return Ok((ReplyOutcome::Outdated { generation: self.generation }, false));
        }
        let outcome = match kind {
            ReplyKind::Answer => {
                (self.answer, self.answered_by) = (Some(reply.text.clone()), Some(reply.event_id.clone()));
                ReplyOutcome::Answered
            }
            // The last reply must be the answer.
            ReplyKind::Refinement if self.replies.len() + 1 >= limits::RUN_QUESTION_REPLIES => {
                return Err(RunStoreError::TooLarge {
                    run: reply.question.run.clone(),
                    what: "the number of replies to a question",
                    size: self.replies.len() + 1,
                    limit: limits::RUN_QUESTION_REPLIES - 1,
                });
            }
            ReplyKind::Refinement => {
                self.question = reply.text.clone();
                self.generation += 1;
                ReplyOutcome::Refined { generation: self.generation }
            }
        };
        self.replies.push((reply.event_id.clone(), self.generation));
        self.updated_at = reply.at;
        Ok((outcome, true))
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
            generation: self.generation,
            question: self.question.clone(),
            status,
            answer: self.answer.clone(),
            answered_by: self.answered_by.clone(),
            asked_at: self.asked_at,
            updated_at: self.updated_at,
        }
    }
}
