//! Removes the scratchpads of old runs.

use std::{
    io,
    path::{Path, PathBuf},
};

use segue_engine::{ids::RunId, time::Timestamp};

use crate::{
    clock::Clock,
    limits,
    store::runs::{RunStatus, RunStore},
    tools::workspace::{SCRATCHPAD, remove_folder},
};

/// Removes the scratchpad of each completed run that started longer ago than [`limits::SCRATCHPAD_RETENTION`]. Other runs can be resumed: they
/// keep it until they are deleted. A run that is not in the store may be that of another store, so its files stay. A failure is logged.
pub(super) async fn sweep(runs: &dyn RunStore, clock: &dyn Clock, folder: &Path) {
    let retention = i64::try_from(limits::SCRATCHPAD_RETENTION.as_micros()).unwrap_or(i64::MAX);
    let latest = Timestamp::from_micros(clock.now().as_micros().saturating_sub(retention));
    let folder = folder.to_owned();
    let found = tokio::task::spawn_blocking(move || scratchpads(&folder)).await.unwrap_or_default();
    for (run, scratchpad) in found {
        let run = RunId::new(run);
        let Ok(Some(stored)) = runs.summary(&run).await else { continue };
        if stored.started_at > latest || stored.status != RunStatus::Completed {
            continue;
        }
        let removed = tokio::task::spawn_blocking(move || remove_folder(&scratchpad)).await;
        if let Err(error) = removed.unwrap_or_else(|error| Err(io::Error::other(error))) {
            tracing::warn!(%error, %run, "the scratchpad of an old run was not removed");
        }
    }
}

/// The scratchpads in the folders of runs, each with the id of its run.
fn scratchpads(runs: &Path) -> Vec<(String, PathBuf)> {
    let Ok(entries) = std::fs::read_dir(runs) else { return Vec::new() };
    let mut found = Vec::new();
    for entry in entries.filter_map(Result::ok) {
        let scratchpad = entry.path().join(SCRATCHPAD);
        // A link is not followed.
        let is_folder = std::fs::symlink_metadata(&scratchpad).is_ok_and(|metadata| metadata.is_dir());
        if let Ok(run) = entry.file_name().into_string()
            && is_folder
        {
            // The id of a run that another one has led to has a `/` there.
            found.push((run.replace('.', "/"), scratchpad));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use super::*;
    use crate::{
        store::runs::{MemoryRunStore, NewRun, RunBatch},
        testing::ManualClock,
    };

    #[tokio::test]
    async fn scratchpads_of_completed_runs_are_removed_a_week_after_their_start() {
        let (folder, clock, store) = (tempfile::tempdir().unwrap(), ManualClock::new(), MemoryRunStore::new());
        let scratchpad = |run: &str| folder.path().join(run).join(SCRATCHPAD);
        let resumable = [("failed", Some(RunStatus::Failed)), ("stopped", Some(RunStatus::Stopped)), ("waits", None)];
        // More folders of conversations than are listed at once do not hide a run.
        for number in 0..=limits::RUNS_LISTED {
            std::fs::create_dir(folder.path().join(format!("c-{number}"))).unwrap();
        }
        let runs = [("old", Some(RunStatus::Completed)), ("new", Some(RunStatus::Completed))];
        for (run, status) in resumable.into_iter().chain(runs) {
            if run == "new" {
                clock.advance(Duration::from_secs(8 * 24 * 3600));
            }
            store.start_run(NewRun::new(run, "m", clock.now())).await.unwrap();
            if status.is_some() {
                let batch = RunBatch { status, ..RunBatch::new(run.into(), clock.now()) };
                store.append_run(batch).await.unwrap();
            }
            std::fs::create_dir_all(scratchpad(run)).unwrap();
        }
        std::fs::create_dir_all(scratchpad("unknown")).unwrap();
        sweep(&store, &clock, folder.path()).await;
        let left = ["failed", "stopped", "waits", "old", "new", "unknown"].map(|run| scratchpad(run).is_dir());
        assert_eq!(left, [true, true, true, false, true, true]);
        assert!(folder.path().join("old").is_dir(), "the other files of the run stay");
    }
}
