//! The tools `set_slot_<name>` of task agents. Their values are typed and validated before they are recorded.

use std::sync::Arc;

use minijinja::context;
use segue_engine::project::{Project, SlotDef, SlotType};
use serde_json::{Value as Json, json};

use super::{AgentRequest, slots::RunSlots};
use crate::{
    llm::{ToolArguments, ToolCall, ToolSpec},
    prompts::PromptSet,
};

/// The prefix of the names of slot tools.
pub(super) const PREFIX: &str = "set_slot_";
/// The one parameter of a slot tool.
pub(super) const PARAMETER: &str = "slot_value";

/// The tool of one slot, as the model sees it.
pub(super) fn spec(slot: &SlotDef, prompts: &PromptSet) -> ToolSpec {
    let (value, strict) = schema(&slot.kind);
    let (values, least, greatest) = match &slot.kind {
        SlotType::Categorical(values) => (Some(values.iter().map(|v| v.to_string()).collect::<Vec<_>>()), None, None),
        SlotType::Float { min, max } => (None, *min, *max),
        _ => (None, None, None),
    };
    let words = context! {
        name => slot.name.as_str(), type => slot.kind.name(), values, least, greatest, nullable => strict,
    };
    ToolSpec {
        name: format!("{PREFIX}{}", slot.name).into(),
        description: prompts.render(&prompts.tool_set_slot, words).unwrap_or_default().trim().into(),
        parameters: Arc::new(json!({
            "type": "object",
            "properties": { PARAMETER: value },
            "required": [PARAMETER],
            "additionalProperties": false,
        })),
        strict,
    }
}

fn schema(kind: &SlotType) -> (Json, bool) {
    match kind {
        SlotType::Text => (json!({"type": ["string", "null"]}), true),
        SlotType::Bool => (json!({"type": ["boolean", "null"]}), true),
        SlotType::Float { .. } => (json!({"type": ["number", "null"]}), true),
        SlotType::List => (json!({"type": ["array", "null"], "items": {"type": "string"}}), true),
        SlotType::Any => (json!({}), false),
        SlotType::Categorical(values) => {
            let mut allowed: Vec<Json> = values.iter().map(|value| json!(value)).collect();
            allowed.push(Json::Null);
            (json!({"type": ["string", "null"], "enum": allowed}), true)
        }
    }
}

/// The slot of a call of a slot tool.
pub(super) fn slot_of(call: &ToolCall) -> Option<&str> {
    call.name.strip_prefix(PREFIX)
}

/// Runs a call of a slot tool. Returns the text for the model, and whether the value was recorded.
pub(super) fn set_slot(
    call: &ToolCall,
    request: &AgentRequest<'_>,
    slots: &mut RunSlots<'_>,
    prompts: &PromptSet,
) -> (String, bool) {
    let name = slot_of(call).unwrap_or_default();
    let refused = |reason: String| (render_slot(prompts, context! { outcome => "refused", name, reason }), false);
    let written = match &call.arguments {
        ToolArguments::Json(arguments) => match arguments.get(PARAMETER) {
            Some(written) => written.clone(),
            None => return refused(format!("the argument `{}` is missing", PARAMETER)),
        },
        ToolArguments::Malformed { error, .. } => {
            return refused(format!("the arguments are not valid JSON ({error})"));
        }
        // The loop never hands such a call on.
        ToolArguments::Dropped { .. } => return refused("the arguments are missing".to_owned()),
    };
    let Some(definition) = slots.definition(name) else { return refused("there is no such value".into()) };
    let value = match coerce(&definition.kind, &written) {
        Ok(value) => value,
        Err(reason) => return refused(reason),
    };
    let before = slots.value(name).clone();
    slots.record(name, value.clone());
    if !value.is_null()
        && let Err(reason) = validate(slots, request.project, name)
    {
        slots.record(name, before);
        return refused(reason);
    }
    let outcome = if value.is_null() { "cleared" } else { "recorded" };
    (render_slot(prompts, context! { outcome, name, value => segue_engine::template::from_json(&value) }), true)
}

fn render_slot(prompts: &PromptSet, variables: minijinja::Value) -> String {
    prompts.render(&prompts.agent_slot_results, variables).unwrap_or_default().trim().to_owned()
}

/// Converts the argument of a model to a value of the slot's type.
///
/// # Errors
/// The reason, as text for the model.
pub(super) fn coerce(kind: &SlotType, written: &Json) -> Result<Json, String> {
    if written.is_null() {
        return Ok(Json::Null);
    }
    match kind {
        SlotType::Any => Ok(match written {
            Json::String(text) => serde_json::from_str(text).unwrap_or_else(|_| written.clone()),
            other => other.clone(),
        }),
        SlotType::Text => match written {
            Json::String(text) if text.trim().is_empty() => Err("an empty text is no value; null clears".into()),
            Json::String(text) => Ok(json!(text.trim())),
            Json::Number(number) => Ok(json!(number.to_string())),
            Json::Bool(value) => Ok(json!(value.to_string())),
            _ => Err("expected a text".into()),
        },
        SlotType::Bool => boolean(written).map(Json::Bool).ok_or_else(|| "expected true or false".into()),
        SlotType::Float { min, max } => number(written, *min, *max),
        SlotType::Categorical(values) => {
            let text = scalar_text(written).ok_or_else(|| format!("expected one of: {}", values.join(", ")))?;
            let folded = text.trim().to_lowercase();
            values
                .iter()
                .find(|value| value.to_lowercase() == folded)
                .map(|value| json!(value))
                .ok_or_else(|| format!("{text:?} is not one of: {}", values.join(", ")))
        }
        SlotType::List => match written {
            Json::Array(_) => Ok(written.clone()),
            Json::Object(_) => Err("expected a list".into()),
            Json::String(text) => match serde_json::from_str::<Json>(text) {
                Ok(list @ Json::Array(_)) => Ok(list),
                _ => Ok(json!([text])),
            },
            other => Ok(json!([other])),
        },
    }
}

fn boolean(written: &Json) -> Option<bool> {
    match written {
        Json::Bool(value) => Some(*value),
        Json::Number(number) => {
            number.as_f64().and_then(|n| if n == 1.0 { Some(true) } else { (n == 0.0).then_some(false) })
        }
        Json::String(text) => match text.trim().to_lowercase().as_str() {
            "true" | "yes" | "1" => Some(true),
            "false" | "no" | "0" => Some(false),
            _ => None,
        },
        _ => None,
    }
}

fn number(written: &Json, min: Option<f64>, max: Option<f64>) -> Result<Json, String> {
    let value = match written {
        Json::Number(number) => number.as_f64(),
        Json::String(text) => text.trim().parse::<f64>().ok(),
        _ => None,
    };
    let value = value.filter(|value| value.is_finite()).ok_or("expected a number, with a point as decimal mark")?;
    if min.is_some_and(|min| value < min) || max.is_some_and(|max| value > max) {
        let bound = |bound: Option<f64>| bound.map_or_else(|| "any".into(), |b: f64| b.to_string());
        return Err(format!("{value} is out of range: at least {}, at most {}", bound(min), bound(max)));
    }
    Ok(json!(value))
}

fn scalar_text(written: &Json) -> Option<String> {
    match written {
        Json::String(text) => Some(text.clone()),
        Json::Number(number) => Some(number.to_string()),
        Json::Bool(value) => Some(value.to_string()),
        _ => None,
    }
}

/// Checks a value against the slot's `validation`; the reason is the text of its response.
///
/// # Errors
/// The reason for the rejection, as text for the model.
pub(super) fn validate(slots: &RunSlots<'_>, project: &Arc<Project>, name: &str) -> Result<(), String> {
    let Some(validation) = slots.definition(name).and_then(|slot| slot.validation.as_ref()) else { return Ok(()) };
    for rejection in &validation.rejections {
        if slots.is_true(&rejection.condition) {
            return Err(refusal_text(slots, project, rejection.utter.as_str()));
        }
    }
    Ok(())
}

fn refusal_text(slots: &RunSlots<'_>, project: &Arc<Project>, utter: &str) -> String {
    use segue_engine::{project::ResponseText, template};
    let text = project.response(utter).and_then(|response| response.variations.first()).and_then(|v| v.text.as_ref());
    match text {
        Some(ResponseText::Braces(text)) => {
            let values = slots.snapshot(&[]);
            template::interpolate_text(text, &values).content.into_owned()
        }
        Some(ResponseText::Jinja(template)) => {
            let view = context! { slots => slots.snapshot(&[]).into_value() };
            project.templates.render(template, view).unwrap_or_else(|_| utter.to_owned())
        }
        None => format!("the value is rejected ({utter})"),
    }
}
