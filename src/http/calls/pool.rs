//! The connections that are kept, by server: those of HTTP/1 while nobody asks on them, and one of HTTP/2 for all.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::{runtime::Handle, time::Instant};

use super::{
    Place,
    connector::{Connector, Trouble},
    line::Line,
};
use crate::limits;

/// All of them, and how others are opened.
pub(super) struct Pool {
    connector: Connector,
    hosts: Mutex<HashMap<String, Arc<Host>>>,
    /// Whether HTTP/2 is spoken where the two did not agree on it.
    known_http2: bool,
}

/// How a request leaves.
pub(super) enum Way {
    /// On a connection of HTTP/1 that is free.
    Own(Box<Line>),
    /// On a connection of HTTP/2 beside other requests.
    Shared(SendRequest<Full<Bytes>>),
}

/// Whether a connection is one that was kept, which its server may be closing.
pub(super) type Used = bool;

impl Pool {
    pub(super) fn new(connector: Connector) -> Self {
        Self { connector, hosts: Mutex::default(), known_http2: false }
    }

    /// A pool for servers of which it is known that they speak HTTP/2.
    #[cfg(test)]
    pub(super) fn http2(connector: Connector) -> Self {
        Self { known_http2: true, ..Self::new(connector) }
    }

    /// A way to `place`: one that is kept, or a new one.
    ///
    /// # Errors
    /// No connection came about.
    pub(super) async fn way(&self, place: &Place) -> Result<(Way, Used), Trouble> {
        let host = self.host(&place.server);
        if let Some(way) = host.kept() {
            return Ok((way, true));
        }
        let (wire, agreed) = self.connector.open(place.whole.clone()).await?;
        if !agreed && !self.known_http2 {
            return Ok((Way::Own(Line::new(wire, Arc::downgrade(&host)).await?), false));
        }
        let mut settings = http2::Builder::new(TokioExecutor::new());
        let (send, work) = settings.timer(TokioTimer::new()).handshake(wire).await?;
        // It ends when nobody can ask on it any more; what goes wrong is told to those who did.
        tokio::spawn(async { drop(work.await) });
        Ok(host.share(send))
    }

    fn host(&self, server: &str) -> Arc<Host> {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        match hosts.get(server) {
            Some(host) => host.clone(),
            None => hosts.entry(server.to_owned()).or_default().clone(),
        }
    }
}

/// The connections to one server that are kept.
#[derive(Default)]
pub(super) struct Host(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    /// The one that was used last stands last.
    free: Vec<(Instant, Box<Line>)>,
    shared: Option<(Instant, SendRequest<Full<Bytes>>)>,
    /// A task gives up what was not used for too long, and what its server closed.
    swept: bool,
}

impl Host {
    fn kept(self: &Arc<Self>) -> Option<Way> {
        let mut kept = self.lock();
        kept.give_up_old();
        while let Some((_, mut line)) = kept.free.pop() {
            if line.is_free() {
                return Some(Way::Own(line));
            }
        }
        let (since, send) = kept.shared.as_mut()?;
        *since = Instant::now();
        Some(Way::Shared(send.clone()))
    }

    /// Keeps a connection on which nobody asks.
    pub(super) fn keep(self: Arc<Self>, line: Box<Line>) {
        let mut kept = self.lock();
        if kept.free.len() < limits::HTTP_IDLE_PER_HOST {
            kept.free.push((Instant::now(), line));
            self.sweep(kept);
        }
    }

    /// The connection that all share from now on: this one, or another that was first and was asked on already.
    fn share(self: Arc<Self>, send: SendRequest<Full<Bytes>>) -> (Way, Used) {
        let mut kept = self.lock();
        kept.give_up_old();
        let used = kept.shared.is_some();
        let (_, shared) = kept.shared.get_or_insert_with(|| (Instant::now(), send));
        let send = shared.clone();
        self.sweep(kept);
        (Way::Shared(send), used)
    }

    /// Sees to it that what is kept is given up in time, and what its server closed soon, even when nobody calls again.
    fn sweep(self: &Arc<Self>, mut kept: MutexGuard<'_, Kept>) {
        if std::mem::replace(&mut kept.swept, true) {
            return;
        }
        // A runtime that ends drops what it is given at once, and the sweep looks after itself then.
        drop(kept);
        let sweep = Sweep(Arc::downgrade(self));
        // Outside of a runtime nobody can wait; the next call looks.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                loop {
                    tokio::time::sleep(limits::HTTP_LOOK).await;
                    if sweep.is_done() {
                        break;
                    }
                }
            });
        }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn give_up_old(&mut self) {
        let young = |since: &Instant| since.elapsed() < limits::HTTP_IDLE;
        if self.free.first().is_some_and(|(since, _)| !young(since)) {
            self.free.retain(|(since, _)| young(since));
        }
        self.shared.take_if(|(since, send)| !young(since) || send.is_closed());
    }
}

/// Looks after a server's connections, until there are none.
struct Sweep(Weak<Host>);

impl Sweep {
    fn is_done(&self) -> bool {
        let Some(host) = self.0.upgrade() else { return true };
        let mut kept = host.lock();
        kept.give_up_old();
        kept.free.retain_mut(|(_, line)| line.is_free());
        kept.swept = !kept.free.is_empty() || kept.shared.is_some();
        !kept.swept
    }
}

impl Drop for Sweep {
    /// Its runtime may end before it does.
    fn drop(&mut self) {
        if let Some(host) = self.0.upgrade() {
            host.lock().swept = false;
        }
    }
}
