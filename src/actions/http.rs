//! Requests to an action server over HTTP: action calls, the domain if the server requests it, health, and the list of actions.

use std::{
    collections::HashSet,
    error::Error as _,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use futures::{
    future::ready,
    stream::{self, StreamExt as _},
};
use segue_base::json::from_slice_lossy;
use segue_engine::{
    conversation::{ActionOutcome, StepError},
    project::{ActionEndpointDef, Project, TrackerEvents},
};
use serde_json::{Value as Json, value::RawValue};

use super::{
    ActionEnvironment, ActionRequest, Health,
    response::{self, ActionResponse},
    webhook_body::{VERSION, WebhookBody},
};
use crate::{
    context::{CallContext, WaitError},
    effect::Arrival,
    failpoint,
    http::{BodyError, HttpClients, parse_endpoint_url, read_limited},
    limits,
    secret::Secret,
};

/// The settings of an action endpoint, without its URL.
pub(super) struct ActionEndpoint {
    pub(super) http: Result<HttpClients, String>,
    pub(super) headers: Vec<(String, Secret)>,
    pub(super) params: Vec<(String, Secret)>,
    pub(super) basic: Option<(String, Secret)>,
    domain: Box<RawValue>,
    /// Actions with `send_domain`.
    send_domain: HashSet<String>,
    pub(super) digest: String,
    selective: bool,
    compress: bool,
    pub(super) timeout: Duration,
    pub(super) tracker_events: TrackerEvents,
    status: Mutex<Health>,
}

impl ActionEndpoint {
    pub(super) fn new(def: &ActionEndpointDef, project: &Project, process: &ActionEnvironment) -> Self {
        let secrets = |pairs: &[(String, String)]| -> Vec<(String, Secret)> {
            pairs.iter().map(|(name, value)| (name.clone(), Secret::new(value.clone()))).collect()
        };
        let http = match &def.cafile {
            None => Ok(process.http.clone()),
            Some(file) => std::fs::read(process.directory.join(file))
                .map_err(|error| format!("`cafile`: {file} cannot be read: {error}"))
                .and_then(|pem| {
                    process.http.with_root_certificates(&pem).map_err(|error| format!("`cafile`: {file}: {error}"))
                }),
        };
        let named = |name: &str| process.environment.iter().find(|(known, _)| known == name).map(|(_, value)| value);
        let by_environment = || {
            let value = named("COMPRESS_ACTION_SERVER_REQUEST").map(|value| value.trim().to_lowercase());
            matches!(value.as_deref(), Some("true" | "1" | "yes" | "y" | "t" | "on"))
        };
        let domain =
            serde_json::to_string(&project.domain.as_json).ok().and_then(|text| RawValue::from_string(text).ok());
        let domain_actions = project.domain.actions.iter().filter(|(_, action)| action.send_domain);
        Self {
            http,
            headers: secrets(&def.headers),
            params: secrets(&def.params),
            basic: def.basic_auth.clone().map(|(user, password)| (user, Secret::new(password))),
            domain: domain.unwrap_or_else(empty_domain),
            send_domain: domain_actions.map(|(name, _)| name.to_string()).collect(),
            digest: format!("{:016x}", project.hash),
            selective: def.selective_domain,
            compress: def.compress.unwrap_or_else(by_environment),
            timeout: def.timeout.unwrap_or(limits::ACTION_DEADLINE),
            tracker_events: def.tracker_events,
            status: Mutex::new(Health::Unknown),
        }
    }

    /// Runs one action at this URL.
    pub(super) async fn run(&self, url: &str, request: ActionRequest<'_>, cx: &CallContext) -> ActionOutcome {
        let cx = cx.with_timeout(self.timeout);
        // The first request has no domain: the server caches it by its digest and requests it if the digest differs.
        let mut answer = self.call(url, request, None, &cx).await;
        if let Ok(ActionResponse::DomainRequired) = answer {
            let none = empty_domain();
            let needs_domain = !self.selective || self.send_domain.contains(request.action.as_str());
            // The server needs some domain; an empty one is enough for actions that do not use it.
            let domain = if needs_domain { &*self.domain } else { &*none };
            answer = self.call(url, request, Some(domain), &cx).await;
        }
        match answer {
            Ok(ActionResponse::Outcome(outcome)) => outcome,
            Ok(ActionResponse::DomainRequired) => {
                let message = "it requests the domain again although it has just been sent";
                ActionOutcome::Failed(StepError::new("bad_answer", message))
            }
            Err(error) => ActionOutcome::Failed(error),
        }
    }

    async fn call(
        &self,
        url: &str,
        request: ActionRequest<'_>,
        domain: Option<&RawValue>,
        cx: &CallContext,
    ) -> Result<ActionResponse, StepError> {
        #[cfg(feature = "grpc")]
        if super::grpc::is_grpc(url) {
            return self.call_by_grpc(url, request, domain, cx).await;
        }
        let body = WebhookBody {
            next_action: request.action.as_str(),
            sender_id: request.conversation.as_str(),
            tracker: request.tracker,
            domain,
            domain_digest: &self.digest,
            version: VERSION,
        };
        let bytes = body.bytes(self.compress).map_err(|reason| StepError::new("too_large", reason))?;
        let mut post =
            self.request(reqwest::Method::POST, url).map_err(|reason| StepError::new("unsupported", reason))?;
        post = post.header("content-type", "application/json").header("idempotency-key", request.idempotency_key);
        if self.compress {
            post = post.header("content-encoding", "deflate");
        }
        let sent = async {
            tokio::select! {
                biased;
                answered = self.send(post.body(request_body(bytes))) => answered,
                // Reached only in tests that kill the process.
                () = failpoint::while_waiting("C13", limits::TOOL_GRACE) => Err(StepError::in_doubt("lost", "")),
            }
        };
        let (status, body) = match cx.wait(sent).await {
            Ok(answered) => answered.inspect_err(|error| self.record_status(Err(error)))?,
            Err(WaitError::DeadlinePassed) => {
                let seconds = self.timeout.as_secs_f64();
                return Err(StepError::in_doubt("timeout", format!("no answer within {seconds} s")));
            }
            Err(WaitError::Cancelled) => return Err(StepError::in_doubt("cancelled", "the call was cancelled")),
        };
        self.record_status(Ok(()));
        Ok(response::read(request.action.as_str(), status, &body, self.compress))
    }

    /// A request with headers, parameters and credentials. The text of an error never contains the URL, because it may contain a token.
    fn request(&self, method: reqwest::Method, url: &str) -> Result<reqwest::RequestBuilder, String> {
        if cfg!(not(feature = "grpc")) && url.starts_with("grpc") {
            let fix = "build it with `--features grpc`, or start the action server without `--grpc` and give its HTTP address";
            return Err(format!("this program was built without gRPC: {fix}"));
        }
        let mut url = parse_endpoint_url(url)
            .map_err(|_| "the `url` of `action_endpoint` is invalid or not allowed".to_owned())?;
        if !self.params.is_empty() {
            let mut pairs = url.query_pairs_mut();
            self.params.iter().for_each(|(name, value)| _ = pairs.append_pair(name, value.expose()));
        }
        let client = self.http.as_ref().map_err(Clone::clone)?.client().map_err(|error| error.to_string())?;
        let mut request = client.request(method, url);
        for (name, value) in &self.headers {
            request = request.header(name, value.expose());
        }
        if let Some((user, password)) = &self.basic {
            request = request.basic_auth(user, Some(password.expose()));
        }
        Ok(request)
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> Result<(u16, Vec<u8>), StepError> {
        let send_error = |error: reqwest::Error| match Arrival::from_http_error(&error) {
            Arrival::Impossible if error.is_builder() => {
                StepError::new("unsupported", format!("the request cannot be made: {}", root_cause(&error)))
            }
            Arrival::Impossible => {
                StepError::new("unreachable", format!("the action server cannot be reached: {}", root_cause(&error)))
            }
            Arrival::Possible => StepError::in_doubt(
                "lost",
                format!("the connection was lost before the response: {}", root_cause(&error)),
            ),
        };
        let response = request.send().await.map_err(send_error)?;
        let status = response.status().as_u16();
        let body = read_limited(response, limits::ACTION_ANSWER).await.map_err(|error| match error {
            BodyError::TooLong { limit } => {
                StepError::in_doubt("bad_answer", format!("its response is larger than {limit} bytes"))
            }
            BodyError::Broken(error) => {
                StepError::in_doubt("lost", format!("the connection was lost before the response: {error}"))
            }
        })?;
        Ok((status, body))
    }

    /// Checks the health of the server at this URL, then requests its actions.
    ///
    /// # Errors
    /// A text for operators: it does not respond like an action server.
    pub(super) async fn list_actions(&self, url: &str, cx: &CallContext) -> Result<Vec<String>, String> {
        #[cfg(feature = "grpc")]
        if super::grpc::is_grpc(url) {
            return self.list_actions_by_grpc(url, cx).await;
        }
        let health = self.get(url, "health", cx).await?;
        if health.get("status").and_then(Json::as_str) != Some("ok") {
            return Err("its `/health` does not return the status `ok`".to_owned());
        }
        let listed = self.get(url, "actions", cx).await?;
        let names = listed.as_array().ok_or("its `/actions` does not return a list")?;
        Ok(names.iter().filter_map(|action| Some(action.get("name")?.as_str()?.to_owned())).collect())
    }

    /// Whether the server at this URL responds.
    pub(super) async fn is_alive(&self, url: &str, cx: &CallContext) -> bool {
        self.get(url, "health", cx).await.is_ok()
    }

    async fn get(&self, url: &str, last: &str, cx: &CallContext) -> Result<Json, String> {
        let request = self.request(reqwest::Method::GET, &sibling_url(url, last))?;
        let answered = cx.with_timeout(limits::ACTION_HEALTH).wait(self.send(request)).await;
        let (status, body) = match answered {
            Ok(Ok(answered)) => answered,
            Ok(Err(error)) => {
                self.record_status(Err(&error));
                return Err(error.message);
            }
            Err(stopped) => return Err(format!("`/{last}` does not respond: {stopped}")),
        };
        self.record_status(Ok(()));
        if status != 200 {
            return Err(format!("`/{last}` responds with the status {status}"));
        }
        let parsed = from_slice_lossy(&body).map(|(json, _)| json);
        parsed.map_err(|_| format!("`/{last}` responds with something that is not JSON"))
    }

    pub(super) fn status(&self) -> Health {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn record_status(&self, result: Result<(), &StepError>) {
        let health = match result {
            Ok(()) => Health::Up,
            Err(error) if error.code == "unreachable" => Health::Down { reason: error.message.clone() },
            Err(_) => return,
        };
        *self.status.lock().unwrap_or_else(PoisonError::into_inner) = health;
    }
}

/// The URL of the webhook with another last path segment and the same query.
fn sibling_url(url: &str, last: &str) -> String {
    let Ok(webhook) = reqwest::Url::parse(url) else { return url.to_owned() };
    let Ok(mut sibling_url) = webhook.join(last) else { return url.to_owned() };
    sibling_url.set_query(webhook.query());
    sibling_url.into()
}

/// The HTTP body. If the failpoint C12 is set, half of it is sent and then the process is killed.
fn request_body(bytes: Vec<u8>) -> reqwest::Body {
    if !failpoint::is_armed("C12") {
        return bytes.into();
    }
    let half = bytes.get(..bytes.len() / 2).unwrap_or_default().to_vec();
    let never = stream::once(failpoint::while_waiting("C12", limits::TOOL_GRACE)).map(|()| Vec::new());
    reqwest::Body::wrap_stream(stream::once(ready(half)).chain(never).map(Ok::<_, std::io::Error>))
}

/// An empty domain; without a domain the server would request it again.
fn empty_domain() -> Box<RawValue> {
    RawValue::from_string("{}".to_owned()).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// The innermost cause of an error, which is the most specific one and contains no URL.
fn root_cause(error: &reqwest::Error) -> String {
    let mut root_cause: &dyn std::error::Error = match error.source() {
        Some(source) => source,
        None => return "the request failed".to_owned(),
    };
    while let Some(inner) = root_cause.source() {
        root_cause = inner;
    }
    root_cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::sibling_url;

    #[test]
    fn sibling_url_keeps_the_query() {
        for (webhook, needs_domain) in [
            ("http://h:5055/webhook", "http://h:5055/health"),
            ("http://h:5055/webhook?token=a/b", "http://h:5055/health?token=a/b"),
            ("http://h:5055/deep/webhook?a=1&b=/x/", "http://h:5055/deep/health?a=1&b=/x/"),
            ("http://h:5055/webhook/", "http://h:5055/webhook/health"),
            ("http://h:5055", "http://h:5055/health"),
            ("http://h:5055/webhook#part", "http://h:5055/health"),
        ] {
            assert_eq!(sibling_url(webhook, "health"), needs_domain, "{webhook}");
        }
    }
}
