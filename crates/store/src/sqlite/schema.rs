//! The tables, and how a file is opened.
//!
//! The number of the schema is SQLite's `user_version`. Files of earlier versions are brought up to date by [`legacy`]; what a
//! released version wrote must reach the newest.

use std::path::Path;

use rusqlite::{Connection, OpenFlags, TransactionBehavior, config::DbConfig};
use segue_base::limits;

use super::{driver, legacy};
use crate::StoreError;

/// "Segu": how a file of ours is told from one of another program.
const APPLICATION: i32 = 0x5365_6775;

/// The newest version.
pub(super) const KNOWN: u32 = 9;

/// Texts are JSON that a person reads; times are microseconds since 1970. `checksum` covers what its row says and whose it is
/// ([`rows`](super::rows)).
///
/// * `conversations`: the head of each: what a turn must know before it writes, and nothing else, in one small row. `open` holds the
///   accepted turns that are not answered, `pending` the replies that are not delivered, both as JSON, and nothing where there are none.
///   All other tables name a conversation by its number, which is never given to another one. `tenant`, `rev`, `epoch` and `owner` are
///   for several processes on one store; they say nothing yet.
/// * `inbox`: accepted messages. `dedup_hash` is a hash of what makes two messages the same; NULL for one that is like no other.
/// * `batches`: one row for each turn.
/// * `journal`: records of steps in the order of their writing, several of one step where there were several (the reader merges them).
/// * `bodies`: large texts, once in each conversation, so that a conversation can be erased.
/// * `timers`: when the earliest reminder of a conversation is due.
/// * `private`: texts beside a conversation that stand in no event, such as the credentials of callers.
/// * `progress`: how far work has come that is done in parts.
/// * `events`: the view in which other tools find events in the layout of the CALM format's own `events` table.
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

/// Opens the file for writing, and brings its tables to the newest version.
pub(super) fn open_writer(path: &Path, full: bool) -> Result<Connection, StoreError> {
    let failed = |e: rusqlite::Error| StoreError::Unavailable(format!("{}: {e}", path.display()));
    let mut connection = Connection::open(path).map_err(failed)?;
    connection.busy_timeout(limits::STORE_BUSY).map_err(failed)?;
    plan_once(&connection).map_err(failed)?;
    // Before anything is changed: the file may belong to somebody else.
    let version = check_program(&connection, path)?;
    connection
        .execute_batch(if full { "PRAGMA synchronous = FULL" } else { "PRAGMA synchronous = NORMAL" })
        .and_then(|()| connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(())))
        // 16 MiB of cache. A checkpoint every 16 MiB of log and not every 4: pages that change often are then written
        // to the file more seldom.
        .and_then(|()| connection.execute_batch("PRAGMA cache_size = -16384; PRAGMA temp_store = MEMORY"))
        .and_then(|()| connection.query_row("PRAGMA wal_autocheckpoint = 4096", [], |_| Ok(())))
        // What is removed is overwritten: nothing of an erased conversation is left in the file.
        .and_then(|()| connection.query_row("PRAGMA secure_delete = ON", [], |_| Ok(())))
        .map_err(failed)?;
    if version == 0 {
        make_tables(&mut connection).map_err(failed)?;
    }
    legacy::migrate(&mut connection, path)?;
    Ok(connection)
}

/// Makes the tables of a new file. Of two processes that open the same new file one makes them and the other finds them.
fn make_tables(connection: &mut Connection) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if version(&transaction)? == 0 {
        transaction.execute_batch(TABLES)?;
        transaction.pragma_update(None, "application_id", APPLICATION)?;
        transaction.pragma_update(None, "user_version", KNOWN)?;
    }
    transaction.commit()
}

/// Opens the file for reading only.
pub(super) fn open_reader(path: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(driver)?;
    connection.busy_timeout(limits::STORE_BUSY).map_err(driver)?;
    plan_once(&connection).map_err(driver)?;
    Ok(connection)
}

/// Whether a file is a database of another program; false where that cannot be told.
pub(super) fn is_foreign(path: &Path) -> bool {
    let look = |file: Connection| {
        let number = |sql: &str| file.query_row(sql, [], |row| row.get::<_, i64>(0)).map_err(driver);
        Ok((number("PRAGMA application_id")?, number("SELECT count(*) FROM sqlite_schema")?))
    };
    let looked = open_reader(path).and_then(look);
    looked.is_ok_and(|(application, tables)| tables > 0 && application != i64::from(APPLICATION))
}

/// Plans of statements hold whatever is bound to them. Without this, SQLite prepares a statement anew at every binding when one of
/// its indexes has a condition.
fn plan_once(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map(drop)
}

/// Whether a file has the newest tables and all of its rows are in them.
pub(super) fn is_newest(connection: &Connection, path: &Path) -> Result<bool, StoreError> {
    Ok(check_program(connection, path)? == KNOWN && !legacy::is_unfinished(connection).map_err(driver)?)
}

/// The version of the tables; 0 where there are none.
pub(super) fn version(connection: &Connection) -> rusqlite::Result<u32> {
    let found: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    Ok(u32::try_from(found).unwrap_or(u32::MAX))
}

/// The version of the tables of a file that belongs to this program.
fn check_program(connection: &Connection, path: &Path) -> Result<u32, StoreError> {
    let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
    let failed = |e: rusqlite::Error| StoreError::Unavailable(format!("{}: {e}", path.display()));
    let application = number("PRAGMA application_id").map_err(failed)?;
    let tables = number("SELECT count(*) FROM sqlite_schema").map_err(failed)?;
    if tables > 0 && application != i64::from(APPLICATION) {
        return Err(StoreError::Unsupported {
            given: path.display().to_string(),
            reason: "the file is a database of another program".to_owned(),
            cure: "name another file, or move this one away".to_owned(),
        });
    }
    let (found, known) = (version(connection).map_err(failed)?, KNOWN);
    if found > known { Err(StoreError::TooNew { found, known }) } else { Ok(found) }
}
