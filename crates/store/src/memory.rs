//! A store that forgets when the process ends: for tests, for `chat`, for trying things out.
//!
//! It is bounded: beyond [`limits::MEMORY_CONVERSATIONS`] those go that were idle for longest, and journals and traces are kept for the
//! latest turns of the whole process only.

mod conversation;

use std::{
    collections::{HashMap, VecDeque},
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::future::{BoxFuture, FutureExt, ready};
use segue_base::limits;
use segue_engine::{
    conversation::Event,
    ids::{ConversationId, MessageId},
    time::Timestamp,
};

use self::conversation::MemoryConversation;
use super::{
    AcceptOutcome, InboxMessage, JournalRecord, Store, StoreError, StoredConversation, StoredReply, StoredTurn,
    TurnCommit, TurnEvents, TurnNumber, UnfinishedTurn, Version,
};

/// A store in memory. Nothing waits: every future is ready at once.
#[derive(Default)]
pub struct MemoryStore(Mutex<State>);

#[derive(Default)]
struct State {
    conversations: HashMap<ConversationId, MemoryConversation>,
    /// Turns that still have a journal or a trace, oldest first.
    recent_journals: VecDeque<(ConversationId, TurnNumber)>,
    /// Counts writes, for the order of conversations.
    write_counter: u64,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read<T: Default>(
        &self,
        id: &ConversationId,
        look: impl FnOnce(&MemoryConversation) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.lock().conversations.get(id).map_or_else(|| Ok(T::default()), look)
    }
}

impl State {
    fn tick(&mut self) -> u64 {
        self.write_counter += 1;
        self.write_counter
    }

    fn accept(&mut self, inbound: InboxMessage) -> Result<AcceptOutcome, StoreError> {
        let (id, now) = (inbound.conversation.clone(), self.tick());
        let conversation = self.conversations.entry(id.clone()).or_insert_with(|| MemoryConversation::new(id));
        let accepted = conversation.accept(inbound)?;
        if let AcceptOutcome::New(_) = accepted {
            conversation.updated_at = now;
            self.make_room();
        }
        Ok(accepted)
    }

    fn journal(
        &mut self,
        id: &ConversationId,
        turn: TurnNumber,
        records: Vec<JournalRecord>,
    ) -> Result<(), StoreError> {
        let conversation = self.conversations.get_mut(id).filter(|conversation| conversation.is_open(turn));
        let conversation = conversation.ok_or_else(|| not_accepted(id, turn))?;
        if let Some(again) = records.iter().find(|record| record.is_intent() && conversation.has_begun(turn, record)) {
            return Err(StoreError::AlreadyBegun { turn: turn.0, key: again.key.clone() });
        }
        conversation.record(turn, records);
        self.drop_oldest_journal(id, turn);
        Ok(())
    }

    fn append(&mut self, id: &ConversationId, after: Version, batch: TurnCommit) -> Result<Version, StoreError> {
        let (turn, now) = (batch.turn, self.tick());
        let (turns, found) =
            self.conversations.get(id).map_or((0, 0), |conversation| (conversation.turns, conversation.version()));
        if turn.0 > turns {
            return Err(not_accepted(id, turn));
        }
        if after.0 != found {
            return Err(StoreError::Conflict { expected: after, found: Version(found) });
        }
        let conversation = self.conversations.entry(id.clone()).or_insert_with(|| MemoryConversation::new(id.clone()));
        let version = conversation.append(batch)?;
        conversation.updated_at = now;
        self.drop_oldest_journal(id, turn);
        self.make_room();
        Ok(version)
    }

    /// Remembers that a turn has a journal or a trace, and takes those of the oldest turn away.
    fn drop_oldest_journal(&mut self, id: &ConversationId, turn: TurnNumber) {
        // A turn writes its journal in several parts, mostly one after the other.
        if self.recent_journals.back().is_none_or(|(last, number)| (last, *number) != (id, turn)) {
            self.recent_journals.push_back((id.clone(), turn));
        }
        if self.recent_journals.len() > limits::MEMORY_JOURNALS
            && let Some((id, turn)) = self.recent_journals.pop_front()
            && let Some(conversation) = self.conversations.get_mut(&id)
        {
            conversation.drop_journal(turn);
        }
    }

    /// Takes a tenth away when there are too many: those that nothing was written to for longest. Open turns are never idle.
    fn make_room(&mut self) {
        if self.conversations.len() <= limits::MEMORY_CONVERSATIONS {
            return;
        }
        let idle = self.conversations.iter().filter(|(_, conversation)| !conversation.has_open_turns());
        let mut idle: Vec<(u64, ConversationId)> =
            idle.map(|(id, conversation)| (conversation.updated_at, id.clone())).collect();
        idle.sort_unstable_by_key(|(updated_at, _)| *updated_at);
        idle.truncate(limits::MEMORY_CONVERSATIONS / 10);
        tracing::warn!(
            conversations = idle.len(),
            "the store in memory is full: the oldest idle conversations are forgotten"
        );
        for (_, id) in idle {
            self.conversations.remove(&id);
        }
    }

    /// The conversations of which `keep` says so, newest first.
    fn list(&self, keep: impl Fn(&MemoryConversation) -> bool) -> Vec<ConversationId> {
        let found = self.conversations.iter().filter(|(_, conversation)| keep(conversation));
        let mut found: Vec<_> = found.map(|(id, conversation)| (conversation.updated_at, id)).collect();
        found.sort_unstable_by_key(|(updated_at, _)| std::cmp::Reverse(*updated_at));
        found.into_iter().map(|(_, id)| id.clone()).collect()
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
    fn accept(&self, inbound: InboxMessage) -> BoxFuture<'_, Result<AcceptOutcome, StoreError>> {
        now(self.lock().accept(inbound))
    }
    fn load<'a>(&'a self, id: &'a ConversationId) -> BoxFuture<'a, Result<StoredConversation, StoreError>> {
        now(self.read(id, MemoryConversation::load))
    }
    fn journal<'a>(
        &'a self,
        id: &'a ConversationId,
        turn: TurnNumber,
        records: Vec<JournalRecord>,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        now(self.lock().journal(id, turn, records))
    }
    fn append<'a>(
        &'a self,
        id: &'a ConversationId,
        after: Version,
        batch: TurnCommit,
    ) -> BoxFuture<'a, Result<Version, StoreError>> {
        now(self.lock().append(id, after, batch))
    }
    fn unfinished<'a>(&'a self, id: &'a ConversationId) -> BoxFuture<'a, Result<Vec<UnfinishedTurn>, StoreError>> {
        now(self.read(id, |of| of.open_turns(&(TurnNumber(0)..TurnNumber(u64::MAX)))))
    }
    fn open_turns<'a>(
        &'a self,
        id: &'a ConversationId,
        turns: Range<TurnNumber>,
    ) -> BoxFuture<'a, Result<Vec<UnfinishedTurn>, StoreError>> {
        now(self.read(id, |of| of.open_turns(&turns)))
    }
    fn replies_of<'a>(
        &'a self,
        id: &'a ConversationId,
        turn: TurnNumber,
    ) -> BoxFuture<'a, Result<Option<Vec<StoredReply>>, StoreError>> {
        now(self.read(id, |of| of.replies_of(turn)))
    }
    fn waiting(&self) -> BoxFuture<'_, Result<Vec<ConversationId>, StoreError>> {
        now(Ok(self.lock().list(MemoryConversation::is_waiting)))
    }
    fn timers(&self, limit: usize) -> BoxFuture<'_, Result<Vec<(ConversationId, Timestamp)>, StoreError>> {
        let state = self.lock();
        let due = state.conversations.iter().filter_map(|(id, conversation)| Some((id.clone(), conversation.due?)));
        let mut found: Vec<(ConversationId, Timestamp)> = due.collect();
        found.sort_unstable_by_key(|(_, due)| *due);
        found.truncate(limit);
        now(Ok(found))
    }
    fn undelivered<'a>(&'a self, id: &'a ConversationId) -> BoxFuture<'a, Result<Vec<StoredReply>, StoreError>> {
        now(self.read(id, MemoryConversation::undelivered))
    }
    fn delivered<'a>(
        &'a self,
        id: &'a ConversationId,
        replies: Vec<Arc<str>>,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        if let Some(conversation) = self.lock().conversations.get_mut(id) {
            conversation.delivered(&replies);
        }
        now(Ok(()))
    }
    fn latest_turns<'a>(
        &'a self,
        id: &'a ConversationId,
        before: Option<Version>,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<TurnEvents>, StoreError>> {
        now(self.read(id, |of| of.latest_turns(before, most)))
    }
    fn latest_events<'a>(
        &'a self,
        id: &'a ConversationId,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<Event>, StoreError>> {
        now(self.read(id, |of| of.latest_events(most)))
    }
    fn turns<'a>(&'a self, id: &'a ConversationId) -> BoxFuture<'a, Result<Vec<StoredTurn>, StoreError>> {
        now(self.read(id, MemoryConversation::all_turns))
    }
    fn conversations(&self, limit: usize) -> BoxFuture<'_, Result<Vec<ConversationId>, StoreError>> {
        let mut found = self.lock().list(|_| true);
        found.truncate(limit.min(limits::CONVERSATIONS_LISTED));
        now(Ok(found))
    }
    fn erase<'a>(&'a self, id: &'a ConversationId) -> BoxFuture<'a, Result<(), StoreError>> {
        self.lock().conversations.remove(id);
        now(Ok(()))
    }
    fn expire(&self, at: Timestamp) -> BoxFuture<'_, Result<u64, StoreError>> {
        now(Ok(self.lock().conversations.values_mut().map(|conversation| conversation.expire(at)).sum()))
    }
    fn answered<'a>(
        &'a self,
        id: &'a ConversationId,
        message: &'a MessageId,
    ) -> BoxFuture<'a, Result<Option<Vec<StoredReply>>, StoreError>> {
        now(self.read(id, |of| of.answered(message)))
    }
    fn body<'a>(
        &'a self,
        id: &'a ConversationId,
        hash: &'a str,
    ) -> BoxFuture<'a, Result<Option<Arc<str>>, StoreError>> {
        now(self.read(id, |of| Ok(of.body(hash))))
    }
    fn keep_private<'a>(
        &'a self,
        id: &'a ConversationId,
        name: &'a str,
        text: Option<String>,
        at: Timestamp,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        if let Some(conversation) = self.lock().conversations.get_mut(id) {
            conversation.keep_private(name, text, at);
        }
        now(Ok(()))
    }
    fn private<'a>(
        &'a self,
        id: &'a ConversationId,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<String>, StoreError>> {
        now(self.read(id, |of| Ok(of.private(name))))
    }
    fn ping(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        now(Ok(()))
    }
}

impl MemoryStore {
    /// Makes the events of a conversation unreadable, so that tests see what a damaged record does.
    #[cfg(any(test, debug_assertions, feature = "testing"))]
    pub fn corrupt(&self, id: &ConversationId) {
        if let Some(conversation) = self.lock().conversations.get_mut(id) {
            conversation.is_corrupt = true;
        }
    }
}

#[cfg(test)]
mod tests;
