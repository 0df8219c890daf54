//! Turns that the caller stops: they end at the next safe point, and what happened is kept.
//!
//! A turn can be interrupted before or during a model call, an agent run or a search. Steps of a flow always run on to the next
//! such point. Where a turn was interrupted is recorded, so that a replay ends there too.

use segue_engine::{
    conversation::{AgentOutcome, AgentStatus, ModelUsage},
    dialogue::{InputKind, Next},
};
use serde::{Deserialize, Serialize};

use super::{TurnContext, TurnFailures, TurnSink, recover};
use crate::{context::CallContext, runtime::effects};

/// Where a turn was stopped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::runtime) struct Interruption {
    /// Which effect of the turn.
    effect: u64,
    /// What an agent had done by then.
    agent: Option<AgentOutcome>,
    /// What models had used in the turn by then: a replay stops here without asking them.
    #[serde(default)]
    used: ModelUsage,
}

/// Performs the effect `at` of the turn, unless the turn is stopped here, or was when it was `recorded`. `None`: it ends now.
pub(super) async fn perform_or_interrupt(
    next: Next,
    at: u64,
    recorded: Option<&Interruption>,
    context: &TurnContext<'_>,
    sink: &mut TurnSink<'_>,
    failures: &mut TurnFailures,
    cx: &CallContext,
) -> Option<InputKind> {
    let may_stop = effects::is_interruptible(&next);
    let agent = match recorded.filter(|interruption| interruption.effect == at) {
        Some(interruption) => {
            context.record.usage.restore(interruption.used);
            interruption.agent.clone()
        }
        None if may_stop && cx.cancel.is_cancelled() => None,
        None => {
            let step = if may_stop { cx.step(at) } else { cx.uncancellable().step(at) };
            let before = failures.len();
            let done = effects::perform(next, context, &mut effects::EffectOutput { sink, failures }, &step).await;
            if !(may_stop && cx.cancel.is_cancelled()) {
                return Some(done);
            }
            match done {
                InputKind::Agent(outcome) if ended_by_itself(&outcome.status) => {
                    return Some(InputKind::Agent(outcome));
                }
                // It waits for the user from now on; what it did until then is kept. What was stopped did not fail.
                InputKind::Agent(outcome) => {
                    failures.truncate(before);
                    Some(AgentOutcome { status: AgentStatus::Yielded, ..outcome })
                }
                _ => {
                    failures.truncate(before);
                    None
                }
            }
        }
    };
    let used = context.record.usage.used().unwrap_or_default();
    let interruption = Interruption { effect: at, agent, used };
    recover::record_interruption(&interruption, context.record, cx).await;
    interruption.agent.map(InputKind::Agent)
}

/// Whether an agent came to an end of its own before it was stopped. A remote one that may have taken a message and did not say
/// so has: it must not be told the same again.
fn ended_by_itself(status: &AgentStatus) -> bool {
    match status {
        AgentStatus::Finished | AgentStatus::AwaitingUser | AgentStatus::Yielded => true,
        AgentStatus::Failed { code, .. } => &**code == crate::agents::remote::CODE_UNKNOWN_OUTCOME,
        AgentStatus::Cancelled { .. } => false,
    }
}
