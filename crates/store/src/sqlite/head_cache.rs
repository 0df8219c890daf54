//! The heads of conversations: what the writer must know before it writes, kept in memory between transactions.
//!
//! The copy is thrown away whenever it could be wrong: after a transaction that failed, and when another process wrote to the file.

use std::{collections::HashMap, sync::Arc};

use rusqlite::{OptionalExtension, Row, Statement, params, types::ValueRef};
use segue_base::limits;
use segue_engine::{ids::ConversationId, time::Timestamp};

use super::Unsigned;

/// The head of one conversation.
#[derive(Clone, Debug, Default)]
pub(super) struct Head {
    /// By which all tables know the conversation.
    pub(super) number: i64,
    pub(super) version: u64,
    /// How many turns were accepted.
    pub(super) turns: u64,
    /// Accepted and not answered: turn, and when it was accepted in microseconds.
    pub(super) open: Vec<(u64, i64)>,
    /// Stored and not delivered: version and reply id, oldest first.
    pub(super) pending: Vec<(u64, Arc<str>)>,
    /// The time of the latest input.
    pub(super) updated_at: i64,
    /// Whether it differs from its row.
    dirty: bool,
    /// Whether it has a row.
    stored: bool,
}

impl Head {
    pub(super) fn is_open(&self, turn: u64) -> bool {
        self.open.iter().any(|(open, _)| *open == turn)
    }

    pub(super) fn touch(&mut self, at: Timestamp) {
        self.updated_at = self.updated_at.max(at.as_micros());
    }

    /// Adds replies that wait for delivery, and gives up the oldest beyond the limit.
    pub(super) fn wait_for(&mut self, replies: &[Arc<str>]) {
        self.pending.extend(replies.iter().map(|id| (self.version, id.clone())));
        let given_up = self.pending.len().saturating_sub(limits::OUTBOX);
        self.pending.drain(..given_up);
    }

    /// The columns that [`Head::read`] reads.
    pub(super) const COLUMNS: &str = "version, turns, open, pending, updated_at, number";

    /// The query for one conversation by its name.
    pub(super) const QUERY: &str =
        "SELECT version, turns, open, pending, updated_at, number FROM conversations WHERE tenant = '' AND id = ?1";

    /// Reads a row. The inner error says how it is damaged.
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
            open: list(open.as_str().map_err(wrong)?)?,
            pending: list(pending.as_str().map_err(wrong)?)?,
            updated_at: updated_at.as_i64().map_err(wrong)?,
            number: number.as_i64().map_err(wrong)?,
            dirty: false,
            stored: true,
        })
    }
}

/// No list is written as no text: most heads have neither.
fn list<T: serde::de::DeserializeOwned>(text: &str) -> Result<Vec<T>, String> {
    if text.is_empty() { Ok(Vec::new()) } else { serde_json::from_str(text).map_err(|e| e.to_string()) }
}

fn text<T: serde::Serialize>(list: &[T]) -> String {
    // Numbers and texts can always be written.
    if list.is_empty() { String::new() } else { serde_json::to_string(list).unwrap_or_default() }
}

/// The heads that are known, and the statements that read and write them.
pub(super) struct Heads<'c> {
    known: HashMap<ConversationId, Head>,
    dirty: Vec<ConversationId>,
    /// The number of the next new conversation; 0 while it is not known.
    next: i64,
    get: Statement<'c>,
    last: Statement<'c>,
    put: Statement<'c>,
    alter: Statement<'c>,
}

impl<'c> Heads<'c> {
    pub(super) fn new(connection: &'c rusqlite::Connection) -> rusqlite::Result<Self> {
        Ok(Self {
            known: HashMap::new(),
            dirty: Vec::new(),
            next: 0,
            get: connection.prepare(Head::QUERY)?,
            last: connection
                .prepare("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'conversations'")?,
            put: connection.prepare(
                "INSERT INTO conversations (number, id, version, turns, open, pending, updated_at)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
                 ON CONFLICT (number) DO UPDATE SET version = excluded.version, turns = excluded.turns,
                 open = excluded.open, pending = excluded.pending, updated_at = excluded.updated_at",
            )?,
            // Each turn changes its head three times: this looks for no other row of the same id.
            alter: connection.prepare(
                "UPDATE conversations SET version = ?2, turns = ?3, open = ?4, pending = ?5, updated_at = ?6
                 WHERE number = ?1",
            )?,
        })
    }

    /// The head of a conversation; an empty one when nothing is known of it. The inner error says how its row is damaged.
    pub(super) fn get(&mut self, id: &ConversationId) -> rusqlite::Result<Result<&Head, String>> {
        if !self.known.contains_key(id) {
            let row = self.get.query_row([id.as_str()], Head::read);
            match row.optional()? {
                Some(Ok(head)) => self.known.insert(id.clone(), head),
                Some(Err(reason)) => return Ok(Err(reason)),
                None => {
                    let number = self.next_number()?;
                    self.known.insert(id.clone(), Head { number, ..Head::default() })
                }
            };
        }
        Ok(self.known.get(id).ok_or_else(String::new))
    }

    fn next_number(&mut self) -> rusqlite::Result<i64> {
        if self.next == 0 {
            self.next = self.last.query_row([], |row| row.get::<_, i64>(0))? + 1;
        }
        self.next += 1;
        Ok(self.next - 1)
    }

    /// Changes a head that [`Heads::get`] gave. Call it only after the rest of the change has been written.
    pub(super) fn change(&mut self, id: &ConversationId, change: impl FnOnce(&mut Head)) {
        let head = self.known.entry(id.clone()).or_default();
        change(head);
        if !head.dirty {
            head.dirty = true;
            self.dirty.push(id.clone());
        }
    }

    /// Writes the heads that changed.
    pub(super) fn flush(&mut self) -> rusqlite::Result<()> {
        for id in self.dirty.drain(..) {
            let Some(head) = self.known.get_mut(&id) else { continue };
            head.dirty = false;
            let (open, pending) = (text(&head.open), text(&head.pending));
            let (version, turns) = (Unsigned(head.version), Unsigned(head.turns));
            if head.stored
                && self.alter.execute(params![head.number, version, turns, open, pending, head.updated_at])? == 1
            {
                continue;
            }
            head.stored = true;
            self.put.execute(params![head.number, id.as_str(), version, turns, open, pending, head.updated_at])?;
        }
        if self.known.len() > limits::STORE_HEADS {
            self.known.clear();
        }
        Ok(())
    }

    /// Forgets one.
    pub(super) fn remove(&mut self, id: &ConversationId) {
        self.known.remove(id);
    }

    /// Forgets all, changes included.
    pub(super) fn clear(&mut self) {
        self.known.clear();
        self.dirty.clear();
        self.next = 0;
    }
}
