//! A process that died in the middle of a turn, and another one that takes the turn over while the tool server is away: what
//! was carried out counts, what may have been is told as that, and every repetition has the same key.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use futures::future::BoxFuture;
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

const DOMAIN: &str = "
version: '3.1'
intents: [book]
slots:
  said: {type: text, mappings: [{type: controlled}]}
responses:
  utter_said: [{text: 'It said {said}.'}]
  utter_internal_error_rasa: [{text: Broken.}]
  utter_outcome_unknown: [{text: 'It may have happened.'}]
";
const FLOWS: &str = "
flows:
  book:
    description: books
    nlu_trigger: [{intent: book}]
    steps:
      - call: work
        mcp_server: far
        mapping: {input: [], output: [{slot: said, value: result.text}]}
      - call: look
        mcp_server: near
        mapping: {input: [], output: []}
      - action: utter_said
  pattern_completed: {name: done, description: nothing is said, steps: [{noop: true, next: END}]}
";

fn project() -> Arc<Project> {
    let files = [
        ("config.yml", "recipe: default.v1\npipeline: []\npolicies: [{name: FlowPolicy}]\n"),
        ("domain.yml", DOMAIN),
        ("flows/flows.yml", FLOWS),
        (
            "endpoints.yml",
            "mcp_servers: [{name: far, type: stdio, command: far}, {name: near, type: stdio, command: near}]",
        ),
    ];
    let loaded = Project::load(&segue::project::from_texts(files).texts);
    Arc::new(loaded.project.unwrap_or_else(|| panic!("{:?}", loaded.findings)))
}

/// A tool that answers, or never does.
struct Doer {
    spec: ToolInfo,
    hangs: bool,
    calls: Arc<AtomicUsize>,
    keys: Arc<Mutex<Vec<String>>>,
}

#[async_trait]
impl ToolHandler for Doer {
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

/// A server that cannot be reached.
struct Away(watch::Sender<u64>);

impl ToolSource for Away {
    fn name(&self) -> &str {
        "far"
    }
    fn list<'a>(&'a self, _: &'a CallContext) -> BoxFuture<'a, Result<ToolCatalog, SourceError>> {
        let error = SourceError { source_name: "far".into(), reason: "it is away".into() };
        Box::pin(std::future::ready(Err(error)))
    }
    fn changes(&self) -> watch::Receiver<u64> {
        self.0.subscribe()
    }
    fn status(&self) -> Health {
        Health::Unknown
    }
    fn close<'a>(&'a self, _: &'a CallContext) -> BoxFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// What outlives a process: the store, and what the tools saw.
#[derive(Clone)]
struct World {
    store: Arc<MemoryStore>,
    calls: Arc<AtomicUsize>,
    keys: Arc<Mutex<Vec<String>>>,
    looked: Arc<AtomicUsize>,
    class: EffectClass,
}

impl World {
    fn new(class: EffectClass) -> Self {
        let (calls, looked) = Default::default();
        Self { store: Arc::new(MemoryStore::new()), calls, keys: Arc::default(), looked, class }
    }

    /// The server whose tool does something; its calls may hang.
    fn far(&self, hangs: bool) -> Arc<dyn ToolSource> {
        let spec = spec("work", self.class);
        Arc::new(Toolbox::new("far", [tool(spec, hangs, &self.calls, &self.keys)]))
    }

    fn away() -> Arc<dyn ToolSource> {
        Arc::new(Away(watch::Sender::new(0)))
    }

    /// A process; calls of the tool that reads may hang.
    fn process(&self, far: Arc<dyn ToolSource>, look_hangs: bool) -> Assistant {
        let near = tool(spec("look", EffectClass::Read), look_hangs, &self.looked, &Arc::default());
        AssistantBuilder::new(project(), ".".into())
            .model(Arc::new(ScriptedLlm::strict(["nobody asks"])))
            .store(self.store.clone())
            .clock(Arc::new(ManualClock::new()))
            .source(far)
            .source(Arc::new(Toolbox::new("near", [near])))
            .build()
            .unwrap()
    }

    /// The process gets the message and dies when this holds.
    async fn dies(&self, process: Assistant, when: impl Fn(&Self) -> bool) {
        let turn = process.receive(IncomingMessage::text("u", "/book", "world"), Box::new(DiscardReplies));
        let died = async {
            while !when(self) {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! { biased; _ = turn => panic!("the turn is over"), () = died => {} }
    }

    /// The next process takes the turn over; what it says.
    async fn recovers(&self, process: Assistant) -> Vec<String> {
        assert_eq!(process.recover().await.unwrap(), 1);
        let replies = self.store.pending_replies(&"u".into()).await.unwrap();
        replies.into_iter().filter_map(|reply| reply.reply.text.map(|text| text.to_string())).collect()
    }
}

fn spec(name: &str, effect: EffectClass) -> ToolInfo {
    ToolInfo::new(name, "does").parameters(json!({"type": "object", "properties": {}})).effect(effect).source("far")
}

fn tool(spec: ToolInfo, hangs: bool, calls: &Arc<AtomicUsize>, keys: &Arc<Mutex<Vec<String>>>) -> Tool {
    Tool::from_handler(Doer { spec, hangs, calls: calls.clone(), keys: keys.clone() })
}

#[tokio::test]
async fn a_write_that_was_done_is_done_though_its_server_is_away_at_the_recovery() {
    let world = World::new(EffectClass::Write);
    // The process dies in the step after it: what the tool gave is stored, that the flow was told is not.
    world.dies(world.process(world.far(false), true), |world| world.looked.load(Ordering::SeqCst) == 1).await;
    assert_eq!(world.recovers(world.process(World::away(), false)).await, ["It said yes."]);
    assert_eq!(world.calls.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_write_that_may_have_been_done_is_in_doubt_also_where_its_server_is_away_at_the_recovery() {
    for away in [true, false] {
        let world = World::new(EffectClass::Write);
        world.dies(world.process(world.far(true), false), |world| world.calls.load(Ordering::SeqCst) == 1).await;
        let far = if away { World::away() } else { world.far(false) };
        assert_eq!(world.recovers(world.process(far, false)).await, ["It may have happened."]);
        assert_eq!(world.calls.load(Ordering::SeqCst), 1);
    }
}

#[tokio::test]
async fn a_call_that_is_repeated_has_the_same_key_and_no_other_call_ever_has_it() {
    let world = World::new(EffectClass::Idempotent);
    world.dies(world.process(world.far(true), false), |world| world.calls.load(Ordering::SeqCst) == 1).await;
    assert_eq!(world.recovers(world.process(world.far(false), false)).await, ["It said yes."]);
    let keys = world.keys.lock().unwrap().clone();
    assert_eq!(keys.len(), 2);
    assert_eq!(keys[0], keys[1], "the repetition");

    // The same conversation, turn and step once more: in a store that begins anew, and after an erasure.
    let mut seen = vec![keys[0].clone()];
    for erase in [false, true] {
        let fresh = World { store: if erase { world.store.clone() } else { Arc::default() }, ..world.clone() };
        if erase {
            fresh.store.erase(&"u".into()).await.unwrap();
        }
        let process = fresh.process(fresh.far(false), false);
        let report =
            process.receive(IncomingMessage::text("u", "/book", "world"), Box::new(DiscardReplies)).await.unwrap();
        assert_eq!(report.turn.0, 1, "the number of the turn comes again");
        let key = fresh.keys.lock().unwrap().last().unwrap().clone();
        assert!(!seen.contains(&key), "{key} came before");
        seen.push(key);
    }
}
