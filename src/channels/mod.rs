//! Wires to users, both directions.
//!
//! Entry: [`Channel`], one wire; [`open`] opens those that a project configures, by the registry of our own channels. A channel
//! authenticates its callers, parses within limits, hands messages to its [`Inbox`] and writes replies in the format of the wire.
//! No channel knows another one, none knows the routing of the server: it answers `http` requests whose bodies were read.

pub mod a2a;
mod auth;
mod exchange;
mod inbox;
#[cfg(feature = "mcp")]
pub mod mcp;
pub mod pages;
mod queue;
mod registry;
mod rest;
mod splitting;
mod stream;
pub mod wire;

use std::{convert::Infallible, net::SocketAddr, sync::Arc};

use async_trait::async_trait;
pub use axum::body::Body;
use axum::http;
use bytes::Bytes;
use segue_engine::ids::ConversationId;
use tokio_util::sync::CancellationToken;

pub use self::{
    auth::{AuthError, Authenticator, BearerToken, Caller},
    exchange::request_response,
    inbox::{Arrival, Inbox},
    registry::{ChannelError, ChannelOptions, open},
    rest::{RestChannel, TURN_ERROR},
    splitting::parts,
};
use crate::{clock::Clock, conversation::ReplySink, runtime::ReceiveError};

/// What the names of conversations begin with that a channel makes itself. A caller who may choose a name may choose none of these:
/// they belong to conversations of other channels, and of other callers.
const RESERVED_PREFIXES: [&str; 4] = ["a2a:", "a2a@", "mcp-", "rest@"];

/// Answers the requests of a channel. A response of axum is an answer; a body that streams is dropped when the client goes away.
pub type ChannelService = tower::util::BoxCloneSyncService<http::Request<Bytes>, http::Response<Body>, Infallible>;

/// Why a channel stopped running.
pub type RunError = Box<dyn std::error::Error + Send + Sync>;

/// One wire to users. A channel has a name, and [`service`](Self::service) or [`run`](Self::run); everything else has a default.
#[async_trait]
pub trait Channel: Send + Sync {
    /// Its name: the key in `credentials.yml`, the part of the path after `/webhooks/`, and what flows see as the channel.
    fn name(&self) -> &str;

    /// The paths that it answers.
    fn routes(&self) -> Routes {
        Routes::Webhooks
    }

    /// What its wire can show.
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    /// Whether callers must prove something: a token, or the signature of a wire. Off loopback a channel that asks for nothing is
    /// served only where the operator insists on it.
    fn is_guarded(&self) -> bool {
        false
    }

    /// How an operator makes callers prove something; a part of the message that refuses to serve an open channel.
    fn guard_advice(&self) -> String {
        format!("set `auth_token: ${{…}}` or `jwt: …` under `{}:` in credentials.yml", self.name())
    }

    /// Looks at the head of a request before its body is read. A channel that authenticates callers does so here: a caller who fails
    /// cannot make the server read. What was found out may go along in the extensions of the head. Unless a channel says otherwise
    /// every body is read.
    ///
    /// # Errors
    /// The answer that refuses the request.
    async fn check(
        &self,
        _head: &mut http::request::Parts,
        _clock: &Arc<dyn Clock>,
    ) -> Result<(), http::Response<Body>> {
        Ok(())
    }

    /// Answers requests on its [`routes`](Self::routes). The inbox is the only way to the assistant.
    fn service(&self, _inbox: Inbox) -> ChannelService {
        ChannelService::new(tower::service_fn(|_| async {
            Ok(problem(http::StatusCode::NOT_FOUND, "this channel takes no requests"))
        }))
    }

    /// Does what needs no request: reads a terminal, holds a connection that the channel opened, or ends sessions when the server
    /// stops. Returns soon after `stop` is cancelled, or when there is nothing left to do.
    ///
    /// # Errors
    /// Why it cannot go on; the other channels do.
    async fn run(&self, _inbox: Inbox, _stop: CancellationToken) -> Result<(), RunError> {
        Ok(())
    }

    /// Delivers to a user who did not just write; `None` where the wire reaches nobody without a request.
    fn sink(&self, _to: &ConversationId) -> Option<Box<dyn ReplySink>> {
        None
    }
}

/// The paths that a channel answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Routes {
    /// Everything below `/webhooks/<name>`. The path of a request begins after that, so the main one is `/webhook`.
    Webhooks,
    /// These, as axum writes them: `/a2a`, or `/a2a/{*rest}` for everything below. The path of a request is the whole one.
    Paths(Vec<String>),
    /// None: the channel only [runs](Channel::run).
    None,
}

/// What a wire can show. A new field is `false` or plain where a channel does not name it: end with `..Capabilities::default()`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Text appears while it is written.
    pub streaming: bool,
    /// Buttons can be pressed.
    pub buttons: bool,
    /// Images are shown, not their addresses.
    pub images: bool,
    /// What a text may contain besides words.
    pub markup: Markup,
}

/// Markup that a wire shows as such.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Markup {
    /// None: its signs would be read as they are.
    #[default]
    Plain,
    /// Markdown.
    Markdown,
}

/// Where the server listens; in the extensions of every request that it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerAddress(pub SocketAddr);

/// An answer in JSON.
pub(crate) fn json(status: http::StatusCode, body: &impl serde::Serialize) -> http::Response<Body> {
    let mut answer = http::Response::new(Body::from(wire::line(body)));
    *answer.status_mut() = status;
    answer.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    answer
}

/// The answer to a request that is refused: `{"error": …}`.
pub(crate) fn problem(status: http::StatusCode, text: &str) -> http::Response<Body> {
    json(status, &serde_json::json!({"error": text}))
}

/// How HTTP tells that a message was not accepted, and when to send it again: 429 where the caller alone is at a limit, else 503.
/// `None` where it may have been accepted.
fn refused(error: &ReceiveError) -> Option<(http::StatusCode, std::time::Duration)> {
    let after = error.retry_after()?;
    let is_callers = match error {
        ReceiveError::Busy(_) => true,
        ReceiveError::Overloaded(overload) => overload.is_caller_limit(),
        ReceiveError::ShuttingDown | ReceiveError::Store(_) | ReceiveError::TurnFailed => false,
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

    /// A channel with these settings, as the loader reads it; the error is what it finds.
    pub(crate) fn channel(name: &str, settings: &Json) -> Result<ChannelDef, String> {
        channel_beside("", name, settings)
    }

    /// The same in a project with this domain.
    pub(crate) fn channel_beside(domain: &str, name: &str, settings: &Json) -> Result<ChannelDef, String> {
        let mut settings = settings.clone();
        let mut sources = Sources::default();
        // Secrets must come from the environment.
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

    /// The names of the channels that a project with these credentials opens, and what cannot be opened.
    fn names(credentials: &Json, options: &ChannelOptions) -> (Vec<String>, Vec<String>) {
        let text = credentials.to_string();
        let files: &[_] = if credentials.is_null() { &[] } else { &[("credentials.yml", text.as_str())] };
        let project = crate::project::from_texts(files.iter().copied()).project.unwrap();
        let (channels, errors) = open(&project, options);
        (channels.iter().map(|c| c.name().to_owned()).collect(), errors.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_project_without_credentials_is_reached_over_rest() {
        let none = ChannelOptions::new();
        assert_eq!(names(&Json::Null, &none).0, ["rest"]);
        assert!(names(&json!({"cmdline": {}}), &none).0.is_empty());
        let only = none.clone().only(Some("rest".to_owned()));
        assert_eq!(names(&json!({"cmdline": {}}), &only), (vec!["rest".to_owned()], vec![]));
    }

    #[cfg(feature = "mcp")]
    #[test]
    fn the_mcp_server_is_opened_by_its_entry_or_by_the_operator() {
        let none = ChannelOptions::new();
        assert_eq!(names(&json!({"mcp": {}}), &none).0, ["mcp"]);
        assert_eq!(names(&Json::Null, &none.clone().mcp(true)).0, ["rest", "mcp"]);
        assert_eq!(names(&json!({"rest": {}, "mcp": {}}), &none.only(Some("rest".to_owned()))).0, ["rest", "mcp"]);
    }

    #[test]
    fn what_cannot_be_opened_does_not_stop_the_rest() {
        let credentials = json!({"telegram": {}, "rest": {"allowed_origins": ["shop.example"]}});
        let (opened, errors) = names(&credentials, &ChannelOptions::new());
        assert!(opened.is_empty(), "{opened:?}");
        assert_eq!(errors.len(), 2);
        assert!(errors[0].contains("`telegram`") && errors[0].contains("Channel"), "{errors:?}");
        assert!(errors[1].contains("allowed_origins"), "{errors:?}");
    }
}
