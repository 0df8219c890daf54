//! Cache breakpoints (`cache_control`): the blocks up to which Anthropic caches the prompt.
//!
//! The prompt is cached in the order tools, system prompt, messages, for five minutes or an hour. Writing to the cache costs more
//! than uncached input, so breakpoints are set only after content that the next request repeats: tools and system prompt always;
//! in a loop with tools also the history before the newest user message, and the newest tool results.
//! Source: <https://docs.anthropic.com/en/docs/build-with-claude/prompt-caching>.

use std::sync::Arc;

use serde_json::{Value, json};

use super::blocks::ApiMessage;
use crate::{ModelConfig, message::ChatMessage};

/// The value of `cache_control` for a model entry; `None` disables prompt caching.
pub(super) struct CacheControl(Option<Value>);

impl CacheControl {
    /// Reads `prompt_cache`: `true` (the default), `false`, or `1h`.
    pub(super) fn from_config(config: &ModelConfig) -> Result<Self, (&'static str, String)> {
        let value = match config.extra.get("prompt_cache") {
            None | Some(Value::Bool(true)) => Some(json!({"type": "ephemeral"})),
            Some(Value::Bool(false)) => None,
            Some(Value::String(text)) if text == "5m" => Some(json!({"type": "ephemeral"})),
            Some(Value::String(text)) if text == "1h" => Some(json!({"type": "ephemeral", "ttl": "1h"})),
            Some(_) => return Err(("prompt_cache", "expected `true`, `false`, `5m` or `1h`".into())),
        };
        Ok(Self(value))
    }

    /// A breakpoint, while some are left.
    pub(super) fn breakpoint(&self, left: &mut usize) -> Option<&Value> {
        let value = self.0.as_ref()?;
        *left = left.checked_sub(1)?;
        Some(value)
    }
}

/// Adds breakpoints to the messages of a loop with tools.
pub(super) fn add_cache_breakpoints<'a>(
    api_messages: &mut [ApiMessage<'a>],
    messages: &[Arc<ChatMessage>],
    in_loop: bool,
    cache: &'a CacheControl,
    left: &mut usize,
) {
    if !in_loop {
        return;
    }
    let stable = stable_messages(messages);
    if let Some(at) = api_messages.iter().rposition(|message| message.messages_covered <= stable)
        && stable > 0
    {
        add_breakpoint(api_messages.get_mut(at), cache, left);
    }
    if messages.last().is_some_and(|message| matches!(**message, ChatMessage::Tool { .. })) {
        add_breakpoint(api_messages.last_mut(), cache, left);
    }
}

/// The number of messages before the newest user message and the system messages right before it, which change with every turn.
fn stable_messages(messages: &[Arc<ChatMessage>]) -> usize {
    let newest = messages.iter().rposition(|message| matches!(**message, ChatMessage::User { .. })).unwrap_or(0);
    let before = messages.get(..newest).unwrap_or_default();
    before.iter().rposition(|message| !matches!(**message, ChatMessage::System { .. })).map_or(0, |at| at + 1)
}

fn add_breakpoint<'a>(message: Option<&mut ApiMessage<'a>>, cache: &'a CacheControl, left: &mut usize) {
    if let Some(block) = message.and_then(|message| message.content.last_mut())
        && block.cache_control.is_none()
    {
        block.cache_control = cache.breakpoint(left);
    }
}
