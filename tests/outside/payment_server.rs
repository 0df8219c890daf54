//! A payment server: an MCP server over HTTP with one tool of the effect class `write`, `pay`. It records every payment. Its faults
//! depend only on the reference, so that the checks know the fault of each payment.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, Method, StatusCode, header},
    response::{IntoResponse, Response},
    routing::any,
};
use serde_json::{Value as Json, json};

use crate::random::hash_percent;

/// The fault of a payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// The payment takes 400 ms.
    Slow,
    /// The server does not pay and returns a result with `isError`.
    Refused,
    /// The server does not pay and answers with status 500.
    ErrorBefore,
    /// The server pays and answers with status 500.
    ErrorAfter,
    /// The server pays and answers with invalid JSON.
    GarbageAfter,
    /// The server pays, and the connection ends inside the response.
    ResetAfter,
    /// The server pays and answers with a result of 400 KB.
    Large,
}

/// The fault of the payment of `reference`.
pub(crate) fn fault(reference: &str) -> Fault {
    match hash_percent((reference, "payments")) {
        0..8 => Fault::Slow,
        8..12 => Fault::Refused,
        12..15 => Fault::ErrorBefore,
        15..18 => Fault::ErrorAfter,
        18..20 => Fault::GarbageAfter,
        20..23 => Fault::ResetAfter,
        23 => Fault::Large,
        _ => Fault::None,
    }
}

/// A payment that was made.
#[derive(Clone, Debug)]
pub(crate) struct Payment {
    /// The idempotency key in the `_meta` of the call.
    pub(crate) idempotency_key: Option<String>,
}

/// The state of the payment server.
#[derive(Default)]
pub(crate) struct PaymentServer {
    payments: Mutex<HashMap<String, Vec<Payment>>>,
    sessions: Mutex<u64>,
}

impl PaymentServer {
    /// The number of payments for `reference`.
    pub(crate) fn count(&self, reference: &str) -> usize {
        self.payments.lock().unwrap().get(reference).map_or(0, Vec::len)
    }
    /// All payments, by reference.
    pub(crate) fn all(&self) -> HashMap<String, Vec<Payment>> {
        self.payments.lock().unwrap().clone()
    }
    fn record(&self, reference: &str, idempotency_key: Option<String>) {
        let payment = Payment { idempotency_key };
        self.payments.lock().unwrap().entry(reference.to_owned()).or_default().push(payment);
    }
}

/// Starts the server. Returns the URL of its MCP endpoint.
pub(crate) async fn start(payments: Arc<PaymentServer>) -> String {
    let router = Router::new().route("/mcp", any(serve)).with_state(payments);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}/mcp")
}

async fn serve(
    State(payments): State<Arc<PaymentServer>>,
    method: Method,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if method == Method::DELETE {
        return StatusCode::NO_CONTENT.into_response();
    }
    if method != Method::POST {
        return StatusCode::METHOD_NOT_ALLOWED.into_response();
    }
    let request: Json = serde_json::from_slice(&body).unwrap_or_default();
    let Some(id) = request.get("id").cloned() else { return StatusCode::ACCEPTED.into_response() };
    let params = &request["params"];
    let result = match request["method"].as_str().unwrap_or_default() {
        "initialize" => {
            let session = {
                let mut sessions = payments.sessions.lock().unwrap();
                *sessions += 1;
                format!("session-{sessions}")
            };
            let result = json!({
                "protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                "serverInfo": {"name": "payments", "version": "1"},
            });
            return answer(&id, result, Some(&session));
        }
        "ping" => json!({}),
        "tools/list" => json!({"tools": [{
            "name": "pay", "description": "Pays a reference.",
            "inputSchema": {
                "type": "object", "properties": {"reference": {"type": "string"}}, "required": ["reference"],
            },
        }]}),
        "tools/call" => match pay(&payments, params).await {
            Ok(result) => result,
            Err(response) => return response,
        },
        other => {
            let error = json!({"code": -32601, "message": format!("there is no method {other}")});
            return json_response(&json!({"jsonrpc": "2.0", "id": id, "error": error}), None);
        }
    };
    let session = headers.get("mcp-session-id").and_then(|value| value.to_str().ok()).map(str::to_owned);
    answer(&id, result, session.as_deref())
}

async fn pay(payments: &PaymentServer, params: &Json) -> Result<Json, Response> {
    let reference = params["arguments"]["reference"].as_str().unwrap_or_default();
    let key = params["_meta"].as_object().and_then(|meta| {
        meta.iter().find(|(name, _)| name.to_lowercase().contains("idempotency")).and_then(|(_, key)| key.as_str())
    });
    let key = key.map(str::to_owned);
    let fault = fault(reference);
    let pause = Duration::from_millis(if fault == Fault::Slow { 400 } else { 5 + hash_percent(reference) / 2 });
    match fault {
        Fault::Refused => {
            tokio::time::sleep(pause).await;
            return Ok(json!({"isError": true, "content": [{"type": "text", "text": "the account is closed"}]}));
        }
        Fault::ErrorBefore => return Err(StatusCode::INTERNAL_SERVER_ERROR.into_response()),
        _ => {}
    }
    // Half of the time before the payment and half after it, so that the client process may be killed before or after it.
    tokio::time::sleep(pause / 2).await;
    payments.record(reference, key);
    tokio::time::sleep(pause / 2).await;
    match fault {
        Fault::ErrorAfter => Err((StatusCode::INTERNAL_SERVER_ERROR, "an error after the payment").into_response()),
        Fault::GarbageAfter => {
            Err(([(header::CONTENT_TYPE, "application/json")], "<html>not JSON</html>").into_response())
        }
        Fault::ResetAfter => {
            let truncated = futures::stream::iter([
                Ok(Bytes::from_static(b"{\"jsonrpc\": \"2.0\", ")),
                Err(std::io::Error::other("the connection ends here")),
            ]);
            let response = ([(header::CONTENT_TYPE, "application/json")], Body::from_stream(truncated));
            Err(response.into_response())
        }
        _ => {
            let receipt = format!("receipt-{reference}");
            let padding = if fault == Fault::Large { "much ".repeat(80_000) } else { String::new() };
            let text = json!({"receipt": &receipt, "remark": padding}).to_string();
            Ok(json!({
                "content": [{"type": "text", "text": text}], "structuredContent": {"receipt": receipt},
            }))
        }
    }
}

fn answer(id: &Json, result: Json, session: Option<&str>) -> Response {
    json_response(&json!({"jsonrpc": "2.0", "id": id, "result": result}), session)
}

fn json_response(body: &Json, session: Option<&str>) -> Response {
    let mut response = ([(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response();
    if let Some(session) = session.and_then(|session| session.parse().ok()) {
        response.headers_mut().insert("mcp-session-id", session);
    }
    response
}
