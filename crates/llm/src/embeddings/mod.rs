//! Texts to vectors whose nearness is nearness of meaning.
//!
//! *Entry*: [`open`] makes an [`Embedder`] of a model group, as [`super::open`] makes a model. Behind it: batches
//! ([`segue_base::limits::EMBED_BATCH`]), the retries of every model call, and what was embedded before, by content. *Never*: two models of one
//! group answer for one another unless they bear the same name, since their vectors cannot be compared.

mod group;
mod scripted;
mod tape;

use std::sync::Arc;

use futures::future::BoxFuture;
use segue_base::context::CallContext;

use self::group::{Group, Member};
pub use self::{
    scripted::ScriptedEmbedder,
    tape::{CassetteEmbedder, TapeRecorder},
};
use super::{
    LlmEnvironment, LlmError, MOST_TRIES, ModelConfig, ModelConfigError, openai::embeddings::OpenAiEmbedder,
    scripted as chat,
};

/// A vector of length 1: the inner product of two is the cosine between them.
pub type Embedding = Arc<[f32]>;

/// An embedding model, or a group of them.
pub trait Embedder: Send + Sync {
    /// The name of the model: vectors of one name can be compared.
    fn model(&self) -> &str;

    /// One vector for each text, in their order, all of one length.
    ///
    /// # Errors
    /// [`LlmError`]; then there is no vector at all.
    ///
    /// # Cancellation
    /// Dropping the future closes the connection; what was embedded before is kept.
    fn embed<'a>(
        &'a self,
        texts: &'a [Arc<str>],
        cx: &'a CallContext,
    ) -> BoxFuture<'a, Result<Vec<Embedding>, LlmError>>;
}

/// Opens the embedding models of a group.
///
/// # Errors
/// [`ModelConfigError`] for an entry that lacks what its provider needs, or when there is no entry.
pub fn open(entries: &[ModelConfig], around: &LlmEnvironment) -> Result<Arc<dyn Embedder>, ModelConfigError> {
    let mut members: Vec<Member> = Vec::with_capacity(entries.len());
    for config in entries {
        let tries =
            config.num_retries.map_or(segue_base::limits::MODEL_TRIES, |more| more.saturating_add(1).min(MOST_TRIES));
        let model = open_one(config, around)?;
        match members.first() {
            Some(first) if first.model.model() != model.model() => {
                let (used, left) = (first.model.model(), model.model());
                tracing::warn!(
                    used,
                    left,
                    "vectors of two models cannot be compared: the second is left out of its group"
                );
            }
            _ => members.push(Member { model, tries }),
        }
    }
    match Group::new(members, around.seed) {
        Some(group) => Ok(Arc::new(group)),
        None => {
            Err(ModelConfigError::new(&ModelConfig::default(), "models", "the group has no model; list at least one"))
        }
    }
}

fn open_one(config: &ModelConfig, around: &LlmEnvironment) -> Result<Arc<dyn Embedder>, ModelConfigError> {
    Ok(match config.provider.as_str() {
        "scripted" if config.source.is_none() => Arc::new(ScriptedEmbedder::default()),
        "scripted" => {
            let (name, text) = chat::read_source(config, "script")?;
            Arc::new(ScriptedEmbedder::from_text(&name, &text).map_err(|e| ModelConfigError::new(config, "script", e))?)
        }
        "cassette" => {
            let (name, text) = chat::read_source(config, "cassette")?;
            let tape = CassetteEmbedder::new(&text);
            Arc::new(tape.map_err(|bad| ModelConfigError::new(config, "cassette", format_args!("{name}: {bad}")))?)
        }
        "" => return Err(ModelConfigError::new(config, "provider", "missing; set it, as in `provider: openai`")),
        "anthropic" | "bedrock" | "vertex_ai" | "huggingface_local" => {
            let cure =
                "it has no embeddings that are spoken here; use `openai`, `azure`, or `self-hosted` with `api_base`";
            return Err(ModelConfigError::new(config, "provider", cure));
        }
        _ => Arc::new(OpenAiEmbedder::new(config, around)?),
    })
}

/// The vector of the same direction and length 1; nothing when a number is none. A vector of zeros stays one.
pub(crate) fn unit(mut vector: Vec<f32>) -> Option<Embedding> {
    let length = vector.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>().sqrt();
    if !length.is_finite() {
        return None;
    }
    if length > 0.0 {
        vector.iter_mut().for_each(|x| *x = (f64::from(*x) / length) as f32);
    }
    Some(vector.into())
}
