//! Who may write to a file: one store at a time, its owner.
//!
//! Two processes that wrote to one file would each finish the turns of the other. The owner holds a lock on a file beside the database
//! (its name ends in `.lock`) as long as its store is open; the system takes the lock back when the process ends, however it
//! ends. The file holds the number of the process for people to read. It is no data: it may be left out of a copy.
//!
//! All files of a store are for the user of the process alone: conversations are nobody else's.

use std::{
    fs::{File, Metadata, OpenOptions, TryLockError},
    io::{ErrorKind, Read, Write},
    path::{Path, PathBuf},
};

use segue_base::failpoint;

use crate::StoreError;

/// How often the lock is tried again when its file was removed between opening and locking it.
const TRIES: usize = 5;

/// The right to write to a database. Ends when it is dropped, and with the process.
pub(super) struct Owner {
    /// Held for its lock.
    _lock: File,
    /// What must stay where it is.
    files: Vec<(PathBuf, Option<Mark>)>,
}

/// What tells a file from another one of the same name.
type Mark = (u64, u64);

impl Owner {
    /// Takes the lock of a database, which must exist.
    pub(super) fn take(database: &Path) -> Result<Self, StoreError> {
        let path = beside(database, ".lock");
        for _ in 0..TRIES {
            let mut lock = private(OpenOptions::new().read(true).write(true).create(true).truncate(false))
                .open(&path)
                .map_err(|error| unavailable(&path, &error))?;
            match lock.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) if failpoint::is_armed("defect:no-owner") => {}
                Err(TryLockError::WouldBlock) => {
                    return Err(StoreError::InUse { path: database.display().to_string(), pid: pid(&mut lock) });
                }
                Err(TryLockError::Error(error)) => return Err(unavailable(&path, &error)),
            }
            let held = lock.metadata().ok().as_ref().and_then(mark);
            if held == mark_of(&path) {
                // Only people read it: a full disk must not keep the store shut.
                let _ = lock.set_len(0).and_then(|()| writeln!(lock, "{}", std::process::id()));
                keep_private(&path);
                return Ok(Self { _lock: lock, files: vec![(path, held)] });
            }
        }
        Err(StoreError::Unavailable(format!("{}: the file is removed again and again", path.display())))
    }

    /// Remembers the files of a database as they are now.
    pub(super) fn watch(&mut self, database: &Path) {
        for path in [database.to_owned(), beside(database, "-wal")] {
            let mark = mark_of(&path);
            self.files.push((path, mark));
        }
    }

    /// The files that are watched, for [`are_there`].
    pub(super) fn files(&self) -> Vec<(PathBuf, Option<Mark>)> {
        self.files.clone()
    }
}

/// Whether files are still the same ones. What is written to a file that was removed is lost.
pub(super) fn are_there(files: &[(PathBuf, Option<Mark>)]) -> Result<(), StoreError> {
    for (path, mark) in files.iter().filter(|(_, mark)| mark.is_some()) {
        if mark_of(path) != *mark {
            return Err(StoreError::Unavailable(format!(
                "{} was removed or replaced while it was in use: stop this process and start it again",
                path.display()
            )));
        }
    }
    Ok(())
}

/// Makes a file that only this user may read, where there is none.
pub(super) fn make(path: &Path) -> std::io::Result<bool> {
    match private(OpenOptions::new().write(true).create_new(true)).open(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

/// Takes the rights of everybody else to a file away, where there is one and it is ours.
pub(super) fn keep_private(path: &Path) {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let Ok(found) = std::fs::metadata(path) else { return };
        if found.permissions().mode() & 0o077 != 0
            && let Err(error) = std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
        {
            tracing::warn!("{}: others may read this file, and that cannot be changed: {error}", path.display());
        }
    }
    #[cfg(not(unix))]
    let _ = path;
}

/// A file beside a database: beside the file itself, as its log is, and not beside a link to it.
pub(super) fn beside(database: &Path, ending: &str) -> PathBuf {
    let mut name = std::fs::canonicalize(database).unwrap_or_else(|_| database.to_owned()).into_os_string();
    name.push(ending);
    name.into()
}

/// So that new files are for this user alone.
fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options
}

/// The process that a lock names.
fn pid(lock: &mut File) -> Option<u32> {
    let mut text = String::new();
    lock.take(16).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

fn mark_of(path: &Path) -> Option<Mark> {
    std::fs::metadata(path).ok().as_ref().and_then(mark)
}

#[cfg(unix)]
fn mark(found: &Metadata) -> Option<Mark> {
    use std::os::unix::fs::MetadataExt;
    Some((found.dev(), found.ino()))
}

/// Other systems let nobody remove a file that is open.
#[cfg(not(unix))]
fn mark(_: &Metadata) -> Option<Mark> {
    None
}

fn unavailable(path: &Path, error: &std::io::Error) -> StoreError {
    StoreError::Unavailable(format!("{}: {error}", path.display()))
}
