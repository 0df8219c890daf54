//! The Embeddings API: <https://platform.openai.com/docs/api-reference/embeddings>.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use segue_base::{
    context::CallContext,
    http::{BodyError, read_limited},
    limits,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    endpoint::{ApiKind, ResolvedEndpoint},
    request,
};
use crate::{
    LlmEnvironment, LlmError, LlmErrorKind, ModelConfig, ModelConfigError,
    embeddings::{Embedder, Embedding, normalise},
    error::InvalidResponse,
    transport::ModelEndpoint,
};

/// A client of one embedding model behind one endpoint. It neither retries nor caches; the group does.
pub(crate) struct OpenAiEmbedder {
    model: Arc<str>,
    extra: Map<String, Value>,
    endpoint: ModelEndpoint,
    total: Duration,
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    input: &'a [Arc<str>],
    encoding_format: &'static str,
    #[serde(flatten)]
    extra: &'a Map<String, Value>,
}

#[derive(Deserialize)]
struct Response {
    data: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    #[serde(default)]
    index: Option<usize>,
    embedding: Vec<f32>,
}

impl OpenAiEmbedder {
    /// Makes the client. Opens no connection.
    ///
    /// # Errors
    /// [`ModelConfigError`] when the entry lacks what its provider needs.
    pub(crate) fn new(config: &ModelConfig, environment: &LlmEnvironment) -> Result<Self, ModelConfigError> {
        let endpoint = ResolvedEndpoint::from_config(config, environment, ApiKind::Embeddings)?;
        if config.model.is_empty() && config.provider != "azure" {
            return Err(ModelConfigError::new(config, "model", "missing; name the embedding model"));
        }
        let mut extra = request::passthrough_settings(config);
        ["input", "encoding_format"].iter().for_each(|key| {
            extra.shift_remove(*key);
        });
        let total = config.timeout.unwrap_or(limits::EMBED_WAIT);
        let endpoint =
            ModelEndpoint::new(endpoint.url, endpoint.key, endpoint.auth_header, environment.outbound.clone());
        Ok(Self { model: config.model.as_str().into(), extra, endpoint, total })
    }

    async fn send(&self, texts: &[Arc<str>], cx: CallContext) -> Result<Vec<Embedding>, LlmError> {
        let body = Body { model: &self.model, input: texts, encoding_format: "float", extra: &self.extra };
        let body = serde_json::to_vec(&body).map_err(|e| LlmError::new(LlmErrorKind::BadRequest).with_detail(e))?;
        let response = self.endpoint.post(body, &cx, LlmError::from).await?;
        let bytes = cx.wait(read_limited(response, limits::EMBED_ANSWER)).await?.map_err(|error| match error {
            BodyError::TooLong { .. } => LlmError::from(InvalidResponse::TextTooLong).with_detail(error),
            BodyError::Broken(error) => LlmError::new(LlmErrorKind::Truncated).with_detail(error),
        })?;
        let response: Response = serde_json::from_slice(&bytes)
            .map_err(|error| LlmError::from(InvalidResponse::NotJson).with_detail(error))?;
        in_order(response, texts.len())
    }
}

#[async_trait]
impl Embedder for OpenAiEmbedder {
    fn model(&self) -> &str {
        &self.model
    }

    async fn embed(&self, texts: &[Arc<str>], cx: &CallContext) -> Result<Vec<Embedding>, LlmError> {
        let limited = cx.with_timeout(self.total);
        let ends_first = limited.deadline < cx.deadline;
        let answer = self.send(texts, limited).await.map_err(|error| match error.kind {
            // After the timeout of this entry, another model may be called.
            LlmErrorKind::DeadlineExceeded if ends_first => LlmErrorKind::CallTimeout.into(),
            _ => error,
        });
        answer.map_err(|error| self.endpoint.masked(error))
    }
}

/// One vector per text, in the order of the texts, all of the same length.
fn in_order(response: Response, count: usize) -> Result<Vec<Embedding>, LlmError> {
    let invalid = |what: String| LlmError::from(InvalidResponse::UnexpectedFormat).with_detail(what);
    let mut vectors: Vec<Option<Embedding>> = vec![None; count];
    let mut length = None;
    for (at, item) in response.data.into_iter().enumerate() {
        let dimensions = item.embedding.len();
        if dimensions == 0 || dimensions > limits::EMBED_DIMENSIONS || *length.get_or_insert(dimensions) != dimensions {
            return Err(invalid(format!("a vector of {dimensions} numbers")));
        }
        let vector =
            normalise(item.embedding).ok_or_else(|| invalid("a vector contains NaN or infinity".to_owned()))?;
        match vectors.get_mut(item.index.unwrap_or(at)) {
            Some(slot) => *slot = Some(vector),
            None => return Err(invalid("more vectors than texts".to_owned())),
        }
    }
    let complete: Option<Vec<Embedding>> = vectors.into_iter().collect();
    complete.ok_or_else(|| invalid("fewer vectors than texts".to_owned()))
}

#[cfg(test)]
mod tests;
