//! Qdrant by HTTP: the nearest points of a collection.
//!
//! Written to the interface's published description and tried against recorded answers of it, never against a server. Versions from 1.10
//! have one way of asking (`points/query`); older ones answer that with 404 and are asked the older way (`points/search`).

use std::time::Duration;

use segue_engine::project::QdrantDef;
use serde_json::{Map, Value as Json, json};

use super::passages::{Found, Passage};
use crate::{
    context::{CallContext, WaitError},
    http::{self, BodyError, HttpClients, TransportError, read_limited},
    limits,
    secret::Secret,
};

/// Keys of a payload that usually hold the text.
const CONTENT: [&str; 3] = ["text", "page_content", "content"];

/// One collection of a Qdrant.
pub struct Qdrant {
    collection: reqwest::Url,
    key: Option<Secret>,
    vector_name: Option<String>,
    content_key: Option<String>,
    metadata_key: String,
    total: Duration,
    outbound: HttpClients,
}

/// Why a store could not be asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QdrantError {
    /// The entry is wrong.
    #[error("`vector_store` of endpoints.yml: {0}")]
    Wrong(String),
    /// No connection, or it broke.
    #[error("the vector store cannot be reached: {0}; check `host` and `port` of `vector_store`")]
    Unreachable(String),
    /// The key is missing or wrong.
    #[error("the vector store refuses the key; check `api_key` of `vector_store`")]
    Unauthorised,
    /// There is no such collection.
    #[error("the vector store has no such collection; check `collection` of `vector_store`: {0}")]
    NotFound(String),
    /// It refuses the request, or is in trouble.
    #[error("the vector store answers with status {0}: {1}")]
    Refused(u16, String),
    /// Its answer is none.
    #[error("the vector store's answer is not understood: {0}")]
    BadAnswer(String),
    /// It took too long, or nobody wants the answer any more.
    #[error("the vector store did not answer: {0}")]
    Stopped(#[from] WaitError),
}

impl Qdrant {
    /// The collection that `endpoints.yml` names. Opens no connection.
    ///
    /// # Errors
    /// [`QdrantError::Wrong`] when its address is none.
    pub fn new(def: &QdrantDef, outbound: HttpClients) -> Result<Self, QdrantError> {
        let mut collection = http::parse_endpoint_url(&def.url).map_err(QdrantError::Wrong)?;
        match collection.path_segments_mut() {
            Ok(mut path) => drop(path.pop_if_empty().push("collections").push(&def.collection).push("points")),
            Err(()) => return Err(QdrantError::Wrong(format!("`{}` has no path", http::redact_url(&def.url)))),
        }
        Ok(Self {
            collection,
            key: def.api_key.clone().map(Secret::new),
            vector_name: def.vector_name.clone(),
            content_key: def.content_key.clone(),
            metadata_key: def.metadata_key.clone(),
            total: def.timeout.unwrap_or(limits::KNOWLEDGE_WAIT),
            outbound,
        })
    }

    /// The points nearest to a vector, best first; those below `threshold` are left out.
    ///
    /// # Errors
    /// [`QdrantError`]; nothing is tried again.
    pub async fn nearest(
        &self,
        vector: &[f32],
        limit: usize,
        threshold: f64,
        cx: &CallContext,
    ) -> Result<Vec<Found>, QdrantError> {
        let cx = cx.with_timeout(self.total);
        let mut body = json!({"query": vector, "limit": limit, "with_payload": true});
        set(&mut body, "using", self.vector_name.as_deref().map(Json::from));
        set(&mut body, "score_threshold", (threshold > 0.0).then(|| json!(threshold)));
        let answer = match self.ask("query", &body, &cx).await {
            Err(QdrantError::NotFound(_)) => {
                let vector = match &self.vector_name {
                    Some(name) => json!({"name": name, "vector": vector}),
                    None => json!(vector),
                };
                let mut body = json!({"vector": vector, "limit": limit, "with_payload": true});
                set(&mut body, "score_threshold", (threshold > 0.0).then(|| json!(threshold)));
                self.ask("search", &body, &cx).await?
            }
            other => other?,
        };
        self.read(&answer, limit)
    }

    async fn ask(&self, what: &str, body: &Json, cx: &CallContext) -> Result<Json, QdrantError> {
        let mut url = self.collection.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.push(what);
        }
        let unreachable = |error: &dyn std::fmt::Display| QdrantError::Unreachable(error.to_string());
        let client = self.outbound.client().map_err(|error| unreachable(&error))?;
        let mut post = client.post(url).json(body);
        if let Some(key) = &self.key {
            let mut value = reqwest::header::HeaderValue::from_str(key.expose().trim())
                .map_err(|_| QdrantError::Wrong("`api_key` holds characters that no header may carry".to_owned()))?;
            value.set_sensitive(true);
            post = post.header("api-key", value);
        }
        let response = cx.wait(post.send()).await?.map_err(|error| unreachable(&TransportError::from(error)))?;
        let status = response.status().as_u16();
        let body = cx.wait(read_limited(response, limits::KNOWLEDGE_ANSWER)).await?;
        let bytes = body.map_err(|error| match error {
            BodyError::TooLong { .. } => QdrantError::BadAnswer("it is too long".to_owned()),
            BodyError::Broken(error) => unreachable(&error),
        })?;
        let answer: Option<Json> = serde_json::from_slice(&bytes).ok();
        let said = answer.as_ref().and_then(|answer| answer.pointer("/status/error")?.as_str()).unwrap_or_default();
        let said: String = said.chars().take(200).collect();
        match status {
            200..=299 => answer.ok_or_else(|| QdrantError::BadAnswer("it is no JSON".to_owned())),
            401 | 403 => Err(QdrantError::Unauthorised),
            404 => Err(QdrantError::NotFound(said)),
            _ => Err(QdrantError::Refused(status, said)),
        }
    }

    /// `result` is a list of points, or a map that holds it.
    fn read(&self, answer: &Json, limit: usize) -> Result<Vec<Found>, QdrantError> {
        let result = answer.get("result");
        let points = result.and_then(|result| result.as_array().or_else(|| result.get("points")?.as_array()));
        let points = points.ok_or_else(|| QdrantError::BadAnswer("`result` holds no points".to_owned()))?;
        Ok(points.iter().take(limit).filter_map(|point| self.point(point)).collect())
    }

    fn point(&self, point: &Json) -> Option<Found> {
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
        // Some fill the payload itself with what others put below `metadata`.
        for key in ["source", "title", "url", "answer"] {
            if let Some(value) = payload.get(key).filter(|value| value.is_string()) {
                metadata.entry(key).or_insert_with(|| value.clone());
            }
        }
        Some(Found { passage: Passage { text: text.into(), metadata }, score })
    }
}

fn set(body: &mut Json, key: &str, value: Option<Json>) {
    if let (Some(value), Some(map)) = (value, body.as_object_mut()) {
        map.insert(key.to_owned(), value);
    }
}

#[cfg(test)]
mod tests;
