//! The Socket.IO channel, compatible with Rasa's and with chat widgets for Rasa. The protocol itself is `socketioxide`'s.
//!
//! A conversation is a room. A reply goes to the sockets in its room; if there is none, it waits in the outbox until a client asks for
//! its session again. What waits for a client that does not read is bounded, and waiting for it holds no turn up.

use std::{borrow::Cow, convert::Infallible, future::ready, sync::Arc};

use async_trait::async_trait;
use axum::http::{
    HeaderValue, Method, Request, Response, StatusCode,
    header::{AUTHORIZATION, RETRY_AFTER},
};
use bytes::Bytes;
use segue_engine::{
    conversation::Reply,
    ids::ConversationId,
    project::{ChannelSettings, SocketIoSettings},
};
use serde_json::{Map, Value as Json, json};
use socketioxide::{
    SocketIo,
    extract::{AckSender, SocketRef, TryData},
    handler::ConnectHandler as _,
};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tower::{Service as _, ServiceExt as _};

use super::{
    Body, Caller, Capabilities, Channel, ChannelService, Inbox, Markup, RestChannel, Routes, RunError, encode,
    json as json_response,
    origin_policy::OriginPolicy,
    problem,
    registry::{self, ChannelFactory, ChannelSource},
    rest,
};
use crate::{
    context::CallContext,
    conversation::{DeliveryError, Receipt, ReplySink, TurnEvent},
    limits,
    runtime::IncomingMessage,
};

const NAME: &str = "socketio";
/// Before the session ids in the ids of conversations.
const PREFIX: &str = "sio";
/// The event of a message that was not accepted.
const ERROR_EVENT: &str = "error";

pub(super) const FACTORY: ChannelFactory = ChannelFactory {
    name: NAME,
    is_wanted: |_, _| false,
    open,
    place: "credentials.yml: `socketio`",
    code: registry::CODE_CANNOT_OPEN,
    is_required: false,
};

fn open(source: &ChannelSource<'_>) -> Result<Arc<dyn Channel>, String> {
    let entry = source.entry.ok_or("add `socketio:` to credentials.yml")?;
    entry.check_spelling()?;
    OriginPolicy::from_channel(entry)?;
    match &entry.settings {
        ChannelSettings::SocketIo(settings) => Ok(Arc::new(SocketIoChannel::new(settings.clone())?)),
        _ => Err("the settings of `socketio` are missing".to_owned()),
    }
}

/// The Socket.IO channel.
struct SocketIoChannel {
    /// Which callers and messages are accepted: as over REST.
    messages: RestChannel,
    rooms: Rooms,
    /// The server's end of the protocol.
    engine: ChannelService,
    /// Sessions of the protocol, which outlive the requests of a client without a WebSocket.
    sessions: Arc<Semaphore>,
}

/// The rooms of the conversations, and how messages are sent to them. Cheap to clone.
#[derive(Clone)]
struct Rooms {
    io: SocketIo,
    settings: Arc<SocketIoSettings>,
}

impl SocketIoChannel {
    fn new(mut settings: SocketIoSettings) -> Result<Self, String> {
        for (key, path) in [("namespace", &mut settings.namespace), ("socketio_path", &mut settings.path)] {
            let trimmed = path.trim_matches('/');
            if trimmed.contains(|c: char| !c.is_ascii_alphanumeric() && !"-_./".contains(c)) {
                return Err(format!("`{key}` may have letters, digits and `-_./` only"));
            }
            *path = format!("/{trimmed}");
        }
        if settings.path == "/" {
            return Err("`socketio_path` needs a name, such as `/socket.io`".to_owned());
        }
        let (service, io) = SocketIo::builder()
            .req_path(settings.path.clone())
            .max_payload(limits::SOCKET_MESSAGE as u64)
            .max_buffer_size(limits::SOCKET_QUEUE)
            .connect_timeout(limits::HTTP_HEAD_TIMEOUT)
            .ws_read_buffer_size(limits::SOCKET_BUFFER)
            .ws_max_message_size(limits::SOCKET_MESSAGE)
            .ws_max_frame_size(limits::SOCKET_MESSAGE)
            .build_svc();
        let engine = ChannelService::new(tower::service_fn(move |request: Request<Bytes>| {
            let answered = service.clone().call(request.map(Body::from));
            async move { answered.await.map(|response| response.map(Body::new)) }
        }));
        Ok(Self {
            messages: RestChannel::new(&settings.messages)?,
            rooms: Rooms { io, settings: Arc::new(settings) },
            engine,
            sessions: Arc::new(Semaphore::new(limits::CONNECTIONS)),
        })
    }
}

#[async_trait]
impl Channel for SocketIoChannel {
    fn name(&self) -> &str {
        NAME
    }
    fn routes(&self) -> Routes {
        let path = &self.rooms.settings.path;
        let health = format!("/webhooks/{NAME}");
        Routes::Paths(vec![path.clone(), format!("{path}/"), health.clone(), health + "/"])
    }
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            streaming: self.rooms.settings.streams,
            buttons: usize::MAX,
            text: None,
            images: true,
            markup: Markup::Markdown,
        }
    }
    fn requires_authentication(&self) -> bool {
        self.messages.auth().requires_authentication()
    }
    fn authentication_advice(&self) -> String {
        "set `auth_token: ${…}`, `jwt: …` or `jwt_key: ${…}` under `socketio:` in credentials.yml".to_owned()
    }
    fn service(&self, inbox: Inbox) -> ChannelService {
        let inbox = self.messages.inbox(inbox);
        let client = Arc::new(ClientRules { messages: self.messages.clone(), rooms: self.rooms.clone(), inbox });
        let authenticating = client.clone();
        let connect = move |socket: SocketRef| {
            client.start(socket);
            ready(())
        };
        let authenticate = move |socket: SocketRef, TryData(auth): TryData<Json>| {
            let client = authenticating.clone();
            async move { client.authenticate(&socket, auth.ok()).await }
        };
        self.rooms.io.ns(self.rooms.settings.namespace.clone(), connect.with(authenticate));
        let (engine, sessions) = (self.engine.clone(), self.sessions.clone());
        ChannelService::new(tower::service_fn(move |request| {
            let (engine, sessions) = (engine.clone(), sessions.clone());
            async move { respond(engine, &sessions, request).await }
        }))
    }
    async fn run(&self, _: Inbox, stop: CancellationToken) -> Result<(), RunError> {
        stop.cancelled().await;
        self.rooms.io.close().await;
        Ok(())
    }
    fn sink(&self, to: &ConversationId) -> Option<Box<dyn ReplySink>> {
        (!self.rooms.sockets(to.as_str()).is_empty()).then(|| self.rooms.sink(to.as_str()))
    }
}

async fn respond(
    engine: ChannelService,
    sessions: &Arc<Semaphore>,
    mut request: Request<Bytes>,
) -> Result<Response<Body>, Infallible> {
    if request.uri().path().trim_end_matches('/') == format!("/webhooks/{NAME}") {
        return Ok(match *request.method() {
            Method::GET => json_response(StatusCode::OK, &json!({"status": "ok"})),
            _ => problem(StatusCode::METHOD_NOT_ALLOWED, "send messages over Socket.IO"),
        });
    }
    let query = request.uri().query().unwrap_or_default();
    if !query.split('&').any(|pair| pair.starts_with("sid=")) {
        // A new session, which keeps the head of its first request, and so its place, until it ends.
        let Ok(place) = sessions.clone().try_acquire_owned() else {
            let mut response = problem(StatusCode::SERVICE_UNAVAILABLE, "too many clients are connected");
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
            return Ok(response);
        };
        request.extensions_mut().insert(Arc::new(place));
    }
    engine.oneshot(request).await
}

/// A request of a client.
enum ClientRequest {
    /// It wants to have a session.
    Session(Json),
    /// A message of its user.
    Message(Json, AckSender),
}

/// What is the same for all clients.
struct ClientRules {
    messages: RestChannel,
    rooms: Rooms,
    inbox: Inbox,
}

/// The session of a client.
struct Session {
    /// Its id, which the client knows.
    id: String,
    conversation: String,
}

impl ClientRules {
    /// Accepts a client by the token with which it connects.
    async fn authenticate(&self, socket: &SocketRef, auth: Option<Json>) -> Result<(), Cow<'static, str>> {
        let mut headers = socket.req_parts().headers.clone();
        let token = auth.as_ref().and_then(|auth| auth.get("token")).and_then(Json::as_str);
        if let Some(token) = token.and_then(|token| HeaderValue::try_from(format!("Bearer {token}")).ok()) {
            headers.insert(AUTHORIZATION, token);
        }
        let caller = self.messages.auth().authenticate(&headers, self.inbox.clock()).await;
        match caller {
            Ok(caller) => {
                socket.extensions.insert(caller);
                Ok(())
            }
            Err(error) => Err(error.reason()),
        }
    }

    /// Serves a client that has connected. Its requests are handled one after the other.
    fn start(self: &Arc<Self>, socket: SocketRef) {
        let (queue, requests) = mpsc::channel(limits::SOCKET_REQUESTS);
        let sessions = queue.clone();
        socket.on("session_request", move |socket: SocketRef, TryData(data): TryData<Json>| {
            enqueue(&socket, &sessions, ClientRequest::Session(data.unwrap_or_default()));
            ready(())
        });
        let event = self.rooms.settings.user_event.clone();
        socket.on(event, move |socket: SocketRef, TryData(data): TryData<Json>, ack: AckSender| {
            enqueue(&socket, &queue, ClientRequest::Message(data.unwrap_or_default(), ack));
            ready(())
        });
        let gone = CancellationToken::new();
        let has_gone = gone.clone();
        socket.on_disconnect(move || {
            has_gone.cancel();
            ready(())
        });
        let this = self.clone();
        tokio::spawn(gone.run_until_cancelled_owned(async move { this.serve(&socket, requests).await }));
    }

    async fn serve(&self, socket: &SocketRef, mut requests: mpsc::Receiver<ClientRequest>) {
        let caller = socket.extensions.get::<Caller>().unwrap_or_default();
        let mut session = None;
        if !self.rooms.settings.persists_sessions {
            session = self.join(socket, &caller, socket.id.to_string()).ok();
        }
        while let Some(request) = requests.recv().await {
            let result = match request {
                ClientRequest::Session(data) => self.confirm(socket, &caller, &mut session, &data),
                ClientRequest::Message(data, ack) => {
                    let result = self.receive(socket, &caller, &mut session, data).await;
                    let answer = result.as_ref().err().cloned().unwrap_or_else(|| json!({"status": "ok"}));
                    // Without an acknowledgement to answer, this does nothing.
                    let _ = ack.send(&answer);
                    result
                }
            };
            if let Err(error) = result {
                let _ = socket.emit(ERROR_EVENT, &error);
            }
        }
    }

    /// Gives a client the session that it asks for, or a new one, and what it has missed.
    fn confirm(
        &self,
        socket: &SocketRef,
        caller: &Caller,
        session: &mut Option<Session>,
        data: &Json,
    ) -> Result<(), Json> {
        let id = match data.get("session_id") {
            Some(Json::String(id)) if !id.is_empty() => id.clone(),
            Some(Json::Number(id)) => id.to_string(),
            _ => uuid::Uuid::new_v4().simple().to_string(),
        };
        let joined = match self.rooms.settings.persists_sessions {
            true => Some(self.join(socket, caller, id.clone()).map_err(|error| error_json(400, &error))?),
            false => None,
        };
        let _ = socket.emit("session_confirm", &id);
        if let Some(joined) = joined {
            self.inbox.assistant().deliver_soon(&joined.conversation.as_str().into());
            *session = Some(joined);
        }
        Ok(())
    }

    /// Puts a client into the room of a session, and only there.
    fn join(&self, socket: &SocketRef, caller: &Caller, id: String) -> Result<Session, String> {
        rest::check_sender(&id)?;
        let conversation = match &caller.id {
            Some(caller) => format!("{PREFIX}@{caller}:{id}"),
            None => format!("{PREFIX}:{id}"),
        };
        socket.leave_all();
        socket.join(conversation.clone());
        Ok(Session { id, conversation })
    }

    async fn receive(
        &self,
        socket: &SocketRef,
        caller: &Caller,
        session: &mut Option<Session>,
        data: Json,
    ) -> Result<(), Json> {
        let bad = |error: String| error_json(400, &error);
        let mut fields = match data {
            Json::Object(fields) => fields,
            _ => return Err(bad("a message must be an object with `message`".to_owned())),
        };
        let id = fields.shift_remove("session_id").and_then(|id| id.as_str().map(str::to_owned));
        if self.rooms.settings.persists_sessions
            && let Some(id) = id.filter(|id| !id.is_empty())
            && session.as_ref().is_none_or(|session| session.id != id)
        {
            *session = Some(self.join(socket, caller, id).map_err(bad)?);
        }
        let Some(session) = session else {
            tracing::warn!(channel = NAME, "a message without a session is dropped; the client must send `session_id`");
            return Err(bad("send `session_request` first, or `session_id` with the message".to_owned()));
        };
        let mut message = self.message(fields, &session.id).map_err(bad)?;
        self.messages.check_metadata(&message).map_err(|(status, error)| error_json(status.as_u16(), &error))?;
        message.conversation = session.conversation.as_str().into();
        let sink = self.rooms.sink(&session.conversation);
        let accepted = self.inbox.for_caller(caller.id.as_ref()).accept(message, sink).await;
        accepted.map(drop).map_err(|error| {
            let mut answer =
                error_json(super::retryable_status(&error).map_or(500, |it| it.0.as_u16()), error.advice());
            if let Json::Object(answer) = &mut answer {
                answer.insert("code".to_owned(), error.code().into());
            }
            answer
        })
    }

    /// The message with these fields. The metadata may be a map as JSON text.
    fn message(&self, mut fields: Map<String, Json>, session: &str) -> Result<IncomingMessage, String> {
        let metadata = match fields.shift_remove(&self.rooms.settings.metadata_key) {
            Some(Json::String(text)) if text.trim().is_empty() => Json::Null,
            Some(Json::String(text)) => {
                serde_json::from_str(&text).map_err(|_| "the metadata is not JSON".to_owned())?
            }
            metadata => metadata.unwrap_or_default(),
        };
        let mut own = Map::from_iter([("sender".to_owned(), session.into()), ("metadata".to_owned(), metadata)]);
        own.extend(["message", "message_id"].iter().filter_map(|key| fields.shift_remove_entry(*key)));
        rest::message_of(own)
    }
}

/// Puts a request of a client into its queue, or tells it that the queue is full.
fn enqueue(socket: &SocketRef, queue: &mpsc::Sender<ClientRequest>, request: ClientRequest) {
    if let Err(mpsc::error::TrySendError::Full(request)) = queue.try_send(request) {
        let error = error_json(429, "the messages before it are not accepted yet; send it again");
        if let ClientRequest::Message(_, ack) = request {
            let _ = ack.send(&error);
        }
        let _ = socket.emit(ERROR_EVENT, &error);
    }
}

fn error_json(status: u16, message: &str) -> Json {
    json!({"status": status, "message": message})
}

impl Rooms {
    /// The sockets in the room of a conversation.
    fn sockets(&self, conversation: &str) -> Vec<SocketRef> {
        let namespace = self.io.of(&self.settings.namespace);
        namespace.map(|it| it.within(conversation.to_owned()).sockets()).unwrap_or_default()
    }
    fn sink(&self, conversation: &str) -> Box<dyn ReplySink> {
        Box::new(RoomSink { rooms: self.clone(), conversation: conversation.to_owned(), has_failed: false })
    }
    /// Sends an event to the sockets of a conversation; whether one has taken it. None is waited for.
    fn emit(&self, conversation: &str, event: &str, data: &Json) -> bool {
        let mut is_taken = false;
        for socket in self.sockets(conversation) {
            is_taken |= socket.emit(event, data).is_ok();
        }
        is_taken
    }
}

/// Sends the replies of a conversation to its room.
struct RoomSink {
    rooms: Rooms,
    conversation: String,
    /// A reply was not delivered. Those after it wait in the outbox too, so that they stay in order.
    has_failed: bool,
}

#[async_trait]
impl ReplySink for RoomSink {
    fn wants_deltas(&self) -> bool {
        // Complete messages are then sent as soon as they are there, such as a filler before the result.
        true
    }
    async fn send(&mut self, event: TurnEvent, _: &CallContext) -> Result<Receipt, DeliveryError> {
        let streams = self.rooms.settings.streams;
        let emit = |event: &str, data: &Json| self.rooms.emit(&self.conversation, event, data);
        let (id, message) = match event {
            TurnEvent::MessageStart { id, source, .. } if streams => {
                emit("bot_message_start", &json!({"id": &*id, "source": &*source}));
                return Ok(Receipt::Skipped);
            }
            TurnEvent::MessageDelta { id, text } if streams => {
                emit("bot_message_delta", &json!({"id": &*id, "text": &*text}));
                return Ok(Receipt::Skipped);
            }
            TurnEvent::MessageEnd { interrupted: true, .. } if !streams => return Ok(Receipt::Skipped),
            TurnEvent::MessageEnd { id, message, interrupted, .. } => {
                if streams {
                    emit("bot_message_end", &json!({"id": &*id, "interrupted": interrupted}));
                }
                (id, message)
            }
            TurnEvent::Message { id, message, .. } => (id, message),
            _ => return Ok(Receipt::Skipped),
        };
        if !self.has_failed {
            let mut payloads = payloads(&message);
            if streams {
                payloads.iter_mut().for_each(|payload| add_id(payload, &id));
            }
            self.has_failed = !payloads.iter().all(|payload| emit(&self.rooms.settings.bot_event, payload));
        }
        match self.has_failed {
            true => Err(DeliveryError::Temporary("no client of the session takes it".to_owned())),
            false => Ok(Receipt::Delivered),
        }
    }
}

fn add_id(payload: &mut Json, id: &str) {
    if let Json::Object(fields) = payload {
        let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
        if let Json::Object(metadata) = metadata {
            metadata.insert("id".to_owned(), id.into());
        }
    }
}

/// The payloads of a reply, as Rasa sends them: texts, the last of which has the buttons as quick replies, then everything else.
fn payloads(reply: &Reply) -> Vec<Json> {
    let text = reply.text.as_deref().unwrap_or_default();
    let mut out: Vec<Json> = encode::paragraphs(text).map(|text| json!({"text": text})).collect();
    let buttons = quick_replies(reply);
    if !buttons.is_empty() {
        if out.is_empty() {
            out.push(json!({"text": ""}));
        }
        if let Some(Json::Object(last)) = out.last_mut() {
            last.insert("quick_replies".to_owned(), Json::Array(buttons));
        }
    }
    out.extend(reply.custom.as_ref().map(|custom| match custom.get("data") {
        // In Rasa these are the arguments of the function that sends an event.
        Some(data) => data.clone(),
        None => custom.clone(),
    }));
    out.extend(reply.image.as_ref().map(|image| json!({"attachment": {"type": "image", "payload": {"src": image}}})));
    out.extend(reply.attachment.as_ref().map(|attachment| json!({"attachment": attachment})));
    out.extend(reply.elements.iter().map(|element| {
        let payload = json!({"template_type": "generic", "elements": element});
        json!({"attachment": {"type": "template", "payload": payload}})
    }));
    out
}

fn quick_replies(reply: &Reply) -> Vec<Json> {
    let as_quick_reply = |mut button: Json| {
        if let Json::Object(fields) = &mut button {
            fields.shift_insert(0, "content_type".to_owned(), "text".into());
        }
        button
    };
    if !reply.quick_replies.is_empty() {
        return reply.quick_replies.iter().cloned().map(as_quick_reply).collect();
    }
    reply.buttons.iter().filter_map(|button| serde_json::to_value(button).ok()).map(as_quick_reply).collect()
}

#[cfg(test)]
pub(super) mod tests;
