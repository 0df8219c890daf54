//! MCP servers over HTTP: lost sessions, failed requests, keys in addresses, effect classes. Authorization is tested in `authorization`.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicUsize, Ordering},
};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    response::Response,
};
use segue::clock::SystemClock;
use serde_json::{Value as Json, json};

use super::{fake_server::listed, *};

/// Responds to a tool call; the number counts from 0.
type OnCall = dyn Fn(&Json, usize) -> Response + Send + Sync;

/// An MCP server over HTTP in the test process. Clones share their state.
#[derive(Clone)]
pub(super) struct HttpMcpServer {
    /// The address, without a path.
    pub(super) address: String,
    on_call: Arc<OnCall>,
    pub(super) calls: Arc<AtomicUsize>,
    pub(super) sessions: Arc<AtomicUsize>,
    /// The requested paths other than the endpoint.
    pub(super) other_paths: Arc<Mutex<Vec<String>>>,
    /// The credentials of the requests.
    pub(super) credentials: Arc<Mutex<Vec<Option<String>>>>,
    /// The challenge for requests without credentials.
    pub(super) challenge: Arc<Mutex<Option<String>>>,
    /// The responses at other paths.
    pub(super) pages: Arc<Mutex<BTreeMap<String, Json>>>,
    /// The requests to its token server at `/token`. Each response is another token.
    pub(super) token_requests: Arc<Mutex<Vec<String>>>,
}

/// A response with a JSON body.
pub(super) fn respond(status: u16, headers: &[(&str, &str)], body: &Json) -> Response {
    let response = Response::builder().status(status).header("content-type", "application/json");
    let response = headers.iter().fold(response, |response, (name, value)| response.header(*name, *value));
    response.body(Body::from(body.to_string())).unwrap()
}

/// A JSON-RPC response with a result.
fn result(request: &Json, result: Json) -> Response {
    respond(200, &[], &json!({"jsonrpc": "2.0", "id": request["id"], "result": result}))
}

/// A tool result with the text `yes`.
pub(super) fn yes(request: &Json) -> Response {
    result(request, json!({"content": [{"type": "text", "text": "yes"}]}))
}

async fn handle(State(server): State<HttpMcpServer>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    if head.uri.path() == "/token" {
        let form = axum::body::to_bytes(body, 1 << 20).await.unwrap();
        let mut requests = server.token_requests.lock().unwrap();
        requests.push(String::from_utf8(form.to_vec()).unwrap());
        let token = format!("token-{}", requests.len());
        return respond(200, &[], &json!({"access_token": token, "token_type": "Bearer"}));
    }
    if head.uri.path() != "/mcp" {
        server.other_paths.lock().unwrap().push(head.uri.path().to_owned());
        let page = server.pages.lock().unwrap().get(head.uri.path()).cloned();
        return page.map_or_else(|| respond(404, &[], &json!({})), |page| respond(200, &[], &page));
    }
    if head.method != "POST" {
        return respond(405, &[], &json!({}));
    }
    let credentials = head.headers.get("authorization").map(|value| value.to_str().unwrap().to_owned());
    if let (None, Some(challenge)) = (&credentials, &*server.challenge.lock().unwrap()) {
        return respond(401, &[("www-authenticate", challenge)], &json!({}));
    }
    server.credentials.lock().unwrap().push(credentials);
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    let message: Json = serde_json::from_slice(&body).unwrap();
    match message["method"].as_str() {
        Some("initialize") => {
            let session = server.sessions.fetch_add(1, Ordering::SeqCst).to_string();
            let greeting = json!({
                "protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                "serverInfo": {"name": "remote", "version": "1"}
            });
            let mut response = result(&message, greeting);
            response.headers_mut().insert("mcp-session-id", session.parse().unwrap());
            response
        }
        Some("tools/list") => {
            let tools = json!([listed("work", json!({})), listed("look", json!({"readOnlyHint": true}))]);
            result(&message, json!({"tools": tools}))
        }
        Some("tools/call") => (server.on_call)(&message, server.calls.fetch_add(1, Ordering::SeqCst)),
        Some("ping") => result(&message, json!({})),
        _ => respond(202, &[], &json!({})),
    }
}

/// Starts a server. `entry` is the rest of its entry in `endpoints.yml`. Returns a conversation that uses it.
pub(super) async fn start_server(
    entry: &str,
    on_call: impl Fn(&Json, usize) -> Response + Send + Sync + 'static,
) -> (TestConversation, HttpMcpServer) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let server = HttpMcpServer {
        address: address.clone(),
        on_call: Arc::new(on_call),
        calls: Arc::default(),
        sessions: Arc::default(),
        other_paths: Arc::default(),
        credentials: Arc::default(),
        challenge: Arc::default(),
        pages: Arc::default(),
        token_requests: Arc::default(),
    };
    let router = Router::new().fallback(handle).with_state(server.clone());
    tokio::spawn(async move { axum::serve(listener, router).await });
    let conversation = TestConversation::of(
        builder(&format!("type: http, url: '{address}/mcp', {entry}")).clock(Arc::new(SystemClock)),
    );
    (conversation, server)
}

/// The server has forgotten the session of the first call.
fn forget_first_session(request: &Json, n: usize) -> Response {
    if n == 0 { respond(404, &[], &json!({})) } else { yes(request) }
}

#[tokio::test]
async fn lost_session_is_reopened_and_only_reads_are_repeated() {
    let (conversation, server) = start_server("", forget_first_session).await;
    conversation.assert_succeeds("/look", "yes").await;
    assert_eq!((server.calls.load(Ordering::SeqCst), server.sessions.load(Ordering::SeqCst)), (2, 2));
    let (conversation, server) = start_server("", forget_first_session).await;
    conversation
        .assert_fails("/work", "unavailable: The connection was lost and has been restored; the call was not sent")
        .await;
    assert_eq!((server.calls.load(Ordering::SeqCst), server.sessions.load(Ordering::SeqCst)), (1, 1));
    conversation.assert_succeeds("/work", "yes").await;
    assert_eq!(server.sessions.load(Ordering::SeqCst), 2, "the session is reopened for the next call");
}

#[tokio::test]
async fn repeatedly_lost_session_fails_the_call() {
    let (conversation, server) = start_server("", |_, _| respond(404, &[], &json!({}))).await;
    conversation.assert_fails("/look", "unavailable").await;
    assert_eq!((server.calls.load(Ordering::SeqCst), server.sessions.load(Ordering::SeqCst)), (2, 2));
}

/// A node behind a load balancer that does not know the session responds with a JSON-RPC error without an id.
#[tokio::test]
async fn session_on_another_node_is_reopened() {
    let unknown_session = |request: &Json, n| {
        let error = json!({"code": -32001, "message": "Session not found"});
        if n == 0 { respond(200, &[], &json!({"jsonrpc": "2.0", "id": null, "error": error})) } else { yes(request) }
    };
    let (conversation, server) = start_server("", unknown_session).await;
    conversation.assert_succeeds("/look", "yes").await;
    assert_eq!((server.calls.load(Ordering::SeqCst), server.sessions.load(Ordering::SeqCst)), (2, 2));
    let (conversation, server) = start_server("", unknown_session).await;
    conversation
        .assert_fails("/work", "unavailable: The connection was lost and has been restored; the call was not sent")
        .await;
    assert_eq!(server.calls.load(Ordering::SeqCst), 1);
}

/// A failed HTTP request fails one call. Other calls of the session continue.
#[tokio::test]
async fn failed_http_request_fails_only_its_call() {
    let (release, wait) = tokio::sync::oneshot::channel::<()>();
    let wait = Mutex::new(Some(wait));
    let (conversation, server) = start_server("", move |request, n| match wait.lock().unwrap().take() {
        Some(wait) => {
            let result = json!({"content": [{"type": "text", "text": "yes"}]});
            let body = json!({"jsonrpc": "2.0", "id": request["id"], "result": result}).to_string();
            let body = async move {
                wait.await.ok();
                Ok::<_, std::io::Error>(body)
            };
            let response = Response::builder().status(200).header("content-type", "application/json");
            response.body(Body::from_stream(futures::stream::once(body))).unwrap()
        }
        None if n < 4 => respond(500, &[], &json!({})),
        None => yes(request),
    })
    .await;
    let first = conversation
        .assistant
        .receive(IncomingMessage::new("ada", "/work").input_channel("test"), Box::new(DiscardReplies));
    let others = async {
        while server.calls.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        for _ in 0..3 {
            conversation.assert_unknown("/work", "unavailable: The connection to it was lost before it answered").await;
        }
        conversation.assert_succeeds("/work", "yes").await;
        release.send(()).unwrap();
    };
    let (report, ()) = futures::join!(first, others);
    let replies: Vec<_> = report.unwrap().replies.into_iter().filter_map(|reply| reply.reply.text).collect();
    assert_eq!(replies.iter().map(|text| &**text).collect::<Vec<_>>(), ["It said yes."]);
    assert_eq!(server.sessions.load(Ordering::SeqCst), 1);
}

/// The address of a hosted server often contains its key.
#[tokio::test]
async fn server_address_with_a_key_is_not_reported() {
    let entry = "type: http, url: 'http://127.0.0.1:9/mcp?apiKey=${SERVER_SECRET}'";
    let conversation = TestConversation::of(builder(entry).clock(Arc::new(SystemClock)));
    let (_, failures) = conversation.say("/work").await;
    assert!(
        failures.starts_with("T0502: remote.work:") && !failures.contains("s3cret") && !failures.contains("http://"),
        "{failures}"
    );
    let trace = serde_json::to_string(&conversation.assistant.trace(&"u".into(), None).await.unwrap()).unwrap();
    assert!(!trace.contains("s3cret"), "{trace}");
}

/// The effect class in the agent's rules has priority over the class in the server's entry.
#[tokio::test]
async fn effect_class_of_the_agent_rules_overrides_the_server_entry() {
    for (class, calls, result) in [("write", 1, "unknown[unavailable]"), ("idempotent", 2, "yes")] {
        let keys: Arc<Mutex<Vec<Json>>> = Arc::default();
        let recorded = keys.clone();
        let (_, server) = start_server("", move |request, n| {
            recorded.lock().unwrap().push(request["params"]["_meta"]["segue/idempotencyKey"].clone());
            if n == 0 { respond(500, &[], &json!({})) } else { yes(request) }
        })
        .await;
        let rules = format!("tools: {{work: {{effect: {class}}}}}");
        // The entry of the server has the opposite class.
        let entry = if class == "write" { "effects: {work: idempotent}" } else { "effects: {work: write}" };
        let project = project_with(&format!("type: http, url: '{}/mcp', {entry}", server.address), &rules);
        let builder = AssistantBuilder::new(Arc::new(project), ".".into()).clock(Arc::new(SystemClock));
        let conversation = TestConversation::of(builder);
        conversation.say("/ask").await;
        assert!(
            conversation.model.tool_results()[0].starts_with(result),
            "{class}: {:?}",
            conversation.model.tool_results()
        );
        assert_eq!(server.calls.load(Ordering::SeqCst), calls, "{class}");
        let keys = keys.lock().unwrap();
        assert!(keys.iter().all(|key| key.is_string() && *key == keys[0]), "{class}: {keys:?}");
    }
}
