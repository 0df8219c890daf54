//! The WebSocket channel: one socket per conversation. Frames of the client are the messages of the REST channel, and frames of the server
//! are the events of the conversation with their positions.
//!
//! A socket reads the feed of its conversation. It holds nothing for a client that does not read: the client gets what it has missed
//! from its position, or, without one, what nobody has got yet.

use std::{collections::HashSet, convert::Infallible, sync::Arc};

use async_trait::async_trait;
use axum::{
    extract::{
        FromRequestParts,
        ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code},
    },
    http::{
        self, HeaderMap, HeaderValue, Method, Request, Response, StatusCode,
        header::{AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL},
    },
    response::IntoResponse as _,
};
use bytes::Bytes;
use segue_engine::{ids::ConversationId, project::ChannelSettings};
use serde_json::{Map, Value as Json, json};

use super::{
    Body, Caller, Capabilities, Channel, ChannelService, Inbox, Markup, RestChannel, json as json_response,
    origin_policy::OriginPolicy,
    problem,
    registry::{self, ChannelFactory, ChannelSource},
    rest::{self, events},
    retryable_status,
};
use crate::{
    clock::Clock,
    context::CallContext,
    conversation::{DeliveryError, Receipt, ReplySink, TurnEvent},
    limits,
    runtime::{FeedPosition, ReceiveError, TurnEventStream},
    store::StoredReply,
};

const NAME: &str = "websocket";
/// The WebSocket protocol that a client names if it sends a token in the same header.
const PROTOCOL: &str = "segue";
/// Before the token, in the header that names the protocol: the only one that a web page can set.
const TOKEN_PREFIX: &str = "bearer.";

pub(super) const FACTORY: ChannelFactory = ChannelFactory {
    name: NAME,
    is_wanted: |_, _| false,
    open,
    place: "credentials.yml: `websocket`",
    code: registry::CODE_CANNOT_OPEN,
    is_required: false,
};

fn open(source: &ChannelSource<'_>) -> Result<Arc<dyn Channel>, String> {
    let Some(entry) = source.entry else { return Ok(Arc::new(WebSocketChannel::default())) };
    entry.check_spelling()?;
    OriginPolicy::from_channel(entry)?;
    let messages = match &entry.settings {
        ChannelSettings::WebSocket(settings) => RestChannel::new(settings)?,
        _ => RestChannel::default(),
    };
    Ok(Arc::new(WebSocketChannel { messages }))
}

/// The WebSocket channel.
#[derive(Clone, Debug, Default)]
struct WebSocketChannel {
    /// Which callers and messages are accepted: as over REST.
    messages: RestChannel,
}

#[async_trait]
impl Channel for WebSocketChannel {
    fn name(&self) -> &str {
        NAME
    }
    fn capabilities(&self) -> Capabilities {
        Capabilities { streaming: true, buttons: usize::MAX, text: None, images: true, markup: Markup::Markdown }
    }
    fn requires_authentication(&self) -> bool {
        self.messages.auth().requires_authentication()
    }
    async fn check(&self, head: &mut http::request::Parts, clock: &Arc<dyn Clock>) -> Result<(), Response<Body>> {
        if head.uri.path() == "/connect" {
            head.extensions.insert(self.authenticate(&head.headers, clock).await?);
        }
        Ok(())
    }
    fn service(&self, inbox: Inbox) -> ChannelService {
        let inbox = self.messages.inbox(inbox);
        let this = self.clone();
        ChannelService::new(tower::service_fn(move |request: Request<Bytes>| {
            let (this, inbox) = (this.clone(), inbox.clone());
            async move { Ok::<_, Infallible>(this.respond(inbox, request).await) }
        }))
    }
}

impl WebSocketChannel {
    async fn authenticate(&self, headers: &HeaderMap, clock: &Arc<dyn Clock>) -> Result<Caller, Response<Body>> {
        let with_token = token_of_protocols(headers).filter(|_| !headers.contains_key(AUTHORIZATION)).map(|token| {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, token);
            headers
        });
        let headers = with_token.as_ref().unwrap_or(headers);
        self.messages.auth().authenticate(headers, clock).await.map_err(|error| error.response("this channel"))
    }

    async fn respond(self, inbox: Inbox, request: Request<Bytes>) -> Response<Body> {
        let (mut head, _) = request.into_parts();
        match (&head.method, head.uri.path()) {
            (&Method::GET, "" | "/") => return json_response(StatusCode::OK, &json!({"status": "ok"})),
            (&Method::GET, "/connect") => {}
            (_, "/connect") => return problem(StatusCode::METHOD_NOT_ALLOWED, "connect with a WebSocket (GET)"),
            _ => return problem(StatusCode::NOT_FOUND, "unknown path; connect a WebSocket to `connect`"),
        }
        // `check` has stored the caller, if the server calls it.
        let caller = match head.extensions.remove::<Caller>() {
            Some(caller) => caller,
            None => match self.authenticate(&head.headers, inbox.clock()).await {
                Ok(caller) => caller,
                Err(response) => return response,
            },
        };
        let (mut sender, mut after) = (String::new(), None);
        for (key, value) in form_urlencoded::parse(head.uri.query().unwrap_or_default().as_bytes()) {
            match &*key {
                "sender" => sender = value.into_owned(),
                "after" => after = Some(value.into_owned()),
                _ => {}
            }
        }
        let after = match after.map(|after| after.parse::<FeedPosition>()).transpose() {
            Ok(after) => after,
            Err(error) => return problem(StatusCode::BAD_REQUEST, &format!("`after`: {error}")),
        };
        let (recipient, conversation) = match events::conversation(&self.messages, &caller, &sender) {
            Ok(found) => found,
            Err((status, error)) => return problem(status, &error),
        };
        let upgrade = match WebSocketUpgrade::from_request_parts(&mut head, &()).await {
            Ok(upgrade) => upgrade,
            Err(rejection) => return rejection.into_response(),
        };
        let events = match inbox.assistant().subscribe(&conversation, after).await {
            Ok(events) => events,
            Err(error) => {
                tracing::error!(%conversation, channel = NAME, code = error.code(), "the events cannot be read: {error}");
                return problem(StatusCode::SERVICE_UNAVAILABLE, "the events cannot be read now; connect again");
            }
        };
        let begins_now = after.is_none();
        let session = Session {
            inbox: inbox.for_caller(caller.id.as_ref()),
            messages: self.messages,
            caller,
            recipient,
            conversation,
        };
        let response = upgrade
            .protocols([PROTOCOL])
            .read_buffer_size(limits::SOCKET_BUFFER)
            .write_buffer_size(limits::SOCKET_BUFFER)
            .max_message_size(limits::SOCKET_MESSAGE)
            .max_frame_size(limits::SOCKET_MESSAGE);
        let clock = inbox.clock().clone();
        response.on_upgrade(move |socket| async move {
            // An error means that the client has left.
            let _ = session.run(Connection { socket, clock }, events, begins_now).await;
        })
    }
}

/// The token in the header that names the protocols, as the value of an `Authorization` header.
fn token_of_protocols(headers: &HeaderMap) -> Option<HeaderValue> {
    let values = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    let token = values.flat_map(|value| value.split(',')).find_map(|one| one.trim().strip_prefix(TOKEN_PREFIX))?;
    HeaderValue::try_from(format!("Bearer {token}")).ok()
}

/// A client that has left, or does not read.
struct Gone;

/// A socket. Every frame is written before the next one is made.
struct Connection {
    socket: WebSocket,
    clock: Arc<dyn Clock>,
}

impl Connection {
    async fn send(&mut self, frame: Message) -> Result<(), Gone> {
        tokio::select! {
            biased;
            sent = self.socket.send(frame) => sent.map_err(|_| Gone),
            () = self.clock.sleep(self.clock.deadline(limits::WRITE_TIMEOUT)) => Err(Gone),
        }
    }
    async fn send_json(&mut self, json: &Json) -> Result<(), Gone> {
        self.send(Message::text(json.to_string())).await
    }
    /// Ends the conversation with the client, which has [`limits::CLOSING_GRACE`] to answer.
    async fn close(mut self, code: u16, reason: &'static str) -> Result<(), Gone> {
        self.send(Message::Close(Some(CloseFrame { code, reason: reason.into() }))).await?;
        let end = self.clock.deadline(limits::CLOSING_GRACE);
        loop {
            tokio::select! {
                frame = self.socket.recv() => if !matches!(frame, Some(Ok(_))) { return Ok(()) },
                () = self.clock.sleep(end) => return Ok(()),
            }
        }
    }
}

/// The conversation of one socket.
struct Session {
    messages: RestChannel,
    inbox: Inbox,
    caller: Caller,
    recipient: Arc<str>,
    conversation: ConversationId,
}

impl Session {
    async fn run(&self, mut connection: Connection, mut events: TurnEventStream, begins_now: bool) -> Result<(), Gone> {
        let position = events.position().to_string();
        let first = json!({"type": "connected", "sender_id": &*self.recipient, "position": &position});
        connection.send_json(&first).await?;
        let sent = self.send_undelivered(&mut connection, &position, begins_now).await?;
        let clock = connection.clock.clone();
        let mut heard_at = clock.elapsed();
        loop {
            // Checked here too: a client that sends all the time has always events to come.
            if self.inbox.assistant().is_shutting_down() {
                return connection.close(close_code::AWAY, "connect again").await;
            }
            // Not biased: neither frames nor events wait until there are none of the others.
            tokio::select! {
                frame = connection.socket.recv() => {
                    heard_at = clock.elapsed();
                    let answer = match frame {
                        Some(Ok(Message::Text(text))) => self.receive(text.as_bytes()).await,
                        Some(Ok(Message::Binary(_))) => Some(rejected(StatusCode::BAD_REQUEST, "send text frames", &Json::Null)),
                        // The library answers pings, and the close frame with the next read.
                        Some(Ok(_)) => None,
                        Some(Err(_)) | None => return Ok(()),
                    };
                    if let Some(answer) = answer {
                        connection.send_json(&answer).await?;
                    }
                }
                event = events.next() => match event {
                    Ok(Some(event)) => {
                        let is_sent = event.event.complete_message().is_some_and(|(id, _)| sent.contains(id));
                        if !is_sent {
                            connection.send(self.frame(&event.event, &event.next.to_string())).await?;
                        }
                    }
                    Ok(None) => return connection.close(close_code::AWAY, "connect again").await,
                    Err(error) => {
                        tracing::warn!(channel = NAME, code = error.code(), "the events of a conversation end: {error}");
                        return connection.close(close_code::AGAIN, "connect again").await;
                    }
                },
                () = clock.sleep(clock.deadline(limits::HEARTBEAT)) => {
                    if clock.elapsed().saturating_sub(heard_at) >= limits::SOCKET_SILENCE {
                        return Err(Gone);
                    }
                    connection.send(Message::Ping(Bytes::new())).await?;
                }
            }
        }
    }

    /// An event as a frame: its JSON with the position after it.
    fn frame(&self, event: &TurnEvent, position: &str) -> Message {
        let (_, mut json) = events::encode_for_reader(&self.recipient, event);
        // Every event is a JSON object with fields, and a position has no characters that JSON escapes.
        json.pop();
        Message::text(json + ",\"position\":\"" + position + "\"}")
    }

    /// Sends the undelivered replies to a client without a position, and returns their ids. A client with a position gets them as events.
    async fn send_undelivered(
        &self,
        connection: &mut Connection,
        position: &str,
        begins_now: bool,
    ) -> Result<HashSet<Arc<str>>, Gone> {
        let assistant = self.inbox.assistant();
        let failed = |error: &crate::store::StoreError| {
            tracing::warn!(conversation = %self.conversation, code = error.code(), "undelivered replies cannot be read: {error}");
        };
        if !begins_now {
            assistant.count_as_read(&self.conversation).await.unwrap_or_else(|error| failed(&error));
            return Ok(HashSet::new());
        }
        let waiting = match assistant.undelivered(&self.conversation).await {
            Ok(waiting) => waiting,
            Err(error) => {
                failed(&error);
                return Ok(HashSet::new());
            }
        };
        for StoredReply { id, reply, kind, .. } in waiting.iter().cloned() {
            let event = TurnEvent::Message { id, message: Box::new(reply), kind };
            connection.send(self.frame(&event, position)).await?;
        }
        assistant.count_as_delivered(&self.conversation, &waiting).await;
        Ok(waiting.into_iter().map(|reply| reply.id).collect())
    }

    /// Handles a frame of the client. Returns the answer, if the frame gets one: the events of its turn follow by themselves.
    async fn receive(&self, text: &[u8]) -> Option<Json> {
        let mut fields = match rest::parse_object(text) {
            Ok(fields) => fields,
            Err(error) => return Some(rejected(StatusCode::BAD_REQUEST, &error, &Json::Null)),
        };
        let message_id = fields.get("message_id").cloned().unwrap_or_default();
        let result = match fields.shift_remove("type").as_ref().and_then(Json::as_str) {
            Some("stop") => return Some(self.stop(&fields)),
            None | Some("message") => self.accept(fields).await,
            Some(other) => {
                let other: String = other.chars().take(40).collect();
                Err((StatusCode::BAD_REQUEST, format!("`{other}` is no type of a frame; send a message or `stop`")))
            }
        };
        match result {
            Ok(None) => None,
            Ok(Some(error)) => Some(not_accepted(&error, &message_id)),
            Err((status, error)) => Some(rejected(status, &error, &message_id)),
        }
    }

    fn stop(&self, fields: &Map<String, Json>) -> Json {
        match events::turn_to_stop(fields) {
            Ok(turn) => json!({"type": "stopped", "stopped": self.inbox.interrupt(&self.conversation, turn)}),
            Err(error) => rejected(StatusCode::BAD_REQUEST, error, &Json::Null),
        }
    }

    /// Passes a message on; returns the error if it was not accepted.
    async fn accept(&self, mut fields: Map<String, Json>) -> Result<Option<ReceiveError>, rest::Rejection> {
        let bad = |error| (StatusCode::BAD_REQUEST, error);
        fields.entry("sender").or_insert_with(|| Json::from(&*self.recipient));
        let mut message = rest::message_of(fields).map_err(bad)?;
        if *self.messages.address(&self.caller, &mut message)? != *self.recipient {
            return Err(bad(format!("this socket belongs to the sender `{}`; connect another one", self.recipient)));
        }
        let sink = ReaderSink { inbox: self.inbox.clone(), conversation: self.conversation.clone() };
        Ok(self.inbox.accept(message, Box::new(sink)).await.err())
    }
}

/// The answer to a frame that was rejected.
fn rejected(status: StatusCode, error: &str, message_id: &Json) -> Json {
    json!({"type": "rejected", "message_id": message_id, "status": status.as_u16(), "message": error})
}

/// The answer to a message that was not accepted, with the time after which the client may send it again.
fn not_accepted(error: &ReceiveError, message_id: &Json) -> Json {
    let retryable = retryable_status(error);
    let status = retryable.map_or(StatusCode::INTERNAL_SERVER_ERROR, |(status, _)| status);
    let mut answer = rejected(status, error.advice(), message_id);
    if let Json::Object(answer) = &mut answer {
        answer.insert("code".to_owned(), error.code().into());
        answer.extend(retryable.map(|(_, after)| ("retry_after".to_owned(), after.as_secs().into())));
    }
    answer
}

/// The sink of a message over a socket. The socket itself reads the events; a reply is delivered if there is a reader.
struct ReaderSink {
    inbox: Inbox,
    conversation: ConversationId,
}

#[async_trait]
impl ReplySink for ReaderSink {
    fn wants_deltas(&self) -> bool {
        true
    }
    async fn send(&mut self, event: TurnEvent, _: &CallContext) -> Result<Receipt, DeliveryError> {
        match event.complete_message() {
            None => Ok(Receipt::Skipped),
            Some(_) if self.inbox.assistant().has_readers(&self.conversation) => Ok(Receipt::Delivered),
            Some(_) => Err(DeliveryError::Temporary("the client is not connected".to_owned())),
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
