//! The assistant as an agent for others: A2A in both generations, over JSON-RPC and plain HTTP (agents.md 9.7).
//!
//! *For*: every flow is a skill; a task is what the assistant does until it stands still. *Entry*: [`A2aAgent`]; its
//! [`service`](A2aAgent::service) answers the paths of [`PATHS`]. *Never*: this part keeps a task of its own. What a task is and
//! where it stands is read from the turns of its conversation, so it is the same after a restart and for every process on the
//! store; in memory are only the streams of tasks that run. A caller reaches conversations of this channel alone.

mod card;
mod course;
mod push;
pub mod reports;
mod rest;
mod rpc;
mod standing;
mod stream;
mod tasks;
mod work;

use std::{convert::Infallible, sync::Arc};

use axum::http::{
    self, HeaderMap, HeaderValue, Method, Request, Response, StatusCode,
    header::{CONTENT_TYPE, WWW_AUTHENTICATE},
};
use bytes::Bytes;
use segue_engine::project::A2aServerDef;
use serde_json::{Value as Json, json};
use tokio_util::task::TaskTracker;

use self::{course::Courses, push::Pushes};
use super::{Bearer, Body, Inbox, Service};
use crate::{
    a2a::{WELL_KNOWN, codes},
    runtime::Assistant,
};

/// The name of the channel, and the beginning of the ids of its conversations.
pub const NAME: &str = "a2a";

/// The paths it answers; the last two with everything below.
pub const PATHS: [&str; 4] = [WELL_KNOWN[0], WELL_KNOWN[1], "/a2a", "/a2a/{*rest}"];

/// How the assistant is offered.
#[derive(Clone, Debug)]
pub struct Offer {
    /// The public address, without a slash at its end: the one of the project, or where the server listens.
    pub url: String,
    /// Whether the server can be reached from this machine alone: then reports may go to this machine too.
    pub local: bool,
}

/// The assistant as an agent for others. Cheap to clone.
#[derive(Clone)]
pub struct A2aAgent(Arc<Inner>);

struct Inner {
    assistant: Assistant,
    inbox: Inbox,
    card: Json,
    token: Option<Bearer>,
    include_repair: bool,
    task_timeout: Option<std::time::Duration>,
    courses: Courses,
    pushes: Option<Pushes>,
    /// Turns and reports that go on while nobody waits for them.
    tasks: TaskTracker,
}

impl A2aAgent {
    /// Offers an assistant as its project says.
    pub fn new(assistant: &Assistant, def: &A2aServerDef, offer: &Offer) -> Self {
        let pushes = def.push.then(|| Pushes::new(offer.local)).flatten();
        Self(Arc::new(Inner {
            card: card::card(assistant.project(), def, offer, pushes.is_some()),
            token: def.token.as_deref().and_then(Bearer::new),
            include_repair: def.include_repair,
            task_timeout: def.task_timeout,
            courses: Courses::default(),
            pushes,
            tasks: TaskTracker::new(),
            inbox: Inbox::new(assistant.clone(), NAME),
            assistant: assistant.clone(),
        }))
    }

    /// Whether callers must show a token.
    pub fn is_guarded(&self) -> bool {
        self.0.token.is_some()
    }

    /// Answers requests for [`PATHS`]; the path of a request is the whole one.
    pub fn service(&self) -> Service {
        let this = self.clone();
        Service::new(tower::service_fn(move |request| {
            let this = this.clone();
            async move { Ok::<_, Infallible>(this.answer(request).await) }
        }))
    }

    async fn answer(&self, request: Request<Bytes>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let path = head.uri.path();
        if WELL_KNOWN.contains(&path) {
            return match head.method {
                Method::GET => json_answer(StatusCode::OK, &self.0.card),
                _ => refusal(StatusCode::METHOD_NOT_ALLOWED, "the card is read with GET"),
            };
        }
        if self.0.token.as_ref().is_some_and(|token| !token.admits(&head.headers)) {
            let mut answer = refusal(StatusCode::UNAUTHORIZED, "this agent needs its token as a bearer");
            answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            return answer;
        }
        match path.strip_prefix("/a2a").unwrap_or(path).trim_end_matches('/') {
            "" if head.method == Method::POST => rpc::answer(self, &body, &head.headers).await,
            "" => refusal(StatusCode::METHOD_NOT_ALLOWED, "this agent is asked with POST"),
            rest => rest::answer(self, &head, rest, &body).await,
        }
    }
}

impl std::fmt::Debug for A2aAgent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("A2aAgent").field("guarded", &self.is_guarded()).finish_non_exhaustive()
    }
}

/// An error of the protocol.
#[derive(Clone, Debug, PartialEq)]
struct Refusal {
    code: i64,
    message: String,
}

impl Refusal {
    fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
    fn no_task(id: &str) -> Self {
        Self::new(codes::NO_TASK, format!("there is no task `{id}`"))
    }
    fn params(message: impl Into<String>) -> Self {
        Self::new(codes::PARAMS, message)
    }
}

/// Whether a caller speaks an edition that we do not; a caller that says nothing speaks the older one, or says it by its methods.
fn unknown_version(headers: &HeaderMap) -> Option<Refusal> {
    let version = headers.get("a2a-version").and_then(|value| value.to_str().ok()).map(str::trim)?;
    let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
    match (version, major) {
        ("", _) | (_, Some(0 | 1)) => None,
        _ => Some(Refusal::new(codes::VERSION, format!("version {version} is not spoken here; 1.0 and 0.3 are"))),
    }
}

fn json_answer(status: StatusCode, body: &Json) -> Response<Body> {
    let mut answer = Response::new(Body::from(body.to_string()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    answer
}

fn refusal(status: StatusCode, problem: &str) -> Response<Body> {
    json_answer(status, &json!({"error": problem}))
}

#[cfg(test)]
mod tests;
