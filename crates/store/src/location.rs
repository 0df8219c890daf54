//! The location of a store, and the addresses that users write for it.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use segue_base::http;
use segue_engine::project::TrackerStoreDef;

use super::{
    MemoryStore, Store, StoreError,
    runs::{MemoryRunStore, RunStore},
};

/// Where a store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreLocation {
    /// In memory: it ends with the process.
    Memory,
    /// A SQLite file.
    Sqlite {
        /// The file. Missing parent folders are created.
        path: PathBuf,
        /// Whether every commit is synced to the disk, so that it survives a power failure and not only a crash of the
        /// process: `synchronous=full` or `normal`, as in <https://www.sqlite.org/pragma.html#pragma_synchronous>.
        synchronous_full: bool,
    },
}

impl StoreLocation {
    /// The default file of `segue run`.
    pub const DEFAULT: &str = ".segue/segue.db";

    /// Parses `memory`, `sqlite:PATH`, `sqlite:PATH?synchronous=normal`, or a plain path. `synchronous` is `full` by
    /// default.
    ///
    /// # Errors
    /// [`StoreError::Unsupported`] for other databases and for unknown options.
    pub fn parse(text: &str) -> Result<Self, StoreError> {
        let text = text.trim();
        let unsupported = |reason: &str, help: &str| {
            Err(StoreError::Unsupported { given: text.to_owned(), reason: reason.to_owned(), help: help.to_owned() })
        };
        if matches!(text, "memory" | "memory:" | "sqlite::memory:" | ":memory:") {
            return Ok(Self::Memory);
        }
        let rest = text.strip_prefix("sqlite:").unwrap_or(text);
        // The form of SQLAlchemy: `sqlite:///relative`, `sqlite:////absolute`.
        let rest = if text.starts_with("sqlite:///") { rest.trim_start_matches("///") } else { rest };
        let rest = if text.starts_with("sqlite:////") { text.trim_start_matches("sqlite:///") } else { rest };
        if rest.contains("://") {
            let given = http::redact_url(text);
            let (reason, help) = ("this database is not supported".into(), "use `memory` or `sqlite:PATH`".into());
            return Err(StoreError::Unsupported { given, reason, help });
        }
        let (path, options) = rest.split_once('?').map_or((rest, None), |(path, options)| (path, Some(options)));
        if path.is_empty() {
            return unsupported("the path is missing", "write `sqlite:.segue/segue.db`, for instance");
        }
        let synchronous_full = match options {
            None | Some("synchronous=full") => true,
            Some("synchronous=normal") => false,
            Some(_) => {
                return unsupported(
                    "unknown option",
                    "the only option is `?synchronous=full` or `?synchronous=normal`",
                );
            }
        };
        Ok(Self::Sqlite { path: path.into(), synchronous_full })
    }

    /// The location that `tracker_store` in `endpoints.yml` names. Its key `synchronous` has precedence over an option
    /// of the path.
    ///
    /// # Errors
    /// [`StoreError::Unsupported`] for a store that this version does not support.
    pub fn from_config(store: &TrackerStoreDef) -> Result<Self, StoreError> {
        match store {
            TrackerStoreDef::Memory => Ok(Self::Memory),
            TrackerStoreDef::Sqlite { file, full: setting } => {
                Ok(match Self::parse(file.as_deref().unwrap_or(Self::DEFAULT))? {
                    Self::Sqlite { path, synchronous_full } => {
                        let synchronous_full = setting.unwrap_or(synchronous_full);
                        Self::Sqlite { path, synchronous_full }
                    }
                    Self::Memory => Self::Memory,
                })
            }
            TrackerStoreDef::Unsupported(what) => Err(StoreError::Unsupported {
                given: format!("tracker_store: {what}"),
                reason: "this store is not supported".to_owned(),
                help: "use `type: SQL` with `dialect: sqlite`, or `type: InMemory`".to_owned(),
            }),
        }
    }

    /// Whether the file exists and is the database of another program. This never changes the file.
    pub fn is_of_another_program(&self) -> bool {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite { path, .. } => path.is_file() && super::sqlite::belongs_to_other_program(path),
            _ => false,
        }
    }
}

/// The stores of one location, opened once.
#[derive(Clone)]
pub struct OpenedStores {
    /// The store of conversations.
    pub conversations: Arc<dyn Store>,
    /// The store of runs, in the same file if there is one.
    pub runs: Arc<dyn RunStore>,
}

impl OpenedStores {
    /// Two stores in memory.
    pub fn memory() -> Self {
        Self { conversations: Arc::new(MemoryStore::new()), runs: Arc::new(MemoryRunStore::new()) }
    }

    /// One store that is both.
    #[cfg(feature = "sqlite")]
    fn both(store: impl Store + RunStore + 'static) -> Self {
        let store = Arc::new(store);
        Self { conversations: store.clone(), runs: store }
    }
}

/// Opens the store of conversations and that of runs, which are one file. Otherwise as [`open`].
///
/// # Errors
/// As [`open`].
pub fn open_stores(location: &StoreLocation) -> Result<OpenedStores, StoreError> {
    match location {
        StoreLocation::Memory => Ok(OpenedStores::memory()),
        #[cfg(feature = "sqlite")]
        StoreLocation::Sqlite { path, synchronous_full } => {
            Ok(OpenedStores::both(super::SqliteStore::open(path, *synchronous_full)?))
        }
        #[cfg(not(feature = "sqlite"))]
        StoreLocation::Sqlite { path, .. } => Err(without_sqlite(path)),
    }
}

/// Opens existing stores for reading only, as [`open_read_only`].
///
/// # Errors
/// As [`open_read_only`].
pub fn open_stores_read_only(location: &StoreLocation) -> Result<OpenedStores, StoreError> {
    match location {
        #[cfg(feature = "sqlite")]
        StoreLocation::Sqlite { path, .. } => Ok(OpenedStores::both(super::SqliteStore::open_read_only(path)?)),
        _ => open_stores(location),
    }
}

/// Opens the store of runs only, also while other processes use the file. Creates the file if it is missing.
///
/// # Errors
/// As [`open`]; [`StoreError::InUse`] only for a file of an earlier version that another process has open.
pub fn open_runs(location: &StoreLocation) -> Result<Arc<dyn RunStore>, StoreError> {
    match location {
        StoreLocation::Memory => Ok(Arc::new(MemoryRunStore::new())),
        #[cfg(feature = "sqlite")]
        StoreLocation::Sqlite { path, synchronous_full } => {
            Ok(Arc::new(super::SqliteStore::open_for_runs(path, *synchronous_full)?))
        }
        #[cfg(not(feature = "sqlite"))]
        StoreLocation::Sqlite { path, .. } => Err(without_sqlite(path)),
    }
}

#[cfg(not(feature = "sqlite"))]
fn without_sqlite(path: &Path) -> StoreError {
    StoreError::Unsupported {
        given: path.display().to_string(),
        reason: "this program was built without SQLite".to_owned(),
        help: "build with the feature `sqlite`, or use `memory`".to_owned(),
    }
}

/// Opens a store of conversations. Creates the file and its parent folders if they are missing. Blocks on the file system.
///
/// # Errors
/// [`StoreError::SchemaTooNew`] for a file of a later version; [`StoreError::InUse`] while another process has it open
/// for writing; [`StoreError::Unavailable`] when it cannot be opened; [`StoreError::Unsupported`] when this program was
/// built without that store.
pub fn open(location: &StoreLocation) -> Result<Arc<dyn Store>, StoreError> {
    open_stores(location).map(|stores| stores.conversations)
}

/// Opens an existing store for reading only, also while another process writes to it. Blocks on the file system.
///
/// # Errors
/// As [`open`]; nothing is created.
pub fn open_read_only(location: &StoreLocation) -> Result<Arc<dyn Store>, StoreError> {
    open_stores_read_only(location).map(|stores| stores.conversations)
}

/// Copies a store to a file, also while another process writes to it. Blocks on the file system until the copy is
/// complete.
///
/// # Errors
/// [`StoreError::Unsupported`] for a store in memory, and if the target exists; otherwise as [`open_read_only`].
pub fn backup(location: &StoreLocation, to: &Path) -> Result<(), StoreError> {
    match location {
        #[cfg(feature = "sqlite")]
        StoreLocation::Sqlite { path, .. } => super::SqliteStore::backup(path, to),
        #[cfg(not(feature = "sqlite"))]
        StoreLocation::Sqlite { .. } => open(location).map(drop),
        StoreLocation::Memory => Err(StoreError::Unsupported {
            given: to.display().to_string(),
            reason: "a store in memory cannot be copied".to_owned(),
            help: "keep conversations in a file".to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

    use super::*;

    fn sqlite(path: &str, synchronous_full: bool) -> Option<StoreLocation> {
        Some(StoreLocation::Sqlite { path: path.into(), synchronous_full })
    }

    #[test]
    fn parses_store_addresses() {
        for (text, expected) in [
            ("memory", Some(StoreLocation::Memory)),
            ("sqlite::memory:", Some(StoreLocation::Memory)),
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
            assert_eq!(StoreLocation::parse(text).ok(), expected, "{text}");
        }
    }

    #[test]
    fn tracker_store_settings_select_the_location() {
        let file = |file: Option<&str>, full| TrackerStoreDef::Sqlite { file: file.map(str::to_owned), full };
        for (store, expected) in [
            (TrackerStoreDef::Memory, Some(StoreLocation::Memory)),
            (file(Some("x.db"), None), sqlite("x.db", true)),
            (file(Some("x.db"), Some(false)), sqlite("x.db", false)),
            (file(Some("sqlite:x.db?synchronous=normal"), None), sqlite("x.db", false)),
            (file(Some("sqlite:x.db?synchronous=normal"), Some(true)), sqlite("x.db", true)),
            (file(Some("sqlite:x.db?synchronous=full"), Some(false)), sqlite("x.db", false)),
            (file(None, None), sqlite(StoreLocation::DEFAULT, true)),
            (TrackerStoreDef::Unsupported("mongod".to_owned()), None),
        ] {
            assert_eq!(StoreLocation::from_config(&store).ok(), expected, "{store:?}");
        }
    }
}
