//! The index over the documents of a folder. It is built at the first search and updated when files change.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use segue_engine::project::SearchConfig;

use super::{KnowledgeError, SearchResult, query::SearchQuery};
use crate::{
    context::CallContext,
    limits,
    llm::{Embedder, Embedding, LlmError, LlmErrorKind},
    search::{Folder, HybridIndex, Passage, ScoredPassage, folder::FolderFingerprint},
};

/// In a lexical search, a passage whose score relative to the best passage is lower only shares common words with the query
/// and is not returned.
const MIN_RELATIVE_SCORE: f32 = 0.2;

/// The searchable documents of a folder.
pub(super) struct DocumentIndex {
    folder: Folder,
    /// The latest state that was read. Never locked across an await.
    snapshot: Mutex<Option<Arc<IndexSnapshot>>>,
    /// Embeddings by their text, so that after a change of one file only its passages are embedded.
    vectors: Mutex<HashMap<Arc<str>, Embedding>>,
    /// After an error the embedding service is not called before this time of the monotonic clock.
    paused_until: Mutex<Duration>,
}

#[derive(Clone)]
struct IndexSnapshot {
    fingerprint: FolderFingerprint,
    hash: [u8; 32],
    passages: Vec<Passage>,
    /// The text of each passage that is compared with queries.
    search_texts: Vec<Arc<str>>,
    index: HybridIndex,
    skipped: Vec<String>,
}

impl DocumentIndex {
    pub(super) fn new(folder: Folder) -> Self {
        Self { folder, snapshot: Mutex::default(), vectors: Mutex::default(), paused_until: Mutex::default() }
    }

    /// Searches for passages and adds them to `result`.
    pub(super) async fn search(
        &self,
        query: &SearchQuery,
        embedder: Option<&Arc<dyn Embedder>>,
        config: &SearchConfig,
        result: &mut SearchResult,
        cx: &CallContext,
    ) -> Result<(), KnowledgeError> {
        let mut snapshot = self.current(cx).await?;
        result.notes.extend(snapshot.skipped.iter().cloned());
        let mut vector = None;
        if let Some(embedder) = embedder.filter(|_| cx.clock.elapsed() >= *lock(&self.paused_until)) {
            match self.embed(&**embedder, &snapshot, query, cx).await {
                Ok((with_vectors, found)) => (snapshot, vector) = (with_vectors, Some(found)),
                Err(error) => {
                    tracing::warn!(code = "U0502", "the document search is lexical only, embedding failed: {error}");
                    *lock(&self.paused_until) = cx.clock.elapsed() + limits::EMBED_PAUSE;
                    result.notes.push(format!("lexical search only, embedding failed: {error}"));
                }
            }
        }
        result.used_embeddings = vector.is_some();
        let is_lexical = vector.is_none();
        let threshold = config.threshold as f32;
        let hits = snapshot.index.ranked(&query.weighted_parts(), vector.as_deref()).into_iter();
        // A lexical search needs a relative minimum; with embeddings every passage has a similarity, and the threshold decides.
        let relevant = hits
            .filter(|hit| hit.score >= threshold && (!is_lexical || hit.relative_lexical_score >= MIN_RELATIVE_SCORE));
        let passages = relevant.filter_map(|hit| Some((snapshot.passages.get(hit.at)?, hit.score)));
        let usable = passages.filter(|(passage, _)| config.generative || passage.answer().is_some());
        result.passages = usable
            .take(limits::KNOWLEDGE_SHOWN)
            .map(|(passage, score)| ScoredPassage { passage: passage.clone(), score })
            .collect();
        Ok(())
    }

    /// The current state of the documents; reads them if they changed.
    async fn current(&self, cx: &CallContext) -> Result<Arc<IndexSnapshot>, KnowledgeError> {
        let (folder, before) = (self.folder.clone(), lock(&self.snapshot).clone());
        let task = tokio::task::spawn_blocking(move || load_if_changed(&folder, before));
        // There is no deadline: the limits of sizes and counts bound the read, and the next search needs its result.
        let read = tokio::select! {
            biased;
            () = cx.cancel.cancelled() => return Err(KnowledgeError::ReadAborted("cancelled".to_owned())),
            read = task => read,
        };
        let snapshot = read.map_err(|error| KnowledgeError::ReadAborted(error.to_string()))??;
        let mut cached = lock(&self.snapshot);
        // A concurrent search may have added vectors for the same documents: keep them.
        match cached.as_ref().filter(|cached| cached.hash == snapshot.hash && cached.index.has_vectors()) {
            Some(cached) if cached.fingerprint == snapshot.fingerprint => return Ok(cached.clone()),
            _ => *cached = Some(snapshot.clone()),
        }
        Ok(snapshot)
    }

    /// The index with vectors, and the vector of the query. Passages are embedded in batches; when the deadline passes, the
    /// finished batches are kept for the next search.
    async fn embed(
        &self,
        embedder: &dyn Embedder,
        snapshot: &Arc<IndexSnapshot>,
        query: &SearchQuery,
        cx: &CallContext,
    ) -> Result<(Arc<IndexSnapshot>, Embedding), LlmError> {
        let cx = cx.with_timeout(limits::EMBED_WAIT);
        let mut snapshot = snapshot.clone();
        if !snapshot.index.has_vectors() {
            let missing: Vec<Arc<str>> = {
                let cached = lock(&self.vectors);
                snapshot.search_texts.iter().filter(|text| !cached.contains_key(*text)).cloned().collect()
            };
            for batch in missing.chunks(limits::EMBED_BATCH) {
                let vectors = embedder.embed(batch, &cx).await?;
                lock(&self.vectors).extend(batch.iter().cloned().zip(vectors));
            }
            snapshot = Arc::new(self.with_vectors(&snapshot));
            *lock(&self.snapshot) = Some(snapshot.clone());
        }
        let texts: [Arc<str>; 1] = [query.text().into()];
        let vector = embedder.embed(&texts, &cx).await?.into_iter().next();
        vector
            .map(|vector| (snapshot, vector))
            .ok_or_else(|| LlmErrorKind::InvalidResponse(crate::llm::InvalidResponse::NoChoices).into())
    }

    /// The same documents with their vectors; cached vectors of removed passages are dropped.
    fn with_vectors(&self, snapshot: &IndexSnapshot) -> IndexSnapshot {
        let mut cached = lock(&self.vectors);
        let present: HashSet<&Arc<str>> = snapshot.search_texts.iter().collect();
        cached.retain(|text, _| present.contains(text));
        let vectors: Vec<Embedding> =
            snapshot.search_texts.iter().filter_map(|text| cached.get(text).cloned()).collect();
        IndexSnapshot {
            fingerprint: snapshot.fingerprint.clone(),
            hash: snapshot.hash,
            passages: snapshot.passages.clone(),
            search_texts: snapshot.search_texts.clone(),
            index: snapshot.index.clone().with_vectors(vectors),
            skipped: snapshot.skipped.clone(),
        }
    }
}

/// Reads the documents if they changed since `before`. Blocks on the file system.
fn load_if_changed(folder: &Folder, before: Option<Arc<IndexSnapshot>>) -> Result<Arc<IndexSnapshot>, KnowledgeError> {
    let fingerprint = folder.fingerprint()?;
    if let Some(before) = before.as_ref().filter(|before| before.fingerprint == fingerprint) {
        return Ok(before.clone());
    }
    let loaded = folder.read(&fingerprint);
    if let Some(same) = before.filter(|before| before.hash == loaded.hash) {
        // Only modification times changed. The new fingerprint saves the next search from loaded again.
        return Ok(Arc::new(IndexSnapshot { fingerprint, ..(*same).clone() }));
    }
    let search_texts: Vec<Arc<str>> = loaded.passages.iter().map(|passage| passage.search_text().into()).collect();
    let index = HybridIndex::new(search_texts.iter().map(|text| &**text));
    let (passages, hash, skipped) = (loaded.passages, loaded.hash, loaded.skipped);
    for document in &skipped {
        tracing::warn!(code = "U0504", "a document is skipped: {document}");
    }
    Ok(Arc::new(IndexSnapshot { fingerprint, hash, passages, search_texts, index, skipped }))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
