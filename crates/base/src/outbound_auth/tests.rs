#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::sync::{Arc, Mutex};

use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use super::*;
use crate::{limits, manual_clock::ManualClock};

/// An authorization server that answers each request by its number and records all requests.
async fn server(answer: impl Fn(usize) -> (u16, String) + Send + 'static) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/token", listener.local_addr().unwrap());
    let received: Arc<Mutex<Vec<String>>> = Arc::default();
    let requests = received.clone();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut bytes = vec![0; 8192];
            let mut text = String::new();
            while !text.contains("grant_type=client_credentials") {
                let read = stream.read(&mut bytes).await.unwrap();
                text += &String::from_utf8_lossy(&bytes[..read]);
            }
            let number = {
                let mut requests = requests.lock().unwrap();
                requests.push(text);
                requests.len()
            };
            let (status, body) = answer(number);
            let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
            stream.write_all((head + &body).as_bytes()).await.unwrap();
        }
    });
    (url, received)
}

/// The tokens of a test server.
struct TestTokens(TokenCache<ClientCredentials>);

fn token_source(url: &str, clock: &ManualClock) -> TestTokens {
    TestTokens(tokens(url, ("me", "s3cret"), clock))
}

fn tokens(url: &str, (id, secret): (&str, &str), clock: &ManualClock) -> TokenCache<ClientCredentials> {
    let grant = ClientGrant::new(id.to_owned(), Secret::new(secret), Some("them".to_owned()));
    ClientCredentials::token_cache(grant, url, "", limits::TOKEN_WAIT, Arc::new(clock.clone()), HttpClients::new())
        .unwrap()
}

impl TestTokens {
    async fn token(&self, refused: Option<&str>) -> Result<String, TokenError> {
        self.0.token(refused, &()).await.map(|token| token.expose().to_owned())
    }
}

fn token(number: usize, life: u64) -> (u16, String) {
    (200, json!({"access_token": format!("t{number}"), "expires_in": life}).to_string())
}

#[tokio::test]
async fn a_token_is_cached_until_shortly_before_its_expiry() {
    let (url, received) = server(|number| token(number, 100)).await;
    let clock = ManualClock::new();
    let source = token_source(&url, &clock);
    assert_eq!(source.token(None).await.unwrap(), "t1");
    clock.advance(Duration::from_secs(74));
    assert_eq!(source.token(None).await.unwrap(), "t1");
    clock.advance(Duration::from_secs(1));
    assert_eq!(source.token(None).await.unwrap(), "t2");
    assert_eq!(source.token(Some("t2")).await.unwrap(), "t3", "a refused token is not returned again");
    let request = received.lock().unwrap()[0].to_lowercase();
    assert!(request.contains("authorization: basic") && request.contains("audience=them"), "{request}");
    assert!(!request.contains("client_secret"), "{request}");
}

#[tokio::test]
async fn the_secret_is_sent_in_the_body_if_basic_is_refused() {
    let (url, received) = server(|number| if number == 1 { (401, String::new()) } else { token(number, 60) }).await;
    let source = token_source(&url, &ManualClock::new());
    assert_eq!(source.token(None).await.unwrap(), "t2");
    assert!(received.lock().unwrap()[1].contains("client_secret=s3cret"));
}

#[tokio::test]
async fn errors_never_contain_the_secret() {
    for (status, body, says) in [
        (500, String::new(), "500"),
        (403, json!({"error": "access_denied", "error_description": "s3cret"}).to_string(), "403 (access_denied)"),
        (400, json!({"error": "s3cret is\nno code"}).to_string(), "answered 400"),
        (200, "no json".to_owned(), "not JSON"),
        (200, "{}".to_owned(), "no `access_token`"),
        (200, "x".repeat(limits::TOKEN_ANSWER + 1), "too large"),
    ] {
        let (url, _) = server(move |_| (status, body.clone())).await;
        let error = token_source(&url, &ManualClock::new()).token(None).await.unwrap_err().to_string();
        assert!(error.contains(says) && !error.contains("s3cret"), "{error}");
    }
}

#[tokio::test]
async fn an_unresponsive_server_times_out() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/token", listener.local_addr().unwrap());
    let clock = ManualClock::auto_advancing();
    let tokens = tokens(&url, ("me", "s3cret"), &clock);
    assert!(matches!(
        tokens.token(None, &()).await,
        Err(TokenError::TimedOut(limits::TOKEN_WAIT, WaitError::DeadlinePassed))
    ));
    assert_eq!(clock.slept(), [limits::TOKEN_WAIT]);
}

#[tokio::test]
async fn concurrent_calls_share_one_refusal() {
    let (url, received) = server(|_| (401, json!({"error": "invalid_client"}).to_string())).await;
    let source = token_source(&url, &ManualClock::new());
    let all = futures::future::join_all((0..20).map(|_| source.token(None))).await;
    let refused = TokenError::Refused { status: 401, code: Some("invalid_client".to_owned()) };
    assert!(all.into_iter().all(|one| one == Err(refused.clone())));
    assert_eq!(received.lock().unwrap().len(), 2, "HTTP Basic, then the request body");
    assert!(source.token(None).await.is_err());
    assert_eq!(received.lock().unwrap().len(), 4, "a later call sends new requests");
}

#[tokio::test]
async fn an_invalid_scope_is_not_retried_with_the_other_auth_method() {
    let (url, received) = server(|_| (400, json!({"error": "invalid_scope"}).to_string())).await;
    assert!(token_source(&url, &ManualClock::new()).token(None).await.is_err());
    assert_eq!(received.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn id_and_secret_are_form_encoded_for_basic() {
    let (url, received) = server(|number| token(number, 60)).await;
    let tokens = tokens(&url, ("a:b", "50% +/ü"), &ManualClock::new());
    tokens.token(None, &()).await.unwrap();
    // base64 of `a%3Ab:50%25+%2B%2F%C3%BC`
    let head = received.lock().unwrap()[0].clone();
    assert!(head.contains("Basic YSUzQWI6NTAlMjUrJTJCJTJGJUMzJUJD"), "{head}");
}
