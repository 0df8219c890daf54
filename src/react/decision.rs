//! The decisions of an agent's loop as a state machine without I/O: what follows from a model response and from its tool calls.

use std::{sync::Arc, time::Duration};

use segue_engine::{
    conversation::{AgentStatus, BotKind},
    text::{ELLIPSIS, TextLimit, single_line, truncate},
};

use super::{
    answer_stream::{ModelTurn, StreamedText},
    guards::Cap,
    profile::{BareText, LoopProfile},
    state::LoopState,
    tool_calls::BatchSummary,
};
use crate::{
    context::CallContext,
    llm::{ChatResponse, FinishReason, LlmErrorKind},
};

/// Characters of the model's last text that a failure quotes.
const LAST_TEXT_CHARS: usize = 200;

/// The agent did not complete its task within `max_iterations` model calls.
pub(crate) const CODE_ITERATION_LIMIT: &str = "A0501";
/// Too many consecutive model responses had only failed calls, or a call failed whose failure is fatal.
pub(crate) const CODE_TOOL_FAILURES: &str = "A0502";
/// The model call failed.
pub(crate) const CODE_MODEL_FAILED: &str = "A0503";
/// The model gave an empty response several times.
pub(crate) const CODE_EMPTY_ANSWER: &str = "A0504";
/// The deadline of the run passed.
pub(crate) const CODE_DEADLINE: &str = "A0505";
/// A prompt could not be rendered.
pub(crate) const CODE_PROMPT: &str = "A0506";

/// The turn had no model calls left.
pub(crate) const CODE_CALL_LIMIT: &str = "A0524";
/// The model answered without a tool call although its role demands one.
pub(crate) const CODE_NO_TOOL_CALL: &str = "A0525";

/// The model repeated the same calls until they were refused, and gave no answer.
pub(crate) const CODE_REPEATED_CALLS: &str = "A0526";
/// The budget was spent before the task was complete.
pub(crate) const CODE_BUDGET: &str = "A0527";

/// Pauses before an empty response is retried; its length is the number of retries.
const EMPTY_ANSWER_WAITS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(2)];
/// The least token limit for the retry of a response that was truncated within a call.
const TRUNCATED_CALL_MAX_TOKENS: u32 = 4_096;

/// What the loop does after a model response.
pub(super) enum Decision {
    /// Run the calls of this response.
    CallTools(Arc<ChatResponse>, StreamedText),
    /// End the run with this message.
    Finish {
        /// The status.
        status: AgentStatus,
        /// The final message.
        streamed: StreamedText,
        /// The kind of the message.
        kind: BotKind,
    },
    /// Call the model again.
    Retry {
        /// The pause before.
        wait: Option<Duration>,
    },
    /// Call the model again, and tell it that its role demands a tool call.
    Correct {
        /// The response.
        answer: Arc<ChatResponse>,
        /// Its text.
        streamed: StreamedText,
    },
}

/// What the loop does after the tool calls.
pub(super) enum NextAction {
    /// Call the model again.
    Continue,
    /// Call the model without tools for the closing message.
    RequestClosingMessage,
    /// End the run: calls wait for the user's confirmation.
    AwaitUser,
    /// End the run with this status.
    Finish(AgentStatus),
}

impl LoopState {
    /// Decides what follows from a model response. `is_done`: the conditions of the profile say that the task is complete.
    pub(super) fn decide(&mut self, turn: ModelTurn, profile: &LoopProfile, is_done: bool) -> Decision {
        let (answer, mut streamed) = match turn {
            ModelTurn::Answer(answer, streamed) => (answer, streamed),
            ModelTurn::Failed(error, streamed) => {
                let status = match error.kind {
                    LlmErrorKind::Cancelled => AgentStatus::Cancelled { reason: error.to_string() },
                    LlmErrorKind::DeadlineExceeded => failed_status(CODE_DEADLINE, describe(&error)),
                    LlmErrorKind::CallLimit => failed_status(CODE_CALL_LIMIT, describe(&error)),
                    _ => failed_status(CODE_MODEL_FAILED, describe(&error)),
                };
                return Decision::Finish { status, streamed, kind: BotKind::Intermediate };
            }
        };
        if answer.finish == FinishReason::ContentFilter {
            // The filter is final: no call of the response runs, and text that was not sent yet stays unsent.
            let (status, kind) = match self.closing {
                // The task is already done.
                true => (AgentStatus::Finished, BotKind::FinalResponse),
                false => (
                    failed_status(CODE_MODEL_FAILED, "the content filter of the provider stopped the response".into()),
                    BotKind::Intermediate,
                ),
            };
            return Decision::Finish { status, streamed: streamed.into_truncated(), kind };
        }
        if !answer.truncated_calls.is_empty() && !self.is_limit_raised && streamed.text.is_empty() {
            // Truncated within a call: retry once with a higher limit. No part of the call may run.
            self.is_limit_raised = true;
            self.max_tokens = Some(raised_token_limit(&answer));
            return Decision::Retry { wait: None };
        }
        if !answer.tool_calls.is_empty() && !self.closing && self.capped.is_none() {
            self.empty_answers = 0;
            self.corrections = 0;
            return Decision::CallTools(answer, streamed);
        }
        // Text before a call is complete; the limit truncated the calls.
        streamed.truncated = answer.finish == FinishReason::Length;
        if self.closing {
            return Decision::Finish { status: AgentStatus::Finished, streamed, kind: BotKind::FinalResponse };
        }
        if streamed.text.is_empty() {
            return self.decide_empty_answer(&answer, streamed, is_done);
        }
        self.decide_text(answer, streamed, profile, is_done)
    }

    fn decide_text(
        &mut self,
        answer: Arc<ChatResponse>,
        streamed: StreamedText,
        profile: &LoopProfile,
        is_done: bool,
    ) -> Decision {
        let (status, kind) = match profile.bare_text {
            _ if is_done => (AgentStatus::Finished, BotKind::FinalResponse),
            BareText::Final => (AgentStatus::Finished, BotKind::FinalResponse),
            BareText::AskUser => (AgentStatus::AwaitingUser, BotKind::InputRequired),
            BareText::Correct { .. } if let Some(cap) = self.capped => (capped(cap), BotKind::Intermediate),
            BareText::Correct { most } if self.corrections < most => {
                self.corrections += 1;
                return Decision::Correct { answer, streamed };
            }
            BareText::Correct { most } => {
                let text = single_line(answer.text.trim());
                let text = truncate(&text, TextLimit::Chars(LAST_TEXT_CHARS), ELLIPSIS);
                let times = most + 1;
                let reason = format!("the model answered without a tool call {times} times in a row, at last: {text}");
                (failed_status(CODE_NO_TOOL_CALL, reason), BotKind::Intermediate)
            }
        };
        Decision::Finish { status, streamed, kind }
    }

    fn decide_empty_answer(&mut self, answer: &ChatResponse, streamed: StreamedText, is_done: bool) -> Decision {
        if is_done {
            let (status, kind) = (AgentStatus::Finished, BotKind::FinalResponse);
            return Decision::Finish { status, streamed, kind };
        }
        if let Some(cap) = self.capped {
            return Decision::Finish { status: capped(cap), streamed, kind: BotKind::Intermediate };
        }
        match EMPTY_ANSWER_WAITS.get(usize::try_from(self.empty_answers).unwrap_or(usize::MAX)) {
            Some(wait) => {
                self.empty_answers += 1;
                Decision::Retry { wait: Some(*wait) }
            }
            None => Decision::Finish {
                status: failed_status(
                    CODE_EMPTY_ANSWER,
                    format!("the model returned neither text nor a tool call ({:?})", answer.finish),
                ),
                streamed,
                kind: BotKind::Intermediate,
            },
        }
    }

    /// Decides what follows after the calls of a response ran. `has_text`: the response has a text that may close the task.
    pub(super) fn after_calls(
        &mut self,
        summary: BatchSummary,
        profile: &LoopProfile,
        is_done: bool,
        has_text: bool,
    ) -> NextAction {
        if let Some((tool, reason)) = summary.fatal {
            return NextAction::Finish(failed_status(CODE_TOOL_FAILURES, format!("{tool}: {reason}")));
        }
        if summary.awaiting_confirmation {
            return NextAction::AwaitUser;
        }
        if summary.failed > 0 && profile.fails_on_tool_error {
            return NextAction::Finish(failed_status(
                CODE_TOOL_FAILURES,
                "a tool failed, and `on_tool_error` is `fail`".into(),
            ));
        }
        if is_done {
            return NextAction::Finish(AgentStatus::Finished);
        }
        if summary.completed {
            if has_text || !profile.closing_message {
                return NextAction::Finish(AgentStatus::Finished);
            }
            self.closing = true;
            return NextAction::RequestClosingMessage;
        }
        // Responses count, not calls: a model that makes several wrong calls in one response has seen none of their results.
        if summary.succeeded > 0 {
            self.failed_answers = 0;
        } else if summary.failed + summary.refused > 0 {
            self.failed_answers += 1;
        }
        if self.failed_answers > profile.max_failed_answers {
            let reason = format!("every tool call failed in {} consecutive model responses", self.failed_answers);
            return NextAction::Finish(failed_status(CODE_TOOL_FAILURES, reason));
        }
        NextAction::Continue
    }
}

/// The status with which the run must end before the next model call; `None` if it may continue.
pub(crate) fn stop_status(cx: &CallContext) -> Option<AgentStatus> {
    if cx.cancel.is_cancelled() {
        return Some(AgentStatus::Cancelled { reason: "cancelled".into() });
    }
    cx.remaining().is_zero().then(|| failed_status(CODE_DEADLINE, "the deadline of this run has passed".into()))
}

/// The status of a run: a failure in a cancelled run is a consequence of the cancellation, so that the run counts as cancelled.
pub(crate) fn unless_stopped(status: AgentStatus, cx: &CallContext) -> AgentStatus {
    match status {
        AgentStatus::Failed { reason, .. } if cx.cancel.is_cancelled() => AgentStatus::Cancelled { reason },
        other => other,
    }
}

/// The status of a run that a limit ended before the model gave an answer.
pub(super) fn capped(cap: Cap) -> AgentStatus {
    match cap {
        Cap::Tokens => failed_status(CODE_BUDGET, "the budget of the task is spent".into()),
        Cap::Turns => failed_status(CODE_ITERATION_LIMIT, "the run has no model calls left".into()),
        Cap::Loop => {
            failed_status(CODE_REPEATED_CALLS, "the model repeated the same tool calls until they were refused".into())
        }
    }
}

/// A failed status with its code.
pub(crate) fn failed_status(code: &str, reason: String) -> AgentStatus {
    AgentStatus::Failed { code: code.into(), reason }
}

/// Twice the limit that truncated this response. The output tokens it used are the limit, wherever it was set.
fn raised_token_limit(answer: &ChatResponse) -> u32 {
    u32::try_from(answer.usage.output.saturating_mul(2)).unwrap_or(u32::MAX).max(TRUNCATED_CALL_MAX_TOKENS)
}

/// The kind of an error of a model and its details.
fn describe(error: &crate::llm::LlmError) -> String {
    match &error.detail {
        Some(detail) => format!("{}: {detail}", error.kind),
        None => error.kind.to_string(),
    }
}
