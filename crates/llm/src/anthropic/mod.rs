//! The Messages API of Anthropic.
//!
//! [`Anthropic::new`] makes a client of one model behind one endpoint. It does not retry (the router does), does not follow
//! redirects, masks its API key in errors, and never shows the model's reasoning.
//!
//! | module | content |
//! | --- | --- |
//! | `family` | what the model families support |
//! | `request`, `blocks` | the body of a request |
//! | `strict`, `cache_control` | which tools are strict, and where the prompt cache has breakpoints |
//! | `response` | decodes the response |
//! | `thinking` | collects the reasoning that must be sent back |
//!
//! Sending and error handling are in `transport`, shared by all APIs.
//! Source: <https://docs.anthropic.com/en/api/messages>, November 2026.

mod blocks;
mod cache_control;
mod family;
mod request;
pub(crate) mod response;
mod strict;
mod thinking;

use async_trait::async_trait;
use reqwest::{
    Url,
    header::{HeaderMap, HeaderName, HeaderValue},
};
use segue_base::{context::CallContext, http, limits, secret::Secret};
use serde_json::Value;

use self::request::RequestDefaults;
use super::{
    ChatRequest, ChatStream, Llm, LlmEnvironment, LlmError, LlmErrorKind, ModelConfig, ModelConfigError, ModelProfile,
    Purpose,
    transport::{CallTimeouts, ModelEndpoint, ModelTransport, thoughts::ThoughtHistory},
};

/// The base URL of Anthropic's own API.
const DEFAULT_API_BASE: &str = "https://api.anthropic.com";
const MESSAGES_PATH: &str = "/v1/messages";
/// The API version that this module implements.
const API_VERSION: &str = "2023-06-01";

/// A client of one model behind one endpoint.
pub struct Anthropic {
    config: ModelConfig,
    profile: ModelProfile,
    defaults: RequestDefaults,
    /// Gateways serve open models with this API too.
    thoughts: ThoughtHistory,
    transport: ModelTransport,
}

impl Anthropic {
    /// Makes the client. Opens no connection.
    ///
    /// # Errors
    /// [`ModelConfigError`] when the entry lacks a key, or has a value that is not valid in a header or URL.
    pub fn new(config: &ModelConfig, environment: &LlmEnvironment) -> Result<Self, ModelConfigError> {
        let defaults = RequestDefaults::from_config(config)
            .map_err(|(key, problem)| ModelConfigError::new(config, key, problem))?;
        let filled = |text: Option<&str>| text.map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned);
        let given = filled(config.api_base.as_deref()).or(filled(environment.anthropic_base_url.as_deref()));
        let base = given.unwrap_or_else(|| DEFAULT_API_BASE.to_owned());
        let key = config.api_key.clone().or_else(|| environment.other_keys.get("anthropic").cloned());
        // A gateway may need no key; Anthropic always does.
        if key.is_none() && base.trim_end_matches('/') == DEFAULT_API_BASE {
            let fix = "no key; set the variable ANTHROPIC_API_KEY, or `api_key: ${…}`";
            return Err(ModelConfigError::new(config, "api_key", fix));
        }
        let effort = defaults.family.effort(config.reasoning_effort);
        let reasons = defaults.uses_reasoning(effort);
        let total = config.timeout.unwrap_or(limits::MODEL_TOTAL);
        // A response that is not streamed comes at its end, and hidden reasoning sends no events while it lasts.
        let first = if reasons || !request::streams(config) { total } else { limits::MODEL_FIRST_TOKEN.min(total) };
        let timeouts = CallTimeouts {
            first: config.first_token_timeout.unwrap_or(first),
            idle: config.idle_timeout.unwrap_or(if reasons { total } else { limits::MODEL_IDLE }),
            total,
        };
        let headers = headers(config, key.as_ref())?.into_iter().filter_map(|(name, value)| Some((name?, value)));
        let url = messages_url(config, &base)?;
        let endpoint = ModelEndpoint::new(url, key, headers, environment.outbound.clone());
        let transport = ModelTransport::new(&config.model, endpoint, timeouts);
        let (profile, thoughts) = (defaults.family.profile(&config.model), ThoughtHistory::of_model(&config.model));
        Ok(Self { profile, config: config.clone(), defaults, thoughts, transport })
    }

    /// The body of a request, as [`crate::request_body`] returns it.
    pub(super) fn body(config: &ModelConfig, request: &ChatRequest) -> Result<Vec<u8>, ModelConfigError> {
        let error = |key, problem| ModelConfigError::new(config, key, problem);
        let defaults = RequestDefaults::from_config(config).map_err(|(key, problem)| error(key, problem))?;
        request::body(request, config, &defaults).map_err(|problem| error("messages", problem.to_string()))
    }

    async fn send(&self, request: ChatRequest, cx: CallContext) -> Result<ChatStream, LlmError> {
        let body = request::body(&request, &self.config, &self.defaults);
        let body = body.map_err(|error| LlmError::new(LlmErrorKind::BadRequest).with_detail(error))?;
        let (model, messages, bytes) = (self.config.model.as_str(), request.messages.len(), body.len());
        let thoughts = (request.purpose != Purpose::COMMANDS).then(|| self.thoughts.clone());
        let decoder = || response::decoder(model.into(), messages, bytes).with_thoughts(thoughts.clone());
        self.transport.send(body, decoder, cx).await
    }
}

#[async_trait]
impl Llm for Anthropic {
    fn profile(&self) -> &ModelProfile {
        &self.profile
    }

    async fn chat(&self, request: ChatRequest, cx: &CallContext) -> Result<ChatStream, LlmError> {
        self.send(request, cx.clone()).await
    }
}

/// The URL of the Messages API; `api_base` may include `/v1` or the whole path.
fn messages_url(config: &ModelConfig, base: &str) -> Result<Url, ModelConfigError> {
    let base = base.trim_end_matches('/');
    let base = base.strip_suffix(MESSAGES_PATH).or(base.strip_suffix("/v1")).unwrap_or(base);
    http::parse_endpoint_url(&format!("{base}{MESSAGES_PATH}"))
        .map_err(|error| ModelConfigError::new(config, "api_base", error))
}

fn headers(config: &ModelConfig, key: Option<&Secret>) -> Result<HeaderMap, ModelConfigError> {
    let mut headers = HeaderMap::new();
    let value = |key: &'static str, text: &str| {
        let problem = "it contains characters that are not allowed in a header; look for a line break";
        HeaderValue::from_str(text.trim()).map_err(|_| ModelConfigError::new(config, key, problem))
    };
    let version = config.api_version.as_deref().map_or(API_VERSION, str::trim);
    headers.insert(HeaderName::from_static("anthropic-version"), value("api_version", version)?);
    let beta = match config.extra.get("anthropic_beta") {
        Some(Value::String(text)) => Some(text.clone()),
        Some(Value::Array(names)) => Some(names.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(",")),
        _ => None,
    };
    if let Some(beta) = beta.filter(|beta| !beta.is_empty()) {
        headers.insert(HeaderName::from_static("anthropic-beta"), value("anthropic_beta", &beta)?);
    }
    if let Some(key) = key {
        let mut api_key = value("api_key", key.expose())?;
        api_key.set_sensitive(true);
        headers.insert(HeaderName::from_static("x-api-key"), api_key);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests;
