//! Journals of turns that could not be stored: only this process knows the outcomes of their effects.
//!
//! The next attempt of such a turn uses the journal from here and stores it first. Otherwise a write with a known outcome would be
//! reported as unknown.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use segue_engine::ids::ConversationId;

use crate::{journal::TurnJournal, limits, store::TurnNumber};

/// The journals, oldest first.
#[derive(Default)]
pub(in crate::runtime) struct UnsavedTurns(Mutex<Vec<(ConversationId, TurnNumber, Arc<TurnJournal>)>>);

impl UnsavedTurns {
    /// Adds a journal. Above [`limits::TURNS_UNSAVED`] the oldest is dropped.
    pub(in crate::runtime) fn insert(&self, id: &ConversationId, turn: TurnNumber, journal: Arc<TurnJournal>) {
        let mut journals = self.lock();
        if journals.len() >= limits::TURNS_UNSAVED {
            journals.remove(0);
        }
        journals.push((id.clone(), turn, journal));
    }

    /// Removes and returns the journal of a turn.
    pub(in crate::runtime) fn take(&self, id: &ConversationId, turn: TurnNumber) -> Option<Arc<TurnJournal>> {
        let mut journals = self.lock();
        let at = journals.iter().position(|(conversation, number, _)| conversation == id && *number == turn)?;
        Some(journals.remove(at).2)
    }

    /// Drops the journals of a conversation that was erased.
    pub(in crate::runtime) fn forget(&self, id: &ConversationId) {
        self.lock().retain(|(conversation, ..)| conversation != id);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(ConversationId, TurnNumber, Arc<TurnJournal>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

    use super::*;
    use crate::{clock::SystemClock, store::MemoryStore};

    #[test]
    fn a_journal_is_taken_once_by_its_turn_and_the_oldest_is_dropped_at_the_limit() {
        let (unsaved, store, clock) = (UnsavedTurns::default(), Arc::new(MemoryStore::new()), Arc::new(SystemClock));
        let id = ConversationId::from("c");
        for turn in 0..=limits::TURNS_UNSAVED as u64 {
            let turn = TurnNumber(turn);
            let journal = TurnJournal::new(store.clone(), id.clone(), turn, 1, clock.clone(), Vec::new());
            unsaved.insert(&id, turn, Arc::new(journal));
        }
        assert!(unsaved.take(&id, TurnNumber(0)).is_none(), "the oldest was dropped");
        assert!(unsaved.take(&"d".into(), TurnNumber(1)).is_none());
        assert!(unsaved.take(&id, TurnNumber(1)).is_some() && unsaved.take(&id, TurnNumber(1)).is_none());
        unsaved.forget(&id);
        assert!(unsaved.take(&id, TurnNumber(2)).is_none());
    }
}
