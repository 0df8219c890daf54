//! Call steps: arguments from slots, results for output mappings.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
use super::*;
use crate::tools::{Effect, ToolSpec};

fn spec(parameters: Json) -> ToolSpec {
    ToolSpec {
        name: "it".into(),
        description: "".into(),
        parameters: Arc::new(parameters),
        strict: false,
        effect: Effect::Read,
        source: "s".into(),
    }
}

#[test]
fn slots_take_the_type_of_the_schema_where_it_is_obvious() {
    let schema = json!({"type": "object", "required": ["kept"], "properties": {
        "count": {"type": "integer"}, "price": {"type": "number"}, "code": {"type": "string"},
        "flag": {"type": "boolean"}, "free": {}, "kept": {"type": ["string", "null"]}
    }});
    let given = json!({
        "count": 2.0, "price": "7.5", "code": 12.0, "flag": "True", "free": "3", "kept": null, "gone": null
    });
    let expected = json!({
        "count": 2, "price": 7.5, "code": "12", "flag": true, "free": "3", "kept": null
    });
    assert_eq!(Json::Object(fitted(given.as_object().unwrap(), &spec(schema))), expected);
}

#[test]
fn what_is_not_obvious_stays_for_the_check() {
    let schema = json!({"type": "object", "properties": {"count": {"type": "integer"}, "flag": {"type": "boolean"}}});
    let given = json!({"count": 2.5, "flag": "yes"});
    assert_eq!(Json::Object(fitted(given.as_object().unwrap(), &spec(schema.clone()))), given);
    let given = json!({"count": "two"});
    assert_eq!(Json::Object(fitted(given.as_object().unwrap(), &spec(schema))), given);
}

#[test]
fn the_result_map_has_the_five_keys_of_output_mappings() {
    let output = ToolOutput {
        structured: Some(json!({"confirmed": true})),
        content: vec![json!({"type": "text", "text": "a"}), json!({"type": "text", "text": "b"})],
        meta: Map::from_iter([("m".to_owned(), json!(1))]),
    };
    assert_eq!(
        result_map(output),
        json!({
            "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
            "structuredContent": {"confirmed": true}, "isError": false, "meta": {"m": 1}, "text": "a\nb"
        })
    );
    assert_eq!(result_map(ToolOutput::default())["structuredContent"], Json::Null);
}
