//! One request to a remote agent, and its answer: who we are, how it is written, and what a refusal means.

use std::sync::Arc;

use reqwest::{Method, StatusCode, header::CONTENT_TYPE};
use segue_base::{
    auth::Credentials,
    context::CallContext,
    effect::Arrival,
    http::{BodyError, read_limited},
    limits,
    secret::Secret,
};
use serde_json::{Map, Value as Json, json};

use super::{
    card::{AgentInterface, ProtocolBinding},
    dialect::{A2aVersion, Operation},
    events::{TaskEventStream, result_of},
    fault::{A2aError, A2aErrorKind},
};

/// How one agent is asked.
#[derive(Clone)]
pub(super) struct Wire {
    pub(super) client: reqwest::Client,
    pub(super) credentials: Arc<Credentials>,
    pub(super) interface: AgentInterface,
}

/// A request before it is written for a binding.
pub(super) struct Request {
    pub(super) operation: Operation,
    /// The task, for operations on one.
    pub(super) task: Option<String>,
    /// The parameters but the task's id.
    pub(super) body: Map<String, Json>,
    /// The id of the request.
    pub(super) id: String,
}

/// An answer.
pub(super) enum Answered {
    /// All of it.
    Whole(Json),
    /// It goes on.
    Stream(TaskEventStream),
}

impl Wire {
    /// Asks, and reads the head of the answer, or all of it if it is no stream. A refusal of who we are is tried once more with
    /// another token where there can be one: it says that nothing was done.
    pub(super) async fn ask(&self, request: &Request, cx: &CallContext) -> Result<Answered, A2aError> {
        #[cfg(feature = "grpc")]
        if self.interface.binding == ProtocolBinding::Grpc {
            return super::grpc::ask(self, request, cx).await;
        }
        let mut refused: Option<Secret> = None;
        loop {
            let header = match cx.wait(self.credentials.header(refused.as_ref())).await {
                Ok(header) => header.map_err(|why| A2aError::new(A2aErrorKind::Identity, why.to_string()))?,
                Err(stopped) => return Err(stopped_as(stopped, "no token")),
            };
            let response = self.leave(request, header.as_ref(), cx).await?;
            let unknown = matches!(response.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
            match header {
                Some((_, value)) if unknown && refused.is_none() && self.credentials.may_change() => {
                    refused = Some(value);
                }
                _ => return self.answered(response, cx).await,
            }
        }
    }

    async fn leave(
        &self,
        request: &Request,
        header: Option<&(String, Secret)>,
        cx: &CallContext,
    ) -> Result<reqwest::Response, A2aError> {
        let (method, url, body) = self.written(request);
        let mut sent = self.client.request(method, url).header("accept", "application/json, text/event-stream");
        if self.interface.generation == A2aVersion::New {
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
                let kind = match Arrival::of_http(&error) {
                    Arrival::Impossible => A2aErrorKind::Unreachable,
                    Arrival::Possible => A2aErrorKind::Broken,
                };
                Err(A2aError::new(kind, format!("it does not answer: {}", reasons(&error.without_url()))))
            }
            Err(stopped) => Err(stopped_as(stopped, "no answer")),
        }
    }

    /// Method, address and body of a request.
    fn written(&self, request: &Request) -> (Method, String, Option<Json>) {
        let AgentInterface { url, binding, generation, tenant } = &self.interface;
        let mut body = request.body.clone();
        if *binding == ProtocolBinding::Rpc {
            if let Some(task) = &request.task {
                body.insert("id".into(), task.as_str().into());
            }
            if let Some(tenant) = tenant {
                body.insert("tenant".into(), tenant.as_str().into());
            }
            let method = request.operation.method(*generation);
            let rpc = json!({"jsonrpc": "2.0", "id": request.id, "method": method, "params": body});
            return (Method::POST, url.clone(), Some(rpc));
        }
        let tenant = tenant.as_ref().map(|tenant| format!("/{tenant}")).unwrap_or_default();
        let version = if *generation == A2aVersion::Old { "/v1" } else { "" };
        let base = format!("{url}{tenant}{version}");
        let task = request.task.as_deref().map(path_part).unwrap_or_default();
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
                format!("{key}={}", path_part(&value))
            })
            .collect();
        let query = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
        (method, base + &path + &query, None)
    }

    async fn answered(&self, response: reqwest::Response, cx: &CallContext) -> Result<Answered, A2aError> {
        let status = response.status();
        let kind = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if status.is_success() && kind.starts_with("text/event-stream") {
            let reader = TaskEventStream::new(response, self.interface.dialect(), self.interface.binding);
            return Ok(Answered::Stream(reader));
        }
        let body = match cx.wait(whole(response)).await {
            Ok(body) => body?,
            Err(stopped) => return Err(stopped_as(stopped, "the answer does not end")),
        };
        let parsed = serde_json::from_slice::<Json>(&body);
        if !status.is_success() {
            // An error of the protocol says more than the status; plain HTTP tells all of them so.
            return match parsed.map(|json| result_of(json, self.interface.binding)) {
                Ok(Err(fault @ A2aError { kind: A2aErrorKind::Protocol(_), .. })) => Err(fault),
                _ => Err(A2aError::new(
                    A2aErrorKind::Status(status.as_u16()),
                    format!("it answers with status {status}"),
                )),
            };
        }
        let json = parsed
            .map_err(|error| A2aError::new(A2aErrorKind::Unreadable, format!("the answer is no JSON: {error}")))?;
        result_of(json, self.interface.binding).map(Answered::Whole)
    }
}

/// The body of an answer, within [`limits::A2A_ANSWER`].
pub(super) async fn whole(response: reqwest::Response) -> Result<Vec<u8>, A2aError> {
    read_limited(response, limits::A2A_ANSWER).await.map_err(|error| match error {
        BodyError::TooLong { .. } => A2aError::new(A2aErrorKind::TooLarge, "the answer is larger than is taken"),
        BodyError::Broken(error) => A2aError::new(A2aErrorKind::Broken, format!("the answer was cut short: {error}")),
    })
}

/// Why a wait ended, as a fault.
pub(super) fn stopped_as(stopped: segue_base::context::WaitError, what: &str) -> A2aError {
    let kind = match stopped {
        segue_base::context::WaitError::DeadlinePassed => A2aErrorKind::Late,
        segue_base::context::WaitError::Cancelled => A2aErrorKind::Cancelled,
    };
    A2aError::new(kind, format!("{what}: {stopped}"))
}

/// The whole chain of causes: the outermost says little.
fn reasons(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut inner = error.source();
    while let Some(cause) = inner {
        words = format!("{words}: {cause}");
        inner = cause.source();
    }
    words
}

/// A text as one part of a path or a query.
pub(super) fn path_part(text: &str) -> String {
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

    fn wire(binding: ProtocolBinding, generation: A2aVersion, tenant: Option<&str>) -> Wire {
        let interface =
            AgentInterface { url: "http://h/a".into(), binding, generation, tenant: tenant.map(str::to_owned) };
        let client = segue_base::http::HttpClients::new().client().cloned();
        Wire {
            client: client.unwrap_or_else(|error| panic!("{error}")),
            credentials: Arc::new(Credentials::None),
            interface,
        }
    }

    fn request(operation: Operation, task: Option<&str>) -> Request {
        let body = Map::from_iter([("historyLength".to_owned(), json!(0))]);
        Request { operation, task: task.map(str::to_owned), body, id: "1".into() }
    }

    #[test]
    fn each_binding_has_its_addresses() {
        let rest = |generation, operation, task| {
            let (method, url, _) = wire(ProtocolBinding::Rest, generation, None).written(&request(operation, task));
            format!("{method} {url}")
        };
        assert_eq!(rest(A2aVersion::Old, Operation::Stream, None), "POST http://h/a/v1/message:stream");
        assert_eq!(rest(A2aVersion::New, Operation::Send, None), "POST http://h/a/message:send");
        let odd = rest(A2aVersion::New, Operation::Get, Some("t/../1"));
        assert_eq!(odd, "GET http://h/a/tasks/t%2F..%2F1?historyLength=0");
        assert_eq!(rest(A2aVersion::Old, Operation::Cancel, Some("t")), "POST http://h/a/v1/tasks/t:cancel");
        let (_, url, body) =
            wire(ProtocolBinding::Rpc, A2aVersion::New, Some("acme")).written(&request(Operation::Get, Some("t")));
        let wanted = json!({"jsonrpc": "2.0", "id": "1", "method": "GetTask",
            "params": {"historyLength": 0, "id": "t", "tenant": "acme"}});
        assert_eq!((url.as_str(), body), ("http://h/a", Some(wanted)));
    }
}
