//! Texts that many turns hash_if_stored to: stored once in a conversation and named by their hash in the records of its turns. So a turn's
//! record grows with what the turn did, not with how many tools its agents have.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use segue_engine::{ids::ConversationId, time::Timestamp};

use crate::{
    journal::request_hash,
    store::{Store, StoredText},
};

/// How long a body counts as used without being written again, in microseconds: a day, as the stores take it.
const FRESH: i64 = 86_400_000_000;

/// The bodies that are known to be stored, by hash, with the time of the last use that was written. Kept with the cached
/// conversation; without it, a text is recorded whole once more.
pub(in crate::runtime) type KnownTexts = HashMap<Arc<str>, Timestamp>;

/// A text under its hash.
pub(in crate::runtime) fn shared_text(text: Arc<str>) -> StoredText {
    StoredText { hash: request_hash(&text).into(), text }
}

/// The bodies of one turn.
pub(in crate::runtime) struct SharedTexts {
    store: Arc<dyn Store>,
    conversation: ConversationId,
    /// Never held across a wait.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Stored by earlier turns.
    known: KnownTexts,
    /// To be stored with this turn, and when they were used.
    fresh: Vec<(StoredText, Timestamp)>,
}

impl SharedTexts {
    pub(in crate::runtime) fn new(store: Arc<dyn Store>, conversation: ConversationId, known: KnownTexts) -> Self {
        Self { store, conversation, state: Mutex::new(State { known, fresh: Vec::new() }) }
    }

    /// The hash under which an earlier turn has stored this text; `None` when none has, and then it is stored with this turn.
    pub(in crate::runtime) fn hash_if_stored(&self, body: &StoredText, now: Timestamp) -> Option<Arc<str>> {
        let mut state = self.lock();
        let used = state.known.get(&body.hash).copied();
        let written = used.is_some_and(|at| now.since(at) < FRESH)
            || state.fresh.iter().any(|(fresh, _)| fresh.hash == body.hash);
        if !written {
            state.fresh.push((body.clone(), now));
        }
        used.map(|_| body.hash.clone())
    }

    /// The text with this hash, if it is still stored.
    pub(in crate::runtime) async fn text(&self, hash: &str) -> Option<Arc<str>> {
        self.store.text_by_hash(&self.conversation, hash).await.ok().flatten()
    }

    /// What goes into the batch of the turn.
    pub(in crate::runtime) fn new_texts(&self) -> Vec<StoredText> {
        self.lock().fresh.iter().map(|(body, _)| body.clone()).collect()
    }

    /// What is known once the batch is stored.
    pub(in crate::runtime) fn take_known(&self) -> KnownTexts {
        let State { mut known, fresh } = std::mem::take(&mut *self.lock());
        known.extend(fresh.into_iter().map(|(body, at)| (body.hash, at)));
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
    fn a_text_is_named_by_its_hash_once_an_earlier_turn_has_stored_it() {
        let at = Timestamp::from_micros;
        let turn = |known| SharedTexts::new(Arc::new(MemoryStore::default()), "c".into(), known);
        let list = shared_text("a list".into());
        let first = turn(KnownTexts::default());
        assert_eq!(first.hash_if_stored(&list, at(1)), None);
        assert_eq!(first.hash_if_stored(&list, at(2)), None, "the turn that stores it may die before it has");
        assert_eq!(first.new_texts().len(), 1);
        let second = turn(first.take_known());
        assert!(second.hash_if_stored(&list, at(3)).is_some());
        assert_eq!(second.new_texts(), [], "it is stored already");
        let next_day = turn(second.take_known());
        assert!(next_day.hash_if_stored(&list, at(1 + FRESH)).is_some());
        assert_eq!(next_day.new_texts().len(), 1, "written again, so that it does not expire while it is used");
    }
}
