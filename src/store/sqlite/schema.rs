//! The tables, how they came to be, and how a file is opened.
//!
//! The number of the schema is SQLite's `user_version`. A change of the tables is a new entry at the end of [`MIGRATIONS`]; what
//! stands there is never edited, for files of every released version must reach the newest.

use std::path::Path;

use rusqlite::{Connection, OpenFlags, TransactionBehavior, config::DbConfig};

use super::driver;
use crate::{limits, store::StoreError};

/// "Segu": how a file of ours is told from one of another program.
const APPLICATION: i32 = 0x5365_6775;

/// Entry `n` takes a file from version `n` to `n + 1`.
const MIGRATIONS: &[&str] = &[V1, V2, V3, V4, V5, V6, V7, V8];
/// The newest version.
const KNOWN: u32 = MIGRATIONS.len() as u32;

/// * `conversations`: the head of each: what a turn must know before it writes, and nothing else, in one small row. `open` holds the
///   accepted turns that are not answered, `pending` the replies that are not delivered, both as JSON. All other tables
///   name a conversation by its number: rows of conversations that are under way at the same time then lie side by side, and
///   a transaction writes a few pages instead of many.
/// * `inbox`: accepted messages. `mark` is a hash of what makes two messages the same; NULL for one that is like no other.
/// * `batches`: one row for each turn. `events`, `replies` and `journal` are encoded with a checksum over conversation and version. A row
///   lies in one page of 4096 bytes or has one of its own: two of up to 2,037 bytes share one.
/// * `journal`: records that had to be durable before their turn ended, those of one write in one row; the others are in `batches`.
/// * `bodies`: large texts, once in each conversation, so that a conversation can be erased.
/// * `events`: the view in which other tools find events in the layout of the CALM format's own `events` table. The events
///   begin after the 9 bytes of the encoding's head.
const V1: &str = "
CREATE TABLE conversations (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, version INTEGER NOT NULL, turns INTEGER NOT NULL,
    open TEXT NOT NULL, pending TEXT NOT NULL, touched INTEGER NOT NULL
);
CREATE TABLE inbox (
    id INTEGER PRIMARY KEY, conversation INTEGER NOT NULL, mark INTEGER, turn INTEGER NOT NULL, at INTEGER NOT NULL,
    packed BLOB NOT NULL
);
CREATE UNIQUE INDEX inbox_once ON inbox (conversation, mark);
CREATE TABLE batches (
    id INTEGER PRIMARY KEY, conversation INTEGER NOT NULL, version INTEGER NOT NULL, turn INTEGER NOT NULL,
    also TEXT, at INTEGER NOT NULL, events BLOB NOT NULL, replies BLOB, journal BLOB, trace TEXT
);
CREATE UNIQUE INDEX batches_in_order ON batches (conversation, version);
CREATE TABLE snapshots (conversation INTEGER PRIMARY KEY, version INTEGER NOT NULL, snapshot BLOB NOT NULL);
CREATE TABLE journal (
    conversation INTEGER NOT NULL, turn INTEGER NOT NULL, step TEXT NOT NULL, kind TEXT NOT NULL,
    request TEXT NOT NULL, outcome TEXT, at INTEGER NOT NULL, build INTEGER NOT NULL,
    PRIMARY KEY (conversation, turn, step)
) WITHOUT ROWID;
CREATE TABLE bodies (
    conversation INTEGER NOT NULL, hash TEXT NOT NULL, at INTEGER NOT NULL, body TEXT NOT NULL,
    PRIMARY KEY (conversation, hash)
);
CREATE TABLE progress (name TEXT NOT NULL PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE VIEW events AS
    SELECT batches.id * 65536 + event.key AS id,
           conversations.id AS sender_id,
           event.value ->> '$.event' AS type_name,
           event.value ->> '$.timestamp' AS timestamp,
           event.value ->> '$.parse_data.intent.name' AS intent_name,
           event.value ->> '$.name' AS action_name,
           event.value AS data
      FROM batches JOIN conversations ON conversations.number = batches.conversation,
           json_each(CAST(substr(batches.events, 10) AS TEXT)) AS event;
";

/// Records of the journal stand in the order of their writing, several of one step where there were several (the reader merges
/// them): a transaction then writes to the last pages of the table, whosever turns they belong to, and not to one page for each conversation.
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

/// * `timers`: when the earliest reminder of a conversation is due, in microseconds.
const V3: &str = "
CREATE TABLE timers (conversation INTEGER PRIMARY KEY, due INTEGER NOT NULL);
CREATE INDEX timers_in_order ON timers (due);
";

/// Replies that the events of their batch tell are not written a second time: `replies` is then an empty blob, which a program that
/// knows only the tables before would take for damage.
const V4: &str = "";

/// Marks of replies stand in a file beside the database (`marks.rs`), where a program that knows only the tables before would not look.
const V5: &str = "";

/// The journal of a batch is written as `packed.rs` says, which a program that knows only the tables before would take for damage.
const V6: &str = "";

/// Records of the journal that are written together have one row, as `packed.rs` says, whose outcome is a blob and whose other columns
/// say nothing: four rows and their entries in the index cost the writer a tenth of its time in a tool turn. A program that
/// knows only the tables before would take such a row for damage.
const V7: &str = "";

/// * `private`: texts beside a conversation that stand in no event, such as the credentials of callers.
const V8: &str = "
CREATE TABLE IF NOT EXISTS private (
    conversation INTEGER NOT NULL, name TEXT NOT NULL, at INTEGER NOT NULL, text TEXT NOT NULL,
    PRIMARY KEY (conversation, name)
) WITHOUT ROWID;
";

/// Opens the file for writing, and brings its tables to the newest version.
pub(super) fn open_writer(path: &Path, full: bool) -> Result<Connection, StoreError> {
    let failed = |e: rusqlite::Error| StoreError::Unavailable(format!("{}: {e}", path.display()));
    let mut connection = Connection::open(path).map_err(failed)?;
    connection.busy_timeout(limits::STORE_BUSY).map_err(failed)?;
    plan_once(&connection).map_err(failed)?;
    // Before anything is changed: the file may belong to somebody else.
    check_program(&connection, path)?;
    connection
        .execute_batch(if full { "PRAGMA synchronous = FULL" } else { "PRAGMA synchronous = NORMAL" })
        .and_then(|()| connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(())))
        // 16 MiB of cache. A checkpoint every 16 MiB of log and not every 4: pages that change often are then written
        // to the file more seldom.
        .and_then(|()| connection.execute_batch("PRAGMA cache_size = -16384; PRAGMA temp_store = MEMORY"))
        .and_then(|()| connection.query_row("PRAGMA wal_autocheckpoint = 4096", [], |_| Ok(())))
        .map_err(failed)?;
    migrate(&mut connection).map_err(failed)?;
    Ok(connection)
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

/// Whether a file has the newest tables.
pub(super) fn is_newest(connection: &Connection, path: &Path) -> Result<bool, StoreError> {
    check_program(connection, path).map(|version| version == KNOWN)
}

/// The version of the tables of a file that belongs to this program.
fn check_program(connection: &Connection, path: &Path) -> Result<u32, StoreError> {
    let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
    let failed = |e: rusqlite::Error| StoreError::Unavailable(format!("{}: {e}", path.display()));
    let found = number("PRAGMA user_version").map_err(failed)?;
    let application = number("PRAGMA application_id").map_err(failed)?;
    let tables = number("SELECT count(*) FROM sqlite_schema").map_err(failed)?;
    if tables > 0 && application != i64::from(APPLICATION) {
        return Err(StoreError::Unsupported {
            given: path.display().to_string(),
            reason: "the file is a database of another program".to_owned(),
            cure: "name another file, or move this one away".to_owned(),
        });
    }
    let (found, known) = (u32::try_from(found).unwrap_or(u32::MAX), KNOWN);
    if found > known { Err(StoreError::TooNew { found, known }) } else { Ok(found) }
}

fn migrate(connection: &mut Connection) -> rusqlite::Result<()> {
    // Immediate: of two processes that open the same new file one makes the tables and the other finds them.
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let version: u32 = transaction.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    for migration in MIGRATIONS.iter().skip(version as usize) {
        transaction.execute_batch(migration)?;
    }
    if version < KNOWN {
        transaction.pragma_update(None, "application_id", APPLICATION)?;
        transaction.pragma_update(None, "user_version", KNOWN)?;
    }
    transaction.commit()
}
