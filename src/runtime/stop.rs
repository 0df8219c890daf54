//! Turns that whoever asked for them stops (decisions.md 13.6): they end at the next safe point, and what happened is kept.
//!
//! A safe point is before or during an effect that thinks: understanding, an agent, a search. Steps of a flow run to the next
//! one, whatever they do: a flow is never cut between two of its own steps. Where a turn was cut is recorded, so that a replay
//! stops there too.

use segue_engine::{
    conversation::{AgentOutcome, AgentStatus, Conversation, Event, ModelsUsed},
    dialogue::{InputKind, Next},
};
use serde::{Deserialize, Serialize};

use super::{
    actions::Past,
    effects::{self, Failures},
    parts::Parts,
    replies::TurnSink,
    takeover,
    turn_record::TurnRecord,
};
use crate::{cx::Cx, store::TurnNumber};

/// Where a turn was stopped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Cut {
    /// Which effect of the turn.
    effect: u64,
    /// What an agent had done by then.
    agent: Option<AgentOutcome>,
    /// What models had used in the turn by then: a replay stops here without asking them.
    #[serde(default)]
    used: ModelsUsed,
}

/// What an effect is performed with.
pub(super) struct Scene<'a> {
    pub(super) parts: &'a Parts,
    pub(super) conversation: &'a Conversation,
    pub(super) past: (&'a Past, &'a [Event]),
    pub(super) number: TurnNumber,
    pub(super) record: &'a TurnRecord,
    /// Where the record says that the turn was stopped.
    pub(super) cut: Option<&'a Cut>,
}

/// Performs the effect `at` of the turn, unless the turn is stopped here. `None`: it ends now.
pub(super) async fn carry_out(
    next: Next,
    at: u64,
    scene: &Scene<'_>,
    sink: &mut TurnSink<'_>,
    failures: &mut Failures,
    cx: &Cx,
) -> Option<InputKind> {
    let thinks = matches!(next, Next::Understand | Next::Agent(_) | Next::Search(_));
    let agent = match scene.cut.filter(|cut| cut.effect == at) {
        Some(cut) => {
            scene.record.meter.used_until_cut(cut.used);
            cut.agent.clone()
        }
        None if thinks && cx.cancel.is_cancelled() => None,
        None => {
            let step = if thinks { cx.step(at) } else { cx.sheltered().step(at) };
            let before = failures.len();
            let done = effects::perform(next, scene, sink, failures, &step).await;
            if !(thinks && cx.cancel.is_cancelled()) {
                return Some(done);
            }
            match done {
                InputKind::Agent(outcome) if has_ended(&outcome.status) => return Some(InputKind::Agent(outcome)),
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
    let used = scene.record.meter.used().unwrap_or_default();
    let cut = Cut { effect: at, agent, used };
    takeover::note_cut(&cut, scene.record, cx).await;
    cut.agent.map(InputKind::Agent)
}

/// Whether an agent came to an end of its own before it was stopped. One of others that may have taken a message and did not say
/// so has: it must not be told the same again.
fn has_ended(status: &AgentStatus) -> bool {
    match status {
        AgentStatus::Finished | AgentStatus::AwaitingUser | AgentStatus::Yielded => true,
        AgentStatus::Failed { code, .. } => &**code == crate::agents::remote::UNKNOWN,
        AgentStatus::Cancelled { .. } => false,
    }
}
