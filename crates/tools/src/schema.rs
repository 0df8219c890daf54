//! Validation of arguments against a JSON Schema (<https://json-schema.org>). A schema is compiled once per tool, only
//! local references are allowed, and values are never changed.
//!
//! Schemas and values come from servers and models. A check is therefore bounded by the work that it makes, at
//! most some tenths of a second and some tens of megabytes, so it may run where it is asked for. Problems are collected
//! only of values that do not match, and only if that is little work too.

mod work;

use std::fmt;

use jsonschema::{PatternOptions, Validator, error::ValidationErrorKind};
use serde_json::{Map, Value as Json, json};

use self::work::SchemaGraph;
use super::messages::{ToolMessage, render_message};
use segue_base::limits;

/// A compiled schema. Compiling is expensive, checking is cheap: keep it with its tool.
pub struct ArgumentCheck {
    validator: Validator,
    graph: SchemaGraph,
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
    /// It is nested deeper than [`limits::MCP_SCHEMA_DEPTH`], or [`limits::SCHEMA_LEVELS`] with its references expanded.
    #[error("its schema is nested too deep; at most {limit} levels, and {levels} with references expanded, are allowed", limit = limits::MCP_SCHEMA_DEPTH, levels = limits::SCHEMA_LEVELS)]
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
    /// A subschema has an identifier, which would be the base of the references in it.
    #[error(
        "its schema has an `$id` below its root, which is not supported; remove it and use references like `#/$defs/name`"
    )]
    NestedId,
    /// References form a cycle that applies to the same value without end.
    #[error("its schema has a cycle of references")]
    ReferenceCycle,
    /// It has more than [`limits::SCHEMA_NODES`] nodes with its references expanded.
    #[error("its schema has more than {limit} nodes when its references are expanded", limit = limits::SCHEMA_NODES)]
    TooManyNodes,
    /// Its patterns need more than [`limits::SCHEMA_PATTERNS`] bytes.
    #[error("its schema has patterns that are too large; limit the repetitions in them")]
    PatternsTooLarge,
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
        if depth_exceeds(schema, limits::MCP_SCHEMA_DEPTH) {
            return Err(SchemaError::TooDeep);
        }
        let graph = SchemaGraph::build(schema)?;
        let patterns = PatternOptions::fancy_regex()
            .backtrack_limit(limits::MCP_PATTERN_STEPS)
            .size_limit(limits::SCHEMA_PATTERNS)
            .dfa_size_limit(limits::SCHEMA_PATTERNS);
        let validator = jsonschema::options()
            .offline()
            .with_pattern_options(patterns)
            // A text that is itself a pattern would be compiled, whatever its size.
            .with_format("regex", |_: &str| true)
            .build(schema)
            .map_err(|error| SchemaError::Invalid(shortened(error.to_string())))?;
        Ok(Self { validator, graph })
    }

    /// The problems of `arguments` for the model; empty if they are valid. At most [`limits::TOOL_PROBLEMS`], and the
    /// number of the others. A value that cannot be checked within [`limits::SCHEMA_STEPS`] is a problem of its own.
    pub fn problems(&self, arguments: &Json) -> Vec<String> {
        if !self.graph.is_within(arguments, limits::SCHEMA_STEPS) {
            return vec![render_message(ToolMessage::TooMuchToCheck, &[])];
        }
        if self.validator.is_valid(arguments) {
            return Vec::new();
        }
        // Each problem of a combination holds the problems of its branches, so there may be far more than are shown.
        if !self.graph.problems_are_within(arguments, limits::SCHEMA_PROBLEM_STEPS) {
            return vec![render_message(ToolMessage::NoMatch, &[])];
        }
        let mut errors = self.validator.iter_errors(arguments);
        let mut problems: Vec<String> =
            errors.by_ref().take(limits::TOOL_PROBLEMS).map(|error| shortened(problem_text(&error))).collect();
        let more = errors.count();
        if more > 0 {
            problems.push(render_message(ToolMessage::MoreProblems, &[("count", &more)]));
        }
        problems
    }
}

/// A text of at most [`limits::TOOL_PROBLEM_TEXT`] bytes.
fn shortened(mut text: String) -> String {
    if text.len() > limits::TOOL_PROBLEM_TEXT {
        text.truncate(text.floor_char_boundary(limits::TOOL_PROBLEM_TEXT));
        text.push('…');
    }
    text
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
        // The place says which value it is; a long one would hide what is wrong with it.
        _ if error.to_string().len() > limits::TOOL_PROBLEM_TEXT => {
            render_message(ToolMessage::InvalidValue, &[("at", &location), ("message", &error.masked())])
        }
        _ => render_message(ToolMessage::InvalidValue, &[("at", &location), ("message", &error)]),
    }
}

/// Whether JSON has more than this many levels.
fn depth_exceeds(json: &Json, levels: usize) -> bool {
    let Some(below) = levels.checked_sub(1) else { return matches!(json, Json::Array(_) | Json::Object(_)) };
    match json {
        Json::Array(items) => items.iter().any(|item| depth_exceeds(item, below)),
        Json::Object(map) => map.values().any(|value| depth_exceeds(value, below)),
        _ => false,
    }
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
        assert!(matches!(error_of(cycle), SchemaError::ReferenceCycle));
        assert!(matches!(error_of(json!({"$ref": "#"})), SchemaError::ReferenceCycle));
        let mut deep = json!({"type": "object"});
        for _ in 0..200 {
            deep = json!({"type": "object", "properties": {"x": deep}});
        }
        assert!(matches!(error_of(deep), SchemaError::TooDeep));
        let long = json!({"type": "object", "description": "x".repeat(limits::MCP_SCHEMA)});
        assert!(matches!(error_of(long), SchemaError::TooLarge { .. }));
    }

    /// Schemas `d0` to `d{levels}`, each of which refers twice to the one below through `combine`.
    fn doubling(levels: usize, combine: impl Fn(Json) -> Json) -> Json {
        let mut defs = Map::from_iter([("d0".to_owned(), json!({"type": "integer"}))]);
        for level in 1..=levels {
            defs.insert(format!("d{level}"), combine(json!({"$ref": format!("#/$defs/d{}", level - 1)})));
        }
        json!({"type": "object", "properties": {"v": {"$ref": format!("#/$defs/d{levels}")}}, "$defs": defs})
    }

    #[test]
    fn schemas_that_grow_without_bound_with_their_references_expanded_are_rejected() {
        type Combine = fn(Json) -> Json;
        let combinations: [(&str, Combine); 9] = [
            ("anyOf", |below| json!({"anyOf": [below, below]})),
            ("oneOf", |below| json!({"oneOf": [below, {"not": below}]})),
            ("items", |below| json!({"prefixItems": [below, below], "items": below})),
            ("contains", |below| json!({"prefixItems": [below], "additionalItems": below, "contains": below})),
            ("properties", |below| json!({"properties": {"a": below}, "patternProperties": {"^b": below}})),
            ("names", |below| json!({"propertyNames": below, "additionalProperties": below})),
            (
                "dependentSchemas",
                |below| json!({"dependentSchemas": {"a": below}, "dependencies": {"b": below, "c": ["d"]}}),
            ),
            ("if", |below| json!({"if": below, "then": below, "else": below})),
            // Each level is visited twice: for its result, and for what it evaluated.
            ("unevaluated", |below| json!({"allOf": [below], "unevaluatedProperties": false})),
        ];
        for (name, combine) in combinations {
            assert!(ArgumentCheck::compile(&doubling(4, combine)).is_ok(), "{name}");
            for levels in [13, 19] {
                let error = ArgumentCheck::compile(&doubling(levels, combine)).unwrap_err();
                assert_eq!(error, SchemaError::TooManyNodes, "{name} {levels}");
            }
        }
        let dynamic =
            doubling(19, |below| json!({"allOf": [{"$dynamicRef": below["$ref"]}, {"$recursiveRef": below["$ref"]}]}));
        assert_eq!(ArgumentCheck::compile(&dynamic).unwrap_err(), SchemaError::TooManyNodes);
        let chain = doubling(100, |below| json!({"allOf": [below]}));
        assert_eq!(ArgumentCheck::compile(&chain).unwrap_err(), SchemaError::TooDeep);
        let nested = json!({"properties": {"a": {"$id": "https://example.com/a", "$ref": "#/properties/a"}}});
        assert_eq!(ArgumentCheck::compile(&nested).unwrap_err(), SchemaError::NestedId);
    }

    #[test]
    fn schemas_whose_nodes_all_refer_to_each_other_are_compiled_once() {
        let all = |kind: &str| {
            let refs: Vec<Json> = (0..24).map(|n| json!({"$ref": format!("#/$defs/n{n}")})).collect();
            let names = (0..24).map(|n| (format!("p{n}"), json!({"$ref": format!("#/$defs/n{n}")})));
            match kind {
                "properties" => json!({"properties": Map::from_iter(names)}),
                _ => json!({"properties": {"c": {"anyOf": refs}}}),
            }
        };
        for kind in ["properties", "anyOf"] {
            let defs = Map::from_iter((0..24).map(|n| (format!("n{n}"), all(kind))));
            let _ = ArgumentCheck::compile(&json!({"$ref": "#/$defs/n0", "$defs": defs}));
        }
    }

    /// An object with this many others inside.
    fn deep_value(levels: usize, leaf: Json) -> Json {
        (0..levels).fold(leaf, |inner, _| json!({"c": inner}))
    }

    #[test]
    fn values_that_make_too_much_work_are_rejected_and_not_checked() {
        let too_much = [render_message(ToolMessage::TooMuchToCheck, &[])];
        let no_match = [render_message(ToolMessage::NoMatch, &[])];
        // Two ways to the same child: the paths double with each level, but each pair of node and value is checked once.
        let twice = check(json!({
            "anyOf": [{"properties": {"c": {"$ref": "#"}}, "required": ["x"]}, {"properties": {"c": {"$ref": "#"}}, "required": ["y"]}]
        }));
        assert_eq!(twice.problems(&deep_value(50, json!(1))), no_match);
        assert_eq!(twice.problems(&deep_value(120, json!({"x": 1}))), no_match);
        let deep = check(json!({"properties": {"c": {"allOf": [{"allOf": [{"allOf": [{"$ref": "#"}]}]}]}}}));
        assert_eq!(deep.problems(&deep_value(120, json!(1))), too_much);
        assert!(deep.problems(&deep_value(100, json!(1))).is_empty());

        let many = Json::from(vec![0; 1_000_000]);
        let alternatives: Vec<Json> = (1..100).map(|n| json!({"const": n})).collect();
        let any = check(json!({"properties": {"v": {"items": {"anyOf": alternatives}}}}));
        assert_eq!(any.problems(&json!({"v": many})), too_much);
        assert_eq!(any.problems(&json!({"v": [0]})).len(), 1);
        let unique: Vec<Json> = (0..100).map(|_| json!({"uniqueItems": true})).collect();
        let unique = check(json!({"properties": {"v": {"allOf": unique}}}));
        assert_eq!(unique.problems(&json!({"v": many})), too_much);
        assert_eq!(unique.problems(&json!({"v": [1, 2, 3]})), Vec::<String>::new());
        // One comparison of a large value is fine, also if it fails.
        let once = check(json!({"properties": {"v": {"uniqueItems": true, "items": {"type": "integer"}}}}));
        assert_eq!(once.problems(&json!({"v": many})), no_match);
        let text = json!({"properties": {"v": {"type": "string"}}});
        assert!(check(text).problems(&json!({"v": "x".repeat(limits::TOOL_RAW_RESULT)})).is_empty());
    }

    #[test]
    fn patterns_are_bounded_by_their_size_and_the_texts_that_they_search() {
        let property = |pattern: &str| json!({"properties": {"a": {"pattern": pattern}}});
        let large = SchemaError::PatternsTooLarge;
        assert_eq!(ArgumentCheck::compile(&property("((a{1000}){1000}){1000}")).unwrap_err(), large);
        let names = (0..200).map(|n| (format!("^{n}\\p{{L}}{{20}}"), json!(true)));
        let many = json!({"patternProperties": Map::from_iter(names)});
        assert_eq!(ArgumentCheck::compile(&many).unwrap_err(), large);

        let too_much = [render_message(ToolMessage::TooMuchToCheck, &[])];
        let lookaround = check(property("^(?!.*x.*y.*z).*(a+)+$"));
        assert!(lookaround.problems(&json!({"a": "a".repeat(10_000)})).is_empty());
        assert_eq!(lookaround.problems(&json!({"a": "a".repeat(1_000_000)})), too_much);
        let repeated = check(property("(a|b)*a(a|b){400}c"));
        assert_eq!(repeated.problems(&json!({"a": "ab".repeat(1_000_000)})), too_much);
        let simple = check(property("^[a-z ]+$"));
        assert!(simple.problems(&json!({"a": "a b ".repeat(500_000)})).is_empty());
    }

    #[test]
    fn problems_are_short_whatever_the_value_and_the_schema_hold() {
        let long = "x".repeat(100_000);
        let choices: Vec<String> = (0..500).map(|n| format!("choice number {n}")).collect();
        let check = check(json!({
            "properties": {"a": {"type": "integer"}, "b": {"enum": choices}}, "additionalProperties": false
        }));
        let mut value = json!({"a": long, "b": 1});
        value[&long] = json!(1);
        let problems = check.problems(&value);
        assert_eq!(problems.len(), 3);
        assert!(problems.contains(&"`/a`: value is not of type \"integer\"".to_owned()), "{problems:?}");
        assert!(problems.iter().all(|problem| problem.len() <= limits::TOOL_PROBLEM_TEXT + 3), "{problems:?}");
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
