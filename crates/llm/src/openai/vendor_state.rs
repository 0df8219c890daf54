//! What a provider adds to a response and wants back with the results of its tool calls: reasoning, signatures, and other data that only
//! it can read. Providers differ in the names; the values are sent back as they came.
//!
//! | provider | field |
//! | --- | --- |
//! | DeepSeek, Moonshot, vLLM and others | `reasoning_content` or `reasoning` of the message: <https://api-docs.deepseek.com/guides/thinking_mode> |
//! | OpenRouter | `reasoning_details`: <https://openrouter.ai/docs/use-cases/reasoning-tokens> |
//! | Gemini | `extra_content` of a call: <https://ai.google.dev/gemini-api/docs/thought-signatures> |
//! | Mistral | parts of the type `thinking` in `content`: <https://docs.mistral.ai/capabilities/reasoning> |

use std::sync::Arc;

use segue_base::limits;
use serde_json::{Map, Value};

use crate::message::{ReasoningBlock, ReasoningBlocks};

/// The key of the state of a message in a block, and of the state of a call.
const MESSAGE: &str = "message";
const CALL: &str = "call";
/// The parts of `content` that are no text.
pub(super) const CONTENT: &str = "content";
/// Keys whose texts come in parts. Other values come as a whole, and the last one counts.
const GROWING: [&str; 7] = ["reasoning_content", "reasoning", "reasoning_text", "text", "thinking", "summary", "data"];

/// Whether a key of a call belongs to the provider and is sent back.
pub(super) fn is_state(key: &str) -> bool {
    ["reasoning", "thinking", "thought"].iter().any(|prefix| key.starts_with(prefix))
        || ["extra_content", "provider_specific_fields", "signature"].contains(&key)
}

/// Collects the state of one response.
#[derive(Default)]
pub(super) struct VendorState {
    model: Arc<str>,
    message: Map<String, Value>,
    /// Bytes of all values. Above [`limits::MODEL_REASONING`] all are dropped; the response stays valid.
    bytes: usize,
}

impl VendorState {
    /// For a response of a model, as its entry names it.
    pub(super) fn new(model: Arc<str>) -> Self {
        Self { model, ..Self::default() }
    }

    /// Adds a value of the message.
    pub(super) fn add(&mut self, key: &str, value: Value) {
        self.bytes = self.bytes.saturating_add(size(&value));
        if self.bytes > limits::MODEL_REASONING {
            self.message.clear();
        } else {
            merge_key(&mut self.message, key, value);
        }
    }

    /// The state of the response, to send back. `calls`: that of its calls, with their positions; `has_text`: whether they follow a text.
    pub(super) fn finish(&mut self, calls: Vec<(usize, Value)>, has_text: bool) -> Option<Arc<ReasoningBlocks>> {
        let mut message = std::mem::take(&mut self.message);
        if message.contains_key("reasoning_details") {
            // It says the same in a form that can be checked.
            message.remove("reasoning");
        }
        let of_calls: usize = calls.iter().map(|(_, state)| size(state)).sum();
        if self.bytes.saturating_add(of_calls) > limits::MODEL_REASONING {
            return None;
        }
        let block = |after, key: &str, state| {
            let block = Value::Object(Map::from_iter([(key.to_owned(), state)]));
            ReasoningBlock { after, block: Arc::new(block) }
        };
        let of_message = (!message.is_empty()).then(|| block(0, MESSAGE, Value::Object(message)));
        let of_calls = calls.into_iter().map(|(at, state)| block(usize::from(has_text) + at, CALL, state));
        let blocks: Vec<ReasoningBlock> = of_message.into_iter().chain(of_calls).collect();
        (!blocks.is_empty()).then(|| Arc::new(ReasoningBlocks { model: self.model.clone(), blocks }))
    }
}

/// The state of a message.
pub(super) fn of_message(reasoning: &ReasoningBlocks) -> Option<&Map<String, Value>> {
    reasoning.blocks.iter().find_map(|block| block.block.get(MESSAGE)?.as_object())
}

/// The state of the call at this position; `has_text`: whether the message has a text.
pub(super) fn of_call(reasoning: &ReasoningBlocks, at: usize, has_text: bool) -> Option<&Map<String, Value>> {
    let after = usize::from(has_text) + at;
    reasoning.blocks.iter().filter(|block| block.after == after).find_map(|block| block.block.get(CALL)?.as_object())
}

/// Merges an increment of a value.
fn merge_key(into: &mut Map<String, Value>, key: &str, value: Value) {
    match (into.get_mut(key), value) {
        (_, Value::Null) => {}
        (Some(Value::String(text)), Value::String(more)) if GROWING.contains(&key) => text.push_str(&more),
        (Some(Value::Array(items)), Value::Array(more)) => more.into_iter().for_each(|item| merge_item(items, item)),
        (Some(Value::Object(map)), Value::Object(more)) => {
            more.into_iter().for_each(|(key, value)| merge_key(map, &key, value));
        }
        (_, value) => {
            into.insert(key.to_owned(), value);
        }
    }
}

/// Adds an element to a list, or continues the last one: an element with the same index, or of the same kind if it has none.
fn merge_item(items: &mut Vec<Value>, item: Value) {
    let same = |last: &Map<String, Value>, next: &Map<String, Value>| {
        ["type", "index", "id", "format"].iter().all(|key| match (last.get(*key), next.get(*key)) {
            (Some(last), Some(next)) => last == next,
            // Later increments leave out what the first one has said.
            (_, None) => true,
            (None, Some(_)) => false,
        })
    };
    // What is signed or encrypted is complete.
    let is_open = |last: &Map<String, Value>| !last.contains_key("signature") && !last.contains_key("data");
    match (items.last_mut(), item) {
        (Some(Value::Object(last)), Value::Object(next)) if is_open(last) && same(last, &next) => {
            next.into_iter().for_each(|(key, value)| merge_key(last, &key, value));
        }
        (_, item) => items.push(item),
    }
}

fn size(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(size).sum(),
        Value::Object(map) => map.iter().map(|(key, value)| key.len() + size(value)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
    }
}
