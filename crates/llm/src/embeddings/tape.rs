//! Recorded vectors: made once with a real model, given back for ever without a network.
//!
//! A tape is a file of JSON lines, one text each: `{"model", "text", "vector"}`.

use std::{
    collections::HashMap,
    io::Write,
    sync::{Arc, Mutex, PoisonError},
};

use futures::future::BoxFuture;
use segue_base::context::CallContext;
use serde::{Deserialize, Serialize};

use super::{Embedder, Embedding, unit};
use crate::{LlmError, LlmErrorKind, cassette::CassetteError};

#[derive(Serialize, Deserialize)]
struct Line {
    model: Arc<str>,
    text: Arc<str>,
    vector: Vec<f32>,
}

/// Answers from a tape; a text that is not on it fails the call.
pub struct CassetteEmbedder {
    model: Arc<str>,
    vectors: HashMap<Arc<str>, Embedding>,
}

impl CassetteEmbedder {
    /// Reads a tape.
    ///
    /// # Errors
    /// [`CassetteError`] for the first line that holds no vector.
    pub fn new(tape: &str) -> Result<Self, CassetteError> {
        let mut found = Self { model: "cassette".into(), vectors: HashMap::new() };
        for (at, line) in tape.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let bad = |problem: String| CassetteError { line: at + 1, problem };
            let line: Line = serde_json::from_str(line).map_err(|error| bad(error.to_string()))?;
            let vector = unit(line.vector).ok_or_else(|| bad("the vector holds numbers that are none".to_owned()))?;
            found.model = line.model;
            found.vectors.insert(line.text, vector);
        }
        Ok(found)
    }
}

impl Embedder for CassetteEmbedder {
    fn model(&self) -> &str {
        &self.model
    }

    fn embed<'a>(
        &'a self,
        texts: &'a [Arc<str>],
        _: &'a CallContext,
    ) -> BoxFuture<'a, Result<Vec<Embedding>, LlmError>> {
        let vectors = texts.iter().map(|text| {
            let known = self.vectors.get(text).cloned();
            known
                .ok_or_else(|| LlmError::new(LlmErrorKind::Unscripted).because(format_args!("not on the tape: {text}")))
        });
        Box::pin(std::future::ready(vectors.collect()))
    }
}

/// Records what passes through it, one line for each text.
pub struct TapeRecorder {
    inner: Arc<dyn Embedder>,
    out: Mutex<Box<dyn Write + Send>>,
}

impl TapeRecorder {
    /// Records the vectors of `inner` into `out`: a file, or a buffer.
    pub fn new(inner: Arc<dyn Embedder>, out: impl Write + Send + 'static) -> Self {
        Self { inner, out: Mutex::new(Box::new(out)) }
    }

    /// A line that cannot be written is told in the log; the call goes on.
    fn write(&self, text: &Arc<str>, vector: &Embedding) {
        let line = Line { model: self.inner.model().into(), text: text.clone(), vector: vector.to_vec() };
        let written = serde_json::to_string(&line).map_err(std::io::Error::from).and_then(|line| {
            let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
            writeln!(out, "{line}")
        });
        if let Err(error) = written {
            tracing::error!(%error, "a vector could not be recorded");
        }
    }
}

impl Embedder for TapeRecorder {
    fn model(&self) -> &str {
        self.inner.model()
    }

    fn embed<'a>(
        &'a self,
        texts: &'a [Arc<str>],
        cx: &'a CallContext,
    ) -> BoxFuture<'a, Result<Vec<Embedding>, LlmError>> {
        Box::pin(async move {
            let vectors = self.inner.embed(texts, cx).await?;
            texts.iter().zip(&vectors).for_each(|(text, vector)| self.write(text, vector));
            Ok(vectors)
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use segue_base::manual_clock::ManualClock;
    use std::{sync::mpsc, time::Duration};

    use super::*;
    use crate::embeddings::ScriptedEmbedder;

    struct Sent(mpsc::Sender<Vec<u8>>);

    impl Write for Sent {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.send(bytes.to_vec()).map_err(std::io::Error::other)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn what_was_recorded_comes_back_and_nothing_else() {
        let (sender, tape) = mpsc::channel();
        let recorder = TapeRecorder::new(Arc::new(ScriptedEmbedder::default()), Sent(sender));
        let cx = ManualClock::new().context(Duration::from_secs(60));
        let texts: Vec<Arc<str>> = vec!["a cat".into(), "a dog".into()];
        let live = recorder.embed(&texts, &cx).await.unwrap();
        drop(recorder);
        let replayed = CassetteEmbedder::new(&String::from_utf8(tape.iter().flatten().collect()).unwrap()).unwrap();
        assert_eq!(replayed.model(), "scripted");
        let again = replayed.embed(&texts, &cx).await.unwrap();
        let same = |(a, b): (&Embedding, &Embedding)| a.iter().zip(b.iter()).all(|(a, b)| (a - b).abs() < 1e-6);
        assert!(live.iter().zip(&again).all(same));
        let strange: Vec<Arc<str>> = vec!["a bird".into()];
        assert_eq!(replayed.embed(&strange, &cx).await.unwrap_err().kind, LlmErrorKind::Unscripted);
        assert_eq!(CassetteEmbedder::new("\n{}").err().unwrap().line, 2);
    }
}
