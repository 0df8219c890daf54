#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;
use axum::{
    body::{Body, to_bytes},
    http::{Method, Request, StatusCode},
};
use segue_engine::project::{CallerAuth, RestSettings};
use tower::ServiceExt as _;

use super::*;
use crate::{channels::RunError, runtime::AssistantBuilder, testing::ScriptedLlm};

fn settings(host: &str, api: bool, api_has_token: bool) -> ServerSettings {
    let settings = ServerSettings::new().host(host.parse::<IpAddr>().unwrap()).port(0);
    if api { settings.api(api_has_token) } else { settings }
}

#[tokio::test]
async fn api_without_a_token_is_refused_except_on_loopback() {
    let refused = listen(&settings("0.0.0.0", true, false)).await.unwrap_err();
    assert!(
        matches!(refused, ServeError::UnauthenticatedApi(_)) && refused.to_string().contains("--auth-token"),
        "{refused}"
    );
    for allowed in [settings("127.0.0.1", true, false), settings("0.0.0.0", true, true)] {
        assert!(listen(&allowed).await.is_ok(), "{allowed:?}");
    }
}

#[tokio::test]
async fn port_in_use_is_an_error_that_suggests_another_port() {
    let first = listen(&settings("127.0.0.1", false, false)).await.unwrap();
    let again = ServerSettings::new().port(first.local_addr().unwrap().port());
    let error = listen(&again).await.unwrap_err();
    assert!(error.to_string().contains("--port") && error.code() == "V0102", "{error}");
}

#[test]
fn channel_without_authentication_is_refused_except_on_loopback() {
    let rest = |token: Option<&str>| -> Vec<Arc<dyn Channel>> {
        let auth = CallerAuth { token: token.map(str::to_owned), jwt: None };
        vec![Arc::new(channels::RestChannel::new(&RestSettings { auth, ..RestSettings::default() }).unwrap())]
    };
    let (without_token, with_token) = (rest(None), rest(Some("t")));
    let (public, loopback) = ("0.0.0.0".parse().unwrap(), "127.0.0.1".parse().unwrap());
    let refused = check_exposure(&without_token, public).unwrap_err();
    assert!(refused.code() == "V0105" && refused.to_string().contains("--insecure"), "{refused}");
    assert!(check_exposure(&without_token, loopback).is_ok() && check_exposure(&with_token, public).is_ok());
}

const FILES: [(&str, &str); 3] = [
    (
        "config.yml",
        "recipe: default.v1\npipeline: [{name: CompactLLMCommandGenerator}]\npolicies: [{name: FlowPolicy}]\n",
    ),
    ("domain.yml", "responses: {utter_hello: [{text: Hello!}]}\n"),
    ("flows/greet.yml", "flows: {greet: {description: greets, steps: [{action: utter_hello}]}}\n"),
];

/// A project with [`FILES`] and these files. The token of the A2A server can come from the environment only, so the description `guarded`
/// sets it.
fn project(files: &[(&str, &str)]) -> crate::project::Project {
    let loaded = crate::project::from_texts(FILES.iter().chain(files).copied());
    let mut project = loaded.project.unwrap();
    if let Some(server) = project.endpoints.a2a_server.as_mut().filter(|server| &*server.description == "guarded") {
        server.token = Some("t0k".to_owned());
    }
    project
}

fn assistant(files: &[(&str, &str)]) -> Assistant {
    let builder = AssistantBuilder::new(Arc::new(project(files)), std::path::PathBuf::new());
    builder.model(Arc::new(ScriptedLlm::strict([""; 0]))).build().unwrap()
}

/// The channels that a project with these files opens.
fn open_channels(files: &[(&str, &str)]) -> Vec<Arc<dyn Channel>> {
    let (channels, errors) = channels::open(&project(files), &ChannelOptions::new());
    assert!(errors.is_empty(), "{errors:?}");
    channels
}

const CREDENTIALS_OF_ALL_CHANNELS: &str = if cfg!(feature = "mcp") {
    "rest: {auth_token: t0k, allowed_origins: ['https://shop.example']}\nmcp: {auth_token: t0k}\nwebsocket: {auth_token: t0k}\nsocketio: {auth_token: t0k}\ncallback: {auth_token: t0k, url: 'http://127.0.0.1:9/'}\n"
} else {
    "rest: {auth_token: t0k, allowed_origins: ['https://shop.example']}\nwebsocket: {auth_token: t0k}\nsocketio: {auth_token: t0k}\ncallback: {auth_token: t0k, url: 'http://127.0.0.1:9/'}\n"
};

/// A project with every channel, each with a token.
const ALL_CHANNELS: [(&str, &str); 2] =
    [("credentials.yml", CREDENTIALS_OF_ALL_CHANNELS), ("endpoints.yml", "a2a_server: {description: guarded}\n")];

/// The main routes of the built-in channels.
const ROUTES: &[&str] = if cfg!(feature = "mcp") {
    &[
        "/webhooks/rest/webhook",
        "/webhooks/websocket/connect",
        "/webhooks/callback/webhook",
        "/a2a",
        "/a2a/rest/message:send",
        "/mcp",
    ]
} else {
    &[
        "/webhooks/rest/webhook",
        "/webhooks/websocket/connect",
        "/webhooks/callback/webhook",
        "/a2a",
        "/a2a/rest/message:send",
    ]
};
/// A route whose clients authenticate with the first packet of their protocol.
const SOCKET_IO: &str = "/socket.io/";

/// Posts a request. Returns the status, whether the body was read, and the text of an error. `address` is where the server listens.
async fn post(
    router: &Router,
    address: Option<&str>,
    route: &str,
    headers: &[(&str, &str)],
) -> (StatusCode, bool, String) {
    let was_read = Arc::new(AtomicBool::new(false));
    let was_read_by_server = was_read.clone();
    let body = futures::stream::once(async move {
        was_read_by_server.store(true, Ordering::SeqCst);
        Ok::<_, std::convert::Infallible>("{}")
    });
    let mut request = Request::post(route);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    if let Some(address) = address {
        request = request.extension(ServerAddress(address.parse().unwrap()));
    }
    let response = router.clone().oneshot(request.body(Body::from_stream(body)).unwrap()).await.unwrap();
    let status = response.status();
    // An event stream of the MCP server stays open.
    let text =
        if status.is_success() { Vec::new() } else { to_bytes(response.into_body(), 65_536).await.unwrap().to_vec() };
    (status, was_read.load(Ordering::SeqCst), String::from_utf8(text).unwrap())
}

const LOOPBACK: &str = "127.0.0.1:5005";
const PRIVATE: &str = "10.0.0.5:5005";
const TOKEN: (&str, &str) = ("authorization", "Bearer t0k");

#[tokio::test]
async fn every_channel_refuses_unknown_origin_and_host_before_the_body_is_read() {
    let router = axum_router(&assistant(&ALL_CHANNELS));
    let page = "http://evil.example";
    let loopback_page = "http://localhost:3000";
    // The server's address, `Host` and `Origin`.
    let refused = [
        (Some(LOOPBACK), LOOPBACK, page),
        (Some(LOOPBACK), "evil.example", ""),
        (Some(PRIVATE), "assistant.example", page),
        (Some(PRIVATE), "assistant.example", loopback_page),
        (None, LOOPBACK, page),
        (None, "assistant.example", loopback_page),
    ];
    for route in ROUTES.iter().chain([&SOCKET_IO]) {
        for (address, host, page) in refused {
            let origin = (!page.is_empty()).then_some(("origin", page));
            let headers: Vec<_> = [("host", host), TOKEN].into_iter().chain(origin).collect();
            let (status, was_read, text) = post(&router, address, route, &headers).await;
            assert_eq!((status, was_read), (StatusCode::FORBIDDEN, false), "{route} {address:?} {headers:?}: {text}");
            assert!(text.contains("V0106"), "{route}: {text}");
        }
        // The host of a target in absolute form replaces the header.
        for (address, target, host) in [
            (Some(LOOPBACK), "evil.example", LOOPBACK),
            (Some(LOOPBACK), "evil.example:5005", "localhost"),
            (None, "assistant.example", LOOPBACK),
        ] {
            let origin = address.is_none().then_some(("origin", loopback_page));
            let headers: Vec<_> = [("host", host), TOKEN].into_iter().chain(origin).collect();
            let (status, was_read, text) = post(&router, address, &format!("http://{target}{route}"), &headers).await;
            assert_eq!((status, was_read), (StatusCode::FORBIDDEN, false), "{target}{route}: {text}");
        }
        let (status, ..) =
            post(&router, Some(LOOPBACK), &format!("http://{LOOPBACK}{route}"), &[("host", "evil.example"), TOKEN])
                .await;
        assert_ne!(status, StatusCode::FORBIDDEN, "{route}");
        // The allowed origin of one channel is not allowed for another.
        let shop = [("host", "assistant.example"), ("origin", "https://shop.example"), TOKEN];
        let is_allowed = *route == "/webhooks/rest/webhook";
        let (status, was_read, text) = post(&router, Some(PRIVATE), route, &shop).await;
        assert_eq!((status != StatusCode::FORBIDDEN, was_read), (is_allowed, is_allowed), "{route}: {text}");
    }
}

/// The CORS headers of a response, without `vary`.
fn cors_headers(response: &axum::http::Response<Body>) -> BTreeMap<String, String> {
    let headers = response.headers().iter().filter(|(name, _)| name.as_str().starts_with("access-control-"));
    headers.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned())).collect()
}

#[tokio::test]
async fn exactly_the_listed_pages_can_read_responses() {
    let router = axum_router(&assistant(&ALL_CHANNELS));
    let address = |address: &str| ServerAddress(address.parse().unwrap());
    for (origin, route, is_readable) in [
        ("https://shop.example", "/webhooks/rest/webhook", true),
        ("https://SHOP.example", "/webhooks/rest/webhook", true),
        ("https://shop.example", "/livez", true),
        // The check lets it pass on loopback, but nobody listed it.
        ("http://localhost:3000", "/webhooks/rest/webhook", false),
        ("http://localhost:3000", "/livez", false),
        ("https://shop.example", "/a2a", false),
        ("https://evil.example", "/webhooks/rest/webhook", false),
        ("https://evil.example", "/livez", false),
        ("null", "/webhooks/rest/webhook", false),
    ] {
        let request = |method: Method| {
            let request = Request::builder().method(method).uri(route).extension(address(LOOPBACK));
            request.header("host", LOOPBACK).header("origin", origin)
        };
        // No token: a browser sends none with its question.
        let question = request(Method::OPTIONS)
            .header("access-control-request-method", "POST")
            .header("access-control-request-headers", "authorization,content-type,idempotency-key")
            .body(Body::empty());
        let response = router.clone().oneshot(question.unwrap()).await.unwrap();
        let headers = cors_headers(&response);
        let allowed = headers.get("access-control-allow-origin").map(String::as_str);
        assert_eq!(allowed, is_readable.then_some(origin), "{origin} {route}: {response:?}");
        if is_readable {
            assert_eq!(response.status(), StatusCode::OK);
            assert_eq!(headers["access-control-allow-headers"], "authorization,content-type,idempotency-key");
            assert!(headers["access-control-allow-methods"].contains("POST"), "{headers:?}");
        }
        // Errors can be read too: 401 here.
        let response = router.clone().oneshot(request(Method::GET).body(Body::empty()).unwrap()).await.unwrap();
        let headers = cors_headers(&response);
        let allowed = headers.get("access-control-allow-origin").map(String::as_str);
        assert_eq!(allowed, is_readable.then_some(origin), "{origin} {route}: {response:?}");
        assert!(!headers.contains_key("access-control-allow-credentials"), "{headers:?}");
    }
}

#[tokio::test]
async fn every_channel_authenticates_before_the_body_is_read() {
    let router = axum_router(&assistant(&ALL_CHANNELS));
    for route in ROUTES {
        for address in [Some(LOOPBACK), None] {
            for headers in [&[("host", LOOPBACK)][..], &[("host", LOOPBACK), ("authorization", "Bearer wrong")]] {
                let (status, was_read, text) = post(&router, address, route, headers).await;
                assert_eq!((status, was_read), (StatusCode::UNAUTHORIZED, false), "{route} {headers:?}: {text}");
            }
            let (status, was_read, _) = post(&router, address, route, &[("host", LOOPBACK), TOKEN]).await;
            assert!(was_read && status != StatusCode::UNAUTHORIZED, "{route}: {status}");
        }
    }
}

#[test]
fn every_channel_without_authentication_is_refused_except_on_loopback() {
    let (public, loopback) = ("0.0.0.0".parse().unwrap(), "127.0.0.1".parse().unwrap());
    let cases: &[(&str, &str, &str, &str)] = &[
        ("rest", "rest: {}\n", "", "auth_token"),
        #[cfg(feature = "mcp")]
        ("mcp", "mcp: {}\n", "", "--auth-token"),
        ("websocket", "websocket: {}\n", "", "auth_token"),
        ("socketio", "socketio: {}\n", "", "jwt_key"),
        ("callback", "callback: {url: 'http://127.0.0.1:9/'}\n", "", "auth_token"),
        ("a2a", "cmdline: {}\n", "a2a_server: {description: greets}\n", "a2a_server"),
    ];
    for (name, credentials, endpoints, advice) in cases {
        let channels = open_channels(&[("credentials.yml", credentials), ("endpoints.yml", endpoints)]);
        assert_eq!(channels.iter().map(|channel| channel.name()).collect::<Vec<_>>(), [*name]);
        let refused = check_exposure(&channels, public).unwrap_err();
        let text = refused.to_string();
        for part in [*name, *advice, "0.0.0.0", "--insecure"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(refused.code(), "V0105");
        assert!(check_exposure(&channels, loopback).is_ok(), "{name}");
    }
    assert!(check_exposure(&open_channels(&ALL_CHANNELS), public).is_ok());
}

/// A channel without routes.
struct Poller {
    fails: bool,
    has_run: Arc<AtomicBool>,
}

#[async_trait]
impl Channel for Poller {
    fn name(&self) -> &str {
        "poller"
    }
    fn routes(&self) -> Routes {
        Routes::None
    }
    async fn run(&self, _: Inbox, stop: CancellationToken) -> Result<(), RunError> {
        if self.fails {
            return Err("the connection was lost".into());
        }
        stop.cancelled().await;
        self.has_run.store(true, Ordering::SeqCst);
        Ok(())
    }
}

#[tokio::test]
async fn channel_without_routes_runs_until_the_server_stops() {
    let has_run = Arc::new(AtomicBool::new(false));
    let poller = |fails| -> Arc<dyn Channel> { Arc::new(Poller { fails, has_run: has_run.clone() }) };
    let channels = [poller(true), poller(false)];
    assert!(check_exposure(&channels, "0.0.0.0".parse().unwrap()).is_ok());
    let assistant = assistant(&[]);
    let router = router(&assistant, &channels);
    assert_eq!(post(&router, None, "/webhooks/poller/webhook", &[]).await.0, StatusCode::NOT_FOUND);
    let stop = CancellationToken::new();
    let mut running = std::pin::pin!(run_channels(&assistant, &channels, &stop));
    assert!(futures::poll!(&mut running).is_pending());
    stop.cancel();
    running.await;
    assert!(has_run.load(Ordering::SeqCst), "a channel that fails does not stop the others");
}

#[tokio::test]
async fn first_channel_serves_a_route_that_two_channels_have() {
    let rest = |token: &str| -> Arc<dyn Channel> {
        let auth = CallerAuth { token: Some(token.to_owned()), jwt: None };
        Arc::new(channels::RestChannel::new(&RestSettings { auth, ..RestSettings::default() }).unwrap())
    };
    let router = router(&assistant(&[]), &[rest("t0k"), rest("other")]);
    let route = "/webhooks/rest/webhook";
    assert_ne!(post(&router, None, route, &[TOKEN]).await.0, StatusCode::UNAUTHORIZED);
    let other = [("authorization", "Bearer other")];
    assert_eq!(post(&router, None, route, &other).await.0, StatusCode::UNAUTHORIZED);
}
