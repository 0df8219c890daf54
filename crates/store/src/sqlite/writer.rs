//! The one thread that writes: takes all that waits, commits it in one transaction, then answers everybody.
//!
//! Nobody is answered before the commit. A group that fails as a whole is tried again one by one, so that what is wrong
//! with one does not hurt the others; but not where the file itself is at fault, which would make each of them wait as
//! long as the first.

use std::sync::Arc;

use rusqlite::{Connection, Statement, ffi::ErrorCode, params};
use segue_base::{failpoint, limits};
use segue_engine::{ids::ConversationId, time::Timestamp};
use tokio::sync::{mpsc, oneshot};

use super::{
    Unsigned, failed,
    head_cache::{Head, Heads},
    retention,
    rows::{self, Text},
};
use crate::{JournalRecord, StoreError, StoredText, TurnNumber, Version, dedup};

/// Whether an error concerns the file, and with it whatever is written now; the others concern one job.
fn is_of_the_file(error: &rusqlite::Error) -> bool {
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

/// Work, and where its answer goes.
pub(super) struct Job {
    pub(super) work: Work,
    pub(super) answer: oneshot::Sender<Result<Done, StoreError>>,
}

/// What the writer can do.
pub(super) enum Work {
    Accept {
        id: ConversationId,
        key: Option<String>,
        at: Timestamp,
        message: Text,
    },
    Journal {
        id: ConversationId,
        turn: TurnNumber,
        records: Vec<Record>,
    },
    Append(Box<Appended>),
    /// Replies that the channel has.
    Delivered {
        id: ConversationId,
        replies: Vec<Arc<str>>,
    },
    /// Nothing: what was handed in before is done when this is.
    Wait,
    /// A small write, to see whether writing works.
    Ping,
    /// What was handed in before; then the log goes into the file.
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
    /// Something that nobody thought of.
    #[cfg(test)]
    Break,
}

/// A record of the journal, and its checksum.
pub(super) type Record = (JournalRecord, Unsigned);

/// A batch, encoded.
pub(super) struct Appended {
    pub(super) id: ConversationId,
    pub(super) after: Version,
    pub(super) turn: TurnNumber,
    /// The time of the first event; that of the message counts before it.
    pub(super) at: Option<Timestamp>,
    pub(super) events: String,
    pub(super) replies: String,
    /// Of both.
    pub(super) checksum: Unsigned,
    /// Those that wait for delivery.
    pub(super) reply_ids: Vec<Arc<str>>,
    pub(super) journal: Vec<Record>,
    pub(super) trace: Option<String>,
    pub(super) bodies: Vec<StoredText>,
    /// The time of the earliest reminder, where it has changed.
    pub(super) timer: Option<Option<Timestamp>>,
    pub(super) snapshot: Option<Text>,
}

/// What came of it.
pub(super) enum Done {
    Seen(Seen),
    Version(Version),
    Expired { rows: u64, more: bool },
    Nothing,
}

/// What became of a message.
pub(super) enum Seen {
    New(TurnNumber),
    Open(TurnNumber),
    Answered(TurnNumber),
}

/// The message that has the hash of a new one.
enum Found {
    /// It is the same.
    Same(Seen),
    /// It was the same, too long ago.
    Forgotten,
    /// It is another one.
    Other,
}

/// An outer error spoils the transaction; an inner one concerns the work alone and has changed nothing.
type Outcome = rusqlite::Result<Result<Done, StoreError>>;

/// Writes until nobody can send work any more and none is left.
pub(super) fn run(connection: &Connection, jobs: &mut mpsc::Receiver<Job>) {
    let mut group = Vec::with_capacity(limits::GROUP_COMMIT_MAX);
    if !connection.is_autocommit() {
        // A writer before this one broke down in the middle.
        let _ = connection.execute_batch("ROLLBACK");
    }
    let mut writer = match Writer::new(connection) {
        Ok(writer) => writer,
        Err(error) => {
            let error = failed(&error);
            while let Some(job) = jobs.blocking_recv() {
                let _ = job.answer.send(Err(error.clone()));
            }
            return;
        }
    };
    while jobs.blocking_recv_many(&mut group, limits::GROUP_COMMIT_MAX) > 0 {
        writer.commit_group(&mut group, jobs);
    }
}

struct Writer<'c> {
    connection: &'c Connection,
    heads: Heads<'c>,
    /// SQLite's own number for "somebody else has written".
    data_version: i64,
    begin: Statement<'c>,
    commit: Statement<'c>,
    others: Statement<'c>,
    inbox_put: Statement<'c>,
    inbox_get: Statement<'c>,
    batch_put: Statement<'c>,
    journal_put: Statement<'c>,
    journal_has: Statement<'c>,
    snapshot_put: Statement<'c>,
    body_put: Statement<'c>,
}

impl<'c> Writer<'c> {
    fn new(connection: &'c Connection) -> rusqlite::Result<Self> {
        Ok(Self {
            connection,
            heads: Heads::new(connection)?,
            data_version: 0,
            begin: connection.prepare("BEGIN IMMEDIATE")?,
            commit: connection.prepare("COMMIT")?,
            others: connection.prepare("PRAGMA data_version")?,
            inbox_put: connection.prepare(
                "INSERT INTO inbox (conversation, dedup_hash, turn, at, message, checksum) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
                 ON CONFLICT DO NOTHING",
            )?,
            inbox_get: connection.prepare(&format!(
                "SELECT {}, id FROM inbox WHERE conversation = ?1 AND dedup_hash = ?2",
                rows::MESSAGE
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
            // The time of use decides when it expires; a day (in microseconds) is near enough and saves most writes.
            body_put: connection.prepare(
                "INSERT INTO bodies (conversation, hash, at, body) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT DO UPDATE SET at = excluded.at WHERE excluded.at > bodies.at + 86400000000",
            )?,
        })
    }

    /// Commits all of it, or each alone where one of them is at fault, and answers everybody. Where the file is at fault, those
    /// that came meanwhile get its error too: they have waited as long already. Who comes after the first answer tries anew.
    fn commit_group(&mut self, group: &mut Vec<Job>, jobs: &mut mpsc::Receiver<Job>) {
        let purges = group.iter().any(|job| matches!(job.work, Work::Erase { .. } | Work::Close));
        let mut broken = Ok(());
        let mut outcomes = match self.transact(group) {
            Ok(outcomes) => outcomes,
            Err(error) if !is_of_the_file(&error) && group.len() > 1 => {
                group.iter().map(|job| self.transact_one(job, &mut broken)).collect()
            }
            Err(error) => {
                if is_of_the_file(&error) {
                    broken = Err(failed(&error));
                }
                group.iter().map(|_| Err(failed(&error))).collect()
            }
        };
        if let Err(error) = broken {
            group.extend((0..limits::STORE_QUEUE).map_while(|_| jobs.try_recv().ok()));
            outcomes.resize_with(group.len(), || Err(error.clone()));
        }
        if purges {
            retention::purge_log(self.connection);
        }
        for (Job { work, answer }, outcome) in group.drain(..).zip(outcomes) {
            match (&work, &outcome) {
                (Work::Accept { .. }, Ok(Done::Seen(Seen::New(_)))) => failpoint::hit("C04"),
                (Work::Append(_), Ok(_)) => failpoint::hit("C20"),
                (Work::Delivered { .. }, Ok(_)) => failpoint::hit("C23"),
                // Nobody waits for it.
                (Work::Delivered { id, .. }, Err(error)) => {
                    tracing::warn!(conversation = %id, code = error.code(), "a receipt was not stored: {error}");
                }
                _ => {}
            }
            // Whoever does not wait any more can read what became of it.
            let _ = answer.send(outcome);
        }
    }

    /// Commits one alone, unless the file was at fault before.
    fn transact_one(&mut self, job: &Job, broken: &mut Result<(), StoreError>) -> Result<Done, StoreError> {
        broken.clone()?;
        match self.transact(std::slice::from_ref(job)) {
            Ok(outcomes) => outcomes.into_iter().next().unwrap_or(Ok(Done::Nothing)),
            Err(error) => {
                if is_of_the_file(&error) {
                    *broken = Err(failed(&error));
                }
                Err(failed(&error))
            }
        }
    }

    /// One transaction over all of it: an error means that nothing of it is stored.
    fn transact(&mut self, group: &[Job]) -> rusqlite::Result<Vec<Result<Done, StoreError>>> {
        self.begin.execute([])?;
        let outcomes = self.perform_all(group).and_then(|outcomes| {
            self.commit.execute([])?;
            Ok(outcomes)
        });
        if outcomes.is_err() {
            self.heads.clear();
            // Some errors have rolled back already; then there is nothing left to do.
            let _ = self.connection.execute_batch("ROLLBACK");
        }
        outcomes
    }

    fn perform_all(&mut self, group: &[Job]) -> rusqlite::Result<Vec<Result<Done, StoreError>>> {
        let version = self.others.query_row([], |row| row.get(0))?;
        if version != self.data_version {
            self.data_version = version;
            self.heads.clear();
        }
        let mut outcomes = Vec::with_capacity(group.len());
        for job in group {
            outcomes.push(self.perform(&job.work)?);
        }
        self.heads.flush()?;
        Ok(outcomes)
    }

    fn perform(&mut self, work: &Work) -> Outcome {
        match work {
            Work::Accept { id, key, at, message } => self.accept(id, key.as_deref(), *at, message),
            Work::Journal { id, turn, records } => self.journal(id, *turn, records),
            Work::Append(batch) => self.append(batch),
            Work::Delivered { id, replies } => self.delivered(id, replies),
            Work::Wait | Work::Close => Ok(Ok(Done::Nothing)),
            Work::Ping => {
                let sql = "INSERT INTO progress (name, value) VALUES ('pings', 1)
                           ON CONFLICT (name) DO UPDATE SET value = value + 1";
                self.connection.prepare_cached(sql)?.execute([])?;
                Ok(Ok(Done::Nothing))
            }
            #[cfg(test)]
            #[allow(clippy::panic)]
            Work::Break => panic!("asked to"),
            Work::Erase { id } => {
                self.heads.flush()?;
                self.heads.remove(id);
                retention::erase(self.connection, id)?;
                Ok(Ok(Done::Nothing))
            }
            Work::Expire { now } => {
                self.heads.flush()?;
                let (rows, more) = retention::expire(self.connection, *now)?;
                Ok(Ok(Done::Expired { rows, more }))
            }
            Work::Private { id, name, text, at } => {
                // The conversation may be new in this transaction.
                self.heads.flush()?;
                retention::keep_private(self.connection, id, name, text.as_deref(), *at)?;
                Ok(Ok(Done::Nothing))
            }
        }
    }

    fn accept(&mut self, id: &ConversationId, key: Option<&str>, at: Timestamp, message: &Text) -> Outcome {
        let (number, turn) = match self.heads.get(id)? {
            // Turn 1 says that there is nothing to load: imported batches have no turns.
            Ok(head) => (head.number, head.turns.max(u64::from(head.version > 0)) + 1),
            Err(reason) => return Ok(Err(StoreError::damaged(id, reason))),
        };
        let hash = key.map(|key| Unsigned(dedup::dedup_hash(key)));
        if !self.put_message(number, hash, turn, at, message)? {
            let hash = match self.seen(id, number, key, at)? {
                Ok(Found::Same(seen)) => return Ok(Ok(Done::Seen(seen))),
                Ok(Found::Forgotten) => hash,
                Ok(Found::Other) => None,
                Err(error) => return Ok(Err(error)),
            };
            self.put_message(number, hash, turn, at, message)?;
        }
        self.heads.change(id, |head| {
            head.turns = turn;
            head.open.push((turn, at.as_micros()));
            head.touch(at);
        });
        Ok(Ok(Done::Seen(Seen::New(TurnNumber(turn)))))
    }

    /// False when there is a message of this hash already.
    fn put_message(
        &mut self,
        conversation: i64,
        hash: Option<Unsigned>,
        turn: u64,
        at: Timestamp,
        message: &Text,
    ) -> rusqlite::Result<bool> {
        let row = params![conversation, hash, Unsigned(turn), at.as_micros(), message.text, message.checksum];
        Ok(self.inbox_put.execute(row)? > 0)
    }

    /// What the message is that has the hash of this key. When it is too long ago to be the same one, the hash is free
    /// afterwards.
    fn seen(
        &mut self,
        id: &ConversationId,
        number: i64,
        key: Option<&str>,
        now: Timestamp,
    ) -> rusqlite::Result<Result<Found, StoreError>> {
        let hash = key.map(|key| Unsigned(dedup::dedup_hash(key)));
        let found = self
            .inbox_get
            .query_row(params![number, hash], |row| Ok((rows::read_message(id, row)?, row.get::<_, i64>(3)?)))?;
        let (turn, earlier, row) = match found {
            (Ok((turn, earlier)), row) => (turn, earlier, row),
            (Err(error), _) => return Ok(Err(error)),
        };
        if dedup::dedup_key(&earlier).as_deref() != key {
            return Ok(Ok(Found::Other));
        }
        if self.heads.get(id)?.is_ok_and(|head| head.is_open(turn)) {
            return Ok(Ok(Found::Same(Seen::Open(TurnNumber(turn)))));
        }
        if !dedup::is_past_dedup_window(earlier.at, now) {
            return Ok(Ok(Found::Same(Seen::Answered(TurnNumber(turn)))));
        }
        self.connection.execute("UPDATE inbox SET dedup_hash = NULL WHERE id = ?1", [row])?;
        Ok(Ok(Found::Forgotten))
    }

    fn journal(&mut self, id: &ConversationId, turn: TurnNumber, records: &[Record]) -> Outcome {
        let (number, is_open) = match self.accepted(id, turn)? {
            Ok(head) => (head.number, head.is_open(turn.0)),
            Err(error) => return Ok(Err(error)),
        };
        if !is_open {
            // Another run of the turn has ended it: nothing may leave any more, and its record stays what its events were made of.
            return Ok(Err(StoreError::NotAccepted { conversation: id.clone(), turn: turn.0 }));
        }
        for (intent, _) in records.iter().filter(|(record, _)| record.is_intent()) {
            let step = params![number, Unsigned(turn.0), intent.key.as_str(), Unsigned(intent.build)];
            if self.journal_has.exists(step)? {
                return Ok(Err(StoreError::AlreadyBegun { turn: turn.0, key: intent.key.clone() }));
            }
        }
        self.put_records(number, turn, records)?;
        Ok(Ok(Done::Nothing))
    }

    fn put_records(&mut self, conversation: i64, turn: TurnNumber, records: &[Record]) -> rusqlite::Result<()> {
        for (record, checksum) in records {
            self.journal_put.execute(params![
                conversation,
                Unsigned(turn.0),
                record.key.as_str(),
                record.kind,
                record.request,
                record.outcome,
                record.at.as_micros(),
                Unsigned(record.build),
                checksum
            ])?;
        }
        Ok(())
    }

    /// The head of a conversation in which this turn was accepted.
    fn accepted(&mut self, id: &ConversationId, turn: TurnNumber) -> rusqlite::Result<Result<&Head, StoreError>> {
        Ok(match self.heads.get(id)? {
            Ok(head) if turn.0 <= head.turns => Ok(head),
            Ok(_) => Err(StoreError::NotAccepted { conversation: id.clone(), turn: turn.0 }),
            Err(reason) => Err(StoreError::damaged(id, reason)),
        })
    }

    fn append(&mut self, batch: &Appended) -> Outcome {
        let Appended { id, after, turn, .. } = batch;
        let (conversation, at) = match self.accepted(id, *turn)? {
            Ok(head) if head.version != after.0 => {
                return Ok(Err(StoreError::Conflict { expected: *after, found: Version(head.version) }));
            }
            Ok(head) if turn.0 > 0 && !head.is_open(turn.0) => {
                return Ok(Err(StoreError::NotAccepted { conversation: id.clone(), turn: turn.0 }));
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
            Unsigned(number),
            Unsigned(turn.0),
            at.as_micros(),
            batch.events,
            batch.replies,
            batch.trace,
            batch.checksum
        ];
        match self.batch_put.execute(row) {
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => {
                return Ok(Err(StoreError::damaged(
                    id,
                    format!("table batches, version {number}: the row is there, and the head says it is not"),
                )));
            }
            done => done?,
        };
        if let Some(snapshot) = &batch.snapshot {
            self.snapshot_put.execute(params![conversation, Unsigned(number), snapshot.text, snapshot.checksum])?;
        }
        self.put_records(conversation, *turn, &batch.journal)?;
        for body in &batch.bodies {
            self.body_put.execute(params![conversation, &*body.hash, at.as_micros(), &*body.text])?;
        }
        if let Some(due) = batch.timer {
            self.set_timer(conversation, due)?;
        }
        self.heads.change(id, |head| {
            head.version = number;
            head.open.retain(|(open, _)| *open != turn.0);
            head.wait_for(&batch.reply_ids);
            head.touch(at);
        });
        Ok(Ok(Done::Version(Version(number))))
    }

    /// Rare, so its statements are not kept ready.
    fn set_timer(&self, conversation: i64, due: Option<Timestamp>) -> rusqlite::Result<()> {
        match due {
            Some(due) => self.connection.execute(
                "INSERT OR REPLACE INTO timers (conversation, due) VALUES (?1, ?2)",
                params![conversation, due.as_micros()],
            ),
            None => self.connection.execute("DELETE FROM timers WHERE conversation = ?1", [conversation]),
        }
        .map(drop)
    }

    fn delivered(&mut self, id: &ConversationId, replies: &[Arc<str>]) -> Outcome {
        match self.heads.get(id)? {
            Ok(head) => {
                if head.pending.iter().any(|(_, reply)| replies.contains(reply)) {
                    self.heads.change(id, |head| head.pending.retain(|(_, reply)| !replies.contains(reply)));
                }
                Ok(Ok(Done::Nothing))
            }
            Err(reason) => Ok(Err(StoreError::damaged(id, reason))),
        }
    }
}
