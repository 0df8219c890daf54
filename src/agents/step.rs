//! From one model answer to one decision. No I/O here: the rules of an agent.s loop as a small state machine.

use std::{sync::Arc, time::Duration};

use minijinja::context;
use segue_engine::{
    conversation::{AgentKind, AgentStatus, BotKind},
    project::OnToolError,
};

use super::{
    calls::Tally,
    hooks::AgentHooks,
    profile::Profile,
    session::Session,
    slots::RunSlots,
    speech::{Heard, Spoken},
};
use crate::{
    context::CallContext,
    llm::{ChatMessage, ChatResponse, FinishReason, LlmErrorKind},
    prompts::PromptSet,
};

/// The agent was not done after its last pass.
pub(super) const ITERATIONS: &str = "A0501";
/// Too many tool calls failed in a row, or one that must not.
pub(super) const TOOLS: &str = "A0502";
/// The model could not be asked.
pub(super) const MODEL: &str = "A0503";
/// The model said nothing, again and again.
pub(super) const NOTHING: &str = "A0504";
/// The time of the run was over.
pub(super) const DEADLINE: &str = "A0505";
/// A prompt could not be rendered.
pub(super) const PROMPT: &str = "A0506";

/// A hook failed.
pub(super) const HOOK: &str = "A0521";
/// The agent said that something was done that no tool did.
pub(super) const UNPROVEN: &str = "A0522";

/// Empty answers that are tried again, and the waits before that.
const WAITS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(2)];
/// The least limit that an answer gets which was cut off inside a call.
const MORE_TOKENS: u32 = 4_096;

/// What the loop must do after an answer.
pub(super) enum Decision {
    /// Run the calls of this answer.
    Act(Arc<ChatResponse>, Spoken),
    /// The run is over; these are its last words.
    Finish {
        /// How it ended.
        status: AgentStatus,
        /// What was said.
        spoken: Spoken,
        /// What for.
        kind: BotKind,
    },
    /// Ask once more.
    Again {
        /// After this time.
        wait: Option<Duration>,
    },
}

/// What the loop must do after the calls.
pub(super) enum After {
    /// Ask the model again.
    GoOn,
    /// Ask for the closing line, without tools.
    AskClosing,
    /// Calls wait for the user's yes.
    Ask,
    /// The run is over.
    Finish(AgentStatus),
}

/// What the machine remembers between passes.
#[derive(Debug, Default)]
pub(super) struct Step {
    /// The task is done; only the closing line is missing.
    pub(super) closing: bool,
    /// A raised token limit, after an answer that was cut inside a call.
    pub(super) max_tokens: Option<u32>,
    /// Times that the agent was asked to take back a claim.
    pub(super) repairs: u32,
    empty: usize,
    failures: u32,
    lengthened: bool,
}

impl Step {
    /// Decides on an answer.
    pub(super) fn decide(&mut self, heard: Heard, profile: &Profile, slots: &RunSlots<'_>) -> Decision {
        let (answer, mut spoken) = match heard {
            Heard::Answer(answer, spoken) => (answer, spoken),
            Heard::Broken(error, spoken) => {
                let status = match error.kind {
                    LlmErrorKind::Cancelled => AgentStatus::Cancelled { reason: error.to_string() },
                    LlmErrorKind::DeadlineExceeded => failed(DEADLINE, describe(&error)),
                    _ => failed(MODEL, describe(&error)),
                };
                return Decision::Finish { status, spoken, kind: BotKind::Intermediate };
            }
        };
        if answer.finish == FinishReason::ContentFilter {
            // Nobody gets round it, no call of it runs, and what was not seen yet is not said.
            let (status, kind) = match self.closing {
                // The task is done all the same.
                true => (AgentStatus::Finished, BotKind::FinalResponse),
                false => (failed(MODEL, "the vendor's filter stopped the answer".into()), BotKind::Intermediate),
            };
            return Decision::Finish { status, spoken: spoken.broken_off(), kind };
        }
        if !answer.truncated_calls.is_empty() && !self.lengthened && spoken.text.is_empty() {
            // Cut inside a call: once more with room. Nothing of the call may run.
            self.lengthened = true;
            self.max_tokens = Some(more_room(&answer));
            return Decision::Again { wait: None };
        }
        if !answer.tool_calls.is_empty() && !self.closing {
            self.empty = 0;
            return Decision::Act(answer, spoken);
        }
        // Text before a call is whole: it was the calls that the limit cut.
        spoken.cut = answer.finish == FinishReason::Length;
        if self.closing {
            return Decision::Finish { status: AgentStatus::Finished, spoken, kind: BotKind::FinalResponse };
        }
        if spoken.text.is_empty() {
            return self.empty_answer(&answer, spoken, profile, slots);
        }
        Self::text_alone(spoken, profile, slots)
    }

    fn text_alone(spoken: Spoken, profile: &Profile, slots: &RunSlots<'_>) -> Decision {
        let done = profile.kind == AgentKind::Task && slots.satisfy(&profile.exit_if);
        let (status, kind) = if done {
            (AgentStatus::Finished, BotKind::FinalResponse)
        } else {
            (AgentStatus::AwaitingUser, BotKind::InputRequired)
        };
        Decision::Finish { status, spoken, kind }
    }

    fn empty_answer(
        &mut self,
        answer: &ChatResponse,
        spoken: Spoken,
        profile: &Profile,
        slots: &RunSlots<'_>,
    ) -> Decision {
        if profile.kind == AgentKind::Task && slots.satisfy(&profile.exit_if) {
            let (status, kind) = (AgentStatus::Finished, BotKind::FinalResponse);
            return Decision::Finish { status, spoken, kind };
        }
        match WAITS.get(self.empty) {
            Some(wait) => {
                self.empty += 1;
                Decision::Again { wait: Some(*wait) }
            }
            None => Decision::Finish {
                status: failed(NOTHING, format!("the model gave no text and no call ({:?})", answer.finish)),
                spoken,
                kind: BotKind::Intermediate,
            },
        }
    }

    /// Decides after the calls of an answer ran.
    pub(super) fn after_calls(
        &mut self,
        tally: Tally,
        profile: &Profile,
        slots: &RunSlots<'_>,
        spoken: &Spoken,
    ) -> After {
        if let Some((tool, reason)) = tally.fatal {
            return After::Finish(failed(TOOLS, format!("{tool}: {reason}")));
        }
        if tally.held {
            return After::Ask;
        }
        if tally.failed > 0 && profile.on_tool_error == OnToolError::Fail {
            return After::Finish(failed(TOOLS, "a tool failed, and `on_tool_error` is `fail`".into()));
        }
        if profile.kind == AgentKind::Task && slots.satisfy(&profile.exit_if) {
            return After::Finish(AgentStatus::Finished);
        }
        if tally.completed {
            if !spoken.text.is_empty() && spoken.unproven.is_none() {
                return After::Finish(AgentStatus::Finished);
            }
            self.closing = true;
            return After::AskClosing;
        }
        // Answers count, not calls: a model that slips in each of several calls has slipped once, and has seen none of the results.
        if tally.done > 0 {
            self.failures = 0;
        } else if tally.failed + tally.refused > 0 {
            self.failures += 1;
        }
        if self.failures > profile.failures {
            let reason = format!("of {} answers in a row every tool call failed", self.failures);
            return After::Finish(failed(TOOLS, reason));
        }
        After::GoOn
    }
}

/// Whether the run must end before the next model call.
pub(super) fn stopped(cx: &CallContext) -> Option<AgentStatus> {
    if cx.cancel.is_cancelled() {
        return Some(AgentStatus::Cancelled { reason: "cancelled".into() });
    }
    cx.remaining().is_zero().then(|| failed(DEADLINE, "the time for this run is over".into()))
}

/// How a run ended: what was stopped did not fail, whatever broke because of that.
pub(super) fn unless_stopped(status: AgentStatus, cx: &CallContext) -> AgentStatus {
    match status {
        AgentStatus::Failed { reason, .. } if cx.cancel.is_cancelled() => AgentStatus::Cancelled { reason },
        other => other,
    }
}

/// A failure with a code.
pub(super) fn failed(code: &str, reason: String) -> AgentStatus {
    AgentStatus::Failed { code: code.into(), reason }
}

/// Asks for the closing line.
pub(super) fn ask_closing(session: &mut Session, prompts: &PromptSet, hooks: Option<&dyn AgentHooks>) {
    let mut text = prompts.render(&prompts.agent_closing, context! {}).unwrap_or_default();
    if let Some(hooks) = hooks {
        text = hooks.empty_closing_message(text.trim().to_owned());
    }
    session.push(ChatMessage::system(text.trim()));
}

/// Tells the model which of its sentences the user did not hear, and why.
pub(super) fn ask_proof(session: &mut Session, prompts: &PromptSet, sentence: &str) {
    let text = prompts.render(&prompts.agent_unproven, context! { sentence }).unwrap_or_default();
    session.push(ChatMessage::system(text.trim()));
}

/// Tells the model that its answer was empty.
pub(super) fn nudge(session: &mut Session, prompts: &PromptSet) {
    let text = prompts.render(&prompts.agent_retry_empty, context! {}).unwrap_or_default();
    session.push(ChatMessage::system(text.trim()));
}

/// Twice the limit that cut this answer: what the answer used is what the limit was, whoever set it.
fn more_room(answer: &ChatResponse) -> u32 {
    u32::try_from(answer.usage.output.saturating_mul(2)).unwrap_or(u32::MAX).max(MORE_TOKENS)
}

fn describe(error: &crate::llm::LlmError) -> String {
    match &error.detail {
        Some(detail) => format!("{}: {detail}", error.kind),
        None => error.kind.to_string(),
    }
}
