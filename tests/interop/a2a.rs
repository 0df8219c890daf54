//! Segue as an A2A client: a flow calls agents built with `a2a-sdk`, in both versions of the protocol and over all bindings.

use std::{
    fs,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use segue::{
    Assistant, AssistantBuilder, DiscardReplies, IncomingMessage, TurnReport, conversation::BotKind,
    testing::ScriptedLlm,
};
use serde_json::{Value as Json, json};
use tempfile::TempDir;

use crate::{
    processes::{self, ChildProcess},
    program::{self, Server},
};

/// An agent under test: `a2a_agent.py` with a version of the SDK and with flags.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AgentVariant {
    /// Whether it speaks A2A 1.0; otherwise 0.3.
    pub(crate) is_v1: bool,
    pub(crate) flags: &'static [&'static str],
}

const ALL_AGENTS: &[AgentVariant] = &[
    AgentVariant { is_v1: true, flags: &[] },
    AgentVariant { is_v1: false, flags: &[] },
    AgentVariant { is_v1: true, flags: &["rest"] },
    AgentVariant { is_v1: false, flags: &["rest"] },
    AgentVariant { is_v1: true, flags: &["blocking"] },
    AgentVariant { is_v1: false, flags: &["blocking"] },
    #[cfg(feature = "grpc")]
    AgentVariant { is_v1: true, flags: &["grpc"] },
    #[cfg(feature = "grpc")]
    AgentVariant { is_v1: false, flags: &["grpc"] },
    #[cfg(feature = "grpc")]
    AgentVariant { is_v1: true, flags: &["grpc", "blocking"] },
    #[cfg(feature = "grpc")]
    AgentVariant { is_v1: false, flags: &["grpc", "blocking"] },
];

/// The agents over JSON-RPC and gRPC, which report errors in different ways.
pub(crate) const RPC_AGENTS: &[AgentVariant] = &[
    AgentVariant { is_v1: true, flags: &[] },
    AgentVariant { is_v1: false, flags: &[] },
    #[cfg(feature = "grpc")]
    AgentVariant { is_v1: true, flags: &["grpc"] },
    #[cfg(feature = "grpc")]
    AgentVariant { is_v1: false, flags: &["grpc"] },
];

/// An agent and an assistant whose flow calls it.
struct Fixture {
    folder: TempDir,
    assistant: Assistant,
    agent: Option<ChildProcess>,
}

const CONFIG: &str =
    "recipe: default.v1\npipeline: [{name: CompactLLMCommandGenerator}]\npolicies: [{name: FlowPolicy}]\n";
const DOMAIN: &str = "
slots:
  price: {type: float, mappings: [{type: controlled}]}
  document: {type: text, mappings: [{type: controlled}]}
  city: {type: text, initial_value: Arnvik, mappings: [{type: controlled}]}
  card: {type: text, initial_value: '4242', mappings: [{type: controlled}]}
responses:
  utter_total: [{text: 'That is {price} for you.'}]
";
const FLOWS: &str = "
flows:
  ask_prices: {description: asks for prices, steps: [{call: prices}, {action: utter_total}]}
  other: {description: something else, steps: [{action: utter_total}]}
";

fn configuration(address: &str, more: &str) -> String {
    format!(
        "agent: {{name: prices, description: knows prices, protocol: A2A}}
configuration:
  agent_card: {address}
  polling_initial_delay: 0.05
  forward_slots: [city]
  output_mapping:
    - {{slot: price, value: result.data.price}}
    - {{slot: document, value: 'result.files[0].uri if result.files else none'}}
{more}"
    )
}

/// A scripted model with these answers, in this order.
fn model(lines: &[&'static str]) -> Arc<dyn segue::Llm> {
    Arc::new(ScriptedLlm::strict(lines.iter().copied()))
}

impl Fixture {
    fn new(variant: AgentVariant, more: &str, environment: &[(&str, &str)], lines: &[&'static str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (agent, address) = start_agent(variant, &folder.path().join("log"), environment);
        let config = configuration(&address, more);
        let assistant = build(&config, lines).store(Arc::new(segue::MemoryStore::default())).build().unwrap();
        Self { folder, assistant, agent: Some(agent) }
    }

    async fn say(&self, text: &str) -> TurnReport {
        self.assistant
            .receive(IncomingMessage::new("ada", text).input_channel("test"), Box::new(DiscardReplies))
            .await
            .unwrap()
    }

    /// Sends a message. Returns the texts of the replies with their kinds.
    async fn texts(&self, text: &str) -> Vec<(BotKind, String)> {
        let report = self.say(text).await;
        assert!(report.failures.is_empty(), "{:?}", report.failures);
        report.replies.iter().filter_map(|reply| Some((reply.kind, reply.reply.text.as_deref()?.to_owned()))).collect()
    }

    async fn slot(&self, name: &str) -> Json {
        self.assistant.conversation(&"ada".into()).await.unwrap().slots.get(name).cloned().unwrap_or_default()
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    /// The messages that the agent has received.
    fn received(&self) -> Vec<Json> {
        received(&self.log())
    }

    /// Checks that the conversation replays to the same events, and ends the assistant and the agent.
    async fn finish(mut self) {
        let difference = self.assistant.replay(&"ada".into()).await.unwrap();
        assert!(difference.is_none(), "{difference:#?}");
        self.assistant.close(Duration::from_secs(5)).await;
        drop(self.agent.take());
    }
}

/// The messages in the log of an agent.
fn received(log: &std::path::Path) -> Vec<Json> {
    let text = fs::read_to_string(log).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Starts an agent and waits until it listens. Returns its address.
pub(crate) fn start_agent(
    variant: AgentVariant,
    log: &std::path::Path,
    environment: &[(&str, &str)],
) -> (ChildProcess, String) {
    let port = processes::free_port();
    let mut command = processes::a2a_agent(variant.is_v1, port, variant.flags, log);
    command.envs(environment.iter().copied());
    let mut agent = ChildProcess::start(&mut command);
    agent.wait_for_line("Uvicorn running");
    (agent, format!("http://127.0.0.1:{port}"))
}

fn build(config: &str, lines: &[&'static str]) -> AssistantBuilder {
    let files = [
        ("config.yml", CONFIG),
        ("domain.yml", DOMAIN),
        ("data/flows.yml", FLOWS),
        ("sub_agents/prices/config.yml", config),
    ];
    let builder = match Assistant::builder_from_texts(files) {
        Ok(builder) => builder,
        Err(segue::LoadError::Findings(findings, _)) => panic!("{findings:#?}"),
        Err(error) => panic!("{error}"),
    };
    builder.model(model(lines))
}

/// An assistant that calls its agent with the settings `auth`. They contain the values of the secrets; in the files of a project they
/// would be references such as `${NAME}`.
pub(crate) fn with_auth(address: &str, auth: &Json, lines: &[&'static str]) -> Assistant {
    let mut loaded = segue::project::from_texts([
        ("config.yml", CONFIG),
        ("domain.yml", DOMAIN),
        ("data/flows.yml", FLOWS),
        ("sub_agents/prices/config.yml", &configuration(address, "")),
    ]);
    let project = loaded.project.as_mut().unwrap();
    let name = project.agents.keys().next().unwrap().clone();
    let agent = Arc::get_mut(project.agents.get_mut(&name).unwrap()).unwrap();
    agent.auth = serde_json::from_value(auth.clone()).unwrap();
    let builder = AssistantBuilder::new(Arc::new(loaded.project.unwrap()), PathBuf::new());
    builder.model(model(lines)).build().unwrap()
}

fn reply(kind: BotKind, text: &str) -> (BotKind, String) {
    (kind, text.to_owned())
}

#[tokio::test]
async fn task_asks_for_input_and_completes_with_all_agents() {
    for variant in ALL_AGENTS.iter().copied() {
        let fixture = Fixture::new(variant, "", &[], &["start flow ask_prices", "continue agent"]);
        let question = reply(BotKind::InputRequired, "For how many people?");
        let first = fixture.texts("What is the price?").await;
        assert_eq!(first.last(), Some(&question), "{variant:?}: {first:?}");
        let intermediate = reply(BotKind::Intermediate, "Looking it up");
        let count = first.iter().filter(|text| **text == intermediate).count();
        // Polling may miss an intermediate state.
        assert!(count == 1 || (count == 0 && variant.flags.contains(&"blocking")), "{variant:?}: {first:?}");
        let second = fixture.texts("We are 3").await;
        let last = reply(BotKind::FinalResponse, "Done.\n3 people: 90 euros\nFile: https://example.org/quote.pdf");
        let at = second.iter().position(|text| *text == last).unwrap_or_else(|| panic!("{variant:?}: {second:?}"));
        assert_eq!(second.get(at + 1), Some(&reply(BotKind::Response, "That is 90.0 for you.")), "{variant:?}");
        assert_eq!(fixture.slot("price").await, json!(90.0));
        assert_eq!(fixture.slot("document").await, "https://example.org/quote.pdf");
        let received = fixture.received();
        let part = |at: usize, path: &str| received[at].pointer(path).cloned().unwrap_or_default();
        assert_eq!(received.len(), 2, "{variant:?}: {received:?}");
        assert_eq!(part(0, "/parts/0/text"), "USER: What is the price?");
        let slots = received[0].pointer("/parts/1/data/slots").unwrap();
        assert_eq!(slots, &json!([{"name": "city", "value": "Arnvik"}]), "only the slots in `forward_slots`");
        assert_eq!(part(1, "/parts/0/text"), "We are 3", "a known task gets only the new message");
        assert_eq!((part(1, "/taskId"), part(1, "/contextId")), (part(0, "/taskId"), part(0, "/contextId")));
        fixture.finish().await;
    }
}

#[tokio::test]
async fn next_task_has_the_same_context_and_no_completed_task() {
    for variant in RPC_AGENTS.iter().copied() {
        let fixture = Fixture::new(variant, "", &[], &["start flow ask_prices", "start flow ask_prices"]);
        let first = fixture.say("echo this").await;
        assert!(first.failures.is_empty(), "{:?}", first.failures);
        fixture.say("echo that").await;
        let received = fixture.received();
        assert_eq!(received.len(), 2);
        assert_eq!(received[0]["contextId"], received[1]["contextId"], "{variant:?}");
        assert_ne!(received[0]["taskId"], received[1]["taskId"], "each call is a task of its own");
        fixture.finish().await;
    }
}

#[tokio::test]
async fn failed_and_rejected_tasks_give_one_error_response_and_auth_required_asks_the_user() {
    for variant in RPC_AGENTS.iter().copied() {
        for word in ["fail", "refuse"] {
            let fixture = Fixture::new(variant, "", &[], &["start flow ask_prices"]);
            let report = fixture.say(word).await;
            assert_eq!(report.failures.first().map(|failure| &*failure.code), Some("A0513"), "{variant:?} {word}");
            assert_eq!(fixture.received().len(), 1, "{variant:?} {word}");
            assert_eq!(report.replies.len(), 1, "one error response");
            fixture.finish().await;
        }
        let fixture = Fixture::new(variant, "", &[], &["start flow ask_prices"]);
        let texts = fixture.texts("login").await;
        assert_eq!(texts, [reply(BotKind::InputRequired, "Please log in at https://example.org")], "{variant:?}");
        fixture.finish().await;
    }
}

#[tokio::test]
async fn retryable_failure_is_retried_as_a_new_message() {
    for variant in RPC_AGENTS.iter().copied() {
        let fixture = Fixture::new(variant, "", &[], &["start flow ask_prices"]);
        let texts = fixture.texts("flaky").await;
        assert_eq!(texts.first(), Some(&reply(BotKind::FinalResponse, "At last.")), "{variant:?}: {texts:?}");
        let received = fixture.received();
        assert_eq!(received.len(), 2, "{variant:?}");
        assert_ne!(received[0]["messageId"], received[1]["messageId"]);
        assert_ne!(received[0]["taskId"], received[1]["taskId"]);
        fixture.finish().await;
    }
}

#[tokio::test]
async fn answer_without_a_task_asks_the_user_or_completes_as_configured() {
    for variant in RPC_AGENTS.iter().copied() {
        let fixture = Fixture::new(variant, "", &[], &["start flow ask_prices"]);
        let texts = fixture.texts("hello").await;
        assert_eq!(texts, [reply(BotKind::InputRequired, "Hi, what do you need?")], "{variant:?}");
        fixture.finish().await;
        let more = "  message_means: completed\n";
        let fixture = Fixture::new(variant, more, &[], &["start flow ask_prices"]);
        let texts = fixture.texts("hello").await;
        assert_eq!(texts.first(), Some(&reply(BotKind::FinalResponse, "Hi, what do you need?")), "{variant:?}");
        fixture.finish().await;
    }
}

#[tokio::test]
async fn task_is_cancelled_at_the_polling_timeout() {
    for variant in ALL_AGENTS.iter().copied().filter(|variant| variant.flags.contains(&"blocking")) {
        let fixture = Fixture::new(variant, "  max_polling_time: 0.5\n", &[], &["start flow ask_prices"]);
        let report = fixture.say("forever").await;
        assert_eq!(report.failures.first().map(|failure| &*failure.code), Some("A0514"), "{variant:?}");
        let received = fixture.received();
        assert!(received.iter().any(|line| line.get("cancelled").is_some()), "{variant:?}: {received:?}");
        fixture.finish().await;
    }
}

#[tokio::test]
async fn artifact_chunks_are_concatenated() {
    for variant in RPC_AGENTS.iter().copied() {
        let fixture = Fixture::new(variant, "", &[], &["start flow ask_prices"]);
        let texts = fixture.texts("pieces").await;
        assert_eq!(texts.first(), Some(&reply(BotKind::FinalResponse, "one two three")), "{variant:?}: {texts:?}");
        fixture.finish().await;
    }
}

#[tokio::test]
async fn api_key_is_sent_and_a_wrong_key_is_rejected() {
    for variant in RPC_AGENTS.iter().copied() {
        let folder = tempfile::tempdir().unwrap();
        let (agent, address) = start_agent(variant, &folder.path().join("log"), &[("A2A_KEY", "s3cret")]);
        for (key, is_accepted) in [("s3cret", true), ("other", false)] {
            let auth = json!({"api_key": key, "header_name": "X-Key", "header_format": "{key}"});
            let assistant = with_auth(&address, &auth, &["start flow ask_prices"]);
            let incoming = IncomingMessage::new("ada", "echo").input_channel("test");
            let report = assistant.receive(incoming, Box::new(DiscardReplies)).await.unwrap();
            let codes: Vec<_> = report.failures.iter().map(|failure| &*failure.code).collect();
            assert_eq!(codes.is_empty(), is_accepted, "{variant:?}: {:?}", report.failures);
        }
        drop(agent);
    }
}

#[tokio::test]
async fn crash_of_an_agent_during_a_task_gives_one_error_response() {
    for variant in RPC_AGENTS.iter().copied() {
        let mut fixture = Fixture::new(variant, "  max_polling_time: 5\n", &[], &["start flow ask_prices"]);
        let (agent, log) = (fixture.agent.take(), fixture.log());
        // Kill the agent as soon as it has received the message.
        let turn_ended = Arc::new(AtomicBool::new(false));
        let killer = tokio::task::spawn_blocking({
            let turn_ended = turn_ended.clone();
            move || {
                while received(&log).is_empty() && !turn_ended.load(Ordering::SeqCst) {
                    std::thread::yield_now();
                }
                drop(agent);
            }
        });
        let report = fixture.say("forever").await;
        turn_ended.store(true, Ordering::SeqCst);
        killer.await.unwrap();
        assert_eq!(report.failures.len(), 1, "{variant:?}: {:?}", report.failures);
        let replies = report.replies.iter().filter(|reply| reply.kind != BotKind::Intermediate).count();
        assert_eq!(replies, 1, "{variant:?}: {:?}", report.replies);
        fixture.finish().await;
    }
}

#[tokio::test]
async fn digression_returns_to_the_question_of_the_same_task() {
    let lines = [
        "start flow ask_prices",
        "start flow other",
        "set slot continue_interrupted_flow_confirmation true",
        "continue agent",
    ];
    let fixture = Fixture::new(AgentVariant { is_v1: true, flags: &[] }, "", &[], &lines);
    fixture.texts("price").await;
    let digression = fixture.texts("something else").await;
    let resumed = fixture.texts("yes").await;
    let question = reply(BotKind::InputRequired, "For how many people?");
    assert!(digression.contains(&question) || resumed.contains(&question), "{digression:?} {resumed:?}");
    let done = fixture.texts("2").await;
    assert!(done.iter().any(|(_, text)| text.starts_with("Done.")), "{done:?}");
    assert_eq!(fixture.received().len(), 2, "the digression did not reach the agent");
    fixture.finish().await;
}

#[tokio::test]
async fn unreachable_agent_gives_one_error_response() {
    let config = configuration(&format!("http://127.0.0.1:{}", processes::free_port()), "  max_retries: 1\n");
    let config = config.replace("max_retries", "max_polling_time: 1\n  max_retries");
    let assistant = build(&config, &["start flow ask_prices"]).build().unwrap();
    let report = assistant
        .receive(IncomingMessage::new("ada", "price").input_channel("test"), Box::new(DiscardReplies))
        .await
        .unwrap();
    assert_eq!(report.failures.first().map(|failure| &*failure.code), Some("A0511"), "{:?}", report.failures);
    assert_eq!(report.replies.len(), 1);
}

/// Sends a message to a server over REST. Returns the texts of the replies; `None` if the server does not answer.
async fn post(server: &Server, id: &str, text: &str) -> Option<Vec<String>> {
    segue::http::install_tls();
    let body = json!({"sender": "anna", "message": text, "message_id": id});
    let clients = segue::http::HttpClients::new();
    let request = clients.client().unwrap().post(format!("{}/webhooks/rest/webhook", server.url()));
    let replies: Json = request.json(&body).send().await.ok()?.json().await.ok()?;
    Some(replies.as_array()?.iter().filter_map(|reply| reply["text"].as_str().map(str::to_owned)).collect())
}

#[tokio::test]
async fn answer_after_a_crash_of_the_server_reaches_the_same_task() {
    for variant in RPC_AGENTS.iter().copied() {
        let fixture = program::ProjectCopy::new("caller");
        let log = fixture.path("log");
        let (_agent, address) = start_agent(variant, &log, &[]);
        let environment = [("SEGUE_TEST_AGENT", address.as_str())];
        {
            let first = fixture.server(&environment).unwrap();
            let texts = post(&first, "m1", "what is the price").await.unwrap();
            assert_eq!(texts.last().map(String::as_str), Some("For how many people?"), "{variant:?}");
            // Dropping the server kills it while the remote task waits for input.
        }
        let second = fixture.server(&environment).unwrap();
        let texts = post(&second, "m2", "we are 4").await.unwrap();
        assert!(texts.iter().any(|text| text.starts_with("Done.")), "{variant:?}: {texts:?}");
        assert!(texts.iter().any(|text| text == "That is 120.0 for you."), "{variant:?}: {texts:?}");
        let received = received(&log);
        assert_eq!(received.len(), 2, "{variant:?}");
        assert_eq!(received[0]["taskId"], received[1]["taskId"], "{variant:?}: the answer reached another task");
    }
}

#[tokio::test]
async fn message_in_flight_at_a_crash_is_never_sent_twice() {
    // Failpoints: C11 before the message is sent, C17 after the agent received it, C14 before its outcome is recorded, C15 after that.
    for variant in RPC_AGENTS.iter().copied() {
        for (point, first_of_task) in [
            ("C11", true),
            ("C17", true),
            ("C14", true),
            ("C15", true),
            ("C11", false),
            ("C17", false),
            ("C14", false),
            ("C15", false),
        ] {
            // Over gRPC only C17 differs from HTTP.
            if variant.flags.contains(&"grpc") && point != "C17" {
                continue;
            }
            let fixture = program::ProjectCopy::new("caller");
            let log = fixture.path("log");
            let (_agent, address) = start_agent(variant, &log, &[]);
            let normal = [("SEGUE_TEST_AGENT", address.as_str())];
            let crashing = [("SEGUE_TEST_AGENT", address.as_str()), ("SEGUE_FAILPOINT", point)];
            if !first_of_task {
                let server = fixture.server(&normal).unwrap();
                post(&server, "m1", "what is the price").await.unwrap();
            }
            let (id, text) = if first_of_task { ("m1", "what is the price") } else { ("m2", "we are 4") };
            {
                let server = fixture.server(&crashing).unwrap();
                assert!(post(&server, id, text).await.is_none(), "{variant:?} {point}: it did not crash");
            }
            assert_eq!(fs::read_to_string(fixture.path("proof")).unwrap(), point);
            let server = fixture.server(&normal).unwrap();
            let texts = post(&server, id, text).await.unwrap();
            let sent = received(&log).len();
            let before = usize::from(!first_of_task);
            let done = if first_of_task { "For how many people?" } else { "That is 120.0 for you." };
            let is_done = texts.iter().any(|text| text == done);
            // After a restart Segue asks the agent for the state of a task whose id is stored. Without an id the outcome is unknown, and
            // the user gets one message about it.
            let is_known = !first_of_task || point == "C15";
            assert_eq!(is_done, is_known, "{variant:?} {point} {first_of_task}: {texts:?}");
            let expected = if point == "C11" && first_of_task { 0 } else { 1 + before };
            assert_eq!(sent, expected, "{variant:?} {point} {first_of_task}");
        }
    }
}

#[tokio::test]
async fn push_notification_completes_a_task_that_outlasts_the_turn() {
    for is_v1 in [true, false] {
        let fixture = program::ProjectCopy::new("caller");
        let log = fixture.path("log");
        let variant = AgentVariant { is_v1, flags: &["blocking"] };
        let (_agent, address) = start_agent(variant, &log, &[("A2A_LONG", "3")]);
        // The configuration contains the server's own address, so the port is chosen before the server starts.
        let port = processes::free_port();
        let config = fixture.path("sub_agents/prices/config.yml");
        let more = format!("  max_polling_time: 0.3\n  push_notification_url: http://127.0.0.1:{port}\n");
        fs::write(&config, fs::read_to_string(&config).unwrap() + &more).unwrap();
        let server = fixture.server_on(port, &[("SEGUE_TEST_AGENT", address.as_str())]).unwrap();
        let texts = post(&server, "m1", "a long one").await.unwrap();
        assert!(!texts.iter().any(|text| text == "It is done."), "{is_v1}: {texts:?}");
        let environment = [("SEGUE_TEST_AGENT", address.as_str())];
        let trace = || fixture.segue(&["trace", "anna", "--format", "json"], &environment);
        let is_done = (0..500).any(|_| trace().contains("It is done."));
        assert!(is_done, "{is_v1}: the push notification has no effect\n{}", trace());
        assert_eq!(received(&log).len(), 1, "{is_v1}: the agent receives no second message");
    }
}
