//! The events of a conversation for callers who have no request open, and the end of a running turn on request.

use std::sync::Arc;

use axum::http::{self, Response, StatusCode, header::RETRY_AFTER};
use bytes::Bytes;
use futures::stream;
use segue_base::json::from_slice_lossy;
use segue_engine::ids::ConversationId;
use serde_json::{Map, Value as Json, json};

use super::{
    super::{
        Body, Caller, Inbox, encode, json, problem,
        stream::{SSE_HEARTBEAT, stream_response},
    },
    NAME, Rejection, RestChannel, check_sender, recipient,
};
use crate::{
    conversation::TurnEvent,
    runtime::{FeedEvent, FeedPosition, TurnEventStream},
    store::TurnNumber,
};

/// The header with which an `EventSource` continues after a break.
const LAST_EVENT_ID: &str = "last-event-id";

/// `GET /events?sender=…&after=…`: the events of a conversation as server-sent events, those after a position and then every further
/// one. Each has its position as `id`.
pub(super) async fn read(
    channel: &RestChannel,
    inbox: &Inbox,
    caller: &Caller,
    head: &http::request::Parts,
) -> Response<Body> {
    let (mut sender, mut after) = (String::new(), None);
    for (key, value) in form_urlencoded::parse(head.uri.query().unwrap_or_default().as_bytes()) {
        match &*key {
            "sender" => sender = value.into_owned(),
            "after" => after = Some(value.into_owned()),
            _ => {}
        }
    }
    // A browser repeats the request as it was, and says in the header what it has got.
    if let Some(last) = head.headers.get(LAST_EVENT_ID) {
        after = Some(String::from_utf8_lossy(last.as_bytes()).into_owned());
    }
    let after = match after.map(|after| after.parse::<FeedPosition>()).transpose() {
        Ok(after) => after,
        Err(error) => return problem(StatusCode::BAD_REQUEST, &format!("`after`: {error}")),
    };
    let (recipient, conversation) = match conversation(channel, caller, &sender) {
        Ok(found) => found,
        Err((status, error)) => return problem(status, &error),
    };
    let subscribed = inbox.assistant().subscribe(&conversation, after).await;
    let events = match subscribed {
        Ok(events) => events,
        Err(error) => {
            tracing::error!(%conversation, channel = NAME, code = error.code(), "the events cannot be read: {error}");
            let mut response = problem(StatusCode::SERVICE_UNAVAILABLE, "the events cannot be read now; connect again");
            response.headers_mut().insert(RETRY_AFTER, http::HeaderValue::from_static("1"));
            return response;
        }
    };
    let chunks = stream::unfold((events, recipient), move |(events, recipient)| next_chunk(events, recipient));
    stream_response(chunks, "text/event-stream", Some(SSE_HEARTBEAT), inbox.clock())
}

async fn next_chunk(mut events: TurnEventStream, recipient: Arc<str>) -> Option<(Bytes, (TurnEventStream, Arc<str>))> {
    match events.next().await {
        Ok(event) => Some((encode_event(&recipient, &event?), (events, recipient))),
        Err(error) => {
            // The client connects again and continues where it was.
            tracing::warn!(channel = NAME, code = error.code(), "the events of a conversation end: {error}");
            None
        }
    }
}

/// Encodes an event for a reader: its name, and its JSON text.
pub(in crate::channels) fn encode_for_reader(recipient: &str, event: &TurnEvent) -> (&'static str, String) {
    match event {
        // Here the turn is needed: the reader has not sent the message.
        TurnEvent::Started { turn, at } => {
            let event = json!({
                "type": "turn_started", "sender_id": recipient, "ts": at.as_seconds(), "turn_id": encode::turn_id(*turn),
            });
            ("turn_started", event.to_string())
        }
        event => encode::event(recipient, event),
    }
}

fn encode_event(recipient: &str, FeedEvent { next, event }: &FeedEvent) -> Bytes {
    let (name, json) = encode_for_reader(recipient, event);
    format!("id: {next}\nevent: {name}\ndata: {json}\n\n").into()
}

/// `POST /stop` with `{"sender": …}`: interrupts the running turn of the conversation, or only the turn `turn_id`.
pub(super) fn stop(channel: &RestChannel, inbox: &Inbox, caller: &Caller, body: &[u8]) -> Response<Body> {
    const EXPECTED: &str = "expected `{\"sender\": \"…\"}`, and `turn_id` for one turn";
    let Ok((Json::Object(fields), _)) = from_slice_lossy::<Json>(body) else {
        return problem(StatusCode::BAD_REQUEST, &format!("the body is not a JSON object; {EXPECTED}"));
    };
    let sender = match fields.get("sender") {
        None | Some(Json::Null) => String::new(),
        Some(Json::String(sender)) => sender.clone(),
        Some(Json::Number(sender)) => sender.to_string(),
        Some(_) => return problem(StatusCode::BAD_REQUEST, &format!("`sender` must be a text; {EXPECTED}")),
    };
    let turn = match turn_to_stop(&fields) {
        Ok(turn) => turn,
        Err(error) => return problem(StatusCode::BAD_REQUEST, &format!("{error}; {EXPECTED}")),
    };
    match conversation(channel, caller, &sender) {
        Ok((_, conversation)) => json(StatusCode::OK, &json!({"stopped": inbox.interrupt(&conversation, turn)})),
        Err((status, error)) => problem(status, &error),
    }
}

/// The turn that a caller wants to stop; `None` for the one that runs.
pub(in crate::channels) fn turn_to_stop(fields: &Map<String, Json>) -> Result<Option<TurnNumber>, &'static str> {
    let Some(id) = fields.get("turn_id").filter(|id| !id.is_null()) else { return Ok(None) };
    let number = id.as_str().and_then(|id| id.strip_prefix("t_")?.parse().ok());
    number.map(|number| Some(TurnNumber(number))).ok_or("`turn_id` must be that of an event")
}

/// The recipient and the conversation of a sender id, if the caller may use it.
pub(in crate::channels) fn conversation(
    channel: &RestChannel,
    caller: &Caller,
    sender: &str,
) -> Result<(Arc<str>, ConversationId), Rejection> {
    check_sender(sender).map_err(|error| (StatusCode::BAD_REQUEST, error))?;
    let recipient = recipient(sender);
    let conversation = channel.conversation_of(caller, &recipient)?;
    Ok((recipient, conversation.into()))
}
