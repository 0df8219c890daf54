//! Servers over HTTP, and the rows of the fault matrix about their sessions. What is about credentials stands in `auth`.

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

use super::{far::listed, *};

/// What a site does with a call; the number counts from 0.
type OnCall = dyn Fn(&Json, usize) -> Response + Send + Sync;

#[derive(Clone)]
pub(super) struct Site {
    /// Its address, without a path.
    pub(super) home: String,
    on_call: Arc<OnCall>,
    pub(super) calls: Arc<AtomicUsize>,
    pub(super) sessions: Arc<AtomicUsize>,
    /// Addresses that were asked, apart from the endpoint.
    pub(super) asked: Arc<Mutex<Vec<String>>>,
    /// Credentials that came.
    pub(super) credentials: Arc<Mutex<Vec<Option<String>>>>,
    /// With which challenge it turns away who brings no credentials.
    pub(super) gate: Arc<Mutex<Option<String>>>,
    /// What it answers at other paths.
    pub(super) pages: Arc<Mutex<BTreeMap<String, Json>>>,
    /// What its token server, at `/token`, was asked: each answer is another token.
    pub(super) tokens: Arc<Mutex<Vec<String>>>,
}

pub(super) fn respond(status: u16, headers: &[(&str, &str)], body: &Json) -> Response {
    let response = Response::builder().status(status).header("content-type", "application/json");
    let response = headers.iter().fold(response, |response, (name, value)| response.header(*name, *value));
    response.body(Body::from(body.to_string())).unwrap()
}

fn result(request: &Json, result: Json) -> Response {
    respond(200, &[], &json!({"jsonrpc": "2.0", "id": request["id"], "result": result}))
}

pub(super) fn yes(request: &Json) -> Response {
    result(request, json!({"content": [{"type": "text", "text": "yes"}]}))
}

async fn handle(State(site): State<Site>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    if head.uri.path() == "/token" {
        let form = axum::body::to_bytes(body, 1 << 20).await.unwrap();
        let mut tokens = site.tokens.lock().unwrap();
        tokens.push(String::from_utf8(form.to_vec()).unwrap());
        let token = format!("token-{}", tokens.len());
        return respond(200, &[], &json!({"access_token": token, "token_type": "Bearer"}));
    }
    if head.uri.path() != "/mcp" {
        site.asked.lock().unwrap().push(head.uri.path().to_owned());
        let page = site.pages.lock().unwrap().get(head.uri.path()).cloned();
        return page.map_or_else(|| respond(404, &[], &json!({})), |page| respond(200, &[], &page));
    }
    if head.method != "POST" {
        return respond(405, &[], &json!({}));
    }
    let credentials = head.headers.get("authorization").map(|value| value.to_str().unwrap().to_owned());
    if let (None, Some(challenge)) = (&credentials, &*site.gate.lock().unwrap()) {
        return respond(401, &[("www-authenticate", challenge)], &json!({}));
    }
    site.credentials.lock().unwrap().push(credentials);
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    let message: Json = serde_json::from_slice(&body).unwrap();
    match message["method"].as_str() {
        Some("initialize") => {
            let session = site.sessions.fetch_add(1, Ordering::SeqCst).to_string();
            let greeting = json!({
                "protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                "serverInfo": {"name": "site", "version": "1"}
            });
            let mut response = result(&message, greeting);
            response.headers_mut().insert("mcp-session-id", session.parse().unwrap());
            response
        }
        Some("tools/list") => {
            let tools = json!([listed("work", json!({})), listed("look", json!({"readOnlyHint": true}))]);
            result(&message, json!({"tools": tools}))
        }
        Some("tools/call") => (site.on_call)(&message, site.calls.fetch_add(1, Ordering::SeqCst)),
        Some("ping") => result(&message, json!({})),
        _ => respond(202, &[], &json!({})),
    }
}

pub(super) async fn site(
    entry: &str,
    on_call: impl Fn(&Json, usize) -> Response + Send + Sync + 'static,
) -> (Talk, Site) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let home = format!("http://{}", listener.local_addr().unwrap());
    let site = Site {
        home: home.clone(),
        on_call: Arc::new(on_call),
        calls: Arc::default(),
        sessions: Arc::default(),
        asked: Arc::default(),
        credentials: Arc::default(),
        gate: Arc::default(),
        pages: Arc::default(),
        tokens: Arc::default(),
    };
    let router = Router::new().fallback(handle).with_state(site.clone());
    tokio::spawn(async move { axum::serve(listener, router).await });
    let talk = Talk::of(builder(&format!("type: http, url: '{home}/mcp', {entry}")).clock(Arc::new(SystemClock)));
    (talk, site)
}

/// Forgets the session before the first call.
fn forgets(request: &Json, n: usize) -> Response {
    if n == 0 { respond(404, &[], &json!({})) } else { yes(request) }
}

#[tokio::test]
async fn m6_a_forgotten_session_is_opened_once_more_and_only_a_read_is_repeated() {
    let (talk, site) = site("", forgets).await;
    talk.works("/look", "yes").await;
    assert_eq!((site.calls.load(Ordering::SeqCst), site.sessions.load(Ordering::SeqCst)), (2, 2));
    let (talk, site) = self::site("", forgets).await;
    talk.breaks("/work", "unavailable: The connection had to be made anew; the call was not carried out").await;
    assert_eq!((site.calls.load(Ordering::SeqCst), site.sessions.load(Ordering::SeqCst)), (1, 1));
    talk.works("/work", "yes").await;
    assert_eq!(site.sessions.load(Ordering::SeqCst), 2, "opened once more, when it is needed");
}

#[tokio::test]
async fn m6_a_server_that_forgets_every_session_is_not_asked_for_ever() {
    let (talk, site) = site("", |_, _| respond(404, &[], &json!({}))).await;
    talk.breaks("/look", "unavailable").await;
    assert_eq!((site.calls.load(Ordering::SeqCst), site.sessions.load(Ordering::SeqCst)), (2, 2));
}

/// The node behind the balancer that holds no session says so in words of its own, without an id.
#[tokio::test]
async fn m22_a_session_that_is_on_another_node_counts_as_forgotten() {
    let elsewhere = |request: &Json, n| {
        let error = json!({"code": -32001, "message": "Session not found"});
        if n == 0 { respond(200, &[], &json!({"jsonrpc": "2.0", "id": null, "error": error})) } else { yes(request) }
    };
    let (talk, site) = site("", elsewhere).await;
    talk.works("/look", "yes").await;
    assert_eq!((site.calls.load(Ordering::SeqCst), site.sessions.load(Ordering::SeqCst)), (2, 2));
    let (talk, site) = self::site("", elsewhere).await;
    talk.breaks("/work", "unavailable: The connection had to be made anew; the call was not carried out").await;
    assert_eq!(site.calls.load(Ordering::SeqCst), 1);
}

/// One request that fails over HTTP is one failed call: what others have under way is carried out, in the same session.
#[tokio::test]
async fn m23_one_failed_request_over_http_is_one_failed_call() {
    let (go, wait) = tokio::sync::oneshot::channel::<()>();
    let wait = Mutex::new(Some(wait));
    let (talk, site) = site("", move |request, n| match wait.lock().unwrap().take() {
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
    let ada = talk.assistant.receive(IncomingMessage::text("ada", "/work", "world"), Box::new(DiscardReplies));
    let others = async {
        while site.calls.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        for _ in 0..3 {
            talk.is_in_doubt("/work", "unavailable: The connection to it was lost before it answered").await;
        }
        talk.works("/work", "yes").await;
        go.send(()).unwrap();
    };
    let (report, ()) = futures::join!(ada, others);
    let replies: Vec<_> = report.unwrap().replies.into_iter().filter_map(|reply| reply.reply.text).collect();
    assert_eq!(replies.iter().map(|text| &**text).collect::<Vec<_>>(), ["It said yes."]);
    assert_eq!(site.sessions.load(Ordering::SeqCst), 1);
}

/// The address of a hosted server often holds its key.
#[tokio::test]
async fn an_address_with_a_key_is_told_to_nobody() {
    let entry = "type: http, url: 'http://127.0.0.1:9/mcp?apiKey=${FAR_SECRET}'";
    let talk = Talk::of(builder(entry).clock(Arc::new(SystemClock)));
    let (_, told) = talk.say("/work").await;
    assert!(told.starts_with("T0502: far.work:") && !told.contains("s3cret") && !told.contains("http://"), "{told}");
    let trace = serde_json::to_string(&talk.assistant.trace(&"u".into(), None).await.unwrap()).unwrap();
    assert!(!trace.contains("s3cret"), "{trace}");
}

/// The author's word on what a tool does stands over that of its server, also when the call is lost.
#[tokio::test]
async fn what_the_author_calls_a_write_is_sent_once_whatever_the_server_says() {
    for (class, calls, told) in [("write", 1, "unknown[unavailable]"), ("idempotent", 2, "yes")] {
        let keys: Arc<Mutex<Vec<Json>>> = Arc::default();
        let heard = keys.clone();
        let (_, site) = site("", move |request, n| {
            heard.lock().unwrap().push(request["params"]["_meta"]["segue/idempotencyKey"].clone());
            if n == 0 { respond(500, &[], &json!({})) } else { yes(request) }
        })
        .await;
        let rules = format!("tools: {{work: {{effect: {class}}}}}");
        // The server's own word is the opposite of the author's.
        let own = if class == "write" { "effects: {work: idempotent}" } else { "effects: {work: write}" };
        let project = project_with(&format!("type: http, url: '{}/mcp', {own}", site.home), &rules);
        let builder = AssistantBuilder::new(Arc::new(project), ".".into()).clock(Arc::new(SystemClock));
        let talk = Talk::of(builder);
        talk.say("/ask").await;
        assert!(talk.clerk.told()[0].starts_with(told), "{class}: {:?}", talk.clerk.told());
        assert_eq!(site.calls.load(Ordering::SeqCst), calls, "{class}");
        let keys = keys.lock().unwrap();
        assert!(keys.iter().all(|key| key.is_string() && *key == keys[0]), "{class}: {keys:?}");
    }
}
