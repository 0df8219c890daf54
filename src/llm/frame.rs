//! What stands around an answer, the same on every wire: a request goes out within its time, what comes back is read by the
//! wire's decoder, and what goes wrong before that has a name.
//!
//! *Never*: it retries nothing (the router does), follows no redirect, and shows its key to nobody.

use std::sync::Arc;

use futures::StreamExt;
use reqwest::{
    Url,
    header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
};

use super::{
    ChatStream, Delta, LlmError, LlmErrorKind,
    oddity::{Acquaintance, announced},
    pump::{Decode, Due, Waits, pump},
    response,
};
use crate::{
    cx::{Cx, Stopped},
    http::{Lost, Outbound, Reply, Target},
    limits,
    secret::Secret,
};

/// One address of one model: where it is asked, with which proof, and how long it is waited for.
pub(super) struct Frame {
    /// The model, as its entry names it.
    model: Arc<str>,
    pub(super) url: Url,
    /// The same with proof, version and content type.
    target: Target,
    /// The key itself, to mask it in what comes back.
    key: Option<Secret>,
    outbound: Outbound,
    pub(super) waits: Waits,
    known: Arc<Acquaintance>,
}

impl Frame {
    /// Opens no connection yet. `headers` hold what proves who asks, and whatever else the wire wants beside the content type.
    pub(super) fn new(
        model: &str,
        url: Url,
        key: Option<Secret>,
        headers: impl IntoIterator<Item = (HeaderName, HeaderValue)>,
        outbound: Outbound,
        waits: Waits,
    ) -> Self {
        let target = target(&url, headers);
        Self { model: model.into(), url, target, key, outbound, waits, known: Arc::default() }
    }

    /// Sends `body`; what comes back is read by what `decoder` makes. `cx` is the caller's: the call ends with it, or earlier
    /// by the waits of this model.
    pub(super) async fn ask<D>(
        &self,
        body: Vec<u8>,
        decoder: impl FnOnce() -> D,
        cx: Cx,
    ) -> Result<ChatStream, LlmError>
    where
        D: Decode + Unpin + 'static,
    {
        let due = Due { first: cx.clock.deadline(self.waits.first), total: cx.clock.deadline(self.waits.total) };
        let answer = self.sent(body, due, &cx).await.map_err(|error| masked(error, self.key.as_ref()))?;
        let announced = announced(answer.headers());
        let (key, model, known) = (self.key.clone(), self.model.clone(), self.known.clone());
        let deltas = pump(answer.read(broken), decoder(), self.waits, due, cx);
        Ok(ChatStream::new(deltas.map(move |item| match item {
            Ok(Delta::Done(answer)) => Ok(Delta::Done(known.judge(&model, announced.as_ref(), answer))),
            Ok(delta) => Ok(delta),
            Err(error) => Err(masked(error, key.as_ref())),
        })))
    }

    async fn sent(&self, body: Vec<u8>, due: Due, cx: &Cx) -> Result<Reply, LlmError> {
        let client = self.outbound.calls().map_err(|e| LlmError::new(LlmErrorKind::Unreachable).because(e))?;
        let waiting = Cx { deadline: cx.deadline.min(due.first).min(due.total), ..cx.clone() };
        let tried = self.outbound.next_address(&self.url);
        let post = Box::pin(client.post(&self.target, body));
        let sent = waiting.wait(post).await.map_err(|stopped| overdue(stopped, due, cx))?;
        let answer = sent.map_err(|lost| {
            self.outbound.try_next_address(&self.url, tried);
            unreachable(lost)
        })?;
        if answer.is_success() { Ok(answer) } else { Err(refusal(answer, &waiting).await) }
    }
}

/// Where JSON is posted, with more headers.
pub(super) fn target(url: &Url, headers: impl IntoIterator<Item = (HeaderName, HeaderValue)>) -> Target {
    let mut all = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
    all.extend(headers);
    Target::new(url, all)
}

fn masked(error: LlmError, key: Option<&Secret>) -> LlmError {
    response::without_key(error, key.map(Secret::expose))
}

fn overdue(stopped: Stopped, due: Due, cx: &Cx) -> LlmError {
    match stopped {
        Stopped::Cancelled => LlmErrorKind::Cancelled.into(),
        Stopped::DeadlinePassed => due.passed(due.first, true, cx).into(),
    }
}

/// No byte of an answer came.
pub(super) fn unreachable(lost: Lost) -> LlmError {
    LlmError::new(LlmErrorKind::Unreachable).because(lost)
}

/// The bytes broke off.
pub(super) fn broken(lost: Lost) -> LlmError {
    LlmError::new(LlmErrorKind::CutShort).because(lost)
}

/// Reads what the vendor says with a status other than 2xx, as far as the limits allow.
pub(super) async fn refusal(answer: Reply, cx: &Cx) -> LlmError {
    let status = answer.status();
    let header = |name: &str| answer.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let after =
        response::retry_after(header("retry-after-ms").as_deref(), header("retry-after").as_deref(), cx.clock.now());
    let mut said = Vec::new();
    let mut body = answer.read(broken);
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
