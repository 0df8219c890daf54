//! Inputs of type `file`: checked before a run starts, and copied into its folder.

use std::{io::Read, path::Path, sync::Arc};

use segue_engine::{
    ids::RunId,
    mission::inputs::{self, InputProblem},
    project::missions::MissionDef,
};
use serde_json::{Map, Value as Json};

use super::parts::MissionParts;
use crate::{limits, tools::workspace::VirtualPath};

/// Where the files of inputs are.
#[derive(Clone, Debug)]
pub(super) enum FileSource {
    /// On this machine.
    Host,
    /// In the folder of another run: copies that it got.
    Run(RunId),
    /// None: the inputs come from a model, which must not choose files of this machine.
    Refused,
}

/// A file of an input.
struct InputFile {
    /// The name of its copy.
    name: String,
    content: Vec<u8>,
}

/// Files that were read for a run, which are not copied yet.
#[derive(Default)]
pub(super) struct InputFiles(Vec<InputFile>);

impl InputFiles {
    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Checks the files of the inputs of a mission, as at the start of a run: whether each can be read and is not too large. Returns the inputs
/// with the paths of the copies, as agents will see them.
///
/// # Errors
/// All problems of files, sorted by the names of the inputs.
pub fn input_files(def: &MissionDef, given: &Map<String, Json>) -> Result<Map<String, Json>, Vec<InputProblem>> {
    let read = inputs::files(&def.inputs, given).map(|(_, path)| read_host(Path::new(path.trim())).map(drop)).collect();
    with_copies(def, given, read).map(|(inputs, _)| inputs)
}

/// The inputs of a run with the paths of the copies, and for each copy its name and what was read.
type Copies<T> = (Map<String, Json>, Vec<(String, T)>);

/// The inputs with the paths of the copies. `read`: what was read, in the order of the inputs.
fn with_copies<T>(
    def: &MissionDef,
    given: &Map<String, Json>,
    read: Vec<Result<T, String>>,
) -> Result<Copies<T>, Vec<InputProblem>> {
    let files: Vec<(&Arc<str>, &str)> =
        inputs::files(&def.inputs, given).map(|(name, path)| (name, path.trim())).collect();
    let (mut inputs, mut copies, mut problems) = (given.clone(), Vec::new(), Vec::new());
    for (((input, _), name), read) in files.iter().zip(inputs::copy_names(files.iter().copied())).zip(read) {
        let path = VirtualPath::of_upload(&name).map_err(|error| error.to_string());
        match read.and_then(|read| Ok((path?, read))) {
            Ok((path, read)) => {
                inputs.insert(input.to_string(), Json::from(path.to_string()));
                copies.push((name, read));
            }
            Err(problem) => problems.push(InputProblem { input: (*input).clone(), problem }),
        }
    }
    if problems.is_empty() {
        return Ok((inputs, copies));
    }
    problems.sort_by(|a, b| a.input.cmp(&b.input));
    Err(problems)
}

fn read_host(path: &Path) -> Result<Vec<u8>, String> {
    let shown = path.display();
    let failed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => format!("there is no file {shown}; the path is relative to the current folder"),
        _ => format!("the file {shown} cannot be read: {error}"),
    };
    let metadata = std::fs::metadata(path).map_err(failed)?;
    if metadata.is_dir() {
        return Err(format!("{shown} is a folder; name one file"));
    }
    if !metadata.is_file() {
        return Err(format!("{shown} is not a regular file"));
    }
    let too_large =
        |bytes: u64| format!("the file {shown} has {bytes} bytes, more than {} (`MISSION_FILE`)", limits::MISSION_FILE);
    if metadata.len() > limits::MISSION_FILE {
        return Err(too_large(metadata.len()));
    }
    let mut content = Vec::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    // It may grow while it is read.
    file.take(limits::MISSION_FILE.saturating_add(1)).read_to_end(&mut content).map_err(failed)?;
    let read = u64::try_from(content.len()).unwrap_or(u64::MAX);
    if read > limits::MISSION_FILE { Err(too_large(read)) } else { Ok(content) }
}

impl MissionParts {
    /// Reads the files of inputs. Returns the inputs with the paths of the copies.
    pub(super) async fn read_files(
        &self,
        def: &MissionDef,
        given: &Map<String, Json>,
        source: &FileSource,
    ) -> Result<(Map<String, Json>, InputFiles), Vec<InputProblem>> {
        let mut read = Vec::new();
        for (_, path) in inputs::files(&def.inputs, given) {
            read.push(self.read_file(path.trim(), source).await);
        }
        let (inputs, copies) = with_copies(def, given, read)?;
        let files = copies.into_iter().map(|(name, content)| InputFile { name, content }).collect();
        Ok((inputs, InputFiles(files)))
    }

    async fn read_file(&self, path: &str, source: &FileSource) -> Result<Vec<u8>, String> {
        match source {
            FileSource::Host => {
                let path = Path::new(path).to_owned();
                let read = tokio::task::spawn_blocking(move || read_host(&path)).await;
                read.unwrap_or_else(|error| Err(error.to_string()))
            }
            FileSource::Run(run) => {
                let gone = |reason: String| format!("the copy that run {run} got cannot be read: {reason}");
                let path = VirtualPath::parse(path).map_err(|error| gone(error.to_string()))?;
                let workspace = self.workspaces.of_run(run.as_str()).map_err(|error| gone(error.to_string()))?;
                workspace.read(&path).await.map_err(|error| gone(error.to_string()))
            }
            FileSource::Refused => Err("a run that follows another one cannot be given a file".into()),
        }
    }

    /// Copies files into the folder of a run.
    pub(super) async fn copy_files(&self, run: &RunId, files: InputFiles) -> Result<(), String> {
        if files.0.is_empty() {
            return Ok(());
        }
        let workspace = self.workspaces.of_run(run.as_str()).map_err(|error| error.to_string())?;
        for InputFile { name, content } in files.0 {
            workspace.add_upload(&name, content).await.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Removes the folder of a run that was not started.
    pub(super) async fn remove_files(&self, run: &RunId) {
        if let Err(error) = self.workspaces.remove(run.as_str()).await {
            tracing::warn!(%error, %run, "the files of a run that did not start were not removed");
        }
    }
}
