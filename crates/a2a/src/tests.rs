//! Tests of the client over HTTP, with responses of recorded shape. Tests against the Python SDK are in
//! `tests/interop`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use axum::{
    Router,
    body::Bytes,
    extract::{Request, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use futures::future::BoxFuture;
use segue_base::{
    clock::{Clock, Deadline},
    http::HttpClients,
    limits,
    outbound_auth::{ClientCredentials, ClientGrant, OutboundCredentials},
    secret::Secret,
};
use segue_lang::time::Timestamp;
use serde_json::{Value as Json, json};

use super::{
    model::{Role, TaskState, text_of},
    *,
};

/// A request: method and path, the headers in one text, the body.
#[derive(Clone, Debug)]
struct ReceivedRequest {
    line: String,
    headers: String,
    body: Json,
}

type Answers = dyn Fn(&ReceivedRequest, usize) -> (u16, &'static str, String) + Send + Sync;

/// An agent that answers each request by a function of the request and its number.
#[derive(Clone)]
struct TestAgent {
    received: Arc<Mutex<Vec<ReceivedRequest>>>,
    answers: Arc<Answers>,
    url: Arc<str>,
}

impl TestAgent {
    async fn new(
        answers: impl Fn(&str, &ReceivedRequest, usize) -> (u16, &'static str, String) + Send + Sync + 'static,
    ) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url: Arc<str> = format!("http://{}", listener.local_addr().unwrap()).into();
        let own = url.clone();
        let answers: Arc<Answers> = Arc::new(move |received, at| answers(&own, received, at));
        let agent = Self { received: Arc::default(), answers, url };
        let router = Router::new().fallback(take).with_state(agent.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        agent
    }
    fn received(&self) -> Vec<ReceivedRequest> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn take(State(agent): State<TestAgent>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let body: Bytes = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    let headers: Vec<String> =
        head.headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap_or_default())).collect();
    let received = ReceivedRequest {
        line: format!("{} {}", head.method, head.uri),
        headers: headers.join("\n"),
        body: serde_json::from_slice(&body).unwrap_or_default(),
    };
    let at = {
        let mut all = agent.received.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(received.clone());
        all.iter().filter(|received| !received.line.contains("well-known")).count()
    };
    let (status, kind, text) = (agent.answers)(&received, at);
    (StatusCode::from_u16(status).unwrap(), [("content-type", kind)], text).into_response()
}

/// Sleeps of a few seconds return at once; longer ones, which guard against silence, never do.
#[derive(Default)]
struct FastClock {
    now: Mutex<Duration>,
    slept: Mutex<Vec<Duration>>,
}

#[async_trait]
impl Clock for FastClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(0)
    }
    fn elapsed(&self) -> Duration {
        *self.now.lock().unwrap()
    }
    async fn sleep(&self, until: Deadline) {
        let pause = until.0.saturating_sub(self.elapsed());
        if pause > limits::A2A_PAUSE_MAX {
            return std::future::pending().await;
        }
        self.slept.lock().unwrap().push(pause);
        *self.now.lock().unwrap() += pause;
    }
}

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";

fn card_v0_3(url: &str, streaming: bool) -> String {
    json!({"name": "x", "url": url, "protocolVersion": "0.3.0", "capabilities": {"streaming": streaming}}).to_string()
}

fn card_v1_0(url: &str) -> String {
    let interfaces = json!([{"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]);
    json!({"name": "x", "supportedInterfaces": interfaces, "capabilities": {"streaming": true}}).to_string()
}

fn is_card(received: &ReceivedRequest) -> bool {
    received.line.contains("well-known")
}

fn rpc(result: &Json) -> String {
    json!({"jsonrpc": "2.0", "id": "1", "result": result}).to_string()
}

fn events(results: &[Json]) -> String {
    results.iter().map(|result| format!("data: {}\n\n", rpc(result))).collect()
}

fn remote(agent: &TestAgent, clock: Arc<dyn Clock>, credentials: OutboundCredentials) -> RemoteAgent {
    let access = RemoteAgentConfig {
        card: CardLocation::Address(agent.url.to_string()),
        credentials,
        credential_hosts: Vec::new(),
        timeout: limits::A2A_REQUEST,
        card_attempts: 3,
        streaming: true,
        polling_initial_delay: limits::A2A_PAUSE,
        max_polling_time: limits::A2A_POLL_TIMEOUT,
        push_notifications: false,
    };
    RemoteAgent::new(access, A2aEnvironment { clock, http: HttpClients::new() })
}

#[derive(Default)]
struct CollectedTexts(Vec<String>);

impl TaskListener for CollectedTexts {
    fn on_status_text<'a>(&'a mut self, text: &'a str) -> BoxFuture<'a, ()> {
        self.0.push(text.to_owned());
        Box::pin(std::future::ready(()))
    }
}

async fn send_and_follow(
    remote: &RemoteAgent,
    clock: &Arc<FastClock>,
    task: Option<&str>,
) -> (Result<Task, A2aError>, Vec<String>) {
    let cx = CallContext::new(clock.clone(), Duration::from_secs(900));
    let message = Message { task_id: task.map(str::to_owned), ..Message::text(Role::User, "m1", "hello") };
    let mut texts = CollectedTexts::default();
    let end = match remote.send(&SendRequest { message, report_to: None }, &cx).await {
        Ok(accepted) => remote.follow(accepted, &mut texts, &cx).await,
        Err(error) => Err(error),
    };
    (end, texts.0)
}

fn agent_message(text: &str) -> Json {
    json!({"kind": "message", "messageId": "a", "role": "agent", "parts": [{"kind": "text", "text": text}]})
}

#[tokio::test]
async fn requests_carry_the_credentials_header() {
    for (name, value, wanted) in
        [("Authorization", "Bearer t1", "authorization: Bearer t1"), ("X-Key", "key=k1", "x-key: key=k1")]
    {
        let agent = TestAgent::new(|url, received, _| match is_card(received) {
            true => (200, JSON, card_v0_3(url, false)),
            false => (200, JSON, rpc(&agent_message("hi"))),
        })
        .await;
        let clock = Arc::new(FastClock::default());
        let shared: Arc<dyn Clock> = clock.clone();
        let credentials = OutboundCredentials::Header(name.to_owned(), Secret::new(value));
        let remote = remote(&agent, shared, credentials);
        let cx = CallContext::new(clock, Duration::from_secs(900));
        let message = Message::text(Role::User, "m1", "hello");
        remote.send(&SendRequest { message, report_to: None }, &cx).await.unwrap();
        let received = agent.received();
        assert!(
            !received[0].headers.contains("k1") && !received[0].headers.contains("t1"),
            "cards are public: {received:?}"
        );
        assert!(received[1].headers.contains(wanted), "{received:?}");
    }
}

#[tokio::test]
async fn an_expired_token_is_renewed_and_the_message_resent() {
    let count = Arc::new(Mutex::new(0));
    let tokens = {
        let count = count.clone();
        TestAgent::new(move |_, _, _| {
            let mut count = count.lock().unwrap();
            *count += 1;
            (200, JSON, json!({"access_token": format!("t{count}"), "expires_in": 3600}).to_string())
        })
        .await
    };
    let protected = TestAgent::new(|url, received, _| match received.headers.contains("Bearer t2") {
        _ if is_card(received) => (200, JSON, card_v0_3(url, false)),
        true => (200, JSON, rpc(&agent_message("hi"))),
        false => (401, JSON, String::new()),
    })
    .await;
    let clock = Arc::new(FastClock::default());
    let shared: Arc<dyn Clock> = clock.clone();
    let grant = ClientGrant::new("me".to_owned(), Secret::new("s3cret"), None);
    let url = format!("{}/token", tokens.url);
    let given =
        ClientCredentials::token_cache(grant, &url, "talk", limits::TOKEN_WAIT, shared.clone(), HttpClients::new())
            .unwrap();
    let credentials = OutboundCredentials::Token(Box::new(given));
    let remote = remote(&protected, shared, credentials);
    let cx = CallContext::new(clock, Duration::from_secs(900));
    for _ in 0..2 {
        let message = Message::text(Role::User, "m1", "hello");
        remote.send(&SendRequest { message, report_to: None }, &cx).await.unwrap();
    }
    assert_eq!(*count.lock().unwrap(), 2, "a valid token is cached");
    assert_eq!(protected.received().iter().filter(|received| !is_card(received)).count(), 3, "refused, taken, taken");
    let asked = &tokens.received()[0];
    assert!(asked.headers.contains("authorization: Basic bWU6czNjcmV0"), "{asked:?}");
}

#[tokio::test]
async fn streams_of_version_0_3() {
    let agent = TestAgent::new(|url, received, at| {
        let task = |state: &str| json!({"kind": "task", "id": "t", "contextId": "c", "status": {"state": state}});
        let change = |state: &str, text: &str, last: bool| {
            json!({"kind": "status-update", "taskId": "t", "contextId": "c", "final": last, "status": {"state": state, "message": agent_message(text)}})
        };
        if is_card(received) {
            return (200, JSON, card_v0_3(url, true));
        }
        let made = json!({"kind": "artifact-update", "taskId": "t", "contextId": "c", "artifact": {"artifactId": "a", "parts": [{"kind": "data", "data": {"n": 1}}]}});
        let stream = match at {
            1 => vec![task("submitted"), change("working", "Looking", false), change("working", "Looking", false), change("input-required", "How many?", true)],
            _ => vec![task("working"), made, change("completed", "Done.", true)],
        };
        (200, EVENTS, events(&stream))
    })
    .await;
    let clock = Arc::new(FastClock::default());
    let remote = remote(&agent, clock.clone(), OutboundCredentials::None);
    let (first, texts) = send_and_follow(&remote, &clock, None).await;
    let first = first.unwrap();
    assert_eq!(
        (first.status.state, texts),
        (TaskState::InputRequired, vec!["Looking".to_owned()]),
        "a repeated status text is reported once"
    );
    let (second, _) = send_and_follow(&remote, &clock, Some(&first.id)).await;
    let second = second.unwrap();
    assert_eq!((second.status.state, second.artifacts.len()), (TaskState::Completed, 1));
    assert_eq!(text_of(&second.status.message.unwrap().parts), "Done.");
    let received = agent.received();
    assert_eq!(received.iter().filter(|received| is_card(received)).count(), 1, "the card is cached");
    assert_eq!(received[1].body["method"], "message/stream");
    assert_eq!(received[2].body["params"]["message"]["taskId"], "t");
    assert_eq!(received[1].body["params"]["message"]["kind"], "message");
}

#[tokio::test]
async fn polling_pauses_grow_until_the_polling_time_ends() {
    let agent = TestAgent::new(|url, received, _| match is_card(received) {
        true => (200, JSON, card_v0_3(url, false)),
        false => {
            (200, JSON, rpc(&json!({"kind": "task", "id": "t", "contextId": "c", "status": {"state": "working"}})))
        }
    })
    .await;
    let clock = Arc::new(FastClock::default());
    let remote = remote(&agent, clock.clone(), OutboundCredentials::None);
    let (end, _) = send_and_follow(&remote, &clock, None).await;
    assert_eq!(end.unwrap_err().kind, A2aErrorKind::TimedOut);
    let slept: Vec<f64> = clock.slept.lock().unwrap().iter().map(Duration::as_secs_f64).collect();
    assert_eq!(slept[..6], [0.5, 1.0, 2.0, 4.0, 5.0, 5.0]);
    assert!((slept.iter().sum::<f64>() - limits::A2A_POLL_TIMEOUT.as_secs_f64()).abs() < 0.001, "{slept:?}");
    let received = agent.received();
    let asked = received.iter().filter(|received| received.body["method"] == "tasks/get").count();
    assert_eq!(
        asked,
        slept.len() - 1,
        "it is asked at once and after each pause; patience ends within the last question"
    );
    assert_eq!(
        received[1].body["params"]["configuration"]["blocking"], false,
        "the response does not wait for the task"
    );
}

#[tokio::test]
async fn a_failed_poll_is_retried() {
    for (failures, ends) in
        [(limits::A2A_POLL_FAILURES as usize, true), (limits::A2A_POLL_FAILURES as usize + 1, false)]
    {
        let agent = TestAgent::new(move |url, received, at| match is_card(received) {
            true => (200, JSON, card_v0_3(url, false)),
            // The message is the first request.
            false if (2..2 + failures).contains(&at) => (502, "text/html", "<html>".to_owned()),
            false => {
                let state = if at == 1 { "working" } else { "completed" };
                (200, JSON, rpc(&json!({"kind": "task", "id": "t", "contextId": "c", "status": {"state": state}})))
            }
        })
        .await;
        let clock = Arc::new(FastClock::default());
        let remote = remote(&agent, clock.clone(), OutboundCredentials::None);
        let (end, _) = send_and_follow(&remote, &clock, None).await;
        let state = end.map(|task| task.status.state).map_err(|error| error.kind);
        assert_eq!(state, if ends { Ok(TaskState::Completed) } else { Err(A2aErrorKind::Status(502)) }, "{failures}");
    }
}

#[tokio::test]
async fn received_messages_are_found_in_the_history() {
    let user_message = |id: &str| json!({"messageId": id, "role": "ROLE_USER", "parts": [{"text": "x"}]});
    let task = |history: Json| json!({"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}, "history": history});
    let other = task(json!([user_message("m0")]));
    let of_agent = json!({"messageId": "a1", "role": "ROLE_AGENT", "parts": [{"text": "x"}]});
    for (answer, named, wanted) in [
        (json!({"tasks": [other, task(json!([user_message("m1")]))]}), false, Ok(true)),
        // The agent may have answered the message without a task.
        (json!({"tasks": []}), false, Err(A2aErrorKind::OutcomeUnknown)),
        (json!({}), false, Err(A2aErrorKind::OutcomeUnknown)),
        (json!({"tasks": [other]}), false, Err(A2aErrorKind::OutcomeUnknown)),
        (json!({"tasks": [task(json!([]))]}), false, Err(A2aErrorKind::OutcomeUnknown)),
        (json!({"tasks": [other], "nextPageToken": "2"}), false, Err(A2aErrorKind::OutcomeUnknown)),
        (json!({"tasks": [{"what": "is this"}]}), false, Err(A2aErrorKind::OutcomeUnknown)),
        (task(json!([user_message("m0"), user_message("m1")])), true, Ok(true)),
        (task(json!([user_message("m0")])), true, Ok(false)),
        (task(json!([of_agent])), true, Err(A2aErrorKind::OutcomeUnknown)),
        (task(json!([])), true, Err(A2aErrorKind::OutcomeUnknown)),
    ] {
        let response = answer.clone();
        let agent = TestAgent::new(move |url, received, _| match is_card(received) {
            true => (200, JSON, card_v1_0(url)),
            false => (200, JSON, rpc(&response)),
        })
        .await;
        let clock = Arc::new(FastClock::default());
        let remote = remote(&agent, clock.clone(), OutboundCredentials::None);
        let message = Message {
            context_id: Some("c".to_owned()),
            task_id: named.then(|| "t".to_owned()),
            ..Message::text(Role::User, "m1", "hello")
        };
        let received = remote.find_task_for_message(&message, &CallContext::new(clock, Duration::from_secs(900))).await;
        assert_eq!(received.map(|task| task.is_some()).map_err(|error| error.kind), wanted, "{answer}");
    }
}

#[tokio::test]
async fn a_message_is_found_on_a_later_page_of_tasks() {
    let agent = TestAgent::new(move |url, received, _| {
        match (is_card(received), received.body.to_string().contains("\"pageToken\":\"2\"")) {
            (true, _) => (200, JSON, card_v1_0(url)),
            (false, false) => (200, JSON, rpc(&json!({"tasks": [], "nextPageToken": "2"}))),
            (false, true) => {
                let history = json!([{"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "x"}]}]);
                let status = json!({"state": "TASK_STATE_WORKING"});
                (
                    200,
                    JSON,
                    rpc(&json!({"tasks": [{"id": "t", "contextId": "c", "status": status, "history": history}]})),
                )
            }
        }
    })
    .await;
    let clock = Arc::new(FastClock::default());
    let remote = remote(&agent, clock.clone(), OutboundCredentials::None);
    let message = Message { context_id: Some("c".to_owned()), ..Message::text(Role::User, "m1", "hello") };
    let received = remote.find_task_for_message(&message, &CallContext::new(clock, Duration::from_secs(900))).await;
    assert_eq!(received.unwrap().unwrap().id, "t");
}

#[tokio::test]
async fn credentials_are_sent_to_the_card_host_and_configured_hosts_only() {
    let reached = |card: CardLocation, credential_hosts: &[&str]| {
        let access = RemoteAgentConfig {
            card,
            credentials: OutboundCredentials::None,
            credential_hosts: credential_hosts.iter().map(|host| (*host).to_owned()).collect(),
            timeout: limits::A2A_REQUEST,
            card_attempts: 1,
            streaming: false,
            polling_initial_delay: limits::A2A_PAUSE,
            max_polling_time: limits::A2A_POLL_TIMEOUT,
            push_notifications: false,
        };
        RemoteAgent::new(access, A2aEnvironment { clock: Arc::new(FastClock::default()), http: HttpClients::new() })
    };
    let at = |url: &str| AgentInterface {
        url: url.to_owned(),
        binding: ProtocolBinding::JsonRpc,
        version: A2aVersion::V1_0,
        tenant: None,
    };
    let fetch_card = reached(CardLocation::Address("https://agent.example".to_owned()), &["API.example"]);
    for (url, may) in [
        ("https://agent.example/a2a", true),
        ("https://agent.example:8443/a2a", true),
        ("https://api.example/a2a", true),
        ("https://evil.example/a2a", false),
        ("https://agent.example.evil.example/", false),
    ] {
        assert_eq!(fetch_card.may_send_credentials(&at(url)), may, "{url}");
    }
    assert!(
        reached(CardLocation::File(json!({})), &[]).may_send_credentials(&at("https://any.example")),
        "a card of the project is trusted"
    );
}

#[tokio::test]
async fn polling_stops_when_the_call_is_cancelled() {
    let clock = Arc::new(FastClock::default());
    let cx = CallContext::new(clock.clone(), Duration::from_secs(900));
    let cancel = cx.cancel.clone();
    let agent = TestAgent::new(move |url, received, at| match is_card(received) {
        true => (200, JSON, card_v0_3(url, false)),
        false => {
            // The message is the first request; the user stops the turn during the third poll.
            if at == 4 {
                cancel.cancel();
            }
            (200, JSON, rpc(&json!({"kind": "task", "id": "t", "contextId": "c", "status": {"state": "working"}})))
        }
    })
    .await;
    let remote = remote(&agent, clock.clone(), OutboundCredentials::None);
    let message = Message::text(Role::User, "m1", "hello");
    let accepted = remote.send(&SendRequest { message, report_to: None }, &cx).await.unwrap();
    let mut texts = CollectedTexts::default();
    let end = remote.follow(accepted, &mut texts, &cx).await;
    assert_eq!((end.unwrap_err().kind, texts.0.len()), (A2aErrorKind::Cancelled, 0));
    let received = agent.received();
    assert_eq!(received.iter().filter(|received| received.body["method"] == "tasks/get").count(), 3);
}

#[tokio::test]
async fn streams_of_version_1_0() {
    let agent = TestAgent::new(|url, received, at| {
        let message = |text: &str| json!({"messageId": "a", "role": "ROLE_AGENT", "parts": [{"text": text}]});
        let task = |state: &str| json!({"task": {"id": "t", "contextId": "c", "status": {"state": state}}});
        let change = |state: &str, text: &str| {
            json!({"statusUpdate": {"taskId": "t", "contextId": "c", "status": {"state": state, "message": message(text)}}})
        };
        if is_card(received) {
            return (200, JSON, card_v1_0(url));
        }
        let made = json!({"artifactUpdate": {"taskId": "t", "contextId": "c", "artifact": {"artifactId": "a", "parts": [{"data": {"n": 1.0}}]}}});
        let stream = match at {
            1 => vec![task("TASK_STATE_SUBMITTED"), change("TASK_STATE_WORKING", "Looking"), change("TASK_STATE_INPUT_REQUIRED", "How many?")],
            _ => vec![task("TASK_STATE_WORKING"), made, change("TASK_STATE_COMPLETED", "Done.")],
        };
        (200, EVENTS, events(&stream))
    })
    .await;
    let clock = Arc::new(FastClock::default());
    let remote = remote(&agent, clock.clone(), OutboundCredentials::None);
    let (first, texts) = send_and_follow(&remote, &clock, None).await;
    assert_eq!((first.unwrap().status.state, texts), (TaskState::InputRequired, vec!["Looking".to_owned()]));
    let (second, _) = send_and_follow(&remote, &clock, Some("t")).await;
    let second = second.unwrap();
    assert_eq!(second.status.state, TaskState::Completed);
    assert_eq!(second.artifacts[0].parts, [super::model::Part::Data(json!({"n": 1}))], "integers stay integers");
    let received = agent.received();
    assert_eq!(
        (&received[1].body["method"], received[1].headers.contains("a2a-version: 1.0")),
        (&json!("SendStreamingMessage"), true)
    );
    assert!(received[1].body["params"]["message"].get("kind").is_none());
}

#[tokio::test]
async fn a_lost_stream_is_resubscribed_once_and_then_polled() {
    let agent = TestAgent::new(|url, received, _| {
        let task = |state: &str| json!({"kind": "task", "id": "t", "contextId": "c", "status": {"state": state}});
        let method = received.body["method"].as_str().unwrap_or_default().to_owned();
        match method.as_str() {
            _ if is_card(received) => (200, JSON, card_v0_3(url, true)),
            // Both streams end before the task does.
            "message/stream" | "tasks/resubscribe" => (200, EVENTS, events(&[task("working")])),
            _ => (200, JSON, rpc(&task("completed"))),
        }
    })
    .await;
    let clock = Arc::new(FastClock::default());
    let remote = remote(&agent, clock.clone(), OutboundCredentials::None);
    let (end, _) = send_and_follow(&remote, &clock, None).await;
    assert_eq!(end.unwrap().status.state, TaskState::Completed);
    let received = agent.received();
    let methods: Vec<&str> = received.iter().filter_map(|received| received.body["method"].as_str()).collect();
    assert_eq!(methods, ["message/stream", "tasks/resubscribe", "tasks/get"]);
}

#[tokio::test]
async fn a_card_is_fetched_from_both_well_known_paths_with_retries() {
    let agent = TestAgent::new(|url, received, _| match received.line.as_str() {
        "GET /.well-known/agent-card.json" => (404, JSON, String::new()),
        "GET /.well-known/agent.json" => (200, JSON, card_v0_3(url, false)),
        _ => (200, JSON, rpc(&agent_message("hi"))),
    })
    .await;
    let clock = Arc::new(FastClock::default());
    let cx = CallContext::new(clock.clone(), Duration::from_secs(900));
    let found = remote(&agent, clock.clone(), OutboundCredentials::None);
    assert_eq!(found.refresh_health(&cx).await, Health::Up);

    let down = TestAgent::new(|_, _, _| (503, JSON, String::new())).await;
    let lost = remote(&down, clock.clone(), OutboundCredentials::None);
    let health = lost.refresh_health(&cx).await;
    assert!(matches!(&health, Health::Down { reason } if reason.contains("503")), "{health:?}");
    assert_eq!(down.received().len(), 3, "the configured number of attempts");
    let slept: Vec<Duration> = clock.slept.lock().unwrap().clone();
    assert_eq!(slept, [limits::A2A_CARD_PAUSE, limits::A2A_CARD_PAUSE * 2]);
}

#[tokio::test]
async fn a_card_is_cached_and_dropped_when_the_agent_moves() {
    let agent = TestAgent::new(|url, received, at| match is_card(received) {
        true => (200, JSON, card_v0_3(url, false)),
        false if at == 2 => (410, JSON, String::new()),
        false => (200, JSON, rpc(&agent_message("hi"))),
    })
    .await;
    let clock = Arc::new(FastClock::default());
    let remote = remote(&agent, clock.clone(), OutboundCredentials::None);
    let cards = || agent.received().iter().filter(|received| is_card(received)).count();
    let send = async || {
        let cx = CallContext::new(clock.clone(), Duration::from_secs(900));
        remote.send(&SendRequest { message: Message::text(Role::User, "m", "x"), report_to: None }, &cx).await
    };
    send().await.unwrap();
    assert!(send().await.is_err());
    assert_eq!(cards(), 1);
    send().await.unwrap();
    assert_eq!(cards(), 2, "the card is fetched again");
    *clock.now.lock().unwrap() += limits::A2A_CARD_MAX_AGE;
    send().await.unwrap();
    assert_eq!(cards(), 3);
}

#[tokio::test]
async fn a_card_with_a_private_address_is_refused() {
    let agent = TestAgent::new(|_, received, _| match is_card(received) {
        true => (200, JSON, card_v0_3("http://10.0.0.7:8080/", false)),
        false => (200, JSON, String::new()),
    })
    .await;
    let clock = Arc::new(FastClock::default());
    let remote = remote(&agent, clock.clone(), OutboundCredentials::None);
    let (end, _) = send_and_follow(&remote, &clock, None).await;
    let error = end.unwrap_err();
    assert!(error.kind == A2aErrorKind::Card && error.message.contains("10.0.0.7"), "{error:?}");
    assert_eq!(agent.received().iter().filter(|received| !is_card(received)).count(), 0);
}

#[tokio::test]
async fn too_large_responses_are_refused() {
    for (kind, size, streaming) in [(JSON, limits::A2A_ANSWER, false), (EVENTS, limits::A2A_EVENT, true)] {
        let agent = TestAgent::new(move |url, received, _| match is_card(received) {
            true => (200, JSON, card_v0_3(url, streaming)),
            false => (200, kind, format!("data: {}\n\n", "x".repeat(size + 1))),
        })
        .await;
        let clock = Arc::new(FastClock::default());
        let remote = remote(&agent, clock.clone(), OutboundCredentials::None);
        let (end, _) = send_and_follow(&remote, &clock, None).await;
        assert_eq!(end.unwrap_err().kind, A2aErrorKind::TooLarge, "{kind}");
    }
}

#[tokio::test]
async fn task_size_and_status_texts_are_limited() {
    let agent = TestAgent::new(|url, received, at| {
        if is_card(received) {
            return (200, JSON, card_v0_3(url, true));
        }
        let piece = |text: String| {
            json!({"kind": "artifact-update", "taskId": "t", "contextId": "c", "append": true, "artifact": {"artifactId": "a", "parts": [{"kind": "text", "text": text}]}})
        };
        let chatter = |text: String| {
            json!({"kind": "status-update", "taskId": "t", "contextId": "c", "status": {"state": "working", "message": agent_message(&text)}})
        };
        let stream: Vec<Json> = match at {
            1 => (0..12).map(|_| piece("x".repeat(limits::A2A_EVENT / 2))).collect(),
            _ => (0..limits::A2A_UPDATES_SENT + 5)
                .map(|at| chatter(at.to_string()))
                .chain([json!({"kind": "status-update", "taskId": "t", "contextId": "c", "status": {"state": "completed"}})])
                .collect(),
        };
        (200, EVENTS, events(&stream))
    })
    .await;
    let clock = Arc::new(FastClock::default());
    let remote = remote(&agent, clock.clone(), OutboundCredentials::None);
    let (end, _) = send_and_follow(&remote, &clock, None).await;
    assert_eq!(end.unwrap_err().kind, A2aErrorKind::TooLarge);
    let (end, texts) = send_and_follow(&remote, &clock, None).await;
    assert_eq!((end.unwrap().status.state, texts.len()), (TaskState::Completed, limits::A2A_UPDATES_SENT));
}

#[tokio::test]
async fn a_silent_stream_ends_after_the_timeout() {
    // A server that sends one event and then nothing, without ending the response.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url: &'static str = Box::leak(format!("http://{}", listener.local_addr().unwrap()).into_boxed_str());
    tokio::spawn(async move {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut bytes = vec![0; 16 * 1024];
                let mut text = String::new();
                while !text.contains("\r\n\r\n") || (text.starts_with("POST") && !text.contains("jsonrpc")) {
                    let read = stream.read(&mut bytes).await.unwrap();
                    text += &String::from_utf8_lossy(&bytes[..read]);
                }
                let task = json!({"kind": "task", "id": "t", "contextId": "c", "status": {"state": "working"}});
                let done = json!({"kind": "task", "id": "t", "contextId": "c", "status": {"state": "completed"}});
                let (kind, body) = match () {
                    () if text.contains("well-known") => (JSON, card_v0_3(url, true)),
                    () if text.contains("tasks/get") => (JSON, rpc(&done)),
                    () => (EVENTS, events(&[task])),
                };
                let length = if kind == EVENTS { 100_000 } else { body.len() };
                let head = format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
                );
                stream.write_all((head + &body).as_bytes()).await.unwrap();
                if kind == EVENTS {
                    std::future::pending::<()>().await;
                }
            });
        }
    });
    let clock = Arc::new(segue_base::manual_clock::ManualClock::new());
    let access = RemoteAgentConfig {
        card: CardLocation::Address(url.to_owned()),
        credentials: OutboundCredentials::None,
        credential_hosts: Vec::new(),
        timeout: limits::A2A_REQUEST,
        card_attempts: 1,
        streaming: true,
        polling_initial_delay: limits::A2A_PAUSE,
        max_polling_time: limits::A2A_POLL_TIMEOUT,
        push_notifications: false,
    };
    let remote = RemoteAgent::new(access, A2aEnvironment { clock: clock.clone(), http: HttpClients::new() });
    let cx = CallContext::new(clock.clone(), Duration::from_secs(900));
    let message = Message::text(Role::User, "m1", "hello");
    let accepted = remote.send(&SendRequest { message, report_to: None }, &cx).await.unwrap();
    let mut texts = CollectedTexts::default();
    let mut following = std::pin::pin!(remote.follow(accepted, &mut texts, &cx));
    assert!(futures::poll!(&mut following).is_pending());
    clock.advance(limits::A2A_STREAM_IDLE - Duration::from_millis(1));
    assert!(futures::poll!(&mut following).is_pending());
    clock.advance(Duration::from_millis(1));
    // The second stream falls silent too. Time passes only while a stream is read, because a response may take long on
    // a busy machine.
    let listened = || clock.slept().iter().filter(|length| **length == limits::A2A_STREAM_IDLE).count();
    let mut silent = listened();
    let end = loop {
        tokio::select! {
            biased;
            end = &mut following => break end,
            () = tokio::task::yield_now() => {
                if listened() > silent {
                    silent = listened();
                    clock.advance(limits::A2A_STREAM_IDLE);
                }
            }
        }
    };
    assert_eq!(end.unwrap().status.state, TaskState::Completed);
}
