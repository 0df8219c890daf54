//! Embeddings without a network: texts are near one another when they share words, or words that a script calls the same.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures::future::BoxFuture;
use segue_base::context::CallContext;
use serde::Deserialize;

use super::{Embedder, Embedding, unit};
use crate::{LlmError, LlmErrorKind};

/// Numbers in a scripted vector.
const DIMENSIONS: usize = 512;

/// An embedding model that answers by rule: each word is a direction of its own, and words that the script lists together
/// share one. The same text always gets the same vector.
///
/// A script is YAML: `same: [[refund, reimbursement], [cat, kitten]]`.
#[derive(Debug, Default)]
pub struct ScriptedEmbedder {
    same: HashMap<String, String>,
    failure: Option<LlmErrorKind>,
    calls: AtomicUsize,
    texts: AtomicUsize,
    longest: AtomicUsize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Script {
    #[serde(default)]
    same: Vec<Vec<String>>,
}

impl ScriptedEmbedder {
    /// A model for a script; `name` is for messages.
    ///
    /// # Errors
    /// What is wrong in the script.
    pub fn from_text(name: &str, text: &str) -> Result<Self, String> {
        let script: Script = serde_yaml::from_str(text).map_err(|error| format!("{name}: {error}"))?;
        let mut same = HashMap::new();
        for list in script.same {
            let Some(first) = list.first().map(|word| word.to_lowercase()) else { continue };
            same.extend(list.into_iter().map(|word| (word.to_lowercase(), first.clone())));
        }
        Ok(Self { same, ..Self::default() })
    }

    /// A model that always fails so.
    pub fn failing(failure: LlmErrorKind) -> Self {
        Self { failure: Some(failure), ..Self::default() }
    }

    /// How often it was asked.
    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    /// How many texts it was asked for, over all calls.
    pub fn texts(&self) -> usize {
        self.texts.load(Ordering::SeqCst)
    }

    /// Bytes of the longest text it was asked for.
    pub fn longest(&self) -> usize {
        self.longest.load(Ordering::SeqCst)
    }

    fn vector(&self, text: &str) -> Embedding {
        let mut vector = vec![0.0_f32; DIMENSIONS];
        for word in text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()) {
            let word = word.to_lowercase();
            let word = self.same.get(&word).unwrap_or(&word);
            // FNV-1a: the same on every machine.
            let hash =
                word.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
            if let Some(number) = vector.get_mut((hash % DIMENSIONS as u64) as usize) {
                *number += 1.0;
            }
        }
        unit(vector).unwrap_or_else(|| vec![0.0; DIMENSIONS].into())
    }
}

impl Embedder for ScriptedEmbedder {
    fn model(&self) -> &str {
        "scripted"
    }

    fn embed<'a>(
        &'a self,
        texts: &'a [Arc<str>],
        cx: &'a CallContext,
    ) -> BoxFuture<'a, Result<Vec<Embedding>, LlmError>> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.texts.fetch_add(texts.len(), Ordering::SeqCst);
        self.longest.fetch_max(texts.iter().map(|text| text.len()).max().unwrap_or(0), Ordering::SeqCst);
        let answer = match &self.failure {
            _ if cx.cancel.is_cancelled() => Err(LlmErrorKind::Cancelled.into()),
            Some(kind) => Err(kind.clone().into()),
            None => Ok(texts.iter().map(|text| self.vector(text)).collect()),
        };
        Box::pin(std::future::ready(answer))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn near(a: &Embedding, b: &Embedding) -> f32 {
        a.iter().zip(b.iter()).map(|(a, b)| a * b).sum()
    }

    #[test]
    fn words_that_mean_the_same_are_near() {
        let model = ScriptedEmbedder::from_text("s.yml", "same: [[refund, reimbursement]]").unwrap();
        let [asked, said, other] = ["my refund", "Reimbursement", "luggage"].map(|text| model.vector(text));
        assert!(near(&asked, &said) > 0.6 && near(&said, &other) < 0.1);
        assert!(ScriptedEmbedder::from_text("s.yml", "sames: []").unwrap_err().starts_with("s.yml: "));
    }
}
