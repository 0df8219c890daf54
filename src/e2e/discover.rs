//! Finding test files: the paths of the command line, the files in folders, and the `conftest.yml` files that apply to them.

use std::{
    collections::BTreeMap,
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use segue_engine::{
    finding::{Finding, Findings, SourceLocation},
    limits::{PROJECT_FILES, YAML_FILE},
    project::{SourceFile, Sources, test_cases::TestFile},
};
use walkdir::{DirEntry, WalkDir};

use crate::project::read_limited;

/// The folders that are searched if neither the command line nor `tests` of `config.yml` names a path.
const DEFAULT_FOLDERS: [&str; 3] = ["tests", "e2e_tests", "e2e"];

/// The selected test files, read and checked.
#[derive(Debug, Default)]
pub struct Selection {
    pub(super) files: Vec<SelectedFile>,
    /// The `conftest.yml` of each folder.
    pub(super) conftests: BTreeMap<PathBuf, Arc<TestFile>>,
    findings: Findings,
    texts: Sources,
    /// The project's folder.
    pub(super) root: PathBuf,
}

/// A test file and the cases selected in it.
#[derive(Debug)]
pub(super) struct SelectedFile {
    pub(super) path: PathBuf,
    pub(super) file: TestFile,
    /// The name of the only selected case; none selects all cases.
    pub(super) only: Option<String>,
}

impl Selection {
    /// Finds and reads test files. Each path is a file, a folder or `file::case`, relative to the current directory. Without paths,
    /// `configured` is used (`tests` of `config.yml`, relative to `root`), or else `tests`, `e2e_tests` and `e2e` of the project at
    /// `root`. Errors are among the [`findings`](Self::findings).
    pub fn read(root: &Path, paths: &[String], configured: Option<&[Arc<str>]>) -> Self {
        let mut selection = Self { root: root.to_path_buf(), ..Self::default() };
        if paths.is_empty() {
            match configured {
                Some(named) => {
                    for name in named {
                        selection.add_path(&root.join(&**name), None);
                    }
                }
                None => {
                    for folder in DEFAULT_FOLDERS.map(|name| root.join(name)).iter().filter(|folder| folder.is_dir()) {
                        selection.add_path(folder, None);
                    }
                }
            }
        }
        for path in paths {
            match path.split_once("::") {
                Some((file, case)) => selection.add_path(Path::new(file), Some(case)),
                None => selection.add_path(Path::new(path), None),
            }
        }
        selection
    }

    /// Whether no case was found.
    pub fn is_empty(&self) -> bool {
        self.files.iter().all(|selected| selected.file.cases.is_empty())
    }

    /// The findings about the files, and the texts of the files for showing their lines.
    pub fn findings(&self) -> (&[Finding], &Sources) {
        (self.findings.as_slice(), &self.texts)
    }

    fn add_path(&mut self, path: &Path, only: Option<&str>) {
        if path.is_dir() {
            self.add_folder(path);
        } else if path.is_file() {
            self.add_file(path, only, true);
        } else {
            self.add_error(
                path,
                "there is no such file or folder",
                "Name a file, a folder, or `file.yml::name of a case`.",
            );
        }
    }

    fn add_folder(&mut self, folder: &Path) {
        let is_searched = |entry: &DirEntry| {
            let name = entry.file_name().to_str().unwrap_or(".");
            entry.depth() == 0 || !(name.starts_with('.') || matches!(name, "target" | "node_modules"))
        };
        for entry in WalkDir::new(folder).follow_links(true).sort_by_file_name().into_iter().filter_entry(is_searched) {
            match entry {
                Ok(entry) if entry.file_type().is_dir() => {}
                Ok(entry) => {
                    if entry.path().extension().is_some_and(|extension| extension == "yml" || extension == "yaml") {
                        self.add_file(entry.path(), None, false);
                    }
                }
                // The target of a symbolic link to a parent folder is searched anyway; a dangling link has no file.
                Err(error) if error.loop_ancestor().is_some() || is_not_found(&error) => {}
                Err(error) => {
                    let path = error.path().unwrap_or(folder);
                    self.add_error(path, &format!("the folder cannot be read: {error}"), "Check its permissions.");
                }
            }
        }
    }

    /// Reads one file. If it is not `named` but found in a folder, it is skipped unless a line starts with `test_cases`.
    fn add_file(&mut self, path: &Path, only: Option<&str>, named: bool) {
        if is_conftest(path) || self.files.len() >= PROJECT_FILES {
            return;
        }
        if let (Some(only), Some(selected)) = (only, self.files.iter().find(|selected| selected.path == path)) {
            // Another case of a file that was read before.
            let file = TestFile {
                path: selected.file.path.clone(),
                shared: selected.file.shared.clone(),
                cases: selected.file.cases.clone(),
            };
            return self.select(path, file, Some(only));
        }
        let Some(source) = self.read_source(path) else { return };
        if !named && !source.text.lines().any(|line| line.trim_start_matches('\u{feff}').starts_with("test_cases")) {
            return;
        }
        let (file, findings) = TestFile::read(&source);
        findings.into_iter().for_each(|finding| self.findings.push(finding));
        self.texts.texts.insert(source.path.to_string(), source.text);
        self.conftests_above(path);
        if let Some(file) = file {
            self.select(path, file, only);
        }
    }

    fn select(&mut self, path: &Path, file: TestFile, only: Option<&str>) {
        if let Some(only) = only
            && !file.cases.iter().any(|case| &*case.name == only)
        {
            let names = file.cases.iter().map(|case| &*case.name);
            let help = match segue_engine::finding::did_you_mean(only, names) {
                Some(near) => format!("Did you mean `{near}`?"),
                None => "Write the name of a case as in its `test_case` key.".to_owned(),
            };
            let message = format!("the file has no case `{only}` that can be run");
            return self.add_error(path, &message, &help);
        }
        self.files.push(SelectedFile { path: path.to_path_buf(), file, only: only.map(str::to_owned) });
    }

    /// Reads the `conftest.yml` files that apply to the file at `path`, each once.
    fn conftests_above(&mut self, path: &Path) {
        for folder in folders_above(&self.root, path) {
            if self.conftests.contains_key(&folder) {
                continue;
            }
            let candidates = ["conftest.yml", "conftest.yaml"].map(|name| folder.join(name));
            let Some(path) = candidates.iter().find(|path| path.is_file()) else { continue };
            let Some(source) = self.read_source(path) else { continue };
            let (file, findings) = TestFile::read_conftest(&source);
            findings.into_iter().for_each(|finding| self.findings.push(finding));
            self.texts.texts.insert(source.path.to_string(), source.text);
            if let Some(file) = file {
                self.conftests.insert(folder, Arc::new(file));
            }
        }
    }

    fn read_source(&mut self, path: &Path) -> Option<SourceFile> {
        match read_limited(path, YAML_FILE) {
            Ok(text) => Some(SourceFile { path: display_path(path).into(), text: text.into() }),
            Err(error) => {
                self.add_error(
                    path,
                    &format!("the file cannot be read: {error}"),
                    "Check the path and the permissions of the file.",
                );
                None
            }
        }
    }

    fn add_error(&mut self, path: &Path, message: &str, help: &str) {
        let place = SourceLocation { file: display_path(path).into(), line: 0, column: 0, width: 1 };
        self.findings.error("E0101", &place, message, help);
    }
}

fn is_not_found(error: &walkdir::Error) -> bool {
    error.io_error().is_some_and(|error| error.kind() == std::io::ErrorKind::NotFound)
}

fn is_conftest(path: &Path) -> bool {
    path.file_stem().is_some_and(|stem| stem == "conftest")
}

/// The folder of a file and the folders above it up to the folder of the project, nearest first. For a file outside the project only
/// its own folder.
pub(super) fn folders_above(root: &Path, path: &Path) -> Vec<PathBuf> {
    let own = path.parent().map(Path::to_path_buf).unwrap_or_default();
    let (Ok(real_root), Ok(real)) = (root.canonicalize(), current_dir_if_empty(&own).canonicalize()) else {
        return vec![own];
    };
    let Ok(inside) = real.strip_prefix(&real_root) else { return vec![own] };
    inside.ancestors().map(|folder| root.join(folder)).collect()
}

fn current_dir_if_empty(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}

/// A path for display: with `/` as the separator and without `.` components.
pub(super) fn display_path(path: &Path) -> String {
    let mut parts = Vec::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::RootDir => parts.push(String::new()),
            other => parts.push(other.as_os_str().to_string_lossy().into_owned()),
        }
    }
    parts.join("/")
}
