//! Embedding models: texts to vectors whose distance reflects the distance in meaning.
//!
//! [`open`] makes an [`Embedder`] of a model group. The group sends batches ([`segue_base::limits::EMBED_BATCH`]), retries failed
//! calls, and caches vectors by text. All members of a group must have the same model name, because vectors of different models
//! cannot be compared.

mod cassette;
mod group;
mod scripted;

use std::sync::Arc;

use async_trait::async_trait;
use segue_base::context::CallContext;

use self::group::{EmbeddingGroup, EmbeddingGroupMember};
pub use self::{
    cassette::{CassetteEmbedder, EmbeddingRecorder},
    scripted::ScriptedEmbedder,
};
use super::{
    LlmEnvironment, LlmError, MAX_ATTEMPTS, ModelConfig, ModelConfigError, openai::embeddings::OpenAiEmbedder,
    scripted as chat,
};

/// A vector of length 1: the inner product of two is the cosine between them.
pub type Embedding = Arc<[f32]>;

/// An embedding model, or a group of them.
#[async_trait]
pub trait Embedder: Send + Sync {
    /// The name of the model. Vectors of models with the same name can be compared.
    fn model(&self) -> &str;

    /// One vector per text, in the order of the texts, all of the same length.
    ///
    /// # Errors
    /// [`LlmError`], without any vectors.
    ///
    /// # Cancellation
    /// Dropping the future closes the connection; vectors of completed batches stay cached.
    async fn embed(&self, texts: &[Arc<str>], cx: &CallContext) -> Result<Vec<Embedding>, LlmError>;
}

/// Makes a group of embedding models.
///
/// # Errors
/// [`ModelConfigError`] for an entry that lacks what its provider needs, or without entries.
pub fn open(entries: &[ModelConfig], environment: &LlmEnvironment) -> Result<Arc<dyn Embedder>, ModelConfigError> {
    let mut members: Vec<EmbeddingGroupMember> = Vec::with_capacity(entries.len());
    for config in entries {
        let max_attempts =
            config.num_retries.map_or(segue_base::limits::MODEL_TRIES, |more| more.saturating_add(1).min(MAX_ATTEMPTS));
        let model = open_one(config, environment)?;
        match members.first() {
            Some(first) if first.model.model() != model.model() => {
                let (used, excluded) = (first.model.model(), model.model());
                tracing::warn!(
                    used,
                    excluded,
                    "vectors of different models cannot be compared; the second model is excluded from its group"
                );
            }
            _ => members.push(EmbeddingGroupMember { model, max_attempts }),
        }
    }
    match EmbeddingGroup::new(members, environment.seed) {
        Some(group) => Ok(Arc::new(group)),
        None => {
            Err(ModelConfigError::new(&ModelConfig::default(), "models", "the group has no model; list at least one"))
        }
    }
}

fn open_one(config: &ModelConfig, environment: &LlmEnvironment) -> Result<Arc<dyn Embedder>, ModelConfigError> {
    Ok(match config.provider.as_str() {
        "scripted" if config.source.is_none() => Arc::new(ScriptedEmbedder::default()),
        "scripted" => {
            let (name, text) = chat::read_source(config, "script")?;
            Arc::new(ScriptedEmbedder::from_text(&name, &text).map_err(|e| ModelConfigError::new(config, "script", e))?)
        }
        "cassette" => {
            let (name, text) = chat::read_source(config, "cassette")?;
            let embedder = CassetteEmbedder::new(&text);
            Arc::new(embedder.map_err(|bad| ModelConfigError::new(config, "cassette", format_args!("{name}: {bad}")))?)
        }
        "" => return Err(ModelConfigError::new(config, "provider", "missing; set it, as in `provider: openai`")),
        "anthropic" | "bedrock" | "vertex_ai" | "huggingface_local" => {
            let fix = "embeddings of this provider are not supported; use `openai`, `azure`, or `self-hosted` with `api_base`";
            return Err(ModelConfigError::new(config, "provider", fix));
        }
        _ => Arc::new(OpenAiEmbedder::new(config, environment)?),
    })
}

/// The vector scaled to length 1; `None` when it contains NaN or infinity. A zero vector stays unchanged.
pub(crate) fn normalise(mut vector: Vec<f32>) -> Option<Embedding> {
    let length = vector.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>().sqrt();
    if !length.is_finite() {
        return None;
    }
    if length > 0.0 {
        vector.iter_mut().for_each(|x| *x = (f64::from(*x) / length) as f32);
    }
    Some(vector.into())
}
