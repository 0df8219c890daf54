//! Which case files there are: paths as people give them, folders walked, the `conftest.yml` above each file.

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

/// Folders that hold cases where neither the command line nor `config.yml` names one.
const USUAL: [&str; 3] = ["tests", "e2e_tests", "e2e"];

/// The cases that were asked for.
#[derive(Debug, Default)]
pub struct Selection {
    pub(super) files: Vec<Selected>,
    /// `conftest.yml` by the folder it stands in.
    pub(super) conftests: BTreeMap<PathBuf, Arc<TestFile>>,
    findings: Findings,
    texts: Sources,
    /// The project's folder.
    pub(super) root: PathBuf,
}

/// One file, and which of its cases are wanted.
#[derive(Debug)]
pub(super) struct Selected {
    pub(super) path: PathBuf,
    pub(super) file: TestFile,
    /// The one case that was asked for.
    pub(super) only: Option<String>,
}

impl Selection {
    /// Finds and reads cases. A path is a file, a folder, or `file::case`; without paths it is what `configured` names
    /// (`tests` of `config.yml`), else the usual folders of the project at `root`.
    pub fn read(root: &Path, paths: &[String], configured: Option<&[Arc<str>]>) -> Self {
        let mut selection = Self { root: root.to_path_buf(), ..Self::default() };
        if paths.is_empty() {
            match configured {
                Some(named) => {
                    for name in named {
                        selection.path(&root.join(&**name), None);
                    }
                }
                None => {
                    for folder in USUAL.map(|name| root.join(name)).iter().filter(|folder| folder.is_dir()) {
                        selection.path(folder, None);
                    }
                }
            }
        }
        for path in paths {
            match path.split_once("::") {
                Some((file, case)) => selection.path(Path::new(file), Some(case)),
                None => selection.path(Path::new(path), None),
            }
        }
        selection
    }

    /// Whether nothing was found.
    pub fn is_empty(&self) -> bool {
        self.files.iter().all(|selected| selected.file.cases.is_empty())
    }

    /// Everything that was found about the files, and their texts for showing lines of them.
    pub fn findings(&self) -> (&[Finding], &Sources) {
        (self.findings.as_slice(), &self.texts)
    }

    fn path(&mut self, path: &Path, only: Option<&str>) {
        if path.is_dir() {
            self.folder(path);
        } else if path.is_file() {
            self.file(path, only, true);
        } else {
            self.trouble(
                path,
                "there is no such file or folder",
                "Name a file, a folder, or `file.yml::name of a case`.",
            );
        }
    }

    fn folder(&mut self, folder: &Path) {
        let is_wanted = |entry: &DirEntry| {
            let name = entry.file_name().to_str().unwrap_or(".");
            entry.depth() == 0 || !(name.starts_with('.') || matches!(name, "target" | "node_modules"))
        };
        for entry in WalkDir::new(folder).follow_links(true).sort_by_file_name().into_iter().filter_entry(is_wanted) {
            match entry {
                Ok(entry) if entry.file_type().is_dir() => {}
                Ok(entry) => {
                    if entry.path().extension().is_some_and(|extension| extension == "yml" || extension == "yaml") {
                        self.file(entry.path(), None, false);
                    }
                }
                // What a link leads back to is read anyway, and one that leads nowhere is no file.
                Err(error) if error.loop_ancestor().is_some() || is_gone(&error) => {}
                Err(error) => {
                    let path = error.path().unwrap_or(folder);
                    self.trouble(path, &format!("the folder cannot be read: {error}"), "Check its rights.");
                }
            }
        }
    }

    /// Reads one file; one that a folder holds only if it has cases.
    fn file(&mut self, path: &Path, only: Option<&str>, named: bool) {
        if is_conftest(path) || self.files.len() >= PROJECT_FILES {
            return;
        }
        if let (Some(only), Some(known)) = (only, self.files.iter().find(|known| known.path == path)) {
            // The same file once more, for another of its cases.
            let again = TestFile {
                path: known.file.path.clone(),
                shared: known.file.shared.clone(),
                cases: known.file.cases.clone(),
            };
            return self.keep(path, again, Some(only));
        }
        let Some(source) = self.source(path) else { return };
        if !named && !source.text.lines().any(|line| line.trim_start_matches('\u{feff}').starts_with("test_cases")) {
            return;
        }
        let (file, findings) = TestFile::read(&source);
        findings.into_iter().for_each(|finding| self.findings.push(finding));
        self.texts.texts.insert(source.path.to_string(), source.text);
        self.conftests_above(path);
        if let Some(file) = file {
            self.keep(path, file, only);
        }
    }

    fn keep(&mut self, path: &Path, file: TestFile, only: Option<&str>) {
        if let Some(only) = only
            && !file.cases.iter().any(|case| &*case.name == only)
        {
            let names = file.cases.iter().map(|case| &*case.name);
            let help = match segue_engine::finding::did_you_mean(only, names) {
                Some(near) => format!("Did you mean `{near}`?"),
                None => "Name a case as it stands after `test_case:`.".to_owned(),
            };
            let message = format!("the file has no case `{only}` that can be run");
            return self.trouble(path, &message, &help);
        }
        self.files.push(Selected { path: path.to_path_buf(), file, only: only.map(str::to_owned) });
    }

    /// Reads every `conftest.yml` from the folder of the file up to the project's folder.
    fn conftests_above(&mut self, path: &Path) {
        for folder in folders_above(&self.root, path) {
            if self.conftests.contains_key(&folder) {
                continue;
            }
            let found = ["conftest.yml", "conftest.yaml"].map(|name| folder.join(name));
            let Some(path) = found.iter().find(|path| path.is_file()) else { continue };
            let Some(source) = self.source(path) else { continue };
            let (file, findings) = TestFile::read_conftest(&source);
            findings.into_iter().for_each(|finding| self.findings.push(finding));
            self.texts.texts.insert(source.path.to_string(), source.text);
            if let Some(file) = file {
                self.conftests.insert(folder, Arc::new(file));
            }
        }
    }

    fn source(&mut self, path: &Path) -> Option<SourceFile> {
        match read_limited(path, YAML_FILE) {
            Ok(text) => Some(SourceFile { path: shown(path).into(), text: text.into() }),
            Err(error) => {
                self.trouble(
                    path,
                    &format!("the file cannot be read: {error}"),
                    "Check the path and the rights of the file.",
                );
                None
            }
        }
    }

    fn trouble(&mut self, path: &Path, message: &str, help: &str) {
        let place = SourceLocation { file: shown(path).into(), line: 0, column: 0, width: 1 };
        self.findings.error("E0101", &place, message, help);
    }
}

fn is_gone(error: &walkdir::Error) -> bool {
    error.io_error().is_some_and(|error| error.kind() == std::io::ErrorKind::NotFound)
}

fn is_conftest(path: &Path) -> bool {
    path.file_stem().is_some_and(|stem| stem == "conftest")
}

/// The folder of a file and those above it up to the project's, nearest first. For a file outside of the project only its own.
pub(super) fn folders_above(root: &Path, path: &Path) -> Vec<PathBuf> {
    let own = path.parent().map(Path::to_path_buf).unwrap_or_default();
    let (Ok(real_root), Ok(real)) = (root.canonicalize(), own_or_here(&own).canonicalize()) else { return vec![own] };
    let Ok(inside) = real.strip_prefix(&real_root) else { return vec![own] };
    inside.ancestors().map(|folder| root.join(folder)).collect()
}

fn own_or_here(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}

/// A path as people write it, with `/` and without a leading `./`.
pub(super) fn shown(path: &Path) -> String {
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
