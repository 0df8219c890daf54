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

use async_trait::async_trait;
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

#[async_trait]
impl Store for MemoryStore {
    async fn accept(&self, inbound: InboxMessage) -> Result<AcceptOutcome, StoreError> {
        self.lock().accept(inbound)
    }
    async fn load(&self, id: &ConversationId) -> Result<StoredConversation, StoreError> {
        self.read(id, MemoryConversation::load)
    }
    async fn append_journal(
        &self,
        id: &ConversationId,
        turn: TurnNumber,
        records: Vec<JournalRecord>,
    ) -> Result<(), StoreError> {
        self.lock().append_journal(id, turn, records)
    }
    async fn append(&self, id: &ConversationId, after: Version, batch: TurnCommit) -> Result<Version, StoreError> {
        self.lock().append(id, after, batch)
    }
    async fn unfinished_turns(&self, id: &ConversationId) -> Result<Vec<UnfinishedTurn>, StoreError> {
        self.read(id, |of| of.unfinished_turns_in(&(TurnNumber(0)..TurnNumber(u64::MAX))))
    }
    async fn unfinished_turns_in(
        &self,
        id: &ConversationId,
        turns: Range<TurnNumber>,
    ) -> Result<Vec<UnfinishedTurn>, StoreError> {
        self.read(id, |of| of.unfinished_turns_in(&turns))
    }
    async fn replies_of(&self, id: &ConversationId, turn: TurnNumber) -> Result<Option<Vec<StoredReply>>, StoreError> {
        self.read(id, |of| of.replies_of(turn))
    }
    async fn conversations_with_work(&self) -> Result<Vec<ConversationId>, StoreError> {
        Ok(self.lock().list(MemoryConversation::has_work))
    }
    async fn next_reminders(&self, limit: usize) -> Result<Vec<(ConversationId, Timestamp)>, StoreError> {
        let state = self.lock();
        let due = state.conversations.iter().filter_map(|(id, conversation)| Some((id.clone(), conversation.due?)));
        let mut found: Vec<(ConversationId, Timestamp)> = due.collect();
        found.sort_unstable_by_key(|(_, due)| *due);
        found.truncate(limit);
        Ok(found)
    }
    async fn pending_replies(&self, id: &ConversationId) -> Result<Vec<StoredReply>, StoreError> {
        self.read(id, MemoryConversation::pending_replies)
    }
    async fn mark_delivered(&self, id: &ConversationId, replies: Vec<Arc<str>>) -> Result<(), StoreError> {
        if let Some(conversation) = self.lock().conversations.get_mut(id) {
            conversation.mark_delivered(&replies);
        }
        Ok(())
    }
    async fn latest_turns(
        &self,
        id: &ConversationId,
        before: Option<Version>,
        most: usize,
    ) -> Result<Vec<TurnEvents>, StoreError> {
        self.read(id, |of| of.latest_turns(before, most))
    }
    async fn latest_events(&self, id: &ConversationId, most: usize) -> Result<Vec<Event>, StoreError> {
        self.read(id, |of| of.latest_events(most))
    }
    async fn turn(&self, id: &ConversationId, turn: TurnNumber) -> Result<Option<StoredTurn>, StoreError> {
        self.read(id, |of| of.turn(turn))
    }
    async fn turns(&self, id: &ConversationId) -> Result<Vec<StoredTurn>, StoreError> {
        self.read(id, MemoryConversation::all_turns)
    }
    async fn conversations(&self, limit: usize) -> Result<Vec<ConversationId>, StoreError> {
        let mut found = self.lock().list(|_| true);
        found.truncate(limit.min(limits::CONVERSATIONS_LISTED));
        Ok(found)
    }
    async fn erase(&self, id: &ConversationId) -> Result<(), StoreError> {
        self.lock().conversations.remove(id);
        Ok(())
    }
    async fn purge_expired(&self, at: Timestamp) -> Result<u64, StoreError> {
        Ok(self.lock().conversations.values_mut().map(|conversation| conversation.purge_expired(at)).sum())
    }
    async fn replies_to_message(
        &self,
        id: &ConversationId,
        message: &MessageId,
    ) -> Result<Option<Vec<StoredReply>>, StoreError> {
        self.read(id, |of| of.replies_to_message(message))
    }
    async fn text_by_hash(&self, id: &ConversationId, hash: &str) -> Result<Option<Arc<str>>, StoreError> {
        self.read(id, |of| Ok(of.text_by_hash(hash)))
    }
    async fn set_private_text(
        &self,
        id: &ConversationId,
        name: &str,
        text: Option<String>,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        if let Some(conversation) = self.lock().conversations.get_mut(id) {
            conversation.set_private_text(name, text, at);
        }
        Ok(())
    }
    async fn private_text(&self, id: &ConversationId, name: &str) -> Result<Option<String>, StoreError> {
        self.read(id, |of| Ok(of.private_text(name)))
    }
    async fn ping(&self) -> Result<(), StoreError> {
        Ok(())
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
