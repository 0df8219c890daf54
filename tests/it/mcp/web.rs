//! The rows of the fault matrix that need HTTP: sessions that are forgotten, and credentials.

use std::sync::atomic::{AtomicUsize, Ordering};

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
struct Site {
    on_call: Arc<OnCall>,
    calls: Arc<AtomicUsize>,
    sessions: Arc<AtomicUsize>,
    /// Addresses that were asked, apart from the endpoint.
    asked: Arc<Mutex<Vec<String>>>,
    /// Credentials that came.
    credentials: Arc<Mutex<Vec<Option<String>>>>,
}

fn respond(status: u16, headers: &[(&str, &str)], body: &Json) -> Response {
    let response = Response::builder().status(status).header("content-type", "application/json");
    let response = headers.iter().fold(response, |response, (name, value)| response.header(*name, *value));
    response.body(Body::from(body.to_string())).unwrap()
}

fn result(request: &Json, result: Json) -> Response {
    respond(200, &[], &json!({"jsonrpc": "2.0", "id": request["id"], "result": result}))
}

fn yes(request: &Json) -> Response {
    result(request, json!({"content": [{"type": "text", "text": "yes"}]}))
}

async fn handle(State(site): State<Site>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    if head.uri.path() != "/mcp" {
        site.asked.lock().unwrap().push(head.uri.path().to_owned());
        return respond(404, &[], &json!({}));
    }
    if head.method != "POST" {
        return respond(405, &[], &json!({}));
    }
    let credentials = head.headers.get("authorization").map(|value| value.to_str().unwrap().to_owned());
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

async fn site(entry: &str, on_call: impl Fn(&Json, usize) -> Response + Send + Sync + 'static) -> (Talk, Site) {
    let site = Site {
        on_call: Arc::new(on_call),
        calls: Arc::default(),
        sessions: Arc::default(),
        asked: Arc::default(),
        credentials: Arc::default(),
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let router = Router::new().fallback(handle).with_state(site.clone());
    tokio::spawn(async move { axum::serve(listener, router).await });
    let talk = Talk::of(builder(&format!("type: http, url: '{url}', {entry}")).clock(Arc::new(SystemClock)));
    (talk, site)
}

#[tokio::test]
async fn m6_and_m22_a_forgotten_session_is_opened_once_more_and_only_a_read_is_repeated() {
    let forgets = |request: &Json, n| if n == 0 { respond(404, &[], &json!({})) } else { yes(request) };
    let (talk, site) = site("", forgets).await;
    talk.works("/look", "yes").await;
    assert_eq!((site.calls.load(Ordering::SeqCst), site.sessions.load(Ordering::SeqCst)), (2, 2));
    let (talk, site) = self::site("", forgets).await;
    talk.breaks("/work", "unavailable: The connection had to be made anew; the call was not carried out").await;
    assert_eq!(site.calls.load(Ordering::SeqCst), 1);
    talk.works("/work", "yes").await;
}

#[tokio::test]
async fn m19_refused_credentials_are_an_honest_failure_and_are_never_sent_elsewhere() {
    let refuses = |_: &Json, _| respond(401, &[("www-authenticate", "Bearer realm=\"far\"")], &json!({}));
    let (talk, site) = site("headers: {Authorization: 'Bearer s3cret'}", refuses).await;
    talk.breaks("/work", "unavailable: It does not accept our credentials").await;
    let (_, told) = talk.say("/work").await;
    assert!(!told.contains("s3cret"), "{told}");
    assert!(site.asked.lock().unwrap().is_empty(), "a fixed key is not looked for elsewhere");
}

#[tokio::test]
async fn m19_metadata_that_points_to_a_private_address_is_not_followed() {
    // The server itself stands on this machine, so that data may name this machine; a private net it may not.
    let challenge = "Bearer resource_metadata=\"http://10.255.255.1:81/meta\"";
    let oauth = "oauth: {grant: authorization_code}";
    let (talk, site) = site(oauth, move |_, _| respond(401, &[("www-authenticate", challenge)], &json!({}))).await;
    talk.breaks("/work", "unavailable: It does not accept our credentials").await;
    assert!(site.credentials.lock().unwrap().iter().all(Option::is_none));
}

#[tokio::test]
async fn a_server_that_wants_more_and_more_is_asked_for_only_so_much() {
    let redirect = |_: &Json, _| respond(307, &[("location", "http://10.255.255.1/mcp")], &json!({}));
    let (talk, site) = site("", redirect).await;
    talk.breaks("/work", "unavailable: The connection to it was lost").await;
    assert_eq!(site.calls.load(Ordering::SeqCst), 1, "a redirect to another host is not followed");
}
