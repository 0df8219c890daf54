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
    registry::ToolSet,
    words::{Word, say},
};
use segue_base::{
    context::{CallContext, WaitError},
    effect::Arrival,
    limits,
};

/// A call with a known tool and valid arguments, which the rules of the caller may judge before it is sent.
///
/// The order is the same for every call: find the tool, check the arguments, apply the rules, count, send.
pub struct CheckedCall {
    tool: Arc<dyn ToolHandler>,
    arguments: Json,
    class: EffectClass,
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
        Self::check(tools.tool(entry), &entry.check, arguments, entry.spec.effect)
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
        class: EffectClass,
    ) -> Result<Self, ToolOutcome> {
        let problems = check.problems(&arguments);
        if !problems.is_empty() {
            let message = say(Word::Arguments, &[("problems", &problems.join(" "))]);
            return Err(ToolOutcome::failed(FailureKind::BadArguments, message));
        }
        Ok(Self { tool, arguments, class })
    }

    /// The effect class.
    pub fn class(&self) -> EffectClass {
        self.class
    }

    /// Calls the tool. Every failure is an outcome that the model may see.
    ///
    /// The call ends after `limit` without progress (else the tool's own idle timeout, else [`limits::TOOL_DEADLINE`]),
    /// after the total timeout of the tool (else [`limits::TOOL_TOTAL`]), or at the deadline of the context. Only
    /// progress with an increased amount counts. A running `write` is not cancelled: it runs until its end or its
    /// deadline, and one whose end was not observed is [`ToolOutcome::Unknown`]. Cancellation: dropping the future
    /// abandons the call.
    pub async fn send(self, cx: &ToolCallContext, limit: Option<Duration>) -> ToolOutcome {
        let limit = limit.or(self.tool.limit()).unwrap_or(limits::TOOL_DEADLINE);
        let most = self.tool.most().unwrap_or(limits::TOOL_TOTAL).max(limit);
        let inner = cx.cx.with_idle_timeout(limit, most).for_effect(self.class);
        let progress = Some(listening(&inner, cx));
        let inner = ToolCallContext { progress, cx: inner, effect: Some(self.class), ..cx.clone() };
        if cx.cx.cancel.is_cancelled() {
            return ToolOutcome::failed(FailureKind::Cancelled, say(Word::StoppedBefore, &[]));
        }
        let left = inner.cx.remaining();
        if left.is_zero() {
            return ToolOutcome::failed(FailureKind::Timeout, say(Word::LateBefore, &[]));
        }
        let began = inner.cx.clock.elapsed();
        // A little longer than the timeout of the tool, so that its wrapper can record the end.
        match inner.cx.wait_with_grace(limits::TOOL_GRACE, self.tool.call(self.arguments, &inner)).await {
            Ok(outcome) => within_size(outcome, self.class),
            Err(WaitError::DeadlinePassed) => {
                late(self.class, waited(&inner.cx, began.saturating_add(limits::TOOL_GRACE), left))
            }
            Err(WaitError::Cancelled) => {
                let message = say(Word::Stopped, &[]);
                ToolOutcome::unanswered(self.class, Arrival::Possible, FailureKind::Cancelled, message)
            }
        }
    }
}

/// Calls the tool `name` of `tools`: [`CheckedCall::find`], then [`CheckedCall::send`], where no rule stands between.
pub async fn invoke(
    tools: &ToolSet,
    name: &str,
    arguments: Json,
    cx: &ToolCallContext,
    limit: Option<Duration>,
) -> ToolOutcome {
    match CheckedCall::find(tools, name, arguments) {
        Ok(call) => call.send(cx, limit).await,
        Err(outcome) => outcome,
    }
}

/// Receives progress. Progress with an increased amount extends the idle timeout; all of it is forwarded to the
/// receiver of the caller.
fn listening(inner: &CallContext, cx: &ToolCallContext) -> Arc<dyn Fn(Progress) + Send + Sync> {
    let (inner, outer, farthest) = (inner.clone(), cx.progress.clone(), Mutex::new(f64::NEG_INFINITY));
    Arc::new(move |news| {
        let mut farthest = farthest.lock().unwrap_or_else(PoisonError::into_inner);
        if news.done > *farthest {
            *farthest = news.done;
            inner.reset_idle_timeout();
        }
        drop(farthest);
        if let Some(outer) = &outer {
            outer(news);
        }
    })
}

/// The time that a late call was waited for: its limit, or longer if there was progress.
pub(super) fn waited(cx: &CallContext, began: Duration, limit: Duration) -> Duration {
    let tenths = cx.clock.elapsed().saturating_sub(began).as_millis() / 100;
    limit.max(Duration::from_millis(u64::try_from(tenths).unwrap_or_default() * 100))
}

/// The outcome of a call without a result within `limit`.
pub(super) fn late(effect: EffectClass, limit: Duration) -> ToolOutcome {
    let seconds = limit.as_millis().div_ceil(100) as f64 / 10.0;
    let message = say(Word::Late, &[("seconds", &seconds)]);
    ToolOutcome::unanswered(effect, Arrival::Possible, FailureKind::Timeout, message)
}

fn within_size(outcome: ToolOutcome, effect: EffectClass) -> ToolOutcome {
    let ToolOutcome::Done(output) = &outcome else { return outcome };
    let bytes = output.bytes();
    if bytes <= limits::TOOL_RAW_RESULT {
        return outcome;
    }
    let message = say(Word::TooLarge, &[("bytes", &bytes), ("limit", &limits::TOOL_RAW_RESULT)]);
    ToolOutcome::unusable(effect, message)
}

fn unknown_tool(tools: &ToolSet, name: &str) -> ToolOutcome {
    let name = name.get(..name.floor_char_boundary(limits::TOOL_NAME)).unwrap_or_default();
    let names = tools.specs().map(|spec| &*spec.name).collect::<Vec<_>>().join(", ");
    let message = if names.is_empty() {
        say(Word::NoTools, &[("name", &name)])
    } else {
        say(Word::NoTool, &[("name", &name), ("tools", &names)])
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
