//! An MCP server with a tool that reads (`look`) and one that changes something (`order`). It keeps the arguments of each call.

use std::sync::{Arc, Mutex};

use axum::{Json as Body, Router, extract::State, http::StatusCode, response::IntoResponse, routing::post};
use serde_json::{Value as Json, json};

type Calls = Arc<Mutex<Vec<(String, Json)>>>;

pub(super) struct ToolServer {
    pub(super) address: String,
    calls: Calls,
}

impl ToolServer {
    pub(super) async fn start() -> Self {
        let calls = Calls::default();
        let router = Router::new().route("/mcp", post(handle)).with_state(calls.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}/mcp", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { address, calls }
    }

    /// The arguments of the calls of a tool, in order.
    pub(super) fn calls(&self, tool: &str) -> Vec<Json> {
        let calls = self.calls.lock().unwrap();
        calls.iter().filter(|(name, _)| name == tool).map(|(_, arguments)| arguments.clone()).collect()
    }

    pub(super) fn clear(&self) {
        self.calls.lock().unwrap().clear();
    }
}

/// `order` answers with its argument `what`.
async fn handle(State(calls): State<Calls>, Body(message): Body<Json>) -> axum::response::Response {
    let tool = |name: &str, reads: bool| {
        json!({"name": name, "description": name, "annotations": {"readOnlyHint": reads},
            "inputSchema": {"type": "object", "properties": {"what": {"type": "string"}}}})
    };
    let result = match message["method"].as_str().unwrap_or_default() {
        "initialize" => json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
            "serverInfo": {"name": "shop", "version": "1"}}),
        "tools/list" => json!({"tools": [tool("look", true), tool("order", false)]}),
        "tools/call" => {
            let name = message["params"]["name"].as_str().unwrap_or_default().to_owned();
            let arguments = message["params"]["arguments"].clone();
            let text = format!("done: {}", arguments["what"].as_str().unwrap_or_default());
            calls.lock().unwrap().push((name, arguments));
            json!({"content": [{"type": "text", "text": text}]})
        }
        "ping" => json!({}),
        _ => return StatusCode::ACCEPTED.into_response(),
    };
    Body(json!({"jsonrpc": "2.0", "id": message["id"], "result": result})).into_response()
}
