//! From a project folder to an assistant that runs, with whatever the embedding program puts in or replaces.

use std::{collections::HashMap, path::Path, path::PathBuf, sync::Arc, time::Duration};

use indexmap::IndexMap;
use segue_engine::{
    finding::Finding,
    ids::ServerName,
    project::{Nlg, Project},
    template::TemplateError,
};
use serde_json::Map;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use super::{Assistant, Inner, hash, mailbox::Mailboxes, models::Models, parts::Action, parts::Parts};
use crate::{
    agents::Agent,
    clock::{Clock, SystemClock},
    http::Outbound,
    limits,
    llm::{Llm, OpenError},
    project::LoadedProject,
    prompts::PromptSet,
    store::{MemoryStore, Store, StoreError},
    tools::{Tool, ToolSource},
    understanding::Understander,
    wording::Wording,
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
        problem: OpenError,
    },
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
    outbound: Outbound,
    model: Option<Arc<dyn Llm>>,
    agents: HashMap<String, Arc<dyn Agent>>,
    tools: HashMap<String, Vec<Arc<dyn Tool>>>,
    actions: HashMap<String, Arc<dyn Action>>,
    sources: IndexMap<ServerName, Arc<dyn ToolSource>>,
    turn_wall: Duration,
    seeds: Arc<dyn Fn() -> u64 + Send + Sync>,
    offline: bool,
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
        Self {
            project,
            root,
            store: None,
            clock: Arc::new(SystemClock),
            outbound: Outbound::new(),
            model: None,
            agents: HashMap::new(),
            tools: HashMap::new(),
            actions: HashMap::new(),
            sources: IndexMap::new(),
            turn_wall: limits::TURN_WALL,
            seeds: Arc::new(random_seed),
            offline: false,
        }
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
    /// Runs this agent where a flow calls its name, or where an agent's `configuration.module` says `name`.
    #[must_use]
    pub fn agent(mut self, name: impl Into<String>, agent: Arc<dyn Agent>) -> Self {
        self.agents.insert(name.into(), agent);
        self
    }
    /// Offers this tool to an agent.
    #[must_use]
    pub fn tool(mut self, agent: impl Into<String>, tool: Arc<dyn Tool>) -> Self {
        self.tools.entry(agent.into()).or_default().push(tool);
        self
    }
    /// Runs this where a flow has an action step of the name.
    #[must_use]
    pub fn action(mut self, name: impl Into<String>, action: Arc<dyn Action>) -> Self {
        self.actions.insert(name.into(), action);
        self
    }
    /// Stands for the MCP server of this name.
    #[must_use]
    pub fn source(mut self, source: Arc<dyn ToolSource>) -> Self {
        self.sources.insert(ServerName::from(source.name()), source);
        self
    }
    /// Draws seeds from here; tests pass a constant.
    #[must_use]
    pub fn seeds(mut self, seeds: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        self.seeds = Arc::new(seeds);
        self
    }
    /// Lets nothing out: for replaying records. Models and servers are not needed and not opened.
    #[must_use]
    pub fn offline(mut self) -> Self {
        self.offline = true;
        self
    }

    /// The assistant. Connects to nothing yet.
    ///
    /// # Errors
    /// [`LoadError`] when a model cannot be opened or a prompt of the project has an error.
    pub fn build(self) -> Result<Assistant, LoadError> {
        let prompts =
            PromptSet::new(|name| self.replacement(name)).map_err(|error| LoadError::Prompt(Box::new(error)))?;
        let prompts = Arc::new(prompts);
        let (generator, agent_models, wording_model) = self.models()?;
        let wording = Wording::new(&self.project, prompts.clone(), self.outbound.clone()).map(Arc::new);
        let turn_wall = self.wall();
        let build = hash::number(&format!("{}/{}", env!("CARGO_PKG_VERSION"), self.project.hash));
        let sources = self.sources();
        let parts = Parts {
            understander: Arc::new(Understander::new(prompts.clone())),
            project: self.project,
            prompts,
            generator,
            agent_models,
            sources,
            agents: self.agents,
            tools: self.tools,
            actions: self.actions,
            wording,
            wording_model,
            offline: self.offline,
        };
        Ok(Assistant(Arc::new(Inner {
            parts: Arc::new(parts),
            store: self.store.unwrap_or_else(|| Arc::new(MemoryStore::default())),
            clock: self.clock,
            mailboxes: Mailboxes::default(),
            permits: Arc::new(Semaphore::new(limits::TURNS_IN_FLIGHT)),
            tasks: TaskTracker::new(),
            build,
            turn_wall,
            timer_set: tokio::sync::Notify::new(),
            seeds: self.seeds,
        })))
    }

    /// The project's own text for one of our prompts.
    fn replacement(&self, name: &str) -> Option<Arc<str>> {
        self.project.prompts.get(&format!("prompts/{name}")).cloned()
    }

    fn models(&self) -> Result<Opened, LoadError> {
        if self.offline {
            let nobody: Arc<dyn Llm> = Arc::new(super::models::Nobody::default());
            return Ok((nobody.clone(), HashMap::new(), nobody));
        }
        if let Some(model) = &self.model {
            return Ok((model.clone(), HashMap::new(), model.clone()));
        }
        let models = Models::new(&self.project, &self.root, self.outbound.clone(), (self.seeds)());
        let generator = self.project.config.generator.as_ref();
        let (group, own) = generator.map_or((None, Map::new()), |g| (g.model_group.clone(), g.llm.clone()));
        let place = |place: &str| place.to_owned();
        let opened = match models.open(group.as_deref(), &own) {
            Ok(opened) => opened,
            // A pipeline without a generator asks no model, so it needs none.
            Err(_) if generator.is_none() => Arc::new(super::models::Nobody::default()),
            Err(problem) => return Err(LoadError::Model { place: place("the command generator"), problem }),
        };
        let mut agents = HashMap::new();
        for (name, agent) in &self.project.agents {
            let model = models
                .open(agent.model_group.as_deref(), &agent.llm)
                .map_err(|problem| LoadError::Model { place: format!("the agent {name}"), problem })?;
            agents.insert(name.to_string(), model);
        }
        let wording = match &self.project.endpoints.nlg {
            Some(Nlg::Rephraser(rephraser)) => models
                .open(rephraser.model_group.as_deref(), &rephraser.llm)
                .map_err(|problem| LoadError::Model { place: place("the rephraser"), problem })?,
            _ => opened.clone(),
        };
        Ok((opened, agents, wording))
    }

    /// The longest turn: ours, or what configured timeouts need, within [`limits::TURN_WALL_MOST`] (decisions.md 13.11).
    fn wall(&self) -> Duration {
        let agents = self.project.agents.values().filter_map(|agent| agent.timeout);
        agents.fold(self.turn_wall, Duration::max).min(limits::TURN_WALL_MOST)
    }

    #[cfg(feature = "mcp")]
    fn sources(&self) -> IndexMap<ServerName, Arc<dyn ToolSource>> {
        use crate::tools::mcp::{McpServer, Surroundings};
        let around = Surroundings {
            clock: self.clock.clone(),
            http: self.outbound.clone(),
            program: crate::environment::program(),
            directory: Some(self.root.clone()),
            environment: crate::environment::all().into(),
        };
        let mut sources = IndexMap::new();
        for (name, def) in &self.project.endpoints.mcp_servers {
            let source = match self.sources.get(name) {
                Some(own) => own.clone(),
                None => Arc::new(McpServer::new(def, around.clone())) as Arc<dyn ToolSource>,
            };
            sources.insert(name.clone(), source);
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

/// The model of the command generator, those of agents by name, and the one that says responses in other words.
type Opened = (Arc<dyn Llm>, HashMap<String, Arc<dyn Llm>>, Arc<dyn Llm>);

fn random_seed() -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().0
}
