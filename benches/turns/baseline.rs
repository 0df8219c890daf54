//! The floor: what a turn costs without any framework. A bare client makes the same calls, renders the same prompt and writes the turn
//! to SQLite. It checks nothing, recovers from nothing and promises nothing.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::BytesMut;
use minijinja::context;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{
    floor_store::FloorStore,
    harbour, model,
    side::{ASKS, Side},
};

/// The bare client: HTTP/1.1 written by hand over kept connections, the least that a call can cost.
pub(crate) struct Floor {
    address: SocketAddr,
    idle: Mutex<Vec<TcpStream>>,
    prompt: minijinja::Environment<'static>,
    store: FloorStore,
    next: AtomicU64,
    tools: Json,
}

/// A conversation: what was said, as the wire wants it.
pub(crate) struct FloorTalk {
    id: String,
    version: u64,
    messages: Vec<Message>,
}

#[derive(Clone, Serialize)]
struct Message {
    role: &'static str,
    content: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<String>,
}

impl Message {
    fn text(role: &'static str, text: impl Into<Arc<str>>) -> Self {
        Self { role, content: Some(text.into()), tool_calls: Vec::new(), tool_call_id: None }
    }
}

#[derive(Serialize)]
struct Request<'a> {
    model: &'static str,
    messages: &'a [&'a Message],
    tools: &'a Json,
    stream: bool,
    stream_options: Json,
}

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow)]
    choices: Vec<Choice<'a>>,
}
#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(borrow)]
    delta: Delta<'a>,
}
#[derive(Deserialize)]
struct Delta<'a> {
    content: Option<&'a str>,
    #[serde(borrow, default)]
    tool_calls: Vec<Call<'a>>,
}
#[derive(Deserialize)]
struct Call<'a> {
    #[serde(borrow)]
    function: Function<'a>,
}
#[derive(Deserialize)]
struct Function<'a> {
    name: Option<&'a str>,
    #[serde(borrow, default)]
    arguments: std::borrow::Cow<'a, str>,
}

/// An answer as it is put together.
#[derive(Default)]
struct Answer {
    text: String,
    tool: Option<String>,
    arguments: String,
    deltas: u64,
}

impl Floor {
    pub(crate) fn new(address: SocketAddr, store: FloorStore) -> Arc<Self> {
        let mut prompt = minijinja::Environment::new();
        prompt.add_template("prompt", harbour::PROMPT).unwrap();
        let tools = json!([{"type": "function", "function": {
            "name": harbour::TOOL, "description": harbour::DESCRIPTION, "parameters": harbour::parameters(),
        }}]);
        Arc::new(Self { address, idle: Mutex::default(), prompt, store, next: AtomicU64::new(0), tools })
    }

    async fn call(&self, system: &Message, talk: &FloorTalk) -> Answer {
        let mut messages = vec![system];
        messages.extend(talk.messages.iter());
        let request = Request {
            model: "bench-model",
            messages: &messages,
            tools: &self.tools,
            stream: true,
            stream_options: json!({"include_usage": true}),
        };
        let body = serde_json::to_vec(&request).unwrap();
        let mut answer = Answer::default();
        let kept = self.idle.lock().unwrap().pop();
        let mut stream = match kept {
            Some(stream) => stream,
            None => {
                let stream = TcpStream::connect(self.address).await.unwrap();
                stream.set_nodelay(true).unwrap();
                stream
            }
        };
        raw(&mut stream, &body, &mut answer).await;
        self.idle.lock().unwrap().push(stream);
        answer
    }

    fn system(&self) -> Message {
        let now = segue_engine::template::ZonedTime::new(segue_engine::time::Timestamp::from_micros(0), "UTC");
        let now = now.unwrap();
        let variables = context! {
            description => "Answers questions about the harbour, its boats and their departures.",
            slots => std::collections::BTreeMap::<String, String>::new(),
            current_datetime => true,
            current_date => now.strftime("%d %B, %Y").unwrap(),
            current_time => now.strftime("%H:%M:%S").unwrap(),
            current_day => now.strftime("%A").unwrap(),
            enable_filler_messages => true,
        };
        Message::text("system", self.prompt.get_template("prompt").unwrap().render(variables).unwrap())
    }
}

impl Side for Floor {
    type Talk = FloorTalk;

    async fn open(&self) -> FloorTalk {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut talk = FloorTalk { id: format!("floor-{number}"), version: 0, messages: Vec::new() };
        self.turn(&mut talk, ASKS).await;
        talk
    }

    async fn turn(&self, talk: &mut FloorTalk, text: &str) {
        let from = talk.messages.len();
        talk.messages.push(Message::text("user", text));
        let system = self.system();
        let mut answer = self.call(&system, talk).await;
        if let Some(name) = answer.tool.take() {
            let id = format!("call_{}", talk.messages.len());
            let arguments: Json = serde_json::from_str(&answer.arguments).unwrap();
            let call = json!({"id": id, "type": "function", "function": {"name": name, "arguments": answer.arguments}});
            talk.messages.push(Message {
                role: "assistant",
                content: None,
                tool_calls: vec![call],
                tool_call_id: None,
            });
            let result = harbour::departures(&arguments).to_string();
            talk.messages.push(Message { tool_call_id: Some(id), ..Message::text("tool", result) });
            answer = self.call(&system, talk).await;
        }
        assert!(answer.deltas > 0 && answer.tool.is_none(), "an answer is a text");
        talk.messages.push(Message::text("assistant", answer.text));
        talk.version += 1;
        let events = serde_json::to_vec(&talk.messages[from..]).unwrap();
        self.store.append(&talk.id, talk.version, events).await;
    }
}

/// The floor's check of itself, once before anything is measured.
pub(crate) async fn check(floor: &Floor) {
    let mut talk = floor.open().await;
    floor.turn(&mut talk, crate::side::ASKS_TOOL).await;
    let last = talk.messages.last().unwrap();
    assert_eq!(last.content.as_deref(), Some(&*model::answer()));
    assert_eq!(talk.messages.len(), 6, "user, assistant, user, call, result, assistant");
}

async fn raw(stream: &mut TcpStream, body: &[u8], answer: &mut Answer) {
    let mut request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    request.extend_from_slice(body);
    stream.write_all(&request).await.unwrap();
    let (mut wire, mut plain, mut in_head) = (BytesMut::with_capacity(16 * 1024), BytesMut::new(), true);
    loop {
        assert!(stream.read_buf(&mut wire).await.unwrap() > 0, "the server hung up");
        if in_head {
            let Some(end) = wire.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
            assert!(wire.starts_with(b"HTTP/1.1 200"));
            let _ = wire.split_to(end + 4);
            in_head = false;
        }
        while let Some(line) = wire.iter().position(|byte| *byte == b'\n') {
            let size = usize::from_str_radix(std::str::from_utf8(&wire[..line - 1]).unwrap(), 16).unwrap();
            if wire.len() < line + 1 + size + 2 {
                break;
            }
            let _ = wire.split_to(line + 1);
            plain.extend_from_slice(&wire.split_to(size));
            let _ = wire.split_to(2);
            take_events(&mut plain, answer);
            if size == 0 {
                return;
            }
        }
    }
}

fn take_events(buffer: &mut BytesMut, answer: &mut Answer) {
    while let Some(end) = buffer.windows(2).position(|window| window == b"\n\n") {
        let event = buffer.split_to(end + 2);
        let Some(data) = event.strip_prefix(b"data: ") else { continue };
        if data.starts_with(b"[DONE]") {
            continue;
        }
        let chunk: Chunk<'_> = serde_json::from_slice(data).unwrap();
        for choice in chunk.choices {
            answer.deltas += 1;
            answer.text.push_str(choice.delta.content.unwrap_or_default());
            for call in choice.delta.tool_calls {
                if let Some(name) = call.function.name {
                    answer.tool = Some(name.to_owned());
                }
                answer.arguments.push_str(&call.function.arguments);
            }
        }
    }
}
