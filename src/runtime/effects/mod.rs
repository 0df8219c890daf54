//! Performs the effects that the dialogue engine returns: one handler for each kind, in its own file. Every effect goes through the
//! journal, and its outcome is the next input of the engine.

mod action;
mod agent;
mod agent_host;
mod delegation;
pub(super) mod hooks;
mod mcp_callbacks;
pub(super) mod remote_agent;
pub(super) mod rephrase;
mod search;
mod tool;
mod tool_list;
mod understand;

use segue_engine::dialogue::{InputKind, Next};

pub(super) use self::{
    action::EventHistory,
    agent::{AgentExecutor, failed_outcome},
    agent_host::TurnAgentHost,
    delegation::ProjectParts,
    tool_list::ToolListCache,
};
use super::turn::{TurnContext, TurnFailures, TurnSink};
use crate::context::CallContext;

/// Performs one kind of effect.
trait EffectHandler {
    /// The parameters of the effect.
    type Effect;
    /// Whether a turn can be interrupted before and during it.
    const INTERRUPTIBLE: bool;
    /// Performs it once; returns the next input of the engine.
    async fn perform(
        effect: Self::Effect,
        turn: &TurnContext<'_>,
        out: &mut EffectOutput<'_, '_>,
        cx: &CallContext,
    ) -> InputKind;
}

/// Where an effect sends replies and reports failures.
pub(super) struct EffectOutput<'a, 's> {
    /// For replies during the effect.
    pub(super) sink: &'a mut TurnSink<'s>,
    /// Failures for operators.
    pub(super) failures: &'a mut TurnFailures,
}

/// Performs one effect. The futures are boxed, so that the largest of them is not part of the future of every turn.
pub(super) async fn perform(
    next: Next,
    turn: &TurnContext<'_>,
    out: &mut EffectOutput<'_, '_>,
    cx: &CallContext,
) -> InputKind {
    match next {
        // The turn ends: no effect.
        Next::Listen | Next::EndSession => InputKind::Commands(Vec::new()),
        Next::Understand => Box::pin(understand::Understand::perform((), turn, out, cx)).await,
        Next::Act(call) => Box::pin(action::RunAction::perform(call, turn, out, cx)).await,
        Next::Tool(call) => Box::pin(tool::CallTool::perform(*call, turn, out, cx)).await,
        Next::Search(call) => Box::pin(search::Search::perform(call, turn, out, cx)).await,
        Next::Agent(call) => Box::pin(agent::RunAgent::perform(*call, turn, out, cx)).await,
    }
}

/// Whether a turn can be interrupted before and during this effect.
pub(super) fn is_interruptible(next: &Next) -> bool {
    match next {
        Next::Listen | Next::EndSession => false,
        Next::Understand => understand::Understand::INTERRUPTIBLE,
        Next::Act(_) => action::RunAction::INTERRUPTIBLE,
        Next::Tool(_) => tool::CallTool::INTERRUPTIBLE,
        Next::Search(_) => search::Search::INTERRUPTIBLE,
        Next::Agent(_) => agent::RunAgent::INTERRUPTIBLE,
    }
}
