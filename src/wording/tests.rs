//! Responses in other words, seen by the user, by the store and in a replay.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use super::{server, view};
use crate::{
    clock::Clock,
    context::CallContext,
    conversation::ReplyEvent,
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

fn world(nlg: &str, steps: Vec<ScriptedCall>) -> (TestAssistant, Arc<StrictLlm>) {
    let model = Arc::new(ScriptedLlm::strict(steps));
    (TestAssistant::build(builder(nlg).model(model.clone())).unwrap(), model)
}

const REPHRASE: &str = "nlg: {type: rephrase, summarize_history: true}\n";

async fn replays(world: &TestAssistant) {
    let difference = world.assistant.replay(&"u".into()).await.unwrap();
    assert!(difference.is_none(), "{difference:#?}");
}

#[tokio::test]
async fn the_rephraser_is_asked_once_with_modest_settings() {
    let (world, model) = world(REPHRASE, vec!["  Hi there!  ".into()]);
    assert_eq!(world.say("/greet").await.unwrap(), ["Exactly this.", "Hi there!", "Exactly this."]);
    let requests: Vec<ChatRequest> = model.requests();
    assert_eq!(requests.len(), 1, "one call, whatever `summarize_history` says");
    let request = &requests[0];
    assert_eq!(request.purpose, Purpose::REPHRASE);
    assert_eq!(request.temperature, Some(limits::REPHRASE_TEMPERATURE));
    assert_eq!(request.max_tokens, Some(limits::REPHRASE_TOKENS));
    assert!(request.messages[0].text().contains("Write in en"), "{}", request.messages[0].text());
    let asked = request.messages[1].text();
    assert!(asked.contains("AI: Exactly this.") && asked.contains("Hello None."), "{asked}");
    // What was heard is what is stored, with its source, and buttons stay.
    let stored = world.assistant.store().turns(&"u".into()).await.unwrap();
    let bots: Vec<_> = stored[0].events.iter().filter_map(|event| serde_json::to_value(event).ok()).collect();
    let said = bots.iter().find(|event| event["text"] == "Hi there!").unwrap();
    assert_eq!(said["utter_source"], "ContextualResponseRephraser");
    assert_eq!(said["buttons"][0]["title"], "Thanks");
    assert!(bots.iter().all(|event| event.get("wording").is_none()));
    replays(&world).await;
}

#[tokio::test]
async fn a_rephrased_response_streams_in_its_place() {
    let (world, _) = world(REPHRASE, vec!["Hi you there".into()]);
    let (report, collected) = world.send("u", "/greet").await.unwrap();
    let pieces = collected.pieces();
    let plain = pieces.iter().position(|piece| matches!(piece, ReplyEvent::Message { message, .. } if message.text.as_deref() == Some("Exactly this."))).unwrap();
    let start = pieces.iter().position(|piece| matches!(piece, ReplyEvent::Start { .. })).unwrap();
    assert!(plain < start, "{pieces:#?}");
    let ReplyEvent::Start { id, source, .. } = &pieces[start] else { panic!() };
    assert_eq!(&**source, "response:utter_hello");
    assert!(report.replies.iter().any(|reply| reply.id == *id));
    let deltas: String = pieces
        .iter()
        .filter_map(|piece| match piece {
            ReplyEvent::Delta { text, .. } => Some(&**text),
            _ => None,
        })
        .collect();
    assert_eq!(deltas, "Hi you there");
    assert_eq!(pieces.iter().filter(|piece| matches!(piece, ReplyEvent::End { .. })).count(), 1);
    replays(&world).await;
}

#[tokio::test]
async fn a_template_of_the_response_wins_over_that_of_the_project() {
    let (world, model) = world(REPHRASE, vec!["Other words.".into()]);
    assert_eq!(world.say("/ask").await.unwrap(), ["Other words."]);
    assert_eq!(model.requests()[0].messages[0].text(), "Own: The own text. / True / USER: /ask");
}

#[tokio::test]
async fn all_responses_are_rephrased_where_the_project_says_so() {
    let nlg = "nlg: {type: rephrase, rephrase_all: true}\n";
    let (world, _) = world(nlg, vec!["One.".into(), "Two.".into(), "Three.".into()]);
    assert_eq!(world.say("/greet").await.unwrap(), ["One.", "Two.", "Three."]);
}

/// A model that never answers.
struct Stuck(ModelProfile);

impl Llm for Stuck {
    fn profile(&self) -> &ModelProfile {
        &self.0
    }
    fn chat<'a>(&'a self, _: ChatRequest, _: &'a CallContext) -> BoxFuture<'a, Result<ChatStream, LlmError>> {
        Box::pin(std::future::pending())
    }
}

async fn says_its_own_text(world: &TestAssistant) {
    let before = world.clock.elapsed();
    let (report, _) = world.send("u", "/ask").await.unwrap();
    assert_eq!(report.replies[0].reply.text.as_deref(), Some("The own text."));
    assert_eq!(report.failures[0].code, "R0510", "{:?}", report.failures);
    assert!(world.clock.elapsed() - before <= limits::REPHRASE_WAIT);
    replays(world).await;
}

#[tokio::test]
async fn a_rephraser_that_fails_or_is_slow_leaves_the_text_as_it_is() {
    let broken = || ScriptedCall::failing_after("The own te", LlmErrorKind::Truncated);
    for step in [ScriptedCall::from(LlmErrorKind::Unreachable), ScriptedCall::from("   "), broken()] {
        says_its_own_text(&world(REPHRASE, vec![step]).0).await;
    }
    let stuck = Arc::new(Stuck(ModelProfile::of("openai", "gpt-4o")));
    says_its_own_text(&TestAssistant::build(builder(REPHRASE).model(stuck)).unwrap()).await;
    // What the channel was told of a broken answer is taken back by the whole message.
    let (world, _) = world(REPHRASE, vec![broken()]);
    let (_, collected) = world.send("u", "/ask").await.unwrap();
    let ended = collected.pieces().into_iter().find_map(|piece| match piece {
        ReplyEvent::End { message, .. } => message.text,
        _ => None,
    });
    assert_eq!(ended.as_deref(), Some("The own text."));
}

#[tokio::test]
async fn the_language_of_the_conversation_chooses_the_text_that_is_rephrased() {
    let flows =
        FLOWS.replace("      - action: utter_own", "      - set_slots: [{language: de}]\n      - action: utter_hello");
    let files =
        [("config.yml", CONFIG), ("domain.yml", DOMAIN), ("data/flows.yml", &flows), ("endpoints.yml", REPHRASE)];
    let model = Arc::new(ScriptedLlm::strict(vec![ScriptedCall::from("Moin!")]));
    let world = TestAssistant::from_files(files, model.clone()).unwrap();
    assert_eq!(world.say("/ask").await.unwrap(), ["Moin!"]);
    assert!(model.requests()[0].messages[0].text().contains("Write in de"));
    assert!(model.requests()[0].messages[1].text().contains("Guten Tag."));
}

#[tokio::test]
async fn no_more_of_the_conversation_is_shown_than_wanted() {
    let (world, _) = world("{}\n", Vec::new());
    for _ in 0..limits::REPHRASE_LINES {
        world.say("/greet").await.unwrap();
    }
    let conversation = world.assistant.conversation(&"u".into()).await.unwrap();
    let (all, current) = view::transcript(&conversation, usize::MAX);
    assert_eq!((all.lines().count(), current.as_str()), (limits::REPHRASE_LINES, ""));
    let (two, _) = view::transcript(&conversation, 2);
    assert_eq!(two.lines().filter(|line| line.starts_with("USER: ")).count(), 2);
}

/// A server that answers every request with these bytes, or never.
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

/// An assistant in real time, since it talks over real connections.
async fn served(nlg: &str) -> (Assistant, TurnReport) {
    let assistant = builder(nlg).seeds(|| 7).build().unwrap();
    let incoming = IncomingMessage::text("u", "/ask", "test");
    let report = assistant.receive(incoming, Box::new(CollectingSink::streaming())).await.unwrap();
    let difference = assistant.replay(&"u".into()).await.unwrap();
    assert!(difference.is_none(), "{difference:#?}");
    (assistant, report)
}

#[tokio::test]
async fn a_response_server_words_every_response() {
    let button = json!({"title": "A", "payload": "/a", "url": "x"});
    let answer = json!({"text": "From the server.", "buttons": [button], "image": null});
    let (_, report) = served(&format!("nlg: {{url: '{}'}}\n", server(Some(answer.to_string())).await)).await;
    assert_eq!(report.failures, []);
    assert_eq!(report.replies[0].reply.text.as_deref(), Some("From the server."));
    assert_eq!(report.replies[0].reply.buttons[0].extra["url"], "x");
}

#[tokio::test]
async fn a_response_server_that_is_slow_or_endless_is_given_up() {
    let long = json!({"text": "x".repeat(limits::NLG_BODY)}).to_string();
    for (answer, why) in [(None, ""), (Some(long), "longer than"), (Some("[]".into()), "no JSON object")] {
        let nlg = format!(
            "nlg: {{url: '{}', timeout: {}}}\n",
            server(answer.clone()).await,
            if answer.is_none() { 0.01 } else { 5.0 }
        );
        let (_, report) = served(&nlg).await;
        assert_eq!(report.replies[0].reply.text.as_deref(), Some("The own text."));
        let failure = &report.failures[0];
        assert!(failure.code == "R0511" && failure.reason.contains(why), "{failure:?}");
    }
    // Without a timeout of its own it is waited for only so long; here time jumps.
    let (world, _) = world(&format!("nlg: {{url: '{}'}}\n", server(None).await), Vec::new());
    let before = world.clock.elapsed();
    let (report, _) = world.send("u", "/ask").await.unwrap();
    assert_eq!(report.failures[0].code, "R0511");
    assert_eq!(world.clock.elapsed() - before, limits::NLG_WAIT);
}

#[test]
fn answers_of_another_shape_are_refused() {
    for (answer, why) in [
        (json!({}), "says nothing"),
        (json!({"text": 1}), "`text`"),
        (json!({"text": "a", "buttons": {}}), "`buttons`"),
        (json!({"text": "a", "buttons": [{"payload": "b"}]}), "`title`"),
    ] {
        assert!(server::reply(&answer).unwrap_err().contains(why), "{answer}");
    }
    assert!(server::reply(&json!({"text": "a", "strange": 1})).is_ok());
}
