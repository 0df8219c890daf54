//! The documents of a folder: which there are, what stands in them, and whether they changed.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

use sha2::{Digest, Sha256};
use walkdir::{DirEntry, WalkDir};

use super::passages::{Passage, passages};
use crate::limits;

/// A folder with documents: `.txt` and `.md`, in folders below it too. Files that begin with a dot are left out, and no
/// link leads out of the folder.
#[derive(Clone, Debug)]
pub struct Folder {
    path: PathBuf,
    /// How paths are shown: from here.
    shown_from: PathBuf,
}

/// Why the documents cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FolderError {
    /// There is no such folder.
    #[error("the folder {0} cannot be read: {1}; check `vector_store.source` of the policy")]
    NoFolder(String, String),
    /// It holds no document.
    #[error("the folder {0} holds no document; put files that end with .txt or .md into it")]
    Empty(String),
}

/// What tells whether documents changed, without reading them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp(Vec<(PathBuf, u64, u128)>);

/// The documents as they were read.
#[derive(Debug)]
pub struct Reading {
    /// All passages, in the order of the files' names.
    pub passages: Vec<Passage>,
    /// A hash over all that was read.
    pub hash: [u8; 32],
    /// What was left out, for operators.
    pub left_out: Vec<String>,
}

impl Folder {
    /// The folder at `path`, whose files are shown as paths from `shown_from`.
    pub fn new(path: impl Into<PathBuf>, shown_from: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), shown_from: shown_from.into() }
    }

    /// Lists the documents. Touches the disk: not for a thread that others wait for.
    ///
    /// # Errors
    /// [`FolderError`] when there is no folder or nothing in it.
    pub fn stamp(&self) -> Result<Stamp, FolderError> {
        let shown = self.path.display().to_string();
        let no_folder = |error: io::Error| FolderError::NoFolder(shown.clone(), error.to_string());
        let root = self.path.canonicalize().map_err(no_folder)?;
        fs::read_dir(&root).map_err(no_folder)?;
        let found = documents(&root).map_err(no_folder)?;
        if found.is_empty() {
            return Err(FolderError::Empty(shown));
        }
        Ok(Stamp(found))
    }

    /// Reads the documents of a stamp, within the limits of `limits.rs`.
    pub fn read(&self, stamp: &Stamp) -> Reading {
        let mut reading = Reading { passages: Vec::new(), hash: [0; 32], left_out: Vec::new() };
        let mut hasher = Sha256::new();
        let root = self.shown_from.canonicalize().unwrap_or_else(|_| self.shown_from.clone());
        for (at, (path, length, _)) in stamp.0.iter().enumerate() {
            let shown = path.strip_prefix(&root).unwrap_or(path).display().to_string().replace('\\', "/");
            if at >= limits::KNOWLEDGE_FILES {
                reading.left_out.push(format!("{shown} and what follows: only {at} documents are read"));
                break;
            }
            if *length > limits::KNOWLEDGE_FILE as u64 {
                reading.left_out.push(format!("{shown}: it has more than {} bytes", limits::KNOWLEDGE_FILE));
                continue;
            }
            let text = match fs::read(path) {
                Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
                Err(error) => {
                    reading.left_out.push(format!("{shown}: {error}"));
                    continue;
                }
            };
            for part in [shown.as_str(), text.as_str()] {
                hasher.update(part.len().to_le_bytes());
                hasher.update(part.as_bytes());
            }
            reading.passages.extend(passages(&shown, text.trim_start_matches('\u{FEFF}')));
            if reading.passages.len() > limits::KNOWLEDGE_PASSAGES {
                reading.passages.truncate(limits::KNOWLEDGE_PASSAGES);
                reading.left_out.push(format!("the end of {shown} and what follows: there are too many passages"));
                break;
            }
        }
        reading.hash = hasher.finalize().into();
        reading
    }
}

/// The documents below `root` by their real paths, each once, with size and time of change. One more than is read, so that the
/// reading can say that there are more.
fn documents(root: &Path) -> io::Result<Vec<(PathBuf, u64, u128)>> {
    let real = |entry: &DirEntry| entry.path().canonicalize().ok().filter(|path| path.starts_with(root));
    let is_wanted = |entry: &DirEntry| {
        entry.depth() == 0 || !entry.file_name().to_string_lossy().starts_with('.') && real(entry).is_some()
    };
    let walk = WalkDir::new(root).follow_links(true).max_depth(limits::KNOWLEDGE_DEPTH + 1).into_iter();
    let mut found = BTreeMap::new();
    for entry in walk.filter_entry(is_wanted) {
        let entry = match entry {
            Ok(entry) => entry,
            // A link that leads back, or nowhere.
            Err(error) if error.loop_ancestor().is_some() => continue,
            Err(error) if error.io_error().is_some_and(|error| error.kind() == io::ErrorKind::NotFound) => continue,
            Err(error) => return Err(error.into()),
        };
        let (Some(path), Ok(facts)) = (real(&entry), entry.metadata()) else { continue };
        if facts.is_file() && is_document(&path) {
            let changed = facts.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
            found.insert(path, (facts.len(), changed.map_or(0, |at| at.as_nanos())));
        }
        if found.len() > limits::KNOWLEDGE_FILES {
            break;
        }
    }
    Ok(found.into_iter().map(|(path, (length, changed))| (path, length, changed)).collect())
}

fn is_document(path: &Path) -> bool {
    let end = path.extension().map(|end| end.to_string_lossy().to_lowercase());
    matches!(end.as_deref(), Some("txt" | "md" | "markdown"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;

    fn folder() -> (tempfile::TempDir, Folder) {
        let root = tempfile::tempdir().unwrap();
        let docs = root.path().join("docs");
        fs::create_dir(&docs).unwrap();
        let folder = Folder::new(&docs, root.path());
        (root, folder)
    }

    fn write(root: &tempfile::TempDir, name: &str, text: &str) {
        let path = root.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn documents_below_are_read_and_others_are_not() {
        let (root, folder) = folder();
        assert!(matches!(folder.stamp(), Err(FolderError::Empty(_))));
        write(&root, "docs/b.md", "# Pets\nDogs.");
        write(&root, "docs/deep/a.txt", "Bags.");
        write(&root, "docs/.hidden.md", "no");
        write(&root, "docs/c.pdf", "no");
        write(&root, "outside.md", "no");
        #[cfg(unix)]
        std::os::unix::fs::symlink(root.path().join("outside.md"), root.path().join("docs/link.md")).unwrap();
        let reading = folder.read(&folder.stamp().unwrap());
        let seen: Vec<_> = reading.passages.iter().map(|one| (one.source(), &*one.text)).collect();
        assert_eq!(seen, [("docs/b.md", "Dogs."), ("docs/deep/a.txt", "Bags.")]);
        assert!(matches!(Folder::new("/nowhere-at-all", "/").stamp(), Err(FolderError::NoFolder(..))));
    }

    #[test]
    fn a_change_is_seen_and_equal_contents_have_one_hash() {
        let (root, folder) = folder();
        write(&root, "docs/a.md", "one");
        let (before, first) = (folder.stamp().unwrap(), folder.read(&folder.stamp().unwrap()).hash);
        write(&root, "docs/a.md", "one more");
        assert_ne!(folder.stamp().unwrap(), before);
        assert_ne!(folder.read(&folder.stamp().unwrap()).hash, first);
        write(&root, "docs/a.md", "one");
        assert_eq!(folder.read(&folder.stamp().unwrap()).hash, first);
    }

    #[test]
    fn what_is_too_much_is_left_out_and_told() {
        let (root, folder) = folder();
        write(&root, "docs/a.md", "small");
        write(&root, "docs/b.md", &"x".repeat(limits::KNOWLEDGE_FILE + 1));
        let reading = folder.read(&folder.stamp().unwrap());
        assert_eq!(reading.passages.len(), 1);
        assert!(reading.left_out[0].starts_with("docs/b.md: "), "{:?}", reading.left_out);

        write(&root, "docs/b.md", &"# h\nx\n".repeat(limits::KNOWLEDGE_PASSAGES + 1));
        let reading = folder.read(&folder.stamp().unwrap());
        assert_eq!(reading.passages.len(), limits::KNOWLEDGE_PASSAGES);
        assert!(reading.left_out[0].contains("too many passages"), "{:?}", reading.left_out);

        for n in 0..=limits::KNOWLEDGE_FILES {
            write(&root, &format!("docs/many/{n:05}.txt"), "x");
        }
        fs::remove_file(root.path().join("docs/b.md")).unwrap();
        let reading = folder.read(&folder.stamp().unwrap());
        assert_eq!(reading.passages.len(), limits::KNOWLEDGE_FILES);
        assert!(reading.left_out[0].contains("documents are read"), "{:?}", reading.left_out);

        let deep: String = (0..=limits::KNOWLEDGE_DEPTH).map(|n| format!("{n}/")).collect();
        fs::remove_dir_all(root.path().join("docs/many")).unwrap();
        write(&root, &format!("docs/{deep}a.md"), "deep");
        assert_eq!(folder.read(&folder.stamp().unwrap()).passages.len(), 1, "too deep");
    }
}
