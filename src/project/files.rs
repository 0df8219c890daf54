//! Which files belong to a project, read within limits.

use std::{
    collections::HashSet,
    fs, io,
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use segue_engine::{
    finding::{Finding, Findings, SourceLocation},
    limits::{PROJECT_FILES, YAML_FILE},
    project::{Folders, MapSchema, SourceFile, Sources, named_files, variables},
};

use super::builtin;
use crate::{environment, limits::PROJECT_TEXT};

/// Where the parts of a project are, in place of the usual places. Paths begin in the project's folder.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// In place of `config.yml`.
    pub config: Option<PathBuf>,
    /// In place of `domain.yml` and `domain/`: files and folders.
    pub domain: Vec<PathBuf>,
    /// In place of `data/` and `flows/`: files and folders.
    pub data: Vec<PathBuf>,
    /// In place of `endpoints.yml`.
    pub endpoints: Option<PathBuf>,
    /// In place of `credentials.yml`.
    pub credentials: Option<PathBuf>,
    /// In place of `sub_agents/`.
    pub sub_agents: Option<PathBuf>,
    /// Schemas of channels that the program brings, each with the name of its channel: their settings in `credentials.yml` are
    /// checked as those of built-in ones are.
    pub channels: Vec<&'static MapSchema>,
}

const CURE: &str = "Check the path and the rights of the file.";

/// Reads everything that belongs to the project in `root`.
pub(super) fn read(root: &Path, places: &Places) -> io::Result<(Sources, Vec<Finding>)> {
    let real = root.canonicalize()?;
    fs::read_dir(&real)?;
    let mut sources =
        Sources { patterns: builtin::patterns(), channels: places.channels.clone(), ..Sources::default() };
    let mut disk = Disk { root: real, findings: Findings::default(), files: 0, seen: HashSet::new() };
    sources.config = disk.single(places.config.as_deref(), &["config.yml", "config.yaml"]);
    let folders = sources.config.as_ref().map(Folders::read).unwrap_or_default();
    let usual = |named: &Option<Vec<Arc<str>>>, usual: &[&str]| -> (Vec<PathBuf>, bool) {
        match named {
            Some(named) => (named.iter().map(|name| PathBuf::from(&**name)).collect(), true),
            None => (usual.iter().map(PathBuf::from).collect(), false),
        }
    };
    sources.domain = disk.many(&places.domain, usual(&folders.domain, &["domain.yml", "domain.yaml", "domain"]));
    sources.data = disk.many(&places.data, usual(&folders.data, &["data", "flows"]));
    sources.endpoints = disk.single(places.endpoints.as_deref(), &["endpoints.yml", "endpoints.yaml"]);
    sources.credentials = disk.single(places.credentials.as_deref(), &["credentials.yml", "credentials.yaml"]);
    let agents = places.sub_agents.clone().or(folders.sub_agents.as_deref().map(PathBuf::from));
    sources.agents = disk.agents(agents.as_deref());
    disk.texts(&mut sources);
    environment_of(&mut sources);
    if sources.config.is_none() && sources.domain.is_empty() && sources.data.is_empty() {
        let place = SourceLocation { file: disk.root.display().to_string().into(), line: 0, column: 0, width: 1 };
        let help = "Name the folder that holds `config.yml`, or write a new project with `segue init <folder>`.";
        disk.findings.error("F0118", &place, "this folder holds no project", help);
    }
    Ok((sources, disk.findings.sorted()))
}

/// Only variables that a file names are taken out of the environment.
fn environment_of(sources: &mut Sources) {
    let single = [&sources.config, &sources.endpoints, &sources.credentials];
    let texts: Vec<Arc<str>> =
        single.into_iter().flatten().chain(&sources.agents).map(|file| file.text.clone()).collect();
    for name in texts.iter().flat_map(|text| variables(text)) {
        if let Some(value) = environment::variable(name) {
            sources.environment.insert(name.to_owned(), value);
        }
    }
}

struct Disk {
    /// Real path of the project's folder.
    root: PathBuf,
    findings: Findings,
    files: usize,
    /// Real paths of what was read, so that links cannot lead in circles.
    seen: HashSet<PathBuf>,
}

impl Disk {
    fn trouble(&mut self, file: &str, message: &str) {
        let place = SourceLocation { file: file.into(), line: 0, column: 0, width: 1 };
        self.findings.error("F0101", &place, message, CURE);
    }

    /// One file: the operator's, which must be there, or the first of the usual ones.
    fn single(&mut self, named: Option<&Path>, usual: &[&str]) -> Option<SourceFile> {
        match named {
            Some(path) => {
                let path = self.root.join(path);
                if !path.is_file() {
                    self.trouble(&self.shown(&path), "there is no such file");
                    return None;
                }
                self.file(&path, YAML_FILE, true)
            }
            None => {
                let path = usual.iter().map(|name| self.root.join(name)).find(|path| path.is_file())?;
                self.file(&path, YAML_FILE, false)
            }
        }
    }

    /// Files and folders; those of the operator may lie outside, those that `config.yml` names must be there.
    fn many(&mut self, named: &[PathBuf], (usual, must_exist): (Vec<PathBuf>, bool)) -> Vec<SourceFile> {
        let is_operators = !named.is_empty();
        let mut found = Vec::new();
        for path in if is_operators { named.to_vec() } else { usual } {
            let path = self.root.join(path);
            if path.is_dir() {
                self.folder(&path, is_operators, &mut found);
            } else if path.is_file() {
                found.extend(self.file(&path, YAML_FILE, is_operators));
            } else if is_operators || must_exist {
                self.trouble(&self.shown(&path), "there is no such file or folder");
            }
        }
        found
    }

    /// `config.yml` of each agent's folder; an explicitly named folder must be there.
    fn agents(&mut self, named: Option<&Path>) -> Vec<SourceFile> {
        let folder = self.root.join(named.unwrap_or(Path::new("sub_agents")));
        if !folder.is_dir() {
            if named.is_some() {
                self.trouble(&self.shown(&folder), "there is no such folder");
            }
            return Vec::new();
        }
        let folders = self.entries(&folder);
        let configs = folders.into_iter().filter(|path| path.is_dir()).filter_map(|path| {
            ["config.yml", "config.yaml"].into_iter().map(|name| path.join(name)).find(|path| path.is_file())
        });
        configs.collect::<Vec<_>>().iter().filter_map(|path| self.file(path, YAML_FILE, named.is_some())).collect()
    }

    /// Prompts: all of `prompts/`, and every file that configuration names.
    fn texts(&mut self, sources: &mut Sources) {
        let prompts = self.root.join("prompts");
        if prompts.is_dir() {
            for path in self.entries(&prompts).into_iter().filter(|path| path.is_file()) {
                let file = self.file(&path, PROJECT_TEXT, false);
                sources.texts.extend(file.map(|file| (file.path.to_string(), file.text)));
            }
        }
        let single = [&sources.config, &sources.endpoints, &sources.credentials];
        let configured: Vec<SourceFile> = single.into_iter().flatten().chain(&sources.agents).cloned().collect();
        for file in configured {
            let beside = Path::new(&*file.path).parent().map(|folder| self.root.join(folder)).unwrap_or_default();
            for name in named_files(&file) {
                let path = [self.root.join(&name), beside.join(&name)].into_iter().find(|path| path.is_file());
                let Some(text) = path.and_then(|path| self.file(&path, PROJECT_TEXT, false)) else { continue };
                sources.texts.insert(text.path.to_string(), text.text);
            }
        }
    }

    fn folder(&mut self, folder: &Path, outside: bool, found: &mut Vec<SourceFile>) {
        if !folder.canonicalize().is_ok_and(|real| self.seen.insert(real)) {
            return;
        }
        for path in self.entries(folder) {
            if path.is_dir() {
                self.folder(&path, outside, found);
            } else if path.extension().is_some_and(|extension| extension == "yml" || extension == "yaml") {
                found.extend(self.file(&path, YAML_FILE, outside));
            }
        }
    }

    /// What stands in a folder, by name; hidden entries and folders of tools are left out.
    fn entries(&mut self, folder: &Path) -> Vec<PathBuf> {
        let mut paths: Vec<PathBuf> = match fs::read_dir(folder) {
            Ok(entries) => entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect(),
            Err(error) => {
                self.trouble(&self.shown(folder), &format!("the folder cannot be read: {error}"));
                Vec::new()
            }
        };
        let is_ours = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or(".");
            !name.starts_with('.') && !matches!(name, "target" | "node_modules")
        };
        paths.retain(is_ours);
        paths.sort();
        paths
    }

    /// Reads one file. Unless the operator named it, it must lie in the project's folder after all links.
    fn file(&mut self, path: &Path, most: usize, outside: bool) -> Option<SourceFile> {
        let shown = self.shown(path);
        let real = match path.canonicalize() {
            Ok(real) => real,
            Err(error) => {
                self.trouble(&shown, &format!("the file cannot be read: {error}"));
                return None;
            }
        };
        if !outside && !real.starts_with(&self.root) {
            let place = SourceLocation { file: shown.into(), line: 0, column: 0, width: 1 };
            let help = "Copy the file into the project, or name it on the command line.";
            self.findings.error("F0112", &place, "this path leads out of the project's folder", help);
            return None;
        }
        self.files += 1;
        if self.files > PROJECT_FILES {
            if self.files == PROJECT_FILES + 1 {
                let place = SourceLocation { file: shown.into(), line: 0, column: 0, width: 1 };
                let message = format!("a project has at most {PROJECT_FILES} files; the others are left out");
                self.findings.error("F0113", &place, message, "Name the right folders with `data` in `config.yml`.");
            }
            return None;
        }
        match bounded(&real, most) {
            Ok(text) => Some(SourceFile { path: shown.into(), text: text.into() }),
            Err(error) => {
                self.trouble(&shown, &format!("the file cannot be read: {error}"));
                None
            }
        }
    }

    /// A path as people know it: from the project's folder, with `/`.
    fn shown(&self, path: &Path) -> String {
        let Ok(inside) = path.strip_prefix(&self.root) else { return path.display().to_string() };
        let mut parts: Vec<String> = Vec::new();
        for part in inside.components() {
            match part {
                Component::CurDir => {}
                Component::ParentDir if parts.pop().is_none() => return path.display().to_string(),
                Component::ParentDir => {}
                other => parts.push(other.as_os_str().to_string_lossy().into_owned()),
            }
        }
        parts.join("/")
    }
}

/// Reads a text of at most `most` bytes.
pub(crate) fn bounded(path: &Path, most: usize) -> io::Result<String> {
    use io::Read as _;
    let mut bytes = Vec::new();
    let limit = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
    fs::File::open(path)?.take(limit).read_to_end(&mut bytes)?;
    if bytes.len() > most {
        return Err(io::Error::other(format!("it has more than {most} bytes")));
    }
    String::from_utf8(bytes).map_err(|_| io::Error::other("it is not UTF-8 text"))
}

#[cfg(test)]
mod tests;
