//! Channels: the connections between users and the assistant. Each one receives messages and delivers replies over one protocol.
//!
//! Entry: the trait [`Channel`]; [`open`] opens the built-in channels that a project configures. A channel authenticates its
//! callers, parses requests within limits, passes messages to its [`Inbox`] and encodes replies for its protocol. A channel knows
//! neither another channel nor the routing of the server: it answers `http` requests whose bodies have been read.

pub mod a2a;
mod auth;
mod callback;
pub mod encode;
mod inbox;
#[cfg(feature = "mcp")]
pub mod mcp;
mod openai;
pub mod origin_policy;
mod registry;
mod request_response;
mod rest;
mod socketio;
mod stream;
mod stream_sink;
mod webhook;
mod websocket;

use std::{convert::Infallible, net::SocketAddr, sync::Arc};

use async_trait::async_trait;
pub use axum::body::Body;
use axum::http;
use bytes::Bytes;
use segue_engine::ids::ConversationId;
use tokio_util::sync::CancellationToken;

pub use self::{
    auth::{AuthError, Authenticator, BearerToken, Caller},
    encode::paragraphs,
    inbox::Inbox,
    registry::{ChannelError, ChannelOptions, open},
    request_response::request_response,
    rest::{RestChannel, TURN_ERROR},
    webhook::webhook,
};
use crate::{clock::Clock, conversation::ReplySink, runtime::ReceiveError};

/// Prefixes of the conversation ids that the built-in channels generate. A caller who can choose an id must not choose one with such
/// a prefix: it could be the conversation of another channel or of another caller.
const RESERVED_PREFIXES: [&str; 8] = ["a2a:", "a2a@", "mcp-", "openai:", "openai@", "rest@", "sio:", "sio@"];

/// The tower service that answers the requests of a channel. Any axum response can be returned; the server drops a streaming body
/// when the client disconnects.
pub type ChannelService = tower::util::BoxCloneSyncService<http::Request<Bytes>, http::Response<Body>, Infallible>;

/// The error with which [`Channel::run`] ended.
pub type RunError = Box<dyn std::error::Error + Send + Sync>;

/// A channel. An implementation needs a name and either [`service`](Self::service) or [`run`](Self::run); everything else has a
/// default.
#[async_trait]
pub trait Channel: Send + Sync {
    /// The name of the channel: the key in `credentials.yml`, the part of the path after `/webhooks/`, and the channel name that flows
    /// see.
    fn name(&self) -> &str;

    /// The paths that the channel answers.
    fn routes(&self) -> Routes {
        Routes::Webhooks
    }

    /// What the channel can display.
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    /// Whether callers must authenticate, with a token or a signature of the protocol. On an address other than loopback, the server
    /// serves a channel without authentication only if the operator explicitly allows it.
    fn requires_authentication(&self) -> bool {
        false
    }

    /// How an operator turns authentication on; part of the error message with which the server refuses to serve an open channel.
    fn authentication_advice(&self) -> String {
        format!("set `auth_token: ${{…}}` or `jwt: …` under `{}:` in credentials.yml", self.name())
    }

    /// Checks the head of a request before its body is read. A channel with authentication authenticates the caller here, so that an
    /// unauthenticated caller cannot make the server read a body. Results can be passed to the service in the extensions of the
    /// head. The default accepts every request.
    ///
    /// # Errors
    /// The response that rejects the request.
    async fn check(
        &self,
        _head: &mut http::request::Parts,
        _clock: &Arc<dyn Clock>,
    ) -> Result<(), http::Response<Body>> {
        Ok(())
    }

    /// The service that answers requests on the channel's [`routes`](Self::routes). It reaches the assistant only through the inbox.
    fn service(&self, _inbox: Inbox) -> ChannelService {
        ChannelService::new(tower::service_fn(|_| async {
            Ok(problem(http::StatusCode::NOT_FOUND, "this channel accepts no requests"))
        }))
    }

    /// Runs the part of the channel that no request starts: reading a terminal, holding an outgoing connection, or ending sessions
    /// when the server stops. Returns soon after `stop` is cancelled, or when there is nothing left to do.
    ///
    /// # Errors
    /// The reason why this channel cannot continue; the other channels do.
    async fn run(&self, _inbox: Inbox, _stop: CancellationToken) -> Result<(), RunError> {
        Ok(())
    }

    /// A sink for replies to a user who has not just sent a message; `None` if the channel cannot reach a user without a request.
    fn sink(&self, _to: &ConversationId) -> Option<Box<dyn ReplySink>> {
        None
    }
}

/// The paths that a channel answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Routes {
    /// All paths below `/webhooks/<name>`. The service sees the path without this prefix, so the usual one is `/webhook`.
    Webhooks,
    /// These paths in axum's syntax: `/a2a`, or `/a2a/{*rest}` for everything below. The service sees the full path.
    Paths(Vec<String>),
    /// No path: the channel only [runs](Channel::run).
    None,
}

/// What a channel can display; by default plain text, in complete messages. [`encode::fit`] turns the rest of a reply into text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// It displays text while it is being generated.
    pub streaming: bool,
    /// How many buttons of a message it displays; 0: none.
    pub buttons: usize,
    /// The characters that a message may have, if they are limited.
    pub text: Option<usize>,
    /// It displays images, not only their URLs.
    pub images: bool,
    /// The markup that it renders.
    pub markup: Markup,
}

impl Capabilities {
    /// Sets whether it displays text while it is being generated.
    #[must_use]
    pub fn streaming(mut self, streaming: bool) -> Self {
        self.streaming = streaming;
        self
    }
    /// Sets how many buttons of a message it displays.
    #[must_use]
    pub fn buttons(mut self, most: usize) -> Self {
        self.buttons = most;
        self
    }
    /// Sets how many characters a message may have.
    #[must_use]
    pub fn text(mut self, most: usize) -> Self {
        self.text = Some(most);
        self
    }
    /// Sets whether it displays images.
    #[must_use]
    pub fn images(mut self, images: bool) -> Self {
        self.images = images;
        self
    }
    /// Sets the markup that it renders.
    #[must_use]
    pub fn markup(mut self, markup: Markup) -> Self {
        self.markup = markup;
        self
    }
}

/// The markup that a channel renders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Markup {
    /// None: a user would see the markup characters.
    #[default]
    Plain,
    /// Markdown.
    Markdown,
}

/// The address on which the server listens; an extension of every request that the server passes to a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerAddress(pub SocketAddr);

/// A JSON response.
pub(crate) fn json(status: http::StatusCode, body: &impl serde::Serialize) -> http::Response<Body> {
    let mut response = http::Response::new(Body::from(encode::json_text(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    response
}

/// An error response with the body `{"error": …}`.
pub(crate) fn problem(status: http::StatusCode, text: &str) -> http::Response<Body> {
    json(status, &serde_json::json!({"error": text}))
}

/// The HTTP status for a message that was not accepted, and when the caller can send it again: 429 if only this caller is at a limit,
/// otherwise 503. `None` if the message may have been accepted.
fn retryable_status(error: &ReceiveError) -> Option<(http::StatusCode, std::time::Duration)> {
    let after = error.retry_after()?;
    let is_callers = match error {
        ReceiveError::Busy(_) => true,
        ReceiveError::Overloaded(overload) => overload.is_caller_limit(),
        ReceiveError::ShuttingDown
        | ReceiveError::Store(_)
        | ReceiveError::Unfinished(_)
        | ReceiveError::TurnFailed => false,
    };
    let status = if is_callers { http::StatusCode::TOO_MANY_REQUESTS } else { http::StatusCode::SERVICE_UNAVAILABLE };
    Some((status, after))
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

    use segue_engine::project::{ChannelDef, Project, SourceFile, Sources};
    use serde_json::{Value as Json, json};

    use super::*;

    mod callers;

    /// Loads a channel with these settings; the error contains the loader's findings.
    pub(crate) fn channel(name: &str, settings: &Json) -> Result<ChannelDef, String> {
        channel_with_domain("", name, settings)
    }

    /// The same as [`channel`], in a project with this domain.
    pub(crate) fn channel_with_domain(domain: &str, name: &str, settings: &Json) -> Result<ChannelDef, String> {
        let mut settings = settings.clone();
        let mut sources = Sources::default();
        // The loader accepts secrets only from the environment.
        if let Some(secret) =
            settings.pointer_mut("/jwt/secret").map(|secret| std::mem::replace(secret, json!("${SECRET}")))
        {
            sources.environment.insert("SECRET".to_owned(), secret.as_str().unwrap().to_owned());
        }
        let text = json!({name: settings}).to_string().into();
        sources.credentials = Some(SourceFile { path: "credentials.yml".into(), text });
        sources.domain = vec![SourceFile { path: "domain.yml".into(), text: domain.into() }];
        let loaded = Project::load(&sources);
        let found: Vec<String> = loaded.findings.iter().map(|one| format!("{} {}", one.message, one.help)).collect();
        loaded.project.map(|mut project| project.credentials.swap_remove(name).unwrap()).ok_or(found.join("; "))
    }

    /// Opens the channels of a project with these credentials: their names, and the errors.
    fn open_channels(credentials: &Json, options: &ChannelOptions) -> (Vec<String>, Vec<String>) {
        let text = credentials.to_string();
        let files: &[_] = if credentials.is_null() { &[] } else { &[("credentials.yml", text.as_str())] };
        let project = crate::project::from_texts(files.iter().copied()).project.unwrap();
        let (channels, errors) = open(&project, options);
        (channels.iter().map(|c| c.name().to_owned()).collect(), errors.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn rest_channel_is_the_default_without_credentials() {
        let none = ChannelOptions::new();
        assert_eq!(open_channels(&Json::Null, &none).0, ["rest"]);
        assert!(open_channels(&json!({"cmdline": {}}), &none).0.is_empty());
        let only = none.clone().only(Some("rest".to_owned()));
        assert_eq!(open_channels(&json!({"cmdline": {}}), &only), (vec!["rest".to_owned()], vec![]));
    }

    #[cfg(feature = "mcp")]
    #[test]
    fn mcp_server_is_opened_by_its_credentials_entry_or_by_an_option() {
        let none = ChannelOptions::new();
        assert_eq!(open_channels(&json!({"mcp": {}}), &none).0, ["mcp"]);
        assert_eq!(open_channels(&Json::Null, &none.clone().mcp(true)).0, ["rest", "mcp"]);
        assert_eq!(
            open_channels(&json!({"rest": {}, "mcp": {}}), &none.only(Some("rest".to_owned()))).0,
            ["rest", "mcp"]
        );
    }

    #[test]
    fn channel_that_cannot_be_opened_is_an_error_and_the_others_are_still_tried() {
        let credentials = json!({"telegram": {}, "rest": {"allowed_origins": ["shop.example"]}});
        let (opened, errors) = open_channels(&credentials, &ChannelOptions::new());
        assert!(opened.is_empty(), "{opened:?}");
        assert_eq!(errors.len(), 2);
        assert!(errors[0].contains("`telegram`") && errors[0].contains("Channel"), "{errors:?}");
        assert!(errors[1].contains("allowed_origins"), "{errors:?}");
    }
}
