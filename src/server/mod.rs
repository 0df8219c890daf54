//! One HTTP server for all channels.
//!
//! Entry: [`router`] builds the routes, for this server or for another one that embeds them; [`serve`] runs the server until shutdown
//! and waits for running turns. No route reads a body beyond its limit, nor the body of a request whose `Origin` is not allowed or
//! whose caller is not authenticated. [`check_exposure`] prevents a channel without authentication from listening on a public address.

mod buffered_body;
mod connections;
mod health;
mod pages;
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

use self::buffered_body::BufferedChannelService;
pub use self::connections::ConnectionLimits;
use crate::{
    channels::{self, Channel, ChannelOptions, Inbox, RestChannel, Routes, ServerAddress},
    limits,
    runtime::Assistant,
};

/// Where a server listens, and whether it serves the HTTP API besides its channels.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ServerSettings {
    /// The address; loopback by default.
    pub host: IpAddr,
    /// The port, by default 5005; 0 chooses a free one.
    pub port: u16,
    /// Whether the HTTP API over conversations is enabled.
    pub api: bool,
    /// Whether the API requires a token.
    pub api_has_token: bool,
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self { host: Ipv4Addr::LOCALHOST.into(), port: 5005, api: false, api_has_token: false }
    }
}

impl ServerSettings {
    /// Port 5005 on loopback, without the HTTP API.
    pub fn new() -> Self {
        Self::default()
    }
    /// Sets the address.
    #[must_use]
    pub fn host(mut self, host: impl Into<IpAddr>) -> Self {
        self.host = host.into();
        self
    }
    /// Sets the port; 0 chooses a free one.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }
    /// Enables the HTTP API over conversations. `has_token`: whether it requires a token.
    #[must_use]
    pub fn api(mut self, has_token: bool) -> Self {
        (self.api, self.api_has_token) = (true, has_token);
        self
    }
}

/// A server that cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The HTTP API has no token, and the address is not a loopback address.
    #[error(
        "the HTTP API would be open to anyone who reaches {0}: set a token with `--auth-token`, or remove `--host`"
    )]
    UnauthenticatedApi(IpAddr),
    /// A channel has no authentication, and the address is not a loopback address.
    #[error(
        "the channel `{channel}` would be open to anyone who reaches {host}: {advice}, or remove `--host`, or add `--insecure`"
    )]
    UnauthenticatedChannel {
        /// The name of the channel.
        channel: String,
        /// The address.
        host: IpAddr,
        /// How to set up its authentication.
        advice: String,
    },
    /// The address is in use, or not one of this machine.
    #[error("cannot listen on {address}: {problem}; choose another port with `--port`")]
    Address {
        /// The address.
        address: SocketAddr,
        /// The error of the operating system.
        problem: std::io::Error,
    },
}

impl ServeError {
    /// The error code, as `segue explain` takes it.
    pub fn code(&self) -> &'static str {
        match self {
            Self::UnauthenticatedApi(_) => "V0101",
            Self::Address { .. } => "V0102",
            Self::UnauthenticatedChannel { .. } => "V0105",
        }
    }
}

/// Checks that every channel with routes authenticates its callers, if `host` is not a loopback address.
///
/// # Errors
/// [`ServeError::UnauthenticatedChannel`] for the first that does not.
pub fn check_exposure(channels: &[Arc<dyn Channel>], host: IpAddr) -> Result<(), ServeError> {
    let is_unauthenticated =
        |channel: &&Arc<dyn Channel>| channel.routes() != Routes::None && !channel.requires_authentication();
    match channels.iter().find(is_unauthenticated) {
        Some(channel) if !host.is_loopback() => {
            let (name, advice) = (channel.name().to_owned(), channel.authentication_advice());
            Err(ServeError::UnauthenticatedChannel { channel: name, host, advice })
        }
        _ => Ok(()),
    }
}

/// All routes: `/livez`, `/readyz`, `/health` and those of the channels. Every request to a channel passes the same checks: `Host` and
/// `Origin`, the channel's own check, the limits of bodies. If two channels have the same route, the first one serves it.
pub fn router(assistant: &Assistant, channels: &[Arc<dyn Channel>]) -> Router {
    build_router(assistant, channels, None)
}

/// [`router`] with a chat page at `/`, which talks to the assistant over the REST channel; without that channel there is no page. The page
/// itself needs no token: where the channel requires one, it asks for it.
pub fn router_with_page(assistant: &Assistant, channels: &[Arc<dyn Channel>]) -> Router {
    let rest = channels.iter().find(|channel| channel.name() == RestChannel::NAME);
    build_router(assistant, channels, rest.map(|rest| pages::routes(assistant, &**rest)))
}

fn build_router(assistant: &Assistant, channels: &[Arc<dyn Channel>], page: Option<Router>) -> Router {
    let mut router = health::routes(assistant).merge(page.unwrap_or_default());
    let mut taken = HashSet::new();
    for channel in channels {
        let service = BufferedChannelService::new(channel, assistant);
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
    // A panic in a handler fails its request only. Turns run in tasks of their own; their panics do not arrive here.
    let project = assistant.project();
    let router = requests::with_cors(router, &project, channels);
    requests::with_checks(router, &project, channels).layer(CatchPanicLayer::new())
}

/// The routes of an assistant for a server of your own: those of [`router`], with every channel that the project configures. A channel
/// that cannot be opened is left out and logged. A web page that calls the routes must be listed under `allowed_origins` of the
/// channel, unless server and page are both on this machine. Channels that do more than answer requests need [`run_channels`] too.
pub fn axum_router(assistant: &Assistant) -> Router {
    let (channels, errors) = channels::open(&assistant.project(), &ChannelOptions::new());
    for error in errors {
        tracing::error!(code = error.code, "{error}");
    }
    router(assistant, &channels)
}

/// Runs what channels do besides answering requests, for example ending sessions when `stop` is cancelled. Returns when every channel
/// has returned. A channel that fails is logged, and the others continue.
pub async fn run_channels(assistant: &Assistant, channels: &[Arc<dyn Channel>], stop: &CancellationToken) {
    let mut running = JoinSet::new();
    for channel in channels {
        let (channel, stop) = (channel.clone(), stop.clone());
        let inbox = Inbox::new(assistant.clone(), channel.name());
        running.spawn(async move {
            let result = channel.run(inbox, stop).await;
            result.map_err(|error| format!("the channel `{}` stopped: {error}", channel.name()))
        });
    }
    while let Some(result) = running.join_next().await {
        let problem = match result {
            Ok(Ok(())) => continue,
            Ok(Err(problem)) => problem,
            Err(error) => format!("a channel stopped: {error}"),
        };
        tracing::error!(code = "C0102", "{problem}");
    }
}

/// Binds the address.
///
/// # Errors
/// [`ServeError::UnauthenticatedApi`] and [`ServeError::Address`].
pub async fn listen(settings: &ServerSettings) -> Result<TcpListener, ServeError> {
    if settings.api && !settings.api_has_token && !settings.host.is_loopback() {
        return Err(ServeError::UnauthenticatedApi(settings.host));
    }
    let address = SocketAddr::new(settings.host, settings.port);
    TcpListener::bind(address).await.map_err(|problem| ServeError::Address { address, problem })
}

/// Serves until `stop` completes. Then it accepts no more connections, waits for running requests and turns, at most
/// [`limits::DRAIN_TIMEOUT`] each, and closes the assistant. On every route a request whose `Origin` or `Host` is not allowed is refused
/// before its body is read. The limits of connections are those of `server` in the project's endpoints.yml.
///
/// # Errors
/// The listener has no local address. An error of one connection ends that connection only; when the process has no file descriptor
/// left, the server retries.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    assistant: &Assistant,
    stop: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    // This checks the routes that belong to no channel. Routes of channels are checked twice: `router` has their settings.
    let address = ServerAddress(listener.local_addr()?);
    let router = requests::with_checks(router, &assistant.project(), &[]).layer(Extension(address));
    let clock = assistant.clock().clone();
    let (stop_sender, mut stop_receiver) = tokio::sync::watch::channel(false);
    let closing = assistant.clone();
    let stop = async move {
        stop.await;
        closing.begin_shutdown();
        let _ = stop_sender.send(true);
    };
    let project = assistant.project();
    let def = &project.endpoints.server;
    let default_limits = ConnectionLimits::default();
    let limits = ConnectionLimits {
        total: def.connections.unwrap_or(default_limits.total),
        per_address: def.connections_per_address.unwrap_or(default_limits.per_address),
    };
    let serving = connections::serve(listener, router, limits, clock.clone(), stop);
    let drain_timeout = async {
        // On an error the sender is gone, because the server has ended: then `serving` is ready and is selected.
        if stop_receiver.wait_for(|stopped| *stopped).await.is_err() {
            std::future::pending::<()>().await;
        }
        clock.sleep(clock.deadline(limits::DRAIN_TIMEOUT)).await;
    };
    tokio::select! {
        () = serving => {}
        () = drain_timeout => {}
    }
    assistant.close(limits::DRAIN_TIMEOUT).await;
    Ok(())
}

/// The signals that ask a process to shut down: Ctrl-C, on Unix SIGTERM, and on Linux SIGHUP, which a closed terminal sends, unless the
/// process was started so that it ignores it (`nohup`). They are received from the creation of this value on, so that
/// none is lost between two calls of [`next`](Self::next).
#[derive(Debug)]
pub struct ShutdownSignals {
    #[cfg(unix)]
    signals: Vec<tokio::signal::unix::Signal>,
}

impl ShutdownSignals {
    /// Starts to receive the signals; they no longer end the process. Must be called in a Tokio runtime.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            let hangup = (!ignores_hangup()).then(SignalKind::hangup);
            let kinds = [SignalKind::interrupt(), SignalKind::terminate()].into_iter().chain(hangup);
            Self { signals: kinds.filter_map(|kind| signal(kind).ok()).collect() }
        }
        #[cfg(not(unix))]
        Self {}
    }

    /// Waits for the next signal; for ever if the system offers none.
    pub async fn next(&mut self) {
        #[cfg(unix)]
        {
            use std::task::Poll;
            std::future::poll_fn(|cx| {
                match self.signals.iter_mut().any(|signal| signal.poll_recv(cx) == Poll::Ready(Some(()))) {
                    true => Poll::Ready(()),
                    false => Poll::Pending,
                }
            })
            .await;
        }
        #[cfg(not(unix))]
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Whether this process was started with SIGHUP ignored. Only Linux says so: elsewhere the signal is left as it is.
#[cfg(unix)]
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    // The signal with the number 1 is the lowest bit.
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_none_or(|mask| mask & 1 != 0)
}

/// Completes when the process is asked to stop, by one of [`ShutdownSignals`].
pub async fn shutdown_signal() {
    ShutdownSignals::new().next().await;
}

#[cfg(test)]
mod tests;
