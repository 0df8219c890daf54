//! The workspaces of a process.

use std::{
    collections::HashMap,
    fmt,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use sha2::{Digest, Sha256};

use super::{FileError, Workspace, WorkspaceSettings, copy, folder::Usage, run_folder};
use segue_base::limits;

/// Characters of the id of a conversation that are part of the name of its folder.
const READABLE: usize = 32;
/// Bytes of the hash of that id in the name.
const HASHED: usize = 12;

/// The workspaces of a process: one for each run or conversation, opened when it is first used. Cheap to clone; clones share them.
#[derive(Clone)]
pub struct Workspaces {
    inner: Arc<Registry>,
}

struct Registry {
    /// Settings of every workspace; the folder is the one above those of runs.
    settings: WorkspaceSettings,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    /// Counts uses.
    clock: u64,
    workspaces: HashMap<Arc<str>, (u64, Workspace)>,
}

impl Workspaces {
    /// Workspaces with these settings. Their folder is the one that contains a folder for each run.
    pub fn new(settings: WorkspaceSettings) -> Self {
        Self { inner: Arc::new(Registry { settings, open: Mutex::default() }) }
    }

    /// The folder that contains a folder for each run.
    pub fn folder(&self) -> &Path {
        &self.inner.settings.folder
    }

    /// The workspace of a run.
    ///
    /// # Errors
    /// [`FileError::Path`]: the id is not made of letters, digits, `-`, `_` and single `/`, or is too long.
    pub fn of_run(&self, run: &str) -> Result<Workspace, FileError> {
        Ok(self.named(&run_folder(run)?))
    }

    /// Copies the files of a run into the folder of a new one. Returns what was copied; if there is more than a workspace may have, nothing is.
    ///
    /// # Errors
    /// As [`of_run`](Self::of_run); [`FileError::Quota`], [`FileError::TooManyFiles`], [`FileError::System`].
    pub async fn copy_run(&self, from: &str, to: &str) -> Result<Usage, FileError> {
        let (from, to) = (self.folder().join(run_folder(from)?), self.folder().join(run_folder(to)?));
        let max_bytes = self.inner.settings.max_bytes;
        let copied = tokio::task::spawn_blocking(move || copy::copy_run(&from, &to, max_bytes)).await;
        copied.unwrap_or_else(|error| Err(FileError::System(error.to_string())))
    }

    /// The workspace of a conversation. Its id may be any text: see [`conversation_folder`](Self::conversation_folder).
    pub fn of_conversation(&self, id: &str) -> Workspace {
        self.named(&Self::conversation_folder(id))
    }

    /// The name of the folder of a conversation: `c-`, the letters and digits of its id, and a hash of the id. Two conversations never
    /// have the same one, and none has that of a run.
    pub fn conversation_folder(id: &str) -> String {
        let is_safe = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let readable: String = id.chars().filter(|c| is_safe(*c)).take(READABLE).collect();
        let hash = Sha256::digest(id.as_bytes());
        let hash: String = hash.iter().take(HASHED).map(|byte| format!("{byte:02x}")).collect();
        format!("c-{readable}.{hash}").to_ascii_lowercase()
    }

    /// Removes the files of a run or conversation, by the name of its folder, and ends its commands.
    ///
    /// # Errors
    /// The system cannot remove them.
    pub async fn remove(&self, folder: &str) -> Result<(), FileError> {
        let workspace = self.named(folder);
        let removed = workspace.remove().await;
        self.open().workspaces.remove(folder);
        removed
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.inner.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn named(&self, name: &str) -> Workspace {
        let mut open = self.open();
        open.clock += 1;
        let now = open.clock;
        if let Some((used, workspace)) = open.workspaces.get_mut(name) {
            *used = now;
            return workspace.clone();
        }
        if open.workspaces.len() >= limits::WORKSPACES_OPEN {
            // One that is in use stays: two of one folder would not see what the other counts.
            let idle = open.workspaces.iter().filter(|(_, (_, workspace))| workspace.is_idle());
            let oldest = idle.min_by_key(|(_, (used, _))| *used).map(|(name, _)| name.clone());
            oldest.map(|name| open.workspaces.remove(&name));
        }
        let settings = &self.inner.settings;
        let workspace = Workspace::new(WorkspaceSettings { folder: settings.folder.join(name), ..settings.clone() });
        open.workspaces.insert(name.into(), (now, workspace.clone()));
        workspace
    }
}

impl fmt::Debug for Workspaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workspaces").field("folder", &self.inner.settings.folder).finish_non_exhaustive()
    }
}
