//! The REST channel over a socket: responses, streams, authentication, deduplication, errors, overload.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use segue::{
    agents::{Agent, AgentError, AgentResult, AgentRun},
    async_trait,
    effect::EffectClass,
    runtime::{Assistant, AssistantBuilder},
    server,
    tools::{Tool, ToolCallContext, ToolHandler, ToolInfo, ToolOutcome, ToolOutput, Toolbox},
};
use serde_json::{Value as Json, json};
use tokio::sync::Notify;

use crate::{project, support::server_process::client};

/// A tool that blocks until the test releases it, and counts its calls.
struct BlockingTool {
    spec: ToolInfo,
    release: Notify,
    calls: AtomicUsize,
}

impl BlockingTool {
    fn new() -> Arc<Self> {
        let parameters = json!({"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]});
        let spec = ToolInfo::new("look_up", "Looks into the depot.").parameters(parameters).effect(EffectClass::Read);
        Arc::new(Self { spec, release: Notify::new(), calls: AtomicUsize::new(0) })
    }
}

#[async_trait]
impl ToolHandler for BlockingTool {
    fn info(&self) -> &ToolInfo {
        &self.spec
    }
    async fn call(&self, _: Json, _: &ToolCallContext) -> ToolOutcome {
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.release.notified().await;
        ToolOutcome::Done(ToolOutput::text("three parcels"))
    }
}

/// A server on a free port, with the project `courier`.
struct TestServer {
    address: String,
    tool: Arc<BlockingTool>,
    assistant: Assistant,
    client: reqwest::Client,
}

impl TestServer {
    async fn start(credentials: &Json) -> Self {
        Self::start_with(credentials, |builder| builder).await
    }

    async fn start_with(credentials: &Json, parts: impl FnOnce(AssistantBuilder) -> AssistantBuilder) -> Self {
        let tool = BlockingTool::new();
        let builder = parts(Assistant::builder(project("courier")).unwrap_or_else(|error| panic!("{error}")));
        let assistant =
            builder.source(Arc::new(Toolbox::new("depot", [Tool::from_handler(tool.clone())]))).build().unwrap();
        let channels = crate::channels(credentials);
        let listener = server::listen(&server::ServerSettings::new().port(0)).await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let router = server::router(&assistant, &channels);
        let serving = assistant.clone();
        tokio::spawn(async move { server::serve(listener, router, &serving, std::future::pending()).await });
        Self { address, tool, assistant, client: client() }
    }

    fn post(&self, query: &str, body: &Json) -> reqwest::RequestBuilder {
        self.client.post(format!("{}/webhooks/rest/webhook{query}", self.address)).body(body.to_string())
    }

    /// Posts a message that must succeed. Returns the body of the response.
    async fn replies(&self, body: &Json) -> Json {
        let response = self.post("", body).send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert!(response.headers().get("x-turn-error").is_none());
        serde_json::from_str(&response.text().await.unwrap()).unwrap()
    }
}

fn message(text: &str) -> Json {
    json!({"sender": "u1", "message": text})
}

#[tokio::test]
async fn response_is_an_array_of_messages() {
    let server = TestServer::start(&json!({})).await;
    assert_eq!(
        server.replies(&message("track it")).await,
        json!([
            {"recipient_id": "u1", "text": "Which parcel?"},
            {"recipient_id": "u1", "text": "The number stands on your receipt."},
        ])
    );
    let buttons = server.replies(&json!({"message": "send", "sender": "u2"})).await;
    assert_eq!(
        buttons[0],
        json!({"recipient_id": "u2", "text": "How fast?", "buttons": [
            {"title": "Express", "payload": "/SetSlots(parcel=EX1)"},
            {"title": "Slow", "payload": "/SetSlots(parcel=SL2)"},
        ]})
    );
    // A body without sender, and with an empty message, is accepted.
    let empty = server.replies(&json!({"message": null})).await;
    assert_eq!(empty[0]["recipient_id"], "default");
}

#[tokio::test]
async fn status_route_and_refused_requests() {
    let server = TestServer::start(&json!({"rest": {"auth_token": "t0k"}})).await;
    let status = server.client.get(format!("{}/webhooks/rest/", server.address)).send().await.unwrap();
    assert_eq!(status.text().await.unwrap(), r#"{"status":"ok"}"#);
    let anonymous = server.post("", &message("track")).send().await.unwrap();
    assert_eq!(anonymous.status(), 401);
    let authenticated = server.post("", &message("track")).header("authorization", "Bearer t0k").send().await.unwrap();
    assert_eq!(authenticated.status(), 200);
    let token = ("authorization", "Bearer t0k");
    let url = format!("{}/webhooks/rest/webhook", server.address);
    let invalid = server.client.post(&url).header(token.0, token.1).body("{").send().await.unwrap();
    assert_eq!(invalid.status(), 400);
    assert!(invalid.text().await.unwrap().contains("sender"), "the message shows what is expected");
    let large = "x".repeat(segue::limits::HTTP_BODY + 1);
    let large = server.client.post(&url).header(token.0, token.1).body(large).send().await.unwrap();
    assert_eq!(large.status(), 413);
}

#[tokio::test]
async fn streamed_filler_arrives_before_the_tool_returns() {
    for (query, first, last) in [
        ("?stream=true", "{\"recipient_id\":\"u1\",\"text\":\"One moment, I look into the depot.\"", "three parcels"),
        ("?stream=deltas", "\"type\":\"message_end\"", "\"type\":\"turn_finished\""),
        ("?stream=sse", "event: message_end\ndata: {", "event: turn_finished\ndata: {"),
    ] {
        let server = TestServer::start(&json!({})).await;
        let mut response = server.post(query, &message("what is in the depot?")).send().await.unwrap();
        let mut received = String::new();
        while !received.contains(first) {
            let chunk = response.chunk().await.unwrap().expect("the stream continues");
            received.push_str(std::str::from_utf8(&chunk).unwrap());
        }
        // The tool still runs: it is released only now.
        assert!(!received.contains("three parcels"), "{received}");
        server.tool.release.notify_one();
        while let Some(chunk) = response.chunk().await.unwrap() {
            received.push_str(std::str::from_utf8(&chunk).unwrap());
        }
        assert!(received.contains(last) && received.contains("The depot has three parcels."), "{query}: {received}");
        if query == "?stream=deltas" {
            let events: Vec<Json> = received.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            assert_eq!(events[0]["type"], "turn_started");
            let filler = events.iter().find(|event| event["type"] == "message_end").unwrap();
            assert_eq!((&filler["filler"], &filler["message"]["recipient_id"]), (&json!(true), &json!("u1")));
        }
    }
}

/// The next event of a stream of server-sent events: its id, and its data.
async fn next_event(stream: &mut reqwest::Response, received: &mut String) -> (String, Json) {
    loop {
        if let Some((event, rest)) =
            received.split_once("\n\n").map(|(event, rest)| (event.to_owned(), rest.to_owned()))
        {
            *received = rest;
            let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
            match (field("id: "), field("data: ")) {
                (Some(id), Some(data)) => return (id, serde_json::from_str(&data).unwrap()),
                // A heartbeat.
                _ => continue,
            }
        }
        let chunk = stream.chunk().await.unwrap().expect("the stream continues");
        received.push_str(std::str::from_utf8(&chunk).unwrap());
    }
}

#[tokio::test]
async fn a_stopped_turn_ends_for_every_reader_and_its_answer_never_comes() {
    let server = TestServer::start(&json!({})).await;
    let url = |path: &str| format!("{}/webhooks/rest/{path}", server.address);
    let stop = async |body: Json| {
        let response = server.client.post(url("stop")).body(body.to_string()).send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    };
    let idle = stop(json!({"sender": "u1"})).await;
    assert_eq!(idle, (200, r#"{"stopped":false}"#.to_owned()));
    let mut reader = server.client.get(url("events?sender=u1&after=0")).send().await.unwrap();
    assert_eq!(reader.headers()["content-type"], "text/event-stream");
    let mut response = server.post("?stream=sse", &message("what is in the depot?")).send().await.unwrap();
    response.chunk().await.unwrap().expect("the stream begins");
    // The client leaves, and somebody else stops the turn.
    drop(response);
    let (mut received, mut ids, mut kinds) = (String::new(), Vec::new(), Vec::new());
    while server.tool.calls.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(stop(json!({"sender": "u1", "turn_id": "t_9"})).await.1, r#"{"stopped":false}"#);
    assert_eq!(stop(json!({"sender": "u1", "turn_id": "t_1"})).await.1, r#"{"stopped":true}"#);
    while kinds.last().is_none_or(|kind| kind != "turn_finished") {
        let (id, event) = next_event(&mut reader, &mut received).await;
        ids.push(id);
        kinds.push(event["type"].as_str().unwrap().to_owned());
        if kinds.last().unwrap() == "user_message" {
            assert_eq!((&event["text"], &event["turn_id"]), (&json!("what is in the depot?"), &json!("t_1")));
        }
    }
    assert_eq!(kinds[..5], ["turn_started", "user_message", "flow", "agent", "message_start"], "{kinds:?}");
    let next = server.replies(&message("track it")).await;
    assert!(!next.to_string().contains("depot"), "{next}");
    // Who was away continues at the next turn.
    let mut again = server.client.get(url("events?sender=u1&after=0"));
    again = again.header("last-event-id", ids.last().unwrap());
    let mut again = again.send().await.unwrap();
    let (_, event) = next_event(&mut again, &mut String::new()).await;
    assert_eq!(event["type"], "turn_started");
    let (_, event) = next_event(&mut reader, &mut received).await;
    assert_eq!(event["type"], "turn_started");
    for (path, body) in [("stop", "[]"), ("stop", r#"{"sender": {}}"#), ("stop", r#"{"sender": "u1", "turn_id": 3}"#)] {
        let response = server.client.post(url(path)).body(body).send().await.unwrap();
        assert_eq!(response.status(), 400, "{path} {body}");
    }
}

#[tokio::test]
async fn a_message_ends_the_running_turn_or_is_rejected_if_the_channel_says_so() {
    for (policy, status, calls) in [("interrupt", 200, 1), ("reject", 429, 1)] {
        let server = TestServer::start(&json!({"rest": {"while_busy": policy}})).await;
        let mut first = message("what is in the depot?");
        first["message_id"] = json!("m1");
        let busy = tokio::spawn(server.post("", &first).send());
        while server.tool.calls.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        let second = server.post("", &message("track it")).send().await.unwrap();
        assert_eq!(second.status(), status, "{policy}");
        if policy == "interrupt" {
            let answer = second.text().await.unwrap();
            assert!(answer.contains("Which parcel?") && !answer.contains("three parcels"), "{answer}");
        } else {
            assert_eq!(second.headers()["retry-after"], "1");
            // The message itself once more is no other message.
            let again = tokio::spawn(server.post("", &first).send());
            server.tool.release.notify_one();
            assert_eq!(again.await.unwrap().unwrap().status(), 200);
        }
        let ended = busy.await.unwrap().unwrap();
        assert_eq!((ended.status(), server.tool.calls.load(Ordering::SeqCst)), (reqwest::StatusCode::OK, calls));
    }
}

#[tokio::test]
async fn events_and_stops_are_for_the_callers_of_a_conversation() {
    let credentials = json!({"rest": {"auth_token": "t0k", "senders": ["shop-*"]}});
    let server = TestServer::start(&credentials).await;
    for (sender, token, expected) in [
        ("shop-1", "", 401),
        ("shop-1", "Bearer wrong", 401),
        ("shop-1", "Bearer t0k", 200),
        ("other", "Bearer t0k", 403),
        ("rest@x:shop-1", "Bearer t0k", 400),
        ("mcp-1", "Bearer t0k", 400),
    ] {
        let authorised = |request: reqwest::RequestBuilder| match token {
            "" => request,
            token => request.header("authorization", token),
        };
        let read = server.client.get(format!("{}/webhooks/rest/events?sender={sender}", server.address));
        assert_eq!(authorised(read).send().await.unwrap().status(), expected, "{sender} {token}");
        let stop = server.client.post(format!("{}/webhooks/rest/stop", server.address));
        let stop = authorised(stop).body(json!({"sender": sender}).to_string());
        assert_eq!(stop.send().await.unwrap().status(), expected, "{sender} {token}");
    }
    let invalid = server.client.get(format!("{}/webhooks/rest/events?sender=shop-1&after=x", server.address));
    let invalid = invalid.header("authorization", "Bearer t0k").send().await.unwrap();
    assert_eq!(invalid.status(), 400);
    let wrong_method = server.client.post(format!("{}/webhooks/rest/events", server.address));
    assert_eq!(wrong_method.header("authorization", "Bearer t0k").send().await.unwrap().status(), 405);
}

#[tokio::test]
async fn turn_continues_after_a_client_disconnect() {
    let server = TestServer::start(&json!({})).await;
    let mut response = server.post("?stream=deltas", &message("what is in the depot?")).send().await.unwrap();
    response.chunk().await.unwrap().expect("the stream begins");
    drop(response);
    server.tool.release.notify_one();
    // The next message of the conversation waits for the turn that still runs.
    server.replies(&message("track it")).await;
    let turns = server.assistant.store().turns(&"u1".into()).await.unwrap();
    let replies = serde_json::to_string(&turns[0].replies).unwrap();
    assert!(replies.contains("The depot has three parcels."), "{replies}");
}

#[tokio::test]
async fn duplicate_message_id_gives_the_same_replies_and_one_turn() {
    let server = TestServer::start(&json!({})).await;
    let mut body = message("what is in the depot?");
    body["message_id"] = json!("m1");
    server.tool.release.notify_one();
    let first = server.replies(&body).await;
    let second = server.replies(&body).await;
    assert_eq!(first, second);
    assert!(first.to_string().contains("three parcels"), "{first}");
    assert_eq!(server.tool.calls.load(Ordering::SeqCst), 1);

    // The header `Idempotency-Key` has the same effect, also for a stream.
    let repeated = server.post("?stream=true", &message("other words")).header("Idempotency-Key", "m1");
    let streamed = repeated.send().await.unwrap().text().await.unwrap();
    let lines: Vec<Json> = streamed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(Json::from(lines), first);
    assert_eq!(server.tool.calls.load(Ordering::SeqCst), 1);
}

/// An agent that fails.
struct FailingAgent;

#[async_trait]
impl Agent for FailingAgent {
    async fn run(&self, _: &mut AgentRun<'_>) -> AgentResult {
        Err(AgentError::new("the secret cause").code("A0501"))
    }
}

#[tokio::test]
async fn failed_turn_responds_200_with_its_error_code_and_without_its_cause() {
    let server = TestServer::start_with(&json!({}), |builder| builder.agent("clerk", Arc::new(FailingAgent))).await;
    let response = server.post("", &message("what is in the depot?")).send().await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers().get("x-turn-error").unwrap(), "A0501");
    let body = response.text().await.unwrap();
    assert!(body.contains("\"text\"") && !body.contains("secret"), "the user gets the error response: {body}");

    let streamed = server.post("?stream=deltas", &message("what is in the depot?")).send().await.unwrap();
    let body = streamed.text().await.unwrap();
    assert!(body.contains("\"type\":\"error\",\"code\":\"A0501\"") && !body.contains("secret"), "{body}");
}

#[tokio::test]
async fn overload_responds_503_with_retry_after() {
    let admission = segue::runtime::Admission { open_turns: 1, ..Default::default() };
    let server = TestServer::start_with(&json!({}), |builder| builder.admission(admission)).await;
    let busy = tokio::spawn(server.post("", &message("depot")).send());
    while server.tool.calls.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    let rejected = json!({"sender": "rejected", "message": "track it"});
    for query in ["", "?stream=true", "?stream=sse", "?stream=deltas"] {
        let refused = server.post(query, &rejected).send().await.unwrap();
        assert_eq!(refused.status(), 503, "{query}");
        let header = |name: &str| refused.headers().get(name).unwrap().to_str().unwrap().to_owned();
        assert_eq!((header("retry-after"), header("x-turn-error")), ("1".into(), "R0106".into()), "{query}");
    }
    assert!(server.assistant.store().unfinished_turns(&"rejected".into()).await.unwrap().is_empty());
    server.tool.release.notify_one();
    assert_eq!(busy.await.unwrap().unwrap().status(), 200);
    assert_eq!(server.replies(&rejected).await[0]["text"], "Which parcel?");
}

#[tokio::test]
async fn pending_replies_are_sent_with_the_next_response() {
    use segue::conversation::{ExternalTrigger, TriggerAction};
    let server = TestServer::start(&json!({})).await;
    for query in ["", "?stream=sse"] {
        let action = TriggerAction::Flow("offer_speed".into());
        let trigger = ExternalTrigger { action, values: Default::default(), reminder: None };
        let sink = Box::new(segue::runtime::OutboxSink);
        server.assistant.trigger("u1".into(), trigger, "".into(), sink).await.unwrap();
        let response = server.post(query, &message("track it")).send().await.unwrap().text().await.unwrap();
        let (earlier, own) = (response.find("How fast?").unwrap(), response.find("Which parcel?").unwrap());
        assert!(earlier < own, "{response}");
        assert_eq!(server.assistant.store().pending_replies(&"u1".into()).await.unwrap(), []);
    }
}
