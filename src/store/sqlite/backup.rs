//! A copy of a database while it is in use: one file that opens by itself.
//!
//! SQLite copies one state of the file. Marks of replies are in a file of their own and change meanwhile, so they are looked up before
//! and after, for the turns that are open in the copy, and stand in the copy as records of the journal.

use std::{
    fs::File,
    path::{Path, PathBuf},
};

use rusqlite::{Connection, params};
use segue_engine::{ids::ConversationId, time::Timestamp};

use super::{Unsigned, driver, heads::Head, marks, owner, packed, schema};
use crate::store::{JournalRecord, StoreError, TurnNumber};

/// Files beside a database that belong to it.
const BESIDE: [&str; 3] = ["-wal", "-journal", "-speaking"];

/// Copies the database in `from`, which has the newest tables, to `to`, which must not exist.
pub(super) fn copy(from: &Path, to: &Path) -> Result<(), StoreError> {
    let unavailable = |e: std::io::Error| StoreError::Unavailable(format!("{}: {e}", to.display()));
    let taken = |path: &Path| StoreError::Unsupported {
        given: path.display().to_string(),
        reason: "there is a file of this name already, and a backup overwrites nothing".to_owned(),
        cure: "name another file, or move this one away".to_owned(),
    };
    for ending in BESIDE {
        let mut beside = to.as_os_str().to_owned();
        beside.push(ending);
        let beside = PathBuf::from(beside);
        if beside.exists() {
            return Err(taken(&beside));
        }
    }
    if !owner::make(to).map_err(unavailable)? {
        return Err(taken(to));
    }
    let copied = write(from, to).and_then(|()| {
        let synced = File::open(to).and_then(|file| file.sync_all());
        synced.map_err(unavailable)
    });
    if copied.is_err() {
        // Half a copy must not be taken for one.
        let _ = std::fs::remove_file(to);
    }
    copied
}

fn write(from: &Path, to: &Path) -> Result<(), StoreError> {
    let Some(target) = to.to_str() else {
        return Err(StoreError::Unsupported {
            given: to.display().to_string(),
            reason: "the name is no text".to_owned(),
            cure: "name another file".to_owned(),
        });
    };
    let source = schema::open_reader(from)?;
    let marked = marks::path(from);
    let before = spoken(&source, &marked)?;
    source.execute("VACUUM INTO ?1", [target]).map_err(driver)?;
    let copy = Connection::open(to).map_err(driver)?;
    for open in spoken(&copy, &marked)? {
        let known = before.iter().find(|known| (known.number, known.turn) == (open.number, open.turn));
        let records = if open.marks.is_empty() { known.map(|known| &known.marks) } else { Some(&open.marks) };
        let Some(records) = records.filter(|records| !records.is_empty()) else { continue };
        let id = &open.conversation;
        let packed = packed::pack(id, open.turn.0, records).map_err(|e| StoreError::damaged(id, e))?;
        let sql = "INSERT INTO journal (conversation, turn, step, kind, request, outcome, at, build)
                   VALUES (?1, ?2, '', '', '', ?3, 0, 0)";
        copy.execute(sql, params![open.number, Unsigned(open.turn.0), packed]).map_err(driver)?;
    }
    let found: String = copy.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(driver)?;
    if found != "ok" {
        return Err(StoreError::Unavailable(format!("the copy is not whole, and was removed: {found}")));
    }
    copy.close().map_err(|(_, error)| driver(error))
}

/// An open turn, and the marks of replies that it has left in the file of marks.
struct Spoken {
    conversation: ConversationId,
    number: i64,
    turn: TurnNumber,
    marks: Vec<JournalRecord>,
}

fn spoken(connection: &Connection, marked: &Path) -> Result<Vec<Spoken>, StoreError> {
    let Some(file) = marks::existing(marked, false)? else { return Ok(Vec::new()) };
    let sql = "SELECT version, turns, open, pending, touched, number, id FROM conversations WHERE open <> ''";
    let mut statement = connection.prepare(sql).map_err(driver)?;
    let mut rows = statement.query([]).map_err(driver)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().map_err(driver)? {
        // A damaged head is copied as it is.
        let (Ok(Ok(head)), Ok(id)) = (Head::read(row), row.get::<_, String>(6)) else { continue };
        let conversation = ConversationId::from(id);
        for (turn, at) in &head.open {
            let (turn, at) = (TurnNumber(*turn), Timestamp::from_micros(*at));
            let marks = marks::records(&file, (&conversation, head.number), turn, at)?;
            found.push(Spoken { conversation: conversation.clone(), number: head.number, turn, marks });
        }
    }
    Ok(found)
}
