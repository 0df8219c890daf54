//! Sends requests to a provider and decodes the responses. Shared by all APIs; each API provides a decoder of its own.
//!
//! It does not retry (the router does), does not follow redirects, and masks its API key in all errors.
//!
//! | module | content |
//! | --- | --- |
//! | `response_stream`, `min_event_rate` | reads the body within the deadlines |
//! | `body_format`, `json_repair` | decodes bytes to events, and events to JSON |
//! | `assembler`, `thoughts` | collects deltas to a complete response, without thoughts in its text |
//! | `error_response` | classifies error responses |

pub(super) mod assembler;
pub(super) mod body_format;
pub(super) mod error_response;
pub(super) mod json_repair;
pub(super) mod lenient;
mod min_event_rate;
pub(super) mod response_stream;
pub(super) mod thoughts;

use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use reqwest::{
    Response, Url,
    header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
};
use segue_base::{
    context::{CallContext, WaitError},
    http::{HttpClients, TransportError},
    limits,
    secret::Secret,
};

pub(crate) use self::response_stream::{Body, CallTimeouts, ResponseDecoder, decode_stream};
use super::{
    ChatStream, Delta, LlmError, LlmErrorKind,
    warning::{ResponseMonitor, deprecation_notice},
};

/// One endpoint of one model: its URL, headers and credentials.
pub(super) struct ModelEndpoint {
    pub(super) url: Url,
    /// Content type, credentials, and other headers of the API.
    headers: HeaderMap,
    /// The API key, to mask it in errors.
    key: Option<Secret>,
    outbound: HttpClients,
}

impl ModelEndpoint {
    /// Opens no connection. `headers` contains the credentials and other headers of the API, without the content type.
    pub(super) fn new(
        url: Url,
        key: Option<Secret>,
        headers: impl IntoIterator<Item = (HeaderName, HeaderValue)>,
        outbound: HttpClients,
    ) -> Self {
        let mut all = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        all.extend(headers);
        Self { url, headers: all, key, outbound }
    }

    /// Sends `body` and waits for the head of the response. A status other than 2xx is an error. `wait_error` maps the end of
    /// the wait by deadline or cancellation.
    pub(super) async fn post(
        &self,
        body: Vec<u8>,
        cx: &CallContext,
        wait_error: impl FnOnce(WaitError) -> LlmError,
    ) -> Result<Response, LlmError> {
        let client = self.outbound.client().map_err(|e| LlmError::new(LlmErrorKind::Unreachable).with_detail(e))?;
        let tried = self.outbound.next_address(&self.url);
        let request = client.post(self.url.clone()).headers(self.headers.clone()).body(body);
        let response = cx.wait(request.send()).await.map_err(wait_error)?.map_err(|error| {
            self.outbound.try_next_address(&self.url, tried);
            LlmError::new(LlmErrorKind::Unreachable).with_detail(TransportError::from(error))
        })?;
        if response.status().is_success() { Ok(response) } else { Err(read_error(response, cx).await) }
    }

    /// The error with the API key masked.
    pub(super) fn masked(&self, error: LlmError) -> LlmError {
        error_response::mask_key(error, self.key.as_ref().map(Secret::expose))
    }
}

/// The chat API of one model.
pub(super) struct ModelTransport {
    /// The model, as its entry names it.
    model: Arc<str>,
    pub(super) endpoint: Arc<ModelEndpoint>,
    pub(super) timeouts: CallTimeouts,
    monitor: Arc<ResponseMonitor>,
}

impl ModelTransport {
    pub(super) fn new(model: &str, endpoint: ModelEndpoint, timeouts: CallTimeouts) -> Self {
        Self { model: model.into(), endpoint: Arc::new(endpoint), timeouts, monitor: Arc::default() }
    }

    /// Sends `body` and decodes the response with a new decoder. The call ends by the caller's `cx`, or earlier by the timeouts of
    /// this model.
    pub(super) async fn send<D: ResponseDecoder + 'static>(
        &self,
        body: Vec<u8>,
        decoder: impl FnOnce() -> D,
        cx: CallContext,
    ) -> Result<ChatStream, LlmError> {
        let deadlines = self.timeouts.start(&cx);
        let waiting = CallContext { deadline: cx.deadline.min(deadlines.first).min(deadlines.total), ..cx.clone() };
        let wait_error = |error| match error {
            WaitError::Cancelled => LlmErrorKind::Cancelled.into(),
            WaitError::DeadlinePassed => deadlines.timeout_error(deadlines.first, true, &cx).into(),
        };
        let response =
            self.endpoint.post(body, &waiting, wait_error).await.map_err(|error| self.endpoint.masked(error))?;
        let deprecation_notice = deprecation_notice(response.headers());
        let bytes = response.bytes_stream();
        let bytes =
            bytes.map_err(|error| LlmError::new(LlmErrorKind::Truncated).with_detail(TransportError::from(error)));
        let deltas = decode_stream(bytes.boxed(), decoder(), self.timeouts, deadlines, cx);
        let (endpoint, model, monitor) = (self.endpoint.clone(), self.model.clone(), self.monitor.clone());
        Ok(ChatStream::new(deltas.map(move |item| match item {
            Ok(Delta::Done(answer)) => Ok(Delta::Done(monitor.check(&model, deprecation_notice.as_ref(), answer))),
            Ok(delta) => Ok(delta),
            Err(error) => Err(endpoint.masked(error)),
        })))
    }
}

/// The error of a response with a status other than 2xx. The body only adds detail, so a body that is slow, or longer than
/// [`limits::MODEL_LINE`], is read in part.
async fn read_error(mut response: Response, cx: &CallContext) -> LlmError {
    let status = response.status().as_u16();
    let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let (millis, after) = (header("retry-after-ms"), header("retry-after"));
    let after = error_response::retry_after(millis.as_deref(), after.as_deref(), cx.clock.now());
    let (reading, mut body) = (cx.with_timeout(limits::MODEL_AFTER_END), Vec::new());
    while let Ok(Ok(Some(chunk))) = reading.wait(response.chunk()).await {
        body.extend_from_slice(&chunk);
        if body.len() > limits::MODEL_LINE {
            break;
        }
    }
    error_response::error_from_status(status, after, &body)
}

#[cfg(test)]
mod tests;
