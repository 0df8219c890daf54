//! From a project folder to an assistant that runs, with whatever the embedding program puts in or replaces.

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
    project::{AgentDef, DocumentStore, HttpDef, ModelChoice, Nlg, Project, Protocol},
    template::TemplateError,
};
use serde_json::{Map, Value as Json};
use tokio_util::task::TaskTracker;

use super::{
    Admission, Assistant, Inner, JournalWrapper,
    admission::AdmissionControl,
    effects::{AgentExecutor, hooks::HookSource, remote_agent},
    mailbox::Mailboxes,
    project_models::ModelFactory,
    project_runtime::{Action, ProjectRuntime},
    seeds,
};
use crate::{
    actions::{self, ActionServer},
    agents::{Agent, AgentHooks, ReactAgent, hooks::http::HookServer},
    clock::{Clock, SystemClock},
    http::HttpClients,
    journal::Journal,
    knowledge::Knowledge,
    limits,
    llm::{Embedder, Llm, ModelConfigError},
    project::LoadedProject,
    prompts::PromptSet,
    rephrasing::Rephrasing,
    search::QdrantError,
    store::{MemoryStore, Store, StoreError},
    tools::{Tool, ToolHandler, ToolSource, Toolbox},
    understanding::CommandGenerator,
};

/// Why an assistant could not be made.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The project has errors; all of them are here, with the texts of its files for showing them.
    #[error("the project has {} findings; run `segue check` to see them", .0.len())]
    Findings(Vec<Finding>, Box<crate::project::Texts>),
    /// The project's folder cannot be read.
    #[error("{0}")]
    Folder(String),
    /// A model cannot be opened.
    #[error("{place}: {problem}")]
    Model {
        /// The component that wants it.
        place: String,
        /// What is the matter.
        problem: ModelConfigError,
    },
    /// The documents of the project cannot be searched as it says.
    #[error("{0}")]
    Knowledge(#[from] QdrantError),
    /// A tool was given to nobody that the project has.
    #[error("a tool has no place: {0}")]
    Tool(String),
    /// A prompt of the project has an error.
    #[error("{0}")]
    Prompt(Box<TemplateError>),
    /// The store cannot be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Puts an assistant together.
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
    turn_wall: Duration,
    seeds: Arc<dyn Fn() -> u64 + Send + Sync>,
    offline: bool,
    journal_wrapper: Option<JournalWrapper>,
    admission: Option<Admission>,
}

impl Assistant {
    /// Loads a project folder and opens its models; the store is in memory. [`Assistant::builder`] for anything else.
    ///
    /// # Errors
    /// [`LoadError`]; with findings, all of them at once.
    pub fn load(folder: impl AsRef<Path>) -> Result<Self, LoadError> {
        Self::builder(folder)?.build()
    }

    /// Loads a project folder, for an assistant with parts of your own.
    ///
    /// # Errors
    /// [`LoadError`] when the project has errors.
    pub fn builder(folder: impl AsRef<Path>) -> Result<AssistantBuilder, LoadError> {
        let root = folder.as_ref().to_path_buf();
        let loaded = crate::project::load(&root, &crate::project::Places::default())
            .map_err(|error| LoadError::Folder(error.to_string()))?;
        Self::of(loaded, root)
    }

    /// A project whose files are handed in, as (path, text): for tests and small programs. Files that scripted models name are
    /// not among them; such a program brings its model by [`AssistantBuilder::model`].
    ///
    /// # Errors
    /// [`LoadError`] when the project has errors.
    pub fn builder_from_texts<'a>(
        files: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<AssistantBuilder, LoadError> {
        Self::of(crate::project::from_texts(files), PathBuf::new())
    }

    fn of(loaded: LoadedProject, root: PathBuf) -> Result<AssistantBuilder, LoadError> {
        let errors = loaded.findings.iter().any(|f| f.severity == segue_engine::finding::Severity::Error);
        match loaded.project {
            Some(project) if !errors => Ok(AssistantBuilder::new(Arc::new(project), root)),
            _ => Err(LoadError::Findings(loaded.findings, Box::new(loaded.texts))),
        }
    }
}

impl AssistantBuilder {
    /// For a project that is loaded already; `root` is its folder.
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
            turn_wall: limits::TURN_TIMEOUT,
            seeds: Arc::new(random_seeds()),
            offline: false,
            journal_wrapper: None,
            admission: None,
        }
    }
    /// Takes on as much as this says, whatever `server` of endpoints.yml says.
    #[must_use]
    pub fn admission(mut self, admission: Admission) -> Self {
        self.admission = Some(admission);
        self
    }
    /// Keeps conversations here.
    #[must_use]
    pub fn store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = Some(store);
        self
    }
    /// Takes time from here.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }
    /// Asks this model for everything, whatever the project names.
    #[must_use]
    pub fn model(mut self, model: Arc<dyn Llm>) -> Self {
        self.model = Some(model);
        self
    }
    /// Compares meanings by this model, of flows and of documents, whatever the project names.
    #[must_use]
    pub fn embedder(mut self, embedder: Arc<dyn Embedder>) -> Self {
        self.embedder = Some(embedder);
        self
    }
    /// Runs this agent where a flow calls its name, or where an agent's `configuration.module` says `name`.
    #[must_use]
    pub fn agent(mut self, name: impl Into<String>, agent: Arc<dyn Agent>) -> Self {
        self.agents.insert(name.into(), agent);
        self
    }
    /// Hooks for the agents whose `configuration.module` says `name`, or that are called so. The name may be the dotted path
    /// of a Python class, so that a project that runs elsewhere too can stay as it is.
    #[must_use]
    pub fn hooks(mut self, name: impl Into<String>, hooks: Arc<dyn AgentHooks>) -> Self {
        self.hooks.insert(name.into(), hooks);
        self
    }
    /// Gives a tool a place: under the name of an agent it is offered to that agent; under the name of an MCP server of
    /// `endpoints.yml` it stands for a tool of that server, which is then not connected to, for agents and `call` steps alike.
    /// [`build`](Self::build) refuses any other name.
    #[must_use]
    pub fn tool(mut self, agent_or_server: impl Into<String>, tool: Tool) -> Self {
        self.tools.entry(agent_or_server.into()).or_default().push(tool);
        self
    }
    /// Runs this where a flow has an action step of the name.
    #[must_use]
    pub fn action(mut self, name: impl Into<String>, action: Arc<dyn Action>) -> Self {
        self.actions.insert(name.into(), action);
        self
    }
    /// Runs all custom actions that are not registered, in place of the server that `action_endpoint` names.
    #[must_use]
    pub fn action_server(mut self, server: Arc<dyn ActionServer>) -> Self {
        self.action_server = Some(server);
        self
    }
    /// Stands for the MCP server of this name, with a list of tools that may change.
    #[must_use]
    pub fn source(mut self, source: Arc<dyn ToolSource>) -> Self {
        self.sources.insert(ServerName::from(source.name()), source);
        self
    }
    /// Draws seeds from here; tests pass a constant. Idempotency keys are made with them: with seeds that come again, so do keys.
    #[must_use]
    pub fn seeds(mut self, seeds: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        self.seeds = Arc::new(seeds);
        self
    }
    /// Stands before the journal of every turn: sees each effect before it leaves and each outcome, and may answer in place of
    /// the world. For recordings.
    #[must_use]
    pub fn journal(
        mut self,
        journal_wrapper: impl Fn(Arc<dyn Journal>) -> Arc<dyn Journal> + Send + Sync + 'static,
    ) -> Self {
        self.journal_wrapper = Some(Arc::new(journal_wrapper));
        self
    }
    /// Lets nothing out: for replaying records. ModelFactory and servers are not needed and not opened.
    #[must_use]
    pub fn offline(mut self) -> Self {
        self.offline = true;
        self
    }

    /// The assistant. Connects to nothing yet.
    ///
    /// # Errors
    /// [`LoadError`] when a model cannot be opened or a prompt of the project has an error.
    pub fn build(mut self) -> Result<Assistant, LoadError> {
        let tools = self.agent_tools()?;
        let prompts =
            PromptSet::new(|name| self.replacement(name)).map_err(|error| LoadError::Prompt(Box::new(error)))?;
        let prompts = Arc::new(prompts);
        let ProjectModels { generator, agents: agent_models, answers, words: rephrasing_model, flows_by, documents_by } =
            self.models()?;
        let rephrasing = Rephrasing::new(&self.project, prompts.clone(), self.outbound.clone()).map(Arc::new);
        let knowledge = self.knowledge(documents_by, prompts.clone())?;
        let turn_wall = self.wall();
        let executors = Arc::new(self.executors(&prompts));
        let admission = self.admission.unwrap_or_else(|| Admission::of(&self.project.endpoints.server, turn_wall));
        let admission = AdmissionControl::new(admission, self.clock.clone());
        let build = seeds::number(&format!("{}/{}", env!("CARGO_PKG_VERSION"), self.project.hash));
        let hooks = self.hook_sources();
        let sources = self.sources();
        let action_server = self.served();
        let remote_agents =
            if self.offline { HashMap::new() } else { remote_agent::open(&self.project, &self.clock, &self.outbound) };
        let store: Arc<dyn Store> = self.store.unwrap_or_else(|| Arc::new(MemoryStore::default()));
        let runtime = ProjectRuntime {
            command_generator: Arc::new(CommandGenerator::new(prompts).with_embedder(flows_by)),
            project: self.project,
            command_model: generator,
            agent_models,
            sources,
            hooks,
            tools,
            actions: self.actions,
            action_server,
            store: store.clone(),
            knowledge,
            knowledge_model: answers,
            rephrasing,
            rephrasing_model,
            remote_agents,
            tool_lists: Arc::default(),
            executors,
            offline: self.offline,
        };
        Ok(Assistant(Arc::new(Inner {
            runtime: Arc::new(runtime),
            store,
            clock: self.clock,
            mailboxes: Mailboxes::default(),
            admission,
            tasks: TaskTracker::new(),
            beside: TaskTracker::new(),
            build,
            turn_wall,
            unsaved: Default::default(),
            timer_set: tokio::sync::Notify::new(),
            recovering: Default::default(),
            closing: Default::default(),
            outbox: Default::default(),
            timers_held: Default::default(),
            seeds: self.seeds,
            outbound: self.outbound,
            journal_wrapper: self.journal_wrapper,
        })))
    }

    /// A model of the project that no flow and no agent asks, such as one that judges: a group by name, settings of its own, or
    /// without both the model that a component without settings has.
    ///
    /// # Errors
    /// [`ModelConfigError`] when its entry lacks something.
    pub fn open_model(&self, group: Option<&str>, own: &Map<String, Json>) -> Result<Arc<dyn Llm>, ModelConfigError> {
        match &self.model {
            Some(model) => Ok(model.clone()),
            None => {
                ModelFactory::new(&self.project, &self.root, self.outbound.clone(), (self.seeds)()).open(group, own)
            }
        }
    }

    /// Who runs each agent: one that was registered, by its own name or the one that `configuration.module` says, else one of another
    /// program, else our loop.
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

    /// The tools that were given to agents; those that stand for a server become its source.
    fn agent_tools(&mut self) -> Result<HashMap<String, Vec<Arc<dyn ToolHandler>>>, LoadError> {
        let mut of_agents = HashMap::new();
        for (name, tools) in std::mem::take(&mut self.tools) {
            let servers = &self.project.endpoints.mcp_servers;
            if self.project.agent(&name).is_some() {
                let tools = tools.into_iter().map(|tool| Arc::new(tool) as Arc<dyn ToolHandler>);
                of_agents.insert(name, tools.collect());
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
        Ok(of_agents)
    }

    /// Where the hooks of each agent are. A name that nobody registered stops the agents that want it, not the others.
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
            } else if let Some((problem, help)) = self.missing(agent) {
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
                tracing::warn!(agent = %name, %problem, "the agent cannot work");
            }
            sources.insert(name.to_string(), source);
        }
        sources
    }

    /// What is wrong with the name under which an agent wants hooks, and the cure; `None` where nothing is.
    fn missing(&self, agent: &AgentDef) -> Option<(String, String)> {
        let module = agent.module.as_deref().filter(|module| !module.is_empty())?;
        // The path of a Python class is told apart when the project is loaded (F0514).
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

    /// What the project names and nobody registered, as findings: hooks that its agents want. A program of one's own asks this of
    /// its builder when everything is registered; `segue check` asks it of the program `segue`, which registers none.
    pub fn unregistered(&self) -> Vec<Finding> {
        let agents = self.project.agents.values();
        let missing = agents.filter_map(|agent| Some((agent, self.missing(agent)?)));
        let finding = |(agent, (problem, help)): (&Arc<AgentDef>, (String, String))| Finding {
            code: "A0521",
            severity: Severity::Warning,
            place: agent.place.clone(),
            message: format!("the agent `{}` cannot work in this program: {problem}", agent.name),
            help,
        };
        missing.map(finding).collect()
    }

    /// The project's own text for one of our prompts.
    fn replacement(&self, name: &str) -> Option<Arc<str>> {
        self.project.prompts.get(&format!("prompts/{name}")).cloned()
    }

    fn models(&self) -> Result<ProjectModels, LoadError> {
        if self.offline {
            return Ok(ProjectModels::of(Arc::new(super::project_models::OfflineModel::default())));
        }
        if let Some(model) = &self.model {
            let by = self.embedder.clone();
            return Ok(ProjectModels { flows_by: by.clone(), documents_by: by, ..ProjectModels::of(model.clone()) });
        }
        let models = ModelFactory::new(&self.project, &self.root, self.outbound.clone(), (self.seeds)());
        // A pipeline without a generator asks no model.
        let generator = self.project.config.generator.as_ref();
        let opened: Arc<dyn Llm> = match generator {
            None => Arc::new(super::project_models::OfflineModel::default()),
            Some(generator) => models
                .open(generator.model_group.as_deref(), &generator.llm)
                .map_err(|problem| LoadError::Model { place: "the command generator".to_owned(), problem })?,
        };
        let retrieval = generator.map(|generator| &generator.retrieval).filter(|retrieval| retrieval.active);
        let flows_by =
            self.opened(&models, "flow_retrieval", retrieval.and_then(|retrieval| retrieval.embeddings.as_ref()))?;
        let search = self.project.config.search.as_ref();
        let default = ModelChoice::default();
        let documents = search.and_then(|search| match search.store {
            // A vector store is asked by vectors or not at all.
            DocumentStore::Qdrant => Some(search.embeddings.as_ref().unwrap_or(&default)),
            DocumentStore::Folder { .. } => search.embeddings.as_ref(),
        });
        let documents_by = self.opened(&models, "EnterpriseSearchPolicy", documents)?;
        let answers = match search.filter(|search| search.generative) {
            Some(search) => models
                .open(search.llm.group.as_deref(), &search.llm.own)
                .map_err(|problem| LoadError::Model { place: "EnterpriseSearchPolicy".to_owned(), problem })?,
            None => opened.clone(),
        };
        let mut agents = HashMap::new();
        // A remote agent has its own.
        for (name, agent) in self.project.agents.iter().filter(|(_, agent)| agent.remote.is_none()) {
            let model = models
                .open(agent.model_group.as_deref(), &agent.llm)
                .map_err(|problem| LoadError::Model { place: format!("the agent {name}"), problem })?;
            agents.insert(name.to_string(), model);
        }
        let words = match &self.project.endpoints.nlg {
            Some(Nlg::Rephraser(rephraser)) => models
                .open(rephraser.model_group.as_deref(), &rephraser.llm)
                .map_err(|problem| LoadError::Model { place: "the rephraser".to_owned(), problem })?,
            _ => opened.clone(),
        };
        Ok(ProjectModels { generator: opened, agents, answers, words, flows_by, documents_by })
    }

    /// The embedding model of a component, where it names one or the program brought its own.
    fn opened(
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

    fn knowledge(
        &self,
        embedder: Option<Arc<dyn Embedder>>,
        prompts: Arc<PromptSet>,
    ) -> Result<Option<Arc<Knowledge>>, LoadError> {
        let Some(config) = &self.project.config.search else { return Ok(None) };
        let outbound = self.outbound.clone();
        let knowledge = Knowledge::new(config, &self.project, &self.root, embedder, prompts, outbound)?;
        Ok(Some(Arc::new(knowledge)))
    }

    /// The longest turn: ours, or what configured timeouts need, within [`limits::TURN_TIMEOUT_MAX`].
    fn wall(&self) -> Duration {
        let agents =
            self.project.agents.values().filter_map(|agent| agent.timeout.max(remote_agent::longest_wait(agent)));
        let action = self.project.endpoints.action_endpoint.as_ref().and_then(|endpoint| endpoint.timeout);
        // After a late action the flow still has something to say.
        let action = action.map(|timeout| timeout.saturating_add(limits::ACTION_DEADLINE));
        let servers = self.project.endpoints.mcp_servers.values();
        let servers = servers.filter_map(|server| server.tool_timeout_total.max(server.tool_timeout));
        let tools = self.project.agents.values().filter_map(|agent| agent.tool_timeout).chain(servers);
        // So does an agent or a flow after a slow tool.
        let tools = tools.map(|timeout| timeout.saturating_add(limits::TOOL_DEADLINE));
        agents.chain(action).chain(tools).fold(self.turn_wall, Duration::max).min(limits::TURN_TIMEOUT_MAX)
    }

    /// The action server: the one that was handed in, else the one of the project.
    fn served(&self) -> Option<Arc<dyn ActionServer>> {
        if self.offline || self.action_server.is_some() {
            return self.action_server.clone();
        }
        let def = self.project.endpoints.action_endpoint.as_ref()?;
        let around = actions::ActionEnvironment {
            clock: self.clock.clone(),
            http: self.outbound.clone(),
            directory: self.root.clone(),
            environment: crate::environment::all().into(),
        };
        Some(actions::open(def, &self.project, around))
    }

    #[cfg(feature = "mcp")]
    fn sources(&self) -> IndexMap<ServerName, Arc<dyn ToolSource>> {
        use crate::tools::{
            mcp::{McpEnvironment, McpServer},
            pins::{PinFile, PinnedSource},
        };
        let around = McpEnvironment {
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
                None => Arc::new(McpServer::new(def, around.clone())) as Arc<dyn ToolSource>,
            };
            sources.insert(name.clone(), if def.pin { pinned(source) } else { source });
        }
        for (name, source) in &self.sources {
            sources.entry(name.clone()).or_insert_with(|| source.clone());
        }
        sources
    }

    #[cfg(not(feature = "mcp"))]
    fn sources(&self) -> IndexMap<ServerName, Arc<dyn ToolSource>> {
        self.sources.clone()
    }
}

/// The models of a project.
struct ProjectModels {
    /// The command generator's.
    generator: Arc<dyn Llm>,
    /// Those of agents, by name.
    agents: HashMap<String, Arc<dyn Llm>>,
    /// The one that answers from documents.
    answers: Arc<dyn Llm>,
    /// The one that says responses in other words.
    words: Arc<dyn Llm>,
    /// The one that compares flows.
    flows_by: Option<Arc<dyn Embedder>>,
    /// The one that compares documents.
    documents_by: Option<Arc<dyn Embedder>>,
}

impl ProjectModels {
    /// One model for everything.
    fn of(model: Arc<dyn Llm>) -> Self {
        let (answers, words) = (model.clone(), model.clone());
        Self { generator: model, agents: HashMap::new(), answers, words, flows_by: None, documents_by: None }
    }
}

/// Seeds of turns. The system is asked for chance once and not in every turn: they choose among equals, and tell turns apart in
/// idempotency keys; they keep no secret.
fn random_seeds() -> impl Fn() -> u64 {
    let (base, next) = (uuid::Uuid::new_v4().as_u64_pair().0, AtomicU64::new(0));
    move || seeds::nth(base, next.fetch_add(1, Ordering::Relaxed))
}
