//! Tests of the login file: locking, refreshing by several processes, crashes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::sync::Arc;

use serde_json::json;

use super::{super::authorization_code::CodeGrant, *};
use crate::mcp::auth::oauth_http::OAuthHttp;
use segue_base::{clock::Clock, manual_clock::ManualClock};

const URL: &str = "http://127.0.0.1:9/mcp";

/// A login whose token was received at this time in seconds. The token is valid for 60 seconds.
fn record(token: &str, received: u64) -> LoginRecord {
    record_at(URL, token, received)
}

fn record_at(url: &str, token: &str, received: u64) -> LoginRecord {
    let answer = json!({"access_token": token, "token_type": "bearer", "expires_in": 60, "refresh_token": "once"});
    let credentials = json!({"client_id": "me", "token_response": answer, "token_received_at": received});
    serde_json::from_value(json!({"url": url, "client_id": "me", "redirect_uri": url, "credentials": credentials}))
        .unwrap()
}

fn grant(logins: &LoginStore, url: &str, clock: &ManualClock) -> CodeGrant {
    let oauth_http = Arc::new(OAuthHttp::new(url, &[], &segue_base::http::HttpClients::new()).unwrap());
    CodeGrant::new(logins.clone(), url, oauth_http, Arc::new(clock.clone()))
}

fn cx(clock: &ManualClock) -> CallContext {
    clock.context(Duration::from_secs(600))
}

#[tokio::test]
async fn a_process_waiting_for_the_lock_uses_the_token_of_the_first_refresh() {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::new();
    clock.advance(Duration::from_secs(1_000));
    let logins = LoginStore::new(Some(folder.path().to_owned()), "remote");
    let lock = logins.lock(&cx(&clock)).await.unwrap();
    lock.write(&record("old", 0)).await.unwrap();
    let mut second = grant(&logins, URL, &clock);
    let none = std::collections::BTreeSet::new();
    {
        // There is no server at the URL: a token request would be an error.
        let mut token = Box::pin(second.token(None, &none));
        while !clock.slept().contains(&LOCK_RETRY_PAUSE) {
            assert!(futures::poll!(&mut token).is_pending());
            tokio::task::yield_now().await;
        }
        lock.write(&record("new", 990)).await.unwrap();
        drop(lock);
        clock.advance(LOCK_RETRY_PAUSE);
        assert_eq!(token.await.unwrap().token.expose(), "new");
    }
    let error = second.token(Some("new"), &none).await.map(|_| ()).unwrap_err();
    assert!(!error.contains("lock"), "the lock was released: {error}");
}

#[tokio::test]
async fn waiting_for_the_lock_times_out() {
    let folder = tempfile::tempdir().unwrap();
    let logins = LoginStore::new(Some(folder.path().to_owned()), "remote");
    let clock = ManualClock::auto_advancing();
    let lock = logins.lock(&cx(&clock)).await.unwrap();
    let Err(error) = logins.lock(&cx(&clock)).await else { panic!("the lock was acquired twice") };
    assert!(error.contains("another process does not release") && clock.elapsed() >= limits::MCP_LOGIN_LOCK, "{error}");
    drop(lock);
    assert!(logins.lock(&cx(&clock)).await.is_ok());
}

#[tokio::test]
async fn the_lock_is_released_although_a_starting_child_has_the_file_open() {
    let folder = tempfile::tempdir().unwrap();
    let logins = LoginStore::new(Some(folder.path().to_owned()), "remote");
    let clock = ManualClock::auto_advancing();
    let lock = logins.lock(&cx(&clock)).await.unwrap();
    // As a fork duplicates the file.
    let inherited = lock.file.try_clone().unwrap();
    drop(lock);
    assert!(logins.lock(&cx(&clock)).await.is_ok());
    assert_eq!(clock.slept(), []);
    drop(inherited);
}

#[tokio::test]
async fn a_hanging_refresh_times_out_and_releases_the_lock() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", silent.local_addr().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let logins = LoginStore::new(Some(folder.path().to_owned()), "remote");
    let clock = ManualClock::auto_advancing();
    let lock = logins.lock(&cx(&clock)).await.unwrap();
    lock.write(&record_at(&url, "old", 0)).await.unwrap();
    drop(lock);
    clock.advance(Duration::from_secs(1_000));
    let error = grant(&logins, &url, &clock).token(None, &Default::default()).await.map(|_| ()).unwrap_err();
    assert!(error.contains("no token within 30s"), "{error}");
    assert_eq!(clock.slept(), [limits::MCP_REFRESH]);
    assert!(logins.lock(&cx(&clock)).await.is_ok());
    assert!(logins.read(&url).await.is_ok(), "the login is still stored");
}

#[tokio::test]
async fn a_file_left_half_written_by_a_crash_is_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let logins = LoginStore::new(Some(folder.path().to_owned()), "remote");
    let clock = ManualClock::new();
    let lock = logins.lock(&cx(&clock)).await.unwrap();
    lock.write(&record("whole", 0)).await.unwrap();
    std::fs::write(folder.path().join("remote.new"), "{\"url\": \"ht").unwrap();
    assert_eq!(logins.read(URL).await.unwrap().client_id, "me", "the old login is still read");
    lock.write(&record("next", 0)).await.unwrap();
    assert!(!folder.path().join("remote.new").exists());
    let text = std::fs::read_to_string(folder.path().join("remote.json")).unwrap();
    assert!(text.contains("next") && !text.contains("whole"));
    assert!(lock.delete().await.unwrap() && !lock.delete().await.unwrap());
    let Err(error) = logins.read(URL).await else { panic!("the login was deleted") };
    assert!(error.contains("segue mcp login remote"), "{error}");
    assert!(LoginStore::new(None, "remote").lock(&cx(&clock)).await.is_err());
}
