//! The chat completions wire: the common tongue of OpenAI, Azure, vLLM, Ollama, llama.cpp, LiteLLM and many more.
//!
//! *For*: one model behind one endpoint. *Entry*: [`OpenAi::new`]. *Never*: it retries nothing (the router does), follows no
//! redirect, and shows its key to nobody.
//!
//! `endpoint` says where and with which proof, `request` builds the body, `stream` decodes the answer,
//! `response` names the failures. `embeddings` is the vendor's other wire: texts to vectors.

pub(crate) mod embeddings;
pub(crate) mod endpoint;
mod request;
pub(super) mod response;
pub(crate) mod stream;

pub(crate) use response::failure;

use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, future::BoxFuture};
use reqwest::header;
use serde_json::{Map, Value};

use self::{
    endpoint::{Endpoint, Service},
    stream::ChunkDecoder,
};
use super::{
    ChatRequest, ChatStream, Llm, LlmError, LlmErrorKind, ModelConfig, ModelProfile, OpenError, Surroundings,
    profile::TokenLimit,
    pump::{Waits, pump},
};
use crate::{
    clock::Deadline,
    cx::{Cx, Stopped},
    http::Outbound,
    limits,
};

/// One model behind one endpoint.
pub struct OpenAi {
    config: ModelConfig,
    profile: ModelProfile,
    /// The extras of the entry that travel.
    extra: Map<String, Value>,
    endpoint: Endpoint,
    outbound: Outbound,
    waits: Waits,
}

impl OpenAi {
    /// Makes the model. Opens no connection yet.
    ///
    /// # Errors
    /// [`OpenError`] when the entry lacks what its provider needs.
    pub fn new(config: &ModelConfig, around: &Surroundings) -> Result<Self, OpenError> {
        let endpoint = Endpoint::of(config, around, Service::Chat)?;
        let mut profile = ModelProfile::of(&config.provider, &config.model);
        if let Some(version) = &endpoint.azure_version {
            // Azure refuses `stream_options` before this version and `max_completion_tokens` before the next.
            profile.stream_options &= version.as_str() >= "2024-09-01";
            if version.as_str() < "2024-12-01" && profile.efforts.is_empty() {
                profile.token_limit = TokenLimit::MaxTokens;
            }
        }
        let total = config.timeout.unwrap_or(limits::MODEL_TOTAL);
        let thinks = profile.thinks(profile.effort(config.reasoning_effort));
        // The first sign of a whole answer is its end.
        let waits_long = thinks || !request::streams(config);
        let first = if waits_long { total } else { limits::MODEL_FIRST_TOKEN.min(total) };
        let waits = Waits {
            first: config.first_token_timeout.unwrap_or(first),
            idle: config.idle_timeout.unwrap_or(limits::MODEL_IDLE),
            total,
        };
        let extra = request::extras(config);
        Ok(Self { config: config.clone(), profile, extra, endpoint, outbound: around.outbound.clone(), waits })
    }

    async fn ask(&self, request: ChatRequest, cx: Cx) -> Result<ChatStream, LlmError> {
        let bad_request = |error: &dyn std::fmt::Display| LlmError::new(LlmErrorKind::BadRequest).because(error);
        let body = request::body(&request, &self.config, &self.profile, &self.extra).map_err(|e| bad_request(&e))?;
        let decoder = ChunkDecoder::new(request.messages.len(), body.len());
        let client = self.outbound.client().map_err(|e| LlmError::new(LlmErrorKind::Unreachable).because(e))?;
        let first = cx.clock.deadline(self.waits.first);
        let mut post = client.post(self.endpoint.url.clone()).header(header::CONTENT_TYPE, "application/json");
        if let Some((name, value)) = &self.endpoint.proof {
            post = post.header(name, value);
        }
        let waiting = Cx { deadline: cx.deadline.min(first), ..cx.clone() };
        let sent = waiting.wait(post.body(body).send()).await.map_err(|stopped| overdue(stopped, first, &cx))?;
        let response = sent.map_err(|error| self.masked(unreachable(error)))?;
        if !response.status().is_success() {
            return Err(self.masked(refusal(response, &waiting).await));
        }
        let key = self.endpoint.key.clone();
        let body = response.bytes_stream().map_err(broken).boxed();
        let stream = pump(body, decoder, self.waits, first, cx);
        Ok(ChatStream::new(stream.map_err(move |error| response::without_key(error, key.as_ref().map(|k| k.expose())))))
    }

    fn masked(&self, error: LlmError) -> LlmError {
        response::without_key(error, self.endpoint.key.as_ref().map(|key| key.expose()))
    }
}

impl Llm for OpenAi {
    fn profile(&self) -> &ModelProfile {
        &self.profile
    }

    fn chat<'a>(&'a self, request: ChatRequest, cx: &'a Cx) -> BoxFuture<'a, Result<ChatStream, LlmError>> {
        Box::pin(self.ask(request, cx.within(self.waits.total)))
    }
}

pub(super) fn overdue(stopped: Stopped, first: Deadline, cx: &Cx) -> LlmError {
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

pub(super) fn unreachable(error: reqwest::Error) -> LlmError {
    LlmError::new(LlmErrorKind::Unreachable).because(cause(error))
}

pub(super) fn broken(error: reqwest::Error) -> LlmError {
    LlmError::new(LlmErrorKind::CutShort).because(cause(error))
}

/// Reads what the vendor says with a status other than 2xx, as far as the limits allow.
pub(super) async fn refusal(response: reqwest::Response, cx: &Cx) -> LlmError {
    let status = response.status().as_u16();
    let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let after =
        response::retry_after(header("retry-after-ms").as_deref(), header("retry-after").as_deref(), cx.clock.now());
    let mut said = Vec::new();
    let mut body = response.bytes_stream();
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

#[cfg(test)]
mod tests;
