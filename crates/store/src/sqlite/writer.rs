//! The writer thread: it takes all waiting requests, commits them in one transaction, then answers them (group commit).
//!
//! No request is answered before the commit. If a group fails because of one request, the requests are committed one by
//! one, so that only the faulty one fails. If the file itself fails (locked, full, read-only), the whole group gets the
//! error at once: retrying each request would make each wait for the full busy timeout.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, Ordering},
};

use rusqlite::{Connection, Statement, ffi::ErrorCode, params};
use segue_base::{failpoint, limits};
use segue_engine::{ids::ConversationId, time::Timestamp};
use tokio::sync::{mpsc, oneshot};

use super::{
    SqlU64,
    file_lock::WatchedFiles,
    head_cache::{ConversationHead, HeadCache},
    retention,
    rows::{self, EncodedText},
    runs::{self, RunOperation, RunResult},
    store_error,
};
use crate::{JournalRecord, StoreError, StoredText, TurnNumber, Version, dedup, runs::RunStoreError};

/// Whether an error concerns the file and so every write; other errors concern one request.
fn is_file_error(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error_code();
    code.is_some_and(|code| {
        matches!(
            code,
            ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::DiskFull
                | ErrorCode::SystemIoFailure
                | ErrorCode::ReadOnly
                | ErrorCode::DatabaseCorrupt
                | ErrorCode::NotADatabase
                | ErrorCode::CannotOpen
                | ErrorCode::PermissionDenied
                | ErrorCode::OutOfMemory
                | ErrorCode::FileLockingProtocolFailed
        )
    })
}

/// What the writer knows about its file.
#[derive(Default)]
pub(super) struct FileState {
    /// The files, as they were opened.
    pub(super) files: OnceLock<WatchedFiles>,
    /// Whether the last write failed because of the file. A small write may succeed although others fail, for example on a full disk.
    is_failing: AtomicBool,
}

impl FileState {
    /// Takes note of the outcome of a write, and reports a change once.
    fn note(&self, outcome: &Result<(), StoreError>) {
        match outcome {
            Ok(()) if self.is_failing.swap(false, Ordering::Relaxed) => {
                tracing::warn!("the store can be written again")
            }
            Err(error) if !self.is_failing.swap(true, Ordering::Relaxed) => {
                tracing::error!(code = error.code(), "the store cannot be written: {error}");
            }
            _ => {}
        }
    }
}

/// An operation, and the channel for its result.
pub(super) struct WriteRequest {
    pub(super) work: WriteOperation,
    pub(super) answer: oneshot::Sender<Result<WriteResult, StoreError>>,
}

/// An operation of the writer.
pub(super) enum WriteOperation {
    Accept {
        id: ConversationId,
        key: Option<String>,
        at: Timestamp,
        message: EncodedText,
    },
    Journal {
        id: ConversationId,
        turn: TurnNumber,
        records: Vec<Record>,
    },
    Append(Box<EncodedCommit>),
    /// Marks replies as delivered.
    Delivered {
        id: ConversationId,
        replies: Vec<Arc<str>>,
    },
    /// Does nothing; it completes when all earlier operations are committed.
    Wait,
    /// A write that checks whether writing works: a small one, and one of the size of a turn after a write has failed.
    Ping,
    /// Commits all earlier operations, then truncates the write-ahead log.
    Close,
    Erase {
        id: ConversationId,
    },
    Expire {
        now: Timestamp,
    },
    Private {
        id: ConversationId,
        name: String,
        text: Option<String>,
        at: Timestamp,
    },
    /// An operation on runs.
    Run(Box<RunOperation>),
    /// Panics, for tests of the restart.
    #[cfg(test)]
    Panic,
}

/// A journal record and its checksum.
pub(super) type Record = (JournalRecord, SqlU64);

/// An encoded commit.
pub(super) struct EncodedCommit {
    pub(super) id: ConversationId,
    pub(super) after: Version,
    pub(super) turn: TurnNumber,
    /// The time of the first event. The time of the message has precedence over it.
    pub(super) at: Option<Timestamp>,
    pub(super) events: String,
    pub(super) replies: String,
    /// The checksum over events and replies.
    pub(super) checksum: SqlU64,
    /// The replies that wait for delivery.
    pub(super) reply_ids: Vec<Arc<str>>,
    pub(super) journal: Vec<Record>,
    pub(super) trace: Option<String>,
    pub(super) texts: Vec<StoredText>,
    /// When the earliest reminder is due, if that has changed.
    pub(super) next_reminder: Option<Option<Timestamp>>,
    pub(super) snapshot: Option<EncodedText>,
}

/// The result of an operation.
pub(super) enum WriteResult {
    Accepted(AcceptResult),
    Version(Version),
    Expired {
        rows: u64,
        more: bool,
    },
    /// The result of an operation on runs, which may be refused.
    Run(Result<Box<RunResult>, Box<RunStoreError>>),
    Nothing,
}

/// The result of accepting a message.
pub(super) enum AcceptResult {
    New(TurnNumber),
    Open(TurnNumber),
    Answered(TurnNumber),
}

/// The comparison of a new message with the stored one that has the same hash.
enum DuplicateCheck {
    /// It is a duplicate.
    Same(AcceptResult),
    /// It has the same key, but is past the deduplication window.
    Expired,
    /// It has another key.
    Other,
}

/// An outer error fails the transaction; an inner one concerns only this operation, which has changed nothing.
type Outcome = rusqlite::Result<Result<WriteResult, StoreError>>;

/// Runs until all senders are dropped and all requests are answered.
pub(super) fn run(connection: &Connection, file: &FileState, requests: &mut mpsc::Receiver<WriteRequest>) {
    let mut group = Vec::with_capacity(limits::GROUP_COMMIT_MAX);
    if !connection.is_autocommit() {
        // The previous run may have panicked inside a transaction.
        let _ = connection.execute_batch("ROLLBACK");
    }
    let mut writer = match Writer::new(connection, file) {
        Ok(writer) => writer,
        Err(error) => {
            let error = store_error(&error);
            while let Some(request) = requests.blocking_recv() {
                let _ = request.answer.send(Err(error.clone()));
            }
            return;
        }
    };
    while requests.blocking_recv_many(&mut group, limits::GROUP_COMMIT_MAX) > 0 {
        writer.commit_group(&mut group, requests);
    }
}

struct Writer<'c> {
    connection: &'c Connection,
    file: &'c FileState,
    heads: HeadCache<'c>,
    /// The value of `PRAGMA data_version`, which changes when another connection writes.
    data_version: i64,
    begin: Statement<'c>,
    commit: Statement<'c>,
    data_version_get: Statement<'c>,
    inbox_put: Statement<'c>,
    inbox_get: Statement<'c>,
    batch_put: Statement<'c>,
    journal_put: Statement<'c>,
    journal_has: Statement<'c>,
    snapshot_put: Statement<'c>,
    body_put: Statement<'c>,
}

impl<'c> Writer<'c> {
    fn new(connection: &'c Connection, file: &'c FileState) -> rusqlite::Result<Self> {
        Ok(Self {
            connection,
            file,
            heads: HeadCache::new(connection)?,
            data_version: 0,
            begin: connection.prepare("BEGIN IMMEDIATE")?,
            commit: connection.prepare("COMMIT")?,
            data_version_get: connection.prepare("PRAGMA data_version")?,
            inbox_put: connection.prepare(
                "INSERT INTO inbox (conversation, dedup_hash, turn, at, message, checksum) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
                 ON CONFLICT DO NOTHING",
            )?,
            inbox_get: connection.prepare(&format!(
                "SELECT {}, id FROM inbox WHERE conversation = ?1 AND dedup_hash = ?2",
                rows::MESSAGE_COLUMNS
            ))?,
            batch_put: connection.prepare(
                "INSERT INTO batches (conversation, version, turn, at, events, replies, trace, checksum)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            )?,
            journal_put: connection.prepare(
                "INSERT INTO journal (conversation, turn, step, kind, request, outcome, at, build, checksum)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            )?,
            journal_has: connection.prepare(
                "SELECT 1 FROM journal
                 WHERE conversation = ?1 AND turn = ?2 AND step = ?3 AND build = ?4 AND kind <> 'speaking'",
            )?,
            snapshot_put: connection.prepare(
                "INSERT OR REPLACE INTO snapshots (conversation, version, snapshot, checksum) VALUES (?1, ?2, ?3, ?4)",
            )?,
            // The time of the last use decides when a text expires. It is updated at most once a day (in microseconds),
            // which saves most writes.
            body_put: connection.prepare(
                "INSERT INTO bodies (conversation, hash, at, body) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT DO UPDATE SET at = excluded.at WHERE excluded.at > bodies.at + 86400000000",
            )?,
        })
    }

    /// Commits the group, or each request alone if one of them is at fault, and answers all. If the file is at fault,
    /// the requests that arrived during the attempt get its error too, because they have waited as long. Later requests
    /// start a new attempt.
    fn commit_group(&mut self, group: &mut Vec<WriteRequest>, requests: &mut mpsc::Receiver<WriteRequest>) {
        let purges =
            group.iter().any(|request| matches!(request.work, WriteOperation::Erase { .. } | WriteOperation::Close));
        let mut file_error = Ok(());
        let mut outcomes = match self.transact(group) {
            Ok(outcomes) => outcomes,
            Err(error) if !is_file_error(&error) && group.len() > 1 => {
                group.iter().map(|request| self.transact_one(request, &mut file_error)).collect()
            }
            Err(error) => {
                if is_file_error(&error) {
                    file_error = Err(store_error(&error));
                }
                group.iter().map(|_| Err(store_error(&error))).collect()
            }
        };
        // What is written to a removed file is lost.
        if let (Ok(()), Some(files)) = (&file_error, self.file.files.get()) {
            file_error = files.check();
            if let Err(error) = &file_error {
                outcomes = group.iter().map(|_| Err(error.clone())).collect();
            }
        }
        let is_write = |request: &WriteRequest| !matches!(request.work, WriteOperation::Wait | WriteOperation::Close);
        if file_error.is_err() || group.iter().any(is_write) {
            self.file.note(&file_error);
        }
        if let Err(error) = file_error {
            group.extend((0..limits::STORE_QUEUE).map_while(|_| requests.try_recv().ok()));
            outcomes.resize_with(group.len(), || Err(error.clone()));
        }
        if purges {
            retention::truncate_wal(self.connection);
        }
        for (WriteRequest { work, answer }, outcome) in group.drain(..).zip(outcomes) {
            match (&work, &outcome) {
                (WriteOperation::Accept { .. }, Ok(WriteResult::Accepted(AcceptResult::New(_)))) => {
                    failpoint::hit("C04")
                }
                (WriteOperation::Append(_), Ok(_)) => failpoint::hit("C20"),
                (WriteOperation::Run(_), Ok(WriteResult::Run(Ok(done)))) if matches!(**done, RunResult::LastSeq(_)) => {
                    failpoint::hit("run_append_stored");
                }
                (WriteOperation::Delivered { .. }, Ok(_)) => failpoint::hit("C23"),
                // No caller waits for it.
                (WriteOperation::Delivered { id, .. }, Err(error)) => {
                    tracing::warn!(conversation = %id, code = error.code(), "replies could not be marked as delivered: {error}");
                }
                _ => {}
            }
            // The receiver may be dropped: the caller can read the result from the store.
            let _ = answer.send(outcome);
        }
    }

    /// Commits one request alone, unless the file failed before.
    fn transact_one(
        &mut self,
        request: &WriteRequest,
        file_error: &mut Result<(), StoreError>,
    ) -> Result<WriteResult, StoreError> {
        file_error.clone()?;
        match self.transact(std::slice::from_ref(request)) {
            Ok(outcomes) => outcomes.into_iter().next().unwrap_or(Ok(WriteResult::Nothing)),
            Err(error) => {
                if is_file_error(&error) {
                    *file_error = Err(store_error(&error));
                }
                Err(store_error(&error))
            }
        }
    }

    /// Performs all requests in one transaction. An error means that nothing is stored.
    fn transact(&mut self, group: &[WriteRequest]) -> rusqlite::Result<Vec<Result<WriteResult, StoreError>>> {
        self.begin.execute([])?;
        let outcomes = self.perform_all(group).and_then(|outcomes| {
            self.commit.execute([])?;
            Ok(outcomes)
        });
        if outcomes.is_err() {
            self.heads.clear();
            // Some errors have rolled back already; then this fails harmlessly.
            let _ = self.connection.execute_batch("ROLLBACK");
        }
        outcomes
    }

    fn perform_all(&mut self, group: &[WriteRequest]) -> rusqlite::Result<Vec<Result<WriteResult, StoreError>>> {
        let version = self.data_version_get.query_row([], |row| row.get(0))?;
        if version != self.data_version {
            self.data_version = version;
            self.heads.clear();
        }
        let mut outcomes = Vec::with_capacity(group.len());
        for request in group {
            outcomes.push(self.perform(&request.work)?);
        }
        self.heads.flush()?;
        Ok(outcomes)
    }

    fn perform(&mut self, work: &WriteOperation) -> Outcome {
        match work {
            WriteOperation::Accept { id, key, at, message } => self.accept(id, key.as_deref(), *at, message),
            WriteOperation::Journal { id, turn, records } => self.journal(id, *turn, records),
            WriteOperation::Append(batch) => self.append(batch),
            WriteOperation::Delivered { id, replies } => self.mark_delivered(id, replies),
            WriteOperation::Wait | WriteOperation::Close => Ok(Ok(WriteResult::Nothing)),
            WriteOperation::Ping => {
                let sql = "INSERT INTO progress (name, value) VALUES ('pings', 1)
                           ON CONFLICT (name) DO UPDATE SET value = value + 1";
                self.connection.prepare_cached(sql)?.execute([])?;
                if self.file.is_failing.load(Ordering::Relaxed) {
                    let sql = "INSERT OR REPLACE INTO progress (name, value) VALUES ('probe', zeroblob(?1))";
                    self.connection.prepare_cached(sql)?.execute([SqlU64(limits::STORE_PROBE as u64)])?;
                }
                Ok(Ok(WriteResult::Nothing))
            }
            WriteOperation::Run(work) => {
                let done = runs::perform(self.connection, work)?;
                Ok(Ok(WriteResult::Run(done.map(Box::new).map_err(Box::new))))
            }
            #[cfg(test)]
            #[allow(clippy::panic)]
            WriteOperation::Panic => panic!("requested by a test"),
            WriteOperation::Erase { id } => {
                self.heads.flush()?;
                self.heads.remove(id);
                retention::erase(self.connection, id)?;
                Ok(Ok(WriteResult::Nothing))
            }
            WriteOperation::Expire { now } => {
                self.heads.flush()?;
                let (rows, more) = retention::expire(self.connection, *now)?;
                Ok(Ok(WriteResult::Expired { rows, more }))
            }
            WriteOperation::Private { id, name, text, at } => {
                // The conversation may be created in this transaction.
                self.heads.flush()?;
                retention::set_private_text(self.connection, id, name, text.as_deref(), *at)?;
                Ok(Ok(WriteResult::Nothing))
            }
        }
    }

    fn accept(&mut self, id: &ConversationId, key: Option<&str>, at: Timestamp, message: &EncodedText) -> Outcome {
        let (number, turn) = match self.heads.get(id)? {
            // Turn 1 means that there is nothing to load, and imported batches have no turns.
            Ok(head) => (head.number, head.turns.max(u64::from(head.version > 0)) + 1),
            Err(reason) => return Ok(Err(StoreError::corrupt(id, reason))),
        };
        let hash = key.map(|key| SqlU64(dedup::dedup_hash(key)));
        if !self.put_message(number, hash, turn, at, message)? {
            let hash = match self.check_duplicate(id, number, key, at)? {
                Ok(DuplicateCheck::Same(seen)) => return Ok(Ok(WriteResult::Accepted(seen))),
                Ok(DuplicateCheck::Expired) => hash,
                Ok(DuplicateCheck::Other) => None,
                Err(error) => return Ok(Err(error)),
            };
            self.put_message(number, hash, turn, at, message)?;
        }
        self.heads.change(id, |head| {
            head.turns = turn;
            head.open.push((turn, at.as_micros()));
            head.touch(at);
        });
        Ok(Ok(WriteResult::Accepted(AcceptResult::New(TurnNumber(turn)))))
    }

    /// False if there is a message with this hash already.
    fn put_message(
        &mut self,
        conversation: i64,
        hash: Option<SqlU64>,
        turn: u64,
        at: Timestamp,
        message: &EncodedText,
    ) -> rusqlite::Result<bool> {
        let row = params![conversation, hash, SqlU64(turn), at.as_micros(), message.text, message.checksum];
        Ok(self.inbox_put.execute(row)? > 0)
    }

    /// Compares a message with the stored one that has the hash of this key. If the stored one is past the
    /// deduplication window, its hash is cleared.
    fn check_duplicate(
        &mut self,
        id: &ConversationId,
        number: i64,
        key: Option<&str>,
        now: Timestamp,
    ) -> rusqlite::Result<Result<DuplicateCheck, StoreError>> {
        let hash = key.map(|key| SqlU64(dedup::dedup_hash(key)));
        let found = self
            .inbox_get
            .query_row(params![number, hash], |row| Ok((rows::read_message(id, row)?, row.get::<_, i64>(3)?)))?;
        let (turn, earlier, row) = match found {
            (Ok((turn, earlier)), row) => (turn, earlier, row),
            (Err(error), _) => return Ok(Err(error)),
        };
        if dedup::dedup_key(&earlier).as_deref() != key {
            return Ok(Ok(DuplicateCheck::Other));
        }
        if self.heads.get(id)?.is_ok_and(|head| head.is_open(turn)) {
            return Ok(Ok(DuplicateCheck::Same(AcceptResult::Open(TurnNumber(turn)))));
        }
        if !dedup::is_past_dedup_window(earlier.at, now) {
            return Ok(Ok(DuplicateCheck::Same(AcceptResult::Answered(TurnNumber(turn)))));
        }
        self.connection.execute("UPDATE inbox SET dedup_hash = NULL WHERE id = ?1", [row])?;
        Ok(Ok(DuplicateCheck::Expired))
    }

    fn journal(&mut self, id: &ConversationId, turn: TurnNumber, records: &[Record]) -> Outcome {
        let (number, is_open) = match self.head_of_turn(id, turn)? {
            Ok(head) => (head.number, head.is_open(turn.0)),
            Err(error) => return Ok(Err(error)),
        };
        if !is_open {
            // Another run has committed the turn: no more effects may start, and the journal must stay the one its
            // events were made from.
            return Ok(Err(StoreError::TurnNotOpen { conversation: id.clone(), turn: turn.0 }));
        }
        for (intent, _) in records.iter().filter(|(record, _)| record.is_intent()) {
            let step = params![number, SqlU64(turn.0), intent.key.as_str(), SqlU64(intent.build)];
            if self.journal_has.exists(step)? {
                return Ok(Err(StoreError::StepAlreadyStarted { turn: turn.0, key: intent.key.clone() }));
            }
        }
        self.put_records(number, turn, records)?;
        Ok(Ok(WriteResult::Nothing))
    }

    fn put_records(&mut self, conversation: i64, turn: TurnNumber, records: &[Record]) -> rusqlite::Result<()> {
        for (record, checksum) in records {
            self.journal_put.execute(params![
                conversation,
                SqlU64(turn.0),
                record.key.as_str(),
                record.kind,
                record.request,
                record.outcome,
                record.at.as_micros(),
                SqlU64(record.build),
                checksum
            ])?;
        }
        Ok(())
    }

    /// The head of a conversation in which this turn was accepted.
    fn head_of_turn(
        &mut self,
        id: &ConversationId,
        turn: TurnNumber,
    ) -> rusqlite::Result<Result<&ConversationHead, StoreError>> {
        Ok(match self.heads.get(id)? {
            Ok(head) if turn.0 <= head.turns => Ok(head),
            Ok(_) => Err(StoreError::TurnNotOpen { conversation: id.clone(), turn: turn.0 }),
            Err(reason) => Err(StoreError::corrupt(id, reason)),
        })
    }

    fn append(&mut self, batch: &EncodedCommit) -> Outcome {
        let EncodedCommit { id, after, turn, .. } = batch;
        let (conversation, at) = match self.head_of_turn(id, *turn)? {
            Ok(head) if head.version != after.0 => {
                return Ok(Err(StoreError::Conflict { expected: *after, found: Version(head.version) }));
            }
            Ok(head) if turn.0 > 0 && !head.is_open(turn.0) => {
                return Ok(Err(StoreError::TurnNotOpen { conversation: id.clone(), turn: turn.0 }));
            }
            Ok(head) => {
                let open = head.open.iter().find(|(open, _)| *open == turn.0);
                (head.number, open.map(|(_, at)| Timestamp::from_micros(*at)))
            }
            Err(error) => return Ok(Err(error)),
        };
        let at = at.or(batch.at).unwrap_or_default();
        let number = after.0 + 1;
        let row = params![
            conversation,
            SqlU64(number),
            SqlU64(turn.0),
            at.as_micros(),
            batch.events,
            batch.replies,
            batch.trace,
            batch.checksum
        ];
        match self.batch_put.execute(row) {
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => {
                return Ok(Err(StoreError::corrupt(
                    id,
                    format!("table batches, version {number}: the row exists, but the head does not list it"),
                )));
            }
            done => done?,
        };
        if let Some(snapshot) = &batch.snapshot {
            self.snapshot_put.execute(params![conversation, SqlU64(number), snapshot.text, snapshot.checksum])?;
        }
        self.put_records(conversation, *turn, &batch.journal)?;
        for body in &batch.texts {
            self.body_put.execute(params![conversation, &*body.hash, at.as_micros(), &*body.text])?;
        }
        if let Some(due) = batch.next_reminder {
            self.set_reminder(conversation, due)?;
        }
        self.heads.change(id, |head| {
            head.version = number;
            head.open.retain(|(open, _)| *open != turn.0);
            head.add_pending(&batch.reply_ids);
            head.touch(at);
        });
        Ok(Ok(WriteResult::Version(Version(number))))
    }

    /// Rare, so its statements are not prepared in advance.
    fn set_reminder(&self, conversation: i64, due: Option<Timestamp>) -> rusqlite::Result<()> {
        match due {
            Some(due) => self.connection.execute(
                "INSERT OR REPLACE INTO timers (conversation, due) VALUES (?1, ?2)",
                params![conversation, due.as_micros()],
            ),
            None => self.connection.execute("DELETE FROM timers WHERE conversation = ?1", [conversation]),
        }
        .map(drop)
    }

    fn mark_delivered(&mut self, id: &ConversationId, replies: &[Arc<str>]) -> Outcome {
        match self.heads.get(id)? {
            Ok(head) => {
                if head.pending.iter().any(|(_, reply)| replies.contains(reply)) {
                    self.heads.change(id, |head| head.pending.retain(|(_, reply)| !replies.contains(reply)));
                }
                Ok(Ok(WriteResult::Nothing))
            }
            Err(reason) => Ok(Err(StoreError::corrupt(id, reason))),
        }
    }
}
