//! Texts that many turns use, such as tool lists. They are stored once per conversation, and journal records reference them by hash: so
//! the size of a record does not grow with the number of tools.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use segue_engine::{ids::ConversationId, time::Timestamp};

use crate::{
    journal::request_hash,
    store::{Store, StoredText},
};

/// How long a stored text counts as used without being stored again, in microseconds: one day.
const REWRITE_AFTER_MICROS: i64 = 86_400_000_000;

/// Hashes of stored texts, with the time at which each was last written. Cached with the conversation; without the cache a text is
/// recorded in full once more.
pub(in crate::runtime) type KnownTexts = HashMap<Arc<str>, Timestamp>;

/// A text with its hash.
pub(in crate::runtime) fn shared_text(text: Arc<str>) -> StoredText {
    StoredText { hash: request_hash(&text).into(), text }
}

/// The shared texts of one turn.
pub(in crate::runtime) struct SharedTexts {
    store: Arc<dyn Store>,
    conversation: ConversationId,
    /// Never locked across an `await`.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Stored by earlier turns.
    known: KnownTexts,
    /// Stored with this turn, with the time of use.
    new: Vec<(StoredText, Timestamp)>,
}

impl SharedTexts {
    pub(in crate::runtime) fn new(store: Arc<dyn Store>, conversation: ConversationId, known: KnownTexts) -> Self {
        Self { store, conversation, state: Mutex::new(State { known, new: Vec::new() }) }
    }

    /// The hash of a text that an earlier turn has stored. `None` if none has: then this turn stores it.
    pub(in crate::runtime) fn hash_if_stored(&self, text: &StoredText, now: Timestamp) -> Option<Arc<str>> {
        let mut state = self.lock();
        let used = state.known.get(&text.hash).copied();
        let written = used.is_some_and(|at| now.since(at) < REWRITE_AFTER_MICROS)
            || state.new.iter().any(|(new, _)| new.hash == text.hash);
        if !written {
            state.new.push((text.clone(), now));
        }
        used.map(|_| text.hash.clone())
    }

    /// The text with this hash, if it is stored.
    pub(in crate::runtime) async fn text(&self, hash: &str) -> Option<Arc<str>> {
        self.store.text_by_hash(&self.conversation, hash).await.ok().flatten()
    }

    /// The texts to store with the turn.
    pub(in crate::runtime) fn new_texts(&self) -> Vec<StoredText> {
        self.lock().new.iter().map(|(text, _)| text.clone()).collect()
    }

    /// The stored texts after the commit.
    pub(in crate::runtime) fn take_known(&self) -> KnownTexts {
        let State { mut known, new } = std::mem::take(&mut *self.lock());
        known.extend(new.into_iter().map(|(text, at)| (text.hash, at)));
        known
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

    use super::*;
    use crate::store::MemoryStore;

    #[test]
    fn a_text_is_referenced_by_its_hash_after_an_earlier_turn_has_stored_it() {
        let at = Timestamp::from_micros;
        let turn = |known| SharedTexts::new(Arc::new(MemoryStore::default()), "c".into(), known);
        let list = shared_text("a list".into());
        let first = turn(KnownTexts::default());
        assert_eq!(first.hash_if_stored(&list, at(1)), None);
        assert_eq!(first.hash_if_stored(&list, at(2)), None, "the turn that stores it may crash before the commit");
        assert_eq!(first.new_texts().len(), 1);
        let second = turn(first.take_known());
        assert!(second.hash_if_stored(&list, at(3)).is_some());
        assert_eq!(second.new_texts(), [], "it is stored already");
        let next_day = turn(second.take_known());
        assert!(next_day.hash_if_stored(&list, at(1 + REWRITE_AFTER_MICROS)).is_some());
        assert_eq!(next_day.new_texts().len(), 1, "stored again, so that it does not expire while it is used");
    }
}
