//! The skills of an agent of a mission. Those that are written in the mission may bring tools of servers, which the agent has only while such
//! a skill is loaded.

use segue_engine::{ids::AgentName, project::missions::MissionDef};

use super::parts::{MissionAgent, ServerTools, servers_of};
use crate::{
    prompts::PromptSet,
    react::{BroughtTools, SkillSession, ToolNarrowing},
    tools::tool_set::ToolSet,
};

pub(super) use crate::react::SKILL_TOOLS;

/// The servers of an agent, with those of the tools that its skills bring.
pub(super) fn servers(def: &MissionDef, name: &AgentName, agent: &MissionAgent) -> Vec<ServerTools> {
    match (def.local_agents.get(name), &agent.skills) {
        (Some(local), Some(skills)) => {
            servers_of(local.tools.iter().chain(skills.skills.values().flat_map(|skill| &skill.brings)))
        }
        _ => agent.servers.clone(),
    }
}

/// The skills of a run; `None` if the agent has none.
///
/// # Errors
/// The problem of a prompt that the project replaced.
pub(super) fn session(
    agent: &MissionAgent,
    tools: &ToolSet,
    narrowing: ToolNarrowing,
    prompts: &PromptSet,
) -> Result<Option<SkillSession>, String> {
    let Some(skills) = &agent.skills else { return Ok(None) };
    let mut brought = BroughtTools::new();
    for skill in skills.skills.values() {
        for (server, include, _) in servers_of(&skill.brings) {
            for info in tools.infos().filter(|info| *info.source == *server.as_str()) {
                let is_named = |tool: &str| is_tool(&info.name, server.as_str(), tool);
                let has = agent.servers.iter().any(|(own, include, exclude)| {
                    *own == server
                        && (include.is_empty() || include.iter().any(|tool| is_named(tool.as_str())))
                        && !exclude.iter().any(|tool| is_named(tool.as_str()))
                });
                if !has && (include.is_empty() || include.iter().any(|tool| is_named(tool.as_str()))) {
                    brought.entry(info.name.clone()).or_default().insert(skill.name.clone());
                }
            }
        }
    }
    SkillSession::new(skills.clone(), narrowing, brought, prompts).map(Some)
}

/// Whether a model calls the tool of a server by this name: its own, or with the server before it.
fn is_tool(called: &str, server: &str, tool: &str) -> bool {
    called == tool || called.strip_prefix(server).and_then(|rest| rest.strip_prefix("__")) == Some(tool)
}
