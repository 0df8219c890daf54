//! Scripted models: rule-based responses without a network, for the starter project, examples and tests.
//!
//! The provider `scripted` and [`ScriptedLlm::from_text`] make a model from a YAML script; [`ScriptedLlm::strict`] makes a test
//! double. A rule depends on the request only, so the same request gets the same response. Responses are encoded as a stream of the
//! Chat Completions API and decoded like those of a provider.
//!
//! `docs/reference/scripted-model.md` describes the format. An example:
//!
//! ```yaml
//! tables:
//!   port: { Bergen: [bergen], Stavanger: [stavanger, svg] }
//! rules:
//!   - when: { purpose: agent, tools: [find_crossings], user: 'from {port:from} to {port:to}' }
//!     calls: [ { name: find_crossings, arguments: { from: '{{ from }}', to: '{{ to }}' } } ]
//!   - when: { last_tool: { name: find_crossings } }
//!     say: 'I found {{ tool.crossings | length }} crossings.'
//! ```

mod date;
mod matching;
mod pattern;
mod reply;
mod request_facts;
mod response_bytes;
mod script;
mod strict;

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use async_trait::async_trait;
use segue_base::{context::CallContext, limits};

pub use strict::{ScriptedCall, StrictLlm};

use self::{
    request_facts::RequestFacts,
    script::{FailureMode, GarbageKind, Script},
};
use super::{
    ChatRequest, ChatStream, Llm, LlmEnvironment, LlmError, ModelConfig, ModelConfigError, ModelProfile, Purpose,
    ScriptSource,
    openai::response::decoder,
    profile::ReasoningEffort,
    transport::{CallTimeouts, decode_stream, thoughts::ThoughtHistory},
};

/// The text of a scripted model without a matching rule.
pub const NO_MATCHING_RULE: &str = "I am a scripted stand-in for a language model, and my script has no line for this. \
    Name a real model in endpoints.yml to talk freely.";

/// A model that answers by the rules of a script.
pub struct ScriptedLlm {
    script: Script,
    profile: ModelProfile,
    timeouts: CallTimeouts,
    seed: u64,
    /// Calls so far, for fault injection.
    calls: AtomicU64,
    /// Whether the log says that `read: user` matches nothing.
    has_warned: AtomicBool,
}

impl ScriptedLlm {
    /// A model for the script `text`. `name` is for messages; `seed` seeds the fault injection.
    ///
    /// # Errors
    /// The error in the script: rule, key, problem.
    pub fn from_text(name: &str, text: &str, seed: u64) -> Result<Self, String> {
        let script = Script::read(name, text)?;
        let (profile, timeouts) = (profile(), CallTimeouts::default());
        Ok(Self { script, profile, timeouts, seed, calls: AtomicU64::new(0), has_warned: AtomicBool::new(false) })
    }

    /// A test double that expects exactly these calls in this order.
    pub fn strict(calls: impl IntoIterator<Item = impl Into<ScriptedCall>>) -> StrictLlm {
        StrictLlm::new(calls)
    }

    pub(super) fn open(config: &ModelConfig, environment: &LlmEnvironment) -> Result<Self, ModelConfigError> {
        let (name, text) = read_source(config, "script")?;
        let mut model =
            Self::from_text(&name, &text, environment.seed).map_err(|e| ModelConfigError::new(config, "script", e))?;
        model.timeouts.total = config.timeout.unwrap_or(limits::MODEL_TOTAL);
        model.timeouts.first =
            config.first_token_timeout.unwrap_or(limits::MODEL_FIRST_TOKEN).min(model.timeouts.total);
        Ok(model)
    }

    fn respond(&self, request: &ChatRequest, cx: &CallContext) -> Result<ChatStream, LlmError> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let faults = &self.script.faults;
        let request_facts = RequestFacts::new(&self.script, request);
        if request_facts.misses_user() && !self.has_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                purpose = request.purpose.as_str(),
                "`read: user` of a scripted model matches nothing in a request, so `user` of its rules is the whole last message; \
                 docs/reference/scripted-model.md shows a pattern for the built-in prompt"
            );
        }
        let mut reply = self.script.reply(&request_facts)?;
        if faults.garbage_every.is_some_and(|every| call.is_multiple_of(every)) {
            reply.fail = Some(FailureMode::Garbage(GarbageKind::Noise));
        }
        if let Some(FailureMode::Status { status, code, after }) = &reply.fail {
            return Err(response_bytes::error_response(*status, code, *after));
        }
        let split = faults.split.then_some(self.seed ^ call);
        let body = response_bytes::body(&reply, request, split, cx);
        let size = request.messages.iter().map(|message| message.text().len()).sum();
        let thoughts = (request.purpose != Purpose::COMMANDS).then(ThoughtHistory::default);
        let decoder = decoder("scripted".into(), request.messages.len(), size).with_thoughts(thoughts);
        let timeouts = self.timeouts;
        Ok(ChatStream::new(decode_stream(body, decoder, timeouts, timeouts.start(cx), cx.clone())))
    }
}

#[async_trait]
impl Llm for ScriptedLlm {
    fn profile(&self) -> &ModelProfile {
        &self.profile
    }

    async fn chat(&self, request: ChatRequest, cx: &CallContext) -> Result<ChatStream, LlmError> {
        self.respond(&request, cx)
    }
}

/// The profile of scripted models: it allows everything.
pub(super) fn profile() -> ModelProfile {
    const NONE: &[ReasoningEffort] = &[];
    ModelProfile { efforts: NONE, ..ModelProfile::for_model("openai", "scripted") }
}

/// The name and text of the script or cassette of a model entry.
pub(super) fn read_source(config: &ModelConfig, key: &'static str) -> Result<(String, Arc<str>), ModelConfigError> {
    match &config.source {
        Some(ScriptSource::Text { name, text }) => Ok((name.clone(), text.clone())),
        Some(ScriptSource::File(path)) => {
            let name = path.display().to_string();
            let text = std::fs::read_to_string(path)
                .map_err(|error| ModelConfigError::new(config, key, format_args!("{name} cannot be read: {error}")))?;
            Ok((name, text.into()))
        }
        None => Err(ModelConfigError::new(config, key, "missing; name the file")),
    }
}

#[cfg(test)]
mod tests;
