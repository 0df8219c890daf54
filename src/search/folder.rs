//! Reads the documents of a folder, and detects whether they changed.

use std::{
    collections::{BTreeMap, HashSet},
    fs, io,
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

use sha2::{Digest, Sha256};

use super::splitter::{self, Passage};
use crate::limits;

/// A folder of documents: `.txt`, `.md` and `.markdown` files, also in subfolders. Files and folders whose names begin with a
/// dot are skipped, and so are symbolic links that lead out of the folder.
#[derive(Clone, Debug)]
pub struct Folder {
    path: PathBuf,
    /// Paths are shown relative to this folder.
    shown_from: PathBuf,
}

/// Why the documents cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FolderError {
    /// The folder does not exist or cannot be read: its path, and the error.
    #[error(
        "the folder {0} cannot be read: {1}; check `vector_store.source` of `EnterpriseSearchPolicy` in config.yml"
    )]
    NoFolder(String, String),
    /// The folder, given by its path, contains no document.
    #[error("the folder {0} contains no documents; add files with the extension .txt or .md")]
    Empty(String),
}

/// The paths, sizes and modification times of all documents: shows whether they changed without reading them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FolderFingerprint(Vec<(PathBuf, u64, u128)>);

/// The contents of the documents.
#[derive(Debug)]
pub struct LoadedDocuments {
    /// All passages, in the order of the files' names.
    pub passages: Vec<Passage>,
    /// A SHA-256 hash of the paths and contents that were read.
    pub hash: [u8; 32],
    /// The documents that were not read, and why; for operators.
    pub skipped: Vec<String>,
}

impl Folder {
    /// The folder at `path`. The names of its documents are paths relative to `shown_from`.
    pub fn new(path: impl Into<PathBuf>, shown_from: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), shown_from: shown_from.into() }
    }

    /// Lists the documents. It blocks on the file system: do not call it on a thread of the async runtime.
    ///
    /// # Errors
    /// [`FolderError`] when the folder cannot be read or contains no document.
    pub fn fingerprint(&self) -> Result<FolderFingerprint, FolderError> {
        let shown = self.path.display().to_string();
        let no_folder = |error: io::Error| FolderError::NoFolder(shown.clone(), error.to_string());
        let root = self.path.canonicalize().map_err(no_folder)?;
        fs::read_dir(&root).map_err(no_folder)?;
        let found = documents(&root).map_err(no_folder)?;
        if found.is_empty() {
            return Err(FolderError::Empty(shown));
        }
        Ok(FolderFingerprint(found))
    }

    /// Reads the documents of a fingerprint, within the `KNOWLEDGE_*` limits of [`limits`]. It blocks on the file system.
    pub fn read(&self, fingerprint: &FolderFingerprint) -> LoadedDocuments {
        let mut loaded = LoadedDocuments { passages: Vec::new(), hash: [0; 32], skipped: Vec::new() };
        let mut hasher = Sha256::new();
        let root = self.shown_from.canonicalize().unwrap_or_else(|_| self.shown_from.clone());
        for (at, (path, length, _)) in fingerprint.0.iter().enumerate() {
            let shown = path.strip_prefix(&root).unwrap_or(path).display().to_string().replace('\\', "/");
            if at >= limits::KNOWLEDGE_FILES {
                loaded.skipped.push(format!("{shown} and all later documents: only {at} documents are read"));
                break;
            }
            if *length > limits::KNOWLEDGE_FILE as u64 {
                loaded.skipped.push(format!("{shown}: it is larger than {} bytes", limits::KNOWLEDGE_FILE));
                continue;
            }
            let text = match fs::read(path) {
                Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
                Err(error) => {
                    loaded.skipped.push(format!("{shown}: {error}"));
                    continue;
                }
            };
            for part in [shown.as_str(), text.as_str()] {
                hasher.update(part.len().to_le_bytes());
                hasher.update(part.as_bytes());
            }
            loaded.passages.extend(splitter::split(&shown, text.trim_start_matches('\u{FEFF}')));
            if loaded.passages.len() > limits::KNOWLEDGE_PASSAGES {
                loaded.passages.truncate(limits::KNOWLEDGE_PASSAGES);
                loaded.skipped.push(format!("the end of {shown} and all later documents: there are too many passages"));
                break;
            }
        }
        loaded.hash = hasher.finalize().into();
        loaded
    }
}

/// The documents below `root`: each canonical path once, with its size and modification time. Of more than the limit, the first by name and
/// one more, so that [`Folder::read`] can report that there are more. Folders are visited level by level, each once by its canonical path,
/// however many links lead to it.
fn documents(root: &Path) -> io::Result<Vec<(PathBuf, u64, u128)>> {
    let mut visited = HashSet::from([root.to_path_buf()]);
    let mut found = BTreeMap::new();
    let mut level = vec![root.to_path_buf()];
    for _ in 0..=limits::KNOWLEDGE_DEPTH {
        let mut next = Vec::new();
        for folder in level {
            let entries = match fs::read_dir(&folder) {
                Ok(entries) => entries,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            for entry in entries {
                let entry = entry?;
                if entry.file_name().to_string_lossy().starts_with('.') {
                    continue;
                }
                // A link to a path that does not exist, or out of the folder, leads to nothing.
                let Ok(path) = entry.path().canonicalize() else { continue };
                let Some(facts) = fs::metadata(&path).ok().filter(|_| path.starts_with(root)) else { continue };
                if facts.is_dir() {
                    if visited.insert(path.clone()) {
                        next.push(path);
                    }
                } else if facts.is_file() && is_document(&path) {
                    let changed = facts.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
                    found.insert(path, (facts.len(), changed.map_or(0, |at| at.as_nanos())));
                    if found.len() > limits::KNOWLEDGE_FILES + 1 {
                        found.pop_last();
                    }
                }
            }
        }
        level = next;
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
    fn documents_in_the_folder_are_read_and_other_files_are_not() {
        let (root, folder) = folder();
        assert!(matches!(folder.fingerprint(), Err(FolderError::Empty(_))));
        write(&root, "docs/b.md", "# Pets\nDogs.");
        write(&root, "docs/deep/a.txt", "Bags.");
        write(&root, "docs/.hidden.md", "no");
        write(&root, "docs/c.pdf", "no");
        write(&root, "outside.md", "no");
        #[cfg(unix)]
        std::os::unix::fs::symlink(root.path().join("outside.md"), root.path().join("docs/link.md")).unwrap();
        let loaded = folder.read(&folder.fingerprint().unwrap());
        let seen: Vec<_> = loaded.passages.iter().map(|one| (one.source(), &*one.text)).collect();
        assert_eq!(seen, [("docs/b.md", "Dogs."), ("docs/deep/a.txt", "Bags.")]);
        assert!(matches!(Folder::new("/nowhere-at-all", "/").fingerprint(), Err(FolderError::NoFolder(..))));
    }

    #[test]
    fn a_change_changes_the_fingerprint_and_equal_contents_have_equal_hashes() {
        let (root, folder) = folder();
        write(&root, "docs/a.md", "one");
        let (before, first) = (folder.fingerprint().unwrap(), folder.read(&folder.fingerprint().unwrap()).hash);
        write(&root, "docs/a.md", "one more");
        assert_ne!(folder.fingerprint().unwrap(), before);
        assert_ne!(folder.read(&folder.fingerprint().unwrap()).hash, first);
        write(&root, "docs/a.md", "one");
        assert_eq!(folder.read(&folder.fingerprint().unwrap()).hash, first);
    }

    #[test]
    fn of_too_many_documents_the_first_by_name_are_read_and_a_later_one_changes_nothing() {
        let (root, folder) = folder();
        // Names whose order differs from that in which they are written and listed.
        let names: Vec<String> =
            (0..limits::KNOWLEDGE_FILES + 50).map(|n| format!("{:05}.txt", n * 7919 % 100_003)).collect();
        for name in &names {
            write(&root, &format!("docs/{name}"), "x");
        }
        let mut sorted = names;
        sorted.sort();
        let expected: Vec<String> =
            sorted.iter().take(limits::KNOWLEDGE_FILES).map(|name| format!("docs/{name}")).collect();
        let before = folder.fingerprint().unwrap();
        let loaded = folder.read(&before);
        let read: Vec<&str> = loaded.passages.iter().map(Passage::source).collect();
        assert_eq!(read, expected);
        write(&root, "docs/zzz.txt", "x");
        assert_eq!(folder.fingerprint().unwrap(), before);
    }

    #[cfg(unix)]
    #[test]
    fn a_folder_to_which_many_links_lead_is_visited_once() {
        let (root, folder) = folder();
        // Each level has two links to the next one: followed one by one, they would be 2^40 folders.
        for level in 0..40 {
            write(&root, &format!("docs/{level}/a.md"), "x");
            for link in ["l1", "l2"] {
                let to = root.path().join(format!("docs/{}", (level + 1) % 40));
                std::os::unix::fs::symlink(to, root.path().join(format!("docs/{level}/{link}"))).unwrap();
            }
        }
        assert_eq!(folder.read(&folder.fingerprint().unwrap()).passages.len(), 40);
    }

    #[test]
    fn documents_beyond_the_limits_are_skipped_and_reported() {
        let (root, folder) = folder();
        write(&root, "docs/a.md", "small");
        write(&root, "docs/b.md", &"x".repeat(limits::KNOWLEDGE_FILE + 1));
        let loaded = folder.read(&folder.fingerprint().unwrap());
        assert_eq!(loaded.passages.len(), 1);
        assert!(loaded.skipped[0].starts_with("docs/b.md: "), "{:?}", loaded.skipped);

        write(&root, "docs/b.md", &"# h\nx\n".repeat(limits::KNOWLEDGE_PASSAGES + 1));
        let loaded = folder.read(&folder.fingerprint().unwrap());
        assert_eq!(loaded.passages.len(), limits::KNOWLEDGE_PASSAGES);
        assert!(loaded.skipped[0].contains("too many passages"), "{:?}", loaded.skipped);

        for n in 0..=limits::KNOWLEDGE_FILES {
            write(&root, &format!("docs/many/{n:05}.txt"), "x");
        }
        fs::remove_file(root.path().join("docs/b.md")).unwrap();
        let loaded = folder.read(&folder.fingerprint().unwrap());
        assert_eq!(loaded.passages.len(), limits::KNOWLEDGE_FILES);
        assert!(loaded.skipped[0].contains("documents are read"), "{:?}", loaded.skipped);

        let deep: String = (0..=limits::KNOWLEDGE_DEPTH).map(|n| format!("{n}/")).collect();
        fs::remove_dir_all(root.path().join("docs/many")).unwrap();
        write(&root, &format!("docs/{deep}a.md"), "deep");
        assert_eq!(folder.read(&folder.fingerprint().unwrap()).passages.len(), 1, "too deep");
    }
}
