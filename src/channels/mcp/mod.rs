//! The assistant as an MCP server, for hosts whose own model hands a conversation to it.
//!
//! Entry: [`McpServerChannel`]; it serves one host on standard input and output, or many over HTTP. Never: a conversation that began
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

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use rmcp::{ServiceExt, transport::io::stdio_pipes};
use segue_engine::project::{ChannelDef, ChannelSettings, McpPromptDef, McpResourceDef, Project};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use self::{offers::Offers, session::Session, watch::Watchers};
use super::{
    Authenticator, Body, Capabilities, Channel, ChannelService, Inbox, Markup, Routes, RunError,
    registry::{self, ChannelFactory, ChannelSource},
};
use crate::{clock::Clock, context::CallContext, limits, runtime::Assistant};

/// The name of this channel in conversations, and of its entry in `credentials.yml`.
pub const NAME: &str = "mcp";
/// Where it is served over HTTP.
pub const PATH: &str = "/mcp";

pub(super) const FACTORY: ChannelFactory = ChannelFactory {
    name: NAME,
    is_wanted: |project, options| options.mcp || project.credentials.contains_key(NAME),
    open,
    place: "credentials.yml: `mcp`",
    code: registry::CODE_CANNOT_OPEN,
    is_required: true,
};

fn open(source: &ChannelSource<'_>) -> Result<Arc<dyn Channel>, String> {
    let settings = source.entry.map(|entry| McpServerSettings::new(entry, source.project)).transpose()?;
    let mut settings = settings.unwrap_or_default();
    settings.auth = settings.auth.with_default_token(source.options.token.clone());
    Ok(Arc::new(McpServerChannel::new(settings)))
}

/// How the assistant is offered.
#[derive(Clone, Debug, Default)]
pub struct McpServerSettings {
    /// Whether questions for a slot are put to the person behind a host that can do so, in place of ending the call.
    pub elicits: bool,
    /// Prompts of the author.
    prompts: Vec<McpPromptDef>,
    /// Resources of the author.
    resources: Vec<McpResourceDef>,
    /// HTTP: what callers must show.
    pub auth: Authenticator,
    /// Whether messages such as `/SetSlots(…)` count as words.
    pub refuses_payloads: bool,
}

impl McpServerSettings {
    /// Those of `credentials.yml`.
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
            auth: Authenticator::from_settings(&settings.auth)?,
            refuses_payloads: settings.refuses_payloads,
        })
    }
}

/// The assistant as an MCP server.
pub struct McpServerChannel {
    settings: McpServerSettings,
    calls: Arc<Semaphore>,
    closed: CancellationToken,
    is_stdio: bool,
}

/// What all sessions share.
struct McpServerState {
    assistant: Assistant,
    offers: Offers,
    settings: McpServerSettings,
    watchers: Watchers,
    /// Calls of all sessions that are under way.
    calls: Arc<Semaphore>,
    /// Ends every session.
    closed: CancellationToken,
}

/// Calls that may be under way at once; as many as turns.
const CALLS: u32 = limits::TURNS_IN_FLIGHT as u32;

impl McpServerChannel {
    /// Over HTTP, for many hosts.
    pub fn new(settings: McpServerSettings) -> Self {
        let calls = Arc::new(Semaphore::new(limits::TURNS_IN_FLIGHT));
        Self { settings, calls, closed: CancellationToken::new(), is_stdio: false }
    }

    /// On standard input and output in place of HTTP, for the one host that started the process. It runs until the host hangs up; turns
    /// under way then go on until the assistant is closed.
    #[must_use]
    pub fn over_stdio(mut self) -> Self {
        self.is_stdio = true;
        self
    }

    fn state(&self, assistant: &Assistant) -> Arc<McpServerState> {
        Arc::new(McpServerState {
            assistant: assistant.clone(),
            offers: Offers::of(assistant.project()),
            settings: self.settings.clone(),
            watchers: Watchers::default(),
            calls: self.calls.clone(),
            closed: self.closed.clone(),
        })
    }

    /// Lets calls under way end within [`limits::DRAIN_TIMEOUT`], then ends every session: a server would wait for every host that listens.
    async fn close(&self, clock: &Arc<dyn Clock>) {
        let cx = CallContext::new(clock.clone(), limits::DRAIN_TIMEOUT);
        let _ = cx.wait(self.calls.acquire_many(CALLS)).await;
        self.closed.cancel();
    }
}

#[async_trait]
impl Channel for McpServerChannel {
    fn name(&self) -> &str {
        NAME
    }
    fn routes(&self) -> Routes {
        if self.is_stdio { Routes::None } else { Routes::Paths(vec![PATH.to_owned()]) }
    }
    fn capabilities(&self) -> Capabilities {
        Capabilities { streaming: false, buttons: true, images: false, markup: Markup::Plain }
    }
    fn requires_authentication(&self) -> bool {
        self.settings.auth.requires_authentication()
    }
    fn authentication_advice(&self) -> String {
        "set a token with `--auth-token`, or `mcp: {auth_token: ${…}}` in credentials.yml".to_owned()
    }
    async fn check(
        &self,
        head: &mut axum::http::request::Parts,
        clock: &Arc<dyn Clock>,
    ) -> Result<(), axum::http::Response<Body>> {
        let caller = http::caller(&self.settings.auth, &head.headers, clock).await?;
        head.extensions.insert(caller);
        Ok(())
    }
    fn service(&self, inbox: Inbox) -> ChannelService {
        http::service(&self.state(inbox.assistant()))
    }
    async fn run(&self, inbox: Inbox, stop: CancellationToken) -> Result<(), RunError> {
        if self.is_stdio {
            return Ok(self.state(inbox.assistant()).serve(stdio_pipes(), stop).await?);
        }
        stop.cancelled().await;
        self.close(inbox.clock()).await;
        Ok(())
    }
}

impl McpServerState {
    /// Serves one host on pipes until it hangs up, or `stop` is cancelled.
    async fn serve<R, W>(self: &Arc<Self>, (read, write): (R, W), stop: CancellationToken) -> Result<(), String>
    where
        R: tokio::io::AsyncRead + Send + Unpin + 'static,
        W: tokio::io::AsyncWrite + Send + Unpin + 'static,
    {
        let begun = Box::pin(Session::new(self.clone()).serve(lines::transport(read, write)));
        let running = tokio::select! {
            begun = begun => begun.map_err(|error| format!("the MCP handshake failed: {error}"))?,
            () = stop.cancelled() => return Ok(()),
        };
        tokio::select! {
            ended = running.waiting() => ended.map(drop).map_err(|error| format!("the MCP server ended badly: {error}")),
            () = stop.cancelled() => Ok(()),
        }
    }
}

impl fmt::Debug for McpServerChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpServerChannel").field("settings", &self.settings).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
