//! A store that forgets when the process ends: for tests, for `chat`, for trying things out.
//!
//! What it keeps is encoded, as on a disk: an idle conversation costs little more than its bytes. Journals and traces are kept
//! for the latest turns of the whole process only.

mod squeeze;
mod talk;

use std::{
    collections::{HashMap, VecDeque},
    hash::{BuildHasher, RandomState},
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use futures::future::{BoxFuture, FutureExt, ready};
use segue_engine::{
    conversation::Event,
    ids::{ConversationId, MessageId},
    time::Timestamp,
};

use self::talk::Talk;
use super::{
    Accepted, Batch, Inbound, JournalRecord, Store, StoreError, Stored, StoredEvents, StoredReply, StoredTurn,
    TurnNumber, Unfinished, Version,
};
use crate::limits;

/// Independent parts, so that many conversations seldom wait for one lock. A power of two.
const SHARDS: usize = 16;

/// A store in memory. Nothing waits: every future is ready at once.
pub struct MemoryStore {
    shards: [Mutex<HashMap<ConversationId, Box<Talk>>>; SHARDS],
    /// Turns that still have a journal or a trace, oldest first. Locked after a shard, never before.
    traced: Mutex<VecDeque<(ConversationId, TurnNumber)>>,
    /// Counts writes, for the order of conversations.
    clock: AtomicU64,
    hasher: RandomState,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            traced: Mutex::default(),
            clock: AtomicU64::new(0),
            hasher: RandomState::new(),
        }
    }
}

type Shard<'a> = MutexGuard<'a, HashMap<ConversationId, Box<Talk>>>;

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn shard(&self, id: &ConversationId) -> Shard<'_> {
        let number = self.hasher.hash_one(id) as usize % SHARDS;
        #[allow(clippy::indexing_slicing)] // the remainder is below the length of the array
        self.shards[number].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read<T: Default>(
        &self,
        id: &ConversationId,
        look: impl FnOnce(&Talk) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.shard(id).get(id).map_or_else(|| Ok(T::default()), |talk| look(talk))
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }

    fn accept_now(&self, inbound: &Inbound) -> Result<Accepted, StoreError> {
        let mut shard = self.shard(&inbound.conversation);
        let talk = shard.entry(inbound.conversation.clone()).or_default();
        let accepted = talk.accept(inbound)?;
        if let Accepted::New(_) = accepted {
            talk.touched = self.tick();
        }
        Ok(accepted)
    }

    fn journal_now(
        &self,
        id: &ConversationId,
        turn: TurnNumber,
        records: Vec<JournalRecord>,
    ) -> Result<(), StoreError> {
        let mut shard = self.shard(id);
        let talk = shard.get_mut(id).filter(|talk| talk.is_open(turn));
        let talk = talk.ok_or_else(|| not_accepted(id, turn))?;
        if let Some(again) = records.iter().find(|record| record.is_intent() && talk.has_begun(turn, record)) {
            return Err(StoreError::AlreadyBegun { turn: turn.0, key: again.key.clone() });
        }
        talk.record(turn, records);
        drop(shard);
        self.forget_oldest(id, turn);
        Ok(())
    }

    fn append_now(&self, id: &ConversationId, after: Version, batch: Batch) -> Result<Version, StoreError> {
        let turn = batch.turn;
        let version = {
            let mut shard = self.shard(id);
            let talk = shard.entry(id.clone()).or_default();
            if turn.0 > talk.turns {
                if talk.is_empty() {
                    shard.remove(id);
                }
                return Err(not_accepted(id, turn));
            }
            let version = talk.append(id, after, batch)?;
            talk.touched = self.tick();
            version
        };
        self.forget_oldest(id, turn);
        Ok(version)
    }

    /// Remembers that a turn has a journal or a trace, and takes those of the oldest turns away.
    fn forget_oldest(&self, id: &ConversationId, turn: TurnNumber) {
        let oldest = {
            let mut traced = self.traced.lock().unwrap_or_else(PoisonError::into_inner);
            // A turn writes its journal in several parts, mostly one after the other.
            if traced.back().is_none_or(|(last, number)| (last, *number) != (id, turn)) {
                traced.push_back((id.clone(), turn));
            }
            if traced.len() <= limits::MEMORY_TRACED { None } else { traced.pop_front() }
        };
        if let Some((id, turn)) = oldest
            && let Some(talk) = self.shard(&id).get_mut(&id)
        {
            talk.forget(turn);
        }
    }

    fn list(&self, keep: impl Fn(&Talk) -> bool) -> Vec<(u64, ConversationId)> {
        let mut found = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            found.extend(shard.iter().filter(|(_, talk)| keep(talk)).map(|(id, talk)| (talk.touched, id.clone())));
        }
        found.sort_unstable_by_key(|(touched, _)| std::cmp::Reverse(*touched));
        found
    }
}

fn not_accepted(id: &ConversationId, turn: TurnNumber) -> StoreError {
    StoreError::NotAccepted { conversation: id.clone(), turn: turn.0 }
}

/// A finished answer as a future.
fn now<'a, T: Send + 'a>(answer: T) -> BoxFuture<'a, T> {
    ready(answer).boxed()
}

impl Store for MemoryStore {
    fn accept(&self, inbound: Inbound) -> BoxFuture<'_, Result<Accepted, StoreError>> {
        now(self.accept_now(&inbound))
    }
    fn load<'a>(&'a self, id: &'a ConversationId) -> BoxFuture<'a, Result<Stored, StoreError>> {
        now(self.read(id, |talk| talk.load(id)))
    }
    fn journal<'a>(
        &'a self,
        id: &'a ConversationId,
        turn: TurnNumber,
        records: Vec<JournalRecord>,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        now(self.journal_now(id, turn, records))
    }
    fn append<'a>(
        &'a self,
        id: &'a ConversationId,
        after: Version,
        batch: Batch,
    ) -> BoxFuture<'a, Result<Version, StoreError>> {
        now(self.append_now(id, after, batch))
    }
    fn unfinished<'a>(&'a self, id: &'a ConversationId) -> BoxFuture<'a, Result<Vec<Unfinished>, StoreError>> {
        now(self.read(id, |talk| talk.open_turns(id, &(TurnNumber(0)..TurnNumber(u64::MAX)))))
    }
    fn open_turns<'a>(
        &'a self,
        id: &'a ConversationId,
        turns: Range<TurnNumber>,
    ) -> BoxFuture<'a, Result<Vec<Unfinished>, StoreError>> {
        now(self.read(id, |talk| talk.open_turns(id, &turns)))
    }
    fn replies_of<'a>(
        &'a self,
        id: &'a ConversationId,
        turn: TurnNumber,
    ) -> BoxFuture<'a, Result<Option<Vec<StoredReply>>, StoreError>> {
        now(self.read(id, |talk| talk.replies_of(id, turn)))
    }
    fn waiting(&self) -> BoxFuture<'_, Result<Vec<ConversationId>, StoreError>> {
        now(Ok(self.list(Talk::is_waiting).into_iter().map(|(_, id)| id).collect()))
    }
    fn timers(&self, limit: usize) -> BoxFuture<'_, Result<Vec<(ConversationId, Timestamp)>, StoreError>> {
        let mut found: Vec<(ConversationId, Timestamp)> = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            found.extend(shard.iter().filter_map(|(id, talk)| Some((id.clone(), talk.due?))));
        }
        found.sort_unstable_by_key(|(_, due)| *due);
        found.truncate(limit);
        now(Ok(found))
    }
    fn undelivered<'a>(&'a self, id: &'a ConversationId) -> BoxFuture<'a, Result<Vec<StoredReply>, StoreError>> {
        now(self.read(id, |talk| talk.undelivered(id)))
    }
    fn delivered<'a>(
        &'a self,
        id: &'a ConversationId,
        replies: Vec<Arc<str>>,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        if let Some(talk) = self.shard(id).get_mut(id) {
            talk.delivered(&replies);
        }
        now(Ok(()))
    }
    fn latest_turns<'a>(
        &'a self,
        id: &'a ConversationId,
        before: Option<Version>,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<StoredEvents>, StoreError>> {
        now(self.read(id, |talk| talk.latest_turns(id, before, most)))
    }
    fn latest_events<'a>(
        &'a self,
        id: &'a ConversationId,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<Event>, StoreError>> {
        now(self.read(id, |talk| talk.latest_events(id, most)))
    }
    fn turns<'a>(&'a self, id: &'a ConversationId) -> BoxFuture<'a, Result<Vec<StoredTurn>, StoreError>> {
        now(self.read(id, |talk| talk.all_turns(id)))
    }
    fn conversations(&self, limit: usize) -> BoxFuture<'_, Result<Vec<ConversationId>, StoreError>> {
        now(Ok(self
            .list(|_| true)
            .into_iter()
            .map(|(_, id)| id)
            .take(limit.min(limits::CONVERSATIONS_LISTED))
            .collect()))
    }
    fn erase<'a>(&'a self, id: &'a ConversationId) -> BoxFuture<'a, Result<(), StoreError>> {
        self.shard(id).remove(id);
        now(Ok(()))
    }
    fn expire(&self, at: Timestamp) -> BoxFuture<'_, Result<u64, StoreError>> {
        let mut gone = 0;
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            gone += shard.values_mut().map(|talk| talk.expire(at)).sum::<u64>();
        }
        now(Ok(gone))
    }
    fn answered<'a>(
        &'a self,
        id: &'a ConversationId,
        message: &'a MessageId,
    ) -> BoxFuture<'a, Result<Option<Vec<StoredReply>>, StoreError>> {
        now(self.read(id, |talk| talk.answered(id, message)))
    }
    fn body<'a>(
        &'a self,
        id: &'a ConversationId,
        hash: &'a str,
    ) -> BoxFuture<'a, Result<Option<Arc<str>>, StoreError>> {
        now(self.read(id, |talk| Ok(talk.body(hash))))
    }
    fn keep_private<'a>(
        &'a self,
        id: &'a ConversationId,
        name: &'a str,
        text: Option<String>,
        at: Timestamp,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        if let Some(talk) = self.shard(id).get_mut(id) {
            talk.keep_private(name, text, at);
        }
        now(Ok(()))
    }
    fn private<'a>(
        &'a self,
        id: &'a ConversationId,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<String>, StoreError>> {
        now(self.read(id, |talk| Ok(talk.private(name))))
    }
    fn ping(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        now(Ok(()))
    }
}

impl MemoryStore {
    /// Spoils the newest batch of a conversation, so that tests see what a damaged record does.
    #[cfg(any(test, feature = "testing"))]
    pub fn damage(&self, id: &ConversationId) {
        if let Some(talk) = self.shard(id).get_mut(id) {
            talk.damage();
        }
    }
}

#[cfg(test)]
mod tests;
