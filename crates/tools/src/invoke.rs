//! One tool call: find the tool, check the arguments, call it within its timeouts, limit the size of the result, and
//! report the outcome.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use serde_json::Value as Json;
use sha2::{Digest, Sha256};

use super::{
    ArgumentCheck, EffectClass, FailureKind, Progress, ToolCallContext, ToolHandler, ToolOutcome,
    messages::{ToolMessage, render_message},
    tool_set::ToolSet,
};
use segue_base::{
    context::{CallContext, WaitError},
    effect::Arrival,
    limits,
};

/// A call of an existing tool with valid arguments. Before it is sent, the caller may apply rules of its own, such as a
/// confirmation by the user or a limit of calls.
pub struct CheckedCall {
    tool: Arc<dyn ToolHandler>,
    arguments: Json,
    effect: EffectClass,
}

impl CheckedCall {
    /// Finds the tool `name` of `tools` and checks the arguments.
    ///
    /// # Errors
    /// The outcome for the model: the tool does not exist, or the arguments do not match its schema.
    #[expect(clippy::result_large_err, reason = "the error is the outcome itself, and one call has one")]
    pub fn find(tools: &ToolSet, name: &str, arguments: Json) -> Result<Self, ToolOutcome> {
        let Some(entry) = tools.get(name) else { return Err(unknown_tool(tools, name)) };
        // The effect class in this run, which may differ from that of the source.
        Self::check(tools.tool(entry), &entry.check, arguments, entry.info.effect)
    }

    /// Checks the arguments for a known tool.
    ///
    /// # Errors
    /// The arguments do not match the schema.
    #[expect(clippy::result_large_err, reason = "the error is the outcome itself, and one call has one")]
    pub fn check(
        tool: Arc<dyn ToolHandler>,
        check: &ArgumentCheck,
        arguments: Json,
        effect: EffectClass,
    ) -> Result<Self, ToolOutcome> {
        let problems = check.problems(&arguments);
        if !problems.is_empty() {
            let message = render_message(ToolMessage::InvalidArguments, &[("problems", &problems.join(" "))]);
            return Err(ToolOutcome::failed(FailureKind::BadArguments, message));
        }
        Ok(Self { tool, arguments, effect })
    }

    /// The effect class.
    pub fn effect(&self) -> EffectClass {
        self.effect
    }

    /// Calls the tool. Every failure is an outcome that the model may see.
    ///
    /// The call ends after `idle_timeout` without progress (else the tool's own idle timeout, else
    /// [`limits::TOOL_DEADLINE`]), after the total timeout of the tool (else [`limits::TOOL_TOTAL`]), or at the deadline of
    /// the context. Only progress with an increased amount counts. A running `write` is not cancelled: it runs until its
    /// end or its deadline, and one whose end was not observed is [`ToolOutcome::Unknown`]. Cancellation: dropping the
    /// future abandons the call.
    pub async fn send(self, cx: &ToolCallContext, idle_timeout: Option<Duration>) -> ToolOutcome {
        let idle_timeout = idle_timeout.or(self.tool.idle_timeout()).unwrap_or(limits::TOOL_DEADLINE);
        let total_timeout = self.tool.total_timeout().unwrap_or(limits::TOOL_TOTAL).max(idle_timeout);
        let inner = cx.cx.with_idle_timeout(idle_timeout, total_timeout).for_effect(self.effect);
        let progress = Some(forward_progress(&inner, cx));
        let inner = ToolCallContext { progress, cx: inner, effect: Some(self.effect), ..cx.clone() };
        if cx.cx.cancel.is_cancelled() {
            let message = render_message(ToolMessage::CancelledBeforeSend, &[]);
            return ToolOutcome::failed(FailureKind::Cancelled, message);
        }
        let remaining = inner.cx.remaining();
        if remaining.is_zero() {
            return ToolOutcome::failed(FailureKind::Timeout, render_message(ToolMessage::TimedOutBeforeSend, &[]));
        }
        let started = inner.cx.clock.elapsed();
        // A little longer than the timeout of the tool, so that its wrapper can record the end.
        match inner.cx.wait_with_grace(limits::TOOL_GRACE, self.tool.call(self.arguments, &inner)).await {
            Ok(outcome) => limit_size(outcome, self.effect),
            Err(WaitError::DeadlinePassed) => {
                let started = started.saturating_add(limits::TOOL_GRACE);
                timed_out(self.effect, waited_time(&inner.cx, started, remaining))
            }
            Err(WaitError::Cancelled) => {
                let message = render_message(ToolMessage::Cancelled, &[]);
                ToolOutcome::without_response(self.effect, Arrival::Possible, FailureKind::Cancelled, message)
            }
        }
    }
}

/// Calls the tool `name` of `tools`, for callers without rules of their own: [`CheckedCall::find`], then
/// [`CheckedCall::send`].
pub async fn invoke(
    tools: &ToolSet,
    name: &str,
    arguments: Json,
    cx: &ToolCallContext,
    idle_timeout: Option<Duration>,
) -> ToolOutcome {
    match CheckedCall::find(tools, name, arguments) {
        Ok(call) => call.send(cx, idle_timeout).await,
        Err(outcome) => outcome,
    }
}

/// The receiver of the progress of a call. Progress with an increased amount restarts the idle timeout; all of it is
/// forwarded to the receiver of the caller.
fn forward_progress(inner: &CallContext, cx: &ToolCallContext) -> Arc<dyn Fn(Progress) + Send + Sync> {
    let (inner, outer, highest) = (inner.clone(), cx.progress.clone(), Mutex::new(f64::NEG_INFINITY));
    Arc::new(move |progress| {
        let mut highest = highest.lock().unwrap_or_else(PoisonError::into_inner);
        if progress.current > *highest {
            *highest = progress.current;
            inner.reset_idle_timeout();
        }
        drop(highest);
        if let Some(outer) = &outer {
            outer(progress);
        }
    })
}

/// How long a call that timed out was waited for, since `started`, in whole tenths of a second: `timeout`, or longer if there
/// was progress.
pub(super) fn waited_time(cx: &CallContext, started: Duration, timeout: Duration) -> Duration {
    let tenths = cx.clock.elapsed().saturating_sub(started).as_millis() / 100;
    timeout.max(Duration::from_millis(u64::try_from(tenths).unwrap_or_default() * 100))
}

/// The outcome of a call without a result within `timeout`.
pub(super) fn timed_out(effect: EffectClass, timeout: Duration) -> ToolOutcome {
    let seconds = timeout.as_millis().div_ceil(100) as f64 / 10.0;
    let message = render_message(ToolMessage::TimedOut, &[("seconds", &seconds)]);
    ToolOutcome::without_response(effect, Arrival::Possible, FailureKind::Timeout, message)
}

/// The outcome, or an unusable result in its place if it is larger than [`limits::TOOL_RAW_RESULT`].
fn limit_size(outcome: ToolOutcome, effect: EffectClass) -> ToolOutcome {
    let ToolOutcome::Done(output) = &outcome else { return outcome };
    let bytes = output.bytes();
    if bytes <= limits::TOOL_RAW_RESULT {
        return outcome;
    }
    let message =
        render_message(ToolMessage::ResultTooLarge, &[("bytes", &bytes), ("limit", &limits::TOOL_RAW_RESULT)]);
    ToolOutcome::unusable(effect, message)
}

fn unknown_tool(tools: &ToolSet, name: &str) -> ToolOutcome {
    let name = name.get(..name.floor_char_boundary(limits::TOOL_NAME)).unwrap_or_default();
    let names = tools.infos().map(|info| &*info.name).collect::<Vec<_>>().join(", ");
    let message = if names.is_empty() {
        render_message(ToolMessage::NoToolsAtAll, &[("name", &name)])
    } else {
        render_message(ToolMessage::UnknownTool, &[("name", &name), ("tools", &names)])
    };
    ToolOutcome::failed(FailureKind::UnknownTool, message)
}

/// The idempotency key: the same for every attempt of one step, and unique otherwise. It is made of the conversation,
/// the number of the turn, the step, and the seed drawn when the message of the turn was accepted. Turn numbers repeat
/// (after a restart with a store in memory, an erasure, or a restored backup of the store), but the seed does not. The
/// key reveals nothing of the conversation.
pub fn idempotency_key(conversation: &str, turn: u64, cx: &CallContext) -> Arc<str> {
    format!("{:032x}", idempotency_number(conversation, turn, cx)).into()
}

/// The key as a number, for ids of another form.
pub fn idempotency_number(conversation: &str, turn: u64, cx: &CallContext) -> u128 {
    let mut hash = Sha256::new();
    for part in [conversation, &turn.to_string(), &cx.seed.to_string(), cx.key.as_str()] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().iter().take(16).fold(0, |number: u128, byte| (number << 8) | u128::from(*byte))
}

#[cfg(test)]
mod tests;
