//! The assistant as an agent for others: A2A in both generations, over JSON-RPC and plain HTTP.
//!
//! *For*: every flow is a skill; a task is what the assistant does until it stands still. *Entry*: [`A2aServerChannel`]; it answers
//! the paths of [`PATHS`]. *Never*: this part keeps a task of its own. What a task is and where it stands is read from the turns of
//! its conversation, so it is the same after a restart and for every process on the store; in memory are only the streams of tasks
//! that run. A caller reaches conversations of this channel alone.

mod card;
mod course;
mod push;
pub mod push_receiver;
mod rest;
mod rpc;
mod standing;
mod stream;
mod tasks;
mod work;

use std::{convert::Infallible, sync::Arc, time::Duration};

use async_trait::async_trait;
use axum::http::{
    self, HeaderMap, Method, Request, Response, StatusCode,
    header::{HOST, RETRY_AFTER},
};
use bytes::Bytes;
use segue_engine::{ids::ConversationId, project::A2aServerDef};
use serde_json::Value as Json;

use self::{course::Courses, push::Pushes};
use super::{
    Authenticator, BearerToken, Body, Caller, Capabilities, Channel, ChannelService, Inbox, Markup, Routes,
    ServerAddress, json, problem,
    registry::{ChannelFactory, ChannelSource},
};
use crate::{
    a2a::{WELL_KNOWN, codes},
    clock::Clock,
    runtime::{Assistant, ReceiveError},
};

/// The name of the channel, and the beginning of the ids of its conversations.
pub const NAME: &str = "a2a";

/// The paths it answers; the last two with everything below.
pub const PATHS: [&str; 4] = [WELL_KNOWN[0], WELL_KNOWN[1], "/a2a", "/a2a/{*rest}"];

pub(super) const FACTORY: ChannelFactory = ChannelFactory {
    name: NAME,
    is_wanted: |project, _| project.endpoints.a2a_server.is_some(),
    open,
    place: "endpoints.yml: `a2a_server`",
    code: "F0643",
    is_required: true,
};

fn open(source: &ChannelSource<'_>) -> Result<Arc<dyn Channel>, String> {
    let def =
        source.project.endpoints.a2a_server.as_ref().ok_or("it is not there; the channel `a2a` is set up by it")?;
    Ok(Arc::new(A2aServerChannel::new(def, source.options.is_local)?))
}

/// The assistant as an agent for others.
#[derive(Debug)]
pub struct A2aServerChannel {
    def: A2aServerDef,
    auth: Authenticator,
    is_local: bool,
}

impl A2aServerChannel {
    /// With the settings of a project. Where only this machine reaches the server, tasks are reported to addresses of this machine
    /// too.
    ///
    /// # Errors
    /// What is wrong with the rules for tokens, in words for operators.
    pub fn new(def: &A2aServerDef, is_local: bool) -> Result<Self, String> {
        let auth = Authenticator::new(def.token.as_deref().and_then(BearerToken::new), def.jwt.as_ref())?;
        Ok(Self { def: def.clone(), auth, is_local })
    }

    fn server(&self, inbox: Inbox) -> A2aServer {
        let (def, assistant) = (&self.def, inbox.assistant().clone());
        let pushes = def.push.then(|| Pushes::new(self.is_local, assistant.outbound())).flatten();
        let inner = Inner {
            card: card::card(assistant.project(), def, pushes.is_some()),
            url: def.url.clone(),
            auth: self.auth.clone(),
            include_repair: def.include_repair,
            task_timeout: def.task_timeout,
            courses: Courses::default(),
            pushes,
            inbox: inbox.taking_payloads(def.payloads),
            assistant,
        };
        A2aServer(Arc::new(inner), Caller::default())
    }
}

#[async_trait]
impl Channel for A2aServerChannel {
    fn name(&self) -> &str {
        NAME
    }
    fn routes(&self) -> Routes {
        Routes::Paths(PATHS.map(str::to_owned).into())
    }
    fn capabilities(&self) -> Capabilities {
        Capabilities { streaming: true, buttons: true, images: true, markup: Markup::Plain }
    }
    fn is_guarded(&self) -> bool {
        self.auth.is_guarded()
    }
    fn guard_advice(&self) -> String {
        "set `auth: {token: ${…}}` or `auth: {jwt: …}` under `a2a_server:` in endpoints.yml".to_owned()
    }
    async fn check(&self, head: &mut http::request::Parts, clock: &Arc<dyn Clock>) -> Result<(), Response<Body>> {
        if !WELL_KNOWN.contains(&head.uri.path()) {
            let caller = self.auth.authenticate(&head.headers, clock).await;
            head.extensions.insert(caller.map_err(|error| error.response("this agent"))?);
        }
        Ok(())
    }
    fn service(&self, inbox: Inbox) -> ChannelService {
        self.server(inbox).service()
    }
}

/// The server of one assistant, as one caller sees it. Cheap to clone.
#[derive(Clone)]
struct A2aServer(Arc<Inner>, Caller);

struct Inner {
    assistant: Assistant,
    inbox: Inbox,
    /// Without addresses, which may depend on where the server listens.
    card: Json,
    /// The public address, where the project names it.
    url: Option<String>,
    auth: Authenticator,
    include_repair: bool,
    task_timeout: Option<Duration>,
    courses: Courses,
    pushes: Option<Pushes>,
}

impl A2aServer {
    /// What the ids of this caller's conversations begin with. Where callers can be told apart, each has conversations of its
    /// own: a context is a word that callers choose, and two may choose the same.
    fn prefix(&self) -> String {
        match &self.1.id {
            Some(id) => format!("{NAME}@{id}:"),
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

    /// Answers requests for [`PATHS`]; the path of a request is the whole one.
    fn service(&self) -> ChannelService {
        let this = self.clone();
        ChannelService::new(tower::service_fn(move |request| {
            let this = this.clone();
            async move { Ok::<_, Infallible>(this.answer(request).await) }
        }))
    }

    /// The public address: the one of the project, else where the server listens, else where the caller found it.
    fn url(&self, head: &http::request::Parts) -> String {
        let found = || head.headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or("localhost");
        match (&self.0.url, head.extensions.get::<ServerAddress>()) {
            (Some(url), _) => url.clone(),
            (None, Some(ServerAddress(address))) => format!("http://{address}"),
            (None, None) => format!("http://{}", found()),
        }
    }

    async fn answer(&self, request: Request<Bytes>) -> Response<Body> {
        let (mut head, body) = request.into_parts();
        let checked = head.extensions.remove::<Caller>();
        let path = head.uri.path();
        if WELL_KNOWN.contains(&path) {
            return match head.method {
                Method::GET => json(StatusCode::OK, &card::with_addresses(&self.0.card, &self.url(&head))),
                _ => problem(StatusCode::METHOD_NOT_ALLOWED, "the card is read with GET"),
            };
        }
        let caller = match checked {
            Some(caller) => Ok(caller),
            None => self.0.auth.authenticate(&head.headers, self.0.assistant.clock()).await,
        };
        let this = match caller {
            Ok(caller) => Self(self.0.clone(), caller),
            Err(error) => return error.response("this agent"),
        };
        match path.strip_prefix("/a2a").unwrap_or(path).trim_end_matches('/') {
            "" if head.method == Method::POST => rpc::answer(&this, &body, &head.headers).await,
            "" => problem(StatusCode::METHOD_NOT_ALLOWED, "this agent is asked with POST"),
            rest => rest::answer(&this, &head, rest, &body).await,
        }
    }
}

/// An error of the protocol.
#[derive(Clone, Debug, PartialEq)]
struct A2aRequestError {
    code: i64,
    message: String,
    /// For a message that was not accepted: how HTTP says so, and when to send it again.
    later: Option<(StatusCode, Duration)>,
}

impl A2aRequestError {
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
fn unknown_version(headers: &HeaderMap) -> Option<A2aRequestError> {
    let version = headers.get("a2a-version").and_then(|value| value.to_str().ok()).map(str::trim)?;
    let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
    match (version, major) {
        ("", _) | (_, Some(0 | 1)) => None,
        _ => Some(A2aRequestError::new(
            codes::VERSION_NOT_SUPPORTED,
            format!("version {version} is not spoken here; 1.0 and 0.3 are"),
        )),
    }
}

#[cfg(test)]
mod tests;
