//! The assistant as an MCP server, for hosts whose own model hands a talk to it.
//!
//! Entry: [`Desk`]; it serves one host on standard input and output, or many as an HTTP [`Service`]. Never: a talk that began
//! on another channel is reached from here, nor the transcript of one that another session began.

mod answer;
mod authored;
mod exchange;
mod form;
mod handler;
mod http;
mod lines;
mod offers;
mod prompts;
mod question;
mod session;
mod sink;
mod state;
mod transcript;
mod watch;
mod words;

use std::{fmt, future::Future, sync::Arc};

use rmcp::{ServiceExt, transport::io::stdio_pipes};
use segue_engine::project::{ChannelDef, ChannelSettings, McpPromptDef, McpResourceDef, Project};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use self::{offers::Offers, session::Session, watch::Watchers};
use super::{Door, Service};
use crate::{context::CallContext, limits, runtime::Assistant};

/// The name of this channel in conversations, and of its entry in `credentials.yml`.
pub const NAME: &str = "mcp";
/// Where it is served over HTTP.
pub const PATH: &str = "/mcp";

/// How the assistant is offered.
#[derive(Clone, Debug, Default)]
pub struct Offer {
    /// Whether questions for a slot are put to the person behind a host that can do so, in place of ending the call.
    pub elicits: bool,
    /// Prompts of the author.
    prompts: Vec<McpPromptDef>,
    /// Resources of the author.
    resources: Vec<McpResourceDef>,
    /// HTTP: what callers must show.
    pub door: Door,
    /// HTTP: web pages that may call, as `https://host:port` or `https://host:*`.
    pub origins: Vec<String>,
    /// HTTP: the names under which this server is called; empty where a token is asked for means any.
    pub hosts: Vec<String>,
    /// HTTP: whether only this machine reaches the server; then pages of this machine may call too.
    pub local: bool,
    /// HTTP: whether the operator wants it open to everybody who reaches it.
    pub insecure: bool,
    /// Whether messages such as `/SetSlots(…)` count as words.
    pub refuses_payloads: bool,
}

impl Offer {
    /// With the settings of `credentials.yml`.
    ///
    /// # Errors
    /// What is wrong with a setting, and the fix.
    pub fn new(channel: &ChannelDef, project: &Project) -> Result<Self, String> {
        let ChannelSettings::Mcp(settings) = &channel.settings else { return Ok(Self::default()) };
        channel.check_spelling()?;
        authored::check(project, &settings.prompts, &settings.resources)?;
        Ok(Self {
            elicits: settings.elicitation,
            prompts: settings.prompts.clone(),
            resources: settings.resources.clone(),
            door: Door::of(&settings.auth)?,
            origins: channel.origins.clone(),
            hosts: channel.hosts.clone(),
            refuses_payloads: settings.refuses_payloads,
            ..Self::default()
        })
    }
}

/// The assistant at a desk where hosts come with their wishes. Cheap to clone; clones are the same desk.
#[derive(Clone)]
pub struct Desk(Arc<Shared>);

/// What all sessions share.
struct Shared {
    assistant: Assistant,
    offers: Offers,
    offer: Offer,
    watchers: Watchers,
    /// Calls of all sessions; whoever closes the desk waits until all are back.
    calls: Semaphore,
    /// Ends every session.
    closed: CancellationToken,
}

/// Calls that may be under way at once; as many as turns.
const CALLS: u32 = limits::TURNS_IN_FLIGHT as u32;

impl Desk {
    /// Makes the tools of the assistant's project.
    pub fn new(assistant: &Assistant, offer: Offer) -> Self {
        let offers = Offers::of(assistant.project());
        let calls = Semaphore::new(limits::TURNS_IN_FLIGHT);
        Self(Arc::new(Shared {
            assistant: assistant.clone(),
            offers,
            offer,
            watchers: Watchers::default(),
            calls,
            closed: CancellationToken::new(),
        }))
    }

    /// Whether callers over HTTP must show a token.
    pub fn is_guarded(&self) -> bool {
        self.0.offer.door.is_guarded()
    }

    /// Whether the operator wants it open to everybody who reaches it.
    pub fn is_insecure(&self) -> bool {
        self.0.offer.insecure
    }

    /// The names of the tools, in order.
    pub fn tools(&self) -> impl Iterator<Item = &str> {
        self.0.offers.tools.iter().map(|tool| &*tool.name)
    }

    /// Serves one host over standard input and output until it hangs up, or `stop` completes. *Cancellation*: turns under
    /// way go on until the assistant is closed.
    ///
    /// # Errors
    /// Why the host and we could not begin, or what broke.
    pub async fn serve_stdio(&self, stop: impl Future<Output = ()>) -> Result<(), String> {
        self.serve(stdio_pipes(), stop).await
    }

    /// The same over other pipes.
    ///
    /// # Errors
    /// As [`serve_stdio`](Self::serve_stdio).
    pub async fn serve<R, W>(&self, (read, write): (R, W), stop: impl Future<Output = ()>) -> Result<(), String>
    where
        R: tokio::io::AsyncRead + Send + Unpin + 'static,
        W: tokio::io::AsyncWrite + Send + Unpin + 'static,
    {
        let mut stop = std::pin::pin!(stop);
        let begun = Box::pin(Session::new(self.0.clone()).serve(lines::transport(read, write)));
        let running = tokio::select! {
            begun = begun => begun.map_err(|error| format!("the MCP handshake failed: {error}"))?,
            () = &mut stop => return Ok(()),
        };
        tokio::select! {
            ended = running.waiting() => ended.map(drop).map_err(|error| format!("the MCP server ended badly: {error}")),
            () = stop => Ok(()),
        }
    }

    /// Looks at the head of a request before its body is read: whoever has no proof cannot make the server read.
    ///
    /// # Errors
    /// The answer that refuses the request.
    pub async fn check(&self, head: &mut axum::http::request::Parts) -> Result<(), axum::http::Response<super::Body>> {
        let caller = http::caller(&self.0, &head.headers).await?;
        head.extensions.insert(caller);
        Ok(())
    }

    /// The same for many hosts over streamable HTTP, below one path.
    pub fn service(&self) -> Service {
        http::service(&self.0)
    }

    /// Lets calls under way end within [`limits::DRAIN_TIMEOUT`], then ends every session.
    pub async fn close(&self) {
        let cx = CallContext::new(self.0.assistant.clock().clone(), limits::DRAIN_TIMEOUT);
        let _ = cx.wait(self.0.calls.acquire_many(CALLS)).await;
        self.0.closed.cancel();
    }
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk").field("offer", &self.0.offer).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
