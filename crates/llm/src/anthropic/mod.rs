//! The messages API of Anthropic.
//!
//! *For*: one model behind one endpoint. *Entry*: [`Anthropic::new`]. *Never*: it retries nothing (the router does), follows no
//! redirect, shows its key to nobody, and lets nobody read what the model thought.
//!
//! `family` holds facts about models, `strict` which tools are held to their schemas, `request` builds the body out of
//! `blocks` and `markers`, `response` reads the answer,
//! `thoughts` keeps what must be given back. What stands around them is the same for every API (`transport`),
//! and so are the shapes of errors.
//! Source: the vendor's API reference, November 2026.

mod blocks;
mod family;
mod markers;
mod request;
pub(crate) mod response;
mod strict;
mod thoughts;

use futures::future::BoxFuture;
use reqwest::{
    Url,
    header::{HeaderMap, HeaderName, HeaderValue},
};
use segue_base::{context::CallContext, http, limits, secret::Secret};
use serde_json::Value;

use self::request::Settled;
use super::{
    ChatRequest, ChatStream, Llm, LlmEnvironment, LlmError, LlmErrorKind, ModelConfig, ModelConfigError, ModelProfile,
    transport::{CallTimeouts, ModelEndpoint, ModelTransport},
};

/// Where the vendor offers it.
const HOME: &str = "https://api.anthropic.com";
const PATH: &str = "/v1/messages";
/// The version of the wire that this room speaks.
const VERSION: &str = "2023-06-01";

/// One model behind one endpoint.
pub struct Anthropic {
    config: ModelConfig,
    profile: ModelProfile,
    settled: Settled,
    transport: ModelTransport,
}

impl Anthropic {
    /// Makes the model. Opens no connection yet.
    ///
    /// # Errors
    /// [`ModelConfigError`] when the entry lacks a key, or holds what no header or address may hold.
    pub fn new(config: &ModelConfig, around: &LlmEnvironment) -> Result<Self, ModelConfigError> {
        let settled = Settled::of(config).map_err(|(key, problem)| ModelConfigError::new(config, key, problem))?;
        let filled = |text: Option<&str>| text.map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned);
        let given = filled(config.api_base.as_deref()).or(filled(around.anthropic_base_url.as_deref()));
        let base = given.unwrap_or_else(|| HOME.to_owned());
        let key = config.api_key.clone().or_else(|| around.other_keys.get("anthropic").cloned());
        // A gateway of one's own may need no key; the vendor always does.
        if key.is_none() && base.trim_end_matches('/') == HOME {
            let cure = "no key; set the variable ANTHROPIC_API_KEY, or `api_key: ${…}`";
            return Err(ModelConfigError::new(config, "api_key", cure));
        }
        let effort = settled.family.effort(config.reasoning_effort);
        let thinks = settled.thinks(effort);
        let total = config.timeout.unwrap_or(limits::MODEL_TOTAL);
        // The first sign of a whole answer is its end; thoughts may be kept back for as long as they last.
        let first = if thinks || !request::streams(config) { total } else { limits::MODEL_FIRST_TOKEN.min(total) };
        let timeouts = CallTimeouts {
            first: config.first_token_timeout.unwrap_or(first),
            idle: config.idle_timeout.unwrap_or(if thinks { total } else { limits::MODEL_IDLE }),
            total,
        };
        let headers = headers(config, key.as_ref())?.into_iter().filter_map(|(name, value)| Some((name?, value)));
        let url = address(config, &base)?;
        let endpoint = ModelEndpoint::new(url, key, headers, around.outbound.clone());
        let transport = ModelTransport::new(&config.model, endpoint, timeouts);
        Ok(Self { profile: settled.family.profile(&config.model), config: config.clone(), settled, transport })
    }

    async fn ask(&self, request: ChatRequest, cx: CallContext) -> Result<ChatStream, LlmError> {
        let body = request::body(&request, &self.config, &self.settled);
        let body = body.map_err(|error| LlmError::new(LlmErrorKind::BadRequest).because(error))?;
        let (model, messages, bytes) = (self.config.model.as_str(), request.messages.len(), body.len());
        self.transport.send(body, || response::decoder(model.into(), messages, bytes), cx).await
    }
}

impl Llm for Anthropic {
    fn profile(&self) -> &ModelProfile {
        &self.profile
    }

    fn chat<'a>(&'a self, request: ChatRequest, cx: &'a CallContext) -> BoxFuture<'a, Result<ChatStream, LlmError>> {
        Box::pin(self.ask(request, cx.clone()))
    }
}

/// `api_base` may be written with or without the version or the whole path.
fn address(config: &ModelConfig, base: &str) -> Result<Url, ModelConfigError> {
    let base = base.trim_end_matches('/');
    let base = base.strip_suffix(PATH).or(base.strip_suffix("/v1")).unwrap_or(base);
    http::parse_endpoint_url(&format!("{base}{PATH}")).map_err(|error| ModelConfigError::new(config, "api_base", error))
}

fn headers(config: &ModelConfig, key: Option<&Secret>) -> Result<HeaderMap, ModelConfigError> {
    let mut headers = HeaderMap::new();
    let value = |key: &'static str, text: &str| {
        let problem = "it holds characters that no header may carry; look for a line break";
        HeaderValue::from_str(text.trim()).map_err(|_| ModelConfigError::new(config, key, problem))
    };
    let version = config.api_version.as_deref().map_or(VERSION, str::trim);
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
        let mut proof = value("api_key", key.expose())?;
        proof.set_sensitive(true);
        headers.insert(HeaderName::from_static("x-api-key"), proof);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests;
