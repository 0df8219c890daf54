//! Reads of runs. Each function sees one consistent state of the file.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, ToSql, named_params, params};
use segue_base::limits;
use segue_engine::{
    ids::{ConversationId, RunId},
    time::Timestamp,
};

use super::rows::{self, RowError, RowResult, of_run};
use crate::{
    merge_journal,
    runs::{
        QuestionFilter, QuestionKey, RunCounts, RunFilter, RunHead, RunStatus, RunStoreError, RunSummary,
        StoredQuestion, StoredRun, StoredRunEvent, StoredUnit, UnitContent, UnitKey,
    },
    sqlite::SqlU64,
};

/// Runs `look` in one read transaction.
pub(super) fn in_transaction<T>(
    connection: &Connection,
    look: impl FnOnce() -> RowResult<T>,
) -> Result<T, RunStoreError> {
    let transaction = connection.unchecked_transaction().map_err(RowError::from)?;
    let found = look();
    transaction.finish().map_err(RowError::from)?;
    Ok(found?)
}

fn sql_limit(limit: usize, most: usize) -> SqlU64 {
    SqlU64(limit.min(most) as u64)
}

pub(super) fn run(connection: &Connection, id: &RunId) -> RowResult<Option<StoredRun>> {
    let sql = format!(
        "SELECT {}, {}, inputs, idempotency_key, checksum FROM runs WHERE id = ?1",
        rows::RUN_SUMMARY,
        rows::RUN_HEAD
    );
    Ok(rows::all(connection, id, "runs", &sql, [id.as_str()], rows::read_run)?.into_iter().next())
}

pub(super) fn summary(connection: &Connection, id: &RunId) -> RowResult<Option<RunSummary>> {
    let sql = format!("SELECT {}, {} FROM runs WHERE id = ?1", rows::RUN_SUMMARY, rows::RUN_HEAD);
    let mut statement = connection.prepare_cached(&sql)?;
    of_run(id, "runs", statement.query_row([id.as_str()], rows::read_summary).optional())
}

pub(super) fn runs(connection: &Connection, filter: &RunFilter, limit: usize) -> RowResult<Vec<RunSummary>> {
    let statuses: Vec<&str> = filter.statuses.iter().map(|status| status.name()).collect();
    let statuses = serde_json::to_string(&statuses).unwrap_or_default();
    let conversation = filter.conversation.as_ref().map(ConversationId::as_str);
    // Only conditions that are asked for, so that each can use its index.
    let mut sql = format!("SELECT {}, {} FROM runs WHERE id IS NOT NULL", rows::RUN_SUMMARY, rows::RUN_HEAD);
    let limit = sql_limit(limit, limits::RUNS_LISTED);
    let mut values: Vec<(&str, &dyn ToSql)> = vec![(":limit", &limit)];
    // The last character that there is: no id that begins with the prefix is above the two together.
    let in_range = "id >= :id_prefix AND id <= :id_prefix || char(1114111)";
    let conditions: [(bool, &str, &str, &dyn ToSql); 6] = [
        (filter.id_prefix.is_some(), ":id_prefix", in_range, &filter.id_prefix),
        (filter.mission.is_some(), ":mission", "mission = :mission", &filter.mission),
        (conversation.is_some(), ":conversation", "conversation = :conversation", &conversation),
        (filter.idempotency_key.is_some(), ":key", "idempotency_key = :key", &filter.idempotency_key),
        (filter.group.is_some(), ":group", "run_group = :group", &filter.group),
        (!filter.statuses.is_empty(), ":statuses", "status IN (SELECT value FROM json_each(:statuses))", &statuses),
    ];
    for (_, name, condition, value) in conditions.into_iter().filter(|(asked, ..)| *asked) {
        sql.push_str(" AND ");
        sql.push_str(condition);
        values.push((name, value));
    }
    if filter.without_jobs {
        sql.push_str(" AND mission NOT GLOB '@*'");
    }
    sql.push_str(" ORDER BY runs.number DESC LIMIT :limit");
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query(values.as_slice())?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        // A row whose id is no text belongs to no run.
        let Ok(id) = rows::shared(row, "id").map(RunId::new) else { continue };
        found.push(of_run(&id, "runs", rows::read_summary(row))?);
    }
    Ok(found)
}

pub(super) fn events(connection: &Connection, id: &RunId, after: u64, limit: usize) -> RowResult<Vec<StoredRunEvent>> {
    let Some((number, head)) = rows::run_head(connection, id)? else { return Ok(Vec::new()) };
    if after >= head.last_seq {
        return Ok(Vec::new());
    }
    let sql = "SELECT seq, unit, at, event, checksum FROM run_events WHERE run = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3";
    let limit = sql_limit(limit, limits::RUN_EVENTS_READ);
    let params = params![number, SqlU64(after), limit];
    let found = rows::all(connection, id, "run_events", sql, params, |row| rows::read_event(id, row))?;
    let expected = (head.last_seq - after).min(limit.0);
    let missing = found.iter().map(|event| event.seq).zip(after + 1..).find(|(found, expected)| found != expected);
    let missing = missing.map(|(_, expected)| expected);
    let missing = missing.or((found.len() as u64 != expected).then_some(after + found.len() as u64 + 1));
    match missing {
        Some(seq) => {
            Err(RunStoreError::corrupt(id, format!("table run_events, event {seq}: the row is missing")).into())
        }
        None => Ok(found),
    }
}

pub(super) fn units(connection: &Connection, id: &RunId) -> RowResult<Vec<StoredUnit>> {
    let Some((number, _)) = rows::run_head(connection, id)? else { return Ok(Vec::new()) };
    let sql = format!("SELECT name, created_at, {} FROM run_units WHERE run = ?1 ORDER BY number", rows::UNIT_HEAD);
    rows::all(connection, id, "run_units", &sql, [number], |row| Ok(rows::read_unit(id, row)?))
}

pub(super) fn content(connection: &Connection, key: &UnitKey) -> RowResult<Option<UnitContent>> {
    let UnitKey { run: id, unit: name } = key;
    let Some(run) = rows::run_head(connection, id)? else { return Ok(None) };
    let Some((number, head)) = rows::unit_head(connection, id, run.0, name)? else { return Ok(None) };
    let text = |table: &str, sql: &str| {
        let found = rows::all(connection, id, table, sql, [number], |row| rows::read_unit_text(id, name, table, row))?;
        RowResult::Ok(found.into_iter().next())
    };
    let input = text("run_units", "SELECT input AS text, checksum FROM run_units WHERE number = ?1")?;
    let checkpoint =
        text("run_checkpoints", "SELECT checkpoint AS text, checksum FROM run_checkpoints WHERE unit = ?1")?;
    let sql = "SELECT step, kind, request, outcome, at, build, checksum FROM run_journal WHERE unit = ?1 ORDER BY id";
    let written = rows::all(connection, id, "run_journal", sql, [number], |row| rows::read_record(id, name, row))?;
    let mut records = Vec::new();
    merge_journal(&mut records, written);
    let sql = "SELECT id, question, checksum FROM run_questions WHERE run = ?1 AND unit = ?2 ORDER BY number";
    let questions = rows::all(connection, id, "run_questions", sql, params![run.0, name], |row| {
        let (question, body) = rows::read_question(id, row)?;
        Ok(body.stored(QuestionKey { run: id.clone(), id: question }, run.1.status))
    })?;
    let signals = rows::signals(connection, id, &run, name, &head)?;
    Ok(Some(UnitContent { input: input.unwrap_or_default(), checkpoint, records, questions, signals }))
}

pub(super) fn blob(connection: &Connection, id: &RunId, name: &str) -> RowResult<Option<Arc<str>>> {
    let Some((number, _)) = rows::run_head(connection, id)? else { return Ok(None) };
    let sql = "SELECT text, checksum FROM run_blobs WHERE run = ?1 AND name = ?2";
    let found =
        rows::all(connection, id, "run_blobs", sql, params![number, name], |row| rows::read_blob(id, name, row))?;
    Ok(found.into_iter().next())
}

pub(super) fn question(connection: &Connection, key: &QuestionKey) -> RowResult<Option<StoredQuestion>> {
    let Some((number, head)) = rows::run_head(connection, &key.run)? else { return Ok(None) };
    let found = rows::question(connection, &key.run, number, &key.id)?;
    Ok(found.map(|(_, body)| body.stored(key.clone(), head.status)))
}

pub(super) fn questions(
    connection: &Connection,
    filter: &QuestionFilter,
    limit: usize,
) -> RowResult<Vec<StoredQuestion>> {
    let number = match &filter.run {
        Some(run) => match rows::run_head(connection, run)? {
            Some((number, _)) => Some(number),
            None => return Ok(Vec::new()),
        },
        None => None,
    };
    let selected = if number.is_some() { "run_questions.run = :run" } else { ":run IS NULL" };
    let open = if filter.open { " AND open = 1 AND ended_at IS NULL" } else { "" };
    let sql = format!(
        "SELECT runs.id AS run_id, run_questions.id, question, run_questions.checksum, {} FROM run_questions
         JOIN runs ON runs.number = run_questions.run WHERE runs.id IS NOT NULL AND {selected}{open}
         ORDER BY run_questions.number LIMIT :limit",
        rows::RUN_HEAD
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let limit = sql_limit(limit, limits::RUNS_LISTED);
    let mut rows = statement.query(named_params! {":run": number, ":limit": limit})?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let Ok(run) = rows::shared(row, "run_id").map(RunId::new) else { continue };
        let read = || RowResult::Ok((rows::read_run_head(row)?, rows::read_question(&run, row)?));
        let (head, (id, body)): (RunHead, _) = match read() {
            Err(RowError::Database(error)) => of_run(&run, "run_questions", Err(error))?,
            read => read?,
        };
        found.push(body.stored(QuestionKey { run, id }, head.status));
    }
    Ok(found)
}

pub(super) fn next_wake(connection: &Connection) -> RowResult<Option<Timestamp>> {
    let sql = "SELECT min(due) FROM run_units WHERE due IS NOT NULL";
    let due: Option<i64> = connection.prepare_cached(sql)?.query_row([], |row| row.get(0))?;
    Ok(due.map(Timestamp::from_micros))
}

pub(super) fn counts(connection: &Connection, now: Timestamp) -> RowResult<RunCounts> {
    let mut counts = RunCounts::default();
    for status in RunStatus::ALL {
        let sql = "SELECT count(*) FROM runs WHERE status = ?1 AND id IS NOT NULL AND mission NOT GLOB '@*'";
        let SqlU64(count) = connection.prepare_cached(sql)?.query_row([status.name()], |row| row.get(0))?;
        counts.runs.extend((count > 0).then_some((status, count)));
    }
    let sql = "SELECT
                   coalesce(sum(NOT claimed AND is_due), 0), coalesce(sum(claimed), 0),
                   coalesce(sum(claimed AND is_due), 0), coalesce(sum(NOT claimed AND NOT is_due), 0)
               FROM (SELECT run_units.status = 'claimed' AS claimed,
                            due IS NOT NULL AND (timed = 0 OR due <= ?1) AS is_due
                     FROM run_units JOIN runs ON runs.number = run_units.run
                     WHERE runs.id IS NOT NULL AND runs.ended_at IS NULL AND mission NOT GLOB '@*'
                           AND run_units.status NOT IN ('completed', 'failed', 'cancelled'))";
    (counts.ready_units, counts.claimed_units, counts.expired_leases, counts.waiting_units) =
        connection.prepare_cached(sql)?.query_row([now.as_micros()], |row| {
            let count = |column| row.get::<_, SqlU64>(column).map(|count| count.0);
            Ok((count(0)?, count(1)?, count(2)?, count(3)?))
        })?;
    let sql = "SELECT count(*) FROM run_questions JOIN runs ON runs.number = run_questions.run
               WHERE open = 1 AND runs.id IS NOT NULL AND runs.ended_at IS NULL AND mission NOT GLOB '@*'";
    counts.open_questions = connection.prepare_cached(sql)?.query_row([], |row| row.get::<_, SqlU64>(0))?.0;
    Ok(counts)
}
