//! Outbound HTTP: the one place that builds clients.
//!
//! Every request that leaves the process goes through the client of [`HttpClients`], which keeps its connections; gRPC has one of its own,
//! because it speaks HTTP/2 without negotiation. Addresses that come from data have clients that check where they lead ([`SsrfGuard`]).
//! Redirects are not followed, and no request has a time limit of its own beyond connecting: callers wait through their
//! [`CallContext`](crate::context::Cx). Which of them go through a proxy stands in `proxies`; loopback is always reached directly.

mod body;
mod proxies;
mod resolver;
mod ssrf;

use std::{error::Error, fmt, sync::Arc, sync::OnceLock};

use reqwest::Certificate;

pub use self::{
    body::{BodyError, read_limited},
    ssrf::SsrfGuard,
};
use self::{proxies::Proxies, resolver::RotatingResolver};
use crate::{environment, limits};

/// The clients, made at first use: a process that never calls out reads no certificates.
///
/// Cheap to clone; clones share the connections. One per runtime: connections die with the runtime that opened them.
#[derive(Clone, Default)]
pub struct HttpClients(Arc<Clients>);

type Built = Result<reqwest::Client, ClientBuildError>;

#[derive(Default)]
struct Clients {
    general: OnceLock<Built>,
    #[cfg(feature = "grpc")]
    http2: OnceLock<Built>,
    /// Certificates that are trusted beside those of the machine.
    trusted: Vec<Certificate>,
    proxies: Proxies,
    resolver: RotatingResolver,
}

/// The client could not be built: the machine's certificates, TLS or the settings of proxies are unusable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the HTTP client could not be built; check the certificates of this machine and the settings of proxies: {0}")]
pub struct ClientBuildError(String);

/// A request that failed on its way. The words name the cause and never the address, which may hold a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// No connection: name, route, TLS, a refusal, or the time for connecting was over.
    #[error("cannot connect: {0}")]
    Connect(String),
    /// The connection stood, but no response came.
    #[error("no response: {0}")]
    NoResponse(String),
    /// The body of the response broke off or cannot be decompressed.
    #[error("the response broke off: {0}")]
    Body(String),
}

impl From<reqwest::Error> for TransportError {
    fn from(error: reqwest::Error) -> Self {
        let error = error.without_url();
        let chain = std::iter::successors(Some(&error as &dyn Error), |&error| error.source());
        let cause = chain.last().map_or_else(String::new, ToString::to_string);
        if error.is_connect() {
            Self::Connect(cause)
        } else if error.is_body() || error.is_decode() {
            Self::Body(cause)
        } else {
            Self::NoResponse(cause)
        }
    }
}

impl HttpClients {
    /// Clients that use no proxy.
    pub fn new() -> Self {
        Self::default()
    }

    /// Clients that use this proxy, and reach these hosts directly: `proxy` and `no_proxy` of `http` in `endpoints.yml`. What is not set is
    /// read from the environment.
    pub fn with_proxy(proxy: Option<&str>, no_proxy: Option<&str>) -> Self {
        Self::with_proxies(Proxies::new(proxy, no_proxy, environment::variable))
    }

    fn with_proxies(proxies: Proxies) -> Self {
        Self(Arc::new(Clients { proxies, ..Clients::default() }))
    }

    /// The same with connections of their own that also trust the certificates of this PEM text, for a server of one's own.
    ///
    /// # Errors
    /// [`ClientBuildError`] when the text holds no certificate, or the client cannot be built.
    pub fn trusting(&self, pem: &[u8]) -> Result<Self, ClientBuildError> {
        let trusted = Certificate::from_pem_bundle(pem).map_err(|error| ClientBuildError(error.to_string()))?;
        if trusted.is_empty() {
            return Err(ClientBuildError("the file holds no certificate".to_owned()));
        }
        let clients = Clients { trusted, proxies: self.0.proxies.clone(), ..Clients::default() };
        let outbound = Self(Arc::new(clients));
        outbound.client()?;
        Ok(outbound)
    }

    /// The client, built on the first call.
    ///
    /// # Errors
    /// [`ClientBuildError`], the same on every call.
    pub fn client(&self) -> Result<&reqwest::Client, ClientBuildError> {
        self.0.general.get_or_init(|| build(self.settings(&self.0.proxies)?)).as_ref().map_err(Clone::clone)
    }

    /// The client for gRPC, built on the first call. Only encrypted connections go through a proxy: no proxy forwards HTTP/2 in the clear.
    ///
    /// # Errors
    /// [`ClientBuildError`], the same on every call.
    #[cfg(feature = "grpc")]
    pub fn http2(&self) -> Result<&reqwest::Client, ClientBuildError> {
        let made = || build(http2(self.settings(&self.0.proxies.encrypted_only())?));
        self.0.http2.get_or_init(made).as_ref().map_err(Clone::clone)
    }

    fn settings(&self, proxies: &Proxies) -> Result<reqwest::ClientBuilder, ClientBuildError> {
        let settings = proxies.apply(settings())?.dns_resolver(self.0.resolver.clone());
        Ok(if self.0.trusted.is_empty() { settings } else { settings.tls_certs_merge(self.0.trusted.clone()) })
    }

    /// Which of its addresses a connection to the host of `url` begins with, for [`try_next_address`](Self::try_next_address).
    pub fn next_address(&self, url: &reqwest::Url) -> usize {
        url.host_str().map_or(0, |host| self.0.resolver.start_offset(host))
    }

    /// The host of `url` gave no answer to what began with the address `tried`: the next connection to it begins with the one
    /// after that.
    pub fn try_next_address(&self, url: &reqwest::Url, tried: usize) {
        if let Some(host) = url.host_str() {
            self.0.resolver.failed(host, tried);
        }
    }

    /// A pool for which one host has these addresses.
    #[cfg(any(test, debug_assertions, feature = "testing"))]
    #[doc(hidden)]
    pub fn knowing(host: &str, found: &[std::net::SocketAddr]) -> Self {
        Self(Arc::new(Clients { resolver: RotatingResolver::knowing(host, found), ..Clients::default() }))
    }
}

impl fmt::Debug for HttpClients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Outbound(…)")
    }
}

/// Makes the ring provider the default of this process, so that every TLS user of it works. Harmless when repeated.
pub fn install_tls() {
    // An error says that a provider is installed already, which is what we want.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// What servers are told about who calls.
const USER_AGENT: &str = concat!("segue/", env!("CARGO_PKG_VERSION"));

fn build(settings: reqwest::ClientBuilder) -> Built {
    install_tls();
    settings.build().map_err(|error| ClientBuildError(error.to_string()))
}

#[allow(clippy::disallowed_methods)] // the one place that builds clients
fn settings() -> reqwest::ClientBuilder {
    reqwest::Client::builder()
        .user_agent(USER_AGENT)
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .gzip(true)
        .tcp_nodelay(true)
        .connect_timeout(limits::MODEL_CONNECT)
        .pool_idle_timeout(limits::HTTP_IDLE)
        .pool_max_idle_per_host(limits::HTTP_IDLE_PER_HOST)
}

/// Without negotiation, since a server that speaks gRPC speaks nothing else; compression is gRPC's own affair.
#[cfg(feature = "grpc")]
fn http2(settings: reqwest::ClientBuilder) -> reqwest::ClientBuilder {
    settings.http2_prior_knowledge().gzip(false)
}

/// Reads an address from the configuration: `http` or `https`, to any host but the machine metadata services of clouds,
/// whose answers hold credentials.
///
/// # Errors
/// What is wrong with it, in words that end a sentence about the key.
pub fn destination(text: &str) -> Result<reqwest::Url, String> {
    let url = reqwest::Url::parse(text)
        .map_err(|error| format!("`{}` is no address ({error}); expected `https://host/path`", shown(text)))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("`{}` is neither `http` nor `https`", shown(text)));
    }
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    if METADATA.contains(&host) {
        return Err(format!("`{host}` is a cloud's metadata service, which is never asked"));
    }
    Ok(url)
}

/// An address as it may be printed: a user, a password, a query and a fragment may be secret and are left out.
pub fn shown(text: &str) -> String {
    let (before, mark) =
        text.find(['?', '#']).and_then(|at| text.get(..at)).map_or((text, ""), |before| (before, "?…"));
    let Some((scheme, rest)) = before.split_once("://") else { return format!("{before}{mark}") };
    let (host, path) = rest.find('/').and_then(|at| rest.split_at_checked(at)).unwrap_or((rest, ""));
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    format!("{scheme}://{host}{path}{mark}")
}

const METADATA: &[&str] =
    &["169.254.169.254", "fd00:ec2::254", "100.100.100.200", "metadata.google.internal", "::ffff:a9fe:a9fe"];

#[cfg(test)]
mod tests;
