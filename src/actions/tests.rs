//! The client with a scripted server on loopback, and with child processes that imitate Python.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[cfg(unix)]
mod python;
mod server;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use segue_engine::{
    conversation::{ActionOutcome, ActionServerResponse, StepError},
    ids::{ActionName, ConversationId},
    project::{ActionEndpointDef, Project},
};
use serde_json::json;

use self::server::{Heard, Server, answer};
use super::*;
use crate::{
    clock::{Deadline, Timestamp},
    limits,
    testing::ManualClock,
};

const FILES: [(&str, &str); 2] = [
    ("config.yml", "pipeline: []\n"),
    ("domain.yml", "slots: {a: {type: text}}\nactions: [action_a, {action_b: {send_domain: true}}]\n"),
];

fn project() -> Project {
    crate::project::from_texts(FILES).project.unwrap()
}

/// A manual clock, on which the short pause between two polls ends at once.
#[derive(Clone, Default)]
struct Paced(ManualClock);

#[async_trait]
impl Clock for Paced {
    fn now(&self) -> Timestamp {
        self.0.now()
    }
    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
    async fn sleep(&self, until: Deadline) {
        if until.0.saturating_sub(self.elapsed()) <= limits::ACTION_POLL {
            return tokio::task::yield_now().await;
        }
        self.0.sleep(until).await
    }
}

fn around(clock: &Paced, environment: &[(&str, &str)]) -> ActionEnvironment {
    ActionEnvironment {
        clock: Arc::new(clock.clone()),
        http: HttpClients::new(),
        directory: PathBuf::new(),
        environment: environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
    }
}

/// A client of a server at this address, with its clock.
fn client(url: &str, change: impl FnOnce(&mut ActionEndpointDef)) -> (Arc<dyn ActionServer>, Paced) {
    let clock = Paced::default();
    let mut def = ActionEndpointDef { url: Some(url.to_owned()), ..ActionEndpointDef::default() };
    change(&mut def);
    (open(&def, &project(), around(&clock, &[])), clock)
}

async fn run(server: &dyn ActionServer, clock: &Paced, action: &str) -> ActionOutcome {
    let (action, conversation) = (ActionName::from(action), ConversationId::from("u1"));
    let tracker = json!({"sender_id": "u1", "events": []});
    let request =
        ActionRequest { action: &action, conversation: &conversation, tracker: &tracker, idempotency_key: "key-1" };
    server.run(request, &clock.0.context(Duration::from_secs(60))).await
}

fn error(outcome: ActionOutcome) -> StepError {
    match outcome {
        ActionOutcome::Failed(error) => error,
        other => panic!("it did not fail: {other:?}"),
    }
}

fn fine(heard: &Heard) -> Option<String> {
    let slot = json!({"event": "slot", "name": "a", "value": heard.json["next_action"], "timestamp": null});
    Some(answer(200, &json!({"events": [slot], "responses": []}).to_string()))
}

#[tokio::test]
async fn domain_is_sent_only_on_request() {
    // Caches one domain by its digest, like `rasa-sdk`.
    let kept = std::sync::Mutex::new(None);
    let server = Server::start(move |heard| {
        let mut kept = kept.lock().unwrap();
        if heard.json["domain"].is_object() {
            *kept = Some(heard.json["domain_digest"].clone());
        }
        if kept.as_ref() == Some(&heard.json["domain_digest"]) {
            return fine(heard);
        }
        Some(answer(449, r#"{"error": "no domain", "action_name": "action_a"}"#))
    })
    .await;
    let (client, clock) = client(&server.url, |_| {});
    for _ in 0..2 {
        let ActionOutcome::ServerResponse(ActionServerResponse { events, .. }) =
            run(&*client, &clock, "action_a").await
        else {
            panic!()
        };
        assert_eq!(events[0]["value"], "action_a");
    }
    let heard = server.heard();
    let domains: Vec<bool> = heard.iter().map(|heard| heard.json.get("domain").is_some()).collect();
    assert_eq!(domains, [false, true, false], "asked for once, then kept");
    let body = &heard[1].json;
    assert_eq!((&body["sender_id"], &body["tracker"]["sender_id"]), (&json!("u1"), &json!("u1")));
    assert_eq!(body["domain"]["slots"], json!({"a": {"type": "text"}}));
    assert!(body["domain_digest"].as_str().is_some_and(|digest| !digest.is_empty()), "{body}");
    assert!(heard.iter().all(|heard| heard.header("idempotency-key") == Some("key-1")));
    assert_eq!(server.connections(), 1, "one connection for all");
    assert_eq!(client.status(), Health::Up);
}

#[tokio::test]
async fn selective_domain_is_sent_only_to_actions_with_send_domain() {
    let server = Server::start(|heard| {
        let has = heard.json.get("domain").is_some();
        if has { fine(heard) } else { Some(answer(449, "{}")) }
    })
    .await;
    let (client, clock) = client(&server.url, |def| def.selective_domain = true);
    for action in ["action_a", "action_b"] {
        assert!(matches!(run(&*client, &clock, action).await, ActionOutcome::ServerResponse(_)));
    }
    let heard = server.heard();
    assert_eq!(heard[1].json["domain"], json!({}), "action_a does not ask for it");
    assert!(heard[3].json["domain"]["slots"]["a"].is_object(), "action_b does");
}

#[tokio::test]
async fn repeated_request_for_the_domain_is_an_error() {
    let server = Server::start(|_| Some(answer(449, "{}"))).await;
    let (client, clock) = client(&server.url, |_| {});
    assert_eq!(error(run(&*client, &clock, "action_a").await).code, "bad_answer");
    assert_eq!(server.heard().len(), 2);
}

#[tokio::test]
async fn headers_parameters_and_basic_auth_are_sent() {
    let server = Server::start(fine).await;
    let (client, clock) = client(&server.url, |def| {
        def.params = vec![("token".to_owned(), "secret&1".to_owned())];
        def.headers = vec![("X-Own".to_owned(), "yes".to_owned())];
        def.basic_auth = Some(("anna".to_owned(), "pass".to_owned()));
        def.compress = Some(true);
    });
    assert!(matches!(run(&*client, &clock, "action_a").await, ActionOutcome::ServerResponse(_)));
    let heard = &server.heard()[0];
    assert_eq!(heard.line, "POST /webhook?token=secret%261 HTTP/1.1");
    assert_eq!((heard.header("x-own"), heard.header("authorization")), (Some("yes"), Some("Basic YW5uYTpwYXNz")));
    assert_eq!(
        (heard.header("content-encoding"), heard.header("content-type")),
        (Some("deflate"), Some("application/json"))
    );
    assert_eq!(heard.json["next_action"], "action_a", "the compressed body is read");
}

#[tokio::test]
async fn compression_defaults_to_the_environment() {
    let server = Server::start(fine).await;
    let def = ActionEndpointDef { url: Some(server.url.clone()), ..ActionEndpointDef::default() };
    for (value, wanted) in [("true", Some("deflate")), ("0", None)] {
        let clock = Paced::default();
        let client = open(&def, &project(), around(&clock, &[("COMPRESS_ACTION_SERVER_REQUEST", value)]));
        run(&*client, &clock, "action_a").await;
        assert_eq!(server.heard().last().unwrap().header("content-encoding"), wanted, "{value}");
    }
}

#[tokio::test]
async fn every_kind_of_failure_has_its_code() {
    let large = "x".repeat(limits::ACTION_ANSWER + 1);
    let server = Server::start(move |heard| match heard.json["next_action"].as_str()? {
        "closes" => None,
        "large" => Some(answer(200, &large)),
        "large_in_pieces" => {
            let piece = "ffff\r\n".to_owned() + &"x".repeat(0xffff) + "\r\n";
            Some("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_owned() + &piece.repeat(70) + "0\r\n\r\n")
        }
        "breaks" => Some(answer(500, r#"{"error": "boom"}"#)),
        _ => Some(answer(404, r#"{"error": "none", "action_name": "unknown"}"#)),
    })
    .await;
    let (client, clock) = client(&server.url, |def| def.params = vec![("token".to_owned(), "hush".to_owned())]);
    for (action, code, in_doubt) in [
        ("closes", "lost", true),
        ("large", "bad_answer", true),
        ("large_in_pieces", "bad_answer", true),
        ("breaks", "server_error", true),
        ("unknown", "not_found", false),
    ] {
        let error = error(run(&*client, &clock, action).await);
        assert_eq!((error.code.as_str(), error.may_have_run), (code, in_doubt), "{action}: {}", error.message);
        assert!(!error.message.contains("hush"), "{}", error.message);
    }
    // Bound and never listening: the port stays reserved, and nothing responds there.
    let nobody = tokio::net::TcpSocket::new_v4().unwrap();
    nobody.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let port = nobody.local_addr().unwrap().port();
    for (url, code) in [
        (format!("http://127.0.0.1:{port}/webhook"), "unreachable"),
        #[cfg(not(feature = "grpc"))]
        ("grpc://127.0.0.1:1".to_owned(), "unsupported"),
        #[cfg(feature = "grpc")]
        (format!("grpc://127.0.0.1:{port}"), "unreachable"),
        ("grpc://169.254.169.254".to_owned(), "unsupported"),
        ("http://169.254.169.254/webhook".to_owned(), "unsupported"),
    ] {
        let (client, clock) = self::client(&url, |_| {});
        let error = error(run(&*client, &clock, "action_a").await);
        assert_eq!((error.code.as_str(), error.may_have_run), (code, false), "{url}: {}", error.message);
    }
    let (client, clock) = self::client(&server.url, |def| def.cafile = Some("/nowhere/ca.pem".to_owned()));
    let error = error(run(&*client, &clock, "action_a").await);
    assert!(error.code == "unsupported" && error.message.contains("cafile"), "{error:?}");
}

#[tokio::test]
async fn slow_action_times_out() {
    for (configured, limit) in [(None, limits::ACTION_DEADLINE), (Some(Duration::from_secs(3)), Duration::from_secs(3))]
    {
        let server = Server::silent().await;
        let (client, clock) = client(&server.url, |def| def.timeout = configured);
        let mut running = std::pin::pin!(run(&*client, &clock, "action_a"));
        while server.heard().is_empty() {
            assert!(futures::poll!(&mut running).is_pending());
            tokio::task::yield_now().await;
        }
        clock.0.advance(limit - Duration::from_millis(1));
        assert!(futures::poll!(&mut running).is_pending(), "{limit:?} are not over");
        clock.0.advance(Duration::from_millis(1));
        let error = error(running.await);
        assert_eq!((error.code.as_str(), error.may_have_run), ("timeout", true));
        assert_eq!(error.message, format!("no answer within {} s", limit.as_secs()));
    }
}

#[tokio::test]
async fn list_actions_requests_health_and_actions() {
    let server = Server::start(|heard| match heard.line.split(' ').nth(1)? {
        "/deep/health" => Some(answer(200, r#"{"status": "ok"}"#)),
        "/deep/actions" => Some(answer(200, r#"[{"name": "action_a"}, {}]"#)),
        _ => Some(answer(404, "")),
    })
    .await;
    let deep = server.url.replace("/webhook", "/deep/webhook");
    let (client, clock) = client(&deep, |_| {});
    let cx = clock.0.context(Duration::from_secs(60));
    assert_eq!(client.list_actions(&cx).await.unwrap(), ["action_a"]);
    let (client, _) = self::client(&server.url, |_| {});
    assert!(client.list_actions(&cx).await.unwrap_err().contains("404"));
}

#[tokio::test]
async fn silent_server_times_out_in_list_actions() {
    let server = Server::silent().await;
    let (client, clock) = client(&server.url, |_| {});
    let cx = clock.0.context(Duration::from_secs(60));
    let mut asking = std::pin::pin!(client.list_actions(&cx));
    while server.heard().is_empty() {
        assert!(futures::poll!(&mut asking).is_pending());
        tokio::task::yield_now().await;
    }
    clock.0.advance(limits::ACTION_HEALTH);
    assert!(asking.await.unwrap_err().contains("health"));
}
