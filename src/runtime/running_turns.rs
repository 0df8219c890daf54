//! The turns that run in this process, so that they can be interrupted from outside.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use segue_engine::ids::{ConversationId, MessageId};
use tokio_util::sync::CancellationToken;

use super::Assistant;
use crate::store::{InboxMessage, TurnNumber};

/// The running turn of each conversation.
#[derive(Clone, Default)]
pub(super) struct RunningTurns(Arc<Mutex<HashMap<ConversationId, Running>>>);

struct Running {
    turn: TurnNumber,
    message: MessageId,
    cancel: CancellationToken,
}

impl RunningTurns {
    fn all(&self) -> MutexGuard<'_, HashMap<ConversationId, Running>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Lists the turn of a message until the returned value is dropped. A conversation runs one turn at a time.
    pub(super) fn enter(&self, turn: TurnNumber, inbound: &InboxMessage, cancel: CancellationToken) -> RunningTurn {
        let id = inbound.conversation.clone();
        let running = Running { turn, message: inbound.message.message_id.clone(), cancel };
        self.all().insert(id.clone(), running);
        RunningTurn { turns: self.clone(), id, turn }
    }
    /// Whether a turn of the conversation is running that is not the one of this message.
    pub(super) fn is_busy(&self, id: &ConversationId, message: &MessageId) -> bool {
        let is_other = |running: &Running| message.as_str().is_empty() || running.message != *message;
        self.all().get(id).is_some_and(is_other)
    }
    /// Whether this turn is running.
    pub(super) fn is_running(&self, id: &ConversationId, turn: TurnNumber) -> bool {
        self.all().get(id).is_some_and(|running| running.turn == turn)
    }
    /// Interrupts the running turn of a conversation, or only the turn `turn`. Returns whether it was running.
    pub(super) fn interrupt(&self, id: &ConversationId, turn: Option<TurnNumber>) -> bool {
        let all = self.all();
        let running = all.get(id).filter(|running| turn.is_none_or(|turn| turn == running.turn));
        if let Some(running) = running {
            running.cancel.cancel();
        }
        running.is_some()
    }
}

/// A turn that is listed as running.
pub(super) struct RunningTurn {
    turns: RunningTurns,
    id: ConversationId,
    turn: TurnNumber,
}

impl Drop for RunningTurn {
    fn drop(&mut self) {
        let mut all = self.turns.all();
        if all.get(&self.id).is_some_and(|running| running.turn == self.turn) {
            all.remove(&self.id);
        }
    }
}

impl Assistant {
    /// Interrupts the running turn of a conversation: it ends before its next call of a model, an agent or a search, or within one, and what
    /// has happened is stored. An effect that may change something runs to its end first. With `turn`, only that turn is interrupted.
    /// Returns whether it was running; messages that wait are not affected.
    pub fn interrupt(&self, id: &ConversationId, turn: Option<TurnNumber>) -> bool {
        self.0.running_turns.interrupt(id, turn)
    }
}
