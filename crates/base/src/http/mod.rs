//! Outbound HTTP: the only module that builds HTTP clients.
//!
//! Every request that leaves the process uses the client of [`HttpClients`], which pools connections. gRPC has a client of its own, because
//! it uses HTTP/2 without negotiation. Addresses that come from data have clients that check where the addresses lead ([`SsrfGuard`]).
//!
//! Redirects are not followed. A request has no timeout beyond that for connecting; callers wait with their
//! [`CallContext`](crate::context::CallContext). The module `proxies` selects the proxy; loopback addresses are always reached directly.

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

/// The HTTP clients of the process, built at first use.
///
/// Cloning is cheap; clones share their connections. Use one instance per tokio runtime, because connections end with the runtime that
/// opened them.
#[derive(Clone, Default)]
pub struct HttpClients(Arc<Clients>);

type BuiltClient = Result<reqwest::Client, ClientBuildError>;

#[derive(Default)]
struct Clients {
    general: OnceLock<BuiltClient>,
    #[cfg(feature = "grpc")]
    http2: OnceLock<BuiltClient>,
    /// Root certificates in addition to those of the operating system.
    root_certificates: Vec<Certificate>,
    proxies: Proxies,
    resolver: RotatingResolver,
}

/// The client could not be built: the certificates of the machine, TLS or the proxy settings are unusable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the HTTP client could not be built; check the certificates of this machine and the proxy settings: {0}")]
pub struct ClientBuildError(String);

/// The error of a request without a complete response. Its message names the cause and never the address, which may contain a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// No connection: name resolution, routing or TLS failed, the connection was refused, or connecting timed out.
    #[error("cannot connect: {0}")]
    Connect(String),
    /// The connection was established, but there was no response.
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
    /// Clients without a proxy.
    pub fn new() -> Self {
        Self::default()
    }

    /// Clients with this proxy, except for the hosts in `no_proxy`: `proxy` and `no_proxy` of `http` in `endpoints.yml`. A value that is not
    /// set is read from the environment.
    pub fn with_proxy(proxy: Option<&str>, no_proxy: Option<&str>) -> Self {
        Self::with_proxies(Proxies::new(proxy, no_proxy, environment::variable))
    }

    fn with_proxies(proxies: Proxies) -> Self {
        Self(Arc::new(Clients { proxies, ..Clients::default() }))
    }

    /// Clients with the same proxies that also trust the certificates of this PEM text. They have connections of their own.
    ///
    /// # Errors
    /// [`ClientBuildError`] if the text contains no certificate, or the client cannot be built.
    pub fn with_root_certificates(&self, pem: &[u8]) -> Result<Self, ClientBuildError> {
        let root_certificates =
            Certificate::from_pem_bundle(pem).map_err(|error| ClientBuildError(error.to_string()))?;
        if root_certificates.is_empty() {
            return Err(ClientBuildError("the file contains no certificate".to_owned()));
        }
        let clients = Clients { root_certificates, proxies: self.0.proxies.clone(), ..Clients::default() };
        let clients = Self(Arc::new(clients));
        clients.client()?;
        Ok(clients)
    }

    /// The client, built on the first call.
    ///
    /// # Errors
    /// [`ClientBuildError`], the same on every call.
    pub fn client(&self) -> Result<&reqwest::Client, ClientBuildError> {
        self.0.general.get_or_init(|| build(self.settings(&self.0.proxies)?)).as_ref().map_err(Clone::clone)
    }

    /// The client for gRPC, built on the first call. Only TLS connections use a proxy, because proxies do not forward cleartext HTTP/2.
    ///
    /// # Errors
    /// [`ClientBuildError`], the same on every call.
    #[cfg(feature = "grpc")]
    pub fn http2(&self) -> Result<&reqwest::Client, ClientBuildError> {
        let init = || build(http2(self.settings(&self.0.proxies.encrypted_only())?));
        self.0.http2.get_or_init(init).as_ref().map_err(Clone::clone)
    }

    fn settings(&self, proxies: &Proxies) -> Result<reqwest::ClientBuilder, ClientBuildError> {
        let settings = proxies.apply(settings())?.dns_resolver(self.0.resolver.clone());
        Ok(if self.0.root_certificates.is_empty() {
            settings
        } else {
            settings.tls_certs_merge(self.0.root_certificates.clone())
        })
    }

    /// The offset of the address with which connections to the host of `url` start, for [`try_next_address`](Self::try_next_address).
    pub fn next_address(&self, url: &reqwest::Url) -> usize {
        url.host_str().map_or(0, |host| self.0.resolver.start_offset(host))
    }

    /// Reports that a request to the host of `url`, whose connection started with the offset `tried`, got no response. The next
    /// connection to the host starts with the next address.
    pub fn try_next_address(&self, url: &reqwest::Url, tried: usize) {
        if let Some(host) = url.host_str() {
            self.0.resolver.report_failure(host, tried);
        }
    }

    /// Clients for which `host` resolves to these addresses.
    #[cfg(any(test, debug_assertions, feature = "testing"))]
    #[doc(hidden)]
    pub fn with_resolved(host: &str, found: &[std::net::SocketAddr]) -> Self {
        Self(Arc::new(Clients { resolver: RotatingResolver::with_resolved(host, found), ..Clients::default() }))
    }
}

impl fmt::Debug for HttpClients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HttpClients(…)")
    }
}

/// Installs *ring* as the default crypto provider of rustls in this process. May be called repeatedly.
pub fn install_tls() {
    // An error means that a provider is already installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// The `User-Agent` of every request.
const USER_AGENT: &str = concat!("segue/", env!("CARGO_PKG_VERSION"));

fn build(settings: reqwest::ClientBuilder) -> BuiltClient {
    install_tls();
    settings.build().map_err(|error| ClientBuildError(error.to_string()))
}

#[allow(clippy::disallowed_methods)] // the only place that builds clients
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

/// HTTP/2 without negotiation, as gRPC servers expect; gRPC compresses messages itself.
#[cfg(feature = "grpc")]
fn http2(settings: reqwest::ClientBuilder) -> reqwest::ClientBuilder {
    settings.http2_prior_knowledge().gzip(false)
}

/// Parses and checks the address of an endpoint in the configuration: `http` or `https`, to any host except the instance metadata services
/// of clouds, whose responses contain credentials.
///
/// # Errors
/// A message that completes a sentence about the key.
pub fn parse_endpoint_url(text: &str) -> Result<reqwest::Url, String> {
    let url = reqwest::Url::parse(text).map_err(|error| {
        format!("`{}` is not a valid address ({error}); expected `https://host/path`", redact_url(text))
    })?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("`{}` is neither `http` nor `https`", redact_url(text)));
    }
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    if METADATA_HOSTS.contains(&host) {
        return Err(format!("`{host}` is a cloud metadata service, which is never called"));
    }
    Ok(url)
}

/// An address for messages: without user, password, query and fragment, which may be secret.
pub fn redact_url(text: &str) -> String {
    let (before, mark) =
        text.find(['?', '#']).and_then(|at| text.get(..at)).map_or((text, ""), |before| (before, "?…"));
    let Some((scheme, rest)) = before.split_once("://") else { return format!("{before}{mark}") };
    let (host, path) = rest.find('/').and_then(|at| rest.split_at_checked(at)).unwrap_or((rest, ""));
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    format!("{scheme}://{host}{path}{mark}")
}

/// Instance metadata services: the link-local addresses of AWS, Azure and GCP (IPv4, also mapped to IPv6, and AWS IPv6), of Alibaba
/// Cloud, and GCP's host name.
const METADATA_HOSTS: &[&str] =
    &["169.254.169.254", "fd00:ec2::254", "100.100.100.200", "metadata.google.internal", "::ffff:a9fe:a9fe"];

#[cfg(test)]
mod tests;
