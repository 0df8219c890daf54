//! One remote agent over HTTP, with answers of recorded shape. The genuine library stands on the
//! other side in `tests/foreign`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

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

/// What a request held: method and path, the headers in one text, the body.
#[derive(Clone, Debug)]
struct Heard {
    line: String,
    headers: String,
    body: Json,
}

type Answers = dyn Fn(&Heard, usize) -> (u16, &'static str, String) + Send + Sync;

/// A server that answers each request, given its number, as it is told.
#[derive(Clone)]
struct Desk {
    heard: Arc<Mutex<Vec<Heard>>>,
    answers: Arc<Answers>,
    url: Arc<str>,
}

impl Desk {
    async fn new(answers: impl Fn(&str, &Heard, usize) -> (u16, &'static str, String) + Send + Sync + 'static) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url: Arc<str> = format!("http://{}", listener.local_addr().unwrap()).into();
        let own = url.clone();
        let answers: Arc<Answers> = Arc::new(move |heard, at| answers(&own, heard, at));
        let desk = Self { heard: Arc::default(), answers, url };
        let router = Router::new().fallback(take).with_state(desk.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        desk
    }
    fn heard(&self) -> Vec<Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn take(State(desk): State<Desk>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let body: Bytes = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    let headers: Vec<String> =
        head.headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap_or_default())).collect();
    let heard = Heard {
        line: format!("{} {}", head.method, head.uri),
        headers: headers.join("\n"),
        body: serde_json::from_slice(&body).unwrap_or_default(),
    };
    let at = {
        let mut all = desk.heard.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(heard.clone());
        all.iter().filter(|heard| !heard.line.contains("well-known")).count()
    };
    let (status, kind, text) = (desk.answers)(&heard, at);
    (StatusCode::from_u16(status).unwrap(), [("content-type", kind)], text).into_response()
}

/// Waits of a few seconds pass at once; longer ones, which guard against silence, never do.
#[derive(Default)]
struct Pauses {
    now: Mutex<Duration>,
    slept: Mutex<Vec<Duration>>,
}

impl Clock for Pauses {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(0)
    }
    fn elapsed(&self) -> Duration {
        *self.now.lock().unwrap()
    }
    fn sleep(&self, until: Deadline) -> BoxFuture<'_, ()> {
        let pause = until.0.saturating_sub(self.elapsed());
        if pause > limits::A2A_PAUSE_MAX {
            return Box::pin(std::future::pending());
        }
        self.slept.lock().unwrap().push(pause);
        *self.now.lock().unwrap() += pause;
        Box::pin(std::future::ready(()))
    }
}

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";

fn old_card(url: &str, streams: bool) -> String {
    json!({"name": "x", "url": url, "protocolVersion": "0.3.0", "capabilities": {"streaming": streams}}).to_string()
}

fn new_card(url: &str) -> String {
    let interfaces = json!([{"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]);
    json!({"name": "x", "supportedInterfaces": interfaces, "capabilities": {"streaming": true}}).to_string()
}

fn is_card(heard: &Heard) -> bool {
    heard.line.contains("well-known")
}

fn rpc(result: &Json) -> String {
    json!({"jsonrpc": "2.0", "id": "1", "result": result}).to_string()
}

fn events(results: &[Json]) -> String {
    results.iter().map(|result| format!("data: {}\n\n", rpc(result))).collect()
}

fn remote(desk: &Desk, clock: Arc<dyn Clock>, credentials: OutboundCredentials) -> Remote {
    let access = Access {
        card: CardLocation::Address(desk.url.to_string()),
        credentials,
        hosts: Vec::new(),
        timeout: limits::A2A_REQUEST,
        tries: 3,
        streams: true,
        first_pause: limits::A2A_PAUSE,
        patience: limits::A2A_POLL_TIMEOUT,
        reports: false,
    };
    Remote::new(access, A2aEnvironment { clock, http: HttpClients::new() })
}

#[derive(Default)]
struct Texts(Vec<String>);

impl TaskListener for Texts {
    fn said<'a>(&'a mut self, text: &'a str) -> BoxFuture<'a, ()> {
        self.0.push(text.to_owned());
        Box::pin(std::future::ready(()))
    }
}

async fn talk(remote: &Remote, clock: &Arc<Pauses>, task: Option<&str>) -> (Result<Task, A2aError>, Vec<String>) {
    let cx = CallContext::new(clock.clone(), Duration::from_secs(900));
    let message = Message { task_id: task.map(str::to_owned), ..Message::text(Role::User, "m1", "hello") };
    let mut texts = Texts::default();
    let end = match remote.send(&SendRequest { message, report_to: None }, &cx).await {
        Ok(accepted) => remote.follow(accepted, &mut texts, &cx).await,
        Err(fault) => Err(fault),
    };
    (end, texts.0)
}

fn said(text: &str) -> Json {
    json!({"kind": "message", "messageId": "a", "role": "agent", "parts": [{"kind": "text", "text": text}]})
}

#[tokio::test]
async fn vector_24_the_header_that_says_who_we_are() {
    for (name, value, wanted) in
        [("Authorization", "Bearer t1", "authorization: Bearer t1"), ("X-Key", "key=k1", "x-key: key=k1")]
    {
        let desk = Desk::new(|url, heard, _| match is_card(heard) {
            true => (200, JSON, old_card(url, false)),
            false => (200, JSON, rpc(&said("hi"))),
        })
        .await;
        let clock = Arc::new(Pauses::default());
        let shared: Arc<dyn Clock> = clock.clone();
        let credentials = OutboundCredentials::Header(name.to_owned(), Secret::new(value));
        let remote = remote(&desk, shared, credentials);
        let cx = CallContext::new(clock, Duration::from_secs(900));
        let message = Message::text(Role::User, "m1", "hello");
        remote.send(&SendRequest { message, report_to: None }, &cx).await.unwrap();
        let heard = desk.heard();
        assert!(!heard[0].headers.contains("k1") && !heard[0].headers.contains("t1"), "cards are public: {heard:?}");
        assert!(heard[1].headers.contains(wanted), "{heard:?}");
    }
}

#[tokio::test]
async fn vector_24_a_token_that_ran_out_is_asked_for_anew_and_the_message_sent_once_more() {
    let count = Arc::new(Mutex::new(0));
    let tokens = {
        let count = count.clone();
        Desk::new(move |_, _, _| {
            let mut count = count.lock().unwrap();
            *count += 1;
            (200, JSON, json!({"access_token": format!("t{count}"), "expires_in": 3600}).to_string())
        })
        .await
    };
    let guarded = Desk::new(|url, heard, _| match heard.headers.contains("Bearer t2") {
        _ if is_card(heard) => (200, JSON, old_card(url, false)),
        true => (200, JSON, rpc(&said("hi"))),
        false => (401, JSON, String::new()),
    })
    .await;
    let clock = Arc::new(Pauses::default());
    let shared: Arc<dyn Clock> = clock.clone();
    let grant = ClientGrant::new("me".to_owned(), Secret::new("s3cret"), None);
    let url = format!("{}/token", tokens.url);
    let given =
        ClientCredentials::token_cache(grant, &url, "talk", limits::TOKEN_WAIT, shared.clone(), HttpClients::new())
            .unwrap();
    let credentials = OutboundCredentials::Token(Box::new(given));
    let remote = remote(&guarded, shared, credentials);
    let cx = CallContext::new(clock, Duration::from_secs(900));
    for _ in 0..2 {
        let message = Message::text(Role::User, "m1", "hello");
        remote.send(&SendRequest { message, report_to: None }, &cx).await.unwrap();
    }
    assert_eq!(*count.lock().unwrap(), 2, "a good token is kept");
    assert_eq!(guarded.heard().iter().filter(|heard| !is_card(heard)).count(), 3, "refused, taken, taken");
    let asked = &tokens.heard()[0];
    assert!(asked.headers.contains("authorization: Basic bWU6czNjcmV0"), "{asked:?}");
}

#[tokio::test]
async fn vector_25_a_stream_of_the_older_generation() {
    let desk = Desk::new(|url, heard, at| {
        let task = |state: &str| json!({"kind": "task", "id": "t", "contextId": "c", "status": {"state": state}});
        let change = |state: &str, text: &str, last: bool| {
            json!({"kind": "status-update", "taskId": "t", "contextId": "c", "final": last, "status": {"state": state, "message": said(text)}})
        };
        if is_card(heard) {
            return (200, JSON, old_card(url, true));
        }
        let made = json!({"kind": "artifact-update", "taskId": "t", "contextId": "c", "artifact": {"artifactId": "a", "parts": [{"kind": "data", "data": {"n": 1}}]}});
        let stream = match at {
            1 => vec![task("submitted"), change("working", "Looking", false), change("working", "Looking", false), change("input-required", "How many?", true)],
            _ => vec![task("working"), made, change("completed", "Done.", true)],
        };
        (200, EVENTS, events(&stream))
    })
    .await;
    let clock = Arc::new(Pauses::default());
    let remote = remote(&desk, clock.clone(), OutboundCredentials::None);
    let (first, texts) = talk(&remote, &clock, None).await;
    let first = first.unwrap();
    assert_eq!(
        (first.status.state, texts),
        (TaskState::InputRequired, vec!["Looking".to_owned()]),
        "what is said twice is told once"
    );
    let (second, _) = talk(&remote, &clock, Some(&first.id)).await;
    let second = second.unwrap();
    assert_eq!((second.status.state, second.artifacts.len()), (TaskState::Completed, 1));
    assert_eq!(text_of(&second.status.message.unwrap().parts), "Done.");
    let heard = desk.heard();
    assert_eq!(heard.iter().filter(|heard| is_card(heard)).count(), 1, "the card is kept");
    assert_eq!(heard[1].body["method"], "message/stream");
    assert_eq!(heard[2].body["params"]["message"]["taskId"], "t");
    assert_eq!(heard[1].body["params"]["message"]["kind"], "message");
}

#[tokio::test]
async fn vector_26_a_task_is_asked_for_in_growing_pauses_until_patience_ends() {
    let desk = Desk::new(|url, heard, _| match is_card(heard) {
        true => (200, JSON, old_card(url, false)),
        false => {
            (200, JSON, rpc(&json!({"kind": "task", "id": "t", "contextId": "c", "status": {"state": "working"}})))
        }
    })
    .await;
    let clock = Arc::new(Pauses::default());
    let remote = remote(&desk, clock.clone(), OutboundCredentials::None);
    let (end, _) = talk(&remote, &clock, None).await;
    assert_eq!(end.unwrap_err().kind, A2aErrorKind::Late);
    let slept: Vec<f64> = clock.slept.lock().unwrap().iter().map(Duration::as_secs_f64).collect();
    assert_eq!(slept[..6], [0.5, 1.0, 2.0, 4.0, 5.0, 5.0]);
    assert!((slept.iter().sum::<f64>() - limits::A2A_POLL_TIMEOUT.as_secs_f64()).abs() < 0.001, "{slept:?}");
    let heard = desk.heard();
    let asked = heard.iter().filter(|heard| heard.body["method"] == "tasks/get").count();
    assert_eq!(
        asked,
        slept.len() - 1,
        "it is asked at once and after each pause; patience ends within the last question"
    );
    assert_eq!(heard[1].body["params"]["configuration"]["blocking"], false, "the id comes before the work");
}

#[tokio::test]
async fn a_question_for_a_task_that_fails_is_asked_again() {
    for (failures, ends) in
        [(limits::A2A_POLL_FAILURES as usize, true), (limits::A2A_POLL_FAILURES as usize + 1, false)]
    {
        let desk = Desk::new(move |url, heard, at| match is_card(heard) {
            true => (200, JSON, old_card(url, false)),
            // The message is the first request.
            false if (2..2 + failures).contains(&at) => (502, "text/html", "<html>".to_owned()),
            false => {
                let state = if at == 1 { "working" } else { "completed" };
                (200, JSON, rpc(&json!({"kind": "task", "id": "t", "contextId": "c", "status": {"state": state}})))
            }
        })
        .await;
        let clock = Arc::new(Pauses::default());
        let remote = remote(&desk, clock.clone(), OutboundCredentials::None);
        let (end, _) = talk(&remote, &clock, None).await;
        let state = end.map(|task| task.status.state).map_err(|fault| fault.kind);
        assert_eq!(state, if ends { Ok(TaskState::Completed) } else { Err(A2aErrorKind::Status(502)) }, "{failures}");
    }
}

#[tokio::test]
async fn what_an_agent_heard_is_known_by_the_history_it_tells_and_not_by_its_absence() {
    let said = |id: &str| json!({"messageId": id, "role": "ROLE_USER", "parts": [{"text": "x"}]});
    let task = |history: Json| json!({"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}, "history": history});
    let other = task(json!([said("m0")]));
    for (answer, named, wanted) in [
        (json!({"tasks": [task(json!([said("m1")]))]}), false, Ok(true)),
        (json!({"tasks": [other]}), false, Ok(false)),
        (json!({"tasks": []}), false, Ok(false)),
        (json!({"tasks": [task(json!([]))]}), false, Err(A2aErrorKind::Unknown)),
        (json!({"tasks": [other], "nextPageToken": "2"}), false, Err(A2aErrorKind::Unknown)),
        (json!({"tasks": [{"what": "is this"}]}), false, Err(A2aErrorKind::Unknown)),
        (task(json!([said("m0"), said("m1")])), true, Ok(true)),
        (task(json!([said("m0")])), true, Ok(false)),
        (task(json!([])), true, Err(A2aErrorKind::Unknown)),
    ] {
        let told = answer.clone();
        let desk = Desk::new(move |url, heard, _| match is_card(heard) {
            true => (200, JSON, new_card(url)),
            false => (200, JSON, rpc(&told)),
        })
        .await;
        let clock = Arc::new(Pauses::default());
        let remote = remote(&desk, clock.clone(), OutboundCredentials::None);
        let message = Message {
            context_id: Some("c".to_owned()),
            task_id: named.then(|| "t".to_owned()),
            ..Message::text(Role::User, "m1", "hello")
        };
        let heard = remote.who_heard(&message, &CallContext::new(clock, Duration::from_secs(900))).await;
        assert_eq!(heard.map(|task| task.is_some()).map_err(|fault| fault.kind), wanted, "{answer}");
    }
}

#[tokio::test]
async fn who_we_are_is_told_at_the_host_of_the_card_and_where_the_author_says() {
    let reached = |card: CardLocation, hosts: &[&str]| {
        let access = Access {
            card,
            credentials: OutboundCredentials::None,
            hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
            timeout: limits::A2A_REQUEST,
            tries: 1,
            streams: false,
            first_pause: limits::A2A_PAUSE,
            patience: limits::A2A_POLL_TIMEOUT,
            reports: false,
        };
        Remote::new(access, A2aEnvironment { clock: Arc::new(Pauses::default()), http: HttpClients::new() })
    };
    let at = |url: &str| AgentInterface {
        url: url.to_owned(),
        binding: ProtocolBinding::Rpc,
        generation: A2aVersion::New,
        tenant: None,
    };
    let fetched = reached(CardLocation::Address("https://agent.example".to_owned()), &["API.example"]);
    for (url, may) in [
        ("https://agent.example/a2a", true),
        ("https://agent.example:8443/a2a", true),
        ("https://api.example/a2a", true),
        ("https://evil.example/a2a", false),
        ("https://agent.example.evil.example/", false),
    ] {
        assert_eq!(fetched.may_know_us(&at(url)), may, "{url}");
    }
    assert!(reached(CardLocation::File(json!({})), &[]).may_know_us(&at("https://any.example")), "the author wrote it");
}

#[tokio::test]
async fn vector_27_a_task_that_nobody_wants_any_more_is_asked_about_no_longer() {
    let clock = Arc::new(Pauses::default());
    let cx = CallContext::new(clock.clone(), Duration::from_secs(900));
    let cancel = cx.cancel.clone();
    let desk = Desk::new(move |url, heard, at| match is_card(heard) {
        true => (200, JSON, old_card(url, false)),
        false => {
            // The message is the first request; the user stops the turn during the third question.
            if at == 4 {
                cancel.cancel();
            }
            (200, JSON, rpc(&json!({"kind": "task", "id": "t", "contextId": "c", "status": {"state": "working"}})))
        }
    })
    .await;
    let remote = remote(&desk, clock.clone(), OutboundCredentials::None);
    let message = Message::text(Role::User, "m1", "hello");
    let accepted = remote.send(&SendRequest { message, report_to: None }, &cx).await.unwrap();
    let mut texts = Texts::default();
    let end = remote.follow(accepted, &mut texts, &cx).await;
    assert_eq!((end.unwrap_err().kind, texts.0.len()), (A2aErrorKind::Cancelled, 0));
    let heard = desk.heard();
    assert_eq!(heard.iter().filter(|heard| heard.body["method"] == "tasks/get").count(), 3);
}

#[tokio::test]
async fn vector_28_a_stream_of_the_newer_generation() {
    let desk = Desk::new(|url, heard, at| {
        let message = |text: &str| json!({"messageId": "a", "role": "ROLE_AGENT", "parts": [{"text": text}]});
        let task = |state: &str| json!({"task": {"id": "t", "contextId": "c", "status": {"state": state}}});
        let change = |state: &str, text: &str| {
            json!({"statusUpdate": {"taskId": "t", "contextId": "c", "status": {"state": state, "message": message(text)}}})
        };
        if is_card(heard) {
            return (200, JSON, new_card(url));
        }
        let made = json!({"artifactUpdate": {"taskId": "t", "contextId": "c", "artifact": {"artifactId": "a", "parts": [{"data": {"n": 1.0}}]}}});
        let stream = match at {
            1 => vec![task("TASK_STATE_SUBMITTED"), change("TASK_STATE_WORKING", "Looking"), change("TASK_STATE_INPUT_REQUIRED", "How many?")],
            _ => vec![task("TASK_STATE_WORKING"), made, change("TASK_STATE_COMPLETED", "Done.")],
        };
        (200, EVENTS, events(&stream))
    })
    .await;
    let clock = Arc::new(Pauses::default());
    let remote = remote(&desk, clock.clone(), OutboundCredentials::None);
    let (first, texts) = talk(&remote, &clock, None).await;
    assert_eq!((first.unwrap().status.state, texts), (TaskState::InputRequired, vec!["Looking".to_owned()]));
    let (second, _) = talk(&remote, &clock, Some("t")).await;
    let second = second.unwrap();
    assert_eq!(second.status.state, TaskState::Completed);
    assert_eq!(second.artifacts[0].parts, [super::model::Part::Data(json!({"n": 1}))], "numbers mean what they meant");
    let heard = desk.heard();
    assert_eq!(
        (&heard[1].body["method"], heard[1].headers.contains("a2a-version: 1.0")),
        (&json!("SendStreamingMessage"), true)
    );
    assert!(heard[1].body["params"]["message"].get("kind").is_none());
}

#[tokio::test]
async fn a_stream_that_breaks_is_joined_anew_and_then_asked_about() {
    let desk = Desk::new(|url, heard, _| {
        let task = |state: &str| json!({"kind": "task", "id": "t", "contextId": "c", "status": {"state": state}});
        let method = heard.body["method"].as_str().unwrap_or_default().to_owned();
        match method.as_str() {
            _ if is_card(heard) => (200, JSON, old_card(url, true)),
            // Both streams end before the task does.
            "message/stream" | "tasks/resubscribe" => (200, EVENTS, events(&[task("working")])),
            _ => (200, JSON, rpc(&task("completed"))),
        }
    })
    .await;
    let clock = Arc::new(Pauses::default());
    let remote = remote(&desk, clock.clone(), OutboundCredentials::None);
    let (end, _) = talk(&remote, &clock, None).await;
    assert_eq!(end.unwrap().status.state, TaskState::Completed);
    let heard = desk.heard();
    let methods: Vec<&str> = heard.iter().filter_map(|heard| heard.body["method"].as_str()).collect();
    assert_eq!(methods, ["message/stream", "tasks/resubscribe", "tasks/get"]);
}

#[tokio::test]
async fn a_card_is_looked_for_at_both_places_and_tried_again() {
    let desk = Desk::new(|url, heard, _| match heard.line.as_str() {
        "GET /.well-known/agent-card.json" => (404, JSON, String::new()),
        "GET /.well-known/agent.json" => (200, JSON, old_card(url, false)),
        _ => (200, JSON, rpc(&said("hi"))),
    })
    .await;
    let clock = Arc::new(Pauses::default());
    let cx = CallContext::new(clock.clone(), Duration::from_secs(900));
    let found = remote(&desk, clock.clone(), OutboundCredentials::None);
    assert_eq!(found.look(&cx).await, Health::Up);

    let down = Desk::new(|_, _, _| (503, JSON, String::new())).await;
    let lost = remote(&down, clock.clone(), OutboundCredentials::None);
    let health = lost.look(&cx).await;
    assert!(matches!(&health, Health::Down { reason } if reason.contains("503")), "{health:?}");
    assert_eq!(down.heard().len(), 3, "as often as the author says");
    let slept: Vec<Duration> = clock.slept.lock().unwrap().clone();
    assert_eq!(slept, [limits::A2A_CARD_PAUSE, limits::A2A_CARD_PAUSE * 2]);
}

#[tokio::test]
async fn a_card_is_believed_for_a_while_and_forgotten_when_the_agent_moved() {
    let desk = Desk::new(|url, heard, at| match is_card(heard) {
        true => (200, JSON, old_card(url, false)),
        false if at == 2 => (410, JSON, String::new()),
        false => (200, JSON, rpc(&said("hi"))),
    })
    .await;
    let clock = Arc::new(Pauses::default());
    let remote = remote(&desk, clock.clone(), OutboundCredentials::None);
    let cards = || desk.heard().iter().filter(|heard| is_card(heard)).count();
    let send = async || {
        let cx = CallContext::new(clock.clone(), Duration::from_secs(900));
        remote.send(&SendRequest { message: Message::text(Role::User, "m", "x"), report_to: None }, &cx).await
    };
    send().await.unwrap();
    assert!(send().await.is_err());
    assert_eq!(cards(), 1);
    send().await.unwrap();
    assert_eq!(cards(), 2, "where it is now is asked anew");
    *clock.now.lock().unwrap() += limits::A2A_CARD_MAX_AGE;
    send().await.unwrap();
    assert_eq!(cards(), 3);
}

#[tokio::test]
async fn a_card_that_points_next_to_us_is_not_followed() {
    let desk = Desk::new(|_, heard, _| match is_card(heard) {
        true => (200, JSON, old_card("http://10.0.0.7:8080/", false)),
        false => (200, JSON, String::new()),
    })
    .await;
    let clock = Arc::new(Pauses::default());
    let remote = remote(&desk, clock.clone(), OutboundCredentials::None);
    let (end, _) = talk(&remote, &clock, None).await;
    let fault = end.unwrap_err();
    assert!(fault.kind == A2aErrorKind::Card && fault.message.contains("10.0.0.7"), "{fault:?}");
    assert_eq!(desk.heard().iter().filter(|heard| !is_card(heard)).count(), 0);
}

#[tokio::test]
async fn what_is_too_large_is_given_up() {
    for (kind, size, streams) in [(JSON, limits::A2A_ANSWER, false), (EVENTS, limits::A2A_EVENT, true)] {
        let desk = Desk::new(move |url, heard, _| match is_card(heard) {
            true => (200, JSON, old_card(url, streams)),
            false => (200, kind, format!("data: {}\n\n", "x".repeat(size + 1))),
        })
        .await;
        let clock = Arc::new(Pauses::default());
        let remote = remote(&desk, clock.clone(), OutboundCredentials::None);
        let (end, _) = talk(&remote, &clock, None).await;
        assert_eq!(end.unwrap_err().kind, A2aErrorKind::TooLarge, "{kind}");
    }
}

#[tokio::test]
async fn a_task_that_grows_without_end_is_given_up_and_one_that_chatters_is_cut() {
    let desk = Desk::new(|url, heard, at| {
        if is_card(heard) {
            return (200, JSON, old_card(url, true));
        }
        let piece = |text: String| {
            json!({"kind": "artifact-update", "taskId": "t", "contextId": "c", "append": true, "artifact": {"artifactId": "a", "parts": [{"kind": "text", "text": text}]}})
        };
        let chatter = |text: String| {
            json!({"kind": "status-update", "taskId": "t", "contextId": "c", "status": {"state": "working", "message": said(&text)}})
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
    let clock = Arc::new(Pauses::default());
    let remote = remote(&desk, clock.clone(), OutboundCredentials::None);
    let (end, _) = talk(&remote, &clock, None).await;
    assert_eq!(end.unwrap_err().kind, A2aErrorKind::TooLarge);
    let (end, texts) = talk(&remote, &clock, None).await;
    assert_eq!((end.unwrap().status.state, texts.len()), (TaskState::Completed, limits::A2A_UPDATES_SENT));
}

#[tokio::test]
async fn a_stream_that_falls_silent_is_left_in_time() {
    // A server that says one thing and then nothing, without ending the answer.
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
                    () if text.contains("well-known") => (JSON, old_card(url, true)),
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
    let access = Access {
        card: CardLocation::Address(url.to_owned()),
        credentials: OutboundCredentials::None,
        hosts: Vec::new(),
        timeout: limits::A2A_REQUEST,
        tries: 1,
        streams: true,
        first_pause: limits::A2A_PAUSE,
        patience: limits::A2A_POLL_TIMEOUT,
        reports: false,
    };
    let remote = Remote::new(access, A2aEnvironment { clock: clock.clone(), http: HttpClients::new() });
    let cx = CallContext::new(clock.clone(), Duration::from_secs(900));
    let message = Message::text(Role::User, "m1", "hello");
    let accepted = remote.send(&SendRequest { message, report_to: None }, &cx).await.unwrap();
    let mut texts = Texts::default();
    let mut following = std::pin::pin!(remote.follow(accepted, &mut texts, &cx));
    assert!(futures::poll!(&mut following).is_pending());
    clock.advance(limits::A2A_STREAM_IDLE - Duration::from_millis(1));
    assert!(futures::poll!(&mut following).is_pending());
    clock.advance(Duration::from_millis(1));
    // The second stream falls silent too, at whatever moment it begins. Time passes only while somebody listens to a stream: on a
    // busy machine an answer may take long.
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
