//! Cassettes of embeddings: recorded vectors, replayed without a network.
//!
//! A cassette is a file of JSON lines, one text per line: `{"model", "text", "vector"}`.

use std::{
    collections::HashMap,
    io::Write,
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use segue_base::context::CallContext;
use serde::{Deserialize, Serialize};

use super::{Embedder, Embedding, normalise};
use crate::{LlmError, LlmErrorKind, cassette::CassetteError};

#[derive(Serialize, Deserialize)]
struct RecordedVector {
    model: Arc<str>,
    text: Arc<str>,
    vector: Vec<f32>,
}

/// An embedding model that replays a cassette. A text that is not in it fails the call.
pub struct CassetteEmbedder {
    model: Arc<str>,
    vectors: HashMap<Arc<str>, Embedding>,
}

impl CassetteEmbedder {
    /// Reads a cassette.
    ///
    /// # Errors
    /// [`CassetteError`] for the first line that is not a recorded vector.
    pub fn new(cassette: &str) -> Result<Self, CassetteError> {
        let mut embedder = Self { model: "cassette".into(), vectors: HashMap::new() };
        for (at, line) in cassette.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let bad = |problem: String| CassetteError { line: at + 1, problem };
            let line: RecordedVector = serde_json::from_str(line).map_err(|error| bad(error.to_string()))?;
            let vector = normalise(line.vector).ok_or_else(|| bad("the vector contains NaN or infinity".to_owned()))?;
            embedder.model = line.model;
            embedder.vectors.insert(line.text, vector);
        }
        Ok(embedder)
    }
}

#[async_trait]
impl Embedder for CassetteEmbedder {
    fn model(&self) -> &str {
        &self.model
    }

    async fn embed(&self, texts: &[Arc<str>], _: &CallContext) -> Result<Vec<Embedding>, LlmError> {
        let vectors = texts.iter().map(|text| {
            let vector = self.vectors.get(text).cloned();
            vector.ok_or_else(|| {
                LlmError::new(LlmErrorKind::NotInScript).with_detail(format_args!("not in the cassette: {text}"))
            })
        });
        vectors.collect()
    }
}

/// An embedding model that records the vectors of another one, one line per text.
pub struct EmbeddingRecorder {
    inner: Arc<dyn Embedder>,
    out: Mutex<Box<dyn Write + Send>>,
}

impl EmbeddingRecorder {
    /// Records the vectors of `inner` into `out`: a file, or a buffer.
    pub fn new(inner: Arc<dyn Embedder>, out: impl Write + Send + 'static) -> Self {
        Self { inner, out: Mutex::new(Box::new(out)) }
    }

    /// Writes one vector. A failed write is logged and does not fail the call.
    fn write(&self, text: &Arc<str>, vector: &Embedding) {
        let line = RecordedVector { model: self.inner.model().into(), text: text.clone(), vector: vector.to_vec() };
        let written = serde_json::to_string(&line).map_err(std::io::Error::from).and_then(|line| {
            let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
            writeln!(out, "{line}")
        });
        if let Err(error) = written {
            tracing::error!(%error, "a vector could not be recorded");
        }
    }
}

#[async_trait]
impl Embedder for EmbeddingRecorder {
    fn model(&self) -> &str {
        self.inner.model()
    }

    async fn embed(&self, texts: &[Arc<str>], cx: &CallContext) -> Result<Vec<Embedding>, LlmError> {
        let vectors = self.inner.embed(texts, cx).await?;
        texts.iter().zip(&vectors).for_each(|(text, vector)| self.write(text, vector));
        Ok(vectors)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use segue_base::manual_clock::ManualClock;
    use std::{sync::mpsc, time::Duration};

    use super::*;
    use crate::embeddings::ScriptedEmbedder;

    struct ChannelWriter(mpsc::Sender<Vec<u8>>);

    impl Write for ChannelWriter {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.send(bytes.to_vec()).map_err(std::io::Error::other)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn only_recorded_texts_are_replayed() {
        let (sender, receiver) = mpsc::channel();
        let recorder = EmbeddingRecorder::new(Arc::new(ScriptedEmbedder::default()), ChannelWriter(sender));
        let cx = ManualClock::new().context(Duration::from_secs(60));
        let texts: Vec<Arc<str>> = vec!["a cat".into(), "a dog".into()];
        let live = recorder.embed(&texts, &cx).await.unwrap();
        drop(recorder);
        let replayed = CassetteEmbedder::new(&String::from_utf8(receiver.iter().flatten().collect()).unwrap()).unwrap();
        assert_eq!(replayed.model(), "scripted");
        let again = replayed.embed(&texts, &cx).await.unwrap();
        let same = |(a, b): (&Embedding, &Embedding)| a.iter().zip(b.iter()).all(|(a, b)| (a - b).abs() < 1e-6);
        assert!(live.iter().zip(&again).all(same));
        let unknown: Vec<Arc<str>> = vec!["a bird".into()];
        assert_eq!(replayed.embed(&unknown, &cx).await.unwrap_err().kind, LlmErrorKind::NotInScript);
        assert_eq!(CassetteEmbedder::new("\n{}").err().unwrap().line, 2);
    }
}
