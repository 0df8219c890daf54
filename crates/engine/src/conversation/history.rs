//! The latest utterances, as prompts and people see them. Bounded, and made of shared texts: showing them copies nothing.

use std::{collections::VecDeque, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::{BotKind, BotMessage};
use crate::{ids::AgentName, limits, time::Timestamp};

/// One entry of the history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HistoryItem {
    /// The user wrote.
    User {
        /// The text.
        text: Arc<str>,
        /// When.
        at: Timestamp,
    },
    /// The assistant said.
    Bot {
        /// The text, with button titles.
        text: Arc<str>,
        /// When.
        at: Timestamp,
        /// The agent that said it.
        agent: Option<AgentName>,
        /// What it was for.
        kind: BotKind,
        /// Whether it also stands in the exchange that follows.
        in_exchange: bool,
    },
    /// Tool calls and results of an agent.
    Exchanges {
        /// The agent.
        agent: AgentName,
        /// The messages as a model wire has them.
        messages: Arc<Vec<Json>>,
    },
    /// A crash cut a reply off; how much of it was seen is not known.
    Interrupted,
    /// An agent's task began (`start`) or ended.
    Mark {
        /// The agent.
        agent: AgentName,
        /// Begin or end.
        start: bool,
    },
}

/// The latest entries, oldest first; at most [`limits::HISTORY_ITEMS`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct History(VecDeque<HistoryItem>);

impl History {
    /// Oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &HistoryItem> + ExactSizeIterator {
        self.0.iter()
    }
    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    pub(super) fn user(&mut self, text: &Arc<str>, at: Timestamp) {
        self.push(HistoryItem::User { text: text.clone(), at });
    }
    /// Whether there was anything to keep.
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
    pub(super) fn mark(&mut self, agent: &AgentName, start: bool) {
        self.push(HistoryItem::Mark { agent: agent.clone(), start });
    }
    /// Takes the newest entries away.
    pub(super) fn forget(&mut self, newest: usize) {
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
