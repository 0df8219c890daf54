//! HTTP requests that a model writes, to addresses that the project allows.
//!
//! The address of a request, and of each redirect, must be allowed. A host that the project names may have any address but that of a
//! metadata service; other hosts must be public and use TLS, which is checked again when the connection is opened ([`SsrfGuard`]).

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use reqwest::{
    Client, Method, Request, Response, StatusCode, Url,
    header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION},
};
use segue_base::{
    effect::Arrival,
    http::{BodyError, HttpClients, SsrfGuard, TransportError, read_limited},
    json::from_slice_lossy,
    limits,
};
use segue_engine::project::HttpTarget;
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};

use super::info;
use crate::{
    EffectClass, FailureKind, Tool, ToolCallContext, ToolOutcome, ToolOutput,
    messages::{ToolMessage, render_message},
    tool::deserialize_arguments,
};

/// Reads an address.
pub const HTTP_GET: &str = "http_get";
/// Sends to an address.
pub const HTTP_POST: &str = "http_post";
/// Replaces what an address has.
pub const HTTP_PUT: &str = "http_put";
/// Changes what an address has.
pub const HTTP_PATCH: &str = "http_patch";
/// Deletes what an address has.
pub const HTTP_DELETE: &str = "http_delete";

/// Headers that the client sets itself, or that change where the request goes.
const RESERVED: [&str; 7] =
    ["host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "proxy-authorization"];
/// Headers of a response that a model gets.
const SHOWN: [&str; 6] = ["content-type", "location", "etag", "last-modified", "retry-after", "link"];

/// The HTTP tools of one agent.
pub struct HttpTools {
    shared: Arc<Shared>,
}

struct Shared {
    allow: Arc<[HttpTarget]>,
    guard: SsrfGuard,
    /// Built at the first call; the error is for operators.
    client: OnceLock<Result<Client, String>>,
}

#[derive(Deserialize)]
struct Arguments {
    url: String,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    body: Json,
}

impl HttpTools {
    /// Tools for these addresses, with the proxy of `clients`.
    pub fn new(allow: Arc<[HttpTarget]>, clients: &HttpClients) -> Self {
        let guard = SsrfGuard::for_hosts(allow.iter().filter_map(HttpTarget::named_host)).with_proxy_of(clients);
        Self { shared: Arc::new(Shared { allow, guard, client: OnceLock::new() }) }
    }

    /// The tools. They read (`http_get`), may be repeated (`http_put`, `http_delete`), or write (`http_post`, `http_patch`).
    pub fn tools(&self) -> Vec<Tool> {
        let tool = |name: &str, method: Method, effect: EffectClass| {
            let shared = self.shared.clone();
            let call = move |arguments: Json, _: ToolCallContext| {
                let (shared, method) = (shared.clone(), method.clone());
                async move {
                    match deserialize_arguments(arguments) {
                        Ok(arguments) => {
                            shared.call(method, effect, arguments).await.unwrap_or_else(|outcome| *outcome)
                        }
                        Err(problem) => bad_arguments(&problem),
                    }
                }
            };
            Tool::from_fn(info(name, effect), call).timeout(limits::HTTP_TOOL_TIME)
        };
        vec![
            tool(HTTP_GET, Method::GET, EffectClass::Read),
            tool(HTTP_POST, Method::POST, EffectClass::Write),
            tool(HTTP_PUT, Method::PUT, EffectClass::Idempotent),
            tool(HTTP_PATCH, Method::PATCH, EffectClass::Write),
            tool(HTTP_DELETE, Method::DELETE, EffectClass::Idempotent),
        ]
    }
}

/// The result of a step of a call: the outcome that ends it is an error.
type Step<T> = Result<T, Box<ToolOutcome>>;

impl Shared {
    async fn call(&self, method: Method, effect: EffectClass, arguments: Arguments) -> Step<ToolOutcome> {
        let Ok(mut url) = Url::parse(&arguments.url) else {
            return Err(Box::new(bad_arguments(&render_message(ToolMessage::HttpAddress, &[("url", &arguments.url)]))));
        };
        let (mut headers, mut body) = (headers_of(&arguments.headers)?, body_of(&arguments.body)?);
        if let (Some((_, kind)), false) = (&body, headers.contains_key(CONTENT_TYPE)) {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        }
        let mut method = method;
        self.check(&url).await?;
        // The status of the response to a call that changes something, once a redirect leads from it to a page that is only read.
        let mut done: Option<u16> = None;
        for followed in 0..=limits::HTTP_TOOL_REDIRECTS {
            let mut request = Request::new(method.clone(), url.clone());
            *request.headers_mut() = headers.clone();
            *request.body_mut() = body.as_ref().map(|(text, _)| text.clone().into());
            let response = match (self.send(request, effect).await, done) {
                (Err(_), Some(status)) => {
                    let note = render_message(ToolMessage::HttpRedirectFailed, &[]);
                    let result = json!({"status": status, "headers": {}, "body": null, "note": note});
                    return Ok(ToolOutcome::Done(ToolOutput::structured(result)));
                }
                (sent, _) => sent?,
            };
            let Some(next) = redirect(&response, &url) else {
                return Ok(read(response, effect, None).await);
            };
            // The first request has happened: a redirect that is not followed is a result, not a failure.
            let note = match followed < limits::HTTP_TOOL_REDIRECTS {
                false => Some(render_message(ToolMessage::HttpRedirects, &[("most", &limits::HTTP_TOOL_REDIRECTS)])),
                true => self.check(&next).await.err().map(|_| render_message(ToolMessage::HttpRedirect, &[])),
            };
            if note.is_some() {
                return Ok(read(response, effect, note).await);
            }
            let status = response.status();
            if status == StatusCode::SEE_OTHER || method == Method::POST && status.as_u16() < 303 {
                done = done.or_else(|| (method != Method::GET).then_some(status.as_u16()));
                method = Method::GET;
                body = None;
                headers.remove(CONTENT_TYPE);
            }
            // Headers may contain credentials for the first server.
            if next.origin() != url.origin() {
                headers.clear();
                if let Some((_, kind)) = &body {
                    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
                }
            }
            url = next;
        }
        Ok(ToolOutcome::failed(FailureKind::ToolError, ""))
    }

    /// Refuses an address that is not allowed.
    async fn check(&self, url: &Url) -> Step<()> {
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
        let port = url.port_or_known_default().unwrap_or(0);
        let has_user = !url.username().is_empty() || url.password().is_some();
        let is_allowed = self.allow.iter().any(|target| target.allows(url.scheme(), host, port, url.path()));
        if !is_allowed || has_user {
            let allowed: Vec<String> = self.allow.iter().map(ToString::to_string).collect();
            let message = render_message(ToolMessage::HttpNotAllowed, &[("allowed", &allowed.join(", "))]);
            return Err(Box::new(ToolOutcome::failed(FailureKind::Refused, message)));
        }
        self.guard.check(url).await.map_err(|reason| {
            tracing::warn!("an HTTP call of an agent was refused: {reason}");
            Box::new(ToolOutcome::failed(FailureKind::Refused, render_message(ToolMessage::HttpPrivate, &[])))
        })
    }

    async fn send(&self, request: Request, effect: EffectClass) -> Step<Response> {
        let client = self.client.get_or_init(|| self.guard.client().map_err(|error| error.to_string()));
        let client = client.as_ref().map_err(|error| {
            tracing::warn!("HTTP calls of agents are not possible: {error}");
            Box::new(ToolOutcome::failed(FailureKind::Unavailable, render_message(ToolMessage::Unavailable, &[])))
        })?;
        client.execute(request).await.map_err(|error| {
            let arrival = Arrival::from_http_error(&error);
            let error = TransportError::from(error);
            let message = render_message(ToolMessage::HttpNoResponse, &[("reason", &error)]);
            Box::new(ToolOutcome::without_response(effect, arrival, FailureKind::Unavailable, message))
        })
    }
}

/// The result of a response.
async fn read(response: Response, effect: EffectClass, note: Option<String>) -> ToolOutcome {
    let status = response.status().as_u16();
    let mut headers = Map::new();
    for name in SHOWN {
        if let Some(value) = response.headers().get(name).and_then(|value| value.to_str().ok()) {
            headers.insert(name.to_owned(), value.into());
        }
    }
    let (body, own) = match read_limited(response, limits::HTTP_TOOL_BODY).await {
        Ok(bytes) => content(&bytes),
        Err(BodyError::TooLong { limit }) => {
            (Json::Null, Some(render_message(ToolMessage::HttpTooLong, &[("limit", &limit)])))
        }
        Err(BodyError::Broken(error)) => {
            let message = render_message(ToolMessage::HttpNoResponse, &[("reason", &error)]);
            match effect {
                EffectClass::Read => return ToolOutcome::failed(FailureKind::Unavailable, message),
                // The server has answered: it is known that the call has happened.
                _ => (Json::Null, Some(message)),
            }
        }
    };
    let mut result = json!({"status": status, "headers": headers, "body": body});
    if let (Some(note), Some(result)) = (note.or(own), result.as_object_mut()) {
        result.insert("note".into(), note.into());
    }
    ToolOutcome::Done(ToolOutput::structured(result))
}

/// The address that a response redirects to.
fn redirect(response: &Response, url: &Url) -> Option<Url> {
    let is_redirect = matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
    let location = response.headers().get(LOCATION).filter(|_| is_redirect)?.to_str().ok()?;
    url.join(location).ok()
}

/// A body as JSON or text. What is neither is not shown.
fn content(bytes: &[u8]) -> (Json, Option<String>) {
    if bytes.is_empty() {
        return (Json::Null, None);
    }
    if let Ok((json, _)) = from_slice_lossy(bytes) {
        return (json, None);
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => (text.into(), None),
        Err(_) => (Json::Null, Some(render_message(ToolMessage::HttpBinary, &[("bytes", &bytes.len())]))),
    }
}

fn headers_of(given: &BTreeMap<String, String>) -> Step<HeaderMap> {
    let mut headers = HeaderMap::new();
    for (name, value) in given {
        let parsed = HeaderName::from_bytes(name.as_bytes()).ok().zip(HeaderValue::from_str(value).ok());
        match parsed.filter(|(name, _)| !RESERVED.contains(&name.as_str())) {
            Some((name, value)) => headers.insert(name, value),
            None => {
                return Err(Box::new(bad_arguments(&render_message(ToolMessage::HttpHeader, &[("name", name)]))));
            }
        };
    }
    Ok(headers)
}

/// The text of a body with its type; JSON unless it is a text.
fn body_of(given: &Json) -> Step<Option<(String, &'static str)>> {
    let body = match given {
        Json::Null => return Ok(None),
        Json::String(text) => (text.clone(), "text/plain; charset=utf-8"),
        other => (other.to_string(), "application/json"),
    };
    if body.0.len() > limits::HTTP_TOOL_BODY {
        let message = render_message(ToolMessage::HttpBodyLong, &[("limit", &limits::HTTP_TOOL_BODY)]);
        return Err(Box::new(bad_arguments(&message)));
    }
    Ok(Some(body))
}

fn bad_arguments(problem: &str) -> ToolOutcome {
    ToolOutcome::failed(
        FailureKind::BadArguments,
        render_message(ToolMessage::InvalidArguments, &[("problems", &problem)]),
    )
}
