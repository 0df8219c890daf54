//! A store in memory, for tests and `segue chat`. Its data ends with the process.
//!
//! It is bounded: beyond [`limits::MEMORY_CONVERSATIONS`] the conversations that were idle for longest are removed, and
//! only the latest turns of the whole process have journals and traces.

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

/// A store in memory. Every future is ready at once.
#[derive(Default)]
pub struct MemoryStore(Mutex<State>);

#[derive(Default)]
struct State {
    conversations: HashMap<ConversationId, MemoryConversation>,
    /// Turns that have a journal or a trace, oldest first.
    recent_journals: VecDeque<(ConversationId, TurnNumber)>,
    /// Counts writes; orders conversations by their last write.
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
            self.evict_idle();
        }
        Ok(accepted)
    }

    fn append_journal(
        &mut self,
        id: &ConversationId,
        turn: TurnNumber,
        records: Vec<JournalRecord>,
    ) -> Result<(), StoreError> {
        let conversation = self.conversations.get_mut(id).filter(|conversation| conversation.is_open(turn));
        let conversation = conversation.ok_or_else(|| turn_not_open(id, turn))?;
        if let Some(again) = records.iter().find(|record| record.is_intent() && conversation.has_begun(turn, record)) {
            return Err(StoreError::StepAlreadyStarted { turn: turn.0, key: again.key.clone() });
        }
        conversation.add_records(turn, records);
        self.drop_oldest_journal(id, turn);
        Ok(())
    }

    fn append(&mut self, id: &ConversationId, after: Version, batch: TurnCommit) -> Result<Version, StoreError> {
        let (turn, now) = (batch.turn, self.tick());
        let (turns, found) =
            self.conversations.get(id).map_or((0, 0), |conversation| (conversation.turns, conversation.version()));
        if turn.0 > turns {
            return Err(turn_not_open(id, turn));
        }
        if after.0 != found {
            return Err(StoreError::Conflict { expected: after, found: Version(found) });
        }
        let conversation = self.conversations.entry(id.clone()).or_insert_with(|| MemoryConversation::new(id.clone()));
        let version = conversation.append(batch)?;
        conversation.updated_at = now;
        self.drop_oldest_journal(id, turn);
        self.evict_idle();
        Ok(version)
    }

    /// Registers that a turn has a journal or a trace, and drops those of the oldest turn when there are too many.
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

    /// Removes a tenth of the conversations when there are too many: those with the oldest last write. Conversations
    /// with open turns are never removed.
    fn evict_idle(&mut self) {
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
            "the store in memory is full: the oldest idle conversations are deleted"
        );
        for (_, id) in idle {
            self.conversations.remove(&id);
        }
    }

    /// The conversations that match `keep`, the latest write first.
    fn list(&self, keep: impl Fn(&MemoryConversation) -> bool) -> Vec<ConversationId> {
        let found = self.conversations.iter().filter(|(_, conversation)| keep(conversation));
        let mut found: Vec<_> = found.map(|(id, conversation)| (conversation.updated_at, id)).collect();
        found.sort_unstable_by_key(|(updated_at, _)| std::cmp::Reverse(*updated_at));
        found.into_iter().map(|(_, id)| id.clone()).collect()
    }
}

fn turn_not_open(id: &ConversationId, turn: TurnNumber) -> StoreError {
    StoreError::TurnNotOpen { conversation: id.clone(), turn: turn.0 }
}

/// A ready future.
fn ready_future<'a, T: Send + 'a>(answer: T) -> BoxFuture<'a, T> {
    ready(answer).boxed()
}

impl Store for MemoryStore {
    fn accept(&self, inbound: InboxMessage) -> BoxFuture<'_, Result<AcceptOutcome, StoreError>> {
        ready_future(self.lock().accept(inbound))
    }
    fn load<'a>(&'a self, id: &'a ConversationId) -> BoxFuture<'a, Result<StoredConversation, StoreError>> {
        ready_future(self.read(id, MemoryConversation::load))
    }
    fn append_journal<'a>(
        &'a self,
        id: &'a ConversationId,
        turn: TurnNumber,
        records: Vec<JournalRecord>,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        ready_future(self.lock().append_journal(id, turn, records))
    }
    fn append<'a>(
        &'a self,
        id: &'a ConversationId,
        after: Version,
        batch: TurnCommit,
    ) -> BoxFuture<'a, Result<Version, StoreError>> {
        ready_future(self.lock().append(id, after, batch))
    }
    fn unfinished_turns<'a>(
        &'a self,
        id: &'a ConversationId,
    ) -> BoxFuture<'a, Result<Vec<UnfinishedTurn>, StoreError>> {
        ready_future(self.read(id, |of| of.unfinished_turns_in(&(TurnNumber(0)..TurnNumber(u64::MAX)))))
    }
    fn unfinished_turns_in<'a>(
        &'a self,
        id: &'a ConversationId,
        turns: Range<TurnNumber>,
    ) -> BoxFuture<'a, Result<Vec<UnfinishedTurn>, StoreError>> {
        ready_future(self.read(id, |of| of.unfinished_turns_in(&turns)))
    }
    fn replies_of<'a>(
        &'a self,
        id: &'a ConversationId,
        turn: TurnNumber,
    ) -> BoxFuture<'a, Result<Option<Vec<StoredReply>>, StoreError>> {
        ready_future(self.read(id, |of| of.replies_of(turn)))
    }
    fn conversations_with_work(&self) -> BoxFuture<'_, Result<Vec<ConversationId>, StoreError>> {
        ready_future(Ok(self.lock().list(MemoryConversation::has_work)))
    }
    fn next_reminders(&self, limit: usize) -> BoxFuture<'_, Result<Vec<(ConversationId, Timestamp)>, StoreError>> {
        let state = self.lock();
        let due = state.conversations.iter().filter_map(|(id, conversation)| Some((id.clone(), conversation.due?)));
        let mut found: Vec<(ConversationId, Timestamp)> = due.collect();
        found.sort_unstable_by_key(|(_, due)| *due);
        found.truncate(limit);
        ready_future(Ok(found))
    }
    fn pending_replies<'a>(&'a self, id: &'a ConversationId) -> BoxFuture<'a, Result<Vec<StoredReply>, StoreError>> {
        ready_future(self.read(id, MemoryConversation::pending_replies))
    }
    fn mark_delivered<'a>(
        &'a self,
        id: &'a ConversationId,
        replies: Vec<Arc<str>>,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        if let Some(conversation) = self.lock().conversations.get_mut(id) {
            conversation.mark_delivered(&replies);
        }
        ready_future(Ok(()))
    }
    fn latest_turns<'a>(
        &'a self,
        id: &'a ConversationId,
        before: Option<Version>,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<TurnEvents>, StoreError>> {
        ready_future(self.read(id, |of| of.latest_turns(before, most)))
    }
    fn latest_events<'a>(
        &'a self,
        id: &'a ConversationId,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<Event>, StoreError>> {
        ready_future(self.read(id, |of| of.latest_events(most)))
    }
    fn turns<'a>(&'a self, id: &'a ConversationId) -> BoxFuture<'a, Result<Vec<StoredTurn>, StoreError>> {
        ready_future(self.read(id, MemoryConversation::all_turns))
    }
    fn conversations(&self, limit: usize) -> BoxFuture<'_, Result<Vec<ConversationId>, StoreError>> {
        let mut found = self.lock().list(|_| true);
        found.truncate(limit.min(limits::CONVERSATIONS_LISTED));
        ready_future(Ok(found))
    }
    fn erase<'a>(&'a self, id: &'a ConversationId) -> BoxFuture<'a, Result<(), StoreError>> {
        self.lock().conversations.remove(id);
        ready_future(Ok(()))
    }
    fn purge_expired(&self, at: Timestamp) -> BoxFuture<'_, Result<u64, StoreError>> {
        ready_future(Ok(self
            .lock()
            .conversations
            .values_mut()
            .map(|conversation| conversation.purge_expired(at))
            .sum()))
    }
    fn replies_to_message<'a>(
        &'a self,
        id: &'a ConversationId,
        message: &'a MessageId,
    ) -> BoxFuture<'a, Result<Option<Vec<StoredReply>>, StoreError>> {
        ready_future(self.read(id, |of| of.replies_to_message(message)))
    }
    fn text_by_hash<'a>(
        &'a self,
        id: &'a ConversationId,
        hash: &'a str,
    ) -> BoxFuture<'a, Result<Option<Arc<str>>, StoreError>> {
        ready_future(self.read(id, |of| Ok(of.text_by_hash(hash))))
    }
    fn set_private_text<'a>(
        &'a self,
        id: &'a ConversationId,
        name: &'a str,
        text: Option<String>,
        at: Timestamp,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        if let Some(conversation) = self.lock().conversations.get_mut(id) {
            conversation.set_private_text(name, text, at);
        }
        ready_future(Ok(()))
    }
    fn private_text<'a>(
        &'a self,
        id: &'a ConversationId,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<String>, StoreError>> {
        ready_future(self.read(id, |of| Ok(of.private_text(name))))
    }
    fn ping(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        ready_future(Ok(()))
    }
}

impl MemoryStore {
    /// Makes the events of a conversation unreadable, for tests of corrupt data.
    #[cfg(any(test, debug_assertions, feature = "testing"))]
    pub fn corrupt(&self, id: &ConversationId) {
        if let Some(conversation) = self.lock().conversations.get_mut(id) {
            conversation.is_corrupt = true;
        }
    }
}

#[cfg(test)]
mod tests;
