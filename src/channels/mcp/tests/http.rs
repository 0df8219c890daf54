//! Streamable HTTP: authentication, the owners and the number of sessions, idempotency keys without a session.

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

fn unauthenticated() -> McpServerSettings {
    McpServerSettings::default()
}

/// Posts a message. Returns the status, the session id and the body, of a stream up to the first message.
async fn post(
    service: &ChannelService,
    headers: &[(&str, &str)],
    message: &Json,
) -> (StatusCode, Option<String>, String) {
    post_text(service, headers, message.to_string()).await
}

async fn post_text(
    service: &ChannelService,
    headers: &[(&str, &str)],
    text: String,
) -> (StatusCode, Option<String>, String) {
    let mut request = Request::post("/").header("host", "localhost:1").header("content-type", "application/json");
    request = request.header("accept", "application/json, text/event-stream");
    for (name, value) in headers {
        if *name == "host" {
            request.headers_mut().unwrap().remove("host");
        }
        request = request.header(*name, *value);
    }
    let response = service.clone().oneshot(request.body(Bytes::from(text)).unwrap()).await.unwrap();
    let session = response.headers().get("mcp-session-id").map(|id| id.to_str().unwrap().to_owned());
    let status = response.status();
    let mut chunks = response.into_body().into_data_stream();
    let mut text = Vec::new();
    // An event stream stays open after the message.
    while let Some(chunk) = chunks.next().await {
        text.extend_from_slice(&chunk.unwrap());
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

fn with_token() -> McpServerSettings {
    McpServerSettings {
        auth: Authenticator::new(BearerToken::new("s3cret"), None).unwrap(),
        ..McpServerSettings::default()
    }
}

#[tokio::test]
async fn requests_without_the_token_are_refused() {
    let service = service(with_token());
    assert_eq!(post(&service, &[], &initialize()).await.0, StatusCode::UNAUTHORIZED);
    assert_eq!(post(&service, &[("authorization", "Bearer wrong")], &initialize()).await.0, StatusCode::UNAUTHORIZED);
    let (status, session, _) = post(&service, &[("authorization", "Bearer s3cret")], &initialize()).await;
    assert_eq!(status, StatusCode::OK);
    let session = session.unwrap();
    let list = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"});
    let headers = [("mcp-session-id", session.as_str()), ("mcp-protocol-version", "2025-11-25")];
    assert_eq!(post(&service, &headers, &list).await.0, StatusCode::UNAUTHORIZED, "a session id does not authenticate");
}

const SECRET: &str = "a secret of thirty-two bytes, or more";

/// Callers with an identity (JWT) and callers without one (a shared token).
fn with_jwt_and_token() -> McpServerSettings {
    let rules = json!({"auth_token": "s3cret", "jwt": {"issuer": "https://i", "audience": "me", "secret": SECRET}});
    let channel = crate::channels::tests::channel("mcp", &rules).unwrap();
    McpServerSettings::new(&channel, &assistant(&[]).project()).unwrap()
}

fn bearer(subject: &str) -> String {
    format!("Bearer {}", crate::channels::auth::tests::signed_token(subject, SECRET))
}

#[tokio::test]
async fn session_is_usable_only_by_the_caller_that_created_it() {
    let service = service(with_jwt_and_token());
    let (ada, bob, shared) = (bearer("ada"), bearer("bob"), "Bearer s3cret".to_owned());
    let list = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"});
    let list_tools = async |authorization: &str, session: &str| {
        let headers =
            [("authorization", authorization), ("mcp-session-id", session), ("mcp-protocol-version", "2025-11-25")];
        post(&service, &headers, &list).await.0
    };
    // A session id that is not ASCII counts as none.
    for (owner, session_header) in [(&ada, None), (&shared, None), (&bob, Some(("mcp-session-id", "ÿ")))] {
        let headers: Vec<(&str, &str)> =
            [("authorization", owner.as_str())].into_iter().chain(session_header).collect();
        let (status, session, _) = post(&service, &headers, &initialize()).await;
        assert_eq!(status, StatusCode::OK);
        let session = session.unwrap();
        for caller in [&ada, &bob, &shared] {
            let expected = if caller == owner { StatusCode::OK } else { StatusCode::NOT_FOUND };
            assert_eq!(list_tools(caller, &session).await, expected);
        }
    }
    assert_eq!(list_tools(&ada, "made-up").await, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn number_of_open_sessions_is_limited() {
    let service = service(unauthenticated());
    for _ in 0..limits::MCP_SERVED_SESSIONS {
        assert_eq!(post(&service, &[], &initialize()).await.0, StatusCode::OK);
    }
    assert_eq!(post(&service, &[], &initialize()).await.0, StatusCode::SERVICE_UNAVAILABLE);
    let escaped = initialize().to_string().replace("initialize", "initi\\u0061lize");
    assert_eq!(post_text(&service, &[], escaped).await.0, StatusCode::SERVICE_UNAVAILABLE);
    let unreadable = [("mcp-session-id", "ÿ")];
    assert_eq!(post(&service, &unreadable, &initialize()).await.0, StatusCode::SERVICE_UNAVAILABLE);
}

/// A message to the assistant without a session.
fn converse(key: &str) -> Json {
    json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "converse", "arguments": {"message": "hello"},
        "_meta": {
            "segue/idempotencyKey": key, "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    }})
}

/// The headers of such a message.
const SESSIONLESS: [(&str, &str); 3] =
    [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", "converse")];

#[tokio::test]
async fn sessionless_idempotency_keys_of_two_callers_are_separate() {
    let service = service(with_jwt_and_token());
    let key = "k".repeat(limits::MCP_SERVED_KEY);
    let call = async |subject: &str| {
        let authorization = bearer(subject);
        let headers = [SESSIONLESS.as_slice(), &[("authorization", &authorization)]].concat();
        post(&service, &headers, &converse(&key)).await.2
    };
    for (subject, repeated) in [("ada", false), ("bob", false), ("ada", true), ("bob", true)] {
        let answer = call(subject).await;
        assert!(answer.contains("Who are you?"), "{subject}: {answer}");
        assert_eq!(answer.contains("\"repeated\":true"), repeated, "{subject}: {answer}");
    }
}

#[tokio::test]
async fn a_conversation_can_be_continued_by_its_caller_only() {
    let service = service(with_jwt_and_token());
    let (ada, bob, shared) = (bearer("ada"), bearer("bob"), "Bearer s3cret".to_owned());
    let call = async |authorization: &str, key: &str, id: Option<&str>| {
        let mut message = converse(&key.repeat(limits::MCP_SERVED_KEY));
        if let Some(id) = id {
            message["params"]["arguments"]["conversation_id"] = json!(id);
        }
        let headers = [SESSIONLESS.as_slice(), &[("authorization", authorization)]].concat();
        post(&service, &headers, &message).await.2
    };
    for owner in [&ada, &shared] {
        let answer = call(owner, "a", None).await;
        let id: String =
            answer.split("mcp-").nth(1).unwrap().chars().take_while(|c| c.is_ascii_hexdigit() || *c == '-').collect();
        let id = format!("mcp-{id}");
        for (key, caller) in [("b", &ada), ("c", &bob), ("d", &shared)] {
            let answer = call(caller, key, Some(&id)).await;
            assert_eq!(answer.contains("There is no talk"), caller != owner, "{id} {caller}: {answer}");
        }
    }
}

#[tokio::test]
async fn short_idempotency_key_without_a_session_is_refused() {
    let service = service(unauthenticated());
    let headers = SESSIONLESS;
    let short = "k".repeat(limits::MCP_SERVED_KEY - 1);
    let (_, _, refused) = post(&service, &headers, &converse(&short)).await;
    assert!(refused.contains("idempotency key is too short"), "{refused}");
    let long = "k".repeat(limits::MCP_SERVED_KEY);
    let (_, _, first) = post(&service, &headers, &converse(&long)).await;
    let (_, _, again) = post(&service, &headers, &converse(&long)).await;
    assert!(first.contains("Who are you?") && !first.contains("repeated\""), "{first}");
    assert!(again.contains("\"repeated\":true"), "{again}");
}

#[tokio::test(start_paused = true)]
async fn idle_session_ends_after_the_timeout() {
    let service = service(unauthenticated());
    let session = post(&service, &[], &initialize()).await.1.unwrap();
    let headers = [("mcp-session-id", session.as_str()), ("mcp-protocol-version", "2025-11-25")];
    let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    assert_eq!(post(&service, &headers, &initialized).await.0, StatusCode::ACCEPTED);
    tokio::time::advance(limits::MCP_SERVED_IDLE / 2).await;
    let list = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"});
    assert_eq!(post(&service, &headers, &list).await.0, StatusCode::OK);
    tokio::time::advance(limits::MCP_SERVED_IDLE * 2).await;
    // The task of the session has to see the timeout before the next request.
    tokio::task::yield_now().await;
    assert_eq!(post(&service, &headers, &list).await.0, StatusCode::NOT_FOUND);
}
