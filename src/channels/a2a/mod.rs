//! The A2A server: other agents call the assistant over A2A 1.0 and 0.3, with the bindings JSON-RPC and HTTP+JSON.
//!
//! Every flow that a user can start is a skill. A context is a conversation. A task is what the assistant does about a message until it
//! is done or waits for input. Entry: [`A2aServerChannel`], which answers the paths of [`PATHS`].
//!
//! No task is stored: a task and its state are derived from the turns of its conversation, so that they are the same after a restart and
//! in every process that uses the store. Only the update streams of running tasks are in memory. A caller can only reach conversations
//! of this channel, never those of another channel.

mod card;
mod http_json;
mod jsonrpc;
mod operations;
mod push;
pub mod push_receiver;
mod send;
mod stream;
mod task_result;
mod task_run;
mod tasks;

use std::{convert::Infallible, sync::Arc, time::Duration};

use async_trait::async_trait;
use axum::http::{
    self, HeaderMap, Method, Request, Response, StatusCode,
    header::{HOST, RETRY_AFTER},
};
use bytes::Bytes;
use segue_engine::{ids::ConversationId, project::A2aServerDef};
use serde_json::Value as Json;

use self::{push::PushNotifier, task_run::TaskRuns};
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

/// The name of the channel, with which the ids of its conversations begin.
pub const NAME: &str = "a2a";

/// The paths that the server answers, in axum's syntax.
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
    let def = source.project.endpoints.a2a_server.as_ref().ok_or("missing; the channel `a2a` is configured there")?;
    Ok(Arc::new(A2aServerChannel::new(def, source.options.is_local)?))
}

/// The channel through which other agents call the assistant over A2A.
#[derive(Debug)]
pub struct A2aServerChannel {
    def: A2aServerDef,
    auth: Authenticator,
    is_local: bool,
}

impl A2aServerChannel {
    /// A channel with the settings of a project. `is_local`: the server listens on loopback only; then push notifications may also go to
    /// loopback addresses.
    ///
    /// # Errors
    /// The definition for JWTs is invalid; the message is for operators.
    pub fn new(def: &A2aServerDef, is_local: bool) -> Result<Self, String> {
        let auth = Authenticator::new(def.token.as_deref().and_then(BearerToken::new), def.jwt.as_ref())?;
        Ok(Self { def: def.clone(), auth, is_local })
    }

    fn server(&self, inbox: Inbox) -> A2aServer {
        let (def, assistant) = (&self.def, inbox.assistant().clone());
        let push = def.push.then(|| PushNotifier::new(self.is_local, assistant.outbound())).flatten();
        let state = ServerState {
            card: card::agent_card(&assistant.project(), def, push.is_some()),
            url: def.url.clone(),
            auth: self.auth.clone(),
            include_repair: def.include_repair,
            task_timeout: def.task_timeout,
            task_runs: TaskRuns::default(),
            push,
            inbox: inbox.with_payloads(def.payloads),
            assistant,
        };
        A2aServer(Arc::new(state), Caller::default())
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
    fn requires_authentication(&self) -> bool {
        self.auth.requires_authentication()
    }
    fn authentication_advice(&self) -> String {
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

/// The server of one assistant for one caller. Cheap to clone.
#[derive(Clone)]
struct A2aServer(Arc<ServerState>, Caller);

struct ServerState {
    assistant: Assistant,
    inbox: Inbox,
    /// The agent card without URLs, which may depend on the address on which the server listens.
    card: Json,
    /// The public URL, if the project configures it.
    url: Option<String>,
    auth: Authenticator,
    include_repair: bool,
    task_timeout: Option<Duration>,
    task_runs: TaskRuns,
    /// `None` if the project turns push notifications off, or if no HTTP client can be built.
    push: Option<PushNotifier>,
}

impl A2aServer {
    /// The prefix of the ids of this caller's conversations. Callers choose the ids of contexts, and two may choose the same one:
    /// authenticated callers with an id therefore have separate conversations.
    fn prefix(&self) -> String {
        match &self.1.id {
            Some(id) => format!("{NAME}@{id}:"),
            None => format!("{NAME}:"),
        }
    }

    /// The conversation of a context. With the prefix, it cannot be one of another channel or of another caller.
    fn conversation_id(&self, context: &str) -> ConversationId {
        ConversationId::from(format!("{}{context}", self.prefix()))
    }

    /// The key of a task in the maps of this process.
    fn task_key(&self, task: &str) -> String {
        format!("{}{task}", self.prefix())
    }

    /// The service for [`PATHS`]; it expects full paths.
    fn service(&self) -> ChannelService {
        let this = self.clone();
        ChannelService::new(tower::service_fn(move |request| {
            let this = this.clone();
            async move { Ok::<_, Infallible>(this.respond(request).await) }
        }))
    }

    /// The public URL: the configured one, otherwise the address on which the server listens, otherwise the `Host` of the request.
    fn public_url(&self, head: &http::request::Parts) -> String {
        let host = || head.headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or("localhost");
        match (&self.0.url, head.extensions.get::<ServerAddress>()) {
            (Some(url), _) => url.clone(),
            (None, Some(ServerAddress(address))) => format!("http://{address}"),
            (None, None) => format!("http://{}", host()),
        }
    }

    async fn respond(&self, request: Request<Bytes>) -> Response<Body> {
        let (mut head, body) = request.into_parts();
        let authenticated = head.extensions.remove::<Caller>();
        let path = head.uri.path();
        if WELL_KNOWN.contains(&path) {
            return match head.method {
                Method::GET => json(StatusCode::OK, &card::with_urls(&self.0.card, &self.public_url(&head))),
                _ => problem(StatusCode::METHOD_NOT_ALLOWED, "read the agent card with GET"),
            };
        }
        let caller = match authenticated {
            Some(caller) => Ok(caller),
            None => self.0.auth.authenticate(&head.headers, self.0.assistant.clock()).await,
        };
        let this = match caller {
            Ok(caller) => Self(self.0.clone(), caller),
            Err(error) => return error.response("this agent"),
        };
        match path.strip_prefix("/a2a").unwrap_or(path).trim_end_matches('/') {
            "" if head.method == Method::POST => jsonrpc::respond(&this, &body, &head.headers).await,
            "" => problem(StatusCode::METHOD_NOT_ALLOWED, "send requests to this path with POST"),
            rest => http_json::respond(&this, &head, rest, &body).await,
        }
    }
}

/// The error of a request, as the protocol defines it.
#[derive(Clone, Debug, PartialEq)]
struct A2aRequestError {
    /// The JSON-RPC error code, one of [`codes`].
    code: i64,
    message: String,
    /// For a message that was not accepted: the HTTP status, and when the caller can send it again.
    retryable: Option<(StatusCode, Duration)>,
}

impl A2aRequestError {
    fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), retryable: None }
    }
    /// The message was not accepted.
    fn not_accepted(error: &ReceiveError) -> Self {
        let message = format!("{error} [{}]", error.code());
        Self { retryable: super::retryable_status(error), ..Self::new(codes::INTERNAL_ERROR, message) }
    }
    /// Sets status and `Retry-After` of a response that contains this error, if the message was not accepted.
    fn set_retry_headers(&self, mut response: Response<Body>) -> Response<Body> {
        if let Some((status, after)) = self.retryable {
            *response.status_mut() = status;
            response.headers_mut().insert(RETRY_AFTER, http::HeaderValue::from(after.as_secs()));
        }
        response
    }
    fn internal(message: impl Into<String>) -> Self {
        Self::new(codes::INTERNAL_ERROR, message)
    }
    fn task_not_found(id: &str) -> Self {
        Self::new(codes::TASK_NOT_FOUND, format!("there is no task `{id}`"))
    }
    fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(codes::INVALID_PARAMS, message)
    }
}

/// Checks the protocol version that a caller declares in the header `A2A-Version`. Without the header, the JSON-RPC method or the path
/// determines the version.
///
/// # Errors
/// The version is neither 0.x nor 1.x.
fn check_version(headers: &HeaderMap) -> Result<(), A2aRequestError> {
    let version = headers.get("a2a-version").and_then(|value| value.to_str().ok()).map(str::trim).unwrap_or_default();
    let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
    if version.is_empty() || matches!(major, Some(0 | 1)) {
        return Ok(());
    }
    let message = format!("version {version} is not supported; 1.0 and 0.3 are");
    Err(A2aRequestError::new(codes::VERSION_NOT_SUPPORTED, message))
}

#[cfg(test)]
mod tests;
