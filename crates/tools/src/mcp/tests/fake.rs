//! A server that says exactly what a test wants, byte by byte if need be.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use indexmap::IndexMap;
use segue_engine::{
    finding::SourceLocation,
    project::{McpServerDef, McpTransport},
};
use serde_json::{Map, Value as Json, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, WriteHalf},
    sync::mpsc,
};

use crate::{
    ToolCallContext, ToolHandler, ToolSource,
    fixture::PausedClock,
    mcp::{McpEnvironment, McpServer, Pipes},
};
use segue_base::{clock::Clock, http::HttpClients};

/// What a server does with a message that the handshake does not answer.
type Script = dyn Fn(&Json, &Out) + Send + Sync;

/// The way back to the client.
#[derive(Clone)]
pub(super) struct Out(mpsc::UnboundedSender<Option<Vec<u8>>>);

impl Out {
    /// Answers a request with a result.
    pub(super) fn answer(&self, request: &Json, result: Json) {
        self.send(&json!({"jsonrpc": "2.0", "id": request["id"], "result": result}));
    }
    /// Sends a message.
    pub(super) fn send(&self, message: &Json) {
        self.raw(format!("{message}\n").as_bytes());
    }
    /// Sends bytes.
    pub(super) fn raw(&self, bytes: &[u8]) {
        let _ = self.0.send(Some(bytes.to_vec()));
    }
    /// Ends the session without a word.
    pub(super) fn die(&self) {
        let _ = self.0.send(None);
    }
}

/// What became of the fake.
#[derive(Clone, Default)]
pub(super) struct Heard {
    messages: Arc<Mutex<Vec<Json>>>,
    sessions: Arc<AtomicUsize>,
}

impl Heard {
    /// The params of all messages with this method, in order.
    pub(super) fn of(&self, method: &str) -> Vec<Json> {
        let messages = self.messages.lock().unwrap();
        messages.iter().filter(|message| message["method"] == method).map(|message| message["params"].clone()).collect()
    }
    /// The whole messages for which `wanted` holds.
    pub(super) fn all(&self, wanted: impl Fn(&Json) -> bool) -> Vec<Json> {
        self.messages.lock().unwrap().iter().filter(|message| wanted(message)).cloned().collect()
    }
    /// How often somebody connected.
    pub(super) fn sessions(&self) -> usize {
        self.sessions.load(Ordering::SeqCst)
    }
    /// Lets everybody work until this method was heard `times`.
    pub(super) async fn wait_for(&self, method: &str, times: usize) {
        for _ in 0..10_000 {
            if self.of(method).len() >= times {
                return;
            }
            tokio::task::yield_now().await;
        }
        panic!("`{method}` was not heard {times} times");
    }
}

/// An entry of `endpoints.yml`.
pub(super) fn entry(transport: McpTransport) -> McpServerDef {
    McpServerDef {
        name: "fake".into(),
        transport,
        headers: Vec::new(),
        oauth: None,
        meta_static: Map::new(),
        meta_slots: Vec::new(),
        meta_metadata: Vec::new(),
        connect_timeout: None,
        tool_timeout: None,
        tool_timeout_total: None,
        progress_messages: false,
        protocol_version: None,
        elicitation: IndexMap::new(),
        sampling: false,
        offers: Vec::new(),
        trust_annotations: true,
        effects: IndexMap::new(),
        pin: false,
        place: SourceLocation::default(),
    }
}

pub(super) fn around(clock: Arc<dyn Clock>) -> McpEnvironment {
    McpEnvironment {
        clock,
        http: HttpClients::new(),
        program: "segue".into(),
        directory: None,
        environment: Arc::new([]),
        logins: None,
    }
}

/// A client of a fake with this script.
pub(super) fn server(script: impl Fn(&Json, &Out) + Send + Sync + 'static) -> (McpServer, Heard) {
    server_with(|_| {}, script)
}

/// The same with another entry.
pub(super) fn server_with(
    change: impl FnOnce(&mut McpServerDef),
    script: impl Fn(&Json, &Out) + Send + Sync + 'static,
) -> (McpServer, Heard) {
    let mut def = entry(McpTransport::Http { url: String::new() });
    change(&mut def);
    let heard = Heard::default();
    let (script, ear): (Arc<Script>, Heard) = (Arc::new(script), heard.clone());
    let pipes: Pipes = Arc::new(move || {
        ear.sessions.fetch_add(1, Ordering::SeqCst);
        let (near, far) = tokio::io::duplex(1024 * 1024);
        tokio::spawn(serve(far, script.clone(), ear.clone()));
        let (read, write) = tokio::io::split(near);
        (Box::new(read), Box::new(write))
    });
    (McpServer::in_process(&def, pipes, around(PausedClock::shared())), heard)
}

async fn serve(stream: DuplexStream, script: Arc<Script>, heard: Heard) {
    let (read, write) = tokio::io::split(stream);
    let (out, words) = mpsc::unbounded_channel();
    let out = Out(out);
    let listening = async {
        let mut lines = BufReader::new(read).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let message: Json = serde_json::from_str(&line).unwrap();
            heard.messages.lock().unwrap().push(message.clone());
            match message["method"].as_str() {
                Some("initialize" | "ping") | None => greet(&message, &script, &out),
                _ => script(&message, &out),
            }
        }
    };
    // Ends when either side is over; dropping both halves closes the pipe.
    tokio::select! { () = listening => {}, () = speak(write, words) => {} }
}

/// The handshake, unless the script answers it: a script that does so says so by being asked with `on_…` first.
fn greet(message: &Json, script: &Arc<Script>, out: &Out) {
    let mut asked = message.clone();
    asked["method"] = json!(format!("on_{}", message["method"].as_str().unwrap_or("answer")));
    script(&asked, out);
}

/// The usual answers to the handshake and to pings; scripts call it first.
pub(super) fn usual(message: &Json, out: &Out) {
    match message["method"].as_str() {
        Some("on_initialize") => out.answer(
            message,
            json!({
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {"listChanged": true}},
                "serverInfo": {"name": "fake", "version": "1"}
            }),
        ),
        Some("on_ping") => out.answer(message, json!({})),
        _ => {}
    }
}

async fn speak(mut write: WriteHalf<DuplexStream>, mut words: mpsc::UnboundedReceiver<Option<Vec<u8>>>) {
    while let Some(Some(bytes)) = words.recv().await {
        if write.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

/// A tool as a list holds it.
pub(super) fn listed(name: &str) -> Json {
    json!({"name": name, "description": format!("does {name}"), "inputSchema": {"type": "object", "properties": {}}})
}

/// A script whose list is these tools, and which calls `on_call` with calls.
pub(super) fn with_tools(
    tools: Json,
    on_call: impl Fn(&Json, &Out) + Send + Sync + 'static,
) -> impl Fn(&Json, &Out) + Send + Sync + 'static {
    move |message, out| {
        usual(message, out);
        match message["method"].as_str() {
            Some("tools/list") => out.answer(message, json!({"tools": tools})),
            Some("tools/call") => on_call(message, out),
            _ => {}
        }
    }
}

/// The tool of this name.
pub(super) async fn tool(server: &McpServer, name: &str, cx: &ToolCallContext) -> Arc<dyn ToolHandler> {
    let catalog = server.list(&cx.cx).await.unwrap();
    let found = catalog.tools.iter().find(|tool| &*tool.info().name == name).cloned();
    found.unwrap_or_else(|| panic!("no tool `{name}` in {catalog:?}"))
}
