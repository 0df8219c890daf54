//! What agents have read: the contents of files, by session.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use super::{Workspace, folder::Hash, path::VirtualPath};
use crate::ToolCaller;
use segue_base::limits;

/// The contents of files that one session of an agent has read.
#[derive(Default)]
pub(super) struct ReadVersions(Mutex<HashMap<VirtualPath, Hash>>);

impl ReadVersions {
    pub(super) fn get(&self, path: &VirtualPath) -> Option<Hash> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(path).copied()
    }
    pub(super) fn record(&self, path: &VirtualPath, content: Hash) {
        let mut versions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if versions.len() >= limits::WORKSPACE_VERSIONS && !versions.contains_key(path) {
            versions.clear();
        }
        versions.insert(path.clone(), content);
    }
}

/// The sessions that have read files. They are kept in memory only: after a restart, or if too many others were active since, a session
/// reads a file again before it writes it.
#[derive(Default)]
pub(super) struct Readers(Mutex<Sessions>);

#[derive(Default)]
struct Sessions {
    /// Counts uses.
    clock: u64,
    sessions: HashMap<(PathBuf, ToolCaller), (u64, Arc<ReadVersions>)>,
}

impl Readers {
    /// What the session of this caller has read in a workspace.
    pub(super) fn of(&self, workspace: &Workspace, caller: &ToolCaller) -> Arc<ReadVersions> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.clock += 1;
        let now = all.clock;
        // An agent has one session in a conversation, whichever flow calls it.
        let key = (workspace.folder().to_path_buf(), ToolCaller { flow: None, ..caller.clone() });
        if all.sessions.len() >= limits::WORKSPACE_SESSIONS && !all.sessions.contains_key(&key) {
            let oldest = all.sessions.iter().min_by_key(|(_, (used, _))| *used).map(|(key, _)| key.clone());
            oldest.map(|key| all.sessions.remove(&key));
        }
        let (used, versions) = all.sessions.entry(key).or_default();
        *used = now;
        versions.clone()
    }
}
