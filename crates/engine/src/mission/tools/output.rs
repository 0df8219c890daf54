//! `submit_output`.

use serde_json::{Map, Value as Json, json};

use super::{ToolAnswer, ToolContext, ToolError};
use crate::mission::event::{NewEvent, RunEventKind};
use crate::project::field_values::{self, Extra};

pub(super) fn submit(arguments: &Map<String, Json>, cx: &ToolContext<'_>) -> Result<ToolAnswer, ToolError> {
    let unit = &cx.unit;
    if unit.sequential().is_some() && unit.state.current.is_none() {
        let message = "There is no current item.";
        return Err(ToolError::new("output.not_current", message, "Call `dataset_next` first."));
    }
    let output = arguments.get("output").cloned().unwrap_or_default();
    let violations = field_values::check_fields(&unit.task.output, &output, Extra::Refused);
    if !violations.is_empty() {
        let details: Vec<String> =
            violations.iter().map(|found| format!("{}: {}", found.pointer, found.problem)).collect();
        let message = format!("The output is not valid: {}.", details.join("; "));
        let error =
            ToolError::new("output.invalid", message, "Nothing was stored. Correct the output and submit it again.");
        return Err(error.with("details", json!(violations)));
    }
    let index = unit.id.iteration.or(unit.state.current).unwrap_or(0);
    let kind = RunEventKind::OutputSubmitted { output };
    let event = match unit.state.current {
        Some(current) => NewEvent::of_item(unit.id, current, kind),
        None => cx.event(kind),
    };
    let mut result = json!({"status": "ok", "index": index});
    if let (true, Some(object)) = (unit.has_output(), result.as_object_mut()) {
        object.insert("replaced".into(), json!(true));
    }
    Ok(ToolAnswer { events: vec![event], ..ToolAnswer::of(result) })
}
