//! The embeddings API: texts in, vectors out, in one request and one answer.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use segue_base::{
    context::CallContext,
    http::{BodyError, read_limited},
    limits,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    endpoint::{Endpoint, Service},
    request,
};
use crate::{
    LlmEnvironment, LlmError, LlmErrorKind, ModelConfig, ModelConfigError,
    embeddings::{Embedder, Embedding, unit},
    error::InvalidResponse,
    transport::ModelEndpoint,
};

/// One embedding model behind one endpoint. It retries nothing and keeps nothing; the group does.
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
struct Reply {
    data: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    #[serde(default)]
    index: Option<usize>,
    embedding: Vec<f32>,
}

impl OpenAiEmbedder {
    /// Makes the model. Opens no connection yet.
    ///
    /// # Errors
    /// [`ModelConfigError`] when the entry lacks what its provider needs.
    pub(crate) fn new(config: &ModelConfig, around: &LlmEnvironment) -> Result<Self, ModelConfigError> {
        let endpoint = Endpoint::of(config, around, Service::Embeddings)?;
        if config.model.is_empty() && config.provider != "azure" {
            return Err(ModelConfigError::new(config, "model", "missing; name the embedding model"));
        }
        let mut extra = request::extras(config);
        ["input", "encoding_format"].iter().for_each(|key| {
            extra.shift_remove(*key);
        });
        let total = config.timeout.unwrap_or(limits::EMBED_WAIT);
        let endpoint = ModelEndpoint::new(endpoint.url, endpoint.key, endpoint.proof, around.outbound.clone());
        Ok(Self { model: config.model.as_str().into(), extra, endpoint, total })
    }

    async fn ask(&self, texts: &[Arc<str>], cx: CallContext) -> Result<Vec<Embedding>, LlmError> {
        let body = Body { model: &self.model, input: texts, encoding_format: "float", extra: &self.extra };
        let body = serde_json::to_vec(&body).map_err(|e| LlmError::new(LlmErrorKind::BadRequest).because(e))?;
        let response = self.endpoint.post(body, &cx, LlmError::from).await?;
        let bytes = cx.wait(read_limited(response, limits::EMBED_ANSWER)).await?.map_err(|error| match error {
            BodyError::TooLong { .. } => LlmError::from(InvalidResponse::TextTooLong).because(error),
            BodyError::Broken(error) => LlmError::new(LlmErrorKind::CutShort).because(error),
        })?;
        let reply: Reply =
            serde_json::from_slice(&bytes).map_err(|error| LlmError::from(InvalidResponse::NotJson).because(error))?;
        in_order(reply, texts.len())
    }
}

impl Embedder for OpenAiEmbedder {
    fn model(&self) -> &str {
        &self.model
    }

    fn embed<'a>(
        &'a self,
        texts: &'a [Arc<str>],
        cx: &'a CallContext,
    ) -> BoxFuture<'a, Result<Vec<Embedding>, LlmError>> {
        Box::pin(async move {
            let own = cx.with_timeout(self.total);
            let ends_first = own.deadline < cx.deadline;
            let answer = self.ask(texts, own).await.map_err(|error| match error.kind {
                // What this model's entry allows says nothing of another.
                LlmErrorKind::Total if ends_first => LlmErrorKind::CallTimeout.into(),
                _ => error,
            });
            answer.map_err(|error| self.endpoint.masked(error))
        })
    }
}

/// One vector for each text, in their order, all of one length.
fn in_order(reply: Reply, count: usize) -> Result<Vec<Embedding>, LlmError> {
    let wrong = |what: String| LlmError::from(InvalidResponse::NotAnAnswer).because(what);
    let mut found: Vec<Option<Embedding>> = vec![None; count];
    let mut length = None;
    for (at, item) in reply.data.into_iter().enumerate() {
        let dimensions = item.embedding.len();
        if dimensions == 0 || dimensions > limits::EMBED_DIMENSIONS || *length.get_or_insert(dimensions) != dimensions {
            return Err(wrong(format!("a vector of {dimensions} numbers")));
        }
        let vector = unit(item.embedding).ok_or_else(|| wrong("a vector contains NaN or infinity".to_owned()))?;
        match found.get_mut(item.index.unwrap_or(at)) {
            Some(place) => *place = Some(vector),
            None => return Err(wrong("more vectors than texts".to_owned())),
        }
    }
    let complete: Option<Vec<Embedding>> = found.into_iter().collect();
    complete.ok_or_else(|| wrong("fewer vectors than texts".to_owned()))
}

#[cfg(test)]
mod tests;
