//! The baseline: a minimal program without a framework. It makes the same model calls with the same prompt and writes each turn to SQLite.
//! It has no validation, no recovery and no guarantees.

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
    baseline_store::BaselineStore,
    model_server, project,
    subject::{PLAIN_QUESTION, Subject},
};

/// A minimal HTTP/1.1 client with persistent connections, a prompt template and a store.
pub(crate) struct Baseline {
    address: SocketAddr,
    idle: Mutex<Vec<TcpStream>>,
    prompt: minijinja::Environment<'static>,
    store: BaselineStore,
    next: AtomicU64,
    tools: Json,
}

/// A conversation, as messages of the chat completions API.
pub(crate) struct BaselineConversation {
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

/// The answer of the model, assembled from deltas.
#[derive(Default)]
struct Answer {
    text: String,
    tool: Option<String>,
    arguments: String,
    deltas: u64,
}

impl Baseline {
    pub(crate) fn new(address: SocketAddr, store: BaselineStore) -> Arc<Self> {
        let mut prompt = minijinja::Environment::new();
        prompt.add_template("prompt", project::PROMPT).unwrap();
        let tools = json!([{"type": "function", "function": {
            "name": project::TOOL, "description": project::DESCRIPTION, "parameters": project::parameters(),
        }}]);
        Arc::new(Self { address, idle: Mutex::default(), prompt, store, next: AtomicU64::new(0), tools })
    }

    async fn call(&self, system: &Message, conversation: &BaselineConversation) -> Answer {
        let mut messages = vec![system];
        messages.extend(conversation.messages.iter());
        let request = Request {
            model: "bench-model",
            messages: &messages,
            tools: &self.tools,
            stream: true,
            stream_options: json!({"include_usage": true}),
        };
        let body = serde_json::to_vec(&request).unwrap();
        let mut answer = Answer::default();
        let idle = self.idle.lock().unwrap().pop();
        let mut stream = match idle {
            Some(stream) => stream,
            None => {
                let stream = TcpStream::connect(self.address).await.unwrap();
                stream.set_nodelay(true).unwrap();
                stream
            }
        };
        send_request(&mut stream, &body, &mut answer).await;
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

impl Subject for Baseline {
    type Conversation = BaselineConversation;

    async fn open(&self) -> BaselineConversation {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut conversation =
            BaselineConversation { id: format!("baseline-{number}"), version: 0, messages: Vec::new() };
        self.turn(&mut conversation, PLAIN_QUESTION).await;
        conversation
    }

    async fn turn(&self, conversation: &mut BaselineConversation, text: &str) {
        let from = conversation.messages.len();
        conversation.messages.push(Message::text("user", text));
        let system = self.system();
        let mut answer = self.call(&system, conversation).await;
        if let Some(name) = answer.tool.take() {
            let id = format!("call_{}", conversation.messages.len());
            let arguments: Json = serde_json::from_str(&answer.arguments).unwrap();
            let call = json!({"id": id, "type": "function", "function": {"name": name, "arguments": answer.arguments}});
            conversation.messages.push(Message {
                role: "assistant",
                content: None,
                tool_calls: vec![call],
                tool_call_id: None,
            });
            let result = project::departures(&arguments).to_string();
            conversation.messages.push(Message { tool_call_id: Some(id), ..Message::text("tool", result) });
            answer = self.call(&system, conversation).await;
        }
        assert!(answer.deltas > 0 && answer.tool.is_none(), "the last answer is a text");
        conversation.messages.push(Message::text("assistant", answer.text));
        conversation.version += 1;
        let events = serde_json::to_vec(&conversation.messages[from..]).unwrap();
        self.store.append(&conversation.id, conversation.version, events).await;
    }
}

/// Checks the baseline once before the measurement.
pub(crate) async fn check(baseline: &Baseline) {
    let mut conversation = baseline.open().await;
    baseline.turn(&mut conversation, crate::subject::TOOL_QUESTION).await;
    let last = conversation.messages.last().unwrap();
    assert_eq!(last.content.as_deref(), Some(&*model_server::answer()));
    assert_eq!(conversation.messages.len(), 6, "user, assistant, user, call, result, assistant");
}

/// Sends a request and reads its chunked, streamed response into `answer`.
async fn send_request(stream: &mut TcpStream, body: &[u8], answer: &mut Answer) {
    let mut request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    request.extend_from_slice(body);
    stream.write_all(&request).await.unwrap();
    let (mut wire, mut body, mut in_head) = (BytesMut::with_capacity(16 * 1024), BytesMut::new(), true);
    loop {
        assert!(stream.read_buf(&mut wire).await.unwrap() > 0, "the server closed the connection");
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
            body.extend_from_slice(&wire.split_to(size));
            let _ = wire.split_to(2);
            read_events(&mut body, answer);
            if size == 0 {
                return;
            }
        }
    }
}

/// Removes complete server-sent events from `buffer` and adds their deltas to `answer`.
fn read_events(buffer: &mut BytesMut, answer: &mut Answer) {
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
