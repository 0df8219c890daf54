//! The skills of an agent in a conversation. Which ones are loaded is metadata of the agent's frame, so that they stay loaded over turns and
//! after a restart of the process.

use std::sync::Arc;

use segue_engine::project::AgentSkills;
use serde_json::{Map, Value as Json, json};

use super::AgentRequest;
use crate::{
    llm::ChatMessage,
    prompts::PromptSet,
    react::{BroughtTools, LoadedSkills, SkillSession},
};

/// The key of the frame's metadata for loaded skills.
pub(super) const LOADED: &str = "loaded_skills";

/// The skills of a run; `None` if the agent has none.
///
/// # Errors
/// The problem of a prompt that the project replaced.
pub(super) fn session(request: &AgentRequest<'_>, prompts: &PromptSet) -> Result<Option<SkillSession>, String> {
    let Some(skills) = &request.definition.skills else { return Ok(None) };
    SkillSession::new(skills.clone(), request.narrowing.clone(), BroughtTools::new(), prompts).map(Some)
}

/// The skills that were loaded in earlier turns of the task, and the one that the user names in this message.
pub(super) fn loaded(request: &AgentRequest<'_>) -> LoadedSkills {
    let Some(skills) = &request.definition.skills else { return LoadedSkills::default() };
    let stored = request.call.metadata.get(LOADED).cloned();
    let mut loaded: LoadedSkills = stored.and_then(|stored| serde_json::from_value(stored).ok()).unwrap_or_default();
    loaded.load_by_user(&request.call.user_message, skills);
    loaded
}

/// Writes the loaded skills into the metadata of the frame.
pub(super) fn write(loaded: &LoadedSkills, metadata: &mut Map<String, Json>) {
    if !loaded.is_empty() {
        metadata.insert(LOADED.to_owned(), json!(loaded));
    }
}

/// Loaded instructions from outside the project, as messages in which values of arguments may have their origin.
pub(super) fn untrusted_messages(skills: Option<&Arc<AgentSkills>>, loaded: &LoadedSkills) -> Vec<ChatMessage> {
    let texts = skills.into_iter().flat_map(|skills| loaded.untrusted(skills));
    texts.map(|text| ChatMessage::Tool { call_id: "".into(), name: LOADED.into(), text: text.clone() }).collect()
}
