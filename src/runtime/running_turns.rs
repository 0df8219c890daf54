//! The turns that run in this process, so that they can be interrupted from outside.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use segue_engine::ids::ConversationId;
use tokio_util::sync::CancellationToken;

use super::Assistant;
use crate::store::TurnNumber;

/// The running turn of each conversation.
#[derive(Clone, Default)]
pub(super) struct RunningTurns(Arc<Mutex<HashMap<ConversationId, (TurnNumber, CancellationToken)>>>);

impl RunningTurns {
    fn all(&self) -> MutexGuard<'_, HashMap<ConversationId, (TurnNumber, CancellationToken)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Lists a turn until the returned value is dropped. A conversation runs one turn at a time.
    pub(super) fn enter(&self, id: &ConversationId, turn: TurnNumber, cancel: CancellationToken) -> RunningTurn {
        self.all().insert(id.clone(), (turn, cancel));
        RunningTurn { turns: self.clone(), id: id.clone(), turn }
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
        if all.get(&self.id).is_some_and(|(turn, _)| *turn == self.turn) {
            all.remove(&self.id);
        }
    }
}

impl Assistant {
    /// Interrupts the running turn of a conversation: it ends before its next call of a model, an agent or a search, or within one, and what
    /// has happened is stored. An effect that may change something runs to its end first. With `turn`, only that turn is interrupted.
    /// Returns whether it was running; messages that wait are not affected.
    pub fn interrupt(&self, id: &ConversationId, turn: Option<TurnNumber>) -> bool {
        let all = self.0.running_turns.all();
        let running = all.get(id).filter(|(running, _)| turn.is_none_or(|turn| turn == *running));
        if let Some((_, cancel)) = running {
            cancel.cancel();
        }
        running.is_some()
    }
}
