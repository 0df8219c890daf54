//! Tests of the requests that a server sends during a call: for which call they are answered, and what becomes of a call
//! whose form was not answered.
use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use serde_json::{Map, Value as Json, json};

use super::fake::{FakeConnection, FakeLog, server_with, tool, tool_entry, with_tools};
use crate::{
    ClientRequestHandler, ElicitationRequest, ElicitationResponse, FailureKind, FormField, ToolCallContext,
    ToolOutcome, ToolOutput, fixture::context, mcp::McpServer,
};
use segue_base::context::CallContext;

/// The user of a call: fills the field `account` of each form, or leaves it open.
struct User(Option<&'static str>);

#[async_trait]
impl ClientRequestHandler for User {
    fn elicit(&self, _: &ElicitationRequest) -> ElicitationResponse {
        match self.0 {
            Some(account) => ElicitationResponse::Accept(Map::from_iter([("account".to_owned(), json!(account))])),
            None => ElicitationResponse::Missing(vec![FormField::without_value("account")]),
        }
    }
    async fn sample(&self, _: Json, _: &CallContext) -> Result<Json, String> {
        Err("there is no model".to_owned())
    }
}

fn of(user: User) -> ToolCallContext {
    ToolCallContext { client_requests: Some(Arc::new(user)), ..context() }
}

fn form(schema: &Json) -> Json {
    json!({
        "jsonrpc": "2.0", "id": "form", "method": "elicitation/create",
        "params": {"message": "Which account?", "requestedSchema": schema}
    })
}

fn account() -> Json {
    json!({"type": "object", "properties": {"account": {"type": "string"}}, "required": ["account"]})
}

/// A server that may send forms, with the tools `w` (a write) and `r` (a read).
fn server_with_forms(on_message: impl Fn(&Json, &FakeConnection) + Send + Sync + 'static) -> (McpServer, FakeLog) {
    let change = |def: &mut segue_engine::project::McpServerDef| {
        def.elicitation.insert("account".into(), "account".into());
        def.effects.insert("r".into(), "read".into());
    };
    let tools = with_tools(json!([tool_entry("w"), tool_entry("r")]), |_, _| {});
    server_with(change, move |message, out| {
        tools(message, out);
        on_message(message, out);
    })
}

/// The responses of the client to forms.
fn answers(log: &FakeLog) -> Vec<Json> {
    log.all(|message| message["id"] == "form").into_iter().map(|message| message["result"].clone()).collect()
}

async fn wait_for_answers(log: &FakeLog, count: usize) -> Vec<Json> {
    for _ in 0..10_000 {
        if answers(log).len() >= count {
            break;
        }
        tokio::task::yield_now().await;
    }
    answers(log)
}

fn declined() -> Json {
    json!({"action": "decline"})
}

fn accepted(account: &str) -> Json {
    json!({"action": "accept", "content": {"account": account}})
}

#[tokio::test(start_paused = true)]
async fn a_form_is_answered_only_if_no_other_call_can_have_asked_for_it() {
    // The server never responds to calls; the test sends the forms.
    let connection: Arc<std::sync::Mutex<Option<FakeConnection>>> = Arc::default();
    let (server, log) = server_with_forms({
        let connection = connection.clone();
        move |_, out| *connection.lock().unwrap() = Some(out.clone())
    });
    let write = tool(&server, "w", &context()).await;
    let ask = || connection.lock().unwrap().as_ref().unwrap().send(&form(&account()));
    let respond = |number: usize| {
        let calls = log.all(|message| message["method"] == "tools/call");
        connection.lock().unwrap().as_ref().unwrap().respond(&calls[number], json!({"content": []}));
    };

    // A call without a user, such as one of a sub-agent in the background, beside one with a user.
    let (alone, a) = (context(), of(User(Some("a"))));
    let mut without_user = write.call(json!({}), &alone);
    let mut with_user = write.call(json!({}), &a);
    let both = async { tokio::join!(&mut without_user, &mut with_user) };
    let asked = async {
        log.wait_for("tools/call", 2).await;
        ask();
        assert_eq!(wait_for_answers(&log, 1).await, [declined()]);
    };
    tokio::select! { biased; _ = both => panic!("the server does not respond"), () = asked => {} }
    respond(0);
    without_user.await;
    let asked = async {
        ask();
        assert_eq!(wait_for_answers(&log, 2).await[1], accepted("a"));
    };
    tokio::select! { biased; _ = &mut with_user => panic!("the server does not respond"), () = asked => {} }

    // The time of the call is over, but the server goes on with it: the next call does not answer for it.
    drop(with_user);
    log.wait_for("notifications/cancelled", 1).await;
    ask();
    assert_eq!(wait_for_answers(&log, 3).await[2], declined());
    let b = of(User(Some("b")));
    let mut next = write.call(json!({}), &b);
    let asked = async {
        log.wait_for("tools/call", 3).await;
        ask();
        assert_eq!(wait_for_answers(&log, 4).await[3], declined());
        // The late response ends the first call.
        respond(1);
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        ask();
        assert_eq!(wait_for_answers(&log, 5).await[4], accepted("b"));
    };
    tokio::select! { biased; _ = &mut next => panic!("the server does not respond"), () = asked => {} }
}

#[tokio::test(start_paused = true)]
async fn a_form_without_its_values_asks_the_user_whatever_the_server_makes_of_it() {
    let said = json!({"result": {"content": [{"type": "text", "text": "The user cancelled."}]}});
    let cases = [
        ("r", said.clone()),
        ("w", said),
        ("w", json!({"result": {"content": [{"type": "text", "text": "No account."}], "isError": true}})),
        ("r", json!({"result": {"content": [], "structuredContent": {"booked": false}}})),
        ("w", json!({"error": {"code": -32603, "message": "no account"}})),
        ("r", Json::Null),
        ("w", Json::Null),
    ];
    for (name, result) in cases {
        let shown = format!("{name} {result}");
        let is_in_doubt = name == "w" && result.is_null();
        let call_id: Arc<std::sync::Mutex<Json>> = Arc::default();
        let (server, log) = server_with_forms(move |message, out| match message["method"].as_str() {
            Some("tools/call") => {
                *call_id.lock().unwrap() = message["id"].clone();
                out.send(&form(&account()));
            }
            Some("on_answer") if !result.is_null() => {
                let mut response = result.clone();
                response["jsonrpc"] = json!("2.0");
                response["id"] = call_id.lock().unwrap().clone();
                out.send(&response);
            }
            _ => {}
        });
        let cx = of(User(None));
        let cx = ToolCallContext { cx: cx.cx.with_timeout(Duration::from_secs(5)), ..cx };
        let outcome = tool(&server, name, &context()).await.call(json!({}), &cx).await;
        assert_eq!(answers(&log), [json!({"action": "cancel"})], "{shown}");
        match outcome {
            ToolOutcome::Failed(failure) if !is_in_doubt => assert_eq!(failure.missing_fields, ["account"], "{shown}"),
            ToolOutcome::Unknown(failure) if is_in_doubt => assert_eq!(failure.kind, FailureKind::Timeout),
            other => panic!("{shown}: {other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_that_is_silent_after_a_cancelled_form_is_replaced_unless_it_may_be_working() {
    // It asks for the account in each call of `w`, and never responds to calls.
    let asks = |message: &Json, out: &FakeConnection| {
        if message["method"] == "tools/call" && message["params"]["name"] == "w" {
            out.send(&form(&account()));
        }
    };
    let (server, log) = server_with_forms(asks);
    let write = tool(&server, "w", &context()).await;
    let within = |user: User| {
        let cx = of(user);
        ToolCallContext { cx: cx.cx.with_timeout(Duration::from_secs(5)), ..cx }
    };
    write.call(json!({}), &within(User(None))).await;
    write.call(json!({}), &within(User(Some("a")))).await;
    assert_eq!((answers(&log), log.sessions()), (vec![json!({"action": "cancel"}), accepted("a")], 2));
    // The second call got its values, so the server may be working on it.
    write.call(json!({}), &within(User(Some("b")))).await;
    assert_eq!((answers(&log)[2].clone(), log.sessions()), (declined(), 2));

    // So may it on a call that asked for nothing.
    let (server, log) = server_with_forms(asks);
    let (write, read) = (tool(&server, "w", &context()).await, tool(&server, "r", &context()).await);
    read.call(json!({}), &within(User(Some("a")))).await;
    write.call(json!({}), &within(User(None))).await;
    write.call(json!({}), &within(User(Some("b")))).await;
    assert_eq!((answers(&log), log.sessions()), (vec![declined(), declined()], 1));
}

#[tokio::test(start_paused = true)]
async fn a_form_of_any_shape_is_answered_or_declined() {
    let odd = [
        (
            json!({"type": "object", "properties": {"account": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}),
            accepted("a"),
        ),
        (json!({"type": "object", "properties": {"account": {"type": "string", "format": "phone"}}}), accepted("a")),
        (
            json!({"type": "object", "properties": {"account": {"type": ["string", "null"], "x-order": 1}}}),
            accepted("a"),
        ),
        // The values do not match, or the form cannot be read.
        (
            json!({"type": "object", "properties": {"account": {"type": "array", "items": {"type": "object"}}}}),
            declined(),
        ),
        (json!({"type": "object", "properties": {"account": {"type": "text"}}}), declined()),
        (json!({"type": "object", "properties": 7}), declined()),
        (json!("a form"), declined()),
        (Json::Null, declined()),
    ];
    for (schema, expected) in odd {
        let call_id: Arc<std::sync::Mutex<Json>> = Arc::default();
        let shown = schema.to_string();
        let (server, log) = server_with_forms(move |message, out| match message["method"].as_str() {
            Some("tools/call") => {
                *call_id.lock().unwrap() = message["id"].clone();
                out.send(&form(&schema));
            }
            Some("on_answer") => {
                let id = call_id.lock().unwrap().clone();
                out.send(&json!({"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": "ok"}]}}));
            }
            _ => {}
        });
        let cx = of(User(Some("a")));
        let outcome = tool(&server, "r", &cx).await.call(json!({}), &cx).await;
        assert_eq!(outcome, ToolOutcome::Done(ToolOutput::text("ok")), "{shown}");
        assert_eq!(answers(&log), [expected], "{shown}");
    }
}

/// A server whose calls ask with this form, and then return what `result` says.
fn asking_server(schema: Json, result: Json) -> (McpServer, FakeLog) {
    let call_id: Arc<std::sync::Mutex<Json>> = Arc::default();
    server_with_forms(move |message, out| match message["method"].as_str() {
        Some("tools/call") => {
            *call_id.lock().unwrap() = message["id"].clone();
            out.send(&form(&schema));
        }
        Some("on_answer") => {
            let mut response = result.clone();
            response["jsonrpc"] = json!("2.0");
            response["id"] = call_id.lock().unwrap().clone();
            out.send(&response);
        }
        _ => {}
    })
}

/// A user who is never to be asked.
struct Unasked;

#[async_trait]
impl ClientRequestHandler for Unasked {
    fn elicit(&self, request: &ElicitationRequest) -> ElicitationResponse {
        panic!("the user is asked for {}", request.schema)
    }
    fn fills(&self, field: &str) -> bool {
        field == "account"
    }
    async fn sample(&self, _: Json, _: &CallContext) -> Result<Json, String> {
        Err("there is no model".to_owned())
    }
}

#[tokio::test(start_paused = true)]
async fn a_form_that_cannot_be_presented_is_declined_before_anybody_is_asked() {
    let of_field =
        |field: Json| json!({"type": "object", "properties": {"account": field}, "$defs": {"a": {"type": "string"}}});
    let reference = json!({"$ref": "#/$defs/a"});
    let cases = [
        (of_field(reference.clone()), "`account`: `$ref` is not supported"),
        (of_field(json!({"anyOf": [reference, {"type": "null"}]})), "`account`: `$ref` is not supported"),
        (of_field(json!({"type": "array", "items": {"$ref": "#/$defs/a"}})), "`account`: `$ref` is not supported"),
        (of_field(json!({"allOf": [{"type": "string"}]})), "`account`: `allOf` is not supported"),
        (of_field(json!({"type": "object", "properties": {}})), "`account`: `properties` is not supported"),
        (of_field(json!({"type": "object"})), "`account`: \"object\" is not supported"),
        (of_field(json!({"type": ["null"]})), "`account`: [\"null\"] is not supported"),
        (of_field(json!({"anyOf": [{"type": "object"}, {"type": "null"}]})), "`account`: \"object\" is not supported"),
        (of_field(json!({"type": "text"})), "`account`: \"text\" is not supported"),
        (
            json!({"type": "object", "properties": {"account": {"type": "string"}}, "required": ["account", "plan"]}),
            "`plan`: It is required",
        ),
        (json!({"type": "object", "required": ["account"]}), "`account`: It is required"),
        (json!({"$ref": "#/$defs/a", "$defs": {"a": {"type": "object"}}}), "declined: `$ref` is not supported"),
    ];
    for (schema, cause) in cases {
        let shown = schema.to_string();
        let no = json!({"result": {"content": [{"type": "text", "text": "no account"}], "isError": true}});
        let (server, log) = asking_server(schema, no);
        let cx = ToolCallContext { client_requests: Some(Arc::new(Unasked)), ..context() };
        let outcome = tool(&server, "w", &cx).await.call(json!({}), &cx).await;
        assert_eq!(answers(&log), [declined()], "{shown}");
        let ToolOutcome::Failed(failure) = outcome else { panic!("{shown}: {outcome:?}") };
        assert!(failure.message.contains(cause) && failure.message.contains("no account"), "{}", failure.message);
    }
    // A field that is left out may have any schema.
    let schema =
        json!({"type": "object", "properties": {"note": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"type": "string"}}});
    let (server, log) = asking_server(schema, json!({"result": {"content": []}}));
    struct Leaves;
    #[async_trait]
    impl ClientRequestHandler for Leaves {
        fn elicit(&self, _: &ElicitationRequest) -> ElicitationResponse {
            ElicitationResponse::Accept(Map::new())
        }
        fn fills(&self, _: &str) -> bool {
            false
        }
        async fn sample(&self, _: Json, _: &CallContext) -> Result<Json, String> {
            Err("there is no model".to_owned())
        }
    }
    let cx = ToolCallContext { client_requests: Some(Arc::new(Leaves)), ..context() };
    tool(&server, "w", &cx).await.call(json!({}), &cx).await;
    assert_eq!(answers(&log), [json!({"action": "accept", "content": {}})]);
}

#[tokio::test(start_paused = true)]
async fn a_call_without_a_user_whose_form_was_declined_is_not_done_and_names_the_field() {
    let said = json!({"content": [{"type": "text", "text": "The user declined."}]});
    let error = json!({"content": [{"type": "text", "text": "The user declined."}], "isError": true});
    let cases = [
        ("w", json!({"result": said}), "unknown"),
        ("w", json!({"result": error}), "failed"),
        ("w", json!({"error": {"code": -32603, "message": "The user declined."}}), "unknown"),
        ("w", json!({"error": {"code": -32602, "message": "The user declined."}}), "failed"),
        ("r", json!({"result": error}), "failed"),
    ];
    for (name, result, expected) in cases {
        let shown = format!("{name} {result}");
        let (server, log) = asking_server(account(), result);
        let cx = context();
        let outcome = tool(&server, name, &cx).await.call(json!({}), &cx).await;
        assert_eq!(answers(&log), [declined()], "{shown}");
        let (status, failure) = match outcome {
            ToolOutcome::Failed(failure) => ("failed", failure),
            ToolOutcome::Unknown(failure) => ("unknown", failure),
            other => panic!("{shown}: {other:?}"),
        };
        assert_eq!(status, expected, "{shown}");
        assert!(failure.message.contains("`account`: Nobody can be asked here."), "{}", failure.message);
        assert!(failure.message.contains("The user declined."), "{}", failure.message);
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_proves_that_a_write_was_not_done_only_if_it_rejects_the_request() {
    let codes = [-32700, -32600, -32601, -32602, -32603, -32000, -32001, 500, 0];
    let (server, _) = server_with_forms(move |message, out| {
        if let (Some("tools/call"), Some(at)) =
            (message["method"].as_str(), message["params"]["arguments"]["n"].as_u64())
        {
            let error = json!({"code": codes[at as usize], "message": "no"});
            out.send(&json!({"jsonrpc": "2.0", "id": message["id"], "error": error}));
        }
    });
    let cx = context();
    for (at, code) in codes.into_iter().enumerate() {
        let is_rejected = (-32602..=-32600).contains(&code) || code == -32700;
        let outcome = tool(&server, "w", &cx).await.call(json!({"n": at}), &cx).await;
        assert_eq!(matches!(outcome, ToolOutcome::Failed(_)), is_rejected, "{code}: {outcome:?}");
        assert_eq!(matches!(outcome, ToolOutcome::Unknown(_)), !is_rejected, "{code}: {outcome:?}");
        let outcome = tool(&server, "r", &cx).await.call(json!({"n": at}), &cx).await;
        assert!(matches!(outcome, ToolOutcome::Failed(_)), "{code}: {outcome:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn results_with_broken_characters_count() {
    let (server, _) = server_with_forms(|message, out| {
        if message["method"] == "tools/call" {
            let start = format!(
                "\u{feff}{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{{\"content\":[{{\"type\":\"text\",\"text\":\"cut ",
                message["id"]
            );
            out.raw(&[start.as_bytes(), b"\\ud83d \xff\"}]}}\n"].concat());
        }
    });
    let cx = context();
    let outcome = tool(&server, "w", &cx).await.call(json!({}), &cx).await;
    assert_eq!(outcome, ToolOutcome::Done(ToolOutput::text("cut \u{FFFD} \u{FFFD}")));
}
