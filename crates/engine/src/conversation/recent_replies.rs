//! The complete replies since the last two user messages. The history keeps only texts; these also have buttons.

use serde::{Deserialize, Serialize};

use super::{BotKind, BotMessage, Reply};
use crate::limits;

/// The replies after the newest user message, and those between it and the previous one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RecentReplies {
    /// Replies since the newest user message.
    #[serde(default, rename = "now", skip_serializing_if = "Vec::is_empty")]
    current: Vec<Reply>,
    /// Replies between the previous and the newest user message.
    #[serde(default, rename = "before", skip_serializing_if = "Vec::is_empty")]
    previous: Vec<Reply>,
}

impl RecentReplies {
    /// Whether there are no replies.
    pub fn is_empty(&self) -> bool {
        self.current.is_empty() && self.previous.is_empty()
    }
    /// The replies that the newest user message answers; oldest first.
    pub fn before_message(&self) -> &[Reply] {
        &self.previous
    }
    pub(super) fn bot(&mut self, bot: &BotMessage) {
        // A filler of a working agent is not part of the answer.
        if bot.kind == BotKind::Filler || bot.reply.is_empty() {
            return;
        }
        if self.current.len() >= limits::RECENT_REPLIES {
            self.current.remove(0);
        }
        self.current.push(bot.reply.clone());
    }
    pub(super) fn user(&mut self) {
        self.previous = std::mem::take(&mut self.current);
    }
    /// Undoes the newest user message.
    pub(super) fn rewind(&mut self) {
        self.current = std::mem::take(&mut self.previous);
    }
}
