//! Builds an assistant from a project folder and the parts that a Rust program adds or replaces.

use std::{
    collections::HashMap,
    path::Path,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use indexmap::IndexMap;
use segue_engine::{
    finding::{Finding, Severity},
    ids::ServerName,
    project::{AgentDef, DelegateModel, DocumentStore, HttpDef, ModelChoice, Nlg, Project, Protocol},
    template::TemplateError,
};
use serde_json::{Map, Value as Json};
use tokio_util::task::TaskTracker;

use super::{
    Admission, Assistant, Inner, JournalWrapper,
    admission::AdmissionControl,
    effects::{AgentDelegation, AgentExecutor, hooks::HookSource, remote_agent},
    mailbox::Mailboxes,
    project_models::ModelFactory,
    project_runtime::{Action, ProjectRuntime},
    seeds,
};
use crate::{
    actions::{self, ActionServer},
    agents::{Agent, AgentHooks, ReactAgent, hooks::http::HookServer},
    clock::{Clock, SystemClock},
    delegation::{DelegationSettings, Delegations, LogTaskEvents, TaskEventSink},
    http::HttpClients,
    journal::Journal,
    knowledge::Knowledge,
    limits,
    llm::{Embedder, Llm, ModelConfigError},
    missions::{MissionParts, RunEngine},
    project::LoadedProject,
    prompts::PromptSet,
    rephrasing::Rephrasing,
    search::QdrantError,
    store::{MemoryStore, Store, StoreError, runs::RunStore},
    tools::{Tool, ToolHandler, ToolSource, Toolbox},
    understanding::CommandGenerator,
};

/// Why an assistant was not built.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The project has errors. Contains all findings, and the texts of the files to show them.
    #[error("the project has {} findings; run `segue check` to see them", .0.len())]
    Findings(Vec<Finding>, Box<crate::project::Sources>),
    /// The project folder cannot be read.
    #[error("{0}")]
    Folder(String),
    /// A model cannot be opened.
    #[error("{place}: {problem}")]
    Model {
        /// The component that uses the model.
        place: String,
        /// The cause.
        problem: ModelConfigError,
    },
    /// The vector store of the project cannot be used.
    #[error("{0}")]
    Knowledge(#[from] QdrantError),
    /// A tool was registered for a name that is no agent and no MCP server of the project.
    #[error("a tool cannot be registered: {0}")]
    Tool(String),
    /// An agent or hooks were registered under a name that no agent of the project has.
    #[error("{0}")]
    Registration(String),
    /// A prompt of the project has a template error.
    #[error("{0}")]
    Prompt(Box<TemplateError>),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Builds an [`Assistant`].
pub struct AssistantBuilder {
    project: Arc<Project>,
    root: PathBuf,
    store: Option<Arc<dyn Store>>,
    clock: Arc<dyn Clock>,
    outbound: HttpClients,
    model: Option<Arc<dyn Llm>>,
    embedder: Option<Arc<dyn Embedder>>,
    agents: HashMap<String, Arc<dyn Agent>>,
    hooks: HashMap<String, Arc<dyn AgentHooks>>,
    tools: IndexMap<String, Vec<Tool>>,
    actions: HashMap<String, Arc<dyn Action>>,
    action_server: Option<Arc<dyn ActionServer>>,
    sources: IndexMap<ServerName, Arc<dyn ToolSource>>,
    turn_timeout: Duration,
    seed_source: Arc<dyn Fn() -> u64 + Send + Sync>,
    offline: bool,
    journal_wrapper: Option<JournalWrapper>,
    admission: Option<Admission>,
    delegation: HashMap<String, DelegationSettings>,
    delegations: Option<Arc<Delegations>>,
    task_events: Arc<dyn TaskEventSink>,
}

impl Assistant {
    /// Loads a project folder and opens its models, with a store in memory. For anything else use [`Assistant::builder`].
    ///
    /// # Errors
    /// [`LoadError`]; findings are reported all at once.
    pub fn load(folder: impl AsRef<Path>) -> Result<Self, LoadError> {
        Self::builder(folder)?.build()
    }

    /// Loads a project folder, to build an assistant with custom parts.
    ///
    /// # Errors
    /// [`LoadError`] if the project has errors.
    pub fn builder(folder: impl AsRef<Path>) -> Result<AssistantBuilder, LoadError> {
        let root = folder.as_ref().to_path_buf();
        let loaded = crate::project::load(&root, &crate::project::LoadOptions::default())
            .map_err(|error| LoadError::Folder(error.to_string()))?;
        Self::builder_for(loaded, root)
    }

    /// A builder for a project in memory: its files as (path, text). For tests and small programs. The files of scripted models are not
    /// found; set the model with [`AssistantBuilder::model`].
    ///
    /// # Errors
    /// [`LoadError`] if the project has errors.
    pub fn builder_from_texts<'a>(
        files: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<AssistantBuilder, LoadError> {
        Self::builder_for(crate::project::from_texts(files), PathBuf::new())
    }

    fn builder_for(loaded: LoadedProject, root: PathBuf) -> Result<AssistantBuilder, LoadError> {
        let errors = loaded.findings.iter().any(|f| f.severity == segue_engine::finding::Severity::Error);
        match loaded.project {
            Some(project) if !errors => Ok(AssistantBuilder::new(Arc::new(project), root)),
            _ => Err(LoadError::Findings(loaded.findings, Box::new(loaded.sources))),
        }
    }
}

impl AssistantBuilder {
    /// A builder for a loaded project in the folder `root`.
    pub fn new(project: Arc<Project>, root: PathBuf) -> Self {
        let HttpDef { proxy, no_proxy } = &project.endpoints.http;
        Self {
            outbound: HttpClients::with_proxy(proxy.as_deref(), no_proxy.as_deref()),
            project,
            root,
            store: None,
            clock: Arc::new(SystemClock),
            model: None,
            embedder: None,
            agents: HashMap::new(),
            hooks: HashMap::new(),
            tools: IndexMap::new(),
            actions: HashMap::new(),
            action_server: None,
            sources: IndexMap::new(),
            turn_timeout: limits::TURN_TIMEOUT,
            seed_source: Arc::new(random_seeds()),
            offline: false,
            journal_wrapper: None,
            admission: None,
            delegation: HashMap::new(),
            delegations: None,
            task_events: Arc::new(LogTaskEvents),
        }
    }
    /// Sets the limits on accepted work, instead of those of `server` in `endpoints.yml`.
    #[must_use]
    pub fn admission(mut self, admission: Admission) -> Self {
        self.admission = Some(admission);
        self
    }
    /// Sets the store of conversations. Default: in memory.
    #[must_use]
    pub fn store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = Some(store);
        self
    }
    /// Sets the clock. Default: the system clock.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }
    /// Uses this model for everything, instead of those that the project names.
    #[must_use]
    pub fn model(mut self, model: Arc<dyn Llm>) -> Self {
        self.model = Some(model);
        self
    }
    /// Uses this embedding model for flows and documents, instead of those that the project names.
    #[must_use]
    pub fn embedder(mut self, embedder: Arc<dyn Embedder>) -> Self {
        self.embedder = Some(embedder);
        self
    }
    /// Registers an agent: it runs as the project's agent `name`, and as each agent whose `configuration.module` is `name`.
    #[must_use]
    pub fn agent(mut self, name: impl Into<String>, agent: Arc<dyn Agent>) -> Self {
        self.agents.insert(name.into(), agent);
        self
    }
    /// Registers hooks for the agents whose `configuration.module` is `name`, and for the agent `name`. The name may be the dotted path
    /// of a Python class: so a project that also runs in Rasa needs no change.
    #[must_use]
    pub fn hooks(mut self, name: impl Into<String>, hooks: Arc<dyn AgentHooks>) -> Self {
        self.hooks.insert(name.into(), hooks);
        self
    }
    /// Registers a tool. Under the name of an agent, it is offered to that agent. Under the name of an MCP server of `endpoints.yml`, it
    /// is a tool of that server for agents and `call` steps; the server itself is then not used. [`build`](Self::build) rejects other
    /// names.
    #[must_use]
    pub fn tool(mut self, agent_or_server: impl Into<String>, tool: Tool) -> Self {
        self.tools.entry(agent_or_server.into()).or_default().push(tool);
        self
    }
    /// Registers an action. It runs at action steps with this name.
    #[must_use]
    pub fn action(mut self, name: impl Into<String>, action: Arc<dyn Action>) -> Self {
        self.actions.insert(name.into(), action);
        self
    }
    /// Sets the action server for custom actions that are not registered, instead of `action_endpoint`.
    #[must_use]
    pub fn action_server(mut self, server: Arc<dyn ActionServer>) -> Self {
        self.action_server = Some(server);
        self
    }
    /// Replaces the MCP server with the name of this source; its tools may change.
    #[must_use]
    pub fn source(mut self, source: Arc<dyn ToolSource>) -> Self {
        self.sources.insert(ServerName::from(source.name()), source);
        self
    }
    /// Sets the source of turn seeds. Idempotency keys depend on the seed, so equal seeds lead to equal keys. Use a constant in tests.
    #[must_use]
    pub fn seeds(mut self, seeds: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        self.seed_source = Arc::new(seeds);
        self
    }
    /// Wraps the journal of each turn, to record effects or to answer from a recording.
    #[must_use]
    pub fn journal(
        mut self,
        journal_wrapper: impl Fn(Arc<dyn Journal>) -> Arc<dyn Journal> + Send + Sync + 'static,
    ) -> Self {
        self.journal_wrapper = Some(Arc::new(journal_wrapper));
        self
    }
    /// Lets an agent start sub-agents; replaces `delegation` of its file.
    #[must_use]
    pub fn delegation(mut self, agent: impl Into<String>, settings: DelegationSettings) -> Self {
        self.delegation.insert(agent.into(), settings);
        self
    }
    /// Shares the admission of sub-agents with other assistants of the process.
    #[must_use]
    pub fn delegations(mut self, delegations: Arc<Delegations>) -> Self {
        self.delegations = Some(delegations);
        self
    }
    /// Receives the events of sub-agents, in place of the log. Has no effect on shared [`delegations`](Self::delegations).
    #[must_use]
    pub fn task_events(mut self, sink: Arc<dyn TaskEventSink>) -> Self {
        self.task_events = sink;
        self
    }
    /// Performs no effects: for replays. Models, action server and remote agents are not opened.
    #[must_use]
    pub fn offline(mut self) -> Self {
        self.offline = true;
        self
    }

    /// Builds the assistant. It connects to no server yet.
    ///
    /// # Errors
    /// [`LoadError`] if a model, the vector store or a prompt is wrong, or a tool has an unknown name.
    pub fn build(mut self) -> Result<Assistant, LoadError> {
        let tools = self.agent_tools()?;
        self.check_registrations()?;
        let prompts =
            PromptSet::new(|name| self.prompt_override(name)).map_err(|error| LoadError::Prompt(Box::new(error)))?;
        let prompts = Arc::new(prompts);
        let ProjectModels {
            command_model,
            agent_models,
            knowledge_model,
            rephrasing_model,
            flow_embedder,
            document_embedder,
        } = self.open_models()?;
        let rephrasing = Rephrasing::new(&self.project, prompts.clone(), self.outbound.clone()).map(Arc::new);
        let knowledge = self.open_knowledge(document_embedder, prompts.clone())?;
        let delegation = Arc::new(self.agent_delegation()?);
        let admission_of_tasks = self.project.subagents.admission;
        let task_events = self.task_events.clone();
        let delegations =
            self.delegations.take().unwrap_or_else(|| Arc::new(Delegations::new(admission_of_tasks, task_events)));
        let turn_timeout = self.longest_turn();
        let executors = Arc::new(self.executors(&prompts));
        let admission =
            self.admission.unwrap_or_else(|| Admission::from_config(&self.project.endpoints.server, turn_timeout));
        let admission = AdmissionControl::new(admission, self.clock.clone());
        let build_hash = seeds::from_text(&format!("{}/{}", env!("CARGO_PKG_VERSION"), self.project.hash));
        let hooks = self.hook_sources();
        let sources = self.tool_sources();
        let action_server = self.open_action_server();
        let remote_agents =
            if self.offline { HashMap::new() } else { remote_agent::open(&self.project, &self.clock, &self.outbound) };
        let store: Arc<dyn Store> = self.store.unwrap_or_else(|| Arc::new(MemoryStore::default()));
        let runtime = ProjectRuntime {
            command_generator: Arc::new(CommandGenerator::new(prompts.clone()).with_embedder(flow_embedder)),
            project: self.project,
            command_model,
            agent_models,
            sources,
            hooks,
            tools,
            actions: self.actions,
            action_server,
            store: store.clone(),
            knowledge,
            knowledge_model,
            rephrasing,
            rephrasing_model,
            remote_agents,
            tool_lists: Arc::default(),
            executors,
            delegation,
            delegations,
            prompts,
            clock: self.clock.clone(),
            offline: self.offline,
        };
        Ok(Assistant(Arc::new(Inner {
            runtime: Arc::new(runtime),
            store,
            clock: self.clock,
            mailboxes: Mailboxes::default(),
            admission,
            tasks: TaskTracker::new(),
            background_tasks: TaskTracker::new(),
            build_hash,
            turn_timeout,
            unsaved: Default::default(),
            reminders_changed: tokio::sync::Notify::new(),
            recovering: Default::default(),
            closing: Default::default(),
            outbox: Default::default(),
            reminder_backoff: Default::default(),
            seed_source: self.seed_source,
            outbound: self.outbound,
            journal_wrapper: self.journal_wrapper,
        })))
    }

    /// The settings of agents that may start sub-agents, and the models of the types that have one of their own.
    fn agent_delegation(&self) -> Result<HashMap<String, AgentDelegation>, LoadError> {
        let models = ModelFactory::new(&self.project, &self.root, self.outbound.clone(), (self.seed_source)());
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

    /// The settings by agent: those that were given, else those of its file.
    fn delegation_settings(&self) -> HashMap<String, DelegationSettings> {
        let in_files = self.project.agents.values().filter_map(|agent| {
            let delegation = agent.delegation.as_deref()?;
            Some((agent.name.to_string(), DelegationSettings::of(delegation, &self.project.subagents)))
        });
        let mut settings: HashMap<String, DelegationSettings> = in_files.collect();
        settings.extend(self.delegation.iter().map(|(agent, given)| (agent.clone(), given.clone())));
        settings
    }

    /// Builds an engine for runs of the missions of the project, stored in `runs`. It connects to no server yet.
    ///
    /// # Errors
    /// [`LoadError`] as [`build`](Self::build).
    pub fn build_missions(mut self, runs: Arc<dyn RunStore>) -> Result<RunEngine, LoadError> {
        let tools = self.agent_tools()?;
        let prompts =
            PromptSet::new(|name| self.prompt_override(name)).map_err(|error| LoadError::Prompt(Box::new(error)))?;
        let models = ModelFactory::new(&self.project, &self.root, self.outbound.clone(), (self.seed_source)());
        let open = |group: Option<&str>, own: &Map<String, Json>, place: String| match &self.model {
            Some(model) => Ok(model.clone()),
            None => models.open(group, own).map_err(|problem| LoadError::Model { place, problem }),
        };
        let (mut commander_models, mut local_models, mut agent_models) =
            (HashMap::new(), HashMap::new(), HashMap::new());
        let mut called = std::collections::BTreeSet::new();
        for (name, mission) in &self.project.missions {
            let commander = &mission.commander;
            let model = open(commander.model_group.as_deref(), &commander.llm, format!("the mission {name}"))?;
            commander_models.insert(name.clone(), model);
            for (agent, def) in &mission.local_agents {
                let model = open(def.model_group.as_deref(), &def.llm, format!("the agent {agent} of {name}"))?;
                local_models.insert((name.clone(), agent.clone()), model);
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
        Ok(RunEngine::new(MissionParts {
            prompts: Arc::new(prompts),
            commander_models,
            local_models,
            agent_models,
            sources,
            tools,
            runs,
            clock: self.clock.clone(),
            owner: format!("process {}", std::process::id()).into(),
            project: self.project.clone(),
        }))
    }

    /// Opens a model that neither flows nor agents use, for example the judge of test cases: of the group, else of the settings `own`, else
    /// the model of a component without settings.
    ///
    /// # Errors
    /// [`ModelConfigError`] if the model's entry is incomplete or wrong.
    pub fn open_model(&self, group: Option<&str>, own: &Map<String, Json>) -> Result<Arc<dyn Llm>, ModelConfigError> {
        match &self.model {
            Some(model) => Ok(model.clone()),
            None => ModelFactory::new(&self.project, &self.root, self.outbound.clone(), (self.seed_source)())
                .open(group, own),
        }
    }

    /// How each agent runs: by a registered agent with the name of its `configuration.module` or its own name, else over A2A if it is
    /// remote, else by the built-in agent loop.
    fn executors(&self, prompts: &Arc<PromptSet>) -> HashMap<String, AgentExecutor> {
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
    fn agent_tools(&mut self) -> Result<HashMap<String, Vec<Arc<dyn ToolHandler>>>, LoadError> {
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
        Ok(agent_tools)
    }

    /// Refuses agents and hooks whose name is neither that of an agent nor its `module`: they would never be called.
    fn check_registrations(&self) -> Result<(), LoadError> {
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

    /// The hooks of each agent. If hooks are missing, only the agents that need them fail.
    fn hook_sources(&self) -> HashMap<String, HookSource> {
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

    /// The project's replacement of a built-in prompt.
    fn prompt_override(&self, name: &str) -> Option<Arc<str>> {
        self.project.prompts.get(&format!("prompts/{name}")).cloned()
    }

    fn open_models(&self) -> Result<ProjectModels, LoadError> {
        if self.offline {
            return Ok(ProjectModels::single(Arc::new(super::project_models::OfflineModel::default())));
        }
        if let Some(model) = &self.model {
            let by = self.embedder.clone();
            return Ok(ProjectModels {
                flow_embedder: by.clone(),
                document_embedder: by,
                ..ProjectModels::single(model.clone())
            });
        }
        let models = ModelFactory::new(&self.project, &self.root, self.outbound.clone(), (self.seed_source)());
        // Without a command generator no flow uses a model.
        let generator = self.project.config.generator.as_ref();
        let command_model: Arc<dyn Llm> = match generator {
            None => Arc::new(super::project_models::OfflineModel::default()),
            Some(generator) => models
                .open(generator.model_group.as_deref(), &generator.llm)
                .map_err(|problem| LoadError::Model { place: "the command generator".to_owned(), problem })?,
        };
        let retrieval = generator.map(|generator| &generator.retrieval).filter(|retrieval| retrieval.active);
        let flow_embedder = self.open_embedder(
            &models,
            "flow_retrieval",
            retrieval.and_then(|retrieval| retrieval.embeddings.as_ref()),
        )?;
        let search = self.project.config.search.as_ref();
        let default = ModelChoice::default();
        let documents = search.and_then(|search| match search.store {
            // A vector store needs an embedding model.
            DocumentStore::Qdrant => Some(search.embeddings.as_ref().unwrap_or(&default)),
            DocumentStore::Folder { .. } => search.embeddings.as_ref(),
        });
        let document_embedder = self.open_embedder(&models, "EnterpriseSearchPolicy", documents)?;
        let knowledge_model = match search.filter(|search| search.generative) {
            Some(search) => models
                .open(search.llm.group.as_deref(), &search.llm.own)
                .map_err(|problem| LoadError::Model { place: "EnterpriseSearchPolicy".to_owned(), problem })?,
            None => command_model.clone(),
        };
        let mut agent_models = HashMap::new();
        // Remote agents have their own model.
        for (name, agent) in self.project.agents.iter().filter(|(_, agent)| agent.remote.is_none()) {
            let model = models
                .open(agent.model_group.as_deref(), &agent.llm)
                .map_err(|problem| LoadError::Model { place: format!("the agent {name}"), problem })?;
            agent_models.insert(name.to_string(), model);
        }
        let rephrasing_model = match &self.project.endpoints.nlg {
            Some(Nlg::Rephraser(rephraser)) => models
                .open(rephraser.model_group.as_deref(), &rephraser.llm)
                .map_err(|problem| LoadError::Model { place: "the rephraser".to_owned(), problem })?,
            _ => command_model.clone(),
        };
        Ok(ProjectModels {
            command_model,
            agent_models,
            knowledge_model,
            rephrasing_model,
            flow_embedder,
            document_embedder,
        })
    }

    /// The embedding model of a component: the registered one, else the one that the component names.
    fn open_embedder(
        &self,
        models: &ModelFactory<'_>,
        place: &str,
        choice: Option<&ModelChoice>,
    ) -> Result<Option<Arc<dyn Embedder>>, LoadError> {
        match (&self.embedder, choice) {
            (Some(own), _) => Ok(Some(own.clone())),
            (None, None) => Ok(None),
            (None, Some(choice)) => {
                let opened = models.embedder(choice);
                opened.map(Some).map_err(|problem| LoadError::Model { place: format!("{place}: embeddings"), problem })
            }
        }
    }

    fn open_knowledge(
        &self,
        embedder: Option<Arc<dyn Embedder>>,
        prompts: Arc<PromptSet>,
    ) -> Result<Option<Arc<Knowledge>>, LoadError> {
        let Some(config) = &self.project.config.search else { return Ok(None) };
        let outbound = self.outbound.clone();
        let knowledge = Knowledge::new(config, &self.project, &self.root, embedder, prompts, outbound)?;
        Ok(Some(Arc::new(knowledge)))
    }

    /// The time limit of a turn: the default, or more if a configured timeout needs it; at most [`limits::TURN_TIMEOUT_MAX`].
    fn longest_turn(&self) -> Duration {
        let agents =
            self.project.agents.values().filter_map(|agent| agent.timeout.max(remote_agent::longest_wait(agent)));
        let action = self.project.endpoints.action_endpoint.as_ref().and_then(|endpoint| endpoint.timeout);
        // After a slow action the flow needs time for its other steps.
        let action = action.map(|timeout| timeout.saturating_add(limits::ACTION_DEADLINE));
        let servers = self.project.endpoints.mcp_servers.values();
        let servers = servers.filter_map(|server| server.tool_timeout_total.max(server.tool_timeout));
        let tools = self.project.agents.values().filter_map(|agent| agent.tool_timeout).chain(servers);
        // Likewise an agent or a flow after a slow tool.
        let tools = tools.map(|timeout| timeout.saturating_add(limits::TOOL_DEADLINE));
        // An agent sends a message after its last sub-agent.
        let settings = self.delegation_settings();
        let delegates = settings.values().map(|settings| settings.longest().saturating_add(limits::TURN_TIMEOUT));
        agents
            .chain(action)
            .chain(tools)
            .chain(delegates)
            .fold(self.turn_timeout, Duration::max)
            .min(limits::TURN_TIMEOUT_MAX)
    }

    /// The registered action server, else the one of `action_endpoint`.
    fn open_action_server(&self) -> Option<Arc<dyn ActionServer>> {
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
    fn tool_sources(&self) -> IndexMap<ServerName, Arc<dyn ToolSource>> {
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
    fn tool_sources(&self) -> IndexMap<ServerName, Arc<dyn ToolSource>> {
        self.sources.clone()
    }
}

/// The models of a project.
struct ProjectModels {
    /// Of the command generator.
    command_model: Arc<dyn Llm>,
    /// Of agents, by name.
    agent_models: HashMap<String, Arc<dyn Llm>>,
    /// Of answers from documents.
    knowledge_model: Arc<dyn Llm>,
    /// Of the rephraser.
    rephrasing_model: Arc<dyn Llm>,
    /// Of flow retrieval.
    flow_embedder: Option<Arc<dyn Embedder>>,
    /// Of document search.
    document_embedder: Option<Arc<dyn Embedder>>,
}

impl ProjectModels {
    /// The same model for everything.
    fn single(model: Arc<dyn Llm>) -> Self {
        let (knowledge_model, rephrasing_model) = (model.clone(), model.clone());
        Self {
            command_model: model,
            agent_models: HashMap::new(),
            knowledge_model,
            rephrasing_model,
            flow_embedder: None,
            document_embedder: None,
        }
    }
}

/// Random seeds of turns. The system is asked for randomness once per process: seeds choose variants of responses and make idempotency
/// keys unique; they need not be unpredictable.
fn random_seeds() -> impl Fn() -> u64 {
    let (base, next) = (uuid::Uuid::new_v4().as_u64_pair().0, AtomicU64::new(0));
    move || seeds::nth(base, next.fetch_add(1, Ordering::Relaxed))
}
