//! Where a store is: the texts by which people name one.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use segue_base::http;
use segue_engine::project::TrackerStoreDef;

use super::{MemoryStore, Store, StoreError};

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
            let given = http::redact_url(text);
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

    /// As `tracker_store` of `endpoints.yml` says. Its key `synchronous` counts before an option of the path.
    ///
    /// # Errors
    /// [`StoreError::Unsupported`] for a store that this version does not have.
    pub fn of(store: &TrackerStoreDef) -> Result<Self, StoreError> {
        match store {
            TrackerStoreDef::Memory => Ok(Self::Memory),
            TrackerStoreDef::Sqlite { file, full: setting } => {
                Ok(match Self::parse(file.as_deref().unwrap_or(Self::DEFAULT))? {
                    Self::Sqlite { path, full } => Self::Sqlite { path, full: setting.unwrap_or(full) },
                    Self::Memory => Self::Memory,
                })
            }
            TrackerStoreDef::Unsupported(what) => Err(StoreError::Unsupported {
                given: format!("tracker_store: {what}"),
                reason: "this store is not supported".to_owned(),
                cure: "use `type: SQL` with `dialect: sqlite`, or `type: InMemory`".to_owned(),
            }),
        }
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
        let file = |file: Option<&str>, full| TrackerStoreDef::Sqlite { file: file.map(str::to_owned), full };
        for (store, expected) in [
            (TrackerStoreDef::Memory, Some(Location::Memory)),
            (file(Some("x.db"), None), sqlite("x.db", true)),
            (file(Some("x.db"), Some(false)), sqlite("x.db", false)),
            (file(Some("sqlite:x.db?synchronous=normal"), None), sqlite("x.db", false)),
            (file(Some("sqlite:x.db?synchronous=normal"), Some(true)), sqlite("x.db", true)),
            (file(Some("sqlite:x.db?synchronous=full"), Some(false)), sqlite("x.db", false)),
            (file(None, None), sqlite(Location::DEFAULT, true)),
            (TrackerStoreDef::Unsupported("mongod".to_owned()), None),
        ] {
            assert_eq!(Location::of(&store).ok(), expected, "{store:?}");
        }
    }
}
