//! The settings of agents that may start sub-agents.

use std::{collections::HashMap, sync::Arc};

use segue_engine::project::DelegateModel;
use serde_json::Map;

use super::{AssistantBuilder, LoadError};
use crate::delegation::{AgentDelegation, DelegationSettings, Delegations};

impl AssistantBuilder {
    /// The settings of agents that may start sub-agents, and the models of the types that have one of their own.
    pub(super) fn agent_delegation(&self) -> Result<HashMap<String, AgentDelegation>, LoadError> {
        let models = self.model_factory();
        let none = Map::new();
        let mut all = HashMap::new();
        for (name, settings) in self.delegation_settings() {
            if self.project.agent(&name).is_none() {
                return Err(LoadError::Tool(format!(
                    "`task` is for an agent `{name}`, which the project does not have"
                )));
            }
            let mut own = HashMap::new();
            for kind in settings.types.values().filter(|_| !self.offline && self.model.is_none()) {
                let opened = match &kind.model {
                    DelegateModel::Inherit => continue,
                    DelegateModel::Group(group) => models.open(Some(group), &none),
                    DelegateModel::Own(settings) => models.open(None, settings),
                };
                let place = format!("the sub-agent {}", kind.name);
                own.insert(kind.name.clone(), opened.map_err(|problem| LoadError::Model { place, problem })?);
            }
            all.insert(name, AgentDelegation { settings: Arc::new(settings), models: own });
        }
        Ok(all)
    }

    /// The sub-agents of the process: those that were given, or new ones with the admission of the project.
    pub(super) fn open_delegations(&self) -> Arc<Delegations> {
        let open = || Arc::new(Delegations::new(self.project.subagents.admission, self.task_events.clone()));
        self.delegations.clone().unwrap_or_else(open)
    }

    /// The settings by agent: those that were given, else those of its file.
    pub(super) fn delegation_settings(&self) -> HashMap<String, DelegationSettings> {
        let in_files = self.project.agents.values().filter_map(|agent| {
            let delegation = agent.delegation.as_deref()?;
            Some((agent.name.to_string(), DelegationSettings::of(delegation, &self.project.subagents)))
        });
        let mut settings: HashMap<String, DelegationSettings> = in_files.collect();
        settings.extend(self.delegation.iter().map(|(agent, given)| (agent.clone(), given.clone())));
        settings
    }
}
