//! The folder of a run on disk. Every file is opened relative to an open folder, one name at a time and without following links, so
//! a link that is exchanged between two steps leads nowhere.

use std::{
    io::{self, ErrorKind, Read},
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
};

use cap_fs_ext::{DirExt, FollowSymlinks, OpenOptionsFollowExt, OpenOptionsSyncExt};
use cap_std::{
    ambient_authority,
    fs::{Dir, File, OpenOptions},
};
use sha2::{Digest, Sha256};

use super::{
    error::FileError,
    path::{Area, VirtualPath},
};
use segue_base::limits;

/// The folder of files that are being written; no tool reaches it.
const UNFINISHED: &str = "unfinished";
/// Levels that are counted. A sandboxed command may make deeper folders than tools can.
const COUNTED_DEPTH: usize = 2 * limits::WORKSPACE_DEPTH;

/// The SHA-256 of the content of a file.
pub(super) type Hash = [u8; 32];

/// What the files of a run take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of all files.
    pub bytes: u64,
    /// Files, folders and links.
    pub entries: u64,
}

impl Usage {
    pub(super) fn exceeds(self, limit: u64) -> bool {
        self.bytes > limit || self.entries > limits::WORKSPACE_ENTRIES
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
    unfinished: Dir,
    counter: AtomicU64,
}

impl RunFolder {
    /// Opens the folder and creates what is missing.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        create_private(path)?;
        let root = Dir::open_ambient_dir(path, ambient_authority())?;
        let folder = |name: &str| {
            match root.create_dir(name) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
            root.open_dir_nofollow(name)
        };
        let [first, second, third] = Area::ALL.map(|area| folder(area.as_str()));
        let unfinished = folder(UNFINISHED)?;
        // What a crash left.
        for entry in unfinished.entries()? {
            let _ = unfinished.remove_file_or_symlink(entry?.file_name());
        }
        Ok(Self { areas: [first?, second?, third?], unfinished, counter: AtomicU64::new(0) })
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

    /// The folder that contains `path`, and its last name.
    fn parent<'a>(&self, path: &'a VirtualPath) -> Result<(Dir, &'a str), FileError> {
        let Some(area) = path.area() else { return Err(FileError::NotAFile(path.clone())) };
        let Some((last, above)) = path.names().split_last() else { return Err(FileError::NotAFile(path.clone())) };
        let mut dir = self.area(area).try_clone().map_err(|error| FileError::system(&error))?;
        for name in above {
            dir = step(&dir, name, path)?;
        }
        Ok((dir, last))
    }

    /// As [`parent`](Self::parent), and creates the folders that are missing. Returns how many it created.
    fn parent_created<'a>(&self, path: &'a VirtualPath) -> Result<(Dir, &'a str, u64), FileError> {
        let (Some(area), Some((last, above))) = (path.area(), path.names().split_last()) else {
            return Err(FileError::NotAFile(path.clone()));
        };
        let mut dir = self.area(area).try_clone().map_err(|error| FileError::system(&error))?;
        let mut created = 0;
        for name in above {
            match dir.create_dir(name) {
                Ok(()) => created += 1,
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(classified(&dir, name, path, &error)),
            }
            dir = step(&dir, name, path)?;
        }
        Ok((dir, last, created))
    }

    /// How many folders above `path` are missing.
    pub(super) fn missing_folders(&self, path: &VirtualPath) -> Result<u64, FileError> {
        let (Some(area), Some((_, above))) = (path.area(), path.names().split_last()) else {
            return Err(FileError::NotAFile(path.clone()));
        };
        let mut dir = self.area(area).try_clone().map_err(|error| FileError::system(&error))?;
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
    pub(super) fn file(&self, path: &VirtualPath) -> Result<File, FileError> {
        match self.node(path)? {
            Node::File(file) => Ok(file),
            Node::Folder(_) => Err(FileError::NotAFile(path.clone())),
        }
    }

    /// Opens a folder.
    pub(super) fn folder(&self, path: &VirtualPath) -> Result<Dir, FileError> {
        match self.node(path)? {
            Node::Folder(dir) => Ok(dir),
            Node::File(_) => Err(FileError::NotAFolder(path.clone())),
        }
    }

    /// Opens what is at a path below an area.
    pub(super) fn node(&self, path: &VirtualPath) -> Result<Node, FileError> {
        let Some(area) = path.area() else { return Err(FileError::NotAFile(path.clone())) };
        if path.names().is_empty() {
            let dir = self.area(area).try_clone().map_err(|error| FileError::system(&error))?;
            return Ok(Node::Folder(dir));
        }
        let (dir, name) = self.parent(path)?;
        match open_file(&dir, name) {
            Ok(Some(file)) => Ok(Node::File(file)),
            Ok(None) => match dir.open_dir_nofollow(name) {
                Ok(dir) => Ok(Node::Folder(dir)),
                Err(error) => Err(classified(&dir, name, path, &error)),
            },
            Err(error) => Err(classified(&dir, name, path, &error)),
        }
    }

    /// Replaces a file as a whole, or creates it: readers see the old content or the new one. `write` fills the new file. Returns the
    /// number of folders that were created.
    pub(super) fn replace(
        &self,
        path: &VirtualPath,
        write: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> Result<u64, FileError> {
        let name = format!("{}", self.counter.fetch_add(1, Ordering::Relaxed));
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).follow(FollowSymlinks::No);
        let mut file = self.unfinished.open_with(&name, &options).map_err(|error| FileError::system(&error))?;
        let written = write(&mut file).map_err(|error| FileError::system(&error));
        drop(file);
        let placed = written.and_then(|()| {
            let (dir, last, created) = self.parent_created(path)?;
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

    /// Counts all files. Stops early when there are too many.
    pub(super) fn usage(&self) -> io::Result<Usage> {
        let mut usage = Usage::default();
        for dir in &self.areas {
            count(dir, 0, &mut usage)?;
        }
        Ok(usage)
    }
}

/// Creates a folder that only its owner can read.
fn create_private(path: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

fn count(dir: &Dir, depth: usize, usage: &mut Usage) -> io::Result<()> {
    if depth > COUNTED_DEPTH {
        // Deeper folders are not counted, so nothing more may be written.
        usage.entries = u64::MAX;
        return Ok(());
    }
    for entry in dir.entries()? {
        if usage.entries > limits::WORKSPACE_ENTRIES {
            return Ok(());
        }
        let entry = entry?;
        usage.entries = usage.entries.saturating_add(1);
        // A command may remove a file while it is counted.
        let Ok(metadata) = entry.metadata() else { continue };
        if metadata.is_dir() {
            if let Ok(below) = dir.open_dir_nofollow(entry.file_name()) {
                count(&below, depth + 1, usage)?;
            }
        } else {
            usage.bytes = usage.bytes.saturating_add(metadata.len());
        }
    }
    Ok(())
}

/// Opens the folder `name` of `dir`.
fn step(dir: &Dir, name: &str, path: &VirtualPath) -> Result<Dir, FileError> {
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
fn classified(dir: &Dir, name: &str, path: &VirtualPath, error: &io::Error) -> FileError {
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

/// The hash of the rest of a file.
pub(super) fn hash_of(mut file: impl Read) -> io::Result<Hash> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(hash.finalize().into()),
            Ok(read) => hash.update(buffer.get(..read).unwrap_or_default()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
