//! Wires to users, both directions.
//!
//! Entry: [`Channel`], one wire; [`open`] makes those that `credentials.yml` lists. A channel checks the proof of its wire,
//! parses within limits, hands the message to its [`Inbox`] and writes the pieces of the answer in the words of the wire. No
//! channel knows another one, none knows the routing of the server: it answers `http` requests whose bodies were read.

pub mod a2a;
mod door;
mod exchange;
mod inbox;
#[cfg(feature = "mcp")]
pub mod mcp;
pub mod pages;
mod queue;
mod rest;
mod splitting;
mod stream;
pub mod wire;

use std::{convert::Infallible, fmt, sync::Arc};

use axum::http;
use bytes::Bytes;
use futures::{future::BoxFuture, stream::BoxStream};
use indexmap::IndexMap;
use segue_engine::{
    ids::ConversationId,
    project::{ChannelDef, ChannelSettings},
};

pub use self::{
    door::{Bearer, Caller, Door, Refused},
    exchange::request_response,
    inbox::{Arrival, Inbox},
    rest::{Rest, TURN_ERROR},
    splitting::parts,
};
use crate::{clock::Clock, conversation::ReplySink, runtime::ReceiveError};

/// What the names of conversations begin with that a channel makes itself. Whoever may choose a name may choose none of these:
/// behind them are conversations of other channels, and of other callers.
const MADE_NAMES: [&str; 4] = ["a2a:", "a2a@", "mcp-", "rest@"];

/// Answers the requests below `/webhooks/<name>`; their paths begin after that, so the main one is `/webhook`.
pub type Service = tower::util::BoxCloneSyncService<http::Request<Bytes>, http::Response<Body>, Infallible>;

/// The body of an answer.
pub enum Body {
    /// All of it.
    Whole(Bytes),
    /// Pieces, each of which leaves at once. *Cancellation*: it is dropped when the client goes away.
    Stream(BoxStream<'static, Bytes>),
}

impl<T: Into<Bytes>> From<T> for Body {
    fn from(bytes: T) -> Self {
        Self::Whole(bytes.into())
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(bytes) => write!(f, "Whole({} bytes)", bytes.len()),
            Self::Stream(_) => f.write_str("Stream(…)"),
        }
    }
}

/// One wire to users.
pub trait Channel: Send + Sync {
    /// Its name: the key in `credentials.yml` and the part of the path after `/webhooks/`.
    fn name(&self) -> &str;
    /// Looks at the head of a request before its body is read. A channel that asks callers for a proof does so here: whoever has none
    /// then cannot make the server read. The error is the answer that refuses the request; what was found out may go along in the
    /// extensions of the head. Unless a channel says otherwise every body is read.
    fn check<'a>(
        &'a self,
        _head: &'a mut http::request::Parts,
        _clock: &'a Arc<dyn Clock>,
    ) -> BoxFuture<'a, Result<(), http::Response<Body>>> {
        Box::pin(std::future::ready(Ok(())))
    }
    /// Its way in. The inbox is the only way to the assistant.
    fn service(&self, inbox: Inbox) -> Service;
    /// Whether callers must prove something: a token, or the signature of a wire. Off loopback a channel that asks for nothing is
    /// served only where the operator insists on it.
    fn is_guarded(&self) -> bool {
        false
    }
    /// Its way out to somebody who did not just write; `None` where the wire cannot reach anybody without a request.
    fn sink(&self, _to: &ConversationId) -> Option<Box<dyn ReplySink>> {
        None
    }
}

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
        ReceiveError::Overloaded(overload) => overload.is_callers(),
        ReceiveError::Closing | ReceiveError::Store(_) | ReceiveError::Broken => false,
    };
    let status = if is_callers { http::StatusCode::TOO_MANY_REQUESTS } else { http::StatusCode::SERVICE_UNAVAILABLE };
    Some((status, after))
}

/// Why a channel of `credentials.yml` cannot be opened; the others start nevertheless.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("credentials.yml: `{channel}`: {problem} [C0101]")]
pub struct ChannelError {
    /// The channel as written.
    pub channel: String,
    /// What is the matter, and what to do.
    pub problem: String,
}

impl ChannelError {
    /// The code that `segue explain` knows.
    pub const CODE: &str = "C0101";
}

/// The channels that a project lists; `rest` when it lists none at all. What cannot be opened comes second.
pub fn open(credentials: &IndexMap<String, ChannelDef>) -> (Vec<Arc<dyn Channel>>, Vec<ChannelError>) {
    if credentials.is_empty() {
        return (vec![Arc::new(Rest::default())], Vec::new());
    }
    let (mut channels, mut errors): (Vec<Arc<dyn Channel>>, _) = (Vec::new(), Vec::new());
    for (name, def) in credentials {
        let opened = match (&def.settings, name.as_str()) {
            (ChannelSettings::Rest(settings), _) => {
                def.check_spelling().and_then(|()| pages::Pages::of(def)).and_then(|_| Rest::new(settings))
            }
            // These exist for the terminal and for a server of others, or are served beside the channels; there is nothing to open.
            (ChannelSettings::Mcp(_), _) | (_, "cmdline" | "rasa") => continue,
            _ => {
                Err("this version does not speak this channel; use `rest`, or implement the `Channel` trait".to_owned())
            }
        };
        match opened {
            Ok(rest) => channels.push(Arc::new(rest)),
            Err(problem) => errors.push(ChannelError { channel: name.clone(), problem }),
        }
    }
    (channels, errors)
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

    use segue_engine::project::{Project, SourceFile, Sources};
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

    fn names(credentials: &[(&str, Json)]) -> (Vec<String>, Vec<String>) {
        let credentials =
            credentials.iter().map(|(name, settings)| ((*name).to_owned(), channel(name, settings).unwrap())).collect();
        let (channels, errors) = open(&credentials);
        (channels.iter().map(|c| c.name().to_owned()).collect(), errors.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_project_without_credentials_is_reached_over_rest() {
        assert_eq!(names(&[]).0, ["rest"]);
        assert!(names(&[("cmdline", json!({}))]).0.is_empty());
    }

    #[test]
    fn what_cannot_be_opened_does_not_stop_the_rest() {
        let (opened, errors) =
            names(&[("telegram", json!({})), ("rest", json!({"allowed_origins": ["shop.example"]}))]);
        assert!(opened.is_empty(), "{opened:?}");
        assert_eq!(errors.len(), 2);
        assert!(errors[0].contains("`telegram`") && errors[0].contains("Channel"), "{errors:?}");
        assert!(errors[1].contains("allowed_origins"), "{errors:?}");
    }
}
