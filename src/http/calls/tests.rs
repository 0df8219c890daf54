#![allow(clippy::unwrap_used, clippy::panic)]
use std::{
    io::Write,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use flate2::{Compression, write::GzEncoder};
use futures::{StreamExt, TryStreamExt, future::join_all};
use hyper::Response;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    sync::mpsc,
};

use super::*;
use crate::http::{Outbound, install_tls, tests::server as answering};

mod tls;

fn json() -> HeaderMap {
    let plain = [("content-type", "application/json"), ("x-api-key", "k")];
    plain.into_iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
}

async fn text(reply: Reply) -> Result<String, Lost> {
    let bytes: Vec<Bytes> = reply.read(|lost| lost).try_collect().await?;
    Ok(String::from_utf8(bytes.concat()).unwrap())
}

/// A server that says this to everybody who asked something, and hangs up. Tells what it was asked.
async fn server(says: impl Into<Vec<u8>>) -> (Url, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1/chat?version=1", listener.local_addr().unwrap()).parse().unwrap();
    let ((heard, asked), says) = (mpsc::unbounded_channel(), says.into());
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            // One read is one request: it is small and comes in one piece.
            let mut bytes = vec![0; 4096];
            let read = stream.read(&mut bytes).await.unwrap();
            let _ = heard.send(String::from_utf8_lossy(bytes.get(..read).unwrap()).into_owned());
            stream.write_all(&says).await.unwrap();
        }
    });
    (url, asked)
}

const EMPTY: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

#[tokio::test]
async fn a_call_goes_out_as_the_general_client_sends_it() {
    let outbound = Outbound::new();
    let (url, mut asked) = server(EMPTY).await;
    let mut known = url.clone();
    known.set_username("ad%20min").unwrap();
    known.set_password(Some("se&cret=")).unwrap();
    let mut proven = json();
    proven.insert(AUTHORIZATION, HeaderValue::from_static("Bearer b"));
    for (url, headers) in [(&url, json()), (&url, HeaderMap::new()), (&known, json()), (&known, proven)] {
        let general = outbound.client().unwrap().post(url.clone()).headers(headers.clone()).body("{}");
        assert_eq!(general.send().await.unwrap().status(), 200);
        let reply = outbound.calls().unwrap().post(&Target::new(url, headers), "{}").await.unwrap();
        assert_eq!(reply.status(), 200);
        let sent = asked.recv().await.unwrap();
        assert!(sent.starts_with("POST /v1/chat?version=1 HTTP/1.1\r\n") && sent.ends_with("\r\n\r\n{}"), "{sent}");
        assert_eq!(asked.recv().await.unwrap(), sent);
    }
}

#[tokio::test]
async fn what_goes_wrong_has_the_words_of_the_general_client() {
    async fn general(url: &Url) -> Result<String, reqwest::Error> {
        Outbound::new().client().unwrap().post(url.clone()).send().await?.text().await
    }
    // Bound and never listening: nobody else gets the port, and nobody answers there.
    let nobody = tokio::net::TcpSocket::new_v4().unwrap();
    nobody.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let nobody: Url = format!("http://{}", nobody.local_addr().unwrap()).parse().unwrap();
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n";
    for (what, url) in [
        ("nobody", nobody),
        ("no TLS", {
            let mut url = server("What?").await.0;
            url.set_scheme("https").unwrap();
            url
        }),
        ("no answer", server("").await.0),
        ("no HTTP", server("What?\r\n\r\n").await.0),
        ("half a head", server("HTTP/1.1 200 O").await.0),
        ("half a chunk", server(format!("{head}\r\n9\r\nhi")).await.0),
        ("no chunk", server(format!("{head}\r\nxyz\r\n")).await.0),
        ("half a body", server("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhi").await.0),
        ("not packed", server(format!("{head}content-encoding: gzip\r\n\r\n2\r\nhi\r\n0\r\n\r\n")).await.0),
    ] {
        let error = general(&url).await.unwrap_err().without_url();
        let expected = format!("{error}: {}", root(&error));
        let called = match Outbound::new().calls().unwrap().post(&Target::new(&url, json()), "").await {
            Ok(reply) => text(reply).await,
            Err(lost) => Err(lost),
        };
        assert_eq!(called.unwrap_err().to_string(), expected, "{what}");
    }
}

#[tokio::test]
async fn an_address_that_no_request_can_carry_is_told() {
    let url = format!("http://127.0.0.1:1/{}", "a".repeat(70_000)).parse().unwrap();
    let lost = Outbound::new().calls().unwrap().post(&Target::new(&url, json()), "").await.err();
    assert_eq!(lost, Some(Lost::Unanswered("the address is too long".into())));
}

/// Each piece is told when it is there, although more is to come in the same packet of the compressor.
#[tokio::test]
async fn packed_answers_are_unpacked_as_they_come() {
    let mut packer = GzEncoder::new(Vec::new(), Compression::default());
    let mut piece = |text: &str| {
        packer.write_all(text.as_bytes()).unwrap();
        packer.flush().unwrap();
        std::mem::take(packer.get_mut())
    };
    let (first, second) = (piece("data: one\n\n"), piece("data: two\n\n"));
    let last = packer.finish().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
    let (went_on, mut goes_on) = mpsc::unbounded_channel::<()>();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.read(&mut [0; 4096]).await.unwrap();
        let head = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\nconnection: close\r\n\r\n".to_vec();
        for bytes in [head, first, second, last] {
            stream.write_all(&bytes).await.unwrap();
            goes_on.recv().await.unwrap();
        }
    });
    let outbound = Outbound::new();
    let reply = outbound.calls().unwrap().post(&Target::new(&url, json()), "").await.unwrap();
    let mut bytes = reply.read(|lost| lost);
    for expected in [Some("data: one\n\n"), Some("data: two\n\n"), None] {
        went_on.send(()).unwrap();
        let told = bytes.next().await.map(|bytes| bytes.unwrap());
        assert_eq!(told.as_deref(), expected.map(str::as_bytes));
    }
}

/// What one chunk of an answer looks like on the wire.
fn chunk(bytes: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

/// How long each piece is that a reader gets of an answer that is there as a whole, and what comes last.
async fn pieces(chunks: Vec<Vec<u8>>, end: &[u8]) -> (Vec<usize>, Option<Lost>) {
    let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    let (url, _asked) =
        server([head, chunks.iter().flat_map(|bytes| chunk(bytes)).collect(), end.to_vec()].concat()).await;
    let outbound = Outbound::new();
    let reply = outbound.calls().unwrap().post(&Target::new(&url, json()), "").await.unwrap();
    let (mut bytes, mut told, mut lengths) = (reply.read(|lost| lost), Vec::new(), Vec::new());
    let lost = loop {
        match bytes.next().await {
            Some(Ok(piece)) => {
                lengths.push(piece.len());
                told.extend_from_slice(&piece);
            }
            Some(Err(lost)) => break Some(lost),
            None => break None,
        }
    };
    assert!(told.starts_with(&chunks.concat()), "nothing is lost, and nothing comes twice");
    (lengths, lost)
}

#[tokio::test]
async fn what_is_there_already_comes_in_one_piece() {
    let numbered = |count: usize, length: usize| (0..count).map(|n| vec![u8::try_from(n).unwrap(); length]).collect();
    let end = b"0\r\n\r\n";
    assert_eq!(pieces(numbered(1, 10), end).await, (vec![10], None));
    assert_eq!(pieces(numbered(13, 10), end).await, (vec![130], None));
    let most = limits::HTTP_BURST;
    assert_eq!(pieces(numbered(most + 2, 10), end).await, (vec![most * 10, 20], None));
    let (lengths, lost) = pieces(numbered(13, 10), b"5\r\nhi").await;
    assert_eq!(lengths, [132], "what came before the end is told first");
    assert!(matches!(lost, Some(Lost::Cut(_))), "{lost:?}");
    // How much of a long answer is there depends on the system.
    let (lengths, lost) = pieces(numbered(100, limits::HTTP_BURST_BYTES / 4), end).await;
    assert!(lost.is_none() && lengths.iter().all(|length| *length <= limits::HTTP_BURST_BYTES * 2), "{lengths:?}");
}

/// A connection whose reader hangs up in the middle of a burst is closed, whoever looked at it last.
#[tokio::test]
async fn who_hangs_up_closes_the_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
    let outbound = Outbound::new();
    let asked = async {
        let reply = outbound.calls().unwrap().post(&Target::new(&url, json()), "").await.unwrap();
        let mut bytes = reply.read(|lost| lost);
        assert_eq!(bytes.next().await.unwrap().unwrap(), "hi");
    };
    let served = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.read(&mut [0; 4096]).await.unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n").await.unwrap();
        stream
    };
    let ((), mut stream) = tokio::join!(asked, served);
    assert_eq!(stream.read(&mut [0; 10]).await.unwrap(), 0);
}

#[tokio::test]
async fn who_has_read_everything_leaves_the_connection_to_the_next_call() {
    let ((address, connections), outbound) = (answering(1).await, Outbound::new());
    let target = Target::new(&address.parse().unwrap(), json());
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let mut alive = Vec::new();
    for _ in 0..20 {
        let mut bytes = outbound.calls().unwrap().post(&target, "").await.unwrap().read(|lost| lost);
        alive.push(tasks());
        assert_eq!(bytes.next().await.unwrap().unwrap(), "ok");
        assert!(bytes.next().await.is_none());
    }
    // The server's listener and its connection, and what gives up our own in time.
    assert!(alive.iter().all(|alive| *alive <= 3), "neither a call nor its connection has a task: {alive:?}");
    // The next call begins while the bytes of the last one are still held.
    let mut held = outbound.calls().unwrap().post(&target, "").await.unwrap().read(|lost| lost);
    assert_eq!(held.next().await.unwrap().unwrap(), "ok");
    assert!(held.next().await.is_none());
    let reply = outbound.calls().unwrap().post(&target, "").await.unwrap();
    assert_eq!((text(reply).await.as_deref(), connections.load(Ordering::SeqCst)), (Ok("ok"), 1));
}

/// The next connection, on which one question was answered.
async fn answered(listener: &TcpListener) -> tokio::net::TcpStream {
    let (mut stream, _) = listener.accept().await.unwrap();
    let _ = stream.read(&mut [0; 4096]).await.unwrap();
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
    stream
}

/// The server closes each connection as soon as it answered, without a word before.
#[tokio::test]
async fn a_kept_connection_that_its_server_closed_is_not_asked() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = Target::new(&format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap(), json());
    let outbound = Outbound::new();
    for _ in 0..3 {
        let asked = async { text(outbound.calls().unwrap().post(&target, "").await.unwrap()).await };
        let (answer, stream) = tokio::join!(asked, answered(&listener));
        assert_eq!(answer.as_deref(), Ok("ok"));
        drop(stream);
        // The end of the connection is told to this process like anything else that comes.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }
}

/// A server waits for the other side to close as well.
#[tokio::test]
async fn a_kept_connection_that_its_server_closed_is_closed_soon() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = Target::new(&format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap(), json());
    let outbound = Outbound::new();
    let asked = async { text(outbound.calls().unwrap().post(&target, "").await.unwrap()).await };
    let (answer, mut stream) = tokio::join!(asked, answered(&listener));
    assert_eq!(answer.as_deref(), Ok("ok"));
    tokio::time::pause();
    stream.shutdown().await.unwrap();
    let closed = tokio::time::timeout(limits::HTTP_IDLE / 2, stream.read(&mut [0; 10])).await;
    assert_eq!(closed.unwrap().unwrap(), 0);
}

/// A piece that comes later wakes who waits for it, and nothing else runs the connection meanwhile.
#[tokio::test]
async fn who_waits_for_a_piece_is_woken_by_it() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = Target::new(&format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap(), json());
    let (told, mut read) = mpsc::unbounded_channel();
    let asking = tokio::spawn(async move {
        let mut bytes = Outbound::new().calls().unwrap().post(&target, "").await.unwrap().read(|lost| lost);
        while let Some(piece) = bytes.next().await {
            told.send(piece.unwrap()).unwrap();
        }
    });
    let (mut stream, _) = listener.accept().await.unwrap();
    let _ = stream.read(&mut [0; 4096]).await.unwrap();
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n").await.unwrap();
    for piece in ["ab", "cd", "ef"] {
        tokio::task::yield_now().await;
        assert!(read.try_recv().is_err());
        stream.write_all(piece.as_bytes()).await.unwrap();
        assert_eq!(read.recv().await.unwrap(), piece);
    }
    asking.await.unwrap();
}

/// Its tasks are dropped, answers and all, when it takes no new ones any more.
#[test]
fn a_runtime_that_ends_in_the_middle_of_an_answer_ends() {
    let outbound = Outbound::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (address, _) = answering(1).await;
        let target = Target::new(&address.parse().unwrap(), json());
        let reply = outbound.calls().unwrap().post(&target, "").await.unwrap();
        tokio::spawn(async move {
            let _held = reply;
            std::future::pending::<()>().await;
        });
        tokio::task::yield_now().await;
    });
    drop(runtime);
    // And the client goes on in another, with a new connection.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (address, connections) = answering(1).await;
        ask(&outbound, &address, 2).await;
        assert!(connections.load(Ordering::SeqCst) > 0);
    });
}

#[tokio::test]
async fn whose_answer_is_not_read_does_not_hold_the_others_up() {
    let ((address, connections), outbound) = (answering(1).await, Outbound::new());
    let target = Target::new(&address.parse().unwrap(), json());
    for _ in 0..3 {
        drop(outbound.calls().unwrap().post(&target, "").await.unwrap());
    }
    let reply = outbound.calls().unwrap().post(&target, "").await.unwrap();
    assert_eq!(text(reply).await.as_deref(), Ok("ok"));
    assert!((1..=4).contains(&connections.load(Ordering::SeqCst)));
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
                        let mut body = answer.send_response(Response::new(()), false).unwrap();
                        body.send_data("ok".into(), true).unwrap();
                    }
                }
            });
        }
    });
    (url, asked)
}

#[tokio::test]
async fn a_call_that_the_server_did_not_begin_with_is_sent_again() {
    let most = limits::HTTP_UNTOUCHED as usize;
    for (refusals, asked_for, answered) in [(0, 1, true), (most - 1, most, true), (most, most, false)] {
        let (url, asked) = refusing(refusals).await;
        let connector = Connector::new(Addresses::default(), connector::tls(&[]).unwrap());
        // Over TLS the two agree on it; without, it must be known.
        let calls = Calls(Pool::http2(connector));
        match calls.post(&Target::new(&url, json()), "{}").await {
            Ok(reply) => assert_eq!(text(reply).await.as_deref(), Ok("ok")),
            Err(lost) => assert!(!answered && lost.to_string().contains("refused"), "{lost}"),
        }
        assert_eq!(asked.load(Ordering::SeqCst), asked_for);
    }
}

async fn ask(outbound: &Outbound, address: &str, times: usize) {
    let target = Target::new(&address.parse().unwrap(), json());
    let asked = (0..times).map(|_| async { text(outbound.calls().unwrap().post(&target, "").await.unwrap()).await });
    for answer in join_all(asked).await {
        assert_eq!(answer.as_deref(), Ok("ok"));
    }
    // The connections go back by themselves.
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn no_more_idle_connections_are_kept_than_allowed() {
    let together = limits::HTTP_IDLE_PER_HOST + 1;
    let ((address, connections), outbound) = (answering(together).await, Outbound::new());
    for expected in [together, together + 1] {
        ask(&outbound, &address, together).await;
        assert_eq!(connections.load(Ordering::SeqCst), expected);
    }
}

#[tokio::test]
async fn an_idle_connection_is_given_up_in_time() {
    let ((address, connections), outbound) = (answering(1).await, Outbound::new());
    for (pause, expected) in [(Duration::ZERO, 1), (limits::HTTP_IDLE / 2, 1), (limits::HTTP_IDLE, 2)] {
        tokio::time::pause();
        tokio::time::advance(pause).await;
        tokio::time::resume();
        ask(&outbound, &address, 1).await;
        assert_eq!(connections.load(Ordering::SeqCst), expected, "after {pause:?}");
    }
}

/// It takes the connection, and says nothing of TLS.
#[tokio::test]
async fn a_server_that_cannot_be_reached_is_given_up_in_time() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/", silent.local_addr().unwrap()).parse().unwrap();
    let (outbound, target) = (Outbound::new(), Target::new(&url, json()));
    let mut asking = std::pin::pin!(outbound.calls().unwrap().post(&target, ""));
    let (_taken, _) = tokio::select! {
        taken = silent.accept() => taken.unwrap(),
        _ = &mut asking => panic!("nobody answered"),
    };
    tokio::time::pause();
    let early = limits::MODEL_CONNECT - Duration::from_secs(1);
    assert!(tokio::time::timeout(early, &mut asking).await.is_err(), "it is given up too early");
    let lost = tokio::time::timeout(Duration::from_secs(2), asking).await.unwrap().err();
    assert_eq!(lost, Some(Lost::Unanswered("operation timed out".into())));
}
