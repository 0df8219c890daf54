//! The `call` step of a flow: calls one tool of one server without a model.

use std::{sync::Arc, time::Duration};

use segue_engine::conversation::{FlowToolCall, ToolResult};
use serde_json::{Map, Number, Value as Json, json};

use super::{
    ArgumentCheck, FailureKind, ToolCallContext, ToolHandler, ToolInfo, ToolOutcome, ToolOutput, ToolSource,
    invoke::CheckedCall,
};
use segue_base::limits;

/// Wraps the tool before it is called, for recording. [`unwrapped`] does nothing.
pub type Wrap<'a> = &'a (dyn Fn(Arc<dyn ToolHandler>) -> Arc<dyn ToolHandler> + Sync);

/// The [`Wrap`] that does nothing.
pub fn unwrapped(tool: Arc<dyn ToolHandler>) -> Arc<dyn ToolHandler> {
    tool
}

/// Performs a call step within `limit`, or the configured or default timeout of the server. The reasons of a failure
/// are for operators.
///
/// Arguments are slot values. Empty values of optional parameters are omitted, and values with one obvious conversion
/// to the type in the schema (`2.0` to an integer, `"7"` to a number, `3` to a string) are converted.
pub async fn call_step(
    source: &dyn ToolSource,
    step: &FlowToolCall,
    cx: &ToolCallContext,
    limit: Option<Duration>,
    wrap: Wrap<'_>,
) -> ToolResult {
    let catalog = match source.list(&cx.cx.with_timeout(limits::MCP_INITIALISE)).await {
        Ok(catalog) => catalog,
        Err(error) => return ToolResult::Failed { reason: error.to_string() },
    };
    let Some(tool) = catalog.tools.iter().find(|tool| step.tool == *tool.info().name) else {
        return ToolResult::Failed { reason: absent(&catalog.excluded, step) };
    };
    let check = match tool.arguments() {
        Some(check) => check,
        None => match ArgumentCheck::compile(&tool.info().parameters) {
            Ok(check) => Arc::new(check),
            Err(refused) => return ToolResult::Failed { reason: refused.to_string() },
        },
    };
    let arguments = fitted(&step.arguments, tool.info());
    let tool = wrap(tool.clone());
    let class = tool.info().effect;
    match CheckedCall::check(tool, &check, Json::Object(arguments), class) {
        Ok(call) => result_of(call.send(cx, limit).await),
        Err(outcome) => result_of(outcome),
    }
}

fn absent(excluded: &[(String, String)], step: &FlowToolCall) -> String {
    let known = excluded.iter().find(|(name, _)| step.tool == *name.as_str());
    match known {
        Some((_, why)) => format!("the tool `{}` of `{}` is left out: {why}", step.tool, step.server),
        None => format!("the server `{}` lists no tool `{}`", step.server, step.tool),
    }
}

/// The outcome as output mappings see it.
pub fn result_of(outcome: ToolOutcome) -> ToolResult {
    let told = |failure: super::ToolFailure| {
        let parts = [failure.kind.as_str(), &failure.message].into_iter();
        let cause = [failure.code.as_deref(), failure.detail.as_deref()];
        parts.chain(cause.into_iter().flatten()).collect::<Vec<_>>().join(": ")
    };
    match outcome {
        ToolOutcome::Done(output) => ToolResult::Done { result: result_map(output) },
        ToolOutcome::Failed(failure) if !failure.wants.is_empty() => {
            let slots = failure.wants.iter().map(|field| field.as_str().into()).collect();
            ToolResult::NeedsInput { reason: told(failure), slots }
        }
        ToolOutcome::Failed(failure) => ToolResult::Failed { reason: told(failure) },
        ToolOutcome::Unknown(failure) => ToolResult::Unknown { reason: told(failure) },
        ToolOutcome::Pending(task) => {
            let reason = format!("{}: it goes on as task {}", FailureKind::Refused.as_str(), task.id);
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
    if let (Some(why), Some(map)) = (output.unusable, map.as_object_mut()) {
        map.insert("unusable".to_owned(), Json::from(why));
    }
    map
}

/// The arguments with obvious conversions; the check afterwards decides about all others.
fn fitted(arguments: &Map<String, Json>, spec: &ToolInfo) -> Map<String, Json> {
    let required = |name: &str| {
        let list = spec.parameters.get("required").and_then(Json::as_array);
        list.is_some_and(|list| list.iter().any(|item| item == name))
    };
    let wanted = |name: &str| spec.parameters.get("properties")?.get(name)?.get("type")?.as_str();
    arguments
        .iter()
        .filter(|(name, value)| !value.is_null() || required(name))
        .map(|(name, value)| (name.clone(), wanted(name).map_or_else(|| value.clone(), |kind| fit(value, kind))))
        .collect()
}

fn fit(value: &Json, kind: &str) -> Json {
    let fitted = match (kind, value) {
        ("integer", Json::Number(number)) => whole(number),
        ("integer" | "number", Json::String(text)) => {
            let number = text.trim().parse::<Number>().ok();
            if kind == "integer" { number.as_ref().and_then(whole) } else { number.map(Json::Number) }
        }
        ("string", Json::Number(number)) => {
            Some(Json::String(whole(number).map_or_else(|| number.to_string(), |n| n.to_string())))
        }
        ("string", Json::Bool(flag)) => Some(Json::String(flag.to_string())),
        ("boolean", Json::String(text)) => match text.as_str() {
            "true" | "True" => Some(Json::Bool(true)),
            "false" | "False" => Some(Json::Bool(false)),
            _ => None,
        },
        _ => None,
    };
    fitted.unwrap_or_else(|| value.clone())
}

/// An integral float as an integer.
fn whole(number: &Number) -> Option<Json> {
    if let Some(integer) = number.as_i64() {
        return Some(integer.into());
    }
    // Above 2^53, a float is not an exact integer.
    let float = number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() <= 9_007_199_254_740_992.0)?;
    Some((float as i64).into())
}

#[cfg(test)]
mod tests;
