//! What stands around an answer, the same on every wire: a request goes out within its time, what comes back is read by the
//! wire's decoder, and what goes wrong before that has a name.
//!
//! *Never*: it retries nothing (the router does), follows no redirect, and shows its key to nobody.

use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use reqwest::{
    Url,
    header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
};

use super::{
    ChatStream, Delta, LlmError, LlmErrorKind,
    oddity::{Acquaintance, announced},
    pump::{Decode, Waits, pump},
    response,
};
use crate::{
    clock::Deadline,
    cx::{Cx, Stopped},
    http::Outbound,
    limits,
    secret::Secret,
};

/// One address of one model: where it is asked, with which proof, and how long it is waited for.
pub(super) struct Frame {
    /// The model, as its entry names it.
    model: Arc<str>,
    pub(super) url: Url,
    /// Proof, version, and the content type.
    headers: HeaderMap,
    /// The key itself, to mask it in what comes back.
    key: Option<Secret>,
    outbound: Outbound,
    pub(super) waits: Waits,
    known: Arc<Acquaintance>,
}

impl Frame {
    /// Opens no connection yet.
    pub(super) fn new(model: &str, url: Url, key: Option<Secret>, outbound: Outbound, waits: Waits) -> Self {
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        Self { model: model.into(), url, headers, key, outbound, waits, known: Arc::default() }
    }

    /// The same with more headers.
    pub(super) fn with(mut self, headers: impl IntoIterator<Item = (HeaderName, HeaderValue)>) -> Self {
        self.headers.extend(headers);
        self
    }

    /// Sends `body`; the answer is read by `decoder`. `cx` ends with the call.
    pub(super) async fn ask<D>(&self, body: Vec<u8>, decoder: D, cx: Cx) -> Result<ChatStream, LlmError>
    where
        D: Decode + Unpin + 'static,
    {
        let first = cx.clock.deadline(self.waits.first);
        let answer = self.sent(body, first, &cx).await.map_err(|error| masked(error, self.key.as_ref()))?;
        let announced = announced(answer.headers());
        let (key, model, known) = (self.key.clone(), self.model.clone(), self.known.clone());
        let body = answer.bytes_stream().map_err(broken).boxed();
        let deltas = pump(body, decoder, self.waits, first, cx);
        Ok(ChatStream::new(deltas.map(move |item| match item {
            Ok(Delta::Done(answer)) => Ok(Delta::Done(known.judge(&model, announced.as_ref(), answer))),
            Ok(delta) => Ok(delta),
            Err(error) => Err(masked(error, key.as_ref())),
        })))
    }

    async fn sent(&self, body: Vec<u8>, first: Deadline, cx: &Cx) -> Result<reqwest::Response, LlmError> {
        let client = self.outbound.client().map_err(|e| LlmError::new(LlmErrorKind::Unreachable).because(e))?;
        let post = client.post(self.url.clone()).headers(self.headers.clone()).body(body);
        let waiting = Cx { deadline: cx.deadline.min(first), ..cx.clone() };
        let tried = self.outbound.next_address(&self.url);
        let sent = waiting.wait(post.send()).await.map_err(|stopped| overdue(stopped, first, cx))?;
        let answer = sent.map_err(|error| {
            self.outbound.try_next_address(&self.url, tried);
            unreachable(error)
        })?;
        if answer.status().is_success() { Ok(answer) } else { Err(refusal(answer, &waiting).await) }
    }
}

fn masked(error: LlmError, key: Option<&Secret>) -> LlmError {
    response::without_key(error, key.map(Secret::expose))
}

fn overdue(stopped: Stopped, first: Deadline, cx: &Cx) -> LlmError {
    match stopped {
        Stopped::Cancelled => LlmErrorKind::Cancelled.into(),
        Stopped::DeadlinePassed if cx.deadline <= first => LlmErrorKind::Total.into(),
        Stopped::DeadlinePassed => LlmErrorKind::FirstTokenTimeout.into(),
    }
}

/// The cause at the root of an error of the client, without the address.
fn cause(error: reqwest::Error) -> Arc<str> {
    let error = error.without_url();
    let mut deepest: &dyn std::error::Error = &error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    format!("{error}: {deepest}").into()
}

/// No byte of an answer came.
pub(super) fn unreachable(error: reqwest::Error) -> LlmError {
    LlmError::new(LlmErrorKind::Unreachable).because(cause(error))
}

/// The bytes broke off.
pub(super) fn broken(error: reqwest::Error) -> LlmError {
    LlmError::new(LlmErrorKind::CutShort).because(cause(error))
}

/// Reads what the vendor says with a status other than 2xx, as far as the limits allow.
pub(super) async fn refusal(answer: reqwest::Response, cx: &Cx) -> LlmError {
    let status = answer.status().as_u16();
    let header = |name: &str| answer.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let after =
        response::retry_after(header("retry-after-ms").as_deref(), header("retry-after").as_deref(), cx.clock.now());
    let mut said = Vec::new();
    let mut body = answer.bytes_stream();
    // The status alone is enough to decide: a slow or endless body only costs its words.
    let reading = cx.within(limits::MODEL_AFTER_END);
    while let Ok(Some(Ok(bytes))) = reading.wait(body.next()).await {
        said.extend_from_slice(&bytes);
        if said.len() > limits::MODEL_LINE {
            break;
        }
    }
    response::failure(status, after, &said)
}
