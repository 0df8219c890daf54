//! The deletion of runs past their retention, with the folders of their files.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use segue_engine::{
    ids::{ConversationId, RunId},
    project::RunsDef,
};

use crate::{
    clock::Clock,
    limits,
    store::runs::{RunStore, RunStoreError},
    tools::workspace::WorkspaceSettings,
};

/// Deletes runs, with the folders of their files. Cheap to clone.
#[derive(Clone)]
pub struct RunRetention {
    runs: Arc<dyn RunStore>,
    clock: Arc<dyn Clock>,
    project: PathBuf,
    keep: Option<Duration>,
}

impl RunRetention {
    /// The retention that a project sets, for the runs of this store. `project` is its folder.
    pub fn new(runs: Arc<dyn RunStore>, clock: Arc<dyn Clock>, project: &Path, settings: &RunsDef) -> Self {
        let keep = match settings.retention_days {
            None => Some(limits::RUN_RETENTION),
            Some(0) => None,
            Some(days) => Some(Duration::from_secs(u64::from(days).saturating_mul(24 * 3600))),
        };
        Self { runs, clock, project: project.to_owned(), keep }
    }

    /// Deletes the runs that ended longer ago than their retention, whatever their end was. Returns how many. Runs that have not ended
    /// stay, also those that wait for people.
    ///
    /// # Errors
    /// [`RunStoreError`] if the store fails; the next call continues.
    pub async fn purge(&self) -> Result<usize, RunStoreError> {
        let Some(keep) = self.keep else { return Ok(0) };
        let gone = self.runs.purge_runs(self.clock.now(), keep).await?;
        self.remove_folders(&gone).await;
        Ok(gone.len())
    }

    /// Deletes the runs of a conversation, whatever their status. Returns how many.
    ///
    /// # Errors
    /// As [`purge`](Self::purge).
    pub async fn erase(&self, conversation: &ConversationId) -> Result<usize, RunStoreError> {
        let gone = self.runs.erase_runs(conversation).await?;
        self.remove_folders(&gone).await;
        Ok(gone.len())
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

    async fn remove_folders(&self, runs: &[RunId]) {
        for run in runs {
            // A run whose id is no name of a folder has none.
            let Ok(settings) = WorkspaceSettings::for_run(&self.project, run.as_str()) else { continue };
            match tokio::fs::remove_dir_all(&settings.folder).await {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    tracing::warn!(
                        "the folder {} of a deleted run could not be removed: {error}",
                        settings.folder.display()
                    );
                }
                _ => {}
            }
        }
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
        clock.advance(limits::RUN_RETENTION_INTERVAL);
        // The folders are removed on another thread.
        while left_runs(&store).await > 3 || std::fs::read_dir(folder.path().join(".segue/runs")).unwrap().count() > 3 {
            assert!(futures::poll!(&mut keeping).is_pending());
            tokio::task::yield_now().await;
        }
    }

    async fn left_runs(store: &MemoryRunStore) -> usize {
        store.runs(RunFilter::default(), 99).await.unwrap().len()
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
