//! A store in one SQLite file.
//!
//! One thread writes for all conversations: it takes all waiting requests, commits them in one transaction (group
//! commit) and only then answers them. Reads use their own connections and never wait for the writer. Only one store
//! may write the conversations of a file at a time ([`file_lock`]); others may read it, and write its runs, at the same time.
//!
//! Callers encode their data themselves, so that the shared writer thread does as little as possible.

mod backup;
mod file_lock;
mod head_cache;
mod legacy;
mod read;
mod retention;
mod rows;
mod runs;
mod schema;
mod writer;

use std::{
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::Duration,
};

use async_trait::async_trait;
use rusqlite::{
    Connection, ToSql,
    types::{FromSql, FromSqlResult, ToSqlOutput, ValueRef},
};
use segue_base::{failpoint, limits};
use segue_engine::{
    conversation::Event,
    ids::{ConversationId, MessageId},
    time::Timestamp,
};
use tokio::sync::{Semaphore, mpsc, oneshot};

use self::{
    file_lock::{FileLock, WatchedFiles},
    writer::{AcceptResult, EncodedCommit, FileState, Record, WriteOperation, WriteRequest, WriteResult},
};
use super::{
    AcceptOutcome, ConversationProblem, InboxMessage, JournalRecord, Store, StoreError, StoredConversation,
    StoredReply, StoredTurn, TurnCommit, TurnEvents, TurnNumber, UnfinishedTurn, Version, dedup,
};

/// How often it is looked whether another process has created or migrated a file.
const CREATION_POLL: Duration = Duration::from_millis(20);

/// A store in one SQLite file. Dropping it commits the waiting requests and ends the writer.
pub struct SqliteStore {
    /// `None` while the store is dropped, and if it is read-only.
    requests: Option<mpsc::Sender<WriteRequest>>,
    writer: Option<JoinHandle<()>>,
    readers: Arc<ReaderPool>,
    /// The lock on the file, released after the writer has ended. `None` if the store is read-only or only for runs.
    _file_lock: Option<FileLock>,
}

/// Whether a file is a database of another program.
pub(super) fn belongs_to_other_program(path: &Path) -> bool {
    schema::belongs_to_other_program(path)
}

/// A pool of read-only connections.
struct ReaderPool {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
    /// Limits concurrent reads, and with that the number of idle connections.
    permits: Arc<Semaphore>,
}

impl SqliteStore {
    /// Opens a file; creates it and its parent folders if they are missing. `full` syncs every commit to the disk. The
    /// file is locked until the store is dropped. Blocks on the file system.
    ///
    /// # Errors
    /// [`StoreError::InUse`] for a file that another store has open for writing, in this process or in another one;
    /// [`StoreError::SchemaTooNew`] for a file of a later version, [`StoreError::Unsupported`] for a file of another
    /// program, [`StoreError::Unavailable`] when it cannot be opened or written.
    pub fn open(path: &Path, full: bool) -> Result<Self, StoreError> {
        let unavailable = |of: &Path, e: std::io::Error| StoreError::Unavailable(format!("{}: {e}", of.display()));
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder).map_err(|e| unavailable(folder, e))?;
        }
        // SQLite would create it readable by others.
        file_lock::create_private(path).map_err(|e| unavailable(path, e))?;
        let file_lock = FileLock::take(path)?;
        Self::open_locked(path, full, Some(file_lock))
    }

    fn open_locked(path: &Path, full: bool, file_lock: Option<FileLock>) -> Result<Self, StoreError> {
        let is_owner = file_lock.is_some();
        if !is_owner {
            file_lock::check_names(path)?;
        }
        let connection = schema::open_writer(path, full)?;
        if is_owner {
            file_lock::mark_writer(&connection, path)?;
        }
        let (requests, mut waiting) = mpsc::channel(limits::STORE_QUEUE);
        let state = Arc::new(FileState::default());
        let file = state.clone();
        let writing = move || {
            // A panic in one write must not end all writing for the life of the process.
            while catch_unwind(AssertUnwindSafe(|| writer::run(&connection, &file, &mut waiting))).is_err() {
                tracing::error!(code = "S0103", "the writer thread of the store panicked and is restarted");
            }
            if is_owner {
                file_lock::clear_mark(&connection);
            }
            retention::truncate_wal(&connection);
        };
        let writer = std::thread::Builder::new()
            .name("segue-store".to_owned())
            .spawn(writing)
            .map_err(|e| StoreError::Unavailable(format!("the writer cannot start: {e}")))?;
        let readers = ReaderPool::new(path)?;
        if is_owner {
            for file in [path.to_owned(), file_lock::sibling_path(path, "-wal"), file_lock::sibling_path(path, "-shm")]
            {
                file_lock::restrict_permissions(&file);
            }
        }
        state.files.get_or_init(|| WatchedFiles::of(path));
        Ok(Self { requests: Some(requests), writer: Some(writer), readers: Arc::new(readers), _file_lock: file_lock })
    }

    /// Opens a file for its runs, also while other processes write to it: a write of a run depends on nothing that a process remembers,
    /// and each unit has one owner. The conversations of this store must not be written. Creates and migrates the file as
    /// [`SqliteStore::open`].
    ///
    /// # Errors
    /// As [`SqliteStore::open`]; [`StoreError::InUse`] only for a file of an earlier version.
    pub fn open_for_runs(path: &Path, full: bool) -> Result<Self, StoreError> {
        Self::create_or_migrate(path, full)?;
        Self::open_locked(path, full, None)
    }

    /// Migrates a file that must exist.
    fn migrate_existing(path: &Path) -> Result<(), StoreError> {
        schema::open_reader(path)?;
        Self::create_or_migrate(path, true)
    }

    /// Creates a file, or migrates it to the newest version. Waits for another process that does the same.
    fn create_or_migrate(path: &Path, full: bool) -> Result<(), StoreError> {
        let mut polls = limits::STORE_CREATION.as_millis() / CREATION_POLL.as_millis();
        loop {
            if path.is_file() && schema::is_current(&schema::open_reader(path)?, path)? {
                return Ok(());
            }
            match Self::open(path, full) {
                Ok(_) => return Ok(()),
                // Blocks as every wait for the file does.
                Err(StoreError::InUse { .. }) if polls > 0 => {
                    polls -= 1;
                    std::thread::sleep(CREATION_POLL);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Opens an existing file for reading only, also while another store writes to it. A file of an earlier version is
    /// migrated first.
    ///
    /// # Errors
    /// As [`SqliteStore::open`]; [`StoreError::InUse`] only for a file of an earlier version.
    pub fn open_read_only(path: &Path) -> Result<Self, StoreError> {
        Self::migrate_existing(path)?;
        Ok(Self { requests: None, writer: None, readers: Arc::new(ReaderPool::new(path)?), _file_lock: None })
    }

    /// Copies the file `from` to `to`, also while another store writes to it. The copy is one self-contained file.
    /// Nothing is overwritten. Blocks on the file system until the copy is complete.
    ///
    /// # Errors
    /// As [`SqliteStore::open_read_only`]; [`StoreError::Unsupported`] if there is a file of that name already;
    /// [`StoreError::Unavailable`] when the copy cannot be written: an incomplete copy is removed.
    pub fn backup(from: &Path, to: &Path) -> Result<(), StoreError> {
        Self::migrate_existing(from)?;
        backup::copy(from, to)
    }

    /// Sends an operation to the writer and waits for its commit. Once sent, the operation is performed even if the
    /// future is dropped.
    async fn write(&self, work: WriteOperation) -> Result<WriteResult, StoreError> {
        self.enqueue(work).await?.await.map_err(|_| writer_ended())?
    }

    /// Sends an operation to the writer and returns the receiver of its result.
    async fn enqueue(
        &self,
        work: WriteOperation,
    ) -> Result<oneshot::Receiver<Result<WriteResult, StoreError>>, StoreError> {
        let Some(requests) = &self.requests else {
            return Err(StoreError::Unsupported {
                given: self.readers.path.display().to_string(),
                reason: "this store is open for reading only".to_owned(),
                help: "open it for writing".to_owned(),
            });
        };
        let (answer, answered) = oneshot::channel();
        requests.send(WriteRequest { work, answer }).await.map_err(|_| writer_ended())?;
        Ok(answered)
    }

    /// Runs a read on a thread that may block.
    async fn read<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let unavailable = |e: &dyn std::fmt::Display| StoreError::Unavailable(e.to_string());
        let readers = self.readers.clone();
        let permit = readers.permits.clone().acquire_owned().await.map_err(|e| unavailable(&e))?;
        let read = tokio::task::spawn_blocking(move || {
            // Held until the read ends, even if the future was dropped.
            let _permit = permit;
            let connection = readers.take()?;
            let found = look(&connection);
            readers.lock().push(connection);
            found
        });
        read.await.map_err(|e| unavailable(&e))?
    }

    async fn accept_message(
        &self,
        id: ConversationId,
        work: Result<WriteOperation, StoreError>,
    ) -> Result<AcceptOutcome, StoreError> {
        match self.write(work?).await? {
            WriteResult::Accepted(AcceptResult::New(turn)) => Ok(AcceptOutcome::New(turn)),
            WriteResult::Accepted(AcceptResult::Open(turn)) => Ok(AcceptOutcome::Running(turn)),
            WriteResult::Accepted(AcceptResult::Answered(turn)) => {
                let replies = self.read(move |connection| read::replies_to(connection, &id, turn)).await?;
                Ok(AcceptOutcome::Answered(turn, replies))
            }
            _ => Err(wrong_result_kind()),
        }
    }

    async fn append_commit(&self, batch: Result<Box<EncodedCommit>, StoreError>) -> Result<Version, StoreError> {
        let work = WriteOperation::Append(batch?);
        failpoint::hit("C19");
        let done = self.write(work).await?;
        failpoint::hit("C21");
        match done {
            WriteResult::Version(version) => Ok(version),
            _ => Err(wrong_result_kind()),
        }
    }

    /// Waits until the queued delivery marks are stored, so that a read sees them.
    async fn flush_receipts(&self) -> Result<(), StoreError> {
        if self.requests.is_none() { Ok(()) } else { self.write(WriteOperation::Wait).await.map(drop) }
    }

    async fn purge_all_expired(&self, now: Timestamp) -> Result<u64, StoreError> {
        let mut gone = 0;
        loop {
            // In small transactions, so that no turn waits long.
            match self.write(WriteOperation::Expire { now }).await? {
                WriteResult::Expired { rows, more } => {
                    gone += rows;
                    if !more {
                        return Ok(gone);
                    }
                }
                _ => return Err(wrong_result_kind()),
            }
        }
    }
}

/// The operation that accepts a message, with the encoded row.
fn accept_operation(inbound: &InboxMessage) -> Result<WriteOperation, StoreError> {
    Ok(WriteOperation::Accept {
        id: inbound.conversation.clone(),
        key: dedup::dedup_key(inbound),
        at: inbound.at,
        message: rows::encode_message(inbound)?,
    })
}

/// Adds checksums to journal records.
fn with_checksums(id: &ConversationId, turn: TurnNumber, records: Vec<JournalRecord>) -> Vec<Record> {
    let checked = |record: JournalRecord| {
        let checksum = rows::record_checksum(id, turn.0, &record);
        (record, checksum)
    };
    records.into_iter().map(checked).collect()
}

/// Encodes a commit as its rows.
fn encode_commit(id: &ConversationId, after: Version, batch: TurnCommit) -> Result<Box<EncodedCommit>, StoreError> {
    let number = after.0 + 1;
    let (events, replies) = (rows::json(id, &batch.events)?, rows::json(id, &batch.replies)?);
    let waits = |reply: &StoredReply| !batch.delivered.contains(&reply.id);
    let reply_ids = batch.replies.iter().filter(|reply| waits(reply)).map(|reply| reply.id.clone()).collect();
    Ok(Box::new(EncodedCommit {
        id: id.clone(),
        after,
        turn: batch.turn,
        at: batch.events.first().map(|event| event.at),
        checksum: rows::batch_checksum(id, number, batch.turn.0, &events, &replies),
        events,
        replies,
        reply_ids,
        journal: with_checksums(id, batch.turn, batch.journal),
        trace: batch.trace,
        texts: batch.texts,
        next_reminder: batch.next_reminder,
        snapshot: batch.snapshot.map(|snapshot| rows::encode_snapshot(number, &snapshot)).transpose()?,
    }))
}

fn wrong_result_kind() -> StoreError {
    StoreError::Unavailable("the writer returned a result of the wrong kind".to_owned())
}

fn writer_ended() -> StoreError {
    StoreError::Unavailable("the writer has ended".to_owned())
}

impl ReaderPool {
    fn new(path: &Path) -> Result<Self, StoreError> {
        let idle = Mutex::new(vec![schema::open_reader(path)?]);
        Ok(Self { path: path.to_owned(), idle, permits: Arc::new(Semaphore::new(limits::STORE_READERS)) })
    }
    fn take(&self) -> Result<Connection, StoreError> {
        let idle = self.lock().pop();
        idle.map_or_else(|| schema::open_reader(&self.path), Ok)
    }
    fn lock(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        self.requests = None;
        // The last connection merges the write-ahead log into the file, and only a writable connection can.
        self.readers.lock().clear();
        if let Some(writer) = self.writer.take() {
            // If the writer panicked, its callers have got an error already.
            let _ = writer.join();
        }
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn accept(&self, inbound: InboxMessage) -> Result<AcceptOutcome, StoreError> {
        let work = accept_operation(&inbound);
        self.accept_message(inbound.conversation, work).await
    }
    async fn load(&self, id: &ConversationId) -> Result<StoredConversation, StoreError> {
        let id = id.clone();
        self.read(move |connection| read::load(connection, &id)).await
    }
    async fn append_journal(
        &self,
        id: &ConversationId,
        turn: TurnNumber,
        records: Vec<JournalRecord>,
    ) -> Result<(), StoreError> {
        let work = WriteOperation::Journal { id: id.clone(), turn, records: with_checksums(id, turn, records) };
        self.write(work).await.map(drop)
    }
    async fn append(&self, id: &ConversationId, after: Version, batch: TurnCommit) -> Result<Version, StoreError> {
        self.append_commit(encode_commit(id, after, batch)).await
    }
    async fn unfinished_turns(&self, id: &ConversationId) -> Result<Vec<UnfinishedTurn>, StoreError> {
        self.unfinished_turns_in(id, TurnNumber(0)..TurnNumber(u64::MAX)).await
    }
    async fn unfinished_turns_in(
        &self,
        id: &ConversationId,
        turns: Range<TurnNumber>,
    ) -> Result<Vec<UnfinishedTurn>, StoreError> {
        let id = id.clone();
        self.read(move |connection| read::unfinished_turns_in(connection, &id, &turns)).await
    }
    async fn replies_of(&self, id: &ConversationId, turn: TurnNumber) -> Result<Option<Vec<StoredReply>>, StoreError> {
        let id = id.clone();
        self.read(move |connection| read::replies_of(connection, &id, turn)).await
    }
    async fn conversations_with_work(&self) -> Result<Vec<ConversationId>, StoreError> {
        self.flush_receipts().await?;
        self.read(read::conversations_with_work).await
    }
    async fn next_reminders(&self, limit: usize) -> Result<Vec<(ConversationId, Timestamp)>, StoreError> {
        self.read(move |connection| read::next_reminders(connection, limit)).await
    }
    async fn pending_replies(&self, id: &ConversationId) -> Result<Vec<StoredReply>, StoreError> {
        let id = id.clone();
        self.flush_receipts().await?;
        self.read(move |connection| read::pending_replies(connection, &id)).await
    }
    async fn mark_delivered(&self, id: &ConversationId, replies: Vec<Arc<str>>) -> Result<(), StoreError> {
        // The result is not waited for: a lost mark only repeats a reply under the same id.
        let work = WriteOperation::Delivered { id: id.clone(), replies };
        self.enqueue(work).await.map(drop)
    }
    async fn latest_turns(
        &self,
        id: &ConversationId,
        before: Option<Version>,
        most: usize,
    ) -> Result<Vec<TurnEvents>, StoreError> {
        let id = id.clone();
        self.read(move |connection| read::latest_turns(connection, &id, before, most)).await
    }
    async fn latest_events(&self, id: &ConversationId, most: usize) -> Result<Vec<Event>, StoreError> {
        let id = id.clone();
        self.read(move |connection| read::latest_events(connection, &id, most)).await
    }
    async fn turn(&self, id: &ConversationId, turn: TurnNumber) -> Result<Option<StoredTurn>, StoreError> {
        let id = id.clone();
        self.read(move |connection| read::turn(connection, &id, turn)).await
    }
    async fn turns(&self, id: &ConversationId) -> Result<Vec<StoredTurn>, StoreError> {
        let id = id.clone();
        self.read(move |connection| read::turns(connection, &id)).await
    }
    async fn conversations(&self, limit: usize) -> Result<Vec<ConversationId>, StoreError> {
        self.read(move |connection| read::conversations(connection, limit)).await
    }
    async fn erase(&self, id: &ConversationId) -> Result<(), StoreError> {
        let work = WriteOperation::Erase { id: id.clone() };
        self.write(work).await.map(drop)
    }
    async fn purge_expired(&self, now: Timestamp) -> Result<u64, StoreError> {
        self.purge_all_expired(now).await
    }
    async fn replies_to_message(
        &self,
        id: &ConversationId,
        message: &MessageId,
    ) -> Result<Option<Vec<StoredReply>>, StoreError> {
        let (id, message) = (id.clone(), message.clone());
        self.read(move |connection| read::replies_to_message(connection, &id, &message)).await
    }
    async fn text_by_hash(&self, id: &ConversationId, hash: &str) -> Result<Option<Arc<str>>, StoreError> {
        let (id, hash) = (id.clone(), hash.to_owned());
        self.read(move |connection| read::text_by_hash(connection, &id, &hash)).await
    }
    async fn set_private_text(
        &self,
        id: &ConversationId,
        name: &str,
        text: Option<String>,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        let work = WriteOperation::Private { id: id.clone(), name: name.to_owned(), text, at };
        self.write(work).await.map(drop)
    }
    async fn private_text(&self, id: &ConversationId, name: &str) -> Result<Option<String>, StoreError> {
        let (id, name) = (id.clone(), name.to_owned());
        self.read(move |connection| read::private_text(connection, &id, &name)).await
    }
    async fn problems(&self) -> Result<Vec<ConversationProblem>, StoreError> {
        self.flush_receipts().await?;
        self.read(read::problems).await
    }
    async fn ping(&self) -> Result<(), StoreError> {
        self.write(WriteOperation::Ping).await.map(drop)
    }
    async fn close(&self) -> Result<(), StoreError> {
        if self.requests.is_none() { Ok(()) } else { self.write(WriteOperation::Close).await.map(drop) }
    }
}

/// An unsigned integer in SQLite, which has signed integers only: the bits stay the same.
#[derive(Clone, Copy)]
struct SqlU64(u64);

impl ToSql for SqlU64 {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(self.0.cast_signed().into())
    }
}

impl FromSql for SqlU64 {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        value.as_i64().map(|number| Self(number.cast_unsigned()))
    }
}

/// A database error as a store error: a read failed, or the result of a write is unknown.
fn into_store_error(error: rusqlite::Error) -> StoreError {
    store_error(&error)
}

fn store_error(error: &rusqlite::Error) -> StoreError {
    StoreError::Unavailable(error.to_string())
}

#[cfg(test)]
mod tests;
