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

use super::fake::{around, entry, listed, tool};
use crate::{
    auth::NoToken,
    clock::SystemClock,
    cx::Cx,
    limits,
    tools::{
        FailureKind, SourceStatus, ToolCx, ToolOutcome, ToolOutput, ToolSource,
        fixture::context,
        mcp::{McpServer, auth::Tokens},
    },
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
        Some("ping") => result(&message, json!({})),
        _ => bare(202),
    }
}

/// Starts a site and a client of it.
async fn site(
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
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let router = Router::new().fallback(handle).with_state(site.clone());
    tokio::spawn(async move { axum::serve(listener, router).await });
    let mut def = entry(McpTransport::Http { url });
    def.effects.insert("r".into(), "read".into());
    change(&mut def);
    (McpServer::new(&def, around(Arc::new(SystemClock))), site)
}

/// A context on the machine's clock: waiting for a socket must not look like standing still.
fn real() -> ToolCx {
    ToolCx { cx: Cx::new(Arc::new(SystemClock), std::time::Duration::from_secs(60)), ..context() }
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
        def.oauth = Some(oauth.as_object().unwrap().clone());
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
    let (http, clock) = (crate::http::Outbound::new(), Arc::new(SystemClock));
    let oauth = oauth.as_object().unwrap();
    let tokens = Tokens::new(("fake", &url), oauth, http.client().unwrap(), clock, None).unwrap();
    assert_eq!(tokens.token().await, Err(NoToken::TooLarge));
    // The same for what it says about itself.
    let router = Router::new().fallback(async || "x".repeat(limits::MCP_TOKEN + 1));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    let oauth = json!({"client_id": "me", "client_secret": "s3cret"});
    let (oauth, clock) = (oauth.as_object().unwrap(), Arc::new(SystemClock));
    let tokens = Tokens::new(("fake", &url), oauth, http.client().unwrap(), clock, None).unwrap();
    let error = tokens.token().await.unwrap_err().to_string();
    assert!(error.contains("too large"), "{error}");
}

#[tokio::test]
async fn an_entry_whose_oauth_lacks_something_says_so() {
    let oauth = |def: &mut McpServerDef| {
        def.oauth = Some(json!({"client_id": "me"}).as_object().unwrap().clone());
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
