//! The scripted model server: chat completions over HTTP/1.1 with streamed answers, in a process of its own so that its
//! CPU time is not counted.
//!
//! What it answers follows from the last message: a tool's result gets the closing text, and a user's text that contains
//! `departures` gets a call of the tool; `clock` an answer whose first delta is the time at which it was written. Anything else
//! gets the text.

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

/// The argument that makes this program the server.
pub(crate) const ARGUMENT: &str = "--serve-model";
/// The pieces of the text answer.
const PIECES: [&str; 10] =
    ["The ", "Kestrel ", "leaves ", "from ", "pier ", "three ", "at ", "quarter ", "past ", "nine."];
/// The arguments of the tool call, in the pieces in which they come.
const ARGUMENTS: [&str; 4] = ["", "{\"island\":", "\"Torsay\",", "\"day\":\"today\"}"];

/// The text answer as a whole.
pub(crate) fn answer() -> String {
    PIECES.concat()
}

/// Nanoseconds of the wall clock, which processes of one machine share.
pub(crate) fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64
}

/// The server as its parent holds it; it ends with its standard input.
pub(crate) struct ModelServer {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl ModelServer {
    /// Starts it.
    pub(crate) fn start() -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .arg(ARGUMENT)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the model server starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().parse().expect("the model server says where it listens");
        Self { child, address }
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Serves until standard input ends.
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
    let asked = if last["role"] == "user" { last["content"].to_string() } else { String::new() };
    let begin = event(&json!({"role": "assistant", "content": ""}));
    if asked.contains("clock") {
        // The head is read and done with before the first delta comes.
        let later = |text: fn() -> String| async move {
            tokio::time::sleep(Duration::from_millis(2)).await;
            event(&json!({"content": text()}))
        };
        let deltas =
            stream::once(later(|| format!("{} ", now_ns()))).chain(stream::once(later(|| "is the time.".into())));
        return respond(stream::iter([begin]).chain(deltas).chain(stream::iter(end("stop"))));
    }
    let (deltas, reason): (Vec<Json>, _) = if asked.contains("departures") {
        let call = |(at, piece): (usize, &str)| match at {
            0 => {
                json!({"index": 0, "id": "call_1", "type": "function", "function": {"name": "departures", "arguments": piece}})
            }
            _ => json!({"index": 0, "function": {"arguments": piece}}),
        };
        (ARGUMENTS.into_iter().enumerate().map(|piece| json!({"tool_calls": [call(piece)]})).collect(), "tool_calls")
    } else {
        (PIECES.iter().map(|piece| json!({"content": piece})).collect(), "stop")
    };
    let events: Vec<String> = std::iter::once(begin).chain(deltas.iter().map(event)).chain(end(reason)).collect();
    respond(stream::iter(events))
}

/// Each event is a chunk of the transfer, as servers send them.
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
