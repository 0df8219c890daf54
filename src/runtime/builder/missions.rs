//! Builds the engine for runs of missions.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use serde_json::{Map, Value as Json};

use super::{AssistantBuilder, LoadError};
use crate::{
    delegation::DelegationSettings,
    missions::{MissionParts, RunEngine},
    prompts::PromptSet,
    runtime::effects::remote_agent,
    store::runs::RunStore,
};

impl AssistantBuilder {
    /// Builds an engine for runs of the missions of the project, stored in `runs`. It connects to no server yet.
    ///
    /// # Errors
    /// [`LoadError`] as [`build`](Self::build).
    pub fn build_missions(mut self, runs: Arc<dyn RunStore>) -> Result<RunEngine, LoadError> {
        let mut tools = self.agent_tools()?;
        let workspaces = self.workspaces();
        let mut local_tools = self.add_run_tools(&workspaces, &mut tools);
        let file_tools = self.file_tools(&workspaces);
        let prompts =
            PromptSet::new(|name| self.prompt_override(name)).map_err(|error| LoadError::Prompt(Box::new(error)))?;
        let models = self.model_factory();
        let open = |group: Option<&str>, own: &Map<String, Json>, place: String| match &self.model {
            Some(model) => Ok(model.clone()),
            None => models.open(group, own).map_err(|problem| LoadError::Model { place, problem }),
        };
        let (mut commander_models, mut local_models, mut agent_models) =
            (HashMap::new(), HashMap::new(), HashMap::new());
        let mut called = BTreeSet::new();
        for (name, mission) in &self.project.missions {
            let commander = &mission.commander;
            let model = open(commander.model_group.as_deref(), &commander.llm, format!("the mission {name}"))?;
            commander_models.insert(name.clone(), model);
            for (agent, def) in &mission.local_agents {
                let model = open(def.model_group.as_deref(), &def.llm, format!("the agent {agent} of {name}"))?;
                local_models.insert((name.clone(), agent.clone()), model);
                if let Some(skills) = &def.skills {
                    let own: &mut Vec<_> = local_tools.entry((name.clone(), agent.clone())).or_default();
                    own.extend(self.skill_scripts(skills));
                }
            }
            called.extend(mission.agents.iter().chain(mission.tasks.values().flat_map(|task| &task.agents)).cloned());
        }
        for name in called {
            let Some(agent) = self.project.agent(name.as_str()).filter(|agent| agent.remote.is_none()) else {
                continue;
            };
            let model = open(agent.model_group.as_deref(), &agent.llm, format!("the agent {name}"))?;
            agent_models.insert(name.to_string(), model);
        }
        let sources = self.tool_sources();
        let mut delegation = self.agent_delegation()?;
        for own in delegation.values_mut() {
            // A unit waits for its sub-agents.
            own.settings = Arc::new(DelegationSettings { background: false, ..(*own.settings).clone() });
        }
        let delegations = self.open_delegations();
        Ok(RunEngine::new(MissionParts {
            prompts: Arc::new(prompts),
            commander_models,
            local_models,
            agent_models,
            sources,
            tools,
            local_tools,
            file_tools,
            workspaces,
            remote_agents: remote_agent::open(&self.project, &self.clock, &self.outbound),
            delegation,
            delegations,
            runs,
            clock: self.clock.clone(),
            owner: segue_base::process::name(),
            project: self.project.clone(),
        }))
    }
}
