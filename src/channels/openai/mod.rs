//! The assistant behind OpenAI's API: chat completions and the list of models, for OpenAI's SDKs, chat pages and voice stacks.
//!
//! The API keeps no state, and an assistant does: a request names its conversation (`conversation.rs`), and of its messages only what the
//! user has said since the last request is new (`request.rs`). Voice stacks send requests before their user has finished and end those
//! that were premature, so writes wait until a request counts as confirmed ([`WriteGate`]).
//! The protocol: <https://platform.openai.com/docs/api-reference/chat>.

mod chat;
mod conversation;
mod request;
mod running;
mod sink;

use std::{convert::Infallible, sync::Arc, time::Duration};

use async_trait::async_trait;
use axum::http::{self, HeaderValue, Method, Request, Response, StatusCode, header::RETRY_AFTER};
use bytes::Bytes;
use segue_engine::project::{ChannelSettings, OpenAiSettings, WhileBusy};
use serde_json::{Value as Json, json};

use self::running::RunningRequests;
use super::{
    Authenticator, Body, Caller, Capabilities, Channel, ChannelService, Inbox, Markup, Routes, TURN_ERROR, json,
    origin_policy::OriginPolicy,
    registry::{self, ChannelFactory, ChannelSource},
    retryable_status,
};
use crate::{clock::Clock, limits, runtime::ReceiveError};

const NAME: &str = "openai";

pub(super) const FACTORY: ChannelFactory = ChannelFactory {
    name: NAME,
    is_wanted: |_, _| false,
    open,
    place: "credentials.yml: `openai`",
    code: registry::CODE_CANNOT_OPEN,
    is_required: false,
};

fn open(source: &ChannelSource<'_>) -> Result<Arc<dyn Channel>, String> {
    let Some(entry) = source.entry else { return Ok(Arc::new(OpenAiChannel::new(&OpenAiSettings::default())?)) };
    entry.check_spelling()?;
    OriginPolicy::from_channel(entry)?;
    match &entry.settings {
        ChannelSettings::OpenAi(settings) => Ok(Arc::new(OpenAiChannel::new(settings)?)),
        _ => Err("its settings are not those of `openai`".to_owned()),
    }
}

/// The channel.
#[derive(Clone)]
struct OpenAiChannel {
    auth: Authenticator,
    /// Between two messages of a turn.
    separator: &'static str,
    hold_writes: Duration,
    conversation_from: Vec<String>,
    refuses_payloads: bool,
    running: RunningRequests,
}

impl OpenAiChannel {
    fn new(settings: &OpenAiSettings) -> Result<Self, String> {
        let hold_writes = Duration::from_millis(settings.hold_writes_ms);
        if hold_writes > limits::WRITE_HOLD {
            return Err(format!("`hold_writes_ms` must be at most {}", limits::WRITE_HOLD.as_millis()));
        }
        if let Some(pointer) = settings.conversation_from.iter().find(|pointer| !pointer.starts_with('/')) {
            return Err(format!(
                "`conversation_from`: `{pointer}` is not a JSON pointer; write it as \"/call/id\" (RFC 6901)"
            ));
        }
        Ok(Self {
            auth: Authenticator::from_settings(&settings.auth)?,
            separator: if settings.is_chat { "\n\n" } else { " " },
            hold_writes,
            conversation_from: settings.conversation_from.clone(),
            refuses_payloads: settings.refuses_payloads,
            running: RunningRequests::default(),
        })
    }

    async fn respond(&self, inbox: Inbox, request: Request<Bytes>) -> Response<Body> {
        let (mut head, body) = request.into_parts();
        let caller = match head.extensions.remove::<Caller>() {
            Some(caller) => Ok(caller),
            None => self.auth.authenticate(&head.headers, inbox.clock()).await,
        };
        let caller = match caller {
            Ok(caller) => caller,
            Err(error) => return authentication_error(&error),
        };
        let path = head.uri.path().strip_prefix("/v1").unwrap_or_default().to_owned();
        // Voice stacks can set the base URL of each call: with the conversation in it, nothing else is needed.
        let (conversation, path) = conversation::in_path(&path);
        match (&head.method, path) {
            (&Method::GET, "/models") => json(StatusCode::OK, &models(&inbox)),
            (&Method::GET, path) if path.starts_with("/models/") => {
                match path.strip_prefix("/models/").filter(|id| **id != *model_id(&inbox)) {
                    None => json(StatusCode::OK, &model(&inbox)),
                    Some(id) => no_model(id, &model_id(&inbox)).response(),
                }
            }
            (&Method::POST, "/chat/completions") => {
                let request = match request::parse(&body, &model_id(&inbox)) {
                    Ok(request) => request,
                    Err(error) => return error.response(),
                };
                chat::complete(self, inbox, &caller, (&head, conversation), request).await
            }
            (_, "/chat/completions" | "/models") => ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed")
                .because(format!("{} is not answered at this path", head.method))
                .response(),
            (_, path) => ApiError::new(StatusCode::NOT_FOUND, "unknown_url")
                .because(format!("there is no `/v1{path}`; this server has `/v1/chat/completions` and `/v1/models`"))
                .response(),
        }
    }
}

#[async_trait]
impl Channel for OpenAiChannel {
    fn name(&self) -> &str {
        NAME
    }
    fn routes(&self) -> Routes {
        Routes::Paths(vec!["/v1/{*rest}".to_owned()])
    }
    fn capabilities(&self) -> Capabilities {
        Capabilities { streaming: true, markup: Markup::Markdown, ..Capabilities::default() }
    }
    fn requires_authentication(&self) -> bool {
        self.auth.requires_authentication()
    }
    async fn check(&self, head: &mut http::request::Parts, clock: &Arc<dyn Clock>) -> Result<(), Response<Body>> {
        let caller = self.auth.authenticate(&head.headers, clock).await;
        head.extensions.insert(caller.map_err(|error| authentication_error(&error))?);
        Ok(())
    }
    fn service(&self, inbox: Inbox) -> ChannelService {
        let inbox = inbox.with_payloads(!self.refuses_payloads).while_busy(WhileBusy::Interrupt);
        let this = Arc::new(self.clone());
        ChannelService::new(tower::service_fn(move |request| {
            let (this, inbox) = (this.clone(), inbox.clone());
            async move { Ok::<_, Infallible>(this.respond(inbox, request).await) }
        }))
    }
}

/// The one model: the assistant.
fn model_id(inbox: &Inbox) -> Arc<str> {
    (*inbox.assistant().project().config.assistant_id).into()
}

fn model(inbox: &Inbox) -> Json {
    json!({"id": &*model_id(inbox), "object": "model", "created": 0, "owned_by": "segue"})
}

fn no_model(wanted: &str, model: &str) -> ApiError {
    let error = ApiError::new(StatusCode::NOT_FOUND, "model_not_found")
        .because(format!("there is no model `{wanted}`; the assistant is the model `{model}`"));
    ApiError { param: Some("model".to_owned()), ..error }
}

fn models(inbox: &Inbox) -> Json {
    json!({"object": "list", "data": [model(inbox)]})
}

/// An error in the form of OpenAI's API: `{"error": {"message", "type", "code", "param"}}`.
#[derive(Debug)]
struct ApiError {
    status: StatusCode,
    code: &'static str,
    message: String,
    /// The part of the request that is wrong.
    param: Option<String>,
    retry_after: Option<Duration>,
    /// The code that `segue explain` knows.
    turn_error: Option<&'static str>,
}

impl ApiError {
    fn new(status: StatusCode, code: &'static str) -> Self {
        Self { status, code, message: String::new(), param: None, retry_after: None, turn_error: None }
    }
    /// A request that is wrong at `param`.
    fn invalid(param: impl Into<String>, message: impl Into<String>) -> Self {
        let param = Some(param.into());
        Self { param, ..Self::new(StatusCode::BAD_REQUEST, "invalid_value").because(message) }
    }
    fn because(self, message: impl Into<String>) -> Self {
        Self { message: message.into(), ..self }
    }
    /// A message that got no turn.
    fn of_receive(error: &ReceiveError) -> Self {
        let retryable = retryable_status(error);
        if retryable.is_none() {
            tracing::error!(channel = NAME, code = error.code(), "{error}");
        }
        let (status, retry_after) =
            retryable.map_or((StatusCode::INTERNAL_SERVER_ERROR, None), |(status, after)| (status, Some(after)));
        let code = match status {
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_exceeded",
            StatusCode::SERVICE_UNAVAILABLE => "overloaded",
            _ => "internal_error",
        };
        let this = Self::new(status, code).because(error.advice());
        Self { retry_after, turn_error: Some(error.code()), ..this }
    }

    fn body(&self) -> Json {
        let kind = match self.status {
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            status if status.is_server_error() => "server_error",
            _ => "invalid_request_error",
        };
        json!({"error": {"message": self.message, "type": kind, "code": self.code, "param": self.param}})
    }

    fn response(&self) -> Response<Body> {
        let mut response = json(self.status, &self.body());
        let headers = response.headers_mut();
        if let Some(after) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(after.as_secs().max(1)));
        }
        if let Some(code) = self.turn_error {
            headers.insert(TURN_ERROR, HeaderValue::from_static(code));
        }
        response
    }
}

/// The response to a caller that is not accepted: status and challenge as everywhere, the body as OpenAI's.
fn authentication_error(error: &super::AuthError) -> Response<Body> {
    let (head, _) = error.response("this assistant").into_parts();
    let error = ApiError::new(head.status, "invalid_api_key")
        .because("send the token of this assistant as the API key: `Authorization: Bearer …`");
    let mut response = error.response();
    response.headers_mut().extend(head.headers.into_iter().filter_map(|(name, value)| {
        let name = name.filter(|name| *name != http::header::CONTENT_TYPE)?;
        Some((name, value))
    }));
    response
}

#[cfg(test)]
mod tests;
