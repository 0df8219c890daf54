//! Backup of a database in use: one consistent state in one self-contained file.

use std::{
    fs::File,
    path::{Path, PathBuf},
};

use rusqlite::Connection;

use super::{file_lock, into_store_error, schema};
use crate::StoreError;

/// Suffixes of the files that belong to a database.
const BESIDE: [&str; 2] = ["-wal", "-journal"];

/// Copies the database `from` to `to`, which must not exist.
pub(super) fn copy(from: &Path, to: &Path) -> Result<(), StoreError> {
    let unavailable = |e: std::io::Error| StoreError::Unavailable(format!("{}: {e}", to.display()));
    let taken = |path: &Path| StoreError::Unsupported {
        given: path.display().to_string(),
        reason: "there is a file of this name already, and a backup overwrites nothing".to_owned(),
        help: "name another file, or move this one away".to_owned(),
    };
    for ending in BESIDE {
        let mut beside = to.as_os_str().to_owned();
        beside.push(ending);
        let beside = PathBuf::from(beside);
        if beside.exists() {
            return Err(taken(&beside));
        }
    }
    if !file_lock::create_private(to).map_err(unavailable)? {
        return Err(taken(to));
    }
    let copied = write(from, to).and_then(|()| {
        let synced = File::open(to).and_then(|file| file.sync_all());
        synced.map_err(unavailable)
    });
    if copied.is_err() {
        // An incomplete copy must not be taken for a complete one.
        let _ = std::fs::remove_file(to);
    }
    copied
}

fn write(from: &Path, to: &Path) -> Result<(), StoreError> {
    let Some(target) = to.to_str() else {
        return Err(StoreError::Unsupported {
            given: to.display().to_string(),
            reason: "the file name is not UTF-8".to_owned(),
            help: "name another file".to_owned(),
        });
    };
    let source = schema::open_reader(from)?;
    source.execute("VACUUM INTO ?1", [target]).map_err(into_store_error)?;
    let copy = Connection::open(to).map_err(into_store_error)?;
    let found: String = copy.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(into_store_error)?;
    if found != "ok" {
        return Err(StoreError::Unavailable(format!("the copy is incomplete and was removed: {found}")));
    }
    copy.close().map_err(|(_, error)| into_store_error(error))
}
