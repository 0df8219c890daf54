#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use futures::{SinkExt, StreamExt};
use tokio::{net::TcpStream, task::JoinHandle};
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async,
    tungstenite::{Message as Frame, client::IntoClientRequest, protocol::frame::coding::CloseCode},
};

use super::*;
use crate::{
    channels::{ChannelOptions, auth, open},
    runtime::{Assistant, AssistantBuilder, IncomingMessage, OutboxSink},
    server::{self, ServerSettings},
    testing::ScriptedLlm,
};

const FILES: [(&str, &str); 3] = [
    (
        "config.yml",
        "recipe: default.v1\npipeline: [{name: CompactLLMCommandGenerator}]\npolicies: [{name: FlowPolicy}]\n",
    ),
    ("domain.yml", "responses: {utter_hello: [{text: Hello!, buttons: [{title: Yes, payload: /yes}]}]}\n"),
    (
        "flows/greet.yml",
        "flows: {greet: {description: greets, run_pattern_completed: false, steps: [{action: utter_hello}]}}\n",
    ),
];

/// The value of the environment variable `SECRET`: the loader takes some secrets from the environment only.
pub(in crate::channels) const SECRET: &str = "a secret of thirty-two bytes, or more";

/// A running server with the channels of a `credentials.yml`. The model starts the greeting for every message.
pub(in crate::channels) struct TestServer {
    pub(in crate::channels) assistant: Assistant,
    pub(in crate::channels) address: String,
    stop: tokio_util::sync::CancellationToken,
    serving: JoinHandle<()>,
}

impl TestServer {
    pub(in crate::channels) async fn start(credentials: &str) -> Self {
        Self::start_with(credentials, "").await
    }

    /// The same with an `endpoints.yml`.
    pub(in crate::channels) async fn start_with(credentials: &str, endpoints: &str) -> Self {
        let model = Arc::new(ScriptedLlm::strict(["start flow greet"; 20]));
        let more = [("credentials.yml", credentials), ("endpoints.yml", endpoints)];
        let mut sources = crate::project::from_texts(FILES.into_iter().chain(more)).sources;
        sources.environment.insert("SECRET".to_owned(), SECRET.to_owned());
        let loaded = segue_engine::project::Project::load(&sources);
        let project = loaded.project.unwrap_or_else(|| panic!("{:?}", loaded.findings));
        let assistant =
            AssistantBuilder::new(Arc::new(project), std::path::PathBuf::new()).model(model).build().unwrap();
        let (channels, errors) = open(&assistant.project(), &ChannelOptions::new().local(true));
        assert!(errors.is_empty(), "{errors:?}");
        let router = server::router(&assistant, &channels);
        let listener = server::listen(&ServerSettings::new().port(0)).await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let stop = tokio_util::sync::CancellationToken::new();
        let (served, stopping) = (assistant.clone(), stop.clone());
        let serving = tokio::spawn(async move {
            let sinks = |to: &ConversationId, name: &str| {
                channels.iter().find(|channel| channel.name() == name).and_then(|channel| channel.sink(to))
            };
            tokio::select! {
                served = server::serve(listener, router, &served, stopping.clone().cancelled_owned()) => served.unwrap(),
                () = served.deliver_outbox(&sinks) => {}
                () = async { server::run_channels(&served, &channels, &stopping).await; std::future::pending().await } => {}
            }
        });
        Self { assistant, address, stop, serving }
    }

    /// Ends the server; returns when it has ended.
    pub(in crate::channels) async fn stop(self) {
        self.stop.cancel();
        self.serving.await.unwrap();
    }

    /// Runs a turn of a channel whose replies stay in the outbox.
    pub(in crate::channels) async fn say_unheard(&self, conversation: &str, via: &str) {
        let inbox = Inbox::new(self.assistant.clone(), via);
        inbox.receive(IncomingMessage::new(conversation, "hi"), Box::new(OutboxSink)).await.unwrap();
    }
}

struct Client(WebSocketStream<MaybeTlsStream<TcpStream>>);

impl Client {
    /// Connects and reads the first frame.
    async fn connect(server: &TestServer, query: &str, protocols: &str) -> Result<(Self, Json), StatusCode> {
        let mut request =
            format!("ws://{}/webhooks/websocket/connect?{query}", server.address).into_client_request().unwrap();
        if !protocols.is_empty() {
            request.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, protocols.parse().unwrap());
        }
        let mut client = match connect_async(request).await {
            Ok((socket, response)) => {
                let chosen = response.headers().get(SEC_WEBSOCKET_PROTOCOL).map(|value| value.to_str().unwrap());
                assert_eq!(chosen, (!protocols.is_empty()).then_some(PROTOCOL));
                Self(socket)
            }
            Err(tokio_tungstenite::tungstenite::Error::Http(response)) => return Err(response.status()),
            Err(error) => panic!("{error}"),
        };
        let first = client.next().await;
        assert_eq!(first["type"], "connected", "{first}");
        Ok((client, first))
    }
    async fn open(server: &TestServer, query: &str) -> Self {
        Self::connect(server, query, "").await.unwrap().0
    }
    async fn send(&mut self, frame: Json) {
        self.0.send(Frame::text(frame.to_string())).await.unwrap();
    }
    async fn frame(&mut self) -> Frame {
        self.0.next().await.unwrap().unwrap()
    }
    async fn next(&mut self) -> Json {
        loop {
            match self.frame().await {
                Frame::Text(text) => return serde_json::from_str(&text).unwrap(),
                Frame::Ping(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }
    /// The events until the end of the turn.
    async fn turn(&mut self) -> Vec<Json> {
        let mut events = Vec::new();
        while events.last().is_none_or(|event: &Json| event["type"] != "turn_finished") {
            events.push(self.next().await);
        }
        events
    }
}

fn types(events: &[Json]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_turn_arrives_as_events_with_positions_and_a_client_continues_after_its_last_one() {
    let server = TestServer::start("websocket: {}\n").await;
    let (mut first, connected) = Client::connect(&server, "sender=ada", "").await.unwrap();
    first.send(json!({"message": "hi", "message_id": "m1"})).await;
    let events = first.turn().await;
    assert_eq!(types(&events), ["turn_started", "user_message", "flow", "message", "flow", "turn_finished"]);
    assert_eq!((&events[1]["message_id"], &events[3]["message"]["text"]), (&json!("m1"), &json!("Hello!")));
    assert_eq!(events[3]["message"]["recipient_id"], "ada");
    drop(first);
    // A second reader has it from the position of the connection, and from that of an event only what follows.
    let after = |event: &Json| format!("sender=ada&after={}", event["position"].as_str().unwrap());
    let mut again = Client::open(&server, &after(&connected)).await;
    assert_eq!(types(&again.turn().await), types(&events));
    let mut again = Client::open(&server, &after(&events[3])).await;
    assert_eq!(types(&again.turn().await), ["flow", "turn_finished"]);
    // A repeated message has no second turn, and another one is shown to all.
    again.send(json!({"message": "hi", "message_id": "m1"})).await;
    again.send(json!({"type": "message", "message": "hi", "sender": "ada"})).await;
    assert_eq!(again.turn().await[0]["turn_id"], "t_2");
}

#[tokio::test]
async fn a_reply_without_a_client_comes_once_when_one_connects() {
    let server = TestServer::start("websocket: {}\n").await;
    server.say_unheard("ada", NAME).await;
    let mut client = Client::open(&server, "sender=ada").await;
    assert_eq!(client.next().await["message"]["text"], "Hello!");
    let mut second = Client::open(&server, "sender=ada").await;
    // A turn of another channel, such as a reminder, reaches both.
    server.say_unheard("ada", NAME).await;
    for client in [&mut client, &mut second] {
        assert_eq!(client.turn().await[0]["type"], "turn_started");
    }
    drop((client, second));
    // Both have it: a third one gets nothing of it.
    while !server.assistant.store().pending_replies(&"ada".into()).await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    let mut third = Client::open(&server, "sender=ada").await;
    third.send(json!({"type": "stop"})).await;
    assert_eq!(third.next().await, json!({"type": "stopped", "stopped": false}));
}

#[tokio::test]
async fn a_frame_that_is_no_message_is_rejected_and_the_socket_stays_open() {
    let server = TestServer::start("websocket: {metadata_bytes: 8}\n").await;
    let mut client = Client::open(&server, "sender=ada").await;
    for (frame, status, says) in [
        ("nonsense", 400, "not JSON"),
        (r#"{"mesage": "hi"}"#, 400, "did you mean `message`"),
        (r#"{"type": "dance", "message_id": "m"}"#, 400, "`dance`"),
        (r#"{"message": "hi", "sender": "bob"}"#, 400, "belongs to the sender `ada`"),
        (r#"{"message": "hi", "metadata": {"key": "value"}}"#, 413, "metadata_bytes"),
        (r#"{"type": "stop", "turn_id": 3}"#, 400, "turn_id"),
    ] {
        client.0.send(Frame::text(frame)).await.unwrap();
        let answer = client.next().await;
        assert_eq!((&answer["type"], &answer["status"]), (&json!("rejected"), &json!(status)), "{frame}: {answer}");
        assert!(answer["message"].as_str().unwrap().contains(says), "{frame}: {answer}");
    }
    client.0.send(Frame::text("x".repeat(limits::SOCKET_MESSAGE + 1))).await.unwrap();
    assert!(!matches!(client.0.next().await, Some(Ok(Frame::Text(_)))), "a frame that is too large ends the socket");
    for (query, status) in [("sender=a2a:x", 400), ("sender=ada&after=x", 400)] {
        assert_eq!(Client::connect(&server, query, "").await.err().unwrap().as_u16(), status, "{query}");
    }
}

#[tokio::test]
async fn a_page_sends_its_token_with_the_protocols_and_gets_its_own_conversation() {
    let credentials = "websocket: {auth_token: t0k, senders: [kiosk], jwt: {issuer: 'https://i', audience: me, secret: '${SECRET}'}}\n";
    let server = TestServer::start(credentials).await;
    for (query, protocols, status) in [
        ("sender=kiosk", "", 401),
        ("sender=kiosk", "segue, bearer.wrong", 401),
        ("sender=ada", "segue, bearer.t0k", 403),
    ] {
        assert_eq!(Client::connect(&server, query, protocols).await.err().unwrap().as_u16(), status, "{protocols}");
    }
    Client::connect(&server, "sender=kiosk", "segue, bearer.t0k").await.unwrap();
    let protocols = |subject| format!("segue, bearer.{}", auth::tests::signed_token(subject, SECRET));
    let (mut ada, _) = Client::connect(&server, "sender=one", &protocols("ada")).await.unwrap();
    let (mut bob, _) = Client::connect(&server, "sender=one", &protocols("bob")).await.unwrap();
    ada.send(json!({"message": "hi"})).await;
    assert_eq!(ada.turn().await[0]["sender_id"], "one");
    // The first turn of another conversation.
    bob.send(json!({"message": "hi"})).await;
    assert_eq!(bob.turn().await[0]["turn_id"], "t_1");
}

#[tokio::test]
async fn the_server_tells_its_sockets_that_it_stops_and_waits_for_them() {
    let server = TestServer::start("websocket: {}\n").await;
    let mut client = Client::open(&server, "sender=ada").await;
    let stopped = tokio::spawn(server.stop());
    let Frame::Close(Some(close)) = client.frame().await else { panic!("no close frame") };
    assert_eq!(close.code, CloseCode::Away);
    // The library answers the close frame with the next read.
    assert!(client.0.next().await.is_none());
    stopped.await.unwrap();
}
