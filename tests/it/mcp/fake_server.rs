//! An MCP server in the test process whose messages a test scripts, over pipes.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use segue::{testing::ManualClock, tools::mcp::Pipes};
use serde_json::{Value as Json, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream},
    sync::mpsc,
};

/// The output of the server to the client.
#[derive(Clone)]
pub(super) struct Output(mpsc::UnboundedSender<Option<Vec<u8>>>);

impl Output {
    /// Answers a request with a result.
    pub(super) fn result(&self, request: &Json, result: Json) {
        self.send(&json!({"jsonrpc": "2.0", "id": request["id"], "result": result}));
    }
    /// Answers a tool call with a text.
    pub(super) fn text(&self, request: &Json, text: &str) {
        self.result(request, json!({"content": [{"type": "text", "text": text}]}));
    }
    /// Sends a message.
    pub(super) fn send(&self, message: &Json) {
        self.raw(format!("{message}\n").as_bytes());
    }
    /// Sends bytes that need not be a message.
    pub(super) fn raw(&self, bytes: &[u8]) {
        let _ = self.0.send(Some(bytes.to_vec()));
    }
    /// Closes the connection.
    pub(super) fn close(&self) {
        let _ = self.0.send(None);
    }
}

/// Handles a message of the client.
type Script = dyn Fn(&Json, &Output, &FakeMcpServer) + Send + Sync;

/// The server. Clones share their state.
#[derive(Clone)]
pub(super) struct FakeMcpServer {
    script: Arc<Script>,
    received: Arc<Mutex<Vec<Json>>>,
    sessions: Arc<AtomicUsize>,
    /// The tools it lists.
    pub(super) tools: Arc<Mutex<Json>>,
    /// The clock of the assistant. The script may advance it.
    pub(super) clock: ManualClock,
}

/// A tool in the result of `tools/list`.
pub(super) fn listed(name: &str, hints: Json) -> Json {
    json!({
        "name": name, "description": format!("does {name}"), "annotations": hints,
        "inputSchema": {"type": "object", "properties": {}}
    })
}

impl FakeMcpServer {
    /// A server with the tools `work` (a write) and `look` (a read). The script handles every message; `initialize` reaches it under the
    /// name `on_initialize`.
    pub(super) fn new(script: impl Fn(&Json, &Output, &FakeMcpServer) + Send + Sync + 'static) -> Self {
        let tools = json!([listed("work", json!({})), listed("look", json!({"readOnlyHint": true}))]);
        Self {
            script: Arc::new(script),
            received: Arc::default(),
            sessions: Arc::default(),
            tools: Arc::new(Mutex::new(tools)),
            clock: ManualClock::new(),
        }
    }

    /// A server with default answers. The script only answers tool calls, which have numbers from 0.
    pub(super) fn answering_calls(script: impl Fn(&Json, &Output, usize) + Send + Sync + 'static) -> Self {
        Self::new(move |message, out, server| {
            if message["method"] == "tools/call" {
                script(message, out, server.params_of("tools/call").len() - 1);
            } else {
                server.default_answer(message, out);
            }
        })
    }

    /// The default answer to a message: handshake, ping and tool list.
    pub(super) fn default_answer(&self, message: &Json, out: &Output) {
        match message["method"].as_str() {
            Some("on_initialize") => out.result(
                message,
                json!({
                    "protocolVersion": message["params"]["protocolVersion"],
                    "capabilities": {"tools": {"listChanged": true}, "resources": {}, "prompts": {}},
                    "serverInfo": {"name": "remote", "version": "1"}
                }),
            ),
            Some("ping") => out.result(message, json!({})),
            Some("tools/list") => out.result(message, json!({"tools": *self.tools.lock().unwrap()})),
            _ => {}
        }
    }

    /// The params of the received messages with this method.
    pub(super) fn params_of(&self, method: &str) -> Vec<Json> {
        let received = self.received.lock().unwrap();
        received.iter().filter(|message| message["method"] == method).map(|message| message["params"].clone()).collect()
    }

    /// The received responses to requests of the server.
    pub(super) fn responses(&self) -> Vec<Json> {
        self.received.lock().unwrap().iter().filter(|message| message["method"].is_null()).cloned().collect()
    }

    /// How often a client connected.
    pub(super) fn sessions(&self) -> usize {
        self.sessions.load(Ordering::SeqCst)
    }

    /// Opens pipes to the server.
    pub(super) fn pipes(&self) -> Pipes {
        let server = self.clone();
        Arc::new(move || {
            server.sessions.fetch_add(1, Ordering::SeqCst);
            let (client_end, server_end) = tokio::io::duplex(1024 * 1024);
            tokio::spawn(server.clone().serve(server_end));
            let (read, write) = tokio::io::split(client_end);
            (Box::new(read), Box::new(write))
        })
    }

    async fn serve(self, stream: DuplexStream) {
        let (read, mut write) = tokio::io::split(stream);
        let (out, mut output) = mpsc::unbounded_channel();
        let out = Output(out);
        let receiving = async {
            let mut lines = BufReader::new(read).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                self.handle(&serde_json::from_str(&line).unwrap(), &out);
            }
        };
        let sending = async {
            while let Some(Some(bytes)) = output.recv().await {
                if write.write_all(&bytes).await.is_err() {
                    return;
                }
            }
        };
        tokio::select! { () = receiving => {}, () = sending => {} }
    }

    fn handle(&self, message: &Json, out: &Output) {
        self.received.lock().unwrap().push(message.clone());
        let mut message = message.clone();
        if message["method"] == "initialize" {
            message["method"] = json!("on_initialize");
        }
        (self.script)(&message, out, self);
    }
}
