//! Tests of call steps: arguments from slots, results for output mappings.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
use async_trait::async_trait;
use tokio::sync::watch;

use super::*;
use crate::{EffectClass, Health, SourceError, Tool, ToolCatalog, ToolInfo, fixture::context};
use segue_base::{context::CallContext, effect::Arrival};

/// A source with the tool `it`, which returns this outcome; without an outcome, a source that cannot be listed.
struct FakeSource(Option<ToolOutcome>);

#[async_trait]
impl ToolSource for FakeSource {
    fn name(&self) -> &str {
        "s"
    }
    async fn list(&self, _: &CallContext) -> Result<ToolCatalog, SourceError> {
        let Some(outcome) = self.0.clone() else {
            let error = SourceError { source_name: "s".into(), reason: "is down".into() };
            return Err(error);
        };
        let schema = json!({"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}});
        let tool = Tool::from_fn(info(schema), move |_, _| std::future::ready(outcome.clone()));
        let excluded = vec![("bad".to_owned(), "its schema is invalid".to_owned())];
        Ok(ToolCatalog { version: 1, tools: vec![Arc::new(tool)], excluded })
    }
    fn changes(&self) -> watch::Receiver<u64> {
        watch::channel(0).1
    }
    fn status(&self) -> Health {
        Health::Unknown
    }
    async fn close(&self, _: &CallContext) {}
}

async fn run_step(source: FakeSource, tool: &str, arguments: Json) -> ToolResult {
    let step = FlowToolCall {
        server: "s".into(),
        tool: tool.into(),
        arguments: arguments.as_object().unwrap().clone(),
        flow_id: "f".into(),
        step_id: "1".into(),
    };
    run_call_step(&source, &step, &context(), None, &no_wrapper).await
}

fn reason_of(result: ToolResult) -> String {
    match result {
        ToolResult::Failed { reason } => format!("failed {reason}"),
        ToolResult::Unknown { reason } => format!("unknown {reason}"),
        ToolResult::NeedsInput { reason, slots } => format!("needs {slots:?} {reason}"),
        ToolResult::Done { result, .. } => panic!("{result}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_step_returns_the_result_or_the_reason_of_the_failure() {
    let output = ToolOutput { structured: Some(json!({"confirmed": true})), ..ToolOutput::default() };
    let step_result = run_step(FakeSource(Some(ToolOutcome::Done(output))), "it", json!({"n": 1.0})).await;
    let ToolResult::Done { result, .. } = step_result else { panic!("{step_result:?}") };
    assert_eq!(result["structuredContent"]["confirmed"], true);
    assert_eq!(result["content"], json!([]), "empty content is not a failure");

    let fails = || FakeSource(Some(ToolOutcome::failed(FailureKind::ToolError, "sold out")));
    assert_eq!(reason_of(run_step(fails(), "it", json!({"n": 1})).await), "failed tool_error: sold out");
    let lost = ToolOutcome::without_response(EffectClass::Write, Arrival::Possible, FailureKind::Timeout, "late");
    assert_eq!(reason_of(run_step(FakeSource(Some(lost)), "it", json!({"n": 1})).await), "unknown timeout: late");
    let bad = reason_of(run_step(fails(), "it", json!({"n": "many"})).await);
    assert!(bad.starts_with("failed bad_arguments: "), "{bad}");
    let missing = reason_of(run_step(fails(), "it", json!({})).await);
    assert!(missing.contains("lacks the required key `n`"), "{missing}");
    let absent = reason_of(run_step(fails(), "other", json!({})).await);
    assert_eq!(absent, "failed the server `s` lists no tool `other`");
    let excluded = reason_of(run_step(fails(), "bad", json!({})).await);
    assert_eq!(excluded, "failed the tool `bad` of `s` is excluded: its schema is invalid");
    assert_eq!(reason_of(run_step(FakeSource(None), "it", json!({})).await), "failed s: is down");
}

fn info(parameters: Json) -> ToolInfo {
    ToolInfo::new("it", "").parameters(parameters).effect(EffectClass::Read).source("s")
}

#[test]
fn obvious_conversions_to_the_schema_type_are_made() {
    let schema = json!({"type": "object", "required": ["kept"], "properties": {
        "count": {"type": "integer"}, "price": {"type": "number"}, "code": {"type": "string"},
        "flag": {"type": "boolean"}, "free": {}, "kept": {"type": ["string", "null"]}
    }});
    let arguments = json!({
        "count": 2.0, "price": "7.5", "code": 12.0, "flag": "True", "free": "3", "kept": null, "gone": null
    });
    let expected = json!({
        "count": 2, "price": 7.5, "code": "12", "flag": true, "free": "3", "kept": null
    });
    assert_eq!(Json::Object(convert_arguments(arguments.as_object().unwrap(), &info(schema))), expected);
}

#[test]
fn values_without_an_obvious_conversion_stay_unchanged() {
    let schema = json!({"type": "object", "properties": {"count": {"type": "integer"}, "flag": {"type": "boolean"}}});
    let arguments = json!({"count": 2.5, "flag": "yes"});
    assert_eq!(Json::Object(convert_arguments(arguments.as_object().unwrap(), &info(schema.clone()))), arguments);
    let arguments = json!({"count": "two"});
    assert_eq!(Json::Object(convert_arguments(arguments.as_object().unwrap(), &info(schema))), arguments);
}

#[test]
fn the_result_map_has_the_five_keys_of_output_mappings() {
    let output = ToolOutput {
        structured: Some(json!({"confirmed": true})),
        content: vec![json!({"type": "text", "text": "a"}), json!({"type": "text", "text": "b"})],
        meta: Map::from_iter([("m".to_owned(), json!(1))]),
        ..ToolOutput::default()
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
