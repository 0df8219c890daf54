//! The agents, hooks, tools and actions of an assistant: those that were registered, else those of the project.

use std::{collections::HashMap, sync::Arc};

use indexmap::IndexMap;
use segue_engine::{
    finding::{Finding, Severity},
    ids::ServerName,
    project::{AgentDef, AgentSkills, Protocol},
};

use super::{AssistantBuilder, LoadError};
use crate::{
    actions::{self, ActionServer},
    agents::{ReactAgent, hooks::http::HookServer},
    prompts::PromptSet,
    runtime::effects::{AgentExecutor, hooks::HookSource},
    tools::{ToolHandler, ToolSource, Toolbox, script},
};

impl AssistantBuilder {
    /// Refuses agents and hooks whose name is neither that of an agent nor its `module`: they would never be called.
    pub(super) fn check_registrations(&self) -> Result<(), LoadError> {
        let agents = self.project.agents.values();
        let mut known: Vec<&str> =
            agents.flat_map(|agent| [Some(agent.name.as_str()), agent.module.as_deref()]).flatten().collect();
        known.sort_unstable();
        known.dedup();
        let registered = self
            .agents
            .keys()
            .map(|name| ("an agent is", name))
            .chain(self.hooks.keys().map(|name| ("hooks are", name)));
        let mut unknown: Vec<_> = registered.filter(|(_, name)| !known.contains(&name.as_str())).collect();
        unknown.sort_unstable_by_key(|(_, name)| *name);
        let Some((what, name)) = unknown.first() else { return Ok(()) };
        let help = match segue_engine::finding::did_you_mean(name, known.iter().copied()) {
            Some(meant) => format!("; did you mean `{meant}`?"),
            None if known.is_empty() => "; the project has no agents".to_owned(),
            None => format!("; the project has `{}`", known.join("`, `")),
        };
        let message = format!("{what} registered as `{name}`, but no agent has this name or this `module`{help}");
        Err(LoadError::Registration(message))
    }

    /// How each agent runs: by a registered agent with the name of its `configuration.module` or its own name, else over A2A if it is
    /// remote, else by the built-in agent loop.
    pub(super) fn executors(&self, prompts: &Arc<PromptSet>) -> HashMap<String, AgentExecutor> {
        let executor = |agent: &AgentDef| {
            let by_module = agent.module.as_deref().and_then(|module| self.agents.get(module));
            if let Some(custom) = by_module.or_else(|| self.agents.get(agent.name.as_str())) {
                return AgentExecutor::Custom(custom.clone());
            }
            if agent.protocol == Protocol::A2a {
                return AgentExecutor::Remote;
            }
            AgentExecutor::Loop(Arc::new(ReactAgent::new(prompts.clone())))
        };
        self.project.agents.values().map(|agent| (agent.name.to_string(), executor(agent))).collect()
    }

    /// The registered tools of agents. Registered tools of servers become tool sources.
    pub(super) fn agent_tools(&mut self) -> Result<HashMap<String, Vec<Arc<dyn ToolHandler>>>, LoadError> {
        let mut agent_tools = HashMap::new();
        for (name, tools) in std::mem::take(&mut self.tools) {
            let servers = &self.project.endpoints.mcp_servers;
            if self.project.agent(&name).is_some() {
                let tools = tools.into_iter().map(|tool| Arc::new(tool) as Arc<dyn ToolHandler>);
                agent_tools.insert(name, tools.collect());
            } else if servers.contains_key(name.as_str()) {
                self.sources.insert(ServerName::from(name.as_str()), Arc::new(Toolbox::new(name, tools)));
            } else {
                let known = self.project.agents.keys().map(|agent| agent.as_str());
                let known: Vec<&str> = known.chain(servers.keys().map(|server| server.as_str())).collect();
                let help = match segue_engine::finding::did_you_mean(&name, known.iter().copied()) {
                    Some(meant) => format!("; did you mean `{meant}`?"),
                    None if known.is_empty() => "; it has neither".to_owned(),
                    None => format!("; it has `{}`", known.join("`, `")),
                };
                return Err(LoadError::Tool(format!(
                    "the project has no agent and no MCP server named `{name}`{help}"
                )));
            }
        }
        for (name, agent) in &self.project.agents {
            let scripts = agent.skills.iter().flat_map(|skills| self.skill_scripts(skills));
            let scripts: Vec<_> = scripts.collect();
            if !scripts.is_empty() {
                agent_tools.entry(name.to_string()).or_insert_with(Vec::new).extend(scripts);
            }
        }
        Ok(agent_tools)
    }

    /// The scripts of skills that are tools.
    pub(super) fn skill_scripts(&self, skills: &AgentSkills) -> Vec<Arc<dyn ToolHandler>> {
        script::tools(&skills.scripts, |skill| {
            let folder = skills.skills.get(skill).map(|skill| skill.root.clone()).unwrap_or_default();
            self.root.join(&*folder)
        })
    }

    /// The hooks of each agent. If hooks are missing, only the agents that need them fail.
    pub(super) fn hook_sources(&self) -> HashMap<String, HookSource> {
        let mut sources = HashMap::new();
        for (name, agent) in &self.project.agents {
            let module = agent.module.as_deref().unwrap_or_default();
            let source = if module.contains("://") {
                match HookServer::new(module, agent, self.outbound.clone(), &self.clock) {
                    Ok(server) => HookSource::Server(Arc::new(server)),
                    Err(error) => HookSource::Missing(error.to_string().into()),
                }
            } else if let Some(hooks) = self.hooks.get(module).or_else(|| self.hooks.get(name.as_str())) {
                HookSource::Registered(hooks.clone())
            } else if let Some((problem, help)) = self.unregistered_hook(agent) {
                HookSource::Missing(format!("{problem}; {help}").into())
            } else if module.contains('.')
                && !self.agents.contains_key(module)
                && !self.agents.contains_key(name.as_str())
            {
                HookSource::PythonClass
            } else {
                continue;
            };
            if let HookSource::Missing(problem) = &source {
                tracing::warn!(agent = %name, %problem, "the agent cannot run");
            }
            sources.insert(name.to_string(), source);
        }
        sources
    }

    /// Problem and fix if an agent's hooks are not registered.
    fn unregistered_hook(&self, agent: &AgentDef) -> Option<(String, String)> {
        let module = agent.module.as_deref().filter(|module| !module.is_empty())?;
        // Paths of Python classes are reported when the project is loaded (F0514).
        let registered = |name: &str| self.hooks.contains_key(name) || self.agents.contains_key(name);
        if module.contains("://") || module.contains('.') || registered(module) || registered(agent.name.as_str()) {
            return None;
        }
        let mut known: Vec<&str> = self.hooks.keys().chain(self.agents.keys()).map(String::as_str).collect();
        known.sort_unstable();
        let meant = segue_engine::finding::did_you_mean(module, known.iter().copied());
        let known = if known.is_empty() { "nothing".to_owned() } else { known.join(", ") };
        let problem = format!("`module: {module}` is not registered (registered: {known})");
        let help = "register hooks by `AssistantBuilder::hooks`, or give the http address of a hook server";
        Some((problem, meant.map_or_else(|| help.to_owned(), |meant| format!("did you mean `{meant}`? Else {help}"))))
    }

    /// Findings for agents whose hooks are not registered. A Rust program calls this after registering its parts; `segue check` calls it
    /// for the program `segue`, which registers none.
    pub fn unregistered_hooks(&self) -> Vec<Finding> {
        let agents = self.project.agents.values();
        let missing = agents.filter_map(|agent| Some((agent, self.unregistered_hook(agent)?)));
        let finding = |(agent, (problem, help)): (&Arc<AgentDef>, (String, String))| Finding {
            code: "A0521",
            severity: Severity::Warning,
            place: agent.place.clone(),
            message: format!("the agent `{}` cannot run in this program: {problem}", agent.name),
            help,
        };
        missing.map(finding).collect()
    }

    /// The registered action server, else the one of `action_endpoint`.
    pub(super) fn open_action_server(&self) -> Option<Arc<dyn ActionServer>> {
        if self.offline || self.action_server.is_some() {
            return self.action_server.clone();
        }
        let def = self.project.endpoints.action_endpoint.as_ref()?;
        let environment = actions::ActionEnvironment {
            clock: self.clock.clone(),
            http: self.outbound.clone(),
            directory: self.root.clone(),
            environment: crate::environment::all().into(),
        };
        Some(actions::open(def, &self.project, environment))
    }

    #[cfg(feature = "mcp")]
    pub(super) fn tool_sources(&self) -> IndexMap<ServerName, Arc<dyn ToolSource>> {
        use crate::tools::{
            mcp::{McpEnvironment, McpServer},
            pins::{PinFile, PinnedSource},
        };
        let environment = McpEnvironment {
            clock: self.clock.clone(),
            http: self.outbound.clone(),
            program: crate::environment::program(),
            directory: Some(self.root.clone()),
            variables: crate::environment::all().into(),
            logins: Some(self.root.join(crate::tools::mcp::LOGINS)),
        };
        let pins = PinFile::open(&self.root);
        let pinned = |source| Arc::new(PinnedSource::new(source, pins.clone())) as Arc<dyn ToolSource>;
        let mut sources = IndexMap::new();
        for (name, def) in &self.project.endpoints.mcp_servers {
            let source = match self.sources.get(name) {
                Some(own) => own.clone(),
                None => Arc::new(McpServer::new(def, environment.clone())) as Arc<dyn ToolSource>,
            };
            sources.insert(name.clone(), if def.pin { pinned(source) } else { source });
        }
        for (name, source) in &self.sources {
            sources.entry(name.clone()).or_insert_with(|| source.clone());
        }
        sources
    }

    #[cfg(not(feature = "mcp"))]
    pub(super) fn tool_sources(&self) -> IndexMap<ServerName, Arc<dyn ToolSource>> {
        self.sources.clone()
    }
}
