//! The lock of a database file: one store may write to it at a time.
//!
//! Two processes that wrote to one file would each recover the turns of the other. The store holds an advisory lock on
//! a file beside the database (its name ends in `.lock`) while it is open; the operating system releases the lock when
//! the process ends, however it ends. The lock file contains the process id for people to read. It is no data and may
//! be omitted from a copy. Since it can be removed, and a file can have two names, the process is also [named](mark_writer) in the
//! database.
//!
//! All files of a store are readable by their user only, because they contain conversations.

use std::{
    fs::{File, Metadata, OpenOptions, TryLockError},
    io::{ErrorKind, Read, Write},
    path::{Path, PathBuf},
};

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior};
use segue_base::process;

use crate::StoreError;

/// Attempts to lock when the lock file is removed between opening and locking it.
const LOCK_ATTEMPTS: usize = 5;

/// The lock of a database. It is released when it is dropped, and when the process ends.
pub(super) struct FileLock {
    /// Open as long as the lock is held.
    _lock: File,
}

/// Device and inode: distinguishes a file from another one of the same name.
type FileIdentity = (u64, u64);

impl FileLock {
    /// Locks a database, which must exist.
    pub(super) fn take(database: &Path) -> Result<Self, StoreError> {
        let path = sibling_path(database, ".lock");
        for _ in 0..LOCK_ATTEMPTS {
            let mut lock = owner_only(OpenOptions::new().read(true).write(true).create(true).truncate(false))
                .open(&path)
                .map_err(|error| unavailable(&path, &error))?;
            match lock.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    return Err(StoreError::InUse { path: database.display().to_string(), pid: pid(&mut lock) });
                }
                Err(TryLockError::Error(error)) => return Err(unavailable(&path, &error)),
            }
            let held = lock.metadata().ok().as_ref().and_then(identity);
            if held == identity_of(&path) {
                // The process id is for people only: a full disk must not prevent opening the store.
                let _ = lock.set_len(0).and_then(|()| writeln!(lock, "{}", std::process::id()));
                restrict_permissions(&path);
                return Ok(Self { _lock: lock });
            }
        }
        Err(StoreError::Unavailable(format!(
            "{}: the lock file is removed by another program again and again",
            path.display()
        )))
    }
}

/// The files of a database that must not be removed or replaced while it is open.
pub(super) struct WatchedFiles(Vec<(PathBuf, FileIdentity)>);

impl WatchedFiles {
    /// The files of an open database.
    pub(super) fn of(database: &Path) -> Self {
        let mut files = vec![database.to_owned(), sibling_path(database, "-wal")];
        if !cfg!(target_os = "linux") {
            // Elsewhere the lock alone keeps others out.
            files.push(sibling_path(database, ".lock"));
        }
        Self(files.into_iter().filter_map(|path| identity_of(&path).map(|identity| (path, identity))).collect())
    }

    /// Checks that they are still the same.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        match self.0.iter().find(|(path, identity)| identity_of(path) != Some(*identity)) {
            None => Ok(()),
            Some((path, _)) => Err(StoreError::Unavailable(format!(
                "{} was removed or replaced while it was in use: stop this process and start it again",
                path.display()
            ))),
        }
    }
}

/// The store is closed: removes the mark of this process, which may go on for long. A mark that stays means nothing once the process has ended.
pub(super) fn clear_mark(connection: &Connection) {
    let own = format!("% {}", process::name());
    let _ = connection.execute("DELETE FROM progress WHERE name = 'writer' AND CAST(value AS TEXT) LIKE ?1", [own]);
}

/// Names this process as the writer of a database: the lock is beside the file and can be removed, and a file can have several names.
/// The mark names the file, so that it means nothing in a copy, and a process that has ended is none.
pub(super) fn mark_writer(connection: &Connection, database: &Path) -> Result<(), StoreError> {
    let Some((device, inode)) = identity_of(database) else { return Ok(()) };
    let file = format!("{device}:{inode} ");
    let failed = |error: rusqlite::Error| StoreError::Unavailable(format!("{}: {error}", database.display()));
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate).map_err(failed)?;
    let sql = "SELECT CAST(value AS TEXT) FROM progress WHERE name = 'writer'";
    let marked: Option<String> = transaction.query_row(sql, [], |row| row.get(0)).optional().map_err(failed)?;
    let own = process::name();
    if let Some(writer) = marked.as_deref().and_then(|mark| mark.strip_prefix(&file)).filter(|writer| *writer != &*own)
        && process::is_running(writer)
    {
        return Err(StoreError::InUse { path: database.display().to_string(), pid: process::id(writer) });
    }
    let sql = "INSERT OR REPLACE INTO progress (name, value) VALUES ('writer', ?1)";
    transaction.execute(sql, [format!("{file}{own}")]).and_then(|_| transaction.commit()).map_err(failed)?;
    // Under another name of the file, what is in the log cannot be read.
    connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())).map_err(failed)
}

/// Checks that a database which several processes may write to has one name. SQLite keeps the log beside the name under which a file was
/// opened: processes that use different names do not see each other's writes, and lose them.
pub(super) fn check_names(database: &Path) -> Result<(), StoreError> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let names = std::fs::metadata(database).map(|found| found.nlink()).unwrap_or(1);
        if names > 1 {
            return Err(StoreError::Unavailable(format!(
                "{}: the file has {names} names (hard links), and writes under different names are lost; remove the other names, or \
                 make a copy with `segue backup`",
                database.display()
            )));
        }
    }
    #[cfg(not(unix))]
    let _ = database;
    Ok(())
}

/// Creates a file that only this user may read; returns false if it exists.
pub(super) fn create_private(path: &Path) -> std::io::Result<bool> {
    match owner_only(OpenOptions::new().write(true).create_new(true)).open(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

/// Removes the permissions of other users from a file, if it exists and belongs to this user.
pub(super) fn restrict_permissions(path: &Path) {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let Ok(found) = std::fs::metadata(path) else { return };
        if found.permissions().mode() & 0o077 != 0
            && let Err(error) = std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
        {
            tracing::warn!(
                "{}: other users may read this file, and its permissions cannot be changed: {error}",
                path.display()
            );
        }
    }
    #[cfg(not(unix))]
    let _ = path;
}

/// A path beside the database file itself, where SQLite puts its log, and not beside a symbolic link to it.
pub(super) fn sibling_path(database: &Path, ending: &str) -> PathBuf {
    let mut name = std::fs::canonicalize(database).unwrap_or_else(|_| database.to_owned()).into_os_string();
    name.push(ending);
    name.into()
}

/// New files are readable by this user only.
fn owner_only(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options
}

/// The process id in a lock file.
fn pid(lock: &mut File) -> Option<u32> {
    let mut text = String::new();
    lock.take(16).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

fn identity_of(path: &Path) -> Option<FileIdentity> {
    std::fs::metadata(path).ok().as_ref().and_then(identity)
}

#[cfg(unix)]
fn identity(found: &Metadata) -> Option<FileIdentity> {
    use std::os::unix::fs::MetadataExt;
    Some((found.dev(), found.ino()))
}

/// On other systems an open file cannot be removed.
#[cfg(not(unix))]
fn identity(_: &Metadata) -> Option<FileIdentity> {
    None
}

fn unavailable(path: &Path, error: &std::io::Error) -> StoreError {
    StoreError::Unavailable(format!("{}: {error}", path.display()))
}
