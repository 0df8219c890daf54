//! Segue as an embedded library: an assistant of the bench project, a SQLite store, and a reply sink in memory that streams.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering},
};

use segue::{
    async_trait,
    context::CallContext,
    conversation::{DeliveryError, Receipt, ReplySink, TurnEvent},
    runtime::{Assistant, IncomingMessage, LoadError},
    store::SqliteStore,
};

use crate::{Bench, model_server, project, subject::Subject};

/// The first message of conversations with the agent.
const AGENT_INTENT: &str = "/desk";
/// The first message of conversations in the flow that needs no model.
const FLOW_INTENT: &str = "/count";

/// Segue as a subject of the measurement.
pub(crate) struct Segue {
    assistant: Assistant,
    /// The first message of each conversation: an intent of the project.
    intent: &'static str,
    next: AtomicU64,
}

impl Segue {
    /// Conversations with the agent.
    pub(crate) fn with_agent(bench: &Bench) -> Arc<Self> {
        Self::new(bench, AGENT_INTENT)
    }
    /// Conversations in the flow that needs no model.
    pub(crate) fn with_flow(bench: &Bench) -> Arc<Self> {
        Self::new(bench, FLOW_INTENT)
    }

    /// Creates an assistant with a new store.
    fn new(bench: &Bench, intent: &'static str) -> Arc<Self> {
        static STORES: AtomicU64 = AtomicU64::new(0);
        let path = bench.folder.path().join(format!("segue-{}.db", STORES.fetch_add(1, Ordering::Relaxed)));
        let builder = match Assistant::builder(&bench.root) {
            Ok(builder) => builder,
            Err(LoadError::Findings(findings, _)) => panic!("the bench project has findings: {findings:#?}"),
            Err(error) => panic!("the bench project does not load: {error}"),
        };
        let store = Arc::new(SqliteStore::open(&path, false).unwrap());
        let assistant = builder.source(Arc::new(project::tools())).store(store).build().unwrap();
        Arc::new(Self { assistant, intent, next: AtomicU64::new(0) })
    }

    /// Runs one turn. Returns what the sink received.
    pub(crate) async fn say(&self, conversation: &str, text: &str) -> Received {
        let received = Arc::<Mutex<Received>>::default();
        let sink = Box::new(Sink(received.clone()));
        let report = self
            .assistant
            .receive(IncomingMessage::new(conversation, text).input_channel("bench"), sink)
            .await
            .unwrap();
        assert!(report.failures.is_empty(), "{:?}", report.failures);
        std::mem::take(&mut *received.lock().unwrap())
    }
}

impl Subject for Segue {
    type Conversation = String;

    async fn open(&self) -> String {
        let conversation = format!("{}-{}", self.intent, self.next.fetch_add(1, Ordering::Relaxed));
        self.say(&conversation, self.intent).await;
        conversation
    }

    async fn turn(&self, conversation: &mut String, text: &str) {
        let received = self.say(conversation, text).await;
        assert!(received.messages == 1 || received.messages == 2, "{text:?}: {received:?}");
        if self.intent == AGENT_INTENT {
            assert_eq!(received.text, model_server::answer(), "{text:?}");
            assert!(received.deltas > 2, "the reply is streamed: {received:?}");
        }
    }
}

/// What the sink received in one turn.
#[derive(Debug, Default)]
pub(crate) struct Received {
    /// The number of complete messages.
    messages: usize,
    /// The number of deltas.
    deltas: usize,
    /// The text of the last complete message.
    text: String,
    /// The nanoseconds since the model server wrote the first delta, if its text is the time at which it was written.
    pub(crate) first_delta_ns: Option<u64>,
}

struct Sink(Arc<Mutex<Received>>);

#[async_trait]
impl ReplySink for Sink {
    fn wants_deltas(&self) -> bool {
        true
    }
    async fn send(&mut self, event: TurnEvent, _: &CallContext) -> Result<Receipt, DeliveryError> {
        let mut received = self.0.lock().unwrap();
        match event {
            TurnEvent::MessageDelta { text, .. } => {
                if received.deltas == 0 {
                    let written_ns = text.trim().parse::<u64>().ok();
                    received.first_delta_ns = written_ns.map(|ns| model_server::now_ns().saturating_sub(ns));
                }
                received.deltas += 1;
            }
            TurnEvent::MessageEnd { message, .. } | TurnEvent::Message { message, .. } => {
                received.messages += 1;
                received.text = message.text.as_deref().unwrap_or_default().to_owned();
            }
            _ => {}
        }
        drop(received);
        Ok(Receipt::Delivered)
    }
}
