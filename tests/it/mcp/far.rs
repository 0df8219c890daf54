//! An MCP server in this process that says what a test wants, over pipes or over HTTP.

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

/// The way back to the client.
#[derive(Clone)]
pub(super) struct Out(mpsc::UnboundedSender<Option<Vec<u8>>>);

impl Out {
    pub(super) fn answer(&self, request: &Json, result: Json) {
        self.send(&json!({"jsonrpc": "2.0", "id": request["id"], "result": result}));
    }
    pub(super) fn text(&self, request: &Json, text: &str) {
        self.answer(request, json!({"content": [{"type": "text", "text": text}]}));
    }
    pub(super) fn send(&self, message: &Json) {
        self.raw(format!("{message}\n").as_bytes());
    }
    pub(super) fn raw(&self, bytes: &[u8]) {
        let _ = self.0.send(Some(bytes.to_vec()));
    }
    /// Ends the session without a word.
    pub(super) fn die(&self) {
        let _ = self.0.send(None);
    }
}

type Script = dyn Fn(&Json, &Out, &Far) + Send + Sync;

/// A server. Clones are the same one.
#[derive(Clone)]
pub(super) struct Far {
    script: Arc<Script>,
    heard: Arc<Mutex<Vec<Json>>>,
    sessions: Arc<AtomicUsize>,
    /// The tools it lists.
    pub(super) tools: Arc<Mutex<Json>>,
    /// The time of the conversation: it passes when the server lets it.
    pub(super) clock: ManualClock,
}

/// A tool as a list holds it.
pub(super) fn listed(name: &str, hints: Json) -> Json {
    json!({
        "name": name, "description": format!("does {name}"), "annotations": hints,
        "inputSchema": {"type": "object", "properties": {}}
    })
}

impl Far {
    /// A server with a tool `work` that writes and a tool `look` that reads. What is not of the handshake goes to the
    /// script, with the handshake itself when it comes as `on_initialize`.
    pub(super) fn new(script: impl Fn(&Json, &Out, &Far) + Send + Sync + 'static) -> Self {
        let tools = json!([listed("work", json!({})), listed("look", json!({"readOnlyHint": true}))]);
        Self {
            script: Arc::new(script),
            heard: Arc::default(),
            sessions: Arc::default(),
            tools: Arc::new(Mutex::new(tools)),
            clock: ManualClock::new(),
        }
    }

    /// A usual server whose calls the script answers, with the number of the call from 0.
    pub(super) fn calls(script: impl Fn(&Json, &Out, usize) + Send + Sync + 'static) -> Self {
        Self::new(move |message, out, far| {
            if message["method"] == "tools/call" {
                script(message, out, far.of("tools/call").len() - 1);
            } else {
                far.usual(message, out);
            }
        })
    }

    /// What every server answers.
    pub(super) fn usual(&self, message: &Json, out: &Out) {
        match message["method"].as_str() {
            Some("on_initialize") => out.answer(
                message,
                json!({
                    "protocolVersion": message["params"]["protocolVersion"],
                    "capabilities": {"tools": {"listChanged": true}, "resources": {}, "prompts": {}},
                    "serverInfo": {"name": "far", "version": "1"}
                }),
            ),
            Some("ping") => out.answer(message, json!({})),
            Some("tools/list") => out.answer(message, json!({"tools": *self.tools.lock().unwrap()})),
            _ => {}
        }
    }

    /// The params of all messages with this method.
    pub(super) fn of(&self, method: &str) -> Vec<Json> {
        let heard = self.heard.lock().unwrap();
        heard.iter().filter(|message| message["method"] == method).map(|message| message["params"].clone()).collect()
    }

    /// The messages that answer something.
    pub(super) fn answers(&self) -> Vec<Json> {
        self.heard.lock().unwrap().iter().filter(|message| message["method"].is_null()).cloned().collect()
    }

    pub(super) fn sessions(&self) -> usize {
        self.sessions.load(Ordering::SeqCst)
    }

    /// The pipes to it.
    pub(super) fn pipes(&self) -> Pipes {
        let far = self.clone();
        Arc::new(move || {
            far.sessions.fetch_add(1, Ordering::SeqCst);
            let (near, end) = tokio::io::duplex(1024 * 1024);
            tokio::spawn(far.clone().serve(end));
            let (read, write) = tokio::io::split(near);
            (Box::new(read), Box::new(write))
        })
    }

    async fn serve(self, stream: DuplexStream) {
        let (read, mut write) = tokio::io::split(stream);
        let (out, mut words) = mpsc::unbounded_channel();
        let out = Out(out);
        let listening = async {
            let mut lines = BufReader::new(read).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                self.hear(&serde_json::from_str(&line).unwrap(), &out);
            }
        };
        let speaking = async {
            while let Some(Some(bytes)) = words.recv().await {
                if write.write_all(&bytes).await.is_err() {
                    return;
                }
            }
        };
        tokio::select! { () = listening => {}, () = speaking => {} }
    }

    fn hear(&self, message: &Json, out: &Out) {
        self.heard.lock().unwrap().push(message.clone());
        let mut message = message.clone();
        if message["method"] == "initialize" {
            message["method"] = json!("on_initialize");
        }
        (self.script)(&message, out, self);
    }
}
