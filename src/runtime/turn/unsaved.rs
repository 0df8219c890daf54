//! Journals of turns that the store did not take: what their effects came to is known in this process, and nowhere else.
//!
//! Whoever takes such a turn up again finds its journal here, and stores what is in it before anything else. Otherwise a write whose
//! outcome was seen would be told to the user as unknown.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use segue_engine::ids::ConversationId;

use crate::{journal::TurnJournal, limits, store::TurnNumber};

/// The journals that are kept, oldest first.
#[derive(Default)]
pub(in crate::runtime) struct UnsavedTurns(Mutex<Vec<(ConversationId, TurnNumber, Arc<TurnJournal>)>>);

impl UnsavedTurns {
    /// Keeps a journal; beyond [`limits::TURNS_UNSAVED`] the oldest goes.
    pub(in crate::runtime) fn keep(&self, id: &ConversationId, turn: TurnNumber, journal: Arc<TurnJournal>) {
        let mut kept = self.lock();
        if kept.len() >= limits::TURNS_UNSAVED {
            kept.remove(0);
        }
        kept.push((id.clone(), turn, journal));
    }

    /// Takes the journal of a turn out.
    pub(in crate::runtime) fn take(&self, id: &ConversationId, turn: TurnNumber) -> Option<Arc<TurnJournal>> {
        let mut kept = self.lock();
        let at = kept.iter().position(|(of, number, _)| of == id && *number == turn)?;
        Some(kept.remove(at).2)
    }

    /// A conversation is gone, with all its turns.
    pub(in crate::runtime) fn forget(&self, id: &ConversationId) {
        self.lock().retain(|(of, ..)| of != id);
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
    fn journals_are_kept_by_turn_and_the_oldest_go_first() {
        let (unsaved, store, clock) = (UnsavedTurns::default(), Arc::new(MemoryStore::new()), Arc::new(SystemClock));
        let id = ConversationId::from("c");
        for turn in 0..=limits::TURNS_UNSAVED as u64 {
            let turn = TurnNumber(turn);
            let journal = TurnJournal::new(store.clone(), id.clone(), turn, 1, clock.clone(), Vec::new());
            unsaved.keep(&id, turn, Arc::new(journal));
        }
        assert!(unsaved.take(&id, TurnNumber(0)).is_none(), "the oldest went");
        assert!(unsaved.take(&"d".into(), TurnNumber(1)).is_none());
        assert!(unsaved.take(&id, TurnNumber(1)).is_some() && unsaved.take(&id, TurnNumber(1)).is_none());
        unsaved.forget(&id);
        assert!(unsaved.take(&id, TurnNumber(2)).is_none());
    }
}
