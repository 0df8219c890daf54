//! Calls of the tools for skills. They read nothing but the project, so that they give the same result when a turn runs again.

use minijinja::{Value, context};
use segue_engine::project::{SkillDef, SkillFile};
use serde::Deserialize;
use serde_json::Value as Json;

use super::{DESCRIBE_SKILL, LOAD_SKILL, LoadedSkill, READ_SKILL_FILE, SkillSession, catalogue, visible};
use crate::{
    limits,
    llm::{ToolArguments, ToolCall},
    prompts::PromptSet,
};

#[derive(Deserialize)]
struct LoadArguments {
    name: String,
}

#[derive(Deserialize)]
struct DescribeArguments {
    query: String,
}

#[derive(Deserialize)]
struct ReadArguments {
    skill: String,
    path: String,
    #[serde(default)]
    offset: usize,
}

/// A text for the model, with `Err` for a call that failed.
type CallText = Result<Value, Value>;

impl SkillSession {
    /// Runs a call of a tool for skills. Returns the text for the model, and whether it succeeded.
    pub(crate) fn call(&mut self, call: &ToolCall, prompts: &PromptSet) -> (String, bool) {
        let done = match &call.arguments {
            ToolArguments::Malformed { error, .. } => Err(context! { outcome => "arguments", problem => &**error }),
            // The loop never hands such a call on.
            ToolArguments::Dropped { .. } => Err(context! { outcome => "arguments", problem => "missing" }),
            ToolArguments::Json(arguments) => match &*call.name {
                LOAD_SKILL => parse(arguments).and_then(|arguments| self.load(arguments, prompts)),
                DESCRIBE_SKILL => parse(arguments).map(|arguments| self.describe(arguments)),
                READ_SKILL_FILE => parse(arguments).and_then(|arguments| self.read(arguments)),
                _ => Err(context! { outcome => "arguments", problem => "unknown tool" }),
            },
        };
        let is_done = done.is_ok();
        let (Ok(variables) | Err(variables)) = done;
        (text(variables, prompts), is_done)
    }

    /// Why a call of another tool is refused, if it is.
    pub(crate) fn refusal(&self, tool: &str, prompts: &PromptSet) -> Option<String> {
        if self.is_waiting(tool) {
            let of = self.brought.get(tool).into_iter().flatten().map(|skill| skill.to_string()).collect::<Vec<_>>();
            return Some(text(context! { outcome => "not_brought", tool, skills => of }, prompts));
        }
        (!self.narrowing.allows(tool))
            .then(|| text(context! { outcome => "narrowed", tool, skills => self.names() }, prompts))
    }

    fn load(&mut self, LoadArguments { name }: LoadArguments, prompts: &PromptSet) -> CallText {
        let loaded = self.loaded.0.iter().map(|loaded| &loaded.name);
        let skill = self
            .skills
            .get(name.trim())
            .filter(|skill| !skill.user_only || loaded.clone().any(|one| *one == skill.name));
        let Some(skill) = skill.cloned() else { return Err(self.unknown(&name)) };
        let name = &*skill.name;
        if self.loaded.contains(name) {
            return Ok(context! { outcome => "already_loaded", name });
        }
        if self.loaded.bytes(&self.skills).saturating_add(skill.body.len()) > limits::SKILLS_LOADED_BYTES {
            return Err(context! { outcome => "too_many", name, skills => self.names() });
        }
        self.loaded.0.push(LoadedSkill { name: skill.name.clone(), hash: skill.hash.clone(), by_user: false });
        self.changed(prompts);
        Ok(context! { outcome => "loaded", name })
    }

    fn unknown(&self, name: &str) -> Value {
        let names = visible(&self.skills).map(|skill| skill.name.to_string());
        let known: Vec<String> = names.take(limits::SKILLS_DESCRIBED).collect();
        let more = visible(&self.skills).count().saturating_sub(known.len());
        context! { outcome => "unknown", name => shown(name), names => known, more }
    }

    /// Skills whose name or description contains the words, those with more of them first.
    fn describe(&self, DescribeArguments { query }: DescribeArguments) -> Value {
        let query = query.to_lowercase();
        let words: Vec<&str> = query.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
        let score = |skill: &SkillDef| {
            let (name, description) = (skill.name.to_lowercase(), skill.description.to_lowercase());
            let of = |word: &&str| usize::from(description.contains(word)) + 2 * usize::from(name.contains(word));
            words.iter().map(of).sum::<usize>() + usize::from(query.contains(&name)) * 100
        };
        let mut found: Vec<(usize, &SkillDef)> =
            visible(&self.skills).map(|skill| (score(skill), skill)).filter(|(score, _)| *score > 0).collect();
        found.sort_by(|(a, one), (b, other)| b.cmp(a).then_with(|| one.name.cmp(&other.name)));
        let more = found.len().saturating_sub(limits::SKILL_MATCHES);
        let found = found.into_iter().take(limits::SKILL_MATCHES);
        let skills: Vec<Value> =
            found.map(|(_, one)| context! { name => &*one.name, description => catalogue::description(one) }).collect();
        context! { outcome => "described", skills, more }
    }

    fn read(&self, ReadArguments { skill, path, offset }: ReadArguments) -> CallText {
        let known = self.skills.get(skill.trim()).filter(|known| self.loaded.contains(&known.name));
        let Some(known) = known else {
            return Err(context! { outcome => "not_loaded", name => shown(&skill) });
        };
        let path = path.trim().trim_start_matches("./");
        let path = path.strip_prefix(&*known.root).map_or(path, |rest| rest.trim_start_matches('/'));
        let Some(file) = known.file(path) else {
            let files = catalogue::listed_files(known);
            return Err(context! { outcome => "no_file", name => &*known.name, path => shown(path), files });
        };
        page(file, offset)
    }
}

/// A part of a file, at most [`limits::SKILL_READ`] bytes.
fn page(file: &SkillFile, offset: usize) -> CallText {
    let path = &*file.path;
    let Some(text) = &file.text else {
        return Err(context! { outcome => "no_text", path, bytes => file.bytes });
    };
    let start = text.floor_char_boundary(offset);
    let end = text.floor_char_boundary(start.saturating_add(limits::SKILL_READ));
    let part = text.get(start..end).unwrap_or_default();
    let next = (end < text.len()).then_some(end);
    Ok(context! { outcome => "page", path, text => part, start, end, bytes => text.len(), next })
}

fn parse<T: for<'de> Deserialize<'de>>(arguments: &Json) -> Result<T, Value> {
    T::deserialize(arguments).map_err(|error| context! { outcome => "arguments", problem => error.to_string() })
}

fn text(variables: Value, prompts: &PromptSet) -> String {
    prompts.render(&prompts.agent_skill_results, variables).unwrap_or_default().trim().to_owned()
}

/// A text of the model in a message to it.
fn shown(text: &str) -> String {
    text.chars().take(limits::SKILL_SHOWN_CHARS).collect()
}
