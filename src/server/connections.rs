//! Connections: accepted within limits, closed when the client is slow or idle, and closed gracefully at shutdown.
//!
//! Each connection has a phase, which its stream and its requests change. One task regularly checks all connections and closes those
//! that are in a phase for too long. At the limit, a new connection replaces the one that has waited longest for a request. The server
//! continues to listen when the process has no file descriptor left, and when a connection fails.
//!
//! A connection that a channel has upgraded, to a WebSocket for example, counts until the channel closes it. It may be idle: whether its
//! client is still there is for the channel to find out, which knows the protocol.

use std::{
    collections::HashMap,
    convert::Infallible,
    io,
    net::{IpAddr, SocketAddr},
    pin::{Pin, pin},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    extract::Extension,
    http::{Request, StatusCode},
};
use bytes::Bytes;
use hyper::{
    body::{Frame, Incoming, SizeHint},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::Notify,
};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tower::ServiceExt;

use super::buffered_body::BodyBudget;
use crate::{clock::Clock, limits};

/// The limits of open connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Of the server.
    pub total: usize,
    /// From one address; 0 means no limit. Loopback addresses have no limit.
    pub per_address: usize,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self { total: limits::CONNECTIONS, per_address: limits::CONNECTIONS_PER_ADDRESS }
    }
}

/// All connections of a server.
struct Connections {
    clock: Arc<dyn Clock>,
    limits: ConnectionLimits,
    open: Mutex<OpenConnections>,
    /// Notified when a connection has ended.
    connection_ended: Notify,
    /// Cancelled at shutdown.
    shutdown: CancellationToken,
}

#[derive(Default)]
struct OpenConnections {
    last_id: u64,
    by_id: HashMap<u64, Arc<Connection>>,
    count_by_address: HashMap<IpAddr, usize>,
    /// When the shutdown began.
    shutdown_since: Option<Duration>,
    /// Connections that were refused since the last log entry about them.
    refused: u64,
    /// The time of the last log entry about connections that were not accepted.
    last_logged: Option<Duration>,
}

struct Connection {
    clock: Arc<dyn Clock>,
    address: IpAddr,
    state: Mutex<ConnectionState>,
    close: CancellationToken,
}

#[derive(Clone, Copy)]
struct ConnectionState {
    phase: Phase,
    /// The beginning of the phase.
    since: Duration,
    /// Since when the client does not read, so that nothing more can be written.
    stalled_since: Option<Duration>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Between requests.
    Idle,
    /// The head of a request has begun to arrive.
    Head,
    /// A request is handled, or its response is sent.
    Request,
    /// The connection belongs to a channel, for another protocol. It stays in this phase.
    Upgraded,
}

impl Connection {
    fn state(&self) -> MutexGuard<'_, ConnectionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn enter(&self, phase: Phase) {
        let since = self.clock.elapsed();
        let mut state = self.state();
        if state.phase != Phase::Upgraded {
            (state.phase, state.since) = (phase, since);
        }
    }
    fn on_read(&self) {
        if self.state().phase == Phase::Idle {
            self.enter(Phase::Head);
        }
    }
    fn on_write(&self, is_stalled: bool) {
        let mut state = self.state();
        state.stalled_since = is_stalled.then(|| state.stalled_since.unwrap_or_else(|| self.clock.elapsed()));
    }
}

impl ConnectionState {
    /// Whether the connection has exceeded the time limit of its phase, of the shutdown or of a write.
    fn is_overdue(&self, now: Duration, shutdown_since: Option<Duration>) -> bool {
        let exceeds = |since: Duration, limit: Duration| now.saturating_sub(since) >= limit;
        let exceeds_phase_limit = match self.phase {
            Phase::Idle => exceeds(self.since, limits::CONNECTION_IDLE),
            Phase::Head => exceeds(self.since, limits::HTTP_HEAD_TIMEOUT),
            Phase::Request | Phase::Upgraded => false,
        };
        let exceeds_shutdown_limit =
            self.phase != Phase::Request && shutdown_since.is_some_and(|since| exceeds(since, limits::CLOSING_GRACE));
        let exceeds_write_limit = self.stalled_since.is_some_and(|since| exceeds(since, limits::WRITE_TIMEOUT));
        exceeds_phase_limit || exceeds_shutdown_limit || exceeds_write_limit
    }
}

/// Serves until `stop` completes. Then it accepts no more connections, and returns when the open ones have ended.
pub(super) async fn serve(
    listener: TcpListener,
    router: Router,
    limits: ConnectionLimits,
    clock: Arc<dyn Clock>,
    stop: impl Future<Output = ()>,
) {
    let router = router.layer(Extension(BodyBudget::default()));
    let connections = Arc::new(Connections {
        clock,
        limits,
        open: Mutex::default(),
        connection_ended: Notify::new(),
        shutdown: CancellationToken::new(),
    });
    let mut checking = pin!(connections.close_overdue());
    {
        let mut accepting = pin!(connections.accept_all(&listener, &router));
        let mut stop = pin!(stop);
        tokio::select! {
            biased;
            () = &mut stop => {}
            () = &mut checking => {}
            () = &mut accepting => {}
        }
    }
    drop(listener);
    connections.open().shutdown_since = Some(connections.clock.elapsed());
    connections.shutdown.cancel();
    tokio::select! {
        () = connections.all_ended() => {}
        () = checking => {}
    }
}

impl Connections {
    fn open(&self) -> MutexGuard<'_, OpenConnections> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts connections; never returns.
    async fn accept_all(self: &Arc<Self>, listener: &TcpListener, router: &Router) {
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => self.start(stream, peer, router),
                // An error of one connection, which no longer exists.
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::ConnectionAborted
                            | io::ErrorKind::ConnectionReset
                            | io::ErrorKind::ConnectionRefused
                            | io::ErrorKind::Interrupted
                    ) => {}
                Err(error) => {
                    // Usually the process has no file descriptor left. Closing idle connections frees some.
                    let closed = (0..limits::CONNECTIONS_FREED).take_while(|_| self.close_longest_waiting()).count();
                    if self.may_log() {
                        tracing::error!(code = "V0201", closed, "no connection can be accepted: {error}; trying again");
                    }
                    self.clock.sleep(self.clock.deadline(limits::ACCEPT_PAUSE)).await;
                }
            }
        }
    }

    /// Whether the last log entry is at least [`limits::OVERLOAD_LOG_INTERVAL`] ago. If so, the interval starts again.
    fn may_log(&self) -> bool {
        let now = self.clock.elapsed();
        let mut open = self.open();
        let may_log = open.last_logged.is_none_or(|last| now.saturating_sub(last) >= limits::OVERLOAD_LOG_INTERVAL);
        if may_log {
            open.last_logged = Some(now);
        }
        may_log
    }

    /// Serves an accepted connection in a task of its own, or refuses it.
    fn start(self: &Arc<Self>, stream: TcpStream, peer: SocketAddr, router: &Router) {
        let address = peer.ip().to_canonical();
        let is_full = {
            let open = self.open();
            let count = open.count_by_address.get(&address).copied().unwrap_or_default();
            let limit = self.limits.per_address;
            if limit > 0 && !address.is_loopback() && count >= limit {
                drop(open);
                return self.refuse(&stream, "429 Too Many Requests", "too many from one address");
            }
            open.by_id.len() >= self.limits.total
        };
        if is_full && !self.close_longest_waiting() {
            return self.refuse(&stream, "503 Service Unavailable", "too many are active");
        }
        let state = ConnectionState { phase: Phase::Idle, since: self.clock.elapsed(), stalled_since: None };
        let connection = Arc::new(Connection {
            clock: self.clock.clone(),
            address,
            state: Mutex::new(state),
            close: CancellationToken::new(),
        });
        let id = {
            let mut open = self.open();
            open.last_id += 1;
            let id = open.last_id;
            open.by_id.insert(id, connection.clone());
            *open.count_by_address.entry(address).or_default() += 1;
            id
        };
        let guard = ConnectionGuard { connections: self.clone(), id };
        // Writes are whole responses, or deltas that must not be delayed.
        let _ = stream.set_nodelay(true);
        let closed = || Box::pin(connection.close.clone().cancelled_owned());
        let stream =
            ObservedStream { stream, read_closed: closed(), write_closed: closed(), connection, _guard: guard };
        let (connections, router) = (self.clone(), router.clone());
        tokio::spawn(async move { connections.run(stream, router).await });
    }

    /// Closes a connection, after a response if it can be written without waiting.
    fn refuse(&self, stream: &TcpStream, status: &str, reason: &str) {
        let response = format!("HTTP/1.1 {status}\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
        let _ = stream.try_write(response.as_bytes());
        self.open().refused += 1;
        if self.may_log() {
            let refused = std::mem::take(&mut self.open().refused);
            tracing::warn!(code = "V0202", refused, "connections are refused: {reason}");
        }
    }

    /// Closes the connection that has waited longest for a request. False if there is none.
    fn close_longest_waiting(&self) -> bool {
        let open = self.open();
        let waiting = open.by_id.values().filter(|one| !one.close.is_cancelled()).filter_map(|one| {
            let state = *one.state();
            matches!(state.phase, Phase::Idle | Phase::Head).then_some((state.since, one))
        });
        let longest = waiting.min_by_key(|(since, _)| *since);
        if let Some((_, longest)) = longest {
            longest.close.cancel();
        }
        longest.is_some()
    }

    /// Answers the requests of a connection until it is closed, or belongs to a channel.
    async fn run(&self, stream: ObservedStream, router: Router) {
        let connection = stream.connection.clone();
        let service = service_fn(|request: Request<Incoming>| {
            connection.enter(Phase::Request);
            let response = router.clone().oneshot(request.map(Body::new));
            let connection = connection.clone();
            async move {
                let response = response.await?;
                if response.status() == StatusCode::SWITCHING_PROTOCOLS {
                    connection.enter(Phase::Upgraded);
                }
                Ok::<_, Infallible>(response.map(|body| ResponseBody { body, connection }))
            }
        });
        let mut http = http1::Builder::new();
        http.header_read_timeout(None).max_buf_size(limits::HTTP_HEAD);
        let mut serving = pin!(http.serve_connection(TokioIo::new(stream), service).with_upgrades());
        let mut is_shutting_down = false;
        loop {
            tokio::select! {
                biased;
                () = connection.close.cancelled() => return,
                () = self.shutdown.cancelled(), if !is_shutting_down => {
                    is_shutting_down = true;
                    serving.as_mut().graceful_shutdown();
                }
                result = &mut serving => {
                    if let Err(error) = result {
                        tracing::debug!("a connection failed: {error}");
                    }
                    return;
                }
            }
        }
    }

    /// Closes overdue connections, every [`limits::CONNECTION_CHECK_INTERVAL`]; never returns.
    async fn close_overdue(&self) {
        loop {
            self.clock.sleep(self.clock.deadline(limits::CONNECTION_CHECK_INTERVAL)).await;
            let now = self.clock.elapsed();
            let open = self.open();
            for connection in open.by_id.values() {
                let state = *connection.state();
                if state.is_overdue(now, open.shutdown_since) {
                    connection.close.cancel();
                }
            }
        }
    }

    /// Completes when no connection is open.
    async fn all_ended(&self) {
        loop {
            let ended = self.connection_ended.notified();
            if self.open().by_id.is_empty() {
                return;
            }
            ended.await;
        }
    }
}

/// Counts one connection as open until it is dropped, also if the task that has the stream panics.
struct ConnectionGuard {
    connections: Arc<Connections>,
    id: u64,
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        let mut open = self.connections.open();
        if let Some(connection) = open.by_id.remove(&self.id) {
            let address = connection.address;
            if let Some(count) = open.count_by_address.get_mut(&address) {
                *count -= 1;
                if *count == 0 {
                    open.count_by_address.remove(&address);
                }
            }
        }
        drop(open);
        self.connections.connection_ended.notify_one();
    }
}

/// A TCP stream that updates the state of its connection. Once the connection is to be closed, reads and writes fail: that ends a channel
/// that has the stream.
struct ObservedStream {
    stream: TcpStream,
    connection: Arc<Connection>,
    /// Wakes a task that reads.
    read_closed: Closed,
    /// Wakes a task that writes.
    write_closed: Closed,
    _guard: ConnectionGuard,
}

type Closed = Pin<Box<WaitForCancellationFutureOwned>>;

/// Fails if the connection is to be closed; otherwise the task is woken when it is.
fn check_open(closed: &mut Closed, cx: &mut Context<'_>) -> io::Result<()> {
    match closed.as_mut().poll(cx) {
        Poll::Ready(()) => Err(io::ErrorKind::ConnectionAborted.into()),
        Poll::Pending => Ok(()),
    }
}

impl AsyncRead for ObservedStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        check_open(&mut self.read_closed, cx)?;
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if read.is_ready() && buffer.filled().len() > before {
            self.connection.on_read();
        }
        read
    }
}

impl AsyncWrite for ObservedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        check_open(&mut self.write_closed, cx)?;
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.connection.on_write(written.is_pending());
        written
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        check_open(&mut self.write_closed, cx)?;
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.connection.on_write(written.is_pending());
        written
    }
}

/// The body of a response. When it is dropped, the connection waits for the next request, unless it is upgraded.
struct ResponseBody {
    body: Body,
    connection: Arc<Connection>,
}

impl hyper::body::Body for ResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }
    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        self.connection.enter(Phase::Idle);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use tokio::io::AsyncReadExt;

    use super::*;
    use crate::testing::ManualClock;

    fn connections(per_address: usize) -> Arc<Connections> {
        Arc::new(Connections {
            clock: Arc::new(ManualClock::new()),
            limits: ConnectionLimits { per_address, ..ConnectionLimits::default() },
            open: Mutex::default(),
            connection_ended: Notify::new(),
            shutdown: CancellationToken::new(),
        })
    }

    /// Connects from these addresses. Returns the number of accepted connections; the others must get status 429.
    async fn count_accepted(connections: &Arc<Connections>, addresses: &[&str]) -> usize {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut clients = Vec::new();
        for address in addresses {
            let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (stream, _) = listener.accept().await.unwrap();
            connections.start(stream, SocketAddr::new(address.parse().unwrap(), 9), &Router::new());
            clients.push(client);
        }
        let accepted = connections.open().by_id.len();
        let mut responses = String::new();
        for mut client in clients.into_iter().skip(accepted) {
            client.read_to_string(&mut responses).await.unwrap();
        }
        assert_eq!(responses.matches("HTTP/1.1 429 ").count(), addresses.len() - accepted, "{responses}");
        accepted
    }

    #[tokio::test]
    async fn connections_per_address_are_limited_except_for_loopback() {
        assert_eq!(count_accepted(&connections(3), &["192.0.2.1"; 5]).await, 3);
        assert_eq!(count_accepted(&connections(0), &["192.0.2.1"; 5]).await, 5, "0 means no limit");
        for loopback in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
            assert_eq!(count_accepted(&connections(3), &[loopback; 5]).await, 5, "{loopback}");
        }
        let mapped = ["::ffff:192.0.2.1", "192.0.2.1", "192.0.2.1", "::ffff:192.0.2.1"];
        assert_eq!(count_accepted(&connections(3), &mapped).await, 3, "the IPv4-mapped address is the same address");
    }

    /// A router that upgrades every connection and keeps it until the peer closes it or the stream fails.
    fn upgrading() -> Router {
        Router::new().fallback(|request: Request<Body>| async move {
            tokio::spawn(async move {
                let mut upgraded = TokioIo::new(hyper::upgrade::on(request).await.unwrap());
                let bytes = [0; 65_536];
                // Writes for ever, as long as the peer reads.
                while tokio::io::AsyncWriteExt::write_all(&mut upgraded, &bytes).await.is_ok() {}
            });
            let upgrade = [("connection", "upgrade"), ("upgrade", "test")];
            (StatusCode::SWITCHING_PROTOCOLS, upgrade)
        })
    }

    /// Connects and waits until the connection is upgraded.
    async fn upgrade(connections: &Arc<Connections>, listener: &TcpListener) -> TcpStream {
        use tokio::io::AsyncWriteExt;
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, peer) = listener.accept().await.unwrap();
        connections.start(stream, peer, &upgrading());
        client.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: test\r\n\r\n").await.unwrap();
        let mut head = [0; 12];
        client.read_exact(&mut head).await.unwrap();
        assert_eq!(&head, b"HTTP/1.1 101");
        client
    }

    /// The only connection.
    fn only(connections: &Arc<Connections>) -> Arc<Connection> {
        connections.open().by_id.values().next().unwrap().clone()
    }

    #[tokio::test]
    async fn an_upgraded_connection_counts_until_it_is_closed_and_may_be_idle() {
        let connections = connections(0);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = upgrade(&connections, &listener).await;
        let connection = only(&connections);
        let mut state = *connection.state();
        assert!(state.phase == Phase::Upgraded && connections.open().count_by_address.len() == 1);
        // A new connection does not replace it.
        assert!(!connections.close_longest_waiting());
        let day = Duration::from_secs(86_400);
        state.stalled_since = None;
        assert!(!state.is_overdue(day, None));
        assert!(!state.is_overdue(day, Some(day)) && state.is_overdue(day + limits::CLOSING_GRACE, Some(day)));
        drop(client);
        connections.all_ended().await;
    }

    #[tokio::test]
    async fn an_upgraded_connection_whose_client_does_not_read_is_closed() {
        let connections = connections(0);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = upgrade(&connections, &listener).await;
        let connection = only(&connections);
        while connection.state().stalled_since.is_none() {
            tokio::task::yield_now().await;
        }
        assert!(connection.state().is_overdue(limits::WRITE_TIMEOUT, None));
        connection.close.cancel();
        connections.all_ended().await;
        drop(client);
    }

    #[tokio::test]
    async fn ended_connection_no_longer_counts() {
        let connections = connections(3);
        assert_eq!(count_accepted(&connections, &["192.0.2.1"; 3]).await, 3);
        connections.open().by_id.values().for_each(|connection| connection.close.cancel());
        connections.all_ended().await;
        assert!(connections.open().count_by_address.is_empty());
        assert_eq!(count_accepted(&connections, &["192.0.2.1"; 3]).await, 3);
    }
}
