//! Rephrased responses as the user, the store and a replay see them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use super::{context, nlg};
use crate::{
    clock::Clock,
    context::CallContext,
    conversation::TurnEvent,
    limits,
    llm::{
        ChatRequest, ChatStream, Llm, LlmError, LlmErrorKind, ModelProfile, Purpose,
        scripted::{ScriptedCall, ScriptedLlm, StrictLlm},
    },
    runtime::{Assistant, AssistantBuilder, IncomingMessage, TurnReport},
    testing::{CollectingSink, TestAssistant},
};

const CONFIG: &str =
    "recipe: default.v1\nlanguage: en\nadditional_languages: [de]\npipeline:\n  - name: NLUCommandAdapter\n";
const DOMAIN: &str = "
slots:
  name: {type: text}
  said_in: {type: text}
intents: [greet, ask, plain]
responses:
  utter_hello:
    - text: Hello {name}.
      translation: {de: Guten Tag.}
      buttons: [{title: Thanks, payload: thanks}]
      metadata: {rephrase: true}
  utter_own:
    - text: The own text.
      metadata: {rephrase: true, rephrase_prompt: 'Own: {{ suggested_response }} / {{ slots.keys() | length > 0 }} / {{ current_input }}'}
  utter_plain: [{text: Exactly this.}]
";
const FLOWS: &str = "
flows:
  greet:
    description: greets
    nlu_trigger: [{intent: greet}]
    run_pattern_completed: false
    steps:
      - action: utter_plain
      - action: utter_hello
      - action: utter_plain
  ask:
    description: asks
    nlu_trigger: [{intent: ask}]
    run_pattern_completed: false
    steps:
      - action: utter_own
";

fn builder(nlg: &str) -> AssistantBuilder {
    let files = [("config.yml", CONFIG), ("domain.yml", DOMAIN), ("data/flows.yml", FLOWS), ("endpoints.yml", nlg)];
    Assistant::builder_from_texts(files).unwrap_or_else(|error| panic!("{error}"))
}

fn assistant_with(nlg: &str, steps: Vec<ScriptedCall>) -> (TestAssistant, Arc<StrictLlm>) {
    let model = Arc::new(ScriptedLlm::strict(steps));
    (TestAssistant::build(builder(nlg).model(model.clone())).unwrap(), model)
}

const REPHRASE: &str = "nlg: {type: rephrase, summarize_history: true}\n";

async fn replays(test: &TestAssistant) {
    let difference = test.assistant.replay(&"u".into()).await.unwrap();
    assert!(difference.is_none(), "{difference:#?}");
}

#[tokio::test]
async fn the_rephraser_is_called_once_with_the_default_settings() {
    let (test, model) = assistant_with(REPHRASE, vec!["  Hi there!  ".into()]);
    assert_eq!(test.say("/greet").await.unwrap(), ["Exactly this.", "Hi there!", "Exactly this."]);
    let requests: Vec<ChatRequest> = model.requests();
    assert_eq!(requests.len(), 1, "one call, whatever `summarize_history` says");
    let request = &requests[0];
    assert_eq!(request.purpose, Purpose::REPHRASE);
    assert_eq!(request.temperature, Some(limits::REPHRASE_TEMPERATURE));
    assert_eq!(request.max_tokens, Some(limits::REPHRASE_TOKENS));
    assert!(request.messages[0].text().contains("Write in en"), "{}", request.messages[0].text());
    let asked = request.messages[1].text();
    assert!(asked.contains("AI: Exactly this.") && asked.contains("Hello None."), "{asked}");
    // The rephrased text is stored with its source; buttons stay.
    let stored = test.assistant.store().turns(&"u".into()).await.unwrap();
    let bots: Vec<_> = stored[0].events.iter().filter_map(|event| serde_json::to_value(event).ok()).collect();
    let said = bots.iter().find(|event| event["text"] == "Hi there!").unwrap();
    assert_eq!(said["utter_source"], "ContextualResponseRephraser");
    assert_eq!(said["buttons"][0]["title"], "Thanks");
    assert!(bots.iter().all(|event| event.get("wording").is_none()));
    replays(&test).await;
}

#[tokio::test]
async fn a_rephrased_response_streams_after_the_replies_before_it() {
    let (test, _) = assistant_with(REPHRASE, vec!["Hi you there".into()]);
    let (report, collected) = test.send("u", "/greet").await.unwrap();
    let events = collected.events();
    let plain = events.iter().position(|event| matches!(event, TurnEvent::Message { message, .. } if message.text.as_deref() == Some("Exactly this."))).unwrap();
    let start = events.iter().position(|event| matches!(event, TurnEvent::MessageStart { .. })).unwrap();
    assert!(plain < start, "{events:#?}");
    let TurnEvent::MessageStart { id, source, .. } = &events[start] else { panic!() };
    assert_eq!(&**source, "response:utter_hello");
    assert!(report.replies.iter().any(|reply| reply.id == *id));
    let deltas: String = events
        .iter()
        .filter_map(|event| match event {
            TurnEvent::MessageDelta { text, .. } => Some(&**text),
            _ => None,
        })
        .collect();
    assert_eq!(deltas, "Hi you there");
    assert_eq!(events.iter().filter(|event| matches!(event, TurnEvent::MessageEnd { .. })).count(), 1);
    replays(&test).await;
}

#[tokio::test]
async fn the_template_of_a_response_overrides_that_of_the_project() {
    let (test, model) = assistant_with(REPHRASE, vec!["Other words.".into()]);
    assert_eq!(test.say("/ask").await.unwrap(), ["Other words."]);
    assert_eq!(model.requests()[0].messages[0].text(), "Own: The own text. / True / USER: /ask");
}

#[tokio::test]
async fn rephrase_all_rephrases_every_response() {
    let nlg = "nlg: {type: rephrase, rephrase_all: true}\n";
    let (test, _) = assistant_with(nlg, vec!["One.".into(), "Two.".into(), "Three.".into()]);
    assert_eq!(test.say("/greet").await.unwrap(), ["One.", "Two.", "Three."]);
}

/// A model that never answers.
struct Stuck(ModelProfile);

#[async_trait]
impl Llm for Stuck {
    fn profile(&self) -> &ModelProfile {
        &self.0
    }
    async fn chat(&self, _: ChatRequest, _: &CallContext) -> Result<ChatStream, LlmError> {
        std::future::pending().await
    }
}

async fn keeps_the_original_text(test: &TestAssistant) {
    let before = test.clock.elapsed();
    let (report, _) = test.send("u", "/ask").await.unwrap();
    assert_eq!(report.replies[0].reply.text.as_deref(), Some("The own text."));
    assert_eq!(report.failures[0].code, "R0510", "{:?}", report.failures);
    assert!(test.clock.elapsed() - before <= limits::REPHRASE_WAIT);
    replays(test).await;
}

#[tokio::test]
async fn the_original_text_is_sent_when_the_rephraser_fails_or_times_out() {
    let broken = || ScriptedCall::failing_after("The own te", LlmErrorKind::Truncated);
    for step in [ScriptedCall::from(LlmErrorKind::Unreachable), ScriptedCall::from("   "), broken()] {
        keeps_the_original_text(&assistant_with(REPHRASE, vec![step]).0).await;
    }
    let stuck = Arc::new(Stuck(ModelProfile::for_model("openai", "gpt-4o")));
    keeps_the_original_text(&TestAssistant::build(builder(REPHRASE).model(stuck)).unwrap()).await;
    // The end event replaces the streamed part of a failed answer by the original text.
    let (test, _) = assistant_with(REPHRASE, vec![broken()]);
    let (_, collected) = test.send("u", "/ask").await.unwrap();
    let ended = collected.events().into_iter().find_map(|event| match event {
        TurnEvent::MessageEnd { message, .. } => message.text,
        _ => None,
    });
    assert_eq!(ended.as_deref(), Some("The own text."));
}

#[tokio::test]
async fn the_translation_in_the_language_of_the_conversation_is_rephrased() {
    let flows =
        FLOWS.replace("      - action: utter_own", "      - set_slots: [{language: de}]\n      - action: utter_hello");
    let files =
        [("config.yml", CONFIG), ("domain.yml", DOMAIN), ("data/flows.yml", &flows), ("endpoints.yml", REPHRASE)];
    let model = Arc::new(ScriptedLlm::strict(vec![ScriptedCall::from("Moin!")]));
    let test = TestAssistant::from_files(files, model.clone()).unwrap();
    assert_eq!(test.say("/ask").await.unwrap(), ["Moin!"]);
    assert!(model.requests()[0].messages[0].text().contains("Write in de"));
    assert!(model.requests()[0].messages[1].text().contains("Guten Tag."));
}

#[tokio::test]
async fn the_transcript_is_limited_in_turns_and_lines() {
    let (test, _) = assistant_with("{}\n", Vec::new());
    for _ in 0..limits::REPHRASE_LINES {
        test.say("/greet").await.unwrap();
    }
    let conversation = test.assistant.conversation(&"u".into()).await.unwrap();
    let (all, current) = context::transcript(&conversation, usize::MAX);
    assert_eq!((all.lines().count(), current.as_str()), (limits::REPHRASE_LINES, ""));
    let (two, _) = context::transcript(&conversation, 2);
    assert_eq!(two.lines().filter(|line| line.starts_with("USER: ")).count(), 2);
}

/// A server that answers every request with this body, or never.
async fn server(answer: Option<String>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/nlg", listener.local_addr().unwrap());
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let answer = answer.clone();
            tokio::spawn(async move {
                let mut bytes = vec![0; 64 * 1024];
                while stream.read(&mut bytes).await.is_ok_and(|read| read > 0) {
                    let Some(answer) = &answer else { continue };
                    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", answer.len());
                    if stream.write_all(head.as_bytes()).await.is_err()
                        || stream.write_all(answer.as_bytes()).await.is_err()
                    {
                        return;
                    }
                }
            });
        }
    });
    address
}

/// The report of one turn in real time, because the NLG server is reached over a real connection.
async fn served(nlg: &str) -> (Assistant, TurnReport) {
    let assistant = builder(nlg).seeds(|| 7).build().unwrap();
    let incoming = IncomingMessage::new("u", "/ask").input_channel("test");
    let report = assistant.receive(incoming, Box::new(CollectingSink::streaming())).await.unwrap();
    let difference = assistant.replay(&"u".into()).await.unwrap();
    assert!(difference.is_none(), "{difference:#?}");
    (assistant, report)
}

#[tokio::test]
async fn an_nlg_server_generates_every_response() {
    let button = json!({"title": "A", "payload": "/a", "url": "x"});
    let answer = json!({"text": "From the server.", "buttons": [button], "image": null});
    let (_, report) = served(&format!("nlg: {{url: '{}'}}\n", server(Some(answer.to_string())).await)).await;
    assert_eq!(report.failures, []);
    assert_eq!(report.replies[0].reply.text.as_deref(), Some("From the server."));
    assert_eq!(report.replies[0].reply.buttons[0].extra["url"], "x");
}

#[tokio::test]
async fn the_original_text_is_sent_when_the_nlg_server_fails_or_times_out() {
    let long = json!({"text": "x".repeat(limits::NLG_BODY)}).to_string();
    for (answer, reason) in [(None, ""), (Some(long), "longer than"), (Some("[]".into()), "not a JSON object")] {
        let nlg = format!(
            "nlg: {{url: '{}', timeout: {}}}\n",
            server(answer.clone()).await,
            if answer.is_none() { 0.01 } else { 5.0 }
        );
        let (_, report) = served(&nlg).await;
        assert_eq!(report.replies[0].reply.text.as_deref(), Some("The own text."));
        let failure = &report.failures[0];
        assert!(failure.code == "R0511" && failure.reason.contains(reason), "{failure:?}");
    }
    // Without a configured timeout the default applies; this clock jumps.
    let (test, _) = assistant_with(&format!("nlg: {{url: '{}'}}\n", server(None).await), Vec::new());
    let before = test.clock.elapsed();
    let (report, _) = test.send("u", "/ask").await.unwrap();
    assert_eq!(report.failures[0].code, "R0511");
    assert_eq!(test.clock.elapsed() - before, limits::NLG_WAIT);
}

#[test]
fn nlg_answers_with_wrong_types_are_rejected() {
    for (answer, reason) in [
        (json!({}), "has no content"),
        (json!({"text": 1}), "`text`"),
        (json!({"text": "a", "buttons": {}}), "`buttons`"),
        (json!({"text": "a", "buttons": [{"payload": "b"}]}), "`title`"),
    ] {
        assert!(nlg::reply(&answer).unwrap_err().contains(reason), "{answer}");
    }
    assert!(nlg::reply(&json!({"text": "a", "strange": 1})).is_ok());
}
