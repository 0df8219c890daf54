//! Where a store is: the texts by which people name one.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use serde_json::{Map, Value as Json};

use super::{MemoryStore, Store, StoreError};
use crate::http;

/// Where a store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// Nowhere: it ends with the process.
    Memory,
    /// A SQLite file.
    Sqlite {
        /// The file; folders above it are made.
        path: PathBuf,
        /// Whether every commit is forced to the disk, so that it survives a loss of power and not only of the process: the
        /// setting `synchronous`, which is `full` or `normal`.
        full: bool,
    },
}

impl Location {
    /// Where `run` keeps its conversations when nothing else is said.
    pub const DEFAULT: &str = ".segue/segue.db";

    /// Reads `memory`, `sqlite:PATH`, `sqlite:PATH?synchronous=normal`, or a plain path. `synchronous` is `full` unless it is given.
    ///
    /// # Errors
    /// [`StoreError::Unsupported`] for addresses of other databases and for unknown options.
    pub fn parse(text: &str) -> Result<Self, StoreError> {
        let text = text.trim();
        let unsupported = |reason: &str, cure: &str| {
            Err(StoreError::Unsupported { given: text.to_owned(), reason: reason.to_owned(), cure: cure.to_owned() })
        };
        if matches!(text, "memory" | "memory:" | "sqlite::memory:" | ":memory:") {
            return Ok(Self::Memory);
        }
        let rest = text.strip_prefix("sqlite:").unwrap_or(text);
        // SQLAlchemy's form: `sqlite:///relative`, `sqlite:////absolute`.
        let rest = if text.starts_with("sqlite:///") { rest.trim_start_matches("///") } else { rest };
        let rest = if text.starts_with("sqlite:////") { text.trim_start_matches("sqlite:///") } else { rest };
        if rest.contains("://") {
            let given = http::shown(text);
            let (reason, cure) = ("this database is not supported".into(), "use `memory` or `sqlite:PATH`".into());
            return Err(StoreError::Unsupported { given, reason, cure });
        }
        let (path, options) = rest.split_once('?').map_or((rest, None), |(path, options)| (path, Some(options)));
        if path.is_empty() {
            return unsupported("the path is missing", "write `sqlite:.segue/segue.db`, for instance");
        }
        let full = match options {
            None | Some("synchronous=full") => true,
            Some("synchronous=normal") => false,
            Some(_) => {
                return unsupported(
                    "unknown option",
                    "the only option is `?synchronous=full` or `?synchronous=normal`",
                );
            }
        };
        Ok(Self::Sqlite { path: path.into(), full })
    }

    /// Reads a `tracker_store` of `endpoints.yml` as it stands in projects of the CALM format: `type: SQL` with
    /// `dialect: sqlite` and `db`, or `type: InMemory`. With every kind of SQLite file goes the key `synchronous`.
    ///
    /// # Errors
    /// [`StoreError::Unsupported`] for every other kind.
    pub fn from_tracker_store(store: &Map<String, Json>) -> Result<Self, StoreError> {
        let text = |key: &str| store.get(key).and_then(Json::as_str).unwrap_or_default();
        let (kind, dialect) = (text("type").to_ascii_lowercase(), text("dialect").to_ascii_lowercase());
        match (kind.as_str(), dialect.as_str()) {
            ("" | "inmemory" | "in_memory" | "memory", _) => Ok(Self::Memory),
            // The CALM format's own default file.
            ("sql", "sqlite" | "") => Self::tracker_file(store, &["db"], "rasa.db"),
            ("sqlite" | "segue", _) => Self::tracker_file(store, &["path", "db"], Self::DEFAULT),
            _ => Err(StoreError::Unsupported {
                given: format!("tracker_store: type {kind:?}, dialect {dialect:?}"),
                reason: "this store is not supported".to_owned(),
                cure: "use `type: SQL` with `dialect: sqlite`, or `type: InMemory`".to_owned(),
            }),
        }
    }
}

impl Location {
    /// The file of a `tracker_store` that is SQLite, under one of `keys`. Its key `synchronous` counts before an option of the path.
    fn tracker_file(store: &Map<String, Json>, keys: &[&str], default: &str) -> Result<Self, StoreError> {
        let text = |key: &str| store.get(key).and_then(Json::as_str).unwrap_or_default();
        let written = keys.iter().map(|key| text(key)).find(|path| !path.is_empty());
        let setting = match store.get("synchronous").map(|value| value.as_str().unwrap_or_default()) {
            None => None,
            Some("full") => Some(true),
            Some("normal") => Some(false),
            Some(other) => {
                return Err(StoreError::Unsupported {
                    given: format!("tracker_store: synchronous {other:?}"),
                    reason: "there is no such setting".to_owned(),
                    cure: "write `full`, or `normal` where the latest turns may be lost with the power".to_owned(),
                });
            }
        };
        Ok(match Self::parse(written.unwrap_or(default))? {
            Self::Sqlite { path, full } => Self::Sqlite { path, full: setting.unwrap_or(full) },
            Self::Memory => Self::Memory,
        })
    }

    /// Whether the file is there and is the database of another program. Looks at the file and changes nothing.
    pub fn is_of_another_program(&self) -> bool {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite { path, .. } => path.is_file() && super::sqlite::is_foreign(path),
            _ => false,
        }
    }
}

/// Opens a store. Makes the file, and the folders above it, where they are missing. Blocks on the file system.
///
/// # Errors
/// [`StoreError::TooNew`] for a file of a later version; [`StoreError::Unavailable`] when it cannot be opened;
/// [`StoreError::Unsupported`] when this program was built without that store.
pub fn open(location: &Location) -> Result<Arc<dyn Store>, StoreError> {
    match location {
        Location::Memory => Ok(Arc::new(MemoryStore::new())),
        #[cfg(feature = "sqlite")]
        Location::Sqlite { path, full } => Ok(Arc::new(super::SqliteStore::open(path, *full)?)),
        #[cfg(not(feature = "sqlite"))]
        Location::Sqlite { path, .. } => Err(StoreError::Unsupported {
            given: path.display().to_string(),
            reason: "this program was built without SQLite".to_owned(),
            cure: "build with the feature `sqlite`, or use `memory`".to_owned(),
        }),
    }
}

/// Opens a store that is there for reading only, beside the process that writes to it, if any. Blocks on the file system.
///
/// # Errors
/// As [`open`]; nothing is made where nothing is.
pub fn view(location: &Location) -> Result<Arc<dyn Store>, StoreError> {
    match location {
        #[cfg(feature = "sqlite")]
        Location::Sqlite { path, .. } => Ok(Arc::new(super::SqliteStore::view(path)?)),
        _ => open(location),
    }
}

/// Copies a store to a file, beside the process that writes to it, if any. Blocks on the file system, for as long as it takes.
///
/// # Errors
/// [`StoreError::Unsupported`] for a store in memory, and where there is a file of that name already; as [`view`] otherwise.
pub fn backup(location: &Location, to: &Path) -> Result<(), StoreError> {
    match location {
        #[cfg(feature = "sqlite")]
        Location::Sqlite { path, .. } => super::SqliteStore::backup(path, to),
        #[cfg(not(feature = "sqlite"))]
        Location::Sqlite { .. } => open(location).map(drop),
        Location::Memory => Err(StoreError::Unsupported {
            given: to.display().to_string(),
            reason: "a store in memory cannot be copied".to_owned(),
            cure: "keep conversations in a file".to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

    use serde_json::json;

    use super::*;

    fn sqlite(path: &str, full: bool) -> Option<Location> {
        Some(Location::Sqlite { path: path.into(), full })
    }

    #[test]
    fn the_texts_people_write() {
        for (text, expected) in [
            ("memory", Some(Location::Memory)),
            ("sqlite::memory:", Some(Location::Memory)),
            (".segue/segue.db", sqlite(".segue/segue.db", true)),
            ("sqlite:a/b.db", sqlite("a/b.db", true)),
            ("sqlite:///a.db", sqlite("a.db", true)),
            ("sqlite:////tmp/a.db", sqlite("/tmp/a.db", true)),
            ("sqlite:a.db?synchronous=full", sqlite("a.db", true)),
            ("a.db?synchronous=normal", sqlite("a.db", false)),
            ("sqlite:a.db?synchronous=normal", sqlite("a.db", false)),
            ("sqlite:///a.db?synchronous=normal", sqlite("a.db", false)),
            ("sqlite:a.db?synchronous=off", None),
            ("sqlite:a.db?cache=shared", None),
            ("sqlite:", None),
            ("postgresql://localhost/x", None),
        ] {
            assert_eq!(Location::parse(text).ok(), expected, "{text}");
        }
    }

    #[test]
    fn tracker_stores() {
        for (store, expected) in [
            (json!({"type": "SQL", "dialect": "sqlite", "db": "x.db"}), sqlite("x.db", true)),
            (json!({"type": "SQL"}), sqlite("rasa.db", true)),
            (json!({"type": "SQL", "db": "x.db", "synchronous": "full"}), sqlite("x.db", true)),
            (json!({"type": "SQL", "db": "sqlite:x.db?synchronous=normal"}), sqlite("x.db", false)),
            (
                json!({"type": "SQL", "db": "sqlite:x.db?synchronous=normal", "synchronous": "full"}),
                sqlite("x.db", true),
            ),
            (
                json!({"type": "SQL", "db": "sqlite:x.db?synchronous=full", "synchronous": "normal"}),
                sqlite("x.db", false),
            ),
            (json!({"type": "SQL", "db": "x.db", "synchronous": "normal"}), sqlite("x.db", false)),
            (json!({"type": "segue", "synchronous": "off"}), None),
            (json!({"type": "InMemory"}), Some(Location::Memory)),
            (json!({"type": "SQL", "dialect": "postgresql", "db": "x"}), None),
            (json!({"type": "mongod"}), None),
            (json!({"type": "sqlite", "db": "x.db"}), sqlite("x.db", true)),
            (json!({"type": "sqlite", "db": "x.db", "synchronous": "normal"}), sqlite("x.db", false)),
            (json!({"type": "segue", "path": "x.db"}), sqlite("x.db", true)),
            (json!({"type": "segue", "path": "x.db", "synchronous": "normal"}), sqlite("x.db", false)),
            (json!({"type": "segue"}), sqlite(Location::DEFAULT, true)),
        ] {
            let found = Location::from_tracker_store(store.as_object().unwrap());
            assert_eq!(found.ok(), expected, "{store}");
        }
    }
}
