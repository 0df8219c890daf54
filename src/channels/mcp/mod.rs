//! The assistant as an MCP server: hosts send it messages and start its flows by tool calls.
//!
//! Entry: [`McpServerChannel`]; it serves one host on standard input and output, or many over Streamable HTTP. A call cannot reach a
//! conversation of another channel, nor read the transcript of a conversation that another session started.

mod call_result;
mod custom_content;
mod form;
mod handler;
mod http;
mod notifications;
mod prompts;
mod question;
mod request_state;
mod served_tools;
mod session;
mod sink;
mod stdio;
mod texts;
mod tool_call;
mod transcript;

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use rmcp::{ServiceExt, transport::io::stdio_pipes};
use segue_engine::project::{ChannelDef, ChannelSettings, McpPromptDef, McpResourceDef, Project};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use self::{notifications::Subscriptions, served_tools::ServedTools, session::Session};
use super::{
    Authenticator, Body, Capabilities, Channel, ChannelService, Inbox, Markup, Routes, RunError,
    registry::{self, ChannelFactory, ChannelSource},
};
use crate::{clock::Clock, context::CallContext, limits, runtime::Assistant};

/// The name of this channel in conversations, and its key in `credentials.yml`.
pub const NAME: &str = "mcp";
/// Its path over HTTP.
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

/// The settings of the MCP server, by default without authentication, elicitation, prompts and resources.
#[derive(Clone, Debug, Default)]
pub struct McpServerSettings {
    /// Whether the user is asked for slots by elicitation, if the host supports it. Otherwise the call ends with the question.
    pub elicits: bool,
    /// Prompts of the project.
    prompts: Vec<McpPromptDef>,
    /// Resources of the project.
    resources: Vec<McpResourceDef>,
    /// HTTP: the authentication of callers.
    pub auth: Authenticator,
    /// Whether structured messages such as `/SetSlots(…)` are read as plain text.
    pub refuses_payloads: bool,
}

impl McpServerSettings {
    /// The settings of an entry in `credentials.yml`.
    ///
    /// # Errors
    /// Which setting is wrong, and the fix.
    pub fn new(channel: &ChannelDef, project: &Project) -> Result<Self, String> {
        let ChannelSettings::Mcp(settings) = &channel.settings else { return Ok(Self::default()) };
        channel.check_spelling()?;
        custom_content::check(project, &settings.prompts, &settings.resources)?;
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

/// The state that all sessions share.
struct McpServerState {
    assistant: Assistant,
    tools: ServedTools,
    settings: McpServerSettings,
    subscriptions: Subscriptions,
    /// Permits for the active calls of all sessions.
    calls: Arc<Semaphore>,
    /// Cancelled to end every session.
    closed: CancellationToken,
}

/// Active calls at once; as many as turns.
const MAX_CALLS: u32 = limits::TURNS_IN_FLIGHT as u32;

impl McpServerChannel {
    /// A server over HTTP, for many hosts.
    pub fn new(settings: McpServerSettings) -> Self {
        let calls = Arc::new(Semaphore::new(limits::TURNS_IN_FLIGHT));
        Self { settings, calls, closed: CancellationToken::new(), is_stdio: false }
    }

    /// The server on standard input and output in place of HTTP, for the one host that started the process. It runs until the host
    /// closes the connection; turns that are running then continue until the assistant is closed.
    #[must_use]
    pub fn over_stdio(mut self) -> Self {
        self.is_stdio = true;
        self
    }

    fn state(&self, assistant: &Assistant) -> Arc<McpServerState> {
        Arc::new(McpServerState {
            assistant: assistant.clone(),
            tools: ServedTools::new(&assistant.project()),
            settings: self.settings.clone(),
            subscriptions: Subscriptions::default(),
            calls: self.calls.clone(),
            closed: self.closed.clone(),
        })
    }

    /// Waits for active calls, at most [`limits::DRAIN_TIMEOUT`], then ends every session. Otherwise the server would wait for every host
    /// that has an event stream open.
    async fn close(&self, clock: &Arc<dyn Clock>) {
        let cx = CallContext::new(clock.clone(), limits::DRAIN_TIMEOUT);
        let _ = cx.wait(self.calls.acquire_many(MAX_CALLS)).await;
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
    /// Serves one host on two pipes until it closes them or `stop` is cancelled.
    ///
    /// # Errors
    /// The handshake failed, or a task of the server panicked.
    async fn serve<R, W>(self: &Arc<Self>, (read, write): (R, W), stop: CancellationToken) -> Result<(), String>
    where
        R: tokio::io::AsyncRead + Send + Unpin + 'static,
        W: tokio::io::AsyncWrite + Send + Unpin + 'static,
    {
        let handshake = Box::pin(Session::new(self.clone()).serve(stdio::transport(read, write)));
        let running = tokio::select! {
            result = handshake => result.map_err(|error| format!("the MCP handshake failed: {error}"))?,
            () = stop.cancelled() => return Ok(()),
        };
        tokio::select! {
            result = running.waiting() => result.map(drop).map_err(|error| format!("the MCP server failed: {error}")),
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
