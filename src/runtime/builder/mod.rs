//! Builds an assistant from a project folder and the parts that a Rust program adds or replaces.

mod delegation;
mod missions;
mod models;
mod registrations;
mod workspaces;

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use indexmap::IndexMap;
use segue_engine::{
    finding::Finding,
    ids::ServerName,
    project::{HttpDef, Project},
    template::TemplateError,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::models::ProjectModels;
use super::{
    Admission, Assistant, Inner, JournalWrapper,
    admission::AdmissionControl,
    effects::{ProjectParts, remote_agent},
    feed::Feeds,
    mailbox::Mailboxes,
    project_runtime::{Action, ProjectRuntime},
    seeds,
};
use crate::{
    actions::ActionServer,
    agents::{Agent, AgentHooks},
    clock::{Clock, SystemClock},
    delegation::{BackgroundState, BackgroundTasks, DelegationSettings, Delegations, LogTaskEvents, TaskEventSink},
    http::HttpClients,
    journal::Journal,
    limits,
    llm::{Embedder, Llm, ModelConfigError},
    missions::RunRetention,
    project::LoadedProject,
    prompts::PromptSet,
    rephrasing::Rephrasing,
    search::QdrantError,
    store::{
        MemoryStore, Store, StoreError,
        runs::{MemoryRunStore, RunStore},
    },
    tools::{Tool, ToolSource},
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
    runs: Option<Arc<dyn RunStore>>,
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
    workspace_folder: Option<PathBuf>,
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
            runs: None,
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
            workspace_folder: None,
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
    /// Sets the store of runs, for sub-agents in the background: they outlive the process if it does. Default: in memory.
    #[must_use]
    pub fn runs(mut self, runs: Arc<dyn RunStore>) -> Self {
        self.runs = Some(runs);
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
        let mut tools = self.agent_tools()?;
        self.check_registrations()?;
        let workspaces = self.workspaces();
        self.add_conversation_tools(&workspaces, &mut tools);
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
        let delegations = self.open_delegations();
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
            workspaces,
            background: None,
            prompts,
            offline: self.offline,
        };
        let runs = self.runs.unwrap_or_else(|| Arc::new(MemoryRunStore::new()));
        let settings = &runtime.project.endpoints.runs;
        let retention = RunRetention::new(runs.clone(), self.clock.clone(), &self.root, settings)
            .workspace_folder(runtime.workspaces.folder());
        let background = Arc::new(BackgroundTasks {
            runs: runs.clone(),
            clock: self.clock.clone(),
            owner: segue_base::process::name(),
            build: build_hash,
            delegations: runtime.delegations.clone(),
            prompts: runtime.prompts.clone(),
            parts: Arc::new(ProjectParts(runtime.clone())),
            state: BackgroundState::default(),
        });
        let runtime = ProjectRuntime { background: Some(background), ..runtime };
        // The time of the start distinguishes this process from earlier ones.
        let feeds = Feeds::new(self.clock.now().as_micros().unsigned_abs());
        Ok(Assistant(Arc::new(Inner {
            runtime: Arc::new(runtime),
            store,
            runs: retention,
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
            shutdown: CancellationToken::new(),
            running_turns: Default::default(),
            feeds,
            outbox: Default::default(),
            reminder_backoff: Default::default(),
            seed_source: self.seed_source,
            outbound: self.outbound,
            journal_wrapper: self.journal_wrapper,
        })))
    }

    /// The project's replacement of a built-in prompt.
    fn prompt_override(&self, name: &str) -> Option<Arc<str>> {
        self.project.prompts.get(&format!("prompts/{name}")).cloned()
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
        let command = self.longest_command().map(|limit| limit.saturating_add(limits::TOOL_DEADLINE));
        // An agent sends a message after its last sub-agent.
        let settings = self.delegation_settings();
        let delegates = settings.values().map(|settings| settings.longest().saturating_add(limits::TURN_TIMEOUT));
        agents
            .chain(action)
            .chain(tools)
            .chain(command)
            .chain(delegates)
            .fold(self.turn_timeout, Duration::max)
            .min(limits::TURN_TIMEOUT_MAX)
    }
}

/// Random seeds of turns. The system is asked for randomness once per process: seeds choose variants of responses and make idempotency
/// keys unique; they need not be unpredictable.
fn random_seeds() -> impl Fn() -> u64 {
    let (base, next) = (uuid::Uuid::new_v4().as_u64_pair().0, AtomicU64::new(0));
    move || seeds::nth(base, next.fetch_add(1, Ordering::Relaxed))
}
