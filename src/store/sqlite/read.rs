//! Reading. Each function sees one state of the file, however long it takes.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fs::File,
    ops::Range,
    path::Path,
    sync::Arc,
};

use rusqlite::{Connection, OptionalExtension, Row, params, types::ValueRef};
use segue_engine::{
    conversation::{
        Conversation, Event,
        codec::{self, CodecError},
    },
    ids::{ConversationId, MessageId},
    time::Timestamp,
};

use super::{Unsigned, driver, heads::Head, marks, packed};
use crate::{
    cx::StepKey,
    limits,
    store::{
        Inbound, JournalRecord, OpenTurn, SPEAKING, StoreError, Stored, StoredEvents, StoredReply, StoredTurn, Trouble,
        TurnNumber, Unfinished, Version, attempts, inbox, merge_journal, newest,
    },
};

type Read<T> = Result<T, StoreError>;

/// Runs `look` over one state of the file.
fn at_once<T>(connection: &Connection, look: impl FnOnce() -> Read<T>) -> Read<T> {
    let transaction = connection.unchecked_transaction().map_err(driver)?;
    let found = look();
    transaction.finish().map_err(driver)?;
    found
}

/// All rows of a query about one conversation, each read by `read`.
fn rows<T>(
    connection: &Connection,
    id: &ConversationId,
    sql: &str,
    params: impl rusqlite::Params,
    mut read: impl FnMut(&Row<'_>) -> rusqlite::Result<Read<T>>,
) -> Read<Vec<T>> {
    let mut statement = connection.prepare_cached(sql).map_err(driver)?;
    let mut rows = statement.query(params).map_err(driver)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().map_err(driver)? {
        found.push(read(row).map_err(|error| row_error(id, error))??);
    }
    Ok(found)
}

/// A row that holds something of another type is damaged; everything else is the file or the driver.
fn row_error(id: &ConversationId, error: rusqlite::Error) -> StoreError {
    use rusqlite::Error::{FromSqlConversionFailure, IntegralValueOutOfRange, InvalidColumnType, Utf8Error};
    match error {
        FromSqlConversionFailure(..) | IntegralValueOutOfRange(..) | InvalidColumnType(..) | Utf8Error(..) => {
            StoreError::damaged(id, error)
        }
        error => driver(error),
    }
}

/// The ids of a query. One that is no text belongs to no conversation that could be read.
fn ids(connection: &Connection, sql: &str, params: impl rusqlite::Params) -> Read<Vec<ConversationId>> {
    let mut statement = connection.prepare_cached(sql).map_err(driver)?;
    let mut rows = statement.query(params).map_err(driver)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().map_err(driver)? {
        found.extend(row.get::<_, String>(0).ok().map(ConversationId::from));
    }
    Ok(found)
}

fn head(connection: &Connection, id: &ConversationId) -> Read<Option<Head>> {
    let mut statement = connection.prepare_cached(Head::QUERY).map_err(driver)?;
    let head = statement.query_row([id.as_str()], Head::read);
    head.optional().map_err(driver)?.transpose().map_err(|reason| StoreError::damaged(id, reason))
}

/// The newest snapshot; one that cannot be read is no loss: the events fold to the same.
fn snapshot(connection: &Connection, id: &ConversationId, conversation: i64) -> Read<Option<(u64, Conversation)>> {
    let sql = "SELECT version, snapshot FROM snapshots WHERE conversation = ?1";
    let mut statement = connection.prepare_cached(sql).map_err(driver)?;
    let found = statement.query_row([conversation], |row| {
        let Unsigned(version) = row.get(0)?;
        Ok(codec::decode_snapshot(id, version, row.get_ref(1)?.as_blob()?).ok().map(|snapshot| (version, snapshot)))
    });
    Ok(found.optional().ok().flatten().flatten())
}

pub(super) fn load(connection: &Connection, id: &ConversationId) -> Read<Stored> {
    at_once(connection, || {
        let Some(head) = head(connection, id)? else { return Ok(Stored::default()) };
        let snapshot = snapshot(connection, id, head.number)?.filter(|(version, _)| *version <= head.version);
        let after = snapshot.as_ref().map_or(0, |(version, _)| *version);
        let sql = "SELECT version, events FROM batches WHERE conversation = ?1 AND version > ?2 ORDER BY version";
        let mut expected = after;
        let tail = rows(connection, id, sql, params![head.number, Unsigned(after)], |row| {
            expected += 1;
            let Unsigned(number) = row.get(0)?;
            if number != expected {
                return Ok(Err(StoreError::damaged(id, format!("batch {expected} is missing"))));
            }
            Ok(events(id, number, row.get_ref(1)?.as_blob()?))
        })?;
        if expected != head.version {
            return Err(StoreError::damaged(id, format!("{} batches of {}", expected, head.version)));
        }
        let snapshot = snapshot.map(|(_, snapshot)| snapshot);
        Ok(Stored { snapshot, tail: tail.concat(), version: Version(head.version) })
    })
}

fn unreadable(id: &ConversationId, number: u64, error: &CodecError) -> StoreError {
    StoreError::damaged(id, format!("batch {number}: {error}"))
}

fn events(id: &ConversationId, number: u64, record: &[u8]) -> Read<Vec<Event>> {
    codec::decode_events(id, number, record).map_err(|e| unreadable(id, number, &e))
}

/// The newest events, oldest first; batches are read from the newest until there are enough.
pub(super) fn latest_events(connection: &Connection, id: &ConversationId, most: usize) -> Read<Vec<Event>> {
    at_once(connection, || {
        let Some(head) = head(connection, id)? else { return Ok(Vec::new()) };
        let sql = "SELECT version, events FROM batches WHERE conversation = ?1 ORDER BY version DESC";
        let mut statement = connection.prepare_cached(sql).map_err(driver)?;
        let mut rows = statement.query([head.number]).map_err(driver)?;
        let (mut batches, mut count) = (Vec::new(), 0);
        while count < most {
            let Some(row) = rows.next().map_err(driver)? else { break };
            let read = |row: &Row<'_>| Ok((row.get::<_, Unsigned>(0)?.0, row.get_ref(1)?.as_blob()?.to_vec()));
            let (number, record) = read(row).map_err(|error| row_error(id, error))?;
            let events = events(id, number, &record)?;
            count += events.len();
            batches.push(events);
        }
        Ok(newest(batches, most))
    })
}

/// The events of the newest batches before a version, newest first.
pub(super) fn latest_turns(
    connection: &Connection,
    id: &ConversationId,
    before: Option<Version>,
    most: usize,
) -> Read<Vec<StoredEvents>> {
    at_once(connection, || {
        let Some(head) = head(connection, id)? else { return Ok(Vec::new()) };
        let before = before.map_or(head.version + 1, |before| before.0);
        let sql = "SELECT version, turn, events FROM batches
                   WHERE conversation = ?1 AND version < ?2 ORDER BY version DESC LIMIT ?3";
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        rows(connection, id, sql, params![head.number, Unsigned(before), most], |row| {
            let (Unsigned(number), Unsigned(turn)) = (row.get(0)?, row.get(1)?);
            let events = events(id, number, row.get_ref(2)?.as_blob()?);
            Ok(events.map(|events| StoredEvents { version: Version(number), turn: TurnNumber(turn), events }))
        })
    })
}

/// A list that is stored as nothing when it is empty.
fn list<T: serde::de::DeserializeOwned>(id: &ConversationId, number: u64, record: Option<&[u8]>) -> Read<Vec<T>> {
    let Some(record) = record else { return Ok(Vec::new()) };
    codec::open(id.as_str(), number, record).map_err(|e| unreadable(id, number, &e))
}

/// The replies of batch `number`, which answered `turn`: those that its events tell where it stores nothing but that.
fn replies(
    id: &ConversationId,
    (number, turn): (u64, u64),
    replies: Option<&[u8]>,
    events: &[u8],
) -> Read<Vec<StoredReply>> {
    match replies {
        Some([]) => {
            self::events(id, number, events).map(|events| StoredReply::told(TurnNumber(turn), 0, &events).collect())
        }
        replies => list(id, number, replies),
    }
}

/// The replies of the batch that answered a turn.
pub(super) fn replies_to(connection: &Connection, id: &ConversationId, turn: TurnNumber) -> Read<Vec<StoredReply>> {
    let Some(head) = head(connection, id)? else { return Ok(Vec::new()) };
    // The newest first: whoever asks has mostly just had the turn.
    let sql = "SELECT version, turn, replies, events FROM batches
               WHERE conversation = ?1 AND (turn = ?2 OR ?2 IN (SELECT value FROM json_each(coalesce(also, '[]'))))
               ORDER BY version DESC LIMIT 1";
    let found = rows(connection, id, sql, params![head.number, Unsigned(turn.0)], |row| {
        let (Unsigned(number), Unsigned(turn)) = (row.get(0)?, row.get(1)?);
        Ok(replies(id, (number, turn), row.get_ref(2)?.as_blob_or_null()?, row.get_ref(3)?.as_blob()?))
    })?;
    Ok(found.into_iter().next().unwrap_or_default())
}

/// The same, unless the turn is open or there is none.
pub(super) fn replies_of(
    connection: &Connection,
    id: &ConversationId,
    turn: TurnNumber,
) -> Read<Option<Vec<StoredReply>>> {
    at_once(connection, || {
        let head = head(connection, id)?.filter(|head| turn.0 <= head.turns && !head.is_open(turn.0));
        head.map(|_| replies_to(connection, id, turn)).transpose()
    })
}

/// The records of a row of the journal. Where the outcome is a blob it holds all of them, as [`packed`] says; in rows of earlier
/// versions each record has a row of its own.
fn records(id: &ConversationId, turn: u64, row: &Row<'_>) -> rusqlite::Result<Read<Vec<JournalRecord>>> {
    if let ValueRef::Blob(records) = row.get_ref(3)? {
        let records = packed::unpack(id, turn, records);
        return Ok(records.map_err(|e| StoreError::damaged(id, format!("journal of turn {turn}: {e}"))));
    }
    let text = |column: usize| row.get::<_, String>(column).map(Arc::<str>::from);
    Ok(Ok(vec![JournalRecord {
        key: StepKey::new(text(0)?),
        kind: text(1)?,
        request: text(2)?,
        outcome: row.get::<_, Option<String>>(3)?.map(Into::into),
        at: Timestamp::from_micros(row.get(4)?),
        build: row.get::<_, Unsigned>(5)?.0,
    }]))
}

fn journal(connection: &Connection, id: &ConversationId, conversation: i64, turn: u64) -> Read<Vec<JournalRecord>> {
    let mut merged = Vec::new();
    merge_journal(&mut merged, written(connection, id, conversation, turn)?);
    Ok(merged)
}

/// What was written to the journal of a turn, in its order.
fn written(connection: &Connection, id: &ConversationId, conversation: i64, turn: u64) -> Read<Vec<JournalRecord>> {
    let sql = "SELECT step, kind, request, outcome, at, build FROM journal
               WHERE conversation = ?1 AND turn = ?2 ORDER BY id";
    let parts = rows(connection, id, sql, params![conversation, Unsigned(turn)], |row| records(id, turn, row))?;
    Ok(parts.into_iter().flatten().collect())
}

/// The steps in the journal of a turn, each with the build that wrote it; without the marks of replies.
pub(super) fn steps(
    connection: &Connection,
    id: &ConversationId,
    conversation: i64,
    turn: u64,
) -> Read<HashSet<(StepKey, u64)>> {
    let written = written(connection, id, conversation, turn)?.into_iter();
    Ok(written.filter(|record| *record.kind != *SPEAKING).map(|record| (record.key, record.build)).collect())
}

/// The messages of a conversation by turn.
fn messages(connection: &Connection, id: &ConversationId, conversation: i64) -> Read<BTreeMap<u64, Inbound>> {
    let sql = "SELECT turn, packed FROM inbox WHERE conversation = ?1";
    let found = rows(connection, id, sql, [conversation], |row| {
        let Unsigned(turn) = row.get(0)?;
        Ok(inbox::unpack(id, row.get_ref(1)?.as_blob()?).map(|inbound| (turn, inbound)))
    })?;
    Ok(found.into_iter().collect())
}

/// The message of one turn; those of others are not read.
fn message(connection: &Connection, id: &ConversationId, conversation: i64, turn: u64) -> Read<Option<Inbound>> {
    let sql = "SELECT packed FROM inbox WHERE conversation = ?1 AND turn = ?2";
    let found = rows(connection, id, sql, params![conversation, Unsigned(turn)], |row| {
        Ok(inbox::unpack(id, row.get_ref(0)?.as_blob()?))
    })?;
    Ok(found.into_iter().next())
}

/// `marked` is the file of marks, which may be missing.
pub(super) fn open_turns(
    connection: &Connection,
    id: &ConversationId,
    turns: &Range<TurnNumber>,
    marked: &Path,
) -> Read<Vec<Unfinished>> {
    at_once(connection, || {
        let Some(mut head) = head(connection, id)? else { return Ok(Vec::new()) };
        head.open.retain(|(turn, _)| turns.contains(&TurnNumber(*turn)));
        let mut found = Vec::new();
        let marked = if head.open.is_empty() { None } else { marks::existing(marked, false)? };
        for (turn, accepted) in head.open {
            let inbound = message(connection, id, head.number, turn)?;
            let inbound =
                inbound.ok_or_else(|| StoreError::damaged(id, format!("the message of turn {turn} is missing")))?;
            let mut journal = journal(connection, id, head.number, turn)?;
            if let Some(marked) = &marked {
                let (turn, accepted) = (TurnNumber(turn), Timestamp::from_micros(accepted));
                merge_journal(&mut journal, marks::records(marked, (id, head.number), turn, accepted)?);
            }
            found.push(Unfinished { turn: TurnNumber(turn), inbound, journal });
        }
        Ok(found)
    })
}

/// Where a conversation has its marks, for wiping them: the file and its number. None where there is nothing to wipe.
pub(super) fn place_of_marks(connection: &Connection, id: &ConversationId, marked: &Path) -> Read<Option<(File, i64)>> {
    let Some(marked) = marks::existing(marked, true)? else { return Ok(None) };
    let sql = "SELECT number FROM conversations WHERE id = ?1";
    let number = connection.query_row(sql, [id.as_str()], |row| row.get(0)).optional().map_err(driver)?;
    Ok(number.map(|number| (marked, number)))
}

pub(super) fn waiting(connection: &Connection) -> Read<Vec<ConversationId>> {
    let sql = "SELECT id FROM conversations WHERE open <> '' OR pending <> '' ORDER BY touched DESC, id";
    ids(connection, sql, [])
}

pub(super) fn timers(connection: &Connection, limit: usize) -> Read<Vec<(ConversationId, Timestamp)>> {
    let sql = "SELECT conversations.id, timers.due FROM timers
               JOIN conversations ON conversations.number = timers.conversation ORDER BY timers.due LIMIT ?1";
    let mut statement = connection.prepare_cached(sql).map_err(driver)?;
    let mut rows = statement.query(params![Unsigned(limit as u64)]).map_err(driver)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().map_err(driver)? {
        // A row that is no pair of a text and a number belongs to no conversation that could be read.
        if let (Ok(id), Ok(due)) = (row.get::<_, String>(0), row.get(1)) {
            found.push((ConversationId::from(id), Timestamp::from_micros(due)));
        }
    }
    Ok(found)
}

pub(super) fn undelivered(connection: &Connection, id: &ConversationId) -> Read<Vec<StoredReply>> {
    at_once(connection, || {
        let Some(head) = head(connection, id)? else { return Ok(Vec::new()) };
        let mut waiting: BTreeMap<u64, Vec<Arc<str>>> = BTreeMap::new();
        head.pending.into_iter().for_each(|(version, reply)| waiting.entry(version).or_default().push(reply));
        let mut found = Vec::new();
        for (version, ids) in waiting {
            let sql = "SELECT turn, replies, events FROM batches WHERE conversation = ?1 AND version = ?2";
            let stored = rows(connection, id, sql, params![head.number, Unsigned(version)], |row| {
                let Unsigned(turn) = row.get(0)?;
                Ok(replies(id, (version, turn), row.get_ref(1)?.as_blob_or_null()?, row.get_ref(2)?.as_blob()?))
            })?;
            found.extend(stored.into_iter().flatten().filter(|reply| ids.contains(&reply.id)));
        }
        Ok(found)
    })
}

pub(super) fn turns(connection: &Connection, id: &ConversationId) -> Read<Vec<StoredTurn>> {
    at_once(connection, || {
        let Some(head) = head(connection, id)? else { return Ok(Vec::new()) };
        let mut messages: HashMap<u64, Inbound> = messages(connection, id, head.number)?.into_iter().collect();
        let sql = "SELECT version, turn, events, replies, journal, trace FROM batches
                   WHERE conversation = ?1 ORDER BY version";
        let mut turns = rows(connection, id, sql, [head.number], |row| {
            let (Unsigned(number), Unsigned(turn)) = (row.get(0)?, row.get(1)?);
            let trace = row.get(5)?;
            let (stored, journal) = (row.get_ref(3)?.as_blob_or_null()?, row.get_ref(4)?.as_blob_or_null()?);
            let events = events(id, number, row.get_ref(2)?.as_blob()?);
            Ok(events.and_then(|events| {
                let inbound = messages.remove(&turn).unwrap_or_else(|| inbox::from_events(id, &events));
                let replies = match stored {
                    Some([]) => StoredReply::told(TurnNumber(turn), 0, &events).collect(),
                    stored => list(id, number, stored)?,
                };
                let journal = journal.map_or_else(|| Ok(Vec::new()), |journal| packed::unpack(id, number, journal));
                let journal = journal.map_err(|e| unreadable(id, number, &e))?;
                Ok(StoredTurn { turn: TurnNumber(turn), inbound, events, replies, journal, trace })
            }))
        })?;
        for turn in turns.iter_mut().filter(|turn| turn.turn.0 > 0) {
            let last = std::mem::take(&mut turn.journal);
            turn.journal = journal(connection, id, head.number, turn.turn.0)?;
            merge_journal(&mut turn.journal, last);
        }
        Ok(turns)
    })
}

/// What is damaged, where something is. Other errors concern all that is read.
fn damage<T>(read: Read<T>) -> Read<Option<String>> {
    match read {
        Ok(_) => Ok(None),
        Err(StoreError::Damaged { reason, .. }) => Ok(Some(reason)),
        Err(error) => Err(error),
    }
}

/// The conversations that have open turns or undelivered replies, or that cannot be read, by name. Reads all of them.
pub(super) fn troubles(connection: &Connection) -> Read<Vec<Trouble>> {
    let sql = "SELECT version, turns, open, pending, touched, number, id FROM conversations ORDER BY id";
    let mut statement = connection.prepare(sql).map_err(driver)?;
    let mut rows = statement.query([]).map_err(driver)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().map_err(driver)? {
        let id = row.get::<_, String>(6).map(ConversationId::from);
        let Ok(id) = id else { continue };
        let (head, mut damage) = match Head::read(row).map_err(driver)? {
            Ok(head) => (head, damage(load(connection, &id))?),
            Err(reason) => (Head::default(), Some(reason)),
        };
        let mut open = Vec::new();
        for (turn, at) in head.open {
            let journal = journal(connection, &id, head.number, turn);
            let attempts = journal.as_ref().map_or(1, |journal| attempts(journal));
            damage = damage.or(self::damage(journal)?);
            open.push(OpenTurn { turn: TurnNumber(turn), at: Timestamp::from_micros(at), attempts });
        }
        if !open.is_empty() || !head.pending.is_empty() || damage.is_some() {
            found.push(Trouble { open, undelivered: head.pending.len(), damage, conversation: id });
        }
    }
    Ok(found)
}

pub(super) fn conversations(connection: &Connection, limit: usize) -> Read<Vec<ConversationId>> {
    let sql = "SELECT id FROM conversations ORDER BY touched DESC, id LIMIT ?1";
    let limit = limit.min(limits::CONVERSATIONS_LISTED) as u64;
    ids(connection, sql, [Unsigned(limit)])
}

pub(super) fn answered(
    connection: &Connection,
    id: &ConversationId,
    message: &MessageId,
) -> Read<Option<Vec<StoredReply>>> {
    at_once(connection, || {
        let Some(head) = head(connection, id)? else { return Ok(None) };
        // Only messages in which the id stands are unpacked: a conversation may be long.
        let written = serde_json::to_string(message.as_str()).map_err(|e| StoreError::damaged(id, e))?;
        let sql = "SELECT turn, packed FROM inbox WHERE conversation = ?1 AND instr(packed, CAST(?2 AS BLOB)) > 0
                   ORDER BY id DESC";
        let messages = rows(connection, id, sql, params![head.number, written], |row| {
            let Unsigned(turn) = row.get(0)?;
            Ok(inbox::unpack(id, row.get_ref(1)?.as_blob()?).map(|inbound| (turn, inbound)))
        })?;
        let turn =
            messages.iter().find(|(turn, inbound)| inbound.message.message_id == *message && !head.is_open(*turn));
        turn.map(|(turn, _)| replies_to(connection, id, TurnNumber(*turn))).transpose()
    })
}

pub(super) fn private(connection: &Connection, id: &ConversationId, name: &str) -> Read<Option<String>> {
    let sql = "SELECT text FROM private
               WHERE conversation = (SELECT number FROM conversations WHERE id = ?1) AND name = ?2";
    let found = rows(connection, id, sql, [id.as_str(), name], |row| Ok(Ok(row.get::<_, String>(0)?)))?;
    Ok(found.into_iter().next())
}

pub(super) fn body(connection: &Connection, id: &ConversationId, hash: &str) -> Read<Option<Arc<str>>> {
    let sql = "SELECT body FROM bodies
               WHERE conversation = (SELECT number FROM conversations WHERE id = ?1) AND hash = ?2";
    let found = rows(connection, id, sql, [id.as_str(), hash], |row| Ok(Ok(Arc::from(row.get::<_, String>(0)?))))?;
    Ok(found.into_iter().next())
}
