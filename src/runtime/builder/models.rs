//! Opens the models that a project names.

use std::{collections::HashMap, sync::Arc};

use segue_engine::project::{DocumentStore, ModelChoice, Nlg};
use serde_json::{Map, Value as Json};

use super::{AssistantBuilder, LoadError};
use crate::{
    knowledge::Knowledge,
    llm::{Embedder, Llm, ModelConfigError},
    prompts::PromptSet,
    runtime::project_models::{ModelFactory, OfflineModel},
};

/// The models of a project.
pub(super) struct ProjectModels {
    /// Of the command generator.
    pub(super) command_model: Arc<dyn Llm>,
    /// Of agents, by name.
    pub(super) agent_models: HashMap<String, Arc<dyn Llm>>,
    /// Of answers from documents.
    pub(super) knowledge_model: Arc<dyn Llm>,
    /// Of the rephraser.
    pub(super) rephrasing_model: Arc<dyn Llm>,
    /// Of flow retrieval.
    pub(super) flow_embedder: Option<Arc<dyn Embedder>>,
    /// Of document search.
    pub(super) document_embedder: Option<Arc<dyn Embedder>>,
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

impl AssistantBuilder {
    /// Opens a model that neither flows nor agents use, for example the judge of test cases: of the group, else of the settings `own`, else
    /// the model of a component without settings.
    ///
    /// # Errors
    /// [`ModelConfigError`] if the model's entry is incomplete or wrong.
    pub fn open_model(&self, group: Option<&str>, own: &Map<String, Json>) -> Result<Arc<dyn Llm>, ModelConfigError> {
        match &self.model {
            Some(model) => Ok(model.clone()),
            None => self.model_factory().open(group, own),
        }
    }

    /// Opens models by the settings of the project.
    pub(super) fn model_factory(&self) -> ModelFactory<'_> {
        ModelFactory::new(&self.project, &self.root, self.outbound.clone(), (self.seed_source)())
    }

    /// The models of conversations: the registered one for everything, else those that the project names.
    pub(super) fn open_models(&self) -> Result<ProjectModels, LoadError> {
        if self.offline {
            return Ok(ProjectModels::single(Arc::new(OfflineModel::default())));
        }
        if let Some(model) = &self.model {
            let by = self.embedder.clone();
            return Ok(ProjectModels {
                flow_embedder: by.clone(),
                document_embedder: by,
                ..ProjectModels::single(model.clone())
            });
        }
        let models = self.model_factory();
        // Without a command generator no flow uses a model.
        let generator = self.project.config.generator.as_ref();
        let command_model: Arc<dyn Llm> = match generator {
            None => Arc::new(OfflineModel::default()),
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

    /// The document search of the project, if it has one.
    pub(super) fn open_knowledge(
        &self,
        embedder: Option<Arc<dyn Embedder>>,
        prompts: Arc<PromptSet>,
    ) -> Result<Option<Arc<Knowledge>>, LoadError> {
        let Some(config) = &self.project.config.search else { return Ok(None) };
        let outbound = self.outbound.clone();
        let knowledge = Knowledge::new(config, &self.project, &self.root, embedder, prompts, outbound)?;
        Ok(Some(Arc::new(knowledge)))
    }
}
