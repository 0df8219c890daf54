//! The deletion of runs past their retention, with the folders of their files.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use segue_engine::{
    ids::{ConversationId, RunId},
    project::RunsDef,
    time::Timestamp,
};

use crate::{
    clock::Clock,
    limits,
    store::{
        StoreError,
        runs::{RunFilter, RunStore, RunStoreError},
    },
    tools::workspace::{WorkspaceSettings, remove_folder, run_folder},
};

/// The beginning of the name of a folder that is being removed. No folder of a run or conversation has it.
const REMOVED: &str = ".removed-";

/// Deletes runs, with the folders of their files. Cheap to clone.
#[derive(Clone)]
pub struct RunRetention {
    runs: Arc<dyn RunStore>,
    clock: Arc<dyn Clock>,
    /// The folder that contains those of runs.
    folder: PathBuf,
    keep: Option<Duration>,
}

impl RunRetention {
    /// The retention that a project sets, for the runs of this store. `project` is its folder, which contains the files of runs.
    pub fn new(runs: Arc<dyn RunStore>, clock: Arc<dyn Clock>, project: &Path, settings: &RunsDef) -> Self {
        let keep = match settings.retention_days {
            None => Some(limits::RUN_RETENTION),
            Some(0) => None,
            Some(days) => Some(Duration::from_secs(u64::from(days).saturating_mul(24 * 3600))),
        };
        let folder = WorkspaceSettings::for_project(project).map(|settings| settings.folder);
        Self { runs, clock, folder: folder.unwrap_or_else(|_| project.join(".segue/runs")), keep }
    }

    /// Sets the folder that contains those of runs, as
    /// [`AssistantBuilder::workspace_folder`](crate::AssistantBuilder::workspace_folder) does.
    #[must_use]
    pub fn workspace_folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = folder.into();
        self
    }

    /// Deletes the runs that ended longer ago than their retention, whatever their end was. Returns how many. Runs that have not ended
    /// stay, also those that wait for people. Files that cannot be removed are logged, and the next call tries again.
    ///
    /// # Errors
    /// [`RunStoreError`] if the store fails; the next call continues.
    pub async fn purge(&self) -> Result<usize, RunStoreError> {
        let Some(keep) = self.keep else { return Ok(0) };
        let now = self.clock.now();
        // First the files: without the run, nothing would lead to them after a crash.
        for name in self.folders().await {
            if (name.starts_with(REMOVED) || self.is_expired(&name, now, keep).await)
                && let Err(error) = self.remove_files(&name).await
            {
                tracing::warn!("files of a deleted run stay: {error}");
            }
        }
        Ok(self.runs.purge_runs(now, keep).await?.len())
    }

    /// Deletes the runs of a conversation, whatever their status. Returns how many.
    ///
    /// # Errors
    /// [`StoreError::Files`] if files cannot be removed: then no run is deleted, and the next call continues. Other errors of the store.
    pub async fn erase(&self, conversation: &ConversationId) -> Result<usize, StoreError> {
        let filter = RunFilter::default().conversation(conversation.clone());
        // First the files, as in `purge`.
        let listed = self.runs.runs(filter, limits::RUNS_LISTED).await?;
        self.remove_files_of(listed.into_iter().map(|run| run.id)).await?;
        let gone = self.runs.erase_runs(conversation).await?;
        // Those that were not listed, and what a run has written until it was deleted.
        let count = gone.len();
        self.remove_files_of(gone).await?;
        Ok(count)
    }

    /// Deletes runs past their retention now, and every [`limits::RUN_RETENTION_INTERVAL`] as long as it is polled. Never returns; a
    /// failure is logged.
    pub async fn keep(&self) {
        loop {
            if let Err(error) = self.purge().await {
                tracing::warn!(code = error.code(), "runs past their retention could not be deleted: {error}");
            }
            self.clock.sleep(self.clock.deadline(limits::RUN_RETENTION_INTERVAL)).await;
        }
    }

    /// Whether the folder of this name is that of a run that ended longer ago than its retention.
    async fn is_expired(&self, name: &str, now: Timestamp, keep: Duration) -> bool {
        // The id of a run that another one has led to has a `/` there.
        let Ok(Some(run)) = self.runs.summary(&RunId::new(name.replace('.', "/"))).await else { return false };
        let Some(ended) = run.ended_at.filter(|_| !run.is_job()) else { return false };
        let keep = i64::try_from(keep.as_micros()).unwrap_or(i64::MAX);
        ended.as_micros().saturating_add(keep) < now.as_micros()
    }

    /// The names of all folders of runs and conversations.
    async fn folders(&self) -> Vec<String> {
        let folder = self.folder.clone();
        let read = move || {
            let entries = std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
        };
        tokio::task::spawn_blocking(read).await.unwrap_or_default()
    }

    async fn remove_files_of(&self, runs: impl IntoIterator<Item = RunId>) -> Result<(), StoreError> {
        for run in runs {
            // A run whose id is no name of a folder has none.
            if let Ok(name) = run_folder(run.as_str()) {
                self.remove_files(&name).await.map_err(|error| StoreError::Files(error.to_string()))?;
            }
        }
        Ok(())
    }

    /// Removes a folder. It gets another name first, by which [`purge`](Self::purge) finds what a crash or an error leaves.
    async fn remove_files(&self, name: &str) -> io::Result<()> {
        let folder = self.folder.join(name);
        let removed = match name.starts_with(REMOVED) {
            true => folder.clone(),
            false => self.folder.join(format!("{REMOVED}{name}")),
        };
        let work = move || {
            // It may be missing, or an earlier one of the name may be left: both are removed below.
            let _ = std::fs::rename(&folder, &removed);
            remove_folder(&removed)?;
            remove_folder(&folder)
        };
        tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(io::Error::other(error)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

    use super::*;
    use crate::{
        store::runs::{MemoryRunStore, NewRun, RunBatch, RunFilter, RunStatus},
        testing::ManualClock,
    };

    const DAY: Duration = Duration::from_secs(24 * 3600);

    /// A store with a run of each status, and a folder for each.
    async fn runs(clock: &ManualClock, folder: &Path) -> Arc<MemoryRunStore> {
        let store = Arc::new(MemoryRunStore::new());
        for status in RunStatus::ALL {
            let id = status.name();
            let queued = status == RunStatus::Queued;
            let run = NewRun { queued, conversation: Some("c".into()), ..NewRun::new(id, "m", clock.now()) };
            store.start_run(run).await.unwrap();
            if !queued && status != RunStatus::Running {
                let batch = RunBatch { status: Some(status), ..RunBatch::new(id.into(), clock.now()) };
                store.append_run(batch).await.unwrap();
            }
            std::fs::create_dir_all(folder.join(".segue/runs").join(id).join("workspace")).unwrap();
        }
        store
    }

    async fn left(store: &MemoryRunStore, folder: &Path) -> Vec<String> {
        let runs = store.runs(RunFilter::default(), 99).await.unwrap();
        let mut ids: Vec<String> = runs.iter().map(|run| run.id.to_string()).collect();
        let folders = std::fs::read_dir(folder.join(".segue/runs")).unwrap();
        let mut names: Vec<String> = folders.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        ids.sort();
        names.sort();
        assert_eq!(ids, names, "each run has its folder, and no other folder is left");
        ids
    }

    #[tokio::test]
    async fn runs_that_ended_are_deleted_with_their_folders_after_their_retention() {
        for (setting, days) in [(None, 30), (Some(2), 2)] {
            let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
            let store = runs(&clock, folder.path()).await;
            let settings = RunsDef { retention_days: setting };
            let retention = RunRetention::new(store.clone(), Arc::new(clock.clone()), folder.path(), &settings);
            clock.advance(DAY * days);
            assert_eq!(retention.purge().await.unwrap(), 0);
            clock.advance(Duration::from_micros(1));
            assert_eq!(retention.purge().await.unwrap(), 4);
            assert_eq!(left(&store, folder.path()).await, ["queued", "running", "waiting"]);
        }
    }

    #[tokio::test]
    async fn runs_are_stored_for_ever_if_the_project_says_so() {
        let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
        let store = runs(&clock, folder.path()).await;
        let settings = RunsDef { retention_days: Some(0) };
        let retention = RunRetention::new(store.clone(), Arc::new(clock.clone()), folder.path(), &settings);
        clock.advance(DAY * 10_000);
        assert_eq!(retention.purge().await.unwrap(), 0);
        assert_eq!(left(&store, folder.path()).await.len(), RunStatus::ALL.len());
    }

    #[tokio::test]
    async fn runs_are_deleted_at_the_start_and_every_hour() {
        let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
        let store = runs(&clock, folder.path()).await;
        let settings = RunsDef { retention_days: Some(1) };
        let retention = RunRetention::new(store.clone(), Arc::new(clock.clone()), folder.path(), &settings);
        let mut keeping = std::pin::pin!(retention.keep());
        clock.advance(DAY - Duration::from_secs(1800));
        assert!(futures::poll!(&mut keeping).is_pending());
        assert_eq!(left(&store, folder.path()).await.len(), RunStatus::ALL.len());
        // The folders are read and removed on another thread, so the first call may not wait for the clock yet.
        while left_runs(&store).await > 3 || std::fs::read_dir(folder.path().join(".segue/runs")).unwrap().count() > 3 {
            clock.advance(limits::RUN_RETENTION_INTERVAL);
            assert!(futures::poll!(&mut keeping).is_pending());
            tokio::task::yield_now().await;
        }
    }

    async fn left_runs(store: &MemoryRunStore) -> usize {
        store.runs(RunFilter::default(), 99).await.unwrap().len()
    }

    #[tokio::test]
    async fn files_that_could_not_be_removed_are_removed_by_the_next_call() {
        let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
        let store = runs(&clock, folder.path()).await;
        let retention = RunRetention::new(store.clone(), Arc::new(clock.clone()), folder.path(), &RunsDef::default());
        // What a crash or an error leaves: a folder with its new name, and a part of another one.
        let all = folder.path().join(".segue/runs");
        std::fs::rename(all.join("failed"), all.join(".removed-failed")).unwrap();
        std::fs::create_dir_all(all.join(".removed-completed/left")).unwrap();
        clock.advance(DAY * 31);
        assert_eq!(retention.purge().await.unwrap(), 4);
        assert_eq!(left(&store, folder.path()).await, ["queued", "running", "waiting"]);
        // The conversation is erased as long as its files stay, so that it can be erased again.
        std::fs::remove_dir_all(&all).unwrap();
        std::fs::write(&all, "a file where the folders should be").unwrap();
        let error = retention.erase(&"c".into()).await.unwrap_err();
        assert!(error.code() == "S0109" && error.to_string().contains(".segue/runs"), "{error}");
        assert_eq!(left_runs(&store).await, 3);
        std::fs::remove_file(&all).unwrap();
        assert_eq!(retention.erase(&"c".into()).await.unwrap(), 3);
    }

    #[tokio::test]
    async fn files_are_removed_from_the_folder_that_the_program_sets() {
        let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
        let store = runs(&clock, folder.path()).await;
        let project = tempfile::tempdir().unwrap();
        let retention = RunRetention::new(store.clone(), Arc::new(clock), project.path(), &RunsDef::default());
        let retention = retention.workspace_folder(folder.path().join(".segue/runs"));
        assert_eq!(retention.erase(&"c".into()).await.unwrap(), RunStatus::ALL.len());
        assert!(left(&store, folder.path()).await.is_empty());
    }

    #[tokio::test]
    async fn the_runs_of_an_erased_conversation_are_deleted_whatever_their_status() {
        let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
        let store = runs(&clock, folder.path()).await;
        store.start_run(NewRun::new("other", "m", clock.now())).await.unwrap();
        std::fs::create_dir_all(folder.path().join(".segue/runs/other")).unwrap();
        let retention = RunRetention::new(store.clone(), Arc::new(clock), folder.path(), &RunsDef::default());
        assert_eq!(retention.erase(&"c".into()).await.unwrap(), RunStatus::ALL.len());
        assert_eq!(left(&store, folder.path()).await, ["other"]);
    }
}
