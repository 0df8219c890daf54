//! Removes the scratchpads of old runs.

use std::{
    io,
    path::{Path, PathBuf},
};

use segue_engine::{ids::RunId, time::Timestamp};

use super::control::end_of;
use crate::{clock::Clock, limits, store::runs::RunStore, tools::workspace::SCRATCHPAD};

/// Removes the scratchpad of each run that has ended and that started longer ago than [`limits::SCRATCHPAD_RETENTION`]. A run that is not in
/// the store may be that of another store, so its files stay. A failure is logged.
pub(super) async fn sweep(runs: &dyn RunStore, clock: &dyn Clock, folder: &Path) {
    let retention = i64::try_from(limits::SCRATCHPAD_RETENTION.as_micros()).unwrap_or(i64::MAX);
    let latest = Timestamp::from_micros(clock.now().as_micros().saturating_sub(retention));
    let folder = folder.to_owned();
    let found = tokio::task::spawn_blocking(move || scratchpads(&folder)).await.unwrap_or_default();
    for (run, scratchpad) in found {
        let run = RunId::new(run);
        let Ok(Some(stored)) = runs.run(&run).await else { continue };
        if stored.summary.started_at > latest || end_of(stored.summary.status).is_none() {
            continue;
        }
        let removed = tokio::task::spawn_blocking(move || std::fs::remove_dir_all(scratchpad)).await;
        if let Err(error) = removed.unwrap_or_else(|error| Err(io::Error::other(error))) {
            tracing::warn!(%error, %run, "the scratchpad of an old run was not removed");
        }
    }
}

/// The scratchpads in the folders of runs, each with the id of its run.
fn scratchpads(runs: &Path) -> Vec<(String, PathBuf)> {
    let Ok(entries) = std::fs::read_dir(runs) else { return Vec::new() };
    let mut found = Vec::new();
    for entry in entries.filter_map(Result::ok).take(limits::RUNS_LISTED) {
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
        store::runs::{MemoryRunStore, NewRun, RunBatch, RunStatus},
        testing::ManualClock,
    };

    #[tokio::test]
    async fn scratchpads_of_ended_runs_are_removed_a_week_after_their_start() {
        let (folder, clock, store) = (tempfile::tempdir().unwrap(), ManualClock::new(), MemoryRunStore::new());
        let scratchpad = |run: &str| folder.path().join(run).join(SCRATCHPAD);
        for (run, status) in [("old", Some(RunStatus::Completed)), ("waits", None), ("new", Some(RunStatus::Failed))] {
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
        let left = ["old", "waits", "new", "unknown"].map(|run| scratchpad(run).is_dir());
        assert_eq!(left, [false, true, true, true]);
        assert!(folder.path().join("old").is_dir(), "the other files of the run stay");
    }
}
