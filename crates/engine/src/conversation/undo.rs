//! The changes of the current turn, so that the events `rewind` and `undo` can revert them. Replaced values are moved
//! here, not copied. The log is cleared when the turn listens.

use serde::{Deserialize, Serialize};

use super::{Conversation, SlotState, Stack, UserMessage};
use crate::{ids::SlotName, limits};

/// The log of changes of the newest turn.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UndoLog {
    /// The stack at the start of the turn; set when the stack first changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) stack: Option<Stack>,
    /// The state of each slot before each change, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) slots: Vec<(SlotName, Option<SlotState>)>,
    /// Number of entries added to the history.
    #[serde(default, rename = "said")]
    pub(super) history_entries: usize,
    /// Lengths of `slots` and `history_entries` before the newest action.
    #[serde(default)]
    pub(super) action: (usize, usize),
    /// The previous user message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) message: Option<Box<UserMessage>>,
    /// Whether a user message started the turn.
    #[serde(default)]
    pub(super) open: bool,
}

impl UndoLog {
    /// Whether there is nothing to revert.
    pub fn is_empty(&self) -> bool {
        !self.open
    }
    pub(super) fn log_slot(&mut self, name: &SlotName, before: Option<SlotState>) {
        // Only a turn in a loop reaches the limit. The first changes are kept, so that a revert restores the start.
        if self.open && self.slots.len() < limits::UNDO_SLOTS {
            self.slots.push((name.clone(), before));
        }
    }
    pub(super) fn log_history(&mut self, count: usize) {
        if self.open {
            self.history_entries += count;
        }
    }
    pub(super) fn log_action(&mut self) {
        self.action = (self.slots.len(), self.history_entries);
    }
}

impl Conversation {
    pub(super) fn rewind(&mut self) {
        if self.undo.is_empty() {
            return;
        }
        let undo = std::mem::take(&mut self.undo);
        if let Some(stack) = undo.stack {
            self.stack = stack;
        }
        undo.slots.into_iter().rev().for_each(|(name, state)| self.slots.restore(name, state));
        self.history.remove_newest(undo.history_entries);
        self.recent_replies.rewind();
        self.latest_message = undo.message.map(|message| *message);
        self.followup = None;
    }

    pub(super) fn undo_action(&mut self) {
        let (slots, history_entries) = self.undo.action;
        while self.undo.slots.len() > slots {
            let Some((name, state)) = self.undo.slots.pop() else { break };
            self.slots.restore(name, state);
        }
        self.history.remove_newest(self.undo.history_entries.saturating_sub(history_entries));
        self.undo.history_entries = history_entries.min(self.undo.history_entries);
    }
}
