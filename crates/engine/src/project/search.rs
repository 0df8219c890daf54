//! What a project says about finding things: flows for the prompt, and documents for answers.

use std::{fmt, sync::Arc, time::Duration};

use serde_json::{Map, Value as Json};

use crate::{finding::SourceLocation, template::Template};

/// Which model a component asks: a group by name, or one that is described in place.
#[derive(Clone, Default, PartialEq)]
pub struct ModelChoice {
    /// The model group, when one is named.
    pub group: Option<Arc<str>>,
    /// Model settings written in place. May hold secrets: never print them.
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
    /// Whether flows are chosen at all; otherwise the prompt shows every flow that can be started.
    pub active: bool,
    /// How many are chosen; up to this many flows nothing needs to be chosen.
    pub flows: usize,
    /// How many turns are compared with the flows; 1 is the newest message alone.
    pub turns: usize,
    /// Whether the slots of a flow count in the comparison.
    pub slots: bool,
    /// The model that compares meanings; without one, words are compared.
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
    /// The model that compares meanings; without one, words are compared.
    pub embeddings: Option<ModelChoice>,
    /// Where the documents are.
    pub store: DocumentStore,
    /// What a passage must score to count as found.
    pub threshold: f64,
    /// Whether a model writes the answer; otherwise the best passage's own answer is given.
    pub generative: bool,
    /// Whether answers name their sources.
    pub citations: bool,
    /// Whether the model may say that no passage answers the question.
    pub check_relevancy: bool,
    /// How many utterances make the question, the newest included.
    pub messages_in_query: usize,
    /// How many utterances the model is shown; absent = our default.
    pub max_history: Option<usize>,
    /// Whether the prompt shows the date.
    pub include_date_time: bool,
    /// IANA name; checked.
    pub timezone: Arc<str>,
    /// The project's own prompt.
    pub prompt: Option<Template>,
    /// Where the policy stands.
    pub place: SourceLocation,
}

/// Where documents are.
#[derive(Clone, Debug, PartialEq)]
pub enum DocumentStore {
    /// Text files of a folder, indexed by this program.
    Folder {
        /// The folder, from the project's folder.
        path: Arc<str>,
        /// Whether the author named it.
        named: bool,
    },
    /// The Qdrant of `endpoints.yml`.
    Qdrant,
}

/// `vector_store` of `endpoints.yml`, when it is a Qdrant.
#[derive(Clone, PartialEq)]
pub struct QdrantDef {
    /// Its address, without a path of the interface.
    pub url: String,
    /// The collection.
    pub collection: String,
    /// The key. A secret: never print it.
    pub api_key: Option<String>,
    /// The vector that is compared, where points have several.
    pub vector_name: Option<String>,
    /// The key of a point's payload that holds the text; absent = the usual ones.
    pub content_key: Option<String>,
    /// The key of a point's payload that holds what is known about the text.
    pub metadata_key: String,
    /// Longest time of one request.
    pub timeout: Option<Duration>,
}

impl fmt::Debug for QdrantDef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QdrantDef").field("collection", &self.collection).finish_non_exhaustive()
    }
}
