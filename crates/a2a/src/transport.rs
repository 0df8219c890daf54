//! One request to a remote agent over JSON-RPC or HTTP+JSON, and its response.

use std::sync::Arc;

use reqwest::{Method, StatusCode, header::CONTENT_TYPE};
use segue_base::{
    context::CallContext,
    effect::Arrival,
    http::{BodyError, read_limited},
    json::from_slice_lossy,
    limits,
    outbound_auth::OutboundCredentials,
    secret::Secret,
};
use serde_json::{Map, Value as Json, json};

use super::{
    card::{AgentInterface, ProtocolBinding},
    error::{A2aError, A2aErrorKind},
    events::{TaskEventStream, result_of},
    version::{A2aVersion, Operation},
};

/// A connection to one interface of an agent.
#[derive(Clone)]
pub(super) struct A2aConnection {
    pub(super) client: reqwest::Client,
    pub(super) credentials: Arc<OutboundCredentials>,
    pub(super) interface: AgentInterface,
}

/// A request, independent of the binding.
pub(super) struct Request {
    pub(super) operation: Operation,
    /// The task id, for operations on a task.
    pub(super) task: Option<String>,
    /// The parameters without the task id.
    pub(super) body: Map<String, Json>,
    /// The id of the request.
    pub(super) id: String,
}

/// A response.
pub(super) enum AgentResponse {
    /// A complete response.
    Complete(Json),
    /// A stream of events.
    Stream(TaskEventStream),
}

impl A2aConnection {
    /// Sends a request and reads the response, or only its head if it is a stream. After a 401 or 403 it is sent once
    /// more with a new token, if there can be one: such a status says that nothing was done.
    pub(super) async fn call(&self, request: &Request, cx: &CallContext) -> Result<AgentResponse, A2aError> {
        #[cfg(feature = "grpc")]
        if self.interface.binding == ProtocolBinding::Grpc {
            return super::grpc::call(self, request, cx).await;
        }
        let mut refused: Option<Secret> = None;
        loop {
            let header = match cx.wait(self.credentials.header(refused.as_ref())).await {
                Ok(header) => header.map_err(|why| A2aError::new(A2aErrorKind::Authentication, why.to_string()))?,
                Err(stopped) => return Err(wait_error(stopped, "no token")),
            };
            let response = self.send(request, header.as_ref(), cx).await?;
            let unknown = matches!(response.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
            match header {
                Some((_, value)) if unknown && refused.is_none() && self.credentials.may_change() => {
                    refused = Some(value);
                }
                _ => return self.read_response(response, cx).await,
            }
        }
    }

    async fn send(
        &self,
        request: &Request,
        header: Option<&(String, Secret)>,
        cx: &CallContext,
    ) -> Result<reqwest::Response, A2aError> {
        let (method, url, body) = self.encode(request);
        let mut sent = self.client.request(method, url).header("accept", "application/json, text/event-stream");
        if self.interface.version == A2aVersion::V1_0 {
            sent = sent.header("A2A-Version", "1.0");
        }
        if let Some((name, value)) = header {
            sent = sent.header(name, value.expose());
        }
        if let Some(body) = body {
            sent = sent.header(CONTENT_TYPE, "application/json").body(body.to_string());
        }
        match cx.wait(sent.send()).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => {
                let kind = match Arrival::from_http_error(&error) {
                    Arrival::Impossible => A2aErrorKind::Unreachable,
                    Arrival::Possible => A2aErrorKind::ConnectionLost,
                };
                Err(A2aError::new(kind, format!("it does not answer: {}", error_chain(&error.without_url()))))
            }
            Err(stopped) => Err(wait_error(stopped, "no response")),
        }
    }

    /// Method, URL and body of a request.
    fn encode(&self, request: &Request) -> (Method, String, Option<Json>) {
        let AgentInterface { url, binding, version, tenant } = &self.interface;
        let mut body = request.body.clone();
        if *binding == ProtocolBinding::JsonRpc {
            if let Some(task) = &request.task {
                body.insert("id".into(), task.as_str().into());
            }
            if let Some(tenant) = tenant {
                body.insert("tenant".into(), tenant.as_str().into());
            }
            let method = request.operation.method(*version);
            let rpc = json!({"jsonrpc": "2.0", "id": request.id, "method": method, "params": body});
            return (Method::POST, url.clone(), Some(rpc));
        }
        let tenant = tenant.as_ref().map(|tenant| format!("/{tenant}")).unwrap_or_default();
        let version = if *version == A2aVersion::V0_3 { "/v1" } else { "" };
        let base = format!("{url}{tenant}{version}");
        let task = request.task.as_deref().map(percent_encode).unwrap_or_default();
        let (method, path) = match request.operation {
            Operation::Send => (Method::POST, "/message:send".to_owned()),
            Operation::Stream => (Method::POST, "/message:stream".to_owned()),
            Operation::Cancel => (Method::POST, format!("/tasks/{task}:cancel")),
            Operation::Subscribe => (Method::GET, format!("/tasks/{task}:subscribe")),
            Operation::List => (Method::GET, "/tasks".to_owned()),
            _ => (Method::GET, format!("/tasks/{task}")),
        };
        if method == Method::POST {
            return (method, base + &path, Some(Json::Object(body)));
        }
        let query: Vec<String> = body
            .iter()
            .map(|(key, value)| {
                let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                format!("{key}={}", percent_encode(&value))
            })
            .collect();
        let query = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
        (method, base + &path + &query, None)
    }

    async fn read_response(&self, response: reqwest::Response, cx: &CallContext) -> Result<AgentResponse, A2aError> {
        let status = response.status();
        let kind = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if status.is_success() && kind.starts_with("text/event-stream") {
            let reader = TaskEventStream::new(response, self.interface.wire_format(), self.interface.binding);
            return Ok(AgentResponse::Stream(reader));
        }
        let body = match cx.wait(read_body(response)).await {
            Ok(body) => body?,
            Err(stopped) => return Err(wait_error(stopped, "the response does not end")),
        };
        let parsed = from_slice_lossy::<Json>(&body).map(|(json, _)| json);
        if !status.is_success() {
            // An error of the protocol is more specific than the status.
            return match parsed.map(|json| result_of(json, self.interface.binding)) {
                Ok(Err(error @ A2aError { kind: A2aErrorKind::Protocol(_), .. })) => Err(error),
                _ => Err(A2aError::new(
                    A2aErrorKind::Status(status.as_u16()),
                    format!("it responds with status {status}"),
                )),
            };
        }
        let json = parsed.map_err(|error| {
            A2aError::new(A2aErrorKind::InvalidResponse, format!("the response is not JSON: {error}"))
        })?;
        result_of(json, self.interface.binding).map(AgentResponse::Complete)
    }
}

/// The body of a response, within [`limits::A2A_ANSWER`].
pub(super) async fn read_body(response: reqwest::Response) -> Result<Vec<u8>, A2aError> {
    read_limited(response, limits::A2A_ANSWER).await.map_err(|error| match error {
        BodyError::TooLong { .. } => A2aError::new(A2aErrorKind::TooLarge, "the response is larger than the limit"),
        BodyError::Broken(error) => {
            A2aError::new(A2aErrorKind::ConnectionLost, format!("the response was truncated: {error}"))
        }
    })
}

/// The error for an ended wait.
pub(super) fn wait_error(stopped: segue_base::context::WaitError, what: &str) -> A2aError {
    let kind = match stopped {
        segue_base::context::WaitError::DeadlinePassed => A2aErrorKind::TimedOut,
        segue_base::context::WaitError::Cancelled => A2aErrorKind::Cancelled,
    };
    A2aError::new(kind, format!("{what}: {stopped}"))
}

/// The text of an error with all its causes.
fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut inner = error.source();
    while let Some(cause) = inner {
        text = format!("{text}: {cause}");
        inner = cause.source();
    }
    text
}

/// Percent-encodes a text for a path segment or a query (RFC 3986).
pub(super) fn percent_encode(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => char::from(byte).to_string(),
            other => format!("%{other:02X}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic)]
    use super::*;

    fn wire(binding: ProtocolBinding, version: A2aVersion, tenant: Option<&str>) -> A2aConnection {
        let interface =
            AgentInterface { url: "http://h/a".into(), binding, version, tenant: tenant.map(str::to_owned) };
        let client = segue_base::http::HttpClients::new().client().cloned();
        A2aConnection {
            client: client.unwrap_or_else(|error| panic!("{error}")),
            credentials: Arc::new(OutboundCredentials::None),
            interface,
        }
    }

    fn request(operation: Operation, task: Option<&str>) -> Request {
        let body = Map::from_iter([("historyLength".to_owned(), json!(0))]);
        Request { operation, task: task.map(str::to_owned), body, id: "1".into() }
    }

    #[test]
    fn requests_have_the_method_and_url_of_their_binding() {
        let rest = |version, operation, task| {
            let (method, url, _) = wire(ProtocolBinding::HttpJson, version, None).encode(&request(operation, task));
            format!("{method} {url}")
        };
        assert_eq!(rest(A2aVersion::V0_3, Operation::Stream, None), "POST http://h/a/v1/message:stream");
        assert_eq!(rest(A2aVersion::V1_0, Operation::Send, None), "POST http://h/a/message:send");
        let odd = rest(A2aVersion::V1_0, Operation::Get, Some("t/../1"));
        assert_eq!(odd, "GET http://h/a/tasks/t%2F..%2F1?historyLength=0");
        assert_eq!(rest(A2aVersion::V0_3, Operation::Cancel, Some("t")), "POST http://h/a/v1/tasks/t:cancel");
        let (_, url, body) =
            wire(ProtocolBinding::JsonRpc, A2aVersion::V1_0, Some("acme")).encode(&request(Operation::Get, Some("t")));
        let wanted = json!({"jsonrpc": "2.0", "id": "1", "method": "GetTask",
            "params": {"historyLength": 0, "id": "t", "tenant": "acme"}});
        assert_eq!((url.as_str(), body), ("http://h/a", Some(wanted)));
    }
}
