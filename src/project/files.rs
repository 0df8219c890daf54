//! Finds the files of a project and reads them within limits.

use std::{
    collections::HashSet,
    fs, io,
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use segue_engine::{
    finding::{Finding, Findings, SourceLocation},
    limits::{PROJECT_FILES, YAML_FILE},
    project::{Folders, MapSchema, SourceFile, Sources, UnsetVariables, named_files, variables},
};

mod skills;

use super::builtin;
use crate::{environment, limits::PROJECT_TEXT};

/// How a project is loaded: paths that replace the default ones, and schemas of third-party channels. Relative paths start from the
/// project folder. A path given here may lead out of it.
#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    /// Replaces `config.yml`.
    pub config: Option<PathBuf>,
    /// Replace `domain.yml` and `domain/`: files and folders.
    pub domain: Vec<PathBuf>,
    /// Replace `data/` and `flows/`: files and folders.
    pub data: Vec<PathBuf>,
    /// Replaces `endpoints.yml`.
    pub endpoints: Option<PathBuf>,
    /// Replaces `credentials.yml`.
    pub credentials: Option<PathBuf>,
    /// Replaces `sub_agents/`.
    pub sub_agents: Option<PathBuf>,
    /// Schemas of third-party channels, each with the name of its channel. Their settings in `credentials.yml` are checked like those of
    /// built-in channels.
    pub channels: Vec<&'static MapSchema>,
    /// What an unset environment variable leads to.
    pub unset_variables: UnsetVariables,
}

const UNREADABLE_HELP: &str = "Check the path and the permissions of the file.";

/// Reads all files of the project in `root`.
///
/// # Errors
/// The folder cannot be read.
pub(super) fn read(root: &Path, options: &LoadOptions) -> io::Result<(Sources, Vec<Finding>)> {
    let root = root.canonicalize()?;
    fs::read_dir(&root)?;
    let mut sources = Sources {
        patterns: builtin::patterns(),
        channels: options.channels.clone(),
        unset_variables: options.unset_variables,
        ..Sources::default()
    };
    let mut reader = ProjectReader { root, findings: Findings::default(), file_count: 0, visited: HashSet::new() };
    sources.config = reader.single(options.config.as_deref(), &["config.yml", "config.yaml"]);
    let folders = sources.config.as_ref().map(Folders::read).unwrap_or_default();
    // The paths, and whether they must exist.
    let paths = |configured: &Option<Vec<Arc<str>>>, defaults: &[&str]| -> (Vec<PathBuf>, bool) {
        match configured {
            Some(paths) => (paths.iter().map(|path| PathBuf::from(&**path)).collect(), true),
            None => (defaults.iter().map(PathBuf::from).collect(), false),
        }
    };
    sources.domain = reader.many(&options.domain, paths(&folders.domain, &["domain.yml", "domain.yaml", "domain"]));
    sources.data = reader.many(&options.data, paths(&folders.data, &["data", "flows"]));
    sources.endpoints = reader.single(options.endpoints.as_deref(), &["endpoints.yml", "endpoints.yaml"]);
    sources.credentials = reader.single(options.credentials.as_deref(), &["credentials.yml", "credentials.yaml"]);
    let agents = options.sub_agents.clone().or(folders.sub_agents.as_deref().map(PathBuf::from));
    sources.agents = reader.agents(agents.as_deref());
    sources.missions = reader.many(&[], (vec![PathBuf::from("missions")], false));
    sources.subagents = reader.single(None, &["subagents.yml", "subagents.yaml"]);
    reader.texts(&mut sources);
    reader.skills(&mut sources);
    read_environment(&mut sources);
    if sources.config.is_none() && sources.domain.is_empty() && sources.data.is_empty() {
        let place = SourceLocation { file: reader.root.display().to_string().into(), line: 0, column: 0, width: 1 };
        let help = "Name the folder that contains `config.yml`, or create a project with `segue init <folder>`.";
        reader.findings.error("F0118", &place, "this folder contains no project", help);
    }
    Ok((sources, reader.findings.sorted()))
}

/// Reads the environment variables that a file names, and no others.
fn read_environment(sources: &mut Sources) {
    let single = [&sources.config, &sources.endpoints, &sources.credentials, &sources.subagents];
    let files = single.into_iter().flatten().chain(&sources.agents).chain(&sources.missions);
    let texts: Vec<Arc<str>> = files.map(|file| file.text.clone()).collect();
    for name in texts.iter().flat_map(|text| variables(text)) {
        if let Some(value) = environment::variable(name) {
            sources.environment.insert(name.to_owned(), value);
        }
    }
}

struct ProjectReader {
    /// The project folder, after all symbolic links.
    root: PathBuf,
    findings: Findings,
    file_count: usize,
    /// The folders that were read, after all symbolic links: a cycle of links ends.
    visited: HashSet<PathBuf>,
}

impl ProjectReader {
    fn add_unreadable(&mut self, file: &str, message: &str) {
        let place = SourceLocation { file: file.into(), line: 0, column: 0, width: 1 };
        self.findings.error("F0101", &place, message, UNREADABLE_HELP);
    }

    /// One file: the one that the options name, which must exist, or the first default that exists.
    fn single(&mut self, named: Option<&Path>, defaults: &[&str]) -> Option<SourceFile> {
        match named {
            Some(path) => {
                let path = self.root.join(path);
                if !path.is_file() {
                    self.add_unreadable(&self.display_path(&path), "there is no such file");
                    return None;
                }
                self.file(&path, YAML_FILE, true)
            }
            None => {
                let path = defaults.iter().map(|name| self.root.join(name)).find(|path| path.is_file())?;
                self.file(&path, YAML_FILE, false)
            }
        }
    }

    /// Files and folders: those that the options name, which must exist and may be outside the project; or else the others, with whether
    /// they must exist.
    fn many(&mut self, named: &[PathBuf], (others, must_exist): (Vec<PathBuf>, bool)) -> Vec<SourceFile> {
        let is_named = !named.is_empty();
        let mut found = Vec::new();
        for path in if is_named { named.to_vec() } else { others } {
            let path = self.root.join(path);
            if path.is_dir() {
                self.folder(&path, is_named, &mut found);
            } else if path.is_file() {
                found.extend(self.file(&path, YAML_FILE, is_named));
            } else if is_named || must_exist {
                self.add_unreadable(&self.display_path(&path), "there is no such file or folder");
            }
        }
        found
    }

    /// `config.yml` of each agent's folder. A folder that is named explicitly must exist.
    fn agents(&mut self, named: Option<&Path>) -> Vec<SourceFile> {
        let folder = self.root.join(named.unwrap_or(Path::new("sub_agents")));
        if !folder.is_dir() {
            if named.is_some() {
                self.add_unreadable(&self.display_path(&folder), "there is no such folder");
            }
            return Vec::new();
        }
        let folders = self.entries(&folder);
        let configs = folders.into_iter().filter(|path| path.is_dir()).filter_map(|path| {
            ["config.yml", "config.yaml"].into_iter().map(|name| path.join(name)).find(|path| path.is_file())
        });
        configs.collect::<Vec<_>>().iter().filter_map(|path| self.file(path, YAML_FILE, named.is_some())).collect()
    }

    /// The files of `prompts/`, and every text file that the configuration names.
    fn texts(&mut self, sources: &mut Sources) {
        let prompts = self.root.join("prompts");
        if prompts.is_dir() {
            for path in self.entries(&prompts).into_iter().filter(|path| path.is_file()) {
                let file = self.file(&path, PROJECT_TEXT, false);
                sources.texts.extend(file.map(|file| (file.path.to_string(), file.text)));
            }
        }
        let single = [&sources.config, &sources.endpoints, &sources.credentials, &sources.subagents];
        let several = sources.agents.iter().chain(&sources.missions);
        let configured: Vec<SourceFile> = single.into_iter().flatten().chain(several).cloned().collect();
        for file in configured {
            let beside = Path::new(&*file.path).parent().map(|folder| self.root.join(folder)).unwrap_or_default();
            for name in named_files(&file) {
                let path = [self.root.join(&name), beside.join(&name)].into_iter().find(|path| path.is_file());
                let Some(text) = path.and_then(|path| self.file(&path, PROJECT_TEXT, false)) else { continue };
                sources.texts.insert(text.path.to_string(), text.text);
            }
        }
    }

    /// The YAML files of a folder and its subfolders.
    fn folder(&mut self, folder: &Path, may_be_outside: bool, found: &mut Vec<SourceFile>) {
        if !folder.canonicalize().is_ok_and(|real| self.visited.insert(real)) {
            return;
        }
        for path in self.entries(folder) {
            if path.is_dir() {
                self.folder(&path, may_be_outside, found);
            } else if path.extension().is_some_and(|extension| extension == "yml" || extension == "yaml") {
                found.extend(self.file(&path, YAML_FILE, may_be_outside));
            }
        }
    }

    /// The entries of a folder, sorted; without hidden ones, `target` and `node_modules`.
    fn entries(&mut self, folder: &Path) -> Vec<PathBuf> {
        let mut paths: Vec<PathBuf> = match fs::read_dir(folder) {
            Ok(entries) => entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect(),
            Err(error) => {
                self.add_unreadable(&self.display_path(folder), &format!("the folder cannot be read: {error}"));
                Vec::new()
            }
        };
        let is_included = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or(".");
            !name.starts_with('.') && !matches!(name, "target" | "node_modules")
        };
        paths.retain(is_included);
        paths.sort();
        paths
    }

    /// Reads one file of at most `max_bytes`. Unless it may be outside, it must be in the project folder after all symbolic links.
    fn file(&mut self, path: &Path, max_bytes: usize, may_be_outside: bool) -> Option<SourceFile> {
        let display_path = self.display_path(path);
        let real = match path.canonicalize() {
            Ok(real) => real,
            Err(error) => {
                self.add_unreadable(&display_path, &format!("the file cannot be read: {error}"));
                return None;
            }
        };
        if !may_be_outside && !real.starts_with(&self.root) {
            let place = SourceLocation { file: display_path.into(), line: 0, column: 0, width: 1 };
            let help = "Copy the file into the project, or name it on the command line.";
            self.findings.error("F0112", &place, "this path leads out of the project folder", help);
            return None;
        }
        self.file_count += 1;
        if self.file_count > PROJECT_FILES {
            if self.file_count == PROJECT_FILES + 1 {
                let place = SourceLocation { file: display_path.into(), line: 0, column: 0, width: 1 };
                let message = format!("a project has at most {PROJECT_FILES} files; the others are left out");
                self.findings.error(
                    "F0113",
                    &place,
                    message,
                    "List the folders with flows under `data` in `config.yml`.",
                );
            }
            return None;
        }
        match read_limited(&real, max_bytes) {
            Ok(text) => Some(SourceFile { path: display_path.into(), text: text.into() }),
            Err(error) => {
                self.add_unreadable(&display_path, &format!("the file cannot be read: {error}"));
                None
            }
        }
    }

    /// A path for messages: relative to the project folder, with `/`; absolute if it is outside.
    fn display_path(&self, path: &Path) -> String {
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

/// Reads a text file of at most `max_bytes`.
///
/// # Errors
/// The file cannot be read, is larger, or is not UTF-8.
pub(crate) fn read_limited(path: &Path, max_bytes: usize) -> io::Result<String> {
    use io::Read as _;
    let mut bytes = Vec::new();
    let limit = u64::try_from(max_bytes).unwrap_or(u64::MAX).saturating_add(1);
    fs::File::open(path)?.take(limit).read_to_end(&mut bytes)?;
    if bytes.len() > max_bytes {
        return Err(io::Error::other(format!("it has more than {max_bytes} bytes")));
    }
    String::from_utf8(bytes).map_err(|_| io::Error::other("it is not UTF-8 text"))
}

#[cfg(test)]
mod tests;
