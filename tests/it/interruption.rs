//! Turns that the caller interrupts. A running read is cancelled, a running write finishes and is recorded, and the agent waits for the
//! user. Usage and counters of the interrupted turn are kept. The next message continues from there, in this process and in another one,
//! and a replay gives the same events.

mod custom_agents;
mod hooks;

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use async_trait::async_trait;
use segue::{
    Assistant, CallContext, EffectClass, IncomingMessage, Llm, LlmError, ModelProfile, Store, Tool, ToolCallContext,
    ToolInfo, ToolOutcome, ToolOutput, Toolbox, TurnReport,
    llm::{ChatRequest, ChatResponse, ChatStream, FinishReason, LlmErrorKind, ToolArguments, ToolCall, Usage},
    store::SqliteStore,
    testing::{ScriptedLlm, StrictLlm},
};
use serde_json::{Value as Json, json};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::support::{
    interruptible_sink::InterruptibleSink,
    project_files::{BOATS_ENDPOINT, CONFIG},
};

const FILES: [(&str, &str); 4] = [
    CONFIG,
    BOATS_ENDPOINT,
    ("data/flows.yml", "flows: {book: {description: book a boat, steps: [{call: booker}]}}\n"),
    (
        "sub_agents/booker/config.yml",
        "agent: {name: booker, description: books}\nconnections: {mcp_servers: [{name: boats}]}\n",
    ),
];

/// The tools `look` (a read) and `book` (a write). Each call blocks until the test resumes it; calls are counted.
#[derive(Clone, Default)]
struct BlockingTools {
    /// Notified when a call starts.
    call_started: Arc<Notify>,
    /// A call waits for this.
    resume: Arc<Notify>,
    started: Arc<AtomicUsize>,
    completed: Arc<AtomicUsize>,
    dropped: Arc<AtomicUsize>,
}

/// Counts a call whose future was dropped before it completed.
struct DropCounter {
    dropped: Arc<AtomicUsize>,
    is_completed: bool,
}

impl Drop for DropCounter {
    fn drop(&mut self) {
        if !self.is_completed {
            self.dropped.fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl BlockingTools {
    fn source(&self) -> Arc<Toolbox> {
        let tool = |name: &'static str, effect| {
            let tools = self.clone();
            let spec = ToolInfo::new(name, "does something")
                .parameters(json!({"type": "object"}))
                .effect(effect)
                .source("boats");
            let run = move |_: Json, _: ToolCallContext| {
                let tools = tools.clone();
                async move {
                    let mut counter = DropCounter { dropped: tools.dropped.clone(), is_completed: false };
                    tools.started.fetch_add(1, Ordering::SeqCst);
                    tools.call_started.notify_one();
                    tools.resume.notified().await;
                    tools.completed.fetch_add(1, Ordering::SeqCst);
                    counter.is_completed = true;
                    ToolOutcome::Done(ToolOutput::structured(json!({"reference": "NW-1"})))
                }
            };
            Tool::from_fn(spec, run)
        };
        Arc::new(Toolbox::new("boats", [tool("look", EffectClass::Read), tool("book", EffectClass::Write)]))
    }
    /// The calls that started, that completed, and that were dropped.
    fn counts(&self) -> (usize, usize, usize) {
        let count = |count: &AtomicUsize| count.load(Ordering::SeqCst);
        (count(&self.started), count(&self.completed), count(&self.dropped))
    }
}

/// An answer with a usage of 100 input and 10 output tokens.
fn with_usage(answer: ChatResponse) -> ChatResponse {
    ChatResponse { usage: Usage { input: 100, output: 10, ..Usage::default() }, ..answer }
}

/// An answer that calls a tool without arguments.
fn call(name: &str) -> ChatResponse {
    let call = ToolCall { id: "c0".into(), name: name.into(), arguments: ToolArguments::json(json!({})) };
    with_usage(ChatResponse { finish: FinishReason::ToolCalls, ..ChatResponse::calls(vec![call]) })
}

fn text(text: &str) -> ChatResponse {
    with_usage(ChatResponse::text(text))
}

/// A conversation with an assistant whose store is a file.
struct TestConversation {
    assistant: Assistant,
    model: Arc<StrictLlm>,
    folder: tempfile::TempDir,
    tools: BlockingTools,
}

impl TestConversation {
    fn new(answers: impl IntoIterator<Item = ChatResponse>) -> Self {
        let (folder, tools) = (tempfile::tempdir().unwrap(), BlockingTools::default());
        let model = Arc::new(ScriptedLlm::strict(answers));
        let assistant = assistant(&folder, model.clone(), &tools);
        Self { assistant, model, folder, tools }
    }
    /// The same conversation in another process, which opens a copy of the store.
    fn in_another_process(&self, answers: impl IntoIterator<Item = ChatResponse>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // The database, and the files beside it while it is open.
        for entry in std::fs::read_dir(self.folder.path()).unwrap() {
            let path = entry.unwrap().path();
            std::fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
        }
        let model = Arc::new(ScriptedLlm::strict(answers));
        Self { assistant: assistant(&folder, model.clone(), &self.tools), model, folder, tools: self.tools.clone() }
    }
    async fn say(&self, text: &str) -> Vec<String> {
        texts(&self.interruptible(text, &CancellationToken::new()).await)
    }
    /// Says something; cancelling `stop` interrupts the turn.
    async fn interruptible(&self, text: &str, stop: &CancellationToken) -> TurnReport {
        let sink = Box::new(InterruptibleSink(stop.clone()));
        let report = self.assistant.receive(IncomingMessage::new("u", text).input_channel("test"), sink).await.unwrap();
        assert!(report.failures.is_empty(), "an interruption is not a failure: {:?}", report.failures);
        report
    }
    /// Says something and interrupts the turn while a tool runs. A call that is not cancelled completes afterwards.
    async fn interrupted_in_tool(&self, text: &str) -> TurnReport {
        let stop = CancellationToken::new();
        let interrupting = async {
            self.tools.call_started.notified().await;
            stop.cancel();
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
            self.tools.resume.notify_one();
        };
        tokio::join!(self.interruptible(text, &stop), interrupting).0
    }
    async fn events(&self) -> Vec<Json> {
        let turns = self.assistant.store().turns(&"u".into()).await.unwrap();
        turns.iter().flat_map(|turn| &turn.events).map(|event| serde_json::to_value(event).unwrap()).collect()
    }
    /// The events of this name.
    async fn events_of(&self, name: &str) -> Vec<Json> {
        self.events().await.into_iter().filter(|event| event["event"] == name).collect()
    }
    async fn assert_replays(&self) {
        let difference = self.assistant.replay(&"u".into()).await.unwrap();
        assert!(difference.is_none(), "the replay ends where the turn was interrupted: {difference:?}");
    }
    /// The messages of the last request to the model, as JSON.
    fn last_request(&self) -> String {
        let requests = self.model.requests();
        let messages = &requests.last().unwrap().messages;
        messages.iter().map(|message| serde_json::to_string(&**message).unwrap()).collect::<Vec<_>>().join("\n")
    }
    /// Whether the agent is active and waits for the user.
    async fn agent_waits(&self) -> bool {
        let stored = self.assistant.conversation(&"u".into()).await.unwrap();
        format!("{:?}", stored.stack).contains("booker")
    }
}

fn assistant(folder: &tempfile::TempDir, model: Arc<StrictLlm>, tools: &BlockingTools) -> Assistant {
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&folder.path().join("conversation.db"), false).unwrap());
    let builder = Assistant::builder_from_texts(FILES).unwrap().store(store).source(tools.source());
    builder.model(model).seeds(|| 7).build().unwrap()
}

fn texts(report: &TurnReport) -> Vec<String> {
    report.replies.iter().filter_map(|reply| reply.reply.text.as_deref().map(str::to_owned)).collect()
}

#[tokio::test]
async fn interruption_cancels_a_running_read_and_keeps_the_agent_and_its_usage() {
    let conversation =
        TestConversation::new([text("start flow book"), call("look"), text("continue agent"), text("Where were we?")]);
    let report = conversation.interrupted_in_tool("book a boat").await;
    assert!(texts(&report).is_empty(), "{:?}", texts(&report));
    assert_eq!(conversation.tools.counts(), (1, 0, 1), "the call was cancelled");
    assert!(conversation.agent_waits().await, "the agent waits for the user");
    let executed = conversation.events_of("tool_executed").await;
    assert_eq!((executed.len(), &executed[0]["status"]), (1, &json!("failed")), "{executed:?}");
    let usage = conversation.events_of("models_used").await;
    assert_eq!((usage[0]["answers"].as_u64(), usage[0]["input"].as_u64()), (Some(2), Some(200)), "{usage:?}");
    conversation.assert_replays().await;

    let second = conversation.in_another_process([text("continue agent"), text("Where were we?")]);
    for conversation in [&conversation, &second] {
        assert_eq!(conversation.say("go on").await, ["Where were we?"]);
        assert!(
            conversation.last_request().contains("cancelled"),
            "the model gets the outcome of the call: {}",
            conversation.last_request()
        );
        assert_eq!(conversation.events_of("models_used").await.len(), 2);
        conversation.assert_replays().await;
    }
}

#[tokio::test]
async fn interruption_waits_for_a_running_write_and_the_agent_gets_its_result() {
    let conversation = TestConversation::new([text("start flow book"), call("book")]);
    let report = conversation.interrupted_in_tool("book a boat").await;
    assert!(texts(&report).is_empty(), "{:?}", texts(&report));
    assert_eq!(conversation.tools.counts(), (1, 1, 0), "the write completed");
    assert!(conversation.agent_waits().await);
    let executed = conversation.events_of("tool_executed").await;
    assert_eq!((executed.len(), &executed[0]["status"]), (1, &json!("done")), "{executed:?}");
    conversation.assert_replays().await;

    let second = conversation.in_another_process([text("continue agent"), text("It is booked: NW-1.")]);
    assert_eq!(second.say("well?").await, ["It is booked: NW-1."]);
    assert!(
        second.last_request().contains("NW-1"),
        "the model gets the result of the write: {}",
        second.last_request()
    );
    assert_eq!(second.tools.counts().0, 1, "the write is not repeated");
    second.assert_replays().await;
}

#[tokio::test]
async fn message_during_a_turn_waits_for_its_end() {
    let answers =
        [text("start flow book"), call("look"), text("There is NW-1."), text("continue agent"), text("It is blue.")];
    let conversation = TestConversation::new(answers);
    let second = async {
        conversation.tools.call_started.notified().await;
        let second = conversation.say("which colour?");
        let release = async {
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
            conversation.tools.resume.notify_one();
        };
        tokio::join!(second, release).0
    };
    let (first, second) = tokio::join!(conversation.say("book a boat"), second);
    assert_eq!((first, second), (vec!["There is NW-1.".to_owned()], vec!["It is blue.".to_owned()]));
    assert_eq!(conversation.tools.counts(), (1, 1, 0), "nothing was cancelled");
    conversation.assert_replays().await;
}

#[tokio::test]
async fn message_after_an_interruption_waits_for_the_running_write() {
    let answers = [text("start flow book"), call("book"), text("continue agent"), text("Booked, as you see.")];
    let conversation = TestConversation::new(answers);
    let stop = CancellationToken::new();
    let second = async {
        conversation.tools.call_started.notified().await;
        stop.cancel();
        let second = conversation.say("wait, what did you do?");
        let release = async {
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
            assert_eq!(conversation.tools.counts(), (1, 0, 0), "the write still runs, and no other turn starts");
            conversation.tools.resume.notify_one();
        };
        tokio::join!(second, release).0
    };
    let (first, second) = tokio::join!(conversation.interruptible("book a boat", &stop), second);
    assert!(texts(&first).is_empty());
    assert_eq!(second, ["Booked, as you see."]);
    assert_eq!(conversation.tools.counts(), (1, 1, 0));
    conversation.assert_replays().await;
}

/// A model that hangs at the request number `at`, from 0, until its turn is interrupted. The script answers the others.
struct HangingModel {
    at: usize,
    requests: AtomicUsize,
    /// Notified when the request hangs.
    hanging: Arc<Notify>,
    script: Arc<dyn Llm>,
}

#[async_trait]
impl Llm for HangingModel {
    fn profile(&self) -> &ModelProfile {
        self.script.profile()
    }
    async fn chat(&self, request: ChatRequest, cx: &CallContext) -> Result<ChatStream, LlmError> {
        if self.requests.fetch_add(1, Ordering::SeqCst) != self.at {
            return self.script.chat(request, cx).await;
        }
        self.hanging.notify_one();
        let error = cx.wait(std::future::pending::<()>()).await.unwrap_err();
        Err(LlmError::new(LlmErrorKind::Cancelled).with_detail(error))
    }
}

#[tokio::test]
async fn interruption_of_a_model_call_counts_only_earlier_answers() {
    let answers = || [text("start flow book"), call("look"), text("There is NW-1."), text("never reached")];
    // Interrupted in the understanding, in the agent's first answer, and in the answer after its tool call.
    for (at, answered, tool_calls, agent_waits) in [(0, 0, 0, false), (1, 1, 0, true), (2, 2, 1, true)] {
        let (folder, tools, hanging) =
            (tempfile::tempdir().unwrap(), BlockingTools::default(), Arc::new(Notify::new()));
        tools.resume.notify_one();
        let script = Arc::new(ScriptedLlm::strict(answers()));
        let model = HangingModel { at, requests: AtomicUsize::new(0), hanging: hanging.clone(), script };
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&folder.path().join("conversation.db"), false).unwrap());
        let builder = Assistant::builder_from_texts(FILES).unwrap().store(store).source(tools.source());
        let assistant = builder.model(Arc::new(model)).seeds(|| 7).build().unwrap();
        let conversation =
            TestConversation { assistant, model: Arc::new(ScriptedLlm::strict(answers())), folder, tools };
        let stop = CancellationToken::new();
        let interrupting = async {
            hanging.notified().await;
            stop.cancel();
        };
        let (report, ()) = tokio::join!(conversation.interruptible("book a boat", &stop), interrupting);
        assert!(texts(&report).is_empty(), "{at}: {:?}", texts(&report));
        assert_eq!(conversation.agent_waits().await, agent_waits, "{at}");
        assert_eq!(conversation.events_of("tool_executed").await.len(), tool_calls, "{at}");
        let usage = conversation.events_of("models_used").await;
        let counted_answers: u64 = usage.iter().filter_map(|event| event["answers"].as_u64()).sum();
        assert_eq!(counted_answers, answered, "{at}: {usage:?}");
        conversation.assert_replays().await;
    }
}
