//! Values of inputs, outputs and dataset items: the JSON Schema that models see, the check of values against it, and reading values from
//! text.
//!
//! The keywords are those that declared fields and the tools of missions can have: `type`, `enum`, `const`, `pattern`, `minimum`,
//! `maximum`, `minLength`, `maxLength`, `minItems`, `maxItems`, `items`, `properties`, `required` and `additionalProperties`. Schemas from
//! outside, with any keyword, are checked by `segue_tools::ArgumentCheck`. For these few keywords the crate `jsonschema` is a test only, with
//! which this check must agree: it would compile a new schema, and check that against the schema of schemas, for each call of a tool. It
//! also has no word for a null that means "missing", or for patterns as Python reads them.

use std::sync::Arc;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json, json};

use crate::{
    project::missions::{FieldDef, ValueKind},
    regex_dialect::{Flags, PythonRegex},
};

/// Violations that one check reports at most.
pub const MOST_VIOLATIONS: usize = 20;
/// Levels of nested values that are checked; deeper ones are refused.
const DEPTH: u32 = 64;

/// A place in a value that violates its schema.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Violation {
    /// Where: a JSON pointer (RFC 6901); empty for the value itself.
    pub pointer: String,
    /// What is wrong.
    pub problem: String,
}

/// Whether an object may have fields that are not declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extra {
    /// They pass.
    Allowed,
    /// They are violations.
    Refused,
}

/// The JSON Schema of an object with these fields.
pub fn object_schema(fields: &IndexMap<Arc<str>, FieldDef>, extra: Extra) -> Json {
    let mut properties = Map::new();
    for (name, field) in fields {
        properties.insert(name.to_string(), field_schema(field));
    }
    let required: Vec<&str> = fields.iter().filter(|(_, field)| field.required).map(|(name, _)| &**name).collect();
    let mut schema = json!({"type": "object", "properties": properties});
    if let Some(schema) = schema.as_object_mut() {
        if !required.is_empty() {
            schema.insert("required".into(), json!(required));
        }
        if extra == Extra::Refused {
            schema.insert("additionalProperties".into(), json!(false));
        }
    }
    schema
}

/// The JSON Schema of one field, with its description.
pub fn field_schema(field: &FieldDef) -> Json {
    let mut schema = (*field.schema).clone();
    if let Some(object) = schema.as_object_mut()
        && !field.description.is_empty()
    {
        object.entry("description").or_insert_with(|| json!(&*field.description));
    }
    schema
}

/// Checks an object against declared fields. A null counts as missing, and passes where the field is not required.
pub fn check_fields(fields: &IndexMap<Arc<str>, FieldDef>, value: &Json, extra: Extra) -> Vec<Violation> {
    let mut check = Check::default();
    let Some(object) = value.as_object() else {
        check.report("", "an object is expected");
        return check.found;
    };
    for (name, field) in fields {
        match object.get(&**name) {
            None | Some(Json::Null) if field.required => check.report(&pointer("", name), "this field is required"),
            None | Some(Json::Null) => {}
            Some(value) => check.value(&field.schema, value, &pointer("", name), DEPTH),
        }
    }
    if extra == Extra::Refused {
        for name in object.keys().filter(|name| !fields.contains_key(name.as_str())) {
            check.report(&pointer("", name), "there is no such field");
        }
    }
    check.found
}

/// Checks a value against a JSON Schema.
pub fn check(schema: &Json, value: &Json) -> Vec<Violation> {
    let mut check = Check::default();
    check.value(schema, value, "", DEPTH);
    check.found
}

fn pointer(parent: &str, name: &str) -> String {
    format!("{parent}/{}", name.replace('~', "~0").replace('/', "~1"))
}

#[derive(Default)]
struct Check {
    found: Vec<Violation>,
}

impl Check {
    fn report(&mut self, pointer: &str, problem: impl Into<String>) {
        if self.found.len() < MOST_VIOLATIONS {
            self.found.push(Violation { pointer: pointer.to_owned(), problem: problem.into() });
        }
    }

    fn value(&mut self, schema: &Json, value: &Json, at: &str, depth: u32) {
        let Some(depth) = depth.checked_sub(1) else { return self.report(at, "nested too deeply") };
        let schema = match schema {
            Json::Bool(false) => return self.report(at, "no value is allowed here"),
            Json::Object(schema) => schema,
            _ => return,
        };
        if let Some(expected) = schema.get("type")
            && !has_type(expected, value)
        {
            let found = match value {
                Json::Number(number) if !is_whole(number) => "a number with a fraction",
                other => article(kind(other)),
            };
            return self.report(at, format!("{} is expected, not {found}", type_names(expected)));
        }
        if let Some(allowed) = schema.get("enum").and_then(Json::as_array)
            && !allowed.iter().any(|allowed| equal(allowed, value))
        {
            let names: Vec<String> = allowed.iter().map(Json::to_string).collect();
            self.report(at, format!("one of {} is expected", names.join(", ")));
        }
        if let Some(expected) = schema.get("const")
            && !equal(expected, value)
        {
            self.report(at, format!("{expected} is expected"));
        }
        match value {
            Json::String(text) => self.text(schema, text, at),
            Json::Number(number) => self.number(schema, number, at),
            Json::Array(items) => self.items(schema, items, at, depth),
            Json::Object(fields) => self.object(schema, fields, at, depth),
            Json::Null | Json::Bool(_) => {}
        }
    }

    fn text(&mut self, schema: &Map<String, Json>, text: &str, at: &str) {
        let length = text.chars().count() as u64;
        if let Some(least) = schema.get("minLength").and_then(Json::as_u64).filter(|least| length < *least) {
            self.report(at, format!("at least {least} characters are expected"));
        }
        if let Some(most) = schema.get("maxLength").and_then(Json::as_u64).filter(|most| length > *most) {
            self.report(at, format!("at most {most} characters are allowed"));
        }
        if let Some(pattern) = schema.get("pattern").and_then(Json::as_str) {
            match PythonRegex::new(pattern, Flags::default()) {
                Ok(regex) if regex.is_match(text).is_match() => {}
                Ok(_) => self.report(at, format!("the text must match the pattern {pattern}")),
                Err(error) => self.report(at, format!("the pattern {pattern} cannot be used: {error}")),
            }
        }
    }

    fn number(&mut self, schema: &Map<String, Json>, number: &serde_json::Number, at: &str) {
        let value = number.as_f64().unwrap_or(f64::NAN);
        if let Some(least) = schema.get("minimum").filter(|least| least.as_f64().is_some_and(|least| value < least)) {
            self.report(at, format!("at least {least} is expected"));
        }
        if let Some(most) = schema.get("maximum").filter(|most| most.as_f64().is_some_and(|most| value > most)) {
            self.report(at, format!("at most {most} is allowed"));
        }
    }

    fn items(&mut self, schema: &Map<String, Json>, items: &[Json], at: &str, depth: u32) {
        let count = items.len() as u64;
        if let Some(least) = schema.get("minItems").and_then(Json::as_u64).filter(|least| count < *least) {
            self.report(at, format!("at least {least} elements are expected"));
        }
        if let Some(most) = schema.get("maxItems").and_then(Json::as_u64).filter(|most| count > *most) {
            self.report(at, format!("at most {most} elements are allowed"));
        }
        if let Some(of_item) = schema.get("items") {
            for (index, item) in items.iter().enumerate() {
                self.value(of_item, item, &format!("{at}/{index}"), depth);
            }
        }
    }

    fn object(&mut self, schema: &Map<String, Json>, fields: &Map<String, Json>, at: &str, depth: u32) {
        let required = schema.get("required").and_then(Json::as_array).map_or(&[][..], Vec::as_slice);
        for name in required.iter().filter_map(Json::as_str) {
            if fields.get(name).is_none_or(Json::is_null) {
                self.report(&pointer(at, name), "this field is required");
            }
        }
        let properties = schema.get("properties").and_then(Json::as_object);
        for (name, value) in fields {
            let is_required = || required.iter().any(|required| required.as_str() == Some(name));
            match (properties.and_then(|properties| properties.get(name)), schema.get("additionalProperties")) {
                // A missing required field was reported above; null in another one means that it has no value.
                (Some(_), _) if value.is_null() && (is_required() || !allows_null(properties, name)) => {}
                (Some(of_field), _) => self.value(of_field, value, &pointer(at, name), depth),
                (None, Some(Json::Bool(false))) => self.report(&pointer(at, name), "there is no such field"),
                (None, Some(of_others)) => self.value(of_others, value, &pointer(at, name), depth),
                (None, None) => {}
            }
        }
    }
}

fn allows_null(properties: Option<&Map<String, Json>>, name: &str) -> bool {
    let expected = properties.and_then(|properties| properties.get(name)).and_then(|schema| schema.get("type"));
    expected.is_none_or(|expected| has_type(expected, &Json::Null))
}

/// Numbers are equal by value, so that 1 and 1.0 are the same.
pub(crate) fn equal(a: &Json, b: &Json) -> bool {
    match (a, b) {
        (Json::Number(a), Json::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        _ => a == b,
    }
}

fn has_type(expected: &Json, value: &Json) -> bool {
    match expected {
        Json::Array(names) => names.iter().any(|name| has_type(name, value)),
        Json::String(name) => match (name.as_str(), value) {
            ("integer", Json::Number(number)) => is_whole(number),
            ("number", Json::Number(_)) => true,
            (name, value) => name == kind(value),
        },
        _ => true,
    }
}

pub(crate) fn is_whole(number: &serde_json::Number) -> bool {
    number.is_i64() || number.is_u64() || number.as_f64().is_some_and(|value| value.fract() == 0.0)
}

/// The JSON Schema name of the type of a value.
pub(crate) fn kind(value: &Json) -> &'static str {
    match value {
        Json::Null => "null",
        Json::Bool(_) => "boolean",
        Json::Number(_) => "number",
        Json::String(_) => "string",
        Json::Array(_) => "array",
        Json::Object(_) => "object",
    }
}

fn type_names(expected: &Json) -> String {
    match expected {
        Json::Array(names) => {
            let names: Vec<&str> = names.iter().filter_map(Json::as_str).map(article).collect();
            names.join(" or ")
        }
        other => article(other.as_str().unwrap_or_default()).to_owned(),
    }
}

fn article(kind: &str) -> &'static str {
    match kind {
        "null" => "null",
        "boolean" => "true or false",
        "number" => "a number",
        "integer" => "a whole number",
        "string" => "a text",
        "array" => "a list",
        _ => "an object",
    }
}

impl ValueKind {
    /// Its name, as written in project files.
    pub fn name(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Number => "number",
            Self::Integer => "integer",
            Self::Boolean => "boolean",
            Self::List => "list",
            Self::Object => "object",
            Self::Map => "map",
            Self::Any => "any",
            Self::File => "file",
        }
    }
    /// What a value of this type is, with an article: `a list`.
    pub fn with_article(self) -> &'static str {
        match self {
            Self::String => "a string",
            Self::Number => "a number",
            Self::Integer => "an integer",
            Self::Boolean => "`true` or `false`",
            Self::List => "a list",
            Self::Object | Self::Map => "an object",
            Self::Any => "any value",
            Self::File => "the path of a file",
        }
    }
}

impl FieldDef {
    /// Reads a value that arrives as text: a string as it is, any other type as JSON.
    ///
    /// # Errors
    /// The text is not a value of the field. The message does not contain the text.
    pub fn parse(&self, text: &str) -> Result<Json, String> {
        let wrong = || format!("{} is expected", self.kind.with_article());
        let value = match self.kind {
            ValueKind::String | ValueKind::File => Json::String(text.to_owned()),
            ValueKind::Boolean => match text.trim().to_ascii_lowercase().as_str() {
                "true" => Json::Bool(true),
                "false" => Json::Bool(false),
                _ => return Err(wrong()),
            },
            ValueKind::Any => serde_json::from_str(text).unwrap_or_else(|_| Json::String(text.to_owned())),
            _ => serde_json::from_str(text.trim()).map_err(|_| wrong())?,
        };
        self.check(&value)?;
        Ok(value)
    }

    /// Checks a value.
    ///
    /// # Errors
    /// The first violation, without the value itself, which may be secret.
    pub fn check(&self, value: &Json) -> Result<(), String> {
        match check(&self.schema, value).into_iter().next() {
            None => Ok(()),
            Some(violation) if violation.pointer.is_empty() => Err(violation.problem),
            Some(violation) => Err(format!("`{}`: {}", violation.pointer, violation.problem)),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use proptest::{
        collection::{btree_map, btree_set, vec},
        prelude::*,
        sample::select,
    };
    use serde_json::json;

    use super::*;

    /// Values with few different parts, so that many of them fit. A null in an object means "missing", which JSON Schema has no word for.
    fn values() -> impl Strategy<Value = Json> {
        let plain = prop_oneof![
            any::<bool>().prop_map(Json::from),
            (-2..4_i64).prop_map(Json::from),
            (-4..8_i32).prop_map(|half| Json::from(f64::from(half) / 2.0)),
            "[ab1]{0,3}".prop_map(Json::from),
        ];
        plain.prop_recursive(3, 24, 3, |inner| {
            let element = prop_oneof![4 => inner.clone(), 1 => Just(Json::Null)];
            prop_oneof![
                vec(element, 0..4).prop_map(Json::from),
                btree_map("[abc]", inner, 0..4).prop_map(|fields| Json::Object(fields.into_iter().collect())),
            ]
        })
    }

    /// Schemas of the keywords that are checked.
    fn schemas() -> impl Strategy<Value = Json> {
        let kind = || select(vec!["null", "boolean", "number", "integer", "string", "array", "object"]);
        let of_type = prop_oneof![
            kind().prop_map(|kind| json!({"type": kind})),
            btree_set(kind(), 1..3).prop_map(|kinds| json!({"type": kinds}))
        ];
        let bounds = (select(vec!["minimum", "maximum"]), -2..4_i64).prop_map(|(key, bound)| json!({key: bound}));
        let sizes = (select(vec!["minLength", "maxLength", "minItems", "maxItems"]), 0..4_u32)
            .prop_map(|(key, size)| json!({key: size}));
        let exact = prop_oneof![
            vec(values(), 1..4).prop_map(|values| json!({"enum": values})),
            values().prop_map(|value| json!({"const": value})),
            select(vec!["a", "^b", "[0-9]$", "^a+$"]).prop_map(|pattern| json!({"pattern": pattern})),
        ];
        let plain = prop_oneof![of_type.clone(), of_type, bounds, sizes, exact, any::<bool>().prop_map(Json::from)];
        plain.prop_recursive(3, 24, 4, |inner| {
            let of_fields = btree_map("[abc]", inner.clone(), 0..3);
            let others = prop_oneof![
                Just(None),
                any::<bool>().prop_map(|others| Some(json!(others))),
                inner.clone().prop_map(Some)
            ];
            let object = (of_fields, btree_set("[abc]", 0..2), others).prop_map(|(properties, required, others)| {
                let mut schema = json!({"properties": properties, "required": required});
                others.into_iter().for_each(|others| schema["additionalProperties"] = others);
                schema
            });
            prop_oneof![inner.prop_map(|items| json!({"items": items})), object]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(500) })]
        #[test]
        fn agrees_with_a_validator_of_json_schema(first in schemas(), second in schemas(), value in values()) {
            let mut schema = first;
            if let (Some(schema), Json::Object(second)) = (schema.as_object_mut(), second) {
                schema.extend(second);
            }
            let validator = jsonschema::draft202012::new(&schema).unwrap();
            prop_assert_eq!(check(&schema, &value).is_empty(), validator.is_valid(&value), "{} {}", schema, value);
        }
    }

    #[test]
    fn text_is_read_by_the_type_of_the_field() {
        let field = |kind: ValueKind, schema: Json| FieldDef {
            kind,
            description: "".into(),
            required: true,
            schema: schema.into(),
        };
        let parse = |kind, schema, text| field(kind, schema).parse(text);
        assert_eq!(parse(ValueKind::String, json!({"type": "string"}), "010"), Ok(json!("010")));
        assert_eq!(parse(ValueKind::Integer, json!({"type": "integer"}), " 10 "), Ok(json!(10)));
        assert_eq!(parse(ValueKind::Boolean, json!({"type": "boolean"}), "True"), Ok(json!(true)));
        assert_eq!(parse(ValueKind::List, json!({"type": "array"}), "[1]"), Ok(json!([1])));
        assert_eq!(parse(ValueKind::Any, json!({}), "plain"), Ok(json!("plain")));
        for (kind, schema, text) in [
            (ValueKind::Integer, json!({"type": "integer"}), "1.5"),
            (ValueKind::Number, json!({"type": "number"}), "NaN"),
            (ValueKind::Boolean, json!({"type": "boolean"}), "maybe"),
            (ValueKind::Object, json!({"type": "object"}), "[]"),
        ] {
            let error = parse(kind, schema, text).err();
            assert!(error.as_ref().is_some_and(|error| !error.contains(text)), "{error:?}");
        }
    }
}
