//! Sending a request to a model and reading what comes back, the same for every API: a request goes out within its time, the body is read by
//! the API's decoder, and what goes wrong before that has a name.
//!
//! *Never*: it retries nothing (the router does), follows no redirect, and shows its key to nobody.
//!
//! | file | holds |
//! | --- | --- |
//! | `response_stream`, `min_event_rate` | bytes to deltas within their deadlines |
//! | `body_format`, `sse`, `json_repair` | bytes to events, and events to JSON |
//! | `assembler` | deltas to a whole answer |
//! | `error_response` | what an error answer means |

pub(super) mod assembler;
pub(super) mod body_format;
pub(super) mod error_response;
pub(super) mod json_repair;
mod min_event_rate;
pub(super) mod response_stream;
mod sse;

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
    oddity::{Acquaintance, announced},
};

/// One address of one model: where requests are sent, with which credentials.
pub(super) struct ModelEndpoint {
    pub(super) url: Url,
    /// Content type, credentials, and whatever else the API wants.
    headers: HeaderMap,
    /// The key itself, to mask it in what comes back.
    key: Option<Secret>,
    outbound: HttpClients,
}

impl ModelEndpoint {
    /// Opens no connection yet. `headers` hold the credentials, and whatever else the API wants beside the content type.
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

    /// Sends `body` and waits for the head of the response; one with another status than 2xx is an error. `stopped` names the end of the
    /// wait.
    pub(super) async fn post(
        &self,
        body: Vec<u8>,
        cx: &CallContext,
        stopped: impl FnOnce(WaitError) -> LlmError,
    ) -> Result<Response, LlmError> {
        let client = self.outbound.client().map_err(|e| LlmError::new(LlmErrorKind::Unreachable).because(e))?;
        let tried = self.outbound.next_address(&self.url);
        let request = client.post(self.url.clone()).headers(self.headers.clone()).body(body);
        let response = cx.wait(request.send()).await.map_err(stopped)?.map_err(|error| {
            self.outbound.try_next_address(&self.url, tried);
            LlmError::new(LlmErrorKind::Unreachable).because(TransportError::from(error))
        })?;
        if response.status().is_success() { Ok(response) } else { Err(read_error(response, cx).await) }
    }

    /// An error without the key.
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
    known: Arc<Acquaintance>,
}

impl ModelTransport {
    pub(super) fn new(model: &str, endpoint: ModelEndpoint, timeouts: CallTimeouts) -> Self {
        Self { model: model.into(), endpoint: Arc::new(endpoint), timeouts, known: Arc::default() }
    }

    /// Sends `body`; what comes back is read by what `decoder` makes. `cx` is the caller's: the call ends with it, or earlier
    /// by the timeouts of this model.
    pub(super) async fn send<D: ResponseDecoder + 'static>(
        &self,
        body: Vec<u8>,
        decoder: impl FnOnce() -> D,
        cx: CallContext,
    ) -> Result<ChatStream, LlmError> {
        let deadlines = self.timeouts.begin(&cx);
        let waiting = CallContext { deadline: cx.deadline.min(deadlines.first).min(deadlines.total), ..cx.clone() };
        let overdue = |stopped| match stopped {
            WaitError::Cancelled => LlmErrorKind::Cancelled.into(),
            WaitError::DeadlinePassed => deadlines.passed(deadlines.first, true, &cx).into(),
        };
        let response =
            self.endpoint.post(body, &waiting, overdue).await.map_err(|error| self.endpoint.masked(error))?;
        let announced = announced(response.headers());
        let bytes = response.bytes_stream();
        let bytes = bytes.map_err(|error| LlmError::new(LlmErrorKind::CutShort).because(TransportError::from(error)));
        let deltas = decode_stream(bytes.boxed(), decoder(), self.timeouts, deadlines, cx);
        let (endpoint, model, known) = (self.endpoint.clone(), self.model.clone(), self.known.clone());
        Ok(ChatStream::new(deltas.map(move |item| match item {
            Ok(Delta::Done(answer)) => Ok(Delta::Done(known.judge(&model, announced.as_ref(), answer))),
            Ok(delta) => Ok(delta),
            Err(error) => Err(endpoint.masked(error)),
        })))
    }
}

/// What the provider says with a status other than 2xx. The status alone is enough to decide: a body that is slow, or longer than
/// [`limits::MODEL_LINE`], is read as far as it came.
async fn read_error(mut response: Response, cx: &CallContext) -> LlmError {
    let status = response.status().as_u16();
    let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let (millis, after) = (header("retry-after-ms"), header("retry-after"));
    let after = error_response::retry_after(millis.as_deref(), after.as_deref(), cx.clock.now());
    let (reading, mut said) = (cx.with_timeout(limits::MODEL_AFTER_END), Vec::new());
    while let Ok(Ok(Some(chunk))) = reading.wait(response.chunk()).await {
        said.extend_from_slice(&chunk);
        if said.len() > limits::MODEL_LINE {
            break;
        }
    }
    error_response::error_from_status(status, after, &said)
}

#[cfg(test)]
mod tests;
