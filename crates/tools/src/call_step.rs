//! The `call` step of a flow: calls one tool of one server without a model.

use std::{sync::Arc, time::Duration};

use segue_engine::conversation::{FlowToolCall, ToolResult};
use serde_json::{Map, Number, Value as Json, json};

use super::{
    ArgumentCheck, EffectClass, FailureKind, ToolCallContext, ToolHandler, ToolInfo, ToolOutcome, ToolOutput,
    ToolSource, invoke::CheckedCall,
};
use segue_base::limits;

/// Wraps the tool before it is called, for recording. [`no_wrapper`] does nothing.
pub type ToolWrapper<'a> = &'a (dyn Fn(Arc<dyn ToolHandler>) -> Arc<dyn ToolHandler> + Sync);

/// The [`ToolWrapper`] that does nothing.
pub fn no_wrapper(tool: Arc<dyn ToolHandler>) -> Arc<dyn ToolHandler> {
    tool
}

/// Performs a call step and returns its result for output mappings; the reason of a failure is for operators.
///
/// `idle_timeout` replaces the timeout of the tool, or the default [`limits::TOOL_DEADLINE`]; see [`CheckedCall::send`].
///
/// Arguments are slot values. Empty values of optional parameters are omitted, and values with one obvious conversion
/// to the type in the schema (`2.0` to an integer, `"7"` to a number, `3` to a string) are converted.
pub async fn run_call_step(
    source: &dyn ToolSource,
    step: &FlowToolCall,
    cx: &ToolCallContext,
    idle_timeout: Option<Duration>,
    wrap: ToolWrapper<'_>,
) -> ToolResult {
    let catalog = match source.list(&cx.cx.with_timeout(limits::MCP_INITIALISE)).await {
        Ok(catalog) => catalog,
        Err(error) => return ToolResult::Failed { reason: error.to_string() },
    };
    let Some(tool) = catalog.tools.iter().find(|tool| step.tool == *tool.info().name) else {
        return ToolResult::Failed { reason: unlisted_reason(&catalog.excluded, step) };
    };
    let check = match tool.argument_check() {
        Some(check) => check,
        None => match ArgumentCheck::compile(&tool.info().parameters) {
            Ok(check) => Arc::new(check),
            Err(error) => return ToolResult::Failed { reason: error.to_string() },
        },
    };
    let arguments = convert_arguments(&step.arguments, tool.info());
    let tool = wrap(tool.clone());
    let effect = tool.info().effect;
    match CheckedCall::check(tool, &check, Json::Object(arguments), effect) {
        Ok(call) => tool_result(call.send(cx, idle_timeout).await, effect),
        Err(outcome) => tool_result(outcome, effect),
    }
}

/// Why the catalogue has no tool for this step.
fn unlisted_reason(excluded: &[(String, String)], step: &FlowToolCall) -> String {
    let excluded = excluded.iter().find(|(name, _)| step.tool == *name.as_str());
    match excluded {
        Some((_, reason)) => format!("the tool `{}` of `{}` is excluded: {reason}", step.tool, step.server),
        None => format!("the server `{}` lists no tool `{}`", step.server, step.tool),
    }
}

/// Converts an outcome of a tool with this effect class into the result for output mappings. A task that continues elsewhere is an
/// unknown outcome, because a flow cannot wait for it.
pub fn tool_result(outcome: ToolOutcome, effect: EffectClass) -> ToolResult {
    let reason = |failure: super::ToolFailure| {
        let parts = [failure.kind.as_str(), &failure.message].into_iter();
        let cause = [failure.code.as_deref(), failure.detail.as_deref()];
        parts.chain(cause.into_iter().flatten()).collect::<Vec<_>>().join(": ")
    };
    match outcome {
        ToolOutcome::Done(output) => {
            ToolResult::Done { result: result_map(output), effect: effect.changes().map(Into::into) }
        }
        ToolOutcome::Failed(failure) if !failure.missing_fields.is_empty() => {
            let slots = failure.missing_fields.iter().map(|field| field.as_str().into()).collect();
            ToolResult::NeedsInput { reason: reason(failure), slots }
        }
        ToolOutcome::Failed(failure) => ToolResult::Failed { reason: reason(failure) },
        ToolOutcome::Unknown(failure) => ToolResult::Unknown { reason: reason(failure) },
        ToolOutcome::Pending(task) => {
            let reason = format!("{}: it continues as task {}", FailureKind::Refused.as_str(), task.id);
            ToolResult::Unknown { reason }
        }
    }
}

/// The map `{content, structuredContent, isError, meta, text}`; with an unusable result, `unusable` contains the
/// reason.
pub fn result_map(output: ToolOutput) -> Json {
    let text = output.unusable.clone().unwrap_or_else(|| output.joined_text());
    let mut map = json!({
        "content": output.content,
        "structuredContent": output.structured,
        "isError": false,
        "meta": output.meta,
        "text": text,
    });
    if let (Some(reason), Some(map)) = (output.unusable, map.as_object_mut()) {
        map.insert("unusable".to_owned(), Json::from(reason));
    }
    map
}

/// Converts arguments where the conversion is obvious. Others stay as they are, and the check afterwards rejects them.
fn convert_arguments(arguments: &Map<String, Json>, info: &ToolInfo) -> Map<String, Json> {
    let is_required = |name: &str| {
        let list = info.parameters.get("required").and_then(Json::as_array);
        list.is_some_and(|list| list.iter().any(|item| item == name))
    };
    let expected_type = |name: &str| info.parameters.get("properties")?.get(name)?.get("type")?.as_str();
    arguments
        .iter()
        .filter(|(name, value)| !value.is_null() || is_required(name))
        .map(|(name, value)| {
            (name.clone(), expected_type(name).map_or_else(|| value.clone(), |kind| convert(value, kind)))
        })
        .collect()
}

/// The value as the JSON type `kind`, if there is one obvious conversion; otherwise unchanged.
fn convert(value: &Json, kind: &str) -> Json {
    let converted = match (kind, value) {
        ("integer", Json::Number(number)) => to_integer(number),
        ("integer" | "number", Json::String(text)) => {
            let number = text.trim().parse::<Number>().ok();
            if kind == "integer" { number.as_ref().and_then(to_integer) } else { number.map(Json::Number) }
        }
        ("string", Json::Number(number)) => {
            Some(Json::String(to_integer(number).map_or_else(|| number.to_string(), |n| n.to_string())))
        }
        ("string", Json::Bool(flag)) => Some(Json::String(flag.to_string())),
        ("boolean", Json::String(text)) => match text.as_str() {
            "true" | "True" => Some(Json::Bool(true)),
            "false" | "False" => Some(Json::Bool(false)),
            _ => None,
        },
        _ => None,
    };
    converted.unwrap_or_else(|| value.clone())
}

/// The number as an integer, if it is one exactly.
fn to_integer(number: &Number) -> Option<Json> {
    if let Some(integer) = number.as_i64() {
        return Some(integer.into());
    }
    // Above 2^53, a float is not an exact integer.
    let float = number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() <= 9_007_199_254_740_992.0)?;
    Some((float as i64).into())
}

#[cfg(test)]
mod tests;
