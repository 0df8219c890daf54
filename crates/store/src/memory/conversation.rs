//! One conversation in memory.

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use segue_base::limits;
use segue_engine::{
    conversation::{Conversation, Event},
    ids::{ConversationId, MessageId},
    time::Timestamp,
};

use crate::{
    AcceptOutcome, InboxMessage, JournalRecord, StoreError, StoredConversation, StoredReply, StoredText, StoredTurn,
    TurnCommit, TurnEvents, TurnNumber, UnfinishedTurn, Version, dedup, merge_journal, newest_events,
};

/// A conversation in memory.
pub(super) struct MemoryConversation {
    id: ConversationId,
    /// How many turns were accepted.
    pub(super) turns: u64,
    /// The write counter of the store at its last write.
    pub(super) updated_at: u64,
    inbox: Vec<InboxEntry>,
    /// Commit `n` is at index `n - 1`.
    batches: Vec<StoredTurnCommit>,
    /// The snapshot, with the number of the commit it includes.
    snapshot: Option<(u64, Conversation)>,
    /// Undelivered replies: number of the commit and reply id.
    pending: Vec<(u64, Arc<str>)>,
    /// Journals and traces of the latest turns.
    records: BTreeMap<u64, TurnRecords>,
    texts: Vec<StoredText>,
    /// When its earliest reminder is due.
    pub(super) due: Option<Timestamp>,
    /// Private texts by name, each with the time it was stored.
    private: BTreeMap<Box<str>, (Timestamp, String)>,
    /// Set by tests: reading the events fails.
    pub(super) is_corrupt: bool,
}

/// An accepted message.
struct InboxEntry {
    turn: u64,
    /// The commit that answered it; 0 while it is open.
    batch: u64,
    /// Its deduplication key; `None` without a message id.
    dedup_key: Option<String>,
    inbound: InboxMessage,
}

/// A committed turn.
struct StoredTurnCommit {
    turn: u64,
    events: Vec<Event>,
    replies: Vec<StoredReply>,
}

/// The parts of a turn that have a limited retention.
#[derive(Default)]
struct TurnRecords {
    /// The latest record of each step.
    journal: Vec<JournalRecord>,
    trace: Option<String>,
}

impl MemoryConversation {
    pub(super) fn new(id: ConversationId) -> Self {
        Self {
            id,
            turns: 0,
            updated_at: 0,
            inbox: Vec::new(),
            batches: Vec::new(),
            snapshot: None,
            pending: Vec::new(),
            records: BTreeMap::new(),
            texts: Vec::new(),
            due: None,
            private: BTreeMap::new(),
            is_corrupt: false,
        }
    }

    pub(super) fn has_open_turns(&self) -> bool {
        self.inbox.iter().any(|entry| entry.batch == 0)
    }

    pub(super) fn has_work(&self) -> bool {
        !self.pending.is_empty() || self.has_open_turns()
    }

    /// Whether a turn is open: accepted and not answered.
    pub(super) fn is_open(&self, turn: TurnNumber) -> bool {
        self.inbox.iter().any(|entry| entry.turn == turn.0 && entry.batch == 0)
    }

    pub(super) fn version(&self) -> u64 {
        self.batches.len() as u64
    }

    pub(super) fn accept(&mut self, inbound: InboxMessage) -> Result<AcceptOutcome, StoreError> {
        let dedup_key = dedup::dedup_key(&inbound);
        let same = |entry: &&InboxEntry| {
            let is_remembered = entry.batch == 0 || !dedup::is_past_dedup_window(entry.inbound.at, inbound.at);
            dedup_key.is_some() && entry.dedup_key == dedup_key && is_remembered
        };
        if let Some(earlier) = self.inbox.iter().rev().find(same) {
            let turn = TurnNumber(earlier.turn);
            return Ok(match earlier.batch {
                0 => AcceptOutcome::Running(turn),
                batch => AcceptOutcome::Answered(turn, self.replies(batch)),
            });
        }
        // Turn 1 means that there is nothing to load, and imported commits have no turns.
        self.turns = self.turns.max(u64::from(!self.batches.is_empty())) + 1;
        self.inbox.push(InboxEntry { turn: self.turns, batch: 0, dedup_key, inbound });
        Ok(AcceptOutcome::New(TurnNumber(self.turns)))
    }

    fn readable(&self) -> Result<(), StoreError> {
        if self.is_corrupt { Err(StoreError::corrupt(&self.id, "made corrupt by a test")) } else { Ok(()) }
    }

    pub(super) fn load(&self) -> Result<StoredConversation, StoreError> {
        self.readable()?;
        let after = self.snapshot.as_ref().map_or(0, |(after, _)| *after);
        let later = self.batches.iter().skip(usize::try_from(after).unwrap_or(usize::MAX));
        Ok(StoredConversation {
            snapshot: self.snapshot.as_ref().map(|(_, snapshot)| snapshot.clone()),
            tail: later.flat_map(|batch| batch.events.iter().cloned()).collect(),
            version: Version(self.version()),
        })
    }

    fn replies(&self, number: u64) -> Vec<StoredReply> {
        let batch = number.checked_sub(1).and_then(|at| self.batches.get(usize::try_from(at).ok()?));
        batch.map(|batch| batch.replies.clone()).unwrap_or_default()
    }

    pub(super) fn append(&mut self, batch: TurnCommit) -> Result<Version, StoreError> {
        if batch.turn.0 > 0 && !self.is_open(batch.turn) {
            return Err(StoreError::TurnNotOpen { conversation: self.id.clone(), turn: batch.turn.0 });
        }
        let number = self.version() + 1;
        if let Some(snapshot) = batch.snapshot {
            self.snapshot = Some((number, snapshot));
        }
        let waiting = batch.replies.iter().map(|reply| &reply.id).filter(|id| !batch.delivered.contains(id));
        self.pending.extend(waiting.map(|id| (number, id.clone())));
        let given_up = self.pending.len().saturating_sub(limits::OUTBOX);
        self.pending.drain(..given_up);
        let answered = self.inbox.iter_mut().filter(|entry| entry.batch == 0 && entry.turn == batch.turn.0);
        answered.for_each(|entry| entry.batch = number);
        for body in batch.texts {
            if self.text_by_hash(&body.hash).is_none() {
                self.texts.push(body);
            }
        }
        if !batch.journal.is_empty() || batch.trace.is_some() {
            let records = self.records.entry(batch.turn.0).or_default();
            merge_journal(&mut records.journal, batch.journal);
            records.trace = batch.trace;
        }
        if let Some(due) = batch.next_reminder {
            self.due = due;
        }
        self.batches.push(StoredTurnCommit { turn: batch.turn.0, events: batch.events, replies: batch.replies });
        Ok(Version(number))
    }

    /// Whether the journal of an open turn already has a record of this step from the same build.
    pub(super) fn has_begun(&self, turn: TurnNumber, record: &JournalRecord) -> bool {
        let same = |known: &JournalRecord| known.key == record.key && known.build == record.build;
        self.records.get(&turn.0).is_some_and(|records| records.journal.iter().any(same))
    }

    /// Adds records of a turn.
    pub(super) fn add_records(&mut self, turn: TurnNumber, journal: Vec<JournalRecord>) {
        merge_journal(&mut self.records.entry(turn.0).or_default().journal, journal);
    }

    /// Drops journal and trace of a turn, unless it is open.
    pub(super) fn drop_journal(&mut self, turn: TurnNumber) {
        if self.is_open(turn) {
            return;
        }
        self.records.remove(&turn.0);
        self.drop_unused_texts();
    }

    fn drop_unused_texts(&mut self) {
        if self.records.is_empty() {
            // Only journals and traces refer to texts.
            self.texts = Vec::new();
        }
    }

    pub(super) fn unfinished_turns_in(&self, turns: &Range<TurnNumber>) -> Result<Vec<UnfinishedTurn>, StoreError> {
        let open = self.inbox.iter().filter(|entry| entry.batch == 0 && turns.contains(&TurnNumber(entry.turn)));
        let unfinished = open.map(|entry| UnfinishedTurn {
            turn: TurnNumber(entry.turn),
            inbound: entry.inbound.clone(),
            journal: self.records.get(&entry.turn).map(|records| records.journal.clone()).unwrap_or_default(),
        });
        Ok(unfinished.collect())
    }

    pub(super) fn pending_replies(&self) -> Result<Vec<StoredReply>, StoreError> {
        let numbered = (1..).zip(&self.batches);
        let replies = numbered.flat_map(|(number, batch)| batch.replies.iter().map(move |reply| (number, reply)));
        let waits = |(number, reply): &(u64, &StoredReply)| {
            self.pending.iter().any(|(batch, id)| batch == number && *id == reply.id)
        };
        Ok(replies.filter(waits).map(|(_, reply)| reply.clone()).collect())
    }

    pub(super) fn mark_delivered(&mut self, replies: &[Arc<str>]) {
        self.pending.retain(|(_, id)| !replies.contains(id));
    }

    /// The newest events, oldest first.
    pub(super) fn latest_events(&self, most: usize) -> Result<Vec<Event>, StoreError> {
        self.readable()?;
        Ok(newest_events(self.batches.iter().rev().map(|batch| batch.events.clone()).collect(), most))
    }

    /// The events of the newest commits before a version, newest first.
    pub(super) fn latest_turns(&self, before: Option<Version>, most: usize) -> Result<Vec<TurnEvents>, StoreError> {
        self.readable()?;
        let numbered = self.batches.iter().enumerate().rev().map(|(at, batch)| (Version(at as u64 + 1), batch));
        let earlier = numbered.filter(|(version, _)| before.is_none_or(|before| *version < before)).take(most);
        let events = earlier.map(|(version, batch)| TurnEvents {
            version,
            turn: TurnNumber(batch.turn),
            events: batch.events.clone(),
        });
        Ok(events.collect())
    }

    pub(super) fn all_turns(&self) -> Result<Vec<StoredTurn>, StoreError> {
        self.readable()?;
        Ok(self.batches.iter().map(|batch| self.stored_turn(batch)).collect())
    }

    pub(super) fn turn(&self, turn: TurnNumber) -> Result<Option<StoredTurn>, StoreError> {
        self.readable()?;
        let batch = self.batches.iter().find(|batch| turn.0 > 0 && batch.turn == turn.0);
        Ok(batch.map(|batch| self.stored_turn(batch)))
    }

    fn stored_turn(&self, batch: &StoredTurnCommit) -> StoredTurn {
        let entry = self.inbox.iter().find(|entry| entry.turn == batch.turn);
        let inbound = entry.map(|entry| entry.inbound.clone());
        let records = self.records.get(&batch.turn).filter(|_| batch.turn > 0);
        StoredTurn {
            turn: TurnNumber(batch.turn),
            inbound: inbound.unwrap_or_else(|| dedup::from_events(&self.id, &batch.events)),
            events: batch.events.clone(),
            replies: batch.replies.clone(),
            journal: records.map(|records| records.journal.clone()).unwrap_or_default(),
            trace: records.and_then(|records| records.trace.clone()),
        }
    }

    /// Deletes what is past its retention; returns how many records were deleted.
    pub(super) fn purge_expired(&mut self, now: Timestamp) -> u64 {
        let before = self.inbox.len() + self.records.len();
        let records = &mut self.records;
        self.inbox.retain(|entry| {
            let gone = entry.batch > 0 && dedup::is_expired(entry.inbound.at, now);
            if gone {
                records.remove(&entry.turn);
            }
            !gone
        });
        self.private.retain(|_, (at, _)| !dedup::is_expired(*at, now));
        self.drop_unused_texts();
        (before - self.inbox.len() - self.records.len()) as u64
    }

    pub(super) fn replies_to_message(&self, message: &MessageId) -> Result<Option<Vec<StoredReply>>, StoreError> {
        let mut answered = self.inbox.iter().rev().filter(|entry| entry.batch > 0);
        let found = answered.find(|entry| entry.inbound.message.message_id == *message);
        Ok(found.map(|entry| self.replies(entry.batch)))
    }

    pub(super) fn set_private_text(&mut self, name: &str, text: Option<String>, at: Timestamp) {
        match text {
            Some(text) => _ = self.private.insert(name.into(), (at, text)),
            None => _ = self.private.remove(name),
        }
    }

    pub(super) fn private_text(&self, name: &str) -> Option<String> {
        self.private.get(name).map(|(_, text)| text.clone())
    }

    pub(super) fn replies_of(&self, turn: TurnNumber) -> Result<Option<Vec<StoredReply>>, StoreError> {
        let entry = self.inbox.iter().rev().find(|entry| entry.turn == turn.0);
        Ok(entry.filter(|entry| entry.batch > 0).map(|entry| self.replies(entry.batch)))
    }

    pub(super) fn text_by_hash(&self, hash: &str) -> Option<Arc<str>> {
        self.texts.iter().find(|body| *body.hash == *hash).map(|body| body.text.clone())
    }
}
