//! Interruption of a turn by its caller: the turn ends at the next safe point and keeps what has happened.
//!
//! A turn can be interrupted before and during a model call, an agent run or a search. Other effects run to their end first, unless they
//! have not begun because the client of the turn has not confirmed its request ([`WriteGate`](crate::conversation::WriteGate)). The point
//! of the interruption is recorded, so that a replay ends there too.

use segue_engine::{
    conversation::{AgentOutcome, AgentStatus, ModelUsage},
    dialogue::{InputKind, Next},
};
use serde::{Deserialize, Serialize};

use super::{TurnContext, TurnFailures, TurnSink, recover};
use crate::{context::CallContext, runtime::effects};

/// The point at which a turn was interrupted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::runtime) struct Interruption {
    /// The number of the effect in the turn.
    effect: u64,
    /// The outcome of the interrupted agent run.
    agent: Option<AgentOutcome>,
    /// Whether the effect had not begun: its client ended the request before. Otherwise it may have begun.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    not_begun: bool,
    /// Tokens and cost of the turn up to this point. A replay ends here without calling the models of this effect.
    #[serde(rename = "used", default)]
    model_usage: ModelUsage,
}

/// Performs effect number `at`, unless the turn is interrupted here, or was interrupted here according to `recorded`. `None` means that
/// the turn ends.
pub(super) async fn perform_or_interrupt(
    next: Next,
    at: u64,
    recorded: Option<&Interruption>,
    context: &TurnContext<'_>,
    sink: &mut TurnSink<'_>,
    failures: &mut TurnFailures,
    cx: &CallContext,
) -> Option<InputKind> {
    let is_interruptible = effects::is_interruptible(&next);
    let journal = &context.record.journal;
    let (agent, not_begun) = match recorded.filter(|interruption| interruption.effect == at) {
        Some(interruption) => {
            context.record.usage.restore(interruption.model_usage);
            (interruption.agent.clone(), interruption.not_begun)
        }
        None if is_interruptible && cx.cancel.is_cancelled() => (None, false),
        None => {
            let step = if is_interruptible { cx.step(at) } else { cx.uncancellable().step(at) };
            let before = failures.len();
            let done = effects::perform(next, context, &mut effects::EffectOutput { sink, failures }, &step).await;
            let is_interrupted = is_interruptible && cx.cancel.is_cancelled();
            if !is_interrupted && !journal.has_rejected_write() {
                return Some(done);
            }
            match done {
                InputKind::Agent(outcome) if ended_by_itself(&outcome.status) => {
                    return Some(InputKind::Agent(outcome));
                }
                // The agent waits for the user, and its work so far is kept. An interruption is not a failure.
                InputKind::Agent(outcome) => {
                    failures.truncate(before);
                    (Some(AgentOutcome { status: AgentStatus::Yielded, ..outcome }), false)
                }
                _ => {
                    failures.truncate(before);
                    (None, journal.has_rejected_write())
                }
            }
        }
    };
    let model_usage = context.record.usage.used().unwrap_or_default();
    let interruption = Interruption { effect: at, agent, not_begun, model_usage };
    recover::record_interruption(&interruption, context.record, cx).await;
    match interruption.agent {
        Some(agent) => Some(InputKind::Agent(agent)),
        None => interruption.not_begun.then_some(InputKind::Interrupted),
    }
}

/// Whether an agent run ended before the interruption. A remote agent whose outcome is unknown counts as ended: the message must not
/// be sent to it again.
fn ended_by_itself(status: &AgentStatus) -> bool {
    match status {
        AgentStatus::Finished | AgentStatus::AwaitingUser | AgentStatus::Yielded => true,
        AgentStatus::Failed { code, .. } => &**code == crate::agents::remote::CODE_UNKNOWN_OUTCOME,
        AgentStatus::Cancelled { .. } => false,
    }
}
