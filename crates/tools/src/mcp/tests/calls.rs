//! Tests of calls that get a response: results, errors, progress.
use std::sync::{Arc, Mutex};

use serde_json::{Map, Value as Json, json};

use super::fake::{FakeConnection, FakeLog, server_with, tool, tool_entry, with_tools};
use crate::{
    EffectClass, FailureKind, Progress, ToolCallContext, ToolOutcome, ToolOutput, fixture::context, mcp::McpServer,
};

/// A server with the tools `w` (a write), `i` (idempotent) and `r` (a read).
fn server_with_three_tools(on_call: impl Fn(&Json, &FakeConnection) + Send + Sync + 'static) -> (McpServer, FakeLog) {
    let change = |def: &mut segue_engine::project::McpServerDef| {
        def.effects.insert("i".into(), "idempotent".into());
        def.effects.insert("r".into(), "read".into());
        def.meta_static.insert("tenant".into(), json!("north"));
    };
    let mut checked = tool_entry("w");
    checked["outputSchema"] = json!({"type": "object", "required": ["ok"]});
    server_with(change, with_tools(json!([checked, tool_entry("i"), tool_entry("r")]), on_call))
}

async fn outcome(result: Json) -> ToolOutcome {
    let (server, _) = server_with_three_tools(move |message, out| out.respond(message, result.clone()));
    let cx = ToolCallContext { effect: Some(EffectClass::Read), ..context() };
    tool(&server, "w", &cx).await.call(json!({}), &cx).await
}

fn failure(outcome: &ToolOutcome) -> (FailureKind, &str) {
    match outcome {
        ToolOutcome::Failed(failure) => (failure.kind, &failure.message),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn arguments_and_meta_arrive_unchanged() {
    let (server, log) = server_with_three_tools(|message, out| out.respond(message, json!({"content": []})));
    let meta = Map::from_iter([("user".to_owned(), json!("u-1")), ("nested".to_owned(), json!({"a": [1]}))]);
    let cx = ToolCallContext { meta: Arc::new(meta), idempotency_key: "key-1".into(), ..context() };
    tool(&server, "w", &cx).await.call(json!({"n": 1, "s": "ü"}), &cx).await;
    tool(&server, "i", &cx).await.call(json!({}), &cx).await;
    let calls: Vec<Json> = log
        .of("tools/call")
        .into_iter()
        .map(|mut params| {
            assert!(params["_meta"].as_object_mut().unwrap().remove("progressToken").is_some());
            params
        })
        .collect();
    let meta = json!({"tenant": "north", "user": "u-1", "nested": {"a": [1]}, "segue/idempotencyKey": "key-1"});
    assert_eq!(calls[0], json!({"name": "w", "arguments": {"n": 1, "s": "ü"}, "_meta": meta}));
    assert_eq!(calls[1]["_meta"]["segue/idempotencyKey"], "key-1");
    // A read needs no idempotency key.
    let cx = ToolCallContext { effect: Some(EffectClass::Read), ..cx };
    tool(&server, "w", &cx).await.call(json!({}), &cx).await;
    assert_eq!(log.of("tools/call")[2]["_meta"].get("segue/idempotencyKey"), None);
}

#[tokio::test(start_paused = true)]
async fn a_write_with_an_unusable_result_is_done() {
    let invalid = json!({"content": 7});
    for (effect, result) in
        [(EffectClass::Write, invalid.clone()), (EffectClass::Idempotent, json!([1])), (EffectClass::Read, invalid)]
    {
        let (server, _) = server_with_three_tools(move |message, out| out.respond(message, result.clone()));
        let cx = ToolCallContext { effect: Some(effect), ..context() };
        let outcome = tool(&server, "w", &cx).await.call(json!({}), &cx).await;
        match (effect, &outcome) {
            (EffectClass::Read, ToolOutcome::Failed(failure)) => assert_eq!(failure.kind, FailureKind::BadResult),
            (_, ToolOutcome::Done(output)) => {
                assert!(output.unusable.is_some());
                assert!(outcome.for_model().starts_with("done: It was carried out"), "{}", outcome.for_model());
            }
            other => panic!("{other:?}"),
        }
    }
    // A result with `isError` is an error even if its content is invalid.
    let result = json!({"isError": true, "content": 7});
    let (server, _) = server_with_three_tools(move |message, out| out.respond(message, result.clone()));
    let outcome = tool(&server, "w", &context()).await.call(json!({}), &context()).await;
    assert_eq!(failure(&outcome).0, FailureKind::ToolError);
}

#[tokio::test(start_paused = true)]
async fn results_are_unchanged() {
    let result = json!({
        "content": [{"type": "text", "text": "{\"ok\":1}"}, {"type": "image", "data": "AA==", "mimeType": "image/png"}],
        "structuredContent": {"ok": 1, "deep": {"a": [null, 2.5]}},
        "_meta": {"trace": "t"}
    });
    let expected = ToolOutput {
        structured: Some(result["structuredContent"].clone()),
        content: result["content"].as_array().unwrap().clone(),
        meta: result["_meta"].as_object().unwrap().clone(),
        ..ToolOutput::default()
    };
    assert_eq!(outcome(result).await, ToolOutcome::Done(expected));
    assert_eq!(outcome(json!({"content": []})).await, ToolOutcome::Done(ToolOutput::default()));
    assert_eq!(outcome(json!({})).await, ToolOutcome::Done(ToolOutput::default()));
}

#[tokio::test(start_paused = true)]
async fn content_parts_of_unknown_types_are_not_a_failure() {
    let part = json!({"type": "hologram", "size": 3});
    let outcome = outcome(json!({"content": [part]})).await;
    assert_eq!(outcome.for_model(), "(a part of kind hologram; not shown)");
}

#[tokio::test(start_paused = true)]
async fn is_error_results_are_tool_errors() {
    let with_text = outcome(json!({"isError": true, "content": [{"type": "text", "text": "sold out"}]})).await;
    assert_eq!(failure(&with_text), (FailureKind::ToolError, "sold out"));
    let empty = outcome(json!({"isError": true, "content": []})).await;
    assert_eq!(failure(&empty).0, FailureKind::ToolError);
    let structured = outcome(json!({"isError": true, "structuredContent": {"code": 7}, "content": []})).await;
    assert_eq!(failure(&structured).1, r#"{"code":7}"#);
}

#[tokio::test(start_paused = true)]
async fn invalid_results_are_bad_results() {
    let broken = outcome(json!({"content": [], "structuredContent": {"no": 1}})).await;
    assert_eq!(failure(&broken).0, FailureKind::BadResult);
    assert!(failure(&broken).1.contains("lacks the required key `ok`"), "{broken:?}");
    for garbage in [json!({"content": 7}), json!({"surprise": true}), json!([1]), json!("text")] {
        assert_eq!(failure(&outcome(garbage.clone()).await).0, FailureKind::BadResult, "{garbage}");
    }
    let input_required = json!({"resultType": "input_required", "inputRequests": {}});
    assert_eq!(failure(&outcome(input_required).await).0, FailureKind::Refused);
}

#[tokio::test(start_paused = true)]
async fn json_rpc_errors_are_classified_by_their_code() {
    let answer = |code: i32| {
        let (server, log) = server_with_three_tools(move |message, out| {
            let error = json!({"code": code, "message": "not so"});
            out.send(&json!({"jsonrpc": "2.0", "id": message["id"], "error": error}));
        });
        async move {
            let outcome = tool(&server, "r", &context()).await.call(json!({}), &context()).await;
            assert_eq!(log.of("tools/call").len(), 1, "a call with a response is not sent again");
            outcome
        }
    };
    assert_eq!(failure(&answer(-32602).await), (FailureKind::BadArguments, "not so"));
    assert_eq!(failure(&answer(-32000).await), (FailureKind::ToolError, "not so"));
}

#[tokio::test(start_paused = true)]
async fn progress_notifications_are_forwarded_with_a_limited_rate() {
    let (server, _) = server_with_three_tools(|message, out| {
        let token = message["params"]["_meta"]["progressToken"].clone();
        for done in 0..50 {
            out.send(&json!({
                "jsonrpc": "2.0", "method": "notifications/progress",
                "params": {"progressToken": token, "progress": done, "total": 50, "message": "working"}
            }));
        }
        out.send(&json!({
            "jsonrpc": "2.0", "method": "notifications/progress",
            "params": {"progressToken": "another call", "progress": 1}
        }));
        let (message, out) = (message.clone(), out.clone());
        tokio::spawn(async move {
            tokio::time::advance(segue_base::limits::MCP_PROGRESS).await;
            out.respond(&message, json!({"content": []}));
        });
    });
    let received: Arc<Mutex<Vec<Progress>>> = Arc::default();
    let sink = received.clone();
    let cx = ToolCallContext { progress: Some(Arc::new(move |piece| sink.lock().unwrap().push(piece))), ..context() };
    tool(&server, "r", &cx).await.call(json!({}), &cx).await;
    let received = received.lock().unwrap();
    assert!((1..=2).contains(&received.len()), "{received:?}");
    assert_eq!((received[0].total, received[0].message.as_deref()), (Some(50.0), Some("working")));
}

#[tokio::test(start_paused = true)]
async fn concurrent_calls_get_their_own_results() {
    // The server responds in the reverse order of the calls.
    let waiting: Mutex<Vec<(Json, FakeConnection)>> = Mutex::new(Vec::new());
    let (server, _) = server_with_three_tools(move |message, out| {
        let mut waiting = waiting.lock().unwrap();
        waiting.push((message.clone(), out.clone()));
        if waiting.len() == 10 {
            for (message, out) in waiting.drain(..).rev() {
                let n = message["params"]["arguments"]["n"].clone();
                out.respond(&message, json!({"content": [], "structuredContent": {"n": n}}));
            }
        }
    });
    let cx = context();
    let read = tool(&server, "r", &cx).await;
    let calls = (0..10).map(|n| read.call(json!({"n": n}), &cx));
    for (n, outcome) in futures::future::join_all(calls).await.into_iter().enumerate() {
        assert_eq!(outcome, ToolOutcome::Done(ToolOutput::structured(json!({"n": n}))));
    }
}
