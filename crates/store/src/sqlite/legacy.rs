//! Brings files of earlier versions up to date. Nothing else reads what they hold.
//!
//! It goes one way: an earlier version refuses the file from the first step on. Before that the file is copied (the copy's name ends in
//! `.schema-8`, or whichever version it has), which needs room on the disk. Then the rows of each table go from the old
//! one into the new one, some hundreds in a transaction, so that what was interrupted goes on with the next one: a row
//! is in one of the two. Only the owner of a file does it.
//!
//! A row that cannot be read stays damaged: it comes over with what is left of its text and a checksum that does not match. The other
//! conversations do not notice.

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
    Unsigned, backup, driver,
    head_cache::Head,
    owner, read, retention, rows,
    schema::{self, KNOWN, TABLES},
};
use crate::{InboxMessage, JournalRecord, StoreError, StoredReply, TurnNumber, checksum::Checksum, speaking};

/// Rows of one transaction.
const PART: usize = 500;
/// Rows after which it says how far it is.
const REPORT: usize = 100 * PART;
/// Bytes that must be free beside twice the size of the file.
const RESERVE: u64 = 32 << 20;
/// Under this name `progress` says how many rows were to be moved, as long as it is not done.
const UNFINISHED: &str = "rows of an earlier version";

/// What takes tables from the version before to this one; those between say how rows are written and change no table.
const EARLIER: [(u32, &str); 3] = [(2, V2), (3, V3), (8, V8)];

const V2: &str = "
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

const V3: &str = "
CREATE TABLE timers (conversation INTEGER PRIMARY KEY, due INTEGER NOT NULL);
CREATE INDEX timers_in_order ON timers (due);
";

const V8: &str = "
CREATE TABLE IF NOT EXISTS private (
    conversation INTEGER NOT NULL, name TEXT NOT NULL, at INTEGER NOT NULL, text TEXT NOT NULL,
    PRIMARY KEY (conversation, name)
) WITHOUT ROWID;
";

/// Puts the old tables aside and makes the new ones. Heads are small, and go at once.
const ASIDE: &str = "
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
const HEADS: &str = "
INSERT INTO conversations (number, id, version, turns, open, pending, updated_at)
    SELECT number, id, version, turns, open, pending, touched FROM old_conversations ORDER BY number;
DROP TABLE old_conversations;
";

/// Whether a file was left in the middle.
pub(super) fn is_unfinished(connection: &Connection) -> rusqlite::Result<bool> {
    connection.prepare("SELECT 1 FROM progress WHERE name = ?1")?.exists([UNFINISHED])
}

/// Brings a file up to date that is not, or goes on where it was left.
pub(super) fn migrate(connection: &mut Connection, path: &Path) -> Result<(), StoreError> {
    migrate_with(connection, path, |folder| fs4::available_space(folder))
}

/// The same; `free` says how many bytes are free in a folder.
fn migrate_with(
    connection: &mut Connection,
    path: &Path,
    free: impl Fn(&Path) -> std::io::Result<u64>,
) -> Result<(), StoreError> {
    let failed = |e: rusqlite::Error| StoreError::Unavailable(format!("{}: {e}", path.display()));
    let version = schema::version(connection).map_err(failed)?;
    if version < KNOWN {
        let copy = keep_copy(connection, path, version, free)?;
        tracing::warn!(
            "{}: the file is of an earlier version and is brought up to date, which no earlier version can read; {} keeps it as \
             it was, with all that is erased later: remove that copy when nobody wants to go back",
            path.display(),
            copy.display()
        );
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
        begin(&transaction, version, &marks_path(path)).map_err(failed)?;
        transaction.commit().map_err(failed)?;
    }
    if is_unfinished(connection).map_err(failed)? {
        move_all(connection, path)?;
        tracing::warn!("{}: the file is up to date", path.display());
    }
    Ok(())
}

/// Copies a file beside itself, whole or not at all.
fn keep_copy(
    connection: &Connection,
    path: &Path,
    version: u32,
    free: impl Fn(&Path) -> std::io::Result<u64>,
) -> Result<PathBuf, StoreError> {
    let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, Unsigned>(0)).map_err(driver);
    let size = number("PRAGMA page_count")?.0.saturating_mul(number("PRAGMA page_size")?.0);
    let name = |ending: &str| owner::beside(path, &format!(".schema-{version}{ending}"));
    let folder = name("").parent().map(Path::to_owned).unwrap_or_default();
    // Where it is not known, the copying says it.
    free(&folder).map_or(Ok(()), |free| has_room(path, size, free))?;
    let unavailable = |e: std::io::Error| StoreError::Unavailable(format!("{}: {e}", name("").display()));
    let part = name(".part");
    let _ = std::fs::remove_file(&part);
    backup::copy(path, &part)?;
    // Marks of replies that an earlier version looks for beside its file.
    if marks_path(path).exists() {
        std::fs::copy(marks_path(path), name("-speaking")).map_err(unavailable)?;
    }
    std::fs::rename(&part, name("")).map_err(unavailable)?;
    failpoint::hit("migration_copied");
    Ok(name(""))
}

/// The copy takes as much as the file, and new rows stand beside old ones for a while.
fn has_room(path: &Path, size: u64, free: u64) -> Result<(), StoreError> {
    let needed = size.saturating_mul(2).saturating_add(RESERVE);
    if free >= needed {
        return Ok(());
    }
    Err(StoreError::Unavailable(format!(
        "{} is of an earlier version, and bringing it up to date needs {} MiB free beside it for a copy and the new rows; \
         there are {} MiB: free some room, or move the file to another disk; nothing was changed",
        path.display(),
        needed.div_ceil(1 << 20),
        free >> 20
    )))
}

/// The tables of a file of `version` become old ones, and new ones are there.
fn begin(connection: &Transaction<'_>, version: u32, marks: &Path) -> rusqlite::Result<()> {
    for (_, tables) in EARLIER.iter().filter(|(to, _)| *to > version) {
        connection.execute_batch(tables)?;
    }
    connection.execute_batch(ASIDE)?;
    connection.execute_batch(TABLES)?;
    connection.execute_batch(HEADS)?;
    if let Ok(marks) = std::fs::read(marks) {
        put_marks(connection, &marks)?;
    }
    let count = "SELECT (SELECT count(*) FROM old_inbox) + (SELECT count(*) FROM old_batches)
                        + (SELECT count(*) FROM old_snapshots) + (SELECT count(*) FROM old_journal)";
    let count: i64 = connection.query_row(count, [], |row| row.get(0))?;
    connection.execute("INSERT INTO progress (name, value) VALUES (?1, ?2)", params![UNFINISHED, count])?;
    connection.pragma_update(None, "user_version", KNOWN)
}

/// Moves what is left in the old tables.
fn move_all(connection: &mut Connection, path: &Path) -> Result<(), StoreError> {
    let sql = "SELECT value FROM progress WHERE name = ?1";
    let all: i64 = connection.query_row(sql, [UNFINISHED], |row| row.get(0)).map_err(driver)?;
    let (mut moved, mut reported) = (0, 0);
    // Records that were written while a turn ran come before those that its batch holds.
    let tables: [(&str, &str, Put); 4] = [
        ("old_journal", "id", put_records),
        ("old_inbox", "id", put_message),
        ("old_batches", "id", put_batch),
        ("old_snapshots", "conversation", put_snapshot),
    ];
    for (table, key, put) in tables {
        while let Some(rows) = move_part(connection, table, key, put)? {
            failpoint::hit("migration_part");
            moved += rows;
            if moved - reported >= REPORT {
                reported = moved;
                tracing::warn!("{}: {moved} of {all} rows are brought up to date", path.display());
            }
        }
    }
    // What the marks said is in the file before they go.
    retention::purge_log(connection);
    let _ = std::fs::remove_file(marks_path(path));
    connection.execute("DELETE FROM progress WHERE name = ?1", [UNFINISHED]).map(drop).map_err(driver)
}

/// Writes an old row, of the conversation of this name, into the new tables.
type Put = fn(&Connection, &ConversationId, &Row<'_>) -> rusqlite::Result<()>;

/// Moves some rows of a table in one transaction: how many. The table goes with its last rows; `None` when it is gone.
fn move_part(connection: &mut Connection, table: &str, key: &str, put: Put) -> Result<Option<usize>, StoreError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(driver)?;
    let there = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?1";
    if !transaction.prepare(there).and_then(|mut there| there.exists([table])).map_err(driver)? {
        return Ok(None);
    }
    let mut last = None;
    let mut count = 0;
    {
        let sql = format!(
            "SELECT old.*, conversations.id AS name, old.{key} AS key FROM {table} AS old
             LEFT JOIN conversations ON conversations.number = old.conversation ORDER BY old.{key} LIMIT {PART}"
        );
        let mut statement = transaction.prepare(&sql).map_err(driver)?;
        let mut rows = statement.query([]).map_err(driver)?;
        while let Some(row) = rows.next().map_err(driver)? {
            // What belongs to no conversation, or to one whose name is no text, could never be read.
            if let Ok(name) = row.get::<_, String>("name") {
                let id = ConversationId::from(name);
                match put(&transaction, &id, row).map_err(|error| read::row_error(&id, error)) {
                    Err(error @ StoreError::Damaged { .. }) => {
                        tracing::warn!(code = error.code(), "{error}; a row is left out")
                    }
                    done => done?,
                }
            }
            last = Some(row.get::<_, i64>("key").map_err(driver)?);
            count += 1;
        }
    }
    match last {
        Some(last) => transaction.execute(&format!("DELETE FROM {table} WHERE {key} <= ?1"), [last]).map(drop),
        None => transaction.execute_batch(&format!("DROP TABLE {table}")),
    }
    .and_then(|()| transaction.commit())
    .map_err(driver)?;
    Ok(Some(count))
}

/// Why an old row cannot be read.
type Damage = String;

/// The body of a row: one byte for the version of the encoding, a checksum, then JSON.
fn open<'r>(id: &ConversationId, number: u64, row: ValueRef<'r>) -> Result<&'r str, Damage> {
    let row = row.as_blob().map_err(|e| e.to_string())?;
    let (sum, body) = match row.split_first() {
        Some((1, rest)) => rest.split_first_chunk::<8>().ok_or("it is cut short")?,
        _ => return Err("its encoding is not known".to_owned()),
    };
    if u64::from_le_bytes(*sum) != Checksum::new(id.as_str()).number(number).bytes(body).finish() {
        return Err("the checksum does not match".to_owned());
    }
    std::str::from_utf8(body).map_err(|e| e.to_string())
}

fn parse<'r, T: Deserialize<'r>>(text: &'r str) -> Result<T, Damage> {
    serde_json::from_str(text).map_err(|e| e.to_string())
}

/// What a person may still read of a damaged row.
fn remains(row: ValueRef<'_>) -> String {
    match row {
        ValueRef::Blob(bytes) | ValueRef::Text(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        _ => String::new(),
    }
}

/// Says that a row is damaged, and gives it a checksum that shows it.
fn damaged(id: &ConversationId, place: &str, damage: &str, matching: Unsigned) -> Unsigned {
    let error = StoreError::damaged(id, format!("{place}: {damage}"));
    tracing::warn!(code = error.code(), "{error}; it stays as it is");
    Unsigned(!matching.0)
}

/// A row of the journal holds one record, or several in a blob.
fn put_records(connection: &Connection, id: &ConversationId, row: &Row<'_>) -> rusqlite::Result<()> {
    let (conversation, Unsigned(turn)) = (row.get("conversation")?, row.get("turn")?);
    let outcome = row.get_ref("outcome")?;
    let records = if let ValueRef::Blob(_) = outcome { packed(id, turn, outcome) } else { one_record(row) };
    put_journal(connection, id, (conversation, turn), outcome, records)
}

fn one_record(row: &Row<'_>) -> Result<Vec<JournalRecord>, Damage> {
    let read = || -> rusqlite::Result<JournalRecord> {
        let text = |column: &str| row.get::<_, String>(column);
        Ok(JournalRecord {
            key: StepKey::new(text("step")?),
            kind: text("kind")?.into(),
            request: text("request")?.into(),
            outcome: row.get::<_, Option<String>>("outcome")?.map(Into::into),
            at: Timestamp::from_micros(row.get("at")?),
            build: row.get::<_, Unsigned>("build")?.0,
        })
    };
    read().map(|record| vec![record]).map_err(|e| e.to_string())
}

/// `[[build, [[step, kind, request, outcome, at], ...]], ...]`, or in batches before version 6 a list of objects.
fn packed(id: &ConversationId, number: u64, row: ValueRef<'_>) -> Result<Vec<JournalRecord>, Damage> {
    type Fields = (StepKey, String, String, Option<String>, Timestamp);
    let body = open(id, number, row)?;
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
    records: Result<Vec<JournalRecord>, Damage>,
) -> rusqlite::Result<()> {
    let put = |record: &JournalRecord, checksum: Unsigned| {
        let sql = format!(
            "INSERT INTO journal ({}, conversation, turn) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            rows::RECORD
        );
        connection.prepare_cached(&sql)?.execute(params![
            record.key.as_str(),
            record.kind,
            record.request,
            record.outcome,
            record.at.as_micros(),
            Unsigned(record.build),
            checksum,
            conversation,
            Unsigned(turn)
        ])
    };
    match records {
        Ok(records) => {
            records.iter().try_for_each(|record| put(record, rows::record_checksum(id, turn, record)).map(drop))
        }
        Err(damage) => {
            let record = JournalRecord {
                key: StepKey::new(""),
                kind: "damaged".into(),
                request: "".into(),
                outcome: Some(remains(row).into()),
                at: Timestamp::default(),
                build: 0,
            };
            let matching = rows::record_checksum(id, turn, &record);
            put(&record, damaged(id, &format!("table journal, turn {turn}"), &damage, matching)).map(drop)
        }
    }
}

/// A message is an array of tenant, account, text, message id, channel, time, seed and, where there are any, metadata.
fn unpacked(id: &ConversationId, row: ValueRef<'_>) -> Result<InboxMessage, Damage> {
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
    let (text, checksum) =
        match unpacked(id, packed).and_then(|inbound| rows::message(&inbound).map_err(|e| e.to_string())) {
            Ok(message) => (message.text, message.checksum),
            Err(damage) => {
                let text = remains(packed);
                let place = format!("table inbox, turn {}", row.get::<_, i64>("turn")?);
                let checksum = damaged(id, &place, &damage, rows::message_checksum(id, &text));
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

/// Replies are nothing, or an empty blob where they are those that the events tell, or a list.
fn put_batch(connection: &Connection, id: &ConversationId, row: &Row<'_>) -> rusqlite::Result<()> {
    let conversation: i64 = row.get("conversation")?;
    let (Unsigned(version), Unsigned(turn)) = (row.get("version")?, row.get("turn")?);
    let read = || -> Result<(String, String), Damage> {
        let events = open(id, version, row.get_ref("events").map_err(|e| e.to_string())?)?;
        let replies = match row.get_ref("replies").map_err(|e| e.to_string())? {
            ValueRef::Null => "[]".to_owned(),
            ValueRef::Blob([]) => told(turn, events)?,
            replies => open(id, version, replies)?.to_owned(),
        };
        Ok((events.to_owned(), replies))
    };
    let (events, replies, checksum) = match read() {
        Ok((events, replies)) => {
            let checksum = rows::batch_checksum(id, version, turn, &events, &replies);
            (events, replies, checksum)
        }
        Err(damage) => {
            let (events, replies) = (remains(row.get_ref("events")?), remains(row.get_ref("replies")?));
            let matching = rows::batch_checksum(id, version, turn, &events, &replies);
            (events, replies, damaged(id, &format!("table batches, version {version}"), &damage, matching))
        }
    };
    let sql = "INSERT INTO batches (id, conversation, version, turn, at, events, replies, trace, checksum)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
    connection.prepare_cached(sql)?.execute(params![
        row.get::<_, i64>("id")?,
        conversation,
        Unsigned(version),
        Unsigned(turn),
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
    put_journal(connection, id, (conversation, turn), journal, packed(id, version, journal))
}

/// The replies that events tell of, as JSON.
fn told(turn: u64, events: &str) -> Result<String, Damage> {
    let events: Vec<&RawValue> = parse(events)?;
    let read = |event: &&RawValue| Event::from_json(event.get()).map_err(|e| e.to_string());
    let events: Vec<Event> = events.iter().map(read).collect::<Result<_, _>>()?;
    let replies: Vec<StoredReply> = StoredReply::told(TurnNumber(turn), 0, &events).collect();
    serde_json::to_string(&replies).map_err(|e| e.to_string())
}

/// A snapshot that cannot be read is no loss: the events fold to the same.
fn put_snapshot(connection: &Connection, id: &ConversationId, row: &Row<'_>) -> rusqlite::Result<()> {
    let Unsigned(version) = row.get("version")?;
    if let Ok(text) = open(id, version, row.get_ref("snapshot")?) {
        let sql = "INSERT INTO snapshots (conversation, version, snapshot, checksum) VALUES (?1, ?2, ?3, ?4)";
        let checksum = rows::snapshot_checksum(id, version, text);
        let conversation: i64 = row.get("conversation")?;
        connection.prepare_cached(sql)?.execute(params![conversation, Unsigned(version), text, checksum])?;
    }
    Ok(())
}

/// From version 5 to 8 a file beside the database said which replies of open turns had begun to be shown.
fn marks_path(path: &Path) -> PathBuf {
    owner::beside(path, "-speaking")
}

/// Bytes of one place in that file: checksum, turn, time of acceptance and build of eight bytes each, then the ids of replies, one in a
/// line, and zeros. Each conversation has two places, which its turns use in turn.
const PLACE: usize = 128;

/// Writes the marks of turns that are open into their journals.
fn put_marks(connection: &Connection, marks: &[u8]) -> rusqlite::Result<()> {
    let sql = format!("SELECT {}, id FROM conversations WHERE open <> ''", Head::COLUMNS);
    let mut statement = connection.prepare(&sql)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (Ok(Ok(head)), Ok(id)) = (Head::read(row), row.get::<_, String>("id")) else { continue };
        let id = ConversationId::from(id);
        for (turn, accepted) in &head.open {
            let records = marked(marks, &id, head.number, *turn, *accepted).unwrap_or_default();
            put_journal(connection, &id, (head.number, *turn), ValueRef::Null, Ok(records))?;
        }
    }
    Ok(())
}

/// The marks of one turn. None where its place is empty, damaged, or of another turn or database.
fn marked(
    marks: &[u8],
    id: &ConversationId,
    conversation: i64,
    turn: u64,
    accepted: i64,
) -> Option<Vec<JournalRecord>> {
    let number = conversation.cast_unsigned();
    let place = usize::try_from(number.checked_mul(2)?.checked_add(turn % 2)?).ok()?;
    let place = marks.get(place.checked_mul(PLACE)?..)?.first_chunk::<PLACE>()?;
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
    Some(replies.lines().map(|reply| speaking(reply, at, build)).collect())
}

#[cfg(test)]
mod tests;
