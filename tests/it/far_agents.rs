//! An agent of others over A2A in the middle of turns: what is sent to it is a write, and leaves once.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{Router, body::Bytes, extract::State, http::StatusCode, response::IntoResponse, routing::any};
use segue::{
    Assistant, BoxFuture, CallContext, DeliveryError, IncomingMessage, Receipt, ReplyEvent, ReplySink, TurnReport,
    clock::{Clock, Deadline},
    limits,
    testing::{ManualClock, ScriptedLlm},
};
use serde_json::{Value as Json, json};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

type Answer = (u16, String);
type Answers = dyn Fn(String, Json) -> BoxFuture<'static, Answer> + Send + Sync;

/// An agent that answers each request as it is told, and keeps what it heard.
#[derive(Clone)]
struct Far {
    heard: Arc<Mutex<Vec<(String, Json)>>>,
    answers: Arc<Answers>,
}

impl Far {
    async fn new<F: Future<Output = Answer> + Send + 'static>(
        answers: impl Fn(String, Json) -> F + Send + Sync + 'static,
    ) -> (Self, String) {
        let far = Self {
            heard: Arc::default(),
            answers: Arc::new(move |method, params| Box::pin(answers(method, params)) as BoxFuture<'static, Answer>),
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let card = json!({"name": "far", "url": url, "protocolVersion": "0.3.0", "capabilities": {}}).to_string();
        let router = Router::new()
            .route("/.well-known/{*rest}", any(move || std::future::ready(card.clone())))
            .fallback(hear)
            .with_state(far.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        (far, url)
    }
    /// The methods it was asked for, in order.
    fn methods(&self) -> Vec<String> {
        self.heard.lock().unwrap().iter().map(|(method, _)| method.clone()).collect()
    }
    fn of(&self, wanted: &str) -> Vec<Json> {
        let heard = self.heard.lock().unwrap();
        heard.iter().filter(|(method, _)| method == wanted).map(|(_, params)| params.clone()).collect()
    }
}

async fn hear(State(far): State<Far>, body: Bytes) -> impl IntoResponse {
    let mut request: Json = serde_json::from_slice(&body).unwrap();
    let method = request["method"].as_str().unwrap().to_owned();
    let params = request["params"].take();
    far.heard.lock().unwrap().push((method.clone(), params.clone()));
    let (status, text) = (far.answers)(method, params).await;
    (StatusCode::from_u16(status).unwrap(), [("content-type", "application/json")], text)
}

fn task(state: &str) -> Answer {
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
        (
            "config.yml",
            "recipe: default.v1\npipeline: [{name: CompactLLMCommandGenerator}]\npolicies: [{name: FlowPolicy}]\n"
                .to_owned(),
        ),
        ("domain.yml", "responses: {utter_done: [{text: Done.}]}\n".to_owned()),
        (
            "data/flows.yml",
            "flows: {ask: {description: asks, steps: [{call: far}, {action: utter_done}]}}\n".to_owned(),
        ),
        (
            "sub_agents/far/config.yml",
            format!(
                "agent: {{name: far, description: helps, protocol: A2A}}\nconfiguration: {{agent_card: \"{url}\"}}\n"
            ),
        ),
    ]
}

/// Pauses between two tries pass at once; longer waits, which guard against silence, never do.
struct Pauses(ManualClock);

impl Clock for Pauses {
    fn now(&self) -> segue::Timestamp {
        self.0.now()
    }
    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
    fn sleep(&self, until: Deadline) -> BoxFuture<'_, ()> {
        let pause = until.0.saturating_sub(self.elapsed());
        if pause < limits::A2A_CANCEL {
            self.0.advance(pause);
        }
        self.0.sleep(until)
    }
}

fn assistant(url: &str, clock: impl Clock + 'static, lines: &[&'static str]) -> Assistant {
    let files = files(url);
    let files = files.iter().map(|(path, text)| (*path, text.as_str()));
    let model = Arc::new(ScriptedLlm::strict(lines.iter().copied()));
    let builder = Assistant::builder_from_texts(files).unwrap().model(model);
    builder.clock(Arc::new(clock)).build().unwrap()
}

/// A sink whose turn can be stopped.
struct Stoppable(CancellationToken);

impl ReplySink for Stoppable {
    fn wants_deltas(&self) -> bool {
        false
    }
    fn send<'a>(&'a mut self, _: ReplyEvent, _: &'a CallContext) -> BoxFuture<'a, Result<Receipt, DeliveryError>> {
        Box::pin(std::future::ready(Ok(Receipt::Delivered)))
    }
    fn cancellation(&self) -> Option<CancellationToken> {
        Some(self.0.clone())
    }
}

async fn say(assistant: &Assistant, text: &str, stop: &CancellationToken) -> TurnReport {
    let sink = Box::new(Stoppable(stop.clone()));
    assistant.receive(IncomingMessage::text("u", text, "test"), sink).await.unwrap()
}

fn codes(report: &TurnReport) -> Vec<&str> {
    report.failures.iter().map(|failure| &*failure.code).collect()
}

#[tokio::test]
async fn a_message_that_is_under_way_is_not_dropped_when_the_user_speaks_on_and_its_task_is_stopped() {
    let (arrived, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (rings, waits) = (arrived.clone(), go.clone());
    let (far, url) = Far::new(move |method, params| {
        let (rings, waits) = (rings.clone(), waits.clone());
        async move {
            match (method.as_str(), params.pointer("/message/contextId")) {
                ("message/send", None) => {
                    rings.notify_one();
                    waits.notified().await;
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
    let stopping = async {
        arrived.notified().await;
        stop.cancel();
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
        go.notify_one();
    };
    let (report, ()) = tokio::join!(say(&assistant, "ask them", &stop), stopping);
    assert!(report.failures.is_empty(), "what was stopped did not fail: {:?}", report.failures);
    let asked: Vec<String> = far.methods().into_iter().filter(|method| method != "tasks/get").collect();
    assert_eq!(asked, ["message/send", "tasks/cancel"], "its answer was waited for, and the task is stopped");
    assert_eq!(far.of("tasks/cancel")[0]["id"], "t1");

    say(&assistant, "three of us", &CancellationToken::new()).await;
    let again = &far.of("message/send")[1]["message"];
    assert_eq!((&again["contextId"], again.get("taskId")), (&json!("c1"), None), "the agent knows the conversation");
    assert_eq!(again["parts"][0]["text"], "three of us", "what it heard is not told twice");
    assert!(assistant.replay(&"u".into()).await.unwrap().is_none());
}

#[tokio::test]
async fn a_message_without_an_answer_is_given_up_in_time_and_told() {
    let arrived = Arc::new(Notify::new());
    let rings = arrived.clone();
    // It answers only when its task has ended, which is never.
    let (far, url) = Far::new(move |_, _| {
        rings.notify_one();
        std::future::pending::<Answer>()
    })
    .await;
    let clock = ManualClock::new();
    let assistant = assistant(&url, clock.clone(), &["start flow ask"]);
    let stop = CancellationToken::new();
    let stopping = async {
        arrived.notified().await;
        stop.cancel();
        while !clock.slept().contains(&limits::A2A_SEND_GRACE) {
            tokio::task::yield_now().await;
        }
        clock.advance(limits::A2A_SEND_GRACE);
    };
    let (report, ()) = tokio::join!(say(&assistant, "ask them", &stop), stopping);
    assert_eq!(codes(&report), ["A0515"], "whether it was taken is not known, and that is told");
    assert_eq!(far.methods(), ["message/send"]);
    let conversation = assistant.conversation(&"u".into()).await.unwrap();
    assert!(!format!("{:?}", conversation.stack).contains("far"), "the agent does not wait to be told the same again");
    assert!(assistant.replay(&"u".into()).await.unwrap().is_none());
}

#[tokio::test]
async fn a_message_leaves_once_when_something_in_between_fails() {
    for (status, body, code) in [
        (504, r#"{"error": "upstream timed out"}"#, "A0515"),
        (504, r#"{"error": {"code": 504}}"#, "A0515"),
        (503, r#"{"error": {"message": "no upstream"}}"#, "A0515"),
        (503, r#"{"status": 503}"#, "A0515"),
        (502, "<html>", "A0515"),
        (401, r#"{"error": "unauthorized"}"#, "A0512"),
        (200, r#"{"error": "no"}"#, "A0512"),
    ] {
        let (far, url) = Far::new(move |_, _| std::future::ready((status, body.to_owned()))).await;
        let assistant = assistant(&url, Pauses(ManualClock::new()), &["start flow ask"]);
        let report = say(&assistant, "ask them", &CancellationToken::new()).await;
        assert_eq!((far.methods().len(), codes(&report)), (1, vec![code]), "{status} {body}");
    }
}

#[tokio::test]
async fn a_task_of_which_nothing_more_can_be_heard_is_stopped() {
    let (far, url) = Far::new(|method, _| async move {
        match method.as_str() {
            "message/send" => task("working"),
            "tasks/cancel" => task("canceled"),
            _ => (500, String::new()),
        }
    })
    .await;
    let assistant = assistant(&url, Pauses(ManualClock::new()), &["start flow ask"]);
    let report = say(&assistant, "ask them", &CancellationToken::new()).await;
    assert_eq!(codes(&report), ["A0512"]);
    assert_eq!(far.of("tasks/cancel").len(), 1, "{:?}", far.methods());
    assert_eq!(far.of("tasks/get").len(), limits::A2A_POLL_FAILURES as usize + 1);
}
