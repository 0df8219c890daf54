//! The OpenAI chat completions API, which most other providers also accept.
//!
//! *For*: one model behind one endpoint. *Entry*: [`OpenAi::new`]. *Never*: it retries nothing (the router does), follows no
//! redirect, and shows its key to nobody.
//!
//! `endpoint` says where and with which credentials, `request` builds the body, `response` reads the answer; what stands around them is the
//! same for every API (`transport`). `embeddings` is the vendor's other API: texts to vectors.

pub(crate) mod embeddings;
pub(crate) mod endpoint;
mod request;
pub(crate) mod response;

use futures::future::BoxFuture;
use segue_base::{context::CallContext, limits};
use serde_json::{Map, Value};

use self::endpoint::{Endpoint, Service};
use super::{
    ChatRequest, ChatStream, Llm, LlmEnvironment, LlmError, LlmErrorKind, ModelConfig, ModelConfigError, ModelProfile,
    profile::TokenLimitParam,
    transport::{CallTimeouts, ModelEndpoint, ModelTransport},
};

/// One model behind one endpoint.
pub struct OpenAi {
    config: ModelConfig,
    profile: ModelProfile,
    /// The extras of the entry that travel.
    extra: Map<String, Value>,
    transport: ModelTransport,
}

impl OpenAi {
    /// Makes the model. Opens no connection yet.
    ///
    /// # Errors
    /// [`ModelConfigError`] when the entry lacks what its provider needs.
    pub fn new(config: &ModelConfig, around: &LlmEnvironment) -> Result<Self, ModelConfigError> {
        let endpoint = Endpoint::of(config, around, Service::Chat)?;
        let mut profile = ModelProfile::of(&config.provider, &config.model);
        if let Some(version) = &endpoint.azure_version {
            // Azure refuses `stream_options` before this version and `max_completion_tokens` before the next.
            profile.stream_options &= version.as_str() >= "2024-09-01";
            if version.as_str() < "2024-12-01" && profile.efforts.is_empty() {
                profile.token_limit = TokenLimitParam::MaxTokens;
            }
        }
        let total = config.timeout.unwrap_or(limits::MODEL_TOTAL);
        let thinks = profile.thinks(profile.effort(config.reasoning_effort));
        // The first sign of a whole answer is its end; a model that thinks may be silent for as long as its thoughts last.
        let waits_long = thinks || !request::streams(config);
        let first = if waits_long { total } else { limits::MODEL_FIRST_TOKEN.min(total) };
        let timeouts = CallTimeouts {
            first: config.first_token_timeout.unwrap_or(first),
            idle: config.idle_timeout.unwrap_or(if thinks { total } else { limits::MODEL_IDLE }),
            total,
        };
        let extra = request::extras(config);
        let endpoint = ModelEndpoint::new(endpoint.url, endpoint.key, endpoint.proof, around.outbound.clone());
        let transport = ModelTransport::new(&config.model, endpoint, timeouts);
        Ok(Self { config: config.clone(), profile, extra, transport })
    }

    async fn ask(&self, request: ChatRequest, cx: CallContext) -> Result<ChatStream, LlmError> {
        let body = request::body(&request, &self.config, &self.profile, &self.extra);
        let body = body.map_err(|error| LlmError::new(LlmErrorKind::BadRequest).because(error))?;
        let (messages, bytes) = (request.messages.len(), body.len());
        self.transport.send(body, || response::decoder(messages, bytes), cx).await
    }
}

impl Llm for OpenAi {
    fn profile(&self) -> &ModelProfile {
        &self.profile
    }

    fn chat<'a>(&'a self, request: ChatRequest, cx: &'a CallContext) -> BoxFuture<'a, Result<ChatStream, LlmError>> {
        Box::pin(self.ask(request, cx.clone()))
    }
}

#[cfg(test)]
mod tests;
