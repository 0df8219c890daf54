//! Reads. Each function sees one consistent state of the file.

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

use super::{SqlU64, head_cache::ConversationHead, into_store_error, rows};
use crate::{
    ConversationProblem, InboxMessage, JournalRecord, StoreError, StoredConversation, StoredReply, StoredTurn,
    TurnEvents, TurnNumber, UnfinishedTurn, UnfinishedTurnSummary, Version, attempts, dedup, merge_journal,
    newest_events,
};

type StoreResult<T> = Result<T, StoreError>;

/// Runs `look` in one read transaction.
fn in_read_transaction<T>(connection: &Connection, look: impl FnOnce() -> StoreResult<T>) -> StoreResult<T> {
    let transaction = connection.unchecked_transaction().map_err(into_store_error)?;
    let found = look();
    transaction.finish().map_err(into_store_error)?;
    found
}

/// All rows of a query about one conversation, each decoded by `read`.
fn query_all<T>(
    connection: &Connection,
    id: &ConversationId,
    sql: &str,
    params: impl rusqlite::Params,
    mut read: impl FnMut(&Row<'_>) -> rusqlite::Result<StoreResult<T>>,
) -> StoreResult<Vec<T>> {
    let mut statement = connection.prepare_cached(sql).map_err(into_store_error)?;
    let mut rows = statement.query(params).map_err(into_store_error)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().map_err(into_store_error)? {
        found.push(read(row).map_err(|error| row_error(id, error))??);
    }
    Ok(found)
}

/// A row with a value of another type is corrupt; all other errors concern the file or the database.
pub(super) fn row_error(id: &ConversationId, error: rusqlite::Error) -> StoreError {
    use rusqlite::Error::{FromSqlConversionFailure, IntegralValueOutOfRange, InvalidColumnType, Utf8Error};
    match error {
        FromSqlConversionFailure(..) | IntegralValueOutOfRange(..) | InvalidColumnType(..) | Utf8Error(..) => {
            StoreError::corrupt(id, error)
        }
        error => into_store_error(error),
    }
}

/// The conversation ids that a query returns. Rows whose id is no text are skipped.
fn ids(connection: &Connection, sql: &str, params: impl rusqlite::Params) -> StoreResult<Vec<ConversationId>> {
    let mut statement = connection.prepare_cached(sql).map_err(into_store_error)?;
    let mut rows = statement.query(params).map_err(into_store_error)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().map_err(into_store_error)? {
        found.extend(row.get::<_, String>(0).ok().map(ConversationId::from));
    }
    Ok(found)
}

fn head(connection: &Connection, id: &ConversationId) -> StoreResult<Option<ConversationHead>> {
    let mut statement = connection.prepare_cached(ConversationHead::QUERY).map_err(into_store_error)?;
    let head = statement.query_row([id.as_str()], ConversationHead::read);
    head.optional().map_err(into_store_error)?.transpose().map_err(|reason| StoreError::corrupt(id, reason))
}

/// The newest snapshot. A corrupt one is logged and ignored, because folding the events gives the same conversation.
fn snapshot(
    connection: &Connection,
    id: &ConversationId,
    conversation: i64,
) -> StoreResult<Option<(u64, Conversation)>> {
    let sql = "SELECT version, snapshot, checksum FROM snapshots WHERE conversation = ?1";
    let mut statement = connection.prepare_cached(sql).map_err(into_store_error)?;
    let found = statement.query_row([conversation], |row| rows::read_snapshot(id, row)).optional();
    match found.map_err(|error| row_error(id, error)).and_then(Option::transpose) {
        Err(error @ StoreError::Corrupt { .. }) => {
            tracing::warn!(code = error.code(), "{error}; the events are read instead");
            Ok(None)
        }
        found => found,
    }
}

/// A query for rows of a conversation that [`rows::read_batch`] reads.
fn batch_query(condition: &str) -> String {
    format!("SELECT {}, trace FROM batches WHERE conversation = ?1 AND {condition}", rows::BATCH_COLUMNS)
}

/// A query for rows of a conversation that [`rows::read_message`] reads.
fn inbox_query(condition: &str) -> String {
    format!("SELECT {} FROM inbox WHERE conversation = ?1 AND {condition}", rows::MESSAGE_COLUMNS)
}

pub(super) fn load(connection: &Connection, id: &ConversationId) -> StoreResult<StoredConversation> {
    in_read_transaction(connection, || {
        let Some(head) = head(connection, id)? else { return Ok(StoredConversation::default()) };
        let snapshot = snapshot(connection, id, head.number)?.filter(|(version, _)| *version <= head.version);
        let after = snapshot.as_ref().map_or(0, |(version, _)| *version);
        let sql = batch_query("version > ?2 ORDER BY version");
        let mut expected = after;
        let tail = query_all(connection, id, &sql, params![head.number, SqlU64(after)], |row| {
            expected += 1;
            let batch = rows::read_batch(id, row)?;
            Ok(batch.and_then(|batch| {
                if batch.version == expected {
                    batch.events()
                } else {
                    Err(StoreError::corrupt(id, format!("table batches, version {expected}: the row is missing")))
                }
            }))
        })?;
        if expected != head.version {
            return Err(StoreError::corrupt(
                id,
                format!("table batches: the newest version is {expected}, but the head says {}", head.version),
            ));
        }
        let snapshot = snapshot.map(|(_, snapshot)| snapshot);
        Ok(StoredConversation { snapshot, tail: tail.concat(), version: Version(head.version) })
    })
}

/// The newest events, oldest first. Batches are read from the newest until there are enough events.
pub(super) fn latest_events(connection: &Connection, id: &ConversationId, most: usize) -> StoreResult<Vec<Event>> {
    in_read_transaction(connection, || {
        let Some(head) = head(connection, id)? else { return Ok(Vec::new()) };
        let mut statement =
            connection.prepare_cached(&batch_query("true ORDER BY version DESC")).map_err(into_store_error)?;
        let mut rows = statement.query([head.number]).map_err(into_store_error)?;
        let (mut batches, mut count) = (Vec::new(), 0);
        while count < most {
            let Some(row) = rows.next().map_err(into_store_error)? else { break };
            let events = rows::read_batch(id, row).map_err(|error| row_error(id, error))??.events()?;
            count += events.len();
            batches.push(events);
        }
        Ok(newest_events(batches, most))
    })
}

/// The events of the newest batches before a version, newest first.
pub(super) fn latest_turns(
    connection: &Connection,
    id: &ConversationId,
    before: Option<Version>,
    most: usize,
) -> StoreResult<Vec<TurnEvents>> {
    in_read_transaction(connection, || {
        let Some(head) = head(connection, id)? else { return Ok(Vec::new()) };
        let before = before.map_or(head.version + 1, |before| before.0);
        let sql = batch_query("version < ?2 ORDER BY version DESC LIMIT ?3");
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        query_all(connection, id, &sql, params![head.number, SqlU64(before), most], |row| {
            Ok(rows::read_batch(id, row)?.and_then(|batch| {
                let (version, turn) = (Version(batch.version), TurnNumber(batch.turn));
                Ok(TurnEvents { version, turn, events: batch.events()? })
            }))
        })
    })
}

/// The replies of the batch that answered a turn.
pub(super) fn replies_to(
    connection: &Connection,
    id: &ConversationId,
    turn: TurnNumber,
) -> StoreResult<Vec<StoredReply>> {
    let Some(head) = head(connection, id)? else { return Ok(Vec::new()) };
    let sql = batch_query("turn = ?2");
    let found = query_all(connection, id, &sql, params![head.number, SqlU64(turn.0)], |row| {
        Ok(rows::read_batch(id, row)?.and_then(|batch| batch.replies()))
    })?;
    Ok(found.into_iter().next().unwrap_or_default())
}

/// The replies of a turn; `None` if it is open or does not exist.
pub(super) fn replies_of(
    connection: &Connection,
    id: &ConversationId,
    turn: TurnNumber,
) -> StoreResult<Option<Vec<StoredReply>>> {
    in_read_transaction(connection, || {
        let head = head(connection, id)?.filter(|head| turn.0 <= head.turns && !head.is_open(turn.0));
        head.map(|_| replies_to(connection, id, turn)).transpose()
    })
}

/// The journal of a turn: the latest record of each step.
fn journal(
    connection: &Connection,
    id: &ConversationId,
    conversation: i64,
    turn: u64,
) -> StoreResult<Vec<JournalRecord>> {
    let sql = format!("SELECT {} FROM journal WHERE conversation = ?1 AND turn = ?2 ORDER BY id", rows::RECORD_COLUMNS);
    let written =
        query_all(connection, id, &sql, params![conversation, SqlU64(turn)], |row| rows::read_record(id, turn, row))?;
    let mut merged = Vec::new();
    merge_journal(&mut merged, written);
    Ok(merged)
}

/// The messages of a conversation by turn.
fn messages(
    connection: &Connection,
    id: &ConversationId,
    conversation: i64,
) -> StoreResult<HashMap<u64, InboxMessage>> {
    let found = query_all(connection, id, &inbox_query("true"), [conversation], |row| rows::read_message(id, row))?;
    Ok(found.into_iter().collect())
}

/// The message of one turn.
fn message(
    connection: &Connection,
    id: &ConversationId,
    conversation: i64,
    turn: u64,
) -> StoreResult<Option<InboxMessage>> {
    let params = params![conversation, SqlU64(turn)];
    let found = query_all(connection, id, &inbox_query("turn = ?2"), params, |row| rows::read_message(id, row))?;
    Ok(found.into_iter().next().map(|(_, inbound)| inbound))
}

pub(super) fn unfinished_turns_in(
    connection: &Connection,
    id: &ConversationId,
    turns: &Range<TurnNumber>,
) -> StoreResult<Vec<UnfinishedTurn>> {
    in_read_transaction(connection, || {
        let Some(mut head) = head(connection, id)? else { return Ok(Vec::new()) };
        head.open.retain(|(turn, _)| turns.contains(&TurnNumber(*turn)));
        let mut found = Vec::new();
        for (turn, _) in head.open {
            let inbound = message(connection, id, head.number, turn)?;
            let inbound = inbound
                .ok_or_else(|| StoreError::corrupt(id, format!("table inbox, turn {turn}: the row is missing")))?;
            let journal = journal(connection, id, head.number, turn)?;
            found.push(UnfinishedTurn { turn: TurnNumber(turn), inbound, journal });
        }
        Ok(found)
    })
}

pub(super) fn conversations_with_work(connection: &Connection) -> StoreResult<Vec<ConversationId>> {
    let sql = "SELECT id FROM conversations WHERE open <> '' OR pending <> '' ORDER BY updated_at DESC, id";
    ids(connection, sql, [])
}

pub(super) fn next_reminders(connection: &Connection, limit: usize) -> StoreResult<Vec<(ConversationId, Timestamp)>> {
    let sql = "SELECT conversations.id, timers.due FROM timers
               JOIN conversations ON conversations.number = timers.conversation ORDER BY timers.due LIMIT ?1";
    let mut statement = connection.prepare_cached(sql).map_err(into_store_error)?;
    let mut rows = statement.query(params![SqlU64(limit as u64)]).map_err(into_store_error)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().map_err(into_store_error)? {
        // Rows of the wrong types are skipped.
        if let (Ok(id), Ok(due)) = (row.get::<_, String>(0), row.get(1)) {
            found.push((ConversationId::from(id), Timestamp::from_micros(due)));
        }
    }
    Ok(found)
}

pub(super) fn pending_replies(connection: &Connection, id: &ConversationId) -> StoreResult<Vec<StoredReply>> {
    in_read_transaction(connection, || {
        let Some(head) = head(connection, id)? else { return Ok(Vec::new()) };
        let mut waiting: BTreeMap<u64, Vec<Arc<str>>> = BTreeMap::new();
        head.pending.into_iter().for_each(|(version, reply)| waiting.entry(version).or_default().push(reply));
        let mut found = Vec::new();
        for (version, ids) in waiting {
            let sql = batch_query("version = ?2");
            let stored = query_all(connection, id, &sql, params![head.number, SqlU64(version)], |row| {
                Ok(rows::read_batch(id, row)?.and_then(|batch| batch.replies()))
            })?;
            found.extend(stored.into_iter().flatten().filter(|reply| ids.contains(&reply.id)));
        }
        Ok(found)
    })
}

/// A turn without its journal. `message` returns the message of the turn with a number, if it is stored.
fn read_turn(
    id: &ConversationId,
    row: &Row<'_>,
    message: impl FnOnce(u64) -> Option<InboxMessage>,
) -> rusqlite::Result<StoreResult<StoredTurn>> {
    let trace = row.get(5)?;
    Ok(rows::read_batch(id, row)?.and_then(|batch| {
        let (events, replies) = (batch.events()?, batch.replies()?);
        let inbound = message(batch.turn).unwrap_or_else(|| dedup::from_events(id, &events));
        let turn = TurnNumber(batch.turn);
        Ok(StoredTurn { turn, inbound, events, replies, journal: Vec::new(), trace })
    }))
}

pub(super) fn turn(connection: &Connection, id: &ConversationId, turn: TurnNumber) -> StoreResult<Option<StoredTurn>> {
    in_read_transaction(connection, || {
        let Some(head) = head(connection, id)?.filter(|_| turn.0 > 0) else { return Ok(None) };
        let mut message = message(connection, id, head.number, turn.0)?;
        let params = params![head.number, SqlU64(turn.0)];
        let found =
            query_all(connection, id, &batch_query("turn = ?2"), params, |row| read_turn(id, row, |_| message.take()))?;
        let Some(mut found) = found.into_iter().next() else { return Ok(None) };
        found.journal = journal(connection, id, head.number, turn.0)?;
        Ok(Some(found))
    })
}

pub(super) fn turns(connection: &Connection, id: &ConversationId) -> StoreResult<Vec<StoredTurn>> {
    in_read_transaction(connection, || {
        let Some(head) = head(connection, id)? else { return Ok(Vec::new()) };
        let mut messages = messages(connection, id, head.number)?;
        let mut turns = query_all(connection, id, &batch_query("true ORDER BY version"), [head.number], |row| {
            read_turn(id, row, |turn| messages.remove(&turn))
        })?;
        for turn in turns.iter_mut().filter(|turn| turn.turn.0 > 0) {
            turn.journal = journal(connection, id, head.number, turn.turn.0)?;
        }
        Ok(turns)
    })
}

/// The reason if the conversation is corrupt. All other errors are returned as such.
fn corruption<T>(read: StoreResult<T>) -> StoreResult<Option<String>> {
    match read {
        Ok(_) => Ok(None),
        Err(StoreError::Corrupt { reason, .. }) => Ok(Some(reason)),
        Err(error) => Err(error),
    }
}

/// The conversations that have open turns, undelivered replies or corrupt rows, by id. Reads all of them.
pub(super) fn problems(connection: &Connection) -> StoreResult<Vec<ConversationProblem>> {
    let sql = format!("SELECT {}, id FROM conversations ORDER BY id", ConversationHead::COLUMNS);
    let mut statement = connection.prepare(&sql).map_err(into_store_error)?;
    let mut rows = statement.query([]).map_err(into_store_error)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().map_err(into_store_error)? {
        let id = row.get::<_, String>(6).map(ConversationId::from);
        let Ok(id) = id else { continue };
        let (head, mut corruption) = match ConversationHead::read(row).map_err(into_store_error)? {
            Ok(head) => (head, corruption(load(connection, &id))?),
            Err(reason) => (ConversationHead::default(), Some(reason)),
        };
        let mut open = Vec::new();
        for (turn, at) in head.open {
            let journal = journal(connection, &id, head.number, turn);
            let attempts = journal.as_ref().map_or(1, |journal| attempts(journal));
            corruption = corruption.or(self::corruption(journal)?);
            open.push(UnfinishedTurnSummary { turn: TurnNumber(turn), at: Timestamp::from_micros(at), attempts });
        }
        if !open.is_empty() || !head.pending.is_empty() || corruption.is_some() {
            found.push(ConversationProblem {
                unfinished_turns: open,
                pending_replies: head.pending.len(),
                corruption,
                conversation: id,
            });
        }
    }
    Ok(found)
}

pub(super) fn conversations(connection: &Connection, limit: usize) -> StoreResult<Vec<ConversationId>> {
    let sql = "SELECT id FROM conversations ORDER BY updated_at DESC, id LIMIT ?1";
    let limit = limit.min(limits::CONVERSATIONS_LISTED) as u64;
    ids(connection, sql, [SqlU64(limit)])
}

pub(super) fn replies_to_message(
    connection: &Connection,
    id: &ConversationId,
    message: &MessageId,
) -> StoreResult<Option<Vec<StoredReply>>> {
    in_read_transaction(connection, || {
        let Some(head) = head(connection, id)? else { return Ok(None) };
        // Only rows that contain the id are decoded: a conversation may be long.
        let written = rows::json(id, message)?;
        let sql = inbox_query("instr(message, ?2) > 0 ORDER BY id DESC");
        let messages =
            query_all(connection, id, &sql, params![head.number, written], |row| rows::read_message(id, row))?;
        let turn =
            messages.iter().find(|(turn, inbound)| inbound.message.message_id == *message && !head.is_open(*turn));
        turn.map(|(turn, _)| replies_to(connection, id, TurnNumber(*turn))).transpose()
    })
}

pub(super) fn private_text(connection: &Connection, id: &ConversationId, name: &str) -> StoreResult<Option<String>> {
    let sql = "SELECT text FROM private
               WHERE conversation = (SELECT number FROM conversations WHERE tenant = '' AND id = ?1) AND name = ?2";
    let found = query_all(connection, id, sql, [id.as_str(), name], |row| Ok(Ok(row.get::<_, String>(0)?)))?;
    Ok(found.into_iter().next())
}

pub(super) fn text_by_hash(connection: &Connection, id: &ConversationId, hash: &str) -> StoreResult<Option<Arc<str>>> {
    let sql = "SELECT body FROM bodies
               WHERE conversation = (SELECT number FROM conversations WHERE tenant = '' AND id = ?1) AND hash = ?2";
    let found = query_all(connection, id, sql, [id.as_str(), hash], |row| Ok(Ok(Arc::from(row.get::<_, String>(0)?))))?;
    Ok(found.into_iter().next())
}
