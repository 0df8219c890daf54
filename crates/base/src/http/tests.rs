#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]
use std::{
    io::Write,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use flate2::{Compression, write::GzEncoder};
use reqwest::{Url, header};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{Barrier, mpsc},
};

use super::*;

/// A server that responds once `concurrent` requests have arrived; counts connections.
async fn server(concurrent: usize) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/", listener.local_addr().unwrap());
    let connections = Arc::new(AtomicUsize::new(0));
    let (count, barrier) = (connections.clone(), Arc::new(Barrier::new(concurrent)));
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            count.fetch_add(1, Ordering::SeqCst);
            let barrier = barrier.clone();
            tokio::spawn(async move {
                let mut bytes = [0; 4096];
                // One read is one request, because it is small and arrives in one packet.
                while stream.read(&mut bytes).await.is_ok_and(|read| read > 0) {
                    barrier.wait().await;
                    // Chunked, as responses of models are.
                    let answer = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
                    stream.write_all(answer).await.unwrap();
                }
            });
        }
    });
    (address, connections)
}

async fn get(client: &reqwest::Client, address: &str, times: usize) {
    let asked = (0..times).map(|_| async { client.get(address).send().await.unwrap().text().await.unwrap() });
    for answer in futures::future::join_all(asked).await {
        assert_eq!(answer, "ok");
    }
    // Lets the connections return to the pool.
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn idle_connections_per_host_are_limited() {
    let concurrent = limits::HTTP_IDLE_PER_HOST + 1;
    let (address, connections) = server(concurrent).await;
    let client = HttpClients::new().client().unwrap().clone();
    get(&client, &address, concurrent).await;
    assert_eq!(connections.load(Ordering::SeqCst), concurrent);
    get(&client, &address, concurrent).await;
    assert_eq!(connections.load(Ordering::SeqCst), concurrent + 1, "one connection was closed");
}

#[tokio::test]
async fn an_idle_connection_is_closed_after_the_timeout() {
    let (address, connections) = server(1).await;
    let client = HttpClients::new().client().unwrap().clone();
    for (pause, expected) in [(Duration::ZERO, 1), (limits::HTTP_IDLE / 2, 1), (limits::HTTP_IDLE, 2)] {
        tokio::time::pause();
        tokio::time::advance(pause).await;
        tokio::time::resume();
        get(&client, &address, 1).await;
        assert_eq!(connections.load(Ordering::SeqCst), expected, "after {pause:?}");
    }
}

/// A resolver that never responds.
struct PendingResolver;

impl reqwest::dns::Resolve for PendingResolver {
    fn resolve(&self, _: reqwest::dns::Name) -> reqwest::dns::Resolving {
        Box::pin(std::future::pending())
    }
}

#[tokio::test(start_paused = true)]
async fn connecting_times_out() {
    let client = build(settings().dns_resolver(PendingResolver)).unwrap();
    let mut asking = std::pin::pin!(client.get("http://nowhere.invalid/").send());
    let early = limits::MODEL_CONNECT - Duration::from_millis(1);
    assert!(tokio::time::timeout(early, &mut asking).await.is_err(), "it timed out too early");
    let error = tokio::time::timeout(Duration::from_secs(1), asking).await.unwrap().unwrap_err();
    assert!(error.is_connect() && error.is_timeout(), "{error:?}");
}

/// The connection is established, but the server sends no TLS handshake.
#[tokio::test]
async fn an_unanswered_tls_handshake_times_out() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/", silent.local_addr().unwrap());
    let client = HttpClients::new().client().unwrap().clone();
    let mut asking = std::pin::pin!(client.get(url).send());
    let (_taken, _) = tokio::select! {
        taken = silent.accept() => taken.unwrap(),
        _ = &mut asking => panic!("no server can have responded"),
    };
    tokio::time::pause();
    // Until here the clock ran.
    let early = Duration::from_millis(500);
    assert!(tokio::time::timeout(early, &mut asking).await.is_err(), "it timed out too early");
    let error = tokio::time::timeout(limits::MODEL_CONNECT, asking).await.unwrap().unwrap_err();
    assert!(error.is_connect() && error.is_timeout(), "{error:?}");
}

/// Reads one request, which is small and arrives in one packet.
async fn request(stream: &mut TcpStream) -> String {
    let mut bytes = vec![0; 4096];
    let read = stream.read(&mut bytes).await.unwrap();
    String::from_utf8_lossy(&bytes[..read]).into_owned()
}

/// A server that answers every request with these bytes and closes the connection; also returns the requests it received.
async fn responding(response: impl Into<Vec<u8>>) -> (Url, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1/chat?version=1", listener.local_addr().unwrap()).parse().unwrap();
    let ((sender, requests), response) = (mpsc::unbounded_channel(), response.into());
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = sender.send(request(&mut stream).await);
            stream.write_all(&response).await.unwrap();
        }
    });
    (url, requests)
}

#[tokio::test]
async fn the_user_of_an_address_becomes_basic_credentials_unless_a_header_is_set() {
    let (mut url, mut requests) = responding("HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").await;
    url.set_username("ad%20min").unwrap();
    url.set_password(Some("se&cret=")).unwrap();
    let client = HttpClients::new().client().unwrap().clone();
    for (given, sent) in [(None, "Basic YWQgbWluOnNlJmNyZXQ9"), (Some("Bearer b"), "Bearer b")] {
        let headers = given.map(|value| (header::AUTHORIZATION, header::HeaderValue::from_static(value)));
        let response = client.post(url.clone()).headers(headers.into_iter().collect()).body("{}").send().await;
        assert_eq!(response.unwrap().status(), 200);
        let received = requests.recv().await.unwrap();
        assert!(
            received.starts_with("POST /v1/chat?version=1 HTTP/1.1\r\n") && received.ends_with("\r\n\r\n{}"),
            "{received}"
        );
        assert!(received.contains(&format!("\r\nauthorization: {sent}\r\n")), "{received}");
        assert!(received.contains(&format!("\r\nuser-agent: {USER_AGENT}\r\n")), "{received}");
    }
}

/// Sends a request and reads the body of its response.
async fn outcome(url: Url) -> Result<Vec<u8>, TransportError> {
    let response = HttpClients::new().client().unwrap().post(url).send().await?;
    Ok(response.bytes().await?.to_vec())
}

#[tokio::test]
async fn errors_name_their_cause_and_never_the_address() {
    // Bound and never listening: no other process gets the port, and nothing responds there.
    let unreachable = tokio::net::TcpSocket::new_v4().unwrap();
    unreachable.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let unreachable: Url = format!("http://{}/v1/chat?version=1", unreachable.local_addr().unwrap()).parse().unwrap();
    let mut plain = responding("What?").await.0;
    plain.set_scheme("https").unwrap();
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n";
    for (what, url, kind) in [
        ("unreachable", unreachable, "cannot connect: "),
        ("no TLS", plain, "cannot connect: "),
        ("no response", responding("").await.0, "no response: "),
        ("no HTTP", responding("What?\r\n\r\n").await.0, "no response: "),
        ("half a head", responding("HTTP/1.1 200 O").await.0, "no response: "),
        ("half a chunk", responding(format!("{head}\r\n9\r\nhi")).await.0, "the response broke off: "),
        ("no chunk", responding(format!("{head}\r\nxyz\r\n")).await.0, "the response broke off: "),
        (
            "half a body",
            responding("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhi").await.0,
            "the response broke off: ",
        ),
        (
            "no gzip",
            responding(format!("{head}content-encoding: gzip\r\n\r\n2\r\nhi\r\n0\r\n\r\n")).await.0,
            "the response broke off: ",
        ),
    ] {
        let port = url.port().unwrap().to_string();
        let message = outcome(url).await.unwrap_err().to_string();
        assert!(message.len() > kind.len() && message.starts_with(kind), "{what}: {message}");
        assert!(!message.contains(&port) && !message.contains("version=1"), "{what}: {message}");
    }
}

/// A chunk is returned as soon as it has arrived, although the gzip stream continues.
#[tokio::test]
async fn compressed_bodies_are_decompressed_as_they_arrive() {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    let mut chunk = |text: &str| {
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.flush().unwrap();
        std::mem::take(encoder.get_mut())
    };
    let (first, second) = (chunk("data: one\n\n"), chunk("data: two\n\n"));
    let last = encoder.finish().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let (resume, mut resumed) = mpsc::unbounded_channel::<()>();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        request(&mut stream).await;
        let head = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\nconnection: close\r\n\r\n".to_vec();
        for bytes in [head, first, second] {
            stream.write_all(&bytes).await.unwrap();
            resumed.recv().await.unwrap();
        }
        stream.write_all(&last).await.unwrap();
    });
    let mut response = HttpClients::new().client().unwrap().get(url).send().await.unwrap();
    for expected in [Some("data: one\n\n"), Some("data: two\n\n"), None] {
        resume.send(()).unwrap();
        let chunk = response.chunk().await.unwrap();
        assert_eq!(chunk.as_deref(), expected.map(str::as_bytes));
    }
}

fn gzip_response(length: usize) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&vec![b' '; length]).unwrap();
    let body = encoder.finish().unwrap();
    let head = format!("HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n\r\n", body.len());
    [head.into_bytes(), body].concat()
}

#[tokio::test]
async fn the_size_limit_counts_decompressed_bytes() {
    let (url, _requests) = responding(gzip_response(1000)).await;
    let client = HttpClients::new().client().unwrap().clone();
    let read = |limit| {
        let asked = client.get(url.clone()).send();
        async move { read_limited(asked.await.unwrap(), limit).await }
    };
    assert_eq!(read(1000).await.unwrap().len(), 1000);
    assert_eq!(read(999).await, Err(BodyError::TooLong { limit: 999 }));
    let (url, _requests) = responding("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhi").await;
    let broken = read_limited(client.get(url).send().await.unwrap(), 100).await;
    assert!(matches!(broken, Err(BodyError::Broken(TransportError::Body(_)))), "{broken:?}");
}

/// Accepts a connection and answers one request on it.
async fn serve_one(listener: &TcpListener) -> TcpStream {
    let (mut stream, _) = listener.accept().await.unwrap();
    request(&mut stream).await;
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
    stream
}

/// The server closes each connection after its response, without announcing it.
#[tokio::test]
async fn a_pooled_connection_that_the_server_closed_is_not_reused() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let client = HttpClients::new().client().unwrap().clone();
    for _ in 0..3 {
        let asked = async { client.post(&url).body("{}").send().await.unwrap().text().await.unwrap() };
        let (answer, stream) = tokio::join!(asked, serve_one(&listener));
        assert_eq!(answer, "ok");
        drop(stream);
        // Lets the client notice the end of the connection.
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn dropping_a_response_closes_its_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let client = HttpClients::new().client().unwrap().clone();
    let asked = async {
        let mut response = client.get(url).send().await.unwrap();
        assert_eq!(response.chunk().await.unwrap().unwrap(), "hi");
    };
    let served = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        request(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n").await.unwrap();
        stream
    };
    let ((), mut stream) = tokio::join!(asked, served);
    assert_eq!(stream.read(&mut [0; 10]).await.unwrap(), 0);
}

/// The first runtime shuts down during a response; the client then works in another runtime with a new connection.
#[test]
fn a_runtime_can_shut_down_during_a_response() {
    let clients = HttpClients::new();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let first = runtime();
    first.block_on(async {
        let (address, _) = server(1).await;
        let response = clients.client().unwrap().get(address).send().await.unwrap();
        tokio::spawn(async move {
            let _held = response;
            std::future::pending::<()>().await;
        });
        tokio::task::yield_now().await;
    });
    drop(first);
    runtime().block_on(async {
        let (address, connections) = server(1).await;
        get(clients.client().unwrap(), &address, 2).await;
        assert!(connections.load(Ordering::SeqCst) > 0);
    });
}

/// An HTTP/2 server that refuses this many requests and responds to all further ones.
async fn refusing(refusals: usize) -> (Url, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let mut requests = h2::server::handshake(stream).await.unwrap();
            let count = count.clone();
            tokio::spawn(async move {
                while let Some(Ok((_, mut answer))) = requests.accept().await {
                    if count.fetch_add(1, Ordering::SeqCst) < refusals {
                        answer.send_reset(h2::Reason::REFUSED_STREAM);
                    } else {
                        let mut body = answer.send_response(Default::default(), false).unwrap();
                        body.send_data("ok".into(), true).unwrap();
                    }
                }
            });
        }
    });
    (url, asked)
}

/// `REFUSED_STREAM` guarantees that the server did not process the request (RFC 9113, section 8.7).
#[tokio::test]
async fn a_refused_stream_is_retried() {
    // Without TLS there is no negotiation of HTTP/2.
    let client = build(settings().http2_prior_knowledge()).unwrap();
    for (refusals, asked_for) in [(0, 1), (1, 2), (2, 3)] {
        let (url, asked) = refusing(refusals).await;
        let response = client.post(url).body("{}").send().await.unwrap();
        assert_eq!(response.text().await.unwrap(), "ok");
        assert_eq!(asked.load(Ordering::SeqCst), asked_for);
    }
    let (url, asked) = refusing(usize::MAX).await;
    assert!(client.post(url).body("{}").send().await.is_err());
    assert!(asked.load(Ordering::SeqCst) < 10, "the number of retries is limited");
}

#[test]
fn endpoint_urls_are_http_and_never_metadata_services() {
    for good in ["http://localhost:8000/v1", "https://10.0.0.1", "http://[::1]:80/"] {
        assert!(parse_endpoint_url(good).is_ok(), "{good}");
    }
    // The second is the metadata service with its address as one number.
    for bad in [
        "http://169.254.169.254/v1",
        "http://2852039166/",
        "http://[fd00:ec2::254]/",
        "file:///etc",
        "x",
        "localhost:80",
    ] {
        assert!(parse_endpoint_url(bad).is_err(), "{bad}");
    }
}

#[test]
fn clones_share_one_client() {
    let clients = HttpClients::new();
    let other = clients.clone();
    assert!(clients.client().is_ok_and(|a| other.client().is_ok_and(|b| std::ptr::eq(a, b))));
}
