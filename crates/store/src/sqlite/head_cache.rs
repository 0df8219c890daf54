//! A cache of conversation heads: what the writer must know before it writes, kept in memory between transactions.
//!
//! It is cleared whenever it could be stale: after a failed transaction, and when another process wrote to the file.

use std::{collections::HashMap, sync::Arc};

use rusqlite::{OptionalExtension, Row, Statement, params, types::ValueRef};
use segue_base::limits;
use segue_engine::{ids::ConversationId, time::Timestamp};

use super::SqlU64;

/// The head of one conversation.
#[derive(Clone, Debug, Default)]
pub(super) struct ConversationHead {
    /// The number that refers to the conversation in all tables.
    pub(super) number: i64,
    pub(super) version: u64,
    /// How many turns were accepted.
    pub(super) turns: u64,
    /// Open turns: number, and time of acceptance in microseconds.
    pub(super) open: Vec<(u64, i64)>,
    /// Undelivered replies: version and reply id, oldest first.
    pub(super) pending: Vec<(u64, Arc<str>)>,
    /// The time of the latest input.
    pub(super) updated_at: i64,
    /// Whether it differs from its row.
    dirty: bool,
    /// Whether it has a row.
    stored: bool,
}

impl ConversationHead {
    pub(super) fn is_open(&self, turn: u64) -> bool {
        self.open.iter().any(|(open, _)| *open == turn)
    }

    pub(super) fn touch(&mut self, at: Timestamp) {
        self.updated_at = self.updated_at.max(at.as_micros());
    }

    /// Adds undelivered replies, and drops the oldest beyond the limit.
    pub(super) fn add_pending(&mut self, replies: &[Arc<str>]) {
        self.pending.extend(replies.iter().map(|id| (self.version, id.clone())));
        let given_up = self.pending.len().saturating_sub(limits::OUTBOX);
        self.pending.drain(..given_up);
    }

    /// The columns that [`ConversationHead::read`] reads.
    pub(super) const COLUMNS: &str = "version, turns, open, pending, updated_at, number";

    /// The query for one conversation by its name.
    pub(super) const QUERY: &str =
        "SELECT version, turns, open, pending, updated_at, number FROM conversations WHERE tenant = '' AND id = ?1";

    /// Decodes a row. The inner error says why it is corrupt.
    pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Result<Self, String>> {
        let columns =
            [row.get_ref(0)?, row.get_ref(1)?, row.get_ref(2)?, row.get_ref(3)?, row.get_ref(4)?, row.get_ref(5)?];
        Ok(Self::parse(columns))
    }

    fn parse([version, turns, open, pending, updated_at, number]: [ValueRef<'_>; 6]) -> Result<Self, String> {
        let wrong = |e: rusqlite::types::FromSqlError| e.to_string();
        Ok(Self {
            version: version.as_i64().map_err(wrong)?.cast_unsigned(),
            turns: turns.as_i64().map_err(wrong)?.cast_unsigned(),
            open: parse_list(open.as_str().map_err(wrong)?)?,
            pending: parse_list(pending.as_str().map_err(wrong)?)?,
            updated_at: updated_at.as_i64().map_err(wrong)?,
            number: number.as_i64().map_err(wrong)?,
            dirty: false,
            stored: true,
        })
    }
}

/// An empty list is stored as an empty text: most heads have neither list.
fn parse_list<T: serde::de::DeserializeOwned>(text: &str) -> Result<Vec<T>, String> {
    if text.is_empty() { Ok(Vec::new()) } else { serde_json::from_str(text).map_err(|e| e.to_string()) }
}

fn list_text<T: serde::Serialize>(list: &[T]) -> String {
    // Numbers and texts can always be encoded.
    if list.is_empty() { String::new() } else { serde_json::to_string(list).unwrap_or_default() }
}

/// The cached heads, and the statements that read and write them.
pub(super) struct HeadCache<'c> {
    heads: HashMap<ConversationId, ConversationHead>,
    dirty: Vec<ConversationId>,
    /// The number of the next new conversation; 0 while it is unknown.
    next_number: i64,
    select: Statement<'c>,
    last_number: Statement<'c>,
    upsert: Statement<'c>,
    update: Statement<'c>,
}

impl<'c> HeadCache<'c> {
    pub(super) fn new(connection: &'c rusqlite::Connection) -> rusqlite::Result<Self> {
        Ok(Self {
            heads: HashMap::new(),
            dirty: Vec::new(),
            next_number: 0,
            select: connection.prepare(ConversationHead::QUERY)?,
            last_number: connection
                .prepare("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'conversations'")?,
            upsert: connection.prepare(
                "INSERT INTO conversations (number, id, version, turns, open, pending, updated_at)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
                 ON CONFLICT (number) DO UPDATE SET version = excluded.version, turns = excluded.turns,
                 open = excluded.open, pending = excluded.pending, updated_at = excluded.updated_at",
            )?,
            // Every turn updates its head three times. Unlike the upsert, this does not check for another row with the
            // same id.
            update: connection.prepare(
                "UPDATE conversations SET version = ?2, turns = ?3, open = ?4, pending = ?5, updated_at = ?6
                 WHERE number = ?1",
            )?,
        })
    }

    /// The head of a conversation; an empty one if the conversation is not stored. The inner error says why its row is
    /// corrupt.
    pub(super) fn get(&mut self, id: &ConversationId) -> rusqlite::Result<Result<&ConversationHead, String>> {
        if !self.heads.contains_key(id) {
            let row = self.select.query_row([id.as_str()], ConversationHead::read);
            match row.optional()? {
                Some(Ok(head)) => self.heads.insert(id.clone(), head),
                Some(Err(reason)) => return Ok(Err(reason)),
                None => {
                    let number = self.take_number()?;
                    self.heads.insert(id.clone(), ConversationHead { number, ..ConversationHead::default() })
                }
            };
        }
        Ok(self.heads.get(id).ok_or_else(String::new))
    }

    fn take_number(&mut self) -> rusqlite::Result<i64> {
        if self.next_number == 0 {
            self.next_number = self.last_number.query_row([], |row| row.get::<_, i64>(0))? + 1;
        }
        self.next_number += 1;
        Ok(self.next_number - 1)
    }

    /// Changes a head that [`HeadCache::get`] returned. Must be called only after the rest of the change has been
    /// written.
    pub(super) fn change(&mut self, id: &ConversationId, change: impl FnOnce(&mut ConversationHead)) {
        let head = self.heads.entry(id.clone()).or_default();
        change(head);
        if !head.dirty {
            head.dirty = true;
            self.dirty.push(id.clone());
        }
    }

    /// Writes the changed heads.
    pub(super) fn flush(&mut self) -> rusqlite::Result<()> {
        for id in self.dirty.drain(..) {
            let Some(head) = self.heads.get_mut(&id) else { continue };
            head.dirty = false;
            let (open, pending) = (list_text(&head.open), list_text(&head.pending));
            let (version, turns) = (SqlU64(head.version), SqlU64(head.turns));
            if head.stored
                && self.update.execute(params![head.number, version, turns, open, pending, head.updated_at])? == 1
            {
                continue;
            }
            head.stored = true;
            self.upsert.execute(params![head.number, id.as_str(), version, turns, open, pending, head.updated_at])?;
        }
        if self.heads.len() > limits::STORE_HEADS {
            self.heads.clear();
        }
        Ok(())
    }

    /// Removes one head.
    pub(super) fn remove(&mut self, id: &ConversationId) {
        self.heads.remove(id);
    }

    /// Removes all heads, unwritten changes included.
    pub(super) fn clear(&mut self) {
        self.heads.clear();
        self.dirty.clear();
        self.next_number = 0;
    }
}
