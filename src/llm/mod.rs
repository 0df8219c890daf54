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
//! | [`profile`] | facts about model families |
//! | `assemble` | deltas to a whole answer |
//! | `retry`, `router` | what is tried again, and what is tried next |
//! | `openai` | the chat completions wire |
//! | `scripted`, `cassette` | models without a network |

pub mod error;
pub mod message;
pub mod profile;
pub mod request;
pub mod stream;

use std::{path::PathBuf, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use serde_json::{Map, Value};

pub use error::{Fault, LlmError, LlmErrorKind};
pub use message::{Answer, Arguments, ChatMessage, Finish, ToolCall, Usage};
pub use profile::{Effort, ModelProfile};
pub use request::{ChatRequest, Purpose, RequestHash, ToolChoice, ToolSpec};
pub use stream::{ChatStream, Delta};

use crate::{cx::Cx, secret::Secret};

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
    fn chat<'a>(&'a self, request: ChatRequest, cx: &'a Cx) -> BoxFuture<'a, Result<ChatStream, LlmError>>;
}

/// One entry of a model group, as plain data: what `endpoints.yml` says after `${}` expansion and defaults.
#[derive(Clone, Debug, Default)]
pub struct ModelConfig {
    /// `openai`, `azure`, `self-hosted`, `scripted`, `cassette`, or the name of a vendor that speaks chat completions.
    pub provider: String,
    /// The vendor's name of the model.
    pub model: String,
    /// Azure: the deployment, which is part of the path.
    pub deployment: Option<String>,
    /// Where the API lives, up to and without `/chat/completions`.
    pub api_base: Option<String>,
    /// Azure: the value of `api-version`.
    pub api_version: Option<String>,
    /// The key; without one the provider's variable of [`Surroundings`] is taken.
    pub api_key: Option<Secret>,
    /// One whole call; default [`crate::limits::MODEL_TOTAL`].
    pub timeout: Option<Duration>,
    /// Request to first event; default [`crate::limits::MODEL_FIRST_TOKEN`], or the whole call when the model reasons.
    pub first_token_timeout: Option<Duration>,
    /// Between two events; default [`crate::limits::MODEL_IDLE`].
    pub idle_timeout: Option<Duration>,
    /// Tries after the first; default [`crate::limits::MODEL_TRIES`] − 1.
    pub num_retries: Option<u32>,
    /// Used when the request sets none; dropped where the model refuses it.
    pub temperature: Option<f64>,
    /// Most tokens of an answer, when the request sets none (`max_tokens` or `max_completion_tokens`).
    pub max_tokens: Option<u32>,
    /// Used when the request sets none; default: the lowest the model knows.
    pub reasoning_effort: Option<Effort>,
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
pub struct Surroundings {
    /// `OPENAI_BASE_URL`: used by provider `openai` without `api_base`. Wins over [`Self::openai_api_base`].
    pub openai_base_url: Option<String>,
    /// `OPENAI_API_BASE`: the older name of the same.
    pub openai_api_base: Option<String>,
    /// `OPENAI_API_KEY`.
    pub openai_api_key: Option<Secret>,
    /// `AZURE_API_BASE`.
    pub azure_api_base: Option<String>,
    /// `AZURE_API_VERSION`.
    pub azure_api_version: Option<String>,
    /// `AZURE_API_KEY`.
    pub azure_api_key: Option<Secret>,
    /// Key for every other provider, by provider name (`ANTHROPIC_API_KEY` under `anthropic`, …).
    pub other_keys: std::collections::BTreeMap<String, Secret>,
    /// The connections that models share with everything else that calls out.
    pub outbound: crate::http::Outbound,
    /// Seed of jitter and of the scripted model's mischief.
    pub seed: u64,
}
