//! Clients of language models and embedding models.
//!
//! Every provider, the scripted model and recorded exchanges implement one trait, [`Llm`]. [`open`] makes a model group from
//! plain data ([`ModelConfig`]); [`Llm::chat`] calls it. All responses are streams; [`ChatStream::finish`] waits for the whole.
//!
//! Guarantees:
//!
//! * A tool call is returned only after the model's finish reason came and its arguments were parsed (tested by
//!   `a_truncated_stream_fails_or_is_complete` in `conformance`).
//! * The text of an error contains neither a secret nor the provider's message, so it may be shown to users;
//!   [`LlmError::detail`] is for operators.
//! * This package never reads environment variables; the caller passes them in [`LlmEnvironment`].
//!
//! | module | content |
//! | --- | --- |
//! | [`message`], [`request`], [`stream`], [`error`] | messages, requests, responses, errors |
//! | `request_hash` | the canonical form of a request and its hash |
//! | [`profile`] | what each model family supports |
//! | `transport` | sends requests; decodes bytes to events and events to responses, within deadlines |
//! | [`warning`] | deviations in responses that are used nevertheless |
//! | [`retry`], [`router`] | retries, model groups, fallbacks, circuit breakers |
//! | `context_window` | shortens requests that are too long for a model |
//! | [`price`] | the cost of a call |
//! | [`openai`] | the Chat Completions API and the Embeddings API |
//! | [`anthropic`] | the Messages API |
//! | [`embeddings`] | embedding models |
//! | [`scripted`], [`cassette`] | models without a network |

pub mod anthropic;
pub mod cassette;
#[cfg(test)]
mod conformance;
mod context_window;
pub mod embeddings;
pub mod error;
pub mod message;
pub mod openai;
pub mod price;
pub mod profile;
pub mod request;
mod request_hash;
pub mod retry;
pub mod router;
pub mod scripted;
pub mod stream;
#[cfg(test)]
#[path = "../../../tests/support/test_server.rs"]
mod test_server;
mod transport;
pub mod warning;

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use segue_base::{context::CallContext, secret::Secret};
use serde_json::{Map, Value};

pub use embeddings::{Embedder, Embedding};
pub use error::{InvalidResponse, LlmError, LlmErrorKind};
pub use message::{ChatMessage, ChatResponse, DropReason, FinishReason, RoutingInfo, ToolArguments, ToolCall, Usage};
pub use profile::{ModelProfile, ReasoningEffort};
pub use request::{ChatRequest, Purpose, ToolChoice, ToolList, ToolSpec};
pub use request_hash::RequestHash;
pub use router::{RouterConfig, RoutingStrategy};
pub use stream::{ChatStream, Delta};
pub use warning::ResponseWarning;

/// A model, or a group of them.
#[async_trait]
pub trait Llm: Send + Sync {
    /// The profile of the model; of the first model of a group.
    fn profile(&self) -> &ModelProfile;

    /// Calls the model. The stream owns what it needs of `cx` (deadline, cancellation, clock).
    ///
    /// # Errors
    /// [`LlmError`] when the call failed before the response began; later failures are items of the stream.
    ///
    /// # Cancellation
    /// Dropping the future or the stream closes the connection; cancelling `cx.cancel` makes both end with
    /// [`LlmErrorKind::Cancelled`].
    async fn chat(&self, request: ChatRequest, cx: &CallContext) -> Result<ChatStream, LlmError>;
}

/// One entry of a model group as plain data: an entry of `endpoints.yml` with `${}` expanded and defaults applied.
#[derive(Clone, Debug, Default)]
pub struct ModelConfig {
    /// `openai`, `azure`, `anthropic`, `self-hosted`, `scripted`, `cassette`, or the name of a
    /// provider with a Chat Completions API.
    pub provider: String,
    /// The provider's name of the model.
    pub model: String,
    /// Azure: the deployment, which is part of the URL path.
    pub deployment: Option<String>,
    /// Base URL of the API, without `/chat/completions`.
    pub api_base: Option<String>,
    /// Azure: the query parameter `api-version`. Anthropic: the header `anthropic-version`.
    pub api_version: Option<String>,
    /// The API key; without one, the provider's key in [`LlmEnvironment`] is used.
    pub api_key: Option<Secret>,
    /// Limit of one whole call; default [`segue_base::limits::MODEL_TOTAL`].
    pub timeout: Option<Duration>,
    /// Limit from the request to the first event; default [`segue_base::limits::MODEL_FIRST_TOKEN`], or the whole call with hidden
    /// reasoning.
    pub first_token_timeout: Option<Duration>,
    /// Limit between two events; default [`segue_base::limits::MODEL_IDLE`].
    pub idle_timeout: Option<Duration>,
    /// Attempts after the first; default [`segue_base::limits::MODEL_TRIES`] − 1.
    pub num_retries: Option<u32>,
    /// Used when the request sets none; omitted where the model rejects it.
    pub temperature: Option<f64>,
    /// Maximum tokens of a response, when the request sets none (`max_tokens` or `max_completion_tokens`).
    pub max_tokens: Option<u32>,
    /// Used when the request sets none; default: the lowest effort of the model.
    pub reasoning_effort: Option<ReasoningEffort>,
    /// Used when the request sets none.
    pub parallel_tool_calls: Option<bool>,
    /// Other keys, sent unchanged (`top_p`, `stop`, `logit_bias`, …). Keys that this package sets itself are ignored.
    pub extra: Map<String, Value>,
    /// `scripted`: the rules. `cassette`: the recorded exchanges.
    pub source: Option<ScriptSource>,
}

/// Where the rules of a scripted model or the exchanges of a cassette come from.
#[derive(Clone, Debug)]
pub enum ScriptSource {
    /// A file, read when the model is opened.
    File(PathBuf),
    /// A text that the caller has read.
    Text {
        /// The name in messages.
        name: String,
        /// The content.
        text: Arc<str>,
    },
}

/// Keys, base URLs and HTTP clients for model clients. The caller provides them; nothing is read from the process environment.
#[derive(Clone, Debug, Default)]
pub struct LlmEnvironment {
    /// `OPENAI_BASE_URL`: used by provider `openai` without `api_base`. Wins over [`Self::openai_api_base`].
    pub openai_base_url: Option<String>,
    /// `OPENAI_API_BASE`: the older name of the same.
    pub openai_api_base: Option<String>,
    /// `OPENAI_API_KEY`.
    pub openai_api_key: Option<Secret>,
    /// `ANTHROPIC_BASE_URL`: used by provider `anthropic` without `api_base`.
    pub anthropic_base_url: Option<String>,
    /// `AZURE_API_BASE`.
    pub azure_api_base: Option<String>,
    /// `AZURE_API_VERSION`.
    pub azure_api_version: Option<String>,
    /// `AZURE_API_KEY`.
    pub azure_api_key: Option<Secret>,
    /// Keys of all other providers, by provider name (`ANTHROPIC_API_KEY` under `anthropic`, …).
    pub other_keys: std::collections::BTreeMap<String, Secret>,
    /// The HTTP clients, shared with all other external services.
    pub outbound: segue_base::http::HttpClients,
    /// Seed of retry jitter and of the scripted model's fault injection.
    pub seed: u64,
    /// The waits that providers asked for; models with the same account share them, whichever group they are in.
    pub rate_limits: router::RateLimits,
}

/// An invalid entry of a model group.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("model `{model}` of provider `{provider}`: `{key}`: {problem}")]
pub struct ModelConfigError {
    /// The provider, as written.
    pub provider: String,
    /// The model, as written.
    pub model: String,
    /// The key of the entry that is wrong or missing.
    pub key: &'static str,
    /// What is wrong and how to fix it.
    pub problem: String,
}

impl ModelConfigError {
    pub(crate) fn new(config: &ModelConfig, key: &'static str, problem: impl fmt::Display) -> Self {
        Self { provider: config.provider.clone(), model: config.model.clone(), key, problem: problem.to_string() }
    }
}

/// Makes a model group. The routing strategy selects the entry to call; when that fails, the others are called.
///
/// Opens no connection. Reads the files of scripted models and cassettes.
///
/// # Errors
/// [`ModelConfigError`] for an entry that lacks what its provider needs, or without entries.
pub fn open_group(
    entries: &[ModelConfig],
    group: &RouterConfig,
    environment: &LlmEnvironment,
) -> Result<Arc<dyn Llm>, ModelConfigError> {
    let mut members = Vec::with_capacity(entries.len());
    for config in entries {
        let retries = config.num_retries.map(|retries| retries.min(MAX_ATTEMPTS - 1));
        let max_attempts = retries.map_or(segue_base::limits::MODEL_TRIES, |retries| retries + 1);
        members.push(router::GroupMember {
            model: open_one(config, environment)?,
            max_attempts,
            limits: router::MemberLimits::from_config(config),
            rate_limit: environment.rate_limits.of(config),
        });
    }
    let mut members = members.into_iter();
    let Some(first) = members.next() else {
        return Err(ModelConfigError::new(
            &ModelConfig::default(),
            "models",
            "the group has no model; list at least one",
        ));
    };
    let policy = retry::RetryPolicy::default();
    Ok(Arc::new(router::Router::new(first, members.collect(), group.clone(), policy, environment.seed)))
}

/// A model group with fallback groups, which are called in order when it fails as a whole. Each keeps its own strategy.
pub fn with_fallback_groups(
    group: Arc<dyn Llm>,
    others: &[Arc<dyn Llm>],
    environment: &LlmEnvironment,
) -> Arc<dyn Llm> {
    let member = |model: Arc<dyn Llm>| router::GroupMember {
        model,
        max_attempts: 1,
        limits: router::MemberLimits::default(),
        rate_limit: router::RateLimit::default(),
    };
    let others = others.iter().cloned().map(member).collect();
    // Each group has already shortened the request for itself.
    let policy = retry::RetryPolicy { shortens_requests: false, ..retry::RetryPolicy::default() };
    Arc::new(router::Router::new(member(group), others, RouterConfig::default(), policy, environment.seed))
}

/// Makes a model group of which the first entry is called, and the others in order when it fails.
///
/// # Errors
/// As [`open_group`].
pub fn open(entries: &[ModelConfig], environment: &LlmEnvironment) -> Result<Arc<dyn Llm>, ModelConfigError> {
    open_group(entries, &RouterConfig::default(), environment)
}

/// The body that the client of a model entry would send: the Messages API for provider `anthropic`, otherwise Chat Completions. For
/// tests of message histories; nothing is sent.
///
/// # Errors
/// [`ModelConfigError`] for an invalid entry, or a request that is not serialisable.
pub fn request_body(request: &ChatRequest, config: &ModelConfig) -> Result<Value, ModelConfigError> {
    let error = |problem: serde_json::Error| ModelConfigError::new(config, "messages", problem);
    let bytes = match config.provider.as_str() {
        "anthropic" => anthropic::Anthropic::body(config, request)?,
        _ => openai::OpenAi::body(config, request).map_err(error)?,
    };
    serde_json::from_slice(&bytes).map_err(error)
}

/// Upper limit of attempts per call, whatever the configuration says.
const MAX_ATTEMPTS: u32 = 10;

fn open_one(config: &ModelConfig, environment: &LlmEnvironment) -> Result<Arc<dyn Llm>, ModelConfigError> {
    Ok(match config.provider.as_str() {
        "scripted" => Arc::new(scripted::ScriptedLlm::open(config, environment)?),
        "cassette" => Arc::new(cassette::Replayer::open(config)?),
        "" => return Err(ModelConfigError::new(config, "provider", "missing; set it, as in `provider: openai`")),
        "anthropic" => Arc::new(anthropic::Anthropic::new(config, environment)?),
        "bedrock" | "vertex_ai" | "huggingface_local" => {
            let fix = "this API is not supported yet; use a gateway with a Chat Completions API, with `provider: self-hosted` and `api_base`";
            return Err(ModelConfigError::new(config, "provider", fix));
        }
        _ => Arc::new(openai::OpenAi::new(config, environment)?),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use segue_base::manual_clock::ManualClock;

    fn entry(provider: &str) -> ModelConfig {
        ModelConfig { provider: provider.into(), model: "m".into(), ..ModelConfig::default() }
    }

    fn script(rules: &str) -> ModelConfig {
        let source = ScriptSource::Text { name: "s.yml".into(), text: rules.into() };
        ModelConfig { source: Some(source), ..entry("scripted") }
    }

    #[test]
    fn invalid_entries_are_reported_with_a_fix() {
        for (entries, key, fix) in [
            (vec![], "models", "list at least one"),
            (vec![entry("")], "provider", "provider: openai"),
            (vec![entry("openai")], "api_key", "OPENAI_API_KEY"),
            (vec![entry("bedrock")], "provider", "gateway"),
            (vec![entry("anthropic")], "api_key", "ANTHROPIC_API_KEY"),
            (vec![entry("scripted")], "script", "name the file"),
            (vec![entry("cassette")], "cassette", "name the file"),
            (vec![script("rules: 3")], "script", "s.yml"),
        ] {
            let error = open(&entries, &LlmEnvironment::default()).err().unwrap();
            assert_eq!(error.key, key, "{error}");
            assert!(error.to_string().contains(fix), "{error}");
        }
    }

    #[tokio::test]
    async fn num_retries_sets_the_attempts_of_a_call() {
        let fails = || script("rules: [{fail: {status: 503}}]");
        for (retries, attempts) in [(None, segue_base::limits::MODEL_TRIES), (Some(0), 1), (Some(3), 4)] {
            let group = open(&[ModelConfig { num_retries: retries, ..fails() }], &LlmEnvironment::default()).unwrap();
            let clock = ManualClock::auto_advancing();
            let cx = clock.context(Duration::from_secs(600));
            let request = ChatRequest::new(Purpose::AGENT, vec![ChatMessage::user("hello")]);
            let error = group.chat(request, &cx).await.err().unwrap();
            assert!(matches!(error.kind, LlmErrorKind::Overloaded { .. }), "{error:?}");
            let waits = clock.slept().len();
            assert_eq!(waits + 1, attempts as usize, "a wait before each attempt but the first");
        }
    }

    #[tokio::test]
    async fn a_failing_model_falls_back_to_the_next_entry() {
        let broken = script("rules: [{fail: {status: 401}}]");
        let group = open(&[broken, script("rules: [{say: second}]")], &LlmEnvironment::default()).unwrap();
        let cx = ManualClock::new().context(Duration::from_secs(60));
        let request = ChatRequest::new(Purpose::AGENT, vec![ChatMessage::user("hello")]);
        assert_eq!(&*group.chat(request, &cx).await.unwrap().finish().await.unwrap().text, "second");
    }
}
