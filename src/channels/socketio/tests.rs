#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use futures::{SinkExt, StreamExt};
use tokio::net::TcpStream;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async, tungstenite::Message as Frame};

use super::{
    super::{
        auth,
        websocket::tests::{SECRET, TestServer},
    },
    *,
};

/// A client that speaks the protocol by hand, over a WebSocket.
pub(in crate::channels) struct Client(WebSocketStream<MaybeTlsStream<TcpStream>>);

impl Client {
    /// Connects to the namespace `/`; the error is that of the connection.
    pub(in crate::channels) async fn connect(server: &TestServer, auth: &Json) -> Result<Self, String> {
        let address = format!("ws://{}/socket.io/?EIO=4&transport=websocket", server.address);
        let mut client = Self(connect_async(address).await.unwrap().0);
        assert!(client.packet().await.starts_with('0'));
        client.0.send(Frame::text(format!("40{auth}"))).await.unwrap();
        let answer = client.packet().await;
        match answer.strip_prefix("44") {
            None => Ok(client),
            Some(error) => Err(error.to_owned()),
        }
    }
    async fn packet(&mut self) -> String {
        loop {
            match self.0.next().await {
                Some(Ok(Frame::Text(text))) if text.as_str() == "2" => {
                    self.0.send(Frame::text("3")).await.unwrap();
                }
                Some(Ok(Frame::Text(text))) => return text.to_string(),
                other => return format!("{other:?}"),
            }
        }
    }
    pub(in crate::channels) async fn emit(&mut self, event: &str, data: Json) {
        self.0.send(Frame::text(format!("42{}", json!([event, data])))).await.unwrap();
    }
    /// The next event: its name and its data.
    pub(in crate::channels) async fn event(&mut self) -> (String, Json) {
        let packet = self.packet().await;
        let event: Vec<Json> = serde_json::from_str(packet.strip_prefix("42").expect(&packet)).unwrap();
        (event[0].as_str().unwrap().to_owned(), event.get(1).cloned().unwrap_or_default())
    }
    /// Asks for a session and reads the confirmation.
    pub(in crate::channels) async fn session(&mut self, id: &str) {
        self.emit("session_request", json!({"session_id": id})).await;
        assert_eq!(self.event().await, ("session_confirm".to_owned(), json!(id)));
    }
}

fn hello() -> (String, Json) {
    let reply = json!({"content_type": "text", "title": "Yes", "payload": "/yes"});
    ("bot_uttered".to_owned(), json!({"text": "Hello!", "quick_replies": [reply]}))
}

#[tokio::test]
async fn a_session_survives_its_connection_and_gets_what_it_missed_once() {
    let server = TestServer::start("socketio: {session_persistence: true}\n").await;
    let mut client = Client::connect(&server, &Json::Null).await.unwrap();
    client.session("s1").await;
    client.emit("user_uttered", json!({"message": "hi", "session_id": "s1"})).await;
    assert_eq!(client.event().await, hello());
    client.0.close(None).await.unwrap();
    while client.0.next().await.is_some() {}
    // As a reminder does while no client is there.
    server.say_unheard("sio:s1", NAME).await;
    let mut again = Client::connect(&server, &Json::Null).await.unwrap();
    again.session("s1").await;
    assert_eq!(again.event().await, hello());
    // A client that is there gets it at once, in all its tabs, and a message of the user without `session_id` belongs to its session.
    let mut tab = Client::connect(&server, &Json::Null).await.unwrap();
    tab.session("s1").await;
    server.say_unheard("sio:s1", NAME).await;
    assert_eq!((again.event().await, tab.event().await), (hello(), hello()));
    tab.emit("user_uttered", json!({"message": "hi"})).await;
    assert_eq!((again.event().await, tab.event().await), (hello(), hello()));
    let conversation = server.assistant.conversation(&"sio:s1".into()).await.unwrap();
    assert_eq!(&*conversation.route, NAME);
}

#[tokio::test]
async fn without_persistence_a_connection_is_a_conversation() {
    let server = TestServer::start("socketio:\n  namespace: chat\n").await;
    let address = format!("ws://{}/socket.io/?EIO=4&transport=websocket", server.address);
    let mut client = Client(connect_async(address).await.unwrap().0);
    client.packet().await;
    client.0.send(Frame::text("40/chat,")).await.unwrap();
    assert!(client.packet().await.starts_with("40/chat,"));
    client.0.send(Frame::text(r#"42/chat,["session_request"]"#)).await.unwrap();
    let confirm = client.packet().await;
    assert!(confirm.starts_with(r#"42/chat,["session_confirm",""#) && confirm.len() == 62, "{confirm}");
    client.0.send(Frame::text(r#"42/chat,1["user_uttered",{"message":"hi"}]"#)).await.unwrap();
    let answers = [client.packet().await, client.packet().await];
    assert!(answers.iter().any(|answer| answer == r#"43/chat,1[{"status":"ok"}]"#), "{answers:?}");
    assert!(answers.iter().any(|answer| answer.contains("Hello!")), "{answers:?}");
}

#[tokio::test]
async fn a_message_that_is_not_accepted_is_answered_with_an_error() {
    let server = TestServer::start("socketio: {session_persistence: true, metadata_bytes: 8}\n").await;
    let mut client = Client::connect(&server, &Json::Null).await.unwrap();
    for (data, status, says) in [
        (json!({"message": "hi"}), 400, "session_request"),
        (json!("hi"), 400, "object"),
        (json!({"message": "hi", "session_id": "a2a:x"}), 400, "`a2a:`"),
        (json!({"message": "hi", "session_id": "s", "metadata": "{"}), 400, "metadata"),
        (json!({"message": "hi", "session_id": "s", "metadata": r#"{"key": "value"}"#}), 413, "metadata_bytes"),
    ] {
        client.emit("user_uttered", data.clone()).await;
        let (event, error) = client.event().await;
        assert_eq!((event.as_str(), &error["status"]), (ERROR_EVENT, &json!(status)), "{data}: {error}");
        assert!(error["message"].as_str().unwrap().contains(says), "{data}: {error}");
    }
}

#[tokio::test]
async fn a_client_needs_its_token_to_connect_and_its_session_belongs_to_its_caller() {
    let server = TestServer::start("socketio: {session_persistence: true, jwt_key: '${SECRET}'}\n").await;
    for auth in [Json::Null, json!({}), json!({"token": "wrong"})] {
        let error = Client::connect(&server, &auth).await.err().unwrap();
        assert!(error.contains("message"), "{error}");
    }
    let token = |subject| json!({"token": auth::tests::signed_token(subject, SECRET)});
    let mut ada = Client::connect(&server, &token("ada")).await.unwrap();
    ada.session("one").await;
    ada.emit("user_uttered", json!({"message": "hi"})).await;
    assert_eq!(ada.event().await, hello());
    let mut bob = Client::connect(&server, &token("bob")).await.unwrap();
    bob.session("one").await;
    ada.emit("user_uttered", json!({"message": "hi"})).await;
    assert_eq!(ada.event().await, hello());
    bob.emit("user_uttered", json!({})).await;
    assert_eq!(bob.event().await.0, ERROR_EVENT, "the session of another caller sends it nothing");
}

#[tokio::test]
async fn text_can_be_streamed_and_ends_with_the_whole_message() {
    let server = TestServer::start("socketio: {session_persistence: true, stream: true}\n").await;
    let mut client = Client::connect(&server, &Json::Null).await.unwrap();
    client.session("s1").await;
    client.emit("user_uttered", json!({"message": "hi"})).await;
    let (event, data) = client.event().await;
    assert_eq!((event.as_str(), &data["text"]), ("bot_uttered", &json!("Hello!")));
    assert!(data["metadata"]["id"].is_string(), "{data}");
}

#[tokio::test]
async fn clients_are_disconnected_when_the_server_stops() {
    let server = TestServer::start("socketio: {}\n").await;
    let mut client = Client::connect(&server, &Json::Null).await.unwrap();
    let stopped = tokio::spawn(server.stop());
    // A packet that ends the connection to the namespace, then that of the connection itself.
    while client.packet().await.starts_with('4') {}
    drop(client);
    stopped.await.unwrap();
}

#[test]
fn a_reply_has_the_payloads_of_rasa() {
    let reply = |json: Json| payloads(&serde_json::from_value(json).unwrap());
    assert_eq!(reply(json!({"text": "One\n\ntwo"})), [json!({"text": "One"}), json!({"text": "two"})]);
    let button = json!({"title": "Go", "payload": "/go", "type": "postback"});
    let quick = json!({"content_type": "text", "title": "Go", "payload": "/go", "type": "postback"});
    assert_eq!(
        reply(json!({"text": "One\n\ntwo", "buttons": [button]})),
        [json!({"text": "One"}), json!({"text": "two", "quick_replies": [quick]})]
    );
    assert_eq!(reply(json!({"custom": {"data": {"type": "csat"}, "room": "x"}})), [json!({"type": "csat"})]);
    assert_eq!(reply(json!({"custom": {"type": "csat"}})), [json!({"type": "csat"})]);
    assert_eq!(
        reply(json!({"image": "https://x/y.png", "attachment": {"type": "file"}, "elements": [{"title": "A"}]})),
        [
            json!({"attachment": {"type": "image", "payload": {"src": "https://x/y.png"}}}),
            json!({"attachment": {"type": "file"}}),
            json!({"attachment": {"type": "template", "payload": {"template_type": "generic", "elements": {"title": "A"}}}}),
        ]
    );
}
