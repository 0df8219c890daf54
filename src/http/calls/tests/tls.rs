//! Calls over TLS, in the version of HTTP on which the two agree.

use std::collections::BTreeSet;

use rustls::{
    ServerConfig,
    pki_types::{PrivateKeyDer, pem::PemObject},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use super::*;

/// What a server was asked: on which connection, for what, and as which host.
type Asked = (usize, String, Option<String>);

/// A server that speaks these protocols, and a client that trusts it. It answers "ok" to everything, when it was asked by so many.
async fn speaking(protocols: &[&str], together: usize) -> (Target, Calls, mpsc::UnboundedReceiver<Asked>) {
    install_tls();
    let certificate = CertificateDer::from_pem_slice(include_bytes!("localhost.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_slice(include_bytes!("localhost.pem")).unwrap();
    let chain = vec![certificate.clone()];
    let mut config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key).unwrap();
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    let (acceptor, listener) = (TlsAcceptor::from(Arc::new(config)), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let at = listener.local_addr().unwrap();
    let (heard, asked) = mpsc::unbounded_channel();
    let all = Arc::new(tokio::sync::Barrier::new(together));
    tokio::spawn(async move {
        for connection in 0.. {
            let stream = acceptor.accept(listener.accept().await.unwrap().0).await.unwrap();
            let (heard, all) = (heard.clone(), all.clone());
            let hear = move |path: &str, host| drop(heard.send((connection, path.to_owned(), host)));
            if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
                tokio::spawn(speak_http2(stream, hear, all));
            } else {
                tokio::spawn(speak_http1(stream, hear));
            }
        }
    });
    let addresses = Addresses::knowing("localhost", &[at]);
    let target = Target::new(&format!("https://localhost:{}/v1/chat?a=b", at.port()).parse().unwrap(), json());
    (target, Calls::new(addresses, &[certificate]).unwrap(), asked)
}

async fn speak_http1(mut stream: TlsStream<tokio::net::TcpStream>, hear: impl Fn(&str, Option<String>)) {
    let mut bytes = vec![0; 4096];
    loop {
        let read = stream.read(&mut bytes).await.unwrap_or(0);
        if read == 0 {
            break;
        }
        let text = String::from_utf8_lossy(&bytes[..read]).into_owned();
        let host = text.lines().find_map(|line| line.strip_prefix("host: ")).map(str::to_owned);
        hear(text.lines().next().unwrap(), host);
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
    }
}

async fn speak_http2(
    stream: TlsStream<tokio::net::TcpStream>,
    hear: impl Fn(&str, Option<String>),
    all: Arc<tokio::sync::Barrier>,
) {
    let mut requests = h2::server::handshake(stream).await.unwrap();
    while let Some(Ok((request, mut answer))) = requests.accept().await {
        let host = request.headers().get(HOST).map(|host| host.to_str().unwrap().to_owned());
        hear(&request.uri().to_string(), host);
        let all = all.clone();
        tokio::spawn(async move {
            all.wait().await;
            answer.send_response(Response::new(()), false).unwrap().send_data("ok".into(), true).unwrap();
        });
    }
}

#[tokio::test]
async fn a_server_of_http1_keeps_the_connection() {
    for protocols in [&["http/1.1"][..], &[]] {
        let (target, calls, mut asked) = speaking(protocols, 1).await;
        for _ in 0..3 {
            assert_eq!(text(calls.post(&target, "{}").await.unwrap()).await.as_deref(), Ok("ok"));
            let (connection, line, host) = asked.recv().await.unwrap();
            assert_eq!((connection, line.as_str()), (0, "POST /v1/chat?a=b HTTP/1.1"));
            assert!(host.is_some_and(|host| host.starts_with("localhost:")));
        }
    }
}

#[tokio::test]
async fn a_server_of_http2_is_asked_by_all_on_one_connection() {
    const TOGETHER: usize = 8;
    let (target, calls, mut asked) = speaking(&["h2", "http/1.1"], 1).await;
    assert_eq!(text(calls.post(&target, "{}").await.unwrap()).await.as_deref(), Ok("ok"));
    let (connection, uri, host) = asked.recv().await.unwrap();
    assert!(connection == 0 && uri.starts_with("https://localhost:") && uri.ends_with("/v1/chat?a=b"), "{uri}");
    assert_eq!(host, None, "the address names it");

    // Nobody is answered before all have asked.
    let (target, calls, mut asked) = speaking(&["h2"], TOGETHER).await;
    for _ in 0..2 {
        let answers = (0..TOGETHER).map(|_| async { text(calls.post(&target, "{}").await.unwrap()).await });
        assert!(join_all(answers).await.iter().all(|answer| answer.as_deref() == Ok("ok")));
    }
    let mut connections = Vec::new();
    while let Ok((connection, ..)) = asked.try_recv() {
        connections.push(connection);
    }
    let (first, second) = connections.split_at(TOGETHER);
    let second = BTreeSet::from_iter(second);
    assert!(second.len() == 1 && first.contains(second.first().unwrap()), "{connections:?}");
}

#[tokio::test]
async fn a_host_that_was_given_is_named_in_every_version() {
    for protocols in [&["http/1.1"][..], &["h2"]] {
        let (mut target, calls, mut asked) = speaking(protocols, 1).await;
        let mut headers = json();
        headers.insert(HOST, HeaderValue::from_static("models.example"));
        let url: Url = target.place.take().unwrap().whole.to_string().parse().unwrap();
        assert_eq!(text(calls.post(&Target::new(&url, headers), "").await.unwrap()).await.as_deref(), Ok("ok"));
        assert_eq!(asked.recv().await.unwrap().2.as_deref(), Some("models.example"));
    }
}
