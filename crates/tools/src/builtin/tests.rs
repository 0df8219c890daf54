//! Tests of the built-in tools: the HTTP tools against a server of the test.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    body::Bytes,
    http::{HeaderMap, Method, StatusCode, Uri},
    response::{IntoResponse, Redirect},
    routing::{any, get},
};
use segue_base::{clock::Clock, http::HttpClients, limits, manual_clock::ManualClock};
use segue_engine::project::HttpTarget;
use serde_json::{Value as Json, json};

use super::{HttpTools, utils};
use crate::{EffectClass, FailureKind, ToolOutcome, fixture::context, invoke::invoke, tool_set::ToolSet};

fn set(tools: Vec<crate::Tool>) -> ToolSet {
    tools.into_iter().fold(ToolSet::builder(), |set, tool| set.tool(Arc::new(tool))).build()
}

fn text(outcome: ToolOutcome) -> String {
    match outcome {
        ToolOutcome::Done(output) => output.joined_text(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn sleep_waits_on_the_clock_of_the_call_and_at_most_five_minutes() {
    let tools = set(utils());
    let clock = Arc::new(ManualClock::new());
    let mut cx = context();
    cx.cx = segue_base::context::CallContext::new(clock.clone(), Duration::from_secs(3600));
    let mut call = std::pin::pin!(invoke(&tools, "sleep", json!({"seconds": 300}), &cx, None));
    assert!(futures::poll!(&mut call).is_pending());
    clock.advance(Duration::from_secs(299));
    assert!(futures::poll!(&mut call).is_pending());
    clock.advance(Duration::from_secs(1));
    assert_eq!(text(call.await), "Waited for 300 s.");
    let long = invoke(&tools, "sleep", json!({"seconds": 301}), &cx, None).await;
    assert!(matches!(&long, ToolOutcome::Failed(failure) if failure.kind == FailureKind::BadArguments), "{long:?}");
}

#[tokio::test]
async fn the_time_is_told_in_a_zone_and_a_form() {
    let tools = set(utils());
    let clock = Arc::new(ManualClock::new());
    let mut cx = context();
    cx.cx = segue_base::context::CallContext::new(clock.clone(), Duration::from_secs(3600));
    let now = clock.now().to_utc();
    let told = async |arguments: Json| invoke(&tools, "current_time", arguments, &cx, None).await;
    assert_eq!(text(told(json!({})).await), now.format("%Y-%m-%dT%H:%M:%SZ").to_string());
    let tokyo = now.with_timezone(&chrono_tz::Asia::Tokyo).format("%H:%M").to_string();
    assert_eq!(text(told(json!({"timezone": "Asia/Tokyo", "format": "%H:%M"})).await), tokyo);
    for wrong in [json!({"timezone": "Mars/Base"}), json!({"format": "%Q"})] {
        let outcome = told(wrong.clone()).await;
        assert!(
            matches!(&outcome, ToolOutcome::Failed(f) if f.kind == FailureKind::BadArguments),
            "{wrong}: {outcome:?}"
        );
    }
}

/// What the server got, as the body of its response.
async fn echo(method: Method, uri: Uri, headers: HeaderMap, body: Bytes) -> impl IntoResponse {
    let header = |name: &str| headers.get(name).map(|value| value.to_str().unwrap().to_owned());
    let body = String::from_utf8(body.to_vec()).unwrap();
    axum::Json(json!({
        "method": method.as_str(), "path": uri.to_string(), "body": body,
        "type": header("content-type"), "key": header("x-key"),
    }))
}

/// The address of a server, `http://127.0.0.1:…`; `elsewhere` is where `/away` redirects to.
async fn server(elsewhere: &str) -> String {
    let away = format!("{elsewhere}/items/5");
    let router = Router::new()
        .route("/items/{id}", any(echo))
        .route("/private", any(echo))
        .route("/items/here", any(|| async { Redirect::to("/items/2") }))
        .route("/items/again", any(|| async { Redirect::temporary("/items/3") }))
        .route("/items/loop", any(|| async { Redirect::temporary("/items/loop") }))
        .route("/items/gone", any(|| async { Redirect::to("http://127.0.0.1:1/page") }))
        .route("/items/out", any(|| async { Redirect::temporary("/private") }))
        .route("/items/away", any(move || std::future::ready(Redirect::temporary(&away))))
        .route("/items/missing", get(|| async { (StatusCode::NOT_FOUND, "no such item") }))
        .route("/items/bytes", get(|| async { vec![0xff_u8, 0xfe] }))
        .route("/items/long", get(|| async { "x".repeat(limits::HTTP_TOOL_BODY + 1) }));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

fn http(allow: &[&str]) -> ToolSet {
    let allow: Vec<HttpTarget> = allow.iter().map(|text| HttpTarget::parse(text).unwrap()).collect();
    set(HttpTools::new(allow.into(), &HttpClients::new()).tools())
}

async fn result(tools: &ToolSet, tool: &str, arguments: Json) -> Json {
    match invoke(tools, tool, arguments, &context(), None).await {
        ToolOutcome::Done(output) => output.structured.unwrap(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn requests_reach_the_allowed_addresses_and_their_results_have_status_headers_and_body() {
    let address = server("http://localhost:1").await;
    let tools = http(&[&format!("{address}/items/")]);
    let at = |path: &str| format!("{address}/items/{path}");
    let got = result(&tools, "http_get", json!({"url": at("1?a=b"), "headers": {"X-Key": "k"}})).await;
    assert_eq!((&got["status"], &got["headers"]["content-type"]), (&200.into(), &"application/json".into()));
    assert_eq!(got["body"], json!({"method": "GET", "path": "/items/1?a=b", "body": "", "type": null, "key": "k"}));
    for (tool, method) in [("http_post", "POST"), ("http_put", "PUT"), ("http_patch", "PATCH")] {
        let sent = result(&tools, tool, json!({"url": at("1"), "body": {"n": 1}})).await;
        assert_eq!((&sent["body"]["method"], &sent["body"]["body"]), (&method.into(), &r#"{"n":1}"#.into()));
        assert_eq!(sent["body"]["type"], "application/json");
    }
    let sent = result(&tools, "http_post", json!({"url": at("1"), "body": "tea"})).await;
    assert_eq!((&sent["body"]["body"], &sent["body"]["type"]), (&"tea".into(), &"text/plain; charset=utf-8".into()));
    assert_eq!(result(&tools, "http_delete", json!({"url": at("1")})).await["body"]["method"], "DELETE");
    let missing = result(&tools, "http_get", json!({"url": at("missing")})).await;
    assert_eq!((&missing["status"], &missing["body"]), (&404.into(), &"no such item".into()));
    assert!(
        result(&tools, "http_get", json!({"url": at("bytes")})).await["note"].as_str().unwrap().contains("2 bytes")
    );
    let long = result(&tools, "http_get", json!({"url": at("long")})).await;
    assert!(long["body"].is_null() && long["note"].as_str().unwrap().contains("was not read"), "{long}");
}

#[tokio::test]
async fn redirects_are_followed_to_allowed_addresses_only() {
    let (address, elsewhere) = (server("http://localhost:1").await, server("http://localhost:1").await);
    let leading = server(&elsewhere).await;
    let tools = http(&[&format!("{address}/items/")]);
    let at = |path: &str| format!("{address}/items/{path}");
    let here = result(&tools, "http_post", json!({"url": at("here"), "body": "x"})).await;
    assert_eq!((&here["body"]["method"], &here["body"]["path"]), (&"GET".into(), &"/items/2".into()));
    let again = result(&tools, "http_post", json!({"url": at("again"), "body": "x"})).await;
    assert_eq!((&again["body"]["method"], &again["body"]["body"]), (&"POST".into(), &"x".into()));
    for path in ["out", "away", "loop"] {
        let stays = result(&tools, "http_get", json!({"url": at(path)})).await;
        assert_eq!(stays["status"], 307, "{path}: {stays}");
        assert!(stays["note"].as_str().unwrap().contains("not followed"), "{path}: {stays}");
    }
    // The call has happened, although the page that its answer leads to cannot be read.
    let closed = http(&[&address, "http://127.0.0.1:1"]);
    let gone = result(&closed, "http_post", json!({"url": at("gone"), "body": "x"})).await;
    assert_eq!(gone["status"], 303, "{gone}");
    assert!(gone["note"].as_str().unwrap().contains("was answered"), "{gone}");
    // Headers do not reach another server, although it is allowed.
    let both = http(&[&leading, &elsewhere]);
    let away = json!({"url": format!("{leading}/items/away"), "headers": {"X-Key": "k"}});
    let away = result(&both, "http_get", away).await;
    assert_eq!((&away["body"]["path"], &away["body"]["key"]), (&"/items/5".into(), &Json::Null), "{away}");
}

#[tokio::test]
async fn other_addresses_private_ones_and_metadata_services_are_refused() {
    let address = server("http://localhost:1").await;
    let port = address.rsplit(':').next().unwrap();
    let items = format!("{address}/items/");
    let tools = http(&[&items, "http://169.254.169.254/"]);
    for url in [
        format!("{address}/private"),
        format!("{address}/items/../private"),
        format!("{address}/items/%2e%2e/private"),
        format!("{address}/items/..%2Fprivate"),
        format!("{address}/items/..%5cprivate"),
        format!("{address}/items/..;/private"),
        format!("http://localhost:{port}/items/1"),
        format!("http://user:pass@127.0.0.1:{port}/items/1"),
        "http://169.254.169.254/latest/meta-data/".to_owned(),
        "file:///etc/passwd".to_owned(),
        "https://example.com/".to_owned(),
    ] {
        let outcome = invoke(&tools, "http_get", json!({"url": url}), &context(), None).await;
        assert!(matches!(&outcome, ToolOutcome::Failed(f) if f.kind == FailureKind::Refused), "{url}: {outcome:?}");
    }
    for arguments in [
        json!({"url": "items/1"}),
        json!({"url": format!("{items}1"), "headers": {"Host": "other"}}),
        json!({"url": format!("{items}1"), "headers": {"X": "a\nb"}}),
    ] {
        let outcome = invoke(&tools, "http_get", arguments.clone(), &context(), None).await;
        let is_wrong = matches!(&outcome, ToolOutcome::Failed(f) if f.kind == FailureKind::BadArguments);
        assert!(is_wrong, "{arguments}: {outcome:?}");
    }
    // Nothing listens there: the request had no effect.
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let tools = http(&[&format!("http://{closed}")]);
    let outcome = invoke(&tools, "http_post", json!({"url": format!("http://{closed}/")}), &context(), None).await;
    assert!(matches!(&outcome, ToolOutcome::Failed(f) if f.kind == FailureKind::Unavailable), "{outcome:?}");
}

#[test]
fn the_effect_classes_say_what_may_be_repeated() {
    let classes: Vec<(String, EffectClass)> =
        http(&["a.example"]).infos().map(|info| (info.name.to_string(), info.effect)).collect();
    let expected = [
        ("http_get", EffectClass::Read),
        ("http_post", EffectClass::Write),
        ("http_put", EffectClass::Idempotent),
        ("http_patch", EffectClass::Write),
        ("http_delete", EffectClass::Idempotent),
    ];
    for (name, class) in expected {
        assert!(classes.contains(&(name.to_owned(), class)), "{name}: {classes:?}");
    }
}
