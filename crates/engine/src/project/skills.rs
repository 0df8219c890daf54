//! Agent Skills: packaged instructions that an agent loads when it needs them, in the open format `SKILL.md` (<https://agentskills.io>).

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use indexmap::IndexMap;

use super::{SourceFile, Sources, named_skill_folders};
use crate::{finding::SourceLocation, limits};

/// The folder of skills of agents that name no other.
pub const SKILL_FOLDER: &str = ".agents/skills";
/// The file that makes a folder a skill, in exactly this case.
pub const SKILL_FILE: &str = "SKILL.md";

/// A folder of skills, as it was read.
#[derive(Clone, Debug, Default)]
pub struct SkillFolder {
    /// Its path as the configuration writes it, without `./` and a slash at the end.
    pub path: Arc<str>,
    /// Whether it exists.
    pub exists: bool,
    /// Whether it is outside the project.
    pub is_outside: bool,
    /// Its skills, those nearer to it first.
    pub skills: Vec<SkillSource>,
    /// Paths that could not be skills or were not read, with the reason.
    pub left_out: Vec<(Arc<str>, SkillProblem)>,
}

/// Why a path in a folder of skills was not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SkillProblem {
    /// A link leads out of the folder.
    Link,
    /// A limit is reached; which one.
    Limit(String),
    /// It cannot be a skill; why.
    NotLoaded(String),
}

/// A skill, as it was read.
#[derive(Clone, Debug)]
pub struct SkillSource {
    /// `SKILL.md`. Its path begins with that of the folder of skills.
    pub file: SourceFile,
    /// The other files of the skill.
    pub files: Vec<SkillFile>,
}

/// A file of a skill besides `SKILL.md`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillFile {
    /// Its path in the skill, with `/`.
    pub path: Arc<str>,
    /// Its size in bytes.
    pub bytes: u64,
    /// Its text; `None` if it is not UTF-8 text, or too large.
    pub text: Option<Arc<str>>,
}

impl SkillFolder {
    /// The folder `path` of a project whose files are given as texts by their path.
    pub fn from_texts(path: &str, texts: &BTreeMap<String, Arc<str>>) -> Self {
        let prefix = format!("{path}/");
        let below = || texts.range(prefix.clone()..).take_while(|(file, _)| file.starts_with(&prefix));
        let mut roots: Vec<&str> = Vec::new();
        let mut found: Vec<&str> = below().filter_map(|(file, _)| file.strip_suffix("/SKILL.md")).collect();
        found.sort_by_key(|root| (root.matches('/').count(), *root));
        for root in found {
            // A `SKILL.md` below the folder of another skill is a file of that skill.
            if !roots.iter().any(|outer| root.strip_prefix(*outer).is_some_and(|rest| rest.starts_with('/'))) {
                roots.push(root);
            }
        }
        let skills = roots.iter().filter_map(|root| {
            let inside = |file: &str| Some(Arc::from(file.strip_prefix(root)?.strip_prefix('/')?));
            let file = format!("{root}/{SKILL_FILE}");
            let text = texts.get(&file)?.clone();
            let others = below().filter(|(other, _)| **other != file).filter_map(|(other, text)| {
                let bytes = u64::try_from(text.len()).unwrap_or(u64::MAX);
                Some(SkillFile { path: inside(other)?, bytes, text: Some(text.clone()) })
            });
            Some(SkillSource { files: others.collect(), file: SourceFile { path: file.into(), text } })
        });
        let skills: Vec<SkillSource> = skills.collect();
        let lower = below().filter(|(file, _)| file.ends_with("/skill.md"));
        let left_out = lower.map(|(file, _)| (file.as_str().into(), Self::lower_case())).collect();
        Self { path: path.into(), exists: below().next().is_some(), is_outside: false, skills, left_out }
    }

    /// The problem of a file `skill.md`.
    pub fn lower_case() -> SkillProblem {
        SkillProblem::NotLoaded(
            "only `SKILL.md` in capital letters is a skill; `skill.md` is another format".to_owned(),
        )
    }
}

impl Sources {
    /// Reads the folders of skills that agents and missions name from `texts`, for projects that are not on disk.
    pub fn read_skills_of_texts(&mut self) {
        let folders = named_skill_folders(self.agents.iter().chain(&self.missions));
        self.skills = folders.keys().map(|path| SkillFolder::from_texts(path, &self.texts)).collect();
    }
}

/// Where a skill comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkillOrigin {
    /// A folder of the project.
    Project,
    /// A folder outside the project: nobody vouches for its text.
    Outside,
    /// The configuration of an agent.
    Configuration,
}

/// A skill.
#[derive(Clone, Debug)]
pub struct SkillDef {
    /// Its name, by which a model loads it.
    pub name: Arc<str>,
    /// What it does and when to use it.
    pub description: Arc<str>,
    /// Its instructions.
    pub body: Arc<str>,
    /// Its folder; empty for a skill of a configuration.
    pub root: Arc<str>,
    /// Its other files, by path.
    pub files: Vec<SkillFile>,
    /// The tools that it needs, by `allowed-tools`; `None` if it does not say, empty: none.
    pub allowed_tools: Option<Vec<Arc<str>>>,
    /// Whether only a user can load it (`disable-model-invocation`).
    pub user_only: bool,
    /// Tools that it brings, as `server` or `server.tool`. Only skills of a configuration bring any.
    pub brings: Vec<Arc<str>>,
    /// The names of the secrets that its scripts require (`required-secrets`).
    pub required_secrets: Vec<Arc<str>>,
    /// Where it comes from.
    pub origin: SkillOrigin,
    /// A hash of its contents.
    pub hash: Arc<str>,
    /// The line of its file in which its instructions begin.
    pub(crate) body_line: u32,
    /// Its location in the project files.
    pub place: SourceLocation,
}

impl SkillDef {
    /// One of its files.
    pub fn file(&self, path: &str) -> Option<&SkillFile> {
        self.files.iter().find(|file| *file.path == *path)
    }
}

/// The skills of an agent, and what they may do.
#[derive(Clone, Default)]
pub struct AgentSkills {
    /// The skills that it may load, by name.
    pub skills: IndexMap<Arc<str>, Arc<SkillDef>>,
    /// Whether the `allowed-tools` of loaded skills narrow its tools.
    pub narrows: bool,
    /// Whether a user may load a skill by a message that begins with `/name`.
    pub by_user: bool,
    /// Scripts of skills that are tools.
    pub scripts: Vec<SkillScript>,
}

/// Shows the names.
impl fmt::Debug for AgentSkills {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.skills.keys()).finish()
    }
}

/// A script of a skill that is a tool.
#[derive(Clone)]
pub struct SkillScript {
    /// The name of the tool.
    pub tool: Arc<str>,
    /// The skill.
    pub skill: Arc<str>,
    /// Its path in the skill.
    pub path: Arc<str>,
    /// Its environment variables. Their values may be secrets.
    pub environment: Vec<(Arc<str>, Arc<str>)>,
    /// Its time limit.
    pub timeout: Duration,
}

/// Without the values of the environment.
impl fmt::Debug for SkillScript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SkillScript").field("tool", &self.tool).field("path", &self.path).finish_non_exhaustive()
    }
}

impl AgentSkills {
    /// The default time limit of a script.
    pub const SCRIPT_TIMEOUT: Duration = Duration::from_secs(60);

    /// A skill by its name. A name with `_` in place of `-` is found too.
    pub fn get(&self, name: &str) -> Option<&Arc<SkillDef>> {
        self.skills.get(name).or_else(|| {
            let wanted = name.replace('_', "-");
            self.skills.iter().find(|(known, _)| known.replace('_', "-") == wanted).map(|(_, skill)| skill)
        })
    }

    /// Those of these names; `None`: all.
    #[must_use]
    pub fn only(&self, names: Option<&[Arc<str>]>) -> Self {
        let Some(names) = names else { return self.clone() };
        let wanted: BTreeSet<&Arc<str>> =
            names.iter().filter_map(|name| self.get(name)).map(|skill| &skill.name).collect();
        let mut own = self.clone();
        own.skills.retain(|name, _| wanted.contains(name));
        own.scripts.retain(|script| wanted.contains(&script.skill));
        own
    }
}

/// Whether the name follows the rule of the format: `a-z`, `0-9` and single hyphens inside, at most 64 characters.
pub(crate) fn is_skill_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= limits::SKILL_NAME
        && name.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-')
        && !name.starts_with('-')
        && !name.ends_with('-')
        && !name.contains("--")
}

/// The name of the tool of a script: the skill and the file without its ending.
pub(crate) fn script_tool(skill: &str, path: &str) -> Arc<str> {
    let file = path.rsplit('/').next().unwrap_or(path);
    let stem = file.split_once('.').map_or(file, |(stem, _)| stem);
    let name: String =
        format!("{skill}_{stem}").chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    name.get(..limits::SKILL_NAME).unwrap_or(&name).into()
}
