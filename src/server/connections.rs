//! Connections: taken within caps, closed when their clients are slow or idle, and ended in order when the server ends.
//!
//! Each has a phase, which its socket and its requests move on. One task looks at all of them now and then and closes those that are
//! in a phase for too long. When all places are taken, a new connection takes the place of the one that has waited longest for a
//! request. Never: the listener ends because the process has no file left, or because one connection failed.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, SocketAddr},
    pin::{Pin, pin},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use axum::{Router, body::Body, extract::Extension, http::Request};
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
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::buffered_body::Bodies;
use crate::{clock::Clock, failpoint, limits};

/// How many connections a server takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Open at once.
    pub total: usize,
    /// Open at once from one address; 0 is no limit. Addresses of this machine have none.
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
    open: Mutex<Open>,
    /// Rings when one has ended.
    ended: Notify,
    /// The server ends.
    closing: CancellationToken,
}

#[derive(Default)]
struct Open {
    next: u64,
    all: HashMap<u64, Arc<Connection>>,
    addresses: HashMap<IpAddr, usize>,
    /// When the server began to end.
    closing: Option<Duration>,
    /// Connections that were turned away since the log said so, and when it did.
    refused: u64,
    told: Option<Duration>,
}

struct Connection {
    clock: Arc<dyn Clock>,
    address: IpAddr,
    state: Mutex<State>,
    close: CancellationToken,
}

#[derive(Clone, Copy)]
struct State {
    phase: Phase,
    since: Duration,
    /// Since when bytes wait for the client to read others.
    stalled: Option<Duration>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Between requests.
    Idle,
    /// The head of a request has begun to come.
    Head,
    /// A request is being answered.
    Request,
}

impl Connection {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn enter(&self, phase: Phase) {
        let since = self.clock.elapsed();
        let mut state = self.state();
        (state.phase, state.since) = (phase, since);
    }
    fn has_read(&self) {
        if self.state().phase == Phase::Idle {
            self.enter(Phase::Head);
        }
    }
    fn has_written(&self, is_stalled: bool) {
        let mut state = self.state();
        state.stalled = is_stalled.then(|| state.stalled.unwrap_or_else(|| self.clock.elapsed()));
    }
}

impl State {
    /// Whether its time is over.
    fn is_overdue(&self, now: Duration, closing: Option<Duration>) -> bool {
        let past = |since: Duration, most: Duration| now.saturating_sub(since) >= most;
        let waits = failpoint::is_armed("defect:slow-stop");
        let phase = match self.phase {
            Phase::Idle => past(self.since, limits::CONNECTION_IDLE),
            Phase::Head if failpoint::is_armed("defect:no-head-timeout") || waits => false,
            Phase::Head => past(self.since, limits::HTTP_HEAD_TIMEOUT),
            Phase::Request => false,
        };
        let ends = self.phase != Phase::Request && closing.is_some_and(|since| past(since, limits::CLOSING_GRACE));
        let ends = ends && !waits;
        phase || ends || self.stalled.is_some_and(|since| past(since, limits::WRITE_TIMEOUT))
    }
}

/// Serves until `stop` completes; then takes no more connections, and returns when those that are open have ended.
pub(super) async fn serve(
    listener: TcpListener,
    router: Router,
    limits: ConnectionLimits,
    clock: Arc<dyn Clock>,
    stop: impl Future<Output = ()>,
) {
    let router = router.layer(Extension(Bodies::default()));
    let all = Arc::new(Connections {
        clock,
        limits,
        open: Mutex::default(),
        ended: Notify::new(),
        closing: CancellationToken::new(),
    });
    let mut looking = pin!(all.look());
    {
        let mut taking = pin!(all.take_all(&listener, &router));
        let mut stop = pin!(stop);
        tokio::select! {
            biased;
            () = &mut stop => {}
            () = &mut looking => {}
            () = &mut taking => {}
        }
    }
    drop(listener);
    all.open().closing = Some(all.clock.elapsed());
    all.closing.cancel();
    tokio::select! {
        () = all.none_left() => {}
        () = looking => {}
    }
}

impl Connections {
    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes connections; never ends.
    async fn take_all(self: &Arc<Self>, listener: &TcpListener, router: &Router) {
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => self.take(stream, peer, router),
                // These concern one connection, which is gone already.
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::ConnectionAborted
                            | io::ErrorKind::ConnectionReset
                            | io::ErrorKind::ConnectionRefused
                            | io::ErrorKind::Interrupted
                    ) => {}
                Err(error) => {
                    // The process has no file left, as a rule. A connection that waits for nothing gives its own back.
                    let frees = !failpoint::is_armed("defect:no-head-timeout");
                    let closed =
                        (0..limits::CONNECTIONS_FREED).take_while(|_| frees && self.close_longest_waiting()).count();
                    if self.tells() {
                        tracing::error!(
                            code = "V0201",
                            closed,
                            "no connection can be taken: {error}; it is tried again"
                        );
                    }
                    self.clock.sleep(self.clock.deadline(limits::ACCEPT_PAUSE)).await;
                }
            }
        }
    }

    /// Whether a problem may be told in the log now.
    fn tells(&self) -> bool {
        let now = self.clock.elapsed();
        let mut open = self.open();
        let tells = open.told.is_none_or(|told| now.saturating_sub(told) >= limits::OVERLOAD_LOG_INTERVAL);
        if tells {
            open.told = Some(now);
        }
        tells
    }

    fn take(self: &Arc<Self>, stream: TcpStream, peer: SocketAddr, router: &Router) {
        let address = peer.ip().to_canonical();
        let full = {
            let open = self.open();
            let from_there = open.addresses.get(&address).copied().unwrap_or_default();
            let most = self.limits.per_address;
            if most > 0 && !address.is_loopback() && from_there >= most {
                drop(open);
                return self.refuse(&stream, "429 Too Many Requests", "one address has too many");
            }
            open.all.len() >= self.limits.total
        };
        if full && !self.close_longest_waiting() {
            return self.refuse(&stream, "503 Service Unavailable", "all are in use");
        }
        let state = State { phase: Phase::Idle, since: self.clock.elapsed(), stalled: None };
        let connection = Arc::new(Connection {
            clock: self.clock.clone(),
            address,
            state: Mutex::new(state),
            close: CancellationToken::new(),
        });
        let id = {
            let mut open = self.open();
            open.next += 1;
            let id = open.next;
            open.all.insert(id, connection.clone());
            *open.addresses.entry(address).or_default() += 1;
            id
        };
        let place = Place { all: self.clone(), id };
        let router = router.clone();
        tokio::spawn(async move {
            place.all.run(&connection, stream, router).await;
            drop(place);
        });
    }

    /// Turns a connection away, with a word where its socket takes one at once.
    fn refuse(&self, stream: &TcpStream, status: &str, why: &str) {
        let answer = format!("HTTP/1.1 {status}\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
        let _ = stream.try_write(answer.as_bytes());
        self.open().refused += 1;
        if self.tells() {
            let refused = std::mem::take(&mut self.open().refused);
            tracing::warn!(code = "V0202", refused, "connections are turned away: {why}");
        }
    }

    /// Closes the connection that has waited longest for a request; whether there was one.
    fn close_longest_waiting(&self) -> bool {
        let open = self.open();
        let waiting = open.all.values().filter(|one| !one.close.is_cancelled()).filter_map(|one| {
            let state = *one.state();
            (state.phase != Phase::Request).then_some((state.since, one))
        });
        let longest = waiting.min_by_key(|(since, _)| *since);
        if let Some((_, longest)) = longest {
            longest.close.cancel();
        }
        longest.is_some()
    }

    async fn run(&self, connection: &Arc<Connection>, stream: TcpStream, router: Router) {
        // What is written are whole answers, or pieces that a person waits for.
        let _ = stream.set_nodelay(true);
        let answer = service_fn(|request: Request<Incoming>| {
            connection.enter(Phase::Request);
            let answered = router.clone().oneshot(request.map(Body::new));
            let connection = connection.clone();
            async move { answered.await.map(|answer| answer.map(|body| Answering { body, connection })) }
        });
        let mut http = http1::Builder::new();
        http.header_read_timeout(None).max_buf_size(limits::HTTP_HEAD);
        let watched = Watched { stream, connection: connection.clone() };
        let mut serving = pin!(http.serve_connection(TokioIo::new(watched), answer).with_upgrades());
        let mut is_told = false;
        loop {
            tokio::select! {
                biased;
                () = connection.close.cancelled() => return,
                () = self.closing.cancelled(), if !is_told => {
                    is_told = true;
                    serving.as_mut().graceful_shutdown();
                }
                served = &mut serving => {
                    if let Err(error) = served {
                        tracing::debug!("a connection ended: {error}");
                    }
                    return;
                }
            }
        }
    }

    /// Closes what is overdue, now and then; never ends.
    async fn look(&self) {
        loop {
            self.clock.sleep(self.clock.deadline(limits::CONNECTION_CHECK_INTERVAL)).await;
            let now = self.clock.elapsed();
            let open = self.open();
            for connection in open.all.values() {
                let state = *connection.state();
                if state.is_overdue(now, open.closing) {
                    connection.close.cancel();
                }
            }
        }
    }

    async fn none_left(&self) {
        loop {
            let ended = self.ended.notified();
            if self.open().all.is_empty() {
                return;
            }
            ended.await;
        }
    }
}

/// The place of one connection; free again when its task has ended, however that was.
struct Place {
    all: Arc<Connections>,
    id: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.all.open();
        if let Some(connection) = open.all.remove(&self.id) {
            let address = connection.address;
            if let Some(count) = open.addresses.get_mut(&address) {
                *count -= 1;
                if *count == 0 {
                    open.addresses.remove(&address);
                }
            }
        }
        drop(open);
        self.all.ended.notify_one();
    }
}

/// A socket that tells its connection what it does.
struct Watched {
    stream: TcpStream,
    connection: Arc<Connection>,
}

impl AsyncRead for Watched {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if read.is_ready() && buffer.filled().len() > before {
            self.connection.has_read();
        }
        read
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.connection.has_written(written.is_pending());
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
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.connection.has_written(written.is_pending());
        written
    }
}

/// The body of an answer; with its end the connection waits for the next request.
struct Answering {
    body: Body,
    connection: Arc<Connection>,
}

impl hyper::body::Body for Answering {
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

impl Drop for Answering {
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
            ended: Notify::new(),
            closing: CancellationToken::new(),
        })
    }

    /// How many of the connections from these addresses are taken.
    async fn taken(all: &Arc<Connections>, addresses: &[&str]) -> usize {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut clients = Vec::new();
        for address in addresses {
            let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (stream, _) = listener.accept().await.unwrap();
            all.take(stream, SocketAddr::new(address.parse().unwrap(), 9), &Router::new());
            clients.push(client);
        }
        let taken = all.open().all.len();
        let mut told = String::new();
        for mut client in clients.into_iter().skip(taken) {
            client.read_to_string(&mut told).await.unwrap();
        }
        assert_eq!(told.matches("HTTP/1.1 429 ").count(), addresses.len() - taken, "{told}");
        taken
    }

    #[tokio::test]
    async fn one_address_has_only_so_many_connections_and_this_machine_any_number() {
        assert_eq!(taken(&connections(3), &["192.0.2.1"; 5]).await, 3);
        assert_eq!(taken(&connections(0), &["192.0.2.1"; 5]).await, 5, "0 is no limit");
        for here in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
            assert_eq!(taken(&connections(3), &[here; 5]).await, 5, "{here}");
        }
        let one = ["::ffff:192.0.2.1", "192.0.2.1", "192.0.2.1", "::ffff:192.0.2.1"];
        assert_eq!(taken(&connections(3), &one).await, 3, "both are one address");
    }

    #[tokio::test]
    async fn a_place_is_free_again_when_its_connection_has_ended() {
        let all = connections(3);
        assert_eq!(taken(&all, &["192.0.2.1"; 3]).await, 3);
        all.open().all.values().for_each(|connection| connection.close.cancel());
        all.none_left().await;
        assert!(all.open().addresses.is_empty());
        assert_eq!(taken(&all, &["192.0.2.1"; 3]).await, 3);
    }
}
