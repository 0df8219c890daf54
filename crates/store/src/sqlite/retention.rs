//! Taking away: one conversation for ever, or what is past its retention.

use std::{collections::BTreeSet, time::Duration};

use rusqlite::{Connection, OptionalExtension, params};
use segue_base::limits;
use segue_engine::{ids::ConversationId, time::Timestamp};

use super::head_cache::Head;

/// Rows looked at in one transaction of the expiry, so that turns need not wait long.
const PART: i64 = 500;
/// Batches in a row with a time that has not come yet after which the expiry waits for that time.
const DOUBTFUL: usize = 10_000;
/// How long the purge of the log waits for readers before it leaves the rest to the next checkpoint.
const PURGE_WAIT: Duration = Duration::from_millis(100);
/// The name under which the expiry remembers the last batch it dealt with.
const EXPIRED: &str = "expired batches";

/// The number of a conversation by its name.
const NUMBER: &str = "(SELECT number FROM conversations WHERE tenant = '' AND id = ?1)";

/// Removes every row of a conversation.
pub(super) fn erase(connection: &Connection, id: &ConversationId) -> rusqlite::Result<()> {
    for table in ["inbox", "batches", "snapshots", "journal", "bodies", "timers", "private"] {
        connection.execute(&format!("DELETE FROM {table} WHERE conversation = {NUMBER}"), [id.as_str()])?;
    }
    // The head goes last: it tells the number.
    connection.execute("DELETE FROM conversations WHERE tenant = '' AND id = ?1", [id.as_str()]).map(drop)
}

/// Keeps a private text, or removes it.
pub(super) fn keep_private(
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
            &format!("DELETE FROM private WHERE conversation = {NUMBER} AND name = ?2"),
            params![id.as_str(), name],
        ),
    };
    kept.map(drop)
}

/// Moves the log into the file and cuts it off, so that nothing erased is left in it. Call it outside a transaction. A reader that
/// is busy too long only delays this to a later checkpoint.
pub(super) fn purge_log(connection: &Connection) {
    let _ = connection.busy_timeout(PURGE_WAIT);
    let _ = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
    let _ = connection.busy_timeout(limits::STORE_BUSY);
}

/// Removes one part of what is past its retention: how many rows went, and whether there may be more.
///
/// Batches are numbered in the order of their writing, so the old ones are those after the last that was dealt with, up to the first
/// that is not old. One with a time that has not come yet was written while the clock was wrong: it is as old as the next one
/// that can be believed.
pub(super) fn expire(connection: &Connection, now: Timestamp) -> rusqlite::Result<(u64, bool)> {
    let retention = i64::try_from(limits::JOURNAL_RETENTION.as_micros()).unwrap_or(i64::MAX);
    let limit = now.as_micros().saturating_sub(retention);
    let get = "SELECT value FROM progress WHERE name = ?1";
    let private = connection.execute("DELETE FROM private WHERE at < ?1", [limit])?;
    let done: i64 = connection.query_row(get, [EXPIRED], |row| row.get(0)).optional()?.unwrap_or(0);
    let (mut last, mut old, mut gone, mut doubtful) = (done, 0, private, Vec::new());
    let mut touched = BTreeSet::new();
    {
        let sql = "SELECT id, conversation, turn, at FROM batches WHERE id > ?1 ORDER BY id";
        let mut batches = connection.prepare_cached(sql)?;
        let clear = "UPDATE batches SET trace = NULL WHERE id = ?1 AND trace IS NOT NULL";
        let mut clear = connection.prepare_cached(clear)?;
        let mut journal = connection.prepare_cached("DELETE FROM journal WHERE conversation = ?1 AND turn = ?2")?;
        let mut rows = batches.query([done])?;
        while old < PART && doubtful.len() < DOUBTFUL {
            let Some(row) = rows.next()? else { break };
            let batch: (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
            let at: i64 = row.get(3)?;
            if at > now.as_micros() {
                doubtful.push(batch);
                continue;
            }
            if at >= limit {
                break;
            }
            for (id, conversation, turn) in doubtful.drain(..).chain([batch]) {
                gone += clear.execute([id])? + journal.execute(params![conversation, turn])?;
                touched.insert(conversation);
                (last, old) = (id, old + 1);
            }
        }
    }
    for conversation in touched {
        gone += forget_messages(connection, conversation, limit)?;
        let sql = "DELETE FROM bodies WHERE conversation = ?1 AND at < ?2";
        gone += connection.execute(sql, params![conversation, limit])?;
    }
    if last > done {
        connection.execute("INSERT OR REPLACE INTO progress (name, value) VALUES (?1, ?2)", params![EXPIRED, last])?;
    }
    Ok((gone as u64, old >= PART))
}

/// Removes the answered messages of a conversation that are past their retention.
fn forget_messages(connection: &Connection, conversation: i64, limit: i64) -> rusqlite::Result<usize> {
    let sql = format!("SELECT {} FROM conversations WHERE number = ?1", Head::COLUMNS);
    let head = connection.query_row(&sql, [conversation], Head::read);
    // A damaged head keeps its messages: nobody knows which of them are answered.
    let Some(Ok(head)) = head.optional()? else { return Ok(0) };
    let open: Vec<u64> = head.open.iter().map(|(turn, _)| *turn).collect();
    let open = serde_json::to_string(&open).unwrap_or_default();
    let sql = "DELETE FROM inbox WHERE conversation = ?1 AND at < ?2 AND turn NOT IN (SELECT value FROM json_each(?3))";
    connection.execute(sql, params![conversation, limit, open])
}
