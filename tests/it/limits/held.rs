//! Limits against whoever holds us up: stores, tool sources, clients.

use segue::{
    BoxFuture as Boxed, ConversationId, MemoryStore, Store, StoreError, Timestamp, ToolSource,
    ids::MessageId,
    limits, server,
    store::{
        AcceptOutcome, InboxMessage, JournalRecord, StoredConversation, StoredReply, StoredTurn, TurnCommit,
        TurnNumber, UnfinishedTurn, Version,
    },
    tools::{Health, SourceError, ToolCatalog},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::watch,
};

use super::*;

type Told<'a, T> = Boxed<'a, Result<T, StoreError>>;

/// A store that takes no message and lists no conversation, but for so many.
struct Stuck {
    inner: MemoryStore,
    through: Semaphore,
    asked: AtomicUsize,
}

impl Stuck {
    fn new(through: usize) -> Arc<Self> {
        Arc::new(Self { inner: MemoryStore::new(), through: Semaphore::new(through), asked: AtomicUsize::new(0) })
    }
    async fn pass(&self) {
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.through.acquire().await.unwrap().forget();
    }
}

impl Store for Stuck {
    fn accept(&self, inbound: InboxMessage) -> Told<'_, AcceptOutcome> {
        Box::pin(async move {
            self.pass().await;
            self.inner.accept(inbound).await
        })
    }
    fn conversations(&self, limit: usize) -> Told<'_, Vec<ConversationId>> {
        Box::pin(async move {
            self.pass().await;
            self.inner.conversations(limit).await
        })
    }
    fn append<'a>(&'a self, id: &'a ConversationId, after: Version, batch: TurnCommit) -> Told<'a, Version> {
        self.inner.append(id, after, batch)
    }
    fn load<'a>(&'a self, id: &'a ConversationId) -> Told<'a, StoredConversation> {
        self.inner.load(id)
    }
    fn append_journal<'a>(
        &'a self,
        id: &'a ConversationId,
        turn: TurnNumber,
        records: Vec<JournalRecord>,
    ) -> Told<'a, ()> {
        self.inner.append_journal(id, turn, records)
    }
    fn unfinished_turns<'a>(&'a self, id: &'a ConversationId) -> Told<'a, Vec<UnfinishedTurn>> {
        self.inner.unfinished_turns(id)
    }
    fn conversations_with_work(&self) -> Told<'_, Vec<ConversationId>> {
        self.inner.conversations_with_work()
    }
    fn next_reminders(&self, limit: usize) -> Told<'_, Vec<(ConversationId, Timestamp)>> {
        self.inner.next_reminders(limit)
    }
    fn pending_replies<'a>(&'a self, id: &'a ConversationId) -> Told<'a, Vec<StoredReply>> {
        self.inner.pending_replies(id)
    }
    fn mark_delivered<'a>(&'a self, id: &'a ConversationId, replies: Vec<Arc<str>>) -> Told<'a, ()> {
        self.inner.mark_delivered(id, replies)
    }
    fn turns<'a>(&'a self, id: &'a ConversationId) -> Told<'a, Vec<StoredTurn>> {
        self.inner.turns(id)
    }
    fn erase<'a>(&'a self, id: &'a ConversationId) -> Told<'a, ()> {
        self.inner.erase(id)
    }
    fn purge_expired(&self, now: Timestamp) -> Told<'_, u64> {
        self.inner.purge_expired(now)
    }
    fn replies_to_message<'a>(
        &'a self,
        id: &'a ConversationId,
        message: &'a MessageId,
    ) -> Told<'a, Option<Vec<StoredReply>>> {
        self.inner.replies_to_message(id, message)
    }
    fn text_by_hash<'a>(&'a self, id: &'a ConversationId, hash: &'a str) -> Told<'a, Option<Arc<str>>> {
        self.inner.text_by_hash(id, hash)
    }
}

#[tokio::test]
async fn a_message_waits_only_so_long_to_be_accepted() {
    let (store, clock) = (Stuck::new(0), ManualClock::new());
    let assistant = builder("").action("action_work", Work::new(9)).store(store.clone()).clock(Arc::new(clock.clone()));
    let assistant = assistant.build().unwrap();
    let first = tokio::spawn(say(&assistant, "u", "work"));
    until(|| store.asked.load(Ordering::SeqCst) == 1).await;
    let second = tokio::spawn(say(&assistant, "u", "work"));
    until(|| waits(&clock, limits::ACCEPT_TIMEOUT) == 1).await;
    clock.advance(limits::ACCEPT_TIMEOUT);
    let error = second.await.unwrap().unwrap_err();
    assert_eq!(error.code(), "R0101");
    assert!(error.to_string().contains("the messages before it are not stored yet"), "{error}");
    store.through.add_permits(1);
    assert_eq!(texts(&first.await.unwrap().unwrap())[0], "Done.");
    assert_eq!(store.inner.turns(&"u".into()).await.unwrap().len(), 1, "what was refused is not stored");
}

/// A server on a socket of this machine, and what tells it to stop.
pub(super) async fn served(
    assistant: &Assistant,
) -> (String, tokio::task::JoinHandle<std::io::Result<()>>, watch::Sender<bool>) {
    let channels = crate::channels(&json!({"rest": {}}));
    let listener = server::listen(&server::ServerSettings::new().port(0)).await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    serving(listener, server::router(assistant, &channels), assistant, address)
}

/// The same with these routes.
pub(super) async fn served_routes(
    router: axum::Router,
    assistant: &Assistant,
) -> (String, tokio::task::JoinHandle<std::io::Result<()>>, watch::Sender<bool>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    serving(listener, router, assistant, address)
}

fn serving(
    listener: tokio::net::TcpListener,
    router: axum::Router,
    assistant: &Assistant,
    address: String,
) -> (String, tokio::task::JoinHandle<std::io::Result<()>>, watch::Sender<bool>) {
    let assistant = assistant.clone();
    let (stop, mut told) = watch::channel(false);
    let stopped = async move {
        let _ = told.wait_for(|stop| *stop).await;
    };
    let serving = tokio::spawn(async move { server::serve(listener, router, &assistant, stopped).await });
    (address, serving, stop)
}

#[tokio::test]
async fn a_store_that_does_not_answer_is_not_healthy() {
    let (store, clock) = (Stuck::new(0), ManualClock::new());
    let assistant = builder("").store(store.clone()).clock(Arc::new(clock.clone())).build().unwrap();
    let (address, _serving, _stop) = served(&assistant).await;
    let asked = tokio::spawn(crate::run::client().get(format!("http://{address}/health")).send());
    until(|| waits(&clock, limits::HEALTH_TIMEOUT) == 1).await;
    clock.advance(limits::HEALTH_TIMEOUT);
    let answer = asked.await.unwrap().unwrap();
    assert_eq!(answer.status(), 503);
    let body: Json = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
    assert_eq!((&body["status"], &body["store"]), (&json!("down"), &json!("down")));
    // The process is alive all the same: nobody should restart it for its store.
    let answer = crate::run::client().get(format!("http://{address}/livez")).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    store.through.add_permits(1);
    let answer = crate::run::client().get(format!("http://{address}/health")).send().await.unwrap();
    assert_eq!(answer.status(), 200);
}

#[tokio::test]
async fn a_good_answer_of_the_store_is_kept_for_a_while() {
    let (store, clock) = (Stuck::new(3), ManualClock::new());
    let assistant = builder("").store(store.clone()).clock(Arc::new(clock.clone())).build().unwrap();
    let (address, _serving, _stop) = served(&assistant).await;
    let ready = async || crate::run::client().get(format!("http://{address}/readyz")).send().await.unwrap().status();
    for expected in [1, 1, 2] {
        assert_eq!(ready().await, 200);
        assert_eq!(store.asked.load(Ordering::SeqCst), expected);
        clock.advance(limits::READY_CACHE / 2);
    }
    assistant.begin_closing();
    let answer = crate::run::client().get(format!("http://{address}/readyz")).send().await.unwrap();
    assert_eq!(answer.status(), 503, "a server that ends says so");
    assert!(answer.headers().contains_key("retry-after"));
}

#[tokio::test]
async fn a_body_that_does_not_come_is_waited_for_only_so_long() {
    let (assistant, clock) = still(&Work::new(0));
    let (address, _serving, _stop) = served(&assistant).await;
    let mut client = TcpStream::connect(&address).await.unwrap();
    let head =
        "POST /webhooks/rest/webhook HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\nconnection: close\r\n\r\n{";
    client.write_all(head.as_bytes()).await.unwrap();
    until(|| waits(&clock, limits::HTTP_BODY_TIMEOUT) == 1).await;
    clock.advance(limits::HTTP_BODY_TIMEOUT);
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(answer.contains("the body did not come in time"), "{answer}");
}

#[tokio::test]
async fn a_server_that_ends_waits_for_turns_only_so_long() {
    let work = Work::new(0);
    let (assistant, clock) = still(&work);
    let (address, serving, stop) = served(&assistant).await;
    let body = json!({"sender": "u", "message": "work"}).to_string();
    let asked = crate::run::client().post(format!("http://{address}/webhooks/rest/webhook")).body(body).send();
    let asked = tokio::spawn(asked);
    work.until(1).await;
    stop.send(true).unwrap();
    // Once for requests, once for turns.
    for times in 1..=2 {
        until(|| waits(&clock, limits::DRAIN_TIMEOUT) == times).await;
        assert!(!serving.is_finished());
        clock.advance(limits::DRAIN_TIMEOUT);
    }
    serving.await.unwrap().unwrap();
    let error = say(&assistant, "u", "work").await.unwrap_err();
    assert_eq!(error.code(), "R0103");
    asked.abort();
}

/// A source of tools that never closes.
struct Clinging;

impl ToolSource for Clinging {
    fn name(&self) -> &str {
        "depot"
    }
    fn list<'a>(&'a self, _: &'a CallContext) -> Boxed<'a, Result<ToolCatalog, SourceError>> {
        Box::pin(std::future::ready(Ok(ToolCatalog::default())))
    }
    fn changes(&self) -> watch::Receiver<u64> {
        watch::channel(0).1
    }
    fn status(&self) -> Health {
        Health::Up
    }
    fn close<'a>(&'a self, _: &'a CallContext) -> Boxed<'a, ()> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn a_source_that_does_not_close_is_left() {
    let clock = ManualClock::new();
    let assistant = builder("").source(Arc::new(Clinging)).clock(Arc::new(clock.clone())).build().unwrap();
    let closing = tokio::spawn(async move { assistant.close(Duration::from_secs(1)).await });
    until(|| waits(&clock, limits::SOURCE_CLOSE_TIMEOUT) == 1).await;
    assert!(!closing.is_finished());
    clock.advance(limits::SOURCE_CLOSE_TIMEOUT);
    closing.await.unwrap();
}
