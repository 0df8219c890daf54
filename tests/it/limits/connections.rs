//! Limits of connections: slow clients, many clients, and the end of the server.

use segue::limits;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{
    held::{served, served_routes},
    *,
};

async fn connected(address: &str, words: &str) -> TcpStream {
    let mut client = TcpStream::connect(address).await.unwrap();
    client.write_all(words.as_bytes()).await.unwrap();
    client
}

/// Lets time pass until the server has closed a connection; how much. What it said before comes second.
async fn closed(client: &mut TcpStream, clock: &ManualClock) -> (Duration, String) {
    let (mut passed, mut said) = (Duration::ZERO, Vec::new());
    let mut reading = std::pin::pin!(client.read_to_end(&mut said));
    let ended = loop {
        settle().await;
        match futures::poll!(&mut reading) {
            std::task::Poll::Ready(ended) => break ended,
            std::task::Poll::Pending => {
                clock.advance(limits::CONNECTION_CHECK_INTERVAL);
                passed += limits::CONNECTION_CHECK_INTERVAL;
            }
        }
        assert!(passed < 10 * limits::CONNECTION_IDLE, "it stays open");
    };
    drop(ended);
    (passed, String::from_utf8_lossy(&said).into_owned())
}

const ALIVE: &str = "GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n";

async fn answer(client: &mut TcpStream) -> String {
    let mut answer = vec![0; 4096];
    let length = client.read(&mut answer).await.unwrap();
    String::from_utf8_lossy(&answer[..length]).into_owned()
}

#[tokio::test]
async fn a_head_that_does_not_come_is_waited_for_only_so_long() {
    let (assistant, clock) = still(&Work::new(0));
    let (address, _serving, _stop) = served(&assistant).await;
    let mut client = connected(&address, "GET /livez HTTP/1.1\r\nhost:").await;
    let (passed, _) = closed(&mut client, &clock).await;
    assert!(passed >= limits::HTTP_HEAD_TIMEOUT && passed < limits::CONNECTION_IDLE / 2, "{passed:?}");
    let mut client = connected(&address, &format!("GET / HTTP/1.1\r\nx: {}", "x".repeat(2 * limits::HTTP_HEAD))).await;
    let (_, said) = closed(&mut client, &clock).await;
    assert!(said.starts_with("HTTP/1.1 431 ") || said.is_empty(), "{said}");
}

#[tokio::test]
async fn a_connection_waits_only_so_long_for_a_request() {
    let (assistant, clock) = still(&Work::new(0));
    let (address, _serving, _stop) = served(&assistant).await;
    let mut client = connected(&address, ALIVE).await;
    assert!(answer(&mut client).await.contains("alive"));
    clock.advance(limits::CONNECTION_IDLE / 2);
    settle().await;
    client.write_all(ALIVE.as_bytes()).await.unwrap();
    assert!(answer(&mut client).await.contains("alive"), "it is kept between requests");
    let (passed, _) = closed(&mut client, &clock).await;
    assert!(passed >= limits::CONNECTION_IDLE - limits::CONNECTION_CHECK_INTERVAL, "{passed:?}");
}

#[tokio::test]
async fn a_request_may_take_longer_than_a_connection_may_wait() {
    let work = Work::new(0);
    let (assistant, clock) = still(&work);
    let (address, _serving, _stop) = served(&assistant).await;
    let body = json!({"sender": "u", "message": "work"}).to_string();
    let head =
        format!("POST /webhooks/rest/webhook HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n", body.len());
    let mut client = connected(&address, &format!("{head}{body}")).await;
    work.until(1).await;
    for _ in 0..30 {
        clock.advance(limits::CONNECTION_CHECK_INTERVAL);
        settle().await;
    }
    work.gate.add_permits(1);
    assert!(answer(&mut client).await.contains("Done."));
}

#[tokio::test]
async fn a_client_that_leaves_its_answer_unread_is_given_up() {
    let (assistant, clock) = still(&Work::new(0));
    let endless = || async {
        axum::body::Body::from_stream(futures::stream::repeat_with(|| Ok::<_, std::io::Error>(vec![b'x'; 64 * 1024])))
    };
    let router = axum::Router::new().route("/endless", axum::routing::get(endless));
    let (address, _serving, _stop) = served_routes(router, &assistant).await;
    let mut client = connected(&address, "GET /endless HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    client.readable().await.unwrap();
    let mut passed = Duration::ZERO;
    while passed < limits::WRITE_TIMEOUT + 5 * limits::CONNECTION_CHECK_INTERVAL {
        settle().await;
        clock.advance(limits::CONNECTION_CHECK_INTERVAL);
        passed += limits::CONNECTION_CHECK_INTERVAL;
    }
    settle().await;
    // What was on its way is left, and no more.
    let (mut left, mut piece) = (0, vec![0; 64 * 1024]);
    while let Ok(length @ 1..) = client.read(&mut piece).await {
        left += length;
        assert!(left < 64 * 1024 * 1024, "it goes on");
    }
}

#[tokio::test]
async fn a_half_sent_head_does_not_delay_the_end_of_the_server() {
    let (assistant, clock) = still(&Work::new(0));
    let (address, serving, stop) = served(&assistant).await;
    let _half = connected(&address, "GET /livez HTTP/1.1\r\nhost:").await;
    let mut idle = connected(&address, ALIVE).await;
    answer(&mut idle).await;
    stop.send(true).unwrap();
    let mut passed = Duration::ZERO;
    while !serving.is_finished() {
        settle().await;
        clock.advance(limits::CONNECTION_CHECK_INTERVAL);
        passed += limits::CONNECTION_CHECK_INTERVAL;
        assert!(passed <= limits::CLOSING_GRACE + 3 * limits::CONNECTION_CHECK_INTERVAL, "it waits");
    }
    serving.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_new_connection_takes_the_place_of_the_one_that_waited_longest() {
    let work = Work::new(0);
    let clock = ManualClock::new();
    let builder = builder_with("", "server: {connections: 2}").action("action_work", work.clone());
    let assistant = builder.clock(Arc::new(clock.clone())).build().unwrap();
    let (address, _serving, _stop) = served(&assistant).await;
    let mut old = connected(&address, "GET /livez HTTP/1.1\r\nhost:").await;
    settle().await;
    clock.advance(Duration::from_millis(1));
    let mut kept = connected(&address, ALIVE).await;
    assert!(answer(&mut kept).await.contains("alive"));
    clock.advance(Duration::from_millis(1));
    let mut new = connected(&address, ALIVE).await;
    assert!(answer(&mut new).await.contains("alive"));
    assert_eq!(old.read(&mut [0; 9]).await.unwrap_or(0), 0, "the one whose head never came had to go");
    kept.write_all(ALIVE.as_bytes()).await.unwrap();
    assert!(answer(&mut kept).await.contains("alive"));
    // Where all are at work, one more is turned away at once.
    let busy = json!({"sender": "u", "message": "work"}).to_string();
    let post = |sender: &str| {
        let body = busy.replace("\"u\"", &format!("\"{sender}\""));
        format!(
            "POST /webhooks/rest/webhook HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    kept.write_all(post("a").as_bytes()).await.unwrap();
    new.write_all(post("b").as_bytes()).await.unwrap();
    work.until(2).await;
    let mut late = TcpStream::connect(&address).await.unwrap();
    let refused = answer(&mut late).await;
    assert!(refused.starts_with("HTTP/1.1 503 ") && refused.contains("retry-after: 1"), "{refused}");
    work.gate.add_permits(2);
    assert!(answer(&mut kept).await.contains("Done.") && answer(&mut new).await.contains("Done."));
}

#[tokio::test]
async fn who_has_no_token_is_refused_before_the_body_is_read() {
    let (assistant, _) = still(&Work::new(0));
    let channels = crate::channels(&json!({"rest": {"auth_token": "t0k"}}));
    let (address, _serving, _stop) = served_routes(segue::server::router(&assistant, &channels), &assistant).await;
    let head = "POST /webhooks/rest/webhook HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n";
    let mut client = connected(&address, &format!("{head}\r\n")).await;
    let refused = answer(&mut client).await;
    assert!(refused.starts_with("HTTP/1.1 401 "), "{refused}");
    let mut client = connected(&address, &format!("{head}authorization: Bearer t0k\r\n\r\n")).await;
    settle().await;
    client.shutdown().await.unwrap();
    let refused = answer(&mut client).await;
    assert!(refused.is_empty() || refused.starts_with("HTTP/1.1 400 "), "{refused}");
}
