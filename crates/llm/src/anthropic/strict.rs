//! Which tools are marked strict: the vendor then holds the arguments of a call to the schema of its tool.
//!
//! It compiles the schemas for that, knows few of JSON Schema's words, and refuses a whole request for one schema too many.
//! So a tool is marked only within the limits that the vendor names; the arguments of all tools are checked on this side anyway.
//! It also limits the size of what it compiles, in a measure that it does not tell: so an entry has to ask for it (`strict: true`).
//! Source: the vendor's page on structured outputs, September 2026.

use serde_json::{Map, Value};

use crate::request::ToolSpec;

/// Strict tools that one request may have.
const TOOLS: usize = 20;
/// Values of several types in all of them.
const UNIONS: usize = 16;
/// Properties that may be left out, in all of them.
const OPTIONAL: usize = 24;
/// Levels of a schema that are looked at; a bound of ours, the vendor names none.
const DEPTH: usize = 8;

/// The words of JSON Schema that the vendor compiles and that need no look at what they hold.
const HARMLESS: &[&str] = &["description", "required", "default"];

/// What is left of what one request may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    tools: usize,
    unions: usize,
    optional: usize,
}

impl Room {
    /// For requests whose tools may be marked, or not.
    pub(super) fn of(may_mark: bool) -> Self {
        let tools = if may_mark { TOOLS } else { 0 };
        Self { tools, unions: UNIONS, optional: OPTIONAL }
    }

    /// Whether this tool is marked; takes its part of what is left.
    pub(super) fn takes(&mut self, tool: &ToolSpec) -> bool {
        let mut after = *self;
        let fits = tool.strict && after.tool(&tool.parameters).is_some();
        if fits {
            *self = after;
        }
        fits
    }

    fn tool(&mut self, schema: &Value) -> Option<()> {
        self.tools = self.tools.checked_sub(1)?;
        // Arguments are an object, and all that is in it is known.
        (schema.get("type")? == "object").then_some(())?;
        self.schema(schema, DEPTH)
    }

    /// Takes what a schema needs; `None` where the vendor would not compile it, or there is no room.
    fn schema(&mut self, schema: &Value, depth: usize) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        let map = schema.as_object()?;
        let mut says_what = false;
        for (word, value) in map {
            match word.as_str() {
                word if HARMLESS.contains(&word) => continue,
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
            says_what = true;
        }
        let is_open = names(map, "object") && map.get("additionalProperties") != Some(&Value::Bool(false));
        (says_what && !is_open).then_some(())
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

fn names(schema: &Map<String, Value>, kind: &str) -> bool {
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
        of(parameters)
    }

    fn of(parameters: Value) -> ToolSpec {
        ToolSpec { name: "t".into(), description: "".into(), parameters: Arc::new(parameters), strict: true }
    }

    #[test]
    fn only_schemas_that_the_vendor_compiles_are_marked() {
        let marked = |tool: &ToolSpec| Room::of(true).takes(tool);
        for good in [
            tool(json!({}), json!([])),
            tool(json!({"a": {"type": ["string", "null"], "enum": ["x", null], "description": "d"}}), json!(["a"])),
            tool(json!({"a": {"type": "array", "items": {"type": "string"}}}), json!([])),
            tool(json!({"a": {"anyOf": [{"type": "string"}, {"const": 3}]}}), json!(["a"])),
        ] {
            assert!(marked(&good), "{}", good.parameters);
            assert!(!Room::of(false).takes(&good), "a model that does not know them");
            assert!(!marked(&ToolSpec { strict: false, ..good }));
        }
        let endless = (0..DEPTH).fold(json!({"type": "string"}), |inner, _| json!({"type": "array", "items": inner}));
        for bad in [
            of(json!({"type": "object", "properties": {}})),
            of(json!({"type": "string"})),
            tool(json!({"a": {}}), json!(["a"])),
            tool(json!({"a": {"type": "object"}}), json!(["a"])),
            tool(json!({"a": {"type": "number", "minimum": 3}}), json!(["a"])),
            tool(json!({"a": {"type": "string", "pattern": "^x"}}), json!(["a"])),
            tool(json!({"a": {"$ref": "#"}}), json!(["a"])),
            tool(json!({"a": {"enum": [["x"]]}}), json!(["a"])),
            tool(json!({"a": endless}), json!(["a"])),
        ] {
            assert!(!marked(&bad), "{}", bad.parameters);
        }
    }

    #[test]
    fn no_more_is_marked_than_a_request_may_have() {
        let count = |tool: ToolSpec| {
            let mut room = Room::of(true);
            (0..100).filter(|_| room.takes(&tool)).count()
        };
        assert_eq!(count(tool(json!({}), json!([]))), TOOLS);
        assert_eq!(count(tool(json!({"a": {"type": ["string", "null"]}}), json!(["a"]))), UNIONS);
        assert_eq!(count(tool(json!({"a": {"type": "string"}, "b": {"type": "string"}}), json!([]))), OPTIONAL / 2);
        // One that does not fit leaves room for the next.
        let mut room = Room::of(true);
        let many: Map<String, Value> = (0..30).map(|n| (n.to_string(), json!({"type": "string"}))).collect();
        assert!(!room.takes(&tool(json!(many), json!([]))) && room == Room::of(true));
    }
}
