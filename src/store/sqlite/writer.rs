//! The one thread that writes: takes all that waits, commits it in one transaction, then answers everybody.
//!
//! Nobody is answered before the commit. A group that fails as a whole is tried again one by one, so that what is wrong
//! with one does not hurt the others.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, Statement, ffi::ErrorCode, params};
use segue_engine::{ids::ConversationId, time::Timestamp};
use tokio::sync::{mpsc, oneshot};

use super::{
    Unsigned, driver,
    heads::{Head, Heads},
    maintain,
};
use crate::{
    failpoint, limits,
    store::{Body, JournalRecord, StoreError, TurnNumber, Version, inbox},
};

/// Work, and where its answer goes.
pub(super) struct Job {
    pub(super) work: Work,
    pub(super) answer: oneshot::Sender<Result<Done, StoreError>>,
}

/// What the writer can do.
pub(super) enum Work {
    Accept { id: ConversationId, key: Option<String>, at: Timestamp, packed: Vec<u8> },
    Journal { id: ConversationId, turn: TurnNumber, records: Vec<JournalRecord> },
    Append(Box<Appended>),
    Delivered { id: ConversationId, replies: Vec<Arc<str>> },
    Erase { id: ConversationId },
    Expire { now: Timestamp },
}

/// A batch, encoded.
pub(super) struct Appended {
    pub(super) id: ConversationId,
    pub(super) after: Version,
    pub(super) turn: TurnNumber,
    pub(super) also: Vec<TurnNumber>,
    /// The time of the first event; that of the message counts before it.
    pub(super) at: Option<Timestamp>,
    pub(super) events: Vec<u8>,
    pub(super) replies: Option<Vec<u8>>,
    pub(super) reply_ids: Vec<Arc<str>>,
    pub(super) journal: Option<Vec<u8>>,
    pub(super) trace: Option<String>,
    pub(super) bodies: Vec<Body>,
    pub(super) snapshot: Option<Vec<u8>>,
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

/// An outer error spoils the transaction; an inner one concerns the work alone and has changed nothing.
type Outcome = rusqlite::Result<Result<Done, StoreError>>;

/// Writes until nobody can send work any more and none is left.
pub(super) fn run(connection: &Connection, mut jobs: mpsc::Receiver<Job>) {
    let mut group = Vec::with_capacity(limits::STORE_GROUP);
    let mut writer = match Writer::new(connection) {
        Ok(writer) => writer,
        Err(error) => {
            let error = driver(error);
            while let Some(job) = jobs.blocking_recv() {
                let _ = job.answer.send(Err(error.clone()));
            }
            return;
        }
    };
    while jobs.blocking_recv_many(&mut group, limits::STORE_GROUP) > 0 {
        writer.commit_group(&mut group);
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
                "INSERT INTO inbox (conversation, key, turn, at, packed) VALUES (?1, ?2, ?3, ?4, ?5)
                 ON CONFLICT DO NOTHING",
            )?,
            inbox_get: connection.prepare("SELECT turn, at FROM inbox WHERE conversation = ?1 AND key = ?2")?,
            batch_put: connection.prepare(
                "INSERT INTO batches (conversation, version, turn, also, at, events, replies, journal, trace)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            )?,
            // An intent never replaces an outcome.
            journal_put: connection.prepare(
                "INSERT INTO journal (conversation, turn, step, kind, request, outcome, at, build)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
                 ON CONFLICT DO UPDATE SET kind = excluded.kind, request = excluded.request,
                 outcome = excluded.outcome, at = excluded.at, build = excluded.build
                 WHERE excluded.outcome IS NOT NULL OR journal.outcome IS NULL",
            )?,
            snapshot_put: connection
                .prepare("INSERT OR REPLACE INTO snapshots (conversation, version, snapshot) VALUES (?1, ?2, ?3)")?,
            // The time of use decides when it expires; a day (in microseconds) is near enough and saves most writes.
            body_put: connection.prepare(
                "INSERT INTO bodies (conversation, hash, at, body) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT DO UPDATE SET at = excluded.at WHERE excluded.at > bodies.at + 86400000000",
            )?,
        })
    }

    /// Commits all of it, or each alone where that fails, and answers everybody.
    fn commit_group(&mut self, group: &mut Vec<Job>) {
        let erases = group.iter().any(|job| matches!(job.work, Work::Erase { .. }));
        let outcomes = match self.transact(group) {
            Ok(outcomes) => outcomes,
            Err(_) if group.len() > 1 => group.iter().map(|job| self.transact_one(job)).collect(),
            Err(error) => vec![Err(driver(error))],
        };
        if erases {
            maintain::purge_log(self.connection);
        }
        for (job, outcome) in group.drain(..).zip(outcomes) {
            match (&job.work, &outcome) {
                (Work::Accept { .. }, Ok(Done::Seen(Seen::New(_)))) => failpoint::hit("C04"),
                (Work::Append(_), Ok(_)) => failpoint::hit("C20"),
                _ => {}
            }
            // Whoever does not wait any more can read what became of it.
            let _ = job.answer.send(outcome);
        }
    }

    fn transact_one(&mut self, job: &Job) -> Result<Done, StoreError> {
        let outcomes = self.transact(std::slice::from_ref(job)).map_err(driver)?;
        outcomes.into_iter().next().unwrap_or(Ok(Done::Nothing))
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
            Work::Accept { id, key, at, packed } => self.accept(id, key.as_deref(), *at, packed),
            Work::Journal { id, turn, records } => self.journal(id, *turn, records),
            Work::Append(batch) => self.append(batch),
            Work::Delivered { id, replies } => self.delivered(id, replies),
            Work::Erase { id } => {
                self.heads.flush()?;
                self.heads.remove(id);
                maintain::erase(self.connection, id)?;
                Ok(Ok(Done::Nothing))
            }
            Work::Expire { now } => {
                self.heads.flush()?;
                let (rows, more) = maintain::expire(self.connection, *now)?;
                Ok(Ok(Done::Expired { rows, more }))
            }
        }
    }

    fn accept(&mut self, id: &ConversationId, key: Option<&str>, at: Timestamp, packed: &[u8]) -> Outcome {
        let (number, turn) = match self.heads.get(id)? {
            Ok(head) => (head.number, head.turns + 1),
            Err(reason) => return Ok(Err(StoreError::damaged(id, reason))),
        };
        // A key made of a message begins with a digit: none is like this one.
        let own;
        let key = match key {
            Some(key) => key,
            None => {
                own = format!("#{turn}");
                &own
            }
        };
        let row = params![number, key, Unsigned(turn), at.as_micros(), packed];
        if self.inbox_put.execute(row)? == 0 {
            if let Some(seen) = self.seen(id, number, key, at)? {
                return Ok(Ok(Done::Seen(seen)));
            }
            self.inbox_put.execute(row)?;
        }
        self.heads.change(id, |head| {
            head.turns = turn;
            head.open.push((turn, at.as_micros()));
            head.touch(at);
        });
        Ok(Ok(Done::Seen(Seen::New(TurnNumber(turn)))))
    }

    /// What became of the message that has this key; `None` when that is too long ago to be the same one, in which case
    /// its key is free now.
    fn seen(&mut self, id: &ConversationId, number: i64, key: &str, now: Timestamp) -> rusqlite::Result<Option<Seen>> {
        let row = self.inbox_get.query_row(params![number, key], |row| Ok((row.get(0)?, row.get(1)?)));
        let Some((Unsigned(turn), at)) = row.optional()? else { return Ok(None) };
        if self.heads.get(id)?.is_ok_and(|head| head.is_open(turn)) {
            return Ok(Some(Seen::Open(TurnNumber(turn))));
        }
        if !inbox::is_forgotten(Timestamp::from_micros(at), now) {
            return Ok(Some(Seen::Answered(TurnNumber(turn))));
        }
        let sql = "UPDATE inbox SET key = '#' || turn WHERE conversation = ?1 AND key = ?2";
        self.connection.execute(sql, params![number, key])?;
        Ok(None)
    }

    fn journal(&mut self, id: &ConversationId, turn: TurnNumber, records: &[JournalRecord]) -> Outcome {
        let number = match self.accepted(id, turn)? {
            Ok(head) => head.number,
            Err(error) => return Ok(Err(error)),
        };
        for record in records {
            self.journal_put.execute(params![
                number,
                Unsigned(turn.0),
                record.key.as_str(),
                &*record.kind,
                &*record.request,
                record.outcome.as_deref(),
                record.at.as_micros(),
                Unsigned(record.build),
            ])?;
        }
        Ok(Ok(Done::Nothing))
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
            Ok(head) => {
                let open = head.open.iter().find(|(open, _)| *open == turn.0);
                (head.number, open.map(|(_, at)| Timestamp::from_micros(*at)))
            }
            Err(error) => return Ok(Err(error)),
        };
        let at = at.or(batch.at).unwrap_or_default();
        let number = after.0 + 1;
        let also = (!batch.also.is_empty()).then(|| serde_json::to_string(&batch.also).unwrap_or_default());
        let row = params![
            conversation,
            Unsigned(number),
            Unsigned(turn.0),
            also,
            at.as_micros(),
            batch.events,
            batch.replies,
            batch.journal,
            batch.trace
        ];
        match self.batch_put.execute(row) {
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => {
                return Ok(Err(StoreError::damaged(
                    id,
                    format!("batch {number} is there, and its head says it is not"),
                )));
            }
            done => done?,
        };
        if let Some(snapshot) = &batch.snapshot {
            self.snapshot_put.execute(params![conversation, Unsigned(number), snapshot])?;
        }
        for body in &batch.bodies {
            self.body_put.execute(params![conversation, &*body.hash, at.as_micros(), &*body.text])?;
        }
        self.heads.change(id, |head| {
            head.version = number;
            head.open.retain(|(open, _)| *open != turn.0 && !batch.also.contains(&TurnNumber(*open)));
            head.wait_for(&batch.reply_ids);
            head.touch(at);
        });
        Ok(Ok(Done::Version(Version(number))))
    }

    fn delivered(&mut self, id: &ConversationId, replies: &[Arc<str>]) -> Outcome {
        match self.heads.get(id)? {
            Ok(head) if head.pending.iter().any(|(_, reply)| replies.contains(reply)) => {
                self.heads.change(id, |head| head.pending.retain(|(_, reply)| !replies.contains(reply)));
                Ok(Ok(Done::Nothing))
            }
            Ok(_) => Ok(Ok(Done::Nothing)),
            Err(reason) => Ok(Err(StoreError::damaged(id, reason))),
        }
    }
}
