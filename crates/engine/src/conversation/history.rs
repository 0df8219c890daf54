//! The latest messages of a conversation, for prompts and displays. Bounded, and made of shared texts, so that a copy
//! is cheap.

use std::{collections::VecDeque, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::{BotKind, BotMessage};
use crate::{ids::AgentName, limits, time::Timestamp};

/// One entry of the history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HistoryItem {
    /// A user message.
    User {
        /// The text.
        text: Arc<str>,
        /// Time of the message.
        at: Timestamp,
    },
    /// A bot message.
    Bot {
        /// The text, followed by button titles.
        text: Arc<str>,
        /// Time of the message.
        at: Timestamp,
        /// The agent that sent it.
        agent: Option<AgentName>,
        /// The purpose of the message.
        kind: BotKind,
        /// Whether the text is also part of the agent exchange that follows.
        in_exchange: bool,
    },
    /// Tool calls and results of an agent.
    Exchanges {
        /// The agent.
        agent: AgentName,
        /// The messages in the format of a chat completions API.
        messages: Arc<Vec<Json>>,
    },
    /// A crash interrupted a reply; how much of it was delivered is not known.
    Interrupted,
    /// An agent's task started or ended.
    #[serde(rename = "mark")]
    AgentTask {
        /// The agent.
        agent: AgentName,
        /// Whether it started; otherwise it ended.
        start: bool,
    },
}

/// The latest entries, oldest first; at most [`limits::HISTORY_ITEMS`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct History(VecDeque<HistoryItem>);

impl History {
    /// The entries, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &HistoryItem> + ExactSizeIterator {
        self.0.iter()
    }
    /// The number of entries.
    pub fn len(&self) -> usize {
        self.0.len()
    }
    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    pub(super) fn user(&mut self, text: &Arc<str>, at: Timestamp) {
        self.push(HistoryItem::User { text: text.clone(), at });
    }
    /// Adds a bot message; false when it has no text and is not kept.
    pub(super) fn bot(&mut self, bot: &BotMessage, at: Timestamp) -> bool {
        let Some(text) = &bot.reply.text else { return false };
        let text = if bot.reply.buttons.is_empty() {
            text.clone()
        } else {
            let titles: Vec<&str> = bot.reply.buttons.iter().map(|button| &*button.title).collect();
            format!("{text} [{}]", titles.join(" | ")).into()
        };
        self.push(HistoryItem::Bot {
            text,
            at,
            agent: bot.agent.clone(),
            kind: bot.kind,
            in_exchange: bot.in_exchange,
        });
        true
    }
    pub(super) fn exchanges(&mut self, agent: &AgentName, messages: &Arc<Vec<Json>>) {
        self.push(HistoryItem::Exchanges { agent: agent.clone(), messages: messages.clone() });
    }
    pub(super) fn interrupted(&mut self) {
        self.push(HistoryItem::Interrupted);
    }
    pub(super) fn agent_task(&mut self, agent: &AgentName, start: bool) {
        self.push(HistoryItem::AgentTask { agent: agent.clone(), start });
    }
    /// Removes the newest entries.
    pub(super) fn remove_newest(&mut self, newest: usize) {
        self.0.truncate(self.0.len().saturating_sub(newest));
    }
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
    fn push(&mut self, item: HistoryItem) {
        if self.0.len() >= limits::HISTORY_ITEMS {
            self.0.pop_front();
        }
        self.0.push_back(item);
    }
}
