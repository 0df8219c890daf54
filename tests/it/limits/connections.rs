//! Limits of connections: slow clients, many clients, and the shutdown of the server.

use segue::limits;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{
    timeouts::{serve, serve_routes},
    *,
};

/// Opens a connection and sends a text.
async fn connect(address: &str, text: &str) -> TcpStream {
    let mut client = TcpStream::connect(address).await.unwrap();
    client.write_all(text.as_bytes()).await.unwrap();
    client
}

/// Advances the clock until the server closes the connection. Returns the time that passed and the bytes that the server sent.
async fn wait_until_closed(client: &mut TcpStream, clock: &ManualClock) -> (Duration, String) {
    let (mut passed, mut received) = (Duration::ZERO, Vec::new());
    let mut reading = std::pin::pin!(client.read_to_end(&mut received));
    let ended = loop {
        run_other_tasks().await;
        match futures::poll!(&mut reading) {
            std::task::Poll::Ready(ended) => break ended,
            std::task::Poll::Pending => {
                clock.advance(limits::CONNECTION_CHECK_INTERVAL);
                passed += limits::CONNECTION_CHECK_INTERVAL;
            }
        }
        assert!(passed < 10 * limits::CONNECTION_IDLE, "the connection stays open");
    };
    drop(ended);
    (passed, String::from_utf8_lossy(&received).into_owned())
}

const LIVEZ_REQUEST: &str = "GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n";

/// Reads a response.
async fn read_response(client: &mut TcpStream) -> String {
    let mut bytes = vec![0; 4096];
    let length = client.read(&mut bytes).await.unwrap();
    String::from_utf8_lossy(&bytes[..length]).into_owned()
}

#[tokio::test]
async fn request_head_timeout_closes_the_connection() {
    let (assistant, clock) = assistant_with_manual_clock(&BlockingAction::new(0));
    let (address, _serving, _stop) = serve(&assistant).await;
    let mut client = connect(&address, "GET /livez HTTP/1.1\r\nhost:").await;
    let (passed, _) = wait_until_closed(&mut client, &clock).await;
    assert!(passed >= limits::HTTP_HEAD_TIMEOUT && passed < limits::CONNECTION_IDLE / 2, "{passed:?}");
    let mut client = connect(&address, &format!("GET / HTTP/1.1\r\nx: {}", "x".repeat(2 * limits::HTTP_HEAD))).await;
    let (_, received) = wait_until_closed(&mut client, &clock).await;
    assert!(received.starts_with("HTTP/1.1 431 ") || received.is_empty(), "{received}");
}

#[tokio::test]
async fn idle_connection_is_closed() {
    let (assistant, clock) = assistant_with_manual_clock(&BlockingAction::new(0));
    let (address, _serving, _stop) = serve(&assistant).await;
    let mut client = connect(&address, LIVEZ_REQUEST).await;
    assert!(read_response(&mut client).await.contains("alive"));
    clock.advance(limits::CONNECTION_IDLE / 2);
    run_other_tasks().await;
    client.write_all(LIVEZ_REQUEST.as_bytes()).await.unwrap();
    assert!(read_response(&mut client).await.contains("alive"), "the connection is kept between requests");
    let (passed, _) = wait_until_closed(&mut client, &clock).await;
    assert!(passed >= limits::CONNECTION_IDLE - limits::CONNECTION_CHECK_INTERVAL, "{passed:?}");
}

#[tokio::test]
async fn running_request_is_not_closed_by_the_idle_timeout() {
    let work = BlockingAction::new(0);
    let (assistant, clock) = assistant_with_manual_clock(&work);
    let (address, _serving, _stop) = serve(&assistant).await;
    let body = json!({"sender": "u", "message": "work"}).to_string();
    let head =
        format!("POST /webhooks/rest/webhook HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n", body.len());
    let mut client = connect(&address, &format!("{head}{body}")).await;
    work.wait_until_started(1).await;
    for _ in 0..30 {
        clock.advance(limits::CONNECTION_CHECK_INTERVAL);
        run_other_tasks().await;
    }
    work.permits.add_permits(1);
    assert!(read_response(&mut client).await.contains("Done."));
}

#[tokio::test]
async fn write_timeout_closes_the_connection_of_a_client_that_does_not_read() {
    let (assistant, clock) = assistant_with_manual_clock(&BlockingAction::new(0));
    let endless = || async {
        axum::body::Body::from_stream(futures::stream::repeat_with(|| Ok::<_, std::io::Error>(vec![b'x'; 64 * 1024])))
    };
    let router = axum::Router::new().route("/endless", axum::routing::get(endless));
    let (address, _serving, _stop) = serve_routes(router, &assistant).await;
    let mut client = connect(&address, "GET /endless HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    client.readable().await.unwrap();
    let mut passed = Duration::ZERO;
    while passed < limits::WRITE_TIMEOUT + 5 * limits::CONNECTION_CHECK_INTERVAL {
        run_other_tasks().await;
        clock.advance(limits::CONNECTION_CHECK_INTERVAL);
        passed += limits::CONNECTION_CHECK_INTERVAL;
    }
    run_other_tasks().await;
    // Only what was already sent can be read.
    let (mut left, mut piece) = (0, vec![0; 64 * 1024]);
    while let Ok(length @ 1..) = client.read(&mut piece).await {
        left += length;
        assert!(left < 64 * 1024 * 1024, "the response continues");
    }
}

#[tokio::test]
async fn half_sent_request_head_does_not_delay_shutdown() {
    let (assistant, clock) = assistant_with_manual_clock(&BlockingAction::new(0));
    let (address, serving, stop) = serve(&assistant).await;
    let _half_request = connect(&address, "GET /livez HTTP/1.1\r\nhost:").await;
    let mut idle = connect(&address, LIVEZ_REQUEST).await;
    read_response(&mut idle).await;
    stop.send(true).unwrap();
    let mut passed = Duration::ZERO;
    while !serving.is_finished() {
        run_other_tasks().await;
        clock.advance(limits::CONNECTION_CHECK_INTERVAL);
        passed += limits::CONNECTION_CHECK_INTERVAL;
        assert!(passed <= limits::CLOSING_GRACE + 3 * limits::CONNECTION_CHECK_INTERVAL, "the shutdown waits");
    }
    serving.await.unwrap().unwrap();
}

#[tokio::test]
async fn new_connection_replaces_the_longest_idle_one() {
    let work = BlockingAction::new(0);
    let clock = ManualClock::new();
    let builder = builder_with("", "server: {connections: 2}").action("action_work", work.clone());
    let assistant = builder.clock(Arc::new(clock.clone())).build().unwrap();
    let (address, _serving, _stop) = serve(&assistant).await;
    let mut first = connect(&address, "GET /livez HTTP/1.1\r\nhost:").await;
    run_other_tasks().await;
    clock.advance(Duration::from_millis(1));
    let mut second = connect(&address, LIVEZ_REQUEST).await;
    assert!(read_response(&mut second).await.contains("alive"));
    clock.advance(Duration::from_millis(1));
    let mut third = connect(&address, LIVEZ_REQUEST).await;
    assert!(read_response(&mut third).await.contains("alive"));
    assert_eq!(first.read(&mut [0; 9]).await.unwrap_or(0), 0, "the connection that was idle longest is closed");
    second.write_all(LIVEZ_REQUEST.as_bytes()).await.unwrap();
    assert!(read_response(&mut second).await.contains("alive"));
    // If all connections have a running request, a new one is refused at once.
    let busy = json!({"sender": "u", "message": "work"}).to_string();
    let post = |sender: &str| {
        let body = busy.replace("\"u\"", &format!("\"{sender}\""));
        format!(
            "POST /webhooks/rest/webhook HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    second.write_all(post("a").as_bytes()).await.unwrap();
    third.write_all(post("b").as_bytes()).await.unwrap();
    work.wait_until_started(2).await;
    let mut late = TcpStream::connect(&address).await.unwrap();
    let refused = read_response(&mut late).await;
    assert!(refused.starts_with("HTTP/1.1 503 ") && refused.contains("retry-after: 1"), "{refused}");
    work.permits.add_permits(2);
    assert!(read_response(&mut second).await.contains("Done.") && read_response(&mut third).await.contains("Done."));
}

#[tokio::test]
async fn request_without_token_is_refused_before_the_body_is_read() {
    let (assistant, _) = assistant_with_manual_clock(&BlockingAction::new(0));
    let channels = crate::channels(&json!({"rest": {"auth_token": "t0k"}}));
    let (address, _serving, _stop) = serve_routes(segue::server::router(&assistant, &channels), &assistant).await;
    let head = "POST /webhooks/rest/webhook HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n";
    let mut client = connect(&address, &format!("{head}\r\n")).await;
    let refused = read_response(&mut client).await;
    assert!(refused.starts_with("HTTP/1.1 401 "), "{refused}");
    let mut client = connect(&address, &format!("{head}authorization: Bearer t0k\r\n\r\n")).await;
    run_other_tasks().await;
    client.shutdown().await.unwrap();
    let refused = read_response(&mut client).await;
    assert!(refused.is_empty() || refused.starts_with("HTTP/1.1 400 "), "{refused}");
}
