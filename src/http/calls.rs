//! Calls that are made many times to the same place, in the middle of a turn: those of models.
//!
//! They leave through the pool of hyper itself. The general client does the same and more (redirects, proxies, forms) in
//! layers above it, which cost a turn a fifteenth of its time and are of no use here. What goes out and what comes back is
//! what it would be there, byte for byte and word for word.

mod line;
mod reply;

use std::{
    error::Error,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use futures::future::BoxFuture;
use http_body_util::Full;
use hyper::{Method, Request, Uri};
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::{
    client::legacy::{Builder, Client, connect::HttpConnector},
    rt::{TokioIo, TokioTimer},
};
use percent_encoding::percent_decode_str;
use reqwest::{
    Url,
    header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, HOST, HeaderMap, HeaderValue, USER_AGENT},
};
use rustls::{
    ClientConfig,
    crypto::{CryptoProvider, ring},
    pki_types::CertificateDer,
};
use rustls_platform_verifier::Verifier;
use tokio::net::TcpStream;
use tower::Service;

use self::line::{Lines, Wire};
pub use self::reply::Reply;
use super::{AGENT, Unbuilt, addresses::Addresses, install_tls};
use crate::limits;

/// The client for calls. Get it by [`Outbound::calls`](super::Outbound::calls).
pub struct Calls(Client<Connector, Full<Bytes>>);

/// A place that is called again and again: everything that is the same each time, prepared once.
pub struct Target {
    /// None when the address is one that no request can carry.
    uri: Option<Uri>,
    headers: HeaderMap,
}

/// A call that failed on its way, with the cause at the root and without the address, which may hold a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Lost {
    /// No answer came.
    #[error("error sending request: {0}")]
    Unanswered(String),
    /// The answer broke off.
    #[error("error decoding response body: {0}")]
    Cut(String),
}

impl Calls {
    pub(super) fn new(addresses: Addresses, trusted: &[CertificateDer<'static>]) -> Result<Self, Unbuilt> {
        Ok(Self(settings().build(Connector::new(addresses, tls(trusted)?))))
    }

    /// Sends `body` and waits for the head of what comes back, for as long as it takes.
    ///
    /// # Errors
    /// [`Lost`]: no answer came.
    ///
    /// # Cancellation
    /// Dropping the future takes the call back or closes its connection.
    pub async fn post(&self, to: &Target, body: impl Into<Bytes>) -> Result<Reply, Lost> {
        let (body, mut left) = (body.into(), limits::HTTP_UNTOUCHED);
        loop {
            let mut request = self.0.request(to.post(body.clone())?);
            let run = |task: &mut Context<'_>| line::poll_request(|| Pin::new(&mut request).poll(task));
            let error = match std::future::poll_fn(run).await {
                (Ok(response), back) => return Ok(Reply::new(response, back)),
                (Err(error), _) => error,
            };
            left = left.saturating_sub(1);
            if left == 0 || !untouched(&error) {
                return Err(Lost::Unanswered(root(&error)));
            }
        }
    }
}

impl Target {
    /// The place at `url`, with these headers and those that every request has.
    pub fn new(url: &Url, headers: HeaderMap) -> Self {
        let (mut bare, mut all) = (url.clone(), HeaderMap::new());
        if let Some(proof) = proof(url) {
            all.insert(AUTHORIZATION, proof);
        }
        // An address with a host always has room for a user, so that nothing fails here.
        let _ = bare.set_username("").and_then(|()| bare.set_password(None));
        all.extend(headers);
        for (name, value) in [(ACCEPT, "*/*"), (USER_AGENT, AGENT), (ACCEPT_ENCODING, "gzip")] {
            all.entry(name).or_insert(HeaderValue::from_static(value));
        }
        // Where it is not there, hyper makes it anew for every request of HTTP/1.
        if let Some(host) = host(&bare).filter(|_| bare.scheme() == "http") {
            all.entry(HOST).or_insert(host);
        }
        // What hyper looks up and adds finds room: each request has a copy of the table, as large as this one.
        all.reserve(2);
        Self { uri: bare.as_str().parse().ok(), headers: all }
    }

    fn post(&self, body: Bytes) -> Result<Request<Full<Bytes>>, Lost> {
        let uri = self.uri.clone().ok_or_else(|| Lost::Unanswered("the address is too long".to_owned()))?;
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = uri;
        *request.headers_mut() = self.headers.clone();
        Ok(request)
    }
}

/// The host as requests of HTTP/1 name it.
fn host(url: &Url) -> Option<HeaderValue> {
    let name = url.host_str()?;
    url.port().map_or_else(|| name.try_into(), |port| format!("{name}:{port}").try_into()).ok()
}

/// The proof that an address like `https://user:password@host/` holds.
fn proof(url: &Url) -> Option<HeaderValue> {
    let plain = |text| percent_decode_str(text).decode_utf8().ok();
    let (user, password) = (plain(url.username())?, url.password().and_then(plain));
    if user.is_empty() && password.is_none() {
        return None;
    }
    let both = BASE64_STANDARD.encode(format!("{user}:{}", password.unwrap_or_default()));
    let mut proof = HeaderValue::try_from(format!("Basic {both}")).ok()?;
    proof.set_sensitive(true);
    Some(proof)
}

/// The cause at the root of an error.
fn root(error: &(dyn Error + 'static)) -> String {
    causes(error).last().unwrap_or(error).to_string()
}

fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

/// Whether the server said that it did not begin with the request: it is about to close the connection, or takes no more
/// requests on it. Requests on one connection share that fate by chance, so it is no failure of this one.
fn untouched(error: &(dyn Error + 'static)) -> bool {
    let said = causes(error).find_map(|cause| cause.downcast_ref::<h2::Error>()).filter(|error| error.is_remote());
    said.is_some_and(|error| {
        let reason = error.reason();
        error.is_go_away() && reason == Some(h2::Reason::NO_ERROR)
            || error.is_reset() && reason == Some(h2::Reason::REFUSED_STREAM)
    })
}

fn settings() -> Builder {
    let mut settings = Client::builder(Lines);
    settings.timer(TokioTimer::new()).pool_timer(TokioTimer::new());
    settings.pool_idle_timeout(limits::HTTP_IDLE).pool_max_idle_per_host(limits::HTTP_IDLE_PER_HOST);
    settings
}

/// The same trust as that of the general client: what the machine trusts, and `trusted`.
fn tls(trusted: &[CertificateDer<'static>]) -> Result<ClientConfig, Unbuilt> {
    install_tls();
    let provider = CryptoProvider::get_default().cloned().unwrap_or_else(|| Arc::new(ring::default_provider()));
    let unbuilt = |error: rustls::Error| Unbuilt(error.to_string());
    let verifier = Verifier::new_with_extra_roots(trusted.iter().cloned(), provider.clone()).map_err(unbuilt)?;
    let versions = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let settings = versions.map_err(unbuilt)?.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
    let mut tls = settings.with_no_client_auth();
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(tls)
}

type Trouble = Box<dyn Error + Send + Sync>;

/// Opens connections, in time. Shared, because the pool clones it for every request.
#[derive(Clone)]
struct Connector(Arc<HttpsConnector<HttpConnector<Addresses>>>);

impl Connector {
    fn new(addresses: Addresses, tls: ClientConfig) -> Self {
        let mut tcp = HttpConnector::new_with_resolver(addresses);
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(limits::MODEL_CONNECT));
        // What the general client has of itself: a peer that is gone without a word is noticed.
        tcp.set_keepalive(Some(Duration::from_secs(15)));
        tcp.set_keepalive_interval(Some(Duration::from_secs(15)));
        tcp.set_keepalive_retries(Some(3));
        #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
        tcp.set_tcp_user_timeout(Some(Duration::from_secs(30)));
        Self(Arc::new(HttpsConnector::from((tcp, tls))))
    }
}

/// The limit holds for names, addresses and TLS together.
#[derive(Debug, thiserror::Error)]
#[error("operation timed out")]
struct TimedOut;

impl Service<Uri> for Connector {
    type Response = Wire<MaybeHttpsStream<TokioIo<TcpStream>>>;
    type Error = Trouble;
    type Future = BoxFuture<'static, Result<Self::Response, Trouble>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Trouble>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let mut connector = HttpsConnector::clone(&self.0);
        Box::pin(async move {
            let connected = tokio::time::timeout(limits::MODEL_CONNECT, connector.call(to)).await;
            connected.map_err(|_| TimedOut)?.map(Wire::new)
        })
    }
}

#[cfg(test)]
mod tests;
