//! Over HTTP: who is let in, and how many.

use axum::{
    body::Bytes,
    http::{Request, StatusCode},
};
use futures::StreamExt;
use tower::ServiceExt as _;

use super::*;
use crate::{
    channels::{Authenticator, BearerToken, Channel, ChannelService, Inbox},
    limits,
};

fn service(settings: McpServerSettings) -> ChannelService {
    let assistant = assistant(&["start flow greet", "start flow greet"]);
    McpServerChannel::new(settings).service(Inbox::new(assistant, NAME))
}

fn open() -> McpServerSettings {
    McpServerSettings::default()
}

/// Posts a message; status, session, and what was answered.
async fn post(
    service: &ChannelService,
    heads: &[(&str, &str)],
    message: &Json,
) -> (StatusCode, Option<String>, String) {
    post_text(service, heads, message.to_string()).await
}

async fn post_text(
    service: &ChannelService,
    heads: &[(&str, &str)],
    text: String,
) -> (StatusCode, Option<String>, String) {
    let mut request = Request::post("/").header("host", "localhost:1").header("content-type", "application/json");
    request = request.header("accept", "application/json, text/event-stream");
    for (name, value) in heads {
        if *name == "host" {
            request.headers_mut().unwrap().remove("host");
        }
        request = request.header(*name, *value);
    }
    let answer = service.clone().oneshot(request.body(Bytes::from(text)).unwrap()).await.unwrap();
    let session = answer.headers().get("mcp-session-id").map(|id| id.to_str().unwrap().to_owned());
    let status = answer.status();
    let mut pieces = answer.into_body().into_data_stream();
    let mut text = Vec::new();
    // A stream stays open after the answer.
    while let Some(piece) = pieces.next().await {
        text.extend_from_slice(&piece.unwrap());
        if String::from_utf8_lossy(&text).contains("\"jsonrpc\"") {
            break;
        }
    }
    (status, session, String::from_utf8(text).unwrap())
}

fn initialize() -> Json {
    json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "host", "version": "1"},
    }})
}

fn guarded() -> McpServerSettings {
    McpServerSettings {
        auth: Authenticator::new(BearerToken::new("s3cret"), None).unwrap(),
        ..McpServerSettings::default()
    }
}

#[tokio::test]
async fn only_the_token_lets_in() {
    let service = service(guarded());
    assert_eq!(post(&service, &[], &initialize()).await.0, StatusCode::UNAUTHORIZED);
    assert_eq!(post(&service, &[("authorization", "Bearer wrong")], &initialize()).await.0, StatusCode::UNAUTHORIZED);
    let (status, session, _) = post(&service, &[("authorization", "Bearer s3cret")], &initialize()).await;
    assert_eq!(status, StatusCode::OK);
    let session = session.unwrap();
    let list = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"});
    let heads = [("mcp-session-id", session.as_str()), ("mcp-protocol-version", "2025-11-25")];
    assert_eq!(post(&service, &heads, &list).await.0, StatusCode::UNAUTHORIZED, "a session is no proof");
}

const SECRET: &str = "a secret of thirty-two bytes, or more";

/// Callers that can be told apart, beside those who know one token.
fn told_apart() -> McpServerSettings {
    let rules = json!({"auth_token": "s3cret", "jwt": {"issuer": "https://i", "audience": "me", "secret": SECRET}});
    let channel = crate::channels::tests::channel("mcp", &rules).unwrap();
    McpServerSettings::new(&channel, assistant(&[]).project()).unwrap()
}

fn bearer(who: &str) -> String {
    format!("Bearer {}", crate::channels::auth::tests::signed_token(who, SECRET))
}

#[tokio::test]
async fn a_session_is_nobodys_but_the_callers_who_began_it() {
    let service = service(told_apart());
    let (ada, bob, fixed) = (bearer("ada"), bearer("bob"), "Bearer s3cret".to_owned());
    let list = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"});
    let asked = async |who: &str, session: &str| {
        let heads = [("authorization", who), ("mcp-session-id", session), ("mcp-protocol-version", "2025-11-25")];
        post(&service, &heads, &list).await.0
    };
    // A name of a session that cannot be read is none.
    for (owner, named) in [(&ada, None), (&fixed, None), (&bob, Some(("mcp-session-id", "ÿ")))] {
        let heads: Vec<(&str, &str)> = [("authorization", owner.as_str())].into_iter().chain(named).collect();
        let (status, session, _) = post(&service, &heads, &initialize()).await;
        assert_eq!(status, StatusCode::OK);
        let session = session.unwrap();
        for who in [&ada, &bob, &fixed] {
            let wanted = if who == owner { StatusCode::OK } else { StatusCode::NOT_FOUND };
            assert_eq!(asked(who, &session).await, wanted);
        }
    }
    assert_eq!(asked(&ada, "made-up").await, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn so_many_sessions_are_open_at_once() {
    let service = service(open());
    for _ in 0..limits::MCP_SERVED_SESSIONS {
        assert_eq!(post(&service, &[], &initialize()).await.0, StatusCode::OK);
    }
    assert_eq!(post(&service, &[], &initialize()).await.0, StatusCode::SERVICE_UNAVAILABLE);
    let escaped = initialize().to_string().replace("initialize", "initi\\u0061lize");
    assert_eq!(post_text(&service, &[], escaped).await.0, StatusCode::SERVICE_UNAVAILABLE);
    let unread = [("mcp-session-id", "ÿ")];
    assert_eq!(post(&service, &unread, &initialize()).await.0, StatusCode::SERVICE_UNAVAILABLE);
}

/// Something that is said without a session.
fn said(key: &str) -> Json {
    json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "converse", "arguments": {"message": "hello"},
        "_meta": {
            "segue/idempotencyKey": key, "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    }})
}

const ALONE: [(&str, &str); 3] =
    [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", "converse")];

#[tokio::test]
async fn without_a_session_a_key_is_the_callers() {
    let service = service(told_apart());
    let key = "k".repeat(limits::MCP_SERVED_KEY);
    let calls = async |who: &str| {
        let who = bearer(who);
        let heads = [ALONE.as_slice(), &[("authorization", &who)]].concat();
        post(&service, &heads, &said(&key)).await.2
    };
    for (who, repeated) in [("ada", false), ("bob", false), ("ada", true), ("bob", true)] {
        let answer = calls(who).await;
        assert!(answer.contains("Who are you?"), "{who}: {answer}");
        assert_eq!(answer.contains("\"repeated\":true"), repeated, "{who}: {answer}");
    }
}

#[tokio::test]
async fn without_a_session_a_key_must_be_one_that_nobody_guesses() {
    let service = service(open());
    let heads = ALONE;
    let short = "k".repeat(limits::MCP_SERVED_KEY - 1);
    let (_, _, refused) = post(&service, &heads, &said(&short)).await;
    assert!(refused.contains("idempotency key is too short"), "{refused}");
    let long = "k".repeat(limits::MCP_SERVED_KEY);
    let (_, _, first) = post(&service, &heads, &said(&long)).await;
    let (_, _, again) = post(&service, &heads, &said(&long)).await;
    assert!(first.contains("Who are you?") && !first.contains("repeated\""), "{first}");
    assert!(again.contains("\"repeated\":true"), "{again}");
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_silent_for_long_ends() {
    let service = service(open());
    let session = post(&service, &[], &initialize()).await.1.unwrap();
    let heads = [("mcp-session-id", session.as_str()), ("mcp-protocol-version", "2025-11-25")];
    let begun = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    assert_eq!(post(&service, &heads, &begun).await.0, StatusCode::ACCEPTED);
    tokio::time::advance(limits::MCP_SERVED_IDLE / 2).await;
    let list = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"});
    assert_eq!(post(&service, &heads, &list).await.0, StatusCode::OK);
    tokio::time::advance(limits::MCP_SERVED_IDLE * 2).await;
    // The owner of the session notices before it is asked.
    tokio::task::yield_now().await;
    assert_eq!(post(&service, &heads, &list).await.0, StatusCode::NOT_FOUND);
}
