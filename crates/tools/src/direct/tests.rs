//! Call steps: arguments from slots, results for output mappings.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
use futures::future::BoxFuture;
use tokio::sync::watch;

use super::*;
use crate::{EffectClass, SourceError, SourceStatus, Tool, ToolCatalog, ToolInfo, fixture::context};
use segue_base::{context::CallContext, effect::Arrival};

/// A server with one tool that gives this outcome, or one that does not answer.
struct Source(Option<ToolOutcome>);

impl ToolSource for Source {
    fn name(&self) -> &str {
        "s"
    }
    fn list<'a>(&'a self, _: &'a CallContext) -> BoxFuture<'a, Result<ToolCatalog, SourceError>> {
        let Some(outcome) = self.0.clone() else {
            let error = SourceError { source_name: "s".into(), reason: "is down".into() };
            return Box::pin(std::future::ready(Err(error)));
        };
        let schema = json!({"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}});
        let tool = Tool::from_fn(spec(schema), move |_, _| std::future::ready(outcome.clone()));
        let excluded = vec![("bad".to_owned(), "its schema is not valid".to_owned())];
        Box::pin(std::future::ready(Ok(ToolCatalog { version: 1, tools: vec![Arc::new(tool)], excluded })))
    }
    fn changes(&self) -> watch::Receiver<u64> {
        watch::channel(0).1
    }
    fn status(&self) -> SourceStatus {
        SourceStatus::Unknown
    }
    fn close<'a>(&'a self, _: &'a CallContext) -> BoxFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }
}

async fn step(source: Source, tool: &str, arguments: Json) -> ToolResult {
    let step = FlowToolCall {
        server: "s".into(),
        tool: tool.into(),
        arguments: arguments.as_object().unwrap().clone(),
        flow_id: "f".into(),
        step_id: "1".into(),
    };
    call_step(&source, &step, &context(), None, &unwrapped).await
}

fn reason(result: ToolResult) -> String {
    match result {
        ToolResult::Failed { reason } => format!("failed {reason}"),
        ToolResult::Unknown { reason } => format!("unknown {reason}"),
        ToolResult::NeedsInput { reason, slots } => format!("wants {slots:?} {reason}"),
        ToolResult::Done { result } => panic!("{result}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_step_gets_the_whole_result_or_a_reason() {
    let output = ToolOutput { structured: Some(json!({"confirmed": true})), ..ToolOutput::default() };
    let answered = step(Source(Some(ToolOutcome::Done(output))), "it", json!({"n": 1.0})).await;
    let ToolResult::Done { result } = answered else { panic!("{answered:?}") };
    assert_eq!(result["structuredContent"]["confirmed"], true);
    assert_eq!(result["content"], json!([]), "no content is no failure");

    let fails = || Source(Some(ToolOutcome::failed(FailureKind::ToolError, "sold out")));
    assert_eq!(reason(step(fails(), "it", json!({"n": 1})).await), "failed tool_error: sold out");
    let lost = ToolOutcome::unanswered(EffectClass::Write, Arrival::Possible, FailureKind::Timeout, "late");
    assert_eq!(reason(step(Source(Some(lost)), "it", json!({"n": 1})).await), "unknown timeout: late");
    let bad = reason(step(fails(), "it", json!({"n": "many"})).await);
    assert!(bad.starts_with("failed bad_arguments: "), "{bad}");
    let missing = reason(step(fails(), "it", json!({})).await);
    assert!(missing.contains("lacks the required key `n`"), "{missing}");
    let absent = reason(step(fails(), "other", json!({})).await);
    assert_eq!(absent, "failed the server `s` lists no tool `other`");
    let excluded = reason(step(fails(), "bad", json!({})).await);
    assert_eq!(excluded, "failed the tool `bad` of `s` is left out: its schema is not valid");
    assert_eq!(reason(step(Source(None), "it", json!({})).await), "failed s: is down");
}

fn spec(parameters: Json) -> ToolInfo {
    ToolInfo::new("it", "").parameters(parameters).effect(EffectClass::Read).source("s")
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
