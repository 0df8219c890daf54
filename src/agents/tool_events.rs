//! The context of a tool call of an agent, and the event that records it.

use std::{collections::BTreeMap, sync::Arc};

use segue_engine::{
    conversation::EventKind,
    ids::ToolName,
    text::{ELLIPSIS, TextLimit, truncate},
};
use serde_json::Value as Json;

use super::{AgentRequest, progress::ProgressFeed};
use crate::{
    context::CallContext,
    llm::ToolCall,
    tools::{ToolCallContext, ToolCaller, invoke},
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
    ToolCallContext {
        idempotency_key: invoke::idempotency_key(request.conversation.id.as_str(), request.conversation.turns, &cx),
        cx,
        metadata: request.metadata.clone(),
        caller: ToolCaller {
            conversation: request.conversation.id.as_str().into(),
            agent: Some(request.call.agent.as_str().into()),
            flow: Some(request.call.flow_id.as_str().into()),
            session: None,
        },
        meta: Arc::new(meta),
        progress: progress.map(|progress| progress.listen(source)),
        client_requests: None,
        effect: None,
    }
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
    }
}
