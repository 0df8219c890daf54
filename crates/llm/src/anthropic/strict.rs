//! Decides which tools are sent as strict, so that the provider enforces their schemas.
//!
//! The provider compiles strict schemas. It supports few keywords of JSON Schema and rejects the whole request when a limit is
//! exceeded, so a tool is strict only within the published limits. The arguments of all tools are validated locally anyway. There
//! is also an unpublished limit on the size of compiled schemas, so strict tools are off unless an entry has `strict: true`.
//! Source: <https://docs.anthropic.com/en/docs/build-with-claude/structured-outputs>, September 2026.

use serde_json::{Map, Value};

use crate::request::ToolSpec;

/// Maximum of strict tools per request.
const MAX_TOOLS: usize = 20;
/// Maximum of values with several types, over all strict tools of a request.
const MAX_UNIONS: usize = 16;
/// Maximum of optional properties, over all strict tools of a request.
const MAX_OPTIONAL: usize = 24;
/// Maximum nesting of a schema; the provider publishes no limit.
const MAX_DEPTH: usize = 8;

/// Supported keywords of JSON Schema whose values need no check.
const UNCHECKED_KEYWORDS: &[&str] = &["description", "required", "default"];

/// The remaining budget of strict schemas for one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StrictToolBudget {
    tools: usize,
    unions: usize,
    optional: usize,
}

impl StrictToolBudget {
    /// The budget of a request; empty unless `allows_strict`.
    pub(super) fn new(allows_strict: bool) -> Self {
        let tools = if allows_strict { MAX_TOOLS } else { 0 };
        Self { tools, unions: MAX_UNIONS, optional: MAX_OPTIONAL }
    }

    /// Whether this tool is sent as strict; if so, subtracts it from the budget.
    pub(super) fn try_take(&mut self, tool: &ToolSpec) -> bool {
        let mut after = *self;
        let fits = tool.strict && after.tool(&tool.parameters).is_some();
        if fits {
            *self = after;
        }
        fits
    }

    fn tool(&mut self, schema: &Value) -> Option<()> {
        self.tools = self.tools.checked_sub(1)?;
        // Arguments must be an object.
        (schema.get("type")? == "object").then_some(())?;
        self.schema(schema, MAX_DEPTH)
    }

    /// Subtracts a schema from the budget; `None` if the provider does not support it or the budget is exceeded.
    fn schema(&mut self, schema: &Value, depth: usize) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        let map = schema.as_object()?;
        let mut constrains = false;
        for (keyword, value) in map {
            match keyword.as_str() {
                keyword if UNCHECKED_KEYWORDS.contains(&keyword) => continue,
                "type" => self.kind(value)?,
                "enum" => value.as_array()?.iter().all(is_scalar).then_some(())?,
                "const" => is_scalar(value).then_some(())?,
                "anyOf" => {
                    self.unions = self.unions.checked_sub(1)?;
                    value.as_array()?.iter().try_for_each(|branch| self.schema(branch, depth).ok_or(())).ok()?;
                }
                "items" => self.schema(value, depth)?,
                "properties" => self.properties(map, value.as_object()?, depth)?,
                "additionalProperties" => (*value == Value::Bool(false)).then_some(())?,
                _ => return None,
            }
            constrains = true;
        }
        let is_open = has_type(map, "object") && map.get("additionalProperties") != Some(&Value::Bool(false));
        (constrains && !is_open).then_some(())
    }

    fn kind(&mut self, value: &Value) -> Option<()> {
        if value.as_array().is_some_and(|kinds| kinds.len() > 1) {
            self.unions = self.unions.checked_sub(1)?;
        }
        Some(())
    }

    fn properties(&mut self, of: &Map<String, Value>, all: &Map<String, Value>, depth: usize) -> Option<()> {
        let required = of.get("required").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let optional = all.keys().filter(|key| !required.iter().any(|name| name == key.as_str())).count();
        self.optional = self.optional.checked_sub(optional)?;
        all.values().try_for_each(|schema| self.schema(schema, depth).ok_or(())).ok()
    }
}

fn has_type(schema: &Map<String, Value>, kind: &str) -> bool {
    match schema.get("type") {
        Some(Value::String(one)) => one == kind,
        Some(Value::Array(many)) => many.iter().any(|one| one == kind),
        _ => false,
    }
}

fn is_scalar(value: &Value) -> bool {
    !value.is_array() && !value.is_object()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    fn tool(properties: Value, required: Value) -> ToolSpec {
        let parameters =
            json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false});
        tool_with_schema(parameters)
    }

    fn tool_with_schema(parameters: Value) -> ToolSpec {
        ToolSpec { name: "t".into(), description: "".into(), parameters: Arc::new(parameters), strict: true }
    }

    #[test]
    fn only_supported_schemas_are_strict() {
        let is_strict = |tool: &ToolSpec| StrictToolBudget::new(true).try_take(tool);
        for good in [
            tool(json!({}), json!([])),
            tool(json!({"a": {"type": ["string", "null"], "enum": ["x", null], "description": "d"}}), json!(["a"])),
            tool(json!({"a": {"type": "array", "items": {"type": "string"}}}), json!([])),
            tool(json!({"a": {"anyOf": [{"type": "string"}, {"const": 3}]}}), json!(["a"])),
        ] {
            assert!(is_strict(&good), "{}", good.parameters);
            assert!(!StrictToolBudget::new(false).try_take(&good), "a model without support");
            assert!(!is_strict(&ToolSpec { strict: false, ..good }));
        }
        let too_deep =
            (0..MAX_DEPTH).fold(json!({"type": "string"}), |inner, _| json!({"type": "array", "items": inner}));
        for bad in [
            tool_with_schema(json!({"type": "object", "properties": {}})),
            tool_with_schema(json!({"type": "string"})),
            tool(json!({"a": {}}), json!(["a"])),
            tool(json!({"a": {"type": "object"}}), json!(["a"])),
            tool(json!({"a": {"type": "number", "minimum": 3}}), json!(["a"])),
            tool(json!({"a": {"type": "string", "pattern": "^x"}}), json!(["a"])),
            tool(json!({"a": {"$ref": "#"}}), json!(["a"])),
            tool(json!({"a": {"enum": [["x"]]}}), json!(["a"])),
            tool(json!({"a": too_deep}), json!(["a"])),
        ] {
            assert!(!is_strict(&bad), "{}", bad.parameters);
        }
    }

    #[test]
    fn the_limits_of_a_request_are_kept() {
        let count = |tool: ToolSpec| {
            let mut budget = StrictToolBudget::new(true);
            (0..100).filter(|_| budget.try_take(&tool)).count()
        };
        assert_eq!(count(tool(json!({}), json!([]))), MAX_TOOLS);
        assert_eq!(count(tool(json!({"a": {"type": ["string", "null"]}}), json!(["a"]))), MAX_UNIONS);
        assert_eq!(count(tool(json!({"a": {"type": "string"}, "b": {"type": "string"}}), json!([]))), MAX_OPTIONAL / 2);
        // A tool that exceeds the budget takes nothing of it.
        let mut budget = StrictToolBudget::new(true);
        let many: Map<String, Value> = (0..30).map(|n| (n.to_string(), json!({"type": "string"}))).collect();
        assert!(!budget.try_take(&tool(json!(many), json!([]))) && budget == StrictToolBudget::new(true));
    }
}
