//! The folder of a run on disk. Every file is opened relative to an open folder, one name at a time and without following links, so
//! a link that is exchanged between two steps leads nowhere.

use std::{
    io::{self, ErrorKind, Read},
    path::Path,
    process,
    sync::atomic::{AtomicU64, Ordering},
};

use cap_fs_ext::{DirExt, FollowSymlinks, OpenOptionsFollowExt, OpenOptionsSyncExt};
use cap_std::{
    ambient_authority,
    fs::{Dir, DirBuilder, File, OpenOptions},
};
use sha2::{Digest, Sha256};

use super::{
    error::FileError,
    path::{Area, VirtualPath},
    remove,
};
use segue_base::limits;

/// The folder of files that are being written; no tool reaches it.
const UNFINISHED: &str = "unfinished";
/// The file in it that is locked during a write.
const LOCK: &str = "lock";
/// The number of the next file that this process writes.
static NEXT_FILE: AtomicU64 = AtomicU64::new(0);

/// The SHA-256 of the content of a file.
pub(super) type Hash = [u8; 32];

/// What the files of a run take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of all files.
    pub bytes: u64,
    /// Files, folders and links. Those beyond [`limits::WORKSPACE_COUNTED`] are not counted.
    pub entries: u64,
    /// Whether folders are nested deeper than is counted.
    pub too_deep: bool,
}

/// The room on a file system.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Free {
    pub(super) bytes: u64,
    pub(super) entries: u64,
}

/// Which limit the files of a run exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Excess {
    Bytes,
    Entries,
    Depth,
}

impl Usage {
    /// Which limit is exceeded. `max_bytes`: the limit of the bytes.
    pub(super) fn excess(self, max_bytes: u64) -> Option<Excess> {
        self.growth(Self::default(), max_bytes)
    }

    /// As [`excess`](Self::excess), but what was above a limit before may stay there as long as it does not grow.
    pub(super) fn growth(self, before: Self, max_bytes: u64) -> Option<Excess> {
        match self {
            _ if self.too_deep => Some(Excess::Depth),
            _ if self.bytes > max_bytes.max(before.bytes) => Some(Excess::Bytes),
            _ if self.entries > limits::WORKSPACE_ENTRIES.max(before.entries) => Some(Excess::Entries),
            _ => None,
        }
    }

    /// Whether the file system has lost so much room since these files were counted that they may have used a quarter of what they may
    /// still take.
    pub(super) fn may_be_full(self, then: Option<Free>, now: Option<Free>, max_bytes: u64) -> bool {
        let (Some(then), Some(now)) = (then, now) else { return false };
        then.bytes.saturating_sub(now.bytes) > max_bytes.saturating_sub(self.bytes) / 4
            || then.entries.saturating_sub(now.entries) > limits::WORKSPACE_ENTRIES.saturating_sub(self.entries) / 4
    }
}

/// What is at a path.
pub(super) enum Node {
    File(File),
    Folder(Dir),
}

/// The open folders of a run.
pub(super) struct RunFolder {
    areas: [Dir; 3],
    writer: Writer,
}

/// Writes files of a folder as a whole.
pub(super) struct Writer {
    /// Where files are until they are complete; on the same file system.
    unfinished: Dir,
    /// Locked during a write. `None` if the file system has no such files.
    lock: Option<std::fs::File>,
}

/// The only write of a run, over all processes. It ends when this is dropped.
pub(super) struct WriteLock<'a>(Option<&'a std::fs::File>);

impl Drop for WriteLock<'_> {
    fn drop(&mut self) {
        // The system releases it at the latest when the process ends.
        self.0.map(std::fs::File::unlock);
    }
}

impl RunFolder {
    /// Opens the folder and creates what is missing.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        create_private(path)?;
        let root = Dir::open_ambient_dir(path, ambient_authority())?;
        let [first, second, third] = Area::ALL.map(|area| open_or_create(&root, area.as_str()));
        let writer = Writer::open(&root)?;
        Ok(Self { areas: [first?, second?, third?], writer })
    }

    /// Waits until no other process writes.
    pub(super) fn lock(&self) -> WriteLock<'_> {
        self.writer.lock()
    }

    /// The open folder of an area.
    pub(super) fn area(&self, area: Area) -> &Dir {
        let [workspace, uploads, outputs] = &self.areas;
        match area {
            Area::Workspace => workspace,
            Area::Uploads => uploads,
            Area::Outputs => outputs,
        }
    }

    /// The folder in which a path begins.
    fn start(&self, path: &VirtualPath) -> Result<&Dir, FileError> {
        path.area().map(|area| self.area(area)).ok_or_else(|| FileError::NotAFile(path.clone()))
    }

    /// How many folders above `path` are missing.
    pub(super) fn missing_folders(&self, path: &VirtualPath) -> Result<u64, FileError> {
        missing_folders(self.start(path)?, path)
    }

    /// Opens a regular file to read it.
    pub(super) fn file(&self, path: &VirtualPath) -> Result<File, FileError> {
        file(self.start(path)?, path)
    }

    /// Opens a folder.
    pub(super) fn folder(&self, path: &VirtualPath) -> Result<Dir, FileError> {
        folder(self.start(path)?, path)
    }

    /// Opens what is at a path below an area.
    pub(super) fn node(&self, path: &VirtualPath) -> Result<Node, FileError> {
        node(self.start(path)?, path)
    }

    /// Replaces a file as a whole, or creates it: readers see the old content or the new one. `write` fills the new file. Returns the
    /// number of folders that were created.
    pub(super) fn replace(
        &self,
        path: &VirtualPath,
        write: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> Result<u64, FileError> {
        self.writer.replace(self.start(path)?, path, write)
    }

    /// Counts all files. Stops early when there are too many.
    pub(super) fn usage(&self) -> io::Result<Usage> {
        let mut usage = Usage::default();
        for dir in &self.areas {
            count(dir, 0, &mut usage, Deep::Stays)?;
        }
        Ok(usage)
    }

    /// The room on its file system, if the system says it.
    pub(super) fn free(&self) -> Option<Free> {
        #[cfg(unix)]
        {
            let system = rustix::fs::fstatvfs(self.area(Area::Workspace)).ok()?;
            Some(Free { bytes: system.f_bfree.saturating_mul(system.f_frsize), entries: system.f_ffree })
        }
        #[cfg(not(unix))]
        None
    }

    /// Counts all files after the folders that are nested too deeply were removed.
    pub(super) fn usage_without_deep(&self) -> io::Result<Usage> {
        let mut usage = Usage::default();
        for dir in &self.areas {
            count(dir, 0, &mut usage, Deep::IsRemoved)?;
        }
        Ok(Usage { too_deep: false, ..usage })
    }
}

/// What happens to folders that are nested too deeply.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Deep {
    Stays,
    IsRemoved,
}

/// What the files of one folder take.
pub(super) fn usage_of(dir: &Dir) -> io::Result<Usage> {
    let mut usage = Usage::default();
    count(dir, 0, &mut usage, Deep::Stays)?;
    Ok(usage)
}

impl Writer {
    /// A writer for folders below `root`.
    pub(super) fn open(root: &Dir) -> io::Result<Self> {
        let unfinished = open_or_create(root, UNFINISHED)?;
        // What a crash left, but not what another process writes now.
        for entry in unfinished.entries()? {
            let name = entry?.file_name();
            if name.to_str().is_none_or(|name| name != LOCK && !is_written_now(name)) {
                let _ = unfinished.remove_file_or_symlink(name);
            }
        }
        let lock = unfinished.open_with(LOCK, private_file().create(true)).ok().map(File::into_std);
        Ok(Self { unfinished, lock })
    }

    /// Waits until no other process writes. On file systems without locks it does not wait.
    pub(super) fn lock(&self) -> WriteLock<'_> {
        WriteLock(self.lock.as_ref().filter(|file| file.lock().is_ok()))
    }

    /// See [`RunFolder::replace`].
    pub(super) fn replace(
        &self,
        start: &Dir,
        path: &VirtualPath,
        write: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> Result<u64, FileError> {
        let name = format!("{}-{}", process::id(), NEXT_FILE.fetch_add(1, Ordering::Relaxed));
        // An earlier process with this number may have left a file of this name.
        let mut options = private_file();
        options.create(true).truncate(true);
        let mut file = self.unfinished.open_with(&name, &options).map_err(|error| FileError::system(&error))?;
        let written = write(&mut file).map_err(|error| FileError::system(&error));
        drop(file);
        let placed = written.and_then(|()| {
            let (dir, last, created) = parent_created(start, path)?;
            // A rename replaces a link itself and leaves its target alone, and it gives a hard link a file of its own.
            match self.unfinished.rename(&name, &dir, last) {
                Ok(()) => Ok(created),
                Err(error) => Err(classified(&dir, last, path, &error)),
            }
        });
        if placed.is_err() {
            let _ = self.unfinished.remove_file(&name);
        }
        placed
    }
}

/// Creates a folder that only its owner can read.
pub(super) fn create_private_in(dir: &Dir, name: impl AsRef<Path>) -> io::Result<()> {
    #[cfg_attr(not(unix), allow(unused_mut))]
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    cap_std::fs::DirBuilderExt::mode(&mut builder, 0o700);
    dir.create_dir_with(name, &builder)
}

/// How a file is created that only its owner can read.
pub(super) fn private_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).follow(FollowSymlinks::No);
    #[cfg(unix)]
    cap_std::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Opens the folder `name`, and creates it if it is missing.
pub(super) fn open_or_create(root: &Dir, name: &str) -> io::Result<Dir> {
    match create_private_in(root, name) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        _ => root.open_dir_nofollow(name),
    }
}

/// The folder that contains `path`, which begins in `start`, and its last name.
pub(super) fn parent<'a>(start: &Dir, path: &'a VirtualPath) -> Result<(Dir, &'a str), FileError> {
    let Some((last, above)) = path.names().split_last() else { return Err(FileError::NotAFile(path.clone())) };
    let mut dir = start.try_clone().map_err(|error| FileError::system(&error))?;
    for name in above {
        dir = step(&dir, name, path)?;
    }
    Ok((dir, last))
}

/// As [`parent`], and creates the folders that are missing. Returns how many it created.
fn parent_created<'a>(start: &Dir, path: &'a VirtualPath) -> Result<(Dir, &'a str, u64), FileError> {
    let Some((last, above)) = path.names().split_last() else { return Err(FileError::NotAFile(path.clone())) };
    let mut dir = start.try_clone().map_err(|error| FileError::system(&error))?;
    let mut created = 0;
    for name in above {
        match create_private_in(&dir, name) {
            Ok(()) => created += 1,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(classified(&dir, name, path, &error)),
        }
        dir = step(&dir, name, path)?;
    }
    Ok((dir, last, created))
}

/// How many folders above `path` are missing.
pub(super) fn missing_folders(start: &Dir, path: &VirtualPath) -> Result<u64, FileError> {
    let Some((_, above)) = path.names().split_last() else { return Err(FileError::NotAFile(path.clone())) };
    let mut dir = start.try_clone().map_err(|error| FileError::system(&error))?;
    for (at, name) in above.iter().enumerate() {
        match step(&dir, name, path) {
            Ok(next) => dir = next,
            Err(FileError::NotFound(_)) => return Ok((above.len() - at) as u64),
            Err(error) => return Err(error),
        }
    }
    Ok(0)
}

/// Opens a regular file to read it.
pub(super) fn file(start: &Dir, path: &VirtualPath) -> Result<File, FileError> {
    match node(start, path)? {
        Node::File(file) => Ok(file),
        Node::Folder(_) => Err(FileError::NotAFile(path.clone())),
    }
}

/// Opens a folder.
pub(super) fn folder(start: &Dir, path: &VirtualPath) -> Result<Dir, FileError> {
    match node(start, path)? {
        Node::Folder(dir) => Ok(dir),
        Node::File(_) => Err(FileError::NotAFolder(path.clone())),
    }
}

/// Opens what is at a path.
pub(super) fn node(start: &Dir, path: &VirtualPath) -> Result<Node, FileError> {
    if path.names().is_empty() {
        return Ok(Node::Folder(start.try_clone().map_err(|error| FileError::system(&error))?));
    }
    let (dir, name) = parent(start, path)?;
    match open_file(&dir, name) {
        Ok(Some(file)) => Ok(Node::File(file)),
        Ok(None) => match dir.open_dir_nofollow(name) {
            Ok(dir) => Ok(Node::Folder(dir)),
            Err(error) => Err(classified(&dir, name, path, &error)),
        },
        Err(error) => Err(classified(&dir, name, path, &error)),
    }
}

/// Whether a process that runs now writes this unfinished file. Where processes cannot be listed, every file counts as abandoned.
fn is_written_now(name: &str) -> bool {
    let process = name.split('-').next().and_then(|number| number.parse::<u32>().ok());
    process.is_some_and(|number| number == process::id() || Path::new("/proc").join(number.to_string()).exists())
}

/// Creates a folder that only its owner can read.
pub(super) fn create_private(path: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

fn count(dir: &Dir, depth: usize, usage: &mut Usage, deep: Deep) -> io::Result<()> {
    for entry in dir.entries()? {
        if usage.entries > limits::WORKSPACE_COUNTED {
            return Ok(());
        }
        let entry = entry?;
        usage.entries = usage.entries.saturating_add(1);
        // A command may remove a file while it is counted.
        let Ok(metadata) = entry.metadata() else { continue };
        if !metadata.is_dir() {
            usage.bytes = usage.bytes.saturating_add(metadata.len());
        } else if depth == limits::WORKSPACE_NESTED {
            // What is in it is not counted, so it may not stay.
            usage.too_deep = true;
            if deep == Deep::IsRemoved {
                remove::remove_entry(dir, &entry.file_name())?;
                usage.entries -= 1;
            }
        } else if let Ok(below) = dir.open_dir_nofollow(entry.file_name()) {
            count(&below, depth + 1, usage, deep)?;
        }
    }
    Ok(())
}

/// Opens the folder `name` of `dir`.
pub(super) fn step(dir: &Dir, name: &str, path: &VirtualPath) -> Result<Dir, FileError> {
    dir.open_dir_nofollow(name).map_err(|error| classified(dir, name, path, &error))
}

/// Opens a regular file; `None` if it is something else. A pipe or a device does not block.
pub(super) fn open_file(dir: &Dir, name: impl AsRef<Path>) -> io::Result<Option<File>> {
    let name = name.as_ref();
    if !dir.symlink_metadata(name)?.is_file() {
        return Ok(None);
    }
    let mut options = OpenOptions::new();
    options.read(true).follow(FollowSymlinks::No).nonblock(true);
    let file = dir.open_with(name, &options)?;
    Ok(file.metadata()?.is_file().then_some(file))
}

/// Why `name` of `dir`, which is part of `path`, cannot be opened.
pub(super) fn classified(dir: &Dir, name: &str, path: &VirtualPath, error: &io::Error) -> FileError {
    match dir.symlink_metadata(name) {
        Ok(metadata) if metadata.is_symlink() => FileError::Link(path.clone()),
        Ok(metadata) if metadata.is_dir() => FileError::NotAFile(path.clone()),
        Ok(metadata) if metadata.is_file() => match error.kind() {
            ErrorKind::NotADirectory | ErrorKind::AlreadyExists => FileError::NotAFolder(path.clone()),
            _ => FileError::system(error),
        },
        Ok(_) => FileError::NotAFile(path.clone()),
        Err(missing) if missing.kind() == ErrorKind::NotFound => FileError::NotFound(path.clone()),
        Err(_) => FileError::system(error),
    }
}

/// A reader that computes the hash of all that is read from it.
pub(super) struct HashingReader<R> {
    inner: R,
    hash: Sha256,
}

impl<R: Read> HashingReader<R> {
    pub(super) fn new(inner: R) -> Self {
        Self { inner, hash: Sha256::new() }
    }
    pub(super) fn hash(self) -> Hash {
        self.hash.finalize().into()
    }
}

impl<R: Read> Read for HashingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.hash.update(buffer.get(..read).unwrap_or_default());
        Ok(read)
    }
}

/// The hash of the rest of a file.
pub(super) fn hash_of(file: impl Read) -> io::Result<Hash> {
    let mut reader = HashingReader::new(file);
    io::copy(&mut reader, &mut io::sink())?;
    Ok(reader.hash())
}
