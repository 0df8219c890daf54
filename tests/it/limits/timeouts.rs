//! Timeouts for stores, tool sources and clients that do not respond.

use async_trait::async_trait;
use segue::{
    ConversationId, MemoryStore, Store, StoreError, ToolSource, limits, server,
    store::{AcceptOutcome, ForwardingStore, InboxMessage},
    tools::{Health, SourceError, ToolCatalog},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::watch,
};

use super::*;
use crate::support::server_process::client;

/// A store in which accepting a message and listing conversations wait for a permit. Counts these calls.
struct BlockingStore {
    inner: MemoryStore,
    permits: Semaphore,
    calls: AtomicUsize,
}

impl BlockingStore {
    fn new(permits: usize) -> Arc<Self> {
        Arc::new(Self { inner: MemoryStore::new(), permits: Semaphore::new(permits), calls: AtomicUsize::new(0) })
    }
    async fn wait_for_permit(&self) {
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.permits.acquire().await.unwrap().forget();
    }
}

#[async_trait]
impl ForwardingStore for BlockingStore {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }
    async fn accept(&self, inbound: InboxMessage) -> Result<AcceptOutcome, StoreError> {
        self.wait_for_permit().await;
        self.inner.accept(inbound).await
    }
    async fn conversations(&self, limit: usize) -> Result<Vec<ConversationId>, StoreError> {
        self.wait_for_permit().await;
        self.inner.conversations(limit).await
    }
    /// Lists conversations, as the default of `Store` does, and therefore waits for a permit.
    async fn ping(&self) -> Result<(), StoreError> {
        ForwardingStore::conversations(self, 1).await.map(drop)
    }
}

#[tokio::test]
async fn accept_times_out_behind_a_blocked_store() {
    let (store, clock) = (BlockingStore::new(0), ManualClock::new());
    let assistant =
        builder("").action("action_work", BlockingAction::new(9)).store(store.clone()).clock(Arc::new(clock.clone()));
    let assistant = assistant.build().unwrap();
    let first = tokio::spawn(say(&assistant, "u", "work"));
    wait_until(|| store.calls.load(Ordering::SeqCst) == 1).await;
    let second = tokio::spawn(say(&assistant, "u", "work"));
    wait_until(|| sleep_count(&clock, limits::ACCEPT_TIMEOUT) == 1).await;
    clock.advance(limits::ACCEPT_TIMEOUT);
    let error = second.await.unwrap().unwrap_err();
    assert_eq!(error.code(), "R0101");
    assert!(error.to_string().contains("the messages before it are not stored yet"), "{error}");
    store.permits.add_permits(1);
    assert_eq!(texts(&first.await.unwrap().unwrap())[0], "Done.");
    assert_eq!(store.inner.turns(&"u".into()).await.unwrap().len(), 1, "the rejected message is not stored");
}

/// A running server: its address, its task, and a channel that stops it.
type RunningServer = (String, tokio::task::JoinHandle<std::io::Result<()>>, watch::Sender<bool>);

/// Serves an assistant on a loopback socket.
pub(super) async fn serve(assistant: &Assistant) -> RunningServer {
    let channels = crate::channels(&json!({"rest": {}}));
    let listener = server::listen(&server::ServerSettings::new().port(0)).await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    start(listener, server::router(assistant, &channels), assistant, address)
}

/// The same with these routes.
pub(super) async fn serve_routes(router: axum::Router, assistant: &Assistant) -> RunningServer {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    start(listener, router, assistant, address)
}

fn start(
    listener: tokio::net::TcpListener,
    router: axum::Router,
    assistant: &Assistant,
    address: String,
) -> RunningServer {
    let assistant = assistant.clone();
    let (stop, mut stop_signal) = watch::channel(false);
    let stopped = async move {
        let _ = stop_signal.wait_for(|stop| *stop).await;
    };
    let serving = tokio::spawn(async move { server::serve(listener, router, &assistant, stopped).await });
    (address, serving, stop)
}

#[tokio::test]
async fn health_is_down_while_the_store_does_not_respond() {
    let (store, clock) = (BlockingStore::new(0), ManualClock::new());
    let assistant = builder("").store(store.clone()).clock(Arc::new(clock.clone())).build().unwrap();
    let (address, _serving, _stop) = serve(&assistant).await;
    let request = tokio::spawn(client().get(format!("http://{address}/health")).send());
    wait_until(|| sleep_count(&clock, limits::HEALTH_TIMEOUT) == 1).await;
    clock.advance(limits::HEALTH_TIMEOUT);
    let response = request.await.unwrap().unwrap();
    assert_eq!(response.status(), 503);
    let body: Json = serde_json::from_str(&response.text().await.unwrap()).unwrap();
    assert_eq!((&body["status"], &body["store"]), (&json!("down"), &json!("down")));
    // The process is still alive: a failing store is no reason to restart it.
    let response = client().get(format!("http://{address}/livez")).send().await.unwrap();
    assert_eq!(response.status(), 200);
    store.permits.add_permits(1);
    let response = client().get(format!("http://{address}/health")).send().await.unwrap();
    assert_eq!(response.status(), 200);
}

#[tokio::test]
async fn readiness_of_the_store_is_cached() {
    let (store, clock) = (BlockingStore::new(3), ManualClock::new());
    let assistant = builder("").store(store.clone()).clock(Arc::new(clock.clone())).build().unwrap();
    let (address, _serving, _stop) = serve(&assistant).await;
    let ready = async || client().get(format!("http://{address}/readyz")).send().await.unwrap().status();
    for expected in [1, 1, 2] {
        assert_eq!(ready().await, 200);
        assert_eq!(store.calls.load(Ordering::SeqCst), expected);
        clock.advance(limits::READY_CACHE / 2);
    }
    assistant.begin_shutdown();
    let response = client().get(format!("http://{address}/readyz")).send().await.unwrap();
    assert_eq!(response.status(), 503, "a server that shuts down is not ready");
    assert!(response.headers().contains_key("retry-after"));
}

#[tokio::test]
async fn request_body_timeout_responds_408() {
    let (assistant, clock) = assistant_with_manual_clock(&BlockingAction::new(0));
    let (address, _serving, _stop) = serve(&assistant).await;
    let mut connection = TcpStream::connect(&address).await.unwrap();
    let head =
        "POST /webhooks/rest/webhook HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\nconnection: close\r\n\r\n{";
    connection.write_all(head.as_bytes()).await.unwrap();
    wait_until(|| sleep_count(&clock, limits::HTTP_BODY_TIMEOUT) == 1).await;
    clock.advance(limits::HTTP_BODY_TIMEOUT);
    let mut response = String::new();
    connection.read_to_string(&mut response).await.unwrap();
    assert!(response.starts_with("HTTP/1.1 408 "), "{response}");
    assert!(response.contains("the body did not arrive in time"), "{response}");
}

#[tokio::test]
async fn shutdown_waits_for_turns_up_to_the_drain_timeout() {
    let work = BlockingAction::new(0);
    let (assistant, clock) = assistant_with_manual_clock(&work);
    let (address, serving, stop) = serve(&assistant).await;
    let body = json!({"sender": "u", "message": "work"}).to_string();
    let request = client().post(format!("http://{address}/webhooks/rest/webhook")).body(body).send();
    let request = tokio::spawn(request);
    work.wait_until_started(1).await;
    stop.send(true).unwrap();
    // It waits for requests, then for turns.
    for times in 1..=2 {
        wait_until(|| sleep_count(&clock, limits::DRAIN_TIMEOUT) == times).await;
        assert!(!serving.is_finished());
        clock.advance(limits::DRAIN_TIMEOUT);
    }
    serving.await.unwrap().unwrap();
    let error = say(&assistant, "u", "work").await.unwrap_err();
    assert_eq!(error.code(), "R0103");
    request.abort();
}

/// A tool source whose `close` never completes.
struct NeverClosingSource;

#[async_trait]
impl ToolSource for NeverClosingSource {
    fn name(&self) -> &str {
        "depot"
    }
    async fn list(&self, _: &CallContext) -> Result<ToolCatalog, SourceError> {
        Ok(ToolCatalog::default())
    }
    fn changes(&self) -> watch::Receiver<u64> {
        watch::channel(0).1
    }
    fn status(&self) -> Health {
        Health::Up
    }
    async fn close(&self, _: &CallContext) {
        std::future::pending().await
    }
}

#[tokio::test]
async fn close_times_out_for_a_tool_source_that_never_closes() {
    let clock = ManualClock::new();
    let assistant = builder("").source(Arc::new(NeverClosingSource)).clock(Arc::new(clock.clone())).build().unwrap();
    let closing = tokio::spawn(async move { assistant.close(Duration::from_secs(1)).await });
    wait_until(|| sleep_count(&clock, limits::SOURCE_CLOSE_TIMEOUT) == 1).await;
    assert!(!closing.is_finished());
    clock.advance(limits::SOURCE_CLOSE_TIMEOUT);
    closing.await.unwrap();
}
