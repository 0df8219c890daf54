//! Deletion: one conversation, or all data past its retention.

use std::{collections::BTreeSet, time::Duration};

use rusqlite::{Connection, OptionalExtension, params};
use segue_base::limits;
use segue_engine::{ids::ConversationId, time::Timestamp};

use super::head_cache::ConversationHead;

/// Rows per transaction of the purge, so that turns do not wait long.
const ROWS_PER_TRANSACTION: i64 = 500;
/// The purge stops after this many consecutive batches whose time is in the future.
const MAX_FUTURE_BATCHES: usize = 10_000;
/// How long a checkpoint waits for readers before it leaves the rest to the next checkpoint.
const CHECKPOINT_WAIT: Duration = Duration::from_millis(100);
/// The key of `progress` that holds the id of the last purged batch.
const EXPIRY_PROGRESS: &str = "expired batches";

/// Subquery for the number of the conversation with the id `?1`.
const CONVERSATION_NUMBER: &str = "(SELECT number FROM conversations WHERE tenant = '' AND id = ?1)";

/// Removes every row of a conversation.
pub(super) fn erase(connection: &Connection, id: &ConversationId) -> rusqlite::Result<()> {
    for table in ["inbox", "batches", "snapshots", "journal", "bodies", "timers", "private"] {
        connection
            .execute(&format!("DELETE FROM {table} WHERE conversation = {CONVERSATION_NUMBER}"), [id.as_str()])?;
    }
    // The head is deleted last: the other statements read the number from it.
    connection.execute("DELETE FROM conversations WHERE tenant = '' AND id = ?1", [id.as_str()]).map(drop)
}

/// Stores a private text, or deletes it.
pub(super) fn set_private_text(
    connection: &Connection,
    id: &ConversationId,
    name: &str,
    text: Option<&str>,
    at: Timestamp,
) -> rusqlite::Result<()> {
    let kept = match text {
        Some(text) => connection.execute(
            "INSERT OR REPLACE INTO private (conversation, name, at, text)
             SELECT number, ?2, ?3, ?4 FROM conversations WHERE tenant = '' AND id = ?1",
            params![id.as_str(), name, at.as_micros(), text],
        ),
        None => connection.execute(
            &format!("DELETE FROM private WHERE conversation = {CONVERSATION_NUMBER} AND name = ?2"),
            params![id.as_str(), name],
        ),
    };
    kept.map(drop)
}

/// Moves the write-ahead log into the file and truncates it, so that no erased data is left in it. Must be called
/// outside a transaction. If a reader is busy too long, a later checkpoint does it.
pub(super) fn truncate_wal(connection: &Connection) {
    let _ = connection.busy_timeout(CHECKPOINT_WAIT);
    let _ = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
    let _ = connection.busy_timeout(limits::STORE_BUSY);
}

/// Deletes one part of the data past its retention. Returns how many rows were deleted, and whether there may be more.
///
/// Batch ids increase in the order of writing, so the old batches are those after the last purged one, up to the first
/// that is not old. A batch with a time in the future was written while the clock was wrong: it counts as old as the
/// next batch with a plausible time.
pub(super) fn expire(connection: &Connection, now: Timestamp) -> rusqlite::Result<(u64, bool)> {
    let retention = i64::try_from(limits::JOURNAL_RETENTION.as_micros()).unwrap_or(i64::MAX);
    let limit = now.as_micros().saturating_sub(retention);
    let get = "SELECT value FROM progress WHERE name = ?1";
    let private = connection.execute("DELETE FROM private WHERE at < ?1", [limit])?;
    let done: i64 = connection.query_row(get, [EXPIRY_PROGRESS], |row| row.get(0)).optional()?.unwrap_or(0);
    let (mut last, mut old, mut gone, mut future) = (done, 0, private, Vec::new());
    let mut touched = BTreeSet::new();
    {
        let sql = "SELECT id, conversation, turn, at FROM batches WHERE id > ?1 ORDER BY id";
        let mut batches = connection.prepare_cached(sql)?;
        let clear = "UPDATE batches SET trace = NULL WHERE id = ?1 AND trace IS NOT NULL";
        let mut clear = connection.prepare_cached(clear)?;
        let mut journal = connection.prepare_cached("DELETE FROM journal WHERE conversation = ?1 AND turn = ?2")?;
        let mut rows = batches.query([done])?;
        while old < ROWS_PER_TRANSACTION && future.len() < MAX_FUTURE_BATCHES {
            let Some(row) = rows.next()? else { break };
            let batch: (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
            let at: i64 = row.get(3)?;
            if at > now.as_micros() {
                future.push(batch);
                continue;
            }
            if at >= limit {
                break;
            }
            for (id, conversation, turn) in future.drain(..).chain([batch]) {
                gone += clear.execute([id])? + journal.execute(params![conversation, turn])?;
                touched.insert(conversation);
                (last, old) = (id, old + 1);
            }
        }
    }
    for conversation in touched {
        gone += delete_expired_messages(connection, conversation, limit)?;
        let sql = "DELETE FROM bodies WHERE conversation = ?1 AND at < ?2";
        gone += connection.execute(sql, params![conversation, limit])?;
    }
    if last > done {
        connection
            .execute("INSERT OR REPLACE INTO progress (name, value) VALUES (?1, ?2)", params![EXPIRY_PROGRESS, last])?;
    }
    Ok((gone as u64, old >= ROWS_PER_TRANSACTION))
}

/// Deletes the answered messages of a conversation that are past their retention.
fn delete_expired_messages(connection: &Connection, conversation: i64, limit: i64) -> rusqlite::Result<usize> {
    let sql = format!("SELECT {} FROM conversations WHERE number = ?1", ConversationHead::COLUMNS);
    let head = connection.query_row(&sql, [conversation], ConversationHead::read);
    // With a corrupt head it is unknown which messages are answered, so all are kept.
    let Some(Ok(head)) = head.optional()? else { return Ok(0) };
    let open: Vec<u64> = head.open.iter().map(|(turn, _)| *turn).collect();
    let open = serde_json::to_string(&open).unwrap_or_default();
    let sql = "DELETE FROM inbox WHERE conversation = ?1 AND at < ?2 AND turn NOT IN (SELECT value FROM json_each(?3))";
    connection.execute(sql, params![conversation, limit, open])
}
