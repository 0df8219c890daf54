//! A process ends in the middle of a turn, and another process takes the turn over while the MCP server is unreachable. A recorded
//! outcome is used, an unknown outcome is reported as unknown, and a repeated call has the same idempotency key.
//!
//! Both processes are assistants in this test; the first one is dropped in the middle of its turn.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use segue::{
    Assistant, AssistantBuilder, CallContext, DiscardReplies, IncomingMessage, async_trait,
    effect::EffectClass,
    llm::scripted::ScriptedLlm,
    project::Project,
    store::{MemoryStore, Store},
    testing::ManualClock,
    tools::{
        Health, SourceError, Tool, ToolCallContext, ToolCatalog, ToolHandler, ToolInfo, ToolOutcome, ToolOutput,
        ToolSource, Toolbox,
    },
};
use serde_json::{Value as Json, json};
use tokio::sync::watch;

use crate::support::project_files::{SILENT_COMPLETION, TOOL_RESULT_DOMAIN, tool_flow};

const LOOK_STEP: &str = "
      - call: look
        mcp_server: look_server
        mapping: {input: [], output: []}
";

fn project() -> Arc<Project> {
    let flows = format!("flows:{}{SILENT_COMPLETION}", tool_flow("work", "work_server", LOOK_STEP));
    let files = [
        ("config.yml", "recipe: default.v1\npipeline: []\npolicies: [{name: FlowPolicy}]\n"),
        TOOL_RESULT_DOMAIN,
        ("domain/intents.yml", "version: '3.1'\nintents: [work]\n"),
        ("flows/flows.yml", &flows),
        (
            "endpoints.yml",
            "mcp_servers: [{name: work_server, type: stdio, command: a}, {name: look_server, type: stdio, command: b}]",
        ),
    ];
    let loaded = Project::load(&segue::project::from_texts(files).sources);
    Arc::new(loaded.project.unwrap_or_else(|| panic!("{:?}", loaded.findings)))
}

/// A tool that records its calls. It returns a result, or hangs.
struct RecordingTool {
    spec: ToolInfo,
    hangs: bool,
    calls: Arc<AtomicUsize>,
    keys: Arc<Mutex<Vec<String>>>,
}

#[async_trait]
impl ToolHandler for RecordingTool {
    fn info(&self) -> &ToolInfo {
        &self.spec
    }
    async fn call(&self, _: Json, cx: &ToolCallContext) -> ToolOutcome {
        self.keys.lock().unwrap().push(cx.idempotency_key.to_string());
        self.calls.fetch_add(1, Ordering::SeqCst);
        if self.hangs {
            std::future::pending::<()>().await;
        }
        ToolOutcome::Done(ToolOutput::text("yes"))
    }
}

/// An MCP server that cannot be reached.
struct UnreachableSource(watch::Sender<u64>);

#[async_trait]
impl ToolSource for UnreachableSource {
    fn name(&self) -> &str {
        "work_server"
    }
    async fn list(&self, _: &CallContext) -> Result<ToolCatalog, SourceError> {
        let error = SourceError { source_name: "work_server".into(), reason: "it is unreachable".into() };
        Err(error)
    }
    fn changes(&self) -> watch::Receiver<u64> {
        self.0.subscribe()
    }
    fn status(&self) -> Health {
        Health::Unknown
    }
    async fn close(&self, _: &CallContext) {}
}

/// What both processes share: the store, and the recorded calls of the tools.
#[derive(Clone)]
struct SharedState {
    store: Arc<MemoryStore>,
    calls: Arc<AtomicUsize>,
    keys: Arc<Mutex<Vec<String>>>,
    look_calls: Arc<AtomicUsize>,
    class: EffectClass,
}

impl SharedState {
    fn new(class: EffectClass) -> Self {
        let (calls, look_calls) = Default::default();
        Self { store: Arc::new(MemoryStore::new()), calls, keys: Arc::default(), look_calls, class }
    }

    /// The server with the tool `work`, whose calls hang if `hangs`.
    fn work_server(&self, hangs: bool) -> Arc<dyn ToolSource> {
        let spec = spec("work", self.class);
        Arc::new(Toolbox::new("work_server", [tool(spec, hangs, &self.calls, &self.keys)]))
    }

    fn unreachable_server() -> Arc<dyn ToolSource> {
        Arc::new(UnreachableSource(watch::Sender::new(0)))
    }

    /// Starts a process. Calls of the tool `look` hang if `look_hangs`.
    fn process(&self, work_server: Arc<dyn ToolSource>, look_hangs: bool) -> Assistant {
        let look = tool(spec("look", EffectClass::Read), look_hangs, &self.look_calls, &Arc::default());
        AssistantBuilder::new(project(), ".".into())
            .model(Arc::new(ScriptedLlm::strict(["no request expected"])))
            .store(self.store.clone())
            .clock(Arc::new(ManualClock::new()))
            .source(work_server)
            .source(Arc::new(Toolbox::new("look_server", [look])))
            .build()
            .unwrap()
    }

    /// The process gets the message and ends, in the middle of the turn, as soon as `condition` holds.
    async fn crash(&self, process: Assistant, condition: impl Fn(&Self) -> bool) {
        let turn = process.receive(IncomingMessage::new("u", "/work").input_channel("test"), Box::new(DiscardReplies));
        let crashed = async {
            while !condition(self) {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! { biased; _ = turn => panic!("the turn ended before the crash"), () = crashed => {} }
    }

    /// The process recovers the turn. Returns the replies.
    async fn recover_with(&self, process: Assistant) -> Vec<String> {
        assert_eq!(process.recover().await.unwrap(), 1);
        let replies = self.store.pending_replies(&"u".into()).await.unwrap();
        replies.into_iter().filter_map(|reply| reply.reply.text.map(|text| text.to_string())).collect()
    }
}

fn spec(name: &str, effect: EffectClass) -> ToolInfo {
    ToolInfo::new(name, "does something")
        .parameters(json!({"type": "object", "properties": {}}))
        .effect(effect)
        .source("work_server")
}

fn tool(spec: ToolInfo, hangs: bool, calls: &Arc<AtomicUsize>, keys: &Arc<Mutex<Vec<String>>>) -> Tool {
    Tool::from_handler(RecordingTool { spec, hangs, calls: calls.clone(), keys: keys.clone() })
}

#[tokio::test]
async fn recovery_uses_the_stored_outcome_of_a_write_if_its_server_is_unreachable() {
    let shared = SharedState::new(EffectClass::Write);
    // The crash is in the next step: the outcome of the call is stored, the end of its step is not.
    shared
        .crash(shared.process(shared.work_server(false), true), |shared| shared.look_calls.load(Ordering::SeqCst) == 1)
        .await;
    assert_eq!(shared.recover_with(shared.process(SharedState::unreachable_server(), false)).await, ["It said yes."]);
    assert_eq!(shared.calls.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn recovery_reports_an_unknown_outcome_of_a_write_even_if_its_server_is_unreachable() {
    for is_unreachable in [true, false] {
        let shared = SharedState::new(EffectClass::Write);
        shared
            .crash(shared.process(shared.work_server(true), false), |shared| shared.calls.load(Ordering::SeqCst) == 1)
            .await;
        let server = if is_unreachable { SharedState::unreachable_server() } else { shared.work_server(false) };
        assert_eq!(shared.recover_with(shared.process(server, false)).await, ["It may have happened."]);
        assert_eq!(shared.calls.load(Ordering::SeqCst), 1);
    }
}

#[tokio::test]
async fn repeated_call_has_the_same_idempotency_key_and_no_other_call_has_it() {
    let shared = SharedState::new(EffectClass::Idempotent);
    shared
        .crash(shared.process(shared.work_server(true), false), |shared| shared.calls.load(Ordering::SeqCst) == 1)
        .await;
    assert_eq!(shared.recover_with(shared.process(shared.work_server(false), false)).await, ["It said yes."]);
    let keys = shared.keys.lock().unwrap().clone();
    assert_eq!(keys.len(), 2);
    assert_eq!(keys[0], keys[1], "the repeated call has the same key");

    // The same conversation, turn and step again: in an empty store, and after the conversation was erased.
    let mut used = vec![keys[0].clone()];
    for erase in [false, true] {
        let fresh = SharedState { store: if erase { shared.store.clone() } else { Arc::default() }, ..shared.clone() };
        if erase {
            fresh.store.erase(&"u".into()).await.unwrap();
        }
        let process = fresh.process(fresh.work_server(false), false);
        let report = process
            .receive(IncomingMessage::new("u", "/work").input_channel("test"), Box::new(DiscardReplies))
            .await
            .unwrap();
        assert_eq!(report.turn.0, 1, "the turn has the same number again");
        let key = fresh.keys.lock().unwrap().last().unwrap().clone();
        assert!(!used.contains(&key), "{key} was used before");
        used.push(key);
    }
}
