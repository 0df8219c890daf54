//! Migration of files with an earlier schema. No other module reads the old rows.
//!
//! The migration is one-way: from its first transaction on an earlier version refuses the file. Before that the file is
//! copied (the copy's name ends in `.schema-8`, or the version it has), which needs disk space. A file of version 9 only
//! gets further tables, in one transaction. In a file of an earlier version the rows of each table are moved from the old
//! table to the new one, some hundreds per transaction. A row is always in exactly one of the two, so an interrupted
//! migration resumes at the next start. Only the holder of the file lock migrates.
//!
//! A row that cannot be decoded stays corrupt: it is moved with what is left of its text and a checksum that does not
//! match. Other conversations are not affected.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, Row, Transaction, TransactionBehavior, params, types::ValueRef};
use segue_base::{context::StepKey, failpoint};
use segue_engine::{
    conversation::{Event, UserMessage},
    ids::ConversationId,
    time::Timestamp,
};
use serde::Deserialize;
use serde_json::{Map, Value as Json, value::RawValue};

use super::{
    SqlU64, backup, file_lock,
    head_cache::ConversationHead,
    into_store_error, read, retention, rows,
    schema::{self, RUN_TABLES, SCHEMA_VERSION, TABLES},
};
use crate::{InboxMessage, JournalRecord, StoreError, StoredReply, TurnNumber, announce_reply, checksum::Checksum};

/// Rows per transaction.
const ROWS_PER_TRANSACTION: usize = 500;
/// Rows between two progress messages.
const REPORT_EVERY: usize = 100 * ROWS_PER_TRANSACTION;
/// Bytes that must be free in addition to twice the size of the file.
const RESERVED_BYTES: u64 = 32 << 20;
/// The key of `progress` that holds the number of rows to move while a migration is incomplete.
const MIGRATION_PROGRESS: &str = "rows of an earlier version";

/// The version whose rows have the present encoding. Those of earlier versions are moved to new tables.
const MOVED_ROWS: u32 = 9;

/// The statements that lead from the schema before to this version. The versions between changed the encoding of rows
/// and no table.
const SCHEMA_STEPS: [(u32, &str); 3] = [(2, TO_V2), (3, TO_V3), (8, TO_V8)];

const TO_V2: &str = "
CREATE TABLE records (
    id INTEGER PRIMARY KEY, conversation INTEGER NOT NULL, turn INTEGER NOT NULL, step TEXT NOT NULL, kind TEXT NOT NULL,
    request TEXT NOT NULL, outcome TEXT, at INTEGER NOT NULL, build INTEGER NOT NULL
);
INSERT INTO records (conversation, turn, step, kind, request, outcome, at, build)
    SELECT conversation, turn, step, kind, request, outcome, at, build FROM journal;
DROP TABLE journal;
ALTER TABLE records RENAME TO journal;
CREATE INDEX journal_by_turn ON journal (conversation, turn);
";

const TO_V3: &str = "
CREATE TABLE timers (conversation INTEGER PRIMARY KEY, due INTEGER NOT NULL);
CREATE INDEX timers_in_order ON timers (due);
";

const TO_V8: &str = "
CREATE TABLE IF NOT EXISTS private (
    conversation INTEGER NOT NULL, name TEXT NOT NULL, at INTEGER NOT NULL, text TEXT NOT NULL,
    PRIMARY KEY (conversation, name)
) WITHOUT ROWID;
";

/// Renames the old tables. Heads are small and are copied at once.
const RENAME_OLD_TABLES: &str = "
DROP VIEW events;
DROP INDEX inbox_once;
DROP INDEX batches_in_order;
DROP INDEX journal_by_turn;
ALTER TABLE conversations RENAME TO old_conversations;
ALTER TABLE inbox RENAME TO old_inbox;
ALTER TABLE batches RENAME TO old_batches;
ALTER TABLE snapshots RENAME TO old_snapshots;
ALTER TABLE journal RENAME TO old_journal;
";
const COPY_HEADS: &str = "
INSERT INTO conversations (number, id, version, turns, open, pending, updated_at)
    SELECT number, id, version, turns, open, pending, touched FROM old_conversations ORDER BY number;
DROP TABLE old_conversations;
";

/// Whether a migration was interrupted.
pub(super) fn is_incomplete(connection: &Connection) -> rusqlite::Result<bool> {
    connection.prepare("SELECT 1 FROM progress WHERE name = ?1")?.exists([MIGRATION_PROGRESS])
}

/// Migrates a file with an earlier schema, or resumes an interrupted migration.
pub(super) fn migrate(connection: &mut Connection, path: &Path) -> Result<(), StoreError> {
    migrate_with(connection, path, |folder| fs4::available_space(folder))
}

/// As [`migrate`]; `free` returns the free bytes in a folder.
fn migrate_with(
    connection: &mut Connection,
    path: &Path,
    free: impl Fn(&Path) -> std::io::Result<u64>,
) -> Result<(), StoreError> {
    let failed = |e: rusqlite::Error| StoreError::Unavailable(format!("{}: {e}", path.display()));
    let version = schema::version(connection).map_err(failed)?;
    if version < SCHEMA_VERSION {
        let copy = copy_before_migration(connection, path, version, free)?;
        tracing::warn!(
            "{}: the file has an earlier schema and is migrated; earlier versions cannot read it afterwards. {} is a copy of the old \
             file, which keeps data that is erased later: remove it when you no longer need to go back",
            path.display(),
            copy.display()
        );
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
        let start = if version < MOVED_ROWS { start_migration } else { add_tables };
        start(&transaction, version, &announcements_path(path)).map_err(failed)?;
        transaction.commit().map_err(failed)?;
    }
    if is_incomplete(connection).map_err(failed)? {
        move_all(connection, path)?;
        tracing::warn!("{}: the migration is complete", path.display());
    }
    Ok(())
}

/// Copies a file beside itself, completely or not at all.
fn copy_before_migration(
    connection: &Connection,
    path: &Path,
    version: u32,
    free: impl Fn(&Path) -> std::io::Result<u64>,
) -> Result<PathBuf, StoreError> {
    let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, SqlU64>(0)).map_err(into_store_error);
    let size = number("PRAGMA page_count")?.0.saturating_mul(number("PRAGMA page_size")?.0);
    let name = |ending: &str| file_lock::sibling_path(path, &format!(".schema-{version}{ending}"));
    let folder = name("").parent().map(Path::to_owned).unwrap_or_default();
    // If the free space is unknown, a full disk is reported by the copy itself.
    free(&folder).map_or(Ok(()), |free| check_free_space(path, size, free))?;
    let unavailable = |e: std::io::Error| StoreError::Unavailable(format!("{}: {e}", name("").display()));
    let part = name(".part");
    let _ = std::fs::remove_file(&part);
    backup::copy(path, &part)?;
    // The announcements of replies, which an earlier version reads from beside its file.
    if announcements_path(path).exists() {
        std::fs::copy(announcements_path(path), name("-speaking")).map_err(unavailable)?;
    }
    std::fs::rename(&part, name("")).map_err(unavailable)?;
    failpoint::hit("migration_copied");
    Ok(name(""))
}

/// Checks that there is enough disk space for a copy of the file, and for the new rows while the old ones still exist.
fn check_free_space(path: &Path, size: u64, free: u64) -> Result<(), StoreError> {
    let needed = size.saturating_mul(2).saturating_add(RESERVED_BYTES);
    if free >= needed {
        return Ok(());
    }
    Err(StoreError::Unavailable(format!(
        "{} has an earlier schema, and its migration needs {} MiB free on its disk for a copy and the new rows; \
         there are {} MiB: free some space, or move the file to another disk; nothing was changed",
        path.display(),
        needed.div_ceil(1 << 20),
        free >> 20
    )))
}

/// Adds the tables that are new since version 9, which is a migration in one transaction. The rows of version 9 stay as they are.
fn add_tables(connection: &Transaction<'_>, _version: u32, _announcements: &Path) -> rusqlite::Result<()> {
    connection.execute_batch(RUN_TABLES)?;
    connection.pragma_update(None, "user_version", SCHEMA_VERSION)
}

/// Renames the old tables of a file with schema `version`, and creates the new ones.
fn start_migration(connection: &Transaction<'_>, version: u32, announcements: &Path) -> rusqlite::Result<()> {
    for (_, tables) in SCHEMA_STEPS.iter().filter(|(to, _)| *to > version) {
        connection.execute_batch(tables)?;
    }
    connection.execute_batch(RENAME_OLD_TABLES)?;
    connection.execute_batch(TABLES)?;
    connection.execute_batch(RUN_TABLES)?;
    connection.execute_batch(COPY_HEADS)?;
    if let Ok(announcements) = std::fs::read(announcements) {
        put_announcements(connection, &announcements)?;
    }
    let count = "SELECT (SELECT count(*) FROM old_inbox) + (SELECT count(*) FROM old_batches)
                        + (SELECT count(*) FROM old_snapshots) + (SELECT count(*) FROM old_journal)";
    let count: i64 = connection.query_row(count, [], |row| row.get(0))?;
    connection.execute("INSERT INTO progress (name, value) VALUES (?1, ?2)", params![MIGRATION_PROGRESS, count])?;
    connection.pragma_update(None, "user_version", SCHEMA_VERSION)
}

/// Moves the remaining rows of the old tables.
fn move_all(connection: &mut Connection, path: &Path) -> Result<(), StoreError> {
    let sql = "SELECT value FROM progress WHERE name = ?1";
    let all: i64 = connection.query_row(sql, [MIGRATION_PROGRESS], |row| row.get(0)).map_err(into_store_error)?;
    let (mut moved, mut reported) = (0, 0);
    // Records written while a turn ran come before those of its batch.
    let tables: [(&str, &str, MoveRow); 4] = [
        ("old_journal", "id", put_records),
        ("old_inbox", "id", put_message),
        ("old_batches", "id", put_batch),
        ("old_snapshots", "conversation", put_snapshot),
    ];
    for (table, key, put) in tables {
        while let Some(rows) = move_part(connection, table, key, put)? {
            failpoint::hit("migration_part");
            moved += rows;
            if moved - reported >= REPORT_EVERY {
                reported = moved;
                tracing::warn!("{}: {moved} of {all} rows are migrated", path.display());
            }
        }
    }
    // The announcements must be in the file before their own file is removed.
    retention::truncate_wal(connection);
    let _ = std::fs::remove_file(announcements_path(path));
    connection.execute("DELETE FROM progress WHERE name = ?1", [MIGRATION_PROGRESS]).map(drop).map_err(into_store_error)
}

/// Writes an old row of the given conversation into the new tables.
type MoveRow = fn(&Connection, &ConversationId, &Row<'_>) -> rusqlite::Result<()>;

/// Moves some rows of a table in one transaction; returns how many. The empty table is dropped; `None` if it is gone
/// already.
fn move_part(connection: &mut Connection, table: &str, key: &str, put: MoveRow) -> Result<Option<usize>, StoreError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(into_store_error)?;
    let there = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?1";
    if !transaction.prepare(there).and_then(|mut there| there.exists([table])).map_err(into_store_error)? {
        return Ok(None);
    }
    let mut last = None;
    let mut count = 0;
    {
        let sql = format!(
            "SELECT old.*, conversations.id AS name, old.{key} AS key FROM {table} AS old
             LEFT JOIN conversations ON conversations.number = old.conversation ORDER BY old.{key} LIMIT {ROWS_PER_TRANSACTION}"
        );
        let mut statement = transaction.prepare(&sql).map_err(into_store_error)?;
        let mut rows = statement.query([]).map_err(into_store_error)?;
        while let Some(row) = rows.next().map_err(into_store_error)? {
            // Rows without a readable conversation id could never be read, and are skipped.
            if let Ok(name) = row.get::<_, String>("name") {
                let id = ConversationId::from(name);
                match put(&transaction, &id, row).map_err(|error| read::row_error(&id, error)) {
                    Err(error @ StoreError::Corrupt { .. }) => {
                        tracing::warn!(code = error.code(), "{error}; a row is skipped")
                    }
                    done => done?,
                }
            }
            last = Some(row.get::<_, i64>("key").map_err(into_store_error)?);
            count += 1;
        }
    }
    match last {
        Some(last) => transaction.execute(&format!("DELETE FROM {table} WHERE {key} <= ?1"), [last]).map(drop),
        None => transaction.execute_batch(&format!("DROP TABLE {table}")),
    }
    .and_then(|()| transaction.commit())
    .map_err(into_store_error)?;
    Ok(Some(count))
}

/// Why an old row cannot be decoded.
type Corruption = String;

/// The JSON of a row, which starts with one byte for the version of the encoding and a checksum.
fn verified_body<'r>(id: &ConversationId, number: u64, row: ValueRef<'r>) -> Result<&'r str, Corruption> {
    let row = row.as_blob().map_err(|e| e.to_string())?;
    let (sum, body) = match row.split_first() {
        Some((1, rest)) => rest.split_first_chunk::<8>().ok_or("the data is truncated")?,
        _ => return Err("the encoding is unknown".to_owned()),
    };
    if u64::from_le_bytes(*sum) != Checksum::new(id.as_str()).number(number).bytes(body).finish() {
        return Err("the checksum does not match".to_owned());
    }
    std::str::from_utf8(body).map_err(|e| e.to_string())
}

fn parse<'r, T: Deserialize<'r>>(text: &'r str) -> Result<T, Corruption> {
    serde_json::from_str(text).map_err(|e| e.to_string())
}

/// The readable text of a corrupt row.
fn readable_text(row: ValueRef<'_>) -> String {
    match row {
        ValueRef::Blob(bytes) | ValueRef::Text(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        _ => String::new(),
    }
}

/// Logs that a row is corrupt, and returns a checksum that does not match it.
fn mismatched_checksum(id: &ConversationId, place: &str, corruption: &str, matching: SqlU64) -> SqlU64 {
    let error = StoreError::corrupt(id, format!("{place}: {corruption}"));
    tracing::warn!(code = error.code(), "{error}; the row stays corrupt");
    SqlU64(!matching.0)
}

/// An old journal row holds one record, or several in a blob.
fn put_records(connection: &Connection, id: &ConversationId, row: &Row<'_>) -> rusqlite::Result<()> {
    let (conversation, SqlU64(turn)) = (row.get("conversation")?, row.get("turn")?);
    let outcome = row.get_ref("outcome")?;
    let records = if let ValueRef::Blob(_) = outcome { unpack_records(id, turn, outcome) } else { one_record(row) };
    put_journal(connection, id, (conversation, turn), outcome, records)
}

fn one_record(row: &Row<'_>) -> Result<Vec<JournalRecord>, Corruption> {
    let read = || -> rusqlite::Result<JournalRecord> {
        let text = |column: &str| row.get::<_, String>(column);
        Ok(JournalRecord {
            key: StepKey::new(text("step")?),
            kind: text("kind")?.into(),
            request: text("request")?.into(),
            outcome: row.get::<_, Option<String>>("outcome")?.map(Into::into),
            at: Timestamp::from_micros(row.get("at")?),
            build: row.get::<_, SqlU64>("build")?.0,
        })
    };
    read().map(|record| vec![record]).map_err(|e| e.to_string())
}

/// `[[build, [[step, kind, request, outcome, at], ...]], ...]`, or in batches before version 6 a list of objects.
fn unpack_records(id: &ConversationId, number: u64, row: ValueRef<'_>) -> Result<Vec<JournalRecord>, Corruption> {
    type Fields = (StepKey, String, String, Option<String>, Timestamp);
    let body = verified_body(id, number, row)?;
    if body.starts_with("[{") {
        return parse(body);
    }
    let runs: Vec<(u64, Vec<Fields>)> = parse(body)?;
    let record = |build, (key, kind, request, outcome, at): Fields| JournalRecord {
        key,
        kind: kind.into(),
        request: request.into(),
        outcome: outcome.map(Into::into),
        at,
        build,
    };
    Ok(runs.into_iter().flat_map(|(build, run)| run.into_iter().map(move |of| record(build, of))).collect())
}

fn put_journal(
    connection: &Connection,
    id: &ConversationId,
    (conversation, turn): (i64, u64),
    row: ValueRef<'_>,
    records: Result<Vec<JournalRecord>, Corruption>,
) -> rusqlite::Result<()> {
    let put = |record: &JournalRecord, checksum: SqlU64| {
        let sql = format!(
            "INSERT INTO journal ({}, conversation, turn) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            rows::RECORD_COLUMNS
        );
        connection.prepare_cached(&sql)?.execute(params![
            record.key.as_str(),
            record.kind,
            record.request,
            record.outcome,
            record.at.as_micros(),
            SqlU64(record.build),
            checksum,
            conversation,
            SqlU64(turn)
        ])
    };
    match records {
        Ok(records) => {
            records.iter().try_for_each(|record| put(record, rows::record_checksum(id, turn, record)).map(drop))
        }
        Err(corruption) => {
            let record = JournalRecord {
                key: StepKey::new(""),
                kind: "damaged".into(),
                request: "".into(),
                outcome: Some(readable_text(row).into()),
                at: Timestamp::default(),
                build: 0,
            };
            let matching = rows::record_checksum(id, turn, &record);
            put(&record, mismatched_checksum(id, &format!("table journal, turn {turn}"), &corruption, matching))
                .map(drop)
        }
    }
}

/// An old message is an array of tenant, account, text, message id, channel, time, seed and, optionally, metadata.
fn unpack_message(id: &ConversationId, row: ValueRef<'_>) -> Result<InboxMessage, Corruption> {
    #[derive(Deserialize)]
    struct Packed(String, String, String, String, String, i64, u64, #[serde(default)] Map<String, Json>);
    let row = row.as_blob().map_err(|e| e.to_string())?;
    let Packed(tenant, account, text, message_id, channel, at, seed, metadata) =
        serde_json::from_slice(row).map_err(|e| e.to_string())?;
    Ok(InboxMessage {
        tenant: tenant.into(),
        account: account.into(),
        conversation: id.clone(),
        message: UserMessage {
            via: "".into(),
            holds_writes: false,
            before_question: false,
            text: text.into(),
            message_id: message_id.into(),
            input_channel: channel.into(),
            metadata,
        },
        at: Timestamp::from_micros(at),
        seed,
    })
}

fn put_message(connection: &Connection, id: &ConversationId, row: &Row<'_>) -> rusqlite::Result<()> {
    let packed = row.get_ref("packed")?;
    let (text, checksum) = match unpack_message(id, packed)
        .and_then(|inbound| rows::encode_message(&inbound).map_err(|e| e.to_string()))
    {
        Ok(message) => (message.text, message.checksum),
        Err(corruption) => {
            let text = readable_text(packed);
            let place = format!("table inbox, turn {}", row.get::<_, i64>("turn")?);
            let checksum = mismatched_checksum(id, &place, &corruption, rows::message_checksum(id, &text));
            (text, checksum)
        }
    };
    let sql = "INSERT INTO inbox (id, conversation, turn, at, dedup_hash, message, checksum) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    connection.prepare_cached(sql)?.execute(params![
        row.get::<_, i64>("id")?,
        row.get::<_, i64>("conversation")?,
        row.get::<_, i64>("turn")?,
        row.get::<_, i64>("at")?,
        row.get::<_, Option<i64>>("mark")?,
        text,
        checksum
    ])?;
    Ok(())
}

/// Old replies are NULL (none), an empty blob (those in the events), or a list.
fn put_batch(connection: &Connection, id: &ConversationId, row: &Row<'_>) -> rusqlite::Result<()> {
    let conversation: i64 = row.get("conversation")?;
    let (SqlU64(version), SqlU64(turn)) = (row.get("version")?, row.get("turn")?);
    let read = || -> Result<(String, String), Corruption> {
        let events = verified_body(id, version, row.get_ref("events").map_err(|e| e.to_string())?)?;
        let replies = match row.get_ref("replies").map_err(|e| e.to_string())? {
            ValueRef::Null => "[]".to_owned(),
            ValueRef::Blob([]) => replies_json(turn, events)?,
            replies => verified_body(id, version, replies)?.to_owned(),
        };
        Ok((events.to_owned(), replies))
    };
    let (events, replies, checksum) = match read() {
        Ok((events, replies)) => {
            let checksum = rows::batch_checksum(id, version, turn, &events, &replies);
            (events, replies, checksum)
        }
        Err(corruption) => {
            let (events, replies) = (readable_text(row.get_ref("events")?), readable_text(row.get_ref("replies")?));
            let matching = rows::batch_checksum(id, version, turn, &events, &replies);
            (
                events,
                replies,
                mismatched_checksum(id, &format!("table batches, version {version}"), &corruption, matching),
            )
        }
    };
    let sql = "INSERT INTO batches (id, conversation, version, turn, at, events, replies, trace, checksum)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
    connection.prepare_cached(sql)?.execute(params![
        row.get::<_, i64>("id")?,
        conversation,
        SqlU64(version),
        SqlU64(turn),
        row.get::<_, i64>("at")?,
        events,
        replies,
        row.get::<_, Option<String>>("trace").ok().flatten(),
        checksum
    ])?;
    let journal = row.get_ref("journal")?;
    if journal == ValueRef::Null || turn == 0 {
        return Ok(());
    }
    put_journal(connection, id, (conversation, turn), journal, unpack_records(id, version, journal))
}

/// The replies in events, as JSON.
fn replies_json(turn: u64, events: &str) -> Result<String, Corruption> {
    let events: Vec<&RawValue> = parse(events)?;
    let read = |event: &&RawValue| Event::from_json(event.get()).map_err(|e| e.to_string());
    let events: Vec<Event> = events.iter().map(read).collect::<Result<_, _>>()?;
    let replies: Vec<StoredReply> = StoredReply::from_events(TurnNumber(turn), 0, &events).collect();
    serde_json::to_string(&replies).map_err(|e| e.to_string())
}

/// A corrupt snapshot is dropped: folding the events gives the same conversation.
fn put_snapshot(connection: &Connection, id: &ConversationId, row: &Row<'_>) -> rusqlite::Result<()> {
    let SqlU64(version) = row.get("version")?;
    if let Ok(text) = verified_body(id, version, row.get_ref("snapshot")?) {
        let sql = "INSERT INTO snapshots (conversation, version, snapshot, checksum) VALUES (?1, ?2, ?3, ?4)";
        let checksum = rows::snapshot_checksum(id, version, text);
        let conversation: i64 = row.get("conversation")?;
        connection.prepare_cached(sql)?.execute(params![conversation, SqlU64(version), text, checksum])?;
    }
    Ok(())
}

/// In versions 5 to 8, a file beside the database held the announced replies of open turns.
fn announcements_path(path: &Path) -> PathBuf {
    file_lock::sibling_path(path, "-speaking")
}

/// Bytes of one slot in that file: checksum, turn, time of acceptance and build of eight bytes each, then the ids of
/// replies, one per line, padded with zeros. Each conversation has two slots, which its turns use alternately.
const SLOT_BYTES: usize = 128;

/// Writes the announced replies of open turns into their journals.
fn put_announcements(connection: &Connection, announcements: &[u8]) -> rusqlite::Result<()> {
    let sql = format!("SELECT {}, id FROM conversations WHERE open <> ''", ConversationHead::COLUMNS);
    let mut statement = connection.prepare(&sql)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (Ok(Ok(head)), Ok(id)) = (ConversationHead::read(row), row.get::<_, String>("id")) else { continue };
        let id = ConversationId::from(id);
        for (turn, accepted) in &head.open {
            let records = announcements_of(announcements, &id, head.number, *turn, *accepted).unwrap_or_default();
            put_journal(connection, &id, (head.number, *turn), ValueRef::Null, Ok(records))?;
        }
    }
    Ok(())
}

/// The announced replies of one turn; `None` if its slot is empty, corrupt, or of another turn or database.
fn announcements_of(
    announcements: &[u8],
    id: &ConversationId,
    conversation: i64,
    turn: u64,
    accepted: i64,
) -> Option<Vec<JournalRecord>> {
    let number = conversation.cast_unsigned();
    let place = usize::try_from(number.checked_mul(2)?.checked_add(turn % 2)?).ok()?;
    let place = announcements.get(place.checked_mul(SLOT_BYTES)?..)?.first_chunk::<SLOT_BYTES>()?;
    let (sum, body) = place.split_first_chunk::<8>()?;
    if u64::from_le_bytes(*sum) != Checksum::new(id.as_str()).number(number).bytes(body).finish() {
        return None;
    }
    let (words, replies) = body.split_first_chunk::<24>()?;
    let [of, at, build] = words.as_chunks::<8>().0 else { return None };
    if (u64::from_le_bytes(*of), i64::from_le_bytes(*at)) != (turn, accepted) {
        return None;
    }
    let (at, build) = (Timestamp::from_micros(accepted), u64::from_le_bytes(*build));
    let replies = std::str::from_utf8(replies).ok()?.trim_end_matches('\0');
    Some(replies.lines().map(|reply| announce_reply(reply, at, build)).collect())
}

#[cfg(test)]
mod tests;
