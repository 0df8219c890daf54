//! A model server: streamed chat completions. Its answer depends only on the newest reference in the request and on the step, so that a
//! repeated request gets the same answer. A fault occurs at most once for each reference and step.

use std::{
    collections::HashMap,
    convert::Infallible,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::post,
};
use futures::StreamExt;
use serde_json::{Value as Json, json};

use crate::random::hash_percent;

/// The state of the model server.
#[derive(Default)]
pub(crate) struct ModelServer {
    /// The number of requests for each reference and step.
    request_counts: Mutex<HashMap<String, u32>>,
    /// The number of all requests.
    pub(crate) requests: AtomicU64,
    /// Whether faults are switched off.
    pub(crate) is_fault_free: AtomicBool,
}

/// Starts the server. Returns its base URL.
pub(crate) async fn start(model: Arc<ModelServer>) -> String {
    let router = Router::new()
        .route("/v1/chat/completions", post(answer))
        .layer(axum::extract::DefaultBodyLimit::max(64 * 1024 * 1024))
        .with_state(model);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}/v1")
}

/// The last reference in a text: `ref-<kind>-<client>-<number>`.
pub(crate) fn newest_reference(text: &str) -> Option<&str> {
    let at = text.rfind("ref-")?;
    let rest = &text[at..];
    let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).unwrap_or(rest.len());
    Some(&rest[..end])
}

/// An answer of the model.
enum Answer {
    Text(String),
    /// A text, and the name and arguments of a tool call.
    TextAndCall(String, &'static str, Json),
}

async fn answer(State(model): State<Arc<ModelServer>>, body: Bytes) -> Response {
    model.requests.fetch_add(1, Ordering::Relaxed);
    let request: Json = serde_json::from_slice(&body).unwrap_or_default();
    let messages = request["messages"].as_array().cloned().unwrap_or_default();
    let all = serde_json::to_string(&messages).unwrap_or_default();
    let reference = newest_reference(&all).unwrap_or("ref-t-none").to_owned();
    let has_tools = request["tools"].as_array().is_some_and(|tools| !tools.is_empty());
    let result = tool_result(&messages, &reference);
    let step = match (has_tools, &result) {
        (false, _) => "commands",
        (true, None) => "first",
        (true, Some(_)) => "last",
    };
    let answer = match step {
        "commands" => Answer::Text(commands(&reference)),
        "first" if reference.starts_with("ref-a-") => {
            let text = format!("I am working on it. One moment for {reference}.");
            Answer::TextAndCall(text, "pay", json!({"reference": reference}))
        }
        "first" => {
            let text = format!("TALK {reference}: the weather is fine, the boats are on time and the tea is hot.");
            Answer::TextAndCall(text, "task_completed", json!({}))
        }
        _ => {
            let result = result.unwrap_or_default();
            let text = if result.contains("receipt-") {
                format!("PAID {reference}.")
            } else if result.starts_with("unknown") {
                format!("UNKNOWN {reference}.")
            } else {
                format!("FAILED {reference}.")
            };
            Answer::TextAndCall(text, "task_completed", json!({}))
        }
    };
    let count = {
        let mut counts = model.request_counts.lock().unwrap();
        let count = counts.entry(format!("{reference} {step}")).or_default();
        *count += 1;
        *count
    };
    let mut pause = Duration::from_millis(3 + hash_percent((&reference, step)) / 10);
    if count == 1 && !model.is_fault_free.load(Ordering::Relaxed) {
        match hash_percent((&reference, step, "model")) {
            0..2 => return (StatusCode::INTERNAL_SERVER_ERROR, "{\"error\": {\"message\": \"no\"}}").into_response(),
            2 => {
                return (StatusCode::TOO_MANY_REQUESTS, [(header::RETRY_AFTER, "1")], "{}").into_response();
            }
            3 => return stream(truncated_events(answer), pause),
            4 => return "data: this is no JSON\n\n".into_response(),
            5..8 => pause = Duration::from_millis(400),
            _ => {}
        }
    }
    stream(events(answer), pause)
}

/// The result of the tool call for `reference`, if the request contains one.
fn tool_result(messages: &[Json], reference: &str) -> Option<String> {
    let newest = messages.iter().rev().find(|message| message["role"] == "tool")?;
    let index = messages.iter().rposition(|message| message["role"] == "tool")?;
    // A call with another reference belongs to an earlier message.
    let calls = messages[..index].iter().rev().find(|message| message["tool_calls"].is_array())?;
    let is_for_reference = calls["tool_calls"].to_string().contains(reference);
    is_for_reference.then(|| newest["content"].as_str().map_or_else(|| newest["content"].to_string(), str::to_owned))
}

/// The commands for a message with this reference.
fn commands(reference: &str) -> String {
    match reference.split('-').nth(1) {
        Some("d") => format!("start flow pay_direct\nset slot reference {reference}"),
        Some("a") => "start flow pay_by_agent".to_owned(),
        _ => "start flow talk".to_owned(),
    }
}

fn chunk(choices: Json) -> Bytes {
    let chunk = json!({
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_763_000_000, "model": "test",
        "choices": choices,
    });
    format!("data: {chunk}\n\n").into()
}

fn delta(delta: Json) -> Bytes {
    chunk(json!([{"index": 0, "delta": delta, "finish_reason": null}]))
}

/// The server-sent events of an answer.
fn events(answer: Answer) -> Vec<Bytes> {
    let (text, call) = match answer {
        Answer::Text(text) => (text, None),
        Answer::TextAndCall(text, name, arguments) => (text, Some((name, arguments))),
    };
    let mut events = vec![delta(json!({"role": "assistant", "content": ""}))];
    events.extend(text.split_inclusive(' ').map(|word| delta(json!({"content": word}))));
    let reason = if call.is_some() { "tool_calls" } else { "stop" };
    if let Some((name, arguments)) = call {
        let function = json!({"name": name, "arguments": arguments.to_string()});
        events.push(delta(json!({"tool_calls": [
            {"index": 0, "id": format!("call_{name}"), "type": "function", "function": function}
        ]})));
    }
    events.push(chunk(json!([{"index": 0, "delta": {}, "finish_reason": reason}])));
    events.push("data: [DONE]\n\n".into());
    events
}

/// The first half of the events of an answer.
fn truncated_events(answer: Answer) -> Vec<Bytes> {
    let mut events = events(answer);
    events.truncate(events.len() / 2);
    events
}

/// A response that starts after `pause`.
fn stream(events: Vec<Bytes>, pause: Duration) -> Response {
    let chunks = futures::stream::iter(events.into_iter().enumerate()).then(move |(n, event)| async move {
        if n == 0 {
            tokio::time::sleep(pause).await;
        } else if n % 3 == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok::<_, Infallible>(event)
    });
    let mut response = Response::new(Body::from_stream(chunks));
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("text/event-stream"));
    response
}
