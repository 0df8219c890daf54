//! The REST channel through a socket.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use segue::{
    agents::{Agent, AgentError, AgentResult, AgentRun},
    async_trait,
    effect::EffectClass,
    runtime::{Assistant, AssistantBuilder},
    server,
    tools::{Tool, ToolCallContext, ToolHandler, ToolInfo, ToolOutcome, ToolOutput, Toolbox},
};
use serde_json::{Value as Json, json};
use tokio::sync::Notify;

use crate::{project, run::client};

/// A tool that answers when it is told to.
struct LookUp {
    spec: ToolInfo,
    go: Notify,
    calls: AtomicUsize,
}

impl LookUp {
    fn new() -> Arc<Self> {
        let parameters = json!({"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]});
        let spec = ToolInfo::new("look_up", "Looks into the depot.").parameters(parameters).effect(EffectClass::Read);
        Arc::new(Self { spec, go: Notify::new(), calls: AtomicUsize::new(0) })
    }
}

#[async_trait]
impl ToolHandler for LookUp {
    fn info(&self) -> &ToolInfo {
        &self.spec
    }
    async fn call(&self, _: Json, _: &ToolCallContext) -> ToolOutcome {
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.go.notified().await;
        ToolOutcome::Done(ToolOutput::text("three parcels"))
    }
}

/// A server on a free port.
struct Served {
    address: String,
    tool: Arc<LookUp>,
    assistant: Assistant,
    client: reqwest::Client,
}

impl Served {
    async fn start(credentials: &Json) -> Self {
        Self::start_with(credentials, |builder| builder).await
    }

    async fn start_with(credentials: &Json, parts: impl FnOnce(AssistantBuilder) -> AssistantBuilder) -> Self {
        let tool = LookUp::new();
        let builder = parts(Assistant::builder(project("courier")).unwrap_or_else(|error| panic!("{error}")));
        let assistant =
            builder.source(Arc::new(Toolbox::new("depot", [Tool::from_handler(tool.clone())]))).build().unwrap();
        let channels = crate::channels(credentials);
        let listener = server::listen(&server::ServerSettings::new().port(0)).await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let router = server::router(&assistant, &channels);
        let serving = assistant.clone();
        tokio::spawn(async move { server::serve(listener, router, &serving, std::future::pending()).await });
        Self { address, tool, assistant, client: client() }
    }

    fn post(&self, query: &str, body: &Json) -> reqwest::RequestBuilder {
        self.client.post(format!("{}/webhooks/rest/webhook{query}", self.address)).body(body.to_string())
    }

    async fn answer(&self, body: &Json) -> Json {
        let answer = self.post("", body).send().await.unwrap();
        assert_eq!(answer.status(), 200);
        assert!(answer.headers().get("x-turn-error").is_none());
        serde_json::from_str(&answer.text().await.unwrap()).unwrap()
    }
}

fn message(text: &str) -> Json {
    json!({"sender": "u1", "message": text})
}

#[tokio::test]
async fn a_whole_answer_is_an_array_of_messages() {
    let served = Served::start(&json!({})).await;
    assert_eq!(
        served.answer(&message("track it")).await,
        json!([
            {"recipient_id": "u1", "text": "Which parcel?"},
            {"recipient_id": "u1", "text": "The number stands on your receipt."},
        ])
    );
    let buttons = served.answer(&json!({"message": "send", "sender": "u2"})).await;
    assert_eq!(
        buttons[0],
        json!({"recipient_id": "u2", "text": "How fast?", "buttons": [
            {"title": "Express", "payload": "/SetSlots(parcel=EX1)"},
            {"title": "Slow", "payload": "/SetSlots(parcel=SL2)"},
        ]})
    );
    // No sender, no message: an answer, and no crash.
    let empty = served.answer(&json!({})).await;
    assert_eq!(empty[0]["recipient_id"], "default");
}

#[tokio::test]
async fn status_and_refusals() {
    let served = Served::start(&json!({"rest": {"auth_token": "t0k"}})).await;
    let status = served.client.get(format!("{}/webhooks/rest/", served.address)).send().await.unwrap();
    assert_eq!(status.text().await.unwrap(), r#"{"status":"ok"}"#);
    let open = served.post("", &message("track")).send().await.unwrap();
    assert_eq!(open.status(), 401);
    let admitted = served.post("", &message("track")).header("authorization", "Bearer t0k").send().await.unwrap();
    assert_eq!(admitted.status(), 200);
    let token = ("authorization", "Bearer t0k");
    let url = format!("{}/webhooks/rest/webhook", served.address);
    let broken = served.client.post(&url).header(token.0, token.1).body("{").send().await.unwrap();
    assert_eq!(broken.status(), 400);
    assert!(broken.text().await.unwrap().contains("sender"), "the cure shows what was expected");
    let large = "x".repeat(segue::limits::HTTP_BODY + 1);
    let large = served.client.post(&url).header(token.0, token.1).body(large).send().await.unwrap();
    assert_eq!(large.status(), 413);
}

#[tokio::test]
async fn the_first_piece_of_a_stream_arrives_before_the_tool_returns() {
    for (query, first, last) in [
        ("?stream=true", "{\"recipient_id\":\"u1\",\"text\":\"One moment, I look into the depot.\"", "three parcels"),
        ("?stream=deltas", "\"type\":\"message_end\"", "\"type\":\"turn_finished\""),
        ("?stream=sse", "event: message_end\ndata: {", "event: turn_finished\ndata: {"),
    ] {
        let served = Served::start(&json!({})).await;
        let mut answer = served.post(query, &message("what is in the depot?")).send().await.unwrap();
        let mut seen = String::new();
        while !seen.contains(first) {
            let chunk = answer.chunk().await.unwrap().expect("more comes");
            seen.push_str(std::str::from_utf8(&chunk).unwrap());
        }
        // The tool was told nothing yet: only now may it answer.
        assert!(!seen.contains("three parcels"), "{seen}");
        served.tool.go.notify_one();
        while let Some(chunk) = answer.chunk().await.unwrap() {
            seen.push_str(std::str::from_utf8(&chunk).unwrap());
        }
        assert!(seen.contains(last) && seen.contains("The depot has three parcels."), "{query}: {seen}");
        if query == "?stream=deltas" {
            let events: Vec<Json> = seen.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            assert_eq!(events[0]["type"], "turn_started");
            let filler = events.iter().find(|event| event["type"] == "message_end").unwrap();
            assert_eq!((&filler["filler"], &filler["message"]["recipient_id"]), (&json!(true), &json!("u1")));
        }
    }
}

#[tokio::test]
async fn a_turn_goes_on_when_the_client_goes_away() {
    let served = Served::start(&json!({})).await;
    let mut answer = served.post("?stream=deltas", &message("what is in the depot?")).send().await.unwrap();
    answer.chunk().await.unwrap().expect("it began");
    drop(answer);
    served.tool.go.notify_one();
    // The next message of the same conversation waits for the turn that goes on.
    served.answer(&message("track it")).await;
    let turns = served.assistant.store().turns(&"u1".into()).await.unwrap();
    let replies = serde_json::to_string(&turns[0].replies).unwrap();
    assert!(replies.contains("The depot has three parcels."), "{replies}");
}

#[tokio::test]
async fn the_same_message_id_twice_gives_the_same_replies_and_one_turn() {
    let served = Served::start(&json!({})).await;
    let mut body = message("what is in the depot?");
    body["message_id"] = json!("m1");
    served.tool.go.notify_one();
    let first = served.answer(&body).await;
    let second = served.answer(&body).await;
    assert_eq!(first, second);
    assert!(first.to_string().contains("three parcels"), "{first}");
    assert_eq!(served.tool.calls.load(Ordering::SeqCst), 1);

    // The header does the same, also for a stream.
    let again = served.post("?stream=true", &message("other words")).header("Idempotency-Key", "m1");
    let streamed = again.send().await.unwrap().text().await.unwrap();
    let lines: Vec<Json> = streamed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(Json::from(lines), first);
    assert_eq!(served.tool.calls.load(Ordering::SeqCst), 1);
}

/// An agent that fails.
struct Broken;

#[async_trait]
impl Agent for Broken {
    async fn run(&self, _: &mut AgentRun<'_>) -> AgentResult {
        Err(AgentError::new("the secret cause").code("A0501"))
    }
}

#[tokio::test]
async fn a_failed_turn_answers_200_and_names_its_code_and_never_its_cause() {
    let served = Served::start_with(&json!({}), |builder| builder.agent("clerk", Arc::new(Broken))).await;
    let answer = served.post("", &message("what is in the depot?")).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.headers().get("x-turn-error").unwrap(), "A0501");
    let body = answer.text().await.unwrap();
    assert!(body.contains("\"text\"") && !body.contains("secret"), "the user hears the pattern: {body}");

    let streamed = served.post("?stream=deltas", &message("what is in the depot?")).send().await.unwrap();
    let body = streamed.text().await.unwrap();
    assert!(body.contains("\"type\":\"error\",\"code\":\"A0501\"") && !body.contains("secret"), "{body}");
}

#[tokio::test]
async fn a_message_that_is_not_accepted_is_told_by_its_status_and_when_to_send_it_again() {
    let one = segue::runtime::Admission { open_turns: 1, ..Default::default() };
    let served = Served::start_with(&json!({}), |builder| builder.admission(one)).await;
    let busy = tokio::spawn(served.post("", &message("depot")).send());
    while served.tool.calls.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    let late = json!({"sender": "late", "message": "track it"});
    for query in ["", "?stream=true", "?stream=sse", "?stream=deltas"] {
        let refused = served.post(query, &late).send().await.unwrap();
        assert_eq!(refused.status(), 503, "{query}");
        let header = |name: &str| refused.headers().get(name).unwrap().to_str().unwrap().to_owned();
        assert_eq!((header("retry-after"), header("x-turn-error")), ("1".into(), "R0106".into()), "{query}");
    }
    assert!(served.assistant.store().unfinished_turns(&"late".into()).await.unwrap().is_empty());
    served.tool.go.notify_one();
    assert_eq!(busy.await.unwrap().unwrap().status(), 200);
    assert_eq!(served.answer(&late).await[0]["text"], "Which parcel?");
}

#[tokio::test]
async fn what_was_said_while_nobody_asked_comes_with_the_next_answer() {
    use segue::conversation::{ExternalTrigger, TriggerAction};
    let served = Served::start(&json!({})).await;
    for query in ["", "?stream=sse"] {
        let what = TriggerAction::Flow("offer_speed".into());
        let trigger = ExternalTrigger { action: what, values: Default::default(), reminder: None };
        let sink = Box::new(segue::runtime::OutboxSink);
        served.assistant.trigger("u1".into(), trigger, "".into(), sink).await.unwrap();
        let answer = served.post(query, &message("track it")).send().await.unwrap().text().await.unwrap();
        let (earlier, own) = (answer.find("How fast?").unwrap(), answer.find("Which parcel?").unwrap());
        assert!(earlier < own, "{answer}");
        assert_eq!(served.assistant.store().pending_replies(&"u1".into()).await.unwrap(), []);
    }
}
