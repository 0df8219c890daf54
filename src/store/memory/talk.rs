//! One conversation in memory.

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use segue_engine::{
    conversation::codec,
    ids::{ConversationId, MessageId},
    time::Timestamp,
};

use super::squeeze;
use crate::{
    limits,
    store::{
        Accepted, Batch, Body, Inbound, JournalRecord, StoreError, Stored, StoredEvents, StoredReply, StoredTurn,
        TurnNumber, Unfinished, Version, inbox, merge_journal,
    },
};

/// All that is kept of a conversation.
#[derive(Default)]
pub(super) struct Talk {
    /// How many turns were accepted.
    pub(super) turns: u64,
    /// When it was last written to, counted in writes of the whole store.
    pub(super) touched: u64,
    inbox: Vec<Entry>,
    /// Batch `n` stands at `n - 1`.
    batches: Vec<Kept>,
    /// Encoded and squeezed, with the number of the batch after which it was taken.
    snapshot: Option<(u64, Box<[u8]>)>,
    /// Replies that wait for delivery: batch and id.
    pending: Vec<(u64, Arc<str>)>,
    /// Journals and traces of the latest turns.
    records: Vec<Records>,
    bodies: Vec<Body>,
    /// When its earliest reminder is due.
    pub(super) due: Option<Timestamp>,
    /// Private texts by name, each with the time it was kept.
    private: BTreeMap<Box<str>, (Timestamp, String)>,
}

/// An accepted message.
struct Entry {
    turn: u64,
    /// The batch that answered it; 0 while it is open.
    batch: u64,
    /// Hash of its duplicate key; 0 without one. Saves unpacking all messages to find one.
    key: u64,
    /// Packed and squeezed.
    message: Box<[u8]>,
}

/// A batch.
struct Kept {
    turn: u64,
    /// Bytes of the encoded events.
    events: usize,
    /// Encoded events, then encoded replies, squeezed as one: they repeat each other.
    squeezed: Box<[u8]>,
}

/// Makes room for one more, and for a quarter more than there are: most talks are short, and doubling would waste half.
fn grow<T>(list: &mut Vec<T>) {
    if list.len() == list.capacity() {
        list.reserve_exact(1 + list.len() / 4);
    }
}

impl Entry {
    fn message(&self, id: &ConversationId) -> Result<Inbound, StoreError> {
        let packed = squeeze::stretch(&self.message);
        inbox::unpack(id, &packed.ok_or_else(|| StoreError::damaged(id, "a message cannot be read"))?)
    }
}

impl Kept {
    /// Encoded events and replies.
    fn records(&self, id: &ConversationId) -> Result<(Vec<u8>, Vec<u8>), StoreError> {
        let mut events = squeeze::stretch(&self.squeezed).filter(|both| both.len() >= self.events);
        let replies = events.as_mut().map(|events| events.split_off(self.events));
        events.zip(replies).ok_or_else(|| StoreError::damaged(id, "a batch cannot be read"))
    }
}

/// What is kept of a turn for a while only.
struct Records {
    turn: u64,
    /// In the order of their steps: the latest record of each.
    journal: Vec<JournalRecord>,
    trace: Option<String>,
}

impl Talk {
    pub(super) fn is_empty(&self) -> bool {
        self.turns == 0 && self.batches.is_empty()
    }

    pub(super) fn is_waiting(&self) -> bool {
        !self.pending.is_empty() || self.inbox.iter().any(|entry| entry.batch == 0)
    }

    fn version(&self) -> u64 {
        self.batches.len() as u64
    }

    pub(super) fn accept(&mut self, inbound: &Inbound) -> Result<Accepted, StoreError> {
        let key = inbox::duplicate_key(inbound);
        let hash = key.as_deref().map_or(0, inbox::mark);
        if let Some(key) = &key {
            for entry in self.inbox.iter().rev().filter(|entry| entry.key == hash) {
                let earlier = entry.message(&inbound.conversation)?;
                let same = inbox::duplicate_key(&earlier).as_ref() == Some(key);
                if !same || (entry.batch > 0 && inbox::is_forgotten(earlier.at, inbound.at)) {
                    continue;
                }
                let turn = TurnNumber(entry.turn);
                return Ok(match entry.batch {
                    0 => Accepted::Running(turn),
                    batch => Accepted::Answered(turn, self.replies(&inbound.conversation, batch)?),
                });
            }
        }
        let message = squeeze::squeeze(&inbox::pack(inbound)?);
        // Turn 1 says that there is nothing to load: imported batches have no turns.
        self.turns = self.turns.max(u64::from(!self.batches.is_empty())) + 1;
        grow(&mut self.inbox);
        self.inbox.push(Entry { turn: self.turns, batch: 0, key: hash, message });
        Ok(Accepted::New(TurnNumber(self.turns)))
    }

    pub(super) fn load(&self, id: &ConversationId) -> Result<Stored, StoreError> {
        // A snapshot that cannot be read is no loss: the events fold to the same.
        let snapshot = self.snapshot.as_ref().and_then(|(after, record)| {
            Some((*after, codec::decode_snapshot(id, *after, &squeeze::stretch(record)?).ok()?))
        });
        let after = snapshot.as_ref().map_or(0, |(after, _)| *after);
        let mut tail = Vec::new();
        for number in after + 1..=self.version() {
            tail.extend(self.events(id, number)?);
        }
        Ok(Stored { snapshot: snapshot.map(|(_, snapshot)| snapshot), tail, version: Version(self.version()) })
    }

    fn batch(&self, number: u64) -> Option<&Kept> {
        self.batches.get(usize::try_from(number.checked_sub(1)?).ok()?)
    }

    fn events(&self, id: &ConversationId, number: u64) -> Result<Vec<segue_engine::conversation::Event>, StoreError> {
        let Some(batch) = self.batch(number) else { return Ok(Vec::new()) };
        let (events, _) = batch.records(id)?;
        codec::decode_events(id, number, &events).map_err(|e| StoreError::damaged(id, e))
    }

    fn replies(&self, id: &ConversationId, number: u64) -> Result<Vec<StoredReply>, StoreError> {
        let Some(batch) = self.batch(number) else { return Ok(Vec::new()) };
        let (_, replies) = batch.records(id)?;
        if replies.is_empty() {
            return Ok(Vec::new());
        }
        codec::open(id.as_str(), number, &replies).map_err(|e| StoreError::damaged(id, e))
    }

    pub(super) fn append(&mut self, id: &ConversationId, after: Version, batch: Batch) -> Result<Version, StoreError> {
        if after.0 != self.version() {
            return Err(StoreError::Conflict { expected: after, found: Version(self.version()) });
        }
        if batch.turn.0 > 0 && !self.is_open(batch.turn) {
            return Err(StoreError::NotAccepted { conversation: id.clone(), turn: batch.turn.0 });
        }
        let number = after.0 + 1;
        let damaged = |e| StoreError::damaged(id, e);
        // Everything that can fail comes first: all or nothing.
        let mut record = codec::encode_events(id, number, &batch.events).map_err(damaged)?;
        let events = record.len();
        if !batch.replies.is_empty() {
            let replies = codec::seal(id.as_str(), number, &batch.replies, 128 * batch.replies.len());
            record.extend(replies.map_err(damaged)?);
        }
        let snapshot = batch.snapshot.map(|snapshot| codec::encode_snapshot(number, &snapshot)).transpose();
        if let Some(snapshot) = snapshot.map_err(damaged)? {
            self.snapshot = Some((number, squeeze::squeeze(&snapshot)));
        }
        grow(&mut self.batches);
        self.batches.push(Kept { turn: batch.turn.0, events, squeezed: squeeze::squeeze(&record) });
        let waiting = batch.replies.into_iter().map(|reply| reply.id).filter(|id| !batch.delivered.contains(id));
        self.pending.extend(waiting.map(|id| (number, id)));
        let given_up = self.pending.len().saturating_sub(limits::OUTBOX);
        self.pending.drain(..given_up);
        for entry in self.inbox.iter_mut().filter(|entry| entry.batch == 0) {
            if entry.turn == batch.turn.0 || batch.also.contains(&TurnNumber(entry.turn)) {
                entry.batch = number;
            }
        }
        for body in batch.bodies {
            if self.body(&body.hash).is_none() {
                self.bodies.push(body);
            }
        }
        if !batch.journal.is_empty() || batch.trace.is_some() {
            self.record(batch.turn, batch.journal);
            if let Some(records) = self.records.iter_mut().find(|records| records.turn == batch.turn.0) {
                records.trace = batch.trace;
            }
        }
        if let Some(due) = batch.timer {
            self.due = due;
        }
        Ok(Version(number))
    }

    /// Whether a turn was accepted and not answered.
    pub(super) fn is_open(&self, turn: TurnNumber) -> bool {
        self.inbox.iter().any(|entry| entry.turn == turn.0 && entry.batch == 0)
    }

    /// Whether the step of a record stands in the journal of an open turn already, written by the same build.
    pub(super) fn has_begun(&self, turn: TurnNumber, record: &JournalRecord) -> bool {
        let same = |known: &JournalRecord| known.key == record.key && known.build == record.build;
        self.journal_of(turn.0).is_some_and(|records| records.journal.iter().any(same))
    }

    /// Adds records of a turn.
    pub(super) fn record(&mut self, turn: TurnNumber, journal: Vec<JournalRecord>) {
        match self.records.iter_mut().find(|records| records.turn == turn.0) {
            Some(records) => merge_journal(&mut records.journal, journal),
            None => {
                let mut kept = Vec::new();
                merge_journal(&mut kept, journal);
                self.records.push(Records { turn: turn.0, journal: kept, trace: None });
            }
        }
    }

    /// Takes journal and trace of a turn away, unless it is still open.
    pub(super) fn forget(&mut self, turn: TurnNumber) {
        if self.is_open(turn) {
            return;
        }
        self.records.retain(|records| records.turn != turn.0);
        self.records.shrink_to_fit();
        if self.records.is_empty() {
            // Nothing is left that could refer to them.
            self.bodies = Vec::new();
        }
    }

    pub(super) fn open_turns(
        &self,
        id: &ConversationId,
        turns: &Range<TurnNumber>,
    ) -> Result<Vec<Unfinished>, StoreError> {
        let open = self.inbox.iter().filter(|entry| entry.batch == 0 && turns.contains(&TurnNumber(entry.turn)));
        open.map(|entry| {
            Ok(Unfinished {
                turn: TurnNumber(entry.turn),
                inbound: entry.message(id)?,
                journal: self.journal_of(entry.turn).map(|records| records.journal.clone()).unwrap_or_default(),
            })
        })
        .collect()
    }

    fn journal_of(&self, turn: u64) -> Option<&Records> {
        self.records.iter().find(|records| records.turn == turn)
    }

    pub(super) fn undelivered(&self, id: &ConversationId) -> Result<Vec<StoredReply>, StoreError> {
        let mut waiting: BTreeMap<u64, Vec<&Arc<str>>> = BTreeMap::new();
        self.pending.iter().for_each(|(batch, reply)| waiting.entry(*batch).or_default().push(reply));
        let mut found = Vec::new();
        for (batch, ids) in waiting {
            found.extend(self.replies(id, batch)?.into_iter().filter(|reply| ids.contains(&&reply.id)));
        }
        Ok(found)
    }

    pub(super) fn delivered(&mut self, replies: &[Arc<str>]) {
        self.pending.retain(|(_, id)| !replies.contains(id));
        if self.pending.is_empty() {
            self.pending = Vec::new();
        }
    }

    /// The newest events, oldest first; batches are read from the newest until there are enough.
    pub(super) fn latest_events(
        &self,
        id: &ConversationId,
        most: usize,
    ) -> Result<Vec<segue_engine::conversation::Event>, StoreError> {
        let (mut batches, mut count) = (Vec::new(), 0);
        for number in (1..=self.version()).rev() {
            if count >= most {
                break;
            }
            let events = self.events(id, number)?;
            count += events.len();
            batches.push(events);
        }
        Ok(super::super::newest(batches, most))
    }

    /// The events of the newest batches before a version, newest first.
    pub(super) fn latest_turns(
        &self,
        id: &ConversationId,
        before: Option<Version>,
        most: usize,
    ) -> Result<Vec<StoredEvents>, StoreError> {
        let before = before.map_or(self.version() + 1, |before| before.0);
        let numbers = (1..before.min(self.version() + 1)).rev().take(most);
        let read = |number| {
            let turn = TurnNumber(self.batch(number).map_or(0, |batch| batch.turn));
            Ok(StoredEvents { version: Version(number), turn, events: self.events(id, number)? })
        };
        numbers.map(read).collect()
    }

    pub(super) fn all_turns(&self, id: &ConversationId) -> Result<Vec<StoredTurn>, StoreError> {
        let numbered = (1..).zip(&self.batches);
        numbered
            .map(|(number, batch)| {
                let events = self.events(id, number)?;
                let entry = self.inbox.iter().find(|entry| entry.turn == batch.turn);
                let inbound = match entry {
                    Some(entry) => entry.message(id)?,
                    None => inbox::from_events(id, &events),
                };
                let records = (batch.turn > 0).then(|| self.journal_of(batch.turn)).flatten();
                Ok(StoredTurn {
                    turn: TurnNumber(batch.turn),
                    inbound,
                    events,
                    replies: self.replies(id, number)?,
                    journal: records.map(|records| records.journal.clone()).unwrap_or_default(),
                    trace: records.and_then(|records| records.trace.clone()),
                })
            })
            .collect()
    }

    /// Takes away what is past its retention; how many records went.
    pub(super) fn expire(&mut self, now: Timestamp) -> u64 {
        let before = self.inbox.len() + self.records.len();
        let id = ConversationId::from("");
        let mut old = Vec::new();
        self.inbox.retain(|entry| {
            let gone = entry.batch > 0 && entry.message(&id).is_ok_and(|inbound| inbox::is_expired(inbound.at, now));
            if gone {
                old.push(entry.turn);
            }
            !gone
        });
        self.private.retain(|_, (at, _)| !inbox::is_expired(*at, now));
        self.records.retain(|records| !old.contains(&records.turn));
        if self.records.is_empty() {
            self.bodies = Vec::new();
        }
        (before - self.inbox.len() - self.records.len()) as u64
    }

    pub(super) fn answered(
        &self,
        id: &ConversationId,
        message: &MessageId,
    ) -> Result<Option<Vec<StoredReply>>, StoreError> {
        for entry in self.inbox.iter().rev().filter(|entry| entry.batch > 0) {
            if entry.message(id)?.message.message_id == *message {
                return self.replies(id, entry.batch).map(Some);
            }
        }
        Ok(None)
    }

    pub(super) fn keep_private(&mut self, name: &str, text: Option<String>, at: Timestamp) {
        match text {
            Some(text) => _ = self.private.insert(name.into(), (at, text)),
            None => _ = self.private.remove(name),
        }
    }

    pub(super) fn private(&self, name: &str) -> Option<String> {
        self.private.get(name).map(|(_, text)| text.clone())
    }

    /// The newest entries first: whoever asks has just had the turn.
    pub(super) fn replies_of(
        &self,
        id: &ConversationId,
        turn: TurnNumber,
    ) -> Result<Option<Vec<StoredReply>>, StoreError> {
        let entry = self.inbox.iter().rev().find(|entry| entry.turn == turn.0);
        entry.filter(|entry| entry.batch > 0).map(|entry| self.replies(id, entry.batch)).transpose()
    }

    pub(super) fn body(&self, hash: &str) -> Option<Arc<str>> {
        self.bodies.iter().find(|body| *body.hash == *hash).map(|body| body.text.clone())
    }

    #[cfg(any(test, feature = "testing"))]
    pub(super) fn damage(&mut self) {
        if let Some(byte) = self.batches.last_mut().and_then(|batch| batch.squeezed.first_mut()) {
            *byte ^= 1;
        }
    }
}
