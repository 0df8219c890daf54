//! The decisions of an agent's loop as a state machine without I/O: what follows from a model response and from its tool calls.

use std::{sync::Arc, time::Duration};

use minijinja::context;
use segue_engine::{
    conversation::{AgentKind, AgentStatus, BotKind},
    project::OnToolError,
};

use super::{
    answer_stream::{ModelTurn, StreamedText},
    hooks::AgentHooks,
    profile::Profile,
    slots::RunSlots,
    tool_calls::BatchSummary,
    transcript::RunTranscript,
};
use crate::{
    context::CallContext,
    llm::{ChatMessage, ChatResponse, FinishReason, LlmErrorKind},
    prompts::PromptSet,
};

/// The agent did not complete its task within `max_iterations` model calls.
pub(super) const CODE_ITERATION_LIMIT: &str = "A0501";
/// Too many consecutive model responses had only failed calls, or a call failed whose failure is fatal.
pub(super) const CODE_TOOL_FAILURES: &str = "A0502";
/// The model call failed.
pub(super) const CODE_MODEL_FAILED: &str = "A0503";
/// The model gave an empty response several times.
pub(super) const CODE_EMPTY_ANSWER: &str = "A0504";
/// The deadline of the run passed.
pub(super) const CODE_DEADLINE: &str = "A0505";
/// A prompt could not be rendered.
pub(super) const CODE_PROMPT: &str = "A0506";

/// The turn had no model calls left.
pub(super) const CODE_CALL_LIMIT: &str = "A0524";
/// A hook failed.
pub(super) const CODE_HOOK_FAILED: &str = "A0521";
/// The agent claimed an effect that no tool result supports.
pub(super) const CODE_UNGROUNDED_CLAIM: &str = "A0522";

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
}

/// What the loop does after the tool calls.
pub(super) enum NextAction {
    /// Call the model again.
    Continue,
    /// Call the model without tools for the closing message.
    RequestClosingMessage,
    /// End the run: calls wait for the user's confirmation.
    AwaitConfirmation,
    /// End the run with this status.
    Finish(AgentStatus),
}

/// The state of the loop between model calls.
#[derive(Debug, Default)]
pub(super) struct LoopState {
    /// The task is done; only the closing message is missing.
    pub(super) closing: bool,
    /// A raised token limit, after a response that was truncated within a call.
    pub(super) max_tokens: Option<u32>,
    /// Number of times that the model was asked to correct a claim.
    pub(super) repairs: u32,
    empty_answers: usize,
    failed_answers: u32,
    is_limit_raised: bool,
}

impl LoopState {
    /// Decides what follows from a model response.
    pub(super) fn decide(&mut self, turn: ModelTurn, profile: &Profile, slots: &RunSlots<'_>) -> Decision {
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
        if !answer.tool_calls.is_empty() && !self.closing {
            self.empty_answers = 0;
            return Decision::CallTools(answer, streamed);
        }
        // Text before a call is complete; the limit truncated the calls.
        streamed.truncated = answer.finish == FinishReason::Length;
        if self.closing {
            return Decision::Finish { status: AgentStatus::Finished, streamed, kind: BotKind::FinalResponse };
        }
        if streamed.text.is_empty() {
            return self.decide_empty_answer(&answer, streamed, profile, slots);
        }
        Self::decide_text(streamed, profile, slots)
    }

    fn decide_text(streamed: StreamedText, profile: &Profile, slots: &RunSlots<'_>) -> Decision {
        let done = profile.kind == AgentKind::Task && slots.all_true(&profile.exit_if);
        let (status, kind) = if done {
            (AgentStatus::Finished, BotKind::FinalResponse)
        } else {
            (AgentStatus::AwaitingUser, BotKind::InputRequired)
        };
        Decision::Finish { status, streamed, kind }
    }

    fn decide_empty_answer(
        &mut self,
        answer: &ChatResponse,
        streamed: StreamedText,
        profile: &Profile,
        slots: &RunSlots<'_>,
    ) -> Decision {
        if profile.kind == AgentKind::Task && slots.all_true(&profile.exit_if) {
            let (status, kind) = (AgentStatus::Finished, BotKind::FinalResponse);
            return Decision::Finish { status, streamed, kind };
        }
        match EMPTY_ANSWER_WAITS.get(self.empty_answers) {
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

    /// Decides what follows after the calls of a response ran.
    pub(super) fn after_calls(
        &mut self,
        summary: BatchSummary,
        profile: &Profile,
        slots: &RunSlots<'_>,
        streamed: &StreamedText,
    ) -> NextAction {
        if let Some((tool, reason)) = summary.fatal {
            return NextAction::Finish(failed_status(CODE_TOOL_FAILURES, format!("{tool}: {reason}")));
        }
        if summary.awaiting_confirmation {
            return NextAction::AwaitConfirmation;
        }
        if summary.failed > 0 && profile.on_tool_error == OnToolError::Fail {
            return NextAction::Finish(failed_status(
                CODE_TOOL_FAILURES,
                "a tool failed, and `on_tool_error` is `fail`".into(),
            ));
        }
        if profile.kind == AgentKind::Task && slots.all_true(&profile.exit_if) {
            return NextAction::Finish(AgentStatus::Finished);
        }
        if summary.completed {
            if !streamed.text.is_empty() && streamed.ungrounded.is_none() {
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
pub(super) fn stop_status(cx: &CallContext) -> Option<AgentStatus> {
    if cx.cancel.is_cancelled() {
        return Some(AgentStatus::Cancelled { reason: "cancelled".into() });
    }
    cx.remaining().is_zero().then(|| failed_status(CODE_DEADLINE, "the deadline of this run has passed".into()))
}

/// The status of a run: a failure in a cancelled run is a consequence of the cancellation, so that the run counts as cancelled.
pub(super) fn unless_stopped(status: AgentStatus, cx: &CallContext) -> AgentStatus {
    match status {
        AgentStatus::Failed { reason, .. } if cx.cancel.is_cancelled() => AgentStatus::Cancelled { reason },
        other => other,
    }
}

/// A failed status with its code.
pub(super) fn failed_status(code: &str, reason: String) -> AgentStatus {
    AgentStatus::Failed { code: code.into(), reason }
}

/// Adds the request for the closing message.
pub(super) fn push_closing_request(session: &mut RunTranscript, prompts: &PromptSet, hooks: Option<&dyn AgentHooks>) {
    let mut text = prompts.render(&prompts.agent_closing, context! {}).unwrap_or_default();
    if let Some(hooks) = hooks {
        text = hooks.empty_closing_message(text.trim().to_owned());
    }
    session.push(ChatMessage::system(text.trim()));
}

/// Adds a message that names the withheld sentence and the reason.
pub(super) fn push_grounding_request(session: &mut RunTranscript, prompts: &PromptSet, sentence: &str) {
    let text = prompts.render(&prompts.agent_unproven, context! { sentence }).unwrap_or_default();
    session.push(ChatMessage::system(text.trim()));
}

/// Adds a message that says that the response was empty.
pub(super) fn push_empty_answer_hint(session: &mut RunTranscript, prompts: &PromptSet) {
    let text = prompts.render(&prompts.agent_retry_empty, context! {}).unwrap_or_default();
    session.push(ChatMessage::system(text.trim()));
}

/// Twice the limit that truncated this response. The output tokens it used are the limit, wherever it was set.
fn raised_token_limit(answer: &ChatResponse) -> u32 {
    u32::try_from(answer.usage.output.saturating_mul(2)).unwrap_or(u32::MAX).max(TRUNCATED_CALL_MAX_TOKENS)
}

fn describe(error: &crate::llm::LlmError) -> String {
    match &error.detail {
        Some(detail) => format!("{}: {detail}", error.kind),
        None => error.kind.to_string(),
    }
}
