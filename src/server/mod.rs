//! The porch: one HTTP server for all channels.
//!
//! Entry: [`router`] puts the routes together, for this server or for another one that embeds it; [`serve`] runs it until it
//! is told to stop, and lets running turns end. Never: no route reads a body without a limit, of a web page that no channel allows,
//! or of a caller who lacks the proof that its channel asks for; no channel is served off loopback without such a proof, unless
//! the operator insists ([`guarded`]).

mod bridge;
mod connections;
mod health;
mod requests;

use std::{
    future::Future,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
};

use axum::Router;
use tokio::net::TcpListener;
use tower_http::catch_panic::CatchPanicLayer;

use self::bridge::{Bridge, Check, no_check};
pub use self::connections::ConnectionLimits;
#[cfg(feature = "mcp")]
use crate::channels::mcp::{self, Desk};
use crate::{
    channels::{self, Channel, Inbox, a2a::A2aAgent},
    limits,
    runtime::Assistant,
};

/// Where a server listens and what it offers beside its channels.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ServerSettings {
    /// The address; loopback unless the operator says otherwise.
    pub host: IpAddr,
    /// The port; 0 takes a free one.
    pub port: u16,
    /// Whether the HTTP API over conversations is wanted.
    pub api: bool,
    /// Whether callers of the API must show a token.
    pub api_has_token: bool,
    /// Whether the assistant is offered to other agents without a token.
    pub open_agent: bool,
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self { host: Ipv4Addr::LOCALHOST.into(), port: 5005, api: false, api_has_token: false, open_agent: false }
    }
}

impl ServerSettings {
    /// Port 5005 of this machine, for channels alone.
    pub fn new() -> Self {
        Self::default()
    }
    /// Another address.
    #[must_use]
    pub fn host(mut self, host: impl Into<IpAddr>) -> Self {
        self.host = host.into();
        self
    }
    /// Another port; 0 takes a free one.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }
    /// The HTTP API over conversations too, and whether its callers must show a token.
    #[must_use]
    pub fn api(mut self, has_token: bool) -> Self {
        (self.api, self.api_has_token) = (true, has_token);
        self
    }
    /// Whether the assistant is offered to other agents without a token.
    #[must_use]
    pub fn open_agent(mut self, open: bool) -> Self {
        self.open_agent = open;
        self
    }
}

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The API would be open to the network.
    #[error(
        "the HTTP API would be open to everybody who reaches {0}: set a token with `--auth-token` or leave `--host` away"
    )]
    Unguarded(IpAddr),
    /// The assistant would be an MCP server for everybody.
    #[error(
        "the MCP server would be open to everybody who reaches {0}: set a token with `--auth-token`, or `mcp: {{auth_token: …}}` in credentials.yml, or leave `--host` away, or say `--insecure`"
    )]
    OpenDesk(IpAddr),
    /// The assistant would be an agent for everybody.
    #[error(
        "`a2a_server` would let everybody who reaches {0} talk to the assistant: set `auth: {{token: ${{…}}}}` or `auth: {{jwt: …}}` there, or say `--insecure`"
    )]
    Open(IpAddr),
    /// A channel would be open to everybody.
    #[error(
        "the channel `{channel}` would be open to everybody who reaches {host}: set `auth_token: ${{…}}` or `jwt: …` under `{channel}:` in credentials.yml, or leave `--host` away, or say `--insecure`"
    )]
    OpenChannel {
        /// The channel.
        channel: String,
        /// Where it would listen.
        host: IpAddr,
    },
    /// The address cannot be had.
    #[error("cannot listen on {address}: {problem}; choose another port with `--port`")]
    Address {
        /// What was asked for.
        address: SocketAddr,
        /// Why not.
        problem: std::io::Error,
    },
}

impl ServeError {
    /// The code that `segue explain` knows.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unguarded(_) => "V0101",
            Self::Address { .. } => "V0102",
            Self::OpenDesk(_) => "V0104",
            Self::Open(_) => "V0103",
            Self::OpenChannel { .. } => "V0105",
        }
    }
}

/// Looks whether channels ask their callers for something before the network reaches them.
///
/// # Errors
/// [`ServeError::OpenChannel`]: one does not, and `host` is no address of this machine alone.
pub fn guarded(channels: &[Arc<dyn Channel>], host: IpAddr) -> Result<(), ServeError> {
    match channels.iter().find(|channel| !host.is_loopback() && !channel.is_guarded()) {
        Some(open) => Err(ServeError::OpenChannel { channel: open.name().to_owned(), host }),
        None => Ok(()),
    }
}

/// All routes: `/livez`, `/readyz` and `/health`, and each channel below `/webhooks/<name>`.
pub fn router(assistant: &Assistant, channels: &[Arc<dyn Channel>]) -> Router {
    let mut router = health::routes(assistant);
    for channel in channels {
        let name = channel.name();
        let service = channel.service(Inbox::new(assistant.clone(), name));
        let (channel, clock) = (channel.clone(), assistant.clock().clone());
        let check: Check = Arc::new(move |mut head| {
            let (channel, clock) = (channel.clone(), clock.clone());
            Box::pin(async move { channel.check(&mut head, &clock).await.map(|()| head) })
        });
        router = router.nest_service(&format!("/webhooks/{name}"), Bridge::new(service, check, assistant.clock()));
    }
    // A panic in a route is one failed request; turns are tasks of their own and do not reach this.
    router.layer(CatchPanicLayer::new())
}

/// The routes of an assistant for a server of your own: as [`router`], with the channels of its `credentials.yml`. What cannot be
/// opened is left out and named in the log.
pub fn axum_router(assistant: &Assistant) -> Router {
    let (channels, errors) = channels::open(&assistant.project().credentials);
    for error in errors {
        tracing::error!(code = channels::ChannelError::CODE, "{error}");
    }
    router(assistant, &channels)
}

/// Adds the assistant as an MCP server, for a server that listens on `host`.
///
/// # Errors
/// [`ServeError::OpenDesk`]: the network reaches it, and no token is asked for.
#[cfg(feature = "mcp")]
pub fn with_desk(router: Router, desk: &Desk, assistant: &Assistant, host: IpAddr) -> Result<Router, ServeError> {
    if !host.is_loopback() && !desk.is_guarded() && !desk.is_insecure() {
        return Err(ServeError::OpenDesk(host));
    }
    let guard = desk.clone();
    let check: Check = Arc::new(move |mut head| {
        let guard = guard.clone();
        Box::pin(async move { guard.check(&mut head).await.map(|()| head) })
    });
    let service = Bridge::new(desk.service(), check, assistant.clock());
    Ok(router.route_service(mcp::PATH, service).layer(CatchPanicLayer::new()))
}

/// Adds the routes of an assistant that is offered to other agents.
pub fn offered(router: Router, agent: &A2aAgent, assistant: &Assistant) -> Router {
    let guard = agent.clone();
    let check: Check = Arc::new(move |mut head| {
        let guard = guard.clone();
        Box::pin(async move { guard.check(&mut head).await.map(|()| head) })
    });
    let service = Bridge::new(agent.service(), check, assistant.clock());
    let add = |router: Router, path: &&str| router.route_service(path, service.clone());
    channels::a2a::PATHS.iter().fold(router, add).layer(CatchPanicLayer::new())
}

/// Adds the way by which remote agents report on tasks that outlast a turn, where the project lets them.
pub fn reports(router: Router, assistant: &Assistant) -> Router {
    let reporters = assistant.project().agents.values().filter_map(|agent| agent.remote.as_ref());
    if !reporters.into_iter().any(|remote| remote.push_notification_url.is_some()) {
        return router;
    }
    let service = Bridge::new(channels::a2a::reports::service(assistant), no_check(), assistant.clock());
    router
        .route_service(&format!("{}/{{*rest}}", crate::a2a::REPORT_PATH_PREFIX), service)
        .layer(CatchPanicLayer::new())
}

/// Takes the address.
///
/// # Errors
/// [`ServeError`]: the API would be open to the network, or the address cannot be had.
pub async fn listen(settings: &ServerSettings) -> Result<TcpListener, ServeError> {
    if settings.api && !settings.api_has_token && !settings.host.is_loopback() {
        return Err(ServeError::Unguarded(settings.host));
    }
    if settings.open_agent && !settings.host.is_loopback() {
        return Err(ServeError::Open(settings.host));
    }
    let address = SocketAddr::new(settings.host, settings.port);
    TcpListener::bind(address).await.map_err(|problem| ServeError::Address { address, problem })
}

/// Serves until `stop` completes; then takes no more connections, lets requests and turns under way end within
/// [`limits::DRAIN`], and closes the assistant. Requests of web pages that no channel allows, and those under names that are not
/// ours, are refused on every route, before their bodies are read. Connections are limited as `server` of the project's
/// endpoints.yml says.
///
/// # Errors
/// None today: what fails with one connection concerns that one alone, and a process without files takes the next connection when it
/// has some again.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    assistant: &Assistant,
    stop: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let router = requests::checked(router, assistant.project(), listener.local_addr()?.ip());
    let clock = assistant.clock().clone();
    let (stopped, mut told) = tokio::sync::watch::channel(false);
    let closing = assistant.clone();
    let stop = async move {
        stop.await;
        closing.begin_closing();
        let _ = stopped.send(true);
    };
    let def = &assistant.project().endpoints.server;
    let usual = ConnectionLimits::default();
    let limits = ConnectionLimits {
        total: def.connections.unwrap_or(usual.total),
        per_address: def.connections_per_address.unwrap_or(usual.per_address),
    };
    let serving = connections::serve(listener, router, limits, clock.clone(), stop);
    let drained = async {
        // An error says that the server itself has ended: then `serving` is ready and wins.
        if told.wait_for(|stopped| *stopped).await.is_err() {
            std::future::pending::<()>().await;
        }
        clock.sleep(clock.deadline(limits::DRAIN)).await;
    };
    tokio::select! {
        () = serving => {}
        () = drained => {}
    }
    assistant.close(limits::DRAIN).await;
    Ok(())
}

/// Completes when the process is asked to end: Ctrl-C, and SIGTERM where there is one.
pub async fn end_asked() {
    let interrupt = async {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    #[cfg(unix)]
    let terminate = async {
        match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
            Ok(mut signal) => {
                signal.recv().await;
            }
            Err(_) => std::future::pending().await,
        }
    };
    #[cfg(not(unix))]
    let terminate = std::future::pending::<()>();
    tokio::select! {
        () = interrupt => {}
        () = terminate => {}
    }
}

#[cfg(test)]
mod tests;
