//! Which blocks are marked for the vendor's prompt cache: the end of what the next request will begin with.
//!
//! The vendor reads a request as tools, then instructions, then messages, and keeps what stands before a mark for five minutes or
//! an hour. Writing to the cache costs more than reading once, so only what comes again is marked: the tools and the
//! instructions always; in a loop with tools also the history before the newest message, and the newest results.

use std::sync::Arc;

use serde_json::{Value, json};

use super::blocks::Turn;
use crate::{ModelConfig, message::ChatMessage};

/// How an entry wants its prompts kept.
pub(super) struct Caching(Option<Value>);

impl Caching {
    /// Reads `prompt_cache`: `true` (the default), `false`, or `1h`.
    pub(super) fn of(config: &ModelConfig) -> Result<Self, (&'static str, String)> {
        let mark = match config.extra.get("prompt_cache") {
            None | Some(Value::Bool(true)) => Some(json!({"type": "ephemeral"})),
            Some(Value::Bool(false)) => None,
            Some(Value::String(text)) if text == "5m" => Some(json!({"type": "ephemeral"})),
            Some(Value::String(text)) if text == "1h" => Some(json!({"type": "ephemeral", "ttl": "1h"})),
            Some(_) => return Err(("prompt_cache", "expected `true`, `false`, `5m` or `1h`".into())),
        };
        Ok(Self(mark))
    }

    /// A mark, while some are left.
    pub(super) fn mark(&self, left: &mut usize) -> Option<&Value> {
        let mark = self.0.as_ref()?;
        *left = left.checked_sub(1)?;
        Some(mark)
    }
}

/// Marks messages of a loop with tools.
pub(super) fn mark_messages<'a>(
    turns: &mut [Turn<'a>],
    messages: &[Arc<ChatMessage>],
    in_loop: bool,
    caching: &'a Caching,
    left: &mut usize,
) {
    if !in_loop {
        return;
    }
    let stable = stable(messages);
    if let Some(at) = turns.iter().rposition(|turn| turn.upto <= stable)
        && stable > 0
    {
        mark_last(turns.get_mut(at), caching, left);
    }
    if messages.last().is_some_and(|message| matches!(**message, ChatMessage::Tool { .. })) {
        mark_last(turns.last_mut(), caching, left);
    }
}

/// How many messages stand before the newest message of the user and the notes right before it, which are new at every turn.
fn stable(messages: &[Arc<ChatMessage>]) -> usize {
    let newest = messages.iter().rposition(|message| matches!(**message, ChatMessage::User { .. })).unwrap_or(0);
    let before = messages.get(..newest).unwrap_or_default();
    before.iter().rposition(|message| !matches!(**message, ChatMessage::System { .. })).map_or(0, |at| at + 1)
}

fn mark_last<'a>(turn: Option<&mut Turn<'a>>, caching: &'a Caching, left: &mut usize) {
    if let Some(block) = turn.and_then(|turn| turn.content.last_mut())
        && block.cache_control.is_none()
    {
        block.cache_control = caching.mark(left);
    }
}
