//! Collects what a model thinks while it answers, so that it can be given back with the results of its calls.

use std::sync::Arc;

use segue_base::limits;
use serde_json::json;

use crate::message::{ReasoningBlock, ReasoningBlocks};

/// The thoughts of one answer so far.
pub(super) struct Thinking {
    model: Arc<str>,
    blocks: Vec<Partial>,
    /// Bytes of all of them; over [`limits::MODEL_REASONING`] they are given up, which costs quality and not the answer.
    bytes: usize,
    has_text: bool,
    calls: usize,
}

struct Partial {
    index: u64,
    after: usize,
    text: String,
    signature: String,
    /// Thoughts that the vendor sealed.
    sealed: Option<String>,
}

impl Thinking {
    /// Nothing yet.
    pub(super) fn of(model: Arc<str>) -> Self {
        Self { model, blocks: Vec::new(), bytes: 0, has_text: false, calls: 0 }
    }

    /// Text came.
    pub(super) fn said(&mut self) {
        self.has_text = true;
    }

    /// A call began.
    pub(super) fn called(&mut self) {
        self.calls += 1;
    }

    /// A thought begins.
    pub(super) fn begin(&mut self, index: u64, text: String, signature: String, sealed: Option<String>) {
        let after = usize::from(self.has_text) + self.calls;
        if self.fits(text.len() + signature.len() + sealed.as_ref().map_or(0, String::len)) {
            self.blocks.push(Partial { index, after, text, signature, sealed });
        }
    }

    /// A thought goes on.
    pub(super) fn more(&mut self, index: u64, text: &str, signature: &str) {
        if self.fits(text.len() + signature.len())
            && let Some(block) = self.blocks.iter_mut().rfind(|block| block.index == index)
        {
            block.text.push_str(text);
            block.signature.push_str(signature);
        }
    }

    fn fits(&mut self, more: usize) -> bool {
        self.bytes = self.bytes.saturating_add(more);
        let fits = self.bytes <= limits::MODEL_REASONING;
        if !fits {
            self.blocks.clear();
        }
        fits
    }

    /// What is to be given back. Thoughts without the vendor's signature are refused by it, and left out.
    pub(super) fn done(&mut self) -> Option<Arc<ReasoningBlocks>> {
        let blocks: Vec<ReasoningBlock> = std::mem::take(&mut self.blocks)
            .into_iter()
            .filter_map(|block| {
                let value = match block.sealed {
                    Some(data) => json!({"type": "redacted_thinking", "data": data}),
                    None if block.signature.is_empty() => return None,
                    None => json!({"type": "thinking", "thinking": block.text, "signature": block.signature}),
                };
                Some(ReasoningBlock { after: block.after, block: Arc::new(value) })
            })
            .collect();
        (!blocks.is_empty()).then(|| Arc::new(ReasoningBlocks { model: self.model.clone(), blocks }))
    }
}
