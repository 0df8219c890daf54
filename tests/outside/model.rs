//! A model server: chat completions as a stream. What it answers depends on the newest reference in the request alone, so
//! that the same message always means the same; its faults come once for each reference and step.

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

use crate::random::percent;

/// The state of the model server.
#[derive(Default)]
pub(crate) struct Model {
    /// How often each step of each reference was asked for.
    asked: Mutex<HashMap<String, u32>>,
    /// Requests so far.
    pub(crate) requests: AtomicU64,
    /// Whether it answers without faults.
    pub(crate) calm: AtomicBool,
}

/// Starts the server; its base address.
pub(crate) async fn start(model: Arc<Model>) -> String {
    let router = Router::new()
        .route("/v1/chat/completions", post(answer))
        .layer(axum::extract::DefaultBodyLimit::max(64 * 1024 * 1024))
        .with_state(model);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}/v1")
}

/// The newest reference in a text: `ref-<kind>-<conversation>-<number>`.
pub(crate) fn newest_reference(text: &str) -> Option<&str> {
    let at = text.rfind("ref-")?;
    let rest = &text[at..];
    let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).unwrap_or(rest.len());
    Some(&rest[..end])
}

/// What the model does in one answer.
enum Say {
    Text(String),
    TextAndCall(String, &'static str, Json),
}

async fn answer(State(model): State<Arc<Model>>, body: Bytes) -> Response {
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
    let say = match step {
        "commands" => Say::Text(commands(&reference)),
        "first" if reference.starts_with("ref-a-") => {
            let text = format!("I am working on it. One moment for {reference}.");
            Say::TextAndCall(text, "pay", json!({"reference": reference}))
        }
        "first" => {
            let text = format!("TALK {reference}: the weather is fine, the boats are on time and the tea is hot.");
            Say::TextAndCall(text, "task_completed", json!({}))
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
            Say::TextAndCall(text, "task_completed", json!({}))
        }
    };
    let tries = {
        let mut asked = model.asked.lock().unwrap();
        let count = asked.entry(format!("{reference} {step}")).or_default();
        *count += 1;
        *count
    };
    let mut pause = Duration::from_millis(3 + percent((&reference, step)) / 10);
    if tries == 1 && !model.calm.load(Ordering::Relaxed) {
        match percent((&reference, step, "model")) {
            0..2 => return (StatusCode::INTERNAL_SERVER_ERROR, "{\"error\": {\"message\": \"no\"}}").into_response(),
            2 => {
                return (StatusCode::TOO_MANY_REQUESTS, [(header::RETRY_AFTER, "1")], "{}").into_response();
            }
            3 => return stream(cut(say), pause),
            4 => return "data: this is no JSON\n\n".into_response(),
            5..8 => pause = Duration::from_millis(400),
            _ => {}
        }
    }
    stream(events(say), pause)
}

/// The result of the tool that was called for `reference`, if there is one.
fn tool_result(messages: &[Json], reference: &str) -> Option<String> {
    let newest = messages.iter().rev().find(|message| message["role"] == "tool")?;
    let index = messages.iter().rposition(|message| message["role"] == "tool")?;
    // The call must be one for this reference, not one of an earlier task.
    let calls = messages[..index].iter().rev().find(|message| message["tool_calls"].is_array())?;
    let is_ours = calls["tool_calls"].to_string().contains(reference);
    is_ours.then(|| newest["content"].as_str().map_or_else(|| newest["content"].to_string(), str::to_owned))
}

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

fn events(say: Say) -> Vec<Bytes> {
    let (text, call) = match say {
        Say::Text(text) => (text, None),
        Say::TextAndCall(text, name, arguments) => (text, Some((name, arguments))),
    };
    let mut out = vec![delta(json!({"role": "assistant", "content": ""}))];
    out.extend(text.split_inclusive(' ').map(|piece| delta(json!({"content": piece}))));
    let reason = if call.is_some() { "tool_calls" } else { "stop" };
    if let Some((name, arguments)) = call {
        let function = json!({"name": name, "arguments": arguments.to_string()});
        out.push(delta(json!({"tool_calls": [
            {"index": 0, "id": format!("call_{name}"), "type": "function", "function": function}
        ]})));
    }
    out.push(chunk(json!([{"index": 0, "delta": {}, "finish_reason": reason}])));
    out.push("data: [DONE]\n\n".into());
    out
}

/// An answer that ends in the middle.
fn cut(say: Say) -> Vec<Bytes> {
    let mut events = events(say);
    events.truncate(events.len() / 2);
    events
}

fn stream(events: Vec<Bytes>, pause: Duration) -> Response {
    let pieces = futures::stream::iter(events.into_iter().enumerate()).then(move |(n, event)| async move {
        if n == 0 {
            tokio::time::sleep(pause).await;
        } else if n % 3 == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok::<_, Infallible>(event)
    });
    let mut response = Response::new(Body::from_stream(pieces));
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("text/event-stream"));
    response
}
