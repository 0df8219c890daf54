//! Reading. Each function sees one state of the file, however long it takes.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
    sync::Arc,
};

use rusqlite::{Connection, OptionalExtension, Row, params};
use segue_base::limits;
use segue_engine::{
    conversation::{Conversation, Event},
    ids::{ConversationId, MessageId},
    time::Timestamp,
};

use super::{Unsigned, driver, head_cache::Head, rows};
use crate::{
    InboxMessage, JournalRecord, OpenTurn, StoreError, StoredConversation, StoredReply, StoredTurn, Trouble,
    TurnEvents, TurnNumber, UnfinishedTurn, Version, attempts, dedup, merge_journal, newest,
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
fn all<T>(
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
pub(super) fn row_error(id: &ConversationId, error: rusqlite::Error) -> StoreError {
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

/// The newest snapshot. One that cannot be read is no loss, for the events fold to the same; the log names it.
fn snapshot(connection: &Connection, id: &ConversationId, conversation: i64) -> Read<Option<(u64, Conversation)>> {
    let sql = "SELECT version, snapshot, checksum FROM snapshots WHERE conversation = ?1";
    let mut statement = connection.prepare_cached(sql).map_err(driver)?;
    let found = statement.query_row([conversation], |row| rows::read_snapshot(id, row)).optional();
    match found.map_err(|error| row_error(id, error)).and_then(Option::transpose) {
        Err(error @ StoreError::Damaged { .. }) => {
            tracing::warn!(code = error.code(), "{error}; the events are read instead");
            Ok(None)
        }
        found => found,
    }
}

/// A query for rows of a conversation that [`rows::read_batch`] reads.
fn batches(condition: &str) -> String {
    format!("SELECT {}, trace FROM batches WHERE conversation = ?1 AND {condition}", rows::BATCH)
}

/// A query for rows of a conversation that [`rows::read_message`] reads.
fn inbox(condition: &str) -> String {
    format!("SELECT {} FROM inbox WHERE conversation = ?1 AND {condition}", rows::MESSAGE)
}

pub(super) fn load(connection: &Connection, id: &ConversationId) -> Read<StoredConversation> {
    at_once(connection, || {
        let Some(head) = head(connection, id)? else { return Ok(StoredConversation::default()) };
        let snapshot = snapshot(connection, id, head.number)?.filter(|(version, _)| *version <= head.version);
        let after = snapshot.as_ref().map_or(0, |(version, _)| *version);
        let sql = batches("version > ?2 ORDER BY version");
        let mut expected = after;
        let tail = all(connection, id, &sql, params![head.number, Unsigned(after)], |row| {
            expected += 1;
            let batch = rows::read_batch(id, row)?;
            Ok(batch.and_then(|batch| {
                if batch.version == expected {
                    batch.events()
                } else {
                    Err(StoreError::damaged(id, format!("table batches, version {expected}: the row is missing")))
                }
            }))
        })?;
        if expected != head.version {
            return Err(StoreError::damaged(
                id,
                format!("table batches: the newest version is {expected}, and the head says {}", head.version),
            ));
        }
        let snapshot = snapshot.map(|(_, snapshot)| snapshot);
        Ok(StoredConversation { snapshot, tail: tail.concat(), version: Version(head.version) })
    })
}

/// The newest events, oldest first; batches are read from the newest until there are enough.
pub(super) fn latest_events(connection: &Connection, id: &ConversationId, most: usize) -> Read<Vec<Event>> {
    at_once(connection, || {
        let Some(head) = head(connection, id)? else { return Ok(Vec::new()) };
        let mut statement = connection.prepare_cached(&batches("true ORDER BY version DESC")).map_err(driver)?;
        let mut rows = statement.query([head.number]).map_err(driver)?;
        let (mut batches, mut count) = (Vec::new(), 0);
        while count < most {
            let Some(row) = rows.next().map_err(driver)? else { break };
            let events = rows::read_batch(id, row).map_err(|error| row_error(id, error))??.events()?;
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
) -> Read<Vec<TurnEvents>> {
    at_once(connection, || {
        let Some(head) = head(connection, id)? else { return Ok(Vec::new()) };
        let before = before.map_or(head.version + 1, |before| before.0);
        let sql = batches("version < ?2 ORDER BY version DESC LIMIT ?3");
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        all(connection, id, &sql, params![head.number, Unsigned(before), most], |row| {
            Ok(rows::read_batch(id, row)?.and_then(|batch| {
                let (version, turn) = (Version(batch.version), TurnNumber(batch.turn));
                Ok(TurnEvents { version, turn, events: batch.events()? })
            }))
        })
    })
}

/// The replies of the batch that answered a turn.
pub(super) fn replies_to(connection: &Connection, id: &ConversationId, turn: TurnNumber) -> Read<Vec<StoredReply>> {
    let Some(head) = head(connection, id)? else { return Ok(Vec::new()) };
    let sql = batches("turn = ?2");
    let found = all(connection, id, &sql, params![head.number, Unsigned(turn.0)], |row| {
        Ok(rows::read_batch(id, row)?.and_then(|batch| batch.replies()))
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

/// What the journal says of a turn: the latest record of each step.
fn journal(connection: &Connection, id: &ConversationId, conversation: i64, turn: u64) -> Read<Vec<JournalRecord>> {
    let sql = format!("SELECT {} FROM journal WHERE conversation = ?1 AND turn = ?2 ORDER BY id", rows::RECORD);
    let written =
        all(connection, id, &sql, params![conversation, Unsigned(turn)], |row| rows::read_record(id, turn, row))?;
    let mut merged = Vec::new();
    merge_journal(&mut merged, written);
    Ok(merged)
}

/// The messages of a conversation by turn.
fn messages(connection: &Connection, id: &ConversationId, conversation: i64) -> Read<HashMap<u64, InboxMessage>> {
    let found = all(connection, id, &inbox("true"), [conversation], |row| rows::read_message(id, row))?;
    Ok(found.into_iter().collect())
}

/// The message of one turn; those of others are not read.
fn message(connection: &Connection, id: &ConversationId, conversation: i64, turn: u64) -> Read<Option<InboxMessage>> {
    let params = params![conversation, Unsigned(turn)];
    let found = all(connection, id, &inbox("turn = ?2"), params, |row| rows::read_message(id, row))?;
    Ok(found.into_iter().next().map(|(_, inbound)| inbound))
}

pub(super) fn open_turns(
    connection: &Connection,
    id: &ConversationId,
    turns: &Range<TurnNumber>,
) -> Read<Vec<UnfinishedTurn>> {
    at_once(connection, || {
        let Some(mut head) = head(connection, id)? else { return Ok(Vec::new()) };
        head.open.retain(|(turn, _)| turns.contains(&TurnNumber(*turn)));
        let mut found = Vec::new();
        for (turn, _) in head.open {
            let inbound = message(connection, id, head.number, turn)?;
            let inbound = inbound
                .ok_or_else(|| StoreError::damaged(id, format!("table inbox, turn {turn}: the row is missing")))?;
            let journal = journal(connection, id, head.number, turn)?;
            found.push(UnfinishedTurn { turn: TurnNumber(turn), inbound, journal });
        }
        Ok(found)
    })
}

pub(super) fn waiting(connection: &Connection) -> Read<Vec<ConversationId>> {
    let sql = "SELECT id FROM conversations WHERE open <> '' OR pending <> '' ORDER BY updated_at DESC, id";
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
            let sql = batches("version = ?2");
            let stored = all(connection, id, &sql, params![head.number, Unsigned(version)], |row| {
                Ok(rows::read_batch(id, row)?.and_then(|batch| batch.replies()))
            })?;
            found.extend(stored.into_iter().flatten().filter(|reply| ids.contains(&reply.id)));
        }
        Ok(found)
    })
}

pub(super) fn turns(connection: &Connection, id: &ConversationId) -> Read<Vec<StoredTurn>> {
    at_once(connection, || {
        let Some(head) = head(connection, id)? else { return Ok(Vec::new()) };
        let mut messages = messages(connection, id, head.number)?;
        let mut turns = all(connection, id, &batches("true ORDER BY version"), [head.number], |row| {
            let trace = row.get(5)?;
            Ok(rows::read_batch(id, row)?.and_then(|batch| {
                let (events, replies) = (batch.events()?, batch.replies()?);
                let inbound = messages.remove(&batch.turn).unwrap_or_else(|| dedup::from_events(id, &events));
                let turn = TurnNumber(batch.turn);
                Ok(StoredTurn { turn, inbound, events, replies, journal: Vec::new(), trace })
            }))
        })?;
        for turn in turns.iter_mut().filter(|turn| turn.turn.0 > 0) {
            turn.journal = journal(connection, id, head.number, turn.turn.0)?;
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
    let sql = format!("SELECT {}, id FROM conversations ORDER BY id", Head::COLUMNS);
    let mut statement = connection.prepare(&sql).map_err(driver)?;
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
    let sql = "SELECT id FROM conversations ORDER BY updated_at DESC, id LIMIT ?1";
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
        // Only messages in which the id stands are read: a conversation may be long.
        let written = rows::json(id, message)?;
        let sql = inbox("instr(message, ?2) > 0 ORDER BY id DESC");
        let messages = all(connection, id, &sql, params![head.number, written], |row| rows::read_message(id, row))?;
        let turn =
            messages.iter().find(|(turn, inbound)| inbound.message.message_id == *message && !head.is_open(*turn));
        turn.map(|(turn, _)| replies_to(connection, id, TurnNumber(*turn))).transpose()
    })
}

pub(super) fn private(connection: &Connection, id: &ConversationId, name: &str) -> Read<Option<String>> {
    let sql = "SELECT text FROM private
               WHERE conversation = (SELECT number FROM conversations WHERE tenant = '' AND id = ?1) AND name = ?2";
    let found = all(connection, id, sql, [id.as_str(), name], |row| Ok(Ok(row.get::<_, String>(0)?)))?;
    Ok(found.into_iter().next())
}

pub(super) fn body(connection: &Connection, id: &ConversationId, hash: &str) -> Read<Option<Arc<str>>> {
    let sql = "SELECT body FROM bodies
               WHERE conversation = (SELECT number FROM conversations WHERE tenant = '' AND id = ?1) AND hash = ?2";
    let found = all(connection, id, sql, [id.as_str(), hash], |row| Ok(Ok(Arc::from(row.get::<_, String>(0)?))))?;
    Ok(found.into_iter().next())
}
