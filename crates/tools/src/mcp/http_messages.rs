//! Messages over HTTP: sends one request and reads its response, a JSON message or a stream of events.
//!
//! The MCP library does the same, but drops a message with broken characters, and with it the result of a call. Here
//! they are replaced by U+FFFD. The status of a rejected request is kept, because it says whether the call was performed.

use std::{borrow::Cow, collections::HashMap, mem};

use futures::{Stream, StreamExt, stream};
use reqwest::{
    RequestBuilder, Response, StatusCode,
    header::{CONTENT_TYPE, HeaderName, HeaderValue, WWW_AUTHENTICATE},
};
use rmcp::{
    model::{
        ClientJsonRpcMessage, ClientRequest, ErrorCode, ErrorData, JsonRpcError, JsonRpcMessage, ServerJsonRpcMessage,
    },
    transport::{
        common::{
            client_side_sse::BoxedSseResponse,
            http_header::{EVENT_STREAM_MIME_TYPE, HEADER_SESSION_ID, JSON_MIME_TYPE},
        },
        streamable_http_client::{
            AuthRequiredError, HttpStatusError, InsufficientScopeError, StreamableHttpError, StreamableHttpPostResponse,
        },
    },
};
use segue_base::{
    http::{BodyError, read_limited},
    json::{from_slice_lossy, repair},
    limits,
};
use sse_stream::{Sse, SseStream};

type HttpError = StreamableHttpError<reqwest::Error>;

/// The statuses with which a server rejects a request without performing it. 408 and 5xx are none of them: a proxy also
/// sends them while the server behind it performs the request.
pub(super) fn is_rejection(status: u16) -> bool {
    matches!(status, 400 | 401 | 403..=406 | 411 | 413..=415 | 417 | 421 | 426 | 428 | 429 | 431)
}

/// The status of a failed request, if there was a response.
pub(super) fn status_of(error: &HttpError) -> Option<u16> {
    match error {
        StreamableHttpError::HttpStatus(error) => Some(error.status),
        StreamableHttpError::UnexpectedServerResponse(text) => text.strip_prefix("HTTP ")?.get(..3)?.parse().ok(),
        _ => None,
    }
}

/// Adds a token and headers to a request.
pub(super) fn with_headers(
    request: RequestBuilder,
    bearer: Option<String>,
    headers: HashMap<HeaderName, HeaderValue>,
) -> RequestBuilder {
    let request = match bearer {
        Some(token) => request.bearer_auth(token),
        None => request,
    };
    headers.into_iter().fold(request, |request, (name, value)| request.header(name, value))
}

/// Sends a message and reads the response to it.
///
/// # Errors
/// There is no response, or it is not one to this message.
pub(super) async fn post(
    request: RequestBuilder,
    sent: &ClientJsonRpcMessage,
    has_session: bool,
) -> Result<StreamableHttpPostResponse, HttpError> {
    let response = request.json(sent).send().await?;
    let status = response.status();
    reject_credentials(&response)?;
    if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
        return Ok(StreamableHttpPostResponse::Accepted);
    }
    let session = response.headers().get(HEADER_SESSION_ID).and_then(|id| id.to_str().ok()).map(str::to_owned);
    let awaits_response = matches!(sent, JsonRpcMessage::Request(_));
    if !status.is_success() {
        return rejected(response, status, sent, has_session)
            .await
            .map(|error| StreamableHttpPostResponse::Json(error, session));
    }
    match content_type(&response) {
        Some(EVENT_STREAM_MIME_TYPE) => Ok(StreamableHttpPostResponse::Sse(events(response), session)),
        Some(JSON_MIME_TYPE) => {
            let body = body(response).await?;
            match from_slice_lossy::<ServerJsonRpcMessage>(&body) {
                Ok((message, is_repaired)) => {
                    if is_repaired {
                        warn_repaired();
                    }
                    let message = match message {
                        JsonRpcMessage::Error(error) if error.id.is_none() => {
                            if has_session && is_unknown_session(status, Some(&error), sent) {
                                return Err(StreamableHttpError::SessionExpired);
                            }
                            of_request(error, sent)
                        }
                        message => message,
                    };
                    Ok(StreamableHttpPostResponse::Json(message, session))
                }
                Err(_) if !awaits_response => Ok(StreamableHttpPostResponse::Accepted),
                Err(error) => Err(unexpected(format!("it is not a message: {error}"))),
            }
        }
        // Some servers respond to notifications with 200 and nothing, or something else.
        _ if !awaits_response => Ok(StreamableHttpPostResponse::Accepted),
        other => Err(StreamableHttpError::UnexpectedContentType(other.map(str::to_owned))),
    }
}

/// Opens the stream of messages that belong to no request.
///
/// # Errors
/// There is no response, or it is not a stream.
pub(super) async fn get(request: RequestBuilder) -> Result<BoxedSseResponse, HttpError> {
    let response = request.send().await?;
    reject_credentials(&response)?;
    match response.status() {
        StatusCode::METHOD_NOT_ALLOWED => return Err(StreamableHttpError::ServerDoesNotSupportSse),
        status if status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error() => {
            return Err(HttpStatusError::new(status.as_u16(), None).into());
        }
        _ => {}
    }
    let response = response.error_for_status()?;
    match content_type(&response) {
        Some(EVENT_STREAM_MIME_TYPE | JSON_MIME_TYPE) => Ok(events(response)),
        other => Err(StreamableHttpError::UnexpectedContentType(other.map(str::to_owned))),
    }
}

/// Rejected credentials with a challenge, which says what is missing.
fn reject_credentials(response: &Response) -> Result<(), HttpError> {
    let Some(challenge) = response.headers().get(WWW_AUTHENTICATE) else { return Ok(()) };
    let status = response.status();
    if status != StatusCode::UNAUTHORIZED && status != StatusCode::FORBIDDEN {
        return Ok(());
    }
    let challenge = challenge.to_str().map_err(|_| unexpected("its challenge cannot be read".to_owned()))?.to_owned();
    Err(match status {
        StatusCode::UNAUTHORIZED => StreamableHttpError::AuthRequired(AuthRequiredError::new(challenge)),
        _ => {
            let scope = scope_of(&challenge);
            StreamableHttpError::InsufficientScope(InsufficientScopeError::new(challenge, scope))
        }
    })
}

/// The scopes that a challenge names (RFC 6750, section 3).
fn scope_of(challenge: &str) -> Option<String> {
    let (before, rest) = challenge.split_once("scope=")?;
    // Not the end of another parameter's name.
    if before.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-') {
        return None;
    }
    match rest.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next(),
        None => rest.split([',', ' ']).next(),
    }
    .filter(|scope| !scope.is_empty())
    .map(str::to_owned)
}

/// The JSON-RPC error of a response without success, or the error that its status means.
async fn rejected(
    response: Response,
    status: StatusCode,
    message: &ClientJsonRpcMessage,
    has_session: bool,
) -> Result<ServerJsonRpcMessage, HttpError> {
    let is_auth = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
    let body = body(response).await.unwrap_or_default();
    let error = match from_slice_lossy::<ServerJsonRpcMessage>(&body) {
        Ok((JsonRpcMessage::Error(error), _)) => Some(error),
        _ => None,
    };
    if has_session && is_unknown_session(status, error.as_ref(), message) {
        return Err(StreamableHttpError::SessionExpired);
    }
    let error = error.filter(|error| match status {
        StatusCode::UNAUTHORIZED => false,
        // About the credentials or the rate, unless the error comes from the handling of this request.
        StatusCode::FORBIDDEN | StatusCode::TOO_MANY_REQUESTS => is_of_handling(error, message),
        _ => true,
    });
    // A server without `server/discover` may reject it by its status only; then another handshake is tried.
    if let JsonRpcMessage::Request(request) = message
        && matches!(request.request, ClientRequest::DiscoverRequest(_))
        && status.is_client_error()
        && !has_session
        && !is_auth
    {
        let error =
            error.map_or_else(|| ErrorData::invalid_request(format!("HTTP {status}"), None), |error| error.error);
        return Ok(ServerJsonRpcMessage::error(error, Some(request.id.clone())));
    }
    match error {
        Some(error) => Ok(of_request(error, message)),
        None if status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error() => {
            Err(HttpStatusError::new(status.as_u16(), None).into())
        }
        None => {
            let text = repair(&body);
            let shown = text.get(..text.floor_char_boundary(MAX_ERROR_TEXT)).unwrap_or_default();
            Err(unexpected(format!("HTTP {status}: {shown}")))
        }
    }
}

/// An error as the response to this message. Some servers send none or another id; then the caller would wait forever.
fn of_request(error: JsonRpcError, message: &ClientJsonRpcMessage) -> ServerJsonRpcMessage {
    match message {
        JsonRpcMessage::Request(request) => ServerJsonRpcMessage::error(error.error, Some(request.id.clone())),
        _ => JsonRpcMessage::Error(error),
    }
}

/// Whether a response within a session means that the server does not know the session: status 404, or an error without an id, which
/// belongs to no request. An error that comes from the handling of a request does not, unless it names the session: servers
/// send -32000 or -32001 for "Session not found" and for "Server not initialized" too.
fn is_unknown_session(status: StatusCode, error: Option<&JsonRpcError>, message: &ClientJsonRpcMessage) -> bool {
    let JsonRpcMessage::Request(request) = message else { return status == StatusCode::NOT_FOUND };
    if matches!(request.request, ClientRequest::InitializeRequest(_)) {
        return false;
    }
    let Some(error) = error else { return status == StatusCode::NOT_FOUND };
    let is_own = error.id.as_ref() == Some(&request.id);
    if is_own && status != StatusCode::NOT_FOUND {
        return false;
    }
    let text = error.error.message.to_lowercase();
    let names_session = ["session", "not initialized"].iter().any(|word| text.contains(word));
    match error.error.code.0 {
        // It can come from a call that has begun.
        code if ErrorCode(code) == ErrorCode::INTERNAL_ERROR => false,
        code if super::call::is_rejection(code) => !is_own || names_session,
        _ => names_session,
    }
}

/// Whether an error comes from the handling of this request: an internal error, or an error with the request's id and a code that is
/// left to servers.
fn is_of_handling(error: &JsonRpcError, message: &ClientJsonRpcMessage) -> bool {
    let is_own = matches!(message, JsonRpcMessage::Request(request) if error.id.as_ref() == Some(&request.id));
    let code = error.error.code;
    code == ErrorCode::INTERNAL_ERROR || is_own && (-32099..=-32000).contains(&code.0)
}

/// Bytes of the body of a rejection that are kept.
const MAX_ERROR_TEXT: usize = 1024;

fn unexpected(text: String) -> HttpError {
    StreamableHttpError::UnexpectedServerResponse(text.into())
}

fn warn_repaired() {
    tracing::warn!("a message of an MCP server has invalid text, which is replaced by U+FFFD");
}

async fn body(response: Response) -> Result<Vec<u8>, HttpError> {
    read_limited(response, limits::MCP_LINE).await.map_err(|error| match error {
        BodyError::TooLong { limit } => StreamableHttpError::ResponseBodyTooLarge { max_size: limit },
        BodyError::Broken(error) => StreamableHttpError::Io(std::io::Error::other(error)),
    })
}

/// The media type of a response, if it is one of the two that are read, else as it was sent.
fn content_type(response: &Response) -> Option<&str> {
    let sent = response.headers().get(CONTENT_TYPE)?.to_str().ok()?;
    let media_type = sent.split(';').next().unwrap_or_default().trim();
    let known =
        [EVENT_STREAM_MIME_TYPE, JSON_MIME_TYPE].into_iter().find(|known| media_type.eq_ignore_ascii_case(known));
    known.or(Some(sent))
}

/// The events of a response, each within [`limits::MCP_LINE`] bytes.
fn events(response: Response) -> BoxedSseResponse {
    let text = stream::unfold(Some((response.bytes_stream().boxed(), EventText::default())), |state| async move {
        let (mut bytes, mut text) = state?;
        let (chunk, next) = match bytes.next().await {
            Some(Ok(chunk)) => match text.push(&chunk) {
                Ok(chunk) => (Ok(chunk), Some((bytes, text))),
                Err(error) => (Err(error), None),
            },
            Some(Err(error)) => (Err(std::io::Error::other(error.without_url())), None),
            None => (Ok(text.finish()), None),
        };
        Some((chunk, next))
    });
    sse_events(text).boxed()
}

fn sse_events(
    text: impl Stream<Item = Result<Vec<u8>, std::io::Error>> + Send + 'static,
) -> impl Stream<Item = Result<Sse, sse_stream::Error>> + Send + 'static {
    SseStream::from_bytes_stream(text.map(|chunk| chunk.map(bytes::Bytes::from))).map(|event| {
        event.map(|mut event| {
            if let Some(Cow::Owned(repaired)) = event.data.as_ref().map(|data| repair(data.as_bytes())) {
                warn_repaired();
                event.data = Some(repaired);
            }
            event
        })
    })
}

/// Makes the bytes of a stream valid UTF-8, and counts those of each event.
#[derive(Default)]
struct EventText {
    /// The beginning of a character whose other bytes are in the next chunk.
    rest: Vec<u8>,
    /// Bytes of the current event.
    event: usize,
    /// Whether a line has just ended, and the byte before.
    is_line_start: bool,
    last: u8,
}

impl EventText {
    fn push(&mut self, chunk: &[u8]) -> Result<Vec<u8>, std::io::Error> {
        for byte in chunk {
            let ends_line = *byte == b'\n' || *byte == b'\r';
            // The second byte of a line end of two bytes ends no further line.
            let is_second = *byte == b'\n' && self.last == b'\r';
            self.last = *byte;
            self.event = if ends_line && self.is_line_start && !is_second { 0 } else { self.event + 1 };
            self.is_line_start = ends_line;
            if self.event > limits::MCP_LINE {
                return Err(std::io::Error::other("the server sent an event that is too long"));
            }
        }
        let bytes = [mem::take(&mut self.rest).as_slice(), chunk].concat();
        let mut out = String::with_capacity(bytes.len());
        let mut left = bytes.as_slice();
        loop {
            let error = match std::str::from_utf8(left) {
                Ok(text) => {
                    out.push_str(text);
                    return Ok(out.into_bytes());
                }
                Err(error) => error,
            };
            let (valid, invalid) = left.split_at(error.valid_up_to());
            out.push_str(&String::from_utf8_lossy(valid));
            match error.error_len() {
                Some(length) => {
                    out.push('\u{FFFD}');
                    left = invalid.get(length..).unwrap_or_default();
                }
                None => {
                    self.rest = invalid.to_vec();
                    return Ok(out.into_bytes());
                }
            }
        }
    }

    fn finish(self) -> Vec<u8> {
        String::from_utf8_lossy(&self.rest).into_owned().into_bytes()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
    use super::*;

    async fn data(chunks: &[&[u8]]) -> Vec<String> {
        let mut text = EventText::default();
        let mut parts: Vec<_> = chunks.iter().map(|chunk| text.push(chunk)).collect();
        parts.push(Ok(text.finish()));
        sse_events(stream::iter(parts)).filter_map(|event| async move { event.unwrap().data }).collect().await
    }

    #[tokio::test]
    async fn broken_characters_in_events_are_replaced_and_whole_ones_may_be_split() {
        let text = "data: {\"a\":\"é\"}\n\n".as_bytes();
        let (first, second) = text.split_at(13);
        assert_eq!(data(&[first, second]).await, ["{\"a\":\"é\"}"]);
        assert_eq!(data(&[b"data: {\"a\":\"\xff \\ud83d\"}\r\n\r\n"]).await, ["{\"a\":\"\u{FFFD} \u{FFFD}\"}"]);
    }

    #[test]
    fn events_are_limited_in_size_and_streams_are_not() {
        let event = [b"data: ".as_slice(), &vec![b'x'; limits::MCP_LINE / 2], b"\r\n\r\n"].concat();
        let mut text = EventText::default();
        for _ in 0..5 {
            text.push(&event).unwrap();
        }
        let lines = [b"data: ".as_slice(), &vec![b'x'; limits::MCP_LINE / 2], b"\r\n"].concat();
        text.push(&lines).unwrap();
        assert!(text.push(&lines).unwrap_err().to_string().contains("too long"));
    }

    #[test]
    fn scopes_are_read_from_challenges() {
        assert_eq!(scope_of("Bearer error=\"insufficient_scope\", scope=\"a b\"").as_deref(), Some("a b"));
        assert_eq!(scope_of("Bearer scope=a, error=\"x\"").as_deref(), Some("a"));
        assert_eq!(scope_of("Bearer required_scope=\"a\""), None);
    }
}
