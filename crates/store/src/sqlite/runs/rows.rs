//! Rows of runs: texts with a checksum over the content and the run id, and heads in columns.

use std::{fmt::Display, sync::Arc};

use rusqlite::{Connection, OptionalExtension, Row, ToSql, params};
use segue_base::context::StepKey;
use segue_engine::{
    ids::{ConversationId, QuestionId, RunId},
    time::Timestamp,
};

use crate::{
    JournalRecord,
    checksum::Checksum,
    runs::{
        QuestionBody, RunHead, RunMessage, RunStatus, RunStoreError, RunSummary, Signals, StopRequest, StoredRun,
        StoredRunEvent, StoredUnit, UnitHead, UnitKey, UnitStatus,
    },
    sqlite::{SqlU64, into_store_error},
};

/// Why an operation on rows failed.
pub(super) enum RowError {
    /// It was refused, or the row is corrupt.
    Refused(RunStoreError),
    /// The database failed.
    Database(rusqlite::Error),
}

impl From<RunStoreError> for RowError {
    fn from(error: RunStoreError) -> Self {
        Self::Refused(error)
    }
}

impl From<rusqlite::Error> for RowError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Database(error)
    }
}

impl From<RowError> for RunStoreError {
    fn from(error: RowError) -> Self {
        match error {
            RowError::Refused(error) => error,
            RowError::Database(error) => into_store_error(error).into(),
        }
    }
}

pub(super) type RowResult<T> = Result<T, RowError>;

/// Reports a value of the wrong type as corruption of the run.
pub(super) fn of_run<T>(run: &RunId, table: &str, read: rusqlite::Result<T>) -> RowResult<T> {
    use rusqlite::Error::{FromSqlConversionFailure, IntegralValueOutOfRange, InvalidColumnType, Utf8Error};
    read.map_err(|error| match error {
        FromSqlConversionFailure(..) | IntegralValueOutOfRange(..) | InvalidColumnType(..) | Utf8Error(..) => {
            RunStoreError::corrupt(run, format!("table {table}: {error}")).into()
        }
        error => error.into(),
    })
}

fn verify(run: &RunId, place: impl Display, stored: SqlU64, found: SqlU64) -> RowResult<()> {
    if stored.0 == found.0 {
        Ok(())
    } else {
        Err(RunStoreError::corrupt(run, format!("{place}: the checksum does not match")).into())
    }
}

fn optional(sum: Checksum, text: Option<&str>) -> Checksum {
    sum.number(u64::from(text.is_some())).text(text.unwrap_or_default())
}

fn time(at: Timestamp) -> u64 {
    at.as_micros().cast_unsigned()
}

/// A time in a column.
pub(super) fn micros(at: Option<Timestamp>) -> Option<i64> {
    at.map(Timestamp::as_micros)
}

fn timestamp(row: &Row<'_>, column: &str) -> rusqlite::Result<Timestamp> {
    row.get(column).map(Timestamp::from_micros)
}

fn optional_timestamp(row: &Row<'_>, column: &str) -> rusqlite::Result<Option<Timestamp>> {
    Ok(row.get::<_, Option<i64>>(column)?.map(Timestamp::from_micros))
}

/// A text in a column.
pub(super) fn shared(row: &Row<'_>, column: &str) -> rusqlite::Result<Arc<str>> {
    row.get::<_, String>(column).map(Into::into)
}

fn optional_text(row: &Row<'_>, column: &str) -> rusqlite::Result<Option<Arc<str>>> {
    Ok(row.get::<_, Option<String>>(column)?.map(Into::into))
}

/// A name in a column, as the value that it names.
fn named<T>(row: &Row<'_>, column: &str, value: fn(&str) -> Option<T>) -> rusqlite::Result<T> {
    let name: String = row.get(column)?;
    value(&name).ok_or_else(|| {
        let column = row.as_ref().column_index(column).unwrap_or_default();
        let unknown = format!("unknown value {name:?}");
        rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, unknown.into())
    })
}

/// All rows of a query about one run.
pub(super) fn all<T>(
    connection: &Connection,
    run: &RunId,
    table: &str,
    sql: &str,
    params: impl rusqlite::Params,
    mut read: impl FnMut(&Row<'_>) -> RowResult<T>,
) -> RowResult<Vec<T>> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(params)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(read(row).or_else(|error| match error {
            RowError::Database(error) => of_run(run, table, Err(error)),
            refused @ RowError::Refused(_) => Err(refused),
        })?);
    }
    Ok(found)
}

/// The columns that [`read_run_head`] reads.
pub(super) const RUN_HEAD: &str =
    "runs.status AS run_status, stop, last_seq, last_message, units, runs.updated_at AS run_updated_at, ended_at";

/// The head of a run.
pub(super) fn read_run_head(row: &Row<'_>) -> rusqlite::Result<RunHead> {
    let stop = row.get::<_, Option<String>>("stop")?.map(|_| named(row, "stop", StopRequest::from_name));
    Ok(RunHead {
        status: named(row, "run_status", RunStatus::from_name)?,
        stop: stop.transpose()?,
        last_seq: row.get::<_, SqlU64>("last_seq")?.0,
        last_message: row.get::<_, SqlU64>("last_message")?.0,
        units: row.get::<_, SqlU64>("units")?.0,
        updated_at: timestamp(row, "run_updated_at")?,
        ended_at: optional_timestamp(row, "ended_at")?,
    })
}

/// The number and the head of a run.
pub(super) fn run_head(connection: &Connection, run: &RunId) -> RowResult<Option<(i64, RunHead)>> {
    let sql = format!("SELECT number, {RUN_HEAD} FROM runs WHERE id = ?1");
    let mut statement = connection.prepare_cached(&sql)?;
    let found = statement.query_row([run.as_str()], |row| Ok((row.get("number")?, read_run_head(row)?)));
    of_run(run, "runs", found.optional())
}

/// The columns of a new run after its head.
pub(super) fn run_checksum(run: &StoredRun) -> SqlU64 {
    let summary = &run.summary;
    let sum = Checksum::new(summary.id.as_str()).text(&summary.mission);
    let sum = optional(sum, summary.conversation.as_ref().map(ConversationId::as_str));
    let sum = optional(optional(sum, summary.group.as_deref()), run.idempotency_key.as_deref());
    SqlU64(sum.number(time(summary.started_at)).text(&run.inputs).finish())
}

/// The columns that [`read_summary`] reads.
pub(super) const RUN_SUMMARY: &str = "runs.number, id, mission, conversation, run_group, started_at";

/// A run in short, which the checksum does not cover alone.
pub(super) fn read_summary(row: &Row<'_>) -> rusqlite::Result<RunSummary> {
    let head = read_run_head(row)?;
    Ok(RunSummary {
        id: RunId::new(shared(row, "id")?),
        mission: shared(row, "mission")?,
        conversation: optional_text(row, "conversation")?.map(ConversationId::new),
        group: optional_text(row, "run_group")?,
        status: head.status,
        stop: head.stop,
        last_seq: head.last_seq,
        started_at: timestamp(row, "started_at")?,
        updated_at: head.updated_at,
        ended_at: head.ended_at,
    })
}

/// A run, from the columns of [`RUN_SUMMARY`] and [`RUN_HEAD`], `inputs`, `idempotency_key` and `checksum`.
pub(super) fn read_run(row: &Row<'_>) -> RowResult<StoredRun> {
    let summary = read_summary(row)?;
    let (inputs, idempotency_key) = (shared(row, "inputs")?, optional_text(row, "idempotency_key")?);
    let run = StoredRun { summary, inputs, idempotency_key };
    verify(&run.summary.id, "table runs", row.get("checksum")?, run_checksum(&run))?;
    Ok(run)
}

/// The columns that [`read_unit_head`] reads.
pub(super) const UNIT_HEAD: &str = "run_units.status, epoch, owner, lease_until, wake_at, notified, ready_since,
    messages_seen, run_units.updated_at";

/// The head of a unit.
pub(super) fn read_unit_head(row: &Row<'_>) -> rusqlite::Result<UnitHead> {
    Ok(UnitHead {
        status: named(row, "status", UnitStatus::from_name)?,
        epoch: row.get::<_, SqlU64>("epoch")?.0,
        owner: optional_text(row, "owner")?,
        lease_until: optional_timestamp(row, "lease_until")?,
        wake_at: optional_timestamp(row, "wake_at")?,
        notified: row.get("notified")?,
        ready_since: timestamp(row, "ready_since")?,
        messages_seen: row.get::<_, SqlU64>("messages_seen")?.0,
        updated_at: timestamp(row, "updated_at")?,
    })
}

/// The number and the head of a unit.
pub(super) fn unit_head(
    connection: &Connection,
    run: &RunId,
    number: i64,
    unit: &str,
) -> RowResult<Option<(i64, UnitHead)>> {
    let sql = format!("SELECT number, {UNIT_HEAD} FROM run_units WHERE run = ?1 AND name = ?2");
    let mut statement = connection.prepare_cached(&sql)?;
    let found = statement.query_row(params![number, unit], |row| Ok((row.get("number")?, read_unit_head(row)?)));
    of_run(run, "run_units", found.optional())
}

/// A unit in short, from the columns of [`UNIT_HEAD`], `name` and `created_at`.
pub(super) fn read_unit(run: &RunId, row: &Row<'_>) -> rusqlite::Result<StoredUnit> {
    let head = read_unit_head(row)?;
    Ok(StoredUnit {
        key: UnitKey { run: run.clone(), unit: shared(row, "name")? },
        status: head.status,
        epoch: head.epoch,
        owner: head.owner,
        lease_until: head.lease_until,
        wake_at: head.wake_at,
        created_at: timestamp(row, "created_at")?,
        updated_at: head.updated_at,
    })
}

/// The checksum of the input or the checkpoint of a unit.
pub(super) fn unit_checksum(run: &RunId, unit: &str, text: &str) -> SqlU64 {
    SqlU64(Checksum::new(run.as_str()).text(unit).text(text).finish())
}

/// Decodes the columns `text` and `checksum` of a unit in the named table.
pub(super) fn read_unit_text(run: &RunId, unit: &str, table: &str, row: &Row<'_>) -> RowResult<Arc<str>> {
    let text = of_run(run, table, shared(row, "text"))?;
    let stored = of_run(run, table, row.get("checksum"))?;
    verify(run, format_args!("table {table}, unit {unit}"), stored, unit_checksum(run, unit, &text))?;
    Ok(text)
}

/// The checksum of an event.
pub(super) fn event_checksum(run: &RunId, event: &StoredRunEvent) -> SqlU64 {
    let sum = optional(Checksum::new(run.as_str()).number(event.seq), event.unit.as_deref());
    SqlU64(sum.number(time(event.at)).text(&event.event).finish())
}

/// Decodes an event from the columns `seq`, `unit`, `at`, `event` and `checksum`.
pub(super) fn read_event(run: &RunId, row: &Row<'_>) -> RowResult<StoredRunEvent> {
    let event = StoredRunEvent {
        seq: row.get::<_, SqlU64>("seq")?.0,
        unit: optional_text(row, "unit")?,
        at: timestamp(row, "at")?,
        event: shared(row, "event")?,
    };
    let place = format_args!("table run_events, event {}", event.seq);
    verify(run, place, row.get("checksum")?, event_checksum(run, &event))?;
    Ok(event)
}

/// The checksum of a journal record.
pub(super) fn record_checksum(run: &RunId, unit: &str, record: &JournalRecord) -> SqlU64 {
    let sum = Checksum::new(run.as_str()).text(unit).text(record.key.as_str()).text(&record.kind);
    let sum = optional(sum.text(&record.request), record.outcome.as_deref());
    SqlU64(sum.number(time(record.at)).number(record.build).finish())
}

/// Decodes a journal record from the columns of its row.
pub(super) fn read_record(run: &RunId, unit: &str, row: &Row<'_>) -> RowResult<JournalRecord> {
    let record = JournalRecord {
        key: StepKey::new(shared(row, "step")?),
        kind: shared(row, "kind")?,
        request: shared(row, "request")?,
        outcome: optional_text(row, "outcome")?,
        at: timestamp(row, "at")?,
        build: row.get::<_, SqlU64>("build")?.0,
    };
    let place = format_args!("table run_journal, unit {unit}, step {}", record.key);
    verify(run, place, row.get("checksum")?, record_checksum(run, unit, &record))?;
    Ok(record)
}

/// The checksum of a text under a name: a stored result, or a question.
pub(super) fn named_checksum(run: &RunId, name: &str, text: &str) -> SqlU64 {
    SqlU64(Checksum::new(run.as_str()).text(name).text(text).finish())
}

/// Decodes a stored result from the columns `text` and `checksum`.
pub(super) fn read_blob(run: &RunId, name: &str, row: &Row<'_>) -> RowResult<Arc<str>> {
    let text = shared(row, "text")?;
    let place = format_args!("table run_blobs, {name}");
    verify(run, place, row.get("checksum")?, named_checksum(run, name, &text))?;
    Ok(text)
}

/// Decodes a question from the columns `id`, `question` and `checksum`.
pub(super) fn read_question(run: &RunId, row: &Row<'_>) -> RowResult<(QuestionId, QuestionBody)> {
    let (id, text): (String, String) = (row.get("id")?, row.get("question")?);
    let place = format!("table run_questions, question {id}");
    verify(run, &place, row.get("checksum")?, named_checksum(run, &id, &text))?;
    let body = serde_json::from_str(&text).map_err(|e| RunStoreError::corrupt(run, format!("{place}: {e}")))?;
    Ok((QuestionId::from(id), body))
}

/// One question, with the number of its row.
pub(super) fn question(
    connection: &Connection,
    run: &RunId,
    number: i64,
    id: &QuestionId,
) -> RowResult<Option<(i64, QuestionBody)>> {
    let sql = "SELECT number, id, question, checksum FROM run_questions WHERE run = ?1 AND id = ?2";
    let found = all(connection, run, "run_questions", sql, params![number, id.as_str()], |row| {
        Ok((row.get("number")?, read_question(run, row)?.1))
    })?;
    Ok(found.into_iter().next())
}

/// The checksum of a message.
pub(super) fn message_checksum(run: &RunId, message: &RunMessage, unit: Option<&str>) -> SqlU64 {
    let sum = optional(Checksum::new(run.as_str()).number(message.seq), unit);
    SqlU64(sum.text(&message.id).text(&message.text).number(time(message.at)).finish())
}

/// What a unit was sent and has not acknowledged.
pub(super) fn signals(
    connection: &Connection,
    run: &RunId,
    (number, head): &(i64, RunHead),
    unit: &str,
    unit_head: &UnitHead,
) -> RowResult<Signals> {
    let mut signals = Signals { stop: head.stop, messages: Vec::new() };
    if unit_head.messages_seen < head.last_message {
        let sql = "SELECT seq, message_id, unit, at, text, checksum FROM run_messages
                   WHERE run = ?1 AND seq > ?2 AND (unit IS NULL OR unit = ?3) ORDER BY seq";
        let of_unit: [&dyn ToSql; 3] = [number, &SqlU64(unit_head.messages_seen), &unit];
        signals.messages = all(connection, run, "run_messages", sql, of_unit.as_slice(), |row| {
            let message = RunMessage {
                seq: row.get::<_, SqlU64>("seq")?.0,
                id: shared(row, "message_id")?,
                text: shared(row, "text")?,
                at: timestamp(row, "at")?,
            };
            let checksum = message_checksum(run, &message, optional_text(row, "unit")?.as_deref());
            verify(run, format_args!("table run_messages, message {}", message.seq), row.get("checksum")?, checksum)?;
            Ok(message)
        })?;
    }
    Ok(signals)
}
