//! Reads the folders of skills, within limits. Links that lead out of a skill are not followed.

use std::{
    collections::{HashSet, VecDeque},
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use segue_engine::{
    limits::{SKILL_BODY, SKILL_BYTES, SKILL_DEPTH, SKILL_FILE_BYTES, SKILL_FILES, SKILL_FOLDERS},
    project::{
        SKILL_FILE, SkillFile, SkillFolder, SkillProblem, SkillSource, SourceFile, Sources, named_skill_folders,
    },
};

use super::{ProjectReader, read_limited};

impl ProjectReader {
    /// The folders of skills that agents and missions use. One outside the project is read only if an agent trusts it.
    pub(super) fn skills(&self, sources: &mut Sources) {
        let mut bytes_left = SKILL_BYTES;
        for (path, trusted) in named_skill_folders(sources.agents.iter().chain(&sources.missions)) {
            let folder = self.root.join(&*path).canonicalize().ok().filter(|folder| folder.is_dir());
            let is_outside = folder.as_ref().is_some_and(|folder| !folder.starts_with(&self.root));
            let found = SkillFolder { path, exists: folder.is_some(), is_outside, ..SkillFolder::default() };
            sources.skills.push(match folder.filter(|_| trusted || !is_outside) {
                Some(folder) => SkillReader { found, bytes_left: &mut bytes_left }.read(&folder),
                None => found,
            });
        }
    }
}

/// Reads one folder of skills.
struct SkillReader<'a> {
    found: SkillFolder,
    /// Bytes that the files of skills may still have together.
    bytes_left: &'a mut usize,
}

/// A file or folder on disk, and its path for messages.
struct FoundPath {
    path: PathBuf,
    name: String,
    shown: String,
}

impl SkillReader<'_> {
    /// Reports what is left out, once.
    fn leave_out(&mut self, shown: &str, problem: SkillProblem) {
        if self.found.left_out.iter().all(|(known, _)| **known != *shown) {
            self.found.left_out.push((shown.into(), problem));
        }
    }

    /// The visible entries of a folder, sorted, with those only whose links stay inside `root`. Paths are after all links.
    fn entries(&mut self, folder: &Path, shown: &str, root: &Path) -> Vec<FoundPath> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.retain(|name| !name.starts_with('.') && !["node_modules", "target", "__pycache__"].contains(&&**name));
        names.sort();
        let mut found = Vec::new();
        for name in names {
            let shown = format!("{shown}/{name}");
            match folder.join(&name).canonicalize() {
                Ok(path) if path.starts_with(root) => found.push(FoundPath { path, name, shown }),
                Ok(_) => self.leave_out(&shown, SkillProblem::Link),
                Err(error) => self.leave_out(&shown, SkillProblem::NotLoaded(format!("it cannot be read: {error}"))),
            }
        }
        found
    }

    /// Searches the folder, level by level, so that nearer skills come first.
    fn read(mut self, base: &Path) -> SkillFolder {
        let path = self.found.path.clone();
        let mut folders = VecDeque::from([(base.to_owned(), path.to_string(), 0)]);
        let mut visited = HashSet::from([base.to_owned()]);
        let mut searched = 0;
        while let Some((folder, shown, depth)) = folders.pop_front() {
            searched += 1;
            if searched > SKILL_FOLDERS {
                let limit =
                    format!("only {SKILL_FOLDERS} folders are searched for skills; this one and others are not");
                self.leave_out(&shown, SkillProblem::Limit(limit));
                break;
            }
            let entries = self.entries(&folder, &shown, base);
            if let Some(file) = entries.iter().find(|entry| entry.name == SKILL_FILE && entry.path.is_file()) {
                let skill = self.skill(&folder, &shown, file);
                self.found.skills.extend(skill);
                continue;
            }
            if let Some(other) = entries.iter().find(|entry| entry.name == "skill.md") {
                self.leave_out(&other.shown, SkillFolder::lower_case());
            }
            for entry in entries.into_iter().filter(|entry| depth < SKILL_DEPTH && entry.path.is_dir()) {
                if visited.insert(entry.path.clone()) {
                    folders.push_back((entry.path, entry.shown, depth + 1));
                }
            }
        }
        self.found
    }

    fn skill(&mut self, root: &Path, shown: &str, file: &FoundPath) -> Option<SkillSource> {
        if !file.path.starts_with(root) {
            self.leave_out(&file.shown, SkillProblem::Link);
            return None;
        }
        let text = match read_limited(&file.path, SKILL_BODY) {
            Ok(text) => text,
            Err(error) => {
                self.leave_out(&file.shown, SkillProblem::NotLoaded(error.to_string()));
                return None;
            }
        };
        let files = self.files(root, shown);
        Some(SkillSource { file: SourceFile { path: file.shown.as_str().into(), text: text.into() }, files })
    }

    /// The other files of a skill.
    fn files(&mut self, root: &Path, shown: &str) -> Vec<SkillFile> {
        let mut files: Vec<SkillFile> = Vec::new();
        let mut folders = VecDeque::from([(root.to_owned(), shown.to_owned())]);
        let mut visited = HashSet::from([root.to_owned()]);
        while let Some((folder, folder_shown)) = folders.pop_front() {
            for entry in self.entries(&folder, &folder_shown, root) {
                if entry.path.is_dir() {
                    if visited.insert(entry.path.clone()) {
                        folders.push_back((entry.path, entry.shown));
                    }
                    continue;
                }
                let path = entry.shown.strip_prefix(shown).unwrap_or_default().trim_start_matches('/');
                if path == SKILL_FILE || !entry.path.is_file() {
                    continue;
                }
                if files.len() >= SKILL_FILES {
                    let limit = format!("a skill has at most {SKILL_FILES} files; this one and others are left out");
                    self.leave_out(&entry.shown, SkillProblem::Limit(limit));
                    return files;
                }
                let bytes = entry.path.metadata().map_or(0, |data| data.len());
                files.push(SkillFile { path: path.into(), bytes, text: self.text(&entry, bytes) });
            }
        }
        files
    }

    /// The text of a file, if it is one and not too large.
    fn text(&mut self, file: &FoundPath, bytes: u64) -> Option<Arc<str>> {
        let size = usize::try_from(bytes).unwrap_or(usize::MAX);
        if size > SKILL_FILE_BYTES {
            return None;
        }
        if size > *self.bytes_left {
            let limit =
                format!("the files of all skills have more than {SKILL_BYTES} bytes; agents cannot read this one");
            self.leave_out(&file.shown, SkillProblem::Limit(limit));
            return None;
        }
        let text: Arc<str> = read_limited(&file.path, SKILL_FILE_BYTES).ok()?.into();
        *self.bytes_left = self.bytes_left.saturating_sub(text.len());
        Some(text)
    }
}
