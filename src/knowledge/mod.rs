//! Enterprise search: answers to questions from the project's documents.
//!
//! [`Knowledge::find`] searches for passages, [`Knowledge::answer`] generates an answer from them. Search results and model
//! calls are recorded, so that a replay repeats neither. Documents and user messages are data in the prompt. An answer never
//! names a source that was not shown to the model, and there is no answer when no passage was found.
//!
//! | file | contents |
//! | --- | --- |
//! | `query` | the search query, and the transcript for the prompt |
//! | `document_index` | the index over the documents of a folder, updated when files change |
//! | `citations` | checks the citations of an answer while it streams |
//! | `answer` | the prompt, and the answer as a stream |

mod answer;
mod citations;
mod document_index;
mod query;
#[cfg(test)]
mod tests;

use std::{path::Path, sync::Arc};

use segue_engine::{
    conversation::{Conversation, SearchOutcome},
    project::{DocumentStore, Project, SearchConfig},
    time::Timestamp,
};
use serde::{Deserialize, Serialize};

use self::{document_index::DocumentIndex, query::SearchQuery};
use crate::{
    context::CallContext,
    conversation::ReplySink,
    http::HttpClients,
    limits,
    llm::{Embedder, Llm, LlmError},
    prompts::PromptSet,
    search::{Folder, FolderError, Qdrant, QdrantError, ScoredPassage},
};

/// The documents of a project and how they are searched; there is one per project.
pub struct Knowledge {
    store: Store,
    embedder: Option<Arc<dyn Embedder>>,
    prompts: Arc<PromptSet>,
}

enum Store {
    Folder(DocumentIndex),
    Qdrant(Qdrant),
}

/// A search query and the passages that were found. It is recorded with the turn.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SearchResult {
    /// The text of the query.
    #[serde(rename = "question")]
    pub query: String,
    /// The passages, best first; at most [`limits::KNOWLEDGE_SHOWN`].
    #[serde(rename = "found")]
    pub passages: Vec<ScoredPassage>,
    /// Whether embeddings were compared.
    #[serde(rename = "by_meaning")]
    pub used_embeddings: bool,
    /// Problems for operators: documents that were skipped, an embedding service that failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Why a search failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum KnowledgeError {
    /// The documents cannot be read.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The vector store failed.
    #[error(transparent)]
    Qdrant(#[from] QdrantError),
    /// The vector store needs an embedding of the query, and the embedding service failed.
    #[error("the question could not be embedded: {0}")]
    Embedding(#[from] LlmError),
    /// The vector store needs an embedding of the query, and no embedding model is configured.
    #[error("the vector store needs embeddings; set `embeddings` of `EnterpriseSearchPolicy` in config.yml")]
    NoEmbeddings,
    /// Reading the documents was cancelled, or failed with a panic.
    #[error("the documents could not be read: {0}")]
    ReadAborted(String),
}

impl Knowledge {
    /// The documents that `EnterpriseSearchPolicy` of a project names; `root` is the project's folder. Nothing is read and no
    /// connection is opened yet.
    ///
    /// # Errors
    /// [`QdrantError::InvalidConfig`] when `vector_store` of `endpoints.yml` is missing or its URL is invalid.
    pub fn new(
        config: &SearchConfig,
        project: &Project,
        root: &Path,
        embedder: Option<Arc<dyn Embedder>>,
        prompts: Arc<PromptSet>,
        http_clients: HttpClients,
    ) -> Result<Self, QdrantError> {
        let store = match (&config.store, &project.endpoints.qdrant) {
            (DocumentStore::Qdrant, Some(def)) => Store::Qdrant(Qdrant::new(def, http_clients)?),
            (DocumentStore::Qdrant, None) => return Err(QdrantError::InvalidConfig("it is missing".to_owned())),
            (DocumentStore::Folder { path, .. }, _) => {
                Store::Folder(DocumentIndex::new(Folder::new(root.join(&**path), root)))
            }
        };
        Ok(Self { store, embedder, prompts })
    }

    /// Searches for passages that answer the newest message of the conversation.
    ///
    /// # Errors
    /// [`KnowledgeError`] when the documents cannot be read or the vector store fails. With documents in a folder, a failing
    /// embedding service is not an error: the search is then lexical, with a note in the result.
    ///
    /// # Cancellation
    /// Dropping the future closes connections. A read of the folder that has begun continues in the background.
    pub async fn find(
        &self,
        config: &SearchConfig,
        conversation: &Conversation,
        cx: &CallContext,
    ) -> Result<SearchResult, KnowledgeError> {
        let query = SearchQuery::new(conversation, config.messages_in_query);
        let mut result = SearchResult { query: query.text(), ..SearchResult::default() };
        match &self.store {
            Store::Folder(index) => index.search(&query, self.embedder.as_ref(), config, &mut result, cx).await?,
            Store::Qdrant(qdrant) => {
                let embedder = self.embedder.as_ref().ok_or(KnowledgeError::NoEmbeddings)?;
                let texts: [Arc<str>; 1] = [result.query.as_str().into()];
                let vector = embedder.embed(&texts, &cx.with_timeout(limits::EMBED_WAIT)).await?.into_iter().next();
                let vector = vector.ok_or(KnowledgeError::NoEmbeddings)?;
                result.passages = qdrant.nearest(&vector, limits::KNOWLEDGE_SHOWN, config.threshold, cx).await?;
                result.used_embeddings = true;
            }
        }
        Ok(result)
    }

    /// Generates an answer from the passages. Unless the policy checks the relevancy, the text streams to `out`. Errors are
    /// reported in the outcome.
    ///
    /// # Cancellation
    /// Dropping the future closes the connection to the model. Text that was sent to `out` stays visible to the user.
    pub async fn answer(
        &self,
        task: AnswerTask<'_>,
        result: &SearchResult,
        out: &mut dyn ReplySink,
        cx: &CallContext,
    ) -> SearchOutcome {
        answer::generate_answer(&self.prompts, &task, result, out, cx).await
    }
}

/// The inputs of an answer besides the passages.
pub struct AnswerTask<'a> {
    /// The project.
    pub project: &'a Project,
    /// The settings of its `EnterpriseSearchPolicy`.
    pub config: &'a SearchConfig,
    /// The conversation; its newest message is the question.
    pub conversation: &'a Conversation,
    /// The time that the prompt shows as now.
    pub at: Timestamp,
    /// The model that writes the answer.
    pub llm: Arc<dyn Llm>,
}
