//! The stream of what a task does: server-sent events, each of which holds one update.

use std::collections::VecDeque;

use segue_base::limits;
use serde_json::Value as Json;

use super::{
    card::ProtocolBinding,
    dialect::{A2aWireFormat, codes},
    fault::{A2aError, A2aErrorKind},
    model::Update,
    reading,
};

/// One thing that comes over a stream.
#[derive(Clone, Debug, PartialEq)]
pub enum StreamItem {
    /// An update.
    Update(Box<Update>),
    /// A sign of life.
    Alive,
    /// The end.
    End,
}

/// Reads a stream.
pub struct TaskEventStream {
    source: Source,
    dialect: A2aWireFormat,
}

/// Where events come from.
enum Source {
    /// The body of an answer.
    Body(Box<Body>),
    /// Messages of gRPC, in the form of plain HTTP.
    #[cfg(feature = "grpc")]
    Messages(futures::stream::BoxStream<'static, Result<Json, A2aError>>),
}

struct Body {
    response: reqwest::Response,
    cutter: Cutter,
    waiting: VecDeque<String>,
    binding: ProtocolBinding,
    ended: bool,
}

impl TaskEventStream {
    /// Reads the body of an answer.
    pub(super) fn new(response: reqwest::Response, dialect: A2aWireFormat, binding: ProtocolBinding) -> Self {
        let body = Body { response, cutter: Cutter::default(), waiting: VecDeque::new(), binding, ended: false };
        Self { source: Source::Body(Box::new(body)), dialect }
    }

    /// Reads what comes by gRPC.
    #[cfg(feature = "grpc")]
    pub(super) fn over(
        messages: futures::stream::BoxStream<'static, Result<Json, A2aError>>,
        dialect: A2aWireFormat,
    ) -> Self {
        Self { source: Source::Messages(messages), dialect }
    }

    /// What comes next. *Cancellation*: nothing is lost.
    ///
    /// # Errors
    /// [`A2aError`]: the stream broke, says something unreadable, or tells an error of the protocol.
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
                let update = reading::update(&json, self.dialect).map_err(unreadable)?;
                Ok(StreamItem::Update(Box::new(update)))
            }
            Event::Alive => Ok(StreamItem::Alive),
            Event::End => Ok(StreamItem::End),
        }
    }
}

/// What a source gives.
enum Event {
    Json(Json),
    Alive,
    End,
}

fn unreadable(why: String) -> A2aError {
    A2aError::new(A2aErrorKind::Unreadable, format!("an event of the stream: {why}"))
}

impl Body {
    async fn next(&mut self) -> Result<Event, A2aError> {
        loop {
            if let Some(data) = self.waiting.pop_front() {
                let json = serde_json::from_str(&data).map_err(|error| unreadable(error.to_string()))?;
                return result_of(json, self.binding).map(Event::Json);
            }
            if self.ended {
                return Ok(Event::End);
            }
            match self.response.chunk().await {
                Ok(Some(bytes)) => {
                    self.waiting.extend(self.cutter.feed(&bytes)?);
                    if self.waiting.is_empty() {
                        return Ok(Event::Alive);
                    }
                }
                Ok(None) => {
                    self.ended = true;
                    self.waiting.extend(self.cutter.end());
                }
                Err(error) => {
                    let words = format!("the stream broke: {}", error.without_url());
                    return Err(A2aError::new(A2aErrorKind::Broken, words));
                }
            }
        }
    }
}

/// The result within an answer; errors of the protocol become faults. Any gateway may answer with an `error` of its own: only one
/// that the protocol numbers or names is the agent's word.
pub(super) fn result_of(mut json: Json, binding: ProtocolBinding) -> Result<Json, A2aError> {
    if let Some(error) = json.get("error").filter(|error| !error.is_null()) {
        let words = error.get("message").or(Some(error)).and_then(Json::as_str).unwrap_or("no words");
        let words: String = words.chars().take(limits::A2A_REASON_TEXT).collect();
        let is_rpc = json.get("jsonrpc").and_then(Json::as_str) == Some("2.0");
        let code = error.get("code").and_then(Json::as_i64).filter(|code| is_rpc || *code < 0);
        return Err(match code.or_else(|| reason(error)) {
            Some(code) => {
                A2aError::new(A2aErrorKind::Protocol(code), format!("it answers with the error {code}: {words}"))
            }
            None => {
                A2aError::new(A2aErrorKind::Unreadable, format!("it answers with an error that has no code: {words}"))
            }
        });
    }
    match (binding, json.get_mut("result")) {
        (ProtocolBinding::Rpc, Some(result)) => Ok(result.take()),
        (ProtocolBinding::Rpc, None) => {
            Err(A2aError::new(A2aErrorKind::Unreadable, "the answer holds neither `result` nor `error`"))
        }
        _ => Ok(json),
    }
}

/// The number of an error that plain HTTP tells by a word.
fn reason(error: &Json) -> Option<i64> {
    let details = error.get("details").and_then(Json::as_array)?;
    details.iter().filter_map(|detail| detail.get("reason").and_then(Json::as_str)).find_map(code_of)
}

/// The number of an error by its word.
pub(super) fn code_of(word: &str) -> Option<i64> {
    Some(match word {
        "TASK_NOT_FOUND" => codes::NO_TASK,
        "TASK_NOT_CANCELABLE" => codes::NOT_CANCELABLE,
        "PUSH_NOTIFICATION_NOT_SUPPORTED" => codes::NO_PUSH,
        "UNSUPPORTED_OPERATION" => codes::UNSUPPORTED,
        "CONTENT_TYPE_NOT_SUPPORTED" => codes::CONTENT_TYPE,
        "INVALID_AGENT_RESPONSE" => codes::BAD_ANSWER,
        "VERSION_NOT_SUPPORTED" => codes::VERSION,
        "INVALID_PARAMS" => codes::PARAMS,
        "METHOD_NOT_FOUND" => codes::METHOD,
        "INTERNAL_ERROR" => codes::INTERNAL,
        _ => return None,
    })
}

/// Cuts bytes, however they come, into the data of events. Holds at most [`limits::A2A_EVENT`] bytes.
#[derive(Default)]
struct Cutter {
    line: Vec<u8>,
    data: String,
    has_data: bool,
    /// The line before ended with a carriage return: a line feed right after belongs to it.
    after_return: bool,
}

impl Cutter {
    fn feed(&mut self, bytes: &[u8]) -> Result<Vec<String>, A2aError> {
        let mut events = Vec::new();
        for byte in bytes {
            let after_return = std::mem::replace(&mut self.after_return, *byte == b'\r');
            match byte {
                b'\n' if after_return => {}
                b'\n' | b'\r' => events.extend(self.line_ends()),
                other => self.line.push(*other),
            }
            if self.line.len() + self.data.len() > limits::A2A_EVENT {
                return Err(A2aError::new(A2aErrorKind::TooLarge, "an event of the stream is larger than is taken"));
            }
        }
        Ok(events)
    }

    /// The event that lacks its blank line.
    fn end(&mut self) -> Option<String> {
        let event = if self.line.is_empty() { None } else { self.line_ends() };
        event.or_else(|| self.event())
    }

    fn line_ends(&mut self) -> Option<String> {
        let line = std::mem::take(&mut self.line);
        if line.is_empty() {
            return self.event();
        }
        let line = String::from_utf8_lossy(&line);
        if let Some(value) = line.strip_prefix("data:") {
            if self.has_data {
                self.data.push('\n');
            }
            self.has_data = true;
            self.data.push_str(value.strip_prefix(' ').unwrap_or(value));
        }
        None
    }

    fn event(&mut self) -> Option<String> {
        let data = std::mem::take(&mut self.data);
        std::mem::take(&mut self.has_data).then_some(data).filter(|data| !data.trim().is_empty())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn events_are_cut_wherever_the_bytes_end() {
        let text = ": ping\r\n\r\nid: 1\ndata: {\"a\":\ndata: 1}\n\nevent: x\rdata: two\r\rdata: last";
        for size in 1..text.len() {
            let mut cutter = Cutter::default();
            let mut events: Vec<String> =
                text.as_bytes().chunks(size).flat_map(|bytes| cutter.feed(bytes).unwrap()).collect();
            events.extend(cutter.end());
            assert_eq!(events, ["{\"a\":\n1}", "two", "last"], "in pieces of {size}");
        }
    }

    #[test]
    fn an_event_without_end_is_given_up() {
        let mut cutter = Cutter::default();
        let bytes = vec![b'x'; limits::A2A_EVENT / 2];
        assert!(cutter.feed(&bytes).is_ok());
        assert!(cutter.feed(&bytes).is_ok());
        assert_eq!(cutter.feed(b"xx").unwrap_err().kind, A2aErrorKind::TooLarge);
    }

    #[test]
    fn errors_are_told_by_number_or_by_word() {
        let rpc = json!({"jsonrpc": "2.0", "id": 1, "error": {"code": -32001, "message": "gone"}});
        assert_eq!(result_of(rpc, ProtocolBinding::Rpc).unwrap_err().kind, A2aErrorKind::Protocol(codes::NO_TASK));
        let rest = json!({"error": {"code": 404, "status": "NOT_FOUND", "message": "gone",
            "details": [{"reason": "TASK_NOT_FOUND"}]}});
        assert_eq!(result_of(rest, ProtocolBinding::Rest).unwrap_err().kind, A2aErrorKind::Protocol(codes::NO_TASK));
        let long = json!({"error": {"code": -1, "message": "x".repeat(10_000)}});
        assert!(result_of(long, ProtocolBinding::Rpc).unwrap_err().message.len() < limits::A2A_REASON_TEXT + 100);
        // Of a gateway: the agent may have taken the message all the same.
        for of_others in [
            json!({"error": "upstream timed out"}),
            json!({"error": {"code": 504}}),
            json!({"error": {"code": 401, "message": "who are you?", "details": [{"reason": "NO_TOKEN"}]}}),
            json!({"error": {"message": "no"}}),
        ] {
            for binding in [ProtocolBinding::Rpc, ProtocolBinding::Rest] {
                let fault = result_of(of_others.clone(), binding).unwrap_err();
                assert_eq!(fault.kind, A2aErrorKind::Unreadable, "{of_others}");
            }
        }
        assert_eq!(result_of(json!({}), ProtocolBinding::Rpc).unwrap_err().kind, A2aErrorKind::Unreadable);
    }
}
