//! What the running turn changed, kept so that `rewind` and `undo` can take it back. Values are moved here when they are
//! replaced: nothing is copied, and all of it goes when the turn listens.

use serde::{Deserialize, Serialize};

use super::{Conversation, SlotState, Stack, UserMessage};
use crate::{ids::SlotName, limits};

/// What the newest turn changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Undo {
    /// The stack as the turn found it, once it has changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) stack: Option<Stack>,
    /// Slots as they were before each change, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) slots: Vec<(SlotName, Option<SlotState>)>,
    /// Entries that the history got, of every kind.
    #[serde(default)]
    pub(super) said: usize,
    /// How many of the above there were before the newest action.
    #[serde(default)]
    pub(super) action: (usize, usize),
    /// The message before this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) message: Option<Box<UserMessage>>,
    /// Whether a user message began the turn.
    #[serde(default)]
    pub(super) open: bool,
}

impl Undo {
    /// Whether there is nothing to take back.
    pub fn is_empty(&self) -> bool {
        !self.open
    }
    pub(super) fn slot(&mut self, name: &SlotName, before: Option<SlotState>) {
        // Beyond the limit a turn runs in circles; what is left out is its middle, not its beginning.
        if self.open && self.slots.len() < limits::UNDO_SLOTS {
            self.slots.push((name.clone(), before));
        }
    }
    pub(super) fn said(&mut self, count: usize) {
        if self.open {
            self.said += count;
        }
    }
    pub(super) fn action(&mut self) {
        self.action = (self.slots.len(), self.said);
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
        self.history.forget(undo.said);
        self.said.rewind();
        self.latest_message = undo.message.map(|message| *message);
        self.followup = None;
    }

    pub(super) fn undo_action(&mut self) {
        let (slots, said) = self.undo.action;
        while self.undo.slots.len() > slots {
            let Some((name, state)) = self.undo.slots.pop() else { break };
            self.slots.restore(name, state);
        }
        self.history.forget(self.undo.said.saturating_sub(said));
        self.undo.said = said.min(self.undo.said);
    }
}
