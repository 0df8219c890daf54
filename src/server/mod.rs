//! One HTTP server for all channels.
//!
//! Entry: [`router`] puts the routes together, for this server or for another one that embeds it; [`serve`] runs it until it
//! is told to stop, and lets running turns end. Never: no route reads a body without a limit, of a web page that no channel allows,
//! or of a caller who lacks the proof that its channel asks for; no channel is served off loopback without such a proof, unless
//! the operator insists ([`guarded`]).

mod buffered_body;
mod connections;
mod health;
mod requests;

use std::{
    collections::HashSet,
    future::Future,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
};

use axum::{Extension, Router};
use tokio::{net::TcpListener, task::JoinSet};
use tokio_util::sync::CancellationToken;
use tower_http::catch_panic::CatchPanicLayer;

use self::buffered_body::BufferedBody;
pub use self::connections::ConnectionLimits;
use crate::{
    channels::{self, Channel, ChannelOptions, Inbox, Routes, ServerAddress},
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
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self { host: Ipv4Addr::LOCALHOST.into(), port: 5005, api: false, api_has_token: false }
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
}

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The API would be open to the network.
    #[error(
        "the HTTP API would be open to everybody who reaches {0}: set a token with `--auth-token` or leave `--host` away"
    )]
    Unguarded(IpAddr),
    /// A channel would be open to everybody.
    #[error(
        "the channel `{channel}` would be open to everybody who reaches {host}: {advice}, or leave `--host` away, or say `--insecure`"
    )]
    OpenChannel {
        /// The channel.
        channel: String,
        /// Where it would listen.
        host: IpAddr,
        /// How callers are made to prove something.
        advice: String,
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
            Self::OpenChannel { .. } => "V0105",
        }
    }
}

/// Looks whether channels ask their callers for something before the network reaches them.
///
/// # Errors
/// [`ServeError::OpenChannel`]: one does not, and `host` is no address of this machine alone.
pub fn guarded(channels: &[Arc<dyn Channel>], host: IpAddr) -> Result<(), ServeError> {
    let is_open = |channel: &&Arc<dyn Channel>| channel.routes() != Routes::None && !channel.requires_authentication();
    match channels.iter().find(is_open) {
        Some(open) if !host.is_loopback() => {
            Err(ServeError::OpenChannel { channel: open.name().to_owned(), host, advice: open.authentication_advice() })
        }
        _ => Ok(()),
    }
}

/// All routes: `/livez`, `/readyz` and `/health`, and those of the channels. Every request passes the same stack: `Host` and `Origin`,
/// the channel's own check, the limits of bodies. Of channels with the same route the first has it.
pub fn router(assistant: &Assistant, channels: &[Arc<dyn Channel>]) -> Router {
    let mut router = health::routes(assistant);
    let mut taken = HashSet::new();
    for channel in channels {
        let service = BufferedBody::new(channel, assistant);
        let routes = match channel.routes() {
            Routes::Webhooks => vec![format!("/webhooks/{}", channel.name())],
            Routes::Paths(paths) => paths,
            Routes::None => Vec::new(),
        };
        for route in routes {
            if !taken.insert(route.clone()) {
                tracing::error!(channel = channel.name(), route, "another channel has this route already");
            } else if channel.routes() == Routes::Webhooks {
                router = router.nest_service(&route, service.clone());
            } else {
                router = router.route_service(&route, service.clone());
            }
        }
    }
    // A panic in a route is one failed request; turns are tasks of their own and do not reach this.
    requests::checked(router, assistant.project(), channels).layer(CatchPanicLayer::new())
}

/// The routes of an assistant for a server of your own: as [`router`], with everything that the project configures. What cannot be
/// opened is left out and named in the log. A web page that calls them must be listed under `allowed_origins` of the channel, unless
/// server and page are both of this machine. What channels do besides answering requests is not begun here: for that there is
/// [`run_channels`].
pub fn axum_router(assistant: &Assistant) -> Router {
    let (channels, errors) = channels::open(assistant.project(), &ChannelOptions::new());
    for error in errors {
        tracing::error!(code = error.code, "{error}");
    }
    router(assistant, &channels)
}

/// Does what channels do besides answering requests, such as ending their sessions when `stop` is cancelled; returns when all have
/// ended. A channel that fails is named in the log, and the others go on.
pub async fn run_channels(assistant: &Assistant, channels: &[Arc<dyn Channel>], stop: &CancellationToken) {
    let mut running = JoinSet::new();
    for channel in channels {
        let (channel, stop) = (channel.clone(), stop.clone());
        let inbox = Inbox::new(assistant.clone(), channel.name());
        running.spawn(async move {
            let ended = channel.run(inbox, stop).await;
            ended.map_err(|error| format!("the channel `{}` stopped: {error}", channel.name()))
        });
    }
    while let Some(ended) = running.join_next().await {
        let problem = match ended {
            Ok(Ok(())) => continue,
            Ok(Err(problem)) => problem,
            Err(error) => format!("a channel stopped: {error}"),
        };
        tracing::error!(code = "C0102", "{problem}");
    }
}

/// Takes the address.
///
/// # Errors
/// [`ServeError`]: the API would be open to the network, or the address cannot be had.
pub async fn listen(settings: &ServerSettings) -> Result<TcpListener, ServeError> {
    if settings.api && !settings.api_has_token && !settings.host.is_loopback() {
        return Err(ServeError::Unguarded(settings.host));
    }
    let address = SocketAddr::new(settings.host, settings.port);
    TcpListener::bind(address).await.map_err(|problem| ServeError::Address { address, problem })
}

/// Serves until `stop` completes; then takes no more connections, lets requests and turns under way end within
/// [`limits::DRAIN_TIMEOUT`], and closes the assistant. Requests of web pages that no channel allows, and those under names that are not
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
    // Routes that are none of a channel are checked here; those of `router` once more, by their own settings.
    let address = ServerAddress(listener.local_addr()?);
    let router = requests::checked(router, assistant.project(), &[]).layer(Extension(address));
    let clock = assistant.clock().clone();
    let (stopped, mut told) = tokio::sync::watch::channel(false);
    let closing = assistant.clone();
    let stop = async move {
        stop.await;
        closing.begin_shutdown();
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
        clock.sleep(clock.deadline(limits::DRAIN_TIMEOUT)).await;
    };
    tokio::select! {
        () = serving => {}
        () = drained => {}
    }
    assistant.close(limits::DRAIN_TIMEOUT).await;
    Ok(())
}

/// Completes when the process is asked to end: Ctrl-C, and SIGTERM where there is one.
pub async fn shutdown_signal() {
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
