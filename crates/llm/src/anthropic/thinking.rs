//! Collects what a model thinks while it answers, so that it can be sent back with the tool results.

use std::sync::Arc;

use segue_base::limits;
use serde_json::json;

use crate::message::{ReasoningBlock, ReasoningBlocks};

/// The reasoning of one response so far.
pub(super) struct ThinkingCollector {
    model: Arc<str>,
    blocks: Vec<PartialBlock>,
    /// Bytes of all blocks. Above [`limits::MODEL_REASONING`] all reasoning is dropped; the response stays valid.
    bytes: usize,
    has_text: bool,
    calls: usize,
}

struct PartialBlock {
    index: u64,
    after: usize,
    text: String,
    signature: String,
    /// The data of a `redacted_thinking` block, which the provider has encrypted.
    redacted: Option<String>,
}

impl ThinkingCollector {
    /// A collector for a response of `model`.
    pub(super) fn new(model: Arc<str>) -> Self {
        Self { model, blocks: Vec::new(), bytes: 0, has_text: false, calls: 0 }
    }

    /// A text block began.
    pub(super) fn text_started(&mut self) {
        self.has_text = true;
    }

    /// A tool call began.
    pub(super) fn call_started(&mut self) {
        self.calls += 1;
    }

    /// A reasoning block begins.
    pub(super) fn begin(&mut self, index: u64, text: String, signature: String, redacted: Option<String>) {
        let after = usize::from(self.has_text) + self.calls;
        if self.fits(text.len() + signature.len() + redacted.as_ref().map_or(0, String::len)) {
            self.blocks.push(PartialBlock { index, after, text, signature, redacted });
        }
    }

    /// Adds to a reasoning block.
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

    /// The blocks to send back. Blocks without a signature are omitted, because the API rejects them.
    pub(super) fn finish(&mut self) -> Option<Arc<ReasoningBlocks>> {
        let blocks: Vec<ReasoningBlock> = std::mem::take(&mut self.blocks)
            .into_iter()
            .filter_map(|block| {
                let value = match block.redacted {
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
