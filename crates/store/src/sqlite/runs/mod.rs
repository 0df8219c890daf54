//! Runs in the SQLite file of conversations: the same writer thread, the same connections for reads.

mod read;
mod rows;
mod write;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use rusqlite::Connection;
use segue_base::failpoint;
use segue_engine::{
    ids::{ConversationId, RunId},
    time::Timestamp,
};

pub(super) use self::write::{RunOperation, RunResult, perform};
use self::{rows::RowResult, write::purge_limit};
use super::{
    SqliteStore,
    writer::{WriteOperation, WriteResult},
    wrong_result_kind,
};
use crate::runs::{
    ClaimRequest, ClaimedUnit, NewRun, QuestionFilter, QuestionKey, QuestionReply, ReplyOutcome, RunAdmission,
    RunBatch, RunCounts, RunFilter, RunLimits, RunStore, RunStoreError, RunSummary, Signal, SignalOutcome, Signals,
    StartOutcome, StoredQuestion, StoredRun, StoredRunEvent, StoredUnit, UnitBatch, UnitContent, UnitKey, check_batch,
    check_reply, check_run, check_run_batch, check_signal, lease_end,
};

type RunStoreResult<T> = Result<T, RunStoreError>;

impl SqliteStore {
    /// Sends an operation on runs to the writer and waits for its commit.
    async fn write_run(&self, work: RunOperation) -> RunStoreResult<RunResult> {
        match self.write(WriteOperation::Run(Box::new(work))).await? {
            WriteResult::Run(done) => done.map(|done| *done).map_err(|error| *error),
            _ => Err(wrong_result_kind().into()),
        }
    }

    /// Reads in one transaction.
    async fn read_run<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Connection) -> RowResult<T> + Send + 'static,
    ) -> RunStoreResult<T> {
        self.read(move |connection| Ok(read::in_transaction(connection, || look(connection)))).await?
    }

    async fn claim_units(&self, request: ClaimRequest) -> RunStoreResult<Vec<ClaimedUnit>> {
        let lease_until = lease_end(request.now, request.lease);
        let RunResult::Claimed(claimed) = self.write_run(RunOperation::Claim(request)).await? else {
            return Err(wrong_result_kind().into());
        };
        if claimed.is_empty() {
            return Ok(Vec::new());
        }
        failpoint::hit("run_claimed");
        // Outside the writer, because it may be much. If another owner claims a unit meanwhile, writes with this epoch are refused.
        let read = move |connection: &Connection| {
            let mut units = Vec::with_capacity(claimed.len());
            for (key, epoch) in claimed {
                let content = match read::in_transaction(connection, || read::content(connection, &key)) {
                    // The run was erased meanwhile.
                    Ok(None) => continue,
                    Ok(Some(content)) => Ok(content),
                    Err(RunStoreError::Store(error)) => return Err(error),
                    Err(error) => Err(error),
                };
                units.push(ClaimedUnit { key, epoch, lease_until, content });
            }
            Ok(units)
        };
        Ok(self.read(read).await?)
    }

    async fn last_seq(&self, work: RunStoreResult<RunOperation>) -> RunStoreResult<u64> {
        let work = work?;
        failpoint::hit("run_append_ready");
        failpoint::hit_named(|| format!("run_append_ready {}", last_event(&work)));
        let done = self.write_run(work).await?;
        failpoint::hit("run_append_done");
        match done {
            RunResult::LastSeq(seq) => Ok(seq),
            _ => Err(wrong_result_kind().into()),
        }
    }

    async fn reply(&self, reply: QuestionReply) -> RunStoreResult<ReplyOutcome> {
        check_reply(&reply)?;
        match self.write_run(RunOperation::Reply { reply }).await? {
            RunResult::Replied(outcome) => Ok(outcome),
            _ => Err(wrong_result_kind().into()),
        }
    }

    /// Deletes rows until none are left: of runs that ended before a time, and of erased ones.
    async fn purge(&self, before: Option<Timestamp>) -> RunStoreResult<Vec<RunId>> {
        let mut gone = Vec::new();
        loop {
            // In small transactions, so that no other write waits long.
            match self.write_run(RunOperation::Purge { before }).await? {
                RunResult::Purged { runs, more } => {
                    gone.extend(runs);
                    if !more {
                        return Ok(gone);
                    }
                }
                _ => return Err(wrong_result_kind().into()),
            }
        }
    }

    async fn erase_runs_of(&self, conversation: ConversationId) -> RunStoreResult<Vec<RunId>> {
        let RunResult::Purged { runs, .. } = self.write_run(RunOperation::Erase { conversation }).await? else {
            return Err(wrong_result_kind().into());
        };
        if !runs.is_empty() {
            self.purge(None).await?;
            // Nothing of them stays in the write-ahead log.
            self.write(WriteOperation::Close).await?;
        }
        Ok(runs)
    }
}

#[async_trait]
impl RunStore for SqliteStore {
    async fn start_run(&self, run: NewRun) -> RunStoreResult<StartOutcome> {
        check_run(&run)?;
        match self.write_run(RunOperation::Start(run)).await? {
            RunResult::Started(outcome) => Ok(outcome),
            _ => Err(wrong_result_kind().into()),
        }
    }
    async fn admit(&self, run: &RunId, limits: RunLimits, at: Timestamp) -> RunStoreResult<RunAdmission> {
        let work = RunOperation::Admit { run: run.clone(), limits, at };
        match self.write_run(work).await? {
            RunResult::Admitted(admission) => Ok(admission),
            _ => Err(wrong_result_kind().into()),
        }
    }
    async fn run(&self, run: &RunId) -> RunStoreResult<Option<StoredRun>> {
        let run = run.clone();
        self.read_run(move |connection| read::run(connection, &run)).await
    }
    async fn summary(&self, run: &RunId) -> RunStoreResult<Option<RunSummary>> {
        let run = run.clone();
        self.read_run(move |connection| read::summary(connection, &run)).await
    }
    async fn runs(&self, filter: RunFilter, limit: usize) -> RunStoreResult<Vec<RunSummary>> {
        self.read_run(move |connection| read::runs(connection, &filter, limit)).await
    }
    async fn events(&self, run: &RunId, after: u64, limit: usize) -> RunStoreResult<Vec<StoredRunEvent>> {
        let run = run.clone();
        self.read_run(move |connection| read::events(connection, &run, after, limit)).await
    }
    async fn units(&self, run: &RunId) -> RunStoreResult<Vec<StoredUnit>> {
        let run = run.clone();
        self.read_run(move |connection| read::units(connection, &run)).await
    }
    async fn unit(&self, unit: &UnitKey) -> RunStoreResult<Option<UnitContent>> {
        let unit = unit.clone();
        self.read_run(move |connection| read::content(connection, &unit)).await
    }
    async fn claim(&self, request: ClaimRequest) -> RunStoreResult<Vec<ClaimedUnit>> {
        self.claim_units(request).await
    }
    async fn append(&self, batch: UnitBatch) -> RunStoreResult<u64> {
        let work = check_batch(&batch).map(|()| RunOperation::Append(batch));
        self.last_seq(work).await
    }
    async fn append_run(&self, batch: RunBatch) -> RunStoreResult<u64> {
        let work = check_run_batch(&batch).map(|()| RunOperation::AppendRun(batch));
        self.last_seq(work).await
    }
    async fn renew(&self, unit: &UnitKey, epoch: u64, until: Timestamp) -> RunStoreResult<Signals> {
        let work = RunOperation::Renew { unit: unit.clone(), epoch, until };
        match self.write_run(work).await? {
            RunResult::Signals(signals) => Ok(signals),
            _ => Err(wrong_result_kind().into()),
        }
    }
    async fn release(&self, unit: &UnitKey, epoch: u64, at: Timestamp) -> RunStoreResult<()> {
        let work = RunOperation::Release { unit: unit.clone(), epoch, at };
        self.write_run(work).await.map(drop)
    }
    async fn blob(&self, run: &RunId, id: &str) -> RunStoreResult<Option<Arc<str>>> {
        let (run, id) = (run.clone(), id.to_owned());
        self.read_run(move |connection| read::blob(connection, &run, &id)).await
    }
    async fn questions(&self, filter: QuestionFilter, limit: usize) -> RunStoreResult<Vec<StoredQuestion>> {
        self.read_run(move |connection| read::questions(connection, &filter, limit)).await
    }
    async fn question(&self, question: &QuestionKey) -> RunStoreResult<Option<StoredQuestion>> {
        let question = question.clone();
        self.read_run(move |connection| read::question(connection, &question)).await
    }
    async fn answer(&self, reply: QuestionReply) -> RunStoreResult<ReplyOutcome> {
        self.reply(reply).await
    }
    async fn signal(&self, run: &RunId, signal: Signal, at: Timestamp) -> RunStoreResult<SignalOutcome> {
        let work = check_signal(run, &signal).map(|()| RunOperation::Signal { run: run.clone(), signal, at });
        match self.write_run(work?).await? {
            RunResult::Signalled(outcome) => Ok(outcome),
            _ => Err(wrong_result_kind().into()),
        }
    }
    async fn next_wake(&self) -> RunStoreResult<Option<Timestamp>> {
        self.read_run(read::next_wake).await
    }
    async fn counts(&self, now: Timestamp) -> RunStoreResult<RunCounts> {
        self.read_run(move |connection| read::counts(connection, now)).await
    }
    async fn purge_runs(&self, now: Timestamp, older_than: Duration) -> RunStoreResult<Vec<RunId>> {
        self.purge(Some(purge_limit(now, older_than))).await
    }
    async fn erase_runs(&self, conversation: &ConversationId) -> RunStoreResult<Vec<RunId>> {
        self.erase_runs_of(conversation.clone()).await
    }
}

/// The task and the kind of the last event that an operation adds, for names of failpoints.
fn last_event(work: &RunOperation) -> String {
    let events = match work {
        RunOperation::Append(batch) => &batch.events,
        RunOperation::AppendRun(batch) => &batch.events,
        _ => return String::new(),
    };
    let Some(last) = events.last() else { return "nothing".to_owned() };
    let event: serde_json::Value = serde_json::from_str(last).unwrap_or_default();
    let text = |key| event.get(key).and_then(serde_json::Value::as_str);
    format!("{} {}", text("task").unwrap_or("run"), text("event").unwrap_or_default())
}

#[cfg(test)]
mod tests;
