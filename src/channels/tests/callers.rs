//! Two callers, every channel: the id of another caller opens nothing.
//!
//! Ada talks, and Bob sends what Ada's client has sent and got: the ids of her conversation, session, task and turn. He must neither read
//! a word of hers nor change her conversation.

use futures::StreamExt;
use segue_engine::conversation::EventKind;
use serde_json::{Value as Json, json};
use tokio_tungstenite::{connect_async, tungstenite::client::IntoClientRequest};

use super::super::{
    auth::tests::signed_token,
    registry::channel_names,
    socketio,
    websocket::tests::{SECRET, TestServer},
};
use crate::{conversation::Event, http::HttpClients};

const JWT: &str = "{issuer: 'https://i', audience: me, secret: '${SECRET}'}";
/// In every message of Ada, and in none of Bob.
const ADAS: &str = "words-of-ada";
const BOBS: &str = "words-of-bob";

/// The channels without callers of their own.
const WITHOUT_CALLERS: [(&str, &str); 1] =
    [("a2a-push", "remote agents post the progress of their own tasks, each with the token of its task")];

struct Callers {
    server: TestServer,
    http: reqwest::Client,
}

impl Callers {
    async fn request(&self, who: &str, method: &str, path: &str, headers: &[(&str, &str)], body: Json) -> (u16, Json) {
        let url = format!("http://{}{path}", self.server.address);
        let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
        let mut request = self.http.request(method, url).bearer_auth(signed_token(who, SECRET));
        request = request.header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = request.body(body.to_string()).send().await.unwrap();
        let (status, session) = (response.status().as_u16(), response.headers().get("mcp-session-id").cloned());
        let text = response.text().await.unwrap();
        assert!(who == "ada" || !text.contains(ADAS), "{path}: {text}");
        let text =
            text.lines().find_map(|line| line.strip_prefix("data: {")).map_or(text.clone(), |data| format!("{{{data}"));
        let mut json = serde_json::from_str(&text).unwrap_or_else(|_| json!(text));
        if let (Some(session), Some(json)) = (session, json.as_object_mut()) {
            json.insert("session".into(), json!(session.to_str().unwrap()));
        }
        (status, json)
    }
    async fn post(&self, who: &str, path: &str, body: Json) -> (u16, Json) {
        self.request(who, "POST", path, &[], body).await
    }

    /// Reads an event stream until it tells the end of a turn.
    async fn events(&self, who: &str, path: &str) -> String {
        let url = format!("http://{}{path}", self.server.address);
        let mut response = self.http.get(url).bearer_auth(signed_token(who, SECRET)).send().await.unwrap();
        let mut text = String::new();
        while !text.contains("turn_finished") {
            text.push_str(&String::from_utf8_lossy(&response.chunk().await.unwrap().unwrap()));
        }
        text
    }

    async fn rest(&self, channel: &str) {
        let webhook = format!("/webhooks/{channel}/webhook");
        let say = |text: &str| json!({"sender": "shared", "message": text, "message_id": "m1"});
        self.post("ada", &webhook, say(ADAS)).await;
        let own = self.id_of_ada().await;
        for body in [say(BOBS), json!({"sender": own, "message": BOBS})] {
            self.post("bob", &webhook, body).await;
        }
        if channel == "rest" {
            for format in ["deltas", "sse"] {
                self.post("bob", &format!("{webhook}?stream={format}"), say(BOBS)).await;
            }
            let events = self.events("bob", "/webhooks/rest/events?sender=shared&after=0").await;
            assert!(events.contains(BOBS) && !events.contains(ADAS), "{events}");
            let (_, stopped) =
                self.post("bob", "/webhooks/rest/stop", json!({"sender": "shared", "turn_id": "t_1"})).await;
            assert_eq!(stopped["stopped"], false);
        }
    }

    async fn openai(&self) {
        let body = |text: &str| json!({"user": "shared", "messages": [{"role": "user", "content": text}]});
        for path in ["/v1/chat/completions", "/v1/c/shared/chat/completions"] {
            let (status, _) = self.post("ada", path, body(ADAS)).await;
            assert_eq!(status, 200);
            self.post("bob", path, body(BOBS)).await;
        }
        let path = format!("/v1/c/{}/chat/completions", self.id_of_ada().await.replace(':', "%3A"));
        let (status, _) = self.post("bob", &path, body(BOBS)).await;
        assert_eq!(status, 400, "an id with the prefix of the channel is rejected");
    }

    async fn websocket(&self) {
        let mut texts = Vec::new();
        for (who, words) in [("ada", ADAS), ("bob", BOBS)] {
            let url = format!("ws://{}/webhooks/websocket/connect?sender=socket&after=0", self.server.address);
            let mut request = url.into_client_request().unwrap();
            let protocols = format!("segue, bearer.{}", signed_token(who, SECRET));
            request.headers_mut().insert("sec-websocket-protocol", protocols.parse().unwrap());
            let (mut socket, _) = connect_async(request).await.unwrap();
            let frame = tokio_tungstenite::tungstenite::Message::text(json!({"message": words}).to_string());
            futures::SinkExt::send(&mut socket, frame).await.unwrap();
            let mut text = String::new();
            while !text.contains("turn_finished") {
                text.push_str(&socket.next().await.unwrap().unwrap().to_string());
            }
            texts.push(text);
        }
        assert!(texts[0].contains(ADAS) && texts[1].contains(BOBS) && !texts[1].contains(ADAS), "{texts:?}");
    }

    async fn socketio(&self) {
        let client = async |who: &str| {
            let token = json!({"token": signed_token(who, SECRET)});
            let mut client = socketio::tests::Client::connect(&self.server, &token).await.unwrap();
            client.session("room").await;
            client
        };
        let (mut ada, mut bob) = (client("ada").await, client("bob").await);
        ada.emit("user_uttered", json!({"message": ADAS, "session_id": "room"})).await;
        ada.event().await;
        // Sent before Bob's own reply, if it came to his room.
        bob.emit("user_uttered", json!({"message": BOBS, "session_id": "room"})).await;
        bob.event().await;
        let own = self.id_of_ada().await;
        bob.emit("user_uttered", json!({"message": BOBS, "session_id": own})).await;
        bob.event().await;
    }

    async fn mcp(&self) {
        let rpc = |method: &str, params: Json| json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let accept = ("accept", "application/json, text/event-stream");
        let start = rpc(
            "initialize",
            json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}),
        );
        let session = async |who: &str| {
            let (status, result) = self.request(who, "POST", "/mcp", &[accept], start.clone()).await;
            assert_eq!(status, 200, "{result}");
            result["session"].as_str().unwrap().to_owned()
        };
        let (of_ada, of_bob) = (session("ada").await, session("bob").await);
        let call = async |who: &str, session: &str, request: Json| {
            let headers = [accept, ("mcp-session-id", session), ("mcp-protocol-version", "2025-11-25")];
            self.request(who, "POST", "/mcp", &headers, request).await
        };
        let converse = |arguments: Json| rpc("tools/call", json!({"name": "converse", "arguments": arguments}));
        let (_, said) = call("ada", &of_ada, converse(json!({"message": ADAS}))).await;
        let id = said["result"]["structuredContent"]["conversation_id"].as_str().unwrap_or_else(|| panic!("{said}"));
        let uri = format!("segue://conversation/{id}");
        let (_, transcript) = call("ada", &of_ada, rpc("resources/read", json!({"uri": uri}))).await;
        assert!(transcript.to_string().contains(ADAS), "{transcript}");
        let (status, _) = call("bob", &of_ada, rpc("tools/list", json!({}))).await;
        assert_eq!(status, 404, "her session");
        for request in [
            converse(json!({"message": BOBS, "conversation_id": id})),
            rpc("resources/read", json!({"uri": uri})),
            rpc("resources/subscribe", json!({"uri": uri})),
        ] {
            let (_, answer) = call("bob", &of_bob, request.clone()).await;
            let is_error = answer.get("error").is_some() || answer["result"]["isError"] == true;
            assert!(is_error, "{request}: {answer}");
        }
        call("bob", &of_bob, converse(json!({"message": BOBS}))).await;
    }

    async fn a2a(&self) {
        let rpc = |method: &str, params: Json| json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let message = |text: &str, more: Json| {
            let mut message = json!({"messageId": format!("m-{text}"), "role": "ROLE_USER", "parts": [{"text": text}]});
            message.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            json!({"message": message})
        };
        let call = async |who: &str, request: Json| {
            self.request(who, "POST", "/a2a", &[("a2a-version", "1.0")], request).await.1
        };
        let sent = call("ada", rpc("SendMessage", message(ADAS, json!({})))).await;
        let task = &sent["result"]["task"];
        let (id, context) =
            (task["id"].as_str().unwrap_or_else(|| panic!("{sent}")), task["contextId"].as_str().unwrap());
        let config = json!({"taskId": id, "url": "https://bob.example/push"});
        for request in [
            rpc("GetTask", json!({"id": id})),
            rpc("CancelTask", json!({"id": id})),
            rpc("SubscribeToTask", json!({"id": id})),
            rpc("CreateTaskPushNotificationConfig", config),
            rpc("ListTaskPushNotificationConfigs", json!({"taskId": id})),
            rpc("SendMessage", message(BOBS, json!({"taskId": id, "contextId": context}))),
        ] {
            let answer = call("bob", request.clone()).await;
            assert!(answer.get("error").is_some(), "{request}: {answer}");
        }
        // A context of this name is one of his own.
        call("bob", rpc("SendMessage", message(BOBS, json!({"contextId": context})))).await;
        let listed = call("bob", rpc("ListTasks", json!({"contextId": context}))).await;
        assert!(!listed.to_string().contains(id), "{listed}");
    }

    /// The conversations in which somebody has said these words.
    async fn conversations_with(&self, words: &str) -> Vec<String> {
        let store = self.server.assistant.store();
        let said = |event: &Event| matches!(&event.kind, EventKind::User(message) if message.text.contains(words));
        let mut found = Vec::new();
        for id in store.conversations(1_000).await.unwrap() {
            if store.latest_events(&id, 1_000).await.unwrap().iter().any(said) {
                found.push(id.to_string());
            }
        }
        found
    }

    /// The id that Ada's conversation has inside.
    async fn id_of_ada(&self) -> String {
        self.conversations_with(ADAS).await.pop().unwrap()
    }

    /// No conversation has messages of both.
    async fn assert_separate(&self) {
        let (of_ada, of_bob) = (self.conversations_with(ADAS).await, self.conversations_with(BOBS).await);
        assert!(!of_ada.is_empty() && !of_bob.is_empty(), "{of_ada:?} {of_bob:?}");
        assert!(of_ada.iter().all(|id| !of_bob.contains(id)), "{of_ada:?} {of_bob:?}");
    }
}

#[tokio::test]
async fn the_id_of_another_caller_opens_nothing_on_any_channel() {
    let names: Vec<&str> = channel_names().collect();
    for name in &names {
        if let Some((_, reason)) = WITHOUT_CALLERS.iter().find(|(one, _)| one == name) {
            assert!(!reason.is_empty());
            continue;
        }
        let settings = match *name {
            "callback" => format!("callback: {{url: 'http://127.0.0.1:9/', jwt: {JWT}}}\n"),
            "a2a" => "rest: {}\n".to_owned(),
            name => format!("{name}: {{jwt: {JWT}}}\n"),
        };
        let endpoints = match *name {
            "a2a" => format!("a2a_server: {{description: greets, auth: {{jwt: {JWT}}}}}\n"),
            _ => String::new(),
        };
        let server = TestServer::start_with(&settings, &endpoints).await;
        let callers = Callers { server, http: HttpClients::new().client().unwrap().clone() };
        match *name {
            "rest" | "callback" => callers.rest(name).await,
            "openai" => callers.openai().await,
            "websocket" => callers.websocket().await,
            "socketio" => callers.socketio().await,
            "mcp" => callers.mcp().await,
            "a2a" => callers.a2a().await,
            other => panic!("the channel `{other}` is not in this matrix"),
        }
        callers.assert_separate().await;
    }
}
