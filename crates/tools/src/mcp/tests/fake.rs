//! A scripted MCP server over pipes: a test determines each byte that it sends.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use segue_engine::project::{McpServerDef, McpTransport};
use serde_json::{Value as Json, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, WriteHalf},
    sync::mpsc,
};

use crate::{
    ToolCallContext, ToolHandler, ToolSource,
    fixture::PausedClock,
    mcp::{McpEnvironment, McpServer, Pipes},
};
use segue_base::clock::Clock;

/// Handles each message of the client; sends its responses through the connection.
type Script = dyn Fn(&Json, &FakeConnection) + Send + Sync;

/// The connection to the client.
#[derive(Clone)]
pub(super) struct FakeConnection(mpsc::UnboundedSender<Option<Vec<u8>>>);

impl FakeConnection {
    /// Responds to a request with a result.
    pub(super) fn respond(&self, request: &Json, result: Json) {
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
    /// Closes the connection.
    pub(super) fn disconnect(&self) {
        let _ = self.0.send(None);
    }
}

/// What the fake server received.
#[derive(Clone, Default)]
pub(super) struct FakeLog {
    messages: Arc<Mutex<Vec<Json>>>,
    sessions: Arc<AtomicUsize>,
}

impl FakeLog {
    /// The params of all messages with this method, in order.
    pub(super) fn of(&self, method: &str) -> Vec<Json> {
        let messages = self.messages.lock().unwrap();
        messages.iter().filter(|message| message["method"] == method).map(|message| message["params"].clone()).collect()
    }
    /// All messages for which the predicate is true.
    pub(super) fn all(&self, predicate: impl Fn(&Json) -> bool) -> Vec<Json> {
        self.messages.lock().unwrap().iter().filter(|message| predicate(message)).cloned().collect()
    }
    /// The number of sessions that were opened.
    pub(super) fn sessions(&self) -> usize {
        self.sessions.load(Ordering::SeqCst)
    }
    /// Yields to other tasks until this method was received `times`.
    pub(super) async fn wait_for(&self, method: &str, times: usize) {
        for _ in 0..10_000 {
            if self.of(method).len() >= times {
                return;
            }
            tokio::task::yield_now().await;
        }
        panic!("`{method}` was not received {times} times");
    }
}

/// An entry of `endpoints.yml`.
pub(super) fn entry(transport: McpTransport) -> McpServerDef {
    McpServerDef { trust_annotations: true, ..McpServerDef::new("fake", transport) }
}

pub(super) fn environment(clock: Arc<dyn Clock>) -> McpEnvironment {
    McpEnvironment::new(clock, "segue")
}

/// A client of a fake with this script.
pub(super) fn server(script: impl Fn(&Json, &FakeConnection) + Send + Sync + 'static) -> (McpServer, FakeLog) {
    server_with(|_| {}, script)
}

/// A client of a fake with this script and a changed entry of the server.
pub(super) fn server_with(
    change: impl FnOnce(&mut McpServerDef),
    script: impl Fn(&Json, &FakeConnection) + Send + Sync + 'static,
) -> (McpServer, FakeLog) {
    let mut def = entry(McpTransport::Http { url: String::new() });
    change(&mut def);
    let log = FakeLog::default();
    let (script, client_log): (Arc<Script>, FakeLog) = (Arc::new(script), log.clone());
    let pipes: Pipes = Arc::new(move || {
        client_log.sessions.fetch_add(1, Ordering::SeqCst);
        let (client_end, server_end) = tokio::io::duplex(1024 * 1024);
        tokio::spawn(serve(server_end, script.clone(), client_log.clone()));
        let (read, write) = tokio::io::split(client_end);
        (Box::new(read), Box::new(write))
    });
    (McpServer::in_process(&def, pipes, environment(PausedClock::shared())), log)
}

async fn serve(stream: DuplexStream, script: Arc<Script>, log: FakeLog) {
    let (read, write) = tokio::io::split(stream);
    let (out, output) = mpsc::unbounded_channel();
    let out = FakeConnection(out);
    let read = async {
        let mut lines = BufReader::new(read).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let message: Json = serde_json::from_str(&line).unwrap();
            log.messages.lock().unwrap().push(message.clone());
            match message["method"].as_str() {
                Some("initialize" | "ping") | None => call_script(&message, &script, &out),
                _ => script(&message, &out),
            }
        }
    };
    // Ends when one side has ended; dropping both halves closes the pipe.
    tokio::select! { () = read => {}, () = write_output(write, output) => {} }
}

/// Calls the script with a message of the handshake, a ping or a response; its method gets the prefix `on_`.
fn call_script(message: &Json, script: &Arc<Script>, out: &FakeConnection) {
    let mut prefixed = message.clone();
    prefixed["method"] = json!(format!("on_{}", message["method"].as_str().unwrap_or("answer")));
    script(&prefixed, out);
}

/// Responds to the handshake and to pings. Scripts call it first.
pub(super) fn answer_handshake(message: &Json, out: &FakeConnection) {
    match message["method"].as_str() {
        Some("on_initialize") => out.respond(
            message,
            json!({
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {"listChanged": true}},
                "serverInfo": {"name": "fake", "version": "1"}
            }),
        ),
        Some("on_ping") => out.respond(message, json!({})),
        _ => {}
    }
}

async fn write_output(mut write: WriteHalf<DuplexStream>, mut output: mpsc::UnboundedReceiver<Option<Vec<u8>>>) {
    while let Some(Some(bytes)) = output.recv().await {
        if write.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

/// A tool as `tools/list` contains it.
pub(super) fn tool_entry(name: &str) -> Json {
    json!({"name": name, "description": format!("does {name}"), "inputSchema": {"type": "object", "properties": {}}})
}

/// A script that lists these tools and passes calls to `on_call`.
pub(super) fn with_tools(
    tools: Json,
    on_call: impl Fn(&Json, &FakeConnection) + Send + Sync + 'static,
) -> impl Fn(&Json, &FakeConnection) + Send + Sync + 'static {
    move |message, out| {
        answer_handshake(message, out);
        match message["method"].as_str() {
            Some("tools/list") => out.respond(message, json!({"tools": tools})),
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
