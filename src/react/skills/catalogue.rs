//! What the model reads about skills: the catalogue, the tools, and the instructions of loaded skills.
//!
//! All texts come from files that may be from elsewhere. Descriptions are one line without hidden characters and quoted; the end of a
//! wrapper inside instructions is masked.

use std::sync::Arc;

use minijinja::{Value, context};
use segue_engine::{
    project::{AgentSkills, SkillDef, SkillOrigin},
    text::{single_line, strip_hidden},
};
use serde_json::{Map, Value as Json, json};

use super::{DESCRIBE_SKILL, LOAD_SKILL, LoadedSkills, READ_SKILL_FILE};
use crate::{
    limits,
    llm::{ChatMessage, ToolSpec},
    prompts::PromptSet,
};

/// A description as data in a prompt.
pub(super) fn description(skill: &SkillDef) -> String {
    let text = strip_hidden(&skill.description);
    single_line(text.trim()).into()
}

/// Whether the prompt contains only names.
pub(super) fn is_large(visible: &[&SkillDef]) -> bool {
    visible.len() >= limits::SKILLS_DESCRIBED
}

/// The names that a prompt lists, and how many it does not.
fn listed(visible: &[&SkillDef]) -> (Vec<String>, usize) {
    let mut left = limits::SKILL_NAMES_BYTES;
    let fits = |skill: &&&SkillDef| {
        left = left.saturating_sub(skill.name.len() + 2);
        left > 0
    };
    let names: Vec<String> = visible.iter().take_while(fits).map(|skill| skill.name.to_string()).collect();
    let more = visible.len().saturating_sub(names.len());
    (names, more)
}

/// The paths of the files of a skill, as far as they are listed.
pub(super) fn listed_files(skill: &SkillDef) -> Vec<String> {
    skill.files.iter().take(limits::SKILL_LISTED_FILES).map(|file| file.path.to_string()).collect()
}

/// The catalogue; `None` without skills.
pub(super) fn message(visible: &[&SkillDef], prompts: &PromptSet) -> Result<Option<Arc<ChatMessage>>, String> {
    if visible.is_empty() {
        return Ok(None);
    }
    let (names, more) = listed(visible);
    let skills: Vec<Value> = match is_large(visible) {
        true => Vec::new(),
        false => visible.iter().map(|one| context! { name => &*one.name, description => description(one) }).collect(),
    };
    let text = prompts.render(&prompts.agent_skills, context! { skills, names, more });
    text.map(|text| Some(ChatMessage::system(text.trim()))).map_err(|error| error.to_string())
}

/// The tools for skills.
pub(super) fn tools(visible: &[&SkillDef], prompts: &PromptSet) -> Result<Vec<ToolSpec>, String> {
    let (names, more) = listed(visible);
    let text = prompts.render(&prompts.tool_skills, context! {}).map_err(|error| error.to_string())?;
    let texts: Map<String, Json> = serde_json::from_str(&text).unwrap_or_else(|problem| {
        tracing::warn!(%problem, "prompts/tool_skills.j2 is not a JSON object: tools for skills have no description");
        Map::new()
    });
    let described =
        |tool: &str, part: &str| texts.get(tool).and_then(|texts| texts.get(part)).cloned().unwrap_or_default();
    let mut name = json!({"type": "string", "description": described(LOAD_SKILL, "name")});
    if more == 0
        && let Some(name) = name.as_object_mut()
    {
        name.insert("enum".to_owned(), json!(names));
    }
    let tool = |name: &str, properties: Json, required: &[&str]| ToolSpec {
        name: name.into(),
        description: described(name, "description").as_str().unwrap_or_default().into(),
        parameters: Arc::new(
            json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false}),
        ),
        strict: false,
    };
    let mut tools = Vec::new();
    if !visible.is_empty() {
        tools.push(tool(LOAD_SKILL, json!({"name": name}), &["name"]));
    }
    if is_large(visible) {
        let query = json!({"type": "string", "description": described(DESCRIBE_SKILL, "query")});
        tools.push(tool(DESCRIBE_SKILL, json!({"query": query}), &["query"]));
    }
    let properties = json!({
        "skill": {"type": "string", "description": described(READ_SKILL_FILE, "skill")},
        "path": {"type": "string", "description": described(READ_SKILL_FILE, "path")},
        "offset": {"type": "integer", "minimum": 0, "description": described(READ_SKILL_FILE, "offset")},
    });
    tools.push(tool(READ_SKILL_FILE, properties, &["skill", "path"]));
    Ok(tools)
}

/// The instructions of all loaded skills; `None` if none is loaded.
pub(super) fn instructions(
    skills: &AgentSkills,
    loaded: &LoadedSkills,
    prompts: &PromptSet,
) -> Option<Arc<ChatMessage>> {
    if loaded.is_empty() {
        return None;
    }
    let shown = loaded.0.iter().map(|loaded| {
        let Some(skill) = skills.skills.get(&loaded.name) else {
            return context! { name => &*loaded.name, is_gone => true };
        };
        let files = listed_files(skill);
        let scripts = skills.scripts.iter().filter(|script| script.skill == skill.name);
        context! {
            name => &*skill.name,
            is_gone => false,
            is_changed => skill.hash != loaded.hash,
            is_outside => skill.origin == SkillOrigin::Outside,
            root => &*skill.root,
            body => masked(&skill.body),
            more_files => skill.files.len().saturating_sub(files.len()),
            files,
            tools => skill.allowed_tools.as_ref().map(|tools| tools.iter().map(|tool| tool.to_string()).collect::<Vec<_>>()),
            scripts => scripts.map(|script| script.tool.to_string()).collect::<Vec<_>>(),
        }
    });
    let skills: Vec<Value> = shown.collect();
    let text = prompts.render(&prompts.agent_skills_loaded, context! { skills });
    let text = text.unwrap_or_else(|error| {
        tracing::error!("prompts/agent_skills_loaded.j2 cannot be rendered: {error}");
        String::new()
    });
    Some(ChatMessage::system(text.trim()))
}

/// The text without tags that would end its wrapper or open another one.
fn masked(text: &str) -> String {
    text.replace("</skill", "&lt;/skill").replace("<skill ", "&lt;skill ")
}
