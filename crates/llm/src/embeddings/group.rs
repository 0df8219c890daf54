//! One group of embedding models: batches, retries, and what was embedded before.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::future::BoxFuture;
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
pub(super) struct Member {
    pub(super) model: Arc<dyn Embedder>,
    /// How often it may be asked for one batch, at least once.
    pub(super) tries: u32,
}

type Key = [u8; 32];

/// Models of one name that stand for one another.
pub(super) struct Group {
    first: Arc<dyn Embedder>,
    members: Vec<Member>,
    policy: RetryPolicy,
    seed: u64,
    /// Vectors by the hash of their text; held for no wait.
    known: Mutex<HashMap<Key, Embedding>>,
}

impl Group {
    /// Nothing without a member.
    pub(super) fn new(members: Vec<Member>, seed: u64) -> Option<Self> {
        let first = members.first()?.model.clone();
        Some(Self { first, members, policy: RetryPolicy::default(), seed, known: Mutex::default() })
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Key, Embedding>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn all(&self, texts: &[Arc<str>], cx: &CallContext) -> Result<Vec<Embedding>, LlmError> {
        let keys: Vec<Key> = texts.iter().map(|text| Sha256::digest(text.as_bytes()).into()).collect();
        let mut found: HashMap<Key, Embedding> = HashMap::with_capacity(texts.len());
        let mut missing: Vec<(Key, Arc<str>)> = Vec::new();
        {
            let known = self.known();
            for (key, text) in keys.iter().zip(texts) {
                match known.get(key) {
                    Some(vector) => drop(found.insert(*key, vector.clone())),
                    None if missing.iter().any(|(other, _)| other == key) => {}
                    None => missing.push((*key, cut(text))),
                }
            }
        }
        for batch in missing.chunks(limits::EMBED_BATCH) {
            let asked: Vec<Arc<str>> = batch.iter().map(|(_, text)| text.clone()).collect();
            let vectors = self.batch(&asked, cx).await?;
            let mut known = self.known();
            for ((key, _), vector) in batch.iter().zip(vectors) {
                if known.len() >= limits::EMBED_CACHE {
                    known.clear();
                }
                known.insert(*key, vector.clone());
                found.insert(*key, vector);
            }
        }
        let vectors: Option<Vec<Embedding>> = keys.iter().map(|key| found.get(key).cloned()).collect();
        vectors.filter(|all| same_length(all)).ok_or_else(|| LlmError::from(InvalidResponse::NotAnAnswer))
    }

    /// Asks the members in order, each as often as it may be.
    async fn batch(&self, texts: &[Arc<str>], cx: &CallContext) -> Result<Vec<Embedding>, LlmError> {
        let mut failed_at: Option<Duration> = None;
        let mut last = LlmError::from(LlmErrorKind::Unreachable);
        let mut total = 0;
        for (at, member) in self.members.iter().enumerate() {
            let has_next = at + 1 < self.members.len();
            for made in 1..=member.tries.max(1) {
                total += 1;
                let error = match member.model.embed(texts, cx).await {
                    Ok(vectors) if vectors.len() == texts.len() => return Ok(vectors),
                    Ok(_) => LlmError::from(InvalidResponse::NotAnAnswer),
                    Err(error) => error,
                };
                let now = cx.clock.elapsed();
                let standing = AttemptState {
                    made,
                    allowed: member.tries.max(1),
                    has_next,
                    spent: now.saturating_sub(*failed_at.get_or_insert(now)),
                    left: cx.remaining(),
                };
                let verdict = self.policy.judge(&error, standing, random(self.seed, total));
                tracing::warn!(model = member.model.model(), code = error.code(), ?verdict, "embedding failed");
                match verdict {
                    RetryDecision::Fail => return Err(error),
                    RetryDecision::Next => {
                        last = error;
                        break;
                    }
                    RetryDecision::Again(wait) => {
                        let until = cx.clock.deadline(wait);
                        cx.wait(cx.clock.sleep(until)).await?;
                    }
                }
            }
        }
        Err(last)
    }
}

impl Embedder for Group {
    fn model(&self) -> &str {
        self.first.model()
    }

    fn embed<'a>(
        &'a self,
        texts: &'a [Arc<str>],
        cx: &'a CallContext,
    ) -> BoxFuture<'a, Result<Vec<Embedding>, LlmError>> {
        Box::pin(self.all(texts, cx))
    }
}

/// A text that no model refuses for its length; an empty one is refused by some, a blank is not.
fn cut(text: &Arc<str>) -> Arc<str> {
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

    fn group(members: Vec<(Arc<ScriptedEmbedder>, u32)>) -> Group {
        let members = members.into_iter().map(|(model, tries)| Member { model, tries });
        Group::new(members.collect(), 1).unwrap()
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
        assert_eq!((model.calls(), &again[..]), (2, &first[..5]), "known texts are not asked for again");
        let twice: Vec<Arc<str>> = vec!["new".into(), "new".into()];
        let both = group.embed(&twice, &cx).await.unwrap();
        assert_eq!((model.texts(), &both[0]), (limits::EMBED_BATCH + 4, &both[1]), "equal texts are asked for once");
    }

    #[tokio::test]
    async fn no_more_vectors_are_kept_than_allowed_and_no_longer_texts_are_sent() {
        let model = Arc::new(ScriptedEmbedder::default());
        let group = group(vec![(model.clone(), 1)]);
        let cx = ManualClock::new().context(Duration::from_secs(60));
        group.embed(&texts(0..limits::EMBED_CACHE + 1), &cx).await.unwrap();
        assert!(group.known().len() <= limits::EMBED_CACHE, "{}", group.known().len());
        let long: Vec<Arc<str>> = vec!["w ".repeat(limits::EMBED_TEXT).into()];
        group.embed(&long, &cx).await.unwrap();
        assert_eq!(model.longest(), limits::EMBED_TEXT);
    }

    #[tokio::test]
    async fn what_fails_is_tried_again_and_then_asked_of_the_next() {
        let clock = ManualClock::auto_advancing();
        let cx = clock.context(Duration::from_secs(60));
        let down = Arc::new(ScriptedEmbedder::failing(LlmErrorKind::Overloaded { after: None }));
        let up = Arc::new(ScriptedEmbedder::default());
        let both = group(vec![(down.clone(), 2), (up.clone(), 1)]);
        assert_eq!(both.embed(&texts(0..1), &cx).await.unwrap().len(), 1);
        assert_eq!((down.calls(), up.calls()), (2, 1));
        let refused = Arc::new(ScriptedEmbedder::failing(LlmErrorKind::Unauthorised));
        let alone = group(vec![(refused.clone(), 3)]);
        assert_eq!(alone.embed(&texts(0..1), &cx).await.unwrap_err().kind, LlmErrorKind::Unauthorised);
        assert_eq!(refused.calls(), 1);
    }
}
