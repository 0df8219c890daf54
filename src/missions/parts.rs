//! What runs of missions use: the project, models, tools, the store.

use std::{collections::HashMap, sync::Arc};

use indexmap::IndexMap;
use segue_engine::{
    ids::{AgentName, RunId, ServerName, ToolName},
    mission::{inputs::InputProblem, rerun::RerunProblem},
    project::{
        AgentDef, AgentSkills, Project,
        missions::{ContextLimits, MissionDef},
    },
};

use crate::{
    a2a::RemoteAgent,
    clock::Clock,
    delegation::{AgentDelegation, Delegations},
    effect::EffectClass,
    llm::Llm,
    prompts::PromptSet,
    store::runs::{LimitReached, LimitScope, RunStore, RunStoreError},
    tools::{
        ToolHandler, ToolSource,
        workspace::{self, FileError, Workspaces},
    },
};

/// Why an operation on a run failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum MissionError {
    /// The project has no such mission.
    #[error("the project has no mission `{0}`; `segue mission check` lists its missions")]
    UnknownMission(Arc<str>),
    /// The project has the mission of a run no longer. The run goes on when it is there again.
    #[error(
        "run {0} cannot go on: the project has no mission `{1}`; put its file back and continue the run with `segue mission resume {0}`, or end it with `segue mission cancel {0}`"
    )]
    WithoutMission(RunId, Arc<str>),
    /// The inputs are not valid.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Inputs(Vec<InputProblem>),
    /// As many runs as allowed have begun and not ended.
    #[error("{}", describe_limit(.0, .1, .2.as_deref()))]
    Full(Arc<str>, LimitReached, Option<Arc<str>>),
    /// The run cannot be repeated from a task.
    #[error(transparent)]
    Rerun(RerunProblem),
    /// The files of the run could not be copied into the folder of the new one.
    #[error("the files of run {0} cannot be taken over: {1}")]
    Files(RunId, FileError),
    /// There is no such run.
    #[error(
        "there is no run {0} in this store; `segue mission list` lists the runs, and `--store` names another store"
    )]
    UnknownRun(RunId),
    /// The ids of several runs begin with this text.
    #[error(
        "several runs begin with {0}: {list}; write more of the id",
        list = .1.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    )]
    AmbiguousRun(Arc<str>, Vec<RunId>),
    /// Stored data of the run cannot be read.
    #[error("the stored data of run {run} cannot be read: {reason}")]
    Unreadable {
        /// The run.
        run: RunId,
        /// What is wrong.
        reason: String,
    },
    /// There is no such question, it is closed, or the text is no answer to it.
    #[error("{0}")]
    Question(String),
    /// The store refused or failed.
    #[error(transparent)]
    Store(#[from] RunStoreError),
}

/// Tools of agents that exist in one mission only, by mission and agent.
pub type LocalTools = HashMap<(Arc<str>, AgentName), Vec<Arc<dyn ToolHandler>>>;

/// Why a run does not begin: the mission, the limit, and the key of the run.
fn describe_limit(mission: &str, reached: &LimitReached, key: Option<&str>) -> String {
    let LimitReached { scope, running, limit } = reached;
    let (runs, name) = match scope {
        LimitScope::Mission => (format!("runs of the mission `{mission}`"), "max_parallel"),
        LimitScope::Group => (format!("runs with the key `{}`", key.unwrap_or_default()), "limit"),
    };
    format!(
        "{running} of {limit} {runs} have begun and not ended (`concurrency.{name}`); wait until one has ended, cancel one that is not needed, or write `overflow: queue`"
    )
}

/// The parts that runs of missions use.
pub struct MissionParts {
    /// The project.
    pub project: Arc<Project>,
    /// The prompts.
    pub prompts: Arc<PromptSet>,
    /// The models of commanders, by mission.
    pub commander_models: HashMap<Arc<str>, Arc<dyn Llm>>,
    /// The models of agents that exist in one mission only, by mission and agent.
    pub local_models: HashMap<(Arc<str>, AgentName), Arc<dyn Llm>>,
    /// The models of the project's agents, by name.
    pub agent_models: HashMap<String, Arc<dyn Llm>>,
    /// MCP servers and other tool sources.
    pub sources: IndexMap<ServerName, Arc<dyn ToolSource>>,
    /// Registered tools and those of workspaces, by agent.
    pub tools: HashMap<String, Vec<Arc<dyn ToolHandler>>>,
    /// The tools of workspaces and the scripts of skills of agents that exist in one mission only, by mission and agent.
    pub local_tools: LocalTools,
    /// The tools for the folders of missions, by mission.
    pub file_tools: HashMap<Arc<str>, Vec<Arc<dyn ToolHandler>>>,
    /// The files of each run.
    pub workspaces: Workspaces,
    /// Remote agents, by name.
    pub remote_agents: HashMap<String, Arc<RemoteAgent>>,
    /// What agents may delegate, by agent.
    pub delegation: HashMap<String, AgentDelegation>,
    /// The sub-agents of the process.
    pub delegations: Arc<Delegations>,
    /// The store of runs.
    pub runs: Arc<dyn RunStore>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The name of this process in leases.
    pub owner: Arc<str>,
}

/// A server with the tools to include, all if none is named, and those to leave out.
pub(super) type ServerTools = (ServerName, Vec<ToolName>, Vec<ToolName>);

/// The servers of tools that are written as `server` or `server.tool`.
pub(super) fn servers_of<'t>(tools: impl IntoIterator<Item = &'t Arc<str>>) -> Vec<ServerTools> {
    let mut servers: Vec<ServerTools> = Vec::new();
    for tool in tools {
        let (server, tool) = match tool.split_once('.') {
            Some((server, tool)) => (server, vec![ToolName::new(tool)]),
            None => (&**tool, Vec::new()),
        };
        match servers.iter_mut().find(|known| known.0.as_str() == server) {
            Some(known) if tool.is_empty() || known.1.is_empty() => known.1.clear(),
            Some(known) => known.1.extend(tool),
            None => servers.push((ServerName::from(server), tool, Vec::new())),
        }
    }
    servers
}

/// An agent that a commander may call.
pub(super) struct MissionAgent {
    pub(super) description: Arc<str>,
    pub(super) model: Option<Arc<dyn Llm>>,
    /// Servers with the tools to include and to leave out.
    pub(super) servers: Vec<ServerTools>,
    /// The skills that it may load.
    pub(super) skills: Option<Arc<AgentSkills>>,
    /// Interception of large results and compaction of long histories.
    pub(super) context: ContextLimits,
    /// The definition in the project, if it is not an agent of one mission only.
    pub(super) definition: Option<Arc<AgentDef>>,
}

impl MissionAgent {
    /// The effect class that the project sets for a tool.
    pub(super) fn effect(&self, tool: &str) -> Option<EffectClass> {
        let rules = &self.definition.as_ref()?.rules;
        rules.tool(tool)?.effect.as_deref().and_then(EffectClass::from_name)
    }
}

impl MissionParts {
    /// The mission of this name.
    pub(super) fn mission(&self, name: &str) -> Result<Arc<MissionDef>, MissionError> {
        self.project.mission(name).cloned().ok_or_else(|| MissionError::UnknownMission(name.into()))
    }

    /// The description of an agent.
    pub(super) fn description(&self, def: &MissionDef, name: &AgentName) -> Arc<str> {
        self.agent(def, name).map(|agent| agent.description).unwrap_or_default()
    }

    /// The tools of an agent that come from no server: registered ones, and those for files.
    pub(super) fn own_tools(&self, def: &MissionDef, name: &AgentName) -> impl Iterator<Item = &Arc<dyn ToolHandler>> {
        let own = match def.local_agents.contains_key(name) {
            true => self.local_tools.get(&(def.name.clone(), name.clone())),
            false => self.tools.get(name.as_str()),
        };
        own.into_iter().flatten().chain(self.file_tools(def))
    }

    /// Whether an agent of a mission has a workspace.
    pub(super) fn has_files(&self, def: &MissionDef, name: &AgentName) -> bool {
        self.own_tools(def, name).any(|tool| &*tool.info().source == workspace::SOURCE && &*tool.info().name == "ls")
    }

    /// The tools for the folders of a mission.
    pub(super) fn file_tools(&self, def: &MissionDef) -> &[Arc<dyn ToolHandler>] {
        self.file_tools.get(&def.name).map(Vec::as_slice).unwrap_or_default()
    }

    /// An agent of a mission.
    pub(super) fn agent(&self, def: &MissionDef, name: &AgentName) -> Option<MissionAgent> {
        if let Some(local) = def.local_agents.get(name) {
            let description = match &local.title {
                Some(title) => format!("{title}. {}", local.description).into(),
                None => local.description.clone(),
            };
            return Some(MissionAgent {
                description,
                model: self.local_models.get(&(def.name.clone(), name.clone())).cloned(),
                servers: servers_of(&local.tools),
                context: local.context.clone(),
                skills: local.skills.clone(),
                definition: None,
            });
        }
        let definition = self.project.agent(name.as_str())?.clone();
        let connections = definition.connections.iter();
        Some(MissionAgent {
            description: definition.description.clone(),
            model: self.agent_models.get(name.as_str()).cloned(),
            servers: connections.map(|one| (one.server.clone(), one.include.clone(), one.exclude.clone())).collect(),
            context: ContextLimits::default(),
            skills: definition.skills.clone(),
            definition: Some(definition),
        })
    }
}
