//! A client of the HTTP API of the vector store Qdrant (<https://api.qdrant.tech>): the nearest points of a collection.
//!
//! Qdrant 1.10 and later has the endpoint `points/query`. Older versions answer it with status 404; then `points/search` is
//! called. The tests use recorded answers, not a server.

use std::time::Duration;

use segue_engine::project::QdrantDef;
use serde_json::{Map, Value as Json, json};

use super::splitter::{Passage, ScoredPassage};
use crate::{
    context::{CallContext, WaitError},
    http::{self, BodyError, HttpClients, TransportError, read_limited},
    limits,
    secret::Secret,
};

/// The keys of a payload under which the text is looked up, in this order, unless `content_key` is set.
const CONTENT: [&str; 3] = ["text", "page_content", "content"];

/// One collection of a Qdrant server.
pub struct Qdrant {
    collection: reqwest::Url,
    key: Option<Secret>,
    vector_name: Option<String>,
    content_key: Option<String>,
    metadata_key: String,
    timeout: Duration,
    http_clients: HttpClients,
}

/// Why a search in the vector store failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QdrantError {
    /// `vector_store` in `endpoints.yml` is missing or invalid.
    #[error("`vector_store` of endpoints.yml: {0}")]
    InvalidConfig(String),
    /// There is no connection, or it was lost.
    #[error("the vector store cannot be reached: {0}; check `host` and `port` of `vector_store`")]
    Unreachable(String),
    /// The API key is missing or wrong: status 401 or 403.
    #[error("the vector store refuses the API key; check `api_key` of `vector_store`")]
    Unauthorised,
    /// There is no such collection: status 404, and the server's message.
    #[error("the vector store has no such collection; check `collection` of `vector_store`: {0}")]
    NotFound(String),
    /// Any other error status, and the server's message.
    #[error("the vector store answers with status {0}: {1}")]
    Refused(u16, String),
    /// The answer is too long or does not have the expected form.
    #[error("the answer of the vector store is invalid: {0}")]
    BadAnswer(String),
    /// The deadline passed, or the call was cancelled.
    #[error("the vector store did not answer: {0}")]
    NoResponse(#[from] WaitError),
}

impl Qdrant {
    /// A client for the collection that `endpoints.yml` names. Opens no connection.
    ///
    /// # Errors
    /// [`QdrantError::InvalidConfig`] when the URL is invalid.
    pub fn new(def: &QdrantDef, http_clients: HttpClients) -> Result<Self, QdrantError> {
        let mut collection = http::parse_endpoint_url(&def.url).map_err(QdrantError::InvalidConfig)?;
        match collection.path_segments_mut() {
            Ok(mut path) => drop(path.pop_if_empty().push("collections").push(&def.collection).push("points")),
            Err(()) => return Err(QdrantError::InvalidConfig(format!("`{}` has no path", http::redact_url(&def.url)))),
        }
        Ok(Self {
            collection,
            key: def.api_key.clone().map(Secret::new),
            vector_name: def.vector_name.clone(),
            content_key: def.content_key.clone(),
            metadata_key: def.metadata_key.clone(),
            timeout: def.timeout.unwrap_or(limits::KNOWLEDGE_WAIT),
            http_clients,
        })
    }

    /// The points nearest to a vector, best first; points with a score below `threshold` are excluded.
    ///
    /// # Errors
    /// [`QdrantError`]. Failed requests are not retried.
    ///
    /// # Cancellation
    /// Dropping the future closes the connection.
    pub async fn nearest(
        &self,
        vector: &[f32],
        limit: usize,
        threshold: f64,
        cx: &CallContext,
    ) -> Result<Vec<ScoredPassage>, QdrantError> {
        let cx = cx.with_timeout(self.timeout);
        let mut body = json!({"query": vector, "limit": limit, "with_payload": true});
        set(&mut body, "using", self.vector_name.as_deref().map(Json::from));
        set(&mut body, "score_threshold", (threshold > 0.0).then(|| json!(threshold)));
        let answer = match self.post("query", &body, &cx).await {
            Err(QdrantError::NotFound(_)) => {
                let vector = match &self.vector_name {
                    Some(name) => json!({"name": name, "vector": vector}),
                    None => json!(vector),
                };
                let mut body = json!({"vector": vector, "limit": limit, "with_payload": true});
                set(&mut body, "score_threshold", (threshold > 0.0).then(|| json!(threshold)));
                self.post("search", &body, &cx).await?
            }
            other => other?,
        };
        self.points(&answer, limit)
    }

    async fn post(&self, endpoint: &str, body: &Json, cx: &CallContext) -> Result<Json, QdrantError> {
        let mut url = self.collection.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.push(endpoint);
        }
        let unreachable = |error: &dyn std::fmt::Display| QdrantError::Unreachable(error.to_string());
        let client = self.http_clients.client().map_err(|error| unreachable(&error))?;
        let mut request = client.post(url).json(body);
        if let Some(key) = &self.key {
            let mut value = reqwest::header::HeaderValue::from_str(key.expose().trim()).map_err(|_| {
                QdrantError::InvalidConfig("`api_key` has characters that an HTTP header cannot contain".to_owned())
            })?;
            value.set_sensitive(true);
            request = request.header("api-key", value);
        }
        let response = cx.wait(request.send()).await?.map_err(|error| unreachable(&TransportError::from(error)))?;
        let status = response.status().as_u16();
        let body = cx.wait(read_limited(response, limits::KNOWLEDGE_ANSWER)).await?;
        let bytes = body.map_err(|error| match error {
            BodyError::TooLong { .. } => QdrantError::BadAnswer("it is too long".to_owned()),
            BodyError::Broken(error) => unreachable(&error),
        })?;
        let answer: Option<Json> = serde_json::from_slice(&bytes).ok();
        let message = answer.as_ref().and_then(|answer| answer.pointer("/status/error")?.as_str()).unwrap_or_default();
        let message: String = message.chars().take(200).collect();
        match status {
            200..=299 => answer.ok_or_else(|| QdrantError::BadAnswer("it is not JSON".to_owned())),
            401 | 403 => Err(QdrantError::Unauthorised),
            404 => Err(QdrantError::NotFound(message)),
            _ => Err(QdrantError::Refused(status, message)),
        }
    }

    /// The points of an answer: `result` is a list of points (`points/search`), or an object with it (`points/query`).
    fn points(&self, answer: &Json, limit: usize) -> Result<Vec<ScoredPassage>, QdrantError> {
        let result = answer.get("result");
        let points = result.and_then(|result| result.as_array().or_else(|| result.get("points")?.as_array()));
        let points = points.ok_or_else(|| QdrantError::BadAnswer("`result` contains no points".to_owned()))?;
        Ok(points.iter().take(limit).filter_map(|point| self.point(point)).collect())
    }

    fn point(&self, point: &Json) -> Option<ScoredPassage> {
        let score = point.get("score")?.as_f64()? as f32;
        let payload = point.get("payload")?.as_object()?;
        let text = match &self.content_key {
            Some(key) => payload.get(key.as_str()),
            None => CONTENT.iter().find_map(|key| payload.get(*key)),
        };
        let text: String = text?.as_str()?.chars().take(limits::KNOWLEDGE_PASSAGE * 4).collect();
        let mut metadata = match payload.get(&self.metadata_key) {
            Some(Json::Object(metadata)) => metadata.clone(),
            _ => Map::new(),
        };
        // Some collections have these keys in the payload itself instead of below `metadata`.
        for key in ["source", "title", "url", "answer"] {
            if let Some(value) = payload.get(key).filter(|value| value.is_string()) {
                metadata.entry(key).or_insert_with(|| value.clone());
            }
        }
        Some(ScoredPassage { passage: Passage { text: text.into(), metadata }, score })
    }
}

fn set(body: &mut Json, key: &str, value: Option<Json>) {
    if let (Some(value), Some(map)) = (value, body.as_object_mut()) {
        map.insert(key.to_owned(), value);
    }
}

#[cfg(test)]
mod tests;
