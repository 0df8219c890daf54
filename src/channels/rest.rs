//! The REST channel, compatible with Rasa's: each request contains one message, and the response contains the replies, complete or as a
//! stream. Besides, a caller can read the events of a conversation and stop its running turn (`events.rs`).

mod events;

use std::{convert::Infallible, sync::Arc, time::Duration};

use async_trait::async_trait;
use axum::http::{
    self, HeaderMap, Method, Request, Response, StatusCode,
    header::{ACCEPT, RETRY_AFTER},
};
use bytes::Bytes;
use segue_base::json::from_slice_lossy;
use segue_engine::{
    finding::did_you_mean,
    project::{ChannelSettings, RestSettings, WhileBusy},
};
use serde_json::{Map, Value as Json, json};

use super::{
    Authenticator, Body, Caller, Capabilities, Channel, ChannelService, Inbox, Markup, RESERVED_PREFIXES, encode, json,
    origin_policy::OriginPolicy,
    problem,
    registry::{self, ChannelFactory, ChannelSource},
    stream,
    stream_sink::{self, StreamFormat},
};
use crate::{
    clock::Clock,
    conversation::AcceptAllSink,
    limits,
    runtime::{IncomingMessage, ReceiveError},
};

/// The response header with the error code of a turn. The status stays 200 if the message got a turn.
pub const TURN_ERROR: &str = "x-turn-error";

const NAME: &str = RestChannel::NAME;

pub(super) const FACTORY: ChannelFactory = ChannelFactory {
    name: NAME,
    is_wanted: |_, _| false,
    open,
    place: "credentials.yml: `rest`",
    code: registry::CODE_CANNOT_OPEN,
    is_required: false,
};

fn open(source: &ChannelSource<'_>) -> Result<Arc<dyn Channel>, String> {
    let Some(entry) = source.entry else { return Ok(Arc::new(RestChannel::default())) };
    entry.check_spelling()?;
    OriginPolicy::from_channel(entry)?;
    match &entry.settings {
        ChannelSettings::Rest(settings) => Ok(Arc::new(RestChannel::new(settings)?)),
        ChannelSettings::Mcp(_) | ChannelSettings::Other(_) => Ok(Arc::new(RestChannel::default())),
    }
}

/// The REST channel.
#[derive(Clone, Debug, Default)]
pub struct RestChannel {
    auth: Authenticator,
    /// The sender ids that a caller with the fixed token may use; empty: any. An entry that ends in `*` matches a prefix.
    senders: Vec<String>,
    /// Whether messages such as `/SetSlots(…)` are ordinary text.
    refuses_payloads: bool,
    /// The maximum size of `metadata` in bytes; [`limits::METADATA`] if not set.
    max_metadata: Option<usize>,
    while_busy: WhileBusy,
}

impl RestChannel {
    /// The name of the channel.
    pub const NAME: &str = "rest";

    /// A channel with the settings of `credentials.yml`.
    ///
    /// # Errors
    /// A setting is invalid; the message contains the fix.
    pub fn new(settings: &RestSettings) -> Result<Self, String> {
        let max_metadata = settings.metadata_bytes.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        if max_metadata.is_some_and(|bytes| bytes > limits::HTTP_BODY) {
            return Err(format!("`metadata_bytes` must be a whole number up to {}", limits::HTTP_BODY));
        }
        Ok(Self {
            auth: Authenticator::from_settings(&settings.auth)?,
            senders: settings.senders.clone(),
            refuses_payloads: settings.refuses_payloads,
            max_metadata,
            while_busy: settings.while_busy,
        })
    }

    /// Whether a caller may use a sender id. A caller with a JWT may use any: its conversations are separate from those of others.
    fn may_use_sender(&self, caller: &Caller, sender: &str) -> bool {
        let matches =
            |entry: &String| entry.strip_suffix('*').map_or(sender == entry, |prefix| sender.starts_with(prefix));
        caller.id.is_some() || self.senders.is_empty() || self.senders.iter().any(matches)
    }

    async fn respond(&self, inbox: Inbox, request: Request<Bytes>) -> Response<Body> {
        let (mut head, body) = request.into_parts();
        let path = head.uri.path();
        match (&head.method, path) {
            (&Method::GET, "" | "/") => return json(StatusCode::OK, &json!({"status": "ok"})),
            (&Method::POST, "/webhook" | "/stop") | (&Method::GET, "/events") => {}
            (_, "/webhook") => return problem(StatusCode::METHOD_NOT_ALLOWED, "send messages to this path with POST"),
            (_, "/stop") => return problem(StatusCode::METHOD_NOT_ALLOWED, "stop a turn with POST"),
            (_, "/events") => return problem(StatusCode::METHOD_NOT_ALLOWED, "read the events with GET"),
            _ => return problem(StatusCode::NOT_FOUND, "unknown path; send messages to `webhook`"),
        }
        // `check` has stored the caller, if the server calls it.
        let caller = match head.extensions.remove::<Caller>() {
            Some(caller) => Ok(caller),
            None => self.auth.authenticate(&head.headers, inbox.clock()).await,
        };
        let caller = match caller {
            Ok(caller) => caller,
            Err(error) => return error.response("this channel"),
        };
        match path {
            "/events" => events::read(self, &inbox, &caller, &head).await,
            "/stop" => events::stop(self, &inbox, &caller, &body),
            _ => self.receive(inbox, caller, &head, &body).await,
        }
    }

    async fn receive(&self, inbox: Inbox, caller: Caller, head: &http::request::Parts, body: &[u8]) -> Response<Body> {
        let mut message = match parse_message(body, &head.headers) {
            Ok(message) => message,
            Err(error) => return problem(StatusCode::BAD_REQUEST, &error),
        };
        let size = metadata_size(&message.metadata);
        let max = self.max_metadata.unwrap_or(limits::METADATA);
        if size > max {
            let error = format!("`metadata` has {size} bytes; this channel accepts {max} (`metadata_bytes`)");
            return problem(StatusCode::PAYLOAD_TOO_LARGE, &error);
        }
        let recipient = recipient(message.conversation.as_str());
        message.conversation = match self.conversation_of(&caller, &recipient) {
            Ok(conversation) => conversation.into(),
            Err((status, error)) => return problem(status, &error),
        };
        let inbox = inbox.for_caller(caller.id.as_ref());
        match requested_stream_format(head.uri.query(), &head.headers) {
            None => respond_with_json(inbox, message, recipient).await,
            Some(format) => respond_with_stream(inbox, message, recipient, format).await,
        }
    }

    /// The conversation of a recipient, if the caller may use it.
    fn conversation_of(&self, caller: &Caller, recipient: &str) -> Result<String, Rejection> {
        if self.may_use_sender(caller, recipient) {
            Ok(conversation_id(recipient, caller))
        } else {
            Err((StatusCode::FORBIDDEN, "this token may not be used for this `sender`".to_owned()))
        }
    }
}

/// The status and the text with which a request is rejected.
type Rejection = (StatusCode, String);

#[async_trait]
impl Channel for RestChannel {
    fn name(&self) -> &str {
        NAME
    }
    fn capabilities(&self) -> Capabilities {
        Capabilities { streaming: true, buttons: true, images: true, markup: Markup::Markdown }
    }
    fn requires_authentication(&self) -> bool {
        self.auth.requires_authentication()
    }
    async fn check(&self, head: &mut http::request::Parts, clock: &Arc<dyn Clock>) -> Result<(), Response<Body>> {
        if matches!(head.uri.path(), "/webhook" | "/events" | "/stop") {
            let caller = self.auth.authenticate(&head.headers, clock).await;
            head.extensions.insert(caller.map_err(|error| error.response("this channel"))?);
        }
        Ok(())
    }
    fn service(&self, inbox: Inbox) -> ChannelService {
        let inbox = inbox.with_payloads(!self.refuses_payloads).while_busy(self.while_busy);
        let this = Arc::new(self.clone());
        ChannelService::new(tower::service_fn(move |request| {
            let (this, inbox) = (this.clone(), inbox.clone());
            async move { Ok::<_, Infallible>(this.respond(inbox, request).await) }
        }))
    }
}

/// Parses the body of a request. Its media type is ignored: some chat widgets send JSON as `text/plain`.
fn parse_message(body: &[u8], headers: &HeaderMap) -> Result<IncomingMessage, String> {
    let (parsed, is_repaired): (Json, bool) = from_slice_lossy(body).map_err(|error| {
        format!("the body is not JSON ({error}); expected `{{\"sender\": \"…\", \"message\": \"…\"}}`")
    })?;
    if is_repaired {
        tracing::warn!("a message over REST has invalid text, which is replaced by U+FFFD");
    }
    let Json::Object(mut fields) = parsed else {
        return Err("the body is not a JSON object; expected `{\"sender\": \"…\", \"message\": \"…\"}`".to_owned());
    };
    check_keys(&fields)?;
    let mut text = |key: &str| match fields.shift_remove(key) {
        None | Some(Json::Null) => Ok(String::new()),
        Some(Json::String(text)) => Ok(text),
        Some(Json::Number(number)) => Ok(number.to_string()),
        Some(_) => Err(format!("`{key}` must be a text")),
    };
    let (sender, message, input_channel) = (text("sender")?, text("message")?, text("input_channel")?);
    let mut message_id = text("message_id")?;
    if message_id.is_empty()
        && let Some(key) = headers.get("idempotency-key").and_then(|value| value.to_str().ok())
    {
        key.trim().clone_into(&mut message_id);
    }
    for (key, value) in [("message_id", &message_id), ("input_channel", &input_channel)] {
        if value.len() > limits::WIRE_ID {
            return Err(format!("`{key}` is longer than {} bytes", limits::WIRE_ID));
        }
    }
    check_sender(&sender)?;
    let metadata = match fields.shift_remove("metadata") {
        None | Some(Json::Null) => Map::new(),
        Some(Json::Object(metadata)) => metadata,
        Some(_) => return Err("`metadata` must be an object".to_owned()),
    };
    let mut message = IncomingMessage::new(sender, message).message_id(message_id).metadata(metadata);
    message.input_channel = (!input_channel.is_empty()).then(|| input_channel.into());
    Ok(message)
}

/// Checks a sender id that a caller has chosen.
fn check_sender(sender: &str) -> Result<(), String> {
    if sender.len() > limits::WIRE_ID {
        return Err(format!("`sender` is longer than {} bytes", limits::WIRE_ID));
    }
    match RESERVED_PREFIXES.iter().find(|prefix| sender.starts_with(**prefix)) {
        Some(prefix) => {
            Err(format!("`sender` must not begin with `{prefix}`: this prefix is reserved; choose another one"))
        }
        None => Ok(()),
    }
}

/// The keys of a request's body.
const KEYS: [&str; 5] = ["message", "sender", "message_id", "metadata", "input_channel"];
/// Keys of other APIs for the same fields.
const FOREIGN_KEYS: [(&str, &str); 13] = [
    ("text", "message"),
    ("msg", "message"),
    ("content", "message"),
    ("input", "message"),
    ("query", "message"),
    ("prompt", "message"),
    ("utterance", "message"),
    ("user", "sender"),
    ("user_id", "sender"),
    ("sender_id", "sender"),
    ("session_id", "sender"),
    ("conversation_id", "sender"),
    ("id", "message_id"),
];
/// Unknown keys of one body that are logged, and characters of each.
const LOGGED_KEYS: (usize, usize) = (8, 40);

/// Rejects a body without `message`, because an empty message would be answered in its place, and logs keys that this channel does not
/// know.
fn check_keys(fields: &Map<String, Json>) -> Result<(), String> {
    let unknown = || fields.keys().filter(|key| !KEYS.contains(&key.as_str()));
    let meant = |written: &str| {
        let foreign = FOREIGN_KEYS.iter().find(|(foreign, _)| foreign.eq_ignore_ascii_case(written));
        foreign.map(|(_, own)| *own).or_else(|| did_you_mean(written, KEYS))
    };
    if !fields.contains_key("message") {
        let written: Vec<String> = unknown()
            .filter_map(|written| Some((written, meant(written).filter(|own| !fields.contains_key(*own))?)))
            .map(|(written, own)| format!("; did you mean `{own}` instead of `{written}`?"))
            .take(KEYS.len())
            .collect();
        return Err(format!(
            "the body has no `message`; expected `{{\"sender\": \"…\", \"message\": \"…\"}}`{}",
            written.concat()
        ));
    }
    let (count, chars) = LOGGED_KEYS;
    let ignored: Vec<String> = unknown().take(count).map(|key| key.chars().take(chars).collect()).collect();
    if !ignored.is_empty() {
        tracing::info!(channel = NAME, keys = ?ignored, "unknown keys of a message are ignored");
    }
    Ok(())
}

/// The stream format that the caller requests; `None` for a complete response.
fn requested_stream_format(query: Option<&str>, headers: &HeaderMap) -> Option<StreamFormat> {
    let value = query.unwrap_or_default().split('&').find_map(|pair| pair.strip_prefix("stream="))?;
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match value.to_ascii_lowercase().as_str() {
        "sse" => Some(StreamFormat::Sse),
        "deltas" => Some(StreamFormat::NdJson),
        "true" if accept.replace(' ', "").contains("deltas=1") => Some(StreamFormat::NdJson),
        "true" => Some(StreamFormat::MessageLines),
        _ => None,
    }
}

async fn respond_with_json(inbox: Inbox, message: IncomingMessage, recipient: Arc<str>) -> Response<Body> {
    let (conversation, has_id) = (message.conversation.to_string(), !message.message_id.as_str().is_empty());
    match inbox.receive(message, Box::new(AcceptAllSink)).await {
        Ok(report) => {
            let replies = report.earlier_replies.iter().chain(&report.replies);
            let messages: Vec<_> =
                replies.flat_map(|reply| encode::messages(&recipient, &reply.reply, reply.kind)).collect();
            with_turn_error(json(StatusCode::OK, &messages), report.failures.first().map(|failure| &*failure.code))
        }
        Err(error) => error_response(&conversation, has_id, &error),
    }
}

/// The response to a message that got no replies. If it contains `Retry-After`, the caller may send the message again, with the same
/// message id if it has one: then a message that was accepted after all is not processed twice. Without an id (`has_id`), a message that
/// was accepted would be.
fn error_response(conversation: &str, has_id: bool, error: &ReceiveError) -> Response<Body> {
    let code = error.code();
    let store_error = match error {
        ReceiveError::Store(error) => Some(error),
        ReceiveError::Unfinished(cause) if has_id => match &**cause {
            ReceiveError::Store(error) => Some(error),
            _ => None,
        },
        _ => None,
    };
    let retryable = match store_error {
        Some(error) if error.is_transient() => Some((StatusCode::SERVICE_UNAVAILABLE, Duration::from_secs(1))),
        _ => super::retryable_status(error),
    };
    if error.retry_after().is_some() {
        // Admission control logs a summary of rejected messages; under overload, one warning each would be too many.
        tracing::debug!(conversation, channel = NAME, code, "{error}");
    } else {
        tracing::error!(conversation, channel = NAME, code, "{error}");
    }
    let no_replies: [Json; 0] = [];
    let status = retryable.map_or(StatusCode::INTERNAL_SERVER_ERROR, |(status, _)| status);
    let mut response = json(status, &no_replies);
    if let Some((_, after)) = retryable {
        response.headers_mut().insert(RETRY_AFTER, http::HeaderValue::from(after.as_secs()));
    }
    with_turn_error(response, Some(code))
}

async fn respond_with_stream(
    inbox: Inbox,
    message: IncomingMessage,
    recipient: Arc<str>,
    format: StreamFormat,
) -> Response<Body> {
    let (conversation, has_id) = (message.conversation.to_string(), !message.message_id.as_str().is_empty());
    let clock = inbox.clock().clone();
    let (sink, receiver) = stream_sink::stream_sink(recipient, format);
    // Until the message is accepted, the response can still have an error status.
    let accepted = match inbox.accept(message, Box::new(sink)).await {
        Ok(accepted) => accepted,
        Err(error) => return error_response(&conversation, has_id, &error),
    };
    let turn = async move {
        if let Err(error) = accepted.finished().await {
            tracing::error!(conversation, channel = NAME, code = error.code(), "{error}");
        }
    };
    stream::stream_response(stream_sink::chunks(receiver, turn), format.media_type(), format.heartbeat(), &clock)
}

/// The conversation id for a recipient. Callers choose the sender id, and two may choose the same one: authenticated callers with an
/// id therefore have separate conversations.
fn conversation_id(recipient: &str, caller: &Caller) -> String {
    match &caller.id {
        Some(id) => format!("rest@{id}:{recipient}"),
        None => recipient.to_owned(),
    }
}

/// The size of metadata as JSON text, in bytes.
fn metadata_size(metadata: &Map<String, Json>) -> usize {
    if metadata.is_empty() { 0 } else { encode::json_text(metadata).len() }
}

fn recipient(sender: &str) -> Arc<str> {
    if sender.is_empty() { "default".into() } else { sender.into() }
}

/// Adds the header [`TURN_ERROR`] to a response if there is a code.
pub(super) fn with_turn_error(mut response: Response<Body>, code: Option<&str>) -> Response<Body> {
    if let Some(code) = code.and_then(|code| http::HeaderValue::from_str(code).ok()) {
        response.headers_mut().insert(TURN_ERROR, code);
    }
    response
}

#[cfg(test)]
mod tests;
