//! Over HTTP: what a server's status says about whether a call ran.

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

use super::fake::{around, entry, listed, tool};
use crate::{
    EffectClass, FailureKind, SourceStatus, ToolCallContext, ToolOutcome, ToolOutput, ToolSource,
    fixture::{context, logged},
    invoke::invoke,
    mcp::{McpServer, auth::Tokens},
    registry::ToolSet,
};
use segue_base::{
    clock::{Clock, SystemClock},
    context::CallContext,
    limits,
    outbound_auth::TokenError,
};

type Answer = dyn Fn(&Json, usize) -> Response + Send + Sync;

/// A server over HTTP; calls of tools are answered by the test, with the number of the call.
#[derive(Clone)]
struct Site {
    on_call: Arc<Answer>,
    calls: Arc<AtomicUsize>,
    sessions: Arc<AtomicUsize>,
    heads: Arc<Mutex<Vec<HeaderMap>>>,
    /// Forms that were posted for a token.
    forms: Arc<Mutex<Vec<String>>>,
    /// The token that is taken; none: everybody is let in.
    token: Arc<Mutex<Option<String>>>,
    /// The status of answers to pings, where it is not 200.
    pings: Arc<Mutex<Option<u16>>>,
    /// Pings that came.
    pinged: Arc<AtomicUsize>,
    /// Sessions that were ended.
    ended: Arc<AtomicUsize>,
}

fn respond(status: u16, body: &Json) -> Response {
    let response = Response::builder().status(status).header("content-type", "application/json");
    response.body(Body::from(body.to_string())).unwrap()
}

fn result(request: &Json, result: Json) -> Response {
    respond(200, &json!({"jsonrpc": "2.0", "id": request["id"], "result": result}))
}

fn bare(status: u16) -> Response {
    Response::builder().status(status).body(Body::empty()).unwrap()
}

async fn handle(State(site): State<Site>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    site.heads.lock().unwrap().push(head.headers.clone());
    if head.method == Method::DELETE {
        site.ended.fetch_add(1, Ordering::SeqCst);
        return bare(200);
    }
    if head.method != Method::POST {
        return bare(405);
    }
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    if head.uri.path() == "/token" {
        let mut forms = site.forms.lock().unwrap();
        forms.push(String::from_utf8(body.to_vec()).unwrap());
        let token = format!("t{}", forms.len());
        *site.token.lock().unwrap() = Some(token.clone());
        return respond(200, &json!({"access_token": token, "token_type": "Bearer", "expires_in": 3600}));
    }
    if let Some(token) = &*site.token.lock().unwrap()
        && head.headers.get("authorization").is_none_or(|given| *given != format!("Bearer {token}"))
    {
        return bare(401);
    }
    let message: Json = serde_json::from_slice(&body).unwrap();
    match message["method"].as_str() {
        Some("initialize") => {
            let session = site.sessions.fetch_add(1, Ordering::SeqCst);
            let mut response = result(
                &message,
                json!({
                    "protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                    "serverInfo": {"name": "site", "version": "1"}
                }),
            );
            response.headers_mut().insert("mcp-session-id", session.to_string().parse().unwrap());
            response
        }
        Some("tools/list") => result(&message, json!({"tools": [listed("w"), listed("r")]})),
        Some("tools/call") => (site.on_call)(&message, site.calls.fetch_add(1, Ordering::SeqCst)),
        Some("ping") => {
            site.pinged.fetch_add(1, Ordering::SeqCst);
            let status = *site.pings.lock().unwrap();
            status.map_or_else(|| result(&message, json!({})), bare)
        }
        _ => bare(202),
    }
}

/// Starts a site and a client of it.
async fn site(
    change: impl FnOnce(&mut McpServerDef),
    on_call: impl Fn(&Json, usize) -> Response + Send + Sync + 'static,
) -> (McpServer, Site) {
    site_on(Arc::new(SystemClock), change, on_call).await
}

/// The same on a clock of the test's.
async fn site_on(
    clock: Arc<dyn Clock>,
    change: impl FnOnce(&mut McpServerDef),
    on_call: impl Fn(&Json, usize) -> Response + Send + Sync + 'static,
) -> (McpServer, Site) {
    let site = Site {
        on_call: Arc::new(on_call),
        calls: Arc::default(),
        sessions: Arc::default(),
        heads: Arc::default(),
        forms: Arc::default(),
        token: Arc::default(),
        pings: Arc::default(),
        pinged: Arc::default(),
        ended: Arc::default(),
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let router = Router::new().fallback(handle).with_state(site.clone());
    tokio::spawn(async move { axum::serve(listener, router).await });
    let mut def = entry(McpTransport::Http { url });
    def.effects.insert("r".into(), "read".into());
    change(&mut def);
    (McpServer::new(&def, around(clock)), site)
}

/// A context on the machine's clock: waiting for a socket must not look like standing still.
fn real() -> ToolCallContext {
    ToolCallContext { cx: CallContext::new(Arc::new(SystemClock), std::time::Duration::from_secs(60)), ..context() }
}

async fn call(server: &McpServer, name: &str) -> ToolOutcome {
    let cx = real();
    tool(server, name, &cx).await.call(json!({}), &cx).await
}

fn ended(outcome: &ToolOutcome) -> (&'static str, FailureKind) {
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
async fn headers_of_the_entry_are_on_every_request_and_never_printed() {
    let change = |def: &mut McpServerDef| {
        def.headers = vec![("Authorization".into(), "Bearer s3cret".into()), ("X-Tenant".into(), "north".into())];
    };
    let (server, site) = site(change, |request, _| ok(request)).await;
    assert_eq!(call(&server, "w").await, ToolOutcome::Done(ToolOutput::text("ok")));
    let heads = site.heads.lock().unwrap();
    assert!(heads.len() >= 4);
    for head in heads.iter() {
        assert_eq!(
            (head["authorization"].to_str().unwrap(), head["x-tenant"].to_str().unwrap()),
            ("Bearer s3cret", "north")
        );
    }
}

#[tokio::test]
async fn tokens_are_kept_and_asked_for_anew_when_one_is_refused() {
    let oauth = |def: &mut McpServerDef| {
        let McpTransport::Http { url } = &def.transport else { panic!("it is over HTTP") };
        let oauth = json!({
            "client_id": "me", "client_secret": "s3cret", "scope": "tools",
            "token_url": url.replace("/mcp", "/token")
        });
        def.oauth = serde_json::from_value(oauth).unwrap();
    };
    let (server, site) = site(oauth, |request, _| ok(request)).await;
    for _ in 0..2 {
        assert_eq!(call(&server, "w").await, ToolOutcome::Done(ToolOutput::text("ok")));
    }
    let form = "grant_type=client_credentials&scope=tools";
    assert_eq!(*site.forms.lock().unwrap(), [form], "one token serves all");
    *site.token.lock().unwrap() = Some("taken back".into());
    assert_eq!(call(&server, "w").await, ToolOutcome::Done(ToolOutput::text("ok")));
    assert_eq!(site.forms.lock().unwrap().len(), 2);
    assert_eq!(site.calls.load(Ordering::SeqCst), 3, "the refused request was not read");
}

#[tokio::test]
async fn a_token_server_that_talks_without_end_is_not_heard_out() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let router = Router::new().fallback(async || "x".repeat(limits::TOKEN_ANSWER + 1));
    tokio::spawn(async move { axum::serve(listener, router).await });
    let oauth = json!({"client_id": "me", "client_secret": "s3cret", "token_url": url});
    let (http, clock) = (segue_base::http::HttpClients::new(), Arc::new(SystemClock));
    let oauth = serde_json::from_value(oauth).unwrap();
    let tokens = Tokens::new(("fake", &url), &oauth, &http, clock, None).unwrap();
    assert_eq!(tokens.token().await, Err(TokenError::TooLarge));
    // The same for what it says about itself.
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
async fn an_entry_whose_oauth_lacks_something_says_so() {
    let oauth = |def: &mut McpServerDef| {
        def.oauth = serde_json::from_value(json!({"client_id": "me"})).unwrap();
    };
    let (server, _) = site(oauth, |request, _| ok(request)).await;
    let error = server.list(&real().cx).await.unwrap_err();
    assert_eq!(error.reason, "`oauth` lacks `client_secret`");
}

#[tokio::test]
async fn a_forgotten_session_is_opened_once_more_and_only_a_read_is_repeated() {
    let without_id = json!({"jsonrpc": "2.0", "error": {"code": -32000, "message": "no valid session"}});
    let answers: [Arc<dyn Fn() -> Response + Send + Sync>; 2] =
        [Arc::new(|| bare(404)), Arc::new(move || respond(400, &without_id))];
    for forgotten in answers {
        let answer = forgotten.clone();
        let (server, site) = self::site(|_| {}, move |request, n| if n == 0 { answer() } else { ok(request) }).await;
        assert_eq!(call(&server, "r").await, ToolOutcome::Done(ToolOutput::text("ok")));
        assert_eq!((site.calls.load(Ordering::SeqCst), site.sessions.load(Ordering::SeqCst)), (2, 2));

        let (server, site) = self::site(|_| {}, move |request, n| if n == 0 { forgotten() } else { ok(request) }).await;
        let outcome = call(&server, "w").await;
        assert_eq!(ended(&outcome), ("failed", FailureKind::Unavailable), "the server refused it unread");
        assert_eq!(site.calls.load(Ordering::SeqCst), 1);
        assert_eq!(call(&server, "w").await, ToolOutcome::Done(ToolOutput::text("ok")));
        assert_eq!(site.sessions.load(Ordering::SeqCst), 2);
    }
}

#[tokio::test]
async fn a_status_decides_what_is_known_of_a_write() {
    let status = |status: u16, header: Option<(&'static str, &'static str)>| async move {
        let (server, _) = site(
            |_| {},
            move |_, _| {
                let mut response = bare(status);
                if let Some((name, value)) = header {
                    response.headers_mut().insert(name, value.parse().unwrap());
                }
                response
            },
        )
        .await;
        call(&server, "w").await
    };
    assert_eq!(ended(&status(500, None).await), ("unknown", FailureKind::Unavailable));
    assert_eq!(ended(&status(503, None).await), ("unknown", FailureKind::Unavailable));
    assert_eq!(ended(&status(429, None).await), ("failed", FailureKind::Unavailable));
    let challenge = Some(("www-authenticate", "Bearer realm=\"x\""));
    let refused = status(401, challenge).await;
    assert_eq!(ended(&refused), ("failed", FailureKind::Unavailable));
    assert!(refused.for_model().contains("credentials"));
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let (server, site) = site(
        |_| {},
        |_, _| {
            let mut response = bare(307);
            response.headers_mut().insert("location", "/elsewhere".parse().unwrap());
            response
        },
    )
    .await;
    assert_eq!(ended(&call(&server, "w").await), ("unknown", FailureKind::Unavailable));
    assert_eq!(site.calls.load(Ordering::SeqCst), 1, "every path leads to the same handler: a second call would count");
}

#[tokio::test]
async fn nobody_at_the_address_is_said_to_operators_not_to_models() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    drop(listener);
    let server = McpServer::new(&entry(McpTransport::Http { url }), around(Arc::new(SystemClock)));
    let error = server.list(&real().cx).await.unwrap_err();
    assert!(error.reason.contains("refused"), "{error}");
    assert!(matches!(server.status(), SourceStatus::Down { .. }));
}

#[tokio::test]
async fn an_answer_in_a_stream_is_an_answer_and_its_end_without_one_is_a_loss() {
    let stream = |text: String| {
        Response::builder()
            .status(StatusCode::OK)
            .header("content-type", "text/event-stream")
            .body(Body::from(text))
            .unwrap()
    };
    let (server, _) = site(|_| {}, move |request, n| {
        let answer = json!({"jsonrpc": "2.0", "id": request["id"], "result": {"content": [], "structuredContent": {"n": n}}});
        if n == 0 { stream(format!("event: message\ndata: {answer}\n\n")) } else { stream(": nothing\n\n".into()) }
    })
    .await;
    assert_eq!(call(&server, "w").await, ToolOutcome::Done(ToolOutput::structured(json!({"n": 0}))));
    assert_eq!(ended(&call(&server, "w").await), ("unknown", FailureKind::Unavailable));
}

/// A response whose body comes when the test lets it.
fn held(request: &Json, go: oneshot::Receiver<()>) -> Response {
    let body = json!({"jsonrpc": "2.0", "id": request["id"], "result": {"content": [{"type": "text", "text": "ok"}]}});
    let body = async move {
        go.await.ok();
        Ok::<_, std::io::Error>(body.to_string())
    };
    let response = Response::builder().status(200).header("content-type", "application/json");
    response.body(Body::from_stream(futures::stream::once(body))).unwrap()
}

/// Holds the first `n` calls until the returned senders are used; the others are answered by `rest`.
fn holding(
    n: usize,
    rest: impl Fn(&Json, usize) -> Response + Send + Sync + 'static,
) -> (Vec<oneshot::Sender<()>>, impl Fn(&Json, usize) -> Response + Send + Sync + 'static) {
    let (go, wait): (Vec<_>, Vec<_>) = (0..n).map(|_| oneshot::channel()).unzip();
    let wait = Mutex::new(wait);
    let answer = move |request: &Json, number: usize| match wait.lock().unwrap().pop().filter(|_| number < n) {
        Some(go) => held(request, go),
        None => rest(request, number),
    };
    (go, answer)
}

/// Lets everybody work until it holds.
async fn until(what: impl Fn() -> bool) {
    for _ in 0..1_000_000 {
        if what() {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("it never holds");
}

/// Calls `w` as tasks of their own.
async fn under_way(server: &Arc<McpServer>, site: &Site, n: usize) -> Vec<tokio::task::JoinHandle<ToolOutcome>> {
    let calls = (0..n).map(|_| {
        let server = server.clone();
        tokio::spawn(async move { call(&server, "w").await })
    });
    let calls = calls.collect();
    until(|| site.calls.load(Ordering::SeqCst) == n).await;
    calls
}

#[tokio::test]
async fn one_failed_request_over_http_fails_no_other() {
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
        [Arc::new(|| bare(500)), Arc::new(|| bare(503)), Arc::new(garbage), Arc::new(torn)];
    for fails in failures {
        let (go, answer) = holding(10, move |_, _| fails());
        let (server, site) = site(|_| {}, answer).await;
        let server = Arc::new(server);
        let calls = under_way(&server, &site, 10).await;
        assert_eq!(ended(&call(&server, "w").await), ("unknown", FailureKind::Unavailable));
        until(|| site.pinged.load(Ordering::SeqCst) == 1).await;
        go.into_iter().for_each(|go| go.send(()).unwrap());
        for call in calls {
            assert_eq!(call.await.unwrap(), ToolOutcome::Done(ToolOutput::text("ok")));
        }
        assert_eq!(server.status(), SourceStatus::Up);
        assert_eq!(site.sessions.load(Ordering::SeqCst), 1, "the session goes on");
    }
}

#[tokio::test]
async fn whoever_provokes_errors_takes_the_tool_from_nobody() {
    let (server, site) = site(|_| {}, |request, n| if n % 2 == 0 { bare(500) } else { ok(request) }).await;
    for _ in 0..50 {
        assert_eq!(ended(&call(&server, "w").await), ("unknown", FailureKind::Unavailable));
        assert_eq!(call(&server, "w").await, ToolOutcome::Done(ToolOutput::text("ok")));
    }
    assert_eq!(site.sessions.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_session_whose_pings_fail_is_given_up_and_what_is_in_flight_finishes() {
    let (go, answer) = holding(2, |request, n| if n == 2 { bare(500) } else { ok(request) });
    let clock = segue_base::manual_clock::ManualClock::new();
    let (server, site) = site_on(Arc::new(clock.clone()), |_| {}, answer).await;
    let server = Arc::new(server);
    let calls = under_way(&server, &site, 2).await;
    *site.pings.lock().unwrap() = Some(500);
    assert_eq!(ended(&call(&server, "w").await), ("unknown", FailureKind::Unavailable));
    until(|| site.pinged.load(Ordering::SeqCst) == 1).await;
    assert_eq!(server.status(), SourceStatus::Up, "one failed ping may have failed alone");
    until(|| clock.slept().contains(&limits::MCP_BACKOFF_WAIT)).await;
    clock.advance(limits::MCP_BACKOFF_WAIT);
    until(|| matches!(server.status(), SourceStatus::Down { .. })).await;
    assert_eq!(call(&server, "w").await, ToolOutcome::Done(ToolOutput::text("ok")), "the next call has a new session");
    assert_eq!((site.sessions.load(Ordering::SeqCst), site.ended.load(Ordering::SeqCst)), (2, 0));
    go.into_iter().for_each(|go| go.send(()).unwrap());
    for call in calls {
        assert_eq!(call.await.unwrap(), ToolOutcome::Done(ToolOutput::text("ok")));
    }
    until(|| site.ended.load(Ordering::SeqCst) == 1).await;
}

#[tokio::test]
async fn a_session_in_which_request_after_request_fails_is_replaced() {
    let clock = segue_base::manual_clock::ManualClock::new();
    let (server, site) = site_on(Arc::new(clock.clone()), |_| {}, |_, _| bare(500)).await;
    for _ in 0..=limits::MCP_FAILED_REQUESTS {
        call(&server, "w").await;
    }
    assert_eq!(site.sessions.load(Ordering::SeqCst), 1, "not a session that is young");
    clock.advance(limits::MCP_STABLE);
    call(&server, "w").await;
    call(&server, "w").await;
    assert_eq!(site.sessions.load(Ordering::SeqCst), 2);
    for _ in 0..=limits::MCP_FAILED_REQUESTS {
        call(&server, "w").await;
    }
    assert_eq!(site.sessions.load(Ordering::SeqCst), 2, "the new one is young");
}

#[tokio::test]
async fn an_address_is_in_no_error() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp?apiKey=s3cret", listener.local_addr().unwrap());
    drop(listener);
    let server = McpServer::new(&entry(McpTransport::Http { url }), around(Arc::new(SystemClock)));
    let error = server.list(&real().cx).await.unwrap_err();
    let said = format!("{error} {error:?} {:?}", server.status());
    assert!(said.contains("refused") && !said.contains("s3cret") && !said.contains("http://"), "{said}");

    let key = |def: &mut McpServerDef| {
        let McpTransport::Http { url } = &mut def.transport else { panic!("it is over HTTP") };
        url.push_str("?apiKey=s3cret");
    };
    let (server, _) = site(key, |_, _| bare(400)).await;
    let tool = tool(&server, "w", &real()).await;
    let logged = logged(tool.call(json!({}), &real())).await;
    assert!(logged.contains("a tool gave no answer") && !logged.contains("s3cret"), "{logged}");
}

/// The tools of a server as an agent has them whose author says of `w` that it is of this class.
async fn classed(server: &McpServer, effect: EffectClass) -> ToolSet {
    let catalog = server.list(&real().cx).await.unwrap();
    ToolSet::builder().server("fake", &catalog, &[], &[]).build().classed(|name| (name == "w").then_some(effect))
}

#[tokio::test]
async fn the_authors_class_decides_whether_a_lost_call_is_sent_again() {
    let seen: Arc<Mutex<Vec<Json>>> = Arc::default();
    let heard = seen.clone();
    let answer = move |request: &Json, n: usize| {
        heard.lock().unwrap().push(request["params"]["_meta"]["segue/idempotencyKey"].clone());
        if n == 0 { bare(500) } else { ok(request) }
    };
    // The server's own word is `idempotent`, the author's `write`: it is sent once, and nobody knows.
    let idempotent = |def: &mut McpServerDef| drop(def.effects.insert("w".into(), "idempotent".into()));
    let (server, site) = site(idempotent, answer.clone()).await;
    let outcome = invoke(&classed(&server, EffectClass::Write).await, "w", json!({}), &real(), None).await;
    assert_eq!(ended(&outcome), ("unknown", FailureKind::Unavailable));
    assert_eq!((site.calls.load(Ordering::SeqCst), seen.lock().unwrap().len()), (1, 1));

    // The other way round: it is sent again, with the same key.
    seen.lock().unwrap().clear();
    let (server, _) = self::site(|_| {}, answer).await;
    let outcome = invoke(&classed(&server, EffectClass::Idempotent).await, "w", json!({}), &real(), None).await;
    assert_eq!(outcome, ToolOutcome::Done(ToolOutput::text("ok")));
    assert_eq!(*seen.lock().unwrap(), [json!("k"), json!("k")]);
}
