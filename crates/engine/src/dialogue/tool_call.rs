//! Steps that call a tool of an MCP server: the arguments on the way out, the slots on the way back.

use minijinja::Value;
use serde_json::{Map, Value as Json};

use super::{
    Next, patterns,
    pending::called_by_top,
    rerun,
    slots::settled_for,
    turn::{Turn, Walk},
};
use crate::{
    conversation::{EventKind, FilledBy, FlowToolCall, PatternFrame, PendingEffect, Position, StepError, ToolResult},
    ids::{ActionName, ResponseName, ServerName, SlotName, ToolName},
    limits,
    project::{Call, Flow, SlotType, Step},
    template::{Expression, from_json},
    text::{ELLIPSIS, TextLimit, truncate},
};

/// Asks for the call.
pub(super) fn call(
    turn: &mut Turn<'_>,
    flow: &Flow,
    step: &Step,
    server: &ServerName,
    tool: &ToolName,
    input: &[(String, SlotName)],
) -> Walk {
    if rerun::passes(turn) {
        return Walk::On;
    }
    if turn.floor.is_some() {
        return turn.fail("no tool is called any more: the turn's budget is spent");
    }
    turn.pending = Some(PendingEffect::Tool { flow_id: flow.id.clone(), step_id: step.id.clone() });
    Walk::Stop(Next::Tool(Box::new(FlowToolCall {
        server: server.clone(),
        tool: tool.clone(),
        arguments: arguments(turn, input),
        flow_id: flow.id.clone(),
        step_id: step.id.clone(),
    })))
}

/// Parameters from slots. An empty slot is left out: a tool knows its own defaults, and most refuse a null.
fn arguments(turn: &Turn<'_>, input: &[(String, SlotName)]) -> Map<String, Json> {
    let filled = input.iter().map(|(parameter, slot)| (parameter.clone(), turn.slot(slot.as_str()).clone()));
    filled.filter(|(_, value)| !value.is_null()).collect()
}

/// A message came while a tool had not answered: that turn was cut. Whether the tool ran is not known, so the flow must not go
/// on as if it had.
pub(super) fn abandon_call(turn: &mut Turn<'_>) {
    if let Some(Call::Tool { tool, .. }) = called_by_top(turn) {
        turn.fail(&format!("tool `{tool}` had not answered when the next message came"));
    }
}

/// The tool answered, or did not: on success the mapped slots are set, otherwise the flow ends and the user hears it once.
pub(super) fn called(turn: &mut Turn<'_>, result: ToolResult) -> Next {
    let is_pending = matches!(turn.pending, Some(PendingEffect::Tool { .. }));
    let Some(Call::Tool { server, tool, input, output }) = called_by_top(turn).filter(|_| is_pending) else {
        turn.note("received a tool result, but no tool call is pending");
        return Next::Listen;
    };
    turn.pending = None;
    if let ToolResult::Wants { reason, slots } = &result
        && wants(turn, slots, reason)
    {
        return turn.walk();
    }
    let failed = match &result {
        ToolResult::Done { result } if result.get("isError") == Some(&Json::Bool(true)) => {
            Some(("failed", format!("it reports an error: {}", summary(result).unwrap_or_default())))
        }
        ToolResult::Done { .. } => None,
        ToolResult::Failed { reason } => Some(("failed", reason.clone())),
        ToolResult::Wants { reason, .. } => Some(("failed", reason.clone())),
        ToolResult::Unknown { reason } => Some(("unknown", format!("whether it ran is not known: {reason}"))),
    };
    let (status, summary): (&str, _) = match (&failed, &result) {
        (Some((status, reason)), _) => (*status, Some(capped(reason))),
        (None, ToolResult::Done { result }) => ("done", summary(result)),
        (None, _) => ("done", None),
    };
    let arguments = Json::Object(arguments(turn, input));
    turn.emit_here(EventKind::ToolExecuted {
        server: Some(server.clone()),
        tool_name: tool.clone(),
        agent_id: None,
        arguments,
        status: status.to_owned(),
        summary,
        origins: Default::default(),
    });
    let outcome = match (failed, &result) {
        (Some((_, reason)), _) => Err(reason),
        (None, ToolResult::Done { result }) => fill(turn, output, result),
        (None, _) => Ok(()),
    };
    if outcome.is_ok() {
        rerun::remember(turn);
    }
    if let Err(reason) = outcome {
        let info = Map::from_iter([
            ("error_source".to_owned(), Json::from("mcp_tool")),
            ("tool_name".to_owned(), Json::from(tool.as_str())),
        ]);
        let (code, message) = coded(&reason);
        let error = match status {
            "unknown" => StepError::in_doubt("unknown", message),
            _ => StepError::new(code, message),
        };
        turn.step_failed(&format!("tool `{tool}` of `{server}`: {reason}"), error, info);
    }
    turn.walk()
}

/// Asks for the first of the slots as a collect step would, and stands before the call again for when it is filled. What was
/// in them is forgotten: the tool did not take it. False where the question cannot be asked.
fn wants(turn: &mut Turn<'_>, slots: &[SlotName], reason: &str) -> bool {
    let Some(Position::At(step)) = turn.stack.last().map(|top| top.at.clone()) else { return false };
    let Some(first) = slots.first() else { return false };
    let (utter, action) =
        (ResponseName::from(format!("utter_ask_{first}")), ActionName::from(format!("action_ask_{first}")));
    if turn.project.response(utter.as_str()).is_none() && !turn.project.lists_action(action.as_str()) {
        turn.note(format!("a tool wants slot `{first}`, but there is neither `{utter}` nor `{action}`: {reason}"));
        return false;
    }
    turn.note(format!("a tool asks back: {reason}"));
    for slot in slots {
        if !turn.slot(slot.as_str()).is_null() {
            turn.set_slot(slot, Json::Null, FilledBy::Flow);
        }
    }
    turn.remember_step();
    if let Some(top) = turn.stack.last_mut() {
        top.at = Position::Before(step.clone());
    }
    let context =
        PatternFrame::CollectInformation { collect: first.clone(), utter, collect_action: action, step_id: step };
    turn.push_pattern(patterns::COLLECT_INFORMATION, context)
}

/// The code that a reason begins with, and the rest; `failed` where there is none.
fn coded(reason: &str) -> (&str, &str) {
    let is_code = |code: &str| !code.is_empty() && code.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    reason.split_once(": ").filter(|(code, _)| is_code(code)).unwrap_or(("failed", reason))
}

/// Evaluates every mapping before the first slot is set: half a result is none.
fn fill(turn: &mut Turn<'_>, output: &[(SlotName, Expression)], result: &Json) -> Result<(), String> {
    let says_nothing = |key: &str| match result.get(key) {
        None | Some(Json::Null) => true,
        Some(Json::Array(parts)) => parts.is_empty(),
        Some(_) => false,
    };
    if says_nothing("content") && says_nothing("structuredContent") {
        turn.note("the tool's answer is empty: no slot is set");
        return Ok(());
    }
    let context = Value::from_pairs([("result", from_json(result))]);
    let mut values = Vec::with_capacity(output.len());
    for (slot, expression) in output {
        let value = turn
            .project
            .templates
            .eval_expression(expression, context.clone())
            .map_err(|error| format!("the value for `{slot}` could not be made: {error}"))?;
        values.push((slot, value));
    }
    for (slot, value) in values {
        let value = as_slot(turn, slot, value);
        turn.set_slot(slot, value, FilledBy::Flow);
    }
    Ok(())
}

/// Lists and maps become JSON texts where the slot holds text; elsewhere they keep their form.
fn as_slot(turn: &Turn<'_>, slot: &SlotName, value: Json) -> Json {
    let kind = turn.project.slot(slot.as_str()).map(|slot| &slot.kind);
    let full = match &value {
        Json::Array(items) => !items.is_empty(),
        Json::Object(map) => !map.is_empty(),
        _ => false,
    };
    if full && matches!(kind, Some(SlotType::Text)) {
        return Json::String(value.to_string());
    }
    settled_for(turn.project, slot, value)
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
