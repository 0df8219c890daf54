//! How connections for calls are opened: names looked up, TLS, and how long it may take.

use std::{error::Error, sync::Arc, time::Duration};

use hyper::Uri;
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::{
    client::legacy::connect::{Connection, HttpConnector},
    rt::TokioIo,
};
use rustls::{
    ClientConfig,
    crypto::{CryptoProvider, ring},
    pki_types::CertificateDer,
};
use rustls_platform_verifier::Verifier;
use tokio::net::TcpStream;
use tower::Service;

use crate::{
    http::{Unbuilt, addresses::Addresses, install_tls},
    limits,
};

/// The same trust as that of the general client: what the machine trusts, and `trusted`.
pub(super) fn tls(trusted: &[CertificateDer<'static>]) -> Result<ClientConfig, Unbuilt> {
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

/// What goes wrong on the way to a connection.
pub(super) type Trouble = Box<dyn Error + Send + Sync>;

/// Bytes to a server and from it.
pub(super) type Wire = MaybeHttpsStream<TokioIo<TcpStream>>;

/// Opens connections, in time.
pub(super) struct Connector(HttpsConnector<HttpConnector<Addresses>>);

impl Connector {
    pub(super) fn new(addresses: Addresses, tls: ClientConfig) -> Self {
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
        Self(HttpsConnector::from((tcp, tls)))
    }

    /// A connection to the server of `to`, and whether the two agreed on HTTP/2.
    pub(super) async fn open(&self, to: Uri) -> Result<(Wire, bool), Trouble> {
        // The future of a connection is large, and few calls need one.
        let opened = Box::pin(tokio::time::timeout(limits::MODEL_CONNECT, self.0.clone().call(to)));
        let wire = opened.await.map_err(|_| TimedOut)??;
        let http2 = wire.connected().is_negotiated_h2();
        Ok((wire, http2))
    }
}

/// The limit holds for names, addresses and TLS together.
#[derive(Debug, thiserror::Error)]
#[error("operation timed out")]
struct TimedOut;
