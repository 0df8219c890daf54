#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::sync::Arc;

use serde_json::json;

use super::{super::authorization_code::CodeGrant, *};
use crate::mcp::auth::oauth_http::OAuthHttp;
use segue_base::{clock::Clock, manual_clock::ManualClock};

const URL: &str = "http://127.0.0.1:9/mcp";

/// What a login gave an hour ago, as far as the clock of a test knows: its token has run out.
fn record(token: &str, received: u64) -> Record {
    record_at(URL, token, received)
}

fn record_at(url: &str, token: &str, received: u64) -> Record {
    let answer = json!({"access_token": token, "token_type": "bearer", "expires_in": 60, "refresh_token": "once"});
    let credentials = json!({"client_id": "me", "token_response": answer, "token_received_at": received});
    serde_json::from_value(json!({"url": url, "client_id": "me", "redirect_uri": url, "credentials": credentials}))
        .unwrap()
}

fn grant(kept: &LoginStore, url: &str, clock: &ManualClock) -> CodeGrant {
    let oauth_http = Arc::new(OAuthHttp::new(url, &[], &segue_base::http::HttpClients::new()).unwrap());
    CodeGrant::new(kept.clone(), url, oauth_http, Arc::new(clock.clone()))
}

fn cx(clock: &ManualClock) -> CallContext {
    clock.context(Duration::from_secs(600))
}

#[tokio::test]
async fn whoever_waits_for_the_lock_reads_what_the_first_one_brought() {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::new();
    clock.advance(Duration::from_secs(1_000));
    let kept = LoginStore::new(Some(folder.path().to_owned()), "far");
    let lock = kept.lock(&cx(&clock)).await.unwrap();
    lock.write(&record("old", 0)).await.unwrap();
    let mut second = grant(&kept, URL, &clock);
    let none = std::collections::BTreeSet::new();
    {
        // Nobody listens at the address: to ask for a token would be an error.
        let mut waiting = Box::pin(second.token(None, &none));
        while !clock.slept().contains(&PAUSE) {
            assert!(futures::poll!(&mut waiting).is_pending());
            tokio::task::yield_now().await;
        }
        lock.write(&record("new", 990)).await.unwrap();
        drop(lock);
        clock.advance(PAUSE);
        assert_eq!(waiting.await.unwrap().token.expose(), "new");
    }
    let refused = second.token(Some("new"), &none).await.map(|_| ()).unwrap_err();
    assert!(!refused.contains("holds"), "the lock was given back: {refused}");
}

#[tokio::test]
async fn a_lock_that_is_not_given_back_is_waited_for_so_long() {
    let folder = tempfile::tempdir().unwrap();
    let kept = LoginStore::new(Some(folder.path().to_owned()), "far");
    let clock = ManualClock::auto_advancing();
    let lock = kept.lock(&cx(&clock)).await.unwrap();
    let Err(error) = kept.lock(&cx(&clock)).await else { panic!("two hold it") };
    assert!(error.contains("another process holds") && clock.elapsed() >= limits::MCP_LOGIN_LOCK, "{error}");
    drop(lock);
    assert!(kept.lock(&cx(&clock)).await.is_ok());
}

#[tokio::test]
async fn a_lock_is_given_back_though_a_child_that_is_just_starting_has_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let kept = LoginStore::new(Some(folder.path().to_owned()), "far");
    let clock = ManualClock::auto_advancing();
    let lock = kept.lock(&cx(&clock)).await.unwrap();
    // What a fork does with it.
    let inherited = lock.file.try_clone().unwrap();
    drop(lock);
    assert!(kept.lock(&cx(&clock)).await.is_ok());
    assert_eq!(clock.slept(), []);
    drop(inherited);
}

#[tokio::test]
async fn a_refresh_that_hangs_is_given_up_and_the_lock_with_it() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", silent.local_addr().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let kept = LoginStore::new(Some(folder.path().to_owned()), "far");
    let clock = ManualClock::auto_advancing();
    let lock = kept.lock(&cx(&clock)).await.unwrap();
    lock.write(&record_at(&url, "old", 0)).await.unwrap();
    drop(lock);
    clock.advance(Duration::from_secs(1_000));
    let error = grant(&kept, &url, &clock).token(None, &Default::default()).await.map(|_| ()).unwrap_err();
    assert!(error.contains("no token in 30s"), "{error}");
    assert_eq!(clock.slept(), [limits::MCP_REFRESH]);
    assert!(kept.lock(&cx(&clock)).await.is_ok());
    assert!(kept.read(&url).await.is_ok(), "the login stays");
}

#[tokio::test]
async fn what_a_crash_left_half_written_does_no_harm() {
    let folder = tempfile::tempdir().unwrap();
    let kept = LoginStore::new(Some(folder.path().to_owned()), "far");
    let clock = ManualClock::new();
    let lock = kept.lock(&cx(&clock)).await.unwrap();
    lock.write(&record("whole", 0)).await.unwrap();
    std::fs::write(folder.path().join("far.new"), "{\"url\": \"ht").unwrap();
    assert_eq!(kept.read(URL).await.unwrap().client_id, "me", "the old one stands");
    lock.write(&record("next", 0)).await.unwrap();
    assert!(!folder.path().join("far.new").exists());
    let text = std::fs::read_to_string(folder.path().join("far.json")).unwrap();
    assert!(text.contains("next") && !text.contains("whole"));
    assert!(lock.forget().await.unwrap() && !lock.forget().await.unwrap());
    let Err(error) = kept.read(URL).await else { panic!("it was forgotten") };
    assert!(error.contains("segue mcp login far"), "{error}");
    assert!(LoginStore::new(None, "far").lock(&cx(&clock)).await.is_err());
}
