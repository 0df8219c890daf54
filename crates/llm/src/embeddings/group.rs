//! A group of embedding models: batches, retries, fallbacks and a cache of vectors.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use segue_base::{context::CallContext, limits};
use segue_lang::text::{TextLimit, truncate};
use sha2::{Digest, Sha256};

use super::{Embedder, Embedding};
use crate::{
    LlmError, LlmErrorKind,
    error::InvalidResponse,
    retry::{AttemptState, RetryDecision, RetryPolicy, random},
};

/// One model of a group.
pub(super) struct EmbeddingGroupMember {
    pub(super) model: Arc<dyn Embedder>,
    /// Attempts that it may have for one batch, at least one.
    pub(super) max_attempts: u32,
}

/// SHA-256 of a text.
type TextHash = [u8; 32];

/// Models of the same name, called in order.
pub(super) struct EmbeddingGroup {
    first: Arc<dyn Embedder>,
    members: Vec<EmbeddingGroupMember>,
    policy: RetryPolicy,
    seed: u64,
    /// Vectors by the hash of their text. Never locked across an await.
    cache: Mutex<HashMap<TextHash, Embedding>>,
}

impl EmbeddingGroup {
    /// `None` without members.
    pub(super) fn new(members: Vec<EmbeddingGroupMember>, seed: u64) -> Option<Self> {
        let first = members.first()?.model.clone();
        Some(Self { first, members, policy: RetryPolicy::default(), seed, cache: Mutex::default() })
    }

    fn cache(&self) -> MutexGuard<'_, HashMap<TextHash, Embedding>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn embed_all(&self, texts: &[Arc<str>], cx: &CallContext) -> Result<Vec<Embedding>, LlmError> {
        let keys: Vec<TextHash> = texts.iter().map(|text| Sha256::digest(text.as_bytes()).into()).collect();
        let mut found: HashMap<TextHash, Embedding> = HashMap::with_capacity(texts.len());
        let mut missing: Vec<(TextHash, Arc<str>)> = Vec::new();
        {
            let cache = self.cache();
            for (key, text) in keys.iter().zip(texts) {
                match cache.get(key) {
                    Some(vector) => drop(found.insert(*key, vector.clone())),
                    None if missing.iter().any(|(other, _)| other == key) => {}
                    None => missing.push((*key, fit_to_limits(text))),
                }
            }
        }
        for batch in missing.chunks(limits::EMBED_BATCH) {
            let texts: Vec<Arc<str>> = batch.iter().map(|(_, text)| text.clone()).collect();
            let vectors = self.embed_batch(&texts, cx).await?;
            let mut cache = self.cache();
            for ((key, _), vector) in batch.iter().zip(vectors) {
                if cache.len() >= limits::EMBED_CACHE {
                    cache.clear();
                }
                cache.insert(*key, vector.clone());
                found.insert(*key, vector);
            }
        }
        let vectors: Option<Vec<Embedding>> = keys.iter().map(|key| found.get(key).cloned()).collect();
        vectors.filter(|all| same_length(all)).ok_or_else(|| LlmError::from(InvalidResponse::UnexpectedFormat))
    }

    /// Calls the members in order, each up to its maximum of attempts.
    async fn embed_batch(&self, texts: &[Arc<str>], cx: &CallContext) -> Result<Vec<Embedding>, LlmError> {
        let mut failed_at: Option<Duration> = None;
        let mut last_error = LlmError::from(LlmErrorKind::Unreachable);
        let mut attempts = 0;
        for (at, member) in self.members.iter().enumerate() {
            let has_next = at + 1 < self.members.len();
            for made in 1..=member.max_attempts.max(1) {
                attempts += 1;
                let error = match member.model.embed(texts, cx).await {
                    Ok(vectors) if vectors.len() == texts.len() => return Ok(vectors),
                    Ok(_) => LlmError::from(InvalidResponse::UnexpectedFormat),
                    Err(error) => error,
                };
                let now = cx.clock.elapsed();
                let attempt = AttemptState {
                    made,
                    allowed: member.max_attempts.max(1),
                    has_next,
                    spent: now.saturating_sub(*failed_at.get_or_insert(now)),
                    left: cx.remaining(),
                };
                let decision = self.policy.decide(&error, attempt, random(self.seed, attempts));
                tracing::warn!(model = member.model.model(), code = error.code(), ?decision, "embedding failed");
                match decision {
                    RetryDecision::Fail => return Err(error),
                    RetryDecision::NextModel => {
                        last_error = error;
                        break;
                    }
                    RetryDecision::RetryAfter(wait) => {
                        let until = cx.clock.deadline(wait);
                        cx.wait(cx.clock.sleep(until)).await?;
                    }
                }
            }
        }
        Err(last_error)
    }
}

#[async_trait]
impl Embedder for EmbeddingGroup {
    fn model(&self) -> &str {
        self.first.model()
    }

    async fn embed(&self, texts: &[Arc<str>], cx: &CallContext) -> Result<Vec<Embedding>, LlmError> {
        self.embed_all(texts, cx).await
    }
}

/// The text within the limits of all models: some reject texts that are empty or too long.
fn fit_to_limits(text: &Arc<str>) -> Arc<str> {
    if text.trim().is_empty() {
        return " ".into();
    }
    if text.len() <= limits::EMBED_TEXT {
        return text.clone();
    }
    (&*truncate(text, TextLimit::Bytes(limits::EMBED_TEXT), "")).into()
}

fn same_length(vectors: &[Embedding]) -> bool {
    vectors.windows(2).all(|pair| matches!(pair, [a, b] if a.len() == b.len()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use crate::embeddings::ScriptedEmbedder;
    use segue_base::manual_clock::ManualClock;

    fn group(members: Vec<(Arc<ScriptedEmbedder>, u32)>) -> EmbeddingGroup {
        let members = members.into_iter().map(|(model, max_attempts)| EmbeddingGroupMember { model, max_attempts });
        EmbeddingGroup::new(members.collect(), 1).unwrap()
    }

    fn texts(range: std::ops::Range<usize>) -> Vec<Arc<str>> {
        range.map(|n| format!("text {n}").into()).collect()
    }

    #[tokio::test]
    async fn texts_are_embedded_once_and_in_batches() {
        let model = Arc::new(ScriptedEmbedder::default());
        let group = group(vec![(model.clone(), 1)]);
        let cx = ManualClock::new().context(Duration::from_secs(60));
        let all = texts(0..limits::EMBED_BATCH + 3);
        let first = group.embed(&all, &cx).await.unwrap();
        assert_eq!(model.calls(), 2, "two batches");
        let again = group.embed(&texts(0..5), &cx).await.unwrap();
        assert_eq!((model.calls(), &again[..]), (2, &first[..5]), "cached texts are not sent again");
        let twice: Vec<Arc<str>> = vec!["new".into(), "new".into()];
        let both = group.embed(&twice, &cx).await.unwrap();
        assert_eq!((model.texts(), &both[0]), (limits::EMBED_BATCH + 4, &both[1]), "equal texts are sent once");
    }

    #[tokio::test]
    async fn the_cache_and_the_length_of_texts_are_limited() {
        let model = Arc::new(ScriptedEmbedder::default());
        let group = group(vec![(model.clone(), 1)]);
        let cx = ManualClock::new().context(Duration::from_secs(60));
        group.embed(&texts(0..limits::EMBED_CACHE + 1), &cx).await.unwrap();
        assert!(group.cache().len() <= limits::EMBED_CACHE, "{}", group.cache().len());
        let long: Vec<Arc<str>> = vec!["w ".repeat(limits::EMBED_TEXT).into()];
        group.embed(&long, &cx).await.unwrap();
        assert_eq!(model.longest(), limits::EMBED_TEXT);
    }

    #[tokio::test]
    async fn a_failed_call_is_retried_and_then_falls_back() {
        let clock = ManualClock::auto_advancing();
        let cx = clock.context(Duration::from_secs(60));
        let failing = Arc::new(ScriptedEmbedder::failing(LlmErrorKind::Overloaded { after: None }));
        let working = Arc::new(ScriptedEmbedder::default());
        let both = group(vec![(failing.clone(), 2), (working.clone(), 1)]);
        assert_eq!(both.embed(&texts(0..1), &cx).await.unwrap().len(), 1);
        assert_eq!((failing.calls(), working.calls()), (2, 1));
        let unauthorised = Arc::new(ScriptedEmbedder::failing(LlmErrorKind::Unauthorised));
        let alone = group(vec![(unauthorised.clone(), 3)]);
        assert_eq!(alone.embed(&texts(0..1), &cx).await.unwrap_err().kind, LlmErrorKind::Unauthorised);
        assert_eq!(unauthorised.calls(), 1);
    }
}
