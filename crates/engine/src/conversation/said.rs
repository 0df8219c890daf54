//! What was said since the latest messages of the user, whole: the history keeps texts only.

use serde::{Deserialize, Serialize};

use super::{BotKind, BotMessage, Reply};
use crate::limits;

/// The replies since the newest message of the user, and those between it and the message before.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Said {
    /// Since the newest message.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    now: Vec<Reply>,
    /// Between the message before and the newest one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    before: Vec<Reply>,
}

impl Said {
    /// Whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.now.is_empty() && self.before.is_empty()
    }
    /// What the user saw when they wrote the newest message; oldest first.
    pub fn before(&self) -> &[Reply] {
        &self.before
    }
    pub(super) fn bot(&mut self, bot: &BotMessage) {
        // What an agent says while it works answers nothing.
        if bot.kind == BotKind::Filler || bot.reply.is_empty() {
            return;
        }
        if self.now.len() >= limits::SAID_REPLIES {
            self.now.remove(0);
        }
        self.now.push(bot.reply.clone());
    }
    pub(super) fn user(&mut self) {
        self.before = std::mem::take(&mut self.now);
    }
    /// The newest message is taken back.
    pub(super) fn rewind(&mut self) {
        self.now = std::mem::take(&mut self.before);
    }
}
