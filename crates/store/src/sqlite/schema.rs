//! The tables, and how a file is opened.
//!
//! The schema version is SQLite's `user_version`. [`legacy`] migrates files of earlier versions; every released version
//! must be migrated.

use std::path::Path;

use rusqlite::{Connection, OpenFlags, TransactionBehavior, config::DbConfig};
use segue_base::limits;

use super::{into_store_error, legacy};
use crate::StoreError;

/// "Segu" as SQLite's `application_id`, which identifies the files of this program.
const APPLICATION_ID: i32 = 0x5365_6775;

/// The newest schema version.
pub(super) const SCHEMA_VERSION: u32 = 10;

/// Texts are JSON; times are microseconds since 1970. `checksum` covers the content of its row and the conversation id
/// ([`rows`](super::rows)).
///
/// * `conversations`: the head of each conversation: the little that a turn must know before it writes, in one small
///   row. `open` lists the open turns, `pending` the undelivered replies, both as JSON, and '' if there are none. All
///   other tables refer to a conversation by its number, which is never reused. `tenant`, `rev`, `epoch` and `owner`
///   are reserved for several processes on one store.
/// * `inbox`: accepted messages. `dedup_hash` is a hash of the deduplication key; NULL for a message that cannot be a
///   duplicate.
/// * `batches`: one row per commit.
/// * `journal`: journal records in the order of writing; a step may have several, which the reader merges.
/// * `bodies`: large texts, once per conversation, so that a conversation can be erased.
/// * `timers`: when the earliest reminder of a conversation is due.
/// * `private`: texts of a conversation that are in no event, such as credentials of callers.
/// * `progress`: the progress of work that is done in parts.
/// * `events`: a view in the layout of the `events` table of Rasa's SQL tracker store, for other tools.
pub(super) const TABLES: &str = "
CREATE TABLE conversations (
    number INTEGER PRIMARY KEY AUTOINCREMENT, tenant TEXT NOT NULL DEFAULT '', id TEXT NOT NULL,
    rev INTEGER NOT NULL DEFAULT 0, version INTEGER NOT NULL, turns INTEGER NOT NULL,
    epoch INTEGER NOT NULL DEFAULT 0, owner INTEGER,
    open TEXT NOT NULL, pending TEXT NOT NULL, updated_at INTEGER NOT NULL,
    UNIQUE (tenant, id)
);
CREATE INDEX conversations_by_time ON conversations (updated_at);
CREATE INDEX conversations_waiting ON conversations (updated_at) WHERE open <> '' OR pending <> '';
CREATE TABLE inbox (
    id INTEGER PRIMARY KEY, conversation INTEGER NOT NULL, turn INTEGER NOT NULL, at INTEGER NOT NULL,
    dedup_hash INTEGER, message TEXT NOT NULL, checksum INTEGER NOT NULL
);
CREATE UNIQUE INDEX inbox_once ON inbox (conversation, dedup_hash);
CREATE INDEX inbox_by_turn ON inbox (conversation, turn);
CREATE TABLE batches (
    id INTEGER PRIMARY KEY, conversation INTEGER NOT NULL, version INTEGER NOT NULL, turn INTEGER NOT NULL,
    at INTEGER NOT NULL, events TEXT NOT NULL, replies TEXT NOT NULL, trace TEXT, checksum INTEGER NOT NULL
);
CREATE UNIQUE INDEX batches_in_order ON batches (conversation, version);
CREATE INDEX batches_by_turn ON batches (conversation, turn);
CREATE TABLE snapshots (
    conversation INTEGER PRIMARY KEY, version INTEGER NOT NULL, snapshot TEXT NOT NULL, checksum INTEGER NOT NULL
);
CREATE TABLE journal (
    id INTEGER PRIMARY KEY, conversation INTEGER NOT NULL, turn INTEGER NOT NULL, step TEXT NOT NULL, kind TEXT NOT NULL,
    request TEXT NOT NULL, outcome TEXT, at INTEGER NOT NULL, build INTEGER NOT NULL, checksum INTEGER NOT NULL
);
CREATE INDEX journal_by_turn ON journal (conversation, turn);
CREATE TABLE IF NOT EXISTS bodies (
    conversation INTEGER NOT NULL, hash TEXT NOT NULL, at INTEGER NOT NULL, body TEXT NOT NULL,
    PRIMARY KEY (conversation, hash)
);
CREATE TABLE IF NOT EXISTS timers (conversation INTEGER PRIMARY KEY, due INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS timers_in_order ON timers (due);
CREATE TABLE IF NOT EXISTS private (
    conversation INTEGER NOT NULL, name TEXT NOT NULL, at INTEGER NOT NULL, text TEXT NOT NULL,
    PRIMARY KEY (conversation, name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS progress (name TEXT NOT NULL PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE VIEW events AS
    SELECT batches.id * 65536 + event.key AS id,
           conversations.id AS sender_id,
           event.value ->> '$.event' AS type_name,
           event.value ->> '$.timestamp' AS timestamp,
           event.value ->> '$.parse_data.intent.name' AS intent_name,
           event.value ->> '$.name' AS action_name,
           event.value AS data
      FROM batches JOIN conversations ON conversations.number = batches.conversation,
           json_each(CASE WHEN json_valid(batches.events) THEN batches.events ELSE '[]' END) AS event;
";

/// The tables of runs ([`runs`](super::runs)), new in version 10. They refer to a run and to a unit by number; numbers are never
/// reused.
///
/// * `runs`: one row per run. The columns from `status` to `ended_at` change, the others do not and are covered by `checksum`. `id` is
///   NULL while the rows of a deleted run are being removed.
/// * `run_units`: `due` is the time from which a unit can be claimed, NULL if it cannot be; before it only if `timed` is 0. `notified`:
///   it was answered or sent something since it was claimed. `checksum` covers `input`.
/// * `run_events`: one row per event, numbered within the run.
/// * `run_checkpoints`: the latest checkpoint of a unit.
/// * `run_journal`: journal records of a unit since its checkpoint, in the order of writing.
/// * `run_blobs`: results that events and checkpoints refer to.
/// * `run_questions`: `question` is JSON with the words, the replies and the answer.
/// * `run_messages`: messages to a run, numbered within it.
pub(super) const RUN_TABLES: &str = "
CREATE TABLE runs (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT, mission TEXT NOT NULL, conversation TEXT, run_group TEXT,
    idempotency_key TEXT, status TEXT NOT NULL, stop TEXT, last_seq INTEGER NOT NULL, last_message INTEGER NOT NULL,
    units INTEGER NOT NULL, started_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, ended_at INTEGER,
    inputs TEXT NOT NULL, checksum INTEGER NOT NULL
);
CREATE UNIQUE INDEX runs_by_id ON runs (id);
CREATE UNIQUE INDEX runs_once ON runs (mission, idempotency_key);
CREATE INDEX runs_by_conversation ON runs (conversation);
CREATE INDEX runs_by_group ON runs (run_group);
CREATE INDEX runs_by_status ON runs (status);
CREATE INDEX runs_by_end ON runs (ended_at);
CREATE TABLE run_units (
    number INTEGER PRIMARY KEY AUTOINCREMENT, run INTEGER NOT NULL, name TEXT NOT NULL, status TEXT NOT NULL,
    epoch INTEGER NOT NULL, owner TEXT, lease_until INTEGER, wake_at INTEGER, notified INTEGER NOT NULL,
    ready_since INTEGER NOT NULL, messages_seen INTEGER NOT NULL, due INTEGER, timed INTEGER NOT NULL,
    created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, input TEXT NOT NULL, checksum INTEGER NOT NULL
);
CREATE UNIQUE INDEX run_units_by_name ON run_units (run, name);
CREATE INDEX run_units_due ON run_units (due, number, timed) WHERE due IS NOT NULL;
CREATE TABLE run_events (
    id INTEGER PRIMARY KEY, run INTEGER NOT NULL, seq INTEGER NOT NULL, unit TEXT, at INTEGER NOT NULL,
    event TEXT NOT NULL, checksum INTEGER NOT NULL
);
CREATE UNIQUE INDEX run_events_in_order ON run_events (run, seq);
CREATE TABLE run_checkpoints (
    unit INTEGER PRIMARY KEY, run INTEGER NOT NULL, checkpoint TEXT NOT NULL, checksum INTEGER NOT NULL
);
CREATE INDEX run_checkpoints_by_run ON run_checkpoints (run);
CREATE TABLE run_journal (
    id INTEGER PRIMARY KEY, run INTEGER NOT NULL, unit INTEGER NOT NULL, step TEXT NOT NULL, kind TEXT NOT NULL,
    request TEXT NOT NULL, outcome TEXT, at INTEGER NOT NULL, build INTEGER NOT NULL, checksum INTEGER NOT NULL
);
CREATE INDEX run_journal_by_unit ON run_journal (unit);
CREATE INDEX run_journal_by_run ON run_journal (run);
CREATE TABLE run_blobs (
    id INTEGER PRIMARY KEY, run INTEGER NOT NULL, name TEXT NOT NULL, text TEXT NOT NULL, checksum INTEGER NOT NULL
);
CREATE UNIQUE INDEX run_blobs_by_name ON run_blobs (run, name);
CREATE TABLE run_questions (
    number INTEGER PRIMARY KEY AUTOINCREMENT, run INTEGER NOT NULL, id TEXT NOT NULL, unit TEXT NOT NULL,
    open INTEGER NOT NULL, question TEXT NOT NULL, checksum INTEGER NOT NULL
);
CREATE UNIQUE INDEX run_questions_by_id ON run_questions (run, id);
CREATE INDEX run_questions_open ON run_questions (number) WHERE open = 1;
CREATE TABLE run_messages (
    id INTEGER PRIMARY KEY, run INTEGER NOT NULL, seq INTEGER NOT NULL, message_id TEXT NOT NULL, unit TEXT,
    at INTEGER NOT NULL, text TEXT NOT NULL, checksum INTEGER NOT NULL
);
CREATE UNIQUE INDEX run_messages_in_order ON run_messages (run, seq);
CREATE UNIQUE INDEX run_messages_once ON run_messages (run, message_id);
";

/// Prepared statements that the writer caches.
const CACHED_STATEMENTS: usize = 64;

/// Opens the file for writing, and migrates its tables to the newest version.
pub(super) fn open_writer(path: &Path, full: bool) -> Result<Connection, StoreError> {
    let failed = |e: rusqlite::Error| StoreError::Unavailable(format!("{}: {e}", path.display()));
    let mut connection = Connection::open(path).map_err(failed)?;
    connection.busy_timeout(limits::STORE_BUSY).map_err(failed)?;
    enable_stable_plans(&connection).map_err(failed)?;
    // Checked before anything is changed: the file may belong to another program.
    let version = check_application(&connection, path)?;
    connection
        .execute_batch(if full { "PRAGMA synchronous = FULL" } else { "PRAGMA synchronous = NORMAL" })
        .and_then(|()| connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(())))
        // 16 MiB of cache, and a checkpoint every 16 MiB of log (4096 pages) instead of the default 4 MiB: pages that
        // change often are then written to the file less often.
        .and_then(|()| connection.execute_batch("PRAGMA cache_size = -16384; PRAGMA temp_store = MEMORY"))
        .and_then(|()| connection.query_row("PRAGMA wal_autocheckpoint = 4096", [], |_| Ok(())))
        // Deleted data is overwritten, so that nothing of an erased conversation is left in the file.
        .and_then(|()| connection.query_row("PRAGMA secure_delete = ON", [], |_| Ok(())))
        .map_err(failed)?;
    connection.set_prepared_statement_cache_capacity(CACHED_STATEMENTS);
    if version == 0 {
        make_tables(&mut connection).map_err(failed)?;
    }
    legacy::migrate(&mut connection, path)?;
    Ok(connection)
}

/// Creates the tables of a new file. If two processes open the same new file, one creates them and the other finds
/// them.
fn make_tables(connection: &mut Connection) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if version(&transaction)? == 0 {
        transaction.execute_batch(TABLES)?;
        transaction.execute_batch(RUN_TABLES)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    }
    transaction.commit()
}

/// Opens the file for reading only.
pub(super) fn open_reader(path: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(into_store_error)?;
    connection.busy_timeout(limits::STORE_BUSY).map_err(into_store_error)?;
    enable_stable_plans(&connection).map_err(into_store_error)?;
    Ok(connection)
}

/// Whether a file is a database of another program; false if that cannot be determined.
pub(super) fn belongs_to_other_program(path: &Path) -> bool {
    let look = |file: Connection| {
        let number = |sql: &str| file.query_row(sql, [], |row| row.get::<_, i64>(0)).map_err(into_store_error);
        Ok((number("PRAGMA application_id")?, number("SELECT count(*) FROM sqlite_schema")?))
    };
    let looked = open_reader(path).and_then(look);
    looked.is_ok_and(|(application, tables)| tables > 0 && application != i64::from(APPLICATION_ID))
}

/// Keeps statement plans independent of bound values. Otherwise SQLite prepares a statement again at every binding when
/// one of its indexes is partial (<https://www.sqlite.org/c3ref/c_dbconfig_defensive.html>,
/// `SQLITE_DBCONFIG_ENABLE_QPSG`).
fn enable_stable_plans(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map(drop)
}

/// Whether a file has the newest schema and its migration is complete.
pub(super) fn is_current(connection: &Connection, path: &Path) -> Result<bool, StoreError> {
    Ok(check_application(connection, path)? == SCHEMA_VERSION
        && !legacy::is_incomplete(connection).map_err(into_store_error)?)
}

/// The schema version; 0 if there are no tables.
pub(super) fn version(connection: &Connection) -> rusqlite::Result<u32> {
    let found: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    Ok(u32::try_from(found).unwrap_or(u32::MAX))
}

/// The schema version of a file that belongs to this program.
fn check_application(connection: &Connection, path: &Path) -> Result<u32, StoreError> {
    let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
    let failed = |e: rusqlite::Error| StoreError::Unavailable(format!("{}: {e}", path.display()));
    let application = number("PRAGMA application_id").map_err(failed)?;
    let tables = number("SELECT count(*) FROM sqlite_schema").map_err(failed)?;
    if tables > 0 && application != i64::from(APPLICATION_ID) {
        return Err(StoreError::Unsupported {
            given: path.display().to_string(),
            reason: "the file is a database of another program".to_owned(),
            help: "name another file, or move this one away".to_owned(),
        });
    }
    let (found, known) = (version(connection).map_err(failed)?, SCHEMA_VERSION);
    if found > known { Err(StoreError::SchemaTooNew { found, known }) } else { Ok(found) }
}
