//! Talking to models.
//!
//! *For*: one trait, [`Llm`], behind which every vendor, the scripted model and recorded exchanges look alike.
//! *Entry*: [`open`] makes a model group from plain data ([`ModelConfig`]); [`Llm::chat`] asks it.
//! *Never*: only streams exist (a whole answer is [`ChatStream::finish`]); no tool call leaves this room before the model's
//! terminal mark came and its arguments parsed (guarded by `every_cut_is_a_typed_failure`); no error message carries a
//! secret or a vendor's words to a user ([`LlmError::detail`] is for operators); the environment is never read here.
//!
//! | file | holds |
//! | --- | --- |
//! | [`message`], [`request`], [`stream`], [`error`] | what goes in, what comes out, how it fails |
//! | `request_hash` | the canonical form of a request |
//! | [`profile`] | facts about model families |
//! | `transport` | a request out; bytes to events, events to a whole answer, within deadlines |
//! | [`oddity`] | what was strange about an answer that stands all the same |
//! | [`retry`], [`router`] | what is tried again, and what is tried next |
//! | [`price`] | what an answer costs |
//! | [`openai`] | the chat completions wire, and that of embeddings |
//! | [`anthropic`] | the messages wire |
//! | [`embeddings`] | texts to vectors |
//! | [`scripted`], [`cassette`] | models without a network |

pub mod anthropic;
pub mod cassette;
#[cfg(test)]
mod conformance;
pub mod embeddings;
pub mod error;
pub mod message;
pub mod oddity;
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
#[path = "../../../tests/support/answering.rs"]
mod test_server;
mod transport;
mod window;

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use segue_base::{context::CallContext, secret::Secret};
use serde_json::{Map, Value};

pub use embeddings::{Embedder, Embedding};
pub use error::{InvalidResponse, LlmError, LlmErrorKind};
pub use message::{ChatMessage, ChatResponse, FinishReason, Route, ToolArguments, ToolCall, Usage};
pub use oddity::ResponseWarning;
pub use profile::{ModelProfile, ReasoningEffort};
pub use request::{ChatRequest, Purpose, ToolChoice, ToolList, ToolSpec};
pub use request_hash::RequestHash;
pub use router::{RouterConfig, RoutingStrategy};
pub use stream::{ChatStream, Delta};

/// A model, or a group of them.
pub trait Llm: Send + Sync {
    /// Facts about the model that answers first.
    fn profile(&self) -> &ModelProfile;

    /// Asks the model. The stream owns what it needs of `cx` (deadline, cancellation, clock).
    ///
    /// # Errors
    /// [`LlmError`] when the request failed before the answer began; later failures are items of the stream.
    ///
    /// # Cancellation
    /// Dropping the future or the stream closes the connection; firing `cx.cancel` makes both end with
    /// [`LlmErrorKind::Cancelled`].
    fn chat<'a>(&'a self, request: ChatRequest, cx: &'a CallContext) -> BoxFuture<'a, Result<ChatStream, LlmError>>;
}

/// One entry of a model group, as plain data: what `endpoints.yml` says after `${}` expansion and defaults.
#[derive(Clone, Debug, Default)]
pub struct ModelConfig {
    /// `openai`, `azure`, `anthropic`, `self-hosted`, `scripted`, `cassette`, or the name of a vendor that speaks chat completions.
    pub provider: String,
    /// The vendor's name of the model.
    pub model: String,
    /// Azure: the deployment, which is part of the path.
    pub deployment: Option<String>,
    /// Where the API lives, up to and without `/chat/completions`.
    pub api_base: Option<String>,
    /// Azure: the value of `api-version`. Anthropic: that of `anthropic-version`.
    pub api_version: Option<String>,
    /// The key; without one the provider's variable of [`LlmEnvironment`] is taken.
    pub api_key: Option<Secret>,
    /// One whole call; default [`segue_base::limits::MODEL_TOTAL`].
    pub timeout: Option<Duration>,
    /// Request to first event; default [`segue_base::limits::MODEL_FIRST_TOKEN`], or the whole call when the model reasons.
    pub first_token_timeout: Option<Duration>,
    /// Between two events; default [`segue_base::limits::MODEL_IDLE`].
    pub idle_timeout: Option<Duration>,
    /// Tries after the first; default [`segue_base::limits::MODEL_TRIES`] − 1.
    pub num_retries: Option<u32>,
    /// Used when the request sets none; dropped where the model refuses it.
    pub temperature: Option<f64>,
    /// Most tokens of an answer, when the request sets none (`max_tokens` or `max_completion_tokens`).
    pub max_tokens: Option<u32>,
    /// Used when the request sets none; default: the lowest the model knows.
    pub reasoning_effort: Option<ReasoningEffort>,
    /// Used when the request sets none.
    pub parallel_tool_calls: Option<bool>,
    /// Other keys, sent as they stand (`top_p`, `stop`, `logit_bias`, …). Keys that this room sets itself are ignored.
    pub extra: Map<String, Value>,
    /// `scripted`: the rules. `cassette`: the recorded exchanges.
    pub source: Option<Source>,
}

/// Where the rules of a scripted model or the lines of a cassette come from.
#[derive(Clone, Debug)]
pub enum Source {
    /// A file, read when the model is opened.
    File(PathBuf),
    /// A text that the caller read; `name` is for messages.
    Text {
        /// What to call it in messages.
        name: String,
        /// The content.
        text: Arc<str>,
    },
}

/// What models need from outside; the caller reads it, this room does not look around.
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
    /// Key for every other provider, by provider name (`ANTHROPIC_API_KEY` under `anthropic`, …).
    pub other_keys: std::collections::BTreeMap<String, Secret>,
    /// The connections that models share with everything else that calls out.
    pub outbound: segue_base::http::HttpClients,
    /// Seed of jitter and of the scripted model's mischief.
    pub seed: u64,
}

/// A model that could not be opened: what its entry lacks, and the cure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("model `{model}` of provider `{provider}`: `{key}`: {problem}")]
pub struct ModelConfigError {
    /// The provider, as written.
    pub provider: String,
    /// The model, as written.
    pub model: String,
    /// The key of the entry that is wrong or missing.
    pub key: &'static str,
    /// What is wrong, and what to do.
    pub problem: String,
}

impl ModelConfigError {
    pub(crate) fn new(config: &ModelConfig, key: &'static str, problem: impl fmt::Display) -> Self {
        Self { provider: config.provider.clone(), model: config.model.clone(), key, problem: problem.to_string() }
    }
}

/// Opens a model group: one of its entries answers, as the group's strategy says; when it fails the others are asked.
///
/// Opens no connection; reads the files of scripted models and cassettes.
///
/// # Errors
/// [`ModelConfigError`] for an entry that lacks what its provider needs, or when there is no entry.
pub fn open_group(
    entries: &[ModelConfig],
    group: &RouterConfig,
    around: &LlmEnvironment,
) -> Result<Arc<dyn Llm>, ModelConfigError> {
    let mut members = Vec::with_capacity(entries.len());
    for config in entries {
        let retries = config.num_retries.map(|retries| retries.min(MOST_TRIES - 1));
        let tries = retries.map_or(segue_base::limits::MODEL_TRIES, |retries| retries + 1);
        members.push(router::GroupMember { model: open_one(config, around)?, tries, share: router::Share::of(config) });
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
    Ok(Arc::new(router::Router::new(first, members.collect(), group.clone(), policy, around.seed)))
}

/// A group and others that stand in for it, in order, when it fails as a whole. Each keeps its own strategy.
pub fn with_stand_ins(group: Arc<dyn Llm>, others: &[Arc<dyn Llm>], around: &LlmEnvironment) -> Arc<dyn Llm> {
    let member = |model: Arc<dyn Llm>| router::GroupMember { model, tries: 1, share: router::Share::default() };
    let others = others.iter().cloned().map(member).collect();
    // The group and each that stands in for it did all that for itself.
    let policy = retry::RetryPolicy { shrinks: false, ..retry::RetryPolicy::default() };
    Arc::new(router::Router::new(member(group), others, RouterConfig::default(), policy, around.seed))
}

/// Opens entries of which the first answers and the others take over in order when it fails.
///
/// # Errors
/// As [`open_group`].
pub fn open(entries: &[ModelConfig], around: &LlmEnvironment) -> Result<Arc<dyn Llm>, ModelConfigError> {
    open_group(entries, &RouterConfig::default(), around)
}

/// More tries than this help nobody within the budget of retries.
const MOST_TRIES: u32 = 10;

fn open_one(config: &ModelConfig, around: &LlmEnvironment) -> Result<Arc<dyn Llm>, ModelConfigError> {
    Ok(match config.provider.as_str() {
        "scripted" => Arc::new(scripted::ScriptedLlm::open(config, around)?),
        "cassette" => Arc::new(cassette::Replayer::open(config)?),
        "" => return Err(ModelConfigError::new(config, "provider", "missing; set it, as in `provider: openai`")),
        "anthropic" => Arc::new(anthropic::Anthropic::new(config, around)?),
        "bedrock" | "vertex_ai" | "huggingface_local" => {
            let cure = "this wire is not spoken yet; use a gateway that offers chat completions with `provider: self-hosted` and `api_base`";
            return Err(ModelConfigError::new(config, "provider", cure));
        }
        _ => Arc::new(openai::OpenAi::new(config, around)?),
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
        let source = Source::Text { name: "s.yml".into(), text: rules.into() };
        ModelConfig { source: Some(source), ..entry("scripted") }
    }

    #[test]
    fn entries_that_cannot_work_are_named_with_their_cure() {
        for (entries, key, cure) in [
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
            assert!(error.to_string().contains(cure), "{error}");
        }
    }

    #[tokio::test]
    async fn a_call_is_tried_as_often_as_its_entry_or_the_table_says() {
        let fails = || script("rules: [{fail: {status: 503}}]");
        for (retries, tries) in [(None, segue_base::limits::MODEL_TRIES), (Some(0), 1), (Some(3), 4)] {
            let group = open(&[ModelConfig { num_retries: retries, ..fails() }], &LlmEnvironment::default()).unwrap();
            let clock = ManualClock::auto_advancing();
            let cx = clock.context(Duration::from_secs(600));
            let request = ChatRequest::new(Purpose::AGENT, vec![ChatMessage::user("hello")]);
            let error = group.chat(request, &cx).await.err().unwrap();
            assert!(matches!(error.kind, LlmErrorKind::Overloaded { .. }), "{error:?}");
            let waits = clock.slept().len();
            assert_eq!(waits + 1, tries as usize, "a wait before each try but the first");
        }
    }

    #[tokio::test]
    async fn a_list_of_models_is_an_ordered_fallback() {
        let broken = script("rules: [{fail: {status: 401}}]");
        let group = open(&[broken, script("rules: [{say: second}]")], &LlmEnvironment::default()).unwrap();
        let cx = ManualClock::new().context(Duration::from_secs(60));
        let request = ChatRequest::new(Purpose::AGENT, vec![ChatMessage::user("hello")]);
        assert_eq!(&*group.chat(request, &cx).await.unwrap().finish().await.unwrap().text, "second");
    }
}
