//! A model server with fixed answers: streamed chat completions over HTTP/1.1. It is another process, so that its CPU time is not counted.
//!
//! The last message of the request decides the answer. A user message with `departures` gets a tool call; one with `clock` gets an answer
//! whose first delta is the time at which it is written. Every other message gets a text.

use std::{
    convert::Infallible,
    io::{BufRead, BufReader},
    net::SocketAddr,
    process::{Child, Command, Stdio},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use axum::{
    Router,
    body::Body,
    http::header::CONTENT_TYPE,
    response::{IntoResponse, Response},
    routing::post,
    serve::ListenerExt,
};
use futures::{StreamExt, stream};
use serde_json::{Value as Json, json};
use tokio::io::AsyncReadExt;

/// The command line argument that makes this program the model server.
pub(crate) const ARGUMENT: &str = "--serve-model";
/// The deltas of the text answer.
const TEXT_DELTAS: [&str; 10] =
    ["The ", "Kestrel ", "leaves ", "from ", "pier ", "three ", "at ", "quarter ", "past ", "nine."];
/// The deltas of the tool call's arguments.
const ARGUMENT_DELTAS: [&str; 4] = ["", "{\"island\":", "\"Torsay\",", "\"day\":\"today\"}"];

/// The complete text answer.
pub(crate) fn answer() -> String {
    TEXT_DELTAS.concat()
}

/// The wall clock in nanoseconds since the Unix epoch, which is the same for both processes.
pub(crate) fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64
}

/// The process of the server. It ends when its standard input is closed.
pub(crate) struct ModelServer {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl ModelServer {
    /// Starts the process and waits until it listens.
    pub(crate) fn start() -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .arg(ARGUMENT)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("cannot start the model server");
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().parse().expect("the model server prints its address");
        Self { child, address }
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Runs the server until standard input is closed.
pub(crate) fn serve() {
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        println!("{}", listener.local_addr().unwrap());
        let listener = listener.tap_io(|connection| connection.set_nodelay(true).unwrap());
        let router = Router::new().route("/v1/chat/completions", post(complete));
        let mut input = Vec::new();
        tokio::select! {
            served = axum::serve(listener, router) => served.unwrap(),
            _ = async { tokio::io::stdin().read_to_end(&mut input).await } => {}
        }
    });
}

async fn complete(request: axum::Json<Json>) -> Response {
    let last = request["messages"].as_array().and_then(|messages| messages.last()).expect("a request has messages");
    let user_text = if last["role"] == "user" { last["content"].to_string() } else { String::new() };
    let start = event(&json!({"role": "assistant", "content": ""}));
    if user_text.contains("clock") {
        // The pause lets the client process the headers before the first delta arrives.
        let delayed = |text: fn() -> String| async move {
            tokio::time::sleep(Duration::from_millis(2)).await;
            event(&json!({"content": text()}))
        };
        let deltas =
            stream::once(delayed(|| format!("{} ", now_ns()))).chain(stream::once(delayed(|| "is the time.".into())));
        return respond(stream::iter([start]).chain(deltas).chain(stream::iter(end("stop"))));
    }
    let (deltas, reason): (Vec<Json>, _) = if user_text.contains("departures") {
        let call = |(index, text): (usize, &str)| match index {
            0 => {
                json!({"index": 0, "id": "call_1", "type": "function", "function": {"name": "departures", "arguments": text}})
            }
            _ => json!({"index": 0, "function": {"arguments": text}}),
        };
        let deltas = ARGUMENT_DELTAS.into_iter().enumerate();
        (deltas.map(|delta| json!({"tool_calls": [call(delta)]})).collect(), "tool_calls")
    } else {
        (TEXT_DELTAS.iter().map(|text| json!({"content": text})).collect(), "stop")
    };
    let events: Vec<String> = std::iter::once(start).chain(deltas.iter().map(event)).chain(end(reason)).collect();
    respond(stream::iter(events))
}

/// A response with one HTTP chunk per event.
fn respond(events: impl futures::Stream<Item = String> + Send + 'static) -> Response {
    ([(CONTENT_TYPE, "text/event-stream")], Body::from_stream(events.map(Ok::<_, Infallible>))).into_response()
}

fn event(delta: &Json) -> String {
    chunk(&json!([{"index": 0, "delta": delta, "finish_reason": null}]), &Json::Null)
}

fn end(reason: &str) -> [String; 3] {
    [
        chunk(&json!([{"index": 0, "delta": {}, "finish_reason": reason}]), &Json::Null),
        chunk(&json!([]), &json!({"prompt_tokens": 900, "completion_tokens": 12, "total_tokens": 912})),
        "data: [DONE]\n\n".to_owned(),
    ]
}

fn chunk(choices: &Json, usage: &Json) -> String {
    let chunk = json!({
        "id": "chatcmpl-7Qy2", "object": "chat.completion.chunk", "created": 1_763_000_000, "model": "bench-model",
        "choices": choices, "usage": usage,
    });
    format!("data: {chunk}\n\n")
}
