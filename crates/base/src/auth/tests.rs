#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::sync::{Arc, Mutex};

use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use super::*;
use crate::{limits, manual_clock::ManualClock};

/// A token server: answers each request by its number, and keeps them.
async fn server(answer: impl Fn(usize) -> (u16, String) + Send + 'static) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/token", listener.local_addr().unwrap());
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    let kept = heard.clone();
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
                let mut kept = kept.lock().unwrap();
                kept.push(text);
                kept.len()
            };
            let (status, body) = answer(number);
            let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
            stream.write_all((head + &body).as_bytes()).await.unwrap();
        }
    });
    (url, heard)
}

/// Tokens of a server.
struct TokenSource(TokenCache<ClientCredentials>);

fn source(url: &str, clock: &ManualClock) -> TokenSource {
    TokenSource(tokens(url, ("me", "s3cret"), clock))
}

fn tokens(url: &str, (id, secret): (&str, &str), clock: &ManualClock) -> TokenCache<ClientCredentials> {
    let grant = ClientGrant::new(id.to_owned(), Secret::new(secret), Some("them".to_owned()));
    ClientCredentials::tokens(grant, url, "", limits::TOKEN_WAIT, Arc::new(clock.clone()), HttpClients::new()).unwrap()
}

impl TokenSource {
    async fn token(&self, refused: Option<&str>) -> Result<String, TokenError> {
        self.0.token(refused, &()).await.map(|token| token.expose().to_owned())
    }
}

fn token(number: usize, life: u64) -> (u16, String) {
    (200, json!({"access_token": format!("t{number}"), "expires_in": life}).to_string())
}

#[tokio::test]
async fn a_token_is_kept_until_shortly_before_its_end() {
    let (url, heard) = server(|number| token(number, 100)).await;
    let clock = ManualClock::new();
    let source = source(&url, &clock);
    assert_eq!(source.token(None).await.unwrap(), "t1");
    clock.advance(Duration::from_secs(74));
    assert_eq!(source.token(None).await.unwrap(), "t1");
    clock.advance(Duration::from_secs(1));
    assert_eq!(source.token(None).await.unwrap(), "t2");
    assert_eq!(source.token(Some("t2")).await.unwrap(), "t3", "one that was refused is not given again");
    let asked = heard.lock().unwrap()[0].to_lowercase();
    assert!(asked.contains("authorization: basic") && asked.contains("audience=them"), "{asked}");
    assert!(!asked.contains("client_secret"), "{asked}");
}

#[tokio::test]
async fn a_server_that_wants_the_secret_in_the_form_gets_it_there() {
    let (url, heard) = server(|number| if number == 1 { (401, String::new()) } else { token(number, 60) }).await;
    let source = source(&url, &ManualClock::new());
    assert_eq!(source.token(None).await.unwrap(), "t2");
    assert!(heard.lock().unwrap()[1].contains("client_secret=s3cret"));
}

#[tokio::test]
async fn what_is_no_token_is_told_without_a_secret() {
    for (status, body, says) in [
        (500, String::new(), "500"),
        (403, json!({"error": "access_denied", "error_description": "s3cret"}).to_string(), "403 (access_denied)"),
        (400, json!({"error": "s3cret is\nno code"}).to_string(), "answers 400"),
        (200, "no json".to_owned(), "no JSON"),
        (200, "{}".to_owned(), "holds none"),
        (200, "x".repeat(limits::TOKEN_ANSWER + 1), "too large"),
    ] {
        let (url, _) = server(move |_| (status, body.clone())).await;
        let error = source(&url, &ManualClock::new()).token(None).await.unwrap_err().to_string();
        assert!(error.contains(says) && !error.contains("s3cret"), "{error}");
    }
}

#[tokio::test]
async fn a_token_server_that_hangs_is_given_up_in_time() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/token", listener.local_addr().unwrap());
    let clock = ManualClock::jumping();
    let tokens = tokens(&url, ("me", "s3cret"), &clock);
    assert!(matches!(
        tokens.token(None, &()).await,
        Err(TokenError::Late(limits::TOKEN_WAIT, WaitError::DeadlinePassed))
    ));
    assert_eq!(clock.slept(), [limits::TOKEN_WAIT]);
}

#[tokio::test]
async fn a_secret_that_is_refused_is_shown_once_for_all_who_wait() {
    let (url, heard) = server(|_| (401, json!({"error": "invalid_client"}).to_string())).await;
    let source = source(&url, &ManualClock::new());
    let all = futures::future::join_all((0..20).map(|_| source.token(None))).await;
    let refused = TokenError::Refused { status: 401, code: Some("invalid_client".to_owned()) };
    assert!(all.into_iter().all(|one| one == Err(refused.clone())));
    assert_eq!(heard.lock().unwrap().len(), 2, "in the head, then in the form");
    assert!(source.token(None).await.is_err());
    assert_eq!(heard.lock().unwrap().len(), 4, "whoever comes later asks anew");
}

#[tokio::test]
async fn a_right_that_nobody_gives_is_not_asked_for_in_another_manner() {
    let (url, heard) = server(|_| (400, json!({"error": "invalid_scope"}).to_string())).await;
    assert!(source(&url, &ManualClock::new()).token(None).await.is_err());
    assert_eq!(heard.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn id_and_secret_stand_in_the_head_as_a_form_writes_them() {
    let (url, heard) = server(|number| token(number, 60)).await;
    let tokens = tokens(&url, ("a:b", "50% +/ü"), &ManualClock::new());
    tokens.token(None, &()).await.unwrap();
    // base64 of `a%3Ab:50%25+%2B%2F%C3%BC`
    let head = heard.lock().unwrap()[0].clone();
    assert!(head.contains("Basic YSUzQWI6NTAlMjUrJTJCJTJGJUMzJUJD"), "{head}");
}
