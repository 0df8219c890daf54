//! Configuration of retrieval: flows for the prompt, and documents for answers.

use std::{fmt, sync::Arc, time::Duration};

use serde_json::{Map, Value as Json};

use crate::{finding::SourceLocation, template::Template};

/// The model of a component: a model group, or the settings of its own model.
#[derive(Clone, Default, PartialEq)]
pub struct ModelChoice {
    /// The model group, if set.
    pub group: Option<Arc<str>>,
    /// The settings of its own model. May contain secrets: never print them.
    pub own: Map<String, Json>,
}

impl fmt::Debug for ModelChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelChoice").field("group", &self.group).finish_non_exhaustive()
    }
}

/// `flow_retrieval` of the command generator.
#[derive(Clone, Debug, PartialEq)]
pub struct RetrievalConfig {
    /// Whether flows are chosen by similarity; otherwise the prompt contains every flow that can be started.
    pub active: bool,
    /// How many flows are chosen. A project with at most this many flows needs no choice.
    pub flows: usize,
    /// How many of the last turns are compared with the flows; 1: only the newest message.
    pub turns: usize,
    /// Whether the slots of a flow are part of the comparison.
    pub slots: bool,
    /// The embedding model; `None`: lexical comparison.
    pub embeddings: Option<ModelChoice>,
}

impl Default for RetrievalConfig {
    fn default() -> Self {
        Self { active: true, flows: 20, turns: 1, slots: true, embeddings: None }
    }
}

/// `EnterpriseSearchPolicy`.
#[derive(Clone, Debug)]
pub struct SearchConfig {
    /// The model that writes answers.
    pub llm: ModelChoice,
    /// The embedding model; `None`: lexical search.
    pub embeddings: Option<ModelChoice>,
    /// The store of the documents.
    pub store: DocumentStore,
    /// The minimum score of a passage.
    pub threshold: f64,
    /// Whether a model writes the answer; otherwise the answer stored with the best passage is sent.
    pub generative: bool,
    /// Whether answers cite their sources.
    pub citations: bool,
    /// Whether the model may decide that no passage answers the question.
    pub check_relevancy: bool,
    /// How many of the last messages form the query, including the newest.
    pub messages_in_query: usize,
    /// How many of the last messages are in the prompt; `None`: the default of the runtime.
    pub max_history: Option<usize>,
    /// Whether the prompt contains the date.
    pub include_date_time: bool,
    /// A valid IANA time zone name.
    pub timezone: Arc<str>,
    /// The prompt template that replaces the built-in one.
    pub prompt: Option<Template>,
    /// The location of the policy in the project files.
    pub place: SourceLocation,
}

/// The store of the documents.
#[derive(Clone, Debug, PartialEq)]
pub enum DocumentStore {
    /// Text files of a folder, indexed by this program.
    Folder {
        /// The folder, relative to the project folder.
        path: Arc<str>,
        /// Whether it is set in the file rather than the default.
        named: bool,
    },
    /// The Qdrant of `endpoints.yml`.
    Qdrant,
}

/// `vector_store` of `endpoints.yml` with `type: qdrant`.
#[derive(Clone, PartialEq)]
pub struct QdrantDef {
    /// The base URL of the REST API.
    pub url: String,
    /// The name of the collection.
    pub collection: String,
    /// The API key. A secret: never print it.
    pub api_key: Option<String>,
    /// The name of the vector to search, if points have several.
    pub vector_name: Option<String>,
    /// The payload key with the text of a point; `None`: the default keys.
    pub content_key: Option<String>,
    /// The payload key with the metadata of a point.
    pub metadata_key: String,
    /// The time limit of a request.
    pub timeout: Option<Duration>,
}

impl fmt::Debug for QdrantDef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QdrantDef").field("collection", &self.collection).finish_non_exhaustive()
    }
}
