//! Outbound HTTP: the one place that builds a client.
//!
//! *For*: every request that leaves the process shares one pool of connections. *Entry*: [`Outbound`]. *Never*: redirects
//! are not followed, proxies are not taken from the environment, and no request has a hidden time limit (callers wait
//! through their [`Cx`](crate::cx::Cx)).

use std::{fmt, sync::Arc, sync::OnceLock};

use crate::limits;

/// A shared pool of connections, made at first use: a process that never calls out pays nothing for TLS.
///
/// Cheap to clone; clones share the pool. One per runtime: connections die with the runtime that opened them.
#[derive(Clone, Default)]
pub struct Outbound(Arc<OnceLock<Result<reqwest::Client, Unbuilt>>>);

/// The client could not be built: the machine's certificates or TLS are unusable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the HTTP client could not be built; check the certificates of this machine: {0}")]
pub struct Unbuilt(String);

impl Outbound {
    /// An empty pool.
    pub fn new() -> Self {
        Self::default()
    }

    /// The client, built on the first call.
    ///
    /// # Errors
    /// [`Unbuilt`], the same on every call.
    pub fn client(&self) -> Result<&reqwest::Client, Unbuilt> {
        self.0.get_or_init(build).as_ref().map_err(Clone::clone)
    }
}

impl fmt::Debug for Outbound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Outbound(…)")
    }
}

/// Makes the ring provider the default of this process, so that every TLS user of it works. Harmless when repeated.
pub fn install_tls() {
    // An error says that a provider is installed already, which is what we want.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

#[allow(clippy::disallowed_methods)] // the one place that builds a client
fn build() -> Result<reqwest::Client, Unbuilt> {
    install_tls();
    reqwest::Client::builder()
        .user_agent(concat!("segue/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .no_proxy()
        .gzip(true)
        .tcp_nodelay(true)
        .connect_timeout(limits::MODEL_CONNECT)
        .pool_idle_timeout(limits::HTTP_IDLE)
        .pool_max_idle_per_host(limits::HTTP_IDLE_PER_HOST)
        .build()
        .map_err(|error| Unbuilt(error.to_string()))
}
