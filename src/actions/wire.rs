//! The exchange with one address: the call, the domain when it is asked for, and the questions of a check.

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
use segue_engine::{
    conversation::{ActionOutcome, StepError},
    project::{ActionEndpointDef, Project, TrackerEvents},
};
use serde_json::{Value as Json, value::RawValue};

use super::{
    ActionEnvironment, ActionRequest, Health,
    answer::{self, Answer},
    body::{Body, VERSION},
};
use crate::{
    context::{CallContext, WaitError},
    effect::Arrival,
    failpoint,
    http::{BodyError, HttpClients, parse_endpoint_url, read_limited},
    limits,
    secret::Secret,
};

/// Everything about the exchange but the address.
pub(super) struct Wire {
    pub(super) http: Result<HttpClients, String>,
    pub(super) headers: Vec<(String, Secret)>,
    pub(super) params: Vec<(String, Secret)>,
    pub(super) basic: Option<(String, Secret)>,
    domain: Box<RawValue>,
    /// Actions that ask for the domain by `send_domain`.
    asking: HashSet<String>,
    pub(super) digest: String,
    selective: bool,
    compress: bool,
    pub(super) timeout: Duration,
    pub(super) wants: TrackerEvents,
    status: Mutex<Health>,
}

impl Wire {
    pub(super) fn new(def: &ActionEndpointDef, project: &Project, around: &ActionEnvironment) -> Self {
        let secrets = |pairs: &[(String, String)]| -> Vec<(String, Secret)> {
            pairs.iter().map(|(name, value)| (name.clone(), Secret::new(value.clone()))).collect()
        };
        let http = match &def.cafile {
            None => Ok(around.http.clone()),
            Some(file) => std::fs::read(around.directory.join(file))
                .map_err(|error| format!("`cafile`: {file} cannot be read: {error}"))
                .and_then(|pem| {
                    around.http.with_root_certificates(&pem).map_err(|error| format!("`cafile`: {file}: {error}"))
                }),
        };
        let named = |name: &str| around.environment.iter().find(|(known, _)| known == name).map(|(_, value)| value);
        let by_environment = || {
            let value = named("COMPRESS_ACTION_SERVER_REQUEST").map(|value| value.trim().to_lowercase());
            matches!(value.as_deref(), Some("true" | "1" | "yes" | "y" | "t" | "on"))
        };
        let domain =
            serde_json::to_string(&project.domain.as_json).ok().and_then(|text| RawValue::from_string(text).ok());
        let asks = project.domain.actions.iter().filter(|(_, action)| action.send_domain);
        Self {
            http,
            headers: secrets(&def.headers),
            params: secrets(&def.params),
            basic: def.basic_auth.clone().map(|(user, password)| (user, Secret::new(password))),
            domain: domain.unwrap_or_else(empty),
            asking: asks.map(|(name, _)| name.to_string()).collect(),
            digest: format!("{:016x}", project.hash),
            selective: def.selective_domain,
            compress: def.compress.unwrap_or_else(by_environment),
            timeout: def.timeout.unwrap_or(limits::ACTION_DEADLINE),
            wants: def.tracker_events,
            status: Mutex::new(Health::Unknown),
        }
    }

    /// Runs one action at this address.
    pub(super) async fn run(&self, url: &str, request: ActionRequest<'_>, cx: &CallContext) -> ActionOutcome {
        let cx = cx.with_timeout(self.timeout);
        // The first try goes without the domain: the server keeps it by its digest and asks when it has another one.
        let mut answer = self.call(url, request, None, &cx).await;
        if let Ok(Answer::WantsDomain) = answer {
            let none = empty();
            let wanted = !self.selective || self.asking.contains(request.action.as_str());
            // A server without any domain must be given one; one without contents lets it run what does not look at it.
            let domain = if wanted { &*self.domain } else { &*none };
            answer = self.call(url, request, Some(domain), &cx).await;
        }
        match answer {
            Ok(Answer::Outcome(outcome)) => outcome,
            Ok(Answer::WantsDomain) => {
                let message = "it asks for the domain although it has just been sent";
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
    ) -> Result<Answer, StepError> {
        #[cfg(feature = "grpc")]
        if super::grpc::is_grpc(url) {
            return self.call_by_grpc(url, request, domain, cx).await;
        }
        let body = Body {
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
                answered = self.answered(post.body(leaving(bytes))) => answered,
                // Only a kill test ever comes here.
                () = failpoint::while_waiting("C13", limits::TOOL_GRACE) => Err(StepError::in_doubt("lost", "")),
            }
        };
        let (status, body) = match cx.wait(sent).await {
            Ok(answered) => answered.inspect_err(|error| self.note(Err(error)))?,
            Err(WaitError::DeadlinePassed) => {
                let seconds = self.timeout.as_secs_f64();
                return Err(StepError::in_doubt("timeout", format!("no answer within {seconds} s")));
            }
            Err(WaitError::Cancelled) => return Err(StepError::in_doubt("cancelled", "nobody waits for it any more")),
        };
        self.note(Ok(()));
        Ok(answer::read(request.action.as_str(), status, &body, self.compress))
    }

    /// A request with everything that says who we are. The words of an error never hold the address: it may hold a token.
    fn request(&self, method: reqwest::Method, url: &str) -> Result<reqwest::RequestBuilder, String> {
        if cfg!(not(feature = "grpc")) && url.starts_with("grpc") {
            let cure = "build it with `--features grpc`, or start the action server without `--grpc` and give its HTTP address";
            return Err(format!("this program was built without gRPC: {cure}"));
        }
        let mut url = parse_endpoint_url(url).map_err(|_| "`url` of `action_endpoint` cannot be asked".to_owned())?;
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

    async fn answered(&self, request: reqwest::RequestBuilder) -> Result<(u16, Vec<u8>), StepError> {
        let lost = |error: reqwest::Error| match Arrival::of_http(&error) {
            Arrival::Impossible if error.is_builder() => {
                StepError::new("unsupported", format!("the request cannot be made: {}", cause(&error)))
            }
            Arrival::Impossible => {
                StepError::new("unreachable", format!("the action server cannot be reached: {}", cause(&error)))
            }
            Arrival::Possible => {
                StepError::in_doubt("lost", format!("the connection broke before the answer: {}", cause(&error)))
            }
        };
        let response = request.send().await.map_err(lost)?;
        let status = response.status().as_u16();
        let body = read_limited(response, limits::ACTION_ANSWER).await.map_err(|error| match error {
            BodyError::TooLong { limit } => {
                StepError::in_doubt("bad_answer", format!("its answer is larger than {limit} bytes"))
            }
            BodyError::Broken(error) => {
                StepError::in_doubt("lost", format!("the connection broke before the answer: {error}"))
            }
        })?;
        Ok((status, body))
    }

    /// The actions of the server at this address: first whether it lives, then what it has.
    ///
    /// # Errors
    /// It does not answer as an action server does, in words for operators.
    pub(super) async fn names(&self, url: &str, cx: &CallContext) -> Result<Vec<String>, String> {
        #[cfg(feature = "grpc")]
        if super::grpc::is_grpc(url) {
            return self.names_by_grpc(url, cx).await;
        }
        let health = self.asked(url, "health", cx).await?;
        if health.get("status").and_then(Json::as_str) != Some("ok") {
            return Err("its `/health` does not say `ok`".to_owned());
        }
        let listed = self.asked(url, "actions", cx).await?;
        let names = listed.as_array().ok_or("its `/actions` is no list")?;
        Ok(names.iter().filter_map(|action| Some(action.get("name")?.as_str()?.to_owned())).collect())
    }

    /// Whether the server at this address lives.
    pub(super) async fn lives(&self, url: &str, cx: &CallContext) -> bool {
        self.asked(url, "health", cx).await.is_ok()
    }

    async fn asked(&self, url: &str, last: &str, cx: &CallContext) -> Result<Json, String> {
        let request = self.request(reqwest::Method::GET, &beside(url, last))?;
        let answered = cx.with_timeout(limits::ACTION_HEALTH).wait(self.answered(request)).await;
        let (status, body) = match answered {
            Ok(Ok(answered)) => answered,
            Ok(Err(error)) => {
                self.note(Err(&error));
                return Err(error.message);
            }
            Err(stopped) => return Err(format!("`/{last}` is not answered: {stopped}")),
        };
        self.note(Ok(()));
        if status != 200 {
            return Err(format!("`/{last}` is answered with the status {status}"));
        }
        serde_json::from_slice(&body).map_err(|_| format!("`/{last}` is answered with something that is no JSON"))
    }

    pub(super) fn status(&self) -> Health {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn note(&self, result: Result<(), &StepError>) {
        let health = match result {
            Ok(()) => Health::Up,
            Err(error) if error.code == "unreachable" => Health::Down { reason: error.message.clone() },
            Err(_) => return,
        };
        *self.status.lock().unwrap_or_else(PoisonError::into_inner) = health;
    }
}

/// A neighbour of the webhook: what stands after the last slash of the path gives way, the query stays.
fn beside(url: &str, last: &str) -> String {
    let Ok(webhook) = reqwest::Url::parse(url) else { return url.to_owned() };
    let Ok(mut beside) = webhook.join(last) else { return url.to_owned() };
    beside.set_query(webhook.query());
    beside.into()
}

/// The body as it leaves. Where the point C12 is set, half of it leaves and then the process dies.
fn leaving(bytes: Vec<u8>) -> reqwest::Body {
    if !failpoint::is_armed("C12") {
        return bytes.into();
    }
    let half = bytes.get(..bytes.len() / 2).unwrap_or_default().to_vec();
    let never = stream::once(failpoint::while_waiting("C12", limits::TOOL_GRACE)).map(|()| Vec::new());
    reqwest::Body::wrap_stream(stream::once(ready(half)).chain(never).map(Ok::<_, std::io::Error>))
}

/// A domain without contents; absent would make the server ask again.
fn empty() -> Box<RawValue> {
    RawValue::from_string("{}".to_owned()).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// The innermost reason of an error, which says most and holds no address.
fn cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = match error.source() {
        Some(source) => source,
        None => return "the request failed".to_owned(),
    };
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::beside;

    #[test]
    fn a_neighbour_of_the_webhook_keeps_the_query_whatever_is_in_it() {
        for (webhook, wanted) in [
            ("http://h:5055/webhook", "http://h:5055/health"),
            ("http://h:5055/webhook?token=a/b", "http://h:5055/health?token=a/b"),
            ("http://h:5055/deep/webhook?a=1&b=/x/", "http://h:5055/deep/health?a=1&b=/x/"),
            ("http://h:5055/webhook/", "http://h:5055/webhook/health"),
            ("http://h:5055", "http://h:5055/health"),
            ("http://h:5055/webhook#part", "http://h:5055/health"),
        ] {
            assert_eq!(beside(webhook, "health"), wanted, "{webhook}");
        }
    }
}
