//! A store in one SQLite file.
//!
//! One thread writes for all conversations: it takes everything that waits, commits it in one transaction and only then answers
//! everybody. Reading goes through connections of its own and never waits for the writer. One store writes to a file at a
//! time ([`owner`]); others may read it meanwhile.
//!
//! Texts are encoded by whoever calls, not by the writer, which is the one thing that all share.

mod backup;
mod head_cache;
mod legacy;
mod owner;
mod read;
mod retention;
mod rows;
mod schema;
mod writer;

use std::{
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
};

use futures::future::BoxFuture;
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
    owner::Owner,
    writer::{Appended, Done, Job, Record, Seen, Work},
};
use super::{
    AcceptOutcome, InboxMessage, JournalRecord, Store, StoreError, StoredConversation, StoredReply, StoredTurn,
    Trouble, TurnCommit, TurnEvents, TurnNumber, UnfinishedTurn, Version, dedup,
};

/// A store in one SQLite file. Dropping it ends the writer after what waits is committed.
pub struct SqliteStore {
    /// `None` while it is dropped, and where the store is for reading only.
    jobs: Option<mpsc::Sender<Job>>,
    writer: Option<JoinHandle<()>>,
    readers: Arc<Readers>,
    /// The right to write; given back when the writer has ended. None where the store is for reading only.
    owner: Option<Owner>,
}

/// Whether a file is a database of another program.
pub(super) fn is_foreign(path: &Path) -> bool {
    schema::is_foreign(path)
}

/// Connections for reading.
struct Readers {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
    /// Bounds how many read at once, and with that how many are idle.
    places: Arc<Semaphore>,
}

impl SqliteStore {
    /// Opens a file, and makes it and the folders above it where they are missing. `full` forces every commit to the disk. The file
    /// belongs to this store until it is dropped. Blocks on the file system.
    ///
    /// # Errors
    /// [`StoreError::InUse`] for a file that another store writes to, in this process or in another one;
    /// [`StoreError::TooNew`] for a file of a later version, [`StoreError::Unsupported`] for a file of another program,
    /// [`StoreError::Unavailable`] when it cannot be opened or written.
    pub fn open(path: &Path, full: bool) -> Result<Self, StoreError> {
        let unavailable = |of: &Path, e: std::io::Error| StoreError::Unavailable(format!("{}: {e}", of.display()));
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder).map_err(|e| unavailable(folder, e))?;
        }
        // Before SQLite makes it, which would let others read it.
        owner::make(path).map_err(|e| unavailable(path, e))?;
        let owner = Owner::take(path)?;
        Self::opened(path, full, Some(owner))
    }

    fn opened(path: &Path, full: bool, mut owner: Option<Owner>) -> Result<Self, StoreError> {
        let connection = schema::open_writer(path, full)?;
        let (jobs, mut waiting) = mpsc::channel(limits::STORE_QUEUE);
        let writing = move || {
            // What breaks one write down must not end all writing for the life of the process.
            while catch_unwind(AssertUnwindSafe(|| writer::run(&connection, &mut waiting))).is_err() {
                tracing::error!(code = "S0103", "the writer of the store broke down; it starts again");
            }
            retention::purge_log(&connection);
        };
        let writer = std::thread::Builder::new()
            .name("segue-store".to_owned())
            .spawn(writing)
            .map_err(|e| StoreError::Unavailable(format!("the writer cannot start: {e}")))?;
        let readers = Readers::new(path)?;
        if let Some(owner) = &mut owner {
            for file in [path.to_owned(), owner::beside(path, "-wal"), owner::beside(path, "-shm")] {
                owner::keep_private(&file);
            }
            owner.watch(path);
        }
        Ok(Self { jobs: Some(jobs), writer: Some(writer), readers: Arc::new(readers), owner })
    }

    /// Opens a file that is there for reading only, beside the store that writes to it, if any. A file of an earlier version is
    /// brought up to date first.
    ///
    /// # Errors
    /// As [`SqliteStore::open`]; [`StoreError::InUse`] only for a file of an earlier version.
    pub fn view(path: &Path) -> Result<Self, StoreError> {
        Self::bring_up_to_date(path)?;
        Ok(Self { jobs: None, writer: None, readers: Arc::new(Readers::new(path)?), owner: None })
    }

    /// Copies the file in `from` to `to`, beside the store that writes to it, if any. The copy is one file that opens by itself.
    /// Nothing is overwritten. Blocks on the file system, for as long as the copying takes.
    ///
    /// # Errors
    /// As [`SqliteStore::view`]; [`StoreError::Unsupported`] where there is a file of that name already;
    /// [`StoreError::Unavailable`] when the copy cannot be written: nothing is left of it.
    pub fn backup(from: &Path, to: &Path) -> Result<(), StoreError> {
        Self::bring_up_to_date(from)?;
        backup::copy(from, to)
    }

    fn bring_up_to_date(path: &Path) -> Result<(), StoreError> {
        if schema::is_newest(&schema::open_reader(path)?, path)? {
            return Ok(());
        }
        Self::open(path, true).map(drop)
    }

    /// Hands work to the writer and waits for its commit. Once the work is handed over it is done, whether anybody waits or
    /// not.
    async fn write(&self, work: Work) -> Result<Done, StoreError> {
        self.hand_over(work).await?.await.map_err(|_| gone())?
    }

    /// Hands work to the writer, which does it in its turn.
    async fn hand_over(&self, work: Work) -> Result<oneshot::Receiver<Result<Done, StoreError>>, StoreError> {
        let Some(jobs) = &self.jobs else {
            return Err(StoreError::Unsupported {
                given: self.readers.path.display().to_string(),
                reason: "this store is open for reading only".to_owned(),
                cure: "open it for writing".to_owned(),
            });
        };
        let (answer, answered) = oneshot::channel();
        jobs.send(Job { work, answer }).await.map_err(|_| gone())?;
        Ok(answered)
    }

    /// Reads on a thread that may block.
    async fn read<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let unavailable = |e: &dyn std::fmt::Display| StoreError::Unavailable(e.to_string());
        let readers = self.readers.clone();
        let place = readers.places.clone().acquire_owned().await.map_err(|e| unavailable(&e))?;
        let read = tokio::task::spawn_blocking(move || {
            // Until the read is done, whether anybody still waits for it or not.
            let _place = place;
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
        work: Result<Work, StoreError>,
    ) -> Result<AcceptOutcome, StoreError> {
        match self.write(work?).await? {
            Done::Seen(Seen::New(turn)) => Ok(AcceptOutcome::New(turn)),
            Done::Seen(Seen::Open(turn)) => Ok(AcceptOutcome::Running(turn)),
            Done::Seen(Seen::Answered(turn)) => {
                let replies = self.read(move |connection| read::replies_to(connection, &id, turn)).await?;
                Ok(AcceptOutcome::Answered(turn, replies))
            }
            _ => Err(unexpected()),
        }
    }

    async fn append_batch(&self, batch: Result<Box<Appended>, StoreError>) -> Result<Version, StoreError> {
        let work = Work::Append(batch?);
        failpoint::hit("C19");
        let done = self.write(work).await?;
        failpoint::hit("C21");
        match done {
            Done::Version(version) => Ok(version),
            _ => Err(unexpected()),
        }
    }

    /// Whether a write is stored, in files that are still there.
    async fn try_writing(&self) -> Result<(), StoreError> {
        let files = self.owner.as_ref().map(Owner::files).unwrap_or_default();
        let looked = tokio::task::spawn_blocking(move || owner::are_there(&files)).await;
        looked.map_err(|e| StoreError::Unavailable(e.to_string()))??;
        self.write(Work::Ping).await.map(drop)
    }

    /// Waits until the receipts that were handed to the writer are stored: before anybody looks at what is not delivered.
    async fn receipts_are_stored(&self) -> Result<(), StoreError> {
        if self.jobs.is_none() { Ok(()) } else { self.write(Work::Wait).await.map(drop) }
    }

    async fn expire_all(&self, now: Timestamp) -> Result<u64, StoreError> {
        let mut gone = 0;
        loop {
            // In parts, so that no turn waits for the whole.
            match self.write(Work::Expire { now }).await? {
                Done::Expired { rows, more } => {
                    gone += rows;
                    if !more {
                        return Ok(gone);
                    }
                }
                _ => return Err(unexpected()),
            }
        }
    }
}

/// Encodes a message as its row will hold it.
fn encode_message(inbound: &InboxMessage) -> Result<Work, StoreError> {
    Ok(Work::Accept {
        id: inbound.conversation.clone(),
        key: dedup::dedup_key(inbound),
        at: inbound.at,
        message: rows::message(inbound)?,
    })
}

/// Adds their checksums to records of the journal.
fn checked(id: &ConversationId, turn: TurnNumber, records: Vec<JournalRecord>) -> Vec<Record> {
    let checked = |record: JournalRecord| {
        let checksum = rows::record_checksum(id, turn.0, &record);
        (record, checksum)
    };
    records.into_iter().map(checked).collect()
}

/// Encodes a batch as its row will hold it.
fn encode(id: &ConversationId, after: Version, batch: TurnCommit) -> Result<Box<Appended>, StoreError> {
    let number = after.0 + 1;
    let (events, replies) = (rows::json(id, &batch.events)?, rows::json(id, &batch.replies)?);
    let waits = |reply: &StoredReply| !batch.delivered.contains(&reply.id);
    let reply_ids = batch.replies.iter().filter(|reply| waits(reply)).map(|reply| reply.id.clone()).collect();
    Ok(Box::new(Appended {
        id: id.clone(),
        after,
        turn: batch.turn,
        at: batch.events.first().map(|event| event.at),
        checksum: rows::batch_checksum(id, number, batch.turn.0, &events, &replies),
        events,
        replies,
        reply_ids,
        journal: checked(id, batch.turn, batch.journal),
        trace: batch.trace,
        bodies: batch.bodies,
        timer: batch.timer,
        snapshot: batch.snapshot.map(|snapshot| rows::snapshot(number, &snapshot)).transpose()?,
    }))
}

fn unexpected() -> StoreError {
    StoreError::Unavailable("the writer gave an answer of the wrong kind".to_owned())
}

fn gone() -> StoreError {
    StoreError::Unavailable("the writer has ended".to_owned())
}

impl Readers {
    fn new(path: &Path) -> Result<Self, StoreError> {
        let idle = Mutex::new(vec![schema::open_reader(path)?]);
        Ok(Self { path: path.to_owned(), idle, places: Arc::new(Semaphore::new(limits::STORE_READERS)) })
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
        self.jobs = None;
        // The last connection brings the log into the file, and only one that may write can.
        self.readers.lock().clear();
        if let Some(writer) = self.writer.take() {
            // A writer that panicked has told everybody by leaving them without an answer.
            let _ = writer.join();
        }
    }
}

impl Store for SqliteStore {
    fn accept(&self, inbound: InboxMessage) -> BoxFuture<'_, Result<AcceptOutcome, StoreError>> {
        // Encoded before there is a future, which would carry the message twice.
        let work = encode_message(&inbound);
        Box::pin(self.accept_message(inbound.conversation, work))
    }
    fn load<'a>(&'a self, id: &'a ConversationId) -> BoxFuture<'a, Result<StoredConversation, StoreError>> {
        let id = id.clone();
        Box::pin(self.read(move |connection| read::load(connection, &id)))
    }
    fn journal<'a>(
        &'a self,
        id: &'a ConversationId,
        turn: TurnNumber,
        records: Vec<JournalRecord>,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        let work = Work::Journal { id: id.clone(), turn, records: checked(id, turn, records) };
        Box::pin(async { self.write(work).await.map(drop) })
    }
    fn append<'a>(
        &'a self,
        id: &'a ConversationId,
        after: Version,
        batch: TurnCommit,
    ) -> BoxFuture<'a, Result<Version, StoreError>> {
        // As in `accept`.
        Box::pin(self.append_batch(encode(id, after, batch)))
    }
    fn unfinished<'a>(&'a self, id: &'a ConversationId) -> BoxFuture<'a, Result<Vec<UnfinishedTurn>, StoreError>> {
        self.open_turns(id, TurnNumber(0)..TurnNumber(u64::MAX))
    }
    fn open_turns<'a>(
        &'a self,
        id: &'a ConversationId,
        turns: Range<TurnNumber>,
    ) -> BoxFuture<'a, Result<Vec<UnfinishedTurn>, StoreError>> {
        let id = id.clone();
        Box::pin(self.read(move |connection| read::open_turns(connection, &id, &turns)))
    }
    fn replies_of<'a>(
        &'a self,
        id: &'a ConversationId,
        turn: TurnNumber,
    ) -> BoxFuture<'a, Result<Option<Vec<StoredReply>>, StoreError>> {
        let id = id.clone();
        Box::pin(self.read(move |connection| read::replies_of(connection, &id, turn)))
    }
    fn waiting(&self) -> BoxFuture<'_, Result<Vec<ConversationId>, StoreError>> {
        Box::pin(async {
            self.receipts_are_stored().await?;
            self.read(read::waiting).await
        })
    }
    fn timers(&self, limit: usize) -> BoxFuture<'_, Result<Vec<(ConversationId, Timestamp)>, StoreError>> {
        Box::pin(self.read(move |connection| read::timers(connection, limit)))
    }
    fn undelivered<'a>(&'a self, id: &'a ConversationId) -> BoxFuture<'a, Result<Vec<StoredReply>, StoreError>> {
        let id = id.clone();
        Box::pin(async {
            self.receipts_are_stored().await?;
            self.read(move |connection| read::undelivered(connection, &id)).await
        })
    }
    fn delivered<'a>(
        &'a self,
        id: &'a ConversationId,
        replies: Vec<Arc<str>>,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        // Nobody waits for a receipt: losing one only repeats a reply under the same id.
        let work = Work::Delivered { id: id.clone(), replies };
        Box::pin(async { self.hand_over(work).await.map(drop) })
    }
    fn latest_turns<'a>(
        &'a self,
        id: &'a ConversationId,
        before: Option<Version>,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<TurnEvents>, StoreError>> {
        let id = id.clone();
        Box::pin(self.read(move |connection| read::latest_turns(connection, &id, before, most)))
    }
    fn latest_events<'a>(
        &'a self,
        id: &'a ConversationId,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<Event>, StoreError>> {
        let id = id.clone();
        Box::pin(self.read(move |connection| read::latest_events(connection, &id, most)))
    }
    fn turns<'a>(&'a self, id: &'a ConversationId) -> BoxFuture<'a, Result<Vec<StoredTurn>, StoreError>> {
        let id = id.clone();
        Box::pin(self.read(move |connection| read::turns(connection, &id)))
    }
    fn conversations(&self, limit: usize) -> BoxFuture<'_, Result<Vec<ConversationId>, StoreError>> {
        Box::pin(self.read(move |connection| read::conversations(connection, limit)))
    }
    fn erase<'a>(&'a self, id: &'a ConversationId) -> BoxFuture<'a, Result<(), StoreError>> {
        let work = Work::Erase { id: id.clone() };
        Box::pin(async { self.write(work).await.map(drop) })
    }
    fn expire(&self, now: Timestamp) -> BoxFuture<'_, Result<u64, StoreError>> {
        Box::pin(self.expire_all(now))
    }
    fn answered<'a>(
        &'a self,
        id: &'a ConversationId,
        message: &'a MessageId,
    ) -> BoxFuture<'a, Result<Option<Vec<StoredReply>>, StoreError>> {
        let (id, message) = (id.clone(), message.clone());
        Box::pin(self.read(move |connection| read::answered(connection, &id, &message)))
    }
    fn body<'a>(
        &'a self,
        id: &'a ConversationId,
        hash: &'a str,
    ) -> BoxFuture<'a, Result<Option<Arc<str>>, StoreError>> {
        let (id, hash) = (id.clone(), hash.to_owned());
        Box::pin(self.read(move |connection| read::body(connection, &id, &hash)))
    }
    fn keep_private<'a>(
        &'a self,
        id: &'a ConversationId,
        name: &'a str,
        text: Option<String>,
        at: Timestamp,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        let work = Work::Private { id: id.clone(), name: name.to_owned(), text, at };
        Box::pin(async move { self.write(work).await.map(drop) })
    }
    fn private<'a>(
        &'a self,
        id: &'a ConversationId,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<String>, StoreError>> {
        let (id, name) = (id.clone(), name.to_owned());
        Box::pin(self.read(move |connection| read::private(connection, &id, &name)))
    }
    fn troubles(&self) -> BoxFuture<'_, Result<Vec<Trouble>, StoreError>> {
        Box::pin(async {
            self.receipts_are_stored().await?;
            self.read(read::troubles).await
        })
    }
    fn ping(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(self.try_writing())
    }
    fn close(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async { if self.jobs.is_none() { Ok(()) } else { self.write(Work::Close).await.map(drop) } })
    }
}

/// An unsigned number as SQLite keeps it, which knows signed ones only: the bits stay the same.
#[derive(Clone, Copy)]
struct Unsigned(u64);

impl ToSql for Unsigned {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(self.0.cast_signed().into())
    }
}

impl FromSql for Unsigned {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        value.as_i64().map(|number| Self(number.cast_unsigned()))
    }
}

/// What an error of the driver means: nothing is known of the write, or nothing could be read.
fn driver(error: rusqlite::Error) -> StoreError {
    failed(&error)
}

fn failed(error: &rusqlite::Error) -> StoreError {
    StoreError::Unavailable(error.to_string())
}

#[cfg(test)]
mod tests;
