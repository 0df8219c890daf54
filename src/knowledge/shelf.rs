//! The index over a folder's documents: made at the first question, made again when a file changed.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use segue_engine::project::SearchConfig;

use super::{KnowledgeError, SearchResult, question::Question};
use crate::{
    context::CallContext,
    limits,
    llm::{Embedder, Embedding, LlmError, LlmErrorKind},
    search::{Folder, Found, Index, Passage, folder::Stamp},
};

/// A passage whose words fit less than this, beside the one whose words fit best, shares a few common words and no more.
const LEAST: f32 = 0.2;

/// The documents of a folder.
pub(super) struct Shelf {
    folder: Folder,
    /// What was read last; held for no wait.
    kept: Mutex<Option<Arc<Kept>>>,
    /// Vectors by what they were made of, so that a change of one file embeds that file alone.
    vectors: Mutex<HashMap<Arc<str>, Embedding>>,
    /// Until then the embedding service is left alone.
    quiet_until: Mutex<Duration>,
}

#[derive(Clone)]
struct Kept {
    stamp: Stamp,
    hash: [u8; 32],
    passages: Vec<Passage>,
    /// What of each passage is compared.
    searched: Vec<Arc<str>>,
    index: Index,
    left_out: Vec<String>,
}

impl Shelf {
    pub(super) fn new(folder: Folder) -> Self {
        Self { folder, kept: Mutex::default(), vectors: Mutex::default(), quiet_until: Mutex::default() }
    }

    /// Looks for passages.
    pub(super) async fn find(
        &self,
        question: &Question,
        embedder: Option<&Arc<dyn Embedder>>,
        config: &SearchConfig,
        looked: &mut SearchResult,
        cx: &CallContext,
    ) -> Result<(), KnowledgeError> {
        let mut kept = self.current(cx).await?;
        looked.notes.extend(kept.left_out.iter().cloned());
        let mut vector = None;
        if let Some(embedder) = embedder.filter(|_| cx.clock.elapsed() >= *lock(&self.quiet_until)) {
            match self.embed(&**embedder, &kept, question, cx).await {
                Ok((with_vectors, found)) => (kept, vector) = (with_vectors, Some(found)),
                Err(error) => {
                    tracing::warn!(code = "U0502", "documents are searched by words alone, embedding failed: {error}");
                    *lock(&self.quiet_until) = cx.clock.elapsed() + limits::EMBED_PAUSE;
                    looked.notes.push(format!("by words alone: {error}"));
                }
            }
        }
        looked.by_meaning = vector.is_some();
        let by_words = vector.is_none();
        let threshold = config.threshold as f32;
        let hits = kept.index.ranked(&question.weighed(), vector.as_deref()).into_iter();
        // By words, a passage that shares none of them is not found; by meaning everything is more or less near.
        let near = hits.filter(|hit| hit.score >= threshold && (!by_words || hit.by_words >= LEAST));
        let passages = near.filter_map(|hit| Some((kept.passages.get(hit.at)?, hit.score)));
        let usable = passages.filter(|(passage, _)| config.generative || passage.answer().is_some());
        looked.found = usable
            .take(limits::KNOWLEDGE_SHOWN)
            .map(|(passage, score)| Found { passage: passage.clone(), score })
            .collect();
        Ok(())
    }

    /// The documents as they are now.
    async fn current(&self, cx: &CallContext) -> Result<Arc<Kept>, KnowledgeError> {
        let (folder, before) = (self.folder.clone(), lock(&self.kept).clone());
        let reading = tokio::task::spawn_blocking(move || read(&folder, before));
        // The limits of sizes and counts bound it; a deadline would only give up what the next question needs again.
        let read = tokio::select! {
            biased;
            () = cx.cancel.cancelled() => return Err(KnowledgeError::Stopped("cancelled".to_owned())),
            read = reading => read,
        };
        let kept = read.map_err(|why| KnowledgeError::Stopped(why.to_string()))??;
        let mut known = lock(&self.kept);
        // Vectors that were made meanwhile are not thrown away.
        match known.as_ref().filter(|known| known.hash == kept.hash && known.index.has_vectors()) {
            Some(known) if known.stamp == kept.stamp => return Ok(known.clone()),
            _ => *known = Some(kept.clone()),
        }
        Ok(kept)
    }

    /// The index with vectors, and the vector of the question. Passages are embedded in batches; what a deadline leaves over
    /// is made at the next question.
    async fn embed(
        &self,
        embedder: &dyn Embedder,
        kept: &Arc<Kept>,
        question: &Question,
        cx: &CallContext,
    ) -> Result<(Arc<Kept>, Embedding), LlmError> {
        let cx = cx.with_timeout(limits::EMBED_WAIT);
        let mut kept = kept.clone();
        if !kept.index.has_vectors() {
            let missing: Vec<Arc<str>> = {
                let known = lock(&self.vectors);
                kept.searched.iter().filter(|text| !known.contains_key(*text)).cloned().collect()
            };
            for batch in missing.chunks(limits::EMBED_BATCH) {
                let vectors = embedder.embed(batch, &cx).await?;
                lock(&self.vectors).extend(batch.iter().cloned().zip(vectors));
            }
            kept = Arc::new(self.with_vectors(&kept));
            *lock(&self.kept) = Some(kept.clone());
        }
        let asked: [Arc<str>; 1] = [question.whole().into()];
        let vector = embedder.embed(&asked, &cx).await?.into_iter().next();
        vector
            .map(|vector| (kept, vector))
            .ok_or_else(|| LlmErrorKind::InvalidResponse(crate::llm::InvalidResponse::NoChoices).into())
    }

    /// The same documents with their vectors; those of passages that are gone are forgotten.
    fn with_vectors(&self, kept: &Kept) -> Kept {
        let mut known = lock(&self.vectors);
        let present: HashSet<&Arc<str>> = kept.searched.iter().collect();
        known.retain(|text, _| present.contains(text));
        let vectors: Vec<Embedding> = kept.searched.iter().filter_map(|text| known.get(text).cloned()).collect();
        Kept {
            stamp: kept.stamp.clone(),
            hash: kept.hash,
            passages: kept.passages.clone(),
            searched: kept.searched.clone(),
            index: kept.index.clone().with_vectors(vectors),
            left_out: kept.left_out.clone(),
        }
    }
}

/// Reads what changed since `before`. Blocks.
fn read(folder: &Folder, before: Option<Arc<Kept>>) -> Result<Arc<Kept>, KnowledgeError> {
    let stamp = folder.stamp()?;
    if let Some(before) = before.as_ref().filter(|before| before.stamp == stamp) {
        return Ok(before.clone());
    }
    let reading = folder.read(&stamp);
    if let Some(same) = before.filter(|before| before.hash == reading.hash) {
        // Files were touched and nothing else: the next question need not read them again.
        return Ok(Arc::new(Kept { stamp, ..(*same).clone() }));
    }
    let searched: Vec<Arc<str>> = reading.passages.iter().map(|passage| passage.searched().into()).collect();
    let index = Index::new(searched.iter().map(|text| &**text));
    let (passages, hash, left_out) = (reading.passages, reading.hash, reading.left_out);
    for what in &left_out {
        tracing::warn!(code = "U0504", "a document is left out: {what}");
    }
    Ok(Arc::new(Kept { stamp, hash, passages, searched, index, left_out }))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
