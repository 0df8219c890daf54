//! Reads the events of a Rasa tracker store: the `events` table in SQLite, or a file with one event as JSON on each line.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufRead, BufReader, Read as _},
    path::{Path, PathBuf},
};

use serde_json::{Map, Value as Json};

use crate::{http, limits};

/// One event of a tracker store.
#[derive(Clone, Debug, PartialEq)]
pub struct TrackerEvent {
    /// Seconds since 1970-01-01 UTC.
    pub timestamp: f64,
    /// The event as JSON in the Rasa tracker format.
    pub data: Map<String, Json>,
}

impl TrackerEvent {
    /// The kind of the event, such as `user`; `(no kind)` when it has none.
    pub fn kind(&self) -> &str {
        self.data.get("event").and_then(Json::as_str).unwrap_or("(no kind)")
    }
}

/// The events of a tracker store by conversation.
#[derive(Clone, Debug, Default)]
pub struct TrackerExport {
    /// The events of each conversation in their order, by `sender_id`.
    pub by_sender: BTreeMap<String, Vec<TrackerEvent>>,
    /// The rows or lines that are no events: where, and why.
    pub skipped_rows: Vec<String>,
}

/// Why a source could not be read.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ImportError {
    /// The source is of an unknown kind.
    #[error(
        "unknown source `{0}`; use `sqlite:///tracker.db` for a tracker store in SQLite, or the path of a file with one event as JSON on each line"
    )]
    UnknownSource(String),
    /// The file cannot be read.
    #[error("{path}: {reason}")]
    Unreadable {
        /// Its path.
        path: String,
        /// The error of the file system or of SQLite.
        reason: String,
    },
    /// The source has more events than one import may have.
    #[error("there are more than {0} events; import them in parts, for example one file for each month")]
    TooManyEvents(usize),
}

/// Reads a source: `sqlite:///relative.db`, `sqlite:////absolute.db`, `file:///absolute.jsonl`, or the path of a `.db`,
/// `.sqlite` or `.jsonl` file. Blocks on the file system.
///
/// # Errors
/// [`ImportError`]. A row that cannot be read is not an error; it is listed in [`TrackerExport::skipped_rows`].
pub fn read(from: &str) -> Result<TrackerExport, ImportError> {
    let mut collector = Collector::default();
    if let Some((scheme, rest)) = from.split_once("://") {
        if !matches!(scheme, "sqlite" | "file") {
            return Err(ImportError::UnknownSource(http::redact_url(from)));
        }
        if scheme == "sqlite" {
            // As in the URLs of SQLAlchemy, the third slash ends the empty host, and the path begins after it.
            read_sqlite(&PathBuf::from(rest.strip_prefix('/').unwrap_or(rest)), &mut collector)?
        } else {
            read_json_lines(&file_path(from, rest)?, &mut collector)?
        }
        return Ok(collector.finish());
    }
    let path = Path::new(from.strip_prefix("sqlite:").unwrap_or(from));
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    match extension {
        "db" | "sqlite" | "sqlite3" => read_sqlite(path, &mut collector)?,
        "jsonl" | "ndjson" | "json" | "log" => read_json_lines(path, &mut collector)?,
        _ => return Err(ImportError::UnknownSource(from.to_owned())),
    }
    Ok(collector.finish())
}

/// The path of a `file://` URL as defined by RFC 8089. A URL with another host, such as `file://relative.jsonl`, is taken as a
/// relative path.
fn file_path(from: &str, rest: &str) -> Result<PathBuf, ImportError> {
    if !rest.starts_with('/') && !rest.starts_with("localhost/") {
        return Ok(PathBuf::from(rest));
    }
    let url = reqwest::Url::parse(from).ok();
    url.and_then(|url| url.to_file_path().ok()).ok_or_else(|| ImportError::UnknownSource(http::redact_url(from)))
}

#[derive(Default)]
struct Collector {
    export: TrackerExport,
    events: usize,
}

impl Collector {
    fn add(&mut self, at: &str, sender: Option<&str>, timestamp: Option<f64>, data: Json) -> Result<(), ImportError> {
        let Json::Object(data) = data else {
            self.skip(at, "it is not a JSON object");
            return Ok(());
        };
        let written = data.get("sender_id").and_then(Json::as_str).map(str::to_owned);
        let Some(sender) = sender.map(str::to_owned).or(written).filter(|sender| !sender.is_empty()) else {
            self.skip(at, "it has no `sender_id`");
            return Ok(());
        };
        let timestamp = timestamp.or_else(|| data.get("timestamp").and_then(Json::as_f64)).unwrap_or(0.0);
        self.events += 1;
        if self.events > limits::IMPORT_EVENTS {
            return Err(ImportError::TooManyEvents(limits::IMPORT_EVENTS));
        }
        self.export.by_sender.entry(sender).or_default().push(TrackerEvent { timestamp, data });
        Ok(())
    }

    fn skip(&mut self, at: &str, reason: &str) {
        if self.export.skipped_rows.len() < limits::IMPORT_REPORTED {
            self.export.skipped_rows.push(format!("{at}: {reason}"));
        }
    }

    fn finish(self) -> TrackerExport {
        self.export
    }
}

fn unreadable(path: &Path, reason: impl ToString) -> ImportError {
    ImportError::Unreadable { path: path.display().to_string(), reason: reason.to_string() }
}

/// Reads a file with one JSON object on each line: an event as an event broker writes it, or a row of the `events` table.
fn read_json_lines(path: &Path, collector: &mut Collector) -> Result<(), ImportError> {
    let file = File::open(path).map_err(|error| unreadable(path, error))?;
    let mut reader = BufReader::new(file);
    let mut line = Vec::new();
    for number in 1_usize.. {
        line.clear();
        let most = limits::IMPORT_LINE as u64 + 1;
        let read = reader.by_ref().take(most).read_until(b'\n', &mut line).map_err(|error| unreadable(path, error))?;
        if read == 0 {
            break;
        }
        let at = format!("line {number}");
        if line.len() > limits::IMPORT_LINE {
            return Err(unreadable(path, format!("{at} is longer than {} bytes", limits::IMPORT_LINE)));
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        match serde_json::from_slice::<Json>(&line) {
            Ok(json) => add_row(&at, json, collector)?,
            Err(error) => collector.skip(&at, &format!("it is not JSON: {error}")),
        }
    }
    Ok(())
}

fn add_row(at: &str, json: Json, collector: &mut Collector) -> Result<(), ImportError> {
    let is_row = json.get("event").is_none() && json.get("data").is_some();
    if !is_row {
        return collector.add(at, None, None, json);
    }
    let sender = json.get("sender_id").and_then(Json::as_str).map(str::to_owned);
    let timestamp = json.get("timestamp").and_then(Json::as_f64);
    let data = match json.get("data") {
        Some(Json::String(text)) => serde_json::from_str(text).unwrap_or_default(),
        data => data.cloned().unwrap_or_default(),
    };
    collector.add(at, sender.as_deref(), timestamp, data)
}

/// Reads the table `events` of the SQL tracker store of Rasa: `id`, `sender_id`, `type_name`, `timestamp`, `intent_name`,
/// `action_name`, `data`.
#[cfg(feature = "sqlite")]
fn read_sqlite(path: &Path, collector: &mut Collector) -> Result<(), ImportError> {
    use rusqlite::{Connection, OpenFlags};
    let failed = |error: rusqlite::Error| unreadable(path, error);
    if !path.is_file() {
        return Err(unreadable(path, "the file does not exist"));
    }
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(failed)?;
    let query = "SELECT id, sender_id, timestamp, data FROM events ORDER BY sender_id, id";
    let mut statement = connection.prepare(query).map_err(failed)?;
    let mut rows = statement.query([]).map_err(failed)?;
    while let Some(row) = rows.next().map_err(failed)? {
        let id: i64 = row.get(0).map_err(failed)?;
        let at = format!("events.id {id}");
        let sender: Option<String> = row.get(1).unwrap_or_default();
        let timestamp: Option<f64> = row.get(2).unwrap_or_default();
        let data: Option<String> = row.get(3).unwrap_or_default();
        match serde_json::from_str(data.as_deref().unwrap_or_default()) {
            Ok(data) => collector.add(&at, sender.as_deref(), timestamp, data)?,
            Err(error) => collector.skip(&at, &format!("its data is not JSON: {error}")),
        }
    }
    Ok(())
}

#[cfg(not(feature = "sqlite"))]
fn read_sqlite(path: &Path, _: &mut Collector) -> Result<(), ImportError> {
    Err(unreadable(path, "this program was built without SQLite; export the events as JSON, one on each line"))
}

/// A function that adds an event to a collector with `full` events.
#[cfg(test)]
pub(super) fn full_collector(full: usize) -> impl FnMut() -> Result<(), ImportError> {
    let mut collector = Collector { events: full, ..Collector::default() };
    move || collector.add("line 1", Some("u"), Some(1.0), serde_json::json!({"event": "user"}))
}
