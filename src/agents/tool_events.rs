//! The context of a tool call of an agent, and the event that records it.

use std::collections::BTreeMap;

use segue_engine::{
    conversation::{EventKind, Writes},
    ids::ToolName,
    text::{ELLIPSIS, TextLimit, truncate},
};
use serde_json::Value as Json;

use super::{AgentRequest, progress::ProgressFeed};
use crate::{
    context::CallContext,
    conversation::{ReplySink, ToolPhase, TurnEvent},
    delegation,
    llm::ToolCall,
    tools::{EffectClass, ToolCallContext, ToolCaller, ToolOutcome, invoke},
};

/// Characters of a result that are stored in its event.
const MAX_SUMMARY_CHARS: usize = 400;

/// The context of a call for its tool.
pub(super) fn tool_context(
    at: usize,
    call: &ToolCall,
    request: &AgentRequest<'_>,
    progress: Option<ProgressFeed>,
    cx: &CallContext,
) -> ToolCallContext {
    let cx = cx.step(format!("tool.{at}"));
    let source = request.tools.get(&call.name).map(|entry| entry.info.source.clone()).unwrap_or_default();
    let meta = request.mcp_meta.get(&*source).and_then(Json::as_object).cloned().unwrap_or_default();
    let id = request.conversation.id.as_str();
    let caller = ToolCaller::new(id).agent(request.call.agent.as_str()).flow(request.call.flow_id.as_str());
    let key = invoke::idempotency_key(id, request.conversation.turns, &cx);
    let mut context =
        ToolCallContext::new(cx, id, key).with_caller(caller).with_metadata(request.metadata.clone()).with_meta(meta);
    context.progress = progress.map(|progress| progress.listen(source));
    context
}

/// Tells the clients of the turn what a call does. `cx` is that of the call.
pub(super) async fn show(
    call: &ToolCall,
    request: &AgentRequest<'_>,
    phase: ToolPhase,
    out: &mut dyn ReplySink,
    cx: &CallContext,
) {
    if out.wants_deltas() {
        let (id, tool, agent) = (cx.key.as_str().into(), call.name.clone(), Some(request.call.agent.clone()));
        // Who does not get it sees the replies.
        let _ = out.send(TurnEvent::Tool { id, tool, agent, phase }, cx).await;
    }
}

/// How a call ended, for the clients of the turn.
pub(super) fn phase_of(outcome: &ToolOutcome) -> ToolPhase {
    match outcome {
        ToolOutcome::Done(_) => ToolPhase::Done,
        ToolOutcome::Failed(_) => ToolPhase::Failed,
        ToolOutcome::Unknown(_) => ToolPhase::Unknown,
        ToolOutcome::Pending(_) => ToolPhase::Pending,
    }
}

/// The event of a tool call that has an outcome: what it has changed is part of it.
pub(super) fn tool_ended(
    call: &ToolCall,
    request: &AgentRequest<'_>,
    outcome: &ToolOutcome,
    text: &str,
    origins: BTreeMap<String, String>,
) -> EventKind {
    let info = request.tools.get(&call.name).map(|entry| &entry.info);
    let class = info.map(|info| info.effect);
    let mut event = tool_executed(call, request, outcome.status(), text, origins);
    if let EventKind::ToolExecuted { effect, writes, .. } = &mut event {
        *effect = info.and_then(|info| info.changes(info.effect)).map(Into::into);
        *writes = delegation::writes_of(outcome);
        if let (Some(EffectClass::Composite), Some(lead)) = (class, &request.delegation) {
            writes.merge(&delegation::take_lost(&lead.lost));
        }
    }
    event
}

/// The event of a tool call.
pub(super) fn tool_executed(
    call: &ToolCall,
    request: &AgentRequest<'_>,
    status: &str,
    text: &str,
    origins: BTreeMap<String, String>,
) -> EventKind {
    EventKind::ToolExecuted {
        server: None,
        tool_name: ToolName::new(call.name.clone()),
        agent_id: Some(request.call.agent.clone()),
        arguments: call.arguments.as_json().cloned().unwrap_or(Json::Null),
        status: status.into(),
        summary: Some(truncate(text, TextLimit::Chars(MAX_SUMMARY_CHARS), ELLIPSIS).into_owned()),
        origins,
        effect: None,
        writes: Writes::default(),
    }
}
