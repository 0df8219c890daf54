//! The files that a run has produced, for people and programs: where they are on the disk.

use std::path::{Path, PathBuf};

use segue_engine::ids::RunId;

use crate::{
    limits,
    tools::workspace::{Area, SCRATCHPAD, WorkspaceSettings, run_folder},
};

/// Folders in folders that are read.
const DEEPEST: usize = 16;

/// The files of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunFiles {
    /// The folder of the run.
    pub folder: PathBuf,
    /// The first files in it, those of `outputs` before those of `workspace` and `scratchpad`; at most [`limits::RUN_FILES_NAMED`].
    pub files: Vec<RunFile>,
    /// How many more there are.
    pub more: usize,
}

/// One file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunFile {
    /// Its path in the folder of the run, such as `outputs/report.md`.
    pub path: String,
    /// Its size.
    pub bytes: u64,
}

impl RunFiles {
    /// The files of a run of the project in this folder. `None` if it has none. Links are no files, and what cannot be read is left out.
    pub async fn of(project: &Path, run: &RunId) -> Option<Self> {
        let folder = WorkspaceSettings::for_project(project).ok()?.folder;
        Self::below(&folder, run).await
    }

    /// As [`of`](Self::of), for the folder that contains those of runs: that of [`Workspaces`](crate::tools::workspace::Workspaces).
    pub async fn below(folder: &Path, run: &RunId) -> Option<Self> {
        // A run whose id is no name of a folder has none.
        let folder = folder.join(run_folder(run.as_str()).ok()?);
        tokio::task::spawn_blocking(move || Self::read(folder)).await.ok()?
    }

    fn read(folder: PathBuf) -> Option<Self> {
        let mut found = Self { folder: folder.clone(), files: Vec::new(), more: 0 };
        for area in [Area::Outputs.as_str(), Area::Workspace.as_str(), SCRATCHPAD] {
            found.add(&folder.join(area), area, 0);
        }
        (!found.files.is_empty()).then_some(found)
    }

    fn add(&mut self, folder: &Path, path: &str, depth: usize) {
        let Ok(entries) = std::fs::read_dir(folder) else { return };
        let mut entries: Vec<_> = entries.filter_map(Result::ok).collect();
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            // Of the entry itself: a link is not followed.
            let Ok(metadata) = entry.metadata() else { continue };
            let path = format!("{path}/{}", entry.file_name().to_string_lossy());
            if metadata.is_dir() && depth < DEEPEST {
                self.add(&entry.path(), &path, depth + 1);
            } else if metadata.is_file() {
                match self.files.len() < limits::RUN_FILES_NAMED {
                    true => self.files.push(RunFile { path, bytes: metadata.len() }),
                    false => self.more += 1,
                }
            }
        }
    }
}
