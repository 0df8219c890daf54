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

/// A server that answers once `together` requests are there; counts connections.
async fn server(together: usize) -> (String, Arc<AtomicUsize>) {
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
    let client = HttpClients::new().client().unwrap().clone();
    ask(&client, &address, together).await;
    assert_eq!(connections.load(Ordering::SeqCst), together);
    ask(&client, &address, together).await;
    assert_eq!(connections.load(Ordering::SeqCst), together + 1, "one of them was not kept");
}

#[tokio::test]
async fn an_idle_connection_is_given_up_in_time() {
    let (address, connections) = server(1).await;
    let client = HttpClients::new().client().unwrap().clone();
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
    let client = build(settings().dns_resolver(Nowhere)).unwrap();
    let mut asking = std::pin::pin!(client.get("http://nowhere.invalid/").send());
    let early = limits::MODEL_CONNECT - Duration::from_millis(1);
    assert!(tokio::time::timeout(early, &mut asking).await.is_err(), "it is given up too early");
    let error = tokio::time::timeout(Duration::from_secs(1), asking).await.unwrap().unwrap_err();
    assert!(error.is_connect() && error.is_timeout(), "{error:?}");
}

/// The connection stands, but the server says nothing of TLS.
#[tokio::test]
async fn a_silent_tls_handshake_is_given_up_in_time() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/", silent.local_addr().unwrap());
    let client = HttpClients::new().client().unwrap().clone();
    let mut asking = std::pin::pin!(client.get(url).send());
    let (_taken, _) = tokio::select! {
        taken = silent.accept() => taken.unwrap(),
        _ = &mut asking => panic!("nobody answered"),
    };
    tokio::time::pause();
    let early = limits::MODEL_CONNECT - Duration::from_secs(1);
    assert!(tokio::time::timeout(early, &mut asking).await.is_err(), "it is given up too early");
    let error = tokio::time::timeout(Duration::from_secs(2), asking).await.unwrap().unwrap_err();
    assert!(error.is_connect() && error.is_timeout(), "{error:?}");
}

/// Reads one request: it is small and comes in one piece.
async fn request(stream: &mut TcpStream) -> String {
    let mut bytes = vec![0; 4096];
    let read = stream.read(&mut bytes).await.unwrap();
    String::from_utf8_lossy(&bytes[..read]).into_owned()
}

/// A server that says this to everybody who asked something, and hangs up. Tells what it was asked.
async fn saying(says: impl Into<Vec<u8>>) -> (Url, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1/chat?version=1", listener.local_addr().unwrap()).parse().unwrap();
    let ((heard, asked), says) = (mpsc::unbounded_channel(), says.into());
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = heard.send(request(&mut stream).await);
            stream.write_all(&says).await.unwrap();
        }
    });
    (url, asked)
}

#[tokio::test]
async fn the_user_of_an_address_becomes_basic_credentials_unless_there_are_others() {
    let (mut url, mut asked) = saying("HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").await;
    url.set_username("ad%20min").unwrap();
    url.set_password(Some("se&cret=")).unwrap();
    let client = HttpClients::new().client().unwrap().clone();
    for (given, sent) in [(None, "Basic YWQgbWluOnNlJmNyZXQ9"), (Some("Bearer b"), "Bearer b")] {
        let headers = given.map(|value| (header::AUTHORIZATION, header::HeaderValue::from_static(value)));
        let response = client.post(url.clone()).headers(headers.into_iter().collect()).body("{}").send().await;
        assert_eq!(response.unwrap().status(), 200);
        let heard = asked.recv().await.unwrap();
        assert!(heard.starts_with("POST /v1/chat?version=1 HTTP/1.1\r\n") && heard.ends_with("\r\n\r\n{}"), "{heard}");
        assert!(heard.contains(&format!("\r\nauthorization: {sent}\r\n")), "{heard}");
        assert!(heard.contains(&format!("\r\nuser-agent: {USER_AGENT}\r\n")), "{heard}");
    }
}

/// What became of a request, and of the body of its response.
async fn outcome(url: Url) -> Result<Vec<u8>, TransportError> {
    let response = HttpClients::new().client().unwrap().post(url).send().await?;
    Ok(response.bytes().await?.to_vec())
}

#[tokio::test]
async fn failures_name_their_cause_and_never_the_address() {
    // Bound and never listening: nobody else gets the port, and nobody answers there.
    let nobody = tokio::net::TcpSocket::new_v4().unwrap();
    nobody.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let nobody: Url = format!("http://{}/v1/chat?version=1", nobody.local_addr().unwrap()).parse().unwrap();
    let mut plain = saying("What?").await.0;
    plain.set_scheme("https").unwrap();
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n";
    for (what, url, kind) in [
        ("nobody", nobody, "cannot connect: "),
        ("no TLS", plain, "cannot connect: "),
        ("no response", saying("").await.0, "no response: "),
        ("no HTTP", saying("What?\r\n\r\n").await.0, "no response: "),
        ("half a head", saying("HTTP/1.1 200 O").await.0, "no response: "),
        ("half a chunk", saying(format!("{head}\r\n9\r\nhi")).await.0, "the response broke off: "),
        ("no chunk", saying(format!("{head}\r\nxyz\r\n")).await.0, "the response broke off: "),
        ("half a body", saying("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhi").await.0, "the response broke off: "),
        (
            "no gzip",
            saying(format!("{head}content-encoding: gzip\r\n\r\n2\r\nhi\r\n0\r\n\r\n")).await.0,
            "the response broke off: ",
        ),
    ] {
        let port = url.port().unwrap().to_string();
        let told = outcome(url).await.unwrap_err().to_string();
        assert!(told.len() > kind.len() && told.starts_with(kind), "{what}: {told}");
        assert!(!told.contains(&port) && !told.contains("version=1"), "{what}: {told}");
    }
}

/// Each piece is told when it is there, although more is to come in the same packet of the compressor.
#[tokio::test]
async fn compressed_bodies_are_decompressed_as_they_come() {
    let mut packer = GzEncoder::new(Vec::new(), Compression::default());
    let mut piece = |text: &str| {
        packer.write_all(text.as_bytes()).unwrap();
        packer.flush().unwrap();
        std::mem::take(packer.get_mut())
    };
    let (first, second) = (piece("data: one\n\n"), piece("data: two\n\n"));
    let last = packer.finish().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let (went_on, mut goes_on) = mpsc::unbounded_channel::<()>();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        request(&mut stream).await;
        let head = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\nconnection: close\r\n\r\n".to_vec();
        for bytes in [head, first, second] {
            stream.write_all(&bytes).await.unwrap();
            goes_on.recv().await.unwrap();
        }
        stream.write_all(&last).await.unwrap();
    });
    let mut response = HttpClients::new().client().unwrap().get(url).send().await.unwrap();
    for expected in [Some("data: one\n\n"), Some("data: two\n\n"), None] {
        went_on.send(()).unwrap();
        let told = response.chunk().await.unwrap();
        assert_eq!(told.as_deref(), expected.map(str::as_bytes));
    }
}

fn packed(length: usize) -> Vec<u8> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::best());
    packer.write_all(&vec![b' '; length]).unwrap();
    let body = packer.finish().unwrap();
    let head = format!("HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n\r\n", body.len());
    [head.into_bytes(), body].concat()
}

#[tokio::test]
async fn a_body_is_read_up_to_its_limit_after_decompression() {
    let (url, _asked) = saying(packed(1000)).await;
    let client = HttpClients::new().client().unwrap().clone();
    let read = |limit| {
        let asked = client.get(url.clone()).send();
        async move { read_limited(asked.await.unwrap(), limit).await }
    };
    assert_eq!(read(1000).await.unwrap().len(), 1000);
    assert_eq!(read(999).await, Err(BodyError::TooLong { limit: 999 }));
    let (url, _asked) = saying("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhi").await;
    let broken = read_limited(client.get(url).send().await.unwrap(), 100).await;
    assert!(matches!(broken, Err(BodyError::Broken(TransportError::Body(_)))), "{broken:?}");
}

/// The next connection, on which one request was answered.
async fn answered(listener: &TcpListener) -> TcpStream {
    let (mut stream, _) = listener.accept().await.unwrap();
    request(&mut stream).await;
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
    stream
}

/// The server closes each connection as soon as it answered, without a word before.
#[tokio::test]
async fn a_kept_connection_that_its_server_closed_is_not_asked() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let client = HttpClients::new().client().unwrap().clone();
    for _ in 0..3 {
        let asked = async { client.post(&url).body("{}").send().await.unwrap().text().await.unwrap() };
        let (answer, stream) = tokio::join!(asked, answered(&listener));
        assert_eq!(answer, "ok");
        drop(stream);
        // The end of the connection is told to this process like anything else that comes.
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

/// A runtime that ends in the middle of a response ends; the client goes on in another with a new connection.
#[test]
fn a_runtime_that_ends_in_the_middle_of_an_answer_ends() {
    let outbound = HttpClients::new();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let first = runtime();
    first.block_on(async {
        let (address, _) = server(1).await;
        let response = outbound.client().unwrap().get(address).send().await.unwrap();
        tokio::spawn(async move {
            let _held = response;
            std::future::pending::<()>().await;
        });
        tokio::task::yield_now().await;
    });
    drop(first);
    runtime().block_on(async {
        let (address, connections) = server(1).await;
        ask(outbound.client().unwrap(), &address, 2).await;
        assert!(connections.load(Ordering::SeqCst) > 0);
    });
}

/// A server of HTTP/2 that refuses so many requests before it answers; then it answers all.
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

/// A server that says so did nothing with the request.
#[tokio::test]
async fn a_request_that_the_server_did_not_begin_with_is_sent_again() {
    // Over TLS the two agree on HTTP/2; without, it must be known.
    let client = build(settings().http2_prior_knowledge()).unwrap();
    for (refusals, asked_for) in [(0, 1), (1, 2), (2, 3)] {
        let (url, asked) = refusing(refusals).await;
        let response = client.post(url).body("{}").send().await.unwrap();
        assert_eq!(response.text().await.unwrap(), "ok");
        assert_eq!(asked.load(Ordering::SeqCst), asked_for);
    }
    let (url, asked) = refusing(usize::MAX).await;
    assert!(client.post(url).body("{}").send().await.is_err());
    assert!(asked.load(Ordering::SeqCst) < 10, "but not for ever");
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
    let outbound = HttpClients::new();
    let other = outbound.clone();
    assert!(outbound.client().is_ok_and(|a| other.client().is_ok_and(|b| std::ptr::eq(a, b))));
}
