//! Tokens: how long they are used, who asks for them, and where nobody is asked.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{Json as Body, Router, extract::Request, http::HeaderMap, response::IntoResponse, routing};
use futures::future::BoxFuture;
use segue_engine::{project::OAuthDef, time::Timestamp};
use serde_json::{Value as Json, json};

use crate::mcp::auth::{Refusal, Tokens};
use segue_base::{
    clock::{Clock, Deadline},
    http::HttpClients,
    limits,
};

/// Seconds that a test sets; nobody is ever late.
#[derive(Default)]
struct Seconds(AtomicU64);

impl Clock for Seconds {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(i64::try_from(self.elapsed().as_micros()).unwrap())
    }
    fn elapsed(&self) -> Duration {
        Duration::from_secs(self.0.load(Ordering::SeqCst))
    }
    fn sleep(&self, _: Deadline) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }
}

async fn serve(router: Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}

/// A token server: each token has its number; `life` is what it says of it.
async fn giver(life: Option<u64>) -> (String, Arc<Mutex<Vec<(HeaderMap, String)>>>) {
    let asked: Arc<Mutex<Vec<(HeaderMap, String)>>> = Arc::default();
    let heard = asked.clone();
    let give = move |headers: HeaderMap, form: String| {
        let mut heard = heard.lock().unwrap();
        heard.push((headers, form));
        let mut answer = json!({"access_token": format!("t{}", heard.len()), "token_type": "Bearer"});
        if let Some(life) = life {
            answer["expires_in"] = json!(life);
        }
        std::future::ready(Body(answer))
    };
    (serve(Router::new().route("/token", routing::post(give))).await, asked)
}

fn oauth(more: Json) -> OAuthDef {
    let mut oauth = json!({"client_id": "me", "client_secret": "s3cret"});
    oauth.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    serde_json::from_value(oauth).unwrap()
}

fn tokens(url: &str, oauth: &OAuthDef, clock: &Arc<Seconds>) -> Tokens {
    let http = HttpClients::new();
    Tokens::new(("far", url), oauth, &http, clock.clone(), None).unwrap()
}

#[tokio::test]
async fn a_token_is_used_until_shortly_before_its_end() {
    let margin = limits::TOKEN_MARGIN.as_secs();
    for (told, life, margin) in
        [(None, limits::TOKEN_LIFETIME.as_secs(), margin), (Some(600), 600, margin), (Some(20), 20, 5)]
    {
        let (url, asked) = giver(told).await;
        let clock = Arc::new(Seconds::default());
        let tokens = tokens(&url, &oauth(json!({"token_url": format!("{url}/token")})), &clock);
        for (at, token) in [(0, "t1"), (life - margin - 1, "t1"), (life - margin, "t2")] {
            clock.0.store(at, Ordering::SeqCst);
            assert_eq!(tokens.token().await.unwrap().as_deref(), Some(token), "at {at} s of {life}");
        }
        assert_eq!(asked.lock().unwrap().len(), 2);
    }
}

#[tokio::test]
async fn whoever_comes_second_with_a_refused_token_gets_what_the_first_one_brought() {
    let (url, asked) = giver(None).await;
    let tokens = tokens(&url, &oauth(json!({"token_url": format!("{url}/token"), "scope": "a"})), &Arc::default());
    assert_eq!(tokens.token().await.unwrap().as_deref(), Some("t1"));
    let why = Refusal::Unknown { challenge: None };
    let both = futures::join!(tokens.instead_of(Some("t1"), &why), tokens.instead_of(Some("t1"), &why));
    assert_eq!((both.0.unwrap(), both.1.unwrap()), ("t2".to_owned(), "t2".to_owned()));
    let why = Refusal::Scope { wanted: "b a".into(), challenge: "Bearer".into() };
    assert_eq!(tokens.instead_of(Some("t2"), &why).await.unwrap(), "t3");
    let asked = asked.lock().unwrap();
    assert_eq!(
        asked.last().unwrap().1,
        "grant_type=client_credentials&scope=a+b",
        "what was asked for, and what is missed"
    );
    assert_eq!(asked[0].0["authorization"], "Basic bWU6czNjcmV0");
}

#[tokio::test]
async fn no_more_rights_are_asked_for_than_allowed() {
    let (url, asked) = giver(None).await;
    let tokens = tokens(&url, &oauth(json!({"token_url": format!("{url}/token")})), &Arc::default());
    assert_eq!(tokens.token().await.unwrap().as_deref(), Some("t1"));
    let mut wanted = "x".repeat(limits::MCP_SCOPE + 1);
    for at in 0..limits::MCP_SCOPES + 5 {
        wanted += &format!(" s{at}");
    }
    let why = Refusal::Scope { wanted, challenge: "Bearer".into() };
    assert_eq!(tokens.instead_of(Some("t1"), &why).await.unwrap(), "t2");
    let form = &asked.lock().unwrap()[1].1;
    assert!(!form.contains('x') && form.matches('+').count() == limits::MCP_SCOPES - 1, "{form}");
}

#[tokio::test]
async fn a_token_server_that_wants_the_secret_in_the_form_gets_it_there() {
    let tries = Arc::new(AtomicUsize::new(0));
    let count = tries.clone();
    let give = move |headers: HeaderMap, form: String| {
        count.fetch_add(1, Ordering::SeqCst);
        let fine = !headers.contains_key("authorization") && form.contains("client_id=me&client_secret=s3cret");
        let status = if fine { 200 } else { 401 };
        let body = if fine { json!({"access_token": "t"}) } else { json!({"error": "invalid_client"}) };
        std::future::ready((axum::http::StatusCode::from_u16(status).unwrap(), Body(body)))
    };
    let url = serve(Router::new().route("/token", routing::post(give))).await;
    let tokens = tokens(&url, &oauth(json!({"token_url": format!("{url}/token")})), &Arc::default());
    assert_eq!(tokens.token().await.unwrap().as_deref(), Some("t"));
    let why = Refusal::Unknown { challenge: None };
    tokens.instead_of(Some("t"), &why).await.unwrap();
    assert_eq!(tries.load(Ordering::SeqCst), 3, "the way that worked is remembered");
}

#[tokio::test]
async fn metadata_that_leads_in_circles_is_given_up() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
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
    assert!(asked.load(Ordering::SeqCst) <= 12, "ten of them are followed");
}

#[tokio::test]
async fn a_secret_is_not_sent_where_metadata_points_on_its_own() {
    // The server stands on this machine; the token endpoint that it names does not, and is not reached by TLS.
    for there in ["http://10.255.255.1/token", "http://login.example.org/token", "https://169.254.169.254/token"] {
        let metadata = json!({
            "issuer": "ISSUER", "token_endpoint": there, "authorization_endpoint": there,
            "response_types_supported": ["code"]
        });
        let answer = move |request: Request| {
            let host = request.headers()["host"].to_str().unwrap().to_owned();
            let mut metadata = metadata.clone();
            metadata["issuer"] = json!(format!("http://{host}"));
            let found = request.uri().path() == "/.well-known/oauth-authorization-server";
            let status = if found { 200 } else { 404 };
            std::future::ready((axum::http::StatusCode::from_u16(status).unwrap(), Body(metadata)))
        };
        let url = serve(Router::new().fallback(answer)).await;
        let error = tokens(&url, &oauth(json!({})), &Arc::default()).token().await.unwrap_err().to_string();
        assert!(error.contains("is not called"), "{there}: {error}");
        assert!(!error.contains("s3cret"), "{error}");
    }
}
