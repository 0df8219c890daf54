//! Validation of arguments against a JSON Schema (<https://json-schema.org>). A schema is compiled once per tool, only
//! local references are allowed, and values are never changed.

use std::fmt;

use jsonschema::{PatternOptions, Validator, error::ValidationErrorKind};
use serde_json::{Map, Value as Json, json};

use super::words::{Word, say};
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

/// Why a schema is refused. The texts are for operators.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// It is longer than [`limits::MCP_SCHEMA`].
    #[error("its schema has {bytes} bytes, more than the {limit} that are read", limit = limits::MCP_SCHEMA)]
    TooLarge {
        /// Its size in bytes.
        bytes: usize,
    },
    /// It is nested deeper than [`limits::MCP_SCHEMA_DEPTH`].
    #[error("its schema is nested deeper than {limit} levels", limit = limits::MCP_SCHEMA_DEPTH)]
    TooDeep,
    /// It does not describe an object.
    #[error("its schema describes no object: arguments are always an object")]
    NotAnObject,
    /// It has a reference to another document.
    #[error("its schema points elsewhere (`{reference}`): only references inside the schema (`#/…`) are followed")]
    Remote {
        /// The reference.
        reference: String,
    },
    /// References form a cycle without any other keyword.
    #[error("its schema turns in a circle at `{reference}`")]
    Circle {
        /// The reference.
        reference: String,
    },
    /// It is not a valid schema.
    #[error("its schema is not valid: {0}")]
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
        survey(schema, schema, 0)?;
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
            errors.by_ref().take(limits::TOOL_PROBLEMS).map(|error| in_words(&error)).collect();
        let more = errors.count();
        if more > 0 {
            problems.push(say(Word::More, &[("count", &more)]));
        }
        problems
    }
}

fn in_words(error: &jsonschema::ValidationError<'_>) -> String {
    let path = error.instance_path().to_string();
    let at = if path.is_empty() { "arguments".to_owned() } else { path };
    match error.kind() {
        ValidationErrorKind::Required { property } => {
            let key = property.as_str().map_or_else(|| property.to_string(), str::to_owned);
            say(Word::Missing, &[("at", &at), ("key", &key)])
        }
        ValidationErrorKind::AdditionalProperties { unexpected }
        | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
            let keys = unexpected.iter().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ");
            say(Word::Surplus, &[("at", &at), ("key", &keys)])
        }
        ValidationErrorKind::Enum { options } => say(Word::Choice, &[("at", &at), ("choices", options)]),
        _ => say(Word::Misfit, &[("at", &at), ("message", &error)]),
    }
}

/// Checks the depth of the schema, references to other documents, and cycles of references.
fn survey(root: &Json, part: &Json, depth: usize) -> Result<(), SchemaError> {
    if depth > limits::MCP_SCHEMA_DEPTH {
        return Err(SchemaError::TooDeep);
    }
    match part {
        Json::Array(items) => items.iter().try_for_each(|item| survey(root, item, depth + 1)),
        Json::Object(map) => {
            for key in ["$ref", "$dynamicRef", "$recursiveRef"] {
                if let Some(Json::String(reference)) = map.get(key) {
                    follow(root, reference)?;
                }
            }
            map.values().try_for_each(|value| survey(root, value, depth + 1))
        }
        _ => Ok(()),
    }
}

/// Follows a chain of references. A cycle without any other keyword would never end.
fn follow(root: &Json, first: &str) -> Result<(), SchemaError> {
    let mut reference = first;
    for _ in 0..=limits::MCP_SCHEMA_DEPTH {
        let Some(pointer) = reference.strip_prefix('#') else {
            return Err(SchemaError::Remote { reference: first.to_owned() });
        };
        match root.pointer(pointer).and_then(|target| target.get("$ref")).and_then(Json::as_str) {
            Some(next) => reference = next,
            None => return Ok(()),
        }
    }
    Err(SchemaError::Circle { reference: first.to_owned() })
}

/// The schema for models: unchanged, but always with `type: object` and `properties`.
pub fn completed(schema: Json) -> Json {
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
    fn nothing_is_coerced() {
        let check = check(json!({"type": "object", "properties": {"count": {"type": "integer"}}}));
        assert!(check.problems(&json!({"count": 3})).is_empty());
        assert_eq!(check.problems(&json!({"count": "3"})), ["`/count`: \"3\" is not of type \"integer\""]);
        assert!(!check.problems(&Json::Null).is_empty(), "absent arguments are not an empty object");
    }

    #[test]
    fn problems_name_the_place_and_the_cure() {
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
    fn a_flood_of_problems_is_counted() {
        let check = check(json!({"type": "object", "properties": {"a": {"items": {"type": "string"}}}}));
        let problems = check.problems(&json!({"a": vec![0; 100]}));
        assert_eq!(problems.len(), limits::TOOL_PROBLEMS + 1);
        assert_eq!(problems.last().unwrap(), "And 92 more problems.");
    }

    #[test]
    fn schemas_that_could_do_harm_are_refused() {
        let refused = |schema: Json| ArgumentCheck::compile(&schema).unwrap_err();
        assert!(matches!(refused(json!({"$ref": "https://example.com/s.json"})), SchemaError::Remote { .. }));
        assert!(matches!(
            refused(json!({"type": "object", "items": {"$ref": "other.json"}})),
            SchemaError::Remote { .. }
        ));
        assert!(matches!(refused(json!({"type": "string"})), SchemaError::NotAnObject));
        assert!(matches!(refused(json!({"type": "object", "properties": 7})), SchemaError::Invalid(_)));
        let circle = json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}});
        assert!(matches!(refused(circle), SchemaError::Circle { .. }));
        assert!(matches!(refused(json!({"$ref": "#"})), SchemaError::Circle { .. }));
        let mut deep = json!({"type": "object"});
        for _ in 0..200 {
            deep = json!({"type": "object", "properties": {"x": deep}});
        }
        assert!(matches!(refused(deep), SchemaError::TooDeep));
        let long = json!({"type": "object", "description": "x".repeat(limits::MCP_SCHEMA)});
        assert!(matches!(refused(long), SchemaError::TooLarge { .. }));
    }

    #[test]
    fn recursive_schemas_that_say_something_work() {
        let check = check(json!({
            "type": "object", "properties": {"child": {"$ref": "#"}, "name": {"type": "string"}}
        }));
        assert!(check.problems(&json!({"child": {"child": {"name": "a"}}})).is_empty());
        assert_eq!(check.problems(&json!({"child": {"child": {"name": 1}}})).len(), 1);
    }

    #[test]
    fn a_pattern_made_to_run_for_ever_ends() {
        let check = check(json!({"type": "object", "properties": {"a": {"pattern": "^(?=x)(x+x+)+y$"}}}));
        assert_eq!(check.problems(&json!({"a": "x".repeat(40)})).len(), 1);
    }

    #[test]
    fn only_what_is_missing_is_added() {
        assert_eq!(completed(json!({})), json!({"type": "object", "properties": {}}));
        let odd = json!({"type": "object", "properties": {"a": {"anyOf": [{}]}}, "x": 1});
        assert_eq!(completed(odd.clone()), odd);
    }
}
