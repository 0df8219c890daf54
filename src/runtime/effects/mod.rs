//! Performing what the dialogue engine asks for: one handler for each kind of effect, each in its file, each the same shape. Every
//! effect passes the journal and comes back as the next input.

mod action;
mod agent;
mod agent_host;
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
    tool_list::ToolListCache,
};
use super::turn::{TurnContext, TurnFailures, TurnSink};
use crate::context::CallContext;

/// Performs one kind of effect.
trait EffectHandler {
    /// What the engine asks for.
    type Effect;
    /// Whether a turn may be interrupted before or during it.
    const INTERRUPTIBLE: bool;
    /// Performs it, once; what came of it is the next input of the engine.
    async fn perform(
        effect: Self::Effect,
        turn: &TurnContext<'_>,
        out: &mut EffectOutput<'_, '_>,
        cx: &CallContext,
    ) -> InputKind;
}

/// Where an effect leaves what it says and what went wrong.
pub(super) struct EffectOutput<'a, 's> {
    /// For what is said while it is performed.
    pub(super) sink: &'a mut TurnSink<'s>,
    /// For operators.
    pub(super) failures: &'a mut TurnFailures,
}

/// Performs one effect. Each kind is boxed: the largest of their futures would otherwise be part of that of every turn, and be
/// moved with it.
pub(super) async fn perform(
    next: Next,
    turn: &TurnContext<'_>,
    out: &mut EffectOutput<'_, '_>,
    cx: &CallContext,
) -> InputKind {
    match next {
        // The turn ends here: nothing is performed.
        Next::Listen | Next::EndSession => InputKind::Commands(Vec::new()),
        Next::Understand => Box::pin(understand::Understand::perform((), turn, out, cx)).await,
        Next::Act(call) => Box::pin(action::RunAction::perform(call, turn, out, cx)).await,
        Next::Tool(call) => Box::pin(tool::CallTool::perform(*call, turn, out, cx)).await,
        Next::Search(call) => Box::pin(search::Search::perform(call, turn, out, cx)).await,
        Next::Agent(call) => Box::pin(agent::RunAgent::perform(*call, turn, out, cx)).await,
    }
}

/// Whether a turn may be interrupted before or during this effect.
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
