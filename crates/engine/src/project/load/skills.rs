//! Reads Agent Skills, and the settings of agents about them.

use std::{collections::BTreeSet, sync::Arc};

use indexmap::IndexMap;
use sha2::{Digest, Sha256};

use super::{
    super::{
        AgentSkills, SkillDef, SkillFolder, SkillOrigin, SkillProblem, SkillScript,
        folders::{plain_folder, skill_folders},
        load_context::{LoadContext, MapFields},
        schema::{SKILL, SKILL_SCRIPT},
        skills::{is_skill_name, script_tool},
        yaml::{Entry, Node},
    },
    first_bytes, missions,
};
use crate::{finding::SourceLocation, finding::did_you_mean, limits};

mod format;
mod mentions;

/// The keys of an agent about skills.
pub(super) const KEYS: [&str; 6] =
    ["skills", "skill_folders", "skill_scripts", "skills_narrow_tools", "skills_by_user", "trust"];

/// All skills of the folders that agents use.
pub(super) struct SkillLibrary {
    folders: IndexMap<Arc<str>, LoadedFolder>,
    /// The files of the skills that an agent may load.
    used: BTreeSet<Arc<str>>,
    /// The folders that agents use.
    used_folders: BTreeSet<Arc<str>>,
}

struct LoadedFolder {
    exists: bool,
    is_outside: bool,
    skills: IndexMap<Arc<str>, Arc<SkillDef>>,
}

/// The start of a file.
fn start_of(file: &Arc<str>) -> SourceLocation {
    SourceLocation { file: file.clone(), line: 1, column: 1, width: 1 }
}

/// Reads the skills of all folders.
pub(super) fn load(context: &mut LoadContext<'_>) -> SkillLibrary {
    let mut folders = IndexMap::new();
    for folder in &context.sources.skills {
        report_left_out(context, folder);
        let origin = if folder.is_outside { SkillOrigin::Outside } else { SkillOrigin::Project };
        let mut skills: IndexMap<Arc<str>, Arc<SkillDef>> = IndexMap::new();
        for source in &folder.skills {
            let Some(skill) = format::skill(source, origin, &mut context.findings) else { continue };
            if let Some(first) = skills.get(&skill.name) {
                let message = format!("a skill named `{}` is already in {}", skill.name, first.place.file);
                let help = "The one nearer to the folder is used; rename the other.";
                context.findings.warning("F0870", &skill.place, message, help);
                continue;
            }
            skills.insert(skill.name.clone(), Arc::new(skill));
        }
        skills.sort_keys();
        let loaded = LoadedFolder { exists: folder.exists, is_outside: folder.is_outside, skills };
        folders.insert(folder.path.clone(), loaded);
    }
    SkillLibrary { folders, used: BTreeSet::new(), used_folders: BTreeSet::new() }
}

fn report_left_out(context: &mut LoadContext<'_>, folder: &SkillFolder) {
    for (path, problem) in &folder.left_out {
        let (code, message, help) = match problem {
            SkillProblem::Link => {
                let message = "this link leads out of the folder of the skill, so it is not read".to_owned();
                ("F0873", message, "Copy the file into the folder of the skill.")
            }
            SkillProblem::Limit(message) => {
                ("F0874", message.clone(), "Remove what is not a skill, or move skills nearer.")
            }
            SkillProblem::NotLoaded(reason) => {
                let message = format!("this skill is not loaded: {reason}");
                ("F0871", message, "Correct the file, or move it out of the folder of skills.")
            }
        };
        context.findings.warning(code, &start_of(path), message, help);
    }
}

/// Reads the skills of an agent of the project or of a mission; `None` if it may load none.
pub(super) fn of_agent(
    context: &mut LoadContext<'_>,
    fields: &MapFields<'_>,
    library: &mut SkillLibrary,
) -> Option<Arc<AgentSkills>> {
    let written = fields.node("skills");
    let available = library.available(context, fields, written.is_some());
    let mut skills = IndexMap::new();
    match written {
        None => {}
        Some(node) if node.text() == Some("all") => {
            if available.is_empty() {
                let message = "`skills: all`, but its folders contain no skill";
                context.warning("F0872", node, message, "Add `.agents/skills/<name>/SKILL.md`, or remove `skills`.");
            }
            skills = available.clone();
        }
        Some(node) => {
            for item in node.list().unwrap_or_default() {
                let skill = match item.map() {
                    Some(_) => configured(context, item, &available),
                    None => named(context, item, &available),
                };
                if let Some(skill) = skill {
                    skills.insert(skill.name.clone(), skill);
                }
            }
            if node.list().is_none() {
                let message = format!("`skills` must be `all` or a list of names, but this is {}", node.kind());
                context.error("F0108", node, message, "Write for example `skills: [invoice-reading]`.");
            }
        }
    }
    skills.sort_keys();
    library.used.extend(skills.values().map(|skill| skill.place.file.clone()));
    let scripts = scripts(context, fields, &skills);
    missing_secrets(context, fields, &skills, &scripts);
    let (narrows, by_user) = (fields.flag("skills_narrow_tools"), fields.bool("skills_by_user").unwrap_or_default());
    (!skills.is_empty()).then(|| Arc::new(AgentSkills { skills, narrows, by_user, scripts }))
}

/// A skill that a list names.
fn named(
    context: &mut LoadContext<'_>,
    node: &Node,
    available: &IndexMap<Arc<str>, Arc<SkillDef>>,
) -> Option<Arc<SkillDef>> {
    let name = node.text().unwrap_or_default();
    if let Some(skill) = available.get(name) {
        return Some(skill.clone());
    }
    let help = match did_you_mean(name, available.keys().map(|name| &**name)) {
        Some(near) => format!("Did you mean `{near}`?"),
        None => format!("Add `.agents/skills/{name}/SKILL.md`, or correct `skill_folders`."),
    };
    context.error("F0872", node, format!("there is no skill `{name}` in the folders of the agent"), help);
    None
}

/// A skill that is written in the configuration.
fn configured(
    context: &mut LoadContext<'_>,
    node: &Node,
    available: &IndexMap<Arc<str>, Arc<SkillDef>>,
) -> Option<Arc<SkillDef>> {
    let fields = context.fields(node, &SKILL)?;
    let (at, name) = (fields.node("name")?, fields.text("name")?);
    if !is_skill_name(name) {
        let message = format!("`{name}` is not a name of a skill");
        context.error("F0879", at, message, "Use `a-z`, `0-9` and single hyphens inside, at most 64 characters.");
    }
    if let Some(other) = available.get(name) {
        let message = format!("the skill `{name}` has the name of the one in {}", other.place.file);
        context.error("F0879", at, message, "Rename one of the two.");
    }
    for key in ["description", "instructions"] {
        if fields.text(key).is_some_and(|text| text.trim().is_empty()) {
            context.error(
                "F0879",
                fields.at(key),
                format!("the `{key}` of a skill must not be empty"),
                "Write a text.",
            );
        }
    }
    let body: Arc<str> = fields.text("instructions")?.trim().into();
    if body.len() > limits::SKILL_BODY {
        let message = format!("the skill has {} bytes; the limit is {}", body.len(), limits::SKILL_BODY);
        context.error("F0879", fields.at("instructions"), message, "Split the skill.");
    }
    let brings = missions::server_tools(context, fields.list("tools"));
    let mut hasher = Sha256::new();
    hasher.update(body.as_bytes());
    Some(Arc::new(SkillDef {
        name: name.into(),
        description: fields.text("description")?.trim().into(),
        body,
        root: "".into(),
        files: Vec::new(),
        allowed_tools: None,
        user_only: false,
        brings,
        required_secrets: Vec::new(),
        origin: SkillOrigin::Configuration,
        hash: format!("{:016x}", first_bytes(hasher)).into(),
        body_line: 1,
        place: context.place(at),
    }))
}

/// Reads `skill_scripts`.
fn scripts(
    context: &mut LoadContext<'_>,
    fields: &MapFields<'_>,
    skills: &IndexMap<Arc<str>, Arc<SkillDef>>,
) -> Vec<SkillScript> {
    let mut scripts: Vec<SkillScript> = Vec::new();
    for entry in fields.map("skill_scripts") {
        let Some(skill) = skills.get(entry.key.as_str()) else {
            let help = match did_you_mean(&entry.key, skills.keys().map(|name| &**name)) {
                Some(near) => format!("Did you mean `{near}`?"),
                None => "Add the skill to `skills`, or remove its scripts.".to_owned(),
            };
            context.error("F0878", &entry.at, format!("the agent has no skill `{}`", entry.key), help);
            continue;
        };
        let (paths, environment, timeout) = match entry.node.list() {
            Some(paths) => (paths, Vec::new(), None),
            None => {
                let Some(grant) = context.fields(&entry.node, &SKILL_SCRIPT) else { continue };
                let variable = |one: &Entry| Some((one.key.as_str().into(), one.node.text()?.into()));
                (
                    grant.list("scripts"),
                    grant.map("environment").iter().filter_map(variable).collect(),
                    grant.seconds("timeout"),
                )
            }
        };
        for node in paths {
            let path = node.text().unwrap_or_default().trim_start_matches("./");
            if skill.file(path).is_none() {
                let help = match did_you_mean(path, skill.files.iter().map(|file| &*file.path)) {
                    Some(near) => format!("Did you mean `{near}`?"),
                    None => format!("Paths begin in `{}`.", skill.root),
                };
                context.error("F0878", node, format!("the skill `{}` has no file `{path}`", skill.name), help);
                continue;
            }
            let tool = script_tool(&skill.name, path);
            if scripts.iter().any(|other| other.tool == tool) {
                let message = format!("two scripts would be the tool `{tool}`");
                context.error("F0878", node, message, "Rename one of the two files.");
                continue;
            }
            scripts.push(SkillScript {
                tool,
                skill: skill.name.clone(),
                path: path.into(),
                environment: environment.clone(),
                timeout: timeout.unwrap_or(AgentSkills::SCRIPT_TIMEOUT),
            });
        }
    }
    scripts
}

/// Reports secrets that a script requires and does not get.
fn missing_secrets(
    context: &mut LoadContext<'_>,
    fields: &MapFields<'_>,
    skills: &IndexMap<Arc<str>, Arc<SkillDef>>,
    scripts: &[SkillScript],
) {
    for skill in skills.values() {
        let granted: Vec<_> = scripts.iter().filter(|script| script.skill == skill.name).collect();
        let has =
            |name: &Arc<str>| granted.iter().any(|script| script.environment.iter().any(|(known, _)| known == name));
        let missing: Vec<&str> = skill.required_secrets.iter().filter(|name| !has(name)).map(|name| &**name).collect();
        if !missing.is_empty() && !granted.is_empty() {
            let message =
                format!("the skill `{}` requires `{}`, which its scripts do not get", skill.name, missing.join("`, `"));
            let help = format!("Add `environment: {{{}: ${{…}}}}` to its entry.", missing.join(": ${…}, "));
            context.warning("F0877", fields.at("skill_scripts"), message, help);
        }
    }
}

impl SkillLibrary {
    /// The skills of the folders of an agent. Of two with one name, the first is used.
    fn available(
        &mut self,
        context: &mut LoadContext<'_>,
        fields: &MapFields<'_>,
        uses_skills: bool,
    ) -> IndexMap<Arc<str>, Arc<SkillDef>> {
        let mut available: IndexMap<Arc<str>, Arc<SkillDef>> = IndexMap::new();
        let trusts = fields.flag("trust");
        for node in fields.list("skill_folders") {
            let path = plain_folder(node.text().unwrap_or_default());
            let folder = self.folders.get(path);
            if folder.is_some_and(|folder| folder.is_outside && !trusts) {
                let message = format!("the folder `{path}` is outside the project, so its skills are not loaded");
                context.error(
                    "F0873",
                    node,
                    message,
                    "Move it into the project, or add `trust: true` if you vouch for it.",
                );
            } else if folder.is_none_or(|folder| !folder.exists) {
                let message = format!("there is no folder `{path}` with skills");
                context.error(
                    "F0873",
                    node,
                    message,
                    "Create it, or correct the path; paths begin in the project's folder.",
                );
            }
        }
        if !uses_skills {
            return available;
        }
        for path in skill_folders(fields.node) {
            let Some(folder) = self.folders.get(&path).filter(|folder| trusts || !folder.is_outside) else { continue };
            for (name, skill) in &folder.skills {
                available.entry(name.clone()).or_insert_with(|| skill.clone());
            }
            self.used_folders.insert(path);
        }
        available
    }

    /// Reports skills that no agent may load, and files that a skill mentions and does not have.
    pub(super) fn analyse(&self, context: &mut LoadContext<'_>) {
        for (path, folder) in self.folders.iter().filter(|(path, _)| self.used_folders.contains(*path)) {
            for skill in folder.skills.values() {
                if !self.used.contains(&skill.place.file) {
                    let message = format!("no agent may load the skill `{}`", skill.name);
                    let help = format!("Add it to `skills` of an agent, or move it out of `{path}`.");
                    context.findings.note("F0876", &skill.place, message, help);
                }
                for (mention, line) in mentions::missing_files(skill) {
                    let place = SourceLocation { file: skill.place.file.clone(), line, column: 1, width: 1 };
                    let message = format!("the skill mentions `{mention}`, which it does not have");
                    context.findings.warning("F0875", &place, message, "Add the file, or correct the path.");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
