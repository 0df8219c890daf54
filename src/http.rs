//! Outbound HTTP: the one place that builds a client.
//!
//! *For*: every request that leaves the process shares a pool of connections: calls of models one ([`Calls`]), everything
//! else another. *Entry*: [`Outbound`]. *Never*: redirects
//! are not followed, proxies are not taken from the environment, and no request has a hidden time limit (callers wait
//! through their [`Cx`](crate::cx::Cx)).

mod addresses;
mod calls;
mod guard;

use std::{fmt, sync::Arc, sync::OnceLock};

use rustls::pki_types::{CertificateDer, pem::PemObject};

use self::addresses::Addresses;
pub use self::{
    calls::{Calls, Lost, Reply, Target},
    guard::Guard,
};
use crate::limits;

/// A shared pool of connections, made at first use: a process that never calls out pays nothing for TLS.
///
/// Cheap to clone; clones share the pool. One per runtime: connections die with the runtime that opened them.
#[derive(Clone, Default)]
pub struct Outbound(Arc<Pools>);

type Built = Result<reqwest::Client, Unbuilt>;

/// The client, its like for gRPC, which speaks HTTP/2 from the first byte, and that of models.
#[derive(Default)]
struct Pools {
    usual: OnceLock<Built>,
    #[cfg(feature = "grpc")]
    http2: OnceLock<Built>,
    calls: OnceLock<Result<Calls, Unbuilt>>,
    /// Certificates that all of them trust beside those of the machine.
    trusted: Vec<CertificateDer<'static>>,
    addresses: Addresses,
}

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
        let made = || build_with(|settings| settings.dns_resolver(self.0.addresses.clone()));
        self.0.usual.get_or_init(made).as_ref().map_err(Clone::clone)
    }

    /// The client for calls of models, built on the first call.
    ///
    /// # Errors
    /// [`Unbuilt`], the same on every call.
    pub fn calls(&self) -> Result<&Calls, Unbuilt> {
        let made = || Calls::new(self.0.addresses.clone(), &self.0.trusted);
        self.0.calls.get_or_init(made).as_ref().map_err(Clone::clone)
    }

    /// Which of its addresses a connection to the host of `url` begins with, for [`try_next_address`](Self::try_next_address).
    pub fn next_address(&self, url: &reqwest::Url) -> usize {
        url.host_str().map_or(0, |host| self.0.addresses.passed_over(host))
    }

    /// The host of `url` gave no answer to what began with the address `tried`: the next connection to it begins with the one
    /// after that.
    pub fn try_next_address(&self, url: &reqwest::Url, tried: usize) {
        if let Some(host) = url.host_str() {
            self.0.addresses.failed(host, tried);
        }
    }

    /// A pool for which one host has these addresses.
    #[cfg(test)]
    pub(crate) fn knowing(host: &str, found: &[std::net::SocketAddr]) -> Self {
        Self(Arc::new(Pools { addresses: Addresses::knowing(host, found), ..Pools::default() }))
    }

    /// The client for gRPC, built on the first call.
    ///
    /// # Errors
    /// [`Unbuilt`], the same on every call.
    #[cfg(feature = "grpc")]
    pub fn http2(&self) -> Result<&reqwest::Client, Unbuilt> {
        let build = || {
            let trusted = certificates(&self.0.trusted)?;
            build_with(|settings| {
                let settings = settings.dns_resolver(self.0.addresses.clone());
                http2(settings).tls_certs_merge(trusted)
            })
        };
        self.0.http2.get_or_init(build).as_ref().map_err(Clone::clone)
    }
}

/// Without negotiation, since a server that speaks gRPC speaks nothing else; compression is gRPC's own affair.
#[cfg(feature = "grpc")]
fn http2(settings: reqwest::ClientBuilder) -> reqwest::ClientBuilder {
    settings.http2_prior_knowledge().gzip(false)
}

impl Outbound {
    /// A pool that also trusts the certificates of this PEM text, for a server of one's own.
    ///
    /// # Errors
    /// [`Unbuilt`] when the text holds no certificate, or the client cannot be built.
    pub fn trusting(pem: &[u8]) -> Result<Self, Unbuilt> {
        let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
        let trusted = read.map_err(|error| Unbuilt(error.to_string()))?;
        if trusted.is_empty() {
            return Err(Unbuilt("the file holds no certificate".to_owned()));
        }
        let (merged, addresses) = (certificates(&trusted)?, Addresses::default());
        let client = build_with(|settings| settings.dns_resolver(addresses.clone()).tls_certs_merge(merged))?;
        Ok(Self(Arc::new(Pools { usual: OnceLock::from(Ok(client)), trusted, addresses, ..Pools::default() })))
    }
}

fn certificates(trusted: &[CertificateDer<'static>]) -> Result<Vec<reqwest::Certificate>, Unbuilt> {
    let read = |bytes: &CertificateDer<'_>| reqwest::Certificate::from_der(bytes);
    trusted.iter().map(read).collect::<Result<_, _>>().map_err(|error| Unbuilt(error.to_string()))
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

/// Who calls.
const AGENT: &str = concat!("segue/", env!("CARGO_PKG_VERSION"));

#[allow(clippy::disallowed_methods)] // the one place that builds a client
fn build_with(
    change: impl FnOnce(reqwest::ClientBuilder) -> reqwest::ClientBuilder,
) -> Result<reqwest::Client, Unbuilt> {
    install_tls();
    change(settings()).build().map_err(|error| Unbuilt(error.to_string()))
}

#[allow(clippy::disallowed_methods)] // for `build` alone
fn settings() -> reqwest::ClientBuilder {
    reqwest::Client::builder()
        .user_agent(AGENT)
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .no_proxy()
        .gzip(true)
        .tcp_nodelay(true)
        .connect_timeout(limits::MODEL_CONNECT)
        .pool_idle_timeout(limits::HTTP_IDLE)
        .pool_max_idle_per_host(limits::HTTP_IDLE_PER_HOST)
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
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::{
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
        time::Duration,
    };

    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
        sync::Barrier,
    };

    use super::*;

    /// A server that answers once `together` requests are there; counts connections.
    pub(super) async fn server(together: usize) -> (String, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}/", listener.local_addr().unwrap());
        let connections = Arc::new(AtomicUsize::new(0));
        let (count, barrier) = (connections.clone(), Arc::new(Barrier::new(together)));
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                count.fetch_add(1, Ordering::SeqCst);
                let barrier = barrier.clone();
                tokio::spawn(async move {
                    let mut bytes = [0; 4096];
                    // One read is one request: it is small and comes in one piece.
                    while stream.read(&mut bytes).await.is_ok_and(|read| read > 0) {
                        barrier.wait().await;
                        // In chunks, as models answer.
                        let answer = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
                        stream.write_all(answer).await.unwrap();
                    }
                });
            }
        });
        (address, connections)
    }

    async fn ask(client: &reqwest::Client, address: &str, times: usize) {
        let asked = (0..times).map(|_| async { client.get(address).send().await.unwrap().text().await.unwrap() });
        for answer in futures::future::join_all(asked).await {
            assert_eq!(answer, "ok");
        }
        // The connections go back by themselves.
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn no_more_idle_connections_are_kept_than_allowed() {
        let together = limits::HTTP_IDLE_PER_HOST + 1;
        let (address, connections) = server(together).await;
        let client = Outbound::new().client().unwrap().clone();
        ask(&client, &address, together).await;
        assert_eq!(connections.load(Ordering::SeqCst), together);
        ask(&client, &address, together).await;
        assert_eq!(connections.load(Ordering::SeqCst), together + 1, "one of them was not kept");
    }

    #[tokio::test]
    async fn an_idle_connection_is_given_up_in_time() {
        let (address, connections) = server(1).await;
        let client = Outbound::new().client().unwrap().clone();
        for (pause, expected) in [(Duration::ZERO, 1), (limits::HTTP_IDLE / 2, 1), (limits::HTTP_IDLE, 2)] {
            tokio::time::pause();
            tokio::time::advance(pause).await;
            tokio::time::resume();
            ask(&client, &address, 1).await;
            assert_eq!(connections.load(Ordering::SeqCst), expected, "after {pause:?}");
        }
    }

    /// A name that is never found.
    struct Nowhere;

    impl reqwest::dns::Resolve for Nowhere {
        fn resolve(&self, _: reqwest::dns::Name) -> reqwest::dns::Resolving {
            Box::pin(std::future::pending())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_cannot_be_reached_is_given_up_in_time() {
        install_tls();
        let client = settings().dns_resolver(Nowhere).build().unwrap();
        let mut asking = std::pin::pin!(client.get("http://nowhere.invalid/").send());
        let early = limits::MODEL_CONNECT - Duration::from_millis(1);
        assert!(tokio::time::timeout(early, &mut asking).await.is_err(), "it is given up too early");
        let error = tokio::time::timeout(Duration::from_secs(1), asking).await.unwrap().unwrap_err();
        assert!(error.is_connect() && error.is_timeout(), "{error:?}");
    }

    #[test]
    fn only_addresses_that_may_be_asked() {
        for good in ["http://localhost:8000/v1", "https://10.0.0.1", "http://[::1]:80/"] {
            assert!(destination(good).is_ok(), "{good}");
        }
        // The second is the metadata service written as one number.
        for bad in [
            "http://169.254.169.254/v1",
            "http://2852039166/",
            "http://[fd00:ec2::254]/",
            "file:///etc",
            "x",
            "localhost:80",
        ] {
            assert!(destination(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn clones_share_one_client() {
        let outbound = Outbound::new();
        let other = outbound.clone();
        assert!(outbound.client().is_ok_and(|a| other.client().is_ok_and(|b| std::ptr::eq(a, b))));
    }
}
