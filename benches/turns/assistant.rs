//! Segue as it is embedded: an assistant of the bench project, a SQLite store, and a channel that streams into memory.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering},
};

use futures::future::BoxFuture;
use segue::{
    context::CallContext,
    conversation::{DeliveryError, Receipt, ReplyEvent, ReplySink},
    runtime::{Assistant, IncomingMessage, LoadError},
    store::SqliteStore,
};

use crate::{Bench, harbour, model, side::Side};

/// Segue's side of the comparison.
pub(crate) struct Segue {
    assistant: Assistant,
    /// What begins a conversation: an intent of the project.
    begin: &'static str,
    next: AtomicU64,
}

impl Segue {
    /// Conversations with the agent.
    pub(crate) fn desk(bench: &Bench) -> Arc<Self> {
        Self::new(bench, "/desk")
    }
    /// Conversations in the flow that needs no model.
    pub(crate) fn count(bench: &Bench) -> Arc<Self> {
        Self::new(bench, "/count")
    }

    /// Each has a new store.
    fn new(bench: &Bench, begin: &'static str) -> Arc<Self> {
        static STORES: AtomicU64 = AtomicU64::new(0);
        let path = bench.folder.path().join(format!("segue-{}.db", STORES.fetch_add(1, Ordering::Relaxed)));
        let builder = match Assistant::builder(&bench.root) {
            Ok(builder) => builder,
            Err(LoadError::Findings(findings, _)) => panic!("the bench project has findings: {findings:#?}"),
            Err(error) => panic!("the bench project does not load: {error}"),
        };
        let store = Arc::new(SqliteStore::open(&path, false).unwrap());
        let assistant = builder.source(Arc::new(harbour::tools())).store(store).build().unwrap();
        Arc::new(Self { assistant, begin, next: AtomicU64::new(0) })
    }

    /// One turn; what the channel got.
    pub(crate) async fn say(&self, talk: &str, text: &str) -> Shown {
        let shown = Arc::<Mutex<Shown>>::default();
        let sink = Box::new(Channel(shown.clone()));
        let report = self.assistant.receive(IncomingMessage::text(talk, text, "bench"), sink).await.unwrap();
        assert!(report.failures.is_empty(), "{:?}", report.failures);
        std::mem::take(&mut *shown.lock().unwrap())
    }
}

impl Side for Segue {
    type Talk = String;

    async fn open(&self) -> String {
        let talk = format!("{}-{}", self.begin, self.next.fetch_add(1, Ordering::Relaxed));
        self.say(&talk, self.begin).await;
        talk
    }

    async fn turn(&self, talk: &mut String, text: &str) {
        let shown = self.say(talk, text).await;
        assert!(shown.messages == 1 || shown.messages == 2, "{text:?}: {shown:?}");
        if self.begin == "/desk" {
            assert_eq!(shown.text, model::answer(), "{text:?}");
            assert!(shown.deltas > 2, "it streams: {shown:?}");
        }
    }
}

/// What a channel got in one turn.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    /// Messages that are complete.
    messages: usize,
    /// Pieces of text.
    deltas: usize,
    /// The text of the last complete message.
    text: String,
    /// Nanoseconds from the writing of the first delta, if its text says when that was.
    pub(crate) first_ns: Option<u64>,
}

struct Channel(Arc<Mutex<Shown>>);

impl ReplySink for Channel {
    fn wants_deltas(&self) -> bool {
        true
    }
    fn send<'a>(&'a mut self, piece: ReplyEvent, _: &'a CallContext) -> BoxFuture<'a, Result<Receipt, DeliveryError>> {
        let mut shown = self.0.lock().unwrap();
        match piece {
            ReplyEvent::Delta { text, .. } => {
                if shown.deltas == 0 {
                    let written = text.trim().parse::<u64>().ok();
                    shown.first_ns = written.map(|written| model::now_ns().saturating_sub(written));
                }
                shown.deltas += 1;
            }
            ReplyEvent::End { message, .. } | ReplyEvent::Message { message, .. } => {
                shown.messages += 1;
                shown.text = message.text.as_deref().unwrap_or_default().to_owned();
            }
            ReplyEvent::Start { .. } | ReplyEvent::Activity { .. } => {}
        }
        drop(shown);
        Box::pin(std::future::ready(Ok(Receipt::Delivered)))
    }
}
