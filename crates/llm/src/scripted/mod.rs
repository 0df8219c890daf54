//! Models that answer from a script: the starter, examples, end-to-end tests.
//!
//! *For*: believable answers without a network, honest about being scripted. *Entry*: provider `scripted`, or
//! [`ScriptedLlm::from_text`]; in tests [`ScriptedLlm::strict`]. *Never*: a rule sees anything but the request (the same
//! request gets the same answer), and no answer takes a shorter way than a vendor's: replies become bytes of the chat
//! completions wire and pass its decoder.
//!
//! The format is told in `docs/scripted-model.md`. In brief:
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
mod facts;
mod matching;
mod pattern;
mod reply;
mod script;
mod strict;
mod wire;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use futures::future::BoxFuture;
use segue_base::{context::CallContext, limits};

pub use strict::{Step, StrictLlm};

use self::{
    facts::Facts,
    script::{Fail, Garbage, Script},
};
use super::{
    ChatRequest, ChatStream, Llm, LlmEnvironment, LlmError, ModelConfig, ModelConfigError, ModelProfile, Source,
    openai::response::decoder,
    profile::ReasoningEffort,
    transport::{CallTimeouts, decode_stream},
};

/// What a scripted model says when it knows no line.
pub const NO_LINE: &str = "I am a scripted stand-in for a language model, and my script has no line for this. \
    Name a real model in endpoints.yml to talk freely.";

/// A model that answers by rule.
pub struct ScriptedLlm {
    script: Script,
    profile: ModelProfile,
    timeouts: CallTimeouts,
    seed: u64,
    /// Calls so far; only mischief looks at it.
    calls: AtomicU64,
}

impl ScriptedLlm {
    /// A model for the script `text`. `name` is for messages; `seed` is for the script's mischief.
    ///
    /// # Errors
    /// What is wrong in the script: rule, key, what was expected.
    pub fn from_text(name: &str, text: &str, seed: u64) -> Result<Self, String> {
        let script = Script::read(text).map_err(|problem| format!("{name}: {problem}"))?;
        Ok(Self { script, profile: profile(), timeouts: CallTimeouts::default(), seed, calls: AtomicU64::new(0) })
    }

    /// The public double for tests: answers exactly these steps in this order.
    pub fn strict(steps: impl IntoIterator<Item = impl Into<Step>>) -> StrictLlm {
        StrictLlm::new(steps)
    }

    pub(super) fn open(config: &ModelConfig, around: &LlmEnvironment) -> Result<Self, ModelConfigError> {
        let (name, text) = read_source(config, "script")?;
        let mut model =
            Self::from_text(&name, &text, around.seed).map_err(|e| ModelConfigError::new(config, "script", e))?;
        model.timeouts.total = config.timeout.unwrap_or(limits::MODEL_TOTAL);
        model.timeouts.first =
            config.first_token_timeout.unwrap_or(limits::MODEL_FIRST_TOKEN).min(model.timeouts.total);
        Ok(model)
    }

    fn ask(&self, request: &ChatRequest, cx: &CallContext) -> Result<ChatStream, LlmError> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let mischief = &self.script.mischief;
        let mut reply = self.script.answer(&Facts::of(&self.script, request))?;
        if mischief.garbage_every.is_some_and(|every| call.is_multiple_of(every)) {
            reply.fail = Some(Fail::Garbage(Garbage::Noise));
        }
        if let Some(Fail::Status { status, code, after }) = &reply.fail {
            return Err(wire::refusal(*status, code, *after));
        }
        let split = mischief.split.then_some(self.seed ^ call);
        let body = wire::body(&reply, request, split, cx);
        let size = request.messages.iter().map(|message| message.text().len()).sum();
        let (decoder, timeouts) = (decoder(request.messages.len(), size), self.timeouts);
        Ok(ChatStream::new(decode_stream(body, decoder, timeouts, timeouts.begin(cx), cx.clone())))
    }
}

impl Llm for ScriptedLlm {
    fn profile(&self) -> &ModelProfile {
        &self.profile
    }

    fn chat<'a>(&'a self, request: ChatRequest, cx: &'a CallContext) -> BoxFuture<'a, Result<ChatStream, LlmError>> {
        Box::pin(async move { self.ask(&request, cx) })
    }
}

/// A scripted model takes whatever is sent.
pub(super) fn profile() -> ModelProfile {
    const NONE: &[ReasoningEffort] = &[];
    ModelProfile { efforts: NONE, ..ModelProfile::of("openai", "scripted") }
}

/// The text that a scripted model or a cassette is made of.
pub(super) fn read_source(config: &ModelConfig, key: &'static str) -> Result<(String, Arc<str>), ModelConfigError> {
    match &config.source {
        Some(Source::Text { name, text }) => Ok((name.clone(), text.clone())),
        Some(Source::File(path)) => {
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
