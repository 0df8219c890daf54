//! Writes of runs. The writer thread performs them.
//!
//! Each operation runs in a savepoint: if it is refused, nothing of it is stored, and the other operations of its transaction are not
//! affected.

use std::{sync::Arc, time::Duration};

use rusqlite::{Connection, OptionalExtension, params};
use segue_base::limits;
use segue_engine::{
    ids::{ConversationId, RunId},
    time::Timestamp,
};

use super::rows::{self, RowError, RowResult, micros, of_run};
use crate::{
    runs::{
        ClaimRequest, LimitReached, LimitScope, NewRun, NewUnit, Overflow, QuestionBody, QuestionReply, ReplyOutcome,
        RunAdmission, RunBatch, RunHead, RunLimits, RunMessage, RunStatus, RunStoreError, RunSummary, Signal,
        SignalOutcome, Signals, StartOutcome, StoredRun, StoredRunEvent, UnitBatch, UnitHead, UnitKey,
        check_message_count, check_unit_count, lease_end, longest_lease,
    },
    sqlite::SqlU64,
};

/// Rows per transaction of the purge, so that other writes do not wait long.
const ROWS_PER_TRANSACTION: usize = 500;

/// The tables with rows of runs, by the name of the column that refers to the run.
const TABLES_OF_RUNS: [&str; 7] =
    ["run_events", "run_journal", "run_checkpoints", "run_blobs", "run_questions", "run_messages", "run_units"];

/// An operation of the writer.
pub(in crate::sqlite) enum RunOperation {
    Start(NewRun),
    /// Lets a queued run begin unless a limit is reached.
    Admit {
        run: RunId,
        limits: RunLimits,
        at: Timestamp,
    },
    Claim(ClaimRequest),
    Append(UnitBatch),
    AppendRun(RunBatch),
    Renew {
        unit: UnitKey,
        epoch: u64,
        until: Timestamp,
    },
    Release {
        unit: UnitKey,
        epoch: u64,
        at: Timestamp,
    },
    Reply {
        reply: QuestionReply,
    },
    Signal {
        run: RunId,
        signal: Signal,
        at: Timestamp,
    },
    /// Deletes some rows of runs that ended before a time, and of erased ones.
    Purge {
        before: Option<Timestamp>,
    },
    /// Makes the runs of a conversation unreadable; the purge deletes them.
    Erase {
        conversation: ConversationId,
    },
}

/// The result of an operation.
pub(in crate::sqlite) enum RunResult {
    Started(StartOutcome),
    Admitted(RunAdmission),
    Claimed(Vec<(UnitKey, u64)>),
    LastSeq(u64),
    Signals(Signals),
    Replied(ReplyOutcome),
    Signalled(SignalOutcome),
    Purged { runs: Vec<RunId>, more: bool },
    Released,
}

/// Performs an operation. An outer error fails the transaction; after an inner one the operation has changed nothing.
pub(in crate::sqlite) fn perform(
    connection: &Connection,
    work: &RunOperation,
) -> rusqlite::Result<Result<RunResult, RunStoreError>> {
    connection.prepare_cached("SAVEPOINT run")?.execute([])?;
    match perform_unguarded(connection, work) {
        Ok(done) => {
            connection.prepare_cached("RELEASE run")?.execute([])?;
            Ok(Ok(done))
        }
        Err(RowError::Refused(error)) => {
            connection.execute_batch("ROLLBACK TO run; RELEASE run")?;
            Ok(Err(error))
        }
        Err(RowError::Database(error)) => Err(error),
    }
}

fn perform_unguarded(connection: &Connection, work: &RunOperation) -> RowResult<RunResult> {
    Ok(match work {
        RunOperation::Start(run) => RunResult::Started(start(connection, run)?),
        RunOperation::Admit { run, limits, at } => RunResult::Admitted(admit(connection, run, *limits, *at)?),
        RunOperation::Claim(request) => RunResult::Claimed(claim(connection, request)?),
        RunOperation::Append(batch) => RunResult::LastSeq(append(connection, batch)?),
        RunOperation::AppendRun(batch) => RunResult::LastSeq(append_run(connection, batch)?),
        RunOperation::Renew { unit, epoch, until } => {
            let mut held = HeldUnit::find(connection, unit, *epoch)?;
            held.head.lease_until = Some(*until);
            held.put(connection)?;
            RunResult::Signals(rows::signals(connection, &unit.run, &held.run, &unit.unit, &held.head)?)
        }
        RunOperation::Release { unit, epoch, at } => {
            let mut held = HeldUnit::find(connection, unit, *epoch)?;
            held.head.release(*at);
            held.put(connection)?;
            RunResult::Released
        }
        RunOperation::Reply { reply } => RunResult::Replied(self::reply(connection, reply)?),
        RunOperation::Signal { run, signal, at } => RunResult::Signalled(self::signal(connection, run, signal, *at)?),
        RunOperation::Purge { before } => {
            let (runs, more) = purge(connection, *before)?;
            RunResult::Purged { runs, more }
        }
        RunOperation::Erase { conversation } => {
            RunResult::Purged { runs: erase(connection, conversation)?, more: true }
        }
    })
}

/// A unit that is held with the epoch of the caller.
struct HeldUnit {
    run: (i64, RunHead),
    number: i64,
    head: UnitHead,
}

impl HeldUnit {
    fn find(connection: &Connection, unit: &UnitKey, epoch: u64) -> RowResult<Self> {
        let fenced = || RowError::from(RunStoreError::Fenced { unit: unit.clone(), epoch });
        let run = rows::run_head(connection, &unit.run)?.ok_or_else(fenced)?;
        let (number, head) = rows::unit_head(connection, &unit.run, run.0, &unit.unit)?.ok_or_else(fenced)?;
        if head.is_held(&run.1, epoch) { Ok(Self { run, number, head }) } else { Err(fenced()) }
    }

    fn put(&self, connection: &Connection) -> rusqlite::Result<()> {
        put_unit(connection, self.number, &self.head, &self.run.1)
    }
}

fn put_unit(connection: &Connection, number: i64, head: &UnitHead, run: &RunHead) -> rusqlite::Result<()> {
    let due = head.due(run);
    let sql = "UPDATE run_units SET status = ?2, epoch = ?3, owner = ?4, lease_until = ?5, wake_at = ?6, notified = ?7,
                   ready_since = ?8, messages_seen = ?9, due = ?10, timed = ?11, updated_at = ?12 WHERE number = ?1";
    let columns = params![
        number,
        head.status.name(),
        SqlU64(head.epoch),
        head.owner,
        micros(head.lease_until),
        micros(head.wake_at),
        head.notified,
        head.ready_since.as_micros(),
        SqlU64(head.messages_seen),
        due.map(|due| due.at.as_micros()),
        due.is_none_or(|due| due.timed),
        head.updated_at.as_micros()
    ];
    connection.prepare_cached(sql)?.execute(columns).map(drop)
}

fn put_run(connection: &Connection, (number, head): &(i64, RunHead)) -> rusqlite::Result<()> {
    let sql = "UPDATE runs SET status = ?2, stop = ?3, last_seq = ?4, last_message = ?5, units = ?6, updated_at = ?7,
                   ended_at = ?8 WHERE number = ?1";
    let columns = params![
        number,
        head.status.name(),
        head.stop.map(crate::runs::StopRequest::name),
        SqlU64(head.last_seq),
        SqlU64(head.last_message),
        SqlU64(head.units),
        head.updated_at.as_micros(),
        micros(head.ended_at)
    ];
    connection.prepare_cached(sql)?.execute(columns).map(drop)
}

/// Changes all units of a run that have not ended.
fn change_units(
    connection: &Connection,
    run: &RunId,
    (number, head): &(i64, RunHead),
    mut change: impl FnMut(&mut UnitHead),
) -> RowResult<()> {
    let sql = format!(
        "SELECT number, {} FROM run_units
         WHERE run = ?1 AND status NOT IN ('completed', 'failed', 'cancelled') ORDER BY number",
        rows::UNIT_HEAD
    );
    let units = rows::all(connection, run, "run_units", &sql, [number], |row| {
        Ok((row.get::<_, i64>("number")?, rows::read_unit_head(row)?))
    })?;
    for (unit, mut unit_head) in units {
        change(&mut unit_head);
        put_unit(connection, unit, &unit_head, head)?;
    }
    Ok(())
}

fn start(connection: &Connection, run: &NewRun) -> RowResult<StartOutcome> {
    if let Some(key) = &run.idempotency_key {
        let sql = "SELECT id FROM runs WHERE mission = ?1 AND idempotency_key = ?2";
        let first = connection.prepare_cached(sql)?.query_row(params![run.mission, key], |row| rows::shared(row, "id"));
        if let Some(first) = of_run(&run.id, "runs", first.optional())? {
            return Ok(StartOutcome::Existing(RunId::new(first)));
        }
    }
    if connection.prepare_cached("SELECT 1 FROM runs WHERE id = ?1")?.exists([run.id.as_str()])? {
        return Ok(StartOutcome::Existing(run.id.clone()));
    }
    let full = limit_reached(connection, run.limits, &run.id, &run.mission, run.group.as_ref())?;
    if let Some(full) = full.filter(|_| run.overflow == Overflow::Refuse) {
        return Ok(StartOutcome::Full(full));
    }
    let head = RunHead::new(run.queued || full.is_some(), run.at);
    let stored = StoredRun {
        summary: RunSummary {
            id: run.id.clone(),
            mission: run.mission.clone(),
            conversation: run.conversation.clone(),
            group: run.group.clone(),
            status: head.status,
            stop: None,
            last_seq: 0,
            started_at: run.at,
            updated_at: run.at,
            ended_at: None,
        },
        inputs: run.inputs.clone(),
        idempotency_key: run.idempotency_key.clone(),
    };
    let sql = "INSERT INTO runs (id, mission, conversation, run_group, idempotency_key, status, last_seq, last_message, units,
                   started_at, updated_at, inputs, checksum) VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0, 0, 0, ?7, ?7, ?8, ?9)";
    let columns = params![
        run.id.as_str(),
        run.mission,
        run.conversation.as_ref().map(ConversationId::as_str),
        run.group,
        run.idempotency_key,
        head.status.name(),
        run.at.as_micros(),
        run.inputs,
        rows::run_checksum(&stored)
    ];
    let number = connection.prepare_cached(sql)?.insert(columns)?;
    let mut started = (number, head);
    add_events(connection, &run.id, &mut started, None, &run.events, run.at)?;
    add_units(connection, &run.id, &mut started, &run.units, run.at)?;
    put_run(connection, &started)?;
    Ok(full.map_or(StartOutcome::New, StartOutcome::Queued))
}

/// The limit that other runs keep this one from running by, if there is one.
fn limit_reached(
    connection: &Connection,
    limits: RunLimits,
    id: &RunId,
    mission: &str,
    group: Option<&Arc<str>>,
) -> rusqlite::Result<Option<LimitReached>> {
    let counting: Vec<&str> =
        RunStatus::ALL.into_iter().filter(|status| status.counts_for_limits()).map(RunStatus::name).collect();
    let counting = serde_json::to_string(&counting).unwrap_or_default();
    limits.reached(|scope| {
        let (column, name) = match (scope, group) {
            (LimitScope::Mission, _) => ("mission", mission),
            (LimitScope::Group, Some(group)) => ("run_group", &**group),
            (LimitScope::Group, None) => return Ok(0),
        };
        let sql = format!(
            "SELECT count(*) FROM runs WHERE {column} = ?1 AND id IS NOT NULL AND id <> ?2
                 AND status IN (SELECT value FROM json_each(?3))"
        );
        let count = connection.prepare_cached(&sql)?.query_row(params![name, id.as_str(), counting], |row| row.get(0));
        count.map(|count: SqlU64| count.0)
    })
}

fn admit(connection: &Connection, id: &RunId, limits: RunLimits, at: Timestamp) -> RowResult<RunAdmission> {
    let mut run = rows::run_head(connection, id)?.ok_or_else(|| RunStoreError::UnknownRun(id.clone()))?;
    if run.1.status != RunStatus::Queued {
        return Ok(RunAdmission::Admitted);
    }
    let sql = "SELECT mission, run_group FROM runs WHERE number = ?1";
    let names = connection.prepare_cached(sql)?.query_row([run.0], |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, Option<String>>(1)?.map(Arc::<str>::from)))
    });
    let (mission, group) = of_run(id, "runs", names)?;
    if let Some(full) = limit_reached(connection, limits, id, &mission, group.as_ref())? {
        return Ok(RunAdmission::Queued(full));
    }
    run.1.updated_at = at;
    let changes =
        RunChanges { new_units: &[], wake: &[], wake_ended: false, cancel: &[], status: Some(RunStatus::Running), at };
    changes.apply(connection, id, run)?;
    Ok(RunAdmission::Admitted)
}

fn add_events(
    connection: &Connection,
    run: &RunId,
    (number, head): &mut (i64, RunHead),
    unit: Option<&Arc<str>>,
    events: &[Arc<str>],
    at: Timestamp,
) -> RowResult<()> {
    head.updated_at = at;
    let sql = "INSERT INTO run_events (run, seq, unit, at, event, checksum) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    let mut put = connection.prepare_cached(sql)?;
    for event in events {
        head.last_seq += 1;
        let event = StoredRunEvent { seq: head.last_seq, unit: unit.cloned(), at, event: event.clone() };
        let checksum = rows::event_checksum(run, &event);
        let columns = params![*number, SqlU64(event.seq), event.unit, at.as_micros(), event.event, checksum];
        put.execute(columns).map_err(|error| match error.sqlite_error_code() {
            Some(rusqlite::ErrorCode::ConstraintViolation) => RowError::from(RunStoreError::corrupt(
                run,
                format!("table run_events, event {}: the row exists, but the run does not count it", event.seq),
            )),
            _ => error.into(),
        })?;
    }
    Ok(())
}

fn add_units(
    connection: &Connection,
    run: &RunId,
    (number, head): &mut (i64, RunHead),
    units: &[NewUnit],
    at: Timestamp,
) -> RowResult<()> {
    if units.is_empty() {
        return Ok(());
    }
    let sql =
        "INSERT INTO run_units (run, name, status, epoch, wake_at, notified, ready_since, messages_seen, due, timed,
                   created_at, updated_at, input, checksum)
               VALUES (?1, ?2, ?3, 0, ?4, 0, ?5, ?6, ?7, ?8, ?5, ?5, ?9, ?10) ON CONFLICT DO NOTHING";
    let mut put = connection.prepare_cached(sql)?;
    let before = head.units;
    for unit in units {
        let new = UnitHead::new(head, unit.wake_at, at);
        let due = new.due(head);
        let columns = params![
            *number,
            unit.name,
            new.status.name(),
            micros(unit.wake_at),
            at.as_micros(),
            SqlU64(new.messages_seen),
            due.map(|due| due.at.as_micros()),
            due.is_none_or(|due| due.timed),
            unit.input,
            rows::unit_checksum(run, &unit.name, &unit.input)
        ];
        head.units += put.execute(columns)? as u64;
    }
    if head.units > before { Ok(check_unit_count(run, head.units)?) } else { Ok(()) }
}

/// The query for units that can be claimed at the time `?1`, of all runs or only of the run `?2`.
pub(super) fn claim_query(of_run: bool) -> String {
    due_query("(timed = 0 OR due <= ?1)", of_run)
}

/// The query for units whose time is after `?1`, of all runs or only of the run `?2`.
pub(super) fn later_query(of_run: bool) -> String {
    due_query("due > ?1", of_run)
}

fn due_query(time: &str, of_run: bool) -> String {
    let selected = if of_run { "run_units.run = ?2" } else { "?2 IS NULL" };
    format!(
        "SELECT run_units.number, name, runs.id, {}, {} FROM run_units JOIN runs ON runs.number = run_units.run
         WHERE due IS NOT NULL AND {time} AND {selected} ORDER BY due, run_units.number",
        rows::UNIT_HEAD,
        rows::RUN_HEAD
    )
}

/// A unit that may be claimed, with the number of its row.
type OpenUnit = (i64, UnitKey, UnitHead, RunHead);

/// At most `limit` units that a query selects and `fits` accepts.
fn open_units(
    connection: &Connection,
    sql: &str,
    time: Timestamp,
    run: Option<i64>,
    limit: usize,
    fits: impl Fn(&UnitHead) -> bool,
) -> RowResult<Vec<OpenUnit>> {
    let mut open = Vec::new();
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(params![time.as_micros(), run])?;
    while open.len() < limit {
        let Some(row) = rows.next()? else { break };
        let read = || -> rusqlite::Result<_> {
            let key = UnitKey { run: RunId::new(rows::shared(row, "id")?), unit: rows::shared(row, "name")? };
            Ok((row.get::<_, i64>("number")?, key, rows::read_unit_head(row)?, rows::read_run_head(row)?))
        };
        match read() {
            Ok(unit) if fits(&unit.2) => open.push(unit),
            Ok(_) => {}
            // It must not prevent that other units are claimed.
            Err(error) => {
                tracing::warn!(code = "S0102", "a unit of a run is not claimed because its row is corrupt: {error}");
            }
        }
    }
    Ok(open)
}

fn claim(connection: &Connection, request: &ClaimRequest) -> RowResult<Vec<(UnitKey, u64)>> {
    let only = match &request.run {
        Some(run) => match rows::run_head(connection, run)? {
            Some((number, _)) => Some(number),
            None => return Ok(Vec::new()),
        },
        None => None,
    };
    let (of_run, limit) = (only.is_some(), request.limit.min(limits::RUN_CLAIMS));
    // Where all owners live, only leases that cannot be true are looked at: usually none.
    let after = if request.gone.is_empty() { longest_lease(request.now, request.lease) } else { request.now };
    let abandoned = |unit: &UnitHead| unit.is_abandoned(request);
    for (number, _, mut head, run) in open_units(connection, &later_query(of_run), after, only, limit, abandoned)? {
        head.release(request.now);
        put_unit(connection, number, &head, &run)?;
    }
    let open = open_units(connection, &claim_query(of_run), request.now, only, limit, |_| true)?;
    let until = lease_end(request.now, request.lease);
    let mut claimed = Vec::with_capacity(open.len());
    for (number, key, mut head, run) in open {
        head.claim(&request.owner, request.now, until);
        put_unit(connection, number, &head, &run)?;
        claimed.push((key, head.epoch));
    }
    Ok(claimed)
}

fn append(connection: &Connection, batch: &UnitBatch) -> RowResult<u64> {
    let UnitKey { run: id, unit } = &batch.unit;
    let HeldUnit { mut run, number, mut head } = HeldUnit::find(connection, &batch.unit, batch.epoch)?;
    run.1.check_after(id, batch.after)?;
    put_records(connection, batch, run.0, number)?;
    let sql = "INSERT INTO run_blobs (run, name, text, checksum) VALUES (?1, ?2, ?3, ?4)
               ON CONFLICT (run, name) DO UPDATE SET text = excluded.text, checksum = excluded.checksum";
    for blob in &batch.blobs {
        let checksum = rows::named_checksum(id, &blob.id, &blob.text);
        connection.prepare_cached(sql)?.execute(params![run.0, blob.id, blob.text, checksum])?;
    }
    let settled = ask(connection, batch, run.0)?;
    head.apply(batch, settled, run.1.last_message);
    put_unit(connection, number, &head, &run.1)?;
    add_events(connection, id, &mut run, Some(unit), &batch.events, batch.at)?;
    let changes = RunChanges {
        new_units: &batch.new_units,
        wake: &batch.wake_units,
        wake_ended: false,
        cancel: &batch.cancel_units,
        status: batch.run_status,
        at: batch.at,
    };
    changes.apply(connection, id, run)
}

/// Stores journal records, and the checkpoint, which replaces them.
fn put_records(connection: &Connection, batch: &UnitBatch, run: i64, number: i64) -> RowResult<()> {
    let UnitKey { run: id, unit } = &batch.unit;
    let mut has =
        connection.prepare_cached("SELECT 1 FROM run_journal WHERE unit = ?1 AND step = ?2 AND build = ?3")?;
    for record in &batch.records {
        let known = record.is_intent() && has.exists(params![number, record.key.as_str(), SqlU64(record.build)])?;
        if known {
            return Err(RunStoreError::StepAlreadyStarted { unit: batch.unit.clone(), key: record.key.clone() }.into());
        }
    }
    let Some(checkpoint) = &batch.checkpoint else {
        let sql = "INSERT INTO run_journal (run, unit, step, kind, request, outcome, at, build, checksum)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
        let mut put = connection.prepare_cached(sql)?;
        for record in &batch.records {
            put.execute(params![
                run,
                number,
                record.key.as_str(),
                record.kind,
                record.request,
                record.outcome,
                record.at.as_micros(),
                SqlU64(record.build),
                rows::record_checksum(id, unit, record)
            ])?;
        }
        return Ok(());
    };
    connection.prepare_cached("DELETE FROM run_journal WHERE unit = ?1")?.execute([number])?;
    let sql = "INSERT OR REPLACE INTO run_checkpoints (unit, run, checkpoint, checksum) VALUES (?1, ?2, ?3, ?4)";
    let checksum = rows::unit_checksum(id, unit, checkpoint);
    connection.prepare_cached(sql)?.execute(params![number, run, checkpoint, checksum])?;
    Ok(())
}

/// Stores and closes the questions of a batch. Returns whether one that it asks needs no answer any more.
fn ask(connection: &Connection, batch: &UnitBatch, run: i64) -> RowResult<bool> {
    let UnitKey { run: id, unit } = &batch.unit;
    let mut settled = false;
    for new in &batch.questions {
        if let Some((number, mut body)) = rows::question(connection, id, run, &new.id)? {
            settled |= body.ask_again(unit);
            put_question(connection, id, number, new.id.as_str(), &body)?;
            continue;
        }
        let body = QuestionBody::new(unit.clone(), new.question.clone(), batch.at);
        let sql = "INSERT INTO run_questions (run, id, unit, open, question, checksum) VALUES (?1, ?2, '', 0, '', 0)";
        let number = connection.prepare_cached(sql)?.insert(params![run, new.id.as_str()])?;
        put_question(connection, id, number, new.id.as_str(), &body)?;
    }
    for closed in &batch.close_questions {
        if let Some((number, mut body)) = rows::question(connection, id, run, closed)? {
            body.close(batch.at);
            put_question(connection, id, number, closed.as_str(), &body)?;
        }
    }
    Ok(settled)
}

fn put_question(connection: &Connection, run: &RunId, number: i64, id: &str, body: &QuestionBody) -> RowResult<()> {
    let text = serde_json::to_string(body).map_err(|e| RunStoreError::corrupt(run, e))?;
    let sql = "UPDATE run_questions SET unit = ?2, open = ?3, question = ?4, checksum = ?5 WHERE number = ?1";
    let checksum = rows::named_checksum(run, id, &text);
    connection.prepare_cached(sql)?.execute(params![number, body.unit, body.is_open(), text, checksum])?;
    Ok(())
}

/// What a batch changes in the units and the status of its run.
struct RunChanges<'b> {
    new_units: &'b [NewUnit],
    wake: &'b [Arc<str>],
    /// Whether also units that have failed or were cancelled are woken.
    wake_ended: bool,
    cancel: &'b [Arc<str>],
    status: Option<RunStatus>,
    at: Timestamp,
}

impl RunChanges<'_> {
    /// Makes the changes and stores the run. Returns the number of its last event.
    fn apply(&self, connection: &Connection, id: &RunId, mut run: (i64, RunHead)) -> RowResult<u64> {
        add_units(connection, id, &mut run, self.new_units, self.at)?;
        for name in self.wake {
            self.change(connection, id, &run, name, |unit| unit.wake(self.wake_ended, self.at))?;
        }
        for name in self.cancel {
            self.change(connection, id, &run, name, |unit| unit.cancel(self.at))?;
        }
        if let Some(status) = self.status {
            run.1.set_status(status, self.at);
            change_units(connection, id, &run, |unit| {
                if status.is_ended() {
                    unit.revoke(self.at);
                }
            })?;
        }
        put_run(connection, &run)?;
        Ok(run.1.last_seq)
    }

    fn change(
        &self,
        connection: &Connection,
        id: &RunId,
        run: &(i64, RunHead),
        name: &str,
        change: impl FnOnce(&mut UnitHead),
    ) -> RowResult<()> {
        if let Some((number, mut head)) = rows::unit_head(connection, id, run.0, name)? {
            change(&mut head);
            put_unit(connection, number, &head, &run.1)?;
        }
        Ok(())
    }
}

fn append_run(connection: &Connection, batch: &RunBatch) -> RowResult<u64> {
    let id = &batch.run;
    let mut run = rows::run_head(connection, id)?.ok_or_else(|| RunStoreError::UnknownRun(id.clone()))?;
    run.1.check_change(batch)?;
    if batch.resume {
        run.1.resume();
        change_units(connection, id, &run, |_| {})?;
    }
    add_events(connection, id, &mut run, None, &batch.events, batch.at)?;
    let changes = RunChanges {
        new_units: &batch.new_units,
        wake: &batch.wake_units,
        wake_ended: batch.resume,
        cancel: &batch.cancel_units,
        status: batch.status,
        at: batch.at,
    };
    changes.apply(connection, id, run)
}

fn reply(connection: &Connection, reply: &QuestionReply) -> RowResult<ReplyOutcome> {
    let (id, question) = (&reply.question.run, &reply.question.id);
    let unknown = || RunStoreError::UnknownQuestion { run: id.clone(), question: question.clone() };
    let mut run = rows::run_head(connection, id)?.ok_or_else(unknown)?;
    let (number, mut body) = rows::question(connection, id, run.0, question)?.ok_or_else(unknown)?;
    let (outcome, changed) = body.reply(reply, run.1.status);
    if changed {
        put_question(connection, id, number, question.as_str(), &body)?;
        add_events(connection, id, &mut run, None, &reply.events, reply.at)?;
        put_run(connection, &run)?;
        if let Some((unit, mut head)) = rows::unit_head(connection, id, run.0, &body.unit)? {
            head.wake(false, reply.at);
            put_unit(connection, unit, &head, &run.1)?;
        }
    }
    Ok(outcome)
}

fn signal(connection: &Connection, id: &RunId, signal: &Signal, at: Timestamp) -> RowResult<SignalOutcome> {
    let mut run = rows::run_head(connection, id)?.ok_or_else(|| RunStoreError::UnknownRun(id.clone()))?;
    if let Some(refused) = run.1.refuse_signal() {
        return Ok(refused);
    }
    run.1.request_stop(signal);
    run.1.updated_at = at;
    let Signal::Message { id: message, unit, text } = signal else {
        put_run(connection, &run)?;
        change_units(connection, id, &run, |unit| unit.wake(false, at))?;
        return Ok(SignalOutcome::Accepted);
    };
    let sql = "SELECT 1 FROM run_messages WHERE run = ?1 AND message_id = ?2";
    if connection.prepare_cached(sql)?.exists(params![run.0, message])? {
        return Ok(SignalOutcome::Accepted);
    }
    let only = match unit {
        Some(unit) => {
            let unknown = || RunStoreError::UnknownUnit(UnitKey { run: id.clone(), unit: unit.clone() });
            Some(rows::unit_head(connection, id, run.0, unit)?.ok_or_else(unknown)?)
        }
        None => None,
    };
    run.1.last_message += 1;
    check_message_count(id, run.1.last_message)?;
    let stored = RunMessage { seq: run.1.last_message, id: message.clone(), text: text.clone(), at };
    let sql =
        "INSERT INTO run_messages (run, seq, message_id, unit, at, text, checksum) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    let checksum = rows::message_checksum(id, &stored, unit.as_deref());
    let columns = params![run.0, SqlU64(stored.seq), message, unit, at.as_micros(), text, checksum];
    connection.prepare_cached(sql)?.execute(columns)?;
    put_run(connection, &run)?;
    match only {
        Some((number, mut head)) => {
            head.wake(false, at);
            put_unit(connection, number, &head, &run.1)?;
        }
        None => change_units(connection, id, &run, |unit| unit.wake(false, at))?,
    }
    Ok(SignalOutcome::Accepted)
}

/// Makes a run unreadable. Its rows are deleted later, some at a time.
const DETACH: &str =
    "UPDATE runs SET id = NULL, idempotency_key = NULL, conversation = NULL, inputs = '' WHERE number = ?1";

fn erase(connection: &Connection, conversation: &ConversationId) -> RowResult<Vec<RunId>> {
    let sql = "SELECT number, id FROM runs WHERE conversation = ?1 AND id IS NOT NULL";
    let runs: rusqlite::Result<Vec<(i64, RunId)>> =
        connection.prepare_cached(sql)?.query_map([conversation.as_str()], numbered_run)?.collect();
    let runs = runs?;
    for (run, _) in &runs {
        connection.prepare_cached(DETACH)?.execute([run])?;
        connection
            .prepare_cached("UPDATE run_units SET due = NULL WHERE run = ?1 AND due IS NOT NULL")?
            .execute([run])?;
    }
    Ok(runs.into_iter().map(|(_, id)| id).collect())
}

/// Deletes some rows. Returns which runs became unreadable, and whether there may be more rows.
fn purge(connection: &Connection, before: Option<Timestamp>) -> RowResult<(Vec<RunId>, bool)> {
    let (mut runs, mut rows) = (Vec::new(), 0);
    while rows < ROWS_PER_TRANSACTION {
        let sql = "SELECT number FROM runs WHERE id IS NULL LIMIT 1";
        let detached = connection.prepare_cached(sql)?.query_row([], |row| row.get::<_, i64>(0)).optional()?;
        let run = match detached {
            Some(run) => run,
            None => {
                let Some(before) = before else { return Ok((runs, false)) };
                // Jobs stay until their conversation is erased.
                let sql = "SELECT number, id FROM runs WHERE ended_at < ?1 AND mission NOT GLOB '@*'
                           ORDER BY ended_at LIMIT 1";
                let ended = connection.prepare_cached(sql)?.query_row([before.as_micros()], numbered_run);
                let Some((run, id)) = ended.optional()? else { return Ok((runs, false)) };
                connection.prepare_cached(DETACH)?.execute([run])?;
                runs.push(id);
                run
            }
        };
        let start = rows;
        for table in TABLES_OF_RUNS {
            let left = ROWS_PER_TRANSACTION.saturating_sub(rows);
            let sql = format!("DELETE FROM {table} WHERE rowid IN (SELECT rowid FROM {table} WHERE run = ?1 LIMIT ?2)");
            rows += connection.prepare_cached(&sql)?.execute(params![run, SqlU64(left as u64)])?;
        }
        if rows < ROWS_PER_TRANSACTION {
            connection.prepare_cached("DELETE FROM runs WHERE number = ?1")?.execute([run])?;
            rows += 1;
        }
        debug_assert!(rows > start, "every round deletes something");
    }
    Ok((runs, true))
}

/// The columns `number` and `id` of a run.
fn numbered_run(row: &rusqlite::Row<'_>) -> rusqlite::Result<(i64, RunId)> {
    Ok((row.get(0)?, RunId::new(row.get::<_, String>(1)?)))
}

/// The time before which a run must have ended to be purged.
pub(super) fn purge_limit(now: Timestamp, older_than: Duration) -> Timestamp {
    let older_than = i64::try_from(older_than.as_micros()).unwrap_or(i64::MAX);
    Timestamp::from_micros(now.as_micros().saturating_sub(older_than))
}
