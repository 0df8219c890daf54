//! The workspace of a run, and the tools that read and write its files.
//!
//! A [`Workspace`] is a folder with three areas: `workspace` for work, `uploads` for files of the user, which tools cannot change, and
//! `outputs` for results. [`WorkspaceTools`] are the tools of one agent in it. Models see [virtual paths](VIRTUAL_ROOT); host paths and
//! secrets are masked in results. No path leads out of the folder, and symbolic links are not followed.
//!
//! Two agents on one file cannot overwrite each other's work: `write_file` and `str_replace` change an existing file only if the same
//! agent has read or written its present content. Contents are compared, so that this holds for changes by commands and by other processes too.
//!
//! [`Workspaces`] are the workspaces of a process: one for each conversation or for each run of a mission.
//!
//! Missions have folders of their own, [`Slots`], with tools that name the folder in each call.
//!
//! `bash` runs commands only inside a [`Sandbox`], and is refused without one.

mod bash;
mod clarification;
mod copy;
mod error;
mod folder;
mod lines;
mod marks;
mod path;
mod readers;
mod registry;
mod remove;
mod sandbox;
mod search;
mod slot_tools;
mod slots;
mod tools;

use std::{
    fmt,
    io::{self, BufReader, Read},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::{sync::Notify, time::timeout};
use tokio_util::sync::CancellationToken;

use self::{
    folder::{Hash, HashingReader, RunFolder, hash_of},
    readers::ReadVersions,
};
use crate::mask::Masks;
use segue_base::{limits, secret::Secret};

pub use self::{
    clarification::{Clarification, ClarificationField, ClarificationKind, FieldKind},
    error::FileError,
    folder::Usage,
    path::{Area, PathProblem, VIRTUAL_ROOT, VirtualPath},
    registry::Workspaces,
    remove::remove_folder,
    sandbox::{Sandbox, SandboxError, SandboxPreset},
    slot_tools::{FILE_CREATE, FILE_DELETE, FILE_GREP, FILE_LIST, FILE_READ, FILE_SEARCH, FILE_TOOLS, SLOT_SOURCE},
    slots::{SCRATCHPAD, Slot, SlotSettings, Slots},
    tools::{
        ASK_CLARIFICATION, BASH, GLOB, GREP, LS, PRESENT_FILES, READ_FILE, SOURCE, STR_REPLACE, WRITE_FILE,
        WorkspaceTools,
    },
};

/// Where a workspace is, and what it may take.
#[derive(Clone, Debug)]
pub struct WorkspaceSettings {
    /// The folder of the run. Only one [`Workspace`] may use it at a time.
    pub folder: PathBuf,
    /// Bytes that all files together may have.
    pub max_bytes: u64,
    /// Host paths besides the folder that are masked in results, such as the folder of the project.
    pub hidden_paths: Vec<PathBuf>,
    /// Values that are masked in results.
    pub secrets: Vec<Secret>,
}

impl WorkspaceSettings {
    /// A workspace in this folder, of at most [`limits::WORKSPACE_BYTES`].
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            max_bytes: limits::WORKSPACE_BYTES,
            hidden_paths: Vec::new(),
            secrets: Vec::new(),
        }
    }

    /// The workspaces of a project, `.segue/runs`. The folder of the project is masked in results.
    ///
    /// # Errors
    /// The current folder is not known, and the path of the project is relative.
    pub fn for_project(project: &Path) -> Result<Self, FileError> {
        let project = std::path::absolute(project).map_err(|error| FileError::system(&error))?;
        let folder = project.join(".segue").join("runs");
        Ok(Self { hidden_paths: vec![project], ..Self::new(folder) })
    }

    /// The workspace `.segue/runs/<run>` of a project. The folder of the project is masked in results.
    ///
    /// # Errors
    /// [`FileError::Path`]: the id of the run is not made of letters, digits, `-`, `_` and single `/`, or is too long.
    pub fn for_run(project: &Path, run: &str) -> Result<Self, FileError> {
        let all = Self::for_project(project)?;
        Ok(Self { folder: all.folder.join(run_folder(run)?), ..all })
    }
}

/// The name of the folder of a run: its id. A run that another one has led to has an id such as `r1/next`, and the folder `r1.next`.
///
/// # Errors
/// As [`WorkspaceSettings::for_run`].
pub fn run_folder(run: &str) -> Result<String, FileError> {
    let is_word = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    if run.len() <= limits::WORKSPACE_NAME && run.split('/').all(is_word) {
        return Ok(run.replace('/', "."));
    }
    Err(FileError::Path { path: run.chars().take(limits::WORKSPACE_NAME).collect(), reason: PathProblem::Characters })
}

/// The folder of a run, created when it is first used. Cheap to clone; clones are the same workspace.
#[derive(Clone)]
pub struct Workspace {
    inner: Arc<Inner>,
}

struct Inner {
    root: PathBuf,
    max_bytes: u64,
    masks: Masks,
    /// Cancelled when the workspace is removed; ends running commands.
    closed: CancellationToken,
    /// Notified when a command has ended.
    idle: Notify,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    folder: Option<Arc<RunFolder>>,
    /// `None` if it must be counted.
    usage: Option<Usage>,
    /// Commands that run now; they may change every file.
    commands: usize,
}

/// What a write did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Written {
    Created,
    Replaced,
    /// The file has this content already.
    Unchanged,
}

/// How a file is changed.
enum Change<'a> {
    /// It gets this content.
    Content(&'a [u8]),
    /// This is added at its end.
    Append(&'a [u8]),
}

impl Workspace {
    /// A workspace. Nothing is created yet.
    pub fn new(settings: WorkspaceSettings) -> Self {
        let root = std::path::absolute(&settings.folder).unwrap_or(settings.folder);
        let masks = Masks::new(&root, &settings.hidden_paths, &settings.secrets);
        let inner = Inner {
            root,
            max_bytes: settings.max_bytes,
            masks,
            closed: CancellationToken::new(),
            idle: Notify::new(),
            state: Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Whether nothing else uses it now.
    fn is_idle(&self) -> bool {
        Arc::strong_count(&self.inner) == 1
    }

    /// The folder of the run on the host.
    pub fn folder(&self) -> &Path {
        &self.inner.root
    }

    /// What the files take now.
    ///
    /// # Errors
    /// [`FileError::Removed`] or [`FileError::System`].
    pub async fn usage(&self) -> Result<Usage, FileError> {
        self.run(|inner, _| inner.counted()).await
    }

    /// Puts a file of the user into `uploads`. Of a name with folders, the last part is used. An existing file of the name is replaced.
    ///
    /// # Errors
    /// The name is not allowed, or the file does not fit into the limits.
    pub async fn add_upload(&self, name: &str, content: Vec<u8>) -> Result<VirtualPath, FileError> {
        let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
        let path = VirtualPath::of_upload(last)?;
        let target = path.clone();
        self.run(move |inner, _| inner.write(&target, &Change::Content(&content), None)).await?;
        Ok(path)
    }

    /// The content of a file, such as one of `present_files`.
    ///
    /// # Errors
    /// There is no such file, or it is larger than [`limits::WORKSPACE_EDIT`].
    pub async fn read(&self, path: &VirtualPath) -> Result<Vec<u8>, FileError> {
        let path = path.clone();
        self.run(move |inner, _| content_of(&*inner.opened()?, &path)).await
    }

    /// Removes the folder with all files and ends the commands that run in it. Later calls of tools are refused.
    ///
    /// # Errors
    /// The system cannot remove it.
    pub async fn remove(&self) -> Result<(), FileError> {
        self.inner.closed.cancel();
        // A command that still writes would disturb the removal.
        let _ = timeout(limits::SANDBOX_CLOSE, self.inner.commands_ended()).await;
        let inner = self.inner.clone();
        let work = move || {
            let mut state = inner.state();
            *state = State::default();
            remove_folder(&inner.root).map_err(|error| FileError::system(&error))
        };
        flattened(tokio::task::spawn_blocking(work).await)
    }

    /// Performs file operations on a thread for blocking work. When the future is dropped, the operation is asked to stop.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner, &Abandoned) -> Result<T, FileError> + Send + 'static,
    ) -> Result<T, FileError> {
        let inner = self.inner.clone();
        let abandoned = Abandoned::default();
        let _guard = AbandonGuard(abandoned.clone());
        flattened(tokio::task::spawn_blocking(move || work(&inner, &abandoned)).await)
    }
}

fn flattened<T>(result: Result<Result<T, FileError>, tokio::task::JoinError>) -> Result<T, FileError> {
    result.unwrap_or_else(|error| Err(FileError::System(error.to_string())))
}

impl fmt::Debug for Workspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workspace").field("folder", &self.inner.root).finish_non_exhaustive()
    }
}

/// Whether the result of an operation is still wanted.
#[derive(Clone, Default)]
struct Abandoned(Arc<AtomicBool>);

impl Abandoned {
    fn check(&self) -> Result<(), FileError> {
        if self.0.load(Ordering::Relaxed) { Err(FileError::Abandoned) } else { Ok(()) }
    }
}

struct AbandonGuard(Abandoned);

impl Drop for AbandonGuard {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn commands_ended(&self) {
        loop {
            let ended = self.idle.notified();
            if self.state().commands == 0 {
                return;
            }
            ended.await;
        }
    }

    /// The open folder; creates it if necessary.
    fn opened(&self) -> Result<Arc<RunFolder>, FileError> {
        self.opened_in(&mut self.state())
    }

    fn opened_in(&self, state: &mut State) -> Result<Arc<RunFolder>, FileError> {
        if self.closed.is_cancelled() {
            return Err(FileError::Removed);
        }
        if let Some(folder) = &state.folder {
            return Ok(folder.clone());
        }
        let folder = Arc::new(RunFolder::open(&self.root).map_err(|error| FileError::system(&error))?);
        state.folder = Some(folder.clone());
        Ok(folder)
    }

    /// Counts the files. If no command runs, folders that are nested too deeply are removed first: what is in them is not counted, and no
    /// tool reaches it. Whether there were any.
    fn settled(&self) -> Result<(Usage, bool), FileError> {
        let mut state = self.state();
        let folder = self.opened_in(&mut state)?;
        let usage = usage_in(&mut state, &folder)?;
        if state.commands > 0 || !usage.too_deep {
            return Ok((usage, false));
        }
        let usage = folder.usage_without_deep().map_err(|error| FileError::system(&error))?;
        state.usage = Some(usage);
        Ok((usage, true))
    }

    fn counted(&self) -> Result<Usage, FileError> {
        let mut state = self.state();
        let folder = self.opened_in(&mut state)?;
        usage_in(&mut state, &folder)
    }

    /// Writes a file, and returns the hash of its new content. With `reader`, an existing file must have the version that this agent has
    /// read or written last; the runtime writes without it.
    fn write(
        &self,
        path: &VirtualPath,
        change: &Change<'_>,
        reader: Option<&ReadVersions>,
    ) -> Result<(Written, Hash), FileError> {
        // One write at a time: the version and the space are checked and used together.
        let mut state = self.state();
        let folder = self.opened_in(&mut state)?;
        let _lock = folder.lock();
        let written = self.write_in(&mut state, &folder, path, change, reader)?;
        if let Some(reader) = reader {
            // Who wrote the content knows it.
            reader.record(path, written.1);
        }
        Ok(written)
    }

    /// Changes the text of a file; `edit` gets its content.
    fn edit<T>(
        &self,
        path: &VirtualPath,
        reader: &ReadVersions,
        edit: impl FnOnce(String) -> Result<(String, T), FileError>,
    ) -> Result<(T, Hash), FileError> {
        let mut state = self.state();
        let folder = self.opened_in(&mut state)?;
        let _lock = folder.lock();
        let content = content_of(&folder, path)?;
        check_version(path, reader, || hash_of(content.as_slice()))?;
        let text = String::from_utf8(content).map_err(|_| FileError::Binary(path.clone()))?;
        if text.contains('\0') {
            return Err(FileError::Binary(path.clone()));
        }
        let (text, result) = edit(text)?;
        let change = Change::Content(text.as_bytes());
        let (_, hash) = self.write_in(&mut state, &folder, path, &change, Some(reader))?;
        reader.record(path, hash);
        Ok((result, hash))
    }

    fn write_in(
        &self,
        state: &mut State,
        folder: &RunFolder,
        path: &VirtualPath,
        change: &Change<'_>,
        reader: Option<&ReadVersions>,
    ) -> Result<(Written, Hash), FileError> {
        let failed = |error: io::Error| FileError::system(&error);
        let existing = match folder.file(path) {
            Ok(file) => Some(file),
            Err(FileError::NotFound(_)) => None,
            Err(error) => return Err(error),
        };
        let old_bytes = match &existing {
            Some(file) => file.metadata().map_err(failed)?.len(),
            None => 0,
        };
        if let Some(file) = &existing {
            if let Change::Content(content) = change
                && old_bytes == content.len() as u64
            {
                let hash = hash_of(*content).map_err(failed)?;
                if hash_of(file.try_clone().map_err(failed)?).map_err(failed)? == hash {
                    // The same call again, such as after a lost response.
                    return Ok((Written::Unchanged, hash));
                }
            }
            if let Some(reader) = reader {
                check_version(path, reader, || hash_of(folder.file(path).map_err(io::Error::other)?))?;
            }
        }
        if reader.is_some() {
            let (Change::Content(new) | Change::Append(new)) = change;
            let replaced = || match change {
                // A larger file cannot be compared.
                Change::Content(_) => Ok(content_of(folder, path).unwrap_or_default()),
                Change::Append(_) => Ok(Vec::new()),
            };
            self.masks.check_marks(path, &String::from_utf8_lossy(new), replaced)?;
        }
        let usage = usage_in(state, folder)?;
        let new_bytes = match change {
            Change::Content(content) => content.len() as u64,
            Change::Append(content) => old_bytes.saturating_add(content.len() as u64),
        };
        let needed = usage.bytes.saturating_sub(old_bytes).saturating_add(new_bytes);
        if needed > self.max_bytes && new_bytes > old_bytes {
            return Err(FileError::Quota { needed, limit: self.max_bytes });
        }
        if existing.is_none() {
            let entries = usage.entries.saturating_add(1).saturating_add(folder.missing_folders(path)?);
            if entries > limits::WORKSPACE_ENTRIES || usage.too_deep {
                return Err(FileError::TooManyFiles);
            }
        }
        // Counted again if the write fails half-way.
        state.usage = None;
        let mut hash = None;
        let created = folder.replace(path, |file| {
            let (old, content): (Box<dyn Read>, _) = match change {
                Change::Append(content) if existing.is_some() => {
                    (Box::new(BufReader::new(folder.file(path).map_err(io::Error::other)?)), content)
                }
                Change::Append(content) | Change::Content(content) => (Box::new(io::empty()), content),
            };
            let mut new = HashingReader::new(old.chain(*content));
            io::copy(&mut new, file)?;
            hash = Some(new.hash());
            Ok(())
        })?;
        let entries = usage.entries.saturating_add(created).saturating_add(u64::from(existing.is_none()));
        state.usage = Some(Usage { bytes: needed, entries, ..usage });
        let written = if existing.is_some() { Written::Replaced } else { Written::Created };
        Ok((written, hash.unwrap_or_default()))
    }
}

/// The content of a file of at most [`limits::WORKSPACE_EDIT`] bytes.
fn content_of(folder: &RunFolder, path: &VirtualPath) -> Result<Vec<u8>, FileError> {
    let file = folder.file(path)?;
    let bytes = file.metadata().map_err(|error| FileError::system(&error))?.len();
    let too_large = |bytes| FileError::FileTooLarge { path: path.clone(), bytes, limit: limits::WORKSPACE_EDIT };
    if bytes > limits::WORKSPACE_EDIT {
        return Err(too_large(bytes));
    }
    let mut content = Vec::new();
    // A command may extend the file while it is read.
    let read = file.take(limits::WORKSPACE_EDIT + 1).read_to_end(&mut content);
    read.map_err(|error| FileError::system(&error))?;
    if content.len() as u64 > limits::WORKSPACE_EDIT {
        return Err(too_large(content.len() as u64));
    }
    Ok(content)
}

fn usage_in(state: &mut State, folder: &RunFolder) -> Result<Usage, FileError> {
    if state.commands == 0
        && let Some(usage) = state.usage
    {
        return Ok(usage);
    }
    let usage = folder.usage().map_err(|error| FileError::system(&error))?;
    state.usage = Some(usage);
    Ok(usage)
}

/// Checks that the agent has read the present content of an existing file.
fn check_version(
    path: &VirtualPath,
    reader: &ReadVersions,
    hash: impl FnOnce() -> io::Result<Hash>,
) -> Result<(), FileError> {
    let Some(read) = reader.get(path) else { return Err(FileError::Unread(path.clone())) };
    let present = hash().map_err(|error| FileError::system(&error))?;
    if read == present { Ok(()) } else { Err(FileError::Changed(path.clone())) }
}

#[cfg(test)]
mod tests;
