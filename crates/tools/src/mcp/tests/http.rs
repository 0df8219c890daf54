//! Tests over HTTP: headers, tokens, sessions, and what a failed request says about whether a call was performed.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, Method, StatusCode},
    response::Response,
};
use segue_engine::project::{McpServerDef, McpTransport};
use serde_json::{Value as Json, json};
use tokio::sync::oneshot;

use super::fake::{entry, environment, tool, tool_entry};
use crate::{
    EffectClass, FailureKind, Health, ToolCallContext, ToolOutcome, ToolOutput, ToolSource,
    fixture::{context, log_of},
    invoke::invoke,
    mcp::{McpServer, auth::Tokens},
    tool_set::ToolSet,
};
use segue_base::{
    clock::{Clock, SystemClock},
    context::CallContext,
    limits,
    outbound_auth::TokenError,
};

/// Responds to a tool call; the second argument is the number of earlier calls.
type CallHandler = dyn Fn(&Json, usize) -> Response + Send + Sync;

/// A fake MCP server over HTTP, which is also its own token server. The test responds to tool calls.
#[derive(Clone)]
struct FakeHttpServer {
    on_call: Arc<CallHandler>,
    calls: Arc<AtomicUsize>,
    sessions: Arc<AtomicUsize>,
    request_headers: Arc<Mutex<Vec<HeaderMap>>>,
    /// The forms of token requests.
    token_requests: Arc<Mutex<Vec<String>>>,
    /// The required token; `None`: no token is required.
    token: Arc<Mutex<Option<String>>>,
    /// The status of responses to pings; `None` for 200.
    ping_status: Arc<Mutex<Option<u16>>>,
    /// The number of received pings.
    ping_count: Arc<AtomicUsize>,
    /// The number of sessions that the client closed.
    closed_sessions: Arc<AtomicUsize>,
}

fn respond(status: u16, body: &Json) -> Response {
    let response = Response::builder().status(status).header("content-type", "application/json");
    response.body(Body::from(body.to_string())).unwrap()
}

fn result(request: &Json, result: Json) -> Response {
    respond(200, &json!({"jsonrpc": "2.0", "id": request["id"], "result": result}))
}

fn empty_response(status: u16) -> Response {
    Response::builder().status(status).body(Body::empty()).unwrap()
}

async fn handle(State(fake): State<FakeHttpServer>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    fake.request_headers.lock().unwrap().push(head.headers.clone());
    if head.method == Method::DELETE {
        fake.closed_sessions.fetch_add(1, Ordering::SeqCst);
        return empty_response(200);
    }
    if head.method != Method::POST {
        return empty_response(405);
    }
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    if head.uri.path() == "/token" {
        let mut token_requests = fake.token_requests.lock().unwrap();
        token_requests.push(String::from_utf8(body.to_vec()).unwrap());
        let token = format!("t{}", token_requests.len());
        *fake.token.lock().unwrap() = Some(token.clone());
        return respond(200, &json!({"access_token": token, "token_type": "Bearer", "expires_in": 3600}));
    }
    if let Some(token) = &*fake.token.lock().unwrap()
        && head.headers.get("authorization").is_none_or(|value| *value != format!("Bearer {token}"))
    {
        return empty_response(401);
    }
    let message: Json = serde_json::from_slice(&body).unwrap();
    match message["method"].as_str() {
        Some("initialize") => {
            let session = fake.sessions.fetch_add(1, Ordering::SeqCst);
            let mut response = result(
                &message,
                json!({
                    "protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                    "serverInfo": {"name": "fake", "version": "1"}
                }),
            );
            response.headers_mut().insert("mcp-session-id", session.to_string().parse().unwrap());
            response
        }
        Some("tools/list") => result(&message, json!({"tools": [tool_entry("w"), tool_entry("r")]})),
        Some("tools/call") => (fake.on_call)(&message, fake.calls.fetch_add(1, Ordering::SeqCst)),
        Some("ping") => {
            fake.ping_count.fetch_add(1, Ordering::SeqCst);
            let status = *fake.ping_status.lock().unwrap();
            status.map_or_else(|| result(&message, json!({})), empty_response)
        }
        _ => empty_response(202),
    }
}

/// Starts a fake server. Returns a client of it and the fake.
async fn start_server(
    change: impl FnOnce(&mut McpServerDef),
    on_call: impl Fn(&Json, usize) -> Response + Send + Sync + 'static,
) -> (McpServer, FakeHttpServer) {
    start_server_with_clock(Arc::new(SystemClock), change, on_call).await
}

/// Starts a fake server; the client uses this clock.
async fn start_server_with_clock(
    clock: Arc<dyn Clock>,
    change: impl FnOnce(&mut McpServerDef),
    on_call: impl Fn(&Json, usize) -> Response + Send + Sync + 'static,
) -> (McpServer, FakeHttpServer) {
    let fake = FakeHttpServer {
        on_call: Arc::new(on_call),
        calls: Arc::default(),
        sessions: Arc::default(),
        request_headers: Arc::default(),
        token_requests: Arc::default(),
        token: Arc::default(),
        ping_status: Arc::default(),
        ping_count: Arc::default(),
        closed_sessions: Arc::default(),
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let router = Router::new().fallback(handle).with_state(fake.clone());
    tokio::spawn(async move { axum::serve(listener, router).await });
    let mut def = entry(McpTransport::Http { url });
    def.effects.insert("r".into(), "read".into());
    change(&mut def);
    (McpServer::new(&def, environment(clock)), fake)
}

/// A context with the system clock, because tokio's paused clock would advance while a test waits for a socket.
fn system_context() -> ToolCallContext {
    ToolCallContext { cx: CallContext::new(Arc::new(SystemClock), std::time::Duration::from_secs(60)), ..context() }
}

async fn call(server: &McpServer, name: &str) -> ToolOutcome {
    let cx = system_context();
    tool(server, name, &cx).await.call(json!({}), &cx).await
}

fn status_and_kind(outcome: &ToolOutcome) -> (&'static str, FailureKind) {
    match outcome {
        ToolOutcome::Failed(failure) => ("failed", failure.kind),
        ToolOutcome::Unknown(failure) => ("unknown", failure.kind),
        other => panic!("{other:?}"),
    }
}

fn ok(request: &Json) -> Response {
    result(request, json!({"content": [{"type": "text", "text": "ok"}]}))
}

#[tokio::test]
async fn configured_headers_are_sent_with_every_request() {
    let change = |def: &mut McpServerDef| {
        def.headers = vec![("Authorization".into(), "Bearer s3cret".into()), ("X-Tenant".into(), "north".into())];
    };
    let (server, fake) = start_server(change, |request, _| ok(request)).await;
    assert_eq!(call(&server, "w").await, ToolOutcome::Done(ToolOutput::text("ok")));
    let request_headers = fake.request_headers.lock().unwrap();
    assert!(request_headers.len() >= 4);
    for head in request_headers.iter() {
        assert_eq!(
            (head["authorization"].to_str().unwrap(), head["x-tenant"].to_str().unwrap()),
            ("Bearer s3cret", "north")
        );
    }
}

#[tokio::test]
async fn headers_of_the_protocol_cannot_be_configured() {
    for name in ["Accept", "MCP-Session-Id", "Last-Event-ID"] {
        let change = |def: &mut McpServerDef| def.headers = vec![(name.into(), "x".into())];
        let (server, fake) = start_server(change, |request, _| ok(request)).await;
        let error = server.list(&system_context().cx).await.unwrap_err();
        assert!(format!("{error:?}").contains(&format!("the header `{name}` cannot be set")), "{error:?}");
        assert!(fake.request_headers.lock().unwrap().is_empty());
    }
}

#[tokio::test]
async fn tokens_are_cached_and_replaced_after_a_401() {
    let oauth = |def: &mut McpServerDef| {
        let McpTransport::Http { url } = &def.transport else { panic!("it is over HTTP") };
        let oauth = json!({
            "client_id": "me", "client_secret": "s3cret", "scope": "tools",
            "token_url": url.replace("/mcp", "/token")
        });
        def.oauth = serde_json::from_value(oauth).unwrap();
    };
    let (server, fake) = start_server(oauth, |request, _| ok(request)).await;
    for _ in 0..2 {
        assert_eq!(call(&server, "w").await, ToolOutcome::Done(ToolOutput::text("ok")));
    }
    let form = "grant_type=client_credentials&scope=tools";
    assert_eq!(*fake.token_requests.lock().unwrap(), [form], "one token is used for all requests");
    *fake.token.lock().unwrap() = Some("revoked".into());
    assert_eq!(call(&server, "w").await, ToolOutcome::Done(ToolOutput::text("ok")));
    assert_eq!(fake.token_requests.lock().unwrap().len(), 2);
    assert_eq!(fake.calls.load(Ordering::SeqCst), 3, "the rejected request does not reach the tool");
}

#[tokio::test]
async fn oversized_token_responses_and_metadata_are_errors() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let router = Router::new().fallback(async || "x".repeat(limits::TOKEN_ANSWER + 1));
    tokio::spawn(async move { axum::serve(listener, router).await });
    let oauth = json!({"client_id": "me", "client_secret": "s3cret", "token_url": url});
    let (http, clock) = (segue_base::http::HttpClients::new(), Arc::new(SystemClock));
    let oauth = serde_json::from_value(oauth).unwrap();
    let tokens = Tokens::new(("fake", &url), &oauth, &http, clock, None).unwrap();
    assert_eq!(tokens.token().await, Err(TokenError::TooLarge));
    // The same for its metadata.
    let router = Router::new().fallback(async || "x".repeat(limits::MCP_TOKEN + 1));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    let oauth = json!({"client_id": "me", "client_secret": "s3cret"});
    let (oauth, clock) = (serde_json::from_value(oauth).unwrap(), Arc::new(SystemClock));
    let tokens = Tokens::new(("fake", &url), &oauth, &http, clock, None).unwrap();
    let error = tokens.token().await.unwrap_err().to_string();
    assert!(error.contains("too large"), "{error}");
}

#[tokio::test]
async fn incomplete_oauth_settings_are_an_error() {
    let oauth = |def: &mut McpServerDef| {
        def.oauth = serde_json::from_value(json!({"client_id": "me"})).unwrap();
    };
    let (server, _) = start_server(oauth, |request, _| ok(request)).await;
    let error = server.list(&system_context().cx).await.unwrap_err();
    assert_eq!(error.reason, "`oauth` lacks `client_secret`");
}

#[tokio::test]
async fn an_expired_session_is_reopened_and_only_a_read_is_resent() {
    let without_id = json!({"jsonrpc": "2.0", "error": {"code": -32000, "message": "no valid session"}});
    // As the SDKs for TypeScript, Python and C# send it.
    let of_sdk = |id: Json, code: i32, message: &str| json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}});
    let typescript = of_sdk(Json::Null, -32001, "Session not found");
    let python = of_sdk(json!("server-error"), -32600, "Session not found");
    let restarted = of_sdk(Json::Null, -32000, "Bad Request: Server not initialized");
    let responses: [Arc<dyn Fn() -> Response + Send + Sync>; 5] = [
        Arc::new(|| empty_response(404)),
        Arc::new(move || respond(400, &without_id)),
        Arc::new(move || respond(404, &typescript)),
        Arc::new(move || respond(404, &python)),
        Arc::new(move || respond(400, &restarted)),
    ];
    for expired in responses {
        let first_response = expired.clone();
        let (server, fake) =
            start_server(|_| {}, move |request, n| if n == 0 { first_response() } else { ok(request) }).await;
        assert_eq!(call(&server, "r").await, ToolOutcome::Done(ToolOutput::text("ok")));
        assert_eq!((fake.calls.load(Ordering::SeqCst), fake.sessions.load(Ordering::SeqCst)), (2, 2));

        let (server, fake) = start_server(|_| {}, move |request, n| if n == 0 { expired() } else { ok(request) }).await;
        let outcome = call(&server, "w").await;
        assert_eq!(
            status_and_kind(&outcome),
            ("failed", FailureKind::Unavailable),
            "the server rejected the call unread"
        );
        assert_eq!(fake.calls.load(Ordering::SeqCst), 1);
        assert_eq!(call(&server, "w").await, ToolOutcome::Done(ToolOutput::text("ok")));
        assert_eq!(fake.sessions.load(Ordering::SeqCst), 2);
    }
}

#[tokio::test]
async fn the_outcome_of_a_write_depends_on_the_http_status() {
    let status = |status: u16, header: Option<(&'static str, &'static str)>| async move {
        let (server, _) = start_server(
            |_| {},
            move |_, _| {
                let mut response = empty_response(status);
                if let Some((name, value)) = header {
                    response.headers_mut().insert(name, value.parse().unwrap());
                }
                response
            },
        )
        .await;
        call(&server, "w").await
    };
    assert_eq!(status_and_kind(&status(500, None).await), ("unknown", FailureKind::Unavailable));
    assert_eq!(status_and_kind(&status(503, None).await), ("unknown", FailureKind::Unavailable));
    assert_eq!(status_and_kind(&status(429, None).await), ("failed", FailureKind::Unavailable));
    for rejected in [400, 403, 404, 405, 413, 415, 426] {
        assert_eq!(status_and_kind(&status(rejected, None).await).0, "failed", "{rejected}");
    }
    for in_doubt in [307, 408, 409, 500, 502, 504] {
        assert_eq!(status_and_kind(&status(in_doubt, None).await).0, "unknown", "{in_doubt}");
    }
    let challenge = Some(("www-authenticate", "Bearer realm=\"x\""));
    let unauthorized = status(401, challenge).await;
    assert_eq!(status_and_kind(&unauthorized), ("failed", FailureKind::Unavailable));
    assert!(unauthorized.for_model().contains("credentials"));
}

#[tokio::test]
async fn the_outcome_of_a_write_depends_on_the_code_of_an_error_and_its_status() {
    let cases = [
        (200, -32602, "failed"),
        (400, -32700, "failed"),
        (400, -32600, "failed"),
        (404, -32601, "failed"),
        (422, -32602, "failed"),
        (200, -32000, "unknown"),
        (400, -32000, "unknown"),
        (400, -32603, "unknown"),
        (404, -32603, "unknown"),
        (404, -32001, "unknown"),
        (403, -32603, "unknown"),
        (409, -32099, "unknown"),
        (429, -32603, "unknown"),
        (500, -32000, "unknown"),
    ];
    for (status, code, expected) in cases {
        for own_id in [true, false] {
            let (server, _) = start_server(
                |_| {},
                move |request, _| {
                    let id = if own_id { request["id"].clone() } else { Json::Null };
                    respond(status, &json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": "no"}}))
                },
            )
            .await;
            assert_eq!(status_and_kind(&call(&server, "w").await).0, expected, "{status} {code} {own_id}");
        }
    }
}

#[tokio::test]
async fn results_with_broken_characters_count() {
    for content_type in ["application/json", "text/event-stream"] {
        let (server, _) = start_server(
            |_| {},
            move |request, _| {
                let start = format!(
                    "{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{{\"content\":[{{\"type\":\"text\",\"text\":\"cut ",
                    request["id"]
                );
                let mut body = [start.as_bytes(), b"\\ud83d \xff\"}]}}"].concat();
                body = match content_type {
                    "application/json" => [b"\xef\xbb\xbf".as_slice(), &body].concat(),
                    _ => [b"\xef\xbb\xbfdata: ".as_slice(), &body, b"\n\n"].concat(),
                };
                let response = Response::builder().status(200).header("content-type", content_type);
                response.body(Body::from(body)).unwrap()
            },
        )
        .await;
        let outcome = call(&server, "w").await;
        assert_eq!(outcome, ToolOutcome::Done(ToolOutput::text("cut \u{FFFD} \u{FFFD}")), "{content_type}");
    }
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let (server, fake) = start_server(
        |_| {},
        |_, _| {
            let mut response = empty_response(307);
            response.headers_mut().insert("location", "/elsewhere".parse().unwrap());
            response
        },
    )
    .await;
    assert_eq!(status_and_kind(&call(&server, "w").await), ("unknown", FailureKind::Unavailable));
    assert_eq!(
        fake.calls.load(Ordering::SeqCst),
        1,
        "all paths have the same handler, so a redirected call would be counted"
    );
}

#[tokio::test]
async fn a_refused_connection_is_a_source_error() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    drop(listener);
    let server = McpServer::new(&entry(McpTransport::Http { url }), environment(Arc::new(SystemClock)));
    let error = server.list(&system_context().cx).await.unwrap_err();
    assert!(error.reason.contains("refused"), "{error}");
    assert!(matches!(server.status(), Health::Down { .. }));
}

#[tokio::test]
async fn a_response_in_an_event_stream_is_read_and_a_stream_without_one_is_a_lost_connection() {
    let stream = |text: String| {
        Response::builder()
            .status(StatusCode::OK)
            .header("content-type", "text/event-stream")
            .body(Body::from(text))
            .unwrap()
    };
    let (server, _) = start_server(|_| {}, move |request, n| {
        let answer = json!({"jsonrpc": "2.0", "id": request["id"], "result": {"content": [], "structuredContent": {"n": n}}});
        if n == 0 { stream(format!("event: message\ndata: {answer}\n\n")) } else { stream(": nothing\n\n".into()) }
    })
    .await;
    assert_eq!(call(&server, "w").await, ToolOutcome::Done(ToolOutput::structured(json!({"n": 0}))));
    assert_eq!(status_and_kind(&call(&server, "w").await), ("unknown", FailureKind::Unavailable));
}

/// A response whose body is sent when the test releases it.
fn delayed_response(request: &Json, release: oneshot::Receiver<()>) -> Response {
    let body = json!({"jsonrpc": "2.0", "id": request["id"], "result": {"content": [{"type": "text", "text": "ok"}]}});
    let body = async move {
        release.await.ok();
        Ok::<_, std::io::Error>(body.to_string())
    };
    let response = Response::builder().status(200).header("content-type", "application/json");
    response.body(Body::from_stream(futures::stream::once(body))).unwrap()
}

/// Delays the responses to the first `n` calls until the returned senders are used; `rest` responds to the others.
fn delay_first_calls(
    n: usize,
    rest: impl Fn(&Json, usize) -> Response + Send + Sync + 'static,
) -> (Vec<oneshot::Sender<()>>, impl Fn(&Json, usize) -> Response + Send + Sync + 'static) {
    let (release, wait): (Vec<_>, Vec<_>) = (0..n).map(|_| oneshot::channel()).unzip();
    let wait = Mutex::new(wait);
    let on_call = move |request: &Json, number: usize| match wait.lock().unwrap().pop().filter(|_| number < n) {
        Some(release) => delayed_response(request, release),
        None => rest(request, number),
    };
    (release, on_call)
}

/// Yields to other tasks until the condition is true.
async fn wait_until(condition: impl Fn() -> bool) {
    for _ in 0..1_000_000 {
        if condition() {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("the condition never became true");
}

/// Starts `n` calls of `w`, each in a task, and waits until the server received them.
async fn start_calls(
    server: &Arc<McpServer>,
    fake: &FakeHttpServer,
    n: usize,
) -> Vec<tokio::task::JoinHandle<ToolOutcome>> {
    let calls = (0..n).map(|_| {
        let server = server.clone();
        tokio::spawn(async move { call(&server, "w").await })
    });
    let calls = calls.collect();
    wait_until(|| fake.calls.load(Ordering::SeqCst) == n).await;
    calls
}

#[tokio::test]
async fn a_failed_http_request_does_not_affect_others() {
    let garbage = || {
        let response = Response::builder().status(200).header("content-type", "application/json");
        response.body(Body::from("{\"half\": ")).unwrap()
    };
    let torn = || {
        let torn = futures::stream::once(async { Err::<String, _>(std::io::Error::other("reset")) });
        let response = Response::builder().status(200).header("content-type", "application/json");
        response.body(Body::from_stream(torn)).unwrap()
    };
    let failures: [Arc<dyn Fn() -> Response + Send + Sync>; 4] =
        [Arc::new(|| empty_response(500)), Arc::new(|| empty_response(503)), Arc::new(garbage), Arc::new(torn)];
    for fails in failures {
        let (release, on_call) = delay_first_calls(10, move |_, _| fails());
        let (server, fake) = start_server(|_| {}, on_call).await;
        let server = Arc::new(server);
        let calls = start_calls(&server, &fake, 10).await;
        assert_eq!(status_and_kind(&call(&server, "w").await), ("unknown", FailureKind::Unavailable));
        wait_until(|| fake.ping_count.load(Ordering::SeqCst) == 1).await;
        release.into_iter().for_each(|release| release.send(()).unwrap());
        for call in calls {
            assert_eq!(call.await.unwrap(), ToolOutcome::Done(ToolOutput::text("ok")));
        }
        assert_eq!(server.status(), Health::Up);
        assert_eq!(fake.sessions.load(Ordering::SeqCst), 1, "the session is kept");
    }
}

#[tokio::test]
async fn alternating_failures_do_not_replace_the_session() {
    let (server, fake) =
        start_server(|_| {}, |request, n| if n % 2 == 0 { empty_response(500) } else { ok(request) }).await;
    for _ in 0..50 {
        assert_eq!(status_and_kind(&call(&server, "w").await), ("unknown", FailureKind::Unavailable));
        assert_eq!(call(&server, "w").await, ToolOutcome::Done(ToolOutput::text("ok")));
    }
    assert_eq!(fake.sessions.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn failed_pings_drop_the_session_and_running_requests_finish() {
    let (release, on_call) = delay_first_calls(2, |request, n| if n == 2 { empty_response(500) } else { ok(request) });
    let clock = segue_base::manual_clock::ManualClock::new();
    let (server, fake) = start_server_with_clock(Arc::new(clock.clone()), |_| {}, on_call).await;
    let server = Arc::new(server);
    let calls = start_calls(&server, &fake, 2).await;
    *fake.ping_status.lock().unwrap() = Some(500);
    assert_eq!(status_and_kind(&call(&server, "w").await), ("unknown", FailureKind::Unavailable));
    wait_until(|| fake.ping_count.load(Ordering::SeqCst) == 1).await;
    assert_eq!(server.status(), Health::Up, "one failed ping does not drop the session");
    wait_until(|| clock.slept().contains(&limits::MCP_BACKOFF_WAIT)).await;
    clock.advance(limits::MCP_BACKOFF_WAIT);
    wait_until(|| matches!(server.status(), Health::Down { .. })).await;
    assert_eq!(call(&server, "w").await, ToolOutcome::Done(ToolOutput::text("ok")), "the next call uses a new session");
    assert_eq!((fake.sessions.load(Ordering::SeqCst), fake.closed_sessions.load(Ordering::SeqCst)), (2, 0));
    release.into_iter().for_each(|release| release.send(()).unwrap());
    for call in calls {
        assert_eq!(call.await.unwrap(), ToolOutcome::Done(ToolOutput::text("ok")));
    }
    wait_until(|| fake.closed_sessions.load(Ordering::SeqCst) == 1).await;
}

#[tokio::test]
async fn consecutive_failures_replace_a_stable_session() {
    let clock = segue_base::manual_clock::ManualClock::new();
    let (server, fake) = start_server_with_clock(Arc::new(clock.clone()), |_| {}, |_, _| empty_response(500)).await;
    for _ in 0..=limits::MCP_FAILED_REQUESTS {
        call(&server, "w").await;
    }
    assert_eq!(fake.sessions.load(Ordering::SeqCst), 1, "a young session is not replaced");
    clock.advance(limits::MCP_STABLE);
    call(&server, "w").await;
    call(&server, "w").await;
    assert_eq!(fake.sessions.load(Ordering::SeqCst), 2);
    for _ in 0..=limits::MCP_FAILED_REQUESTS {
        call(&server, "w").await;
    }
    assert_eq!(fake.sessions.load(Ordering::SeqCst), 2, "the new session is young");
}

#[tokio::test]
async fn errors_and_logs_contain_no_url() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp?apiKey=s3cret", listener.local_addr().unwrap());
    drop(listener);
    let server = McpServer::new(&entry(McpTransport::Http { url }), environment(Arc::new(SystemClock)));
    let error = server.list(&system_context().cx).await.unwrap_err();
    let text = format!("{error} {error:?} {:?}", server.status());
    assert!(text.contains("refused") && !text.contains("s3cret") && !text.contains("http://"), "{text}");

    let key = |def: &mut McpServerDef| {
        let McpTransport::Http { url } = &mut def.transport else { panic!("it is over HTTP") };
        url.push_str("?apiKey=s3cret");
    };
    let (server, _) = start_server(key, |_, _| empty_response(400)).await;
    let tool = tool(&server, "w", &system_context()).await;
    let log = log_of(tool.call(json!({}), &system_context())).await;
    assert!(log.contains("an MCP tool call failed without a result") && !log.contains("s3cret"), "{log}");
}

/// The tools of a server in an agent run that overrides the effect class of `w`.
async fn tools_with_effect(server: &McpServer, effect: EffectClass) -> ToolSet {
    let catalog = server.list(&system_context().cx).await.unwrap();
    ToolSet::builder().server("fake", &catalog, &[], &[]).build().with_effects(|name| (name == "w").then_some(effect))
}

#[tokio::test]
async fn the_overriding_effect_class_decides_whether_a_call_is_resent() {
    let keys: Arc<Mutex<Vec<Json>>> = Arc::default();
    let received = keys.clone();
    let on_call = move |request: &Json, n: usize| {
        received.lock().unwrap().push(request["params"]["_meta"]["segue/idempotencyKey"].clone());
        if n == 0 { empty_response(500) } else { ok(request) }
    };
    // The entry of the server says `idempotent`, the agent `write`: the call is sent once, and its outcome is unknown.
    let idempotent = |def: &mut McpServerDef| drop(def.effects.insert("w".into(), "idempotent".into()));
    let (server, fake) = start_server(idempotent, on_call.clone()).await;
    let outcome =
        invoke(&tools_with_effect(&server, EffectClass::Write).await, "w", json!({}), &system_context(), None).await;
    assert_eq!(status_and_kind(&outcome), ("unknown", FailureKind::Unavailable));
    assert_eq!((fake.calls.load(Ordering::SeqCst), keys.lock().unwrap().len()), (1, 1));

    // The reverse: the call is sent again, with the same key.
    keys.lock().unwrap().clear();
    let (server, _) = start_server(|_| {}, on_call).await;
    let outcome =
        invoke(&tools_with_effect(&server, EffectClass::Idempotent).await, "w", json!({}), &system_context(), None)
            .await;
    assert_eq!(outcome, ToolOutcome::Done(ToolOutput::text("ok")));
    assert_eq!(*keys.lock().unwrap(), [json!("k"), json!("k")]);
}
