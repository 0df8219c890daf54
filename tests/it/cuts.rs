//! Turns that the caller stops in the middle, seen from outside: a tool that reads is called off, one that
//! writes finishes and is recorded, the agent waits, what counted stays, the next message goes on from there, and a replay
//! and another process see the same.

mod custom;
mod hooks;

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use segue::{
    Assistant, BoxFuture, CallContext, DeliveryError, EffectClass, IncomingMessage, Llm, LlmError, ModelProfile,
    Receipt, ReplyEvent, ReplySink, Store, Tool, ToolCallContext, ToolInfo, ToolOutcome, ToolOutput, Toolbox,
    TurnReport,
    llm::{ChatRequest, ChatResponse, ChatStream, FinishReason, LlmErrorKind, ToolArguments, ToolCall, Usage},
    store::SqliteStore,
    testing::{ScriptedLlm, StrictLlm},
};
use serde_json::{Value as Json, json};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

const FILES: [(&str, &str); 4] = [
    (
        "config.yml",
        "recipe: default.v1\npipeline: [{name: CompactLLMCommandGenerator}]\npolicies: [{name: FlowPolicy}]\n",
    ),
    ("endpoints.yml", "mcp_servers: [{name: boats, type: http, url: \"http://127.0.0.1:9/mcp\"}]\n"),
    ("data/flows.yml", "flows: {book: {description: book a boat, steps: [{call: booker}]}}\n"),
    (
        "sub_agents/booker/config.yml",
        "agent: {name: booker, description: books}\nconnections: {mcp_servers: [{name: boats}]}\n",
    ),
];

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

/// What became of the tools: each says when it runs, and goes on when it is let.
#[derive(Clone, Default)]
struct Boats {
    runs: Arc<Notify>,
    goes_on: Arc<Notify>,
    begun: Arc<AtomicUsize>,
    ended: Arc<AtomicUsize>,
    dropped: Arc<AtomicUsize>,
}

/// Counts a call that was given up.
struct Guard(Arc<AtomicUsize>, bool);

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.1 {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl Boats {
    fn source(&self) -> Arc<Toolbox> {
        let tool = |name: &'static str, effect| {
            let boats = self.clone();
            let spec = ToolInfo::new(name, "does something")
                .parameters(json!({"type": "object"}))
                .effect(effect)
                .source("boats");
            let run = move |_: Json, _: ToolCallContext| {
                let boats = boats.clone();
                async move {
                    let mut guard = Guard(boats.dropped.clone(), false);
                    boats.begun.fetch_add(1, Ordering::SeqCst);
                    boats.runs.notify_one();
                    boats.goes_on.notified().await;
                    boats.ended.fetch_add(1, Ordering::SeqCst);
                    guard.1 = true;
                    ToolOutcome::Done(ToolOutput::structured(json!({"reference": "NW-1"})))
                }
            };
            Tool::from_fn(spec, run)
        };
        Arc::new(Toolbox::new("boats", [tool("look", EffectClass::Read), tool("book", EffectClass::Write)]))
    }
    fn counts(&self) -> (usize, usize, usize) {
        let count = |count: &AtomicUsize| count.load(Ordering::SeqCst);
        (count(&self.begun), count(&self.ended), count(&self.dropped))
    }
}

fn counted(answer: ChatResponse) -> ChatResponse {
    ChatResponse { usage: Usage { input: 100, output: 10, ..Usage::default() }, ..answer }
}

fn call(name: &str) -> ChatResponse {
    let call = ToolCall { id: "c0".into(), name: name.into(), arguments: ToolArguments::json(json!({})) };
    counted(ChatResponse { finish: FinishReason::ToolCalls, ..ChatResponse::calls(vec![call]) })
}

fn says(text: &str) -> ChatResponse {
    counted(ChatResponse::text(text))
}

struct Talk {
    assistant: Assistant,
    model: Arc<StrictLlm>,
    folder: tempfile::TempDir,
    boats: Boats,
}

impl Talk {
    fn new(answers: impl IntoIterator<Item = ChatResponse>) -> Self {
        let (folder, boats) = (tempfile::tempdir().unwrap(), Boats::default());
        let model = Arc::new(ScriptedLlm::strict(answers));
        let assistant = assistant(&folder, model.clone(), &boats);
        Self { assistant, model, folder, boats }
    }
    /// The same talk in another process.
    fn elsewhere(&self, answers: impl IntoIterator<Item = ChatResponse>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // The database, and what stands beside it while it is open.
        for entry in std::fs::read_dir(self.folder.path()).unwrap() {
            let path = entry.unwrap().path();
            std::fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
        }
        let model = Arc::new(ScriptedLlm::strict(answers));
        Self { assistant: assistant(&folder, model.clone(), &self.boats), model, folder, boats: self.boats.clone() }
    }
    async fn say(&self, text: &str) -> Vec<String> {
        texts(&self.stoppable(text, &CancellationToken::new()).await)
    }
    async fn stoppable(&self, text: &str, stop: &CancellationToken) -> TurnReport {
        let sink = Box::new(Stoppable(stop.clone()));
        let report = self.assistant.receive(IncomingMessage::text("u", text, "test"), sink).await.unwrap();
        assert!(report.failures.is_empty(), "what was stopped did not fail: {:?}", report.failures);
        report
    }
    /// Says something and stops the turn while the tool runs; a call that is not given up goes on afterwards.
    async fn stopped_in_the_tool(&self, text: &str) -> TurnReport {
        let stop = CancellationToken::new();
        let stopping = async {
            self.boats.runs.notified().await;
            stop.cancel();
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
            self.boats.goes_on.notify_one();
        };
        tokio::join!(self.stoppable(text, &stop), stopping).0
    }
    async fn events(&self) -> Vec<Json> {
        let turns = self.assistant.store().turns(&"u".into()).await.unwrap();
        turns.iter().flat_map(|turn| &turn.events).map(|event| serde_json::to_value(event).unwrap()).collect()
    }
    async fn of(&self, name: &str) -> Vec<Json> {
        self.events().await.into_iter().filter(|event| event["event"] == name).collect()
    }
    async fn replays(&self) {
        let difference = self.assistant.replay(&"u".into()).await.unwrap();
        assert!(difference.is_none(), "a replay stops where the turn did: {difference:?}");
    }
    /// What the model was asked last.
    fn last_asked(&self) -> String {
        let requests = self.model.requests();
        let messages = &requests.last().unwrap().messages;
        messages.iter().map(|message| serde_json::to_string(&**message).unwrap()).collect::<Vec<_>>().join("\n")
    }
    async fn waits(&self) -> bool {
        let conversation = self.assistant.conversation(&"u".into()).await.unwrap();
        format!("{:?}", conversation.stack).contains("booker")
    }
}

fn assistant(folder: &tempfile::TempDir, model: Arc<StrictLlm>, boats: &Boats) -> Assistant {
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&folder.path().join("talk.db"), false).unwrap());
    let builder = Assistant::builder_from_texts(FILES).unwrap().store(store).source(boats.source());
    builder.model(model).seeds(|| 7).build().unwrap()
}

fn texts(report: &TurnReport) -> Vec<String> {
    report.replies.iter().filter_map(|reply| reply.reply.text.as_deref().map(str::to_owned)).collect()
}

#[tokio::test]
async fn a_read_is_called_off_and_the_agent_waits_with_what_counted() {
    let talk = Talk::new([says("start flow book"), call("look"), says("continue agent"), says("Where were we?")]);
    let report = talk.stopped_in_the_tool("book a boat").await;
    assert!(texts(&report).is_empty(), "{:?}", texts(&report));
    assert_eq!(talk.boats.counts(), (1, 0, 1), "the call was given up");
    assert!(talk.waits().await, "the agent waits for the user");
    let executed = talk.of("tool_executed").await;
    assert_eq!((executed.len(), &executed[0]["status"]), (1, &json!("failed")), "{executed:?}");
    let used = talk.of("models_used").await;
    assert_eq!((used[0]["answers"].as_u64(), used[0]["input"].as_u64()), (Some(2), Some(200)), "{used:?}");
    talk.replays().await;

    let other = talk.elsewhere([says("continue agent"), says("Where were we?")]);
    for talk in [&talk, &other] {
        assert_eq!(talk.say("go on").await, ["Where were we?"]);
        assert!(talk.last_asked().contains("cancelled"), "the model knows of the call: {}", talk.last_asked());
        assert_eq!(talk.of("models_used").await.len(), 2);
        talk.replays().await;
    }
}

#[tokio::test]
async fn a_write_is_never_cut_it_finishes_and_the_agent_knows() {
    let talk = Talk::new([says("start flow book"), call("book")]);
    let report = talk.stopped_in_the_tool("book a boat").await;
    assert!(texts(&report).is_empty(), "{:?}", texts(&report));
    assert_eq!(talk.boats.counts(), (1, 1, 0), "it finished");
    assert!(talk.waits().await);
    let executed = talk.of("tool_executed").await;
    assert_eq!((executed.len(), &executed[0]["status"]), (1, &json!("done")), "{executed:?}");
    talk.replays().await;

    let other = talk.elsewhere([says("continue agent"), says("It is booked: NW-1.")]);
    assert_eq!(other.say("well?").await, ["It is booked: NW-1."]);
    assert!(other.last_asked().contains("NW-1"), "its result is not lost: {}", other.last_asked());
    assert_eq!(other.boats.counts().0, 1, "and it is not done again");
    other.replays().await;
}

#[tokio::test]
async fn a_message_that_comes_meanwhile_waits_for_the_end_of_the_turn() {
    let answers =
        [says("start flow book"), call("look"), says("There is NW-1."), says("continue agent"), says("It is blue.")];
    let talk = Talk::new(answers);
    let second = async {
        talk.boats.runs.notified().await;
        let second = talk.say("which colour?");
        let release = async {
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
            talk.boats.goes_on.notify_one();
        };
        tokio::join!(second, release).0
    };
    let (first, second) = tokio::join!(talk.say("book a boat"), second);
    assert_eq!((first, second), (vec!["There is NW-1.".to_owned()], vec!["It is blue.".to_owned()]));
    assert_eq!(talk.boats.counts(), (1, 1, 0), "nothing was called off");
    talk.replays().await;
}

#[tokio::test]
async fn a_message_after_a_stop_is_answered_when_the_write_has_ended() {
    let answers = [says("start flow book"), call("book"), says("continue agent"), says("Booked, as you see.")];
    let talk = Talk::new(answers);
    let stop = CancellationToken::new();
    let second = async {
        talk.boats.runs.notified().await;
        stop.cancel();
        let second = talk.say("wait, what did you do?");
        let release = async {
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
            assert_eq!(talk.boats.counts(), (1, 0, 0), "the write still runs, and nobody starts a turn beside it");
            talk.boats.goes_on.notify_one();
        };
        tokio::join!(second, release).0
    };
    let (first, second) = tokio::join!(talk.stoppable("book a boat", &stop), second);
    assert!(texts(&first).is_empty());
    assert_eq!(second, ["Booked, as you see."]);
    assert_eq!(talk.boats.counts(), (1, 1, 0));
    talk.replays().await;
}

/// Answers by its script, but hangs at one request until it is stopped.
struct Hangs {
    at: usize,
    asked: AtomicUsize,
    hangs: Arc<Notify>,
    rest: Arc<dyn Llm>,
}

impl Llm for Hangs {
    fn profile(&self) -> &ModelProfile {
        self.rest.profile()
    }
    fn chat<'a>(&'a self, request: ChatRequest, cx: &'a CallContext) -> BoxFuture<'a, Result<ChatStream, LlmError>> {
        if self.asked.fetch_add(1, Ordering::SeqCst) != self.at {
            return self.rest.chat(request, cx);
        }
        self.hangs.notify_one();
        Box::pin(async move {
            let stopped = cx.wait(std::future::pending::<()>()).await.unwrap_err();
            Err(LlmError::new(LlmErrorKind::Cancelled).with_detail(stopped))
        })
    }
}

#[tokio::test]
async fn a_stop_while_a_model_thinks_keeps_every_answer_before_and_counts_no_other() {
    let usual = || [says("start flow book"), call("look"), says("There is NW-1."), says("never reached")];
    // Stopped in the understanding, in the agent's first answer, and in the one after its tool.
    for (at, answers, tools, waits) in [(0, 0, 0, false), (1, 1, 0, true), (2, 2, 1, true)] {
        let (folder, boats, hangs) = (tempfile::tempdir().unwrap(), Boats::default(), Arc::new(Notify::new()));
        boats.goes_on.notify_one();
        let rest = Arc::new(ScriptedLlm::strict(usual()));
        let model = Hangs { at, asked: AtomicUsize::new(0), hangs: hangs.clone(), rest };
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&folder.path().join("talk.db"), false).unwrap());
        let builder = Assistant::builder_from_texts(FILES).unwrap().store(store).source(boats.source());
        let assistant = builder.model(Arc::new(model)).seeds(|| 7).build().unwrap();
        let talk = Talk { assistant, model: Arc::new(ScriptedLlm::strict(usual())), folder, boats };
        let stop = CancellationToken::new();
        let stopping = async {
            hangs.notified().await;
            stop.cancel();
        };
        let (report, ()) = tokio::join!(talk.stoppable("book a boat", &stop), stopping);
        assert!(texts(&report).is_empty(), "{at}: {:?}", texts(&report));
        assert_eq!(talk.waits().await, waits, "{at}");
        assert_eq!(talk.of("tool_executed").await.len(), tools, "{at}");
        let used = talk.of("models_used").await;
        let counted: u64 = used.iter().filter_map(|event| event["answers"].as_u64()).sum();
        assert_eq!(counted, answers, "{at}: {used:?}");
        talk.replays().await;
    }
}
