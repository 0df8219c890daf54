//! Agents on the genuine library, of both generations and over both bindings, called by a step of a flow.

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
    Assistant, AssistantBuilder, DiscardReplies, IncomingMessage, TurnReport, conversation::BotKind, store,
    testing::ScriptedLlm,
};
use serde_json::{Value as Json, json};
use tempfile::TempDir;

use crate::{
    parts::{self, Part},
    program::{self, Server},
};

/// Which agent: the newer generation or 0.3, and its flags.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    pub(crate) new: bool,
    pub(crate) flags: &'static [&'static str],
}

const EVERY: &[Kind] = &[
    Kind { new: true, flags: &[] },
    Kind { new: false, flags: &[] },
    Kind { new: true, flags: &["rest"] },
    Kind { new: false, flags: &["rest"] },
    Kind { new: true, flags: &["blocking"] },
    Kind { new: false, flags: &["blocking"] },
    #[cfg(feature = "grpc")]
    Kind { new: true, flags: &["grpc"] },
    #[cfg(feature = "grpc")]
    Kind { new: false, flags: &["grpc"] },
    #[cfg(feature = "grpc")]
    Kind { new: true, flags: &["grpc", "blocking"] },
    #[cfg(feature = "grpc")]
    Kind { new: false, flags: &["grpc", "blocking"] },
];

/// The bindings over which what goes wrong is told differently.
pub(crate) const BINDINGS: &[Kind] = &[
    Kind { new: true, flags: &[] },
    Kind { new: false, flags: &[] },
    #[cfg(feature = "grpc")]
    Kind { new: true, flags: &["grpc"] },
    #[cfg(feature = "grpc")]
    Kind { new: false, flags: &["grpc"] },
];

/// An agent, and an assistant whose flow calls it.
struct Ground {
    folder: TempDir,
    assistant: Assistant,
    agent: Option<Part>,
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

/// A model that knows what the tests say.
fn model(lines: &[&'static str]) -> Arc<dyn segue::Llm> {
    Arc::new(ScriptedLlm::strict(lines.iter().copied()))
}

impl Ground {
    fn new(kind: Kind, more: &str, environment: &[(&str, &str)], lines: &[&'static str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (agent, address) = serve(kind, &folder.path().join("log"), environment);
        let config = configuration(&address, more);
        let assistant = build(&config, lines).store(Arc::new(segue::MemoryStore::default())).build().unwrap();
        Self { folder, assistant, agent: Some(agent) }
    }

    async fn say(&self, text: &str) -> TurnReport {
        self.assistant.receive(IncomingMessage::text("ada", text, "test"), Box::new(DiscardReplies)).await.unwrap()
    }

    /// The texts of the answer, with what each was for.
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

    /// What reached the agent.
    fn heard(&self) -> Vec<Json> {
        heard(&self.log())
    }

    async fn end(mut self) {
        let different = self.assistant.replay(&"ada".into()).await.unwrap();
        assert!(different.is_none(), "{different:#?}");
        self.assistant.close(Duration::from_secs(5)).await;
        drop(self.agent.take());
    }
}

fn heard(log: &std::path::Path) -> Vec<Json> {
    let text = fs::read_to_string(log).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

pub(crate) fn serve(kind: Kind, log: &std::path::Path, environment: &[(&str, &str)]) -> (Part, String) {
    let port = parts::free_port();
    let mut command = parts::a2a_agent(kind.new, port, kind.flags, log);
    command.envs(environment.iter().copied());
    let mut agent = Part::start(&mut command);
    agent.line_with("Uvicorn running");
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

/// An assistant whose agent is asked with an `auth`. A project names its secrets as references; here are the values that would
/// stand in their place.
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

fn said(kind: BotKind, text: &str) -> (BotKind, String) {
    (kind, text.to_owned())
}

#[tokio::test]
async fn a_task_is_asked_answered_and_done_by_every_kind_of_agent() {
    for kind in EVERY.iter().copied() {
        let ground = Ground::new(kind, "", &[], &["start flow ask_prices", "continue agent"]);
        let question = said(BotKind::InputRequired, "For how many people?");
        let first = ground.texts("What is the price?").await;
        assert_eq!(first.last(), Some(&question), "{kind:?}: {first:?}");
        let meanwhile = said(BotKind::Intermediate, "Looking it up");
        let times = first.iter().filter(|text| **text == meanwhile).count();
        // One that is asked from time to time may be past it.
        assert!(times == 1 || (times == 0 && kind.flags.contains(&"blocking")), "{kind:?}: {first:?}");
        let second = ground.texts("We are 3").await;
        let last = said(BotKind::FinalResponse, "Done.\n3 people: 90 euros\nFile: https://example.org/quote.pdf");
        let at = second.iter().position(|text| *text == last).unwrap_or_else(|| panic!("{kind:?}: {second:?}"));
        assert_eq!(second.get(at + 1), Some(&said(BotKind::Response, "That is 90.0 for you.")), "{kind:?}");
        assert_eq!(ground.slot("price").await, json!(90.0));
        assert_eq!(ground.slot("document").await, "https://example.org/quote.pdf");
        let heard = ground.heard();
        let part = |at: usize, path: &str| heard[at].pointer(path).cloned().unwrap_or_default();
        assert_eq!(heard.len(), 2, "{kind:?}: {heard:?}");
        assert_eq!(part(0, "/parts/0/text"), "USER: What is the price?");
        let slots = heard[0].pointer("/parts/1/data/slots").unwrap();
        assert_eq!(slots, &json!([{"name": "city", "value": "Arnvik"}]), "only what the author lets out");
        assert_eq!(part(1, "/parts/0/text"), "We are 3", "an agent that knows the conversation hears what is new");
        assert_eq!((part(1, "/taskId"), part(1, "/contextId")), (part(0, "/taskId"), part(0, "/contextId")));
        ground.end().await;
    }
}

#[tokio::test]
async fn the_next_task_continues_the_context_and_names_no_task_that_is_over() {
    for kind in BINDINGS.iter().copied() {
        let ground = Ground::new(kind, "", &[], &["start flow ask_prices", "start flow ask_prices"]);
        let first = ground.say("echo this").await;
        assert!(first.failures.is_empty(), "{:?}", first.failures);
        ground.say("echo that").await;
        let heard = ground.heard();
        assert_eq!(heard.len(), 2);
        assert_eq!(heard[0]["contextId"], heard[1]["contextId"], "{kind:?}");
        assert_ne!(heard[0]["taskId"], heard[1]["taskId"], "each task is the other side's own");
        ground.end().await;
    }
}

#[tokio::test]
async fn states_that_are_no_success_end_the_flow_or_ask_the_user() {
    for kind in BINDINGS.iter().copied() {
        for (word, messages, code) in [("fail", 1, "A0513"), ("refuse", 1, "A0513")] {
            let ground = Ground::new(kind, "", &[], &["start flow ask_prices"]);
            let report = ground.say(word).await;
            assert_eq!(report.failures.first().map(|failure| &*failure.code), Some(code), "{kind:?} {word}");
            assert_eq!(ground.heard().len(), messages, "{kind:?} {word}");
            assert_eq!(report.replies.len(), 1, "one honest message");
            ground.end().await;
        }
        let ground = Ground::new(kind, "", &[], &["start flow ask_prices"]);
        let texts = ground.texts("login").await;
        assert_eq!(texts, [said(BotKind::InputRequired, "Please log in at https://example.org")], "{kind:?}");
        ground.end().await;
    }
}

#[tokio::test]
async fn only_a_failure_that_says_so_is_tried_again_as_a_new_message() {
    for kind in BINDINGS.iter().copied() {
        let ground = Ground::new(kind, "", &[], &["start flow ask_prices"]);
        let texts = ground.texts("flaky").await;
        assert_eq!(texts.first(), Some(&said(BotKind::FinalResponse, "At last.")), "{kind:?}: {texts:?}");
        let heard = ground.heard();
        assert_eq!(heard.len(), 2, "{kind:?}");
        assert_ne!(heard[0]["messageId"], heard[1]["messageId"]);
        assert_ne!(heard[0]["taskId"], heard[1]["taskId"]);
        ground.end().await;
    }
}

#[tokio::test]
async fn an_answer_without_a_task_asks_or_ends_as_the_author_says() {
    for kind in BINDINGS.iter().copied() {
        let ground = Ground::new(kind, "", &[], &["start flow ask_prices"]);
        let texts = ground.texts("hello").await;
        assert_eq!(texts, [said(BotKind::InputRequired, "Hi, what do you need?")], "{kind:?}");
        ground.end().await;
        let more = "  message_means: completed\n";
        let ground = Ground::new(kind, more, &[], &["start flow ask_prices"]);
        let texts = ground.texts("hello").await;
        assert_eq!(texts.first(), Some(&said(BotKind::FinalResponse, "Hi, what do you need?")), "{kind:?}");
        ground.end().await;
    }
}

#[tokio::test]
async fn a_task_that_takes_too_long_is_stopped() {
    for kind in EVERY.iter().copied().filter(|kind| kind.flags.contains(&"blocking")) {
        let ground = Ground::new(kind, "  max_polling_time: 0.5\n", &[], &["start flow ask_prices"]);
        let report = ground.say("forever").await;
        assert_eq!(report.failures.first().map(|failure| &*failure.code), Some("A0514"), "{kind:?}");
        let heard = ground.heard();
        assert!(heard.iter().any(|line| line.get("cancelled").is_some()), "{kind:?}: {heard:?}");
        ground.end().await;
    }
}

#[tokio::test]
async fn pieces_of_an_artifact_are_put_together() {
    for kind in BINDINGS.iter().copied() {
        let ground = Ground::new(kind, "", &[], &["start flow ask_prices"]);
        let texts = ground.texts("pieces").await;
        assert_eq!(texts.first(), Some(&said(BotKind::FinalResponse, "one two three")), "{kind:?}: {texts:?}");
        ground.end().await;
    }
}

#[tokio::test]
async fn an_agent_that_wants_a_key_gets_it_and_nobody_else_does() {
    for kind in BINDINGS.iter().copied() {
        let folder = tempfile::tempdir().unwrap();
        let (agent, address) = serve(kind, &folder.path().join("log"), &[("A2A_KEY", "s3cret")]);
        for (key, works) in [("s3cret", true), ("other", false)] {
            let auth = json!({"api_key": key, "header_name": "X-Key", "header_format": "{key}"});
            let assistant = with_auth(&address, &auth, &["start flow ask_prices"]);
            let incoming = IncomingMessage::text("ada", "echo", "test");
            let report = assistant.receive(incoming, Box::new(DiscardReplies)).await.unwrap();
            let codes: Vec<_> = report.failures.iter().map(|failure| &*failure.code).collect();
            assert_eq!(codes.is_empty(), works, "{kind:?}: {:?}", report.failures);
        }
        drop(agent);
    }
}

#[tokio::test]
async fn an_agent_that_dies_in_the_middle_is_one_honest_message() {
    for kind in BINDINGS.iter().copied() {
        let mut ground = Ground::new(kind, "  max_polling_time: 5\n", &[], &["start flow ask_prices"]);
        let (agent, log) = (ground.agent.take(), ground.log());
        // It dies as soon as it has heard: kill -9 while it works.
        let over = Arc::new(AtomicBool::new(false));
        let ended = over.clone();
        let killed = tokio::task::spawn_blocking(move || {
            while heard(&log).is_empty() && !ended.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            drop(agent);
        });
        let report = ground.say("forever").await;
        over.store(true, Ordering::SeqCst);
        killed.await.unwrap();
        assert_eq!(report.failures.len(), 1, "{kind:?}: {:?}", report.failures);
        let told = report.replies.iter().filter(|reply| reply.kind != BotKind::Intermediate).count();
        assert_eq!(told, 1, "{kind:?}: {:?}", report.replies);
        ground.end().await;
    }
}

#[tokio::test]
async fn a_digression_comes_back_to_the_question_of_the_same_task() {
    let lines = [
        "start flow ask_prices",
        "start flow other",
        "set slot continue_interrupted_flow_confirmation true",
        "continue agent",
    ];
    let ground = Ground::new(Kind { new: true, flags: &[] }, "", &[], &lines);
    ground.texts("price").await;
    let meanwhile = ground.texts("something else").await;
    let back = ground.texts("yes").await;
    let question = said(BotKind::InputRequired, "For how many people?");
    assert!(meanwhile.contains(&question) || back.contains(&question), "{meanwhile:?} {back:?}");
    let done = ground.texts("2").await;
    assert!(done.iter().any(|(_, text)| text.starts_with("Done.")), "{done:?}");
    assert_eq!(ground.heard().len(), 2, "the digression did not reach the agent");
    ground.end().await;
}

#[tokio::test]
async fn an_agent_that_is_down_is_one_honest_message() {
    let config = configuration(&format!("http://127.0.0.1:{}", parts::free_port()), "  max_retries: 1\n");
    let config = config.replace("max_retries", "max_polling_time: 1\n  max_retries");
    let assistant = build(&config, &["start flow ask_prices"]).build().unwrap();
    let report =
        assistant.receive(IncomingMessage::text("ada", "price", "test"), Box::new(DiscardReplies)).await.unwrap();
    assert_eq!(report.failures.first().map(|failure| &*failure.code), Some("A0511"), "{:?}", report.failures);
    assert_eq!(report.replies.len(), 1);
    let _ = store::MemoryStore::default();
}

/// A server of the program whose flow calls the agent, and the words of its user over REST.
async fn post(server: &Server, id: &str, text: &str) -> Option<Vec<String>> {
    segue::http::install_tls();
    let body = json!({"sender": "anna", "message": text, "message_id": id});
    let client = segue::http::HttpClients::new();
    let request = client.client().unwrap().post(format!("{}/webhooks/rest/webhook", server.url()));
    let answer: Json = request.json(&body).send().await.ok()?.json().await.ok()?;
    Some(answer.as_array()?.iter().filter_map(|reply| reply["text"].as_str().map(str::to_owned)).collect())
}

#[tokio::test]
async fn an_answer_after_a_crash_reaches_the_same_task() {
    for kind in BINDINGS.iter().copied() {
        let ground = program::Ground::of("caller");
        let log = ground.path("log");
        let (_agent, address) = serve(kind, &log, &[]);
        let environment = [("SEGUE_TEST_AGENT", address.as_str())];
        {
            let first = ground.server(&environment).unwrap();
            let texts = post(&first, "m1", "what is the price").await.unwrap();
            assert_eq!(texts.last().map(String::as_str), Some("For how many people?"), "{kind:?}");
            // Dropped without a word: kill -9 while the remote task waits.
        }
        let second = ground.server(&environment).unwrap();
        let texts = post(&second, "m2", "we are 4").await.unwrap();
        assert!(texts.iter().any(|text| text.starts_with("Done.")), "{kind:?}: {texts:?}");
        assert!(texts.iter().any(|text| text == "That is 120.0 for you."), "{kind:?}: {texts:?}");
        let heard = heard(&log);
        assert_eq!(heard.len(), 2, "{kind:?}");
        assert_eq!(heard[0]["taskId"], heard[1]["taskId"], "{kind:?}: the answer reached another task");
    }
}

#[tokio::test]
async fn a_message_that_was_under_way_in_a_crash_is_never_sent_twice() {
    // C11: decided, not sent. C17: taken by the other side, not recorded. C14: about to be recorded. C15: recorded.
    for kind in BINDINGS.iter().copied() {
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
            // By gRPC only what is between the two: the rest is the same as it is over HTTP.
            if kind.flags.contains(&"grpc") && point != "C17" {
                continue;
            }
            let ground = program::Ground::of("caller");
            let log = ground.path("log");
            let (_agent, address) = serve(kind, &log, &[]);
            let normal = [("SEGUE_TEST_AGENT", address.as_str())];
            let dying = [("SEGUE_TEST_AGENT", address.as_str()), ("SEGUE_FAILPOINT", point)];
            if !first_of_task {
                let server = ground.server(&normal).unwrap();
                post(&server, "m1", "what is the price").await.unwrap();
            }
            let (id, text) = if first_of_task { ("m1", "what is the price") } else { ("m2", "we are 4") };
            {
                let server = ground.server(&dying).unwrap();
                assert!(post(&server, id, text).await.is_none(), "{kind:?} {point}: it did not die");
            }
            assert_eq!(fs::read_to_string(ground.path("proof")).unwrap(), point);
            let server = ground.server(&normal).unwrap();
            let texts = post(&server, id, text).await.unwrap();
            let sent = heard(&log).len();
            let before = usize::from(!first_of_task);
            let done = if first_of_task { "For how many people?" } else { "That is 120.0 for you." };
            let is_done = texts.iter().any(|text| text == done);
            // The other side can be asked about a task that we know, and, in the newer generation only, of a context that we
            // know; else nobody knows, and the user hears that once.
            let knows = !first_of_task || point == "C15";
            assert_eq!(is_done, knows, "{kind:?} {point} {first_of_task}: {texts:?}");
            let reached = if point == "C11" && first_of_task { 0 } else { 1 + before };
            assert_eq!(sent, reached, "{kind:?} {point} {first_of_task}");
        }
    }
}

#[tokio::test]
async fn a_task_that_outlasts_the_turn_is_reported_and_the_flow_goes_on() {
    for new in [true, false] {
        let ground = program::Ground::of("caller");
        let log = ground.path("log");
        let kind = Kind { new, flags: &["blocking"] };
        let (_agent, address) = serve(kind, &log, &[("A2A_LONG", "3")]);
        // The server must know its own address before it has one: it takes a port that was free a moment ago.
        let port = parts::free_port();
        let config = ground.path("sub_agents/prices/config.yml");
        let more = format!("  max_polling_time: 0.3\n  push_notification_url: http://127.0.0.1:{port}\n");
        fs::write(&config, fs::read_to_string(&config).unwrap() + &more).unwrap();
        let server = ground.server_on(port, &[("SEGUE_TEST_AGENT", address.as_str())]).unwrap();
        let texts = post(&server, "m1", "a long one").await.unwrap();
        assert!(!texts.iter().any(|text| text == "It is done."), "{new}: {texts:?}");
        let environment = [("SEGUE_TEST_AGENT", address.as_str())];
        let trace = || ground.segue(&["trace", "anna", "--format", "json"], &environment);
        let came = (0..500).any(|_| trace().contains("It is done."));
        assert!(came, "{new}: nothing was reported\n{}", trace());
        assert_eq!(heard(&log).len(), 1, "{new}: the task was asked for, not begun anew");
    }
}
