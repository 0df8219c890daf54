//! Event streams of a task: server-sent events (<https://html.spec.whatwg.org/multipage/server-sent-events.html>) with
//! one update each, or a gRPC stream.

use std::collections::VecDeque;

use segue_base::{
    json::from_slice_lossy,
    limits,
    sse::{SseDecoder, SseEvent, TooLong},
};
use serde_json::Value as Json;

use super::{
    card::ProtocolBinding,
    decode,
    error::{A2aError, A2aErrorKind},
    model::Update,
    version::{A2aWireFormat, codes},
};

/// An item of a stream.
#[derive(Clone, Debug, PartialEq)]
pub enum StreamItem {
    /// An update.
    Update(Box<Update>),
    /// A keep-alive.
    Alive,
    /// The end of the stream.
    End,
}

/// A stream of updates.
pub struct TaskEventStream {
    source: Source,
    format: A2aWireFormat,
}

/// The source of the events.
enum Source {
    /// An HTTP response body.
    Body(Box<Body>),
    /// gRPC messages as JSON.
    #[cfg(feature = "grpc")]
    Messages(futures::stream::BoxStream<'static, Result<Json, A2aError>>),
}

struct Body {
    response: reqwest::Response,
    decoder: SseDecoder,
    /// The data of events that were received.
    waiting: VecDeque<Vec<u8>>,
    binding: ProtocolBinding,
    ended: bool,
}

impl TaskEventStream {
    /// A stream over an HTTP response body.
    pub(super) fn new(response: reqwest::Response, format: A2aWireFormat, binding: ProtocolBinding) -> Self {
        let body = Body {
            response,
            decoder: SseDecoder::new(limits::A2A_EVENT),
            waiting: VecDeque::new(),
            binding,
            ended: false,
        };
        Self { source: Source::Body(Box::new(body)), format }
    }

    /// A stream over gRPC messages.
    #[cfg(feature = "grpc")]
    pub(super) fn from_messages(
        messages: futures::stream::BoxStream<'static, Result<Json, A2aError>>,
        format: A2aWireFormat,
    ) -> Self {
        Self { source: Source::Messages(messages), format }
    }

    /// The next item. Cancellation: nothing is lost.
    ///
    /// # Errors
    /// [`A2aError`]: the connection was lost, an event cannot be decoded, or it is an error of the protocol.
    pub async fn next(&mut self) -> Result<StreamItem, A2aError> {
        let event = match &mut self.source {
            Source::Body(body) => body.next().await?,
            #[cfg(feature = "grpc")]
            Source::Messages(messages) => match futures::StreamExt::next(messages).await {
                Some(json) => Event::Json(json?),
                None => Event::End,
            },
        };
        match event {
            Event::Json(json) => {
                let update = decode::update(&json, self.format).map_err(unreadable)?;
                Ok(StreamItem::Update(Box::new(update)))
            }
            Event::Alive => Ok(StreamItem::Alive),
            Event::End => Ok(StreamItem::End),
        }
    }
}

/// An event of a source.
enum Event {
    Json(Json),
    Alive,
    End,
}

fn unreadable(why: String) -> A2aError {
    A2aError::new(A2aErrorKind::InvalidResponse, format!("an event of the stream: {why}"))
}

/// The data of an event; `None` for one with empty data, which only keeps the connection open.
fn data_of(event: SseEvent) -> Option<Vec<u8>> {
    (!event.data.trim_ascii().is_empty()).then_some(event.data)
}

impl Body {
    async fn next(&mut self) -> Result<Event, A2aError> {
        loop {
            if let Some(data) = self.waiting.pop_front() {
                let (json, _) = from_slice_lossy(&data).map_err(|error| unreadable(error.to_string()))?;
                return result_of(json, self.binding).map(Event::Json);
            }
            if self.ended {
                return Ok(Event::End);
            }
            match self.response.chunk().await {
                Ok(Some(bytes)) => {
                    self.decoder.feed(&bytes).map_err(|TooLong| {
                        A2aError::new(A2aErrorKind::TooLarge, "an event of the stream is larger than the limit")
                    })?;
                    self.waiting.extend(std::iter::from_fn(|| self.decoder.pop()).filter_map(data_of));
                    if self.waiting.is_empty() {
                        return Ok(Event::Alive);
                    }
                }
                Ok(None) => {
                    self.ended = true;
                    self.waiting.extend(self.decoder.end().and_then(data_of));
                }
                Err(error) => {
                    let text = format!("the stream was interrupted: {}", error.without_url());
                    return Err(A2aError::new(A2aErrorKind::ConnectionLost, text));
                }
            }
        }
    }
}

/// The result in a response; errors of the protocol become [`A2aError`]. A gateway may answer with an `error` object of
/// its own, so only an error with a code or reason of the protocol counts as an answer of the agent.
pub(super) fn result_of(mut json: Json, binding: ProtocolBinding) -> Result<Json, A2aError> {
    if let Some(error) = json.get("error").filter(|error| !error.is_null()) {
        let text = error.get("message").or(Some(error)).and_then(Json::as_str).unwrap_or("no message");
        let text: String = text.chars().take(limits::A2A_REASON_TEXT).collect();
        let is_rpc = json.get("jsonrpc").and_then(Json::as_str) == Some("2.0");
        let code = error.get("code").and_then(Json::as_i64).filter(|code| is_rpc || *code < 0);
        return Err(match code.or_else(|| reason(error)) {
            Some(code) => A2aError::new(A2aErrorKind::Protocol(code), format!("it responds with error {code}: {text}")),
            None => A2aError::new(
                A2aErrorKind::InvalidResponse,
                format!("it responds with an error without a code: {text}"),
            ),
        });
    }
    match (binding, json.get_mut("result")) {
        (ProtocolBinding::JsonRpc, Some(result)) => Ok(result.take()),
        (ProtocolBinding::JsonRpc, None) => {
            Err(A2aError::new(A2aErrorKind::InvalidResponse, "the response has neither `result` nor `error`"))
        }
        _ => Ok(json),
    }
}

/// The code of an HTTP+JSON error, found by its reason.
fn reason(error: &Json) -> Option<i64> {
    let details = error.get("details").and_then(Json::as_array)?;
    details.iter().filter_map(|detail| detail.get("reason").and_then(Json::as_str)).find_map(code_of)
}

/// The error code for a reason.
pub(super) fn code_of(word: &str) -> Option<i64> {
    Some(match word {
        "TASK_NOT_FOUND" => codes::TASK_NOT_FOUND,
        "TASK_NOT_CANCELABLE" => codes::TASK_NOT_CANCELABLE,
        "PUSH_NOTIFICATION_NOT_SUPPORTED" => codes::PUSH_NOTIFICATION_NOT_SUPPORTED,
        "UNSUPPORTED_OPERATION" => codes::UNSUPPORTED_OPERATION,
        "CONTENT_TYPE_NOT_SUPPORTED" => codes::CONTENT_TYPE_NOT_SUPPORTED,
        "INVALID_AGENT_RESPONSE" => codes::INVALID_AGENT_RESPONSE,
        "VERSION_NOT_SUPPORTED" => codes::VERSION_NOT_SUPPORTED,
        "INVALID_PARAMS" => codes::INVALID_PARAMS,
        "METHOD_NOT_FOUND" => codes::METHOD_NOT_FOUND,
        "INTERNAL_ERROR" => codes::INTERNAL_ERROR,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn errors_have_a_code_or_a_reason() {
        let rpc = json!({"jsonrpc": "2.0", "id": 1, "error": {"code": -32001, "message": "gone"}});
        assert_eq!(
            result_of(rpc, ProtocolBinding::JsonRpc).unwrap_err().kind,
            A2aErrorKind::Protocol(codes::TASK_NOT_FOUND)
        );
        let rest = json!({"error": {"code": 404, "status": "NOT_FOUND", "message": "gone",
            "details": [{"reason": "TASK_NOT_FOUND"}]}});
        assert_eq!(
            result_of(rest, ProtocolBinding::HttpJson).unwrap_err().kind,
            A2aErrorKind::Protocol(codes::TASK_NOT_FOUND)
        );
        let long = json!({"error": {"code": -1, "message": "x".repeat(10_000)}});
        assert!(result_of(long, ProtocolBinding::JsonRpc).unwrap_err().message.len() < limits::A2A_REASON_TEXT + 100);
        // From a gateway: the agent may have received the message all the same.
        for of_others in [
            json!({"error": "upstream timed out"}),
            json!({"error": {"code": 504}}),
            json!({"error": {"code": 401, "message": "who are you?", "details": [{"reason": "NO_TOKEN"}]}}),
            json!({"error": {"message": "no"}}),
        ] {
            for binding in [ProtocolBinding::JsonRpc, ProtocolBinding::HttpJson] {
                let error = result_of(of_others.clone(), binding).unwrap_err();
                assert_eq!(error.kind, A2aErrorKind::InvalidResponse, "{of_others}");
            }
        }
        assert_eq!(result_of(json!({}), ProtocolBinding::JsonRpc).unwrap_err().kind, A2aErrorKind::InvalidResponse);
    }
}
