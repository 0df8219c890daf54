//! Where conversations come from: the `events` table of a tracker in SQLite, or a file with one event on each line.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufRead, BufReader, Read as _},
    path::{Path, PathBuf},
};

use serde_json::{Map, Value as Json};

use crate::{http, limits};

/// One event as it was kept elsewhere.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Seconds since 1970.
    pub timestamp: f64,
    /// The event in the tracker format.
    pub data: Map<String, Json>,
}

impl Row {
    /// The name of its kind.
    pub fn kind(&self) -> &str {
        self.data.get("event").and_then(Json::as_str).unwrap_or("(no kind)")
    }
}

/// Conversations by the id of the other side, each in the order it happened.
#[derive(Clone, Debug, Default)]
pub struct Talks {
    /// The events.
    pub by_sender: BTreeMap<String, Vec<Row>>,
    /// Rows that are no events: where, and why.
    pub left_out: Vec<String>,
}

/// Why nothing was read.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ImportError {
    /// The address is not one that can be read.
    #[error(
        "`{0}` is no source; write `sqlite:///tracker.db` for a tracker in SQLite, or the path of a file with one event as JSON on each line"
    )]
    Strange(String),
    /// The file cannot be read.
    #[error("{path}: {reason}")]
    Unreadable {
        /// Which.
        path: String,
        /// Why.
        reason: String,
    },
    /// There is more than can be brought over at once.
    #[error("there are more than {0} events; bring them over in parts, for example one file for each month")]
    TooMuch(usize),
}

/// Reads a source: `sqlite:///relative.db`, `sqlite:////absolute.db`, `file:///absolute.jsonl`, or the path of a `.db`,
/// `.sqlite` or `.jsonl` file. Blocks on the file system.
///
/// # Errors
/// [`ImportError`]; a row that cannot be read is no error and stands in [`Talks::left_out`].
pub fn read(from: &str) -> Result<Talks, ImportError> {
    let mut talks = Gathering::default();
    if let Some((scheme, rest)) = from.split_once("://") {
        if !matches!(scheme, "sqlite" | "file") {
            return Err(ImportError::Strange(http::redact_url(from)));
        }
        if scheme == "sqlite" {
            // As in the addresses of SQLAlchemy, the third slash ends the (empty) host and the path begins behind it.
            table(&PathBuf::from(rest.strip_prefix('/').unwrap_or(rest)), &mut talks)?
        } else {
            lines(&file(from, rest)?, &mut talks)?
        }
        return Ok(talks.done());
    }
    let path = Path::new(from.strip_prefix("sqlite:").unwrap_or(from));
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    match ending {
        "db" | "sqlite" | "sqlite3" => table(path, &mut talks)?,
        "jsonl" | "ndjson" | "json" | "log" => lines(path, &mut talks)?,
        _ => return Err(ImportError::Strange(from.to_owned())),
    }
    Ok(talks.done())
}

/// The path of an address `file://`: as its standard (RFC 8089) has it, where that gives one, else as it is written, so that
/// `file://relative.jsonl` is understood too.
fn file(from: &str, rest: &str) -> Result<PathBuf, ImportError> {
    if !rest.starts_with('/') && !rest.starts_with("localhost/") {
        return Ok(PathBuf::from(rest));
    }
    let url = reqwest::Url::parse(from).ok();
    url.and_then(|url| url.to_file_path().ok()).ok_or_else(|| ImportError::Strange(http::redact_url(from)))
}

#[derive(Default)]
struct Gathering {
    talks: Talks,
    events: usize,
}

impl Gathering {
    fn add(&mut self, at: &str, sender: Option<&str>, timestamp: Option<f64>, data: Json) -> Result<(), ImportError> {
        let Json::Object(data) = data else {
            self.leave(at, "it is no JSON object");
            return Ok(());
        };
        let written = data.get("sender_id").and_then(Json::as_str).map(str::to_owned);
        let Some(sender) = sender.map(str::to_owned).or(written).filter(|sender| !sender.is_empty()) else {
            self.leave(at, "it has no `sender_id`");
            return Ok(());
        };
        let timestamp = timestamp.or_else(|| data.get("timestamp").and_then(Json::as_f64)).unwrap_or(0.0);
        self.events += 1;
        if self.events > limits::IMPORT_EVENTS {
            return Err(ImportError::TooMuch(limits::IMPORT_EVENTS));
        }
        self.talks.by_sender.entry(sender).or_default().push(Row { timestamp, data });
        Ok(())
    }

    fn leave(&mut self, at: &str, why: &str) {
        if self.talks.left_out.len() < limits::IMPORT_REPORTED {
            self.talks.left_out.push(format!("{at}: {why}"));
        }
    }

    fn done(self) -> Talks {
        self.talks
    }
}

fn unreadable(path: &Path, reason: impl ToString) -> ImportError {
    ImportError::Unreadable { path: path.display().to_string(), reason: reason.to_string() }
}

/// One event as JSON on each line: as an event broker writes it, or a row of the table with `data` in it.
fn lines(path: &Path, talks: &mut Gathering) -> Result<(), ImportError> {
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
            Ok(json) => row(&at, json, talks)?,
            Err(error) => talks.leave(&at, &format!("it is no JSON: {error}")),
        }
    }
    Ok(())
}

fn row(at: &str, json: Json, talks: &mut Gathering) -> Result<(), ImportError> {
    let is_row = json.get("event").is_none() && json.get("data").is_some();
    if !is_row {
        return talks.add(at, None, None, json);
    }
    let sender = json.get("sender_id").and_then(Json::as_str).map(str::to_owned);
    let timestamp = json.get("timestamp").and_then(Json::as_f64);
    let data = match json.get("data") {
        Some(Json::String(text)) => serde_json::from_str(text).unwrap_or_default(),
        data => data.cloned().unwrap_or_default(),
    };
    talks.add(at, sender.as_deref(), timestamp, data)
}

/// The table `events` of a tracker: `id`, `sender_id`, `type_name`, `timestamp`, `intent_name`, `action_name`, `data`.
#[cfg(feature = "sqlite")]
fn table(path: &Path, talks: &mut Gathering) -> Result<(), ImportError> {
    use rusqlite::{Connection, OpenFlags};
    let failed = |error: rusqlite::Error| unreadable(path, error);
    if !path.is_file() {
        return Err(unreadable(path, "there is no such file"));
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
            Ok(data) => talks.add(&at, sender.as_deref(), timestamp, data)?,
            Err(error) => talks.leave(&at, &format!("its data is no JSON: {error}")),
        }
    }
    Ok(())
}

#[cfg(not(feature = "sqlite"))]
fn table(path: &Path, _: &mut Gathering) -> Result<(), ImportError> {
    Err(unreadable(path, "this program was built without SQLite; export the events as JSON, one on each line"))
}

/// A place that holds as many events as it may: the next one is too much.
#[cfg(test)]
pub(super) fn tests_gathering(full: usize) -> impl FnMut() -> Result<(), ImportError> {
    let mut gathering = Gathering { events: full, ..Gathering::default() };
    move || gathering.add("line 1", Some("u"), Some(1.0), serde_json::json!({"event": "user"}))
}
