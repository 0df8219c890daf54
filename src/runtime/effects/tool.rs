//! Tool calls of flow steps.

use std::sync::Arc;

use segue_engine::{
    conversation::{FlowToolCall, ToolResult},
    dialogue::InputKind,
};
use serde_json::Value as Json;

use super::{
    EffectHandler, EffectOutput,
    mcp_callbacks::{self, McpCallbacks},
};
use crate::{
    context::CallContext,
    conversation::{ReplySink, ToolPhase, TurnEvent},
    effect::EffectClass,
    journal::{EffectJournal, JournalError, JournaledTool, RecordedToolCall, Step, StepResult, request_hash},
    runtime::turn::TurnContext,
    tools::{ToolCallContext, ToolCaller, ToolHandler, call_step, invoke},
};

/// Handles [`Next::Tool`](segue_engine::dialogue::Next::Tool).
pub(super) struct CallTool;

impl EffectHandler for CallTool {
    type Effect = FlowToolCall;
    const INTERRUPTIBLE: bool = false;

    async fn perform(
        call: FlowToolCall,
        turn: &TurnContext<'_>,
        out: &mut EffectOutput<'_, '_>,
        cx: &CallContext,
    ) -> InputKind {
        let id: Arc<str> = cx.step("tool").key.as_str().into();
        let shown = |phase| {
            let (id, tool) = (id.clone(), call.tool.as_str().into());
            TurnEvent::Tool { id, tool, agent: None, phase }
        };
        // Who does not get these events sees the replies.
        let _ = out.sink.send(shown(ToolPhase::Started), cx).await;
        let result = call_tool(&call, turn, cx).await;
        let _ = out.sink.send(shown(phase_of(&result)), cx).await;
        match &result {
            ToolResult::Failed { reason } | ToolResult::Unknown { reason } => {
                out.failures.push(("T0502".into(), format!("{}.{}: {reason}", call.server, call.tool)));
            }
            ToolResult::Done { result, .. } => {
                if let Some(unusable) = result.get("unusable").and_then(Json::as_str) {
                    let reason = format!("it was carried out, but its answer fills no slot: {unusable}");
                    out.failures.push(("T0502".into(), format!("{}.{}: {reason}", call.server, call.tool)));
                }
            }
            ToolResult::NeedsInput { .. } => {}
        }
        InputKind::ToolResult(result)
    }
}

/// How a call ended, for the clients of the turn. One that needs a value first has done nothing.
fn phase_of(result: &ToolResult) -> ToolPhase {
    match result {
        ToolResult::Done { .. } => ToolPhase::Done,
        ToolResult::Failed { .. } | ToolResult::NeedsInput { .. } => ToolPhase::Failed,
        ToolResult::Unknown { .. } => ToolPhase::Unknown,
    }
}

async fn call_tool(call: &FlowToolCall, turn: &TurnContext<'_>, cx: &CallContext) -> ToolResult {
    let TurnContext { runtime, conversation, record, .. } = *turn;
    let journal = &record.journal;
    let Some(source) = runtime.sources.get(&call.server) else {
        return ToolResult::Failed { reason: format!("there is no MCP server {}", call.server) };
    };
    let meta = runtime.meta(conversation).get(call.server.as_str()).and_then(Json::as_object).cloned();
    let result_key = cx.step("result").key;
    let cx = cx.step("tool");
    let key = invoke::idempotency_key(conversation.id.as_str(), turn.number.0, &cx);
    let tool_cx = ToolCallContext::new(cx, conversation.id.as_str(), key)
        .with_caller(ToolCaller::new(conversation.id.as_str()).flow(call.flow_id.as_str()))
        .with_metadata(runtime.metadata(conversation))
        .with_meta(meta.unwrap_or_default());
    let callbacks = McpCallbacks::new(turn, &runtime.command_model);
    let wrap = |tool: Arc<dyn ToolHandler>| {
        let spec = tool.info().clone();
        callbacks.with_callbacks(Arc::new(JournaledTool { spec, inner: Some(tool), journal: journal.clone() }), record)
    };
    // The inner record contains the outcome of the call; this one contains the result for the flow, and can be read without the server.
    let arguments = serde_json::to_string(&call.arguments).unwrap_or_default();
    let request = format!("{}.{}:{}", call.server, call.tool, request_hash(&arguments));
    let step = Step { key: &result_key, kind: "result", class: EffectClass::Composite, request: &request };
    let work = async {
        // The recorded call takes precedence: the server may be unavailable, or list other tools meanwhile.
        let result = match recorded_result(call, journal, &tool_cx.cx).await {
            Some(result) => {
                mcp_callbacks::replay_sampling(&call.server, turn, &tool_cx.cx).await;
                result
            }
            None => call_step::run_call_step(&**source, call, &tool_cx, None, &wrap).await,
        };
        let result = match result {
            ToolResult::Failed { reason } if is_in_doubt(journal, &tool_cx.cx) => ToolResult::Unknown { reason },
            other => other,
        };
        mcp_callbacks::needed_slots(result, &call.server, runtime)
    };
    match journal.once(step, work).await {
        Ok(StepResult::Performed(result)) => result,
        Ok(StepResult::Replayed(result)) => {
            mcp_callbacks::replay_sampling(&call.server, turn, &tool_cx.cx).await;
            result
        }
        Ok(StepResult::Unknown) => ToolResult::Failed { reason: JournalError::OutcomeUnknown.to_string() },
        Err(error) => ToolResult::Failed { reason: error.to_string() },
    }
}

/// The result of the call that an earlier attempt of this turn recorded.
async fn recorded_result(call: &FlowToolCall, journal: &EffectJournal, cx: &CallContext) -> Option<ToolResult> {
    let record = journal.recorded(&cx.key).filter(|record| record.outcome.is_some())?;
    // The request is the name of the tool, a colon, and a hash of the arguments.
    record.request.strip_prefix(call.tool.as_str())?.strip_prefix(':')?;
    let step = Step { key: &cx.key, kind: "tool", class: EffectClass::Write, request: &record.request };
    let recorded = journal.recorded_outcome::<RecordedToolCall>(step).await?;
    Some(call_step::tool_result(recorded.outcome, recorded.effect.unwrap_or_default()))
}

/// Whether an earlier attempt of this turn began the call and recorded no outcome.
fn is_in_doubt(journal: &EffectJournal, cx: &CallContext) -> bool {
    journal.recorded(&cx.key).is_some_and(|record| record.outcome.is_none())
}
