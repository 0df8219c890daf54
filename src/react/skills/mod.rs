//! Agent Skills in a loop: packaged instructions that the model loads when it needs them.
//!
//! The model always sees names and descriptions ([`catalogue`]). What it loads becomes part of its prompt, directly after the system
//! prompt, so that it is there exactly once however long the history is and however often it is compacted. The names of loaded skills are
//! part of the state of the loop ([`LoadedSkills`]); their texts are those of the project. Loaded skills may take tools away, or bring
//! some ([`narrowing`]).

mod calls;
mod catalogue;
mod narrowing;
#[cfg(test)]
pub(in crate::react) mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use segue_engine::project::{AgentSkills, SkillDef, SkillOrigin};
use serde::{Deserialize, Serialize};

pub(crate) use self::narrowing::ToolNarrowing;
use super::Messages;
use crate::{
    limits,
    llm::{ChatMessage, ToolList, ToolSpec},
    prompts::PromptSet,
    tools::tool_set::ToolSet,
};

/// The tool that loads a skill.
pub(crate) const LOAD_SKILL: &str = "load_skill";
/// The tool that reads a file of a loaded skill.
pub(crate) const READ_SKILL_FILE: &str = "read_skill_file";
/// The tool that describes skills of a large catalogue.
pub(crate) const DESCRIBE_SKILL: &str = "describe_skill";
/// The names of all three; no other tool may have them.
pub(crate) const SKILL_TOOLS: [&str; 3] = [LOAD_SKILL, READ_SKILL_FILE, DESCRIBE_SKILL];

/// A loaded skill, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LoadedSkill {
    /// Its name.
    pub(crate) name: Arc<str>,
    /// The hash of its contents when it was loaded.
    pub(crate) hash: Arc<str>,
    /// Whether the user loaded it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) by_user: bool,
}

/// The loaded skills of a session, in the order in which they were loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct LoadedSkills(Vec<LoadedSkill>);

impl LoadedSkills {
    /// Whether none is loaded.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    fn contains(&self, name: &str) -> bool {
        self.0.iter().any(|loaded| *loaded.name == *name)
    }

    /// Loads the skill that a user names at the start of a message, as `/name`, if the agent allows it.
    pub(crate) fn load_by_user(&mut self, message: &str, skills: &AgentSkills) {
        let Some(name) = message.trim_start().strip_prefix('/').filter(|_| skills.by_user) else { return };
        let name = name.split(char::is_whitespace).next().unwrap_or_default();
        let Some(skill) = skills.get(name) else { return };
        let is_too_long = self.bytes(skills).saturating_add(skill.body.len()) > limits::SKILLS_LOADED_BYTES;
        match self.0.iter_mut().find(|loaded| loaded.name == skill.name) {
            Some(loaded) => loaded.by_user = true,
            None if is_too_long => {}
            None => self.0.push(LoadedSkill { name: skill.name.clone(), hash: skill.hash.clone(), by_user: true }),
        }
    }

    /// The size of their instructions.
    fn bytes(&self, skills: &AgentSkills) -> usize {
        self.0.iter().filter_map(|loaded| skills.skills.get(&loaded.name)).map(|skill| skill.body.len()).sum()
    }

    /// The instructions of those from outside the project: text that nobody vouches for.
    pub(crate) fn untrusted<'s>(&'s self, skills: &'s AgentSkills) -> impl Iterator<Item = &'s Arc<str>> {
        let loaded = self.0.iter().filter_map(|loaded| skills.skills.get(&loaded.name));
        loaded.filter(|skill| skill.origin == SkillOrigin::Outside).map(|skill| &skill.body)
    }
}

/// Tools that belong to skills, with the names of those skills.
pub(crate) type BroughtTools = BTreeMap<Arc<str>, BTreeSet<Arc<str>>>;

/// The skills of one run of a loop.
pub(crate) struct SkillSession {
    skills: Arc<AgentSkills>,
    loaded: LoadedSkills,
    narrowing: ToolNarrowing,
    brought: BroughtTools,
    specs: Vec<ToolSpec>,
    catalogue: Option<Arc<ChatMessage>>,
    /// The message with the loaded instructions, until another skill is loaded.
    instructions: Option<Arc<ChatMessage>>,
}

impl SkillSession {
    /// The skills of an agent. `narrowing` is shared with those who must know which tools are left. `brought`: tools that it may only call
    /// while a skill is loaded, besides the scripts of skills.
    ///
    /// # Errors
    /// The problem of a prompt that the project replaced.
    pub(crate) fn new(
        skills: Arc<AgentSkills>,
        narrowing: ToolNarrowing,
        mut brought: BroughtTools,
        prompts: &PromptSet,
    ) -> Result<Self, String> {
        for script in &skills.scripts {
            brought.entry(script.tool.clone()).or_default().insert(script.skill.clone());
        }
        let visible: Vec<&SkillDef> = visible(&skills).collect();
        let catalogue = catalogue::message(&visible, prompts)?;
        let specs = match skills.skills.is_empty() {
            true => Vec::new(),
            false => catalogue::tools(&visible, prompts)?,
        };
        let loaded = LoadedSkills::default();
        Ok(Self { skills, loaded, narrowing, brought, specs, catalogue, instructions: None })
    }

    /// Continues with skills that were loaded earlier.
    pub(crate) fn restore(&mut self, loaded: &LoadedSkills, prompts: &PromptSet) {
        if self.loaded != *loaded {
            self.loaded = loaded.clone();
            self.changed(prompts);
        }
    }
    /// The loaded skills.
    pub(crate) fn loaded(&self) -> &LoadedSkills {
        &self.loaded
    }
    /// Their names.
    pub(crate) fn names(&self) -> Vec<String> {
        self.loaded.0.iter().map(|loaded| loaded.name.to_string()).collect()
    }

    /// The tools of a request: those of `offered` that the agent may call now, and the tools for skills. Control tools, which are not
    /// among `tools`, are always left.
    pub(crate) fn offered(&self, offered: &ToolList, tools: &ToolSet) -> ToolList {
        let may_call = |name: &str| !self.is_waiting(name) && self.narrowing.allows(name);
        let own = offered.iter().filter(|tool| tools.get(&tool.name).is_none() || may_call(&tool.name));
        own.chain(&self.specs).cloned().collect()
    }
    /// Whether a tool is one for skills.
    pub(crate) fn is_own(&self, tool: &str) -> bool {
        self.specs.iter().any(|spec| *spec.name == *tool)
    }

    /// Adds the catalogue and the loaded instructions, directly after the system prompt.
    pub(crate) fn insert(&self, mut messages: Messages) -> Messages {
        let at = usize::from(messages.first().is_some_and(|first| matches!(**first, ChatMessage::System { .. })));
        messages.splice(at..at, self.catalogue.iter().chain(&self.instructions).cloned());
        messages
    }

    /// Called after the loaded skills changed.
    fn changed(&mut self, prompts: &PromptSet) {
        self.instructions = catalogue::instructions(&self.skills, &self.loaded, prompts);
        self.narrowing.set(&self.skills, &self.loaded);
    }

    /// Whether a tool belongs to skills of which none is loaded.
    fn is_waiting(&self, tool: &str) -> bool {
        self.brought.get(tool).is_some_and(|of| !of.iter().any(|skill| self.loaded.contains(skill)))
    }
}

/// The skills that a model may load, by name.
fn visible(skills: &AgentSkills) -> impl Iterator<Item = &SkillDef> {
    skills.skills.values().filter(|skill| !skill.user_only).map(|skill| &**skill)
}
