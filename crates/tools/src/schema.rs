//! Validation of arguments against a JSON Schema (<https://json-schema.org>). A schema is compiled once per tool, only
//! local references are allowed, and values are never changed.

use std::fmt;

use jsonschema::{PatternOptions, Validator, error::ValidationErrorKind};
use serde_json::{Map, Value as Json, json};

use super::messages::{ToolMessage, render_message};
use segue_base::limits;

/// A compiled schema. Compiling is expensive, checking is cheap: keep it with its tool.
pub struct ArgumentCheck {
    validator: Validator,
}

impl fmt::Debug for ArgumentCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ArgumentCheck(…)")
    }
}

/// Why a schema is rejected. The texts are for operators.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// It is longer than [`limits::MCP_SCHEMA`].
    #[error("its schema has {bytes} bytes; at most {limit} are allowed", limit = limits::MCP_SCHEMA)]
    TooLarge {
        /// Its size in bytes.
        bytes: usize,
    },
    /// It is nested deeper than [`limits::MCP_SCHEMA_DEPTH`].
    #[error("its schema is nested deeper than {limit} levels", limit = limits::MCP_SCHEMA_DEPTH)]
    TooDeep,
    /// It does not describe an object.
    #[error("its schema does not describe an object; arguments are always an object")]
    NotAnObject,
    /// It has a reference to another document.
    #[error(
        "its schema refers to another document (`{reference}`); only references inside the schema (`#/…`) are allowed"
    )]
    RemoteReference {
        /// The reference.
        reference: String,
    },
    /// References form a cycle without any other keyword.
    #[error("its schema has a cycle of references at `{reference}`")]
    ReferenceCycle {
        /// The reference.
        reference: String,
    },
    /// It is not a valid schema.
    #[error("its schema is invalid: {0}")]
    Invalid(String),
}

impl ArgumentCheck {
    /// Compiles a schema of arguments.
    ///
    /// # Errors
    /// [`SchemaError`]: too large, too deep, not of an object, with a reference to another document, or invalid.
    pub fn compile(schema: &Json) -> Result<Self, SchemaError> {
        let describes_object = match schema.get("type") {
            None => schema.is_object(),
            Some(Json::String(kind)) => kind == "object",
            Some(Json::Array(kinds)) => kinds.iter().any(|kind| kind == "object"),
            Some(_) => false,
        };
        if describes_object { Self::compile_any(schema) } else { Err(SchemaError::NotAnObject) }
    }

    /// Compiles a schema of anything, such as a result.
    ///
    /// # Errors
    /// As [`compile`](Self::compile), but the schema may describe any type.
    pub fn compile_any(schema: &Json) -> Result<Self, SchemaError> {
        let bytes = schema.to_string().len();
        if bytes > limits::MCP_SCHEMA {
            return Err(SchemaError::TooLarge { bytes });
        }
        check_structure(schema, schema, 0)?;
        let patterns = PatternOptions::fancy_regex().backtrack_limit(limits::MCP_PATTERN_STEPS);
        let validator = jsonschema::options()
            .offline()
            .with_pattern_options(patterns)
            .build(schema)
            .map_err(|error| SchemaError::Invalid(error.to_string()))?;
        Ok(Self { validator })
    }

    /// The problems of `arguments` for the model; empty if they are valid. At most [`limits::TOOL_PROBLEMS`], and the
    /// number of the others.
    pub fn problems(&self, arguments: &Json) -> Vec<String> {
        let mut errors = self.validator.iter_errors(arguments);
        let mut problems: Vec<String> =
            errors.by_ref().take(limits::TOOL_PROBLEMS).map(|error| problem_text(&error)).collect();
        let more = errors.count();
        if more > 0 {
            problems.push(render_message(ToolMessage::MoreProblems, &[("count", &more)]));
        }
        problems
    }
}

fn problem_text(error: &jsonschema::ValidationError<'_>) -> String {
    let path = error.instance_path().to_string();
    let location = if path.is_empty() { "arguments".to_owned() } else { path };
    match error.kind() {
        ValidationErrorKind::Required { property } => {
            let key = property.as_str().map_or_else(|| property.to_string(), str::to_owned);
            render_message(ToolMessage::MissingKey, &[("at", &location), ("key", &key)])
        }
        ValidationErrorKind::AdditionalProperties { unexpected }
        | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
            let keys = unexpected.iter().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ");
            render_message(ToolMessage::UnexpectedKey, &[("at", &location), ("key", &keys)])
        }
        ValidationErrorKind::Enum { options } => {
            render_message(ToolMessage::NotInEnum, &[("at", &location), ("choices", options)])
        }
        _ => render_message(ToolMessage::InvalidValue, &[("at", &location), ("message", &error)]),
    }
}

/// Checks the depth of the schema, references to other documents, and cycles of references.
fn check_structure(root: &Json, part: &Json, depth: usize) -> Result<(), SchemaError> {
    if depth > limits::MCP_SCHEMA_DEPTH {
        return Err(SchemaError::TooDeep);
    }
    match part {
        Json::Array(items) => items.iter().try_for_each(|item| check_structure(root, item, depth + 1)),
        Json::Object(map) => {
            for key in ["$ref", "$dynamicRef", "$recursiveRef"] {
                if let Some(Json::String(reference)) = map.get(key) {
                    check_reference(root, reference)?;
                }
            }
            map.values().try_for_each(|value| check_structure(root, value, depth + 1))
        }
        _ => Ok(()),
    }
}

/// Follows a chain of references. A cycle without any other keyword would never end.
fn check_reference(root: &Json, first: &str) -> Result<(), SchemaError> {
    let mut reference = first;
    for _ in 0..=limits::MCP_SCHEMA_DEPTH {
        let Some(pointer) = reference.strip_prefix('#') else {
            return Err(SchemaError::RemoteReference { reference: first.to_owned() });
        };
        match root.pointer(pointer).and_then(|target| target.get("$ref")).and_then(Json::as_str) {
            Some(next) => reference = next,
            None => return Ok(()),
        }
    }
    Err(SchemaError::ReferenceCycle { reference: first.to_owned() })
}

/// The schema for models: unchanged, but always with `type: object` and `properties`.
pub fn with_object_type(schema: Json) -> Json {
    let mut map = match schema {
        Json::Object(map) => map,
        Json::Null => Map::new(),
        other => return other,
    };
    map.entry("type").or_insert_with(|| json!("object"));
    map.entry("properties").or_insert_with(|| json!({}));
    Json::Object(map)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
    use super::*;

    fn check(schema: Json) -> ArgumentCheck {
        ArgumentCheck::compile(&schema).unwrap()
    }

    #[test]
    fn values_are_not_coerced() {
        let check = check(json!({"type": "object", "properties": {"count": {"type": "integer"}}}));
        assert!(check.problems(&json!({"count": 3})).is_empty());
        assert_eq!(check.problems(&json!({"count": "3"})), ["`/count`: \"3\" is not of type \"integer\""]);
        assert!(!check.problems(&Json::Null).is_empty(), "null is not an empty object");
    }

    #[test]
    fn problems_name_the_path_and_the_expected_value() {
        let check = check(json!({
            "type": "object", "required": ["to"], "additionalProperties": false,
            "properties": {"to": {"type": "string"}, "class": {"enum": ["first", "second"]}}
        }));
        let problems = check.problems(&json!({"class": "third", "seat": 1}));
        assert!(problems.contains(&"`arguments` lacks the required key `to`.".to_owned()), "{problems:?}");
        assert!(problems.contains(&"`arguments` may not hold the key `seat`.".to_owned()), "{problems:?}");
        assert!(problems.contains(&"`/class` must be one of [\"first\",\"second\"].".to_owned()), "{problems:?}");
    }

    #[test]
    fn problems_beyond_the_limit_are_only_counted() {
        let check = check(json!({"type": "object", "properties": {"a": {"items": {"type": "string"}}}}));
        let problems = check.problems(&json!({"a": vec![0; 100]}));
        assert_eq!(problems.len(), limits::TOOL_PROBLEMS + 1);
        assert_eq!(problems.last().unwrap(), "And 92 more problems.");
    }

    #[test]
    fn harmful_schemas_are_rejected() {
        let error_of = |schema: Json| ArgumentCheck::compile(&schema).unwrap_err();
        assert!(matches!(error_of(json!({"$ref": "https://example.com/s.json"})), SchemaError::RemoteReference { .. }));
        assert!(matches!(
            error_of(json!({"type": "object", "items": {"$ref": "other.json"}})),
            SchemaError::RemoteReference { .. }
        ));
        assert!(matches!(error_of(json!({"type": "string"})), SchemaError::NotAnObject));
        assert!(matches!(error_of(json!({"type": "object", "properties": 7})), SchemaError::Invalid(_)));
        let cycle = json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}});
        assert!(matches!(error_of(cycle), SchemaError::ReferenceCycle { .. }));
        assert!(matches!(error_of(json!({"$ref": "#"})), SchemaError::ReferenceCycle { .. }));
        let mut deep = json!({"type": "object"});
        for _ in 0..200 {
            deep = json!({"type": "object", "properties": {"x": deep}});
        }
        assert!(matches!(error_of(deep), SchemaError::TooDeep));
        let long = json!({"type": "object", "description": "x".repeat(limits::MCP_SCHEMA)});
        assert!(matches!(error_of(long), SchemaError::TooLarge { .. }));
    }

    #[test]
    fn recursive_schemas_with_other_keywords_work() {
        let check = check(json!({
            "type": "object", "properties": {"child": {"$ref": "#"}, "name": {"type": "string"}}
        }));
        assert!(check.problems(&json!({"child": {"child": {"name": "a"}}})).is_empty());
        assert_eq!(check.problems(&json!({"child": {"child": {"name": 1}}})).len(), 1);
    }

    #[test]
    fn catastrophic_backtracking_of_a_pattern_is_limited() {
        let check = check(json!({"type": "object", "properties": {"a": {"pattern": "^(?=x)(x+x+)+y$"}}}));
        assert_eq!(check.problems(&json!({"a": "x".repeat(40)})).len(), 1);
    }

    #[test]
    fn with_object_type_adds_only_missing_keys() {
        assert_eq!(with_object_type(json!({})), json!({"type": "object", "properties": {}}));
        let odd = json!({"type": "object", "properties": {"a": {"anyOf": [{}]}}, "x": 1});
        assert_eq!(with_object_type(odd.clone()), odd);
    }
}
