//! The OpenAI chat completions API, which most other providers also accept.
//!
//! [`OpenAi::new`] makes a client of one model behind one endpoint. It does not retry (the router does), does not follow redirects,
//! and masks its API key in errors.
//!
//! `endpoint` resolves the URL and the credentials, `request` builds the body, `response` decodes the response, and `vendor_state` keeps
//! what the provider wants back. Sending and error handling are in `transport`, shared by all APIs. `embeddings` is the Embeddings API.
//! Source: <https://platform.openai.com/docs/api-reference/chat>.

pub(crate) mod embeddings;
pub(crate) mod endpoint;
mod request;
pub(crate) mod response;
mod vendor_state;

use async_trait::async_trait;
use segue_base::{context::CallContext, limits};
use serde_json::{Map, Value};

use self::endpoint::{ApiKind, ResolvedEndpoint};
use super::{
    ChatRequest, ChatStream, Llm, LlmEnvironment, LlmError, LlmErrorKind, ModelConfig, ModelConfigError, ModelProfile,
    Purpose,
    profile::TokenLimitParam,
    transport::{CallTimeouts, ModelEndpoint, ModelTransport, thoughts::ThoughtHistory},
};

/// A client of one model behind one endpoint.
pub struct OpenAi {
    config: ModelConfig,
    profile: ModelProfile,
    /// Settings of the entry that are sent unchanged.
    extra: Map<String, Value>,
    thoughts: ThoughtHistory,
    transport: ModelTransport,
}

impl OpenAi {
    /// Makes the client. Opens no connection.
    ///
    /// # Errors
    /// [`ModelConfigError`] when the entry lacks what its provider needs.
    pub fn new(config: &ModelConfig, environment: &LlmEnvironment) -> Result<Self, ModelConfigError> {
        let endpoint = ResolvedEndpoint::from_config(config, environment, ApiKind::Chat)?;
        let mut profile = ModelProfile::for_model(&config.provider, &config.model);
        if let Some(version) = &endpoint.azure_version {
            // Azure accepts `stream_options` since API version 2024-09-01 and `max_completion_tokens` since 2024-12-01.
            profile.supports_stream_options &= version.as_str() >= "2024-09-01";
            if version.as_str() < "2024-12-01" && profile.efforts.is_empty() {
                profile.token_limit = TokenLimitParam::MaxTokens;
            }
        }
        let total = config.timeout.unwrap_or(limits::MODEL_TOTAL);
        let reasons = profile.uses_reasoning(profile.effort(config.reasoning_effort));
        // A response that is not streamed comes at its end, and hidden reasoning sends no events while it lasts.
        let first_event_is_late = reasons || !request::streams(config);
        let first = if first_event_is_late { total } else { limits::MODEL_FIRST_TOKEN.min(total) };
        let timeouts = CallTimeouts {
            first: config.first_token_timeout.unwrap_or(first),
            idle: config.idle_timeout.unwrap_or(if reasons { total } else { limits::MODEL_IDLE }),
            total,
        };
        let extra = request::passthrough_settings(config);
        let endpoint =
            ModelEndpoint::new(endpoint.url, endpoint.key, endpoint.auth_header, environment.outbound.clone());
        let transport = ModelTransport::new(&config.model, endpoint, timeouts);
        let thoughts = ThoughtHistory::of_model(&config.model);
        Ok(Self { config: config.clone(), profile, extra, thoughts, transport })
    }

    /// The body of a request, as [`crate::request_body`] returns it.
    pub(super) fn body(config: &ModelConfig, request: &ChatRequest) -> Result<Vec<u8>, serde_json::Error> {
        let profile = ModelProfile::for_model(&config.provider, &config.model);
        request::body(request, config, &profile, &request::passthrough_settings(config))
    }

    async fn send(&self, request: ChatRequest, cx: CallContext) -> Result<ChatStream, LlmError> {
        let body = request::body(&request, &self.config, &self.profile, &self.extra);
        let body = body.map_err(|error| LlmError::new(LlmErrorKind::BadRequest).with_detail(error))?;
        let (model, messages, bytes) = (self.config.model.as_str(), request.messages.len(), body.len());
        // The parser of commands tells thoughts apart itself: there a mark may be part of a value that the user has written.
        let thoughts = (request.purpose != Purpose::COMMANDS).then(|| self.thoughts.clone());
        let decoder = || response::decoder(model.into(), messages, bytes).with_thoughts(thoughts.clone());
        self.transport.send(body, decoder, cx).await
    }
}

#[async_trait]
impl Llm for OpenAi {
    fn profile(&self) -> &ModelProfile {
        &self.profile
    }

    async fn chat(&self, request: ChatRequest, cx: &CallContext) -> Result<ChatStream, LlmError> {
        self.send(request, cx.clone()).await
    }
}

#[cfg(test)]
mod tests;
