//! The assistant as an agent for others: A2A in both generations, over JSON-RPC and plain HTTP.
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

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::http::{self, HeaderMap, Method, Request, Response, StatusCode, header::RETRY_AFTER};
use bytes::Bytes;
use segue_engine::{ids::ConversationId, project::A2aServerDef};
use serde_json::Value as Json;

use self::{course::Courses, push::Pushes};
use super::{Bearer, Body, Caller, Door, Inbox, Service, json, problem};
use crate::{
    a2a::{WELL_KNOWN, codes},
    runtime::{Assistant, ReceiveError},
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

/// The assistant as an agent for others, as one caller sees it. Cheap to clone.
#[derive(Clone)]
pub struct A2aAgent(Arc<Inner>, Caller);

struct Inner {
    assistant: Assistant,
    inbox: Inbox,
    card: Json,
    door: Door,
    include_repair: bool,
    task_timeout: Option<std::time::Duration>,
    courses: Courses,
    pushes: Option<Pushes>,
}

impl A2aAgent {
    /// Offers an assistant as its project says.
    ///
    /// # Errors
    /// What is wrong with the rules for tokens, in words for operators.
    pub fn new(assistant: &Assistant, def: &A2aServerDef, offer: &Offer) -> Result<Self, String> {
        let door = Door::new(def.token.as_deref().and_then(Bearer::new), def.jwt.as_ref())?;
        let pushes = def.push.then(|| Pushes::new(offer.local, assistant.outbound())).flatten();
        let inner = Arc::new(Inner {
            card: card::card(assistant.project(), def, offer, pushes.is_some()),
            door,
            include_repair: def.include_repair,
            task_timeout: def.task_timeout,
            courses: Courses::default(),
            pushes,
            inbox: Inbox::new(assistant.clone(), NAME).taking_payloads(def.payloads),
            assistant: assistant.clone(),
        });
        Ok(Self(inner, Caller::default()))
    }

    /// Whether callers must show a token.
    pub fn is_guarded(&self) -> bool {
        self.0.door.is_guarded()
    }

    /// What the ids of this caller's conversations begin with. Where callers can be told apart, each has conversations of its
    /// own: a context is a word that callers choose, and two may choose the same.
    fn prefix(&self) -> String {
        match &self.1.mark {
            Some(mark) => format!("{NAME}@{mark}:"),
            None => format!("{NAME}:"),
        }
    }

    /// The conversation of a context: those of other channels, and of other callers, cannot be named.
    fn conversation_of(&self, context: &str) -> ConversationId {
        ConversationId::from(format!("{}{context}", self.prefix()))
    }

    /// The name of a task in the memory of this process.
    fn name_of(&self, task: &str) -> String {
        format!("{}{task}", self.prefix())
    }

    /// Looks at the head of a request before its body is read: whoever has no proof cannot make the server read.
    ///
    /// # Errors
    /// The answer that refuses the request.
    pub async fn check(&self, head: &mut http::request::Parts) -> Result<(), Response<Body>> {
        if !WELL_KNOWN.contains(&head.uri.path()) {
            let caller = self.0.door.caller(&head.headers, self.0.assistant.clock()).await;
            head.extensions.insert(caller.map_err(|refused| refused.answer("this agent"))?);
        }
        Ok(())
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
        let (mut head, body) = request.into_parts();
        let checked = head.extensions.remove::<Caller>();
        let path = head.uri.path();
        if WELL_KNOWN.contains(&path) {
            return match head.method {
                Method::GET => json(StatusCode::OK, &self.0.card),
                _ => problem(StatusCode::METHOD_NOT_ALLOWED, "the card is read with GET"),
            };
        }
        let caller = match checked {
            Some(caller) => Ok(caller),
            None => self.0.door.caller(&head.headers, self.0.assistant.clock()).await,
        };
        let this = match caller {
            Ok(caller) => Self(self.0.clone(), caller),
            Err(refused) => return refused.answer("this agent"),
        };
        match path.strip_prefix("/a2a").unwrap_or(path).trim_end_matches('/') {
            "" if head.method == Method::POST => rpc::answer(&this, &body, &head.headers).await,
            "" => problem(StatusCode::METHOD_NOT_ALLOWED, "this agent is asked with POST"),
            rest => rest::answer(&this, &head, rest, &body).await,
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
    /// For a message that was not accepted: how HTTP says so, and when to send it again.
    later: Option<(StatusCode, Duration)>,
}

impl Refusal {
    fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), later: None }
    }
    fn overloaded(error: &ReceiveError) -> Self {
        let message = format!("{error} [{}]", error.code());
        Self { later: super::refused(error), ..Self::new(codes::INTERNAL_ERROR, message) }
    }
    /// The answer that tells it.
    fn told(&self, mut answer: Response<Body>) -> Response<Body> {
        if let Some((status, after)) = self.later {
            *answer.status_mut() = status;
            answer.headers_mut().insert(RETRY_AFTER, http::HeaderValue::from(after.as_secs()));
        }
        answer
    }
    fn no_task(id: &str) -> Self {
        Self::new(codes::TASK_NOT_FOUND, format!("there is no task `{id}`"))
    }
    fn params(message: impl Into<String>) -> Self {
        Self::new(codes::INVALID_PARAMS, message)
    }
}

/// Whether a caller speaks an edition that we do not; a caller that says nothing speaks the older one, or says it by its methods.
fn unknown_version(headers: &HeaderMap) -> Option<Refusal> {
    let version = headers.get("a2a-version").and_then(|value| value.to_str().ok()).map(str::trim)?;
    let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
    match (version, major) {
        ("", _) | (_, Some(0 | 1)) => None,
        _ => Some(Refusal::new(
            codes::VERSION_NOT_SUPPORTED,
            format!("version {version} is not spoken here; 1.0 and 0.3 are"),
        )),
    }
}

#[cfg(test)]
mod tests;
