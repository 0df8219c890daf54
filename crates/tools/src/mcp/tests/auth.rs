//! Tests of tokens of the client credentials grant: lifetime, replacement, scopes, discovery.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use axum::{Json as Body, Router, extract::Request, http::HeaderMap, response::IntoResponse, routing};
use segue_engine::{project::OAuthDef, time::Timestamp};
use serde_json::{Value as Json, json};

use crate::mcp::auth::{TokenRefusal, Tokens};
use segue_base::{
    clock::{Clock, Deadline},
    http::HttpClients,
    limits,
};

/// A clock whose seconds a test sets. Sleeping never ends.
#[derive(Default)]
struct Seconds(AtomicU64);

#[async_trait]
impl Clock for Seconds {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(i64::try_from(self.elapsed().as_micros()).unwrap())
    }
    fn elapsed(&self) -> Duration {
        Duration::from_secs(self.0.load(Ordering::SeqCst))
    }
    async fn sleep(&self, _: Deadline) {
        std::future::pending().await
    }
}

async fn serve(router: Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}

/// A token server that issues the tokens `t1`, `t2` and so on with this `expires_in`. Returns its URL and the requests.
async fn token_server(lifetime: Option<u64>) -> (String, Arc<Mutex<Vec<(HeaderMap, String)>>>) {
    let requests: Arc<Mutex<Vec<(HeaderMap, String)>>> = Arc::default();
    let log = requests.clone();
    let issue_token = move |headers: HeaderMap, form: String| {
        let mut log = log.lock().unwrap();
        log.push((headers, form));
        let mut response = json!({"access_token": format!("t{}", log.len()), "token_type": "Bearer"});
        if let Some(lifetime) = lifetime {
            response["expires_in"] = json!(lifetime);
        }
        std::future::ready(Body(response))
    };
    (serve(Router::new().route("/token", routing::post(issue_token))).await, requests)
}

fn oauth(more: Json) -> OAuthDef {
    let mut oauth = json!({"client_id": "me", "client_secret": "s3cret"});
    oauth.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    serde_json::from_value(oauth).unwrap()
}

fn tokens(url: &str, oauth: &OAuthDef, clock: &Arc<Seconds>) -> Tokens {
    let http = HttpClients::new();
    Tokens::new(("remote", url), oauth, &http, clock.clone(), None).unwrap()
}

#[tokio::test]
async fn a_token_is_used_until_shortly_before_it_expires() {
    let margin = limits::TOKEN_MARGIN.as_secs();
    for (expires_in, lifetime, margin) in
        [(None, limits::TOKEN_LIFETIME.as_secs(), margin), (Some(600), 600, margin), (Some(20), 20, 5)]
    {
        let (url, requests) = token_server(expires_in).await;
        let clock = Arc::new(Seconds::default());
        let tokens = tokens(&url, &oauth(json!({"token_url": format!("{url}/token")})), &clock);
        for (at, token) in [(0, "t1"), (lifetime - margin - 1, "t1"), (lifetime - margin, "t2")] {
            clock.0.store(at, Ordering::SeqCst);
            assert_eq!(tokens.token().await.unwrap().as_deref(), Some(token), "at {at} s of {lifetime}");
        }
        assert_eq!(requests.lock().unwrap().len(), 2);
    }
}

#[tokio::test]
async fn concurrent_replacements_of_a_rejected_token_share_one_request() {
    let (url, requests) = token_server(None).await;
    let tokens = tokens(&url, &oauth(json!({"token_url": format!("{url}/token"), "scope": "a"})), &Arc::default());
    assert_eq!(tokens.token().await.unwrap().as_deref(), Some("t1"));
    let refusal = TokenRefusal::Invalid { challenge: None };
    let both =
        futures::join!(tokens.replacement_for(Some("t1"), &refusal), tokens.replacement_for(Some("t1"), &refusal));
    assert_eq!((both.0.unwrap(), both.1.unwrap()), ("t2".to_owned(), "t2".to_owned()));
    let refusal = TokenRefusal::InsufficientScope { scopes: "b a".into(), challenge: "Bearer".into() };
    assert_eq!(tokens.replacement_for(Some("t2"), &refusal).await.unwrap(), "t3");
    let requests = requests.lock().unwrap();
    assert_eq!(
        requests.last().unwrap().1,
        "grant_type=client_credentials&scope=a+b",
        "the configured scope and the required one"
    );
    assert_eq!(requests[0].0["authorization"], "Basic bWU6czNjcmV0");
}

#[tokio::test]
async fn the_number_and_length_of_required_scopes_are_limited() {
    let (url, requests) = token_server(None).await;
    let tokens = tokens(&url, &oauth(json!({"token_url": format!("{url}/token")})), &Arc::default());
    assert_eq!(tokens.token().await.unwrap().as_deref(), Some("t1"));
    let mut scopes = "x".repeat(limits::MCP_SCOPE + 1);
    for at in 0..limits::MCP_SCOPES + 5 {
        scopes += &format!(" s{at}");
    }
    let refusal = TokenRefusal::InsufficientScope { scopes, challenge: "Bearer".into() };
    assert_eq!(tokens.replacement_for(Some("t1"), &refusal).await.unwrap(), "t2");
    let form = &requests.lock().unwrap()[1].1;
    assert!(!form.contains('x') && form.matches('+').count() == limits::MCP_SCOPES - 1, "{form}");
}

#[tokio::test]
async fn client_secret_post_is_used_if_basic_authentication_fails() {
    let tries = Arc::new(AtomicUsize::new(0));
    let count = tries.clone();
    let issue_token = move |headers: HeaderMap, form: String| {
        count.fetch_add(1, Ordering::SeqCst);
        let fine = !headers.contains_key("authorization") && form.contains("client_id=me&client_secret=s3cret");
        let status = if fine { 200 } else { 401 };
        let body = if fine { json!({"access_token": "t"}) } else { json!({"error": "invalid_client"}) };
        std::future::ready((axum::http::StatusCode::from_u16(status).unwrap(), Body(body)))
    };
    let url = serve(Router::new().route("/token", routing::post(issue_token))).await;
    let tokens = tokens(&url, &oauth(json!({"token_url": format!("{url}/token")})), &Arc::default());
    assert_eq!(tokens.token().await.unwrap().as_deref(), Some("t"));
    let refusal = TokenRefusal::Invalid { challenge: None };
    tokens.replacement_for(Some("t"), &refusal).await.unwrap();
    assert_eq!(tries.load(Ordering::SeqCst), 3, "the method that worked is used again");
}

#[tokio::test]
async fn a_redirect_loop_of_metadata_is_an_error() {
    let requests = Arc::new(AtomicUsize::new(0));
    let count = requests.clone();
    let circle = move |request: Request| {
        let path = request.uri().path().to_owned();
        if path.starts_with("/.well-known/oauth-protected-resource") {
            count.fetch_add(1, Ordering::SeqCst);
        }
        std::future::ready((axum::http::StatusCode::FOUND, [("location", path)]).into_response())
    };
    let url = serve(Router::new().fallback(circle)).await;
    let tokens = tokens(&url, &oauth(json!({})), &Arc::default());
    let error = tokens.token().await.unwrap_err().to_string();
    assert!(error.contains("redirects"), "{error}");
    assert!(requests.load(Ordering::SeqCst) <= 12, "at most ten redirects are followed");
}

#[tokio::test]
async fn a_secret_is_not_sent_to_a_forbidden_token_endpoint_from_metadata() {
    // The server is local; the token endpoint in its metadata is a private address, has no TLS, or is a metadata service.
    for endpoint in ["http://10.255.255.1/token", "http://login.example.org/token", "https://169.254.169.254/token"] {
        let metadata = json!({
            "issuer": "ISSUER", "token_endpoint": endpoint, "authorization_endpoint": endpoint,
            "response_types_supported": ["code"]
        });
        let handler = move |request: Request| {
            let host = request.headers()["host"].to_str().unwrap().to_owned();
            let mut metadata = metadata.clone();
            metadata["issuer"] = json!(format!("http://{host}"));
            let found = request.uri().path() == "/.well-known/oauth-authorization-server";
            let status = if found { 200 } else { 404 };
            std::future::ready((axum::http::StatusCode::from_u16(status).unwrap(), Body(metadata)))
        };
        let url = serve(Router::new().fallback(handler)).await;
        let error = tokens(&url, &oauth(json!({})), &Arc::default()).token().await.unwrap_err().to_string();
        assert!(error.contains("is not called"), "{endpoint}: {error}");
        assert!(!error.contains("s3cret"), "{error}");
    }
}
