//! Call steps of MCP tools: the arguments from slots, and the result into slots.

use minijinja::Value;
use serde_json::{Map, Value as Json};

use super::{
    Next,
    advance_context::{AdvanceContext, StepResult},
    completed_steps, patterns,
    pending::called_by_top,
    slots::normalize_for,
    writes,
};
use crate::{
    conversation::{
        EventKind, FilledBy, FlowToolCall, PatternFrame, PendingEffect, Position, StepError, ToolResult, Writes,
    },
    ids::{ActionName, ResponseName, ServerName, SlotName, ToolName},
    limits,
    project::{Call, Flow, SlotType, Step},
    template::{Expression, from_json},
    text::{ELLIPSIS, TextLimit, truncate},
};

/// Requests the tool call.
pub(super) fn call(
    turn: &mut AdvanceContext<'_>,
    flow: &Flow,
    step: &Step,
    server: &ServerName,
    tool: &ToolName,
    input: &[(String, SlotName)],
) -> StepResult {
    if completed_steps::can_skip(turn) {
        return StepResult::Continue;
    }
    if turn.protected_frames.is_some() {
        return turn.fail("no tool is called: the budget of the turn is exhausted");
    }
    turn.pending = Some(PendingEffect::Tool { flow_id: flow.id.clone(), step_id: step.id.clone() });
    StepResult::Return(Next::Tool(Box::new(FlowToolCall {
        server: server.clone(),
        tool: tool.clone(),
        arguments: arguments(turn, input),
        flow_id: flow.id.clone(),
        step_id: step.id.clone(),
    })))
}

/// The arguments from slots. Empty slots are omitted: a tool has its own defaults, and most refuse null.
fn arguments(turn: &AdvanceContext<'_>, input: &[(String, SlotName)]) -> Map<String, Json> {
    let filled = input.iter().map(|(parameter, slot)| (parameter.clone(), turn.slot(slot.as_str()).clone()));
    filled.filter(|(_, value)| !value.is_null()).collect()
}

/// A message arrived while a tool call was pending. Whether the tool ran is not known, so the flow must not continue as
/// if it had.
pub(super) fn abandon_call(turn: &mut AdvanceContext<'_>) {
    if let Some(Call::Tool { tool, .. }) = called_by_top(turn) {
        turn.fail(&format!("tool `{tool}` had not finished when the next message arrived"));
    }
}

/// Handles the result of a tool call: on success the mapped slots are set, otherwise the flow follows `on_error` or
/// ends with one message to the user.
pub(super) fn on_tool_result(turn: &mut AdvanceContext<'_>, result: ToolResult) -> Next {
    let is_pending = matches!(turn.pending, Some(PendingEffect::Tool { .. }));
    let Some(Call::Tool { server, tool, input, output }) = called_by_top(turn).filter(|_| is_pending) else {
        turn.add_note("received a tool result, but no tool call is pending");
        return Next::Listen;
    };
    turn.pending = None;
    if let ToolResult::NeedsInput { reason, slots } = &result
        && ask_for_input(turn, slots, reason)
    {
        return turn.run_until_effect();
    }
    if let Some(top) = turn.stack.last_mut() {
        top.tool_questions.clear();
    }
    let failed = match &result {
        ToolResult::Done { result, .. } if result.get("isError") == Some(&Json::Bool(true)) => {
            Some(("failed", format!("it reports an error: {}", summary(result).unwrap_or_default())))
        }
        ToolResult::Done { .. } => None,
        ToolResult::Failed { reason } => Some(("failed", reason.clone())),
        ToolResult::NeedsInput { reason, .. } => Some(("failed", reason.clone())),
        ToolResult::Unknown { reason } => Some(("unknown", format!("whether it ran is not known: {reason}"))),
    };
    let (status, summary): (&str, _) = match (&failed, &result) {
        (Some((status, reason)), _) => (*status, Some(capped(reason))),
        (None, ToolResult::Done { result, .. }) => ("done", summary(result)),
        (None, _) => ("done", None),
    };
    let arguments = Json::Object(arguments(turn, input));
    let effect = match &result {
        ToolResult::Done { effect, .. } => effect.clone(),
        _ => None,
    };
    let executed = EventKind::ToolExecuted {
        server: Some(server.clone()),
        tool_name: tool.clone(),
        agent_id: None,
        arguments,
        status: status.to_owned(),
        summary,
        origins: Default::default(),
        effect,
        writes: Writes::default(),
    };
    writes::note(turn, executed.writes());
    turn.emit_in_top_frame(executed);
    let outcome = match (failed, &result) {
        (Some((_, reason)), _) => Err(reason),
        (None, ToolResult::Done { result, .. }) => set_output_slots(turn, output, result),
        (None, _) => Ok(()),
    };
    if outcome.is_ok() {
        completed_steps::record_completed(turn);
    }
    if let Err(reason) = outcome {
        let info = Map::from_iter([
            ("error_source".to_owned(), Json::from("mcp_tool")),
            ("tool_name".to_owned(), Json::from(tool.as_str())),
        ]);
        let (code, message) = split_code(&reason);
        let error = match status {
            "unknown" => StepError::in_doubt("unknown", message),
            _ => StepError::new(code, message),
        };
        turn.step_failed(&format!("tool `{tool}` of `{server}`: {reason}"), error, info);
    }
    turn.run_until_effect()
}

/// Asks for the first of the slots as a collect step would, and places the frame before the call, so that the tool is
/// called again when the slot is set. The current values are cleared, because the tool did not accept them. False when
/// the slot cannot be asked for, or has been asked for [`limits::TOOL_QUESTIONS`] times: then no answer fits the form.
fn ask_for_input(turn: &mut AdvanceContext<'_>, slots: &[SlotName], reason: &str) -> bool {
    let Some(Position::At(step)) = turn.stack.last().map(|top| top.at.clone()) else { return false };
    let Some(first) = slots.first() else { return false };
    let (utter, action) =
        (ResponseName::from(format!("utter_ask_{first}")), ActionName::from(format!("action_ask_{first}")));
    if turn.project.response(utter.as_str()).is_none() && !turn.project.lists_action(action.as_str()) {
        turn.add_note(format!("a tool needs slot `{first}`, but there is neither `{utter}` nor `{action}`: {reason}"));
        return false;
    }
    if let Some(top) = turn.stack.last_mut() {
        let questions = &mut top.tool_questions;
        let at = questions.iter().position(|(slot, _)| slot == first).unwrap_or_else(|| {
            questions.push((first.clone(), 0));
            questions.len() - 1
        });
        if let Some((_, count)) = questions.get_mut(at) {
            *count += 1;
            if *count > limits::TOOL_QUESTIONS {
                turn.add_note(format!("a tool has asked for slot `{first}` too often: {reason}"));
                return false;
            }
        }
    }
    turn.add_note(format!("a tool needs input from the user: {reason}"));
    for slot in slots {
        if !turn.slot(slot.as_str()).is_null() {
            turn.set_slot(slot, Json::Null, FilledBy::Flow);
        }
    }
    turn.record_visit();
    if let Some(top) = turn.stack.last_mut() {
        top.at = Position::Before(step.clone());
    }
    let context =
        PatternFrame::CollectInformation { collect: first.clone(), utter, collect_action: action, step_id: step };
    turn.push_pattern(patterns::COLLECT_INFORMATION, context)
}

/// Splits a reason into its leading code and the rest; the code is `failed` if there is none.
fn split_code(reason: &str) -> (&str, &str) {
    let is_code = |code: &str| !code.is_empty() && code.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    reason.split_once(": ").filter(|(code, _)| is_code(code)).unwrap_or(("failed", reason))
}

/// Sets the slots of the output mapping. Every mapping is evaluated before the first slot is set, so that a partial
/// result sets none.
fn set_output_slots(
    turn: &mut AdvanceContext<'_>,
    output: &[(SlotName, Expression)],
    result: &Json,
) -> Result<(), String> {
    let is_empty = |key: &str| match result.get(key) {
        None | Some(Json::Null) => true,
        Some(Json::Array(parts)) => parts.is_empty(),
        Some(_) => false,
    };
    if is_empty("content") && is_empty("structuredContent") {
        turn.add_note("the result of the tool is empty: no slot is set");
        return Ok(());
    }
    let context = Value::from_pairs([("result", from_json(result))]);
    let mut values = Vec::with_capacity(output.len());
    for (slot, expression) in output {
        let value = turn
            .project
            .templates
            .eval_expression(expression, context.clone())
            .map_err(|error| format!("the value for `{slot}` cannot be evaluated: {error}"))?;
        if value.is_null() {
            let source = expression.source().text();
            turn.add_note(format!("the result of the tool has no value for `{slot}`: `{source}` is empty"));
        }
        values.push((slot, value));
    }
    for (slot, value) in values {
        let value = as_slot(turn, slot, value);
        turn.set_slot(slot, value, FilledBy::Flow);
    }
    Ok(())
}

/// Converts lists and maps to JSON text for text slots; other slots keep the value.
fn as_slot(turn: &AdvanceContext<'_>, slot: &SlotName, value: Json) -> Json {
    let kind = turn.project.slot(slot.as_str()).map(|slot| &slot.kind);
    let full = match &value {
        Json::Array(items) => !items.is_empty(),
        Json::Object(map) => !map.is_empty(),
        _ => false,
    };
    if full && matches!(kind, Some(SlotType::Text)) {
        return Json::String(value.to_string());
    }
    normalize_for(turn.project, slot, value)
}

fn summary(result: &Json) -> Option<String> {
    let text = match result.get("text").and_then(Json::as_str) {
        Some(text) if !text.is_empty() => capped(text),
        _ => capped(&result.get("structuredContent").filter(|value| !value.is_null())?.to_string()),
    };
    Some(text)
}

fn capped(text: &str) -> String {
    truncate(text, TextLimit::Chars(limits::TOOL_SUMMARY), ELLIPSIS).into_owned()
}
