//! A scripted embedding model without a network: texts are close when they share words or words that the script lists as synonyms.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;
use segue_base::context::CallContext;
use serde::{Deserialize, de::IgnoredAny};

use super::{Embedder, Embedding, normalise};
use crate::{LlmError, LlmErrorKind};

/// Dimensions of a scripted vector.
const DIMENSIONS: usize = 512;

/// An embedding model that follows a script: each word is one dimension, and words that the script lists together share one.
/// The same text always gets the same vector.
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

/// One file may have the rules of a scripted chat model and `same`, so the keys of the other are ignored.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Script {
    #[serde(default)]
    same: Vec<Vec<String>>,
    #[serde(default, rename = "about")]
    _about: IgnoredAny,
    #[serde(default, rename = "tables")]
    _tables: IgnoredAny,
    #[serde(default, rename = "read")]
    _read: IgnoredAny,
    #[serde(default, rename = "data")]
    _data: IgnoredAny,
    #[serde(default, rename = "let")]
    _names: IgnoredAny,
    #[serde(default, rename = "pace")]
    _pace: IgnoredAny,
    #[serde(default, rename = "mischief")]
    _mischief: IgnoredAny,
    #[serde(default, rename = "rules")]
    _rules: IgnoredAny,
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

    /// A model whose every call fails with `failure`.
    pub fn failing(failure: LlmErrorKind) -> Self {
        Self { failure: Some(failure), ..Self::default() }
    }

    /// The number of calls.
    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    /// The number of texts over all calls.
    pub fn texts(&self) -> usize {
        self.texts.load(Ordering::SeqCst)
    }

    /// Bytes of the longest text of all calls.
    pub fn longest(&self) -> usize {
        self.longest.load(Ordering::SeqCst)
    }

    fn vector(&self, text: &str) -> Embedding {
        let mut vector = vec![0.0_f32; DIMENSIONS];
        for word in text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()) {
            let word = word.to_lowercase();
            let word = self.same.get(&word).unwrap_or(&word);
            // FNV-1a (<http://www.isthe.com/chongo/tech/comp/fnv/>): the same on every machine.
            let hash =
                word.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
            if let Some(number) = vector.get_mut((hash % DIMENSIONS as u64) as usize) {
                *number += 1.0;
            }
        }
        normalise(vector).unwrap_or_else(|| vec![0.0; DIMENSIONS].into())
    }
}

#[async_trait]
impl Embedder for ScriptedEmbedder {
    fn model(&self) -> &str {
        "scripted"
    }

    async fn embed(&self, texts: &[Arc<str>], cx: &CallContext) -> Result<Vec<Embedding>, LlmError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.texts.fetch_add(texts.len(), Ordering::SeqCst);
        self.longest.fetch_max(texts.iter().map(|text| text.len()).max().unwrap_or(0), Ordering::SeqCst);
        match &self.failure {
            _ if cx.cancel.is_cancelled() => Err(LlmErrorKind::Cancelled.into()),
            Some(kind) => Err(kind.clone().into()),
            None => Ok(texts.iter().map(|text| self.vector(text)).collect()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn similarity(a: &Embedding, b: &Embedding) -> f32 {
        a.iter().zip(b.iter()).map(|(a, b)| a * b).sum()
    }

    #[test]
    fn synonyms_are_similar() {
        let model = ScriptedEmbedder::from_text("s.yml", "same: [[refund, reimbursement]]").unwrap();
        let [first, second, other] = ["my refund", "Reimbursement", "luggage"].map(|text| model.vector(text));
        assert!(similarity(&first, &second) > 0.6 && similarity(&second, &other) < 0.1);
        assert!(ScriptedEmbedder::from_text("s.yml", "sames: []").unwrap_err().starts_with("s.yml: "));
    }
}
