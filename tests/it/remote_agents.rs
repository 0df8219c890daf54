//! Remote agents over A2A in the middle of a turn. A message to a remote agent is a write: it is sent once.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use axum::{Router, body::Bytes, extract::State, http::StatusCode, response::IntoResponse, routing::any};
use futures::future::BoxFuture;
use segue::{
    Assistant, IncomingMessage, TurnReport,
    clock::{Clock, Deadline},
    limits,
    testing::{ManualClock, ScriptedLlm},
};
use serde_json::{Value as Json, json};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::support::{interruptible_sink::InterruptibleSink, project_files::CONFIG};

/// A status and a body.
type Response = (u16, String);
type RespondFn = dyn Fn(String, Json) -> BoxFuture<'static, Response> + Send + Sync;

/// A remote agent whose responses a test scripts. It records the requests: method and params.
#[derive(Clone)]
struct FakeRemoteAgent {
    requests: Arc<Mutex<Vec<(String, Json)>>>,
    respond: Arc<RespondFn>,
}

impl FakeRemoteAgent {
    /// Starts the agent. Returns it and its address.
    async fn start<F: Future<Output = Response> + Send + 'static>(
        respond: impl Fn(String, Json) -> F + Send + Sync + 'static,
    ) -> (Self, String) {
        let agent = Self {
            requests: Arc::default(),
            respond: Arc::new(move |method, params| Box::pin(respond(method, params)) as BoxFuture<'static, Response>),
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let card = json!({"name": "helper", "url": url, "protocolVersion": "0.3.0", "capabilities": {}}).to_string();
        let router = Router::new()
            .route("/.well-known/{*rest}", any(move || std::future::ready(card.clone())))
            .fallback(handle)
            .with_state(agent.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        (agent, url)
    }
    /// The methods of the requests, in order.
    fn methods(&self) -> Vec<String> {
        self.requests.lock().unwrap().iter().map(|(method, _)| method.clone()).collect()
    }
    /// The params of the requests with this method.
    fn params_of(&self, wanted: &str) -> Vec<Json> {
        let requests = self.requests.lock().unwrap();
        requests.iter().filter(|(method, _)| method == wanted).map(|(_, params)| params.clone()).collect()
    }
}

async fn handle(State(agent): State<FakeRemoteAgent>, body: Bytes) -> impl IntoResponse {
    let mut request: Json = serde_json::from_slice(&body).unwrap();
    let method = request["method"].as_str().unwrap().to_owned();
    let params = request["params"].take();
    agent.requests.lock().unwrap().push((method.clone(), params.clone()));
    let (status, text) = (agent.respond)(method, params).await;
    (StatusCode::from_u16(status).unwrap(), [("content-type", "application/json")], text)
}

/// A response with a task in this state.
fn task(state: &str) -> Response {
    (
        200,
        json!({"jsonrpc": "2.0", "id": "1", "result": {
            "kind": "task", "id": "t1", "contextId": "c1", "status": {"state": state},
        }})
        .to_string(),
    )
}

fn files(url: &str) -> [(&'static str, String); 4] {
    [
        (CONFIG.0, CONFIG.1.to_owned()),
        ("domain.yml", "responses: {utter_done: [{text: Done.}]}\n".to_owned()),
        (
            "data/flows.yml",
            "flows: {ask: {description: asks, steps: [{call: helper}, {action: utter_done}]}}\n".to_owned(),
        ),
        (
            "sub_agents/helper/config.yml",
            format!(
                "agent: {{name: helper, description: helps, protocol: A2A}}\nconfiguration: {{agent_card: \"{url}\"}}\n"
            ),
        ),
    ]
}

/// A manual clock on which the pauses between retries pass at once. Longer waits, which are timeouts, never pass.
struct InstantPauses(ManualClock);

#[async_trait]
impl Clock for InstantPauses {
    fn now(&self) -> segue::Timestamp {
        self.0.now()
    }
    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
    async fn sleep(&self, until: Deadline) {
        let pause = until.0.saturating_sub(self.elapsed());
        if pause < limits::A2A_CANCEL {
            self.0.advance(pause);
        }
        self.0.sleep(until).await
    }
}

fn assistant(url: &str, clock: impl Clock + 'static, lines: &[&'static str]) -> Assistant {
    let files = files(url);
    let files = files.iter().map(|(path, text)| (*path, text.as_str()));
    let model = Arc::new(ScriptedLlm::strict(lines.iter().copied()));
    let builder = Assistant::builder_from_texts(files).unwrap().model(model);
    builder.clock(Arc::new(clock)).build().unwrap()
}

/// Says something; cancelling `stop` interrupts the turn.
async fn say(assistant: &Assistant, text: &str, stop: &CancellationToken) -> TurnReport {
    let sink = Box::new(InterruptibleSink(stop.clone()));
    assistant.receive(IncomingMessage::new("u", text).input_channel("test"), sink).await.unwrap()
}

/// The codes of the failures.
fn codes(report: &TurnReport) -> Vec<&str> {
    report.failures.iter().map(|failure| &*failure.code).collect()
}

#[tokio::test]
async fn interruption_awaits_the_response_to_a_sent_message_and_cancels_the_task() {
    let (arrived, released) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (arrival, release) = (arrived.clone(), released.clone());
    let (agent, url) = FakeRemoteAgent::start(move |method, params| {
        let (arrival, release) = (arrival.clone(), release.clone());
        async move {
            match (method.as_str(), params.pointer("/message/contextId")) {
                ("message/send", None) => {
                    arrival.notify_one();
                    release.notified().await;
                    task("working")
                }
                ("message/send", Some(_)) => task("completed"),
                ("tasks/cancel", _) => task("canceled"),
                _ => task("working"),
            }
        }
    })
    .await;
    let assistant = assistant(&url, ManualClock::new(), &["start flow ask", "continue agent"]);
    let stop = CancellationToken::new();
    let interrupting = async {
        arrived.notified().await;
        stop.cancel();
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
        released.notify_one();
    };
    let (report, ()) = tokio::join!(say(&assistant, "ask the helper", &stop), interrupting);
    assert!(report.failures.is_empty(), "an interruption is not a failure: {:?}", report.failures);
    let methods: Vec<String> = agent.methods().into_iter().filter(|method| method != "tasks/get").collect();
    assert_eq!(methods, ["message/send", "tasks/cancel"], "the response was awaited and the task is cancelled");
    assert_eq!(agent.params_of("tasks/cancel")[0]["id"], "t1");

    say(&assistant, "three of us", &CancellationToken::new()).await;
    let second = &agent.params_of("message/send")[1]["message"];
    assert_eq!(
        (&second["contextId"], second.get("taskId")),
        (&json!("c1"), None),
        "the second message continues the context"
    );
    assert_eq!(second["parts"][0]["text"], "three of us", "the first message is not sent again");
    assert!(assistant.replay(&"u".into()).await.unwrap().is_none());
}

#[tokio::test]
async fn interrupted_message_without_response_times_out_with_an_unknown_outcome() {
    let arrived = Arc::new(Notify::new());
    let arrival = arrived.clone();
    // A blocking agent whose task never ends.
    let (agent, url) = FakeRemoteAgent::start(move |_, _| {
        arrival.notify_one();
        std::future::pending::<Response>()
    })
    .await;
    let clock = ManualClock::new();
    let assistant = assistant(&url, clock.clone(), &["start flow ask"]);
    let stop = CancellationToken::new();
    let interrupting = async {
        arrived.notified().await;
        stop.cancel();
        while !clock.slept().contains(&limits::A2A_SEND_GRACE) {
            tokio::task::yield_now().await;
        }
        clock.advance(limits::A2A_SEND_GRACE);
    };
    let (report, ()) = tokio::join!(say(&assistant, "ask the helper", &stop), interrupting);
    assert_eq!(codes(&report), ["A0515"], "the outcome is unknown and reported");
    assert_eq!(agent.methods(), ["message/send"]);
    let conversation = assistant.conversation(&"u".into()).await.unwrap();
    assert!(!format!("{:?}", conversation.stack).contains("helper"), "the agent does not wait for another message");
    assert!(assistant.replay(&"u".into()).await.unwrap().is_none());
}

#[tokio::test]
async fn message_is_not_resent_after_a_gateway_error() {
    for (status, body, code) in [
        (504, r#"{"error": "upstream timed out"}"#, "A0515"),
        (504, r#"{"error": {"code": 504}}"#, "A0515"),
        (503, r#"{"error": {"message": "no upstream"}}"#, "A0515"),
        (503, r#"{"status": 503}"#, "A0515"),
        (502, "<html>", "A0515"),
        (401, r#"{"error": "unauthorized"}"#, "A0512"),
        (200, r#"{"error": "no"}"#, "A0512"),
    ] {
        let (agent, url) = FakeRemoteAgent::start(move |_, _| std::future::ready((status, body.to_owned()))).await;
        let assistant = assistant(&url, InstantPauses(ManualClock::new()), &["start flow ask"]);
        let report = say(&assistant, "ask the helper", &CancellationToken::new()).await;
        assert_eq!((agent.methods().len(), codes(&report)), (1, vec![code]), "{status} {body}");
    }
}

#[tokio::test]
async fn task_is_cancelled_after_repeated_polling_failures() {
    let (agent, url) = FakeRemoteAgent::start(|method, _| async move {
        match method.as_str() {
            "message/send" => task("working"),
            "tasks/cancel" => task("canceled"),
            _ => (500, String::new()),
        }
    })
    .await;
    let assistant = assistant(&url, InstantPauses(ManualClock::new()), &["start flow ask"]);
    let report = say(&assistant, "ask the helper", &CancellationToken::new()).await;
    assert_eq!(codes(&report), ["A0512"]);
    assert_eq!(agent.params_of("tasks/cancel").len(), 1, "{:?}", agent.methods());
    assert_eq!(agent.params_of("tasks/get").len(), limits::A2A_POLL_FAILURES as usize + 1);
}
