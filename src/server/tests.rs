#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use axum::{
    body::{Body, to_bytes},
    http::{Request, StatusCode},
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
async fn an_open_api_is_refused_off_loopback_alone() {
    let refused = listen(&settings("0.0.0.0", true, false)).await.unwrap_err();
    assert!(matches!(refused, ServeError::Unguarded(_)) && refused.to_string().contains("--auth-token"), "{refused}");
    for allowed in [settings("127.0.0.1", true, false), settings("0.0.0.0", true, true)] {
        assert!(listen(&allowed).await.is_ok(), "{allowed:?}");
    }
}

#[tokio::test]
async fn a_taken_port_is_named_with_its_cure() {
    let first = listen(&settings("127.0.0.1", false, false)).await.unwrap();
    let again = ServerSettings::new().port(first.local_addr().unwrap().port());
    let error = listen(&again).await.unwrap_err();
    assert!(error.to_string().contains("--port") && error.code() == "V0102", "{error}");
}

#[test]
fn a_channel_that_asks_for_nothing_is_refused_off_loopback() {
    let rest = |token: Option<&str>| -> Vec<Arc<dyn Channel>> {
        let auth = CallerAuth { token: token.map(str::to_owned), jwt: None };
        vec![Arc::new(channels::RestChannel::new(&RestSettings { auth, ..RestSettings::default() }).unwrap())]
    };
    let (open, closed) = (rest(None), rest(Some("t")));
    let (far, near) = ("0.0.0.0".parse().unwrap(), "127.0.0.1".parse().unwrap());
    let refused = guarded(&open, far).unwrap_err();
    assert!(refused.code() == "V0105" && refused.to_string().contains("--insecure"), "{refused}");
    assert!(guarded(&open, near).is_ok() && guarded(&closed, far).is_ok());
}

const FILES: [(&str, &str); 3] = [
    (
        "config.yml",
        "recipe: default.v1\npipeline: [{name: CompactLLMCommandGenerator}]\npolicies: [{name: FlowPolicy}]\n",
    ),
    ("domain.yml", "responses: {utter_hello: [{text: Hello!}]}\n"),
    ("flows/greet.yml", "flows: {greet: {description: greets, steps: [{action: utter_hello}]}}\n"),
];

/// A project with these files beside. Secrets of endpoints.yml come from the environment alone, so the word `guarded` in a description
/// stands for the token of the A2A server.
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

/// The channels of a project with these files.
fn opened(files: &[(&str, &str)]) -> Vec<Arc<dyn Channel>> {
    let (channels, errors) = channels::open(&project(files), &ChannelOptions::new());
    assert!(errors.is_empty(), "{errors:?}");
    channels
}

const ALL_CREDENTIALS: &str = if cfg!(feature = "mcp") {
    "rest: {auth_token: t0k, allowed_origins: ['https://shop.example']}\nmcp: {auth_token: t0k}\n"
} else {
    "rest: {auth_token: t0k, allowed_origins: ['https://shop.example']}\n"
};

const ALL: [(&str, &str); 2] =
    [("credentials.yml", ALL_CREDENTIALS), ("endpoints.yml", "a2a_server: {description: guarded}\n")];

/// The main routes of our channels.
const ROUTES: &[&str] = if cfg!(feature = "mcp") {
    &["/webhooks/rest/webhook", "/a2a", "/a2a/rest/message:send", "/mcp"]
} else {
    &["/webhooks/rest/webhook", "/a2a", "/a2a/rest/message:send"]
};

/// The status of the answer to a request, and whether its body was read. `address` is where the server listens.
async fn posted(
    router: &Router,
    address: Option<&str>,
    route: &str,
    headers: &[(&str, &str)],
) -> (StatusCode, bool, String) {
    let was_read = Arc::new(AtomicBool::new(false));
    let seen = was_read.clone();
    let body = futures::stream::once(async move {
        seen.store(true, Ordering::SeqCst);
        Ok::<_, std::convert::Infallible>("{}")
    });
    let mut request = Request::post(route);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    if let Some(address) = address {
        request = request.extension(ServerAddress(address.parse().unwrap()));
    }
    let answer = router.clone().oneshot(request.body(Body::from_stream(body)).unwrap()).await.unwrap();
    let status = answer.status();
    // A stream of the MCP server stays open.
    let text =
        if status.is_success() { Vec::new() } else { to_bytes(answer.into_body(), 65_536).await.unwrap().to_vec() };
    (status, was_read.load(Ordering::SeqCst), String::from_utf8(text).unwrap())
}

const NEAR: &str = "127.0.0.1:5005";
const FAR: &str = "10.0.0.5:5005";
const TOKEN: (&str, &str) = ("authorization", "Bearer t0k");

#[tokio::test]
async fn every_channel_refuses_foreign_pages_and_names_before_the_body() {
    let router = axum_router(&assistant(&ALL));
    let page = "http://evil.example";
    let near_page = "http://localhost:3000";
    // Where the server listens, the name by which it is called, and the page that calls it.
    let foreign = [
        (Some(NEAR), NEAR, page),
        (Some(NEAR), "evil.example", ""),
        (Some(FAR), "assistant.example", page),
        (Some(FAR), "assistant.example", near_page),
        (None, NEAR, page),
        (None, "assistant.example", near_page),
    ];
    for route in ROUTES {
        for (address, host, page) in foreign {
            let origin = (!page.is_empty()).then_some(("origin", page));
            let headers: Vec<_> = [("host", host), TOKEN].into_iter().chain(origin).collect();
            let (status, was_read, text) = posted(&router, address, route, &headers).await;
            assert_eq!((status, was_read), (StatusCode::FORBIDDEN, false), "{route} {address:?} {headers:?}: {text}");
            assert!(text.contains("V0106"), "{route}: {text}");
        }
        // A page of one channel is none of another.
        let shop = [("host", "assistant.example"), ("origin", "https://shop.example"), TOKEN];
        let wanted = *route == "/webhooks/rest/webhook";
        let (status, was_read, text) = posted(&router, Some(FAR), route, &shop).await;
        assert_eq!((status != StatusCode::FORBIDDEN, was_read), (wanted, wanted), "{route}: {text}");
    }
}

#[tokio::test]
async fn every_channel_asks_for_its_proof_before_the_body() {
    let router = axum_router(&assistant(&ALL));
    for route in ROUTES {
        for address in [Some(NEAR), None] {
            for headers in [&[("host", NEAR)][..], &[("host", NEAR), ("authorization", "Bearer wrong")]] {
                let (status, was_read, text) = posted(&router, address, route, headers).await;
                assert_eq!((status, was_read), (StatusCode::UNAUTHORIZED, false), "{route} {headers:?}: {text}");
            }
            let (status, was_read, _) = posted(&router, address, route, &[("host", NEAR), TOKEN]).await;
            assert!(was_read && status != StatusCode::UNAUTHORIZED, "{route}: {status}");
        }
    }
}

#[test]
fn every_channel_is_refused_off_loopback_where_it_asks_for_nothing() {
    let (far, near) = ("0.0.0.0".parse().unwrap(), "127.0.0.1".parse().unwrap());
    let open: &[(&str, &str, &str, &str)] = &[
        ("rest", "rest: {}\n", "", "auth_token"),
        #[cfg(feature = "mcp")]
        ("mcp", "mcp: {}\n", "", "--auth-token"),
        ("a2a", "cmdline: {}\n", "a2a_server: {description: greets}\n", "a2a_server"),
    ];
    for (name, credentials, endpoints, advice) in open {
        let channels = opened(&[("credentials.yml", credentials), ("endpoints.yml", endpoints)]);
        assert_eq!(channels.iter().map(|channel| channel.name()).collect::<Vec<_>>(), [*name]);
        let refused = guarded(&channels, far).unwrap_err();
        let text = refused.to_string();
        for named in [*name, *advice, "0.0.0.0", "--insecure"] {
            assert!(text.contains(named), "{named}: {text}");
        }
        assert_eq!(refused.code(), "V0105");
        assert!(guarded(&channels, near).is_ok(), "{name}");
    }
    assert!(guarded(&opened(&ALL), far).is_ok());
}

/// A channel that takes no requests.
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
            return Err("the other end went away".into());
        }
        stop.cancelled().await;
        self.has_run.store(true, Ordering::SeqCst);
        Ok(())
    }
}

#[tokio::test]
async fn a_channel_without_routes_runs_until_the_server_stops() {
    let has_run = Arc::new(AtomicBool::new(false));
    let poller = |fails| -> Arc<dyn Channel> { Arc::new(Poller { fails, has_run: has_run.clone() }) };
    let channels = [poller(true), poller(false)];
    assert!(guarded(&channels, "0.0.0.0".parse().unwrap()).is_ok());
    let assistant = assistant(&[]);
    let router = router(&assistant, &channels);
    assert_eq!(posted(&router, None, "/webhooks/poller/webhook", &[]).await.0, StatusCode::NOT_FOUND);
    let stop = CancellationToken::new();
    let mut running = std::pin::pin!(run_channels(&assistant, &channels, &stop));
    assert!(futures::poll!(&mut running).is_pending());
    stop.cancel();
    running.await;
    assert!(has_run.load(Ordering::SeqCst), "one that fails does not end the others");
}

#[tokio::test]
async fn of_two_channels_with_one_route_the_first_has_it() {
    let rest = |token: &str| -> Arc<dyn Channel> {
        let auth = CallerAuth { token: Some(token.to_owned()), jwt: None };
        Arc::new(channels::RestChannel::new(&RestSettings { auth, ..RestSettings::default() }).unwrap())
    };
    let router = router(&assistant(&[]), &[rest("t0k"), rest("other")]);
    let route = "/webhooks/rest/webhook";
    assert_ne!(posted(&router, None, route, &[TOKEN]).await.0, StatusCode::UNAUTHORIZED);
    let other = [("authorization", "Bearer other")];
    assert_eq!(posted(&router, None, route, &other).await.0, StatusCode::UNAUTHORIZED);
}
