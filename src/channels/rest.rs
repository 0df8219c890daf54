//! The REST channel: one request, one answer; whole, or as a stream.

use std::{convert::Infallible, sync::Arc, time::Duration};

use async_trait::async_trait;
use axum::http::{
    self, HeaderMap, Method, Request, Response, StatusCode,
    header::{ACCEPT, RETRY_AFTER},
};
use bytes::Bytes;
use futures::{StreamExt, future::BoxFuture};
use segue_engine::project::{ChannelSettings, RestSettings};
use serde_json::{Map, Value as Json, json};

use super::{
    Arrival, Authenticator, Body, Caller, Capabilities, Channel, ChannelService, Inbox, Markup, RESERVED_PREFIXES,
    json,
    pages::Pages,
    problem,
    queue::{self, Form},
    registry::{self, ChannelFactory, ChannelSource},
    stream, wire,
};
use crate::{
    clock::Clock,
    conversation::AcceptAllSink,
    failpoint, limits,
    runtime::{ReceiveError, TurnReport},
};

/// The header of an answer that tells what went wrong on our side; its status stays 200 where the message got a turn.
pub const TURN_ERROR: &str = "x-turn-error";

/// The name of the channel.
const NAME: &str = "rest";

pub(super) const FACTORY: ChannelFactory = ChannelFactory {
    name: NAME,
    is_wanted: |_, _| false,
    open,
    place: "credentials.yml: `rest`",
    code: registry::CODE,
    is_required: false,
};

fn open(source: &ChannelSource<'_>) -> Result<Arc<dyn Channel>, String> {
    let Some(entry) = source.entry else { return Ok(Arc::new(RestChannel::default())) };
    entry.check_spelling()?;
    Pages::of(entry)?;
    match &entry.settings {
        ChannelSettings::Rest(settings) => Ok(Arc::new(RestChannel::new(settings)?)),
        ChannelSettings::Mcp(_) | ChannelSettings::Other(_) => Ok(Arc::new(RestChannel::default())),
    }
}

/// The REST channel.
#[derive(Clone, Debug, Default)]
pub struct RestChannel {
    auth: Authenticator,
    /// For whom the fixed token speaks; anybody where there are none. One that ends in `*` stands for all that begin so.
    senders: Vec<String>,
    /// Whether messages such as `/SetSlots(…)` count as words.
    refuses_payloads: bool,
    /// Bytes that `metadata` may have; [`limits::METADATA`] unless set.
    metadata: Option<usize>,
}

impl RestChannel {
    /// With the settings of `credentials.yml`.
    ///
    /// # Errors
    /// What is wrong with a setting, and the fix.
    pub fn new(settings: &RestSettings) -> Result<Self, String> {
        let metadata = settings.metadata_bytes.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        if metadata.is_some_and(|bytes| bytes > limits::HTTP_BODY) {
            return Err(format!("`metadata_bytes` must be a whole number up to {}", limits::HTTP_BODY));
        }
        Ok(Self {
            auth: Authenticator::of(&settings.auth)?,
            senders: settings.senders.clone(),
            refuses_payloads: settings.refuses_payloads,
            metadata,
        })
    }

    /// Whether a caller may speak as somebody. Signed tokens speak for their own subject, whose conversations are its own.
    fn speaks_for(&self, caller: &Caller, sender: &str) -> bool {
        let is_it = |name: &String| name.strip_suffix('*').map_or(sender == name, |start| sender.starts_with(start));
        caller.id.is_some() || self.senders.is_empty() || self.senders.iter().any(is_it)
    }

    async fn answer(&self, inbox: Inbox, request: Request<Bytes>) -> Response<Body> {
        let (mut head, body) = request.into_parts();
        match (&head.method, head.uri.path()) {
            (&Method::GET, "" | "/") => json(StatusCode::OK, &json!({"status": "ok"})),
            (&Method::POST, "/webhook") => {
                // Found out when the head was checked, where the server does that.
                let caller = match head.extensions.remove::<Caller>() {
                    Some(caller) => Ok(caller),
                    None => self.auth.authenticate(&head.headers, inbox.clock()).await,
                };
                let caller = match caller {
                    Ok(caller) => caller,
                    Err(error) => return error.response("this channel"),
                };
                let mut arrival = match arrival(&body, &head.headers) {
                    Ok(arrival) => arrival,
                    Err(wrong) => return problem(StatusCode::BAD_REQUEST, &wrong),
                };
                let (size, most) = (size(&arrival.metadata), self.metadata.unwrap_or(limits::METADATA));
                if size > most {
                    let wrong = format!("`metadata` has {size} bytes; this channel takes {most} (`metadata_bytes`)");
                    return problem(StatusCode::PAYLOAD_TOO_LARGE, &wrong);
                }
                let recipient = recipient(&arrival);
                if !self.speaks_for(&caller, &recipient) {
                    return problem(StatusCode::FORBIDDEN, "this token does not speak for this `sender`");
                }
                arrival.sender = conversation(&recipient, &caller);
                let inbox = inbox.for_caller(caller.id.as_ref());
                match form(head.uri.query(), &head.headers) {
                    None => whole(inbox, arrival, recipient).await,
                    Some(form) => streamed(inbox, arrival, recipient, form).await,
                }
            }
            (_, "/webhook") => problem(StatusCode::METHOD_NOT_ALLOWED, "messages are sent here with POST"),
            _ => problem(StatusCode::NOT_FOUND, "there is nothing here; messages go to `webhook`"),
        }
    }
}

#[async_trait]
impl Channel for RestChannel {
    fn name(&self) -> &str {
        NAME
    }
    fn capabilities(&self) -> Capabilities {
        Capabilities { streaming: true, buttons: true, images: true, markup: Markup::Markdown }
    }
    fn is_guarded(&self) -> bool {
        self.auth.is_guarded()
    }
    async fn check(&self, head: &mut http::request::Parts, clock: &Arc<dyn Clock>) -> Result<(), Response<Body>> {
        if head.method == Method::POST && head.uri.path() == "/webhook" {
            let caller = self.auth.authenticate(&head.headers, clock).await;
            head.extensions.insert(caller.map_err(|error| error.response("this channel"))?);
        }
        Ok(())
    }
    fn service(&self, inbox: Inbox) -> ChannelService {
        let (this, inbox) = (Arc::new(self.clone()), inbox.taking_payloads(!self.refuses_payloads));
        ChannelService::new(tower::service_fn(move |request| {
            let (this, inbox) = (this.clone(), inbox.clone());
            async move { Ok::<_, Infallible>(this.answer(inbox, request).await) }
        }))
    }
}

/// Reads the body. Its media type is not looked at: the widget of others sends JSON as `text/plain`.
fn arrival(body: &[u8], headers: &HeaderMap) -> Result<Arrival, String> {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    let parsed: Json = serde_json::from_slice(body).map_err(|error| {
        format!("the body is no JSON ({error}); expected `{{\"sender\": \"…\", \"message\": \"…\"}}`")
    })?;
    let Json::Object(mut fields) = parsed else {
        return Err("the body is JSON but no object; expected `{\"sender\": \"…\", \"message\": \"…\"}`".to_owned());
    };
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
    for (key, value) in [("sender", &sender), ("message_id", &message_id), ("input_channel", &input_channel)] {
        if value.len() > limits::WIRE_ID {
            return Err(format!("`{key}` is longer than {} bytes", limits::WIRE_ID));
        }
    }
    if let Some(made) = RESERVED_PREFIXES.iter().find(|made| sender.starts_with(**made)) {
        return Err(format!("`sender` may not begin with `{made}`: such names are made here; choose another one"));
    }
    let metadata = match fields.shift_remove("metadata") {
        None | Some(Json::Null) => Map::new(),
        Some(Json::Object(metadata)) => metadata,
        Some(_) => return Err("`metadata` must be an object".to_owned()),
    };
    let input_channel = (!input_channel.is_empty()).then_some(input_channel);
    Ok(Arrival { sender, text: message, message_id, input_channel, metadata })
}

/// How the caller wants the answer: `None` is whole.
fn form(query: Option<&str>, headers: &HeaderMap) -> Option<Form> {
    let wanted = query.unwrap_or_default().split('&').find_map(|pair| pair.strip_prefix("stream="))?;
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match wanted.to_ascii_lowercase().as_str() {
        "sse" => Some(Form::Sse),
        "deltas" => Some(Form::Events),
        "true" if accept.replace(' ', "").contains("deltas=1") => Some(Form::Events),
        "true" => Some(Form::Lines),
        _ => None,
    }
}

async fn whole(inbox: Inbox, arrival: Arrival, recipient: Arc<str>) -> Response<Body> {
    let conversation = arrival.sender.clone();
    match inbox.receive(arrival, Box::new(AcceptAllSink)).await {
        Ok(report) => {
            let replies = report.earlier_replies.iter().chain(&report.replies);
            let messages: Vec<_> =
                replies.flat_map(|reply| wire::messages(&recipient, &reply.reply, reply.kind)).collect();
            with_turn_error(json(StatusCode::OK, &messages), report.failures.first().map(|failure| &*failure.code))
        }
        Err(error) => unanswered(&conversation, &error),
    }
}

/// The answer to a message that got no turn. A caller who is told so with `Retry-After` may send it again, with the same id where it
/// has one: a message that was accepted all the same is then not taken twice.
fn unanswered(conversation: &str, error: &ReceiveError) -> Response<Body> {
    let code = error.code();
    let later = match error {
        // Admission says in the log what it refuses, and not each message of a crowd.
        error if super::refused(error).is_some() => super::refused(error),
        ReceiveError::Store(error) if error.is_transient() => {
            Some((StatusCode::SERVICE_UNAVAILABLE, Duration::from_secs(1)))
        }
        _ => None,
    };
    if error.retry_after().is_some() {
        tracing::debug!(conversation, channel = NAME, code, "{error}");
    } else {
        tracing::error!(conversation, channel = NAME, code, "{error}");
    }
    let none: [Json; 0] = [];
    if failpoint::is_armed("defect:store-failure-is-ok") && matches!(error, ReceiveError::Store(_)) {
        return with_turn_error(json(StatusCode::OK, &none), Some(code));
    }
    let mut answer = json(later.map_or(StatusCode::INTERNAL_SERVER_ERROR, |(status, _)| status), &none);
    if let Some((_, after)) = later {
        answer.headers_mut().insert(RETRY_AFTER, http::HeaderValue::from(after.as_secs()));
    }
    with_turn_error(answer, Some(code))
}

async fn streamed(inbox: Inbox, arrival: Arrival, recipient: Arc<str>, form: Form) -> Response<Body> {
    let conversation = arrival.sender.clone();
    let clock = inbox.clock().clone();
    let started = json!({"type": "turn_started", "sender_id": recipient, "ts": clock.now().as_seconds()});
    let first = form.event("turn_started", &started.to_string());
    let (mut sink, read) = queue::queue(recipient, form);
    let (accepted, queue) = (sink.acceptance(), sink.sender());
    let mut turn: BoxFuture<'static, _> = Box::pin(async move { inbox.receive(arrival, Box::new(sink)).await });
    // The first poll starts the turn: from here on it goes on, whether the client stays or not. Until the message is accepted, the
    // answer can still be a refusal.
    let early = tokio::select! {
        biased;
        outcome = &mut turn => Some(outcome),
        Ok(()) = accepted => None,
    };
    if let Some(Err(error)) = &early {
        return unanswered(&conversation, error);
    }
    let end = async move {
        let outcome = match early {
            Some(outcome) => outcome,
            None => turn.await,
        };
        if let Some(bytes) = last_events(&conversation, form, &outcome) {
            // A client who went away reads no end.
            let _ = queue.send(bytes).await;
        }
    };
    let pieces = futures::stream::iter(first).chain(queue::pieces(read, end));
    stream::respond(pieces, form.media_type(), form.heartbeat(), &clock)
}

/// What a stream ends with: an error if there was one, then the end of the turn. Causes are for operators and stay here.
fn last_events(conversation: &str, form: Form, outcome: &Result<TurnReport, ReceiveError>) -> Option<Bytes> {
    let error = |code: &str, message: &str| {
        let event = json!({"type": "error", "code": code, "message": message});
        form.event("error", &event.to_string()).unwrap_or_default()
    };
    let bytes = match outcome {
        Ok(report) => {
            let ended = json!({
                "type": "turn_finished", "turn_id": format!("t_{}", report.turn.0),
                "listening": !report.session_ended, "session_ended": report.session_ended,
            });
            let failures =
                report.failures.iter().map(|failure| error(&failure.code, "something went wrong on our side"));
            failures.chain(form.event("turn_finished", &ended.to_string())).collect::<Vec<_>>().concat()
        }
        Err(problem) => {
            let code = problem.code();
            tracing::error!(conversation, channel = NAME, code, "{problem}");
            error(code, "the message got no turn; send it again").to_vec()
        }
    };
    (!bytes.is_empty()).then(|| bytes.into())
}

/// The conversation of a recipient. A sender is a word that callers choose, and two may choose the same: where they can be told
/// apart, each has conversations of its own.
fn conversation(recipient: &str, caller: &Caller) -> String {
    match &caller.id {
        Some(id) => format!("rest@{id}:{recipient}"),
        None => recipient.to_owned(),
    }
}

/// What metadata takes as JSON.
fn size(metadata: &Map<String, Json>) -> usize {
    if metadata.is_empty() { 0 } else { wire::line(metadata).len() }
}

fn recipient(arrival: &Arrival) -> Arc<str> {
    if arrival.sender.is_empty() { "default".into() } else { arrival.sender.as_str().into() }
}

pub(super) fn with_turn_error(mut answer: Response<Body>, code: Option<&str>) -> Response<Body> {
    if let Some(code) = code.and_then(|code| http::HeaderValue::from_str(code).ok()) {
        answer.headers_mut().insert(TURN_ERROR, code);
    }
    answer
}

#[cfg(test)]
mod tests;
